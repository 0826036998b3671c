"""The checks can fail: seeded faults in the mechanism, each caught by a named check."""

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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
)
from conftest import ALL_TYPES, make_people, options_of
from scipy.special import softmax
from scipy.stats import chisquare

from repsynth import encode, measure, noise, pipeline
from repsynth.audit import audit
from repsynth.ledger import Ledger
from repsynth.marginals import OneWay
from repsynth.models import naive_bayes, network, tables, training
from repsynth.pipeline import make_settings
from repsynth.plan import MODELS, Plan, make_plan
from repsynth.schema import parse_schema
from repsynth.tables import open_table
from repsynth.weigh import FULL, WeightFunction

SCHEMA = parse_schema(ALL_TYPES)
TABLE = make_people(120)


def make(**options: Any) -> Plan:
    of_model: dict[str, Any] = options_of(options.get("model", "naive-bayes"), 3.0)
    return make_plan(SCHEMA, make_settings(**{"delta": 1e-6, "weights": "hinge-exp", **of_model, **options}))


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    original = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, original)


def half_the_noise() -> Any:
    draw = noise.rounded_gaussian
    return replaced(noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma / 2, size, entropy))


def one_seed_for_all_noise() -> Any:
    draw = noise.rounded_gaussian
    return replaced(
        noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma, size, noise.seeded_entropy(0))
    )


def sensitivity_of_one_column() -> Any:
    return replaced(OneWay, "sensitivity", property(lambda self: 1.0))


def a_charge_forgotten() -> Any:
    original = measure.Account.measure

    def measured(self: measure.Account, statistic: Any, data: Any, *, mu: float) -> Any:
        result = original(self, statistic, data, mu=mu)
        if statistic.name == "score":
            forgotten = self.events.pop()
            self.events.append(dataclasses.replace(forgotten, sigma=forgotten.sigma * 1e6))
        return result

    return replaced(measure.Account, "measure", measured)


def weights_above_one() -> Any:
    original = WeightFunction.of
    return replaced(WeightFunction, "of", lambda self, scores: np.minimum(3 * original(self, scores), 2 * FULL))


def no_clip() -> Any:
    def multiplier(self: Any, records: Any, scores: Any) -> Any:
        return self.weights.of(scores)

    return replaced(naive_bayes.WeightedSums, "_multiplier", multiplier)


def divided_by_the_private_number_of_records() -> Any:
    original = measure.sum_over
    scaled = replaced_sum(original)
    return replaced(measure, "sum_over", scaled)


def replaced_sum(original: Callable[..., Any]) -> Callable[..., Any]:
    def total(statistic: Any, data: Any) -> Any:
        rows = sum(records.rows for records in data)
        return original(statistic, data) * 1000 // max(rows, 1)

    return total


def threshold_from_the_private_scores() -> Any:
    """The paper's: the quantile of the private scores, in place of the noisy histogram's."""
    original = pipeline.choose_bins

    def choose(score: Any, marginals: Any, *, sigma: float) -> Any:
        bins = original(score, marginals, sigma=sigma)
        level = int(np.quantile(score.of(PRIVATE["records"]), 0.7))
        return dataclasses.replace(bins, edges=bins.edges - bins.edges[5] + level)

    return replaced(pipeline, "choose_bins", choose)


PRIVATE: dict[str, Any] = {}


def tables_with_the_sensitivity_of_one() -> Any:
    return replaced(tables.Tables, "sensitivity", property(lambda self: float(FULL)))


def tables_without_weights() -> Any:
    original = tables.Tables.total

    def total(self: Any, records: Any) -> Any:
        everybody = WeightFunction(start=0, table=np.array([FULL]))
        return original(dataclasses.replace(self, weights=everybody), records)

    return replaced(tables.Tables, "total", total)


def scores_that_count_twice() -> Any:
    original = tables.TableChoice.scores
    return replaced(tables.TableChoice, "scores", lambda self, total, chosen: 2 * original(self, total, chosen))


def tables_expected_from_the_data() -> Any:
    """What the model expects of a table is read off the private one."""
    original = tables.TableChoice.scores

    def scores(self: Any, total: Any, chosen: Any) -> Any:
        peeking = dataclasses.replace(self, expected=total * 100 % 40_960)
        return original(peeking, total, chosen)

    return replaced(tables.TableChoice, "scores", scores)


