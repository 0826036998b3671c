"""Which model, where none is named: a rule of public numbers, so that nothing is spent on it and no data is seen.

The tables that a tree of columns needs, one per column, have noise of about √columns / μ in each cell; what is
read off all of them together, as a prediction is, has √columns times that. Where the records are many times as
many, tables tell how columns depend on each other. Where they are few, tables are mostly noise, and columns that
are independent given the label serve better. In between, two-way distances gain already and prediction still
loses, so there is a goal to choose by. How many values a column has matters little: models of tables take values
together until they stand above the noise.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from repsynth.errors import ConfigError
from repsynth.models.base import Model
from repsynth.models.marginal.model import Aim
from repsynth.models.naive_bayes.model import NaiveBayes
from repsynth.schema import Schema

AUTO = "auto"
"""What the choice is called where models are named."""

PREDICT, TABLES = "predict", "tables"
"""Goals: that classifiers learn from synthetic records, that two-way tables come out right."""

THRESHOLDS = {PREDICT: 50.0, TABLES: 8.0}
"""By goal: how strong the signal must be for a model of tables. Found with `studies/benchmarks/models.py`."""

ASSUMED_ROWS = 10_000
"""Where the number of records is not public."""


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
    >>> best.model.name, best.why[:66]
    ('aim', '2,000 records are 200 times the noise of tables of all columns (2)')
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
        columns = len(schema.learned)
        strength = signal(columns, mu=mu, rows=rows or ASSUMED_ROWS)
        models, why = strong if strength >= THRESHOLDS[goal] else weak, _why(strength, columns, rows, goal)
    yield from (Choice(model, why) for model in models)


def signal(columns: int, *, mu: float, rows: float) -> float:
    """The records over the noise that the tables of so many columns add up to.

    >>> signal(4, mu=0.1, rows=4000)
    100.0
    """
    return rows * mu / columns


def _why(strength: float, columns: int, rows: int | None, goal: str) -> str:
    known = "" if rows else ", assumed since their number is not public,"
    return (
        f"{rows or ASSUMED_ROWS:,} records{known} are {strength:.3g} times the noise of tables of all columns "
        f"({columns}), and for the goal {goal} tables pay off from {THRESHOLDS[goal]:g} on"
    )
