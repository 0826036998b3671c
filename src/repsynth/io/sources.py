"""Open tables: files by suffix, databases by address, objects by library, and several files as one table.

A new source is one function and one line below.
"""

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from repsynth.errors import ConfigError, DataError, has_controls, printable, shown
from repsynth.io.reading import AS_USUAL, ReadOptions
from repsynth.io.source import File, Reader, Source, check_columns, other_mark
from repsynth.io.sql import is_address, parse_address

__all__ = ["ADDRESSES", "FILES", "OBJECTS", "Source", "check_columns", "is_text_file", "open_source"]

_CSV = "repsynth.io.csv:open_csv"
_STATISTICS = "repsynth.io.office:open_statistics"
_SQLITE = "repsynth.io.sql:open_sqlite"
_DUCKDB = "repsynth.io.sql:open_duckdb"

FILES: dict[str, str] = {
    ".csv": _CSV,
    ".parquet": "repsynth.io.arrow:open_parquet",
    ".pq": "repsynth.io.arrow:open_parquet",
    ".tsv": _CSV,
    **{f"{text}.{packed}": _CSV for text in (".csv", ".tsv") for packed in ("gz", "bz2", "zst")},
    **dict.fromkeys((".arrow", ".feather", ".ipc"), "repsynth.io.arrow:open_ipc"),
    **dict.fromkeys((".sqlite", ".sqlite3", ".db"), _SQLITE),
    ".duckdb": _DUCKDB,
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), "repsynth.io.office:open_excel"),
    **dict.fromkeys((".sav", ".zsav", ".por", ".dta", ".sas7bdat", ".xpt"), _STATISTICS),
}
"""Openers by suffix: "module:function", imported when needed."""

ADDRESSES: dict[str, str] = {
    "postgresql": "repsynth.io.sql:open_postgresql",
    "postgres": "repsynth.io.sql:open_postgresql",
}
"""Openers by scheme."""

OBJECTS: dict[str, str] = {
    "pyarrow.Table": "repsynth.io.arrow:open_arrow",
    "pyarrow.RecordBatch": "repsynth.io.arrow:open_arrow",
    "pandas.DataFrame": "repsynth.io.arrow:open_pandas",
    "polars.DataFrame": "repsynth.io.arrow:open_polars",
    "dask.DataFrame": "repsynth.io.arrow:open_dask",
    "pyspark.DataFrame": "repsynth.io.arrow:open_spark",
}
"""Openers by library and type."""


def open_source(table: Any, reading: ReadOptions = AS_USUAL) -> Source:
    """Open a data frame (pandas, polars, Dask, Spark), an Arrow table, a file, a folder, a pattern such as
    data/*.parquet, a list of these, or the address of a database. A `Source` is returned as it is.

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
    """Return the endings of a name, the longest first.

    >>> _endings(Path("my.people.CSV.gz"))
    ['.csv.gz', '.gz']
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    return ["".join(suffixes[k:]) for k in range(len(suffixes))]


