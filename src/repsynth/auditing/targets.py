"""The records under attack."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from repsynth.arrays import Floats
from repsynth.data.derived import with_following
from repsynth.data.records import MISSING, UNITS, Records, Whose, factors_of, join
from repsynth.data.sources import open_source
from repsynth.data.write import decode
from repsynth.engines.local import LocalEngine
from repsynth.release.release import Release
from repsynth.schema import Numeric, Person, Schema


@dataclass(frozen=True)
class Target:
    """A record, or all records of a person, and the others in the table."""

    name: str
    others: Records
    record: Records

    def engines(self, schema: Schema) -> tuple[LocalEngine, LocalEngine]:
        """The table without and with it. With persons, both are read and counted as a table of a run is."""
        both = [self.others], [self.others, self.record]
        if schema.person is None:
            return LocalEngine(both[0]), LocalEngine(both[1])
        without, present = (LocalEngine.open(open_source(stored(schema, parts)), schema) for parts in both)
        return without, present

    def influence(self, release: Release) -> float:
        """Its share of the largest influence."""
        return self.together(release.influence(self.record), release.schema)

    def together(self, of_rows: Floats, schema: Schema) -> float:
        """What all its rows come to, as a share of the most that they can; rounded up."""
        if self.record.whose is None:
            return min(float(of_rows[0]), 1.0)
        whole = UNITS * schema.rows_per_person
        return min(float(self.record.whose.factors @ of_rows) / whole * (1 + 1e-12), 1.0)


def targets_of(release: Release, table: Records) -> Iterator[Target]:
    """The records of a table that matter, and planted ones."""
    canary, nothing, person = extreme_record(release.schema), empty_record(release.schema), release.schema.person
    if table.rows > 1:
        scores = release.score.of(table)
        whose = np.arange(table.rows) if table.whose is None else table.whose.places
        for name, i in (("most outlying", int(np.argmax(scores))), ("least outlying", int(np.argmin(scores)))):
            own = whose == whose[i]
            yield Target(name, table.take(~own), table.take(own))
    nobody = table.take(np.zeros(table.rows, dtype=np.bool_))
    if person is None:
        yield Target("canary", table, canary)
        yield Target("missing only", table, nothing)
        yield Target("canary alone", nobody, canary)
        return
    yield Target("canary", table, _planted(canary, table, person, person.rows))
    yield Target("canary of many rows", table, _planted(canary, table, person, 25 * person.rows))
    yield Target("missing only", table, _planted(nothing, table, person, person.rows))
    yield Target("canary alone", nobody, _planted(canary, table, person, 25 * person.rows))


def _planted(record: Records, table: Records, person: Person, rows: int) -> Records:
    """Somebody with so many rows, all the same."""
    assert table.whose is not None
    places = np.full(rows, table.whose.places.max(initial=-1) + 1)
    whose = Whose(places, factors_of(np.full(rows, rows), person.rows))
    return replace(record.take(np.zeros(rows, dtype=np.int64)), whose=whose)


def made_up_table(schema: Schema, rows: int = 1000) -> pa.Table:
    """Records drawn evenly from the whole domain: nobody's data."""
    generator = np.random.default_rng(0)
    codes = {
        c.name: generator.integers(0, (c.steps if isinstance(c, Numeric) else c.size - 1) + 1, rows)
        for c in schema.learned
    }
    if schema.person is None:
        return stored(schema, [Records(rows=rows, codes=codes)])
    places = np.sort(generator.integers(0, rows // 4, rows))
    several = factors_of(np.bincount(places)[places], schema.person.rows)
    return stored(schema, [Records(rows=rows, codes=codes, whose=Whose(places, several))])


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
    whose = joined.whose
    joined, _ = with_following(joined, schema)
    table = decode(joined, schema)
    if schema.person is None or whose is None:
        return table
    ids = pa.array(whose.places)
    return table.set_column(table.column_names.index(schema.person.column), schema.person.column, ids)
