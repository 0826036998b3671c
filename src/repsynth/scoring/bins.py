"""Public bins of each column: its declared values or intervals between its bounds, its special values, and one for
missing."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.positions import interval_of, positions_of
from repsynth.data.records import MISSING, Records
from repsynth.schema import Datetime, Discrete, Numeric, Schema
from repsynth.storage.checks import ints, require

MOST_BINS = 64
_FEWEST_BINS = 4
DIGITS = (1, 1.5, 2, 3, 5, 7)
"""Bins by magnitude begin at these multiples of the powers of ten."""

_DECADES = 10
"""Powers of ten below the larger bound that are told apart where the unit of a column is finer still."""


@dataclass(frozen=True)
class Bins:
    """The bins of one column; the last one counts the missing.

    `starts` holds the first position of each bin of a numeric column, the special values' own bins behind the
    others, and is None for a discrete one.
    """

    column: Discrete | Numeric
    starts: Ints | None
    count: int

    @classmethod
    def discrete(cls, column: Discrete) -> "Bins":
        """One bin per declared value."""
        return cls(column, None, column.size + 1)

    @classmethod
    def at(cls, column: Numeric, starts: Ints) -> "Bins":
        """Bins from these positions on, as far as there are such, and one for each special value.

        >>> from repsynth.schema import Integer
        >>> Bins.at(Integer(name="age", min=0, max=9, special=("?",)), np.array([5, 99, 0])).starts.tolist()
        [0, 5, 10]
        """
        inside = np.unique(starts[(starts > 0) & (starts <= column.steps)]).astype(np.int64)
        special = column.steps + 1 + np.arange(len(column.special))
        every = np.concatenate([[0], inside, special]).astype(np.int64)
        return cls(column, every, len(every) + 1)

    @classmethod
    def binned(cls, column: Numeric, bins: int) -> "Bins":
        """About `bins` equal bins, and one for each bound alone: zeros, or "500 and more", are a case apart.

        Up to twice as many whole numbers get a bin each, since some are far more frequent than others, such as a
        40-hour week.

        >>> from repsynth.schema import Integer
        >>> Bins.binned(Integer(name="gain", min=0, max=99), bins=4).starts.tolist()
        [0, 1, 25, 50, 75, 99]
        >>> Bins.binned(Integer(name="rate", min=1, max=4), bins=16).starts.tolist()
        [0, 1, 2, 3]
        """
        if column.steps < 2 * bins:
            bins = column.steps + 1
        uniform = -(-np.arange(bins) * (column.steps + 1) // bins)
        return cls.at(column, np.concatenate([uniform, own_positions(column)]))

    @classmethod
    def by_magnitude(cls, column: Numeric, digits: tuple[float, ...] = DIGITS) -> "Bins":
        """Bins that begin at round numbers, `digits` times the powers of ten, on both sides of zero; zero and both
        bounds have bins of their own. Times have no magnitude: theirs are of equal width.

        >>> from repsynth.schema import Integer
        >>> pay = Integer(name="pay", min=-10, max=2000)
        >>> (Bins.by_magnitude(pay, (1, 2, 5)).starts - 10).tolist()
        [-10, -9, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000]
        """
        if isinstance(column, Datetime):
            return cls.binned(column, MOST_BINS * len(digits) // len(DIGITS))
        largest = max(abs(column.min), abs(column.max))
        top = math.floor(math.log10(largest))
        low = max(math.floor(math.log10(column.unit)), top - _DECADES)
        sizes = np.array([float(f"{digit}e{power}") for power in range(low, top + 1) for digit in digits])
        edges = np.concatenate([-sizes, sizes])
        edges = edges[(edges > column.min) & (edges < column.max)]
        return cls.at(column, np.concatenate([positions_of(edges, column), own_positions(column)]))

    @property
    def values(self) -> int:
        """How many bins there are without the one for missing."""
        return self.count - 1

    @property
    def numbers(self) -> int:
        """How many of them hold numbers or times and no special value; numeric columns only."""
        assert isinstance(self.column, Numeric)
        return self.values - len(self.column.special)

    @property
    def ends(self) -> Ints:
        """The first position behind each bin of numbers; numeric columns only."""
        assert self.starts is not None
        assert isinstance(self.column, Numeric)
        return np.append(self.starts[1 : self.numbers], self.column.steps + 1)

    @property
    def widths(self) -> Ints:
        """How many positions each bin of numbers has; numeric columns only."""
        assert self.starts is not None
        return self.ends - self.starts[: self.numbers]

    @property
    def spikes(self) -> Bools:
        """Which bins of numbers hold one position between wider ones: a value that is measured on its own."""
        beside = np.concatenate([[4], self.widths, [4]])
        alone: Bools = (self.widths == 1) & (beside[:-2] >= 4) & (beside[2:] >= 4)
        return alone

    def of(self, records: Records) -> Ints:
        return records.look_up(self.column.name, self.of_codes, self.starts)

    def of_codes(self, codes: Ints) -> Ints:
        found = codes if self.starts is None else interval_of(codes, self.starts)
        return np.where(codes == MISSING, self.count - 1, found)

    def edges(self) -> Floats:
        """The ends of the bins of numbers in units of the whole range, from 0 to 1; numeric columns only."""
        assert self.starts is not None
        assert isinstance(self.column, Numeric)
        return np.append(self.starts[: self.numbers], self.column.steps + 1) / (self.column.steps + 1)


def own_positions(column: Numeric) -> Ints:
    """Starts that give both bounds, and zero where it lies between them, bins of their own."""
    own = [0, 1, column.steps]
    if not isinstance(column, Datetime) and column.min < 0 < column.max:
        zero = int(positions_of(np.zeros(1), column)[0])
        own += [zero, zero + 1]
    return np.array(own)


def how_many_bins(rows: float, sigma: float, per_bin: float | None = None) -> int:
    """Bins for so much noise in each: the less noise per record there is, the finer.

    The power of two near rows/σ up to 16, and beyond only eight times as slowly: finer bins than the noise can
    fill make every estimate worse. A model that merges those that noise drowns says how many records there should
    be `per_bin`, in units of the noise; up to 16 bins, four are enough, and it gets eight at least.

    >>> [how_many_bins(rows, 100.0) for rows in (500, 5_000, 500_000)]
    [4, 16, 64]
    """
    signal = max(rows / sigma, 1.0)
    if per_bin is not None:
        fewest = np.clip(_power_of_two(signal / 4), 2 * _FEWEST_BINS, 16)
        return int(np.clip(_power_of_two(signal / per_bin), fewest, MOST_BINS))
    most = np.clip(_power_of_two(signal / 8), 16, MOST_BINS)
    return int(np.clip(_power_of_two(signal), _FEWEST_BINS, most))


def choose_bins(schema: Schema, *, rows: float, sigma: float, per_bin: float | None = None) -> tuple[Bins, ...]:
    """Bins for every learned column: values, and intervals of equal width.

    >>> from repsynth.schema import Number
    >>> schema = Schema(columns=(Number(name="pay", min=0.0, max=1e6),))
    >>> [choose_bins(schema, rows=rows, sigma=100.0)[0].values for rows in (500, 5_000, 500_000)]
    [6, 18, 66]
    """
    bins = how_many_bins(rows, sigma, per_bin)
    return tuple(
        Bins.discrete(column) if isinstance(column, Discrete) else Bins.binned(column, bins)
        for column in schema.learned
    )


def read_bins(column: Numeric, starts: NDArray[Any]) -> Bins:
    """The bins of a numeric column from a stranger's file."""
    found = Bins.at(column, ints(starts, most=2**53 + len(column.special)))
    require(bool(np.array_equal(found.starts, starts)), "its bins are not in order")  # type: ignore[arg-type]
    return found


def _power_of_two(value: float) -> float:
    return float(2.0 ** np.round(np.log2(max(value, 1.0))))
