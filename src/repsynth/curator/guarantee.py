"""The guaranteed loss: a bound on a record's weight that holds before stage 1 is run.

The realised loss of a record depends on its weight, which depends on stage 1's noise. Outside of an
event of probability η, no noise exceeds its tail bounds, and then the record's score is at least some
level and the threshold at most another, so the record's weight is at most w̄. The record then has
(ε(w̄), δ + η)-DP, whatever stage 1 releases. All bounds hold on the table with and without the record.
They are private: functions of the data.

Where scores and threshold come from an earlier release, the weight of a record is a public function of it before
the run. Then w̄ is the weight itself and η = 0: the realised loss of a record of that weight is guaranteed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtri

from repsynth.arrays import Floats
from repsynth.data.records import Records
from repsynth.engines.local import LocalEngine
from repsynth.privacy.events import GaussianEvent
from repsynth.release.release import Release
from repsynth.scoring.base import NAT
from repsynth.scoring.histograms import ColumnHistograms
from repsynth.scoring.stage import SCORES
from repsynth.scoring.threshold import MOST_BINS, READABLE, bin_width
from repsynth.scoring.weights import FULL

ETA_SHARE = 1 / 11
"""The part of δ for the chance η that the noise exceeds its bounds: a tenth of the rest."""


def why_none(release: Release) -> str | None:
    """Why no guarantee better than the total can be given, in words; None where it can."""
    if release.stage.borrowed is not None:
        return None  # every weight was public before the run
    if not release.plan.scorer.targets_outliers:
        return "the scores are random"
    if release.threshold is None or not release.plan.rule.by_distance:
        return "the weights do not depend on the distance from a threshold alone"
    if release.plan.scorer.no_bounds is not None:
        return release.plan.scorer.no_bounds
    if release.plan.public_rows is None:
        return "the number of records was not declared public"
    if release.rows / _threshold_sigma(release) < READABLE:
        return "too few records for this budget: the threshold was fitted, not read"
    if release.score.bounds(release.stage.scored, tail=1.0, eta=0.5, rows=1) is None:
        return "too few records for this budget: some histogram is not clear"
    return None


def eta_share(release: Release) -> float:
    """The part of δ for the chance that a guarantee fails: none where scores were public before the run."""
    return 0.0 if release.stage.borrowed is not None else ETA_SHARE


def guaranteed_weights(release: Release, data: Sequence[Records], *, eta: float) -> Floats:
    """For each record a weight that it exceeds with probability at most `eta`, whatever stage 1 draws."""
    rows = sum(records.rows for records in data)
    if release.stage.borrowed is not None:
        weights = [release.weights.of(release.score.of(records)) / FULL for records in data]
        return np.concatenate([np.zeros(0), *weights])
    if why_none(release) is not None or rows == 0:
        return np.ones(rows)
    bins = release.stage.scored.bins
    exact = replace(release.stage.scored, counts=LocalEngine(data).sum(ColumnHistograms(bins)))
    # Half of η for all bins and all sums of score bins, on both sides; the other half for the scores.
    tail = -float(ndtri(eta / 2 / (2 * (sum(b.count for b in bins) + MOST_BINS))))
    bounds = release.score.bounds(exact, tail=tail, eta=eta / 2, rows=rows)
    assert bounds is not None
    scores = [bounds.of(records) for records in data]
    low, high = (np.concatenate([pair[side] for pair in scores]) for side in (0, 1))
    above = low - _highest_threshold(release, high, tail)
    # The released table itself, so that every rounding of the weights is the one that will be used.
    nearest = release.weights.start + np.floor(np.clip(above, -1.0, 1e6) * NAT).astype(np.int64)
    return release.weights.of(nearest) / FULL


def _highest_threshold(release: Release, high: Floats, tail: float) -> float:
    """In nats: above it, too few records can score for the noisy histogram to reach the wanted fraction."""
    sigma = _threshold_sigma(release)
    noise = tail * sigma * math.sqrt(MOST_BINS) + MOST_BINS / 2
    few = math.floor(release.plan.outlier_fraction * release.rows - noise)
    if not 1 <= few <= len(high):  # too few to tell, or fewer records than were declared
        return math.inf
    return float(np.sort(high)[::-1][few - 1]) + (bin_width(release.score.columns) + 1) / NAT


def _threshold_sigma(release: Release) -> float:
    (event,) = [e for e in release.events if isinstance(e, GaussianEvent) and e.name == SCORES]
    return event.sigma
