"""Histograms in looks: what they count, what later looks divide, and what is made of noisy counts."""

from itertools import pairwise

import numpy as np
import pytest
from checks import check_contribution, records_of
from conftest import WIDE, make_wide
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import schemas, tables

from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import (
    FINE,
    REFINED,
    ColumnHistograms,
    Histograms,
    Refinement,
    dump_look,
    load_look,
)
from repsynth.columns.cells import first_cells, is_divisible
from repsynth.columns.estimation import shares_inside, to_simplex
from repsynth.io.records import MISSING
from repsynth.schema import Number, Schema, parse_schema

SCHEMA = parse_schema(WIDE)
RECORDS = records_of(make_wide(1500), SCHEMA)
NOISE = st.sampled_from([1e-3, 5.0, 200.0])


def coarse_of(sigma: float, seed: int = 0, rows: float = 1500.0) -> Histograms:
    bins = first_cells(SCHEMA, rows=rows, sigma=sigma)
    exact = ColumnHistograms(bins).total(RECORDS)
    noise = np.random.default_rng(seed).normal(0, sigma, len(exact))
    return Histograms(bins, np.rint(exact + noise).astype(np.int64), sigma, rows)


def look_at(histograms: Histograms, name: str, sigma: float, seed: int = 0, weight: float = 1.0) -> Refinement:
    columns, bins = histograms.to_divide(name, sigma)
    exact = ColumnHistograms(bins).total(RECORDS) * weight
    counts = 4096 * (exact + np.random.default_rng(seed).normal(0, sigma, len(exact)))
    return Refinement(columns, bins, np.rint(counts).astype(np.int64), 4096 * sigma, 4096)


@settings(max_examples=30)
@given(data=st.data(), schema=schemas())
def test_each_record_adds_one_to_one_cell_of_every_column(data: st.DataObject, schema: Schema) -> None:
    records = records_of(data.draw(tables(schema)), schema)
    statistic = ColumnHistograms(first_cells(schema, rows=100.0, sigma=1.0))
    starts = np.cumsum([0, *(bins.count for bins in statistic.bins)])
    for i in range(records.rows):
        one = statistic.total(records.take(np.array([i])))
        for start, end in pairwise(starts):
            assert np.sort(one[start:end])[-2:].tolist() == [0, 1]
    check_contribution(statistic, records)
    cut = data.draw(st.integers(0, records.rows))
    parts = [records.take(np.arange(cut)), records.take(np.arange(cut, records.rows))]
    assert np.array_equal(sum(statistic.total(part) for part in parts), statistic.total(records))


@settings(max_examples=20)
@given(sigma=NOISE, name=st.sampled_from([REFINED, FINE]), seed=st.integers(0, 20))
def test_a_look_divides_cells_of_numbers_alone_and_its_cells_nest(sigma: float, name: str, seed: int) -> None:
    coarse = coarse_of(sigma, seed)
    columns, bins = coarse.to_divide(name, sigma)
    assert len(columns) > 0
    assert list(columns) == sorted(set(columns))
    for i, finer in zip(columns, bins, strict=True):
        old = coarse.bins[i]
        assert is_divisible(finer.column)
        assert finer.column is old.column
        assert np.isin(old.starts, finer.starts).all()  # type: ignore[arg-type]


@settings(max_examples=20)
@given(sigma=NOISE, weight=st.sampled_from([0.3, 1.0]), seed=st.integers(0, 20))
def test_refined_histograms_are_histograms(sigma: float, weight: float, seed: int) -> None:
    """No negative level, probabilities that add up, and nothing else changes than numbers of refined columns."""
    coarse = coarse_of(sigma, seed)
    look = look_at(coarse, REFINED, sigma, seed, weight)
    refined = coarse.refined_by([look], weighted=weight < 1)
    for i, bins in enumerate(refined.bins):
        if bins.starts is not None:
            assert refined.levels(i)[: bins.numbers].min() >= 0
            assert np.array_equal(refined.noisy(i)[bins.numbers :], coarse.noisy(i)[coarse.bins[i].numbers :])
            if i not in look.columns:
                assert np.array_equal(refined.levels(i), coarse.levels(i))
        assert refined.probabilities[i].min() >= 0
        assert refined.probabilities[i].sum() == pytest.approx(1)
        assert np.isfinite(refined.variances(i)).all()
        assert refined.missing_fraction(i) == coarse.missing_fraction(i)
    drawn = refined.draw(200, np.random.default_rng(0))
    for column in SCHEMA.numeric:
        codes = drawn.codes[column.name]
        assert np.all((codes < column.positions) & ((codes >= 0) | (codes == MISSING)))


def test_without_noise_all_looks_together_are_the_exact_histogram() -> None:
    coarse = histograms = coarse_of(1e-3)
    looks: list[Refinement] = []
    for name in (REFINED, FINE):
        looks.append(look_at(histograms, name, 1e-3))
        histograms = coarse.refined_by(looks, weighted=False)
    assert sum(bins.count for bins in histograms.bins) > 2000
    for i, bins in enumerate(histograms.bins):
        exact = np.bincount(bins.of(RECORDS), minlength=bins.count)
        assert np.abs(histograms.levels(i) - exact).sum() < 0.02 * RECORDS.rows


def test_looks_at_very_many_records_can_be_saved_and_loaded() -> None:
    """However many cells stand above the noise."""
    column = Number(name="pay", min=0.0, max=1e7, decimals=2)
    bins = first_cells(Schema(columns=(column,)), rows=1e7, sigma=10.0)
    coarse = histograms = Histograms(bins, np.full(bins[0].count, 10**6), 10.0, 1e7)
    looks: list[Refinement] = []
    for name in (REFINED, FINE):
        columns, finer = histograms.to_divide(name, 1.0)
        look = Refinement(columns, finer, np.full(finer[0].count, 2**12 * 10**4), 4096.0, 4096)
        loaded = load_look(name, histograms, dump_look(name, look), sigma=4096.0, unit=4096)
        assert np.array_equal(loaded.bins[0].starts, finer[0].starts)  # type: ignore[arg-type]
        looks.append(look)
        histograms = coarse.refined_by(looks, weighted=False)


@given(
    counts=st.lists(st.floats(-50, 1e4), min_size=1, max_size=30),
    cells=st.integers(1, 5),
    sigma=st.sampled_from([0.01, 1.0, 100.0]),
    widths=st.sampled_from([1, 7, 10**9]),
)
def test_the_shares_of_a_cell_add_up_to_one(counts: list[float], cells: int, sigma: float, widths: int) -> None:
    parents = np.arange(len(counts)) * min(cells, len(counts)) // len(counts)
    noisy = np.array(counts)
    whole: Floats = np.maximum(np.bincount(parents, noisy), sigma)
    wide = np.where(np.arange(len(counts)) % 2, widths, 1)
    roundness = np.where(wide == 1, np.arange(len(counts)) % 3, -1)
    shares = shares_inside(parents, wide.astype(float), noisy, np.full(len(counts), sigma), whole, roundness)
    assert shares.min() > 0
    assert np.bincount(parents, shares) == pytest.approx(1)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_the_nearest_probabilities_are_probabilities(vector: list[float]) -> None:
    """And none of the corners of the simplex lies on their far side, so no probabilities are nearer."""
    asked = np.array(vector)
    found = to_simplex(asked)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1)
    assert ((np.eye(len(asked)) - found) @ (asked - found)).max() <= 1e-9
