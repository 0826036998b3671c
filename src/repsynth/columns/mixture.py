"""Empirical Bayes with a mixture of normal distributions: how much of noisy values to keep."""

import numpy as np

from repsynth.arrays import Floats

_STEPS = 50  # of expectation and maximisation: enough for two digits


def posterior_means(values: Floats, centres: Floats, variances: Floats) -> Floats:
    """Return the posterior means of values with standard normal noise.

    The true values follow a mixture of components with these `centres` and `variances`, (components, values). How
    frequent each component is, the values tell by expectation and maximisation.

    >>> values = np.array([0.5, -1.0, 30.0, 0.2, 0.9])
    >>> variances = np.outer([0.0, 100.0], np.ones(5))
    >>> posterior_means(values, np.zeros((2, 5)), variances).round(1).tolist()
    [0.0, -0.0, 29.7, 0.0, 0.0]
    """
    spread = variances + 1
    likelihood = -0.5 * (np.log(spread) + (values - centres) ** 2 / spread)
    likelihood = np.exp(likelihood - likelihood.max(axis=0))
    fractions = np.full(len(variances), 1 / len(variances))
    for _ in range(_STEPS):
        part = likelihood * fractions[:, None]
        fractions = (part / part.sum(axis=0)).mean(axis=1)
    part = likelihood * fractions[:, None]
    means = centres + (values - centres) * variances / spread
    return np.asarray((part / part.sum(axis=0) * means).sum(axis=0))
