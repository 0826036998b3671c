"""Evaluate rules of a schema on encoded records: conditions, and columns derived from others."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.io.records import MISSING, Records
from repsynth.io.values import positions_of, seconds_at, values_at
from repsynth.schema import Datetime, Discrete, Follows, Id, Integer, Number, Numeric, Schema
from repsynth.schema.conditions import Among, Both, Compared, Condition, Either, IsMissing, Not
from repsynth.schema.rules import total_of

_SAME = 1e-9  # relative difference below which a sum is on the grid

_HOW: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def holds(condition: Condition, records: Records, schema: Schema) -> Bools:
    """Return for each record whether the condition holds.

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
    """Return numbers, or seconds since 1970; NaN where a cell is missing or special."""
    codes = records.codes[column.name]
    usual = (codes != MISSING) & (codes <= column.steps)
    positions = np.where(usual, codes, 0)
    values = seconds_at(positions, column) if isinstance(column, Datetime) else values_at(positions, column)
    return np.where(usual, values.astype(np.float64), np.nan)


def with_following(records: Records, schema: Schema) -> tuple[Records, Bools]:
    """Return the records with their derived columns, and which records have valid ones.

    A sum is invalid if it is out of bounds or off the grid. It is missing if one of its terms is missing.
    """
    codes, able = dict(records.codes), np.ones(records.rows, dtype=np.bool_)
    for rule in schema.rules:
        if isinstance(rule, Follows) and rule.by is not None:
            codes[rule.column] = _looked_up(records, rule, schema)
        elif isinstance(rule, Follows):
            codes[rule.column], possible = _added_up(records, rule, schema)
            able &= possible
    return Records(rows=records.rows, codes=codes), able


def _looked_up(records: Records, rule: Follows, schema: Schema) -> Ints:
    columns = {column.name: column for column in schema.columns}
    source, target = columns[rule.by or ""], columns[rule.column]
    assert isinstance(source, Discrete)
    values = dict(rule.values)
    ordered = [values[value] for value in source.values]
    if isinstance(target, Discrete):
        codes = np.array([target.values.index(str(value)) for value in ordered])
    else:
        assert isinstance(target, Integer | Number)  # checked when the schema was read
        codes = positions_of(np.array(ordered, dtype=np.float64), target)
    return np.append(codes, MISSING).take(records.codes[source.name])  # MISSING is -1: the last code


def _added_up(records: Records, rule: Follows, schema: Schema) -> tuple[Ints, Bools]:
    total = total_of(rule, schema)
    columns = {column.name: column for column in schema.columns}
    numbers = np.full(records.rows, total.constant)
    for sign, name in total.terms:
        part = columns[name]
        assert isinstance(part, Integer | Number)  # checked when the schema was read
        numbers = numbers + sign * values_of_column(records, part)
    codes = positions_of(numbers, total.column)
    known = codes != MISSING
    written = np.asarray(values_at(np.where(known, codes, 0), total.column), dtype=np.float64)
    with np.errstate(invalid="ignore"):
        same = np.abs(written - numbers) <= _SAME * np.maximum(1.0, np.abs(numbers))
    return codes, ~known | same
