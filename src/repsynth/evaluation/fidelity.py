"""Compare the columns and rows of a synthetic table with those of a real one. PRIVATE: computed from data.

- Distances: total variation distances of one-, two- and three-way tables. Numbers are compared on a grid of the
  real records, in which every frequent value has its own cell: a lost spike at zero counts in full. Missing cells,
  special codes and categories have a cell each.
- Associations: how strongly two columns depend on each other.
- Coverage: the real ranges and categories that are there, repeated rows, copies of real rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats.contingency import association

from repsynth.arrays import Bools, Ints
from repsynth.errors import DataError
from repsynth.evaluation.export import mean
from repsynth.evaluation.points import is_number
from repsynth.io.records import MISSING, Records
from repsynth.schema import Discrete, Numeric, Schema

CELLS = 20
"""Number of intervals of a grid."""

TRIPLES = 200
"""Number of triples of columns that are compared."""

FREQUENT = 0.02
"""A value that at least this fraction of the real records has gets its own cell."""


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
        """Return the grid with a cell for each frequent value; the others are cut at their quantiles.

        A value is frequent if at least 2 % of all records have it. Missing and special cells count as records.

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
        rest = numbers[~np.isin(numbers, own)]
        ends = np.quantile(rest, np.arange(1, CELLS) / CELLS, method="inverted_cdf") if len(rest) else rest
        return cls(column.steps, own, np.unique(ends).astype(np.int64))

    def of(self, codes: Ints) -> Ints:
        own, intervals = len(self.own), len(self.ends) + 1
        cell = 1 + own + np.searchsorted(self.ends, codes, side="left")
        if own:
            nearest = np.minimum(np.searchsorted(self.own, codes, side="left"), own - 1)
            cell = np.where(self.own[nearest] == codes, 1 + nearest, cell)
        cell = np.where(codes > self.steps, own + intervals + codes - self.steps, cell)
        return np.where(codes == MISSING, 0, cell)


@dataclass(frozen=True)
class Distances:
    """Total variation distances: 0 where two tables of counts agree, 1 where they share no cell."""

    one_way: dict[str, float]
    two_way: dict[tuple[str, str], float]
    three_way: dict[tuple[str, str, str], float] = field(default_factory=dict)

    @property
    def mean_one_way(self) -> float:
        return mean(self.one_way.values())

    @property
    def mean_two_way(self) -> float:
        return mean(self.two_way.values())

    @property
    def mean_three_way(self) -> float:
        return mean(self.three_way.values())


def measure_distances(
    real: Records,
    synthetic: Records,
    schema: Schema,
    *,
    grid: Callable[[Numeric, Ints], Grid] = Grid.strict,
    pairs: bool = True,
    triples: int = 0,
) -> Distances:
    """Return the distances of all columns and pairs, and of at most `triples` triples, on grids of the real table.

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
    """Return at most `most` triples of columns, evenly spaced among all, the same ones every time.

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
    """Return half the sum of absolute differences between the fractions of records in each cell.

    >>> total_variation(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]))
    0.25
    """
    if max(one.max(), two.max()) > len(one) + len(two):  # most cells are empty
        _, cells = np.unique(np.concatenate([one, two]), return_inverse=True)
        one, two = cells[: len(one)], cells[len(one) :]
    size = int(max(one.max(), two.max())) + 1
    fractions = [np.bincount(cells, minlength=size) / len(cells) for cells in (one, two)]
    return float(np.abs(fractions[0] - fractions[1]).sum() / 2)


def measure_associations(records: Records, schema: Schema) -> dict[tuple[str, str], float]:
    """Return the association of each pair of columns; NaN where one of them does not vary.

    Two numeric columns: Pearson's correlation, from -1 to 1. A numeric and a discrete one: the correlation ratio,
    from 0 to 1. Two discrete ones: Cramér's V, from 0 to 1. Missing cells and special codes are left out.

    >>> from repsynth.schema import Boolean, Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99), Boolean(name="retired")))
    >>> codes = {"age": np.array([30, 40, 70, 80]), "retired": np.array([0, 0, 1, 1])}
    >>> found = measure_associations(Records(rows=4, codes=codes), schema)
    >>> {pair: round(value, 3) for pair, value in found.items()}
    {('age', 'retired'): 0.97}
    """
    return {(a.name, b.name): _association(records, a, b) for a, b in combinations(schema.learned, 2)}


def _association(records: Records, one: Discrete | Numeric, two: Discrete | Numeric) -> float:
    there = _there(records, one) & _there(records, two)
    a, b = records.codes[one.name][there], records.codes[two.name][there]
    if isinstance(one, Numeric):
        return pearson(a, b) if isinstance(two, Numeric) else correlation_ratio(a, b)
    return correlation_ratio(b, a) if isinstance(two, Numeric) else cramers_v(a, b)


