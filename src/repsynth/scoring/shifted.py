"""Scores with a threshold of their own for each label: moved by a released number, so that one serves for all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repsynth.arrays import Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.data.records import Records
from repsynth.schema import Discrete
from repsynth.scoring.base import Arrays, Score, Tails
from repsynth.scoring.threshold import Threshold, row_of

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic


@dataclass(frozen=True)
class ShiftedScore:
    """A score plus what is released for the record's label, or for records without one."""

    score: Score
    label: Discrete
    shifts: Ints

    @property
    def columns(self) -> int:
        """Those of the score; the label does not count."""
        return self.score.columns

    @property
    def lowest(self) -> int:
        """The lowest score, moved down as far as any label's is."""
        return self.score.lowest + min(int(self.shifts.min()), 0)

    def of(self, records: Records) -> Ints:
        moved: Ints = self.score.of(records) + self.shifts[row_of(records, self.label)]
        return moved

    def tails(self, exact: Histograms, most: float = 1.0) -> Tails | None:
        """Those of the score as it is: what it is moved by depends on noise of its own."""
        return self.score.tails(exact, most)

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        return self.score.kernels()

    def dump(self) -> Arrays:
        """That of the score; the threshold keeps the shifts."""
        return self.score.dump()


def with_threshold(score: Score, threshold: Threshold | None, label: Discrete | None) -> Score:
    if threshold is None or threshold.shifts is None or label is None:
        return score
    return ShiftedScore(score, label, threshold.shifts)
