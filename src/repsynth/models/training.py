"""The training of the network: risk-weighted DP-SGD, in exact integers.

In every round each record that was sampled adds w · clip(gradient, C), cut off to whole grid units, with one
more entry for how much better the network explains the record than independent columns would. JAX works the
gradient out, one record after the other, so that it depends on nothing but the record and the parameters.
Whether its norm keeps to the bound is checked in integers, and sums and noise are exact: floating point
decides how well the network learns, never what it costs. Learning from the noisy sums is post-processing.
"""

import math
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.encode import Records
from repsynth.errors import ConfigError
from repsynth.models.network import Network
from repsynth.noise import SampledEvent
from repsynth.plan import CLIP_UNITS
from repsynth.weigh import FULL

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]

_CORES = min(os.cpu_count() or 1, 8)
_SMALLEST, _LARGEST = 16, 128  # records in one call; the last call is padded with records of weight 0
_UNITS = CLIP_UNITS // FULL  # of norm for each unit of weight
_NEVER = -1e30  # the log share of a group that there is not
_GAIN = 0.1  # the part of the norm for the entry that tells the gain
_LARGEST_GAIN = 8.0  # nats
_MOMENTUM, _LAST_RATE, _AVERAGED = 0.9, 0.1, 0.5
_SHOWN = 20  # rounds that the displayed gain is averaged over


@dataclass(frozen=True)
class Recipe:
    """How to learn, by public numbers alone: the clip norm, the learning rate, and the scales on which biases and
    the weights of each feature are learnt, in relation to the network's own."""

    clip: float
    learning_rate: float
    bias: float
    inputs: Floats

    @classmethod
    def of(cls, network: Network, event: SampledEvent) -> "Recipe":
        """By how large the noise of a round is beside the sum of a round.

        The more noise, the shorter are all inputs but the label, so that what depends on the label is learnt
        before the rest. Gradients are clipped at the norm that they have at the start; and steps are so large
        that their noise alone moves a parameter by some 0.2 on the way.
        """
        noise = event.noise / (event.rate * network.stage.marginals.rows)
        length = min(0.6, 0.012 * (math.sqrt(event.rounds) / noise) ** 0.5)
        inputs = np.full(network.ends[-1], length)
        if network.label is not None:
            inputs[: network.ends[1]] = 1.0
        bias = min(1.0, 2 * length)
        squares = np.concatenate([network.shares[i] @ network.features[i] ** 2 for i in network.order])
        clip = max(math.sqrt((squares * inputs**2) @ network.mask @ squares + bias**2 * squares.sum()), 1e-6)
        reach = _reaches(event.rounds)
        rate = min(0.2 / (clip * noise * float(np.linalg.norm(reach))), 300 / float(reach.sum()))
        return cls(clip, rate, bias, inputs)


def _reaches(rounds: int) -> Floats:
    """How far a unit gradient in each round moves the average of the parameters, at a learning rate of 1."""
    averaged = np.arange(rounds) >= int(rounds * (1 - _AVERAGED))
    kept = np.cumsum(averaged[::-1])[::-1] / averaged.sum()
    reaches, reach = np.zeros(rounds), 0.0
    for k in reversed(range(rounds)):
        reach = _MOMENTUM * reach + _pace(k, rounds) * kept[k]
        reaches[k] = reach
    return reaches


def _pace(done: int, rounds: int) -> float:
    """The learning rate falls along a cosine to a tenth."""
    return _LAST_RATE + (1 - _LAST_RATE) * (1 + math.cos(math.pi * done / rounds)) / 2


@dataclass
class State:
    """All that training has learnt: functions of the noisy sums alone. `velocity` is the optimiser's."""

    parameters: Floats
    velocity: Floats
    average: Floats
    gain: float = 0.0
    round: int = 0

    @classmethod
    def start(cls, network: Network) -> "State":
        """Independent columns."""
        size = network.size
        return cls(np.zeros(size), np.zeros(size), np.zeros(size))


