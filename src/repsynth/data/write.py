"""Tables out: a writer for each suffix, piece by piece."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from repsynth.data.sources.base import is_text
from repsynth.errors import ConfigError, shown
from repsynth.storage import check_place, unnamed
from repsynth.threads import how_many_workers, in_order

# What a spreadsheet may run, after blanks and in full width, too; and what of that is only a number or a sign.
_FORMULA = "^[\\s\\x00\\x{FEFF}]*[=+\\-@\\x{FF1D}\\x{FF0B}\\x{FF0D}\\x{FF20}]|^[\\t\\r\\n]"
_HARMLESS = "^[+-]?(\\p{Sc}?([0-9][0-9.,'’_ \u00a0\u202f]*|[.,][0-9]+)([eE][+-]?[0-9]+)?|inf)?$"


@dataclass(frozen=True)
class Written:
    """How many rows a file has got, and how many cells of each column an apostrophe."""

    rows: int
    apostrophes: Mapping[str, int]


def check_table_path(path: Path, suffixes: tuple[str, ...] | None = None) -> None:
    """Refuse a path that could not be written, before anything is spent."""
    suffixes = tuple(WRITERS) if suffixes is None else suffixes
    if path.suffix.lower() not in suffixes:
        raise ConfigError(
            f"{shown(path)}: cannot tell the format from the name; end it in {' or '.join(suffixes)}"
        )
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{shown(path)}: already exists; choose another name with -o, or remove it first")


def write_table(
    pieces: Iterable[Callable[[], pa.Table]],
    schema: pa.Schema,
    path: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Written:
    """Write a table piece by piece in the format of its suffix; `schema` is the table's.

    Several threads make the pieces, which may have texts as dictionaries, and get them ready.
    """
    rows, apostrophes = 0, Counter[str]()
    with unnamed(path) as temporary, contextlib.closing(WRITERS[path.suffix.lower()](temporary, schema)) as writer:

        def make(piece: Callable[[], pa.Table]) -> tuple[int, Any]:
            table = piece()
            return table.num_rows, writer.ready(table)

        with contextlib.closing(in_order(make, pieces, how_many_workers())) as made:
            for count, ready in made:
                apostrophes.update(writer.write(ready) or {})
                rows += count
                on_rows(rows)
    return Written(rows, dict(apostrophes))


class Writer(Protocol):
    """Writes a table to a file, piece by piece."""

    def close(self) -> None: ...

    def ready(self, piece: pa.Table) -> Any:
        """What is to be written of a piece; several threads may ask at a time."""
        ...

    def write(self, ready: Any) -> Mapping[str, int] | None:
        """Write it; and how many cells of which column have got an apostrophe."""
        ...


class _ParquetWriter:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        # A dictionary of fractions would hold nearly every one of them, and take most of the time.
        repeated = [field.name for field in schema if not pa.types.is_floating(field.type)]
        # The least and the largest text would be the same in every piece, and take long.
        ordered = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
        self._writer = pq.ParquetWriter(
            path, schema, use_dictionary=repeated or False, write_statistics=ordered or False
        )
        self.close = self._writer.close

    def ready(self, piece: pa.Table) -> pa.Table:
        return piece

    def write(self, ready: pa.Table) -> None:
        self._writer.write_table(ready)


class _CsvWriter:
    """CSV that no spreadsheet takes for formulas."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        risky = takes_apostrophe(schema.names)
        self._header = Counter(name for name, is_risky in zip(schema.names, risky, strict=True) if is_risky)
        self._names = [_as_csv(_without_formulas(schema.empty_table())[0], header=True)]
        self._file = path.open("wb")
        self.close = self._file.close

    def ready(self, piece: pa.Table) -> tuple[pa.Buffer, Counter[str]]:
        safe, apostrophes = _without_formulas(piece)
        return _as_csv(safe, header=False), apostrophes

    def write(self, ready: tuple[pa.Buffer, Counter[str]]) -> Counter[str]:
        text, apostrophes = ready
        self._file.writelines([*self._names, text])
        header, self._header, self._names = self._header, Counter(), []
        return apostrophes + header


WRITERS: dict[str, Callable[[Path, pa.Schema], Writer]] = {
    ".csv": _CsvWriter,
    ".parquet": _ParquetWriter,
    ".pq": _ParquetWriter,
}
"""For each suffix a writer. A new format is one entry."""


def _as_csv(table: pa.Table, *, header: bool) -> pa.Buffer:
    import pyarrow.csv as pacsv

    written = pa.BufferOutputStream()
    pacsv.write_csv(table, written, pacsv.WriteOptions(include_header=header, batch_size=max(len(table), 1)))
    return written.getvalue()


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
        cells = column.combine_chunks()
        if pa.types.is_dictionary(cells.type):  # each text once
            texts, risky = _quoted(cells.dictionary)
            if pc.any(risky).as_py():
                apostrophes[name] += pc.sum(risky.take(cells.indices)).as_py() or 0
            cells = pa.DictionaryArray.from_arrays(cells.indices, texts)
        elif is_text(cells.type):
            cells, risky = _quoted(cells)
            apostrophes[name] += pc.sum(risky).as_py() or 0
        columns.append(cells)
    names = _quoted(pa.array(table.column_names, pa.string()))[0].to_pylist()
    return pa.table(columns, names=names), apostrophes


def _quoted(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Texts with an apostrophe where they need one; and which do."""
    if pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.string())
    risky = _risky(texts)
    if not pc.any(risky).as_py():
        return texts, risky
    apostrophe, nothing = pa.scalar("'", texts.type), pa.scalar("", texts.type)
    return pc.if_else(risky, pc.binary_join_element_wise(apostrophe, texts, nothing), texts), risky


def _risky(texts: pa.Array) -> pa.Array:
    return pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _HARMLESS))
