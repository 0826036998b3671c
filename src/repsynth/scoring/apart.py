"""How far apart records lie if their columns were independent: what the histograms tell of distances.

Two records are apart by the squared difference of their numbers, in standard deviations, and by 2 for each
category in which they differ. In one column, with sharpness λ,

    a(z, λ) = −log E exp(−λ × how far z is from a random record),

is how rare records close by are: for a large λ the rarity of the value itself, for a small one λ times the mean
distance. It is a smooth function of all counts of a column, so noise in one bin does little to it.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.schema import Numeric

SHARPNESS = (0.2, 0.35, 0.6, 1.0, 1.7, 2.8)
"""The λ that are tried."""

_CELLS = 192
_REACH = 6.0  # standard deviations beyond the outermost bin with records that are told apart
_DIFFERENT = 2.0  # how far apart two categories are
_VISIBLE = 1.5  # of a bin's noise: what may be there and not be seen widens the scale, and that does less harm
_LEAST = 1e-9


@dataclass(frozen=True)
class Spread:
    """Where the records of a column are, by its released histogram: `masses` in fine `cells`, which tell numbers
    apart, and the group of each cell, coarse enough for two-way tables."""

    cells: Bins
    masses: Floats
    middles: Floats
    """Of the cells of numbers, in standard deviations."""
    of_cell: Ints

    @property
    def groups(self) -> int:
        return int(self.of_cell.max()) + 1

    @cached_property
    def group_masses(self) -> Floats:
        """The fraction of the records in each group."""
        return np.bincount(self.of_cell, self.masses, minlength=self.groups).astype(np.float64)

    def closeness(self, sharpness: float) -> Floats:
        """(cells, cells): 1 for cells that are alike, near 0 for those far apart."""
        apart = np.where(np.eye(self.cells.count) > 0, 0.0, _DIFFERENT)
        k = len(self.middles)
        apart[:k, :k] = (self.middles[:, None] - self.middles) ** 2
        return np.exp(-sharpness * apart)

    def apart(self, sharpness: float) -> Floats:
        """a(z, λ) of every cell, in nats."""
        return -np.log(np.maximum(self.closeness(sharpness) @ self.masses, _LEAST))

    def group_closeness(self, sharpness: float) -> Floats:
        """(groups, groups): the mean closeness of records of two groups."""
        within = np.zeros((self.groups, self.cells.count))
        within[self.of_cell, np.arange(self.cells.count)] = self.masses + 1e-12
        within /= within.sum(axis=1, keepdims=True)
        found: Floats = within @ self.closeness(sharpness) @ within.T
        return found


def spread_of(histograms: Histograms, column: int, *, groups: int) -> Spread:
    """The spread of a column over about `groups` groups at most: post-processing of its histogram.

    >>> from repsynth.schema import Boolean
    >>> smoker = Histograms((Bins.discrete(Boolean(name="smoker")),), np.array([900, 100, 0]), 1.0, 1000.0)
    >>> spread_of(smoker, 0, groups=8).apart(2.8).round(1).tolist()  # rare ones are farther apart from others
    [0.1, 2.3, 5.6]
    """
    bins, absent = histograms.bins[column], histograms.absent_fraction(column)
    probabilities = histograms.probabilities[column] * (1 - absent)
    if bins.starts is None:
        masses = np.append(probabilities, absent)
        return Spread(bins, masses, np.zeros(0), _most_frequent(masses, groups))
    numbers, starts, ends = probabilities[: bins.numbers], bins.starts[: bins.numbers], bins.ends
    scale = _scale(histograms, column, numbers, starts, ends)
    cells = _fine_cells(bins, starts[numbers > 0], ends[numbers > 0], scale)
    assert cells.starts is not None
    first, last = cells.starts[: cells.numbers], cells.ends
    overlap = np.minimum(last, ends[:, None]) - np.maximum(first, starts[:, None])  # (bins, cells)
    inside = numbers @ (np.maximum(overlap, 0) / (ends - starts)[:, None])
    masses = np.concatenate([inside, probabilities[bins.numbers :], [absent]])
    return Spread(cells, masses, (first + last - 1) / (2 * scale), _equal_masses(inside, cells.count, groups))


def spreads_of(histograms: Histograms, label: str | None, *, groups: int) -> tuple[Spread, ...]:
    """The spreads of all columns but the label."""
    features = [i for i, bins in enumerate(histograms.bins) if bins.column.name != label]
    return tuple(spread_of(histograms, i, groups=groups) for i in features)


def _scale(histograms: Histograms, column: int, numbers: Floats, starts: Ints, ends: Ints) -> float:
    """About the standard deviation, in positions. Where noise may hide a tail, it is between the one without and
    the one with all that may be there: too small a scale would make outliers of half a table."""
    sure = _deviation(numbers, starts, ends)
    bins = histograms.bins[column]
    assert bins.starts is not None
    counts = histograms.noisy(column)[: bins.numbers]
    visible = np.where(counts > _VISIBLE * histograms.sigma, counts, 0.0)
    with_tail = _deviation(visible, bins.starts[: bins.numbers], bins.ends)
    return max(math.sqrt(sure * max(sure, with_tail)), 1e-3)


def _deviation(masses: Floats, starts: Ints, ends: Ints) -> float:
    total = float(masses.sum())
    if total <= 0:
        return 0.0
    middle, width = (starts + ends - 1) / 2, (ends - starts).astype(np.float64)
    centre = float(masses @ middle) / total
    return math.sqrt(float(masses @ ((middle - centre) ** 2 + (width**2 - 1) / 12)) / total)


def _fine_cells(bins: Bins, starts: Ints, ends: Ints, scale: float) -> Bins:
    """Cells of equal width from some deviations below the first bin with records to some above the last one."""
    column = bins.column
    assert isinstance(column, Numeric)
    low, high = (starts.min(), ends.max()) if len(starts) else (0, column.steps + 1)
    low, high = max(0.0, low - _REACH * scale), min(column.steps + 1.0, high + _REACH * scale)
    return Bins.at(column, np.rint(np.linspace(low, high, _CELLS, endpoint=False)).astype(np.int64))


def _most_frequent(masses: Floats, groups: int) -> Ints:
    """The most frequent values are groups of their own, the others one together."""
    if len(masses) <= groups:
        return np.arange(len(masses))
    found = np.full(len(masses), groups - 1)
    found[np.argsort(-masses, kind="stable")[: groups - 1]] = np.arange(groups - 1)
    return found


def _equal_masses(masses: Floats, cells: int, groups: int) -> Ints:
    """Neighbouring cells of numbers in groups of about equal mass; special values and the missing stay apart."""
    before = np.cumsum(masses) - masses / 2
    place = np.floor(np.clip(before / max(float(masses.sum()), 1e-300), 0.0, 1 - 1e-9) * groups)
    of_number = np.unique(place, return_inverse=True)[1]
    others = of_number.max() + 1 + np.arange(cells - len(masses))
    return np.concatenate([of_number, others]).astype(np.int64)
