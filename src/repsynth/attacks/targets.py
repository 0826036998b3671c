"""The table, its holdout, the targets of the attacks and how outlying each of them is.

A target is a record. Where several rows may be one person's, it is a person with all their rows, in a run together
or not at all, and as outlying as these rows are on average.

The records under attack.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth.arrays import Bools, Floats, Ints
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.fidelity import copied
from repsynth.evaluation.inputs import overlapping, read_named
from repsynth.evaluation.points import DECILES, OUTLYING_NEIGHBOURS, deciles_of, is_number, nearest
from repsynth.io.persons import shared_ids, some_rows
from repsynth.io.records import ALONE, MISSING, UNITS, Records, Whose, factors_of, join, no_records
from repsynth.io.sources import open_source
from repsynth.io.write import decode
from repsynth.release.release import Release
from repsynth.sampling.derived import with_following
from repsynth.schema import Numeric, Person, Schema

FEWEST = 20  # rows or persons
FEWEST_RUNS = 8

_TOP_TURNS = 3  # targets of the most outlying tenth for each one of another
_LANDMARKS, _CANDIDATES, _REFERENCE = 3000, 8000, 5000  # records that distances are worked out for, at most
_LOOKED = 20  # rows of a person, at most, that decide how outlying they are


@dataclass(frozen=True)
class Places:
    """Encoded records as points: standardised numbers and one-hot categories. Missing and special values are
    categories of a number."""

    schema: Schema
    centre: Mapping[str, float]
    scale: Mapping[str, float]

    @classmethod
    def of(cls, records: Records, schema: Schema) -> "Places":
        """The space in which the numbers of these records have mean 0 and variance 1."""
        codes = {column.name: records.codes[column.name] for column in schema.numeric}
        numbers = {c.name: codes[c.name][is_number(c, codes[c.name])] for c in schema.numeric}
        centre = {name: float(n.mean()) if len(n) else 0.0 for name, n in numbers.items()}
        spread = {name: float(n.std()) if len(n) else 0.0 for name, n in numbers.items()}
        return cls(schema, centre, {name: one if one > 1e-9 else 1.0 for name, one in spread.items()})

    def place(self, records: Records, columns: tuple[str, ...] | None = None) -> Floats:
        """The coordinates of each record, in all columns or in some."""
        parts = [np.zeros((records.rows, 1))]
        for column in self.schema.learned:
            if columns is not None and column.name not in columns:
                continue
            codes = records.codes[column.name]
            if isinstance(column, Numeric):
                plain = is_number(column, codes)
                z = (codes - self.centre[column.name]) / self.scale[column.name]
                cases = np.where(plain, 0, np.where(codes == MISSING, 1, codes - column.steps + 1))
                parts += [np.where(plain, z, 0.0)[:, None], np.eye(2 + len(column.special))[cases][:, 1:]]
            else:
                parts.append(np.eye(column.size + 1)[codes][:, : column.size])  # missing: the last one, cut off
        return np.hstack(parts)


@dataclass(frozen=True)
class Owners:
    """Which rows are whose: a target has one row or, where it is a person, several.

    >>> owners = Owners(np.array([0, 0, 1]), np.array([0.5, 0.5, 0.25]))
    >>> owners.means(np.array([1.0, 3.0, 5.0])).tolist(), owners.influence(np.array([0.2, 1.0, 1.0])).round(6)
    ([2.0, 5.0], array([0.6 , 0.25]))
    """

    target: Ints
    """Of each row."""
    shares: Floats
    """What each row counts, of the most that all rows of a target may count."""

    @property
    def count(self) -> int:
        return int(self.target.max()) + 1

    def means(self, of_rows: Floats) -> Floats:
        """Return for each target the mean over their rows."""
        return np.asarray(np.bincount(self.target, of_rows) / np.bincount(self.target))

    def influence(self, of_rows: Floats) -> Floats:
        """Return the influence of all rows of each target, as a share of the largest possible; rounded up."""
        return np.asarray(np.minimum(np.bincount(self.target, self.shares * of_rows) * (1 + 1e-9), 1.0))


@dataclass(frozen=True)
class Victims:
    """Who is attacked: targets take part in a run by a coin, all others of the table always do."""

    schema: Schema
    base: Records
    targets: Records
    """All rows of all targets."""
    owners: Owners
    """Whose of the targets each of these rows is."""
    deciles: Ints
    """Of each target's outlyingness, 0 to 9."""
    rows_of_targets: Ints
    """Which rows of the table they are or, of persons, how many came before each."""
    reference: Records
    """People who were not in the table; none where there is no holdout. Of persons, as many rows as count."""
    people: int
    """How many there are in the whole table: rows or persons."""
    places: Places
    digest: str
    notes: tuple[str, ...] = field(default=())


