"""Instantiation A: a conditional Gaussian naive Bayes model from weighted clipped statistics.

A record with label y contributes code(y) ⊗ u, where

    u = [ a₀ | one-hot − share, per discrete column | 0.8 z and 0.3 (z² − 1), per numeric column ]

is clipped to norm C and multiplied by the record's weight, and code(y) is column y of 2L·I − 𝟙𝟙ᵀ. Both
choices spend the noise where it matters: shares, centres and scales are known from stage 1, so the
contribution is the difference from them; and the label code gives the differences between labels more
of the norm than what all labels have in common. Sums are exact integers: u in units of 1/1024, the
multiplier (weight times clip factor) in units of 1/4096, rounded down.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from repsynth.encode import MISSING, Records
from repsynth.marginals import Marginals, to_simplex
from repsynth.measure import Account, sigma_for
from repsynth.models.stages import Measured, StageOne
from repsynth.schema import Discrete, Numeric, Schema
from repsynth.score import Score, standardisation, standardise
from repsynth.weigh import FULL, WeightFunction

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

UNIT = 2**10
GRID = UNIT * FULL
"""Grid units of the sums in one unit of u at full weight."""

_LINEAR, _SQUARE = 0.8, 0.3
_FARTHEST = 3.0
_FEW_VALUES = 32
_OTHERS = 10_000
_CLIP = 0.9  # of the norm of a typical record


@dataclass(frozen=True)
class Contribution:
    """u as a public function of a record: the released numbers that make it, all integers but z's.

    `offsets` holds each discrete column's shares; a column that declares missing values has a last cell
    for them, in any other a missing cell contributes nothing. `constant` and `clip` are in units of 1/UNIT.
    """

    discrete: tuple[Discrete, ...]
    numeric: tuple[Numeric, ...]
    offsets: tuple[Ints, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    constant: int
    clip: int

    @property
    def length(self) -> int:
        """The number of entries of u."""
        return 1 + sum(len(offset) for offset in self.offsets) + 2 * len(self.numeric)

    def smallest_norm(self) -> int:
        """The norm of u, rounded down, that no record without missing values falls below."""
        squared = self.constant**2 + len(self.numeric) * round(_SQUARE * UNIT) ** 2
        for offset in self.offsets:
            squared += int(_squared_norms(offset).min())
        return math.isqrt(squared)

    def squared_norm(self, records: Records) -> Ints:
        """‖u‖² of each record before clipping, exact."""
        total = np.full(records.rows, self.constant**2, dtype=np.int64)
        for column, offset in zip(self.discrete, self.offsets, strict=True):
            total += np.append(_squared_norms(offset), 0)[self._cell(column, records)]
        for i in range(len(self.numeric)):
            linear, square = self._moments(i, records)
            total += linear**2 + square**2
        return total

    def sums(self, records: Records, group: Ints, groups: int, multiplier: Ints) -> Ints:
        """Σ multiplier · u of each group: shape (groups, length).

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        mass = _group_sum(group, groups, multiplier)
        parts = [self.constant * mass[:, None]]
        for column, offset in zip(self.discrete, self.offsets, strict=True):
            cell = self._cell(column, records)
            width = len(offset) + 1
            counts = _group_sum(group * width + cell, groups * width, multiplier).reshape(groups, width)[:, :-1]
            parts.append(UNIT * counts - counts.sum(axis=1, keepdims=True) * offset)
        moments = [self._moments(i, records) for i in range(len(self.numeric))]
        for kind in (0, 1):
            parts += [_group_sum(group, groups, multiplier * pair[kind])[:, None] for pair in moments]
        return np.concatenate(parts, axis=1)

    def _cell(self, column: Discrete, records: Records) -> Ints:
        """The cell of each record; behind the last one where it contributes nothing."""
        codes = records.codes[column.name]
        return np.where(codes == MISSING, column.cells, codes)

    def _moments(self, i: int, records: Records) -> tuple[Ints, Ints]:
        positions = records.codes[self.numeric[i].name]
        z = standardise(positions, self.centre[i], self.scale[i], _FARTHEST)
        linear = np.rint(z * (_LINEAR * UNIT))
        square = np.where(positions == MISSING, 0.0, np.rint((z * z - 1) * (_SQUARE * UNIT)))
        return linear.astype(np.int64), square.astype(np.int64)


