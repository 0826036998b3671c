"""Weights as strong as a lost mass allows: solved from released values, kept by a release, refused where it is not
what decides."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import check_replay, record_run, records_of

from repsynth import datasets
from repsynth.curator.guarantee import guaranteed_weights, why_none
from repsynth.errors import ConfigError
from repsynth.io.sources import open_source
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.scoring.base import NAT
from repsynth.scoring.threshold import Threshold, lost_mass, solve_rule
from repsynth.scoring.weights import FULL, HingeExp, Rule, Targeted, make_weights


def threshold_of(counts: list[list[int]], shifts: list[float] | None = None) -> Threshold:
    moved = None if shifts is None else (np.array(shifts) * NAT).astype(np.int64)
    return Threshold(2 * NAT, np.array([0, 1, 2, 3, 4]) * NAT, np.array(counts), 0.4, 0.01, moved)


def test_lost_mass_by_hand() -> None:
    threshold = threshold_of([[0, 300, 300, 200, 150, 50]])
    assert lost_mass(threshold, make_weights(Targeted(), threshold=2 * NAT, lowest=0)) == pytest.approx(
        0.4 * 0.8, abs=1e-3
    )
    # The noisy histogram says that three in ten lie above: what noise may hide counts as lost all the same.
    weights = make_weights(Targeted(), threshold=2 * NAT, lowest=0)
    assert lost_mass(threshold_of([[0, 300, 400, 200, 50, 50]]), weights) == pytest.approx(0.32, abs=1e-3)
    # Six in ten are beyond the error.
    assert lost_mass(threshold_of([[0, 300, 100, 400, 150, 50]]), weights) == pytest.approx(0.48, abs=1e-3)
    # The scores of one label are moved up by half a bin: half of the bin below the threshold lies above it then.
    half = threshold_of([[0, 0, 600, 0, 0, 0], [0, 100, 0, 300, 0, 0]], shifts=[0.5, 0])
    assert lost_mass(half, weights) == pytest.approx(0.6 * 0.8, abs=1e-3)


@pytest.mark.parametrize("rule", [Targeted(), HingeExp()])
@pytest.mark.parametrize("most", [0.01, 0.1, 0.25, 0.5])
def test_as_strong_as_allowed_and_no_stronger(rule: Rule, most: float) -> None:
    threshold = threshold_of([[0, 300, 300, 200, 150, 50]])

    def lost(found: Rule) -> float:
        return lost_mass(threshold, make_weights(found, threshold=2 * NAT, lowest=0))

    found = solve_rule(rule, threshold, lowest=0, most=most)
    assert type(found) is type(rule)
    assert lost(found) <= most
    strongest = lost(rule.of_strength(1.0))
    assert lost(found) > min(most, strongest) - 0.002


@pytest.mark.parametrize("rule", [Targeted(), HingeExp()])
def test_strength_never_gives_weight_back(rule: Rule) -> None:
    above = np.linspace(-2, 20, 200)
    weights = np.array([rule.of_strength(s).weight(above, 8.0) for s in np.linspace(0, 1, 50)])
    assert np.all(np.diff(weights, axis=0) <= 1e-12)
    assert np.all(weights[0][above < 5] > 0.999)
    assert np.all(weights[-1][above > 0.2] < 1e-6)


def plan_of(**knobs: Any) -> Plan:
    sim = datasets.load("sim")
    return make_plan(sim.schema, Settings.of(epsilon=2.0, delta=1e-6, model="naive-bayes", **knobs))


@pytest.mark.parametrize("weights", ["targeted", "hinge-exp"])
def test_the_mean_lost_weight_is_what_was_asked_for(weights: str, sim: datasets.Dataset, tmp_path: Path) -> None:
    """By the records themselves, on average over draws of the noise; the width of bins leaves some room."""
    plan, lost = plan_of(weights=weights, max_lost_mass=0.1, public_rows=6000), []
    for seed in range(8):
        release = run(plan, open_source(sim.table), noise_seed=seed)
        weight = release.weights.of(release.score.of(records_of(sim.table, sim.schema))) / FULL
        lost.append(1 - weight.mean())
        assert release.lost_mass is not None
        assert 0.095 < release.lost_mass <= 0.1
    assert 0.08 < np.mean(lost) < 0.13
    assert min(lost) > 0.04
    assert max(lost) < 0.16
    loaded = Release.load(release.save(tmp_path / "release"))
    assert loaded.rule == release.rule != plan.rule
    assert loaded.lost_mass == release.lost_mass
    made = make_weights(loaded.rule, threshold=loaded.weights.start, lowest=loaded.score.lowest)
    assert np.array_equal(made.table, loaded.weights.table), "the rule that is shown is the one that was used"


def test_it_is_post_processing(sim: datasets.Dataset) -> None:
    """On the neighbour, with outputs frozen, the run does the same: weights do not move with the record."""
    plan = plan_of(max_lost_mass=0.1)
    table = sim.table.slice(0, 300)
    check_replay(plan, table, 7, record_run(plan, table))
    assert plan.charges == plan_of().charges, "and costs nothing"


def test_no_guarantee_since_the_noise_decides_the_weights(sim: datasets.Dataset) -> None:
    release = run(plan_of(max_lost_mass=0.1, public_rows=6000), open_source(sim.table), noise_seed=1)
    reason = why_none(release)
    assert reason is not None
    assert "lost mass" in reason
    assert np.all(guaranteed_weights(release, [records_of(sim.table, sim.schema)], eta=0.01) == 1)


@pytest.mark.parametrize(
    ("knobs", "reason"),
    [
        ({"outlier_epsilon": 1.0}, "outlier epsilon and the lost mass"),
        ({"outlier_weight": 0.3}, "outlier weight and the lost mass"),
        ({"weights": "hinge-exp", "gamma": 2.0}, "gamma and the lost mass"),
        ({"weights": "uniform"}, "no strength for the lost mass to decide; use targeted or hinge-exp"),
        ({"weights": "cap"}, "no strength"),
        ({"max_lost_mass": 0.9}, "max lost mass is 0.9"),
    ],
)
def test_what_contradicts_it_is_refused(knobs: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        plan_of(**{"max_lost_mass": 0.1, **knobs})


@pytest.mark.parametrize("first", [-6, 0, 2**20])
def test_records_beyond_the_last_edge_are_above_wherever_it_lies(first: int) -> None:
    edges = (first + np.arange(6)) * NAT
    counts = np.array([[0, 0, 0, 0, 0, 0, 100]])
    threshold = Threshold((first + 3) * NAT, edges, counts, fraction=0.3, fraction_error=0.01)
    weights = make_weights(Targeted(), threshold=threshold.value, lowest=min(first, 0) * NAT)
    assert lost_mass(threshold, weights) == pytest.approx(0.8, abs=0.01)
