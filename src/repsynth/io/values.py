"""The values of a column: how numbers and times are written, and their positions on the public grid."""

import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.io.records import MISSING
from repsynth.schema import Datetime, Integer, Number, Numeric
from repsynth.schema.columns import exactly, plain_number
from repsynth.schema.formats import DateFormat

if TYPE_CHECKING:
    import pyarrow as pa


_CLOCK = r"[0-9]{2}(:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?)?(Z|[+-][0-9]{2}(:?[0-9]{2})?)?"
ISO_TIME = f"^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}([ T]{_CLOCK})?$"
EPOCH = datetime(1970, 1, 1)
_BLANK = "[\\s\u00a0\u202f]*"
_NUMERAL = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_HEX = re.compile(r"[+-]?0[xob][0-9a-f_]+", re.IGNORECASE)
_MOST_DIGITS = 15  # decimal digits that float64 keeps
NULLS = (
    *("", "na", "n/a", "#na", "#n/a", "#n/a n/a", "null", "none", "<na>", "nan", "+nan", "-nan"),
    *("1.#ind", "-1.#ind", "1.#qnan", "-1.#qnan"),
)
"""Texts that readers take for a missing cell, in lower case."""

ODD_NUMBER = "^[+-]?(?:0[xXoObB][0-9a-fA-F_]+|[0-9]+(?:_[0-9]+)+(?:[.][0-9]*)?)$"
"""Forms of numbers that only some readers take for numbers: 0x1f, 1_000."""


@dataclass(frozen=True)
class Notation:
    """How numbers are written: prefix, marks, and digits after the decimal mark (None: as many as needed).

    >>> import pyarrow as pa
    >>> francs = Notation(prefix="CHF ", thousands="'", decimals=2)
    >>> francs.write(-1234.5), francs.plain(pa.array(["CHF 1'234.50", "-7", "1'2"])).to_pylist()
    ("CHF -1'234.50", ['1234.50', '-7', None])
    """

    prefix: str = ""
    thousands: str = ""
    decimal: str = "."
    decimals: int | None = None

    @classmethod
    def of(cls, column: Integer | Number) -> "Notation":
        if isinstance(column, Number):
            return cls(column.prefix, column.thousands, column.decimal, column.decimals)
        return cls(column.prefix, column.thousands, "," if column.thousands == "." else ".")

    @property
    def is_plain(self) -> bool:
        """Whether numbers are in plain notation."""
        return not self.prefix and not self.thousands and self.decimal == "."

    def plain(self, texts: "pa.Array") -> "pa.Array":
        """Convert texts to plain notation; null where a text is not a number."""
        import pyarrow.compute as pc  # bins know positions, and the command line starts without Arrow

        prefix, thousands, mark = (re.escape(s) for s in (self.prefix.strip(), self.thousands, self.decimal))
        grouped = f"[0-9]{{1,3}}(?:{thousands}[0-9]{{3}})+|" if thousands else ""
        body = f"(?:(?:{grouped}[0-9]+)(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        start = f"[+-]?(?:{prefix}{_BLANK})?|{prefix}{_BLANK}[+-]" if prefix else "[+-]?"
        texts = pc.if_else(pc.match_substring_regex(texts, f"^(?:{start}){body}$"), texts, None)
        if prefix:
            texts = pc.replace_substring_regex(texts, f"^([+-]?){prefix}{_BLANK}", r"\1")
        if thousands:
            texts = pc.replace_substring(texts, self.thousands, "")
        return texts if self.decimal == "." else pc.replace_substring(texts, self.decimal, ".")

    def write(self, number: float) -> str:
        """Write a number: -$5, but EUR -5."""
        if self.decimals is not None:
            text = f"{abs(number):,.{self.decimals}f}"
        else:
            text = f"{int(abs(number)) if number == int(number) and abs(number) < 1e15 else abs(number):,}"
        whole, point, rest = text.partition(".")
        text = whole.replace(",", self.thousands) + point.replace(".", self.decimal) + rest
        if number >= 0:
            return self.prefix + text
        return f"{self.prefix}-{text}" if self.prefix[:1].isalpha() else f"-{self.prefix}{text}"


PLAIN = Notation()


def seconds_of(text: str, dates: DateFormat | None) -> int | None:
    """Read a time in the given or the ISO format as seconds since 1970 (UTC); None if it is not a time."""
    if dates is not None:
        time = dates.read(text)
        return None if time is None else (time - EPOCH) // timedelta(seconds=1)
    try:
        time = datetime.fromisoformat(text) if re.match(ISO_TIME, text) else None
    except ValueError:
        return None
    if time is None:
        return None
    return (time.replace(tzinfo=None) - EPOCH - (time.utcoffset() or timedelta())) // timedelta(seconds=1)


