"""The chance of a record to be protected, against runs with other noise."""

from functools import partial
from unittest import mock

import numpy as np
import pytest
from checks import records_of

from repsynth import datasets
from repsynth.curator import dossier as chance
from repsynth.curator.dossier import RUNS, dossier, protected_probability
from repsynth.data.records import Records
from repsynth.data.sources import open_source
from repsynth.engines.local import LocalEngine
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import seeded_entropy
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.scoring.stage import measure_stage_one
from repsynth.scoring.weights import FULL


def simulated(plan: Plan, records: Records, runs: int) -> np.ndarray:
    """How often each record weighs no more than the outlier weight, by seeded noise."""
    times = np.zeros(records.rows)
    for seed in range(runs):
        stage = measure_stage_one(
            Meter(LocalEngine([records]), mu=plan.mu, entropy=seeded_entropy(seed)), plan, lambda _: None
        )
        times += stage.weights.of(stage.score.of(records)) <= 0.2 * FULL
    return times / runs


@pytest.mark.slow
def test_the_chance_agrees_with_simulation() -> None:
    """Means over records that are alike in their simulated chance; all noise is seeded."""
    sim = datasets.load("sim")
    plan = make_plan(
        sim.schema, Settings.of(epsilon=4.0, delta=1e-6, public_rows=3000, model="naive-bayes", outlier_weight=0.2)
    )
    records = records_of(sim.table.slice(0, 3000), sim.schema)
    wanted = simulated(plan, records, 40)
    halves = [records.take(np.arange(1000)), records.take(np.arange(1000, 3000))]
    with mock.patch.object(chance, "Meter", partial(Meter, entropy=seeded_entropy(99))):
        found = protected_probability(plan, halves)
    assert found is not None
    assert found.shape == (3000,)
    assert np.all((found * RUNS).round(9) % 1 == 0)
    for low, high in ((0.0, 0.02), (0.3, 0.5), (0.5, 0.7), (0.98, 1.01)):
        alike = (wanted >= low) & (wanted < high)
        assert alike.sum() > 20
        assert abs(found[alike].mean() - wanted[alike].mean()) < 0.1
    assert np.corrcoef(found, wanted)[0, 1] > 0.9


@pytest.mark.slow
def test_the_dossier_states_it(sim: datasets.Dataset) -> None:
    people = sim.table.slice(0, 3000)
    plan = make_plan(sim.schema, Settings.of(epsilon=8.0, delta=1e-6, model="naive-bayes"))
    table, summary = dossier(people, run(plan, open_source(people), noise_seed=1))
    found = table["protected_probability"].to_numpy()
    assert summary.protected_fraction == pytest.approx(found.mean())
    assert summary.undecided_fraction == pytest.approx(np.mean((found > 0.1) & (found < 0.9)))
    assert 0 < summary.undecided_fraction < 0.9
    protected = table["weight"].to_numpy() < 1
    assert found[protected].mean() > found[~protected].mean() + 0.3


def test_no_threshold_no_chance(sim: datasets.Dataset) -> None:
    plan = make_plan(sim.schema, Settings.of(epsilon=1.0, delta=1e-6, weights="uniform", model="naive-bayes"))
    table, summary = dossier(sim.table, run(plan, open_source(sim.table), noise_seed=1))
    assert "protected_probability" not in table.column_names
    assert summary.protected_fraction is None
    assert summary.undecided_fraction is None
