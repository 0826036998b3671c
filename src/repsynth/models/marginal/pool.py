"""A pool of weighted records, drawn from a tree and raked to further tables: the model of AIM.

Raking the masses to every table gives the model nearest to the tree that has all the tables as margins (the
log-linear one), by Monte Carlo. Its size is that of the pool, even if the tables form cycles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.columns.groups import Groups
from repsynth.io.records import Records
from repsynth.models.completing import Completed, with_given
from repsynth.models.marginal.tree import Tree, rake, shrunk
from repsynth.models.statistics import NoisyTable, Pair

_SMALLEST, _LARGEST = 120_000, 4_000_000


@dataclass(frozen=True)
class Pool:
    """Records by axis of the domain, with masses that agree with the further tables."""

    tree: Tree
    records: Int32s  # (axes, records)
    mass: Floats
    further: dict[Pair, Floats]

    def tables(self, pairs: Sequence[Pair]) -> dict[Pair, Floats]:
        """Return the pool's tables."""
        sizes, found = self.tree.domain.sizes, {}
        for i, j in pairs:
            counts = np.bincount(self._cells(i, j), self.mass, minlength=sizes[i] * sizes[j])
            found[i, j] = counts.reshape(sizes[i], sizes[j]).astype(np.float64, copy=False)
        return found

    def _cells(self, i: int, j: int) -> Int32s:
        cells: Int32s = self.records[i] * np.int32(self.tree.domain.sizes[j]) + self.records[j]
        return cells

    def raked_to(self, targets: Mapping[Pair, NoisyTable]) -> "Pool":
        """Return the pool with masses that agree with these noisy tables, after shrinkage."""
        pairs = list(targets)
        expected = list(self.tables(pairs).values())
        tables = shrunk(expected, list(targets.values()), self.tree.histograms.rows)
        margins = {i: self._margin(i) for i in {i for pair in pairs for i in pair}}
        further = {}
        for (i, j), table in zip(pairs, tables, strict=True):
            raked = rake(table, [(0, margins[i]), (1, margins[j])], passes=10)
            further[i, j] = raked / raked.sum()
        return replace(self, further=further, mass=self._raked(further))

    def _margin(self, i: int) -> Floats:
        """Return the probabilities of the groups of an axis."""
        tree, domain = self.tree, self.tree.domain
        column = i % domain.columns
        margin = tree.label_probabilities if column == domain.label else tree.columns[column].sum(axis=0)
        if i < domain.columns:
            return margin
        merged = np.bincount(domain.coarse_of_fine[column], margin, minlength=domain.sizes[i])
        return merged.astype(np.float64)

    def _raked(self, further: dict[Pair, Floats], passes: int = 10) -> Floats:
        """Return masses that agree with all tables. The label's pairs come last, so they hold best."""
        tree = self.tree
        wanted = [*reversed(further.items()), *((pair, joint.sum(axis=0)) for pair, joint in tree.edges.items())]
        wanted += [((k, i), tree.columns[i]) for k, i in tree.domain.label_pairs]
        targets = [(self._cells(*pair), table.ravel()) for pair, table in wanted]
        mass = np.full(len(self.mass), 1 / len(self.mass))
        for _ in range(passes):
            for cells, table in targets:
                now = np.bincount(cells, mass, minlength=len(table))
                ratio = np.where(now > 0, table / np.maximum(now, 1e-300), 1.0)
                mass = mass * np.clip(ratio, 0.2, 5.0)[cells]
            mass = mass / mass.sum()
        return mass

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The further tables, then those of the tree."""
        groups = self.tree.domain.groups
        return (*((groups[i], groups[j]) for i, j in reversed(self.further)), *self.tree.crossed)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Draw synthetic records by systematic sampling of the pool."""
        mass, domain = self.mass, self.tree.domain
        if label is not None:
            assert domain.label is not None
            mass = np.where(self.records[domain.label] == label, mass, 0.0)
            if not mass.any():  # the pool has no record with this label
                return self.tree.draw(rows, generator, label)
        ends = np.cumsum(mass)
        levels = (np.arange(rows) + generator.random()) / max(rows, 1) * ends[-1]
        chosen = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
        drawn = self.records[: domain.columns, generator.permutation(chosen)].T
        return self.tree.decode(drawn.astype(np.int64), generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the columns that are not given from the pool's records that agree with the given groups.

        If the effective size of such records is below ten, the tree alone completes the row.
        """
        columns = self.tree.domain.columns
        axes = enumerate(self.tree.domain.groups[:columns])
        known = {i: groups.of(given) for i, groups in axes if groups.bins.column.name in given.codes}
        matches = self._matches(tuple(known))
        kind = matches.kinds_of(np.stack(list(known.values()), axis=1))
        effective = matches.effective[kind]
        drawn = self.records[:columns, matches.choose(kind, generator.random(given.rows))].T.astype(np.int64)
        records = with_given(self.tree.decode(drawn, generator), given)
        possible = np.ones(given.rows, dtype=np.bool_)
        few = np.flatnonzero(effective < 10)
        if few.size:
            alone = self.tree.complete(given.take(few), generator)
            for name, codes in alone.records.codes.items():
                records.codes[name][few] = codes
            possible[few], effective[few] = alone.possible, alone.effective
        return Completed(records, possible, effective)

    def _matches(self, columns: tuple[int, ...]) -> "_Matches":
        if columns not in self._kept:
            self._kept[columns] = _Matches.of(self.records[list(columns)].T, self.mass)
        return self._kept[columns]

    @cached_property
    def _kept(self) -> "dict[tuple[int, ...], _Matches]":
        return {}


@dataclass(frozen=True)
class _Matches:
    """The records of a pool sorted by kind: by their groups in some columns."""

    kinds: NDArray[Any]  # sorted
    order: Ints
    ends: Floats  # cumulative masses in this order
    first: Floats  # where each kind begins, and where the last one ends
    effective: Floats  # effective size of each kind; the last entry is for no match

    @classmethod
    def of(cls, records: Int32s, mass: Floats) -> "_Matches":
        kinds, which = np.unique(_as_bytes(records), return_inverse=True)
        order = np.argsort(which, kind="stable")
        total, squares = (np.bincount(which, each, minlength=len(kinds) + 1) for each in (mass, mass**2))
        first = np.concatenate([[0.0], np.cumsum(total)])
        return cls(kinds, order, np.cumsum(mass[order]), first, total**2 / np.maximum(squares, 1e-300))

    def kinds_of(self, rows: Ints) -> Ints:
        """Return the kind of each row; the number of kinds where the pool has no match."""
        wanted = _as_bytes(rows)
        place = np.searchsorted(self.kinds, wanted)
        same = self.kinds[np.minimum(place, len(self.kinds) - 1)] == wanted
        return np.where(same, place, len(self.kinds))

    def choose(self, kind: Ints, level: Floats) -> Ints:
        """Return a record of each kind, by mass."""
        at = self.first[kind] + (1 - level) * (self.first[kind + 1] - self.first[kind])
        return self.order[np.minimum(np.searchsorted(self.ends, at), len(self.order) - 1)]


def _as_bytes(rows: Ints | Int32s) -> NDArray[Any]:
    """Return each row as one value that can be sorted and looked up."""
    whole = np.ascontiguousarray(rows, dtype=">u4")
    return whole.view(f"V{4 * whole.shape[1]}").ravel()


def pool_size(rows: float, *, columns: int, max_cells: int) -> int:
    """Return the size of the pool for a table of this many rows, within the memory of `max_cells` cells.

    The memory holds the records' groups, their cells in every table, and temporary arrays.

    >>> [pool_size(rows, columns=15, max_cells=2**26) for rows in (100, 30_000, 10**6, 10**7)]
    [120000, 120000, 1000000, 1579032]
    """
    return int(min(np.clip(rows, _SMALLEST, _LARGEST), max(16 * max_cells / (32 * columns + 200), _SMALLEST / 2)))


def make_pool(tree: Tree, count: int) -> Pool:
    """Draw a pool of records of equal mass from the tree. This is post-processing, with a fixed seed.

    Records are sorted along the tree, because systematic sampling follows the masses of sorted records more
    closely.
    """
    domain, fine = tree.domain, tree.draw_groups(count, np.random.default_rng(0))
    fine = fine[np.argsort(_sort_keys(tree, fine), kind="stable")]
    records = np.empty((len(domain.groups), count), dtype=np.int32)
    records[: domain.columns] = fine.T
    for i, coarse in enumerate(domain.coarse_of_fine):
        records[domain.columns + i] = coarse[fine[:, i]]
    return Pool(tree, records, np.full(count, 1 / count), {})


def _sort_keys(tree: Tree, fine: Ints) -> Ints:
    """Return 62-bit keys that sort records by label, then by column from the roots on, as many as fit."""
    columns, sizes = [branch.column for branch in tree.branches], tree.domain.sizes
    key, count = np.zeros(len(fine), dtype=np.int64), 1
    for i in columns if tree.domain.label is None else [tree.domain.label, *columns]:
        count *= sizes[i]
        if count > 2**62:
            break
        key = key * sizes[i] + fine[:, i]
    return key
