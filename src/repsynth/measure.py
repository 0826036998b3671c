"""The only door to the data: noisy sums over records of a public function of one record, and noisy choices.

A `Statistic` is that public function. `Account.measure` checks that the budget covers the charge, adds
the statistic up over the batches in exact integers, adds noise, and keeps the event. A `Choice` is a sum
that is not released: `Account.choose` releases which candidate's score, a function of the sum, came out
highest in the exponential mechanism. `Rounds` are sums over random samples of the records, each by a function
that the earlier rounds have taught. Everything that happens to any of them afterwards is post-processing.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from repsynth.accounting import epsilon_of
from repsynth.cost import Cost, is_training
from repsynth.encode import Records
from repsynth.errors import ConfigError
from repsynth.noise import (
    MU_PER_ETA,
    Entropy,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SampledEvent,
    add_gaussian,
    choose_exponential,
    sample_rows,
)

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]


class Statistic(Protocol):
    """A public function of one record, with integer values, summed over a batch of records."""

    @property
    def name(self) -> str:
        """What the measurement is called in plans, releases and reports."""
        ...

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record."""
        ...

    def total(self, records: Records) -> Ints:
        """The sum over a batch. Totals of batches add up to the total of their union, bit for bit."""
        ...


class Choice(Protocol):
    """Some choices in a row, each by scores that are a function of one sum over records and of the earlier
    choices. One record moves every score by at most `unit`, whatever was chosen before."""

    @property
    def name(self) -> str:
        """What it is called in plans, releases and reports."""
        ...

    @property
    def rounds(self) -> int:
        """How many choices are made at most."""
        ...

    @property
    def unit(self) -> int:
        """The sensitivity of every score."""
        ...

    def total(self, records: Records) -> Ints:
        """The sum over a batch, as a statistic's."""
        ...

    def scores(self, total: Ints, chosen: tuple[int, ...]) -> Ints:
        """The score of stopping, then that of each candidate; a candidate that is out has none: `OUT`."""
        ...


class Rounds(Protocol):
    """A training: in every round a sum over a sample, by a public function of one record that follows from what
    was released before, earlier rounds included."""

    @property
    def name(self) -> str:
        """What it is called in plans, releases and reports."""
        ...

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record, in any round."""
        ...

    def parts(self, records: Records) -> Int32s:
        """(records, values): all that each record's part in any round is made of."""
        ...

    def total(self, parts: Int32s) -> Ints:
        """The sum over a sample, by the function of this round."""
        ...

    def advance(self, noisy: Ints) -> None:
        """Learn from the noisy sum: the next round has another function."""
        ...


OUT = -(2**62)
"""The score of what cannot be chosen."""


@dataclass(frozen=True)
class Count:
    """The number of records.

    >>> Count().total(Records(rows=3, codes={})).tolist()
    [3]
    """

    name: str = "size"
    sensitivity: float = 1.0

    def total(self, records: Records) -> Ints:
        """One per record."""
        return np.array([records.rows], dtype=np.int64)


