"""Bounds of trainings: a Gaussian and a coin tell at least as much, by a computation of its own, and the ledger's
limit holds for a chooser who sees what was released."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from repsynth.arrays import Floats
from repsynth.errors import LedgerError
from repsynth.privacy import adaptive_filter as bound_module
from repsynth.privacy import pld
from repsynth.privacy.adaptive_filter import FAILURE_PART, Bound, bound_training, room_in
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.gaussian import delta_below, delta_of
from repsynth.privacy.ledger import Balance, Ledger, Spending
from repsynth.privacy.loss import Loss
from repsynth.schema import Measured

LIMIT = Budget.approximate(epsilon=2.0, delta=1e-9)
ROOM = room_in(LIMIT)


def training(rate: float, noise: float, rounds: int) -> SampledEvent:
    return SampledEvent("gradients", 1.0, noise, rate, rounds)


def gaussian_delta(mu: float, epsilon: Floats) -> Floats:
    """At any ε, negative ones too."""
    return np.asarray(ndtr(mu / 2 - epsilon / mu) - np.exp(epsilon) * ndtr(-mu / 2 - epsilon / mu))


def one_round(rate: float, noise: float, epsilon: Floats, *, remove: bool) -> Floats:
    """The δ of one sampled Gaussian in closed form, at any ε. The likelihood ratio of the mixture to the Gaussian
    grows with the output x, so the best test is a threshold on x."""
    if not remove:
        return 1 - np.exp(epsilon) + np.exp(epsilon) * one_round(rate, noise, -epsilon, remove=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (np.exp(epsilon) - (1 - rate)) / rate
        x = np.where(inner > 0, noise**2 * np.log(inner) + 0.5, -np.inf)
    without, taking_part = ndtr(-x / noise), ndtr((1 - x) / noise)
    return np.asarray((1 - rate) * without + rate * taking_part - np.exp(epsilon) * without)


def many_rounds(each: SampledEvent, *, remove: bool, step: float = 2e-3) -> Callable[[float], float]:
    """The δ of several rounds, rounded down: losses are rounded down to a grid and added up by plain convolution,
    which is exact to the last digits however small a chance is. `rounds` is a power of two."""
    q, s = each.rate, each.noise
    x = np.linspace(-12 * s, 1 + 12 * s, 400_001)
    loss = np.log1p(q * np.expm1((2 * x - 1) / (2 * s * s)))
    edges = (x[1:] + x[:-1]) / 2

    def chances(mean: float) -> Floats:
        below, above = ndtr((edges - mean) / s), ndtr((mean - edges) / s)  # each tail with digits of its own
        lower, upper = np.diff([0.0, *below, 1.0]), -np.diff([1.0, *above, 0.0])
        return np.where(x < mean, lower, upper)

    chance, moved = chances(0.0), chances(1.0)
    if remove:
        probability = (1 - q) * chance + q * moved
    else:
        probability, loss = chance, -loss
    low = np.floor(loss.min() / step).astype(int)
    cells = np.floor(loss / step).astype(int) - low
    found = np.bincount(cells, weights=probability)
    rounds = each.rounds
    while rounds > 1:
        found, low, rounds = np.convolve(found, found), 2 * low, rounds // 2
    losses = (np.arange(len(found)) + low) * step
    return lambda epsilon: float(np.sum(found * -np.expm1(np.minimum(epsilon - losses, 0.0))))


@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize("noise", [0.9, 2.0, 8.0])
@pytest.mark.parametrize("rate", [2**-10, 0.0625, 0.5])
def test_one_round_is_dominated_at_every_epsilon(rate: float, noise: float, remove: bool) -> None:
    """In closed form, negative ε included; and a Gaussian that is clearly smaller would not do."""
    bound = bound_training(training(rate, noise, 1), ROOM)
    levels = np.linspace(-6, 6, 4801)
    true = one_round(rate, noise, levels, remove=remove)
    assert np.all(true <= covered(bound, levels) + 1e-15)
    if remove and rate > 0.01:
        assert np.any(true > covered(Bound(bound.mu * 0.85, bound.failure * 0.85**2), levels))


def covered(bound: Bound, levels: Floats) -> Floats:
    return bound.failure + (1 - bound.failure) * gaussian_delta(bound.mu, levels)


@pytest.mark.slow
@pytest.mark.parametrize("remove", [True, False])
@pytest.mark.parametrize(("rate", "noise", "rounds"), [(0.25, 3.0, 16), (0.0625, 1.5, 16), (0.01171875, 1.0, 4)])
def test_rounds_are_dominated_by_a_computation_of_its_own(
    rate: float, noise: float, rounds: int, remove: bool
) -> None:
    each = training(rate, noise, rounds)
    bound = bound_training(each, ROOM)
    delta = many_rounds(each, remove=remove)
    levels = np.concatenate([np.linspace(0, 3, 61), np.linspace(3, 30, 40)])
    true = np.array([delta(level) for level in levels])
    assert np.all(true <= covered(bound, levels))
    if remove:
        smaller = Bound(bound.mu * 0.95, bound.failure * 0.95**2)
        assert np.any(true > covered(smaller, levels)), "it is not far from the smallest"


@pytest.mark.parametrize("each", [training(0.0625, 6.0, 300), training(0.25, 3.0, 16), training(2**-10, 0.9, 1)])
def test_what_is_known_at_some_levels_is_enough_between_and_beyond_them(
    each: SampledEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training's δ may fall just before the next level, so it has to be covered there, too; and what is left
    of it beyond the last one is covered by the failure alone."""
    seen: dict[str, Floats] = {}
    deltas = pld.deltas

    def watched(event: SampledEvent, levels: Floats) -> Floats:
        seen["levels"] = levels
        return deltas(event, levels)

    monkeypatch.setattr(bound_module.pld, "deltas", watched)
    bound = bound_training.__wrapped__(each, ROOM)
    levels = seen["levels"]
    known = np.minimum(deltas(each, levels), bound_module._renyi_deltas(each, levels))
    next_one = bound.failure + (1 - bound.failure) * delta_below(bound.mu, levels[1:])
    assert np.all(known[:-1] <= next_one)
    assert known[-1] <= bound.failure


