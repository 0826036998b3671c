"""CSV: cells stay raw bytes until `encode` reads them by the schema, so no type is guessed from the data.

A row with the wrong number of cells is not a record and counts for nothing.
"""

import codecs
import csv
import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from repsynth.data.sources.base import Source, quietly
from repsynth.errors import DataError

_CSV_BLOCK = 4 * 2**20  # the longest row; Arrow holds some thirty blocks in memory at a time


def open_csv(path: Path, *, on_dropped: Callable[[], None] | None = None) -> Source:
    """A comma-separated UTF-8 file whose first line names the columns. `on_dropped` hears of broken rows."""

    def skip(row: pacsv.InvalidRow) -> str:
        if on_dropped is not None:
            on_dropped()
        return "skip"

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
            parse_options=pacsv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=options,
        )
        yield from reader

    nothing = (None,) * len(names)
    return Source("csv", names, nothing, nothing, quietly(read, f"{path}: cannot be read as CSV"))


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
