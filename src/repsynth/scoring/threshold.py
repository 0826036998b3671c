"""Where outliers begin: a threshold read off a noisy histogram of the scores.

The histogram is measured and charged; it doubles as the publishable picture of who is at risk. The
threshold is where the wanted fraction of records lies above. With many records it is read off the noisy
counts, in steps of a fixed width. With few, counting is noise: then the bins are few, at quantiles of
the scores of records drawn from the released histograms, and the real distribution is fitted as a shift
and a stretch of theirs.

What tells the labels apart is often rare, so one threshold for all would take the signal for risk: the rarer
label would have most of the outliers. Where the table can bear it, the histogram is one by label, at the same
charge, and each label has a threshold of its own; its scores are moved so that one number serves for all. With
few records, the distribution of a label is that of all with a shift of its own, as far as its counts say so.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import expit, logit

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.data.positions import Cut
from repsynth.data.records import MISSING, Records
from repsynth.schema import Discrete
from repsynth.scoring.base import NAT, Score
from repsynth.scoring.weights import FULL, WeightFunction

READABLE = 200.0
"""Records times μ from which on the noisy counts are read directly."""

MOST_BINS = 48

FEW = 50.0
"""Records, in units of a bin's noise, from which on a label has a threshold of its own."""

CAP = 1 / 3
"""Of the fraction: no label's threshold lies above the one of all that leaves so much above it."""

_DRAWN = 20_000
_LUMP = 0.1  # of a bin's records that have one and the same score
_SHIFT_SD, _LOG_STRETCH_SD, _LABEL_SHIFT_SD = 2.0, 0.3, 1.0
_DRAWN_ABOVE = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])
_FEW_DRAWN_ABOVE = np.array([0.9, 0.7, 0.5, 0.3, 0.15, 0.05])  # by label there are fewer records in each bin
_LEAST_OF_LABELS = 20.0  # records, in units of a bin's noise, that labels must have on average to be told apart
_LEAST_OF_LABEL = 3.0  # the same for one of them
_ROUNDED = 1e-9  # noise is written down with less than that of error


@dataclass(frozen=True)
class ScoreHistogram:
    """The statistic: each record adds one to the bin of its score. Bins lie between and beyond `edges`; where
    `label` is given, every label has such bins of its own, and so have records whose label cannot be read."""

    score: Score
    edges: Ints
    label: Discrete | None = None
    name: str = "scores"
    sensitivity: float = 1.0
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        """Counts below the first edge, between edges, and from the last edge on; label by label."""
        return np.bincount(self._bin(records), minlength=self._bins)

    def each(self, records: Records) -> Ints:
        """What each record adds: (records, bins)."""
        added = np.zeros((records.rows, self._bins), dtype=np.int64)
        added[np.arange(records.rows), self._bin(records)] = 1
        return added

    @property
    def _bins(self) -> int:
        return (len(self.edges) + 1) * (1 if self.label is None else rows_of(self.label))

    def _bin(self, records: Records) -> Ints:
        bins = self._cut.of(self.score.of(records)) + 1
        if self.label is None:
            return bins
        return row_of(records, self.label) * (len(self.edges) + 1) + bins

    @cached_property
    def _cut(self) -> Cut:
        return Cut.at(self.edges, self.edges)


def row_of(records: Records, label: Discrete) -> Ints:
    """The row of each record in a histogram by label: that of its label; the last one where it has none."""
    codes = records.codes[label.name]
    return np.where(codes == MISSING, label.size, codes)


def rows_of(label: Discrete) -> int:
    """How many rows a histogram by label has.

    >>> from repsynth.schema import Boolean
    >>> rows_of(Boolean(name="smoker"))
    3
    """
    return label.size + 1


