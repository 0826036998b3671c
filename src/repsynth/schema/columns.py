"""Column types and the schema, as frozen values.

A *discrete* column has `size` declared values. The values of a *numeric* column are positions 0..steps on the
public grid between its bounds. Its *special* values are not quantities (-9 for "refused"); their codes follow the
grid: steps + 1, steps + 2, ...
"""

import math
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import ClassVar

from repsynth.errors import SchemaError

_NUMBER_STEPS = 2**40
"""Positions of a `number` column: enough for wide bounds, and exact in float64."""

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""The notation of a number if none is declared."""


@dataclass(frozen=True, kw_only=True)
class Category:
    """One of the declared values, compared as text.

    With very many values, rare ones can be learned with their family: values with the same first characters
    (`prefix`), values with the same `parent`, or all values (`rarest` = "together").

    >>> Category(name="icd", values=("A01", "A02", "B01"), prefix=1).families
    (0, 0, 1)
    """

    name: str
    values: tuple[str, ...]
    missing: bool = False
    markers: tuple[str, ...] = ()
    """Texts that mean a missing cell."""
    prefix: int | None = None
    parent: tuple[tuple[str, str], ...] = ()
    rarest: str | None = None
    storage: str | None = None
    """The Arrow type of the synthetic column, if it is not the default of the column's type."""

    @cached_property
    def size(self) -> int:
        return len(self.values)

    @cached_property
    def families(self) -> tuple[int, ...] | None:
        """The number of each value's family; None if no families are declared."""
        if self.prefix is not None:
            names = [value[: self.prefix] for value in self.values]
        elif self.parent:
            parents = dict(self.parent)
            names = [parents[value] for value in self.values]
        elif self.rarest is not None:
            names = [""] * len(self.values)
        else:
            return None
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return tuple(numbers[name] for name in names)


@dataclass(frozen=True, kw_only=True)
class Boolean:
    """False or true, in that order."""

    name: str
    missing: bool = False
    storage: str | None = None

    values: ClassVar = ("false", "true")
    size: ClassVar = 2


@dataclass(frozen=True, kw_only=True)
class Integer:
    """A whole number between its bounds; with a step, a multiple of it above the lower bound.

    >>> year = Integer(name="year", min=1950, max=2020, step=10, special=("unknown",))
    >>> year.steps, year.positions
    (7, 9)
    """

    name: str
    min: int
    max: int
    missing: bool = False
    markers: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    step: int = 1
    thousands: str = ""
    prefix: str = ""
    storage: str | None = None

    @cached_property
    def steps(self) -> int:
        return (self.max - self.min) // self.step

    @cached_property
    def unit(self) -> float:
        """The distance between two positions."""
        return float(self.step)

    @cached_property
    def positions(self) -> int:
        """The number of codes, including special values."""
        return self.steps + 1 + len(self.special)


@dataclass(frozen=True, kw_only=True)
class Number:
    """A real number between its bounds; with a step or decimals, on that grid.

    >>> Number(name="price", min=0.0, max=9.99, decimals=2).steps
    999
    """

    name: str
    min: float
    max: float
    missing: bool = False
    markers: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    step: float | None = None
    decimals: int | None = None
    thousands: str = ""
    decimal: str = "."
    prefix: str = ""
    storage: str | None = None

    @cached_property
    def on_grid(self) -> bool:
        """Whether a position is an exact value; otherwise it is an interval of a fine public grid."""
        return self.step is not None or self.decimals is not None

    @cached_property
    def steps(self) -> int:
        if not self.on_grid:
            return _NUMBER_STEPS
        return round((exactly(self.max) - exactly(self.min)) / exactly(self.unit))

    @cached_property
    def unit(self) -> float:
        if self.step is not None:
            return self.step
        return (self.max - self.min) / _NUMBER_STEPS if self.decimals is None else float(f"1e-{self.decimals}")

    @cached_property
    def positions(self) -> int:
        return self.steps + 1 + len(self.special)


@dataclass(frozen=True, kw_only=True)
class Datetime:
    """A day if both bounds are dates; otherwise a time with a resolution of one second."""

    name: str
    min: date
    max: date
    missing: bool = False
    markers: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    dates: str | None = None
    storage: str | None = None

    @cached_property
    def unit(self) -> timedelta:
        whole_days = not isinstance(self.min, datetime) and not isinstance(self.max, datetime)
        return timedelta(days=1) if whole_days else timedelta(seconds=1)

    @cached_property
    def start(self) -> datetime:
        return as_datetime(self.min)

    @cached_property
    def steps(self) -> int:
        return (as_datetime(self.max) - self.start) // self.unit

    @cached_property
    def positions(self) -> int:
        return self.steps + 1 + len(self.special)


