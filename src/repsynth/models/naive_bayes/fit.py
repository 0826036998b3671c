"""The model that follows from the noisy sums: conditional Gaussian naive Bayes. All of it is post-processing."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from repsynth.arrays import Floats, Ints
from repsynth.data.positions import usual
from repsynth.data.records import MISSING, Records
from repsynth.models.naive_bayes.statistic import (
    GRID,
    LINEAR,
    SQUARE,
    UNIT,
    Contribution,
    WeightedSums,
    from_label_code,
)
from repsynth.models.sampling import systematic
from repsynth.schema import Schema
from repsynth.scoring.histograms import Histograms, to_simplex

_FEW_VALUES = 32
_OTHERS = 10_000


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

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records. Quotas instead of independent draws: the probabilities come out as fitted."""
        group = systematic(self.label_probabilities, rows, generator) if label is None else np.full(rows, label)
        # Values follow ranks among all labels, so one label alone is ranked among others that are not returned.
        others = group if label is None else systematic(self.label_probabilities, _OTHERS, generator)
        column_of_label = self.schema.label_column
        codes = {column_of_label.name: group} if column_of_label else {}
        for column, distribution in zip(self.schema.discrete, self.distributions, strict=True):
            cell = np.zeros(rows, dtype=np.int64)
            for k, probabilities in enumerate(distribution):
                cell[group == k] = systematic(probabilities, int(np.sum(group == k)), generator)
            codes[column.name] = np.where(cell == column.size, MISSING, cell)
        for j, numeric in enumerate(self.schema.numeric):
            z = self._z_scores(j, group, generator)
            among = z if label is None else self._z_scores(j, others, generator)
            codes[numeric.name] = self._positions(j, z, among, generator)
        return Records(rows=rows, codes=codes)

    def _z_scores(self, j: int, group: Ints, generator: np.random.Generator) -> Floats:
        """z of each record in a numeric column, by its label."""
        z = np.zeros(len(group))
        for k in range(len(self.label_probabilities)):
            members = group == k
            z[members] = self._normals(j, k, int(members.sum()), generator)
        return z

    def _normals(self, j: int, k: int, rows: int, generator: np.random.Generator) -> Floats:
        """Evenly spread normal z-scores in random order. In a column of many values they are cut off at
        the bounds: piled up there, a tail would make a spike that nobody has."""
        centre, scale = self.contribution.centre[j], self.contribution.scale[j]
        steps = self.schema.numeric[j].steps
        bounds = np.array([-0.5 - centre, steps + 0.5 - centre]) / scale
        mean, deviation = self.means[k, j], self.deviations[k, j]
        bounded = steps > _FEW_VALUES and j not in self.contribution.ranks
        low, high = ndtr(np.clip((bounds - mean) / deviation, -5.0, 5.0)) if bounded else (0.0, 1.0)
        levels = (generator.permutation(rows) + generator.random()) / max(rows, 1)
        normals: Floats = mean + deviation * ndtri(np.clip(low + levels * (high - low), 1e-6, 1 - 1e-6))
        return normals

    def _positions(self, j: int, z: Floats, among: Floats, generator: np.random.Generator) -> Ints:
        """From z-scores to values. Where stage 1 shows the column's shape above its noise, z only ranks
        the records `among` all of them and the values follow that shape: spikes and skew survive."""
        column = self.schema.numeric[j]
        i = self.schema.learned.index(column)
        special, numbers = self._special(i, len(z), generator)
        if self.histograms.clear(i) or j in self.contribution.ranks:
            below = _smaller(z) if among is z else np.searchsorted(np.sort(among), z)
            ranks = (below + 0.5) / max(len(among), 1)
            positions = self.histograms.quantile(i, numbers, ranks, generator)
        else:
            nearest = np.rint(self.contribution.centre[j] + self.contribution.scale[j] * z)
            positions = usual(np.clip(nearest, 0, column.steps).astype(np.int64), column)
        positions = np.where(special >= 0, column.steps + 1 + special, positions)
        absent = generator.permutation(len(z)) < round(self.histograms.missing_fraction(i) * len(z))
        return np.where(absent, MISSING, positions)

    def _special(self, i: int, rows: int, generator: np.random.Generator) -> tuple[Ints, Floats]:
        """Which special value each record has, −1 where none, whatever its label; and how numbers spread over
        their bins."""
        bins, probabilities = self.histograms.bins[i], self.histograms.trusted(i)
        numbers = probabilities[: bins.numbers]
        others = np.append(numbers.sum(), probabilities[bins.numbers :])
        drawn = systematic(others / others.sum(), rows, generator) - 1
        return drawn, numbers / max(float(numbers.sum()), 1e-300)


