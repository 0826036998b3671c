"""The loss of a training: sampled Gaussian rounds, composed with everything else."""

import math
from pathlib import Path
from typing import Any

import dp_accounting
import numpy as np
import pytest
from msgspec import structs
from scipy.special import ndtr

from repsynth.engine.local import sample_rows
from repsynth.errors import LedgerError
from repsynth.mechanism.noise import seeded_entropy
from repsynth.models.network import CLIP_UNITS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.ledger import _loss as ledger_loss
from repsynth.privacy.loss import Loss, calibrate
from repsynth.privacy.pld import is_training
from repsynth.schema import Schema

EVENT = SampledEvent("gradients", float(CLIP_UNITS), 0.001, 1.0, 20, weighted=True)


@pytest.mark.parametrize(
    ("rate", "noise", "rounds"),
    [
        (1.5, 1.0, 3), (0.0, 1.0, 3), (0.3, 1.0, 3), (0.5, 0.01, 3), (0.5, math.inf, 3), (0.5, math.nan, 3),
        (0.5, 1.0, 10**400), (0.5, 1.0, True), (0.5, 1.0, 0), ("0.5", 1.0, 3), (0.5, 1.0, 2.0),
    ],
)  # fmt: skip
def test_what_cannot_be_accounted_for_is_no_training(rate: Any, noise: Any, rounds: Any, tmp_path: Path) -> None:
    assert not is_training(rate=rate, noise=noise, rounds=rounds)
    with pytest.raises(LedgerError, match="training that is out of range"):
        ledger_loss([{"kind": "sampled", "name": "x", "rate": rate, "noise": noise, "rounds": rounds}], tmp_path)


@pytest.mark.parametrize(
    ("epsilon", "delta", "epochs", "rate"),
    [
        pytest.param(10.0, 1e-6, 1.0, 0.001, marks=pytest.mark.nightly),  # it composes 1,000 rounds
        (1.0, 0.02, 0.01, 0.01),
        (100.0, 1e-9, 0.01, 0.001),
    ],
)
def test_the_noise_of_odd_trainings_is_found_too(
    epsilon: float, delta: float, epochs: float, rate: float, schema: Schema
) -> None:
    chosen = Settings.of(epsilon=epsilon, delta=delta, model="autoregressive", epochs=epochs, sampling_rate=rate)
    plan = make_plan(schema, chosen)
    assert plan.training is not None
    assert plan.training.noise >= 0.249
    assert plan.loss.epsilon(delta) <= epsilon


def test_who_takes_part_is_drawn_independently_at_the_rate() -> None:
    """Repeatable; with other seeds each of the three would fail with a chance below 1e-10."""
    entropy = seeded_entropy(5)
    draws = np.zeros((2000, 1000))
    for k in range(2000):
        draws[k, sample_rows(1000, 0.25, entropy)] = 1
    assert draws.mean() == pytest.approx(0.25, abs=7 * math.sqrt(0.1875 / draws.size))
    assert draws.mean(axis=0).std() == pytest.approx(math.sqrt(0.1875 / 2000), rel=0.16)
    assert draws.sum(axis=1).std() == pytest.approx(math.sqrt(0.1875 * 1000), rel=0.12)
    assert sample_rows(7, 0.0, entropy).size == 0
    assert sample_rows(7, 1.0, entropy).tolist() == list(range(7))


def one_round(noise: float, rate: float, epsilon: float) -> float:
    """δ of one round in closed form, the larger of both directions."""

    def tail(level: float, mean: float) -> float:
        return float(ndtr((mean - level) / noise))

    def level(ratio: float) -> float:
        return noise**2 * math.log((ratio - 1 + rate) / rate) + 0.5 if ratio > 1 - rate else -math.inf

    high, low = level(math.exp(epsilon)), level(math.exp(-epsilon))
    present = (1 - rate) * tail(high, 0) + rate * tail(high, 1) - math.exp(epsilon) * tail(high, 0)
    absent = 1 - tail(low, 0) - math.exp(epsilon) * (1 - (1 - rate) * tail(low, 0) - rate * tail(low, 1))
    return max(present, absent)


