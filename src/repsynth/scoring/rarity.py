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
from repsynth.storage.checks import floats, ints

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

RARE = 4.5
"""Minus the log of the fraction of records, about 1 %, below which a numeric region counts more."""

_REGIONS = 16
_EXTREMES = 0.25
_FARTHEST = 6.0


class Rarity(Scorer, frozen=True):
    """Rare bins and extreme numbers, from the histograms alone."""

    name: ClassVar[str] = "rarity"

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "RarityScore":
        """Post-processing of the histograms."""
        return make_rarity(histograms, label)

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> "RarityScore":
        """The kept tables."""
        scored = tuple(bins for bins in histograms.bins if bins.column.name != label)
        return RarityScore(
            bins=scored,
            rarity=tuple(ints(arrays[f"rarity_{i}"], b.count, most=2**40) for i, b in enumerate(scored)),
            centre=floats(arrays["score_centre"], len(scored)),
            scale=floats(arrays["score_scale"], len(scored), positive=True, infinite=True),
        )


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
        """All features."""
        return len(self._of_column)

    @cached_property
    def _of_column(self) -> tuple[tuple[int, ...], ...]:
        """The histograms of each column, by place: a wide one has two."""
        return histograms_by_column(self.bins)

    @property
    def lowest(self) -> int:
        """The smallest score that any record can have is no smaller than this."""
        return sum(max(int(self.rarity[i].min()) for i in places) for places in self._of_column)

    def of(self, records: Records) -> Ints:
        """The score of each record."""
        score = np.zeros(records.rows, dtype=np.int64)
        for places in self._of_column:
            score += np.maximum.reduce([self.rarity[i][self.bins[i].of(records)] for i in places])
            (i, *_), column = places, self.bins[places[0]].column
            if self.scale[i] < math.inf:
                assert isinstance(column, Numeric)
                codes = records.codes[column.name]
                z = standardise(codes, column.steps, self.centre[i], self.scale[i], _FARTHEST)
                score += np.floor(z * z * (_EXTREMES * NAT)).astype(np.int64)
        return score

    def bounds(self, exact: Histograms, *, tail: float, eta: float, rows: int) -> "RarityBounds | None":
        """Where every histogram is clear: a squared z-score has no bound worth stating."""
        if not all(map(math.isinf, self.scale)):
            return None
        scored = {bins.column.name for bins in self.bins}
        kept = [i for i, bins in enumerate(exact.bins) if bins.column.name in scored]
        certain = [_certain(exact, i, tail) for i in kept]
        columns = (tuple(certain[k] for k in places) for places in self._of_column)
        spread = math.sqrt(2 * math.log(2 * len(CUTS) * rows / eta))
        return RarityBounds(tuple(columns), tail, spread)

    def kernels(self) -> "Mapping[str, Statistic]":
        """None: all of it follows from the histograms."""
        return {}

    def dump(self) -> Arrays:
        """The tables of all columns."""
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
    bins = histograms.bins[column]
    assert bins.starts is not None
    assert isinstance(bins.column, Integer | Number)
    found = rare.copy()
    numbers = ~bins.spikes
    positive = bins.starts[: bins.numbers] * bins.column.unit + bins.column.min >= 0
    above, below = np.flatnonzero(numbers & positive), np.flatnonzero(numbers & ~positive)
    found[above] = np.minimum.accumulate(rare[above][::-1])[::-1]
    found[below] = np.minimum.accumulate(rare[below])
    return found


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


# Bounds on what noise can make of a score.

CUTS = (1.5, 2.0, 4.0, math.inf)
"""Times the tail: from which count on, in units of noise, a bin is large."""


@dataclass(frozen=True)
class _Certain:
    """What is certain about the score of each bin of one column.

    `low` and `high` hold if no noise exceeds its tail bound. For a large bin, `middle_low` and
    `middle_high` bound the mean score and `slope` how much one standard deviation of noise moves it.
    """

    bins: Bins
    low: Floats
    high: Floats
    middle_low: Floats
    middle_high: Floats
    slope: Floats
    size: Floats
    """The bin's count in units of its noise; 0 where the score has a kink within the noise."""


@dataclass(frozen=True)
class RarityBounds:
    """Bounds on every record's score, whatever noise the histograms draw within its tails."""

    columns: tuple[tuple[_Certain, ...], ...]
    """For each column those of its histograms: the rarest counts."""
    tail: float
    """How many standard deviations no noise exceeds: all bins and all sums of score bins at once."""
    spread: float
    """The same for a Lipschitz function of many noises at once: all records, all ways to cut."""

    def of(self, records: Records) -> tuple[Floats, Floats]:
        """A lower and an upper bound on the score of each record, in nats.

        Small bins are bounded one by one. Large ones are bounded together: their sum is a Lipschitz
        function of independent Gaussian noise, which strays from its mean far less than the sum of what
        each may stray. Each way to cut between the two is valid; the best one counts.
        """
        bin_of = [[each.bins.of(records) for each in column] for column in self.columns]

        def gather(name: str) -> Floats:
            every = zip(self.columns, bin_of, strict=True)
            return np.stack(
                [np.maximum.reduce([getattr(c, name)[k] for c, k in zip(*pair, strict=True)]) for pair in every]
            )

        low, high = gather("low"), gather("high")
        alone = np.array([[len(column) == 1] for column in self.columns])  # the mean of a largest one is not known
        size, slope = np.where(alone, gather("size"), 0.0), gather("slope")
        middle_low, middle_high = gather("middle_low"), gather("middle_high")
        lows, highs = [], []
        for cut in CUTS:
            large = size >= cut * self.tail
            stray = self.spread * np.sqrt(np.where(large, slope**2, 0.0).sum(axis=0))
            lows.append(np.where(large, middle_low, low).sum(axis=0) - stray)
            highs.append(np.where(large, middle_high, high).sum(axis=0) + stray)
        rounding = (len(self.columns) + 1) / NAT  # every column's score is rounded down to a unit
        return np.max(lows, axis=0) - rounding, np.min(highs, axis=0) + rounding


def _certain(exact: Histograms, i: int, tail: float) -> _Certain:
    """Bounds for one column; `exact` holds the true counts.

    Rounding the noise moves the count of a region of k bins by at most k/2, the absent record by 1.
    """
    bins, rows, is_steep = exact.bins[i], exact.rows, steep(exact, i)
    region = regions(exact, i)
    parts = np.bincount(region)
    count, noise = np.bincount(region, exact.noisy(i)), exact.sigma_of(i) * np.sqrt(parts)
    slack = parts / 2 + 1

    def rarity(counts: Floats) -> Floats:
        return rarity_of(counts, noise, rows, steep=is_steep)

    smallest = count - slack - tail * noise
    # Within the noise, a large bin's rarity is the plain convex −log: above its floor and below the kink.
    plain = (smallest > noise / 2) & (not is_steep or smallest > rows * math.exp(-RARE))
    slope = np.where(plain, noise / np.where(plain, smallest, 1.0), 0.0)
    return _Certain(
        bins=bins,
        low=outward(exact, i, rarity(count + slack + tail * noise)[region]),
        high=outward(exact, i, rarity(smallest)[region]),
        middle_low=rarity(count + slack)[region],
        middle_high=(rarity(count - slack) + slope**2 / 2)[region],
        slope=slope[region],
        size=np.where(plain & (i not in exact.outward), count / noise, 0.0)[region],
    )
