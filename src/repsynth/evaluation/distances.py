"""How far a synthetic table is from a real one: total variation distances of one-, two- and three-way tables.

Numbers are compared on a grid of the real records. The strict grid gives every frequent value a cell of its own,
so that a lost spike at zero or at a round number counts in full, and cuts what is left at its quantiles. Missing
cells, special codes and categories have a cell each. Everything here is computed from data, so it is private.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from repsynth.arrays import Ints
from repsynth.data.records import MISSING, Records
from repsynth.errors import DataError
from repsynth.schema import Discrete, Numeric, Schema

CELLS = 20
"""How many intervals a grid has."""

TRIPLES = 200
"""How many triples of columns are looked at: all of them, or every so manyth in their order."""

FREQUENT = 0.02
"""A value that at least this fraction of the real records has gets a cell of its own."""


@dataclass(frozen=True)
class Grid:
    """Cells of a numeric column: missing, each value of `own`, the intervals that end at `ends`, special codes.

    The last interval has no end. Both arrays hold positions and rise.
    """

    steps: int
    own: Ints
    ends: Ints

    @classmethod
    def strict(cls, column: Numeric, codes: Ints) -> "Grid":
        """Frequent values alone, the others cut at twenty of their quantiles.

        A value is frequent if at least 2 % of all records have it, the missing and the special ones counted.

        >>> from repsynth.schema import Integer
        >>> codes = np.concatenate([np.zeros(900, dtype=np.int64), np.arange(1, 101)])
        >>> grid = Grid.strict(Integer(name="gain", min=0, max=99_999), codes)
        >>> grid.own.tolist(), grid.ends[:4].tolist()
        ([0], [5, 10, 15, 20])
        >>> grid.of(np.array([MISSING, 0, 1, 5, 6, 7000])).tolist()
        [0, 1, 2, 2, 3, 21]
        """
        numbers = codes[(codes != MISSING) & (codes <= column.steps)]
        values, counts = np.unique(numbers, return_counts=True)
        own = values[counts >= FREQUENT * len(codes)]
        return cls(column.steps, own, _quantiles(numbers[~np.isin(numbers, own)]))

    @classmethod
    def equal(cls, column: Numeric, codes: Ints) -> "Grid":
        """Twenty intervals of equal width over the real range: blind to spikes, and to shape where it is skewed.

        >>> from repsynth.schema import Integer
        >>> Grid.equal(Integer(name="gain", min=0, max=99_999), np.array([0, 200])).ends[:4].tolist()
        [9, 19, 29, 39]
        """
        numbers = codes[(codes != MISSING) & (codes <= column.steps)]
        low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
        starts = [low - (low - high) * k // CELLS for k in range(1, CELLS)]
        return cls(column.steps, np.zeros(0, dtype=np.int64), np.unique(np.array(starts, dtype=np.int64) - 1))

    def of(self, codes: Ints) -> Ints:
        own, intervals = len(self.own), len(self.ends) + 1
        cell = 1 + own + np.searchsorted(self.ends, codes, side="left")
        if own:
            nearest = np.minimum(np.searchsorted(self.own, codes, side="left"), own - 1)
            cell = np.where(self.own[nearest] == codes, 1 + nearest, cell)
        cell = np.where(codes > self.steps, own + intervals + codes - self.steps, cell)
        return np.where(codes == MISSING, 0, cell)


def _quantiles(numbers: Ints) -> Ints:
    """The last position of each twentieth but the last; fewer where these coincide."""
    if not len(numbers):
        return np.zeros(0, dtype=np.int64)
    levels = np.arange(1, CELLS) / CELLS
    return np.unique(np.quantile(numbers, levels, method="inverted_cdf")).astype(np.int64)


@dataclass(frozen=True)
class Distances:
    """Total variation distances: 0 where two tables of counts agree, 1 where they share no cell."""

    one_way: dict[str, float]
    two_way: dict[tuple[str, str], float]
    three_way: dict[tuple[str, str, str], float] = field(default_factory=dict)
    """Of some triples of columns, where they were asked for."""

    @property
    def mean_one_way(self) -> float:
        return float(np.mean(list(self.one_way.values())))

    @property
    def mean_two_way(self) -> float:
        """The mean over pairs of columns; NaN where there is only one column."""
        return float(np.mean(list(self.two_way.values()))) if self.two_way else float("nan")

    @property
    def mean_three_way(self) -> float:
        """The mean over the triples that were looked at; NaN where there are none."""
        return float(np.mean(list(self.three_way.values()))) if self.three_way else float("nan")

    @property
    def k_marginal(self) -> float:
        """NIST's k-marginal score for k = 3: 1000 times one less the mean distance of three-way tables."""
        return 1000 * (1 - self.mean_three_way)


