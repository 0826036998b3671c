"""Label × column for every column, measured as differences from what stage 1 knows.

A record with label y and groups x₁, x₂, ... contributes

    e_y ⊗ [ a | e_x₁ − q₁ | e_x₂ − q₂ | ... ]

where q are the released probabilities of each column's groups. It is clipped to the norm of a typical record,
which is well below the root of the number of columns: most cells are what one would expect. So there is less noise
in every cell than in plain counts. Adding the expected part back gives tables of counts. Sums are exact integers:
the contribution in units of 1/1024, the multiplier (weight times clip factor) in units of 1/4096, rounded down.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.estimation import to_simplex
from repsynth.columns.groups import NONE, Groups
from repsynth.data.records import Records
from repsynth.models.clipping import clipped
from repsynth.models.marginal.tables import Pair
from repsynth.scoring.base import Score
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL, WeightFunction

UNIT = 2**10
"""Grid units in one unit of a contribution."""

_CONSTANT = 0.3  # of the norm of a typical record
_LEAST = 0.5  # norm that a typical record is taken to have


@dataclass(frozen=True)
class _Squares:
    """What a column adds to the squared norm: `squared` of its group, the last one where it has none."""

    groups: Groups
    squared: Ints

    def of_codes(self, codes: Ints) -> Ints:
        return self.squared[self.groups.of_codes(codes)]


@dataclass(frozen=True)
class LabelTables:
    """The statistic. `offsets` holds q of every column but the label, `constant` and `clip` are in units of
    1/UNIT."""

    groups: tuple[Groups, ...]
    pairs: tuple[Pair, ...]
    offsets: tuple[Ints, ...]
    constant: int
    clip: int
    score: Score
    weights: WeightFunction
    name: str
    weighted: bool = True
    unit: int = UNIT * FULL

    @property
    def label(self) -> int:
        """The label's position among the columns."""
        return self.pairs[0][0]

    @property
    def labels(self) -> int:
        return self.groups[self.label].count

    @property
    def sensitivity(self) -> float:
        """The clip at full weight, in grid units."""
        return float(self.clip * FULL)

    @cached_property
    def shapes(self) -> tuple[Pair, ...]:
        return tuple((self.labels, len(offset)) for offset in self.offsets)

    @property
    def entries(self) -> int:
        return self.labels * (1 + sum(len(offset) for offset in self.offsets))

    def squared_norm(self, records: Records) -> Ints:
        """The squared norm of each record's contribution before clipping, exact."""
        total = np.full(records.rows, self.constant**2, dtype=np.int64)
        for part in self._squares:
            total += records.look_up(part.groups.bins.column.name, part.of_codes, part.groups.bins.starts)
        return total

    @cached_property
    def _squares(self) -> "tuple[_Squares, ...]":
        return tuple(
            _Squares(self.groups[i], np.append(UNIT**2 - 2 * UNIT * offset + int(offset @ offset), 0))
            for (_, i), offset in zip(self.pairs, self.offsets, strict=True)
        )

    def multiplier(self, records: Records) -> Ints:
        """Weight times clip factor in units of 1/FULL, rounded down, so that no norm grows."""
        return self.clipped(records, self.weights.of(self.score.of(records)))

    def clipped(self, records: Records, weights: Ints) -> Ints:
        """The same of records with these weights."""
        multiplier = clipped(weights, self.squared_norm(records), self.clip)
        return np.where(self.groups[self.label].of(records) == NONE, 0, multiplier)

    def total(self, records: Records) -> Ints:
        """(labels, entries), flat: the constant, then column by column.

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        label = np.maximum(self.groups[self.label].of(records), 0)
        return self._sums(records, label, self.labels).ravel()

    def each(self, records: Records) -> Ints:
        """What each record adds to the total: (records, entries)."""
        own, label = np.arange(records.rows), np.maximum(self.groups[self.label].of(records), 0)
        placed = np.zeros((records.rows, self.labels, self.entries // self.labels), dtype=np.int64)
        placed[own, label] = self._sums(records, own, records.rows)
        return placed.reshape(records.rows, -1)

    def _sums(self, records: Records, row: Ints, rows: int) -> Ints:
        """The contributions without their label, added up by row."""
        multiplier = self.multiplier(records).astype(np.float64)
        parts = [self.constant * np.bincount(row, multiplier, minlength=rows).astype(np.int64)[:, None]]
        for (_, i), offset in zip(self.pairs, self.offsets, strict=True):
            width = len(offset) + 1  # the last one: those who take no part
            cell = row * width + self.groups[i].places(records)
            sums = np.bincount(cell, multiplier, minlength=rows * width).astype(np.int64)
            counts = sums.reshape(rows, width)[:, :-1]
            parts.append(UNIT * counts - counts.sum(axis=1, keepdims=True) * offset)
        return np.concatenate(parts, axis=1)

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """The norm of each record's contribution before and after clipping."""
        norms: Floats = np.sqrt(self.squared_norm(records)) / UNIT
        return norms, np.minimum(norms, self.clip / UNIT)

    @property
    def mass_unit(self) -> int:
        """Grid units of the first entry in one record."""
        return self.constant * FULL

    def masses(self, flat: NDArray[Any]) -> Floats:
        """The sum of each label's multipliers, in records."""
        first: Floats = np.asarray(flat, dtype=np.float64).reshape(self.labels, -1)[:, 0]
        return first / self.mass_unit

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "pairs": self.pairs, "constant": self.constant, "clip": self.clip}

    def split(self, flat: NDArray[Any]) -> dict[Pair, Floats]:
        """The tables by their columns, in units of records: what was expected is added back."""
        sums = np.asarray(flat, dtype=np.float64).reshape(self.labels, -1) / (FULL * UNIT)
        ends = np.cumsum([len(offset) for offset in self.offsets])
        parts = np.split(sums[:, 1:], ends[:-1], axis=1)
        mass = self.masses(flat)[:, None]
        found = {}
        for pair, part, offset in zip(self.pairs, parts, self.offsets, strict=True):
            # Differences from probabilities add up to 0 over a column's groups: what is left is noise.
            centred = part - part.mean(axis=1, keepdims=True)
            found[pair] = centred + mass * (offset / offset.sum())
        return found

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Of the noise in each cell of `split`, where `sigma` is that of an entry."""
        noise = (sigma / self.unit) ** 2
        of_mass = (UNIT / self.constant) ** 2
        found = {}
        for pair, offset in zip(self.pairs, self.offsets, strict=True):
            cells = noise * (1 - 1 / len(offset) + of_mass * (offset / UNIT) ** 2)
            found[pair] = np.broadcast_to(cells, (self.labels, len(offset)))
        return found


def make_label_tables(
    stage: StageOne, groups: tuple[Groups, ...], pairs: tuple[Pair, ...], name: str
) -> LabelTables:
    """The statistic from the released histograms: post-processing."""
    offsets = []
    for _, i in pairs:
        counts = groups[i].sum_up(stage.histograms.levels(i))
        # Each is rounded to the grid, the largest so that they add up to 1.
        offset = np.floor(to_simplex(counts / stage.histograms.rows) * UNIT).astype(np.int64)
        offset[int(np.argmax(offset))] += UNIT - int(offset.sum())
        offsets.append(offset)
    typical = max(math.sqrt(sum(1 - float(offset @ offset) / UNIT**2 for offset in offsets)), _LEAST)
    return LabelTables(
        groups=groups,
        pairs=pairs,
        offsets=tuple(offsets),
        constant=round(_CONSTANT * typical * UNIT),
        clip=round(math.hypot(1.0, _CONSTANT) * typical * UNIT),
        score=stage.score,
        weights=stage.weights,
        name=name,
    )
