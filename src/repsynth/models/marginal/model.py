"""`mst` and `aim` as models of stage 2."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from repsynth.errors import ConfigError
from repsynth.models.base import Hooks, Kept, Made, Model, Resources, Share, run_seconds

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from repsynth.arrays import Floats
    from repsynth.data.records import Records
    from repsynth.mechanism.kernels import Chosen
    from repsynth.mechanism.meter import Meter
    from repsynth.models.marginal.label_tables import LabelTables
    from repsynth.models.marginal.raked import Pool
    from repsynth.models.marginal.tables import Tables
    from repsynth.models.marginal.tree import Tree
    from repsynth.models.marginal.views import Measured, Views
    from repsynth.models.uncertainty import ModelErrors
    from repsynth.schema import Schema
    from repsynth.scoring.base import Arrays
    from repsynth.scoring.stage import RunPlan, StageOne

_LABEL_TABLES, _CHOICE, _TABLES = "label tables", "choice", "tables"
_MOST_GROUPS = 65  # of a numeric column, missing included
_MOST_CELLS = 2**25
_COARSE, _MANY = 8, 60  # groups of a column in tables of three; columns that may well make all triples there are
_FEW_RECORDS = 30.0  # records times μ, by the root of the columns


class _Marginal(Model, frozen=True):
    """What both have in common."""

    score_share: ClassVar[float] = 0.07
    what: ClassVar[str] = "Tables take"
    purposes: ClassVar[Mapping[str, str]] = {
        _LABEL_TABLES: "weighted tables of label and column",
        _CHOICE: "choice of further tables",
        _TABLES: "the chosen tables, weighted",
    }

    def check(self, schema: "Schema", max_model_mb: int) -> None:
        """It crosses columns, so it needs two; and its largest tables must fit."""
        if len(schema.learned) < 2:
            raise ConfigError(f"the model {self.name} needs two columns at least; use naive-bayes")
        needed = _label_cells(schema) * 8 / 2**20
        if needed > max_model_mb:
            raise ConfigError(
                f"the tables of label and column may take {needed:,.0f} MB, more than the {max_model_mb:,} "
                "MB allowed; allow more with --max-model-mb, declare fewer categories, or use naive-bayes"
            )

    def tables(self) -> tuple[Share, ...]:
        """How tables share the budget; those of the label come first."""
        return ()

    def shares(self, schema: "Schema") -> tuple[Share, ...]:
        """Tables, those of the label where there is one."""
        tables = self.tables() if schema.label_column else self.tables()[1:]
        whole = sum(table.share for table in tables)
        return tuple(replace(table, share=table.share / whole) for table in tables)

    def sensitivity(self, schema: "Schema", name: str) -> float:
        """One bin or cell in all of them; how many tables will be worth choosing is not known yet."""
        return 1.0 if name.startswith(_CHOICE) else float((len(schema.learned) - 1) ** 0.5)

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Measured on one core: some 25 ns for a record and a table; for each fit 0.5 µs for a cell of the records
        that tell what weights do; for a further round 15 ns for one of a pool and a table, and to draw and rake
        the pool 1.2 µs for each of its cells."""
        from repsynth.models.marginal.mean_weights import DRAWN
        from repsynth.models.marginal.raked import pool_size
        from repsynth.models.marginal.rounds import can_choose

        columns = len(plan.schema.learned)
        noise = (columns - 1) ** 0.5 / plan.charges[_TABLES].per_row
        candidates, candidate_cells = _most_candidates(plan.schema, rows=rows, noise=noise)
        cells = _label_cells(plan.schema) + min(2 * candidate_cells, plan.max_model_mb * 2**17)
        mus = {name: charge.per_row for name, charge in plan.charges.items()}
        further = sum(
            can_choose(1, rows, columns, mu=mus[name.replace(_CHOICE, _TABLES)], choice_mu=mu)
            for name, mu in mus.items()
            if name.startswith(f"{_CHOICE} ") and candidates
        )
        seconds = run_seconds(plan, rows) + rows * (columns + candidates * (1 + further)) * 25e-9
        if plan.schema.label_column:
            seconds += (2 + further) * DRAWN * columns * 0.5e-6
        if further:
            pool = pool_size(rows, columns=columns, max_cells=_max_cells(plan))
            triples = _most_triples(plan.schema, rows=rows, mu=min(mus[name] for name in mus if _TABLES in name))
            seconds += further * triples * (rows * 25e-9 + pool * 15e-9)
            seconds += pool * (further * candidates * 15e-9 + columns * 1.2e-6)
        few = rows * plan.scale / plan.schema.rows_per_person / columns**0.5 < _FEW_RECORDS
        warnings = ("tables will be mostly noise at this size; naive-bayes does better",) if few else ()
        return Resources(max(1.0, cells * 8 / 2**20), seconds, warnings)

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "MarginalFit":
        """Tables of the label, then rounds of choices and tables."""
        from repsynth.models.marginal.rounds import measure_tables

        most = _max_cells(plan)
        measured = measure_tables(meter, stage, plan.charges, max_cells=most, on_step=hooks.on_step)
        return MarginalFit(stage, plan, measured)

    def load(self, kept: Kept) -> "MarginalFit":
        """The tables that a run of this plan could have measured, and no others."""
        from repsynth.models.marginal.files import read_tables

        measured = read_tables(kept.described, kept.stage, kept.sigmas, kept.arrays, _MOST_CELLS)
        return MarginalFit(kept.stage, kept.plan, tuple(measured))


