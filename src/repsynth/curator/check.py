"""A look at a table through its schema, before anything is paid: what would be lost, what to declare. PRIVATE."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools, Ints
from repsynth.curator.guess import numbers_of, times_of
from repsynth.curator.look import Look, percent, quoted, repeating, some
from repsynth.curator.sentinels import MARKERS
from repsynth.curator.tally import IdTally, Tally, bounds_of
from repsynth.data.encode import encode_batch
from repsynth.data.record_rules import holds, with_following
from repsynth.data.records import Records
from repsynth.data.sources import check_columns, open_source
from repsynth.schema import (
    Boolean,
    Category,
    Datetime,
    Discrete,
    Follows,
    Id,
    Integer,
    Number,
    Numeric,
    Person,
    RowRule,
    Schema,
    check_unit,
)
from repsynth.schema.rules import condition_of, rule_text

_NOTABLE = 0.001
_MANY = 0.01
_NEARLY_ALL = 0.9
_WIDE = 20
"""Bounds so many times wider than the data leave most bins empty."""
_MOST_SUGGESTED = 8


class ColumnCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a column's cells, in fractions of the rows, and what to do about it. PRIVATE.

    `missing` is empty, `unreadable` no number or time, `undeclared` none of the values: all three count as
    missing. `unexpected_missing` is empty where missing was not declared. `below` and `above` are clipped to the
    bounds; `rounded` is moved to the next step.
    """

    name: str
    type: str
    missing: float = 0.0
    unexpected_missing: float = 0.0
    unreadable: float = 0.0
    undeclared: float = 0.0
    special: float = 0.0
    below: float = 0.0
    above: float = 0.0
    rounded: float = 0.0
    findings: tuple[str, ...] = ()


class TableCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema makes of a table. PRIVATE, as `publishable` says."""

    publishable: bool = False
    rows: int
    dropped_rows: int
    """Rows of a CSV file that are none: they have too many or too few cells."""
    findings: tuple[str, ...]
    columns: tuple[ColumnCheck, ...]

    @property
    def clean(self) -> bool:
        return not self.findings and not any(column.findings for column in self.columns)


def check_table(source: Any, schema: Schema) -> TableCheck:
    """Look at a table through its schema: one pass, nothing written, nothing spent.

    >>> from repsynth.schema import parse_schema
    >>> schema = parse_schema('''
    ... one_row_per_person = true
    ... columns.pay = {type = "integer", min = 0, max = 9000}
    ... ''')
    >>> table = pa.table({"pay": ["1000", "20000", "N", "N", "3000"]})
    >>> pay = check_table(table, schema).columns[0]
    >>> pay.above, pay.unreadable, pay.findings[0]
    (0.2, 0.4, '40.0 % of the cells are "N": add special = ["N"]')
    """
    check_unit(schema)
    opened = open_source(source)
    check_columns(opened, schema)
    tallies: dict[str, Tally | IdTally] = {
        column.name: IdTally() if isinstance(column, Id) else Tally(column) for column in schema.columns
    }
    rows, broken = 0, np.zeros(len(schema.rules), dtype=np.int64)
    for batch in opened.batches(list(tallies)):
        rows += batch.num_rows
        records = encode_batch(batch, replace(schema, rules=()))  # derived columns, too
        broken += np.array([np.sum(_breaks(records, rule, schema)) for rule in schema.rules], dtype=np.int64)
        for name, tally in tallies.items():
            if isinstance(tally, IdTally):
                tally.add(batch.column(name))
            else:
                tally.add(batch.column(name), records.codes[name])
    checks = tuple(
        _id(name, tally, rows, schema.person) if isinstance(tally, IdTally) else _column(tally, rows, schema.label)
        for name, tally in tallies.items()
    )
    dropped = opened.dropped()
    findings = (*_of_table(schema, rows, dropped), *_of_rules(schema, rows, broken))
    return TableCheck(rows=rows, dropped_rows=dropped, findings=findings, columns=checks)


def _of_table(schema: Schema, rows: int, dropped: int) -> Iterator[str]:
    if not rows:
        yield "the table has no rows"
    if dropped:
        yield (
            f"{some(dropped, 'row')} of the file ({percent(dropped, rows + dropped)}) with too many or too few "
            "cells, left out: put cells with commas or line ends in quotation marks"
        )
    if not schema.confirmed:
        yield "the schema is a draft: confirm or replace what was read from the data, then set confirmed = true"


def _breaks(records: Records, rule: RowRule | Follows, schema: Schema) -> Bools:
    """Which rows break a rule; for a derived column, which hold another value than the rule gives."""
    if isinstance(rule, RowRule):
        return ~holds(condition_of(rule, schema), records, schema)
    derived, able = with_following(records, replace(schema, rules=(rule,)))
    other: Bools = derived.codes[rule.column] != records.codes[rule.column]
    return other | ~able


def _of_rules(schema: Schema, rows: int, broken: Ints) -> Iterator[str]:
    for number, (rule, count) in enumerate(zip(schema.rules, broken.tolist(), strict=True), start=1):
        if count:
            yield (
                f"{percent(count, rows)} of the rows ({count:,}) break rule {number} ({rule_text(rule)}), "
                "which no synthetic row will: correct the rule or the data"
            )


def _id(name: str, ids: IdTally, rows: int, person: Person | None) -> ColumnCheck:
    findings: list[str] = []
    if ids.most > 1 and person is None:
        findings.append(repeating(name, ids.distinct, ids.cells, ids.most, exact=ids.exact))
    return ColumnCheck(name=name, type="id", missing=ids.missing / max(rows, 1), findings=tuple(findings))


def _column(tally: Tally, rows: int, label: str | None) -> ColumnCheck:
    column = tally.column
    unread = "undeclared" if isinstance(column, Discrete) else "unreadable"
    counts = {"missing": tally.missing, unread: tally.unread, "special": tally.special}
    counts["unexpected_missing"] = 0 if column.missing else tally.missing
    counts |= {"below": tally.below, "above": tally.above, "rounded": tally.rounded}
    findings = list(_of_cells(tally, rows, is_label=column.name == label))
    if tally.unread and tally.unread + tally.missing == rows and not _other_form(tally, column):
        example = quoted(tally.texts.counts.most_common(1)[0][0])
        findings = [f"no cell is a {_WANTED[type(column)]}; most are like {example}: is that its type?"]
    elif isinstance(column, Discrete):
        findings += _of_undeclared(tally, column, rows)
    else:
        findings += [*_of_unreadable(tally, column, rows), *_of_bounds(tally, column, rows)]
    return ColumnCheck(
        name=column.name,
        type=type(column).__name__.lower(),
        findings=tuple(findings),
        **{name: count / max(rows, 1) for name, count in counts.items()},
    )


def _of_cells(tally: Tally, rows: int, *, is_label: bool) -> Iterator[str]:
    lost = tally.missing + tally.unread
    if is_label and lost:
        yield f"{percent(lost, rows)} of the labels are empty or not declared: such rows teach the model little"
    elif tally.missing and not tally.column.missing:
        yield (
            f"{percent(tally.missing, rows)} of the cells are empty, but missing is not declared: no synthetic "
            "cell will be; declare missing = true"
        )
    if len(tally.seen) == 1 and not tally.special and tally.unread < _MANY * rows:
        yield "the label has one value only: choose another" if is_label else "one value only: nothing to learn"
    if tally.garbled:
        yield f"{some(tally.garbled, 'cell')} with bytes that are no text: name the file's encoding (--encoding)"


_WANTED = {
    Category: "declared value",
    Boolean: "true or false",
    Integer: "number",
    Number: "number",
    Datetime: "time",
}


def _of_undeclared(tally: Tally, column: Discrete, rows: int) -> Iterator[str]:
    frequent = _frequent(tally, rows)
    codes = {t: count for t, count in frequent.items() if t.lower() not in MARKERS or not column.missing}
    if codes:
        it = "it" if len(codes) == 1 else "them"
        remedy = f"add {it} to the values, if public" if isinstance(column, Category) else "make it a category"
        yield f"{_listed(codes, rows)}, not declared: {remedy}"
    yield from _of_rest(tally, frequent, rows)


def _of_unreadable(tally: Tally, column: Numeric, rows: int) -> Iterator[str]:
    """Cells that are no number or time: perhaps they are, in another form; perhaps they are codes."""
    form = _other_form(tally, column)
    if form is not None:
        what = "times" if isinstance(column, Datetime) else "numbers"
        yield f"{percent(tally.unread, rows)} of the cells are {what} in another form: set {form}"
        return
    frequent = _frequent(tally, rows)
    codes = {t: count for t, count in frequent.items() if t.lower() not in MARKERS}
    markers = {t: count for t, count in frequent.items() if t not in codes}
    if codes:
        yield f"{_listed(codes, rows)}: add special = [{', '.join(quoted(text) for text in codes)}]"
    if markers and not column.missing:
        yield f"{_listed(markers, rows)}: declare missing = true"
    yield from _of_rest(tally, frequent, rows)


def _frequent(tally: Tally, rows: int) -> dict[str, int]:
    """The few texts that make up a good part of the cells that cannot be read."""
    common = tally.texts.counts.most_common(_MOST_SUGGESTED)
    return {text: count for text, count in common if count >= _MANY * rows}


def _listed(texts: dict[str, int], rows: int) -> str:
    said = f"{percent(sum(texts.values()), rows)} of the cells are"
    if len(texts) == 1:
        return f"{said} {quoted(*texts)}"
    return f"{said} {', '.join(f'{quoted(text)} ({percent(count, rows)})' for text, count in texts.items())}"


def _of_rest(tally: Tally, named: dict[str, int], rows: int) -> Iterator[str]:
    rest = tally.unread - sum(named.values())
    others = [text for text, _ in tally.texts.counts.most_common() if text not in named]
    if rest > 0 and others:
        more, declare = "more " if named else "", "" if tally.column.missing else "; declare missing = true"
        yield (
            f"{percent(rest, rows)} {more}of the cells are no {_WANTED[type(tally.column)]}, such as "
            f"{quoted(others[0])}: they will count as missing{declare}"
        )


def _other_form(tally: Tally, column: Discrete | Numeric) -> str | None:
    """The keys with which nearly all cells that cannot be read could be."""
    texts = [text for text in tally.texts.counts if text.lower() not in MARKERS]
    if not texts or isinstance(column, Discrete):
        return None
    counts = np.array([tally.texts.counts[text] for text in texts])
    look = Look("", pa.large_string(), pa.array(texts, pa.large_string()), counts, np.zeros(0, dtype=np.int64))
    read = times_of(look) if isinstance(column, Datetime) else numbers_of(look)
    if read is None or look.counts[np.isfinite(read.numbers)].sum() < _NEARLY_ALL * look.cells:
        return None
    keys = [f"{key} = {quoted(text)}" for key, text in read.keys.items()]
    return ", ".join(keys) or ("no dates" if isinstance(column, Datetime) else "no thousands, decimal or prefix")


def _of_bounds(tally: Tally, column: Numeric, rows: int) -> Iterator[str]:
    """Numbers that are clipped or rounded, and bounds that are far too wide."""
    for count, side, remedy in ((tally.below, "below min", "lower"), (tally.above, "above max", "raise")):
        if count >= _NOTABLE * rows and count:
            bound = side.split()[1]
            yield (
                f"{percent(count, rows)} of the cells are {side} and will be cut to it: {remedy} {bound}, "
                "to what is publicly known"
            )
    if tally.rounded >= _NOTABLE * rows and tally.rounded:
        yield f"{percent(tally.rounded, rows)} of the cells {_rounded(column)}"
    low, high = bounds_of(column)
    width = tally.highest - tally.lowest
    if width > 0 and high - low >= _WIDE * width:
        yield (
            f"the bounds are {(high - low) / width:,.0f} times as wide as the data: fine for privacy, but closer "
            "public bounds, if there are any, make it more exact"
        )


def _rounded(column: Numeric) -> str:
    if isinstance(column, Datetime):
        return "have a time of day, which is dropped: give min and max as times to keep it"
    if isinstance(column, Integer) and column.step == 1:
        return "are not whole and will be rounded: make it a number to keep them"
    if isinstance(column, Number) and column.decimals is not None:
        return "have more decimals than declared and will be rounded"
    return "are no whole number of steps from min and will be rounded"
