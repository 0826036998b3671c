"""A tree of tables given the label: the maximum-entropy model of MST in closed form, except for raking.

    P(label) · Π P(root | label) · Π P(child | label, parent)

The pairs of the label with all columns are measured, and pairs of columns along the edges of a forest. Each triple
(label, parent, child) has its three measured pairs as margins, and is as near as possible to independence given
the label. Margins are combined by precision, noise is reduced by shrinkage, and raking makes the tables agree.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.estimation import posterior_means, to_simplex
from repsynth.columns.groups import Groups
from repsynth.columns.value_sampler import Quotas, Shape, SortedRecords, shapes_of, systematic, values_of
from repsynth.io.records import Records, join
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.statistics import Domain, NoisyTable, Pair, by_precision

_DOUBT = 0.1  # scale of the relative error of the weight correction
_LEAST = 0.02  # smallest probability of a cell, relative to the expected one
_MOST_CELLS = 2**22  # numbers in a message; more records are completed in parts
_VARIANCES = 4.0 ** np.arange(-3, 7)
"""Variances of the mixture of `shrunk`, in units of the noise's, for a cell of mean size."""


@dataclass(frozen=True)
class Branch:
    """A column and the columns that it is drawn from: the label, and its parent if it has one.

    Records are sorted by their group in the grandparent's column, so that the draw does not depend on it.
    """

    column: int
    parent: int | None
    grandparent: int | None
    quotas: Quotas  # (labels × groups of the parent, groups)


