"""Identify persons by keyed fingerprints of their ids.

Ids are compared as trimmed text; 17 and 17.0 are equal. A row without an id is its own person. A row whose id was
not read in full (a wrong encoding, or a float that lost digits) could belong to anybody, so it counts nothing.

Different ids have equal fingerprints with probability 2⁻¹²⁸. A fingerprint is four numbers of 32 bits: the upper
halves of m₀ + m₁ x₁ + m₂ x₂ + ... modulo 2⁶⁴, where x₁ is the length of the id and the other x are its bytes, four
at a time. With a random key m this is strongly universal hashing, which needs no assumption about a cipher.

No key is drawn here. One process passes random bytes as they are needed. The workers of a cluster expand a common
seed of 256 bits with SHAKE-256. There the probability also assumes that its output looks random without the seed.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from repsynth.arrays import Bools, Ints
from repsynth.errors import DataError
from repsynth.io.encode import plain_array, read_text
from repsynth.io.source import Source
from repsynth.io.values import NULLS, ODD_NUMBER, odd_whole

NOBODY, UNREAD = -1, -2
"""Instead of a person's number: the row has no id, or one that was not read in full."""

SEED_BYTES = 32

_LOST = "\ufffd"  # replaces an unreadable character
_DIGITS = {16: 11, 32: 24, 64: 53}  # floats of this width hold all integers up to this power of two
_SOME = 2**14  # texts that are hashed at a time: they stay in the cache
_LIMB = 4  # bytes of an id that are multiplied by one number of the key
_KEPT = np.array([0, 2**8 - 1, 2**16 - 1, 2**24 - 1, 2**32 - 1], dtype=np.uint32)  # the first bytes of a limb

Words = NDArray[np.uint64]


