"""The mean weight of the records in each cell of a weighted table, so that tables can be scaled up.

First estimates come from the tables themselves. Better ones come from records drawn from a model that was fitted
with the first estimates, because the weight of a record is a public function of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.models.marginal.pool import make_pool
from repsynth.models.marginal.tree import Tree
from repsynth.models.statistics import Domain, LabelTables, MeasuredTables, NoisyTable, Pair
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL

DRAWN = 50_000
"""Records that are drawn to estimate mean weights."""

_LEAST_WEIGHT = 0.1  # tables, and their noise, are scaled up by at most its inverse
_FEW = 30.0  # weight of the estimate from the margins, in drawn records of a cell


@dataclass(frozen=True)
class MeanWeights:
    """The mean weight of the records in each group of an axis and in each cell of a table."""

    mean: float
    by_axis: Mapping[int, Floats]
    drawn: Ints | None = None  # (axes, records): the groups of drawn records
    weights: Floats | None = None

    def of(self, pair: Pair) -> Floats | float:
        """Return the mean weights of a table's cells.

        The estimate from the margins assumes that the two columns affect the weight independently. In cells with
        many drawn records, their mean weight replaces it.
        """
        if not self.by_axis:
            return self.mean
        i, j = pair
        found = np.multiply.outer(self.by_axis[i], self.by_axis[j]) / self.mean
        found = np.clip(found, _LEAST_WEIGHT, 1.0)
        if self.drawn is not None and self.weights is not None:
            cell = self.drawn[i] * found.shape[1] + self.drawn[j]
            count = np.bincount(cell, minlength=found.size).reshape(found.shape)
            total = np.bincount(cell, self.weights, minlength=found.size).reshape(found.shape)
            found = np.clip((total + _FEW * found) / (count + _FEW), _LEAST_WEIGHT, 1.0)
        return found

    def weighted(self, tables: Mapping[Pair, Floats]) -> list[Floats]:
        """Scale tables of counts down, in place, to tables of weighted counts."""
        for pair, table in tables.items():
            table *= self.of(pair)
        return list(tables.values())


@dataclass(frozen=True)
class WeightCorrection:
    """The mean weights in plain tables and, after clipping, in the label tables."""

    in_tables: MeanWeights
    with_label: MeanWeights

    def unsure(self, columns: int) -> dict[int, Floats]:
        """Return the relative error of each group's mean weight up to a common factor; 0 if all weights are 1."""
        weights = {i: self.with_label.by_axis.get(i, np.ones(1)) for i in range(columns)}
        return {i: np.sqrt((1 - each) / each) for i, each in weights.items()}

    def at_full_weight(self, measured: MeasuredTables) -> dict[Pair, NoisyTable]:
        """Return measured tables scaled up to full weight."""
        mean = self.with_label if isinstance(measured.tables, LabelTables) else self.in_tables
        found = {}
        for pair, table in measured.noisy_tables.items():
            factor = mean.of(pair)
            found[pair] = NoisyTable(table.counts / factor, table.variance / np.square(factor))
        return found


def correction_from_tables(
    stage: StageOne, domain: Domain, measured: Sequence[MeasuredTables], histograms: Mapping[int, NoisyTable]
) -> WeightCorrection:
    """Compare the margins of the label tables with the `histograms` of stage 1, which have no weights."""
    full = MeanWeights(1.0, {})
    if domain.label is None:
        fraction = stage.threshold.fraction if stage.threshold else 0.0
        mean = max(1 - fraction * (1 - stage.outlier_weight), _LEAST_WEIGHT)
        return WeightCorrection(MeanWeights(mean, {}), full)
    tables = {i: table.counts for (_, i), table in measured[0].noisy_tables.items()}
    mass = float(np.mean([table.sum() for table in tables.values()]))
    mean = float(np.clip(mass / stage.histograms.rows, _LEAST_WEIGHT, 1.0))
    by_axis: dict[int, Floats] = {domain.label: np.full(domain.sizes[domain.label], mean)}
    for i, table in tables.items():
        counts, error = np.maximum(histograms[i].counts, 0.0), np.sqrt(histograms[i].variance)
        weight = (np.maximum(table.sum(axis=0), 0.0) + error * mean) / (counts + error)
        by_axis[i] = np.clip(weight, _LEAST_WEIGHT, 1.0)
    for i, coarse in enumerate(domain.coarse_of_fine):
        counts = np.maximum(histograms[i].counts, 1e-9)
        by_axis[i + domain.columns] = np.bincount(coarse, by_axis[i] * counts) / np.bincount(coarse, counts)
    found = MeanWeights(mean, by_axis)
    return WeightCorrection(found if stage.weighted else full, found)


def correction_from_model(
    stage: StageOne, domain: Domain, measured: Sequence[MeasuredTables], tree: Tree
) -> WeightCorrection:
    """Return the mean weights of records drawn from a model."""
    drawn = make_pool(tree, DRAWN).records.astype(np.int64)
    records = tree.decode(drawn[: domain.columns].T, np.random.default_rng(0))
    tables, weights = measured[0].tables, stage.weights.of(stage.score.of(records))
    with_label = weights
    if isinstance(tables, LabelTables):
        with_label = tables.multiplier(tables.cells(records), weights)
    return WeightCorrection(_of_drawn(domain, drawn, weights / FULL), _of_drawn(domain, drawn, with_label / FULL))


def _of_drawn(domain: Domain, drawn: Ints, weights: Floats) -> MeanWeights:
    mean = max(float(weights.mean()), _LEAST_WEIGHT)
    by_axis = {}
    for i, size in enumerate(domain.sizes):
        count = np.bincount(drawn[i], minlength=size)
        total = np.bincount(drawn[i], weights, minlength=size)
        by_axis[i] = np.clip((total + _FEW * mean) / (count + _FEW), _LEAST_WEIGHT, 1.0)
    return MeanWeights(mean, by_axis, drawn, weights)
