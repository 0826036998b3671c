"""Naive Bayes draws numbers by their rank within a label."""

import numpy as np
import pytest

from repsynth.models.naive_bayes.fit import _Mixture


def test_below_a_rank_among_all_lie_as_many_as_the_labels_together_say() -> None:
    mixture = _Mixture(*(np.array(pair) for pair in ([0.3, 0.7], [0.0, 2.0], [1.0, 0.5])))
    ranks = np.linspace(0, 1, 21)
    below = mixture.below_ranks(ranks)
    assert mixture.probabilities @ below == pytest.approx(ranks, abs=1e-3)
    assert (np.diff(below, axis=1) >= 0).all()
    assert below[0, 6] > 0.8  # the lower label comes first
