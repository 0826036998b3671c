"""Arrow data: Parquet and Arrow files, tables in memory, and data frames."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.errors import DataError
from repsynth.io.source import (
    BATCH_ROWS,
    CELLS,
    UNREADABLE,
    File,
    Source,
    State,
    quietly,
    read_cells,
    state_of,
    steady,
    unchanged,
)

PIECE_ROWS = 2**21  # rows of a piece, unless a row group has more


def open_parquet(file: File) -> Source:
    try:
        metadata = pq.read_metadata(file.path)
        arrow_schema = metadata.schema.to_arrow_schema()
        names = tuple(arrow_schema.names)
    except UNREADABLE:
        raise DataError(f"{file.place}: not a Parquet file, or a damaged one") from None

    types = tuple(arrow_schema.types)
    # Each different text of a row group once: most columns of text hold few.
    texts = [name for name, kind in zip(names, types, strict=True) if pa.types.is_string(kind)]
    groups = tuple(range(metadata.num_row_groups))
    whole = ParquetPiece(str(file.path.absolute()), file.place, tuple(texts), groups, state_of(file.path))

    def pieces() -> Sequence[ParquetPiece]:
        piece = replace(whole, before=whole.before[:2])  # another machine may see another inode
        rows = [metadata.row_group(group).num_rows for group in groups]
        return [replace(piece, groups=some) for some in _bundles(rows)] or [piece]

    return Source(
        "parquet", names, types, whole, metadata.num_rows, pieces=pieces, files=(whole.path,), place=file.place
    )


@dataclass(frozen=True)
class ParquetPiece:
    """Read some row groups of a file. `texts` are its text columns; `place` is its name in messages."""

    path: str
    place: str
    texts: tuple[str, ...]
    groups: tuple[int, ...]
    before: State
    """The file's state when it was opened."""

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        read = quietly(self._read, f"{self.place}: cannot be read as Parquet")
        return unchanged(read, Path(self.path), self.before, self.place)(columns)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, read_dictionary=self.texts) as file:
            for group in self.groups:  # one by one: Arrow keeps what it read until the last one
                yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=list(columns))


def _bundles(rows: Sequence[int]) -> list[tuple[int, ...]]:
    """Bundle neighbouring row groups up to `PIECE_ROWS` rows."""
    found: list[tuple[int, ...]] = []
    held = 0
    for group, count in enumerate(rows):
        if found and held + count <= PIECE_ROWS:
            found[-1] += (group,)
            held += count
        else:
            found.append((group,))
            held = count
    return found


def open_ipc(file: File) -> Source:
    """Open an Arrow file, which is also what Feather is since its second version."""
    path = str(file.path)
    try:
        with pa.OSFile(path) as opened, pa.ipc.open_file(opened) as found:
            arrow_schema = found.schema
    except UNREADABLE:
        raise DataError(
            f"{file.place}: not an Arrow file, or a damaged one; write a stream, or Feather of the first version, "
            "as a Parquet file"
        ) from None

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[arrow_schema.names.index(name) for name in columns])
        with pa.OSFile(path) as opened, pa.ipc.open_file(opened, options=options) as found:
            for number in range(found.num_record_batches):
                batch = found.get_batch(number).select(list(columns))
                yield from (batch.slice(at, BATCH_ROWS) for at in range(0, batch.num_rows, BATCH_ROWS))

    quiet = quietly(read, f"{file.place}: cannot be read as Arrow")
    return Source(
        "arrow", tuple(arrow_schema.names), tuple(arrow_schema.types), steady(quiet, file), place=file.place
    )


# --- tables and data frames ---

TABLE_PIECE_ROWS = 2**18  # rows of a piece

_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_NULLABLE = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean")


def open_arrow(table: pa.Table | pa.RecordBatch) -> Source:
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return _from_arrow(table, "arrow")


def open_polars(frame: Any) -> Source:
    """Open a polars data frame. Types that Arrow lacks are read cell by cell."""
    strange = {name: read_cells(frame[name]) for name, kind in frame.schema.items() if not _arrow_has(kind)}
    table = frame.drop(list(strange)).to_arrow()
    arrays = [strange[name] if name in strange else table[name] for name in frame.columns]
    return _from_arrow(pa.Table.from_arrays(arrays, names=frame.columns), "polars")


