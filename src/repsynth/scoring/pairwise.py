"""A scorer that also finds rare combinations of common values, in two-way tables of a few pairs of columns.

    pair selection   select pairs of columns that depend on each other                 (charge)
    pairs            measure their tables, in coarse groups of values                  (charge)

    s(z) = Σ over columns of a(z's value) − Σ over pairs of g(z's two values)

The rarity a is smoothed by a Gaussian kernel: a = −log E exp(−λ d), where d is the squared distance to the value
of a random record of the released histogram. Numbers are in standard deviations; the squared distance of two
categories is 2, as in one-hot space. The interaction g is the log ratio of the pair's frequency to the product
of its margins, shrunk by its noise. The pairs form a forest, so that no dependence counts twice (Chow and Liu
1968). Tables and sums are integers, so a score does not depend on the batch.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from repsynth.arrays import Arrays, Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import MOST_CELLS, Bins
from repsynth.io.records import Records
from repsynth.privacy.events import Charge
from repsynth.schema import Numeric, Schema
from repsynth.scoring.base import NAT, Scorer
from repsynth.storage import ints, require

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic
    from repsynth.mechanism.meter import Meter

SELECTION, PAIRS = "pair selection", "pairs"
Pair = tuple[int, int]

UNIT = 2**12
"""Units in a factor of 1: smoothing matrices are integers, so utilities have an exact sensitivity."""

_MOST, _HIGHEST = 2**50, 2**62  # largest expected count, largest utility: 64 bits do not overflow
_INVERSE_BANDWIDTH = 1.7  # λ, chosen on six tables; combining six values of λ finds no more outliers
_CELLS = 4 * MOST_CELLS  # cells of numbers
_REACH = 6.0  # standard deviations that these cells extend beyond the records
_GROUPS = 20  # groups of a column
_MOST_CELLS = 2**21  # cells of all tables: the memory of the selection
_SELECTION_PART = 0.2  # the selection's part of the share of the pairs
_RECORDS = 2.0 * _GROUPS  # records per pair, in units of a cell's noise: twice the L2 norm of a table's noise


class Pairwise(Scorer, frozen=True):
    """Smoothed rarity in the histograms and in two-way tables of a few pairs of columns."""

    name: ClassVar[str] = "pairwise"
    choices: ClassVar[frozenset[str]] = frozenset({SELECTION})
    no_bounds: ClassVar[str | None] = "the pairs of columns in the scores are selected during the run"
    pair_share: Annotated[
        float, Meta(ge=1e-6, le=0.5, description="of the score share, for tables of pairs of columns")
    ] = 0.02

    def shares(self, schema: Schema) -> Mapping[str, float]:
        if _features(schema) < 2:
            return {}
        return {SELECTION: self.pair_share * _SELECTION_PART, PAIRS: self.pair_share * (1 - _SELECTION_PART)}

    def sensitivity(self, schema: Schema, name: str) -> float:
        """Return the sensitivity of the largest number of tables: one cell of each."""
        return math.sqrt(_features(schema) - 1) if name == PAIRS else 1.0

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "PairwiseScore":
        spreads, rows = make_spreads(histograms, label), histograms.rows
        if PAIRS not in charges:
            return make_score(spreads, (), np.zeros(0, dtype=np.int64), 1.0, rows)
        charge = charges[PAIRS]
        rounds = int(np.clip(rows * charge.per_row / _RECORDS, 1, len(spreads) - 1))
        choice = PairChoice.of(spreads, rows, rounds)
        chosen = meter.choose(choice, mu=charges[SELECTION].mu)
        tables = PairTables.of(spreads, [choice.tables.pairs[k] for k in chosen], PAIRS)
        noisy = meter.measure(tables, mu=charge.mu)
        return make_score(spreads, chosen, noisy, tables.sensitivity / charge.per_row, rows)

    def load(
        self, histograms: Histograms, label: str | None, arrays: Arrays, sigmas: Mapping[str, float]
    ) -> "PairwiseScore":
        """Return the score of an untrusted file: its look-up tables, for pairs that a run can select."""
        spreads = tuple(s.read(i, arrays) for i, s in enumerate(make_spreads(histograms, label)))
        chosen, candidates = ints(arrays["pair_chosen"], most=2**40).tolist(), all_pairs(len(spreads))
        require(all(0 <= k < len(candidates) for k in chosen), "a pair of columns is unknown")
        pairs = [candidates[k] for k in chosen]
        require(not any(_connected(pairs[:k], pair) for k, pair in enumerate(pairs)), "its pairs form a cycle")
        shapes = PairTables.of(spreads, pairs, PAIRS).shapes
        flat = (ints(arrays[f"pair_gain_{k}"], math.prod(shape), most=2**40) for k, shape in enumerate(shapes))
        gains = tuple(gain.reshape(shape) for gain, shape in zip(flat, shapes, strict=True))
        counts = ints(arrays["pair_counts"], sum(map(math.prod, shapes)))
        again = make_score(spreads, tuple(chosen), counts, sigmas.get(PAIRS, 1.0), histograms.rows)
        about = all(np.abs(a - b).max() <= NAT // 1000 for a, b in zip(gains, again.gains, strict=True))
        require(about, "its scores do not follow from its tables")
        # A larger gain makes a smaller score, hence no smaller weight and no smaller stated loss.
        larger = tuple(np.maximum(a, b) for a, b in zip(gains, again.gains, strict=True))
        return replace(again, gains=larger)


@dataclass(frozen=True)
class Spread:
    """What follows from a column's released histogram: smoothed rarity of cells, and groups in two-way tables."""

    cells: Bins
    rarity: Ints
    """a of each cell, in score units."""
    of_cell: Ints
    """The group of each cell in two-way tables."""
    masses: Floats
    """The mass of each group."""
    close: Floats
    """exp(−λ d), averaged over the records of two groups."""

    @classmethod
    def of(cls, cells: Bins, masses: Floats, middles: Floats, of_cell: Ints, rows: float) -> "Spread":
        """Make a spread from the mass and group of each cell, and the middles of numbers in standard deviations.

        No value is rarer than a single record. So a column whose spread is within the noise does not dominate.
        """
        k, off = len(middles), math.exp(-2 * _INVERSE_BANDWIDTH)  # numbers; exp(−λ d) of two other values
        numbers = np.exp(-_INVERSE_BANDWIDTH * (middles[:, None] - middles) ** 2)
        near = masses + off * (masses.sum() - masses)
        near[:k] = numbers @ masses[:k] + off * masses[k:].sum()
        rarity = np.floor(-np.log(np.maximum(near, 1 / rows)) * NAT).astype(np.int64)
        within = np.zeros((int(of_cell.max()) + 1, cells.count))
        within[of_cell, np.arange(cells.count)] = masses + 1e-12
        within /= within.sum(axis=1, keepdims=True)
        close = off + within[:, :k] @ (numbers - off) @ within[:, :k].T
        close += (1 - off) * (within[:, k:] @ within[:, k:].T)
        return cls(cells, rarity, of_cell, np.bincount(of_cell, masses).astype(float), close)

    def read(self, i: int, arrays: Arrays) -> "Spread":
        """Return the spread with the scores of an untrusted file, which may differ from its own by one unit."""
        column = self.cells.column
        if isinstance(column, Numeric):
            starts = arrays[f"cell_starts_{i}"]
            require(np.array_equal(self.cells.starts, starts), "its cells do not follow from its histograms")  # type: ignore[arg-type]
        of_cell = ints(arrays[f"pair_groups_{i}"], self.cells.count, most=2**20)
        require(np.array_equal(of_cell, self.of_cell), "its groups do not follow from its histograms")
        rarity = ints(arrays[f"pair_rarity_{i}"], self.cells.count, most=2**40)
        require(bool(np.all(np.abs(rarity - self.rarity) <= 1)), "its scores do not follow from its histograms")
        return replace(self, rarity=np.minimum(rarity, self.rarity))