def the_best_candidate_always() -> Any:
    return replaced(measure, "choose_exponential", lambda scores, **_: int(np.argmax(scores)))


def rounds_that_cost_nothing() -> Any:
    """Each round is drawn at the η of one, though there are several."""
    return replaced(measure.math, "sqrt", lambda x: 1.0 if isinstance(x, int) and x == 4 else x**0.5)


def choices_at_twice_the_eta() -> Any:
    original = measure.choose_exponential
    return replaced(
        measure, "choose_exponential", lambda scores, *, eta, **rest: original(scores, eta=2 * eta, **rest)
    )


def sensitivity_too_small_by_the_square_root_of_two() -> Any:
    original = naive_bayes.WeightedSums.sensitivity.fget
    assert original is not None
    return replaced(naive_bayes.WeightedSums, "sensitivity", property(lambda self: original(self) / 2**0.5))


def weight_before_the_clip() -> Any:
    """clip(w φ) in place of w clip(φ): a long contribution keeps the full norm whatever its weight."""

    def multiplier(self: Any, records: Any, scores: Any) -> Any:
        norm = np.maximum(np.sqrt(self.contribution.squared_norm(records)), 1)
        return np.minimum(self.weights.of(scores), (FULL * self.contribution.clip / norm).astype(np.int64))

    return replaced(naive_bayes.WeightedSums, "_multiplier", multiplier)


def divided_by_the_private_sum_of_weights() -> Any:
    original = naive_bayes.WeightedSums.total

    def total(self: Any, records: Any) -> Any:
        weights = int(self.weights.of(self.score.of(records)).sum())
        return original(self, records) * (100 * FULL) // max(weights, 1)

    return replaced(naive_bayes.WeightedSums, "total", total)


def ledger_committed_before_it_is_reserved() -> Any:
    """The cost is noted when the run is over, in place of before it begins."""

    def run(plan: Any, table: Any, *, payer: Any = None, noise_seed: Any = None, **_: Any) -> Any:
        layout, data = pipeline.layout_of(table, plan.schema), pipeline.EncodedTable(table, plan.schema)
        flow = pipeline._Flow(plan, data, layout, lambda step: None, lambda done: None, noise_seed)
        release = flow.start(None, None, None)
        if payer:
            ticket = payer.ledger.reserve(payer.dataset, plan.charges, what="late")
            payer.ledger.commit(payer.dataset, ticket)
        return release

    return replaced(pipeline, "run", run)


def nan_survives_the_encoder() -> Any:
    original = encode._positions

    def positions(values: Any, low: float, high: float, scale: float) -> Any:
        codes = original(values, low, high, scale)
        return np.where(np.isfinite(values), codes, 2**40)

    return replaced(encode, "_positions", positions)


def check_all_contributions(plan: Plan, table: pa.Table) -> None:
    records = records_of(table, SCHEMA)
    for m in record_run(plan, table)[1]:
        check_contribution(m.statistic, records)


def check_neighbour(plan: Plan, table: pa.Table) -> None:
    original = pipeline.EncodedTable

    def observed(table: Any, schema: Any) -> Any:
        """The mutant that peeks at the private scores needs the records in hand."""
        PRIVATE["records"] = records_of(pa.Table.from_batches(list(table.batches(schema))), schema)
        return original(table, schema)

    with replaced(pipeline, "EncodedTable", observed):
        for absent in (0, 7, 50):
            check_replay(plan, table, absent)


def check_independent_noise(plan: Plan, table: pa.Table) -> None:
    measured = record_run(plan, table)[1]
    parts = [((m.noisy - m.exact) / m.event.sigma)[:8] for m in measured[1:] if isinstance(m.noisy, np.ndarray)]
    for i, one in enumerate(parts):
        for other in parts[:i]:
            assert np.corrcoef(one, other)[0, 1] < 0.99, "two measurements share their noise"


class Even:
    """A choice between five candidates whose scores are one unit apart."""

    name, rounds, unit = "structure", 1, 1

    def total(self, records: Any) -> Any:
        return np.array([records.rows])

    def scores(self, total: Any, chosen: tuple[int, ...]) -> Any:
        return np.arange(5)


