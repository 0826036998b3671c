"""A source of records: names, storage types, and batches that can be read again and again."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.errors import ConfigError, DataError, shown
from repsynth.io.reading import AS_USUAL, ReadOptions
from repsynth.io.values import NULLS, Notation, date_format, numbers_of
from repsynth.schema import Boolean, Category, Datetime, Discrete, Integer, Number, Numeric, Schema

BATCH_ROWS = 131_072
UNREADABLE = (OSError, pa.ArrowException, ValueError, MemoryError)  # what Arrow raises on damaged files
_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_BYTES = (pa.binary(), pa.large_binary(), pa.binary_view())
Errors = tuple[type[BaseException], ...]
State = tuple[int, ...]
Reader = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class File:
    """A file to open, its name in messages, and how to read it."""

    path: Path
    place: str
    reading: ReadOptions = AS_USUAL

    @classmethod
    def at(cls, path: Path, reading: ReadOptions = AS_USUAL) -> "File":
        return cls(path, shown(path), reading)


@dataclass(frozen=True)
class Source:
    """A table that can be read again and again, a batch at a time.

    `types` holds the Arrow type of each column (None for CSV, which has none; null where each cell has its own).
    `batches` reads some of the columns.
    """

    kind: str
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    batches: Reader
    rows: int | None = None
    """The number of rows if known without reading; for progress only."""
    pieces: Callable[[], Sequence[Reader]] | None = None
    """Return readers of parts of the table, in order, that can be pickled. None if the table is one part."""
    files: tuple[str, ...] = ()  # files that all workers must see
    engine: str | None = None  # the only engine that reads it, for a data frame on a cluster
    frame: Any = None  # the data frame of that engine

    place: str = "the table"  # what messages call it: never with a password

    takes: frozenset[str] = frozenset()  # the read options that apply to it

    dropped: Callable[[], int] = lambda: 0
    """The number of malformed rows of the last reading. PRIVATE."""

    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Declared labels of codes by column. They reveal nothing about the rows."""


def check_columns(source: Source, schema: Schema) -> None:
    """Refuse a table whose columns are not the schema's.

    Columns that the schema does not know are named by position only: in a file without a header line
    their names would be somebody's data.
    """
    problems = []
    repeated = sorted({name for name in source.names if source.names.count(name) > 1})
    known = {column.name for column in schema.columns} | set(schema.dropped)
    if repeated:
        named = ", ".join(f"'{name}'" if name in known else "(not in the schema)" for name in repeated)
        problems.append(f"column name used more than once: {named}")
    absent = [name for name in (column.name for column in schema.columns) if name not in source.names]
    if absent:
        problems.append(f"no column {', '.join(map(repr, absent))} in the data")
    extra = [str(i) for i, name in enumerate(source.names, start=1) if name not in known]
    if extra:
        shown = ", ".join(extra[:8]) + (", ..." if len(extra) > 8 else "")
        problems.append(f"{len(extra)} column(s) of the data are not in the schema (position {shown})")
    if problems:
        if (mark := other_mark(source)) is not None and len(known) > 1:
            remedy = say_delimiter(mark)
        elif source.kind == "csv" and len(source.names) == 1 < len(known):
            remedy = "the file seems to have one column only: say what separates its cells with --delimiter"
        elif extra:
            remedy = "add them to the schema, drop them from the data, or check that the file has a header line"
        else:
            remedy = "rename or add it in the data, or mend the schema"
        raise DataError(f"{'; '.join(problems)}: {remedy}")
    learned = {column.name for column in schema.learned}
    for name, arrow_type in zip(source.names, source.types, strict=True):
        if arrow_type is not None:
            check_type(name, arrow_type, learned=name in learned)
            if schema.person is not None and name == schema.person.column:
                _check_ids(name, arrow_type, source.kind)
                if source.kind == "duckdb":
                    storage = next(column.storage for column in schema.columns if column.name == name)
                    _check_declared(name, storage, {kind_of(arrow_type)})
    check_storage(source, schema)