def open_pandas(frame: Any) -> Source:
    """Open a pandas data frame. Objects are read cell by cell: Arrow would infer a type from all of them, so one
    cell would change how the others are read."""
    arrays = [_from_pandas(frame.iloc[:, position]) for position in range(frame.shape[1])]
    table = pa.Table.from_arrays(arrays, names=[str(name) for name in frame.columns])
    return _from_arrow(table, "pandas")


def open_dask(frame: Any) -> Source:
    """Open a Dask data frame by the names and dtypes that it declares."""
    source = open_pandas(frame._meta)
    return replace(source, batches=_stays, rows=None, pieces=None, engine="dask", frame=frame)


def open_spark(frame: Any) -> Source:
    """Open a Spark data frame. Refuse a nondeterministic one: a person could be in two of its partitions."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if not hasattr(frame, "_jdf"):
        raise DataError(
            "this Spark DataFrame is read over Spark Connect; give one of a session on the cluster itself"
        )
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise DataError(
            "this Spark DataFrame may hold other rows each time it is worked out (rand() and its like); write it "
            "to a file first"
        )
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC and any(field.dataType.typeName() == "timestamp" for field in frame.schema.fields):
        raise DataError(
            "this Spark DataFrame has times in the time zone of its session, while text is read as UTC; set "
            "spark.sql.session.timeZone to UTC and read the table again, or make these columns timestamp_ntz"
        )
    zoned = "timezone" in signature(to_arrow_schema).parameters  # not before Spark 4.1
    try:
        schema = to_arrow_schema(frame.schema, **({"timezone": "UTC"} if zoned else {}))
    except PySparkException:
        raise DataError("this Spark DataFrame has a column of a type that Arrow lacks; cast or drop it") from None
    return Source("arrow", tuple(schema.names), tuple(schema.types), _stays, engine="spark", frame=frame)


def _stays(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    raise DataError(
        "this looks at records one by one, and those of a data frame on a cluster stay there; write it to a "
        "Parquet file and give that"
    )


def _from_pandas(series: Any) -> pa.Array | pa.ChunkedArray:
    import pandas

    if isinstance(series.dtype, pandas.CategoricalDtype):
        values = _from_pandas(series.cat.categories.to_series())
        values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        codes = series.cat.codes.to_numpy()
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), values)
    if isinstance(series.dtype, pandas.SparseDtype):
        series = series.sparse.to_dense()
    if _is_typed(series.dtype):
        try:
            return pa.array(series, from_pandas=True)
        except (pa.ArrowException, ValueError, TypeError):  # a time zone or a text that Arrow cannot hold
            pass
    return read_cells(series.astype(object))


def _is_typed(dtype: Any) -> bool:
    """Whether Arrow reads a cell of this dtype as `read_cell` reads the object."""
    import pandas

    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuMm" or (dtype.kind == "f" and dtype.itemsize <= 8)
    own = (pandas.ArrowDtype, pandas.StringDtype, pandas.DatetimeTZDtype)
    return isinstance(dtype, own) or _NULLABLE.fullmatch(str(dtype)) is not None


def _arrow_has(polars_type: Any) -> bool:
    return str(polars_type) not in ("Object", "Int128", "UInt128")


def _from_arrow(table: pa.Table, kind: str) -> Source:
    def pieces() -> Sequence[TablePiece]:
        return [
            TablePiece(table.slice(start, TABLE_PIECE_ROWS))
            for start in range(0, max(len(table), 1), TABLE_PIECE_ROWS)
        ]

    types = tuple(map(_storage, table.schema.types))
    return Source(kind, tuple(table.column_names), types, TablePiece(table), table.num_rows, pieces=pieces)


@dataclass(frozen=True)
class TablePiece:
    table: pa.Table

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS)

    def __reduce__(self) -> Any:
        """Leave out the rows outside the slice, which plain pickling would carry along."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _piece_of, (sink.getvalue().to_pybytes(),)


def _piece_of(stream: bytes) -> TablePiece:
    return TablePiece(pa.ipc.open_stream(stream).read_all())


def _storage(arrow_type: pa.DataType) -> pa.DataType:
    """Return the type of a column; null where each cell has its own."""
    values = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return pa.null() if values == CELLS else arrow_type
