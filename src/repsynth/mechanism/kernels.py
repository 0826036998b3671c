"""The queries that data answers: sums, selections and rounds of training.

A `Statistic` is a public function of one record; its sum is released with noise. A `Choice` is a sum that is not
released: the exponential mechanism releases a candidate by its utility, a function of the sum. `Rounds` are sums
over random samples of the records, where each function depends on the results of earlier rounds. In a weighted
query, a record's contribution is scaled by its weight. Other queries cost every record their full charge.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.engine import Kernel
from repsynth.io.records import Records

FINEST = 2**22
"""The largest `unit` of a statistic. It is known before a run, so noise that overflows is refused in time."""


class Summed(Protocol):
    """What all queries have in common: a name, grid units, and whether contributions are scaled by weights.

    Sums, sensitivity and noise are in grid units; one record is `unit` of them.
    """

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> int: ...

    @property
    def weighted(self) -> bool: ...


class Statistic(Summed, Protocol):
    """The sum over a batch of a public function of one record with integer values."""

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record, in grid units."""
        ...

    def total(self, records: Records) -> Ints: ...


class Choice(Summed, Protocol):
    """A sequence of selections by utilities, which depend on one sum over records and on the earlier selections.

    After any earlier selections, one record changes a utility by at most `unit`. If the choice is weighted, it
    changes a utility by at most its weight times `unit`.
    """

    @property
    def rounds(self) -> int:
        """The largest number of selections."""
        ...

    def total(self, records: Records) -> Ints: ...

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """Return the utility of stopping, then that of each candidate; `OUT` excludes a candidate.

        The sum and all utilities are in `units`: one record of weight 1 is `units` times `unit`.
        """
        ...


@runtime_checkable
class Rounds(Summed, Protocol):
    """A training: each round sums a public function of one record over a sample.

    The function depends on released values, including earlier rounds. `unit` is the clip norm of one record in
    grid units.
    """

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record, in any round, in grid units."""
        ...

    def parts(self, records: Records) -> Int32s:
        """Return (records, values): the inputs of every round's function."""
        ...

    def kernel(self) -> Kernel:
        """Return the function of this round, on rows of `parts`."""
        ...

    def advance(self, noisy: Ints) -> None:
        """Update the function with the noisy sum."""
        ...

    def examples(self) -> Iterator[Kernel]:
        """Return the functions of the first round and of the released parameters, for an audit."""
        ...


@dataclass(frozen=True)
class Chosen:
    """A choice and its result."""

    choice: Choice
    chosen: tuple[int, ...]


OUT = -(2**62)
"""The utility of a candidate that cannot be selected."""


@dataclass(frozen=True)
class Count:
    """The number of records.

    >>> Count().total(Records(rows=3, codes={})).tolist()
    [3]
    """

    name: str = "count"
    sensitivity: float = 1.0
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        return np.array([records.rows], dtype=np.int64)