@dataclass(frozen=True)
class Tree:
    """The fitted model: joint probabilities of fine groups."""

    histograms: Histograms
    domain: Domain
    label_probabilities: Floats  # (labels,)
    columns: dict[int, Floats]  # (labels, groups) of every other column
    edges: dict[Pair, Floats]  # (labels, groups, groups)

    def independent(self, pairs: Sequence[Pair]) -> list[Floats]:
        """Return (labels, groups, groups) of two columns that are independent given the label."""
        given = {i: self.columns[i] / self.label_probabilities[:, None] for i in {i for i, _ in pairs}}
        return [given[i][:, :, None] * self.columns[j][:, None, :] for i, j in pairs]

    def tables(self, pairs: Sequence[Pair]) -> dict[Pair, Floats]:
        """Return (groups, groups) of columns without an edge."""
        given = {i: (self.columns[i] / self.label_probabilities[:, None]).T for i in {i for i, _ in pairs}}
        return {(i, j): given[i] @ self.columns[j] for i, j in pairs}

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The pairs along the edges, then those of the label."""
        groups = self.domain.groups
        return tuple((groups[i], groups[j]) for i, j in (*self.edges, *self.domain.label_pairs))

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
        return shapes_of(self.histograms, self.domain.groups[: self.domain.columns])

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """The columns in the order of drawing: each root, then breadth first along the edges from it."""
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
                    given = joint.reshape(-1, joint.shape[2]) + 1e-300
                    branches.append(Branch(child, parent, above[parent], Quotas.of(given)))
                    above[child] = parent
                    front.append(child)
        return tuple(branches)

    def draw_groups(self, rows: int, generator: np.random.Generator) -> Ints:
        """Return (records, columns): the group of each record."""
        drawn = np.zeros((rows, self.domain.columns), dtype=np.int64)
        for column, line, group in self._walk(rows, generator):
            drawn[:, column] = line.put(group)
        return drawn

    def _walk(
        self, rows: int, generator: np.random.Generator, given_label: int | None = None
    ) -> Iterator[tuple[int, SortedRecords, Ints]]:
        """Draw each column's groups by quotas, from the label and the roots to the leaves."""
        labels = len(self.label_probabilities)
        label = np.full(rows, given_label or 0, dtype=np.int64)
        if given_label is None and labels > 1:
            label = systematic(self.label_probabilities, rows, generator)
        if self.domain.label is not None:
            yield self.domain.label, SortedRecords.as_they_are(rows), label
        asked = {i for branch in self.branches for i in (branch.parent, branch.grandparent)}
        drawn: dict[int, Ints] = {}
        for branch in self.branches:
            given, order = label, None
            if branch.parent is not None:
                given = label * self.domain.sizes[branch.parent] + drawn[branch.parent]
                order = None if branch.grandparent is None else drawn[branch.grandparent]
            line = SortedRecords.of(given, branch.quotas.rows, generator, order)
            group = branch.quotas.along(line, generator)
            if branch.column in asked:
                drawn[branch.column] = line.put(group)
            yield branch.column, line, group

    def decode(self, drawn: Ints, generator: np.random.Generator) -> Records:
        """Return values for groups, (records, columns)."""
        return values_of(drawn, self._shapes, self.domain.label, generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the other columns by belief propagation: messages go up the tree, draws go down."""
        widest = max(self.domain.sizes) * len(self.label_probabilities)
        many = max(1, _MOST_CELLS // widest)
        starts = range(0, max(given.rows, 1), many)
        parts = [self._complete(given.take(np.arange(a, min(a + many, given.rows))), generator) for a in starts]
        names = [shape.bins.column.name for shape in self._shapes]
        records = join([records for records, _ in parts], names)
        return Completed.exactly(records, np.concatenate([possible for _, possible in parts]))

    def _complete(self, given: Records, generator: np.random.Generator) -> tuple[Records, Bools]:
        axes = enumerate(self.domain.groups[: self.domain.columns])
        known = {i: groups.of(given) for i, groups in axes if groups.bins.column.name in given.codes}
        at_label, below, possible = _messages(self, known, given.rows)
        label = draw_each(at_label, generator)
        drawn: dict[int, Ints] = {} if self.domain.label is None else {self.domain.label: label}
        for branch in self.branches:
            i, row = branch.column, label
            if branch.parent is not None:
                row = label * self.domain.sizes[branch.parent] + drawn[branch.parent]
            if i in known:
                drawn[i] = known[i]
            else:
                masses = branch.quotas.probabilities[row]
                if i in below:
                    masses = masses * below[i][np.arange(given.rows), label]
                drawn[i] = draw_each(masses, generator)
        codes = {}
        for i, group in drawn.items():
            shape = self._shapes[i]
            level = generator.integers(0, 2**32, len(group), dtype=np.uint32)
            codes[shape.bins.column.name] = shape.codes(group, level, generator.random(len(group)))
        return with_given(Records(rows=given.rows, codes=codes), given), possible


def _messages(tree: Tree, known: dict[int, Ints], rows: int) -> tuple[Floats, dict[int, Floats], Bools]:
    """Pass messages from the leaves to the label.

    Return the masses of the labels given all known columns, (records, labels); the messages from below to each
    column's groups, (records, labels, groups); and which records are possible.
    """
    labels = len(tree.label_probabilities)
    below: dict[int, Floats] = {}
    at_label: Floats = np.tile(tree.label_probabilities, (rows, 1))
    if tree.domain.label in known:
        at_label = np.eye(labels)[known[tree.domain.label]]
    possible = np.ones(rows, dtype=np.bool_)
    for branch in reversed(tree.branches):
        message = _message(branch, labels, known.get(branch.column), below.get(branch.column))
        if message is None:
            continue
        largest = message.reshape(rows, -1).max(axis=1)
        possible &= largest > 0
        message = message / np.where(largest > 0, largest, 1.0).reshape(-1, *([1] * (message.ndim - 1)))
        if branch.parent is None:
            at_label = at_label * message
        elif branch.parent in below:
            below[branch.parent] = below[branch.parent] * message
        else:
            below[branch.parent] = message
    return at_label, below, possible & (at_label.sum(axis=1) > 0)


def _message(branch: Branch, labels: int, known: Ints | None, below: Floats | None) -> Floats | None:
    """Return the message of a column to the label or its parent, None if its subtree has no known column.

    The shape is (records, labels) for a root, else (records, labels, groups of the parent).
    """
    table = branch.quotas.probabilities
    by = "lg" if branch.parent is None else "lpg"
    table = table.reshape((labels, -1) if branch.parent is None else (labels, -1, table.shape[1]))
    if known is not None:
        message: Floats = np.moveaxis(table[..., known], -1, 0)
        if below is not None:
            at_group = below[np.arange(len(known)), :, known]  # (records, labels)
            message = message * (at_group if branch.parent is None else at_group[:, :, None])
        return message
    if below is None:
        return None
    found: Floats = np.einsum(f"{by},rlg->r{by[:-1]}", table, below, optimize=True)
    return found


# --- estimation ----------------------------------------------------------------------------------------------


def fit_tree(
    histograms: Histograms,
    domain: Domain,
    levels: Mapping[int, NoisyTable],
    tables: Mapping[Pair, NoisyTable],
    *,
    unsure: Mapping[int, Floats] | None,
) -> Tree:
    """Fit the tree to noisy tables: (labels, groups) of label pairs, (groups, groups) of edges.

    `levels` holds the released histogram of each column by group, which determines the frequencies of groups. With
    `unsure`, the tables determine them, too. `unsure` is the relative error of the weight correction in each
    group, in units of `_DOUBT`.
    """
    label, rows = domain.label, histograms.rows
    by_label = {j: table for (i, j), table in tables.items() if i == label}
    edges = {pair: table for pair, table in tables.items() if pair[0] != label}
    totals = dict(levels)
    if unsure is not None:
        for i in totals:
            if margins := _margins(i, label, by_label, edges):
                seen = by_precision(margins)
                doubt = np.square(_DOUBT * unsure[i] * seen.counts)
                totals[i] = by_precision([totals[i], NoisyTable(seen.counts, seen.variance + doubt)])
    p_label = np.ones(1)
    if label is not None:
        p_label = np.maximum(to_simplex(totals[label].counts / rows), min(0.02, 0.2 / domain.sizes[label]))
        p_label = p_label / p_label.sum()
    ones = {i: np.maximum(to_simplex(totals[i].counts / rows), 1e-6) for i in domain.features}
    ones = {i: one / one.sum() for i, one in ones.items()}
    columns = {i: p_label[:, None] * one for i, one in ones.items()}
    found = shrunk([columns[i] for i in by_label], list(by_label.values()), rows)
    columns |= dict(zip(by_label, found, strict=True))
    if label is not None:
        columns = {i: rake(column, [(1, ones[i]), (0, p_label)], passes=20) for i, column in columns.items()}
    tree = Tree(histograms, domain, p_label, columns, {})
    expected = tree.independent(list(edges))
    pairs = shrunk([each.sum(axis=0) for each in expected], list(edges.values()), rows)
    joints = {}
    for (i, j), given_label, pair in zip(edges, expected, pairs, strict=True):
        pair = rake(pair, [(1, columns[j].sum(axis=0)), (0, columns[i].sum(axis=0))], passes=20)
        joints[i, j] = rake(given_label, [((1, 2), pair), ((0, 2), columns[j]), ((0, 1), columns[i])], passes=25)
    return Tree(histograms, domain, p_label, columns, joints)


def _margins(
    i: int, label: int | None, by_label: Mapping[int, NoisyTable], edges: Mapping[Pair, NoisyTable]
) -> list[NoisyTable]:
    """Return the margins of column i in all tables."""
    summed = [(table, 1) for table in by_label.values()] if i == label else []
    summed += [(by_label[i], 0)] if i in by_label else []
    summed += [(table, 1 if edge[0] == i else 0) for edge, table in edges.items() if i in edge]
    return [NoisyTable(table.counts.sum(axis=axis), table.variance.sum(axis=axis)) for table, axis in summed]


def rake(table: Floats, margins: Sequence[tuple[int | tuple[int, ...], Floats]], passes: int) -> Floats:
    """Scale a table to its margins by iterative proportional fitting; the last one holds exactly.

    Each margin names the axes that it keeps.

    >>> rake(np.ones((2, 2)), [(1, np.array([0.5, 0.5])), (0, np.array([0.3, 0.7]))], passes=3).round(3).tolist()
    [[0.15, 0.15], [0.35, 0.35]]
    """
    kept = [(axes,) if isinstance(axes, int) else axes for axes, _ in margins]
    others = [tuple(axis for axis in range(table.ndim) if axis not in axes) for axes in kept]
    for _ in range(passes):
        for axes, (_, margin) in zip(others, margins, strict=True):
            now = table.sum(axis=axes, keepdims=True)
            table = table * (margin.reshape(now.shape) / np.maximum(now, 1e-300))
    return table


def shrunk(expected: Sequence[Floats], tables: Sequence[NoisyTable], rows: float) -> list[Floats]:
    """Return the probabilities of the cells of all tables by shrinkage towards `expected` (empirical Bayes).

    The difference of a cell from its expectation follows a mixture: zero, normal with one of several variances
    that grow with the expectation, or minus the expectation, for empty cells. All tables together determine the
    mixture. So a few large differences survive among much noise, and differences everywhere survive as they are.
    """
    if not tables:
        return []
    flat = np.concatenate([each.ravel() for each in expected])
    size = np.concatenate([((each + 1e-9) / (each + 1e-9).mean()).ravel() for each in expected])
    noise = np.concatenate([np.sqrt(table.variance).ravel() for table in tables]) / rows + 1e-150
    counts = np.concatenate([table.counts.ravel() for table in tables])
    none = np.zeros_like(flat)
    variances = np.stack([none, *np.multiply.outer(_VARIANCES, size), none])
    centres = np.stack([*(none for _ in variances[1:]), -flat / noise])
    found = flat + posterior_means((counts / rows - flat) / noise, centres, variances) * noise
    found = np.maximum(found, _LEAST * flat + 1e-12)
    ends = np.cumsum([each.size for each in expected])[:-1]
    return [part.reshape(each.shape) for part, each in zip(np.split(found, ends), expected, strict=True)]
