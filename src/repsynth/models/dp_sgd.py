"""Risk-weighted DP-SGD for the autoregressive network (REPS, instantiation B).

DP-SGD: Abadi et al. 2016. A record contributes w · clip(gradient, C): its weight is applied after the clip.

The gradient of a record is a set of outer products, of its inputs with the errors of each column's features. Both
factors are whole numbers. Every sum over inputs, groups or records is a sum of whole numbers below 2⁵³, so it is
exact in floating point and in any order. All other operations are elementwise and rounded by IEEE 754, or table
lookups. A record's contribution therefore depends only on that record and on public numbers, bit for bit. It does
not depend on other records, threads or the processor.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.io.records import Records
from repsynth.mechanism.meter import Meter
from repsynth.models.base import Hooks, Round
from repsynth.models.network import CLIP_UNITS, LARGEST_PARAMETER, Network
from repsynth.privacy.events import SampledEvent
from repsynth.scoring.weights import FULL

MOMENTUM = 0.9

_BITS = np.finfo(np.float64).nmant + 1  # floating point holds whole numbers of this many bits exactly
_HALF = _BITS // 2  # a product of two factors of this many bits is exact
_EXACT = _BITS - 2  # bits of a sum of products, whose factors may be rounded up
_CELLS = 2**18  # inputs times records in a block that fits into the cache
_SLACK = 1 - 1e-9  # allows for the floating-point error of a norm
_NAT = 2**14  # grid units per nat of a logit
_RAISE = 2**18  # grid units per unit that the inputs add to a feature
_POWERS = np.rint(2.0**_HALF * np.exp(-np.arange(19 * _NAT) / _NAT))  # of 1/e; the last one is 0


# --- gradients -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Gradients:
    """The gradient function of one round. All fields are public; all arrays hold whole numbers.

    `inputs` and `features` hold (features, groups + 1) of each column in drawing order. The last entry is 0, for
    records without a group. Both are the network's features, on two grids. Inputs are also multiplied by the
    scales on which parameters are learned. Steps convert the result of a matrix product to the units of the next.
    """

    constant: float
    inputs: tuple[Floats, ...]
    features: tuple[Floats, ...]
    logs: tuple[Floats, ...]  # log probabilities of each column's groups, in units of 1/_NAT
    couplings: Floats  # (inputs, features); the first input is the constant
    raise_step: float  # to units of 1/_RAISE
    logit_step: float  # to units of 1/_NAT
    mask: Bools
    clip: float  # the clip norm in units of an input times a feature
    units: int
    """Grid units in the clip norm. Whole-number arithmetic checks that no contribution has a larger L2 norm."""

    @classmethod
    def of(
        cls, network: Network, parameters: Floats, scales: Floats, *, clip: float, units: int = CLIP_UNITS
    ) -> "Gradients":
        """Return the gradients at these parameters, which are learned on these scales of the inputs."""
        plain = [network.features[i] for i in network.order]
        probabilities = [network.probabilities[i] for i in network.order]
        scaled = [x * scales[1:][block] for x, block in zip(plain, _blocks(plain), strict=True)]
        squares = [float(p @ (x**2).sum(axis=1)) for p, x in zip(probabilities, scaled, strict=True)]
        # A typical record's inputs get half the bits of a factor, which leaves the other half for its errors.
        unit = _grid(math.sqrt(float(scales[0]) ** 2 + math.fsum(squares)), _HALF // 2)
        constant, inputs = float(np.rint(scales[0] * unit)), tuple(np.rint(x * unit) for x in scaled)
        fine = _grid(max(len(x) * float(np.abs(x).max(initial=0.0)) for x in plain), _EXACT - _HALF)
        couplings = network.unpack(np.clip(np.nan_to_num(parameters), -LARGEST_PARAMETER, LARGEST_PARAMETER))
        longest = constant + sum(float(np.abs(x).max(axis=0).sum()) for x in inputs)
        grid = _grid(float(np.abs(couplings).max(initial=0.0)) * longest, _EXACT)
        return cls(
            constant=constant,
            inputs=tuple(map(_with_gap, inputs)),
            features=tuple(_with_gap(np.rint(x * fine)) for x in plain),
            logs=tuple(np.rint(_NAT * np.log(p)) for p in probabilities),
            couplings=np.rint(couplings * grid),
            raise_step=_RAISE / (unit * grid),
            logit_step=_NAT / (fine * _RAISE),
            mask=network.mask,
            clip=max(clip * unit * fine, 1.0),
            units=units,
        )

    def total(self, parts: Int32s) -> Ints:
        """Return the sum over records, in the order of the network's parameters.

        `parts` is (records, columns + 1): each record's group in every column, and its weight.
        """
        total = np.zeros(int(self.mask.sum()), dtype=np.int64)
        rows = max(_CELLS // len(self.couplings), 16)
        for start in range(0, len(parts), rows):
            inputs, errors = self._factors(parts[start : start + rows])
            # No record adds more than `units` to a parameter, so these sums are exact, too.
            total += (inputs @ errors.T)[self.mask].astype(np.int64)
        return total

    def _factors(self, parts: Int32s) -> tuple[Floats, Floats]:
        """Return the factors of every record's weighted, clipped gradient: (inputs, records), (features, records).

        A record's contribution is the outer product of its inputs with its errors on `mask`. Errors are truncated
        towards zero after clipping, so no entry grows.
        """
        cells, weights = parts[:, :-1].T.astype(np.int64), np.clip(parts[:, -1], 0, FULL).astype(np.float64)
        codes = np.where(cells >= 0, np.minimum(cells, self._last), self._last + 1)
        inputs = self._inputs(codes)
        errors, lengths = self._errors(inputs, codes), self._lengths(codes)
        # These terms are not whole numbers: cumsum fixes the order in which they are added.
        norm = np.sqrt(np.cumsum(lengths * self._by_column(errors), axis=0)[-1])
        unit = self.units // FULL  # of the norm, for each unit of weight
        errors *= weights * (unit * _SLACK) / np.maximum(norm, self.clip)
        np.trunc(errors, out=errors)
        # Check the bound without relying on the clip. The terms are whole and not negative. Up to 2⁵² their sum is
        # exact, and a larger sum is never rounded below that, in any order.
        squares = lengths * self._by_column(errors)
        kept = squares.sum(axis=0) <= (weights * unit) ** 2
        return inputs, errors if kept.all() else np.where(kept, errors, 0.0)

    def _inputs(self, codes: Ints) -> Floats:
        inputs = np.empty((len(self.couplings), codes.shape[1]))
        inputs[0] = self.constant
        for block, table, code in zip(self._columns, self.inputs, codes, strict=True):
            np.take(table, code, axis=1, out=inputs[1:][block])
        return inputs

    def _errors(self, inputs: Floats, codes: Ints) -> Floats:
        """Return (features, records): expected minus actual features; 0 in columns where a record has no group."""
        errors = self.couplings.T @ inputs  # logits per feature; replaced column by column by the errors
        errors *= self.raise_step
        np.clip(np.rint(errors, out=errors), -(2.0**_HALF), 2.0**_HALF, out=errors)
        for k, (block, table, code) in enumerate(zip(self._columns, self.features, codes, strict=True)):
            logits = table[:, :-1].T @ errors[block]
            logits *= self.logit_step
            logits += self.logs[k][:, None]
            # Half a unit more, because the conversion to integers truncates.
            np.subtract(logits.max(axis=0) + 0.5, logits, out=logits)
            powers = _POWERS.take(logits.astype(np.intp), mode="clip")
            expected = np.rint((table[:, :-1] @ powers) / powers.sum(axis=0))
            np.subtract(expected, table.take(code, axis=1), out=errors[block])
            errors[block] *= code <= self._last[k]
        return errors

    def _lengths(self, codes: Ints) -> Floats:
        """Return (columns, records): the squared norm of the inputs of each column."""
        lengths = np.empty(codes.shape)
        lengths[0] = self.constant**2
        for k, table in enumerate(self.inputs[:-1]):
            np.add(lengths[k], (table**2).sum(axis=0).take(codes[k]), out=lengths[k + 1])
        return lengths

    def _by_column(self, errors: Floats) -> Floats:
        """Return (columns, records): sums of squares over each column's features."""
        return np.stack([(errors[block] ** 2).sum(axis=0) for block in self._columns])

    @cached_property
    def _last(self) -> Ints:
        """(columns, 1): the last group of each column."""
        return np.array([[table.shape[1] - 2] for table in self.features])

    @cached_property
    def _columns(self) -> list[slice]:
        return _blocks(table.T for table in self.features)


