"""Histograms: what noise may have made at the ends, the statistic, and draws."""

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth.columns.adaptive_histogram import ColumnHistograms, Histograms, within_noise
from repsynth.columns.cells import Bins
from repsynth.data.records import MISSING, Records
from repsynth.schema import Boolean, Integer

SEEDS = st.integers(0, 2**32)
AGE = Integer(name="x", min=0, max=999, special=("N", "-9"), missing=True)
BINS = Bins.at(AGE, np.array([1, 100, 200, 300, 400, 500, 501, 600, 700, 999]))
"""Both bounds and 500, the first, eleventh and seventh bin, stand alone. Behind them are two special ones."""


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


def test_the_statistic_is_one_cell_of_each_column() -> None:
    kernel = ColumnHistograms((BINS, Bins.discrete(Boolean(name="y"))))
    assert kernel.sensitivity == math.sqrt(2)
    records = Records(rows=4, codes={"x": np.array([0, 998, 1000, MISSING]), "y": np.array([0, 1, 1, MISSING])})
    total = kernel.total(records)
    assert np.array_equal(kernel.each(records).sum(axis=0), total)
    assert [int(part.sum()) for part in np.split(total, [BINS.count])] == [4, 4]


def test_a_drawn_table_has_the_fractions_of_a_table_without_noise() -> None:
    """An even stretch, a spike, a special value, and missing ones."""
    generator = np.random.default_rng(3)
    for missing in (0, 1500):
        codes = [generator.integers(100, 700, 5000), np.full(2000, 500), np.full(1500, 1001)]
        codes.append(np.full(missing, MISSING))
        real = Records(rows=8500 + missing, codes={"x": np.concatenate(codes), "y": np.arange(8500 + missing) % 2})
        kernel = ColumnHistograms((BINS, Bins.discrete(Boolean(name="y"))))
        counts = kernel.total(real)
        histograms = Histograms(kernel.bins, counts, 1e-3, float(real.rows))  # type: ignore[arg-type]
        drawn = kernel.total(histograms.draw(real.rows, generator))
        assert np.abs(drawn - counts).max() <= (90 if missing else 1), "missing ones are drawn at random"
        assert drawn[BINS.count - 1] == missing
