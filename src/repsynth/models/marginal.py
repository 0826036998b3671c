"""Marginal models: which two-way tables are measured, in what order, and the model that follows from them.

    pairs        label × column, for every column                              (charge)
    structure    choose a forest of pairs of columns                           (charge)
    synthesis    measure them                                                  (charge)
    and for `aim`, a few times over, on top of what the model knows by then:
    structure k  choose pairs that the model gets wrong, fine or coarse        (charge)
    synthesis k  measure them                                                  (charge)

A record's part in every table, and in every score by which tables are chosen, is at most its weight. Where
nothing is worth choosing, the label's pairs are measured again: no charge is wasted.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from repsynth.encode import Records
from repsynth.measure import Account, sigma_for
from repsynth.models.groups import Groups, choose_groups, coarser, how_many, of_finer
from repsynth.models.pool import Pool, Target, make_pool
from repsynth.models.stages import Measured, StageOne
from repsynth.models.tables import Pair, TableChoice, Tables
from repsynth.models.tree import NoisyTable, Tree, fit_tree
from repsynth.noise import MU_PER_ETA
from repsynth.weigh import FULL

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

PAIRS_A_ROUND = 5
"""How many tables a round of `aim` chooses at most."""

_MEAN_NOISE = math.sqrt(2 / math.pi)  # of |N(0, 1)|
_LEAST_WEIGHT = 0.1


def measure_marginals(
    account: Account,
    data: Iterable[Records],
    stage: StageOne,
    charges: dict[str, float],
    *,
    max_cells: int,
    on_step: Callable[[str], None],
) -> tuple[Measured[Tables], ...]:
    """Carry out the measurements of stage 2; what they leave behind, in order."""
    parts = Parts.of(stage, charges)
    measured: list[Measured[Tables]] = []

    def measure(pairs: Sequence[Pair], name: str) -> None:
        on_step(name)
        tables = Tables(parts.all_groups, tuple(pairs), stage.score, stage.weights, name)
        noisy = account.measure(tables, data, mu=charges[name])
        measured.append(Measured(tables, noisy, sigma_for(tables.sensitivity, charges[name])))

    if parts.label is not None:
        measure(parts.label_pairs, "pairs")
    for name in [name for name in charges if name.startswith("structure")]:
        on_step(name)
        choice = make_choice(parts, measured, charges, name, max_cells=max_cells)
        chosen = account.choose(choice, data, mu=charges[name])
        pairs = [choice.tables.pairs[c] for c in chosen]
        measure(pairs or parts.spare_pairs(measured), name.replace("structure", "synthesis"))
    return tuple(measured)


def fit_marginals(stage: StageOne, measured: Sequence[Measured[Tables]]) -> Tree | Pool:
    """The model of the measurements: post-processing."""
    groups = measured[-1].statistic.groups
    return _fit(Parts(stage, groups[: len(stage.marginals.cells)]), measured)


@dataclass(frozen=True)
class Parts:
    """The columns in groups: fine ones, and behind them the same columns in coarse groups."""

    stage: StageOne
    groups: tuple[Groups, ...]

    @classmethod
    def of(cls, stage: StageOne, charges: dict[str, float]) -> "Parts":
        """Groups by the noise of the tables to come."""
        marginals, label = stage.marginals, stage.schema.label_column
        columns = len(marginals.cells)
        noise = math.sqrt(columns - 1) / charges["pairs" if label else "synthesis"]
        most = how_many(marginals.rows, noise, label.cells if label else 1)
        return cls(stage, choose_groups(marginals, label.name if label else None, most=most))

    @cached_property
    def all_groups(self) -> tuple[Groups, ...]:
        """Fine groups, then coarse ones: column i is coarse at i + number of columns."""
        marginals = self.stage.marginals
        return self.groups + tuple(coarser(marginals, i, groups) for i, groups in enumerate(self.groups))

    @property
    def label(self) -> int | None:
        """The label's position among the columns."""
        column = self.stage.schema.label_column
        return None if column is None else self.stage.schema.learned.index(column)

    @property
    def features(self) -> list[int]:
        """The positions of all other columns."""
        return [i for i in range(len(self.groups)) if i != self.label]

    @property
    def label_pairs(self) -> list[Pair]:
        """Label × column."""
        assert self.label is not None
        return [(self.label, i) for i in self.features]

    @property
    def candidates(self) -> list[Pair]:
        """Column × column."""
        features = self.features
        return [(i, j) for k, j in enumerate(features) for i in features[:k]]

    def coarse_candidates(self) -> list[Pair]:
        """Column × column in coarse groups, where that makes a smaller table."""
        columns = len(self.groups)
        coarse = [((i + columns, j + columns), (i, j)) for i, j in self.candidates]
        return [pair for pair, fine in coarse if self.size(pair) < self.size(fine)]

    def size(self, pair: Pair) -> int:
        """How many cells a table has."""
        return self.all_groups[pair[0]].count * self.all_groups[pair[1]].count

    def spare_pairs(self, measured: Sequence[Measured[Tables]]) -> Sequence[Pair]:
        """What to measure where nothing was chosen: the label's pairs or, without one, what was measured last."""
        if self.label is not None:
            return self.label_pairs
        return measured[-1].statistic.pairs if measured else self.candidates[:1]


