"""The study's figures, each as PNG and SVG: one panel per dataset, the same colour for a method everywhere."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from repsynth.evaluation.plots import save_figure
from repsynth.paper import STAMP
from repsynth.paper.grid import METHODS
from repsynth.paper.summary import TITLES, Row, Summary

# Distinguishable for the colour-blind, and by marker in print.
_LOOKS = {
    "non-private": ("#555555", "x", ":"),
    "uniform": ("#0072b2", "o", "-"),
    "uniform-split": ("#56b4e9", "s", "--"),
    "reps": ("#d55e00", "D", "-"),
    "random": ("#009e73", "^", "--"),
    "removal": ("#cc79a7", "v", "--"),
}

Draw = Callable[[Any, list[Row]], None]


def write_figures(summary: Summary, folder: Path) -> list[Path]:
    """Write every figure, PNG and SVG; the files. Curves by decile are drawn at ε = 1 and at the largest ε."""
    for stale in [*folder.glob("*.png"), *folder.glob("*.svg")]:
        stale.unlink()  # of an earlier run, maybe at other budgets
    sound = summary.protocol == "sound"
    attack = "density-ratio attack, disjoint reference" if sound else "density-ratio attack as published"
    ratio = "the best possible attack" if sound else attack
    recall, correlation = "recall of the top 10 %", "Spearman correlation"
    figures = {
        "utility": _over_budgets(summary, "tstr", "TSTR AUROC", "Utility"),
        "top-decile-attack": _over_budgets(summary, "top", "advantage of the attack", f"Top 10 %: {attack}"),
        "scorer-correlation": _over_budgets(summary, "correlation", correlation, "Scorer", ("reps",)),
        "scorer-recall": _over_budgets(summary, "recall", recall, "Scorer", ("reps",)),
        "inequality": _over_budgets(summary, "ratio", "top decile / median decile", f"Inequality: {ratio}"),
    }
    budgets = {row.epsilon for row in summary.rows}
    for epsilon in sorted(budgets & {1.0, max(budgets)}):
        title = f"By decile: {attack}"
        figures[f"attack-by-decile-{epsilon:g}"] = _by_decile(summary, "by_decile", title, epsilon)
        if sound:
            title = "The best possible attack, by decile of outlyingness"
            figures[f"best-attack-by-decile-{epsilon:g}"] = _by_decile(summary, "white_box", title, epsilon)
    return [path for name, figure in figures.items() for path in save_figure(folder / name, figure)]


def _over_budgets(
    summary: Summary, measure: str, label: str, title: str, methods: tuple[str, ...] = tuple(METHODS)
) -> Figure:
    def draw(axes: Any, rows: list[Row]) -> None:
        for k, method in enumerate(methods):
            shown = [row for row in rows if row.method == method and measure in row.means]
            if not shown:
                continue
            color, marker, line = _LOOKS[method]
            axes.errorbar(
                [row.epsilon * 1.03 ** (k - len(methods) / 2) for row in shown],  # side by side
                [row.means[measure].mean for row in shown],
                yerr=[row.means[measure].error or 0.0 for row in shown],
                color=color, marker=marker, linestyle=line, markersize=5, capsize=2, label=METHODS[method],
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        budgets = sorted({row.epsilon for row in rows})
        axes.set_xticks(budgets, [f"{budget:g}" for budget in budgets])
        axes.minorticks_off()
        if measure == "top" and summary.protocol == "sound":
            axes.axhline(0, color="black", linewidth=0.8)
        axes.set_xlabel("ε")
        axes.set_ylabel(label)

    return _panels(summary, title, draw)


def _by_decile(summary: Summary, curve: str, title: str, epsilon: float) -> Figure:
    def draw(axes: Any, rows: list[Row]) -> None:
        for row in rows:
            hidden = row.method == "non-private" and curve == "white_box"  # always 1: it would flatten the others
            if row.epsilon == epsilon and curve in row.deciles and not hidden:
                color, marker, line = _LOOKS[row.method]
                axes.plot(
                    range(1, 11), row.deciles[curve],
                    color=color, marker=marker, linestyle=line, markersize=5, label=METHODS[row.method],
                )  # fmt: skip
        axes.set_xticks(range(1, 11))
        axes.set_xlabel("decile of outlyingness (10: the most outlying)")
        axes.set_ylabel("advantage of the attack")
        if curve == "white_box":
            axes.set_ylim(bottom=0)
        else:
            axes.axhline(0, color="black", linewidth=0.8)

    return _panels(summary, f"{title}, ε = {epsilon:g}", draw)


def _panels(summary: Summary, title: str, draw: Draw) -> Figure:
    names = list(dict.fromkeys(row.dataset for row in summary.rows))
    figure = Figure(figsize=(4.2 * min(len(names), 2), 3.4 * ((len(names) + 1) // 2) + 1.1), layout="constrained")
    panels = figure.subplots((len(names) + 1) // 2, min(len(names), 2), squeeze=False).ravel()
    for axes, name in zip(panels, names, strict=False):
        draw(axes, [row for row in summary.rows if row.dataset == name])
        axes.set_title(TITLES[name], fontsize=10)
        axes.grid(alpha=0.25)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    handles, labels = panels[0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    figure.suptitle(f"{title}\n{summary.protocol} protocol, mean of {summary.seeds} seeds; {STAMP}", fontsize=10)
    return figure
