"""Learning from the noisy sums of the rounds: post-processing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.data.records import Records
from repsynth.models.network.gradients import Gradients
from repsynth.models.network.network import Network
from repsynth.models.network.recipe import AVERAGED, GAIN, LARGEST_GAIN, MOMENTUM, Recipe, pace
from repsynth.privacy.events import SampledEvent

_SHOWN = 20  # rounds that the displayed gain is averaged over


@dataclass
class State:
    """All that training has learnt: functions of the noisy sums alone. `velocity` is the optimiser's."""

    parameters: Floats
    velocity: Floats
    average: Floats
    gain: float = 0.0
    round: int = 0

    @classmethod
    def start(cls, network: Network, recipe: Recipe) -> "State":
        """Independent columns."""
        start = recipe.start(network)
        return cls(start, np.zeros(network.size), start)


@dataclass
class Training:
    """The rounds of a training, as the meter carries them out."""

    network: Network
    event: SampledEvent
    state: State
    on_round: Callable[[State], None] = lambda state: None
    name: str = "gradients"
    weighted: bool = True

    def __post_init__(self) -> None:
        self.recipe = Recipe.of(self.network, self.event)
        # The network's own: it can be pickled, and who hears of the rounds stays here.
        self.parts: Callable[[Records], Int32s] = self.network.parts

    @property
    def sensitivity(self) -> float:
        """The norm that the gradients of every round keep to, in the units that the event was planned in."""
        return float(self.unit)

    def kernel(self) -> Gradients:
        return self._at(self.recipe, self.state.parameters)

    def examples(self) -> Iterator[Gradients]:
        """At the start and at the end, as learnt and with no scale but 1."""
        plain = Recipe(1.0, 1.0, 1.0, np.ones(self.network.width))
        for recipe in (self.recipe, plain):
            for parameters in (recipe.start(self.network), self.state.average):
                yield self._at(recipe, parameters)

    def _at(self, recipe: Recipe, parameters: Floats) -> Gradients:
        return Gradients.of(self.network, parameters, recipe, units=self.unit)

    @property
    def unit(self) -> int:
        """Grid units in the clip norm."""
        return int(self.event.sensitivity)

    def advance(self, noisy: Ints) -> None:
        """One step of descent with momentum along the noisy mean; the last half of the way is averaged."""
        state, event, recipe = self.state, self.event, self.recipe
        expected = event.rate * self.network.stage.histograms.rows
        gradient = noisy[:-1] * (recipe.clip / self.unit / expected)
        rate = recipe.learning_rate * pace(state.round, event.rounds)
        state.velocity = MOMENTUM * state.velocity + gradient
        state.parameters = state.parameters - rate * state.velocity
        averaged = state.round - int(event.rounds * (1 - AVERAGED)) + 1
        if averaged > 0:
            state.average = state.average + (state.parameters - state.average) / averaged
        gain = noisy[-1] * LARGEST_GAIN / (GAIN * self.unit * expected * self._mean_weight())
        state.round += 1
        state.gain += (gain - state.gain) / min(state.round, _SHOWN)
        self.on_round(state)

    def loss(self) -> float:
        """About the negative log-likelihood of a record, in nats, from released values alone."""
        probabilities = self.network.probabilities
        return float(sum(-(p * np.log(p)).sum() for p in probabilities)) - self.state.gain

    def _mean_weight(self) -> float:
        stage = self.network.stage
        fraction = stage.threshold.fraction if stage.threshold else 0.0
        return max(1 - fraction * (1 - stage.outlier_weight), 0.02)
