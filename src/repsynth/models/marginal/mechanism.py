"""The marginal mechanism: select tables, measure them, estimate a model. MST and AIM are two settings of it.

    label tables    measure label × column for every column                            (charge)
    choice          select a forest of pairs of columns                                (charge)
    tables          measure them                                                       (charge)
    and in further rounds k = 2, 3, ...:
    choice k        select pairs, in fine or coarse groups, that the model gets wrong   (charge)
    tables k        measure them                                                       (charge)

With the first round alone this is MST (McKenna, Miklau and Sheldon 2021), with more it is AIM (McKenna, Mullins,
Sheldon and Miklau 2022). A record's part in every table and in every utility is at most its weight (REPS).
Where noise would select, a round measures the last tables again: the number of rounds follows from the budget.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.groups import Groups
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.models.marginal.label_tables import LabelTables, make_label_tables
from repsynth.models.marginal.mean_weights import Weights, expected_weights, measured_weights
from repsynth.models.marginal.raked import Pool, Target, make_pool, pool_size
from repsynth.models.marginal.shrinkage import NoisyTable, by_precision
from repsynth.models.marginal.tables import Pair, TableChoice, Tables
from repsynth.models.marginal.tree import Tree, fit_tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.privacy.events import MU_PER_ETA, Charge
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL

LABEL_TABLES, FOREST = "label tables", "tables"
"""The measurements whose tables make the tree."""

MEAN_NOISE = math.sqrt(2 / math.pi)
"""The mean of |N(0, 1)|."""

_FEW_TABLES, _MANY_TABLES = 5, 20


@dataclass(frozen=True)
class Round:
    """The names of a selection and of the measurement of what it selects. The first round makes a forest."""

    choice: str
    tables: str

    @property
    def forest(self) -> bool:
        """Whether the selected pairs must form no circle."""
        return self.tables == FOREST


def rounds_of(names: Sequence[str]) -> list[Round]:
    """Return the rounds among the names of a plan's measurements.

    >>> rounds_of(["label tables", "choice", "tables", "choice 2", "tables 2"])
    [Round(choice='choice', tables='tables'), Round(choice='choice 2', tables='tables 2')]
    """
    choices = [name for name in names if name.split()[0] == "choice"]
    tables = [name for name in names if name.split()[0] == FOREST]
    return [Round(choice, measured) for choice, measured in zip(choices, tables, strict=True)]


def measure_tables(
    meter: Meter, stage: StageOne, charges: Mapping[str, Charge], *, max_cells: int, on_step: Callable[[str], None]
) -> tuple[Measured, ...]:
    """Run all rounds: select, measure, estimate."""
    views = Views.of(stage, charges[LABEL_TABLES if stage.schema.label_column else FOREST].per_row)
    measured: list[Measured] = []

    def measure(pairs: Sequence[Pair], name: str) -> None:
        on_step(name)
        tables = statistic_of(views, pairs, name)
        noisy = meter.measure(tables, mu=charges[name].mu)
        measured.append(Measured(tables, noisy, sigma_for(tables.sensitivity, charges[name].per_row)))

    if views.label is not None:
        measure(views.label_pairs, LABEL_TABLES)
    estimate = None
    for round_ in rounds_of(list(charges)):
        on_step(round_.choice)
        estimate = estimate_model(views, measured, max_cells=max_cells, before=estimate)
        choice = make_choice(views, measured, estimate, charges, round_, max_cells=max_cells)
        selected = meter.choose(choice, mu=charges[round_.choice].mu)
        measure([choice.tables.pairs[c] for c in selected] or views.spare_pairs(measured), round_.tables)
    return tuple(measured)


def statistic_of(views: Views, pairs: Sequence[Pair], name: str) -> Tables | LabelTables:
    """Return the statistic that measures these tables; all tables of the label are measured as differences."""
    if views.label is not None and list(pairs) == views.label_pairs:
        return make_label_tables(views.stage, views.all_groups, tuple(pairs), name)
    return Tables(views.all_groups, tuple(pairs), views.stage.score, views.stage.weights, name)


# Select


def make_choice(
    views: Views,
    measured: Sequence[Measured],
    estimate: "Estimate",
    charges: Mapping[str, Charge],
    round_: Round,
    *,
    max_cells: int,
) -> TableChoice:
    """Return the selection of a round. Everything in it is public."""
    mu = charges[round_.tables].per_row
    most = _how_many(views, round_, mu, charges[round_.choice].per_row)
    if not most and not measured:
        most = 1  # something must be measured
    noise = MEAN_NOISE * math.sqrt(most) / mu  # in a cell, if so many tables are measured
    pairs = _candidates(views, measured, first=round_.forest, noise=noise, max_cells=max_cells) if most else ()
    tables = Tables(views.all_groups, pairs, views.stage.score, views.stage.weights, round_.choice)
    if not pairs:  # only stopping is left
        none = np.zeros(0, dtype=np.int64)
        return TableChoice(tables, none, none, rounds=1, forest=round_.forest, name=round_.choice)
    model = estimate.tree if round_.forest else estimate.pool
    rows, weights = views.stage.histograms.rows, estimate.weights.in_tables
    expected = np.concatenate([(rows * weights.of(pair) * model.table(pair)).ravel() for pair in pairs])
    return TableChoice(
        tables=tables,
        expected=_integers(expected * FULL),
        penalty=_integers(np.array([noise * views.size(pair) * FULL for pair in pairs])),
        rounds=most,
        forest=round_.forest,
        name=round_.choice,
    )


def most_tables(rows: float, mu: float) -> int:
    """Return how many tables a further round selects at most: five, and more where the noise of all of them adds
    no more than a hundredth of the records to each of eight by eight cells.

    >>> most_tables(30_000, 0.05), most_tables(1_000_000, 0.05)
    (5, 20)
    """
    alone = 64 * MEAN_NOISE / mu
    return int(np.clip((0.01 * rows / alone) ** 2, _FEW_TABLES, _MANY_TABLES))


def _how_many(views: Views, round_: Round, mu: float, choice_mu: float) -> int:
    """Return the number of tables to select; 0 where noise would select."""
    rows, columns = views.stage.histograms.rows, len(views.groups)
    most = len(views.features) - 1 if round_.forest else most_tables(rows, mu)
    able = (k for k in range(most, 0, -1) if can_choose(k, rows, columns, mu=mu, choice_mu=choice_mu))
    return next(able, 0)


def can_choose(tables: int, rows: float, columns: int, *, mu: float, choice_mu: float) -> bool:
    """Return whether so many tables can be told apart by a tenth of the records, and whether that tenth stands
    above the noise of four by four cells."""
    eta = choice_mu / math.sqrt(tables) / MU_PER_ETA
    noise = MEAN_NOISE * math.sqrt(tables) / mu
    return 0.1 * rows * eta >= math.log(columns**2 / 2) and 16 * noise <= 0.1 * rows


def _candidates(
    views: Views, measured: Sequence[Measured], *, first: bool, noise: float, max_cells: int
) -> tuple[Pair, ...]:
    """Return the pairs to select from: not measured yet, with less noise than records, and, smallest first, as
    many as fit into memory, crossed with the label."""
    known = {pair for m in measured for pair in m.tables.pairs}
    every = views.candidates if first else [*views.candidates, *views.coarse_candidates()]
    left = [p for p in every if p not in known and noise * views.size(p) < 2 * views.stage.histograms.rows]
    left.sort(key=views.size)
    labels = 1 if views.label is None else views.groups[views.label].count
    fits = labels * np.cumsum([views.size(pair) for pair in left]) <= max_cells
    return tuple(sorted(pair for pair, fit in zip(left, fits, strict=True) if fit))


def _integers(values: Floats) -> Ints:
    """Round, and bound so that no sum overflows: the values are public."""
    return np.rint(np.clip(values, 0.0, 2.0**50)).astype(np.int64)


# Estimate


@dataclass(frozen=True)
class Estimate:
    """The model that follows from noisy tables: post-processing.

    A tree has the label's tables and those of the forest. Where more was measured, a pool of records drawn from
    the tree is raked to it.
    """

    tree: Tree
    weights: Weights
    further: tuple[Target, ...]
    groups: tuple[Groups, ...]
    pool_size: int
    before: "Estimate | None" = None
    """An estimate with the same tree."""

    @cached_property
    def _drawn(self) -> Pool:
        return self.before._drawn if self.before else make_pool(self.tree, self.groups, self.pool_size)

    @cached_property
    def pool(self) -> Pool:
        return self._drawn.raked_to(self.further) if self.further else self._drawn

    @property
    def model(self) -> Tree | Pool:
        return self.pool if self.further else self.tree


def estimate_model(
    views: Views, measured: Sequence[Measured], *, max_cells: int, before: Estimate | None = None
) -> Estimate:
    """Estimate the model; the estimate `before` the last measurement is reused if its tree still holds."""
    forest = next((m.tables.pairs for m in measured if m.tables.name == FOREST), ())
    of_tree = {*(views.label_pairs if views.label is not None else ()), *forest}
    if before is None or any(pair in of_tree for pair in measured[-1].tables.pairs):
        before, (tree, weights) = None, _fit_tree(views, measured, of_tree)
    else:
        tree, weights = before.tree, before.weights
    tables = _combined(measured, weights)
    further = tuple(Target(pair, table) for pair, table in tables.items() if pair not in of_tree)
    size = pool_size(tree.histograms.rows, columns=len(tree.groups), max_cells=max_cells)
    return Estimate(tree, weights, further, views.all_groups, size, before)


def _fit_tree(views: Views, measured: Sequence[Measured], of_tree: set[Pair]) -> tuple[Tree, Weights]:
    """Fit the tree; where weights differ, a second time with the mean weights that the first one tells."""

    def fit(weights: Weights, *, levels_from_tables: bool) -> Tree:
        tables = {pair: table for pair, table in _combined(measured, weights).items() if pair in of_tree}
        return fit_tree(
            views.stage.histograms,
            views.groups,
            views.label,
            {j: table for (i, j), table in tables.items() if i == views.label},
            {(i, j): table for (i, j), table in tables.items() if i != views.label},
            levels_from_tables=levels_from_tables,
            unsure={i: weights.unsure(i) for i in range(len(views.groups))},
        )

    weights = measured_weights(views, measured)
    clipped = any(isinstance(m.tables, LabelTables) for m in measured)
    if not views.stage.weighted and not clipped:
        return fit(weights, levels_from_tables=True), weights
    tree = fit(weights, levels_from_tables=False)
    if views.label is None:
        return tree, weights
    weights = expected_weights(views, measured, tree)
    return fit(weights, levels_from_tables=True), weights


def _combined(measured: Sequence[Measured], weights: Weights) -> dict[Pair, NoisyTable]:
    """Return tables at full weight; what was measured twice is combined by precision."""
    tables: dict[Pair, NoisyTable] = {}
    for m in measured:
        variances = m.tables.variances(m.sigma)
        for pair, counts in m.tables.split(m.noisy).items():
            factor = weights.of(m.tables).of(pair)
            table = NoisyTable(counts / factor, variances[pair] / np.square(factor))
            tables[pair] = by_precision([tables[pair], table]) if pair in tables else table
    return tables
