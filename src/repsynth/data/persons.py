"""The persons of a table in one process: their rows are counted in a pass of their own, before all others."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Ints
from repsynth.data.encode import EncodedTable, encode_batch
from repsynth.data.fingerprints import UNREAD, Fingerprints, Run, changed, id_texts, states_of
from repsynth.data.records import ALONE, Records, Whose, factors_of
from repsynth.data.source import Source
from repsynth.schema import Person

_TOGETHER = 2**20  # rows whose fingerprints are sorted at a time
_PIECES = 2**8  # of the sorted persons, each put together by itself
_START = b"repsynth: first row"  # in the metadata of a batch: where in the table it begins


@dataclass(frozen=True)
class PersonTable(EncodedTable):
    """A table in which several rows may be one person's: they are counted before anything else is read."""

    @property
    def person(self) -> Person:
        assert self.schema.person is not None
        return self.schema.person

    @cached_property
    def persons(self) -> "Persons":
        """A pass of its own, over the ids alone."""
        return Persons.counted(batch.column(0) for batch in self.source.batches([self.person.column]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The learned columns and the ids; persons are counted first, by one thread."""
        self.persons.begin()
        names, start = [*(column.name for column in self.schema.learned), self.person.column], 0
        for batch in self.source.batches(names):
            yield batch.replace_schema_metadata({_START: str(start)})
            start += batch.num_rows

    def encode(self, batch: pa.RecordBatch) -> Records:
        """The records of a batch, with what each counts."""
        found = self.persons.find(batch.column(self.person.column))
        self.persons.see(found)
        factors = np.where(found == UNREAD, 0, factors_of(self.persons.rows_of(found), self.person.rows))
        places = self.persons.places_of(found, int(batch.schema.metadata[_START]))
        return replace(encode_batch(batch, self.schema), whose=Whose(places, factors))

    def check_whole(self) -> None:
        """The rows that were read must be those that were counted."""
        self.persons.check()


class Persons:
    """The persons of a table, counted once: where each is found, and how many rows each has.

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
        """The number of each row's person; `NOBODY` where there is no id, `UNREAD` where it is not known."""
        texts = id_texts(ids)
        found = states_of(texts)
        known = np.flatnonzero(found == 0)
        found[known] = self._run.find(
            self._prints.of(texts.take(pa.array(known)) if len(known) < len(texts) else texts)
        )
        return found

    def rows_of(self, found: Ints) -> Ints:
        """How many rows the person of each row has."""
        if not self.count:
            return np.ones(len(found), dtype=np.int64)
        return np.where(found < 0, 1, self._run.rows.take(found, mode="clip"))

    def places_of(self, found: Ints, start: int) -> Ints:
        """The place of the first row of each row's person; `start` is the place of the first of these rows. A row
        that is nobody's has one of its own, also if the table comes in another order than it was counted in."""
        own = ALONE + start + np.arange(len(found))
        return np.where(found < 0, own, self._run.first.take(found, mode="clip")) if self.count else own

    def begin(self) -> None:
        """All rows are to be read again."""
        with self._lock:
            self._left = self._run.rows.copy()

    def see(self, found: Ints) -> None:
        """Take note of rows that are read again, so that `check` can tell whether they are those counted."""
        with self._lock:
            np.subtract.at(self._left, found[found >= 0], 1)

    def check(self) -> None:
        """Refuse a table that changed between counting and reading: a person with rows that were not counted
        would count too much."""
        with self._lock:
            differ = bool(np.any(self._left))
        if differ:
            raise changed()


def shared_ids(ours: Source, theirs: Source, column: str) -> Bools:
    """For each of their rows, in order: whether its id is also one of ours.

    >>> from repsynth.data.sources import open_source
    >>> tables = (pa.table({"who": ids}) for ids in (["a", "b", None], [" b", None, "c"]))
    >>> shared_ids(*map(open_source, tables), "who").tolist()
    [True, False, False]
    """
    known = pa.array(_texts_of(ours, column).unique())
    return np.asarray(pc.is_in(_texts_of(theirs, column), value_set=known, skip_nulls=True))


def some_rows(who: Ints, most: int, generator: np.random.Generator) -> Bools:
    """Draw at most `most` rows of each person at random.

    >>> some_rows(np.array([0, 1, 0, 0]), 1, np.random.default_rng(0)).sum()
    np.int64(2)
    """
    shuffled = generator.permutation(len(who))
    order = shuffled[np.argsort(who[shuffled], kind="stable")]
    before = np.searchsorted(who[order], who[order])
    chosen = np.zeros(len(who), dtype=np.bool_)
    chosen[order] = np.arange(len(who)) - before < most
    return chosen


def _texts_of(source: Source, column: str) -> pa.Array:
    """All ids; null where one is missing or was not read in full."""
    parts = [pa.array([], pa.large_string())]
    for batch in source.batches([column]):
        texts = id_texts(batch.column(0))
        parts.append(pc.if_else(pa.array(states_of(texts) == 0), texts, None).cast(pa.large_string()))
    return pa.concat_arrays(parts)


def _gathered(columns: Iterable[pa.Array]) -> Iterator[tuple[pa.Array, Ints]]:
    """The ids that there are and their rows, many at a time."""
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
