"""Who takes part in a round: decided exactly, by random numbers that are expanded from a key.

The key is drawn where noise is drawn, afresh for each round. The number of a record follows from the key and from
the record's place in the table, by a cryptographic hash. Where several rows may be one person's, the place is that
of the person's first row: all of them take part, or none.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Ints
from repsynth.privacy.events import RATE_UNIT

KEY_BYTES = 32

_BLOCK = 2**16
"""Records whose random numbers are expanded together."""


def sample_rows(count: int, rate: float, entropy: Callable[[int], bytes]) -> Ints:
    """The positions of those out of `count` records that take part, each with probability `rate`, independently.

    >>> import os
    >>> sample_rows(3, 1.0, os.urandom).tolist()
    [0, 1, 2]
    """
    key, found = entropy(KEY_BYTES), [np.zeros(0, dtype=np.int64)]
    for start in range(0, count, _BLOCK):
        drawn = np.frombuffer(expand(key, start // _BLOCK, 2 * min(count - start, _BLOCK)), dtype="<u2")
        found.append(start + chosen(drawn, rate))
    return np.concatenate(found)


@dataclass(frozen=True)
class Owners:
    """The persons to whom some rows belong."""

    places: Ints
    """Of persons, in order, each once."""
    of_rows: Ints
    """For each row which of them it is."""

    @classmethod
    def of(cls, places: Ints) -> "Owners":
        """By the place of each row's person."""
        return cls(*np.unique(places, return_inverse=True))

    def take(self, rows: Ints) -> "Owners":
        """Those of some of the rows."""
        return Owners(self.places, self.of_rows[rows])

    def rows_taking_part(self, rate: float, key: bytes) -> Ints:
        """The rows of those persons who take part, each with probability `rate`, independently.

        >>> owners = Owners.of(np.array([7, 2**40, 7]))
        >>> sorted({tuple(owners.rows_taking_part(0.5, bytes([n] * 32)).tolist()) for n in range(20)})
        [(), (0, 1, 2), (0, 2), (1,)]
        """
        some = np.zeros(len(self.places), dtype=np.bool_)
        ends = np.flatnonzero(np.diff(self.places // _BLOCK)) + 1
        for start, stop in zip([0, *ends], [*ends, len(some)], strict=True):
            if start < stop:
                block, own = int(self.places[start] // _BLOCK), self.places[start:stop] % _BLOCK
                drawn = np.frombuffer(expand(key, block, 2 * (int(own[-1]) + 1)), dtype="<u2")
                some[start + chosen(drawn[own], rate)] = True
        return np.flatnonzero(some[self.of_rows])


def chosen(drawn: Ints, rate: float) -> Ints:
    """Which of some random numbers, each of two bytes, mean that a record takes part."""
    return np.flatnonzero(drawn < round(rate * RATE_UNIT)).astype(np.int64)


def expand(key: bytes, block: int, count: int) -> bytes:
    """The random bytes of a block of records: SHAKE-256 of the key and the block's number."""
    return hashlib.shake_256(b"repsynth: who takes part" + key + block.to_bytes(8, "little")).digest(count)
