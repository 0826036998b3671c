"""Whose a row is: ids become fingerprints under a secret key, and the rows of each person are counted.

Two ids are the same where their texts are, without the blanks around them; 17 and 17.0 are one. A row without an
id is a person of its own. An id that is there but was not read in full, because the table has another encoding
than was said or a float has lost digits, may be anybody's: such a row counts nothing, whatever else there is.

Different ids have the same fingerprint with a chance of 2⁻¹²⁸, whatever they are. A fingerprint is made of four
numbers of 32 bits, the upper halves of m₀ + m₁ x₁ + m₂ x₂ + ... modulo 2⁶⁴, where x₁ is the length of the id and
the others are its bytes, four at a time. With keys m that are drawn at random each such number is the same for two
different ids with a chance of 2⁻³² (strongly universal hashing, which needs no assumption about a cipher).
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from repsynth.arrays import Bools, Ints
from repsynth.data.encode import EncodedTable, encode_batch, plain_array, read_text
from repsynth.data.records import Records, Whose
from repsynth.data.sources.base import Source
from repsynth.errors import DataError
from repsynth.schema import Person

UNITS = 2**12
"""What a row counts that counts in full."""

NOBODY, UNREAD = -1, -2
"""The place of a row without an id, and of one whose id was not read in full."""

_LOST = "\ufffd"  # what stands for a character that could not be read
_DIGITS = {16: 11, 32: 24, 64: 53}  # up to this power of two, floats of so many bits hold all whole numbers
_TOGETHER = 2**20  # rows whose fingerprints are sorted at a time
_PIECES = 2**8  # of the sorted persons, each put together by itself
_SOME = 2**14  # texts that are hashed at a time: they stay in the cache
_LIMB = 4  # bytes of an id that are multiplied by one number of the key

_KEPT = np.array([0, 2**8 - 1, 2**16 - 1, 2**24 - 1, 2**32 - 1], dtype=np.uint32)  # the first bytes of a limb

Words = NDArray[np.uint64]


def factors_of(rows: Ints, most: int) -> Ints:
    """What each row of a person with so many counts, in units, rounded down: all of them at most `most` rows.

    >>> factors_of(np.array([1, 2, 3, 5000]), most=2).tolist()
    [4096, 4096, 2730, 1]
    """
    return np.where(rows > most, UNITS * most // np.maximum(rows, 1), UNITS)


def told_apart(places: Ints) -> Ints:
    """A place for each row's person; rows that are nobody's, or not known whose, are persons of their own.

    >>> told_apart(np.array([1, NOBODY, 0, UNREAD, 1])).tolist()
    [1, 2, 0, 3, 1]
    """
    alone = np.flatnonzero(places < 0)
    found = places.copy()
    found[alone] = places.max(initial=NOBODY) + 1 + np.arange(len(alone))
    return found


class Fingerprints:
    """A secret key, as long as the longest id so far needs; several threads may use it.

    >>> prints = Fingerprints()
    >>> one, two, again = prints.of(pa.array(["a7", "a8", "a7"])).first.tolist()
    >>> one == again, one == two
    (True, False)
    """

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._key: Words = np.zeros((0, 4), dtype=np.uint64)
        self._lock = Lock()

    def of(self, texts: pa.Array) -> "Prints":
        """The fingerprint of each text."""
        parts = [
            self._some(texts.slice(start, _SOME).cast(pa.large_binary())) for start in range(0, len(texts), _SOME)
        ]
        return Prints.joined(parts)

    def _some(self, texts: pa.LargeBinaryArray) -> "Prints":
        _, places, content = texts.buffers()
        ends = np.frombuffer(places, dtype=np.int64)[texts.offset : texts.offset + len(texts) + 1]
        lengths, start = np.diff(ends), ends[0]
        padded = content.slice(start, ends[-1] - start).to_pybytes() + bytes(_LIMB)
        # Four bytes from each place on, whatever it is: beyond its end an id has zeros.
        limbs = np.ndarray((len(padded) - _LIMB + 1,), "<u4", padded, strides=(1,))
        most = -(-int(lengths.max()) // _LIMB)
        key = self._grown(2 + most)
        sums: Words = key[0][:, None] + key[1][:, None] * lengths.astype(np.uint64)
        for k in range(most):
            left = np.clip(lengths - _LIMB * k, 0, _LIMB)
            place = np.minimum(ends[:-1] - start + _LIMB * k, len(limbs) - 1)
            sums += key[2 + k][:, None] * (limbs[place] & _KEPT[left]).astype(np.uint64)
        upper = sums >> np.uint64(32)
        return Prints(upper[0] << np.uint64(32) | upper[1], upper[2] << np.uint64(32) | upper[3])

    def _grown(self, length: int) -> Words:
        with self._lock:
            missing = length - len(self._key)
            if missing > 0:
                more = np.frombuffer(self._entropy(32 * missing), dtype="<u8").reshape(-1, 4)
                self._key = np.concatenate([self._key, more.astype(np.uint64)])
            return self._key


@dataclass(frozen=True)
class Prints:
    """Fingerprints, in two halves."""

    first: Words
    second: Words

    @classmethod
    def joined(cls, parts: "Sequence[Prints]") -> "Prints":
        """One after the other."""
        none = np.zeros(0, dtype=np.uint64)
        return cls(
            np.concatenate([none, *(part.first for part in parts)]),
            np.concatenate([none, *(part.second for part in parts)]),
        )

    def take(self, rows: Ints) -> "Prints":
        """Some of them."""
        return Prints(self.first[rows], self.second[rows])


@dataclass(frozen=True)
class _Run:
    """Persons in the order of their fingerprints, and how many rows each has."""

    prints: Prints
    rows: Ints

    @classmethod
    def of(cls, prints: Prints, rows: Ints) -> "_Run":
        """Those with the same fingerprint together."""
        order = np.argsort(prints.first)
        sorted_ = prints.take(order)
        same = _same(sorted_)
        if np.any(~same & (sorted_.first[1:] == sorted_.first[:-1])):  # hardly ever
            order = np.lexsort((prints.second, prints.first))
            sorted_ = prints.take(order)
            same = _same(sorted_)
        new = np.flatnonzero(np.append(True, ~same))
        return cls(sorted_.take(new), np.add.reduceat(rows[order], new, dtype=np.int64))

    def pieces(self) -> "list[_Run]":
        """Cut at the same places as all others."""
        ends = np.searchsorted(self.prints.first, np.arange(1, _PIECES, dtype=np.uint64) << np.uint64(64 - 8))
        parts = zip(*(np.split(each, ends) for each in (self.prints.first, self.prints.second)), strict=True)
        rows: list[Ints] = np.split(self.rows, ends)
        return [_Run(Prints(*halves), part) for halves, part in zip(parts, rows, strict=True)]

    @classmethod
    def joined(cls, runs: "Sequence[_Run]") -> "_Run":
        """One after the other."""
        rows = np.concatenate([np.zeros(0, dtype=np.int64), *(run.rows for run in runs)])
        return cls(Prints.joined([run.prints for run in runs]), rows)


def _same(ordered: Prints) -> Bools:
    """Whether each but the first has the fingerprint of the one before."""
    same: Bools = (ordered.first[1:] == ordered.first[:-1]) & (ordered.second[1:] == ordered.second[:-1])
    return same


@dataclass(frozen=True)
class PersonTable(EncodedTable):
    """A table in which several rows may be one person's: they are counted before anything else is read."""

    @property
    def person(self) -> Person:
        """Whose rows belong together."""
        assert self.schema.person is not None
        return self.schema.person

    @cached_property
    def persons(self) -> "Persons":
        """A pass of its own, over the ids alone."""
        return Persons.counted(batch.column(0) for batch in self.source.batches([self.person.column]))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The learned columns and the ids; persons are counted first, by one thread."""
        self.persons.begin()
        return self.source.batches([*(column.name for column in self.schema.learned), self.person.column])

    def encode(self, batch: pa.RecordBatch) -> Records:
        """The records of a batch, with what each counts."""
        places = self.persons.find(batch.column(self.person.column))
        self.persons.see(places)
        factors = np.where(places == UNREAD, 0, factors_of(self.persons.rows_of(places), self.person.rows))
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

    def __init__(self, prints: Fingerprints, run: _Run) -> None:
        self._prints = prints
        self._sorted = run.prints
        self._rows = run.rows
        self._left = run.rows.copy()
        self._lock = Lock()

    @classmethod
    def counted(cls, columns: Iterable[pa.Array]) -> "Persons":
        """Count the ids of a table, column by column of its batches, with a fresh key."""
        prints = Fingerprints()
        parts = (_Run.of(prints.of(part), np.ones(len(part), dtype=np.int64)) for part in _gathered(columns))
        runs = [part.pieces() for part in parts]
        whole = (_Run.joined(pieces) for pieces in zip(*runs, strict=True))
        return cls(prints, _Run.joined([_Run.of(piece.prints, piece.rows) for piece in whole if len(piece.rows)]))

    @property
    def count(self) -> int:
        """How many persons have an id."""
        return len(self._rows)

    def find(self, ids: pa.Array) -> Ints:
        """The place of each row's person; `NOBODY` for a row without an id, `UNREAD` for one that is not known."""
        texts = id_texts(ids)
        states = _states(texts)
        known = np.flatnonzero(states == 0)
        if not len(known):
            return states
        if not self.count:
            raise _changed()
        prints = self._prints.of(texts.take(pa.array(known)) if len(known) < len(texts) else texts)
        order = np.argsort(prints.first)  # in order they are found faster
        states[known[order]] = self._found(prints.take(order))
        return states

    def _found(self, asked: Prints) -> Ints:
        last = self.count - 1
        found = np.minimum(np.searchsorted(self._sorted.first, asked.first), last)
        while True:  # hardly ever do several persons share the first half
            there = self._sorted.take(found)
            further = (there.first == asked.first) & (there.second < asked.second) & (found < last)
            if not further.any():
                break
            found = found + further
        if not np.all((there.first == asked.first) & (there.second == asked.second)):
            raise _changed()
        return found

    def rows_of(self, places: Ints) -> Ints:
        """How many rows the person of each row has."""
        if not self.count:
            return np.ones(len(places), dtype=np.int64)
        return np.where(places < 0, 1, self._rows.take(places, mode="clip"))

    def begin(self) -> None:
        """All rows are to be read again."""
        with self._lock:
            self._left = self._rows.copy()

    def see(self, places: Ints) -> None:
        """Take note of rows that are read again, so that `check` can tell whether they are those counted."""
        with self._lock:
            np.subtract.at(self._left, places[places >= 0], 1)

    def check(self) -> None:
        """Refuse a table that changed between counting and reading: a person with rows that were not counted
        would count too much."""
        with self._lock:
            changed = bool(np.any(self._left))
        if changed:
            raise _changed()


