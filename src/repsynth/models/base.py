"""What a model is: settings that plan and carry out stage 2. What a fit is: what stage 2 left behind.

A model is a frozen struct of its own knobs. A new model is one folder and one line in `registry`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from repsynth.errors import ConfigError
from repsynth.knobs import Knobs

if TYPE_CHECKING:
    import numpy as np

    from repsynth.arrays import Arrays, Floats
    from repsynth.columns.groups import Groups
    from repsynth.data.records import Records
    from repsynth.mechanism.kernels import Chosen, Rounds, Statistic
    from repsynth.mechanism.meter import Meter
    from repsynth.privacy.events import SampledEvent
    from repsynth.schema import Schema
    from repsynth.scoring.stage import RunPlan, StageOne


@dataclass(frozen=True)
class Share:
    """A measurement of stage 2: its share of the μ² that stage 1 leaves, whether it is a choice, and whether
    weights scale a record's part in it."""

    name: str
    share: float
    choice: bool = False
    weighted: bool = True


@dataclass(frozen=True)
class Made:
    """How many candidates a choice released, and whether weights scale a record's part in it."""

    made: int
    weighted: bool


@dataclass(frozen=True)
class Resources:
    """What a model takes, about, and what a plan should warn of. The seconds are those of one core for all of a
    run, scores and drawing as many records included; reading and writing files come on top."""

    megabytes: float
    seconds: float
    warnings: tuple[str, ...] = ()


class Sampler(Protocol):
    """A fitted model that can be drawn from."""

    def draw(self, rows: int, generator: "np.random.Generator", label: int | None = None) -> "Records":
        """Synthetic records; all of one label where its code is given."""
        ...

    @property
    def crossed(self) -> "tuple[tuple[Groups, ...], ...]":
        """The columns' groups of each table that the model fits, the most important one last."""
        ...


class Fit(Protocol):
    """What stage 2 released, and what follows from it. It holds no reference to the data.

    In every measurement that is declared as weighted, a record contributes at most its weight times the
    sensitivity. `StageOne.influence` and all claims about single records rest on this.
    """

    def kernels(self, *, choices: bool = True) -> "Mapping[str, Statistic | Chosen | Rounds]":
        """The public functions that were measured, by the names of their charges, for audits and replays; without
        the choices, which have to be made again, where they are not wanted."""
        ...

    def choices(self) -> "Mapping[str, Made]":
        """The choices that were made, by the names of their charges: what a release must at least say of each."""
        ...

    def norms(self, records: "Records") -> "tuple[Floats, Floats] | None":
        """The norm of each record's part at full weight before and after clipping; None where clipping changes
        from round to round."""
        ...

    def label_masses(self) -> "tuple[Floats, float] | None":
        """The noisy sum of the weights of each label's records as it was released, and its noise; None where the
        release does not hold that."""
        ...

    def sampler(self) -> Sampler:
        """The model that follows: post-processing."""
        ...

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        """What has to be kept: plain data and arrays."""
        ...


@dataclass(frozen=True)
class Round:
    """The rounds of a training that are done, and how many there are. All were charged before the first one."""

    done: int
    of: int


@dataclass(frozen=True)
class Hooks:
    """Callbacks that report the progress of a run."""

    on_step: Callable[[str], None] = lambda step: None
    on_round: Callable[[Round], None] = lambda done: None


@dataclass(frozen=True)
class Kept:
    """What a release's files say of a fit: plain data and arrays, and the noise of each measurement of stage 2."""

    stage: "StageOne"
    plan: "RunPlan"
    described: dict[str, Any]
    arrays: "Arrays"
    sigmas: Mapping[str, float]


def run_seconds(plan: "RunPlan", rows: int, *, cell: float = 0.25e-6) -> float:
    """What a run takes before, beside and after its model, in seconds of one core: a little for every column, and
    for each cell of the table its part in scores, sums and drawing (`studies/benchmarks/times.py`)."""
    columns = len(plan.schema.learned)
    return 0.05 + 0.004 * columns + cell * rows * columns


class Model(Knobs, frozen=True):
    """How stage 2 is planned, measured and loaded."""

    score_share: ClassVar[float] = 0.05
    """The share of μ² for the histograms, by default."""
    what: ClassVar[str] = "Its statistics take"
    """What its memory is for, as the start of a sentence."""
    purposes: ClassVar[Mapping[str, str]] = {}
    """What each measurement is of, in a few words, by the first word or words of its name."""

    def check(self, schema: "Schema", max_model_mb: int) -> None:
        """Refuse a schema that this model cannot learn."""

    def require(self) -> None:
        """Refuse to start where a library is missing."""

    def cautions(self, schema: "Schema") -> tuple[str, ...]:
        """What a user should know of this model with such a schema, in words."""
        return ()

    def shares(self, schema: "Schema") -> tuple[Share, ...]:
        """How its measurements share what stage 1 leaves of μ²; none where it is trained with all of it."""
        return ()

    def rounds(self) -> "SampledEvent | None":
        """The rounds of training whose noise is to be found; None where the model is not trained."""
        return None

    def sensitivity(self, schema: "Schema", name: str) -> float:
        """The sensitivity of a measurement in records, at most, before any data is seen."""
        return 1.0

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """What it will take: of a model that does not say, what scoring and drawing take at least."""
        return Resources(0.0, run_seconds(plan, rows))

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> Fit:
        raise ConfigError(f"the model {self.name} does not say how to measure")

    def load(self, kept: Kept) -> Fit:
        """What `Fit.dump` gave, from a stranger's file: checked in every part."""
        raise ConfigError(f"the model {self.name} does not say how to load a fit")

    def purpose(self, name: str) -> str:
        return next((text for start, text in self.purposes.items() if name.startswith(start)), "")
