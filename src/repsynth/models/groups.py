"""Groups: neighbouring bins and rare categories taken together, so that two-way tables stand above their noise.

All of it is post-processing of the stage-1 histograms. A numeric column is cut into groups of about equal
mass; a bin that holds as much on its own, such as the zeros of a capital gain, stays a group of its own.
Categories below two standard deviations of noise share one group.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsynth.cells import Cells
from repsynth.encode import Records
from repsynth.marginals import Marginals

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NONE = -1
"""The group of a record that takes no part: a missing cell in a column that declares none."""

_FEWEST, MOST = 3, 32
_COARSE = 8


@dataclass(frozen=True)
class Groups:
    """The groups of one column: `of_cell` holds the group of each of its cells, the missing one last."""

    cells: Cells
    of_cell: Ints

    @property
    def count(self) -> int:
        """How many groups there are."""
        return int(self.of_cell.max()) + 1

    def of(self, records: Records) -> Ints:
        """The group of each record."""
        return self.of_cell[self.cells.of(records)]

    def sum_up(self, per_cell: Floats) -> Floats:
        """The sum over the cells of each group."""
        inside = self.of_cell != NONE
        return np.bincount(self.of_cell[inside], per_cell[inside], minlength=self.count).astype(np.float64)


def choose_groups(marginals: Marginals, label: str | None, *, most: int) -> tuple[Groups, ...]:
    """The groups of every column, about `most` for numeric ones; a label keeps its values apart."""
    return tuple(
        Groups(cells, _of_cell(marginals, i, cells, most=most, apart=cells.column.name == label))
        for i, cells in enumerate(marginals.cells)
    )


def coarser(marginals: Marginals, i: int, groups: Groups) -> Groups:
    """The groups of a numeric column taken together to eight of about equal mass; others stay as they are."""
    if groups.cells.starts is None or groups.count <= _COARSE:
        return groups
    values = int(groups.of_cell[:-1].max()) + 1
    mass = np.maximum(groups.sum_up(levels(marginals, i))[:values], 1e-9)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    _, of_group = np.unique(np.floor(middle * _COARSE), return_inverse=True)
    missing = NONE if groups.of_cell[-1] == NONE else int(of_group.max()) + 1
    return Groups(groups.cells, np.append(of_group[groups.of_cell[:-1]], missing).astype(np.int64))


def of_finer(fine: Groups, coarse: Groups) -> Ints:
    """For each fine group the coarse one that it is part of."""
    found = np.zeros(fine.count, dtype=np.int64)
    inside = fine.of_cell != NONE
    found[fine.of_cell[inside]] = coarse.of_cell[inside]
    return found


def how_many(rows: float, noise: float, labels: int) -> int:
    """Groups that a two-way table with so much noise in a cell can bear in a column.

    >>> how_many(30_000, 40.0, 2), how_many(500, 40.0, 2)
    (32, 3)
    """
    return int(np.clip(rows / (16 * noise * np.sqrt(labels)), _FEWEST, MOST))


def levels(marginals: Marginals, i: int) -> Floats:
    """The counts of a column's cells as far as they are believed, the missing one last (0 where undeclared)."""
    counts = marginals.noisy(i)
    if not marginals.clear(i):
        counts = np.append(marginals.shares[i] * marginals.rows, counts[-1])
    if not marginals.cells[i].column.missing:
        counts[-1] = 0.0
    return counts


def shares_within(marginals: Marginals, i: int, groups: Groups) -> Floats:
    """(groups, cells): how the records of a group are spread over its cells.

    Bins that noise may have emptied or filled are levelled out with their neighbours, by width; heaps stay.
    """
    counts = levels(marginals, i)
    if groups.cells.starts is not None:
        values = counts[:-1]
        widths = np.diff(groups.cells.edges())
        for group in range(int(groups.of_cell[:-1].max()) + 1):  # not the one for missing
            inside = np.flatnonzero(groups.of_cell[:-1] == group)
            # A bound's own cell is narrow: noise alone must not make a heap of it.
            weak = (widths[inside] < widths[inside].max() / 2) & (values[inside] < 4 * marginals.sigma)
            values[inside[weak]] = 0.0
            part = merge_neighbours(values[inside], 2 * marginals.sigma, 3 * marginals.sigma)
            mass, width = (np.bincount(part, per_cell[inside]) for per_cell in (values, widths))
            values[inside] = (np.maximum(mass, 0.0) / width)[part] * widths[inside]
    counts = np.maximum(counts, 1e-9)
    if counts[-1] < 2 * marginals.sigma:
        counts[-1] = 1e-30
    spread = np.zeros((groups.count, len(counts)))
    inside = np.flatnonzero(groups.of_cell != NONE)
    spread[groups.of_cell[inside], inside] = counts[inside]
    shares: Floats = spread / spread.sum(axis=1, keepdims=True)
    return shares


def _of_cell(marginals: Marginals, i: int, cells: Cells, *, most: int, apart: bool) -> Ints:
    counts = levels(marginals, i)[:-1]
    if apart:
        of_cell = np.arange(len(counts))
    elif cells.starts is None:
        large = counts >= 2 * marginals.sigma
        rare = int((~large).sum())
        of_cell = np.arange(len(counts)) if rare <= 1 else np.where(large, np.cumsum(large) - 1, large.sum())
    else:
        least = max(_mass(counts, marginals.rows, most), min(4 * marginals.sigma, marginals.rows / _FEWEST))
        of_cell = merge_neighbours(counts, least, least)
    missing = int(of_cell.max()) + 1 if cells.column.missing else NONE
    return np.append(of_cell, missing).astype(np.int64)


def merge_neighbours(counts: Floats, least: float, heap: float) -> Ints:
    """The group of each cell: neighbours together until they hold `least`; a cell of `heap` stands alone.

    >>> merge_neighbours(np.array([50.0, 3.0, 4.0, 5.0, 6.0, 1.0]), least=7.0, heap=20.0).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    groups = np.zeros(len(counts), dtype=np.int64)
    masses: list[float] = []
    heaps: list[bool] = []
    for i, count in enumerate(counts):
        full = not masses or heaps[-1] or masses[-1] >= least
        if count >= heap or full:
            masses.append(0.0)
            heaps.append(bool(count >= heap))
        masses[-1] += float(count)
        groups[i] = len(masses) - 1
    # A small remainder joins the group on its left, unless that one is a heap.
    for group in range(len(masses) - 1, 0, -1):
        if not heaps[group] and not heaps[group - 1] and masses[group] < least / 2:
            groups[groups >= group] -= 1
            masses[group - 1] += masses.pop(group)
            heaps.pop(group)
    return groups


def _mass(counts: Floats, rows: float, most: int) -> float:
    """The mass of a group: what heaps leave, shared out over the groups that they leave, half of all at least."""
    mass = rows / most
    for _ in range(5):
        heaps = counts >= mass
        mass = max(rows - float(counts[heaps].sum()), 0.0) / max(most - int(heaps.sum()), most / 2)
    return mass
