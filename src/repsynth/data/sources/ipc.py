"""Arrow and Feather files: the file format and the stream format, which the first bytes tell apart."""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from repsynth.data.sources.base import BATCH_ROWS, UNREADABLE, File, Source, quietly, steady
from repsynth.data.sources.recorded import recorded_dtypes
from repsynth.errors import DataError

_FILE, _OLD = b"ARROW1", b"FEA1"
_END = b"\xff\xff\xff\xff\0\0\0\0"
"""What stands at the end of a stream."""


def open_ipc(file: File) -> Source:
    """An Arrow file or stream, which is also what Feather is since its second version."""
    path = str(file.path)
    try:
        with file.path.open("rb") as opened:
            start = opened.read(6)
            opened.seek(max(0, file.path.stat().st_size - 8))
            end = opened.read(8)
        is_file = start == _FILE
        if not start.startswith(_OLD):
            with pa.OSFile(path) as opened, _reader(opened, is_file, None) as found:
                arrow_schema = found.schema
    except UNREADABLE:
        raise DataError(f"{file.place}: not an Arrow file, or a damaged one") from None
    if start.startswith(_OLD):
        raise DataError(f"{file.place}: a Feather file of the first version; write it again with a newer library")
    if not is_file and end != _END:
        raise DataError(f"{file.place}: an Arrow stream without an end; it may be cut off")
    names = tuple(arrow_schema.names)

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        chosen = [names.index(name) for name in columns]
        with pa.OSFile(path) as opened, _reader(opened, is_file, chosen) as found:
            batches = map(found.get_batch, range(found.num_record_batches)) if is_file else found
            for batch in batches:
                for start in range(0, batch.num_rows, BATCH_ROWS):
                    yield batch.select(list(columns)).slice(start, BATCH_ROWS)

    return Source(
        "arrow",
        names,
        tuple(arrow_schema.types),
        recorded_dtypes(arrow_schema),
        steady(quietly(read, f"{file.place}: cannot be read as Arrow"), file),
        place=file.place,
    )


def _reader(
    opened: pa.NativeFile, is_file: bool, columns: list[int] | None
) -> "pa.ipc.RecordBatchFileReader | pa.ipc.RecordBatchStreamReader":
    options = pa.ipc.IpcReadOptions(included_fields=columns)
    return (pa.ipc.open_file if is_file else pa.ipc.open_stream)(opened, options=options)
