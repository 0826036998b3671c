"""What a scorer is: settings that make a released, public score function of a record.

Scores are integers in units of 2⁻¹⁶ nats and are never released: a score is a function of the release and of
the record.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.data.records import Records
from repsynth.knobs import Knobs
from repsynth.privacy.events import Charge
from repsynth.schema import Schema

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic
    from repsynth.mechanism.meter import Meter

NAT = 2**16
"""Score units in one nat."""

Arrays = dict[str, NDArray[Any]]


class Tails(Protocol):
    """How far noise may move the score of a record, for the guaranteed loss: bounds for each record alone."""

    def lower(self, records: Records, chance: "float | Floats") -> Floats:
        """For each record a score, in nats, that it falls below with at most this chance, or one of its own."""
        ...

    def exceed(self, records: Records, levels: Floats) -> Floats:
        """The largest chance that each record's score reaches each of the levels, in nats: records × levels."""
        ...


class Score(Protocol):
    """The released score function."""

    @property
    def columns(self) -> int:
        """How many columns count."""
        ...

    @property
    def lowest(self) -> int:
        """The smallest score that any record can have is no smaller than this."""
        ...

    def of(self, records: Records) -> Ints: ...

    def tails(self, exact: Histograms, most: float = 1.0) -> Tails | None:
        """Bounds on what noise makes of scores, on the table with these true counts and on the same table without
        the record in question, or the person, who adds `most` to a bin; None where there are none."""
        ...

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        """The public functions that the scorer itself summed up or chose by, by the names of their charges."""
        ...

    def dump(self) -> Arrays:
        """What has to be kept beside the histograms."""
        ...


class Scorer(Knobs, frozen=True):
    """How records are scored. A new scorer is one file and one line in `SCORERS`."""

    choices: ClassVar[frozenset[str]] = frozenset()
    """Which measurements of its own are choices."""
    no_bounds: ClassVar[str | None] = None
    """Why its scores cannot be bounded before a run, in words; None where that depends on the histograms."""

    @property
    def targets_outliers(self) -> bool:
        """Whether a high score means that a record stands out."""
        return True

    def shares(self, schema: Schema) -> Mapping[str, float]:
        """Measurements of its own, as shares of μ² that are taken from that of the histograms; every record pays
        them in full."""
        return {}

    def worthwhile_shares(self, schema: Schema, *, mu: float, rows: int | None) -> Mapping[str, float]:
        """Those that are worth their charge in a run with this budget, where the number of records is public."""
        return self.shares(schema)

    def sensitivity(self, schema: Schema, name: str) -> float:
        """The sensitivity of a measurement of its own, at most: for display."""
        return 1.0

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> Score:
        """The score function; a scorer without measurements of its own makes it from the histograms alone."""
        raise TypeError(f"{type(self).__name__} does not say how to score")

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> Score:
        """The score function from a release's files, checked."""
        raise TypeError(f"{type(self).__name__} does not say how to load a score")
