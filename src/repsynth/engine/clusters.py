"""The engine of clusters: tasks go to the workers, and arrays of integers come back.

No record comes to this process, and no worker draws noise. `Cluster` hides the differences of Dask and Spark.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from repsynth.arrays import Ints
from repsynth.engine import Kernel
from repsynth.engine.persons import EncodePersons, FirstVersion, OfVersion, Settle, SplitRows
from repsynth.engine.tasks import EncodeCompact, Failed, Task, Total
from repsynth.errors import ConfigError, DataError
from repsynth.io.persons import SEED_BYTES
from repsynth.io.records import UNITS, Records, no_records
from repsynth.io.sources import Source
from repsynth.schema import Person, Schema

FAN_IN = 8  # how many sums are added by one task
PLACES = 64  # parts of a table with persons at most: each partition sends a message to each of them


class Parts(Protocol):
    """Parts of a table on the workers of a cluster."""

    def __len__(self) -> int: ...

    def added(self, task: Task) -> Any:
        """Run a task on each part and add the results in a tree. Return `Failed` if one failed."""
        ...

    def shuffled(self, split: Task, join: Task, places: int) -> "Parts":
        """Shuffle the table into new parts. `split` turns a part into one message for each place, and `join` turns
        the messages to one place, in any order, into a new part. The old parts are let go."""
        ...


class Cluster(Protocol):
    """Workers with parts of tables."""

    def spread(self, items: Sequence[Any], task: Task | None = None) -> Parts:
        """Send items to the workers, one for each part, and run a task on them."""
        ...

    def frame(self, source: Source, encode: EncodeCompact) -> Parts:
        """Encode a data frame of the cluster."""
        ...


@dataclass(frozen=True)
class ClusterEngine:
    parts: Parts
    person: Person | None = None
    """Set where several records may belong to one person. Parts then hold factors."""

    @classmethod
    def on(cls, cluster: Cluster, source: Source, schema: Schema) -> "ClusterEngine":
        """Have workers read the pieces of a source. Each table that is opened gets a fresh key for its ids."""
        person = schema.person
        encode = EncodeCompact(schema) if person is None else EncodePersons(schema, person, os.urandom(SEED_BYTES))
        rows = _pieces(cluster, source, encode) if source.frame is None else cluster.frame(source, encode)
        if person is None:
            return cls(rows)
        places = min(len(rows), PLACES)
        return cls(rows.shuffled(SplitRows(places), Settle(schema, person.rows, len(rows)), places), person)

    @property
    def rows_per_person(self) -> int:
        return 1 if self.person is None else self.person.rows

    @property
    def units(self) -> int:
        return 1 if self.person is None else UNITS

    @cached_property
    def _version(self) -> int:
        """The version of the table that the first part has seen: each sum refuses parts of another one."""
        return int(sum_of(self.parts, FirstVersion())[0])

    def _checked(self, task: Task) -> Task:
        return task if self.person is None else OfVersion(self._version, task)

    def sum(self, kernel: Kernel) -> Ints:
        return sum_of(self.parts, self._checked(Total(kernel)), like=kernel.total(no_records()))

    def per_record(self) -> Iterator[Records]:
        """Refuse: records stay on the workers."""
        raise ConfigError("records on a cluster are not looked at one by one; give the table as a file")


def _pieces(cluster: Cluster, source: Source, encode: Task) -> Parts:
    """Encode the pieces of a source, which workers read or which are sent to them."""
    pieces = [source.batches] if source.pieces is None else source.pieces()
    return cluster.spread(pieces, encode)


def sum_of(parts: Parts, task: Task, like: Ints | None = None) -> Ints:
    """Sum a task over all parts. Refuse anything but int64 of the right size, with each part counted once."""
    found = parts.added(task)
    if isinstance(found, Failed):
        raise DataError(found.message)
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.ndim != 1:
        raise DataError("the cluster sent something else than integers; nothing of it is used")
    if found[-1] != len(parts) or (like is not None and found.size != like.size + 1):
        raise DataError("the cluster did not add up each part once; nothing of it is used")
    return found[:-1] if like is None else found[:-1].reshape(like.shape)
