"""Groups of cells and of rare categories, so that the counts in tables stand above their noise.

All of it is post-processing of the stage-1 histograms. Numeric columns have groups of about equal mass; a cell
with that mass, such as the zeros of a capital gain, has its own group. Categories below two standard deviations of
the noise share one group, or one group per public family. A few categories that are all within the noise stay
separate.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import FEWEST_CELLS, NOISE_PER_CELL, Bins
from repsynth.io.records import MISSING, Records
from repsynth.storage import ints, require

NONE = MISSING
"""The group of a record that is left out: a missing cell in a column that declares none."""

_FEWEST, _MANY = 3, 32


@dataclass(frozen=True)
class Groups:
    """The groups of one column: `of_bin` has the group of each of its cells, missing last."""

    bins: Bins
    of_bin: Ints

    @cached_property
    def count(self) -> int:
        return int(self.of_bin.max()) + 1

    @cached_property
    def in_order(self) -> int:
        """The number of groups of numbers, which come first and in order; 0 for categories."""
        return 0 if self.bins.starts is None else int(self.of_bin[: self.bins.numbers].max()) + 1

    def of(self, records: Records) -> Ints:
        """Return the group of each record."""
        return records.look_up(self.bins.column.name, self.of_codes, self.bins.starts)

    def of_codes(self, codes: Ints) -> Ints:
        return self.of_bin[self.bins.of_codes(codes)]

    def places(self, records: Records) -> Ints:
        """Return the group of each record; records that are left out come after the last group."""
        return records.look_up(self.bins.column.name, self._place_of_codes, self.bins.starts)

    def _place_of_codes(self, codes: Ints) -> Ints:
        group = self.of_codes(codes)
        return np.where(group == NONE, self.count, group)

    def sum_up(self, per_bin: Floats) -> Floats:
        """Return the sum over the cells of each group."""
        inside = self.of_bin != NONE
        return np.bincount(self.of_bin[inside], per_bin[inside], minlength=self.count).astype(np.float64)


def choose_groups(histograms: Histograms, label: str | None, *, most: int, noise: float) -> tuple[Groups, ...]:
    """Return the groups of every column: about `most` for numbers, and each value of the label.

    `noise` is the noise of a cell in the tables to come.
    """
    found = []
    for i, bins in enumerate(histograms.bins):
        if bins.column.name == label:
            of_bin = np.arange(bins.values)
        elif bins.families is not None:
            of_bin = _by_family(histograms, i, bins.families)
        elif bins.starts is None:
            of_bin = _of_categories(histograms, i, noise)
        else:
            of_bin = _of_numbers(histograms, i, most)
        found.append(_with_others(bins, of_bin))
    return tuple(found)


def pairs_with_label(groups: tuple[Groups, ...], label: str | None) -> tuple[tuple[Groups, Groups], ...]:
    """Return the label's groups with those of each other column; nothing without a label."""
    own = [each for each in groups if each.bins.column.name == label]
    return tuple((first, each) for first in own for each in groups if each is not first)


def groups_of_families(histograms: Histograms, i: int) -> Groups | None:
    """Return the groups of a category whose values have public families; None for any other column."""
    bins = histograms.bins[i]
    return None if bins.families is None else _with_others(bins, _by_family(histograms, i, bins.families))


def coarser(histograms: Histograms, i: int, groups: Groups, most: int = FEWEST_CELLS) -> Groups:
    """Merge the groups of a numeric column into `most` groups of about equal mass; others stay as they are."""
    if groups.bins.starts is None or groups.count <= most:
        return groups
    mass = np.maximum(groups.sum_up(histograms.levels(i))[: groups.in_order], 1e-9)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    _, of_group = np.unique(np.floor(middle * most), return_inverse=True)
    return _with_others(groups.bins, of_group[groups.of_bin[: groups.bins.numbers]])


def of_finer(fine: Groups, coarse: Groups) -> Ints:
    """Return for each fine group the coarse group that contains it."""
    found = np.zeros(fine.count, dtype=np.int64)
    inside = fine.of_bin != NONE
    found[fine.of_bin[inside]] = coarse.of_bin[inside]
    return found


def how_many(rows: float, noise: float, labels: int) -> int:
    """Return the number of groups per column that a two-way table with this noise in a cell can support.

    Up to 32, the number is proportional to records / noise. Above that, it grows with the cube root: the noise of
    a table grows with the square of the number, and the error of grouping falls with it.

    >>> [how_many(rows, 40.0, 2) for rows in (500, 30_000, 1_000_000)]
    [3, 32, 104]
    """
    bears = rows / (16 * noise * np.sqrt(labels))
    most = min(_MANY * max(bears / _MANY, 1.0) ** (1 / 3), 16 * _MANY)  # tables of two columns fit into memory
    return int(np.clip(bears, _FEWEST, most))


def how_many_coarse(rows: float, noise: float) -> int:
    """Return the number of coarse groups: at least 8, and more if a 3-way table has noise of 1/20 of the records.

    >>> how_many_coarse(30_000, 40.0), how_many_coarse(1_000_000, 40.0)
    (8, 10)
    """
    return int(np.clip((0.05 * rows / noise) ** (1 / 3), FEWEST_CELLS, _MANY))


