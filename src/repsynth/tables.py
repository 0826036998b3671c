"""Tables in: pandas, polars, pyarrow, CSV and Parquet, all as a stream of Arrow batches.

Nothing here depends on a cell's value: cells of a CSV stay raw bytes until `encode` reads them by the
schema, so no type is ever guessed from the data. A row with the wrong number of cells is not a record
and counts for nothing.
"""

import codecs
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from repsynth.errors import DataError
from repsynth.schema import Schema

Kind = Literal["csv", "parquet", "pandas", "polars", "arrow"]
BATCH_ROWS = 131_072
_UNREADABLE = (OSError, pa.ArrowException, ValueError, MemoryError)  # what Arrow raises on damaged files
_CSV_BLOCK = 4 * 2**20  # the longest row; Arrow holds some thirty blocks in memory at a time


@dataclass(frozen=True)
class Table:
    """A table that can be read again and again, a batch at a time.

    `types` holds the Arrow type of each column (None for CSV, which has none) and `dtypes` the pandas
    dtype where the table came as a data frame: storage, which is public, so that the synthetic table
    can look like this one.
    """

    kind: Kind
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    dtypes: tuple[str | None, ...]
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]]

    def batches(self, schema: Schema) -> Iterator[pa.RecordBatch]:
        """The learned columns, batch by batch."""
        return self.read([column.name for column in schema.learned])


def open_table(source: Any) -> Table:
    """Open a data frame, an Arrow table, or a path to a CSV or Parquet file.

    >>> table = open_table(pa.table({"age": [30, 40]}))
    >>> table.kind, table.names
    ('arrow', ('age',))
    """
    if isinstance(source, str | Path):
        return _open_path(Path(source))
    if isinstance(source, pa.Table | pa.RecordBatch):
        return _from_arrow(pa.table(source) if isinstance(source, pa.RecordBatch) else source, "arrow")
    library = type(source).__module__.split(".")[0]
    if library == "pandas" and hasattr(source, "columns"):
        return _from_pandas(source)
    if library == "polars" and hasattr(source, "to_arrow"):
        return _from_arrow(source.to_arrow(), "polars")
    raise DataError(
        f"cannot read a table from {type(source).__name__}; "
        "give a pandas or polars data frame, a pyarrow table, or the path of a CSV or Parquet file"
    )


def check_columns(table: Table, schema: Schema) -> None:
    """Refuse a table whose columns are not the schema's.

    Columns that the schema does not know are named by position only: in a file without a header line
    their names would be somebody's data.
    """
    problems = []
    repeated = sorted({name for name in table.names if table.names.count(name) > 1})
    known = {column.name for column in schema.columns}
    if repeated:
        named = ", ".join(f"'{name}'" if name in known else "(not in the schema)" for name in repeated)
        problems.append(f"column name used more than once: {named}")
    absent = [name for name in (column.name for column in schema.columns) if name not in table.names]
    if absent:
        problems.append(f"no column {', '.join(map(repr, absent))} in the data")
    extra = [str(i) for i, name in enumerate(table.names, start=1) if name not in known]
    if extra:
        shown = ", ".join(extra[:8]) + (", ..." if len(extra) > 8 else "")
        problems.append(f"{len(extra)} column(s) of the data are not in the schema (position {shown})")
    if problems:
        one_column = table.kind == "csv" and len(table.names) == 1 < len(known)
        if one_column:
            remedy = "the file seems to have one column only: is it separated by commas?"
        elif extra:
            remedy = "add them to the schema, drop them from the data, or check that the file has a header line"
        else:
            remedy = "rename or add it in the data, or mend the schema"
        raise DataError(f"{'; '.join(problems)}: {remedy}")
    for name, arrow_type in zip(table.names, table.types, strict=True):
        if arrow_type is not None and pa.types.is_nested(arrow_type):
            raise DataError(f"column '{name}' holds nested values; flatten it into plain columns first")


def _open_path(path: Path) -> Table:
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet", ".pq"):
        raise DataError(f"{path}: cannot tell the format from the name; use .csv or .parquet")
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    return _open_csv(path) if suffix == ".csv" else _open_parquet(path)


