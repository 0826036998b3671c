"""The model that follows from the noisy sums: conditional Gaussian naive Bayes. All of it is post-processing."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms, to_simplex
from repsynth.columns.cells import Bins
from repsynth.columns.groups import Groups, choose_groups, pairs_with_label, probabilities_within
from repsynth.columns.mixture import kept
from repsynth.columns.quotas import Line, Quotas, systematic
from repsynth.columns.value_sampler import Shape
from repsynth.data.records import MISSING, Records
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.naive_bayes.statistic import (
    GRID,
    LINEAR,
    SQUARE,
    UNIT,
    Contribution,
    WeightedSums,
    from_label_code,
)
from repsynth.schema import Schema

_SPREAD = 0.1  # how much labels are expected to differ from equal probabilities, as a sum of squares
_TAIL = 1e-6
_PLACES = 4_096
_RAREST = 0.01  # fraction of the records that a value is taken to have, at least
_NARROWEST = 2.0  # standard deviation of a label's numbers at least, in units of the noise of their mean
_WIDTHS = np.append(0.0, 4.0 ** np.arange(-2, 4))
"""Variances of the mixture that differences between labels come from, in units of their column's."""
_ALIKE = np.where(_WIDTHS == 1.0, 10.0, 0.0)
"""So many differences more are believed to be like their column's: few tell nothing of a mixture."""


