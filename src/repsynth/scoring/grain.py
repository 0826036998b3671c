"""How round the numbers of a column are: how many are multiples of ten, of a hundred, and so on.

People round what they report, so that amounts pile up at round numbers that are each too rare to stand above any
noise. How many numbers of each size are how round does stand above it: one small histogram. A number that is drawn
from a bin is then rounded as often as that says, to a multiple that lies in the bin.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.schema import Integer, Number
from repsynth.storage.checks import ints, require

_SLACK = 1e-9
_HALF = 0.5 + 1e-3  # of a unit
_PASSES = 12
_MOST_POWER, _NEAR = 400, 3
_MOST_SPIKES = 8  # round numbers in a bin that are looked at one by one
_COUNTLESS = 2**53  # multiples of a power: floats cannot tell more apart


@dataclass(frozen=True)
class Grains:
    """The public cells: the size of a number, as a power of ten, by the largest power that divides it.

    `powers` are those told apart. On a grid every number is a multiple of the first one; without one, the first
    stands for numbers that are multiples of none. The last cell counts zeros, special values and the missing.

    >>> pay = Grains.of_column(Integer(name="pay", min=0, max=9999))
    >>> pay.powers
    (0, 1, 2, 3)
    >>> pay.of(Records(rows=4, codes={"pay": np.array([7, 30, 1200, 0])})).tolist()
    [0, 2, 8, 10]
    """

    column: Integer | Number
    powers: tuple[int, ...]

    @classmethod
    def of_column(cls, column: Integer | Number) -> "Grains":
        """As many powers as the bounds and the column's unit tell apart."""
        top = math.floor(math.log10(max(abs(column.min), abs(column.max))))
        on_grid = isinstance(column, Integer) or column.on_grid
        # Without a grid, one in a hundred numbers is by chance as good as a multiple of the second power.
        low = math.floor(math.log10(column.unit)) if on_grid else math.ceil(math.log10(column.unit)) + 2
        return cls(column, tuple(range(min(low, top), top + 1)))

    @property
    def count(self) -> int:
        return len(self.powers) * (len(self.powers) + 1) // 2 + 1

    def of(self, records: Records) -> Ints:
        return records.look_up(self.column.name, self.of_codes)

    def of_codes(self, codes: Ints) -> Ints:
        values = self._values(codes)
        magnitude = np.abs(values)
        # A round number may lie anywhere in its interval: 1 counts as one even where the middle is below it.
        size = self.sizes(magnitude + self.reach)
        cell = (size * (size + 1) >> 1) + np.minimum(self.largest_power(values), size)
        number = (codes != MISSING) & (codes <= self.column.steps) & (magnitude > self.column.unit / 2)
        return cell if number.all() else np.where(number, cell, self.count - 1)

    def largest_power(self, values: Floats) -> Ints:
        """The largest power that divides each number, as a place among `powers`."""
        found = np.zeros(len(values), dtype=np.int64)
        if len(self.powers) == 1:
            return found
        left = np.flatnonzero(self._divides(10.0 ** self.powers[1], values))
        found[left] = 1
        for k in range(2, len(self.powers)):  # what is no multiple of a power is none of a larger one
            if not left.size:
                break
            left = left[self._divides(10.0 ** self.powers[k], values[left])]
            found[left] = k
        return found

    def _values(self, positions: Ints) -> Floats:
        """The number at each position; without a grid, the middle of its interval."""
        values: Floats = self.column.min + positions.astype(np.float64) * self.column.unit + self.reach
        return values

    @property
    def reach(self) -> float:
        """How far from the middle of its interval a number may be."""
        exact = isinstance(self.column, Integer) or self.column.on_grid
        return 0.0 if exact else self.column.unit / 2

    def _divides(self, step: float, values: Floats) -> Bools:
        """Whether a multiple of the step lies at a number's position."""
        off = values / step
        np.rint(off, out=off)
        off *= step
        off -= values
        divides: Bools = np.abs(off, out=off) <= self.column.unit * _HALF
        return divides

    def sizes(self, values: Floats) -> Ints:
        """The power of ten of each number, as a place among `powers`."""
        edges = 10.0 ** np.array(self.powers[1:], dtype=np.float64)
        # Floats may miss a power of ten by less than a quarter of a unit.
        moved = np.abs(values) + self.column.unit / 4
        size = np.zeros(len(values), dtype=np.int8)
        for edge in edges * (1 - _SLACK):  # so few that comparing is quicker than a search
            size += moved >= edge
        return size.astype(np.int64)


