"""How to learn, by public numbers alone."""

import math
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.network.network import Layers, Network
from repsynth.privacy.events import SampledEvent

CLIP_UNITS = 2**26
"""Grid units in the norm to which a record's part in a round of training is clipped. Its square is a whole number
that floating point still holds exactly; and more units would make noise slow to draw."""

GAIN = 0.1
"""The part of the norm for the entry that tells the gain: how much better the network explains a record than
independent columns would."""

LARGEST_GAIN = 8.0
"""Nats of gain that this entry can tell."""

HIDDEN = 128
"""Hidden units where there are any by default."""

MOMENTUM, AVERAGED = 0.9, 0.5
_LAST_RATE = 0.1
_FASTEST = 1.0  # learning rate: few rounds of many records would step too far
_QUIET = 1e-3  # noise for each column at most, in relation to all records, where there are hidden units
_HIDDEN = 3.0  # the norm of the scales of all hidden units, beside that of an input
_INTO = 1.0


def units_for(event: SampledEvent, rows: float, columns: int) -> int:
    """How many hidden units are worth their noise: many or none.

    The noise of all rounds together, beside what so many records add up to, is shared by as many columns as there
    are. On simulated tables whose columns depend on pairs of others, units pay where it is below about three
    thousandths; where no column does, they cost a little above one thousandth and nothing below.

    >>> event = SampledEvent("gradients", sensitivity=1.0, sigma=5.0, rate=0.05, rounds=300)
    >>> units_for(event, rows=30_000, columns=15), units_for(event, rows=100_000, columns=15)
    (0, 128)
    """
    noise = event.noise / (event.rate * rows * math.sqrt(event.rounds))
    return HIDDEN if columns * noise <= _QUIET else 0


@dataclass(frozen=True)
class Recipe:
    """How to learn, by public numbers alone: the clip norm, the learning rate, and the scales on which biases and
    the couplings of each feature are learnt, in relation to the network's own; those of hidden units, and, times
    the scale of what they see, what goes into them."""

    clip: float
    learning_rate: float
    bias: float
    inputs: Floats
    hidden: float = 1.0
    into: float = 1.0

    @classmethod
    def of(cls, network: Network, event: SampledEvent) -> "Recipe":
        """By how large the noise of a round is beside the sum of a round.

        The more noise, the shorter are all inputs but the label, so that what depends on the label is learnt
        before the rest. Gradients are clipped at the norm that they have at the start; and steps are so large
        that their noise alone moves a parameter by some 0.2 on the way.
        """
        noise = event.noise / (event.rate * network.stage.histograms.rows)
        length = min(0.6, 0.012 * (math.sqrt(event.rounds) / noise) ** 0.5)
        inputs = np.full(network.ends[-1], length)
        if network.label is not None:
            inputs[: network.ends[1]] = 1.0
        bias = min(1.0, 2 * length)
        hidden, into = _HIDDEN * length / math.sqrt(max(network.hidden, 1)), _INTO
        squares = np.concatenate([network.probabilities[i] @ network.features[i] ** 2 for i in network.order])
        lengths = np.append(squares * inputs**2, np.full(network.hidden, hidden**2 / 2))
        clip = max(math.sqrt(lengths @ network.mask @ squares + bias**2 * squares.sum()), 1e-6)
        reach = _reaches(event.rounds)
        rate = min(0.2 / (clip * noise * float(np.linalg.norm(reach))), 300 / float(reach.sum()), _FASTEST)
        return cls(clip, rate, bias, inputs, hidden, into)

    def scaled(self, network: Network, parameters: Floats) -> Floats:
        """Parameters as they are learnt, on the network's own scale."""
        scaled: Floats = parameters * self._scales(network)
        return scaled

    def start(self, network: Network) -> Floats:
        """Where learning begins, on the scales on which it learns."""
        start: Floats = network.start() / self._scales(network)
        return start

    def _scales(self, network: Network) -> Floats:
        inputs = np.append(self.inputs, np.full(network.hidden, self.hidden))
        seen = self.into * np.append(self.bias, self.inputs)
        layers = Layers(
            np.full(network.width, self.bias),
            np.broadcast_to(inputs[:, None], network.mask.shape),
            np.broadcast_to(seen[:, None], network.into_mask.shape),
        )
        return network.pack(layers)


def _reaches(rounds: int) -> Floats:
    """How far a unit gradient in each round moves the average of the parameters, at a learning rate of 1."""
    averaged = np.arange(rounds) >= int(rounds * (1 - AVERAGED))
    kept = np.cumsum(averaged[::-1])[::-1] / averaged.sum()
    reaches, reach = np.zeros(rounds), 0.0
    for k in reversed(range(rounds)):
        reach = MOMENTUM * reach + pace(k, rounds) * kept[k]
        reaches[k] = reach
    return reaches


def pace(done: int, rounds: int) -> float:
    """The learning rate falls along a cosine to a tenth."""
    return _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * done / rounds)) / 2
