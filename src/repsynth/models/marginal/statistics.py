"""What the marginal models measure: weighted tables of two columns, and the selection between tables.

`Tables` are plain weighted counts. `LabelTables` cross the label with every other column, as differences from the
released histograms, which have a smaller norm. Sums are exact integers. `TableChoice` selects tables by the
exponential mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import to_simplex
from repsynth.columns.groups import NONE, Groups, choose_groups, coarser, how_many, how_many_coarse, of_finer
from repsynth.data.records import Records
from repsynth.mechanism.kernels import OUT
from repsynth.models.base import CONSTANT, clipped
from repsynth.scoring.base import Score
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL, WeightFunction

Pair = tuple[int, int]
"""The two axes that a table crosses."""

UNIT = 2**10
"""Grid units in one unit of a contribution to the label tables."""
_LEAST = 0.5  # norm that a typical record is taken to have in the label tables


# --- the domain ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """The axes of tables. Axis i is column i in fine groups; axis i + `columns` is column i in coarse groups."""

    groups: tuple[Groups, ...]
    columns: int
    label: int | None
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, fine: Sequence[Groups], coarse: Sequence[Groups], label: int | None) -> "Domain":
        groups = (*fine, *coarse)
        return cls(groups, len(fine), label, tuple(each.count for each in groups))

    @classmethod
    def choose(cls, stage: StageOne, mu: float) -> "Domain":
        """Choose groups by the noise of the first tables, whose charge is `mu`: post-processing of stage 1."""
        histograms, label = stage.histograms, stage.schema.label_column
        noise = math.sqrt(len(histograms.bins) - 1) / mu
        most = how_many(histograms.rows, noise, label.size if label else 1)
        fine = choose_groups(histograms, label.name if label else None, most=most, noise=noise)
        few = how_many_coarse(histograms.rows, noise)
        coarse = [coarser(histograms, i, each, few) for i, each in enumerate(fine)]
        return cls.of(fine, coarse, label_axis(stage))

    @cached_property
    def features(self) -> tuple[int, ...]:
        """The fine axes except the label."""
        return tuple(i for i in range(self.columns) if i != self.label)

    @cached_property
    def label_pairs(self) -> tuple[Pair, ...]:
        """The label with every other column; none without a label."""
        return () if self.label is None else tuple((self.label, i) for i in self.features)

    @cached_property
    def candidates(self) -> tuple[Pair, ...]:
        """All pairs of columns without the label."""
        return tuple((i, j) for k, j in enumerate(self.features) for i in self.features[:k])

    @cached_property
    def coarse_candidates(self) -> tuple[Pair, ...]:
        """The same pairs in coarse groups, where that makes a smaller table."""
        shift, sizes = self.columns, self.sizes
        return tuple(
            (i + shift, j + shift)
            for i, j in self.candidates
            if sizes[i + shift] * sizes[j + shift] < sizes[i] * sizes[j]
        )

    @cached_property
    def coarse_of_fine(self) -> tuple[Ints, ...]:
        """The coarse group of each fine group, by column."""
        both = zip(self.groups[: self.columns], self.groups[self.columns :], strict=True)
        return tuple(of_finer(fine, coarse) for fine, coarse in both)


def label_axis(stage: StageOne) -> int | None:
    """Return the position of the label among the columns."""
    column = stage.schema.label_column
    return None if column is None else stage.schema.learned.index(column)


# --- noisy tables --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisyTable:
    """A table in records, and the variance of the noise in each of its cells."""

    counts: Floats
    variance: Floats


def by_precision(parts: Sequence[NoisyTable]) -> NoisyTable:
    """Combine measurements of the same cells.

    >>> one, two = (NoisyTable(np.array([c]), np.array([v])) for c, v in ((2.0, 1.0), (5.0, 2.0)))
    >>> both = by_precision([one, two])
    >>> both.counts.tolist(), both.variance.round(3).tolist()
    ([3.0], [0.667])
    """
    precision = np.sum([1 / part.variance for part in parts], axis=0)
    mean = np.sum([part.counts / part.variance for part in parts], axis=0) / precision
    return NoisyTable(mean, 1 / precision)


@dataclass(frozen=True)
class Measured:
    """The tables that were measured, and the noisy result."""

    tables: "Tables | LabelTables"
    noisy: Ints
    sigma: float

    @cached_property
    def noisy_tables(self) -> dict[Pair, NoisyTable]:
        """The weighted tables by pair."""
        counts, variances = self.tables.split(self.noisy), self.tables.variances(self.sigma)
        return {pair: NoisyTable(table, variances[pair]) for pair, table in counts.items()}


# --- statistics ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tables:
    """The statistic: a record adds its weight, in units of 1/FULL, to one cell of every table."""

    domain: Domain
    pairs: tuple[Pair, ...]
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
        return tuple((self.domain.sizes[i], self.domain.sizes[j]) for i, j in self.pairs)

    @property
    def entries(self) -> int:
        return int(self.starts[-1])

    @cached_property
    def starts(self) -> Ints:
        """Where each table begins in the flat result, and where the last one ends."""
        return np.cumsum([0, *(math.prod(shape) for shape in self.shapes)])

    def total(self, records: Records) -> Ints:
        """Return all tables, flattened one after the other.

        `np.bincount` adds floats. These are whole numbers that stay below 2⁵³ in a batch, so the sums are exact.
        """
        weights = self.weights.of(self.score.of(records)).astype(np.float64)
        place = {
            i: self.domain.groups[i].places(records) for i in sorted({i for pair in self.pairs for i in pair})
        }
        total, starts = np.zeros(self.entries, dtype=np.int64), self.starts.tolist()
        for (i, j), (rows, columns), start, end in zip(self.pairs, self.shapes, starts, starts[1:], strict=False):
            # The last row and column are for records that take no part.
            cell = place[i] * (columns + 1) + place[j]
            table = np.bincount(cell, weights, minlength=(rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
            total[start:end].reshape(rows, columns)[...] = table[:-1, :-1]
        return total

    def split(self, flat: NDArray[np.generic]) -> dict[Pair, Floats]:
        """Return the tables by pair, in units of records."""
        parts = np.split(np.asarray(flat, dtype=np.float64) / FULL, self.starts[1:-1])
        shaped = (part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True))
        return dict(zip(self.pairs, shaped, strict=True))

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Return the variance of the noise in each cell of `split`; `sigma` is that of an entry."""
        cell = np.array((sigma / self.unit) ** 2)
        return {pair: np.broadcast_to(cell, shape) for pair, shape in zip(self.pairs, self.shapes, strict=True)}

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "pairs": self.pairs}


