"""Counts of what a schema makes of cells, batch by batch, in memory that does not grow with the rows. PRIVATE."""

import hashlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.encode import plain_array, read_numbers, read_seconds, read_text
from repsynth.data.notation import EPOCH, Notation, date_format
from repsynth.data.positions import seconds_at, values_at
from repsynth.data.records import MISSING
from repsynth.data.sources.base import is_text
from repsynth.data.sources.cells import CELLS
from repsynth.schema import Datetime, Discrete, Number, Numeric

_MOST_TEXTS = 1_000
_LONGEST_TEXT = 60
_MOST_IDS = 4_096


@dataclass
class Tally:
    """The cells of one learned column."""

    column: Discrete | Numeric
    missing: int = 0
    unread: int = 0
    special: int = 0
    below: int = 0
    above: int = 0
    rounded: int = 0
    garbled: int = 0
    lowest: float = np.inf
    highest: float = -np.inf
    texts: "FrequentTexts" = field(default_factory=lambda: FrequentTexts())
    """The cells that cannot be read."""
    seen: set[int] = field(default_factory=set)
    """The declared values that occur, or of a number two codes at most."""

    def add(self, array: pa.Array, codes: Ints) -> None:
        array = plain_array(array)
        blank = _blank(array)
        unread = (codes == MISSING) & ~blank
        self.missing += int(blank.sum())
        self.unread += int(unread.sum())
        if unread.any():
            self.texts.add(read_text(array.filter(pa.array(unread))))
        if is_text(array.type) or array.type == CELLS:
            # The reader puts this mark in place of bytes that are no text.
            marked = pc.match_substring(read_text(array).cast(pa.large_binary()), "\ufffd")
            self.garbled += pc.sum(marked).as_py() or 0
        if isinstance(self.column, Discrete):
            self.seen |= set(np.unique(codes[codes != MISSING]).tolist())
        else:
            self._add_numbers(array, codes, self.column)

    def _add_numbers(self, array: pa.Array, codes: Ints, column: Numeric) -> None:
        self.special += int(np.sum(codes > column.steps))
        plain = (codes != MISSING) & (codes <= column.steps)
        if not plain.any():
            return
        codes, numbers = codes[plain], _numbers(array, column)[plain]
        low, high = bounds_of(column)
        self.below += int(np.sum(numbers < low))
        self.above += int(np.sum(numbers > high))
        self.lowest = min(self.lowest, float(numbers.min()))
        self.highest = max(self.highest, float(numbers.max()))
        if not isinstance(column, Number) or column.on_grid:
            inside = (numbers >= low) & (numbers <= high)
            # Half a millionth of a step is the way in which floating point writes it.
            moved = np.abs(_values(codes, column) - numbers) > 5e-7 * _unit(column)
            self.rounded += int(np.sum(inside & moved))
        if len(self.seen) < 2:
            self.seen |= set(np.unique(codes)[:2].tolist())


def _blank(array: pa.Array) -> Bools:
    if is_text(array.type) or array.type == CELLS:
        nothing = pc.equal(pc.binary_length(read_text(array)), 0)
    elif pa.types.is_floating(array.type):
        nothing = pc.is_nan(array)
    else:
        nothing = pc.is_null(array)
    result: Bools = pc.fill_null(nothing, True).to_numpy(zero_copy_only=False)
    return result


def _numbers(array: pa.Array, column: Numeric) -> Floats:
    """What stands in the cells, before it is clipped; times in seconds since 1970."""
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column)).cast(pa.float64(), safe=False)
        result: Floats = pc.fill_null(seconds, np.nan).to_numpy(zero_copy_only=False)
        return result
    return read_numbers(array, Notation.of(column))


def bounds_of(column: Numeric) -> tuple[float, float]:
    """The first and the last value that are not clipped; of times, the last second of the last day."""
    if not isinstance(column, Datetime):
        return float(column.min), float(column.max)
    start, unit = (column.start - EPOCH).total_seconds(), column.unit.total_seconds()
    return start, start + (column.steps + 1) * unit - 1


def _values(codes: Ints, column: Numeric) -> Floats:
    if isinstance(column, Datetime):
        return seconds_at(codes, column).astype(np.float64)
    return values_at(codes, column).astype(np.float64)


def _unit(column: Numeric) -> float:
    return column.unit.total_seconds() if isinstance(column, Datetime) else column.unit


class FrequentTexts:
    """The most frequent texts, however many there are; of rare ones, counts may be too small.

    >>> texts = FrequentTexts()
    >>> texts.add(pa.array(["N", "N", "forty"]))
    >>> texts.counts.most_common()
    [('N', 2), ('forty', 1)]
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, texts: pa.Array) -> None:
        shortened = pc.utf8_slice_codeunits(texts, 0, _LONGEST_TEXT)
        for pair in pc.value_counts(shortened).to_pylist():
            self.counts[pair["values"] or ""] += pair["counts"]
        if len(self.counts) > 2 * _MOST_TEXTS:
            least = self.counts.most_common(_MOST_TEXTS + 1)[-1][1]
            self.counts = Counter({text: count - least for text, count in self.counts.items() if count > least})


class IdTally:
    """How many different ids there are and how often they repeat, from those with the smallest hashes.

    Up to 4,096 different ids, it is exact.

    >>> ids = IdTally()
    >>> ids.add(pa.array(["a", "b", "a"]))
    >>> ids.distinct, ids.most
    (2, 2)
    """

    def __init__(self) -> None:
        self.missing = 0
        self.cells = 0
        self._sample: dict[int, int] = {}
        self._limit = 2**64

    def add(self, array: pa.Array) -> None:
        array = plain_array(array)
        blank = _blank(array)
        self.missing += int(blank.sum())
        self.cells += int((~blank).sum())
        texts = read_text(array.filter(pa.array(~blank))).cast(pa.large_binary())
        for pair in pc.value_counts(texts).to_pylist():
            place = int.from_bytes(hashlib.blake2b(pair["values"] or b"", digest_size=8).digest())
            if place < self._limit:
                self._sample[place] = self._sample.get(place, 0) + pair["counts"]
        if len(self._sample) > _MOST_IDS:
            kept = sorted(self._sample)[: _MOST_IDS + 1]
            self._limit = kept.pop()
            self._sample = {place: self._sample[place] for place in kept}

    @property
    def exact(self) -> bool:
        """Whether all ids are in the sample."""
        return self._limit == 2**64

    @property
    def distinct(self) -> int:
        """How many different ids there are, about."""
        estimate = round(len(self._sample) * 2**64 / self._limit)
        return len(self._sample) if self.exact else min(estimate, self.cells)

    @property
    def most(self) -> int:
        """How often an id of the sample occurs at most."""
        return max(self._sample.values(), default=0)
