"""Which layout the synthetic table gets: that of the table that came in, where it can hold the public domain."""

import re

import numpy as np
import pyarrow as pa

from repsynth.data.decode import decode, to_kind
from repsynth.data.encode import EncodedTable
from repsynth.data.layout import DTYPE, SIMPLE, ColumnLayout, Layout
from repsynth.data.records import MISSING, Records
from repsynth.data.sources import Source, open_source
from repsynth.schema import Boolean, Category, Column, Datetime, Discrete, Id, Integer, Number, Schema


def layout_of(source: Source, schema: Schema) -> Layout:
    """The layout to imitate, column by column where that storage can hold the public domain.

    The schema decides between whole and real numbers: pandas stores whole ones as real as soon as one is
    missing, and that must not show.
    """
    by_name = {column.name: column for column in schema.columns}
    columns = []
    for name, arrow_type, dtype in zip(source.names, source.types, source.dtypes, strict=True):
        column = by_name[name]
        stored = ColumnLayout(name, str(_output_type(column, arrow_type)))
        if dtype is not None:
            stored = ColumnLayout(name, str(_pandas_type(column, dtype)), _output_dtype(column, dtype))
        if not _survives(stored, column, source.kind):
            stored = ColumnLayout(name, str(_output_type(column, None)))
        columns.append(stored)
    return Layout(source.kind, tuple(columns))


def _survives(stored: ColumnLayout, column: Column, kind: str) -> bool:
    """Whether the ends of a column's public domain, and a value between, come back whole from this storage;
    the time to find out is before anything is spent."""
    if isinstance(column, Id):
        return stored.type in SIMPLE
    alone, layout = Schema(columns=(column,)), Layout(kind, (stored,))
    last = column.size - 1 if isinstance(column, Discrete) else column.steps
    codes = np.array([0, last // 3, last] + [MISSING] * column.missing)
    try:
        out = to_kind(decode(Records(rows=len(codes), codes={column.name: codes}), alone, layout), layout)
        (back,) = EncodedTable(open_source(out), alone)
    except Exception:  # Arrow, pandas and polars each have their own ways to refuse a value
        return False
    # Numbers are rounded on the way out.
    slack = column.steps / 1e5 if isinstance(column, Number) else 0
    return bool(np.all(np.abs(back.codes[column.name] - codes) <= slack))


def _output_type(column: Column, came: pa.DataType | None) -> pa.DataType:
    """The type a column comes out in, given the one it came in (None for CSV, which has none)."""
    types = pa.types
    text = came is not None and str(came) in ("string", "large_string", "string_view")
    match column:
        case Category():
            if came is None:
                return pa.string()
            if types.is_dictionary(came):
                return came if str(came) in SIMPLE else pa.dictionary(pa.int32(), pa.string())
            if text or _holds(came, column.values):
                return came
            return pa.string()
        case Boolean():
            whole = came is not None and types.is_integer(came)
            return came if came is not None and (text or whole) else pa.bool_()
        case Integer():
            fits = came is not None and types.is_integer(came) and _holds(came, (column.min, column.max))
            return came if fits else pa.int64()
        case Number():
            return came if came in (pa.float32(), pa.float64()) else pa.float64()
        case Datetime():
            if came is not None and (types.is_date(came) or types.is_timestamp(came) or text):
                return came
            return pa.string() if came is None else pa.timestamp("us")
        case Id():
            return came if came is not None and (text or types.is_integer(came)) else pa.int64()


def _pandas_type(column: Column, dtype: str) -> pa.DataType:
    """The Arrow type on the way to a data frame: by the schema, and by whether the dtype is text."""
    numbers = re.match(r"u?int|U?Int|[Ff]loat", dtype) is not None
    if isinstance(column, Category) and numbers and _holds(pa.int64(), column.values):
        return pa.int64()
    if isinstance(column, Datetime) and dtype not in ("str", "string", "category"):
        return pa.timestamp("us", tz=dtype.split(", ")[1].rstrip("]")) if ", " in dtype else pa.timestamp("us")
    if isinstance(column, Id) and not numbers:
        return pa.string()
    return _output_type(column, None)


def _output_dtype(column: Column, came: str) -> str | None:
    """The pandas dtype to restore, None to leave it to pandas.

    One odd cell can turn a whole column of numbers into objects. So the schema decides what a column
    holds, and what survives is mostly a choice that no cell brings about: a width, a nullable type, a
    category, a time's unit and zone.
    """
    if (came[:1].isupper() or came in ("boolean", "string", "category")) and DTYPE.fullmatch(came):
        return came
    plain_integer = re.fullmatch(r"u?int\d+", came) is not None
    missing = not isinstance(column, Id) and column.missing
    match column:
        case Integer():
            return "float64" if missing else came if plain_integer else "int64"
        case Category() if plain_integer or came.startswith("float"):
            return None if not _holds(pa.int64(), column.values) else "float64" if missing else "int64"
        case Number():
            return "float32" if came == "float32" else "float64"
        case Boolean():
            return None if missing else "bool"
        case Datetime() if came != "str":
            return came if DTYPE.fullmatch(came) and came.startswith("datetime64") else "datetime64[us]"
    return None


def _holds(arrow_type: pa.DataType, values: tuple[object, ...]) -> bool:
    """Whether all these public values can be stored in the type."""
    try:
        pa.array([str(value) for value in values]).cast(arrow_type)
    except pa.ArrowException:
        return False
    return True