def check_storage(source: Source, schema: Schema) -> None:
    """Refuse a column whose storage type could read a cell differently from its text.

    A reader that infers types chooses the storage type by all cells, so one record would change the reading of
    the others, and sums would move by more than their sensitivity.
    """
    types = dict(zip(source.names, source.types, strict=True))
    for column in schema.learned:
        kinds = _kinds(source, column.name, types[column.name])
        # An object column with numbers and text is what a reader leaves that inferred types chunk by chunk.
        mixed = source.kind == "pandas" and "text" in kinds and len(kinds) > 1
        wrong = sorted(kind for kind in kinds if mixed or not reads_as_text(column, kind))
        if not kinds and source.engine is None and _is_null_type(types[column.name]) and _declares_nulls(column):
            wrong = ["missing cells alone"]
        if source.kind == "duckdb":
            _check_declared(column.name, column.storage, kinds)
        if wrong:
            raise DataError(
                f"column '{column.name}' is stored as {' and '.join(wrong)}, which may not read as its text "
                "would, so one record could change how others are read; pass the file, or read it with dtype=str"
            )


def _is_null_type(arrow_type: pa.DataType | None) -> bool:
    return arrow_type is not None and bool(pa.types.is_null(cell_type(arrow_type)))


def _declares_nulls(column: Discrete | Numeric) -> bool:
    """Whether a declared value is a text that readers take for a missing cell."""
    declared = column.values if isinstance(column, Discrete) else column.special
    return any(value.strip().lower() in NULLS for value in declared)


def _check_declared(name: str, storage: str | None, kinds: set[str]) -> None:
    """Refuse numbers and times of DuckDB that the schema does not declare.

    From a CSV file it infers dates of many forms, and whole numbers by its first rows, to which later ones are
    rounded.
    """
    declared = "text"
    if storage is not None and not storage.endswith("string"):
        declared = "times" if storage.startswith(("date", "timestamp")) else "numbers"
    if kinds - {declared, "booleans"}:
        raise DataError(
            f"column '{name}' is stored as {' and '.join(sorted(kinds))}, which DuckDB may have inferred from its "
            'cells; if it is the type of the table, declare it in the schema (storage = "int64", "float64", '
            '"date32" or "timestamp[s]"), or pass the file'
        )


def reads_as_text(column: Discrete | Numeric, kind: str) -> bool:
    """Whether a cell of this kind (see `kind_of`) gets the same code as any text that a reader has for it."""
    match column, kind:
        case _, "text":
            return True
        case Boolean(), "numbers" | "booleans":
            return True
        case Category(), "numbers":
            return numbers_of(column.values) is not None
        case Integer() | Number(), "numbers":
            notation = Notation.of(column)
            plain = notation.decimal == "." and not any(map(str.isdigit, notation.prefix))
            return plain and numbers_of(column.special) is not None
        case Datetime(), "numbers":
            form = date_format(column)
            return (form is None or form.is_number) and numbers_of(column.special) is not None
        case Datetime(), "times":
            return column.dates is None and numbers_of(column.special) is not None
    return False


def kind_of(arrow_type: pa.DataType) -> str:
    """Return what the cells of a storage type are: text, numbers, booleans, times, or else the type's name."""
    kind, types = cell_type(arrow_type), pa.types
    if is_text(kind):
        return "text"
    if is_number(kind):
        return "numbers"
    if types.is_date(kind) or types.is_timestamp(kind):
        return "times"
    return "booleans" if types.is_boolean(kind) else str(kind)


def _kinds(source: Source, name: str, arrow_type: pa.DataType | None) -> set[str]:
    """Return the kinds of cells of a column: by its type, or cell by cell where each has its own type."""
    if arrow_type is None:
        return {"text"}
    if not pa.types.is_null(cell_type(arrow_type)):
        return {kind_of(arrow_type)}
    if source.engine == "dask":
        raise DataError(f"column '{name}' holds Python objects; convert it with .astype('string') first")
    if source.engine is not None:
        return set()
    found = set()
    for batch in source.batches([name]):
        cells = batch.column(0)
        while pa.types.is_dictionary(cells.type):
            cells = cells.dictionary
        if cells.type == CELLS:
            found |= kinds_of_cells(cells)
        elif cells.null_count < len(cells):
            found.add(kind_of(cells.type))
    return found


def other_mark(source: Source) -> str | None:
    """Return the likely delimiter of a CSV file that was read as one column."""
    if source.kind != "csv" or len(source.names) != 1:
        return None
    return next((mark for mark in ";\t|," if mark in source.names[0]), None)


def say_delimiter(mark: str) -> str:
    shown = "\\t" if mark == "\t" else mark
    return (
        f"the file seems to be separated by '{shown}': say --delimiter '{shown}' (in Python, delimiter='{shown}')"
    )


