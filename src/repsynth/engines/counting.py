"""Persons on a cluster: whose rows are in several parts is found by the workers among themselves.

Each part sends the fingerprints of its persons, how many rows each has there and the place of the first one to
some `hands`, by the fingerprint: all that is said of one person comes to one hand. The hand adds up, and tells
each part what a row of each of its persons counts, and the place of the person's first row in the whole table. No
id and no fingerprint comes to the process that holds the budget. The key of the fingerprints is drawn there, for
each run, and goes with the tasks.

Parts may be made again while others are kept, and a table may have changed by then. So a part compares itself with
what the hands were told of it, and an answer comes with a digest of all that its hand was told, which says by
which count it goes. Unless all parts go by one count, nothing is used: a person could count too much, or take part
in a round of training with some rows only.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Int32s, Ints
from repsynth.data.encode import encode_batch
from repsynth.data.fingerprints import UNREAD, Expanded, Fingerprints, Prints, Run, changed, id_texts, states_of
from repsynth.data.records import ALONE, UNITS, Records, Whose, factors_of, no_records
from repsynth.data.sources.base import Reader
from repsynth.engines.base import Kernel
from repsynth.engines.codes import Codes, Part, Waiting
from repsynth.engines.shelf import Array
from repsynth.engines.subsample import Owners
from repsynth.engines.work import Compact, Failed, Task, counted_once
from repsynth.errors import DataError
from repsynth.schema import Person, Schema

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 2**40
"""More than a part has: the place of a row is this times the part's number, and its place in the part."""


@dataclass(frozen=True)
class Owned:
    """The records of a part as they come, and the fingerprints of their ids."""

    chunks: tuple[dict[str, Array], ...]
    states: NDArray[np.int8]
    """0 for a row that has an id, or what there is in its place."""
    prints: Prints
    """Of those that have one."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __sizeof__(self) -> int:  # by which a cluster decides where to work
        codes = sum(array.nbytes for chunk in self.chunks for array in chunk.values())
        return codes + self.states.nbytes + self.prints.first.nbytes + self.prints.second.nbytes

    def run(self, number: int) -> Run:
        """The persons of this part, which has a number."""
        rows = np.flatnonzero(self.states == 0)
        return Run.of(self.prints, np.ones(len(rows), dtype=np.int64), number * _ROWS + rows)


@dataclass(frozen=True)
class EncodeOwned:
    """The records of a part, and whose they are: the seed is the same for all parts of a run."""

    schema: Schema
    person: Person
    seed: bytes = field(repr=False)

    @property
    def columns(self) -> list[str]:
        """What is to be read."""
        return [*(column.name for column in self.schema.learned), self.person.column]

    def __call__(self, read: Reader, number: int) -> Owned:
        """Batch by batch."""
        return self.of(read(self.columns))

    def of(self, batches: "Iterable[pa.RecordBatch]") -> Owned:
        """From batches."""
        fingerprints = Fingerprints(Expanded(self.seed))
        codes = Codes(self.schema, workers=1)
        chunks, states, prints = [], [np.zeros(0, dtype=np.int8)], []
        for batch in batches:
            chunks.append(codes.compact(encode_batch(batch, self.schema)))
            texts = id_texts(batch.column(self.person.column))
            states.append(states_of(texts).astype(np.int8))
            prints.append(fingerprints.of(texts.take(np.flatnonzero(states[-1] == 0))))
        return Owned(tuple(chunks), np.concatenate(states), Prints.joined(prints))


@dataclass(frozen=True)
class Question:
    """Some persons of a part."""

    part: int
    persons: Run

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __sizeof__(self) -> int:
        return 4 * self.persons.rows.nbytes

    def digest(self) -> bytes:
        """Of who is there, with how many rows."""
        arrays = (self.persons.prints.first, self.persons.prints.second, self.persons.rows)
        return _digest(array.tobytes() for array in arrays)


@dataclass(frozen=True)
class Answer:
    """What a row of each of these persons counts, and the place of the first."""

    factors: NDArray[np.int16]
    first: Ints
    asked: bytes
    """The digest of the question."""
    count: bytes
    """A digest of all questions to the same hand."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __sizeof__(self) -> int:
        return self.factors.nbytes + self.first.nbytes


@dataclass(frozen=True)
class Ask:
    """What a part asks each of the hands."""

    hands: int

    def __call__(self, owned: Owned, number: int) -> list[Question]:
        """By the fingerprint."""
        return [Question(number, persons) for persons in owned.run(number).cut(self.hands)]


