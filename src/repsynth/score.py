"""How much a record stands out: a public function of one record, made from the released histograms.

    s(z) = Σ over columns of r(z's cell),   r = −log(max(count, half its noise) / rows)

A cell cannot look rarer than half its noise: with a fixed floor instead, a cell that noise happens to
empty would send ordinary records over any threshold. Fine bins are taken together to some sixteen per
column: what counts is whether a region is rare. Extreme numbers make a record stand out more than rare
categories do, so they count more: where the histogram is clear, a region with less than 1 % of the
records counts three times for what it is rarer than that; where noise leaves only few wide bins, a
quarter of the squared z-score, at most 6², is added instead.

Scores are integers in units of 2⁻¹⁶ nats, made of table look-ups and IEEE products, so they do not
depend on how the records are batched.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsynth.cells import Cells
from repsynth.encode import MISSING, Records
from repsynth.marginals import Marginals
from repsynth.schema import Numeric

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NAT = 2**16
"""Score units in one nat."""

RARE = 4.5
"""Minus the log of the share of records, about 1 %, below which a numeric region counts more."""

_REGIONS = 16
_RANDOM_SPAN = 8 * NAT
_EXTREMES = 0.25
_FARTHEST = 6.0


@dataclass(frozen=True)
class Score:
    """The released score function of the features (the label does not count).

    `rarity` holds, column by column, the score of each cell; `centre` and `scale`, in positions, give the
    z-scores of a numeric column with a coarse histogram (elsewhere the scale is infinite: none count).
    """

    cells: tuple[Cells, ...]
    rarity: tuple[Ints, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    salt: int | None = None
    """Where it is set, scores are random: a hash of the record in place of how much it stands out."""

    def of(self, records: Records) -> Ints:
        """The score of each record."""
        if self.salt is not None:
            return _hashed([records.codes[cells.column.name] for cells in self.cells], records.rows, self.salt)
        score = np.zeros(records.rows, dtype=np.int64)
        for cells, rarity, centre, scale in zip(self.cells, self.rarity, self.centre, self.scale, strict=True):
            score += rarity[cells.of(records)]
            if scale < math.inf:
                z = standardise(records.codes[cells.column.name], centre, scale, _FARTHEST)
                score += np.floor(z * z * (_EXTREMES * NAT)).astype(np.int64)
        return score

    @property
    def lowest(self) -> int:
        """The smallest score that any record can have is no smaller than this."""
        return 0 if self.salt is not None else int(sum(int(rarity.min()) for rarity in self.rarity))


def make_score(marginals: Marginals, label: str | None, *, random: bool = False) -> Score:
    """The score function from the released histograms: post-processing.

    With `random`, scores are uniform and say nothing about a record, as the ablation of that name needs.
    """
    kept = [i for i, cells in enumerate(marginals.cells) if cells.column.name != label]
    rarity, centres, scales = [], [], []
    for i in kept:
        region = regions(marginals.cells[i])
        counts = np.bincount(region, marginals.noisy(i)).astype(np.float64)
        noise = marginals.sigma * np.sqrt(np.bincount(region))
        rare = rarity_of(counts, noise, marginals.rows, steep=steep(marginals, i))
        rarity.append(np.floor(rare * NAT).astype(np.int64)[region])
        coarse = marginals.cells[i].starts is not None and not marginals.clear(i)
        centre, scale = standardisation(marginals, i) if coarse else (0.0, math.inf)
        centres.append(centre)
        scales.append(scale)
    cells = tuple(marginals.cells[i] for i in kept)
    return Score(cells, tuple(rarity), tuple(centres), tuple(scales), random_salt(marginals) if random else None)


def random_salt(marginals: Marginals) -> int:
    """A salt for random scores: a hash of the released counts, so it is public and differs between releases."""
    return int.from_bytes(hashlib.sha256(marginals.counts.tobytes()).digest()[:8], "little")


def _hashed(columns: list[Ints], rows: int, salt: int) -> Ints:
    """Uniform from 0 to `_RANDOM_SPAN`, by mixing the bits of a record's codes (as splitmix64 does)."""
    mixed = np.full(rows, salt, dtype=np.uint64)
    for codes in columns:
        mixed = (mixed ^ codes.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(_RANDOM_SPAN)).astype(np.int64)


def rarity_of(counts: Floats, noise: Floats, rows: float, *, steep: bool) -> Floats:
    """r of regions with these counts, in nats: it falls with the count.

    >>> rarity_of(np.array([100.0, 1.0]), np.array([4.0, 4.0]), 1000.0, steep=False).round(2).tolist()
    [2.3, 6.21]
    """
    rare: Floats = -np.log(np.maximum(counts, noise / 2) / rows)
    return rare + 2 * np.maximum(rare - RARE, 0.0) if steep else rare


def steep(marginals: Marginals, column: int) -> bool:
    """Whether rare regions of a column count more: numeric columns with a clear histogram."""
    return marginals.cells[column].starts is not None and marginals.clear(column)


def regions(cells: Cells) -> Ints:
    """For each cell the region it is counted in: itself, or some neighbouring bins of many.

    The lower bound's own bin and the one for missing values stay apart.
    """
    if cells.starts is None or cells.values <= 2 * _REGIONS:
        return np.arange(cells.count)
    bins = cells.values - 1
    merged = 1 + np.arange(bins) * _REGIONS // bins
    return np.concatenate([[0], merged, [_REGIONS + 1]])


def standardisation(marginals: Marginals, column: int) -> tuple[float, float]:
    """Centre and scale of a numeric column in positions."""
    domain = marginals.cells[column].column
    assert isinstance(domain, Numeric)
    centre, scale = marginals.centre_and_scale(column)
    return centre * (domain.steps + 1) - 0.5, scale * (domain.steps + 1)


def standardise(positions: Ints, centre: float, scale: float, farthest: float) -> Floats:
    """Clipped z-scores; 0 where the value is missing."""
    z = np.clip((positions - centre) / scale, -farthest, farthest)
    return np.where(positions == MISSING, 0.0, z)
