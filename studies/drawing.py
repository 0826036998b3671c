"""Pictures of an evaluation, and how every figure of the project is written. PRIVATE, as the numbers are."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from repsynth.arrays import Floats
from repsynth.evaluation.evaluate import Evaluation
from repsynth.evaluation.palette import BLUE, FIGURE, INK, ORANGE
from repsynth.evaluation.subgroups import Subgroup
from repsynth.storage.atomic import beside

_REAL, _MADE = BLUE, ORANGE
_GRADUAL = LinearSegmentedColormap.from_list("blue to orange", [BLUE, "#ffffff", ORANGE])
_STAMP = "PRIVATE: computed from the training data; do not publish"

# Text stays text, whatever a column is called; no random names.
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "repsynth", "text.parse_math": False}

_MOST_BARS = 30


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


def draw_evaluation(evaluation: Evaluation) -> dict[str, Figure]:
    """The figures by name; those for which there is nothing to draw are left out."""
    with rc_context(FIGURE | _STYLE):
        return _draw(evaluation)


def _draw(evaluation: Evaluation) -> dict[str, Figure]:
    figures = {"columns": _columns(evaluation), "outliers": _outliers(evaluation)}
    if evaluation.associations and len(evaluation.associations["real"].names) > 1:
        figures["associations"] = _associations(evaluation)
    losing = [group for group in evaluation.subgroups if group.extra is not None]
    if losing:
        figures["subgroups"] = _subgroups(losing)
    return figures


def _columns(evaluation: Evaluation) -> Figure:
    measure = evaluation["one-way distance"]
    shown = dict(sorted(measure.breakdown.items(), key=lambda part: -part[1])[:_MOST_BARS])
    figure = Figure(figsize=(7, 1.4 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    axes.barh(list(shown)[::-1], list(shown.values())[::-1], color=_MADE, height=0.7)
    if measure.floor is not None:
        axes.axvline(measure.floor, color=_REAL, linestyle="--")
        _named_line(axes, measure.floor, "two real halves")
    axes.set_xlabel("part of the rows that would have to change (total variation distance)")
    axes.grid(alpha=0.6, axis="x")
    figure.suptitle(f"How far each column is\n{_STAMP}", fontsize=10)
    return figure


def _named_line(axes: Axes, x: float, name: str) -> None:
    place = ("data", "axes fraction")
    axes.annotate(name, (x, 1.0), (3, -2), xycoords=place, textcoords="offset points", color=_REAL, va="top")


def _associations(evaluation: Evaluation) -> Figure:
    names = evaluation.associations["real"].names
    size = min(2.2 + 0.22 * len(names), 9.0)
    figure = Figure(figsize=(3 * size, size + 1.4), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (kind, found) in zip(panels, evaluation.associations.items(), strict=True):
        matrix = found.matrix if kind != "difference" else np.where(np.eye(len(names)), 0.0, found.matrix)
        picture = axes.imshow(matrix, cmap=_GRADUAL, vmin=-1, vmax=1)
        axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
        axes.set_yticks(range(len(names)), names, fontsize=7)
        axes.set_title("synthetic less real" if kind == "difference" else kind, fontsize=10)
    figure.colorbar(picture, ax=list(panels), shrink=0.8)
    figure.suptitle(f"Associations of columns: Pearson, correlation ratio, Cramér's V\n{_STAMP}", fontsize=10)
    return figure


def _outliers(evaluation: Evaluation) -> Figure:
    deciles = evaluation.deciles
    losing = [group for group in deciles if group.extra is not None]
    figure = Figure(figsize=(4.2 * (1 + bool(losing)), 3.6), layout="constrained")
    panels = figure.subplots(1, 1 + bool(losing), squeeze=False).ravel()
    panels[0].bar([group.value for group in deciles], [g.fraction_synthetic for g in deciles], color=_MADE)
    panels[0].axhline(0.1, color=_REAL, linestyle="--")
    panels[0].annotate("real rows", (0.02, 0.1), xycoords=("axes fraction", "data"), color=_REAL, va="bottom")
    panels[0].set_ylabel("fraction of the synthetic rows")
    if losing:
        extra = [group.extra for group in losing]
        errors = [2 * (group.extra_standard_error or 0.0) for group in losing]
        look = {"color": _MADE, "marker": "D", "linestyle": "-", "markersize": 5, "capsize": 2}
        panels[1].errorbar([group.value for group in losing], extra, yerr=errors, **look)
        panels[1].axhline(0, color="black", linewidth=0.8)
        panels[1].set_ylabel("extra loss in prediction")
    for axes in panels:
        axes.set_xlabel("decile of outlyingness (10: the most outlying)")
        axes.grid(alpha=0.6)
        axes.set_axisbelow(True)
    figure.suptitle(f"By decile of outlyingness\n{_STAMP}", fontsize=10)
    return figure


def _subgroups(groups: list[Subgroup]) -> Figure:
    shown = sorted(groups, key=lambda group: group.extra or 0.0)[-_MOST_BARS:]
    figure = Figure(figsize=(7, 1.4 + 0.26 * len(shown)), layout="constrained")
    axes = figure.subplots()
    errors = [2 * (group.extra_standard_error or 0.0) for group in shown]
    extra = [group.extra for group in shown]
    axes.errorbar(extra, [g.name for g in shown], xerr=errors, color=_MADE, marker="D", linestyle="", capsize=2)
    axes.axvline(0, color="black", linewidth=0.8)
    axes.set_ylim(-0.7, len(shown) - 0.3)
    axes.set_xlabel("extra loss in prediction against all others, ± 2 standard errors")
    axes.grid(alpha=0.6, axis="x")
    figure.suptitle(f"Who pays\n{_STAMP}", fontsize=10)
    return figure
