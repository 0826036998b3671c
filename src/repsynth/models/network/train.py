"""The rounds of training from start to end, and what is shown of them."""

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
from repsynth.models.network.recipe import Recipe
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.loss import Loss

_SECONDS = 1.0  # between two updates of the displayed loss and ε
_PAUSE = 30.0  # and longer, for each second that an update takes: ε of a training is slow to compute


def train(meter: Meter, network: Network, event: SampledEvent, delta: float, hooks: Hooks) -> Floats:
    """Return the parameters that training finds."""
    of_a_row = event.of_a_row(meter.engine.rows_per_person)
    state = State.start(network, Recipe.of(network, of_a_row))
    training = Training(network, of_a_row, state)
    before = Loss.of(meter.events)

    def spent() -> float:
        done = [replaced(event, rounds=state.round)] if state.round else []
        return (before + Loss.of(done)).epsilon(delta)

    shown = Round(0, event.rounds, training.loss(), spent())
    due = time.monotonic() + _SECONDS

    def after_round(state: State) -> None:
        nonlocal shown, due
        begun = time.monotonic()
        if state.round == event.rounds or begun >= due:
            shown = replace(shown, loss=training.loss(), epsilon=spent())
            now = time.monotonic()
            due = now + max(_SECONDS, _PAUSE * (now - begun))
        hooks.on_round(replace(shown, done=state.round))

    training.on_round = after_round
    with threadpool_limits(1, user_api="blas"):  # rounds are short: a second thread takes time and saves none
        meter.train(training, event)
    scaled = training.recipe.scaled(network, state.average)
    return np.clip(scaled, -LARGEST_PARAMETER, LARGEST_PARAMETER)
