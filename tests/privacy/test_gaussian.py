"""The closed forms, against each other and against dp-accounting."""

import math

import numpy as np
import pytest
from dp_accounting import dp_event, pld, rdp
from hypothesis import given
from hypothesis import strategies as st

from repsynth.errors import ConfigError
from repsynth.privacy.budget import Budget, make_budget
from repsynth.privacy.gaussian import advantage, compose, delta_of, epsilon_of, mu_of, true_positive_rate

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
