"""What each cell of a column is, and how large: the cells of a histogram that are fixed before any data is seen.

Numbers have bins that grow with their size, in steps of 1, 2, 5 and 10, on both sides of 0; dates have one for
every ten years. A cell is read by itself, as everywhere.
"""

import math
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.encode import plain_array, read_numbers, read_seconds, read_text
from repsynth.data.notation import NULLS, Notation
from repsynth.data.sources.base import is_text
from repsynth.data.sources.cells import CELLS

KINDS = "kinds"
"""What the measurement is called."""

FIRST_YEAR, LAST_YEAR = 1700, 2200
"""Dates outside of these are no dates of people."""

_SMALLEST, _LARGEST = -6, 14
_DAY = 86_400


class Kind(IntEnum):
    """What a cell is."""

    EMPTY = 0
    TEXT = 1
    WHOLE = 2
    FRACTION = 3
    DAY = 4
    TIME = 5


@cache
def edges_of(kind: Kind) -> Ints | Floats:
    """Where the bins of a kind begin, and where the last one ends.

    >>> edges_of(Kind.WHOLE)[42:49].tolist()
    [-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0]
    """
    if kind in (Kind.DAY, Kind.TIME):
        return np.arange(FIRST_YEAR, LAST_YEAR + 1, 10)
    if kind in (Kind.EMPTY, Kind.TEXT):
        return np.array([0, 1])
    powers = range(0 if kind is Kind.WHOLE else _SMALLEST, _LARGEST + 1)
    upwards = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    return np.array([*(-edge for edge in reversed(upwards)), 0.0, *upwards])


@cache
def start_of(kind: Kind) -> int:
    """The first bin of a kind among those of all."""
    return sum(len(edges_of(before)) - 1 for before in Kind if before < kind)


BINS = sum(len(edges_of(kind)) - 1 for kind in Kind)


@dataclass(frozen=True)
class KindHistograms:
    """The statistic: each row adds one to one bin of every column.

    >>> found = KindHistograms(("age",)).total(pa.record_batch({"age": ["", "30", "41", "x"]}))
    >>> int(found[start_of(Kind.TEXT)]), int(found[start_of(Kind.WHOLE) :].sum()), int(found.sum())
    (1, 2, 4)
    """

    columns: tuple[str, ...]
    name: str = KINDS
    decimal: str = "."
    """The mark before the decimals of numbers in text, which is publicly known."""

    @property
    def sensitivity(self) -> float:
        """Exact: one bin of each column, whatever the row."""
        return math.sqrt(len(self.columns))

    def total(self, rows: pa.RecordBatch) -> Ints:
        """The bins of all columns, one behind the other."""
        parts = [np.bincount(bins_of(rows.column(name), self.decimal), minlength=BINS) for name in self.columns]
        return np.concatenate(parts)


def bins_of(cells: pa.Array, decimal: str = ".") -> Ints:
    """The bin of each cell; with a comma before decimals, 5,0 is no whole number, which would be written without.

    >>> [bin >= start_of(Kind.FRACTION) for bin in bins_of(pa.array(["5", "5,0", "5.0"]), ",").tolist()]
    [False, True, False]
    """
    cells = plain_array(cells)
    kind = pa.types
    found = np.full(len(cells), start_of(Kind.TEXT))
    if kind.is_null(cells.type):
        return np.full(len(cells), start_of(Kind.EMPTY))
    if kind.is_date(cells.type) or kind.is_timestamp(cells.type):
        _put_times(found, read_seconds(cells))
    elif is_text(cells.type) or cells.type == CELLS:
        plain = read_numbers(cells)
        numbers = plain if decimal == "." else read_numbers(cells, Notation("", "", decimal))
        _put_numbers(found, numbers, np.isfinite(plain))
        _put_times(found, read_seconds(cells))
    else:
        _put_numbers(found, read_numbers(cells))
    found[_empty(cells)] = start_of(Kind.EMPTY)
    return found


def texts_of(cells: pa.Array) -> pa.Array:
    """Return the value of each cell as text, null where there is none.

    A number, a time or a boolean has one text, however it is stored or written: a storage type that a reader
    inferred from other cells must not change it.

    >>> texts_of(pa.array(["007", "True", "2020-01-31 00:00:00", "x"])).to_pylist()
    ['7', 'true', '2020-01-31', 'x']
    """
    cells = plain_array(cells)
    texts, numbers = read_text(cells), pa.array(read_numbers(cells), from_pandas=True)
    lower, seconds = pc.ascii_lower(texts), read_seconds(cells)
    texts = pc.if_else(pc.is_in(lower, pa.array(["true", "false"], pa.large_string())), lower, texts)
    times = pc.replace_substring(seconds.cast(pa.timestamp("s")).cast(pa.large_string()), " 00:00:00", "")
    texts = pc.coalesce(read_text(numbers), times, texts)
    texts = pc.replace_substring_regex(texts, "^[+]?(?i:inf|infinity)$", "inf")
    texts = pc.replace_substring_regex(texts, "^-(?i:inf|infinity)$", "-inf")
    return pc.if_else(pc.is_in(pc.ascii_lower(texts), pa.array(NULLS, pa.large_string())), None, texts)


def _empty(cells: pa.Array) -> Bools:
    if cells.type == CELLS:  # a time may be too far away to have a text
        told = [part.is_valid() for part in cells.flatten()[1:3]]
        absent = pc.invert(pc.or_(*told))
        empty: Bools = pc.and_(texts_of(cells).is_null(), absent).to_numpy(zero_copy_only=False)
        return empty
    if is_text(cells.type):
        cells = texts_of(cells)
    missing: Bools = cells.is_null(nan_is_null=True).to_numpy(zero_copy_only=False)
    return missing


def _put_numbers(found: Ints, numbers: Floats, plain: Bools | None = None) -> None:
    """Whole numbers, which are `plain` ones, and those that are none, in bins by size; what is too large for these
    stays where it is."""
    finite = np.isfinite(numbers)
    whole = finite & (True if plain is None else plain) & (numbers == np.floor(np.where(finite, numbers, 0.5)))
    for kind, which in ((Kind.WHOLE, whole), (Kind.FRACTION, finite & ~whole)):
        _put(found, kind, which, numbers)


def _put_times(found: Ints, seconds: pa.Array) -> None:
    known: Bools = seconds.is_valid().to_numpy(zero_copy_only=False)
    at: Ints = pc.fill_null(seconds, 0).to_numpy(zero_copy_only=False)
    years = at.astype("datetime64[s]").astype("datetime64[Y]").astype(np.int64) + 1970
    _put(found, Kind.DAY, known & (at % _DAY == 0), years)
    _put(found, Kind.TIME, known & (at % _DAY != 0), years)


def _put(found: Ints, kind: Kind, which: Bools, values: Ints | Floats) -> None:
    edges = edges_of(kind)
    place = np.searchsorted(edges, values, side="right") - 1
    inside = which & (place >= 0) & (place < len(edges) - 1)
    found[inside] = start_of(kind) + place[inside]
