"""Losses of a training, composed numerically as privacy loss distributions by dp-accounting.

Every figure is rounded towards privacy. Nothing else in the package imports dp-accounting, which comes with the
extra `autoregressive`.
"""

import importlib.util
from functools import lru_cache
from typing import Any

import numpy as np

from repsynth.arrays import Floats
from repsynth.errors import ConfigError
from repsynth.privacy.events import RATE_UNIT, SampledEvent

SMALLEST_DELTA = 1e-11
"""Below this, the error of numerical composition would be noticeable."""

LEAST_NOISE, MOST_NOISE, MOST_ROUNDS = 0.25, 1e7, 10_000
"""Trainings are accounted for within these bounds: the noise multiplier of a round, and how many there are."""

# Composing a known Gaussian in thousands of rounds was off by up to 4e-14 in δ: this is taken off δ before.
_COMPOSITION_ERROR = 1e-12


def epsilon(mu: float, trainings: tuple[SampledEvent, ...], delta: float) -> float:
    """The ε of trainings after a Gaussian part of `mu`, at this δ."""
    return float(_accountant(mu, trainings).get_epsilon(delta - _COMPOSITION_ERROR)) * (1 + 1e-9)


def delta(mu: float, trainings: tuple[SampledEvent, ...], epsilon: float) -> float:
    return min(float(_accountant(mu, trainings).get_delta(epsilon)) + _COMPOSITION_ERROR, 1.0)


def deltas(training: SampledEvent, levels: Floats) -> Floats:
    """The δ of a training alone at many rising ε, the larger one of adding a record and of removing it."""
    found = np.asarray(_accountant(0.0, (training,)).get_delta(levels), dtype=np.float64)
    # Each is the difference of two sums over a million cells at most, some fifty times as large as itself.
    return np.minimum(found * (1 + 1e-6) + _COMPOSITION_ERROR, 1.0)


@lru_cache(maxsize=64)
def _accountant(mu: float, trainings: tuple[SampledEvent, ...]) -> Any:
    """The accountant that has seen all of it. Neighbours: a record that takes part, or one that adds nothing."""
    library = accounting_library()
    # Losses are rounded up to multiples of an interval: one small beside the loss of a round costs no more than
    # a thousandth of ε.
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
    """Whether these numbers, which may come from a stranger's file, describe a training that can be accounted for.

    >>> is_training(rate=0.0625, noise=1.0, rounds=300), is_training(rate=1.5, noise=1.0, rounds=300)
    (True, False)
    """
    numbers = isinstance(rate, float) and isinstance(noise, float) and isinstance(rounds, int)
    if not numbers or isinstance(rounds, bool):
        return False
    within = 0 < rate <= 1 and LEAST_NOISE * (1 - 1e-9) <= noise <= MOST_NOISE
    return bool(within and (rate * RATE_UNIT).is_integer() and 1 <= rounds <= MOST_ROUNDS)


def available() -> bool:
    """Whether losses of trainings can be worked out here."""
    return importlib.util.find_spec("dp_accounting") is not None


def accounting_library() -> Any:
    """dp-accounting, which only trained models need."""
    try:
        import dp_accounting
    except ImportError:
        raise ConfigError(
            "the loss of a trained model is worked out by dp-accounting, which is not installed; "
            "install repsynth[autoregressive]"
        ) from None
    return dp_accounting
