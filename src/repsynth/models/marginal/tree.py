"""A tree that knows the label: every column by label, and pairs of columns along a forest, made consistent.

    P(label) · Π P(root | label) · Π P(child | label, parent)

The label's pairs are measured for all columns, pairs of columns along the chosen edges. Each triple
(label, parent, child) is the one nearest to independence given the label that has its three measured pairs
as margins. No graphical model has to be fitted: margins are combined by their precision, noise is shrunk
away, and raking makes the tables agree.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.estimation import to_simplex
from repsynth.columns.groups import Groups
from repsynth.columns.value_sampler import Line, Quotas, Shape, shapes_of, systematic, values_of
from repsynth.data.records import Records, join
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.marginal.shrinkage import NoisyTable, by_precision, shrunk
from repsynth.models.marginal.tables import Pair

_MOST_CELLS = 2**22
"""Numbers in a message at most: more records are completed one part after the other."""
_DOUBT = 0.1  # of what weights take from a group, how much is not known


@dataclass(frozen=True)
class Branch:
    """A column by what it is drawn from: the label alone, or the label and its parent. Records are lined up by
    their group in the grandparent's column, so that the draw does not depend on it."""

    column: int
    parent: int | None
    grandparent: int | None
    quotas: Quotas  # (labels × groups of the parent, groups)