@dataclass(frozen=True)
class Reply:
    """What a hand answers to the questions of all parts, in their order."""

    most: int
    """How many rows of a person count."""
    parts: int

    def __call__(self, questions: Sequence[Question | Failed], hand: int) -> list[Answer] | Failed:
        """Each part must have asked once."""
        asked = [each for each in questions if isinstance(each, Question)]
        for each in questions:
            if isinstance(each, Failed):
                return each
        if [each.part for each in asked] != list(range(self.parts)):
            raise DataError("the cluster did not count each part once; nothing of it is used")
        together = Run.joined([each.persons for each in asked])
        whole = together.merged()
        factors = factors_of(whole.rows, self.most).astype(np.int16)
        digests = [each.digest() for each in asked]
        count = _digest([*digests, together.first.tobytes()])
        found = (whole.find(each.persons.prints) for each in asked)
        return [Answer(factors[at], whole.first[at], own, count) for at, own in zip(found, digests, strict=True)]


@dataclass(frozen=True)
class Settle:
    """The records of a part by what they count."""

    schema: Schema

    def __call__(self, told: tuple[Owned, Sequence[Answer]], number: int) -> Compact:
        """With the answers of all hands, in order."""
        owned, answers = told
        run = owned.run(number)
        asked = [Question(number, persons).digest() for persons in run.cut(len(answers))]
        if asked != [answer.asked for answer in answers]:
            raise changed()
        whose = _whose(owned, number, run, answers)
        chunks: list[Part] = []
        waiting, start = Waiting(lambda parts: chunks.append(Part.joined(parts))), 0
        for codes in owned.chunks:
            stop = start + len(next(iter(codes.values())))
            waiting.add(_by_factor(codes, whose.take(np.arange(start, stop))))
            start = stop
        waiting.put_all()
        count = _digest(answer.count for answer in answers)
        return Compact(self.schema, tuple(chunks), int.from_bytes(count[:8], "little") >> 2)


def _whose(owned: Owned, number: int, run: Run, answers: Sequence[Answer]) -> Whose:
    """Whose each row is; those without an id are persons of their own."""
    places = ALONE + number * _ROWS + np.arange(len(owned.states))
    factors = np.where(owned.states == UNREAD, 0, UNITS)
    known, at = np.flatnonzero(owned.states == 0), run.find(owned.prints)
    places[known] = np.concatenate([answer.first for answer in answers])[at]
    factors[known] = np.concatenate([answer.factors for answer in answers])[at]
    return Whose(places, factors)


def _by_factor(codes: dict[str, Array], whose: Whose) -> Iterable[Part]:
    for factor in np.unique(whose.factors):
        rows = np.flatnonzero(whose.factors == factor)
        yield Part(int(factor), {name: each[rows] for name, each in codes.items()}, whose.places[rows])


@dataclass(frozen=True)
class FirstCount:
    """By which count the first part goes; nothing of the others."""

    def __call__(self, records: Compact, number: int) -> Ints:
        """For one part."""
        return counted_once(np.array([0 if number else records.count]))


@dataclass(frozen=True)
class ByCount:
    """A task for parts that go by one count, and no other."""

    count: int
    task: Task

    def __call__(self, records: Compact, number: int) -> Any:
        """For one part."""
        if records.count != self.count:
            raise changed()
        return self.task(records, number)


@dataclass(frozen=True)
class PersonRows:
    """What a training needs of each record of a part, and whose it is."""

    rows: Int32s
    owners: Owners
    factors: Ints

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class HoldPersons:
    """What a training needs of the persons of a part."""

    parts: Callable[[Records], Int32s]

    def __call__(self, records: Compact, number: int) -> PersonRows:
        """A row of integers of each record."""
        rows = np.concatenate([self.parts(no_records()), *records.each(self.parts)])
        whose = Whose.joined(list(records.whose()))
        return PersonRows(rows, Owners.of(whose.places), whose.factors)


@dataclass(frozen=True)
class SamplePersons:
    """The sum of a kernel over the rows of those persons of a part who take part in a round; over all of them
    without a key. A person who has rows in several parts takes part in all of them, or in none."""

    kernel: Kernel
    starts: tuple[int, ...]
    """Where in the table each part begins."""
    rate: float
    key: bytes | None

    def __call__(self, held: PersonRows, number: int) -> Ints:
        """For one part, in units."""
        rows = np.arange(len(held))
        if self.key is not None:
            owners = Owners(self._in_the_table(held.owners.places), held.owners.of_rows)
            rows = owners.rows_taking_part(self.rate, self.key)
        total = self.kernel.total(held.rows[:0])
        for factor in np.unique(held.factors[rows]):
            same = rows[held.factors[rows] == factor]
            total = total + self.kernel.total(held.rows[same]) * int(factor)
        return counted_once(total)

    def _in_the_table(self, places: Ints) -> Ints:
        """From the part and the place in it; the order stays."""
        alone, place = np.divmod(places, ALONE)
        part, row = np.divmod(place, _ROWS)
        found: Ints = alone * ALONE + np.array(self.starts)[part] + row
        return found


def _digest(parts: Iterable[bytes]) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()
