"""Tables out: a writer for each suffix, piece by piece."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Written:
    """How many rows a file has got, and how many cells of each column an apostrophe."""

    rows: int
    apostrophes: Mapping[str, int]


def check_table_path(path: Path, suffixes: tuple[str, ...] | None = None) -> None:
    """Refuse a path that could not be written, before anything is spent."""
    suffixes = tuple(WRITERS) if suffixes is None else suffixes
    if path.suffix.lower() not in suffixes:
        raise ConfigError(f"{path}: cannot tell the format from the name; end it in {' or '.join(suffixes)}")
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{path}: already exists; choose another name with -o, or remove it first")


def write_table(
    pieces: Iterator[pa.Table], path: Path, on_rows: Callable[[int], None] = lambda rows: None
) -> Written:
    """Write a table piece by piece in the format of its suffix."""
    rows, apostrophes = 0, Counter[str]()
    with contextlib.closing(_one_ahead(pieces)) as ready:
        first = next(ready)
        with beside(path) as temporary, WRITERS[path.suffix.lower()](temporary, first.schema) as writer:
            for piece in chain([first], ready):
                apostrophes.update(writer.write_table(piece) or {})
                rows += piece.num_rows
                on_rows(rows)
    return Written(rows, dict(apostrophes))


def _one_ahead(pieces: Iterator[pa.Table]) -> Generator[pa.Table]:
    """The pieces; while one is written, the next is made."""
    with ThreadPoolExecutor(1, thread_name_prefix="repsynth") as pool:
        piece = pool.submit(next, pieces, None)
        while (ready := piece.result()) is not None:
            piece = pool.submit(next, pieces, None)
            yield ready


def _parquet_writer(path: Path, schema: pa.Schema) -> Any:
    import pyarrow.parquet as pq

    return pq.ParquetWriter(path, schema)


class _CsvWriter:
    """CSV that no spreadsheet takes for formulas."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.csv as pacsv

        self._writer = pacsv.CSVWriter(path, _without_formulas(schema.empty_table())[0].schema)
        risky = takes_apostrophe(schema.names)
        self._header = Counter(name for name, is_risky in zip(schema.names, risky, strict=True) if is_risky)

    def __enter__(self) -> "_CsvWriter":
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write_table(self, table: pa.Table) -> Counter[str]:
        safe, apostrophes = _without_formulas(table)
        self._writer.write_table(safe)
        header, self._header = self._header, Counter()
        return apostrophes + header


WRITERS: dict[str, Callable[[Path, pa.Schema], Any]] = {
    ".csv": _CsvWriter,
    ".parquet": _parquet_writer,
    ".pq": _parquet_writer,
}
"""For each suffix a writer: a context with `write_table(piece)`, which may return how many cells of which column
have got an apostrophe. A new format is one entry."""


def takes_apostrophe(texts: Sequence[str]) -> list[bool]:
    """Which texts get an apostrophe in a CSV file.

    >>> takes_apostrophe(["=A1", "-5", "n/a"])
    [True, False, False]
    """
    return _risky(pa.array(texts, pa.string())).to_pylist()  # type: ignore[no-any-return]


def _without_formulas(table: pa.Table) -> tuple[pa.Table, Counter[str]]:
    """A spreadsheet runs a cell that starts with = + - @ as a formula. Such text, and such column names, get an
    apostrophe before them, unless they are a plain number or sign; the schema may come from somebody else. Beside
    the table: how many cells of each column have got one."""
    columns, apostrophes = [], Counter[str]()
    for name, column in zip(table.column_names, table.columns, strict=True):
        texts = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        if pa.types.is_string_view(texts.type):
            texts = texts.cast(pa.string())
        if pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type):
            apostrophes[name] += pc.sum(_risky(texts)).as_py() or 0
            texts = _quoted(texts)
        columns.append(texts)
    names = _quoted(pa.chunked_array([pa.array(table.column_names, pa.string())])).to_pylist()
    return pa.table(columns, names=names), apostrophes


def _quoted(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    apostrophe, nothing = pa.scalar("'", texts.type), pa.scalar("", texts.type)
    return pc.if_else(_risky(texts), pc.binary_join_element_wise(apostrophe, texts, nothing), texts)


def _risky(texts: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    return pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _HARMLESS))
