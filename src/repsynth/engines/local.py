"""One process: a table is read and encoded once, and every sum runs over its codes."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.encode import EncodedTable
from repsynth.data.persons import PersonTable
from repsynth.data.records import UNITS, Records, Whose, no_records
from repsynth.data.sources import Source
from repsynth.engines.base import Kernel
from repsynth.engines.codes import Codes
from repsynth.engines.shelf import Shelf
from repsynth.engines.subsample import KEY_BYTES, Owners, sample_rows
from repsynth.schema import Person, Schema


@dataclass(frozen=True)
class LocalEngine:
    """Batches of records that can be read again and again.

    >>> from repsynth.mechanism.kernels import Count
    >>> LocalEngine([Records(rows=40, codes={}), Records(rows=2, codes={})]).sum(Count()).tolist()
    [42]
    """

    data: Iterable[Records]
    on_rows: Callable[[int], None] = lambda rows: None
    """Hears how many records a sum has gone through."""
    person: Person | None = None
    """Where several records may be one person's: all batches say whose they are."""

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "LocalEngine":
        """A source; it is read when the first sum is asked for."""
        table = EncodedTable(source, schema) if schema.person is None else PersonTable(source, schema)
        return cls(table, person=schema.person)

    @property
    def rows_per_person(self) -> int:
        """As the schema declares."""
        return 1 if self.person is None else self.person.rows

    @property
    def units(self) -> int:
        """One, but for persons."""
        return 1 if self.person is None else UNITS

    @cached_property
    def _codes(self) -> Codes | None:
        if not isinstance(self.data, EncodedTable):
            return None
        codes = Codes.of(self.data)
        codes.on_rows = self.on_rows
        return codes

    def sum(self, kernel: Kernel) -> Ints:
        """Block by block, from nothing."""
        if self._codes is not None:
            return self._codes.sum(kernel)
        total = kernel.total(no_records())
        for factor, records in self._by_factor():
            total = total + kernel.total(records) * factor
        return total

    def _by_factor(self) -> Iterator[tuple[int, Records]]:
        for records in self.data:
            assert (records.whose is None) == (self.person is None), "records must say whose they are"
            yield from records.by_factor()

    def held(self, parts: Callable[[Records], Int32s]) -> "LocalHeld | ShelvedHeld | PersonHeld":
        """Four bytes for each integer: in memory or, where that is much, put aside."""
        held = self._held(parts)
        if self.person is None:
            return held
        owned = self._codes.whose() if self._codes else (r.whose for r in self.data if r.whose is not None)
        return PersonHeld.of(held, list(owned))

    def _held(self, parts: Callable[[Records], Int32s]) -> "LocalHeld | ShelvedHeld":
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
        return self.take(sample_rows(len(self.rows), rate, entropy))

    def take(self, places: Ints) -> "LocalHeld":
        """Those at these places."""
        return LocalHeld(self.rows[places])

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
        return self.take(sample_rows(int(self.ends[-1]), rate, entropy))

    def take(self, places: Ints) -> LocalHeld:
        """Those at these places, which are in order, in memory."""
        starts = np.append(0, self.ends[:-1])
        parts = np.split(places, np.searchsorted(places, self.ends[:-1]))
        found = (piece()[part - start] for piece, part, start in zip(self.pieces, parts, starts, strict=True))
        return LocalHeld(np.concatenate([self.nothing, *found]))

    def sum(self, kernel: Kernel) -> Ints:
        """Piece by piece."""
        total = kernel.total(self.nothing)
        for piece in self.pieces:
            total = total + kernel.total(piece())
        return total


@dataclass(frozen=True)
class PersonHeld:
    """Rows that belong to persons, who take part with all of theirs or with none; sums are in units."""

    held: LocalHeld | ShelvedHeld
    owners: Owners
    factors: Ints

    @classmethod
    def of(cls, held: LocalHeld | ShelvedHeld, owned: Sequence[Whose]) -> "PersonHeld":
        """By what each batch says of its rows."""
        whose = Whose.joined(owned)
        return cls(held, Owners.of(whose.places), whose.factors)

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "PersonHeld":
        """The persons who take part, with all their rows."""
        rows = self.owners.rows_taking_part(rate, entropy(KEY_BYTES))
        return PersonHeld(self.held.take(rows), self.owners.take(rows), self.factors[rows])

    def sum(self, kernel: Kernel) -> Ints:
        """Rows that count the same at once."""
        total = kernel.total(self.held.take(np.zeros(0, dtype=np.int64)).rows)
        for factor in np.unique(self.factors):
            rows = self.held.take(np.flatnonzero(self.factors == factor))
            total = total + rows.sum(kernel) * int(factor)
        return total
