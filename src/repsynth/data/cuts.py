"""Between which of some public positions a code lies: by a look-up table, and by search only beside an edge."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Ints

_CELLS = 2**15
_FEW = 4_096
"""Codes for which a table is not worth its while."""

_UNSURE = -2
_TAILS = 0.002


@dataclass(frozen=True)
class Cut:
    """Intervals of codes, each from one of the `starts` to the next.

    Codes are sorted into many cells of equal width, a power of two. All but few cells lie inside one interval, so
    that the cell decides; only in the others, and beyond the cells, is there a search. Where the cells lie is a
    matter of speed alone.
    """

    starts: Ints
    first: int
    shift: int
    table: NDArray[np.int32]

    @classmethod
    def at(cls, starts: Ints, sample: Ints) -> "Cut":
        """Cells where most codes of a `sample` are."""
        seen = np.sort(sample[:: max(len(sample) // 1024, 1)])
        seen = seen[np.searchsorted(seen, 0) :]
        low, high = np.quantile(seen, [_TAILS, 1 - _TAILS], method="lower").tolist() if seen.size else (0, 0)
        shift = max((high - low).bit_length() - _CELLS.bit_length() + 1, 0)
        cells = low + (np.arange(_CELLS, dtype=np.int64) << shift)
        begin = np.searchsorted(starts, cells, side="right") - 1
        end = np.searchsorted(starts, cells + ((1 << shift) - 1), side="right") - 1
        # The last entry is for what is beyond the cells.
        table = np.append(np.where(begin == end, begin, _UNSURE), _UNSURE).astype(np.int32)
        return cls(starts, low, shift, table)

    def of(self, codes: Ints) -> Ints:
        """The interval of each code, −1 below the first start: `np.searchsorted(starts, codes, "right") - 1`.

        >>> codes = np.array([-1, 0, 4, 5, 99])
        >>> Cut.at(np.array([0, 5]), codes).of(codes).tolist()
        [-1, 0, 0, 1, 1]
        """
        cells = (codes - self.first).view(np.uint64)  # so that those below are beyond, too
        np.right_shift(cells, np.uint64(self.shift), out=cells)
        np.minimum(cells, np.uint64(_CELLS), out=cells)
        near = self.table.take(cells.view(np.int64))
        unsure = np.flatnonzero(near == _UNSURE)
        found = near.astype(np.int64)
        if unsure.size:
            found[unsure] = np.searchsorted(self.starts, codes[unsure], side="right") - 1
        return found


def interval_of(codes: Ints, starts: Ints) -> Ints:
    """The interval of each code between sorted starts, −1 below the first.

    >>> interval_of(np.array([-1, 3, 7]), np.array([0, 5])).tolist()
    [-1, 0, 1]
    """
    if len(codes) < _FEW:
        return np.searchsorted(starts, codes, side="right") - 1
    return Cut.at(starts, codes).of(codes)
