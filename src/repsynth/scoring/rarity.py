"""How much a record stands out: the sum over its columns of how rare its bin is.

    s(z) = Σ over columns of r(z's bin),   r = −log(max(count, half its noise) / rows)

A bin cannot look rarer than half its noise: with a fixed floor instead, a bin that noise happens to
empty would send ordinary records over any threshold. Fine bins are taken together to some sixteen per
column: what counts is whether a region is rare. Extreme numbers make a record stand out more than rare
categories do, so they count more: where the histogram is clear, a region with less than 1 % of the
records counts three times for what it is rarer than that; where noise leaves only few wide bins, a
quarter of the squared z-score, at most 6², is added instead.

Scores are made of table look-ups and IEEE products, so they do not depend on how the records are batched.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.privacy.events import Charge
from repsynth.schema import Integer, Number, Numeric
from repsynth.scoring.base import NAT, Arrays, Scorer
from repsynth.scoring.bins import Bins
from repsynth.scoring.histograms import Histograms
from repsynth.scoring.tails import STEP, Part, SumTails
from repsynth.storage.checks import floats, ints, require

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

RARE = 4.5
"""Minus the log of the fraction of records, about 1 %, below which a numeric region counts more."""

_REGIONS = 16
EXTREMES = 0.25
"""What a squared z-score counts for, in nats."""

FARTHEST = 6.0
"""The largest z-score."""


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
        scale = floats(arrays["score_scale"], len(scored), positive=True, infinite=True)
        numeric = all(b.starts is not None or s == math.inf for b, s in zip(scored, scale, strict=True))
        require(numeric, "a column without numbers has z-scores")
        return RarityScore(
            bins=scored,
            rarity=tuple(ints(arrays[f"rarity_{i}"], b.count, most=2**40) for i, b in enumerate(scored)),
            centre=floats(arrays["score_centre"], len(scored)),
            scale=scale,
        )


@dataclass(frozen=True)
class _ColumnScore:
    """What one column adds to a score: the largest over its histograms, and the extremes of z-scores."""

    bins: tuple[Bins, ...]
    rarity: tuple[Ints, ...]
    centre: float
    scale: float

    def of_codes(self, codes: Ints) -> Ints:
        found: Ints = np.maximum.reduce(
            [rarity[bins.of_codes(codes)] for bins, rarity in zip(self.bins, self.rarity, strict=True)]
        )
        if self.scale < math.inf:
            column = self.bins[0].column
            assert isinstance(column, Numeric)
            z = standardise(codes, column.steps, self.centre, self.scale, FARTHEST)
            found = found + np.floor(z * z * (EXTREMES * NAT)).astype(np.int64)
        return found

    @cached_property
    def starts(self) -> Ints | None:
        """Where it changes; None where it does not only change there."""
        starts = [bins.starts for bins in self.bins if bins.starts is not None]
        return np.unique(np.concatenate(starts)) if starts and math.isinf(self.scale) else None


@dataclass(frozen=True)
class RarityScore:
    """The released score function of the features (the label does not count).

    `rarity` holds, column by column, the score of each bin; `centre` and `scale`, in positions, give the
    z-scores of a numeric column with a coarse histogram (elsewhere the scale is infinite: none count).
    """

    bins: tuple[Bins, ...]
    rarity: tuple[Ints, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]

    @property
    def columns(self) -> int:
        return len(self._of_column)

    @cached_property
    def _of_column(self) -> tuple[tuple[int, ...], ...]:
        """The histograms of each column, by place: a wide one has two."""
        return histograms_by_column(self.bins)

    @property
    def lowest(self) -> int:
        return sum(max(int(self.rarity[i].min()) for i in places) for places in self._of_column)

    def of(self, records: Records) -> Ints:
        score = np.zeros(records.rows, dtype=np.int64)
        for part in self._parts:
            score += records.look_up(part.bins[0].column.name, part.of_codes, part.starts)
        return score

    @cached_property
    def _parts(self) -> "tuple[_ColumnScore, ...]":
        return tuple(
            _ColumnScore(
                bins=tuple(self.bins[i] for i in places),
                rarity=tuple(self.rarity[i] for i in places),
                centre=self.centre[places[0]],
                scale=self.scale[places[0]],
            )
            for places in self._of_column
        )

    def tails(self, exact: Histograms, most: float = 1.0) -> SumTails | None:
        """Where every histogram is clear: a squared z-score has no bound worth stating."""
        if not all(map(math.isinf, self.scale)):
            return None
        scored = {bins.column.name for bins in self.bins}
        kept = [i for i, bins in enumerate(exact.bins) if bins.column.name in scored]
        grid = _grid(exact, kept)
        parts = [_part(exact, i, grid, most) for i in kept]
        return SumTails(tuple(tuple(parts[k] for k in places) for places in self._of_column))

    def kernels(self) -> "Mapping[str, Statistic]":
        """None: all of it follows from the histograms."""
        return {}

    def dump(self) -> Arrays:
        return {
            "score_centre": np.array(self.centre, dtype=np.float64),
            "score_scale": np.array(self.scale, dtype=np.float64),
            **{f"rarity_{i}": rarity for i, rarity in enumerate(self.rarity)},
        }


def make_rarity(histograms: Histograms, label: str | None) -> RarityScore:
    """The score function from the released histograms: post-processing."""
    kept = [i for i, bins in enumerate(histograms.bins) if bins.column.name != label]
    rarity, centres, scales = [], [], []
    for i in kept:
        region = regions(histograms, i)
        counts = np.bincount(region, histograms.noisy(i)).astype(np.float64)
        noise = histograms.sigma_of(i) * np.sqrt(np.bincount(region))
        rare = rarity_of(counts, noise, histograms.rows, steep=steep(histograms, i))[region]
        rarity.append(np.floor(outward(histograms, i, rare) * NAT).astype(np.int64))
        coarse = histograms.bins[i].starts is not None and not steep(histograms, i)
        centre, scale = standardisation(histograms, i) if coarse else (0.0, math.inf)
        centres.append(centre)
        scales.append(scale)
    bins = tuple(histograms.bins[i] for i in kept)
    return RarityScore(bins, tuple(rarity), tuple(centres), tuple(scales))


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
    """Whether rare regions of a column count more: numeric columns with a clear histogram, or with bins by
    magnitude, which tell extreme numbers apart under any noise."""
    return histograms.bins[column].starts is not None and (
        histograms.clear(column) or column in histograms.located
    )


def regions(histograms: Histograms, column: int) -> Ints:
    """For each bin of a column the region it is counted in: itself, or some neighbouring ones of many equal bins.

    The lower bound's own bin, special values and the missing stay apart.
    """
    bins = histograms.bins[column]
    if bins.starts is None or bins.numbers <= 2 * _REGIONS or column in histograms.located:
        return np.arange(bins.count)
    inner = bins.numbers - 1
    merged = 1 + np.arange(inner) * _REGIONS // inner
    return np.concatenate([[0], merged, _REGIONS + 1 + np.arange(bins.count - bins.numbers)])


def outward(histograms: Histograms, column: int, rare: Floats) -> Floats:
    """The rarity of a column's bins; with bins by magnitude none is rarer than one farther from zero.

    Close to zero they are narrow, and a small number is not rare where larger ones are common. (It is where equal
    bins say so.) Values with bins of their own stay apart.
    """
    if column not in histograms.outward:
        return rare
    found = rare.copy()
    for inward in outward_orders(histograms.bins[column]):
        found[inward] = np.minimum.accumulate(rare[inward])
    return found


def outward_orders(bins: Bins) -> tuple[Ints, Ints]:
    """The bins by magnitude on each side of zero, from the farthest inwards."""
    assert bins.starts is not None
    assert isinstance(bins.column, Integer | Number)
    numbers = ~bins.spikes
    positive = bins.starts[: bins.numbers] * bins.column.unit + bins.column.min >= 0
    return np.flatnonzero(numbers & positive)[::-1], np.flatnonzero(numbers & ~positive)


def histograms_by_column(bins: Sequence[Bins]) -> tuple[tuple[int, ...], ...]:
    """The places of each column's histograms, which stand behind each other."""
    places: dict[str, list[int]] = {}
    for i, each in enumerate(bins):
        places.setdefault(each.column.name, []).append(i)
    return tuple(tuple(found) for found in places.values())


