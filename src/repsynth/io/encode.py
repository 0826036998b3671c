"""Encode tables. Every cell becomes the code of a declared value or a position between the bounds.

A special value of a numeric column has a code after the positions. Unreadable cells (missing, not a number,
infinite, an unknown category) become `MISSING`. Numbers out of bounds are clipped. No cell can raise.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.io.records import MISSING, Records
from repsynth.io.source import CELLS, is_number, is_text, read_cell
from repsynth.io.sources import Source
from repsynth.io.values import (
    EPOCH,
    ISO_TIME,
    ODD_NUMBER,
    PLAIN,
    Notation,
    date_format,
    numbers_of,
    odd_number,
    positions_of,
    seconds_of,
    special_seconds,
)
from repsynth.schema import Boolean, Category, Datetime, Discrete, Integer, Number, Numeric, Schema
from repsynth.schema.columns import plain_number
from repsynth.schema.formats import DateFormat

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # how many of a unit are a second

_TRUE = ["true", "t", "yes", "y"]
_FALSE = ["false", "f", "no", "n"]


@dataclass(frozen=True)
class EncodedTable:
    """A table seen through its schema: batches of records, encoded as they are read."""

    source: Source
    schema: Schema

    def __iter__(self) -> Iterator[Records]:
        for batch in self.batches():
            yield self.encode(batch)
        self.check_whole()

    def batches(self) -> Iterator[pa.RecordBatch]:
        return self.source.batches([column.name for column in self.schema.learned])

    def encode(self, batch: pa.RecordBatch) -> Records:
        return encode_batch(batch, self.schema)

    def check_whole(self) -> None:
        """Refuse a table that changed while it was read. Called after the last batch."""


def encode_batch(batch: pa.RecordBatch, schema: Schema) -> Records:
    """Encode the learned columns of a batch.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=17, max=90),))
    >>> encode_batch(pa.record_batch({"age": ["40", "7", "forty", None]}), schema).codes["age"].tolist()
    [23, 0, -1, -1]
    """
    codes = {column.name: _encode(batch.column(column.name), column) for column in schema.learned}
    return Records(rows=batch.num_rows, codes=codes)


def _encode(array: pa.Array, column: Discrete | Numeric) -> Ints:
    if pa.types.is_dictionary(array.type) and len(array.dictionary) <= len(array):
        codes = np.append(_encode(array.dictionary, column), MISSING)  # each different cell once
        return codes.take(_ints(array.indices.cast(pa.int64()), null=-1))
    array = plain_array(array)
    match column:
        case Category():
            quick = _as_written(array, column.values)
            return _category(array, column.values) if quick is None else quick
        case Boolean():
            code = _codes(pc.ascii_lower(read_text(array)), (*_FALSE, *_TRUE))
            return _or_number(array, np.where(code == MISSING, MISSING, code // len(_FALSE)), [0.0, 1.0])
        case Integer() | Number() | Datetime():
            positions = _positions(array, column)
            if not column.special:
                return positions
            special = _special(array, column)
            return np.where(special == MISSING, positions, column.steps + 1 + special)


def plain_array(array: pa.Array) -> pa.Array:
    """Return the cells in plain storage: out of dictionaries, runs of equal cells, extension types and views.

    >>> plain_array(pa.array(["a", "b", "a"]).dictionary_encode()).type
    DataType(string)
    """
    types = pa.types
    if types.is_dictionary(array.type):
        return plain_array(array.dictionary).take(array.indices)
    if types.is_run_end_encoded(array.type):
        places = np.arange(array.offset, array.offset + len(array))
        run = np.searchsorted(array.run_ends.to_numpy(), places, side="right")
        return plain_array(array.values).take(pa.array(run))
    if isinstance(array.type, pa.BaseExtensionType):
        return plain_array(array.storage)
    if types.is_string_view(array.type) or types.is_binary_view(array.type):  # cannot be taken from
        return array.cast(pa.large_string() if types.is_string_view(array.type) else pa.large_binary())
    return array


def _category(array: pa.Array, values: tuple[str, ...]) -> Ints:
    """Match each cell by its text; "1.0" and "01" are the value 1 unless a value depends on how it is written."""
    numbers = numbers_of(values)
    found = _codes(read_text(array), values)
    return found if numbers is None else _or_number(array, found, numbers)


def _or_number(array: pa.Array, found: Ints, numbers: Sequence[float | None]) -> Ints:
    """Match the cells that are not found yet as numbers."""
    left = np.flatnonzero(found == MISSING)
    if len(left) and any(number is not None for number in numbers):
        found[left] = _find(read_numbers(array.take(pa.array(left))), numbers)
    return found


def _codes(texts: pa.Array, values: tuple[str, ...]) -> Ints:
    found = pc.index_in(texts, value_set=pa.array(values, type=pa.large_string()), skip_nulls=True)
    return _ints(found, null=MISSING)


def _as_written(array: pa.Array, values: tuple[str, ...]) -> Ints | None:
    """Return the codes if all cells are bytes of declared values, else None. A fast path."""
    if not pa.types.is_binary(array.type) or any(value != value.strip() for value in values):
        return None
    found = pc.index_in(array, value_set=pa.array(values, type=pa.binary()), skip_nulls=True)
    return _ints(found, null=MISSING) if found.null_count == array.null_count else None


def _positions(array: pa.Array, column: Numeric) -> Ints:
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column))
        return np.where(_known(seconds), _time_positions(_ints(seconds, null=0), column), MISSING)
    return positions_of(read_numbers(array, Notation.of(column)), column)


def _special(array: pa.Array, column: Numeric) -> Ints:
    """Find each cell among the special values: by its text, else as a number or a time."""
    notation = PLAIN if isinstance(column, Datetime) else Notation.of(column)
    found = _find(read_numbers(array, notation), [plain_number(text) for text in column.special])
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column))
        time = _find(_ints(seconds, null=0), special_seconds(column))
        found = np.where(_known(seconds) & (time != MISSING), time, found)
    if is_text(array.type) or array.type == CELLS:
        text = _codes(_written(array), column.special)
        found = np.where(text == MISSING, found, text)
    return found


def _find(values: Ints | Floats, wanted: Sequence[float | None]) -> Ints:
    """Return the index of each value among the wanted ones, or `MISSING`."""
    order = sorted((value, k) for k, value in enumerate(wanted) if value is not None)
    if not order:
        return np.full(len(values), MISSING)
    ascending = np.array([value for value, _ in order])
    place = np.minimum(np.searchsorted(ascending, values), len(order) - 1)
    return np.where(ascending[place] == values, np.array([k for _, k in order])[place], MISSING)


def read_numbers(array: pa.Array, notation: Notation = PLAIN) -> Floats:
    """Read numbers; NaN where a cell is not a number. Text is matched before it is parsed, so parsing cannot fail
    and no cell affects its neighbours."""
    types = pa.types
    if array.type == CELLS:
        written = read_numbers(_written(array), notation)
        numbers = _part(array, "number")
        return np.where(_known(numbers), _floats(numbers), written)
    if is_text(array.type):
        quick = _all_numbers(array) if notation.is_plain else None
        if quick is None:
            return _written_numbers(read_text(array), notation)
        array = quick
    elif types.is_decimal(array.type):  # by way of text: straight on, the same number of another scale is another
        array = array.cast(pa.large_string())
    elif not is_number(array.type):
        array = pa.nulls(len(array))
    return _floats(array.cast(pa.float64(), safe=False))


def _written_numbers(texts: pa.Array, notation: Notation) -> Floats:
    """Read numbers from text, including forms that only some readers accept."""
    found = _floats(notation.plain(texts).cast(pa.float64(), safe=False))
    odd = np.flatnonzero(_trues(pc.match_substring_regex(texts, ODD_NUMBER)))
    if not odd.size:
        return found
    numbers = [odd_number(texts[int(place)].as_py()) for place in odd]
    result = found.copy()
    result[odd] = [np.nan if number is None else number for number in numbers]
    return result


def _trues(array: pa.Array) -> Bools:
    result: Bools = pc.fill_null(array, False).to_numpy(zero_copy_only=False)
    return result


def _all_numbers(array: pa.Array) -> pa.Array | None:
    """Return the numbers if Arrow reads every cell as one, else None. A fast path.

    Arrow reads what the notation matches, infinities (missing either way) and longer exponents.
    """
    if not pa.types.is_binary(array.type):
        return None
    data = array.buffers()[2]
    written = b"" if data is None else data.to_pybytes()
    if b"e" in written or b"E" in written:
        return None
    try:
        return array.cast(pa.string(), safe=False).cast(pa.float64())
    except pa.ArrowInvalid:  # its message quotes the cell
        return None


def read_text(array: pa.Array) -> pa.Array:
    """Read cells as trimmed text. The numbers 1.0 and 1.00 read as 1; bytes stay as they are."""
    types = pa.types
    if array.type == CELLS:
        return pc.ascii_trim_whitespace(_part(array, "text"))
    if types.is_floating(array.type):
        numbers = array.cast(pa.float64())
        whole = pc.and_(pc.equal(pc.trunc(numbers), numbers), pc.less(pc.abs(numbers), 2.0**53))
        as_whole = pc.if_else(whole, numbers, None).cast(pa.int64(), safe=False).cast(pa.large_string())
        return pc.if_else(pc.fill_null(whole, False), as_whole, _object_texts(numbers))
    if types.is_decimal(array.type):
        return _object_texts(array.cast(pa.large_string()), Decimal)
    if types.is_temporal(array.type):
        return _object_texts(array)
    if is_text(array.type):
        array = array.cast(pa.large_binary()).cast(pa.large_string(), safe=False)
    return pc.ascii_trim_whitespace(array.cast(pa.large_string()))


def _object_texts(array: pa.Array, kind: Callable[[Any], Any] = lambda value: value) -> pa.Array:
    """Read each value as the text of its Python object, so typed columns read like columns of objects."""
    distinct = array.dictionary_encode()
    texts = [_value_text(value, kind) for value in distinct.dictionary]
    return pa.array(texts, type=pa.large_string()).take(distinct.indices)


def _value_text(value: pa.Scalar, kind: Callable[[Any], Any]) -> str | None:
    try:
        return read_cell(kind(value.as_py())).text
    except (ValueError, OverflowError):  # a time that Python cannot hold
        return None


def _written(array: pa.Array) -> pa.Array:
    """The cells that are text."""
    if array.type != CELLS:
        return read_text(array)
    return pc.if_else(_part(array, "is_text"), read_text(array), None)


def _part(array: pa.StructArray, name: str) -> pa.Array:
    return array.flatten()[CELLS.get_field_index(name)]


def _time_positions(seconds: Ints, column: Datetime) -> Ints:
    start = int((column.start - EPOCH).total_seconds())
    unit = int(column.unit.total_seconds())
    since_start = np.clip(seconds, -(2**52), 2**52) - start
    return np.clip(since_start, 0, column.steps * unit) // unit


def read_seconds(array: pa.Array, dates: DateFormat | None = None) -> pa.Array:
    """Read seconds since 1970 (UTC); null where a cell is not a time. Text is in the given or the ISO format."""
    if array.type == CELLS:
        return pc.coalesce(_part(array, "seconds"), read_seconds(read_text(array), dates))
    if pa.types.is_date(array.type):
        days = array.cast(pa.date32(), safe=False).cast(pa.int32())
        return pc.multiply(days.cast(pa.int64()), 86_400)
    if pa.types.is_timestamp(array.type):
        ticks = array.cast(pa.int64())
        return pa.array(_ints(ticks, null=0) // _TICKS[array.type.unit], mask=~_known(ticks))
    text = read_text(array)
    if dates is not None and dates.is_number:  # whole numbers, also where storage made 20200131.0 of them
        text = read_text(pa.array(read_numbers(text), from_pandas=True))
    pattern = ISO_TIME if dates is None else f"(?i)^(?:{dates.pattern})$"
    distinct = pc.if_else(pc.match_substring_regex(text, pattern), text, None).dictionary_encode()
    parsed = pa.array([seconds_of(value, dates) for value in distinct.dictionary.to_pylist()], type=pa.int64())
    return parsed.take(distinct.indices)


def _known(array: pa.Array) -> Bools:
    result: Bools = array.is_valid().to_numpy(zero_copy_only=False)
    return result


def _floats(array: pa.Array) -> Floats:
    filled = pc.fill_null(array, float("nan")) if array.null_count else array
    result: Floats = filled.to_numpy(zero_copy_only=False)
    return result


def _ints(array: pa.Array, *, null: int) -> Ints:
    filled = pc.fill_null(array, null) if array.null_count else array
    result: Ints = filled.to_numpy(zero_copy_only=False).astype(np.int64)
    return result
