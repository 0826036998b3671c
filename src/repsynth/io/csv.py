"""Read CSV files, also compressed. Cells stay raw bytes until `encode`, so no type is inferred from the data.

A row with the wrong number of cells is dropped.

Workers of a cluster read stretches of one file. Whether a line feed ends a row depends on the quotes before it.
So each worker scans its range twice, as if it began outside and inside quotes. It returns how the range would end
and where its first row would begin. Going through the ranges in order then tells which case holds. A file with
quotes inside cells is left whole.
"""

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv

from repsynth.arrays import Ints
from repsynth.errors import DataError
from repsynth.io.source import UNREADABLE, Ask, File, Source, State, quietly, state_of, unchanged

COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""How a file is compressed, by the last part of its name."""

RANGE = 64 * 2**20  # bytes of a range
_QUOTE, _LINE_FEED, _COMMA, _RETURN = b'"\n,\r'
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
    plain = delimiter == "," and encoding == "utf-8" and path.suffix.lower() not in COMPRESSED

    def pieces(ask: Ask) -> Sequence[CsvPiece]:
        piece = replace(whole, before=whole.before[:2])  # another machine may see another inode
        parts = stretches(path.absolute(), ask) if plain else []  # where rows end can be told there alone
        return [replace(piece, file=part) for part in parts] or [piece]

    return Source(
        "csv",
        names,
        (None,) * len(names),
        whole,
        pieces=pieces,
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
class Stretch:
    """The header line of a file, which ends at `header`, and the bytes from `start` to `stop`."""

    path: Path
    header: int
    start: int
    stop: int

    def open(self, mode: str = "rb") -> io.RawIOBase:
        return _Parts(self.path, [(0, self.header), (self.start, self.stop)])


@dataclass(frozen=True)
class CsvPiece:
    """Read a file or a stretch of it; `place` is its name in messages."""

    file: Path | Stretch
    place: str
    delimiter: str
    encoding: str
    dropped: "_Dropped"
    before: State
    """The file's state when it was opened."""

    def __call__(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        path = self.file.path if isinstance(self.file, Stretch) else self.file
        read = quietly(self._read, f"{self.place}: cannot be read as CSV")
        return unchanged(read, path, self.before, self.place)(columns)

    def _read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.dropped.rows = 0
        options = pacsv.ConvertOptions(
            include_columns=list(columns),
            column_types={name: pa.binary() for name in columns},
            null_values=[""],
            strings_can_be_null=True,
        )
        yield from pacsv.open_csv(
            pa.PythonFile(_ValidText(self.file, self.encoding), mode="r"),
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


def _open_bytes(path: Path | Stretch) -> Any:
    """Open the decompressed bytes of a file."""
    if isinstance(path, Stretch):
        return path.open()
    compression = COMPRESSED.get(path.suffix.lower())
    return path.open("rb") if compression is None else pa.input_stream(str(path), compression=compression)


class _ValidText(io.RawIOBase):
    """The text of a file in UTF-8. Invalid bytes are replaced, because Arrow prints them when it skips a row. A
    line end is appended, because Arrow refuses a header without one."""

    def __init__(self, path: Path | Stretch, encoding: str) -> None:
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


# --- stretches of one file ---


def stretches(path: Path, ask: Ask) -> list[Stretch]:
    """Return the stretches of a file; none where it must be read as a whole."""
    size = path.stat().st_size
    ranges = range(0, size, RANGE)
    if len(ranges) < 2:
        return []
    looks = ask([partial(look, path, start, min(start + RANGE, size)) for start in ranges])
    found = first_rows(np.array(looks))
    with path.open("rb") as file:
        if b"\r" in file.read(found[0]).removesuffix(b"\r\n"):
            found = [0]  # a carriage return alone ends a line, too: rows would be taken for the header
    return [Stretch(path, found[0], a, b) for a, b in zip(found, [*found[1:], size], strict=True) if a < b]


def look(path: Path, start: int, stop: int) -> Ints:
    """Scan a range as if it began outside quotes, then as if it began inside.

    Return for each case: whether it ends inside quotes, whether it has a misplaced quote, and where the first row
    begins (−1 if none does).

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.csv"
    >>> _ = path.write_bytes(b'a,b\\n1,"x\\ny"\\n2,z\\n')
    >>> look(path, 8, 16).tolist()  # outside of quotes, the quote behind y would stand where none can be
    [1, 1, 9, 0, 0, 12]
    """
    with path.open("rb") as file:
        file.seek(max(start - 1, 0))
        before = file.read(1) if start else b"\n"
        data = np.frombuffer(before + file.read(stop - start), dtype=np.uint8)
    quotes, feeds = np.flatnonzero(data[1:] == _QUOTE), np.flatnonzero(data[1:] == _LINE_FEED)
    may_open = np.isin(data[quotes], [_QUOTE, _LINE_FEED, _COMMA, _RETURN])  # by the byte in front of each
    earlier = np.searchsorted(quotes, feeds)
    found = []
    for within in (0, 1):
        ends = feeds[(within + earlier) % 2 == 0]
        odd = not may_open[within::2].all()
        found += [(within + len(quotes)) % 2, int(odd), start + int(ends[0]) + 1 if len(ends) else -1]
    return np.array(found, dtype=np.int64)


def first_rows(looks: Ints) -> list[int]:
    """Return where the header ends and where each further stretch begins; [0] if the file must be left whole.

    >>> first_rows(np.array([[1, 0, 4, 0, 0, -1], [1, 1, 9, 0, 0, 12]]))
    [4, 12]
    """
    within, found = 0, []
    for seen in looks.reshape(-1, 2, 3):
        ends_within, odd, begins = seen[within]
        if odd:
            return [0]
        if begins >= 0:
            found.append(int(begins))
        within = int(ends_within)
    return found or [0]


class _Parts(io.RawIOBase):
    """Several ranges of a file, concatenated."""

    def __init__(self, path: Path, ranges: Sequence[tuple[int, int]]) -> None:
        self._file = path.open("rb")
        self._ranges = list(ranges)
        self._left = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """As much as there is, at most to the end of a range."""
        while not self._left:
            if not self._ranges:
                return 0
            start, stop = self._ranges.pop(0)
            self._file.seek(start)
            self._left = stop - start
        view = memoryview(buffer)[: self._left]
        count = self._file.readinto(view)
        self._left -= count
        return count

    def close(self) -> None:
        self._file.close()
        super().close()