class Mst(_Marginal, frozen=True):
    """A tree of two-way tables that knows the label."""

    name: ClassVar[str] = "mst"

    def tables(self) -> tuple[Share, ...]:
        """The label's tables and those of a tree."""
        return Share(_LABEL_TABLES, 0.45), Share(_CHOICE, 0.05, choice=True), Share(_TABLES, 0.5)


class Aim(_Marginal, frozen=True):
    """More tables, of two and three columns, chosen where the model is wrong; slower."""

    name: ClassVar[str] = "aim"

    def tables(self) -> tuple[Share, ...]:
        """Three quarters for a tree, the rest for further rounds."""
        further, rounds = 0.25, (2, 3, 4)
        return (
            Share(_LABEL_TABLES, (1 - further) * 0.6),
            Share(_CHOICE, (1 - further) * 0.05, choice=True),
            Share(_TABLES, (1 - further) * 0.35),
            *(
                share
                for k in rounds
                for share in (
                    Share(f"{_CHOICE} {k}", further / len(rounds) * 0.1, choice=True),
                    Share(f"{_TABLES} {k}", further / len(rounds) * 0.9),
                )
            ),
        )


@dataclass(frozen=True)
class MarginalFit:
    """The tables that were measured, in order."""

    stage: "StageOne"
    plan: "RunPlan"
    measured: "tuple[Measured, ...]"

    @property
    def _views(self) -> "Views":
        from repsynth.models.marginal.views import Views

        return Views.of_tables(self.stage, self.measured[0].tables)

    def kernels(self, *, choices: bool = True) -> "dict[str, Tables | LabelTables | Chosen]":
        """The tables and, made again from what was released before each, the choices."""
        from repsynth.mechanism.kernels import Chosen
        from repsynth.models.marginal.rounds import make_choice, rounds_of

        found: dict[str, Tables | LabelTables | Chosen] = {}
        rounds = {round_.tables: round_ for round_ in rounds_of(list(self.plan.charges))}
        views = self._views
        for k, m in enumerate(self.measured):
            if choices and m.tables.name in rounds:
                round_ = rounds[m.tables.name]
                choice = make_choice(
                    views, self.measured[:k], self.plan.charges, round_, max_cells=_max_cells(self.plan)
                )
                pairs = choice.tables.pairs
                chosen = tuple(pairs.index(pair) for pair in m.tables.pairs if pair in pairs)
                found[round_.choice] = Chosen(choice, chosen)
            found[m.tables.name] = m.tables
        return found

    def choices(self) -> dict[str, Made]:
        """As many as tables were measured, but for those that are measured where nothing was chosen."""
        from repsynth.models.marginal.rounds import rounds_of

        rounds = {round_.tables: round_.choice for round_ in rounds_of(list(self.plan.charges))}
        views = self._views
        found = {}
        for k, m in enumerate(self.measured):
            if m.tables.name in rounds:
                spare = tuple(views.spare_pairs(self.measured[:k])) == m.tables.pairs
                found[rounds[m.tables.name]] = Made(0 if spare else len(m.tables.pairs), weighted=True)
        return found

    def norms(self, records: "Records") -> "tuple[Floats, Floats]":
        """Those of the label's tables; in others all records count the same, and nothing is clipped."""
        import numpy as np

        first = self.measured[0].tables
        return first.norms(records) if _centred(first) else (np.ones(records.rows), np.ones(records.rows))

    def label_masses(self) -> "tuple[Floats, float] | None":
        """As the label's tables say."""
        first = self.measured[0]
        if not _centred(first.tables):
            return None
        return first.tables.masses(first.noisy), first.sigma / first.tables.mass_unit

    def errors(self) -> "ModelErrors":
        """Of the measured tables; means by the label of the numeric columns that they cross it with."""
        from repsynth.models.uncertainty import (
            ModelErrors,
            group_means,
            lost_from,
            mean_positions,
            nothing_lost,
            table_errors,
        )

        histograms, columns = self.stage.histograms, len(self.stage.histograms.bins)
        tables, means = [], []
        for m in self.measured:
            groups, variances = m.tables.groups, m.tables.variances(m.sigma)
            for cross, counts in m.tables.split(m.noisy).items():
                names = tuple(groups[i].bins.column.name for i in cross)
                clipped = _centred(m.tables)
                tables.append(table_errors(names, m.tables.name, counts, variances[cross], clipped=clipped))
                if (
                    names[0] == self.stage.schema.label
                    and len(cross) == 2
                    and groups[cross[1]].bins.starts is not None
                ):
                    j = cross[1]
                    positions = mean_positions(groups[j], histograms.levels(j % columns))
                    both = ((groups[cross[0]], cross[0] % columns), (groups[j], j % columns))
                    whole = not clipped and not self.stage.weighted
                    lost = nothing_lost(both) if whole else lost_from(histograms, both, counts, variances[cross])
                    means.append(group_means(both[0][0], both[1][0], positions, counts, variances[cross], lost))
        return ModelErrors(tuple(tables), tuple(means))

    def sampler(self) -> "Tree | Pool":
        from repsynth.models.marginal.fit import fit_views

        views = self._views
        return fit_views(views, self.measured, max_cells=_max_cells(self.plan))[0]

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        views = self._views
        centred = [m.tables for m in self.measured if _centred(m.tables)]
        return {"tables": [m.tables.describe() for m in self.measured]}, {
            **{f"tables_{k}": m.noisy for k, m in enumerate(self.measured)},
            **{f"groups_{i}": groups.of_bin for i, groups in enumerate(views.groups)},
            **{f"coarse_{i}": groups.of_bin for i, groups in enumerate(views.coarse)},
            **{f"offset_{k}": offset for tables in centred[:1] for k, offset in enumerate(tables.offsets)},
        }


