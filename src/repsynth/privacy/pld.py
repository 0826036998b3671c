"""Numerical composition of trainings by privacy loss distributions (dp-accounting).

Every result is rounded towards privacy. Only this module imports dp-accounting, part of the extra
`autoregressive`.
"""

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np

from repsynth.arrays import Floats
from repsynth.errors import ConfigError
from repsynth.privacy.events import RATE_UNIT, SampledEvent

SMALLEST_DELTA = 1e-11
"""The smallest supported δ: below it, the error of numerical composition matters."""

LEAST_NOISE, MOST_NOISE, MOST_ROUNDS = 0.25, 1e7, 10_000
"""Bounds of supported trainings: the noise multiplier of a round, and the number of rounds."""

# Subtracted from δ. The error for a known Gaussian in thousands of rounds was up to 4e-14.
_COMPOSITION_ERROR = 1e-12


def epsilon(mu: float, trainings: tuple[SampledEvent, ...], delta: float) -> float:
    """Return the ε at δ of trainings and a Gaussian part of `mu`."""
    return float(_accountant(mu, trainings).get_epsilon(delta - _COMPOSITION_ERROR)) * (1 + 1e-9)


def delta(mu: float, trainings: tuple[SampledEvent, ...], epsilon: float) -> float:
    return min(float(_accountant(mu, trainings).get_delta(epsilon)) + _COMPOSITION_ERROR, 1.0)


def deltas(training: SampledEvent, levels: Floats) -> Floats:
    """Return the δ of a training at increasing ε: the larger of adding and of removing a record."""
    found = np.asarray(_accountant(0.0, (training,)).get_delta(levels), dtype=np.float64)
    # δ is a difference of two sums over up to a million cells. They are about 50 times δ, so digits are lost.
    return np.minimum(found * (1 + 1e-6) + _COMPOSITION_ERROR, 1.0)


@lru_cache(maxsize=64)
def _accountant(mu: float, trainings: tuple[SampledEvent, ...]) -> Any:
    """Return the accountant of all parts. Neighbours differ by adding or removing a record."""
    library = accounting_library()
    # Losses are rounded up to multiples of an interval. This one adds less than a thousandth to ε.
    interval = min(max(2e-3 / max(training.noise for training in trainings), 1e-5), 1e-3)
    accountant = library.pld.PLDAccountant(
        library.NeighboringRelation.ADD_OR_REMOVE_ONE, value_discretization_interval=interval
    )
    if mu > 0:
        accountant.compose(library.GaussianDpEvent(1 / mu))
    for training in trainings:
        gaussian = library.GaussianDpEvent(training.noise)
        sampled = gaussian if training.rate >= 1 else library.PoissonSampledDpEvent(training.rate, gaussian)
        accountant.compose(sampled, training.rounds)
    return accountant


def is_training(*, rate: Any, noise: Any, rounds: Any) -> bool:
    """Return whether these numbers, which may be untrusted, describe a supported training.

    >>> is_training(rate=0.0625, noise=1.0, rounds=300), is_training(rate=1.5, noise=1.0, rounds=300)
    (True, False)
    """
    numbers = isinstance(rate, float) and isinstance(noise, float) and isinstance(rounds, int)
    if not numbers or isinstance(rounds, bool):
        return False
    within = 0 < rate <= 1 and LEAST_NOISE * (1 - 1e-9) <= noise <= MOST_NOISE
    return bool(within and (rate * RATE_UNIT).is_integer() and 1 <= rounds <= MOST_ROUNDS)


def available() -> bool:
    """Return whether dp-accounting is installed."""
    return importlib.util.find_spec("dp_accounting") is not None


def accounting_library() -> Any:
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "the loss of a trained model is computed by dp-accounting, which is not installed; "
            "install repsynth[autoregressive]"
        ) from None
    return dp_accounting
