"""`mst` and `aim`: their settings, shares of the budget, and costs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from repsynth.errors import ConfigError
from repsynth.models.base import Hooks, Model, Resources, Share, StoredModel, run_seconds

if TYPE_CHECKING:
    from repsynth.mechanism.meter import Meter
    from repsynth.models.marginal.release import MarginalRelease
    from repsynth.schema import Schema
    from repsynth.scoring.stage import RunPlan, StageOne

_LABEL_TABLES, _CHOICE, _TABLES = "label tables", "choice", "tables"


class _Marginal(Model, frozen=True):
    """What MST and AIM have in common."""

    score_share: ClassVar[float] = 0.07
    what: ClassVar[str] = "Tables take"
    purposes: ClassVar[Mapping[str, str]] = {
        _LABEL_TABLES: "weighted tables of label and column",
        _CHOICE: "choice of further tables",
        _TABLES: "the chosen tables, weighted",
    }

    def check(self, schema: "Schema", max_model_mb: int) -> None:
        """Refuse a schema with one column, or with tables that do not fit into memory."""
        if len(schema.learned) < 2:
            raise ConfigError(f"the model {self.name} needs two columns at least; use naive-bayes")
        needed = _label_cells(schema) * 8 / 2**20
        if needed > max_model_mb:
            raise ConfigError(
                f"the tables of label and column may take {needed:,.0f} MB, more than the {max_model_mb:,} "
                "MB allowed; allow more with --max-model-mb, declare fewer categories, or use naive-bayes"
            )

    def tables(self) -> tuple[Share, ...]:
        """Return how tables share the budget; those of the label come first."""
        return ()

    def shares(self, schema: "Schema") -> tuple[Share, ...]:
        tables = self.tables() if schema.label_column else self.tables()[1:]
        whole = sum(table.share for table in tables)
        return tuple(replace(table, share=table.share / whole) for table in tables)

    def sensitivity(self, schema: "Schema", name: str) -> float:
        """Return the sensitivity of one cell in every table that may be selected."""
        return 1.0 if name.startswith(_CHOICE) else float((len(schema.learned) - 1) ** 0.5)

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Estimate memory and time, by times measured on one core.

        25 ns per record and table; 0.5 µs per cell of the drawn records for each of two fits; 15 ns per record of
        the pool and table for each further round; 1.2 µs per cell of the pool.
        """
        from repsynth.models.marginal.mechanism import can_choose
        from repsynth.models.marginal.pool import pool_size
        from repsynth.models.marginal.release import max_cells
        from repsynth.models.marginal.weight_correction import DRAWN

        columns, cells = len(plan.schema.learned), max_cells(plan.max_model_mb)
        noise = (columns - 1) ** 0.5 / plan.charges[_TABLES].per_row
        candidates, candidate_cells = _most_candidates(plan.schema, rows=rows, noise=noise)
        needed = _label_cells(plan.schema) + min(2 * candidate_cells, 2 * cells)
        mus = {name: charge.per_row for name, charge in plan.charges.items()}
        further = sum(
            can_choose(1, rows, columns, mu=mus[name.replace(_CHOICE, _TABLES)], choice_mu=mu)
            for name, mu in mus.items()
            if name.startswith(f"{_CHOICE} ") and candidates
        )
        seconds = run_seconds(plan, rows) + rows * (columns + candidates * (1 + further)) * 25e-9
        if plan.schema.label_column:
            seconds += 2 * DRAWN * columns * 0.5e-6
        if further:
            pool = pool_size(rows, columns=columns, max_cells=cells)
            seconds += pool * (further * candidates * 15e-9 + columns * 1.2e-6)
        few = rows * plan.scale / plan.schema.rows_per_person / columns**0.5 < 30  # records times μ
        warnings = ("tables will be mostly noise at this size; naive-bayes does better",) if few else ()
        return Resources(max(1.0, needed * 8 / 2**20), seconds, warnings)

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "MarginalRelease":
        from repsynth.models.marginal.mechanism import MechanismRun, State, aim, mst
        from repsynth.models.marginal.release import MarginalRelease, max_cells
        from repsynth.models.statistics import Domain

        first = plan.charges[_LABEL_TABLES if stage.schema.label_column else _TABLES]
        domain = Domain.choose(stage, first.per_row)
        state = State(stage, domain, plan.charges, max_cells(plan.max_model_mb))
        mechanism = aim if isinstance(self, Aim) else mst
        mechanism(MechanismRun(meter, state, hooks.on_step))
        return MarginalRelease(state, tuple(state.measured))

    def load(self, stored: StoredModel) -> "MarginalRelease":
        from repsynth.models.marginal.release import read_release

        return read_release(stored)


class Mst(_Marginal, frozen=True):
    """MST: a tree of two-way tables that knows the label."""

    name: ClassVar[str] = "mst"

    def tables(self) -> tuple[Share, ...]:
        return Share(_LABEL_TABLES, 0.45), Share(_CHOICE, 0.05, choice=True), Share(_TABLES, 0.5)


class Aim(_Marginal, frozen=True):
    """AIM: the tree, and rounds of further tables that the model approximates worst."""

    name: ClassVar[str] = "aim"

    def tables(self) -> tuple[Share, ...]:
        """Give three quarters to the tree, the rest to three further rounds."""
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


def _label_cells(schema: "Schema") -> int:
    """Return the largest number of cells of the label tables, before any data is seen."""
    label = schema.label_column
    return (label.size + label.missing if label else 1) * sum(_sizes(schema))


def _most_candidates(schema: "Schema", *, rows: float, noise: float) -> tuple[int, int]:
    """Return the largest number of tables to select from, given the noise, and of their cells."""
    import numpy as np

    sizes = np.array(_sizes(schema), dtype=np.float64)
    tables = np.outer(sizes, sizes)[np.triu_indices(len(sizes), 1)]
    left = tables[tables < 2 * rows / noise]
    label = schema.label_column
    return len(left), (label.size + label.missing if label else 1) * int(left.sum())


def _sizes(schema: "Schema") -> list[int]:
    from repsynth.schema import Numeric

    numeric = 65  # the usual number of groups at most, missing included
    return [
        (numeric + len(column.special) if isinstance(column, Numeric) else column.size) + column.missing
        for column in schema.learned
        if column.name != schema.label
    ]
