"""Tables and queries of databases: SQLite and DuckDB files, and PostgreSQL by ADBC.

Messages of a driver or a server may quote cells or parts of an address. None of them is passed on.
"""

import contextlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote

import pyarrow as pa

from repsynth.errors import ConfigError, DataError, RepsynthWarning, printable, shown
from repsynth.io.reading import ReadOptions
from repsynth.io.source import (
    BATCH_ROWS,
    UNREADABLE,
    Errors,
    File,
    Reader,
    Source,
    lacks_extra,
    quietly,
    read_cells,
    steady,
)

_ADDRESS = re.compile(
    r"(?P<scheme>[a-z]+)://"
    r"(?:(?P<user>[^:/?#@\s]*)(?P<password>:[^:/?#@\s]*)?@)?"
    r"(?P<host>[^:/?#@\s]*(?::[0-9]*)?|\[[0-9a-fA-F:]+\](?::[0-9]*)?)"
    r"(?:/[^?#@\s]*)?"
    r"(?:\?(?P<knobs>[^#@]*))?"
)
"""Strict, so that a password with such characters is never split and shown."""

_KNOBS = {"table": "table_name", "query": "query"}
_ACROSS = re.compile(
    r"\b(limit|offset|fetch|tablesample|sample|over|distinct|group|having|union|intersect|except)\b"
)
"""With these words, a row of a query may depend on other rows."""

_SQLITE_TABLES = (
    "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
)
_DUCKDB_TABLES = (
    "SELECT table_name FROM duckdb_tables() WHERE NOT internal "
    "UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
)
_SQLITE_TYPES: dict[type, pa.DataType] = {str: pa.large_string(), int: pa.int64(), float: pa.float64()}

_CONNECT_SECONDS = 10
_CONNECTING = {
    "password": "the password is wrong, or there is none: set PGPASSWORD or write it to ~/.pgpass",
    "authentication": "the server does not let this user in; check user and password",
    "could not translate host": "no such host; check the address",
    "refused": "no server answers there; check host and port, and that it runs",
    "timeout": "no server answers there; check host and port, and that it runs",
    "does not exist": "no such database or user; check the address",
}
"""Errors of connecting to PostgreSQL, by words of the driver's message."""

_STATES = {
    "42P01": "no such table",
    "42703": "no such column",
    "42601": "the query is no SELECT that can be read; check its grammar",
    "42501": "this user may not read it; ask for the right to SELECT",
    "57014": "the server has stopped the query",
}
"""Errors of a query, by PostgreSQL's SQLSTATE."""


class Address(NamedTuple):
    """Where a database is. `full` may hold a password and is for the driver only; `place` is for messages."""

    scheme: str
    full: str
    place: str
    reading: ReadOptions


def is_address(text: str) -> bool:
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def parse_address(text: str, reading: ReadOptions) -> Address:
    """Parse an address such as postgresql://host/database?table=people; its table or query overrides `reading`.

    >>> parse_address("postgresql://me:secret@host/db?table=people&sslmode=require", ReadOptions()).place
    'the PostgreSQL address'
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ConfigError(
            "the address of the database cannot be read: write postgresql://host/database?table=NAME; leave the "
            "password to PGPASSWORD or ~/.pgpass, or percent-encode what is neither letter nor digit in it"
        )
    pairs = parse_qsl(found["knobs"] or "", keep_blank_values=True)
    own = {_KNOBS[name]: value for name, value in pairs if name in _KNOBS}
    rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs if name not in _KNOBS)
    start = text if found["knobs"] is None else text[: found.start("knobs") - 1]
    replaced = _KNOBS.values() if own else ()
    kept = {name: getattr(reading, name) for name in reading.given if name not in replaced}
    full = f"{start}?{rest}" if rest else start
    return Address(found["scheme"], full, shown(text), ReadOptions(**kept | own))


def open_sqlite(file: File) -> Source:
    """Open a table or query of an SQLite file. Each cell has its own type and is read independently."""
    import sqlite3

    def connect() -> Any:
        connection = sqlite3.connect(f"file:{quote(str(file.path.resolve()))}?mode=ro", uri=True)
        connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
        return contextlib.closing(connection)

    def run(connection: Any, query: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        cursor = connection.execute(query)
        names = [name for name, *_ in cursor.description]
        some = iter(lambda: cursor.fetchmany(BATCH_ROWS), [])
        columns = ([_array(cells) for cells in zip(*rows, strict=True)] for rows in some)
        batches = (pa.RecordBatch.from_arrays(arrays, names=names) for arrays in columns)
        return pa.schema([(name, pa.null()) for name in names]), batches

    return _open_database(
        file, "SQLite", _SQLITE_TABLES, connect, run, (sqlite3.Error, MemoryError, OverflowError)
    )


def _array(cells: Sequence[Any]) -> pa.Array:
    """Use a typed array for cells of one type. It is faster, and a cell reads the same."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    arrow_type = _SQLITE_TYPES.get(kinds.pop()) if len(kinds) == 1 else None
    return read_cells(cells) if arrow_type is None else pa.array(cells, arrow_type)


