"""Empirical Bayes with a mixture: what it keeps of noisy values, and what naive Bayes makes of it."""

import numpy as np

from repsynth.columns.mixture import kept
from repsynth.models.naive_bayes.fit import _kept, _left_open, _Means, _Noise, _shrinkage, _signal

COLUMNS = np.repeat(np.arange(4), 10)


def test_a_few_large_differences_among_many_are_kept_and_the_others_dropped() -> None:
    generator = np.random.default_rng(0)
    truth = np.zeros((2, 40))
    truth[:, [3, 17]] = 30.0
    noisy = truth + generator.normal(size=truth.shape)
    mixed, alike = (noisy * factor(noisy, 1.0, COLUMNS) for factor in (_kept, _shrinkage))
    assert np.sum((mixed - truth) ** 2) < 0.6 * np.sum((alike - truth) ** 2)


def test_where_all_differences_are_alike_so_is_what_is_kept_of_them() -> None:
    noisy = np.random.default_rng(1).normal(size=(2, 40)) * np.sqrt(5.0)  # signal 4, noise 1
    factors = _kept(noisy, 1.0, COLUMNS)
    assert np.abs(factors - _shrinkage(noisy, 1.0, COLUMNS)).max() < 0.15


def test_without_noise_everything_is_kept() -> None:
    values = np.array([[1e6, -2.0, 0.0, 3.0]])
    assert np.allclose(values * _kept(values, 0.0, np.zeros(4, dtype=np.int64)), values, rtol=1e-6, atol=1e-3)


def test_noise_alone_leaves_next_to_nothing() -> None:
    noisy = np.random.default_rng(2).normal(size=(2, 40))
    assert np.sum((noisy * _kept(noisy, 1.0, COLUMNS)) ** 2) < 0.1 * np.sum(noisy**2)


def test_sums_say_of_levels_only_what_stage_one_leaves_open() -> None:
    sums, columns = np.array([100.0, -100.0]), np.zeros(2, dtype=np.int64)
    assert np.allclose(_left_open(sums, 1.0, 1e-9, columns), 0.0)  # stage 1 knows them
    assert np.all(_left_open(sums, 1.0, 1e9, columns) > 0.99)  # it knows nothing
    small = np.array([0.1, -0.1])
    assert np.allclose(_left_open(small, 1.0, 3.0, columns), 0.75)  # by the two noises alone


def test_no_part_of_a_mixture_is_believed_without_need() -> None:
    values, noise = np.array([0.1, -0.2, 0.15]), np.ones(3)
    widths = np.outer([0.0, 100.0], noise)
    assert np.all(kept(values, noise, widths, np.array([100.0, 0.0])) < 0.01)


def test_signal_in_proportion_to_its_sizes_is_found_as_it_is() -> None:
    sizes, columns = np.array([1.0, 0.5, 0.1, 0.04]), np.array([0, 0, 1, 1])
    values = np.sqrt(1.0 + 4.0 * sizes)[None]
    assert np.allclose(_signal(values, 1.0, columns, sizes), 4.0 * sizes)


def test_levels_that_stage_one_does_not_know_are_taken_from_the_sums_as_they_are() -> None:
    """What noise alone explains is left out once, by what stage 1 knows, and not again."""
    means = _Means(np.ones(1), 100.0, _Noise(1.0, 1.0))
    sums = np.array([[0.5, -0.5]])
    assert np.allclose(means.of(sums, np.zeros(2, dtype=np.int64), known=1e9), sums / 100)
