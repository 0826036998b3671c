"""One process: a table is read and encoded once, and every sum runs over its codes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.encode import EncodedTable
from repsynth.data.records import Records, no_records
from repsynth.data.sources import Source
from repsynth.engines.base import Kernel
from repsynth.engines.codes import Codes
from repsynth.engines.subsample import sample_rows
from repsynth.schema import Schema


@dataclass(frozen=True)
class LocalEngine:
    """Batches of records that can be read again and again.

    >>> from repsynth.mechanism.kernels import Count
    >>> LocalEngine([Records(rows=40, codes={}), Records(rows=2, codes={})]).sum(Count()).tolist()
    [42]
    """

    data: Iterable[Records]

    @classmethod
    def open(cls, source: Source, schema: Schema) -> "LocalEngine":
        """A source; it is read when the first sum is asked for."""
        return cls(EncodedTable(source, schema))

    @cached_property
    def _codes(self) -> Codes | None:
        return Codes.of(self.data) if isinstance(self.data, EncodedTable) else None

    def sum(self, kernel: Kernel) -> Ints:
        """Block by block, from nothing."""
        if self._codes is not None:
            return self._codes.sum(kernel)
        total = kernel.total(no_records())
        for records in self.data:
            total = total + kernel.total(records)
        return total

    def held(self, parts: Callable[[Records], Int32s]) -> "LocalHeld":
        """In memory: four bytes for each integer."""
        return LocalHeld(np.concatenate([parts(no_records()), *map(parts, self.data)]))

    def per_record(self) -> Iterator[Records]:
        """As they are read."""
        return iter(self.data)


@dataclass(frozen=True)
class LocalHeld:
    """Rows in memory."""

    rows: Int32s

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "LocalHeld":
        """Those who take part."""
        return LocalHeld(self.rows[sample_rows(len(self.rows), rate, entropy)])

    def sum(self, kernel: Kernel) -> Ints:
        """All at once."""
        return kernel.total(self.rows)
