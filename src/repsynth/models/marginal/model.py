"""`mst` and `aim`: settings, shares of the budget and costs of the marginal mechanism."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from repsynth.errors import ConfigError
from repsynth.models.base import Hooks, Kept, Model, Resources, Share, run_seconds

if TYPE_CHECKING:
    from repsynth.mechanism.meter import Meter
    from repsynth.models.marginal.release import MarginalFit
    from repsynth.schema import Schema
    from repsynth.scoring.stage import RunPlan, StageOne

_LABEL_TABLES, _CHOICE, _TABLES = "label tables", "choice", "tables"
_MOST_GROUPS = 65  # of a numeric column, missing included
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
        """Return that of one cell in every table; how many will be selected is not known yet."""
        return 1.0 if name.startswith(_CHOICE) else float((len(schema.learned) - 1) ** 0.5)

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Estimate by measurements on one core: 25 ns for a record and a table; for each fit 0.5 µs for a cell of
        the records that tell the mean weights; for a further round 15 ns for a record of the pool and a table; and
        1.2 µs for each cell of the pool."""
        from repsynth.models.marginal.mean_weights import DRAWN
        from repsynth.models.marginal.mechanism import can_choose
        from repsynth.models.marginal.raked import pool_size
        from repsynth.models.marginal.release import max_cells

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
        few = rows * plan.scale / plan.schema.rows_per_person / columns**0.5 < _FEW_RECORDS
        warnings = ("tables will be mostly noise at this size; naive-bayes does better",) if few else ()
        return Resources(max(1.0, needed * 8 / 2**20), seconds, warnings)

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "MarginalFit":
        from repsynth.models.marginal.mechanism import measure_tables
        from repsynth.models.marginal.release import MarginalFit, max_cells

        cells = max_cells(plan.max_model_mb)
        measured = measure_tables(meter, stage, plan.charges, max_cells=cells, on_step=hooks.on_step)
        return MarginalFit(stage, plan, measured)

    def load(self, kept: Kept) -> "MarginalFit":
        from repsynth.models.marginal.release import read_fit

        return read_fit(kept)


class Mst(_Marginal, frozen=True):
    """A tree of two-way tables that knows the label: one round."""

    name: ClassVar[str] = "mst"

    def tables(self) -> tuple[Share, ...]:
        return Share(_LABEL_TABLES, 0.45), Share(_CHOICE, 0.05, choice=True), Share(_TABLES, 0.5)


class Aim(_Marginal, frozen=True):
    """The tree, and rounds of further tables where the model is wrong; as many as the budget carries."""

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
    """Return how many cells the tables of label × column have at most, before any data is seen."""
    label = schema.label_column
    return (label.size + label.missing if label else 1) * sum(_sizes(schema))


def _most_candidates(schema: "Schema", *, rows: float, noise: float) -> tuple[int, int]:
    """Return how many tables of column × column the noise leaves to select from at most, and their cells."""
    import numpy as np

    sizes = np.array(_sizes(schema), dtype=np.float64)
    tables = np.outer(sizes, sizes)[np.triu_indices(len(sizes), 1)]
    left = tables[tables < 2 * rows / noise]
    label = schema.label_column
    return len(left), (label.size + label.missing if label else 1) * int(left.sum())


def _sizes(schema: "Schema") -> list[int]:
    from repsynth.schema import Numeric

    return [
        (_MOST_GROUPS + len(column.special) if isinstance(column, Numeric) else column.size) + column.missing
        for column in schema.learned
        if column.name != schema.label
    ]
