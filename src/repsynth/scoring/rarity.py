"""Scorers that need the coarse histograms alone: rarity, the default, and random scores, an ablation.

    s(z) = Σ over columns of −log(max(count, noise / 2) / rows)

`count` is the released count of the record's cell and `noise` its standard deviation. Half the noise is the
smallest count in use, so a cell that the noise empties cannot outweigh all other columns.

The counts of different columns have independent noise. A score is therefore a sum of independent parts, whose
distributions are known before the noise is drawn. `SumTails` bounds it for the guaranteed loss.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.io.records import Records
from repsynth.privacy.events import Charge
from repsynth.scoring.base import NAT, Scorer
from repsynth.storage import ints, require

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

STEP = 1 / 128
"""The grid of a column's part of a score, in nats. Values are rounded in favour of the bound; any step is safe."""

_SLOPES = np.geomspace(0.5, 256.0, 20)  # candidates for λ; any choice is safe


class Rarity(Scorer, frozen=True):
    """Rare values and numbers in nearly empty cells, from the histograms alone."""

    name: ClassVar[str] = "rarity"

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "RarityScore":
        """Return the score function: post-processing of the histograms."""
        return make_rarity(histograms, label)

    def load(
        self, histograms: Histograms, label: str | None, arrays: Arrays, sigmas: Mapping[str, float]
    ) -> "RarityScore":
        """Return the score of an untrusted file. It must follow from the histograms, up to one rounded unit."""
        again = make_rarity(histograms, label)
        rarity = []
        for i, own in enumerate(again.rarity):
            told = ints(arrays[f"rarity_{i}"], len(own), most=2**40)
            require(bool(np.all(np.abs(told - own) <= 1)), "its scores do not follow from its histograms")
            rarity.append(np.minimum(told, own))  # a smaller score never claims a smaller loss
        return RarityScore(again.bins, tuple(rarity))


@dataclass(frozen=True)
class _ColumnScore:
    """The score of each cell of one column."""

    bins: Bins
    rarity: Ints

    def of_codes(self, codes: Ints) -> Ints:
        found: Ints = self.rarity[self.bins.of_codes(codes)]
        return found


@dataclass(frozen=True)
class RarityScore:
    """The released score function of the features: the score of each cell. The label is not scored."""

    bins: tuple[Bins, ...]
    rarity: tuple[Ints, ...]

    @property
    def columns(self) -> int:
        return len(self.bins)

    @property
    def lowest(self) -> int:
        return sum(int(rarity.min()) for rarity in self.rarity)

    def of(self, records: Records) -> Ints:
        score = np.zeros(records.rows, dtype=np.int64)
        for part in self._parts:
            score += records.look_up(part.bins.column.name, part.of_codes, part.bins.starts)
        return score

    @cached_property
    def _parts(self) -> "tuple[_ColumnScore, ...]":
        return tuple(_ColumnScore(*part) for part in zip(self.bins, self.rarity, strict=True))

    def tails(self, exact: Histograms, most: float = 1.0) -> "SumTails":
        scored = {bins.column.name for bins in self.bins}
        kept = [i for i, bins in enumerate(exact.bins) if bins.column.name in scored]
        grid = _grid(exact, kept)
        return SumTails(tuple(_part(exact, i, grid, most) for i in kept))

    def kernels(self) -> "Mapping[str, Statistic]":
        return {}

    def dump(self) -> Arrays:
        return {f"rarity_{i}": rarity for i, rarity in enumerate(self.rarity)}


def make_rarity(histograms: Histograms, label: str | None) -> RarityScore:
    """Return the score function of the released histograms: post-processing."""
    kept = [i for i, bins in enumerate(histograms.bins) if bins.column.name != label]
    rarity = [rarity_of(histograms.noisy(i), histograms.sigma, histograms.rows) for i in kept]
    scores = tuple(np.floor(each * NAT).astype(np.int64) for each in rarity)
    return RarityScore(tuple(histograms.bins[i] for i in kept), scores)


def rarity_of(counts: Floats, noise: float, rows: float) -> Floats:
    """Return the rarity of cells with these noisy counts, in nats.

    >>> rarity_of(np.array([100.0, 1.0]), 4.0, 1000.0).round(2).tolist()
    [2.3, 6.21]
    """
    rare: Floats = -np.log(np.maximum(counts, noise / 2) / rows)
    return rare


@dataclass(frozen=True)
class PartBounds:
    """Bounds on the distribution of one column's part of a score, before the noise is drawn.

    `below` bounds P[part < x] and `above` bounds P[part ≥ x], for each x of `grid`. Both have one row per distinct
    true count. `kinds` holds the row of each cell.
    """

    bins: Bins
    kinds: Ints
    grid: Floats
    below: Floats
    above: Floats


