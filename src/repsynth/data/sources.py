"""Tables in: files by their suffix, databases by their address, objects by the library that made them, all as a
stream of Arrow batches.

Nothing here depends on a cell's value. A new source is one file and one line below.
"""

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from repsynth.data.folders import is_pattern, join_sources, open_folder, open_pattern
from repsynth.data.reading import AS_USUAL, ReadOptions
from repsynth.data.source import File, Source, check_columns, other_mark
from repsynth.data.sql import is_address, parse_address
from repsynth.errors import ConfigError, DataError, has_controls, printable, shown

__all__ = ["ADDRESSES", "FILES", "OBJECTS", "Source", "check_columns", "is_text_file", "open_source"]

_CSV = "repsynth.data.csv:open_csv"
_STATISTICS = "repsynth.data.office:open_statistics"
_SQLITE = "repsynth.data.sql:open_sqlite"
_DUCKDB = "repsynth.data.sql:open_duckdb"

FILES: dict[str, str] = {
    ".csv": _CSV,
    ".parquet": "repsynth.data.arrow:open_parquet",
    ".pq": "repsynth.data.arrow:open_parquet",
    ".tsv": _CSV,
    **{f"{text}.{packed}": _CSV for text in (".csv", ".tsv") for packed in ("gz", "bz2", "zst")},
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "repsynth.data.arrow:open_ipc"),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _SQLITE),
    ".duckdb": _DUCKDB,
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "repsynth.data.office:open_excel"),
    **dict.fromkeys((".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt"), _STATISTICS),
}
"""Who opens a file, by its suffix: "module:function", imported when it is needed."""

ADDRESSES: dict[str, str] = {
    "postgresql": "repsynth.data.sql:open_postgresql",
    "postgres": "repsynth.data.sql:open_postgresql",
}
"""Who opens an address, by what stands before ://."""

OBJECTS: dict[str, str] = {
    "pyarrow.Table": "repsynth.data.frames:open_arrow",
    "pyarrow.RecordBatch": "repsynth.data.frames:open_arrow",
    "pandas.DataFrame": "repsynth.data.frames:open_pandas",
    "polars.DataFrame": "repsynth.data.frames:open_polars",
    "dask.DataFrame": "repsynth.data.frames:open_dask",
    "pyspark.DataFrame": "repsynth.data.frames:open_spark",
}
"""Who opens an object, by its library and type."""


def open_source(table: Any, reading: ReadOptions = AS_USUAL) -> Source:
    """Open a data frame (pandas, polars, Dask or Spark), an Arrow table, the path of a file or a folder, a pattern
    such as data/*.parquet, a list of these, or the address of a database; what is open already stays so.

    >>> import pyarrow as pa
    >>> source = open_source(pa.table({"age": [30, 40]}))
    >>> source.kind, source.names
    ('arrow', ('age',))
    """
    if isinstance(table, Source):
        return table
    source = _open(table, reading)
    for position, name in enumerate(source.names, start=1):
        if has_controls(name) and other_mark(source) is None:
            raise DataError(
                f"{source.place}: the name of column {position} has a control character, such as a line end or a "
                "tab; rename it"
            )
    for name in sorted(reading.given - source.takes):
        raise ConfigError(f"{source.place}: {name.replace('_', ' ')} means nothing there; leave it out")
    return source


def is_text_file(text: str | Path) -> bool:
    """Whether a path is that of a CSV file, compressed or not.

    >>> is_text_file("people.csv.gz"), is_text_file("postgresql://host/people.csv")
    (True, False)
    """
    return not is_address(str(text)) and any(FILES.get(end) == _CSV for end in _endings(Path(text)))


def _open(table: Any, reading: ReadOptions) -> Source:
    if isinstance(table, str | Path):
        return _open_path(str(table), reading)
    if isinstance(table, list | tuple) and table and all(isinstance(part, str | Path) for part in table):
        return join_sources([_open_path(str(part), reading) for part in table])
    kind = f"{type(table).__module__.split('.')[0]}.{type(table).__name__}"
    if kind in OBJECTS:
        return _opener(OBJECTS[kind])(table)
    raise DataError(
        f"cannot read a table from {type(table).__name__}; give a pandas, polars, Dask or Spark data frame, a "
        "pyarrow table, the path of a file or folder or a list of them, or the address of a database"
    )


def _open_path(text: str, reading: ReadOptions) -> Source:
    if is_address(text):
        return _open_address(text, reading)
    path = Path(text)

    def open_one(path: Path, place: str) -> Source:
        return _open_file(File(path, place, reading))

    if os.path.isdir(text):  # unlike Path, without an error where the name is too long
        return open_folder(path, open_one)
    if is_pattern(text) and not os.path.exists(text):
        return open_pattern(text, open_one)
    if (place := shown(text)) != printable(text):
        raise DataError(
            f"{place} cannot be read, and there is no such file; write postgresql://host/database?table=NAME, "
            "without anything before or around it"
        )
    return _open_file(File.at(path, reading))


def _open_address(text: str, reading: ReadOptions) -> Source:
    address = parse_address(text, reading)
    if address.scheme not in ADDRESSES:
        raise DataError(f"no table can be read from {address.scheme}://; use {':// or '.join(ADDRESSES)}://")
    return _opener(ADDRESSES[address.scheme])(address)


def _open_file(file: File) -> Source:
    opener = next((FILES[end] for end in _endings(file.path) if end in FILES), None)
    if opener is None:
        known = ", ".join(FILES)
        raise DataError(f"{file.place}: cannot tell the format from the name; use one of {known}")
    if not os.path.isfile(file.path):
        raise DataError(f"{file.place}: no such file; check the path")
    return _opener(_DUCKDB if opener == _SQLITE and _is_duckdb(file.path) else opener)(file)


def _endings(path: Path) -> list[str]:
    """How a name ends, the longer first: .csv.gz and .gz.

    >>> _endings(Path("my.people.CSV.gz"))
    ['.csv.gz', '.gz']
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return ["".join(suffixes[k:]) for k in range(len(suffixes))]


def _is_duckdb(path: Path) -> bool:
    """DuckDB's files often end in .db, too; its mark stands behind a checksum."""
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


def _opener(place: str) -> Callable[[Any], Source]:
    module, function = place.split(":")
    opener: Callable[[Any], Source] = getattr(import_module(module), function)
    return opener
