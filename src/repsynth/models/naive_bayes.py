"""Conditional Gaussian naive Bayes from weighted clipped statistics: instantiation A of REPS.

A record with label y contributes its weight times

    e_y ⊗ clip(u, C),   u = [ a | one-hot − q, per column | 0.8 z, per number | 0.3 (z² − 1), per number ]

to the sums of stage 2. q are the released frequencies of stage 1. A discrete column has an entry for each value. A
numeric column that declares special or missing values has one for numbers, one for each special value and one for
missing. z is the normal score of a number's rank in the released histogram. So stage 2 measures differences from
the released histograms, and u has a small norm. Sums are exact integers: u in units of 1/1024, weight times clip
factor in units of 1/4096, rounded down.

The rest is post-processing. Columns are drawn independently given the label. z determines the ranks of a label's
numbers among all numbers; the numbers follow the column's histogram.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.estimation import to_simplex
from repsynth.columns.groups import NONE, Groups, choose_groups, groups_of_families, pairs_with_label
from repsynth.columns.value_sampler import Shape, SortedRecords, systematic
from repsynth.io.records import Records
from repsynth.models.base import Hooks, Made, Model, Share, StoredModel
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.statistics import CONSTANT, UNIT, ColumnPart, LabelSums, label_axis
from repsynth.models.uncertainty import ModelErrors, table_errors
from repsynth.schema import Numeric, Schema
from repsynth.scoring.weights import FULL
from repsynth.storage import ints

if TYPE_CHECKING:
    from repsynth.mechanism.meter import Meter
    from repsynth.scoring.stage import RunPlan, StageOne

SUMS = "sums"
GRID = UNIT * FULL
"""Grid units of the sums in one unit of u at full weight."""

LINEAR, SQUARE = 0.8, 0.3
"""Factors of z and z² − 1 in u: squares have the larger norm and matter less."""
FARTHEST = 3.0
"""The largest |z|: a normal distribution exceeds it once in 740 records."""
_CLIP = 0.9  # of the norm of a typical record
_ONE_HOT = 0.6  # squared norm of a typical record in a discrete column


class NaiveBayes(Model, frozen=True):
    """Naive Bayes: columns are independent given the label. For few records."""

    name: ClassVar[str] = "naive-bayes"
    purposes: ClassVar[Mapping[str, str]] = {SUMS: "weighted sums by label"}

    def cautions(self, schema: Schema) -> tuple[str, ...]:
        if schema.label_column is not None or len(schema.learned) == 1:
            return ()
        return (
            f"without a label, {self.name} draws every column independently of all others; declare a label in the "
            "schema, or use the model mst",
        )

    def shares(self, schema: Schema) -> tuple[Share, ...]:
        return (Share(SUMS, 1.0),)

    def sensitivity(self, schema: Schema, name: str) -> float:
        """Return the clip in units of u; with equal influence it is smaller."""
        return round(_CLIP * _typical_norm(schema) * UNIT) / UNIT

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "NaiveBayesRelease":
        from repsynth.mechanism.meter import sigma_for

        hooks.on_step(SUMS)
        charge = plan.charges[SUMS]
        statistic = WeightedSums.of(stage, equalize=plan.rule.equalizes)
        sigma = sigma_for(statistic.sensitivity, charge.per_row)
        return NaiveBayesRelease(stage, statistic, meter.measure(statistic, mu=charge.mu), sigma)

    def load(self, stored: StoredModel) -> "NaiveBayesRelease":
        """Read the noisy sums from an untrusted file; the statistic follows from stage 1."""
        statistic = WeightedSums.of(stored.stage, equalize=stored.plan.rule.equalizes)
        noisy = ints(stored.arrays[SUMS], math.prod(statistic.shape), most=2**62)
        return NaiveBayesRelease(stored.stage, statistic, noisy, stored.sigmas[SUMS])


# --- the statistic -------------------------------------------------------------------------------------------


def part_of(histograms: Histograms, i: int) -> ColumnPart:
    """Return the entries of a column; a numeric one without special and missing values has moments only."""
    bins, missing = histograms.bins[i], histograms.missing_fraction(i)
    cells = len(histograms.probabilities[i]) + 1
    frequencies = np.append(histograms.probabilities[i] * (1 - missing), missing)
    if isinstance(bins.column, Numeric):
        groups = Groups(bins, _kinds(bins))
        z = np.append(normal_scores(frequencies[: bins.numbers]), np.full(cells - bins.numbers, np.nan))
        moments = np.nan_to_num(np.column_stack([LINEAR * z, SQUARE * (z * z - 1)]))
    else:
        own = np.append(np.arange(cells - 1), cells - 1 if bins.column.missing else NONE)
        groups = groups_of_families(histograms, i) or Groups(bins, own)
        moments = np.zeros((cells, 0))
    offset = groups.sum_up(frequencies) if (groups.of_bin != NONE).any() else np.zeros(0)
    return ColumnPart(groups, _whole(offset), _whole(moments))


def _kinds(bins: Bins) -> Ints:
    """Return the entry of each cell: 0 for numbers, then one for each special value and one for missing."""
    special, missing = bins.values - bins.numbers, bins.column.missing
    if not special and not missing:
        return np.full(bins.count, NONE)
    kinds = np.append(np.zeros(bins.numbers, dtype=np.int64), np.arange(1, special + 2))
    kinds[-1] = special + 1 if missing else NONE
    return kinds


def normal_scores(frequencies: Floats) -> Floats:
    """Return the normal score of the middle rank of each cell, with mean 0 and variance 1.

    >>> normal_scores(np.array([0.25, 0.5, 0.25])).round(2).tolist()
    [-1.41, 0.0, 1.41]
    """
    from scipy.special import ndtri

    mass = frequencies / max(float(frequencies.sum()), 1e-9)
    z = ndtri(np.clip(np.cumsum(mass) - mass / 2, 1e-4, 1 - 1e-4))
    z = z - mass @ z
    scaled: Floats = np.clip(z / max(math.sqrt(float(mass @ z**2)), 0.1), -FARTHEST, FARTHEST)
    return scaled


def _typical_norm(schema: Schema) -> float:
    """Return the approximate norm of u for a typical record, without the constant entry."""
    return math.sqrt(_ONE_HOT * len(schema.discrete) + (LINEAR**2 + 2 * SQUARE**2) * len(schema.numeric))


def _whole(values: Floats) -> Ints:
    return np.rint(values * UNIT).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class WeightedSums(LabelSums):
    """The statistic of stage 2: u with z and z² − 1 of each number."""

    positions: tuple[int, ...]  # of the parts among the learned columns
    label_position: int | None

    @classmethod
    def of(cls, stage: "StageOne", *, equalize: bool) -> "WeightedSums":
        """Return the statistic that follows from stage 1.

        The clip is nine tenths of the norm of a typical record. To `equalize`, it is the smallest norm of a record
        whose cells all have a declared value, and all others are scaled down to it.
        """
        schema, histograms = stage.schema, stage.histograms
        at = label_axis(stage)
        own = [i for i in range(len(histograms.bins)) if i != at]
        own.sort(key=lambda i: isinstance(histograms.bins[i].column, Numeric))  # discrete columns first
        parts = tuple(part_of(histograms, i) for i in own)
        typical = _typical_norm(schema) * UNIT
        constant, clip = round(CONSTANT * typical), round(_CLIP * typical)
        if equalize:
            declared = (part.squared_norms[: None if part.groups.bins.column.missing else -1] for part in parts)
            clip = math.isqrt(constant**2 + sum(int(norms.min()) for norms in declared))
        label = None
        if at is not None:
            label = Groups(histograms.bins[at], np.append(np.arange(histograms.bins[at].values), NONE))
        return cls(
            parts=parts,
            label=label,
            constant=constant,
            clip=clip,
            score=stage.score,
            weights=stage.weights,
            name=SUMS,
            positions=tuple(own),
            label_position=at,
        )


# --- what was measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NaiveBayesRelease:
    """The statistic and its noisy sums; `sigma` is in grid units. `sampler` is the fitted model."""

    stage: "StageOne"
    statistic: WeightedSums
    noisy: Ints
    sigma: float

    @cached_property
    def sums(self) -> Floats:
        """The noisy sums in units of u: (labels, entries)."""
        sums: Floats = self.noisy.reshape(self.statistic.shape) / GRID
        return sums

    def kernels(self, *, choices: bool = True) -> dict[str, WeightedSums]:
        return {SUMS: self.statistic}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return the norms in units of u."""
        return self.statistic.norms(records)

    def label_masses(self) -> tuple[Floats, float] | None:
        """Return the masses from the sums of the constant entry of u, which clipping reduces."""
        if self.statistic.label is None:
            return None
        return self.statistic.masses(self.noisy), self.sigma / self.statistic.mass_unit

    def errors(self) -> ModelErrors:
        """Return the tables of the label and each discrete column, with their standard errors."""
        masses = self.label_masses()
        if masses is None or self.statistic.label is None:
            return ModelErrors()
        mass, of_mass = np.maximum(masses[0], 1.0)[:, None], masses[1]
        tables, start = [], 1
        for part in self.statistic.parts:
            q, entries = part.offset / UNIT, slice(start, start + len(part.offset))
            start += len(q)
            if not part.moments.size:
                label = self.statistic.label.bins.column.name
                names, counts = (label, part.groups.bins.column.name), self.sums[:, entries] + mass * q
                variances = np.broadcast_to((self.sigma / GRID) ** 2 + (of_mass * q) ** 2, counts.shape)
                tables.append(table_errors(names, SUMS, counts, variances, clipped=True))
        return ModelErrors(tuple(tables), ())

    @cached_property
    def sampler(self) -> "NaiveBayesSampler":
        return fit_naive_bayes(self.stage, self.statistic, self.sums, (self.sigma / GRID) ** 2)

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        return {}, {SUMS: self.noisy}


