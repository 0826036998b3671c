"""Singling out, linking and inferring, as Anonymeter asks for them: guesses about people of the table, against the
same guesses about people who were not in it. What is guessed right about the latter was learnt about everybody.

    singling out  a statement in three columns that fits exactly one synthetic record fits exactly one person
    linking       the columns are in two hands: the nearest synthetic records of a person in both are the same one
    inferring     all columns but one are known: the nearest synthetic record tells that one, numbers to 5 %

A number counts as right within 5 % of its magnitude, zero only as zero.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.victims import Places, Victims
from repsynth.data.positions import values_at
from repsynth.data.records import MISSING, Records, join
from repsynth.evaluation.nearest import DECILES
from repsynth.schema import Datetime, Discrete, Numeric

KINDS = ("singling out", "linking", "inferring")
GUESSING_RUNS = 4
"""In so many runs of each method guesses are made."""

_PEOPLE = 400  # of each side, in a run
_CROWD = 2000  # of each side, among whom somebody is singled out
_STATEMENTS, _ATTEMPTS, _COLUMNS = 400, 4000, 3
_NEIGHBOURS = 5
_TOLERANCE = 0.05
_BLOCK = 100


@dataclass(frozen=True)
class People:
    """Some people and the deciles of their outlyingness."""

    records: Records
    deciles: Ints

    def some(self, count: int, generator: np.random.Generator) -> "People":
        """At most so many, at random."""
        chosen = generator.permutation(self.records.rows)[:count]
        return People(self.records.take(chosen), self.deciles[chosen])


def make_guesses(
    synthetic: Records, victims: Victims, present: Bools, generator: np.random.Generator
) -> Ints | None:
    """(kinds, members and others, deciles, right guesses and all guesses); None without people from outside, and
    where rows are not persons: guesses about rows of the same person would not be so many trials.

    A statement is a guess about whoever it singles out; one that singles out nobody counts in every decile.
    """
    if victims.schema.person is not None or not victims.reference.rows or len(victims.schema.learned) < 2:
        return None
    known = np.flatnonzero(victims.base_deciles >= 0)
    names = [column.name for column in victims.schema.learned]
    members = People(
        join([victims.base.take(known), victims.targets.take(present)], names),
        np.concatenate([victims.base_deciles[known], victims.deciles[present]]),
    )
    others = People(victims.reference, victims.reference_deciles)
    counts = np.zeros((len(KINDS), 2, DECILES, 2), dtype=np.int64)
    crowd = min(_CROWD, members.records.rows, others.records.rows)
    statements = _statements(synthetic, victims, generator)
    halves = np.array_split(generator.permutation(names), 2)
    left, right = (tuple(str(name) for name in half) for half in halves)
    for side, everybody in enumerate((members, others)):
        counts[0, side] = _single_out(statements, everybody.some(crowd, generator))
        people = everybody.some(_PEOPLE, generator)
        linked = _linked(people.records, synthetic, victims.places, left, right)
        counts[1, side] = _by_decile(linked, people.deciles)
        counts[2, side] = _by_decile(_inferred(people.records, synthetic, victims), people.deciles)
    return counts


Statement = list[tuple[str, int, int]]
"""Columns, and the least and the largest code that fit."""


def _statements(synthetic: Records, victims: Victims, generator: np.random.Generator) -> list[Statement]:
    """Read off synthetic records: the same category, a number at least as far from the middle. Kept are those that
    fit no other synthetic record; there may be fewer than wanted, or none."""
    columns = victims.schema.learned
    middle = {c.name: _middle(synthetic.codes[c.name], c.steps) for c in columns if isinstance(c, Numeric)}
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


def _middle(codes: Ints, steps: int) -> float:
    numbers = codes[(codes != MISSING) & (codes <= steps)]
    return float(np.median(numbers)) if len(numbers) else 0.0


def _fits(statement: Statement, records: Records) -> Bools:
    fits = np.ones(records.rows, dtype=bool)
    for name, low, high in statement:
        fits &= (records.codes[name] >= low) & (records.codes[name] <= high)
    return fits


def _single_out(statements: list[Statement], crowd: People) -> Ints:
    counts = np.zeros((DECILES, 2), dtype=np.int64)
    counts[:, 1] = len(statements)
    for statement in statements:
        fits = _fits(statement, crowd.records)
        if fits.sum() == 1:
            counts[crowd.deciles[int(np.argmax(fits))], 0] += 1
    return counts


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
    columns = victims.schema.learned
    right = np.zeros(people.rows, dtype=bool)
    for k, secret in enumerate(columns):
        turn = np.arange(k, people.rows, len(columns))
        if not len(turn):
            continue
        others = tuple(column.name for column in columns if column.name != secret.name)
        some = people.take(turn)
        row = nearest_rows(victims.places.place(some, others), victims.places.place(synthetic, others), 1)[:, 0]
        right[turn] = same(some.codes[secret.name], synthetic.codes[secret.name][row], secret)
    return right


def same(true: Ints, guess: Ints, column: Discrete | Numeric) -> Bools:
    """Whether a guess is right: the same category, or a number within 5 % of the true one's magnitude; times
    must be within 5 % of the whole span."""
    equal: Bools = np.asarray(true == guess)
    if not isinstance(column, Numeric):
        return equal
    numbers = (true >= 0) & (guess >= 0) & (true <= column.steps) & (guess <= column.steps)
    if isinstance(column, Datetime):
        return np.asarray(equal | (numbers & (np.abs(true - guess) <= _TOLERANCE * column.steps)))
    at = [values_at(np.clip(codes, 0, column.steps), column).astype(np.float64) for codes in (true, guess)]
    return np.asarray(equal | (numbers & (np.abs(at[0] - at[1]) <= _TOLERANCE * np.abs(at[0]))))


def nearest_rows(queries: Floats, others: Floats, count: int) -> Ints:
    """Of each query: which of the others are nearest, in no order.

    >>> nearest_rows(np.array([[0.0]]), np.array([[3.0], [1.0]]), 1).tolist()
    [[1]]
    """
    norms = (others**2).sum(axis=1)
    count = min(count, len(others))
    found = []
    for start in range(0, len(queries), _BLOCK):
        apart = norms - 2 * queries[start : start + _BLOCK] @ others.T
        found.append(np.argpartition(apart, count - 1, axis=1)[:, :count])
    return np.concatenate(found) if found else np.zeros((0, count), dtype=np.int64)


def _by_decile(right: Bools, deciles: Ints) -> Ints:
    hits = np.bincount(deciles, right, minlength=DECILES)
    return np.stack([hits, np.bincount(deciles, minlength=DECILES)], axis=1).astype(np.int64)
