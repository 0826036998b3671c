"""From codes back to cells: synthetic records in the Arrow types of their schema."""

from datetime import timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.ids import make_ids
from repsynth.data.positions import seconds_at, usual, values_at
from repsynth.data.records import MISSING, Records
from repsynth.data.source import is_text
from repsynth.data.values import EPOCH, Notation, date_format, has_form, numbers_of, special_values
from repsynth.schema import Boolean, Category, Column, Datetime, Discrete, Id, Integer, Number, Numeric, Schema
from repsynth.schema.columns import is_whole_number

Kind = Literal["pandas", "polars", "arrow"]  # what a synthetic table comes as

_DAY = 86_400


def arrow_schema(schema: Schema, *, csv: bool = False) -> pa.Schema:
    """Return the Arrow types of a synthetic table; for a `csv` file, those whose text is the declared one."""
    return pa.schema([(column.name, (_csv_type if csv else arrow_type)(column)) for column in schema.columns])


def arrow_type(column: Column) -> pa.DataType:
    """Return the type of a synthetic column: the declared `storage`, else one by the column's type and domain.

    >>> arrow_type(Category(name="smoker", values=("0", "1")))
    DataType(int64)
    """
    if column.storage is not None:
        return pa.type_for_alias(column.storage)
    match column:
        case Category():
            whole = all(map(is_whole_number, column.values))
            return pa.int64() if whole else pa.dictionary(pa.int32(), pa.string())
        case Boolean():
            return pa.bool_()
        case Id():
            return pa.string()
    special = special_values(column)
    if has_form(column) or None in special or numbers_of(column.special) is None:
        return pa.string()
    numbers = np.array(special, dtype=np.float64)
    if isinstance(column, Datetime):
        days = column.unit.days == 1 and not (numbers % _DAY).any()
        return pa.date32() if days else pa.timestamp("s")
    return pa.int64() if isinstance(column, Integer) and not (numbers % 1).any() else pa.float64()


def _csv_type(column: Column) -> pa.DataType:
    """Numbers have all their declared decimals in a CSV file, and times a T before the clock."""
    plain = arrow_type(column)
    if isinstance(column, Number) and column.decimals and pa.types.is_floating(plain):
        digits = len(str(int(max(abs(column.min), abs(column.max)))))
        return pa.string() if column.special else pa.decimal128(digits + column.decimals, column.decimals)
    return pa.string() if pa.types.is_timestamp(plain) else plain


def decode(records: Records, schema: Schema, *, first_id: int = 1, seed: int = 0, csv: bool = False) -> pa.Table:
    """Return the records as an Arrow table of `arrow_schema`, with ids from the `first_id` on. `seed` decides
    which ids a format gets."""
    types = arrow_schema(schema, csv=csv)
    arrays = []
    for column, kind in zip(schema.columns, types.types, strict=True):
        if isinstance(column, Id):
            arrays.append(make_ids(column, records.rows, first=first_id, seed=seed).cast(kind))
        elif isinstance(column, Discrete):
            arrays.append(_discrete(records.codes[column.name], column, kind))
        else:
            arrays.append(_numeric(records.codes[column.name], column, kind))
    return pa.Table.from_arrays(arrays, schema=types)


def to_kind(table: pa.Table, schema: Schema, kind: Kind) -> Any:
    """Return the table as a pandas or polars data frame, or as it is."""
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return _to_pandas(table, schema) if kind == "pandas" else table


def _to_pandas(table: pa.Table, schema: Schema) -> Any:
    """Whole numbers and booleans are nullable where the schema says `missing`, whatever cells were drawn."""
    import pandas

    def nullable(kind: pa.DataType) -> Any:
        name = "boolean" if pa.types.is_boolean(kind) else str(kind).replace("int", "Int").replace("u", "U")
        return pandas.api.types.pandas_dtype(name)

    frame = table.to_pandas(date_as_object=False)
    for column in schema.columns:
        kind = table.schema.field(column.name).type
        if (
            not isinstance(column, Id)
            and column.missing
            and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))
        ):
            frame[column.name] = table[column.name].to_pandas(types_mapper=nullable)
    return frame


def _masked(values: Any, missing: Bools) -> pa.Array:
    """Arrow copies what has a mask."""
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def _discrete(codes: Ints, column: Discrete, kind: pa.DataType) -> pa.Array:
    missing = codes == MISSING
    if isinstance(column, Boolean):
        return _masked(codes == 1, missing).cast(kind)
    values = pa.array(column.values, type=pa.string())
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(_masked(codes.astype(np.int32), missing), values)
    return values.cast(kind).take(_masked(codes, missing))


def _numeric(codes: Ints, column: Numeric, kind: pa.DataType) -> pa.Array:
    """Numbers or times in storage of their own kind or as text, and the special values among them."""
    other = (codes == MISSING) | (codes > column.steps)
    positions = usual(np.where(other, 0, codes) if other.any() else codes, column)
    if is_text(kind):
        cells = _texts(positions, other, column).cast(kind)
        special = pa.array(column.special, type=kind)
    else:
        values = seconds_at(positions, column) if isinstance(column, Datetime) else values_at(positions, column)
        numbers = np.array(special_values(column), dtype=np.float64)
        cells, special = _as_stored(values, other, kind), _as_stored(numbers, np.isnan(numbers), kind)
    if not column.special:
        return cells
    which = pa.array(codes - column.steps - 1, mask=codes <= column.steps)
    return pc.coalesce(special.take(which), cells)


def _as_stored(values: Ints | Floats, missing: Bools, kind: pa.DataType) -> pa.Array:
    """Numbers, or times in seconds since 1970."""
    if pa.types.is_temporal(kind):
        return _masked(values.astype(np.int64), missing).cast(pa.timestamp("s")).cast(kind)
    if pa.types.is_decimal(kind):
        values = values.astype(np.float64)
    return _masked(values, missing).cast(kind)


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
