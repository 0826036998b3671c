"""One table `[columns.NAME]` of a schema to a column, with all mistakes reported."""

import math
import re
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

from repsynth.schema.arrow_types import ARROW_TYPES, holds
from repsynth.schema.columns import (
    Boolean,
    Category,
    Column,
    Datetime,
    Integer,
    Number,
    Numeric,
    exactly,
    plain_number,
)
from repsynth.schema.dates import DateFormat
from repsynth.schema.made import FAMILIES, read_families, read_id
from repsynth.schema.mistakes import Report, did_you_mean

_TYPES = ("integer", "number", "category", "boolean", "datetime", "id")
_BOUNDED = {"type", "storage", "min", "max", "missing", "special"}
_KEYS = {
    "integer": _BOUNDED | {"step", "thousands", "prefix"},
    "number": _BOUNDED | {"step", "decimals", "thousands", "decimal", "prefix"},
    "datetime": _BOUNDED | {"dates"},
    "category": {"type", "storage", "values", "missing", *FAMILIES},
    "boolean": {"type", "storage", "missing"},
    "id": {"type", "storage", "format", "fake", "locale"},
}
_LARGEST_INTEGER = 2**52  # positions stay exact in float64
_MOST_CATEGORIES = 100_000
_MOST_SPECIAL = 1000
_MOST_DECIMALS = 12
_LONGEST_TEXT = 32
_THOUSANDS = (",", ".", "'", "’", " ", "_", "\u00a0", "\u202f")
_PREFIX = re.compile(r"|(?=.{0,31}[^\s.,'’_])(?!\s)[^0-9+\x00-\x1f-]{1,32}")  # not taken for a part of the number
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character: the only text that UTF-8 cannot hold
_NOT_UTF8 = "not valid UTF-8: a character in it is incomplete; write it anew"


def read_column(name: str, table: Any, report: Report) -> Column | None:
    """One checked column, or None where something was reported."""
    if not isinstance(table, dict):
        report(name, None, f"must be a table; write [columns.{name}] and its keys below it")
        return None
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in _TYPES:
        said = "no type" if kind is None else f"unknown type {kind!r}"
        hint = did_you_mean(kind, _TYPES) if isinstance(kind, str) else ""
        report(name, "type", f"{said}{hint}; use one of {', '.join(_TYPES)}")
        return None
    sound = _is_utf8(name)
    if not sound:
        report(name, None, f"the name is {_NOT_UTF8}")
    for key in table.keys() - _KEYS[kind]:
        report(name, key, f"unknown key '{key}' for type {kind}{did_you_mean(key, _KEYS[kind])}")
        sound = False
    for key in (key for key in _KEYS[kind] if not _is_utf8(table.get(key))):
        report(name, key, f"'{key}' is {_NOT_UTF8}")
        sound = False
    missing = table.get("missing", False)
    if not isinstance(missing, bool):
        report(name, "missing", "'missing' must be true or false")
        sound = False
    if not sound:
        return None
    column = _of_type(name, kind, table, missing, report)
    return column if column is None or "storage" not in table else _stored(column, table["storage"], report)


def _stored(column: Column, storage: Any, report: Report) -> Column | None:
    if not isinstance(storage, str) or storage not in ARROW_TYPES:
        hint = did_you_mean(storage, ARROW_TYPES)
        report(column.name, "storage", f"'storage' must be one of {', '.join(ARROW_TYPES)}{hint}")
        return None
    if not holds(storage, column):
        report(
            column.name,
            "storage",
            f"{storage} cannot hold every declared value as it is written; use another 'storage', or leave it out",
        )
        return None
    return replace(column, storage=storage)


def _of_type(name: str, kind: str, table: dict[str, Any], missing: bool, report: Report) -> Column | None:
    if kind == "category":
        values = _values(name, table.get("values"), report)
        families = None if values is None else read_families(name, table, values, report)
        return None if values is None or families is None else Category(
            name=name, values=values, missing=missing, **families
        )  # fmt: skip
    if kind == "boolean":
        return Boolean(name=name, missing=missing)
    if kind == "id":
        return read_id(name, table, report)
    return _bounded(name, kind, table, missing, report)


def _values(name: str, values: Any, report: Report) -> tuple[str, ...] | None:
    if not isinstance(values, list) or not values:
        report(name, "values", "a category needs its list of 'values'")
        return None
    if len(values) > _MOST_CATEGORIES:
        report(name, "values", f"more than {_MOST_CATEGORIES:,} values; group the rare ones or use type 'id'")
        return None
    if any(isinstance(value, bool) or not isinstance(value, str | int) for value in values):
        report(name, "values", "values must be text or whole numbers; put the others in quotes")
        return None
    texts = tuple(str(value).strip() for value in values)
    twice = len(texts) - len(set(texts))
    if twice:
        report(name, "values", f'{twice} value(s) listed twice (1 and "1" are the same); keep one of each')
        return None
    return texts


