"""Where outliers begin: a threshold read off a noisy histogram of the scores.

The histogram is measured and charged; it doubles as the publishable picture of who is at risk. Its
bins are steps of a fixed width in nats, between scores that records drawn from the released marginals
would have. The threshold is where the wanted share of records lies above. With many records it is read
off the noisy counts; with few, where counting is noise, a shift and a stretch of the scores of the
drawn records are fitted to them.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from repsynth.encode import Records
from repsynth.marginals import Marginals
from repsynth.score import NAT, Score

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

READABLE = 200.0
"""Records times μ from which on the noisy counts are read directly."""

_DRAWN = 20_000
_SHIFT_SD, _LOG_STRETCH_SD = 2.0, 0.3


@dataclass(frozen=True)
class ScoreHistogram:
    """The statistic: each record adds one to the bin of its score. Bins lie between and beyond `edges`."""

    score: Score
    edges: Ints
    name: str = "threshold"
    sensitivity: float = 1.0

    def total(self, records: Records) -> Ints:
        """Counts below the first edge, between edges, and from the last edge on."""
        bins = np.searchsorted(self.edges, self.score.of(records), side="right")
        return np.bincount(bins, minlength=len(self.edges) + 1)


@dataclass(frozen=True)
class Threshold:
    """A released threshold, the noisy histogram behind it, and the share of records at or above it.

    `share_error` is one standard deviation of the share, from the noise alone.
    """

    value: int
    edges: Ints
    counts: Ints
    share: float
    share_error: float


def choose_edges(score: Score, marginals: Marginals) -> tuple[Ints, Ints]:
    """Bin edges, and the sorted scores of the drawn records that they were chosen from.

    Edges are whole multiples of a step that depends on the number of columns alone, from the lowest
    possible score on. The drawn records' columns are independent, the real ones' are not, so the bins
    reach half as far again above the middle as drawn scores do.
    """
    # A fixed seed: this is post-processing, and the same release then always has the same edges.
    drawn = np.sort(score.of(marginals.draw(_DRAWN, np.random.default_rng(0))))
    middle, high = np.quantile(drawn, [0.5, 0.999])
    step = bin_width(len(score.cells))
    first = math.floor(score.lowest / step)
    last = math.ceil((high + (high - middle) / 2) / step)
    return np.arange(first, max(last, first + 1) + 1, dtype=np.int64) * step, drawn


def bin_width(columns: int) -> int:
    """The width of a bin in score units: a power of two near a quarter of √columns nats.

    >>> bin_width(14) / NAT
    1.0
    """
    return int(NAT * 2.0 ** round(math.log2(math.sqrt(columns) / 4)))


def find_threshold(
    edges: Ints, counts: Ints, drawn: Ints, *, share: float, rows: float, sigma: float
) -> Threshold:
    """The threshold above which a `share` of the records lies: post-processing of the noisy counts."""
    if rows / sigma >= READABLE:
        return _read(edges, counts, share=share, rows=rows, sigma=sigma)
    return _fit(edges, counts, drawn, share=share, rows=rows, sigma=sigma)


def _read(edges: Ints, counts: Ints, *, share: float, rows: float, sigma: float) -> Threshold:
    """Interpolated in the noisy numbers of records above each edge, taken from the top down.

    The first edge from above whose number reaches the target ends the search, so the threshold is never
    above the lowest edge from which on all numbers stay below the target.
    """
    above = np.cumsum(counts[::-1])[::-1][1:].astype(np.float64)  # records at or above each edge
    target = share * rows
    reached = np.flatnonzero(above >= target)
    k = int(reached[-1]) if reached.size else 0
    value = float(edges[k])
    if k + 1 < len(edges) and above[k] > target:
        value += (edges[k + 1] - edges[k]) * (above[k] - target) / (above[k] - above[k + 1])
    error = sigma * math.sqrt(len(edges) - k) / rows
    return Threshold(int(value), edges, counts, share, error)


def _fit(edges: Ints, counts: Ints, drawn: Ints, *, share: float, rows: float, sigma: float) -> Threshold:
    """logit(real share above) = shift + stretch × logit(drawn share above), the posterior on a grid."""
    drawn_above = 1 - (np.searchsorted(drawn, edges) + 0.5) / (len(drawn) + 1)
    shift, log_stretch = (
        axis.ravel()
        for axis in np.meshgrid(np.linspace(-4, 4, 81), np.linspace(-1.5, 1, 26), indexing="ij")
    )
    stretch = np.exp(log_stretch)
    above = expit(shift[:, None] + stretch[:, None] * logit(drawn_above))  # (fits, edges)
    expected = rows * -np.diff(above, axis=1, prepend=1.0, append=0.0)  # (fits, bins)
    loss = ((counts - expected) ** 2).sum(axis=1) / sigma**2
    loss += (shift / _SHIFT_SD) ** 2 + (log_stretch / _LOG_STRETCH_SD) ** 2
    plausible = np.exp(-(loss - loss.min()) / 2)
    plausible /= plausible.sum()
    # Each fit's threshold, as a share of the drawn records above it; the posterior mean in logits.
    levels = plausible @ ((logit(share) - shift) / stretch)
    value = np.quantile(drawn, 1 - expit(levels))
    real = expit(shift + stretch * levels)
    error = math.sqrt(float(plausible @ (real - plausible @ real) ** 2))
    return Threshold(int(value), edges, counts, share, error)