def test_failures_never_run_out_before_mu_does() -> None:
    for each in (training(0.0625, 6.0, 300), training(0.0625, 60.0, 300), training(0.25, 600.0, 10)):
        bound = bound_training(each, ROOM)
        assert bound.failure == pytest.approx(ROOM.failure * (bound.mu / ROOM.mu) ** 2)
    assert ROOM.failure == FAILURE_PART * LIMIT.delta
    assert float(delta_of(ROOM.mu * (1 + 1e-10), LIMIT.epsilon)) + ROOM.failure <= LIMIT.delta


def test_a_training_in_which_all_take_part_is_exactly_gaussian() -> None:
    bound = bound_training(training(1.0, 10.0, 4), ROOM)
    assert bound.mu == pytest.approx(0.2, rel=1e-12)
    assert bound.mu >= 0.2
    assert bound.failure == 0.0


def test_a_bound_grows_with_rounds_and_falls_with_noise() -> None:
    base = bound_training(training(0.0625, 6.0, 300), ROOM).mu
    assert bound_training(training(0.0625, 6.0, 301), ROOM).mu > base
    assert bound_training(training(0.0625, 6.1, 300), ROOM).mu < base
    assert bound_training(training(0.078125, 6.0, 300), ROOM).mu > base


def test_delta_is_rounded_to_either_side() -> None:
    levels = np.linspace(0.0, 8.0, 50)
    assert np.all(delta_below(0.7, levels) <= gaussian_delta(0.7, levels) + 1e-17)
    assert np.all(delta_below(0.7, levels) < delta_of(0.7, levels))
    assert np.all(delta_of(0.7, levels) - delta_below(0.7, levels) < 1e-11)


def test_a_training_at_the_default_settings_costs_hardly_more_than_its_epsilon_says() -> None:
    """300 rounds at a rate of 0.05, with the noise of ε = 1 at δ = 1e-9."""
    each = training(3277 / 65536, 5.05, 300)
    balance = Balance("data", "", "", LIMIT, ())
    alone = Budget.approximate(epsilon=Loss.of([each]).epsilon(1e-9), delta=1e-9)
    assert balance.share(balance.bound(Loss.of([each]))) < 1.02 * (alone.mu / LIMIT.mu) ** 2


ONE_EPSILON = Budget.approximate(epsilon=1.0, delta=1e-6)
# The least noise of the round of training below: by the account of the whole, and by bounds.
OLD_NOISE, NEW_NOISE = 0.8824, 1.096


def value_of_choosing(first: float, seconds: list[Callable[[Floats], Floats]]) -> float:
    """The δ, as a multiple of 1e-6, that someone reaches at ε = 1 who sees a Gaussian of `first` and then takes
    the one of the seconds that tells most."""
    draws = np.linspace(-12, 12, 20_001)
    weights = np.exp(-(draws**2) / 2)
    left = 1.0 - (draws * first + first**2 / 2)
    best = np.max([second(left) for second in seconds], axis=0)
    return float(np.sum(weights * best) / np.sum(weights)) / 1e-6