# --- the model that follows ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NaiveBayesSampler:
    """The fitted model: a probability for each label and, by label, a distribution over each column's cells."""

    schema: Schema
    histograms: Histograms
    label_probabilities: Floats  # (labels,)
    columns: tuple[Shape, ...]

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The label with each other column."""
        label, noise = self.schema.label, self.histograms.sigma
        return pairs_with_label(choose_groups(self.histograms, label, most=32, noise=noise), label)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Draw records by systematic sampling, so that frequencies come out as fitted."""
        given = np.full(rows, label or 0, dtype=np.int64)
        if label is None and len(self.label_probabilities) > 1:
            given = systematic(self.label_probabilities, rows, generator)
        return self._draw(given, generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the label from its exact conditional probabilities, then the other columns that are not given."""
        label = self.schema.label_column
        with np.errstate(divide="ignore"):
            logs = np.log(np.tile(self.label_probabilities, (given.rows, 1)))
            if label is not None and label.name in given.codes:
                logs = np.where(given.codes[label.name][:, None] == np.arange(logs.shape[1]), 0.0, -np.inf)
            for shape in self.columns:
                if (name := shape.bins.column.name) in given.codes:
                    logs = logs + np.log(_likelihoods(shape)[:, shape.bins.of_codes(given.codes[name])].T)
        largest = logs.max(axis=1)
        possible = np.isfinite(largest)
        masses = np.exp(logs - np.where(possible, largest, 0.0)[:, None])
        drawn = self._draw(draw_each(np.where(possible[:, None], masses, 1.0), generator), generator)
        return Completed.exactly(with_given(drawn, given), possible)

    def _draw(self, given: Ints, generator: np.random.Generator) -> Records:
        label = self.schema.label_column
        codes = {label.name: given} if label else {}
        for shape in self.columns:
            line = SortedRecords.of(given, shape.rows, generator)
            codes[shape.bins.column.name] = line.put(shape.along(line, generator))
        return Records(rows=len(given), codes=codes)


def _likelihoods(shape: Shape) -> Floats:
    """Return the likelihood of each cell, (labels, cells).

    A cell of numbers that is never drawn has the likelihood of the nearest cell that is.
    """
    table = shape.probabilities.copy()
    if isinstance(shape.bins.column, Numeric):
        numbers = shape.bins.numbers
        full = np.flatnonzero(table[:, :numbers].any(axis=0))
        if full.size:
            nearest = np.searchsorted((full[1:] + full[:-1]) / 2, np.arange(numbers))
            table[:, :numbers] = table[:, full[nearest]]
    return table


def fit_naive_bayes(
    stage: "StageOne", statistic: WeightedSums, sums: Floats, variance: float
) -> NaiveBayesSampler:
    """Fit the model to noisy sums in units of u, (labels, entries); `variance` is that of an entry's noise."""
    histograms, parts = stage.histograms, statistic.parts
    mass, error = sums[:, 0] * UNIT / statistic.constant, math.sqrt(variance) * UNIT / statistic.constant
    total = max(float(mass.sum()), error)
    # Means are divided by a label's fraction. Add a standard error, so that noise does not make it tiny.
    fractions = np.maximum(mass, 0.0) + error
    means = _Means(fractions / fractions.sum(), total, variance)

    widths = np.array([len(part.offset) for part in parts], dtype=np.int64)
    numbers = sum(part.moments.shape[1] > 0 for part in parts)
    one_hot, linear, square = np.split(sums[:, 1:], [widths.sum(), widths.sum() + numbers], axis=1)
    known = (histograms.sigma * total / histograms.rows) ** 2
    one_hot = means.of(one_hot, np.repeat(np.arange(len(widths)), widths), known)
    centres = np.clip(means.of(linear, np.arange(numbers)) / LINEAR, -FARTHEST, FARTHEST)
    squares = means.of(square, np.arange(numbers)) / SQUARE
    deviations = np.sqrt(np.clip(1 + squares - centres**2, FARTHEST**-2, FARTHEST**2))

    probabilities, columns, j = np.ones(1), [], 0
    if statistic.label_position is not None:
        probabilities = histograms.probabilities[statistic.label_position]
    split = np.split(one_hot, np.cumsum(widths)[:-1], axis=1)
    for i, part, entries in zip(statistic.positions, parts, split, strict=True):
        by_label = to_simplex(entries + part.offset / UNIT) if len(part.offset) else np.ones((len(mass), 1))
        if not part.moments.size:
            levels, of_bin = np.maximum(histograms.levels(i), 1e-9), part.groups.of_bin
            within = (
                levels / part.groups.sum_up(levels)[of_bin]
            )  # the distribution inside a group is that of all labels
            cells = np.where(of_bin == NONE, 0.0, by_label[:, of_bin] * within)
        else:
            bins, frequencies = part.groups.bins, histograms.probabilities[i]
            z = centres[:, j], deviations[:, j]
            cells, j = _cells_of_numbers(bins, frequencies, probabilities, by_label, *z), j + 1
        columns.append(Shape.of(part.groups.bins, cells))
    return NaiveBayesSampler(stage.schema, histograms, probabilities, tuple(columns))


@dataclass(frozen=True)
class _Means:
    """Means of entries of u by label, from noisy sums.

    A sum is split into a part common to all labels and the label's difference from it. Both are shrunk by one
    James-Stein factor per column.
    """

    fractions: Floats  # of the labels
    total: float
    variance: float

    def of(self, block: Floats, columns: Ints, known: float | None = None) -> Floats:
        """Return (labels, entries); `columns` says to which column each entry belongs.

        With `known`, stage 1 says that the common part is 0, with this variance. The two estimates are combined by
        precision. A common part beyond both noises is due to weights and clipping, and is shrunk further.
        """
        labels, sums = len(self.fractions), block.sum(axis=0)
        seen, noise = _mean_squares(sums[None], columns), labels * self.variance
        common = sums * np.maximum(1 - noise / seen, 0.0)
        difference = block - sums / labels + np.outer(1 / labels - self.fractions, common)
        if known is not None:
            common = sums * known / np.maximum(seen, known + noise)
        noise = (1 - 1 / labels) * self.variance
        difference = difference * np.maximum(1 - noise / _mean_squares(difference, columns), 0.0)
        means: Floats = common / self.total + difference / (self.fractions[:, None] * self.total)
        return means


def _mean_squares(values: Floats, columns: Ints) -> Floats:
    """Return for each entry the mean square of all values (rows, entries) of its column.

    >>> _mean_squares(np.array([[3.0, 4.0, 5.0]]), np.array([0, 0, 1])).tolist()
    [12.5, 12.5, 25.0]
    """
    means = np.bincount(columns, (values**2).mean(axis=0)) / np.maximum(np.bincount(columns), 1)
    return np.maximum(means, 1e-300)[columns]


def _cells_of_numbers(
    bins: Bins, frequencies: Floats, probabilities: Floats, kinds: Floats, centres: Floats, deviations: Floats
) -> Floats:
    """Return (labels, cells) of a numeric column.

    z is normal given the label. Its ranks over all labels are the ranks of the numbers, so all labels together
    follow the histogram. `kinds` holds the fractions of numbers, special values and missing.
    """
    from scipy.special import ndtr

    count = bins.numbers
    numbers = frequencies[:count]
    numbers = numbers if numbers.any() else bins.widths.astype(np.float64)
    z = np.linspace((centres - 6 * deviations).min(), (centres + 6 * deviations).max(), 4096)
    weights = np.maximum(probabilities * kinds[:, 0], 1e-300)
    below = ndtr((z - centres[:, None]) / deviations[:, None])
    ends = np.interp(np.cumsum(numbers) / numbers.sum(), weights / weights.sum() @ below, z)
    inside = np.diff(ndtr((ends - centres[:, None]) / deviations[:, None]), axis=1, prepend=0.0)
    inside = np.where(numbers > 0, np.maximum(inside, 0.0), 0.0)
    inside = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1e-300)
    cells = np.zeros((len(kinds), len(frequencies) + 1))
    cells[:, :count] = kinds[:, :1] * inside
    cells[:, count : count + kinds.shape[1] - 1] = kinds[:, 1:]
    return cells
