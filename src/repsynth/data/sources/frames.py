"""Tables in memory: pandas, polars and Arrow."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, Source, object_text


def open_arrow(table: pa.Table | pa.RecordBatch) -> Source:
    """An Arrow table or batch."""
    return _from_arrow(pa.table(table) if isinstance(table, pa.RecordBatch) else table, "arrow")


def open_polars(frame: Any) -> Source:
    """A polars data frame."""
    return _from_arrow(frame.to_arrow(), "polars")


def open_pandas(frame: Any) -> Source:
    """A pandas data frame.

    pandas has no type for a column of mixed objects, and Arrow would guess one from all its cells: one
    cell would then change how the others are read. So each object becomes text by itself.
    """
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


def _from_arrow(table: pa.Table, kind: str, dtypes: tuple[str, ...] | None = None) -> Source:
    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        selected = table.select(list(columns))
        yield from selected.to_batches(max_chunksize=BATCH_ROWS)

    names = tuple(table.column_names)
    types = tuple(table.schema.types)
    return Source(kind, names, types, dtypes or (None,) * len(names), read, table.num_rows)
