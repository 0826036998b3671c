"""What a release cost, in every unit a reader may want; all of it publishable."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.privacy.events import Event
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import SMALLEST_DELTA
from repsynth.scoring.base import NAT
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.weights import FULL, WeightFunction


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

    The total bounds every record. A record of weight w loses at most `epsilon_at(w)` given the scores'
    release; anybody can look up their own weight in the public files.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> privacy = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6).privacy
    >>> round(privacy.epsilon, 6), bool(privacy.epsilon_at(0.2) < 0.31)
    (1.0, True)
    """

    events: tuple[Event, ...]
    delta: float
    rows: float
    threshold: Threshold | None
    weights: WeightFunction
    private: bool

    @cached_property
    def loss(self) -> Loss:
        """What a record loses, by its influence."""
        return Loss.of(self.events)

    @property
    def mu(self) -> float | None:
        """The total in Gaussian DP; None where a model was trained, whose loss is not Gaussian."""
        return self.loss.mu

    @cached_property
    def epsilon(self) -> float:
        """The total ε at δ."""
        return self.loss.epsilon(self.delta)

    @property
    def rho(self) -> float | None:
        """The total in zero-concentrated DP, where it is Gaussian."""
        return None if self.mu is None else self.mu**2 / 2

    def epsilon_at(self, influence: Floats | float) -> Floats:
        """The realised ε at δ of records that have this share of the largest influence in synthesis."""
        return self.loss.epsilon_at(influence, self.delta)

    @property
    def outlier_weight(self) -> float:
        """The largest weight from the threshold on; 1 where there is none."""
        if self.threshold is None:
            return 1.0
        return float(self.weights.of(np.array([self.threshold.value]))[0]) / FULL

    @property
    def outlier_epsilon(self) -> float:
        """What a record above the threshold loses at most, given the released scores."""
        return float(self.epsilon_at(self.outlier_weight))

    def epsilon_by_delta(self) -> dict[float, float]:
        """The total ε at several δ: one guarantee, quoted in different ways."""
        deltas = {self.delta, 1e-5, 1e-6, 1e-9, 1e-12 if self.mu is not None else SMALLEST_DELTA}
        return {delta: self.loss.epsilon(delta) for delta in sorted(deltas, reverse=True)}

    @property
    def advantage(self) -> float:
        """The largest membership advantage of any attack on any record."""
        return float(self.loss.advantage_at(1.0))

    def true_positive_rates(self) -> dict[float, float]:
        """The largest true positive rate of any attack at these false positive rates."""
        return {rate: self.loss.true_positive_rate(rate) for rate in (0.001, 0.01, 0.1)}

    def distribution(self) -> tuple[Stratum, ...]:
        """How the loss is spread: the noisy score histogram, already paid for, through the ε of its weights.

        Ordinary records come first. Empty where no threshold was measured: then all weigh the same.
        """
        if self.threshold is None:
            return ()
        edges, counts = _with_edge(self.threshold.edges, self.threshold.counts, self.threshold.value)
        fractions = np.maximum(counts, 0.0)
        fractions = fractions / max(float(fractions.sum()), 1e-300)
        starts = np.concatenate([[min(int(edges[0]), self.weights.start) - 1], edges])
        weights = self.weights.of(starts) / FULL  # the largest in each bin: weights fall with the score
        epsilons = self.epsilon_at(weights)
        return tuple(
            Stratum(float(fraction), float(epsilon), float(weight), float(start) / NAT)
            for fraction, epsilon, weight, start in zip(fractions, epsilons, weights, starts, strict=True)
            if fraction > 0
        )

    def fraction_at_most(self, epsilon: float) -> float:
        """About which fraction of the records loses at most this ε."""
        return float(sum(stratum.fraction for stratum in self.distribution() if stratum.epsilon <= epsilon))


def _with_edge(edges: Ints, counts: Ints, edge: int) -> tuple[Ints, Floats]:
    """The histogram with one more edge; the bin it falls into is shared out by width."""
    k = int(np.searchsorted(edges, edge))
    spread = counts.astype(np.float64)
    if k < len(edges) and edges[k] == edge:
        return edges, spread
    inside = 0 < k < len(edges)
    below = (edge - edges[k - 1]) / (edges[k] - edges[k - 1]) if inside else float(k > 0)
    parts = [spread[k] * below, spread[k] * (1 - below)]
    return np.insert(edges, k, edge), np.concatenate([spread[:k], parts, spread[k + 1 :]])