def _open_csv(path: Path) -> Table:
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next(csv.reader(iter(lambda: file.readline(2**20), "")), None)
    except (OSError, csv.Error):
        raise DataError(f"{path}: the header line cannot be read; check that it is a CSV file") from None
    if not header:
        raise DataError(f"{path}: empty file; the first line must name the columns")
    names = tuple(header)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pacsv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.binary() for name in columns},
            null_values=[""],
            strings_can_be_null=True,
        )
        reader = pacsv.open_csv(
            pa.PythonFile(_ValidText(path), mode="r"),
            read_options=pacsv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=lambda row: "skip"),
            convert_options=options,
        )
        yield from reader

    nothing = (None,) * len(names)
    return Table("csv", names, nothing, nothing, _quietly(read, f"{path}: cannot be read as CSV"))


class _ValidText(io.RawIOBase):
    """A file's bytes with each invalid one replaced (Arrow would print it when it skips a row) and a line end
    behind the last (Arrow refuses a header without one)."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """As much as asked for, but for a few bytes: one that is invalid becomes three."""
        parts: list[bytes] = []
        left = size if size >= 0 else sys.maxsize
        while left >= 16 and not self._ended:
            raw = self._file.read(min(left // 3, 2**22))
            self._ended = not raw
            valid = self._decoder.decode(raw, final=self._ended).encode() + (b"\n" if self._ended else b"")
            parts.append(valid)
            left -= len(valid)
        return b"".join(parts)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open_parquet(path: Path) -> Table:
    try:
        arrow_schema = pq.read_schema(path)
        names = tuple(arrow_schema.names)
    except _UNREADABLE:
        raise DataError(f"{path}: not a Parquet file, or a damaged one") from None

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch_size=BATCH_ROWS, columns=list(columns))

    types = tuple(arrow_schema.types)
    read_quietly = _quietly(read, f"{path}: cannot be read as Parquet")
    return Table("parquet", names, types, (None,) * len(types), read_quietly)


def _from_arrow(table: pa.Table, kind: Kind, dtypes: tuple[str, ...] | None = None) -> Table:
    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        selected = table.select(list(columns))
        yield from selected.to_batches(max_chunksize=BATCH_ROWS)

    names = tuple(table.column_names)
    return Table(kind, names, tuple(table.schema.types), dtypes or (None,) * len(names), read)


def _from_pandas(frame: Any) -> Table:
    """pandas has no type for a column of mixed objects, and Arrow would guess one from all its cells: one
    cell would then change how the others are read. So each object becomes text by itself."""
    arrays = []
    for position in range(frame.shape[1]):
        series = frame.iloc[:, position]
        if series.dtype != object:
            try:
                arrays.append(pa.array(series, from_pandas=True))
                continue
            except Exception:  # an extension type that Arrow does not know: read it as objects
                series = series.astype(object)
        texts = [object_text(value) for value in series]
        arrays.append(pa.array(texts, type=pa.large_string()))
    names = [str(name) for name in frame.columns]
    table = pa.Table.from_arrays(arrays, names=names)
    return _from_arrow(table, "pandas", tuple(str(dtype) for dtype in frame.dtypes))


def object_text(value: Any) -> str | None:
    """One cell as text, alike to how a typed column of it would read; None where it is missing."""
    try:
        if value is None or value != value:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
            return str(int(value))
        if isinstance(value, date):
            return value.isoformat()
        if isinstance(value, bytes):
            return value.decode("utf-8", errors="replace")
        return str(value).encode("utf-8", errors="replace").decode("utf-8")
    except Exception:  # whatever a foreign object does when it is compared or printed
        return None


def _quietly(
    read: Callable[[Sequence[str]], Iterator[pa.RecordBatch]], message: str
) -> Callable[[Sequence[str]], Iterator[pa.RecordBatch]]:
    """Arrow's own messages quote the cell they fail at; ours do not."""

    def reading(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(columns)
        except _UNREADABLE:
            raise DataError(f"{message}; check that the file is whole") from None

    return reading
