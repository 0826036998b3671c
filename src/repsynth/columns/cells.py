"""Cells of one column: declared values, or intervals between round numbers; special values; one for missing.

The first cells follow from the schema and the noise level alone. Later ones divide them where a noisy histogram
shows records, at round numbers that get a cell of their own: people round what they report, and codes are round.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.data.positions import interval_of, positions_of
from repsynth.data.records import MISSING, Records
from repsynth.schema import Datetime, Discrete, Numeric, Schema
from repsynth.storage import ints, require

FEWEST_CELLS, MOST_CELLS = 8, 48
MOST_FINE_CELLS = 2**14  # of a column: a bound on memory
_NOISE_PER_CELL = 4.0  # records in a first cell, in units of its noise, were all cells equally full
_NARROW = 1024  # values of a column whose first cells have equal width
_AMOUNT = 1e5  # from there on, numbers of both signs have cells by magnitude: they are amounts
_DECADES = 10  # powers of ten below the larger bound that have cells of their own


@dataclass(frozen=True)
class Bins:
    """The cells of one column; the last one counts the missing.

    `starts` holds the first position of each cell of a numeric column, the special values' own cells behind the
    others, and is None for a discrete one.
    """

    column: Discrete | Numeric
    starts: Ints | None
    count: int

    @classmethod
    def discrete(cls, column: Discrete) -> "Bins":
        """Return one cell per declared value."""
        return cls(column, None, column.size + 1)

    @classmethod
    def at(cls, column: Numeric, starts: Ints) -> "Bins":
        """Return cells that begin at these positions, and one for each special value.

        >>> from repsynth.schema import Integer
        >>> Bins.at(Integer(name="age", min=0, max=9, special=("?",)), np.array([5, 99, 0])).starts.tolist()
        [0, 5, 10]
        """
        inside = np.unique(starts[(starts > 0) & (starts <= column.steps)]).astype(np.int64)
        special = column.steps + 1 + np.arange(len(column.special))
        every = np.concatenate([[0], inside, special]).astype(np.int64)
        return cls(column, every, len(every) + 1)

    @property
    def values(self) -> int:
        """The number of cells without the one for missing."""
        return self.count - 1

    @cached_property
    def numbers(self) -> int:
        """The number of cells that hold numbers or times and no special value; numeric columns only."""
        assert isinstance(self.column, Numeric)
        return self.values - len(self.column.special)

    @cached_property
    def ends(self) -> Ints:
        """The first position behind each cell of numbers; numeric columns only."""
        assert self.starts is not None
        assert isinstance(self.column, Numeric)
        return np.append(self.starts[1 : self.numbers], self.column.steps + 1)

    @cached_property
    def widths(self) -> Ints:
        """The number of positions in each cell of numbers; numeric columns only."""
        assert self.starts is not None
        return self.ends - self.starts[: self.numbers]

    def of(self, records: Records) -> Ints:
        return records.look_up(self.column.name, self.of_codes, self.starts)

    def of_codes(self, codes: Ints) -> Ints:
        found = codes if self.starts is None else interval_of(codes, self.starts)
        return np.where(codes == MISSING, self.count - 1, found)

    def parents(self, coarse: "Bins") -> Ints:
        """Return for each cell of numbers the cell of `coarse` that it is part of."""
        assert self.starts is not None
        assert coarse.starts is not None
        starts = coarse.starts[: coarse.numbers]
        return np.searchsorted(starts, self.starts[: self.numbers], side="right") - 1


def first_cells(schema: Schema, *, rows: float, sigma: float) -> tuple[Bins, ...]:
    """Return the public cells of every learned column; the more records per noise, the finer.

    >>> from repsynth.schema import Number
    >>> schema = Schema(columns=(Number(name="pay", min=0.0, max=1e6),))
    >>> [first_cells(schema, rows=rows, sigma=100.0)[0].values for rows in (500, 500_000)]
    [14, 58]
    """
    most = how_many_cells(rows, sigma)
    return tuple(
        Bins.discrete(column) if isinstance(column, Discrete) else public_cells(column, most)
        for column in schema.learned
    )


def how_many_cells(rows: float, sigma: float) -> int:
    """Return the number of first cells that a numeric column gets, about."""
    cells = float(f"{rows / (_NOISE_PER_CELL * sigma):.6g}")  # the same, however the noise was rounded
    return int(np.clip(cells, FEWEST_CELLS, MOST_CELLS))


def is_divisible(column: Discrete | Numeric) -> bool:
    """Return whether later looks may divide the cells of a column."""
    return isinstance(column, Numeric) and column.steps + 1 > FEWEST_CELLS


def public_cells(column: Numeric, most: int) -> Bins:
    """Return cells of equal width and, where bounds are wide, as many by magnitude. Both bounds and zero get cells
    of their own: zeros, or "500 and more", are a case apart.

    >>> from repsynth.schema import Integer
    >>> (public_cells(Integer(name="pay", min=-10, max=2000), 8).starts - 10).tolist()
    [-10, -9, -1, 0, 1, 10, 100, 1000, 2000]
    """
    if column.steps < most:
        return Bins.at(column, np.arange(column.steps + 1))
    own = [0, 1, column.steps]
    if isinstance(column, Datetime):
        return Bins.at(column, np.concatenate([own, _round_positions(column, 0, column.steps + 1, most)]))
    largest, smallest = max(abs(column.min), abs(column.max)), min(abs(column.min), abs(column.max))
    both = column.min < 0 < column.max
    if both:
        zero = int(positions_of(np.zeros(1), column)[0])
        own += [zero, zero + 1]
    if (smallest > largest / 10 and not (both and largest > _AMOUNT)) or column.steps < _NARROW:
        return Bins.at(column, np.concatenate([own, _round_positions(column, 0, column.steps + 1, most)]))
    top = math.floor(math.log10(largest))
    low = max(math.floor(math.log10(column.unit) + 1e-9), top - _DECADES)
    per_decade = most / ((top - low + 1) * (2 if both else 1))
    each = int(np.clip(per_decade, 1, 9))
    digits = np.unique(np.rint(10 ** (np.arange(each) / each))) if each < 9 else np.arange(1, 10)
    sizes = np.array([float(f"{digit}e{power}") for power in range(low, top + 1) for digit in digits])
    edges = np.concatenate([-sizes, sizes])
    edges = edges[(edges > column.min) & (edges < column.max)]
    even = _round_positions(column, 0, column.steps + 1, most // 2)
    return Bins.at(column, np.concatenate([positions_of(edges, column), even, own]))


def divided(bins: Bins, counts: Floats, *, least: float, parts: int) -> Bins:
    """Return finer cells: each with more than `least` records is divided into about `parts` at round numbers, and
    each of these numbers gets a cell of its own. `counts` are those of the cells of numbers.

    >>> from repsynth.schema import Integer
    >>> pay = Bins.at(Integer(name="pay", min=0, max=999), np.array([0, 100, 500]))
    >>> divided(pay, np.array([9.0, 0.0, 1.0]), least=5.0, parts=2).starts.tolist()
    [0, 1, 50, 51, 100, 500]
    """
    column = bins.column
    assert bins.starts is not None
    assert isinstance(column, Numeric)
    found = [bins.starts[: bins.numbers]]
    full = np.flatnonzero((counts > least) & (bins.widths > 1))
    most = (MOST_FINE_CELLS - bins.numbers) // (2 * parts + 2)
    for k in full[np.argsort(-counts[full], kind="stable")][:most]:
        start, end = int(bins.starts[k]), int(bins.ends[k])
        if end - start <= 2 * parts:
            found.append(np.arange(start, end))
        else:
            edges = _round_positions(column, start, end, parts, digits=(1, 5))
            inside = np.concatenate([edges, edges + 1])
            found.append(inside[(inside >= start) & (inside < end)])
    return Bins.at(column, np.concatenate(found))


def roundness_of(bins: Bins, parents: Ints) -> Ints:
    """Return how round the number of each cell is that has one only and is part of a wider one: the last of 1, 5,
    10, 50, 100, ... units that it is a multiple of, by its place in this list; -1 for other cells.

    >>> from repsynth.schema import Integer
    >>> pay = Bins.at(Integer(name="pay", min=0, max=999), np.array([0, 1, 50, 51, 60, 61, 100]))
    >>> roundness_of(pay, np.zeros(7, dtype=np.int64)).tolist()
    [-1, -1, 3, -1, 2, -1, -1]
    """
    column = bins.column
    assert bins.starts is not None
    assert isinstance(column, Numeric)
    inside = np.bincount(parents, bins.widths) > 2 * np.bincount(parents)
    starts, unit = bins.starts[: bins.numbers].astype(np.float64), 1.0
    if not isinstance(column, Datetime):
        starts, unit = column.min + starts * column.unit, float(column.unit)
    found = np.where((bins.widths == 1) & inside[parents] & (starts != 0), 0, -1)
    lowest, highest = math.floor(math.log10(unit) + 1e-9), math.ceil(math.log10(np.abs(starts).max() + unit))
    steps = [digit * 10.0**power for power in range(lowest, highest + 1) for digit in (1, 5)]
    for k, step in enumerate(steps):
        near = np.abs(starts - np.rint(starts / step) * step) <= unit * 0.75
        found = np.where((found >= 0) & near, k, found)
    return found


def _round_positions(
    column: Numeric, start: int, end: int, parts: int, digits: tuple[int, ...] = (1, 2, 5)
) -> Ints:
    """Return the positions of about `parts` round numbers from `start` up to `end`: multiples of 1, 2 or 5 times a
    power of ten. Numbers are computed as their decimal notation is read, so that 0.3 lies where 0.3 lies."""
    if isinstance(column, Datetime):
        low, high, unit = float(start), float(end), 1.0
    else:
        low, high = (column.min + position * column.unit for position in (start, end))
        unit = float(column.unit)
    digit, power = _round_step((high - low) / parts, unit, digits)
    times = np.arange(math.ceil(low / (digit * 10.0**power) - 1e-9), math.floor(high / (digit * 10.0**power)) + 1)
    numbers: Floats = times.astype(np.float64) * digit
    numbers = numbers / 10.0**-power if power < 0 else numbers * 10.0**power
    if isinstance(column, Datetime):
        return numbers.astype(np.int64)
    return positions_of(numbers[(numbers >= column.min) & (numbers <= column.max)], column)


def _round_step(least: float, unit: float, digits: tuple[int, ...] = (1, 2, 5)) -> tuple[int, int]:
    """Return the smallest step of 1, 2 or 5 times a power of ten that is at least this, as digit and power.

    >>> _round_step(300.0, 1.0), _round_step(0.03, 0.25)
    ((5, 2), (5, -1))
    """
    least = max(least, unit) * (1 - 1e-9)
    power = math.floor(math.log10(least))
    digit = next((digit for digit in digits if digit * 10.0**power >= least), 10)
    return (1, power + 1) if digit == 10 else (digit, power)


def read_bins(column: Numeric, starts: NDArray[Any]) -> Bins:
    """Return the cells of a numeric column from an untrusted file."""
    found = Bins.at(column, ints(starts, most=2**53 + len(column.special)))
    require(bool(np.array_equal(found.starts, starts)), "its bins are not in order")  # type: ignore[arg-type]
    return found
