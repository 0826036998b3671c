"""What a record counts for on average in each cell of a weighted table, so that tables can be scaled back up.

First from the tables themselves, then from records drawn from the model that was fitted with that: the weight of a
record is a public function of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.models.groups import of_finer
from repsynth.models.marginal.label_tables import LabelTables
from repsynth.models.marginal.raked import make_pool
from repsynth.models.marginal.tables import Cross, Tables
from repsynth.models.marginal.tree import Tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL

DRAWN = 50_000
"""Records that tell what each group weighs."""

_LEAST_MEAN = 0.02  # over all records: where none counts, nothing is scaled up without end
_LEAST_WEIGHT = 0.1  # that tables are scaled up by: noise grows with them
_FEW = 30.0  # drawn records of a cell that count as much as what its groups say
_OFF = 0.1  # how far a mean weight may be off before the tables have said it


@dataclass(frozen=True)
class MeanWeights:
    """About the mean weight of the records in each group of a column and in each cell of a table: released values
    alone, or weights of drawn records."""

    mean: float
    by_group: dict[int, Floats]
    drawn: Ints | None = None
    """(views, records): the groups of drawn records."""
    weights: Floats | None = None

    def of(self, cross: Cross) -> Floats | float:
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
    """What a record counts for on average: in tables its weight, in those of the label also what clipping leaves.
    `error` is how far the mean f of a group may be off, in units of √(f (1 − f)): it is sure where all or none of
    its records are outliers."""

    in_tables: MeanWeights
    with_label: MeanWeights
    error: float = 0.0

    def errors(self, i: int) -> Floats:
        """How far, as a fraction of itself, the mean of each group of a column may be off."""
        weights = self.with_label.by_group.get(i, np.ones(1))
        return self.error * np.sqrt((1 - weights) / weights)

    def of(self, tables: Tables | LabelTables) -> MeanWeights:
        """Those of a statistic."""
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
    """The same from a model: weights are a public function of a record, so records drawn from the model tell what
    each group weighs, with their scores as they are or levelled, whichever counts for as much as the tables say in
    all. How far that is off, the margins of the measured tables tell."""
    drawn = make_pool(tree, views.all_groups, DRAWN).records.astype(np.int64)
    records = tree.decode(drawn[: len(views.groups)].T, np.random.default_rng(0))
    stage = views.stage
    tables, scores = measured[0].tables, stage.score.of(records)
    seen = measured_weights(views, measured).with_label.mean

    def counted(weights: Ints) -> Ints:
        """What records of these weights count for where the label's tables are measured."""
        # Earlier releases have plain counts there.
        return tables.clipped(records, weights) if isinstance(tables, LabelTables) else weights

    both = [stage.weights.of(each) for each in (scores, _levelled(stage, scores))]
    weights = min(both, key=lambda each: abs(float(counted(each).mean()) / FULL - seen))
    in_tables, with_label = (_means(views, drawn, each / FULL) for each in (weights, counted(weights)))
    found = Weights(in_tables, with_label)
    return replace(found, error=_error(views, measured, found))


def _levelled(stage: StageOne, scores: Ints) -> Ints:
    """The scores of drawn records, moved so that as many lie above the threshold as should of the real ones: the
    noise in a model makes its records stand out more. Where many records have one score, that may be wrong."""
    if stage.threshold is None:
        return scores
    now = np.quantile(scores, 1 - stage.threshold.fraction, method="higher")
    return scores - int(now) + stage.threshold.value


def _means(views: Views, drawn: Ints, weights: Floats) -> MeanWeights:
    mean = max(float(weights.mean()), _LEAST_MEAN)
    by_group = {}
    for i, groups in enumerate(views.all_groups):
        count = np.bincount(drawn[i], minlength=groups.count)
        total = np.bincount(drawn[i], weights, minlength=groups.count)
        by_group[i] = np.clip((total + _FEW * mean) / (count + _FEW), _LEAST_WEIGHT, 1.0)
    return MeanWeights(mean, by_group, drawn, weights)


def _error(views: Views, measured: Sequence[Measured], weights: Weights) -> float:
    """How much more than their noise the margins of tables differ from what weights make of the histograms."""
    signal = weight = 0.0
    for m in measured:
        by_group, variances = weights.of(m.tables).by_group, m.tables.variances(m.sigma)
        for cross, table in m.tables.split(m.noisy).items():
            for axis, i in enumerate(cross):
                if i >= len(views.groups):
                    continue
                others = tuple(other for other in range(len(cross)) if other != axis)
                total, error = _histogram(views, i)
                expected = by_group[i] * np.maximum(total, 0.0)
                noise = variances[cross].sum(axis=others) + (by_group[i] * error) ** 2
                prior = expected**2 * (1 - by_group[i]) / by_group[i]
                scale = prior / (noise + _OFF**2 * prior + 1e-9) ** 2
                signal += float((((table.sum(axis=others) - expected) ** 2 - noise) * scale).sum())
                weight += float((prior * scale).sum())
    return math.sqrt(max(signal / max(weight, 1e-300), 0.0))


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
    counts = histograms.noisy(i)
    return groups.sum_up(counts), histograms.sigma * np.sqrt(groups.sum_up(np.ones(len(counts))))
