"""Sampling in even quotas: nearer to the fitted probabilities than independent draws.

Records are sorted by the row of the table from which they draw. Within a row the order is random, or follows a
variable on which the draw must not depend. Each record gets a level, a 32-bit number, so that levels are evenly
spread over the sorted records. The cumulative probabilities of the row turn the level into a value. All of it is
arithmetic on whole arrays, a few nanoseconds per record. `Shape` then turns groups into codes of a column.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.groups import Groups, probabilities_within
from repsynth.io.records import MISSING, Records
from repsynth.io.values import usual
from repsynth.schema import Numeric

GOLDEN = (5**0.5 - 1) / 2

Levels = NDArray[np.uint32]

_TOP = 2.0**32
_STEPS = tuple(np.uint32(part * _TOP) for part in (GOLDEN, 2**0.5 - 1))
"""Levels that grow by these steps are evenly spread over any run of records, and so are pairs of levels."""

_GUIDE = 2**17  # entries of the guide table
_FINEST = 12  # bits of a level that select an entry
_FEW_RANDOM_BITS = 8  # two columns agree on the order of a pair of records once in 65,536 times


def systematic(probabilities: Floats, rows: int, generator: np.random.Generator) -> Ints:
    """Return codes in the proportions of the probabilities, in random order (systematic sampling)."""
    levels = (np.arange(rows) + generator.random()) / max(rows, 1)
    upto = np.append(np.searchsorted(levels, np.cumsum(probabilities)[:-1]), rows)
    return generator.permutation(np.repeat(np.arange(len(probabilities)), np.diff(upto, prepend=0)))


@dataclass(frozen=True)
class SortedRecords:
    """Records sorted by table row, then by `order`, then at random."""

    records: Ints
    rows: int
    ordered: bool
    keys: NDArray[Any]
    width: int
    """`keys` are sorted; each row has `width` different ones."""

    @classmethod
    def of(
        cls, given: Ints, rows: int, generator: np.random.Generator, order: Ints | None = None
    ) -> "SortedRecords":
        """Arrange records by the table row that each draws from.

        >>> line = SortedRecords.of(np.array([1, 0, 1]), 2, np.random.default_rng(0), order=np.array([7, 7, 3]))
        >>> line.records.tolist(), line.row.tolist()
        ([1, 2, 0], [0, 1, 1])
        """
        width = 1 if order is None else int(order.max(initial=0)) + 1
        index, used = (max(len(given), 2) - 1).bit_length(), (rows * width).bit_length()
        bits = 32 if index + used + _FEW_RANDOM_BITS <= 32 else 64
        free = bits - index - used
        if free < _FEW_RANDOM_BITS:
            keys = [generator.random(len(given)), *([] if order is None else [order]), given]
            line = np.lexsort(keys)
            return cls(line, rows, order is not None, given[line], 1)
        # One number per record: row and order, random bits, and the record's index.
        kind = np.dtype(f"uint{bits}").type
        key = given.astype(kind)
        if order is not None:
            key = key * kind(width) + order.astype(kind)
        key <<= kind(free)
        random = generator.integers(0, 2**64, -(-len(given) * bits // 64), dtype=np.uint64).view(kind)
        key |= random[: len(given)] >> kind(bits - free)
        key <<= kind(index)
        key |= np.arange(len(given), dtype=kind)
        key.sort()
        records = (key & kind((1 << index) - 1)).astype(np.int64)
        key >>= kind(index + free)
        return cls(records, rows, order is not None, key, width)

    @classmethod
    def as_they_are(cls, rows: int) -> "SortedRecords":
        """Arrange this many records of one row in their given order."""
        return cls(np.arange(rows), 1, ordered=False, keys=np.zeros(rows, dtype=np.int64), width=1)

    @cached_property
    def row(self) -> Ints:
        return (self.keys if self.width == 1 else self.keys // self.keys.dtype.type(self.width)).astype(np.int64)

    @cached_property
    def sizes(self) -> Ints:
        """The number of records of each row."""
        firsts = np.arange(self.rows + 1, dtype=np.uint64) * np.uint64(self.width)
        return np.diff(np.searchsorted(self.keys, firsts.astype(self.keys.dtype)))

    def places(self, start: Floats) -> Floats:
        """Return each record's position among those of its row, from 0 to 1.

        `start` is the offset of each row's first record, from 0 to 1 of the distance between two records.
        """
        slope = 1 / np.maximum(self.sizes, 1)
        first = (start - np.cumsum(self.sizes) + self.sizes) * slope
        places: Floats = np.arange(len(self.records)) * slope.take(self.row) + first.take(self.row)
        return np.clip(places, 0.0, 1.0, out=places)

    def round(self, which: int) -> Levels:
        """Return levels that grow by one of two steps from record to record, across rows."""
        return np.arange(len(self.row), dtype=np.uint32) * _STEPS[which]

    def put(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return values of the sorted records in the original order."""
        found = np.empty_like(values)
        found[self.records] = values
        return found


