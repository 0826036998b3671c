"""What a run counts for where later runs may depend on what it released: a Gaussian of some μ, but for a failure.

Gaussian measurements compose to √(Σ μ²) even if each μ is chosen after seeing what was released before, as long as
the sum stays within a limit that is fixed in advance. A training is not Gaussian. But it tells no more than a coin
that reveals everything with probability `failure` and a Gaussian measurement of `mu` do together, once

    δ of the training at ε  ≤  failure + (1 − failure) · δ of the Gaussian at ε     for every ε ≥ 0,

for adding a record and for removing it. docs/privacy.md has the proofs.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln, logsumexp

from repsynth.arrays import Floats
from repsynth.privacy import pld
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.gaussian import compose, delta_below, mu_of

FAILURE_PART = 0.01
"""The part of a limit's δ that is set apart for the failures of trainings."""

_LEVELS = 4000
_SMALLEST_PART = 1e-6  # of the failures: a training that needs less gets as much as this
_BISECTIONS = 60
_ORDERS = np.unique(np.round(np.geomspace(2, 2048, 120)).astype(int))


@dataclass(frozen=True)
class Bound:
    """What something tells at most: as much as a Gaussian measurement of `mu`, unless a coin that falls with
    probability `failure` reveals everything."""

    mu: float
    failure: float = 0.0

    @classmethod
    def together(cls, bounds: Iterable["Bound"]) -> "Bound":
        """Several of them, each chosen after the ones before; rounded up.

        >>> round(Bound.together([Bound(3.0), Bound(4.0, 1e-9)]).mu, 9)
        5.0
        """
        bounds = tuple(bounds)
        failure = math.fsum(bound.failure for bound in bounds) * (1 + 1e-15)
        return cls(compose(bound.mu for bound in bounds), failure)


@lru_cache(maxsize=256)
def room_in(limit: Budget) -> Bound:
    """What fits into (ε, δ) whatever it depends on: the largest μ that leaves a part of δ to the failures.

    >>> limit = Budget.approximate(epsilon=2.0, delta=1e-9)
    >>> 0.9995 < room_in(limit).mu / limit.mu < 1.0
    True
    """
    failure = FAILURE_PART * limit.delta
    return Bound(min(mu_of(limit.epsilon, limit.delta - failure), limit.mu), failure)


@lru_cache(maxsize=256)
def bound_training(training: SampledEvent, room: Bound) -> Bound:
    """Return the smallest Gaussian that, with a failure, dominates a training.

    The training's share of the room's failures is its share of the room's μ², so that failures never run out
    before μ² does. In a room without μ, it may use all of the failures.

    >>> training = SampledEvent("gradients", sensitivity=1.0, sigma=6.0, rate=0.0625, rounds=300)
    >>> bound = bound_training(training, room_in(Budget.approximate(epsilon=2.0, delta=1e-9)))
    >>> 0.18 < bound.mu < 0.19 and bound.failure < 1e-11
    True
    """
    in_full = math.sqrt(training.rounds) / training.noise * (1 + 1e-14)  # as if everybody took part: no failure
    if training.rate >= 1:
        return Bound(in_full)
    levels = np.linspace(0.0, _level(training, room.failure * _SMALLEST_PART), _LEVELS)
    deltas = np.minimum(pld.deltas(training, levels), _renyi_deltas(training, levels))

    def failure(mu: float) -> float:
        return min(room.failure * (mu / room.mu) ** 2, 1.0) if room.mu else room.failure

    def fits(mu: float) -> bool:
        # Between two levels the training's δ is at most that at the lower one, the Gaussian's at least that at
        # the upper one; beyond the last level the failure alone must do.
        gaussian = np.append(delta_below(mu, levels[1:]), 0.0)
        return bool(np.all(deltas <= (failure(mu) + (1 - failure(mu)) * gaussian) * (1 - 1e-14)))

    if not fits(in_full):
        return Bound(in_full)
    low, high = 0.0, in_full
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if fits(middle) else (middle, high)
    return Bound(high, failure(high))


def _renyi_deltas(training: SampledEvent, levels: Floats) -> Floats:
    """Another bound on the training's δ: looser, but good far below the error of numerical composition."""
    logs = _log_deltas(training)[:, None] - (_ORDERS[:, None] - 1) * levels[None, :]
    return np.asarray(np.exp(np.minimum(logs.min(axis=0), 0.0)))


def _level(training: SampledEvent, delta: float) -> float:
    """An ε at which the training's δ is at most this."""
    return max(float(np.min((_log_deltas(training) - math.log(delta / 2)) / (_ORDERS - 1))), 1e-9)


def _log_deltas(training: SampledEvent) -> Floats:
    """For each order a, the logarithm of the δ at ε = 0 that follows from the training's moments; it falls by
    (a − 1) ε. The a-th moment of a sampled Gaussian's likelihood ratio is a binomial sum, larger for removing a
    record than for adding it (Mironov, Talwar and Zhang, 2019); δ ≤ moment · (1 − 1/a)^(a−1) / a (Canonne, Kamath
    and Steinke, 2020)."""
    rate, noise = training.rate, training.noise
    found = []
    for order in _ORDERS:
        k = np.arange(order + 1)
        chances = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        chances += k * math.log(rate) + (order - k) * math.log1p(-rate)
        moment = float(logsumexp(chances + (k * k - k) / (2 * noise**2)))
        moments = training.rounds * (moment * (1 + 1e-12) + 1e-10)  # rounded up by more than its error
        found.append(moments + (order - 1) * math.log1p(-1 / order) - math.log(order))
    return np.array(found)
