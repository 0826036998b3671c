"""What naive Bayes sums up, and what it makes of its noisy sums."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import records_of, take

from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.io.records import MISSING, Records
from repsynth.io.sources import open_source
from repsynth.models.naive_bayes import NaiveBayesRelease, _Means, part_of
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Boolean, Integer, schema_from_dict

ROWS = 4000
SCHEMA = schema_from_dict(
    {
        "one_row_per_person": True,
        "label": "ill",
        "columns": {
            "pay": {"type": "integer", "min": 0, "max": 100_000, "special": ["N"], "missing": True},
            "visits": {"type": "integer", "min": 0, "max": 100_000},
            "region": {"type": "category", "values": ["north", "south", "east"], "missing": True},
            "ill": {"type": "boolean"},
        },
    }
)


def table_of(rows: int = ROWS) -> pa.Table:
    """Pay is missing for 40 % of the ill and 5 % of the others, and special for 2 % and 20 %."""
    generator = np.random.default_rng(3)
    ill = np.arange(rows) % 3 == 0
    kind = generator.random(rows)
    missing = kind < np.where(ill, 0.4, 0.05)
    special = ~missing & (kind > np.where(ill, 0.98, 0.8))
    pay = np.where(ill, 20_000, 30_000) * generator.lognormal(0, 0.4, rows)
    cells = [None if m else "N" if s else str(int(p)) for m, s, p in zip(missing, special, pay, strict=True)]
    visits = np.where(generator.random(rows) < 0.95, 0, np.minimum(generator.lognormal(6, 1, rows), 1e5))
    region = generator.choice(["north", "south", "east"], rows, p=[0.6, 0.3, 0.1])
    return pa.table({"pay": cells, "visits": visits.astype(np.int64), "region": region, "ill": ill})


def released(seed: int = 0, **options: Any) -> Release:
    settings = {"epsilon": 2.0, "delta": 1e-6, "public_rows": ROWS, "model": "naive-bayes", **options}
    return run(make_plan(SCHEMA, Settings.of(**settings)), open_source(table_of()), noise_seed=seed)


@pytest.mark.parametrize("weights", ["uniform", "targeted"])
def test_missing_and_special_cells_depend_on_the_label(weights: str) -> None:
    drawn = records_of(released(weights=weights).sample(ROWS, seed=1), SCHEMA)
    pay, ill = drawn.codes["pay"], drawn.codes["ill"] == 1
    for label, missing, special in ((True, 0.4, 0.02), (False, 0.05, 0.2)):
        assert np.mean(pay[ill == label] == MISSING) == pytest.approx(missing, abs=0.06)
        assert np.mean(pay[ill == label] == 100_001) == pytest.approx(special, abs=0.06)
    assert not np.any(drawn.codes["visits"] == MISSING)
    numbers = (pay != MISSING) & (pay <= 100_000)
    assert np.median(pay[numbers & ill]) < 0.9 * np.median(pay[numbers & ~ill]), "numbers do as well"


def test_a_label_is_told_by_what_is_missing() -> None:
    """Completing rows: two thirds are not ill, but most of those without pay are."""
    given = pa.table({"pay": [None, "N", "25000"] * 300})
    drawn = records_of(released().sample(given=given, seed=2), SCHEMA)
    ill = (drawn.codes["ill"] == 1).reshape(-1, 3).mean(axis=0)
    assert ill[0] > 0.65
    assert ill[1] < 0.25


def test_a_count_that_is_nearly_always_zero_stays_so() -> None:
    release = released(1)
    drawn = records_of(release.sample(ROWS, seed=1), SCHEMA).codes["visits"]
    assert np.mean(drawn == 0) == pytest.approx(release.histograms.probabilities[1][0], abs=1e-3)
    assert np.mean(drawn == 0) == pytest.approx(0.95, abs=0.03)


def test_labels_together_follow_the_histogram() -> None:
    """Ranks only say which label has which numbers."""
    release = released()
    sampler, histograms = release.sampler, release.histograms
    (pay,) = (shape for shape in sampler.columns if shape.bins.column.name == "pay")
    numbers = (sampler.label_probabilities @ pay.probabilities)[: pay.bins.numbers]
    expected = histograms.probabilities[0][: pay.bins.numbers]
    assert numbers / numbers.sum() == pytest.approx(expected / expected.sum(), abs=2e-4)


@pytest.mark.parametrize("weights", ["hinge-exp", "equalize"])
def test_sums_are_those_of_single_records_and_no_norm_exceeds_the_weight(weights: str) -> None:
    fit, records = released(weights=weights).fit, records_of(table_of(60), SCHEMA)
    assert isinstance(fit, NaiveBayesRelease)
    records.codes["ill"][:5] = MISSING
    records.codes["visits"][5:9] = MISSING  # undeclared
    statistic = fit.statistic
    each = statistic.each(records)
    assert np.array_equal(each.sum(axis=0), statistic.total(records))
    for i in range(60):
        assert np.array_equal(each[i], statistic.total(take(records, [i])))
    norms, weight = np.linalg.norm(each.astype(float), axis=1), fit.stage.influence(records)
    assert np.all(norms <= weight * statistic.sensitivity * (1 + 1e-12))
    assert not norms[:5].any()
    expected = weight[5:] * statistic.norms(records)[1][5:] * 1024 * 4096
    unit = 1024 * np.sqrt(
        statistic.squared_norm(statistic.cells(records))[5:]
    )  # weight times clip factor is rounded down
    assert np.all(norms[5:] >= expected - unit), "and all that clipping leaves is used"


def test_differences_that_noise_explains_are_dropped_and_others_kept() -> None:
    generator = np.random.default_rng(0)
    columns = np.repeat([0, 1], 20)
    truth = np.where(columns == 0, 0.0, 30.0) * np.tile([1, -1], 20) * np.array([[1], [-1]])
    noisy = truth + generator.normal(size=(2, 40))
    found = _Means(np.array([0.5, 0.5]), 1.0, 1.0).of(noisy, columns) * 0.5
    assert np.sum(found[:, columns == 0] ** 2) < 0.4 * np.sum(noisy[:, columns == 0] ** 2)
    assert found[:, columns == 1] == pytest.approx(noisy[:, columns == 1], abs=3.0)
    exact = _Means(np.array([0.3, 0.7]), 2.0, 0.0).of(noisy, columns)
    assert exact == pytest.approx(noisy / 2 / np.array([[0.3], [0.7]])), "without noise it is the plain mean"


def test_frequencies_that_stage_one_knows_are_combined_by_precision() -> None:
    sums, columns = np.array([[0.5, -0.5]]), np.zeros(2, dtype=np.int64)
    means = _Means(np.ones(1), 100.0, 1.0)
    assert means.of(sums, columns, known=1e9) == pytest.approx(sums / 100)
    assert means.of(sums, columns, known=1.0) == pytest.approx(sums / 200)
    assert means.of(100 * sums, columns, known=1.0) == pytest.approx(0.0, abs=1e-3), "made by weights and clipping"


@pytest.mark.parametrize("column", [Boolean(name="x"), Integer(name="x", min=0, max=1, special=("N",))])
def test_a_cell_adds_what_its_norm_says(column: Boolean | Integer) -> None:
    """Also where missing cells are not declared: these add nothing."""
    bins = Bins.at(column, np.arange(2)) if isinstance(column, Integer) else Bins.discrete(column)
    part = part_of(Histograms((bins,), np.arange(60, 60 - bins.count, -1), 1.0, 150.0), 0)
    codes = np.append(np.arange(bins.values), MISSING)
    cells, own = bins.of(Records(rows=bins.count, codes={"x": codes})), np.arange(bins.count)
    added = np.concatenate(part.sums(cells, own, bins.count, np.ones(bins.count)), axis=1)
    assert np.array_equal((added**2).sum(axis=1), part.squared_norms[cells])
    assert not added[-1].any()
