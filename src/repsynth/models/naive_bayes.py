"""Conditional Gaussian naive Bayes from weighted clipped statistics: instantiation A of REPS.

A record with label y contributes its weight times

    e_y ⊗ clip(u, C),   u = [ a | one-hot − q, per column | 0.8 z, per number | 0.3 (z² − 1), per number ]

to the sums of stage 2. q are the released frequencies of stage 1. A discrete column has an entry for each value. A
numeric column that declares special or missing values has one for numbers, one for each special value and one for
missing. z is the normal score of a number's rank in the released histogram. So stage 2 measures differences from
what stage 1 knows, and a record needs only a small norm. Sums are exact integers: u in units of 1/1024, weight
times clip factor in units of 1/4096, rounded down.

All that follows is post-processing. Columns are drawn independently given the label. z decides how a label's
numbers rank among all numbers; the numbers themselves follow the column's histogram.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms, to_simplex
from repsynth.columns.cells import Bins
from repsynth.columns.groups import NONE, Groups, choose_groups, groups_of_families, pairs_with_label
from repsynth.columns.quotas import Line, systematic
from repsynth.columns.value_sampler import Shape
from repsynth.data.records import MISSING, Records
from repsynth.models.base import Hooks, Kept, Made, Model, Share
from repsynth.models.clipping import clipped
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.uncertainty import ModelErrors, table_errors
from repsynth.schema import Discrete, Numeric, Schema
from repsynth.scoring.weights import FULL, WeightFunction
from repsynth.storage import ints

if TYPE_CHECKING:
    from repsynth.mechanism.meter import Meter
    from repsynth.scoring.base import Score
    from repsynth.scoring.stage import RunPlan, StageOne

SUMS = "sums"
UNIT = 2**10
GRID = UNIT * FULL
"""Grid units of the sums in one unit of u at full weight."""

LINEAR, SQUARE = 0.8, 0.3
"""Factors of z and z² − 1 in u: squares have the larger norm and matter less."""
FARTHEST = 3.0
"""The largest z: one record in 740 of a normal distribution lies beyond."""
_CONSTANT, _CLIP = 0.3, 0.9  # of the norm of a typical record
_ONE_HOT = 0.6  # squared norm of a typical record in a discrete column
_LEAST_VARIANCE = 0.1  # of a label's z
_PLACES = 4096  # of z at which ranks are worked out


class NaiveBayes(Model, frozen=True):
    """Columns that are independent given the label: for few records."""

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

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "NaiveBayesFit":
        from repsynth.mechanism.meter import sigma_for

        hooks.on_step(SUMS)
        charge = plan.charges[SUMS]
        statistic = WeightedSums.of(stage, equalize=plan.rule.equalizes)
        sigma = sigma_for(statistic.sensitivity, charge.per_row)
        return NaiveBayesFit(stage, statistic, meter.measure(statistic, mu=charge.mu), sigma)

    def load(self, kept: Kept) -> "NaiveBayesFit":
        """Return the fit from an untrusted file; the statistic follows from stage 1."""
        statistic = WeightedSums.of(kept.stage, equalize=kept.plan.rule.equalizes)
        noisy = ints(kept.arrays[SUMS], math.prod(statistic.shape), most=2**62)
        return NaiveBayesFit(kept.stage, statistic, noisy, kept.sigmas[SUMS])


# --- the statistic -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The entries of u that belong to one column.

    `groups` assigns an entry to each cell, or NONE. `offset` is q in units of 1/UNIT; it is empty for a numeric
    column without special and missing values. `moments` holds 0.8 z and 0.3 (z² − 1) of each cell in units of
    1/UNIT: zeros for a cell that holds no number, no columns for a discrete column.
    """

    groups: Groups
    offset: Ints  # (entries,)
    moments: Ints  # (cells, 0 or 2)

    @classmethod
    def of(cls, histograms: Histograms, i: int) -> "Part":
        bins = histograms.bins[i]
        missing = histograms.missing_fraction(i)
        frequencies = np.append(histograms.probabilities[i] * (1 - missing), missing)
        if isinstance(bins.column, Numeric):
            groups = Groups(bins, _kinds(bins))
            z = np.append(normal_scores(frequencies[: bins.numbers]), np.full(bins.count - bins.numbers, np.nan))
            moments = np.nan_to_num(np.column_stack([LINEAR * z, SQUARE * (z * z - 1)]))
        else:
            own = np.append(np.arange(bins.values), bins.values if bins.column.missing else NONE)
            groups = groups_of_families(histograms, i) or Groups(bins, own)
            moments = np.zeros((bins.count, 0))
        offset = groups.sum_up(frequencies) if (groups.of_bin != NONE).any() else np.zeros(0)
        return cls(groups, _whole(offset), _whole(moments))

    @property
    def column(self) -> Discrete | Numeric:
        return self.groups.bins.column

    @cached_property
    def squared_norms(self) -> Ints:
        """The squared norm of each cell's entries."""
        one_hot = np.append(UNIT**2 - 2 * UNIT * self.offset + int(self.offset @ self.offset), 0)
        squared: Ints = one_hot[self.groups.of_bin] + (self.moments**2).sum(axis=1)
        return squared

    def squared_norm(self, records: Records) -> Ints:
        return records.look_up(self.column.name, self._squared_norm_of_codes, self.groups.bins.starts)

    def _squared_norm_of_codes(self, codes: Ints) -> Ints:
        return self.squared_norms[self.groups.bins.of_codes(codes)]

    def sums(self, records: Records, group: Ints, groups: int, factor: Floats) -> tuple[Floats, Floats]:
        """Return Σ factor · entries by group of records: the one-hot entries and the moments.

        These are floats that hold whole numbers below 2⁵³, so they are exact.
        """
        cell, width = self.groups.bins.of(records), len(self.offset) + 1
        entry = np.where(self.groups.of_bin == NONE, width - 1, self.groups.of_bin).take(cell)
        counts = np.bincount(group * width + entry, factor, minlength=groups * width).reshape(groups, width)[
            :, :-1
        ]
        one_hot = UNIT * counts - counts.sum(axis=1, keepdims=True) * self.offset
        moments = np.zeros((groups, self.moments.shape[1]))
        for k, each in enumerate(self.moments.T):
            moments[:, k] = np.bincount(group, factor * each.take(cell), minlength=groups)
        return one_hot, moments


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
    """Return the norm of u of an ordinary record, without the constant."""
    return math.sqrt(_ONE_HOT * len(schema.discrete) + (LINEAR**2 + 2 * SQUARE**2) * len(schema.numeric))


