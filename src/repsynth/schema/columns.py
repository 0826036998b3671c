"""The column types as frozen values.

A *discrete* column has a `size`, the number of its declared values. A *numeric* column has `steps`: its values
live on the public grid of positions 0..steps between its bounds.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta

_NUMBER_STEPS = 2**40
"""Grid of a `number` column: fine enough for wide bounds, and positions stay exact in float64."""


@dataclass(frozen=True, kw_only=True)
class Category:
    """One of the declared values; they compare as text."""

    name: str
    values: tuple[str, ...]
    missing: bool = False

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.values)


@dataclass(frozen=True, kw_only=True)
class Boolean:
    """False or true, in that order."""

    name: str
    missing: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The two values as text."""
        return ("false", "true")

    @property
    def size(self) -> int:
        """Always two."""
        return 2


@dataclass(frozen=True, kw_only=True)
class Integer:
    """A whole number inside its bounds."""

    name: str
    min: int
    max: int
    missing: bool = False

    @property
    def steps(self) -> int:
        """One position per whole number."""
        return self.max - self.min


@dataclass(frozen=True, kw_only=True)
class Number:
    """A real number inside its bounds."""

    name: str
    min: float
    max: float
    missing: bool = False

    @property
    def steps(self) -> int:
        """A fine public grid."""
        return _NUMBER_STEPS


@dataclass(frozen=True, kw_only=True)
class Datetime:
    """A day, where both bounds are plain dates; otherwise a time of second resolution."""

    name: str
    min: date
    max: date
    missing: bool = False

    @property
    def unit(self) -> timedelta:
        """The distance between two positions."""
        whole_days = not isinstance(self.min, datetime) and not isinstance(self.max, datetime)
        return timedelta(days=1) if whole_days else timedelta(seconds=1)

    @property
    def start(self) -> datetime:
        """The lower bound as a time."""
        return _as_datetime(self.min)

    @property
    def steps(self) -> int:
        """One position per day or second."""
        return (_as_datetime(self.max) - self.start) // self.unit


@dataclass(frozen=True, kw_only=True)
class Id:
    """An identifier: never learned, regenerated as 1, 2, 3, ..."""

    name: str


Discrete = Category | Boolean
Numeric = Integer | Number | Datetime
Column = Discrete | Numeric | Id


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

    @property
    def learned(self) -> tuple[Discrete | Numeric, ...]:
        """All columns but the ids."""
        return tuple(column for column in self.columns if not isinstance(column, Id))

    @property
    def label_column(self) -> Discrete | None:
        """The label's column."""
        for column in self.columns:
            if column.name == self.label and isinstance(column, Discrete):
                return column
        return None

    @property
    def features(self) -> tuple[Discrete | Numeric, ...]:
        """The learned columns without the label."""
        return tuple(column for column in self.learned if column.name != self.label)

    @property
    def numeric(self) -> tuple[Numeric, ...]:
        """The numeric features."""
        return tuple(column for column in self.features if isinstance(column, Numeric))

    @property
    def discrete(self) -> tuple[Discrete, ...]:
        """The discrete features."""
        return tuple(column for column in self.features if isinstance(column, Discrete))


def _as_datetime(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
