"""Cells: every position is in exactly one, bounds and zero have their own, and wide columns begin them at round
numbers."""

from datetime import date, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import datetimes, integers, numbers

from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins, divided, how_many_cells, public_cells, read_bins
from repsynth.data.positions import positions_of
from repsynth.data.records import MISSING, Records
from repsynth.errors import ReleaseError
from repsynth.schema import Boolean, Datetime, Integer, Number, Numeric
from repsynth.scoring.rarity import make_rarity
from repsynth.scoring.threshold import choose_score_bins

SPECIAL = ("N", "-9")
COLUMNS: list[Numeric] = [
    Integer(name="x", min=-10, max=2000),
    Integer(name="x", min=-20_000, max=2_000_000, special=SPECIAL),
    Integer(name="x", min=0, max=10**12),
    Integer(name="x", min=17, max=10**6),
    Integer(name="x", min=-(10**6), max=-3),
    Integer(name="x", min=-5000, max=2_000_000, step=1000, special=SPECIAL),
    Integer(name="x", min=-5, max=10**5 + 2, step=7),
    Number(name="x", min=0.0, max=1e6),
    Number(name="x", min=-1e3, max=1e5, special=SPECIAL),
    Number(name="x", min=-2e-3, max=1e-3),
    Number(name="x", min=999.5, max=1e9),
    Number(name="x", min=-50.0, max=99_999.99, decimals=2, special=SPECIAL),
    Number(name="x", min=-50.0, max=1e5, step=0.25),
    Datetime(name="x", min=date(1900, 1, 1), max=date(2099, 12, 31), special=("never",)),
    Datetime(name="x", min=datetime(2020, 1, 1, 6), max=datetime(2020, 3, 1)),
]
NUMERIC = st.one_of(integers("x"), numbers("x"), datetimes("x"))


def named(column: Numeric) -> str:
    return f"{type(column).__name__} {column.min}..{column.max}"


def bin_of(bins: Bins, codes: list[int] | np.ndarray) -> list[int]:
    found: list[int] = bins.of(Records(rows=len(codes), codes={"x": np.array(codes, dtype=np.int64)})).tolist()
    return found


def check_every_position_is_in_one_bin(bins: Bins, positions: set[int]) -> None:
    """The first and last position of every bin, those beside them, and some more."""
    column, starts, ends = bins.column, bins.starts, bins.ends
    assert isinstance(column, Numeric)
    assert starts is not None
    assert bins.count == len(starts) + 1
    assert bins.numbers == len(starts) - len(column.special) == len(ends)
    near = {int(p) + d for p in (*starts[: bins.numbers], *ends) for d in (-1, 0, 1)} | positions
    for position in sorted(p for p in near if 0 <= p <= column.steps):
        inside = [k for k in range(bins.numbers) if starts[k] <= position < ends[k]]
        assert bin_of(bins, [position]) == inside
        assert len(inside) == 1
    special = list(range(column.steps + 1, column.positions))
    assert bin_of(bins, [*special, MISSING]) == list(range(bins.numbers, bins.count))
    assert bins.widths.sum() == column.steps + 1


@settings(max_examples=50)
@given(column=NUMERIC, data=st.data())
def test_every_position_is_in_exactly_one_cell(column: Numeric, data: st.DataObject) -> None:
    some = data.draw(st.sets(st.integers(0, column.steps), max_size=5))
    many = data.draw(st.sampled_from([8, 16, 48]))
    starts = np.array(data.draw(st.lists(st.integers(-5, column.steps + 5), max_size=6)), dtype=np.int64)
    first = public_cells(column, many)
    full = np.where(np.arange(first.numbers) % 2, 9.0, 0.0)
    for bins in (first, divided(first, full, least=5.0, parts=20), Bins.at(column, starts)):
        check_every_position_is_in_one_bin(bins, some)


@settings(max_examples=50)
@given(column=NUMERIC, many=st.sampled_from([8, 16, 48]), parts=st.sampled_from([4, 20, 100]))
def test_divided_cells_are_parts_of_the_ones_before(column: Numeric, many: int, parts: int) -> None:
    """Only those with records are divided."""
    coarse = public_cells(column, many)
    full = np.where(np.arange(coarse.numbers) % 2, 9.0, 0.0)
    fine = divided(coarse, full, least=5.0, parts=parts)
    assert fine.starts is not None
    assert coarse.starts is not None
    assert np.isin(coarse.starts, fine.starts).all()
    parents = fine.parents(coarse)
    assert np.array_equal(np.bincount(parents, fine.widths), coarse.widths)
    assert np.all(np.bincount(parents)[full == 0] == 1)


@given(column=NUMERIC, many=st.sampled_from([8, 16, 48]))
def test_both_bounds_and_zero_have_cells_of_their_own(column: Numeric, many: int) -> None:
    own = {0, column.steps}
    if not isinstance(column, Datetime) and column.min < 0 < column.max:
        own.add(int(positions_of(np.zeros(1), column)[0]))
    bins = public_cells(column, many)
    for position in own:
        (k,) = bin_of(bins, [position])
        assert (bins.starts[k], bins.ends[k]) == (position, position + 1)  # type: ignore[index]


@pytest.mark.parametrize("column", COLUMNS, ids=named)
def test_bins_from_a_file_are_those_that_were_written_and_no_others(column: Numeric) -> None:
    starts = public_cells(column, 48).starts
    assert starts is not None
    assert np.array_equal(read_bins(column, starts).starts, starts)
    other = starts.copy()
    other[[2, 3]] = other[[3, 2]]
    damaged = [other, starts[1:], starts[:-1] if column.special else starts - 1, starts + 1]
    damaged += [starts.astype(np.float64), np.append(starts, starts[-1] + 5), starts[:, None], starts[:0]]
    for array in damaged:
        with pytest.raises(ReleaseError):
            read_bins(column, array)


@pytest.mark.parametrize(("rows", "cells"), [(100, 8), (5_000, 12), (8_000, 20), (1e9, 48)])
def test_there_are_as_many_cells_as_the_noise_can_fill(rows: float, cells: int) -> None:
    assert how_many_cells(rows, 100.0) == cells


def test_the_same_noise_rounded_otherwise_makes_the_same_cells() -> None:
    assert len({how_many_cells(7_200.0, 100.0 * (1 + off)) for off in (-1e-12, 0.0, 1e-12)}) == 1


@pytest.mark.parametrize("counts", [[900, 100, 0], [1000, 0, 0]])
def test_the_edges_of_scores_rise_even_where_there_are_few_different_ones(counts: list[int]) -> None:
    """One column of two values has two scores: quantiles coincide."""
    histograms = Histograms((Bins.discrete(Boolean(name="smoker")),), np.array(counts), 10.0, 1000.0)
    bins = choose_score_bins(make_rarity(histograms, None), histograms, sigma=10.0)
    assert not bins.readable
    assert np.all(np.diff(bins.edges) > 0)


def test_bins_of_the_widest_integers_are_read_back() -> None:
    """The codes of special values lie behind those of all numbers."""
    column = Integer(name="n", min=-(2**52), max=2**52, special=("n/a", "?"))
    starts = public_cells(column, 8).starts
    assert starts is not None
    assert np.array_equal(read_bins(column, starts).starts, starts)
