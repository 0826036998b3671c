"""Read CSV files, also compressed. Cells stay raw bytes until `encode`, so no type is inferred from the data.

A row with the wrong number of cells is dropped. On a cluster, one worker reads a file.
"""

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from repsynth.errors import DataError
from repsynth.io.source import UNREADABLE, File, Source, State, quietly, state_of, unchanged

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a file is compressed, by the last part of its name."""

_CSV_BLOCK = 4 * 2**20  # the longest row; Arrow holds some thirty blocks in memory at a time
_HEADER = 2**20
_TAKES = frozenset(("delimiter", "encoding", "decimal"))
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def open_csv(file: File) -> Source:
    """Open a text file whose first line names the columns: comma-separated UTF-8 by default."""
    path, reading = file.path, file.reading
    tabs = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    delimiter = reading.delimiter or ("\t" if tabs else ",")
    encoding = reading.encoding or "utf-8"
    names = _header(file, encoding, delimiter)
    dropped = _Dropped()
    whole = CsvPiece(path.absolute(), file.place, delimiter, encoding, dropped, state_of(path))
    return Source(
        "csv",
        names,
        (None,) * len(names),
        whole,
        pieces=lambda: [whole],
        files=(str(path.absolute()),),
        place=file.place,
        takes=_TAKES,
        dropped=lambda: dropped.rows,
    )


def _header(file: File, encoding: str, delimiter: str) -> tuple[str, ...]:
    try:
        if encoding == "utf-8":
            with _open_bytes(file.path) as opened:
                start = bytes(opened.read(2))
            if start in _UTF_16:
                raise DataError(
                    f"{file.place}: starts like UTF-16 text: say --encoding utf-16 (in Python, encoding=)"
                )
        with _ValidText(file.path, encoding) as text:
            # A character that is cut off at the end is not part of the first line.
            first = text.read(_HEADER).decode(errors="ignore").removeprefix("\ufeff")
        header = next(csv.reader(io.StringIO(first, newline=""), delimiter=delimiter), None)
    except (*UNREADABLE, csv.Error):
        raise DataError(f"{file.place}: the header line cannot be read; check that it is a CSV file") from None
    if not header:
        raise DataError(f"{file.place}: empty file; the first line must name the columns")
    return tuple(header)


@dataclass(frozen=True)
class CsvPiece:
    """Read a file; `place` is its name in messages."""

    path: Path
    place: str
    delimiter: str
    encoding: str
    dropped: "_Dropped"
    before: State
    """The file's state when it was opened."""

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        read = quietly(self._read, f"{self.place}: cannot be read as CSV")
        return unchanged(read, self.path, self.before, self.place)(columns)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.dropped.rows = 0
        options = pacsv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.binary() for name in columns},
            null_values=[""],
            strings_can_be_null=True,
        )
        yield from pacsv.open_csv(
            pa.PythonFile(_ValidText(self.path, self.encoding), mode="r"),
            read_options=pacsv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=pacsv.ParseOptions(
                delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=self.dropped.skip
            ),
            convert_options=options,
        )


@dataclass
class _Dropped:
    """Count the malformed rows of one reading."""

    rows: int = 0

    def skip(self, row: pacsv.InvalidRow) -> str:
        self.rows += 1
        return "skip"


def _open_bytes(path: Path) -> Any:
    """Open the decompressed bytes of a file."""
    compression = COMPRESSED.get(path.suffix.lower())
    return path.open("rb") if compression is None else pa.input_stream(str(path), compression=compression)


class _ValidText(io.RawIOBase):
    """The text of a file in UTF-8. Invalid bytes are replaced, because Arrow prints them when it skips a row. A
    line end is appended, because Arrow refuses a header without one."""

    def __init__(self, path: Path, encoding: str) -> None:
        self._file = _open_bytes(path)
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        self._utf_8 = codecs.lookup(encoding).name == "utf-8"
        self._ended = False
        self._over = b""  # an invalid byte becomes three, which may be more than was asked for

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """As much as asked for, until there is no more."""
        wanted = size if size >= 0 else sys.maxsize
        parts, found = [self._over], len(self._over)
        while found < wanted and not self._ended:
            raw = self._file.read(min(wanted - found, _CSV_BLOCK))
            self._ended = not raw
            parts.append(self._valid(raw) + (b"\n" if self._ended else b""))
            found += len(parts[-1])
        text = b"".join(parts) if self._over or len(parts) != 2 else parts[1]  # a copy only where it takes one
        self._over = text[wanted:]
        return text[:wanted]

    def _valid(self, raw: bytes) -> bytes:
        if self._utf_8 and raw.isascii() and not self._decoder.getstate()[0]:  # as most of a file is
            return raw
        return self._decoder.decode(raw, final=self._ended).encode()

    def close(self) -> None:
        self._file.close()
        super().close()
