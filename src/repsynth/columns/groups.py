"""Groups: neighbouring bins and rare categories taken together, so that tables stand above their noise.

All of it is post-processing of the stage-1 histograms. A numeric column is cut into groups of about equal
mass; a bin that holds as much on its own, such as the zeros of a capital gain, stays a group of its own.
Categories below two standard deviations of noise share one group, or one for each public family of them; few
categories, all of which noise drowns, stay apart.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms, merge_neighbours
from repsynth.columns.cells import Bins
from repsynth.columns.hierarchy import families_of
from repsynth.data.records import Records
from repsynth.storage import ints, require

NONE = -1
"""The group of a record that takes no part: a missing cell in a column that declares none."""

_FEWEST, _MANY = 3, 32
_FEW_VALUES, _UNKNOWN = 16, 4.0
_COARSE, _MOST_COARSE = 8, 32


@dataclass(frozen=True)
class Groups:
    """The groups of one column: `of_bin` holds the group of each of its bins, the missing one last."""

    bins: Bins
    of_bin: Ints

    @property
    def count(self) -> int:
        return int(self.of_bin.max()) + 1

    @property
    def in_order(self) -> int:
        """How many of the first groups are neighbours in order: all of numbers, none of categories."""
        return 0 if self.bins.starts is None else int(self.of_bin[: self.bins.numbers].max()) + 1

    def of(self, records: Records) -> Ints:
        """The group of each record."""
        return records.look_up(self.bins.column.name, self.of_codes, self.bins.starts)

    def of_codes(self, codes: Ints) -> Ints:
        return self.of_bin[self.bins.of_codes(codes)]

    def places(self, records: Records) -> Ints:
        """The same, but behind the last group where a record takes no part."""
        return records.look_up(self.bins.column.name, self._place_of_codes, self.bins.starts)

    def _place_of_codes(self, codes: Ints) -> Ints:
        group = self.of_codes(codes)
        return np.where(group == NONE, self.count, group)

    def sum_up(self, per_bin: Floats) -> Floats:
        inside = self.of_bin != NONE
        return np.bincount(self.of_bin[inside], per_bin[inside], minlength=self.count).astype(np.float64)


def choose_groups(histograms: Histograms, label: str | None, *, most: int, noise: float) -> tuple[Groups, ...]:
    """The groups of every column, about `most` for numeric ones; a label keeps its values apart. `noise` is that
    of a cell in the tables to come."""
    return tuple(
        Groups(bins, _of_bin(histograms, i, bins, most=most, apart=bins.column.name == label, noise=noise))
        for i, bins in enumerate(histograms.bins)
    )


def pairs_with_label(groups: tuple[Groups, ...], label: str | None) -> tuple[tuple[Groups, Groups], ...]:
    """The groups of the label with those of each other column; none without a label."""
    own = [each for each in groups if each.bins.column.name == label]
    return tuple((first, each) for first in own for each in groups if each is not first)


def groups_of_families(histograms: Histograms, i: int) -> Groups | None:
    """The groups of a category whose values have public families; None for any other column."""
    bins = histograms.bins[i]
    if families_of(bins.column) is None:
        return None
    return Groups(bins, _of_bin(histograms, i, bins, most=_FEWEST, apart=False, noise=np.inf))


def coarser(histograms: Histograms, i: int, groups: Groups, most: int = _COARSE) -> Groups:
    """The groups of a numeric column taken together to so many of about equal mass; others stay as they are."""
    if groups.bins.starts is None or groups.count <= most:
        return groups
    mass = np.maximum(groups.sum_up(histograms.levels(i))[: groups.in_order], 1e-9)
    middle = (np.cumsum(mass) - mass / 2) / mass.sum()
    _, of_group = np.unique(np.floor(middle * most), return_inverse=True)
    return Groups(groups.bins, _with_others(groups.bins, of_group[groups.of_bin[: groups.bins.numbers]]))


def of_finer(fine: Groups, coarse: Groups) -> Ints:
    """For each fine group the coarse one that it is part of."""
    found = np.zeros(fine.count, dtype=np.int64)
    inside = fine.of_bin != NONE
    found[fine.of_bin[inside]] = coarse.of_bin[inside]
    return found


def how_many(rows: float, noise: float, labels: int) -> int:
    """Groups that a two-way table with so much noise in a cell can bear in a column.

    Up to 32 in proportion to records by noise. Beyond, by the third root: noise grows with the square of the
    groups, and what they hide shrinks as they do, so that is where both are equal.

    >>> [how_many(rows, 40.0, 2) for rows in (500, 30_000, 1_000_000)]
    [3, 32, 104]
    """
    bears = rows / (16 * noise * np.sqrt(labels))
    most = min(_MANY * max(bears / _MANY, 1.0) ** (1 / 3), 16 * _MANY)  # tables of two columns fit into memory
    return int(np.clip(bears, _FEWEST, most))


def how_many_coarse(rows: float, noise: float) -> int:
    """Coarse groups: eight, and more where noise adds a twentieth of the records to a three-way table of them.

    >>> how_many_coarse(30_000, 40.0), how_many_coarse(1_000_000, 40.0)
    (8, 10)
    """
    return int(np.clip((0.05 * rows / noise) ** (1 / 3), _COARSE, _MOST_COARSE))


def probabilities_within(histograms: Histograms, i: int, groups: Groups) -> Floats:
    """Return (groups, cells): how the records of a group are spread over its cells."""
    counts = np.maximum(histograms.levels(i), 1e-9)
    if counts[-1] < 2 * histograms.sigma:
        counts[-1] = 1e-30
    spread = np.zeros((groups.count, len(counts)))
    inside = np.flatnonzero(groups.of_bin != NONE)
    spread[groups.of_bin[inside], inside] = counts[inside]
    spread /= spread.sum(axis=1, keepdims=True)
    return spread


def _of_bin(histograms: Histograms, i: int, bins: Bins, *, most: int, apart: bool, noise: float) -> Ints:
    counts = histograms.levels(i)[:-1]
    if apart:
        of_bin = np.arange(len(counts))
    elif (families := families_of(bins.column)) is not None:
        of_bin = _by_family(counts, families, 2 * histograms.sigma)
    elif bins.starts is None:
        large = counts >= _rarest(histograms, len(counts), noise)
        rare = int((~large).sum())
        of_bin = np.arange(len(counts)) if rare <= 1 else np.where(large, np.cumsum(large) - 1, large.sum())
    else:
        least = max(_mass(counts, histograms.rows, most), min(4 * histograms.sigma, histograms.rows / _FEWEST))
        numbers = counts[: bins.numbers]
        full = np.flatnonzero(numbers) if numbers.any() else np.arange(len(numbers))
        # An empty bin joins the last full one before it, or the first of all: no group is empty.
        before = np.maximum(np.searchsorted(full, np.arange(len(numbers)), side="right") - 1, 0)
        of_bin = merge_neighbours(numbers[full], least, least)[before]
    return _with_others(bins, of_bin)


def _rarest(histograms: Histograms, values: int, noise: float) -> float:
    """What a value must hold to stay apart. Where an even share of the records is within the noise of the
    histogram, that cannot tell which of a few values are rare: then what tables can tell apart stays so."""
    known = values > _FEW_VALUES or histograms.rows / values > _UNKNOWN * histograms.sigma
    return 2 * (histograms.sigma if known else min(histograms.sigma, noise))


def _by_family(counts: Floats, families: Ints, least: float) -> Ints:
    """Each value that holds `least` alone, the others of a family together; of families that hold less, all."""
    large = counts >= least
    scarce = np.bincount(families, np.where(large, 0.0, counts)) < least
    together = len(counts) + np.where(scarce, len(counts), np.arange(len(scarce)))
    _, of_bin = np.unique(np.where(large, np.arange(len(counts)), together[families]), return_inverse=True)
    return of_bin.astype(np.int64)


def _with_others(bins: Bins, of_bin: Ints) -> Ints:
    """Behind the groups of values or numbers, one for each special value and one for the missing."""
    first = int(of_bin.max()) + 1
    special = first + np.arange(bins.values - len(of_bin))
    missing = first + len(special) if bins.column.missing else NONE
    return np.concatenate([of_bin, special, [missing]]).astype(np.int64)


def _mass(counts: Floats, rows: float, most: int) -> float:
    """The mass of a group: what spikes leave, shared out over the groups that they leave, half of all at least."""
    mass = rows / most
    for _ in range(5):
        spikes = counts >= mass
        mass = max(rows - float(counts[spikes].sum()), 0.0) / max(most - int(spikes.sum()), most / 2)
    return mass


def read_groups(array: NDArray[Any], bins: Bins) -> Groups:
    """The groups of a column from a stranger's file."""
    of_bin = ints(array, bins.count, most=2**20)
    values = of_bin if bins.column.missing else of_bin[:-1]
    require(bins.column.missing or of_bin[-1] == NONE, "its groups do not fit their column")
    require(bool(np.array_equal(np.unique(values), np.arange(values.max() + 1))), "its groups have gaps")
    require((int(values.max()) + 1) * bins.count <= 2**25, "its groups are too many")
    return Groups(bins, of_bin)
