"""What a record counts for on average in each cell of a weighted table, so that tables can be scaled back up.

First from the tables themselves, then from records drawn from the model that was fitted with that: the weight of a
record is a public function of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.groups import of_finer
from repsynth.models.marginal.label_tables import LabelTables
from repsynth.models.marginal.raked import make_pool
from repsynth.models.marginal.tables import Pair, Tables
from repsynth.models.marginal.tree import Tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.scoring.weights import FULL

DRAWN = 50_000
"""Records that tell what each group weighs."""

_LEAST_MEAN = 0.02  # over all records: where none counts, nothing is scaled up without end
_LEAST_WEIGHT = 0.1  # that tables are scaled up by: noise grows with them
_FEW = 30.0  # drawn records of a cell that count as much as what its groups say


@dataclass(frozen=True)
class MeanWeights:
    """About the mean weight of the records in each group of a column and in each cell of a table: released values
    alone, or weights of drawn records."""

    mean: float
    by_group: dict[int, Floats]
    drawn: Ints | None = None
    """(views, records): the groups of drawn records."""
    weights: Floats | None = None

    def of(self, cross: Pair) -> Floats | float:
        """By all columns, as if weights had nothing to do with how these depend on each other; where records were
        drawn, as these say where there are many."""
        if not self.by_group:
            return self.mean
        found = self.by_group[cross[0]]
        for i in cross[1:]:
            found = np.multiply.outer(found, self.by_group[i]) / self.mean
        found = np.clip(found, _LEAST_WEIGHT, 1.0)
        if self.drawn is not None and self.weights is not None:
            cell = np.ravel_multi_index(tuple(self.drawn[i] for i in cross), found.shape)
            count = np.bincount(cell, minlength=found.size).reshape(found.shape)
            total = np.bincount(cell, self.weights, minlength=found.size).reshape(found.shape)
            found = np.clip((total + _FEW * found) / (count + _FEW), _LEAST_WEIGHT, 1.0)
        return found


@dataclass(frozen=True)
class Weights:
    """What a record counts for on average: in tables its weight, in the label's what clipping leaves of it."""

    in_tables: MeanWeights
    with_label: MeanWeights

    def unsure(self, i: int) -> Floats:
        """How far the mean of each group of a column may be off, as a fraction of it and up to a factor: not at
        all where all records count in full."""
        weights = self.with_label.by_group.get(i, np.ones(1))
        return np.sqrt((1 - weights) / weights)

    def of(self, tables: Tables | LabelTables) -> MeanWeights:
        return self.with_label if isinstance(tables, LabelTables) else self.in_tables


def measured_weights(views: Views, measured: Sequence[Measured]) -> Weights:
    """A column's weights: the margin of its weighted table by label over its histogram, which has no weights."""
    stage, histograms = views.stage, views.stage.histograms
    full = MeanWeights(1.0, {})
    if views.label is None:
        fraction = stage.threshold.fraction if stage.threshold else 0.0
        mean = float(np.clip(1 - fraction * (1 - stage.outlier_weight), _LEAST_MEAN, 1.0))
        return Weights(MeanWeights(mean, {}), full)
    tables = measured[0].tables.split(measured[0].noisy)
    mean = float(np.clip(np.mean([table.sum() for table in tables.values()]) / histograms.rows, _LEAST_MEAN, 1.0))
    by_group: dict[int, Floats] = {views.label: np.full(views.groups[views.label].count, mean)}
    for (_, i), table in tables.items():
        total, error = _histogram(views, i)
        weight = (np.maximum(table.sum(axis=0), 0.0) + error * mean) / (np.maximum(total, 0.0) + error)
        by_group[i] = np.clip(weight, _LEAST_WEIGHT, 1.0)
    found = MeanWeights(mean, by_group | _coarse(views, by_group))
    return Weights(found if stage.weighted else full, found)


def expected_weights(views: Views, measured: Sequence[Measured], tree: Tree) -> Weights:
    """Return the mean weights of records drawn from a model: the weight is a public function of a record."""
    drawn = make_pool(tree, views.all_groups, DRAWN).records.astype(np.int64)
    records = tree.decode(drawn[: len(views.groups)].T, np.random.default_rng(0))
    tables, weights = measured[0].tables, views.stage.weights.of(views.stage.score.of(records))
    with_label = tables.clipped(records, weights) if isinstance(tables, LabelTables) else weights
    return Weights(_means(views, drawn, weights / FULL), _means(views, drawn, with_label / FULL))


def _means(views: Views, drawn: Ints, weights: Floats) -> MeanWeights:
    mean = max(float(weights.mean()), _LEAST_MEAN)
    by_group = {}
    for i, groups in enumerate(views.all_groups):
        count = np.bincount(drawn[i], minlength=groups.count)
        total = np.bincount(drawn[i], weights, minlength=groups.count)
        by_group[i] = np.clip((total + _FEW * mean) / (count + _FEW), _LEAST_WEIGHT, 1.0)
    return MeanWeights(mean, by_group, drawn, weights)


def _coarse(views: Views, by_group: dict[int, Floats]) -> dict[int, Floats]:
    """The mean weights of coarse groups, from those of the groups in them."""
    found, columns = {}, len(views.groups)
    for i, weights in by_group.items():
        coarse = views.all_groups[i + columns]
        mass = np.maximum(_histogram(views, i)[0], 1e-9)
        of_fine = of_finer(views.groups[i], coarse)
        found[i + columns] = np.bincount(of_fine, weights * mass) / np.bincount(of_fine, mass)
    return found


def _histogram(views: Views, i: int) -> tuple[Floats, Floats]:
    """A column's noisy histogram by group, and its standard error."""
    histograms, groups = views.stage.histograms, views.groups[i]
    return groups.sum_up(histograms.noisy(i)), np.sqrt(groups.sum_up(histograms.variances(i)))
