"""Completing records by a tree: exact, by messages from what is given up to the label and back.

A message says for each label and each group of a column's parent how likely what is given below it is. Only
branches below which something is given send one. Then label and groups are drawn from the roots to the leaves.
"""

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.records import Records, join
from repsynth.models.completing import Completed, draw_each, with_given
from repsynth.models.marginal.tree import Branch, Tree

_MOST_CELLS = 2**22
"""Numbers in a message at most: more records are completed one part after the other."""


def complete_by_tree(tree: Tree, given: Records, generator: np.random.Generator) -> Completed:
    """The records with the columns that are not given, drawn by the tree's probabilities given the others."""
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
