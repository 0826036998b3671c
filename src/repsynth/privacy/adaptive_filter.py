"""Adaptive composition: bounds for runs whose settings may depend on earlier releases (a privacy filter).

Gaussian measurements compose to √(Σ μ²) even if each μ is chosen after seeing the earlier releases, as long as the
sum stays within a limit that is fixed in advance. A training is not Gaussian. It is dominated by a Gaussian
measurement of `mu`, together with a coin that reveals everything with probability `failure`, if

    δ of the training at ε  ≤  failure + (1 − failure) · δ of the Gaussian at ε     for every ε ≥ 0,

both for adding and for removing a record. docs/theorems/ledger.md has the proofs.
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
"""The part of a limit's δ that is reserved for the failures of trainings."""

_LEVELS = 4000
_SMALLEST_PART = 1e-6  # a training gets at least this part of the reserved failures
_BISECTIONS = 60
_ORDERS = np.unique(np.round(np.geomspace(2, 2048, 120)).astype(int))


@dataclass(frozen=True)
class Bound:
    """The loss of a Gaussian measurement of `mu`, except with probability `failure`."""

    mu: float
    failure: float = 0.0

    @classmethod
    def together(cls, bounds: Iterable["Bound"]) -> "Bound":
        """Compose several bounds, each chosen after the earlier ones. Rounded up.

        >>> round(Bound.together([Bound(3.0), Bound(4.0, 1e-9)]).mu, 9)
        5.0
        """
        bounds = tuple(bounds)
        failure = math.fsum(bound.failure for bound in bounds) * (1 + 1e-15)
        return cls(compose(bound.mu for bound in bounds), failure)


@lru_cache(maxsize=256)
def room_in(limit: Budget) -> Bound:
    """Return the room of a limit (ε, δ): the largest μ that leaves a part of δ to the failures.

    >>> limit = Budget.approximate(epsilon=2.0, delta=1e-9)
    >>> 0.9995 < room_in(limit).mu / limit.mu < 1.0
    True
    """
    failure = FAILURE_PART * limit.delta
    return Bound(min(mu_of(limit.epsilon, limit.delta - failure), limit.mu), failure)


@lru_cache(maxsize=256)
def bound_training(training: SampledEvent, room: Bound) -> Bound:
    """Return the smallest Gaussian that dominates a training, except with the probability of failure.

    The training gets the same share of the room's failures as of its μ², so that failures never run out first. In
    a room without μ, it gets all of them.

    >>> training = SampledEvent("gradients", sensitivity=1.0, sigma=6.0, rate=0.0625, rounds=300)
    >>> bound = bound_training(training, room_in(Budget.approximate(epsilon=2.0, delta=1e-9)))
    >>> 0.18 < bound.mu < 0.19 and bound.failure < 1e-11
    True
    """
    in_full = math.sqrt(training.rounds) / training.noise * (1 + 1e-14)  # without subsampling, so without failure
    if training.rate >= 1:
        return Bound(in_full)
    levels = np.linspace(0.0, _level(training, room.failure * _SMALLEST_PART), _LEVELS)
    deltas = np.minimum(pld.deltas(training, levels), _renyi_deltas(training, levels))

    def failure(mu: float) -> float:
        return min(room.failure * (mu / room.mu) ** 2, 1.0) if room.mu else room.failure

    def fits(mu: float) -> bool:
        # Between two levels, compare the training's δ at the lower one with the Gaussian's at the upper one.
        # Beyond the last level, the failure alone must cover the training.
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
    """Return a looser bound on the training's δ that also holds below the error of numerical composition."""
    logs = _log_deltas(training)[:, None] - (_ORDERS[:, None] - 1) * levels[None, :]
    return np.asarray(np.exp(np.minimum(logs.min(axis=0), 0.0)))


def _level(training: SampledEvent, delta: float) -> float:
    """Return an ε at which the training's δ is no larger than `delta`."""
    return max(float(np.min((_log_deltas(training) - math.log(delta / 2)) / (_ORDERS - 1))), 1e-9)


def _log_deltas(training: SampledEvent) -> Floats:
    """Return, for each Rényi order a, the logarithm of a bound on δ at ε = 0; it decreases by (a − 1) ε.

    The a-th moment of the likelihood ratio of a sampled Gaussian is a binomial sum, larger for removing a record
    than for adding one (Mironov, Talwar and Zhang 2019). δ ≤ moment · (1 − 1/a)^(a−1) / a (Canonne, Kamath and
    Steinke 2020).
    """
    rate, noise = training.rate, training.noise
    found = []
    for order in _ORDERS:
        k = np.arange(order + 1)
        chances = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
        chances += k * math.log(rate) + (order - k) * math.log1p(-rate)
        moment = float(logsumexp(chances + (k * k - k) / (2 * noise**2)))
        moments = training.rounds * (moment * (1 + 1e-12) + 1e-10)  # rounded up beyond its error
        found.append(moments + (order - 1) * math.log1p(-1 / order) - math.log(order))
    return np.array(found)