def check_type(name: str, arrow_type: pa.DataType, *, learned: bool) -> None:
    """Refuse unreadable types. No cell is looked at."""
    kind = cell_type(arrow_type)
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' holds nested values; flatten it into plain columns first")
    if learned and (isinstance(kind, pa.BaseExtensionType) or pa.types.is_interval(kind)):
        raise DataError(f"column '{name}' is of a type that is not read; make it text, numbers or times first")


def _check_ids(name: str, arrow_type: pa.DataType, source_kind: str) -> None:
    """Refuse ids of persons without an exact text. One missing id can turn integers into floats, and long ids then
    lose digits. Only statistics programs store all numbers as floats."""
    kind, types = cell_type(arrow_type), pa.types
    real = types.is_floating(kind) and source_kind != "statistics"
    if real or not (is_number(kind) or _is_string(kind)):
        held = "has no declared type" if types.is_null(kind) else f"holds {kind}"
        raise DataError(f"column '{name}' says whose a row is and {held}; make it text or whole numbers first")


def cell_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of the cells, without dictionaries, runs of equal cells and extensions of text.

    >>> cell_type(pa.dictionary(pa.int8(), pa.run_end_encoded(pa.int32(), pa.string())))
    DataType(string)
    """
    types = pa.types
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return cell_type(arrow_type.value_type)
    if isinstance(arrow_type, pa.BaseExtensionType) and _is_string(arrow_type.storage_type):
        return arrow_type.storage_type
    return arrow_type


def is_text(arrow_type: pa.DataType) -> bool:
    """Whether the type is of text or bytes."""
    return _is_string(arrow_type) or arrow_type in _BYTES or bool(pa.types.is_fixed_size_binary(arrow_type))


def is_number(arrow_type: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type))


def _is_string(arrow_type: pa.DataType) -> bool:
    return arrow_type in _STRINGS


def quietly(
    read: Reader, message: str, *, remedy: str = "check that the file is whole", errors: Errors = UNREADABLE
) -> Reader:
    """Replace messages of Arrow and other libraries, which quote cells."""

    def reading(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(columns)
        except errors:
            raise DataError(f"{message}; {remedy}") from None

    return reading


def state_of(path: Path) -> State:
    """Return a file's size, time of writing and inode; nothing where it is gone."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_size, found.st_mtime_ns, found.st_ino


def steady(read: Reader, file: File) -> Reader:
    return unchanged(read, file.path, state_of(file.path), file.place)


