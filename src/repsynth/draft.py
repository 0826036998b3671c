"""A draft schema read off the data: a convenience that is *not* private, and says so on every line.

This is the one place besides measurements that looks at values. Its output is for the curator, who must
confirm or replace each bound and category before `synthesize` accepts it.
"""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from repsynth.errors import DataError
from repsynth.tables import open_table

_MARK = "# read from the data, not private: confirm or replace"
_MOST_CATEGORIES = 100
_FEW_NUMBERS = 12


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
        f"label = {json.dumps(label)}" if label else '# label = "..."   # the column that analysts will predict',
    ]
    for name in table.column_names:
        key = name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)
        lines += ["", f"[columns.{key}]", *_describe(table[name], is_label=name == label)]
    return "\n".join(lines) + "\n"


def _in_memory(source: Any) -> pa.Table:
    table = open_table(source)
    if table.kind == "csv":
        try:
            return pacsv.read_csv(Path(source))
        except (OSError, pa.ArrowException):
            raise DataError(f"{source}: cannot be read as CSV; check that the file is whole") from None
    batches = list(table.read(table.names))
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in table.names})


def _describe(column: pa.ChunkedArray, *, is_label: bool) -> list[str]:
    """The keys of one column's table."""
    missing = ["missing = true"] if column.null_count else []
    values = column.drop_null()
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not len(values):
        return [
            'type = "category"   # the column is empty in the data: declare its type',
            'values = ["?"]',
            *missing,
        ]
    kind, distinct = values.type, len(values.unique())
    types = pa.types
    if types.is_boolean(kind):
        return ['type = "boolean"', *missing]
    if types.is_date(kind) or types.is_timestamp(kind):
        low, high = (value.as_py() for value in pc.min_max(values).values())
        bounds = [f"{key} = {value.isoformat()[:19]}   {_MARK}" for key, value in (("min", low), ("max", high))]
        return ['type = "datetime"', *bounds, *missing]
    whole = types.is_integer(kind)
    if (whole or types.is_floating(kind)) and not is_label and (distinct > 2 or not whole):
        low, high = (value.as_py() for value in pc.min_max(values).values())
        high = high if low < high else low + 1
        if whole and distinct == len(values) > _FEW_NUMBERS and high - low + 1 == distinct:
            return ['type = "id"   # every value occurs once, in a row: regenerated, never learned']
        kind_name = "integer" if whole else "number"
        return [f'type = "{kind_name}"', f"min = {low}   {_MARK}", f"max = {high}   {_MARK}", *missing]
    if distinct > _MOST_CATEGORIES:
        return [f'type = "id"   # {distinct:,} different values: regenerated, never learned; or list its values']
    texts = sorted(str(value) for value in values.unique().to_pylist())
    return [
        'type = "category"',
        f"values = [   {_MARK}",
        *(f"  {json.dumps(t)}," for t in texts),
        "]",
        *missing,
    ]
