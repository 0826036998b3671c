"""What noisy histograms tell: ends and spikes that are none are levelled out, and draws stay in their bins."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import datetimes, integers, numbers

from repsynth.data.positions import usual
from repsynth.data.records import MISSING, Records
from repsynth.schema import Boolean, Datetime, Integer, Numeric
from repsynth.columns.cells import Bins
from repsynth.scoring.grain import Grains, Roundness
from repsynth.columns.adaptive_histogram import ColumnHistograms, Histograms, within_noise

SEEDS = st.integers(0, 2**32)
AGE = Integer(name="x", min=0, max=999, special=("N", "-9"), missing=True)
BINS = Bins.at(AGE, np.array([1, 100, 200, 300, 400, 500, 501, 600, 700, 999]))
"""Both bounds and 500, the first, eleventh and seventh bin, stand alone. Behind them are two special ones."""


def histograms_of(
    counts: list[float], *, sigma: float = 10.0, located: bool = True, rows: float = 1e4
) -> Histograms:
    """With these noisy counts in `BINS`."""
    assert len(counts) == BINS.count
    places = frozenset({0}) if located else frozenset[int]()
    return Histograms((BINS,), np.array(counts, dtype=np.int64), sigma, rows, located=places)


# --- noise within which ends and spikes are none ---


@settings(max_examples=200)
@given(
    empty=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    full=st.lists(st.integers(50, 5000), min_size=1, max_size=8),
    seed=SEEDS,
)
def test_ends_without_records_are_cut_off(empty: tuple[int, int], full: list[int], seed: int) -> None:
    """Noise of less than a standard deviation in the ends: nothing of them is left, and nothing else is lost."""
    generator = np.random.default_rng(seed)
    ends = [generator.uniform(-1, 0.9, n) for n in empty]
    counts = np.concatenate([ends[0], full, ends[1]])
    assert within_noise(counts, 1.0, 4.0) == slice(empty[0], empty[0] + len(full))


def test_pure_noise_is_empty_and_small_counts_are_not_if_there_are_many() -> None:
    generator = np.random.default_rng(0)
    found = [within_noise(generator.normal(0, 1, 40), 1.0, 4.0) for _ in range(500)]
    assert sum(part is not None for part in found) <= 5
    assert within_noise(np.append(np.zeros(9), np.full(16, 1.5)), 1.0, 4.0) == slice(9, 25)
    assert within_noise(np.append(np.zeros(9), np.full(4, 1.5)), 1.0, 4.0) is None


def test_a_hole_between_two_hills_stays() -> None:
    counts = np.array([0.0, 90.0, 0.5, -0.5, 0.0, 80.0, 0.0])
    assert within_noise(counts, 1.0, 4.0) == slice(1, 6)


def test_two_hills_with_more_missing_between_them_are_noise() -> None:
    counts = np.array([3.0, 3.0, 2.0, -8.0, -3.0, 0.0, -11.0, -8.0, 0.0, 3.0, 3.0])
    assert within_noise(counts, 1.0, 4.0) is None
    assert within_noise(np.maximum(counts, -1.0), 1.0, 4.0) == slice(0, 11)


def test_ends_that_noise_may_have_made_are_empty() -> None:
    """A tail of 21 at a noise of 10 is none where a look has placed the bins, and stays where they are equal."""
    counts = [3, 12, 21, -8, 5000, 0, 5, 800, 22, 4, -20, 0, 0, 0]
    clean = histograms_of(counts).clean(0)
    assert clean[[0, 1, 2, 3, 8, 9, 10]].tolist() == [0.0] * 7
    assert clean[[4, 7]].tolist() == [5000.0, pytest.approx(805 * 99 / 100)]
    near = histograms_of(counts, located=False).clean(0)
    assert near[[2, 3, 8]].tolist() == [21.0, -8.0, 22.0]
    assert near[[9, 10]].tolist() == [0.0, 0.0]


def test_a_value_of_its_own_is_a_spike_where_it_stands_out() -> None:
    """At four times the noise above what its neighbours have per position, and not before."""
    for spike, kept in ((42, True), (39, False), (-30, False)):
        counts = [0, *[100] * 5, spike, *[100] * 3, 0, 0, 0, 0]
        clean = histograms_of(counts).clean(0)
        assert (clean[6] == spike) == kept
        assert clean.sum() == pytest.approx(sum(counts))
        if not kept:  # shared out among it and the 99 positions behind it
            assert clean[6] == pytest.approx((spike + 100) / 100)
    dense = [0, *[5000] * 5, 80, *[5000] * 3, 0, 0, 0, 0]
    assert histograms_of(dense).clean(0)[6] == pytest.approx(50.8), "neighbours have 50 at a position"
    assert histograms_of([*dense[:6], 95, *dense[7:]]).clean(0)[6] == 95


def test_values_at_the_bounds_stay_where_they_stand_out_and_go_with_the_ends_where_not() -> None:
    counts = [300, 0, 5, 800, 900, 700, 0, 3, -4, 2, 250, 0, 0, 0]
    assert histograms_of(counts).clean(0)[[0, 1, 2, 7, 8, 9, 10]].tolist() == [300.0, 0, 0, 0, 0, 0, 250.0]
    weak = [30, *counts[1:10], 30, 0, 0, 0]
    assert histograms_of(weak).clean(0)[[0, 1, 9, 10]].tolist() == [0.0] * 4
    # Beside bins with records the bounds are drawn with those, though they add nothing to them.
    full = [30, *[900] * 9, 35, 0, 0, 0]
    clean = histograms_of(full).clean(0)
    assert clean[[0, 1]].tolist() == [pytest.approx(900 / 100), pytest.approx(900 * 99 / 100)]
    assert clean[[9, 10]].tolist() == [pytest.approx(900 * 299 / 300), pytest.approx(900 / 300)]


def test_a_special_value_stands_above_twice_its_noise_or_is_none() -> None:
    for special, kept in ((21, 21.0), (19, 0.0), (-50, 0.0)):
        clean = histograms_of([0, *[500] * 9, 0, special, 4000, 77]).clean(0)
        assert clean[11:].tolist() == [kept, 4000.0]


def test_cleaning_leaves_the_release_as_it_is() -> None:
    histograms = histograms_of([3, 12, 21, -8, 5000, 0, 5, 800, 22, 4, -20, 7, 9, 4])
    before = histograms.counts.copy()
    one, two = histograms.clean(0), histograms.clean(0)
    assert np.array_equal(one, two)
    assert np.array_equal(histograms.counts, before)


def test_nothing_but_noise_is_spread_evenly() -> None:
    histograms = histograms_of([3, -12, 11, -8, 5, 0, 5, 8, -2, 4, -20, 7, 9, 4])
    assert histograms.probabilities[0].sum() == pytest.approx(1)
    assert np.all(histograms.probabilities[0] >= 0)


# --- probabilities and draws ---


@settings(max_examples=100)
@given(seed=SEEDS, located=st.booleans(), sigma=st.sampled_from([0.1, 10.0, 300.0]))
def test_probabilities_are_proper_and_what_is_empty_stays_so(seed: int, located: bool, sigma: float) -> None:
    generator = np.random.default_rng(seed)
    exact = generator.choice([0, 0, 5, 400, 3000], BINS.count)
    counts = (exact + generator.normal(0, sigma, BINS.count)).astype(np.int64)
    histograms = histograms_of(counts.tolist(), sigma=sigma, located=located)
    (probabilities,) = histograms.probabilities
    assert np.all(probabilities >= 0)
    assert probabilities.sum() == pytest.approx(1)
    trusted = histograms.trusted(0)
    assert np.all(trusted >= 0)
    assert trusted.sum() == pytest.approx(1)
    clean = histograms.clean(0)
    if located and np.any(clean > 0):
        assert np.all(probabilities[clean == 0] == 0)


def test_bins_without_noise_have_their_fractions() -> None:
    counts = [40, 100, 0, 700, 100, 0, 60, 0, 500, 0, 20, 300, 180, 0]
    (probabilities,) = histograms_of(counts, sigma=1e-3, rows=2000.0).probabilities
    assert probabilities == pytest.approx(np.array(counts[:-1]) / 2000, abs=1e-6)


@settings(max_examples=60)
@given(column=st.one_of(integers("x"), numbers("x"), datetimes("x")), seed=SEEDS, rounded=st.booleans())
def test_a_drawn_position_is_in_its_bin_and_no_special_value(column: Numeric, seed: int, rounded: bool) -> None:
    """Whatever the counts: where a value that is no spike has joined the bin beside it, in one of the two."""
    generator = np.random.default_rng(seed)
    bins = Bins.binned(column, int(generator.choice([4, 16])))
    counts = generator.choice([0, 3, 500, 2000], bins.count)
    roundness = {}
    if rounded and not isinstance(column, Datetime):
        grains = Grains.of_column(column)
        roundness = {0: Roundness(grains, generator.choice([0, 5, 900], grains.count), 2.0)}
    histograms = Histograms((bins,), counts, 2.0, float(counts.sum() + 1), roundness)
    cell = generator.integers(0, bins.values, 200)
    inside = np.append(generator.random(198), [0.0, 1.0])
    drawn = histograms.positions(0, cell, inside, generator)

    special = cell >= bins.numbers
    assert np.array_equal(drawn[special], column.steps + 1 + cell[special] - bins.numbers)
    cell, drawn = cell[~special], drawn[~special]
    assert np.all((drawn >= 0) & (drawn <= column.steps))
    assert np.array_equal(usual(drawn, column), drawn)
    assert bins.starts is not None
    start, end, spike = bins.starts[cell], bins.ends[cell], np.append(bins.spikes, False)
    # Next to a value of its own, or at one, a bin may reach over its neighbours; and special values are avoided.
    reach = spike[cell - 1] | spike[cell] | spike[cell + 1]
    start = np.where(reach, bins.starts[np.maximum(cell - 1, 0)], start) - len(column.special)
    end = np.where(reach, bins.ends[np.minimum(cell + 1, bins.numbers - 1)], end) + len(column.special)
    assert np.all((drawn >= start) & (drawn < end))


def test_positions_that_would_read_as_special_values_are_left_out() -> None:
    column = Integer(name="x", min=0, max=20, special=("7", "12", "13"))
    bins = Bins.at(column, np.array([5, 15]))
    histograms = Histograms((bins,), np.array([10, 500, 10, 0, 0, 0, 0]), 1.0, 520.0)
    generator = np.random.default_rng(0)
    drawn = histograms.positions(0, np.ones(2000, dtype=np.int64), generator.random(2000), generator)
    assert set(drawn.tolist()) == {*range(5, 15)} - {7, 12, 13}


def test_a_spike_is_drawn_at_its_value_and_what_is_none_over_the_bin_beside_it() -> None:
    generator = np.random.default_rng(1)
    cell, inside = np.full(1000, 6), generator.random(1000)
    spike = histograms_of([0, *[100] * 5, 900, *[100] * 3, 0, 0, 0, 0]).positions(0, cell, inside, generator)
    assert set(spike.tolist()) == {500}
    none = histograms_of([0, *[100] * 5, 20, *[100] * 3, 0, 0, 0, 0]).positions(0, cell, inside, generator)
    assert none.min() <= 502
    assert none.max() == 599
    last = histograms_of([0, *[100] * 5, 20, *[100] * 3, 0, 0, 0, 0]).positions(0, cell + 4, inside, generator)
    assert last.min() <= 702
    assert last.max() == 999


def drawn_from_one_bin() -> np.ndarray:
    """Numbers of which 40 % should be hundreds, 25 % tens and no hundreds, 35 % neither."""
    column = Integer(name="x", min=0, max=9999)
    bins = Bins.at(column, np.array([1000]))
    grains = Grains.of_column(column)
    counts = np.zeros(grains.count, dtype=np.int64)
    counts[6:10] = [3500, 2500, 4000, 0]  # from 1,000 to 9,999: by the largest power of ten that divides them
    histograms = Histograms((bins,), np.array([0, 10_000, 0]), 1.0, 1e4, {0: Roundness(grains, counts, 2.0)})
    level = (np.arange(20_000) + 0.5) / 20_000
    return histograms.quantile(0, np.array([0.0, 1.0]), level, np.random.default_rng(2))


def test_numbers_are_rounded_in_their_bin() -> None:
    """The whole stays where it was."""
    drawn = drawn_from_one_bin()
    assert drawn.min() >= 1000
    assert drawn.mean() == pytest.approx(5500, abs=60)
    assert 0.385 <= np.mean(drawn % 100 == 0) <= 0.415
    assert 0.635 <= np.mean(drawn % 10 == 0) <= 0.70


def test_numbers_are_rounded_as_often_as_the_column_s_are() -> None:
    drawn = drawn_from_one_bin()
    assert np.mean(drawn % 100 == 0) == pytest.approx(0.40, abs=0.01)
    assert np.mean(drawn % 10 == 0) == pytest.approx(0.65, abs=0.01)


def test_no_digit_is_preferred() -> None:
    drawn = drawn_from_one_bin()
    digits = np.bincount(drawn[drawn % 10 > 0] % 10, minlength=10)[1:]
    assert digits.max() <= 1.3 * digits.mean()


def drawn_and_real(missing: int, *, located: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """How many records are in each bin, without noise: an even stretch, a spike, a special value, some missing."""
    generator = np.random.default_rng(3)
    codes = np.concatenate([generator.integers(100, 700, 5000), np.full(2000, 500), np.full(1500, 1001)])
    codes = np.append(codes, np.full(missing, MISSING))
    real = Records(rows=len(codes), codes={"x": codes, "y": np.arange(len(codes)) % 2})
    kernel = ColumnHistograms((BINS, Bins.discrete(Boolean(name="y"))))
    counts = kernel.total(real)
    places = frozenset({0}) if located else frozenset[int]()
    histograms = Histograms(kernel.bins, counts, 1e-3, float(len(codes)), located=places)  # type: ignore[arg-type]
    return kernel.total(histograms.draw(len(codes), generator)), counts


def test_a_drawn_table_has_the_fractions_of_a_table_without_noise() -> None:
    drawn, real = drawn_and_real(missing=0)
    assert np.abs(drawn - real).max() <= 1
    drawn, real = drawn_and_real(missing=1500)
    assert drawn[13] == real[13] == 1500


def test_the_fractions_of_numbers_do_not_depend_on_how_many_are_missing() -> None:
    """With so many missing at random, the standard deviation of a count is below 30."""
    for located in (True, False):
        drawn, real = drawn_and_real(missing=1500, located=located)
        assert np.abs(drawn - real).max() <= 90


def test_the_statistic_is_one_cell_of_each_histogram() -> None:
    pay = Integer(name="x", min=0, max=10**6)
    kernel = ColumnHistograms((BINS, Bins.by_magnitude(pay), Grains.of_column(pay)))
    assert kernel.sensitivity == math.sqrt(3)
    total = kernel.total(Records(rows=4, codes={"x": np.array([0, 998, 1000, MISSING])}))
    sizes = [BINS.count, Bins.by_magnitude(pay).count, Grains.of_column(pay).count]
    assert len(total) == sum(sizes)
    assert [int(part.sum()) for part in np.split(total, np.cumsum(sizes)[:-1])] == [4, 4, 4]


def test_mean_and_deviation_are_those_of_the_numbers_alone() -> None:
    """Uniform from 100 to 299 of 1,000, and as many special values, which are no numbers."""
    counts = np.zeros(BINS.count, dtype=np.int64)
    counts[[2, 3]] = 50_000
    for special in (0, 100_000):
        counts[BINS.numbers] = special
        histograms = Histograms((BINS,), counts.copy(), 1e-3, float(counts.sum()), located=frozenset({0}))
        centre, scale = histograms.centre_and_scale(0)
        assert centre == pytest.approx(0.2, abs=1e-3)
        assert scale == pytest.approx(0.2 / math.sqrt(12), rel=1e-2)