@dataclass(frozen=True)
class WeightedSums:
    """The statistic of stage 2. A record without a label contributes nothing.

    With `split_at`, records at or above that score are summed up apart from the others: each record still
    enters one sum only, so the sensitivity is the same, and the model can undo the outliers' small weight.
    """

    contribution: Contribution
    score: Score
    weights: WeightFunction
    label: Discrete | None
    split_at: int | None = None
    name: str = "synthesis"

    @property
    def labels(self) -> int:
        """How many labels there are; 1 where the schema names none."""
        return self.label.cells if self.label else 1

    @property
    def strata(self) -> int:
        """2 where outliers are summed up apart, else 1."""
        return 1 if self.split_at is None else 2

    @property
    def shape(self) -> tuple[int, int, int]:
        """Strata, labels, entries of u."""
        return self.strata, self.labels, self.contribution.length

    @property
    def sensitivity(self) -> float:
        """‖code(y)‖ × clip × full weight, in grid units."""
        return code_norm(self.labels) * self.contribution.clip * FULL

    def noise(self, mu: float) -> float:
        """The noise at this charge in units of u and of a label's difference from the others."""
        return self.sensitivity / mu / (GRID * 2 * self.labels)

    def total(self, records: Records) -> Ints:
        """The weighted sums of all labels in the label code, flattened from `shape`."""
        scores = self.score.of(records)
        group, labelled = self._labels(records)
        if self.split_at is not None:
            group = group + self.labels * (scores >= self.split_at)
        multiplier = np.where(labelled, self._multiplier(records, scores), 0)
        sums = self.contribution.sums(records, group, self.strata * self.labels, multiplier)
        return to_label_code(sums.reshape(self.shape)).ravel()

    def influence(self, records: Records) -> Floats:
        """The norm of each record's contribution, as a share of the sensitivity."""
        _, labelled = self._labels(records)
        norm = np.sqrt(self.contribution.squared_norm(records).astype(np.float64))
        share = self._multiplier(records, self.score.of(records)) * norm / (FULL * self.contribution.clip)
        return np.where(labelled, share, 0.0)

    def _multiplier(self, records: Records, scores: Ints) -> Ints:
        """Weight times clip factor in units of 1/FULL, rounded down, so that no norm grows."""
        squared = self.contribution.squared_norm(records)
        norm = np.ceil(np.sqrt(squared.astype(np.float64))).astype(np.int64)
        norm = np.maximum(norm + (norm * norm < squared), 1)
        weight = self.weights.of(scores)
        multiplier: Ints = np.minimum(weight, weight * self.contribution.clip // norm)
        return multiplier

    def _labels(self, records: Records) -> tuple[Ints, NDArray[np.bool_]]:
        if self.label is None:
            return np.zeros(records.rows, dtype=np.int64), np.ones(records.rows, dtype=np.bool_)
        codes = records.codes[self.label.name]
        return np.maximum(codes, 0), codes != MISSING


def to_label_code(sums: Ints) -> Ints:
    """(2L·I − 𝟙𝟙ᵀ) × sums along the labels, the last axis but one.

    >>> to_label_code(np.array([[1], [0]])).tolist()
    [[3], [-1]]
    """
    coded: Ints = 2 * sums.shape[-2] * sums - sums.sum(axis=-2, keepdims=True)
    return coded


def from_label_code(coded: Floats) -> Floats:
    """The inverse.

    >>> from_label_code(np.array([[3.0], [-1.0]])).tolist()
    [[1.0], [0.0]]
    """
    labels = coded.shape[-2]
    sums: Floats = (coded + coded.sum(axis=-2, keepdims=True) / labels) / (2 * labels)
    return sums


def code_norm(labels: int) -> float:
    """The norm of every column of the label code.

    >>> round(code_norm(2) ** 2, 9)
    10.0
    """
    return math.sqrt((2 * labels - 1) ** 2 + (labels - 1))


def make_contribution(schema: Schema, marginals: Marginals, *, equalize: bool = False) -> Contribution:
    """u from the released marginals: post-processing.

    The clip is nine tenths of the norm of a typical record. To `equalize`, it is the smallest norm that a
    record without missing values can have, which all others are then scaled down to.
    """
    index = {cells.column.name: i for i, cells in enumerate(marginals.cells)}
    offsets = []
    for column in schema.discrete:
        i = index[column.name]
        shares = marginals.shares[i]
        if column.missing:
            missing = marginals.missing_share(i)
            shares = np.append(shares * (1 - missing), missing)
        offsets.append(np.rint(shares * UNIT).astype(np.int64))
    standards = [standardisation(marginals, index[column.name]) for column in schema.numeric]
    typical = _typical_norm(schema)
    contribution = Contribution(
        discrete=schema.discrete,
        numeric=schema.numeric,
        offsets=tuple(offsets),
        centre=tuple(centre for centre, _ in standards),
        scale=tuple(scale for _, scale in standards),
        constant=round(0.3 * typical * UNIT),
        clip=round(_CLIP * typical * UNIT),
    )
    return replace(contribution, clip=contribution.smallest_norm()) if equalize else contribution


def planned_sensitivity(schema: Schema) -> float:
    """The sensitivity in units of u, known before any data is read; with equal influence it is smaller."""
    labels = schema.label_column.cells if schema.label_column else 1
    return code_norm(labels) * round(_CLIP * _typical_norm(schema) * UNIT) / UNIT


def _typical_norm(schema: Schema) -> float:
    """The norm of u of an ordinary record, without the constant."""
    return math.sqrt(0.6 * len(schema.discrete) + (_LINEAR**2 + 2 * _SQUARE**2) * len(schema.numeric))


def measure_naive_bayes(
    account: Account, data: Iterable[Records], stage: StageOne, mu: float, *, equalize: bool
) -> Measured[WeightedSums]:
    """The one measurement of stage 2. Outliers are summed up apart where their sums stand above the noise."""
    contribution = make_contribution(stage.schema, stage.marginals, equalize=equalize)
    statistic = WeightedSums(contribution, stage.score, stage.weights, stage.schema.label_column)
    threshold, rows = stage.threshold, stage.marginals.rows
    if threshold and threshold.worth_splitting(stage.weights, rows=rows, noise=statistic.noise(mu)):
        statistic = replace(statistic, split_at=threshold.value)
    return Measured(statistic, account.measure(statistic, data, mu=mu), sigma_for(statistic.sensitivity, mu))


@dataclass(frozen=True)
class NaiveBayes:
    """The fitted model: post-processing of the noisy sums and of the marginals.

    For each label its share, the distribution of every discrete column (a last cell for missing where it
    is declared), and the mean and standard deviation of every numeric column in z-scores.
    """

    schema: Schema
    marginals: Marginals
    contribution: Contribution
    label_shares: Floats  # (labels,)
    distributions: tuple[Floats, ...]  # per discrete column (labels, cells)
    means: Floats  # (labels, numeric columns)
    deviations: Floats  # (labels, numeric columns)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records. Quotas instead of independent draws: the shares come out as fitted."""
        group = _quota(self.label_shares, rows, generator) if label is None else np.full(rows, label)
        # Values follow ranks among all labels, so one label alone is ranked among others that are not returned.
        others = group if label is None else _quota(self.label_shares, _OTHERS, generator)
        column_of_label = self.schema.label_column
        codes = {column_of_label.name: group} if column_of_label else {}
        for column, distribution in zip(self.schema.discrete, self.distributions, strict=True):
            cell = np.zeros(rows, dtype=np.int64)
            for k, shares in enumerate(distribution):
                cell[group == k] = _quota(shares, int(np.sum(group == k)), generator)
            codes[column.name] = np.where(cell == column.cells, MISSING, cell)
        for j, numeric in enumerate(self.schema.numeric):
            z = self._z_scores(j, group, generator)
            among = z if label is None else self._z_scores(j, others, generator)
            codes[numeric.name] = self._positions(j, z, among, generator)
        return Records(rows=rows, codes=codes)

    def _z_scores(self, j: int, group: Ints, generator: np.random.Generator) -> Floats:
        """z of each record in a numeric column, by its label."""
        z = np.zeros(len(group))
        for k in range(len(self.label_shares)):
            members = group == k
            z[members] = self._normals(j, k, int(members.sum()), generator)
        return z

    def _normals(self, j: int, k: int, rows: int, generator: np.random.Generator) -> Floats:
        """Evenly spread normal z-scores in random order. In a column of many values they are cut off at
        the bounds: piled up there, a tail would make a heap that nobody has."""
        centre, scale = self.contribution.centre[j], self.contribution.scale[j]
        steps = self.schema.numeric[j].steps
        bounds = np.array([-0.5 - centre, steps + 0.5 - centre]) / scale
        mean, deviation = self.means[k, j], self.deviations[k, j]
        low, high = ndtr(np.clip((bounds - mean) / deviation, -5.0, 5.0)) if steps > _FEW_VALUES else (0.0, 1.0)
        levels = (generator.permutation(rows) + generator.random()) / max(rows, 1)
        normals: Floats = mean + deviation * ndtri(np.clip(low + levels * (high - low), 1e-6, 1 - 1e-6))
        return normals

    def _positions(self, j: int, z: Floats, among: Floats, generator: np.random.Generator) -> Ints:
        """From z-scores to values. Where stage 1 shows the column's shape above its noise, z only ranks
        the records `among` all of them and the values follow that shape: heaps and skew survive."""
        column = self.schema.numeric[j]
        i = self.schema.learned.index(column)
        if self.marginals.clear(i):
            ranks = (np.searchsorted(np.sort(among), z) + 0.5) / max(len(among), 1)
            positions = self.marginals.quantile(i, self.marginals.trusted(i), ranks)
        else:
            nearest = np.rint(self.contribution.centre[j] + self.contribution.scale[j] * z)
            positions = np.clip(nearest, 0, column.steps).astype(np.int64)
        absent = generator.permutation(len(z)) < round(self.marginals.missing_share(i) * len(z))
        return np.where(absent, MISSING, positions)


def fit_naive_bayes(
    schema: Schema,
    marginals: Marginals,
    statistic: WeightedSums,
    noisy: Ints,
    *,
    sigma: float,
    outlier_weight: float = 1.0,
) -> NaiveBayes:
    """The model from the noisy sums (`sigma` in grid units).

    The label code is undone, and outliers that were summed up apart are scaled back to full weight by
    their mean `outlier_weight`. Then every block is split into what all labels have in common and each
    label's difference from it, and both are shrunk as far as noise alone explains them.
    """
    contribution, labels = statistic.contribution, statistic.labels
    coded = noisy.reshape(statistic.shape) / GRID
    strata = from_label_code(coded)
    restore = np.array([1.0] if statistic.strata == 1 else [1.0, 1.0 / outlier_weight])
    sums = np.einsum("s,slk->lk", restore, strata)
    # Variance of one entry's common part (the sum over labels) and of its differences between labels.
    noise = (sigma / GRID) ** 2 * float(restore @ restore)
    common_noise, difference_noise = noise / labels, (1 - 1 / labels) * noise / (2 * labels) ** 2

    unit = contribution.constant / UNIT
    mass = sums[:, 0] / unit
    total = max(float(mass.sum()), 0.05 * marginals.rows)
    # Means are divided by a label's share: one standard deviation more keeps noise from making it tiny.
    mass_error = math.sqrt(difference_noise + common_noise / labels**2) / unit
    label_shares = np.maximum(mass, 0.05 * total) + mass_error
    label_shares = label_shares / label_shares.sum()

    def conditional_means(block: Floats, columns: Ints, scale: float) -> Floats:
        """Means of one block of u per label, (labels, entries); `columns` says whose each entry is."""
        common = block.sum(axis=0)
        difference = block - common / labels
        common = common * _believed(common[None], common_noise, columns)
        difference = difference + np.outer(1 / labels - label_shares, common)
        if labels > 1:
            difference = difference * _believed(difference, difference_noise, columns)
        means: Floats = (common / total + difference / (label_shares[:, None] * total)) / scale
        return means

    widths = [len(offset) for offset in contribution.offsets]
    ends = 1 + np.cumsum([sum(widths), len(schema.numeric), len(schema.numeric)])
    by_column = np.repeat(np.arange(len(widths)), widths)
    by_number = np.arange(len(schema.numeric))
    cells = conditional_means(sums[:, 1 : ends[0]], by_column, 1.0)
    means = np.clip(conditional_means(sums[:, ends[0] : ends[1]], by_number, _LINEAR), -2.5, 2.5)
    squares = conditional_means(sums[:, ends[1] : ends[2]], by_number, _SQUARE)
    distributions = (
        [
            to_simplex(part + offset / UNIT)
            for part, offset in zip(
                np.split(cells, np.cumsum(widths)[:-1], axis=1), contribution.offsets, strict=True
            )
        ]
        if widths
        else []
    )
    return NaiveBayes(
        schema=schema,
        marginals=marginals,
        contribution=contribution,
        label_shares=_drawn_label_shares(schema, marginals, label_shares),
        distributions=tuple(distributions),
        means=means,
        deviations=np.sqrt(np.clip(1 + squares - means**2, 0.1, 4.0)),
    )


def _drawn_label_shares(schema: Schema, marginals: Marginals, fitted: Floats) -> Floats:
    """The labels' shares to sample by: those of stage 1, which no weight distorts, as far as its noise
    allows, and the fitted ones for the rest."""
    if schema.label_column is None:
        return fitted
    index = schema.learned.index(schema.label_column)
    belief = marginals.belief(len(fitted))
    plain = to_simplex(marginals.noisy(index)[:-1] / marginals.rows)
    return belief * plain + (1 - belief) * fitted


def _believed(values: Floats, noise: float, columns: Ints) -> Floats:
    """Empirical Bayes: the share of each entry's energy that is signal, half its column's own and half
    that of the whole block. `values` is (rows, entries), `noise` the variance of an entry."""
    if columns.size == 0:
        return np.ones(0)
    size = np.bincount(columns)
    own = np.bincount(columns, (values**2).mean(axis=0)) / size - noise
    block = max(float(own @ size) / size.sum(), 0.0)
    signal = 0.5 * np.maximum(own, 0.0) + 0.5 * block
    believed: Floats = (signal / np.maximum(signal + noise, 1e-300))[columns]
    return believed


def _quota(shares: Floats, rows: int, generator: np.random.Generator) -> Ints:
    """Codes in the proportions of the shares, in random order (systematic sampling)."""
    levels = (np.arange(rows) + generator.random()) / max(rows, 1)
    codes = np.minimum(np.searchsorted(np.cumsum(shares), levels, side="right"), len(shares) - 1)
    return generator.permutation(codes)


def _squared_norms(offset: Ints) -> Ints:
    """‖UNIT·e_k − offset‖² for each cell k."""
    return UNIT**2 - 2 * UNIT * offset + int(offset @ offset)


def _group_sum(group: Ints, groups: int, values: Ints) -> Ints:
    return np.bincount(group, weights=values, minlength=groups).astype(np.int64)
