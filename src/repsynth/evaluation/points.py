"""Records as numbers, category codes and labels; the space of classifiers and attacks; nearest neighbours.

An attack gives each record a number: the higher, the more it looks like a member of the table. Its advantage is
2 AUC − 1: 0 at chance, 1 where every member has a larger number than every non-member.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.stats import rankdata

from repsynth.arrays import Bools, Floats, Ints
from repsynth.engine.local import LocalEngine
from repsynth.io.records import MISSING, Records, join
from repsynth.io.sources import Source, open_source
from repsynth.schema import Datetime, Discrete, Integer, Numeric, Schema

MOST_ONE_HOT, LEAST_CATEGORIES = 300, 4
"""One-hot columns of a table; with more, rare categories of large columns are pooled. The minimum per column."""


def records_of(table: pa.Table | Source, schema: Schema) -> Records:
    """Read and encode all records of a table."""
    source = table if isinstance(table, Source) else open_source(table)
    batches = list(LocalEngine.open(source, schema).per_record())
    return join(batches, [column.name for column in schema.learned])


def is_number(column: Numeric, codes: Ints) -> Bools:
    """Return which records have a number, neither missing nor a special code."""
    return (codes >= 0) & (codes <= column.steps)


def numbers_of(records: Records, column: Numeric) -> Floats:
    """Return the numbers of a column without missing and special ones; times are in units since the lower bound.

    >>> height = Integer(name="height", min=100, max=220, special=("?",))
    >>> numbers_of(Records(rows=3, codes={"height": np.array([-1, 80, 121])}), height).tolist()
    [180.0]
    """
    codes = records.codes[column.name]
    codes = codes[is_number(column, codes)]
    if isinstance(column, Datetime):
        return codes.astype(np.float64)
    if isinstance(column, Integer):
        return (column.min + codes * column.step).astype(np.float64)
    return np.asarray(column.min + codes / column.steps * (column.max - column.min), dtype=np.float64)


@dataclass(frozen=True)
class Points:
    """Records: `numbers` (records, numeric columns), `codes` (records, categorical columns), `labels`.

    `sizes` holds how many categories each categorical column has; a missing one has code −1.
    """

    numbers: Floats
    codes: Ints
    labels: Ints
    sizes: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Ints | Bools) -> "Points":
        return Points(self.numbers[rows], self.codes[rows], self.labels[rows], self.sizes)


@dataclass(frozen=True)
class Fill:
    """How cells become coordinates: means for missing numbers, and a code for all rare categories of a column."""

    means: Mapping[str, float]
    gaps: frozenset[str]
    """The numeric columns that get an indicator of missing and special cells."""
    pooled: Mapping[str, Ints]
    """Of columns with many categories: those that keep a code of their own, most frequent first."""

    @classmethod
    def of(cls, learn: Records, schema: Schema, *, like: Records | None = None) -> "Fill":
        """Take means from the records to learn from, gaps and frequent categories from `like` if given."""
        like = learn if like is None else like
        codes = {column.name: learn.codes[column.name] for column in schema.numeric}
        there = {column.name: is_number(column, codes[column.name]) for column in schema.numeric}
        most = category_limit([column.size for column in schema.discrete])
        return cls(
            {name: float(codes[name][here].mean()) if here.any() else 0.0 for name, here in there.items()},
            frozenset(c.name for c in schema.numeric if not is_number(c, like.codes[c.name]).all()),
            {c.name: _frequent(like.codes[c.name], c.size, most) for c in schema.discrete if c.size > most},
        )

    def names(self, schema: Schema) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the columns of `numbers` and of `codes`."""
        numbers = tuple(column.name for column in schema.numeric)
        gaps = (f"{name} (whether there)" for name in numbers if name in self.gaps)
        return numbers, (*gaps, *(column.name for column in schema.discrete))

    def values(self, column: Discrete) -> tuple[str, ...]:
        """Return the value of each code; rare categories share the last one."""
        if column.name not in self.pooled:
            return column.values
        return (*(column.values[code] for code in self.pooled[column.name]), "any rarer value")

    def codes(self, records: Records, column: Discrete) -> Ints:
        codes = records.codes[column.name]
        if column.name not in self.pooled:
            return codes
        kept = self.pooled[column.name]
        place = np.full(column.size + 1, len(kept), dtype=np.int64)
        place[kept], place[-1] = np.arange(len(kept)), MISSING
        return place[codes]


def category_limit(sizes: Sequence[int], most: int = MOST_ONE_HOT) -> int:
    """Return how many categories a column may keep so that all columns together have at most `most`.

    >>> category_limit([2, 5, 900], most=20), category_limit([2, 5], most=20)
    (13, 5)
    """
    fitting = (
        limit for limit in range(max(sizes, default=0), LEAST_CATEGORIES, -1) if _total(sizes, limit) <= most
    )
    return next(fitting, LEAST_CATEGORIES)


