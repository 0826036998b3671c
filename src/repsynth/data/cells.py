"""A column of Python objects, where no type says what the cells are: each is read by itself.

A cell is a text, a number, a time or something else, and reads as a cell of a typed column of its kind would. So
it does not matter whether the library that made the table has found a type for the whole column.
"""

import re
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

CELLS = pa.struct(
    [
        pa.field("text", pa.large_string()),
        pa.field("number", pa.float64()),
        pa.field("seconds", pa.int64()),
        pa.field("is_text", pa.bool_()),
    ]
)
"""A column of such cells: each as text; as a number or a time (in seconds since 1970, UTC) where it is one; and
whether it is a text, in which a number or a time may stand."""

_FIRST_DAY = date(1970, 1, 1).toordinal()
_MOST_DIGITS = 400
_HALF = re.compile("[\ud800-\udfff]")
_ZEROS = re.compile(r"(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)")


class Cell(NamedTuple):
    """One cell: nothing at all unless something is said of it."""

    text: str | None = None
    number: float | None = None
    seconds: int | None = None
    is_text: bool = False


NOTHING = Cell()


def read_cells(values: Iterable[Any]) -> pa.StructArray:
    """Each object by itself.

    >>> read_cells([1.0, "1.0", None])[0].as_py()
    {'text': '1', 'number': 1.0, 'seconds': None, 'is_text': False}
    """
    parts = list(zip(*map(read_cell, values), strict=True)) or [()] * len(CELLS)
    arrays = [pa.array(part, type=field.type) for part, field in zip(parts, CELLS, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(CELLS))


def read_cell(value: Any) -> Cell:
    try:
        if type(value) is str:  # nearly all of them
            return Cell(_valid(value), is_text=True)
        return NOTHING if value is None or value != value else _read(value)
    except Exception:  # whatever a foreign object does when it is compared or printed
        return NOTHING


def kinds_of_cells(cells: pa.StructArray) -> set[str]:
    """Return which of text, numbers, times and booleans are among the cells.

    >>> sorted(kinds_of_cells(read_cells([1, "1", None])))
    ['numbers', 'text']
    """
    text, number, seconds, is_text = (part.to_numpy(zero_copy_only=False) for part in _known(cells))
    found = {
        "text": is_text,
        "numbers": number,
        "times": seconds,
        "booleans": text & ~(is_text | number | seconds),
    }
    return {kind for kind, which in found.items() if which.any()}


def _known(cells: pa.StructArray) -> list[pa.Array]:
    text, number, seconds, is_text = cells.flatten()
    return [text.is_valid(), number.is_valid(), seconds.is_valid(), pc.and_(is_text, text.is_valid())]


def without_zeros(text: str) -> str:
    """A decimal number without the zeros at its end.

    >>> [without_zeros(text) for text in ("1.50", "2.00", "-0.0", "100", "1.5 m")]
    ['1.5', '2', '0', '100', '1.5 m']
    """
    found = _ZEROS.fullmatch(text)
    shorter = found[1] + (found[2] or "") if found else text
    return "0" if shorter == "-0" else shorter


def _read(value: Any) -> Cell:
    match value:
        case str():
            return Cell(_valid(str.__str__(value)), is_text=True)
        case bytes():
            return Cell(value.decode("utf-8", errors="replace"), is_text=True)
        case bool() | np.bool_():
            return Cell("true" if value else "false")
        case timedelta() | np.timedelta64():  # a signed integer to numpy
            return Cell(str(value), is_text=True)
        case int() | np.integer():
            return Cell(str(int(value)), float(int(value)))
        case float() | np.floating():
            return _number(float(value))
        case complex() | np.complexfloating() if value.imag == 0:
            return _number(float(value.real))
        case Decimal():
            return Cell(_decimal_text(value), float(value))
        case date() | np.datetime64():
            return _time(value)
    if hasattr(value, "closed_left") and hasattr(value, "closed_right"):
        return Cell(_interval_text(value), is_text=True)
    return Cell(_valid(str(value)), is_text=True)


def _valid(text: str) -> str:
    """Half a character is none: U+FFFD stands for it, as for bytes that are none."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _number(number: float) -> Cell:
    whole = number.is_integer() and abs(number) < 2**53
    return Cell(str(int(number)) if whole else repr(number), number)


def _decimal_text(value: Decimal) -> str:
    """All its digits, but no zeros at the end: 2.50 is 2.5, and 1E+2 is 100."""
    usual = value.is_finite() and -_MOST_DIGITS < value.adjusted() < _MOST_DIGITS
    return without_zeros(f"{value:f}") if usual else str(value)


def _time(value: date | np.datetime64) -> Cell:
    if isinstance(value, date) and not isinstance(value, datetime):
        return Cell(value.isoformat(), seconds=(value.toordinal() - _FIRST_DAY) * 86_400)
    instant = _instant(value)
    seconds = int(instant.astype("datetime64[s]").astype(np.int64))
    return Cell(_time_text(value), seconds=seconds)


def _instant(value: datetime | np.datetime64) -> np.datetime64:
    if isinstance(value, np.datetime64):
        return value
    if hasattr(value, "to_datetime64"):  # pandas' own, which goes beyond Python's
        return value.to_datetime64()  # type: ignore[no-any-return]
    naive = value.replace(tzinfo=None)
    return np.datetime64(naive, "us") - np.timedelta64(value.utcoffset() or timedelta(), "us")


def _time_text(value: datetime | np.datetime64) -> str | None:
    """As ISO writes it, None for years that Python does not know."""
    try:
        time = _as_datetime(value) if isinstance(value, np.datetime64) else value
    except (ValueError, OverflowError):
        return None
    return time.isoformat() if 1 <= time.year <= 9999 else None


def _as_datetime(value: np.datetime64) -> datetime:
    unit, _ = np.datetime_data(value.dtype)
    time: datetime = pa.scalar(value if unit in ("ms", "us", "ns") else value.astype("datetime64[s]")).as_py()
    return time


def _interval_text(value: Any) -> str:
    """Its ends as they read alone: whole numbers may stand as real ones when others in the column are real."""
    left, right = (read_cell(end).text for end in (value.left, value.right))
    return f"{'[' if value.closed_left else '('}{left}, {right}{']' if value.closed_right else ')'}"
