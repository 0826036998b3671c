"""Stage 2 of a trained model: the rounds of training, what is shown of them, and where they are kept."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from repsynth.checkpoint import Checkpoint
from repsynth.cost import Cost
from repsynth.encode import Records
from repsynth.measure import Account
from repsynth.models.network import LARGEST_PARAMETER, Trained
from repsynth.models.training import Recipe, State, Training
from repsynth.release import Release

_SECONDS = 1.0  # between two writings of a checkpoint


@dataclass(frozen=True)
class Round:
    """How far a training has come. The loss, in nats per record, is measured with the gradients; `epsilon` is
    what was spent by then, stage 1 included. Both are as of the last time that they were kept."""

    done: int
    of: int
    loss: float
    epsilon: float


OnRound = Callable[[Round], None]


def train(
    account: Account,
    data: Iterable[Records],
    start: Release,
    checkpoint: Checkpoint | None,
    on_round: OnRound,
) -> Release:
    """The release that training makes of one whose parameters are all zero, going on from a checkpoint's state."""
    assert start.trained is not None
    network = start.trained.network
    event = start.training
    state = checkpoint.state if checkpoint else State.start(network)
    training = Training(network, event, Recipe.of(network, event), state)
    before, delta = Cost.of(account.events), start.settings.budget.delta

    def spent() -> float:
        done = [replace(event, rounds=state.round)] if state.round else []
        return (before + Cost.of(done)).epsilon(delta)

    shown = Round(state.round, event.rounds, training.loss(), spent())
    kept = time.monotonic()

    def after_round(state: State) -> None:
        nonlocal shown, kept
        if state.round == event.rounds or time.monotonic() - kept >= _SECONDS:
            if checkpoint:
                checkpoint.save(state)  # before any of it is shown
            shown = replace(shown, loss=training.loss(), epsilon=spent())
            kept = time.monotonic()
        on_round(replace(shown, done=state.round))

    training.on_round = after_round
    account.train(training, data, event, done=state.round)
    parameters = np.clip(training.scaled(state.average), -LARGEST_PARAMETER, LARGEST_PARAMETER)
    return replace(start, events=tuple(account.events), trained=Trained(network, parameters))
