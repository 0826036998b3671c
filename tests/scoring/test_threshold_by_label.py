"""A threshold for each label: as many outliers in each, paid once, and nobody who stands out most is missed."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import check_contribution, check_replay, check_spends_its_plan, record_run, records_of, rewritten, take
from scipy.special import expit, logit

import repsynth
from repsynth.curator.guarantee import why_none
from repsynth.io.sources import open_source
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import parse_schema, schema_from_dict
from repsynth.scoring.base import NAT
from repsynth.scoring.stage import SCORES
from repsynth.scoring.threshold import FEW, ScoreBins, ShiftedScore, by_label

TELLING = """
one_row_per_person = true
label = "ill"
[columns.test]
type = "category"
values = ["low", "high"]
[columns.region]
type = "category"
values = ["north", "south", "east", "west", "far"]
[columns.age]
type = "integer"
min = 0
max = 99
[columns.ill]
type = "boolean"
"""
SCHEMA = parse_schema(TELLING)
ROWS = 8000


def telling(rows: int = ROWS, seed: int = 1) -> pa.Table:
    """One in ten is ill, and most of these have a high value, which is rare among all."""
    generator = np.random.default_rng(seed)
    ill = np.arange(rows) % 10 == 0
    high = generator.random(rows) < np.where(ill, 0.8, 0.02)
    region = generator.choice(["north", "south", "east", "west", "far"], rows, p=[0.5, 0.3, 0.15, 0.04, 0.01])
    age = np.clip(generator.normal(50, 15, rows), 0, 99).astype(int)
    return pa.table({"test": np.where(high, "high", "low"), "region": region, "age": age, "ill": ill})


def plan_of(mu: float = 2.0, **options: Any) -> Plan:
    return make_plan(SCHEMA, Settings.of(**{"mu": mu, "delta": 1e-6, "model": "naive-bayes", **options}))


def test_each_label_has_its_share_of_outliers() -> None:
    release = run(plan_of(), open_source(telling()), noise_seed=1)
    threshold, records = release.threshold, records_of(telling(), SCHEMA)
    assert threshold is not None
    assert threshold.shifts is not None
    ill = records.codes["ill"] == 1
    above = release.score.of(records) >= threshold.value
    plain = release.stage.unmoved_score.of(records)
    with_one = plain >= np.quantile(plain, 0.7)
    assert with_one[ill].mean() > 0.7  # the signal is taken for risk
    assert 0.2 < above[ill].mean() < 0.5  # a third of the fraction stand out in the whole table: these are in
    assert above[~ill].mean() == pytest.approx(0.3, abs=0.04)


def test_it_costs_what_one_threshold_costs_and_claims_hold() -> None:
    plan, table = plan_of(), telling(3000)
    check_spends_its_plan(plan, table)
    check_replay(plan, table, absent=10)
    release, seen = record_run(plan, table)
    (scores,) = [m for m in seen if m.statistic.name == SCORES]
    assert isinstance(release.score, ShiftedScore)
    assert scores.event.sensitivity == 1  # type: ignore[union-attr]
    check_contribution(scores.statistic, records_of(table, SCHEMA))
    assert len(scores.exact) == 3 * (len(release.threshold.edges) + 1)  # type: ignore[union-attr]


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_no_record_has_a_larger_share_in_a_weighted_measurement_than_its_influence(model: str) -> None:
    table = telling(600)
    release, seen = record_run(plan_of(model=model), table)
    records, largest = records_of(table, SCHEMA), np.zeros(600)
    influence = release.influence(records)
    for one in seen:
        if one.event.weighted and hasattr(one.statistic, "sensitivity"):
            moved = [np.linalg.norm(one.statistic.total(take(records, [i])).astype(float)) for i in range(600)]
            largest = np.maximum(largest, np.array(moved) / one.statistic.sensitivity)
    assert influence.min() < 0.3
    assert largest == pytest.approx(influence), "and it is reached"


def test_who_stands_out_most_in_all_is_an_outlier_in_a_label_full_of_them() -> None:
    """The second label's scores all lie above the first's: its own threshold would leave most of them out."""
    edges = np.arange(0, 40)
    counts = np.zeros((2, 41), dtype=np.int64)
    counts[0, 1:11], counts[1, 21:31] = 900, 100
    threshold = by_label(edges, counts, fraction=0.3, sigma=1.0)
    assert threshold.shifts is not None
    own, other = threshold.value - threshold.shifts
    assert own == pytest.approx(7, abs=1)
    assert other == pytest.approx(20, abs=1)  # one in ten of all are these: so all of them, not a third


def test_a_label_with_few_records_has_the_threshold_of_all() -> None:
    edges = np.arange(0, 40)
    counts = np.zeros((2, 41), dtype=np.int64)
    counts[0, 1:11] = 900
    for count in (int(FEW), int(FEW) // 2):
        counts[1, 1:6] = count // 5 + 1
        shifts = by_label(edges, counts, fraction=0.3, sigma=1.0).shifts
        assert shifts is not None
        assert shifts[0] == 0 or abs(shifts[0]) < 2
        assert (shifts[1] == 0) == (5 * (count // 5 + 1) < FEW)


def test_few_records_are_fitted_label_by_label() -> None:
    """Where 800 records are ill, and a bin has noise of 50, one threshold would take most of them for outliers."""
    records, above = records_of(telling(), SCHEMA), []
    ill = records.codes["ill"] == 1
    for seed in range(20):
        few = run(plan_of(0.2, public_rows=ROWS), open_source(telling()), noise_seed=seed)
        assert few.threshold is not None
        assert len(few.threshold.edges) == 6
        assert isinstance(few.score, ShiftedScore)
        flagged = few.score.of(records) >= few.threshold.value
        above.append((flagged[ill].mean(), flagged[~ill].mean()))
    means = np.mean(above, axis=0)
    assert 0.2 < means[0] < 0.5
    assert means[1] == pytest.approx(0.3, abs=0.05)


def test_a_label_is_believed_as_far_as_its_noise_allows_and_no_further_than_the_cap() -> None:
    """Fitted: the second label's scores lie higher, all of them above the threshold of all."""
    edges, above = np.arange(6) * NAT, np.array([0.9, 0.7, 0.5, 0.3, 0.15, 0.05])
    usual = -np.diff(above, prepend=1.0, append=0.0)
    high = np.array([0, 0, 0, 0, 0.4, 0.4, 0.2])
    counts = np.stack([9000 * usual, 300 * high, np.zeros(7)]).round().astype(np.int64)
    label = SCHEMA.label_column
    moved = []
    for sigma in (10.0, 60.0, 200.0, 400.0):
        found = ScoreBins(edges, False, label).threshold(counts.ravel(), fraction=0.3, rows=9300, sigma=sigma)
        assert found.shifts is not None
        moved.append(-int(found.shifts[1]))
        assert abs(found.shifts[0]) < 0.2 * NAT  # that of nearly all
        assert found.shifts[2] == 0  # no records
    highest = ScoreBins(edges, False, label).threshold(counts.ravel(), fraction=0.1, rows=9300, sigma=10.0)
    assert moved[0] == pytest.approx(highest.value - 3 * NAT, abs=0.2 * NAT)
    assert moved[0] > moved[1] > moved[2] > moved[3] == 0