@pytest.mark.parametrize("noise", [0.7, 2.0])
@pytest.mark.parametrize("rate", [0.05, 0.5])
@pytest.mark.parametrize("weight", [1.0, 0.25])
def test_one_round_agrees_with_its_closed_form(noise: float, rate: float, weight: float) -> None:
    spent = Loss.of([SampledEvent("gradients", 8.0, 8.0 * noise, rate, 1, weighted=True)]).at(weight)
    for epsilon in (0.0, 0.1, 0.5):
        exact = one_round(noise / weight, rate, epsilon)
        assert exact <= spent.delta(epsilon) <= exact * 1.01 + 1e-6


def test_many_rounds_agree_with_another_accountant() -> None:
    for noise, rounds in ((5.0, 300), (1.5, 300), (1.0, 20)):
        spent = Loss(0.05, 0.0, (SampledEvent("gradients", 1.0, noise, 0.05, rounds),))
        renyi = dp_accounting.rdp.RdpAccountant()
        renyi.compose(dp_accounting.GaussianDpEvent(1 / 0.05))
        renyi.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(noise)), rounds)
        loose = renyi.get_epsilon(1e-6)
        assert 0.75 * loose < spent.epsilon(1e-6) < loose


def test_rounds_in_which_all_take_part_are_gaussian() -> None:
    spent = Loss(0.3, 0.0, (SampledEvent("gradients", 1.0, 10.0, 1.0, 16),))
    mu = 0.5
    assert spent.epsilon(1e-6) == pytest.approx(float(epsilon_of(mu, 1e-6)), rel=1e-4)
    assert spent.epsilon(1e-6) >= float(epsilon_of(mu, 1e-6))
    assert spent.advantage_at(1.0) == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-4)
    for rate in (0.001, 0.01, 0.1):
        assert 1 <= spent.true_positive_rate(rate) / Loss(mu, 0.0).true_positive_rate(rate) <= 1.01


def test_the_loss_rises_with_the_weight_from_the_floor_to_the_total(schema: Schema) -> None:
    plan = make_plan(schema, Settings.of(epsilon=1.0, delta=1e-6, model="autoregressive"))
    losses = plan.loss.epsilon_at(np.linspace(0, 1, 9), 1e-6)
    assert np.all(np.diff(losses) > 0)
    assert losses[0] == pytest.approx(float(epsilon_of(plan.loss.floor_mu, 1e-6)))
    assert 0.998 <= losses[-1] <= 1.0
    between = plan.loss.epsilon_at(np.array([0.5, 0.501, 0.5078125]), 1e-6)
    assert between[0] < between[1] == between[2], "rounded up between the steps"


@pytest.mark.slow
def test_the_noise_is_the_least_that_fits() -> None:
    for epsilon in (0.3, 3.0):
        floor = Loss(0.02, 0.0)
        training = calibrate(floor, structs.replace(EVENT, rate=0.05, rounds=60), epsilon=epsilon, delta=1e-6)
        less = structs.replace(training, sigma=training.sigma * 0.998)
        assert (floor + Loss.of([training])).epsilon(1e-6) <= epsilon
        assert (floor + Loss.of([less])).epsilon(1e-6) > epsilon


def training_settings(epsilon: float) -> Settings:
    return Settings.of(epsilon=epsilon, delta=1e-6, model="autoregressive", sampling_rate=0.25, epochs=5.0)


def test_a_ledger_composes_trainings_with_everything_else(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-6))
    plan = make_plan(schema, training_settings(1.0))
    charges = {name: charge.mu for name, charge in plan.charges.items()}
    for _ in range(2):
        ledger.reserve("data", charges, training=plan.training, what="training")
    balance = ledger.balance("data")
    assert 1.3 < balance.spent_epsilon < 1.8, "less than the sum"
    assert balance.spent_epsilon >= balance.epsilon(balance.spent)
    left = balance.remaining.mu
    assert left is not None
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", {"all": left * 1.0001}, what="too much")
    ledger.reserve("data", {"all": left}, what="the rest")
    assert 1.99 < ledger.balance("data").spent_epsilon <= 2.0
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", charges, training=plan.training, what="too much")


def test_a_ledger_kept_at_a_tiny_delta_takes_no_training(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-20))
    plan = make_plan(schema, training_settings(0.1))
    charges = {name: charge.mu for name, charge in plan.charges.items()}
    with pytest.raises(LedgerError, match="accounted for down to"):
        ledger.reserve("data", charges, training=plan.training, what="training")