def check_choices(plan: Plan, table: pa.Table) -> None:
    """Choices come with the probabilities that their charge allows."""
    counts = np.zeros(5)
    entropy = noise.seeded_entropy(1)
    for _ in range(3000):
        account = measure.Account(1.0, entropy=entropy)
        chosen = account.choose(Even(), [], mu=0.5)
        counts[chosen[0] + 1 if chosen else 0] += 1
    expected = softmax(np.arange(5) * 0.5 / noise.MU_PER_ETA / 2) * 3000
    assert chisquare(counts, expected).pvalue > 1e-4


class Watch:
    """Rounds that only note who takes part."""

    name, sensitivity = "training", 1.0

    def __init__(self) -> None:
        self.seen = np.zeros((40, 2000))
        self.round = 0

    def parts(self, records: Any) -> Any:
        return np.arange(records.rows, dtype=np.int32)[:, None]

    def total(self, parts: Any) -> Any:
        self.seen[self.round, parts[:, 0]] = 1
        return np.zeros(1, dtype=np.int64)

    def advance(self, noisy: Any) -> None:
        self.round += 1


def check_sampling(plan: Plan, table: pa.Table) -> None:
    """Each record takes part in each round with the charged probability, whatever happened before."""
    watch, event = Watch(), noise.SampledEvent("training", 1.0, 100.0, 0.25, 40)
    account = measure.Account(10.0, entropy=noise.seeded_entropy(2), delta=1e-6)
    account.train(watch, [encode.Records(rows=2000, codes={})], event)
    assert abs(watch.seen.mean() - 0.25) < 0.01
    for counts, times in ((watch.seen.sum(axis=0), 40), (watch.seen.sum(axis=1), 2000)):
        assert 0.5 < counts.var() / (times * 0.1875) < 2


def check_domain(plan: Plan, table: pa.Table) -> None:
    broken = table.set_column(2, "income", pa.array([float("nan")] * table.num_rows))
    codes = records_of(broken, SCHEMA).codes["income"]
    assert np.all(codes <= 2**40)
    assert np.all(codes == encode.MISSING)


def check_audit(plan: Plan, table: pa.Table) -> None:
    findings = list(audit(plan, table, runs=4000))
    assert not any(finding.exceeded for finding in findings)


