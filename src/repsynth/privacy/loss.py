"""What a record loses, by its influence w: the largest of its weights in any weighted measurement.

Measurements that weights do not touch cost every record the same. What a weighted Gaussian measurement or choice
costs is w times its μ; a training's rounds are Gaussian measurements of a random sample whose noise is 1/w times
as large. That holds for all sets of releases in which the record has no more influence than w. Without training
the whole is exactly Gaussian and in closed form. With it, losses are composed numerically (see `pld`).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from repsynth.arrays import Floats
from repsynth.errors import ConfigError
from repsynth.privacy import pld
from repsynth.privacy.events import Charge, Event, SampledEvent
from repsynth.privacy.gaussian import advantage, compose, delta_of, epsilon_of, mu_of, true_positive_rate
from repsynth.privacy.pld import LEAST_NOISE, MOST_NOISE, SMALLEST_DELTA

WEIGHT_STEPS = 128
"""Losses of training are worked out at influences that are multiples of one over this, and rounded up between."""


@dataclass(frozen=True)
class Loss:
    """The loss of a record as a function of its influence, from 0 to 1.

    >>> loss = Loss(floor_mu=0.03, weighted_mu=0.04)
    >>> round(float(loss.mu_at(1.0)), 6), round(float(loss.epsilon_at(0.0, 1e-9)), 3)
    (0.05, 0.153)
    """

    floor_mu: float
    weighted_mu: float
    trainings: tuple[SampledEvent, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event | Charge]) -> "Loss":
        """The loss by what was measured, or by what is planned."""
        events = tuple(events)
        gaussian = [event for event in events if not isinstance(event, SampledEvent)]
        return cls(
            floor_mu=compose(event.mu for event in gaussian if not event.weighted),
            weighted_mu=compose(event.mu for event in gaussian if event.weighted),
            trainings=tuple(event for event in events if isinstance(event, SampledEvent)),
        )

    @classmethod
    def together(cls, losses: Iterable["Loss"]) -> "Loss":
        """Several runs of the same record."""
        losses = tuple(losses)
        return cls(
            compose(loss.floor_mu for loss in losses),
            compose(loss.weighted_mu for loss in losses),
            tuple(training for loss in losses for training in loss.trainings),
        )

    def __add__(self, other: "Loss") -> "Loss":
        return Loss.together([self, other])

    @property
    def mu(self) -> float | None:
        """The largest loss in Gaussian DP; None where a training makes it something else."""
        return None if self.trainings else self._gaussian_mu

    @property
    def _gaussian_mu(self) -> float:
        return compose([self.floor_mu, self.weighted_mu])

    def mu_at(self, influence: ArrayLike) -> Floats:
        """The μ of all that is not training."""
        part = np.asarray(influence, dtype=np.float64) * self.weighted_mu
        return np.minimum(np.sqrt(self.floor_mu**2 + part**2) * (1 + 1e-15), self._gaussian_mu)

    def epsilon(self, delta: float) -> float:
        """The ε of a record of full influence, at this δ."""
        if self.mu is not None:
            return float(epsilon_of(self.mu, delta))
        if delta < SMALLEST_DELTA:
            return math.inf
        return pld.epsilon(self._gaussian_mu, self.trainings, delta)

    def delta(self, epsilon: float) -> float:
        """The δ of a record of full influence, at this ε."""
        if self.mu is not None:
            return float(delta_of(self.mu, epsilon))
        return pld.delta(self._gaussian_mu, self.trainings, epsilon)

    def at(self, influence: float) -> "Loss":
        """The loss to a record of this influence, as one of full influence; where there is training, the
        influence is rounded up to a step."""
        weight = min(max(influence, 0.0), 1.0)
        if self.trainings:
            weight = math.ceil(weight * WEIGHT_STEPS) / WEIGHT_STEPS
        in_full = tuple(t for t in self.trainings if not t.weighted)
        scaled = tuple(replace(t, sigma=t.sigma / weight) for t in self.trainings if t.weighted and weight > 0)
        return Loss(self.floor_mu, weight * self.weighted_mu, in_full + scaled)

    def epsilon_at(self, influence: ArrayLike, delta: float) -> Floats:
        """The ε of records with these influences."""
        if not self.trainings:
            return epsilon_of(self.mu_at(influence), delta)
        return self._tabulated(influence, lambda loss: loss.epsilon(delta))

    def advantage_at(self, influence: ArrayLike) -> Floats:
        """The largest membership advantage of any attack on records with these influences."""
        if not self.trainings:
            return advantage(self.mu_at(influence))
        return self._tabulated(influence, lambda loss: loss.delta(0.0))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The largest true positive rate of any attack that has this false positive rate."""
        if self.mu is not None:
            return true_positive_rate(self.mu, false_positive_rate)
        highest = min(self.epsilon(SMALLEST_DELTA), -math.log(false_positive_rate))
        levels = np.linspace(0.0, highest, 200)
        rates = (math.exp(e) * false_positive_rate + self.delta(e) for e in levels)
        return min(1.0, min(rates) * (1 + 1e-13))

    def _tabulated(self, influence: ArrayLike, value: Callable[["Loss"], float]) -> Floats:
        """A value for each influence, worked out once for each step."""
        steps = np.ceil(np.clip(np.asarray(influence, dtype=np.float64), 0, 1) * WEIGHT_STEPS).astype(np.int64)
        table = np.full(WEIGHT_STEPS + 1, np.nan)
        for step in np.unique(steps):
            table[step] = value(self.at(step / WEIGHT_STEPS))
        found: Floats = table[steps]
        return found


def calibrate(loss: Loss, training: SampledEvent, *, epsilon: float, delta: float) -> SampledEvent:
    """The training with the least noise, to a thousandth, that keeps the whole within ε at δ. A training needs no
    less noise than `LEAST_NOISE`, even where the budget would allow it.

    >>> training = SampledEvent("gradients", sensitivity=1.0, sigma=1.0, rate=0.0625, rounds=100)
    >>> found = calibrate(Loss(0.05, 0.0), training, epsilon=1.0, delta=1e-6)
    >>> 2.5 < found.noise < 3.5 and (Loss(0.05, 0.0) + Loss.of([found])).epsilon(1e-6) <= 1.0
    True
    """
    if delta < SMALLEST_DELTA:
        raise ConfigError(f"delta is {delta:g}; training is accounted for down to {SMALLEST_DELTA:g}: use that")

    def fits(noise: float) -> bool:
        sigma = noise * training.sensitivity * (1 + 1e-12)
        return (loss + Loss.of([replace(training, sigma=sigma)])).epsilon(delta) <= epsilon

    # Many rounds are about Gaussian: the noise cannot be far from this, unless rounds are few.
    left = mu_of(epsilon, delta) ** 2 - float(loss.mu_at(1.0)) ** 2
    low = high = max(training.rate * math.sqrt(training.rounds / max(left, 1e-12)), LEAST_NOISE)
    while not fits(high):
        low, high = high, high * 1.2
    if high > MOST_NOISE:
        raise ConfigError("the noise of so small a budget is beyond what is supported; give a larger one")
    while low > LEAST_NOISE and fits(low):
        low, high = max(low / 1.2, LEAST_NOISE), low
    if fits(low):
        high = low
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    return replace(training, sigma=high * training.sensitivity * (1 + 1e-12))
