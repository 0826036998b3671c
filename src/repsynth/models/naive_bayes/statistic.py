"""The statistic of naive Bayes: weighted, clipped sums by label.

A record with label y contributes code(y) ⊗ u, where

    u = [ a₀ | one-hot − probabilities, per discrete column | 0.8 z and 0.3 (z² − 1), per numeric column ]

is clipped to norm C and multiplied by the record's weight, and code(y) is column y of 2L·I − 𝟙𝟙ᵀ. Both
choices spend the noise where it matters: probabilities, centres and scales are known from stage 1, so the
contribution is the difference from them; and the label code gives the differences between labels more
of the norm than what all labels have in common. Sums are exact integers: u in units of 1/1024, the
multiplier (weight times clip factor) in units of 1/4096, rounded down.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.special import ndtri

from repsynth.arrays import Bools, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.groups import NONE, Groups, groups_of_families
from repsynth.data.records import MISSING, Records
from repsynth.models.clipping import clipped
from repsynth.schema import Discrete, Numeric, Schema
from repsynth.scoring.base import Score
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL, WeightFunction

UNIT = 2**10
GRID = UNIT * FULL
"""Grid units of the sums in one unit of u at full weight."""

LINEAR, SQUARE = 0.8, 0.3
FARTHEST = 3.0
_CLIP = 0.9  # of the norm of a typical record


@dataclass(frozen=True)
class Blocks:
    """Where the parts of u lie: its constant, the discrete columns, z and z² − 1 of the numeric ones."""

    constant: slice
    one_hot: slice
    numbers: slice
    squares: slice


@dataclass(frozen=True)
class Ranks:
    """z of a numeric column: by the rank of a number among all, from the released histogram. `z` has an entry for
    each cell of numbers."""

    bins: Bins
    z: Floats

    @classmethod
    def of_column(cls, histograms: Histograms, i: int) -> "Ranks":
        """The normal score of the middle rank of each bin, in standard units."""
        bins = histograms.bins[i]
        mass = histograms.probabilities[i][: bins.numbers]
        mass = mass / max(float(mass.sum()), 1e-9)
        rank = np.clip(np.cumsum(mass) - mass / 2, 1e-4, 1 - 1e-4)
        z = ndtri(rank)
        z = z - mass @ z
        z = np.clip(z / max(math.sqrt(float(mass @ z**2)), 0.1), -FARTHEST, FARTHEST)
        return cls(bins, z)

    def of_codes(self, codes: Ints) -> Floats:
        """z of each code; 0 where the value is missing or special."""
        nothing = np.zeros(self.bins.count - self.bins.numbers)
        return np.concatenate([self.z, nothing])[self.bins.of_codes(codes)]


@dataclass(frozen=True)
class Moments:
    """0.8 z and 0.3 (z² − 1) of one numeric column, in units of 1/UNIT; 0 where a value is missing or special."""

    column: Numeric
    ranks: Ranks

    @property
    def starts(self) -> Ints | None:
        """Where they change."""
        return self.ranks.bins.starts

    def linear(self, codes: Ints) -> Ints:
        """0.8 z."""
        return np.rint(self.ranks.of_codes(codes) * (LINEAR * UNIT)).astype(np.int64)

    def square(self, codes: Ints) -> Ints:
        """0.3 (z² − 1)."""
        z = self.ranks.of_codes(codes)
        none = (codes == MISSING) | (codes > self.column.steps)
        return np.where(none, 0.0, np.rint((z * z - 1) * (SQUARE * UNIT))).astype(np.int64)

    def squared_norm(self, codes: Ints) -> Ints:
        return self.linear(codes) ** 2 + self.square(codes) ** 2


@dataclass(frozen=True)
class _OneHot:
    """One-hot − probabilities of one discrete column."""

    column: Discrete
    offset: Ints
    groups: Groups | None = None

    def cells(self, codes: Ints) -> Ints:
        """The cell of each code; behind the last one where it contributes nothing."""
        if self.groups is not None:
            group = self.groups.of_codes(codes)
            return np.where(group == NONE, len(self.offset), group)
        return np.where(codes == MISSING, self.column.size, codes)

    def squared_norm(self, codes: Ints) -> Ints:
        return np.append(_squared_norms(self.offset), 0)[self.cells(codes)]


@dataclass(frozen=True)
class Contribution:
    """u as a public function of a record: the released numbers that make it, all integers but z's.

    `offsets` holds each discrete column's probabilities; a column that declares missing values has a last cell
    for them, in any other a missing cell contributes nothing. Columns of `groups`, whose rare values have public
    families, have a cell for each group in place of one for each value. `constant` and `clip` are in units of
    1/UNIT.
    """

    discrete: tuple[Discrete, ...]
    numeric: tuple[Numeric, ...]
    offsets: tuple[Ints, ...]
    ranks: tuple[Ranks, ...]
    constant: int
    clip: int
    groups: "Mapping[int, Groups]" = field(default_factory=dict)

    @property
    def length(self) -> int:
        """The number of entries of u."""
        return int(self.blocks.squares.stop)

    @property
    def blocks(self) -> "Blocks":
        ends = np.cumsum([1, sum(len(offset) for offset in self.offsets), len(self.numeric), len(self.numeric)])
        constant, one_hot, numbers, squares = (
            slice(int(a), int(b)) for a, b in zip([0, *ends], ends, strict=False)
        )
        return Blocks(constant, one_hot, numbers, squares)

    def smallest_norm(self) -> int:
        """The norm of u, rounded down, that no record without missing values falls below."""
        squared = self.constant**2 + len(self.numeric) * round(SQUARE * UNIT) ** 2
        for offset in self.offsets:
            squared += int(_squared_norms(offset).min())
        return math.isqrt(squared)

    def squared_norm(self, records: Records) -> Ints:
        """‖u‖² of each record before clipping, exact."""
        total = np.full(records.rows, self.constant**2, dtype=np.int64)
        for one_hot in self._one_hots:
            total += records.look_up(one_hot.column.name, one_hot.squared_norm)
        for moments in self._moments:
            total += records.look_up(moments.column.name, moments.squared_norm, moments.starts)
        return total

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """‖u‖ of each record before and after clipping, in units of u."""
        norms: Floats = np.sqrt(self.squared_norm(records)) / UNIT
        return norms, np.minimum(norms, self.clip / UNIT)

    def sums(self, records: Records, group: Ints, groups: int, multiplier: Ints) -> Ints:
        """Σ multiplier · u of each group: shape (groups, length).

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        factor = multiplier.astype(np.float64)
        mass = _group_sum(group, groups, factor)
        parts = [self.constant * mass[:, None]]
        for one_hot in self._one_hots:
            cell, offset = records.look_up(one_hot.column.name, one_hot.cells), one_hot.offset
            width = len(offset) + 1
            counts = _group_sum(group * width + cell, groups * width, factor).reshape(groups, width)[:, :-1]
            parts.append(UNIT * counts - counts.sum(axis=1, keepdims=True) * offset)
        for kind in (Moments.linear, Moments.square):
            for moments in self._moments:
                values = records.look_up(moments.column.name, kind.__get__(moments), moments.starts)
                parts.append(_group_sum(group, groups, factor * values)[:, None])
        return np.concatenate(parts, axis=1)

    @cached_property
    def _moments(self) -> tuple[Moments, ...]:
        return tuple(Moments(*each) for each in zip(self.numeric, self.ranks, strict=True))

    @cached_property
    def _one_hots(self) -> tuple[_OneHot, ...]:
        found = zip(self.discrete, self.offsets, strict=True)
        return tuple(_OneHot(*each, self.groups.get(j)) for j, each in enumerate(found))


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
    name: str = "sums"
    unit: int = GRID
    weighted: bool = True

    @property
    def labels(self) -> int:
        """How many labels there are; 1 where the schema names none."""
        return self.label.size if self.label else 1

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
        group, multiplier = self._placed(records)
        sums = self.contribution.sums(records, group, self.strata * self.labels, multiplier)
        return to_label_code(sums.reshape(self.shape)).ravel()

    def each(self, records: Records) -> Ints:
        """What each record adds to the total: (records, entries)."""
        group, multiplier = self._placed(records)
        own = np.arange(records.rows)
        placed = np.zeros((records.rows, self.strata * self.labels, self.contribution.length), dtype=np.int64)
        placed[own, group] = self.contribution.sums(records, own, records.rows, multiplier)
        return to_label_code(placed.reshape(records.rows, *self.shape)).reshape(records.rows, -1)

    def _placed(self, records: Records) -> tuple[Ints, Ints]:
        """The stratum and label whose sum each record enters, and by what it is multiplied."""
        scores = self.score.of(records)
        group, labelled = self._labels(records)
        if self.split_at is not None:
            group = group + self.labels * (scores >= self.split_at)
        return group, np.where(labelled, self._multiplier(records, scores), 0)

    def _multiplier(self, records: Records, scores: Ints) -> Ints:
        """Weight times clip factor in units of 1/FULL, rounded down, so that no norm grows."""
        squared = self.contribution.squared_norm(records)
        return clipped(self.weights.of(scores), squared, self.contribution.clip)

    def _labels(self, records: Records) -> tuple[Ints, Bools]:
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