def _there(records: Records, column: Discrete | Numeric) -> Bools:
    codes = records.codes[column.name]
    return np.asarray(is_number(column, codes) if isinstance(column, Numeric) else codes >= 0)


def _varies(codes: Ints) -> bool:
    return len(codes) > 0 and bool(codes.min() < codes.max())


def pearson(one: Ints, two: Ints) -> float:
    return float(np.corrcoef(one, two)[0, 1]) if _varies(one) and _varies(two) else float("nan")


def correlation_ratio(numbers: Ints, categories: Ints) -> float:
    """Return the square root of the fraction of the variance that is between categories.

    >>> correlation_ratio(np.array([1, 1, 5, 5]), np.array([0, 0, 1, 1]))
    1.0
    """
    if not _varies(numbers):
        return float("nan")
    centred = numbers - numbers.mean()
    count, sums = np.bincount(categories), np.bincount(categories, centred)
    between = float(np.sum(sums[count > 0] ** 2 / count[count > 0]))
    return float(np.sqrt(min(between / float(centred @ centred), 1.0)))


def cramers_v(one: Ints, two: Ints) -> float:
    if not _varies(one) or not _varies(two):
        return float("nan")
    size = int(two.max()) + 1
    counts = np.bincount(one * size + two, minlength=(int(one.max()) + 1) * size).reshape(-1, size)
    return float(association(counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0], method="cramer"))


def range_coverage(real: Records, synthetic: Records, schema: Schema) -> dict[str, float]:
    """Return for each numeric column the fraction of the real range that the synthetic column covers.

    NaN where the real column has fewer than two numbers.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99),))
    >>> real, made = (Records(rows=2, codes={"age": np.array(ages)}) for ages in ([20, 60], [25, 50]))
    >>> range_coverage(real, made, schema)
    {'age': 0.625}
    """
    found = {}
    for column in schema.numeric:
        numbers, made = (r.codes[column.name][is_number(column, r.codes[column.name])] for r in (real, synthetic))
        if not len(numbers) or numbers.min() == numbers.max():
            found[column.name] = float("nan")
        elif not len(made):
            found[column.name] = 0.0
        else:
            low, high = int(numbers.min()), int(numbers.max())
            lost = max(int(made.min()) - low, 0) + max(high - int(made.max()), 0)
            found[column.name] = max(1 - lost / (high - low), 0.0)
    return found


def category_coverage(real: Records, synthetic: Records, schema: Schema) -> dict[str, float]:
    """Return for each discrete column the fraction of the real categories that the synthetic column has.

    >>> from repsynth.schema import Category
    >>> schema = Schema(columns=(Category(name="kind", values=("a", "b", "c")),))
    >>> real, made = (Records(rows=3, codes={"kind": np.array(kinds)}) for kinds in ([0, 1, 2], [0, 0, 2]))
    >>> category_coverage(real, made, schema)
    {'kind': 0.6666666666666666}
    """
    found = {}
    for column in schema.discrete:
        there, made = (np.unique(r.codes[column.name]) for r in (real, synthetic))
        there = there[there >= 0]
        found[column.name] = float(np.isin(there, made).mean()) if len(there) else float("nan")
    return found


def row_keys(records: Records) -> NDArray[np.void]:
    """Return each record as one value that can be compared."""
    codes = np.stack(list(records.codes.values()), axis=1) if records.codes else np.zeros((records.rows, 1), int)
    table = np.ascontiguousarray(codes, dtype=np.int64)
    return table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()


def fraction_repeated(records: Records) -> float:
    """Return the fraction of rows that are equal to another row of the same table.

    >>> fraction_repeated(Records(rows=4, codes={"age": np.array([5, 5, 6, 7])}))
    0.5
    """
    _, inverse, counts = np.unique(row_keys(records), return_inverse=True, return_counts=True)
    return float((counts[inverse.ravel()] > 1).mean())


def by_original(records: Records, of: Records) -> dict[str, float]:
    """Return the fraction of records that are equal to a row of another table, by how often that row is there.

    >>> some, others = (Records(rows=3, codes={"age": np.array(ages)}) for ages in ([5, 6, 8], [6, 7, 7]))
    >>> by_original(some, others)
    {'of rows that only one has': 0.3333333333333333, 'of rows that several have': 0.0}
    """
    keys, counts = np.unique(row_keys(of), return_counts=True)
    ours = row_keys(records)
    return {
        "of rows that only one has": float(np.isin(ours, keys[counts == 1]).mean()),
        "of rows that several have": float(np.isin(ours, keys[counts > 1]).mean()),
    }


def copied(records: Records, of: Records) -> Bools:
    """Return which records are equal to some record of another table.

    >>> some, others = (Records(rows=2, codes={"age": np.array(ages)}) for ages in ([5, 6], [6, 7]))
    >>> copied(some, others).tolist()
    [False, True]
    """
    return np.asarray(np.isin(row_keys(records), row_keys(of)), dtype=np.bool_)
