"""From codes back to cells: synthetic records in the storage types and column order of the table they imitate."""

from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Ints
from repsynth.data.layout import Layout, arrow_type_named
from repsynth.data.records import MISSING, Records
from repsynth.schema import Boolean, Category, Column, Datetime, Id, Integer, Number, Schema


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


def _plain(codes: Ints, column: Column) -> pa.Array:
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