def make_contribution(schema: Schema, histograms: Histograms, *, equalize: bool = False) -> Contribution:
    """u from the released histograms: post-processing.

    The clip is nine tenths of the norm of a typical record. To `equalize`, it is the smallest norm that a
    record without missing values can have, which all others are then scaled down to.
    """
    index = {bins.column.name: i for i, bins in enumerate(histograms.bins)}
    offsets, groups = [], families_by_place(schema, histograms)
    for j, column in enumerate(schema.discrete):
        i = index[column.name]
        probabilities = histograms.probabilities[i]
        if column.missing:
            missing = histograms.missing_fraction(i)
            probabilities = np.append(probabilities * (1 - missing), missing)
        if j in groups:
            probabilities = groups[j].sum_up(np.append(probabilities, [0.0] * (not column.missing)))
        offsets.append(np.rint(probabilities * UNIT).astype(np.int64))
    typical = _typical_norm(schema)
    contribution = Contribution(
        discrete=schema.discrete,
        numeric=schema.numeric,
        offsets=tuple(offsets),
        ranks=tuple(Ranks.of_column(histograms, index[column.name]) for column in schema.numeric),
        constant=round(0.3 * typical * UNIT),
        clip=round(_CLIP * typical * UNIT),
        groups=groups,
    )
    return replace(contribution, clip=contribution.smallest_norm()) if equalize else contribution


