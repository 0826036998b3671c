"""One adaptive histogram per column, measured in looks. Scores, all models and sampling use it.

    coarse histograms     every column; public cells                                              (charge)
    refined histograms    numbers; cells with records are divided at round numbers; weighted      (charge)
    fine histograms       numbers; divided once more, into more parts; weighted                   (charge)

The first look is unweighted and determines the number of records in a cell. The later looks are weighted and
determine only how the records of a cell are spread over its parts. Scores use the first cells, so a record's
weight hardly depends on its place inside a cell. Parts that do not stand out from the noise keep their expected
share.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.cells import (
    MOST_CELLS,
    MOST_FINE_CELLS,
    Bins,
    divided,
    read_bins,
    roundness_of,
)
from repsynth.columns.estimation import by_family, clear_of_noise, shares_inside, to_simplex, with_tails
from repsynth.io.records import MISSING, Records
from repsynth.schema import Numeric
from repsynth.storage import ints, require

COARSE, REFINED, FINE = "coarse histograms", "refined histograms", "fine histograms"
PARTS = {REFINED: 20, FINE: 200}
"""The approximate number of parts into which each later look divides a cell."""

_ABOVE_NOISE = 3.0  # cells with more standard deviations of noise are divided


@dataclass(frozen=True)
class ColumnHistograms:
    """The statistic: each record adds one to one cell of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = ColumnHistograms((Bins.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    bins: tuple[Bins, ...]
    name: str = COARSE
    unit: int = 1
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        """Exact: every record is in one cell of each histogram."""
        return math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        return np.concatenate([np.bincount(bins.of(records), minlength=bins.count) for bins in self.bins])


@dataclass(frozen=True)
class _Layer:
    """Cells of one column, their noisy weighted counts in records, and the variances of the noise."""

    bins: Bins
    counts: Floats
    variances: Floats

    def combined_with(self, finer: "_Layer") -> "_Layer":
        """Return the average with the sums over finer cells, weighted by precision."""
        counts, variances = finer.sums_over(self.bins)
        both = self.variances * variances / (self.variances + variances)
        return _Layer(self.bins, both * (self.counts / self.variances + counts / variances), both)

    def sums_over(self, coarser: Bins) -> tuple[Floats, Floats]:
        """Return the counts and variances of coarser cells."""
        parents = self.bins.parents(coarser)
        counts, variances = (np.bincount(parents, each) for each in (self.counts, self.variances))
        return counts.astype(np.float64), variances.astype(np.float64)


@dataclass(frozen=True)
class Refinement:
    """The result of a later look: finer cells of some columns and their noisy counts, in 1/`unit` of a record."""

    columns: tuple[int, ...]
    """Indices of the learned columns."""
    bins: tuple[Bins, ...]
    counts: Ints
    sigma: float
    unit: int

    def layer(self, column: int) -> _Layer:
        """Return the cells of numbers of one column, in records."""
        k = self.columns.index(column)
        start, bins = sum(bins.count for bins in self.bins[:k]), self.bins[k]
        counts = self.counts[start : start + bins.numbers] / self.unit
        return _Layer(bins, counts, np.full(bins.numbers, (self.sigma / self.unit) ** 2))


@dataclass(frozen=True)
class Histograms:
    """Noisy histograms of every column. `rows` is the released or declared number of records.

    `refined` has, for the columns that a later look has refined, the estimate of each cell of numbers and the
    variance of its noise; `counts` then repeats the estimates.
    """

    bins: tuple[Bins, ...]
    counts: Ints | Floats
    sigma: float
    rows: float
    refined: dict[int, tuple[Floats, Floats]] = field(default_factory=dict)

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum([0, *(bins.count for bins in self.bins)])

    @cached_property
    def _clear(self) -> float:
        """How many standard deviations noise rarely exceeds in any of the first cells."""
        return clear_of_noise(MOST_CELLS * len(self.bins))

    def noisy(self, column: int) -> Floats:
        """Return the noisy counts of one column's cells; refined cells have their estimates."""
        return self.counts[self._starts[column] : self._starts[column + 1]].astype(np.float64)

    def levels(self, column: int) -> Floats:
        """Return the estimated records in each cell: not negative for numbers, 0 for undeclared missing cells."""
        return self._levels[column].copy()

    @cached_property
    def _levels(self) -> tuple[Floats, ...]:
        found = []
        for i, bins in enumerate(self.bins):
            counts = self.noisy(i)
            if bins.families is not None:
                counts[:-1] = by_family(counts[:-1], self.sigma, bins.families)
            elif bins.starts is not None:
                numbers, special = counts[: bins.numbers], counts[bins.numbers : -1]
                if i not in self.refined:
                    numbers = self._with_tails(i, numbers, np.full(len(numbers), self.sigma))
                counts = np.concatenate([numbers, np.where(special > 2 * self.sigma, special, 0.0), counts[-1:]])
            if not bins.column.missing:
                counts[-1] = 0.0
            found.append(counts)
        return tuple(found)

    def _with_tails(self, column: int, numbers: Floats, noise: Floats) -> Floats:
        """Return the counts of the first cells with decreasing tails, for a `column` that is not refined."""
        bins = self.bins[column]
        whole = self.rows - float(self.noisy(column)[bins.numbers :].sum())
        return with_tails(numbers, noise, bins.widths, self._clear, whole)

    def variances(self, column: int) -> Floats:
        """Return the variance of the noise in each cell."""
        found = np.full(self.bins[column].count, self.sigma**2)
        if column in self.refined:
            found[: self.bins[column].numbers] = self.refined[column][1]
        return found

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """Each column's distribution over its cells without missing."""
        found = []
        for i, bins in enumerate(self.bins):
            levels = self._levels[i][:-1]
            if bins.starts is None:
                levels = to_simplex(levels / self.rows / (1 - self.absent_fraction(i)))
            whole = float(levels.sum())
            found.append(levels / whole if whole > 0 else np.full(len(levels), 1 / len(levels)))
        return tuple(found)

    def absent_fraction(self, column: int) -> float:
        """Return the fraction of records without a value, declared or not; 0 within the noise."""
        absent = float(self.noisy(column)[-1])
        return min(absent / self.rows, 0.9) if absent > 2 * self.sigma else 0.0

    def missing_fraction(self, column: int) -> float:
        """Return the fraction of missing cells in a column that declares them; 0 in any other."""
        if not self.bins[column].column.missing:
            return 0.0
        return float(np.clip(self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Draw records with independent columns that follow the probabilities."""
        codes = {}
        for i, bins in enumerate(self.bins):
            ends = np.cumsum(self.probabilities[i])
            level = (generator.permutation(rows) + generator.random()) / max(rows, 1)
            drawn = np.minimum(np.searchsorted(ends, level, side="right"), bins.values - 1)
            if bins.starts is not None:
                width = np.append(bins.widths, np.ones(bins.values - bins.numbers, dtype=np.int64))[drawn]
                drawn = bins.starts[drawn] + np.floor(generator.random(rows) * width).astype(np.int64)
            absent = generator.permutation(rows) < round(self.missing_fraction(i) * rows)
            codes[bins.column.name] = np.where(absent, MISSING, drawn)
        return Records(rows=rows, codes=codes)

    def to_divide(self, name: str, sigma: float) -> tuple[tuple[int, ...], tuple[Bins, ...]]:
        """Return the columns that a look refines, and their cells.

        If no cell is to be divided, all divisible columns are measured again, because the look is planned.
        """
        possible = [i for i, bins in enumerate(self.bins) if bins.divisible]
        least, parts = _ABOVE_NOISE * sigma, PARTS[name]
        finer = {
            i: divided(bins := self.bins[i], self._levels[i][: bins.numbers], least=least, parts=parts)
            for i in possible
        }
        chosen = [i for i in possible if finer[i].count > self.bins[i].count] or possible
        return tuple(chosen), tuple(finer[i] for i in chosen)

    def refined_by(self, looks: Sequence[Refinement], *, weighted: bool) -> "Histograms":
        """Return the histograms refined by the later looks."""
        bins, refined = list(self.bins), {}
        counts = [self.noisy(i) for i in range(len(bins))]
        for i in sorted({i for look in looks for i in look.columns}):
            layers = [look.layer(i) for look in looks if i in look.columns]
            refined[i] = self._estimate(i, layers, weighted=weighted)
            counts[i] = np.concatenate([refined[i][0], counts[i][bins[i].numbers :]])
            bins[i] = layers[-1].bins
        return replace(self, bins=tuple(bins), counts=np.concatenate(counts), refined=refined)

    def _estimate(self, column: int, layers: Sequence[_Layer], *, weighted: bool) -> tuple[Floats, Floats]:
        """Return the records in each of the finest cells of a numeric column, and the variances of their noise.

        First go from the finest layer up: the sum over its parts improves the count of a cell. Then go down from
        the first cells: the count of a cell is divided among its parts.
        """
        coarse, summed = self.bins[column], [layers[-1]]
        for layer in layers[-2::-1]:
            summed.insert(0, layer.combined_with(summed[0]))
        numbers, variances, sums = self._first_cells(column, summed[0], weighted=weighted)
        levels = self._with_tails(column, numbers, np.sqrt(variances))
        for layer in summed:
            parents, widths = layer.bins.parents(coarse), layer.bins.widths.astype(np.float64)
            noise, roundness = np.sqrt(layer.variances), roundness_of(layer.bins, parents)
            shares = shares_inside(parents, widths, layer.counts, noise, sums, roundness)
            scale = levels / sums
            # A part has the noise of its cell and, if the cell was divided, that of the look.
            of_look = np.where(np.bincount(parents) > 1, np.square(scale), 0.0)[parents] * layer.variances
            variances = variances[parents] * shares**2 + of_look
            levels, sums, coarse = levels[parents] * shares, sums[parents] * shares, layer.bins
        return levels, variances

    def _first_cells(self, column: int, parts: _Layer, *, weighted: bool) -> tuple[Floats, Floats, Floats]:
        """Return the unbiased counts of the first cells, their variances, and the positive weighted counts.

        The first look and the sums over the parts are averaged by precision. Every cell is assumed to have the
        column's mean weight; the error of this assumption is at most the lost weight.
        """
        bins, variance = self.bins[column], self.sigma**2
        counts = self.noisy(column)[: bins.numbers]
        sums, noise = parts.sums_over(bins)
        weight = 1.0
        if weighted:
            weight = float(np.clip(sums.sum() / max(float(counts.sum()), 1.0), 0.01, 1.0))
        wrong = np.square((1 - weight) * np.maximum(counts, 0.0))
        seen, variances = sums / weight, (noise + wrong) / weight**2
        both = variance * variances / (variance + variances)
        of_weights = weight**2 * variance + wrong
        left = noise * of_weights / (noise + of_weights)
        sum_of_weights = left * (sums / noise + weight * counts / of_weights)
        return both * (counts / variance + seen / variances), both, np.maximum(sum_of_weights, np.sqrt(left))


def dump_look(name: str, look: Refinement) -> Arrays:
    key = name.split()[0]
    starts = {f"{key}_starts_{k}": bins.starts for k, bins in enumerate(look.bins) if bins.starts is not None}
    return {f"{key}_columns": np.array(look.columns, dtype=np.int64), f"{key}_counts": look.counts, **starts}


def load_look(name: str, before: Histograms, arrays: Arrays, *, sigma: float, unit: int) -> Refinement:
    """Return a look from an untrusted file."""
    key, possible = name.split()[0], [i for i, bins in enumerate(before.bins) if bins.divisible]
    columns = tuple(ints(arrays[f"{key}_columns"], most=len(before.bins) - 1).tolist())
    known = len(columns) > 0 and list(columns) == sorted(set(possible) & set(columns))
    require(known, "its histograms refine other columns than it has")
    bins = []
    for k, i in enumerate(columns):
        old, column = before.bins[i], before.bins[i].column
        assert isinstance(column, Numeric)
        assert old.starts is not None
        finer = read_bins(column, arrays[f"{key}_starts_{k}"])
        assert finer.starts is not None
        inside = bool(np.isin(old.starts, finer.starts).all())
        require(inside and finer.numbers <= MOST_FINE_CELLS, "its finer cells are not parts of its cells")
        bins.append(finer)
    counts = ints(arrays[f"{key}_counts"], sum(each.count for each in bins), most=2**62)
    return Refinement(columns, tuple(bins), counts, sigma, unit)