def _centred(tables: "Tables | LabelTables") -> "TypeIs[LabelTables]":
    from repsynth.models.marginal.label_tables import LabelTables

    return isinstance(tables, LabelTables)


def _max_cells(plan: "RunPlan") -> int:
    """The cells of all candidates together: the tables, and what is expected of them."""
    return plan.max_model_mb * 2**20 // 16


def _label_cells(schema: "Schema") -> int:
    """How many cells the tables of label × column have at most, before any data is seen."""
    label = schema.label_column
    return (label.size + label.missing if label else 1) * sum(_sizes(schema))


def _most_candidates(schema: "Schema", *, rows: float, noise: float) -> tuple[int, int]:
    """How many tables of column × column so much noise leaves to choose from at most, and their cells."""
    import numpy as np

    sizes = np.array(_sizes(schema), dtype=np.float64)
    tables = np.outer(sizes, sizes)[np.triu_indices(len(sizes), 1)]
    left = tables[tables < 2 * rows / noise]
    label = schema.label_column
    return len(left), (label.size + label.missing if label else 1) * int(left.sum())


def _most_triples(schema: "Schema", *, rows: float, mu: float) -> int:
    """How many tables of three columns are chosen from, about, where those of a round have the charge `mu`."""
    import numpy as np

    from repsynth.models.marginal.rounds import MEAN_NOISE, most_tables
    from repsynth.models.marginal.views import MOST_TRIPLES, TRIPLE_NOISE

    sizes = np.sort(np.minimum(_sizes(schema), _COARSE))[:_MANY].astype(np.float64)
    i, j = np.triu_indices(len(sizes), 1)
    most = TRIPLE_NOISE * rows * mu / (MEAN_NOISE * most_tables(rows, mu) ** 0.5)
    fit = sum(int(np.sum((sizes[i] * sizes[j])[j < k] * sizes[k] <= most)) for k in range(len(sizes)))
    return min(fit, MOST_TRIPLES)


def _sizes(schema: "Schema") -> list[int]:
    from repsynth.schema import Numeric

    return [
        (_MOST_GROUPS + len(column.special) if isinstance(column, Numeric) else column.size) + column.missing
        for column in schema.learned
        if column.name != schema.label
    ]
