"""The closed forms, against each other and against dp-accounting."""

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, pld, rdp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from repsynth.errors import ConfigError
from repsynth.privacy.budget import Budget, make_budget
from repsynth.privacy.events import ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import (
    advantage,
    compose,
    delta_of,
    epsilon_of,
    group_epsilon,
    mu_of,
    true_positive_rate,
)

DELTAS = st.floats(1e-12, 1e-2)


@pytest.mark.slow
@pytest.mark.parametrize("mus", [(0.3,), (1.0,), (0.05, 0.2, 0.5), (3.0,)])
@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_between_the_accountants_of_dp_accounting(mus: tuple[float, ...], delta: float) -> None:
    """Exact ≤ PLD (which rounds up) ≤ RDP, and PLD is close."""
    numeric, moments = pld.PLDAccountant(), rdp.RdpAccountant()
    for mu in mus:
        numeric.compose(dp_event.GaussianDpEvent(1 / mu))
        moments.compose(dp_event.GaussianDpEvent(1 / mu))
    exact = float(epsilon_of(compose(mus), delta))
    assert exact <= numeric.get_epsilon(delta) * (1 + 1e-6)
    assert exact == pytest.approx(numeric.get_epsilon(delta), rel=2e-3)
    assert numeric.get_epsilon(delta) <= moments.get_epsilon(delta)


@given(st.floats(1e-3, 20), DELTAS)
def test_calibrating_then_accounting_never_exceeds_the_target(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert float(epsilon_of(mu, delta)) <= epsilon
    assert float(epsilon_of(mu, delta)) == pytest.approx(epsilon, rel=1e-6)
    assert float(delta_of(mu, epsilon)) <= delta


@given(st.floats(0.01, 5), st.floats(0.01, 5), DELTAS)
def test_more_mu_costs_more(a: float, b: float, delta: float) -> None:
    low, high = sorted((a, b))
    # The bisection ends within a few units of the last digit of the formula, which is not monotone there.
    assert float(epsilon_of(low, delta)) <= float(epsilon_of(high, delta)) * (1 + 1e-9)


def test_the_whole_curve_at_once_equals_one_at_a_time() -> None:
    mus = np.linspace(0, 2, 7)
    assert epsilon_of(mus, 1e-6).tolist() == [float(epsilon_of(mu, 1e-6)) for mu in mus]


def test_advantage_is_the_largest_gap_between_the_two_rates() -> None:
    rates = np.linspace(1e-4, 1 - 1e-4, 20_001)
    gaps = [true_positive_rate(0.7, rate) - rate for rate in rates]
    assert max(gaps) == pytest.approx(float(advantage(0.7)), abs=1e-6)


def test_one_budget_in_three_units() -> None:
    budget = make_budget(epsilon=1.0, delta=1e-6)
    assert make_budget(mu=budget.mu, delta=1e-6).epsilon == pytest.approx(1.0)
    assert make_budget(rho=budget.rho, delta=1e-6).epsilon == pytest.approx(1.0)
    assert math.isclose(Budget.zero_concentrated(rho=2.0, delta=1e-6).mu, 2.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"epsilon": 1.0, "delta": 1.0},
        {"epsilon": 1.0, "delta": 0.0},
        {"epsilon": 1.0, "delta": math.nan},
        {"epsilon": 1.0, "mu": 1.0},
        {"mu": 0.0},
        {"rho": -1.0},
        {},
    ],
)
def test_a_wrong_budget_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        make_budget(**wrong)


def test_delta_follows_the_public_number_of_rows() -> None:
    assert make_budget(epsilon=1.0, public_rows=1000).delta == pytest.approx(1e-6)
    assert make_budget(epsilon=1.0).delta == 1e-9


# Rounding is towards privacy: against the same formulas in exact or in arbitrary precision.


def exact_delta(mu: float, epsilon: float) -> Any:
    """δ of μ-GDP to 60 digits."""
    with mpmath.workdps(60 + int(epsilon)):
        ratio, half = mpmath.mpf(epsilon) / mpmath.mpf(mu), mpmath.mpf(mu) / 2
        return mpmath.ncdf(half - ratio) - mpmath.exp(epsilon) * mpmath.ncdf(-half - ratio)