def _smaller(values: Floats) -> Ints:
    """How many are smaller than each: `np.searchsorted(np.sort(values), values)`.

    >>> _smaller(np.array([0.5, 0.1, 0.5])).tolist()
    [1, 0, 1]
    """
    order = np.argsort(values)
    ascending = values[order]
    first = np.arange(len(values))
    first[1:][ascending[1:] == ascending[:-1]] = 0
    found = np.empty(len(values), dtype=np.int64)
    found[order] = np.maximum.accumulate(first)
    return found


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
    label's difference from it, and both are shrunk as far as noise alone explains them.
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
    one_hot = means.of(sums[:, blocks.one_hot], np.repeat(np.arange(len(widths)), widths))
    each_number = np.arange(len(schema.numeric))
    centres = np.clip(means.of(sums[:, blocks.numbers], each_number) / LINEAR, -2.5, 2.5)
    squares = means.of(sums[:, blocks.squares], each_number) / SQUARE
    parts = np.split(one_hot, np.cumsum(widths)[:-1], axis=1) if widths else []
    return NaiveBayesSampler(
        schema=schema,
        histograms=histograms,
        contribution=contribution,
        label_probabilities=_drawn_label_probabilities(schema, histograms, label_probabilities),
        distributions=tuple(
            to_simplex(part + offset / UNIT) for part, offset in zip(parts, contribution.offsets, strict=True)
        ),
        means=centres,
        deviations=np.sqrt(np.clip(1 + squares - centres**2, 0.1, 4.0)),
    )


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

    def of(self, block: Floats, columns: Ints) -> Floats:
        """(labels, entries); `columns` says whose each entry is."""
        labels = len(self.label_probabilities)
        common = block.sum(axis=0)
        difference = block - common / labels
        common = common * _shrinkage(common[None], self.noise.common, columns)
        difference = difference + np.outer(1 / labels - self.label_probabilities, common)
        if labels > 1:
            difference = difference * _shrinkage(difference, self.noise.difference, columns)
        means: Floats = common / self.total + difference / (self.label_probabilities[:, None] * self.total)
        return means


def _drawn_label_probabilities(schema: Schema, histograms: Histograms, fitted: Floats) -> Floats:
    """The labels' probabilities to sample by: those of stage 1, which no weight distorts, as far as its noise
    allows, and the fitted ones for the rest."""
    if schema.label_column is None:
        return fitted
    index = schema.learned.index(schema.label_column)
    shrinkage = histograms.shrinkage(index)
    plain = to_simplex(histograms.noisy(index)[:-1] / histograms.rows)
    return shrinkage * plain + (1 - shrinkage) * fitted


def _shrinkage(values: Floats, noise: float, columns: Ints) -> Floats:
    """Empirical Bayes: the share of each entry's energy that is signal, half its column's own and half
    that of the whole block. `values` is (rows, entries), `noise` the variance of an entry."""
    if columns.size == 0:
        return np.ones(0)
    size = np.bincount(columns)
    own = np.bincount(columns, (values**2).mean(axis=0)) / size - noise
    block = max(float(own @ size) / size.sum(), 0.0)
    signal = 0.5 * np.maximum(own, 0.0) + 0.5 * block
    factors: Floats = (signal / np.maximum(signal + noise, 1e-300))[columns]
    return factors
