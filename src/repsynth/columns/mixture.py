"""How much of noisy values to believe: empirical Bayes with a mixture of normal distributions."""

import numpy as np

from repsynth.arrays import Floats

_STEPS = 50


def kept(values: Floats, noise: Floats, widths: Floats, counts: Floats) -> Floats:
    """The fraction of each value that is its posterior mean, were the true ones drawn from a mixture around 0.

    `noise` is the variance of each value's noise, `widths` (parts, *shape of values) those of the mixture's parts
    there. The values themselves say which mixture, as if there were for each part so many more of them as `counts`
    says. A few large values are kept and the others dropped; where all are alike, so is what is kept of them.

    >>> values, noise = np.array([0.5, -1.0, 30.0, 0.2, 0.9]), np.ones(5)
    >>> kept(values, noise, np.outer([0.0, 100.0], noise), np.zeros(2)).round(2).tolist()
    [0.03, 0.05, 0.99, 0.03, 0.04]
    """
    chances = _chances(values, noise, np.zeros_like(widths), widths, counts)
    return np.asarray((chances * widths / (widths + noise)).sum(axis=0))


def posterior_means(values: Floats, noise: Floats, centres: Floats, widths: Floats, counts: Floats) -> Floats:
    """The same for parts around other values than 0: the posterior means themselves.

    >>> values, noise = np.array([-9.2, -10.6, 14.0]), np.ones(3)
    >>> centres, widths = np.outer([15.0, -10.0], noise), np.zeros((2, 3))
    >>> posterior_means(values, noise, centres, widths, np.zeros(2)).round(2).tolist()
    [-10.0, -10.0, 15.0]
    """
    chances = _chances(values, noise, centres, widths, counts)
    return np.asarray((chances * (centres + (values - centres) * widths / (widths + noise))).sum(axis=0))


def _chances(values: Floats, noise: Floats, centres: Floats, widths: Floats, counts: Floats) -> Floats:
    """(parts, *shape of values): how likely each value comes from each part, by expectation and maximisation."""
    spread = widths + noise
    likelihood = -0.5 * (np.log(spread) + (values - centres) ** 2 / spread)
    likelihood = np.exp(likelihood - likelihood.max(axis=0)).reshape(len(widths), -1)
    fractions = np.full(len(widths), 1 / len(widths))
    for _ in range(_STEPS):
        part = likelihood * fractions[:, None]
        fractions = (part / part.sum(axis=0)).sum(axis=1) + counts
        fractions = fractions / fractions.sum()
    part = likelihood * fractions[:, None]
    return np.asarray((part / part.sum(axis=0)).reshape(widths.shape))
