"""The flow, start to end: each step measures once, and everything between measurements is public."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from repsynth.data.ids import check_ids
from repsynth.data.sources import Source, check_columns
from repsynth.data.write import Kind
from repsynth.engines import check_engine, engine_for
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.mechanism.kernels import FINEST
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import LARGEST_SIGMA, seeded_entropy
from repsynth.models.base import Hooks, Round
from repsynth.pipeline.payment import Payer, paid
from repsynth.planning.plan import Plan
from repsynth.release.release import Release
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
    """Carry out a plan. `noise_seed` makes the noise repeatable and the release not private: experiments only.

    `on_rows` hears how many rows were read and then, from none on, how many each measurement has gone through: it
    is for the curator, as it tells how many there are. On a cluster, whose workers read, it hears nothing.
    `rows` is the number of rows that will be drawn, where that is known: what could not be drawn is refused.
    `engine` and `cluster` say where sums are computed, and are not released.

    A failure after the cost was reserved counts as spent.
    """
    check_columns(source, plan.schema)
    _check(plan, rows)
    _check_training(plan, source, engine)
    with engine_for(source, plan.schema, engine, cluster) as open_engine, paid(payer, plan):
        entropy = os.urandom if noise_seed is None else seeded_entropy(noise_seed)
        opened = open_engine(_watched(source, on_rows), plan.schema)
        meter = make_meter(
            replace(opened, on_rows=on_rows) if isinstance(opened, LocalEngine) else opened,
            plan.scale,
            entropy=entropy,
            delta=plan.delta,
            planned=plan.charges,
        )
        stage = measure_stage_one(meter, plan, on_step)
        fit = plan.model.measure(meter, stage, plan, Hooks(on_step, on_round))
        return Release(
            plan=plan,
            kind=_KINDS.get(source.kind, "arrow"),
            stage=stage,
            fit=fit,
            events=tuple(meter.events),
            publishable=noise_seed is None and (plan.borrowed is None or plan.borrowed.publishable),
        )


def _watched(source: Source, on_rows: Callable[[int], None]) -> Source:
    """The same source, which tells how many rows it has given."""

    def batches(columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
        done = 0
        for batch in source.batches(columns):
            yield batch
            done += batch.num_rows
            on_rows(done)

    # A cluster whose workers read the table as a whole must be able to pickle how.
    return replace(source, batches=batches, pieces=source.pieces or (lambda ask: [source.batches]))


def _check(plan: Plan, rows: int | None) -> None:
    """Refuse, before anything is spent, what would stop the run or the drawing of its rows."""
    if rows is not None and not 0 <= rows <= 10**12:
        raise ConfigError("the number of rows cannot be negative, nor above 10^12")
    check_ids(plan.schema, rows if rows is not None else plan.public_rows or 0)
    columns = len(plan.schema.learned)
    for name, charge in plan.charges.items():
        sensitivity = (
            max(plan.model.sensitivity(plan.schema, name), columns**0.5) * FINEST if charge.weighted else columns
        )
        if max(sensitivity, columns) / charge.per_row > LARGEST_SIGMA:
            raise ConfigError("the noise for so small a budget does not fit 64-bit integers; give a larger one")
    plan.model.require()


def _check_training(plan: Plan, source: Source, engine: str | None) -> None:
    """Refuse to train on a cluster."""
    name = engine or source.engine or "local"
    check_engine(name)
    if plan.training is not None and name != "local":
        remedy = "leave --engine out" if source.engine is None else "give the table as a file"
        raise ConfigError(f"the model {plan.model.name} trains on one machine; {remedy}, or use --model aim")
