"""Check a table against its schema before anything is paid: what would be lost, what to declare. PRIVATE."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.guess import numbers_of, times_of
from repsynth.curator.infer import MARKERS
from repsynth.curator.profile import Look, percent, quoted, repeating, some
from repsynth.data.derived import holds, with_following
from repsynth.data.encode import encode_batch, plain_array, read_numbers, read_seconds, read_text
from repsynth.data.records import MISSING, Records
from repsynth.data.source import CELLS, is_text
from repsynth.data.sources import check_columns, open_source
from repsynth.data.values import EPOCH, Notation, date_format, seconds_at, values_at
from repsynth.schema import (
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
_WIDE = 20  # bounds so many times wider than the data leave most bins empty
_MOST_SUGGESTED = 8
_MOST_TEXTS = 1_000
_LONGEST_TEXT = 60
_MOST_IDS = 4_096


# --- counts of cells, batch by batch, in memory that does not grow with the rows ---


@dataclass
class Tally:
    """The cells of one learned column."""

    column: Discrete | Numeric
    missing: int = 0
    unread: int = 0
    special: int = 0
    below: int = 0
    above: int = 0
    rounded: int = 0
    garbled: int = 0
    lowest: float = np.inf
    highest: float = -np.inf
    texts: "FrequentTexts" = field(default_factory=lambda: FrequentTexts())
    """The cells that cannot be read."""
    seen: set[int] = field(default_factory=set)
    """The declared values that occur, or of a number two codes at most."""

    def add(self, array: pa.Array, codes: Ints) -> None:
        array = plain_array(array)
        blank = _blank(array)
        unread = (codes == MISSING) & ~blank
        self.missing += int(blank.sum())
        self.unread += int(unread.sum())
        if unread.any():
            self.texts.add(read_text(array.filter(pa.array(unread))))
        if is_text(array.type) or array.type == CELLS:
            # The reader puts this mark in place of bytes that are no text.
            marked = pc.match_substring(read_text(array).cast(pa.large_binary()), "\ufffd")
            self.garbled += pc.sum(marked).as_py() or 0
        if isinstance(self.column, Discrete):
            self.seen |= set(np.unique(codes[codes != MISSING]).tolist())
        else:
            self._add_numbers(array, codes, self.column)

    def _add_numbers(self, array: pa.Array, codes: Ints, column: Numeric) -> None:
        self.special += int(np.sum(codes > column.steps))
        plain = (codes != MISSING) & (codes <= column.steps)
        if not plain.any():
            return
        codes, numbers = codes[plain], _numbers(array, column)[plain]
        low, high, unit = _grid(column)
        self.below += int(np.sum(numbers < low))
        self.above += int(np.sum(numbers > high))
        self.lowest = min(self.lowest, float(numbers.min()))
        self.highest = max(self.highest, float(numbers.max()))
        if not isinstance(column, Number) or column.on_grid:
            inside = (numbers >= low) & (numbers <= high)
            values = seconds_at(codes, column) if isinstance(column, Datetime) else values_at(codes, column)
            moved = np.abs(values - numbers) > 5e-7 * unit  # less is floating point
            self.rounded += int(np.sum(inside & moved))
        if len(self.seen) < 2:
            self.seen |= set(np.unique(codes)[:2].tolist())


def _blank(array: pa.Array) -> Bools:
    if is_text(array.type) or array.type == CELLS:
        nothing = pc.equal(pc.binary_length(read_text(array)), 0)
    elif pa.types.is_floating(array.type):
        nothing = pc.is_nan(array)
    else:
        nothing = pc.is_null(array)
    result: Bools = pc.fill_null(nothing, True).to_numpy(zero_copy_only=False)
    return result


def _numbers(array: pa.Array, column: Numeric) -> Floats:
    """Return the cells as numbers before they are clipped; times in seconds since 1970."""
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column)).cast(pa.float64(), safe=False)
        result: Floats = pc.fill_null(seconds, np.nan).to_numpy(zero_copy_only=False)
        return result
    return read_numbers(array, Notation.of(column))


def _grid(column: Numeric) -> tuple[float, float, float]:
    """Return the first and the last value that are not clipped, and the step; times in seconds since 1970."""
    if not isinstance(column, Datetime):
        return float(column.min), float(column.max), float(column.unit)
    start, unit = (column.start - EPOCH).total_seconds(), column.unit.total_seconds()
    return start, start + (column.steps + 1) * unit - 1, unit


class FrequentTexts:
    """The most frequent texts, however many there are; of rare ones, counts may be too small."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, texts: pa.Array) -> None:
        shortened = pc.utf8_slice_codeunits(texts, 0, _LONGEST_TEXT)
        for pair in pc.value_counts(shortened).to_pylist():
            self.counts[pair["values"] or ""] += pair["counts"]
        if len(self.counts) > 2 * _MOST_TEXTS:
            least = self.counts.most_common(_MOST_TEXTS + 1)[-1][1]
            kept = {text: count - least for text, count in self.counts.items() if count > least}
            self.counts = Counter(kept or dict(self.counts.most_common(1)))  # at least an example


