"""How numbers and times stand in text cells, and how they are written there again."""

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from repsynth.schema import Datetime, Integer, Number, Numeric
from repsynth.schema.columns import plain_number
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
    """What stands before a number and between its digits; `decimals` digits behind the decimal mark, or as many as
    it takes.

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
        """Whether numbers are written as everywhere."""
        return not self.prefix and not self.thousands and self.decimal == "."

    def plain(self, texts: "pa.Array") -> "pa.Array":
        """The numbers among the texts in plain notation, null where a text is none."""
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
        """A number in this notation: -$5, but EUR -5."""
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
    """Seconds since 1970 (UTC) of a time in its format, or as ISO writes it; None where it is none."""
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
    """The special values that are times, in the column's format or in ISO's."""
    found = [seconds_of(text, date_format(column)) for text in column.special]
    return [seconds_of(text, None) if s is None else s for text, s in zip(column.special, found, strict=True)]


def has_form(column: Numeric) -> bool:
    """Whether a column's cells stand as text in a form of their own."""
    return column.dates is not None if isinstance(column, Datetime) else not Notation.of(column).is_plain


def special_values(column: Numeric) -> list[float | None]:
    """The special values that are numbers, or times in seconds since 1970; None for words."""
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