def measure_distances(
    real: Records,
    synthetic: Records,
    schema: Schema,
    *,
    grid: Callable[[Numeric, Ints], Grid] = Grid.strict,
    pairs: bool = True,
    triples: int = 0,
) -> Distances:
    """The distances of all columns and, if wanted, pairs, and of so many triples, on grids of the real records.

    >>> from repsynth.schema import Boolean, Integer
    >>> schema = Schema(columns=(Integer(name="gain", min=0, max=1000), Boolean(name="owner")))
    >>> real = Records(rows=4, codes={"gain": np.array([0, 0, 5, 900]), "owner": np.array([0, 1, 0, 1])})
    >>> made = Records(rows=4, codes={"gain": np.array([0, 3, 5, 900]), "owner": np.array([0, 0, 1, 1])})
    >>> found = measure_distances(real, made, schema)
    >>> found.one_way, found.two_way
    ({'gain': 0.25, 'owner': 0.0}, {('gain', 'owner'): 0.5})
    """
    if not real.rows or not synthetic.rows:
        raise DataError("a table without records cannot be compared; give one that has some")
    cells = {
        column.name: _cells(column, real.codes[column.name], synthetic.codes[column.name], grid)
        for column in schema.learned
    }
    one_way = {name: total_variation(*pair) for name, pair in cells.items()}
    crossed = combinations(cells, 2) if pairs else ()
    two_way = {(a, b): total_variation(*_crossed(cells[a], cells[b])) for a, b in crossed}
    three_way = {
        (a, b, c): total_variation(*_crossed(_crossed(cells[a], cells[b]), cells[c]))
        for a, b, c in sample_triples(list(cells), triples)
    }
    return Distances(one_way, two_way, three_way)


def sample_triples(names: Sequence[str], most: int = TRIPLES) -> list[tuple[str, str, str]]:
    """At most so many triples of columns, the same ones every time: of many, every so manyth.

    >>> sample_triples(["a", "b", "c", "d"], 2)
    [('a', 'b', 'c'), ('a', 'c', 'd')]
    """
    every = list(combinations(names, 3))
    return [every[k * len(every) // most] for k in range(most)] if len(every) > most else every


def _cells(
    column: Discrete | Numeric, real: Ints, synthetic: Ints, grid: Callable[[Numeric, Ints], Grid]
) -> tuple[Ints, Ints]:
    if isinstance(column, Discrete):
        return real - MISSING, synthetic - MISSING  # from 0 on
    of = grid(column, real).of
    return of(real), of(synthetic)


def _crossed(one: tuple[Ints, Ints], two: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    size = max(two[0].max(), two[1].max()) + 1
    return one[0] * size + two[0], one[1] * size + two[1]


def total_variation(one: Ints, two: Ints) -> float:
    """Half the sum of absolute differences between the fractions of records in each cell.

    >>> total_variation(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]))
    0.25
    """
    if max(one.max(), two.max()) > len(one) + len(two):  # most cells are empty
        _, cells = np.unique(np.concatenate([one, two]), return_inverse=True)
        one, two = cells[: len(one)], cells[len(one) :]
    size = int(max(one.max(), two.max())) + 1
    fractions = [np.bincount(cells, minlength=size) / len(cells) for cells in (one, two)]
    return float(np.abs(fractions[0] - fractions[1]).sum() / 2)
