"""The only access to the data: noisy sums, noisy selections and rounds of training, each checked and charged.

`Meter.measure` checks that the budget covers the charge, has the engine sum the statistic in exact integers, adds
noise, and records the event. Everything after that is post-processing. If a person may have several rows, the
engine limits their contribution to `rows_per_person` rows, and the sensitivity is that many times the sensitivity
of a row.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from repsynth.arrays import Ints
from repsynth.engines.base import Engine
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.mechanism.kernels import OUT, Choice, Rounds, Statistic
from repsynth.mechanism.noise import Entropy, add_gaussian, choose_exponential
from repsynth.privacy.events import MU_PER_ETA, Charge, Event, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import is_training


@dataclass
class Meter:
    """Spend a privacy budget of `mu` on noisy measurements and record one event per measurement.

    >>> from repsynth.data.records import Records
    >>> from repsynth.engines.local import LocalEngine
    >>> from repsynth.mechanism.kernels import Count
    >>> meter = Meter(LocalEngine([Records(rows=40, codes={}), Records(rows=2, codes={})]), mu=0.5)
    >>> noisy = meter.measure(Count(), mu=0.3)
    >>> [(event.name, round(event.sigma, 3)) for event in meter.events]
    [('count', 3.333)]
    """

    engine: Engine
    mu: float
    entropy: Entropy = os.urandom
    events: list[Event] = field(default_factory=list)
    delta: float | None = None
    """The δ at which the loss of a training, which is not Gaussian, is compared with the budget."""
    planned: Mapping[str, Charge] | None = None
    """The charges of a plan. No other measurement is allowed, and none charges records in full unless planned."""

    def measure(self, statistic: Statistic, *, mu: float) -> Ints:
        """Return a noisy sum of the statistic, charged `mu`; refuse it if the budget does not cover it."""
        sensitivity = statistic.sensitivity * self.engine.rows_per_person
        sigma = sigma_for(sensitivity, mu)
        self._check(GaussianEvent(statistic.name, sensitivity, sigma, statistic.weighted))
        exact = self.engine.sum(statistic)
        noisy, event = add_gaussian(
            exact,
            name=statistic.name,
            sensitivity=sensitivity,
            sigma=sigma,
            weighted=statistic.weighted,
            units=self.engine.units,
            entropy=self.entropy,
        )
        self.events.append(event)
        return noisy

    def choose(self, choice: Choice, *, mu: float) -> tuple[int, ...]:
        """Return the candidates that the exponential mechanism selects, charged `mu` in total.

        The sum and the utilities are not released. Stopping early does not reduce the charge.
        """
        eta = mu / (MU_PER_ETA * math.sqrt(choice.rounds)) * (1 - 1e-13)
        event = ExponentialEvent(choice.name, eta, choice.rounds, choice.weighted)
        self._check(event)
        total, units = self.engine.sum(choice), self.engine.units
        largest = choice.unit * units * self.engine.rows_per_person  # a person changes a utility by at most this
        chosen: tuple[int, ...] = ()
        while len(chosen) < choice.rounds:
            utilities = choice.utilities(total, chosen, units=units)
            able = np.flatnonzero(utilities > OUT)  # depends on earlier selections alone
            picked = choose_exponential(utilities[able], unit=largest, eta=eta, entropy=self.entropy)
            if able[picked] == 0:
                break
            chosen += (int(able[picked]) - 1,)
        self.events.append(event)
        return chosen

    def train(self, rounds: Rounds, event: SampledEvent) -> None:
        """Run all rounds of a training.

        All rounds are charged before the first one, so an interrupted training has spent its whole charge. The
        sample of a round and its size are not released.
        """
        sensitivity = rounds.sensitivity * self.engine.rows_per_person
        if event.sensitivity < sensitivity or event.weighted > rounds.weighted:
            raise ConfigError(f"{rounds.name}: its sensitivity is larger than planned; nothing was measured")
        if not is_training(rate=event.rate, noise=event.noise, rounds=event.rounds):
            raise ConfigError(f"{rounds.name}: no accountant covers this training; nothing was measured")
        if not isinstance(self.engine, LocalEngine):
            raise ConfigError(f"{rounds.name}: a training runs on one machine; nothing was measured")
        self._check(event)
        self.events.append(event)
        held = self.engine.held(rounds.parts)
        for _ in range(event.rounds):
            noisy, _ = add_gaussian(
                held.sampled(event.rate, self.entropy).sum(rounds.kernel()),
                name=rounds.name,
                sensitivity=event.sensitivity,
                sigma=event.sigma,
                weighted=event.weighted,
                units=self.engine.units,
                entropy=self.entropy,
            )
            rounds.advance(noisy)

    def _check(self, planned: Event) -> None:
        spent = Loss.of([*self.events, planned])
        # Every event is rounded up by about 1e-15; a plan that fits the budget must still fit.
        if spent.mu is not None:
            fits = spent.mu <= self.mu * (1 + 1e-12)
        else:
            assert self.delta is not None, "a training needs a δ"
            fits = spent.epsilon(self.delta) <= float(epsilon_of(self.mu, self.delta)) * (1 + 1e-9)
        if self.planned is not None and not isinstance(planned, SampledEvent):
            charge = self.planned.get(planned.name)
            fits = fits and charge is not None and planned.weighted >= charge.weighted
            fits = fits and charge is not None and planned.mu <= charge.mu * (1 + 1e-12)
            fits = fits and charge is not None and charge.rows == self.engine.rows_per_person
        if not fits:
            raise ConfigError(f"{planned.name}: the budget does not cover it; nothing was measured")


def sigma_for(sensitivity: float, mu: float) -> float:
    """Return the noise for which a measurement costs at most `mu`, after all roundings.

    >>> sigma_for(1.0, 0.5) >= 2.0
    True
    """
    return sensitivity / mu * (1 + 1e-13)
