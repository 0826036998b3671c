"""The guaranteed loss where labels have thresholds of their own: it holds whatever noise stage 1 draws."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from checks import records_of

from repsynth.arrays import Bools, Floats
from repsynth.curator import guarantee
from repsynth.curator.guarantee import guaranteed_weights, why_none
from repsynth.engine.local import LocalEngine
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import seeded_entropy
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Boolean, Category, Schema
from repsynth.scoring.stage import StageOne, measure_stage_one
from repsynth.scoring.weights import FULL

ROWS = 20_000
SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        *(Category(name=f"part {k}", values=tuple(f"v{i}" for i in range(12))) for k in range(6)),
        Boolean(name="rare"),
    ),
    label="rare",
)


def make_table() -> pa.Table:
    """A label of 15 % of the records has most of what is rare; that of 3 % cannot be read."""
    generator = np.random.default_rng(5)
    rare = generator.random(ROWS) < 0.15
    columns: dict[str, Any] = {}
    for k in range(6):
        common = np.minimum(generator.geometric(0.5, ROWS), 12) - 1
        columns[f"part {k}"] = [f"v{i}" for i in np.where(rare, generator.integers(0, 12, ROWS), common)]
    missing = generator.random(ROWS) < 0.03
    columns["rare"] = pa.array([None if gone else bool(value) for value, gone in zip(rare, missing, strict=True)])
    return pa.table(columns)


def stage_one(plan: Plan, records: Records, seed: int) -> StageOne:
    meter = Meter(LocalEngine([records]), mu=plan.mu, entropy=seeded_entropy(seed))
    return measure_stage_one(meter, plan, lambda _: None)


def weights_of(stage: StageOne, records: Records) -> Floats:
    return stage.weights.of(stage.score.of(records)) / FULL


@dataclass(frozen=True)
class Runs:
    """One table, and stage 1 carried out many times: at odd seeds without one record, of which there are few."""

    records: Records
    release: Release
    weights: Sequence[Floats]


@pytest.fixture(scope="module")
def runs() -> Runs:
    table = make_table()
    plan = make_plan(
        SCHEMA, Settings.of(mu=2.0, delta=1e-6, public_rows=ROWS, weights="hinge-exp", model="naive-bayes")
    )
    records = records_of(table, SCHEMA)
    release = run(plan, open_source(table), noise_seed=1)
    farthest = int(np.argmax(release.score.of(records)))
    without = records.take(np.delete(np.arange(ROWS), farthest))
    stages = [stage_one(plan, without if seed % 2 else records, seed) for seed in range(2, 62)]
    return Runs(records, release, [weights_of(stage, records) for stage in stages])


def exceeded(runs: Runs, bound: Floats) -> Bools:
    """Which records weigh more than the bound in some run."""
    return np.any([weights > bound + 1e-12 for weights in runs.weights], axis=0)


def test_the_labels_have_thresholds_of_their_own(runs: Runs) -> None:
    """So that the tests below are about them: that of the rare label lies some nats above that of the other."""
    assert runs.release.threshold is not None
    assert runs.release.threshold.shifts is not None
    assert len(runs.release.threshold.shifts) == 3
    assert np.ptp(runs.release.threshold.shifts[:2]) > 2**16


@pytest.mark.parametrize("eta", [1e-12, 1e-3])
def test_no_record_ever_weighs_more_than_its_bound(runs: Runs, eta: float) -> None:
    """Fixed by the seeds; with others, a given record exceeds its bound with a chance of at most 60 η."""
    assert why_none(runs.release) is None
    bound = guaranteed_weights(runs.release, [runs.records], eta=eta)
    label = runs.records.codes["rare"]
    for value in (0, 1):
        assert 0.01 < np.mean(bound[label == value] < 1) < 0.6, "neither empty nor for everybody"
    assert not np.any(exceeded(runs, bound))


def test_a_bound_by_the_threshold_of_all_would_not_hold(runs: Runs) -> None:
    """The rare label's threshold lies above it."""
    with mock.patch.object(guarantee, "_own_or_common", lambda label, common, *_, **__: common):
        bound = guaranteed_weights(runs.release, [runs.records], eta=0.5)
    wrong = exceeded(runs, bound)
    assert np.mean(wrong[runs.records.codes["rare"] == 1]) > 0.02
    assert not np.any(wrong[runs.records.codes["rare"] == 0])


