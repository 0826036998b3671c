"""Tasks of the workers of a cluster. The result of a task is an array of integers, or a message without data.

A task that fails does not raise: clusters write what is raised, and its cause, into their logs.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from repsynth.arrays import Ints
from repsynth.engine import Kernel
from repsynth.engine.column_store import Codes, Part
from repsynth.errors import RepsynthError
from repsynth.io.encode import encode_batch
from repsynth.io.source import Reader
from repsynth.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Failed:
    """Instead of a result: a message without data."""

    message: str


Task = Callable[[Any, int], Any]  # of a part and its number


def carried_out(task: Task, held: Any, number: int) -> Any:
    """Run a task. Return `Failed` instead of raising, without messages of other libraries, which quote cells."""
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
    """Return one item of a result; `Failed` stays as it is."""
    return found if isinstance(found, Failed) else found[place]


def added(parts: Iterable[Any]) -> Any:
    """Add results; return the first `Failed` if there is one."""
    parts = list(parts)
    failed = next((part for part in parts if isinstance(part, Failed)), None)
    return failed or sum(parts[1:], start=parts[0])


class Silent:
    """A value that clusters may log: its repr shows no data and no key."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


@dataclass(frozen=True, repr=False)
class Compact(Silent):
    """The encoded records of a part, which can be pickled."""

    schema: Schema
    chunks: tuple[Part, ...]
    version: int = 0  # of the table, where several records may belong to one person

    def __sizeof__(self) -> int:  # by which a cluster decides where to work
        return sum(array.nbytes for part in self.chunks for array in part.codes.values())

    def sum(self, kernel: Kernel) -> Ints:
        return Codes.again(self.schema, self.chunks).sum(kernel)


@dataclass(frozen=True)
class EncodeCompact:
    """Encode the records of a part."""

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
    """Sum a kernel over a part."""

    kernel: Kernel

    def __call__(self, records: Compact, number: int) -> Ints:
        return counted_once(records.sum(self.kernel))


def counted_once(total: Ints) -> Ints:
    """Append 1, so that the sum also counts the parts."""
    return np.append(total, 1)