def id_texts(ids: pa.Array) -> pa.Array:
    """The texts by which ids are compared.

    >>> id_texts(pa.array([" 17.0", "1.70", "a"])).to_pylist()
    ['17', '1.70', 'a']
    """
    ids = plain_array(ids)
    texts = read_text(ids)
    if pa.types.is_floating(ids.type):
        exact = 2.0 ** _DIGITS[ids.type.bit_width]
        texts = pc.if_else(pc.greater_equal(pc.abs(ids.cast(pa.float64())), exact), _LOST, texts)
    whole = pc.ends_with(texts, "0")
    if not pc.any(whole, min_count=0).as_py():
        return texts
    return pc.if_else(whole, pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0+$", r"\1"), texts)


def _states(texts: pa.Array) -> Ints:
    """0 for a text that is an id, or what there is in its place."""
    blank = pc.fill_null(pc.equal(texts, ""), True).to_numpy(zero_copy_only=False)
    unread = pc.fill_null(pc.match_substring(texts, _LOST), False).to_numpy(zero_copy_only=False)
    return np.select([blank, unread], [NOBODY, UNREAD], 0).astype(np.int64)


def shared_ids(ours: Source, theirs: Source, column: str) -> Bools:
    """For each of their rows, in order: whether its id is also one of ours.

    >>> from repsynth.data.sources import open_source
    >>> tables = (pa.table({"who": ids}) for ids in (["a", "b", None], [" b", None, "c"]))
    >>> shared_ids(*map(open_source, tables), "who").tolist()
    [True, False, False]
    """
    known = pa.array(_texts_of(ours, column).unique())
    theirs_texts = _texts_of(theirs, column)
    return np.asarray(pc.is_in(theirs_texts, value_set=known, skip_nulls=True))


def _texts_of(source: Source, column: str) -> pa.Array:
    """All ids; null where one is missing or was not read in full."""
    parts = [pa.array([], pa.large_string())]
    for batch in source.batches([column]):
        texts = id_texts(batch.column(0))
        parts.append(pc.if_else(pa.array(_states(texts) == 0), texts, None).cast(pa.large_string()))
    return pa.concat_arrays(parts)


def _gathered(columns: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """The ids that there are, many at a time."""
    waiting: list[pa.Array] = []
    for ids in columns:
        texts = id_texts(ids)
        waiting.append(texts.filter(pa.array(_states(texts) == 0)))
        if sum(map(len, waiting)) >= _TOGETHER:
            yield pa.concat_arrays(waiting)
            waiting = []
    if sum(map(len, waiting)):
        yield pa.concat_arrays(waiting)


def _changed() -> DataError:
    return DataError(
        "the table changed while it was read: its persons have other rows than were counted; nothing of it is "
        "used, and what was paid for is spent"
    )
