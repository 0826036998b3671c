"""Draws that several models share, in even quotas: nearer to the fitted probabilities than independent draws.

Records are lined up: those that draw by the same row of a table stand together, in random order or by what the
draw must not follow. Each gets a level, a 32-bit number, evenly spread along the line; the level decides by a
table of where the values of its row end. It is arithmetic on whole arrays, a few nanoseconds a record.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints

GOLDEN = (5**0.5 - 1) / 2

Levels = NDArray[np.uint32]

_TOP = 2.0**32
_STEPS = tuple(np.uint32(part * _TOP) for part in (GOLDEN, 2**0.5 - 1))
"""Levels that go on by these steps are even in every stretch, and so are pairs of them."""

_GUIDE = 2**17
_FINEST = 12
_UNSURE = -1
_FEW_RANDOM_BITS = 8
"""Two columns' lines agree on the order of records with equal bits in both: one pair in 65,536."""


def systematic(probabilities: Floats, rows: int, generator: np.random.Generator) -> Ints:
    """Codes in the proportions of the probabilities, in random order (systematic sampling)."""
    levels = (np.arange(rows) + generator.random()) / max(rows, 1)
    upto = np.append(np.searchsorted(levels, np.cumsum(probabilities)[:-1]), rows)
    return generator.permutation(np.repeat(np.arange(len(probabilities)), np.diff(upto, prepend=0)))


@dataclass(frozen=True)
class Line:
    """Records lined up by row, then by `order`, then at random."""

    records: Ints
    rows: int
    ordered: bool
    keys: NDArray[Any]
    width: int
    """`keys` rise along the line; so many are of the same row."""

    @classmethod
    def of(cls, given: Ints, rows: int, generator: np.random.Generator, order: Ints | None = None) -> "Line":
        """Those that draw by the rows that `given` names.

        >>> line = Line.of(np.array([1, 0, 1]), 2, np.random.default_rng(0), order=np.array([7, 7, 3]))
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
        # One number for each record: row and order, random bits, and which record it is.
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
    def as_they_are(cls, rows: int) -> "Line":
        """So many records of one row, in the order that they have."""
        return cls(np.arange(rows), 1, ordered=False, keys=np.zeros(rows, dtype=np.int64), width=1)

    @cached_property
    def row(self) -> Ints:
        return (self.keys if self.width == 1 else self.keys // self.keys.dtype.type(self.width)).astype(np.int64)

    @cached_property
    def sizes(self) -> Ints:
        """How many records each row has."""
        firsts = np.arange(self.rows + 1, dtype=np.uint64) * np.uint64(self.width)
        return np.diff(np.searchsorted(self.keys, firsts.astype(self.keys.dtype)))

    def places(self, start: Floats) -> Floats:
        """Where each stands among the records of its row, from 0 to 1; `start` says of each row where its first
        one is, from 0 to 1 of what a record takes up."""
        slope = 1 / np.maximum(self.sizes, 1)
        first = (start - np.cumsum(self.sizes) + self.sizes) * slope
        places: Floats = np.arange(len(self.records)) * slope.take(self.row) + first.take(self.row)
        return np.clip(places, 0.0, 1.0, out=places)

    def round(self, which: int) -> Levels:
        """Levels that go round along the line by one of two steps, whatever the rows."""
        return np.arange(len(self.row), dtype=np.uint32) * _STEPS[which]

    def put(self, values: NDArray[Any]) -> NDArray[Any]:
        """What was found along the line, for each record."""
        found = np.empty_like(values)
        found[self.records] = values
        return found


@dataclass(frozen=True)
class Quotas:
    """Where the values of each row of a table of probabilities end, in levels; one of no probability has none.

    Levels are sorted into cells of equal width. All but few cells lie inside one value, so that the cell decides;
    only in the others is there a search.
    """

    rows: int
    values: int
    ends: NDArray[np.uint64]
    """Row by row, the levels of a row behind those of the one before: sorted."""

    @classmethod
    def of(cls, probabilities: Floats) -> "Quotas":
        """From (rows, values); a row need not add up to 1.

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
        """(rows, values): how often each is drawn."""
        ends = (self.ends.reshape(self.rows, -1) - _starts(self.rows)[:, None]) / _TOP
        return np.diff(ends, axis=1, prepend=0.0)

    def along(self, line: Line, generator: np.random.Generator) -> Ints:
        """A value for each place in a line: evenly spread over the records of each row or, along an order, even in
        every stretch of it."""
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
        unsure = np.flatnonzero(found == _UNSURE)
        if unsure.size:
            found[unsure] = self._search(row[unsure], level[unsure])
        return found

    def _search(self, row: Ints, level: Levels) -> Ints:
        wanted = (row.astype(np.uint64) << np.uint64(32)) | level
        return np.searchsorted(self.ends, wanted, side="right") - row * self.values

    @cached_property
    def _guide(self) -> tuple[int, NDArray[Any]]:
        """The value of each cell, or that it is unsure; and how many bits of a level tell the cell."""
        bits = int(np.clip((_GUIDE // self.rows).bit_length() - 1, 1, _FINEST))
        cells, width = 1 << bits, 1 << (32 - bits)
        ends = (self.ends.reshape(self.rows, -1) - _starts(self.rows)[:, None]).astype(np.int64)
        row = np.arange(self.rows)[:, None] * (cells + 1)

        def ended(by: Ints) -> Ints:
            """How many values of a row have ended by each cell."""
            counts = np.bincount((row + by).ravel(), minlength=self.rows * (cells + 1))
            return np.cumsum(counts.reshape(self.rows, -1), axis=1)[:, :cells]

        begin, end = ended(-(-ends // width)), ended(ends // width)
        kind = np.min_scalar_type(-self.values)
        return bits, np.where(begin == end, begin, _UNSURE).astype(kind).ravel()


def _starts(rows: int) -> NDArray[np.uint64]:
    return np.arange(rows, dtype=np.uint64) << np.uint64(32)