def make_choice(
    parts: Parts,
    measured: Sequence[Measured[Tables]],
    charges: dict[str, float],
    name: str,
    *,
    max_cells: int,
) -> TableChoice:
    """The choice of a round: everything in it is public. The first one, called "structure", makes a forest."""
    stage, rows, first = parts.stage, parts.stage.marginals.rows, name == "structure"
    mu = charges[name.replace("structure", "synthesis")]
    most = len(parts.features) - 1 if first else PAIRS_A_ROUND
    rounds = _bearable(most, len(parts.groups), rows, mu, charges[name])
    if not rounds and not measured:
        rounds = 1  # something must be measured
    noise = _MEAN_NOISE * math.sqrt(rounds) / mu  # in a cell, were so many tables measured
    pairs = _worth_a_try(parts, measured, first=first, noise=noise, max_cells=max_cells) if rounds else ()
    tables = Tables(parts.all_groups, pairs, stage.score, stage.weights, name)
    if not pairs:  # only stopping is left
        none = np.zeros(0, dtype=np.int64)
        return TableChoice(tables, none, none, rounds=1, forest=first, name=name)
    model = _fit(parts, measured)
    if isinstance(model, Tree) and not first:
        model = make_pool(model, parts.all_groups)  # it knows coarse pairs, and those further apart
    weight = _weights(parts, measured)
    expected = [rows * weight.of(pair) * model.pair(pair) for pair in pairs]
    return TableChoice(
        tables=tables,
        expected=_integers(np.concatenate([table.ravel() for table in expected]) * FULL),
        cost=_integers(np.array([noise * parts.size(pair) * FULL for pair in pairs])),
        rounds=rounds,
        forest=first,
        name=name,
    )


def _worth_a_try(
    parts: Parts, measured: Sequence[Measured[Tables]], *, first: bool, noise: float, max_cells: int
) -> tuple[Pair, ...]:
    """The pairs to choose from: not yet measured; small enough that noise does not weigh more than all records,
    or they could never be chosen; and, smallest first, as many as fit into memory, crossed with the label."""
    known = {pair for m in measured for pair in m.statistic.pairs}
    candidates = parts.candidates + ([] if first else parts.coarse_candidates())
    left = [p for p in candidates if p not in known and noise * parts.size(p) < 2 * parts.stage.marginals.rows]
    left.sort(key=parts.size)
    labels = 1 if parts.label is None else parts.groups[parts.label].count
    fits = labels * np.cumsum([parts.size(pair) for pair in left]) <= max_cells
    return tuple(sorted(pair for pair, fit in zip(left, fits, strict=True) if fit))


def _integers(values: Floats) -> Ints:
    """Rounded, and so bounded that no sum of them overflows: they are public, so this costs nothing."""
    return np.rint(np.clip(values, 0.0, 2.0**50)).astype(np.int64)


def _bearable(most: int, columns: int, rows: float, mu: float, eta_mu: float) -> int:
    """How many tables to choose: as many as the choice can tell apart by a tenth of the records, and as stand
    above their noise with four by four cells. Where that is none, noise would choose."""
    for tables in range(most, 0, -1):
        eta = eta_mu / math.sqrt(tables) / MU_PER_ETA
        noise = _MEAN_NOISE * math.sqrt(tables) / mu
        if 0.1 * rows * eta >= math.log(columns**2 / 2) and 16 * noise <= 0.1 * rows:
            return tables
    return 0