def date_format(column: Datetime) -> DateFormat | None:
    return None if column.dates is None else DateFormat(column.dates)


def special_seconds(column: Datetime) -> list[int | None]:
    """Read special values as times, in the column's or the ISO format."""
    found = [seconds_of(text, date_format(column)) for text in column.special]
    return [seconds_of(text, None) if s is None else s for text, s in zip(column.special, found, strict=True)]


def has_form(column: Numeric) -> bool:
    """Whether a column declares its own text format."""
    return column.dates is not None if isinstance(column, Datetime) else not Notation.of(column).is_plain


def special_values(column: Numeric) -> list[float | None]:
    """Read special values as numbers, or seconds since 1970; None for words."""
    if isinstance(column, Datetime):
        return list(special_seconds(column))
    return [plain_number(text) for text in column.special]


def odd_number(text: str) -> float | None:
    """Return the number of a text that `ODD_NUMBER` matches.

    >>> odd_number("0x1F"), odd_number("-1_000"), odd_number("0b12")
    (31.0, -1000.0, None)
    """
    try:
        return float(int(text, 0))
    except (ValueError, OverflowError):
        pass
    try:
        return float(text)
    except ValueError:
        return None


def odd_whole(text: str) -> str | None:
    """Return a whole number that `ODD_NUMBER` matches in plain digits; None where it is none.

    >>> odd_whole("0x20000000000001"), odd_whole("9_007"), odd_whole("1_0.5")
    ('9007199254740993', '9007', None)
    """
    try:
        return str(int(text, 0 if text.lstrip("+-")[1:2].isalpha() else 10))
    except ValueError:  # no whole number, or one of more digits than Python reads
        return None


@cache
def numbers_of(texts: tuple[str, ...]) -> list[float | None] | None:
    """Return the number that each declared text is, None for a word.

    Return None in place of the list where a column of numbers loses a text: the zeros of "02139", the last digits
    of a long number, or a cell that says "NA".

    >>> numbers_of(("1", "2.50", "3+")), numbers_of(("02139", "K1A 0B1"))
    ([1.0, 2.5, None], None)
    """
    found = [float(text) if _NUMERAL.fullmatch(text) else None for text in texts]
    known = [number for number in found if number is not None]
    kept = all(_keeps(text) for text in texts) and len(set(known)) == len(known)
    return found if kept else None


def _keeps(text: str) -> bool:
    if _NUMERAL.fullmatch(text):
        return sum(map(str.isdigit, text)) <= _MOST_DIGITS
    try:
        float(text)
    except ValueError:
        return text.strip().lower() not in NULLS and _HEX.fullmatch(text.strip()) is None
    return False


# --- positions on the grid ---

_DIGITS = 6
_EXACT_POWER = 22  # the largest power of ten that float64 holds exactly

_CELLS = 2**15
_UNSURE = -2
_TAILS = 0.002


def positions_of(numbers: Floats, column: Integer | Number) -> Ints:
    """Return the nearest position of each number; without a grid, its interval. Numbers out of bounds are clipped,
    numbers that are not finite are missing.

    >>> positions_of(np.array([0.26, 7.0, np.nan]), Number(name="dose", min=0.0, max=1.0, step=0.25)).tolist()
    [1, 4, -1]
    """
    finite = np.isfinite(numbers)
    known = bool(finite.all())
    inside = np.clip(numbers if known else np.where(finite, numbers, column.min), column.min, column.max)
    if isinstance(column, Integer):
        whole = np.rint(inside) if column.step == 1 else inside
        positions = np.rint((whole - column.min) / column.step)
    elif column.on_grid:
        positions = _nearest(inside, column)
    else:
        positions = (inside - column.min) * (column.steps / (column.max - column.min))
    codes = positions.astype(np.int64)  # none is negative: rounded down
    return codes if known else np.where(finite, codes, MISSING)


