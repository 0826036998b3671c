"""MST and AIM with risk weights: select tables, measure them, estimate a model.

MST: McKenna, Miklau and Sheldon 2021. AIM: McKenna, Mullins, Sheldon and Miklau 2022. Here, both use the label,
and a record contributes at most its weight to every table and every utility (REPS).
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.models.marginal.pool import Pool, make_pool, pool_size
from repsynth.models.marginal.tree import Tree, fit_tree
from repsynth.models.marginal.weight_correction import (
    WeightCorrection,
    correction_from_model,
    correction_from_tables,
)
from repsynth.models.statistics import (
    Domain,
    LabelTables,
    MeasuredTables,
    NoisyTable,
    Pair,
    TableChoice,
    Tables,
    by_precision,
)
from repsynth.privacy.events import MU_PER_ETA, Charge
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL

LABEL_TABLES, CHOICE, TABLES = "label tables", "choice", "tables"

MEAN_NOISE = math.sqrt(2 / math.pi)
"""The mean of |N(0, 1)|."""

_TABLES_PER_ROUND = 5


def mst(run: "MechanismRun") -> None:
    """MST: measure every column, here with the label; select a tree of pairs; measure their tables."""
    if run.state.domain.label is not None:
        run.measure(LABEL_TABLES, run.state.domain.label_pairs)  # charge: label tables
    run.measure(TABLES, run.select(CHOICE, TABLES))  # charges: choice, tables


def aim(run: "MechanismRun") -> None:
    """AIM: MST's tables, then rounds that measure the pairs that the model approximates worst.

    The plan fixes the rounds. If noise would dominate the selection, a round measures the last tables again, so
    the number of selections follows from the budget.
    """
    mst(run)
    for choice, tables in rounds_of(run.state.charges)[1:]:
        run.measure(tables, run.select(choice, tables))  # charges: choice k, tables k


@dataclass
class MechanismRun:
    """A run of the mechanism on data."""

    meter: Meter
    state: "State"
    on_step: Callable[[str], None]

    def select(self, choice: str, tables: str) -> tuple[Pair, ...]:
        """Select pairs by the exponential mechanism; the state's spare pairs if it stops at once."""
        self.on_step(choice)
        selection = self.state.selection(choice, tables)
        chosen = self.meter.choose(selection, mu=self.state.charges[choice].mu)
        return tuple(selection.tables.pairs[c] for c in chosen) or self.state.spare_pairs

    def measure(self, name: str, pairs: tuple[Pair, ...]) -> None:
        """Measure the tables of these pairs with Gaussian noise."""
        self.on_step(name)
        tables, charge = self.state.statistic(name, pairs), self.state.charges[name]
        noisy = self.meter.measure(tables, mu=charge.mu)
        self.state.measured.append(MeasuredTables(tables, noisy, sigma_for(tables.sensitivity, charge.per_row)))