@dataclass(frozen=True)
class NaiveBayesSampler:
    """The fitted model: post-processing of the noisy sums and of the histograms.

    For each label its probability, the distribution of every discrete column (a last cell for missing where it
    is declared), and the mean and standard deviation of every numeric column in z-scores.
    """

    schema: Schema
    histograms: Histograms
    contribution: Contribution
    label_probabilities: Floats  # (labels,)
    distributions: tuple[Floats, ...]  # per discrete column (labels, values)
    means: Floats  # (labels, numeric columns)
    deviations: Floats  # (labels, numeric columns)

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The label with each other column."""
        label, noise = self.schema.label, self.histograms.sigma
        return pairs_with_label(choose_groups(self.histograms, label, most=32, noise=noise), label)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records. Quotas instead of independent draws: the probabilities come out as fitted."""
        given = np.full(rows, label or 0, dtype=np.int64)
        if label is None and len(self.label_probabilities) > 1:
            given = systematic(self.label_probabilities, rows, generator)
        return self._draw(given, generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """The columns that are not given, drawn given the others: exact, by the label's probabilities given them.
        A number counts by its bin where its bins are drawn from."""
        logs = np.log(np.tile(self.label_probabilities, (given.rows, 1)))
        column_of_label = self.schema.label_column
        if column_of_label is not None and column_of_label.name in given.codes:
            logs = np.where(given.codes[column_of_label.name][:, None] == np.arange(logs.shape[1]), 0.0, -np.inf)
        with np.errstate(divide="ignore"):
            for column, table in zip(self.schema.discrete, self.distributions, strict=True):
                if column.name in given.codes:
                    codes = given.codes[column.name]
                    logs = logs + np.log(table.T[np.where(codes == MISSING, column.size, codes)])
            for j, numeric in enumerate(self.schema.numeric):
                if numeric.name in given.codes:
                    logs = logs + self._log_density(j, given.codes[numeric.name])
        largest = logs.max(axis=1)
        possible = np.isfinite(largest)
        masses = np.exp(logs - np.where(possible, largest, 0.0)[:, None])
        drawn = self._draw(draw_each(np.where(possible[:, None], masses, 1.0), generator), generator)
        return Completed.exactly(with_given(drawn, given), possible)

    def _log_density(self, j: int, codes: Ints) -> Floats:
        """(records, labels): of numbers, up to what all labels have in common."""
        column, ranked = self.schema.numeric[j], self._ranked[j]
        bins, table = self.histograms.bins[self.schema.learned.index(column)], ranked.shape.probabilities.copy()
        full = np.flatnonzero(table[:, : ranked.numbers].any(axis=0))
        nearest = np.abs(np.arange(ranked.numbers)[:, None] - full).argmin(axis=1)
        # A number that is never drawn counts as one near by.
        table[:, : ranked.numbers] = table[:, full[nearest]]
        logs: Floats = np.log(table.T[bins.of_codes(codes)])
        return logs

    def _draw(self, given: Ints, generator: np.random.Generator) -> Records:
        rows = len(given)
        column_of_label = self.schema.label_column
        codes = {column_of_label.name: given} if column_of_label else {}
        for column, quotas in zip(self.schema.discrete, self._discrete, strict=True):
            line = Line.of(given, quotas.rows, generator)
            cell = quotas.along(line, generator)
            codes[column.name] = line.put(np.where(cell == column.size, MISSING, cell) if column.missing else cell)
        for j, numeric in enumerate(self.schema.numeric):
            line = Line.of(given, len(self.label_probabilities), generator)
            codes[numeric.name] = line.put(self._ranked[j].codes(line, generator))
        return Records(rows=rows, codes=codes)

    @cached_property
    def _discrete(self) -> tuple[Quotas, ...]:
        return tuple(Quotas.of(distribution) for distribution in self.distributions)

    @cached_property
    def _ranked(self) -> tuple["_Ranked", ...]:
        """The numeric columns: z only ranks the records among all of them, and the values follow the histogram, so
        that spikes and skew survive."""
        found = []
        for j, column in enumerate(self.schema.numeric):
            i = self.schema.learned.index(column)
            mixture = _Mixture(self.label_probabilities, self.means[:, j], self.deviations[:, j])
            found.append(_Ranked.of(self.histograms.bins[i], mixture, *self._numbers(i)))
        return tuple(found)

    def _numbers(self, i: int) -> tuple[Floats, Floats]:
        """The probabilities of a numeric column's bins of numbers; and of its special values, then of missing."""
        bins, missing = self.histograms.bins[i], self.histograms.missing_fraction(i)
        probabilities = self.histograms.probabilities[i] * (1 - missing)
        return probabilities[: bins.numbers], np.append(probabilities[bins.numbers :], missing)


@dataclass(frozen=True)
class _Mixture:
    """The z-scores of a column: normal for each label."""

    probabilities: Floats  # of the labels
    means: Floats
    deviations: Floats

    def below(self, z: Floats) -> Floats:
        """(labels, z): the fraction of a label's records with a smaller z-score."""
        below: Floats = ndtr((z - self.means[:, None]) / self.deviations[:, None])
        return below

    def below_ranks(self, ranks: Floats) -> Floats:
        """(labels, ranks): the fraction of a label's records that are below a rank among all, from 0 to 1."""
        places = np.linspace(_TAIL, 1 - _TAIL, max(_PLACES // len(self.means), 16))
        z = np.unique(self.means[:, None] + self.deviations[:, None] * ndtri(places))
        among_all = np.maximum.accumulate(self.probabilities @ self.below(z))
        found = self.below(np.interp(ranks, among_all, z))
        found[:, ranks <= 0], found[:, ranks >= 1] = 0.0, 1.0
        return found


@dataclass(frozen=True)
class _Ranked:
    """A numeric column by label: how often each of its cells, special values and missing included."""

    shape: Shape
    numbers: int

    @classmethod
    def of(cls, bins: Bins, mixture: _Mixture, numbers: Floats, others: Floats) -> "_Ranked":
        """A label's records are as far up among all as their z-scores are; `numbers` and `others` are the
        probabilities of cells, whatever the label."""
        share = float(numbers.sum())
        ranks = np.append(0.0, np.minimum(np.cumsum(numbers / max(share, 1e-300)), 1.0))
        fractions = np.where(numbers > 0, np.maximum(np.diff(mixture.below_ranks(ranks), axis=1), 0.0), 0.0)
        whole = np.maximum(fractions.sum(axis=1, keepdims=True), 1e-300)
        every = np.hstack([share * fractions / whole, np.tile(others, (len(fractions), 1))])
        return cls(Shape.of(bins, every), len(numbers))

    def codes(self, line: Line, generator: np.random.Generator) -> Ints:
        return self.shape.along(line, generator)


def fit_naive_bayes(
    schema: Schema,
    histograms: Histograms,
    statistic: WeightedSums,
    noisy: Ints,
    *,
    sigma: float,
    outlier_weight: float = 1.0,
) -> NaiveBayesSampler:
    """The model from the noisy sums (`sigma` in grid units).

    The label code is undone, and outliers that were summed up apart are scaled back to full weight by
    their mean `outlier_weight`. Then every block is split into what all labels have in common and each
    label's difference from it, and both are shrunk as far as noise alone explains them. How frequent values are
    in all, stage 1 has told without weights: there the sums count for no more than its noise leaves open.
    """
    contribution, labels = statistic.contribution, statistic.labels
    strata = from_label_code(noisy.reshape(statistic.shape) / GRID)
    restore = np.array([1.0] if statistic.strata == 1 else [1.0, 1.0 / outlier_weight])
    sums = np.einsum("s,slk->lk", restore, strata)
    noise = _Noise.of((sigma / GRID) ** 2 * float(restore @ restore), labels)

    unit, blocks = contribution.constant / UNIT, contribution.blocks
    mass = sums[:, blocks.constant][:, 0] / unit
    total = max(float(mass.sum()), 0.05 * histograms.rows)
    # Means are divided by a label's probability: one standard deviation more keeps noise from making it tiny.
    mass_error = math.sqrt(noise.difference + noise.common / labels**2) / unit
    label_probabilities = np.maximum(mass, 0.05 * total) + mass_error
    label_probabilities = label_probabilities / label_probabilities.sum()

    widths = [len(offset) for offset in contribution.offsets]
    means = _Means(label_probabilities, total, noise)
    one_hot = means.of(
        sums[:, blocks.one_hot],
        np.repeat(np.arange(len(widths)), widths),
        known=(histograms.sigma * total / histograms.rows) ** 2,
        expected=np.concatenate([offset / UNIT for offset in contribution.offsets]) if widths else None,
    )
    each_number = np.arange(len(schema.numeric))
    centres = np.clip(means.of(sums[:, blocks.numbers], each_number) / LINEAR, -2.5, 2.5)
    squares = means.of(sums[:, blocks.squares], each_number) / SQUARE
    # Labels that noise in their means tells apart without an error would hide all other columns from a tree.
    narrowest = _NARROWEST * math.sqrt(noise.difference) / (LINEAR * total * label_probabilities)
    parts = np.split(one_hot, np.cumsum(widths)[:-1], axis=1) if widths else []
    found = [to_simplex(part + offset / UNIT) for part, offset in zip(parts, contribution.offsets, strict=True)]
    return NaiveBayesSampler(
        schema=schema,
        histograms=histograms,
        contribution=contribution,
        label_probabilities=_drawn_label_probabilities(schema, histograms, label_probabilities),
        distributions=tuple(
            each if j not in contribution.groups else _of_values(each, contribution.groups[j], histograms)
            for j, each in enumerate(found)
        ),
        means=centres,
        deviations=np.sqrt(np.clip(np.maximum(1 + squares - centres**2, narrowest[:, None] ** 2), 0.1, 4.0)),
    )


def _of_values(by_group: Floats, groups: Groups, histograms: Histograms) -> Floats:
    """From (labels, groups) to (labels, values): how a group is spread over its values is the same for all."""
    within = probabilities_within(histograms, histograms.bins.index(groups.bins), groups)
    values: Floats = by_group @ within
    return values if groups.bins.column.missing else values[:, :-1]


@dataclass(frozen=True)
class _Noise:
    """The variance of one entry's common part (the sum over labels) and of its differences between labels."""

    common: float
    difference: float

    @classmethod
    def of(cls, variance: float, labels: int) -> "_Noise":
        return cls(variance / labels, (1 - 1 / labels) * variance / (2 * labels) ** 2)


@dataclass(frozen=True)
class _Means:
    """Means of a block of u per label, shrunk."""

    label_probabilities: Floats
    total: float
    noise: _Noise

    def of(
        self, block: Floats, columns: Ints, known: float | None = None, expected: Floats | None = None
    ) -> Floats:
        """(labels, entries); `columns` says whose each entry is. `known` is the variance with which stage 1 knows
        that what all labels have in common is 0, where it does; `expected`, how frequent values are: labels differ
        less in rare ones."""
        labels = len(self.label_probabilities)
        sums = block.sum(axis=0)
        common = sums * _shrinkage(sums[None], self.noise.common, columns)
        difference = block - sums / labels + np.outer(1 / labels - self.label_probabilities, common)
        if labels > 1:
            difference = difference * _kept(difference, self.noise.difference, columns, expected)
        if known is not None:
            common = sums * _left_open(sums, self.noise.common, known, columns)
        means: Floats = common / self.total + difference / (self.label_probabilities[:, None] * self.total)
        return means


def _drawn_label_probabilities(schema: Schema, histograms: Histograms, fitted: Floats) -> Floats:
    """The labels' probabilities to sample by: those of stage 1, which no weight distorts, as far as its noise
    allows, and the fitted ones for the rest."""
    if schema.label_column is None:
        return fitted
    index = schema.learned.index(schema.label_column)
    noise = histograms.bins[index].values * (histograms.sigma / histograms.rows) ** 2
    shrinkage = _SPREAD / (_SPREAD + noise)
    plain = to_simplex(histograms.noisy(index)[:-1] / histograms.rows)
    return shrinkage * plain + (1 - shrinkage) * fitted


def _shrinkage(values: Floats, noise: float, columns: Ints) -> Floats:
    """Empirical Bayes: the share of each entry's energy that is signal. `values` is (rows, entries), `noise` the
    variance of an entry."""
    if columns.size == 0:
        return np.ones(0)
    signal = _signal(values, noise, columns)
    factors: Floats = signal / np.maximum(signal + noise, 1e-300)
    return factors


def _kept(values: Floats, noise: float, columns: Ints, expected: Floats | None = None) -> Floats:
    """The same, entry by entry: where a few entries of a column make most of its signal, these are kept and noise
    is dropped from the others."""
    if columns.size == 0:
        return np.ones(0)
    fractions = np.full(columns.size, 0.5) if expected is None else np.clip(expected, _RAREST, 1 - _RAREST)
    signal = np.broadcast_to(_signal(values, noise, columns, 4 * fractions * (1 - fractions)), values.shape)
    least = 1e-24 * float((values**2).max()) + 1e-300  # without noise all is kept, and nothing overflows
    return kept(values, np.full(values.shape, max(noise, least)), np.multiply.outer(_WIDTHS, signal), _ALIKE)


def _left_open(sums: Floats, noise: float, known: float, columns: Ints) -> Floats:
    """The share of what the sums say that stage 1 leaves open: by the variance with which it is `known` to be 0,
    of all that is seen. What exceeds both noises is what weights and clipping took from the rarer values."""
    if columns.size == 0:
        return np.ones(0)
    factors: Floats = known / np.maximum(_signal(sums[None], noise, columns) + noise, known + noise + 1e-300)
    return factors


def _signal(values: Floats, noise: float, columns: Ints, sizes: Floats | None = None) -> Floats:
    """The energy of each entry beyond its noise: half its column's own and half that of the whole block, in
    proportion to `sizes` where there are some."""
    size = np.ones(columns.size) if sizes is None else sizes
    beyond = np.bincount(columns, ((values**2).mean(axis=0) - noise) * size)
    weight = np.bincount(columns, size**2)
    block = max(float(beyond.sum() / weight.sum()), 0.0)
    signal: Floats = (0.5 * np.maximum(beyond / weight, 0.0) + 0.5 * block)[columns] * size
    return signal
