"""What a release says of its own errors holds as often as it says."""

import dataclasses
from functools import cache
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from checks import records_of
from conftest import make_people

from repsynth import datasets
from repsynth.columns.cells import Bins
from repsynth.columns.groups import Groups
from repsynth.evaluation.points import is_number, numbers_of
from repsynth.io.sources import open_source
from repsynth.models.marginal.release import MarginalRelease
from repsynth.models.statistics import LabelTables
from repsynth.models.uncertainty import Lost, group_means, largest_mean, mean_positions, table_errors
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.account import release_data
from repsynth.release.accuracy import Expected, Z, expected_errors
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Integer, parse_schema

SIM = datasets.load("sim")
RECORDS = records_of(SIM.table, SIM.schema)


@cache
def made(model: str, seed: int, weights: str = "uniform", rows: int | None = None) -> tuple[Release, Expected]:
    settings = Settings.of(epsilon=1.0, model=model, weights=weights, public_rows=rows)
    release = run(make_plan(SIM.schema, settings), open_source(SIM.table), noise_seed=seed)
    return release, expected_errors(release)


def z_scores(model: str, seeds: int) -> np.ndarray:
    """How far the real shares lie from the released ones, in standard errors."""
    apart = []
    for seed in range(seeds):
        release, expected = made(model, seed)
        histograms = release.stage.coarse
        for i, (bins, shares) in enumerate(zip(histograms.bins, expected.columns, strict=True)):
            true = np.bincount(bins.of(RECORDS), minlength=bins.count) / RECORDS.rows
            noisy = histograms.noisy(i) / histograms.rows
            assert shares.shares == tuple(np.clip(noisy, 0, 1))
            apart.append((true - noisy) / np.array(shares.standard_errors))
    return np.concatenate(apart)


def test_shares_lie_within_their_intervals_as_often_as_they_should() -> None:
    apart = z_scores("naive-bayes", 8)
    assert len(apart) > 800
    assert abs(np.mean(np.abs(apart) <= Z) - 0.95) < 0.025
    assert abs(np.std(apart) - 1) < 0.07  # neither too wide nor too narrow


def test_means_by_bins_lie_within_their_intervals() -> None:
    apart = []
    for seed in range(8):
        release, expected = made("naive-bayes", seed)
        bins_of = {bins.column.name: bins for bins in release.stage.coarse.bins}
        for mean in expected.means:
            bins = bins_of[mean.column]
            column = bins.column
            assert isinstance(column, Integer) or hasattr(column, "unit")
            assert bins.starts is not None
            middle = column.min + (bins.starts[: bins.numbers] + bins.ends - 1) / 2 * column.unit
            here = RECORDS.take(is_number(column, RECORDS.codes[column.name]))
            apart.append((middle[bins.of(here)].mean() - mean.mean) / mean.standard_error)
            numbers = column.min + here.codes[column.name] * column.unit
            assert abs(numbers.mean() - middle[bins.of(here)].mean()) <= mean.binning + 5 * mean.standard_error
    assert len(apart) >= 40
    assert 0.7 < np.std(apart) < 1.3
    assert np.mean(np.abs(apart) <= Z) > 0.85


@pytest.mark.slow
def test_cells_of_plain_tables_lie_within_their_intervals() -> None:
    inside = []
    for seed in range(3):
        release, _ = made("mst", seed)
        said = [table for table in release.fit.errors().tables if not table.clipped]  # type: ignore[attr-defined]
        kernel = release.fit.kernels(choices=False)["tables"]
        for table, cross in zip(said, kernel.pairs, strict=True):  # type: ignore[union-attr]
            codes = [kernel.domain.groups[i].of(RECORDS) for i in cross]  # type: ignore[union-attr]
            flat = np.ravel_multi_index(codes, table.fractions.shape)
            true = np.bincount(flat, minlength=table.fractions.size).reshape(table.fractions.shape) / RECORDS.rows
            inside.append((np.abs(true - table.fractions) <= Z * table.errors).ravel())
    found = np.concatenate(inside)
    assert len(found) > 300
    assert abs(found.mean() - 0.95) < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_what_is_weighted_or_clipped_is_a_lower_bound(model: str) -> None:
    plain, weighted = made(model, 0)[1], made(model, 0, "targeted")[1]
    assert plain.tables
    assert all(table.lower_bound for table in weighted.tables)
    assert all(table.lower_bound == (table.measurement != "tables") for table in plain.tables)
    assert all(mean.lower_bound for mean in plain.group_means)
    assert any("lower bound" in note for note in weighted.notes)


def test_the_largest_mean_is_that_of_the_worst_placement() -> None:
    """Against a search over all placements of what was not counted, in whole records."""
    counts, where, most, room = (np.array(x, float) for x in ([4, 3, 2], [1, 5, 9], [2, 6, 10], [1, 2, 2]))
    for lost in range(6):
        best = max(
            (counts @ most + np.array(added) @ most) / (counts.sum() + sum(added))
            for added in product(range(2), range(3), range(3))
            if sum(added) <= lost
        )
        assert largest_mean(counts, where, most, room, float(lost)) == pytest.approx(best)


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["uniform", "targeted"])
def test_means_by_label_lie_between_their_ends(weights: str) -> None:
    """Whatever weights and clipping did: a miss has a chance of far less than 1 in 40 for each column and label in
    each measurement. Where nothing is worth choosing, the label's tables are measured again."""
    held, measured = [], 0
    for seed in range(3):
        release, expected = made("mst", seed, weights)
        assert isinstance(release.fit, MarginalRelease)
        measured += sum(isinstance(m.tables, LabelTables) for m in release.fit.measured)
        for mean in expected.group_means:
            assert mean.interval_95 is not None
            low, high = mean.interval_95
            assert low <= mean.mean <= high
            code = ["0", "1"].index(mean.by.split(" = ")[1])
            here = RECORDS.take(RECORDS.codes["label"] == code)
            column = next(column for column in SIM.schema.numeric if column.name == mean.column)
            held.append(low <= numbers_of(here, column).mean() <= high)
    assert len(held) == 12 * measured >= 36
    assert all(held)


