"""What a run costs a record, by its influence w in stage 2.

Stage 1 costs every record the same. What a Gaussian measurement or a choice of stage 2 costs is w times its
μ; a training's rounds are Gaussian measurements of a random sample whose noise is 1/w times as large. Without
training the whole is exactly Gaussian and in closed form. A training's part is not: it is composed numerically
as a privacy loss distribution, rounded towards privacy, by dp-accounting (the extra `neural`).
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from repsynth.accounting import advantage, compose, delta_of, epsilon_of, mu_of, true_positive_rate
from repsynth.errors import ConfigError
from repsynth.noise import RATE_UNIT, Event, SampledEvent

Floats = NDArray[np.float64]

SMALLEST_DELTA = 1e-11
"""Below this, the error of numerical composition would be noticeable."""

LEAST_NOISE, MOST_NOISE, MOST_ROUNDS = 0.25, 1e9, 10_000
"""Trainings are accounted for within these bounds: the noise multiplier of a round, and how many there are."""

STAGE_ONE = ("size", "score", "threshold")
"""The measurements in which every record counts the same; in all others its part is scaled by its weight."""

WEIGHT_STEPS = 128
"""Losses of training are worked out at influences that are multiples of one over this, and rounded up between."""

# Composing a known Gaussian in thousands of rounds was off by up to 4e-14 in δ: this is taken off δ before.
_COMPOSITION_ERROR = 1e-12


@dataclass(frozen=True)
class Cost:
    """The loss of a record as a function of its influence, from 0 to 1.

    >>> cost = Cost(floor_mu=0.03, synthesis_mu=0.04)
    >>> round(float(cost.mu_at(1.0)), 6), round(float(cost.epsilon_at(0.0, 1e-9)), 3)
    (0.05, 0.153)
    """

    floor_mu: float
    synthesis_mu: float
    trainings: tuple[SampledEvent, ...] = ()

    @classmethod
    def of(cls, events: Iterable[Event]) -> "Cost":
        """The cost of what was measured, or of what is planned."""
        events = tuple(events)
        trainings = tuple(event for event in events if isinstance(event, SampledEvent))
        others = [event for event in events if not isinstance(event, SampledEvent)]
        return cls(
            floor_mu=compose(event.mu for event in others if event.name in STAGE_ONE),
            synthesis_mu=compose(event.mu for event in others if event.name not in STAGE_ONE),
            trainings=trainings,
        )

    @classmethod
    def together(cls, costs: Iterable["Cost"]) -> "Cost":
        """Several runs of the same record."""
        costs = tuple(costs)
        return cls(
            compose(cost.floor_mu for cost in costs),
            compose(cost.synthesis_mu for cost in costs),
            tuple(training for cost in costs for training in cost.trainings),
        )

    def __add__(self, other: "Cost") -> "Cost":
        return Cost.together([self, other])

    @property
    def mu(self) -> float | None:
        """The largest loss in Gaussian DP; None where a training makes it something else."""
        return None if self.trainings else compose([self.floor_mu, self.synthesis_mu])

    def mu_at(self, influence: ArrayLike) -> Floats:
        """The μ of all that is not training."""
        part = np.asarray(influence, dtype=np.float64) * self.synthesis_mu
        total = compose([self.floor_mu, self.synthesis_mu])
        return np.minimum(np.sqrt(self.floor_mu**2 + part**2) * (1 + 1e-15), total)

    def epsilon(self, delta: float) -> float:
        """The ε of a record of full influence, at this δ."""
        if self.mu is not None:
            return float(epsilon_of(self.mu, delta))
        if delta < SMALLEST_DELTA:
            return math.inf
        return float(_accountant(self).get_epsilon(delta - _COMPOSITION_ERROR)) * (1 + 1e-9)

    def delta(self, epsilon: float) -> float:
        """The δ of a record of full influence, at this ε."""
        if self.mu is not None:
            return float(delta_of(self.mu, epsilon))
        return min(float(_accountant(self).get_delta(epsilon)) + _COMPOSITION_ERROR, 1.0)

    def at(self, influence: float) -> "Cost":
        """The cost to a record of this influence, as one of full influence; where there is training, the
        influence is rounded up to a step."""
        weight = min(max(influence, 0.0), 1.0)
        if self.trainings:
            weight = math.ceil(weight * WEIGHT_STEPS) / WEIGHT_STEPS
        trainings = tuple(replace(t, sigma=t.sigma / weight) for t in self.trainings if weight > 0)
        return Cost(self.floor_mu, weight * self.synthesis_mu, trainings)

    def epsilon_at(self, influence: ArrayLike, delta: float) -> Floats:
        """The ε of records with these influences."""
        if not self.trainings:
            return epsilon_of(self.mu_at(influence), delta)
        return self._tabulated(influence, lambda cost: cost.epsilon(delta))

    def advantage_at(self, influence: ArrayLike) -> Floats:
        """The largest membership advantage of any attack on records with these influences."""
        if not self.trainings:
            return advantage(self.mu_at(influence))
        return self._tabulated(influence, lambda cost: cost.delta(0.0))

    def true_positive_rate(self, false_positive_rate: float) -> float:
        """The largest true positive rate of any attack that has this false positive rate."""
        if self.mu is not None:
            return true_positive_rate(self.mu, false_positive_rate)
        highest = min(self.epsilon(SMALLEST_DELTA), -math.log(false_positive_rate))
        levels = np.linspace(0.0, highest, 200)
        return min(1.0, *(math.exp(e) * false_positive_rate + self.delta(e) for e in levels))

    def _tabulated(self, influence: ArrayLike, value: Callable[["Cost"], float]) -> Floats:
        """A value for each influence, worked out once for each step."""
        steps = np.ceil(np.clip(np.asarray(influence, dtype=np.float64), 0, 1) * WEIGHT_STEPS).astype(np.int64)
        table = np.full(WEIGHT_STEPS + 1, np.nan)
        for step in np.unique(steps):
            table[step] = value(self.at(step / WEIGHT_STEPS))
        found: Floats = table[steps]
        return found


def calibrate(cost: Cost, training: SampledEvent, *, epsilon: float, delta: float) -> SampledEvent:
    """The training with the least noise, to a thousandth, that keeps the whole within ε at δ. A training needs no
    less noise than `LEAST_NOISE`, even where the budget would allow it.

    >>> training = SampledEvent("training", sensitivity=1.0, sigma=1.0, rate=0.0625, rounds=100)
    >>> found = calibrate(Cost(0.05, 0.0), training, epsilon=1.0, delta=1e-6)
    >>> 2.5 < found.noise < 3.5 and (Cost(0.05, 0.0) + Cost.of([found])).epsilon(1e-6) <= 1.0
    True
    """
    if delta < SMALLEST_DELTA:
        raise ConfigError(f"delta is {delta:g}; training is accounted for down to {SMALLEST_DELTA:g}: use that")

    def fits(noise: float) -> bool:
        sigma = noise * training.sensitivity * (1 + 1e-12)
        return (cost + Cost.of([replace(training, sigma=sigma)])).epsilon(delta) <= epsilon

    # Many rounds are about Gaussian: the noise cannot be far from this, unless rounds are few.
    left = mu_of(epsilon, delta) ** 2 - float(cost.mu_at(1.0)) ** 2
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


@lru_cache(maxsize=64)
def _accountant(cost: Cost) -> Any:
    """The accountant that has seen all of it. Neighbours: a record that takes part, or one that adds nothing."""
    library = accounting_library()
    # Losses are rounded up to multiples of an interval: one small beside the loss of a round costs no more than
    # a thousandth of ε.
    interval = min(max(2e-3 / max(training.noise for training in cost.trainings), 1e-5), 1e-3)
    accountant = library.pld.PLDAccountant(
        library.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    mu = compose([cost.floor_mu, cost.synthesis_mu])
    if mu > 0:
        accountant.compose(library.GaussianDpEvent(1 / mu))
    for training in cost.trainings:
        gaussian = library.GaussianDpEvent(training.noise)
        sampled = gaussian if training.rate >= 1 else library.PoissonSampledDpEvent(training.rate, gaussian)
        accountant.compose(sampled, training.rounds)
    return accountant


def is_training(*, rate: Any, noise: Any, rounds: Any) -> bool:
    """Whether these numbers, which may come from a stranger's file, describe a training that can be accounted for.

    >>> is_training(rate=0.0625, noise=1.0, rounds=300), is_training(rate=1.5, noise=1.0, rounds=300)
    (True, False)
    """
    numbers = isinstance(rate, float) and isinstance(noise, float) and isinstance(rounds, int)
    if not numbers or isinstance(rounds, bool):
        return False
    within = 0 < rate <= 1 and LEAST_NOISE * (1 - 1e-9) <= noise <= MOST_NOISE
    return bool(within and (rate * RATE_UNIT).is_integer() and 1 <= rounds <= MOST_ROUNDS)


def accounting_library() -> Any:
    """dp-accounting, which only trained models need."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "the loss of a trained model is worked out by dp-accounting, which is not installed; "
            "install repsynth[neural]"
        ) from None
    return dp_accounting
