"""The interface of a model: its settings, its plan, its measurements, and the fitted sampler.

A model is a frozen struct of its settings. A new model is one module and one line in `registry`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from repsynth.errors import ConfigError
from repsynth.knobs import Knobs

if TYPE_CHECKING:
    from repsynth.arrays import Arrays, Floats
    from repsynth.columns.groups import Groups
    from repsynth.io.records import Records
    from repsynth.mechanism.kernels import Chosen, Rounds, Statistic
    from repsynth.mechanism.meter import Meter
    from repsynth.privacy.events import SampledEvent
    from repsynth.schema import Schema
    from repsynth.scoring.stage import RunPlan, StageOne


@dataclass(frozen=True)
class Share:
    """A measurement of stage 2 and its share of the μ² that stage 1 leaves.

    `weighted` is true if contributions are scaled by weights.
    """

    name: str
    share: float
    choice: bool = False
    weighted: bool = True


@dataclass(frozen=True)
class Made:
    """How many candidates a selection released, and whether contributions to it are scaled by weights."""

    made: int
    weighted: bool


@dataclass(frozen=True)
class Resources:
    """Estimates of memory and time, and warnings for the plan.

    Seconds are those of one core for a whole run, with scores and sampling but without reading and writing files.
    """

    megabytes: float
    seconds: float
    warnings: tuple[str, ...] = ()


class Sampler(Protocol):
    """A fitted model."""

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> "Records":
        """Draw synthetic records, all with the label of this code if it is given."""
        ...

    @property
    def crossed(self) -> "tuple[tuple[Groups, ...], ...]":
        """The groups of the columns of each table that the model fits, the most important table last."""
        ...


class ModelRelease(Protocol):
    """The measurements of stage 2: public functions of a record and their noisy results. Holds no data.

    In every weighted measurement, a record contributes at most its weight times the sensitivity.
    `StageOne.influence` and all bounds for single records rely on this.
    """

    def kernels(self, *, choices: bool = True) -> "Mapping[str, Statistic | Chosen | Rounds]":
        """Return the measured functions by charge, for audits and replays.

        Without `choices`, leave out the selections, which have to be computed again.
        """
        ...

    def choices(self) -> "Mapping[str, Made]":
        """Return how many candidates each selection released, by charge."""
        ...

    def norms(self, records: "Records") -> "tuple[Floats, Floats] | None":
        """Return the norm of each record's contribution at full weight before and after clipping.

        None if clipping changes from round to round.
        """
        ...

    def label_masses(self) -> "tuple[Floats, float] | None":
        """Return the noisy sum of the weights of each label's records, and its noise; None if not measured."""
        ...

    @property
    def sampler(self) -> Sampler:
        """The fitted model: post-processing. It is fitted once and kept."""
        ...

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        """Return what has to be stored: plain data and arrays."""
        ...


@dataclass(frozen=True)
class Round:
    """The progress of a training. All rounds are charged before the first one."""

    done: int
    of: int


@dataclass(frozen=True)
class Hooks:
    """Callbacks that report the progress of a run."""

    on_step: Callable[[str], None] = lambda step: None
    on_round: Callable[[Round], None] = lambda done: None


@dataclass(frozen=True)
class StoredModel:
    """The files of a model release: plain data, arrays, and the noise of each measurement."""

    stage: "StageOne"
    plan: "RunPlan"
    described: dict[str, Any]
    arrays: "Arrays"
    sigmas: Mapping[str, float]


def run_seconds(plan: "RunPlan", rows: int, *, cell: float = 0.25e-6) -> float:
    """Estimate the seconds of a run without its model: a constant for each column and for each cell of the table.

    `studies/benchmarks/times.py` measures them.
    """
    columns = len(plan.schema.learned)
    return 0.05 + 0.004 * columns + cell * rows * columns


class Model(Knobs, frozen=True):
    """How stage 2 is planned, measured and loaded."""

    score_share: ClassVar[float] = 0.05
    """The default share of μ² for the histograms."""
    what: ClassVar[str] = "Its statistics take"
    """What its memory is for, as the start of a sentence."""
    purposes: ClassVar[Mapping[str, str]] = {}
    """What each measurement is for, by the start of its name."""

    def check(self, schema: "Schema", max_model_mb: int) -> None:
        """Refuse a schema that this model cannot learn."""

    def require(self) -> None:
        """Refuse to start if a library is missing."""

    def cautions(self, schema: "Schema") -> tuple[str, ...]:
        """Return warnings about this model with such a schema."""
        return ()

    def shares(self, schema: "Schema") -> tuple[Share, ...]:
        """Return how measurements share the μ² that stage 1 leaves; empty if training spends all of it."""
        return ()

    def rounds(self) -> "SampledEvent | None":
        """Return the rounds of training, whose noise the planner computes; None if the model is not trained."""
        return None

    def sensitivity(self, schema: "Schema", name: str) -> float:
        """Return the largest sensitivity of a measurement, in records, before any data is seen."""
        return 1.0

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Estimate memory and time; the default counts only scoring and sampling."""
        return Resources(0.0, run_seconds(plan, rows))

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> ModelRelease:
        raise ConfigError(f"the model {self.name} must define measure()")

    def load(self, stored: StoredModel) -> ModelRelease:
        """Read the output of `ModelRelease.dump` from an untrusted file, and check every part."""
        raise ConfigError(f"the model {self.name} must define load()")

    def purpose(self, name: str) -> str:
        return next((text for start, text in self.purposes.items() if name.startswith(start)), "")
