"""The checks can fail: seeded faults in the mechanism, each caught by a named check."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from checks import (
    check_contribution,
    check_noise_scale,
    check_replay,
    check_spends_its_plan,
    record_run,
    records_of,
    repeatable,
)
from conftest import ALL_TYPES, make_people, options_of
from scipy.special import softmax
from scipy.stats import chisquare

from repsynth.attacks.audit import audit
from repsynth.columns.adaptive_histogram import ColumnHistograms
from repsynth.engine import local
from repsynth.engine.local import LocalEngine
from repsynth.io import encode
from repsynth.io.records import MISSING, Records, join, no_records
from repsynth.io.sources import open_source
from repsynth.mechanism import meter, noise
from repsynth.mechanism.meter import Meter
from repsynth.models.dp_sgd import Gradients
from repsynth.models.network import Network
from repsynth.models.registry import MODELS
from repsynth.models.statistics import LabelSums, TableChoice, Tables
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy import events
from repsynth.privacy.events import MU_PER_ETA, SampledEvent
from repsynth.privacy.ledger import Ledger
from repsynth.run import run as running
from repsynth.run.payment import Payer
from repsynth.schema import Integer, parse_schema
from repsynth.scoring import stage
from repsynth.scoring.pairwise import PairChoice, PairTables
from repsynth.scoring.weights import FULL, WeightFunction

SCHEMA = parse_schema(ALL_TYPES)
TABLE = make_people(120)

# --- how a fault is seeded ---

Fault = Callable[[], AbstractContextManager[None]]


class NotSeededError(Exception):
    """The fault is in code that does not run, so the check says nothing about it."""


@contextmanager
def seeded(owner: Any, name: str, make_faulty: Callable[[Any, Callable[[], None]], Any]) -> Iterator[None]:
    """Replace the attribute `name` of `owner`. It is an error if the fault is not reached.

    `make_faulty` gets the original, and a function to call where the fault takes effect.
    """
    if name not in vars(owner):
        raise NotSeededError(f"{owner.__name__} has no {name}")
    original, times = vars(owner)[name], 0

    def reached() -> None:
        nonlocal times
        times += 1

    setattr(owner, name, make_faulty(original, reached))
    try:
        yield
    finally:
        setattr(owner, name, original)
        if not times:
            raise NotSeededError(f"{owner.__name__}.{name} was not reached")


def fault(owner: Any, name: str, when: Callable[..., bool] = lambda *_, **__: True) -> Callable[[Any], Fault]:
    """Make a fault of a function that replaces a function or property, and gets the original before its arguments.

    The original is called if `when`, which gets the arguments alone, says no.
    """

    def decorate(faulty: Callable[..., Any]) -> Fault:
        def make(original: Any, reached: Callable[[], None]) -> Any:
            function = original.fget if isinstance(original, property) else original

            def called(*arguments: Any, **options: Any) -> Any:
                if not when(*arguments, **options):
                    return function(*arguments, **options)
                reached()
                return faulty(function, *arguments, **options)

            return property(called) if isinstance(original, property) else called

        @wraps(faulty)
        def enter() -> AbstractContextManager[None]:
            return seeded(owner, name, make)

        return enter

    return decorate


# --- faults in what all models share, and in naive Bayes ---


@fault(noise, "rounded_gaussian")
def half_the_noise(draw: Any, sigma: float, size: int, entropy: Any) -> Any:
    return draw(sigma / 2, size, entropy)


@fault(noise, "rounded_gaussian")
def one_seed_for_all_noise(draw: Any, sigma: float, size: int, entropy: Any) -> Any:
    return draw(sigma, size, noise.seeded_entropy(0))


@fault(ColumnHistograms, "sensitivity")
def sensitivity_of_one_column(original: Any, self: Any) -> float:
    return 1.0


def with_sigma(event: Any, factor: float) -> Any:
    return msgspec.structs.replace(event, sigma=event.sigma * factor)


@fault(Meter, "measure", when=lambda self, statistic, *, mu: statistic.name == "coarse histograms")
def a_charge_forgotten(original: Any, self: Meter, statistic: Any, *, mu: float) -> Any:
    result = original(self, statistic, mu=mu)
    self.events[-1] = with_sigma(self.events[-1], 1e6)
    return result


def another_look(name: str) -> Callable[[Any], Fault]:
    """Make a fault of a function that takes one of the looks in place of the meter."""

    def decorate(look: Callable[[Meter, Any, float], Any]) -> Fault:
        def make(original: Any, reached: Callable[[], None]) -> Any:
            def measured(meter: Meter, *arguments: Any, **options: Any) -> Any:
                def measure(statistic: Any, *, mu: float) -> Any:
                    if statistic.name != name:
                        return meter.measure(statistic, mu=mu)
                    reached()
                    return look(meter, statistic, mu)

                return original(SimpleNamespace(measure=measure), *arguments, **options)

            return measured

        @wraps(look)
        def enter() -> AbstractContextManager[None]:
            return seeded(stage, "_measure_look", make)

        return enter

    return decorate


@another_look("fine histograms")
def a_look_without_a_charge(meter: Meter, statistic: Any, mu: float) -> Any:
    """With noise, but without an event."""
    size = len(statistic.total(no_records()))
    return meter.engine.sum(statistic) + noise.rounded_gaussian(10.0, size, meter.entropy)


@another_look("refined histograms")
def a_look_at_a_lower_charge(meter: Meter, statistic: Any, mu: float) -> Any:
    """Twice the budget that its event states."""
    found = meter.measure(statistic, mu=mu)
    meter.events[-1] = with_sigma(meter.events[-1], 2)
    return found


@another_look("refined histograms")
def cells_divided_by_the_private_counts(meter: Meter, statistic: Any, mu: float) -> Any:
    """The look is charged, but the next cells follow from the exact counts."""
    meter.measure(statistic, mu=mu)
    return meter.engine.sum(statistic)


@fault(stage, "ColumnHistograms")
def histograms_that_claim_weights(original: Any, bins: Any) -> Any:
    """Their event is weighted, though every record counts in full."""
    return original(bins, weighted=True)


@dataclasses.dataclass(frozen=True)
class Weighted:
    """A statistic that claims to be weighted."""

    statistic: Any
    weighted: bool = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.statistic, name)


@fault(Meter, "measure", when=lambda self, statistic, *, mu: not statistic.weighted)
def a_meter_that_takes_all_for_weighted(original: Any, self: Meter, statistic: Any, *, mu: float) -> Any:
    return original(self, Weighted(statistic), mu=mu)


@fault(WeightFunction, "of")
def weights_above_one(original: Any, self: Any, scores: Any) -> Any:
    return np.minimum(3 * original(self, scores), 2 * FULL)


@fault(LabelSums, "multiplier")
def no_clip(original: Any, self: Any, cells: Any, weights: Any) -> Any:
    return weights


@fault(LocalEngine, "sum")
def divided_by_the_private_number_of_records(original: Any, self: LocalEngine, kernel: Any) -> Any:
    return original(self, kernel) * 1000 // max(sum(records.rows for records in self.data), 1)


@fault(stage, "measure_scores")
def threshold_from_the_private_scores(original: Any, meter: Meter, plan: Plan, columns: Any, on_step: Any) -> Any:
    """The paper's: the quantile of the private scores, in place of the noisy histogram's."""
    private = join(list(meter.engine.per_record()), [column.name for column in plan.schema.learned])

    @fault(stage, "choose_score_bins")
    def peeking(choose: Any, score: Any, histograms: Any, *, sigma: float, label: Any) -> Any:
        bins = choose(score, histograms, sigma=sigma, label=label)
        level = int(np.quantile(score.of(private), 0.7))
        return dataclasses.replace(bins, edges=bins.edges - bins.edges[5] + level)

    with peeking():
        return original(meter, plan, columns, on_step)


@fault(LabelSums, "sensitivity")
def sensitivity_too_small_by_the_square_root_of_two(original: Any, self: Any) -> Any:
    return original(self) / 2**0.5


@fault(LabelSums, "multiplier")
def weight_before_the_clip(original: Any, self: Any, cells: Any, weights: Any) -> Any:
    """clip(w φ) in place of w clip(φ): a long contribution keeps the full norm whatever its weight."""
    norm = np.maximum(np.sqrt(self.squared_norm(cells)), 1)
    return np.minimum(weights, (FULL * self.clip / norm).astype(np.int64))


@fault(LabelSums, "total")
def divided_by_the_private_sum_of_weights(original: Any, self: Any, records: Any) -> Any:
    weights = int(self.weights.of(self.score.of(records)).sum())
    return original(self, records) * (100 * FULL) // max(weights, 1)


@contextmanager
def ledger_committed_before_it_is_reserved() -> Iterator[None]:
    """The cost is noted when the run is over, in place of before it begins."""
    reserve, commit = Payer.reserve, Ledger.commit

    def late(self: Ledger, dataset: str, plan: Any) -> None:
        commit(self, dataset, reserve(Payer(self, dataset), plan))

    reserved = fault(Payer, "reserve")(lambda original, self, plan: plan)
    with mock.patch.object(Ledger, "commit", late), reserved():  # a check may stop long before a run is closed
        yield


@fault(encode, "positions_of", when=lambda values, column: not np.isfinite(values).all())
def nan_survives_the_encoder(original: Any, values: Any, column: Any) -> Any:
    return np.where(np.isfinite(values), original(values, column), 2**40)


# --- faults in the marginal models ---


@fault(Tables, "sensitivity")
def tables_with_the_sensitivity_of_one(original: Any, self: Any) -> float:
    return float(FULL)


@fault(Tables, "total")
def tables_without_weights(original: Any, self: Any, records: Any) -> Any:
    everybody = WeightFunction(start=0, table=np.array([FULL]))
    return original(dataclasses.replace(self, weights=everybody), records)


@fault(TableChoice, "utilities")
def utilities_that_count_twice(original: Any, *asked: Any, **how: Any) -> Any:
    return 2 * original(*asked, **how)


@fault(TableChoice, "utilities")
def tables_expected_from_the_data(original: Any, self: Any, total: Any, chosen: Any, **how: Any) -> Any:
    return original(dataclasses.replace(self, expected=total * 100 % 40_960), total, chosen, **how)


@fault(meter, "choose_exponential")
def the_best_candidate_always(original: Any, values: Any, **_: Any) -> int:
    return int(np.argmax(values))


@contextmanager
def rounds_that_cost_nothing() -> Iterator[None]:
    """Each round is drawn, and charged, at the η of one, though there are several."""

    def make(original: Any, reached: Callable[[], None]) -> Any:
        def root(x: float) -> float:
            if isinstance(x, int) and x == 4:
                reached()
                return 1.0
            return math.sqrt(x)

        assert original is math
        return SimpleNamespace(sqrt=root)

    with seeded(meter, "math", make), seeded(events, "math", make):
        yield


@fault(meter, "choose_exponential")
def choices_at_twice_the_eta(original: Any, values: Any, *, eta: float, **rest: Any) -> Any:
    return original(values, eta=2 * eta, **rest)


# --- faults in training ---


@fault(Gradients, "total")
def gradients_without_weights(original: Any, self: Any, parts: Any) -> Any:
    last = np.arange(parts.shape[1]) == parts.shape[1] - 1
    return original(self, np.where(last, FULL, parts).astype(np.int32))


@fault(Gradients, "total")
def gradients_that_count_twice(original: Any, self: Any, parts: Any) -> Any:
    return 2 * original(self, parts)


@fault(Gradients, "total")
def divided_by_the_size_of_the_batch(original: Any, self: Any, parts: Any) -> Any:
    return original(self, parts) * 1000 // max(len(parts), 1)


@fault(local, "sample_rows")
def everybody_in_every_round(original: Any, count: int, rate: float, entropy: Any) -> Any:
    """The account assumes a sample."""
    return np.arange(count)


@fault(local, "sample_rows")
def one_sample_for_all_rounds(original: Any, count: int, rate: float, entropy: Any) -> Any:
    return original(count, rate, noise.seeded_entropy(0))


@fault(Meter, "train")
def a_round_for_free(original: Any, self: Meter, rounds: Any, event: Any) -> None:
    original(self, rounds, msgspec.structs.replace(with_sigma(event, 2), rounds=event.rounds + 1))
    self.events[-1] = event


@fault(Network, "parts", when=lambda self, records: records.rows % 2 == 1)
def groups_from_the_data(original: Any, self: Any, records: Any) -> Any:
    """The network starts from something that is read off the private records."""
    found = original(self, records)
    return np.where(found[:, :1] >= 0, np.roll(found, 1, axis=1), found)


in_training = fault(meter, "add_gaussian", when=lambda values, *, name, sigma, **rest: name == "gradients")


@in_training
def little_noise_in_training(original: Any, values: Any, *, sigma: float, **rest: Any) -> Any:
    return original(values, sigma=sigma / 4, **rest)


@in_training
def no_noise_in_training(original: Any, values: Any, *, sigma: float, **rest: Any) -> Any:
    return original(values, sigma=1e-3, **rest)


# --- faults in what scorers measure ---


@fault(PairTables, "sensitivity")
def pairs_with_the_sensitivity_of_one(original: Any, self: Any) -> float:
    return 1.0


@fault(PairChoice, "utilities")
def pairs_that_count_twice(original: Any, *asked: Any, **how: Any) -> Any:
    return 2 * original(*asked, **how)


@fault(PairChoice, "utilities")
def pairs_smoothed_without_a_bound(original: Any, self: Any, total: Any, chosen: Any, **how: Any) -> Any:
    """The rows of a smoothing matrix add up to one, but its columns do not."""
    smooth = tuple((s / s.sum(axis=1, keepdims=True) * 2**13).astype(np.int64) for s in self.smooth)
    return original(dataclasses.replace(self, smooth=smooth), total, chosen, **how)


@fault(PairChoice, "utilities")
def pairs_expected_from_the_data(original: Any, self: Any, total: Any, chosen: Any, **how: Any) -> Any:
    peeking = tuple(-3 * int(total.sum()) * expected for expected in self.expected)
    return original(dataclasses.replace(self, expected=peeking), total, chosen, **how)


# --- the checks ---


def check_all_contributions(plan: Plan, table: pa.Table) -> None:
    records = records_of(table, SCHEMA)
    for m in record_run(plan, table)[1]:
        check_contribution(m.statistic, records)


def check_neighbour(plan: Plan, table: pa.Table) -> None:
    """Without the record of the smallest weight, and without that of the largest."""
    recorded = record_run(plan, table)
    scores = recorded[0].score.of(records_of(table, SCHEMA))
    for absent in (int(np.argmax(scores)), int(np.argmin(scores))):
        check_replay(plan, table, absent, recorded)


def check_independent_noise(plan: Plan, table: pa.Table) -> None:
    measured = record_run(plan, table)[1]
    parts = [((m.noisy - m.exact) / m.event.sigma)[:8] for m in measured[1:] if isinstance(m.noisy, np.ndarray)]
    for i, one in enumerate(parts):
        for other in parts[:i]:
            size = min(len(one), len(other))
            assert np.corrcoef(one[:size], other[:size])[0, 1] < 0.99, "two measurements share their noise"


class Even:
    """A choice between five candidates whose utilities are one unit apart."""

    name, rounds, unit, weighted = "choice", 1, 1, False

    def total(self, records: Any) -> Any:
        return np.array([records.rows])

    def utilities(self, total: Any, chosen: tuple[int, ...], *, units: int = 1) -> Any:
        return np.arange(5)


def check_choices(plan: Plan, table: pa.Table) -> None:
    """Choices come with the probabilities that their charge allows. Repeatable; with another seed it would fail
    with a chance of 1e-10."""
    counts = np.zeros(5)
    entropy = noise.seeded_entropy(1)
    for _ in range(3000):
        chosen = Meter(LocalEngine([]), 1.0, entropy=entropy).choose(Even(), mu=0.5)
        counts[chosen[0] + 1 if chosen else 0] += 1
    expected = softmax(np.arange(5) * 0.5 / MU_PER_ETA / 2) * 3000
    assert chisquare(counts, expected).pvalue > 1e-10


class Watch:
    """Rounds that only note who takes part."""

    name, sensitivity, weighted = "gradients", 1.0, False

    def __init__(self) -> None:
        self.seen = np.zeros((400, 2000))
        self.round = 0

    def parts(self, records: Any) -> Any:
        return np.arange(records.rows, dtype=np.int32)[:, None]

    def kernel(self) -> "Watch":
        return self

    def examples(self) -> Iterator["Watch"]:
        yield self

    def total(self, parts: Any) -> Any:
        self.seen[self.round, parts[:, 0]] = 1
        return np.zeros(1, dtype=np.int64)

    def advance(self, noisy: Any) -> None:
        self.round += 1


def check_sampling(plan: Plan, table: pa.Table) -> None:
    """Each record takes part in each round with the charged probability, whatever happened before. Repeatable;
    with another seed it would fail with a chance below 1e-12."""
    watch, event = Watch(), SampledEvent("gradients", 1.0, 100.0, 0.25, 400)
    engine = LocalEngine([Records(rows=2000, codes={})])
    Meter(engine, 10.0, entropy=noise.seeded_entropy(2), delta=1e-6).train(watch, event)
    assert watch.round == 400
    assert abs(watch.seen.mean() - 0.25) < 0.01
    for counts, times in ((watch.seen.sum(axis=0), 400), (watch.seen.sum(axis=1), 2000)):
        assert 0.5 < counts.var() / (times * 0.1875) < 2


def check_domain(plan: Plan, table: pa.Table) -> None:
    broken = table.set_column(2, "income", pa.array([float("nan")] * table.num_rows))
    codes = records_of(broken, SCHEMA).codes["income"]
    assert np.all(codes <= 2**40)
    assert np.all(codes == MISSING)


def check_audit(plan: Plan, table: pa.Table) -> None:
    """Always with the same draws."""
    with repeatable(1):
        findings = list(audit(plan, table, runs=2000))
    assert not any(finding.exceeded for finding in findings)


def check_ledger_first(plan: Plan, table: pa.Table) -> None:
    """When the data is first read, its cost is in the ledger already."""
    source, reads = open_source(table), 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger.db")
        ledger.init("data", plan.budget)

        def observed(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            nonlocal reads
            reads += 1
            assert len(ledger.balance("data").spendings) == 1, "the data was read before the cost was reserved"
            return source.batches(columns)

        running.run(plan, dataclasses.replace(source, batches=observed), payer=Payer(ledger, "data"))
    assert reads > 0


CHECKS: dict[str, Callable[[Plan, pa.Table], None]] = {
    "noise scale": check_noise_scale,
    "independent noise": check_independent_noise,
    "spends its plan": check_spends_its_plan,
    "contribution": check_all_contributions,
    "replay on a neighbour": check_neighbour,
    "choices": check_choices,
    "sampling": check_sampling,
    "domain": check_domain,
    "audit": check_audit,
    "ledger first": check_ledger_first,
}


def make(**options: Any) -> Plan:
    of_model: dict[str, Any] = options_of(options.get("model", "naive-bayes"), 3.0)
    usual = {"delta": 1e-6, "weights": "hinge-exp", "model": "naive-bayes"}
    return make_plan(SCHEMA, Settings.of(**{**usual, **of_model, **options}))


@cache
def plan_of(name: str) -> Plan:
    training = {"model": "autoregressive", "weights": "cap"}
    sampled = {"sampling_rate": 0.1, "epochs": 2.0}  # where the audit judges the sampling
    made: dict[str, dict[str, Any]] = {
        "mst-cap": {"model": "mst", "weights": "cap"},
        "pairwise": {"scorer": "pairwise", "mu": 12.0},  # enough for several pairs on so few records
        "training": training,
        "sampled": {**training, **sampled},
    }
    return make(**made.get(name, {"model": name}))


MUTANTS: dict[str, list[tuple[Fault, str]]] = {
    "naive-bayes": [
        (half_the_noise, "noise scale"),
        (half_the_noise, "audit"),
        (sensitivity_too_small_by_the_square_root_of_two, "contribution"),
        (weight_before_the_clip, "replay on a neighbour"),
        (divided_by_the_private_sum_of_weights, "replay on a neighbour"),
        (ledger_committed_before_it_is_reserved, "ledger first"),
        (one_seed_for_all_noise, "independent noise"),
        (sensitivity_of_one_column, "contribution"),
        (a_charge_forgotten, "spends its plan"),
        (a_look_without_a_charge, "spends its plan"),
        (a_look_at_a_lower_charge, "spends its plan"),
        (cells_divided_by_the_private_counts, "replay on a neighbour"),
        (weights_above_one, "contribution"),
        (no_clip, "contribution"),
        (divided_by_the_private_number_of_records, "replay on a neighbour"),
        (threshold_from_the_private_scores, "replay on a neighbour"),
        (nan_survives_the_encoder, "domain"),
        (histograms_that_claim_weights, "replay on a neighbour"),
        (a_meter_that_takes_all_for_weighted, "replay on a neighbour"),
        (histograms_that_claim_weights, "audit"),
        (a_meter_that_takes_all_for_weighted, "audit"),
    ],
    "mst-cap": [
        (tables_with_the_sensitivity_of_one, "contribution"),
        (tables_without_weights, "replay on a neighbour"),
        (utilities_that_count_twice, "contribution"),
        (tables_expected_from_the_data, "contribution"),
        (choices_at_twice_the_eta, "choices"),
        (choices_at_twice_the_eta, "audit"),
        (the_best_candidate_always, "audit"),
        (rounds_that_cost_nothing, "audit"),
    ],
    "pairwise": [
        (pairs_with_the_sensitivity_of_one, "contribution"),
        (pairs_that_count_twice, "contribution"),
        (pairs_smoothed_without_a_bound, "contribution"),
        (pairs_expected_from_the_data, "contribution"),
        (choices_at_twice_the_eta, "choices"),
        (a_charge_forgotten, "spends its plan"),
        (half_the_noise, "noise scale"),
    ],
    "training": [
        (gradients_without_weights, "replay on a neighbour"),
        (gradients_that_count_twice, "contribution"),
        (divided_by_the_size_of_the_batch, "replay on a neighbour"),
        (groups_from_the_data, "replay on a neighbour"),
        (half_the_noise, "noise scale"),
        (everybody_in_every_round, "sampling"),
        (one_sample_for_all_rounds, "sampling"),
        (a_round_for_free, "spends its plan"),
        (one_seed_for_all_noise, "independent noise"),
        (ledger_committed_before_it_is_reserved, "ledger first"),
    ],
    "sampled": [
        (little_noise_in_training, "audit"),
        (no_noise_in_training, "audit"),
        (gradients_that_count_twice, "audit"),
        (gradients_without_weights, "audit"),
        (everybody_in_every_round, "audit"),
    ],
}
"""For each plan the faults in its runs, and the check that catches each."""

USUAL = ("noise scale", "spends its plan", "contribution", "replay on a neighbour")
PASSING = [
    *((model, check) for model in MODELS for check in (*USUAL, "independent noise", "audit", "ledger first")),
    *(("naive-bayes", check) for check in ("choices", "sampling", "domain")),  # these run no plan
    *(("pairwise", check) for check in USUAL),
    ("sampled", "audit"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plan", "check"), PASSING)
def test_the_code_passes(plan: str, check: str) -> None:
    CHECKS[check](plan_of(plan), TABLE)


def test_a_fault_that_has_no_effect_is_an_error() -> None:
    """In a place that is gone, or that nothing calls, or that is called where the fault does not matter."""
    gone = fault(noise, "gone")(lambda original: original)
    with pytest.raises(NotSeededError, match="has no"), gone():
        pass
    with pytest.raises(NotSeededError, match="not reached"), half_the_noise():
        pass
    with pytest.raises(NotSeededError, match="not reached"), nan_survives_the_encoder():
        encode.positions_of(np.array([1.0]), Integer(name="age", min=0, max=2))


def as_parameters() -> Iterator[Any]:
    for plan, mutants in MUTANTS.items():
        for mutant, check in mutants:
            marks = [pytest.mark.slow] if check == "audit" else []
            yield pytest.param(plan, mutant, check, id=f"{mutant.__name__}-{plan}-{check}", marks=marks)


@pytest.mark.parametrize(("plan", "mutant", "check"), list(as_parameters()))
def test_the_mutant_is_caught(plan: str, mutant: Fault, check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](plan_of(plan), TABLE)


def main() -> None:
    """Print which check catches which fault."""
    for plan, mutants in MUTANTS.items():
        for mutant, check in mutants:
            try:
                with mutant():
                    CHECKS[check](plan_of(plan), TABLE)
                outcome = "SURVIVED"
            except AssertionError:
                outcome = "caught"
            except NotSeededError:
                outcome = "NOT SEEDED"
            print(f"{mutant.__name__.replace('_', ' '):52} {outcome:10} by {check} ({plan})")


if __name__ == "__main__":
    main()
