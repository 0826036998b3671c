"""The protocols of stage 1: a scorer has settings and makes a released, public score function of a record.

Scores are integers in units of 2⁻¹⁶ nats. They are never released, because they depend on the record.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

from repsynth.arrays import Arrays, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.io.records import Records
from repsynth.knobs import Knobs
from repsynth.privacy.events import Charge
from repsynth.schema import Schema

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic
    from repsynth.mechanism.meter import Meter
    from repsynth.scoring.rarity import SumTails

NAT = 2**16
"""Score units in one nat."""


class Score(Protocol):
    """The released score function."""

    @property
    def columns(self) -> int:
        """The number of columns that are scored."""
        ...

    @property
    def lowest(self) -> int:
        """A lower bound on the score of any record."""
        ...

    def of(self, records: Records) -> Ints: ...

    def tails(self, exact: Histograms, most: float = 1.0) -> "SumTails | None":
        """Return bounds for the table with these true counts, or None if there are none.

        They also hold without any one record or person, who adds at most `most` to a cell.
        """
        ...

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        """Return the public functions behind the scorer's measurements, by charge."""
        ...

    def dump(self) -> Arrays:
        """Return the arrays to store with the histograms."""
        ...


class Scorer(Knobs, frozen=True):
    """How records are scored. A new scorer is one module and one entry in `SCORERS`."""

    choices: ClassVar[frozenset[str]] = frozenset()
    """The names of the scorer's measurements that are selections."""
    no_bounds: ClassVar[str | None] = None
    """Why scores have no bounds before a run; None if they do."""

    @property
    def targets_outliers(self) -> bool:
        """Whether a high score means that a record is an outlier."""
        return True

    def shares(self, schema: Schema) -> Mapping[str, float]:
        """Return the scorer's measurements and their shares of the histograms' μ²; all are unweighted."""
        return {}

    def sensitivity(self, schema: Schema, name: str) -> float:
        """Return an upper bound on the sensitivity of one of the scorer's measurements, for display."""
        return 1.0

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> Score:
        """Make the scorer's measurements, if any, and return the score function."""
        raise TypeError(f"{type(self).__name__} must define measure()")

    def load(
        self, histograms: Histograms, label: str | None, arrays: Arrays, sigmas: Mapping[str, float]
    ) -> Score:
        """Read the score function from the files of a release, and check it."""
        raise TypeError(f"{type(self).__name__} must define load()")