@dataclass(frozen=True)
class Quotas:
    """The cumulative probabilities of each row of a table, as levels.

    A guide table over intervals of levels holds the value of most levels; the others need a search.
    """

    rows: int
    values: int
    ends: NDArray[np.uint64]
    """The last levels of the values, row after row, in increasing order."""

    @classmethod
    def of(cls, probabilities: Floats) -> "Quotas":
        """Make quotas from (rows, values); rows need not sum to 1.

        >>> quotas = Quotas.of(np.array([[0.5, 0.5], [1.0, 0.0]]))
        >>> level = np.array([0, 2**31, 2**32 - 1], dtype=np.uint32)
        >>> quotas.at(np.array([0, 0, 1]), level).tolist()
        [0, 1, 0]
        """
        ends = np.cumsum(probabilities, axis=1)
        ends = np.floor(ends / ends[:, -1:] * _TOP)
        rows, values = probabilities.shape
        return cls(rows, values, (ends.astype(np.uint64) + _starts(rows)[:, None]).ravel())

    @cached_property
    def probabilities(self) -> Floats:
        """(rows, values): the probability of each value."""
        ends = (self.ends.reshape(self.rows, -1) - _starts(self.rows)[:, None]) / _TOP
        return np.diff(ends, axis=1, prepend=0.0)

    def along(self, line: SortedRecords, generator: np.random.Generator) -> Ints:
        """Return a value for each sorted record, evenly spread over each row and, with an order, inside it."""
        start = generator.random(self.rows)
        if line.ordered:
            return self.at(line.row, line.round(0) + (start * _TOP).astype(np.uint32).take(line.row))
        size = line.sizes
        if len(self.ends) > len(line.records):
            level = np.minimum(line.places(start) * _TOP, _TOP - 1)
            return self.at(line.row, level.astype(np.int64).astype(np.uint32))
        ends = (self.ends.reshape(self.rows, -1) - _starts(self.rows)[:, None]) / _TOP
        upto = np.clip(np.ceil(ends * size[:, None] - start[:, None]), 0, size[:, None]).astype(np.int64)
        counts = np.diff(upto, axis=1, prepend=0)
        counts[:, -1] += size - upto[:, -1]
        return np.repeat(np.tile(np.arange(self.values), self.rows), counts.ravel())

    def at(self, row: Ints, level: Levels) -> Ints:
        if len(level) < _GUIDE // 16:  # a guide would take longer than a search
            return self._search(row, level)
        bits, guide = self._guide
        found = guide.take((row << bits) | (level >> np.uint32(32 - bits))).astype(np.int64)
        unsure = np.flatnonzero(found < 0)
        if unsure.size:
            found[unsure] = self._search(row[unsure], level[unsure])
        return found

    def _search(self, row: Ints, level: Levels) -> Ints:
        wanted = (row.astype(np.uint64) << np.uint64(32)) | level
        return np.searchsorted(self.ends, wanted, side="right") - row * self.values

    @cached_property
    def _guide(self) -> tuple[int, NDArray[Any]]:
        """The leading bits of a level that select an entry, and each entry: a value, or -1 for a search."""
        bits = int(np.clip((_GUIDE // self.rows).bit_length() - 1, 1, _FINEST))
        cells, width = 1 << bits, 1 << (32 - bits)
        ends = (self.ends.reshape(self.rows, -1) - _starts(self.rows)[:, None]).astype(np.int64)
        row = np.arange(self.rows)[:, None] * (cells + 1)

        def ended(by: Ints) -> Ints:
            """Return how many values of a row end before each entry of the guide."""
            counts = np.bincount((row + by).ravel(), minlength=self.rows * (cells + 1))
            return np.cumsum(counts.reshape(self.rows, -1), axis=1)[:, :cells]

        begin, end = ended(-(-ends // width)), ended(ends // width)
        kind = np.min_scalar_type(-self.values)
        return bits, np.where(begin == end, begin, -1).astype(kind).ravel()


def _starts(rows: int) -> NDArray[np.uint64]:
    return np.arange(rows, dtype=np.uint64) << np.uint64(32)


@dataclass(frozen=True)
class Shape:
    """A sampler of one column's codes: the probability of each cell by row, and the codes in each cell."""

    bins: Bins
    probabilities: Floats  # (rows, cells), missing last
    first: Ints
    width: Ints

    @classmethod
    def of(cls, bins: Bins, within: Floats) -> "Shape":
        """Make a shape from the probabilities of a column's cells by row, (rows, cells)."""
        first = np.arange(bins.values) if bins.starts is None else bins.starts
        width = np.append(bins.widths, np.ones(bins.count - bins.numbers, dtype=np.int64))
        return cls(bins, within, np.append(first, MISSING), width)

    @property
    def rows(self) -> int:
        return len(self.probabilities)

    @cached_property
    def alone(self) -> Ints | None:
        """The code of each row if every row has exactly one possible code, else None."""
        possible = self.probabilities > 0
        cell = np.argmax(possible, axis=1)
        single = bool((possible.sum(axis=1) == 1).all()) and bool((self.width[cell] == 1).all())
        return self.first[cell] if single else None

    @cached_property
    def _quotas(self) -> Quotas:
        return Quotas.of(self.probabilities)

    def along(self, line: SortedRecords, generator: np.random.Generator) -> Ints:
        return self._codes(self._quotas.along(line, generator), generator.random(len(line.records)))

    def codes(self, row: Ints, level: Levels, inside: Floats) -> Ints:
        """Return a code per record: its level selects the cell, `inside` (0 to 1) the place in the cell."""
        return self._codes(self._quotas.at(row, level), inside)

    def _codes(self, cell: Ints, inside: Floats) -> Ints:
        found = self.first.take(cell)
        if not isinstance(self.bins.column, Numeric):
            return found
        width = self.width.take(cell)
        found += np.minimum((inside * width).astype(np.int64), width - 1)
        return usual(found, self.bins.column)


def shapes_of(histograms: Histograms, all_groups: tuple[Groups, ...]) -> tuple[Shape, ...]:
    """Return a shape for each column, with a row for each group."""
    return tuple(
        Shape.of(groups.bins, probabilities_within(histograms, i, groups)) for i, groups in enumerate(all_groups)
    )


def values_of(
    drawn: Ints, shapes: tuple[Shape, ...], label_at: int | None, generator: np.random.Generator
) -> Records:
    """Return records with a value for each group in `drawn`, (records, columns), independent of the label."""
    label = None if label_at is None else drawn[:, label_at]
    codes = {}
    for i, shape in enumerate(shapes):
        name = shape.bins.column.name
        if shape.alone is not None:
            codes[name] = shape.alone.take(drawn[:, i])
            continue
        line = SortedRecords.of(drawn[:, i], shape.rows, generator, None if i == label_at else label)
        codes[name] = line.put(shape.along(line, generator))
    return Records(rows=len(drawn), codes=codes)
