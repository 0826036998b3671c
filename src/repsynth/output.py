"""Files out: written beside their place, then moved there, so that none is ever half written."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from repsynth.errors import ConfigError, DataError

TABLE_SUFFIXES = (".csv", ".parquet", ".pq")

# What a spreadsheet may run, after blanks and in full width, too; and what of that is only a number or a sign.
_FORMULA = "^[\\s\\x00\\x{FEFF}]*[=+\\-@\\x{FF1D}\\x{FF0B}\\x{FF0D}\\x{FF20}]|^[\\t\\r\\n]"
_HARMLESS = "^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+|inf)?([eE][+-]?[0-9]+)?$"


def check_table_path(path: Path, suffixes: tuple[str, ...] = TABLE_SUFFIXES) -> None:
    """Refuse a path that could not be written, before anything is spent."""
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"{path}: cannot tell the format from the name; end it in {' or '.join(suffixes)}")
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{path}: already exists; choose another name with -o, or remove it first")


def check_place(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to."""
    parent = path.parent
    if not parent.is_dir():
        raise ConfigError(f"{parent}: no such folder; make it first")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{parent}: cannot be written to; choose another folder")


def write_table(pieces: Iterator[pa.Table], path: Path, on_rows: Callable[[int], None] = lambda rows: None) -> int:
    """Write a table piece by piece as CSV or Parquet; the number of rows written."""
    make_writer = pq.ParquetWriter
    if path.suffix.lower() == ".csv":
        make_writer, pieces = pacsv.CSVWriter, map(_without_formulas, pieces)
    first = next(pieces)
    rows = 0
    with beside(path) as temporary, make_writer(temporary, first.schema) as writer:
        for piece in chain([first], pieces):
            writer.write_table(piece)
            rows += piece.num_rows
            on_rows(rows)
    return rows


@contextmanager
def beside(path: Path, *, mode: int = 0o644, replace: bool = False) -> Iterator[Path]:
    """A temporary file in the same folder that becomes `path` at the end, or disappears on any error.

    It takes the place of a file that is there only where `replace` says so.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if replace:
            temporary.replace(path)
        else:
            _place(temporary, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); nothing was left behind") from None
    finally:
        temporary.unlink(missing_ok=True)


def _place(temporary: Path, path: Path) -> None:
    """Move a file to its place, but not over another that came there meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(path)


def _without_formulas(table: pa.Table) -> pa.Table:
    """A spreadsheet runs a cell that starts with = + - @ as a formula. Such text, and such column names, get an
    apostrophe before them, unless they are a plain number or sign; the schema may come from somebody else."""
    columns = []
    for column in table.columns:
        texts = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        if pa.types.is_string_view(texts.type):
            texts = texts.cast(pa.string())
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            texts = _quoted(texts)
        columns.append(texts)
    names = _quoted(pa.chunked_array([pa.array(table.column_names, pa.string())])).to_pylist()
    return pa.table(columns, names=names)


def _quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    risky = pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _HARMLESS))
    apostrophe, nothing = pa.scalar("'", texts.type), pa.scalar("", texts.type)
    return pc.if_else(risky, pc.binary_join_element_wise(apostrophe, texts, nothing), texts)
