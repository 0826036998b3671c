"""Profile the columns of a table: distinct values, and the notation of numbers and dates. PRIVATE."""

import json
import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.errors import CONTROLS, DataError, printable
from repsynth.io.encode import plain_array, read_numbers, read_seconds, read_text
from repsynth.io.source import CELLS, cell_type, is_text, other_mark, read_cells, say_delimiter
from repsynth.io.sources import Source
from repsynth.io.values import Notation
from repsynth.privacy.budget import DEFAULT_DELTA
from repsynth.privacy.formatting import upper
from repsynth.privacy.gaussian import group_epsilon
from repsynth.schema.formats import DateFormat


@dataclass(frozen=True)
class Look:
    """One column: its distinct values, their counts, and the index of the value in each row (-1: empty).

    Text is stripped; a cell without text is empty.

    >>> look = Look.of("age", pa.chunked_array([["30", " 41", "", "30"]]))
    >>> look.texts, look.counts.tolist(), look.codes.tolist()
    (['30', '41'], [2, 1], [0, 1, -1, 0])
    """

    name: str
    type: pa.DataType
    values: pa.Array
    counts: Ints
    codes: Ints

    @classmethod
    def of(cls, name: str, column: pa.ChunkedArray) -> "Look":
        values = column.combine_chunks()
        values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
        values = plain_array(values)
        if pa.types.is_null(values.type):
            values = values.cast(pa.large_string())
        if is_text(values.type) or values.type == CELLS:
            values = read_text(values)
            # A schema has no values with control characters, so such a cell will count as missing.
            unread = pc.or_(pc.equal(values, ""), pc.match_substring_regex(values, CONTROLS))
            values = pc.if_else(unread, None, values)
        elif pa.types.is_floating(values.type):
            values = values.cast(pa.float64())
            values = pc.if_else(pc.is_nan(values), None, values)
        encoded = values.dictionary_encode()
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        counts = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary)).astype(np.int64)
        look = cls(name, column.type, encoded.dictionary, counts, codes)
        try:
            _ = look.texts if look.is_text else None
        except UnicodeDecodeError:
            raise DataError(f"column {quoted(name)} holds bytes that are no text; convert it first") from None
        return look

    @cached_property
    def rows(self) -> int:
        return len(self.codes)

    @cached_property
    def cells(self) -> int:
        """The number of cells that are not empty."""
        return int(self.counts.sum())

    @cached_property
    def distinct(self) -> int:
        return len(self.values)

    @cached_property
    def is_text(self) -> bool:
        return is_text(self.values.type)

    @cached_property
    def texts(self) -> list[str]:
        """The distinct values as text."""
        return [text or "" for text in read_text(self.values).to_pylist()]

    @cached_property
    def numbers(self) -> Floats:
        """The distinct values as plainly written numbers; NaN if they are none."""
        if self.type == pa.float32():  # as it is written: 0.1, not 0.10000000149
            narrow = self.values.to_numpy(zero_copy_only=False).astype(np.float32)
            return np.array([float(str(value)) for value in narrow])
        if pa.types.is_decimal(self.type):  # Arrow's conversion is inexact
            return np.array([float(value) for value in self.values.to_pylist()])
        return read_numbers(self.values)

    def some(self, which: Bools | Ints) -> "Look":
        """Return the column with some of its values only; it has no rows."""
        chosen = np.flatnonzero(which) if which.dtype == np.bool_ else which
        return Look(self.name, self.type, self.values.take(pa.array(chosen)), self.counts[chosen], self.codes[:0])


def read_table(opened: Source) -> pa.Table:
    """Read a whole table. Refuse one that a schema cannot describe."""
    if (mark := other_mark(opened)) is not None:
        raise DataError(f"{opened.place}: has one column only; {say_delimiter(mark)}")
    if twice := sorted({name for name in opened.names if opened.names.count(name) > 1}):
        named = ", ".join(map(quoted, twice[:3]))
        raise DataError(f"column name {named} is used more than once; rename the columns first")
    batches = list(opened.batches(opened.names))
    columns = {}
    for name, kind in zip(opened.names, opened.types, strict=True):
        if kind is not None and pa.types.is_nested(cell_type(kind)):
            raise DataError(f"column {quoted(name)} holds nested values; flatten it into plain columns first")
        columns[name] = _joined(
            [batch.column(name) for batch in batches] or [pa.array([], kind or pa.large_string())], kind
        )
        if opened.kind == "csv":
            columns[name] = columns[name].cast(pa.large_string())
            # The reader puts this mark in place of bytes that are not UTF-8.
            if pc.any(pc.match_substring(columns[name], "\ufffd")).as_py():
                raise DataError(
                    f"{opened.place}: column {quoted(name)} is not text in this encoding; name the right one with "
                    "--encoding, such as cp1252"
                )
    return pa.table(columns)


