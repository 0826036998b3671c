"""Estimates from noisy counts of one column: shares inside a cell, tails, families, probabilities.

All of it is post-processing: arrays of released values in, arrays out.
"""

import math

import numpy as np

from repsynth.arrays import Floats, Ints

_VARIANCES = 16.0 ** np.arange(5)
"""Variances of the mixture's components for a cell of mean size, in units of the noise variance."""
_STEPS = 50  # of expectation maximisation: enough for two digits
_SLOPE = 3  # cells before a tail that determine how slowly it may fall
_LEAST = 0.001  # smallest count of a part, relative to the expected one


def clear_of_noise(cells: int) -> float:
    """Return how many standard deviations noise rarely exceeds in any of these cells.

    >>> round(clear_of_noise(1000), 1)
    3.7
    """
    return math.sqrt(2 * math.log(max(cells, 2)))


def to_simplex(vector: Floats) -> Floats:
    """Return the nearest probability vector (along the last axis).

    >>> to_simplex(np.array([0.5, 0.7, -0.1])).round(6).tolist()
    [0.4, 0.6, 0.0]
    """
    ordered = -np.sort(-vector, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - 1
    ranks = np.arange(1, vector.shape[-1] + 1)
    kept = np.sum(ordered - excess / ranks > 0, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    nearest: Floats = np.maximum(vector - shift, 0.0)
    return nearest


def posterior_means(values: Floats, centres: Floats, variances: Floats) -> Floats:
    """Return the posterior means of values with standard normal noise (empirical Bayes).

    The true values follow a mixture of normal components with these `centres` and `variances`, (components,
    values). Expectation maximisation estimates how frequent each component is.

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


# Parts of cells


def shares_inside(
    parents: Ints, widths: Floats, counts: Floats, sigma: Floats, whole: Floats, roundness: Ints
) -> Floats:
    """Return the share of each part in its cell.

    `parents` has the cell of each part, `counts` the noisy weighted counts of the parts and `whole` those of the
    cells. `roundness` is -1 for parts that are not a single round number (see `roundness_of`).

    The excess over the expected count follows a mixture of normal distributions that is estimated from the column
    (empirical Bayes): spikes are kept, and a smooth column stays even. Parts that do not stand out share the rest.

    >>> counts = np.array([900.0, 10.0, -8.0, 90.0, 99.0, 111.0])
    >>> parents, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([902.0, 300.0])
    >>> shares_inside(parents, np.ones(6), counts, np.full(6, 10.0), whole, np.full(6, -1)).round(2).tolist()
    [1.0, 0.0, 0.0, 0.33, 0.33, 0.33]
    """
    expected = whole[parents] * _expected_shares(parents, widths, counts, sigma, whole, roundness)
    found, split = expected.copy(), np.bincount(parents)[parents] > 1
    if not split.any():
        return np.ones(len(parents))
    noise = sigma[split]
    excess = (counts - expected)[split] / noise
    none, size = np.zeros_like(excess), expected[split] / expected[split].mean() + 1e-9
    spread = np.stack([none, *np.multiply.outer(_VARIANCES, size**2), *(none + each for each in _VARIANCES), none])
    centres = np.stack([*(none for _ in spread[1:]), -expected[split] / noise])  # the last component: empty parts
    found[split] += noise * posterior_means(excess, centres, spread)
    found = np.maximum(found, _LEAST * expected)
    spikes = found > expected + clear_of_noise(len(found)) * sigma
    left = np.maximum(whole - np.bincount(parents, found * spikes), _LEAST * whole)
    others = np.bincount(parents, np.where(spikes, 0.0, found))
    found = np.where(spikes, found, found * (left / np.maximum(others, 1e-300))[parents])
    shares: Floats = found / np.bincount(parents, found)[parents]
    return shares


def _expected_shares(
    parents: Ints, widths: Floats, counts: Floats, sigma: Floats, whole: Floats, roundness: Ints
) -> Floats:
    """Return the expected share of each part: by width, except for heaps at round numbers.

    Equally round numbers have one common share, if their sum over the column stands above the noise.
    """
    heaped, taken = np.zeros(len(parents)), np.zeros(len(whole))
    for each in np.unique(roundness[roundness >= 0]):
        such = roundness == each
        own, together = np.bincount(parents[such], minlength=len(whole)), float(counts[such].sum())
        if together > 2 * math.sqrt(float(np.square(sigma[such]).sum())):
            share = together / max(float(whole[own > 0].sum()), together)
            heaped[such] = share / own[parents[such]]
            taken[own > 0] += share
    scale = np.minimum(0.95 / np.maximum(taken, 1e-300), 1.0)  # some records are outside all heaps
    others = np.where(heaped > 0, 0.0, widths)
    rest = (1 - taken * scale) / np.maximum(np.bincount(parents, others), 1e-300)
    return heaped * scale[parents] + others * rest[parents]


# Tails


def with_tails(counts: Floats, noise: Floats, widths: Ints, clear: float, whole: float = 0.0) -> Floats:
    """Return non-negative counts in which both tails fall with the distance.

    A tail begins after the last cell that is `clear` of the noise, alone or together with its neighbours. Each
    cell of a tail has a fixed fraction of the one before; the whole tail determines the fraction. Neighbouring
    cells within the noise share their sum. If the column has more records (`whole`) than all clear cells, the
    fullest of the other cells get the rest.

    >>> counts = np.array([-9.0, 80.0, -3.0, 90.0, 30.0, 9.0, 7.0, -9.0, 9.0])
    >>> with_tails(counts, np.full(9, 6.0), np.full(9, 2), clear=6.0).round().tolist()
    [1.0, 80.0, 0.0, 90.0, 29.0, 10.0, 3.0, 1.0, 0.0]
    """
    found = np.maximum(counts, 0.0)
    inside = occupied(counts, noise, clear)
    if inside is None:
        return found
    alone = counts > clear * noise
    rest = whole - float(counts[alone].sum())
    if rest > clear * math.sqrt(float((noise[alone] ** 2).sum())) and not alone.all():
        fullest = _fullest(np.where(alone, 0.0, counts), noise)
        inside = slice(min(inside.start, fullest.start), max(inside.stop, fullest.stop))
    run = np.cumsum(np.append(True, np.diff(alone)))  # runs of clear cells and of other cells
    sums, parts = np.bincount(run, counts), np.bincount(run, found)
    found *= np.clip(sums / np.maximum(parts, 1e-300), 0.0, 1.0)[run]
    first, last = inside.start, inside.stop - 1
    found[last:] = _tail(counts[last:], noise[last:], widths[last:], counts[:last][::-1])
    found[: first + 1] = _tail(counts[first::-1], noise[first::-1], widths[first::-1], counts[first + 1 :])[::-1]
    return found


def occupied(counts: Floats, noise: Floats, clear: float) -> slice | None:
    """Return the cells without the ends whose counts stay within the noise; None if all cells do.

    A cell is outside if neither its count nor the sum from the end to it is clear of the noise. Neighbours are
    kept together if only their sum is clear of the noise.

    >>> occupied(np.array([1.0, -2.0, 30.0, 2.0, 40.0, 0.5]), np.ones(6), 4.0)
    slice(2, 5, None)
    >>> occupied(np.array([0.5, 2.0, 3.0, 2.5, 3.0, 30.0]), np.ones(6), 4.0)
    slice(1, 6, None)
    """

    def first(counts: Floats, noise: Floats) -> int | None:
        added = np.cumsum(counts) / np.sqrt(np.cumsum(noise**2))
        above = np.flatnonzero((counts > clear * noise) | (added > clear))
        if not above.size:
            return None
        together = np.cumsum(counts[above[0] :: -1]) / np.sqrt(np.cumsum(noise[above[0] :: -1] ** 2))
        return int(above[0] - np.argmax(together))

    low, high = first(counts, noise), first(counts[::-1], noise[::-1])
    if low is None or high is None:
        return None
    inside = slice(low, len(counts) - high)
    # Large noise at both ends may enclose cells whose negative noise outweighs it.
    return inside if counts[inside].sum() > 0 else None


def _fullest(counts: Floats, noise: Floats) -> slice:
    """Return the neighbours whose sum is largest in units of its noise."""
    sums, squares = (np.append(0.0, np.cumsum(each)) for each in (counts, noise**2))
    above = np.triu(sums - sums[:, None], 1) / np.sqrt(np.maximum(squares - squares[:, None], noise.min() ** 2))
    start, stop = np.unravel_index(np.argmax(above), above.shape)
    return slice(int(start), int(max(stop, start + 1)))


def _tail(counts: Floats, noise: Floats, widths: Ints, inside: Floats) -> Floats:
    """Return the posterior mean of a tail, whose first cell is the last one before it.

    The prior of the fraction is uniform from 0 to the mean fraction of the cells before, because log-concave
    densities fall ever faster in their tails. Cells with less than one record get tiny values that keep their
    order. So does the cell of a bound.
    """
    last, slowest, k = max(float(counts[0]), 0.0), 1.0, min(len(inside), _SLOPE)
    if k:
        slowest = float(np.clip(last / max(inside[k - 1], 1.0), 0.0, 1.0)) ** (1 / k)
    rates = np.linspace(0.0, slowest, 20, endpoint=False)[:, None]
    places = np.arange(len(counts))
    fall = last * rates**places  # (rates, cells)
    loss = np.square((counts - fall) / noise).sum(axis=1) / 2
    chances = np.exp(loss.min() - loss)
    tail: Floats = chances @ fall / chances.sum()
    single = np.append(False, (widths[1:] == 1) & (widths[:-1] > 1))
    return np.where((tail < 1.0) | single, 1e-6 * 0.5**places, tail)


# Families


def by_family(counts: Floats, sigma: float, families: Ints) -> Floats:
    """Return the counts of all values, where values of a family that are below the noise share their sum.

    The frequency of a family is shrunk towards its number of values, by a factor that depends on the noise.

    >>> by_family(np.array([90.0, 1.5, -1.0, 1.0, 40.0, 52.0]), 1.0, np.array([0, 0, 0, 0, 1, 1])).tolist()
    [90.0, 0.5, 0.5, 0.5, 40.0, 52.0]
    """
    seen = counts > sigma * clear_of_noise(len(counts))
    rest = ~seen
    size = np.bincount(families[rest], minlength=families.max() + 1).astype(np.float64)
    total: Floats = np.bincount(families[rest], counts[rest], minlength=len(size)).astype(np.float64)
    even = max(float(total.sum()), 0.0) * size / max(float(size.sum()), 1.0)
    noise = sigma**2 * float(size.sum())
    signal = max(float(((total - even) ** 2).sum()) - noise, 0.0)
    total = even + (total - even) * signal / max(signal + noise, 1e-300)
    each = np.maximum(total, 0.0) / np.maximum(size, 1.0)
    return np.where(seen, counts, each[families])
