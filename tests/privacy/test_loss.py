"""What a record loses by its influence: only what says that weights scale it falls with the weight."""

from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from repsynth.privacy import pld
from repsynth.privacy.events import Charge, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import WEIGHT_STEPS, Loss

FULL = GaussianEvent("count", 1.0, 20.0)
SCALED = GaussianEvent("sums", 1.0, 10.0, weighted=True)
CHOICE = ExponentialEvent("choice", 0.05, 3)
TRAINING = SampledEvent("gradients", 1.0, 4.0, 0.25, 30)
WEIGHTS = np.array([0.0, 0.2, 0.5, 1.0])


def test_an_event_is_paid_in_full_unless_it_says_otherwise() -> None:
    for event in (Charge("c", 0.1), replace(FULL), CHOICE, TRAINING):
        assert not event.weighted


def test_only_weighted_events_fall_with_the_weight() -> None:
    loss = Loss.of([FULL, SCALED])
    expected = np.sqrt(FULL.mu**2 + (WEIGHTS * SCALED.mu) ** 2)
    assert loss.mu_at(WEIGHTS) == pytest.approx(expected, rel=1e-12)
    in_full = Loss.of([FULL, replace(SCALED, weighted=False), CHOICE])
    assert in_full.mu_at(WEIGHTS) == pytest.approx(np.full(4, in_full.mu), rel=1e-12)


def test_a_training_without_weights_costs_everybody_the_same() -> None:
    loss = Loss.of([FULL, SCALED, TRAINING])
    alone = Loss.of([FULL, TRAINING]).epsilon(1e-6)
    for weight in WEIGHTS:
        scaled = Loss.of([FULL, replace(SCALED, sigma=SCALED.sigma / max(weight, 1e-9)), TRAINING]).epsilon(1e-6)
        assert loss.epsilon_at(weight, 1e-6) >= max(scaled * (1 - 1e-6), alone * (1 - 1e-6))
    assert float(loss.epsilon_at(0.0, 1e-6)) == pytest.approx(alone, rel=1e-6)


def test_of_two_trainings_the_weighted_one_alone_falls_with_the_weight() -> None:
    loss = Loss.of([TRAINING, replace(TRAINING, weighted=True)])
    one, both = Loss.of([TRAINING]).epsilon(1e-6), Loss.of([TRAINING, TRAINING]).epsilon(1e-6)
    assert float(loss.epsilon_at(0.0, 1e-6)) == pytest.approx(one, rel=1e-6)
    assert float(loss.epsilon_at(1.0, 1e-6)) == pytest.approx(both, rel=1e-6)
    assert one < float(loss.epsilon_at(0.5, 1e-6)) < both
    assert loss.at(0.5).trainings == (TRAINING, replace(TRAINING, sigma=8.0, weighted=True))


def test_without_training_a_loss_is_gaussian() -> None:
    loss = Loss.of([FULL, SCALED])
    assert loss.mu is not None
    assert loss.epsilon(1e-6) == float(epsilon_of(loss.mu, 1e-6))
    assert Loss.of([FULL, TRAINING]).mu is None


@pytest.mark.parametrize("weight", [0.0, 1e-9, 0.2, 0.5, 0.5001, 0.9999, 1.0])
def test_an_influence_is_never_rounded_down(weight: float) -> None:
    """Neither in the noise of a training nor in what is beside it; and by no more than a step up."""
    loss = Loss.of([FULL, SCALED, replace(TRAINING, weighted=True)])
    at = loss.at(weight)
    shares = [at.weighted_mu / loss.weighted_mu, *(TRAINING.sigma / t.sigma for t in at.trainings)]
    for share in shares:
        assert weight <= share * (1 + 1e-15)
        assert share <= weight + 1 / WEIGHT_STEPS
    assert at.floor_mu == loss.floor_mu
    assert len(at.trainings) == (weight > 0)
    assert loss.epsilon_at(weight, 1e-6) == at.epsilon(1e-6)
    assert loss.advantage_at(weight) == at.delta(0.0)


@given(st.floats(0, 1), st.floats(1e-3, 10), st.floats(1e-3, 10))
def test_the_mu_of_an_influence_is_no_less_than_the_exact_one(
    weight: float, floor: float, weighted: float
) -> None:
    exact = Fraction(floor) ** 2 + (Fraction(weight) * Fraction(weighted)) ** 2
    found = float(Loss(floor, weighted).mu_at(weight))
    assert exact * Fraction(1 - 1e-15) <= Fraction(found) ** 2 <= exact * Fraction(1 + 1e-14)


def test_the_error_of_numerical_composition_is_taken_off_delta(monkeypatch: pytest.MonkeyPatch) -> None:
    accountant = mock.Mock()
    accountant.get_epsilon.return_value, accountant.get_delta.return_value = 2.0, 1e-6
    monkeypatch.setattr(pld, "_accountant", lambda mu, trainings: accountant)
    unknown = (replace(TRAINING, name="unknown to any cache"),)
    assert pld.epsilon(0.1, unknown, 1e-11) >= 2.0 * (1 + 1e-10)
    assert accountant.get_epsilon.call_args.args[0] <= 1e-11 - 5e-13
    assert pld.delta(0.1, unknown, 1.0) >= 1e-6 + 5e-13
    accountant.get_delta.return_value = 1.0
    assert pld.delta(0.1, unknown, 1.5) == 1.0


def test_below_the_smallest_delta_of_a_training_nothing_is_claimed() -> None:
    loss = Loss.of([TRAINING])
    assert loss.epsilon(0.99e-11) == np.inf
    assert loss.epsilon(1e-11) < np.inf


def test_losses_add_up_in_every_part() -> None:
    one, other = Loss(0.3, 0.1, (TRAINING,)), Loss(0.4, 0.2, (replace(TRAINING, rounds=7),))
    both = one + other
    assert (both.floor_mu, both.weighted_mu) == pytest.approx((0.5, np.hypot(0.1, 0.2)))
    assert both.trainings == (*one.trainings, *other.trainings)
