"""Membership attacks from nearest neighbours, outlyingness, and how well either is told.

An attack is a number per record: the higher, the more it looks like a member. Its advantage is
2 AUC − 1: 0 at chance, 1 where every member stands above every non-member, negative where it is wrong.
"""

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata
from sklearn.neighbors import NearestNeighbors

from repsynth.arrays import Bools, Floats, Ints

DECILES = 10
NEIGHBOURS = 5
OUTLYING_NEIGHBOURS = 10

_SPARE = 5  # candidates beyond those wanted, so that rounding in the search drops none of these
_BLOCK = 2**18  # numbers worked on at a time


def nearest(queries: Floats, others: Floats, count: int = NEIGHBOURS) -> Floats:
    """Of each query: the distances to its five, or so many, nearest neighbours among the others, rising; 0 to its
    like.

    >>> nearest(np.array([[0.0]]), np.array([[1.0], [9.0], [3.0]])).tolist()
    [[1.0, 3.0, 9.0]]
    """
    search = _search(others, count, len(others))
    return _distances(queries, others, search.kneighbors(queries, return_distance=False), count)


def nearest_rows(queries: Floats, others: Floats, count: int) -> Ints:
    """Return which of the others are nearest to each query.

    >>> nearest_rows(np.array([[0.0]]), np.array([[3.0], [1.0]]), 1).tolist()
    [[1]]
    """
    search = NearestNeighbors(n_neighbors=min(count, len(others)), algorithm="brute").fit(others)
    return np.asarray(search.kneighbors(queries, return_distance=False))


def _search(others: Floats, wanted: int, most: int) -> NearestNeighbors:
    # Brute force is the fastest here: trees do not prune in a hundred dimensions.
    return NearestNeighbors(n_neighbors=min(wanted + _SPARE, most), algorithm="brute").fit(others)


def _distances(queries: Floats, others: Floats, candidates: Ints, wanted: int) -> Floats:
    """The smallest distances of each query to its candidates, rising.

    The search finds candidates by |x|² − 2xy + |y|², whose rounding depends on the processor and leaves some 1e-7
    between a record and its like. Here distances are worked out from differences, block by block.
    """
    found = np.empty((len(queries), min(wanted, candidates.shape[1])))
    block = max(1, _BLOCK // max(1, candidates.shape[1] * others.shape[1]))
    for start in range(0, len(queries), block):
        rows = slice(start, start + block)
        apart = others[candidates[rows]]
        apart -= queries[rows, None]
        squares = np.sort(np.square(apart, out=apart).sum(axis=2), axis=1)
        found[rows] = np.sqrt(squares[:, : found.shape[1]])
    return found


@dataclass(frozen=True)
class Attacks:
    """Two attacks on the same records: how close synthetic records are, and that against reference records."""

    distance: Floats
    """Minus the distance to the nearest synthetic record."""
    density: Floats
    """The mean distance to five reference records over that to five synthetic ones."""


def make_attacks(to_synthetic: Floats, to_reference: Floats) -> Attacks:
    density = to_reference.mean(axis=1) / np.maximum(to_synthetic.mean(axis=1), 1e-12)
    return Attacks(distance=-to_synthetic[:, 0], density=density)


def outlyingness(places: Floats, among: Floats | None = None) -> Floats:
    """Of each record: the mean distance to its ten nearest neighbours among all the others, or among other
    records.

    >>> outlyingness(np.array([[0.0], [7.0]]), np.array([[1.0], [2.0]])).tolist()
    [1.5, 5.5]
    """
    if among is not None:
        search = _search(among, OUTLYING_NEIGHBOURS, len(among))
        candidates = search.kneighbors(places, return_distance=False)
        return np.asarray(_distances(places, among, candidates, OUTLYING_NEIGHBOURS).mean(axis=1))
    search = _search(places, OUTLYING_NEIGHBOURS, len(places) - 1)
    candidates = search.kneighbors(return_distance=False)  # without queries, a record is not its own neighbour
    return np.asarray(_distances(places, places, candidates, OUTLYING_NEIGHBOURS).mean(axis=1))


def deciles_of(values: Floats) -> Ints:
    """0 for the tenth with the smallest values, 9 for the tenth with the largest.

    >>> deciles_of(np.arange(20.0)).tolist()
    [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9]
    """
    ranks = rankdata(values, method="ordinal") - 1
    return np.asarray(ranks * DECILES // len(values), dtype=np.int64)


def advantage_of(attack: Floats, member: Bools) -> float:
    """2 AUC − 1 of an attack: ties count half.

    >>> advantage_of(np.array([3.0, 2.0, 1.0]), np.array([True, True, False]))
    1.0
    """
    inside, outside = int(member.sum()), int((~member).sum())
    if not inside or not outside:
        return 0.0
    ranks = rankdata(attack)
    auc = (ranks[member].sum() - inside * (inside + 1) / 2) / (inside * outside)
    return float(2 * auc - 1)
