"""The table, its holdout, the records under attack and how much each of them stands out."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.records import MISSING, Records, join, no_records
from repsynth.data.sources import check_columns, open_source
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.nearest import (
    DECILES,
    NEIGHBOURS,
    OUTLYING_NEIGHBOURS,
    deciles_of,
    nearest,
    outlyingness,
)
from repsynth.schema import Numeric, Schema

FEWEST_ROWS = 20
FEWEST_RUNS = 8

_TOP_TURNS = 3  # targets of the most outlying tenth for each one of another
LANDMARKS, CANDIDATES, REFERENCE = 3000, 8000, 5000  # records that distances are worked out for, at most


@dataclass(frozen=True)
class Places:
    """Encoded records as points: standardised numbers, one-hot categories; missing and special values are cases of
    their own. Standardised by records that are in every run, so that it tells no member."""

    schema: Schema
    centre: Mapping[str, float]
    scale: Mapping[str, float]

    @classmethod
    def of(cls, records: Records, schema: Schema) -> "Places":
        """The space in which the numbers of these records have mean 0 and variance 1."""
        centre, scale = {}, {}
        for column in schema.numeric:
            codes = records.codes[column.name]
            numbers = codes[(codes != MISSING) & (codes <= column.steps)]
            centre[column.name] = float(numbers.mean()) if len(numbers) else 0.0
            spread = float(numbers.std()) if len(numbers) else 0.0
            scale[column.name] = spread if spread > 1e-9 else 1.0
        return cls(schema, centre, scale)

    def place(self, records: Records, columns: tuple[str, ...] | None = None) -> Floats:
        """The coordinates of each record, in all columns or in some."""
        parts = [np.zeros((records.rows, 1))]
        for column in self.schema.learned:
            if columns is not None and column.name not in columns:
                continue
            codes = records.codes[column.name]
            if isinstance(column, Numeric):
                plain = (codes != MISSING) & (codes <= column.steps)
                z = (codes - self.centre[column.name]) / self.scale[column.name]
                cases = np.where(plain, 0, np.where(codes == MISSING, 1, codes - column.steps + 1))
                parts += [np.where(plain, z, 0.0)[:, None], np.eye(2 + len(column.special))[cases][:, 1:]]
            else:
                parts.append(np.eye(column.size + 1)[codes][:, : column.size])  # missing: the last one, cut off
        return np.hstack(parts)


@dataclass(frozen=True)
class Owners:
    """Which rows are whose: each one a target's own or, of persons, several.

    >>> owners = Owners(np.array([0, 0, 1]), count=2, shares=np.array([0.5, 0.5, 0.25]))
    >>> owners.means(np.array([1.0, 3.0, 5.0])).tolist(), owners.rows_of(np.array([True, False])).tolist()
    ([2.0, 5.0], [True, True, False])
    """

    target: Ints
    """Of each row."""
    count: int
    shares: Floats | None = None
    """What each row counts, of the most that all rows of a person may count; None where each is a target."""

    @classmethod
    def alone(cls, count: int) -> "Owners":
        """Each row a target."""
        return cls(np.arange(count), count)

    def rows_of(self, chosen: Bools) -> Bools:
        found: Bools = chosen[self.target]
        return found

    def means(self, of_rows: Floats) -> Floats:
        """For each target the mean over their rows, which all count the same."""
        if self.shares is None:
            return of_rows
        return np.asarray(np.bincount(self.target, of_rows) / np.bincount(self.target))

    def influence(self, of_rows: Floats) -> Floats:
        """What all rows of each target come to, as a share of the most that they can; rounded up.

        >>> Owners(np.array([0, 0]), count=1, shares=np.array([0.5, 0.5])).influence(np.array([0.2, 1.0])).round(6)
        array([0.6])
        """
        if self.shares is None:
            return of_rows
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
    reference_deciles: Ints
    base_deciles: Ints
    """−1 where it was not worked out; of persons, it is not."""
    people: int
    """How many there are in the whole table: rows or persons."""
    places: Places
    digest: str
    notes: tuple[str, ...] = field(default=())


def choose_victims(table: Any, holdout: Any, schema: Schema, *, targets: int, seed: int) -> Victims:
    """Targets from all deciles of outlyingness; what is odd about the data is noted."""
    check_asked(targets, seed)
    notes: list[str] = []
    records, reference = read_named(table, schema, "table"), no_records()
    if records.rows < FEWEST_ROWS:
        raise DataError(f"the table has fewer than {FEWEST_ROWS} rows: too few to attack anybody in")
    if holdout is None:
        notes.append(
            "no holdout: attacks that compare with people outside of the table are left out (density ratio, "
            "measured cells, singling out, linking, inferring); keep some rows apart and give --holdout"
        )
    else:
        reference = _disjoint(records, read_named(holdout, schema, "holdout"), notes)
    most = records.rows // 2
    if targets > most:
        notes.append(f"{targets:,} targets are more than half of the {records.rows:,} rows: {most:,} are attacked")
    note_columns(records, schema, notes)
    generator = np.random.default_rng(seed)
    candidates, apart, base_deciles, reference_deciles, places = _standing(records, reference, schema, generator)
    chosen = stratified(candidates, apart, min(targets, most), generator)
    others = np.ones(records.rows, dtype=bool)
    others[chosen] = False
    return Victims(
        schema=schema,
        base=records.take(others),
        targets=records.take(chosen),
        owners=Owners.alone(len(chosen)),
        deciles=base_deciles[chosen],
        rows_of_targets=chosen,
        reference=reference,
        reference_deciles=reference_deciles,
        base_deciles=base_deciles[others],
        people=records.rows,
        places=places,
        digest=digest_of(records, reference),
        notes=tuple(notes),
    )


def check_asked(targets: int, seed: int) -> None:
    if targets < 1:
        raise ConfigError("there must be one target at least; give --targets")
    if seed < 0:
        raise ConfigError("the seed must not be negative; give another --seed")


def read(table: Any, schema: Schema) -> Records:
    """A table, encoded."""
    source = open_source(table)
    check_columns(source, schema)
    names = [column.name for column in schema.learned]
    return join(list(LocalEngine.open(source, schema).per_record()), names)


def read_named(table: Any, schema: Schema, name: str) -> Records:
    """The same; what is wrong with it is said of the table of this name."""
    try:
        return read(table, schema)
    except DataError as error:
        raise DataError(f"the {name}: {error}") from None


def _standing(
    records: Records, reference: Records, schema: Schema, generator: np.random.Generator
) -> tuple[Ints, Floats, Ints, Ints, Places]:
    """Who may be a target, how much they stand out, the deciles of everybody's outlyingness, and the space. Of
    large tables, some are looked at, and compared with some others."""
    places = Places.of(records, schema)
    order = generator.permutation(records.rows)
    deciles = np.full(records.rows, -1, dtype=np.int64)
    neighbours = OUTLYING_NEIGHBOURS if records.rows <= LANDMARKS else NEIGHBOURS
    if records.rows <= LANDMARKS:
        candidates, landmarks = np.sort(order), order
        apart = outlyingness(places.place(records.take(candidates)))
    else:
        landmarks, candidates = order[:LANDMARKS], np.sort(order[LANDMARKS : LANDMARKS + CANDIDATES])
        apart = nearest(places.place(records.take(candidates)), places.place(records.take(landmarks))).mean(axis=1)
    deciles[candidates] = deciles_of(apart)
    found = np.zeros(0, dtype=np.int64)
    if reference.rows:
        # The same measure for both sides: nobody is among their own neighbours.
        edges = np.quantile(apart, np.arange(1, DECILES) / DECILES)
        near = nearest(places.place(reference), places.place(records.take(landmarks)), neighbours)
        found = np.searchsorted(edges, near.mean(axis=1))
    return candidates, apart, deciles, found, places


def stratified(candidates: Ints, apart: Floats, count: int, generator: np.random.Generator) -> Ints:
    """So many candidates: a quarter from the most outlying tenth, the others from all deciles alike."""
    deciles = deciles_of(apart)
    turns = []
    for decile in range(DECILES):
        rows = generator.permutation(candidates[deciles == decile])
        pace = 1 if decile < DECILES - 1 else _TOP_TURNS
        turns += [(k // pace, -decile, k, row) for k, row in enumerate(rows)]
    return np.sort(np.array([row for *_, row in sorted(turns)[:count]], dtype=np.int64))


def _disjoint(records: Records, holdout: Records, notes: list[str]) -> Records:
    """The holdout, without rows that are in the table, too, where these are more than chance would have."""
    if not holdout.rows:
        notes.append("the holdout has no rows: attacks that compare with people outside of the table are left out")
        return no_records()
    ours, theirs = _keys(records), _keys(holdout)
    _, place, counts = np.unique(ours, return_inverse=True, return_counts=True)
    again = float(np.mean(counts[place] > 1))  # of the table's rows, how many have a twin in it
    shared = np.isin(theirs, ours)
    chance = again + 4 * np.sqrt(max(again * (1 - again), 1 / len(theirs)) / len(theirs))
    if shared.mean() > chance:
        notes.append(
            f"{int(shared.sum()):,} of {len(theirs):,} rows of the holdout are also in the table, more than "
            "chance would have: they are left out; a holdout must hold other people"
        )
        holdout = holdout.take(~shared)
        if not holdout.rows:
            notes.append(
                "no row of the holdout is left: attacks that compare with people from outside are left out"
            )
    elif shared.any():
        notes.append(
            f"{int(shared.sum()):,} of {len(theirs):,} rows of the holdout look like one of the table, which "
            "chance explains: so many rows of the table have twins in it, too"
        )
    return holdout.take(np.arange(min(holdout.rows, REFERENCE)))


def note_columns(records: Records, schema: Schema, notes: list[str]) -> None:
    notes += [
        f"every cell of column '{column.name}' is missing or cannot be read: it tells nothing"
        for column in schema.learned
        if np.all(records.codes[column.name] == MISSING)
    ]
    label = schema.label
    if label is not None and len(np.unique(records.codes[label])) < 2:
        notes.append(f"all rows have the same '{label}': the label tells nobody apart")


def _keys(records: Records) -> Any:
    """One value for each record, the same for the same cells."""
    stacked = np.ascontiguousarray(np.stack(list(records.codes.values()), axis=1))
    return stacked.view([("", stacked.dtype)] * stacked.shape[1]).ravel()


def digest_of(*parts: Records) -> str:
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
