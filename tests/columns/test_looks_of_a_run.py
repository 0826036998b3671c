"""The looks of a run: weighted, charged, and cells that follow from what was released before."""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from checks import Measured, check_replay, record_run, records_of, replay_run
from conftest import WIDE, make_wide
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth.columns.adaptive_histogram import FINE, REFINED
from repsynth.io.records import MISSING
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.schema import Boolean, Schema, parse_schema
from repsynth.scoring.stage import WeightedHistograms, look_sensitivity, look_shares
from repsynth.scoring.weights import FULL

LOOKS = REFINED, FINE
SCHEMA, TABLE = parse_schema(WIDE), make_wide(120)


@cache
def recorded() -> tuple[Plan, Release, Sequence[Measured]]:
    plan = make_plan(SCHEMA, Settings.of(mu=8.0, delta=1e-6, model="naive-bayes"))
    return plan, *record_run(plan, TABLE)


def look_of(name: str) -> tuple[WeightedHistograms, Release]:
    _, release, _ = recorded()
    statistic = release.stage.kernels()[name]
    assert isinstance(statistic, WeightedHistograms)
    return statistic, release


@pytest.mark.parametrize("name", LOOKS)
def test_a_record_adds_its_weight_to_one_cell_of_each_column(name: str) -> None:
    statistic, release = look_of(name)
    records = records_of(TABLE, SCHEMA)
    weights = release.weights.of(release.score.of(records))
    assert weights.min() < FULL == weights.max()
    assert statistic.sensitivity == FULL * len(statistic.bins) ** 0.5
    starts = np.cumsum([0, *(bins.count for bins in statistic.bins)])
    for i in range(records.rows):
        total = statistic.total(records.take(np.array([i])))
        assert total.dtype == np.int64
        for start, end in pairwise(starts):
            assert np.sort(total[start:end])[-2:].tolist() == [0, weights[i]]


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 120), max_size=4), name=st.sampled_from(LOOKS))
def test_the_total_does_not_depend_on_the_partition(cuts: list[int], name: str) -> None:
    statistic, _ = look_of(name)
    records = records_of(TABLE, SCHEMA)
    edges = [0, *sorted(cuts), records.rows]
    parts = [records.take(np.arange(a, b)) for a, b in pairwise(edges)]
    assert np.array_equal(sum(statistic.total(part) for part in parts), statistic.total(records))


@pytest.mark.parametrize("name", LOOKS)
def test_a_look_is_measured_once_at_its_charge_and_its_noise_is_known(name: str) -> None:
    plan, release, measured = recorded()
    (made,) = [m for m in measured if m.event.name == name]
    look, charge = release.stage.looks[name], plan.charges[name]
    assert charge.mu == pytest.approx(plan.mu * look_shares(SCHEMA)[name] ** 0.5)
    assert made.event.mu == pytest.approx(charge.mu, rel=1e-9)
    assert charge.weighted
    assert made.event.weighted
    assert look.sigma == made.event.sigma >= FULL * len(look.columns) ** 0.5 / charge.mu * (1 - 1e-9)
    assert look.unit == FULL
    assert np.array_equal(look.counts, made.noisy)
    assert np.array_equal(made.exact, look_of(name)[0].total(records_of(TABLE, SCHEMA)))
    assert len(look.columns) <= round(look_sensitivity(SCHEMA) ** 2)
    noise = (made.noisy - made.exact) / made.event.sigma
    assert 0.8 < np.std(noise) < 1.2


def test_the_cells_of_a_look_follow_from_what_was_released() -> None:
    """On a table of other records, with the same outputs: the same cells, weights and release."""
    plan, release, measured = recorded()
    other, _ = replay_run(plan, make_wide(70, seed=9), [m.noisy for m in measured])
    for mine, theirs in zip(release.stage.coarse.bins, other.stage.coarse.bins, strict=True):
        assert np.array_equal(mine.starts, theirs.starts)  # type: ignore[arg-type]
    for name in LOOKS:
        one, two = release.stage.looks[name], other.stage.looks[name]
        assert one.columns == two.columns
        for mine, theirs in zip(one.bins, two.bins, strict=True):
            assert np.array_equal(mine.starts, theirs.starts)  # type: ignore[arg-type]


def test_without_an_outlier_no_look_moves_by_more_than_its_weight() -> None:
    plan, release, measured = recorded()
    scores = release.score.of(records_of(TABLE, SCHEMA))
    for absent in (int(np.argmax(scores)), int(np.argmin(scores))):
        check_replay(plan, TABLE, absent, (release, list(measured)))


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_no_record_has_more_influence_than_its_weight_says(model: str, releases: Callable[..., Release]) -> None:
    """Looks count it with its weight, and its weight follows from the threshold of its label."""
    release = releases(model, "wide")
    records = records_of(make_wide(300, seed=2), SCHEMA)
    weights, unmoved = (release.weights.of(s.of(records)) for s in (release.score, release.stage.unmoved_score))
    assert not np.array_equal(weights, unmoved)
    assert np.array_equal(release.influence(records), weights / FULL)


def test_the_score_uses_cells_that_are_known_before_the_run(releases: Callable[..., Release]) -> None:
    """Scores of records in the same coarse cells are equal, whatever later looks found."""
    stage = releases("naive-bayes", "wide").stage
    records = records_of(make_wide(300, seed=2), SCHEMA)
    other = records.take(np.arange(records.rows))
    for bins in stage.coarse.bins:
        if bins.starts is not None:
            cells = bins.of(records)
            first = bins.starts[np.minimum(cells, bins.values - 1)]
            other.codes[bins.column.name] = np.where(cells < bins.values, first, MISSING)
    assert any(not np.array_equal(other.codes[name], codes) for name, codes in records.codes.items())
    assert np.array_equal(stage.score.of(other), stage.score.of(records))


def test_without_numbers_there_are_no_looks() -> None:
    schema = Schema(columns=(Boolean(name="a"), Boolean(name="b")), one_row_per_person=True)
    assert look_shares(schema) == {}
    assert not set(LOOKS) & make_plan(schema, Settings.of(epsilon=1.0)).charges.keys()
