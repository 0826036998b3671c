"""What the bound by weight rests on, where weights follow from most things: thresholds by label, moved scores,
scores from elsewhere, weights in gradients. With all outputs frozen, a record's part is at most its weight."""

from typing import Any

import numpy as np
import pytest
from checks import check_replay, record_run, records_of

from repsynth import datasets
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.verify import borrow

KNOBS: dict[str, dict[str, Any]] = {"autoregressive": {"epochs": 2.0, "sampling_rate": 1.0}}
"""All take part in every round, so that two tables differ in one record alone."""


@pytest.mark.slow
@pytest.mark.parametrize("borrowed", [False, True])
@pytest.mark.parametrize("model", ["naive-bayes", "mst", "autoregressive"])
def test_a_record_adds_no_more_than_the_weight_that_the_release_gives_it(model: str, borrowed: bool) -> None:
    sim = datasets.load("sim")
    plain = make_plan(sim.schema, Settings.of(epsilon=4.0, delta=1e-6, model="naive-bayes"))
    lent = borrow(record_run(plain, sim.table, seed=2)[0]) if borrowed else None
    settings = Settings.of(epsilon=4.0, delta=1e-6, model=model, weights="hinge-exp", **KNOBS.get(model, {}))
    plan = make_plan(sim.schema, settings, lent)
    recorded = record_run(plan, sim.table)
    release = recorded[0]
    assert release.threshold is not None
    assert release.threshold.shifts is not None  # every label has a threshold of its own
    weights = release.weights.of(release.score.of(records_of(sim.table, sim.schema)))
    assert weights.min() < 4096
    check_replay(plan, sim.table, int(np.argmin(weights)), recorded)
