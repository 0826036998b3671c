"""The first screens: the answer, the numbers that matter, the next command; at most 24 lines of 80 columns.

Everything else is behind `--full` (`render`) and in `--json`.
"""

import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Table

from repsynth.cli.render import KINDS, PRIVATE, lost_cells, make_table, named, verdicts
from repsynth.curator.check import TableCheck
from repsynth.curator.profile import percent
from repsynth.planning.figures import all_warnings, plan_summary
from repsynth.planning.plan import Plan
from repsynth.planning.warnings import csv_warnings
from repsynth.privacy.formatting import Summary, points
from repsynth.release.accuracy import Expected
from repsynth.release.release import Release

if TYPE_CHECKING:  # these need scikit-learn
    from repsynth.attacks.results import Exposure
    from repsynth.evaluation.evaluate import Evaluation

WIDTH, _LINES = 80, 24
_MOST_KINDS, _MOST_COLUMNS, _MOST_SHARES = 4, 6, 8
_REGIONS = ("north", "south", "east", "west", "islands")


def plan(
    console: Console, plan: Plan, rows: int, schema: Path, saved: Path | None, scores_from: Path | None
) -> None:
    made = plan_summary(plan, rows)
    made = Summary(f"{made.answer}\nNothing is spent yet.", made.facts)
    options = "with the same options" if saved is None else f"--schema {_path(schema)} --plan {_path(saved)}"
    if saved is not None and scores_from is not None:
        options += f" --scores-from {_path(scores_from)}"  # settings do not name a release
    following = [f"repsynth synthesize DATA {options}", "repsynth plan ... --full"]
    screen(console, made, following, notes=all_warnings(plan, rows))


def release(console: Console, release: Release, folder: Path) -> None:
    path = _path(folder)
    following = [f"sample {path} -n 1000 -o more.csv", f"report {path} -o report.html", f"inspect {path} --full"]
    following = [f"repsynth {words}" for words in following]
    screen(console, release.summary, following, notes=[*release.warnings, *csv_warnings(release.schema)])


def check(console: Console, checked: TableCheck, schema: Path) -> None:
    findings = [f"{named(column.name)}: {text}" for column in checked.columns for text in column.findings]
    findings = [*checked.findings, *findings]
    touched = [column for column in checked.columns if any(getattr(column, kind) for kind in KINDS)]
    if checked.clean:
        answer = "The schema fits the table. No problems found."
    else:
        count = f"{len(findings)} thing{'s' if len(findings) > 1 else ''}"
        answer = f"The schema does not fit the table yet: {count} to look at."
    whole = len(checked.columns) - len(touched)
    facts = [("Rows", f"{checked.rows:,}"), ("Columns read as they are", f"{whole} of {len(checked.columns)}")]
    if (found := checked.persons) is not None:
        usual = f"{found.median_rows:g} rows in the median, {found.p99_rows:g} at the 99th percentile"
        facts.append(("Persons", f"{found.persons:,}: {usual}, {found.max_rows:,} at most"))
        facts += [
            (f"With rows = {limit.rows}", f"{percent(limit.rows_cut)} of the rows are cut")
            for limit in found.limits[:2]
        ]
    following = [f"repsynth plan --schema {_path(schema)} --epsilon 1", "repsynth check ... --full"]
    table: list[RenderableType] = []
    for most in range(min(len(touched), _MOST_COLUMNS), 0, -1):
        table = [part for part in lost_cells(touched, _MOST_KINDS, most) if part]
        if _height(console, *table) <= _MOST_COLUMNS + 2:
            break
    screen(console, Summary(answer, tuple(facts)), following, notes=findings, table=table, private=True)


def expected(console: Console, found: Expected) -> None:
    """Print what an analyst may rely on, from a release alone."""
    error = max(column.standard_error for column in found.columns)
    answer = f"Shares of one column are exact to {points(error)} or less (95 %)."
    facts = [(each.column, f"{points(each.standard_error)}, {len(each.bins)} bins") for each in found.columns]
    cells = [table.standard_error for table in found.tables]
    known = f"{points(max(cells))} or more: weights and clipping come on top" if cells else "not known"
    rest = [("", f"and {len(facts) - _MOST_SHARES} more columns")] if len(facts) > _MOST_SHARES else []
    facts = [("A cell of a model's table", known), *facts[:_MOST_SHARES], *rest]
    following = ["repsynth evaluate ... --full", "repsynth evaluate --train DATA --release RELEASE"]
    screen(console, Summary(answer, tuple(facts)), following, notes=found.notes)


def evaluation(console: Console, found: "Evaluation", folder: Path | None) -> None:
    more = "repsynth evaluate ... --full" if folder is None else f"less {_path(folder / 'private-summary.md')}"
    rows = ", ".join(f"{count:,} {name}" for name, count in found.rows.items())
    made = Summary(found.summary.answer, (("Rows", rows),))
    screen(console, made, [more], notes=found.warnings, table=(verdicts(found),), private=True)


