"""One process: a table is read and encoded once, and every sum runs over its codes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.encode import EncodedTable
from repsynth.data.persons import PersonTable
from repsynth.data.records import UNITS, Records, Whose, no_records
from repsynth.data.sources import Source
from repsynth.engines.base import Kernel
from repsynth.engines.column_store import Codes
from repsynth.engines.spill import Spill
from repsynth.privacy.events import RATE_UNIT
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
    """Called with the number of records that a sum has gone through."""
    person: Person | None = None
    """Set where several records may belong to one person; then every batch has `whose`."""

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "LocalEngine":
        """Return an engine that reads the source at the first sum."""
        table = EncodedTable(source, schema) if schema.person is None else PersonTable(source, schema)
        return cls(table, person=schema.person)

    @property
    def rows_per_person(self) -> int:
        return 1 if self.person is None else self.person.rows

    @property
    def units(self) -> int:
        return 1 if self.person is None else UNITS

    @cached_property
    def _codes(self) -> Codes | None:
        if not isinstance(self.data, EncodedTable):
            return None
        codes = Codes.of(self.data)
        codes.on_rows = self.on_rows
        return codes

    def sum(self, kernel: Kernel) -> Ints:
        if self._codes is not None:
            return self._codes.sum(kernel)
        total = kernel.total(no_records())
        for records in self.data:
            assert (records.whose is None) == (self.person is None), "records must say whose they are"
            for factor, some in records.by_factor():
                total = total + kernel.total(some) * factor
        return total

    def held(self, parts: Callable[[Records], Int32s]) -> "Held | PersonHeld":
        """Return the integers that a training needs of each record; they are put aside where they are many."""
        nothing, codes = parts(no_records()), self._codes
        found = map(parts, self.data) if codes is None else codes.each(parts)
        if codes is None or codes.rows * nothing.shape[1] * nothing.itemsize <= codes.shelf.limit:
            held = Held.of([np.concatenate([nothing, *found])])
        else:
            held = Held.of(chain([nothing], found), codes.shelf)
        if self.person is None:
            return held
        owned = codes.whose() if codes else (r.whose for r in self.data if r.whose is not None)
        return PersonHeld.of(held, Whose.joined(list(owned)))

    def per_record(self) -> Iterator[Records]:
        return iter(self.data)


@dataclass(frozen=True)
class Held:
    """Rows of integers, one per record, in pieces; `ends` says where each piece ends."""

    pieces: tuple[Callable[[], Int32s], ...]
    ends: Ints

    @classmethod
    def of(cls, pieces: Iterable[Int32s], shelf: Spill | None = None) -> "Held":
        """Put the pieces aside on a shelf as they come; without one, keep them in memory."""
        put = (shelf or Spill(limit=2**63)).put
        kept, sizes = zip(*((put(piece), len(piece)) for piece in pieces), strict=True)
        return cls(kept, np.cumsum(np.array(sizes, dtype=np.int64)))

    @property
    def rows(self) -> Int32s:
        return np.concatenate([piece() for piece in self.pieces])

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "Held":
        """Return the rows of the records that take part in a round."""
        return self.take(sample_rows(int(self.ends[-1]), rate, entropy))

    def take(self, places: Ints) -> "Held":
        """Return the rows at ascending places, in memory."""
        starts = np.append(0, self.ends[:-1])
        parts = np.split(places, np.searchsorted(places, self.ends[:-1]))
        found = (piece()[part - start] for piece, part, start in zip(self.pieces, parts, starts, strict=True))
        return Held.of([np.concatenate(list(found))])

    def sum(self, kernel: Kernel) -> Ints:
        first, *others = self.pieces
        total = kernel.total(first())
        for piece in others:
            total = total + kernel.total(piece())
        return total


@dataclass(frozen=True)
class PersonHeld:
    """Rows that belong to persons, who take part with all of their rows or with none; sums are in units."""

    held: Held
    persons: Ints
    """The number of each row's person."""
    count: int
    factors: Ints

    @classmethod
    def of(cls, held: Held, whose: Whose) -> "PersonHeld":
        places, persons = np.unique(whose.places, return_inverse=True)
        return cls(held, persons, len(places), whose.factors)

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "PersonHeld":
        """Return the rows of the persons who take part in a round."""
        takes_part = np.zeros(self.count, dtype=np.bool_)
        takes_part[sample_rows(self.count, rate, entropy)] = True
        rows = np.flatnonzero(takes_part[self.persons])
        return PersonHeld(self.held.take(rows), self.persons[rows], self.count, self.factors[rows])

    def sum(self, kernel: Kernel) -> Ints:
        total = self.held.take(np.zeros(0, dtype=np.int64)).sum(kernel)
        for factor in np.unique(self.factors):
            rows = self.held.take(np.flatnonzero(self.factors == factor))
            total = total + rows.sum(kernel) * int(factor)
        return total


def sample_rows(count: int, rate: float, entropy: Callable[[int], bytes]) -> Ints:
    """Draw which of `count` records or persons take part in a round, each with probability `rate`, independently.

    A rate is a multiple of 1 / 65,536, so two random bytes for each decide exactly.

    >>> import os
    >>> sample_rows(3, 1.0, os.urandom).tolist()
    [0, 1, 2]
    """
    drawn = np.frombuffer(entropy(2 * count), dtype="<u2")
    return np.flatnonzero(drawn < round(rate * RATE_UNIT)).astype(np.int64)
