"""Prior scores: the score function and the threshold of an earlier release.

They are public before this table is read. So scoring costs nothing, and the weight and loss of a record are known
before the run.
"""

from dataclasses import dataclass, field
from typing import Any

from repsynth.arrays import Arrays
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.errors import ConfigError
from repsynth.privacy.events import Event
from repsynth.privacy.loss import Loss
from repsynth.schema import Schema
from repsynth.scoring.base import Score, Scorer
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.weights import WeightFunction


@dataclass(frozen=True, eq=False)
class PriorScores:
    """The parts of an earlier release that score a record. Two are equal if they come from the same release."""

    digest: str
    """The SHA-256 of the earlier release's `release.json`."""
    schema: Schema
    scorer: Scorer
    score: Score
    threshold: Threshold
    weights: WeightFunction
    histograms: Histograms
    sigma: float
    """The noise of the histogram of scores."""
    events: tuple[Event, ...]
    delta: float
    publishable: bool
    described: dict[str, Any] = field(repr=False)
    """The earlier release's description without its model; a new release contains it."""
    arrays: Arrays = field(repr=False)
    """The arrays of its stage 1; a new release contains them."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PriorScores) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    @property
    def rows(self) -> float:
        """The released number of records of the earlier table."""
        return self.histograms.rows

    @property
    def loss(self) -> Loss:
        """The loss of the earlier table's records, including the measurement of its schema."""
        return Loss.of(self.events).after(Loss.of_schema(self.schema), self.delta)

    @property
    def epsilon(self) -> float:
        """The earlier release's ε at its δ."""
        return self.loss.epsilon(self.delta)

    def check_schema(self, schema: Schema) -> None:
        """Refuse a schema whose records the earlier release cannot score."""
        theirs = {column.name: column for column in self.schema.learned}
        ours = {column.name: column for column in schema.learned}
        differences = {
            "lacks": [name for name in theirs if name not in ours],
            "has also": [name for name in ours if name not in theirs],
            "declares otherwise": [name for name in ours if name in theirs and ours[name] != theirs[name]],
        }
        said = [f"{what} {', '.join(map(repr, names[:3]))}" for what, names in differences.items() if names]
        if not said and list(theirs) != list(ours):
            said = ["has its columns in another order"]
        if not said and self.schema.label != schema.label:
            said = ["has another label"]
        if not said and len({each.person and each.person.column for each in (self.schema, schema)}) > 1:
            said = ["has another [person] column"]
        if said:
            raise ConfigError(
                f"scores can be taken from a release with the same columns only: the schema {'; '.join(said)}. "
                "Nothing was spent"
            )


def weights_are_public(prior: PriorScores | None, schema: Schema) -> bool:
    """Return whether every weight was public before the run.

    A measured schema is a noisy output of the table. It decides the cells of the scores, hence the weights.
    """
    return prior is not None and schema.measured is None
