"""Records as points: numbers, category codes and a label, and the space that attacks and classifiers work in."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.schema import Schema


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
        """Some of the records."""
        return Points(self.numbers[rows], self.codes[rows], self.labels[rows], self.sizes)


def points_of(table: pa.Table, schema: Schema) -> Points:
    """A table's features and labels; numbers must be complete."""
    features = [column for column in schema.discrete if column.name != schema.label]
    numbers = [table[column.name].to_numpy().astype(np.float64) for column in schema.numeric]
    codes = [_codes(table[column.name], column.values) for column in features]
    label = schema.label_column
    assert label is not None  # the four datasets have one
    rows = table.num_rows
    return Points(
        numbers=np.stack(numbers, axis=1) if numbers else np.zeros((rows, 0)),
        codes=np.stack(codes, axis=1) if codes else np.zeros((rows, 0), dtype=np.int64),
        labels=_codes(table[label.name], label.values),
        sizes=tuple(len(column.values) for column in features),
    )


def _codes(column: pa.ChunkedArray, values: tuple[str, ...]) -> Ints:
    found = pc.index_in(pc.cast(column, pa.string()), value_set=pa.array(values, pa.string()))
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


@dataclass(frozen=True)
class Space:
    """Standardised numbers beside one-hot categories. Built from one set of points, applied to others."""

    centre: Floats
    scale: Floats
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, points: Points) -> "Space":
        """The space in which these points have mean 0 and variance 1."""
        scale = points.numbers.std(axis=0)
        return cls(points.numbers.mean(axis=0), np.where(scale > 1e-9, scale, 1.0), points.sizes)

    @classmethod
    def standard(cls, points: Points) -> "Space":
        """For points that are standardised already: their numbers as they are."""
        columns = points.numbers.shape[1]
        return cls(np.zeros(columns), np.ones(columns), points.sizes)

    def place(self, points: Points) -> Floats:
        """The coordinates of each record."""
        parts = [(points.numbers - self.centre) / self.scale]
        parts += [np.eye(size + 1)[points.codes[:, j], :size] for j, size in enumerate(self.sizes)]
        return np.hstack(parts)
