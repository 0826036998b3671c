"""Guess how a column writes its numbers and dates by trying notations on its distinct values."""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Floats
from repsynth.curator.profile import Look, quoted
from repsynth.data.encode import read_numbers, read_seconds
from repsynth.data.values import Notation
from repsynth.schema.formats import DateFormat

_TRIED = 2_000
_SEPARATORS = [
    *((",", "."), (".", ","), ("'", "."), ("’", "."), (" ", "."), (" ", ","), ("\u00a0", ","), ("\u00a0", ".")),
    *(("\u202f", ","), ("_", "."), ("'", ","), ("", ",")),
]
"""Between thousands and before decimals, the likelier first."""

_CURRENCY = r"EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|Fr\.|Rs\.?|kr\.?"
_DAYS = [
    *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%d", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d%b%Y", "%b %d, %Y", "%d %B %Y", "%d. %B %Y", "%B %d, %Y"),
    *("%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%y", "%m-%d-%y", "%d-%b-%y"),
]
_TIMES = ["", " %H:%M", " %H:%M:%S", "T%H:%M:%S", ", %H:%M"]
_FORMATS = [DateFormat(day + time) for day in _DAYS for time in _TIMES]
_SHORTEST = 6  # 1.1.70 is no shorter
_FAR = 60_000_000_000  # seconds from 1970: the years 69 to 3871; Python's times end in the year 9999


@dataclass(frozen=True)
class Read:
    """The different values of a column as numbers, and the keys that say how it writes them.

    A value that is no number is NaN; times are seconds since 1970.
    """

    numbers: Floats
    keys: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def numbers_of(look: Look, decimal: str | None = None) -> Read:
    """Read the numbers of a column in the notation that reads most cells; `decimal` is the mark if it is known."""
    if not look.is_text:
        return Read(look.numbers)
    few = _some(look)
    bare = [text for text in few.texts if re.search("[0-9]", text)]
    prefix = _prefix(bare)
    marks = set("".join(bare))
    tried = [("", decimal or "."), *(pair for pair in _SEPARATORS if marks >= set(pair[0] or pair[1]))]
    tried = [pair for pair in tried if decimal in (None, pair[1])]
    best = max(tried, key=lambda pair: _cells_read(few, _read(few, prefix, *pair)))  # the first of equals
    bare = [text.removeprefix("-").removeprefix(prefix) for text in bare]
    thousands, mark = _thousands_or_decimals(bare, *best) if decimal is None else best
    if not thousands and mark not in marks:  # whole numbers, in any notation
        mark = "."
    if not prefix and (thousands, mark) == ("", "."):
        return Read(look.numbers)
    keys = {"thousands": thousands, "decimal": mark.replace(".", ""), "prefix": prefix}
    warnings = []
    either = rf"\d+{re.escape(thousands)}\d{{3}}"
    if decimal is None and thousands and all(re.fullmatch(either, text) for text in bare):
        warnings.append(
            f"every cell has one {quoted(thousands)} and three digits behind it: taken for thousands; if they are "
            f"decimals, make it a number with decimal = {quoted(thousands)}"
        )
    written = {key: text for key, text in keys.items() if text}
    return Read(_read(look, prefix, thousands, mark), written, tuple(warnings))


def _prefix(texts: list[str]) -> str:
    """The currency before most of these numbers, with the blank behind it; often there is none."""
    signs = re.escape("".join({sign for sign in "".join(texts) if unicodedata.category(sign) == "Sc"}))
    symbol = rf"[A-Z]{{0,2}}[{signs}]|" if signs else ""
    pattern = re.compile(rf"[+-]?((?:{symbol}{_CURRENCY})\s?)[+-]?[0-9.,]")
    found = Counter(match[1] for text in texts if (match := pattern.match(text)))
    (prefix, count), *_ = found.most_common(1) or [("", 0)]
    return prefix if 2 * count > len(texts) else ""


def _thousands_or_decimals(texts: list[str], thousands: str, decimal: str) -> tuple[str, str]:
    """1,234 and 1.234 can be read both ways: which one it is shows in the other cells."""
    comma = [text.partition(",") for text in texts if "," in text]
    if thousands == "," and any(before == "0" for before, _, _ in comma):
        return "", ","  # 0,500 is half of something
    dot = [text for text in texts if "." in text]
    short = [text for text in texts if text.isdigit()]
    grouped = all(re.fullmatch(r"[1-9][0-9]{0,2}\.[0-9]{3}", text) for text in dot)
    if (thousands, decimal) == ("", ".") and dot and short and grouped and max(map(len, short)) <= 3:
        return ".", ","  # 1.234 beside 999, but never 1.2 or 1234
    return thousands, decimal


def _read(look: Look, prefix: str, thousands: str, decimal: str) -> Floats:
    return read_numbers(look.values, Notation(prefix, thousands, decimal))


def times_of(look: Look) -> Read | None:
    """The times of a column, stored as such or written in the format that reads most of its cells."""
    if pa.types.is_date(look.values.type) or pa.types.is_timestamp(look.values.type):
        return Read(_seconds(look))
    if not look.is_text:
        return None
    few = _some(look)
    iso = _seconds(few)
    form = max(_formats(few), key=lambda text: _cells_read(few, _seconds(few, text)), default=None)
    if form is None or _cells_read(few, iso) >= _cells_read(few, _seconds(few, form)):
        return Read(_seconds(look)) if _cells_read(few, iso) else None
    numbers, warnings = _seconds(look, form), []
    swapped = form.translate(str.maketrans("dm", "md"))
    if form[2:3] in "/-" and _cells_read(look, _seconds(look, swapped)) == _cells_read(look, numbers):
        first, second = ("month", "day") if form.startswith("%m") else ("day", "month")
        warnings.append(
            f"dates taken as {first} before {second}, but no cell tells: if it is the other way round, set "
            f"dates = {quoted(swapped)}"
        )
    if "%y" in form:
        warnings.append("years of two digits: 69 to 99 are read as 1969 to 1999, 00 to 68 as 2000 to 2068")
    return Read(numbers, {"dates": form}, tuple(warnings))


def _formats(look: Look) -> list[str]:
    """The formats in which some of the first cells can be read."""
    dates = [text for text in look.texts if len(text) >= _SHORTEST and re.search("[0-9]", text)][:50]
    return [form.text for form in _FORMATS if any(form.read(text) for text in dates)]


def _seconds(look: Look, form: str | None = None) -> Floats:
    seconds = read_seconds(look.values, None if form is None else DateFormat(form))
    numbers = pc.fill_null(seconds.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    return np.where(np.abs(numbers) < _FAR, numbers, np.nan)


def _some(look: Look) -> Look:
    """The column as if it had some of its values only: enough to tell how they are written."""
    if look.distinct <= _TRIED:
        return look
    some = np.linspace(0, look.distinct - 1, _TRIED).astype(np.int64)
    return Look(look.name, look.type, look.values.take(pa.array(some)), look.counts[some], look.codes[:0])


def _cells_read(look: Look, numbers: Floats) -> int:
    return int(look.counts[np.isfinite(numbers)].sum())
