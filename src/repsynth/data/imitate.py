"""Which layout the synthetic table gets: that of the table that came in, where it can hold the public domain."""

import re
from datetime import timedelta

import numpy as np
import pyarrow as pa

from repsynth.data.decode import decode, to_kind
from repsynth.data.encode import TICKS, EncodedTable
from repsynth.data.layout import PYARROW, SIMPLE, ColumnLayout, Layout, arrow_type_named
from repsynth.data.notation import has_form, special_values
from repsynth.data.positions import usual
from repsynth.data.records import MISSING, Records
from repsynth.data.sources import Source, open_source
from repsynth.data.sources.base import kind_of, reads_as_text
from repsynth.schema import Boolean, Category, Column, Datetime, Discrete, Id, Integer, Number, Numeric, Schema
from repsynth.schema.dates import DateFormat
from repsynth.schema.id_formats import IdFormat

TEXTS = ("string", "large_string", "string_view")
_CHOSEN = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean|string|category")
"""The pandas dtypes that pandas gives to no column by itself, nor takes from one because of a cell."""


def layout_of(source: Source, schema: Schema) -> Layout:
    """The layout to imitate, column by column where that storage can hold the public domain.

    A layout is published, so no cell may have a say in it. Arrow, polars and Parquet columns have a declared
    type, and so have pandas columns whose dtype somebody chose. The other dtypes are what pandas made of the
    cells: one that is missing turns whole numbers into real ones, and an odd one turns any column into objects.
    There the schema alone decides, and so it does in Arrow tables and Parquet files that pandas made of them.
    """
    by_name = {column.name: column for column in schema.columns}
    columns = []
    for name, arrow_type, dtype in zip(source.names, source.types, source.dtypes, strict=True):
        column = by_name[name]
        if dtype is None:
            stored = ColumnLayout(name, str(_output_type(column, arrow_type)))
        elif source.kind != "pandas":
            stored = ColumnLayout(name, str(_recorded_type(column, arrow_type, dtype)))
        elif dtype.endswith("[pyarrow]"):
            stored = ColumnLayout(name, str(_pandas_arrow_type(column, arrow_type)), PYARROW)
        else:
            chosen = dtype if _CHOSEN.fullmatch(dtype) else None
            stored = ColumnLayout(name, str(_pandas_type(column, chosen)), _output_dtype(column, chosen))
        if not _survives(stored, column, source.kind):
            kept = PYARROW if stored.dtype == PYARROW else None
            stored = ColumnLayout(name, str(_plain_type(column)), kept)
        columns.append(stored)
    return Layout(source.kind, tuple(columns))


