"""The Arrow type that a column may declare for the synthetic table, checked against its public domain."""

import re
import struct
from collections.abc import Sequence
from datetime import datetime

from repsynth.schema.columns import (
    Boolean,
    Category,
    Column,
    Datetime,
    Id,
    Integer,
    Number,
    is_whole_number,
    plain_number,
)
from repsynth.schema.id_formats import IdFormat

_WHOLE = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_WHOLE |= {f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
_REAL = ("float32", "float64")
_TIMES = ("date32", *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")))
_TEXT = ("string", "large_string")
ARROW_TYPES = (*_WHOLE, *_REAL, *_TIMES, *_TEXT)

_NUMERAL = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")
_LONGEST = 16  # 15 digits and a sign or a point: as many as float64 keeps
_TIME = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}(:[0-9]{2})?)?")
_FLOAT32_WHOLE = 2**24
_FLOAT32_MOST = 3.4e38
_NANOSECOND_YEARS = range(1678, 2262)


def holds(storage: str, column: Column) -> bool:
    """Return whether every value of a column's domain can be stored in an Arrow type.

    >>> holds("int8", Integer(name="age", min=0, max=99)), holds("int8", Integer(name="year", min=0, max=2020))
    (True, False)
    """
    if storage in _TEXT:
        return True
    match column:
        case Boolean():
            return storage in _WHOLE
        case Category():
            numbers = [int(value) if is_whole_number(value) else None for value in column.values]
            return storage in _WHOLE and _all_fit(storage, numbers)
        case Id():
            whole = IdFormat(column.format).whole_number if column.format is not None else column.fake is None
            return storage == "int64" and whole
        case Integer():
            plain = not column.prefix and not column.thousands
            return plain and _all_fit(storage, [column.min, column.max, *map(_number, column.special)])
        case Number():
            plain = not column.prefix and not column.thousands and column.decimal == "."
            return plain and _holds_fractions(storage, column)
        case Datetime():
            return column.dates is None and _holds_times(storage, column)


def _number(text: str) -> float | None:
    """Return the number that a text is, None for a word or where a number would lose its zeros."""
    return plain_number(text) if _NUMERAL.fullmatch(text) and len(text) <= _LONGEST else None


def _all_fit(storage: str, numbers: Sequence[float | None]) -> bool:
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return False
    if storage in _WHOLE:
        low, high = _WHOLE[storage]
        return all(number % 1 == 0 and low <= number <= high for number in known)
    return storage == "float64" or (storage == "float32" and all(map(_is_float32, known)))


def _is_float32(number: float) -> bool:
    """Return whether float32 holds a number exactly and, where it is whole, its neighbours."""
    if abs(number) > _FLOAT32_WHOLE:
        return False
    return bool(struct.unpack("f", struct.pack("f", number))[0] == number)


def _holds_fractions(storage: str, column: Number) -> bool:
    most = max(abs(column.min), abs(column.max))
    exact = most <= _FLOAT32_WHOLE * column.unit if column.on_grid else most <= _FLOAT32_MOST
    fits = storage == "float64" or (storage == "float32" and exact)
    return fits and _all_fit(storage, [_number(text) for text in column.special])


def _holds_times(storage: str, column: Datetime) -> bool:
    try:
        times = [column.start, *map(datetime.fromisoformat, column.special)]
    except ValueError:
        return False
    if not all(map(_TIME.fullmatch, column.special)):
        return False
    if storage == "date32":
        return column.unit.days == 1 and all(time.time() == datetime.min.time() for time in times)
    years = {column.max.year, *(time.year for time in times)}
    return storage in _TIMES and (storage != "timestamp[ns]" or all(y in _NANOSECOND_YEARS for y in years))
