"""Notation of values: date formats, id formats, and the Arrow types that can store a column."""

import math
import re
import string
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

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

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_PARTS = {"d": "day", "m": "month", "b": "month", "B": "month", "Y": "year", "y": "year"}
_PARTS |= {"H": "hour", "M": "minute", "S": "second"}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)


@dataclass(frozen=True)
class DateFormat:
    """A date format of directives and literal text. Month names are always English.

    >>> format = DateFormat("%d.%m.%Y")
    >>> format.read("31.1.2020"), format.write(datetime(2020, 1, 31))
    (datetime.datetime(2020, 1, 31, 0, 0), '31.01.2020')
    """

    text: str

    @property
    def problem(self) -> str | None:
        directives = _DIRECTIVE.findall(self.text)
        unknown = next((letter for letter in directives if letter not in _PARTS), None)
        if unknown is not None:
            return f"%{unknown} is unknown; use " + " ".join(f"%{letter}" for letter in _PARTS)
        parts = [_PARTS[letter] for letter in directives]
        if len(parts) > len(set(parts)):
            return "it names one part of the date twice"
        if not {"day", "month", "year"} <= set(parts):
            return "it must name a day, a month and a year, as %d.%m.%Y does"
        in_order = [part for part in ("hour", "minute", "second") if part in parts]
        if in_order != ["hour", "minute", "second"][: len(in_order)]:
            return "minutes need hours (%H) before them, and seconds need minutes (%M)"
        if re.search("[0-9]", _DIRECTIVE.sub("", self.text)):
            return "digits between its parts look like digits of the date; remove them"
        return None

    @property
    def is_number(self) -> bool:
        """Whether dates in this format are whole numbers without leading zeros, such as 20200131."""
        return re.fullmatch("%Y(%[md])+", self.text) is not None

    @property
    def seconds(self) -> int:
        """The resolution of the format in seconds."""
        return 1 if "%S" in self.text else 60 if "%M" in self.text else 3600 if "%H" in self.text else 86_400

    def read(self, text: str) -> datetime | None:
        found = re.fullmatch(self.pattern, text, re.IGNORECASE | re.ASCII)
        if found is None:
            return None
        parts = {name: _value(name, part) for name, part in found.groupdict().items()}
        try:
            return datetime(**parts)  # type: ignore[arg-type]
        except ValueError:
            return None

    def write(self, time: datetime) -> str:
        month = _MONTHS[time.month - 1]
        texts = {"B": month, "b": month[:3], "Y": f"{time.year:04}", "y": f"{time.year % 100:02}"}
        return _DIRECTIVE.sub(
            lambda found: texts.get(found[1]) or f"{getattr(time, _PARTS[found[1]]):02}", self.text
        )

    @cached_property
    def pattern(self) -> str:
        """A regular expression for dates in this format, ignoring case.

        Days, months and times may have one digit if a literal character separates them from other parts.
        """
        pieces = re.split(r"(%.)", self.text)
        pattern = ""
        for i, piece in enumerate(pieces):
            if i % 2 == 0:
                pattern += r"\s+".join(re.escape(word) for word in re.split(r"\s+", piece))
                continue
            names = _MONTHS if piece == "%B" else tuple(month[:3] for month in _MONTHS)
            touches = "" in (pieces[i - 1] if i > 1 else " ", pieces[i + 1] if i + 2 < len(pieces) else " ")
            digits = "[0-9]{4}" if piece == "%Y" else "[0-9]{2}" if touches or piece == "%y" else "[0-9]{1,2}"
            pattern += f"(?P<{_PARTS[piece[1]]}>{'|'.join(names) if piece in ('%b', '%B') else digits})"
        return pattern


def _value(name: str, text: str) -> int:
    if not text.isdigit():
        return 1 + next(i for i, month in enumerate(_MONTHS) if month[:3].lower() == text[:3].lower())
    if name == "year" and len(text) == 2:
        return int(text) + (2000 if int(text) < 69 else 1900)  # the rule of Python and POSIX
    return int(text)


SYMBOLS = {
    "#": string.digits,
    "%": string.digits[1:],
    "?": string.ascii_uppercase,
    "*": string.ascii_lowercase,
    "^": string.digits + "abcdef",
}

FAKES = (
    *("name", "first_name", "last_name", "user_name", "email", "phone_number", "address", "street_address"),
    *("city", "postcode", "country", "company", "job", "iban", "url", "ipv4", "word", "sentence", "text"),
)
"""The functions of Faker that a schema may name."""