def make_spreads(histograms: Histograms, label: str | None) -> tuple[Spread, ...]:
    """Return the spreads of all columns except the label: post-processing."""
    features = [i for i, bins in enumerate(histograms.bins) if bins.column.name != label]
    groups = math.isqrt(_MOST_CELLS // max(len(all_pairs(len(features))), 1))
    return tuple(spread_of(histograms, i, int(np.clip(groups, 2, _GROUPS))) for i in features)


def spread_of(histograms: Histograms, column: int, groups: int) -> Spread:
    """Return the spread of a column with about `groups` groups.

    Numbers have cells of equal width and groups of equal mass. The most frequent categories have their own groups;
    the others share one.
    """
    bins, absent = histograms.bins[column], histograms.absent_fraction(column)
    masses = np.append(histograms.probabilities[column] * (1 - absent), absent)
    if not isinstance(bins.column, Numeric):
        rank = np.argsort(np.argsort(-masses, kind="stable"))
        return Spread.of(bins, masses, np.zeros(0), np.minimum(rank, groups - 1), histograms.rows)
    assert bins.starts is not None
    numbers, starts, ends = masses[: bins.numbers], bins.starts[: bins.numbers], bins.ends
    middle, widths = (starts + ends - 1) / 2, bins.widths.astype(np.float64)
    total = max(float(numbers.sum()), 1e-300)
    variance = (middle - float(numbers @ middle) / total) ** 2 + (widths**2 - 1) / 12
    scale = max(math.sqrt(float(numbers @ variance) / total), 1e-3)  # the standard deviation, in positions
    held = np.flatnonzero(numbers > 0) if numbers.any() else np.arange(bins.numbers)
    low = max(starts[held[0]] - _REACH * scale, 0.0)
    high = min(ends[held[-1]] + _REACH * scale, bins.column.steps + 1.0)
    cells = Bins.at(bins.column, np.rint(np.linspace(low, high, _CELLS, endpoint=False)).astype(np.int64))
    assert cells.starts is not None
    edges = np.append(cells.starts[: cells.numbers], cells.ends[-1])
    inside = np.diff(np.interp(edges, np.append(starts, ends[-1]), np.append(0.0, np.cumsum(numbers))))
    before = (np.cumsum(inside) - inside / 2) / max(float(inside.sum()), 1e-300)
    of_number = np.unique(np.floor(np.minimum(before, 1 - 1e-9) * groups), return_inverse=True)[1]
    others = of_number.max() + 1 + np.arange(cells.count - len(inside))  # special values and missing
    masses = np.concatenate([inside, masses[bins.numbers :]])
    middles = (edges[:-1] + edges[1:] - 1) / (2 * scale)
    return Spread.of(cells, masses, middles, np.append(of_number, others), histograms.rows)


@dataclass(frozen=True)
class PairTables:
    """The statistic: each record adds one to one cell of every pair's table."""

    cells: tuple[Bins, ...]
    groups: tuple[Ints, ...]
    """The group of each cell of every column."""
    pairs: tuple[Pair, ...]
    name: str
    unit: int = 1
    weighted: bool = False

    @classmethod
    def of(cls, spreads: Sequence[Spread], pairs: Sequence[Pair], name: str) -> "PairTables":
        return cls(tuple(s.cells for s in spreads), tuple(s.of_cell for s in spreads), tuple(pairs), name)

    @property
    def sensitivity(self) -> float:
        """Exact: one cell of each table."""
        return math.sqrt(len(self.pairs))

    @cached_property
    def shapes(self) -> tuple[Pair, ...]:
        count = [int(of_cell.max()) + 1 for of_cell in self.groups]
        return tuple((count[a], count[b]) for a, b in self.pairs)

    def total(self, records: Records) -> Ints:
        """Return all tables, flat."""
        group = {i: self.groups[i][self.cells[i].of(records)] for pair in self.pairs for i in pair}
        parts = [
            np.bincount(group[a] * columns + group[b], minlength=rows * columns)
            for (a, b), (rows, columns) in zip(self.pairs, self.shapes, strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64)

    def split(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), self.shapes, strict=False)]


