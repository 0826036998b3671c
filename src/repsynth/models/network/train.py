"""The rounds of training from start to end: what is shown of them, and where they are kept."""

import time
from dataclasses import replace

import numpy as np
from msgspec.structs import replace as replaced
from threadpoolctl import threadpool_limits

from repsynth.arrays import Floats
from repsynth.mechanism.meter import Meter
from repsynth.models.base import Hooks, Round
from repsynth.models.network.network import LARGEST_PARAMETER, Network
from repsynth.models.network.optimiser import State, Training
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.loss import Loss

_SECONDS = 1.0  # between two writings of a checkpoint
_PAUSE = 30.0  # and longer, for each second that it takes to write one and to work out what was spent
_PART = 0.01  # and for each second that training has taken: each writing is an entry in a ledger, for good


def train(meter: Meter, network: Network, event: SampledEvent, state: State, delta: float, hooks: Hooks) -> Floats:
    """The parameters that training finds, going on from a state."""
    training = Training(network, event.of_a_row(meter.engine.rows_per_person), state)
    before = Loss.of(meter.events)

    def spent() -> float:
        done = [replaced(event, rounds=state.round)] if state.round else []
        return (before + Loss.of(done)).epsilon(delta)

    shown = Round(state.round, event.rounds, training.loss(), spent())
    started = time.monotonic()
    due = started + _SECONDS

    def after_round(state: State) -> None:
        nonlocal shown, due
        begun = time.monotonic()
        if state.round == event.rounds or begun >= due:
            if hooks.keeper:
                hooks.keeper.save(state.dump())  # before any of it is shown
            shown = replace(shown, loss=training.loss(), epsilon=spent())
            now = time.monotonic()
            due = now + _SECONDS * max(1.0, _PAUSE * (now - begun), _PART * (now - started))
        hooks.on_round(replace(shown, done=state.round))

    training.on_round = after_round
    with threadpool_limits(1, user_api="blas"):  # rounds are short: a second thread takes time and saves none
        meter.train(training, event, done=state.round)
    scaled = training.recipe.scaled(network, state.average)
    return np.clip(scaled, -LARGEST_PARAMETER, LARGEST_PARAMETER)
