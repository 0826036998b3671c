"""A PostgreSQL table or query, read as Arrow batches that the server sends (COPY, through ADBC).

The messages of the server may quote cells, and those of its library parts of an address: neither is passed on.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from repsynth.data.sources.base import UNREADABLE, Source, lacks_extra
from repsynth.data.sources.databases import Address, name_in_sql, no_such_table, rows_of, select
from repsynth.errors import DataError

_WAIT = "10"  # seconds, for the server to answer
_SEEN = {
    "password": "the password is wrong, or there is none: set PGPASSWORD or write it to ~/.pgpass",
    "authentication": "the server does not let this user in; check user and password",
    "could not translate host": "no such host; check the address",
    "refused": "no server answers there; check host and port, and that it runs",
    "timeout": "no server answers there; check host and port, and that it runs",
    "does not exist": "no such database or user; check the address",
}
"""What goes wrong when connecting, by words of the library's message."""

_STATES = {
    "42P01": "no such table",
    "42703": "no such column",
    "42601": "the query is no SELECT that can be read; check its grammar",
    "42501": "this user may not read it; ask for the right to SELECT",
    "57014": "the server has stopped the query",
}
"""What goes wrong with a query, by PostgreSQL's own code for it."""


def open_postgresql(address: Address) -> Source:
    """A table or a query. What Arrow has no type for is read as the text that PostgreSQL writes."""
    rows = rows_of(address.reading, address.place, None)
    with _connected(address) as connection, connection.cursor() as cursor:
        found = _asked(cursor, select(["*"], rows), address)
        names = tuple(found.names)
        if len(set(names)) == len(names):
            kinds = _types(cursor, names, rows, address)
            given = {name: _in_sql(name, kinds[name], found.field(name).type) for name in names}
            found = _asked(cursor, select(list(given.values()), rows), address)
    types = tuple(pa.float64() if _is_numeric(kind) else kind for kind in found.types)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with _connected(address) as connection, connection.cursor() as cursor:
            try:
                cursor.execute(select([given[name] for name in columns], rows))
                for batch in cursor.fetch_record_batch():
                    yield pa.RecordBatch.from_arrays(list(map(_plain, batch.columns)), names=list(columns))
            except _failures() as error:
                raise _lost(error, address) from None

    return Source(
        "postgresql",
        names,
        types,
        (None,) * len(names),
        read,
        place=address.place,
        takes=frozenset(("table_name", "query")),
    )


def _failures() -> tuple[type[BaseException], ...]:
    import adbc_driver_manager

    return (adbc_driver_manager.Error, *UNREADABLE)


@contextlib.contextmanager
def _connected(address: Address) -> Iterator[Any]:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        raise lacks_extra("a PostgreSQL table", "postgresql") from None
    full = address.full
    if "connect_timeout=" not in full:
        full += f"{'&' if '?' in full else '?'}connect_timeout={_WAIT}"
    full = full.replace("postgres://", "postgresql://", 1)
    try:
        opened = dbapi.connect(full)
        with opened.cursor() as cursor:
            cursor.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        opened.commit()
    except _failures() as error:
        said = str(error)
        why = next(
            (why for word, why in _SEEN.items() if word in said), "check the address, and that the server runs"
        )
        raise DataError(f"{address.place}: cannot connect: {why}") from None
    with contextlib.closing(opened) as connection:
        yield connection


def _asked(cursor: Any, query: str, address: Address) -> pa.Schema:
    """The columns of a query, which is not run."""
    try:
        return cursor.adbc_execute_schema(query)
    except _failures() as error:
        raise _refused(error, address) from None


def _types(cursor: Any, names: Sequence[str], rows: str, address: Address) -> dict[str, str]:
    """The type of each column as PostgreSQL calls it; no row is read, as none is asked for."""
    if not names:
        return {}
    kinds = [f"pg_typeof({name_in_sql(name)})::text" for name in names]
    query = f"SELECT {', '.join(kinds)} FROM (SELECT) AS one LEFT JOIN {rows} ON false"
    try:
        cursor.execute(query)
        return dict(zip(names, cursor.fetchone(), strict=True))
    except _failures() as error:
        raise _refused(error, address) from None


def _in_sql(name: str, kind: str, arrow_type: pa.DataType) -> str:
    """How a column is asked for: money, which would come in cents, as a number; no times without end, which Arrow
    would take for the distant past; what has no type as text."""
    written = name_in_sql(name)
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


def _refused(error: BaseException, address: Address) -> DataError:
    state = getattr(error, "sqlstate", None)
    if state == "42P01" and address.reading.table_name is not None:
        return no_such_table(address.place, address.reading.table_name)
    why = _STATES.get(state or "", "the table or query cannot be read; try it with another client first")
    return DataError(f"{address.place}: {why}")


def _lost(error: BaseException, address: Address) -> DataError:
    state = getattr(error, "sqlstate", None) or ""
    if state in _STATES or state[:2] == "22":
        why = _STATES.get(state, "the query cannot be worked out for some of its rows; mend it")
        return DataError(f"{address.place}: {why}")
    return DataError(
        f"{address.place}: the connection was lost or the query failed before all rows were read; start again"
    )
