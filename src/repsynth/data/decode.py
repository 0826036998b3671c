"""From codes back to cells: synthetic records in the storage types and column order of the table they imitate."""

from datetime import timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.anew import make_ids
from repsynth.data.encode import TICKS
from repsynth.data.layout import PYARROW, Layout, arrow_type_named
from repsynth.data.notation import EPOCH, Notation, date_format, special_values
from repsynth.data.positions import seconds_at, usual, values_at
from repsynth.data.records import MISSING, Records
from repsynth.data.sources.base import is_text
from repsynth.errors import ReleaseError
from repsynth.schema import Category, Column, Datetime, Discrete, Id, Numeric, Schema


def decode(
    records: Records, schema: Schema, layout: Layout, *, first_id: int = 1, seed: int = 0, compact: bool = False
) -> pa.Table:
    """The records as an Arrow table, with ids from the `first_id` on; `seed` decides how those look that have a
    form. A `compact` one has categories as a dictionary where they are text, which writers make use of."""
    by_name = {column.name: column for column in schema.columns}
    arrays, fields = [], []
    for stored in layout.columns:
        column = by_name[stored.name]
        arrow_type = arrow_type_named(stored.type)
        values = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
        if isinstance(column, Id):
            cells = make_ids(column, records.rows, first=first_id, seed=seed).cast(values)
        elif compact and isinstance(column, Category) and arrow_type in (pa.string(), pa.large_string()):
            cells = _compact(records.codes[column.name], column, arrow_type)
            values = arrow_type = cells.type
        elif isinstance(column, Discrete):
            cells = _discrete(records.codes[column.name], column, values)
        else:
            cells = _numeric(records.codes[column.name], column, values)
        arrays.append(cells if values == arrow_type else _dictionary(cells, column, arrow_type))
        fields.append(pa.field(stored.name, arrays[-1].type))
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def stored_schema(layout: Layout) -> pa.Schema:
    """The Arrow types of a table of this layout."""
    return pa.schema([pa.field(stored.name, arrow_type_named(stored.type)) for stored in layout.columns])


def to_kind(table: pa.Table, layout: Layout) -> Any:
    """The table as the kind of object that came in; an Arrow table where that was a file."""
    if layout.kind == "pandas":
        return _to_pandas(table, layout)
    if layout.kind == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def _to_pandas(table: pa.Table, layout: Layout) -> Any:
    frame = table.to_pandas()
    dtypes = {stored.name: stored.dtype for stored in layout.columns if stored.dtype not in (None, PYARROW)}
    frame = frame.astype({name: dtype for name, dtype in dtypes.items() if str(frame[name].dtype) != dtype})
    for stored in layout.columns:
        if stored.dtype == PYARROW:
            import pandas

            frame[stored.name] = pandas.arrays.ArrowExtensionArray(table[stored.name])
    return frame


def _dictionary(cells: pa.Array, column: Column, arrow_type: pa.DataType) -> pa.Array:
    most = column.size if isinstance(column, Discrete) else 2**31
    if most > 2 ** (arrow_type.index_type.bit_width - 1):
        raise ReleaseError("a column's type cannot hold its values")
    return cells.dictionary_encode().cast(arrow_type)


def _compact(codes: Ints, column: Category, arrow_type: pa.DataType) -> pa.Array:
    places = codes.astype(np.int16 if column.size < 2**15 else np.int32)
    values = pa.array(column.values, type=arrow_type)
    return pa.DictionaryArray.from_arrays(_masked(places, codes == MISSING), values)


def _masked(values: Any, missing: Bools) -> pa.Array:
    """Arrow copies what has a mask."""
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def _discrete(codes: Ints, column: Discrete, arrow_type: pa.DataType) -> pa.Array:
    missing = codes == MISSING
    if isinstance(column, Category):
        return pa.array(column.values, type=pa.string()).cast(arrow_type).take(_masked(codes, missing))
    truth = _masked(codes == 1, missing)
    return (truth.cast(pa.int8()) if pa.types.is_floating(arrow_type) else truth).cast(arrow_type)


def _numeric(codes: Ints, column: Numeric, arrow_type: pa.DataType) -> pa.Array:
    """Numbers or times in storage of their own kind or as text, and the special values among them."""
    other = (codes == MISSING) | (codes > column.steps)
    positions = usual(np.where(other, 0, codes) if other.any() else codes, column)
    if is_text(arrow_type) or (isinstance(column, Datetime) and not pa.types.is_temporal(arrow_type)):
        cells = _texts(positions, other, column).cast(arrow_type)
        special = pa.array(column.special, type=pa.string()).cast(arrow_type)
    elif isinstance(column, Datetime):
        cells = _as_times(seconds_at(positions, column), other, arrow_type)
        special = _as_times(*_complete(column), arrow_type)
    else:
        cells = _as_numbers(values_at(positions, column), other, arrow_type)
        special = _as_numbers(*_complete(column), arrow_type)
    if not column.special:
        return cells
    which = pa.array(codes - column.steps - 1, mask=codes <= column.steps)
    return pc.coalesce(special.take(which), cells)


def _complete(column: Numeric) -> tuple[Floats, Bools]:
    """All special values as numbers, and that none of them is missing."""
    values = [value for value in special_values(column) if value is not None]
    if len(values) < len(column.special):
        raise ReleaseError("a column's type cannot hold its special values")
    return np.array(values, dtype=np.float64), np.zeros(len(values), dtype=np.bool_)


def _as_numbers(values: Any, missing: Bools, arrow_type: pa.DataType) -> pa.Array:
    if pa.types.is_duration(arrow_type):
        ticks = _masked(np.rint(values * float(TICKS[arrow_type.unit])), missing)
        return ticks.cast(pa.int64()).cast(arrow_type)
    if pa.types.is_decimal(arrow_type):
        values = values.astype(np.float64)
    return _masked(values, missing).cast(arrow_type)


def _as_times(seconds: Ints | Floats, missing: Bools, arrow_type: pa.DataType) -> pa.Array:
    times = _masked(seconds.astype(np.int64), missing).cast(pa.timestamp("s"))
    if pa.types.is_date(arrow_type):
        times = times.cast(pa.date32())
    elif pa.types.is_timestamp(arrow_type) and arrow_type.tz:
        times = times.cast(pa.timestamp("s", tz="UTC"))
    return times.cast(arrow_type)


def _texts(positions: Ints, missing: Bools, column: Numeric) -> pa.Array:
    """What a person would have written: each different value once."""
    distinct, place = np.unique(positions, return_inverse=True)
    if not isinstance(column, Datetime):
        write = Notation.of(column).write
        written = pa.array([write(value) for value in values_at(distinct, column).tolist()], pa.string())
    elif form := date_format(column):
        times = (EPOCH + timedelta(seconds=second) for second in seconds_at(distinct, column).tolist())
        written = pa.array([form.write(time) for time in times], pa.string())
    else:
        times = pa.array(seconds_at(distinct, column)).cast(pa.timestamp("s"))
        written = pc.strftime(times, "%Y-%m-%d" if column.unit.days == 1 else "%Y-%m-%dT%H:%M:%S")
    return written.take(pa.array(place, mask=missing))
