"""The checks can fail: seeded faults in the mechanism, each caught by a named check."""

import dataclasses
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import wraps
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

from repsynth.auditing.audit import audit
from repsynth.data import encode
from repsynth.data.records import MISSING, Records, join, no_records
from repsynth.data.sources import open_source
from repsynth.engines import local
from repsynth.engines.local import LocalEngine
from repsynth.mechanism import meter, noise
from repsynth.mechanism.meter import Meter
from repsynth.models.marginal.tables import TableChoice, Tables
from repsynth.models.naive_bayes.statistic import WeightedSums
from repsynth.models.network.gradients import Gradients
from repsynth.models.network.network import Network
from repsynth.models.registry import MODELS
from repsynth.pipeline import run as running
from repsynth.pipeline.payment import Payer
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy import events
from repsynth.privacy.events import MU_PER_ETA, SampledEvent
from repsynth.privacy.ledger import Ledger
from repsynth.schema import Integer, parse_schema
from repsynth.scoring import stage
from repsynth.scoring.histograms import ColumnHistograms
from repsynth.scoring.pairwise import PairChoice, PairTables
from repsynth.scoring.weights import FULL, WeightFunction

SCHEMA = parse_schema(ALL_TYPES)
TABLE = make_people(120)


def make(**options: Any) -> Plan:
    of_model: dict[str, Any] = options_of(options.get("model", "naive-bayes"), 3.0)
    usual = {"delta": 1e-6, "weights": "hinge-exp", "model": "naive-bayes"}
    return make_plan(SCHEMA, Settings.of(**{**usual, **of_model, **options}))


# --- how a fault is seeded ---

Fault = AbstractContextManager[None]
Reached = Callable[[], None]


class NotSeededError(Exception):
    """The fault is in code that no longer runs: whatever a check said, it did not say it about the fault."""


@contextmanager
def seeded(owner: Any, name: str, make_faulty: Callable[[Any, Reached], Any]) -> Iterator[None]:
    """Replace what `owner` itself holds by that name; where the fault is not reached, that is an error.

    `make_faulty` gets the original, and what to call where the fault takes effect.
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


def replaced(owner: Any, name: str, make_faulty: Callable[[Any], Callable[..., Any]]) -> Fault:
    """A function or method with a fault that takes effect in every call."""

    def make(original: Any, reached: Reached) -> Any:
        assert callable(original)
        faulty = make_faulty(original)

        @wraps(faulty)
        def called(*arguments: Any, **options: Any) -> Any:
            reached()
            return faulty(*arguments, **options)

        return called

    return seeded(owner, name, make)


def read_as(owner: type, name: str, value: Callable[[Any, Any], Any]) -> Fault:
    """A property with a fault: `value` gets the object and what the property was."""

    def make(original: Any, reached: Reached) -> Any:
        assert isinstance(original, property)

        def read(self: Any) -> Any:
            reached()
            return value(self, original.__get__(self))

        return property(read)

    return seeded(owner, name, make)


@contextmanager
def together(*faults: Fault) -> Iterator[None]:
    with ExitStack() as stack:
        for fault in faults:
            stack.enter_context(fault)
        yield


# --- faults in what all models share, and in naive Bayes ---


def half_the_noise() -> Fault:
    return replaced(
        noise, "rounded_gaussian", lambda draw: lambda sigma, size, entropy: draw(sigma / 2, size, entropy)
    )


def one_seed_for_all_noise() -> Fault:
    return replaced(
        noise,
        "rounded_gaussian",
        lambda draw: lambda sigma, size, entropy: draw(sigma, size, noise.seeded_entropy(0)),
    )


def sensitivity_of_one_column() -> Fault:
    return read_as(ColumnHistograms, "sensitivity", lambda self, value: 1.0)


def a_charge_forgotten() -> Fault:
    def make(original: Any, reached: Reached) -> Any:
        def measured(self: Meter, statistic: Any, *, mu: float) -> Any:
            result = original(self, statistic, mu=mu)
            if statistic.name == "histograms":
                reached()
                self.events[-1] = msgspec.structs.replace(self.events[-1], sigma=self.events[-1].sigma * 1e6)
            return result

        return measured

    return seeded(Meter, "measure", make)


def another_look(name: str, look: Callable[[Meter, Any, float], Any]) -> Fault:
    """One of the looks at wide columns is taken in another way."""

    def make(original: Any, reached: Reached) -> Any:
        def measured(meter: Meter, *arguments: Any, **options: Any) -> Any:
            def measure(statistic: Any, *, mu: float) -> Any:
                if statistic.name != name:
                    return meter.measure(statistic, mu=mu)
                reached()
                return look(meter, statistic, mu)

            return original(SimpleNamespace(measure=measure), *arguments, **options)

        return measured

    return seeded(stage, "measure_ranges", make)


def a_look_without_a_charge() -> Fault:
    """Past the meter: with noise, and with nothing written down."""
    return another_look(
        "zoom",
        lambda meter, statistic, mu: (
            meter.engine.sum(statistic)
            + noise.rounded_gaussian(10.0, len(statistic.total(no_records())), meter.entropy)
        ),
    )


def a_look_at_a_lower_charge() -> Fault:
    """Twice the budget that its event states."""

    def look(meter: Meter, statistic: Any, mu: float) -> Any:
        found = meter.measure(statistic, mu=mu)
        meter.events[-1] = msgspec.structs.replace(meter.events[-1], sigma=meter.events[-1].sigma * 2)
        return found

    return another_look("ranges", look)


def bins_placed_by_the_private_counts() -> Fault:
    """The look is charged, but where the bins lie that follow from it is read off the data."""

    def look(meter: Meter, statistic: Any, mu: float) -> Any:
        meter.measure(statistic, mu=mu)
        return meter.engine.sum(statistic)

    return another_look("ranges", look)


def histograms_that_claim_weights() -> Fault:
    """They say that a record's part is scaled by its weight, though every record counts in full."""
    return replaced(stage, "ColumnHistograms", lambda original: lambda bins: original(bins, weighted=True))


