"""The only door to the data: noisy sums over records of a public function of one record, and noisy choices.

A `Statistic` is that public function. `Account.measure` checks that the budget covers the charge, adds
the statistic up over the batches in exact integers, adds noise, and keeps the event. A `Choice` is a sum
that is not released: `Account.choose` releases which candidate's score, a function of the sum, came out
highest in the exponential mechanism. Everything that happens to either afterwards is post-processing.
"""

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from repsynth.accounting import compose
from repsynth.encode import Records
from repsynth.errors import ConfigError
from repsynth.noise import (
    MU_PER_ETA,
    Entropy,
    Event,
    ExponentialEvent,
    GaussianEvent,
    add_gaussian,
    choose_exponential,
)

Ints = NDArray[np.int64]


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

    def _check(self, planned: Event) -> None:
        spent = compose(event.mu for event in [*self.events, planned])
        # Rounding towards privacy costs some 1e-15 per event; a plan that fits the budget still fits.
        if spent > self.mu * (1 + 1e-12):
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
