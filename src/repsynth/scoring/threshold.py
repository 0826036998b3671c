"""The threshold above which records are outliers, from a noisy histogram of the scores.

The histogram is measured and charged, and it is the public picture of who is at risk. The requested fraction of
the records is above the threshold.

With many records the threshold is read off the noisy counts; the bins have a fixed width. With few records it is
fitted: the bins are quantiles of the scores of records drawn from the released histograms, and the real
distribution is assumed to be theirs, shifted and stretched on the logit scale.

Values that predict the label are often rare, so a single threshold would put most of a rare label above it and
weaken the signal. Where the noise allows, the histogram has a row for each label, at the same charge, and each
label has its own threshold. The scores of a label are shifted, so that one number is the threshold of all labels.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit, logit

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import MOST_CELLS
from repsynth.io.records import MISSING, Records
from repsynth.io.values import Cut
from repsynth.schema import Discrete
from repsynth.scoring.base import NAT, Score
from repsynth.scoring.weights import FULL, Rule, WeightFunction, make_weights

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic
    from repsynth.scoring.rarity import SumTails

READABLE = 200.0
"""From this many records on, in units of a bin's noise, counts are read: noise moves the fraction by about .03."""

FEW = READABLE / 4
"""From this many records on, in units of a bin's noise, a label has its own threshold."""

MOST_BINS = MOST_CELLS
"""The largest number of bins of a histogram that is read; the guarantee uses the noise of all of them together."""

CAP = 1 / 3
"""The highest scores are outliers for every label: this part of the fraction."""

_LABELS = READABLE / 10  # labels have rows from this mean number of records on, in units of a bin's noise
_DRAWN = 20_000  # records drawn from the histograms: sampling moves a fraction by .003
_ABOVE = np.array([0.9, 0.7, 0.5, 0.3, 0.15, 0.05])  # drawn fractions above the edges of a histogram to fit
_SHIFT_SD, _STRETCH_SD = 1.0, 0.3  # prior of the fit: shift in logits, log stretch


@dataclass(frozen=True)
class ScoreHistogram:
    """The statistic: each record adds one to the bin of its score.

    The `edges` separate the bins; the first and the last bin are unbounded. With a `label`, every label has its
    own row of bins, and there is one more row for records whose label cannot be read.
    """

    score: Score
    edges: Ints
    label: Discrete | None = None
    name: str = "scores"
    sensitivity: float = 1.0
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        """Return the counts, label by label."""
        count, bins = len(self.edges) + 1, self._cut.of(self.score.of(records)) + 1
        if self.label is None:
            return np.bincount(bins, minlength=count)
        return np.bincount(row_of(records, self.label) * count + bins, minlength=count * rows_of(self.label))

    @cached_property
    def _cut(self) -> Cut:
        return Cut.at(self.edges, self.edges)


def row_of(records: Records, label: Discrete) -> Ints:
    """Return the row of each record in a histogram by label: the last one if the label cannot be read."""
    codes = records.codes[label.name]
    return np.where(codes == MISSING, label.size, codes)


def rows_of(label: Discrete) -> int:
    """Return the number of rows of a histogram by label.

    >>> from repsynth.schema import Boolean
    >>> rows_of(Boolean(name="smoker"))
    3
    """
    return label.size + 1


