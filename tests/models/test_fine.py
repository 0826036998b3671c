"""Fine histograms: no record counts for more than its weight, and what bins hide comes back."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import record_run, records_of, rewritten
from hypothesis import given
from hypothesis import strategies as st

from repsynth.data.records import MISSING, Records
from repsynth.data.sources import open_source
from repsynth.errors import ReleaseError
from repsynth.mechanism.meter import Meter
from repsynth.models.fine import FINE, Fine, FineHistograms, fine_columns, spread_inside
from repsynth.models.groups import probabilities_within
from repsynth.models.marginal.model import Aim, MarginalFit, Mst
from repsynth.models.naive_bayes.model import NaiveBayes
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.schema import Boolean, Category, Id, Integer, Number, Person, Schema
from repsynth.scoring.bins import Bins
from repsynth.scoring.shifted import ShiftedScore
from repsynth.scoring.weights import FULL, WeightFunction

AGE = Integer(name="age", min=0, max=99, special=("N",), missing=True)
PAY = Number(name="pay", min=0.0, max=1e6)
SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        Integer(name="hours", min=1, max=99),
        Integer(name="grade", min=1, max=5),
        PAY,
        Category(name="kind", values=("a", "b", "c")),
        Integer(name="years", min=0, max=59),
        Boolean(name="rich"),
    ),
    label="rich",
)


class Flat:
    """All records have one score."""

    columns, lowest = 1, 0

    def of(self, records: Records) -> Any:
        return np.zeros(records.rows, dtype=np.int64)


def statistic(weight: int, *bins: Bins) -> FineHistograms:
    return FineHistograms(bins, Flat(), WeightFunction(start=0, table=np.array([weight])))  # type: ignore[arg-type]


ages, pays = Bins.binned(AGE, 64), Bins.binned(PAY, 64)


@given(weight=st.integers(0, FULL), age=st.integers(-1, 100), pay=st.integers(0, PAY.steps))
def test_a_record_adds_its_weight_to_one_bin_of_each_column(weight: int, age: int, pay: int) -> None:
    record = Records(rows=1, codes={"age": np.array([age]), "pay": np.array([pay])})
    kernel = statistic(weight, ages, pays)
    total = kernel.total(record)
    assert np.count_nonzero(total) == (2 if weight else 0)
    assert total[: ages.count].sum() == total[ages.count :].sum() == weight
    assert np.linalg.norm(total.astype(np.float64)) <= kernel.sensitivity * weight / FULL * (1 + 1e-12)
    assert total[ages.count - 1] == (weight if age == MISSING else 0)


def test_its_sensitivity_is_reached_and_its_sums_are_whole() -> None:
    kernel = statistic(FULL, ages, pays)
    codes = {"age": np.arange(-1, 101), "pay": np.linspace(0, PAY.steps, 102).astype(np.int64)}
    records = Records(rows=102, codes=codes)
    each = [kernel.total(records.take(np.array([i]))) for i in range(102)]
    assert max(np.linalg.norm(part) for part in each) == pytest.approx(kernel.sensitivity, rel=1e-12)
    assert np.array_equal(np.sum(each, axis=0), kernel.total(records))
    assert kernel.weighted
    assert kernel.total(records).dtype == np.int64


def test_only_numbers_with_many_values_are_measured() -> None:
    assert fine_columns(SCHEMA) == (0, 2, 4)
    few = Schema(one_row_per_person=True, columns=SCHEMA.columns[1:4:2])
    assert fine_columns(few) == ()
    assert FINE not in [share.name for share in Mst().shares(few)]


@pytest.mark.parametrize("model", [Mst(), Aim()])
def test_the_shares_of_a_model_make_a_whole(model: Mst | Aim) -> None:
    for schema in (
        SCHEMA,
        Schema(one_row_per_person=True, columns=SCHEMA.columns, label=None),
        Schema(one_row_per_person=True, columns=SCHEMA.columns[1:4:2]),
    ):
        shares = model.shares(schema)
        assert sum(share.share for share in shares) == pytest.approx(1.0, rel=1e-12)
        assert all(share.weighted for share in shares)
        assert ("label tables" in [share.name for share in shares]) == (schema.label is not None)


def table_of(rows: int, seed: int = 0) -> pa.Table:
    """Weeks of 40 hours, mostly; pay that is a multiple of 500 above a base of 20,000."""
    generator = np.random.default_rng(seed)
    hours = np.where(generator.random(rows) < 0.6, 40, generator.integers(1, 100, rows))
    rich = generator.random(rows) < np.where(hours == 40, 0.2, 0.5)
    pay = np.where(generator.random(rows) < 0.5, 20_000.0, 100.0 * generator.integers(200, 900, rows))
    kinds = np.array(["a", "b", "c"])[generator.integers(0, 3, rows)]
    grade, years = generator.integers(1, 6, rows), generator.integers(0, 30, rows)
    return pa.table({"hours": hours, "grade": grade, "pay": pay, "kind": kinds, "years": years, "rich": rich})


def released(rows: int = 3000, **options: Any) -> Release:
    settings = Settings.of(**{"delta": 1e-6, "public_rows": rows, "model": "mst", **options})
    return run(make_plan(SCHEMA, settings), open_source(table_of(rows)), noise_seed=1)


def fine_of(release: Release) -> Fine:
    assert isinstance(release.fit, MarginalFit)
    assert release.fit.fine is not None
    return release.fit.fine


@pytest.fixture(scope="module")
def release() -> Release:
    return released(epsilon=2.0)


def test_its_noise_and_its_event_are_those_of_its_charge(release: Release) -> None:
    fine, (event,) = fine_of(release), [event for event in release.events if event.name == FINE]
    charge = release.plan.charges[FINE]
    assert event.weighted
    assert charge.weighted
    assert event.mu == pytest.approx(charge.mu, rel=1e-9)
    assert event.sensitivity == fine.statistic.sensitivity  # type: ignore[union-attr]
    assert fine.sigma == event.sigma  # type: ignore[union-attr]
    left = release.plan.budget.mu**2 - sum(c.mu**2 for c in release.plan.charges.values() if not c.weighted)
    assert charge.mu**2 == pytest.approx(0.04 * left, rel=1e-6)


def test_what_is_measured_is_the_weighted_counts_and_noise_of_that_scale(release: Release) -> None:
    fine = fine_of(release)
    noise = (fine.noisy - fine.statistic.total(records_of(table_of(3000), SCHEMA))) / fine.sigma
    # A sum of so many squares of normal numbers lies outside with a chance below 1e-9.
    assert 0.3 < float(np.mean(noise**2)) < 2.0
    assert len(noise) > 150
    assert fine.columns == (0, 2, 4)


def test_what_is_kept_is_what_the_meter_gave_and_nothing_else_of_the_data() -> None:
    """Not even which parts are empty."""
    settings = Settings.of(epsilon=2.0, delta=1e-6, public_rows=3000, model="mst")
    release, seen = record_run(make_plan(SCHEMA, settings), table_of(3000))
    (measured,) = [each for each in seen if each.event.name == FINE]
    assert np.array_equal(fine_of(release).noisy, measured.noisy)
    assert fine_of(release).noisy.all()  # noise of this size leaves nothing at 0


def test_with_several_rows_per_person_its_noise_is_that_of_all_of_them() -> None:
    schema = dataclasses.replace(SCHEMA, person=Person(column="who", rows=3), one_row_per_person=False)
    schema = dataclasses.replace(schema, columns=(Id(name="who"), *SCHEMA.columns))
    table = table_of(900).append_column("who", pa.array([f"p{k // 3}" for k in range(900)]))
    settings = Settings.of(epsilon=20.0, delta=1e-6, model="mst")
    release = run(make_plan(schema, settings), open_source(table), noise_seed=1)
    fine, (event,) = fine_of(release), [event for event in release.events if event.name == FINE]
    assert fine.sigma == pytest.approx(event.sigma, rel=1e-9)  # type: ignore[union-attr]
    assert event.sensitivity == pytest.approx(3 * fine.statistic.sensitivity)  # type: ignore[union-attr]


def test_where_no_bin_can_be_divided_what_was_planned_is_measured_all_the_same() -> None:
    schema = Schema(one_row_per_person=True, columns=SCHEMA.columns[3:], label="rich")
    table = table_of(3000).select(["kind", "years", "rich"])
    settings = Settings.of(mu=50.0, delta=1e-9, public_rows=3000, model="mst")
    release = run(make_plan(schema, settings), open_source(table), noise_seed=1)
    assert release.stage.histograms.bins[1].widths.max() == 1
    assert fine_of(release).columns == (1,)
    assert release.sample(100, seed=1)["years"].to_numpy().max() < 60


def test_a_plan_says_its_sensitivity_at_most() -> None:
    for model in (Mst(), Aim()):
        assert model.sensitivity(SCHEMA, FINE) == pytest.approx(3**0.5)


@pytest.mark.parametrize("i", [0, 4])
def test_parts_of_every_column_are_its_own_and_believed_by_the_noise_that_was_drawn(
    i: int, release: Release
) -> None:
    fine, histograms = fine_of(release), release.stage.histograms
    assert isinstance(release.fit, MarginalFit)
    groups = release.fit.measured[0].tables.groups[: len(histograms.bins)]
    k = fine.columns.index(i)
    start, finer = sum(bins.count for bins in fine.statistic.bins[:k]), fine.statistic.bins[k]
    (event,) = [event for event in release.events if event.name == FINE]
    counts = fine.noisy[start : start + finer.count] / FULL
    spread = spread_inside(histograms.bins[i], finer, counts, event.sigma / FULL)  # type: ignore[union-attr]
    shape = fine.shapes(histograms, groups)[i]
    assert shape.probabilities == pytest.approx(probabilities_within(histograms, i, groups[i]) @ spread)


def test_a_choice_that_is_made_again_expects_what_the_run_did(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    choose = Meter.choose

    def watched(self: Meter, choice: Any, *, mu: float) -> tuple[int, ...]:
        made.append(choice)
        return choose(self, choice, mu=mu)

    monkeypatch.setattr(Meter, "choose", watched)
    again = released(epsilon=2.0).fit.kernels()["choice"]
    assert np.array_equal(again.choice.expected, made[0].expected)  # type: ignore[union-attr]


@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_no_record_has_more_influence_on_it_than_the_account_says(epsilon: float) -> None:
    release = released(epsilon=epsilon)
    assert isinstance(release.stage.score, ShiftedScore) == (epsilon == 20.0)  # a threshold for each label
    fine, records = fine_of(release), records_of(table_of(3000), SCHEMA)
    influence = release.influence(records)
    assert influence.min() < 1
    for i in range(0, 3000, 5):
        norm = np.linalg.norm(fine.statistic.total(records.take(np.array([i]))).astype(np.float64))
        assert norm <= influence[i] * fine.statistic.sensitivity * (1 + 1e-12)


@pytest.mark.parametrize("model", ["mst", "aim"])
@pytest.mark.parametrize("weights", ["uniform", "targeted"])
def test_a_heap_inside_of_a_bin_comes_back(model: str, weights: str) -> None:
    """The histograms have bins of several hours here."""
    table = table_of(8000)
    plan = Settings.of(epsilon=2.0, delta=1e-6, public_rows=8000, model=model, weights=weights)
    release = run(make_plan(SCHEMA, plan), open_source(table), noise_seed=2)
    assert release.stage.histograms.bins[0].widths.max() > 1
    made = release.sample(8000, seed=1)["hours"].to_numpy()
    assert np.mean(made == 40) == pytest.approx(np.mean(table["hours"].to_numpy() == 40), abs=0.03)
    assert np.mean((made == 39) | (made == 41)) < 0.03


def test_without_noise_the_spread_inside_of_bins_is_the_real_one() -> None:
    coarse, finer = Bins.binned(AGE, 8), Bins.binned(AGE, 64)
    counts = np.append(np.random.default_rng(0).integers(0, 1000, finer.values), 0).astype(np.float64)
    spread = spread_inside(coarse, finer, counts, 1e-3)
    wholes = np.bincount(coarse.of_codes(np.arange(AGE.steps + 1)), counts[: AGE.steps + 1])
    assert wholes @ spread[: coarse.numbers] == pytest.approx(np.append(counts[: finer.numbers], [0, 0]), abs=1.0)


def test_noise_alone_leaves_a_bin_even() -> None:
    coarse, finer = Bins.binned(AGE, 8), Bins.binned(AGE, 64)
    assert coarse.widths.max() > 4
    generator, off = np.random.default_rng(0), []
    for _ in range(20):
        counts = np.full(finer.count, 100.0) + generator.normal(0, 30.0, finer.count)
        spread = spread_inside(coarse, finer, counts, 30.0)
        even = spread_inside(coarse, finer, np.full(finer.count, 100.0), 30.0)
        off.append(np.abs(spread - even).sum(axis=1).max() / 2)
    assert float(np.mean(off)) < 0.05


@given(data=st.data(), coarse=st.sampled_from([4, 8, 16]), sigma=st.floats(0.1, 1e4))
def test_every_bin_is_spread_over_its_own_parts_and_no_others(data: Any, coarse: int, sigma: float) -> None:
    bins = Bins.binned(AGE, coarse)
    finer = Bins.at(AGE, np.concatenate([bins.starts, Bins.binned(AGE, 64).starts]))  # type: ignore[arg-type,list-item]
    counts = np.array(data.draw(st.lists(st.floats(-1e6, 1e6), min_size=finer.count, max_size=finer.count)))
    spread = spread_inside(bins, finer, counts, sigma)
    assert spread.sum(axis=1) == pytest.approx(np.ones(bins.count))
    assert spread.min() >= 0
    positions = np.arange(AGE.steps + 2)  # special values included
    inside = np.zeros(spread.shape, dtype=bool)
    inside[bins.of_codes(positions), finer.of_codes(positions)] = True
    inside[-1, -1] = True  # missing
    assert np.array_equal(spread > 0, inside)


def test_a_saved_release_draws_the_same_rows(release: Release, tmp_path: Path) -> None:
    loaded = Release.load(release.save(tmp_path / "release"))
    assert loaded.sample(500, seed=3).equals(release.sample(500, seed=3))
    assert fine_of(loaded).columns == fine_of(release).columns


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"fine_columns": np.array([0, 3])}, "other columns"),
        ({"fine_columns": np.array([2, 0])}, "other columns"),
        ({"fine_columns": np.array([], dtype=np.int64)}, "other columns"),
        ({"fine_starts_0": np.array([0, 50])}, "not parts of its bins"),
        ({"fine_counts": np.zeros(3, dtype=np.int64)}, "damaged"),
    ],
)
def test_fine_histograms_that_no_run_could_have_measured_are_refused(
    change: dict[str, Any], why: str, release: Release, tmp_path: Path
) -> None:
    with pytest.raises(ReleaseError, match=why):
        Release.load(rewritten(release, tmp_path / "release", change))


def test_more_parts_than_any_run_would_measure_are_refused(release: Release, tmp_path: Path) -> None:
    fine = fine_of(release)
    k = fine.columns.index(2)  # the pay: it has a billion values and more
    many = np.union1d(fine.statistic.bins[k].starts, np.arange(1, 2**14 + 1))  # type: ignore[arg-type]
    parts = np.split(fine.noisy, np.cumsum([bins.count for bins in fine.statistic.bins])[:-1])
    parts[k] = np.zeros(len(many) + 1, dtype=np.int64)
    changed = {f"fine_starts_{k}": many, "fine_counts": np.concatenate(parts)}
    with pytest.raises(ReleaseError, match="not parts of its bins"):
        Release.load(rewritten(release, tmp_path / "release", changed))


def test_other_groups_have_other_shapes(release: Release) -> None:
    histograms = release.stage.histograms
    assert isinstance(release.fit, MarginalFit)
    groups = release.fit.measured[0].tables.groups
    columns = len(histograms.bins)
    fine = fine_of(release)
    shapes = [fine.shapes(histograms, each)[0].rows for each in (groups[:columns], groups[columns:])]
    assert shapes == [groups[0].count, groups[columns].count]
    assert shapes[0] != shapes[1]


def test_a_measurement_that_was_not_paid_for_is_refused(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "described")
    described = json.loads((folder / "release.json").read_text())
    for event in described["events"]:
        if event["name"] == FINE:
            event["sensitivity"], event["sigma"] = event["sensitivity"] / 2, event["sigma"] / 2
    with pytest.raises(ReleaseError, match="smaller sensitivity"):
        Release.load(rewritten(release, tmp_path / "less", {}, events=described["events"]))
    paid = [event for event in described["events"] if event["name"] != FINE]
    with pytest.raises(ReleaseError, match="events do not fit"):
        Release.load(rewritten(release, tmp_path / "unpaid", {}, events=paid))


# --- how much the histograms get ---


def test_more_records_leave_less_of_the_budget_to_what_everybody_pays_in_full() -> None:
    factors = [Mst().histogram_factor(SCHEMA, mu=0.2, rows=rows) for rows in (100, 1000, 10**5, 10**6, 10**9)]
    assert factors[0] == factors[1] == 1.0
    assert factors == sorted(factors, reverse=True)
    assert factors[2] == pytest.approx((250 / (10**5 * 0.2 / 6**0.5)) ** 0.25)
    assert factors[-1] == 0.2
    assert NaiveBayes().histogram_factor(SCHEMA, mu=0.2, rows=10**9) == 1.0


LESS = (250 / 6000.0) ** 0.25


@pytest.mark.parametrize(
    ("options", "share", "factor"),
    [
        ({}, 0.1, LESS),
        ({"weights": "uniform"}, 0.1, 1.0),
        ({"weights": "uniform", "outlier_epsilon": 0.5}, 0.1, LESS),
        ({"weights": "hinge-exp"}, 0.1, LESS),
        ({"score_share": 0.07}, 0.07, 1.0),
        ({"public_rows": None}, 0.1, 1.0),
        ({"scorer": "pairwise"}, 0.1, 1.0),
        ({"model": "naive-bayes"}, 0.05, 1.0),
    ],
)
def test_a_plan_gives_the_histograms_what_weights_need(
    options: dict[str, Any], share: float, factor: float
) -> None:
    rows = round(6000 * 6**0.5 / 0.2)
    settings = Settings.of(**{"mu": 0.2, "delta": 1e-9, "public_rows": rows, "model": "mst", **options})
    plan = make_plan(SCHEMA, settings)
    paid = {name: charge.mu**2 / plan.budget.mu**2 for name, charge in plan.charges.items() if not charge.weighted}
    paid.pop("count", None)
    paid.pop("scores", None)
    histograms = paid.pop("histograms")
    looks = sum(paid.values())
    assert looks > 0.1 * share
    assert histograms == pytest.approx((share - looks) * factor, rel=1e-4)
