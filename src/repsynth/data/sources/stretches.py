"""A CSV file in parts that machines read side by side, each with the very rows that one reader would find there.

A line ends at a line feed outside of quotes, and only the whole file before it tells whether it is outside. So
each machine looks at its range twice, as if it began outside and as if it began within quotes, and says in a few
integers how it would end and where its first row would begin; going through these in order tells which is true.
Quotes count where a cell begins, and there alone: where one stands elsewhere, the file is left whole.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from repsynth.arrays import Ints
from repsynth.data.sources.base import Ask

RANGE = 64 * 2**20  # bytes of a range

_QUOTE, _LINE_FEED, _COMMA, _RETURN = b'"\n,\r'


@dataclass(frozen=True)
class Stretch:
    """The bytes of a file from `start` to `stop`, behind those of its header line, which ends at `header`."""

    path: Path
    header: int
    start: int
    stop: int

    def open(self, mode: str = "rb") -> io.RawIOBase:
        return _Parts(self.path, [(0, self.header), (self.start, self.stop)])


def stretches(path: Path, ask: Ask) -> list[Stretch]:
    """The parts of a file; none where it is to be read as a whole."""
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
    """(6,): whether the range ends within quotes, whether a quote stands where none can be, and where the first
    row begins (−1 where none does): as if the range began outside of quotes, then as if it began within.

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
    """Where the header ends, and where the first row of each other range begins; 0 where the file is left whole.

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
    """Some ranges of a file, one behind the other."""

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
