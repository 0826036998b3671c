"""Per-record gradients for risk-weighted DP-SGD: w · clip(gradient, C), in exact integers.

DP-SGD: Abadi et al. 2016. The weights are those of REPS, instantiation B, and are applied after the clip.

The gradient of a record is a set of outer products: its inputs times the errors of each column's features, and
its inputs times the errors passed back to the hidden units. All factors are whole numbers. Every sum over inputs,
groups or records is a sum of whole numbers below 2⁵³, which floating point adds exactly in any order. All other
operations are elementwise and rounded in one way by IEEE 754, or table lookups. So a record's contribution depends
on that record and on public numbers only, bit for bit: not on other records, threads or the processor.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.models.network.network import LARGEST_PARAMETER, MOST_HIDDEN, TOP, Network
from repsynth.scoring.weights import FULL

_BITS = 53
"""Floating point holds whole numbers of this many bits exactly."""

_HALF = _BITS // 2
"""Bits of a factor whose square, or product with another one, is exact."""

CLIP_UNITS = 2**_HALF
"""Grid units in the clip norm C of one record. More units would make the noise slow to draw."""

_EXACT = _BITS - 2  # bits of a sum of products: its factors may be rounded up
_CELLS = 2**18  # inputs times records in a block: it stays in the cache
_SLACK = 1 - 1e-9  # above the floating-point error of a norm

_NAT = 2**14  # grid units in a logit of 1
_RAISE = 2**18  # grid units in 1 of what the inputs add to a feature
# The largest error of a hidden unit: the squares of all of them add up exactly.
_BACK = 2.0 ** ((_EXACT - MOST_HIDDEN.bit_length()) // 2)
_POWERS = np.rint(2.0**_HALF * np.exp(-np.arange(19 * _NAT) / _NAT))  # of 1/e, the last one is 0


@dataclass(frozen=True)
class Gradients:
    """The gradient function of one round. All fields are public; all arrays hold whole numbers.

    `inputs` and `features` hold (features, groups + 1) of each column in drawing order; the last entry, 0, is for
    records without a group. Both are the network's features, on two grids. Inputs are also multiplied by the
    scales on which parameters are learnt. Steps convert the result of a matrix product to the units of the next.
    """

    constant: float
    inputs: tuple[Floats, ...]
    features: tuple[Floats, ...]
    logs: tuple[Floats, ...]  # log probabilities of each column's groups, in units of 1/_NAT
    couplings: Floats  # (inputs, features); inputs are the constant, the features and the hidden units
    raise_step: float  # to units of 1/_RAISE
    logit_step: float  # to units of 1/_NAT
    into: Floats  # (constant and features, hidden units)
    into_step: Floats
    back: Floats  # (hidden units, features): their couplings, on another grid
    back_step: Floats
    top: Floats  # (hidden units, 1): the largest output of each, in units of an input
    first: Floats  # (columns, hidden units): 1 at the first column that a unit can influence
    mask: Bools
    into_mask: Bools
    clip: float  # the clip norm in units of an input times a feature
    units: int
    """Grid units in the clip norm: no contribution has a larger L2 norm, checked in whole numbers."""

    @classmethod
    def of(
        cls, network: Network, parameters: Floats, scales: Floats, *, clip: float, units: int = CLIP_UNITS
    ) -> "Gradients":
        """Return the gradients at these parameters, which are learnt on these scales of the inputs."""
        plain = [network.features[i] for i in network.order]
        probabilities = [network.probabilities[i] for i in network.order]
        bias, own, hidden = np.split(scales, [1, 1 + network.width])
        scaled = [x * own[block] for x, block in zip(plain, _blocks(plain), strict=True)]
        squares = [float(p @ (x**2).sum(axis=1)) for p, x in zip(probabilities, scaled, strict=True)]
        # A typical record's inputs get half the bits of a factor, which leaves the other half for its errors.
        unit = _grid(math.sqrt(float(bias[0]) ** 2 + math.fsum(squares)), _HALF // 2)
        constant, inputs = float(np.rint(bias[0] * unit)), tuple(np.rint(x * unit) for x in scaled)
        fine = _grid(max(len(x) * _largest(x) for x in plain), _EXACT - _HALF)
        features = tuple(np.rint(x * fine) for x in plain)

        layers = network.unpack(np.clip(np.nan_to_num(parameters), -LARGEST_PARAMETER, LARGEST_PARAMETER))
        top = np.rint(hidden[:, None] * (TOP * unit))
        longest = constant + sum(float(np.abs(x).max(axis=0).sum()) for x in inputs)
        couplings, grid = _whole(layers.couplings, longest + float(top.sum()))
        into, into_grid = _whole(layers.into, longest)
        largest_errors = sum(2 * x.shape[1] * _largest(x) for x in features)
        back, back_grid = _whole(layers.couplings[1 + network.width :], largest_errors)
        return cls(
            constant=constant,
            inputs=tuple(map(_with_gap, inputs)),
            features=tuple(map(_with_gap, features)),
            logs=tuple(np.rint(_NAT * np.log(p)) for p in probabilities),
            couplings=couplings,
            raise_step=_RAISE / (unit * grid),
            logit_step=_NAT / (fine * _RAISE),
            into=into,
            into_step=hidden[:, None] / into_grid,
            back=back,
            back_step=hidden[:, None] / back_grid,
            top=top,
            first=(np.arange(len(plain))[:, None] == network.degrees).astype(np.float64),
            mask=network.mask,
            into_mask=network.into_mask,
            clip=max(clip * unit * fine, 1.0),
            units=units,
        )

    def total(self, parts: Int32s) -> Ints:
        """Return the sum over records, in the order of the network's parameters.

        `parts` is (records, columns + 1): each record's group in every column, and its weight.
        """
        total = np.zeros(int(self.mask.sum() + self.into_mask.sum()), dtype=np.int64)
        rows = max(_CELLS // len(self.couplings), 16)
        for start in range(0, len(parts), rows):
            inputs, errors, backs = self._factors(parts[start : start + rows])
            # No record adds more than `units` to a parameter, so these sums are exact, too.
            couplings, into = inputs @ errors.T, inputs[: len(self.into)] @ backs.T
            total += np.concatenate([couplings[self.mask], into[self.into_mask]]).astype(np.int64)
        return total

    def _factors(self, parts: Int32s) -> tuple[Floats, Floats, Floats]:
        """Return the factors of every record's weighted, clipped gradient.

        They are (inputs, records), (features, records) and (hidden units, records). A record's contribution is
        the outer product of its inputs with its errors on `mask`, and with its hidden errors on `into_mask`.
        Errors are truncated towards zero after clipping, so no entry grows.
        """
        cells, weights = parts[:, :-1].T.astype(np.int64), np.clip(parts[:, -1], 0, FULL).astype(np.float64)
        codes = np.where(cells >= 0, np.minimum(cells, self._last), self._last + 1)
        inputs, active = self._inputs(codes)
        errors = self._errors(inputs, codes)
        backs: Floats = self.back @ errors  # passed back to the hidden units
        backs *= self.back_step
        np.clip(np.rint(backs, out=backs), -_BACK, _BACK, out=backs)
        backs *= active
        seen, lengths = self._lengths(inputs, codes)
        # These terms are not whole numbers: cumsum fixes the order in which they are added.
        squares = lengths * self._by_column(errors) + seen * self._by_degree(backs)
        norm = np.sqrt(np.cumsum(squares, axis=0)[-1])
        unit = self.units // FULL  # of the norm, for each unit of weight
        scale = weights * (unit * _SLACK) / np.maximum(norm, self.clip)
        for factor in (errors, backs):  # in place: allocating takes longer than the arithmetic
            factor *= scale
            np.trunc(factor, out=factor)
        # Check the bound whatever the clip did. The terms are whole and not negative. Up to 2⁵² their sum is
        # exact; a larger sum is never rounded below that, in any order.
        squares = lengths * self._by_column(errors) + seen * self._by_degree(backs)
        kept = squares.sum(axis=0) <= (weights * unit) ** 2
        if not kept.all():
            errors, backs = np.where(kept, errors, 0.0), np.where(kept, backs, 0.0)
        return inputs, errors, backs

    def _inputs(self, codes: Ints) -> tuple[Floats, Bools]:
        """Return (inputs, records), and (hidden units, records): where the slope of a unit is not 0."""
        inputs = np.empty((len(self.couplings), codes.shape[1]))
        inputs[0] = self.constant
        for block, table, code in zip(self._blocks, self.inputs, codes, strict=True):
            np.take(table, code, axis=1, out=inputs[1:][block])
        seen, outputs = np.split(inputs, [len(self.into)])
        raised = self.into.T @ seen
        raised *= self.into_step
        np.rint(np.clip(raised, 0.0, self.top, out=outputs), out=outputs)
        return inputs, (raised > 0.0) & (raised < self.top)

    def _errors(self, inputs: Floats, codes: Ints) -> Floats:
        """Return (features, records): expected minus actual features; 0 in columns where a record has no group."""
        errors = self.couplings.T @ inputs  # what the inputs add, until a column's errors replace it
        errors *= self.raise_step
        np.clip(np.rint(errors, out=errors), -(2.0**_HALF), 2.0**_HALF, out=errors)
        for k, (block, table, code) in enumerate(zip(self._blocks, self.features, codes, strict=True)):
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

    def _lengths(self, inputs: Floats, codes: Ints) -> tuple[Floats, Floats]:
        """Return (columns, records) twice: squared norms of the inputs of each column, without and with units."""
        seen = np.empty(codes.shape)
        seen[0] = self.constant**2
        for k, table in enumerate(self.inputs[:-1]):
            np.add(seen[k], (table**2).sum(axis=0).take(codes[k]), out=seen[k + 1])
        return seen, seen + np.cumsum(self.first, axis=0) @ inputs[len(self.into) :] ** 2

    def _by_column(self, values: Floats) -> Floats:
        """Return (columns, records): sums of squares over each column's features."""
        return np.stack([(values[block] ** 2).sum(axis=0) for block in self._blocks])

    def _by_degree(self, values: Floats) -> Floats:
        """Return (columns, records): sums of squares over the hidden units of each degree."""
        return self.first @ values**2

    @cached_property
    def _last(self) -> Ints:
        """(columns, 1): the last group of each column."""
        return np.array([[table.shape[1] - 2] for table in self.features])

    @cached_property
    def _blocks(self) -> list[slice]:
        return _blocks(table.T for table in self.features)


def _whole(array: Floats, longest: float) -> tuple[Floats, float]:
    """Round to a grid on which sums of products with whole numbers of this total are exact; return both."""
    grid = _grid(_largest(array) * longest, _EXACT)
    return np.rint(array * grid), grid


def _grid(largest: float, bits: int) -> float:
    """Return the power of two that scales numbers of this size to this many bits, and at most 2^_BITS."""
    return 2.0 ** min(bits - math.frexp(largest)[1], _BITS)


def _largest(array: Floats) -> float:
    return float(np.abs(array).max(initial=0.0))


def _with_gap(table: Floats) -> Floats:
    return np.ascontiguousarray(np.vstack([table, np.zeros(table.shape[1])]).T)


def _blocks(tables: Iterable[Floats]) -> list[slice]:
    """Return where the columns of each table are among those of all tables."""
    ends = np.cumsum([0, *(table.shape[1] for table in tables)]).tolist()
    return [slice(start, end) for start, end in pairwise(ends)]
