"""Weighted tables of two columns: the statistic of the marginal models, and which of them to measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.groups import Groups
from repsynth.data.records import Records
from repsynth.mechanism.kernels import OUT
from repsynth.scoring.base import Score
from repsynth.scoring.weights import FULL, WeightFunction

Pair = tuple[int, int]
"""The two columns that a table crosses."""


@dataclass(frozen=True)
class Tables:
    """The statistic: a record adds its weight, in units of 1/FULL, to one cell of every table."""

    groups: tuple[Groups, ...]
    pairs: tuple[Pair, ...]
    """Which columns each table crosses, as positions in `groups`."""
    score: Score
    weights: WeightFunction
    name: str
    weighted: bool = True
    unit: int = FULL

    @property
    def sensitivity(self) -> float:
        """One cell in each table, at full weight."""
        return FULL * math.sqrt(max(len(self.pairs), 1))

    @cached_property
    def shapes(self) -> tuple[Pair, ...]:
        return tuple((self.groups[i].count, self.groups[j].count) for i, j in self.pairs)

    @property
    def entries(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> Ints:
        """Where each table begins in the flat result, and where the last one ends."""
        return np.cumsum([0, *(math.prod(shape) for shape in self.shapes)])

    def total(self, records: Records) -> Ints:
        """All tables, one behind the other.

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        weights = self.weights.of(self.score.of(records)).astype(np.float64)
        place = {i: self.groups[i].places(records) for i in sorted({i for cross in self.pairs for i in cross})}
        total = np.zeros(self.entries, dtype=np.int64)
        for k, cross in enumerate(self.pairs):
            shape = tuple(groups + 1 for groups in self.shapes[k])  # the last of each: those who take no part
            cell = cells_of([place[i] for i in cross], shape)
            table = np.bincount(cell, weights, minlength=math.prod(shape)).reshape(shape)
            inside = total[self.starts[k] : self.starts[k + 1]].reshape(self.shapes[k])
            inside[...] = table[(slice(-1),) * len(cross)]
        return total

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Of the noise in each cell of `split`, where `sigma` is that of an entry."""
        cell = np.array((sigma / self.unit) ** 2)
        return {pair: np.broadcast_to(cell, shape) for pair, shape in zip(self.pairs, self.shapes, strict=True)}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "pairs": self.pairs}

    def split(self, flat: NDArray[np.generic]) -> dict[Pair, Floats]:
        """The tables by their columns, in units of records."""
        parts = np.split(np.asarray(flat, dtype=np.float64) / FULL, self.starts[1:-1])
        return {
            cross: part.reshape(shape) for cross, part, shape in zip(self.pairs, parts, self.shapes, strict=True)
        }


@dataclass(frozen=True)
class TableChoice:
    """Which tables to measure: those that differ most from what is expected of them, less what noise would
    add to them. One record moves a table's distance from the expected one by at most its weight."""

    tables: Tables
    expected: Ints
    """What the model so far expects, flat, in units of 1/FULL: public."""
    penalty: Ints
    """For each table, the distance that measuring noise alone would make."""
    rounds: int
    forest: bool
    """Whether the chosen pairs must form no circle."""
    name: str
    unit: int = FULL
    weighted: bool = True

    def total(self, records: Records) -> Ints:
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """0 for stopping, then each table's distance less its penalty."""
        if not self.tables.pairs:
            return np.zeros(1, dtype=np.int64)
        # Public numbers, so scaled that no sum of them overflows.
        scale = math.ceil(self._all_expected * units / 2**61)
        expected = self.expected if scale == units == 1 else self.expected // scale * units
        off = total - expected
        distance = np.add.reduceat(np.abs(off, out=off), self.tables.starts[:-1])
        closed = np.array(self._closed(chosen), dtype=np.bool_)
        return np.append(0, np.where(closed, OUT, distance - np.minimum(self.penalty, 2**61 // units) * units))

    @cached_property
    def _all_expected(self) -> float:
        return float(np.abs(self.expected.astype(np.float64)).sum() + 1)

    def _closed(self, chosen: tuple[int, ...]) -> list[bool]:
        """The tables that are out: chosen already or, in a forest, between columns that are connected."""
        pairs = self.tables.pairs
        if not self.forest:
            return [k in chosen for k in range(len(pairs))]
        part = _parts([pairs[k] for k in chosen])
        return [part.get(i, i) == part.get(j, j) for i, j in pairs]


def cells_of(groups: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    """The cell of each record in a flat table, from its group in each column.

    >>> cells_of([np.array([0, 1]), np.array([2, 0])], (2, 3)).tolist()
    [2, 3]
    """
    cell = groups[0]
    for group, count in zip(groups[1:], shape[1:], strict=True):
        cell = cell * count + group
    return cell


def is_forest(pairs: Sequence[Pair]) -> bool:
    """Whether no pairs form a circle.

    >>> is_forest([(0, 1), (1, 2)]), is_forest([(0, 1), (1, 2), (0, 2)])
    (True, False)
    """
    above: dict[int, int] = {}

    def root(i: int) -> int:
        while i in above:
            i = above[i]
        return i

    for i, j in pairs:
        one, other = root(i), root(j)
        if one == other:
            return False
        above[one] = other
    return True


def _parts(pairs: Sequence[Pair]) -> dict[int, int]:
    """For each column in a pair, a name for all columns that it is connected with."""
    part = {i: i for pair in pairs for i in pair}
    for i, j in pairs:
        old, new = part[j], part[i]
        part = {column: new if p == old else p for column, p in part.items()}
    return part
