"""What models measure: sums by label, weighted tables of two columns, and the selection between tables.

`LabelSums` are differences from the released histograms, which have a small norm. Naive Bayes measures them, and
so do the marginal models (`LabelTables`). `Tables` are plain weighted counts. Sums are exact integers.
`TableChoice` selects tables by the exponential mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.estimation import to_simplex
from repsynth.columns.groups import NONE, Groups, choose_groups, coarser, how_many, how_many_coarse, of_finer
from repsynth.io.records import Records
from repsynth.scoring.base import Score
from repsynth.scoring.weights import FULL, WeightFunction

if TYPE_CHECKING:
    from repsynth.scoring.stage import StageOne

Pair = tuple[int, int]
"""The two axes that a table crosses."""

UNIT = 2**10
"""Grid units in one unit of a contribution to sums by label."""
CONSTANT = 0.3
"""The constant entry of a contribution to sums by label, relative to the norm of a typical record."""
_LEAST = 0.5  # smallest assumed norm of a typical record in the label tables


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
    def choose(cls, stage: "StageOne", mu: float) -> "Domain":
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


def label_axis(stage: "StageOne") -> int | None:
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
class MeasuredTables:
    """A measurement of tables: the statistic and its noisy result."""

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


def clipped(weight: Ints, squared_norm: Ints, clip: int) -> Ints:
    """Return weight times clip factor, in units of the weight and rounded down.

    Multiplied by this factor, a contribution has a norm of at most weight × clip.

    >>> clipped(np.array([4096, 4096]), np.array([25, 400]), 10).tolist()
    [4096, 2048]
    """
    norm = np.ceil(np.sqrt(squared_norm.astype(np.float64))).astype(np.int64)
    norm = np.maximum(norm + (norm * norm < squared_norm), 1)  # the root may have been rounded down
    multiplier: Ints = np.minimum(weight, weight * clip // norm)
    return multiplier


@dataclass(frozen=True)
class ColumnPart:
    """The entries of a contribution that belong to one column: one-hot − q and, of numbers, two moments.

    `groups` assigns an entry to each cell, or NONE. `offset` holds q in units of 1/UNIT, `moments` the moments of
    each cell in the same units: zeros for a cell that holds no number.
    """

    groups: Groups
    offset: Ints  # (entries,)
    moments: Ints  # (cells, 0 or 2)

    @cached_property
    def squared_norms(self) -> Ints:
        """The squared norm of each cell's entries."""
        one_hot = np.append(UNIT**2 - 2 * UNIT * self.offset + int(self.offset @ self.offset), 0)
        squared: Ints = one_hot[self.groups.of_bin] + (self.moments**2).sum(axis=1)
        return squared

    def sums(self, cell: Ints, group: Ints, groups: int, factor: Floats) -> tuple[Floats, Floats]:
        """Return Σ factor · entries by group of records with these cells: the one-hot entries and the moments.

        These are floats that hold whole numbers below 2⁵³, so they are exact.
        """
        width = len(self.offset) + 1
        entry = np.where(self.groups.of_bin == NONE, width - 1, self.groups.of_bin).take(cell)
        counts = np.bincount(group * width + entry, factor, minlength=groups * width).reshape(groups, width)
        counts = counts[:, :-1]
        one_hot = UNIT * counts - counts.sum(axis=1, keepdims=True) * self.offset
        moments = np.zeros((groups, self.moments.shape[1]))
        for k, each in enumerate(self.moments.T):
            moments[:, k] = np.bincount(group, factor * each.take(cell), minlength=groups)
        return one_hot, moments