class Run(NamedTuple):
    """Codes of a bin that are drawn alike: a `fraction` of the bin's records have one of them.

    With a `power`, they are the positions of its multiples from the one with the number `first` on, within `low`
    and `high`; where it skips those of the next power, numbers count the others alone. Without one, they are the
    codes from `first` on.
    """

    bin: int
    fraction: float
    first: int
    size: int
    low: int
    high: int
    power: float = 0.0
    skips: bool = False

    @classmethod
    def one(cls, bin_: int, code: int) -> "Run":
        """The only code of a bin."""
        return cls(bin_, 1.0, code, 1, code, code)


@dataclass(frozen=True)
class Roundness:
    """The noisy cells of a column, a released value."""

    grains: Grains
    counts: Ints
    sigma: float

    @cached_property
    def table(self) -> Floats:
        """(sizes, powers): how many numbers of a size are how round; what noise may have made is left out."""
        powers = len(self.grains.powers)
        table = np.zeros((powers, powers))
        table[np.tril_indices(powers)] = self.counts[:-1]
        return np.where(table > 2 * self.sigma, table, 0.0)

    @cached_property
    def _rounder_ones(self) -> Bools:
        """(sizes, powers): whether numbers of a size that are rounder stand above the noise. Where they do not,
        they are drawn among the others."""
        known = np.cumsum(self.table[:, ::-1], axis=1)[:, ::-1] > 0
        rounder: Bools = np.pad(known, ((0, 0), (0, 1)))[:, 1:]
        return rounder

    def spread(self, low: Floats, high: Floats, masses: Floats) -> tuple[Floats, Floats]:
        """For intervals [low, high) of numbers with these masses: the mass of each that is how round, and how many
        such numbers there are in it.

        By raking: both the masses and the table come out, as far as they agree. A number that stands alone takes
        its mass out of the table first.
        """
        masses = np.maximum(masses, 0.0)
        alone = high - low <= self.grains.column.unit * 1.5
        exactly = self._exactly(low, high)
        middle, reach = (low + high) / 2, self.grains.reach
        exactly[alone] = np.eye(len(self.grains.powers))[self.grains.largest_power(low[alone] + reach)]
        single = np.abs(low + reach) + reach
        size = self.grains.sizes(np.where(alone, single, np.where((low <= 0) & (high > 0), 0.0, middle)))
        parts = np.where(alone[:, None], exactly, exactly / np.maximum(high - low, 1e-300)[:, None])
        parts = parts * masses[:, None]
        taken = np.zeros_like(self.table)
        np.add.at(taken, size[alone], parts[alone])
        wanted, others = np.maximum(self.table - taken, 0.0), np.where(alone[:, None], 0.0, parts)
        for _ in range(_PASSES):
            now = np.zeros_like(self.table)
            np.add.at(now, size, others)
            others = others * np.where(now > 0, wanted / np.maximum(now, 1e-300), 0.0)[size]
            whole = others.sum(axis=1)
            others[whole <= 0, 0], whole[whole <= 0] = 1.0, 1.0
            others = others * (np.where(alone, 0.0, masses) / whole)[:, None]
        return np.where(alone[:, None], parts, others), exactly

    def _exactly(self, low: Floats, high: Floats) -> Floats:
        """(intervals, powers): how many numbers are multiples of a power and of no larger one."""
        multiples = np.stack([_multiples(low, high, 10.0**power) for power in self.grains.powers], axis=1)
        exactly: Floats = np.maximum(multiples - np.pad(multiples, ((0, 0), (0, 1)))[:, 1:], 0.0)
        exactly[:, 0] = np.maximum(exactly[:, 0], _SLACK)
        return exactly

    def spikes(self, low: Floats, high: Floats, masses: Floats, least: float) -> Floats:
        """Round numbers that should each hold `least` records or more."""
        parts, exactly = self.spread(low, high, masses)
        found: list[float] = []
        for k in range(1, len(self.grains.powers)):
            step, few = 10.0 ** self.grains.powers[k], (exactly[:, k] >= 1) & (exactly[:, k] <= _MOST_SPIKES)
            for i in np.flatnonzero(few & (parts[:, k] > least * exactly[:, k])):
                first, last = (int(_first(ends, step)[i]) for ends in (low, high))
                found += [m * step for m in range(first, last) if k + 1 == len(parts[i]) or m % 10]
        return np.array(found)

    def runs(self, whole: Run, low: float, high: float, fractions: Floats) -> Iterator[Run]:
        """The runs of a bin of numbers from `low` up to `high`: these fractions of them are how round. Where there
        are no such multiples, or more than floats can tell apart, and where numbers that are not rounded need not
        be, the whole bin."""
        size = int(self.grains.sizes(np.array([(low + high) / 2]))[0])
        counted = self.grains.column.unit == 10.0 ** self.grains.powers[0]
        for k, fraction in enumerate(fractions.tolist()):
            step, skips = 10.0 ** self.grains.powers[k], bool(self._rounder_ones[size, k])
            first, behind = (int(_first(np.array(end), step)) for end in (low, high))
            countless = max(abs(first), abs(behind)) >= _COUNTLESS
            if behind <= first or countless or (k == 0 and not (counted and skips)):
                yield whole._replace(fraction=fraction)
                continue
            others = [end - -(-end // 10) for end in (first, behind)]
            if skips and others[0] < others[1]:
                first, behind = others
            else:
                skips = False
            yield whole._replace(fraction=fraction, first=first, size=behind - first, power=step, skips=skips)

    def rounded(
        self, values: Floats, low: Floats, high: Floats, k: Ints, generator: np.random.Generator
    ) -> Floats:
        """Numbers drawn from [low, high), replaced by multiples of the k-th power and of no larger one, where
        there are some in it."""
        step = 10.0 ** np.array(self.grains.powers, dtype=np.float64)[k]
        first, behind = _first(low, step), _first(high, step)
        times = first + np.floor(generator.random(len(values)) * (behind - first))
        # One in ten multiples is one of the next power, too, and so is one in ten numbers that are not rounded.
        plain = k == 0
        times = np.where(plain, np.rint(values / step), times)
        rounder = (times % 10 == 0) & self._rounder_ones[self.grains.sizes((low + high) / 2), k]
        other = times + generator.integers(1, 10, len(values))
        nearest = np.where(times + 1 < behind, times + 1, np.maximum(times - 1, first))
        times = np.where(rounder, np.where(other < behind, other, nearest), times)
        counted = self.grains.column.unit == 10.0 ** self.grains.powers[0]
        return np.where((behind > first) & (~plain | (rounder & counted)), times * step, values)


def read_grains(column: Integer | Number, powers: NDArray[Any]) -> Grains:
    """The cells of a column from a stranger's file."""
    found = ints(powers, most=_MOST_POWER).tolist()
    known = Grains.of_column(column).powers
    near = bool(found) and abs(found[0] - known[0]) <= _NEAR and abs(found[-1] - known[-1]) <= _NEAR
    require(near and found == list(range(found[0], found[-1] + 1)), "its powers of ten are not its column's")
    return Grains(column, tuple(found))


def _first(low: Floats, step: Floats | float) -> Floats:
    """The first multiple of the step from `low` on."""
    return np.ceil(low / step - _SLACK)


def _multiples(low: Floats, high: Floats, step: float) -> Floats:
    return np.maximum(_first(high, step) - _first(low, step), 0.0)
