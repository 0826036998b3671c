"""What databases have in common: their addresses, which rows are read, and how names stand in SQL."""

import re
import warnings
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import parse_qsl, quote

from repsynth.data.reading import Reading
from repsynth.errors import ConfigError, DataError, RepsynthWarning, printable, shown

_ADDRESS = re.compile(
    r"(?P<scheme>[a-z]+)://"
    r"(?:(?P<user>[^:/?#@\s]*)(?P<password>:[^:/?#@\s]*)?@)?"
    r"(?P<host>[^:/?#@\s]*(?::[0-9]*)?|\[[0-9a-fA-F:]+\](?::[0-9]*)?)"
    r"(?P<path>/[^?#@\s]*)?"
    r"(?:\?(?P<knobs>[^#@]*))?"
)
"""Strict, so that no part of a password that holds such marks is taken for something else and shown."""

_KNOBS = {"table": "table_name", "query": "query"}
_ACROSS = re.compile(
    r"\b(limit|offset|fetch|tablesample|sample|over|distinct|group|having|union|intersect|except)\b"
)
"""Words with which a row of a query may depend on other rows."""


class Address(NamedTuple):
    """Where a database is. `full` may hold a password and is for its library only; `place` is for messages."""

    scheme: str
    full: str
    place: str
    path: str
    reading: Reading


def is_address(text: str) -> bool:
    """Whether a text is an address, and no path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text) is not None


def parse_address(text: str, reading: Reading) -> Address:
    """An address such as postgresql://host/database?table=people; its own table or query counts more than the
    reading's.

    >>> parse_address("postgresql://me:secret@host/db?table=people&sslmode=require", Reading()).place
    'the PostgreSQL address'
    """
    found = _ADDRESS.fullmatch(text)
    if found is None:
        raise ConfigError(
            "the address of the database cannot be read: write postgresql://host/database?table=NAME; leave the "
            "password to PGPASSWORD or ~/.pgpass, or percent-encode what is neither letter nor digit in it"
        )
    scheme, path = found["scheme"], found["path"] or ""
    pairs = parse_qsl(found["knobs"] or "", keep_blank_values=True)
    own = {_KNOBS[name]: value for name, value in pairs if name in _KNOBS}
    rest = "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs if name not in _KNOBS)
    start = text[: found.start("knobs") - 1] if found["knobs"] is not None else text
    merged = {name: getattr(reading, name) for name in reading.given}
    if own:
        merged = {name: value for name, value in merged.items() if name not in _KNOBS.values()}
    full = f"{start}?{rest}" if rest else start
    return Address(scheme, full, shown(text), path, Reading(**merged | own))


def name_in_sql(name: str) -> str:
    """A name as SQL writes it, whatever is in it.

    >>> name_in_sql('my "own" table')
    '"my ""own"" table"'
    """
    if "\0" in name:
        raise ConfigError("a name in a database holds no null character")
    return '"' + name.replace('"', '""') + '"'


def table_in_sql(name: str) -> str:
    """The name of a table, maybe behind that of its schema and a dot.

    >>> table_in_sql("public.people")
    '"public"."people"'
    """
    return ".".join(map(name_in_sql, name.split(".")))


def select(columns: Sequence[str], rows: str) -> str:
    """What reads these columns, given as they stand in SQL."""
    return f"SELECT {', '.join(columns)} FROM {rows}"


def rows_of(reading: Reading, place: str, tables: Sequence[str] | None) -> str:
    """Where the rows come from, as it stands behind FROM: the table or query that was asked for, or else the only
    table there is. `tables` are all that there are, None where that is not known."""
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
        return f"(\n{query}\n) AS asked"  # on lines of its own, as it may end in a comment
    if reading.table_name is not None:
        if tables is not None and reading.table_name not in tables:
            raise no_such_table(place, reading.table_name)
        return table_in_sql(reading.table_name) if tables is None else name_in_sql(reading.table_name)
    if tables is not None and len(tables) == 1:
        return name_in_sql(tables[0])
    if tables is not None and not tables:
        raise DataError(f"{place}: holds no table; check that it is the right file")
    known = (
        ""
        if tables is None
        else f" (there are {printable(', '.join(sorted(tables)[:8]))}{', ...' * (len(tables) > 8)})"
    )
    raise ConfigError(
        f"{place}: name the table with --table{known}, or ?table= behind the address, or give a --query"
    )


def no_such_table(place: str, name: str) -> DataError:
    """The table is not there."""
    return DataError(f"{place}: no table '{name}' that can be read; check its name, with capitals as they stand")
