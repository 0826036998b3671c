"""Which records a condition holds for, by their codes."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repsynth.arrays import Bools, Floats
from repsynth.data.positions import seconds_at, values_at
from repsynth.data.records import MISSING, Records
from repsynth.schema import Datetime, Discrete, Id, Numeric, Schema
from repsynth.schema.conditions import Among, Both, Compared, Condition, Either, IsMissing, Not

_HOW: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(condition: Condition, records: Records, schema: Schema) -> Bools:
    """For each record whether the condition holds.

    >>> from repsynth.schema import Integer
    >>> from repsynth.schema.conditions import parse_condition
    >>> schema = Schema(columns=(Integer(name="age", min=10, max=99),))
    >>> records = Records(rows=3, codes={"age": np.array([0, 40, MISSING])})
    >>> holds(parse_condition("age < 40", schema), records, schema).tolist()
    [True, False, False]
    """
    columns = {column.name: column for column in schema.columns if not isinstance(column, Id)}
    match condition:
        case Both(parts):
            return _joined(np.all, parts, records, schema)
        case Either(parts):
            return _joined(np.any, parts, records, schema)
        case Not(part):
            return ~holds(part, records, schema)
        case IsMissing(name):
            missing: Bools = records.codes[name] == MISSING
            return missing
        case Among(name, values):
            column = columns[name]
            wanted = (
                [column.values.index(value) for value in values]
                if isinstance(column, Discrete)
                else [column.steps + 1 + column.special.index(value) for value in values]
            )
            return np.isin(records.codes[name], wanted)
        case Compared(terms, constant, how):
            total = np.full(records.rows, constant)
            for sign, name in terms:
                column = columns[name]
                assert not isinstance(column, Discrete)  # checked when it was read
                total = total + sign * values_of_column(records, column)
            with np.errstate(invalid="ignore"):
                found: Bools = _HOW[how](total, 0.0) & np.isfinite(total)
                return found


def _joined(how: Callable[..., Any], parts: Sequence[Condition], records: Records, schema: Schema) -> Bools:
    found: Bools = how([holds(part, records, schema) for part in parts], axis=0)
    return found


def values_of_column(records: Records, column: Numeric) -> Floats:
    """The numbers, or the seconds since 1970; NaN for what is missing or special."""
    codes = records.codes[column.name]
    usual = (codes != MISSING) & (codes <= column.steps)
    positions = np.where(usual, codes, 0)
    values = seconds_at(positions, column) if isinstance(column, Datetime) else values_at(positions, column)
    return np.where(usual, values.astype(np.float64), np.nan)