@dataclass(frozen=True, kw_only=True)
class LabelSums:
    """The statistic of clipped differences from the released histograms, by label.

    A record with label y contributes its weight times

        e_y ⊗ clip(u, C),   u = [ a | e_x₁ − q₁ | e_x₂ − q₂ | ... | moments ]

    q are released probabilities of the groups of each column. The `clip` C is about the norm of a typical record,
    which is well below the root of the number of columns. So every cell has less noise than a plain count. The
    `constant` a and the clip are in units of 1/UNIT. The multiplier (weight times clip factor) is in units of
    1/FULL, rounded down. A record without a label contributes nothing.
    """

    parts: tuple[ColumnPart, ...]
    label: Groups | None
    constant: int
    clip: int
    score: Score
    weights: WeightFunction
    name: str
    weighted: bool = True
    unit: int = UNIT * FULL

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Labels, entries of u; one label where the schema names none."""
        entries = 1 + sum(len(part.offset) + part.moments.shape[1] for part in self.parts)
        return self.label.count if self.label else 1, entries

    @property
    def sensitivity(self) -> float:
        """The clip at full weight, in grid units."""
        return float(self.clip * FULL)

    def cells(self, records: Records) -> Ints:
        """Return (columns, records): the cell of each record in every column."""
        cells = [part.groups.bins.of(records) for part in self.parts]
        return np.array(cells, dtype=np.int64).reshape(len(self.parts), records.rows)

    def squared_norm(self, cells: Ints) -> Ints:
        """Return ‖u‖² of records with these cells before clipping, exact, in units of 1/UNIT²."""
        total = np.full(cells.shape[1], self.constant**2, dtype=np.int64)
        for part, cell in zip(self.parts, cells, strict=True):
            total += part.squared_norms.take(cell)
        return total

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return ‖u‖ of each record before and after clipping, in units of u."""
        norms: Floats = np.sqrt(self.squared_norm(self.cells(records))) / UNIT
        return norms, np.minimum(norms, self.clip / UNIT)

    def multiplier(self, cells: Ints, weights: Ints) -> Ints:
        """Return weight times clip factor in units of 1/FULL, rounded down, so that no norm grows."""
        return clipped(weights, self.squared_norm(cells), self.clip)

    def total(self, records: Records) -> Ints:
        """Return the weighted sums of all labels, flattened from `shape`."""
        label, cells, multiplier = self._placed(records)
        return self._sums(cells, label, self.shape[0], multiplier).ravel()

    def each(self, records: Records) -> Ints:
        """Return what each record adds to the total: (records, entries)."""
        (label, cells, multiplier), own = self._placed(records), np.arange(records.rows)
        placed = np.zeros((records.rows, *self.shape), dtype=np.int64)
        placed[own, label] = self._sums(cells, own, records.rows, multiplier)
        return placed.reshape(records.rows, -1)

    def _placed(self, records: Records) -> tuple[Ints, Ints, Ints]:
        """Return the label, the cells and the multiplier of each record."""
        cells = self.cells(records)
        multiplier = self.multiplier(cells, self.weights.of(self.score.of(records)))
        label = np.zeros(records.rows, dtype=np.int64) if self.label is None else self.label.of(records)
        return np.maximum(label, 0), cells, np.where(label == NONE, 0, multiplier)

    def _sums(self, cells: Ints, group: Ints, groups: int, multiplier: Ints) -> Ints:
        factor = multiplier.astype(np.float64)
        mass = np.bincount(group, factor, minlength=groups)
        found = [part.sums(cell, group, groups, factor) for part, cell in zip(self.parts, cells, strict=True)]
        moments = [moments for _, moments in found if moments.shape[1]]
        entries = [
            self.constant * mass[:, None],
            *(one_hot for one_hot, _ in found),
            *(moment[:, k, None] for k in (0, 1) for moment in moments),
        ]
        return np.concatenate(entries, axis=1).astype(np.int64)

    @property
    def mass_unit(self) -> int:
        """Grid units that one record adds to the first entry."""
        return self.constant * FULL

    def masses(self, flat: NDArray[Any]) -> Floats:
        """Return the noisy sum of each label's multipliers, in records."""
        first: Floats = np.asarray(flat, dtype=np.float64).reshape(self.shape)[:, 0]
        return first / self.mass_unit