def unchanged(read: Reader, path: Path, before: State, place: str) -> Reader:
    """Refuse a file whose state does not start with `before`, before and after each reading, so that all sums are
    over the same table."""

    def check() -> None:
        if state_of(path)[: len(before)] != before:
            raise DataError(f"{place}: changed since it was opened; start again when nobody writes to it")

    def reading(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        check()
        yield from read(columns)
        check()

    return reading


def lacks_extra(what: str, extra: str) -> ConfigError:
    return ConfigError(f"{what} needs more packages; pip install 'repsynth[{extra}]'")


# --- columns of Python objects ---

CELLS = pa.struct(
    [
        pa.field("text", pa.large_string()),
        pa.field("number", pa.float64()),
        pa.field("seconds", pa.int64()),
        pa.field("is_text", pa.bool_()),
    ]
)
"""Type of a column of objects: text, number, time (seconds since 1970, UTC), and whether the cell is a text."""

_FIRST_DAY = date(1970, 1, 1).toordinal()
_MOST_EXPONENT = 400
_HALF = re.compile("[\ud800-\udfff]")
_ZEROS = re.compile(r"(-?[0-9]+)(?:\.0*|(\.[0-9]*[1-9])0*)")


class Cell(NamedTuple):
    """One cell. The default is a missing cell."""

    text: str | None = None
    number: float | None = None
    seconds: int | None = None
    is_text: bool = False


NOTHING = Cell()


def read_cells(values: Iterable[Any]) -> pa.StructArray:
    """Read each object independently of the others.

    >>> read_cells([1.0, "1.0", None])[0].as_py()
    {'text': '1', 'number': 1.0, 'seconds': None, 'is_text': False}
    """
    parts = list(zip(*map(read_cell, values), strict=True)) or [()] * len(CELLS)
    arrays = [pa.array(part, type=field.type) for part, field in zip(parts, CELLS, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(CELLS))


def read_cell(value: Any) -> Cell:
    try:
        if type(value) is str:  # nearly all of them
            return Cell(_valid(value), is_text=True)
        return NOTHING if value is None or value != value else _read_object(value)
    except Exception:  # whatever a foreign object does when it is compared or printed
        return NOTHING


def kinds_of_cells(cells: pa.StructArray) -> set[str]:
    """Return which of text, numbers, times and booleans are among the cells.

    >>> sorted(kinds_of_cells(read_cells([1, "1", None])))
    ['numbers', 'text']
    """
    text, number, seconds, is_text = (part.to_numpy(zero_copy_only=False) for part in _parts_known(cells))
    found = {
        "text": is_text,
        "numbers": number,
        "times": seconds,
        "booleans": text & ~(is_text | number | seconds),
    }
    return {kind for kind, which in found.items() if which.any()}


def _parts_known(cells: pa.StructArray) -> list[pa.Array]:
    text, number, seconds, is_text = cells.flatten()
    return [text.is_valid(), number.is_valid(), seconds.is_valid(), pc.and_(is_text, text.is_valid())]


def without_zeros(text: str) -> str:
    """Strip trailing zeros of a decimal number.

    >>> [without_zeros(text) for text in ("1.50", "2.00", "-0.0", "100", "1.5 m")]
    ['1.5', '2', '0', '100', '1.5 m']
    """
    found = _ZEROS.fullmatch(text)
    shorter = found[1] + (found[2] or "") if found else text
    return "0" if shorter == "-0" else shorter


def _read_object(value: Any) -> Cell:
    match value:
        case str():
            return Cell(_valid(str.__str__(value)), is_text=True)
        case bytes():
            return Cell(value.decode("utf-8", errors="replace"), is_text=True)
        case bool() | np.bool_():
            return Cell("true" if value else "false")
        case timedelta() | np.timedelta64():  # a signed integer to numpy
            return Cell(str(value), is_text=True)
        case int() | np.integer():
            return Cell(str(int(value)), float(int(value)))
        case float() | np.floating():
            return _number(float(value))
        case complex() | np.complexfloating() if value.imag == 0:
            return _number(float(value.real))
        case Decimal():
            return Cell(_decimal_text(value), float(value))
        case date() | np.datetime64():
            return _time(value)
    if hasattr(value, "closed_left") and hasattr(value, "closed_right"):
        return Cell(_interval_text(value), is_text=True)
    return Cell(_valid(str(value)), is_text=True)


def _valid(text: str) -> str:
    """Replace lone surrogates by U+FFFD, like invalid bytes."""
    return text if text.isascii() else _HALF.sub("\ufffd", text)


def _number(number: float) -> Cell:
    whole = number.is_integer() and abs(number) < 2**53
    return Cell(str(int(number)) if whole else repr(number), number)


def _decimal_text(value: Decimal) -> str:
    """Write all digits without trailing zeros: 2.50 is 2.5, and 1E+2 is 100."""
    usual = value.is_finite() and -_MOST_EXPONENT < value.adjusted() < _MOST_EXPONENT
    return without_zeros(f"{value:f}") if usual else str(value)


def _time(value: date | np.datetime64) -> Cell:
    if isinstance(value, date) and not isinstance(value, datetime):
        return Cell(value.isoformat(), seconds=(value.toordinal() - _FIRST_DAY) * 86_400)
    instant = _instant(value)
    seconds = int(instant.astype("datetime64[s]").astype(np.int64))
    return Cell(_time_text(value), seconds=seconds)


def _instant(value: datetime | np.datetime64) -> np.datetime64:
    if isinstance(value, np.datetime64):
        return value
    if hasattr(value, "to_datetime64"):  # pandas' own, which goes beyond Python's
        return value.to_datetime64()  # type: ignore[no-any-return]
    naive = value.replace(tzinfo=None)
    return np.datetime64(naive, "us") - np.timedelta64(value.utcoffset() or timedelta(), "us")


def _time_text(value: datetime | np.datetime64) -> str | None:
    """Write a time in ISO format; None for years that Python lacks."""
    try:
        time = _as_datetime(value) if isinstance(value, np.datetime64) else value
    except (ValueError, OverflowError):
        return None
    return time.isoformat() if 1 <= time.year <= 9999 else None


def _as_datetime(value: np.datetime64) -> datetime:
    unit, _ = np.datetime_data(value.dtype)
    time: datetime = pa.scalar(value if unit in ("ms", "us", "ns") else value.astype("datetime64[s]")).as_py()
    return time


def _interval_text(value: Any) -> str:
    """Write an interval by its ends as they read alone: integers may be stored as floats."""
    left, right = (read_cell(end).text for end in (value.left, value.right))
    return f"{'[' if value.closed_left else '('}{left}, {right}{']' if value.closed_right else ')'}"