def test_a_bound_for_less_noise_would_not_hold(runs: Runs) -> None:
    stage = runs.release.stage
    quiet = replace(stage, coarse=replace(stage.coarse, sigma=stage.coarse.sigma / 8))
    with mock.patch.object(guarantee, "_threshold_sigma", return_value=1e-3):
        bound = guaranteed_weights(replace(runs.release, stage=quiet), [runs.records], eta=0.5)
    assert np.mean(exceeded(runs, bound)) > 0.01


def test_without_any_chance_to_fail_there_is_no_guarantee(runs: Runs) -> None:
    assert np.all(guaranteed_weights(runs.release, [runs.records], eta=0.0) == 1)


def test_a_batch_at_a_time_gives_the_same(runs: Runs) -> None:
    halves = [runs.records.take(np.arange(9000)), runs.records.take(np.arange(9000, ROWS))]
    whole = guaranteed_weights(runs.release, [runs.records], eta=1e-6)
    assert np.allclose(guaranteed_weights(runs.release, halves, eta=1e-6), whole, atol=2 / FULL)


@pytest.mark.parametrize("rule", ["targeted", "hinge-exp"])
@pytest.mark.parametrize("label", ["rare", None])
def test_it_holds_where_more_records_were_declared_than_there_are(rule: str, label: str | None) -> None:
    """Without labels the noisy histogram never reaches the wanted fraction then, and the threshold falls to its
    first edge."""
    schema = replace(SCHEMA, label=label)
    records = records_of(make_table(), schema).take(np.arange(5000))
    plan = make_plan(schema, Settings.of(mu=3.0, delta=1e-6, public_rows=ROWS, weights=rule, model="naive-bayes"))
    release = run(plan, open_source(make_table().slice(0, 5000)), noise_seed=1)
    assert why_none(release) is None
    bound = guaranteed_weights(release, [records], eta=1e-9)
    for seed in range(2, 12):
        assert np.all(weights_of(stage_one(plan, records, seed), records) <= bound)


def test_the_read_threshold_never_exceeds_its_bound() -> None:
    """Few levels and many draws, so that failures would show: numbers of records are known here, noise is not."""
    from repsynth.scoring.threshold import _read  # the reading itself, without any scores

    sigma, fraction, generator = 20.0, 0.3, np.random.default_rng(1)
    true = np.array([0, 300, 900, 1500, 1200, 700, 300, 100, 40, 10, 0], dtype=np.float64)
    edges = np.arange(10) * 2**16
    above = np.cumsum(true[::-1])[::-1][1:]
    levels = np.arange(40.0)
    number = np.append(above, np.zeros(30))[None, :]
    reaching = guarantee._Reaching(levels, int(true.sum()), number, np.zeros_like(number))
    bounds = {chance: reaching.highest(chance, fraction=fraction, sigma=sigma) for chance in (0.5, 0.1, 0.02)}
    drawn = []
    for _ in range(4000):
        noisy = true + np.rint(generator.normal(0, sigma, len(true)))
        drawn.append(_read(edges, noisy, fraction=fraction, rows=noisy.sum(), sigma=sigma)[0] / 2**16)
    for chance, bound in bounds.items():
        assert np.mean(np.array(drawn) > bound) <= chance
        assert bound < np.median(drawn) + 1.5, "and no wider than a bin and what 48 bins of noise make"
    assert np.mean(np.array(drawn) > np.median(drawn)) > 0.02, "a bound without noise would not hold"
