"""Borrowed scores: the score function and the threshold of an earlier release.

They are public before this table is read, and so is the weight of every record. Scoring costs nothing here, and
the loss of a record is known before the run.
"""

from dataclasses import dataclass, field
from typing import Any

from repsynth.arrays import Arrays
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.errors import ConfigError
from repsynth.privacy.events import Event
from repsynth.privacy.loss import Loss
from repsynth.schema import Person, Schema
from repsynth.scoring.base import Score, Scorer
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.weights import WeightFunction


@dataclass(frozen=True)
class PriorScores:
    """What is taken from an earlier release: all that is needed to score a record."""

    digest: str
    """The SHA-256 of the earlier release's `release.json`: which one it was."""
    schema: Schema = field(compare=False)
    scorer: Scorer = field(compare=False)
    score: Score = field(compare=False)
    threshold: Threshold = field(compare=False)
    weights: WeightFunction = field(compare=False)
    histograms: Histograms = field(compare=False)
    sigma: float = field(compare=False)
    """The noise of its histogram of scores."""
    events: tuple[Event, ...] = field(compare=False)
    delta: float = field(compare=False)
    publishable: bool = field(compare=False)
    described: dict[str, Any] = field(compare=False, repr=False)
    arrays: Arrays = field(compare=False, repr=False)
    """Its description without its model, and the arrays of its stage 1: a new release contains both."""

    @property
    def rows(self) -> float:
        """The released number of records of the earlier table."""
        return self.histograms.rows

    @property
    def loss(self) -> Loss:
        """The loss of the records of the earlier table, including the measurement of its schema."""
        return Loss.of(self.events).after(Loss.of_schema(self.schema), self.delta)

    @property
    def epsilon(self) -> float:
        """The earlier release's ε at its δ."""
        return self.loss.epsilon(self.delta)

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema whose records the earlier release cannot score."""
        theirs = {column.name: column for column in self.schema.learned}
        ours = {column.name: column for column in schema.learned}
        missing = [name for name in theirs if name not in ours]
        more = [name for name in ours if name not in theirs]
        other = [name for name in ours if name in theirs and ours[name] != theirs[name]]
        found = [("lacks", missing), ("has also", more), ("declares otherwise", other)]
        said = [f"{what} {', '.join(repr(name) for name in names[:3])}" for what, names in found if names]
        if not said and list(theirs) != list(ours):
            said = ["has its columns in another order"]
        if not said and self.schema.label != schema.label:
            said = ["has another label"]
        if not said and _column(self.schema.person) != _column(schema.person):
            said = ["has another [person] column"]
        if said:
            raise ConfigError(
                f"scores can be taken from a release with the same columns only: the schema {'; '.join(said)}. "
                "Nothing was spent"
            )


def _column(person: Person | None) -> str | None:
    return None if person is None else person.column
