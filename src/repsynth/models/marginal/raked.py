"""A pool of records drawn from a tree, with masses such that it agrees with further tables.

Raking the masses to every table gives the model nearest to the tree that has all the tables as margins
(the log-linear one), by Monte Carlo: its size is the pool's, whatever circles the tables form.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.columns.groups import Groups, of_finer
from repsynth.data.records import Records
from repsynth.models.completing import Completed, with_given
from repsynth.models.marginal.shrinkage import NoisyTable, shrunk
from repsynth.models.marginal.tables import Pair, cells_of
from repsynth.models.marginal.tree import Tree

_TIMES, _FEWEST, _MANY, _MOST = 4, 60_000, 200_000, 4_000_000
_PASSES = 10
_WORTH = 10
"""Records of the pool that a completed one is chosen from, at least, in effect."""


@dataclass(frozen=True)
class Target:
    """A noisy table that the pool should agree with."""

    columns: Pair
    table: NoisyTable


@dataclass(frozen=True)
class Pool:
    """The records (in fine groups, then in coarse ones), their masses, and the tables they agree with."""

    tree: Tree
    groups: tuple[Groups, ...]
    records: Int32s  # (fine and coarse columns, records)
    mass: Floats
    further: tuple[tuple[Pair, Floats], ...] = ()

    def table(self, columns: Pair) -> Floats:
        """The pool's table of some columns, an axis for each."""
        shape = tuple(self.groups[i].count for i in columns)
        counts = np.bincount(self._cells(columns), self.mass, minlength=int(np.prod(shape)))
        return counts.reshape(shape).astype(np.float64)

    def raked_to(self, targets: Sequence[Target]) -> "Pool":
        """The pool with masses that agree with these tables, too, as far as they stand above their noise."""
        further = list(self.further)
        now = [self.table(target.columns) for target in targets]
        tables = shrunk(now, [target.table for target in targets], self.tree.histograms.rows)
        for target, table in zip(targets, tables, strict=True):
            table = rake_axes(table, [self._margin(i) for i in target.columns], passes=10)
            further.append((target.columns, table / table.sum()))
        return replace(self, further=tuple(further), mass=self._raked(further))

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The further tables, then those of the tree."""
        further = [tuple(self.groups[i] for i in columns) for columns, _ in reversed(self.further)]
        return (*further, *self.tree.crossed)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records: drawn from the pool in even steps of its masses."""
        mass = self.mass
        if label is not None:
            assert self.tree.label is not None
            mass = np.where(self.records[self.tree.label] == label, mass, 0.0)
            if not mass.any():  # so rare that the pool has none
                return self.tree.draw(rows, generator, label)
        ends = np.cumsum(mass)
        levels = (np.arange(rows) + generator.random()) / max(rows, 1) * ends[-1]
        chosen = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
        columns = len(self.tree.groups)
        drawn = self.records[:columns, generator.permutation(chosen)].T
        return self.tree.decode(drawn.astype(np.int64), generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """The columns that are not given: of a record of the pool with the same groups in those that are, by mass.
        Where these are worth too few, by the tree alone."""
        columns = len(self.tree.groups)
        known = [i for i in range(columns) if self.tree.groups[i].bins.column.name in given.codes]
        alike = self._alike(tuple(known))
        kind = alike.of_rows(np.stack([self.tree.groups[i].of(given) for i in known], axis=1))
        effective = alike.effective[kind]
        chosen = alike.choose(kind, generator.random(given.rows))
        drawn = self.records[:columns, chosen].T.astype(np.int64)
        records = with_given(self.tree.decode(drawn, generator), given)
        few = np.flatnonzero(effective < _WORTH)
        if not few.size:
            return Completed(records, np.ones(given.rows, dtype=np.bool_), effective)
        alone = self.tree.complete(given.take(few), generator)
        for name, codes in alone.records.codes.items():
            records.codes[name][few] = codes
        possible = np.ones(given.rows, dtype=np.bool_)
        possible[few], effective[few] = alone.possible, alone.effective
        return Completed(records, possible, effective)

    def _alike(self, columns: tuple[int, ...]) -> "_Alike":
        """The pool by the groups of some columns; kept, as many rows may ask for it."""
        if columns not in self._found:
            self._found[columns] = _Alike.of(self.records[list(columns)].T, self.mass)
        return self._found[columns]

    @cached_property
    def _found(self) -> "dict[tuple[int, ...], _Alike]":
        return {}

    def _cells(self, columns: Pair) -> Int32s:
        shape = tuple(self.groups[i].count for i in columns)
        return cells_of([self.records[i] for i in columns], shape)

    def _margin(self, i: int) -> Floats:
        """The probabilities of a column's groups, fine or coarse."""
        tree, columns = self.tree, len(self.tree.groups)
        column = i % columns
        margin = tree.label_probabilities if column == tree.label else tree.columns[column].sum(axis=0)
        if i < columns:
            return margin
        fine, coarse = self.groups[column], self.groups[i]
        merged = np.bincount(of_finer(fine, coarse), margin, minlength=coarse.count)
        return merged.astype(np.float64)

    def _raked(self, further: list[tuple[Pair, Floats]]) -> Floats:
        """The label's pairs come last, so that they hold best."""
        tree = self.tree
        targets = [(self._cells(columns), table.ravel()) for columns, table in reversed(further)]
        targets += [(self._cells(pair), joint.sum(axis=0).ravel()) for pair, joint in tree.edges.items()]
        if tree.label is not None:
            targets += [(self._cells((tree.label, i)), column.ravel()) for i, column in tree.columns.items()]
        mass = np.full(len(self.mass), 1 / len(self.mass))
        for _ in range(_PASSES):
            for cells, wanted in targets:
                now = np.bincount(cells, mass, minlength=len(wanted))
                ratio = np.where(now > 0, wanted / np.maximum(now, 1e-300), 1.0)
                mass = mass * np.clip(ratio, 0.2, 5.0)[cells]
            mass = mass / mass.sum()
        return mass


@dataclass(frozen=True)
class _Alike:
    """The records of a pool lined up by kind: by what they have in some columns."""

    kinds: NDArray[Any]  # sorted
    order: Ints
    ends: Floats  # of the masses along the line
    first: Floats  # where each kind begins, and behind the last one
    effective: Floats  # records of each kind, in effect; the last entry is for what is none of them

    @classmethod
    def of(cls, records: Int32s, mass: Floats) -> "_Alike":
        kinds, which = np.unique(_as_bytes(records), return_inverse=True)
        order = np.argsort(which, kind="stable")
        total, squares = (np.bincount(which, each, minlength=len(kinds) + 1) for each in (mass, mass**2))
        first = np.concatenate([[0.0], np.cumsum(total)])
        return cls(kinds, order, np.cumsum(mass[order]), first, total**2 / np.maximum(squares, 1e-300))

    def of_rows(self, rows: Ints) -> Ints:
        """The kind of each row, behind the last one where the pool has none such."""
        wanted = _as_bytes(rows)
        place = np.searchsorted(self.kinds, wanted)
        same = self.kinds[np.minimum(place, len(self.kinds) - 1)] == wanted
        return np.where(same, place, len(self.kinds))

    def choose(self, kind: Ints, level: Floats) -> Ints:
        """A record of each kind, by mass."""
        at = self.first[kind] + (1 - level) * (self.first[kind + 1] - self.first[kind])
        return self.order[np.minimum(np.searchsorted(self.ends, at), len(self.order) - 1)]


def _as_bytes(rows: Ints | Int32s) -> NDArray[Any]:
    """Each row as one value that can be sorted and looked up."""
    whole = np.ascontiguousarray(rows, dtype=">u4")
    return whole.view(f"V{4 * whole.shape[1]}").ravel()


def rake_axes(table: Floats, margins: list[Floats], *, passes: int) -> Floats:
    """A table of any number of columns, scaled to the margin of each.

    >>> rake_axes(np.ones((2, 2)), [np.array([0.3, 0.7]), np.array([0.5, 0.5])], passes=3).round(3).tolist()
    [[0.15, 0.15], [0.35, 0.35]]
    """
    for _ in range(passes):
        for axis, margin in enumerate(margins):
            others = tuple(other for other in range(table.ndim) if other != axis)
            now = table.sum(axis=others, keepdims=True)
            table = table * (margin.reshape(now.shape) / np.maximum(now, 1e-300))
    return table


def pool_size(rows: float, *, columns: int, max_cells: int) -> int:
    """How many records a pool for a table of so many has: four times as many and, from 200,000 on, as many, as
    long as they fit into the memory of so many cells; four million at most.

    The records' groups, their cells in every table that is raked to, and what drawing them takes are counted.

    >>> [pool_size(rows, columns=15, max_cells=2**26) for rows in (100, 30_000, 10**6, 10**7)]
    [60000, 120000, 1000000, 1579032]
    """
    wanted = min(max(np.clip(_TIMES * rows, _FEWEST, _MANY), rows), _MOST)
    return int(min(wanted, max(16 * max_cells / (32 * columns + 200), _FEWEST)))


def make_pool(tree: Tree, groups: tuple[Groups, ...], count: int) -> Pool:
    """So many records drawn from the tree, all of the same mass. A fixed seed: this is post-processing.

    They are lined up by their groups, along the tree: even steps through a pool in order take of like records as
    many as their masses say, where steps through a shuffled one would draw at random.
    """
    fine = tree.draw_groups(count, np.random.default_rng(0))
    fine = fine[np.argsort(_places(tree, fine), kind="stable")]
    records = np.empty((len(groups), count), dtype=np.int32)
    records[: len(tree.groups)] = fine.T
    for i, coarse in enumerate(groups[len(tree.groups) :]):
        records[len(tree.groups) + i] = of_finer(groups[i], coarse)[fine[:, i]]
    return Pool(tree, groups, records, np.full(count, 1 / count))


def _places(tree: Tree, fine: Ints) -> Ints:
    """Where each record stands in a line by label, then by column from the roots on, as far as 62 bits reach."""
    columns = [branch.column for branch in tree.branches]
    place, count = np.zeros(len(fine), dtype=np.int64), 1
    for i in columns if tree.label is None else [tree.label, *columns]:
        count *= tree.groups[i].count
        if count > 2**62:
            break
        place = place * tree.groups[i].count + fine[:, i]
    return place