def test_what_a_chooser_gains_from_an_account_of_the_whole_is_refused(tmp_path: Path) -> None:
    """After a Gaussian run, either another one, or one round of training that only says much if it says anything.
    Either keeps (ε, δ) as a whole if fixed in advance. Whoever picks by the first output exceeds δ by far."""
    room = room_in(ONE_EPSILON)
    first, rate = 0.7 * room.mu, 2**-6
    risky = training(rate, OLD_NOISE, 1)
    assert Loss(0.0, first, (risky,)).epsilon(1e-6) <= 1.0
    rest = math.sqrt(ONE_EPSILON.mu**2 - first**2)
    by_the_whole = value_of_choosing(
        first, [lambda e: gaussian_delta(rest, e), lambda e: one_round(rate, OLD_NOISE, e, remove=True)]
    )
    assert by_the_whole > 1.75

    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", ONE_EPSILON)
    ledger.reserve("data", {"all": first}, what="first")
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", {"all": 1e-9}, training=risky, what="risky")
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", {"all": rest}, what="up to the limit")
    balance = ledger.balance("data")
    affordable = training(rate, NEW_NOISE, 1)
    assert balance.covers(Loss(0.0, 0.0, (affordable,)))
    assert not balance.covers(Loss(0.0, 0.0, (training(rate, NEW_NOISE * 0.99, 1),)))
    left = balance.remaining.mu
    assert left is not None
    by_bounds = value_of_choosing(
        first, [lambda e: gaussian_delta(left, e), lambda e: one_round(rate, NEW_NOISE, e, remove=True)]
    )
    assert 0.98 < by_bounds <= 1.0


# One round of training each, at a rate of so many in 65,536, with the least noise that keeps (1, 1e-6) beside a
# Gaussian that takes half of μ²: if all is fixed in advance, and whatever the training was chosen by.
RISKY = ((4, 0.33291), (64, 0.50985), (1024, 0.88321), (8192, 1.70801))
SAFE = ((4, 0.4526), (64, 0.65798), (1024, 1.09992), (8192, 2.01868))
HALF = math.sqrt(0.5) * ONE_EPSILON.mu
SCHEMA = Measured(mu=HALF * (1 - 1e-9), failure=1e-12, mark="1" * 32, columns=("a",))


def test_whoever_chooses_a_run_by_a_measured_schema_exceeds_the_composed_account() -> None:
    """Each of five runs composes with the schema to (1, 1e-6). The choice among them does not."""
    seconds = [lambda e: gaussian_delta(HALF, e)]
    for rate, noise in RISKY:
        run = Loss.of([training(rate / 65536, noise, 1)])
        assert (Loss.of_measured(SCHEMA) + run).epsilon(1e-6) <= 1.0
        seconds.append(lambda e, rate=rate, noise=noise: one_round(rate / 65536, noise, e, remove=True))
    assert value_of_choosing(HALF, seconds) > 2.18


@pytest.mark.parametrize(("rate", "noise"), RISKY)
def test_a_first_run_that_pays_for_its_schema_is_refused_where_only_the_composed_account_fits(
    rate: int, noise: float, tmp_path: Path
) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", ONE_EPSILON)
    with pytest.raises(LedgerError, match=r"this run and its measured schema cost ε = [1-9]"):
        ledger.reserve(
            "data", {"count": 1e-9}, training=training(rate / 65536, noise, 1), what="", measured=SCHEMA
        )
    assert ledger.balance("data").spendings == ()


def test_a_gaussian_first_run_with_its_schema_may_take_the_room_and_not_the_whole_limit(tmp_path: Path) -> None:
    """μ² add up whatever a Gaussian run was chosen by. But what is kept for failures is kept for all choices."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", ONE_EPSILON)
    with pytest.raises(LedgerError, match=r"this run and its measured schema cost ε = 1\.0") as caught:
        ledger.reserve("data", {"all": HALF}, what="", measured=SCHEMA)
    affordable = Budget.approximate(epsilon=float(str(caught.value).split("--epsilon ")[1].split()[0]), delta=1e-6)
    rest = math.sqrt(room_in(ONE_EPSILON).mu ** 2 - SCHEMA.mu**2)
    assert affordable.mu == pytest.approx(rest, rel=1e-3)
    assert affordable.mu <= rest
    ledger.reserve("data", {"all": rest}, what="", measured=SCHEMA)
    balance = ledger.balance("data")
    assert balance.spendings[0].after_schema
    assert not balance.exceeded
    assert 0.999 < balance.spent_epsilon <= 1.0


def test_a_schema_that_the_ledger_measures_itself_depends_on_nothing(tmp_path: Path) -> None:
    """It is the first run, so it may take the whole limit by its own account."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", ONE_EPSILON)
    whole = Measured(mu=ONE_EPSILON.mu * (1 - 1e-6), failure=1e-12, mark="2" * 32, columns=("a",))
    ledger.reserve("data", {}, what="a measured schema", measured=whole)
    balance = ledger.balance("data")
    assert not balance.spendings[0].after_schema
    assert not balance.exceeded


