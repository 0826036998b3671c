"""The trained model: its gradients, its account, its checkpoints, and an audit with canaries."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dp_accounting
import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from checks import records_of, same_release
from conftest import ALL_TYPES, make_people
from jax_privacy import auditing
from scipy.special import ndtr, softmax
from test_release import rewritten

from repsynth import Release, cost, datasets, pipeline, synthesize, train
from repsynth.accounting import epsilon_of
from repsynth.cli import main
from repsynth.cost import Cost, calibrate
from repsynth.encode import Records
from repsynth.errors import ConfigError, LedgerError, ReleaseError
from repsynth.files import _arrays
from repsynth.ledger import Ledger
from repsynth.ledger import _cost as ledger_cost
from repsynth.measure import Account
from repsynth.models import training as training_module
from repsynth.models.network import Network
from repsynth.models.training import Recipe, State, Training
from repsynth.noise import SampledEvent, sample_rows, seeded_entropy
from repsynth.pipeline import make_settings, run
from repsynth.plan import CLIP_UNITS, Plan, make_plan
from repsynth.risk import dossier
from repsynth.schema import Schema, parse_schema
from repsynth.tables import open_table
from repsynth.weigh import FULL, WeightFunction

EVENT = SampledEvent("training", float(CLIP_UNITS), 0.001, 1.0, 20)


def network_of(table: pa.Table, schema: Schema) -> Network:
    """A network on clear histograms, in which all records weigh the same."""
    settings = make_settings(mu=100.0, delta=1e-6, weights="uniform", public_rows=table.num_rows, model="mst")
    return Network.of(run(make_plan(schema, settings), open_table(table), noise_seed=1).stage)


def training_of(network: Network, clip: float, *, event: SampledEvent = EVENT, rate: float = 0.05) -> Training:
    plain = Recipe(clip, rate, bias=1.0, inputs=np.ones(network.ends[-1]))
    return Training(network, event, plain, State.start(network))


def gradients(network: Network, parameters: np.ndarray, parts: np.ndarray) -> np.ndarray:
    """(records, parameters): the gradient of the negative log-likelihood, written down by hand."""
    biases, weights = network.unpack(parameters)
    inputs = [
        network.features[i][np.maximum(c, 0)] * (c >= 0)[:, None]
        for i, c in zip(network.order, parts.T, strict=False)
    ]
    joined = np.concatenate(inputs, axis=1)
    errors = []
    for k, i in enumerate(network.order):
        here = slice(*network.ends[k : k + 2])
        logits = np.log(network.shares[i]) + (biases[here] + joined @ weights[:, here]) @ network.features[i].T
        error = softmax(logits, axis=1)
        present = parts[:, k] >= 0
        error[present, parts[present, k]] -= 1
        errors.append((error * present[:, None]) @ network.features[i])
    error = np.concatenate(errors, axis=1)
    outer = joined[:, :, None] * error[:, None, :]
    return np.concatenate([error, outer[:, network.mask]], axis=1)


@pytest.mark.parametrize("clip", [0.5, 3.0, 1e3])
def test_a_round_is_the_sum_of_clipped_weighted_gradients_worked_out_one_by_one(
    clip: float, people: pa.Table, schema: Schema
) -> None:
    network = network_of(people, schema)
    training = training_of(network, clip)
    generator = np.random.default_rng(1)
    training.state.parameters = generator.normal(0, 0.2, network.size)
    parts = network.parts(records_of(people, schema))
    parts[::7, 2] = -1  # gaps in a column that declares none
    parts[:, -1] = generator.integers(0, FULL + 1, len(parts))
    wanted = np.zeros(network.size)
    for gradient, part in zip(gradients(network, training.state.parameters, parts), parts, strict=True):
        norm = float(np.linalg.norm(gradient))
        wanted += part[-1] / FULL * gradient * min(1.0, clip / norm) * (math.sqrt(0.99) * CLIP_UNITS / clip)
    assert np.abs(training.total(parts)[:-1] - wanted).max() <= len(parts)  # each is cut off to a whole unit
    gain = network.log_likelihoods(training.state.parameters, parts) - network.log_likelihoods(
        np.zeros(network.size), parts
    )
    told = np.clip(gain / 8, -1, 1) @ parts[:, -1] / FULL * 0.1 * CLIP_UNITS
    assert abs(training.total(parts)[-1] - told) <= len(parts)


def test_no_noise_no_clip_and_full_weight_is_plain_training(people: pa.Table, schema: Schema) -> None:
    """The same descent, on the mean gradient of all records, written down by hand."""
    network = network_of(people, schema)
    training = training_of(network, 300.0)
    parts = network.parts(records_of(people, schema))
    plain, velocity, total = np.zeros(network.size), np.zeros(network.size), 0.0
    for k in range(EVENT.rounds):
        gradient = gradients(network, plain, parts)
        assert np.linalg.norm(gradient, axis=1).max() < 300
        velocity = 0.9 * velocity + math.sqrt(0.99) * gradient.mean(axis=0)
        plain = plain - 0.05 * (0.1 + 0.9 * (1 + math.cos(math.pi * k / EVENT.rounds)) / 2) * velocity
        total = total + plain * (k >= EVENT.rounds / 2)
        training.advance(training.total(parts))
    assert training.state.parameters == pytest.approx(plain, abs=2e-3)
    assert training.state.average == pytest.approx(total / (EVENT.rounds / 2), abs=2e-3)
    before, after = (network.log_likelihoods(p, parts).mean() for p in (np.zeros(network.size), plain))
    assert after > before + 0.05


def test_weight_zero_leaves_no_trace_in_any_bit(people: pa.Table, schema: Schema) -> None:
    network = network_of(people, schema)
    records = records_of(people, schema)
    event = dataclasses.replace(EVENT, sigma=2.0 * CLIP_UNITS, rate=0.5)
    states = []
    for other in (0, 1):
        parts = network.parts(records)
        parts[::3, :-1] = np.roll(parts, -other, axis=0)[::3, :-1]  # other values, but of weight 0
        parts[::3, -1] = 0
        training = training_of(network, 2.0, event=event)
        training.parts = lambda records, parts=parts: parts[: records.rows]  # type: ignore[method-assign]
        Account(1e3, entropy=seeded_entropy(3), delta=1e-6).train(training, [records], event)
        states.append(training.state)
    assert states[0].parameters.any()
    for name in ("parameters", "velocity", "average", "gain"):
        assert np.array_equal(getattr(states[0], name), getattr(states[1], name)), name


def test_a_record_s_part_does_not_depend_on_who_else_takes_part(people: pa.Table, schema: Schema) -> None:
    network = network_of(people, schema)
    training = training_of(network, 1.0)
    training.state.parameters = np.random.default_rng(2).normal(0, 0.3, network.size)
    parts = network.parts(records_of(people, schema))
    alone = [training.total(parts[i : i + 1]) for i in range(150)]
    assert np.array_equal(training.total(parts[:150]), sum(alone))
    assert np.array_equal(training.total(parts[:150][::-1]), sum(alone))


def test_the_bound_holds_whatever_floating_point_makes_of_the_gradient(people: pa.Table, schema: Schema) -> None:
    network = network_of(people, schema)
    training = training_of(network, 1.0)
    parts = network.parts(records_of(people, schema))[:40]
    for wrong in (np.nan, np.inf, 1e200, 1e300):
        training.state.parameters = np.full(network.size, wrong)
        for part in parts:
            added = training.total(part[None])
            assert int(np.sum(added.astype(object) ** 2)) <= CLIP_UNITS**2


@pytest.mark.parametrize("wrong", [2.0**40, np.inf, -np.inf, np.nan, 1e18])
def test_the_bound_holds_even_if_the_clip_does_not(
    wrong: float, people: pa.Table, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    import jax

    broken = SimpleNamespace(clip_pytree=lambda tree, clip: ([jax.numpy.full_like(x, wrong) for x in tree], 0))
    network = network_of(people, schema)
    parts = network.parts(records_of(people, schema))[:3]
    monkeypatch.setattr(training_module, "neural_libraries", lambda: (jax, broken))
    training_module._compiled.cache_clear()
    try:
        for part in parts:
            added = training_of(network, 1.0).total(part[None])
            assert int(np.sum(added.astype(object) ** 2)) <= CLIP_UNITS**2
    finally:
        training_module._compiled.cache_clear()


def test_a_column_of_many_values_is_taken_together() -> None:
    values = [f"v{k}" for k in range(1500)]
    listed = ", ".join(f"'{v}'" for v in values)
    schema = parse_schema(
        f"columns.a = {{type = 'category', values = [{listed}], missing = true}}\ncolumns.b = {{type = 'boolean'}}"
    )
    generator = np.random.default_rng(0)
    table = pa.table({"a": generator.choice([*values, "?"], 40_000), "b": generator.random(40_000) < 0.5})
    network = network_of(table, schema)
    assert [groups.count for groups in network.groups] == [256, 2]
    assert (network.groups[0].of_cell == network.groups[0].of_cell[-1]).sum() == 1, "gaps have their own"
    with pytest.raises(ConfigError, match="a network takes 256 at most"):
        make_plan(dataclasses.replace(schema, label="a"), make_settings(epsilon=1.0, model="neural"))


@pytest.mark.parametrize(
    ("rate", "noise", "rounds"),
    [
        (1.5, 1.0, 3), (0.0, 1.0, 3), (0.3, 1.0, 3), (0.5, 0.01, 3), (0.5, math.inf, 3), (0.5, math.nan, 3),
        (0.5, 1.0, 10**400), (0.5, 1.0, True), (0.5, 1.0, 0), ("0.5", 1.0, 3), (0.5, 1.0, 2.0),
    ],
)  # fmt: skip
def test_what_cannot_be_accounted_for_is_no_training(rate: Any, noise: Any, rounds: Any, tmp_path: Path) -> None:
    assert not cost.is_training(rate=rate, noise=noise, rounds=rounds)
    with pytest.raises(LedgerError, match="training that is out of range"):
        ledger_cost([{"kind": "sampled", "name": "x", "rate": rate, "noise": noise, "rounds": rounds}], tmp_path)


@pytest.mark.parametrize(
    ("epsilon", "delta", "epochs", "rate"),
    [(10.0, 1e-6, 1.0, 0.001), (1.0, 0.02, 0.01, 0.01), (100.0, 1e-9, 0.01, 0.001)],
)
def test_the_noise_of_odd_trainings_is_found_too(
    epsilon: float, delta: float, epochs: float, rate: float, schema: Schema
) -> None:
    chosen = make_settings(epsilon=epsilon, delta=delta, model="neural", epochs=epochs, sampling_rate=rate)
    plan = make_plan(schema, chosen)
    assert plan.training is not None
    assert plan.training.noise >= 0.249
    assert plan.cost.epsilon(delta) <= epsilon


def test_who_takes_part_is_drawn_independently_at_the_rate() -> None:
    entropy = seeded_entropy(5)
    draws = np.zeros((400, 1000))
    for k in range(400):
        draws[k, sample_rows(1000, 0.25, entropy)] = 1
    assert draws.mean() == pytest.approx(0.25, abs=4 * math.sqrt(0.1875 / draws.size))
    assert draws.mean(axis=0).std() == pytest.approx(math.sqrt(0.1875 / 400), rel=0.15)
    assert draws.sum(axis=1).std() == pytest.approx(math.sqrt(0.1875 * 1000), rel=0.15)
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
    spent = Cost.of([SampledEvent("training", 8.0, 8.0 * noise, rate, 1)]).at(weight)
    for epsilon in (0.0, 0.1, 0.5):
        exact = one_round(noise / weight, rate, epsilon)
        assert exact <= spent.delta(epsilon) <= exact * 1.01 + 1e-6


def test_many_rounds_agree_with_another_accountant() -> None:
    for noise, rounds in ((5.0, 300), (1.5, 300), (1.0, 20)):
        spent = Cost(0.05, 0.0, (SampledEvent("training", 1.0, noise, 0.05, rounds),))
        renyi = dp_accounting.rdp.RdpAccountant()
        renyi.compose(dp_accounting.GaussianDpEvent(1 / 0.05))
        renyi.compose(dp_accounting.PoissonSampledDpEvent(0.05, dp_accounting.GaussianDpEvent(noise)), rounds)
        loose = renyi.get_epsilon(1e-6)
        assert 0.75 * loose < spent.epsilon(1e-6) < loose


def test_rounds_in_which_all_take_part_are_gaussian() -> None:
    spent = Cost(0.3, 0.0, (SampledEvent("training", 1.0, 10.0, 1.0, 16),))
    mu = 0.5
    assert spent.epsilon(1e-6) == pytest.approx(float(epsilon_of(mu, 1e-6)), rel=1e-4)
    assert spent.epsilon(1e-6) >= float(epsilon_of(mu, 1e-6))
    assert spent.advantage_at(1.0) == pytest.approx(2 * ndtr(mu / 2) - 1, rel=1e-4)
    assert spent.true_positive_rate(0.01) == pytest.approx(Cost(mu, 0.0).true_positive_rate(0.01), rel=0.01)
    assert spent.true_positive_rate(0.01) >= Cost(mu, 0.0).true_positive_rate(0.01)


def test_the_loss_rises_with_the_weight_from_the_floor_to_the_total(schema: Schema) -> None:
    plan = make_plan(schema, make_settings(epsilon=1.0, delta=1e-6, model="neural"))
    losses = plan.cost.epsilon_at(np.linspace(0, 1, 9), 1e-6)
    assert np.all(np.diff(losses) > 0)
    assert losses[0] == pytest.approx(float(epsilon_of(plan.cost.floor_mu, 1e-6)))
    assert 0.998 <= losses[-1] <= 1.0
    between = plan.cost.epsilon_at(np.array([0.5, 0.501, 0.5078125]), 1e-6)
    assert between[0] < between[1] == between[2], "rounded up between the steps"


def test_the_noise_is_the_least_that_fits() -> None:
    for epsilon in (0.3, 3.0):
        floor = Cost(0.02, 0.0)
        training = calibrate(floor, dataclasses.replace(EVENT, rate=0.05, rounds=60), epsilon=epsilon, delta=1e-6)
        less = dataclasses.replace(training, sigma=training.sigma * 0.998)
        assert (floor + Cost.of([training])).epsilon(1e-6) <= epsilon
        assert (floor + Cost.of([less])).epsilon(1e-6) > epsilon


def test_the_account_refuses_a_training_that_does_not_fit(people: pa.Table, schema: Schema) -> None:
    plan = make_plan(schema, make_settings(epsilon=1.0, delta=1e-6, model="neural"))
    assert plan.training is not None
    training = training_of(network_of(people, schema), 1.0, event=plan.training)
    less = dataclasses.replace(plan.training, sigma=plan.training.sigma * 0.8)
    account = Account(plan.settings.budget.mu, delta=1e-6)
    with pytest.raises(ConfigError, match="does not cover"):
        account.train(training, [], less)
    with pytest.raises(ConfigError, match="smaller sensitivity"):
        account.train(training, [], dataclasses.replace(plan.training, sensitivity=1.0))
    assert account.events == []


def canary_scores(network: Network, event: SampledEvent, weight: float) -> tuple[np.ndarray, np.ndarray]:
    """One training with half of the canaries in it; how strongly each shows in the noisy sums, in and out."""
    stage = dataclasses.replace(network.stage, weights=WeightFunction(0, np.array([round(weight * FULL)])))
    network = dataclasses.replace(network, stage=stage)
    generator = np.random.default_rng(7)
    columns = [generator.integers(0, network.groups[i].count, 500) for i in network.order]
    canaries = np.stack([*columns, np.full(500, round(weight * FULL))], axis=1).astype(np.int32)
    present = generator.random(500) < 0.5
    training = training_of(network, 1.0, event=event, rate=0.02)
    scores, advance = np.zeros(500), training.advance

    def attack(noisy: np.ndarray) -> None:
        gradient = gradients(network, training.state.parameters, canaries)
        direction = gradient / np.linalg.norm(gradient, axis=1, keepdims=True)
        scores[:] += direction @ (noisy[:-1] / CLIP_UNITS)
        advance(noisy)

    training.parts = lambda records: canaries[present][: records.rows]  # type: ignore[method-assign]
    training.advance = attack  # type: ignore[method-assign]
    account = Account(1e3, entropy=seeded_entropy(9), delta=1e-5)
    account.train(training, [Records(rows=500, codes={})], event)
    return scores[present], scores[~present]


def test_canaries_in_one_run_stay_below_the_claim_and_small_weights_show_less() -> None:
    table = pa.table({f"c{k}": np.random.default_rng(k).choice(list("abcdefgh"), 2000) for k in range(12)})
    values = ", ".join(f'"{v}"' for v in "abcdefgh")
    schema = parse_schema(
        "\n".join(f"columns.c{k} = {{type = 'category', values = [{values}]}}" for k in range(12))
    )
    network = network_of(table, schema)
    event = SampledEvent("training", float(CLIP_UNITS), 0.9 * CLIP_UNITS, 0.5, 8)
    proven = {}
    for weight in (1.0, 0.2):
        claimed = Cost.of([event]).at(weight).epsilon(1e-5)
        auditor = auditing.CanaryScoreAuditor(*canary_scores(network, event, weight))
        proven[weight] = float(auditor.epsilon_one_run(0.05, 1e-5))
        assert proven[weight] <= claimed
    assert proven[1.0] > 0.5
    assert proven[0.2] < 0.3 * proven[1.0]


def small(**options: Any) -> dict[str, Any]:
    return {"epsilon": 2.0, "delta": 1e-6, "model": "neural", "sampling_rate": 0.25, "epochs": 5.0, **options}


def paid(schema: Schema, folder: Path, name: str = "ledger.db") -> tuple[Plan, pipeline.Payer]:
    """A plan, and a ledger whose budget covers it once."""
    plan = make_plan(schema, make_settings(**small()))
    ledger = Ledger.create(folder / name)
    ledger.init("data", plan.settings.budget)
    return plan, pipeline.Payer(ledger, "data")


class KilledError(Exception):
    """In the place of a kill."""


@pytest.fixture
def kept_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_SECONDS", 0.0)


def killed_after(rounds: int, plan: Any, table: pa.Table, folder: Path, **options: Any) -> None:
    def kill(done: train.Round) -> None:
        if done.done == rounds:
            raise KilledError

    with pytest.raises(KilledError):
        run(plan, open_table(table), on_round=kill, checkpoint=folder, **options)


@pytest.mark.usefixtures("kept_always")
def test_a_killed_training_goes_on_and_nothing_is_drawn_twice(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, payer = paid(schema, tmp_path)
    ledger = payer.ledger
    killed_after(7, plan, people, tmp_path / "c", payer=payer)
    assert [spending.finished for spending in ledger.balance("data").spendings] == [False]

    monkeypatch.setattr(Account, "measure", lambda *_, **__: pytest.fail("stage 1 was measured again"))
    rounds: list[int] = []
    release = run(
        plan,
        open_table(people),
        on_round=lambda done: rounds.append(done.done),
        payer=payer,
        checkpoint=tmp_path / "c",
    )
    assert rounds == list(range(8, 21))
    assert release.privacy.epsilon <= 2.0
    assert [event.name for event in release.events] == plan.steps
    (spending,) = ledger.balance("data").spendings
    assert spending.finished
    assert spending.cost.epsilon(1e-6) == pytest.approx(release.privacy.epsilon)
    assert release.sample(10).num_rows == 10


@pytest.mark.usefixtures("kept_always")
def test_going_on_ends_where_an_unbroken_run_would(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With noise that only counts how often it was asked for: the broken run makes the same steps."""
    plan = make_plan(schema, make_settings(**small(sampling_rate=1.0)))
    calls: dict[int, int] = {}

    def entropy(size: int) -> bytes:
        calls[size] = calls.get(size, 0) + 1
        return bytes([(37 * size + 11 * calls[size]) % 251]) * size

    monkeypatch.setattr(pipeline.os, "urandom", entropy)
    whole = run(plan, open_table(people))
    calls.clear()
    killed_after(2, plan, people, tmp_path / "c")
    again = run(plan, open_table(people), checkpoint=tmp_path / "c")
    assert same_release(whole, again)