def test_a_model_without_tables_says_so() -> None:
    release, _ = made("naive-bayes", 0)

    class Fit:
        """A fit that does not say."""

    expected = expected_errors(dataclasses.replace(release, fit=Fit()))  # type: ignore[arg-type]
    assert expected.tables == ()
    assert any("does not measure tables" in note for note in expected.notes)
    assert len(expected.columns) == len(SIM.schema.learned)


def test_a_public_count_makes_no_error() -> None:
    noisy, public = made("naive-bayes", 0)[1], made("naive-bayes", 0, rows=RECORDS.rows)[1]
    assert noisy.rows_standard_error > 0
    assert public.rows_standard_error == 0
    release = made("naive-bayes", 0, rows=RECORDS.rows)[0]
    assert public.columns[0].standard_error == release.stage.coarse.sigma / RECORDS.rows


def test_bins_are_named_and_inspect_says_it_all() -> None:
    schema = parse_schema(
        """
one_row_per_person = true
        label = "smoker"
        columns.age = {type = "integer", min = 18, max = 99, missing = true}
        columns.joined = {type = "datetime", min = 2015-01-01, max = 2025-12-31}
        columns.smoker = {type = "category", values = ["no", "yes"]}
        """
    )
    table = make_people(500).select(["age", "joined", "smoker"])
    release = run(make_plan(schema, Settings.of(epsilon=1.0)), open_source(table), noise_seed=1)
    expected = expected_errors(release)
    assert [shares.column for shares in expected.columns] == ["age", "joined", "smoker"]
    for shares, bins in zip(expected.columns, release.stage.coarse.bins, strict=True):
        assert len(shares.bins) == len(shares.shares) == len(shares.standard_errors) == bins.count
        assert shares.bins[-1] == "missing"
    assert expected.columns[1].bins[0].startswith("2015-01-01")
    assert expected.columns[2].bins == ("no", "yes", "missing")
    said = release_data(release)["expected_errors"]
    assert said["shares"] == {
        shares.column: {"standard_error": shares.standard_error} for shares in expected.columns
    }
    assert len(said["tables"]) == len(expected.tables)


def test_group_means_from_a_table_without_noise() -> None:
    age = Integer(name="age", min=0, max=9)
    numbers = Groups(Bins.at(age, np.arange(10)), np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1, -1]))
    positions = mean_positions(numbers, np.ones(11))
    assert positions.tolist() == [2.0, 7.0]
    label = Groups(
        Bins.discrete(parse_schema('one_row_per_person = true\ncolumns.sick = {type = "boolean"}').learned[0]),
        np.array([0, 1, -1]),
    )
    counts = np.array([[30.0, 10.0], [0.0, 20.0]])
    found = group_means(label, numbers, positions, counts, np.full((2, 2), 4.0), Lost(np.zeros(2), np.zeros(2)))
    assert (found.by, found.values, found.column) == ("sick", ("false", "true"), "age")
    assert found.means.tolist() == [(30 * 2 + 10 * 7) / 40, 7.0]
    # By hand: 2 √((2 − 3.25)² + (7 − 3.25)²) / 40.
    assert found.errors[0] == pytest.approx(2 * np.hypot(1.25, 3.75) / 40)


def test_errors_of_a_tables_fractions_are_those_of_many_draws() -> None:
    generator = np.random.default_rng(0)
    counts = np.array([[500.0, 300.0], [150.0, 50.0]])
    said = table_errors(("a", "b"), "tables", counts, np.full((2, 2), 400.0), clipped=False)
    drawn = counts + generator.normal(0, 20, (20_000, 2, 2))
    seen = (drawn / drawn.sum(axis=(1, 2), keepdims=True)).std(axis=0)
    assert np.allclose(said.errors, seen, rtol=0.05)


def test_means_and_shares_are_within_the_public_bounds() -> None:
    """Where all numbers are at an end of wide bounds, noise takes plain estimates beyond it."""
    schema = parse_schema("""
one_row_per_person = true
label = "ill"
columns.low = {type = "integer", min = 0, max = 900}
columns.high = {type = "number", min = -50.0, max = 50.0}
columns.ill = {type = "boolean"}
""")
    rows = 400
    table = pa.table({"low": [0] * rows, "high": [50.0] * rows, "ill": [True, False] * (rows // 2)})
    beyond = 0
    for seed in range(6):
        settings = Settings.of(epsilon=1.0, delta=1e-6, model="mst", weights="uniform", public_rows=rows)
        release = run(make_plan(schema, settings), open_source(table), noise_seed=seed)
        found = expected_errors(release)
        for mean in (*found.means, *found.group_means):
            low, high = (0, 900) if mean.column == "low" else (-50, 50)
            assert low <= mean.mean <= high
            beyond += mean.mean in (low, high)
            if mean.interval_95:
                assert low <= mean.interval_95[0] <= mean.interval_95[1] <= high
        for shares in found.columns:
            assert 0 <= min(shares.shares) <= max(shares.shares) <= 1
    assert beyond  # or the test says nothing
