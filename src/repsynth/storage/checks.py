"""Checks of untrusted input from a release folder. Each raises a ReleaseError."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.errors import ReleaseError


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ReleaseError(message)


def ints(array: NDArray[Any], length: int | None = None, most: int = 2**61) -> NDArray[np.int64]:
    """Return the array if it is a vector of whole numbers within bounds."""
    require(array.dtype == np.int64 and array.ndim == 1, "an array is not of whole numbers")
    require(length is None or len(array) == length, "an array has the wrong length")
    require(bool(np.all((array >= -most) & (array <= most))), "a number is out of range")
    return array


def floats(
    array: NDArray[Any], length: int, *, positive: bool = False, infinite: bool = False
) -> tuple[float, ...]:
    """Return the numbers if their count and range are as required."""
    require(array.dtype == np.float64 and array.shape == (length,), "an array has the wrong shape")
    require(not np.isnan(array).any(), "a number is not a number")
    require(infinite or bool(np.all(np.isfinite(array))), "a number is not finite")
    require(not positive or bool(np.all(array > 0)), "a scale is not positive")
    return tuple(array.tolist())


def positive(value: float) -> bool:
    """Return whether a number is finite and above 0."""
    return bool(np.isfinite(value) and value > 0)


def integer(table: Mapping[str, Any], name: str, least: int, most: int) -> int:
    """Return the whole number of this name if it is within bounds.

    >>> integer({"clip": 7}, "clip", 1, 10)
    7
    """
    value = table.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and least <= value <= most, f"its {name} is out of range")  # type: ignore[operator]
    return int(value)  # type: ignore[arg-type]


def flag(table: Mapping[str, Any], name: str) -> bool:
    value = table.get(name)
    require(isinstance(value, bool), f"its {name} is neither true nor false")
    return bool(value)