class Fingerprints:
    """Fingerprints under a secret key, which grows with the longest id. Thread-safe.

    >>> import os
    >>> prints = Fingerprints(os.urandom)
    >>> one, two, again = prints.of(pa.array(["a7", "a8", "a7"])).first.tolist()
    >>> one == again, one == two
    (True, False)
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        self._entropy = entropy
        self._key: Words = np.zeros((0, 4), dtype=np.uint64)
        self._lock = Lock()

    def of(self, texts: pa.Array) -> "Prints":
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


class Expanded:
    """Expand a seed to a stream of random bytes.

    >>> one, two = Expanded(bytes(32)), Expanded(bytes(32))
    >>> one(10) + one(20) == two(30)
    True
    """

    def __init__(self, seed: bytes) -> None:
        self._stream = hashlib.shake_256(b"repsynth: fingerprints" + seed)
        self._given = 0

    def __call__(self, count: int) -> bytes:
        self._given += count
        return self._stream.digest(self._given)[self._given - count :]


@dataclass(frozen=True)
class Prints:
    """Fingerprints, in two halves."""

    first: Words
    second: Words

    @classmethod
    def joined(cls, parts: "Sequence[Prints]") -> "Prints":
        none = np.zeros(0, dtype=np.uint64)
        return cls(
            np.concatenate([none, *(part.first for part in parts)]),
            np.concatenate([none, *(part.second for part in parts)]),
        )

    def take(self, rows: Ints) -> "Prints":
        return Prints(self.first[rows], self.second[rows])


@dataclass(frozen=True)
class Run:
    """Persons in the order of their fingerprints: how many rows each has, and the place of the first one."""

    prints: Prints
    rows: Ints
    first: Ints

    @classmethod
    def of(cls, prints: Prints, rows: Ints, first: Ints) -> "Run":
        """Sort persons, and merge those with the same fingerprint."""
        if not len(rows):
            return cls(prints, rows, first)
        order = np.argsort(prints.first)
        sorted_ = prints.take(order)
        same = _same(sorted_)
        if np.any(~same & (sorted_.first[1:] == sorted_.first[:-1])):  # hardly ever
            order = np.lexsort((prints.second, prints.first))
            sorted_ = prints.take(order)
            same = _same(sorted_)
        new = np.flatnonzero(np.append(True, ~same))
        counted = np.add.reduceat(rows[order], new, dtype=np.int64)
        return cls(sorted_.take(new), counted, np.minimum.reduceat(first[order], new))

    def cut(self, count: int) -> "list[Run]":
        """Cut into `count` pieces by the first bits of the fingerprint."""
        edges = np.array([(k << 64) // count for k in range(1, count)], dtype=np.uint64)
        ends = np.searchsorted(self.prints.first, edges)
        arrays = (self.prints.first, self.prints.second, self.rows, self.first)
        parts = zip(*(np.split(each, ends) for each in arrays), strict=True)
        return [Run(Prints(one, two), rows, first) for one, two, rows, first in parts]

    @classmethod
    def joined(cls, runs: "Sequence[Run]") -> "Run":
        none = np.zeros(0, dtype=np.int64)
        return cls(
            Prints.joined([run.prints for run in runs]),
            np.concatenate([none, *(run.rows for run in runs)]),
            np.concatenate([none, *(run.first for run in runs)]),
        )

    @classmethod
    def gathered(cls, runs: "Iterable[Run]", most: int) -> "Run":
        """Concatenate runs of at most `most` persons in all, without a second copy."""
        words, numbers, end = np.empty((2, most), dtype=np.uint64), np.empty((2, most), dtype=np.int64), 0
        for run in runs:
            start, end = end, end + len(run.rows)
            words[:, start:end] = run.prints.first, run.prints.second
            numbers[:, start:end] = run.rows, run.first
        words, numbers = words[:, :end], numbers[:, :end]
        if end < most // 2:
            words, numbers = words.copy(), numbers.copy()
        return cls(Prints(words[0], words[1]), numbers[0], numbers[1])

    def merged(self) -> "Run":
        return Run.of(self.prints, self.rows, self.first)

    def find(self, asked: Prints) -> Ints:
        """Return the position of each fingerprint. Refuse one that is not there."""
        if not len(asked.first):
            return np.zeros(0, dtype=np.int64)
        last = len(self.rows) - 1
        if last < 0:
            raise changed()
        order = np.argsort(asked.first)  # in order they are found faster
        wanted = asked.take(order)
        found = np.minimum(np.searchsorted(self.prints.first, wanted.first), last)
        while True:  # hardly ever do several persons share the first half
            there = self.prints.take(found)
            further = (there.first == wanted.first) & (there.second < wanted.second) & (found < last)
            if not further.any():
                break
            found = found + further
        if not np.all((there.first == wanted.first) & (there.second == wanted.second)):
            raise changed()
        places = np.empty(len(found), dtype=np.int64)
        places[order] = found
        return places


def _same(ordered: Prints) -> Bools:
    """Whether each but the first equals the one before."""
    same: Bools = (ordered.first[1:] == ordered.first[:-1]) & (ordered.second[1:] == ordered.second[:-1])
    return same


def id_texts(ids: pa.Array) -> pa.Array:
    """The texts by which ids are compared.

    A reader may have made the number 17 of "017" or "0x11", so they are one id, and no id of "NA".

    >>> id_texts(pa.array([" 17.0", "017", "0x11", "-0", "1.70", "a", "NA"])).to_pylist()
    ['17', '17', '17', '0', '1.70', 'a', None]
    """
    ids = plain_array(ids)
    texts = read_text(ids)
    if pa.types.is_floating(ids.type):
        exact = 2.0 ** _DIGITS[ids.type.bit_width]
        texts = pc.if_else(pc.greater_equal(pc.abs(ids.cast(pa.float64())), exact), _LOST, texts)
    texts = pc.if_else(pc.is_in(pc.ascii_lower(texts), pa.array(NULLS, pa.large_string())), None, texts)
    odd = pc.match_substring_regex(texts, "^-?0|^[+]|[.]0*$|_")
    if not pc.any(odd, min_count=0).as_py():
        return texts
    short = pc.replace_substring_regex(texts, r"^(?:[+]|(-))?0*([0-9]+)(?:\.0*)?$", r"\1\2")
    short = pc.if_else(pc.equal(short, "-0"), "0", short)
    strange = pc.if_else(pc.match_substring_regex(texts, ODD_NUMBER), texts, None)
    if strange.null_count < len(strange):
        whole = [None if text is None else odd_whole(text) for text in strange.to_pylist()]
        short = pc.coalesce(pa.array(whole, pa.large_string()), short)
    return pc.if_else(odd, short, texts)


def states_of(texts: pa.Array) -> Ints:
    """Return 0 for an id, else `NOBODY` or `UNREAD`."""
    blank = pc.fill_null(pc.equal(texts, ""), True).to_numpy(zero_copy_only=False)
    unread = pc.fill_null(pc.match_substring(texts, _LOST), False).to_numpy(zero_copy_only=False)
    return np.select([blank, unread], [NOBODY, UNREAD], 0).astype(np.int64)


def changed() -> DataError:
    """Make the error for a table whose rows are not those that were counted."""
    return DataError(
        "the table changed while it was read: its persons have other rows than were counted; nothing of it is "
        "used, and what was paid for is spent"
    )


def shared_ids(ours: Source, theirs: Source, column: str) -> Bools:
    """Return for each row of `theirs` whether its id is also in `ours`.

    >>> from repsynth.io.sources import open_source
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
