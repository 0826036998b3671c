"""Structural zeros: cells of a table of two columns in which no record can be, by the rules of the schema.

A group is taken for all that its values may be; a cell is ruled out only where no pair of values of its two groups
obeys a rule that speaks of these columns alone. Rules are public, so this is post-processing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Floats
from repsynth.columns.groups import NONE, Groups
from repsynth.data.positions import seconds_at, values_at
from repsynth.models.uncertainty import group_ends
from repsynth.schema import Datetime, Discrete, Schema
from repsynth.schema.conditions import Among, Both, Compared, Condition, Either, IsMissing, Not, columns_of
from repsynth.schema.rules import row_condition

May = tuple[Bools, Bools]
"""For each cell whether a condition may hold in it, and whether it may not."""


def possible_cells(schema: Schema, rows: Groups, columns: Groups) -> Bools | None:
    """(groups, groups): where records may be; None where no rule says anything."""
    condition = row_condition(schema)
    parts = condition.parts if isinstance(condition, Both) else () if condition is None else (condition,)
    sides = {rows.bins.column.name: _Side(rows, 0), columns.bins.column.name: _Side(columns, 1)}
    found = np.ones((rows.count, columns.count), dtype=np.bool_)
    for part in parts:
        if columns_of(part) <= set(sides):
            found = found & _may(part, sides)[0]
    return None if found.all() else found


def _may(condition: Condition, sides: "dict[str, _Side]") -> May:
    match condition:
        case Both(parts):
            return _joined(parts, sides, np.logical_and, np.logical_or)
        case Either(parts):
            return _joined(parts, sides, np.logical_or, np.logical_and)
        case Not(part):
            holds, fails = _may(part, sides)
            return fails, holds
        case IsMissing(name):
            side = sides[name]
            return side.laid(side.missing), side.laid(~side.missing)
        case Among(name, values):
            return sides[name].among(values)
        case Compared():
            return _compared(condition, sides)


def _joined(
    parts: tuple[Condition, ...],
    sides: "dict[str, _Side]",
    holds: Callable[[Bools, Bools], Bools],
    fails: Callable[[Bools, Bools], Bools],
) -> May:
    found = _may(parts[0], sides)
    for part in parts[1:]:
        other = _may(part, sides)
        found = holds(found[0], other[0]), fails(found[1], other[1])
    return found


def _compared(condition: Compared, sides: "dict[str, _Side]") -> May:
    """By the least and the largest that the sum may be; it does not hold where a part is no number."""
    low = high = np.full((1, 1), condition.constant)
    for sign, name in condition.terms:
        ends = [sides[name].laid(sign * end) for end in sides[name].ends]
        low, high = low + np.minimum(*ends), high + np.maximum(*ends)
    number = np.isfinite(low) & np.isfinite(high)
    with np.errstate(invalid="ignore"):
        holds, fails = {
            "<": (low < 0, high >= 0),
            "<=": (low <= 0, high > 0),
            ">": (high > 0, low <= 0),
            ">=": (high >= 0, low < 0),
            "=": ((low <= 0) & (high >= 0), (low != 0) | (high != 0)),
            "!=": ((low != 0) | (high != 0), (low <= 0) & (high >= 0)),
        }[condition.how]
    return holds & number, fails | ~number


@dataclass(frozen=True)
class _Side:
    """The groups of one of the two columns, along an axis of the table."""

    groups: Groups
    axis: int

    def laid(self, of_group: NDArray[Any]) -> NDArray[Any]:
        """Along its axis."""
        return of_group[:, None] if self.axis == 0 else of_group[None, :]

    @cached_property
    def missing(self) -> Bools:
        """Which group is of missing cells."""
        found: Bools = np.arange(self.groups.count) == self.groups.of_bin[-1]
        return found

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The least and the largest number of each group, or seconds since 1970; NaN of what is no number."""
        column = self.groups.bins.column
        assert not isinstance(column, Discrete)  # checked when the condition was read
        found = []
        for ends in group_ends(self.groups):
            known = np.isfinite(ends)
            positions = np.where(known, ends, 0).astype(np.int64)
            at = seconds_at(positions, column) if isinstance(column, Datetime) else values_at(positions, column)
            found.append(np.where(known, np.asarray(at, dtype=np.float64), np.nan))
        return found[0], found[1]

    def among(self, values: tuple[str, ...]) -> May:
        """Whether a group has such a value, and another one."""
        bins, of_bin = self.groups.bins, self.groups.of_bin
        column = bins.column
        names = column.values if isinstance(column, Discrete) else column.special
        first = 0 if isinstance(column, Discrete) else bins.numbers
        such = np.zeros(len(of_bin), dtype=np.bool_)
        such[[first + names.index(value) for value in values]] = True
        inside = of_bin != NONE
        found = [
            np.bincount(of_bin[inside], which[inside], minlength=self.groups.count) > 0 for which in (such, ~such)
        ]
        return self.laid(found[0]), self.laid(found[1])
