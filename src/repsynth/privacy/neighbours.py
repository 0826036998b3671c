"""Who is protected: what a neighbouring table is."""

from repsynth.schema import Person

UNIT = "one record"
NEIGHBOURS = "one record replaced by the null record, which contributes nothing: adding or removing one person"


COLLISION = 2.0**40 * 2.0**-128
"""The chance, at most, that a person has the same fingerprint as somebody else in a table of 2⁴⁰ rows or fewer."""

LEAST_DELTA = 1e-20
"""The smallest δ beside which that chance is nothing."""


def unit_of(person: Person | None) -> str:
    """Who is protected.

    >>> unit_of(None), unit_of(Person(column="patient", rows=3))
    ('one record', "one person (all rows with one id in 'patient')")
    """
    return UNIT if person is None else f"one person (all rows with one id in '{person.column}')"


def neighbours_of(person: Person | None) -> str:
    """What a neighbouring table is.

    >>> neighbours_of(Person(column="patient", rows=3))
    "all rows of one person, those with one id in 'patient', replaced by null records, which contribute nothing"
    """
    if person is None:
        return NEIGHBOURS
    return (
        f"all rows of one person, those with one id in '{person.column}', replaced by null records, which "
        "contribute nothing"
    )


def of_persons(person: Person) -> str:
    """What a promise about records means where several may be one person's.

    >>> print(of_persons(Person(column="patient", rows=3)))  # doctest: +ELLIPSIS
    all rows with one id in 'patient' are one person, who counts as 3 rows at most; ...
    """
    rows = "one row" if person.rows == 1 else f"{person.rows:,} rows"
    return (
        f"all rows with one id in '{person.column}' are one person, who counts as {rows} at most; a row without "
        "an id is a person of its own. What is said of a record holds for a person all of whose rows are like it: "
        "a person's weight is what their rows that count weigh together, over that number"
    )
