"""Risk-weighted DP-SGD (Abadi et al. 2016; REPS, instantiation B): the recipe, and the descent on noisy gradients.

Everything here follows from public numbers and from the noisy sums of earlier rounds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.data.records import Records
from repsynth.mechanism.meter import Meter
from repsynth.models.base import Hooks, Round
from repsynth.models.network.gradients import Gradients
from repsynth.models.network.network import LARGEST_PARAMETER, MOST_HIDDEN, Network
from repsynth.privacy.events import SampledEvent

HIDDEN = MOST_HIDDEN // 2
"""The number of hidden units where the default is to have any."""

MOMENTUM = 0.9
_QUIET = 1e-3  # the largest noise at which hidden units help


def units_for(event: SampledEvent, rows: float, columns: int) -> int:
    """Return the default number of hidden units: many where the noise is low, otherwise none.

    By the noise of all rounds relative to the sum over all records, times the number of columns: on simulated
    tables, units help below 0.003 where pairs have effects, and cost a little above 0.001 where they have none.

    >>> event = SampledEvent("gradients", sensitivity=1.0, sigma=5.0, rate=0.05, rounds=300)
    >>> units_for(event, rows=30_000, columns=15), units_for(event, rows=100_000, columns=15)
    (0, 128)
    """
    noise = event.noise / (event.rate * rows * math.sqrt(event.rounds))
    return HIDDEN if columns * noise <= _QUIET else 0


@dataclass(frozen=True)
class Recipe:
    """The clip norm, the learning rate, and the scales on which parameters are learnt."""

    clip: float
    learning_rate: float
    scales: Floats  # (inputs,): a network parameter is the learnt one times the scale of its input

    @classmethod
    def of(cls, network: Network, event: SampledEvent) -> "Recipe":
        """Choose them by the noise of a round relative to its sum.

        The more noise, the shorter are all inputs except the label, so that effects of the label are learnt first.
        The clip norm is that of a typical gradient at the start. The steps are so long that their noise moves a
        parameter by about 0.2 in all.
        """
        noise = event.noise / (event.rate * network.stage.histograms.rows)
        length = min(0.6, 0.012 * (math.sqrt(event.rounds) / noise) ** 0.5)
        inputs = np.full(network.width, length)
        if network.label is not None:
            inputs[: network.ends[1]] = 1.0
        hidden = np.full(network.hidden, 3 * length / math.sqrt(max(network.hidden, 1)))
        scales = np.concatenate([[min(1.0, 2 * length)], inputs, hidden])
        squares = np.concatenate([network.probabilities[i] @ network.features[i] ** 2 for i in network.order])
        typical = np.concatenate([[1.0], squares, np.full(network.hidden, 0.5)])
        clip = max(math.sqrt((scales**2 * typical) @ network.mask @ squares), 1e-6)
        reach = np.array([_pace(k, event.rounds) for k in range(event.rounds)])
        for k in reversed(range(event.rounds - 1)):  # how far a unit gradient moves the last parameters
            reach[k] += MOMENTUM * reach[k + 1]
        rate = min(0.2 / (clip * noise * float(np.linalg.norm(reach))), 300 / float(reach.sum()), 1.0)
        return cls(clip, rate, scales)


def _pace(done: int, rounds: int) -> float:
    """Return the learning rate relative to the first round's: it falls to 0 along a cosine."""
    return (1 + math.cos(math.pi * done / rounds)) / 2


@dataclass
class Training:
    """The rounds of a training, as the meter runs them. Parameters are on the recipe's scales."""

    network: Network
    event: SampledEvent
    recipe: Recipe
    parameters: Floats
    velocity: Floats | float = 0.0
    done: int = 0
    on_round: Callable[[int], None] = lambda done: None
    name: str = "gradients"
    weighted: bool = True

    @classmethod
    def start(cls, network: Network, event: SampledEvent, recipe: Recipe | None = None) -> "Training":
        """Begin with independent columns."""
        recipe = recipe or Recipe.of(network, event)
        parameters = network.start() / network.of_inputs(recipe.scales)
        return cls(network, event, recipe, parameters)

    def __post_init__(self) -> None:
        # The network's own method can be pickled; `on_round` often cannot.
        self.parts: Callable[[Records], Int32s] = self.network.parts

    @property
    def unit(self) -> int:
        """Grid units in the clip norm."""
        return int(self.event.sensitivity)

    @property
    def sensitivity(self) -> float:
        """The L2 norm that the gradients of every round are clipped to, in grid units."""
        return float(self.unit)

    def kernel(self) -> Gradients:
        return self._at(self.recipe, self.parameters)

    def examples(self) -> Iterator[Gradients]:
        """Yield the gradients at the start and at the end, on the recipe's scales and on scales of 1."""
        for recipe in (self.recipe, Recipe(1.0, 1.0, np.ones_like(self.recipe.scales))):
            for parameters in (self.network.start() / self.network.of_inputs(recipe.scales), self.parameters):
                yield self._at(recipe, parameters)

    def _at(self, recipe: Recipe, parameters: Floats) -> Gradients:
        return Gradients.of(self.network, parameters, recipe.scales, clip=recipe.clip, units=self.unit)

    def advance(self, noisy: Ints) -> None:
        """Step along the noisy mean gradient, with momentum."""
        expected = self.event.rate * self.network.stage.histograms.rows
        rate = self.recipe.learning_rate * _pace(self.done, self.event.rounds)
        gradient = noisy.astype(np.float64) * (self.recipe.clip / self.unit / expected)
        self.velocity = MOMENTUM * self.velocity + gradient
        self.parameters = self.parameters - rate * self.velocity
        self.done += 1
        self.on_round(self.done)


def train(meter: Meter, network: Network, event: SampledEvent, hooks: Hooks) -> Floats:
    """Train a network; return its parameters."""
    training = Training.start(network, event.of_a_row(meter.engine.rows_per_person))
    training.on_round = lambda done: hooks.on_round(Round(done, event.rounds))
    with threadpool_limits(1, user_api="blas"):  # rounds are short: a second thread would not save time
        meter.train(training, event)
    scaled = training.parameters * network.of_inputs(training.recipe.scales)
    return np.clip(scaled, -LARGEST_PARAMETER, LARGEST_PARAMETER)
