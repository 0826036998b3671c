"""The study's tables: for the terminal, in Markdown and in LaTeX; the published value stands beside ours."""

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from studies.paper import STAMP
from studies.paper.grid import METHODS
from studies.paper.summary import COMPARED, TITLES, Difference, Row, Summary

MEASURES = {
    "tstr": "TSTR",
    "mia": "MIA",
    "top": "Top 10 %",
    "ratio": "Top/med",
    "white_box_top": "Best, top",
}
LEGEND = """\
TSTR: AUROC of logistic regression, trained on synthetic and tested on real records. MIA: advantage of the
distance attack on all records. Top 10 %: advantage of the density-ratio attack on the tenth that stands out
most. Best: advantage of the best attack there can be on the measurements, their functions held fixed; top, on
that tenth. Top/med: the top tenth's advantage (sound: the best attack's) over the median tenth's."""


@dataclass(frozen=True)
class Grid:
    """A table as text: a title, headings, and rows; a row that is None is a rule between groups."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...] | None, ...]


def grids(summary: Summary) -> list[Grid]:
    """One table per dataset, then the paired differences, then the agreement with the published values."""
    names = list(dict.fromkeys(row.dataset for row in summary.rows))
    tables = [_results(summary, name) for name in names]
    tables += [_differences(summary, name) for name in names] if summary.protocol == "sound" else []
    return [*tables, _scorer(summary), _agreement(summary)]


def to_terminal(console: Console, summary: Summary) -> None:
    """All tables, and what they say."""
    for grid in grids(summary):
        table = Table(title=grid.title, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for k, heading in enumerate(grid.headings):
            table.add_column(heading, justify="left" if k < 2 else "right")
        for row in grid.rows:
            table.add_row(*(row or [""]))
        console.print(table, "")
    console.print(f"{LEGEND}\n", markup=False)
    for line in (*summary.sentences, *(f"failed: {failure}" for failure in summary.failures)):
        console.print(line, markup=False)
    console.print(f"[bold]This is {STAMP}[/bold]: its noise is seeded and it describes private records.")


def to_markdown(summary: Summary) -> str:
    """All tables in Markdown."""
    parts = [f"Protocol `{summary.protocol}`, {summary.seeds} seeds; {STAMP}.", LEGEND]
    for grid in grids(summary):
        aligned = ["---" if k < 2 else "---:" for k in range(len(grid.headings))]
        lines = [f"### {grid.title}", "", _line(grid.headings), _line(aligned)]
        lines += [_line(row) for row in grid.rows if row is not None]
        parts.append("\n".join(lines))
    parts += [
        f"- {line}" for line in (*summary.sentences, *(f"failed: {failure}" for failure in summary.failures))
    ]
    return "\n\n".join(parts) + "\n"


def to_latex(summary: Summary) -> str:
    """All tables in LaTeX, for the booktabs package."""
    parts = [f"% protocol {summary.protocol}, {summary.seeds} seeds; {STAMP}"]
    for grid in grids(summary):
        columns = "ll" + "r" * (len(grid.headings) - 2)
        lines = ["\\begin{table}", "\\centering", f"\\caption{{{_tex(grid.title)} ({STAMP})}}"]
        lines += [f"\\begin{{tabular}}{{{columns}}}", "\\toprule", _tex_line(grid.headings), "\\midrule"]
        lines += ["\\midrule" if row is None else _tex_line(row) for row in grid.rows]
        parts.append("\n".join([*lines, "\\bottomrule", "\\end{tabular}", "\\end{table}"]))
    return "\n\n".join(parts) + "\n"


def _results(summary: Summary, name: str) -> Grid:
    rows = [row for row in summary.rows if row.dataset == name]
    shown = [m for m in MEASURES if any(m in row.means for row in rows)]
    with_gamma = any("gamma" in row.means for row in rows)
    compared = {m for m in shown if m in {"tstr"} or (summary.protocol == "paper" and m != "white_box_top")}
    headings = ["ε", "Method", *(["γ"] if with_gamma else [])]
    for measure in shown:
        headings += [MEASURES[measure], *(["(paper)"] if measure in compared else [])]
    lines: list[tuple[str, ...] | None] = []
    for row in rows:
        if lines and row.method == next(iter(METHODS)):
            lines.append(None)
        cells = [f"{row.epsilon:g}", METHODS[row.method] + (f" ({row.failures} failed)" if row.failures else "")]
        if with_gamma:
            cells.append(f"{row.means['gamma'].mean:.2g}" if "gamma" in row.means else "")
        for measure in shown:
            cells += [_mean(row, measure), *([_published(row, measure)] if measure in compared else [])]
        lines.append(tuple(cells))
    title = f"{TITLES[name]}: mean ± standard error over {summary.seeds} seed{'s' * (summary.seeds > 1)}"
    return Grid(title, tuple(headings), tuple(lines))


def _differences(summary: Summary, name: str) -> Grid:
    """REPS minus each baseline."""
    found = {(d.baseline, d.epsilon, d.measure): d for d in summary.differences if d.dataset == name}
    budgets = sorted({d.epsilon for d in found.values() if d.epsilon is not None})
    lines: list[tuple[str, ...] | None] = []
    for baseline in dict.fromkeys(baseline for baseline, _, _ in found):
        lines += [None] if lines else []
        for epsilon in (*budgets, None):
            cells = [_difference(found.get((baseline, epsilon, measure))) for measure in COMPARED]
            budget = "all" if epsilon is None else f"{epsilon:g}"
            lines.append((budget, METHODS[baseline], *cells))
    title = f"{TITLES[name]}: REPS minus a baseline, paired by seed, 95 % interval (* leaves out zero)"
    return Grid(title, ("ε", "Baseline", *(MEASURES[m] for m in COMPARED)), tuple(lines))


def _scorer(summary: Summary) -> Grid:
    rows = [row for row in summary.rows if "recall" in row.means]
    lines = [
        (TITLES[row.dataset], f"{row.epsilon:g}", _mean(row, "correlation"), _mean(row, "recall")) for row in rows
    ]
    title = "Scorer: noisy scores against nearest-neighbour outlyingness"
    return Grid(title, ("Dataset", "ε", "Spearman correlation", "Recall of the top 10 %"), tuple(lines))


def _agreement(summary: Summary) -> Grid:
    shown = ["tstr"] if summary.protocol == "sound" else ["tstr", "mia", "top", "ratio"]
    lines = [
        (TITLES[name], "private methods", *(_short(gaps[m]) if m in gaps else "" for m in shown))
        for name, gaps in summary.agreement.items()
    ]
    headings = ("Dataset", "Over", *(MEASURES[m] for m in shown))
    return Grid("Mean absolute difference to the published values", headings, tuple(lines))


def _mean(row: Row, measure: str) -> str:
    if measure not in row.means:
        return ""
    value = row.means[measure]
    return _short(value.mean) if value.error is None else f"{_short(value.mean)}±{_short(value.error)}"


def _short(number: float, form: str = ".3f") -> str:
    """Without the zero before the point, so that a table fits a terminal.

    >>> _short(0.7312), _short(-0.05, "+.3f"), _short(1.0)
    ('.731', '-.050', '1.000')
    """
    return f"{number:{form}}".replace("0.", ".", 1) if abs(number) < 1 else f"{number:{form}}"


def _published(row: Row, measure: str) -> str:
    return f"({_short(row.published[measure])})" if measure in row.published else ""


def _difference(difference: Difference | None) -> str:
    if difference is None:
        return ""
    star = "*" if difference.distinguishable else ""
    mean, low, high = (_short(v, "+.3f") for v in (difference.mean, difference.low, difference.high))
    return f"{mean} [{low},{high}]{star}"


def _line(cells: tuple[str, ...] | list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tex(text: str) -> str:
    for plain, tex in (("%", "\\%"), ("ε", "$\\varepsilon$"), ("γ", "$\\gamma$"), ("±", "$\\pm$")):
        text = text.replace(plain, tex)
    return text


def _tex_line(cells: tuple[str, ...]) -> str:
    return " & ".join(_tex(cell) for cell in cells) + " \\\\"
