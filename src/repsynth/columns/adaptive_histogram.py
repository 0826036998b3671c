"""One adaptive histogram per column, measured in looks: all models, scores and drawing use it.

    coarse histograms     every column; public cells                                          (charge)
    refined histograms    numbers; cells with records are divided at round numbers, weighted   (charge)
    fine histograms       the same once more, in more parts                                    (charge)

The first look counts everybody in full and says how many records a cell has. The later ones are weighted and say
only how the records of a cell are spread over its parts. Scores are made of the first cells, so the weight of a
record hardly depends on where in its cell it lies. Parts that noise could have made keep what is expected of them:
an even spread by width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.cells import (
    MOST_CELLS,
    MOST_FINE_CELLS,
    Bins,
    divided,
    is_divisible,
    read_bins,
    roundness_of,
)
from repsynth.columns.hierarchy import by_family, families_of
from repsynth.columns.mixture import posterior_means
from repsynth.data.records import MISSING, Records
from repsynth.schema import Numeric
from repsynth.storage import ints, require

COARSE, REFINED, FINE = "coarse histograms", "refined histograms", "fine histograms"
PARTS = {REFINED: 20, FINE: 200}
"""Into how many parts each later look divides a cell, about: noise may hide most of them, and still show a few."""

_ABOVE_NOISE = 3.0  # standard deviations from which on a cell is divided
_VARIANCES = 16.0 ** np.arange(5)
"""Variances of the mixture's parts, in units of the noise's, for a cell of mean size."""
_SLOPE = 3  # cells before a tail that tell how fast it falls at least
_LEAST = 0.001
"""Of what is expected in a part: none is taken to be empty."""


class Cells(Protocol):
    """A public cell for every record."""

    @property
    def count(self) -> int: ...

    def of(self, records: Records) -> Ints: ...


@dataclass(frozen=True)
class ColumnHistograms:
    """The statistic: each record adds one to one cell of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = ColumnHistograms((Bins.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    bins: tuple[Cells, ...]
    name: str = COARSE
    unit: int = 1
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        """One cell of each histogram, whatever the record: exact."""
        return math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        return np.concatenate([np.bincount(bins.of(records), minlength=bins.count) for bins in self.bins])

    def each(self, records: Records) -> Ints:
        """What each record adds: (records, cells)."""
        own = np.arange(records.rows)
        parts = [np.zeros((records.rows, bins.count), dtype=np.int64) for bins in self.bins]
        for part, bins in zip(parts, self.bins, strict=True):
            part[own, bins.of(records)] = 1
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Look:
    """Finer cells of some columns and their noisy weighted counts, in `unit`s of a record: a released value."""

    columns: tuple[int, ...]
    """Places among the learned columns."""
    bins: tuple[Bins, ...]
    counts: Ints
    sigma: float
    unit: int

    def layer(self, column: int) -> "_Layer":
        """Return the cells of numbers of one column, in records."""
        k = self.columns.index(column)
        start, bins = sum(bins.count for bins in self.bins[:k]), self.bins[k]
        counts = self.counts[start : start + bins.numbers] / self.unit
        return _Layer(bins, counts, np.full(bins.numbers, (self.sigma / self.unit) ** 2))


@dataclass(frozen=True)
class _Layer:
    """Cells of one column, their noisy weighted counts, and the variances of these."""

    bins: Bins
    counts: Floats
    variances: Floats

    def combined_with(self, finer: "_Layer") -> "_Layer":
        """Return the layer with what the sums over finer cells add, by precision."""
        parents = finer.bins.parents(self.bins)
        counts, variances = np.bincount(parents, finer.counts), np.bincount(parents, finer.variances)
        both = self.variances * variances / (self.variances + variances)
        return _Layer(self.bins, both * (self.counts / self.variances + counts / variances), both)


@dataclass(frozen=True)
class Histograms:
    """Noisy histograms of every column. `rows` is the released or declared number of records.

    `refined` holds, for columns that a later look has refined, the estimate of each cell of numbers and the
    variance of its noise; `counts` then repeats the estimates.
    """

    bins: tuple[Bins, ...]
    counts: Ints | Floats
    sigma: float
    rows: float
    refined: "dict[int, tuple[Floats, Floats]]" = field(default_factory=dict)

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum([0, *(bins.count for bins in self.bins)])

    def noisy(self, column: int) -> Floats:
        """Return the counts of one column's cells, as measured in the first look."""
        return self.counts[self._starts[column] : self._starts[column + 1]].astype(np.float64)

    def levels(self, column: int) -> Floats:
        """Return the estimated records in each cell: not negative for numbers, missing last (0 where undeclared).

        The tails of numbers fall with the distance. Rare values of a category share what their family has.
        """
        return self._levels[column].copy()

    @cached_property
    def _levels(self) -> tuple[Floats, ...]:
        found = []
        for i, bins in enumerate(self.bins):
            counts = self.noisy(i)
            if (families := families_of(bins.column)) is not None:
                counts[:-1] = by_family(counts[:-1], self.sigma, families)
            elif bins.starts is not None:
                numbers, special = counts[: bins.numbers], counts[bins.numbers : -1]
                if i not in self.refined:
                    noise = np.full(len(numbers), self.sigma)
                    whole = self.rows - float(counts[bins.numbers :].sum())
                    numbers = with_tails(numbers, noise, bins.widths, self._clear, whole)
                special = np.where(special > 2 * self.sigma, special, 0.0)
                counts = np.concatenate([numbers, special, counts[-1:]])
            if not bins.column.missing:
                counts[-1] = 0.0
            found.append(counts)
        return tuple(found)

    @property
    def _clear(self) -> float:
        """Standard deviations that noise hardly exceeds in any first cell."""
        return clear_of_noise(MOST_CELLS * len(self.bins))

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
        """Return the fraction of cells without a value, declared or not, where it stands above the noise."""
        absent = float(self.noisy(column)[-1])
        return min(absent / self.rows, 0.9) if absent > 2 * self.sigma else 0.0

    def missing_fraction(self, column: int) -> float:
        """Return the fraction of missing cells in a column that declares them; 0 in any other."""
        if not self.bins[column].column.missing:
            return 0.0
        return float(np.clip(self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Draw records whose columns are independent and follow the probabilities: post-processing."""
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

    def refined_by(self, looks: "Sequence[Look]", *, weighted: bool) -> "Histograms":
        """Return the histograms with the finer cells of later looks: post-processing."""
        bins, refined = list(self.bins), {}
        counts = [self.noisy(i) for i in range(len(bins))]
        for i in sorted({i for look in looks for i in look.columns}):
            layers = [look.layer(i) for look in looks if i in look.columns]
            refined[i] = self._estimate(i, layers, weighted=weighted)
            counts[i] = np.concatenate([refined[i][0], counts[i][bins[i].numbers :]])
            bins[i] = layers[-1].bins
        return replace(self, bins=tuple(bins), counts=np.concatenate(counts), refined=refined)

    def _estimate(self, column: int, layers: "Sequence[_Layer]", *, weighted: bool) -> tuple[Floats, Floats]:
        """Return the records in each of the finest cells of a numeric column, and the variances of their noise.

        From the finest layer up, sums of parts add to what is known of a cell. Then, from the first cells down,
        each is shared out to its parts.
        """
        first = self.bins[column]
        summed = [layers[-1]]
        for layer in layers[-2::-1]:
            summed.insert(0, layer.combined_with(summed[0]))
        totals = _Totals.of(
            first, self.noisy(column)[: first.numbers], self.sigma**2, summed[0], weighted=weighted
        )
        clear = self._clear
        whole = self.rows - float(self.noisy(column)[first.numbers :].sum())
        levels = with_tails(totals.counts, np.sqrt(totals.variances), first.widths, clear, whole)
        sums, variances, coarse = totals.weighted, totals.variances, first
        for layer in summed:
            parents = layer.bins.parents(coarse)
            shares = shares_inside(
                parents,
                layer.bins.widths.astype(np.float64),
                layer.counts,
                np.sqrt(layer.variances),
                sums,
                roundness_of(layer.bins, parents),
            )
            scale = levels / sums
            # The noise of a part is that of its cell and, where that was divided, that of the look.
            of_look = np.where(np.bincount(parents) > 1, np.square(scale), 0.0)[parents] * layer.variances
            variances = variances[parents] * shares**2 + of_look
            levels, sums, coarse = levels[parents] * shares, sums[parents] * shares, layer.bins
        return levels, variances

    def to_divide(self, name: str, sigma: float) -> tuple[tuple[int, ...], tuple[Bins, ...]]:
        """Return which columns a look refines, and their cells; all that may be refined where nothing is to be
        divided, so that the look can be measured."""
        possible = [i for i, bins in enumerate(self.bins) if is_divisible(bins.column)]
        finer = {
            i: divided(
                self.bins[i],
                self._levels[i][: self.bins[i].numbers],
                least=_ABOVE_NOISE * sigma,
                parts=PARTS[name],
            )
            for i in possible
        }
        chosen = [i for i in possible if finer[i].count > self.bins[i].count] or possible
        return tuple(chosen), tuple(finer[i] for i in chosen)


def shares_inside(
    parents: Ints, widths: Floats, counts: Floats, sigma: Floats, whole: Floats, roundness: Ints
) -> Floats:
    """Return the share of each part in the cell that it is part of.

    `counts` are noisy weighted counts of the parts, `whole` those of the cells. `roundness` tells how round the
    number of a part is that has one only, and is -1 of others. What parts have beyond what is
    expected is taken for a mixture of normal distributions, which the column itself tells (empirical Bayes): one
    with a few spikes keeps these, a smooth one stays even. The parts that do not stand out share what the others
    leave.

    >>> counts = np.array([900.0, 10.0, -8.0, 90.0, 99.0, 111.0])
    >>> parents, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([902.0, 300.0])
    >>> shares_inside(parents, np.ones(6), counts, np.full(6, 10.0), whole, np.full(6, -1)).round(2).tolist()
    [1.0, 0.0, 0.0, 0.33, 0.33, 0.33]
    """
    parts = np.bincount(parents)
    sigma = np.broadcast_to(sigma, counts.shape)
    expected = whole[parents] * _expected_shares(parents, widths, counts, sigma, whole, roundness)
    found, split = expected.copy(), parts[parents] > 1
    if not split.any():
        return np.ones(len(parents))
    noise = sigma[split]
    rest = (counts - expected)[split] / noise
    none, size = np.zeros_like(rest), expected[split] / expected[split].mean() + 1e-9
    spread = np.stack([none, *np.multiply.outer(_VARIANCES, size**2), *(none + each for each in _VARIANCES), none])
    centres = np.stack([*(none for _ in spread[1:]), -expected[split] / noise])  # the last part: empty cells
    found[split] += noise * posterior_means(rest, centres, spread)
    found = np.maximum(found, _LEAST * expected)
    spikes = found > expected + clear_of_noise(len(found)) * sigma
    left = np.maximum(whole - np.bincount(parents, found * spikes), _LEAST * whole)
    others = np.bincount(parents, np.where(spikes, 0.0, found))
    found = np.where(spikes, found, found * (left / np.maximum(others, 1e-300))[parents])
    shares: Floats = found / np.bincount(parents, found)[parents]
    return shares


@dataclass(frozen=True)
class _Totals:
    """What is known of the first cells, from the first look and from the sums of their parts."""

    counts: Floats
    """Records, without bias: they may be negative."""
    variances: Floats
    weighted: Floats
    """Weighted counts: positive."""

    @classmethod
    def of(cls, bins: Bins, counts: Floats, variance: float, parts: _Layer, *, weighted: bool) -> "_Totals":
        """Combine both by precision. The mean weight of a cell is taken for that of the column, and may be as
        wrong as what weights take in all."""
        parents = parts.bins.parents(bins)
        sums, noise = np.bincount(parents, parts.counts), np.bincount(parents, parts.variances)
        weight = 1.0
        if weighted:
            weight = float(np.clip(sums.sum() / max(float(counts.sum()), 1.0), 0.01, 1.0))
        wrong = np.square((1 - weight) * np.maximum(counts, 0.0))
        seen, variances = sums / weight, (noise + wrong) / weight**2
        both = variance * variances / (variance + variances)
        found = both * (counts / variance + seen / variances)
        left = noise * (weight**2 * variance + wrong) / (noise + weight**2 * variance + wrong)
        sum_of_weights = left * (sums / noise + weight * counts / (weight**2 * variance + wrong))
        return cls(found, both, np.maximum(sum_of_weights, np.sqrt(left)))


def _expected_shares(
    parents: Ints, widths: Floats, counts: Floats, sigma: Floats, whole: Floats, roundness: Ints
) -> Floats:
    """Return the expected share of each part: by width, but for heaps. People round what they report, so equally
    round numbers have a share that all of them in the column tell together, if it stands above the noise."""
    heaped, taken = np.zeros(len(parents)), np.zeros(len(whole))
    for each in np.unique(roundness[roundness >= 0]):
        such = roundness == each
        own, together = np.bincount(parents[such], minlength=len(whole)), float(counts[such].sum())
        if together > 2 * math.sqrt(float(np.square(sigma[such]).sum())):
            share = together / max(float(whole[own > 0].sum()), together)
            heaped[such] = share / own[parents[such]]
            taken[own > 0] += share
    scale = np.minimum(0.95 / np.maximum(taken, 1e-300), 1.0)  # some records are at no heap
    others = np.where(heaped > 0, 0.0, widths)
    rest = (1 - taken * scale) / np.maximum(np.bincount(parents, others), 1e-300)
    return heaped * scale[parents] + others * rest[parents]


def dump_look(name: str, look: Look) -> Arrays:
    key = name.split()[0]
    starts = (bins.starts for bins in look.bins)
    return {
        f"{key}_columns": np.array(look.columns, dtype=np.int64),
        f"{key}_counts": look.counts,
        **{f"{key}_starts_{k}": each for k, each in enumerate(starts) if each is not None},
    }


def load_look(name: str, before: Histograms, arrays: Arrays, *, sigma: float, unit: int) -> Look:
    """Return a look from an untrusted file."""
    key, possible = name.split()[0], [i for i, bins in enumerate(before.bins) if is_divisible(bins.column)]
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
    return Look(columns, tuple(bins), counts, sigma, unit)


def clear_of_noise(cells: int) -> float:
    """Return the standard deviations that noise hardly exceeds in any of so many cells.

    >>> round(clear_of_noise(1000), 1)
    3.7
    """
    return math.sqrt(2 * math.log(max(cells, 2)))


def with_tails(counts: Floats, noise: Floats, widths: Ints, clear: float, whole: float = 0.0) -> Floats:
    """Return counts that are not negative.

    Beyond the last cells that are `clear` of the noise, alone or together, each cell has a fraction of the one
    before. The whole tail tells which fraction. Neighbours within the noise share what they have in sum. Where the
    `whole` column has more records than all clear cells, the rest is where the others are fullest.

    >>> counts = np.array([-9.0, 80.0, -3.0, 90.0, 30.0, 9.0, 7.0, -9.0, 9.0])
    >>> with_tails(counts, np.full(9, 6.0), np.full(9, 2), clear=6.0).round().tolist()
    [1.0, 80.0, 0.0, 90.0, 29.0, 10.0, 3.0, 1.0, 0.0]
    """
    found = np.maximum(counts, 0.0)
    inside = occupied(counts, noise, clear)
    if inside is None:
        return found
    alone = counts > clear * noise
    rest = whole - float(counts[alone].sum())
    if rest > clear * math.sqrt(float((noise[alone] ** 2).sum())) and not alone.all():
        fullest = _fullest(np.where(alone, 0.0, counts), noise)
        inside = slice(min(inside.start, fullest.start), max(inside.stop, fullest.stop))
    run = np.cumsum(np.append(True, np.diff(alone)))  # of cells that are clear, or are not
    sums, parts = np.bincount(run, counts), np.bincount(run, found)
    found *= np.clip(sums / np.maximum(parts, 1e-300), 0.0, 1.0)[run]
    first, last = inside.start, inside.stop - 1
    found[last:] = _tail(counts[last:], noise[last:], widths[last:], counts[:last][::-1])
    found[: first + 1] = _tail(counts[first::-1], noise[first::-1], widths[first::-1], counts[first + 1 :])[::-1]
    return found


def _fullest(counts: Floats, noise: Floats) -> slice:
    """Return the neighbours whose sum is largest by its noise."""
    sums, squares = (np.append(0.0, np.cumsum(each)) for each in (counts, noise**2))
    above = np.triu(sums - sums[:, None], 1) / np.sqrt(np.maximum(squares - squares[:, None], noise.min() ** 2))
    start, stop = np.unravel_index(np.argmax(above), above.shape)
    return slice(int(start), int(max(stop, start + 1)))


def occupied(counts: Floats, noise: Floats, clear: float) -> slice | None:
    """Return the cells without the ends, whose counts stay within the noise one by one and added up; None where
    that is all of them. Counts that stand above the noise only together stay together.

    >>> occupied(np.array([1.0, -2.0, 30.0, 2.0, 40.0, 0.5]), np.ones(6), 4.0)
    slice(2, 5, None)
    >>> occupied(np.array([0.5, 2.0, 3.0, 2.5, 3.0, 30.0]), np.ones(6), 4.0)
    slice(1, 6, None)
    """

    def first(counts: Floats, noise: Floats) -> int | None:
        added = np.cumsum(counts) / np.sqrt(np.cumsum(noise**2))
        above = np.flatnonzero((counts > clear * noise) | (added > clear))
        if not above.size:
            return None
        together = np.cumsum(counts[above[0] :: -1]) / np.sqrt(np.cumsum(noise[above[0] :: -1] ** 2))
        return int(above[0] - np.argmax(together))

    low, high = first(counts, noise), first(counts[::-1], noise[::-1])
    if low is None or high is None:
        return None
    inside = slice(low, len(counts) - high)
    # Hills of noise at both ends may have more than their height missing between them.
    return inside if counts[inside].sum() > 0 else None


def _tail(counts: Floats, noise: Floats, widths: Ints, inside: Floats) -> Floats:
    """Return the posterior mean of a tail; the first cell is the last one before it.

    All fractions are equally likely, up to the mean one of the cells before: densities fall ever faster in their
    tails (log-concavity). Cells with less than one record are empty, but for a trace that orders them, and so is a
    bound with a cell of its own.
    """
    last, slowest, k = max(float(counts[0]), 0.0), 1.0, min(len(inside), _SLOPE)
    if k:
        slowest = float(np.clip(last / max(inside[k - 1], 1.0), 0.0, 1.0)) ** (1 / k)
    rates = np.linspace(0.0, slowest, 20, endpoint=False)[:, None]
    places = np.arange(len(counts))
    fall = last * rates**places  # (rates, cells)
    loss = np.square((counts - fall) / noise).sum(axis=1) / 2
    chances = np.exp(loss.min() - loss)
    tail: Floats = chances @ fall / chances.sum()
    single = np.append(False, (widths[1:] == 1) & (widths[:-1] > 1))
    return np.where((tail < 1.0) | single, 1e-6 * 0.5**places, tail)


def merge_neighbours(counts: Floats, least: float, spike: float) -> Ints:
    """Return the group of each cell: neighbours together until they hold `least`; a cell of `spike` stands alone.

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
    """Return the nearest probability vector (along the last axis).

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
