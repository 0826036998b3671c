"""Count the rows of persons on a cluster, whose partitions hold rows of the same persons.

The rows are shuffled by the keyed fingerprints of their ids, so all rows of a person meet in one place. There they
are counted and get their factor. Rows without an id are persons of their own. They go to a place by the number of
their partition. Neither ids nor fingerprints reach the process that holds the budget. That process draws the key
for each run and sends it with the tasks.

A partition may be made again after its table changed. So each message carries a digest of its whole partition, and
each place combines the digests into the version of the table that it has seen. A sum over several versions is
refused.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Ints
from repsynth.engine.column_store import Array, Codes, Part
from repsynth.engine.tasks import Compact, EncodeCompact, Silent, Task, counted_once
from repsynth.errors import DataError
from repsynth.io.encode import encode_batch
from repsynth.io.persons import UNREAD, Expanded, Fingerprints, Prints, Run, changed, id_texts, states_of
from repsynth.io.records import UNITS, factors_of, no_records
from repsynth.schema import Person, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class PersonRows(Silent):
    """Rows, and the fingerprints of their ids."""

    codes: dict[str, Array]
    states: NDArray[np.int8]  # 0 for a row with an id, else `NOBODY` or `UNREAD`
    prints: Prints  # zeros for a row without an id

    def __sizeof__(self) -> int:  # a cluster plans by it
        arrays = (*self.codes.values(), self.states, self.prints.first, self.prints.second)
        return sum(array.nbytes for array in arrays)

    @classmethod
    def joined(cls, parts: "Sequence[PersonRows]") -> "PersonRows":
        codes = {name: np.concatenate([part.codes[name] for part in parts]) for name in parts[0].codes}
        states = np.concatenate([part.states for part in parts])
        return cls(codes, states, Prints.joined([part.prints for part in parts]))

    def take(self, rows: Ints) -> "PersonRows":
        codes = {name: each[rows] for name, each in self.codes.items()}
        return PersonRows(codes, self.states[rows], self.prints.take(rows))

    def in_order(self) -> NDArray[Any]:
        """Return the bytes of the rows, sorted: the same in whatever order the rows were read."""
        columns = [np.ascontiguousarray(each) for each in (*self.codes.values(), self.states)]
        rows = np.concatenate([each.view(np.uint8).reshape(-1, each.itemsize) for each in columns], axis=1)
        return rows[np.lexsort(rows.T)]

    def persons(self) -> Run:
        prints = self.prints.take(np.flatnonzero(self.states == 0))
        ones = np.ones(len(prints.first), dtype=np.int64)
        return Run.of(prints, ones, np.zeros_like(ones))

    def factors(self, most: int) -> Ints:
        """Return what each row counts, if at most `most` rows of a person count."""
        factors, persons = np.where(self.states == UNREAD, 0, UNITS), self.persons()
        known = np.flatnonzero(self.states == 0)
        factors[known] = factors_of(persons.rows, most)[persons.find(self.prints.take(known))]
        return factors


@dataclass(frozen=True)
class EncodePersons(EncodeCompact):
    """Encode rows with the fingerprints of their ids. All partitions of a run share the seed."""

    person: Person
    seed: bytes = field(repr=False)

    @property
    def columns(self) -> list[str]:
        return [*super().columns, self.person.column]

    def of(self, batches: "Iterable[pa.RecordBatch]") -> PersonRows:
        fingerprints, codes = Fingerprints(Expanded(self.seed)), Codes(self.schema, workers=1)
        found = [PersonRows(codes.compact(no_records()), np.zeros(0, np.int8), Prints.joined([]))]
        for batch in batches:
            texts = id_texts(batch.column(self.person.column))
            states = states_of(texts).astype(np.int8)
            known = np.flatnonzero(states == 0)
            prints = np.zeros((2, len(states)), dtype=np.uint64)
            made = fingerprints.of(texts.take(known))
            prints[:, known] = made.first, made.second
            found.append(PersonRows(codes.compact(encode_batch(batch, self.schema)), states, Prints(*prints)))
        return PersonRows.joined(found)


@dataclass(frozen=True, repr=False)
class Message(Silent):
    """The rows of one partition that belong to one place."""

    part: int
    digest: bytes  # of the whole partition
    rows: PersonRows

    def __sizeof__(self) -> int:
        return self.rows.__sizeof__()


@dataclass(frozen=True)
class SplitRows:
    """Split the rows of a partition into one message for each place."""

    places: int

    def __call__(self, rows: PersonRows, number: int) -> list[Message]:
        places = np.uint64(self.places)
        place = (((rows.prints.first >> np.uint64(32)) * places) >> np.uint64(32)).astype(np.int64)
        place[rows.states != 0] = number % self.places  # in whatever order the partition is read
        persons, nobody = rows.persons(), rows.take(np.flatnonzero(rows.states != 0))
        counted = (persons.prints.first, persons.prints.second, persons.rows, nobody.in_order())
        digest = _digest(each.tobytes() for each in counted)
        return [Message(number, digest, rows.take(np.flatnonzero(place == k))) for k in range(self.places)]


@dataclass(frozen=True)
class Settle:
    """Join the messages to one place, which are one from each partition, and give each row its factor."""

    schema: Schema
    most: int  # how many rows of a person count
    parts: int

    def __call__(self, messages: Sequence[Message], number: int) -> Compact:
        ordered = sorted(messages, key=lambda message: message.part)
        if [message.part for message in ordered] != list(range(self.parts)):
            raise DataError("the cluster did not count each part once; nothing of it is used")
        rows = PersonRows.joined([message.rows for message in ordered])
        version = _digest(message.digest for message in ordered)
        return Compact(self.schema, _by_factor(rows, self.most), int.from_bytes(version[:8], "little") >> 2)


def _by_factor(rows: PersonRows, most: int) -> tuple[Part, ...]:
    factors = rows.factors(most)
    order = np.argsort(factors, kind="stable")
    values, starts = np.unique(factors[order], return_index=True)
    groups = np.split(order, starts[1:]) if len(values) else []
    return tuple(
        Part(int(factor), {name: each[group] for name, each in rows.codes.items()})
        for factor, group in zip(values, groups, strict=True)
    )


@dataclass(frozen=True)
class FirstVersion:
    """Return the table's version that the first part has seen, and 0 for the others."""

    def __call__(self, records: Compact, number: int) -> Ints:
        return counted_once(np.array([0 if number else records.version]))


@dataclass(frozen=True)
class OfVersion:
    """Run a task on parts that have seen this version of the table, and refuse others."""

    version: int
    task: Task

    def __call__(self, records: Compact, number: int) -> Any:
        if records.version != self.version:
            raise changed()
        return self.task(records, number)


def _digest(parts: Iterable[bytes]) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()
