"""What one record adds to a round of training: w · clip(gradient, C), and its gain, in exact integers.

The network has no hidden layer, so the gradient is an outer product: a record's features, times how far the
features of each column are from what the columns before let expect. Both factors are rounded to whole numbers.
All sums over features, groups or records are sums of whole numbers below 2⁵³, which floating point adds up exactly
in whatever order; the rest is done number by number, by operations that IEEE 754 rounds in one way only, or looked
up in a table. So what a record adds is a function of that record and of public numbers, bit for bit, whoever else
takes part, and however many threads of whichever processor work it out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.models.network.network import LARGEST_PARAMETER, Network
from repsynth.models.network.recipe import CLIP_UNITS, GAIN, LARGEST_GAIN, Recipe
from repsynth.scoring.weights import FULL

_SLACK = 1 - 1e-9  # more than floating point can be off in a norm
_EXACT = 51  # bits of a sum of products, with room for the rounding of their factors
_FINEST = 60  # bits of a unit: of numbers near 0, no more are kept
_CELLS = 2**16  # groups times records at once: so many stay in the cache

_LENGTH = 16  # bits in the norm of a typical record's inputs
_DIGIT = 2**6  # how much finer the second of two digits is
_NAT = 2**14  # units in a nat
_ONE = 26  # bits of a column's largest probability before all are divided by their sum
_POWERS = np.rint(2.0**_ONE * np.exp(-np.arange(19 * _NAT) / _NAT))  # of 1/e, the last of them 0
_STEPS = 2**12  # from a number to its double
# Rounded, so that they are the same numbers whatever a processor makes of the last bits of a logarithm.
_LOGS = np.rint(2**20 * _NAT * np.log1p((np.arange(_STEPS) + 0.5) / _STEPS)) / 2**20


@dataclass(frozen=True)
class Gradients:
    """The function of one round, at that round's parameters. All of it is public; arrays hold whole numbers.

    `inputs` and `features` are (groups, features) of each column in the order of drawing: the same features on
    two grids, the inputs times the scales on which parameters are learnt. `raises` is by how much one unit of each
    input, the `constant` one first, raises the logarithm of each group, and `step` takes it to units of 1/_NAT.
    `clip` is in units of an input times a feature.
    """

    constant: float
    inputs: tuple[Floats, ...]
    features: tuple[Floats, ...]
    logs: Floats
    raises: Floats
    step: float
    clip: float
    units: int
    """Grid units in the clip norm C: the largest norm of what a record adds, in any entries."""

    @classmethod
    def of(cls, network: Network, parameters: Floats, recipe: Recipe, *, units: int = CLIP_UNITS) -> "Gradients":
        """At these parameters, which are learnt on the recipe's scales."""
        bias, scales = recipe.bias, recipe.inputs
        plain = [network.features[i] for i in network.order]
        probabilities = np.concatenate([network.probabilities[i] for i in network.order])
        scaled = [
            own * scales[block] for own, block in zip(plain, _blocks(x.shape[1] for x in plain), strict=True)
        ]
        squares = np.concatenate([(x**2).sum(axis=1) for x in scaled])
        unit = _grid(math.sqrt(bias**2 + float(probabilities @ squares)), _LENGTH)
        constant, inputs = float(round(bias * unit)), tuple(np.rint(x * unit) for x in scaled)
        fine = _grid(max(len(x) * _largest(x) for x in plain), _EXACT - _ONE)
        features = tuple(np.rint(x * fine) for x in plain)

        usable = np.clip(np.nan_to_num(parameters), -LARGEST_PARAMETER, LARGEST_PARAMETER)
        couplings = np.vstack(network.unpack(usable))
        grid = _grid(_largest(couplings) * max(x.shape[1] * _largest(x) for x in features), _EXACT)
        couplings = np.rint(couplings * grid)
        of_columns = np.split(couplings, network.ends[1:-1], axis=1)
        raises = np.hstack([part @ own.T for part, own in zip(of_columns, features, strict=True)])
        longest = constant + sum(float(np.abs(x).max(axis=0).sum()) for x in inputs)
        coarse = _grid(_largest(raises) * longest, _EXACT)
        return cls(
            constant=constant,
            inputs=inputs,
            features=features,
            logs=np.rint(_NAT * np.log(probabilities)),
            raises=np.rint(raises * coarse),
            step=min(_NAT / (unit * fine * grid * coarse), 1.0),  # so that no logarithm has more bits
            clip=max(recipe.clip * unit * fine, 1.0),
            units=units,
        )

    @property
    def sensitivity(self) -> float:
        """Checked in whole numbers for each record."""
        return float(self.units)

    def total(self, parts: Int32s) -> Ints:
        """The sum over records, each given by its groups and its weight: biases, couplings, then the gain."""
        total = np.zeros(int(self._mask.sum()) + 1, dtype=np.int64)
        rows = max(_CELLS // len(self.logs), 16)
        for start in range(0, len(parts), rows):
            inputs, first, second, gains = self._factors(parts[start : start + rows])
            # No record adds more than `units` to a coupling that there is, so these sums are exact, too.
            products = inputs @ first.T + np.trunc(inputs / _DIGIT) @ second.T
            total += np.append(products[self._mask], gains.sum()).astype(np.int64)
        return total

    def _factors(self, parts: Int32s) -> tuple[Floats, Floats, Floats, Floats]:
        """(inputs, records), (features, records) twice, and (records,): what each record adds is, on the couplings
        that there are, the outer product of its inputs and the first digits of its clipped errors, plus that of
        its inputs / _DIGIT and the second digits; and its gain.

        With one digit alone, errors would be coarse. All are cut off towards zero, the inputs / _DIGIT as well, so
        no entry becomes larger than inputs times errors.
        """
        cells, weights = parts[:, :-1].T.astype(np.int64), np.clip(parts[:, -1], 0, FULL).astype(np.float64)
        codes, present = np.clip(cells, 0, self._last), cells >= 0
        inputs, errors, gain = self._explain(codes, present)
        before = self._before(codes, present)
        # Not whole numbers any more, so they are added one after the other: their sum depends on the order.
        norm = np.sqrt(np.cumsum(before[0] * (self._columns @ errors**2), axis=0)[-1])
        unit = self.units // FULL  # of norm, for each unit of weight
        errors *= weights * (math.sqrt(1 - GAIN**2) * unit * _SLACK) / np.maximum(norm, self.clip)
        first = np.trunc(errors)
        second = np.trunc((errors - first) * _DIGIT)
        gains = np.trunc(gain * (weights * (GAIN * unit * _SLACK)))
        # The bound holds whatever the above has come to. The terms are whole and none is negative: up to 2⁵² their
        # sum is exact, and rounding takes no larger one below that, in whatever order.
        squares = before * (self._columns @ np.stack([first**2, first * second, second**2]))
        kept = squares.sum(axis=(0, 1)) + gains**2 <= (weights * unit) ** 2
        return inputs, np.where(kept, first, 0.0), np.where(kept, second, 0.0), np.where(kept, gains, 0.0)

    def _explain(self, codes: Ints, present: Bools) -> tuple[Floats, Floats, Floats]:
        """(inputs, records), (features, records) and (records,): the inputs of each record, how much more of each
        feature was expected than it has, and its gain as a share of the largest. A column in which a record is not
        `present` takes no part."""
        inputs = np.full((len(self.raises), codes.shape[1]), self.constant)
        for k, block in enumerate(self._features):
            inputs[1:][block] = self.inputs[k].T.take(codes[k], axis=1) * present[k]
        raised = np.rint((self.raises.T @ inputs) * self.step)
        logs = raised + self.logs[:, None]
        errors = np.empty((len(self.raises) - 1, codes.shape[1]))
        highest, mass = np.empty(codes.shape), np.empty(codes.shape)
        for k, (block, own) in enumerate(zip(self._features, self._groups, strict=True)):
            highest[k] = logs[own].max(axis=0)
            powers = _POWERS.take((highest[k] - logs[own]).astype(np.intp), mode="clip")
            mass[k] = powers.sum(axis=0)
            expected = np.rint((self.features[k].T @ powers) / mass[k])
            errors[block] = (expected - self.features[k].T.take(codes[k], axis=1)) * present[k]
        gains = np.take_along_axis(raised, codes + self._starts, axis=0) - highest - _log(mass)
        gain = (np.clip(gains, -(2**30), 2**30) * present).sum(axis=0)  # clipped so that the sum is exact
        return inputs, errors, np.clip(gain / (LARGEST_GAIN * _NAT), -1, 1)

    def _before(self, codes: Ints, present: Bools) -> Floats:
        """(3, columns, records): what `_lengths` says of all the inputs together that a column depends on."""
        own = self._lengths[:, (codes + self._starts)[:-1]] * present[:-1]
        constant = np.broadcast_to(_lengths(np.full((1, 1), self.constant))[:, :, None], (3, 1, codes.shape[1]))
        before: Floats = np.cumsum(np.concatenate([constant, own], axis=1), axis=1)
        return before

    @cached_property
    def _lengths(self) -> Floats:
        """(3, groups): of the inputs of each group."""
        return np.concatenate([_lengths(x) for x in self.inputs], axis=1)

    @cached_property
    def _last(self) -> Ints:
        """(columns, 1): the last group of each column, by its own count."""
        return np.array([[len(own) - 1] for own in self.features])

    @cached_property
    def _starts(self) -> Ints:
        """(columns, 1): the first group of each column, among all groups."""
        return np.array([[own.start] for own in self._groups])

    @cached_property
    def _features(self) -> list[slice]:
        """Where each column's are among all features."""
        return _blocks(x.shape[1] for x in self.features)

    @cached_property
    def _groups(self) -> list[slice]:
        """Where each column's are among all groups."""
        return _blocks(len(x) for x in self.features)

    @cached_property
    def _columns(self) -> Floats:
        """(columns, features): 1 where a feature is a column's."""
        return np.repeat(np.eye(len(self.features)), [x.shape[1] for x in self.features], axis=1)

    @cached_property
    def _mask(self) -> Bools:
        """(inputs, features): the biases, and the couplings that there are, as a network has them."""
        column = self._columns.argmax(axis=0)
        mask: Bools = np.append(-1, column)[:, None] < column
        return mask


def _lengths(inputs: Floats) -> Floats:
    """(3, rows): the square of a row's norm, twice its product with the row / _DIGIT, the square of that one's."""
    coarse = np.trunc(inputs / _DIGIT)
    lengths: Floats = np.stack([inputs**2, 2 * inputs * coarse, coarse**2]).sum(axis=2)
    return lengths


def _log(mass: Floats) -> Floats:
    """Logarithms of masses, which are at least 2^_ONE, in whole units of 1/_NAT."""
    half, exponent = np.frexp(mass)
    logs: Floats = _LOGS[((2 * half - 1) * _STEPS).astype(np.intp)] + (exponent - 1 - _ONE) * (_NAT * math.log(2))
    return np.rint(logs)


def _grid(largest: float, bits: int) -> float:
    """The power of two that takes numbers of this size to so many bits."""
    return 2.0 ** min(bits - math.frexp(largest)[1], _FINEST)


def _largest(array: Floats) -> float:
    return float(np.abs(array).max(initial=0.0))


def _blocks(sizes: Iterable[int]) -> list[slice]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
