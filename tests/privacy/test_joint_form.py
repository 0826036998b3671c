"""The bound by weight, worked out without simulation: it holds for every set of releases in which a record weighs
no more than w, in both directions; given the scores that came out, it would not."""

import numpy as np
import pytest
from scipy.special import ndtr

from repsynth.arrays import Floats
from repsynth.privacy.loss import Loss

FLOOR, WEIGHTED, SMALL = 0.8, 2.0, 0.2
"""μ of a first measurement, from which the weight follows, and of a second one, which it scales."""
DELTA = 1e-3
LOSS = Loss(FLOOR, WEIGHTED)


def hockey_stick(mu: Floats, odds: Floats, epsilon: float) -> Floats:
    """∫ (odds · N(mu, 1) − e^ε N(0, 1))⁺: what a second measurement adds where the first one had these odds."""
    shifted = epsilon - np.log(odds)
    mu = np.maximum(mu, 1e-12)
    found: Floats = odds * (ndtr(mu / 2 - shifted / mu) - np.exp(shifted) * ndtr(-mu / 2 - shifted / mu))
    return found


def worst(threshold: float, most: float, epsilon: float, *, present: bool) -> tuple[float, float]:
    """The largest P[S] − e^ε P′[S] over the sets S of releases in which the record weighs at most `most`, P with
    the record and P′ without it or the other way round; and P of all those releases.

    The record shifts the first measurement by μ; it weighs little where that one exceeds the threshold.
    """
    first = np.linspace(-12, 12 + FLOOR, 400_001)
    step = first[1] - first[0]
    here, there = (np.exp(-((first - shift) ** 2) / 2) / np.sqrt(2 * np.pi) for shift in (FLOOR, 0.0))
    if not present:
        here, there = there, here
    weight = np.where(first > threshold, SMALL, 1.0)
    counts = weight <= most
    part = there * hockey_stick(weight * WEIGHTED, here / there, epsilon)
    return float(np.sum(part[counts]) * step), float(np.sum(here[counts]) * step)


@pytest.mark.parametrize("present", [True, False])
@pytest.mark.parametrize("threshold", [-3.0, -1.0, 0.0, 0.7, 2.0, 3.5])
def test_the_bound_by_weight_holds_for_every_set_of_releases(threshold: float, present: bool) -> None:
    for weight in (SMALL, 1.0):
        epsilon = float(LOSS.epsilon_at(weight, DELTA))
        assert worst(threshold, weight, epsilon, present=present)[0] <= DELTA * (1 + 1e-6)


def test_it_is_tight_where_nearly_all_releases_weigh_the_record_little() -> None:
    epsilon = float(LOSS.epsilon_at(SMALL, DELTA))
    assert worst(-8.0, SMALL, epsilon, present=True)[0] == pytest.approx(DELTA, rel=1e-3)


def test_it_says_nothing_of_sets_in_which_the_record_weighs_more() -> None:
    epsilon = float(LOSS.epsilon_at(SMALL, DELTA))
    assert worst(0.0, 1.0, epsilon, present=True)[0] > 10 * DELTA


def test_given_the_scores_it_would_not_hold() -> None:
    """Where the releases that weigh the record little are rare, what they add is small, but not beside them."""
    epsilon = float(LOSS.epsilon_at(SMALL, DELTA))
    added, chance = worst(3.5, SMALL, epsilon, present=True)
    assert added <= DELTA
    assert added / chance > 100 * DELTA