def a_meter_that_takes_all_for_weighted() -> Fault:
    """`measure` does not ask the statistic whether weights scale a record's part."""

    def make(original: Any, reached: Reached) -> Any:
        def measured(self: Meter, statistic: Any, *, mu: float) -> Any:
            if not statistic.weighted:
                reached()
            return original(self, _SaidToBeWeighted(statistic), mu=mu)

        return measured

    return seeded(Meter, "measure", make)


@dataclasses.dataclass(frozen=True)
class _SaidToBeWeighted:
    statistic: Any
    weighted: bool = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.statistic, name)


def weights_above_one() -> Fault:
    return replaced(
        WeightFunction,
        "of",
        lambda original: lambda self, scores: np.minimum(3 * original(self, scores), 2 * FULL),
    )


def no_clip() -> Fault:
    return replaced(
        WeightedSums, "_multiplier", lambda original: lambda self, records, scores: self.weights.of(scores)
    )


def divided_by_the_private_number_of_records() -> Fault:
    def make(original: Any) -> Any:
        def total(self: LocalEngine, kernel: Any) -> Any:
            rows = sum(records.rows for records in self.data)
            return original(self, kernel) * 1000 // max(rows, 1)

        return total

    return replaced(LocalEngine, "sum", make)


def threshold_from_the_private_scores() -> Fault:
    """The paper's: the quantile of the private scores, in place of the noisy histogram's."""

    def make(original: Any) -> Any:
        def measured(meter: Meter, plan: Plan, on_step: Any) -> Any:
            names = [column.name for column in plan.schema.learned]
            private = join(list(meter.engine.per_record()), names)

            def make_choose(choose: Any) -> Any:
                def peeking(score: Any, histograms: Any, *, sigma: float, label: Any) -> Any:
                    bins = choose(score, histograms, sigma=sigma, label=label)
                    level = int(np.quantile(score.of(private), 0.7))
                    return dataclasses.replace(bins, edges=bins.edges - bins.edges[5] + level)

                return peeking

            with replaced(stage, "choose_score_bins", make_choose):
                return original(meter, plan, on_step)

        return measured

    return replaced(running, "measure_stage_one", make)


