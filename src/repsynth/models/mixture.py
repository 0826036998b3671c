"""How much of noisy values to believe: empirical Bayes with a mixture of normal distributions."""

import numpy as np

from repsynth.arrays import Floats

_STEPS = 50


def kept(values: Floats, noise: Floats, widths: Floats, counts: Floats) -> Floats:
    """The fraction of each value that is its posterior mean, were the true ones drawn from a mixture.

    `noise` is the variance of each value's noise, `widths` (parts, *shape of values) those of the mixture's parts
    there. The values themselves say which mixture (expectation and maximisation), as if there were for each part
    so many more of them as `counts` says. A few large values are kept and the others dropped; where all are alike,
    so is what is kept of them.

    >>> values, noise = np.array([0.5, -1.0, 30.0, 0.2, 0.9]), np.ones(5)
    >>> kept(values, noise, np.outer([0.0, 100.0], noise), np.zeros(2)).round(2).tolist()
    [0.03, 0.05, 0.99, 0.03, 0.04]
    """
    spread = widths + noise
    likelihood = -0.5 * (np.log(spread) + values**2 / spread)
    likelihood = np.exp(likelihood - likelihood.max(axis=0)).reshape(len(widths), -1)
    fractions = np.full(len(widths), 1 / len(widths))
    for _ in range(_STEPS):
        part = likelihood * fractions[:, None]
        fractions = (part / part.sum(axis=0)).sum(axis=1) + counts
        fractions = fractions / fractions.sum()
    part = likelihood * fractions[:, None]
    found = (part * (widths / spread).reshape(len(widths), -1)).sum(axis=0) / part.sum(axis=0)
    return np.asarray(found.reshape(values.shape))
