"""What a record loses by its influence: only what says that weights scale it falls with the weight."""

import numpy as np
import pytest
from msgspec.structs import replace

from repsynth.privacy.events import Charge, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import Loss

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
