"""Who takes part in a round: decided exactly, by random bytes."""

from collections.abc import Callable

import numpy as np

from repsynth.arrays import Ints
from repsynth.privacy.events import RATE_UNIT

_PIECE = 2**20
"""Records whose random bytes are drawn at a time."""


def sample_rows(count: int, rate: float, entropy: Callable[[int], bytes]) -> Ints:
    """The positions of those out of `count` records that take part, each with probability `rate`, independently.

    >>> import os
    >>> sample_rows(3, 1.0, os.urandom).tolist()
    [0, 1, 2]
    """
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, count, _PIECE):
        drawn = np.frombuffer(entropy(2 * min(_PIECE, count - start)), dtype="<u2")
        found.append(start + np.flatnonzero(drawn < round(rate * RATE_UNIT)).astype(np.int64))
    return np.concatenate(found)
