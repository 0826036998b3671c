"""Which tables are measured, and in what order.

    label tables  label × column, for every column                              (charge)
    choice        choose a forest of pairs of columns                           (charge)
    tables        measure them                                                  (charge)
    and for `aim`, a few times over, on top of what the model knows by then:
    choice k      choose pairs, fine or coarse, and coarse triples that the model gets wrong   (charge)
    tables k      measure them                                                  (charge)

A record's part in every table, and in every utility by which tables are chosen, is at most its weight. Where
nothing is worth choosing, the label's pairs are measured again: no charge is wasted.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.models.marginal.fit import FOREST, fit_views, pool_of
from repsynth.models.marginal.label_tables import LabelTables, make_label_tables
from repsynth.models.marginal.tables import Cross, TableChoice, Tables
from repsynth.models.marginal.tree import Tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.privacy.events import MU_PER_ETA, Charge
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL

LABEL_TABLES = "label tables"

_FEW_TABLES, _MANY_TABLES = 5, 20
MEAN_NOISE = math.sqrt(2 / math.pi)
"""Of |N(0, 1)|."""


@dataclass(frozen=True)
class Round:
    """A choice and the measurement of what was chosen: their names. The first one makes a forest."""

    choice: str
    tables: str

    @property
    def forest(self) -> bool:
        """Whether the chosen pairs must form no circle."""
        return self.tables == FOREST


def rounds_of(names: Sequence[str]) -> list[Round]:
    """The rounds among the names of a plan's measurements.

    >>> rounds_of(["histograms", "label tables", "choice", "tables", "choice 2", "tables 2"])
    [Round(choice='choice', tables='tables'), Round(choice='choice 2', tables='tables 2')]
    """
    choices = [name for name in names if name.split()[0] == "choice"]
    tables = [name for name in names if name.split()[0] == FOREST]
    return [Round(choice, measured) for choice, measured in zip(choices, tables, strict=True)]


def measure_tables(
    meter: Meter,
    stage: StageOne,
    charges: Mapping[str, Charge],
    *,
    max_cells: int,
    on_step: Callable[[str], None],
) -> tuple[Measured, ...]:
    rounds = rounds_of(list(charges))
    views = Views.of(stage, charges[LABEL_TABLES if stage.schema.label_column else FOREST].per_row)
    measured: list[Measured] = []

    def measure(pairs: Sequence[Cross], name: str) -> None:
        on_step(name)
        tables: Tables | LabelTables
        if views.label is not None and list(pairs) == views.label_pairs:
            tables = make_label_tables(stage, views.all_groups, tuple(pairs), name)
        else:
            tables = Tables(views.all_groups, tuple(pairs), stage.score, stage.weights, name)
        noisy = meter.measure(tables, mu=charges[name].mu)
        measured.append(Measured(tables, noisy, sigma_for(tables.sensitivity, charges[name].per_row)))

    if views.label is not None:
        measure(views.label_pairs, LABEL_TABLES)
    for round_ in rounds:
        on_step(round_.choice)
        choice = make_choice(views, measured, charges, round_, max_cells=max_cells)
        chosen = meter.choose(choice, mu=charges[round_.choice].mu)
        pairs = [choice.tables.pairs[c] for c in chosen]
        measure(pairs or views.spare_pairs(measured), round_.tables)
    return tuple(measured)


def make_choice(
    views: Views,
    measured: Sequence[Measured],
    charges: Mapping[str, Charge],
    round_: Round,
    *,
    max_cells: int,
) -> TableChoice:
    """The choice of a round: everything in it is public."""
    mu = charges[round_.tables].per_row
    rounds = _how_many(views, round_, mu, charges[round_.choice].per_row)
    if not rounds and not measured:
        rounds = 1  # something must be measured
    noise = MEAN_NOISE * math.sqrt(rounds) / mu  # in a cell, were so many tables measured
    pairs = _worth_a_try(views, measured, first=round_.forest, noise=noise, max_cells=max_cells) if rounds else ()
    tables = Tables(views.all_groups, pairs, views.stage.score, views.stage.weights, round_.choice)
    if not pairs:  # only stopping is left
        none = np.zeros(0, dtype=np.int64)
        return TableChoice(tables, none, none, rounds=1, forest=round_.forest, name=round_.choice)
    return TableChoice(
        tables=tables,
        expected=_integers(_expected(views, measured, pairs, round_, max_cells) * FULL),
        penalty=_integers(np.array([noise * views.size(pair) * FULL for pair in pairs])),
        rounds=rounds,
        forest=round_.forest,
        name=round_.choice,
    )


def _expected(
    views: Views, measured: Sequence[Measured], pairs: Sequence[Cross], round_: Round, max_cells: int
) -> Floats:
    """What the model so far expects of weighted tables, one behind the other."""
    model, weight = fit_views(views, measured, max_cells=max_cells)
    rows = views.stage.histograms.rows
    if isinstance(model, Tree) and round_.forest:
        return np.concatenate([(rows * weight.of((i, j)) * model.pair((i, j))).ravel() for i, j in pairs])
    if isinstance(model, Tree):  # a pool knows coarse groups, and columns further apart
        model = pool_of(model, views, max_cells)
    return np.concatenate([(rows * weight.of(cross) * model.table(cross)).ravel() for cross in pairs])


def most_tables(rows: float, mu: float) -> int:
    """How many tables a round of `aim` chooses at most: five, and more where the noise of all of them adds no
    more than a hundredth of the records to each that has eight by eight cells.

    >>> most_tables(30_000, 0.05), most_tables(1_000_000, 0.05)
    (5, 20)
    """
    alone = 64 * MEAN_NOISE / mu
    return int(np.clip((0.01 * rows / alone) ** 2, _FEW_TABLES, _MANY_TABLES))


def _how_many(views: Views, round_: Round, mu: float, choice_mu: float) -> int:
    """How many tables to choose: as many as the choice can tell apart by a tenth of the records, and as stand
    above their noise with four by four cells. Where that is none, noise would choose."""
    rows, columns = views.stage.histograms.rows, len(views.groups)
    most = len(views.features) - 1 if round_.forest else most_tables(rows, mu)
    able = (k for k in range(most, 0, -1) if can_choose(k, rows, columns, mu=mu, choice_mu=choice_mu))
    return next(able, 0)


def can_choose(tables: int, rows: float, columns: int, *, mu: float, choice_mu: float) -> bool:
    """Whether so many tables can be told apart, and stand above their noise."""
    eta = choice_mu / math.sqrt(tables) / MU_PER_ETA
    noise = MEAN_NOISE * math.sqrt(tables) / mu
    return 0.1 * rows * eta >= math.log(columns**2 / 2) and 16 * noise <= 0.1 * rows


def _worth_a_try(
    views: Views, measured: Sequence[Measured], *, first: bool, noise: float, max_cells: int
) -> tuple[Cross, ...]:
    """The tables to choose from: not yet measured; small enough that noise does not weigh more than all records,
    or they could never be chosen; and, smallest first, as many as fit into memory, crossed with the label."""
    known = {pair for m in measured for pair in m.tables.pairs}
    candidates: list[Cross] = [*views.candidates]
    if not first:
        candidates += [*views.coarse_candidates(), *views.triples(noise)]
    left = [p for p in candidates if p not in known and noise * views.size(p) < 2 * views.stage.histograms.rows]
    left.sort(key=views.size)
    labels = 1 if views.label is None else views.groups[views.label].count
    fits = labels * np.cumsum([views.size(pair) for pair in left]) <= max_cells
    return tuple(sorted(pair for pair, fit in zip(left, fits, strict=True) if fit))


def _integers(values: Floats) -> Ints:
    """Rounded, and so bounded that no sum of them overflows: they are public, so this costs nothing."""
    return np.rint(np.clip(values, 0.0, 2.0**50)).astype(np.int64)