def _survives(stored: ColumnLayout, column: Column, kind: str) -> bool:
    """Whether the ends of a column's public domain, a value between and the special ones come back whole from this
    storage; the time to find out is before anything is spent."""
    if isinstance(column, Id):
        return stored.type in SIMPLE
    alone, layout = Schema(columns=(column,)), Layout(kind, (stored,))
    last = column.size - 1 if isinstance(column, Discrete) else column.steps
    codes = np.array([0, last // 3, last])
    if not isinstance(column, Discrete):
        codes = np.append(usual(codes, column), np.arange(last + 1, column.positions))
    codes = np.append(codes, [MISSING] * column.missing).astype(np.int64)
    try:
        if kind_of(arrow_type_named(stored.type)) == "numbers" and not reads_as_text(column, "numbers"):
            return False
        out = to_kind(decode(Records(rows=len(codes), codes={column.name: codes}), alone, layout), layout)
        (back,) = EncodedTable(open_source(out), alone)
    except Exception:  # Arrow, pandas and polars each have their own ways to refuse a value
        return False
    slack = np.where(codes > last, 0, _slack(column, arrow_type_named(stored.type)))
    return bool(np.all(np.abs(back.codes[column.name] - codes) <= slack))


def _slack(column: Column, arrow_type: pa.DataType) -> float:
    """By how many positions a value may move on its way out and in: numbers without a grid are rounded, and what
    came as decimals or spans of time was so already; a form of dates may leave out the seconds."""
    if isinstance(column, Number) and not column.on_grid:
        finest = 10.0**-arrow_type.scale if pa.types.is_decimal(arrow_type) else 0.0
        finest = 1 / TICKS[arrow_type.unit] if pa.types.is_duration(arrow_type) else finest
        return max(column.steps / 1e5, finest / column.unit)
    if isinstance(column, Datetime) and column.dates and column.unit < timedelta(days=1):
        return DateFormat(column.dates).seconds - 1
    return 0


def _output_type(column: Column, came: pa.DataType | None) -> pa.DataType:
    """The type a column comes out in, given the one it came in (None for CSV, which has none)."""
    types = pa.types
    text = came is not None and str(came) in TEXTS
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
        case Integer() | Number() | Datetime():
            return _numeric_type(column, came)
        case Id():
            if column.is_text:
                whole = column.format is not None and IdFormat(column.format).whole_number
                kept = text or (came == pa.int64() and whole)
                return came if kept else pa.string()
            return came if came is not None and (text or types.is_integer(came)) else pa.int64()


def _numeric_type(column: Numeric, came: pa.DataType | None) -> pa.DataType:
    types = pa.types
    if came is None:
        return _csv_type(column)
    plain = _plain_type(column)
    if types.is_dictionary(came) and _is_text(came):
        wide = str(came) in SIMPLE and came.index_type.bit_width >= 32
        came = came if wide else pa.dictionary(pa.int32(), pa.string())
        return came if has_form(column) or plain == pa.string() else plain
    if str(came) in TEXTS:
        return came if has_form(column) or plain == pa.string() else plain
    if (
        isinstance(column, Datetime)
        and column.dates
        and DateFormat(column.dates).is_number
        and types.is_integer(came)
    ):
        return came
    if None in special_values(column):
        return plain
    match column:
        case Integer():
            whole = types.is_integer(came) and _holds(came, (column.min, column.max))
            return came if whole or types.is_duration(came) or types.is_decimal(came) else plain
        case Number():
            return came if types.is_floating(came) or types.is_duration(came) or types.is_decimal(came) else plain
        case Datetime():
            return came if types.is_date(came) or types.is_timestamp(came) else pa.timestamp("us")


def _plain_type(column: Column) -> pa.DataType:
    """A type that holds a column's public domain, whatever it came in: text where a special value is a word."""
    if not isinstance(column, Integer | Number | Datetime):
        return _output_type(column, None)
    special = special_values(column)
    if isinstance(column, Datetime) or None in special:
        return pa.string()
    return pa.int64() if isinstance(column, Integer) and _holds(pa.int64(), column.special) else pa.float64()


def _csv_type(column: Numeric) -> pa.DataType:
    """In a CSV file numbers stand as they are declared: with their form and all their decimals."""
    plain = _plain_type(column)
    if has_form(column):
        return pa.string()
    if isinstance(column, Number) and column.decimals and pa.types.is_floating(plain):
        digits = len(str(int(max(abs(column.min), abs(column.max)))))
        return pa.string() if column.special else pa.decimal128(digits + column.decimals, column.decimals)
    return plain


def _pandas_type(column: Column, chosen: str | None) -> pa.DataType:
    """The Arrow type on the way to a data frame: by the schema, and by whether text was chosen."""
    numbers = chosen is None or chosen[:1].isupper()
    match column:
        case Category():
            return pa.int64() if numbers and _holds(pa.int64(), column.values) else pa.string()
        case Id():
            return pa.int64() if numbers and not column.is_text else pa.string()
        case Boolean():
            return pa.bool_()
    if chosen in ("string", "category") or has_form(column):
        return _output_type(column, pa.string())
    return _output_type(column, pa.timestamp("us")) if isinstance(column, Datetime) else _plain_type(column)


def _recorded_type(column: Column, came: pa.DataType, dtype: str) -> pa.DataType:
    """The type of an Arrow column that pandas made of one of its own: a category's width, say, is the number of
    its values."""
    if not _CHOSEN.fullmatch(dtype):
        return _pandas_type(column, None)
    if dtype == "category":
        return _output_type(column, pa.dictionary(pa.int32(), pa.string()))
    kept = dtype == "string" and str(came) in TEXTS
    return _output_type(column, came if kept else pa.type_for_alias(dtype.lower()))


def _pandas_arrow_type(column: Column, came: pa.DataType) -> pa.DataType:
    """The type of a pandas column that is Arrow's: its kind of text where the column has a form."""
    formed = isinstance(column, Numeric) and has_form(column)
    return _output_type(column, pa.string() if formed and not _is_text(came) else came)


def _output_dtype(column: Column, chosen: str | None) -> str | None:
    """The pandas dtype to restore, None to leave it to pandas."""
    arrow_type = _pandas_type(column, chosen)
    if chosen is not None:
        text = isinstance(column, Numeric | Id) and str(arrow_type) in TEXTS
        return "string" if text and chosen != "category" else chosen
    missing = not isinstance(column, Id) and column.missing
    if pa.types.is_integer(arrow_type):
        return "float64" if missing else "int64"
    if pa.types.is_boolean(arrow_type):
        return None if missing else "bool"
    return {pa.float64(): "float64", pa.timestamp("us"): "datetime64[us]"}.get(arrow_type)


def _is_text(arrow_type: pa.DataType) -> bool:
    return str(arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type) in TEXTS


def _holds(arrow_type: pa.DataType, values: tuple[object, ...]) -> bool:
    """Whether all these public values can be stored in the type."""
    try:
        pa.array([str(value) for value in values]).cast(arrow_type)
    except pa.ArrowException:
        return False
    return True
