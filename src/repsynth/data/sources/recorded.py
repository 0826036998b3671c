"""What pandas notes in the Arrow tables and Parquet files that it makes: the dtype that each column had there.

It is a stranger's text: no more than a name is taken from it, and nothing in it is refused.
"""

import msgspec
import pyarrow as pa

GUESSED = "object"
"""The dtype of a column whose type may have been guessed from its cells, by pandas or by another library."""

_MOST_BYTES = 2**24


class _Column(msgspec.Struct):
    """How pandas notes a column; the dtype of a category is that of its codes, which their number decides."""

    numpy_type: str
    pandas_type: str | None = None
    field_name: str | None = None
    name: str | None = None


class _Frame(msgspec.Struct):
    columns: list[_Column]


def recorded_dtypes(schema: pa.Schema) -> tuple[str | None, ...]:
    """The pandas dtype of each column, None where the Arrow type is its own: in tables that pandas did not make,
    and for Arrow's types in pandas. Where the note cannot be read or lacks a column, none of it counts.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": [1, 2], "b": pd.array([1, None], dtype="Int8")})
    >>> recorded_dtypes(pa.Schema.from_pandas(frame))
    ('int64', 'Int8')
    """
    note = (schema.metadata or {}).get(b"pandas")
    if note is None:
        return (None,) * len(schema)
    found = _read(note)
    if any(name not in found for name in schema.names):
        return (GUESSED,) * len(schema)
    return tuple(found[name] for name in schema.names)


def _read(note: bytes) -> dict[str | None, str | None]:
    if len(note) > _MOST_BYTES:
        return {}
    try:
        columns = msgspec.json.decode(note, type=_Frame).columns
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return {}
    return {column.field_name or column.name: _dtype(column) for column in columns}


def _dtype(column: _Column) -> str | None:
    if column.numpy_type.endswith("[pyarrow]"):
        return None
    return "category" if column.pandas_type == "categorical" else column.numpy_type
