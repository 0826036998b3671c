"""The guaranteed loss: a bound on a record's weight that holds before stage 1 is run.

The realised loss of a record depends on its weight, which depends on stage 1's noise. Outside of an
event of probability η, no noise exceeds its tail bounds, and then the record's score is at least some
level and the threshold at most another, so the record's weight is at most w̄. The record then has
(ε(w̄), δ + η)-DP, whatever stage 1 releases. All bounds hold on the table with and without the record.
They are private: functions of the data.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from repsynth.cells import Cells
from repsynth.encode import Records
from repsynth.marginals import Marginals, OneWay
from repsynth.measure import sum_over
from repsynth.noise import GaussianEvent
from repsynth.release import Release
from repsynth.score import NAT, RARE, rarity_of, regions, steep
from repsynth.threshold import MOST_BINS, READABLE, bin_width
from repsynth.weigh import FULL, HingeExp, Removal, Targeted

Floats = NDArray[np.float64]

ETA_SHARE = 1 / 11
"""The part of δ for the chance η that the noise exceeds its bounds: a tenth of the rest."""

_CUTS = (1.5, 2.0, 4.0, math.inf)  # times the tail: from which count on, in units of noise, a cell is large


def why_none(release: Release) -> str | None:
    """Why no guarantee better than the total can be given, in words; None where it can."""
    if release.threshold is None or not isinstance(release.settings.rule, HingeExp | Targeted | Removal):
        return "the weights do not depend on the distance from a threshold alone"
    if release.settings.public_rows is None:
        return "the number of records was not declared public"
    if release.rows / _threshold_sigma(release) < READABLE:
        return "too few records for this budget: the threshold was fitted, not read"
    if not all(map(math.isinf, release.score.scale)):
        return "too few records for this budget: some histogram is not clear"
    return None


def guaranteed_weights(release: Release, data: Sequence[Records], *, eta: float) -> Floats:
    """For each record a weight that it exceeds with probability at most `eta`, whatever stage 1 draws."""
    rows = sum(records.rows for records in data)
    if why_none(release) is not None or rows == 0:
        return np.ones(rows)
    bounds = _Bounds.of(release, data, eta, rows)
    scores = [bounds.scores(records) for records in data]
    low, high = (np.concatenate([pair[side] for pair in scores]) for side in (0, 1))
    above = low - _highest_threshold(release, high, bounds.tail)
    # The released table itself, so that every rounding of the weights is the one that will be used.
    nearest = release.weights.start + np.floor(np.clip(above, -1.0, 1e6) * NAT).astype(np.int64)
    return release.weights.of(nearest) / FULL


def _highest_threshold(release: Release, high: Floats, tail: float) -> float:
    """In nats: above it, too few records can score for the noisy histogram to reach the wanted share."""
    sigma = _threshold_sigma(release)
    noise = tail * sigma * math.sqrt(MOST_BINS) + MOST_BINS / 2
    few = math.floor(release.settings.outlier_share * release.rows - noise)
    if not 1 <= few <= len(high):  # too few to tell, or fewer records than were declared
        return math.inf
    columns = len(release.score.cells)
    return float(np.sort(high)[::-1][few - 1]) + (bin_width(columns) + 1) / NAT


def _threshold_sigma(release: Release) -> float:
    (event,) = [e for e in release.events if isinstance(e, GaussianEvent) and e.name == "threshold"]
    return event.sigma


@dataclass(frozen=True)
class _Column:
    """What is certain about the score of each cell of one column.

    `low` and `high` hold if no noise exceeds its tail bound. For a large cell, `middle_low` and
    `middle_high` bound the mean score and `slope` how much one standard deviation of noise moves it.
    """

    cells: Cells
    low: Floats
    high: Floats
    middle_low: Floats
    middle_high: Floats
    slope: Floats
    size: Floats
    """The cell's count in units of its noise; 0 where the score has a kink within the noise."""


@dataclass(frozen=True)
class _Bounds:
    columns: tuple[_Column, ...]
    tail: float
    """How many standard deviations no noise exceeds: all cells and all sums of score bins at once."""
    spread: float
    """The same for a Lipschitz function of many noises at once: all records, all ways to cut."""

    @classmethod
    def of(cls, release: Release, data: Sequence[Records], eta: float, rows: int) -> "_Bounds":
        marginals = release.marginals
        exact = Marginals(
            marginals.cells, sum_over(OneWay(marginals.cells), data), marginals.sigma, marginals.rows
        )
        events = 2 * (sum(cells.count for cells in marginals.cells) + MOST_BINS)
        tail = float(norm.isf(eta / 2 / events))
        spread = math.sqrt(2 * math.log(2 * len(_CUTS) * 2 * rows / eta))
        kept = [i for i, cells in enumerate(marginals.cells) if cells.column.name != release.schema.label]
        return cls(tuple(_column(exact, i, tail) for i in kept), tail, spread)

    def scores(self, records: Records) -> tuple[Floats, Floats]:
        """A lower and an upper bound on the score of each record, in nats.

        Small cells are bounded one by one. Large ones are bounded together: their sum is a Lipschitz
        function of independent Gaussian noise, which strays from its mean far less than the sum of what
        each may stray. Each way to cut between the two is valid; the best one counts.
        """
        cell = [column.cells.of(records) for column in self.columns]

        def gather(name: str) -> Floats:
            return np.stack([getattr(c, name)[k] for c, k in zip(self.columns, cell, strict=True)])

        low, high, size = gather("low"), gather("high"), gather("size")
        middle_low, middle_high, slope = gather("middle_low"), gather("middle_high"), gather("slope")
        lows, highs = [], []
        for cut in _CUTS:
            large = size >= cut * self.tail
            stray = self.spread * np.sqrt(np.where(large, slope**2, 0.0).sum(axis=0))
            lows.append(np.where(large, middle_low, low).sum(axis=0) - stray)
            highs.append(np.where(large, middle_high, high).sum(axis=0) + stray)
        rounding = (len(self.columns) + 1) / NAT  # every column's score is rounded down to a unit
        return np.max(lows, axis=0) - rounding, np.min(highs, axis=0) + rounding


def _column(exact: Marginals, i: int, tail: float) -> _Column:
    """Bounds for one column; `exact` holds the true counts.

    Rounding the noise moves the count of a region of k cells by at most k/2, the absent record by 1.
    """
    cells, rows, is_steep = exact.cells[i], exact.rows, steep(exact, i)
    region = regions(cells)
    parts = np.bincount(region)
    count, noise = np.bincount(region, exact.noisy(i)), exact.sigma * np.sqrt(parts)
    slack = parts / 2 + 1

    def rarity(counts: Floats) -> Floats:
        return rarity_of(counts, noise, rows, steep=is_steep)

    smallest = count - slack - tail * noise
    # Within the noise, a large cell's rarity is the plain convex −log: above its floor and below the kink.
    plain = (smallest > noise / 2) & (not is_steep or smallest > rows * math.exp(-RARE))
    slope = np.where(plain, noise / np.where(plain, smallest, 1.0), 0.0)
    return _Column(
        cells=cells,
        low=rarity(count + slack + tail * noise)[region],
        high=rarity(smallest)[region],
        middle_low=rarity(count + slack)[region],
        middle_high=(rarity(count - slack) + slope**2 / 2)[region],
        slope=slope[region],
        size=np.where(plain, count / noise, 0.0)[region],
    )
