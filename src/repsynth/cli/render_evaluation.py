"""What `evaluate` prints, and what `inspect` says of expected errors."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from repsynth.cli.render import make_table, warnings
from repsynth.privacy.shown import at_least, at_most, fixed_at_least, fixed_at_most
from repsynth.release.expected import Expected, Mean, Z

if TYPE_CHECKING:
    from repsynth.evaluation.evaluate import Evaluation
    from repsynth.evaluation.measures import Measure

_MOST_COLUMNS, _MOST_GROUPS = 20, 12

_TITLES = {
    "one-way distance": "How near its tables are",
    "range coverage": "What is there at all",
    "category coverage": "What is there at all",
    "prediction by logistic regression": "What can be learned",
    "prediction by boosting": "What can be learned",
    "coefficients": "What can be learned",
    "propensity": "Whether it can be told from real",
    "outliers": "Who pays",
    "intervals of the release": "Whether the release keeps its word",
}


_NARROW = 100
"""Columns of a terminal below which tables leave some numbers to --json and to the files."""


def evaluation(console: Console, found: "Evaluation") -> None:
    console.print(f"[bold red]PRIVATE[/bold red]: {escape(found.stamp.removeprefix('PRIVATE: '))}\n")
    rows = ", ".join(f"{count:,} {name}" for name, count in found.rows.items())
    label = f" Label: {escape(found.label)}." if found.label else ""
    if found.compared_with:
        console.print(f"Compared with {escape(found.compared_with)}.")
    console.print(f"Rows: {rows}.{label}")
    _print_measures(console, found.measures)
    _print_groups(console, found)
    console.print()
    for name, why in found.left_out.items():
        console.print(f"[yellow]left out:[/yellow] {escape(name)}: {escape(why)}")
    warnings(console, found.warnings)


def _print_measures(console: Console, measures: "Sequence[Measure]") -> None:
    from repsynth.evaluation.written import measure_row

    # Where there is little room, the last two stay in the words alone.
    numbers = ["value", "best", "real halves", "independent"][: 2 if console.width < _NARROW else None]
    table = make_table("measure", *numbers, right_from=1)
    table.columns[0].no_wrap = True
    table.add_column("in words", overflow="fold")
    seen: set[str] = set()
    for measure in measures:
        title = _TITLES.get(measure.name)
        if title is not None and title not in seen:
            seen.add(title)
            table.add_row()
            table.add_row(f"[bold]{title}[/bold]")
        name, *values, words = measure_row(measure)
        table.add_row(f"  {name}", *values[: len(numbers)], escape(words))
    console.print(table)
    console.print("\n[bold]Farthest from the best[/bold]")
    for measure in measures:
        worst = _worst(measure)
        if worst:
            console.print(f"  {measure.name}: {escape(worst)}")


def _worst(measure: "Measure") -> str:
    from repsynth.evaluation.measures import show

    long = measure.name == "three-way distance"
    same = measure.name.startswith("prediction") and len(measure.breakdown) < 3
    if long or same or measure.name.startswith(("outliers", "worst")):
        return ""  # too long, the same for both labels, or shown below
    return ", ".join(f"{name} {show(value)}" for name, value in measure.worst(3).items())


def _print_groups(console: Console, found: "Evaluation") -> None:
    from repsynth.evaluation.written import GROUP_HEADERS, group_row

    marked = [group for group in found.subgroups if group.pays_more or group.too_few]
    marked.sort(key=lambda group: -(group.extra or 0.0))
    for title, groups in (
        ("By decile of outlyingness, 10 the most outlying", list(found.deciles)),
        ("Subgroups that pay more than others, or are too few", marked[:_MOST_GROUPS]),
    ):
        if not groups:
            continue
        console.print(f"\n[bold]{title}[/bold]")
        rows = [group_row(group) for group in groups]
        shown = [k for k, header in enumerate(GROUP_HEADERS) if not header or any(row[k] for row in rows)]
        table = make_table(*(GROUP_HEADERS[k] for k in shown), right_from=1)
        for row in rows:
            table.add_row(*(escape(row[k]) for k in shown))
        console.print(table)
    if len(marked) > _MOST_GROUPS:
        console.print(f"and {len(marked) - _MOST_GROUPS} more")


def expected(console: Console, found: Expected) -> None:
    """What an analyst may rely on, from the release alone."""
    console.print(
        "[bold]What an analyst may rely on[/bold], from the released noise alone (may be published), 95 %:\n"
    )
    table = make_table(
        "column", "bins", "share of a bin", "mean by bins", "noise", "binning, at most", right_from=1
    )
    means = {mean.column: mean for mean in found.means}
    for shares in found.columns[:_MOST_COLUMNS]:
        table.add_row(
            escape(shares.column),
            str(len(shares.bins)),
            _points(shares.standard_error),
            *_mean(means.get(shares.column)),
        )
    console.print(table)
    if len(found.columns) > _MOST_COLUMNS:
        rest = max(shares.standard_error for shares in found.columns[_MOST_COLUMNS:])
        console.print(f"and {len(found.columns) - _MOST_COLUMNS} more columns, a share {_points(rest)} at most")
    _print_tables(console, found)
    if found.group_means:
        shown = make_table("mean of", "where", "mean by groups", "noise, at least", "lies between", right_from=2)
        for mean in found.group_means[:_MOST_GROUPS]:
            shown.add_row(escape(mean.column), escape(mean.by), *_mean(mean)[:2], _ends(mean))
        console.print()
        console.print(shown)
        if len(found.group_means) > _MOST_GROUPS:
            console.print(f"and {len(found.group_means) - _MOST_GROUPS} more (--json has all)")
    console.print()
    for note in found.notes:
        console.print(escape(note))


def _print_tables(console: Console, found: Expected) -> None:
    by_measurement: dict[str, list[float]] = {}
    bounds = {table.measurement: table.lower_bound for table in found.tables}
    for table in found.tables:
        by_measurement.setdefault(table.measurement, []).append(table.standard_error)
    if by_measurement:
        console.print()
        shown: RichTable = make_table("the model's tables", "how many", "a cell, from", "to", "", right_from=1)
        for name, errors in by_measurement.items():
            least = "at least: weights and clipping come on top" if bounds[name] else ""
            shown.add_row(name, str(len(errors)), _points(min(errors)), _points(max(errors)), least)
        console.print(shown)


def _mean(mean: Mean | None) -> tuple[str, str, str]:
    if mean is None:
        return "", "", ""
    return _number(mean.mean), f"± {_at_most(Z * mean.standard_error)}", _at_most(mean.binning)


def _ends(mean: Mean) -> str:
    if mean.interval_95 is None:
        return "not known"
    low, high = mean.interval_95
    below = fixed_at_least(low, 0) if abs(low) >= 1000 else at_least(low, 4)
    above = fixed_at_most(high, 0) if abs(high) >= 1000 else at_most(high, 4)
    return f"{below} and {above}"


def _at_most(value: float) -> str:
    return fixed_at_most(value, 0) if value >= 100 else at_most(value, 2)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _points(standard_error: float) -> str:
    return f"± {fixed_at_most(100 * Z * standard_error, 2)} points"


def written(console: Console, folder: Path, names: list[str]) -> None:
    console.print(f"Wrote {', '.join(names)} to {escape(str(folder))}")
