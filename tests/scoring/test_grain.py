"""How round numbers are: the cells as a slow reader would fill them, and numbers rounded as often as those say."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import integers, numbers

from repsynth import synthesize
from repsynth.data.positions import positions_of, values_at
from repsynth.data.records import MISSING, Records
from repsynth.errors import ReleaseError
from repsynth.schema import Boolean, Integer, Number, Schema
from repsynth.schema.columns import exactly
from repsynth.scoring.bins import Bins
from repsynth.scoring.grain import Grains, Roundness, read_grains
from repsynth.scoring.histograms import intervals_of

# --- cells ---


def cells_of(grains: Grains, codes: list[int] | np.ndarray) -> list[int]:
    found: list[int] = grains.of(Records(rows=len(codes), codes={"x": np.array(codes, dtype=np.int64)})).tolist()
    return found


def slow_cell(value: Decimal, powers: tuple[int, ...]) -> int:
    """Sizes one behind the other, each with a cell for every power up to its own; zeros in the last one."""
    first, last = powers[0], powers[-1]
    if value == 0:
        return sum(range(1, len(powers) + 1))
    size = min(max(value.adjusted(), first), last)
    divides = [power for power in range(first + 1, size + 1) if value % Decimal(10) ** power == 0]
    return sum(range(1, size - first + 1)) + (max(divides) - first if divides else 0)


def test_cells_by_hand() -> None:
    """7 | 10, 12 | 100, 110, 111 | 1000 1100 1110 1111, and zero."""
    pay = Grains.of_column(Integer(name="x", min=0, max=9999))
    numbers = [7, 12, 10, 111, 110, 100, 1111, 1110, 1100, 1000, 0]
    assert cells_of(pay, numbers) == list(range(11))
    assert [slow_cell(Decimal(number), (0, 1, 2, 3)) for number in numbers] == list(range(11))
    assert pay.count == 11


SEEDS = st.integers(0, 2**32)
_NEARLY = Decimal("1.000000002")


@st.composite
def grids(draw: st.DrawFn) -> Integer | Number:
    """Columns on a grid that holds the multiples of powers of ten from its unit on."""
    unit = Decimal(
        draw(st.sampled_from(["1", "1", "2", "5", "10", "500", "1000", "0.25", "0.1", "0.01", "0.000001"]))
    )
    low, steps = draw(st.sampled_from([0, 1, -30, -4000, -(10**9), 10**6])), draw(st.integers(1, 10**11))
    if unit >= 1 and draw(st.booleans()):
        return Integer(
            name="x", min=int(low * unit), max=int((low + steps) * unit), step=int(unit), special=("N",)
        )
    step = {"decimals": -unit.adjusted()} if unit == Decimal(10) ** unit.adjusted() <= 1 else {"step": float(unit)}
    return Number(name="x", min=float(low * unit), max=float((low + steps) * unit), special=("N",), **step)  # type: ignore[arg-type]


def some_positions(column: Integer | Number, seed: int) -> list[int]:
    """Of numbers of every size, many of which are round: chance alone finds none."""
    generator, low, unit = np.random.default_rng(seed), exactly(column.min), exactly(column.unit)
    found = []
    for _ in range(20):
        power = int(generator.integers(unit.adjusted(), 16))
        value = int(generator.integers(-999, 1000)) * Decimal(10) ** power
        place = (value - low) / unit
        found += [int(place)] if 0 <= place <= column.steps and place == int(place) else []
    return [*found, 0, column.steps, *generator.integers(0, column.steps, 5).tolist()]


@given(column=grids(), seed=SEEDS)
def test_the_cell_of_a_number_on_a_grid(column: Integer | Number, seed: int) -> None:
    grains, low, unit = Grains.of_column(column), exactly(column.min), exactly(column.unit)
    positions = some_positions(column, seed)
    values = [low + position * unit for position in positions]
    # A number that is a billionth below a power of ten may be taken for one of its size.
    positions = [p for p, v in zip(positions, values, strict=True) if (v * _NEARLY).adjusted() == v.adjusted()]
    values = [low + position * unit for position in positions]
    assert cells_of(grains, positions) == [slow_cell(value, grains.powers) for value in values]


PLAIN = [
    Number(name="x", min=0.0, max=1e6),
    Number(name="x", min=-1e3, max=1e5),
    Number(name="x", min=-5e8, max=1e9),
    Number(name="x", min=0.0, max=2e-3),
    Number(name="x", min=-3.5, max=8.25, special=("-1", "N")),
    Number(name="x", min=-1e6, max=-20.0),
]


@given(column=st.sampled_from(PLAIN), data=st.data())
def test_the_cell_of_a_plain_number_of_few_digits(column: Number, data: st.DataObject) -> None:
    """What is no multiple of the second power, such as 12.34567 among millions, has the first cell of its size."""
    grains = Grains.of_column(column)
    step = Decimal(10) ** data.draw(st.integers(grains.powers[0] - 1, grains.powers[-1]))
    digits = data.draw(st.integers(-99_999, 99_999).filter(lambda n: column.min <= float(n * step) <= column.max))
    value = digits * step
    (position,) = positions_of(np.array([float(value)]), column).tolist()
    assert cells_of(grains, [position]) == [slow_cell(value, grains.powers)]


@pytest.mark.parametrize("most", [2e3, 1e6, 3e7, 1e9])
def test_powers_of_ten_have_their_own_size_under_any_bounds(most: float) -> None:
    """However wide the interval that such a number falls in, and wherever in it it lies."""
    for column in (Number(name="x", min=0.0, max=most), Number(name="x", min=-most, max=most / 3)):
        grains = Grains.of_column(column)
        values = [Decimal(10) ** power for power in grains.powers[2:] if 10.0**power <= column.max]
        assert len(values) > 5
        positions = positions_of(np.array([float(value) for value in values]), column)
        assert cells_of(grains, positions) == [slow_cell(value, grains.powers) for value in values]


def test_plain_numbers_are_multiples_by_chance_only_rarely() -> None:
    """Of numbers from a continuum, one in a hundred is taken for a multiple of the second power at most."""
    for column in PLAIN:
        grains = Grains.of_column(column)
        drawn = np.random.default_rng(1).integers(0, column.steps, 20_000)
        counts = np.bincount(cells_of(grains, drawn), minlength=grains.count)
        table = Roundness(grains, counts, 0.1).table
        assert table[:, 1:].sum() <= 0.01 * 20_000
        assert table[:, 0].sum() >= 0.98 * 20_000


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="x", min=-100, max=10_000, special=("N", "-9")),
        Number(name="x", min=-100.0, max=10_000.0, special=("N", "-9")),
        Number(name="x", min=-100.0, max=10_000.0, decimals=2, special=("N", "-9")),
    ],
    ids=repr,
)
def test_zeros_special_values_and_the_missing_are_in_the_last_cell(column: Integer | Number) -> None:
    grains = Grains.of_column(column)
    (zero,) = positions_of(np.zeros(1), column).tolist()
    last = grains.count - 1
    assert cells_of(grains, [zero, column.steps + 1, column.steps + 2, MISSING]) == [last] * 4
    assert last not in cells_of(grains, [zero - 1 - zero // 2, 0, column.steps])


def test_powers_from_a_file() -> None:
    column = Integer(name="x", min=0, max=10**6)
    assert read_grains(column, np.arange(7)).powers == tuple(range(7))
    for powers in ([], [0, 2], [1, 0], [0, 0], [301], [0, 1, 2], list(range(65)), [[0, 1]], [250, 251]):
        with pytest.raises(ReleaseError):
            read_grains(column, np.array(powers, dtype=np.int64))
    with pytest.raises(ReleaseError):
        read_grains(column, np.array([0.0, 1.0]))


# --- spread: how many numbers of each bin are how round ---

PAY = Integer(name="x", min=0, max=99_999)


def rounded_pay(rows: int, seed: int = 0) -> np.ndarray:
    """60 % multiples of 1,000, 10 % of 100, the others as they are."""
    generator = np.random.default_rng(seed)
    amounts = np.clip(generator.lognormal(9.5, 0.8, rows), 500, 99_000)
    unit = generator.choice([1000, 100, 1], rows, p=[0.6, 0.1, 0.3])
    return (np.rint(amounts / unit) * unit).astype(np.int64)


def roundness_of(codes: np.ndarray, column: Integer | Number, sigma: float = 0.1) -> Roundness:
    grains = Grains.of_column(column)
    return Roundness(grains, np.bincount(cells_of(grains, codes), minlength=grains.count), sigma)


def test_a_round_number_that_stands_alone_is_as_round_as_it_is_without_a_grid() -> None:
    """Its interval of the fine grid begins up to a unit below it."""
    column = Number(name="x", min=0.0, max=1e6)
    numbers = np.arange(1, 100) * 1000.0
    low = positions_of(numbers, column) * column.unit
    parts, _ = roundness_of(np.zeros(1, dtype=np.int64), column).spread(low, low + column.unit, np.ones(99))
    powers = np.array(Grains.of_column(column).powers)[parts.argmax(axis=1)]
    assert powers.tolist() == [4 if number % 10_000 == 0 else 3 for number in numbers]


def true_parts(codes: np.ndarray, bins: Bins, powers: int) -> np.ndarray:
    """(bins, powers): how many numbers of each bin are how round."""
    round_ = sum((codes % 10**k == 0).astype(int) for k in range(1, powers))
    records = Records(rows=len(codes), codes={"x": codes})
    return np.bincount(bins.of(records) * powers + round_, minlength=bins.numbers * powers)[
        : bins.numbers * powers
    ].reshape(bins.numbers, powers)


def check_masses(column: Integer | Number, bins: Bins, seed: int) -> None:
    """Whatever the cells say."""
    grains, generator = Grains.of_column(column), np.random.default_rng(seed)
    counts = (generator.lognormal(4, 2, grains.count) - 20).astype(np.int64)
    masses = generator.lognormal(4, 2, bins.numbers) - 20
    parts, _ = Roundness(grains, counts, 3.0).spread(*intervals_of(bins), masses)
    assert parts.shape == (bins.numbers, len(grains.powers))
    assert np.all(parts >= 0)
    assert parts.sum(axis=1) == pytest.approx(np.maximum(masses, 0.0), rel=1e-9, abs=1e-9)


@settings(max_examples=80)
@given(column=st.one_of(grids(), st.sampled_from(PLAIN), integers("x"), numbers("x")), seed=SEEDS)
def test_the_masses_of_bins_come_out(column: Integer | Number, seed: int) -> None:
    check_masses(column, Bins.binned(column, 16), seed)
    check_masses(column, Bins.by_magnitude(column), seed)
    check_masses(column, Bins.at(column, np.append(np.arange(60), column.steps)), seed)


def test_bins_get_about_as_many_round_numbers_as_they_have() -> None:
    codes = rounded_pay(20_000)
    bins = Bins.by_magnitude(PAY)
    powers = len(Grains.of_column(PAY).powers)
    true = true_parts(codes, bins, powers)
    parts, numbers = roundness_of(codes, PAY).spread(*intervals_of(bins), true.sum(axis=1).astype(float))
    assert np.abs(parts - true).sum() / 2 <= 0.03 * 20_000
    # What the cells say comes out, too, over all bins together.
    assert parts.sum(axis=0) == pytest.approx(true.sum(axis=0), rel=0.01)
    # By the side: how many different numbers of each kind a bin has, such as that from 7,000 to 10,000.
    (k,) = np.flatnonzero(intervals_of(bins)[0] == 7000)
    assert numbers[k].tolist() == [2700, 270, 27, 3, 0]


def test_a_number_that_stands_alone_takes_its_mass_out_of_the_cells_first() -> None:
    """5,000 records at 20,000 and none else round: nothing of that is spread over the other round numbers."""
    generator = np.random.default_rng(2)
    codes = np.append(generator.integers(10_001, 90_000, 5_000), np.full(5_000, 20_000))
    codes = codes[(codes % 10 > 0) | (codes == 20_000)]
    bins = Bins.at(PAY, np.array([10_000, 20_000, 20_001, 90_001]))
    true = true_parts(codes, bins, 5)
    parts, _ = roundness_of(codes, PAY).spread(*intervals_of(bins), true.sum(axis=1).astype(float))
    assert parts == pytest.approx(true, abs=5)


def test_with_many_values_that_stand_alone_the_cells_come_out() -> None:
    """Every multiple of 1,000 has a bin of its own: what is left is as round as in the cells, not more."""
    codes = rounded_pay(20_000)
    thousands = np.arange(1000, 99_000, 1000)
    bins = Bins.at(PAY, np.concatenate([thousands, thousands + 1]))
    true = true_parts(codes, bins, 5)
    parts, _ = roundness_of(codes, PAY).spread(*intervals_of(bins), true.sum(axis=1).astype(float))
    assert parts.sum(axis=0) == pytest.approx(true.sum(axis=0), rel=0.03, abs=20)


def test_what_noise_may_have_made_is_left_out() -> None:
    grains = Grains.of_column(Integer(name="x", min=0, max=99))
    assert Roundness(grains, np.array([7, 5, 90, -40]), 3.0).table.tolist() == [[7.0, 0.0], [0.0, 90.0]]


# --- spikes and rounding ---


def spikes_of(codes: np.ndarray, column: Integer | Number, bins: Bins, least: float) -> list[float]:
    masses = np.bincount(bins.of(Records(rows=len(codes), codes={"x": codes})), minlength=bins.count)
    found = roundness_of(codes, column).spikes(*intervals_of(bins), masses[: bins.numbers].astype(float), least)
    return sorted(found.tolist())


def test_the_heaps_of_a_heaped_column_are_spikes() -> None:
    """Without noise, and each with less than a bin has: just the frequent multiples of 1,000, and all of them."""
    codes = rounded_pay(20_000)
    bins = Bins.at(PAY, np.quantile(codes, np.arange(1, 32) / 32).astype(np.int64))
    found = spikes_of(codes, PAY, bins, least=100.0)
    assert found
    assert all(number % 1000 == 0 for number in found)
    value, count = np.unique(codes, return_counts=True)
    large = value[(count >= 250) & (value % 1000 == 0)]
    assert len(large) > 10
    assert set(large.tolist()) <= set(found)
    small = value[count <= 60]
    assert not set(small.tolist()) & set(found)


def test_a_column_that_nobody_rounded_has_no_spikes() -> None:
    codes = np.random.default_rng(3).integers(1, 99_999, 20_000)
    bins = Bins.at(PAY, np.quantile(codes, np.arange(1, 32) / 32).astype(np.int64))
    assert spikes_of(codes, PAY, bins, least=20.0) == []


def test_negative_amounts_and_decimals_have_spikes_too() -> None:
    column = Number(name="x", min=-100.0, max=100.0, decimals=2)
    generator = np.random.default_rng(4)
    values = np.where(
        generator.random(9000) < 0.5, generator.integers(-9, 10, 9000) * 10.0, generator.normal(0, 20, 9000)
    )
    codes = positions_of(values, column)
    bins = Bins.at(column, np.arange(0, 20_000, 300))
    found = spikes_of(codes, column, bins, least=100.0)
    assert {-90.0, -40.0, -20.0, 30.0, 90.0} <= set(found)
    assert all(number % 10 == 0 for number in found)


@settings(max_examples=60)
@given(column=st.one_of(integers("x"), numbers("x")), seed=SEEDS)
def test_a_rounded_number_stays_in_its_interval(column: Integer | Number, seed: int) -> None:
    grains, generator = Grains.of_column(column), np.random.default_rng(seed)
    bins = Bins.binned(column, 16)
    low, high = intervals_of(bins)
    which = generator.integers(0, bins.numbers, 40)
    k = generator.integers(0, len(grains.powers), 40)
    low, high = low[which], high[which]
    values = np.asarray(values_at(bins.starts[which], column), dtype=np.float64)  # type: ignore[index]
    roundness = Roundness(grains, np.zeros(grains.count, dtype=np.int64), 1.0)
    found = roundness.rounded(values, low, high, k, generator)
    step = 10.0 ** np.array(grains.powers, dtype=np.float64)[k]
    slack = 2e-9 * step + 1e-12 * np.abs(low)
    changed = found != values
    assert np.all(~changed | ((found >= low - slack) & (found < high + slack)))
    assert np.all(~(changed & (k == 0)) | (np.rint(values / step) % 10 == 0))
    units = found / step
    assert np.all(~changed | (np.abs(units - np.rint(units)) <= 1e-9 + 1e-15 * np.abs(units)))


def test_every_multiple_in_the_interval_is_drawn_and_only_those() -> None:
    roundness = roundness_of(np.zeros(1, dtype=np.int64), PAY)
    low, high, many = np.full(500, 2500.0), np.full(500, 6000.0), np.full(500, 3)
    found = roundness.rounded(np.full(500, 2777.0), low, high, many, np.random.default_rng(0))
    assert set(found.tolist()) == {3000.0, 4000.0, 5000.0}
    found = roundness.rounded(
        np.full(500, 3.0), np.full(500, 1.0), np.full(500, 9.0), many, np.random.default_rng(0)
    )
    assert set(found.tolist()) == {3.0}


@pytest.mark.parametrize("low", [1e12, 1e15, -1e15 - 10])
def test_numbers_far_from_zero_between_narrow_bounds_can_be_drawn(low: float) -> None:
    """There are more multiples of a power before them than whole numbers can count."""
    column = Number(name="at", min=low, max=low + 10)
    generator = np.random.default_rng(0)
    table = pa.table({"at": low + 10 * generator.random(300), "up": generator.random(300) < 0.5})
    schema = Schema(one_row_per_person=True, columns=(column, Boolean(name="up")), label="up")
    for model in ("mst", "naive-bayes"):
        made = synthesize(table, schema, epsilon=10.0, delta=1e-6, model=model).sample(50)["at"].to_numpy()
        assert low <= made.min() <= made.max() <= low + 10
