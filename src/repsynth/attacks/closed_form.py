"""The best that any attack can do, by the account: no run is needed but to know the weights."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from repsynth.arrays import Floats
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import Loss

_STEPS = 16  # influences that the loss of a training is worked out for
_ALARMS = np.concatenate([np.geomspace(1e-6, 0.01, 9), np.linspace(0.02, 0.98, 25)])
_POINTS = 200  # quantiles that stand for all records


@dataclass(frozen=True)
class Best:
    """Of records with some influences: the area, advantage and rates of the best attack on all of them, and the
    largest ε of any, with its μ."""

    area: float
    advantage: float
    rate_at_1: float
    rate_at_01: float
    largest_epsilon: float
    largest_mu: float | None


def best_attack(loss: Loss, influence: Floats, delta: float) -> Best:
    """The likelihood ratio, which knows that some records are easier than others, on all records together. The
    influence on a training is rounded up to a sixteenth.

    >>> found = best_attack(Loss(0.6, 0.8), np.array([0.0, 1.0]), 1e-6)
    >>> round(found.largest_mu, 6), round(found.advantage, 4)
    (1.0, 0.3094)
    """
    influence = np.clip(np.asarray(influence, dtype=np.float64).ravel(), 0.0, 1.0)
    if loss.trainings:
        return _of_training(loss, influence, delta)
    mu = loss.mu_at(influence)
    largest = float(mu.max())
    some = np.quantile(mu, (np.arange(_POINTS) + 0.5) / _POINTS)
    return Best(
        area=float(ndtr(np.hypot(some[:, None], some[None]) / 2).mean()),
        advantage=float(loss.advantage_at(influence).mean()),
        rate_at_1=_pooled_rate(some, 0.01),
        rate_at_01=_pooled_rate(some, 0.001),
        largest_epsilon=float(epsilon_of(largest, delta)),
        largest_mu=largest,
    )


def _pooled_rate(mu: Floats, false_alarms: float) -> float:
    """The true positive rate of a common threshold on log-likelihood ratios, which are N(± μ²/2, μ²)."""
    low, high = -(float(mu.max()) ** 2) - 1, float(mu.max()) ** 2 + 40 * float(mu.max()) + 1
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if ndtr(-middle / mu - mu / 2).mean() > false_alarms else (low, middle)
    return float(ndtr(-high / mu + mu / 2).mean())


def _of_training(loss: Loss, influence: Floats, delta: float) -> Best:
    """The common curve is the lower envelope of lines: at each slope every record does what is best there."""
    steps, counts = np.unique(np.ceil(influence * _STEPS) / _STEPS, return_counts=True)
    curves = np.array([[loss.at(float(s)).true_positive_rate(float(x)) for x in _ALARMS] for s in steps])
    slopes = np.geomspace(1e-3, 1e6, 400)
    gains = np.maximum((curves[:, None] - slopes[:, None] * _ALARMS).max(axis=2), 0.0)  # (steps, slopes)
    mean = np.average(np.maximum(gains, 1 - slopes), axis=0, weights=counts)

    def rate(false_alarms: float) -> float:
        return min(float((mean + slopes * false_alarms).min()), 1.0)

    grid = np.linspace(0.0, 1.0, 1001)
    return Best(
        area=float(np.trapezoid([rate(x) for x in grid], grid)),
        advantage=float(np.average(loss.advantage_at(steps), weights=counts)),
        rate_at_1=rate(0.01),
        rate_at_01=rate(0.001),
        largest_epsilon=float(loss.epsilon_at(float(steps[-1]), delta)),
        largest_mu=None,
    )