@dataclass(frozen=True)
class Tree:
    """The fitted model: joint probabilities of groups. `label` is the label's position, where there is one."""

    histograms: Histograms
    groups: tuple[Groups, ...]
    label: int | None
    label_probabilities: Floats  # (labels,)
    columns: dict[int, Floats]  # (labels, groups) of every other column
    edges: dict[Pair, Floats]  # (labels, groups, groups)

    def independent(self, i: int, j: int) -> Floats:
        """(labels, groups, groups) of two columns that are independent given the label."""
        joint: Floats = np.einsum("ya,yb,y->yab", self.columns[i], self.columns[j], 1 / self.label_probabilities)
        return joint

    def table(self, pair: Pair) -> Floats:
        """Return (groups, groups) of two columns without an edge."""
        i, j = pair
        joint: Floats = (self.columns[i] / self.label_probabilities[:, None]).T @ self.columns[j]
        return joint

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The pairs along the edges, then those of the label."""
        pairs = [*self.edges, *((self.label, i) for i in self.columns if self.label is not None)]
        return tuple((self.groups[i], self.groups[j]) for i, j in pairs)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        codes = {}
        for column, line, group in self._walk(rows, generator, label):
            shape = self._shapes[column]
            if shape.alone is not None:
                found = shape.alone.take(group)
            else:
                level = line.round(1) + generator.integers(0, 2**32, dtype=np.uint32)
                found = shape.codes(group, level, generator.random(rows))
            codes[shape.bins.column.name] = line.put(found)
        return Records(rows=rows, codes=codes)

    @cached_property
    def _shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.histograms, self.groups)

    @cached_property
    def branches(self) -> tuple["Branch", ...]:
        """The columns in the order of drawing: each root, then along the edges from it, nearest first."""
        above: dict[int, int | None] = {}
        branches = []
        left = dict(self.edges)
        for root in [*(i for i, _ in self.edges), *self.columns]:
            if root in above:
                continue
            above[root] = None
            branches.append(Branch(root, None, None, Quotas.of(self.columns[root] + 1e-300)))
            front = [root]
            while front:
                parent = front.pop(0)
                for edge in [edge for edge in left if parent in edge]:
                    child = edge[1] if edge[0] == parent else edge[0]
                    joint = left.pop(edge)
                    joint = joint if edge[0] == parent else joint.transpose(0, 2, 1)
                    given = joint.reshape(-1, self.groups[child].count) + 1e-300
                    branches.append(Branch(child, parent, above[parent], Quotas.of(given)))
                    above[child] = parent
                    front.append(child)
        return tuple(branches)

    def draw_groups(self, rows: int, generator: np.random.Generator) -> Ints:
        """(records, columns): the group of each record."""
        drawn = np.zeros((rows, len(self.groups)), dtype=np.int64)
        for column, line, group in self._walk(rows, generator):
            drawn[:, column] = line.put(group)
        return drawn

    def _walk(
        self, rows: int, generator: np.random.Generator, given_label: int | None = None
    ) -> Iterator[tuple[int, Line, Ints]]:
        """Each column's groups along its line, drawn by quota from the label and the roots to the leaves."""
        labels = len(self.label_probabilities)
        label = np.full(rows, given_label or 0, dtype=np.int64)
        if given_label is None and labels > 1:
            label = systematic(self.label_probabilities, rows, generator)
        if self.label is not None:
            yield self.label, Line.as_they_are(rows), label
        asked = {i for branch in self.branches for i in (branch.parent, branch.grandparent)}
        drawn: dict[int, Ints] = {}
        for branch in self.branches:
            given, order = label, None
            if branch.parent is not None:
                given = label * self.groups[branch.parent].count + drawn[branch.parent]
                order = None if branch.grandparent is None else drawn[branch.grandparent]
            line = Line.of(given, branch.quotas.rows, generator, order)
            group = branch.quotas.along(line, generator)
            if branch.column in asked:
                drawn[branch.column] = line.put(group)
            yield branch.column, line, group

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the columns that are not given by their exact probabilities given the others."""
        return complete_by_tree(self, given, generator)

    def values(self, drawn: Mapping[int, Ints], generator: np.random.Generator) -> Records:
        """From groups, by column, to values, each record by itself."""
        codes = {}
        for i, group in drawn.items():
            shape = self._shapes[i]
            level = generator.integers(0, 2**32, len(group), dtype=np.uint32)
            codes[shape.bins.column.name] = shape.codes(group, level, generator.random(len(group)))
        return Records(rows=len(next(iter(drawn.values()))), codes=codes)

    def decode(self, drawn: Ints, generator: np.random.Generator) -> Records:
        return values_of(drawn, self._shapes, self.label, generator)


def fit_tree(
    histograms: Histograms,
    groups: tuple[Groups, ...],
    label: int | None,
    by_label: dict[int, NoisyTable],
    edges: dict[Pair, NoisyTable],
    *,
    levels_from_tables: bool,
    unsure: Mapping[int, Floats],
) -> Tree:
    """Fit the tree to noisy tables: (labels, groups) of each column, (groups, groups) of each edge.

    How frequent values are follows from stage 1 alone, and with `levels_from_tables` from the tables, too: these
    need an estimate of what weights take from a group. `unsure` is its relative error, up to a factor.
    """
    features = [i for i in range(len(groups)) if i != label]
    totals = {i: _from_stage_one(histograms, i, groups[i]) for i in range(len(groups))}

    if levels_from_tables:
        for i in totals:
            if tables := _margins(i, label, by_label, edges):
                seen = by_precision(tables)
                doubt = np.square(_DOUBT * unsure[i] * seen.counts)
                totals[i] = by_precision([totals[i], NoisyTable(seen.counts, seen.variance + doubt)])
    p_label = np.ones(1)
    if label is not None:
        labels = groups[label].count
        p_label = np.maximum(to_simplex(totals[label].counts / histograms.rows), min(0.02, 0.2 / labels))
        p_label = p_label / p_label.sum()
    ones = {i: _proper(totals[i], histograms.rows) for i in features}
    columns = {i: p_label[:, None] * ones[i] for i in features}
    told = shrunk([columns[i] for i in by_label], list(by_label.values()), histograms.rows)
    columns |= dict(zip(by_label, told, strict=True))
    for i in features:
        if label is None:
            continue
        columns[i] = rake(columns[i], p_label, ones[i])
    tree = Tree(histograms, groups, label, p_label, columns, {})
    expected = [tree.independent(i, j) for i, j in edges]
    pairs = shrunk([each.sum(axis=0) for each in expected], list(edges.values()), histograms.rows)
    joints = {}
    for (i, j), given_label, pair in zip(edges, expected, pairs, strict=True):
        pair = rake(pair, columns[i].sum(axis=0), columns[j].sum(axis=0))
        joints[i, j] = rake_three(given_label, columns[i], columns[j], pair)
    return Tree(histograms, groups, label, p_label, columns, joints)


def _margins(
    i: int, label: int | None, by_label: dict[int, NoisyTable], edges: dict[Pair, NoisyTable]
) -> list[NoisyTable]:
    if i == label:
        return [_margin(table, 1) for table in by_label.values()]
    of_label = [_margin(by_label[i], 0)] if i in by_label else []
    return of_label + [_margin(table, 1 if edge[0] == i else 0) for edge, table in edges.items() if i in edge]


def _from_stage_one(histograms: Histograms, i: int, groups: Groups) -> NoisyTable:
    return NoisyTable(groups.sum_up(histograms.levels(i)), groups.sum_up(histograms.variances(i)))


def _margin(table: NoisyTable, axis: int) -> NoisyTable:
    return NoisyTable(table.counts.sum(axis=axis), table.variance.sum(axis=axis))


def _proper(total: NoisyTable, rows: float) -> Floats:
    """Return the probabilities of groups from noisy counts: none is 0."""
    proper: Floats = np.maximum(to_simplex(total.counts / rows), 1e-6)
    return proper / float(proper.sum())


def rake(table: Floats, rows: Floats, columns: Floats, passes: int = 20) -> Floats:
    """The table scaled to its two margins, the first one exactly (iterative proportional fitting).

    >>> rake(np.ones((2, 2)), np.array([0.3, 0.7]), np.array([0.5, 0.5])).round(3).tolist()
    [[0.15, 0.15], [0.35, 0.35]]
    """
    for _ in range(passes):
        table = table * (rows / np.maximum(table.sum(axis=1), 1e-300))[:, None]
        table = table * (columns / np.maximum(table.sum(axis=0), 1e-300))
    raked: Floats = table * (rows / np.maximum(table.sum(axis=1), 1e-300))[:, None]
    return raked


def rake_three(triple: Floats, by_first: Floats, by_second: Floats, pair: Floats, passes: int = 25) -> Floats:
    """(labels, a, b) scaled to its margins (labels, a), (labels, b) and (a, b); the first one exactly."""
    for _ in range(passes):
        triple = triple * (pair / np.maximum(triple.sum(axis=0), 1e-300))
        triple = triple * (by_first / np.maximum(triple.sum(axis=2), 1e-300))[:, :, None]
        triple = triple * (by_second / np.maximum(triple.sum(axis=1), 1e-300))[:, None, :]
    raked: Floats = triple * (by_first / np.maximum(triple.sum(axis=2), 1e-300))[:, :, None]
    return raked


# Conditional sampling


def complete_by_tree(tree: Tree, given: Records, generator: np.random.Generator) -> Completed:
    """Draw the columns that are not given by belief propagation: messages go up to the label, draws go down."""
    widest = max(groups.count for groups in tree.groups) * len(tree.label_probabilities)
    many = max(1, _MOST_CELLS // widest)
    starts = range(0, max(given.rows, 1), many)
    parts = [_complete(tree, given.take(np.arange(a, min(a + many, given.rows))), generator) for a in starts]
    names = [groups.bins.column.name for groups in tree.groups]
    records = join([records for records, _ in parts], names)
    return Completed.exactly(records, np.concatenate([possible for _, possible in parts]))


def _complete(tree: Tree, given: Records, generator: np.random.Generator) -> tuple[Records, Bools]:
    known = {i: groups.of(given) for i, groups in enumerate(tree.groups) if groups.bins.column.name in given.codes}
    at_label, told, possible = _messages(tree, known, given.rows)
    label = draw_each(at_label, generator)
    drawn: dict[int, Ints] = {} if tree.label is None else {tree.label: label}
    for branch in tree.branches:
        i, row = branch.column, label
        if branch.parent is not None:
            row = label * tree.groups[branch.parent].count + drawn[branch.parent]
        if i in known:
            drawn[i] = known[i]
        else:
            masses = branch.quotas.probabilities[row]
            if i in told:
                masses = masses * told[i][np.arange(given.rows), label]
            drawn[i] = draw_each(masses, generator)
    return with_given(tree.values(drawn, generator), given), possible


def _messages(tree: Tree, known: dict[int, Ints], rows: int) -> tuple[Floats, dict[int, Floats], Bools]:
    """The labels' masses given everything, (records, labels); what is given below each column's groups,
    (records, labels, groups); and which records can be at all."""
    labels = len(tree.label_probabilities)
    told: dict[int, Floats] = {}
    at_label: Floats = np.tile(tree.label_probabilities, (rows, 1))
    if tree.label in known:
        at_label = np.eye(labels)[known[tree.label]]
    possible = np.ones(rows, dtype=np.bool_)
    for branch in reversed(tree.branches):
        message = _message(tree, branch, known.get(branch.column), told.get(branch.column))
        if message is None:
            continue
        largest = message.reshape(rows, -1).max(axis=1)
        possible &= largest > 0
        message = message / np.where(largest > 0, largest, 1.0).reshape(-1, *([1] * (message.ndim - 1)))
        if branch.parent is None:
            at_label = at_label * message
        elif branch.parent in told:
            told[branch.parent] = told[branch.parent] * message
        else:
            told[branch.parent] = message
    return at_label, told, possible & (at_label.sum(axis=1) > 0)


def _message(tree: Tree, branch: Branch, known: Ints | None, told: Floats | None) -> Floats | None:
    """(records, labels) of a root, (records, labels, groups of the parent) of any other; None where nothing is
    given there."""
    labels, groups = len(tree.label_probabilities), tree.groups[branch.column].count
    table = branch.quotas.probabilities
    by = "lg" if branch.parent is None else "lpg"
    table = table.reshape((labels, groups) if branch.parent is None else (labels, -1, groups))
    if known is not None:
        message: Floats = np.moveaxis(table[..., known], -1, 0)
        if told is not None:
            below = told[np.arange(len(known)), :, known]  # (records, labels)
            message = message * (below if branch.parent is None else below[:, :, None])
        return message
    if told is None:
        return None
    found: Floats = np.einsum(f"{by},rlg->r{by[:-1]}", table, told, optimize=True)
    return found