def _bounded(name: str, kind: str, table: dict[str, Any], missing: bool, report: Report) -> Column | None:
    problems = False

    def tell(column: str | None, key: str | None, message: str) -> None:
        nonlocal problems
        problems = True
        report(column, key, message)

    low, high = _bounds(name, kind, table, tell)
    more: dict[str, Any] = {"missing": missing, "special": _special(name, kind, table.get("special"), tell)}
    if kind == "datetime":
        more["dates"] = _dates(name, table.get("dates"), low, high, tell)
    else:
        more |= _grid(name, kind, table, low, high, tell) | _notation(name, table, tell)
    if problems:
        return None
    column = {"integer": Integer, "number": Number, "datetime": Datetime}[kind]
    made: Numeric = column(name=name, min=low, max=high, **more)
    if _is_all_special(made):
        report(name, "special", "every value from 'min' to 'max' is 'special'; declare a category of them instead")
        return None
    return made


def _bounds(name: str, kind: str, table: dict[str, Any], report: Report) -> tuple[Any, Any]:
    """The bounds, None where they are of no use."""
    parse = {"integer": _integer, "number": _number, "datetime": _datetime}[kind]
    example = {"integer": "17", "number": "0.5", "datetime": '"2020-01-31"'}[kind]
    limit = f" between -2^52 and 2^52 = {_LARGEST_INTEGER:,}" if kind == "integer" else ""
    bounds = []
    for key in ("min", "max"):
        bound = parse(table.get(key))
        if bound is None:
            said = f"no '{key}'" if key not in table else f"'{key}' is not a usable {kind}{limit}"
            report(name, key, f"{said}; give the public bound, for example {key} = {example}")
        bounds.append(bound)
    low, high = bounds
    if low is None or high is None:
        return None, None
    if isinstance(low, datetime) != isinstance(high, datetime):  # a date beside a time means midnight
        low, high = (b if isinstance(b, datetime) else _midnight(b) for b in (low, high))
    if not low < high:
        report(name, "min", "'min' must be below 'max'")
        return None, None
    if kind == "number" and not 1e-280 < high - low < 1e300:
        report(
            name, "min", "'min' and 'max' are too close or too far apart for floating point; rescale the column"
        )
        return None, None
    return low, high


def _special(name: str, kind: str, values: Any, report: Report) -> tuple[str, ...]:
    if values is None:
        return ()
    usable = (str, int, float, date) if kind == "datetime" else (str, int, float)
    if not isinstance(values, list) or any(isinstance(v, bool) or not isinstance(v, usable) for v in values):
        report(name, "special", "'special' must be a list of text or numbers, for example special = [-9, \"n/a\"]")
        return ()
    if len(values) > _MOST_SPECIAL:
        report(name, "special", f"more than {_MOST_SPECIAL:,} special values; is this a category?")
        return ()
    if any(isinstance(v, int | float) and not abs(v) < 2**64 for v in values):
        report(name, "special", "a special number is not below 2^64; put it in quotes to compare it as text")
        return ()
    texts = tuple(str(int(v) if isinstance(v, float) and v.is_integer() else v).strip() for v in values)
    if not all(texts):
        report(name, "special", "a special value is empty; an empty cell is missing, which 'missing' is for")
    numbers = [plain_number(text) for text in texts]
    distinct = {text if number is None else number for text, number in zip(texts, numbers, strict=True)}
    twice = len(texts) - len(distinct)
    if twice:
        report(name, "special", f'{twice} special value(s) listed twice (-9 and "-9.0" are the same); keep one')
    return texts


def _is_all_special(column: Numeric) -> bool:
    """Whether no value of the grid is left that would not read as a special one."""
    if column.steps >= len(column.special):
        return False
    places = range(column.steps + 1)
    if isinstance(column, Datetime):
        form = DateFormat(column.dates) if column.dates else None
        times = {(form and form.read(text)) or _datetime(text) for text in column.special}
        times = {time if isinstance(time, datetime) else _midnight(time) for time in times if time is not None}
        return {column.start + place * column.unit for place in places} <= times
    least, distance = exactly(column.min), exactly(column.unit)
    numbers = {exactly(n) for n in map(plain_number, column.special) if n is not None}
    return {least + place * distance for place in places} <= numbers


