"""What stage 1 hands to a model, and what a model's measurements leave behind."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from repsynth.encode import Records
from repsynth.marginals import Marginals
from repsynth.schema import Schema
from repsynth.score import Score
from repsynth.threshold import Threshold
from repsynth.weigh import FULL, WeightFunction

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StageOne:
    """Everything public that stage 2 starts from: released values and functions made of them."""

    schema: Schema
    marginals: Marginals
    score: Score
    threshold: Threshold | None
    weights: WeightFunction

    @property
    def weighted(self) -> bool:
        """Whether some record may weigh less than others."""
        return bool(self.weights.table.min() < FULL)

    @property
    def outlier_weight(self) -> float:
        """About the mean weight of the records above the threshold; 1 where there is none."""
        return self.threshold.mean_weight(self.weights) if self.threshold else 1.0


class Weighted(Protocol):
    """A statistic of stage 2: each record's part is scaled by its weight."""

    @property
    def name(self) -> str:
        """What the measurement is called."""
        ...

    @property
    def score(self) -> Score:
        """The public score function."""
        ...

    @property
    def weights(self) -> WeightFunction:
        """The public weight of each score."""
        ...

    @property
    def sensitivity(self) -> float:
        """The norm of a record's part at full weight, at most."""
        ...

    def total(self, records: Records) -> Ints:
        """The sum over a batch."""
        ...

    def influence(self, records: Records) -> Floats:
        """Each record's share of the sensitivity: in no measurement of the run is it larger."""
        ...


S = TypeVar("S", bound=Weighted, covariant=True)


@dataclass(frozen=True)
class Measured(Generic[S]):
    """A measurement of stage 2: the public function that was summed up, and the noisy result."""

    statistic: S
    noisy: Ints
    sigma: float


class Fitted(Protocol):
    """A model that can be drawn from."""

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        """Synthetic records; all of one label where its code is given."""
        ...
