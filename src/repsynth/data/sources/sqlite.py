"""SQLite files: a column has no type there, as each cell has its own, and so each cell is read by itself."""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, File, Source, quietly, steady
from repsynth.data.sources.cells import read_cells
from repsynth.data.sources.databases import name_in_sql, rows_of, select
from repsynth.errors import DataError

_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)

_TYPES: dict[type, pa.DataType] = {str: pa.large_string(), int: pa.int64(), float: pa.float64()}


def open_sqlite(file: File) -> Source:
    """A table or a query of an SQLite file."""
    try:
        with _connected(file) as connection:
            tables = [name for (name,) in connection.execute(_TABLES)]
            rows = rows_of(file.reading, file.place, tables)
            described = connection.execute(f"SELECT * FROM {rows} LIMIT 0").description
    except sqlite3.Error:
        what = "a query that SQLite cannot run" if file.reading.query else "not an SQLite file, or a damaged one"
        raise DataError(f"{file.place}: {what}") from None
    names = tuple(name for name, *_ in described)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _connected(file) as connection:
            cursor = connection.execute(select([name_in_sql(name) for name in columns], rows))
            while piece := cursor.fetchmany(BATCH_ROWS):
                cells = [_array(column) for column in zip(*piece, strict=True)]
                yield pa.RecordBatch.from_arrays(cells, names=list(columns))

    message = f"{file.place}: cannot be read as SQLite"
    return Source(
        "sqlite",
        names,
        (pa.null(),) * len(names),
        (None,) * len(names),
        steady(quietly(read, message, errors=(sqlite3.Error, MemoryError, OverflowError)), file),
        place=file.place,
        takes=frozenset(("table_name", "query")),
    )


def _array(cells: Sequence[Any]) -> pa.Array:
    """Some cells of a column. Where all are of one kind they make a typed array, which is quicker: a cell reads
    alike in either."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    arrow_type = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    return read_cells(cells) if arrow_type is None else pa.array(cells, arrow_type)


@contextlib.contextmanager
def _connected(file: File) -> Iterator[sqlite3.Connection]:
    """Open for reading only; text that is no UTF-8 is read as far as it is."""
    address = f"file:{quote(str(file.path.resolve()))}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        yield connection