_ESCAPE = "\\"
_LONGEST_ID = 64


@dataclass(frozen=True)
class IdFormat:
    r"""A format of new ids. Other characters, and the one after a \\, are literal.

    #   a digit            %   a digit from 1 to 9      ^   a digit or a letter from a to f
    ?   a capital letter   *   a small letter

    >>> code = IdFormat("EMP-##?")
    >>> code.room, code.write([0, 7, 25])
    (2600, 'EMP-07Z')
    """

    text: str

    @property
    def problem(self) -> str | None:
        if not 0 < len(self.text) <= _LONGEST_ID or not self.text.isprintable():
            return f"it must have from 1 to {_LONGEST_ID} characters that can be printed"
        if self.parts is None:
            return "it ends in \\; write the character after it, or leave it out"
        if self.room == 1:
            return "all ids would be the same; add one of the symbols " + " ".join(SYMBOLS)
        return None

    @cached_property
    def parts(self) -> tuple[tuple[str, bool], ...] | None:
        """The characters allowed at each place, and whether it is a symbol; None if it ends in an escape."""
        found, escaped = [], False
        for character in self.text:
            if character == _ESCAPE and not escaped:
                escaped = True
                continue
            chosen = not escaped and character in SYMBOLS
            found.append((SYMBOLS[character] if chosen else character, chosen))
            escaped = False
        return None if escaped else tuple(found)

    @property
    def choices(self) -> list[str]:
        return [characters for characters, chosen in self.parts or () if chosen]

    @property
    def room(self) -> int:
        """The number of different ids."""
        return math.prod(map(len, self.choices))

    @property
    def whole_number(self) -> bool:
        """Whether every id is a whole number that int64 can hold."""
        parts = self.parts or ()
        return len(parts) <= 18 and all(set(characters) <= set(string.digits) for characters, _ in parts)

    def write(self, places: list[int]) -> str:
        """Return the id whose symbols are replaced by their characters at these places."""
        left = iter(places)
        return "".join(characters[next(left)] if chosen else characters for characters, chosen in self.parts or ())


def escaped(text: str) -> str:
    """Return the format of exactly this text.

    >>> escaped("No. #")
    'No. \\\\#'
    """
    return "".join(_ESCAPE + c if c in SYMBOLS or c == _ESCAPE else c for c in text)


_WHOLE = {f"int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)}
_WHOLE |= {f"uint{bits}": (0, 2**bits - 1) for bits in (8, 16, 32, 64)}
_REAL = ("float32", "float64")
_TIMES = ("date32", *(f"timestamp[{unit}]" for unit in ("s", "ms", "us", "ns")))
_TEXT = ("string", "large_string")
ARROW_TYPES = (*_WHOLE, *_REAL, *_TIMES, *_TEXT)

_NUMERAL = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")
_LONGEST_NUMERAL = 16  # 15 digits and a sign or a point: as many as float64 keeps
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
    """Return the number that a text denotes; None for words, and for numerals that would lose zeros."""
    return plain_number(text) if _NUMERAL.fullmatch(text) and len(text) <= _LONGEST_NUMERAL else None


def _all_fit(storage: str, numbers: Sequence[float | None]) -> bool:
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return False
    if storage in _WHOLE:
        low, high = _WHOLE[storage]
        return all(number % 1 == 0 and low <= number <= high for number in known)
    # float32 must hold the number and, for a whole number, its neighbours.
    exact = all(abs(n) <= _FLOAT32_WHOLE and struct.unpack("f", struct.pack("f", n))[0] == n for n in known)
    return storage == "float64" or (storage == "float32" and exact)


def _holds_fractions(storage: str, column: Number) -> bool:
    most = max(abs(column.min), abs(column.max))
    exact = most <= _FLOAT32_WHOLE * column.unit if column.on_grid else most <= _FLOAT32_MOST
    fits = storage == "float64" or (storage == "float32" and exact)
    return fits and _all_fit(storage, [_number(text) for text in column.special])


def _holds_times(storage: str, column: Datetime) -> bool:
    if not all(map(_TIME.fullmatch, column.special)):
        return False
    try:
        times = [column.start, *map(datetime.fromisoformat, column.special)]
    except ValueError:
        return False
    if storage == "date32":
        return column.unit.days == 1 and all(time.time() == datetime.min.time() for time in times)
    years = {column.max.year, *(time.year for time in times)}
    return storage in _TIMES and (storage != "timestamp[ns]" or all(y in _NANOSECOND_YEARS for y in years))
