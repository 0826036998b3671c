"""Write matplotlib figures: colours, names beside lines, PNG and SVG files with stable bytes."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from repsynth.arrays import Floats
from repsynth.storage import beside

__all__ = [
    "BLUE",
    "FIGURE",
    "GREEN",
    "GREY",
    "INK",
    "ORANGE",
    "PURPLE",
    "SKY",
    "YELLOW",
    "name_ends",
    "save_figure",
]

# Okabe and Ito's, as on the pages of repsynth; methods also differ in marker and line.
INK, QUIET, LINE = "#1d2329", "#55606b", "#d9dee3"
BLUE, ORANGE = "#0072b2", "#b34a00"
GREEN, SKY, PURPLE, GREY, YELLOW = "#009e73", "#56b4e9", "#cc79a7", "#555555", "#e69f00"
FIGURE = {
    "axes.edgecolor": QUIET,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9.5,
    "grid.color": LINE,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
"""Settings of matplotlib for every figure."""

# Text stays text, and ids in an SVG do not change from run to run.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "repsynth", "text.parse_math": False}


def save_figure(base: Path, figure: Figure, suffixes: Sequence[str] = (".png", ".svg")) -> list[Path]:
    """Write a figure in each format, beside its place and then moved there; the files."""
    paths = []
    for suffix in suffixes:
        path = base.with_suffix(suffix)
        # No date and no random names: equal results give equal files.
        notes = {"Date": None} if suffix == ".svg" else {}
        with rc_context(_STYLE), warnings.catch_warnings(), beside(path, replace=True) as temporary:
            warnings.filterwarnings("ignore", "Glyph .* missing")  # a box stands for what the font has not
            figure.savefig(temporary, format=suffix[1:], dpi=150, metadata=notes)
        paths.append(path)
    return paths


def name_ends(axes: Axes, ends: Sequence[tuple[str, float, float, str]]) -> None:
    """Write a name beside the last point of each line, (name, x, y, colour), in place of a legend. Names that
    would lie on each other are moved apart."""
    axes.autoscale_view()
    to_axes = axes.transData + axes.transAxes.inverted()
    places = np.array([float(to_axes.transform((x, y))[1]) for _, x, y, _ in ends])
    line = 13 / (72 * axes.figure.get_figheight() / axes.get_gridspec().nrows * 0.72)  # the height of one of text
    for (name, _, _, colour), place, moved in zip(ends, places, _moved_apart(places, line), strict=True):
        drawn = {
            "arrowstyle": "-",
            "color": colour,
            "linewidth": 1,
            "relpos": (0, 0.5),
            "shrinkA": 0,
            "shrinkB": 0,
        }
        axes.annotate(
            name, (1.0, place), (1.05, moved), xycoords="axes fraction", textcoords="axes fraction", va="center",
            fontsize=8.5, color=INK, arrowprops=drawn,
        )  # fmt: skip


def _moved_apart(places: Floats, least: float) -> Floats:
    """Each as near to its place as the others let it be, and none beyond 0 and 1.

    >>> _moved_apart(np.array([0.5, 0.5, 0.1]), 0.1).round(3).tolist()
    [0.55, 0.45, 0.1]
    """
    order = np.argsort(-places, kind="stable")
    moved = places[order].astype(np.float64)
    for _ in range(200):
        lack = np.maximum(least - (moved[:-1] - moved[1:]), 0.0)
        moved[:-1] += lack / 2
        moved[1:] -= lack / 2
        moved = np.clip(moved, 0.0, 1.0)
    found = np.empty_like(moved)
    found[order] = moved
    return found
