"""How much of a noisy table to believe: what was expected of it, and of the rest what stands above the noise.

Two estimates, each by the noise that is known, and their mean, which errs less than either:

- cell by cell. How far cells lie from what was expected is taken for a mixture of normal distributions, most of
  them near none, wider where more was expected. The table itself says which mixture (empirical Bayes): one with
  a few large cells keeps these and drops the others, one that differs everywhere is kept as a whole.
- by directions. How two columns depend on each other mostly is a matter of a few directions (singular vectors),
  while noise has no direction. Those that noise alone could have made are dropped, the others shortened.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.mixture import kept

_WIDTHS = 4.0 ** np.arange(-3, 7)
"""Variances of the mixture's parts, in units of the noise's, for a cell of mean size."""
_NONE = 3.0
"""So many cells more are believed to be as expected: a table needs some evidence that it is not."""


@dataclass(frozen=True)
class NoisyTable:
    """A table in units of records at full weight, and the variance of the noise in each of its cells."""

    counts: Floats
    variance: Floats


def by_precision(parts: Sequence[NoisyTable]) -> NoisyTable:
    """Several measurements of the same cells in one.

    >>> one, two = (NoisyTable(np.array([c]), np.array([v])) for c, v in ((2.0, 1.0), (5.0, 2.0)))
    >>> both = by_precision([one, two])
    >>> both.counts.tolist(), both.variance.round(3).tolist()
    ([3.0], [0.667])
    """
    precision = np.sum([1 / part.variance for part in parts], axis=0)
    mean = np.sum([part.counts / part.variance for part in parts], axis=0) / precision
    return NoisyTable(mean, 1 / precision)


def shrunk(expected: Floats, table: NoisyTable, rows: float, *, least: float) -> Floats:
    """A table's probabilities, none of them below a fraction `least` of what was expected."""
    rest, variance = table.counts / rows - expected, table.variance / rows**2 + 1e-300
    believed = (_by_cell(rest, variance, expected) + _by_direction(rest, variance)) / 2
    return np.maximum(expected + believed, least * expected + 1e-12)


def _by_cell(rest: Floats, variance: Floats, expected: Floats) -> Floats:
    """The posterior mean of each cell, under the mixture that makes the table most likely."""
    size = expected + 1e-9
    widths = np.multiply.outer(np.append(0.0, _WIDTHS), size / size.mean() * variance)  # (parts, *shape)
    return np.asarray(rest * kept(rest, variance, widths, np.append(_NONE, np.zeros(len(_WIDTHS)))))


def _by_direction(rest: Floats, variance: Floats) -> Floats:
    """The nearest table in mean square, with the directions of the table and other lengths (Gavish and Donoho).

    A table of more than two columns is laid out flat, one column against the others.
    """
    noise = np.sqrt(variance)
    first = int(np.argmax(rest.shape))
    flat = np.moveaxis(rest / noise, first, 0)
    left, lengths, right = np.linalg.svd(flat.reshape(len(flat), -1), full_matrices=False)
    long, short = max(left.shape[0], right.shape[1]), min(left.shape[0], right.shape[1])
    ratio, length = short / long, np.maximum(lengths / long**0.5, 1e-12)
    below = np.maximum((length**2 - ratio - 1) ** 2 - 4 * ratio, 0.0)
    kept = np.where(length > 1 + ratio**0.5, np.sqrt(below) / length, 0.0) * long**0.5
    believed = np.moveaxis((left * kept @ right).reshape(flat.shape), 0, first)
    return np.asarray(believed * noise)
