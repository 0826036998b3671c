"""Hypothesis strategies: schemas of every shape, and tables that fit them badly."""

from datetime import date, timedelta
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from repsynth.schema import Boolean, Category, Column, Datetime, Id, Integer, Number, Schema

NAMES = st.text(alphabet="abcXYZ 0-_.é\"'", min_size=1, max_size=6)
TEXTS = st.text(alphabet="abc=+-@é 1", min_size=1, max_size=4).map(str.strip).filter(bool)


@st.composite
def columns(draw: st.DrawFn, name: str) -> Column:
    missing = draw(st.booleans())
    match draw(st.sampled_from(["category", "boolean", "integer", "number", "datetime", "id"])):
        case "category":
            values = draw(st.lists(TEXTS, min_size=1, max_size=6, unique=True))
            return Category(name=name, values=tuple(values), missing=missing)
        case "boolean":
            return Boolean(name=name, missing=missing)
        case "integer":
            low = draw(st.integers(-(2**50), 2**50))
            return Integer(name=name, min=low, max=low + draw(st.integers(1, 2**50)), missing=missing)
        case "number":
            low = draw(st.floats(-1e9, 1e9))
            return Number(name=name, min=low, max=low + draw(st.floats(1e-3, 1e9)), missing=missing)
        case "datetime":
            first = draw(st.dates(date(1900, 1, 1), date(2100, 1, 1)))
            return Datetime(
                name=name, min=first, max=first + timedelta(draw(st.integers(1, 9999))), missing=missing
            )
    return Id(name=name)


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
    return Schema(columns=tuple(chosen), label=label)


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
    match column:
        case Category(values=values):
            good = st.sampled_from(values)
        case Boolean():
            good = st.sampled_from(["true", "no", "1"])
        case Integer(min=low, max=high):
            good = st.integers(low - 3, high + 3).map(str)
        case Number(min=low, max=high):
            good = st.floats(low, high).map(repr)
        case Datetime(min=low, max=high):
            good = st.dates(low, high).map(str)
        case _:
            good = st.text(max_size=5)
    return st.one_of(good, good, good, odd)
