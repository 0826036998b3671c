"""Bins: every position in exactly one, round numbers and values of their own where they should begin."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import datetimes, integers, numbers

from repsynth.data.positions import positions_of
from repsynth.data.records import MISSING, Records
from repsynth.errors import ReleaseError
from repsynth.schema import Boolean, Datetime, Integer, Number, Numeric
from repsynth.schema.columns import exactly
from repsynth.columns.cells import DIGITS, Bins, how_many_bins, own_positions, read_bins
from repsynth.columns.adaptive_histogram import Histograms
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
    edges = bins.edges()
    assert edges[0] == 0
    assert edges[-1] == 1
    assert np.all(np.diff(edges) > 0)


@settings(max_examples=50)
@given(column=NUMERIC, data=st.data())
def test_every_position_is_in_exactly_one_bin(column: Numeric, data: st.DataObject) -> None:
    some = data.draw(st.sets(st.integers(0, column.steps), max_size=5))
    many = data.draw(st.sampled_from([4, 16, 64]))
    starts = np.array(data.draw(st.lists(st.integers(-5, column.steps + 5), max_size=6)), dtype=np.int64)
    for bins in (Bins.by_magnitude(column), Bins.binned(column, many), Bins.at(column, starts)):
        check_every_position_is_in_one_bin(bins, some)


@given(column=NUMERIC)
def test_both_bounds_and_zero_have_bins_of_their_own(column: Numeric) -> None:
    own = {0, column.steps}
    if not isinstance(column, Datetime) and column.min < 0 < column.max:
        own.add(int(positions_of(np.zeros(1), column)[0]))
    starts = own_positions(column)
    assert own <= set(starts.tolist())
    for bins in (Bins.by_magnitude(column), Bins.binned(column, 16), Bins.at(column, starts)):
        for position in own:
            (k,) = bin_of(bins, [position])
            assert (bins.starts[k], bins.ends[k]) == (position, position + 1)  # type: ignore[index]


def round_numbers(column: Integer | Number) -> list[Decimal]:
    """What bins by magnitude begin at, the slow way: no finer than the unit, for ten powers of ten at most."""
    largest = max(abs(exactly(column.min)), abs(exactly(column.max)))
    top = largest.adjusted()
    low = max(Decimal(repr(column.unit)).adjusted(), top - 10)
    sizes = [Decimal(str(digit)).scaleb(power) for power in range(low, top + 1) for digit in DIGITS]
    every = [*sizes, *(-size for size in sizes)]
    return sorted(number for number in every if exactly(column.min) < number < exactly(column.max))


def nearest(number: Decimal, column: Integer | Number) -> set[int]:
    """The positions that a number may have: both where it lies in the middle between two."""
    place = (number - exactly(column.min)) / exactly(column.unit)
    if isinstance(column, Number) and not column.on_grid:
        return {int(place), round(place)}  # exact but for floats that end an interval
    return {int(place + Decimal("0.5")), -int(-place + Decimal("0.5"))}


@pytest.mark.parametrize("column", [c for c in COLUMNS if not isinstance(c, Datetime)], ids=named)
def test_bins_by_magnitude_begin_at_round_numbers_and_nowhere_else(column: Integer | Number) -> None:
    bins = Bins.by_magnitude(column)
    assert bins.starts is not None
    starts = set(bins.starts[: bins.numbers].tolist())
    wanted = [nearest(number, column) for number in round_numbers(column)]
    assert len(wanted) > 10
    for places in wanted:
        assert places & starts
    allowed = {place for places in wanted for place in places} | set(own_positions(column).tolist())
    assert starts <= allowed


def test_bins_by_magnitude_of_whole_numbers_by_hand() -> None:
    bins = Bins.by_magnitude(Integer(name="x", min=-40, max=250, special=("N",)))
    assert bins.starts is not None
    assert (bins.starts - 40).tolist() == [
        *(-40, -39, -30, -20, -15, -10, -7, -5, -3, -2, -1, 0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150),
        *(200, 250, 251),
    ]


@pytest.mark.parametrize("column", [c for c in COLUMNS if isinstance(c, Datetime)], ids=named)
def test_times_have_bins_of_equal_width(column: Datetime) -> None:
    bins = Bins.by_magnitude(column)
    assert bins.starts is not None
    width = bins.ends - bins.starts[: bins.numbers]
    assert width[0] == width[-1] == 1
    assert width[2:-2].max() - width[2:-2].min() <= 1
    assert len(width) == 64 + 2
    assert Bins.by_magnitude(column, (1,)).numbers == 10 + 2


@pytest.mark.parametrize("column", COLUMNS, ids=named)
def test_a_spike_is_one_position_between_wide_bins(column: Numeric) -> None:
    found = 0
    for bins in (Bins.by_magnitude(column), Bins.binned(column, 16), Bins.at(column, np.array([1, 2, 5, 6, 9]))):
        assert bins.starts is not None
        width = (bins.ends - bins.starts[: bins.numbers]).tolist()
        for k, is_spike in enumerate(bins.spikes.tolist()):
            beside = width[k - 1 : k] + width[k + 1 : k + 2] if k else width[1:2]
            assert is_spike == (width[k] == 1 and all(wide >= 4 for wide in beside))
        found += int(bins.spikes.sum())
    assert found > 0


def test_zeros_of_an_income_are_a_spike_among_equal_bins_and_none_by_magnitude() -> None:
    column = Integer(name="x", min=-20_000, max=2_000_000, special=("N",))
    equal, sized = Bins.binned(column, 16), Bins.by_magnitude(column)
    (zero,) = bin_of(equal, [20_000])
    assert equal.spikes[[0, zero, equal.numbers - 1]].tolist() == [True] * 3
    assert equal.spikes.sum() == 3
    (zero,) = bin_of(sized, [20_000])
    assert sized.spikes[[0, zero, sized.numbers - 1]].tolist() == [True, False, True]


@pytest.mark.parametrize("column", COLUMNS, ids=named)
def test_bins_from_a_file_are_those_that_were_written_and_no_others(column: Numeric) -> None:
    starts = Bins.by_magnitude(column).starts
    assert starts is not None
    assert np.array_equal(read_bins(column, starts).starts, starts)
    other = starts.copy()
    other[[2, 3]] = other[[3, 2]]
    damaged = [other, starts[1:], starts[:-1] if column.special else starts - 1, starts + 1]
    damaged += [starts.astype(np.float64), np.append(starts, starts[-1] + 5), starts[:, None], starts[:0]]
    for array in damaged:
        with pytest.raises(ReleaseError):
            read_bins(column, array)


@pytest.mark.parametrize(
    ("rows", "bins", "fine", "divided"),
    [
        (100, 4, 8, 8),
        (800, 8, 8, 8),
        (5_000, 16, 16, 16),
        (6_400, 16, 16, 16),
        (22_000, 32, 32, 16),
        (51_200, 64, 64, 32),
        (60_000, 64, 64, 64),
        (1e9, 64, 64, 64),
    ],
)
def test_there_are_as_many_bins_as_the_noise_can_fill(rows: float, bins: int, fine: int, divided: int) -> None:
    assert how_many_bins(rows, 100.0) == bins
    assert how_many_bins(rows, 100.0, 8.0) == fine
    assert how_many_bins(rows, 100.0, 12.0) == divided


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
    starts = Bins.binned(column, 8).starts
    assert starts is not None
    assert np.array_equal(read_bins(column, starts).starts, starts)
