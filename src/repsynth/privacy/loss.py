"""The loss of a record by its influence w: its largest weight in any weighted measurement.

An unweighted measurement costs every record its full charge. A weighted Gaussian measurement or choice costs w
times its μ, and a weighted training has 1/w times the noise. This holds for all sets of releases in which the
influence of the record is w or less. Without training, the loss is exactly Gaussian, in closed form. Trainings are
composed numerically (see `pld`) if all settings were fixed in advance, and by a dominating Gaussian otherwise (see
`adaptive_filter`). A probability of `failure` is subtracted from δ.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace
from numpy.typing import ArrayLike

from repsynth.arrays import Floats
from repsynth.errors import ConfigError
from repsynth.privacy import pld
from repsynth.privacy.adaptive_filter import FAILURE_PART, Bound, bound_training
from repsynth.privacy.events import Charge, Event, SampledEvent, SelectionEvent
from repsynth.privacy.gaussian import advantage, compose, delta_of, epsilon_of, mu_of, true_positive_rate
from repsynth.privacy.pld import LEAST_NOISE, MOST_NOISE, SMALLEST_DELTA
from repsynth.privacy.unit import COLLISION
from repsynth.schema import Measured, Schema

WEIGHT_STEPS = 128
"""Losses of trainings are computed at multiples of one over this number, and rounded up in between."""


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
    failure: float = 0.0
    """A bound on the probability that a selection shows a value of a single record, that two persons share a
    fingerprint, or that the dominating Gaussian of a training fails."""
    training_failure: float = 0.0
    """The failure of the dominating Gaussian of each training; 0 if trainings are composed numerically."""

    @classmethod
    def of(cls, events: Iterable[Event | SelectionEvent | Charge]) -> "Loss":
        """Return the loss of events, or of planned charges."""
        events = tuple(events)
        gaussian = [event for event in events if not isinstance(event, SampledEvent)]
        return cls(
            floor_mu=compose(event.mu for event in gaussian if not event.weighted),
            weighted_mu=compose(event.mu for event in gaussian if event.weighted),
            trainings=tuple(event for event in events if isinstance(event, SampledEvent)),
            failure=_added(event.failure for event in events if isinstance(event, SelectionEvent)),
        )

    @classmethod
    def together(cls, losses: Iterable["Loss"]) -> "Loss":
        """Compose runs whose settings were fixed in advance."""
        losses = tuple(losses)
        assert not any(loss.training_failure for loss in losses)  # `adaptive` composes all parts in one call
        return cls(
            compose(loss.floor_mu for loss in losses),
            compose(loss.weighted_mu for loss in losses),
            tuple(training for loss in losses for training in loss.trainings),
            _added(loss.failure for loss in losses),
        )

    @classmethod
    def adaptive(cls, losses: Iterable["Loss"], delta: float) -> "Loss":
        """Compose runs whose settings may depend on the earlier releases.

        Numerical composition does not hold for them. A hundredth of δ is reserved for trainings, even without one,
        because it must not depend on the choice of settings.
        """
        losses = tuple(losses)
        whole, part = cls.together(losses), FAILURE_PART * delta
        return dataclasses.replace(
            whole, failure=_added([whole.failure, part]), training_failure=part / len(losses)
        )

    @classmethod
    def of_schema(cls, schema: Schema) -> "Loss":
        """Return the cost of measuring the schema, and the probability that two persons share a fingerprint."""
        collision = cls(0.0, 0.0, failure=0.0 if schema.person is None else COLLISION)
        return cls.of_measured(schema.measured) + collision

    @classmethod
    def of_measured(cls, measured: Measured | None) -> "Loss":
        """Return the cost of a measured schema; 0 for a written one."""
        return cls(0.0, 0.0) if measured is None else cls(measured.mu, 0.0, failure=measured.failure)

    def __add__(self, other: "Loss") -> "Loss":
        return Loss.together([self, other])

    def after(self, schema: "Loss", delta: float) -> "Loss":
        """Compose a run with the loss of its schema. The settings may depend on a measured schema."""
        parts = [schema, self]
        return Loss.adaptive(parts, delta) if schema.floor_mu else Loss.together(parts)

    @property
    def mu(self) -> float | None:
        """The largest loss in Gaussian DP; None with a training or a failure."""
        return None if self.trainings or self.failure else self._gaussian_mu

    @property
    def _gaussian_mu(self) -> float:
        return compose([self.floor_mu, self.weighted_mu])

    @property
    def _dominating_mu(self) -> float | None:
        """The μ of a Gaussian that dominates everything but the failure; None with numerical composition."""
        if self.trainings and not self.training_failure:
            return None
        room = Bound(0.0, self.training_failure)
        return compose([self.floor_mu, self.weighted_mu, *(bound_training(t, room).mu for t in self.trainings)])

    def mu_at(self, influence: ArrayLike) -> Floats:
        """Return the μ of everything but the trainings."""
        part = np.asarray(influence, dtype=np.float64) * self.weighted_mu
        return np.minimum(np.sqrt(self.floor_mu**2 + part**2) * (1 + 1e-15), self._gaussian_mu)

    def epsilon(self, delta: float) -> float:
        """Return the ε at δ of a record of influence 1; infinite if the failure exceeds δ."""
        rest = self._without_failure(delta)
        if rest <= 0:
            return math.inf
        if (mu := self._dominating_mu) is not None:
            return float(epsilon_of(mu, rest))
        return pld.epsilon(self._gaussian_mu, self.trainings, rest) if rest >= SMALLEST_DELTA else math.inf

    def delta(self, epsilon: float) -> float:
        """Return the δ at ε of a record of influence 1."""
        if (mu := self._dominating_mu) is not None:
            rest = float(delta_of(mu, epsilon))
        else:
            rest = pld.delta(self._gaussian_mu, self.trainings, epsilon)
        return min(_added([rest, self.failure]), 1.0)

    def _without_failure(self, delta: float) -> float:
        """Return δ less the failure, rounded down."""
        return delta if not self.failure else (delta - self.failure) * (1 - 1e-15)

    def at(self, influence: float) -> "Loss":
        """Return the loss of a record of this influence. With a training, influence is rounded up to a step."""
        weight = min(max(influence, 0.0), 1.0)
        if self.trainings:
            weight = math.ceil(weight * WEIGHT_STEPS) / WEIGHT_STEPS
        in_full = tuple(t for t in self.trainings if not t.weighted)
        scaled = tuple(replace(t, sigma=t.sigma / weight) for t in self.trainings if t.weighted and weight > 0)
        return dataclasses.replace(self, weighted_mu=weight * self.weighted_mu, trainings=in_full + scaled)

    def epsilon_at(self, influence: ArrayLike, delta: float) -> Floats:
        rest = self._without_failure(delta)
        if not self.trainings and rest > 0:
            return epsilon_of(self.mu_at(influence), rest)
        return self._tabulated(influence, lambda loss: loss.epsilon(delta))

    def advantage_at(self, influence: ArrayLike) -> Floats:
        """Return the largest membership advantage of any attack on records with these influences."""
        if not self.trainings:
            gaussian = advantage(self.mu_at(influence))
            return np.minimum((gaussian + self.failure) * (1 + 1e-15), 1.0) if self.failure else gaussian
        return self._tabulated(influence, lambda loss: loss.delta(0.0))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """Return the largest true positive rate of any attack with this false positive rate."""
        if (mu := self._dominating_mu) is not None and self.failure < 0.5:
            gaussian = true_positive_rate(mu, false_positive_rate / (1 - self.failure))
            return min(_added([gaussian, self.failure]), 1.0)
        highest = min(self.epsilon(SMALLEST_DELTA), -math.log(false_positive_rate))
        levels = np.linspace(0.0, highest, 200)
        rates = (math.exp(e) * false_positive_rate + self.delta(e) for e in levels)
        return min(1.0, min(rates) * (1 + 1e-13))

    def _tabulated(self, influence: ArrayLike, value: Callable[["Loss"], float]) -> Floats:
        """Return a value for each influence, computed once for each step."""
        steps = np.ceil(np.clip(np.asarray(influence, dtype=np.float64), 0, 1) * WEIGHT_STEPS).astype(np.int64)
        table = np.full(WEIGHT_STEPS + 1, np.nan)
        for step in np.unique(steps):
            table[step] = value(self.at(step / WEIGHT_STEPS))
        found: Floats = table[steps]
        return found


def weight_grid(steps: int) -> Floats:
    """Return the weights from 0 to 1 at which bounds are tabulated.

    Each is slightly above a multiple of 1 / `steps`, because the weight of a person is a sum that is rounded up.
    """
    return np.minimum(np.arange(steps + 1) / steps * (1 + 2e-9), 1.0)


def _added(numbers: Iterable[float]) -> float:
    """Return the sum, rounded up; an empty sum is exactly 0."""
    return math.fsum(numbers) * (1 + 1e-15)


def calibrate(loss: Loss, training: SampledEvent, *, epsilon: float, delta: float) -> SampledEvent:
    """Return the training with the least noise, to a thousandth, that keeps the total loss within ε at δ.

    The noise is never below `LEAST_NOISE`.

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

    # Many rounds are approximately Gaussian, so start the search from this noise.
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
