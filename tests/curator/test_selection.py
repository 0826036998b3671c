"""A selection of values tells no more than a Gaussian measurement and a coin: by exact computation."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from repsynth.arrays import Floats
from repsynth.errors import ConfigError
from repsynth.mechanism.noise import seeded_entropy, select_counts
from repsynth.privacy.adaptive_filter import Bound
from repsynth.privacy.events import SelectionEvent
from repsynth.privacy.gaussian import delta_of
from repsynth.privacy.loss import Loss


def shown(count: int, event: SelectionEvent, top: int = 400) -> Floats:
    """The chance of each outcome for a value of so many records: not shown at all, or shown with a noisy count."""
    if count == 0:
        return np.append(1.0, np.zeros(top))
    at = event.threshold + np.arange(top)
    chances = ndtr((at + 0.5 - count) / event.sigma) - ndtr((at - 0.5 - count) / event.sigma)
    return np.append(ndtr((event.threshold - 0.5 - count) / event.sigma), chances)


def exact_delta(one: Floats, other: Floats, epsilon: float) -> float:
    return float(np.maximum(one - math.exp(epsilon) * other, 0).sum())


def test_a_count_of_one_is_shown_as_often_as_the_failure_says() -> None:
    event = SelectionEvent("values", columns=1, sigma=3.0, threshold=8)
    noisy, made = select_counts(
        np.ones(1_000_000, dtype=np.int64),
        name="values",
        columns=1,
        sigma=3.0,
        threshold=8,
        entropy=seeded_entropy(1),
    )
    assert made == event
    often = np.count_nonzero(noisy) / len(noisy)
    assert abs(often - event.failure) < 7 * math.sqrt(event.failure / len(noisy))
    assert shown(1, event)[1:].sum() == pytest.approx(event.failure, rel=1e-6)
    assert set(np.unique(noisy)) <= {0, *range(8, 30)}


@pytest.mark.parametrize("epsilon", [0.0, 0.2, 1.0, 3.0])
@pytest.mark.parametrize(("sigma", "threshold"), [(3.0, 8), (2.0, 4), (10.0, 30)])
@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_one_record_more_or_less_moves_the_outcome_by_no_more_than_is_said(
    count: int, sigma: float, threshold: int, epsilon: float
) -> None:
    event = SelectionEvent("values", 1, sigma, threshold)
    present, absent = shown(count, event), shown(count - 1, event)
    allowed = Loss.of([event]).delta(epsilon)
    coin = event.failure + (1 - event.failure) * float(delta_of(event.mu, epsilon))
    for one, other in ((present, absent), (absent, present)):
        assert exact_delta(one, other, epsilon) <= min(coin, allowed) * (1 + 1e-9)


def test_a_value_of_one_record_alone_takes_the_whole_failure() -> None:
    event = SelectionEvent("values", 1, 3.0, 8)
    found = exact_delta(shown(1, event), shown(0, event), 20.0)
    assert found == pytest.approx(event.failure, rel=1e-6)


def test_two_columns_fail_twice_as_often() -> None:
    event = SelectionEvent("values", 2, 3.0, 8)
    alone = float(shown(1, event)[1:].sum())
    assert 1 - (1 - alone) ** 2 <= event.failure <= 2 * alone * (1 + 1e-6)
    assert event.mu == pytest.approx(math.sqrt(2) / 3)


def test_a_loss_with_a_failure_has_no_mu_and_takes_it_from_delta() -> None:
    event = SelectionEvent("values", 3, 100.0, 620)
    loss, gaussian = Loss.of([event]), Loss(floor_mu=event.mu, weighted_mu=0.0)
    assert loss.mu is None
    assert 1e-10 < event.failure < 1e-9
    delta = 1e-8
    assert loss.epsilon(delta) >= gaussian.epsilon(delta - event.failure)
    assert loss.delta(0.3) >= gaussian.delta(0.3) + event.failure
    assert loss.epsilon(event.failure) == math.inf
    assert float(loss.advantage_at(1.0)) >= float(gaussian.advantage_at(1.0)) + event.failure
    assert loss.true_positive_rate(0.01) >= gaussian.true_positive_rate(0.01) + event.failure
    both = loss + Loss(0.0, 0.2)
    assert both.failure >= loss.failure
    assert both.at(0.5).failure == both.failure
    assert np.all(both.epsilon_at([0.0, 1.0], delta) >= [loss.epsilon(delta), both.epsilon(delta) * (1 - 1e-12)])


def test_failures_of_several_runs_add_up() -> None:
    """Each run may fail by itself, so a union bound is needed; the largest alone is not enough."""
    losses = [Loss(0.1, 0.0, failure=failure) for failure in (1e-7, 2e-7, 4e-7)]
    whole = Loss.together(losses)
    assert 7e-7 <= whole.failure <= 7e-7 * (1 + 1e-12)
    assert (losses[0] + losses[1]).failure >= 3e-7
    assert Loss.adaptive(losses, 1e-5).failure >= 7e-7 + 1e-7


def test_failures_add_up_in_bounds() -> None:
    event = SelectionEvent("values", 3, 100.0, 800)
    whole = Bound.together([Bound(event.mu, event.failure)] * 2)
    assert whole.failure >= 2 * event.failure


@pytest.mark.parametrize(("sigma", "threshold"), [(0.0, 5), (math.inf, 5), (3.0, 1), (2.0**60, 5)])
def test_noise_and_threshold_out_of_range_are_refused(sigma: float, threshold: int) -> None:
    with pytest.raises(ConfigError, match="out of range"):
        select_counts(np.array([5]), name="values", columns=1, sigma=sigma, threshold=threshold)
