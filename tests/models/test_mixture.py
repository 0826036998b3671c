"""Empirical Bayes with a mixture: what it keeps of noisy values."""

import numpy as np

from repsynth.columns.mixture import kept


def test_no_part_of_a_mixture_is_believed_without_need() -> None:
    values, noise = np.array([0.1, -0.2, 0.15]), np.ones(3)
    widths = np.outer([0.0, 100.0], noise)
    assert np.all(kept(values, noise, widths, np.array([100.0, 0.0])) < 0.01)
