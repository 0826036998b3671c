"""Cells: every code in exactly one, the first ones public, later ones nested, edges at round numbers."""

from datetime import date
from decimal import Decimal
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import datetimes, integers, numbers, schemas

from repsynth.columns.cells import (
    FEWEST_CELLS,
    MOST_CELLS,
    Bins,
    divided,
    first_cells,
    how_many_cells,
    is_divisible,
    public_cells,
    read_bins,
)
from repsynth.errors import ReleaseError
from repsynth.io.records import MISSING
from repsynth.io.values import positions_of
from repsynth.schema import Category, Datetime, Integer, Number, Numeric, Schema

COLUMNS = st.one_of(integers("x"), numbers("x"), datetimes("x"))
MOST = st.integers(FEWEST_CELLS, MOST_CELLS)


def edges_of(bins: Bins) -> list[int]:
    """The codes around every edge, the special ones, and missing."""
    assert bins.starts is not None
    around = np.concatenate([bins.starts + by for by in (-1, 0, 1)])
    return [*around[(around >= 0) & (around < bins.column.positions)].tolist(), MISSING]  # type: ignore[union-attr]


@given(column=COLUMNS, most=MOST)
def test_every_code_is_in_exactly_one_first_cell(column: Numeric, most: int) -> None:
    bins = public_cells(column, most)
    assert bins.starts is not None
    assert bins.starts[0] == 0
    assert (np.diff(bins.starts) > 0).all()
    assert bins.widths.sum() == column.steps + 1
    assert np.array_equal(bins.of_codes(bins.starts), np.arange(bins.values))
    assert bins.of_codes(np.array([column.steps, MISSING])).tolist() == [bins.numbers - 1, bins.count - 1]
    assert bins.numbers <= 3 * most + 30  # cells cost noise


@given(schema=schemas(), rows=st.floats(1, 1e7), sigma=st.floats(0.5, 1e4))
def test_first_cells_follow_from_the_schema_and_the_noise_level_alone(
    schema: Schema, rows: float, sigma: float
) -> None:
    """Neither a last digit of the noise nor an equal ratio of records to noise makes other cells."""
    bins = first_cells(schema, rows=rows, sigma=sigma)
    assert [each.column for each in bins] == list(schema.learned)
    for other in (
        first_cells(schema, rows=rows, sigma=sigma * (1 + 1e-12)),
        first_cells(schema, rows=8 * rows, sigma=8 * sigma),
    ):
        for one, two in zip(bins, other, strict=True):
            assert np.array_equal(one.starts, two.starts)  # type: ignore[arg-type]
            assert one.count == two.count


def test_more_records_per_noise_never_make_fewer_cells() -> None:
    counts = [how_many_cells(rows, 10.0) for rows in (1, 100, 400, 800, 2000, 1e6)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (FEWEST_CELLS, MOST_CELLS)
    column = Integer(name="x", min=0, max=10**6)
    values = [public_cells(column, most).values for most in range(FEWEST_CELLS, MOST_CELLS + 1)]
    assert values == sorted(values)


def test_which_columns_later_looks_refine() -> None:
    assert is_divisible(Integer(name="x", min=0, max=99))
    assert is_divisible(Datetime(name="x", min=date(2020, 1, 1), max=date(2020, 2, 1)))
    assert not is_divisible(Integer(name="x", min=0, max=FEWEST_CELLS - 1))
    assert not is_divisible(Category(name="x", values=tuple(map(str, range(500)))))


@settings(max_examples=60)
@given(column=COLUMNS, most=MOST, parts=st.sampled_from([2, 20, 100]), seed=st.integers(0, 99))
def test_divided_cells_nest_and_only_full_ones_are_divided(
    column: Numeric, most: int, parts: int, seed: int
) -> None:
    coarse = public_cells(column, most)
    counts = np.random.default_rng(seed).integers(0, 10, coarse.numbers).astype(np.float64)
    fine = divided(coarse, counts, least=5.0, parts=parts)
    assert fine.starts is not None
    assert coarse.starts is not None
    assert np.isin(coarse.starts, fine.starts).all()
    codes = np.array(edges_of(fine))
    usual = codes[(codes >= 0) & (codes <= column.steps)]
    parents = fine.parents(coarse)
    assert np.array_equal(parents[fine.of_codes(usual)], coarse.of_codes(usual))
    many = np.bincount(parents, minlength=coarse.numbers)
    assert (many[(counts <= 5) | (coarse.widths == 1)] == 1).all()
    assert (many[(counts > 5) & (coarse.widths > 1) & (coarse.widths <= 2 * parts)] > 1).all()
    assert many.max() <= 5 * parts  # steps of 1, 2 or 5: not many more parts than asked, with two cells each


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        (Number(name="x", min=0.0, max=10.0, decimals=3), "0.001"),
        (Integer(name="x", min=-7, max=100_000), "1"),
        (Number(name="x", min=-3.0, max=999.75, step=0.25), "0.25"),
    ],
    ids=["decimals", "whole", "quarters"],
)
def test_edges_are_at_numbers_as_they_are_written(column: Integer | Number, unit: str) -> None:
    """Each round number inside a divided cell has a cell of its own, and rounding errors do not move it."""
    coarse = Bins.at(column, np.zeros(1, dtype=np.int64))
    fine = divided(coarse, np.ones(1), least=0.0, parts=20)
    assert fine.starts is not None
    alone = fine.starts[: fine.numbers][fine.widths == 1]
    values = [Decimal(str(column.min)) + int(position) * Decimal(unit) for position in alone]
    assert len(values) >= 10
    step = min(b - a for a, b in pairwise(values))
    assert step.normalize().as_tuple().digits in ((1,), (2,), (5,))
    assert all(value % step == 0 for value in values[1:-1])


def test_zero_and_both_bounds_have_first_cells_of_their_own() -> None:
    for column in (
        Integer(name="x", min=-5_000, max=2_000_000),
        Number(name="x", min=-1e6, max=1e9),
        Number(name="x", min=0.0, max=99_999.99, decimals=2),
    ):
        bins = public_cells(column, 24)
        zero = int(positions_of(np.zeros(1), column)[0])
        for code in {0, zero, column.steps}:
            assert bins.widths[bins.of_codes(np.array([code]))[0]] == 1


@given(column=COLUMNS, most=MOST, data=st.data())
def test_cells_are_read_as_written_and_no_others(column: Numeric, most: int, data: st.DataObject) -> None:
    starts = public_cells(column, most).starts
    assert starts is not None
    assert np.array_equal(read_bins(column, starts).starts, starts)  # type: ignore[arg-type]
    k = data.draw(st.integers(0, len(starts) - 1))
    forged = [starts + 1, -starts, starts[1:], np.append(starts, starts[-1]), starts.astype(np.float64)]
    forged += [np.append(starts, starts[-1] + 1), np.insert(starts, k, starts[k])]
    if len(starts) > 1:
        forged.append(starts[::-1])
    for each in forged:
        with pytest.raises(ReleaseError):
            read_bins(column, each)