def open_duckdb(file: File) -> Source:
    """Open a table or query of a DuckDB file. DuckDB would guess the types of other files, so it reaches none."""
    try:
        import duckdb
    except ImportError:
        raise lacks_extra("a DuckDB file", "duckdb") from None

    def connect() -> Any:
        closed = {"enable_external_access": "false", "autoinstall_known_extensions": "false"}
        return duckdb.connect(str(file.path), read_only=True, config=closed)

    def run(connection: Any, query: str) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
        reader = connection.sql(query).to_arrow_reader(BATCH_ROWS)
        return reader.schema, reader

    return _open_database(file, "DuckDB", _DUCKDB_TABLES, connect, run, (duckdb.Error, *UNREADABLE))


def _open_database(
    file: File,
    engine: str,
    tables: str,
    connect: Callable[[], Any],
    run: Callable[[Any, str], tuple[pa.Schema, Iterable[pa.RecordBatch]]],
    errors: Errors,
) -> Source:
    """Open a database file: `tables` is the query that lists its tables, `run` returns the schema and batches."""
    try:
        with connect() as connection:
            rows = _rows_of(file.reading, file.place, [name for (name,) in connection.execute(tables).fetchall()])
            found, _ = run(connection, f"SELECT * FROM {rows} LIMIT 0")
    except errors:
        broken = f"not a file of {engine}, or it is damaged or in use"
        what = f"a query that {engine} cannot run" if file.reading.query else broken
        raise DataError(f"{file.place}: {what}") from None

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with connect() as connection:
            for batch in run(connection, _select(map(_name_in_sql, columns), rows))[1]:
                yield pa.RecordBatch.from_arrays(batch.columns, names=list(columns))

    quiet = quietly(read, f"{file.place}: cannot be read as {engine}", errors=errors)
    return _source(engine, found.names, found.types, steady(quiet, file), file.place)


def open_postgresql(address: Address) -> Source:
    """Open a table or query of PostgreSQL. A type that Arrow lacks is read as PostgreSQL's text of it."""
    rows = _rows_of(address.reading, address.place, None)
    with _cursor(address, "the table or query cannot be read; try it with another client first") as cursor:
        found = cursor.adbc_execute_schema(_select(["*"], rows))  # runs no query
        names = found.names
        if names and len(set(names)) == len(names):
            kinds = ", ".join(f"pg_typeof({_name_in_sql(name)})::text" for name in names)
            cursor.execute(f"SELECT {kinds} FROM (SELECT) AS one LEFT JOIN {rows} ON false")  # reads no row
            written = dict(zip(names, map(_column_in_sql, names, cursor.fetchone(), found.types), strict=True))
            found = cursor.adbc_execute_schema(_select(written.values(), rows))

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        lost = "the connection was lost or the query failed before all rows were read; start again"
        with _cursor(address, lost) as cursor:
            cursor.execute(_select((written[name] for name in columns), rows))
            for batch in cursor.fetch_record_batch():
                yield pa.RecordBatch.from_arrays(list(map(_plain, batch.columns)), names=list(columns))

    types = [pa.float64() if _is_numeric(kind) else kind for kind in found.types]
    return _source("PostgreSQL", names, types, read, address.place)