def check_ledger_first(plan: Plan, table: pa.Table) -> None:
    """When the data is first read, its cost is in the ledger already."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "ledger.db")
        ledger.init("data", plan.settings.budget)
        original = pipeline.EncodedTable

        def observed(table: Any, schema: Any) -> Any:
            assert len(ledger.balance("data").spendings) == 1, "the data was read before the cost was reserved"
            return original(table, schema)

        with replaced(pipeline, "EncodedTable", observed):
            pipeline.run(plan, open_table(table), payer=pipeline.Payer(ledger, "data"))


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
MUTANTS: list[tuple[Callable[[], Any], str]] = [
    (half_the_noise, "noise scale"),
    (half_the_noise, "audit"),
    (sensitivity_too_small_by_the_square_root_of_two, "contribution"),
    (weight_before_the_clip, "replay on a neighbour"),
    (divided_by_the_private_sum_of_weights, "replay on a neighbour"),
    (ledger_committed_before_it_is_reserved, "ledger first"),
    (one_seed_for_all_noise, "independent noise"),
    (sensitivity_of_one_column, "contribution"),
    (a_charge_forgotten, "spends its plan"),
    (weights_above_one, "contribution"),
    (no_clip, "contribution"),
    (divided_by_the_private_number_of_records, "replay on a neighbour"),
    (threshold_from_the_private_scores, "replay on a neighbour"),
    (nan_survives_the_encoder, "domain"),
]


def gradients_without_weights() -> Any:
    original = training.Training.total

    def total(self: Any, parts: Any) -> Any:
        everybody = np.where(np.arange(parts.shape[1]) == parts.shape[1] - 1, FULL, parts).astype(np.int32)
        return original(self, everybody)

    return replaced(training.Training, "total", total)


def gradients_that_count_twice() -> Any:
    original = training.Training.total
    return replaced(training.Training, "total", lambda self, parts: 2 * original(self, parts))


def divided_by_the_size_of_the_batch() -> Any:
    original = training.Training.total

    def total(self: Any, parts: Any) -> Any:
        return original(self, parts) * 1000 // max(len(parts), 1)

    return replaced(training.Training, "total", total)


def everybody_in_every_round() -> Any:
    """The account believes in a sample; there is none."""
    return replaced(measure, "sample_rows", lambda count, rate, entropy: np.arange(count))


def one_sample_for_all_rounds() -> Any:
    original = measure.sample_rows
    return replaced(
        measure, "sample_rows", lambda count, rate, entropy: original(count, rate, noise.seeded_entropy(0))
    )


def a_round_for_free() -> Any:
    original = measure.Account.train

    def trained(self: measure.Account, rounds: Any, data: Any, event: Any, *, done: int = 0) -> None:
        more = dataclasses.replace(event, rounds=event.rounds + 1, sigma=event.sigma * 2)
        original(self, rounds, data, more, done=done)
        self.events[-1] = event

    return replaced(measure.Account, "train", trained)


def groups_from_the_data() -> Any:
    """What the network starts from is read off the private records."""
    original = network.Network.parts

    def parts(self: Any, records: Any) -> Any:
        shift = records.rows % 2
        found = original(self, records)
        return np.where(found[:, :1] >= 0, np.roll(found, shift, axis=1), found) if shift else found

    return replaced(network.Network, "parts", parts)


def little_noise_in_training() -> Any:
    original = measure.add_gaussian

    def added(values: Any, *, name: str, sigma: float, **rest: Any) -> Any:
        return original(values, name=name, sigma=sigma / (4 if name == "training" else 1), **rest)

    return replaced(measure, "add_gaussian", added)


def no_noise_in_training() -> Any:
    original = measure.add_gaussian

    def added(values: Any, *, name: str, sigma: float, **rest: Any) -> Any:
        return original(values, name=name, sigma=1e-3 if name == "training" else sigma, **rest)

    return replaced(measure, "add_gaussian", added)


OF_TRAINING: list[tuple[Callable[[], Any], str]] = [
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


OF_TABLES: list[tuple[Callable[[], Any], str]] = [
    (tables_with_the_sensitivity_of_one, "contribution"),
    (tables_without_weights, "replay on a neighbour"),
    (scores_that_count_twice, "contribution"),
    (tables_expected_from_the_data, "contribution"),
    (choices_at_twice_the_eta, "choices"),
    (choices_at_twice_the_eta, "audit"),
    (the_best_candidate_always, "audit"),
    (rounds_that_cost_nothing, "audit"),
]
"""Faults in the marginal models."""


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("check", CHECKS)
def test_the_code_passes(check: str, model: str) -> None:
    CHECKS[check](make(model=model), TABLE)


@pytest.mark.parametrize(("mutant", "check"), MUTANTS, ids=[f"{m.__name__}-{c}" for m, c in MUTANTS])
def test_the_mutant_is_caught(mutant: Callable[[], Any], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](make(), TABLE)


@pytest.mark.parametrize(("mutant", "check"), OF_TABLES, ids=[f"{m.__name__}-{c}" for m, c in OF_TABLES])
def test_the_mutant_of_tables_is_caught(mutant: Callable[[], Any], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](make(model="mst", weights="cap"), TABLE)


def training_plan(check: str) -> Plan:
    """All take part where runs on neighbours are compared, and some where the audit judges the sampling."""
    sampled = {"sampling_rate": 0.1, "epochs": 2.0} if check == "audit" else {}
    return make(model="neural", weights="cap", **sampled)


@pytest.mark.parametrize(("mutant", "check"), OF_TRAINING, ids=[f"{m.__name__}-{c}" for m, c in OF_TRAINING])
def test_the_mutant_of_training_is_caught(mutant: Callable[[], Any], check: str) -> None:
    with mutant(), pytest.raises(AssertionError):
        CHECKS[check](training_plan(check), TABLE)


def test_a_sampled_training_passes_the_audit() -> None:
    check_audit(training_plan("audit"), TABLE)


def main() -> None:
    """Print which check catches which fault."""
    rows = [(*row, make()) for row in MUTANTS]
    rows += [(*row, make(model="mst", weights="cap")) for row in OF_TABLES]
    rows += [(*row, training_plan(row[1])) for row in OF_TRAINING]
    for mutant, check, plan in rows:
        try:
            with mutant():
                CHECKS[check](plan, TABLE)
            outcome = "SURVIVED"
        except AssertionError:
            outcome = "caught"
        print(f"{mutant.__name__.replace('_', ' '):52} {outcome:9} by {check}")


if __name__ == "__main__":
    main()
