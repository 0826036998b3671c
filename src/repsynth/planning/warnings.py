"""Warnings about a run, with remedies.

They follow from the public schema, the settings and a number of records, so they may be published.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from repsynth.columns.adaptive_histogram import COARSE
from repsynth.mechanism.meter import sigma_for
from repsynth.privacy.formatting import upper
from repsynth.schema import Category, Id, Numeric, Schema
from repsynth.schema.formats import IdFormat

if TYPE_CHECKING:
    from repsynth.planning.plan import Plan

_FORMULAS = "which a spreadsheet would run as formulas"


def plan_warnings(plan: "Plan", rows: float | None) -> tuple[str, ...]:
    """Return the warnings about a run of this plan.

    `rows` is the expected, declared or released number of records, None if it is unknown.

    >>> from repsynth.planning.plan import make_plan
    >>> from repsynth.planning.settings import Settings
    >>> region = Category(name="region", values=("north", "south"))
    >>> schema = Schema(columns=(Id(name="person"), region), one_row_per_person=True)
    >>> plan_warnings(make_plan(schema, Settings.of(epsilon=1.0)), rows=1000)
    ("column 'person' is not learned; the ids are numbered 1, 2, 3, ...",)
    """
    found = [] if rows is None else [*_of_size(plan, rows)]
    if plan.schema.measured is not None:
        whole, delta = upper(plan.whole_loss.epsilon(plan.delta)), upper(plan.delta, 3)
        found.append(f"the run and the measured schema together cost ε = {whole} at δ = {delta}")
    found += plan.model.cautions(plan.schema)
    if not plan.scorer.targets_outliers:
        found.append("small weights are assigned at random: outliers are not protected")
    ids = [f"'{column.name}'" for column in plan.schema.columns if isinstance(column, Id) and not column.is_text]
    if ids:
        found.append(f"{some_columns(ids)} not learned; the ids are numbered 1, 2, 3, ...")
    return tuple(found)


def csv_warnings(schema: Schema) -> tuple[str, ...]:
    """Return the warnings about names and values that a CSV file cannot hold unchanged.

    >>> csv_warnings(Schema(columns=(Category(name="region", values=("north", "south")),)))
    ()
    """
    from repsynth.io.write import takes_apostrophe

    names = []
    for column in schema.columns:
        values = column.values if isinstance(column, Category) else ()
        special = column.special if isinstance(column, Numeric) else ()
        if isinstance(column, Id) and column.format is not None:
            form = IdFormat(column.format)
            special = (form.write([0] * len(form.choices)),)
        if any(takes_apostrophe([column.name, *values, *special])):
            names.append(f"'{column.name}'")
    if not names:
        return ()
    return (f"a CSV file gets apostrophes before names or values of {some_columns(names, None)}, {_FORMULAS}",)


def written_warnings(path: Path, apostrophes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the warnings about changed cells in a written file: those that start with an apostrophe.

    >>> written_warnings(Path("out.csv"), {"note": 12})[0][:58]
    "out.csv: an apostrophe stands before 12 cells of column 'n"
    """
    if not apostrophes:
        return ()
    cells, names = sum(apostrophes.values()), [f"'{name}'" for name in apostrophes]
    what = f"{cells:,} cell{'' if cells == 1 else 's'} of {some_columns(names, None)}"
    return (f"{path}: an apostrophe stands before {what}, {_FORMULAS}; Parquet keeps them as they are",)


def some_columns(names: Sequence[str], verbs: tuple[str, str] | None = ("is", "are")) -> str:
    """Return the start of a sentence about some columns.

    >>> some_columns(["a"]), some_columns(list("abcdef"), None)
    ('column a is', 'columns a, b, c and 3 more')
    """
    one = len(names) == 1
    verb = "" if verbs is None else f" {verbs[0] if one else verbs[1]}"
    return f"column{'' if one else 's'} {some(names)}{verb}"


def some(names: Sequence[str]) -> str:
    """Return the first three names and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3:,} more" if len(names) > 3 else "")


def fewest(column: Category) -> float:
    """Return the smallest number of records, in units of a bin's noise, at which a column is not mostly noise.

    At that size, an average value or family has as many records as the standard deviation of its noise.

    >>> fewest(Category(name="code", values=("A1", "A2", "B1", "B2")))
    4.0
    """
    families = column.size if column.families is None else len(set(column.families))
    return math.sqrt(column.size * families)


def _of_size(plan: "Plan", rows: float) -> Iterator[str]:
    """Yield the warnings that depend on the number of records."""
    sigma = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges[COARSE].per_row)
    noisy = [c for c in plan.schema.learned if isinstance(c, Category) and rows < sigma * fewest(c)]
    if rows < 4 * sigma:
        yield (
            f"noise drowns the data: one bin's noise is {sigma:,.0f} records, and the table has about "
            f"{rows:,.0f}; use a larger epsilon or more records"
        )
    elif noisy:
        names = [f"'{column.name}' ({column.size:,} values)" for column in noisy]
        yield (
            f"{some_columns(names, ('has', 'have'))} fewer records per value than the noise of one, {sigma:,.0f}: "
            "rare values will be mostly noise; group them (prefix or parent in the schema), or use a larger "
            "epsilon"
        )
    for column in plan.schema.columns:
        if isinstance(column, Id) and column.format and (room := IdFormat(column.format).room) < rows:
            yield (
                f"the format of column '{column.name}' has room for {room:,} different ids: larger tables cannot "
                "be drawn; give it a longer one"
            )
    if plan.delta * rows > 1:
        yield "delta is larger than one over the number of records; use a smaller one"
    yield from plan.model.resources(plan, max(1, round(rows))).warnings
