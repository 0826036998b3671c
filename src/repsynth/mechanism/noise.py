"""The only module that draws noise and the selections of the exponential mechanism.

A measurement of integers gets a Gaussian *rounded to integers*. For an integer x, round(x + N) = x + round(N),
so the released value is post-processing of the continuous Gaussian mechanism, and its Gaussian-DP account holds
exactly. The same holds for fractions x whose sum with N is rounded. round(N) must be drawn exactly, which
floating point does not do. Here the uniform variable is a bit string that is extended until it determines the
rounded value. A fast float path with a certified error bound decides almost all draws; arbitrary precision
decides the rest.
"""

import math
import os
from collections.abc import Callable
from itertools import accumulate

import mpmath
import numpy as np
from scipy.special import ndtri

from repsynth.arrays import Floats, Ints
from repsynth.errors import ConfigError
from repsynth.privacy.events import GaussianEvent, SelectionEvent

Entropy = Callable[[int], bytes]
"""Returns that many random bytes. The product uses `os.urandom`, the operating system's generator."""

LARGEST_SIGMA = 2.0**52
"""Noise beyond this would not fit 64-bit integers."""

_DIGIT = 64
# The relative error of scipy's ndtri is about 1e-15; with 1000 times that, nearly all draws are still decided.
_NDTRI_ERROR = 1e-12
# Below this tail probability the 63 bits of the first digit are too few to determine the quantile.
_SHORT_TAIL = 2.0**-24
# Exponents up to about 1e3 have a relative error of 1e-16, and sums of up to 1e5 masses lose no more.
_CHOICE_ERROR = 1e-9


def seeded_entropy(seed: int) -> Entropy:
    """Return reproducible bytes, which anyone who knows the seed can predict: for experiments only.

    >>> seeded_entropy(1)(4) == seeded_entropy(1)(4)
    True
    """
    return np.random.Generator(np.random.PCG64(seed)).bytes


