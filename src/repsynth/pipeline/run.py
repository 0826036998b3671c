"""The flow, start to end: each step measures once, and everything between measurements is public."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repsynth.data.anew import check_ids
from repsynth.data.imitate import layout_of
from repsynth.data.layout import Layout
from repsynth.data.sources import Source, check_columns
from repsynth.engines.local import LocalEngine
from repsynth.engines.opening import engine_for
from repsynth.errors import ConfigError
from repsynth.mechanism.kernels import FINEST
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import LARGEST_SIGMA, seeded_entropy
from repsynth.models.base import Fit, Hooks, Round
from repsynth.pipeline.checkpoint import held
from repsynth.pipeline.payment import Payer, open_checkpoint, paid
from repsynth.planning.plan import Plan
from repsynth.privacy.events import SampledEvent
from repsynth.release.release import Release
from repsynth.scoring.stage import StageOne, measure_stage_one

if TYPE_CHECKING:
    import pyarrow as pa


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
    checkpoint: Path | None = None,
    engine: str | None = None,
    cluster: Any = None,
    make_meter: Callable[..., Meter] = Meter,
) -> Release:
    """Carry out a plan. `noise_seed` makes the noise repeatable and the release not private: experiments only.

    `on_rows` hears how many rows were read and then, from none on, how many each measurement has gone through: it
    is for the curator, as it tells how many there are. On a cluster, whose workers read, it hears nothing.
    `rows` is the number of rows that will be drawn, where that is known: what could not be drawn is refused.
    `engine` and `cluster` say where sums are computed, and are not released.

    Whatever goes wrong after the cost was reserved counts as spent, but a training with a `checkpoint` can go on.
    """
    check_columns(source, plan.schema)
    layout = layout_of(source, plan.schema)
    _check(plan, rows, checkpoint, noise_seed)
    with (
        engine_for(source, plan.schema, engine, cluster) as open_engine,
        held(checkpoint) if checkpoint else contextlib.nullcontext(),
    ):
        kept = open_checkpoint(checkpoint, plan, layout, payer) if checkpoint else None
        begun = kept.release if kept else None
        plan = begun.plan if begun else plan
        with paid(payer, plan, kept):
            entropy = os.urandom if noise_seed is None else seeded_entropy(noise_seed)
            opened = open_engine(_watched(source, on_rows), plan.schema)
            meter = make_meter(
                replace(opened, on_rows=on_rows) if isinstance(opened, LocalEngine) else opened,
                plan.scale,
                entropy=entropy,
                delta=plan.delta,
                planned=plan.charges,
            )
            stage = _again(begun, meter, on_step) if begun else measure_stage_one(meter, plan, on_step)
            publishable = noise_seed is None and (plan.borrowed is None or plan.borrowed.publishable)
            draft = _Draft(plan, layout, stage, meter, publishable=publishable)
            if kept is not None:
                kept.make_release = draft.release
            release = draft.release(plan.model.measure(meter, stage, plan, Hooks(on_step, on_round, kept)))
        return replace(release, on_saved=kept.forget) if kept else release


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


def _again(begun: Release, meter: Meter, on_step: Callable[[str], None]) -> StageOne:
    """Stage 1 of a training that goes on: it is there, and so is its charge."""
    meter.events = [event for event in begun.events if not isinstance(event, SampledEvent)]
    for step in begun.plan.charges:
        on_step(step)
    return begun.stage


@dataclass(frozen=True)
class _Draft:
    """A release but for its fit."""

    plan: Plan
    layout: Layout
    stage: StageOne
    meter: Meter
    publishable: bool

    def release(self, fit: Fit) -> Release:
        """As it stands: a training is charged in full before its first round."""
        training, events = self.plan.training, self.meter.events
        begun = [training] if training is not None and training not in events else []
        return Release(
            plan=self.plan,
            layout=self.layout,
            stage=self.stage,
            fit=fit,
            events=(*events, *begun),
            publishable=self.publishable,
        )


def _check(plan: Plan, rows: int | None, checkpoint: Path | None, noise_seed: int | None) -> None:
    """Refuse, before anything is spent, what would stop the run or the drawing of its rows."""
    if rows is not None and not 0 <= rows <= 10**12:
        raise ConfigError("the number of rows cannot be negative, nor above 10^12")
    check_ids(plan.schema, rows if rows is not None else plan.public_rows or 0)
    columns = len(plan.schema.learned)
    for name, charge in plan.charges.items():
        sensitivity = plan.model.sensitivity(plan.schema, name) * FINEST if charge.weighted else columns
        if max(sensitivity, columns) / charge.per_row > LARGEST_SIGMA:
            raise ConfigError("the noise for so small a budget does not fit 64-bit integers; give a larger one")
    plan.model.require()
    if checkpoint is not None and (plan.training is None or noise_seed is not None):
        raise ConfigError("only a model that is trained takes a checkpoint, and only with fresh noise")
