"""Data frames and tables: pandas, polars and Arrow in memory, Dask and Spark on a cluster."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.data.cells import CELLS, read_cells
from repsynth.data.source import BATCH_ROWS, Ask, Source
from repsynth.errors import DataError

PIECE_ROWS = 2**18  # rows of a piece

_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_NULLABLE = re.compile(r"U?Int(8|16|32|64)|Float(32|64)|boolean")


def open_arrow(table: pa.Table | pa.RecordBatch) -> Source:
    table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
    return _from_arrow(table, "arrow")


def open_polars(frame: Any) -> Source:
    """A polars data frame; what Arrow has no type for is read cell by cell."""
    strange = {name: read_cells(frame[name]) for name, kind in frame.schema.items() if not _arrow_has(kind)}
    table = frame.drop(list(strange)).to_arrow()
    arrays = [strange[name] if name in strange else table[name] for name in frame.columns]
    return _from_arrow(pa.Table.from_arrays(arrays, names=frame.columns), "polars")


def open_pandas(frame: Any) -> Source:
    """A pandas data frame.

    pandas has no type for a column of mixed objects, and Arrow would guess one from all its cells: one
    cell would then change how the others are read. So each object is read by itself.
    """
    arrays = [_from_pandas(frame.iloc[:, position]) for position in range(frame.shape[1])]
    table = pa.Table.from_arrays(arrays, names=[str(name) for name in frame.columns])
    return _from_arrow(table, "pandas")


def open_dask(frame: Any) -> Source:
    """A Dask data frame, whose partitions are pandas data frames: names and dtypes are those that it declares."""
    source = open_pandas(frame._meta)
    return replace(source, batches=_stays, rows=None, pieces=None, engine="dask", frame=frame)


def open_spark(frame: Any) -> Source:
    """A Spark data frame, whose partitions are read as Arrow batches.

    One that may hold other rows each time it is worked out is refused: a person could be in two of its parts.
    """
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
    """Whether Arrow has such a type, and reads a cell of it as we would read the object."""
    import pandas

    if isinstance(dtype, np.dtype):
        return dtype.kind in "biuMm" or (dtype.kind == "f" and dtype.itemsize <= 8)
    own = (pandas.ArrowDtype, pandas.StringDtype, pandas.DatetimeTZDtype)
    return isinstance(dtype, own) or _NULLABLE.fullmatch(str(dtype)) is not None


def _arrow_has(polars_type: Any) -> bool:
    return str(polars_type) not in ("Object", "Int128", "UInt128")


def _from_arrow(table: pa.Table, kind: str) -> Source:
    def pieces(ask: Ask) -> Sequence[TablePiece]:
        return [TablePiece(table.slice(start, PIECE_ROWS)) for start in range(0, max(len(table), 1), PIECE_ROWS)]

    types = tuple(map(_storage, table.schema.types))
    return Source(kind, tuple(table.column_names), types, TablePiece(table), table.num_rows, pieces=pieces)


@dataclass(frozen=True)
class TablePiece:
    table: pa.Table

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from self.table.select(list(columns)).to_batches(max_chunksize=BATCH_ROWS)

    def __reduce__(self) -> Any:
        """Without the rows around them, which plain pickling would carry along."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.table.schema) as writer:
            writer.write_table(self.table)
        return _piece_of, (sink.getvalue().to_pybytes(),)


def _piece_of(stream: bytes) -> TablePiece:
    return TablePiece(pa.ipc.open_stream(stream).read_all())


def _storage(arrow_type: pa.DataType) -> pa.DataType:
    """The type of a column, none where each cell has its own."""
    values = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    return pa.null() if values == CELLS else arrow_type