def exposure(console: Console, found: "Exposure", folder: Path) -> None:
    following = ["repsynth attack ... --full (the same command: nothing is run again)"]
    if found.runs_needed > found.runs:
        following.insert(0, f"repsynth attack ... --runs {found.runs_needed} -o ANOTHER_FOLDER")
    table = make_table("attack", "AUC of all", "of the most outlying tenth", right_from=99)
    cells = {(line.attack, line.decile): line for line in found.planned}
    for name in dict.fromkeys(line.attack for line in found.planned):
        both = [cells.get((name, decile)) for decile in (None, 10)]
        table.add_row(name, *("" if line is None else escape(line.shown_area) for line in both))
    screen(console, found.summary, following, notes=found.notes, table=(table,), private=True)


def demo(console: Console, folder: Path, people: pa.Table, made: pa.Table, release: Release, page: bool) -> None:
    """Show some rows, two columns, the promise, and where to go: at most 30 lines."""
    console.print(
        f"{people.num_rows:,} simulated people in, {made.num_rows:,} synthetic people out. "
        f"All is in {escape(str(folder))}.\n"
    )
    table = make_table("", *people.column_names, right_from=99)
    for kind, rows in (("real", people), ("synthetic", made)):
        for row in rows.slice(0, 3).to_pylist():
            table.add_row(kind, *map(str, row.values()))
    console.print(table)
    both = people, made
    regions = [(n, _share(pc.equal(people["region"], n)), _share(pc.equal(made["region"], n))) for n in _REGIONS]
    ages: list[tuple[str, float, float]] = []
    for low, high in pairwise((0, 30, 45, 60, 200)):
        inside = [pc.and_(pc.greater_equal(t["age"], low), pc.less(t["age"], high)) for t in both]
        ages.append((f"from {low}" if low else f"under {high}", _share(inside[0]), _share(inside[1])))
    for title, shares in (("region", regions), ("age", ages)):
        table = make_table(title, "real", "", "synthetic", "", right_from=99)
        for name, real, synthetic in shares:
            table.add_row(name, *_bar(real), *_bar(synthetic))
        console.print(table)
    console.print(f"\n{escape(release.summary.answer)}")
    console.print("\n[bold]Next[/bold]")
    if page:
        console.print(f"  open {escape(_path(folder / 'release-report.html'))}")
    console.print(f"  repsynth inspect {escape(_path(folder / 'release'))}")
    console.print(f"  less {escape(_path(folder / 'summary.txt'))}")


def _share(rows: pa.ChunkedArray) -> float:
    return float(pc.mean(rows).as_py())


def _bar(share: float) -> tuple[str, str]:
    return "█" * round(40 * share), f"{100 * share:.1f} %"


def screen(
    console: Console,
    summary: Summary,
    following: Sequence[str],
    *,
    notes: Iterable[str] = (),
    table: Sequence[RenderableType] = (),
    private: bool = False,
) -> None:
    """Print the answer, the numbers, as many notes as there is room for, and the next commands."""
    parts: list[RenderableType] = [PRIVATE, ""] if private else []
    parts += [f"[bold]{escape(summary.answer)}[/bold]", ""]
    below: list[RenderableType] = ["", *table] if table else []
    last: list[RenderableType] = ["", "[bold]Next[/bold]", *(f"  {escape(line)}" for line in following)]
    facts = list(summary.facts)
    while _height(console, *parts, _facts(facts), *below, *last) > _LINES - 2 and len(facts) > 1:
        facts.pop()
    parts += [_facts(facts), *below]
    texts = [f"[yellow]note:[/yellow] {escape(note)}" for note in notes]
    room = _LINES - _height(console, *parts, *last) - 1
    shown: list[RenderableType] = []
    for number, text in enumerate(texts):
        rest = len(texts) - number - 1
        if _height(console, *shown, text) + bool(rest) > room:
            shown.append(f"[yellow]note:[/yellow] {rest + 1} more: add --full")
            break
        shown.append(text)
    for part in (*parts, *(["", *shown] if shown else []), *last):
        console.print(part)


def _facts(facts: Iterable[tuple[str, str]]) -> Table:
    table = make_table("", "", right_from=99)
    table.show_header, table.padding = False, (0, 2, 0, 0)
    for name, value in facts:
        table.add_row(escape(name), escape(value))
    return table


def _height(console: Console, *parts: RenderableType) -> int:
    """Return how many lines the parts take."""
    texts = (console.render_str(part) if isinstance(part, str) else part for part in parts)
    return sum(len(console.render_lines(text, pad=False)) for text in texts)


def _path(path: Path) -> str:
    return shlex.quote(str(path))