def families_by_place(schema: Schema, histograms: Histograms) -> dict[int, Groups]:
    """The groups of the discrete columns whose values have public families, by place among them."""
    found = {j: groups_of_families(histograms, schema.learned.index(c)) for j, c in enumerate(schema.discrete)}
    return {j: groups for j, groups in found.items() if groups is not None}


def choose_statistic(stage: StageOne, mu: float, *, equalize: bool) -> WeightedSums:
    """The statistic for a charge of `mu`: outliers are summed up apart where their sums stand above the noise."""
    contribution = make_contribution(stage.schema, stage.histograms, equalize=equalize)
    statistic = WeightedSums(contribution, stage.score, stage.weights, stage.schema.label_column)
    threshold, rows = stage.threshold, stage.histograms.rows
    if threshold and threshold.worth_splitting(stage.weights, rows=rows, noise=statistic.noise(mu)):
        statistic = replace(statistic, split_at=threshold.value)
    return statistic


def planned_sensitivity(schema: Schema) -> float:
    """The sensitivity in units of u, known before any data is read; with equal influence it is smaller."""
    labels = schema.label_column.size if schema.label_column else 1
    return code_norm(labels) * round(_CLIP * _typical_norm(schema) * UNIT) / UNIT


def _typical_norm(schema: Schema) -> float:
    """The norm of u of an ordinary record, without the constant."""
    return math.sqrt(0.6 * len(schema.discrete) + (LINEAR**2 + 2 * SQUARE**2) * len(schema.numeric))


def _squared_norms(offset: Ints) -> Ints:
    """‖UNIT·e_k − offset‖² for each cell k."""
    return UNIT**2 - 2 * UNIT * offset + int(offset @ offset)


def _group_sum(group: Ints, groups: int, values: Floats) -> Ints:
    return np.bincount(group, weights=values, minlength=groups).astype(np.int64)
