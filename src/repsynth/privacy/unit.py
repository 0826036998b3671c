"""The unit of privacy in words: who is protected, the neighbouring tables, and the meaning of a synthetic row.

The schema declares the unit (`check_unit`): `[person]`, or one row per person.
"""

from repsynth.schema import Person, Schema

COLLISION = 2.0**40 * 2.0**-128
"""The largest probability that a person shares a fingerprint with another one, in up to 2⁴⁰ rows."""

LEAST_DELTA = 1e-20
"""The smallest δ for which `COLLISION` is negligible."""


def unit_of(schema: Schema) -> str:
    """Return who is protected.

    >>> unit_of(Schema(columns=(), person=Person(column="patient", rows=3)))
    'one person with all their rows'
    >>> unit_of(Schema(columns=(), one_row_per_person=True))
    'one person, who has one row'
    """
    return "one person with all their rows" if schema.person else "one person, who has one row"


def neighbours_of(schema: Schema) -> str:
    """Return what a neighbouring table is.

    >>> neighbours_of(Schema(columns=(), person=Person(column="patient", rows=3)))
    "all rows of one person, those with one id in 'patient', replaced by null records, which contribute nothing"
    >>> neighbours_of(Schema(columns=(), one_row_per_person=True))
    'one row replaced by the null record, which contributes nothing: adding or removing one person'
    """
    if schema.person is not None:
        return (
            f"all rows of one person, those with one id in '{schema.person.column}', replaced by null records, "
            "which contribute nothing"
        )
    return "one row replaced by the null record, which contributes nothing: adding or removing one person"


def of_persons(person: Person) -> str:
    """Return what a guarantee for records means if one person can have several rows.

    >>> print(of_persons(Person(column="patient", rows=3)))  # doctest: +ELLIPSIS
    all rows with one id in 'patient' are one person, who counts as 3 rows at most; ...
    """
    rows = "one row" if person.rows == 1 else f"{person.rows:,} rows"
    return (
        f"all rows with one id in '{person.column}' are one person, who counts as {rows} at most; a row without "
        "an id is a separate person. A bound for a record holds for a person all of whose rows are like it: "
        "a person's weight is at most the average weight of their rows"
    )


def row_meaning(schema: Schema) -> str:
    """Return what a row of the synthetic table represents.

    >>> row_meaning(Schema(columns=(), one_row_per_person=True))
    'one person'
    >>> row_meaning(Schema(columns=(), person=Person(column="patient")))
    'one random row of a random person, so each person counts once, however many rows they have'
    """
    if schema.person is None:
        return "one person"
    if schema.person.rows == 1:
        return "one random row of a random person, so each person counts once, however many rows they have"
    return f"a random row, where each person counts as {schema.person.rows:,} rows at most"


def counted_rows(schema: Schema) -> str:
    """Return what the released score histogram counts. It does not count persons.

    >>> counted_rows(Schema(columns=(), person=Person(column="patient")))
    'rows (each weighted so that a person counts once)'
    """
    if schema.person is None:
        return "records"
    times = "once" if schema.person.rows == 1 else f"as {schema.person.rows:,} rows at most"
    return f"rows (each weighted so that a person counts {times})"


def outlying(schema: Schema, *, at_random: bool = False) -> str:
    """Return who has the outliers' bound, as part of a sentence.

    >>> outlying(Schema(columns=(), one_row_per_person=True))
    'a person counts as an outlier'
    """
    as_what = "chosen at random" if at_random else "outliers"
    if schema.person is not None:
        return f"all rows of a person {'are' if at_random else 'count as'} {as_what}"
    return "a person is chosen at random" if at_random else "a person counts as an outlier"
