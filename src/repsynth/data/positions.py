"""Numbers and their positions: from values between the public bounds to places on the grid, and back."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.data.notation import EPOCH, special_values
from repsynth.data.records import MISSING
from repsynth.schema import Datetime, Integer, Number, Numeric
from repsynth.schema.columns import exactly

_DIGITS = 6
_EXACT_POWER = 22  # the largest power of ten that float64 holds exactly


def positions_of(numbers: Floats, column: Integer | Number) -> Ints:
    """The nearest position of each number; without a grid, the interval that it falls in. What is out of bounds
    is clipped, what is not finite is missing.

    >>> positions_of(np.array([0.26, 7.0, np.nan]), Number(name="dose", min=0.0, max=1.0, step=0.25)).tolist()
    [1, 4, -1]
    """
    finite = np.isfinite(numbers)
    inside = np.clip(np.where(finite, numbers, column.min), column.min, column.max)
    if isinstance(column, Integer):
        whole = np.rint(inside) if column.step == 1 else inside
        positions = np.rint((whole - column.min) / column.step)
    elif column.on_grid:
        positions = _nearest(inside, column)
    else:
        positions = np.floor((inside - column.min) * (column.steps / (column.max - column.min)))
    return np.where(finite, positions.astype(np.int64), MISSING)


def values_at(positions: Ints, column: Integer | Number) -> NDArray[Any]:
    """The value of each position; without a grid, a round number in its interval or close to it.

    >>> values_at(np.array([0, 3]), Number(name="dose", min=0.0, max=1.0, step=0.25)).tolist()
    [0.0, 0.75]
    """
    if isinstance(column, Integer):
        return positions * column.step + column.min
    return _on_grid(positions, column) if column.on_grid else _round_number(positions, column)


def seconds_at(positions: Ints, column: Datetime) -> Ints:
    """The time of each position in seconds since 1970."""
    return positions * int(column.unit.total_seconds()) + int((column.start - EPOCH).total_seconds())


def usual(positions: Ints, column: Numeric) -> Ints:
    """The positions, but not those whose value would read as a special one: the nearest other one instead.

    >>> usual(np.array([0, 1, 99]), Integer(name="age", min=0, max=99, special=("98", "99"))).tolist()
    [0, 1, 97]
    """
    taken = _taken(column) if column.special else set()
    moved = positions.copy()
    for position in taken:
        near = range(1, len(taken) + 1)
        free = (p for d in near for p in (position - d, position + d) if 0 <= p <= column.steps and p not in taken)
        moved[positions == position] = next(free, position)
    return moved


def _taken(column: Numeric) -> set[int]:
    """The positions whose value is a special one."""
    special = _special(column)
    if isinstance(column, Datetime):
        unit, (start,) = column.unit.total_seconds(), seconds_at(np.zeros(1, dtype=np.int64), column).tolist()
        places = [(time - start) / unit for time in special.tolist()]
        return {int(place) for place in places if place.is_integer() and 0 <= place <= column.steps}
    if isinstance(column, Number) and not column.on_grid:
        return set()  # `values_at` sees to it
    positions = positions_of(special, column)
    return set(positions[values_at(positions, column) == special].tolist())


def _special(column: Numeric) -> Floats:
    return np.array([value for value in special_values(column) if value is not None], dtype=np.float64)


def _nearest(inside: Floats, column: Number) -> Floats:
    """The position whose value is closest: dividing by 0.1, say, may miss it by one where there are many."""
    guess = np.rint((inside - column.min) / column.unit)
    best = np.clip(guess, 0, column.steps)
    for other in (guess - 1, guess + 1):
        other = np.clip(other, 0, column.steps)
        closer = np.abs(_on_grid(other, column) - inside) < np.abs(_on_grid(best, column) - inside)
        best = np.where(closer, other, best)
    return best


def _on_grid(positions: NDArray[Any], column: Number) -> Floats:
    """Decimal fractions as float64 reads them when they are written out: 0.3, not 0.1 + 0.2."""
    exact = exact_grid(column)
    if exact is None:
        return np.clip(column.min + positions * column.unit, column.min, column.max)
    start, step, power = exact
    values: Floats = (positions * step + start) / power
    return values


def exact_grid(column: Number) -> tuple[int, int, float] | None:
    """Start and step of a column's grid in whole numbers, and the power of ten that these are to be divided by;
    None where float64 cannot hold that exactly.

    >>> exact_grid(Number(name="price", min=0.5, max=9.99, decimals=2))
    (50, 1, 100.0)
    """
    low, unit = exactly(column.min).normalize(), exactly(column.unit).normalize()
    digits = max(0, *(-int(number.as_tuple().exponent) for number in (low, unit)))
    start, step = int(low.scaleb(digits)), int(unit.scaleb(digits))
    if digits > _EXACT_POWER or abs(start) + column.steps * step > 2**53:
        return None
    return start, step, 10.0**digits


def _round_number(positions: Ints, column: Number) -> Floats:
    """The middle of an interval to six digits: of the range, or of the number itself where that is small, as long
    as the interval is that narrow. So 0, 0.25 or 30,000 come back as they were."""
    width = column.max - column.min
    numbers = column.min + (positions + 0.5) / column.steps * width
    size = np.floor(np.log10(np.maximum(np.abs(numbers), 1e-300)))
    coarsest, finest = _DIGITS - np.floor(np.log10(width)), np.floor(-np.log10(column.unit))
    digits = np.clip(_DIGITS - 1 - size, coarsest, finest).astype(np.int64)
    result = np.empty_like(numbers)
    for count in range(int(digits.min()), int(digits.max()) + 1) if digits.size else ():
        here = np.flatnonzero(digits == count)
        result[here] = _to_digits(numbers[here], count)
    result = np.clip(result + 0.0, column.min, column.max)  # no negative zero
    return np.where(np.isin(result, _special(column)), np.minimum(numbers, column.max - column.unit / 2), result)


def _to_digits(numbers: Floats, digits: int) -> Floats:
    """Rounded to decimals as float64 reads the written number."""
    power = 10.0 ** abs(digits)
    units = np.rint(numbers * power if digits >= 0 else numbers / power)
    if abs(digits) > _EXACT_POWER:
        return np.array([float(f"{unit:.0f}e{-digits}") for unit in units.tolist()])
    return units / power if digits >= 0 else units * power
