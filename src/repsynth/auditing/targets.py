"""The records under attack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from repsynth.data.decode import decode
from repsynth.data.imitate import layout_of
from repsynth.data.records import MISSING, Records, join
from repsynth.data.sources import open_source
from repsynth.release.release import Release
from repsynth.schema import Numeric, Schema


@dataclass(frozen=True)
class Target:
    """A record, and the others in the table."""

    name: str
    others: Records
    record: Records


def targets_of(release: Release, table: Records) -> Iterator[Target]:
    """The records of a table that matter, and planted ones."""
    everybody = np.arange(table.rows)
    canary = extreme_record(release.schema)
    if table.rows > 1:
        scores = release.score.of(table)
        for name, i in (("most outlying", int(np.argmax(scores))), ("least outlying", int(np.argmin(scores)))):
            yield Target(name, table.take(everybody != i), table.take(everybody == i))
    yield Target("canary", table, canary)
    yield Target("missing only", table, empty_record(release.schema))
    yield Target("canary alone", table.take(everybody < 0), canary)


def made_up_table(schema: Schema, rows: int = 1000) -> pa.Table:
    """Records drawn evenly from the whole domain: nobody's data."""
    generator = np.random.default_rng(0)
    codes = {
        c.name: generator.integers(0, (c.steps if isinstance(c, Numeric) else c.size - 1) + 1, rows)
        for c in schema.learned
    }
    return stored(schema, [Records(rows=rows, codes=codes)])


def extreme_record(schema: Schema) -> Records:
    """A canary: the last category and the largest number everywhere."""
    codes = {c.name: np.array([c.steps if isinstance(c, Numeric) else c.size - 1]) for c in schema.learned}
    return Records(rows=1, codes=codes)


def empty_record(schema: Schema) -> Records:
    """A canary with nothing but its label."""
    codes = {c.name: np.array([0 if c.name == schema.label else MISSING]) for c in schema.learned}
    return Records(rows=1, codes=codes)


def stored(schema: Schema, parts: Sequence[Records]) -> pa.Table:
    """Encoded records as a table that the pipeline can read again."""
    joined = join(parts, [column.name for column in schema.learned])
    names = {column.name: pa.nulls(0, pa.string()) for column in schema.columns}
    return decode(joined, schema, layout_of(open_source(pa.table(names)), schema))
