"""Singling out, linking and inferring, as Anonymeter defines them (Giomi et al. 2023): guesses about people of the
table, and the same guesses about people who were not in it, which show what can be learnt about everybody.

    singling out  a statement in three columns that fits exactly one synthetic record fits exactly one person
    linking       the columns are in two hands: the nearest synthetic records of a person in both are the same one
    inferring     all columns but one are known: the nearest synthetic record tells that one

A number counts as right within 5 % of its magnitude, zero only as zero.
"""

import numpy as np

from repsynth.arrays import Bools, Ints
from repsynth.attacks.targets import Places, Victims
from repsynth.evaluation.points import is_number, nearest_rows
from repsynth.io.records import Records, join
from repsynth.io.values import values_at
from repsynth.schema import Datetime, Discrete, Numeric

KINDS = ("singling out", "linking", "inferring")
GUESSING_RUNS = 4
"""Guesses are made in the first runs of each method."""

_PEOPLE = 400  # of each side, in a run
_CROWD = 2000  # of each side, among whom somebody is singled out
_STATEMENTS, _ATTEMPTS, _COLUMNS = 400, 4000, 3
_NEIGHBOURS = 5
_TOLERANCE = 0.05


def make_guesses(
    synthetic: Records, victims: Victims, present: Bools, generator: np.random.Generator
) -> Ints | None:
    """Return counts: (kinds, members and others, right guesses and all guesses). None without people from outside,
    and where several rows may be one person's: guesses about them would not be independent trials."""
    if victims.schema.person is not None or not victims.reference.rows or len(victims.schema.learned) < 2:
        return None
    names = [column.name for column in victims.schema.learned]
    members, others = join([victims.base, victims.targets.take(present)], names), victims.reference
    crowd = min(_CROWD, members.rows, others.rows)
    statements = _statements(synthetic, victims, generator)
    left, right = (tuple(map(str, half)) for half in np.array_split(generator.permutation(names), 2))
    counts = np.zeros((len(KINDS), 2, 2), dtype=np.int64)
    for side, everybody in enumerate((members, others)):
        some = everybody.take(generator.permutation(everybody.rows)[:crowd])
        people = everybody.take(generator.permutation(everybody.rows)[:_PEOPLE])
        counts[0, side] = sum(_fits(s, some).sum() == 1 for s in statements), len(statements)
        counts[1, side] = _linked(people, synthetic, victims.places, left, right).sum(), people.rows
        counts[2, side] = _inferred(people, synthetic, victims).sum(), people.rows
    return counts


Statement = list[tuple[str, int, int]]
"""Columns, and the least and the largest code that fit."""


def _statements(synthetic: Records, victims: Victims, generator: np.random.Generator) -> list[Statement]:
    """Read statements off synthetic records: the same category, a number at least as far from the middle. Keep
    those that fit no other synthetic record; there may be fewer than wanted, or none."""
    columns, middle = victims.schema.learned, {}
    for numeric in victims.schema.numeric:
        codes = synthetic.codes[numeric.name]
        numbers = codes[is_number(numeric, codes)]
        middle[numeric.name] = np.median(numbers) if len(numbers) else 0.0
    made: list[Statement] = []
    for row in generator.integers(0, synthetic.rows, _ATTEMPTS):
        statement = []
        for k in generator.choice(len(columns), min(_COLUMNS, len(columns)), replace=False):
            column, code = columns[k], int(synthetic.codes[columns[k].name][row])
            low = high = code
            if isinstance(column, Numeric) and 0 <= code <= column.steps:
                low, high = (code, column.steps) if code > middle[column.name] else (0, code)
            statement.append((column.name, low, high))
        if _fits(statement, synthetic).sum() == 1:
            made.append(statement)
        if len(made) == _STATEMENTS:
            break
    return made


def _fits(statement: Statement, records: Records) -> Bools:
    fits = np.ones(records.rows, dtype=bool)
    for name, low, high in statement:
        fits &= (records.codes[name] >= low) & (records.codes[name] <= high)
    return fits


def _linked(
    people: Records, synthetic: Records, places: Places, left: tuple[str, ...], right: tuple[str, ...]
) -> Bools:
    found = [
        nearest_rows(places.place(people, side), places.place(synthetic, side), _NEIGHBOURS)
        for side in (left, right)
    ]
    return np.array([bool(set(a) & set(b)) for a, b in zip(*found, strict=True)], dtype=bool)


def _inferred(people: Records, synthetic: Records, victims: Victims) -> Bools:
    """Each person's secret is another column, in turn."""
    columns, place = victims.schema.learned, victims.places.place
    right = np.zeros(people.rows, dtype=bool)
    for k, secret in enumerate(columns[: people.rows]):
        turn = np.arange(k, people.rows, len(columns))
        others = tuple(column.name for column in columns if column.name != secret.name)
        some = people.take(turn)
        row = nearest_rows(place(some, others), place(synthetic, others), 1)[:, 0]
        right[turn] = same(some.codes[secret.name], synthetic.codes[secret.name][row], secret)
    return right


def same(true: Ints, guess: Ints, column: Discrete | Numeric) -> Bools:
    """Tell whether a guess is right: the same category, or a number within 5 % of the true one's magnitude; times
    must be within 5 % of the whole span."""
    equal: Bools = np.asarray(true == guess)
    if not isinstance(column, Numeric):
        return equal
    numbers = is_number(column, true) & is_number(column, guess)
    if isinstance(column, Datetime):
        return np.asarray(equal | (numbers & (np.abs(true - guess) <= _TOLERANCE * column.steps)))
    at = [values_at(np.clip(codes, 0, column.steps), column).astype(np.float64) for codes in (true, guess)]
    return np.asarray(equal | (numbers & (np.abs(at[0] - at[1]) <= _TOLERANCE * np.abs(at[0]))))
