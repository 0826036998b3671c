"""Standard errors of the tables that stage 2 measured.

They are due to the noise, whose scale is public. Weights and clipping add a bias that is unknown without the data.
With weights or clipping, a standard error is a lower bound.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.groups import Groups
from repsynth.schema import Numeric


@dataclass(frozen=True)
class TableErrors:
    """A measured table as fractions of its records, with standard errors due to noise.

    `clipped` is true where some records count for less than their weight.
    """

    columns: tuple[str, ...]
    measurement: str
    fractions: Floats
    errors: Floats
    clipped: bool


@dataclass(frozen=True)
class GroupMeans:
    """The mean of a numeric column, in positions, for each value of another column.

    `ends` holds lower and upper bounds that allow for lost records but not for noise.
    """

    by: str
    values: tuple[str, ...]
    column: str
    means: Floats
    errors: Floats
    ends: tuple[Floats, Floats] | None = None


@dataclass(frozen=True)
class ModelErrors:
    """The errors of all tables and means that stage 2 measured."""

    tables: tuple[TableErrors, ...] = ()
    means: tuple[GroupMeans, ...] = ()


def table_errors(
    columns: tuple[str, ...], measurement: str, counts: Floats, variances: Floats, *, clipped: bool
) -> TableErrors:
    """Return noisy counts as fractions of their sum, with errors that include the noise of the sum.

    >>> found = table_errors(("a", "b"), "tables", np.array([[60.0, 40.0]]), np.full((1, 2), 9.0), clipped=False)
    >>> found.fractions.tolist(), found.errors.round(4).tolist()
    ([[0.6, 0.4]], [[0.0216, 0.0216]])
    """
    whole = max(float(counts.sum()), 1.0)
    fractions = counts / whole
    errors = variances * (1 - 2 * fractions) + fractions**2 * float(variances.sum())
    return TableErrors(columns, measurement, fractions, np.sqrt(np.maximum(errors, 0.0)) / whole, clipped)


@dataclass(frozen=True)
class Lost:
    """Upper bounds on the records that weights and clipping remove from a table, by value and by group."""

    of_value: Floats
    of_group: Floats


Axes = tuple[tuple[Groups, int], tuple[Groups, int]]
"""The groups of a table's two columns, and which histograms are theirs."""


def nothing_lost(axes: Axes) -> Lost:
    """Return the bounds for a table in which every record counts in full."""
    return Lost(*(np.zeros(groups.count) for groups, _ in axes))


def lost_from(histograms: Histograms, axes: Axes, counts: Floats, variances: Floats) -> Lost:
    """Compare the margins of a table with the unweighted histograms; two standard errors are added."""
    found = []
    for axis, (groups, i) in enumerate(axes):
        error = np.sqrt(groups.sum_up(histograms.variances(i)) + variances.sum(axis=1 - axis))
        lost = groups.sum_up(histograms.noisy(i)) - counts.sum(axis=1 - axis)
        found.append(np.maximum(lost, 0.0) + 2 * error)
    return Lost(*found)


def group_means(
    rows: Groups, columns: Groups, positions: Floats, counts: Floats, variances: Floats, lost: Lost
) -> GroupMeans:
    """Return the mean of a numeric column for each value of a discrete one, from their noisy table.

    `rows` are the groups of the discrete column, `columns` those of the numeric one. `positions` holds the mean
    position of each group, NaN for groups without numbers.
    """
    number = ~np.isnan(positions)
    where, inside, noise = positions[number], counts[:, number], variances[:, number]
    mass = np.maximum(inside.sum(axis=1), 1e-9)
    means = np.maximum(inside @ where, 0.0) / mass
    errors = np.sqrt(np.sum(noise * (where - means[:, None]) ** 2, axis=1)) / mass
    names = rows.bins.column.name, value_names(rows), columns.bins.column.name
    first, last = (ends[number] for ends in group_ends(columns))
    room = lost.of_group[number]
    # The smallest mean is minus the largest mean of the negated numbers.
    low = [-largest_mean(c, -where, -first, room, x) for c, x in zip(inside, lost.of_value, strict=True)]
    high = [largest_mean(c, where, last, room, x) for c, x in zip(inside, lost.of_value, strict=True)]
    return GroupMeans(*names, means, errors, (np.array(low), np.array(high)))


def largest_mean(counts: Floats, where: Floats, most: Floats, room: Floats, lost: float) -> float:
    """Return the largest mean if `lost` records are added to the highest groups, up to the `room` of each.

    `where` holds the mean position of each group, `most` its last position.

    >>> largest_mean(np.array([8.0, 2.0]), np.array([1.0, 3.0]), np.array([1.0, 3.0]), np.array([5.0, 5.0]), 10.0)
    1.9333333333333333
    """
    mass = max(float(counts.sum()), 1e-9)
    total = float(counts @ where + np.maximum(counts, 0.0) @ (most - where))
    for g in np.argsort(-most):
        if most[g] <= total / mass:
            break
        added = min(float(room[g]), lost)
        mass, total, lost = mass + added, total + added * float(most[g]), lost - added
    return total / mass


def group_ends(groups: Groups) -> tuple[Floats, Floats]:
    """Return the first and the last position of each group of numbers, NaN for others."""
    bins = groups.bins
    assert bins.starts is not None
    first, last = np.full(groups.count, np.inf), np.full(groups.count, -np.inf)
    of_bin = groups.of_bin[: bins.numbers]
    np.minimum.at(first, of_bin, bins.starts[: bins.numbers].astype(np.float64))
    np.maximum.at(last, of_bin, bins.ends - 1.0)
    return np.where(np.isfinite(first), first, np.nan), np.where(np.isfinite(last), last, np.nan)


def value_names(groups: Groups) -> tuple[str, ...]:
    names: list[list[str]] = [[] for _ in range(groups.count)]
    every = (*getattr(groups.bins.column, "values", ()), "missing")
    for value, group in zip(every, groups.of_bin.tolist(), strict=True):
        if group >= 0:
            names[group].append(value)
    return tuple(", ".join(some) for some in names)


def mean_positions(groups: Groups, levels: Floats) -> Floats:
    """Return the mean position of each group of numbers by the released counts of its cells, NaN for others."""
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
