"""Check a table against its schema before the run: what would be lost, what to declare, who is in it. PRIVATE."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from repsynth.arrays import Bools, Floats, Ints
from repsynth.curator.infer import MARKERS
from repsynth.curator.profile import Look, numbers_of, percent, quoted, repeating, some, times_of
from repsynth.io.encode import encode_batch, plain_array, read_numbers, read_seconds, read_text
from repsynth.io.records import MISSING, Records
from repsynth.io.source import CELLS, is_text
from repsynth.io.sources import check_columns, open_source
from repsynth.io.values import EPOCH, Notation, date_format, seconds_at, values_at
from repsynth.sampling.derived import holds, with_following
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


# --- counts of cells, batch by batch; memory grows with the persons alone ---


@dataclass
class Tally:
    """The cells of one learned column.

    `texts` are those that cannot be read, `seen` the declared values that occur (of numbers, two codes at most).
    """

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
    seen: set[int] = field(default_factory=set)

    def add(self, array: pa.Array, codes: Ints) -> None:
        array = plain_array(array)
        blank = _blank(array)
        if markers := getattr(self.column, "markers", ()):
            blank |= (codes == MISSING) & pc.is_in(
                read_text(array), pa.array(markers, pa.large_string())
            ).to_numpy(zero_copy_only=False)
        unread = (codes == MISSING) & ~blank
        self.missing += int(blank.sum())
        self.unread += int(unread.sum())
        if unread.any():
            self.texts.add(read_text(array.filter(pa.array(unread))))
        if is_text(array.type) or array.type == CELLS:
            # The reader puts this mark in place of bytes that are not text.
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
    """Return the cells before clipping, times in seconds since 1970."""
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column)).cast(pa.float64(), safe=False)
        result: Floats = pc.fill_null(seconds, np.nan).to_numpy(zero_copy_only=False)
        return result
    return read_numbers(array, Notation.of(column))


def _grid(column: Numeric) -> tuple[float, float, float]:
    """Return the bounds and the step, times in seconds since 1970."""
    if not isinstance(column, Datetime):
        return float(column.min), float(column.max), float(column.unit)
    start, unit = (column.start - EPOCH).total_seconds(), column.unit.total_seconds()
    return start, start + (column.steps + 1) * unit - 1, unit


class FrequentTexts:
    """The most frequent texts. Counts of rare ones may be too small."""

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
    """The number of distinct ids and their counts, by hashes.

    With a `limit`, only that many of the smallest hashes are kept, and the number is an estimate beyond it.
    """

    def __init__(self, limit: int | None = _MOST_IDS) -> None:
        self.missing = self.cells = 0
        self.counts = np.zeros(0, dtype=np.int64)
        self._keys = np.zeros(0, dtype=np.uint64)
        self._limit, self._above = limit, 2**64

    def add(self, array: pa.Array) -> tuple[Bools, NDArray[np.uint64]]:
        """Return which cells have an id, and their hashes."""
        array = plain_array(array)
        known = ~_blank(array)
        texts = read_text(array.filter(pa.array(known))).cast(pa.large_binary()).dictionary_encode()
        hashes = [hashlib.blake2b(text or b"", digest_size=8).digest() for text in texts.dictionary.to_pylist()]
        rows = np.frombuffer(b"".join(hashes), dtype=">u8").astype(np.uint64)[texts.indices.to_numpy()]
        self.missing += int((~known).sum())
        self.cells += len(rows)
        keys, counts = np.unique(rows[rows < self._above] if self._above < 2**64 else rows, return_counts=True)
        self._keys, places = np.unique(np.concatenate([self._keys, keys]), return_inverse=True)
        self.counts = np.bincount(places, np.concatenate([self.counts, counts])).astype(np.int64)
        if self._limit is not None and len(self._keys) > self._limit:
            self._above = int(self._keys[self._limit])
            self._keys, self.counts = self._keys[: self._limit], self.counts[: self._limit]
        return known, rows

    @property
    def exact(self) -> bool:
        return self._above == 2**64

    @property
    def distinct(self) -> int:
        return len(self._keys) if self.exact else min(round(len(self._keys) * 2**64 / self._above), self.cells)

    @property
    def most(self) -> int:
        return int(self.counts.max(initial=0))


class PersonTally:
    """The rows of each person, and which columns vary within one of the persons with the smallest hashes."""

    def __init__(self, names: Sequence[str]) -> None:
        self.ids = IdTally(limit=None)
        self.names = names
        self.varies = np.zeros(len(names), dtype=bool)
        self._keys = np.zeros(0, dtype=np.uint64)
        self._first = np.zeros((len(names), 0), dtype=np.int64)
        self._last = 2**64 - 1

    def add(self, array: pa.Array, records: Records) -> None:
        known, rows = self.ids.add(array)
        chosen = rows <= self._last
        rows = rows[chosen]
        codes = np.stack([records.codes[name][known][chosen] for name in self.names])
        keys, first = np.unique(rows, return_index=True)
        new = ~np.isin(keys, self._keys)
        keys = np.concatenate([self._keys, keys[new]])
        order = np.argsort(keys)
        self._keys = keys[order]
        self._first = np.concatenate([self._first, codes[:, first[new]]], axis=1)[:, order]
        self.varies |= (codes != self._first[:, np.searchsorted(self._keys, rows)]).any(axis=1)
        if len(self._keys) > _MOST_IDS:
            self._keys, self._first = self._keys[:_MOST_IDS], self._first[:, :_MOST_IDS]
            self._last = int(self._keys[-1])


# --- findings ---


class ColumnCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a column's cells, in fractions of the rows, and what to do about it. PRIVATE.

    Empty cells and markers are `missing`. Cells that are `unreadable` (no number or time) or `undeclared` count as
    missing, too. `below` and `above` are clipped to the bounds; `rounded` are moved to the next step.
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


class RowLimit(msgspec.Struct, frozen=True):
    """What a limit of `rows` per person means: the fraction of persons above it, and of rows that it cuts."""

    rows: int
    persons_above: float
    rows_cut: float


class PersonCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The persons of a table. PRIVATE. A row without an id is a person.

    `constant` names the columns that never vary within a person, of at most 4,096 persons.
    """

    column: str
    persons: int
    median_rows: float
    p99_rows: float
    max_rows: int
    constant: tuple[str, ...]
    limits: tuple[RowLimit, ...]


class TableCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a schema makes of a table. PRIVATE."""

    publishable: bool = False
    rows: int
    dropped_rows: int  # of a CSV file: too many or too few cells
    findings: tuple[str, ...]
    columns: tuple[ColumnCheck, ...]
    persons: PersonCheck | None = None
    """None if the schema has no [person]."""

    @property
    def clean(self) -> bool:
        return not self.findings and not any(column.findings for column in self.columns)


def check_table(source: Any, schema: Schema) -> TableCheck:
    """Read a table once through its schema. Nothing is written or spent.

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
    person = schema.person
    persons = None if person is None else PersonTally([column.name for column in schema.learned])
    rows, broken = 0, np.zeros(len(schema.rules), dtype=np.int64)
    for batch in opened.batches(names):
        rows += batch.num_rows
        records = encode_batch(batch, replace(schema, rules=()))  # derived columns, too
        broken += np.array([np.sum(_breaks(records, rule, schema)) for rule in schema.rules], dtype=np.int64)
        for name, tally in learned.items():
            tally.add(batch.column(name), records.codes[name])
        for name, counted in ids.items():
            counted.add(batch.column(name))
        if persons is not None and person is not None:
            persons.add(batch.column(person.column), records)
    checks = tuple(
        _id(name, ids[name], rows, person) if name in ids else _column(learned[name], rows, schema.label)
        for name in names
    )
    dropped = opened.dropped()
    findings = (*_of_table(schema, rows, dropped), *_of_rules(schema, rows, broken))
    return TableCheck(
        rows=rows,
        dropped_rows=dropped,
        findings=findings,
        columns=checks,
        persons=None if persons is None or person is None else _persons(persons, person),
    )


def _persons(tally: PersonTally, person: Person) -> PersonCheck:
    counts = np.concatenate([tally.ids.counts, np.ones(tally.ids.missing, dtype=np.int64)])
    counts = counts if len(counts) else np.zeros(1, dtype=np.int64)
    most, rows = int(counts.max()), max(int(counts.sum()), 1)
    limits = sorted({1, 2, 5, 10, 20, 50, 100, person.rows})
    return PersonCheck(
        column=person.column,
        persons=int(np.count_nonzero(counts)),
        median_rows=float(np.median(counts)),
        p99_rows=float(np.quantile(counts, 0.99, method="higher")),
        max_rows=most,
        constant=tuple(name for name, varies in zip(tally.names, tally.varies, strict=True) if not varies),
        limits=tuple(
            RowLimit(limit, float(np.mean(counts > limit)), float(1 - np.minimum(counts, limit).sum() / rows))
            for limit in limits
            if limit < most or limit == person.rows
        ),
    )


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
    """Return which rows break a rule. A derived column breaks it with any value that the rule does not give."""
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
    repeats = ids.most > 1 and person is None
    findings = (repeating(name, ids.distinct, ids.cells, ids.most, exact=ids.exact),) if repeats else ()
    return ColumnCheck(name=name, type="id", missing=ids.missing / max(rows, 1), findings=findings)


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
    """Explain cells that are not a declared value, number or time: another notation, codes, or markers."""
    if form := _other_form(tally, column):
        what = "times" if isinstance(column, Datetime) else "numbers"
        yield f"{percent(tally.unread, rows)} of the cells are {what} in another form: set {form}"
        return
    common = tally.texts.counts.most_common(_MOST_SUGGESTED)
    frequent = {text: count for text, count in common if count >= _MANY * rows}
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
    rest = tally.unread - sum(frequent.values())
    others = [text for text, _ in tally.texts.counts.most_common() if text not in frequent]
    if rest > 0 and others:
        more, declare = "more " if frequent else "", "" if column.missing else "; declare missing = true"
        yield (
            f"{percent(rest, rows)} {more}of the cells are no {_wanted(column)}, such as {quoted(others[0])}: "
            f"they will count as missing{declare}"
        )


def _listed(texts: dict[str, int], rows: int) -> str:
    each = [f"{quoted(text)} ({percent(count, rows)})" for text, count in texts.items()]
    whole = percent(sum(texts.values()), rows)
    return f"{whole} of the cells are {', '.join(each) if len(each) > 1 else quoted(*texts)}"


def _other_form(tally: Tally, column: Discrete | Numeric) -> str | None:
    """Return the keys with which nearly all unreadable cells can be read."""
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
    """Explain numbers that are clipped or rounded, and bounds that are far too wide."""
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