def standardisation(histograms: Histograms, column: int) -> tuple[float, float]:
    """Centre and scale of a numeric column in positions."""
    domain = histograms.bins[column].column
    assert isinstance(domain, Numeric)
    centre, scale = histograms.centre_and_scale(column)
    return centre * (domain.steps + 1) - 0.5, scale * (domain.steps + 1)


def standardise(positions: Ints, last: int, centre: float, scale: float, farthest: float) -> Floats:
    """Clipped z-scores; 0 where the value is missing or special."""
    z = np.clip((positions - centre) / scale, -farthest, farthest)
    return np.where((positions == MISSING) | (positions > last), 0.0, z)


# What noise can make of a score.


def _part(exact: Histograms, i: int, grid: Floats, most: float) -> Part:
    """What one histogram can add to a score; `exact` holds the true counts.

    Rounding the noise moves the count of a region of k bins by at most k/2. The table may lack the record or the
    person, who adds `most` to all bins together.
    """
    from scipy.special import ndtr  # the command line starts without it

    region = regions(exact, i)
    size, count = np.bincount(region), np.bincount(region, exact.noisy(i))
    kinds = np.arange(len(region))  # a bin by magnitude depends on all farther ones
    if i not in exact.outward:
        (size, count), which = np.unique(np.stack([size, count]), axis=1, return_inverse=True)
        kinds, region = which.ravel()[region], np.arange(len(size))
    noise, is_steep = exact.sigma_of(i) * np.sqrt(size), steep(exact, i)
    rarest = rarity_of(np.zeros(len(count)), noise, exact.rows, steep=is_steep)
    needed = count_of(grid, exact.rows, steep=is_steep)
    with_it = (count + size / 2 - needed[:, None]) / noise
    without_it = (needed[:, None] - (count - most - size / 2)) / noise
    possible = grid[:, None] <= rarest
    below = np.where(possible, ndtr(with_it), 1.0).T[region]
    above = np.where(possible, ndtr(without_it), 0.0).T[region]
    return Part(exact.bins[i], kinds, grid, *_outward_chances(exact, i, below, above))


