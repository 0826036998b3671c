"""Carry out a plan: the four steps of the method.

Each step measures the table through the meter. Everything between two measurements is a function of public values.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repsynth.engine import check_engine, engine_for
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.io.ids import check_ids
from repsynth.io.sources import Source, check_columns
from repsynth.io.write import Kind
from repsynth.mechanism.kernels import FINEST
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import LARGEST_SIGMA, seeded_entropy
from repsynth.models.base import Hooks, Round
from repsynth.planning.plan import Plan
from repsynth.release.release import Release
from repsynth.run.payment import Payer, paid
from repsynth.scoring.stage import measure_stage_one

if TYPE_CHECKING:
    import pyarrow as pa

_KINDS: dict[str, Kind] = {"pandas": "pandas", "polars": "polars"}


def run(
    plan: Plan,
    source: Source,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    on_round: Callable[[Round], None] = lambda done: None,
    on_rows: Callable[[int], None] = lambda rows: None,
    payer: Payer | None = None,
    noise_seed: int | None = None,
    rows: int | None = None,
    engine: str | None = None,
    cluster: Any = None,
    make_meter: Callable[..., Meter] = Meter,
) -> Release:
    """Carry out a plan. A failure after the cost was reserved counts as spent.

    `rows` is the number of rows to be drawn, if known: it is checked before anything is spent. `engine` and
    `cluster` select where sums are computed; they are not released. `noise_seed` makes the noise repeatable, for
    experiments; the release is then not private. `on_rows` receives the number of rows read so far, while the
    table is read and in each measurement. That number is private. On a cluster, `on_rows` is not called.
    """
    _check(plan, source, rows, engine)
    with engine_for(source, plan.schema, engine, cluster) as open_engine, paid(payer, plan):
        opened = open_engine(_watched(source, on_rows), plan.schema)
        meter = make_meter(
            replace(opened, on_rows=on_rows) if isinstance(opened, LocalEngine) else opened,
            plan.scale,
            entropy=os.urandom if noise_seed is None else seeded_entropy(noise_seed),
            delta=plan.delta,
            planned=plan.charges,
        )
        stage = measure_stage_one(meter, plan, on_step)  # histograms, scores, threshold, weights
        model = plan.model.measure(meter, stage, plan, Hooks(on_step, on_round))  # stage 2: weighted statistics
        return Release(
            plan=plan,
            kind=_KINDS.get(source.kind, "arrow"),
            stage=stage,
            fit=model,
            events=tuple(meter.events),
            publishable=noise_seed is None and (plan.borrowed is None or plan.borrowed.publishable),
        )


def _watched(source: Source, on_rows: Callable[[int], None]) -> Source:
    """Return a source that reports the number of rows read so far."""

    def batches(columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        done = 0
        for batch in source.batches(columns):
            yield batch
            done += batch.num_rows
            on_rows(done)

    # A cluster pickles the pieces, so they must not contain `on_rows`.
    return replace(source, batches=batches, pieces=source.pieces or (lambda: [source.batches]))


def _check(plan: Plan, source: Source, rows: int | None, engine: str | None) -> None:
    """Refuse a run that would fail, or whose rows could not be drawn, before anything is spent."""
    check_columns(source, plan.schema)
    if rows is not None and not 0 <= rows <= 10**12:
        raise ConfigError("the number of rows cannot be negative, nor above 10^12")
    check_ids(plan.schema, rows if rows is not None else plan.public_rows or 0)
    columns = len(plan.schema.learned)
    for name, charge in plan.charges.items():
        weighted = max(plan.model.sensitivity(plan.schema, name), columns**0.5) * FINEST
        if max(weighted if charge.weighted else 0, columns) / charge.per_row > LARGEST_SIGMA:
            raise ConfigError("the noise of this budget does not fit 64-bit integers; give a larger budget")
    plan.model.require()
    name = engine or source.engine or "local"
    check_engine(name)
    if plan.training is not None and name != "local":
        remedy = "leave --engine out" if source.engine is None else "give the table as a file"
        raise ConfigError(f"the model {plan.model.name} trains on one machine; {remedy}, or use --model aim")