def sensitivity_too_small_by_the_square_root_of_two() -> Fault:
    return read_as(WeightedSums, "sensitivity", lambda self, value: value / 2**0.5)


def weight_before_the_clip() -> Fault:
    """clip(w φ) in place of w clip(φ): a long contribution keeps the full norm whatever its weight."""

    def multiplier(self: Any, records: Any, scores: Any) -> Any:
        norm = np.maximum(np.sqrt(self.contribution.squared_norm(records)), 1)
        return np.minimum(self.weights.of(scores), (FULL * self.contribution.clip / norm).astype(np.int64))

    return replaced(WeightedSums, "_multiplier", lambda original: multiplier)


def divided_by_the_private_sum_of_weights() -> Fault:
    def make(original: Any) -> Any:
        def total(self: Any, records: Any) -> Any:
            weights = int(self.weights.of(self.score.of(records)).sum())
            return original(self, records) * (100 * FULL) // max(weights, 1)

        return total

    return replaced(WeightedSums, "total", make)


@contextmanager
def ledger_committed_before_it_is_reserved() -> Iterator[None]:
    """The cost is noted when the run is over, in place of before it begins."""
    reserve, commit = Payer.reserve, Ledger.commit

    def late(self: Ledger, dataset: str, plan: Any) -> None:
        commit(self, dataset, reserve(Payer(self, dataset), plan))

    reserved = replaced(Payer, "reserve", lambda original: lambda self, plan: plan)
    with mock.patch.object(Ledger, "commit", late), reserved:  # a check may stop long before a run is closed
        yield


def nan_survives_the_encoder() -> Fault:
    def make(original: Any, reached: Reached) -> Any:
        def positions(values: Any, column: Any) -> Any:
            if not np.isfinite(values).all():
                reached()
            return np.where(np.isfinite(values), original(values, column), 2**40)

        return positions

    return seeded(encode, "positions_of", make)


# --- faults in the marginal models ---


def tables_with_the_sensitivity_of_one() -> Fault:
    return read_as(Tables, "sensitivity", lambda self, value: float(FULL))


def tables_without_weights() -> Fault:
    def make(original: Any) -> Any:
        def total(self: Any, records: Any) -> Any:
            everybody = WeightFunction(start=0, table=np.array([FULL]))
            return original(dataclasses.replace(self, weights=everybody), records)

        return total

    return replaced(Tables, "total", make)


def utilities_that_count_twice() -> Fault:
    return replaced(TableChoice, "utilities", lambda original: lambda *asked, **how: 2 * original(*asked, **how))


def tables_expected_from_the_data() -> Fault:
    """What the model expects of a table is read off the private one."""

    def make(original: Any) -> Any:
        def utilities(self: Any, total: Any, chosen: Any, **how: Any) -> Any:
            peeking = dataclasses.replace(self, expected=total * 100 % 40_960)
            return original(peeking, total, chosen, **how)

        return utilities

    return replaced(TableChoice, "utilities", make)


def the_best_candidate_always() -> Fault:
    return replaced(meter, "choose_exponential", lambda original: lambda values, **_: int(np.argmax(values)))


def rounds_that_cost_nothing() -> Fault:
    """Each round is drawn, and charged, at the η of one, though there are several."""

    def make(original: Any, reached: Reached) -> Any:
        def root(x: float) -> float:
            if isinstance(x, int) and x == 4:
                reached()
                return 1.0
            return math.sqrt(x)

        assert original is math
        return SimpleNamespace(sqrt=root)

    return together(seeded(meter, "math", make), seeded(events, "math", make))


def choices_at_twice_the_eta() -> Fault:
    return replaced(
        meter,
        "choose_exponential",
        lambda original: lambda values, *, eta, **rest: original(values, eta=2 * eta, **rest),
    )


# --- faults in training ---


