"""The best that any attack can do, by the account: no run is needed but to know the weights."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from repsynth.arrays import Floats
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import Loss

_STEPS = 16  # influences that the loss of a training is worked out for
_CURVE = np.concatenate([np.geomspace(1e-6, 0.01, 8), np.linspace(0.02, 1.0, 25)])


@dataclass(frozen=True)
class Best:
    """Of records with some influences: the mean of the best area, advantage and rates; the largest ε, and its
    μ."""

    area: float
    advantage: float
    rate_at_1: float
    rate_at_01: float
    largest_epsilon: float
    largest_mu: float | None


def best_attack(loss: Loss, influence: Floats, delta: float) -> Best:
    """The trade-off at each record's influence. That of a training is rounded up to a sixteenth.

    >>> found = best_attack(Loss(0.6, 0.8), np.array([0.0, 1.0]), 1e-6)
    >>> round(found.largest_mu, 6), round(found.advantage, 4)
    (1.0, 0.3094)
    """
    influence = np.clip(np.asarray(influence, dtype=np.float64).ravel(), 0.0, 1.0)
    if loss.trainings:
        return _of_training(loss, influence, delta)
    mu = loss.mu_at(influence)
    largest = float(mu.max())
    return Best(
        area=float(ndtr(mu / np.sqrt(2)).mean()),
        advantage=float(loss.advantage_at(influence).mean()),
        rate_at_1=float(ndtr(ndtri(0.01) + mu).mean()),
        rate_at_01=float(ndtr(ndtri(0.001) + mu).mean()),
        largest_epsilon=float(epsilon_of(largest, delta)),
        largest_mu=largest,
    )


def _of_training(loss: Loss, influence: Floats, delta: float) -> Best:
    steps, counts = np.unique(np.ceil(influence * _STEPS) / _STEPS, return_counts=True)
    rows = []
    for step in steps:
        there = loss.at(float(step))
        curve = [there.true_positive_rate(float(x)) if x < 1 else 1.0 for x in _CURVE]
        area = float(np.trapezoid([0.0, *curve], [0.0, *_CURVE]))
        rows.append((area, float(loss.advantage_at(step)), *(there.true_positive_rate(f) for f in (0.01, 0.001))))
    area, gain, at_1, at_01 = np.average(np.array(rows), axis=0, weights=counts).tolist()
    return Best(area, gain, at_1, at_01, float(loss.epsilon_at(float(steps[-1]), delta)), None)
