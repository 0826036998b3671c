"""What a release cost, in every unit a reader may want; all of it publishable."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.privacy.events import Event, GaussianEvent
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import SMALLEST_DELTA
from repsynth.privacy.shown import percent_at_most
from repsynth.scoring.base import NAT
from repsynth.scoring.stage import SCORES
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.transfer import PriorScores
from repsynth.scoring.weights import FULL, WeightFunction


@dataclass(frozen=True)
class NoisyFraction:
    """A fraction of the records as it may be shown: between 0 and 1, and one standard deviation of its noise.

    >>> str(NoisyFraction.of(1.02, 0.031)), str(NoisyFraction.of(0.3, 0.0004))
    ('100% ± 4%', '30.0% ± 0.1%')
    """

    value: float
    standard_error: float

    @classmethod
    def of(cls, value: float, standard_error: float) -> "NoisyFraction":
        """Noise may leave a fraction below 0 or above 1, where none can be."""
        return cls(min(max(value, 0.0), 1.0), standard_error)

    def __str__(self) -> str:
        digits = 0 if self.standard_error >= 0.02 else 1
        return f"{self.value:.{digits}%} ± {percent_at_most(max(self.standard_error, 0.001), digits)}"


@dataclass(frozen=True)
class Stratum:
    """A part of the records by score: about this `fraction` of them, each losing at most `epsilon`.

    `score` is where it begins, in nats, and `weight` the largest weight in it.
    """

    fraction: float
    epsilon: float
    weight: float
    score: float


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """The account of a release.

    The total bounds every record. For every set S of releases in which a record weighs at most w, a table D with
    it and D' without it have P[M(D) in S] <= e^epsilon_at(w) P[M(D') in S] + δ, and the same with D and D'
    swapped. This is not conditional on the scores that came out.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> privacy = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes").privacy
    >>> round(privacy.epsilon, 6), bool(privacy.epsilon_at(0.2) < 0.31)
    (1.0, True)
    """

    events: tuple[Event, ...]
    delta: float
    rows: float
    threshold: Threshold | None
    weights: WeightFunction
    borrowed: PriorScores | None = None
    """Where scores and threshold came from; fractions of records are then those of that table."""
    schema_loss: Loss = field(default_factory=lambda: Loss(0.0, 0.0))
    """What measuring the schema on the same table cost, and the chance that two persons are taken for one."""

    @cached_property
    def loss(self) -> Loss:
        """The loss of a record by its influence, for the schema and the run together."""
        return self.run_loss.after(self.schema_loss, self.delta)

    @cached_property
    def run_loss(self) -> Loss:
        return Loss.of(self.events)

    @property
    def mu(self) -> float | None:
        """The total in Gaussian DP; None after a training, whose loss is not Gaussian."""
        return self.loss.mu

    @cached_property
    def epsilon(self) -> float:
        return self.loss.epsilon(self.delta)

    @property
    def rho(self) -> float | None:
        """The total in zero-concentrated DP, where it is Gaussian; rounded up."""
        return None if self.mu is None else self.mu**2 / 2 * (1 + 1e-15)

    def epsilon_at(self, influence: Floats | float) -> Floats:
        """Return the realised ε at δ of records with this share of the largest influence in synthesis."""
        return self.loss.epsilon_at(influence, self.delta)

    @property
    def outlier_weight(self) -> float:
        """The largest weight from the threshold on; 1 where there is none."""
        if self.threshold is None:
            return 1.0
        return float(self.weights.of(np.array([self.threshold.value]))[0]) / FULL

    @property
    def outlier_epsilon(self) -> float:
        """The largest ε of a record above the threshold."""
        return float(self.epsilon_at(self.outlier_weight))

    def epsilon_by_delta(self) -> dict[float, float]:
        """Return the total ε at several δ."""
        deltas = {self.delta, 1e-5, 1e-6, 1e-9, 1e-12 if self.mu is not None else SMALLEST_DELTA}
        found = {delta: self.loss.epsilon(delta) for delta in sorted(deltas, reverse=True)}
        return {delta: epsilon for delta, epsilon in found.items() if math.isfinite(epsilon)}

    @property
    def advantage(self) -> float:
        """The largest membership advantage of any attack on any record."""
        return float(self.loss.advantage_at(1.0))

    def true_positive_rates(self) -> dict[float, float]:
        """Return the largest true positive rate of any attack at some false positive rates."""
        return {rate: self.loss.true_positive_rate(rate) for rate in (0.001, 0.01, 0.1)}

    @property
    def fraction_above(self) -> NoisyFraction | None:
        """The estimated fraction of the records at or above the threshold: the requested one, unless the histogram
        of the scores differs from it by more than its error, because many records have the same score."""
        if self.threshold is None:
            return None
        bins, wanted = self._score_bins, self.threshold.fraction
        counted = bins.fraction(bins.starts >= self.threshold.value)
        if abs(counted.value - wanted) > counted.standard_error:
            return counted
        return NoisyFraction(wanted, max(self.threshold.fraction_error, counted.standard_error))

    def by_epsilon(self, rounded: Callable[[float], float] = float) -> dict[float, NoisyFraction]:
        """Return the estimated fraction of the records by their largest ε, largest first; empty without threshold.

        ε with the same `rounded` value are taken together. Noisy counts are added before they are cut off at 0, so
        that noise cancels.
        """
        if self.threshold is None:
            return {}
        bins = self._score_bins
        bounds = np.array([rounded(float(epsilon)) for epsilon in self.epsilon_at(self._largest_weights)])
        return {float(bound): bins.fraction(bounds == bound) for bound in np.unique(bounds)[::-1]}

    @cached_property
    def _score_bins(self) -> "_ScoreBins":
        assert self.threshold is not None
        lowest = min(int(self.threshold.edges[0]), self.weights.start) - 1
        if self.borrowed:
            sigma, rows = self.borrowed.sigma, self.borrowed.rows
        else:
            (sigma,) = [e.sigma for e in self.events if e.name == SCORES and isinstance(e, GaussianEvent)]
            rows = self.rows
        return _ScoreBins.of(self.threshold, lowest=lowest, sigma=sigma, rows=rows)

    def epsilon_in_both(self, score: int | None = None) -> float | None:
        """Return the ε at δ of this release and the one its scores came from, for a record in both tables.

        Without a score, for any record. None where the scores are this release's own. This run may have been
        chosen by what the earlier release showed.
        """
        if self.borrowed is None:
            return None
        here = there = 1.0
        if score is not None:
            here, there = (float(w.of(np.array([score]))[0]) / FULL for w in (self.weights, self.borrowed.weights))
        earlier = [Loss.of_schema(self.borrowed.schema), Loss.of(self.borrowed.events).at(there)]
        return Loss.adaptive([*earlier, self.schema_loss, self.run_loss.at(here)], self.delta).epsilon(self.delta)

    @property
    def _largest_weights(self) -> Floats:
        """The largest weight in each bin: weights fall with the score."""
        return self.weights.of(self._score_bins.starts) / FULL

    def distribution(self) -> tuple[Stratum, ...]:
        """Return the noisy score histogram with the ε of its weights, ordinary records first; empty if all weigh
        the same."""
        if self.threshold is None:
            return ()
        bins, weights = self._score_bins, self._largest_weights
        fractions = np.maximum(bins.counts, 0.0)
        fractions = fractions / max(float(fractions.sum()), 1e-300)
        epsilons = self.epsilon_at(weights)
        return tuple(
            Stratum(float(fraction), float(epsilon), float(weight), float(start) / NAT)
            for fraction, epsilon, weight, start in zip(fractions, epsilons, weights, bins.starts, strict=True)
            if fraction > 0
        )

    def fraction_at_most(self, epsilon: float) -> float:
        """Return the estimated fraction of the records that lose at most ε. With `[person]`: of the rows, each
        with the loss of a person all of whose rows are like it."""
        return float(sum(stratum.fraction for stratum in self.distribution() if stratum.epsilon <= epsilon))


@dataclass(frozen=True)
class _ScoreBins:
    """A histogram of scores with an edge at the threshold."""

    starts: Ints
    counts: Floats
    parts: Floats
    """How much of a measured bin each bin is."""
    unsure: Floats
    """How many records may be in the other part of the threshold's bin."""
    sigma: float
    rows: float

    @classmethod
    def of(cls, threshold: Threshold, *, lowest: int, sigma: float, rows: float) -> "_ScoreBins":
        """The bins of all rows, ordinary records first."""
        parts = [
            _cut(threshold.moved_edges(row), counts.astype(np.float64), threshold.value, lowest)
            for row, counts in enumerate(threshold.counts)
        ]
        starts, counts, shares, unsure = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        return cls(starts[order], counts[order], shares[order], unsure[order], sigma, rows)

    def fraction(self, kept: Bools) -> NoisyFraction:
        noise = self.sigma * math.sqrt(max(float(self.parts[kept].sum()), 1.0))
        error = math.hypot(noise, float(self.unsure[kept].sum()))
        return NoisyFraction.of(float(self.counts[kept].sum()) / self.rows, error / self.rows)


def _cut(edges: Ints, counts: Floats, value: int, lowest: int) -> tuple[Ints, Floats, Floats, Floats]:
    """Return the starts, counts, parts and unsure numbers of one row's bins.

    The threshold's bin is divided by width. The records may all be on one side.
    """
    k = int(np.searchsorted(edges, value))
    parts, unsure = np.ones(len(counts)), np.zeros(len(counts))
    if k == len(edges) or edges[k] != value:
        inside = 0 < k < len(edges)
        below = (value - edges[k - 1]) / (edges[k] - edges[k - 1]) if inside else float(k > 0)
        share = np.array([below, 1 - below])
        error = math.sqrt(float(share.prod())) if inside else 0.5  # an end has no width
        edges = np.insert(edges, k, value)
        unsure = np.concatenate([unsure[:k], np.array([-error, error]) * counts[k], unsure[k + 1 :]])
        counts = np.concatenate([counts[:k], counts[k] * share, counts[k + 1 :]])
        parts = np.concatenate([parts[:k], share, parts[k + 1 :]])
    return np.concatenate([[min(lowest, int(edges[0]) - 1)], edges]), counts, parts, unsure
