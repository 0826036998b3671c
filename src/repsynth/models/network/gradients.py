"""What one record adds to a round of training: w · clip(gradient, C), and its gain, in exact integers.

The gradient is made of outer products: a record's inputs, times how far the features of each column are from what
the columns before let expect; and its inputs again, times what that says of the hidden units. All factors are
whole numbers. All sums over inputs, groups or records are sums of whole numbers below 2⁵³, which floating point
adds up exactly in whatever order; the rest is done number by number, by operations that IEEE 754 rounds in one way
only, or looked up in a table. So what a record adds is a function of that record and of public numbers, bit for
bit, whoever else takes part, and however many threads of whichever processor work it out.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.models.network.network import LARGEST_PARAMETER, TOP, Network
from repsynth.models.network.recipe import CLIP_UNITS, GAIN, LARGEST_GAIN, Recipe
from repsynth.scoring.weights import FULL

_SLACK = 1 - 1e-9  # more than floating point can be off in a norm
_EXACT = 51  # bits of a sum of products, with room for the rounding of their factors
_FINEST = 60  # bits of a unit: of numbers near 0, no more are kept
_CELLS = 2**18  # inputs and features times records at once: so many stay in the cache

_LENGTH = 13  # bits in the norm of a typical record's inputs: as many as are left for its errors
_NAT = 2**14  # units in a nat
_RAISE = 2**18  # units in 1 of what the columns before say of a feature
_ONE = 26  # bits of a column's largest probability before all are divided by their sum
_BACK = 2.0**21  # units in what errors say of a hidden unit, at most: their squares still add up exactly
_POWERS = np.rint(2.0**_ONE * np.exp(-np.arange(19 * _NAT) / _NAT))  # of 1/e, the last of them 0
_STEPS = 2**12  # from a number to its double
# Rounded, so that they are the same numbers whatever a processor makes of the last bits of a logarithm.
_LOGS = np.rint(2**20 * _NAT * np.log1p((np.arange(_STEPS) + 0.5) / _STEPS)) / 2**20


@dataclass(frozen=True)
class Hidden:
    """The hidden units at the parameters of a round, in whole numbers. Two steps take sums to other units."""

    degrees: Ints
    into: Floats
    """(inputs, units): how much one unit of each input, the constant one first, raises each."""
    forth: float
    top: float
    """What a unit says at most, in units of an input."""
    back: Floats
    """(units, features): how much an error in each feature says of each."""
    step: float


@dataclass(frozen=True)
class Gradients:
    """The function of one round, at that round's parameters. All of it is public; arrays hold whole numbers.

    `inputs` and `features` are (groups, features) of each column in the order of drawing: the same features on
    two grids, the inputs times the scales on which parameters are learnt. `couplings` is (inputs, features): by
    how much one unit of each input, the `constant` one first and hidden units last, raises each feature, and
    `forth` takes it to units of 1/_RAISE; `step` takes these times features to units of 1/_NAT. `clip` is in units
    of an input times a feature.
    """

    constant: float
    inputs: tuple[Floats, ...]
    features: tuple[Floats, ...]
    logs: tuple[Floats, ...]
    couplings: Floats
    forth: float
    step: float
    clip: float
    hidden: Hidden | None
    units: int
    """Grid units in the clip norm C: the largest norm of what a record adds, in any entries."""

    @classmethod
    def of(cls, network: Network, parameters: Floats, recipe: Recipe, *, units: int = CLIP_UNITS) -> "Gradients":
        """At these parameters, which are learnt on the recipe's scales."""
        plain = [network.features[i] for i in network.order]
        probabilities = [network.probabilities[i] for i in network.order]
        scaled = [x * recipe.inputs[block] for x, block in zip(plain, _blocks(plain), strict=True)]
        squares = [float(p @ (x**2).sum(axis=1)) for p, x in zip(probabilities, scaled, strict=True)]
        unit = _grid(math.sqrt(recipe.bias**2 + math.fsum(squares)), _LENGTH)
        constant, inputs = float(round(recipe.bias * unit)), tuple(np.rint(x * unit) for x in scaled)
        longest = constant + sum(float(np.abs(x).max(axis=0).sum()) for x in inputs)
        fine = _grid(max(len(x) * _largest(x) for x in plain), _EXACT - _ONE)
        features = tuple(np.rint(x * fine) for x in plain)

        usable = np.clip(np.nan_to_num(parameters), -LARGEST_PARAMETER, LARGEST_PARAMETER)
        layers = network.unpack(usable)
        couplings = np.vstack([layers.biases, layers.couplings])
        hidden, said = None, 0.0
        if network.hidden:
            says = couplings[1 + network.width :]
            hidden = _hidden(network, layers.into, says, recipe, unit=unit, longest=longest, features=features)
            said = network.hidden * hidden.top
        couplings, grid = _whole(couplings, longest + said)
        return cls(
            constant=constant,
            inputs=inputs,
            features=features,
            logs=tuple(np.rint(_NAT * np.log(p)) for p in probabilities),
            couplings=couplings,
            forth=_RAISE / (unit * grid),
            step=_NAT / (fine * _RAISE),
            clip=max(recipe.clip * unit * fine, 1.0),
            hidden=hidden,
            units=units,
        )

    @property
    def sensitivity(self) -> float:
        """Checked in whole numbers for each record."""
        return float(self.units)

    def total(self, parts: Int32s) -> Ints:
        """The sum over records, each given by its groups and its weight: in the order of a network's parameters,
        then the gain."""
        total = np.zeros(int(self._mask.sum() + self._into_mask.sum()) + 1, dtype=np.int64)
        rows = max(_CELLS // len(self.couplings), 16)
        for start in range(0, len(parts), rows):
            inputs, errors, backs, gains = self._factors(parts[start : start + rows])
            # No record adds more than `units` to a coupling that there is, so these sums are exact, too.
            couplings, into = inputs @ errors.T, inputs[: len(self._into_mask)] @ backs.T
            sums = couplings[self._mask], into[self._into_mask], gains.sum(keepdims=True)
            total += np.concatenate(sums).astype(np.int64)
        return total

    def _factors(self, parts: Int32s) -> tuple[Floats, Floats, Floats, Floats]:
        """(inputs, records), (features, records), (units, records) and (records,): what each record adds is, on
        the couplings that there are, the outer product of its inputs and its clipped errors, on those into hidden
        units that of its inputs and what the errors say of these; and its gain.

        All are cut off towards zero, so no entry becomes larger than inputs times errors.
        """
        cells, weights = parts[:, :-1].T.astype(np.int64), np.clip(parts[:, -1], 0, FULL).astype(np.float64)
        codes = np.where(cells >= 0, np.minimum(cells, self._last), self._last + 1)
        inputs = self._inputs(codes)
        alive = self._add_hidden(inputs)
        errors, gain = self._errors(inputs, codes)
        backs = self._backs(errors, alive)
        plain, lengths = self._lengths(inputs, codes)
        # Not whole numbers any more, so they are added one after the other: their sum depends on the order.
        squares = lengths * self._by_column(errors) + plain * self._by_degree(backs)
        norm = np.sqrt(np.cumsum(squares, axis=0)[-1])
        unit = self.units // FULL  # of norm, for each unit of weight
        scale = weights * (math.sqrt(1 - GAIN**2) * unit * _SLACK) / np.maximum(norm, self.clip)
        for factor in (errors, backs):  # in place: new memory takes longer than all that is done with it
            factor *= scale
            np.trunc(factor, out=factor)
        gains = np.trunc(gain * (weights * (GAIN * unit * _SLACK)))
        # The bound holds whatever the above has come to. The terms are whole and none is negative: up to 2⁵² their
        # sum is exact, and rounding takes no larger one below that, in whatever order.
        squares = lengths * self._by_column(errors) + plain * self._by_degree(backs)
        kept = squares.sum(axis=0) + gains**2 <= (weights * unit) ** 2
        if not kept.all():
            errors, backs, gains = (np.where(kept, values, 0.0) for values in (errors, backs, gains))
        return inputs, errors, backs, gains

    def _inputs(self, codes: Ints) -> Floats:
        """(inputs, records): those of each record; hidden units are to be worked out."""
        inputs = np.empty((len(self.couplings), codes.shape[1]))
        inputs[0] = self.constant
        for own, table, code in zip(self._blocks, self._input_tables, codes, strict=True):
            np.take(table, code, axis=1, out=inputs[1:][own])
        return inputs

    def _add_hidden(self, inputs: Floats) -> Bools:
        """What the hidden units say, written to the last inputs. (units, records): whether they would say more."""
        hidden = self.hidden
        if hidden is None:
            return np.zeros((0, inputs.shape[1]), dtype=np.bool_)
        seen = len(hidden.into)
        raised = hidden.into.T @ inputs[:seen]
        raised *= hidden.forth
        np.rint(np.clip(raised, 0.0, hidden.top, out=inputs[seen:]), out=inputs[seen:])
        alive: Bools = (raised > 0.0) & (raised < hidden.top)
        return alive

    def _errors(self, inputs: Floats, codes: Ints) -> tuple[Floats, Floats]:
        """(features, records) and (records,): how much more of each feature was expected than a record has, and
        its gain as a share of the largest. A column in which it has no group takes no part."""
        errors = self.couplings.T @ inputs  # what the inputs say, until a column's errors take its place
        errors *= self.forth
        np.clip(np.rint(errors, out=errors), -(2.0**_ONE), 2.0**_ONE, out=errors)
        own, mass = np.empty(codes.shape), np.empty(codes.shape)
        records = np.arange(codes.shape[1])
        gaps = np.any(codes > self._last, axis=1).tolist()
        for k, (block, code) in enumerate(zip(self._blocks, codes, strict=True)):
            logs = self.features[k] @ errors[block]
            logs *= self.step
            own[k] = logs[np.minimum(code, len(logs) - 1), records]
            logs += self.logs[k][:, None]
            highest = logs.max(axis=0)
            own[k] -= highest
            # Half a unit more, since it is cut off to whole ones.
            np.subtract(highest + 0.5, logs, out=logs)
            powers = _POWERS.take(logs.astype(np.intp), mode="clip")
            mass[k] = powers.sum(axis=0)
            expected = np.rint((self.features[k].T @ powers) / mass[k])
            np.subtract(expected, self._feature_tables[k].take(code, axis=1), out=errors[block])
            if gaps[k]:
                errors[block] *= code <= self._last[k]
        gains = np.clip(np.rint(own) - _log(mass), -(2**30), 2**30)  # clipped so that the sum is exact
        gain = (gains * (codes <= self._last)).sum(axis=0)
        return errors, np.clip(gain / (LARGEST_GAIN * _NAT), -1, 1)

    def _backs(self, errors: Floats, alive: Bools) -> Floats:
        """(units, records): what the errors say of each hidden unit."""
        if self.hidden is None:
            return np.zeros(alive.shape)
        backs: Floats = self.hidden.back @ errors
        backs *= self.hidden.step
        np.clip(np.rint(backs, out=backs), -_BACK, _BACK, out=backs)
        backs *= alive
        return backs

    def _lengths(self, inputs: Floats, codes: Ints) -> tuple[Floats, Floats]:
        """(columns, records) twice: the square of the norm of the inputs that a column depends on, without and
        with the hidden units."""
        plain = np.empty(codes.shape)
        plain[0] = self.constant**2
        for k in range(len(codes) - 1):
            np.add(plain[k], self._squares[k].take(codes[k]), out=plain[k + 1])
        if self.hidden is None:
            return plain, plain
        said = inputs[len(self.hidden.into) :]
        return plain, plain + np.cumsum(self._degrees, axis=0) @ said**2

    def _by_column(self, values: Floats) -> Floats:
        """(columns, records): sums of the squares of values of features."""
        return np.stack([(own**2).sum(axis=0) for own in (values[block] for block in self._blocks)])

    def _by_degree(self, values: Floats) -> Floats | float:
        """(columns, records): sums of the squares of values of hidden units, by the first column they reach."""
        return 0.0 if self.hidden is None else self._degrees @ values**2

    @cached_property
    def _input_tables(self) -> list[Floats]:
        """(features, groups and one): of each column; of a gap, zeros."""
        return [_with_gap(x) for x in self.inputs]

    @cached_property
    def _feature_tables(self) -> list[Floats]:
        return [_with_gap(x) for x in self.features]

    @cached_property
    def _squares(self) -> list[Floats]:
        """(groups and one): of each column, the square of the norm of its inputs."""
        return [(x**2).sum(axis=0) for x in self._input_tables]

    @cached_property
    def _last(self) -> Ints:
        """(columns, 1): the last group of each column, by its own count."""
        return np.array([[len(own) - 1] for own in self.features])

    @cached_property
    def _blocks(self) -> list[slice]:
        """Where each column's are among all features."""
        return _blocks(self.features)

    @cached_property
    def _degrees(self) -> Floats:
        """(columns, units): 1 where a column is the first that a hidden unit reaches."""
        first: Bools = np.arange(len(self.features))[:, None] == self._reached
        return first.astype(np.float64)

    @cached_property
    def _column(self) -> Ints:
        """(features,): the column of each."""
        return np.repeat(np.arange(len(self.features)), [x.shape[1] for x in self.features])

    @cached_property
    def _mask(self) -> Bools:
        """(inputs, features): the biases, and the couplings that there are, as a network has them."""
        mask: Bools = np.concatenate([[-1], self._column, self._reached - 1])[:, None] < self._column
        return mask

    @cached_property
    def _into_mask(self) -> Bools:
        """(inputs, units): which inputs a hidden unit sees."""
        mask: Bools = np.append(-1, self._column)[:, None] < self._reached
        return mask

    @cached_property
    def _reached(self) -> Ints:
        """(units,): the first column that each hidden unit reaches."""
        return np.zeros(0, dtype=np.int64) if self.hidden is None else self.hidden.degrees


def _hidden(
    network: Network,
    into: Floats,
    says: Floats,
    recipe: Recipe,
    *,
    unit: float,
    longest: float,
    features: tuple[Floats, ...],
) -> Hidden:
    """On the grids of the inputs, which are at most so long together, and of the features."""
    scale = recipe.into * recipe.hidden
    whole, grid = _whole(into, longest)
    back, coarse = _whole(says, sum(2 * x.shape[1] * _largest(x) for x in features))
    return Hidden(
        network.degrees, whole, scale / grid, float(round(recipe.hidden * TOP * unit)), back, scale / coarse
    )


def _whole(array: Floats, longest: float) -> tuple[Floats, float]:
    """Rounded to a grid, so fine that its products with whole numbers of this sum are exact; and that grid."""
    grid = _grid(_largest(array) * longest, _EXACT)
    return np.rint(array * grid), grid


def _with_gap(table: Floats) -> Floats:
    return np.ascontiguousarray(np.vstack([table, np.zeros(table.shape[1])]).T)


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


def _blocks(tables: Iterable[Floats]) -> list[slice]:
    """Where the columns of each table are among those of all."""
    ends = np.cumsum([0, *(table.shape[1] for table in tables)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
