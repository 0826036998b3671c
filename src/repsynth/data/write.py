"""Tables out: a writer for each suffix, piece by piece."""

import os
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from repsynth.errors import ConfigError
from repsynth.storage.atomic import beside, check_place

# What a spreadsheet may run, after blanks and in full width, too; and what of that is only a number or a sign.
_FORMULA = "^[\\s\\x00\\x{FEFF}]*[=+\\-@\\x{FF1D}\\x{FF0B}\\x{FF0D}\\x{FF20}]|^[\\t\\r\\n]"
_HARMLESS = "^[+-]?[\\p{Sc}]?([0-9][0-9.,'’_ \u00a0\u202f]*|[.,][0-9]+|inf)?([eE][+-]?[0-9]+)?$"


def check_table_path(path: Path, suffixes: tuple[str, ...] | None = None) -> None:
    """Refuse a path that could not be written, before anything is spent."""
    suffixes = tuple(WRITERS) if suffixes is None else suffixes
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"{path}: cannot tell the format from the name; end it in {' or '.join(suffixes)}")
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{path}: already exists; choose another name with -o, or remove it first")


def write_table(pieces: Iterator[pa.Table], path: Path, on_rows: Callable[[int], None] = lambda rows: None) -> int:
    """Write a table piece by piece in the format of its suffix; the number of rows written."""
    first = next(pieces)
    rows = 0
    with beside(path) as temporary, WRITERS[path.suffix.lower()](temporary, first.schema) as writer:
        for piece in chain([first], pieces):
            writer.write_table(piece)
            rows += piece.num_rows
            on_rows(rows)
    return rows


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema)


class _CsvWriter:
    """CSV that no spreadsheet takes for formulas."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.csv as pacsv

        self._writer = pacsv.CSVWriter(path, _without_formulas(schema.empty_table()).schema)

    def __enter__(self) -> "_CsvWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write_table(self, table: pa.Table) -> None:
        self._writer.write_table(_without_formulas(table))


WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".csv": _CsvWriter,
    ".parquet": _parquet_writer,
    ".pq": _parquet_writer,
}
"""For each suffix a writer: a context with `write_table(piece)`. A new format is one entry."""


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
