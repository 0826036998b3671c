"""Hypothesis strategies: schemas of every shape, and tables that fit them badly."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from repsynth.io.values import Notation
from repsynth.schema import Boolean, Category, Column, Datetime, Id, Integer, Number, Schema
from repsynth.schema.formats import DateFormat

NAMES = st.text(alphabet="abcXYZ 0-_.é\"'", min_size=1, max_size=6)
TEXTS = st.text(alphabet="abc=+-@é 1", min_size=1, max_size=4).map(str.strip).filter(bool)
SPECIAL = st.lists(
    st.sampled_from(["-9", "-8.5", "0", "99", "1001", "n/a", "=x", "2000-01-01", "9999-12-31"]),
    max_size=3,
    unique=True,
).map(tuple)
MARKS = st.sampled_from([{}, {}, {"thousands": ","}, {"prefix": "$", "thousands": "'"}, {"prefix": "EUR "}])
DATES = st.sampled_from([None, None, "%d.%m.%Y", "%Y%m%d", "%b %d, %Y"])
TIMES = st.sampled_from([None, "%d.%m.%Y %H:%M:%S"])


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    missing = draw(st.booleans())
    match draw(st.sampled_from(["category", "boolean", "integer", "number", "datetime", "id"])):
        case "category":
            values = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
            together = draw(st.sampled_from([None, None, "together"]))
            return Category(name=name, values=tuple(values), missing=missing, rarest=together)
        case "boolean":
            return Boolean(name=name, missing=missing)
        case "integer":
            return draw(integers(name, missing))
        case "number":
            return draw(numbers(name, missing))
        case "datetime":
            return draw(datetimes(name, missing))
    return Id(name=name, format=draw(st.sampled_from([None, "P-####", "^^^^^"])))


@st.composite
def integers(draw: st.DrawFn, name: str, missing: bool = False) -> Integer:
    """Of any width, on either side of zero or on both; some in steps."""
    low = draw(st.one_of(st.integers(-(2**50), 2**50), st.integers(-(10**5), 10**5), st.just(0)))
    step = draw(st.sampled_from([1, 1, 1, 2, 7, 10, 1000]))
    steps = draw(st.one_of(st.integers(1, 2**50 // step), st.integers(1, 10**4)))
    special, marks = draw(SPECIAL), draw(MARKS)
    return Integer(
        name=name, min=low, max=low + step * steps, missing=missing, special=special, step=step, **marks
    )


@st.composite
def numbers(draw: st.DrawFn, name: str, missing: bool = False) -> Number:
    """Plain ones, and some with so many decimals or in steps."""
    made: dict[str, Any] = {"name": name, "missing": missing, "special": draw(SPECIAL), **draw(MARKS)}
    if draw(st.booleans()):
        low = draw(st.one_of(st.floats(-1e9, 1e9), st.just(0.0)))
        return Number(min=low, max=low + draw(st.floats(1e-3, 1e9)), **made)
    unit = draw(st.sampled_from(["0.25", "0.1", "3", "500", "1", "0.1", "0.01", "0.000001"]))
    as_decimals = Decimal(unit) == Decimal(10) ** -len(unit.partition(".")[2]) and draw(st.booleans())
    made |= {"decimals": len(unit.partition(".")[2])} if as_decimals else {"step": float(unit)}
    low = draw(st.one_of(st.integers(-(10**10), 10**10), st.just(0)))
    high = low + draw(st.integers(1, 10**11))
    return Number(min=float(low * Decimal(unit)), max=float(high * Decimal(unit)), **made)


@st.composite
def datetimes(draw: st.DrawFn, name: str, missing: bool = False) -> Datetime:
    """Days, or times in seconds."""
    first = draw(st.dates(date(1900, 1, 1), date(2100, 1, 1)))
    last, special = first + timedelta(draw(st.integers(1, 9999))), draw(SPECIAL)
    if draw(st.booleans()):
        return Datetime(name=name, min=first, max=last, missing=missing, special=special, dates=draw(DATES))
    low = datetime(first.year, first.month, first.day, 6, 30, 1)
    high = datetime(last.year, last.month, last.day, 12)
    return Datetime(name=name, min=low, max=high, missing=missing, special=special, dates=draw(TIMES))


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    chosen = [draw(columns(name)) for name in names]
    label = None
    if draw(st.booleans()):
        label = "the label"
        values = draw(st.lists(TEXTS, min_size=2, max_size=4, unique=True))
        chosen.append(Category(name=label, values=tuple(values)))
    if all(isinstance(column, Id) or column.name == label for column in chosen):
        chosen.append(Boolean(name="something to learn"))
    return Schema(one_row_per_person=True, columns=tuple(chosen), label=label)


@st.composite
def tables(draw: st.DrawFn, schema: Schema, *, most: int = 12) -> pa.Table:
    """Rows of text cells: some inside the domain, some far outside, some that are no value at all."""
    rows = draw(st.integers(1, most))
    data: dict[str, Any] = {}
    for column in schema.columns:
        data[column.name] = pa.array([draw(cells(column)) for _ in range(rows)], type=pa.string())
    return pa.table(data)


def cells(column: Column) -> st.SearchStrategy[str | None]:
    odd = st.one_of(st.none(), st.sampled_from(["", "nan", "1e999", "-7", "=cmd"]), st.text(max_size=3))
    special: tuple[str, ...] = ()
    match column:
        case Category(values=values):
            good = st.sampled_from(values)
        case Boolean():
            good = st.sampled_from(["true", "no", "1"])
        case Integer(min=low, max=high, special=special):
            good = st.integers(low - 3, high + 3).map(Notation.of(column).write)
        case Number(min=low, max=high, special=special):
            good = st.floats(low, high).map(Notation.of(column).write)
        case Datetime(min=datetime() as low, max=high, special=special, dates=form):
            good = st.datetimes(low, high).map(DateFormat(form).write if form else datetime.isoformat)
        case Datetime(min=low, max=high, special=special, dates=form):
            good = st.dates(low, high).map(lambda day: _day(day, form))
        case _:
            good = st.text(max_size=5)
    return st.one_of(good, good, good, odd, *([st.sampled_from(special)] if special else []))


def _day(day: date, form: str | None) -> str:
    return DateFormat(form).write(datetime(day.year, day.month, day.day)) if form else str(day)
