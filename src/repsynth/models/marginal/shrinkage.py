"""How much of a noisy table to believe: what was expected of it, and of the rest what stands above the noise.

Two estimates, each by the noise that is known:

- cell by cell. How far cells lie from what was expected is taken for a mixture of normal distributions, most of
  them near none, wider where more was expected; and of cells that are empty, as where one column follows from
  another. The table itself says which mixture (empirical Bayes): one with a few large cells keeps these and drops
  the others, one that differs everywhere is kept as a whole.
- by directions. How two columns depend on each other mostly is a matter of a few directions (singular vectors),
  while noise has no direction. Those that noise alone could have made are dropped, the others shortened.

What counts is the mean of both that errs least by Stein's unbiased estimate of the risk, which needs no truth.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.mixture import posterior_means

_WIDTHS = 4.0 ** np.arange(-3, 7)
"""Variances of the mixture's parts, in units of the noise's, for a cell of mean size."""
_NONE = 3.0
"""So many cells more are believed to be as expected: a table needs some evidence that it is not."""
_NUDGE = 0.01
"""In units of the noise: how far cells are moved to see how an estimate moves with them."""
_PROBED = 2_000
"""Cells that are moved at least, over all times: small tables are moved several times."""

Estimate = Callable[[Floats], Floats]
"""From the rest of a table, in units of its noise, to what of it is believed."""


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
    noise = np.sqrt(table.variance) / rows + 1e-150
    size = (expected + 1e-9) / (expected + 1e-9).mean()
    by_cell = partial(_by_cell, size=size, empty=-expected / noise)
    believed = _best_mean((table.counts / rows - expected) / noise, by_cell, _by_direction)
    return np.maximum(expected + believed * noise, least * expected + 1e-12)


def _best_mean(rest: Floats, first: Estimate, second: Estimate) -> Floats:
    """The mean of two estimates with the least risk, in units of the noise, as Stein estimates it: the square of
    what it changes, and twice how much it follows the cells."""
    one, other = first(rest), second(rest)
    between = one - other
    slope = float((between * (rest - other)).sum()) - _follows(first, rest, one) + _follows(second, rest, other)
    return other + float(np.clip(slope / max(float((between**2).sum()), 1e-12), 0.0, 1.0)) * between


def _follows(estimate: Estimate, rest: Floats, found: Floats) -> float:
    """The sum over cells of how much an estimate moves with its own: all are moved at once, each up or down."""
    generator, times = np.random.default_rng(0), int(np.clip(_PROBED // rest.size, 1, 8))
    total = 0.0
    for _ in range(times):
        moved = generator.choice([-_NUDGE, _NUDGE], size=rest.shape)
        total += float(((estimate(rest + moved) - found) / moved).sum())
    return total / times


def _by_cell(rest: Floats, *, size: Floats, empty: Floats) -> Floats:
    """The posterior mean of each cell, under the mixture that makes the table most likely. `size` is how much was
    expected of each, by the mean; `empty` is the rest of a cell with nothing in it."""
    none = np.zeros_like(rest)
    widths = np.stack([none, *np.multiply.outer(_WIDTHS, size), none])
    centres = np.stack([*(none for _ in widths[1:]), empty])
    counts = np.append(_NONE, np.zeros(len(widths) - 1))
    return posterior_means(rest, np.ones_like(rest), centres, widths, counts)


def _by_direction(rest: Floats) -> Floats:
    """The nearest table in mean square, with the directions of the table and other lengths (Gavish and Donoho).

    A table of more than two columns is laid out flat, one column against the others.
    """
    first = int(np.argmax(rest.shape))
    flat = np.moveaxis(rest, first, 0)
    left, lengths, right = np.linalg.svd(flat.reshape(len(flat), -1), full_matrices=False)
    long, short = max(left.shape[0], right.shape[1]), min(left.shape[0], right.shape[1])
    ratio, length = short / long, np.maximum(lengths / long**0.5, 1e-12)
    below = np.maximum((length**2 - ratio - 1) ** 2 - 4 * ratio, 0.0)
    kept = np.where(length > 1 + ratio**0.5, np.sqrt(below) / length, 0.0) * long**0.5
    return np.moveaxis((left * kept @ right).reshape(flat.shape), 0, first)
