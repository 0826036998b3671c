"""The only gate: every cell becomes a code of a declared value or a position between the bounds.

What cannot be read (missing, not a number, infinite, an unknown category) becomes the sentinel
`MISSING`; what is out of bounds is clipped to the bound. No value of a cell can raise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from repsynth.data.records import MISSING, Records
from repsynth.data.sources import Source, object_text
from repsynth.schema import Boolean, Category, Datetime, Discrete, Integer, Numeric, Schema

_NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?$"
_TIME = r"^\d{4}-\d{2}-\d{2}([ T]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?$"
_EPOCH = datetime(1970, 1, 1)
_TRUE = ["true", "t", "yes", "y", "1", "1.0"]
_FALSE = ["false", "f", "no", "n", "0", "0.0"]


@dataclass(frozen=True)
class EncodedTable:
    """A table seen through its schema: batches of records, encoded as they are read."""

    source: Source
    schema: Schema

    def __iter__(self) -> Iterator[Records]:
        for batch in self.source.batches([column.name for column in self.schema.learned]):
            yield encode_batch(batch, self.schema)


def encode_batch(batch: pa.RecordBatch, schema: Schema) -> Records:
    """Encode the learned columns of a batch.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=17, max=90),))
    >>> encode_batch(pa.record_batch({"age": ["40", "7", "forty", None]}), schema).codes["age"].tolist()
    [23, 0, -1, -1]
    """
    codes = {column.name: _encode(batch.column(column.name), column) for column in schema.learned}
    return Records(rows=batch.num_rows, codes=codes)


def _encode(array: pa.Array, column: Discrete | Numeric) -> NDArray[np.int64]:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    match column:
        case Category():
            return _codes(read_text(array), column.values)
        case Boolean():
            code = _codes(pc.ascii_lower(read_text(array)), (*_FALSE, *_TRUE))
            return np.where(code == MISSING, MISSING, code // len(_FALSE))
        case Datetime():
            return _time_positions(array, column)
        case Integer():
            return _positions(np.rint(read_numbers(array)), column.min, column.max, 1.0)
        case _:
            return _positions(
                read_numbers(array), column.min, column.max, column.steps / (column.max - column.min)
            )


def _codes(texts: pa.Array, values: tuple[str, ...]) -> NDArray[np.int64]:
    found = pc.index_in(texts, value_set=pa.array(values, type=pa.large_string()), skip_nulls=True)
    return _ints(found, null=MISSING)


def _positions(values: NDArray[np.float64], low: float, high: float, scale: float) -> NDArray[np.int64]:
    finite = np.isfinite(values)
    inside = np.clip(np.where(finite, values, low), low, high)
    return np.where(finite, np.floor((inside - low) * scale).astype(np.int64), MISSING)


def read_numbers(array: pa.Array) -> NDArray[np.float64]:
    """The numbers, NaN where a cell is none. Text is matched before it is parsed, so parsing cannot
    fail and no cell's reading depends on its neighbours."""
    if is_text(array.type):
        text = read_text(array)
        array = pc.if_else(pc.match_substring_regex(text, _NUMBER), text, None)
    elif not _is_number(array.type):
        array = pa.nulls(len(array))
    numbers = array.cast(pa.float64(), safe=False)
    result: NDArray[np.float64] = pc.fill_null(numbers, float("nan")).to_numpy(zero_copy_only=False)
    return result


def read_text(array: pa.Array) -> pa.Array:
    """The cells as text without the blanks around them; 1.0 reads as 1, bytes stay as they are."""
    if pa.types.is_floating(array.type):
        numbers = array.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
        as_whole = pc.if_else(whole, numbers, None).cast(pa.int64(), safe=False).cast(pa.large_string())
        return pc.if_else(pc.fill_null(whole, False), as_whole, _object_texts(numbers))
    if pa.types.is_temporal(array.type):
        return _object_texts(array)
    if is_text(array.type):
        array = array.cast(pa.large_binary()).cast(pa.large_string(), safe=False)
    return pc.ascii_trim_whitespace(array.cast(pa.large_string()))


def _object_texts(array: pa.Array) -> pa.Array:
    """The text that each value has as a Python object, so that a typed column reads like one of objects."""
    distinct = array.dictionary_encode()
    texts = [_value_text(value) for value in distinct.dictionary]
    return pa.array(texts, type=pa.large_string()).take(distinct.indices)


def _value_text(value: pa.Scalar) -> str | None:
    try:
        return object_text(value.as_py())
    except (ValueError, OverflowError):  # a time that Python cannot hold
        return None


def _time_positions(array: pa.Array, column: Datetime) -> NDArray[np.int64]:
    seconds = read_seconds(array)
    start = int((column.start - _EPOCH).total_seconds())
    unit = int(column.unit.total_seconds())
    missing = pc.is_null(seconds).to_numpy(zero_copy_only=False)
    since_start = np.clip(_ints(seconds, null=0), -(2**52), 2**52) - start
    return np.where(missing, MISSING, np.clip(since_start, 0, column.steps * unit) // unit)


def read_seconds(array: pa.Array) -> pa.Array:
    """Seconds since 1970 (UTC), null where a cell is no time."""
    if pa.types.is_date(array.type):
        days = array.cast(pa.date32(), safe=False).cast(pa.int32())
        return pc.multiply(days.cast(pa.int64()), 86_400)
    if pa.types.is_timestamp(array.type):
        per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[array.type.unit]
        ticks = array.cast(pa.int64())
        return pa.array(_ints(ticks, null=0) // per_second, mask=ticks.is_null().to_numpy(zero_copy_only=False))
    text = read_text(array)
    distinct = pc.if_else(pc.match_substring_regex(text, _TIME), text, None).dictionary_encode()
    parsed = pa.array([_parse_seconds(value) for value in distinct.dictionary.to_pylist()], type=pa.int64())
    return parsed.take(distinct.indices)


def _parse_seconds(text: str) -> int | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    offset = time.utcoffset() or timedelta()
    return (time.replace(tzinfo=None) - _EPOCH - offset) // timedelta(seconds=1)


def _ints(array: pa.Array, *, null: int) -> NDArray[np.int64]:
    result: NDArray[np.int64] = pc.fill_null(array, null).to_numpy(zero_copy_only=False).astype(np.int64)
    return result


def _is_number(arrow_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type))


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether a column of this type holds text or bytes."""
    types = pa.types
    text = types.is_string(arrow_type) or types.is_large_string(arrow_type) or types.is_string_view(arrow_type)
    binary = types.is_binary(arrow_type) or types.is_large_binary(arrow_type)
    return bool(text or binary or types.is_binary_view(arrow_type) or types.is_fixed_size_binary(arrow_type))
