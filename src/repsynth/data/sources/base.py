"""What a source of records is: names, storage types, and batches that can be read again and again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.errors import DataError
from repsynth.schema import Schema

BATCH_ROWS = 131_072
UNREADABLE = (OSError, pa.ArrowException, ValueError, MemoryError)  # what Arrow raises on damaged files
Reader = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Source:
    """A table that can be read again and again, a batch at a time.

    `types` holds the Arrow type of each column (None for CSV, which has none) and `dtypes` the pandas
    dtype where the table came as a data frame: storage, which is public, so that the synthetic table
    can look like this one. `batches` reads some of the columns.
    """

    kind: str
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    dtypes: tuple[str | None, ...]
    batches: Reader
    rows: int | None = None
    """How many rows there are, where that is known without reading: to show how long it takes, no more."""


def check_columns(source: Source, schema: Schema) -> None:
    """Refuse a table whose columns are not the schema's.

    Columns that the schema does not know are named by position only: in a file without a header line
    their names would be somebody's data.
    """
    problems = []
    repeated = sorted({name for name in source.names if source.names.count(name) > 1})
    known = {column.name for column in schema.columns}
    if repeated:
        named = ", ".join(f"'{name}'" if name in known else "(not in the schema)" for name in repeated)
        problems.append(f"column name used more than once: {named}")
    absent = [name for name in (column.name for column in schema.columns) if name not in source.names]
    if absent:
        problems.append(f"no column {', '.join(map(repr, absent))} in the data")
    extra = [str(i) for i, name in enumerate(source.names, start=1) if name not in known]
    if extra:
        shown = ", ".join(extra[:8]) + (", ..." if len(extra) > 8 else "")
        problems.append(f"{len(extra)} column(s) of the data are not in the schema (position {shown})")
    if problems:
        one_column = source.kind == "csv" and len(source.names) == 1 < len(known)
        if one_column:
            remedy = "the file seems to have one column only: is it separated by commas?"
        elif extra:
            remedy = "add them to the schema, drop them from the data, or check that the file has a header line"
        else:
            remedy = "rename or add it in the data, or mend the schema"
        raise DataError(f"{'; '.join(problems)}: {remedy}")
    for name, arrow_type in zip(source.names, source.types, strict=True):
        if arrow_type is not None and pa.types.is_nested(arrow_type):
            raise DataError(f"column '{name}' holds nested values; flatten it into plain columns first")


def object_text(value: Any) -> str | None:
    """One cell as text, alike to how a typed column of it would read; None where it is missing."""
    try:
        if value is None or value != value:
            return None
        if isinstance(value, bool | np.bool_):
            return "true" if value else "false"
        if isinstance(value, timedelta | np.timedelta64):
            value = value.total_seconds() if isinstance(value, timedelta) else value / np.timedelta64(1, "s")
        if isinstance(value, float | np.floating) and float(value).is_integer() and abs(float(value)) < 2**53:
            return str(int(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="replace")
        return str(value).encode("utf-8", errors="replace").decode("utf-8")
    except Exception:  # whatever a foreign object does when it is compared or printed
        return None


def quietly(read: Reader, message: str) -> Reader:
    """Arrow's own messages quote the cell they fail at; ours do not."""

    def reading(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(columns)
        except UNREADABLE:
            raise DataError(f"{message}; check that the file is whole") from None

    return reading