def add_gaussian(
    values: Ints,
    *,
    name: str,
    sensitivity: float,
    sigma: float,
    weighted: bool = False,
    units: int = 1,
    entropy: Entropy = os.urandom,
) -> tuple[Ints, GaussianEvent]:
    """Return noisy values and the event with their cost.

    Values are in 1/`units`: the result is the nearest integer to values / units + noise.

    >>> noisy, event = add_gaussian(np.array([10, 20]), name="count", sensitivity=1.0, sigma=1e-6)
    >>> noisy.tolist(), event.name
    ([10, 20], 'count')
    """
    if not (np.isfinite(sigma) and sigma > 0 and np.isfinite(sensitivity) and sensitivity > 0):
        raise ConfigError(f"{name}: sensitivity and sigma must be positive; give a smaller or larger budget")
    if sigma > LARGEST_SIGMA:
        raise ConfigError(f"{name}: the noise does not fit 64-bit integers; give a larger budget")
    if 2**64 % units:
        raise ConfigError(f"{name}: units must be a power of two; nothing was measured")
    if units == 1:
        noisy = values + rounded_gaussian(sigma, values.size, entropy).reshape(values.shape)
    else:
        rest = (values % units).ravel() / units
        noise = rounded_gaussian(sigma, values.size, entropy, rest).reshape(values.shape)
        # A sum beyond 64 bits is off by multiples of 2⁶⁴, and its quotient by multiples of 2⁶⁴/units. Reduce every
        # result by them, so that they make no difference between two tables.
        whole = 2**64 // units
        noisy = (values // units + noise + whole // 2) % whole - whole // 2
    return noisy, GaussianEvent(name, sensitivity, sigma, weighted)


def select_counts(
    counts: Ints, *, name: str, columns: int, sigma: float, threshold: int, entropy: Entropy = os.urandom
) -> tuple[Ints, SelectionEvent]:
    """Return the noisy counts of values that occur, 0 below the threshold, and the event.

    The caller must not release the values below the threshold, nor the number of values.

    >>> noisy, event = select_counts(np.array([9, 1]), name="values", columns=1, sigma=1e-6, threshold=5)
    >>> noisy.tolist(), event.threshold
    ([9, 0], 5)
    """
    if not (np.isfinite(sigma) and 0 < sigma <= LARGEST_SIGMA and columns >= 1 and threshold >= 2):
        raise ConfigError(f"{name}: the noise or the threshold is out of range; give another budget")
    noisy = counts + rounded_gaussian(sigma, counts.size, entropy)
    return np.where(noisy >= threshold, noisy, 0), SelectionEvent(name, columns, sigma, threshold)


def rounded_gaussian(sigma: float, size: int, entropy: Entropy = os.urandom, offset: Floats | float = 0.0) -> Ints:
    """Return exact independent draws of round(c + σ Z), Z standard normal and c the exact `offset` from 0 to 1.

    One bit is the sign. The other 63 are the first digits of the tail probability P in (0, 1/2), whose quantile is
    |Z|. The magnitude is certain if the quantile is far enough from a half-integer.

    >>> rounded_gaussian(1e-9, 3).tolist(), rounded_gaussian(1e-9, 2, offset=np.array([0.25, 0.75])).tolist()
    ([0, 0, 0], [0, 1])
    """
    digits = np.frombuffer(entropy(8 * size), dtype="<u8")
    sign: Ints = np.where(digits >> np.uint64(63), -1, 1)
    tail_digits = digits & np.uint64(2**63 - 1)
    tail = (tail_digits + 0.5) * 2.0**-_DIGIT
    quantile = -ndtri(tail)
    towards = np.broadcast_to(sign * offset, size)  # the offset in the direction of the sign
    value = sigma * quantile + (0.5 + towards)
    magnitude = np.floor(value)
    error = sigma * (_NDTRI_ERROR * (1 + quantile) + 2.0**-41) + 4e-16 * np.abs(value)
    from_half = np.minimum(value - magnitude, magnitude + 1 - value)
    uncertain = (from_half <= error) | (tail < _SHORT_TAIL)
    magnitudes: Ints = magnitude.astype(np.int64)
    for i in np.flatnonzero(uncertain):
        magnitudes[i] = _decide(sigma, int(tail_digits[i]), entropy, float(towards[i]))
    result: Ints = sign * magnitudes
    return result


def choose_exponential(utilities: Ints, *, unit: int, eta: float, entropy: Entropy = os.urandom) -> int:
    """Return an index drawn with probability exactly proportional to exp(η/2 × utility/unit).

    The uniform variable is a bit string, as for Gaussian noise. Floats decide if it is far enough from a boundary
    between two indices; otherwise arbitrary precision and more bits do.

    >>> choose_exponential(np.array([0, 10**9, 5]), unit=1, eta=1.0)
    1
    """
    below = utilities - utilities.max()
    ends = np.cumsum(np.exp(below * (eta / (2 * unit))))
    numerator, bits = int.from_bytes(entropy(_DIGIT // 8), "little"), _DIGIT
    level = (numerator + 0.5) * 2.0**-_DIGIT * ends[-1]
    index = int(np.searchsorted(ends, level, side="right"))
    if np.abs(ends - level).min() > _CHOICE_ERROR * ends[-1]:
        return index
    while True:
        with mpmath.workprec(2 * bits + 64):
            rate = mpmath.mpf(eta) / (2 * unit)
            exact = [mpmath.exp(int(value) * rate) for value in below]
            total = mpmath.fsum(exact)
            low, high = (mpmath.ldexp(n, -bits) * total for n in (numerator, numerator + 1))
            cells = [_first_above(exact, end) for end in (low, high)]
        if cells[0] == cells[1]:
            return cells[0]
        numerator = numerator << _DIGIT | int.from_bytes(entropy(_DIGIT // 8), "little")
        bits += _DIGIT


def _first_above(masses: list[mpmath.mpf], level: mpmath.mpf) -> int:
    """Return the index of the first partial sum above the level, or the last index."""
    above = (index for index, reached in enumerate(accumulate(masses)) if reached > level)
    return next(above, len(masses) - 1)


def _decide(sigma: float, numerator: int, entropy: Entropy, towards: float = 0.0) -> int:
    """Return the magnitude: extend P = numerator / 2^bits with fresh bits until both its ends agree."""
    bits = _DIGIT
    while True:
        with mpmath.workprec(2 * bits + 64):
            low, high = mpmath.ldexp(numerator, -bits), mpmath.ldexp(numerator + 1, -bits)
            if numerator > 0:
                magnitude = _cell(sigma, high, towards)
                if magnitude == _cell(sigma, low, towards):
                    return magnitude
        numerator = numerator << _DIGIT | int.from_bytes(entropy(_DIGIT // 8), "little")
        bits += _DIGIT


def _cell(sigma: float, tail: mpmath.mpf, towards: float = 0.0) -> int:
    """Return the integer k with Q((k + ½ − c)/σ) < tail ≤ Q((k − ½ − c)/σ), where Q is the normal upper tail.

    c is the offset `towards` k. Only integers whose tail is at most 1/2 are considered.
    """

    def upper_tail(k: int) -> mpmath.mpf:
        return mpmath.erfc((k - mpmath.mpf(0.5) - towards) / (mpmath.mpf(sigma) * mpmath.sqrt(2))) / 2

    least = math.floor(0.5 + towards)
    start = -ndtri(float(tail)) if tail > 1e-300 else 37.0
    k = max(least, math.floor(sigma * start + 0.5 + towards))
    while k > least and tail > upper_tail(k):
        k -= 1
    while tail <= upper_tail(k + 1):
        k += 1
    return k
