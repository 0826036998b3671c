"""Column store: a table is encoded once to compact codes, then summed over by several threads.

A code takes one, two, four or eight bytes. A public function of one column is tabulated: at all codes of a small
column, or at the intervals on which it is constant. Sums are of integers, so neither blocks nor threads change
them. Codes spill to a file beyond a limit of memory.
"""

import contextlib
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Ints
from repsynth.engine import Kernel
from repsynth.errors import DataError
from repsynth.io.encode import EncodedTable
from repsynth.io.records import MISSING, OfCode, Records, Whose, no_records
from repsynth.io.values import Cut
from repsynth.schema import Discrete, Schema
from repsynth.threads import how_many_workers, in_order

if TYPE_CHECKING:
    import pyarrow as pa


Array = NDArray[Any]

MEMORY = 192 * 2**20  # bytes


class Spill:
    """Spill buffer: arrays stay in memory up to a limit, then go to an anonymous temporary file. Thread-safe.

    >>> spill = Spill(limit=8)
    >>> small, large = spill.put(np.arange(3, dtype=np.int16)), spill.put(np.arange(4, dtype=np.int16))
    >>> small().tolist(), large().tolist(), spill.in_file
    ([0, 1, 2], [0, 1, 2, 3], 8)
    """

    def __init__(self, limit: int = MEMORY) -> None:
        self.limit = limit
        self._left = limit
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self.in_file = 0  # bytes in the file

    def put(self, array: Array) -> Callable[[], Array]:
        """Store an array. Return a function that gets it back."""
        with self._lock:
            if array.nbytes <= self._left:
                self._left -= array.nbytes
                return lambda: array
            start = self._write(np.ascontiguousarray(array).data.cast("B"))
        shape, dtype = array.shape, array.dtype
        return lambda: self._read(start, shape, dtype)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _write(self, view: memoryview) -> int:
        start = self.in_file
        try:
            if self._file is None:
                # Unlinked as soon as it is open, or never linked; mode 0600 until then. Unbuffered, as closing a
                # buffered file would write to a full disk again.
                self._file = tempfile.TemporaryFile(prefix="repsynth-", buffering=0)  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            self._file.seek(start)
            while view.nbytes:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: the encoded table cannot be kept there ({error.strerror}); nothing was "
                "left behind. Set TMPDIR to a folder with more room"
            ) from None
        self.in_file = self._file.tell()
        return start

    def _read(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array: Array = np.empty(shape, dtype)
        view, file = array.data.cast("B"), self._file
        assert file is not None
        try:
            with self._lock:
                file.seek(start)
                while view.nbytes:
                    count = file.readinto(view)  # type: ignore[attr-defined]
                    if not count:
                        raise OSError(0, "cut short")
                    view = view[count:]
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: the encoded table cannot be read back ({error.strerror})"
            ) from None
        return array


# --- codes ---

CHUNK = 131_072  # records that are stored together
_WAITING = 8 * CHUNK  # records that wait for others with the same factor, at most

_BLOCK = 16_384
"""Records that a kernel with a small result gets at a time, so that its arrays stay in the cache."""

_TABULATED = 2**16  # columns with at most this many codes are tabulated
_SAMPLED = 1_024  # one code in this many is sampled to place the cells of `Cut`

Get = Callable[[], Array]
Made = TypeVar("Made")


@dataclass
class _Chunk:
    """Codes by column."""

    rows: int
    codes: dict[str, Get]
    factor: int = 1  # of each record, in units
    places: Get | None = None  # persons, if several records may belong to one


