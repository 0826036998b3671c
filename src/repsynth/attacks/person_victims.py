"""Persons under attack, where several rows may be one person's: a target is somebody with all their rows, in a run
together or not at all, and stands out as much as these do on average."""

from dataclasses import replace
from typing import Any

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.attacks.victims import (
    CANDIDATES,
    FEWEST_ROWS,
    LANDMARKS,
    REFERENCE,
    Owners,
    Places,
    Victims,
    check_asked,
    digest_of,
    note_columns,
    read_named,
    stratified,
)
from repsynth.data.persons import shared_ids, some_rows
from repsynth.data.records import ALONE, UNITS, Records, Whose, no_records
from repsynth.data.sources import open_source
from repsynth.errors import DataError
from repsynth.evaluation.nearest import OUTLYING_NEIGHBOURS, deciles_of, nearest
from repsynth.schema import Person, Schema

_LOOKED = 20  # rows of a person, at most, by which it is told how much they stand out


def choose_persons(table: Any, holdout: Any, schema: Schema, *, targets: int, seed: int) -> Victims:
    """Targets from all deciles of how much the rows of a person stand out on average."""
    check_asked(targets, seed)
    person = schema.person
    assert person is not None
    notes = [
        "several rows may be one person's: persons are attacked, each with all their rows. Singling out, linking "
        "and inferring guess at single rows, and are left out"
    ]
    records = _by_person(read_named(table, schema, "table"))
    who = _whose(records).places
    people = int(who.max(initial=-1)) + 1
    if people < FEWEST_ROWS:
        raise DataError(f"the table has fewer than {FEWEST_ROWS} persons: too few to attack anybody in")
    generator = np.random.default_rng(seed)
    reference = no_records()
    if holdout is None:
        notes.append(
            "no holdout: attacks that compare with people outside of the table are left out (density ratio, "
            "measured cells); keep some persons apart and give --holdout"
        )
    else:
        reference = _other_persons(table, holdout, schema, person, notes, generator)
    most = people // 2
    if targets > most:
        notes.append(f"{targets:,} targets are more than half of the {people:,} persons: {most:,} are attacked")
    note_columns(records, schema, notes)
    places = Places.of(records, schema)
    candidates, apart = _standing_persons(places, records, min(targets, most), generator)
    chosen = stratified(candidates, apart, min(targets, most), generator)
    own = np.flatnonzero(np.isin(who, chosen))
    own = own[np.argsort(who[own], kind="stable")]
    deciles = np.zeros(people, dtype=np.int64)
    deciles[candidates] = deciles_of(apart)
    shares = _whose(records).factors[own] / (UNITS * person.rows)
    base = records.take(~np.isin(who, chosen))
    return Victims(
        schema=schema,
        base=base,
        targets=records.take(own),
        owners=Owners(np.searchsorted(chosen, who[own]), len(chosen), shares),
        deciles=deciles[chosen],
        rows_of_targets=chosen,
        reference=reference,
        reference_deciles=np.zeros(0, dtype=np.int64),
        base_deciles=np.full(base.rows, -1),
        people=people,
        places=places,
        digest=digest_of(records, reference),
        notes=tuple(notes),
    )


def _by_person(records: Records) -> Records:
    """The rows that are somebody's, and persons by number in the order in which they come. A row by itself that
    counts nothing has an id that was not read in full: nobody knows whose it is."""
    whose = _whose(records)
    kept = records.take((whose.places < ALONE) | (whose.factors > 0))
    _, first, place = np.unique(_whose(kept).places, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return replace(kept, whose=Whose(rank[place], _whose(kept).factors))


def _whose(records: Records) -> Whose:
    none = np.zeros(0, dtype=np.int64)
    return records.whose or Whose(none, none)  # a table without rows does not say


def _other_persons(
    table: Any, holdout: Any, schema: Schema, person: Person, notes: list[str], generator: np.random.Generator
) -> Records:
    """Persons of the holdout who are not in the table. Of each as many rows as count, at random: so they are like
    the rows that a synthetic table imitates."""
    given = read_named(holdout, schema, "holdout")
    known = shared_ids(open_source(table), open_source(holdout), person.column)
    if known.any():
        count = len(np.unique(_whose(given).places[known]))
        notes.append(
            f"{count:,} persons of the holdout are also in the table, by their ids: they are left out; a holdout "
            "must hold other people"
        )
    others = _by_person(given.take(~known))
    if not others.rows:
        notes.append(
            "no person of the holdout is left: attacks that compare with people from outside are left out"
        )
        return no_records()
    some = others.take(some_rows(_whose(others).places, person.rows, generator))
    return replace(some.take(np.arange(min(some.rows, REFERENCE))), whose=None)


def _standing_persons(
    places: Places, records: Records, targets: int, generator: np.random.Generator
) -> tuple[Ints, Floats]:
    """Who may be a target, and how much their rows stand out on average: the mean distance to the nearest of some
    rows of others, one of each. There are two sets of these, so that nobody is compared with themselves. Of
    persons with many rows, some are looked at."""
    who = _whose(records).places
    people = int(who.max()) + 1
    order = generator.permutation(people)
    looked, one = some_rows(who, _LOOKED, generator), some_rows(who, 1, generator)
    rows = np.bincount(who[looked], minlength=people)
    count = min(people // 2, LANDMARKS)
    first, second = (np.isin(who, some) & one for some in (order[:count], order[count : 2 * count]))
    room = max(CANDIDATES, 2 * targets * _LOOKED)
    candidates = np.sort(order[np.cumsum(rows[order]) <= room])
    asked = np.flatnonzero(looked & np.isin(who, candidates))
    in_first = np.isin(who[asked], order[:count])
    apart = np.zeros(len(asked))
    for side, landmarks in ((in_first, second), (~in_first, first)):
        queries = places.place(records.take(asked[side]))
        if len(queries):
            near = nearest(queries, places.place(records.take(landmarks)), OUTLYING_NEIGHBOURS)
            apart[side] = near.mean(axis=1)
    total = np.bincount(who[asked], apart, minlength=people)
    return candidates, total[candidates] / rows[candidates]
