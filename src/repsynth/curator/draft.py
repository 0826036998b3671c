"""A draft schema read off the data: a convenience that is *not* private, and says so at every bound.

Its output is for the curator, who must confirm or replace each bound and category before `synthesize`
accepts it.
"""

import json
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.data.encode import is_text, read_numbers, read_seconds, read_text
from repsynth.data.sources import open_source
from repsynth.errors import DataError

_MARK = "# read from the data, not private: confirm or replace"
_MOST_CATEGORIES = 100
_FEW = 12
_NEARLY_ALL = 0.9
_FAR = 60_000_000_000  # seconds from 1970: the years 69 to 3871


def draft_schema(source: Any, *, label: str | None = None) -> str:
    """The text of a `schema.toml` to be completed by hand.

    >>> print(draft_schema(pa.table({"age": [30, 41, 52]})).splitlines()[-3])
    type = "integer"
    """
    table = _in_memory(source)
    if len(set(table.column_names)) < table.num_columns:
        raise DataError("a column name is used more than once; rename the columns first")
    if label is not None and label not in table.column_names:
        raise DataError("the label is not one of the columns; check its spelling")
    lines = [
        "# A draft, written by looking at the data. Bounds and categories below are NOT private as they stand:",
        "# an extreme value or a rare category is somebody's. Put in what is publicly known, then set",
        "# confirmed = true. Out-of-range values will be clipped, unknown categories will count as missing.",
        "confirmed = false",
        f"label = {_quoted(label)}" if label else '# label = "..."   # the column that analysts will predict',
    ]
    for name in table.column_names:
        plain = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
        key = name if plain else _quoted(name)
        lines += ["", f"[columns.{key}]", *_describe(table[name], is_label=name == label)]
    return "\n".join(lines) + "\n"


def _in_memory(source: Any) -> pa.Table:
    table = open_source(source)
    if table.kind == "csv" and len(table.names) == 1 and any(mark in table.names[0] for mark in ";\t|"):
        raise DataError(f"{source}: has one column only; is it separated by commas?")
    batches = list(table.batches(table.names))
    empty = [pa.array([], kind or pa.large_string()) for kind in table.types]
    read = pa.Table.from_batches(batches) if batches else pa.Table.from_arrays(empty, names=list(table.names))
    if table.kind == "csv":
        read = read.cast(pa.schema([(name, pa.large_string()) for name in table.names]))
        # The reader puts this mark in place of bytes that are no UTF-8 text.
        if any(pc.any(pc.match_substring(texts, "\ufffd")).as_py() for texts in read.columns):
            raise DataError(f"{source}: not UTF-8 text; convert the file to UTF-8 first")
    return read


def _describe(column: pa.ChunkedArray, *, is_label: bool) -> list[str]:
    """The keys of one column's table."""
    values = column.combine_chunks()
    values = values if isinstance(values, pa.Array) else pa.concat_arrays(values.chunks)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    values = values.drop_null()
    if is_text(values.type):
        values = values.filter(pc.not_equal(pc.ascii_trim_whitespace(values.cast(pa.large_string())), ""))
    missing = ["missing = true"] if len(values) < len(column) else []
    if not len(values):
        return [
            'type = "category"   # the column is empty in the data: declare its type',
            'values = ["?"]',
            *missing,
        ]
    if pa.types.is_boolean(values.type):
        return ['type = "boolean"', *missing]
    number_or_time = None if is_label else _as_number(values, missing) or _as_time(values, missing)
    return number_or_time or _as_category(values, missing)


def _as_number(values: pa.Array, missing: list[str]) -> list[str] | None:
    """A number, where nearly all cells are one and there are more than two of them."""
    numbers = read_numbers(values)
    numbers = numbers[np.isfinite(numbers)]
    if len(numbers) < _NEARLY_ALL * len(values) or len(np.unique(numbers)) <= 2:
        return None
    whole = bool(np.all(numbers == np.rint(numbers))) and float(np.abs(numbers).max()) < 2**52
    low, high = float(numbers.min()), float(numbers.max())
    distinct = len(np.unique(numbers))
    if whole and distinct == len(values) > _FEW and high - low + 1 == distinct:
        return ['type = "id"   # every value occurs once, in a row: regenerated, never learned']
    kind = "integer" if whole else "number"
    shown = (int(low), int(high)) if whole else (low, high)
    return [
        f'type = "{kind}"{_odd(len(values) - len(numbers))}',
        f"min = {shown[0]}   {_MARK}",
        f"max = {shown[1]}   {_MARK}",
        *(missing or (["missing = true"] if len(numbers) < len(values) else [])),
    ]


def _as_time(values: pa.Array, missing: list[str]) -> list[str] | None:
    """A time, where nearly all cells are one."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return None
    seconds = read_seconds(values).drop_null()
    seconds = seconds.filter(pc.less(pc.abs(seconds), _FAR))  # Python's times end in the year 9999
    if len(seconds) < _NEARLY_ALL * len(values) or len(seconds.unique()) <= 1:
        return None
    whole_days = not bool(pc.any(pc.not_equal(_modulo_day(seconds), 0)).as_py())
    ends = [datetime(1970, 1, 1) + timedelta(seconds=end.as_py()) for end in pc.min_max(seconds).values()]
    texts = [end.date().isoformat() if whole_days else end.isoformat() for end in ends]
    return [
        f'type = "datetime"{_odd(len(values) - len(seconds))}',
        f"min = {texts[0]}   {_MARK}",
        f"max = {texts[1]}   {_MARK}",
        *(missing or (["missing = true"] if len(seconds) < len(values) else [])),
    ]


def _as_category(values: pa.Array, missing: list[str]) -> list[str]:
    distinct = read_text(values).unique().drop_null().to_pylist()
    if len(distinct) > _MOST_CATEGORIES:
        note = f"{len(distinct):,} different values: regenerated, never learned; or list its values"
        return [f'type = "id"   # {note}']
    lines = (f"  {_quoted(text)}," for text in sorted(distinct))
    return ['type = "category"', f"values = [   {_MARK}", *lines, "]", *missing]


def _quoted(text: str) -> str:
    """A TOML string; JSON's is one, but for one control character."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _odd(count: int) -> str:
    return f"   # {count:,} cells are none and will count as missing" if count else ""


def _modulo_day(seconds: pa.Array) -> pa.Array:
    return pc.subtract(seconds, pc.multiply(pc.divide(seconds, 86_400), 86_400))
