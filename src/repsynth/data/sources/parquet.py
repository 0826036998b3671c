"""Parquet files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.data.sources.base import BATCH_ROWS, UNREADABLE, Source, quietly
from repsynth.errors import DataError


def open_parquet(path: Path) -> Source:
    """A Parquet file."""
    try:
        metadata = pq.read_metadata(path)
        arrow_schema = metadata.schema.to_arrow_schema()
        names = tuple(arrow_schema.names)
    except UNREADABLE:
        raise DataError(f"{path}: not a Parquet file, or a damaged one") from None

    types = tuple(arrow_schema.types)
    # Each different text of a row group once: most columns of text hold few.
    texts = [name for name, kind in zip(names, types, strict=True) if pa.types.is_string(kind)]

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, read_dictionary=texts) as file:
            for group in range(file.num_row_groups):  # one by one: Arrow keeps what it read until the last one
                yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=list(columns))

    readquietly = quietly(read, f"{path}: cannot be read as Parquet")
    return Source("parquet", names, types, (None,) * len(types), readquietly, metadata.num_rows)
