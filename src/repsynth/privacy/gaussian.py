"""Gaussian differential privacy in closed form.

A Gaussian measurement of sensitivity Δ and noise σ is exactly μ-GDP with μ = Δ/σ; measurements
compose to μ² = Σ μⱼ², adaptively chosen or not; and μ-GDP is (ε, δ)-DP exactly when

    δ ≥ Φ(−ε/μ + μ/2) − e^ε Φ(−ε/μ − μ/2).

Every function here rounds towards privacy: a loss up, an affordable μ down.
"""

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import erf, log_ndtr, ndtr, ndtri

# The formula subtracts two close numbers. Φ and log Φ have relative errors of a few 1e-15, and the error of e^ε
# grows with ε. This part of the larger number, times 1 + ε/1000, bounds the error of the difference.
_CANCELLATION = 1e-12
_BISECTIONS = 200
_ROUNDING = 1e-13  # many times the error of special functions and a few operations


def delta_of(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]:
    """Return the smallest δ for which μ-GDP is (ε, δ)-DP, rounded up.

    >>> float(delta_of(1.0, 1.0).round(6))
    0.126937
    """
    delta, error = _delta(mu, epsilon)
    return np.clip(delta + error, 0.0, 1.0)


def delta_below(mu: ArrayLike, epsilon: ArrayLike) -> NDArray[np.float64]:
    """Return the same δ, rounded down.

    >>> bool(0 < delta_below(1.0, 1.0) < delta_of(1.0, 1.0))
    True
    """
    delta, error = _delta(mu, epsilon)
    return np.clip(delta - error, 0.0, 1.0)


def _delta(mu: ArrayLike, epsilon: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return δ and a bound on its numerical error."""
    mu = np.asarray(mu, dtype=np.float64)
    epsilon = np.asarray(epsilon, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = np.where(mu > 0, epsilon / mu, np.inf)
        larger = ndtr(mu / 2 - ratio)
        smaller = np.exp(np.minimum(epsilon + log_ndtr(-mu / 2 - ratio), 0.0))
    return larger - smaller, _CANCELLATION * (1 + epsilon / 1000) * larger


def epsilon_of(mu: ArrayLike, delta: float) -> NDArray[np.float64]:
    """Return the smallest ε for which μ-GDP is (ε, δ)-DP, rounded up; one for each μ.

    >>> float(epsilon_of(0.5, 1e-6).round(4))
    2.2541
    >>> float(epsilon_of(0.0, 1e-6))
    0.0
    """
    mu = np.asarray(mu, dtype=np.float64)
    low = np.zeros_like(mu)
    # Start from the Rényi bound of the same mechanism, which is feasible.
    high = mu**2 / 2 + mu * math.sqrt(2 * math.log(1 / delta)) + 1e-9
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if np.all((middle <= low) | (middle >= high)):
            break
        feasible = delta_of(mu, middle) <= delta
        low, high = np.where(feasible, low, middle), np.where(feasible, middle, high)
    epsilon: NDArray[np.float64] = np.where(delta_of(mu, 0.0) <= delta, 0.0, high)
    return epsilon


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest μ that (ε, δ)-DP allows, rounded down.

    >>> round(mu_of(1.0, 1e-6), 4)
    0.2367
    """
    low, high = 0.0, 1.0
    while delta_of(high, epsilon) <= delta:
        low, high = high, high * 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if delta_of(middle, epsilon) <= delta:
            low = middle
        else:
            high = middle
    return low * (1 - 1e-9)  # rounding must not make `epsilon_of` return more than ε


def group_epsilon(epsilon: float, delta: float, records: int) -> float:
    """Return the ε at δ of a group of records, given that one record has ε at δ. Rounded up.

    A group of k records is kμ-GDP where one is μ-GDP, and no less (Dong, Roth and Su 2019).

    >>> round(group_epsilon(1.0, 1e-9, 16), 2)
    21.16
    """
    mu = mu_of(epsilon, delta) / (1 - 1e-9) ** 2  # undo the rounding of `mu_of`
    return float(epsilon_of(records * mu, delta))


def compose(mus: Iterable[float]) -> float:
    """Return the μ of several measurements together, rounded up.

    >>> round(compose([3.0, 4.0]), 9)
    5.0
    """
    return math.sqrt(math.fsum(mu * mu for mu in mus)) * (1 + 1e-15)


def advantage(mu: ArrayLike) -> NDArray[np.float64]:
    """Return the largest membership advantage (TPR − FPR) of any attack on μ-GDP, rounded up.

    >>> float(advantage(1.0).round(4))
    0.3829
    """
    # 2 Φ(μ/2) − 1, without a difference that would lose all digits for small μ.
    result = erf(np.asarray(mu, dtype=np.float64) / math.sqrt(8)) * (1 + _ROUNDING)
    rounded: NDArray[np.float64] = np.minimum(result, 1.0)
    return rounded


def true_positive_rate(mu: float, false_positive_rate: float) -> float:
    """Return the largest true positive rate of any attack with this false positive rate, rounded up.

    >>> round(true_positive_rate(1.0, 0.01), 4)
    0.0924
    """
    z = float(ndtri(false_positive_rate)) + mu
    # The error of z is relative to its larger part. Far in the tail, the relative error of Φ is z times as large.
    return min(float(ndtr(z + _ROUNDING * (1 + abs(mu) + abs(z)))) * (1 + _ROUNDING), 1.0)