def choose_victims(table: Any, holdout: Any, schema: Schema, *, targets: int, seed: int) -> Victims:
    """Choose targets from all deciles of outlyingness, and note what is odd about the data."""
    if targets < 1:
        raise ConfigError("there must be one target at least; give --targets")
    if seed < 0:
        raise ConfigError("the seed must not be negative; give another --seed")
    unit, notes = "rows" if schema.person is None else "persons", []
    generator = np.random.default_rng(seed)
    records = _by_person(read_named(table, schema, "table"))
    who = _owners(records)
    people = int(who.max(initial=-1)) + 1
    if people < FEWEST:
        raise DataError(f"the table has fewer than {FEWEST} {unit}: too few to attack anybody in")
    if schema.person is not None:
        notes.append(
            "several rows may be one person's: persons are attacked, each with all their rows. Singling out, "
            "linking and inferring guess at single rows, and are left out"
        )
    reference = no_records()
    if holdout is None:
        notes.append(
            "no holdout: attacks that compare with people outside of the table are left out (density ratio, "
            f"measured cells, guesses); keep some {unit} apart and give --holdout"
        )
    else:
        reference = _others(table, records, holdout, schema, notes, generator)
    most = people // 2
    if targets > most:
        notes.append(f"{targets:,} targets are more than half of the {people:,} {unit}: {most:,} are attacked")
    places = Places.of(records, schema)
    deciles = _deciles(records, places, min(targets, most), generator)
    chosen = _stratified(deciles, min(targets, most), generator)
    own = np.flatnonzero(np.isin(who, chosen))
    own = own[np.argsort(who[own], kind="stable")]
    shares = np.ones(len(own))
    if records.whose is not None:
        shares = records.whose.factors[own] / (UNITS * schema.rows_per_person)
    return Victims(
        schema=schema,
        base=records.take(~np.isin(who, chosen)),
        targets=records.take(own),
        owners=Owners(np.searchsorted(chosen, who[own]), shares),
        deciles=deciles[chosen],
        rows_of_targets=chosen,
        reference=reference,
        people=people,
        places=places,
        digest=_digest_of(records, reference),
        notes=tuple(notes),
    )


def _owners(records: Records) -> Ints:
    """Whose each row is: a number for each person or, where rows are persons, for each row."""
    return np.arange(records.rows) if records.whose is None else records.whose.places


