"""Parquet and Arrow files; Feather is a name of the latter."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.data.source import (
    BATCH_ROWS,
    UNREADABLE,
    Ask,
    File,
    Source,
    State,
    quietly,
    state_of,
    steady,
    unchanged,
)
from repsynth.errors import DataError

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

    def pieces(ask: Ask) -> Sequence[ParquetPiece]:
        piece = replace(whole, before=whole.before[:2])  # another machine may see another inode
        rows = [metadata.row_group(group).num_rows for group in groups]
        return [replace(piece, groups=some) for some in _bundles(rows)] or [piece]

    return Source(
        "parquet",
        names,
        types,
        whole,
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