def _part(exact: Histograms, i: int, grid: Floats, most: float) -> PartBounds:
    """Return the bounds of one column; `exact` holds the true counts.

    Rounding the noise moves a count by at most 1/2. The table may lack the record or the person, who adds at most
    `most` to a cell.
    """
    from scipy.special import ndtr  # the command line starts without it

    count, kinds = np.unique(exact.noisy(i), return_inverse=True)
    needed = (exact.rows * np.exp(-grid))[:, None]  # the count that has this rarity
    possible = grid[:, None] <= rarity_of(np.zeros(1), exact.sigma, exact.rows)
    below = np.where(possible, ndtr((count + 0.5 - needed) / exact.sigma), 1.0).T
    above = np.where(possible, ndtr((needed - (count - most - 0.5)) / exact.sigma), 0.0).T
    return PartBounds(exact.bins[i], kinds.ravel(), grid, below, above)


def _grid(exact: Histograms, places: Sequence[int]) -> Floats:
    """Return a grid over all values of a part whose noise is within ten standard deviations."""
    most = max(exact.noisy(i).max() for i in places) + 0.5 + 10 * exact.sigma
    low, high = rarity_of(np.array([most, 0.0]), exact.sigma, exact.rows)
    steps = np.arange(math.floor(low / STEP), math.floor(high / STEP) + 2)
    return steps.astype(np.float64) * STEP


@dataclass(frozen=True)
class SumTails:
    """Tail bounds on a sum of independent parts, by Chernoff's bound.

    P[s < x] ≤ exp(λx) Π E exp(−λ rᵢ) for every λ > 0. The upper tail is bounded in the same way. All parts share
    one grid, and no part reaches its last value. A part below the first value counts as a failure.
    """

    columns: tuple[PartBounds, ...]

    def lower(self, records: Records, chance: float | Floats) -> Floats:
        """Return for each record a lower bound on its score, in nats, that fails with at most this chance."""
        moments, lost = self._moments(records, -1)
        left = np.maximum(chance - lost, 0.0)
        with np.errstate(divide="ignore"):
            found: Floats = ((np.log(left)[:, None] - moments) / _SLOPES).max(axis=1)
        found -= (len(self.columns) + 1) / NAT  # each part is rounded down to a unit
        return found

    def exceed(self, records: Records, levels: Floats) -> Floats:
        """Return the largest chance that each record reaches each level: (records, levels)."""
        moments, _ = self._moments(records, 1)
        found = np.full((records.rows, len(levels)), np.inf)
        for slope, moment in zip(_SLOPES, moments.T, strict=True):
            np.minimum(found, moment[:, None] - slope * levels, out=found)
        chances: Floats = np.exp(np.minimum(found, 0.0))
        return chances

    def _moments(self, records: Records, side: int) -> tuple[Floats, Floats]:
        """Return log E exp(± λ s), (records, λ), and the chance of being below the grid."""
        moments, lost = np.zeros((records.rows, len(_SLOPES))), np.zeros(records.rows)
        for part in self.columns:
            unique, which = np.unique(part.kinds[part.bins.of(records)], return_inverse=True)
            if side < 0:
                below = part.below[unique]
                moments += _log_moments(part.grid, np.diff(below, axis=1), -1)[which]
                lost += below[which, 0]
            else:
                above = part.above[unique]
                above[:, 0] = 1.0
                moments += _log_moments(part.grid, -np.diff(above, axis=1), 1)[which]
        return moments, lost


def _log_moments(grid: Floats, masses: Floats, side: int) -> Floats:
    """Return log Σ mass × exp(± λ x), (rows, λ), with x at the end of each step that makes it larger."""
    ends = grid[1:] if side > 0 else grid[:-1]
    found = np.empty((len(masses), len(_SLOPES)))
    for row, mass in enumerate(masses):
        held = np.flatnonzero(mass > 0)
        exponents = side * _SLOPES[:, None] * ends[held] + np.log(mass[held])
        highest = exponents.max(axis=1, keepdims=True)
        found[row] = (highest + np.log(np.exp(exponents - highest).sum(axis=1, keepdims=True)))[:, 0]
    return found


# Random scores

SPAN = 8 * NAT
"""The upper limit of random scores; any span works."""


class Random(Scorer, frozen=True):
    """A hash of the record as its score: an ablation that measures the benefit of targeting outliers."""

    name: ClassVar[str] = "random"

    @property
    def targets_outliers(self) -> bool:
        return False

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "RandomScore":
        """Return hashes with a salt from the released counts: public, and different in every release."""
        return self.load(histograms, label, {}, {})

    def load(
        self, histograms: Histograms, label: str | None, arrays: Arrays, sigmas: Mapping[str, float]
    ) -> "RandomScore":
        columns = tuple(dict.fromkeys(b.column.name for b in histograms.bins if b.column.name != label))
        digest = hashlib.sha256(histograms.counts.tobytes()).digest()
        return RandomScore(columns, int.from_bytes(digest[:8], "little"))


@dataclass(frozen=True)
class RandomScore:
    """Uniform over eight nats, by mixing the bits of a record's codes (splitmix64)."""

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
        """Return nothing; the salt follows from the histograms."""
        return {}


def _hashed(columns: Sequence[Ints], rows: int, salt: int) -> Ints:
    mixed = np.full(rows, salt, dtype=np.uint64)
    for codes in columns:
        mixed = (mixed ^ codes.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(SPAN)).astype(np.int64)
