"""From codes back to cells: synthetic records in the storage types and column order of the table they imitate."""

import re
from datetime import datetime
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from repsynth.encode import MISSING, EncodedTable, Records
from repsynth.errors import ReleaseError
from repsynth.schema import Boolean, Category, Column, Datetime, Discrete, Id, Integer, Number, Schema
from repsynth.tables import Kind, Table, open_table

_SIMPLE = {
    str(kind): kind
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.date32(), pa.date64(), pa.dictionary(pa.int32(), pa.string())),
        pa.dictionary(pa.uint32(), pa.large_string()),  # what polars makes of its categoricals
        *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    )
}
DTYPE = re.compile(
    r"(u?int(8|16|32|64)|U?Int(8|16|32|64)|[Ff]loat(32|64)|bool|boolean|object|str|string|category"
    r"|datetime64\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,64})?\])"
)
"""The pandas dtypes that a layout may hold."""

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([A-Za-z0-9_+:/-]{1,64})\]")


class ColumnLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one column is stored: its Arrow type, and its pandas dtype where it came from a data frame."""

    name: str
    type: str
    dtype: str | None = None


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the table that came in was stored, so that the synthetic one comes out alike."""

    kind: Literal["csv", "parquet", "pandas", "polars", "arrow"]
    columns: tuple[ColumnLayout, ...]


def layout_of(table: Table, schema: Schema) -> Layout:
    """The layout to imitate, column by column where that storage can hold the public domain.

    The schema decides between whole and real numbers: pandas stores whole ones as real as soon as one is
    missing, and that must not show.
    """
    by_name = {column.name: column for column in schema.columns}
    columns = []
    for name, arrow_type, dtype in zip(table.names, table.types, table.dtypes, strict=True):
        column = by_name[name]
        stored = ColumnLayout(name, str(_output_type(column, arrow_type)))
        if dtype is not None:
            stored = ColumnLayout(name, str(_pandas_type(column, dtype)), _output_dtype(column, dtype))
        if not _survives(stored, column, table.kind):
            stored = ColumnLayout(name, str(_output_type(column, None)))
        columns.append(stored)
    return Layout(table.kind, tuple(columns))


def _survives(stored: ColumnLayout, column: Column, kind: Kind) -> bool:
    """Whether the ends of a column's public domain, and a value between, come back whole from this storage;
    the time to find out is before anything is spent."""
    if isinstance(column, Id):
        return stored.type in _SIMPLE
    alone, layout = Schema(columns=(column,)), Layout(kind, (stored,))
    last = column.cells - 1 if isinstance(column, Discrete) else column.steps
    codes = np.array([0, last // 3, last] + [MISSING] * column.missing)
    try:
        out = to_kind(decode(Records(rows=len(codes), codes={column.name: codes}), alone, layout), layout)
        (back,) = EncodedTable(open_table(out), alone)
    except Exception:  # Arrow, pandas and polars each have their own ways to refuse a value
        return False
    # Numbers are rounded on the way out.
    slack = column.steps / 1e5 if isinstance(column, Number) else 0
    return bool(np.all(np.abs(back.codes[column.name] - codes) <= slack))


def decode(records: Records, schema: Schema, layout: Layout, *, first_id: int = 1) -> pa.Table:
    """The records as an Arrow table."""
    by_name = {column.name: column for column in schema.columns}
    arrays, fields = [], []
    for stored in layout.columns:
        column = by_name[stored.name]
        if isinstance(column, Id):
            plain = pa.array(np.arange(first_id, first_id + records.rows))
        else:
            plain = _plain(records.codes[column.name], column)
        arrow_type = arrow_type_named(stored.type)
        arrays.append(_stored(plain, arrow_type, column))
        fields.append(pa.field(stored.name, arrow_type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def to_kind(table: pa.Table, layout: Layout) -> Any:
    """The table as the kind of object that came in; an Arrow table where that was a file."""
    if layout.kind == "pandas":
        frame = table.to_pandas()
        dtypes = {stored.name: stored.dtype for stored in layout.columns if stored.dtype is not None}
        return frame.astype({name: dtype for name, dtype in dtypes.items() if str(frame[name].dtype) != dtype})
    if layout.kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def arrow_type_named(name: str) -> pa.DataType:
    """The Arrow type with this name, among those that a layout may hold.

    >>> arrow_type_named("timestamp[us, tz=UTC]")
    TimestampType(timestamp[us, tz=UTC])
    """
    if name in _SIMPLE:
        return _SIMPLE[name]
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], tz=zoned[2])
    raise ReleaseError("the release names a column type that this version does not know")


def _plain(codes: NDArray[np.int64], column: Column) -> pa.Array:
    """The values in the natural Arrow type of the column."""
    missing = codes == MISSING
    match column:
        case Category(values=values):
            return pa.array(values, type=pa.string()).take(pa.array(codes, mask=missing))
        case Boolean():
            return pa.array(codes == 1, mask=missing)
        case Integer(min=low):
            return pa.array(codes + low, mask=missing)
        case Number(min=low, max=high):
            # The middle of the step, to as many digits as tell a millionth of the range.
            digits = int(np.clip(6 - np.floor(np.log10(high - low)), -300, 300))
            numbers = low + (codes + 0.5) / column.steps * (high - low)
            rounded = np.round(numbers, digits) if -15 < digits < 15 else numbers
            return pa.array(np.clip(rounded, low, high), mask=missing)
        case Datetime():
            unit = int(column.unit.total_seconds())
            start = int((column.start - datetime(1970, 1, 1)).total_seconds())
            return pa.array(codes * unit + start, mask=missing).cast(pa.timestamp("s"))
    raise AssertionError(column)


def _stored(plain: pa.Array, arrow_type: pa.DataType, column: Column) -> pa.Array:
    if isinstance(column, Datetime):
        if not pa.types.is_temporal(arrow_type):
            whole_days = column.unit.days == 1
            plain = pc.strftime(plain, "%Y-%m-%d" if whole_days else "%Y-%m-%dT%H:%M:%S")
        elif pa.types.is_date(arrow_type):
            plain = plain.cast(pa.date32())
        elif arrow_type.tz:
            plain = plain.cast(pa.timestamp("s", tz="UTC"))
    if isinstance(column, Boolean) and pa.types.is_floating(arrow_type):
        plain = plain.cast(pa.int8())
    if pa.types.is_dictionary(arrow_type):
        return plain.cast(arrow_type.value_type).dictionary_encode().cast(arrow_type)
    return plain.cast(arrow_type)


def _output_type(column: Column, came: pa.DataType | None) -> pa.DataType:
    """The type a column comes out in, given the one it came in (None for CSV, which has none)."""
    types = pa.types
    text = came is not None and str(came) in ("string", "large_string", "string_view")
    match column:
        case Category():
            if came is None:
                return pa.string()
            if types.is_dictionary(came):
                return came if str(came) in _SIMPLE else pa.dictionary(pa.int32(), pa.string())
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
