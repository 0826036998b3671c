"""The total privacy budget: a μ of Gaussian DP, and the δ at which ε is quoted."""

import math
from dataclasses import dataclass

from repsynth.errors import ConfigError
from repsynth.privacy.gaussian import epsilon_of, mu_of

DEFAULT_DELTA = 1e-9
"""The default without a public number of rows; far below 1 / n for most tables."""


_LEAST_MU, _MOST_MU = 1e-12, 1e6


@dataclass(frozen=True)
class Budget:
    """The whole privacy budget of a release.

    >>> Budget.approximate(epsilon=1.0, delta=1e-6).mu < Budget.approximate(epsilon=2.0, delta=1e-6).mu
    True
    >>> round(Budget.zero_concentrated(rho=0.5, delta=1e-6).mu, 9)
    1.0
    """

    mu: float
    """The largest μ with this ε at δ. It bounds Gaussian measurements, not trainings."""
    delta: float

    def __post_init__(self) -> None:
        if self.mu < _LEAST_MU:
            raise ConfigError("the budget is so small that the result would be noise only; give a larger one")

    @classmethod
    def approximate(cls, *, epsilon: float, delta: float) -> "Budget":
        """(ε, δ)-DP."""
        _check_delta(delta)
        _check_positive("epsilon", epsilon, 100)
        return cls(mu_of(epsilon, delta), delta)

    @classmethod
    def gaussian(cls, *, mu: float, delta: float) -> "Budget":
        """μ-Gaussian DP, its ε quoted at δ."""
        _check_delta(delta)
        _check_positive("mu", mu, _MOST_MU)
        return cls(mu, delta)

    @classmethod
    def zero_concentrated(cls, *, rho: float, delta: float) -> "Budget":
        """ρ-zCDP, its ε quoted at δ: Gaussian measurements of total μ are exactly μ²/2-zCDP."""
        _check_delta(delta)
        _check_positive("rho", rho, _MOST_MU**2 / 2)
        return cls(math.sqrt(2 * rho) * (1 - 1e-15), delta)

    @property
    def epsilon(self) -> float:
        return float(epsilon_of(self.mu, self.delta))

    @property
    def rho(self) -> float:
        """The same budget in zero-concentrated DP, rounded up."""
        return self.mu**2 / 2 * (1 + 1e-15)


def make_budget(
    *,
    epsilon: float | None = None,
    mu: float | None = None,
    rho: float | None = None,
    delta: float | None = None,
    public_rows: int | None = None,
) -> Budget:
    """Return a budget from exactly one of ε, μ and ρ.

    The default δ is 1/n² (at most 1e-5) with a public number of rows n, and 1e-9 otherwise.

    >>> make_budget(epsilon=1.0, public_rows=1000).delta
    1e-06
    """
    if public_rows is not None and not 1 <= public_rows <= 10**12:
        raise ConfigError("the public number of rows must be a whole number from 1 to 10^12")
    if delta is None:
        delta = DEFAULT_DELTA if public_rows is None else min(1 / public_rows**2, 1e-5)
    match epsilon, mu, rho:
        case (float() | int(), None, None):
            return Budget.approximate(epsilon=epsilon, delta=delta)
        case (None, float() | int(), None):
            return Budget.gaussian(mu=mu, delta=delta)
        case (None, None, float() | int()):
            return Budget.zero_concentrated(rho=rho, delta=delta)
    raise ConfigError("give the budget as exactly one of epsilon, mu or rho, a number each")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ConfigError(
            f"delta is {delta:g}; it must lie between 0 and 1, and well below one over the number of rows"
        )
    if delta < 1e-100:
        raise ConfigError(f"delta is {delta:g}; the smallest supported is 1e-100")


def _check_positive(name: str, value: float, most: float) -> None:
    if not 0 < value <= most:
        raise ConfigError(f"{name} is {value:g}; it must be above 0 and at most {most:g}")