def _whole(values: Floats) -> Ints:
    return np.rint(values * UNIT).astype(np.int64)


@dataclass(frozen=True)
class WeightedSums:
    """The statistic of stage 2. A record without a label contributes nothing.

    `constant` and `clip` are in units of 1/UNIT.
    """

    parts: tuple[Part, ...]
    constant: int
    clip: int
    score: "Score"
    weights: WeightFunction
    label: Discrete | None
    name: str = SUMS
    unit: int = GRID
    weighted: bool = True

    @classmethod
    def of(cls, stage: "StageOne", *, equalize: bool) -> "WeightedSums":
        """Return the statistic that follows from stage 1.

        The clip is nine tenths of the norm of a typical record. To `equalize`, it is the smallest norm of a record
        whose cells all have a declared value, and all others are scaled down to it.
        """
        schema = stage.schema
        order = [schema.learned.index(column) for column in (*schema.discrete, *schema.numeric)]
        parts = tuple(Part.of(stage.histograms, i) for i in order)
        typical = _typical_norm(schema) * UNIT
        constant, clip = round(_CONSTANT * typical), round(_CLIP * typical)
        if equalize:
            smallest = sum(int(part.squared_norms[: None if part.column.missing else -1].min()) for part in parts)
            clip = math.isqrt(constant**2 + smallest)
        return cls(parts, constant, clip, stage.score, stage.weights, schema.label_column)

    @property
    def labels(self) -> int:
        """The number of labels; 1 where the schema names none."""
        return self.label.size if self.label else 1

    @cached_property
    def widths(self) -> Ints:
        """The number of one-hot entries of each column."""
        return np.array([len(part.offset) for part in self.parts], dtype=np.int64)

    @property
    def shape(self) -> tuple[int, int]:
        """Labels, entries of u."""
        return self.labels, 1 + sum(len(part.offset) + part.moments.shape[1] for part in self.parts)

    @property
    def sensitivity(self) -> float:
        """The clip at full weight, in grid units."""
        return float(self.clip * FULL)

    def total(self, records: Records) -> Ints:
        """Return the weighted sums of all labels, flattened from `shape`."""
        group, multiplier = self._placed(records)
        return self._sums(records, group, self.labels, multiplier).ravel()

    def each(self, records: Records) -> Ints:
        """Return what each record adds to the total: (records, entries)."""
        group, multiplier = self._placed(records)
        own = np.arange(records.rows)
        placed = np.zeros((records.rows, *self.shape), dtype=np.int64)
        placed[own, group] = self._sums(records, own, records.rows, multiplier)
        return placed.reshape(records.rows, -1)

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return ‖u‖ of each record before and after clipping, in units of u."""
        norms: Floats = np.sqrt(self.squared_norm(records)) / UNIT
        return norms, np.minimum(norms, self.clip / UNIT)

    def squared_norm(self, records: Records) -> Ints:
        """Return ‖u‖² of each record before clipping, exact, in units of 1/UNIT²."""
        total = np.full(records.rows, self.constant**2, dtype=np.int64)
        for part in self.parts:
            total += part.squared_norm(records)
        return total

    def _sums(self, records: Records, group: Ints, groups: int, multiplier: Ints) -> Ints:
        factor = multiplier.astype(np.float64)
        mass = np.bincount(group, factor, minlength=groups)
        found = [part.sums(records, group, groups, factor) for part in self.parts]
        moments = [moments for _, moments in found if moments.shape[1]]
        entries = [
            self.constant * mass[:, None],
            *(one_hot for one_hot, _ in found),
            *(moment[:, k, None] for k in (0, 1) for moment in moments),
        ]
        return np.concatenate(entries, axis=1).astype(np.int64)

    def _placed(self, records: Records) -> tuple[Ints, Ints]:
        """Return the label whose sum each record enters, and its multiplier."""
        multiplier = self._multiplier(records, self.score.of(records))
        if self.label is None:
            return np.zeros(records.rows, dtype=np.int64), multiplier
        codes = records.codes[self.label.name]
        return np.maximum(codes, 0), np.where(codes == MISSING, 0, multiplier)

    def _multiplier(self, records: Records, scores: Ints) -> Ints:
        """Return weight times clip factor in units of 1/FULL, rounded down, so that no norm grows."""
        return clipped(self.weights.of(scores), self.squared_norm(records), self.clip)


# --- what was measured ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NaiveBayesFit:
    """The public function of a record that was summed up, and the noisy result (`sigma` in grid units)."""

    stage: "StageOne"
    statistic: WeightedSums
    noisy: Ints
    sigma: float

    @property
    def sums(self) -> Floats:
        """The noisy sums in units of u: (labels, entries)."""
        sums: Floats = self.noisy.reshape(self.statistic.shape) / GRID
        return sums

    def kernels(self, *, choices: bool = True) -> dict[str, WeightedSums]:
        return {SUMS: self.statistic}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """In units of u."""
        return self.statistic.norms(records)

    def label_masses(self) -> tuple[Floats, float] | None:
        """From the constant entry of u: a clipped record counts for as much less."""
        if self.statistic.label is None:
            return None
        unit = self.statistic.constant / UNIT
        return self.sums[:, 0] / unit, self.sigma / GRID / unit

    def errors(self) -> ModelErrors:
        """Return the tables of label and discrete column that the sums hold, with their standard errors."""
        masses = self.label_masses()
        if masses is None or self.statistic.label is None:
            return ModelErrors()
        mass, of_mass = np.maximum(masses[0], 1.0)[:, None], masses[1]
        tables, start = [], 1
        for part in self.statistic.parts:
            q, entries = part.offset / UNIT, slice(start, start + len(part.offset))
            start += len(q)
            if isinstance(part.column, Discrete):
                names, counts = (self.statistic.label.name, part.column.name), self.sums[:, entries] + mass * q
                variances = np.broadcast_to((self.sigma / GRID) ** 2 + (of_mass * q) ** 2, counts.shape)
                tables.append(table_errors(names, SUMS, counts, variances, clipped=True))
        return ModelErrors(tuple(tables), ())

    def sampler(self) -> "NaiveBayesSampler":
        return fit_naive_bayes(
            self.stage.schema, self.stage.histograms, self.statistic, self.sums, (self.sigma / GRID) ** 2
        )

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
        """Draw the columns that are not given by the label's exact probabilities given the others."""
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
            line = Line.of(given, shape.rows, generator)
            codes[shape.bins.column.name] = line.put(shape.along(line, generator))
        return Records(rows=len(given), codes=codes)