def rounds_of(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names of the selection and of the measurement of each round of a plan.

    >>> rounds_of(["label tables", "choice", "tables", "choice 2", "tables 2"])
    [('choice', 'tables'), ('choice 2', 'tables 2')]
    """
    return [(name, name.replace(CHOICE, TABLES)) for name in names if name.startswith(CHOICE)]


@dataclass
class State:
    """The public state of a run: the released values so far, and functions of them."""

    stage: StageOne
    domain: Domain
    charges: Mapping[str, Charge]
    max_cells: int
    measured: list[MeasuredTables] = field(default_factory=list)
    _estimated: "tuple[int, ModelEstimate] | None" = None

    def statistic(self, name: str, pairs: tuple[Pair, ...]) -> Tables | LabelTables:
        """Return the statistic that measures these tables."""
        if pairs == self.domain.label_pairs:
            return LabelTables.of(self.stage, self.domain, name)
        return Tables(self.domain, pairs, self.stage.score, self.stage.weights, name)

    @property
    def spare_pairs(self) -> tuple[Pair, ...]:
        """The pairs to measure if none was selected: the last ones again, or the first pair in the first round."""
        return self.measured[-1].tables.pairs if self.measured else self.domain.candidates[:1]

    # Estimate

    def estimate(self) -> "ModelEstimate":
        """Return the model of all tables so far; a round starts from the estimate of the round before."""
        if self._estimated is None or self._estimated[0] != len(self.measured):
            count, before = self._estimated or (0, None)
            self._estimated = len(self.measured), estimate_model(self, before, self.measured[count:])
        return self._estimated[1]

    # Select

    def selection(self, choice: str, tables: str) -> TableChoice:
        """Return the selection of a round, with quality score |real − expected| − noise for each candidate."""
        forest, mu = tables == TABLES, self.charges[tables].per_row
        most = self._how_many(mu, self.charges[choice].per_row, forest=forest)
        if not most and not self.measured:
            most = 1  # something must be measured
        noise = MEAN_NOISE * math.sqrt(most) / mu  # in a cell, if this many tables are measured
        pairs = self._candidates(noise, forest=forest) if most else ()
        candidates = Tables(self.domain, pairs, self.stage.score, self.stage.weights, choice)
        expected, penalty = np.zeros(0), np.zeros(0)
        if pairs:
            estimate = self.estimate()
            model = (estimate.tree if forest else estimate.pool).tables(pairs)
            scaled = estimate.correction.in_tables.weighted(model)
            expected = np.concatenate([each.ravel() for each in scaled]) * (self.stage.histograms.rows * FULL)
            penalty = np.diff(candidates.starts) * (noise * FULL)
        return TableChoice(
            tables=candidates,
            expected=_integers(expected),
            penalty=_integers(penalty),
            rounds=max(most, 1) if pairs else 1,
            forest=forest,
            name=choice,
        )

    def _how_many(self, mu: float, choice_mu: float, *, forest: bool) -> int:
        """Return the number of tables to select; 0 if noise would dominate the selection."""
        rows, columns = self.stage.histograms.rows, self.domain.columns
        most = len(self.domain.features) - 1 if forest else most_tables(rows, mu)
        able = (k for k in range(most, 0, -1) if can_choose(k, rows, columns, mu=mu, choice_mu=choice_mu))
        return next(able, 0)

    def _candidates(self, noise: float, *, forest: bool) -> tuple[Pair, ...]:
        """Return the pairs to select from: not measured yet, and with less noise than records.

        If not all fit into memory, crossed with the label, keep the smallest. A forest has fine groups.
        """
        domain, sizes = self.domain, self.domain.sizes
        known = {pair for measured in self.measured for pair in measured.tables.pairs}
        every = domain.candidates if forest else (*domain.candidates, *domain.coarse_candidates)
        cells = {(i, j): sizes[i] * sizes[j] for i, j in every if (i, j) not in known}
        left = [pair for pair in cells if noise * cells[pair] < 2 * self.stage.histograms.rows]
        left.sort(key=lambda pair: cells[pair])
        labels = 1 if domain.label is None else sizes[domain.label]
        fits = labels * np.cumsum([cells[pair] for pair in left]) <= self.max_cells
        return tuple(sorted(pair for pair, fit in zip(left, fits, strict=True) if fit))


def most_tables(rows: float, mu: float) -> int:
    """Return how many tables a further round selects at most.

    There are five to twenty: more than five if their total noise in 8 by 8 cells is at most a hundredth of the
    records.

    >>> most_tables(30_000, 0.05), most_tables(1_000_000, 0.05)
    (5, 20)
    """
    alone = 64 * MEAN_NOISE / mu
    return int(np.clip((0.01 * rows / alone) ** 2, _TABLES_PER_ROUND, 4 * _TABLES_PER_ROUND))


def can_choose(tables: int, rows: float, columns: int, *, mu: float, choice_mu: float) -> bool:
    """Return whether this many tables can be selected reliably.

    A difference of a tenth of the records must decide a selection, and exceed the noise of a table of 4 by 4
    cells.
    """
    eta = choice_mu / math.sqrt(tables) / MU_PER_ETA
    noise = MEAN_NOISE * math.sqrt(tables) / mu
    return 0.1 * rows * eta >= math.log(columns**2 / 2) and 16 * noise <= 0.1 * rows


def _integers(values: Floats) -> Ints:
    """Round and clip public values so that no sum overflows."""
    return np.rint(np.clip(values, 0.0, 2.0**50)).astype(np.int64)


# --- estimate ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelEstimate:
    """The model that follows from noisy tables: post-processing.

    The tree has the label tables and the tables of the forest. If further tables were measured, a pool of records
    is drawn from the tree and raked to them.
    """

    tree: Tree
    correction: WeightCorrection
    further: Mapping[Pair, NoisyTable]
    pool_size: int
    before: "ModelEstimate | None" = None
    """An estimate with the same tree."""

    @cached_property
    def _drawn(self) -> Pool:
        return self.before._drawn if self.before else make_pool(self.tree, self.pool_size)

    @cached_property
    def pool(self) -> Pool:
        return self._drawn.raked_to(self.further) if self.further else self._drawn

    @property
    def model(self) -> Tree | Pool:
        return self.pool if self.further else self.tree


def estimate_model(state: State, before: ModelEstimate | None, new: Sequence[MeasuredTables]) -> ModelEstimate:
    """Estimate the model of all tables; reuse the tree of the estimate `before` if no `new` table is in it."""
    measured, domain = state.measured, state.domain
    forest = next((m.tables.pairs for m in measured if m.tables.name == TABLES), ())
    of_tree = {*domain.label_pairs, *forest}
    if before is None or any(not of_tree.isdisjoint(m.tables.pairs) for m in new):
        before, (tree, correction) = None, _fit_tree(state.stage, domain, measured, of_tree)
    else:
        tree, correction = before.tree, before.correction
    tables = _combined(measured, correction)
    further = {pair: table for pair, table in tables.items() if pair not in of_tree}
    size = pool_size(tree.histograms.rows, columns=domain.columns, max_cells=state.max_cells)
    return ModelEstimate(tree, correction, further, size, before)


def _fit_tree(
    stage: StageOne, domain: Domain, measured: Sequence[MeasuredTables], of_tree: set[Pair]
) -> tuple[Tree, WeightCorrection]:
    """Fit the tree. If some weights are below 1, fit it again with the mean weights by the first tree."""
    axes = list(enumerate(domain.groups[: domain.columns]))
    variances = {i: groups.sum_up(stage.histograms.variances(i)) for i, groups in axes}
    noisy = {i: NoisyTable(groups.sum_up(stage.histograms.noisy(i)), variances[i]) for i, groups in axes}
    levels = {i: NoisyTable(groups.sum_up(stage.histograms.levels(i)), variances[i]) for i, groups in axes}

    def fit(correction: WeightCorrection, *, final: bool) -> Tree:
        tables = {pair: table for pair, table in _combined(measured, correction).items() if pair in of_tree}
        unsure = correction.unsure(domain.columns) if final else None
        return fit_tree(stage.histograms, domain, levels, tables, unsure=unsure)

    correction = correction_from_tables(stage, domain, measured, noisy)
    clipped = any(isinstance(m.tables, LabelTables) for m in measured)
    if not stage.weighted and not clipped:
        return fit(correction, final=True), correction
    tree = fit(correction, final=False)
    if domain.label is None:
        return tree, correction
    correction = correction_from_model(stage, domain, measured, tree)
    return fit(correction, final=True), correction


def _combined(measured: Sequence[MeasuredTables], correction: WeightCorrection) -> dict[Pair, NoisyTable]:
    """Return all tables at full weight; combine repeated measurements by precision."""
    tables: dict[Pair, NoisyTable] = {}
    for m in measured:
        for pair, table in correction.at_full_weight(m).items():
            tables[pair] = by_precision([tables[pair], table]) if pair in tables else table
    return tables
