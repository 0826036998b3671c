"""How much a record stands out: the sum over its columns of how rare its cell is.

    s(z) = Σ over columns of r(z's cell),   r = −log(max(count, half its noise) / rows)

A cell cannot look rarer than half its noise: with a fixed floor instead, a cell that noise happens to empty would
send ordinary records over any threshold. Extreme numbers make a record stand out more than rare categories do: a
cell of numbers with less than 1 % of the records counts three times for what it is rarer than that.

Scores are made of table look-ups, so they do not depend on how the records are batched.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.data.records import Records
from repsynth.privacy.events import Charge
from repsynth.scoring.base import NAT, Arrays, Scorer
from repsynth.scoring.tails import STEP, Part, SumTails
from repsynth.storage.checks import ints

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

RARE = 4.5
"""Minus the log of the fraction of records, about 1 %, below which a numeric region counts more."""


class Rarity(Scorer, frozen=True):
    """Rare bins and extreme numbers, from the histograms alone."""

    name: ClassVar[str] = "rarity"

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "RarityScore":
        """Post-processing of the histograms."""
        return make_rarity(histograms, label)

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> "RarityScore":
        scored = tuple(bins for bins in histograms.bins if bins.column.name != label)
        rarity = tuple(ints(arrays[f"rarity_{i}"], b.count, most=2**40) for i, b in enumerate(scored))
        return RarityScore(scored, rarity)


@dataclass(frozen=True)
class _ColumnScore:
    """What one column adds to a score."""

    bins: Bins
    rarity: Ints

    def of_codes(self, codes: Ints) -> Ints:
        found: Ints = self.rarity[self.bins.of_codes(codes)]
        return found


@dataclass(frozen=True)
class RarityScore:
    """The released score function of the features (the label does not count): the score of each cell."""

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

    def tails(self, exact: Histograms, most: float = 1.0) -> SumTails:
        scored = {bins.column.name for bins in self.bins}
        kept = [i for i, bins in enumerate(exact.bins) if bins.column.name in scored]
        grid = _grid(exact, kept)
        return SumTails(tuple(_part(exact, i, grid, most) for i in kept))

    def kernels(self) -> "Mapping[str, Statistic]":
        """None: all of it follows from the histograms."""
        return {}

    def dump(self) -> Arrays:
        return {f"rarity_{i}": rarity for i, rarity in enumerate(self.rarity)}


def make_rarity(histograms: Histograms, label: str | None) -> RarityScore:
    """Return the score function of the released histograms: post-processing."""
    kept = [i for i, bins in enumerate(histograms.bins) if bins.column.name != label]
    noise = np.array(histograms.sigma)
    rarity = []
    for i in kept:
        rare = rarity_of(histograms.noisy(i), noise, histograms.rows, steep=steep(histograms, i))
        rarity.append(np.floor(rare * NAT).astype(np.int64))
    return RarityScore(tuple(histograms.bins[i] for i in kept), tuple(rarity))


def rarity_of(counts: Floats, noise: Floats, rows: float, *, steep: bool) -> Floats:
    """r of regions with these counts, in nats: it falls with the count.

    >>> rarity_of(np.array([100.0, 1.0]), np.array([4.0, 4.0]), 1000.0, steep=False).round(2).tolist()
    [2.3, 6.21]
    """
    rare: Floats = -np.log(np.maximum(counts, noise / 2) / rows)
    return rare + 2 * np.maximum(rare - RARE, 0.0) if steep else rare


def count_of(rarity: Floats, rows: float, *, steep: bool) -> Floats:
    """The count at which a region has this r, in nats; r is smaller where there are more.

    >>> rare = rarity_of(np.array([100.0, 5.0]), np.ones(2), 1000.0, steep=True)
    >>> count_of(rare, 1000.0, steep=True).round(6).tolist()
    [100.0, 5.0]
    """
    plain = np.where(rarity > RARE, (rarity + 2 * RARE) / 3, rarity) if steep else rarity
    found: Floats = rows * np.exp(-plain)
    return found


def steep(histograms: Histograms, column: int) -> bool:
    """Whether rare cells of a column count more: numeric columns."""
    return histograms.bins[column].starts is not None


# What noise can make of a score.


def _part(exact: Histograms, i: int, grid: Floats, most: float) -> Part:
    """Return what one column can add to a score; `exact` holds the true counts.

    Rounding the noise moves the count of a cell by at most 1/2. The table may lack the record or the person, who
    adds `most` to all cells together.
    """
    from scipy.special import ndtr  # the command line starts without it

    count, kinds = np.unique(exact.noisy(i), return_inverse=True)
    noise, is_steep = np.full(len(count), exact.sigma), steep(exact, i)
    rarest = rarity_of(np.zeros(len(count)), noise, exact.rows, steep=is_steep)
    needed = count_of(grid, exact.rows, steep=is_steep)
    with_it = (count + 0.5 - needed[:, None]) / noise
    without_it = (needed[:, None] - (count - most - 0.5)) / noise
    possible = grid[:, None] <= rarest
    below = np.where(possible, ndtr(with_it), 1.0).T
    above = np.where(possible, ndtr(without_it), 0.0).T
    return Part(exact.bins[i], kinds.ravel(), grid, below, above)


def _grid(exact: Histograms, places: Sequence[int]) -> Floats:
    """From below what any cell can add, but for noise of ten standard deviations, to above it."""
    low, high, noise = math.inf, -math.inf, np.array([exact.sigma])
    for i in places:
        most = np.array([exact.noisy(i).max() + 0.5 + 10 * exact.sigma])
        low = min(low, float(rarity_of(most, noise, exact.rows, steep=steep(exact, i))[0]))
        high = max(high, float(rarity_of(0 * noise, noise, exact.rows, steep=steep(exact, i))[0]))
    steps = np.arange(math.floor(low / STEP), math.floor(high / STEP) + 2)
    return steps.astype(np.float64) * STEP
