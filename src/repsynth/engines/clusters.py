"""An engine on a cluster: tasks go to where the data lies, and arrays of integers come back.

No record comes here, and no noise is drawn there. What Dask and Spark do differently is behind `Cluster`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from repsynth.arrays import Int32s, Ints
from repsynth.data.records import Records, no_records
from repsynth.data.sources import Source
from repsynth.engines.base import Kernel
from repsynth.engines.subsample import KEY_BYTES
from repsynth.engines.work import Failed, Hold, Lengths, Look, SampleTotal, Task, Total
from repsynth.errors import ConfigError, DataError
from repsynth.schema import Schema

FAN_IN = 8
"""How many sums are added by one task."""


class Parts(Protocol):
    """Parts of a table on the workers of a cluster."""

    def __len__(self) -> int: ...

    def kept(self, task: Task) -> "Parts":
        """What a task makes of each part, kept where it was made."""
        ...

    def added(self, task: Task) -> Any:
        """What a task finds in each part, added up in a tree; why, where one failed."""
        ...


class Cluster(Protocol):
    """Machines that work side by side."""

    def spread(self, items: Sequence[Any], task: Task | None = None) -> Parts:
        """Things of this process, one for each part, and what a task makes of them."""
        ...

    def frame(self, source: Source, schema: Schema) -> Parts:
        """The encoded records of a data frame that lies there."""
        ...

    def encoding(self, schema: Schema) -> Task:
        """What makes codes of a piece of a table, as they are kept there."""
        ...


@dataclass(frozen=True)
class ClusterEngine:
    """Records on a cluster, each a person's."""

    parts: Parts
    rows_per_person: ClassVar[int] = 1
    units: ClassVar[int] = 1

    @classmethod
    def on(cls, cluster: Cluster, source: Source, schema: Schema) -> "ClusterEngine":
        """A source whose pieces each worker reads by itself."""
        assert schema.person is None, "persons are counted in one process"
        if source.frame is not None:
            return cls(cluster.frame(source, schema))

        def ask(looks: Sequence[Callable[[], Ints]]) -> list[Ints]:
            seen = sum_of(cluster.spread(looks), Look(len(looks)))
            return list(seen.reshape(len(looks), -1))

        pieces = [source.batches] if source.pieces is None else source.pieces(ask)
        return cls(cluster.spread(pieces, cluster.encoding(schema)))

    def sum(self, kernel: Kernel) -> Ints:
        """By the workers, each over its own parts."""
        return sum_of(self.parts, Total(kernel), like=kernel.total(no_records()))

    def held(self, parts: Callable[[Records], Int32s]) -> "ClusterHeld":
        """Kept by the workers; how many rows each part has is known here."""
        rows = self.parts.kept(Hold(parts))
        lengths = sum_of(rows, Lengths(len(rows)))
        starts = np.cumsum(lengths) - lengths
        return ClusterHeld(rows, tuple(map(int, starts)), parts(no_records()))

    def per_record(self) -> Iterator[Records]:
        """Refused: records stay where they are."""
        raise ConfigError("records on a cluster are not looked at one by one; give the table as a file")


@dataclass(frozen=True)
class ClusterHeld:
    """Rows of integers on a cluster, or those of them who take part in a round."""

    rows: Parts
    starts: tuple[int, ...]
    nothing: Int32s
    rate: float = 1.0
    key: bytes | None = None

    def sampled(self, rate: float, entropy: Callable[[int], bytes]) -> "ClusterHeld":
        """The key is drawn here; each worker expands it for its own records."""
        return ClusterHeld(self.rows, self.starts, self.nothing, rate, entropy(KEY_BYTES))

    def sum(self, kernel: Kernel) -> Ints:
        """By the workers, each over its own rows."""
        task = SampleTotal(kernel, self.starts, self.rate, self.key)
        return sum_of(self.rows, task, like=kernel.total(self.nothing))


def sum_of(parts: Parts, task: Task, like: Ints | None = None) -> Ints:
    """What a task finds in all parts; refused unless it is integers, like these, and each part counts once."""
    found = parts.added(task)
    if isinstance(found, Failed):
        raise DataError(found.message)
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.ndim != 1:
        raise DataError("the cluster sent something else than integers; nothing of it is used")
    if found[-1] != len(parts) or (like is not None and found.size != like.size + 1):
        raise DataError("the cluster did not add up each part once; nothing of it is used")
    return found[:-1] if like is None else found[:-1].reshape(like.shape)


def depth_of(parts: int) -> int:
    """How deep the tree is in which so many sums are added up.

    >>> depth_of(1), depth_of(8), depth_of(1000)
    (1, 1, 4)
    """
    return max(math.ceil(math.log(max(parts, 1), FAN_IN) - 1e-9), 1)