class Codes:
    """The encoded records of a table."""

    def __init__(self, schema: Schema, *, workers: int | None = None, memory: int = MEMORY) -> None:
        self.rows = 0
        self.spill = Spill(memory)
        self._sizes = {c.name: c.size if isinstance(c, Discrete) else c.positions for c in schema.learned}
        self.workers = workers or how_many_workers()
        self.on_rows: Callable[[int], None] = lambda rows: None
        """Called with the number of records that a sum has gone through."""
        self._chunks: list[_Chunk] = []
        self._samples: dict[str, list[Array]] = {name: [] for name in self._sizes}

    @classmethod
    def of(cls, table: EncodedTable, *, workers: int | None = None, memory: int = MEMORY) -> "Codes":
        """Read and encode a table. Threads encode the batches, which are stored in order."""
        codes = cls(table.schema, workers=workers, memory=memory)
        waiting = Waiting(codes._put)

        def encode(batch: "pa.RecordBatch") -> list[Part]:
            return [codes._part(factor, records) for factor, records in table.encode(batch).by_factor()]

        with contextlib.closing(in_order(encode, table.batches(), codes.workers)) as encoded:
            for parts in encoded:
                waiting.add(parts)
        waiting.put_all()
        table.check_whole()
        return codes

    @classmethod
    def again(cls, schema: Schema, parts: "Iterable[Part]") -> "Codes":
        """Make a store of compact records."""
        codes = cls(schema, workers=1)
        for part in parts:
            codes._put([part])
        return codes

    def compact(self, records: Records) -> dict[str, Array]:
        """Return codes in as few bytes as their columns need."""
        return {name: records.codes[name].astype(_type_of(size)) for name, size in self._sizes.items()}

    def sum(self, kernel: Kernel) -> Ints:
        nothing = kernel.total(no_records())
        passing = self._walk()
        rows = _BLOCK if nothing.size < _BLOCK else CHUNK

        def total(chunk: _Chunk) -> Ints:
            found = nothing
            for block in passing.blocks(chunk, rows):
                found = found + kernel.total(block)
            return found * chunk.factor

        result, done = nothing, 0
        for chunk, part in zip(self._chunks, in_order(total, self._chunks, self.workers), strict=True):
            result, done = result + part, done + chunk.rows
            self.on_rows(done)
        return result

    def each(self, function: Callable[[Records], Array]) -> Iterator[Array]:
        """Apply a function to all records, block by block, in order."""
        passing = self._walk()

        def apply(chunk: _Chunk) -> list[Array]:
            return [function(block) for block in passing.blocks(chunk, _BLOCK)]

        for parts in in_order(apply, self._chunks, self.workers):
            yield from parts

    def whose(self) -> Iterator[Whose]:
        """Return the persons of all records, in the order of `each`."""
        for chunk in self._chunks:
            if chunk.places is not None:
                yield Whose(chunk.places(), np.full(chunk.rows, chunk.factor, dtype=np.int64))

    def _part(self, factor: int, records: Records) -> "Part":
        places = None if records.whose is None else records.whose.places
        return Part(factor, self.compact(records), places)

    def _walk(self) -> "_Pass":
        samples = {name: np.concatenate(parts) for name, parts in self._samples.items() if parts}
        return _Pass(self.rows, self._sizes, samples)

    def _put(self, parts: "Sequence[Part]") -> None:
        """Store records with the same factor."""
        whole = Part.joined(parts)
        self.rows += whole.rows
        for name, codes in whole.codes.items():
            self._samples[name].append(codes[::_SAMPLED].astype(np.int64))
        kept = {name: self.spill.put(codes) for name, codes in whole.codes.items()}
        places = None if whole.places is None else self.spill.put(whole.places)
        self._chunks.append(_Chunk(whole.rows, kept, whole.factor, places))


@dataclass(frozen=True)
class Part:
    """Records with the same factor."""

    factor: int
    codes: dict[str, Array]
    places: Ints | None = None

    @property
    def rows(self) -> int:
        return len(next(iter(self.codes.values())))

    @classmethod
    def joined(cls, parts: "Sequence[Part]") -> "Part":
        codes = {name: np.concatenate([part.codes[name] for part in parts]) for name in parts[0].codes}
        owners = [part.places for part in parts if part.places is not None]
        return cls(parts[0].factor, codes, np.concatenate(owners) if owners else None)