def test_an_earlier_entry_that_paid_for_its_schema_by_the_composed_account_is_said_to_exceed() -> None:
    loss = Loss.of_measured(SCHEMA) + Loss.of([training(64 / 65536, 0.50985, 1)])
    empty = Balance("data", "", "", ONE_EPSILON, ())
    spending = Spending("", "", "", "", loss, empty.bound(loss), True, True)
    assert Balance("data", "", "", ONE_EPSILON, (spending,)).exceeded
    assert not Balance("data", "", "", ONE_EPSILON, (replace(spending, after_schema=False),)).exceeded


def test_what_is_printed_of_a_run_with_a_measured_schema_holds_for_whoever_chose_it() -> None:
    """Runs that all show the same ε at δ, beside the schema, are no better for a chooser than that δ."""
    schema = Loss.of_measured(SCHEMA)

    def shown(run: Loss) -> float:
        return run.after(schema, 1e-6).epsilon(1e-6)

    gaussian = 0.999 * HALF
    seconds = [lambda e: gaussian_delta(gaussian, e)]
    assert 0.999 < shown(Loss(0.0, gaussian)) <= 1.0
    for rate, noise in SAFE:
        assert shown(Loss.of([training(rate / 65536, noise, 1)])) <= 1.0
        assert shown(Loss.of([training(rate / 65536, 0.99 * noise, 1)])) > 1.0
        seconds.append(lambda e, rate=rate, noise=noise: one_round(rate / 65536, noise, e, remove=True))
    assert 0.98 < value_of_choosing(HALF, seconds) <= 1.0


def test_a_dominated_training_loses_less_with_less_weight_and_never_less_than_composed() -> None:
    each = SampledEvent("gradients", 1.0, 6.0, 0.0625, 100, weighted=True)
    loss = Loss.of([each]).after(Loss.of_measured(SCHEMA), 1e-6)
    composed = Loss.of_measured(SCHEMA) + Loss.of([each])
    weights = np.array([0.25, 0.5, 1.0])
    found = loss.epsilon_at(weights, 1e-6)
    assert np.all(np.diff(found) > 0)
    assert np.all(found == [loss.at(weight).epsilon(1e-6) for weight in weights])
    assert composed.epsilon(1e-6) < loss.epsilon(1e-6) < 1.1 * composed.epsilon(1e-6)
    assert composed.delta(0.5) < loss.delta(0.5)
    assert composed.advantage_at(1.0) < loss.advantage_at(1.0) < 1.2 * composed.advantage_at(1.0)
    assert (
        composed.true_positive_rate(0.01) < loss.true_positive_rate(0.01) < 1.2 * composed.true_positive_rate(0.01)
    )


def test_room_for_failures_matters_where_runs_are_chosen() -> None:
    """Were the limit's whole μ open to runs without training, and failures granted to trainings on top, a chooser
    would take whichever tells more: the coin where the first output says little."""
    first = 0.7 * ONE_EPSILON.mu
    rest = math.sqrt(ONE_EPSILON.mu**2 - first**2)
    failure = FAILURE_PART * 1e-6

    def coin(epsilon: Floats) -> Floats:
        return failure + (1 - failure) * np.maximum(1 - np.exp(epsilon), 0.0)

    assert value_of_choosing(first, [lambda e: gaussian_delta(rest, e), coin]) > 1.005
    kept = math.sqrt(room_in(ONE_EPSILON).mu ** 2 - first**2)
    assert value_of_choosing(first, [lambda e: gaussian_delta(kept, e), coin]) <= 1.0


def test_the_failures_of_all_runs_add_up() -> None:
    spending = Spending("", "", "", "", Loss(0.0, 0.01), Bound(0.01, 0.4 * ROOM.failure), True)
    balance = Balance("data", "", "", LIMIT, (spending, spending))
    assert balance.covers(Loss(0.0, 0.01))
    again = Balance("data", "", "", LIMIT, (spending, spending, spending))
    assert not again.covers(Loss(0.0, 0.01))
    assert again.spent_bound.failure == pytest.approx(1.2 * ROOM.failure)