def gradients_without_weights() -> Fault:
    def make(original: Any) -> Any:
        def total(self: Any, parts: Any) -> Any:
            everybody = np.where(np.arange(parts.shape[1]) == parts.shape[1] - 1, FULL, parts).astype(np.int32)
            return original(self, everybody)

        return total

    return replaced(Gradients, "total", make)


def gradients_that_count_twice() -> Fault:
    return replaced(Gradients, "total", lambda original: lambda self, parts: 2 * original(self, parts))


def hidden_units_beside_the_clip() -> Fault:
    """What goes into hidden units is neither clipped nor checked: as long as all the rest."""

    def make(original: Any) -> Any:
        def factors(self: Any, parts: Any) -> Any:
            inputs, errors, backs, gains = original(self, parts)
            return inputs, errors, backs + np.abs(errors).max(axis=0), gains

        return factors

    return replaced(Gradients, "_factors", make)


def divided_by_the_size_of_the_batch() -> Fault:
    return replaced(
        Gradients,
        "total",
        lambda original: lambda self, parts: original(self, parts) * 1000 // max(len(parts), 1),
    )


def everybody_in_every_round() -> Fault:
    """The account believes in a sample; there is none."""
    return replaced(local, "sample_rows", lambda original: lambda count, rate, entropy: np.arange(count))


def one_sample_for_all_rounds() -> Fault:
    return replaced(
        local,
        "sample_rows",
        lambda original: lambda count, rate, entropy: original(count, rate, noise.seeded_entropy(0)),
    )


def a_round_for_free() -> Fault:
    def make(original: Any) -> Any:
        def trained(self: Meter, rounds: Any, event: Any) -> None:
            more = msgspec.structs.replace(event, rounds=event.rounds + 1, sigma=event.sigma * 2)
            original(self, rounds, more)
            self.events[-1] = event

        return trained

    return replaced(Meter, "train", make)


def groups_from_the_data() -> Fault:
    """What the network starts from is read off the private records."""

    def make(original: Any, reached: Reached) -> Any:
        def parts(self: Any, records: Any) -> Any:
            found = original(self, records)
            if records.rows % 2 == 0:
                return found
            reached()
            return np.where(found[:, :1] >= 0, np.roll(found, 1, axis=1), found)

        return parts

    return seeded(Network, "parts", make)


def little_noise_in_training() -> Fault:
    return other_noise_in_training(lambda sigma: sigma / 4)


def no_noise_in_training() -> Fault:
    return other_noise_in_training(lambda sigma: 1e-3)


def other_noise_in_training(other: Callable[[float], float]) -> Fault:
    def make(original: Any, reached: Reached) -> Any:
        def added(values: Any, *, name: str, sigma: float, **rest: Any) -> Any:
            if name == "gradients":
                reached()
                sigma = other(sigma)
            return original(values, name=name, sigma=sigma, **rest)

        return added

    return seeded(meter, "add_gaussian", make)


# --- faults in what scorers measure ---


def pairs_with_the_sensitivity_of_one() -> Fault:
    return read_as(PairTables, "sensitivity", lambda self, value: 1.0)


def pairs_that_count_twice() -> Fault:
    return replaced(PairChoice, "utilities", lambda original: lambda *asked, **how: 2 * original(*asked, **how))


def pairs_smoothed_without_a_bound() -> Fault:
    """The rows of a smoothing add up to one, and its columns to whatever they do."""

    def make(original: Any) -> Any:
        def utilities(self: Any, total: Any, chosen: Any, **how: Any) -> Any:
            smooth = tuple((s / s.sum(axis=1, keepdims=True) * 2**13).astype(np.int64) for s in self.smooth)
            return original(dataclasses.replace(self, smooth=smooth), total, chosen, **how)

        return utilities

    return replaced(PairChoice, "utilities", make)


