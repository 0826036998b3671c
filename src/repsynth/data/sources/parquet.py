"""Parquet files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.data.sources.base import (
    BATCH_ROWS,
    UNREADABLE,
    Ask,
    File,
    Source,
    quietly,
    steady,
    unchanged,
    written,
)
from repsynth.data.sources.recorded import recorded_dtypes
from repsynth.errors import DataError

PIECE_ROWS = 2**21
"""Rows of a piece, unless a row group has more."""


def open_parquet(file: File) -> Source:
    """A Parquet file."""
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
    whole = ParquetPiece(str(file.path.absolute()), file.place, tuple(texts), groups)

    piece = replace(whole, before=written(file.path))

    def pieces(ask: Ask) -> Sequence[ParquetPiece]:
        rows = [metadata.row_group(group).num_rows for group in whole.groups]
        return [replace(piece, groups=some) for some in _bundles(rows)] or [piece]

    return Source(
        "parquet",
        names,
        types,
        recorded_dtypes(arrow_schema),
        steady(whole, file),
        metadata.num_rows,
        pieces=pieces,
        files=(whole.path,),
        place=file.place,
    )


@dataclass(frozen=True)
class ParquetPiece:
    """Some row groups of a file; `texts` are its columns of text, `place` is what messages call it."""

    path: str
    place: str
    texts: tuple[str, ...]
    groups: tuple[int, ...]
    before: tuple[int, int] | None = None
    """What the file was when it was opened, where that is looked at here."""

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Their batches."""
        read = quietly(self._read, f"{self.place}: cannot be read as Parquet")
        return unchanged(read, Path(self.path), self.before, self.place)(columns)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(self.path, read_dictionary=self.texts) as file:
            for group in self.groups:  # one by one: Arrow keeps what it read until the last one
                yield from file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], columns=list(columns))


def _bundles(rows: Sequence[int]) -> list[tuple[int, ...]]:
    """Neighbouring row groups together, up to `PIECE_ROWS` of them where one alone has no more."""
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
