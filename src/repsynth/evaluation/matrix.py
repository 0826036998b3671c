"""Records as numbers, category codes and labels, and the space that attacks and classifiers use."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.records import Records, join
from repsynth.data.sources import Source, open_source
from repsynth.engines.local import LocalEngine
from repsynth.schema import Datetime, Integer, Numeric, Schema


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
    """The means that replace missing numbers, and the columns that get an indicator of them."""

    means: Mapping[str, float]
    gaps: frozenset[str]

    @classmethod
    def of(cls, learn: Records, schema: Schema, *, like: Records | None = None) -> "Fill":
        """Take the means of the records to learn from, and the gaps of `like` (by default the same records)."""
        like = learn if like is None else like
        codes = {column.name: learn.codes[column.name] for column in schema.numeric}
        there = {column.name: is_number(column, codes[column.name]) for column in schema.numeric}
        return cls(
            {name: float(codes[name][here].mean()) if here.any() else 0.0 for name, here in there.items()},
            frozenset(c.name for c in schema.numeric if not is_number(c, like.codes[c.name]).all()),
        )

    def names(self, schema: Schema) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the names of the columns of `numbers` and of `codes`."""
        numbers = tuple(column.name for column in schema.numeric)
        gaps = (f"{name} (whether there)" for name in numbers if name in self.gaps)
        return numbers, (*gaps, *(column.name for column in schema.discrete))


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
        codes.append(records.codes[discrete.name])
        sizes.append(discrete.size)
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