@dataclass(frozen=True)
class Threshold:
    """A released threshold, the noisy histogram behind it, and the fraction of records at or above it.

    `counts` has a row for all records or, where the histogram is one by label, a row for each label; `shifts` then
    says what is added to the scores of each label, so that `value` is the threshold of all. `fraction_error` is
    one standard deviation of the fraction, from the noise alone.
    """

    value: int
    edges: Ints
    counts: Ints  # (rows, bins)
    fraction: float
    fraction_error: float
    shifts: Ints | None = None

    def moved_edges(self, row: int) -> Ints:
        """The edges of a row's bins, moved as its scores are."""
        return self.edges if self.shifts is None else self.edges + self.shifts[row]

    def mean_weight(self, weights: WeightFunction) -> float:
        """About the mean weight of the records at or above the threshold, by the noisy histogram."""
        records = weighed = 0.0
        for row, noisy in enumerate(self.counts):
            edges = self.moved_edges(row)
            starts, ends = np.maximum(edges, self.value), np.append(edges[1:], 2 * edges[-1] - edges[0])
            counts = np.where(ends > self.value, np.maximum(noisy[1:], 0), 0).astype(np.float64)
            records += float(counts.sum())
            weighed += float(counts @ weights.of((starts + ends) // 2)) / FULL
        return weighed / records if records else float(weights.of(np.array([self.value]))[0]) / FULL


@dataclass(frozen=True)
class ScoreBins:
    """The edges of the score histogram, whether its counts will be read or fitted, and the label where every label
    gets a histogram of its own."""

    edges: Ints
    readable: bool
    label: Discrete | None = None

    def threshold(self, counts: Ints, *, fraction: float, rows: float, sigma: float) -> Threshold:
        """The threshold with this `fraction` of the records above it: post-processing of the noisy counts."""
        if self.label is not None:
            by_row = counts.reshape(rows_of(self.label), -1)
            if self.readable:
                return by_label(self.edges, by_row, fraction=fraction, sigma=sigma)
            return _fit_by_label(self.edges, by_row, fraction=fraction, rows=rows, sigma=sigma)
        noisy = counts.astype(np.float64)
        if self.readable:
            value, error = _read(self.edges, noisy, fraction=fraction, rows=rows, sigma=sigma)
        else:
            fit = _Fit.of(noisy, _DRAWN_ABOVE, rows=rows, sigma=sigma)
            value, error = fit.value(self.edges, fraction), fit.error(fraction)
        return Threshold(value, self.edges, counts[None], fraction, error)


def by_label(edges: Ints, counts: Ints, *, fraction: float, sigma: float) -> Threshold:
    """A threshold for each label, from a histogram with a row for each.

    A label with few records has the threshold of all. And none lies above the one that leaves a third of the
    fraction above it in all: who stands out most in the whole table is an outlier, whatever its label.
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


def _fit_by_label(edges: Ints, counts: Ints, *, fraction: float, rows: float, sigma: float) -> Threshold:
    """The same for few records: the distribution of each label is fitted as that of all with another shift."""
    noisy = counts.astype(np.float64)
    every = _Fit.of(noisy.sum(axis=0), _FEW_DRAWN_ABOVE, rows=rows, sigma=sigma * math.sqrt(len(noisy)))
    common, highest = every.value(edges, fraction), every.value(edges, fraction * CAP)
    values = np.full(len(counts), common, dtype=np.int64)
    for k, row in enumerate(noisy):
        if (records := float(row.sum())) > _LEAST_OF_LABEL * sigma:
            values[k] = min(every.shifted(row, rows=records, sigma=sigma).value(edges, fraction), highest)
    return Threshold(common, edges, counts, fraction, every.error(fraction), common - values)


def follows(threshold: Threshold, *, rows: float, sigma: float, label: Discrete | None) -> bool:
    """Whether a threshold is the one that its own histogram says.

    Another processor may round a logarithm otherwise: a thousandth of a nat counts as the same.
    """
    by = label if threshold.shifts is not None else None
    readable = rows / sigma >= READABLE
    told = {_tells_labels(label, (1 + off) * rows / sigma) for off in (-_ROUNDED, _ROUNDED)}
    if (by is not None) not in told:
        return False  # whether each label has its own follows from public numbers
    if not readable and len(threshold.edges) != len(_DRAWN_ABOVE if by is None else _FEW_DRAWN_ABOVE):
        return False
    bins = ScoreBins(threshold.edges, readable, by)
    again = bins.threshold(threshold.counts.ravel(), fraction=threshold.fraction, rows=rows, sigma=sigma)
    values = [(threshold.value, again.value)]
    if threshold.shifts is not None and again.shifts is not None:
        values += list(zip(threshold.shifts.tolist(), again.shifts.tolist(), strict=True))
    error = math.isclose(threshold.fraction_error, again.fraction_error, rel_tol=1e-3, abs_tol=1e-9)
    return error and all(abs(one - other) <= NAT // 1000 for one, other in values)


def _tells_labels(label: Discrete | None, signal: float) -> bool:
    """Whether records, in units of the noise of a bin, are enough for a histogram by label."""
    return label is not None and signal >= _LEAST_OF_LABELS * label.size


@dataclass(frozen=True)
class Lumps:
    """How much of the threshold's own bin lies at or above it where scores come in lumps, as those of equal
    records do, and the standard deviation of that if each lump might as well lie on the other side."""

    above: float
    error: float


def find_lumps(threshold: Threshold, score: Score, histograms: Histograms) -> tuple[Lumps | None, ...]:
    """Row by row, from records drawn from the released histograms: post-processing; `score` is that of a record
    before the threshold moves it. None where the scores around the threshold are spread out, so that the width of
    a bin's parts tells how much is in them."""
    drawn = score.of(_drawn(histograms))
    values = threshold.value - (np.zeros(1, dtype=np.int64) if threshold.shifts is None else threshold.shifts)
    return tuple(_lumps(drawn, threshold.edges, int(value)) for value in values)


def _lumps(drawn: Ints, edges: Ints, value: int) -> Lumps | None:
    bin_of = np.searchsorted(edges, np.append(drawn, value), side="right")
    inside = drawn[bin_of[:-1] == bin_of[-1]]
    lumps = np.unique(inside, return_counts=True)[1] / max(len(inside), 1)
    if not lumps.size or lumps.max() <= _LUMP:
        return None
    above = float(np.mean(inside >= value))
    return Lumps(above, math.sqrt(above * (1 - above) * float(lumps @ lumps)))


def _drawn(histograms: Histograms) -> Records:
    # A fixed seed: this is post-processing, and the same release then always has the same edges.
    return histograms.draw(_DRAWN, np.random.default_rng(0))


def choose_score_bins(
    score: Score, histograms: Histograms, *, sigma: float, label: Discrete | None = None
) -> ScoreBins:
    """Bins for the noise `sigma`, from the released histograms: post-processing. Every label gets bins of its own
    where these have something to say.

    Edges that will be read are whole multiples of a step that depends on the number of columns alone,
    from the lowest possible score on; the real scores spread wider than the drawn ones, whose columns are
    independent, so the edges reach twice as far above the middle. There are never more than `MOST_BINS`.
    """
    drawn, signal = score.of(_drawn(histograms)), histograms.rows / sigma
    if not _tells_labels(label, signal):
        label = None
    if signal < READABLE:
        edges = np.quantile(drawn, 1 - (_DRAWN_ABOVE if label is None else _FEW_DRAWN_ABOVE)).astype(np.int64)
        return ScoreBins(_apart(edges), readable=False, label=label)
    middle, high = np.quantile(drawn, [0.5, 0.999])
    step = bin_width(score.columns)
    first, last = math.floor(score.lowest / step), math.ceil((2 * high - middle) / step)
    last = int(np.clip(last, first + 1, first + MOST_BINS - 2))
    return ScoreBins(np.arange(first, last + 1, dtype=np.int64) * step, readable=True, label=label)


def _apart(edges: Ints) -> Ints:
    """Where many records have one score, quantiles coincide: all but one of these edges move below it, so that the
    records lie above all of them.

    >>> _apart(np.array([5, 5, 5, 9])).tolist()
    [3, 4, 5, 9]
    """
    place = np.arange(len(edges))
    apart: Ints = np.minimum.accumulate((edges - place)[::-1])[::-1] + place
    return apart


def bin_width(columns: int) -> int:
    """The width of a bin in score units: a power of two near a quarter of √columns nats.

    >>> bin_width(14) / NAT
    1.0
    """
    return int(NAT * 2.0 ** round(math.log2(math.sqrt(columns) / 4)))


def _read(edges: Ints, counts: Floats, *, fraction: float, rows: float, sigma: float) -> tuple[int, float]:
    """Interpolated in the noisy numbers of records above each edge, searched from the top down.

    So the threshold is never above the lowest edge from which on all numbers stay below the target.
    """
    above = np.cumsum(counts[::-1])[::-1][1:]  # records at or above each edge
    target = fraction * rows
    reached = np.flatnonzero(above >= target)
    k = int(reached[-1]) if reached.size else 0
    value = float(edges[k])
    if k + 1 < len(edges) and above[k] > target:
        value += (edges[k + 1] - edges[k]) * (above[k] - target) / (above[k] - above[k + 1])
    return int(value), sigma * math.sqrt(len(edges) - k) / rows


@dataclass(frozen=True)
class _Fit:
    """logit(real fraction above) = shift + stretch × logit(drawn fraction above): fits on a grid, and the loss of
    each. The drawn fractions are those above each edge."""

    drawn: Floats
    shifts: Floats
    log_stretches: Floats
    losses: Floats

    @classmethod
    def of(cls, counts: Floats, drawn_above: Floats, *, rows: float, sigma: float) -> "_Fit":
        shifts, log_stretches = (
            axis.ravel() for axis in np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-1.5, 1, 26), indexing="ij")
        )
        prior = (shifts / _SHIFT_SD) ** 2 + (log_stretches / _LOG_STRETCH_SD) ** 2
        return cls(logit(drawn_above), shifts, log_stretches, prior)._to(counts, rows, sigma)

    def shifted(self, counts: Floats, *, rows: float, sigma: float) -> "_Fit":
        """The best fit with another shift, to the counts of some of the records."""
        further = np.linspace(-4, 4, 81)
        stretches = np.full(len(further), self.log_stretches[self._best])
        prior = (further / _LABEL_SHIFT_SD) ** 2
        return _Fit(self.drawn, self.shifts[self._best] + further, stretches, prior)._to(counts, rows, sigma)

    def _to(self, counts: Floats, rows: float, sigma: float) -> "_Fit":
        above = expit(self.shifts[:, None] + np.exp(self.log_stretches)[:, None] * self.drawn)  # (fits, edges)
        expected = rows * -np.diff(above, axis=1, prepend=1.0, append=0.0)  # (fits, bins)
        loss = ((counts - expected) ** 2).sum(axis=1) / sigma**2
        return replace(self, losses=loss + self.losses)

    @property
    def _best(self) -> int:
        return int(np.argmin(self.losses))

    def _wanted(self, fraction: float) -> float:
        """The logit of the drawn fraction above where this one of the real records is."""
        best = self._best
        return float((logit(fraction) - self.shifts[best]) / np.exp(self.log_stretches[best]))

    def value(self, edges: Ints, fraction: float) -> int:
        """The score that this fraction of the records is above."""
        return int(_extrapolate(self._wanted(fraction), self.drawn[::-1], edges[::-1].astype(np.float64)))

    def error(self, fraction: float) -> float:
        """One standard deviation of the fraction that is above it."""
        plausible = np.exp(-(self.losses - self.losses.min()) / 2)
        fractions = expit(self.shifts + np.exp(self.log_stretches) * self._wanted(fraction))
        return math.sqrt(float(plausible @ (fractions - fraction) ** 2 / plausible.sum()))


def _extrapolate(x: float, xs: Floats, ys: Floats) -> float:
    """Linear interpolation, continued in a straight line beyond both ends (`xs` rising)."""
    k = int(np.clip(np.searchsorted(xs, x), 1, len(xs) - 1))
    return float(ys[k - 1] + (ys[k] - ys[k - 1]) * (x - xs[k - 1]) / (xs[k] - xs[k - 1]))