def probabilities_within(histograms: Histograms, i: int, groups: Groups) -> Floats:
    """Return (groups, cells): the probability of each cell of a group."""
    counts = np.maximum(histograms.levels(i), 1e-9)
    if counts[-1] < 2 * histograms.sigma:
        counts[-1] = 1e-30
    spread = np.zeros((groups.count, len(counts)))
    inside = np.flatnonzero(groups.of_bin != NONE)
    spread[groups.of_bin[inside], inside] = counts[inside]
    spread /= spread.sum(axis=1, keepdims=True)
    return spread


def merge_neighbours(counts: Floats, least: float) -> Ints:
    """Return the group of each cell: neighbours together until they have `least`; a cell with `least` is alone.

    >>> merge_neighbours(np.array([50.0, 3.0, 4.0, 5.0, 6.0, 1.0]), least=7.0).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    groups = np.zeros(len(counts), dtype=np.int64)
    masses: list[float] = []
    spikes: list[bool] = []
    for i, count in enumerate(counts):
        if not masses or spikes[-1] or masses[-1] >= least or count >= least:
            masses.append(0.0)
            spikes.append(bool(count >= least))
        masses[-1] += float(count)
        groups[i] = len(masses) - 1
    # A small remainder joins the group on its left, unless that one is a spike.
    for group in range(len(masses) - 1, 0, -1):
        if not spikes[group] and not spikes[group - 1] and masses[group] < least / 2:
            groups[groups >= group] -= 1
            masses[group - 1] += masses.pop(group)
            spikes.pop(group)
    return groups


def _of_numbers(histograms: Histograms, i: int, most: int) -> Ints:
    """Return groups of about equal mass; an empty cell joins the last full one before it, or the first of all."""
    numbers = histograms.levels(i)[: histograms.bins[i].numbers]
    mass = _mass(histograms.levels(i)[:-1], histograms.rows, most)
    least = max(mass, min(4 * histograms.sigma, histograms.rows / _FEWEST))
    full = np.flatnonzero(numbers) if numbers.any() else np.arange(len(numbers))
    before = np.maximum(np.searchsorted(full, np.arange(len(numbers)), side="right") - 1, 0)
    return merge_neighbours(numbers[full], least)[before]


def _mass(counts: Floats, rows: float, most: int) -> float:
    """Return the mass of a group if spikes have their own groups and at least half of the groups remain."""
    mass = rows / most
    for _ in range(5):
        spikes = counts >= mass
        mass = max(rows - float(counts[spikes].sum()), 0.0) / max(most - int(spikes.sum()), most / 2)
    return mass


def _of_categories(histograms: Histograms, i: int, noise: float) -> Ints:
    """Return one group per value above the noise, and one for all others.

    With few values, each of which would be within the histogram's noise at an even share, the histogram cannot
    show which are rare. Then a value is compared with the noise of the tables, if that is smaller.
    """
    counts, sigma = histograms.levels(i)[:-1], histograms.sigma
    known = len(counts) > 2 * FEWEST_CELLS or histograms.rows / len(counts) > NOISE_PER_CELL * sigma
    large = counts >= 2 * (sigma if known else min(sigma, noise))
    return np.arange(len(counts)) if (~large).sum() <= 1 else np.where(large, np.cumsum(large) - 1, large.sum())


def _by_family(histograms: Histograms, i: int, families: Ints) -> Ints:
    """Return one group per value above the noise and one per family; families within the noise share a group."""
    counts, least = histograms.levels(i)[:-1], 2 * histograms.sigma
    large = counts >= least
    scarce = np.bincount(families, np.where(large, 0.0, counts)) < least
    together = len(counts) + np.where(scarce, len(counts), np.arange(len(scarce)))
    _, of_bin = np.unique(np.where(large, np.arange(len(counts)), together[families]), return_inverse=True)
    return of_bin.astype(np.int64)


def _with_others(bins: Bins, of_bin: Ints) -> Groups:
    """Add one group for each special value and one for missing, after the groups of values or numbers."""
    first = int(of_bin.max()) + 1
    special = first + np.arange(bins.values - len(of_bin))
    missing = first + len(special) if bins.column.missing else NONE
    return Groups(bins, np.concatenate([of_bin, special, [missing]]).astype(np.int64))


def read_groups(array: NDArray[Any], bins: Bins) -> Groups:
    """Return the groups of a column from an untrusted file."""
    of_bin = ints(array, bins.count, most=2**20)
    values = of_bin if bins.column.missing else of_bin[:-1]
    require(bins.column.missing or of_bin[-1] == NONE, "its groups do not fit their column")
    require(bool(np.array_equal(np.unique(values), np.arange(values.max() + 1))), "its groups have gaps")
    require((int(values.max()) + 1) * bins.count <= 2**25, "its groups are too many")
    return Groups(bins, of_bin)
