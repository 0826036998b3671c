"""Workbooks (Excel, OpenDocument) and files of statistics programs (SPSS, Stata, SAS).

Each cell of a workbook has its own type. The first row names the columns. Empty rows and cells to the right of the
last name are skipped.

In a statistics file the declared type and format of a column decide how its cells are read. Cells are the stored
codes. Declared labels go to the draft of a schema.
"""

import re
import zipfile
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from repsynth.errors import ConfigError, DataError, printable
from repsynth.io.source import (
    BATCH_ROWS,
    UNREADABLE,
    File,
    Source,
    lacks_extra,
    quietly,
    read_cell,
    read_cells,
    steady,
)

# --- workbooks ---

_PLACE = re.compile(rb"""\br\s*=\s*["']([A-Za-z]{0,8})([0-9]{0,10})["']""")
"""The position of a row or a cell."""

_MOST_CELLS = 2**25  # which take 1 GB
_CHUNK = 2**20


def open_excel(file: File) -> Source:
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
    """Refuse a small file that takes much memory: the reader allocates all cells between the outermost ones."""
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
    """Return the last row and column that a sheet of an .xlsx file names."""
    rows, columns, rest = 0, 0, b""
    with archive.open(part) as content:
        while chunk := content.read(_CHUNK) or rest:
            # Cut between tags, so that no position is split. The remainder is the last chunk.
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


# --- statistics programs ---

_EPOCH = date(1970, 1, 1)
_DAY = 86_400
_CARD = 80  # bytes of a record of SAS's transport files


class _Program(NamedTuple):
    """How a program counts time: its first day, the formats of days and times, and their units in seconds."""

    start: date
    days: str
    times: str
    day_unit: float
    time_unit: float


_MARKS = "[BCDNPS]?"
_SPSS = _Program(date(1582, 10, 14), r"[AEJS]?DATE", r"DATETIME|YMDHMS", 1, 1)
_STATA = _Program(date(1960, 1, 1), r"%-?t?d.*", r"%-?tc.*", _DAY, 0.001)
_SAS = _Program(
    date(1960, 1, 1),
    rf"DATE|(DDMMYY|MMDDYY|YYMMDD){_MARKS}|[BE]8601DA|(WEEK|WORD)DAT[EX]",
    r"DATETIME|DATEAMPM|[BE]8601DT",
    _DAY,
    1,
)
_READERS = {
    ".sav": ("read_sav", _SPSS),
    ".zsav": ("read_sav", _SPSS),
    ".por": ("read_por", _SPSS),
    ".dta": ("read_dta", _STATA),
    ".sas7bdat": ("read_sas7bdat", _SAS),
    ".xpt": ("read_xport", _SAS),
}


def open_statistics(file: File) -> Source:
    """Open a file of SPSS, Stata or SAS. Values that the file declares as missing are missing."""
    try:
        import pyreadstat
    except ImportError:
        raise lacks_extra("a file of SPSS, Stata or SAS", "statistics") from None
    function, program = _READERS[file.path.suffix.lower()]
    failures = (pyreadstat.ReadstatError, pyreadstat.PyreadstatError, *UNREADABLE)
    takes = frozenset(("encoding",) if function != "read_por" else ())
    asked = {name: getattr(file.reading, name) for name in takes & file.reading.given}

    def parse(**options: Any) -> Any:
        return getattr(pyreadstat, function)(str(file.path), output_format="dict", **asked, **options)

    try:
        if function == "read_xport" and file.path.stat().st_size % _CARD:
            raise OSError  # the format has no row count, so a file that was cut off cannot be recognised otherwise
        _, notes = parse(metadataonly=True, **({"user_missing": True} if function == "read_sav" else {}))
    except failures:
        raise DataError(f"{file.place}: not a file of its kind, or a damaged one") from None
    names = tuple(notes.column_names)
    types = tuple(
        _stored_type(notes.readstat_variable_types[n], notes.original_variable_types[n] or "", program)
        for n in names
    )
    type_of = dict(zip(names, types, strict=True))

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        done, total = 0, notes.number_rows
        while total is None or done < total:
            chosen = list(columns) or list(names[:1])
            cells, _ = parse(
                usecols=chosen, row_offset=done, row_limit=BATCH_ROWS, disable_datetime_conversion=True
            )
            arrays = [_array(cells[name], type_of[name], program) for name in chosen]
            rows = len(arrays[0])
            if rows:
                yield pa.RecordBatch.from_arrays(arrays, names=chosen).select(list(columns))
            done += rows
            if rows < BATCH_ROWS:
                break
        if total is not None and done != total:
            raise DataError(f"{file.place}: has fewer rows than it says; check that the file is whole")

    remedy = "check that the file is whole, and name its encoding with --encoding"
    return Source(
        "statistics",
        names,
        types,
        steady(quietly(read, f"{file.place}: cannot be read", remedy=remedy, errors=failures), file),
        notes.number_rows,
        place=file.place,
        takes=takes,
        labels={name: _labels(notes, name) for name in notes.variable_value_labels},
    )


def _labels(notes: Any, name: str) -> dict[str, str]:
    """Return the labels of a column's codes, except those declared as missing."""
    gaps = [(gap["lo"], gap["hi"]) for gap in notes.missing_ranges.get(name, [])]
    found = {}
    for code, label in notes.variable_value_labels[name].items():
        text = read_cell(code).text
        if text is not None and not any(type(code) is type(low) and low <= code <= high for low, high in gaps):
            found[text] = str(label)
    return found


def _stored_type(stored: str, form: str, program: _Program) -> pa.DataType:
    """Return the Arrow type by the declared storage and format."""
    if stored.startswith("string"):
        return pa.string()
    form = form if form.startswith("%") else re.sub(r"[0-9.]+$", "", form.upper())
    if re.fullmatch(program.times, form):
        return pa.timestamp("ms")
    return pa.date32() if re.fullmatch(program.days, form) else pa.float64()


def _array(cells: Sequence[Any], arrow_type: pa.DataType, program: _Program) -> pa.Array:
    if arrow_type == pa.string():
        return pa.array([None if cell is None else str(cell) for cell in cells], pa.string())
    numbers = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
    if arrow_type == pa.float64():
        return pa.array(numbers, from_pandas=True)
    missing, numbers = ~np.isfinite(numbers), np.where(np.isfinite(numbers), numbers, 0)
    since = (program.start - _EPOCH).days
    if arrow_type == pa.date32():
        days = np.floor(numbers * (program.day_unit / _DAY)) + since
        return pa.array(np.clip(days, -(2**31), 2**31 - 1).astype(np.int32), pa.date32(), mask=missing)
    ticks = np.floor(numbers * program.time_unit * 1000) + since * _DAY * 1000
    return pa.array(np.clip(ticks, -(2.0**53), 2.0**53).astype(np.int64), pa.timestamp("ms"), mask=missing)
