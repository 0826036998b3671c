"""One process: a table is read and encoded once, and every sum runs over its codes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.encode import EncodedTable
from repsynth.data.records import Records, no_records
from repsynth.data.sources import Source
from repsynth.engines.base import Kernel
from repsynth.engines.codes import Codes
from repsynth.engines.shelf import Shelf
from repsynth.engines.subsample import sample_rows
from repsynth.schema import Schema


@dataclass(frozen=True)
class LocalEngine:
    """Batches of records that can be read again and again.

    >>> from repsynth.mechanism.kernels import Count
    >>> LocalEngine([Records(rows=40, codes={}), Records(rows=2, codes={})]).sum(Count()).tolist()
    [42]
    """

    data: Iterable[Records]

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "LocalEngine":
        """A source; it is read when the first sum is asked for."""
        return cls(EncodedTable(source, schema))

    @cached_property
    def _codes(self) -> Codes | None:
        return Codes.of(self.data) if isinstance(self.data, EncodedTable) else None

    def sum(self, kernel: Kernel) -> Ints:
        """Block by block, from nothing."""
        if self._codes is not None:
            return self._codes.sum(kernel)
        total = kernel.total(no_records())
        for records in self.data:
            total = total + kernel.total(records)
        return total

    def held(self, parts: Callable[[Records], Int32s]) -> "LocalHeld | ShelvedHeld":
        """Four bytes for each integer: in memory or, where that is much, put aside."""
        nothing = parts(no_records())
        if self._codes is None:
            return LocalHeld(np.concatenate([nothing, *map(parts, self.data)]))
        if self._codes.rows * nothing.shape[1] * nothing.itemsize <= self._codes.shelf.limit:
            return LocalHeld(np.concatenate([nothing, *self._codes.each(parts)]))
        return ShelvedHeld.of(self._codes.each(parts), nothing, self._codes.shelf)

    def per_record(self) -> Iterator[Records]:
        """As they are read."""
        return iter(self.data)


@dataclass(frozen=True)
class LocalHeld:
    """Rows in memory."""

    rows: Int32s

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "LocalHeld":
        """Those who take part."""
        return LocalHeld(self.rows[sample_rows(len(self.rows), rate, entropy)])

    def sum(self, kernel: Kernel) -> Ints:
        """All at once."""
        return kernel.total(self.rows)


@dataclass(frozen=True)
class ShelvedHeld:
    """Rows that were put aside, in pieces; `ends` says where each one ends."""

    pieces: tuple[Callable[[], Int32s], ...]
    ends: Ints
    nothing: Int32s

    @classmethod
    def of(cls, pieces: Iterable[Int32s], nothing: Int32s, shelf: Shelf) -> "ShelvedHeld":
        """Put pieces aside as they come."""
        kept, sizes = [], []
        for piece in pieces:
            kept.append(shelf.put(piece))
            sizes.append(len(piece))
        return cls(tuple(kept), np.cumsum(np.array(sizes, dtype=np.int64)), nothing)

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> LocalHeld:
        """Those who take part, in memory."""
        rows = sample_rows(int(self.ends[-1]), rate, entropy)
        starts = np.append(0, self.ends[:-1])
        parts = np.split(rows, np.searchsorted(rows, self.ends[:-1]))
        found = (piece()[part - start] for piece, part, start in zip(self.pieces, parts, starts, strict=True))
        return LocalHeld(np.concatenate([self.nothing, *found]))

    def sum(self, kernel: Kernel) -> Ints:
        """Piece by piece."""
        total = kernel.total(self.nothing)
        for piece in self.pieces:
            total = total + kernel.total(piece())
        return total
