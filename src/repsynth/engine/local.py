"""The engine of one process: a table is read and encoded once, and every sum runs over its codes."""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from threading import Lock

import numpy as np
import pyarrow as pa

from repsynth.arrays import Int32s, Ints
from repsynth.engine import Kernel
from repsynth.engine.column_store import Codes, Spill
from repsynth.io.encode import EncodedTable, encode_batch
from repsynth.io.persons import UNREAD, Fingerprints, Run, changed, id_texts, states_of
from repsynth.io.records import ALONE, UNITS, Records, Whose, factors_of, no_records
from repsynth.io.sources import Source
from repsynth.privacy.events import RATE_UNIT
from repsynth.schema import Person, Schema

_TOGETHER = 2**20  # rows whose fingerprints are sorted at a time
_PIECES = 2**8  # of the sorted persons, merged one by one
_START = b"repsynth: first row"  # in the metadata of a batch: where in the table it begins


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
        """Return the integers that a training needs of each record; large ones spill."""
        nothing, codes = parts(no_records()), self._codes
        found = map(parts, self.data) if codes is None else codes.each(parts)
        if codes is None or codes.rows * nothing.shape[1] * nothing.itemsize <= codes.spill.limit:
            held = Held.of([np.concatenate([nothing, *found])])
        else:
            held = Held.of(chain([nothing], found), codes.spill)
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
    def of(cls, pieces: Iterable[Int32s], spill: Spill | None = None) -> "Held":
        """Store the pieces in a spill buffer; without one, in memory."""
        put = (spill or Spill(limit=2**63)).put
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


@dataclass(frozen=True)
class PersonTable(EncodedTable):
    """A table in which several rows may belong to one person. Rows are counted in a first pass."""

    @property
    def person(self) -> Person:
        assert self.schema.person is not None
        return self.schema.person

    @cached_property
    def persons(self) -> "Persons":
        """Count persons in a pass over the ids."""
        return Persons.counted(batch.column(0) for batch in self.source.batches([self.person.column]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read the learned columns and the ids, after one thread has counted the persons."""
        self.persons.begin()
        names, start = [*(column.name for column in self.schema.learned), self.person.column], 0
        for batch in self.source.batches(names):
            yield batch.replace_schema_metadata({_START: str(start)})
            start += batch.num_rows

    def encode(self, batch: pa.RecordBatch) -> Records:
        """Encode a batch, with the factor of each record."""
        found = self.persons.find(batch.column(self.person.column))
        self.persons.see(found)
        factors = np.where(found == UNREAD, 0, factors_of(self.persons.rows_of(found), self.person.rows))
        places = self.persons.places_of(found, int(batch.schema.metadata[_START]))
        return replace(encode_batch(batch, self.schema), whose=Whose(places, factors))

    def check_whole(self) -> None:
        """Refuse rows that are not those that were counted."""
        self.persons.check()


class Persons:
    """The persons of a table: the first row and the number of rows of each.

    >>> persons = Persons.counted([pa.array(["a", "b", "a"]), pa.array(["a", None])])
    >>> persons.rows_of(persons.find(pa.array(["a", "b", None]))).tolist(), persons.count
    ([3, 1, 1], 2)
    """

    def __init__(self, prints: Fingerprints, run: Run) -> None:
        self._prints = prints
        self._run = run
        self._left = run.rows.copy()
        self._lock = Lock()

    @classmethod
    def counted(cls, columns: Iterable[pa.Array]) -> "Persons":
        """Count the ids of a table, column by column of its batches, with a fresh key."""
        prints = Fingerprints(os.urandom)
        parts = (Run.of(prints.of(ids), np.ones(len(ids), np.int64), rows) for ids, rows in _gathered(columns))
        runs = [part.cut(_PIECES) for part in parts]
        most = sum(len(piece.rows) for run in runs for piece in run)
        whole = (Run.joined(pieces).merged() for pieces in zip(*runs, strict=True))
        return cls(prints, Run.gathered(whole, most))

    @property
    def count(self) -> int:
        return len(self._run.rows)

    def find(self, ids: pa.Array) -> Ints:
        """Return the number of each row's person; `NOBODY` without an id, `UNREAD` if it was not read in full."""
        texts = id_texts(ids)
        found = states_of(texts)
        known = np.flatnonzero(found == 0)
        found[known] = self._run.find(
            self._prints.of(texts.take(pa.array(known)) if len(known) < len(texts) else texts)
        )
        return found

    def rows_of(self, found: Ints) -> Ints:
        """Return how many rows the person of each row has."""
        if not self.count:
            return np.ones(len(found), dtype=np.int64)
        return np.where(found < 0, 1, self._run.rows.take(found, mode="clip"))

    def places_of(self, found: Ints, start: int) -> Ints:
        """Return the number of the first row of each row's person, or of the row itself if it has no id.

        `start` is the number of the first of these rows."""
        own = ALONE + start + np.arange(len(found))
        return np.where(found < 0, own, self._run.first.take(found, mode="clip")) if self.count else own

    def begin(self) -> None:
        """Start another pass over the rows."""
        with self._lock:
            self._left = self._run.rows.copy()

    def see(self, found: Ints) -> None:
        """Record rows that are read, for `check`."""
        with self._lock:
            np.subtract.at(self._left, found[found >= 0], 1)

    def check(self) -> None:
        """Refuse a table that changed after counting: a person with uncounted rows would count too much."""
        with self._lock:
            differ = bool(np.any(self._left))
        if differ:
            raise changed()


def _gathered(columns: Iterable[pa.Array]) -> Iterator[tuple[pa.Array, Ints]]:
    """Iterate over ids and their rows, many at a time."""
    waiting: list[tuple[pa.Array, Ints]] = []
    start = 0
    for ids in columns:
        texts = id_texts(ids)
        known = states_of(texts) == 0
        waiting.append((texts.filter(pa.array(known)), start + np.flatnonzero(known)))
        start += len(ids)
        if sum(len(each) for each, _ in waiting) >= _TOGETHER:
            yield _together(waiting)
            waiting = []
    if sum(len(each) for each, _ in waiting):
        yield _together(waiting)


def _together(waiting: list[tuple[pa.Array, Ints]]) -> tuple[pa.Array, Ints]:
    return pa.concat_arrays([ids for ids, _ in waiting]), np.concatenate([rows for _, rows in waiting])


def sample_rows(count: int, rate: float, entropy: Callable[[int], bytes]) -> Ints:
    """Draw which of `count` records or persons take part in a round, each with probability `rate`, independently.

    A rate is a multiple of 1 / 65,536, so two random bytes for each decide exactly.

    >>> import os
    >>> sample_rows(3, 1.0, os.urandom).tolist()
    [0, 1, 2]
    """
    drawn = np.frombuffer(entropy(2 * count), dtype="<u2")
    return np.flatnonzero(drawn < round(rate * RATE_UNIT)).astype(np.int64)