@dataclass
class Training:
    """The rounds of a training, as the account carries them out."""

    network: Network
    event: SampledEvent
    recipe: Recipe
    state: State
    on_round: Callable[[State], None] = lambda state: None
    name: str = "training"
    sensitivity: float = float(CLIP_UNITS)

    def parts(self, records: Records) -> Int32s:
        """The groups and the weight of each record."""
        return self.network.parts(records)

    def total(self, parts: Int32s) -> Ints:
        """The sum over a sample: gradients, then the gain."""
        expected = self.event.rate * self.network.stage.marginals.rows
        chunk = int(np.clip(2 ** math.ceil(math.log2(max(expected, 1) / _CORES)), _SMALLEST, _LARGEST))
        padding = np.zeros((-len(parts) % chunk, parts.shape[1]), dtype=np.int32)
        chunks = np.concatenate([parts, padding]).reshape(-1, chunk, parts.shape[1])
        with ThreadPoolExecutor(_CORES) as cores:  # whole numbers: the order does not matter
            return sum(cores.map(self._sum_up, chunks), np.zeros(self.network.size + 1, dtype=np.int64))

    def _sum_up(self, chunk: Int32s) -> Ints:
        network = self.network
        jax, _ = neural_libraries()
        with jax.enable_x64(True):
            weights = network.unpack(self.scaled(self.state.parameters))
            scales = self.recipe.bias, self.recipe.inputs[:, None] * network.mask
            summed = _compiled()(weights, self._columns, scales, self.recipe.clip, chunk)
        biases, matrix, gain = map(np.asarray, summed)
        total: Ints = np.concatenate([biases, matrix[network.mask], gain[None]])
        return total

    @cached_property
    def _columns(self) -> tuple[Floats, Floats]:
        """(columns, groups, features of all columns) and (columns, groups): features and log shares side by side,
        with groups that no column has where a column has fewer than others."""
        network = self.network
        most = max(groups.count for groups in network.groups)
        features = np.zeros((len(network.order), most, int(network.ends[-1])))
        logs = np.full(features.shape[:2], _NEVER)
        for k, i in enumerate(network.order):
            count = network.groups[i].count
            features[k, :count, slice(*network.ends[k : k + 2])] = network.features[i]
            logs[k, :count] = np.log(network.shares[i])
        return features, logs

    def advance(self, noisy: Ints) -> None:
        """One step of descent with momentum along the noisy mean; the last half of the way is averaged."""
        state, event, recipe = self.state, self.event, self.recipe
        expected = event.rate * self.network.stage.marginals.rows
        gradient = noisy[:-1] * (recipe.clip / CLIP_UNITS / expected)
        rate = recipe.learning_rate * _pace(state.round, event.rounds)
        state.velocity = _MOMENTUM * state.velocity + gradient
        state.parameters = state.parameters - rate * state.velocity
        averaged = state.round - int(event.rounds * (1 - _AVERAGED)) + 1
        if averaged > 0:
            state.average = state.average + (state.parameters - state.average) / averaged
        gain = noisy[-1] * _LARGEST_GAIN / (_GAIN * CLIP_UNITS * expected * self._mean_weight())
        state.round += 1
        state.gain += (gain - state.gain) / min(state.round, _SHOWN)
        self.on_round(state)

    def scaled(self, parameters: Floats) -> Floats:
        """Parameters as they are learnt, on the network's own scale."""
        count = int(self.network.ends[-1])
        by_input = np.broadcast_to(self.recipe.inputs[:, None], (count, count))[self.network.mask]
        scales = np.concatenate([np.full(count, self.recipe.bias), by_input])
        scaled: Floats = parameters * scales
        return scaled

    def loss(self) -> float:
        """About the negative log-likelihood of a record, in nats, from released values alone."""
        shares = self.network.shares
        return float(sum(-(p * np.log(p)).sum() for p in shares)) - self.state.gain

    def _mean_weight(self) -> float:
        stage = self.network.stage
        share = stage.threshold.share if stage.threshold else 0.0
        return max(1 - share * (1 - stage.outlier_weight), 0.02)


@lru_cache(maxsize=1)
def _compiled() -> Any:
    """The sum over a chunk of records: compiled for each shape of network, run for one record after the other."""
    jax, clipping = neural_libraries()
    jnp = jax.numpy

    def log_likelihoods(weights: Any, columns: Any, codes: Any) -> Any:
        """log P of one record, and what it would be were the columns independent."""
        (biases, matrix), (features, logs) = weights, columns
        taking_part = codes >= 0  # a gap in a column that declares none takes no part
        own = jnp.arange(len(codes)), jnp.maximum(codes, 0)
        inputs = taking_part @ features[own]
        levels = jax.nn.log_softmax(logs + features @ (biases + inputs @ matrix), axis=1)
        return taking_part @ levels[own], taking_part @ logs[own]

    def part(weights: Any, columns: Any, scales: Any, clip: Any, record: Any) -> Any:
        """What one record adds: w · clip(gradient) and w · gain in grid units, cut off towards zero."""
        codes, weight = record[:-1], record[-1].astype(jnp.float64)
        (learned, independent), gradient = jax.value_and_grad(log_likelihoods, has_aux=True)(
            weights, columns, codes
        )
        gradient, _ = clipping.clip_pytree([g * scale for g, scale in zip(gradient, scales, strict=True)], clip)
        unit = weight * (_UNITS * (1 - _GAIN**2) ** 0.5 * (1 - 1e-9)) / clip
        gain = jnp.clip(jnp.nan_to_num((learned - independent) / _LARGEST_GAIN), -1, 1)
        entries = [*(-entry * unit for entry in gradient), gain * (weight * (_GAIN * _UNITS * (1 - 1e-9)))]
        # The bound holds in whole numbers, whatever floating point made of the gradient: no square overflows.
        most = 2.0 * CLIP_UNITS
        whole = [jnp.trunc(jnp.clip(jnp.nan_to_num(e), -most, most)).astype(jnp.int64) for e in entries]
        norm = sum(jnp.sum(entry * entry) for entry in whole)
        bound = jnp.clip(record[-1], 0, FULL).astype(jnp.int64) * _UNITS
        return [jnp.where(norm <= bound**2, entry, 0) for entry in whole]

    def sum_up(weights: Any, columns: Any, scales: Any, clip: Any, records: Any) -> Any:
        start = [jnp.zeros(shape, dtype=jnp.int64) for shape in (weights[0].shape, weights[1].shape, ())]

        def add(total: Any, record: Any) -> Any:
            added = part(weights, columns, scales, clip, record)
            return [a + b for a, b in zip(total, added, strict=True)], None

        return jax.lax.scan(add, start, records)[0]

    return jax.jit(sum_up)


def neural_libraries() -> Any:
    """JAX and jax-privacy's clipping, which only training needs."""
    try:
        import jax
        from jax_privacy import clipping
    except ImportError:
        raise ConfigError(
            "training a network needs JAX, which is not installed; install repsynth[neural], or use another model"
        ) from None
    return jax, clipping