def _joined(parts: list[pa.Array], kind: pa.DataType | None) -> pa.ChunkedArray:
    """Join the batches of a column. Batches may differ in type: files of one table do, and so do dictionaries."""
    if kind is not None and not pa.types.is_dictionary(kind):
        parts = [part if part.type == CELLS else plain_array(part) for part in parts]
    if len({part.type for part in parts}) > 1:
        parts = [part if part.type == CELLS else read_cells(plain_array(part).to_pylist()) for part in parts]
    return pa.chunked_array(parts)


# --- notation of numbers and dates ---

_TRIED = 2_000  # values that decide about the notation
_SEPARATORS = [
    *((",", "."), (".", ","), ("'", "."), ("’", "."), (" ", "."), (" ", ","), ("\u00a0", ","), ("\u00a0", ".")),
    *(("\u202f", ","), ("_", "."), ("'", ","), ("", ",")),
]
"""Separators of thousands and of decimals, the most common first."""

_CURRENCY = r"EUR|USD|GBP|CHF|JPY|CNY|INR|CAD|AUD|NZD|SEK|NOK|DKK|PLN|CZK|HUF|BRL|MXN|ZAR|Fr\.|Rs\.?|kr\.?"
_DAYS = [
    *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%d", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d"),
    *("%d %b %Y", "%d-%b-%Y", "%d%b%Y", "%b %d, %Y", "%d %B %Y", "%d. %B %Y", "%B %d, %Y"),
    *("%d.%m.%y", "%m/%d/%y", "%d/%m/%y", "%d-%m-%y", "%m-%d-%y", "%d-%b-%y"),
]
_FORMATS = [
    DateFormat(day + time) for day in _DAYS for time in ("", " %H:%M", " %H:%M:%S", "T%H:%M:%S", ", %H:%M")
]
_FAR = 60_000_000_000  # seconds from 1970: the years 69 to 3871


@dataclass(frozen=True)
class Read:
    """The distinct values of a column as numbers, and the keys of the schema that name its notation.

    A value that cannot be read is NaN. Times are seconds since 1970.
    """

    numbers: Floats
    keys: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def numbers_of(look: Look, decimal: str | None = None) -> Read:
    """Read a column in the notation that reads most cells. `decimal` is its decimal mark, if that is known."""
    if not look.is_text:
        return Read(look.numbers)
    few = _few(look)
    bare = [text for text in few.texts if re.search("[0-9]", text)]
    prefix, marks = _prefix(bare), set("".join(bare))
    tried = [("", decimal or "."), *(pair for pair in _SEPARATORS if marks >= set(pair[0] or pair[1]))]
    tried = [pair for pair in tried if decimal in (None, pair[1])]
    best = max(tried, key=lambda pair: _cells_read(few, read_numbers(few.values, Notation(prefix, *pair))))
    bare = [text.removeprefix("-").removeprefix(prefix) for text in bare]
    thousands, mark = _thousands_or_decimals(bare, *best) if decimal is None else best
    if not thousands and mark not in marks:  # whole numbers, in any notation
        mark = "."
    if not prefix and (thousands, mark) == ("", "."):
        return Read(look.numbers)
    warnings: tuple[str, ...] = ()
    either = rf"\d+{re.escape(thousands)}\d{{3}}"
    if decimal is None and thousands and all(re.fullmatch(either, text) for text in bare):
        warnings = (
            f"every cell has one {quoted(thousands)} and three digits after it: read as thousands; if they are "
            f"decimals, make it a number with decimal = {quoted(thousands)}",
        )
    keys = {"thousands": thousands, "decimal": mark.replace(".", ""), "prefix": prefix}
    numbers = read_numbers(look.values, Notation(prefix, thousands, mark))
    return Read(numbers, {key: text for key, text in keys.items() if text}, warnings)


def _prefix(texts: list[str]) -> str:
    """Return the currency before most of these numbers, with the blank after it."""
    signs = re.escape("".join({sign for sign in "".join(texts) if unicodedata.category(sign) == "Sc"}))
    symbol = rf"[A-Z]{{0,2}}[{signs}]|" if signs else ""
    pattern = re.compile(rf"[+-]?((?:{symbol}{_CURRENCY})\s?)[+-]?[0-9.,]")
    found = Counter(match[1] for text in texts if (match := pattern.match(text)))
    (prefix, count), *_ = found.most_common(1) or [("", 0)]
    return prefix if 2 * count > len(texts) else ""


