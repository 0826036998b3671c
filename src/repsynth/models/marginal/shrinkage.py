"""How much of a noisy table to believe: what was expected of it, and of the rest what stands above the noise.

How far cells lie from what was expected is taken for a mixture of normal distributions, most of them near none,
wider where more was expected; and of cells that are empty, as where one column follows from another. The table
itself says which mixture (empirical Bayes): one with a few large cells keeps these and drops the others, one that
differs everywhere is kept as a whole.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.mixture import posterior_means

_WIDTHS = 4.0 ** np.arange(-3, 7)
"""Variances of the mixture's parts, in units of the noise's, for a cell of mean size."""
_LEAST = 0.02
"""Of what was expected: no probability is below this fraction."""
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


def shrunk(expected: Sequence[Floats], tables: Sequence[NoisyTable], rows: float) -> list[Floats]:
    """Return the probabilities of tables; all of them tell the mixture together."""
    if not tables:
        return []
    flat = np.concatenate([each.ravel() for each in expected])
    noise = np.concatenate([np.sqrt(table.variance).ravel() for table in tables]) / rows + 1e-150
    size = np.concatenate([((each + 1e-9) / (each + 1e-9).mean()).ravel() for each in expected])
    rest = (np.concatenate([table.counts.ravel() for table in tables]) / rows - flat) / noise
    found = np.maximum(flat + _believed(rest, size, -flat / noise) * noise, _LEAST * flat + 1e-12)
    ends = np.cumsum([each.size for each in expected])[:-1]
    return [part.reshape(each.shape) for part, each in zip(np.split(found, ends), expected, strict=True)]


def _believed(rest: Floats, size: Floats, empty: Floats) -> Floats:
    """Return the posterior mean of each cell, in units of the noise. `size` is how much was expected of each, by
    the mean; `empty` is the rest of a cell with nothing in it."""
    none = np.zeros_like(rest)
    widths = np.stack([none, *np.multiply.outer(_WIDTHS, size), none])
    centres = np.stack([*(none for _ in widths[1:]), empty])
    counts = np.append(_NONE, np.zeros(len(widths) - 1))
    return posterior_means(rest, np.ones_like(rest), centres, widths, counts)
