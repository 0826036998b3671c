"""Columns that follow from others: worked out for each record by the rules of the schema."""

import numpy as np

from repsynth.arrays import Bools, Ints
from repsynth.data.matching import values_of_column
from repsynth.data.positions import positions_of, values_at
from repsynth.data.records import MISSING, Records
from repsynth.schema import Discrete, Follows, Integer, Number, Schema
from repsynth.schema.rules import total_of

_SAME = 1e-9


def with_following(records: Records, schema: Schema) -> tuple[Records, Bools]:
    """The records with the columns that follow from others, and for which of them these can be written down.

    A sum cannot where it is out of the column's bounds or off its grid; it is missing where a part of it is.
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
    return np.append(codes, MISSING).take(records.codes[source.name])  # what is missing is the last one


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