@dataclass(frozen=True)
class LabelTables:
    """The statistic: label × column for every column, as differences from what stage 1 knows.

    A record with label y and groups x₁, x₂, ... contributes its weight times

        e_y ⊗ clip([ a | e_x₁ − q₁ | e_x₂ − q₂ | ... ], C)

    `offsets` holds q of every column but the label: the released probabilities of its groups. The `clip` C is the
    norm of a typical record, which is well below the root of the number of columns. So every cell has less noise
    than a plain count. Adding the expected part back gives tables of counts. `offsets`, the `constant` a and the
    clip are in units of 1/UNIT; the multiplier (weight times clip factor) is in units of 1/FULL, rounded down.
    """

    domain: Domain
    pairs: tuple[Pair, ...]
    offsets: tuple[Ints, ...]
    constant: int
    clip: int
    score: Score
    weights: WeightFunction
    name: str
    weighted: bool = True
    unit: int = UNIT * FULL

    @classmethod
    def of(cls, stage: StageOne, domain: Domain, name: str) -> "LabelTables":
        """Make the statistic from the released histograms: post-processing."""
        offsets = []
        for i in domain.features:
            counts = domain.groups[i].sum_up(stage.histograms.levels(i))
            # Each is rounded to the grid, the largest so that they add up to 1.
            offset = np.floor(to_simplex(counts / stage.histograms.rows) * UNIT).astype(np.int64)
            offset[int(np.argmax(offset))] += UNIT - int(offset.sum())
            offsets.append(offset)
        typical = max(math.sqrt(sum(1 - float(offset @ offset) / UNIT**2 for offset in offsets)), _LEAST)
        return cls(
            domain=domain,
            pairs=domain.label_pairs,
            offsets=tuple(offsets),
            constant=round(CONSTANT * typical * UNIT),
            clip=round(math.hypot(1.0, CONSTANT) * typical * UNIT),
            score=stage.score,
            weights=stage.weights,
            name=name,
        )

    @cached_property
    def label(self) -> Groups:
        return self.domain.groups[self.pairs[0][0]]

    @cached_property
    def labels(self) -> int:
        return self.domain.sizes[self.pairs[0][0]]

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

    def total(self, records: Records) -> Ints:
        """Return (labels, entries), flattened: the constant, then column by column.

        `np.bincount` adds floats. These are whole numbers that stay below 2⁵³ in a batch, so the sums are exact.
        """
        label = np.maximum(self.label.of(records), 0)
        return self._sums(records, label, self.labels).ravel()

    def each(self, records: Records) -> Ints:
        """Return what each record adds to the total: (records, entries)."""
        own, label = np.arange(records.rows), np.maximum(self.label.of(records), 0)
        placed = np.zeros((records.rows, self.labels, self.entries // self.labels), dtype=np.int64)
        placed[own, label] = self._sums(records, own, records.rows)
        return placed.reshape(records.rows, -1)

    def _sums(self, records: Records, row: Ints, rows: int) -> Ints:
        """Return the sums of contributions, without their label, by row."""
        places = self._places(records)
        weights = self.weights.of(self.score.of(records))
        multiplier = self._clipped(records, places, weights).astype(np.float64)
        parts = [self.constant * np.bincount(row, multiplier, minlength=rows).astype(np.int64)[:, None]]
        for place, offset in zip(places, self.offsets, strict=True):
            width = len(offset) + 1  # the last one is for records that take no part
            sums = np.bincount(row * width + place, multiplier, minlength=rows * width).astype(np.int64)
            counts = sums.reshape(rows, width)[:, :-1]
            parts.append(UNIT * counts - counts.sum(axis=1, keepdims=True) * offset)
        return np.concatenate(parts, axis=1)

    def _places(self, records: Records) -> list[Ints]:
        """Return each record's group in every column; the number of groups where it takes no part."""
        return [self.domain.groups[i].places(records) for _, i in self.pairs]

    def _clipped(self, records: Records, places: list[Ints], weights: Ints) -> Ints:
        multiplier = clipped(weights, self._squared_norm(places), self.clip)
        return np.where(self.label.of(records) == NONE, 0, multiplier)

    def _squared_norm(self, places: list[Ints]) -> Ints:
        total = np.full(len(places[0]), self.constant**2, dtype=np.int64)
        for place, squares in zip(places, self._squares, strict=True):
            total += squares.take(place)
        return total

    @cached_property
    def _squares(self) -> tuple[Ints, ...]:
        """What each group of a column adds to the squared norm; nothing where a record takes no part."""
        return tuple(np.append(UNIT**2 - 2 * UNIT * offset + int(offset @ offset), 0) for offset in self.offsets)

    def squared_norm(self, records: Records) -> Ints:
        """Return the squared norm of each record's contribution before clipping, exact."""
        return self._squared_norm(self._places(records))

    def clipped(self, records: Records, weights: Ints) -> Ints:
        """Return weight times clip factor of records with these weights, in units of 1/FULL, rounded down."""
        return self._clipped(records, self._places(records), weights)

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return the norm of each record's contribution before and after clipping."""
        norms: Floats = np.sqrt(self.squared_norm(records)) / UNIT
        return norms, np.minimum(norms, self.clip / UNIT)

    @property
    def mass_unit(self) -> int:
        """Grid units of the first entry in one record."""
        return self.constant * FULL

    def masses(self, flat: NDArray[Any]) -> Floats:
        """Return the sum of each label's multipliers, in records."""
        first: Floats = np.asarray(flat, dtype=np.float64).reshape(self.labels, -1)[:, 0]
        return first / self.mass_unit

    def split(self, flat: NDArray[Any]) -> dict[Pair, Floats]:
        """Return the tables by pair, in units of records: what was expected is added back."""
        sums = np.asarray(flat, dtype=np.float64).reshape(self.labels, -1) / (FULL * UNIT)
        ends = np.cumsum([len(offset) for offset in self.offsets])
        mass, found = self.masses(flat)[:, None], {}
        parts = np.split(sums[:, 1:], ends[:-1], axis=1)
        for pair, part, offset in zip(self.pairs, parts, self.offsets, strict=True):
            # Differences from probabilities add up to 0 over a column's groups: the rest is noise.
            found[pair] = part - part.mean(axis=1, keepdims=True) + mass * (offset / offset.sum())
        return found

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Return the variance of the noise in each cell of `split`; `sigma` is that of an entry."""
        noise, of_mass = (sigma / self.unit) ** 2, (UNIT / self.constant) ** 2
        found = {}
        for pair, offset in zip(self.pairs, self.offsets, strict=True):
            cells = noise * (1 - 1 / len(offset) + of_mass * (offset / UNIT) ** 2)
            found[pair] = np.broadcast_to(cells, (self.labels, len(offset)))
        return found

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "pairs": self.pairs, "constant": self.constant, "clip": self.clip}


@dataclass(frozen=True)
class TableChoice:
    """The selection of tables that differ most from what the model expects of them.

    The utility of a table is its L1 distance from the expected table, less the distance that measuring noise alone
    would make. One record moves it by at most its weight.
    """

    tables: Tables
    expected: Ints
    """What the model expects so far, flat, in units of 1/FULL: public."""
    penalty: Ints
    """The distance that noise makes, for each table."""
    rounds: int
    forest: bool
    """Whether the selected pairs must form a forest."""
    name: str
    unit: int = FULL
    weighted: bool = True

    def total(self, records: Records) -> Ints:
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """Return 0 for stopping, then each table's distance less its penalty."""
        if not self.tables.pairs:
            return np.zeros(1, dtype=np.int64)
        # The expected values are public. They are scaled so that no sum overflows.
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
        """Return which tables are selected already or, in a forest, would join connected columns."""
        pairs = self.tables.pairs
        if not self.forest:
            return [k in chosen for k in range(len(pairs))]
        part = _components([pairs[k] for k in chosen])
        return [part.get(i, i) == part.get(j, j) for i, j in pairs]


def is_forest(pairs: Sequence[Pair]) -> bool:
    """Return whether no pairs form a circle.

    >>> is_forest([(0, 1), (1, 2)]), is_forest([(0, 1), (1, 2), (0, 2)])
    (True, False)
    """
    part = _components(pairs)
    return len(pairs) == len(part) - len(set(part.values()))


def _components(pairs: Sequence[Pair]) -> dict[int, int]:
    """Return the connected component of each axis in a pair, named by one of its axes."""
    part = {i: i for pair in pairs for i in pair}
    for i, j in pairs:
        old, new = part[j], part[i]
        part = {axis: new if p == old else p for axis, p in part.items()}
    return part


def cells_of(groups: Sequence[NDArray[Any]], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return the cell of each record in a flat table, from its group on each axis.

    >>> cells_of([np.array([0, 1]), np.array([2, 0])], (2, 3)).tolist()
    [2, 3]
    """
    cell = groups[0]
    for group, count in zip(groups[1:], shape[1:], strict=True):
        cell = cell * count + group
    return cell