def values_at(positions: Ints, column: Integer | Number) -> NDArray[Any]:
    """Return the value of each position; without a grid, a round number in or near its interval.

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
    """Move positions whose value would read as a special value to the nearest other one.

    >>> usual(np.array([0, 1, 99]), Integer(name="age", min=0, max=99, special=("98", "99"))).tolist()
    [0, 1, 97]
    """
    if not column.special:
        return positions
    taken = _taken(column)
    moved = positions.copy()
    for position in taken:
        near = range(1, len(taken) + 1)
        free = (p for d in near for p in (position - d, position + d) if 0 <= p <= column.steps and p not in taken)
        moved[positions == position] = next(free, position)
    return moved


def _taken(column: Numeric) -> set[int]:
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
    """Return the closest position. Dividing by the step, such as 0.1, may miss it by one."""
    guess = np.rint((inside - column.min) / column.unit)
    best = np.clip(guess, 0, column.steps)
    for other in (guess - 1, guess + 1):
        other = np.clip(other, 0, column.steps)
        closer = np.abs(_on_grid(other, column) - inside) < np.abs(_on_grid(best, column) - inside)
        best = np.where(closer, other, best)
    return best


def _on_grid(positions: NDArray[Any], column: Number) -> Floats:
    """Return the floats nearest to the decimal fractions: 0.3, not 0.1 + 0.2."""
    exact = exact_grid(column)
    if exact is None:
        return np.clip(column.min + positions * column.unit, column.min, column.max)
    start, step, power = exact
    values: Floats = (positions * step + start) / power
    return values


def exact_grid(column: Number) -> tuple[int, int, float] | None:
    """Return start and step of a grid as integers and their common divisor, a power of ten; None if float64 cannot
    hold them exactly.

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
    """Round the middle of an interval to six digits of the range, or of the number if it is small and the interval
    narrow enough. So 0, 0.25 or 30,000 come back as they were."""
    width = column.max - column.min
    numbers = column.min + (positions + 0.5) / column.steps * width
    coarsest, finest = _DIGITS - math.floor(math.log10(width)), math.floor(-math.log10(column.unit))
    coarser = np.zeros(len(numbers), dtype=np.int8)  # by how many digits than the finest
    magnitude = np.abs(numbers)
    for digits in range(finest, coarsest, -1):  # so few that comparing is quicker than a logarithm
        coarser += magnitude >= 10.0 ** (_DIGITS - digits)
    counts = finest - np.arange(max(finest - coarsest, 0) + 1)
    result = _to_digits(numbers, counts, coarser.astype(np.int64))
    result = np.clip(result + 0.0, column.min, column.max)  # no negative zero
    if not column.special:
        return result
    return np.where(np.isin(result, _special(column)), np.minimum(numbers, column.max - column.unit / 2), result)


def _to_digits(numbers: Floats, digits: Ints, which: Ints) -> Floats:
    """Round each number to `digits[which]` decimals, exactly as float64 reads the written number."""
    times = (10.0 ** np.maximum(digits, 0)).take(which)
    by = (10.0 ** np.maximum(-digits, 0)).take(which) if digits[-1] < 0 else None
    units = np.rint(numbers * times if by is None else numbers * times / by)
    if max(abs(int(digits[0])), abs(int(digits[-1]))) > _EXACT_POWER:
        pairs = zip(units.tolist(), digits.take(which).tolist(), strict=True)
        return np.array([float(f"{unit:.0f}e{-count}") for unit, count in pairs], dtype=np.float64)
    rounded: Floats = units / times
    return rounded if by is None else rounded * by


@dataclass(frozen=True)
class Cut:
    """Intervals of codes, each from one of the `starts` to the next.

    A table of cells of equal width (a power of two) gives the interval of most codes. A search finds the others.
    The position of the cells affects speed only.
    """

    starts: Ints
    first: int
    shift: int
    table: NDArray[np.int32]

    @classmethod
    def at(cls, starts: Ints, sample: Ints) -> "Cut":
        """Cells where most codes of a `sample` are."""
        seen = np.sort(sample[:: max(len(sample) // 1024, 1)])
        seen = seen[np.searchsorted(seen, 0) :]
        low, high = np.quantile(seen, [_TAILS, 1 - _TAILS], method="lower").tolist() if seen.size else (0, 0)
        shift = max((high - low).bit_length() - _CELLS.bit_length() + 1, 0)
        cells = low + (np.arange(_CELLS, dtype=np.int64) << shift)
        begin = np.searchsorted(starts, cells, side="right") - 1
        end = np.searchsorted(starts, cells + ((1 << shift) - 1), side="right") - 1
        # The last entry is for what is beyond the cells.
        table = np.append(np.where(begin == end, begin, _UNSURE), _UNSURE).astype(np.int32)
        return cls(starts, low, shift, table)

    def of(self, codes: Ints) -> Ints:
        """The interval of each code, −1 below the first start: `np.searchsorted(starts, codes, "right") - 1`.

        >>> codes = np.array([-1, 0, 4, 5, 99])
        >>> Cut.at(np.array([0, 5]), codes).of(codes).tolist()
        [-1, 0, 0, 1, 1]
        """
        cells = (codes - self.first).view(np.uint64)  # so that those below are beyond, too
        np.right_shift(cells, np.uint64(self.shift), out=cells)
        np.minimum(cells, np.uint64(_CELLS), out=cells)
        near = self.table.take(cells.view(np.int64))
        unsure = np.flatnonzero(near == _UNSURE)
        found = near.astype(np.int64)
        if unsure.size:
            found[unsure] = np.searchsorted(self.starts, codes[unsure], side="right") - 1
        return found