@pytest.mark.parametrize("mu", [1e-3, 0.03, 0.3, 0.7, 1.3, 3.1, 9.7, 25.0])
def test_no_delta_is_below_the_exact_one(mu: float) -> None:
    """Of the float formula alone about half are, most where both terms are nearly equal: at small ε and μ."""
    epsilons = np.concatenate([np.linspace(0, 6 * mu, 60), np.linspace(0, 12, 40)])
    for epsilon, found in zip(epsilons, delta_of(mu, epsilons), strict=True):
        exact, larger = exact_delta(mu, float(epsilon)), float(ndtr(mu / 2 - epsilon / mu))
        assert exact <= float(found) or exact < 1e-100  # less than any δ that is supported
        assert float(found) <= exact + 2e-12 * larger


@settings(max_examples=30)
@given(st.floats(0.01, 20), DELTAS)
def test_epsilon_and_mu_are_on_the_safe_side(value: float, delta: float) -> None:
    epsilon = float(epsilon_of(value, delta))
    assert exact_delta(value, epsilon) <= delta
    assert epsilon == 0 or exact_delta(value, epsilon * (1 - 1e-6)) > delta
    assert exact_delta(mu_of(value, delta), value) <= delta


def squared(value: float) -> Fraction:
    return Fraction(value) ** 2


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=20))
def test_a_composition_is_no_less_than_the_exact_one(mus: list[float]) -> None:
    total = sum(map(squared, mus))
    assert total <= squared(compose(mus)) <= total * Fraction(1 + 1e-14)


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 1e9), st.floats(1e-9, 100), st.integers(1, 50))
def test_no_event_costs_less_than_it_does(sensitivity: float, sigma: float, eta: float, rounds: int) -> None:
    ratio = Fraction(sensitivity) / Fraction(sigma)
    assert ratio <= Fraction(GaussianEvent("a", sensitivity, sigma).mu) <= ratio * Fraction(1 + 1e-14)
    noise = Fraction(SampledEvent("b", sensitivity, sigma, 0.5, 3).noise)
    assert 1 / ratio * Fraction(1 - 1e-14) <= noise <= 1 / ratio
    with mpmath.workdps(40):
        exact = mpmath.sqrt(2 * mpmath.pi) / 4 * mpmath.mpf(eta) * mpmath.sqrt(rounds)
        assert exact <= ExponentialEvent("c", eta, rounds).mu <= exact * (1 + 1e-14)


@given(st.floats(1e-6, 1e11))
def test_a_budget_in_rho_allows_no_more_than_that(rho: float) -> None:
    budget = Budget.zero_concentrated(rho=rho, delta=1e-6)
    assert 2 * Fraction(rho) * Fraction(1 - 1e-14) <= squared(budget.mu) <= 2 * Fraction(rho)
    assert budget.rho == pytest.approx(rho)


@pytest.mark.parametrize(
    ("largest", "beyond"),
    [
        ({"epsilon": 100.0}, {"epsilon": 100.1}),
        ({"mu": 1e6}, {"mu": 1.1e6}),
        ({"rho": 5e11}, {"rho": 5.1e11}),
        ({"mu": 1e-12}, {"mu": 0.9e-12}),
        ({"rho": 1e-24}, {"rho": 1e-25}),
        ({"epsilon": 1.0, "delta": 1e-100}, {"epsilon": 1.0, "delta": 0.9e-100}),
        ({"epsilon": 1.0, "public_rows": 10**12}, {"epsilon": 1.0, "public_rows": 10**12 + 1}),
        ({"epsilon": 1.0, "public_rows": 1}, {"epsilon": 1.0, "public_rows": 0}),
    ],
)
def test_budgets_have_bounds(largest: dict[str, Any], beyond: dict[str, Any]) -> None:
    assert isinstance(make_budget(**largest).epsilon, float)
    with pytest.raises(ConfigError):
        make_budget(**beyond)


def test_delta_is_never_above_1e_5_by_itself() -> None:
    assert [make_budget(epsilon=1.0, public_rows=rows).delta for rows in (1, 100, 1000)] == [1e-5, 1e-5, 1e-6]


@pytest.mark.parametrize("records", [1, 2, 16, 1000])
def test_a_group_of_records_has_so_many_times_the_mu(records: int) -> None:
    """Rounded up, and by no more than rounding: at its ε the δ of k μ is reached, just below it is not."""
    found = group_epsilon(1.0, 1e-9, records)
    mu = mu_of(1.0, 1e-9)
    assert delta_of(records * mu, found) <= 1e-9
    assert delta_of(records * mu, found * (1 - 1e-7)) > 1e-9
    assert found >= records
