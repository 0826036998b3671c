"""What noise does to the tables that stage 2 measured: released tables with their standard errors.

Noise is all that is known without looking at the data. What weights and clipping take away comes on top, so where
there are any, an error is a lower bound.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.groups import Groups
from repsynth.schema import Numeric


@dataclass(frozen=True)
class TableErrors:
    """A measured table as fractions of its records, each with the standard error that noise makes.

    `clipped` says that records do not all count in full, whatever their weights.
    """

    columns: tuple[str, ...]
    measurement: str
    fractions: Floats
    errors: Floats
    clipped: bool


@dataclass(frozen=True)
class GroupMeans:
    """The mean of a numeric column, in positions, among the records with each value of another column."""

    by: str
    values: tuple[str, ...]
    column: str
    means: Floats
    errors: Floats


@dataclass(frozen=True)
class ModelErrors:
    """All that stage 2 measured."""

    tables: tuple[TableErrors, ...] = ()
    means: tuple[GroupMeans, ...] = ()


def table_errors(
    columns: tuple[str, ...], measurement: str, counts: Floats, variances: Floats, *, clipped: bool
) -> TableErrors:
    """A table of noisy counts as fractions of their sum, whose own noise counts, too.

    >>> found = table_errors(("a", "b"), "tables", np.array([[60.0, 40.0]]), np.full((1, 2), 9.0), clipped=False)
    >>> found.fractions.tolist(), found.errors.round(4).tolist()
    ([[0.6, 0.4]], [[0.0216, 0.0216]])
    """
    whole = max(float(counts.sum()), 1.0)
    fractions = counts / whole
    errors = variances * (1 - 2 * fractions) + fractions**2 * float(variances.sum())
    return TableErrors(columns, measurement, fractions, np.sqrt(np.maximum(errors, 0.0)) / whole, clipped)


def group_means(rows: Groups, columns: Groups, positions: Floats, counts: Floats, variances: Floats) -> GroupMeans:
    """Means by the values of a discrete column from a noisy table of (its groups, groups of a numeric column);
    `positions` holds where the numbers of each group lie, NaN where they are no numbers."""
    number = ~np.isnan(positions)
    where, inside, noise = positions[number], counts[:, number], variances[:, number]
    mass = np.maximum(inside.sum(axis=1), 1e-9)
    means = np.maximum(inside @ where, 0.0) / mass
    errors = np.sqrt(np.sum(noise * (where - means[:, None]) ** 2, axis=1)) / mass
    return GroupMeans(rows.bins.column.name, value_names(rows), columns.bins.column.name, means, errors)


def value_names(groups: Groups) -> tuple[str, ...]:
    """The categories of each group of a discrete column."""
    names: list[list[str]] = [[] for _ in range(groups.count)]
    every = (*getattr(groups.bins.column, "values", ()), "missing")
    for value, group in zip(every, groups.of_bin.tolist(), strict=True):
        if group >= 0:
            names[group].append(value)
    return tuple(", ".join(some) for some in names)


def mean_positions(groups: Groups, levels: Floats) -> Floats:
    """The mean position of the numbers of each group, by the released counts of its bins; NaN of special values
    and of the missing."""
    bins = groups.bins
    assert isinstance(bins.column, Numeric)
    assert bins.starts is not None
    middle = (bins.starts[: bins.numbers] + bins.ends - 1) / 2
    mass = np.maximum(levels[: bins.numbers], 1e-9)
    of_bin = groups.of_bin[: bins.numbers]
    found = np.full(groups.count, np.nan)
    sums, counts = (np.bincount(of_bin, part, minlength=groups.count) for part in (mass * middle, mass))
    here = counts > 0
    found[here] = sums[here] / counts[here]
    return found
