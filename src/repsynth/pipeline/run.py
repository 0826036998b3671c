"""The flow, start to end: each step measures once, and everything between measurements is public."""

import contextlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from repsynth.data.imitate import layout_of
from repsynth.data.sources import Source, check_columns
from repsynth.engines.opening import check_engine, open_engine
from repsynth.errors import ConfigError
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import LARGEST_SIGMA, seeded_entropy
from repsynth.models.base import Fit, Hooks, Round
from repsynth.pipeline.checkpoint import Checkpoint, find, held, remove
from repsynth.pipeline.payment import Payer
from repsynth.planning.plan import Plan
from repsynth.privacy.events import SampledEvent
from repsynth.release.release import Release
from repsynth.scoring.stage import measure_stage_one


def run(
    plan: Plan,
    source: Source,
    *,
    on_step: Callable[[str], None] = lambda step: None,
    on_round: Callable[[Round], None] = lambda done: None,
    payer: Payer | None = None,
    noise_seed: int | None = None,
    checkpoint: Path | None = None,
    engine: str = "local",
    make_meter: Callable[..., Meter] = Meter,
) -> Release:
    """Carry out a plan. `noise_seed` makes the noise repeatable and the release not private: experiments only.

    Whatever goes wrong after the cost was reserved counts as spent, but a training with a `checkpoint` can go on.
    """
    check_columns(source, plan.schema)
    layout = layout_of(source, plan.schema)
    _check(plan, checkpoint, noise_seed)
    check_engine(engine)
    with held(checkpoint) if checkpoint else contextlib.nullcontext():
        kept = find(checkpoint) if checkpoint else None
        if kept is not None:
            kept = kept.resumed(plan, layout, *((payer.ledger, payer.dataset) if payer else (None, None)))
        ticket = kept.ticket if kept else None
        if ticket is None and payer is not None:  # a training that began unpaid is paid for now
            ticket = payer.reserve(plan)
        entropy = os.urandom if noise_seed is None else seeded_entropy(noise_seed)
        meter = make_meter(open_engine(engine, source, plan.schema), plan.mu, entropy=entropy, delta=plan.delta)
        if kept is not None and kept.release is not None:
            plan, stage = kept.release.plan, kept.release.stage
            meter.events = [event for event in kept.release.events if not isinstance(event, SampledEvent)]
            for step in plan.charges:
                on_step(step)
        else:
            stage = measure_stage_one(meter, plan, on_step)

        def make_release(fit: Fit) -> Release:
            """As it stands: a training is charged in full before its first round."""
            begun = [] if plan.training is None or plan.training in meter.events else [plan.training]
            events = (*meter.events, *begun)
            return Release(
                plan=plan, layout=layout, stage=stage, fit=fit, events=events, private=noise_seed is None
            )

        if checkpoint is not None and kept is None:
            kept = Checkpoint(checkpoint, ticket, payer.ledger if payer else None, make_release=make_release)
        release = make_release(plan.model.measure(meter, stage, plan, Hooks(on_step, on_round, kept)))
        if checkpoint is not None:
            release = replace(release, on_saved=lambda: remove(checkpoint))
        if payer is not None and (ticket := kept.ticket if kept and kept.ticket else ticket) is not None:
            payer.close(ticket)
        return release


def _check(plan: Plan, checkpoint: Path | None, noise_seed: int | None) -> None:
    """What would stop a run must stop it before anything is spent."""
    columns = len(plan.schema.learned)
    for name, charge in plan.charges.items():
        sensitivity = plan.model.sensitivity(plan.schema, name) * plan.model.unit if charge.weighted else columns
        if max(sensitivity, columns) / charge.mu > LARGEST_SIGMA:
            raise ConfigError("the noise for so small a budget does not fit 64-bit integers; give a larger one")
    plan.model.require()
    if checkpoint is not None and (plan.training is None or noise_seed is not None):
        raise ConfigError("only a model that is trained takes a checkpoint, and only with fresh noise")