@dataclass(frozen=True)
class Threshold:
    """A released threshold, the noisy histogram behind it, and the fraction of records at or above it.

    `counts` has one row, or one per label. With one per label, `shifts` is added to the scores of each label, so
    that `value` is the threshold of all labels. `fraction_error` is the standard deviation of the fraction due to
    noise.
    """

    value: int
    edges: Ints
    counts: Ints  # (rows, bins)
    fraction: float
    fraction_error: float
    shifts: Ints | None = None

    def moved_edges(self, row: int) -> Ints:
        """Return the edges of a row's bins with the shift of its scores."""
        return self.edges if self.shifts is None else self.edges + self.shifts[row]

    def mean_weight(self, weights: WeightFunction) -> float:
        """Estimate the mean weight of the records at or above the threshold.

        Counts are assumed to fall with the score (isotonic regression). With counts cut off at zero bin by bin,
        the noise of empty bins would look like many records of small weight.
        """
        from scipy.optimize import isotonic_regression  # the command line starts without it

        records = weighted = 0.0
        for row, noisy in enumerate(self.counts):
            edges = self.moved_edges(row)
            starts, ends = np.maximum(edges, self.value), np.append(edges[1:], 2 * edges[-1] - edges[0])
            above = ends > self.value
            if above.any():
                falling = isotonic_regression(noisy[1:][above].astype(np.float64), increasing=False).x
                counts = np.maximum(falling, 0.0)
                records += float(counts.sum())
                weighted += float(counts @ weights.of((starts + ends)[above] // 2)) / FULL
        return weighted / records if records else float(weights.of(np.array([self.value]))[0]) / FULL


def lost_mass(threshold: Threshold, weights: WeightFunction) -> float:
    """Estimate 1 − mean weight from the released histogram of the scores: post-processing.

    The fraction above the threshold is the requested one, or that of the noisy histogram if it is clearly larger.
    It can be larger if labels have their own thresholds or many records share a score.
    """
    above = sum(
        _above(threshold.moved_edges(row), counts.astype(np.float64), threshold.value)
        for row, counts in enumerate(threshold.counts)
    )
    counted = min(max(above / max(float(threshold.counts.sum()), 1.0), 0.0), 1.0)
    more = counted > threshold.fraction + 2 * threshold.fraction_error
    fraction = counted if more else threshold.fraction
    return fraction * (1 - threshold.mean_weight(weights))


def solve_rule(rule: Rule, threshold: Threshold, *, lowest: int, most: float) -> Rule:
    """Return the strongest rule of this kind whose estimated lost mass is at most `most`.

    >>> from repsynth.scoring.weights import Targeted
    >>> edges, counts = np.array([0, 1, 2]) * NAT, np.array([[0, 600, 300, 100]])
    >>> threshold = Threshold(NAT, edges, counts, fraction=0.4, fraction_error=0.01)
    >>> round(solve_rule(Targeted(), threshold, lowest=0, most=0.1).outlier_weight, 3)
    0.75
    """

    def lost(strength: float) -> float:
        made = rule.of_strength(strength)
        return lost_mass(threshold, make_weights(made, threshold=threshold.value, lowest=lowest))

    low, high = 0.0, 1.0
    if lost(high) <= most:
        return rule.of_strength(high)
    for _ in range(40):  # bisection, to 2⁻⁴⁰; the feasible side is returned
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) <= most else (low, middle)
    return rule.of_strength(low)


def _above(edges: Ints, counts: Floats, value: int) -> float:
    """Return the noisy number of records at or above a score; its own bin is divided by width."""
    starts, ends = edges[:-1], edges[1:]
    part = np.clip((ends - np.maximum(starts, value)) / np.maximum(ends - starts, 1), 0.0, 1.0)
    return float(part @ counts[1:-1] + counts[-1])  # the last bin has no end


@dataclass(frozen=True)
class ShiftedScore:
    """A score plus the released shift of its record's label."""

    score: Score
    label: Discrete
    shifts: Ints

    @property
    def columns(self) -> int:
        return self.score.columns

    @property
    def lowest(self) -> int:
        return self.score.lowest + min(int(self.shifts.min()), 0)

    def of(self, records: Records) -> Ints:
        moved: Ints = self.score.of(records) + self.shifts[row_of(records, self.label)]
        return moved

    def tails(self, exact: Histograms, most: float = 1.0) -> "SumTails | None":
        """Return the bounds of the score without the shift, which depends on other noise."""
        return self.score.tails(exact, most)

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        return self.score.kernels()

    def dump(self) -> Arrays:
        """Return the arrays of the score; the threshold keeps the shifts."""
        return self.score.dump()


def with_threshold(score: Score, threshold: Threshold | None, label: Discrete | None) -> Score:
    """Return the score, shifted where each label has its own threshold."""
    if threshold is None or threshold.shifts is None or label is None:
        return score
    return ShiftedScore(score, label, threshold.shifts)


@dataclass(frozen=True)
class ScoreBins:
    """The edges of the score histogram, whether counts are read or fitted, and the label of its rows."""

    edges: Ints
    readable: bool
    label: Discrete | None = None

    def threshold(self, counts: Ints, *, fraction: float, rows: float, sigma: float) -> Threshold:
        """Return the threshold with this `fraction` of the records above it: post-processing."""
        if self.label is not None:
            by_row = counts.reshape(rows_of(self.label), -1)
            if self.readable:
                return by_label(self.edges, by_row, fraction=fraction, sigma=sigma)
            return _fit_by_label(self.edges, by_row, fraction=fraction, rows=rows, sigma=sigma)
        noisy = counts.astype(np.float64)
        if self.readable:
            value, error = _read(self.edges, noisy, fraction=fraction, rows=rows, sigma=sigma)
        else:
            fit = _Fit.of(noisy, rows=rows, sigma=sigma)
            value, error = fit.value(self.edges, fraction), fit.error(fraction)
        return Threshold(value, self.edges, counts[None], fraction, error)


def choose_score_bins(
    score: Score, histograms: Histograms, *, sigma: float, label: Discrete | None = None
) -> ScoreBins:
    """Choose the bins for the noise `sigma`, from the released histograms: post-processing.

    If counts are read, edges are multiples of a step that depends on the number of columns alone, from the lowest
    possible score on. Drawn records have independent columns, so real scores spread wider. Therefore the edges
    reach twice as far above the median.
    """
    # The seed is fixed, so a release always has the same edges.
    drawn = score.of(histograms.draw(_DRAWN, np.random.default_rng(0)))
    signal = histograms.rows / sigma
    if not _tells_labels(label, signal):
        label = None
    if signal < READABLE:
        edges = np.quantile(drawn, 1 - _ABOVE).astype(np.int64)
        return ScoreBins(_apart(edges), readable=False, label=label)
    middle, high = np.quantile(drawn, [0.5, 0.999])
    step = bin_width(score.columns)
    first, last = math.floor(score.lowest / step), math.ceil((2 * high - middle) / step)
    last = int(np.clip(last, first + 1, first + MOST_BINS - 2))
    return ScoreBins(np.arange(first, last + 1, dtype=np.int64) * step, readable=True, label=label)


def _tells_labels(label: Discrete | None, signal: float) -> bool:
    """Return whether a histogram by label is possible with this many records, in units of a bin's noise."""
    return label is not None and signal >= _LABELS * label.size


def _apart(edges: Ints) -> Ints:
    """Separate equal quantiles: all but the last move below the common score.

    >>> _apart(np.array([5, 5, 5, 9])).tolist()
    [3, 4, 5, 9]
    """
    place = np.arange(len(edges))
    apart: Ints = np.minimum.accumulate((edges - place)[::-1])[::-1] + place
    return apart


def bin_width(columns: int) -> int:
    """Return the width of a bin in score units: a power of two near √columns / 4 nats.

    >>> bin_width(14) / NAT
    1.0
    """
    return int(NAT * 2.0 ** round(math.log2(math.sqrt(columns) / 4)))


def or_safer(threshold: Threshold, *, rows: float, sigma: float, label: Discrete | None) -> Threshold | None:
    """Return a threshold from a file; None if it does not follow from its histogram.

    Processors round logarithms differently, so values may differ by a thousandth of a nat. The larger threshold
    counts then, so that no record's weight is smaller than in the run.
    """
    by = label if threshold.shifts is not None else None
    readable = rows / sigma >= READABLE
    # Whether labels have rows follows from public numbers. The noise in the file is rounded.
    if (by is not None) not in {_tells_labels(label, off * rows / sigma) for off in (1 - 1e-9, 1 + 1e-9)}:
        return None
    if len(threshold.edges) >= MOST_BINS if readable else len(threshold.edges) != len(_ABOVE):
        return None
    bins = ScoreBins(threshold.edges, readable, by)
    again = bins.threshold(threshold.counts.ravel(), fraction=threshold.fraction, rows=rows, sigma=sigma)
    values = [(threshold.value, again.value)]
    if threshold.shifts is not None and again.shifts is not None:
        values += list(zip(threshold.shifts.tolist(), again.shifts.tolist(), strict=True))
    error = math.isclose(threshold.fraction_error, again.fraction_error, rel_tol=1e-3, abs_tol=1e-9)
    if not error or any(abs(one - other) > NAT // 1000 for one, other in values):
        return None
    shifts = None
    if threshold.shifts is not None and again.shifts is not None:
        shifts = np.minimum(threshold.shifts, again.shifts)
    return replace(threshold, value=max(threshold.value, again.value), shifts=shifts)


# Reading


def by_label(edges: Ints, counts: Ints, *, fraction: float, sigma: float) -> Threshold:
    """Read a threshold for each label from a histogram by label.

    A label with few records has the common threshold. Every threshold is at most the score that a third of the
    fraction exceeds in the whole table.
    """
    noisy, pooled = counts.astype(np.float64), counts.sum(axis=0).astype(np.float64)
    total = max(float(pooled.sum()), 1.0)
    noise = sigma * math.sqrt(len(counts))
    common, error = _read(edges, pooled, fraction=fraction, rows=total, sigma=noise)
    highest, _ = _read(edges, pooled, fraction=fraction * CAP, rows=total, sigma=noise)
    values = []
    for row in noisy:
        records = max(float(row.sum()), 1.0)
        own, _ = _read(edges, row, fraction=fraction, rows=records, sigma=sigma)
        values.append(min(own if records >= FEW * sigma else common, highest))
    shifts = common - np.array(values, dtype=np.int64)
    return Threshold(common, edges, counts, fraction, error, shifts)


def _read(edges: Ints, counts: Floats, *, fraction: float, rows: float, sigma: float) -> tuple[int, float]:
    """Return the threshold and the error of its fraction, by interpolation of the noisy counts above each edge.

    The search goes down from the highest edge and stops where the count reaches the target. So the threshold is at
    most the lowest edge from which on all counts are below the target.
    """
    above = np.cumsum(counts[::-1])[::-1][1:]  # records at or above each edge
    target = fraction * rows
    reached = np.flatnonzero(above >= target)
    k = int(reached[-1]) if reached.size else 0
    value = float(edges[k])
    if k + 1 < len(edges) and above[k] > target:
        value += (edges[k + 1] - edges[k]) * (above[k] - target) / (above[k] - above[k + 1])
    return int(value), sigma * math.sqrt(len(edges) - k) / rows


# Fitting


def _fit_by_label(edges: Ints, counts: Ints, *, fraction: float, rows: float, sigma: float) -> Threshold:
    """Fit the distribution of all records, then only the shift of each label."""
    noisy = counts.astype(np.float64)
    every = _Fit.of(noisy.sum(axis=0), rows=rows, sigma=sigma * math.sqrt(len(noisy)))
    common, highest = every.value(edges, fraction), every.value(edges, fraction * CAP)
    own = [every.shifted(row, rows=max(float(row.sum()), 0.0), sigma=sigma) for row in noisy]
    values = np.array([min(fit.value(edges, fraction), highest) for fit in own], dtype=np.int64)
    return Threshold(common, edges, counts, fraction, every.error(fraction), common - values)


@dataclass(frozen=True)
class _Fit:
    """A grid of fits of logit(real fraction above) = shift + stretch × logit(drawn fraction above).

    A loss is minus twice the log of the posterior.
    """

    shifts: Floats
    log_stretches: Floats
    losses: Floats

    @classmethod
    def of(cls, counts: Floats, *, rows: float, sigma: float) -> "_Fit":
        shifts, log_stretches = (
            axis.ravel() for axis in np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-1.5, 1, 26), indexing="ij")
        )
        prior = (shifts / _SHIFT_SD) ** 2 + (log_stretches / _STRETCH_SD) ** 2
        return cls(shifts, log_stretches, prior)._to(counts, rows, sigma)

    def shifted(self, counts: Floats, *, rows: float, sigma: float) -> "_Fit":
        """Fit another shift to the counts of some of the records, with the best stretch."""
        further = np.linspace(-4, 4, 81)
        stretches = np.full(len(further), self.log_stretches[self._best])
        prior = (further / _SHIFT_SD) ** 2
        return _Fit(self.shifts[self._best] + further, stretches, prior)._to(counts, rows, sigma)

    def _to(self, counts: Floats, rows: float, sigma: float) -> "_Fit":
        above = expit(self.shifts[:, None] + np.exp(self.log_stretches)[:, None] * logit(_ABOVE))  # (fits, edges)
        expected = rows * -np.diff(above, axis=1, prepend=1.0, append=0.0)  # (fits, bins)
        loss = ((counts - expected) ** 2).sum(axis=1) / sigma**2
        return replace(self, losses=loss + self.losses)

    @property
    def _best(self) -> int:
        return int(np.argmin(self.losses))

    def _wanted(self, fraction: float) -> float:
        """Return the logit of the drawn fraction that corresponds to this real fraction."""
        best = self._best
        return float((logit(fraction) - self.shifts[best]) / np.exp(self.log_stretches[best]))

    def value(self, edges: Ints, fraction: float) -> int:
        """Return the score that this fraction of the records exceeds."""
        return int(_extrapolate(self._wanted(fraction), logit(_ABOVE)[::-1], edges[::-1].astype(np.float64)))

    def error(self, fraction: float) -> float:
        """Return the standard deviation of the fraction above that score."""
        plausible = np.exp(-(self.losses - self.losses.min()) / 2)
        fractions = expit(self.shifts + np.exp(self.log_stretches) * self._wanted(fraction))
        return math.sqrt(float(plausible @ (fractions - fraction) ** 2 / plausible.sum()))


def _extrapolate(x: float, xs: Floats, ys: Floats) -> float:
    """Interpolate linearly, and extrapolate beyond both ends (`xs` rising)."""
    k = int(np.clip(np.searchsorted(xs, x), 1, len(xs) - 1))
    return float(ys[k - 1] + (ys[k] - ys[k - 1]) * (x - xs[k - 1]) / (xs[k] - xs[k - 1]))
