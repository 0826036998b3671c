"""DuckDB files."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, UNREADABLE, File, Source, lacks_extra, quietly, steady
from repsynth.data.sources.databases import name_in_sql, rows_of, select
from repsynth.errors import DataError

_TABLES = """\
SELECT table_name FROM duckdb_tables() WHERE NOT internal
UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"""


def open_duckdb(file: File) -> Source:
    """A table or a query of a DuckDB file. Other files are out of reach: DuckDB would guess the types of their
    columns from the cells."""
    try:
        import duckdb
    except ImportError:
        raise lacks_extra("a DuckDB file", "duckdb") from None
    failures = (duckdb.Error, *UNREADABLE)

    @contextlib.contextmanager
    def connected() -> Iterator[Any]:
        closed = {"enable_external_access": "false", "autoinstall_known_extensions": "false"}
        with duckdb.connect(str(file.path), read_only=True, config=closed) as connection:
            yield connection

    try:
        with connected() as connection:
            tables = [name for (name,) in connection.execute(_TABLES).fetchall()]
            rows = rows_of(file.reading, file.place, tables)
            arrow_schema = connection.sql(f"SELECT * FROM {rows} LIMIT 0").to_arrow_reader(BATCH_ROWS).schema
    except failures:
        what = (
            "a query that DuckDB cannot run"
            if file.reading.query
            else "not a DuckDB file, a damaged or a busy one"
        )
        raise DataError(f"{file.place}: {what}") from None

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with connected() as connection:
            query = select([name_in_sql(name) for name in columns], rows)
            yield from connection.sql(query).to_arrow_reader(BATCH_ROWS)

    message = f"{file.place}: cannot be read as DuckDB"
    return Source(
        "duckdb",
        tuple(arrow_schema.names),
        tuple(arrow_schema.types),
        (None,) * len(arrow_schema),
        steady(quietly(read, message, errors=failures), file),
        place=file.place,
        takes=frozenset(("table_name", "query")),
    )