@contextlib.contextmanager
def _cursor(address: Address, otherwise: str) -> Iterator[Any]:
    """Connect for reading only, and replace the server's errors; `otherwise` explains those that are not known."""
    try:
        import adbc_driver_manager
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise lacks_extra("a PostgreSQL table", "postgresql") from None
    errors: Errors = (adbc_driver_manager.Error, *UNREADABLE)
    full = address.full.replace("postgres://", "postgresql://", 1)
    if "connect_timeout=" not in full:
        full += f"{'&' if '?' in full else '?'}connect_timeout={_CONNECT_SECONDS}"
    try:
        opened = dbapi.connect(full)
        with opened.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        opened.commit()
    except errors as error:
        known = (why for word, why in _CONNECTING.items() if word in str(error))
        why = next(known, "check the address, and that the server runs")
        raise DataError(f"{address.place}: cannot connect: {why}") from None
    try:
        with contextlib.closing(opened), opened.cursor() as cursor:
            yield cursor
    except errors as error:
        state = getattr(error, "sqlstate", None) or ""
        if state == "42P01" and address.reading.table_name is not None:
            raise _no_such_table(address.place, address.reading.table_name) from None
        if state.startswith("22"):
            otherwise = "the query cannot be worked out for some of its rows; mend it"
        raise DataError(f"{address.place}: {_STATES.get(state, otherwise)}") from None


def _column_in_sql(name: str, kind: str, arrow_type: pa.DataType) -> str:
    """Ask for money, which would come in cents, as a number; for infinite times, which Arrow would take for the
    distant past, as nothing; for a type that Arrow lacks as text."""
    written = _name_in_sql(name)
    if kind == "money":
        return f"{written}::numeric AS {written}"
    if kind == "date" or kind.startswith("timestamp"):
        return f"CASE WHEN {written} BETWEEN '4713-01-01 BC' AND '290000-01-01' THEN {written} END AS {written}"
    strange = isinstance(arrow_type, pa.BaseExtensionType) and not pa.types.is_string(arrow_type.storage_type)
    return f"{written}::text AS {written}" if strange else written


def _is_numeric(arrow_type: pa.DataType) -> bool:
    """Whether these are numbers of any length, which ADBC gives as text."""
    return isinstance(arrow_type, pa.BaseExtensionType) and getattr(arrow_type, "type_name", None) == "numeric"


def _plain(array: pa.Array) -> pa.Array:
    """Numbers as numbers, so that no notation of text applies to them."""
    return array.storage.cast(pa.float64()) if _is_numeric(array.type) else array


def _source(engine: str, names: Sequence[str], types: Sequence[pa.DataType], read: Reader, place: str) -> Source:
    takes = frozenset(_KNOBS.values())
    return Source(engine.lower(), tuple(names), tuple(types), read, place=place, takes=takes)


def _rows_of(reading: ReadOptions, place: str, tables: Sequence[str] | None) -> str:
    """Return what follows FROM: the table or query that was asked for, or else the only table. `tables` is None
    where it is not known which there are."""
    if reading.query is not None:
        query = reading.query.strip().rstrip(";").rstrip()
        if not query:
            raise ConfigError("the query is empty; write a SELECT")
        if words := sorted(set(_ACROSS.findall(query.lower()))):
            warnings.warn(
                f"the query has {', '.join(words).upper()}: the promise is about its rows, so each must be one "
                "person's and must not depend on who else is there",
                RepsynthWarning,
                stacklevel=2,
            )
        return f"(\n{query}\n) AS asked"  # the line ends, as the query may end in a comment
    if (name := reading.table_name) is not None:
        if tables is None:
            return ".".join(map(_name_in_sql, name.split(".")))  # maybe with the name of its schema
        if name not in tables:
            raise _no_such_table(place, name)
        return _name_in_sql(name)
    match tables:
        case [only]:
            return _name_in_sql(only)
        case []:
            raise DataError(f"{place}: holds no table; check that it is the right file")
    several = printable(", ".join(sorted(tables)[:8])) + ", ..." * (len(tables) > 8) if tables else ""
    known = several and f" (there are {several})"
    raise ConfigError(
        f"{place}: name the table with --table{known}, or ?table= behind the address, or give a --query"
    )


def _no_such_table(place: str, name: str) -> DataError:
    return DataError(f"{place}: no table '{name}' that can be read; check its name, with capitals as they stand")


def _select(columns: Iterable[str], rows: str) -> str:
    return f"SELECT {', '.join(columns)} FROM {rows}"


def _name_in_sql(name: str) -> str:
    """Quote a name.

    >>> _name_in_sql('my "own" table')
    '"my ""own"" table"'
    """
    if "\0" in name:
        raise ConfigError("a name in a database holds no null character")
    return '"' + name.replace('"', '""') + '"'