def _likelihoods(shape: Shape) -> Floats:
    """Return (labels, cells); a cell of numbers that is never drawn has those of the nearest one that is."""
    table = shape.probabilities.copy()
    if isinstance(shape.bins.column, Numeric):
        numbers = shape.bins.numbers
        full = np.flatnonzero(table[:, :numbers].any(axis=0))
        if full.size:
            nearest = np.searchsorted((full[1:] + full[:-1]) / 2, np.arange(numbers))
            table[:, :numbers] = table[:, full[nearest]]
    return table


def fit_naive_bayes(
    schema: Schema, histograms: Histograms, statistic: WeightedSums, sums: Floats, variance: float
) -> NaiveBayesSampler:
    """Fit the model to noisy sums in units of u, (labels, entries); `variance` is that of an entry's noise."""
    mass, error = sums[:, 0] * UNIT / statistic.constant, math.sqrt(variance) * UNIT / statistic.constant
    total = max(float(mass.sum()), error)
    # Means are divided by a label's fraction. One standard error more keeps noise from making it tiny.
    fractions = np.maximum(mass, 0.0) + error
    fractions = fractions / fractions.sum()
    means = _Means(fractions, total, variance)

    widths, numbers = statistic.widths, len(schema.numeric)
    one_hot, linear, square = np.split(sums[:, 1:], [widths.sum(), widths.sum() + numbers], axis=1)
    known = (histograms.sigma * total / histograms.rows) ** 2
    one_hot = means.of(one_hot, np.repeat(np.arange(len(widths)), widths), known)
    centres = np.clip(means.of(linear, np.arange(numbers)) / LINEAR, -FARTHEST, FARTHEST)
    squares = means.of(square, np.arange(numbers)) / SQUARE
    deviations = np.sqrt(np.clip(1 + squares - centres**2, _LEAST_VARIANCE, FARTHEST**2))

    probabilities = np.ones(1)
    if schema.label_column is not None:
        probabilities = histograms.probabilities[schema.learned.index(schema.label_column)]
    columns = []
    for part, entries in zip(statistic.parts, np.split(one_hot, np.cumsum(widths)[:-1], axis=1), strict=True):
        by_label = to_simplex(entries + part.offset / UNIT) if len(part.offset) else np.ones((len(mass), 1))
        i = schema.learned.index(part.column)
        if isinstance(part.column, Discrete):
            levels, of_bin = np.maximum(histograms.levels(i), 1e-9), part.groups.of_bin
            within = levels / part.groups.sum_up(levels)[of_bin]  # what a group holds is spread as in all records
            cells = np.where(of_bin == NONE, 0.0, by_label[:, of_bin] * within)
        else:
            j = schema.numeric.index(part.column)
            cells = _cells_of_numbers(histograms, i, probabilities, by_label, centres[:, j], deviations[:, j])
        columns.append(Shape.of(part.groups.bins, cells))
    return NaiveBayesSampler(schema, histograms, probabilities, tuple(columns))


