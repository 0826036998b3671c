"""Quotas: what makes sampling quick draws what the plain way would."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.arrays import Floats, Ints
from repsynth.columns.cells import Bins
from repsynth.columns.value_sampler import Quotas, Shape, SortedRecords
from repsynth.schema import Integer, Number

TOP = 2**32
ROWS = st.integers(0, 5) | st.sampled_from([255, 40_000])


@given(rows=st.lists(st.tuples(ROWS, st.integers(0, 5) | st.just(2**40)), max_size=40), seed=st.integers(0, 3))
def test_records_are_lined_up_by_row_then_by_order(rows: list[tuple[int, int]], seed: int) -> None:
    """Also where row and order leave no room for random bits in one number."""
    given_, order = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    for by in (None, order):
        line = SortedRecords.of(given_, 40_001, np.random.default_rng(seed), by)
        assert sorted(line.records.tolist()) == list(range(len(rows)))
        assert line.row.tolist() == given_[line.records].tolist()
        keys = [(rows[i][0], 0 if by is None else rows[i][1]) for i in line.records.tolist()]
        assert keys == sorted(keys)
        assert line.put(line.row).tolist() == given_.tolist()


def test_equal_records_stand_in_random_order() -> None:
    """Places of ten equal records in 4,000 lines: each in every place, as often as any other within six sigma."""
    same = np.zeros(10, dtype=np.int64)
    generator = np.random.default_rng(0)
    places = np.zeros((10, 10))
    for _ in range(4_000):
        places[np.arange(10), SortedRecords.of(same, 1, generator).records] += 1
    assert np.abs(places - 400).max() < 6 * 400**0.5


TABLES = st.integers(1, 5).flatmap(
    lambda values: st.lists(
        st.lists(st.sampled_from([0.0, 1e-12, 0.1, 0.5, 1.0]), min_size=values, max_size=values).filter(any),
        min_size=1,
        max_size=4,
    )
)


@given(table=TABLES, levels=st.lists(st.integers(0, TOP - 1), min_size=1, max_size=20))
def test_a_level_decides_as_exact_fractions_do(table: list[list[float]], levels: list[int]) -> None:
    """By search and by the guide alike; a value without a probability is never drawn."""
    quotas = Quotas.of(np.array(table))
    edges = sorted({int(end) % TOP for end in quotas.ends} | {(int(end) - 1) % TOP for end in quotas.ends})
    level = np.array([*levels, *edges, 0, TOP - 1], dtype=np.uint32)
    for row, probabilities in enumerate(table):
        rows = np.full(len(level), row)
        found = quotas.at(rows, level)
        many = -(-8_192 // len(level))
        assert quotas.at(np.tile(rows, many), np.tile(level, many)).tolist() == found.tolist() * many
        total = sum(map(Fraction, probabilities))
        ends = [sum(map(Fraction, probabilities[: k + 1])) / total for k in range(len(probabilities))]
        for one, value in zip(level.tolist(), found.tolist(), strict=True):
            assert probabilities[value] > 0
            before = ends[value - 1] if value else 0
            assert before - Fraction(2, TOP) <= Fraction(one, TOP) <= ends[value] + Fraction(2, TOP)


def quota(given: Ints, probabilities: Floats, generator: np.random.Generator, order: Ints | None = None) -> Ints:
    """For each record a value drawn by the row of `probabilities` that `given` names."""
    line = SortedRecords.of(given, len(probabilities), generator, order)
    return line.put(Quotas.of(probabilities).along(line, generator))


@pytest.mark.parametrize("count", [1_000, 50_000])
def test_every_value_has_its_quota_in_every_row(count: int) -> None:
    """Within one record by itself; along an order, in each stretch of it, within a few, where independent draws
    would miss by some sixty."""
    generator = np.random.default_rng(1)
    table = generator.dirichlet(np.ones(6), size=3)
    given_, order = generator.integers(0, 3, count), generator.integers(0, 8, count)
    plain, ordered = quota(given_, table, generator), quota(given_, table, generator, order)
    for row in range(3):
        here = given_ == row
        expected = table[row] * here.sum()
        assert np.abs(np.bincount(plain[here], minlength=6) - expected).max() <= 1.01
        for upto in range(1, 9):
            first = here & (order < upto)
            assert np.abs(np.bincount(ordered[first], minlength=6) - table[row] * first.sum()).max() < 8


def test_two_columns_drawn_by_the_same_rows_are_independent() -> None:
    generator = np.random.default_rng(2)
    given_, table = np.zeros(200_000, dtype=np.int64), np.full((1, 10), 0.1)
    one, other = (quota(given_, table, generator) for _ in range(2))
    joint = np.bincount(one * 10 + other, minlength=100)
    chi_square = float(((joint - 2_000) ** 2 / 2_000).sum())
    assert 25 < chi_square < 200  # 81 degrees of freedom


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="x", min=-500, max=9_499, special=("?",), missing=True),
        Number(name="x", min=0.0, max=99.99, decimals=2),
        Number(name="x", min=-1e9, max=-1e9 + 1e-3),
    ],
    ids=["whole", "decimals", "narrow"],
)
def test_codes_are_spread_evenly_over_the_cell_that_was_drawn(column: Integer | Number) -> None:
    bins = Bins.at(column, np.array([0, 1, 2, 1_000, 4_000]))
    shape = Shape.of(bins, np.eye(bins.count))
    assert shape.alone is None
    row = np.repeat(np.arange(bins.count), 10_000)
    inside = np.tile((np.arange(10_000) + 0.5) / 10_000, bins.count)
    codes = shape.codes(row, np.zeros(len(row), dtype=np.uint32), inside)
    assert np.array_equal(bins.of_codes(codes), row)
    for k, width in enumerate(bins.widths):
        here = codes[row == k] - bins.starts[k]  # type: ignore[index]
        assert here.mean() == pytest.approx((width - 1) / 2, rel=0.01, abs=0.01)
    assert np.array_equal(Shape.of(bins, np.eye(bins.count)[:2]).alone, [0, 1])  # type: ignore[arg-type]