def _by_person(records: Records) -> Records:
    """Number persons in the order in which they come, and leave out rows that are nobody's. A row by itself that
    counts nothing has an id that was not read in full: nobody knows whose it is."""
    if records.whose is None:
        return records
    kept = records.take((records.whose.places < ALONE) | (records.whose.factors > 0))
    assert kept.whose is not None
    _, first, place = np.unique(kept.whose.places, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return replace(kept, whose=Whose(rank[place], kept.whose.factors))


def _deciles(records: Records, places: Places, targets: int, generator: np.random.Generator) -> Ints:
    """Return the decile of each person's outlyingness; −1 where it was not worked out, as in large tables.

    It is the mean distance of a person's rows, or of some of them, to the nearest of some landmarks: rows of
    others, one of each. There are two sets of landmarks, so that nobody is compared with themselves.
    """
    who = _owners(records)
    people = int(who.max()) + 1
    order = generator.permutation(people)
    looked, one = some_rows(who, _LOOKED, generator), some_rows(who, 1, generator)
    rows = np.bincount(who[looked], minlength=people)
    count = min(people // 2, _LANDMARKS)
    halves = order[:count], order[count : 2 * count]
    room = max(_CANDIDATES, 2 * targets * int(rows.max()))
    candidates = np.sort(order[np.cumsum(rows[order]) <= room])
    asked = np.flatnonzero(looked & np.isin(who, candidates))
    in_first, apart = np.isin(who[asked], halves[0]), np.zeros(len(asked))
    for side, half in ((~in_first, halves[0]), (in_first, halves[1])):
        if side.any():
            landmarks = places.place(records.take(np.isin(who, half) & one))
            queries = places.place(records.take(asked[side]))
            apart[side] = nearest(queries, landmarks, OUTLYING_NEIGHBOURS).mean(axis=1)
    deciles = np.full(people, -1, dtype=np.int64)
    mean = np.bincount(who[asked], apart, minlength=people)[candidates] / rows[candidates]
    deciles[candidates] = deciles_of(mean)
    return deciles


def _stratified(deciles: Ints, count: int, generator: np.random.Generator) -> Ints:
    """Choose people: a quarter from the most outlying tenth, the others evenly from all deciles."""
    turns = []
    for decile in range(DECILES):
        people = generator.permutation(np.flatnonzero(deciles == decile))
        pace = 1 if decile < DECILES - 1 else _TOP_TURNS
        turns += [(k // pace, -decile, k, one) for k, one in enumerate(people)]
    return np.sort(np.array([one for *_, one in sorted(turns)[:count]], dtype=np.int64))


def _others(
    table: Any, records: Records, holdout: Any, schema: Schema, notes: list[str], generator: np.random.Generator
) -> Records:
    """Return the people of the holdout who are not in the table. Of a person, as many rows as count, at random:
    so they are like the rows that a synthetic table imitates."""
    given, known = read_named(holdout, schema, "holdout"), np.zeros(0, dtype=bool)
    if schema.person is not None:
        known = shared_ids(open_source(table), open_source(holdout), schema.person.column)
        said = "{} persons of the holdout are also in the table, by their ids"
    elif given.rows:
        known = copied(given, records) & (overlapping(records, given) > 0)
        said = "{} of " + f"{given.rows:,} rows of the holdout are also in the table, more than chance would have"
    if known.any():
        count = len(np.unique(_owners(given)[known]))
        notes.append(f"{said.format(f'{count:,}')}: they are left out; a holdout must hold other people")
    others = _by_person(given.take(~known)) if given.rows else given
    if not others.rows:
        notes.append("nobody of the holdout is left: attacks that compare with people from outside are left out")
        return no_records()
    if schema.person is not None:
        others = others.take(some_rows(_owners(others), schema.person.rows, generator))
    return replace(others.take(np.arange(min(others.rows, _REFERENCE))), whose=None)


def _digest_of(*parts: Records) -> str:
    """A hash of encoded records and of whose they are."""
    found = hashlib.sha256()
    for records in parts:
        for name, codes in sorted(records.codes.items()):
            found.update(name.encode() + np.ascontiguousarray(codes).tobytes())
        if records.whose is not None:
            found.update(records.whose.places.tobytes() + records.whose.factors.tobytes())
    return found.hexdigest()


def coins(seed: int, run: int, targets: int) -> Bools:
    """Who takes part in a run, by a coin for each target; the same at every start. The next run after an even one
    has those who did not take part, so that every target is in half of the runs: else a target that is far from
    everybody, and happens to be in more often, would look like a finding."""
    heads = np.random.default_rng([seed, run // 2]).random(targets) < 0.5
    return heads if run % 2 == 0 else ~heads


def half_of(runs: Ints) -> Bools:
    """Which half of the runs each belongs to; a run and its counterpart are in the same one.

    >>> half_of(np.arange(6)).tolist()
    [False, False, True, True, False, False]
    """
    return np.asarray(runs // 2 % 2 == 1)


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
    """A person with a number of equal rows."""
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
