"""Shrinkage of noisy tables towards what was expected of them (empirical Bayes).

The difference of a cell from its expectation follows a mixture: none, normal with one of several variances, larger
where more was expected, or the whole of it, for cells that are empty. All tables of a round tell the mixture
together: a few large differences are kept among many of noise, and differences everywhere are kept as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.estimation import posterior_means

_VARIANCES = 4.0 ** np.arange(-3, 7)
"""Of the components, in units of the noise's variance, for a cell of mean size."""
_LEAST = 0.02
"""Of what was expected: no probability is below this fraction."""


@dataclass(frozen=True)
class NoisyTable:
    """A table in records at full weight, and the variance of the noise in each of its cells."""

    counts: Floats
    variance: Floats


def by_precision(parts: Sequence[NoisyTable]) -> NoisyTable:
    """Combine measurements of the same cells.

    >>> one, two = (NoisyTable(np.array([c]), np.array([v])) for c, v in ((2.0, 1.0), (5.0, 2.0)))
    >>> both = by_precision([one, two])
    >>> both.counts.tolist(), both.variance.round(3).tolist()
    ([3.0], [0.667])
    """
    precision = np.sum([1 / part.variance for part in parts], axis=0)
    mean = np.sum([part.counts / part.variance for part in parts], axis=0) / precision
    return NoisyTable(mean, 1 / precision)


def shrunk(expected: Sequence[Floats], tables: Sequence[NoisyTable], rows: float) -> list[Floats]:
    """Return the probabilities of the cells of all tables."""
    if not tables:
        return []
    flat = np.concatenate([each.ravel() for each in expected])
    size = np.concatenate([((each + 1e-9) / (each + 1e-9).mean()).ravel() for each in expected])
    noise = np.concatenate([np.sqrt(table.variance).ravel() for table in tables]) / rows + 1e-150
    counts = np.concatenate([table.counts.ravel() for table in tables])
    none = np.zeros_like(flat)
    variances = np.stack([none, *np.multiply.outer(_VARIANCES, size), none])
    centres = np.stack([*(none for _ in variances[1:]), -flat / noise])
    found = flat + posterior_means((counts / rows - flat) / noise, centres, variances) * noise
    found = np.maximum(found, _LEAST * flat + 1e-12)
    ends = np.cumsum([each.size for each in expected])[:-1]
    return [part.reshape(each.shape) for part, each in zip(np.split(found, ends), expected, strict=True)]