@dataclass(frozen=True, kw_only=True)
class LabelTables(LabelSums):
    """Label × column for every column. Adding the expected part back gives tables of counts."""

    domain: Domain

    @classmethod
    def of(cls, stage: "StageOne", domain: Domain, name: str) -> "LabelTables":
        """Make the statistic from the released histograms: post-processing."""
        offsets = []
        for i in domain.features:
            counts = domain.groups[i].sum_up(stage.histograms.levels(i))
            # Round to the grid. The largest takes the rest, so that the sum is 1.
            offset = np.floor(to_simplex(counts / stage.histograms.rows) * UNIT).astype(np.int64)
            offset[int(np.argmax(offset))] += UNIT - int(offset.sum())
            offsets.append(offset)
        typical = max(math.sqrt(sum(1 - float(offset @ offset) / UNIT**2 for offset in offsets)), _LEAST)
        constant, clip = round(CONSTANT * typical * UNIT), round(math.hypot(1.0, CONSTANT) * typical * UNIT)
        return cls.at(domain, offsets, constant, clip, stage.score, stage.weights, name)

    @classmethod
    def at(
        cls,
        domain: Domain,
        offsets: Sequence[Ints],
        constant: int,
        clip: int,
        score: Score,
        weights: WeightFunction,
        name: str,
    ) -> "LabelTables":
        """Make the statistic with these released probabilities."""
        assert domain.label is not None
        own = zip((domain.groups[i] for i in domain.features), offsets, strict=True)
        return cls(
            parts=tuple(ColumnPart(g, offset, np.zeros((len(g.of_bin), 0), dtype=np.int64)) for g, offset in own),
            label=domain.groups[domain.label],
            constant=constant,
            clip=clip,
            score=score,
            weights=weights,
            name=name,
            domain=domain,
        )

    @cached_property
    def pairs(self) -> tuple[Pair, ...]:
        return self.domain.label_pairs

    @cached_property
    def shapes(self) -> tuple[Pair, ...]:
        return tuple((self.shape[0], len(part.offset)) for part in self.parts)

    @property
    def entries(self) -> int:
        return math.prod(self.shape)

    def split(self, flat: NDArray[Any]) -> dict[Pair, Floats]:
        """Return the tables by pair, in units of records, with the expected counts added back."""
        sums = np.asarray(flat, dtype=np.float64).reshape(self.shape) / (FULL * UNIT)
        ends = np.cumsum([len(part.offset) for part in self.parts])
        mass, found = self.masses(flat)[:, None], {}
        tables = np.split(sums[:, 1:], ends[:-1], axis=1)
        for pair, part, table in zip(self.pairs, self.parts, tables, strict=True):
            # Differences from probabilities sum to 0 over a column's groups. A different sum is noise.
            found[pair] = table - table.mean(axis=1, keepdims=True) + mass * (part.offset / part.offset.sum())
        return found

    def variances(self, sigma: float) -> dict[Pair, Floats]:
        """Return the variance of the noise in each cell of `split`; `sigma` is that of an entry."""
        noise, of_mass = (sigma / self.unit) ** 2, (UNIT / self.constant) ** 2
        found = {}
        for pair, part, shape in zip(self.pairs, self.parts, self.shapes, strict=True):
            cells = noise * (1 - 1 / shape[1] + of_mass * (part.offset / UNIT) ** 2)
            found[pair] = np.broadcast_to(cells, shape)
        return found

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "pairs": self.pairs, "constant": self.constant, "clip": self.clip}


@dataclass(frozen=True)
class TableChoice:
    """The selection of tables that differ most from the model's (AIM).

    The utility of a table is its L1 distance from the expected table, minus the expected distance due to noise.
    One record changes it by at most its weight.
    """

    tables: Tables
    expected: Ints  # tables of the model so far, flat, in units of 1/FULL: public
    penalty: Ints  # the expected distance due to noise, for each table
    rounds: int
    forest: bool  # whether the selected pairs must form a forest
    name: str
    unit: int = FULL
    weighted: bool = True

    def total(self, records: Records) -> Ints:
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """Return 0 for stopping, then each table's distance less its penalty."""
        from repsynth.mechanism.kernels import OUT  # here, because it loads pyarrow

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
    """Return whether the pairs form a forest, without cycles.

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