def _thousands_or_decimals(texts: list[str], thousands: str, decimal: str) -> tuple[str, str]:
    """Decide how to read 1,234 and 1.234 by the other cells."""
    if thousands == "," and any(text.startswith("0,") for text in texts):
        return "", ","  # 0,500
    dot = [text for text in texts if "." in text]
    short = [text for text in texts if text.isdigit()]
    grouped = all(re.fullmatch(r"[1-9][0-9]{0,2}\.[0-9]{3}", text) for text in dot)
    if (thousands, decimal) == ("", ".") and dot and short and grouped and max(map(len, short)) <= 3:
        return ".", ","  # 1.234 and 999, but never 1.2 or 1234
    return thousands, decimal


def times_of(look: Look) -> Read | None:
    """Read the times of a column, in the format that reads most cells if it is text."""
    if pa.types.is_date(look.values.type) or pa.types.is_timestamp(look.values.type):
        return Read(_seconds(look))
    if not look.is_text:
        return None
    few = _few(look)
    dates = [text for text in few.texts if len(text) >= 6 and re.search("[0-9]", text)][:50]
    forms = [form.text for form in _FORMATS if any(form.read(text) for text in dates)]
    best = max([None, *forms], key=lambda form: _cells_read(few, _seconds(few, form)))  # None: as ISO writes them
    numbers = _seconds(look, best)
    if best is None:
        return Read(numbers) if np.isfinite(numbers).any() else None
    warnings = []
    swapped = best.translate(str.maketrans("dm", "md"))
    if best[2:3] in "/-" and _cells_read(look, _seconds(look, swapped)) == _cells_read(look, numbers):
        first, second = ("month", "day") if best.startswith("%m") else ("day", "month")
        warnings.append(
            f"dates read as {first} before {second}, but no cell tells: if it is the other way round, set "
            f"dates = {quoted(swapped)}"
        )
    if "%y" in best:
        warnings.append("years of two digits: 69 to 99 are read as 1969 to 1999, 00 to 68 as 2000 to 2068")
    return Read(numbers, {"dates": best}, tuple(warnings))


def _seconds(look: Look, form: str | None = None) -> Floats:
    seconds = read_seconds(look.values, None if form is None else DateFormat(form))
    numbers = pc.fill_null(seconds.cast(pa.float64()), np.nan).to_numpy(zero_copy_only=False)
    return np.where(np.abs(numbers) < _FAR, numbers, np.nan)


def _few(look: Look) -> Look:
    if look.distinct <= _TRIED:
        return look
    return look.some(np.linspace(0, look.distinct - 1, _TRIED).astype(np.int64))


def _cells_read(look: Look, numbers: Floats) -> int:
    return int(look.counts[np.isfinite(numbers)].sum())


# --- words ---


def quoted(text: str) -> str:
    """Return a TOML string. A JSON string is one, except for some control characters."""
    return printable(json.dumps(text, ensure_ascii=False))


def some(count: int, thing: str) -> str:
    """Return a count with its noun: 1 row, 2,000 rows."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def percent(part: float, whole: float = 1.0) -> str:
    """Return a fraction as a percentage that is neither rounded to 0 nor to 100.

    >>> percent(1, 8), percent(1, 10_000), percent(9_999, 10_000), percent(0.0), percent(2, 2)
    ('12.5 %', '<0.1 %', '>99.9 %', '0 %', '100 %')
    """
    share = 100 * min(max(part / whole if whole else 0.0, 0.0), 1.0)
    if share in (0.0, 100.0):
        return f"{share:.0f} %"
    return "<0.1 %" if share < 0.1 else ">99.9 %" if share > 99.9 else f"{share:.1f} %"


def repeating(name: str, distinct: int, cells: int, most: int, *, exact: bool = True) -> str:
    """Say what it means that an id occurs in several rows."""
    about, more = ("", "") if exact else ("about ", " or more")
    epsilon = group_epsilon(1.0, DEFAULT_DELTA, most)
    return (
        f"it repeats: {about}{distinct:,} different values in {cells:,} rows, one of them in {most:,}{more} rows. "
        f"If it names persons, the guarantee is for one row: with ε = 1 at δ = {DEFAULT_DELTA:g} for a row, a "
        f"person with {most:,} rows has ε = {upper(epsilon, 3)}, and may have more if a network is trained; "
        f'declare [person] column = "{name}" in the schema, and persons are protected with all rows'
    )
