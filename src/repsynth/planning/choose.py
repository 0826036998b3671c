"""Which model, where none is named: a rule of public numbers, so that nothing is spent on it and no data is seen.

What decides is how far the cells of two-way tables stand above their noise. The tables that a tree of columns
needs, one per column, have noise of about √columns / μ in each cell; a table of two columns with s and t values
has n / (s t) records in one. Where that signal is strong, tables tell how columns depend on each other. Where it
is weak they are mostly noise, and columns that are independent given the label serve better. In between, two-way
distances gain already and prediction still loses, so there is a goal to choose by.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from repsynth.errors import ConfigError
from repsynth.models.base import Model
from repsynth.models.marginal.model import Aim
from repsynth.models.naive_bayes.model import NaiveBayes
from repsynth.schema import Discrete, Numeric, Schema

AUTO = "auto"
"""What the choice is called where models are named."""

PREDICT, TABLES = "predict", "tables"
"""Goals: that classifiers learn from synthetic records, that two-way tables come out right."""

THRESHOLDS = {PREDICT: 4.5, TABLES: 2.0}
"""By goal: how strong the signal must be for a model of tables. Found with `benchmarks/models.py`."""

ASSUMED_ROWS = 10_000
"""Where the number of records is not public."""

_MOST_VALUES = 16  # of a column: what is finer is merged where noise drowns it


@dataclass(frozen=True)
class Choice:
    """A model, and why it was chosen, in words that may be published."""

    model: Model
    why: str


def ranked(schema: Schema, *, mu: float, rows: int | None, goal: str | None = None) -> Iterator[Choice]:
    """The models to try, the best first: what follows is for where that one cannot be planned.

    They are of the core, so that what is installed changes nothing.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"), Boolean(name="owner")), label="owner")
    >>> [choice.model.name for choice in ranked(schema, mu=0.2, rows=20)]
    ['naive-bayes']
    >>> best = next(ranked(schema, mu=0.2, rows=2000))
    >>> best.model.name, best.why[:69]
    ('aim', 'with 2,000 records a cell of a two-way table holds 71 times its noise')
    """
    goal = goal or PREDICT
    if goal not in THRESHOLDS:
        raise ConfigError(f"unknown goal '{goal}'; use one of {', '.join(THRESHOLDS)}")
    weak: tuple[Model, ...] = (NaiveBayes(),)
    strong: tuple[Model, ...] = (Aim(), *weak)
    if len(schema.learned) == 1:
        models, why = weak, "there is only one column"
    elif schema.label_column is None:
        models, why = strong, "without a label, nothing else relates columns to each other"
    else:
        strength = signal(schema, mu=mu, rows=rows or ASSUMED_ROWS)
        models, why = strong if strength >= THRESHOLDS[goal] else weak, _why(strength, rows, goal)
    yield from (Choice(model, why) for model in models)


def signal(schema: Schema, *, mu: float, rows: float) -> float:
    """The records in a cell of a two-way table over the noise of one, on average over pairs of columns.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=tuple(Boolean(name=name) for name in "abcd"))
    >>> signal(schema, mu=0.1, rows=4000)
    50.0
    """
    sizes = [min(_values(column), _MOST_VALUES) for column in schema.learned]
    pairs = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) / (len(sizes) * (len(sizes) - 1))
    return rows * mu / (math.sqrt(len(sizes)) * pairs)


def _values(column: Discrete | Numeric) -> int:
    return (column.positions if isinstance(column, Numeric) else column.size) + column.missing


def _why(strength: float, rows: int | None, goal: str) -> str:
    known = "" if rows else ", assumed since their number is not public,"
    return (
        f"with {rows or ASSUMED_ROWS:,} records{known} a cell of a two-way table holds {strength:.2g} times its "
        f"noise, and for the goal {goal} tables pay off from {THRESHOLDS[goal]:g} on"
    )