@dataclass(frozen=True, kw_only=True)
class Id:
    """An identifier, never read and never learned. New ones are 1, 2, 3, ..., have a `format`, or come from Faker.

    >>> Id(name="ssn", format="###-##-####").is_text
    True
    """

    name: str
    format: str | None = None
    fake: str | None = None
    locale: str | None = None
    storage: str | None = None

    @cached_property
    def is_text(self) -> bool:
        return self.format is not None or self.fake is not None


Discrete = Category | Boolean
Numeric = Integer | Number | Datetime
Column = Discrete | Numeric | Id


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The cost of measuring a schema on the table.

    The loss is that of a Gaussian measurement of `mu`, except with probability `failure`.
    """

    mu: float
    failure: float
    mark: str
    """A random name; a ledger uses it to charge the schema once."""
    columns: tuple[str, ...]
    """The columns whose types, bounds or values were measured."""


@dataclass(frozen=True, kw_only=True)
class Person:
    """The unit of privacy if a person can have several rows: all rows with the same id in this column.

    A person contributes at most as much as `rows` rows.
    """

    column: str
    rows: int = 1


@dataclass(frozen=True, kw_only=True)
class RowRule:
    """A condition that is publicly known to hold for every row."""

    when: str | None = None
    require: str | None = None
    forbid: str | None = None


@dataclass(frozen=True, kw_only=True)
class Follows:
    """A derived column: a sum of other columns, or looked up by one of them."""

    column: str
    equals: str | None = None
    by: str | None = None
    values: tuple[tuple[str, str | float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Schema:
    """The columns in order, and the name of the label if there is one.

    >>> schema = Schema(columns=(Integer(name="age", min=17, max=90), Boolean(name="smoker")), label="smoker")
    >>> [column.name for column in schema.learned]
    ['age', 'smoker']
    >>> schema.label_column.size
    2
    """

    columns: tuple[Column, ...]
    label: str | None = None
    confirmed: bool = True
    measured: Measured | None = None
    """The cost of the schema, if it was measured."""
    rules: tuple[RowRule | Follows, ...] = ()
    person: Person | None = None
    one_row_per_person: bool = False
    """Whether the curator declared that no person has more than one row."""
    dropped: tuple[str, ...] = ()
    """The columns of the table that are ignored."""

    @cached_property
    def learned(self) -> tuple[Discrete | Numeric, ...]:
        """All columns except ids and derived columns."""
        following = {rule.column for rule in self.rules if isinstance(rule, Follows)}
        return tuple(c for c in self.columns if not isinstance(c, Id) and c.name not in following)

    @cached_property
    def rows_per_person(self) -> int:
        """The contribution bound: the number of rows of a person that count."""
        return 1 if self.person is None else self.person.rows

    @cached_property
    def label_column(self) -> Discrete | None:
        return next((c for c in self.columns if c.name == self.label and isinstance(c, Discrete)), None)

    @cached_property
    def features(self) -> tuple[Discrete | Numeric, ...]:
        return tuple(column for column in self.learned if column.name != self.label)

    @cached_property
    def numeric(self) -> tuple[Numeric, ...]:
        return tuple(column for column in self.features if isinstance(column, Numeric))

    @cached_property
    def discrete(self) -> tuple[Discrete, ...]:
        return tuple(column for column in self.features if isinstance(column, Discrete))


def check_unit(schema: Schema) -> None:
    """Refuse a schema that does not declare the unit of privacy.

    >>> check_unit(Schema(columns=(Boolean(name="smoker"),), one_row_per_person=True))
    """
    if schema.person is None and not schema.one_row_per_person:
        raise SchemaError(
            [
                "the schema does not declare the unit of privacy: can one person have several rows? If not, add "
                'one_row_per_person = true at the top of the schema; if so, add [person] with column = "NAME", '
                "the id column that identifies people"
            ]
        )


def plain_number(text: str) -> float | None:
    """Return the number that a text denotes; None for other texts.

    >>> plain_number("-9.0"), plain_number("n/a")
    (-9.0, None)
    """
    return float(text) if re.match(_NUMBER, text) and math.isfinite(float(text)) else None


def is_whole_number(text: str) -> bool:
    """Return whether a text is a whole number of at most 15 digits, without leading zeros.

    >>> is_whole_number("-12"), is_whole_number("012"), is_whole_number("12.0")
    (True, False, False)
    """
    return re.fullmatch("0|-?[1-9][0-9]{0,14}", text) is not None


def exactly(number: float) -> Decimal:
    """Return the decimal number as written: 0.1 is a tenth."""
    return Decimal(repr(float(number)))


def as_datetime(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