class Waiting:
    """Collect records until there are many with the same factor, or many in all."""

    def __init__(self, put: Callable[[Sequence[Part]], None]) -> None:
        self._put = put
        self._parts: dict[int, list[Part]] = {}
        self._rows: Counter[int] = Counter()

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._parts.setdefault(part.factor, []).append(part)
            self._rows[part.factor] += part.rows
            if self._rows[part.factor] >= CHUNK:
                self._put_one(part.factor)
        if self._rows.total() >= _WAITING:
            self.put_all()

    def put_all(self) -> None:
        for factor in sorted(self._parts):
            self._put_one(factor)

    def _put_one(self, factor: int) -> None:
        del self._rows[factor]
        self._put(self._parts.pop(factor))


class _Pass:
    """One pass over all records. Each function is tabulated once."""

    def __init__(self, rows: int, sizes: dict[str, int], samples: dict[str, Ints]) -> None:
        self.tabulated = {name for name, size in sizes.items() if size <= min(_TABULATED, rows)}
        self.sizes, self.samples = sizes, samples
        self._made: dict[Any, Any] = {}
        self._lock = Lock()

    def blocks(self, chunk: _Chunk, rows: int) -> Iterator["Block"]:
        """Iterate over a chunk in blocks of `rows` records."""
        loaded = _Loaded(self, chunk)
        for start in range(0, chunk.rows, rows):
            stop = min(start + rows, chunk.rows)
            yield Block(stop - start, _Widened(loaded, start, stop), loaded, start)

    def table(self, name: str, function: OfCode, starts: Ints | None) -> Array:
        """Tabulate a function at all codes of a column, or at `starts`. The last entry is for `MISSING`."""

        def make() -> Array:
            codes = np.arange(self.sizes[name], dtype=np.int64) if starts is None else starts
            return function(np.append(codes, MISSING))

        return self.once((name, function, id(starts)), make)

    def cut(self, name: str, starts: Ints) -> Cut:
        """Return how to cut a column. The result holds `starts`, so no other array can have their id."""
        return self.once((name, id(starts)), lambda: Cut.at(starts, self.samples[name]))

    def once(self, key: Any, make: Callable[[], Made]) -> Made:
        """Return the value of a key; make it if it is not there."""
        if key not in self._made:
            with self._lock:
                if key not in self._made:
                    self._made[key] = make()
        made: Made = self._made[key]
        return made


class _Loaded:
    """A chunk whose codes are loaded on demand."""

    def __init__(self, passing: _Pass, chunk: _Chunk) -> None:
        self.passing, self.chunk = passing, chunk
        self._arrays: dict[str, Array] = {}

    def codes(self, name: str) -> Array:
        if name not in self._arrays:
            self._arrays[name] = self.chunk.codes[name]()
        return self._arrays[name]


@dataclass(frozen=True)
class Block(Records):
    """A block of a chunk."""

    loaded: _Loaded
    start: int
    cut: dict[tuple[str, int], Ints] = field(default_factory=dict)

    def look_up(self, name: str, function: OfCode, starts: Ints | None = None) -> NDArray[Any]:
        """Use a table if the column has few codes or the function few starts."""
        passing = self.loaded.passing
        if name in passing.tabulated:
            return passing.table(name, function, None).take(self.codes[name])
        if starts is None:
            return function(self.codes[name])
        if (name, id(starts)) not in self.cut:
            self.cut[name, id(starts)] = passing.cut(name, starts).of(self.codes[name])
        return passing.table(name, function, starts).take(self.cut[name, id(starts)])

    def take(self, rows: Ints | Bools) -> Records:
        """Return some of the records, as plain `Records`."""
        codes = {name: self.codes[name] for name in self.loaded.passing.sizes}
        return Records(self.rows, codes).take(rows)


class _Widened(dict[str, Ints]):
    """The codes of a block as int64, loaded on demand."""

    def __init__(self, loaded: _Loaded, start: int, stop: int) -> None:
        super().__init__()
        self._of = loaded, start, stop

    def __missing__(self, name: str) -> Ints:
        loaded, start, stop = self._of
        self[name] = loaded.codes(name)[start:stop].astype(np.int64, copy=False)
        return self[name]


def _type_of(size: int) -> np.dtype[Any]:
    """Return the smallest type for codes from −1 to size − 1."""
    return np.dtype(np.min_scalar_type(-max(size, 1)))
