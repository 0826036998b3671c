"""Stage 1: one noisy histogram per column, measured together, and what they tell about each column."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from repsynth.cells import Cells
from repsynth.encode import MISSING, Records
from repsynth.schema import Numeric

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# How much a column's true histogram is expected to differ from the typical one, as a sum of squared
# shares. Against the noise's own sum of squares it sets how far a noisy histogram is believed.
_SPREAD = 0.1


@dataclass(frozen=True)
class OneWay:
    """The statistic: each record adds one to one cell of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = OneWay((Cells.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    cells: tuple[Cells, ...]
    name: str = "score"

    @property
    def sensitivity(self) -> float:
        """Exact: one cell per column, whatever the record."""
        return math.sqrt(len(self.cells))

    def total(self, records: Records) -> Ints:
        """The histograms of all columns, one behind the other."""
        return np.concatenate([np.bincount(cells.of(records), minlength=cells.count) for cells in self.cells])


@dataclass(frozen=True)
class Marginals:
    """The noisy histograms, a released value; `rows` is the released or declared number of records."""

    cells: tuple[Cells, ...]
    counts: Ints
    sigma: float
    rows: float

    def noisy(self, column: int) -> Floats:
        """The noisy counts of one column as they were measured."""
        start = sum(cells.count for cells in self.cells[:column])
        return self.counts[start : start + self.cells[column].count].astype(np.float64)

    @cached_property
    def shares(self) -> tuple[Floats, ...]:
        """Each column's distribution over its cells without missing: shrunk to the typical, made proper.

        Shrinking is linear with a factor that depends on the noise level only: numeric columns go
        towards the mean of all that have the same bins, the others towards equal shares.
        """
        raw = [self.noisy(i)[:-1] / self.rows for i in range(len(self.cells))]
        groups: dict[int, list[int]] = {}
        for i, cells in enumerate(self.cells):
            if cells.starts is not None:
                groups.setdefault(cells.count, []).append(i)
        typical = {i: np.full(cells.values, 1 / cells.values) for i, cells in enumerate(self.cells)}
        for members in groups.values():
            believed = self.belief(len(raw[members[0]]), averaged=len(members))
            mean = np.mean([raw[i] for i in members], axis=0)
            for i in members:
                typical[i] = believed * mean + (1 - believed) * typical[i]
        beliefs = [self.belief(cells.values) for cells in self.cells]
        return tuple(
            to_simplex(belief * own + (1 - belief) * typical[i])
            for i, (belief, own) in enumerate(zip(beliefs, raw, strict=True))
        )

    def missing_share(self, column: int) -> float:
        """The share of missing cells in a column that declares them, as far as believed; 0 in any other."""
        if not self.cells[column].column.missing:
            return 0.0
        return float(np.clip(self.belief(1) * self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def clear(self, column: int) -> bool:
        """Whether a column's histogram stands so far above its noise that its shape can be trusted."""
        return self.belief(self.cells[column].values) >= 0.97

    def centre_and_scale(self, column: int) -> tuple[float, float]:
        """Mean and standard deviation in units of the whole range; numeric columns only."""
        edges = self.cells[column].edges()
        share = self.shares[column]
        width = np.diff(edges)
        middle = (edges[:-1] + edges[1:]) / 2
        centre = float(share @ middle)
        variance = float(share @ (middle**2 + width**2 / 12)) - centre**2
        return centre, max(math.sqrt(max(variance, 0.0)), float(np.median(width)) / 4)

    def trusted(self, column: int) -> Floats:
        """The shares without the cells that noise may have invented, those below two sigma."""
        share = self.shares[column]
        kept = np.where(share >= 2 * self.sigma / self.rows, share, 0.0)
        return kept / kept.sum() if kept.any() else share

    def quantile(self, column: int, share: Floats, level: Floats) -> Ints:
        """The position below which `level` of the records lie if they are spread over the column's cells
        by `share`; numeric columns only."""
        cells = self.cells[column]
        assert isinstance(cells.column, Numeric)
        ends = np.concatenate([[0.0], np.cumsum(share)])
        cell = np.clip(np.searchsorted(ends, level, side="right") - 1, 0, len(share) - 1)
        inside = np.clip((level - ends[cell]) / np.maximum(share[cell], 1e-300), 0.0, 1.0)
        edges = cells.edges()
        unit = edges[cell] + inside * (edges[cell + 1] - edges[cell])
        positions = np.floor(unit * (cells.column.steps + 1)).astype(np.int64)
        assert cells.starts is not None
        last = np.append(cells.starts[1:], cells.column.steps + 1)[cell] - 1
        inside_cell: Ints = np.clip(positions, cells.starts[cell], last)
        return inside_cell

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Records whose columns are independent and follow the shares: post-processing."""
        codes = {}
        for i, cells in enumerate(self.cells):
            level = (generator.permutation(rows) + generator.random()) / rows
            if cells.starts is None:
                ends = np.cumsum(self.shares[i])
                drawn = np.minimum(np.searchsorted(ends, level, side="right"), cells.values - 1)
            else:
                drawn = self.quantile(i, self.shares[i], level)
            absent = generator.permutation(rows) < round(self.missing_share(i) * rows)
            codes[cells.column.name] = np.where(absent, MISSING, drawn)
        return Records(rows=rows, codes=codes)

    def belief(self, values: int, *, averaged: int = 1) -> float:
        """How far a noisy histogram of so many cells is believed, from 0 to 1: by its noise alone."""
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
