"""How numbers are spread inside the bins of the histograms: a measurement in finer bins, with weights.

Every record pays for the histograms in full, so they get a small share and few bins: what scores need. What they
hide, such as a 40-hour week in a bin from 39 to 41, is measured here, once weights are known, and outliers pay by
their weight. Scores are made of bins about as wide, so that weights hardly differ from one value of a bin to the
next: inside of it, weighted counts have the right proportions. Nothing else is taken from them.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.mechanism.meter import sigma_for
from repsynth.models.groups import Groups, levels, probabilities_within
from repsynth.models.mixture import posterior_means
from repsynth.models.shapes import Shape
from repsynth.schema import Numeric, Schema
from repsynth.scoring.bins import Bins, read_bins
from repsynth.scoring.histograms import Histograms, counts_of
from repsynth.scoring.weights import FULL, WeightFunction
from repsynth.storage.checks import ints, require

if TYPE_CHECKING:
    from repsynth.data.records import Records
    from repsynth.mechanism.meter import Meter
    from repsynth.privacy.events import Charge
    from repsynth.scoring.base import Arrays, Score
    from repsynth.scoring.stage import StageOne

FINE = "fine histograms"
"""What the measurement is called."""

_FEW = 16  # values that the histograms tell apart, whatever their noise
_FEWEST, _MOST = 64, 1024
_FULL_BIN = 8.0  # records of a bin that noise does not drown, in units of it
_MOST_LOADED = 2**14

_WIDTHS = 4.0 ** np.arange(-2, 9)
"""Variances of the mixture's parts, in units of the noise's, for a bin of mean size."""
_NONE = 3.0
"""So many bins more are believed to be as expected: a column needs some evidence that they are not."""
_LEAST = 0.001
"""Of what is expected in a bin: none is taken to be empty."""


@dataclass(frozen=True)
class FineHistograms:
    """The statistic: a record adds its weight, in units of 1/FULL, to one bin of each column."""

    bins: tuple[Bins, ...]
    score: "Score"
    weights: WeightFunction
    name: str = FINE
    unit: int = FULL
    weighted: bool = True

    @property
    def sensitivity(self) -> float:
        """One bin of each column, at full weight."""
        return FULL * math.sqrt(len(self.bins))

    def total(self, records: "Records") -> Ints:
        """All histograms, one behind the other.

        `np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact.
        """
        weights = self.weights.of(self.score.of(records)).astype(np.float64)
        counts = [np.bincount(bins.of(records), weights, minlength=bins.count) for bins in self.bins]
        return np.concatenate(counts).astype(np.int64)


@dataclass(frozen=True)
class Fine:
    """The noisy result, a released value. `columns` are the places among the learned columns of those that were
    measured."""

    statistic: FineHistograms
    noisy: Ints
    sigma: float
    columns: tuple[int, ...]

    @cached_property
    def _place(self) -> dict[int, int]:
        return {i: k for k, i in enumerate(self.columns)}

    def shapes(self, histograms: Histograms, all_groups: tuple[Groups, ...]) -> tuple[Shape, ...]:
        return tuple(self._kept_shape(histograms, i, groups) for i, groups in enumerate(all_groups))

    def _kept_shape(self, histograms: Histograms, i: int, groups: Groups) -> Shape:
        """Each is worked out once: a run fits many trees of the same groups."""
        if i not in self._kept or self._kept[i][0] is not groups:
            self._kept[i] = groups, self._shape(histograms, i, groups)
        return self._kept[i][1]

    @cached_property
    def _kept(self) -> dict[int, tuple[Groups, Shape]]:
        return {}

    def _shape(self, histograms: Histograms, i: int, groups: Groups) -> Shape:
        within = probabilities_within(histograms, i, groups)
        if i not in self._place:
            return Shape.of(histograms, i, within)
        k = self._place[i]
        finer, counts = self.statistic.bins[k], counts_of(self.statistic.bins, self.noisy, k) / FULL
        spread = spread_inside(histograms.bins[i], finer, counts, self.sigma / FULL)
        # As if the finer bins had been counted. A value between them is a spike where it stands above the noise.
        believed = np.maximum(levels(histograms, i), 0.0) @ spread
        alone = {0: histograms.roundness[i]} if i in histograms.roundness else {}
        located = frozenset([0] if i in histograms.located else [])
        seen = Histograms((finer,), believed, self.sigma / FULL, histograms.rows, alone, located)
        return Shape.of(seen, 0, within @ spread)

    def dump(self) -> "Arrays":
        starts = (bins.starts for bins in self.statistic.bins)
        return {
            "fine_columns": np.array(self.columns, dtype=np.int64),
            "fine_counts": self.noisy,
            **{f"fine_starts_{k}": each for k, each in enumerate(starts) if each is not None},
        }


def fine_columns(schema: Schema) -> tuple[int, ...]:
    """The places, among the learned columns, of those with more values than the histograms may tell apart.

    >>> from repsynth.schema import Boolean, Integer
    >>> fine_columns(Schema(columns=(Boolean(name="smoker"), Integer(name="age", min=0, max=99))))
    (1,)
    """
    return tuple(i for i, c in enumerate(schema.learned) if isinstance(c, Numeric) and c.positions > _FEW)


def measure_fine(meter: "Meter", stage: "StageOne", charge: "Charge") -> Fine:
    """Measure the columns that have a bin with more than one value; where none has, all that might have one."""
    histograms, possible = stage.histograms, fine_columns(stage.schema)
    columns = tuple(i for i in possible if (histograms.bins[i].widths > 1).any()) or possible
    bins = tuple(_finer(stage, i, math.sqrt(len(columns)) / charge.per_row) for i in columns)
    statistic = FineHistograms(bins, stage.score, stage.weights)
    noisy = meter.measure(statistic, mu=charge.mu)
    return Fine(statistic, noisy, sigma_for(statistic.sensitivity, charge.per_row), columns)


def load_fine(stage: "StageOne", sigma: float, arrays: "Arrays") -> Fine:
    """What `Fine.dump` gave, from a stranger's file."""
    columns = tuple(ints(arrays["fine_columns"], most=len(stage.schema.learned) - 1).tolist())
    possible = set(fine_columns(stage.schema))
    known = len(columns) > 0 and list(columns) == sorted(possible & set(columns))
    require(known, "its fine histograms are of other columns")
    bins = []
    for k, i in enumerate(columns):
        coarse, column = stage.histograms.bins[i], stage.schema.learned[i]
        assert isinstance(column, Numeric)
        finer = read_bins(column, arrays[f"fine_starts_{k}"])
        inside = bool(np.isin(_starts(coarse), _starts(finer)).all())
        require(inside and finer.count <= _MOST_LOADED, "its fine bins are not parts of its bins")
        bins.append(finer)
    noisy = ints(arrays["fine_counts"], sum(each.count for each in bins), most=2**62)
    return Fine(FineHistograms(tuple(bins), stage.score, stage.weights), noisy, sigma, columns)


def _finer(stage: "StageOne", i: int, sigma: float) -> Bins:
    """A column's bins, divided: into as many as the noise allows, equal ones or, where a look has placed the bins,
    where it shows numbers."""
    histograms = stage.histograms
    bins, many = histograms.bins[i], histograms.rows / (_FULL_BIN * sigma)
    column = bins.column
    assert isinstance(column, Numeric)
    if i in histograms.located:
        assert stage.ranges is not None  # nothing else locates
        further = stage.ranges.finer(i, sigma)
    else:
        further = _starts(Bins.binned(column, int(2 ** np.round(np.log2(np.clip(many, _FEWEST, _MOST))))))
    return Bins.at(column, np.concatenate([_starts(bins), further]))


def spread_inside(bins: Bins, finer: Bins, counts: Floats, sigma: float) -> Floats:
    """(bins, finer bins), special values and missing included: how the records of a bin are spread over its parts.

    Evenly by width, and beyond that as the noisy counts of the parts say, as far as they stand above their noise.
    How far parts lie from even is taken for a mixture of normal distributions, which the column itself tells
    (empirical Bayes): one with a few spikes keeps these, a smooth one stays even.

    >>> from repsynth.schema import Integer
    >>> age = Integer(name="age", min=0, max=5)
    >>> bins, finer = (Bins.at(age, np.array(starts)) for starts in ([0, 3], range(6)))
    >>> spread = spread_inside(bins, finer, np.array([900.0, 10.0, -8.0, 90.0, 99.0, 111.0, 0.0]), 10.0)
    >>> spread[0].round(2).tolist(), spread[1].round(2).tolist()
    ([0.99, 0.01, 0.0, 0.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.33, 0.33, 0.33, 0.0])
    """
    of_part = np.searchsorted(_starts(bins)[: bins.numbers], _starts(finer)[: finer.numbers], side="right") - 1
    widths, numbers = finer.widths.astype(np.float64), counts[: finer.numbers]
    parts = np.bincount(of_part)
    whole = np.maximum(np.bincount(of_part, numbers), sigma * np.sqrt(parts))
    expected = whole[of_part] * widths / np.bincount(of_part, widths)[of_part]
    found = expected.copy()
    divided = parts[of_part] > 1
    if divided.any():
        rest = (numbers - expected)[divided] / sigma
        size = expected[divided] / expected[divided].mean()
        spread = np.stack([np.zeros_like(rest), *np.multiply.outer(_WIDTHS, size)])
        more = np.append(_NONE, np.zeros(len(_WIDTHS)))
        found[divided] += sigma * posterior_means(rest, np.ones_like(rest), np.zeros_like(spread), spread, more)
    inside = np.zeros((bins.count, finer.count))
    inside[of_part, np.arange(finer.numbers)] = np.maximum(found, _LEAST * expected)
    others = np.arange(bins.count - bins.numbers)  # special values and missing
    inside[bins.numbers + others, finer.numbers + others] = 1.0
    probabilities: Floats = inside / inside.sum(axis=1, keepdims=True)
    return probabilities


def _starts(bins: Bins) -> Ints:
    assert bins.starts is not None
    return bins.starts
