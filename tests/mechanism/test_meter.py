"""The door: nothing passes that was not planned, or that the budget does not cover."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as replace_event

from repsynth.arrays import Ints
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.io.records import Records
from repsynth.mechanism.kernels import OUT, Count
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.mechanism.noise import seeded_entropy
from repsynth.privacy.events import Charge, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import compose

ENGINE = LocalEngine([Records(rows=40, codes={})])


class Unread:
    """An engine that must not be asked."""

    rows_per_person = units = 1

    def sum(self, kernel: object) -> None:
        pytest.fail("the data was read")


def test_measurements_add_up_to_the_budget_and_no_further() -> None:
    meter = Meter(ENGINE, mu=0.5)
    meter.measure(Count(), mu=0.3)
    meter.measure(Count(), mu=0.4 * (1 - 1e-12))
    assert compose(event.mu for event in meter.events) <= 0.5 * (1 + 1e-12)
    with pytest.raises(ConfigError, match="the budget does not cover it"):
        meter.measure(Count(), mu=1e-3)
    assert len(meter.events) == 2


@pytest.mark.parametrize(
    ("planned", "kernel"),
    [
        ({}, Count()),
        ({"another": Charge("another", 0.3)}, Count()),
        ({"count": Charge("count", 0.2)}, Count()),
        ({"count": Charge("count", 0.3, weighted=True)}, Count()),
    ],
    ids=["nothing planned", "another planned", "less planned", "weights planned"],
)
def test_what_was_not_planned_is_not_measured(planned: dict[str, Charge], kernel: Count) -> None:
    meter = Meter(Unread(), mu=0.5, planned=planned)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        meter.measure(kernel, mu=0.3)
    assert meter.events == []


def test_who_pays_in_full_is_what_the_kernel_says() -> None:
    meter = Meter(ENGINE, mu=0.5)
    for weighted in (False, True):
        meter.measure(replace(Count(), weighted=weighted), mu=0.3)
    assert [event.weighted for event in meter.events] == [False, True]


def test_a_sum_starts_from_nothing() -> None:
    assert np.array_equal(LocalEngine([]).sum(Count()), [0])


@given(st.floats(1e-3, 1e5), st.floats(1e-6, 100), st.integers(1, 30))
def test_what_is_measured_costs_no_more_than_it_was_charged(sensitivity: float, mu: float, rounds: int) -> None:
    """With all roundings, and no less than a trillionth below: noise is not wasted either."""
    event = GaussianEvent("sums", sensitivity, sigma_for(sensitivity, mu))
    assert mu * (1 - 1e-12) < event.mu <= mu
    meter = Meter(LocalEngine([]), mu=mu)
    meter.choose(Choices(rounds), mu=mu)
    assert mu * (1 - 1e-12) < meter.events[0].mu <= mu  # type: ignore[union-attr]


class Choices:
    """Stopping is always as good as anything else."""

    name, unit, weighted = "choice", 1, False

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def total(self, records: Records) -> Ints:
        return np.zeros(1, dtype=np.int64)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        return np.array([0, *[OUT if k in chosen else 0 for k in range(4)]])


@pytest.mark.parametrize("beyond", [1 + 1e-10, 1.5])
def test_a_billionth_more_than_the_budget_or_the_plan_is_refused(beyond: float) -> None:
    for meter in (
        Meter(Unread(), mu=0.5),  # type: ignore[arg-type]
        Meter(Unread(), mu=5.0, planned={"count": Charge("count", 0.5)}),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            meter.measure(Count(), mu=0.5 * beyond)
        assert meter.events == []


def test_a_choice_beyond_the_budget_or_the_plan_is_not_made() -> None:
    for meter in (
        Meter(Unread(), mu=0.5),  # type: ignore[arg-type]
        Meter(Unread(), mu=5.0, planned={"choice": Charge("choice", 0.5, choice=True)}),  # type: ignore[arg-type]
        Meter(Unread(), mu=5.0, planned={"other": Charge("other", 1.0, choice=True)}),  # type: ignore[arg-type]
    ):
        with pytest.raises(ConfigError):
            meter.choose(Choices(1), mu=0.5 * (1 + 1e-10))
        assert meter.events == []


def test_nothing_is_chosen_twice_and_a_choice_to_stop_ends_it() -> None:
    """Fixed by the seed. Of five equal candidates, the first of which is to stop, others are out once chosen."""
    entropy, lengths = seeded_entropy(3), []
    for _ in range(300):
        meter = Meter(LocalEngine([]), mu=1.0, entropy=entropy)
        chosen = meter.choose(Choices(4), mu=1.0)
        assert len(set(chosen)) == len(chosen)
        assert set(chosen) <= {0, 1, 2, 3}
        assert len(meter.events) == 1
        lengths.append(len(chosen))
    # Each number of choices, from none to all four, is as likely as the others.
    assert np.bincount(lengths, minlength=5).min() > 35
    assert len(lengths) == 300
    assert max(lengths) == 4


class Rounds:
    """Each record adds one; which noisy sums came back is kept."""

    name, sensitivity, unit, weighted = "gradients", 1.0, 1, True

    def __init__(self) -> None:
        self.noisy: list[int] = []

    def parts(self, records: Records) -> np.ndarray:
        return np.ones((records.rows, 1), dtype=np.int32)

    def kernel(self) -> "Rounds":
        return self

    def total(self, parts: np.ndarray) -> Ints:
        return parts.sum(axis=0).astype(np.int64)

    def advance(self, noisy: Ints) -> None:
        self.noisy.append(int(noisy[0]))

    def examples(self) -> "Iterator[Rounds]":
        yield self


TRAINING = SampledEvent("gradients", 1.0, 100.0, 0.5, 5, weighted=True)


def test_a_training_is_charged_once_and_has_all_its_rounds() -> None:
    """Each with noise and a sample of its own: forty records, of which about twenty take part."""
    rounds, meter = Rounds(), Meter(ENGINE, mu=1.0, delta=1e-6, entropy=seeded_entropy(2))
    meter.train(rounds, TRAINING)
    assert meter.events == [TRAINING]
    assert len(set(rounds.noisy)) == 5
    assert 0 < np.std(np.array(rounds.noisy) / 100) < 3
    quiet, meter = Rounds(), Meter(ENGINE, mu=200.0, delta=1e-6, entropy=seeded_entropy(1))
    meter.train(quiet, replace_event(TRAINING, sigma=0.25))
    assert all(5 < noisy < 35 for noisy in quiet.noisy)


@pytest.mark.parametrize(
    "wrong",
    [{"sensitivity": 0.9}, {"rate": 0.3}, {"rounds": 10_001}, {"sigma": 0.2}, {"sigma": 0.5}],
    ids=["sensitivity", "rate", "rounds", "too little noise for any", "too little noise for the budget"],
)
def test_a_training_that_the_budget_or_the_account_does_not_cover_is_not_begun(wrong: dict[str, Any]) -> None:
    meter = Meter(Unread(), mu=1.0, delta=1e-6)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        meter.train(Rounds(), replace_event(TRAINING, **wrong))
    assert meter.events == []


def test_a_training_that_claims_weights_that_it_has_not_is_not_begun() -> None:
    meter = Meter(Unread(), mu=1.0, delta=1e-6)  # type: ignore[arg-type]
    rounds = Rounds()
    rounds.weighted = False  # type: ignore[misc]
    with pytest.raises(ConfigError):
        meter.train(rounds, TRAINING)
    assert meter.events == []


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_a_record_counts_once(rows: int) -> None:
    """And no record adds more to a count than its sensitivity, by which its noise is scaled."""
    one, more = (int(Count().total(Records(rows=n, codes={}))[0]) for n in (rows, rows + 1))
    assert more - one == Count().sensitivity == 1
    assert not Count().weighted
