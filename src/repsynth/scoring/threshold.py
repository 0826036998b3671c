"""Where outliers begin: a threshold read off a noisy histogram of the scores.

The histogram is measured and charged; it doubles as the publishable picture of who is at risk. The
threshold is where the wanted fraction of records lies above. With many records it is read off the noisy
counts, in steps of a fixed width. With few, counting is noise: then the bins are few, at quantiles of
the scores of records drawn from the released histograms, and the real distribution is fitted as a shift
and a stretch of theirs.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit

from repsynth.arrays import Floats, Ints
from repsynth.data.records import Records
from repsynth.scoring.base import NAT, Score
from repsynth.scoring.histograms import Histograms
from repsynth.scoring.weights import FULL, WeightFunction

READABLE = 200.0
"""Records times μ from which on the noisy counts are read directly."""

MOST_BINS = 48

_DRAWN = 20_000
_LUMP = 0.1  # of a bin's records that have one and the same score
_SHIFT_SD, _LOG_STRETCH_SD = 2.0, 0.3
_DRAWN_ABOVE = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01])


@dataclass(frozen=True)
class ScoreHistogram:
    """The statistic: each record adds one to the bin of its score. Bins lie between and beyond `edges`."""

    score: Score
    edges: Ints
    name: str = "scores"
    sensitivity: float = 1.0
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        """Counts below the first edge, between edges, and from the last edge on."""
        bins = np.searchsorted(self.edges, self.score.of(records), side="right")
        return np.bincount(bins, minlength=len(self.edges) + 1)


@dataclass(frozen=True)
class Threshold:
    """A released threshold, the noisy histogram behind it, and the fraction of records at or above it.

    `fraction_error` is one standard deviation of the fraction, from the noise alone.
    """

    value: int
    edges: Ints
    counts: Ints
    fraction: float
    fraction_error: float

    def mean_weight(self, weights: WeightFunction) -> float:
        """About the mean weight of the records at or above the threshold, by the noisy histogram."""
        starts = np.maximum(self.edges, self.value)
        ends = np.append(self.edges[1:], 2 * self.edges[-1] - self.edges[0])
        counts = np.where(ends > self.value, np.maximum(self.counts[1:], 0), 0).astype(np.float64)
        values = weights.of((starts + ends) // 2) / FULL
        return float(counts @ values / counts.sum()) if counts.any() else float(values[-1])

    def worth_splitting(self, weights: WeightFunction, *, rows: float, noise: float) -> bool:
        """Whether outliers' sums, measured apart and scaled back up, still stand above their noise.

        `noise` is that of a sum in which every record counts about once.
        """
        weight = self.mean_weight(weights)
        return weight > 0.05 and noise / (rows * self.fraction * weight) <= 0.03


@dataclass(frozen=True)
class ScoreBins:
    """The edges of the score histogram, and whether its counts will be read or fitted."""

    edges: Ints
    readable: bool

    def threshold(self, counts: Ints, *, fraction: float, rows: float, sigma: float) -> Threshold:
        """The threshold with this `fraction` of the records above it: post-processing of the noisy counts."""
        find = _read if self.readable else _fit
        value, error = find(self.edges, counts.astype(np.float64), fraction=fraction, rows=rows, sigma=sigma)
        return Threshold(value, self.edges, counts, fraction, error)


@dataclass(frozen=True)
class Lumps:
    """How much of the threshold's own bin lies at or above it where scores come in lumps, as those of equal
    records do, and the standard deviation of that if each lump might as well lie on the other side."""

    above: float
    error: float


def find_lumps(threshold: Threshold, score: Score, histograms: Histograms) -> Lumps | None:
    """By records drawn from the released histograms: post-processing. None where the scores around the threshold
    are spread out, so that the width of a bin's parts tells how much is in them."""
    drawn = _drawn_scores(score, histograms)
    bin_of = np.searchsorted(threshold.edges, np.append(drawn, threshold.value), side="right")
    inside = drawn[bin_of[:-1] == bin_of[-1]]
    lumps = np.unique(inside, return_counts=True)[1] / max(len(inside), 1)
    if not lumps.size or lumps.max() <= _LUMP:
        return None
    above = float(np.mean(inside >= threshold.value))
    return Lumps(above, math.sqrt(above * (1 - above) * float(lumps @ lumps)))


def _drawn_scores(score: Score, histograms: Histograms) -> Ints:
    # A fixed seed: this is post-processing, and the same release then always has the same edges.
    return score.of(histograms.draw(_DRAWN, np.random.default_rng(0)))


def choose_score_bins(score: Score, histograms: Histograms, *, sigma: float) -> ScoreBins:
    """Bins for the noise `sigma`, from the released histograms: post-processing.

    Edges that will be read are whole multiples of a step that depends on the number of columns alone,
    from the lowest possible score on; the real scores spread wider than the drawn ones, whose columns are
    independent, so the edges reach twice as far above the middle. There are never more than `MOST_BINS`.
    """
    drawn = _drawn_scores(score, histograms)
    if histograms.rows / sigma < READABLE:
        edges = np.quantile(drawn, 1 - _DRAWN_ABOVE).astype(np.int64)
        # Few different scores, as in tables of one or two columns, may make quantiles coincide.
        return ScoreBins(edges + np.arange(len(edges)), readable=False)
    middle, high = np.quantile(drawn, [0.5, 0.999])
    step = bin_width(score.columns)
    first, last = math.floor(score.lowest / step), math.ceil((2 * high - middle) / step)
    last = int(np.clip(last, first + 1, first + MOST_BINS - 2))
    return ScoreBins(np.arange(first, last + 1, dtype=np.int64) * step, readable=True)


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


def _fit(edges: Ints, counts: Floats, *, fraction: float, rows: float, sigma: float) -> tuple[int, float]:
    """logit(real fraction above) = shift + stretch × logit(drawn fraction above): the best on a grid."""
    drawn = logit(_DRAWN_ABOVE)
    shift, log_stretch = (
        axis.ravel() for axis in np.meshgrid(np.linspace(-3, 3, 61), np.linspace(-1.5, 1, 26), indexing="ij")
    )
    stretch = np.exp(log_stretch)
    above = expit(shift[:, None] + stretch[:, None] * drawn)  # (fits, edges)
    expected = rows * -np.diff(above, axis=1, prepend=1.0, append=0.0)  # (fits, bins)
    loss = ((counts - expected) ** 2).sum(axis=1) / sigma**2
    loss += (shift / _SHIFT_SD) ** 2 + (log_stretch / _LOG_STRETCH_SD) ** 2
    best = int(np.argmin(loss))
    wanted = (logit(fraction) - shift[best]) / stretch[best]
    plausible = np.exp(-(loss - loss[best]) / 2)
    fractions = expit(shift + stretch * wanted)
    error = math.sqrt(float(plausible @ (fractions - fraction) ** 2 / plausible.sum()))
    return int(_extrapolate(wanted, drawn[::-1], edges[::-1].astype(np.float64))), error


def _extrapolate(x: float, xs: Floats, ys: Floats) -> float:
    """Linear interpolation, continued in a straight line beyond both ends (`xs` rising)."""
    k = int(np.clip(np.searchsorted(xs, x), 1, len(xs) - 1))
    return float(ys[k - 1] + (ys[k] - ys[k - 1]) * (x - xs[k - 1]) / (xs[k] - xs[k - 1]))