@dataclass(frozen=True)
class _Means:
    """Means of entries of u by label, from noisy sums.

    Sums are divided into what all labels have in common and each label's difference from it, which are both shrunk
    by one James-Stein factor per column.
    """

    fractions: Floats  # of the labels
    total: float
    variance: float

    def of(self, block: Floats, columns: Ints, known: float | None = None) -> Floats:
        """Return (labels, entries); `columns` says to which column each entry belongs.

        `known` is the variance with which stage 1 knows that the common part is 0. The two are then combined by
        precision; what exceeds both noises was made by weights and clipping, and is left out.
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
    histograms: Histograms, i: int, probabilities: Floats, kinds: Floats, centres: Floats, deviations: Floats
) -> Floats:
    """Return (labels, cells) of a numeric column.

    z is normal given the label. The numbers of a label get the ranks among all numbers that their z have, so that
    all labels together follow the histogram. `kinds` holds the fractions of numbers, special values and missing.
    """
    from scipy.special import ndtr

    bins = histograms.bins[i]
    numbers = histograms.probabilities[i][: bins.numbers]
    numbers = numbers if numbers.any() else bins.widths.astype(np.float64)
    z = np.linspace((centres - 6 * deviations).min(), (centres + 6 * deviations).max(), _PLACES)
    weights = np.maximum(probabilities * kinds[:, 0], 1e-300)
    below = ndtr((z - centres[:, None]) / deviations[:, None])
    ends = np.interp(np.cumsum(numbers) / numbers.sum(), weights / weights.sum() @ below, z)
    inside = np.diff(ndtr((ends - centres[:, None]) / deviations[:, None]), axis=1, prepend=0.0)
    inside = np.where(numbers > 0, np.maximum(inside, 0.0), 0.0)
    inside = inside / np.maximum(inside.sum(axis=1, keepdims=True), 1e-300)
    cells = np.zeros((len(kinds), bins.count))
    cells[:, : bins.numbers] = kinds[:, :1] * inside
    cells[:, bins.numbers : bins.numbers + kinds.shape[1] - 1] = kinds[:, 1:]
    return cells
