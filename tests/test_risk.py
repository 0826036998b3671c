"""The dossier: realised and guaranteed losses, inequality, bias; and that it stays where it is asked for."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checks import records_of

from repsynth import datasets, synthesize
from repsynth.guarantee import guaranteed_weights, why_none
from repsynth.pipeline import make_settings, run
from repsynth.plan import make_plan
from repsynth.risk import dossier, gini, max_to_median, quantile_gap, write_dossier
from repsynth.schema import Schema
from repsynth.tables import open_table
from repsynth.weigh import FULL


def test_realised_losses(sim: datasets.Dataset) -> None:
    release = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6)
    table, summary = dossier(sim.table, release)
    assert table.num_rows == 6000
    realised, weight = table["realised_epsilon"].to_numpy(), table["weight"].to_numpy()
    assert realised.max() <= release.privacy.epsilon
    assert realised[weight < 1].max() < 0.4
    assert np.all(table["guaranteed_epsilon"].to_numpy() <= release.privacy.epsilon)
    assert summary.records == 6000
    assert summary.weight_bias > 0
    # Means of norms, by hand.
    records = records_of(sim.table, sim.schema)
    contribution = release.statistic.contribution
    norm = np.sqrt(contribution.squared_norm(records)) / 1024
    kept = np.minimum(norm, contribution.clip / 1024)
    assert summary.clip_bias == pytest.approx(np.mean(norm - kept))
    assert summary.weight_bias == pytest.approx(np.mean((1 - weight) * kept))


def test_inequality_by_hand() -> None:
    losses = np.array([1.0, 2.0, 3.0, 6.0])
    assert max_to_median(losses) == pytest.approx(2.4)
    assert gini(losses) == pytest.approx(sum(abs(a - b) for a in losses for b in losses) / (2 * 4 * losses.sum()))
    assert quantile_gap(losses) == pytest.approx(5.1 - 1.3)
    assert (max_to_median(np.zeros(0)), gini(np.zeros(0)), quantile_gap(np.zeros(0))) == (1.0, 0.0, 0.0)


def test_the_file_says_that_it_is_private(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    release = synthesize(people, schema, epsilon=1.0)
    write_dossier(people, release, tmp_path / "dossier.parquet")
    written = pq.read_table(tmp_path / "dossier.parquet")
    assert written.schema.metadata[b"repsynth"].startswith(b"PRIVATE")
    assert json.loads(written.schema.metadata[b"summary"])["records"] == 400
    assert [path.name for path in tmp_path.iterdir()] == ["dossier.parquet"]


def large_sim() -> datasets.Dataset:
    dataset = datasets.load("sim")
    return datasets.Dataset("sim", datasets.simulate(40_000, seed=3), dataset.schema)


def test_the_guarantee_holds_whatever_stage_1_draws() -> None:
    """Bounds computed once; then many runs with fresh noise, with and without the most outlying record."""
    dataset = large_sim()
    rows = dataset.table.num_rows
    plan = make_plan(dataset.schema, make_settings(epsilon=4.0, delta=1e-6, public_rows=rows))
    records = records_of(dataset.table, dataset.schema)
    release = run(plan, open_table(dataset.table), noise_seed=0)
    assert why_none(release) is None
    bound = guaranteed_weights(release, [records], eta=1e-6)
    protected = bound < 1
    assert 0.005 < protected.mean() < 0.3, "the guarantee is neither empty nor for everybody"
    without = dataset.table.slice(1)
    for seed in range(1, 13):
        source = dataset.table if seed % 2 else without
        drawn = run(plan, open_table(source), noise_seed=seed)
        weight = drawn.weights.of(drawn.score.of(records)) / FULL
        assert np.all(weight <= bound)


def test_the_guarantee_does_not_depend_on_the_noise_that_was_drawn() -> None:
    """It holds before stage 1 is run, so every run must state the same."""
    dataset = large_sim()
    plan = make_plan(dataset.schema, make_settings(epsilon=4.0, delta=1e-6, public_rows=40_000))
    records = records_of(dataset.table, dataset.schema)
    releases = [run(plan, open_table(dataset.table), noise_seed=seed) for seed in (1, 2)]
    first, second = (guaranteed_weights(release, [records], eta=1e-6) for release in releases)
    assert np.array_equal(first, second)


@pytest.mark.parametrize("rule", ["targeted", "hinge-exp"])
def test_no_guarantee_where_more_records_were_declared_than_there_are(rule: str) -> None:
    """Then the noisy histogram never reaches the wanted share, and the threshold falls to its first edge."""
    dataset = datasets.Dataset("sim", datasets.simulate(8000, seed=3), datasets.load("sim").schema)
    release = synthesize(dataset.table, dataset.schema, epsilon=4.0, public_rows=40_000, weights=rule)
    assert why_none(release) is None
    assert np.all(guaranteed_weights(release, [records_of(dataset.table, dataset.schema)], eta=0.01) == 1)


def test_guaranteed_at_least_realised(data_dir: Path) -> None:
    adult = datasets.load("adult", data_dir=data_dir)
    release = synthesize(adult.table, adult.schema, epsilon=4.0, public_rows=adult.table.num_rows)
    table, summary = dossier(adult.table, release)
    assert np.all(table["guaranteed_epsilon"].to_numpy() >= table["realised_epsilon"].to_numpy() - 1e-9)
    assert summary.guaranteed_share > 0.02


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"weights": "uniform", "public_rows": 6000}, "do not depend on the distance"),
        ({}, "not declared public"),
        ({"public_rows": 6000}, "fitted, not read"),
    ],
)
def test_where_there_is_no_guarantee_it_says_why(
    options: dict[str, object], reason: str, sim: datasets.Dataset
) -> None:
    release = synthesize(sim.table, sim.schema, epsilon=0.5, delta=1e-6, **options)  # type: ignore[arg-type]
    table, summary = dossier(sim.table, release)
    assert summary.no_guarantee is not None
    assert reason in summary.no_guarantee
    assert np.all(table["guaranteed_epsilon"].to_numpy() == release.privacy.epsilon)
