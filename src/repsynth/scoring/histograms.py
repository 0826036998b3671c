"""Stage 1: one noisy histogram per column, measured together, and what they tell about each column."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.positions import positions_of, usual, values_at
from repsynth.data.records import MISSING, Records
from repsynth.schema import Datetime, Numeric
from repsynth.scoring.bins import Bins
from repsynth.scoring.families import by_family, families_of
from repsynth.scoring.grain import Roundness, Run

# How much a column's true histogram is expected to differ from the typical one, as a sum of squared
# probabilities. Against the noise's own sum of squares it sets how far a noisy histogram is shrunk.
_SPREAD = 0.1

# Noise of so many standard deviations is taken neither for a spike nor for a tail: one in 30,000 bins has more.
# Where all bins are equal, an end of noise does not reach far, and losing a true one is worse.
_ABOVE_NOISE, _NEAR_BY = 4.0, 2.0

# Times the width of a bin beside it; a power of ten is ten times the one before.
_FAR = 20


class Cells(Protocol):
    """A public cell for every record."""

    @property
    def count(self) -> int: ...

    def of(self, records: Records) -> Ints: ...


@dataclass(frozen=True)
class ColumnHistograms:
    """The statistic: each record adds one to one bin of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = ColumnHistograms((Bins.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    bins: tuple[Cells, ...]
    name: str = "histograms"
    unit: int = 1
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        """Exact: one cell of each histogram, whatever the record."""
        return math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        """All histograms, one behind the other."""
        return np.concatenate([np.bincount(bins.of(records), minlength=bins.count) for bins in self.bins])

    def each(self, records: Records) -> Ints:
        """What each record adds: (records, cells)."""
        own = np.arange(records.rows)
        parts = [np.zeros((records.rows, bins.count), dtype=np.int64) for bins in self.bins]
        for part, bins in zip(parts, self.bins, strict=True):
            part[own, bins.of(records)] = 1
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Histograms:
    """The noisy histograms, a released value; `rows` is the released or declared number of records.

    `roundness` tells, by place among the columns, how round the numbers of wide columns are; the bins of
    `located` columns were placed where a look before showed their numbers. `sigmas` holds the noise of each column
    where that is not the same for all; the bins of `outward` ones are by magnitude.
    """

    bins: tuple[Bins, ...]
    counts: Ints | Floats
    sigma: float
    rows: float
    roundness: Mapping[int, Roundness] = field(default_factory=dict)
    located: frozenset[int] = frozenset()
    outward: frozenset[int] = frozenset()
    sigmas: tuple[float, ...] = ()

    def noisy(self, column: int) -> Floats:
        """The noisy counts of one column as they were measured."""
        return counts_of(self.bins, self.counts, column)

    def sigma_of(self, column: int) -> float:
        return self.sigmas[column] if self.sigmas else self.sigma

    def clean(self, column: int) -> Floats:
        """The counts of a numeric column's bins without missing: noise makes neither spikes nor tails of them.

        The ends of a histogram whose counts, one by one and added up, stay within the noise are empty. A value
        with a bin of its own is a spike where it stands above what its neighbours have per width by more than
        noise; otherwise it is levelled out with the one behind it.
        """
        bins, counts = self.bins[column], self.noisy(column)[:-1]
        numbers, sigma = counts[: bins.numbers], self.sigma_of(column)
        weak = self._weak(column)
        body = np.where(bins.spikes, 0.0, numbers)
        inside = within_noise(body, sigma, _ABOVE_NOISE if column in self.located else _NEAR_BY)
        if inside is not None:
            outside = np.ones(len(numbers), dtype=np.bool_)
            outside[inside] = False
            numbers = np.where(outside & ~(bins.spikes & ~weak), 0.0, numbers)
        width = bins.widths
        for i in np.flatnonzero(weak):
            pair = [i, i + 1] if i + 1 < len(numbers) else [i - 1, i]
            numbers[pair] = numbers[pair].sum() * width[pair] / width[pair].sum()
        special = counts[bins.numbers :]
        return np.concatenate([numbers, np.where(special > 2 * sigma, special, 0.0)])

    def _weak(self, column: int) -> Bools:
        """Bins of one value that do not stand above their neighbours by more than noise."""
        bins, sigma = self.bins[column], self.sigma_of(column)
        numbers = self.noisy(column)[: bins.numbers]
        beside = np.where(bins.spikes, 0.0, np.maximum(numbers, 0.0) / bins.widths)
        expected = np.maximum(np.append(beside[1:], 0.0), np.insert(beside[:-1], 0, 0.0))
        weak: Bools = bins.spikes & (numbers - expected < _ABOVE_NOISE * sigma)
        return weak

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """Each column's distribution over its bins without missing: shrunk to the typical, made proper.

        Shrinking is linear with a factor that depends on the noise level only: numeric columns go
        towards the mean of all that have the same bins, the others towards equal probabilities. Bins that a look
        has placed have about equal mass. Values in families are levelled out there.
        """
        raw = [self.noisy(i)[:-1] / self.rows / (1 - self.absent_fraction(i)) for i in range(len(self.bins))]
        typical = {i: np.full(bins.values, 1 / bins.values) for i, bins in enumerate(self.bins)}
        groups: dict[tuple[int, int], list[int]] = {}
        for i, bins in enumerate(self.bins):
            if i in self.located:
                raw[i] = self.clean(i) / max(float(self.clean(i).sum()), self.sigma_of(i))
                typical[i] = np.where(raw[i] > 0, 1.0, 0.0) / max(int((raw[i] > 0).sum()), 1)
            elif bins.starts is not None:
                groups.setdefault((bins.count, bins.numbers), []).append(i)
        for members in groups.values():
            factor = self.shrinkage(members[0], averaged=len(members))
            mean = np.mean([raw[i] for i in members], axis=0)
            for i in members:
                typical[i] = factor * mean + (1 - factor) * typical[i]
        found = []
        for i, own in enumerate(raw):
            if (families := families_of(self.bins[i].column)) is not None:
                found.append(to_simplex(by_family(self.noisy(i)[:-1], self.sigma_of(i), families) / self.rows))
                continue
            factor = self.shrinkage(i)
            shrunk = factor * own + (1 - factor) * typical[i]
            # Where noise was found to make a tail, nothing puts it back.
            kept = (shrunk != 0) if i in self.located and shrunk.any() else np.ones(len(own), dtype=np.bool_)
            shrunk[kept] = to_simplex(shrunk[kept])
            found.append(shrunk)
        return tuple(found)

    def absent_fraction(self, column: int) -> float:
        """The fraction of cells that are in none of the bins of values, declared or not, where it stands above
        the noise."""
        absent = float(self.noisy(column)[-1])
        return min(absent / self.rows, 0.9) if absent > 2 * self.sigma_of(column) else 0.0

    def missing_fraction(self, column: int) -> float:
        """The fraction of missing cells in a column that declares them, shrunk; 0 in any other."""
        if not self.bins[column].column.missing:
            return 0.0
        factor = self.shrinkage(column, values=1)
        return float(np.clip(factor * self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def clear(self, column: int) -> bool:
        """Whether a column's histogram stands so far above its noise that its shape can be trusted."""
        return self.shrinkage(column) >= 0.97

    def centre_and_scale(self, column: int) -> tuple[float, float]:
        """Mean and standard deviation of the numbers in units of the whole range; numeric columns only."""
        edges = self.bins[column].edges()
        probabilities = self.probabilities[column][: self.bins[column].numbers]
        probabilities = probabilities / max(float(probabilities.sum()), 1e-9)
        width = np.diff(edges)
        middle = (edges[:-1] + edges[1:]) / 2
        centre = float(probabilities @ middle)
        variance = float(probabilities @ (middle**2 + width**2 / 12)) - centre**2
        return centre, max(math.sqrt(max(variance, 0.0)), float(np.median(width)) / 4)

    def trusted(self, column: int) -> Floats:
        """The probabilities of a numeric column without what noise may have invented."""
        if column in self.located:
            return self.probabilities[column]
        kept = np.where(self.clean(column) >= 2 * self.sigma_of(column), self.clean(column), 0.0)
        return kept / kept.sum() if kept.any() else self.probabilities[column]

    def quantile(self, column: int, probabilities: Floats, level: Floats, generator: np.random.Generator) -> Ints:
        """The position below which `level` of the records lie if they are spread over the column's bins
        by `probabilities`, rounded as often as the column's numbers are; numeric columns only."""
        ends = np.concatenate([[0.0], np.cumsum(probabilities)])
        cell = np.clip(np.searchsorted(ends, level, side="right") - 1, 0, len(probabilities) - 1)
        inside = np.clip((level - ends[cell]) / np.maximum(probabilities[cell], 1e-300), 0.0, 1.0)
        return self.positions(column, cell, inside, generator)

    def positions(self, column: int, cell: Ints, inside: Floats, generator: np.random.Generator) -> Ints:
        """Positions in these bins of a numeric column, each so far `inside` of its bin, from 0 to 1; numbers are
        rounded as often as the column's are."""
        bins, drawn = self.bins[column], self._drawn[column]
        assert bins.starts is not None
        assert isinstance(bins.column, Numeric)
        number = np.minimum(cell, bins.numbers - 1)
        start, end = drawn.starts[number], drawn.ends[number]
        found = np.minimum(start + np.floor(inside * (end - start)).astype(np.int64), end - 1)
        if drawn.rounding is not None and not isinstance(bins.column, Datetime):
            level, k = generator.random(len(cell)), np.zeros(len(cell), dtype=np.int64)
            for rounding in np.ascontiguousarray(drawn.rounding.T):
                k += level > rounding[number]
            values = np.asarray(values_at(found, bins.column), dtype=np.float64)
            rounded = self.roundness[column].rounded(values, drawn.low[number], drawn.high[number], k, generator)
            found = np.where(rounded == values, found, np.clip(positions_of(rounded, bins.column), start, end - 1))
        found = usual(found, bins.column)
        return np.where(cell >= bins.numbers, bins.starts[cell], found)

    def runs(self, column: int) -> Iterator[Run]:
        """The runs of positions from which the numbers of each bin of a numeric column are drawn."""
        bins, drawn = self.bins[column], self._drawn[column]
        rounded = drawn.rounding is not None and not isinstance(bins.column, Datetime)
        for k, (start, end) in enumerate(zip(drawn.starts.tolist(), drawn.ends.tolist(), strict=True)):
            whole = Run(k, 1.0, start, end - start, start, end - 1)
            if not rounded:
                yield whole
                continue
            assert drawn.rounding is not None
            fractions = np.diff(np.concatenate([[0.0], drawn.rounding[k], [1.0]]))
            yield from self.roundness[column].runs(whole, drawn.low[k], drawn.high[k], np.maximum(fractions, 0.0))

    def spans(self, column: int) -> tuple[Ints, Ints]:
        """From which position on, and up to which, the numbers of each bin of a numeric column are drawn."""
        return self._drawn[column].starts, self._drawn[column].ends

    @cached_property
    def _drawn(self) -> dict[int, "_Drawn"]:
        return {i: self._drawn_bins(i) for i, bins in enumerate(self.bins) if bins.starts is not None}

    def _drawn_bins(self, column: int) -> "_Drawn":
        """A value that is no spike joins the bin behind it, or before it at the upper bound."""
        bins = self.bins[column]
        assert bins.starts is not None
        starts, ends, weak = bins.starts[: bins.numbers].copy(), bins.ends.copy(), self._weak(column)
        for i in np.flatnonzero(weak):
            one, other = (i, i + 1) if i + 1 < len(starts) else (i - 1, i)
            starts[other], ends[one] = starts[one], ends[other]
        if column in self.located:
            self._shorten_ends(column, starts, ends)
        if column not in self.roundness:
            return _Drawn(starts, ends)
        low, high = _intervals(starts, ends, bins)
        parts, _ = self.roundness[column].spread(low, high, self.clean(column)[: bins.numbers])
        whole = parts.sum(axis=1, keepdims=True)
        # Nothing is known of a bin that may be empty: its numbers are not rounded.
        rounding = np.where(whole > 0, np.cumsum(parts / np.maximum(whole, 1e-300), axis=1), 1.0)
        return _Drawn(starts, ends, low, high, rounding[:, :-1])

    def _shorten_ends(self, column: int, starts: Ints, ends: Ints) -> None:
        """The first and the last bin with numbers may reach far beyond them: what is there is taken to be close to
        the rest, within some times the width of the bin beside it."""
        bins = self.bins[column]
        full = np.flatnonzero(self.clean(column)[: bins.numbers] * ~bins.spikes)
        if len(full) < 3:
            return
        first, second, before, last = full[[0, 1, -2, -1]]
        starts[first] = max(starts[first], ends[first] - _FAR * (ends[second] - starts[second]))
        ends[last] = min(ends[last], starts[last] + _FAR * (ends[before] - starts[before]))

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Records whose columns are independent and follow the probabilities: post-processing."""
        codes = {}
        for i, bins in enumerate(self.bins):
            level = (generator.permutation(rows) + generator.random()) / rows
            if bins.starts is None:
                ends = np.cumsum(self.probabilities[i])
                drawn = np.minimum(np.searchsorted(ends, level, side="right"), bins.values - 1)
            else:
                drawn = self.quantile(i, self.probabilities[i], level, generator)
            absent = generator.permutation(rows) < round(self.missing_fraction(i) * rows)
            codes[bins.column.name] = np.where(absent, MISSING, drawn)
        return Records(rows=rows, codes=codes)

    def shrinkage(self, column: int, *, values: int | None = None, averaged: int = 1) -> float:
        """The factor, from 0 to 1, by which a column's noisy histogram is shrunk, or one of so many `values` with
        its noise: by the noise alone."""
        values = self.bins[column].values if values is None else values
        noise = values * (self.sigma_of(column) / self.rows) ** 2 / averaged
        return _SPREAD / (_SPREAD + noise)


@dataclass(frozen=True)
class _Drawn:
    """From where to where the numbers of each bin are drawn, as positions and as values, and how often they are
    how round (cumulated)."""

    starts: Ints
    ends: Ints
    low: Floats = field(default_factory=lambda: np.zeros(0))
    high: Floats = field(default_factory=lambda: np.zeros(0))
    rounding: Floats | None = None


def counts_of(bins: Sequence[Bins], counts: Ints | Floats, column: int) -> Floats:
    """One column's counts of those that stand one behind the other."""
    start = sum(each.count for each in bins[:column])
    return counts[start : start + bins[column].count].astype(np.float64)


def intervals_of(bins: Bins) -> tuple[Floats, Floats]:
    """The smallest number in each bin of numbers, and the smallest behind it; not for times."""
    assert bins.starts is not None
    return _intervals(bins.starts[: bins.numbers], bins.ends, bins)


def _intervals(starts: Ints, ends: Ints, bins: Bins) -> tuple[Floats, Floats]:
    column = bins.column
    assert isinstance(column, Numeric)
    assert not isinstance(column, Datetime)
    low, high = (column.min + positions.astype(np.float64) * column.unit for positions in (starts, ends))
    return low, high


def within_noise(counts: Floats, sigma: float, times: float) -> slice | None:
    """What is left of a noisy histogram without its ends, whose counts stay within the noise one by one and added
    up; None where that is all of it, or nothing is left in sum. Counts that stand above the noise only together
    stay together.

    >>> within_noise(np.array([1.0, -2.0, 30.0, 2.0, 40.0, 0.5]), 1.0, 4.0)
    slice(2, 5, None)
    >>> within_noise(np.array([0.5, 2.0, 3.0, 2.5, 3.0, 30.0]), 1.0, 4.0)
    slice(1, 6, None)
    """

    def first(ordered: Floats) -> int | None:
        added = np.cumsum(ordered) / np.sqrt(np.arange(1, len(ordered) + 1))
        above = np.flatnonzero((ordered > times * sigma) | (added > times * sigma))
        if not above.size:
            return None
        together = np.cumsum(ordered[above[0] :: -1]) / np.sqrt(np.arange(1, above[0] + 2))
        return int(above[0] - np.argmax(together))

    low, high = first(counts), first(counts[::-1])
    if low is None or high is None:
        return None
    inside = slice(low, len(counts) - high)
    # Hills of noise at both ends may have more than their height missing between them.
    return inside if counts[inside].sum() > 0 else None


def merge_neighbours(counts: Floats, least: float, spike: float) -> Ints:
    """The group of each bin: neighbours together until they hold `least`; a bin of `spike` stands alone.

    >>> merge_neighbours(np.array([50.0, 3.0, 4.0, 5.0, 6.0, 1.0]), least=7.0, spike=20.0).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    groups = np.zeros(len(counts), dtype=np.int64)
    masses: list[float] = []
    spikes: list[bool] = []
    for i, count in enumerate(counts):
        full = not masses or spikes[-1] or masses[-1] >= least
        if count >= spike or full:
            masses.append(0.0)
            spikes.append(bool(count >= spike))
        masses[-1] += float(count)
        groups[i] = len(masses) - 1
    # A small remainder joins the group on its left, unless that one is a spike.
    for group in range(len(masses) - 1, 0, -1):
        if not spikes[group] and not spikes[group - 1] and masses[group] < least / 2:
            groups[groups >= group] -= 1
            masses[group - 1] += masses.pop(group)
            spikes.pop(group)
    return groups


def to_simplex(vector: Floats) -> Floats:
    """The nearest probability vector (along the last axis).

    >>> to_simplex(np.array([0.5, 0.7, -0.1])).round(6).tolist()
    [0.4, 0.6, 0.0]
    """
    ordered = -np.sort(-vector, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - 1
    ranks = np.arange(1, vector.shape[-1] + 1)
    kept = np.sum(ordered - excess / ranks > 0, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    nearest: Floats = np.maximum(vector - shift, 0.0)
    return nearest
