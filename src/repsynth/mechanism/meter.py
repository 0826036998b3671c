"""The only door to the data: noisy sums, selections, choices and training rounds, each checked and charged.

The meter checks that the budget covers a charge, has the engine compute exact integers, adds noise, and keeps the
event. Everything that happens to a result afterwards is post-processing. If several rows may belong to one person,
the engine bounds their number, and the sensitivity of a sum is that number times the sensitivity of a row.

A table without a schema goes through the same door: `RawTable` is its engine.
"""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from repsynth.arrays import Ints
from repsynth.engine import Engine
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.io.sources import Source
from repsynth.mechanism.kernels import OUT, Choice, Rounds, Statistic
from repsynth.mechanism.noise import Entropy, add_gaussian, choose_exponential, select_counts
from repsynth.privacy.events import (
    MU_PER_ETA,
    Charge,
    Event,
    ExponentialEvent,
    GaussianEvent,
    SampledEvent,
    SelectionEvent,
)
from repsynth.privacy.gaussian import compose, epsilon_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import is_training

_WAITING = 2**20  # counts of values that are merged at a time


class Selection(Protocol):
    """The values to count: the text of each cell of some columns, null for a cell that is not counted."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def texts(self, name: str, cells: pa.Array) -> pa.Array: ...


@dataclass(frozen=True)
class RawTable:
    """The engine of a table without a schema. Every row counts as a person."""

    source: Source
    rows_per_person = 1
    units = 1

    @classmethod
    def open(cls, source: Source, schema: Any = None) -> "RawTable":
        return cls(source)

    def sum(self, kernel: Any) -> Ints:
        """Sum a kernel over batches of raw rows. The sum over no rows comes first: it has the shape."""
        total: Ints = kernel.total(pa.record_batch({name: pa.array([], pa.string()) for name in kernel.columns}))
        for batch in self.source.batches(kernel.columns):
            total = total + kernel.total(batch)
        return total

    def count(self, selection: Selection) -> dict[str, tuple[pa.ChunkedArray, Ints]]:
        """Return the texts that occur in each column, and how often."""
        tallies = {name: _Tally() for name in selection.columns}
        for batch in self.source.batches(selection.columns):
            for name, tally in tallies.items():
                tally.add(selection.texts(name, batch.column(name)))
        return {name: tally.counts() for name, tally in tallies.items()}


@dataclass
class Meter:
    """Spend a privacy budget on noisy measurements and record one event per measurement.

    >>> from repsynth.io.records import Records
    >>> from repsynth.engine.local import LocalEngine
    >>> from repsynth.mechanism.kernels import Count
    >>> meter = Meter(LocalEngine([Records(rows=40, codes={}), Records(rows=2, codes={})]), mu=0.5)
    >>> noisy = meter.measure(Count(), mu=0.3)
    >>> [(event.name, round(event.sigma, 3)) for event in meter.events]
    [('count', 3.333)]
    """

    engine: Engine | RawTable
    mu: float
    entropy: Entropy = os.urandom
    events: list[Event] = field(default_factory=list)
    delta: float | None = None
    """The δ at which the loss of a training, which is not Gaussian, is compared with the budget."""
    planned: Mapping[str, Charge] | None = None
    """The charges of a plan. Measurements without one are refused, and unweighted ones with a weighted charge."""
    failure: float = 0.0
    """The largest probability that a selection shows a value of a single record."""
    selections: list[SelectionEvent] = field(default_factory=list)

    def measure(self, statistic: Statistic, *, mu: float) -> Ints:
        """Return the noisy sum of a statistic, charged `mu`. Refuse it if the budget does not cover it."""
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

    def select(self, selection: Selection, *, mu: float, threshold: int) -> dict[str, dict[str, int]]:
        """Return for each column the values whose noisy counts reach the threshold, with these counts.

        It is charged `mu` and the probability that a value of a single record is shown.
        """
        if not isinstance(self.engine, RawTable):
            raise ConfigError(f"{selection.name}: only a table without a schema has values to select")
        sigma = sigma_for(math.sqrt(len(selection.columns)), mu)
        self._check(SelectionEvent(selection.name, len(selection.columns), sigma, threshold))
        counted = self.engine.count(selection)
        counts = np.concatenate([np.zeros(0, dtype=np.int64), *(counts for _, counts in counted.values())])
        noisy, event = select_counts(
            counts,
            name=selection.name,
            columns=len(selection.columns),
            sigma=sigma,
            threshold=threshold,
            entropy=self.entropy,
        )
        self.selections.append(event)
        found: dict[str, dict[str, int]] = {}
        ends = np.cumsum([len(own) for _, own in counted.values()])
        for (name, (texts, _)), part in zip(counted.items(), np.split(noisy, ends[:-1]), strict=True):
            kept = np.flatnonzero(part)
            shown = texts.take(pa.array(kept)).cast(pa.large_binary()).to_pylist()
            named = zip(shown, part[kept].tolist(), strict=True)
            found[name] = dict(sorted((text.decode(), count) for text, count in named if _is_text(text)))
        return found

    def choose(self, choice: Choice, *, mu: float) -> tuple[int, ...]:
        """Return the candidates that the exponential mechanism chooses, charged `mu` in total.

        The sum and the utilities are not released. Stopping early does not lower the charge.
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
        """Run the rounds of a training.

        All of them are charged before the first, so an interrupted training has spent everything. The records in a
        round, and their number, are not released.
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

    def _check(self, planned: Event | SelectionEvent) -> None:
        spent = Loss.of([*self.events, *self.selections, planned])
        # Rounding towards privacy costs some 1e-15 per event; a plan that fits the budget still fits.
        fits = spent.failure <= self.failure * (1 + 1e-12)
        if spent.trainings:
            assert self.delta is not None, "a training needs a δ"
            fits &= spent.epsilon(self.delta) <= float(epsilon_of(self.mu, self.delta)) * (1 + 1e-9)
        else:
            fits &= compose([spent.floor_mu, spent.weighted_mu]) <= self.mu * (1 + 1e-12)
        if self.planned is not None and not isinstance(planned, SampledEvent):
            charge = self.planned.get(planned.name)
            fits = fits and charge is not None and planned.weighted >= charge.weighted
            fits = fits and charge is not None and planned.mu <= charge.mu * (1 + 1e-12)
            fits = fits and charge is not None and charge.rows == self.engine.rows_per_person
        if not fits:
            raise ConfigError(f"{planned.name}: the budget does not cover it; nothing was measured")


def sigma_for(sensitivity: float, mu: float) -> float:
    """Return the noise with which a measurement costs at most `mu`, in spite of rounding.

    >>> sigma_for(1.0, 0.5) >= 2.0
    True
    """
    return sensitivity / mu * (1 + 1e-13)


def _is_text(data: bytes) -> bool:
    """Return whether a value is valid UTF-8, which Arrow does not ensure."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Tally:
    """Counts of texts, added up batch by batch; nulls are not counted."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._waiting = 0

    def add(self, texts: pa.Array) -> None:
        counted = texts.drop_null().value_counts()
        self._parts.append(pa.table({"text": counted.field("values"), "count": counted.field("counts")}))
        self._waiting += len(counted)
        if self._waiting > max(_WAITING, 2 * self._parts[0].num_rows):
            self._join()

    def counts(self) -> tuple[pa.ChunkedArray, Ints]:
        if not self._parts:
            return pa.chunked_array([], type=pa.large_string()), np.zeros(0, dtype=np.int64)
        self._join()
        (whole,) = self._parts
        return whole["text"], whole["count"].to_numpy().astype(np.int64)

    def _join(self) -> None:
        whole = pa.concat_tables(self._parts).group_by("text").aggregate([("count", "sum")])
        self._parts = [pa.table({"text": whole["text"], "count": whole["count_sum"]})]
        self._waiting = whole.num_rows