def test_the_error_of_a_fitted_fraction_is_its_spread() -> None:
    generator, label = np.random.default_rng(1), SCHEMA.label_column
    above, sigma = np.array([0.9, 0.7, 0.5, 0.3, 0.15, 0.05]), 60.0
    edges = (logit(above) * -NAT).astype(np.int64)  # so scores are logistic, and any threshold's fraction is known
    each = -np.diff(above, prepend=1.0, append=0.0)
    counts = np.stack([5000 * each, 3000 * each, 0 * each])
    off, errors = [], []
    for _ in range(200):
        noisy = np.rint(counts + generator.normal(0, sigma, counts.shape)).astype(np.int64)
        found = ScoreBins(edges, False, label).threshold(noisy.ravel(), fraction=0.3, rows=8000, sigma=sigma)
        off.append(expit(-found.value / NAT) - 0.3)
        errors.append(found.fraction_error)
    assert np.std(off) / np.mean(errors) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(("columns", "rare"), [(4, 0.1), (8, 0.05)])
def test_where_most_records_are_alike_not_all_of_them_are_outliers(columns: int, rare: float) -> None:
    generator = np.random.default_rng(3)
    table = pa.table({f"c{k}": generator.random(3000) < rare for k in range(columns)})
    schema = schema_from_dict(
        {
            "one_row_per_person": True,
            "label": "c0",
            "columns": {name: {"type": "boolean"} for name in table.column_names},
        }
    )
    settings = Settings.of(epsilon=1.0, delta=1e-6, public_rows=3000, model="naive-bayes")
    for seed in range(5):
        release = run(make_plan(schema, settings), open_source(table), noise_seed=seed)
        assert release.threshold is not None
        above = release.score.of(records_of(table, schema)) >= release.threshold.value
        assert 0.1 < above.mean() < 0.5


