"""What `schema` and `check` print: looks at the data, for the curator only."""

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from repsynth.cli.render import make_table
from repsynth.curator.check import ColumnCheck, TableCheck
from repsynth.curator.draft import Draft
from repsynth.curator.profile import percent

_PRIVATE = "[bold red]PRIVATE[/bold red]: what follows depends on the data; for the curator only.\n"


def draft_data(draft: Draft) -> dict[str, Any]:
    return {
        "publishable": False,
        "rows": draft.rows,
        "warnings": draft.warnings,
        "columns": [
            {"name": c.name, "type": c.type, "reason": c.reason, "warnings": c.warnings} for c in draft.columns
        ],
    }


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
    for warning in draft.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    for warning, names in by_warning.items():
        console.print(f"[yellow]warning:[/yellow] [bold]{', '.join(names)}[/bold]: {escape(warning)}")
    console.print(
        f"\nWrote {escape(str(path))}, a draft that was read from the data and is [bold]not private[/bold].\n"
        "Say whether one person can have several rows, check or replace every bound and category, "
        "then set confirmed = true."
    )


def check(console: Console, checked: TableCheck) -> None:
    console.print(_PRIVATE)
    headers = ("empty", "unreadable", "undeclared", "special", "below min", "above max", "rounded")
    table = make_table("column", "type", *headers)
    touched = [column for column in checked.columns if any(_parts(column))]
    for column in touched:
        table.add_row(_named(column.name), column.type, *(_fraction(part) for part in _parts(column)))
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


def _fraction(part: float) -> str:
    return percent(part) if part else ""