@dataclass
class Account:
    """Spends a budget of `mu`, one measurement after the other, and remembers each.

    >>> account = Account(mu=0.5)
    >>> records = [Records(rows=40, codes={}), Records(rows=2, codes={})]
    >>> noisy = account.measure(Count(), records, mu=0.3)
    >>> [(event.name, round(event.sigma, 3)) for event in account.events]
    [('size', 3.333)]
    """

    mu: float
    entropy: Entropy = os.urandom
    events: list[Event] = field(default_factory=list)
    delta: float | None = None
    """Where the loss of a training is compared with the budget's: it is not Gaussian."""

    def measure(self, statistic: Statistic, data: Iterable[Records], *, mu: float) -> Ints:
        """A noisy sum of the statistic over the data, charged `mu`; refused if the budget is short."""
        sigma = sigma_for(statistic.sensitivity, mu)
        self._check(GaussianEvent(name=statistic.name, sensitivity=statistic.sensitivity, sigma=sigma))
        exact = sum_over(statistic, data)
        noisy, event = add_gaussian(
            exact,
            name=statistic.name,
            sensitivity=statistic.sensitivity,
            sigma=sigma,
            entropy=self.entropy,
        )
        self.events.append(event)
        return noisy

    def choose(self, choice: Choice, data: Iterable[Records], *, mu: float) -> tuple[int, ...]:
        """The candidates chosen by the exponential mechanism, charged `mu` in all; it may stop early.

        The sum and the scores stay in here. A choice to stop leaves the charge as it is.
        """
        eta = mu / (MU_PER_ETA * math.sqrt(choice.rounds)) * (1 - 1e-13)
        event = ExponentialEvent(choice.name, eta, choice.rounds)
        self._check(event)
        total = sum_over(choice, data)
        chosen: tuple[int, ...] = ()
        while len(chosen) < choice.rounds:
            scores = choice.scores(total, chosen)
            able = np.flatnonzero(scores > OUT)  # which ones are out depends on earlier choices alone
            picked = choose_exponential(scores[able], unit=choice.unit, eta=eta, entropy=self.entropy)
            if able[picked] == 0:
                break
            chosen += (int(able[picked]) - 1,)
        self.events.append(event)
        return chosen

    def train(self, rounds: Rounds, data: Iterable[Records], event: SampledEvent, *, done: int = 0) -> None:
        """Carry out the rounds of a training, those that are `done` already apart.

        All of them are charged before the first one: a training that is cut short has spent the whole. Which
        records take part in a round, and how many, stays in here.
        """
        if event.sensitivity < rounds.sensitivity:
            raise ConfigError(
                f"{rounds.name}: planned for a smaller sensitivity than it has; nothing was measured"
            )
        if not is_training(rate=event.rate, noise=event.noise, rounds=event.rounds):
            raise ConfigError(f"{rounds.name}: this cannot be accounted for; nothing was measured")
        self._check(event)
        self.events.append(event)
        held = np.concatenate([rounds.parts(Records(rows=0, codes=_NoCodes())), *map(rounds.parts, data)])
        for _ in range(done, event.rounds):
            sample = held[sample_rows(len(held), event.rate, self.entropy)]
            noisy, _ = add_gaussian(
                rounds.total(sample),
                name=rounds.name,
                sensitivity=event.sensitivity,
                sigma=event.sigma,
                entropy=self.entropy,
            )
            rounds.advance(noisy)

    def _check(self, planned: Event) -> None:
        spent = Cost.of([*self.events, planned])
        # Rounding towards privacy costs some 1e-15 per event; a plan that fits the budget still fits.
        if spent.mu is not None:
            fits = spent.mu <= self.mu * (1 + 1e-12)
        else:
            assert self.delta is not None, "a training needs a δ"
            fits = spent.epsilon(self.delta) <= float(epsilon_of(self.mu, self.delta)) * (1 + 1e-9)
        if not fits:
            raise ConfigError(f"{planned.name}: the budget does not cover it; nothing was measured")


def sigma_for(sensitivity: float, mu: float) -> float:
    """The noise that makes a measurement cost at most `mu`, with room for every rounding behind it.

    >>> sigma_for(1.0, 0.5) >= 2.0
    True
    """
    return sensitivity / mu * (1 + 1e-13)


def sum_over(statistic: Statistic | Choice, data: Iterable[Records]) -> Ints:
    """The exact sum: integers, so that order and partition of the records do not matter."""
    totals = iter(data)
    empty = Records(rows=0, codes=_NoCodes())
    result = statistic.total(empty)
    for records in totals:
        result = result + statistic.total(records)
    return result


class _NoCodes(dict[str, Ints]):
    """The codes of no record at all, whatever the column."""

    def __missing__(self, name: str) -> Ints:
        return np.zeros(0, dtype=np.int64)
