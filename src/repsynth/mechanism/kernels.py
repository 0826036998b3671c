"""What can be asked of data: sums, choices and rounds of training.

A `Statistic` is a public function of one record, summed up and released with noise. A `Choice` is a sum that is
not released: what is released is which candidate's utility, a function of the sum, came out highest in the
exponential mechanism. `Rounds` are sums over random samples of the records, each by a function that the earlier
rounds have taught. Each says whether a record's part in it is scaled by its weight; where it is not, every
record pays in full.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.records import Records
from repsynth.engines import Kernel

FINEST = 2**22
"""The largest `unit` of a statistic: known before a run, so that noise that does not fit is refused in time."""


class Summed(Protocol):
    """What all three have: a name, grid units, and whether a record's part is scaled by its weight.

    Sums, sensitivity and noise are in grid units; `unit` of them count as one record.
    """

    @property
    def name(self) -> str: ...

    @property
    def unit(self) -> int: ...

    @property
    def weighted(self) -> bool: ...


class Statistic(Summed, Protocol):
    """A public function of one record, with integer values, summed over a batch of records."""

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record, in grid units."""
        ...

    def total(self, records: Records) -> Ints: ...


class Choice(Summed, Protocol):
    """Some choices in a row, each by utilities that are a function of one sum over records and of the earlier
    choices. One record moves every utility by at most `unit`, whatever was chosen before; by at most its weight
    times `unit` if the choice is weighted."""

    @property
    def rounds(self) -> int:
        """How many choices are made at most."""
        ...

    def total(self, records: Records) -> Ints: ...

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """The utility of stopping, then that of each candidate; a candidate that is out has none: `OUT`. The sum
        and all utilities are in `units`; one record that counts in full moves each by `units` times `unit`."""
        ...


@runtime_checkable
class Rounds(Summed, Protocol):
    """A training: in every round a sum over a sample, by a public function of one record that follows from what
    was released before, earlier rounds included. `unit` is the clip norm of one record in grid units."""

    @property
    def sensitivity(self) -> float:
        """The largest L2 norm of the function's value on any one record, in any round, in grid units."""
        ...

    def parts(self, records: Records) -> Int32s:
        """(records, values): all that each record's part in any round is made of."""
        ...

    def kernel(self) -> Kernel:
        """The function of this round, on rows of `parts`."""
        ...

    def advance(self, noisy: Ints) -> None:
        """Learn from the noisy sum: the next round has another function."""
        ...

    def examples(self) -> Iterator[Kernel]:
        """Functions of some rounds, for an audit: those of the first one and of the released parameters."""
        ...


@dataclass(frozen=True)
class Chosen:
    """A choice that was made, and what came out of it."""

    choice: Choice
    chosen: tuple[int, ...]


OUT = -(2**62)
"""The utility of what cannot be chosen."""


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
