"""Several files that are one table: a list of them, a folder, a pattern; with columns in the names of folders.

A column may have another storage type in each file: each is read by its own, and a cell reads alike in all of
them. The names of folders hold cells (`sex=f/part-0.parquet`), so messages leave them out, and they are read as
text: their types would otherwise depend on each other.
"""

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from repsynth.data.sources.base import Ask, Reader, Source
from repsynth.data.sources.recorded import GUESSED
from repsynth.errors import DataError, printable, shown

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_CELL = re.compile(r"([^/=]+)=[^/]*/")
_NO_HEADER = ("csv", "excel")
"""Where the first line may turn out to be somebody's data: its names are not shown."""

Opener = Callable[[Path, str], Source]
"""Opens a file by its suffix; the text is what messages call it."""


def is_pattern(text: str) -> bool:
    """Whether a name stands for several files."""
    return re.search(r"[*?\[]", text) is not None


def open_folder(folder: Path, opener: Opener) -> Source:
    """All files of a folder and its subfolders; those named `column=value` hold a column of their own."""
    files = _files_in(folder)
    if not files:
        raise DataError(f"{shown(folder)}: no files in this folder; check the path")
    return _open_below(folder, files, opener)


def open_pattern(pattern: str, opener: Opener) -> Source:
    """All files that a pattern such as `data/*.parquet` matches; columns in folders' names as in `open_folder`."""
    found = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    files = [file for path in found for file in (_files_in(path) if path.is_dir() else [path])]
    if not files:
        raise DataError(f"{shown(pattern)}: no file matches; check the pattern")
    parts = Path(pattern).parts
    fixed = next(k for k, part in enumerate(parts) if is_pattern(part))
    return _open_below(Path(*parts[:fixed]), list(dict.fromkeys(files)), opener)


def _files_in(folder: Path) -> list[Path]:
    """But for those that are hidden, such as marks that a writer leaves when it is done."""
    hidden = re.compile(r"[._]")
    found = [path for path in folder.rglob("*") if path.is_file()]
    return sorted(p for p in found if not any(map(hidden.match, p.relative_to(folder).parts)))


def _open_below(root: Path, files: Sequence[Path], opener: Opener) -> Source:
    parts = []
    for file in files:
        cells = _cells(file.relative_to(root).parent)
        place = without_cells(root, file)
        parts.append(_with_cells(opener(file, place), cells))
    return join_sources(parts)


def without_cells(root: Path, file: Path) -> str:
    """The name of a file for messages: the values in the names of folders are cells.

    >>> without_cells(Path("data"), Path("data/sex=f/part-0.parquet"))
    'data/sex=.../part-0.parquet'
    """
    return printable(str(root / _CELL.sub(r"\1=.../", file.relative_to(root).as_posix())))


def _cells(folder: Path) -> dict[str, str | None]:
    pairs = [part.partition("=") for part in folder.parts if "=" in part]
    found = {unquote(name): None if value == _NOTHING else unquote(value) for name, _, value in pairs}
    # What is no text in the name of a folder must not stop a run.
    return {
        name: cell if cell is None else cell.encode("utf-8", "replace").decode() for name, cell in found.items()
    }


def _with_cells(source: Source, cells: dict[str, str | None]) -> Source:
    """A file and the columns in its folders' names."""
    twice = [name for name in cells if name in source.names]
    if twice:
        raise DataError(
            f"{source.place}: column '{twice[0]}' is in the file and in the name of its folder; drop one"
        )
    if not cells:
        return source

    nothing = (None,) * len(cells)
    return replace(
        source,
        names=(*source.names, *cells),
        types=(*source.types, *(pa.string() for _ in cells)),
        dtypes=(*source.dtypes, *nothing),
        batches=WithCells(source.batches, cells, source.names[0]),
        pieces=lambda ask: [WithCells(piece, cells, source.names[0]) for piece in _pieces(source, ask)],
    )


@dataclass(frozen=True)
class WithCells:
    """Reads a file and puts the columns in its folders' names beside it; `first` is a column of the file."""

    read: Reader
    cells: dict[str, str | None]
    first: str

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Its batches."""
        own = [name for name in columns if name not in self.cells] or [self.first]
        for batch in self.read(own):
            arrays = [
                _repeated(self.cells[c], batch.num_rows) if c in self.cells else batch.column(c) for c in columns
            ]
            yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _pieces(source: Source, ask: Ask) -> Sequence[Reader]:
    return [source.batches] if source.pieces is None else source.pieces(ask)


def _repeated(cell: str | None, rows: int) -> pa.DictionaryArray:
    codes = pa.array([0], pa.int32()) if cell is not None else pa.nulls(1, pa.int32())
    codes = codes.take(pa.nulls(rows, pa.int64()).fill_null(0))
    return pa.DictionaryArray.from_arrays(codes, pa.array([cell or ""], pa.string()))


def join_sources(sources: Sequence[Source]) -> Source:
    """The rows of all, one source after the other; they must have the same columns, in any order."""
    first, *others = sources
    if not others:
        return first
    for source in others:
        _check_same(first, source)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for source in sources:
            yield from source.batches(columns)

    found = [{n: (t, d) for n, t, d in zip(s.names, s.types, s.dtypes, strict=True)} for s in sources]
    stored = [_common([each[name] for each in found]) for name in first.names]
    rows = [source.rows for source in sources]
    return replace(
        first,
        types=tuple(kind for kind, _ in stored),
        dtypes=tuple(dtype for _, dtype in stored),
        batches=read,
        pieces=lambda ask: [piece for source in sources for piece in _pieces(source, ask)],
        files=tuple(file for source in sources for file in source.files),
        rows=None if None in rows else sum(row or 0 for row in rows),
        place=f"{first.place} and {len(others)} more",
        takes=frozenset().union(*(source.takes for source in sources)),
        dropped=lambda: sum(source.dropped() for source in sources),
    )


Stored = tuple[pa.DataType | None, str | None]


def _common(stored: Sequence[Stored]) -> Stored:
    """How a column is stored in all files: where they differ, no type is known, and pandas has made some of
    them."""
    types, dtypes = ({each[k] for each in stored} for k in (0, 1))
    dtype = stored[0][1] if len(dtypes) == 1 else GUESSED
    return (stored[0][0] if len(types) == 1 else pa.null()), dtype


def _check_same(first: Source, other: Source) -> None:
    if first.kind != other.kind:
        raise DataError(f"{other.place}: is not of the same format as {first.place}; give files of one format")
    for one, two in ((other, first), (first, other)):
        strange = [k for k, name in enumerate(one.names) if name not in two.names]
        if strange:
            position = f"column {strange[0] + 1}"
            named = position if one.kind in _NO_HEADER else f"{position}, '{one.names[strange[0]]}',"
            raise DataError(
                f"{one.place}: its {named} is not in {two.place}; files of one table have the same columns"
            )
    if len(first.names) != len(other.names):
        raise DataError(f"{other.place}: a column name is used more than once; rename the columns first")