def pairs_expected_from_the_data() -> Fault:
    def make(original: Any) -> Any:
        def utilities(self: Any, total: Any, chosen: Any, **how: Any) -> Any:
            peeking = tuple(-3 * int(total.sum()) * expected for expected in self.expected)
            return original(dataclasses.replace(self, expected=peeking), total, chosen, **how)

        return utilities

    return replaced(PairChoice, "utilities", make)


# --- the checks ---


def check_all_contributions(plan: Plan, table: pa.Table) -> None:
    records = records_of(table, SCHEMA)
    for m in record_run(plan, table)[1]:
        check_contribution(m.statistic, records)


def check_neighbour(plan: Plan, table: pa.Table) -> None:
    recorded = record_run(plan, table)
    for absent in (0, 54, 66, 90):
        check_replay(plan, table, absent, recorded)


def check_independent_noise(plan: Plan, table: pa.Table) -> None:
    measured = record_run(plan, table)[1]
    parts = [((m.noisy - m.exact) / m.event.sigma)[:8] for m in measured[1:] if isinstance(m.noisy, np.ndarray)]
    for i, one in enumerate(parts):
        for other in parts[:i]:
            assert np.corrcoef(one, other)[0, 1] < 0.99, "two measurements share their noise"


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
        findings = list(audit(plan, table, runs=4000))
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
MUTANTS: list[tuple[Callable[[], Fault], str]] = [
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
    (bins_placed_by_the_private_counts, "replay on a neighbour"),
    (weights_above_one, "contribution"),
    (no_clip, "contribution"),
    (divided_by_the_private_number_of_records, "replay on a neighbour"),
    (threshold_from_the_private_scores, "replay on a neighbour"),
    (nan_survives_the_encoder, "domain"),
    (histograms_that_claim_weights, "replay on a neighbour"),
    (a_meter_that_takes_all_for_weighted, "replay on a neighbour"),
    (histograms_that_claim_weights, "audit"),
    (a_meter_that_takes_all_for_weighted, "audit"),
]


OF_TRAINING: list[tuple[Callable[[], Fault], str]] = [
    (gradients_without_weights, "replay on a neighbour"),
    (gradients_that_count_twice, "contribution"),
    (divided_by_the_size_of_the_batch, "replay on a neighbour"),
    (groups_from_the_data, "replay on a neighbour"),
    (half_the_noise, "noise scale"),
    (little_noise_in_training, "audit"),
    (no_noise_in_training, "audit"),
    (gradients_that_count_twice, "audit"),
    (gradients_without_weights, "audit"),
    (everybody_in_every_round, "audit"),
    (everybody_in_every_round, "sampling"),
    (one_sample_for_all_rounds, "sampling"),
    (a_round_for_free, "spends its plan"),
    (one_seed_for_all_noise, "independent noise"),
    (ledger_committed_before_it_is_reserved, "ledger first"),
]
"""Faults in training."""


OF_UNITS: list[tuple[Callable[[], Fault], str]] = [
    (gradients_without_weights, "replay on a neighbour"),
    (gradients_that_count_twice, "contribution"),
    (hidden_units_beside_the_clip, "contribution"),
    (gradients_that_count_twice, "audit"),
]
"""Faults in training with hidden units."""


OF_TABLES: list[tuple[Callable[[], Fault], str]] = [
    (tables_with_the_sensitivity_of_one, "contribution"),
    (tables_without_weights, "replay on a neighbour"),
    (utilities_that_count_twice, "contribution"),
    (tables_expected_from_the_data, "contribution"),
    (choices_at_twice_the_eta, "choices"),
    (choices_at_twice_the_eta, "audit"),
    (the_best_candidate_always, "audit"),
    (rounds_that_cost_nothing, "audit"),
]
"""Faults in the marginal models."""


OF_SCORERS: list[tuple[Callable[[], Fault], str, str]] = [
    (pairs_with_the_sensitivity_of_one, "pairwise", "contribution"),
    (pairs_that_count_twice, "pairwise", "contribution"),
    (pairs_smoothed_without_a_bound, "pairwise", "contribution"),
    (pairs_expected_from_the_data, "pairwise", "contribution"),
    (choices_at_twice_the_eta, "pairwise", "choices"),
    (a_charge_forgotten, "pairwise", "spends its plan"),
    (half_the_noise, "pairwise", "noise scale"),
]
"""Faults in what scorers measure."""


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("check", CHECKS)
def test_the_code_passes(check: str, model: str) -> None:
    CHECKS[check](make(model=model), TABLE)


