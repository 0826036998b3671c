"""Several files as one table: a list, a folder or a pattern, also with columns in the names of folders.

Each file is read by its own storage types: `pyarrow.dataset` would cast them to those of the first file, and quote
the cell at which that fails. Names of folders hold cells (`sex=f/part-0.parquet`). Messages leave them out. They
are read as text, so that no value decides how others are read.
"""

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from repsynth.data.source import Ask, Reader, Source
from repsynth.errors import DataError, printable, shown

_NOTHING = "__HIVE_DEFAULT_PARTITION__"
_CELL = re.compile(r"([^/=]+)=[^/]*/")
_NO_HEADER = ("csv", "excel")
"""Formats whose first line may turn out to be somebody's data: its names are not shown."""

Opener = Callable[[Path, str], Source]  # opens a file by its suffix; the text is what messages call it


def is_pattern(text: str) -> bool:
    """Whether a name stands for several files."""
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
        pieces=lambda ask: [WithCells(piece, cells, source.names[0]) for piece in _pieces(source, ask)],
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


def _pieces(source: Source, ask: Ask) -> Sequence[Reader]:
    return [source.batches] if source.pieces is None else source.pieces(ask)


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
        pieces=lambda ask: [piece for source in sources for piece in _pieces(source, ask)],
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