class IdTally:
    """How many different ids there are and how often they repeat, from those with the smallest hashes.

    Up to 4,096 different ids, it is exact.
    """

    def __init__(self) -> None:
        self.missing = 0
        self.cells = 0
        self._sample: dict[int, int] = {}
        self._limit = 2**64

    def add(self, array: pa.Array) -> None:
        array = plain_array(array)
        blank = _blank(array)
        self.missing += int(blank.sum())
        self.cells += int((~blank).sum())
        texts = read_text(array.filter(pa.array(~blank))).cast(pa.large_binary())
        for pair in pc.value_counts(texts).to_pylist():
            place = int.from_bytes(hashlib.blake2b(pair["values"] or b"", digest_size=8).digest())
            if place < self._limit:
                self._sample[place] = self._sample.get(place, 0) + pair["counts"]
        if len(self._sample) > _MOST_IDS:
            kept = sorted(self._sample)[: _MOST_IDS + 1]
            self._limit = kept.pop()
            self._sample = {place: self._sample[place] for place in kept}

    @property
    def exact(self) -> bool:
        return self._limit == 2**64

    @property
    def distinct(self) -> int:
        estimate = round(len(self._sample) * 2**64 / self._limit)
        return len(self._sample) if self.exact else min(estimate, self.cells)

    @property
    def most(self) -> int:
        return max(self._sample.values(), default=0)


# --- findings ---


class ColumnCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a column's cells, in fractions of the rows, and what to do about it. PRIVATE.

    Cells that are `missing` (empty), `unreadable` (no number or time) or `undeclared` (no declared value) count as
    missing. `below` and `above` are clipped to the bounds; `rounded` are moved to the next step.
    """

    name: str
    type: str
    missing: float = 0.0
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
    dropped_rows: int  # of a CSV file: too many or too few cells
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
    names = [column.name for column in schema.columns]
    ids = {column.name: IdTally() for column in schema.columns if isinstance(column, Id)}
    learned = {column.name: Tally(column) for column in schema.columns if not isinstance(column, Id)}
    rows, broken = 0, np.zeros(len(schema.rules), dtype=np.int64)
    for batch in opened.batches(names):
        rows += batch.num_rows
        records = encode_batch(batch, replace(schema, rules=()))  # derived columns, too
        broken += np.array([np.sum(_breaks(records, rule, schema)) for rule in schema.rules], dtype=np.int64)
        for name, tally in learned.items():
            tally.add(batch.column(name), records.codes[name])
        for name, counted in ids.items():
            counted.add(batch.column(name))
    checks = tuple(
        _id(name, ids[name], rows, schema.person) if name in ids else _column(learned[name], rows, schema.label)
        for name in names
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
    counts |= {"below": tally.below, "above": tally.above, "rounded": tally.rounded}
    findings = list(_of_cells(tally, rows, is_label=column.name == label))
    if tally.unread and tally.unread + tally.missing == rows and not _other_form(tally, column):
        example = quoted(tally.texts.counts.most_common(1)[0][0])
        findings = [f"no cell is a {_wanted(column)}; most are like {example}: is that its type?"]
    else:
        findings += _of_unread(tally, column, rows)
        findings += _of_bounds(tally, column, rows) if isinstance(column, Numeric) else ()
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


_WANTED = {"category": "declared value", "boolean": "true or false", "datetime": "time"}  # else a number


def _wanted(column: Discrete | Numeric) -> str:
    return _WANTED.get(type(column).__name__.lower(), "number")


def _of_unread(tally: Tally, column: Discrete | Numeric, rows: int) -> Iterator[str]:
    """Cells that are no declared value, number or time: another notation, codes, or marks of missing cells."""
    if form := _other_form(tally, column):
        what = "times" if isinstance(column, Datetime) else "numbers"
        yield f"{percent(tally.unread, rows)} of the cells are {what} in another form: set {form}"
        return
    frequent = _frequent(tally, rows)
    codes = {text: count for text, count in frequent.items() if text.lower() not in MARKERS}
    markers = {text: count for text, count in frequent.items() if text not in codes}
    if codes:
        listed = _listed(codes, rows)
        if isinstance(column, Numeric):
            yield f"{listed}: add special = [{', '.join(quoted(text) for text in codes)}]"
        elif isinstance(column, Category):
            yield f"{listed}, not declared: add {'it' if len(codes) == 1 else 'them'} to the values, if public"
        else:
            yield f"{listed}, not declared: make it a category"
    if markers and not column.missing:
        yield f"{_listed(markers, rows)}: declare missing = true"
    yield from _of_rest(tally, frequent, rows)


def _frequent(tally: Tally, rows: int) -> dict[str, int]:
    common = tally.texts.counts.most_common(_MOST_SUGGESTED)
    return {text: count for text, count in common if count >= _MANY * rows}


def _listed(texts: dict[str, int], rows: int) -> str:
    each = [f"{quoted(text)} ({percent(count, rows)})" for text, count in texts.items()]
    whole = percent(sum(texts.values()), rows)
    return f"{whole} of the cells are {', '.join(each) if len(each) > 1 else quoted(*texts)}"


def _of_rest(tally: Tally, named: dict[str, int], rows: int) -> Iterator[str]:
    rest = tally.unread - sum(named.values())
    others = [text for text, _ in tally.texts.counts.most_common() if text not in named]
    if rest > 0 and others:
        more, declare = "more " if named else "", "" if tally.column.missing else "; declare missing = true"
        yield (
            f"{percent(rest, rows)} {more}of the cells are no {_wanted(tally.column)}, such as "
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
    for count, side, remedy in ((tally.below, "below min", "lower min"), (tally.above, "above max", "raise max")):
        if count >= _NOTABLE * rows and count:
            said = f"{percent(count, rows)} of the cells are {side} and will be cut to it"
            yield f"{said}: {remedy}, to what is publicly known"
    if tally.rounded >= _NOTABLE * rows and tally.rounded:
        yield f"{percent(tally.rounded, rows)} of the cells {_rounded(column)}"
    low, high, _ = _grid(column)
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