def test_a_fault_that_has_no_effect_is_an_error() -> None:
    """In a place that is gone, or that nothing calls, or that is called where the fault does not matter."""
    with pytest.raises(NotSeededError, match="has no"), replaced(noise, "gone", lambda original: original):
        pass
    with pytest.raises(NotSeededError, match="not reached"), half_the_noise():
        pass
    with pytest.raises(NotSeededError, match="not reached"), nan_survives_the_encoder():
        encode.positions_of(np.array([1.0]), Integer(name="age", min=0, max=2))


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=[f"{m.__name__}-{c}" for m, c in MUTANTS])
def test_the_mutant_is_caught(mutant: Callable[[], Fault], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](make(), TABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "check"), OF_TABLES, ids=[f"{m.__name__}-{c}" for m, c in OF_TABLES])
def test_the_mutant_of_tables_is_caught(mutant: Callable[[], Fault], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](make(model="mst", weights="cap"), TABLE)


def scorer_plan(scorer: str) -> Plan:
    """A budget with which even so few records get more than one pair of columns."""
    return make(scorer=scorer, mu=12.0)


@pytest.mark.parametrize(
    ("mutant", "scorer", "check"), OF_SCORERS, ids=[f"{m.__name__}-{s}-{c}" for m, s, c in OF_SCORERS]
)
def test_the_mutant_of_a_scorer_is_caught(mutant: Callable[[], Fault], scorer: str, check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](scorer_plan(scorer), TABLE)


@pytest.mark.parametrize("check", ["contribution", "replay on a neighbour", "spends its plan", "noise scale"])
def test_pairwise_passes(check: str) -> None:
    CHECKS[check](scorer_plan("pairwise"), TABLE)


def training_plan(check: str, hidden: int = 0) -> Plan:
    """All take part where runs on neighbours are compared, and some where the audit judges the sampling."""
    sampled = {"sampling_rate": 0.1, "epochs": 2.0} if check == "audit" else {}
    return make(model="autoregressive", weights="cap", hidden=hidden, **sampled)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "check"), OF_TRAINING, ids=[f"{m.__name__}-{c}" for m, c in OF_TRAINING])
def test_the_mutant_of_training_is_caught(mutant: Callable[[], Fault], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](training_plan(check), TABLE)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS)
def test_the_code_passes_with_hidden_units(check: str) -> None:
    CHECKS[check](training_plan(check, hidden=12), TABLE)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "check"), OF_UNITS, ids=[f"{m.__name__}-{c}" for m, c in OF_UNITS])
def test_the_mutant_of_hidden_units_is_caught(mutant: Callable[[], Fault], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](training_plan(check, hidden=12), TABLE)


@pytest.mark.slow
def test_a_sampled_training_passes_the_audit() -> None:
    check_audit(training_plan("audit"), TABLE)


def main() -> None:
    """Print which check catches which fault."""
    rows = [(*row, make()) for row in MUTANTS]
    rows += [(*row, make(model="mst", weights="cap")) for row in OF_TABLES]
    rows += [(mutant, check, scorer_plan(scorer)) for mutant, scorer, check in OF_SCORERS]
    rows += [(*row, training_plan(row[1])) for row in OF_TRAINING]
    rows += [(*row, training_plan(row[1], hidden=12)) for row in OF_UNITS]
    for mutant, check, plan in rows:
        try:
            with mutant():
                CHECKS[check](plan, TABLE)
            outcome = "SURVIVED"
        except AssertionError:
            outcome = "caught"
        except NotSeededError:
            outcome = "NOT SEEDED"
        print(f"{mutant.__name__.replace('_', ' '):52} {outcome:10} by {check}")


if __name__ == "__main__":
    main()
