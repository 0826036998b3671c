"""Random scores: the ablation that shows what targeting outliers is worth."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from repsynth.arrays import Arrays, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.data.records import Records
from repsynth.privacy.events import Charge
from repsynth.scoring.base import NAT, Scorer

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

SPAN = 8 * NAT
"""Scores are below it; any span serves."""


class Random(Scorer, frozen=True):
    """A hash of the record in place of its score: as many records get a small weight, outliers or not."""

    name: ClassVar[str] = "random"

    @property
    def targets_outliers(self) -> bool:
        return False

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "RandomScore":
        """Return hashes whose salt is a hash of the released counts: public, and different in every release."""
        return self.load(histograms, label, {})

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> "RandomScore":
        columns = tuple(dict.fromkeys(b.column.name for b in histograms.bins if b.column.name != label))
        digest = hashlib.sha256(histograms.counts.tobytes()).digest()
        return RandomScore(columns, int.from_bytes(digest[:8], "little"))


@dataclass(frozen=True)
class RandomScore:
    """Uniform over eight nats, by mixing the bits of a record's codes (as splitmix64 does)."""

    names: tuple[str, ...]
    salt: int
    lowest: int = 0

    @property
    def columns(self) -> int:
        return len(self.names)

    def of(self, records: Records) -> Ints:
        return _hashed([records.codes[name] for name in self.names], records.rows, self.salt)

    def tails(self, exact: Histograms, most: float = 1.0) -> None:
        """Return None: the salt depends on all the noise."""

    def kernels(self) -> "Mapping[str, Statistic]":
        return {}

    def dump(self) -> Arrays:
        """Return nothing: the salt follows from the histograms."""
        return {}


def _hashed(columns: Sequence[Ints], rows: int, salt: int) -> Ints:
    mixed = np.full(rows, salt, dtype=np.uint64)
    for codes in columns:
        mixed = (mixed ^ codes.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(SPAN)).astype(np.int64)
