"""How strongly columns depend on each other, whatever their types, in one matrix.

Two numeric columns: Pearson's correlation, from −1 to 1. A numeric and a discrete one: the correlation ratio,
from 0 to 1, the root of the fraction of the variance that the categories explain. Two discrete ones: Cramér's V,
from 0 to 1. Records in which either cell is missing or a special code do not count. Computed from data, so
private.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import Records
from repsynth.evaluation.matrix import is_number
from repsynth.schema import Discrete, Numeric, Schema


@dataclass(frozen=True)
class Associations:
    """A matrix with a row and a column for each column of the table; NaN where there is nothing to tell."""

    names: tuple[str, ...]
    matrix: Floats

    def pairs(self) -> dict[tuple[str, str], float]:
        rows, columns = np.triu_indices(len(self.names), 1)
        return {
            (self.names[i], self.names[j]): float(self.matrix[i, j])
            for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
        }

    def apart(self, other: "Associations") -> dict[tuple[str, str], float]:
        """The absolute difference of each pair that both tell."""
        others = other.pairs()
        found = {pair: abs(value - others[pair]) for pair, value in self.pairs().items()}
        return {pair: value for pair, value in found.items() if not np.isnan(value)}


def measure_associations(records: Records, schema: Schema) -> Associations:
    """The matrix of a table.

    >>> from repsynth.schema import Boolean, Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99), Boolean(name="retired")))
    >>> codes = {"age": np.array([30, 40, 70, 80]), "retired": np.array([0, 0, 1, 1])}
    >>> measure_associations(Records(rows=4, codes=codes), schema).matrix.round(3).tolist()
    [[1.0, 0.97], [0.97, 1.0]]
    """
    columns = schema.learned
    matrix = np.eye(len(columns))
    for i, one in enumerate(columns):
        for j, two in enumerate(columns[:i]):
            matrix[i, j] = matrix[j, i] = _association(records, one, two)
    return Associations(tuple(column.name for column in columns), matrix)


def _association(records: Records, one: Discrete | Numeric, two: Discrete | Numeric) -> float:
    there = _there(records, one) & _there(records, two)
    a, b = records.codes[one.name][there], records.codes[two.name][there]
    if isinstance(one, Numeric) and isinstance(two, Numeric):
        return pearson(a, b)
    if isinstance(one, Numeric):
        return correlation_ratio(a, b)
    return correlation_ratio(b, a) if isinstance(two, Numeric) else cramers_v(a, b)


def _there(records: Records, column: Discrete | Numeric) -> Ints:
    codes = records.codes[column.name]
    return np.asarray(is_number(column, codes) if isinstance(column, Numeric) else codes >= 0)


def pearson(one: Ints, two: Ints) -> float:
    """The correlation of two numeric columns; NaN where one of them does not vary.

    >>> pearson(np.array([1, 2, 3]), np.array([2, 4, 6])), pearson(np.array([1, 2]), np.array([5, 5]))
    (1.0, nan)
    """
    if len(one) < 2:
        return float("nan")
    a, b = one - one.mean(), two - two.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(np.clip(a @ b / scale, -1.0, 1.0)) if scale > 0 else float("nan")


def correlation_ratio(numbers: Ints, categories: Ints) -> float:
    """The root of the fraction of the variance that lies between categories.

    >>> correlation_ratio(np.array([1, 1, 5, 5]), np.array([0, 0, 1, 1]))
    1.0
    """
    if not len(numbers):
        return float("nan")
    centred = numbers - numbers.mean()
    whole = float(centred @ centred)
    count = np.bincount(categories)
    sums = np.bincount(categories, centred)
    between = float(np.sum(sums[count > 0] ** 2 / count[count > 0]))
    return float(np.sqrt(min(between / whole, 1.0))) if whole > 0 else float("nan")


def cramers_v(one: Ints, two: Ints) -> float:
    """Cramér's V of two discrete columns; NaN where one of them does not vary.

    >>> cramers_v(np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]))
    1.0
    """
    if not len(one):
        return float("nan")
    size = int(two.max()) + 1
    counts = np.bincount(one * size + two, minlength=(int(one.max()) + 1) * size).reshape(-1, size).astype(float)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    smaller = min(counts.shape) - 1
    if smaller < 1:
        return float("nan")
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / len(one)
    chi_square = float(np.sum((counts - expected) ** 2 / expected))
    return float(np.sqrt(min(chi_square / len(one) / smaller, 1.0)))