def _total(sizes: Sequence[int], limit: int) -> int:
    return sum(min(size, limit) for size in sizes)


def _frequent(codes: Ints, size: int, most: int) -> Ints:
    counts = np.bincount(codes[codes >= 0], minlength=size)
    return np.argsort(-counts, kind="stable")[: most - 1]


def points_of_records(records: Records, schema: Schema, fill: Fill, labels: Ints | None = None) -> Points:
    """Return records as points. Numbers are positions; missing ones are filled by `fill`."""
    numbers: list[Floats] = []
    codes: list[Ints] = []
    sizes: list[int] = []
    for column in schema.numeric:
        there = is_number(column, records.codes[column.name])
        numbers.append(np.where(there, records.codes[column.name], fill.means[column.name]))
        if column.name in fill.gaps:
            codes.append(np.where(there, 0, 1))
            sizes.append(2)
    for discrete in schema.discrete:
        codes.append(fill.codes(records, discrete))
        sizes.append(len(fill.values(discrete)))
    empty = np.zeros((records.rows, 0))
    return Points(
        numbers=np.stack(numbers, axis=1) if numbers else empty,
        codes=np.stack(codes, axis=1) if codes else empty.astype(np.int64),
        labels=records.codes[schema.label or ""] if labels is None else labels,
        sizes=tuple(sizes),
    )


@dataclass(frozen=True)
class Space:
    """Standardised numbers beside one-hot categories. Built from one set of points, applied to others."""

    centre: Floats
    scale: Floats
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, points: Points) -> "Space":
        """Return the space in which these points have mean 0 and variance 1."""
        scale = points.numbers.std(axis=0)
        return cls(points.numbers.mean(axis=0), np.where(scale > 1e-9, scale, 1.0), points.sizes)

    @classmethod
    def standard(cls, points: Points) -> "Space":
        """Return the space that leaves the numbers as they are."""
        columns = points.numbers.shape[1]
        return cls(np.zeros(columns), np.ones(columns), points.sizes)

    def place(self, points: Points) -> Floats:
        parts = [(points.numbers - self.centre) / self.scale]
        parts += [_one_hot(points.codes[:, j], size) for j, size in enumerate(self.sizes)]
        return np.hstack(parts)


def _one_hot(codes: Ints, size: int) -> Floats:
    there = np.flatnonzero(codes >= 0)
    placed = np.zeros((len(codes), size))
    placed[there, codes[there]] = 1.0
    return placed


DECILES = 10
NEIGHBOURS = 5
OUTLYING_NEIGHBOURS = 10

_SPARE = 5  # candidates beyond those wanted, so that rounding in the search drops none of these
_BLOCK = 2**18  # numbers worked on at a time


def nearest(queries: Floats, others: Floats, count: int = NEIGHBOURS) -> Floats:
    """Return the distances of each query to its nearest neighbours among the others, rising; 0 to an equal one.

    >>> nearest(np.array([[0.0]]), np.array([[1.0], [9.0], [3.0]])).tolist()
    [[1.0, 3.0, 9.0]]
    """
    return _distances(queries, others, nearest_rows(queries, others, count + _SPARE), count)


def nearest_rows(queries: Floats | None, others: Floats, count: int) -> Ints:
    """Return which of the others are nearest to each query. Without queries: to each of the others, except itself.

    >>> nearest_rows(np.array([[0.0]]), np.array([[3.0], [1.0]]), 1).tolist()
    [[1]]
    """
    from sklearn.neighbors import NearestNeighbors  # an extra

    most = len(others) - (queries is None)
    # Brute force is the fastest here: trees do not prune in a hundred dimensions.
    search = NearestNeighbors(n_neighbors=min(count, most), algorithm="brute").fit(others)
    return np.asarray(search.kneighbors(queries, return_distance=False))


def _distances(queries: Floats, others: Floats, candidates: Ints, wanted: int) -> Floats:
    """Return the smallest distances of each query to its candidates, rising.

    The search finds candidates by |x|² − 2xy + |y|², whose rounding depends on the processor and leaves some 1e-7
    between equal records. Here distances are computed from differences, block by block.
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
    """Return the mean distance of each record to its ten nearest neighbours among all others, or in another table.

    >>> outlyingness(np.array([[0.0], [7.0]]), np.array([[1.0], [2.0]])).tolist()
    [1.5, 5.5]
    """
    others = places if among is None else among
    candidates = nearest_rows(None if among is None else places, others, OUTLYING_NEIGHBOURS + _SPARE)
    return np.asarray(_distances(places, others, candidates, OUTLYING_NEIGHBOURS).mean(axis=1))


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
    from sklearn.metrics import roc_auc_score

    return 0.0 if member.all() or not member.any() else float(2 * roc_auc_score(member, attack) - 1)
