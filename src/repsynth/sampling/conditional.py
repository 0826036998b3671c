"""Conditional sampling: complete rows of which some columns are given.

The given rows are private input. A message names a row and a column, never a value.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.errors import ConfigError
from repsynth.io.encode import encode_batch, plain_array, read_numbers, read_seconds
from repsynth.io.records import MISSING, Records, join
from repsynth.io.sources import open_source
from repsynth.io.values import Notation, date_format, seconds_at
from repsynth.models.completing import Completing
from repsynth.sampling.constraints import Drawn, Support
from repsynth.sampling.derived import with_following
from repsynth.schema import Datetime, Discrete, Id, Numeric, Schema
from repsynth.schema.conditions import Condition

_TRIES, _STEPS = 200, 24
"""Completions tried for a row that breaks a rule or the condition; proposals for each row under rules."""


@dataclass(frozen=True)
class Given:
    """The given columns of some rows, as codes."""

    columns: tuple[Discrete | Numeric, ...]
    records: Records

    def part(self, start: int, rows: int) -> Records:
        return self.records.take(np.arange(start, start + rows))


def read_given(table: Any, schema: Schema) -> Given:
    """Read the rows; refuse an unknown column, and a cell outside of the public domain."""
    source = open_source(table)
    learned = {column.name: column for column in schema.learned}
    ids = {column.name for column in schema.columns if isinstance(column, Id)}
    if len(set(source.names)) < len(source.names):
        raise ConfigError("the given rows have two columns of the same name; rename one of them")
    for name in source.names:
        if name in ids:
            raise ConfigError(f"the given rows have '{name}', an id, which gets new values; leave the column out")
        if name not in learned:
            followed = any(column.name == name for column in schema.columns)
            why = "which follows from others by a rule" if followed else "which the release does not have"
            raise ConfigError(f"the given rows have a column '{name}', {why}; leave it out")
    columns = tuple(learned[name] for name in source.names)
    if len(columns) == len(learned):
        raise ConfigError("the given rows have all columns already: there is nothing to complete")
    parts, first = [], 1
    for batch in source.batches(list(source.names)):
        records = encode_batch(batch, replace(schema, columns=columns, label=None, rules=()))
        for column in columns:
            _check(batch.column(column.name), records.codes[column.name], column, first)
        parts.append(records)
        first += records.rows
    if source.dropped():
        raise ConfigError("some of the given rows have too many or too few cells; correct the file")
    return Given(columns, join(parts, [column.name for column in columns]))


def complete(
    support: Support,
    where: Condition | None,
    given: Records,
    first: int,
    generator: np.random.Generator,
    drawn: Drawn,
) -> Records:
    """Complete rows so that each obeys the rules and meets the condition. `first` is the number of the first row.

    With rules, several completions of each row are proposed and accepted by weight: an independence sampler
    (Metropolis-Hastings whose proposals do not depend on the current state).
    """
    sampler, steps = support.sampler, _STEPS if support.checks else 1
    if not isinstance(sampler, Completing):
        raise ConfigError("the model of this release cannot complete rows; use --where, or another model")
    found = with_following(sampler.draw(given.rows, generator), support.schema)[0].codes
    weights, effective = np.zeros(given.rows), np.zeros(given.rows)
    for step in range(_TRIES if given.rows else 0):
        left = np.arange(given.rows) if step < steps else np.flatnonzero(weights == 0)
        if not left.size:
            break
        completed = sampler.complete(given.take(left), generator)
        if not completed.possible.all():
            row = first + int(left[np.argmin(completed.possible)])
            raise ConfigError(
                f"row {row:,} of the given rows: the model never draws these values together, by its tables or by "
                "the rules of the schema; give fewer columns, or leave the row out"
            )
        records, obeys = support.obeying(support.repaired(completed.records, generator, given.codes), where)
        proposed = np.where(obeys, support.weights(records), 0.0)
        accepted = proposed > generator.random(len(left)) * weights[left]
        drawn.add(len(left) if step == 0 else 0, 0)
        for name, codes in records.codes.items():
            found[name][left[accepted]] = codes[accepted]
        weights[left[accepted]] = proposed[accepted]
        effective[left[accepted]] = completed.effective[accepted]
    left = np.flatnonzero(weights == 0)
    if not left.size:
        drawn.add(0, given.rows, effective)
        return Records(given.rows, found)
    row = first + int(left[0])
    raise ConfigError(
        f"row {row:,} of the given rows: none of {_TRIES} draws met the condition and the rules of the schema; "
        "check its values against them"
    )


def _check(array: pa.Array, codes: Ints, column: Discrete | Numeric, first: int) -> None:
    """Refuse cells that are not in the domain of their column."""
    array = plain_array(array)
    absent = codes == MISSING
    empty = absent & _blank(array)
    values = "one of its values" if isinstance(column, Discrete) else "a value that can be read"
    wrongs = [(absent & ~empty, f"is not {values} by the schema")]
    if not column.missing:
        remedy = "fill it in, or leave the column out"
        wrongs.insert(0, (empty, f"is empty, and may not be missing by the schema; {remedy}"))
    if not isinstance(column, Discrete):
        (low, high), numbers = _bounds(column), _numbers(array, column)
        with np.errstate(invalid="ignore"):
            outside = ~absent & (codes <= column.steps) & ((numbers < low) | (numbers > high))
        wrongs.append((outside, f"is outside of the schema's bounds, {column.min} to {column.max}"))
    for wrong, why in wrongs:
        if wrong.any():
            row = first + int(np.argmax(wrong))
            raise ConfigError(f"row {row:,} of the given rows: its '{column.name}' {why}")


def _blank(array: pa.Array) -> Bools:
    text = pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    text = text or pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    nothing = pc.equal(pc.binary_length(array), 0) if text else pc.is_null(array, nan_is_null=True)
    found: Bools = pc.fill_null(nothing, True).to_numpy(zero_copy_only=False)
    return found


def _numbers(array: pa.Array, column: Numeric) -> Floats:
    """Return the numbers in the cells; times in seconds since 1970."""
    if isinstance(column, Datetime):
        seconds = read_seconds(array, date_format(column)).cast(pa.float64(), safe=False)
        found: Floats = pc.fill_null(seconds, np.nan).to_numpy(zero_copy_only=False)
        return found
    return read_numbers(array, Notation.of(column))


def _bounds(column: Numeric) -> tuple[float, float]:
    if not isinstance(column, Datetime):
        return float(column.min), float(column.max)
    first, last = seconds_at(np.array([0, column.steps]), column).tolist()
    return first, last + column.unit.total_seconds() - 1
