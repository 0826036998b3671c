"""Persons on a cluster: the workers find out among themselves whose rows are in several parts.

Each part sends the fingerprints of its persons, with their numbers of rows, to some `hands` (reducers). The
fingerprint decides which hand, so one hand hears everything about a person. It adds up, and tells each part the
factor of each of its persons. Neither ids nor fingerprints reach the process that holds the budget. That process
draws the key of the fingerprints for each run and sends it with the tasks.

A part may be made again after its table changed. So a part compares itself with what the hands were told about it,
and each answer has a digest of everything its hand was told. Unless all parts go by the same count, the run is
refused, because a person could count too much.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Ints
from repsynth.data.encode import encode_batch
from repsynth.data.fingerprints import UNREAD, Expanded, Fingerprints, Prints, Run, changed, id_texts, states_of
from repsynth.data.records import UNITS, factors_of
from repsynth.engines.codes import Codes, Part, Waiting
from repsynth.engines.shelf import Array
from repsynth.engines.work import Compact, EncodeCompact, Failed, Silent, Task, counted_once
from repsynth.errors import DataError
from repsynth.schema import Person, Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, repr=False)
class Owned(Silent):
    """The records of a part as they come, and the fingerprints of their ids."""

    chunks: tuple[dict[str, Array], ...]
    states: NDArray[np.int8]
    """0 for a row that has an id, or what there is in its place."""
    prints: Prints  # of those that have one

    def __sizeof__(self) -> int:  # by which a cluster decides where to work
        codes = sum(array.nbytes for chunk in self.chunks for array in chunk.values())
        return codes + self.states.nbytes + self.prints.first.nbytes + self.prints.second.nbytes

    def run(self) -> Run:
        """The persons of this part. Where their first rows are does not matter here."""
        ones = np.ones(len(self.prints.first), dtype=np.int64)
        return Run.of(self.prints, ones, np.zeros_like(ones))


@dataclass(frozen=True)
class EncodeOwned(EncodeCompact):
    """The records of a part, and whose they are: the seed is the same for all parts of a run."""

    person: Person
    seed: bytes = field(repr=False)

    @property
    def columns(self) -> list[str]:
        return [*super().columns, self.person.column]

    def of(self, batches: "Iterable[pa.RecordBatch]") -> Owned:
        fingerprints = Fingerprints(Expanded(self.seed))
        codes = Codes(self.schema, workers=1)
        chunks, states, prints = [], [np.zeros(0, dtype=np.int8)], []
        for batch in batches:
            chunks.append(codes.compact(encode_batch(batch, self.schema)))
            texts = id_texts(batch.column(self.person.column))
            states.append(states_of(texts).astype(np.int8))
            prints.append(fingerprints.of(texts.take(np.flatnonzero(states[-1] == 0))))
        return Owned(tuple(chunks), np.concatenate(states), Prints.joined(prints))


@dataclass(frozen=True, repr=False)
class Question(Silent):
    """Some persons of a part."""

    part: int
    persons: Run

    def __sizeof__(self) -> int:
        return 4 * self.persons.rows.nbytes

    def digest(self) -> bytes:
        """Of who is there, with how many rows."""
        arrays = (self.persons.prints.first, self.persons.prints.second, self.persons.rows)
        return _digest(array.tobytes() for array in arrays)


@dataclass(frozen=True, repr=False)
class Answer(Silent):
    """What a row of each of these persons counts."""

    factors: NDArray[np.int16]
    asked: bytes  # the digest of the question
    count: bytes  # A digest of all questions to the same hand

    def __sizeof__(self) -> int:
        return self.factors.nbytes


@dataclass(frozen=True)
class Ask:
    """What a part asks each of the hands."""

    hands: int

    def __call__(self, owned: Owned, number: int) -> list[Question]:
        return [Question(number, persons) for persons in owned.run().cut(self.hands)]


@dataclass(frozen=True)
class Reply:
    """What a hand answers to the questions of all parts, in their order."""

    most: int  # how many rows of a person count
    parts: int

    def __call__(self, questions: Sequence[Question | Failed], hand: int) -> list[Answer] | Failed:
        """Each part must have asked once."""
        asked = [each for each in questions if isinstance(each, Question)]
        for each in questions:
            if isinstance(each, Failed):
                return each
        if [each.part for each in asked] != list(range(self.parts)):
            raise DataError("the cluster did not count each part once; nothing of it is used")
        whole = Run.joined([each.persons for each in asked]).merged()
        factors = factors_of(whole.rows, self.most).astype(np.int16)
        digests = [each.digest() for each in asked]
        count = _digest(digests)
        found = (whole.find(each.persons.prints) for each in asked)
        return [Answer(factors[at], own, count) for at, own in zip(found, digests, strict=True)]


@dataclass(frozen=True)
class Settle:
    """The records of a part by what they count."""

    schema: Schema

    def __call__(self, told: tuple[Owned, Sequence[Answer]], number: int) -> Compact:
        owned, answers = told
        run = owned.run()
        asked = [Question(number, persons).digest() for persons in run.cut(len(answers))]
        if asked != [answer.asked for answer in answers]:
            raise changed()
        factors = _factors(owned, run, answers)
        chunks: list[Part] = []
        waiting, start = Waiting(lambda parts: chunks.append(Part.joined(parts))), 0
        for codes in owned.chunks:
            stop = start + len(next(iter(codes.values())))
            waiting.add(_by_factor(codes, factors[start:stop]))
            start = stop
        waiting.put_all()
        count = _digest(answer.count for answer in answers)
        return Compact(self.schema, tuple(chunks), int.from_bytes(count[:8], "little") >> 2)


def _factors(owned: Owned, run: Run, answers: Sequence[Answer]) -> Ints:
    """What each row counts; those without an id are persons of their own."""
    factors = np.where(owned.states == UNREAD, 0, UNITS)
    known, at = np.flatnonzero(owned.states == 0), run.find(owned.prints)
    factors[known] = np.concatenate([answer.factors for answer in answers])[at]
    return factors


def _by_factor(codes: dict[str, Array], factors: Ints) -> Iterable[Part]:
    for factor in np.unique(factors):
        rows = np.flatnonzero(factors == factor)
        yield Part(int(factor), {name: each[rows] for name, each in codes.items()})


@dataclass(frozen=True)
class FirstCount:
    """By which count the first part goes; nothing of the others."""

    def __call__(self, records: Compact, number: int) -> Ints:
        return counted_once(np.array([0 if number else records.count]))


@dataclass(frozen=True)
class ByCount:
    """A task for parts that go by one count, and no other."""

    count: int
    task: Task

    def __call__(self, records: Compact, number: int) -> Any:
        if records.count != self.count:
            raise changed()
        return self.task(records, number)


def _digest(parts: Iterable[bytes]) -> bytes:
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()
