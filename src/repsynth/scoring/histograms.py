"""Stage 1: one noisy histogram per column, measured together, and what they tell about each column."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.schema import Numeric
from repsynth.scoring.bins import Bins

# How much a column's true histogram is expected to differ from the typical one, as a sum of squared
# probabilities. Against the noise's own sum of squares it sets how far a noisy histogram is shrunk.
_SPREAD = 0.1


@dataclass(frozen=True)
class ColumnHistograms:
    """The statistic: each record adds one to one bin of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = ColumnHistograms((Bins.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    bins: tuple[Bins, ...]
    name: str = "histograms"
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        """Exact: one bin per column, whatever the record."""
        return math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        """The histograms of all columns, one behind the other."""
        return np.concatenate([np.bincount(bins.of(records), minlength=bins.count) for bins in self.bins])


@dataclass(frozen=True)
class Histograms:
    """The noisy histograms, a released value; `rows` is the released or declared number of records."""

    bins: tuple[Bins, ...]
    counts: Ints
    sigma: float
    rows: float

    def noisy(self, column: int) -> Floats:
        """The noisy counts of one column as they were measured."""
        start = sum(bins.count for bins in self.bins[:column])
        return self.counts[start : start + self.bins[column].count].astype(np.float64)

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """Each column's distribution over its bins without missing: shrunk to the typical, made proper.

        Shrinking is linear with a factor that depends on the noise level only: numeric columns go
        towards the mean of all that have the same bins, the others towards equal probabilities.
        """
        raw = [self.noisy(i)[:-1] / self.rows for i in range(len(self.bins))]
        groups: dict[int, list[int]] = {}
        for i, bins in enumerate(self.bins):
            if bins.starts is not None:
                groups.setdefault(bins.count, []).append(i)
        typical = {i: np.full(bins.values, 1 / bins.values) for i, bins in enumerate(self.bins)}
        for members in groups.values():
            factor = self.shrinkage(len(raw[members[0]]), averaged=len(members))
            mean = np.mean([raw[i] for i in members], axis=0)
            for i in members:
                typical[i] = factor * mean + (1 - factor) * typical[i]
        factors = [self.shrinkage(bins.values) for bins in self.bins]
        return tuple(
            to_simplex(factor * own + (1 - factor) * typical[i])
            for i, (factor, own) in enumerate(zip(factors, raw, strict=True))
        )

    def missing_fraction(self, column: int) -> float:
        """The fraction of missing cells in a column that declares them, shrunk; 0 in any other."""
        if not self.bins[column].column.missing:
            return 0.0
        return float(np.clip(self.shrinkage(1) * self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def clear(self, column: int) -> bool:
        """Whether a column's histogram stands so far above its noise that its shape can be trusted."""
        return self.shrinkage(self.bins[column].values) >= 0.97

    def centre_and_scale(self, column: int) -> tuple[float, float]:
        """Mean and standard deviation in units of the whole range; numeric columns only."""
        edges = self.bins[column].edges()
        probabilities = self.probabilities[column]
        width = np.diff(edges)
        middle = (edges[:-1] + edges[1:]) / 2
        centre = float(probabilities @ middle)
        variance = float(probabilities @ (middle**2 + width**2 / 12)) - centre**2
        return centre, max(math.sqrt(max(variance, 0.0)), float(np.median(width)) / 4)

    def trusted(self, column: int) -> Floats:
        """The probabilities without the bins that noise may have invented, those below two sigma."""
        probabilities = self.probabilities[column]
        kept = np.where(probabilities >= 2 * self.sigma / self.rows, probabilities, 0.0)
        return kept / kept.sum() if kept.any() else probabilities

    def quantile(self, column: int, probabilities: Floats, level: Floats) -> Ints:
        """The position below which `level` of the records lie if they are spread over the column's bins
        by `probabilities`; numeric columns only."""
        bins = self.bins[column]
        assert isinstance(bins.column, Numeric)
        ends = np.concatenate([[0.0], np.cumsum(probabilities)])
        cell = np.clip(np.searchsorted(ends, level, side="right") - 1, 0, len(probabilities) - 1)
        inside = np.clip((level - ends[cell]) / np.maximum(probabilities[cell], 1e-300), 0.0, 1.0)
        edges = bins.edges()
        unit = edges[cell] + inside * (edges[cell + 1] - edges[cell])
        positions = np.floor(unit * (bins.column.steps + 1)).astype(np.int64)
        assert bins.starts is not None
        last = np.append(bins.starts[1:], bins.column.steps + 1)[cell] - 1
        inside_cell: Ints = np.clip(positions, bins.starts[cell], last)
        return inside_cell

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Records whose columns are independent and follow the probabilities: post-processing."""
        codes = {}
        for i, bins in enumerate(self.bins):
            level = (generator.permutation(rows) + generator.random()) / rows
            if bins.starts is None:
                ends = np.cumsum(self.probabilities[i])
                drawn = np.minimum(np.searchsorted(ends, level, side="right"), bins.values - 1)
            else:
                drawn = self.quantile(i, self.probabilities[i], level)
            absent = generator.permutation(rows) < round(self.missing_fraction(i) * rows)
            codes[bins.column.name] = np.where(absent, MISSING, drawn)
        return Records(rows=rows, codes=codes)

    def shrinkage(self, values: int, *, averaged: int = 1) -> float:
        """The factor by which a noisy histogram of so many bins is shrunk, from 0 to 1: by its noise alone."""
        noise = values * (self.sigma / self.rows) ** 2 / averaged
        return _SPREAD / (_SPREAD + noise)


def to_simplex(vector: Floats) -> Floats:
    """The nearest probability vector (along the last axis).

    >>> to_simplex(np.array([0.5, 0.7, -0.1])).round(6).tolist()
    [0.4, 0.6, 0.0]
    """
    ordered = -np.sort(-vector, axis=-1)
    excess = np.cumsum(ordered, axis=-1) - 1
    ranks = np.arange(1, vector.shape[-1] + 1)
    kept = np.sum(ordered - excess / ranks > 0, axis=-1, keepdims=True)
    shift = np.take_along_axis(excess, kept - 1, axis=-1) / kept
    nearest: Floats = np.maximum(vector - shift, 0.0)
    return nearest