def _is_duckdb(path: Path) -> bool:
    """DuckDB files often end in .db, too. Their magic bytes follow a checksum."""
    try:
        with path.open("rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


def _opener(place: str) -> Callable[[Any], Source]:
    module, function = place.split(":")
    opener: Callable[[Any], Source] = getattr(import_module(module), function)
    return opener


# --- several files as one table ---

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_CELL = re.compile(r"([^/=]+)=[^/]*/")
_NO_HEADER = ("csv", "excel")
"""Formats whose first line may be a person's data: messages do not show it."""

Opener = Callable[[Path, str], Source]  # of a file, and its name in messages


def is_pattern(text: str) -> bool:
    """Whether a name is a glob pattern."""
    return re.search(r"[*?\[]", text) is not None


def open_folder(folder: Path, opener: Opener) -> Source:
    """Open all files of a folder and its subfolders; a subfolder `column=value` adds a column."""
    files = _files_in(folder)
    if not files:
        raise DataError(f"{shown(folder)}: no files in this folder; check the path")
    return _open_below(folder, files, opener)


def open_pattern(pattern: str, opener: Opener) -> Source:
    """Open all files that a pattern such as `data/*.parquet` matches, with columns as in `open_folder`."""
    found = map(Path, sorted(glob.glob(pattern, recursive=True)))
    files = [file for path in found for file in (_files_in(path) if path.is_dir() else [path])]
    if not files:
        raise DataError(f"{shown(pattern)}: no file matches; check the pattern")
    parts = Path(pattern).parts
    fixed = next(k for k, part in enumerate(parts) if is_pattern(part))
    return _open_below(Path(*parts[:fixed]), list(dict.fromkeys(files)), opener)


def _files_in(folder: Path) -> list[Path]:
    """Leave out hidden files, such as the marks of a writer that is done."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    return [path for path in found if not any(part[0] in "._" for part in path.relative_to(folder).parts)]


def _open_below(root: Path, files: Sequence[Path], opener: Opener) -> Source:
    parts = []
    for file in files:
        source = opener(file, without_cells(root, file))
        parts.append(_with_cells(source, _cells(file.relative_to(root).parent)))
    return join_sources(parts)


def without_cells(root: Path, file: Path) -> str:
    """Return the name of a file for messages: the values in the names of folders are cells.

    >>> without_cells(Path("data"), Path("data/sex=f/part-0.parquet"))
    'data/sex=.../part-0.parquet'
    """
    return printable(str(root / _CELL.sub(r"\1=.../", file.relative_to(root).as_posix())))


def _cells(folder: Path) -> dict[str, str | None]:
    """Return the columns in the name of a folder; bytes that are no text must not stop a run."""
    pairs = [part.encode("utf-8", "replace").decode().partition("=") for part in folder.parts if "=" in part]
    return {unquote(name): None if value == _NOTHING else unquote(value) for name, _, value in pairs}


def _with_cells(source: Source, cells: dict[str, str | None]) -> Source:
    if twice := [name for name in cells if name in source.names]:
        raise DataError(
            f"{source.place}: column '{twice[0]}' is in the file and in the name of its folder; drop one"
        )
    if not cells:
        return source
    return replace(
        source,
        names=(*source.names, *cells),
        types=(*source.types, *[pa.string()] * len(cells)),
        batches=WithCells(source.batches, cells, source.names[0]),
        pieces=lambda: [WithCells(piece, cells, source.names[0]) for piece in _pieces(source)],
    )


@dataclass(frozen=True)
class WithCells:
    """Reads a file and adds the columns in the names of its folders; `first` is a column of the file."""

    read: Reader
    cells: dict[str, str | None]
    first: str

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for batch in self.read([name for name in columns if name not in self.cells] or [self.first]):
            for name, cell in self.cells.items():
                codes = pa.repeat(pa.scalar(None if cell is None else 0, pa.int32()), batch.num_rows)
                batch = batch.append_column(name, pa.DictionaryArray.from_arrays(codes, pa.array([cell or ""])))
            yield batch.select(list(columns))


def _pieces(source: Source) -> Sequence[Reader]:
    return [source.batches] if source.pieces is None else source.pieces()


def join_sources(sources: Sequence[Source]) -> Source:
    """Read one source after the other; they must have the same columns, in any order."""
    first, *others = sources
    if not others:
        return first
    for source in others:
        _check_same(first, source)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for source in sources:
            yield from source.batches(columns)

    found = [dict(zip(source.names, source.types, strict=True)) for source in sources]
    types = [{each[name] for each in found} for name in first.names]
    rows = [source.rows for source in sources]
    return replace(
        first,
        types=tuple(kinds.pop() if len(kinds) == 1 else pa.null() for kinds in types),
        batches=read,
        pieces=lambda: [piece for source in sources for piece in _pieces(source)],
        files=tuple(file for source in sources for file in source.files),
        rows=None if None in rows else sum(row or 0 for row in rows),
        place=f"{first.place} and {len(others)} more",
        takes=frozenset().union(*(source.takes for source in sources)),
        dropped=lambda: sum(source.dropped() for source in sources),
    )


def _check_same(first: Source, other: Source) -> None:
    if first.kind != other.kind:
        raise DataError(f"{other.place}: is not of the same format as {first.place}; give files of one format")
    for one, two in ((other, first), (first, other)):
        if strange := [k for k, name in enumerate(one.names) if name not in two.names]:
            position = f"column {strange[0] + 1}"
            named = position if one.kind in _NO_HEADER else f"{position}, '{one.names[strange[0]]}',"
            raise DataError(
                f"{one.place}: its {named} is not in {two.place}; files of one table have the same columns"
            )
    if len(first.names) != len(other.names):
        raise DataError(f"{other.place}: a column name is used more than once; rename the columns first")
