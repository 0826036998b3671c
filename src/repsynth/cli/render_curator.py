"""What the curator's commands print; most of it is PRIVATE."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from repsynth.attacks.statistics import DOUBTFUL, HOLDS, Finding, overall
from repsynth.cli.render import guarantee, make_table, print_table, warnings
from repsynth.curator.check import ColumnCheck, TableCheck
from repsynth.curator.dossier import Summary
from repsynth.curator.draft import Draft
from repsynth.curator.private_schema import MeasuredDraft
from repsynth.curator.profile import percent
from repsynth.evaluation.export import GROUP_HEADERS, Measure, group_row, measure_row, show
from repsynth.privacy.shown import at_most, fixed_at_least, fixed_at_most, percent_at_least

if TYPE_CHECKING:
    from repsynth.evaluation.evaluate import Evaluation

_PRIVATE = "[bold red]PRIVATE[/bold red]: what follows depends on the data; for the curator only.\n"
_FINDING = (
    *("target", "attack", "measurement"),
    *("claimed_epsilon", "guaranteed_epsilon", "lower_epsilon", "verdict", "exceeded"),
)
_FINDING_MU = ("claimed_mu", "guaranteed_mu", "lower_mu")
_MOST_GROUPS = 12
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


def draft(console: Console, draft: Draft, path: Path) -> None:
    console.print(_PRIVATE)
    table = make_table("column", "type", "why", right_from=3)
    by_warning: dict[str, list[str]] = {}
    for column in draft.columns:
        kind = "[yellow]id[/yellow]" if column.type == "id" else column.type
        table.add_row(_named(column.name), kind, escape(column.reason))
        for warning in column.warnings:
            by_warning.setdefault(warning, []).append(_named(column.name))
    console.print(table)
    console.print()
    warnings(console, draft.warnings)
    for warning, names in by_warning.items():
        console.print(f"[yellow]warning:[/yellow] [bold]{', '.join(names)}[/bold]: {escape(warning)}")
    console.print(
        f"\nWrote {escape(str(path))}, a draft that was read from the data and is [bold]not private[/bold].\n"
        "Say whether one person can have several rows, check or replace every bound and category, "
        "then set confirmed = true."
    )


def measured(console: Console, draft: MeasuredDraft, path: Path) -> None:
    console.print(f"Spent {guarantee(draft.epsilon, draft.delta)}.\n")
    table = make_table("column", "type", "what was found", right_from=3)
    for column in draft.columns:
        kind = "[yellow]id[/yellow]" if column.type == "id" else column.type
        bounds = " to ".join(line.split(" = ")[1] for line in column.lines if line.startswith(("min", "max")))
        table.add_row(escape(column.name), kind, escape(f"{column.reason}: {bounds}" if bounds else column.reason))
    console.print(table)
    console.print(
        f"\nWhat it cannot find: values in fewer than about {draft.fewest:,} rows, and what lies beyond a bound "
        f"with fewer than about {draft.least:,} rows."
    )
    warnings(console, draft.warnings)
    for column in draft.columns:
        if column.type != "id":
            warnings(console, (f"{column.name}: {warning}" for warning in column.warnings))
    console.print(
        f"Wrote {escape(str(path))}. It may be published and needs no confirmation; where something is "
        "publicly known, write that in its place."
    )


def check(console: Console, checked: TableCheck) -> None:
    console.print(_PRIVATE)
    headers = ("empty", "unreadable", "undeclared", "special", "below min", "above max", "rounded")
    table = make_table("column", "type", *headers)
    touched = [column for column in checked.columns if any(_parts(column))]
    for column in touched:
        table.add_row(
            _named(column.name), column.type, *(percent(part) if part else "" for part in _parts(column))
        )
    whole = len(checked.columns) - len(touched)
    console.print(f"{checked.rows:,} rows. Of {whole} columns, every cell is read as it is.")
    if touched:
        console.print("Of the others, so many cells are:\n")
        console.print(table)
    console.print()
    for finding in checked.findings:
        console.print(f"[yellow]note:[/yellow] {escape(finding)}")
    for column in checked.columns:
        for finding in column.findings:
            console.print(f"[yellow]note:[/yellow] [bold]{_named(column.name)}[/bold]: {escape(finding)}")
    if checked.clean:
        console.print("The schema fits: nothing to look at.")


def _named(column: str) -> str:
    return escape(column.strip() or "(no name)")


def _parts(column: ColumnCheck) -> tuple[float, ...]:
    lost = (column.missing, column.unreadable, column.undeclared)
    return (*lost, column.special, column.below, column.above, column.rounded)


def dossier(console: Console, output: Path, summary: Summary | None) -> None:
    """Where the dossier is; its summary only when asked for."""
    private = "[bold red]PRIVATE[/bold red], for the curator only. Do not publish any of it."
    console.print(f"Wrote {escape(str(output))}: {private}")
    if summary is None:
        return
    persons = summary.rows != summary.records
    rows = [("rows", f"{summary.rows:,}")] if persons else []
    rows += [
        ("persons" if persons else "records", f"{summary.records:,}"),
        ("largest realised ε", at_most(summary.largest_epsilon)),
        ("median realised ε", at_most(summary.median_epsilon)),
        ("largest to median", f"{summary.max_to_median:.2f}"),
        ("Gini coefficient", f"{summary.gini:.3f}"),
        ("gap between 90 % and 10 % quantiles", f"{summary.quantile_gap:.4g}"),
        ("fraction with a guaranteed ε below the total", percent_at_least(summary.guaranteed_fraction)),
    ]
    if summary.protected_fraction is not None and summary.undecided_fraction is not None:
        rows.append(("mean chance of a record to be protected", f"{summary.protected_fraction:.1%}"))
        rows.append(("fraction for which the noise decides that", f"{summary.undecided_fraction:.1%}"))
    clipped = "changes from round to round" if summary.clip_bias is None else at_most(summary.clip_bias)
    rows += [("bias bound, from weights", at_most(summary.weight_bias)), ("bias bound, from clipping", clipped)]
    print_table(console, ("PRIVATE summary", "value"), rows, right_from=1)
    if summary.no_guarantee:
        console.print(f"No guaranteed ε below the total: {summary.no_guarantee}.")


def audit_data(findings: list[Finding], publishable: bool) -> dict[str, Any]:
    """An audit as plain data. Where a model was trained, there is no μ."""
    return {
        "publishable": publishable,
        "exceeded": any(finding.exceeded for finding in findings),
        "verdict": overall(findings),
        "findings": [
            {name: getattr(f, name) for name in _FINDING}
            | {name: getattr(f, name) if f.claim is None else None for name in _FINDING_MU}
            for f in findings
        ],
    }


def audit(console: Console, findings: list[Finding], private: bool, runs: int) -> None:
    if private:
        console.print(_PRIVATE)
    headers = ("claimed ε ≤", "guaranteed ε ≤", "proven ε ≥", "share proven")
    table = make_table("record", "attack", "measurement", *headers, "the claim", right_from=3)
    table.columns[-1].justify = "left"
    for f in findings:
        verdict = f.verdict if f.verdict == HOLDS else f"[bold red]{f.verdict}[/bold red]"
        before = "" if f.guaranteed_epsilon is None else fixed_at_most(f.guaranteed_epsilon)
        table.add_row(
            *(f.target, f.attack, f.measurement, fixed_at_most(f.claimed_epsilon), before),
            fixed_at_least(f.lower_epsilon),
            "-" if f.share_proven is None else fixed_at_least(f.share_proven, 2),
            verdict,
        )
    console.print(table)
    console.print(
        f"Proven: what attacks with {runs:,} runs show at 95 % confidence for all {len(findings)} lines "
        "together;\nshare proven: of the claimed μ. A claim that holds was not refuted, which does not prove it."
    )
    if any(f.claim is not None for f in findings):
        console.print(
            "A training has no μ: here it is the μ with the same largest advantage, and the proven ε is what the\n"
            "attack's advantage alone shows, so it is smaller."
        )
    _print_verdict(console, findings)


def _print_verdict(console: Console, findings: list[Finding]) -> None:
    verdict = overall(findings)
    if verdict == HOLDS:
        console.print("No claim was exceeded.")
        return
    parts = sorted({f.measurement for f in findings if f.verdict == verdict} - {"all"}) or ["all"]
    if verdict == DOUBTFUL:
        told = (
            "[yellow]A claim was exceeded at 95 %, but not at 99.999 %[/yellow], as a sound mechanism's is in one "
            "audit of twenty at most: run it again with more runs. The measurement:"
        )
    else:
        told = "[bold red]A claim was exceeded[/bold red], at 99.999 %. Look at the measurement:"
    console.print(f"{told} {', '.join(parts)}.")


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


def _print_measures(console: Console, measures: Sequence[Measure]) -> None:
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


def _worst(measure: Measure) -> str:
    long = measure.name == "three-way distance"
    same = measure.name.startswith("prediction") and len(measure.breakdown) < 3
    if long or same or measure.name.startswith(("outliers", "worst")):
        return ""  # too long, the same for both labels, or shown below
    return ", ".join(f"{name} {show(value)}" for name, value in measure.worst(3).items())


def _print_groups(console: Console, found: "Evaluation") -> None:
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
        cells = ([escape(row[k]) for k in shown] for row in rows)
        print_table(console, [GROUP_HEADERS[k] for k in shown], cells, right_from=1)
    if len(marked) > _MOST_GROUPS:
        console.print(f"and {len(marked) - _MOST_GROUPS} more")
