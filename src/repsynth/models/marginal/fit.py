"""The model that follows from noisy tables: a tree and, where more was measured, a pool raked to it."""

from collections.abc import Sequence

import numpy as np

from repsynth.models.marginal.label_tables import LabelTables
from repsynth.models.marginal.mean_weights import MeanWeights, Weights, expected_weights, measured_weights
from repsynth.models.marginal.raked import Pool, Target, make_pool, pool_size
from repsynth.models.marginal.shrinkage import NoisyTable, by_precision
from repsynth.models.marginal.tables import Cross
from repsynth.models.marginal.tree import Tree, fit_tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.models.marginal.zeros import possible_cells

FOREST = "tables"
"""The measurement whose tables, with those of the label, make the tree."""


def pool_of(tree: Tree, views: Views, max_cells: int) -> Pool:
    """The pool of a tree, as large as its table asks for and as fits into memory."""
    count = pool_size(tree.histograms.rows, columns=len(tree.groups), max_cells=max_cells)
    return make_pool(tree, views.all_groups, count)


def fit_views(views: Views, measured: Sequence[Measured], *, max_cells: int) -> tuple[Tree | Pool, MeanWeights]:
    """A tree of the label's pairs and of the forest; where more was measured, a pool drawn from it and raked: to
    pairs, and then to triples, of which the pairs are known. And the mean weights in tables."""
    weights = measured_weights(views, measured)
    plain = not views.stage.weighted and not any(isinstance(m.tables, LabelTables) for m in measured)
    tree = _fit_tree(views, measured, weights, levels_from_tables=plain)
    if not plain and views.label is not None:
        weights = expected_weights(views, measured, tree)
        tree = _fit_tree(views, measured, weights, levels_from_tables=True)
    of_tree = _of_tree(measured)
    further = {cross: table for cross, table in _combined(measured, weights).items() if cross not in of_tree}
    if not further:
        return tree, weights.in_tables
    pool = pool_of(tree, views, max_cells)
    for columns in (2, 3):
        targets = [Target(cross, table) for cross, table in further.items() if len(cross) == columns]
        pool = pool.raked_to(targets) if targets else pool
    return pool, weights.in_tables


def _of_tree(measured: Sequence[Measured]) -> set[Cross]:
    forest = next((k for k, m in enumerate(measured) if m.tables.name == FOREST), len(measured) - 1)
    return {pair for m in measured[: forest + 1] for pair in m.tables.pairs}


def _fit_tree(views: Views, measured: Sequence[Measured], weights: Weights, *, levels_from_tables: bool) -> Tree:
    of_tree, label = _of_tree(measured), views.label
    tables = {pair: table for pair, table in _combined(measured, weights).items() if pair in of_tree}
    return fit_tree(
        views.stage.histograms,
        views.groups,
        label,
        {j: table for (i, j), table in tables.items() if i == label},
        {(i, j): table for (i, j), table in tables.items() if i != label},
        levels_from_tables=levels_from_tables,
        unsure={i: weights.unsure(i) for i in range(len(views.groups))},
        possible={pair: possible_cells(views.stage.schema, *(views.groups[i] for i in pair)) for pair in tables},
    )


def _combined(measured: Sequence[Measured], weights: Weights) -> dict[Cross, NoisyTable]:
    """Tables at full weight; what was measured twice, by precision."""
    tables: dict[Cross, NoisyTable] = {}
    for m in measured:
        variances = m.tables.variances(m.sigma)
        for pair, counts in m.tables.split(m.noisy).items():
            factor = weights.of(m.tables).of(pair)
            table = NoisyTable(counts / factor, variances[pair] / np.square(factor))
            tables[pair] = by_precision([tables[pair], table]) if pair in tables else table
    return tables
