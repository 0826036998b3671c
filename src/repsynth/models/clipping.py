"""Clipping in whole numbers."""

import numpy as np

from repsynth.arrays import Ints


def clipped(weight: Ints, squared_norm: Ints, clip: int) -> Ints:
    """Return weight times clip factor, in units of the weight and rounded down.

    Multiplied by it, a contribution has at most the norm weight × clip.

    >>> clipped(np.array([4096, 4096]), np.array([25, 400]), 10).tolist()
    [4096, 2048]
    """
    norm = np.ceil(np.sqrt(squared_norm.astype(np.float64))).astype(np.int64)
    norm = np.maximum(norm + (norm * norm < squared_norm), 1)  # the root may have been rounded down
    multiplier: Ints = np.minimum(weight, weight * clip // norm)
    return multiplier
