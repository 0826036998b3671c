"""Cells of one column: declared values, or intervals between round numbers; special values; one for missing.

The first cells follow from the schema and the noise level alone. Later looks divide the cells in which a noisy
histogram shows records. They divide them at round numbers, and each round number has its own cell, because people
round what they report.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.io.records import MISSING, Records
from repsynth.io.values import positions_of
from repsynth.schema import Category, Datetime, Discrete, Numeric, Schema
from repsynth.storage import ints, require

FEWEST_CELLS, MOST_CELLS = 8, 48
MOST_FINE_CELLS = 2**14  # per column, which bounds the memory
NOISE_PER_CELL = 4.0  # records per first cell, in units of its noise
_NARROW = 1024  # columns with fewer values have first cells of equal width
_AMOUNT = 1e5  # bounds of both signs beyond this are amounts, whose cells grow with the magnitude
_DECADES = 10  # powers of ten below the larger bound that have cells


@dataclass(frozen=True)
class Bins:
    """The cells of one column: numbers or values, then special values, then one for missing.

    `starts` holds the first position of each cell of a numeric column, without the one for missing. It is None for
    a discrete column, whose cells are its codes.
    """

    column: Discrete | Numeric
    starts: Ints | None
    count: int
    """The number of cells, including the one for missing."""
    values: int
    """The number of cells without the one for missing."""
    numbers: int
    """The number of cells that hold numbers or times."""
    ends: Ints
    """The first position after each cell of numbers."""
    widths: Ints
    """The number of positions in each cell of numbers."""
    divisible: bool
    """Whether later looks may divide the cells."""
    families: Ints | None = None
    """The family of each value, where the schema declares families."""

    @classmethod
    def discrete(cls, column: Discrete) -> "Bins":
        """Return one cell per declared value."""
        size, declared = column.size, column.families if isinstance(column, Category) else None
        families = None if declared is None else np.array(declared, dtype=np.int64)
        none = np.zeros(0, dtype=np.int64)
        return cls(column, None, size + 1, size, 0, none, none, False, families)

    @classmethod
    def at(cls, column: Numeric, starts: Ints) -> "Bins":
        """Return cells that begin at these positions, and one for each special value.

        >>> from repsynth.schema import Integer
        >>> Bins.at(Integer(name="age", min=0, max=9, special=("?",)), np.array([5, 99, 0])).starts.tolist()
        [0, 5, 10]
        """
        steps, special = column.steps, len(column.special)
        inside = np.unique(starts[(starts > 0) & (starts <= steps)]).astype(np.int64)
        edges = np.concatenate([[0], inside, [steps + 1]]).astype(np.int64)
        every = np.concatenate([edges[:-1], steps + 1 + np.arange(special)])
        divisible = steps + 1 > FEWEST_CELLS
        return cls(column, every, len(every) + 1, len(every), len(edges) - 1, edges[1:], np.diff(edges), divisible)

    def of(self, records: Records) -> Ints:
        """Return the cell of each record."""
        return records.look_up(self.column.name, self.of_codes, self.starts)

    def of_codes(self, codes: Ints) -> Ints:
        found = codes if self.starts is None else np.searchsorted(self.starts, codes, side="right") - 1
        return np.where(codes == MISSING, self.values, found)

    def parents(self, coarse: "Bins") -> Ints:
        """Return for each cell of numbers the cell of `coarse` that contains it."""
        assert self.starts is not None
        assert coarse.starts is not None
        return np.searchsorted(coarse.starts[: coarse.numbers], self.starts[: self.numbers], side="right") - 1


def first_cells(schema: Schema, *, rows: float, sigma: float) -> tuple[Bins, ...]:
    """Return the public cells of every learned column. They are finer where there are more records per noise.

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
    """Return the approximate number of first cells of a numeric column."""
    cells = float(f"{rows / (NOISE_PER_CELL * sigma):.6g}")  # does not depend on how the noise was rounded
    return int(np.clip(cells, FEWEST_CELLS, MOST_CELLS))


def is_divisible(column: Discrete | Numeric) -> bool:
    """Return whether later looks may divide the cells of a column."""
    return isinstance(column, Numeric) and column.steps + 1 > FEWEST_CELLS


def public_cells(column: Numeric, most: int) -> Bins:
    """Return cells of equal width and, if the bounds are wide, as many that grow with the magnitude.

    Both bounds and zero have their own cells, because values such as "500 and more" are often frequent.

    >>> from repsynth.schema import Integer
    >>> (public_cells(Integer(name="pay", min=-10, max=2000), 8).starts - 10).tolist()
    [-10, -9, -1, 0, 1, 10, 100, 1000, 2000]
    """
    steps = column.steps
    if steps < most:
        return Bins.at(column, np.arange(steps + 1))
    own = [0, 1, steps]
    if isinstance(column, Datetime):
        return Bins.at(column, np.concatenate([own, _round_positions(column, 0, steps + 1, most)]))
    largest, smallest = max(abs(column.min), abs(column.max)), min(abs(column.min), abs(column.max))
    both = column.min < 0 < column.max
    if both:
        zero = int(positions_of(np.zeros(1), column)[0])
        own += [zero, zero + 1]
    if (smallest > largest / 10 and not (both and largest > _AMOUNT)) or steps < _NARROW:
        return Bins.at(column, np.concatenate([own, _round_positions(column, 0, steps + 1, most)]))
    top = math.floor(math.log10(largest))
    low = max(math.floor(math.log10(column.unit) + 1e-9), top - _DECADES)
    per_decade = int(np.clip(most / ((top - low + 1) * (2 if both else 1)), 1, 9))
    even = np.unique(np.rint(10 ** (np.arange(per_decade) / per_decade)))
    digits = np.arange(1, 10) if per_decade == 9 else even
    sizes = np.array([float(f"{digit}e{power}") for power in range(low, top + 1) for digit in digits])
    edges = np.concatenate([-sizes, sizes])
    edges = positions_of(edges[(edges > column.min) & (edges < column.max)], column)
    return Bins.at(column, np.concatenate([edges, _round_positions(column, 0, steps + 1, most // 2), own]))


def divided(bins: Bins, counts: Floats, *, least: float, parts: int) -> Bins:
    """Return finer cells: cells with more than `least` records are divided into about `parts` at round numbers.

    Each of these round numbers has its own cell. `counts` has the records in each cell of numbers.

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
    """Return how round the number of each single-number cell is, if the cell is part of a wider one; else -1.

    Roundness is the index of the last of 1, 5, 10, 50, 100, ... units that divides the number.

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
    """Return the positions of about `parts` round numbers from `start` up to `end`.

    They are multiples of one of the `digits` times a power of ten, parsed from their decimal notation.
    """
    if isinstance(column, Datetime):
        low, high, unit = float(start), float(end), 1.0
    else:
        unit = float(column.unit)
        low, high = column.min + start * unit, column.min + end * unit
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