def test_nothing_is_guaranteed_where_the_threshold_was_fitted() -> None:
    for mu, fitted in ((0.1, True), (0.24, True), (0.26, False)):
        release = run(plan_of(mu, public_rows=ROWS), open_source(telling()), noise_seed=1)
        assert ("fitted" in (why_none(release) or "")) == fitted


def test_so_few_records_that_labels_cannot_be_told_apart_have_one_threshold() -> None:
    few = run(plan_of(0.15), open_source(telling(2000)), noise_seed=1)
    assert few.threshold is not None
    assert few.threshold.shifts is None
    assert not isinstance(few.score, ShiftedScore)


def test_records_whose_label_cannot_be_read_have_a_row_of_their_own() -> None:
    """Else the fraction above the threshold, and the fractions that a release states, would not be of all."""
    table = telling()
    unread = np.arange(ROWS) // 10 % 5 < 2
    ill = pa.array([None if out else value for out, value in zip(unread, table["ill"].to_pylist(), strict=True)])
    table = table.set_column(3, "ill", ill)
    release = run(plan_of(public_rows=ROWS), open_source(table), noise_seed=1)
    threshold = release.threshold
    assert threshold is not None
    assert threshold.counts.sum(axis=1) == pytest.approx([0.54 * ROWS, 0.06 * ROWS, 0.4 * ROWS], rel=0.1)
    above = release.score.of(records_of(table, SCHEMA)) >= threshold.value
    assert above[unread].mean() == pytest.approx(0.3, abs=0.05)
    told = release.privacy.by_epsilon()
    assert sum(part.value for part in told.values()) == pytest.approx(1, abs=0.03)
    assert told[min(told)].value == pytest.approx(above.mean(), abs=0.03)


def test_there_and_back_and_what_contradicts_itself_is_refused(tmp_path: Path) -> None:
    release = run(plan_of(), open_source(telling(3000)), noise_seed=1)
    again = repsynth.Release.load(release.save(tmp_path / "release"))
    records = records_of(telling(200, seed=5), SCHEMA)
    assert np.array_equal(again.score.of(records), release.score.of(records))
    assert again.privacy.by_epsilon() == release.privacy.by_epsilon()
    for k, wrong in enumerate(([1], [1, 2], [2**51, 0, 0])):
        arrays = {"threshold_shifts": np.array(wrong)}
        with pytest.raises(repsynth.ReleaseError):
            repsynth.Release.load(rewritten(release, tmp_path / f"wrong{k}", arrays))