@dataclass(frozen=True)
class _Weights:
    """About the mean weight of the records in each cell of a table: released values alone."""

    mean: float
    by_group: dict[int, Floats]

    def of(self, pair: Pair) -> Floats | float:
        """By both columns, as if the weights had nothing to do with how they hang together."""
        if not self.by_group:
            return self.mean
        weights: Floats = np.outer(self.by_group[pair[0]], self.by_group[pair[1]]) / self.mean
        return np.clip(weights, _LEAST_WEIGHT, 1.0)


def _weights(parts: Parts, measured: Sequence[Measured[Tables]]) -> _Weights:
    """A column's weights: the margin of its weighted table by label over its histogram, which has no weights."""
    stage, marginals = parts.stage, parts.stage.marginals
    if not stage.weighted:
        return _Weights(1.0, {})
    share = stage.threshold.share if stage.threshold else 0.0
    if parts.label is None:
        return _Weights(float(np.clip(1 - share * (1 - stage.outlier_weight), 0.02, 1.0)), {})
    tables = measured[0].statistic.split(measured[0].noisy)
    mean = float(np.clip(np.mean([table.sum() for table in tables.values()]) / marginals.rows, 0.02, 1.0))
    by_group: dict[int, Floats] = {parts.label: np.full(parts.groups[parts.label].count, mean)}
    columns = len(parts.groups)
    for (_, i), table in tables.items():
        total, error = _histogram(marginals.noisy(i), marginals.sigma, parts.groups[i])
        weight = (np.maximum(table.sum(axis=0), 0.0) + error * mean) / (np.maximum(total, 0.0) + error)
        by_group[i] = np.clip(weight, _LEAST_WEIGHT, 1.0)
        coarse = parts.all_groups[i + columns]
        mass = np.maximum(total, 1e-9)
        of_fine = of_finer(parts.groups[i], coarse)
        by_group[i + columns] = np.bincount(of_fine, by_group[i] * mass) / np.bincount(of_fine, mass)
    return _Weights(mean, by_group)


def _histogram(counts: Floats, sigma: float, groups: Groups) -> tuple[Floats, Floats]:
    """A column's noisy histogram by group, and its standard error."""
    return groups.sum_up(counts), sigma * np.sqrt(groups.sum_up(np.ones(len(counts))))


def _fit(parts: Parts, measured: Sequence[Measured[Tables]]) -> Tree | Pool:
    """A tree of the label's pairs and of the forest; where more was measured, a pool drawn from it and raked."""
    weight = _weights(parts, measured)
    forest = next((k for k, m in enumerate(measured) if m.statistic.name == "synthesis"), len(measured) - 1)
    every = _combined(measured, weight)
    of_tree = {pair for m in measured[: forest + 1] for pair in m.statistic.pairs}
    tables = {pair: table for pair, table in every.items() if pair in of_tree}
    label = parts.label
    tree = fit_tree(
        parts.stage.marginals,
        parts.groups,
        label,
        {j: table for (i, j), table in tables.items() if i == label},
        {pair: table for pair, table in tables.items() if pair[0] != label},
        levels_from_tables=not parts.stage.weighted,
    )
    further = [pair for pair in every if pair not in of_tree]
    if not further:
        return tree
    return make_pool(tree, parts.all_groups).raked_to([Target(pair, every[pair]) for pair in further])


def _combined(measured: Sequence[Measured[Tables]], weight: _Weights) -> dict[Pair, NoisyTable]:
    """Tables at full weight; what was measured twice, by precision."""
    tables: dict[Pair, NoisyTable] = {}
    for m in measured:
        for pair, counts in m.statistic.split(m.noisy).items():
            factor = weight.of(pair)
            table = NoisyTable(counts / factor, np.broadcast_to((m.sigma / FULL / factor) ** 2, counts.shape))
            if pair in tables:
                other = tables[pair]
                precision = 1 / other.variance + 1 / table.variance
                mean = (other.counts / other.variance + table.counts / table.variance) / precision
                table = NoisyTable(mean, 1 / precision)
            tables[pair] = table
    return tables
