"""What an engine is: the only way from records to numbers. The data never leaves it."""

from collections.abc import Iterator
from typing import Any, Protocol

from repsynth.arrays import Ints
from repsynth.data.records import Records
from repsynth.data.sources import Source
from repsynth.schema import Schema


class Kernel(Protocol):
    """A public function of one record, with integer values, summed over a batch of records.

    A kernel is a frozen value that can be pickled, so that it can be carried to where the data lies.
    """

    def total(self, records: Any) -> Ints:
        """The sum over a batch. Totals of batches add up to the total of their union, bit for bit."""
        ...


class Engine(Protocol):
    """Records that can be summed over and, by the curator alone, looked at one by one.

    Where several records may be one person's, sums are in `units`: a record adds its value times what it counts,
    which is `units` at most, and all records of a person together count `rows_per_person` times `units` at most.
    """

    @property
    def rows_per_person(self) -> int:
        """How many records of a person count; 1 where each record is a person."""
        ...

    @property
    def units(self) -> int:
        """What a record counts that counts in full."""
        ...

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "Engine":
        """The records of a source, seen through its schema."""
        ...

    def sum(self, kernel: Kernel) -> Ints:
        """The exact sum of a kernel: integers, so that order and partition of the records do not matter."""
        ...

    def per_record(self) -> Iterator[Records]:
        """The records themselves, batch by batch: for the curator's private files and for audits."""
        ...
