"""Weighted two-way tables: the statistic of the marginal models, and the choice of which to measure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.data.records import Records
from repsynth.mechanism.kernels import OUT
from repsynth.models.groups import NONE, Groups
from repsynth.scoring.base import Score
from repsynth.scoring.weights import FULL, WeightFunction

Pair = tuple[int, int]


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
        """Rows and columns of each table."""
        return tuple((self.groups[i].count, self.groups[j].count) for i, j in self.pairs)

    @property
    def entries(self) -> int:
        """How many numbers are measured."""
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> Ints:
        """Where each table begins in the flat result, and where the last one ends."""
        return np.cumsum([0, *(rows * columns for rows, columns in self.shapes)])

    def total(self, records: Records) -> Ints:
        """All tables, one behind the other.

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        weights = self.weights.of(self.score.of(records))
        group = {i: self.groups[i].of(records) for pair in self.pairs for i in pair}
        parts: list[NDArray[Any]] = [np.zeros(0)]
        for (i, j), (rows, columns) in zip(self.pairs, self.shapes, strict=True):
            inside = (group[i] != NONE) & (group[j] != NONE)
            cell = np.where(inside, group[i] * columns + group[j], 0)
            parts.append(np.bincount(cell, np.where(inside, weights, 0), minlength=rows * columns))
        return np.concatenate(parts).astype(np.int64)

    def multiplier(self, records: Records) -> Ints:
        """What each record adds to its cells: its weight."""
        return self.weights.of(self.score.of(records))

    def influence(self, records: Records) -> Floats:
        """The weight: in no table, and in no utility, does a record count for more."""
        return self.multiplier(records) / FULL

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Of the noise in each cell of `split`, where `sigma` is that of an entry."""
        cell = np.array((sigma / self.unit) ** 2)
        return {pair: np.broadcast_to(cell, shape) for pair, shape in zip(self.pairs, self.shapes, strict=True)}

    def describe(self) -> dict[str, Any]:
        """What a release's file says of it."""
        return {"name": self.name, "pairs": self.pairs}

    def split(self, flat: NDArray[np.generic]) -> dict[Pair, Floats]:
        """The tables by their columns, in units of records."""
        parts = np.split(np.asarray(flat, dtype=np.float64) / FULL, self.starts[1:-1])
        return {
            pair: part.reshape(shape) for pair, part, shape in zip(self.pairs, parts, self.shapes, strict=True)
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
        """The weighted tables of all candidates."""
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...]) -> Ints:
        """0 for stopping, then each table's distance less its penalty."""
        if not self.tables.pairs:
            return np.zeros(1, dtype=np.int64)
        distance = np.add.reduceat(np.abs(total - self.expected), self.tables.starts[:-1])
        closed = np.array(self._closed(chosen), dtype=np.bool_)
        return np.append(0, np.where(closed, OUT, distance - self.penalty))

    def _closed(self, chosen: tuple[int, ...]) -> list[bool]:
        """The tables that are out: chosen already or, in a forest, between columns that are connected."""
        pairs = self.tables.pairs
        if not self.forest:
            return [k in chosen for k in range(len(pairs))]
        part = _parts([pairs[k] for k in chosen])
        return [part.get(i, i) == part.get(j, j) for i, j in pairs]


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