def _grid(
    name: str, kind: str, table: dict[str, Any], low: Any, high: Any, report: Report
) -> dict[str, int | float | None]:
    """The step or the decimals between the bounds."""
    step, decimals = table.get("step"), table.get("decimals")
    if step is not None and decimals is not None:
        report(name, "decimals", "'step' and 'decimals' exclude each other; keep one of them")
        return {}
    if decimals is not None:
        if isinstance(decimals, bool) or not isinstance(decimals, int) or not 0 <= decimals <= _MOST_DECIMALS:
            report(name, "decimals", f"'decimals' must be a whole number from 0 to {_MOST_DECIMALS}")
        elif low is not None:
            _check_grid(name, "decimals", low, high, float(f"1e-{decimals}"), report)
        return {"decimals": decimals}
    if step is None:
        return {}
    parsed = _integer(step) if kind == "integer" else _number(step)
    if parsed is None or parsed <= 0:
        wanted = "a whole number" if kind == "integer" else "a number"
        report(name, "step", f"'step' must be {wanted} above 0: the distance between two values")
    elif low is not None:
        _check_grid(name, "step", low, high, parsed, report)
    return {"step": parsed}


def _check_grid(name: str, key: str, low: float, high: float, unit: float, report: Report) -> None:
    """Both bounds lie on the grid, and float64 can tell its values apart."""
    least, most, distance = exactly(low), exactly(high), exactly(unit)
    if max(abs(least), abs(most), most - least) > 2**52 * distance:
        report(name, key, f"'{key}' is too fine for these bounds: more than 2^52 values; make it coarser")
    elif key == "decimals" and any((bound / distance) % 1 for bound in (least, most)):
        report(name, key, "'min' or 'max' has more 'decimals' than declared; round it or declare more")
    elif (most - least) / distance % 1:
        report(name, key, "from 'min' to 'max' must be a whole number of steps; move a bound or the 'step'")


def _notation(name: str, table: dict[str, Any], report: Report) -> dict[str, str]:
    """How numbers are written: what stands before them, between thousands, before decimals."""
    given: dict[str, str] = {key: table[key] for key in ("prefix", "thousands", "decimal") if key in table}
    thousands, prefix = given.get("thousands", ""), given.get("prefix", "")
    decimal = given.get("decimal", "." if table["type"] == "number" else "")
    if thousands not in ("", *_THOUSANDS):
        report(name, "thousands", "'thousands' must be one of , . ' _ and a space")
    if decimal not in ("", ",", ".") or given.get("decimal") == "":
        report(name, "decimal", '\'decimal\' must be "," or "."')
    elif thousands and thousands == decimal:
        report(name, "thousands", "'thousands' and 'decimal' must differ; declare the decimal mark, too")
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        report(name, "prefix", "'prefix' must be a short text without digits and signs, for example \"$\"")
    return given


def _dates(name: str, text: Any, low: Any, high: Any, report: Report) -> str | None:
    """A format that names every day between the bounds, and nothing else by the same text."""
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _LONGEST_TEXT or not text.isprintable():
        report(name, "dates", "'dates' must be a format, for example dates = \"%d.%m.%Y\"")
        return None
    form = DateFormat(text.strip())
    if form.problem:
        report(name, "dates", f"'dates' is of no use: {form.problem}")
    elif low is not None:
        days = [low + (high - low) * i / 40 for i in range(41)]
        if isinstance(low, datetime) and not form.has_time:
            report(name, "dates", "'dates' names no time of day, but the bounds do; add %H:%M or use plain dates")
        elif any(form.read(form.write(_midnight(day))) != _midnight(day) for day in days):
            report(name, "dates", "'dates' cannot tell all days between the bounds apart; use %Y for the year")
    return form.text


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)


def _integer(value: Any) -> Any:
    usable = isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST_INTEGER
    return value if usable else None


def _number(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def _datetime(value: Any) -> Any:
    """A date, or a time in UTC without a zone, from TOML's own dates or from ISO text."""
    if isinstance(value, str):
        try:
            value = date.fromisoformat(value) if len(value) == 10 else datetime.fromisoformat(value)
        except ValueError:
            return None
    if isinstance(value, datetime):
        try:
            return value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        except OverflowError:  # before the first or after the last year in UTC
            return None
    return value if isinstance(value, date) else None


def _is_utf8(value: Any) -> bool:
    """Whether a text, or all those in a list, can be written to a file: Python's may hold half a character."""
    if isinstance(value, list):
        return all(map(_is_utf8, value))
    return not isinstance(value, str) or _SURROGATE.search(value) is None