def _grid(largest: float, bits: int) -> float:
    """Return the power of two that scales numbers of this size to this many bits, and at most 2^_BITS."""
    return 2.0 ** min(bits - math.frexp(largest)[1], _BITS)


def _with_gap(table: Floats) -> Floats:
    return np.ascontiguousarray(np.vstack([table, np.zeros(table.shape[1])]).T)


def _blocks(tables: Iterable[Floats]) -> list[slice]:
    """Return where the columns of each table are among those of all tables."""
    ends = np.cumsum([0, *(table.shape[1] for table in tables)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]


# --- training ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recipe:
    """The clip norm, the learning rate, and the scales on which parameters are learned."""

    clip: float
    learning_rate: float
    scales: Floats  # (inputs,): a network parameter is the learned one times the scale of its input

    @classmethod
    def of(cls, network: Network, event: SampledEvent) -> "Recipe":
        """Choose a recipe for the public ratio of a round's noise to its sum.

        The more noise, the shorter are all inputs except the label, so that effects of the label are learned
        first. The clip norm is that of a typical gradient at the start. With this learning rate, the noise of all
        steps moves a parameter by about 0.2.
        """
        noise = event.noise / (event.rate * network.stage.histograms.rows)
        length = min(0.6, 0.012 * (math.sqrt(event.rounds) / noise) ** 0.5)
        inputs = np.full(network.width, length)
        if network.label is not None:
            inputs[: network.ends[1]] = 1.0
        scales = np.concatenate([[min(1.0, 2 * length)], inputs])
        squares = np.concatenate([network.probabilities[i] @ network.features[i] ** 2 for i in network.order])
        typical = np.append(1.0, squares)
        clip = max(math.sqrt((scales**2 * typical) @ network.mask @ squares), 1e-6)
        reach = np.array([_pace(k, event.rounds) for k in range(event.rounds)])
        for k in reversed(range(event.rounds - 1)):  # the total move of the parameters by a unit gradient
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
        return cls(network, event, recipe or Recipe.of(network, event), np.zeros(network.size))

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
            for parameters in (np.zeros(self.network.size), self.parameters):
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
