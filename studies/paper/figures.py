"""The study's figures, each as PNG and SVG: one panel per dataset, the same colour for a method everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from studies.drawing import BLUE, FIGURE, GREEN, GREY, INK, ORANGE, PURPLE, SKY, name_ends, save_figure
from studies.paper import STAMP
from studies.paper.grid import METHODS
from studies.paper.summary import LEVEL, TITLES, Row, Summary

# Distinguishable for the colour-blind, and by marker in print.
_LOOKS = {
    "non-private": (GREY, "x", ":"),
    "uniform": (BLUE, "o", "-"),
    "uniform-split": (SKY, "s", "--"),
    "reps": (ORANGE, "D", "-"),
    "random": (GREEN, "^", "--"),
    "removal": (PURPLE, "v", "--"),
}

_THIN = {"markersize": 4, "linewidth": 1.2, "elinewidth": 1, "capsize": 1.5}

Draw = Callable[[Any, list[Row]], None]


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write every figure, PNG and SVG; the files. Curves by decile are drawn at ε = 1 and at the largest ε."""
    for stale in [*folder.glob("*.png"), *folder.glob("*.svg")]:
        stale.unlink()  # of an earlier run, maybe at other budgets
    with rc_context(FIGURE):
        figures = _draw(summary)
    return [path for name, figure in figures.items() for path in save_figure(folder / name, figure)]


def _draw(summary: Summary) -> dict[str, Figure]:
    sound = summary.protocol == "sound"
    attack = "density-ratio attack, disjoint reference" if sound else "density-ratio attack as published"
    ratio = "the best possible attack" if sound else attack
    recall, correlation = "part of the top 10 % that is found", "Spearman correlation with outlyingness"
    auroc, over = "AUROC, trained on synthetic rows", "advantage, top decile over median decile"
    figures = {
        "utility": _over_budgets(summary, "tstr", auroc, "Utility"),
        "top-decile-attack": _over_budgets(summary, "top", "advantage of the attack", f"Top 10 %: {attack}"),
        "scorer-correlation": _over_budgets(summary, "correlation", correlation, "Scorer", ("reps",)),
        "scorer-recall": _over_budgets(summary, "recall", recall, "Scorer", ("reps",)),
        "inequality": _over_budgets(summary, "ratio", over, f"Inequality: {ratio}"),
    }
    budgets = {row.epsilon for row in summary.rows}
    for epsilon in sorted(budgets & {1.0, max(budgets)}):
        title = f"By decile: {attack}"
        figures[f"attack-by-decile-{epsilon:g}"] = _by_decile(summary, "by_decile", title, epsilon)
        if sound:
            title = "The best possible attack, by decile of outlyingness"
            figures[f"best-attack-by-decile-{epsilon:g}"] = _by_decile(summary, "white_box", title, epsilon)
    return figures


def _over_budgets(
    summary: Summary, measure: str, label: str, title: str, methods: tuple[str, ...] = tuple(METHODS)
) -> Figure:
    def draw(axes: Any, rows: list[Row]) -> None:
        ends = []
        for k, method in enumerate(methods):
            shown = [row for row in rows if row.method == method and measure in row.means]
            if not shown:
                continue
            ends.append((METHODS[method], shown[-1].epsilon, shown[-1].means[measure].mean, _LOOKS[method][0]))
            color, marker, line = _LOOKS[method]
            axes.errorbar(
                [row.epsilon * 1.03 ** (k - len(methods) / 2) for row in shown],  # side by side
                [row.means[measure].mean for row in shown],
                yerr=[row.reach(error) if (error := row.means[measure].error) else 0.0 for row in shown],
                color=color, marker=marker, linestyle=line, **_THIN,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        budgets = sorted({row.epsilon for row in rows})
        axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
        axes.minorticks_off()
        if measure == "top" and summary.protocol == "sound":
            axes.axhline(0, color=INK, linewidth=0.8)
        axes.set_xlabel("ε: the privacy budget")
        axes.set_ylabel(label)
        if len(ends) > 1:
            name_ends(axes, ends)

    return _panels(summary, title, draw)


def _by_decile(summary: Summary, curve: str, title: str, epsilon: float) -> Figure:
    def draw(axes: Any, rows: list[Row]) -> None:
        ends = []
        for k, row in enumerate(row for row in rows if row.epsilon == epsilon and curve in row.deciles):
            if row.method == "non-private" and curve == "white_box":
                continue  # always 1: it would flatten the others
            color, marker, line = _LOOKS[row.method]
            ends.append((METHODS[row.method], 10, row.deciles[curve][-1], color))
            aside = 0.12 * (k - (len(METHODS) - 1) / 2)  # side by side
            axes.errorbar(
                [decile + aside for decile in range(1, 11)],
                row.deciles[curve],
                yerr=[row.reach(error) for error in row.decile_errors.get(curve, [])] or None,
                color=color, marker=marker, linestyle=line, **_THIN,
            )  # fmt: skip
        axes.set_xticks(range(1, 11))
        axes.set_xlabel("decile of outlyingness (10: the most outlying)")
        axes.set_ylabel("advantage of the attack (0: guessing)")
        if curve == "white_box":
            axes.set_ylim(bottom=0)
        else:
            axes.axhline(0, color=INK, linewidth=0.8)
        name_ends(axes, ends)

    return _panels(summary, f"{title}, ε = {epsilon:g}", draw)


def _panels(summary: Summary, title: str, draw: Draw) -> Figure:
    names = list(dict.fromkeys(row.dataset for row in summary.rows))
    size = (5.2 * min(len(names), 2), 3.2 * ((len(names) + 1) // 2) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots((len(names) + 1) // 2, min(len(names), 2), squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        draw(axes, [row for row in summary.rows if row.dataset == name])
        axes.set_title(TITLES[name], fontsize=10)
        axes.grid(alpha=0.6)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    runs = f"mean and {100 * LEVEL:.0f} % interval of {summary.seeds} splits" if summary.seeds > 1 else "one split"
    figure.suptitle(f"{title}\n{summary.protocol} protocol, {runs}; {STAMP}", fontsize=10)
    return figure
