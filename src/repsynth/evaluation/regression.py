"""Would an analyst draw the same conclusions? Coefficients of a logistic regression, real beside synthetic.

Computed from data, so private. The intervals of the synthetic table are those that an analyst would compute who
takes it for a real one: they know nothing of the noise.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.data.records import Records
from repsynth.evaluation.matrix import Fill, Points, points_of_records
from repsynth.schema import Schema

LEAST = 10
"""Records that a category needs in both tables; with fewer it joins the one that others are compared with."""

_RIDGE = 1e-3  # keeps a coefficient finite where a category has one label only
_Z = 1.959964


@dataclass(frozen=True)
class Coefficient:
    """A term, its two estimates and their standard errors, and how far their 95 % intervals overlap."""

    term: str
    real: float
    real_standard_error: float
    synthetic: float
    synthetic_standard_error: float

    @property
    def overlap(self) -> float:
        """Of both intervals, the fraction that lies in the other, averaged; 0 where they are apart.

        >>> Coefficient("age", 0.0, 1.0, 0.0, 1.0).overlap, Coefficient("age", 0.0, 1.0, 9.0, 1.0).overlap
        (1.0, 0.0)
        """
        low = max(self.real - _Z * self.real_standard_error, self.synthetic - _Z * self.synthetic_standard_error)
        high = min(self.real + _Z * self.real_standard_error, self.synthetic + _Z * self.synthetic_standard_error)
        inside = max(high - low, 0.0)
        return inside / (4 * _Z * self.real_standard_error) + inside / (4 * _Z * self.synthetic_standard_error)


def compare_coefficients(
    real: Records, synthetic: Records, schema: Schema, label: tuple[Floats, Floats]
) -> list[Coefficient]:
    """The coefficients of both tables. Numbers are in standard deviations of the real table; a category is
    compared with the most frequent one of its column. `label` holds 0 or 1 for each record of both."""
    fill = Fill.of(real, schema)
    points = [
        points_of_records(records, schema, fill, np.zeros(records.rows, int)) for records in (real, synthetic)
    ]
    terms, designs = _designs(points[0], points[1], fill.names(schema), schema)
    (one, one_error), (two, two_error) = (fit_newton(x, y) for x, y in zip(designs, label, strict=True))
    return [
        Coefficient(*found)
        for found in zip(terms, one.tolist(), one_error.tolist(), two.tolist(), two_error.tolist(), strict=True)
    ]


def _designs(
    real: Points, synthetic: Points, names: tuple[tuple[str, ...], tuple[str, ...]], schema: Schema
) -> tuple[list[str], list[Floats]]:
    """The terms, and for each table a matrix with a column for each, the constant first."""
    centre, scale = real.numbers.mean(axis=0), real.numbers.std(axis=0)
    values = {column.name: column.values for column in schema.discrete}
    terms, parts = ["(constant)"], [[np.ones((len(p), 1))] for p in (real, synthetic)]
    for j, name in enumerate(names[0]):
        if scale[j] > 1e-9 and synthetic.numbers[:, j].std() > 1e-9:
            terms.append(name)
            for part, p in zip(parts, (real, synthetic), strict=True):
                part.append(((p.numbers[:, j] - centre[j]) / scale[j])[:, None])
    for j, name in enumerate(names[1]):
        counts = [np.bincount(p.codes[p.codes[:, j] >= 0, j], minlength=real.sizes[j]) for p in (real, synthetic)]
        frequent = np.flatnonzero((counts[0] >= LEAST) & (counts[1] >= LEAST))
        base = int(np.argmax(counts[0]))
        for code in frequent[frequent != base].tolist():
            terms.append(f"{name} = {values[name][code]}" if name in values else name)
            for part, p in zip(parts, (real, synthetic), strict=True):
                part.append((p.codes[:, j] == code)[:, None].astype(np.float64))
    return terms, [np.hstack(part) for part in parts]


def fit_newton(design: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Coefficients and standard errors of a logistic regression with the slightest ridge, by Newton's method.

    >>> x = np.array([[1.0, 0.0]] * 40 + [[1.0, 1.0]] * 40)
    >>> y = np.repeat([0.0, 1.0, 0.0, 1.0], [30, 10, 10, 30])
    >>> [found.round(2).tolist() for found in fit_newton(x, y)]
    [[-1.1, 2.2], [0.37, 0.52]]
    """
    coefficients = np.zeros(design.shape[1])
    ridge = _RIDGE * np.eye(design.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        weight = np.maximum(chance * (1 - chance), 1e-9)
        information = (design * weight[:, None]).T @ design + ridge
        step = np.linalg.solve(information, design.T @ (label - chance) - _RIDGE * coefficients)
        coefficients = coefficients + step / max(1.0, float(np.abs(step).max()) / 4)
        if float(np.abs(step).max()) < 1e-8:
            break
    return coefficients, np.sqrt(np.diag(np.linalg.inv(information)))