@dataclass(frozen=True)
class PairChoice:
    """The selection of the pairs whose smoothed table is farthest from the product of its margins.

    `smooth` has for each column a public integer matrix whose columns sum to at most `UNIT`. So one record changes
    the cells of a smoothed table by at most `UNIT`² in total, and every utility by no more.
    """

    tables: PairTables
    smooth: tuple[Ints, ...]
    expected: tuple[Ints, ...]
    """The smoothed product of the released margins of each pair: public."""
    rounds: int
    name: str = SELECTION
    unit: int = UNIT**2
    weighted: bool = False

    @classmethod
    def of(cls, spreads: Sequence[Spread], rows: float, rounds: int) -> "PairChoice":
        """Return the selection among all pairs, which follows from the released histograms."""
        smooth = [np.floor(s.close / s.close.sum(axis=0) * UNIT).astype(np.int64) for s in spreads]
        margins = [each @ (s.masses * math.sqrt(rows)) for each, s in zip(smooth, spreads, strict=True)]
        pairs = all_pairs(len(spreads))
        products = (np.clip(np.outer(margins[a], margins[b]), 0.0, _MOST) for a, b in pairs)
        expected = tuple(np.rint(product).astype(np.int64) for product in products)
        return cls(PairTables.of(spreads, pairs, SELECTION), tuple(smooth), expected, rounds)

    def total(self, records: Records) -> Ints:
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """Return each pair's distance from independence.

        A pair that would close a cycle is excluded, and so is stopping while a pair is left.
        """
        from repsynth.mechanism.kernels import OUT

        pairs = self.tables.pairs
        # Use Python's integers if 64 bits may overflow. Clipping utilities does not increase their differences.
        if units > 1 and int(total.max(initial=0)) >= 2**26:
            total = total.astype(object)
        distances = [
            np.abs(self.smooth[a] @ table @ self.smooth[b].T - np.minimum(expected, _MOST // units) * units).sum()
            for (a, b), table, expected in zip(pairs, self.tables.split(total), self.expected, strict=True)
        ]
        out = np.array([_connected([pairs[k] for k in chosen], pair) for pair in pairs])
        cut = [min(int(distance), _HIGHEST) for distance in distances]
        return np.append(0 if out.all() else OUT, np.where(out, OUT, cut)).astype(np.int64)


@dataclass(frozen=True)
class PairwiseScore:
    """The released score function of all columns except the label: look-up tables in score units."""

    spreads: tuple[Spread, ...]
    gains: tuple[Ints, ...]
    """g of every two groups of each pair."""
    chosen: tuple[int, ...]
    counts: Ints
    rows: float

    @cached_property
    def tables(self) -> PairTables:
        return PairTables.of(self.spreads, [all_pairs(self.columns)[k] for k in self.chosen], PAIRS)

    @property
    def columns(self) -> int:
        return len(self.spreads)

    @property
    def lowest(self) -> int:
        """Exact: eliminate a column with a single pair left, until no pair is left."""
        least = [np.full(len(spread.masses), 2**62) for spread in self.spreads]
        for each, spread in zip(least, self.spreads, strict=True):
            np.minimum.at(each, spread.of_cell, spread.rarity)
        left = dict(zip(self.tables.pairs, self.gains, strict=True))
        while left:
            ends = [i for pair in left for i in pair]
            pair, leaf = next((pair, i) for pair in left for i in pair if ends.count(i) == 1)
            gain, other = left.pop(pair), sum(pair) - leaf
            least[other] += (least[leaf] - (gain if leaf == pair[1] else gain.T)).min(axis=1)
            least[leaf] = np.zeros(1, dtype=np.int64)
        return sum(int(each.min()) for each in least)

    def of(self, records: Records) -> Ints:
        score, group = np.zeros(records.rows, dtype=np.int64), []
        for spread in self.spreads:
            cell = spread.cells.of(records)
            score += spread.rarity[cell]
            group.append(spread.of_cell[cell])
        for (a, b), gain in zip(self.tables.pairs, self.gains, strict=True):
            score -= gain[group[a], group[b]]
        return score

    def tails(self, exact: Histograms, most: float = 1.0) -> None:
        """Return None: the pairs and their groups depend on the noise."""

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        from repsynth.mechanism.kernels import Chosen

        if not self.chosen:
            return {}
        choice = PairChoice.of(self.spreads, self.rows, len(self.chosen))
        return {SELECTION: Chosen(choice, self.chosen), PAIRS: self.tables}

    def dump(self) -> Arrays:
        arrays: Arrays = {"pair_chosen": np.array(self.chosen, dtype=np.int64), "pair_counts": self.counts}
        for i, spread in enumerate(self.spreads):
            arrays |= {f"pair_rarity_{i}": spread.rarity, f"pair_groups_{i}": spread.of_cell}
            if spread.cells.starts is not None:
                arrays[f"cell_starts_{i}"] = spread.cells.starts
        return arrays | {f"pair_gain_{k}": gain.ravel() for k, gain in enumerate(self.gains)}


def make_score(
    spreads: tuple[Spread, ...], chosen: tuple[int, ...], noisy: Ints, sigma: float, rows: float
) -> PairwiseScore:
    """Return the score function of released values: post-processing."""
    tables = PairTables.of(spreads, [all_pairs(len(spreads))[k] for k in chosen], PAIRS)
    gains = tuple(
        np.floor(gain_of(spreads[a], spreads[b], table, sigma, rows) * NAT).astype(np.int64)
        for (a, b), table in zip(tables.pairs, tables.split(noisy), strict=True)
    )
    return PairwiseScore(spreads, gains, chosen, noisy, rows)


def gain_of(one: Spread, other: Spread, table: Ints, sigma: float, rows: float) -> Floats:
    """Return g of every two groups, in nats.

    The histograms estimate the margins better than the table does, so the table's margins are removed with their
    noise. The number of records close to both values is at most the number close to either.
    """
    product = rows * np.outer(one.masses, other.masses)
    expected = one.close @ product @ other.close.T
    inner, outer = (each.close - each.close.mean(axis=1, keepdims=True) for each in (one, other))
    more = inner @ (table - product) @ outer.T
    noise = sigma * np.outer(np.linalg.norm(inner, axis=1), np.linalg.norm(outer, axis=1))
    kept = more * np.maximum(1 - (noise / np.maximum(np.abs(more), 1e-9)) ** 2, 0.0)
    most = rows * np.minimum.outer(one.close @ one.masses, other.close @ other.masses)
    found = np.minimum(np.maximum(expected + kept, np.minimum(expected, noise)), most)
    known = (found > 0) & (expected > 0)
    return np.log(np.where(known, found, 1.0) / np.where(known, expected, 1.0))


def all_pairs(columns: int) -> tuple[Pair, ...]:
    """Return every pair of features, by place."""
    return tuple(combinations(range(columns), 2))


def _connected(pairs: Sequence[Pair], pair: Pair) -> bool:
    """Return whether the pairs connect the two columns of another pair."""
    reached, before = {pair[0]}, 0
    while len(reached) > before:
        before = len(reached)
        reached |= {i for each in pairs if not reached.isdisjoint(each) for i in each}
    return pair[1] in reached


def _features(schema: Schema) -> int:
    return sum(column.name != schema.label for column in schema.learned)
