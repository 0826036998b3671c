"""Quotas: what makes sampling quick draws what the plain way would."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.arrays import Floats, Ints
from repsynth.columns.quotas import Line, Quotas
from repsynth.columns.value_sampler import Shape
from repsynth.schema import Integer, Number
from repsynth.columns.cells import Bins
from repsynth.scoring.grain import Grains, Roundness
from repsynth.columns.adaptive_histogram import Histograms

TOP = 2**32
ROWS = st.integers(0, 5) | st.sampled_from([255, 40_000])


@given(rows=st.lists(st.tuples(ROWS, st.integers(0, 5) | st.just(2**40)), max_size=40), seed=st.integers(0, 3))
def test_records_are_lined_up_by_row_then_by_order(rows: list[tuple[int, int]], seed: int) -> None:
    """Also where row and order leave no room for random bits in one number."""
    given_, order = (np.array([row[k] for row in rows], dtype=np.int64) for k in (0, 1))
    for by in (None, order):
        line = Line.of(given_, 40_001, np.random.default_rng(seed), by)
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
        places[np.arange(10), Line.of(same, 1, generator).records] += 1
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
    line = Line.of(given, len(probabilities), generator, order)
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


def histograms_of(column: Integer | Number, roundness: list[float], starts: list[int]) -> Histograms:
    """Equal counts in bins from these positions on, and numbers that are so round, whatever their size."""
    bins = Bins.at(column, np.array(starts))
    grains = Grains.of_column(column)
    powers = len(grains.powers)
    counts = np.zeros((powers, powers))
    for size in range(powers):
        counts[size, : size + 1] = 1e6 * np.pad(roundness, (0, powers))[: size + 1]
    cells = np.append(counts[np.tril_indices(powers)], 0).astype(np.int64)
    full = np.append(np.full(bins.values, 10**6), 0)
    return Histograms((bins,), full, 1.0, 1e6 * bins.values, roundness={0: Roundness(grains, cells, 1.0)})


COLUMNS: dict[str, tuple[Integer | Number, list[float], list[int]]] = {
    "whole": (Integer(name="x", min=-500, max=9_499), [0.5, 0.3, 0.2, 0.0], [0, 500, 1_500, 4_000]),
    "decimals": (Number(name="x", min=0.0, max=99.99, decimals=2), [0.5, 0.2, 0.2, 0.1], [0, 1_000, 2_500, 6_000]),
    "no grid": (Number(name="x", min=0.0, max=1e4), [0.5, 0.1, 0.2, 0.1, 0.1], [0, 2**38, 2**39, 2**39 + 2**38]),
}


@pytest.mark.parametrize("kind", list(COLUMNS))
def test_codes_of_a_bin_are_in_it_and_as_round_as_the_table_says(kind: str) -> None:
    """As drawing one by one: the same fractions of each roundness in each bin."""
    column, roundness, starts = COLUMNS[kind]
    histograms = histograms_of(column, roundness, starts)
    bins, grains = histograms.bins[0], histograms.roundness[0].grains
    shape = Shape.of(histograms, 0, np.eye(bins.count))
    generator = np.random.default_rng(0)
    row = np.repeat(np.arange(bins.numbers), 20_000)
    level = generator.integers(0, TOP, len(row), dtype=np.uint32)
    quick = shape.codes(row, level, generator.random(len(row)))
    slow = histograms.positions(0, row, generator.random(len(row)), generator)
    starts_, ends = histograms.spans(0)
    assert (quick >= starts_[row]).all()
    assert (quick < ends[row]).all()
    for b in range(bins.numbers):
        cells = [np.bincount(grains.of_codes(codes[row == b]), minlength=grains.count) for codes in (quick, slow)]
        assert np.abs(cells[0] - cells[1]).max() < 6 * (2 * 20_000 * 0.25) ** 0.5


def test_multiples_are_drawn_evenly_and_none_of_the_next_power() -> None:
    column, roundness, starts = COLUMNS["whole"]
    shape = Shape.of(histograms_of(column, roundness, starts), 0, np.eye(10)[:5])
    tens = [k for k in range(len(shape.power)) if shape.power[k] == 10.0 and shape.skips[k]]
    assert tens
    for run in tens:
        inside = (np.arange(shape.count[run]) + 0.5) / shape.count[run]
        number = shape.first[run] + (inside * shape.count[run]).astype(np.int64)
        run_of = np.full(len(number), run)
        position = shape._multiples(number, run_of, shape.power.take(run_of))
        values = position + column.min
        low, high = int(shape.low[run]) + column.min, int(shape.high[run]) + column.min
        assert values.tolist() == [v for v in range(low, high + 1) if v % 10 == 0 and v % 100]


def test_a_grid_of_decimals_is_met_exactly() -> None:
    column, roundness, starts = COLUMNS["decimals"]
    shape = Shape.of(histograms_of(column, roundness, starts), 0, np.eye(10)[:5])
    run = next(k for k in range(len(shape.power)) if shape.power[k] == 0.1)
    number = np.arange(100, 200)
    position = shape._multiples(number, np.full(100, run), np.full(100, 0.1))
    skipped = [n + (n // 9 + 1) * int(shape.skips[run]) for n in number.tolist()]
    assert position.tolist() == [int(Decimal(n) / 10 * 100) for n in skipped]


def test_round_numbers_far_from_zero_beside_others() -> None:
    """A run that is not of round numbers has no multiple, whatever the bounds."""
    column = Number(name="a", min=-1e9, max=-1e9 + 1e-3)
    rows, ends = np.zeros(2, dtype=np.int64), np.array([column.steps, column.steps])
    first, power = np.array([5, -(10**9)]), np.array([0.0, 1.0])
    shape = Shape(Bins.binned(column, 2), np.eye(2), first, np.array([1, 1]), rows, ends, power, rows)
    found = shape.codes(np.array([0, 1]), np.zeros(2, dtype=np.uint32), np.zeros(2))
    assert found[1] == 0
    assert 0 <= found[0] <= column.steps
