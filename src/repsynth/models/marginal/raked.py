"""A pool of records drawn from a tree, with masses such that it agrees with further tables.

Raking the masses to every table gives the model nearest to the tree that has all the tables as margins
(the log-linear one), by Monte Carlo: its size is the pool's, whatever circles the tables form.
"""

from dataclasses import dataclass, replace

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import Records
from repsynth.models.groups import Groups, of_finer
from repsynth.models.marginal.shrinkage import NoisyTable, shrunk
from repsynth.models.marginal.tables import Pair
from repsynth.models.marginal.tree import Tree, rake

_TIMES, _FEWEST, _MOST = 4, 60_000, 200_000
_PASSES = 10


@dataclass(frozen=True)
class Target:
    """A noisy table that the pool should agree with."""

    pair: Pair
    table: NoisyTable


@dataclass(frozen=True)
class Pool:
    """The records (in fine groups, then in coarse ones), their masses, and the tables they agree with."""

    tree: Tree
    groups: tuple[Groups, ...]
    records: Ints  # (records, fine and coarse columns)
    mass: Floats
    further: tuple[tuple[Pair, Floats], ...] = ()

    def pair(self, pair: Pair) -> Floats:
        """(groups, groups): a two-way table of the pool."""
        shape = self.groups[pair[0]].count, self.groups[pair[1]].count
        counts = np.bincount(self._cells(pair), self.mass, minlength=shape[0] * shape[1])
        return counts.reshape(shape).astype(np.float64)

    def raked_to(self, targets: list[Target]) -> "Pool":
        """The pool with masses that agree with these tables, too, as far as they stand above their noise."""
        margins = {i: column.sum(axis=0) for i, column in self.tree.columns.items()}
        further = list(self.further)
        for target in targets:
            i, j = target.pair
            now = self.pair(target.pair)
            table = shrunk(now, target.table, self.tree.histograms.rows, least=0.05)
            table = rake(table, self._margin(i, margins), self._margin(j, margins), passes=10)
            further.append((target.pair, table / table.sum()))
        return replace(self, further=tuple(further), mass=self._raked(further))

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records: drawn from the pool in even steps of its masses."""
        mass = self.mass
        if label is not None:
            assert self.tree.label is not None
            mass = np.where(self.records[:, self.tree.label] == label, mass, 0.0)
            if not mass.any():  # so rare that the pool has none
                return self.tree.draw(rows, generator, label)
        ends = np.cumsum(mass)
        levels = (np.arange(rows) + generator.random()) / max(rows, 1) * ends[-1]
        chosen = np.minimum(np.searchsorted(ends, levels, side="right"), len(ends) - 1)
        columns = len(self.tree.groups)
        return self.tree.decode(self.records[generator.permutation(chosen), :columns], generator)

    def _cells(self, pair: Pair) -> Ints:
        i, j = pair
        return self.records[:, i] * self.groups[j].count + self.records[:, j]

    def _margin(self, i: int, margins: dict[int, Floats]) -> Floats:
        columns = len(self.tree.groups)
        if i < columns:
            return margins[i]
        fine, coarse = self.groups[i - columns], self.groups[i]
        merged = np.bincount(of_finer(fine, coarse), margins[i - columns], minlength=coarse.count)
        return merged.astype(np.float64)

    def _raked(self, further: list[tuple[Pair, Floats]]) -> Floats:
        """The label's pairs come last, so that they hold best."""
        tree = self.tree
        targets = [(self._cells(pair), table.ravel()) for pair, table in reversed(further)]
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


def pool_size(rows: float) -> int:
    """How many records a pool for a table of so many has.

    >>> pool_size(100), pool_size(30_000)
    (60000, 120000)
    """
    return int(np.clip(_TIMES * rows, _FEWEST, _MOST))


def make_pool(tree: Tree, groups: tuple[Groups, ...]) -> Pool:
    """Records drawn from the tree, all of the same mass. A fixed seed: this is post-processing."""
    count = pool_size(tree.histograms.rows)
    fine = tree.draw_groups(count, np.random.default_rng(0))
    coarse = [of_finer(groups[i], g)[fine[:, i]] for i, g in enumerate(groups[len(tree.groups) :])]
    return Pool(tree, groups, np.hstack([fine, np.stack(coarse, axis=1)]), np.full(count, 1 / count))