def test_what_is_shown_was_kept_before(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two writings the loss that is shown stays what it was at the last one."""
    monkeypatch.setattr(train, "_SECONDS", 1e9)
    plan = make_plan(schema, make_settings(**small()))
    shown: list[train.Round] = []
    run(plan, open_table(people), on_round=shown.append, checkpoint=tmp_path / "c")
    assert len({(one.loss, one.epsilon) for one in shown[:-1]}) == 1
    assert shown[-1].epsilon > shown[0].epsilon
    assert shown[-1].epsilon == pytest.approx(2.0, rel=2e-3)


@pytest.mark.usefixtures("kept_always")
def test_a_checkpoint_goes_on_only_as_what_it_began_as(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan, payer = paid(schema, tmp_path)
    ledger = payer.ledger
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    other = make_plan(schema, make_settings(**small(epochs=4.0)))
    with pytest.raises(ConfigError, match="another epochs"):
        run(other, open_table(people), checkpoint=tmp_path / "c", payer=payer)
    with pytest.raises(ConfigError, match="paid from a ledger"):
        run(plan, open_table(people), checkpoint=tmp_path / "c")
    run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer)
    with pytest.raises(ConfigError, match="would spend twice"):
        run(plan, open_table(people), checkpoint=tmp_path / "copy", payer=payer)
    (tmp_path / "copy" / "state.npz").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="damaged"):
        run(plan, open_table(people), checkpoint=tmp_path / "copy", payer=payer)
    assert len(ledger.balance("data").spendings) == 1


@pytest.mark.usefixtures("kept_always")
def test_no_copy_of_a_checkpoint_goes_on_beside_it(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    """Whoever goes on last is the only one: copies made before are refused, and who was overtaken stops."""
    plan, payer = paid(schema, tmp_path)
    _, other = paid(schema, tmp_path, "other.db")
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    killed_after(9, plan, people, tmp_path / "copy", payer=payer)
    with pytest.raises(ConfigError, match="would spend twice"):
        run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer)

    killed_after(2, plan, people, tmp_path / "elsewhere", payer=other)  # an open run of the same name
    with pytest.raises(ConfigError, match="would spend twice"):
        run(plan, open_table(people), checkpoint=tmp_path / "copy", payer=other)

    def meanwhile(done: train.Round) -> None:
        if done.done == 12:
            shutil.copytree(tmp_path / "copy", tmp_path / "third", ignore=shutil.ignore_patterns("lock"))
            run(plan, open_table(people), checkpoint=tmp_path / "third", payer=payer)

    with pytest.raises(ConfigError, match="goes on elsewhere"):
        run(plan, open_table(people), checkpoint=tmp_path / "copy", payer=payer, on_round=meanwhile)
    assert len(payer.ledger.balance("data").spendings) == 1


@pytest.mark.usefixtures("kept_always")
def test_a_kill_between_the_two_tokens_loses_nothing(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(Ledger, "claim", killed)
            with pytest.raises(KilledError):
                run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer)
    shown: list[train.Round] = []
    release = run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert release.privacy.epsilon <= 2.0
    assert shown[0].done == 4
    assert 0.5 < shown[0].epsilon < 1.9, "what the first rounds cost is part of it"


def test_what_is_shown_first_after_a_kill_counts_the_rounds_before(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(schema, make_settings(**small()))
    with monkeypatch.context() as patched:
        patched.setattr(train, "_SECONDS", 0.0)
        killed_after(15, plan, people, tmp_path / "c")
    monkeypatch.setattr(train, "_SECONDS", 1e9)
    shown: list[train.Round] = []
    run(plan, open_table(people), checkpoint=tmp_path / "c", on_round=shown.append)
    assert plan.training is not None
    before = dataclasses.replace(plan.training, rounds=15)
    floor = Cost(plan.cost.floor_mu, 0.0)
    assert shown[0].epsilon == pytest.approx((floor + Cost.of([before])).epsilon(1e-6))


@pytest.mark.usefixtures("kept_always")
def test_a_finished_checkpoint_gives_its_release_again(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan = make_plan(schema, make_settings(**small()))
    one = run(plan, open_table(people), checkpoint=tmp_path / "c")
    assert same_release(one, run(plan, open_table(people), checkpoint=tmp_path / "c"))


def test_a_checkpoint_in_use_or_in_the_way_is_refused(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan = make_plan(schema, make_settings(**small()))

    def meanwhile(done: train.Round) -> None:
        if done.done == 1:
            with pytest.raises(ConfigError, match="another run"):
                run(plan, open_table(people), checkpoint=tmp_path / "c")

    run(plan, open_table(people), checkpoint=tmp_path / "c", on_round=meanwhile)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="neither empty nor a checkpoint"):
        run(plan, open_table(people), checkpoint=tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]
    other = make_plan(schema, make_settings(epsilon=1.0))
    with pytest.raises(ConfigError, match="only the model neural"):
        run(other, open_table(people), checkpoint=tmp_path / "d")


@pytest.mark.usefixtures("kept_always")
def test_a_full_disk_is_one_clear_error_and_training_goes_on_later(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, payer = paid(schema, tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    def fill(done: train.Round) -> None:
        if done.done == 4:
            monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ReleaseError, match="No space left"):
        run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer, on_round=fill)
    assert not list((tmp_path / "c").glob(".*"))
    with pytest.raises(ReleaseError, match="No space left"):
        run(make_plan(schema, make_settings(**small())), open_table(people), checkpoint=tmp_path / "d")
    monkeypatch.undo()
    shown: list[train.Round] = []
    run(plan, open_table(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert shown[0].done == 5
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True]


def test_a_run_that_cannot_be_paid_leaves_no_checkpoint(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", make_settings(epsilon=0.1, delta=1e-6).budget)
    plan = make_plan(schema, make_settings(**small()))
    with pytest.raises(Exception, match="this run costs"):
        run(plan, open_table(people), payer=pipeline.Payer(ledger, "data"), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_ledger_composes_trainings_with_everything_else(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    limit = make_settings(epsilon=2.0, delta=1e-6).budget
    ledger.init("data", limit)
    plan = make_plan(schema, make_settings(**small(epsilon=1.0)))
    for _ in range(2):
        ledger.reserve("data", plan.charges, training=plan.training, what="training")
    balance = ledger.balance("data")
    assert 1.3 < balance.spent_epsilon < 1.8, "less than the sum"
    left = balance.remaining.mu
    assert left is not None
    with pytest.raises(Exception, match="this run costs"):
        ledger.reserve("data", {"all": left * 1.01}, what="too much")
    ledger.reserve("data", {"all": left}, what="the rest")
    assert 1.99 < ledger.balance("data").spent_epsilon <= 2.0
    with pytest.raises(Exception, match="this run costs"):
        ledger.reserve("data", plan.charges, training=plan.training, what="too much")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("parameters", lambda array: array[:-1]),
        ("parameters", lambda array: array * np.nan),
        ("parameters", lambda array: array + 1e300),
        ("features_0", lambda array: array[:-1]),
        ("features_0", lambda array: np.tile(array, 50)),
        ("features_1", lambda array: array + 1e9),
        ("groups_0", lambda array: array + 1),
    ],
)
def test_a_damaged_network_is_refused(
    name: str, change: Any, people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    release = synthesize(people, schema, **small())
    folder = rewritten(release, tmp_path / "release", {name: change(_arrays(release)[name])})
    with pytest.raises(ReleaseError):
        Release.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        *({"rounds": 10}, {"rate": 0.1}, {"sensitivity": 1.0}, {"sigma": -1.0}, {"rate": 2.0}, {"name": "score"}),
        *({"sigma": 1e9}, {"sigma": 1e4}, {"sigma": 1e300}, {"sensitivity": 1e300}),
    ],
)
def test_a_training_that_claims_to_be_another_is_refused(
    change: dict[str, Any], people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    release = synthesize(people, schema, **small())
    events = json.loads((release.save(tmp_path / "whole") / "release.json").read_text())["events"]
    events[-1] |= change
    with pytest.raises(ReleaseError):
        Release.load(rewritten(release, tmp_path / "release", {}, events=events))


def test_stage_one_cannot_pass_for_training(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    release = synthesize(people, schema, **small())
    events = json.loads((release.save(tmp_path / "whole") / "release.json").read_text())["events"]
    events[0] = {**events[-1], "name": "size", "sigma": 1e12}
    with pytest.raises(ReleaseError, match="kind"):
        Release.load(rewritten(release, tmp_path / "release", {}, events=events))


def test_a_finished_call_leaves_no_checkpoint(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    """Or the next call, on another table, would get this one's release."""
    synthesize(people, schema, **small(), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    with pytest.raises(ConfigError, match="path of a folder"):
        synthesize(people, schema, **small(), checkpoint=5)
    with pytest.raises(ConfigError, match="must be numbers"):
        synthesize(people, schema, **small(epochs="5"))


def test_without_its_libraries_nothing_is_spent(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = synthesize(people, schema, **small())
    plan, payer = paid(schema, tmp_path)
    release.save(tmp_path / "release")
    monkeypatch.setitem(sys.modules, "jax_privacy", None)
    with pytest.raises(ConfigError, match=r"install repsynth\[neural\]"):
        run(plan, open_table(people), payer=payer, checkpoint=tmp_path / "c")
    assert not payer.ledger.balance("data").spendings
    assert not (tmp_path / "c").exists()
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    loaded = Release.load(tmp_path / "release")
    assert loaded.sample(5).num_rows == 5, "drawing needs neither"
    cost._accountant.cache_clear()
    with pytest.raises(ConfigError, match=r"install repsynth\[neural\]"):
        make_plan(schema, make_settings(**small(epsilon=1.7)))


def test_the_dossier_of_a_trained_model(people: pa.Table, schema: Schema) -> None:
    release = synthesize(people, schema, **small())
    table, summary = dossier(people, release)
    assert "realised_mu" not in table.column_names
    assert summary.clip_bias is None
    losses = table["realised_epsilon"].to_numpy()
    weights = table["weight"].to_numpy()
    assert losses.max() <= release.privacy.epsilon <= 2.0
    assert np.array_equal(np.argsort(losses, kind="stable"), np.argsort(np.ceil(weights * 128), kind="stable"))
    assert np.all(table["guaranteed_epsilon"].to_numpy() <= release.privacy.epsilon)


def test_the_plan_says_what_training_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    command = ["plan", "--schema", str(tmp_path / "schema.toml"), "--epsilon", "1", "--delta", "1e-6", "--model"]
    assert main([*command, "neural", "--public-rows", "5000", "--epochs", "10", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    training = planned["training"]
    assert training["rounds"] == 200
    assert training["expected_batch"] == pytest.approx(250, rel=1e-3)
    spent = SampledEvent("training", 1.0, training["noise_multiplier"], training["sampling_rate"], 200)
    assert training["epsilon_alone"] == pytest.approx(Cost.of([spent]).epsilon(1e-6))
    assert planned["epsilon_by_weight"]["1.0"] == pytest.approx(1.0, rel=2e-3)
    assert main([*command, "neural", "--public-rows", "5000", "--epochs", "10"]) == 0
    assert "10 epochs: 200 rounds" in capsys.readouterr().out
    assert main([*command, "naive-bayes", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["training"] is None


def test_a_ledger_kept_at_a_tiny_delta_takes_no_training(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", make_settings(epsilon=2.0, delta=1e-20).budget)
    plan = make_plan(schema, make_settings(**small(epsilon=0.1)))
    with pytest.raises(LedgerError, match="accounted for down to"):
        ledger.reserve("data", plan.charges, training=plan.training, what="training")


def test_one_label_can_be_drawn(sim: datasets.Dataset) -> None:
    for model in ("naive-bayes", "mst", "aim", "neural"):
        budget = {"epsilon": 5.0} if model == "neural" else {"mu": 50.0}
        chosen = make_settings(delta=1e-6, model=model, weights="uniform", **budget)  # type: ignore[arg-type]
        release = run(make_plan(sim.schema, chosen), open_table(sim.table), noise_seed=3)
        frame = sim.table.to_pandas()
        drawn = release.sample(4000, seed=1, label="1").to_pandas()
        assert set(drawn["label"].astype(str)) == {"1"}
        real = frame[frame["label"].astype(str) == "1"]
        for name in ("x1", "x4"):
            spread = frame[name].std()
            assert abs(drawn[name].mean() - real[name].mean()) < 0.15 * spread, (model, name)
        with pytest.raises(ConfigError, match="not a value of the label"):
            release.sample(3, label="2")


def test_what_depends_on_the_label_is_learnt(sim: datasets.Dataset) -> None:
    """The network finds what naive Bayes finds, and how columns hang together given the label."""
    release = run(
        make_plan(sim.schema, make_settings(epsilon=8.0, delta=1e-6, model="neural", weights="uniform")),
        open_table(sim.table),
        noise_seed=4,
    )
    frame, drawn = sim.table.to_pandas(), release.sample(6000, seed=1).to_pandas()
    for name in ("x1", "x2", "x3", "x4", "x5", "x6"):
        gaps = [
            f[name][f["label"].astype(str) == "1"].mean() - f[name][f["label"].astype(str) == "0"].mean()
            for f in (frame, drawn)
        ]
        assert gaps[1] == pytest.approx(gaps[0], abs=0.25)
    numbers = ["x1", "x2", "x3", "x4", "x5", "x6"]
    real, made = (f[numbers].corr().to_numpy()[np.triu_indices(6, 1)] for f in (frame, drawn))
    assert np.abs(real - made).mean() < 0.08


def test_the_command_line_goes_on_after_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL in the middle of training; the same command again finishes the run, paid for once."""
    pacsv.write_csv(make_people(3000), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "init", "ledger.db", "--epsilon", "2", "--delta", "1e-6"]) == 0
    budget = ["--epsilon", "2", "--delta", "1e-6", "--ledger", "ledger.db", "--json"]
    model = ["--schema", "schema.toml", "--model", "neural", "--epochs", "100"]
    command = [sys.executable, "-m", "repsynth", "synthesize", "people.csv", *model, *budget]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    state = tmp_path / "release.checkpoint" / "state.npz"
    while not (state.exists() and np.load(state)["numbers"][1] > 0):
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = int(np.load(state)["numbers"][1])
    assert 0 < done < 2000
    finished = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Going on with the training" in finished.stderr
    account = json.loads(finished.stdout)
    assert account["epsilon"] <= 2.0
    assert account["mu"] is None
    assert not (tmp_path / "release.checkpoint").exists()
    (spending,) = Ledger("ledger.db").balance("data").spendings
    assert spending.finished
    assert Release.load(tmp_path / "release").sample(3).num_rows == 3
