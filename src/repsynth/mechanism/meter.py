"""The only door to the data: noisy sums, noisy choices and rounds of training, each checked and charged.

`Meter.measure` checks that the budget covers the charge, has the engine add the statistic up in exact integers,
adds noise, and keeps the event. Everything that happens to a result afterwards is post-processing. Where several
rows may be one person's, the engine sees to it that all of them count as some rows at most, and a person's part in
a sum is as many times that of a row.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from repsynth.arrays import Ints
from repsynth.engines import Engine
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
    """Spends a budget of `mu` on an engine's data, one measurement after the other, and remembers each.

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
    """Where the loss of a training is compared with the budget's: it is not Gaussian."""
    planned: Mapping[str, Charge] | None = None
    """The charges of a plan: nothing else is measured, and nobody pays in full where the plan says otherwise."""

    def measure(self, statistic: Statistic, *, mu: float) -> Ints:
        """A noisy sum of the statistic over the data, charged `mu`; refused if the budget is short."""
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
        """The candidates chosen by the exponential mechanism, charged `mu` in all; it may stop early.

        The sum and the utilities stay in here. A choice to stop leaves the charge as it is.
        """
        eta = mu / (MU_PER_ETA * math.sqrt(choice.rounds)) * (1 - 1e-13)
        event = ExponentialEvent(choice.name, eta, choice.rounds, choice.weighted)
        self._check(event)
        total, units = self.engine.sum(choice), self.engine.units
        largest = choice.unit * units * self.engine.rows_per_person  # by which a person moves a utility
        chosen: tuple[int, ...] = ()
        while len(chosen) < choice.rounds:
            utilities = choice.utilities(total, chosen, units=units)
            able = np.flatnonzero(utilities > OUT)  # which ones are out depends on earlier choices alone
            picked = choose_exponential(utilities[able], unit=largest, eta=eta, entropy=self.entropy)
            if able[picked] == 0:
                break
            chosen += (int(able[picked]) - 1,)
        self.events.append(event)
        return chosen

    def train(self, rounds: Rounds, event: SampledEvent) -> None:
        """Carry out the rounds of a training.

        All of them are charged before the first one: a training that is cut short has spent the whole. Which
        records take part in a round, and how many, stays in here.
        """
        sensitivity = rounds.sensitivity * self.engine.rows_per_person
        if event.sensitivity < sensitivity or event.weighted > rounds.weighted:
            raise ConfigError(
                f"{rounds.name}: planned for a smaller part of a record than it has; nothing measured"
            )
        if not is_training(rate=event.rate, noise=event.noise, rounds=event.rounds):
            raise ConfigError(f"{rounds.name}: this cannot be accounted for; nothing was measured")
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
        # Rounding towards privacy costs some 1e-15 per event; a plan that fits the budget still fits.
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
    """The noise that makes a measurement cost at most `mu`, with room for every rounding behind it.

    >>> sigma_for(1.0, 0.5) >= 2.0
    True
    """
    return sensitivity / mu * (1 + 1e-13)
