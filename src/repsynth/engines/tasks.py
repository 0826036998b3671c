"""Tasks of the workers of a cluster. The result of a task is an array of integers, or a message without data.

A task that fails does not raise: clusters write what is raised, and its cause, into their logs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from repsynth.arrays import Ints
from repsynth.data.encode import encode_batch
from repsynth.data.source import Reader
from repsynth.engines import Kernel
from repsynth.engines.column_store import Codes, Part
from repsynth.errors import RepsynthError
from repsynth.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Failed:
    """In place of a result: a line without data."""

    message: str


Task = Callable[[Any, int], Any]  # A function of what a worker holds of a part, and of the part's number


def carried_out(task: Task, held: Any, number: int) -> Any:
    """What a task finds, or why it did not. No message of other libraries is passed on: it may quote a cell."""
    for each in held if isinstance(held, list) else [held]:
        if isinstance(each, Failed):
            return each
    try:
        return task(held, number)
    except RepsynthError as error:
        return Failed(str(error))
    except Exception as error:
        return Failed(f"a worker failed ({type(error).__name__}); its message may quote data and was dropped")


def picked(found: Any, place: int) -> Any:
    """One of the things that a task found; why, where it failed."""
    return found if isinstance(found, Failed) else found[place]


def added(parts: Iterable[Any]) -> Any:
    """The sum of what some parts said; why, where one of them failed."""
    parts = list(parts)
    failed = next((part for part in parts if isinstance(part, Failed)), None)
    return failed or sum(parts[1:], start=parts[0])


class Silent:
    """A value that clusters may log: its repr shows no data and no key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(frozen=True, repr=False)
class Compact(Silent):
    """The records of a part, in codes that can be pickled."""

    schema: Schema
    chunks: tuple[Part, ...]
    version: int = 0  # of the table, where several records may belong to one person

    def __sizeof__(self) -> int:  # by which a cluster decides where to work
        return sum(array.nbytes for part in self.chunks for array in part.codes.values())

    def sum(self, kernel: Kernel) -> Ints:
        return Codes.again(self.schema, self.chunks).sum(kernel)


@dataclass(frozen=True)
class EncodeCompact:
    """The records of a part, to be kept by the cluster."""

    schema: Schema

    @property
    def columns(self) -> list[str]:
        return [column.name for column in self.schema.learned]

    def __call__(self, read: Reader, number: int) -> Any:
        return self.of(read(self.columns))

    def of(self, batches: "Iterable[pa.RecordBatch]") -> Any:
        codes = Codes(self.schema, workers=1)
        encoded = (codes.compact(encode_batch(batch, self.schema)) for batch in batches)
        return Compact(self.schema, tuple(Part(1, each) for each in encoded))


@dataclass(frozen=True)
class Total:
    """The sum of a kernel over a part; at the end, a one for the part, so that it can be seen that each counts
    once."""

    kernel: Kernel

    def __call__(self, records: Compact, number: int) -> Ints:
        return counted_once(records.sum(self.kernel))


@dataclass(frozen=True)
class Look:
    """What a worker sees in a range of a file: integers, in the row of the range."""

    ranges: int

    def __call__(self, look: Callable[[], Ints], number: int) -> Ints:
        seen = look()
        found = np.zeros((self.ranges, len(seen)), dtype=np.int64)
        found[number] = seen
        return counted_once(found.ravel())


def counted_once(total: Ints) -> Ints:
    """With a one at the end, for the part."""
    return np.append(total, 1)
