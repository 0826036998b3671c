"""The only module that draws noise, and the exponential mechanism's choices.

A measurement of integers gets a Gaussian *rounded to integers*. For an integer x,
round(x + N) = x + round(N), so the released value is post-processing of the continuous Gaussian
mechanism and its Gaussian-DP account holds exactly. What remains is to draw round(N) exactly, which
floating point does not: here the uniform variable is a bit string that is extended until it decides
the rounded value, so no draw depends on an approximation. A fast float path decides almost all draws
with certified room for its error; the rest go through arbitrary precision.
"""

import os
from collections.abc import Callable

import mpmath
import numpy as np
from scipy.special import ndtri

from repsynth.arrays import Ints
from repsynth.errors import ConfigError
from repsynth.privacy.events import GaussianEvent

Entropy = Callable[[int], bytes]
"""Gives that many fresh random bytes. `os.urandom`, the operating system's generator, in the product."""

LARGEST_SIGMA = 2.0**52
"""Noise beyond this would not fit 64-bit integers."""

_DIGIT = 64
# scipy's ndtri is good to about 1e-15 relative; a thousandfold of that still decides nearly all draws.
_NDTRI_ERROR = 1e-12
# Below this tail probability the 63 bits of the first digit no longer fix the quantile well.
_SHORT_TAIL = 2.0**-24
# Exponents are exact to 1e-16 of at most some 1e3, and sums of up to 1e5 masses lose no more.
_CHOICE_ERROR = 1e-9


def seeded_entropy(seed: int) -> Entropy:
    """Bytes that anybody who knows the seed can draw again: for experiments, never for a release.

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
    entropy: Entropy = os.urandom,
) -> tuple[Ints, GaussianEvent]:
    """Noisy values, and the event that says what they cost.

    >>> noisy, event = add_gaussian(np.array([10, 20]), name="count", sensitivity=1.0, sigma=1e-6)
    >>> noisy.tolist(), event.name
    ([10, 20], 'count')
    """
    if not (np.isfinite(sigma) and sigma > 0 and np.isfinite(sensitivity) and sensitivity > 0):
        raise ConfigError(f"{name}: sensitivity and sigma must be positive; give a smaller or larger budget")
    if sigma > LARGEST_SIGMA:
        raise ConfigError(f"{name}: the noise does not fit 64-bit integers; give a larger budget")
    noise = rounded_gaussian(sigma, values.size, entropy).reshape(values.shape)
    return values + noise, GaussianEvent(name, sensitivity, sigma, weighted)


def rounded_gaussian(sigma: float, size: int, entropy: Entropy = os.urandom) -> Ints:
    """Exact independent draws of round(σ Z), Z standard normal.

    One bit is the sign; the other 63 are the first digits of the tail probability P in (0, 1/2), and
    |Z| is its quantile. The magnitude is certain where the quantile stands clear of a half-integer.

    >>> rounded_gaussian(1e-9, 3).tolist()
    [0, 0, 0]
    """
    digits = np.frombuffer(entropy(8 * size), dtype="<u8")
    sign: Ints = np.where(digits >> np.uint64(63), -1, 1)
    tail_digits = digits & np.uint64(2**63 - 1)
    tail = (tail_digits + 0.5) * 2.0**-_DIGIT
    quantile = -ndtri(tail)
    value = sigma * quantile + 0.5
    magnitude = np.floor(value)
    error = sigma * (_NDTRI_ERROR * (1 + quantile) + 2.0**-41) + 4e-16 * value
    from_half = np.minimum(value - magnitude, magnitude + 1 - value)
    uncertain = (from_half <= error) | (tail < _SHORT_TAIL)
    magnitudes: Ints = magnitude.astype(np.int64)
    for i in np.flatnonzero(uncertain):
        magnitudes[i] = _decide(sigma, int(tail_digits[i]), entropy)
    result: Ints = sign * magnitudes
    return result


def choose_exponential(utilities: Ints, *, unit: int, eta: float, entropy: Entropy = os.urandom) -> int:
    """An index, drawn with probability proportional to exp(η/2 × utility/unit), exactly.

    The uniform variable is a bit string, as for Gaussian noise: floats decide where it stands clear of a
    boundary between two indices, arbitrary precision and more bits do where it does not.

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
    """The index of the first partial sum above the level; the last one at the end."""
    reached = mpmath.mpf(0)
    for index, mass in enumerate(masses):
        reached += mass
        if reached > level:
            return index
    return len(masses) - 1


def _decide(sigma: float, numerator: int, entropy: Entropy) -> int:
    """The magnitude, by extending P = numerator / 2^bits with fresh bits until both its ends agree."""
    bits = _DIGIT
    while True:
        with mpmath.workprec(2 * bits + 64):
            low, high = mpmath.ldexp(numerator, -bits), mpmath.ldexp(numerator + 1, -bits)
            if numerator > 0:
                magnitude = _cell(sigma, high)
                if magnitude == _cell(sigma, low):
                    return magnitude
        numerator = numerator << _DIGIT | int.from_bytes(entropy(_DIGIT // 8), "little")
        bits += _DIGIT


def _cell(sigma: float, tail: mpmath.mpf) -> int:
    """The integer k ≥ 0 with Q((k + ½)/σ) < tail ≤ Q((k − ½)/σ), Q the normal upper tail."""

    def upper_tail(k: int) -> mpmath.mpf:
        return mpmath.erfc((k - mpmath.mpf(1) / 2) / (mpmath.mpf(sigma) * mpmath.sqrt(2))) / 2

    start = -ndtri(float(tail)) if tail > 1e-300 else 37.0
    k = max(0, int(sigma * start + 0.5))
    while k > 0 and tail > upper_tail(k):
        k -= 1
    while tail <= upper_tail(k + 1):
        k += 1
    return k