def _outward_chances(exact: Histograms, i: int, below: Floats, above: Floats) -> tuple[Floats, Floats]:
    """The same for the smallest of a bin by magnitude and all farther ones: see `outward`."""
    if i not in exact.outward:
        return below, above
    found_below, found_above = below.copy(), above.copy()
    for sequence in outward_orders(exact.bins[i]):
        with np.errstate(divide="ignore"):
            found_below[sequence] = -np.expm1(np.cumsum(np.log1p(-below[sequence]), axis=0))
        found_above[sequence] = np.cumprod(above[sequence], axis=0)
    return found_below, found_above


def _grid(exact: Histograms, places: Sequence[int]) -> Floats:
    """From below what any bin can add, but for noise of ten standard deviations, to above it."""
    low, high = math.inf, -math.inf
    for i in places:
        region = regions(exact, i)
        parts = np.bincount(region)
        noise = exact.sigma_of(i) * np.sqrt(parts)
        most = np.bincount(region, exact.noisy(i)) + parts / 2 + 10 * noise
        low = min(low, float(rarity_of(most, noise, exact.rows, steep=steep(exact, i)).min()))
        high = max(high, float(rarity_of(0 * noise, noise, exact.rows, steep=steep(exact, i)).max()))
    steps = np.arange(math.floor(low / STEP), math.floor(high / STEP) + 2)
    return steps.astype(np.float64) * STEP
