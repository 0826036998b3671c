"""Workbooks (Excel, OpenDocument): each cell has a type of its own, and so each cell is read by itself.

The first row names the columns. A row without any cell is none, as a blank line of a CSV file; cells to the right
of the last name belong to no column.
"""

import re
import zipfile
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, UNREADABLE, File, Source, lacks_extra, quietly, steady
from repsynth.data.sources.cells import read_cell, read_cells
from repsynth.errors import ConfigError, DataError, printable

_PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]{0,8})([0-9]{0,10})["']""")
"""Where a row or a cell says that it is."""

_MOST_CELLS = 2**25  # which take 1 GB
_CHUNK = 2**20


def open_excel(file: File) -> Source:
    """A sheet of a workbook."""
    try:
        from python_calamine import CalamineError, CalamineWorkbook
    except ImportError:
        raise lacks_extra("a workbook", "excel") from None
    failures = (CalamineError, OverflowError, *UNREADABLE)  # a span of time that Python cannot hold

    _check_size(file)

    def rows() -> Iterator[list[Any]]:
        with CalamineWorkbook.from_path(str(file.path)) as workbook:
            sheet = _sheet(workbook.sheet_names, file)
            yield from workbook.get_sheet_by_name(sheet).to_python(skip_empty_area=False)

    try:
        header = next(rows(), [])
    except failures:
        raise DataError(f"{file.place}: not a workbook, or a damaged one") from None
    names = _names(header, file)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        places = [names.index(name) for name in columns]
        kept = ([_empty(row[k]) for k in range(len(names))] for row in islice(rows(), 1, None))
        full = (row for row in kept if any(cell is not None for cell in row))
        while piece := list(islice(full, BATCH_ROWS)):
            cells = [read_cells([row[place] for row in piece]) for place in places]
            yield pa.RecordBatch.from_arrays(cells, names=list(columns))

    return Source(
        "excel",
        names,
        (pa.null(),) * len(names),
        steady(quietly(read, f"{file.place}: cannot be read as a workbook", errors=failures), file),
        place=file.place,
        takes=frozenset(("table_name",)),
    )


def _check_size(file: File) -> None:
    """Refuse a small file that would take much memory: the reader makes room for all cells between the outermost
    ones. A sheet may have some millions of cells, or as many as it has bytes."""
    if file.path.suffix.lower() == ".xls":  # the only one that is no archive
        return
    try:
        with zipfile.ZipFile(file.path) as archive:
            parts = archive.infolist()
            if sum(part.file_size for part in parts) > 2**26 + 200 * file.path.stat().st_size:
                raise DataError(f"{file.place}: grows to more than 200 times its size; is it a workbook?")
            for part in parts:
                rows, columns = _extent(archive, part)
                if rows * columns > _MOST_CELLS + part.file_size:
                    raise DataError(
                        f"{file.place}: a sheet with {rows:,} rows and {columns:,} columns, most of them empty; "
                        "delete the cells that lie far from the table"
                    )
    # zipfile raises NotImplementedError for an unknown compression and RuntimeError for an encrypted part.
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, *UNREADABLE):
        raise DataError(f"{file.place}: not a workbook, or a damaged one") from None


def _extent(archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> tuple[int, int]:
    """The last row and the last column that are named in a sheet of .xlsx."""
    rows, columns, rest = 0, 0, b""
    with archive.open(part) as content:
        while chunk := content.read(_CHUNK) or rest:
            # Cut between tags, so that no place is cut; what is left at the end is a chunk of its own.
            whole, mark, after = (rest + chunk).rpartition(b"<") if chunk is not rest else (rest, b"", b"")
            rest = mark + after
            found = _PLACE.findall(whole)
            columns = max(columns, *map(_column, {letters for letters, _ in found}), 0)
            rows = max(rows, *(int(digits or 0) for digits in {digits for _, digits in found}), 0)
    return rows, columns


def _column(letters: bytes) -> int:
    """The number of a column.

    >>> _column(b"A"), _column(b"XFD")
    (1, 16384)
    """
    number = 0
    for letter in letters.upper():
        number = 26 * number + letter - 64
    return number


def _sheet(sheets: list[str], file: File) -> str:
    asked = file.reading.table_name
    if asked is None and len(sheets) == 1:
        return sheets[0]
    if asked is None:
        raise ConfigError(
            f"{file.place}: name the sheet with --table (there are {printable(', '.join(sheets[:8]))})"
        )
    if asked not in sheets:
        raise DataError(f"{file.place}: no sheet '{asked}'; check its name, with capitals as they stand")
    return asked


def _names(header: list[Any], file: File) -> tuple[str, ...]:
    names = [read_cell(cell).text or "" for cell in header]
    while names and not names[-1].strip():
        names.pop()
    if not names:
        raise DataError(f"{file.place}: empty sheet; its first row must name the columns")
    if blank := [k for k, name in enumerate(names, start=1) if not name.strip()]:
        raise DataError(f"{file.place}: the first row names no column at position {blank[0]}; name it, or drop it")
    return tuple(names)


def _empty(cell: Any) -> Any:
    return None if cell == "" else cell
