"""The model that follows from noisy tables: a tree and, where more was measured, a pool raked to it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.groups import Groups, of_finer
from repsynth.models.marginal.raked import Pool, Target, make_pool
from repsynth.models.marginal.shrinkage import NoisyTable
from repsynth.models.marginal.tables import Cross
from repsynth.models.marginal.tree import Tree, fit_tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.scoring.weights import FULL

FOREST = "tables"
"""The measurement whose tables, with those of the label, make the tree."""

_LEAST_WEIGHT = 0.1


@dataclass(frozen=True)
class MeanWeights:
    """About the mean weight of the records in each cell of a table: released values alone."""

    mean: float
    by_group: dict[int, Floats]

    def of(self, pair: Cross) -> Floats | float:
        """By all columns, as if weights had nothing to do with how these depend on each other."""
        if not self.by_group:
            return self.mean
        weights = self.by_group[pair[0]]
        for i in pair[1:]:
            weights = np.multiply.outer(weights, self.by_group[i]) / self.mean
        return np.clip(weights, _LEAST_WEIGHT, 1.0)


def mean_weights(views: Views, measured: Sequence[Measured]) -> MeanWeights:
    """A column's weights: the margin of its weighted table by label over its histogram, which has no weights."""
    stage, histograms = views.stage, views.stage.histograms
    if not stage.weighted:
        return MeanWeights(1.0, {})
    fraction = stage.threshold.fraction if stage.threshold else 0.0
    if views.label is None:
        return MeanWeights(float(np.clip(1 - fraction * (1 - stage.outlier_weight), 0.02, 1.0)), {})
    tables = measured[0].tables.split(measured[0].noisy)
    mean = float(np.clip(np.mean([table.sum() for table in tables.values()]) / histograms.rows, 0.02, 1.0))
    columns = len(views.groups)
    of_label = np.full(views.groups[views.label].count, mean)
    by_group: dict[int, Floats] = {views.label: of_label, views.label + columns: of_label}
    for (_, i), table in tables.items():
        total, error = _histogram(histograms.noisy(i), histograms.sigma, views.groups[i])
        weight = (np.maximum(table.sum(axis=0), 0.0) + error * mean) / (np.maximum(total, 0.0) + error)
        by_group[i] = np.clip(weight, _LEAST_WEIGHT, 1.0)
        coarse = views.all_groups[i + columns]
        mass = np.maximum(total, 1e-9)
        of_fine = of_finer(views.groups[i], coarse)
        by_group[i + columns] = np.bincount(of_fine, by_group[i] * mass) / np.bincount(of_fine, mass)
    return MeanWeights(mean, by_group)


def _histogram(counts: Floats, sigma: float, groups: Groups) -> tuple[Floats, Floats]:
    """A column's noisy histogram by group, and its standard error."""
    return groups.sum_up(counts), sigma * np.sqrt(groups.sum_up(np.ones(len(counts))))


def fit_views(views: Views, measured: Sequence[Measured], *, max_cells: int) -> Tree | Pool:
    """A tree of the label's pairs and of the forest; where more was measured, a pool drawn from it and raked:
    to pairs, and then to triples, of which the pairs are known."""
    weight = mean_weights(views, measured)
    forest = next((k for k, m in enumerate(measured) if m.tables.name == FOREST), len(measured) - 1)
    every = _combined(measured, weight)
    of_tree = {pair for m in measured[: forest + 1] for pair in m.tables.pairs}
    tables = {pair: table for pair, table in every.items() if pair in of_tree}
    label = views.label
    tree = fit_tree(
        views.stage.histograms,
        views.groups,
        label,
        {j: table for (i, j), table in tables.items() if i == label},
        {(i, j): table for (i, j), table in tables.items() if i != label},
        levels_from_tables=not views.stage.weighted,
    )
    further = [pair for pair in every if pair not in of_tree]
    if not further:
        return tree
    pool = make_pool(tree, views.all_groups, max_cells=max_cells)
    for columns in (2, 3):
        targets = [Target(cross, every[cross]) for cross in further if len(cross) == columns]
        pool = pool.raked_to(targets) if targets else pool
    return pool


def _combined(measured: Sequence[Measured], weight: MeanWeights) -> dict[Cross, NoisyTable]:
    """Tables at full weight; what was measured twice, by precision."""
    tables: dict[Cross, NoisyTable] = {}
    for m in measured:
        for pair, counts in m.tables.split(m.noisy).items():
            factor = weight.of(pair)
            table = NoisyTable(counts / factor, np.broadcast_to((m.sigma / FULL / factor) ** 2, counts.shape))
            if pair in tables:
                other = tables[pair]
                precision = 1 / other.variance + 1 / table.variance
                mean = (other.counts / other.variance + table.counts / table.variance) / precision
                table = NoisyTable(mean, 1 / precision)
            tables[pair] = table
    return tables
