"""Files of statistics programs: SPSS, Stata and SAS. A column's declared type and format say what its cells are.

Cells are codes as they are stored; what a code stands for, as the file declares it, goes to the draft of a schema.
"""

import re
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, UNREADABLE, File, Source, lacks_extra, quietly, steady
from repsynth.data.sources.cells import read_cell
from repsynth.errors import DataError

_EPOCH = date(1970, 1, 1)
_DAY = 86_400
_CARD = 80  # bytes of a record of SAS's transport files


class _Program(NamedTuple):
    """How a program counts time: from which day on, in which formats days and times stand, and how many seconds
    (of days, of times) a unit is."""

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
    """A file of SPSS, Stata or SAS. What the file declares as missing is missing."""
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
            raise OSError  # it does not say how many rows there are: what else is cut off cannot be told
        _, notes = parse(metadataonly=True, **({"user_missing": True} if function == "read_sav" else {}))
    except failures:
        raise DataError(f"{file.place}: not a file of its kind, or a damaged one") from None
    names = tuple(notes.column_names)
    types = tuple(
        _type(notes.readstat_variable_types[n], notes.original_variable_types[n] or "", program) for n in names
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
    """What the codes of a column stand for, but for those that the file declares as missing."""
    gaps = [(gap["lo"], gap["hi"]) for gap in notes.missing_ranges.get(name, [])]
    found = {}
    for code, label in notes.variable_value_labels[name].items():
        text = read_cell(code).text
        if text is not None and not any(type(code) is type(low) and low <= code <= high for low, high in gaps):
            found[text] = str(label)
    return found


def _type(stored: str, form: str, program: _Program) -> pa.DataType:
    """By what is declared, whatever the cells are."""
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
