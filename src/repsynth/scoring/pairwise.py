"""How far a record lies from the others, by the histograms and by two-way tables of a few pairs of columns.

    pair choice   choose pairs of columns that depend on each other                 (charge)
    pairs         measure their tables, in coarse groups                            (charge)

If the columns were independent, the number of records within a squared distance r of a record z would be at most
about rows × exp(λ r − A(z, λ)) for every λ, where A adds up how rare close values are in each column (`apart`).
So its nearest records are about

    s(z) = max over λ of (A(z, λ) − log rows) / λ

away. The largest mean over three neighbouring λ is taken: the largest at a single one would often be that at which
noise, or what the pairs do not tell, makes it large.

A pair's table corrects A for what its columns tell of each other: a combination that is more frequent than the
product of its margins is closer to others, one that is rarer is farther away, as far as the table stands above its
noise. Ordinary values in a rare combination stand out then, and what two columns say in common (a degree, and the
years that it takes) counts once.

Pairs may close circles: one that tells much does so still where others have connected its columns, and one that
tells little adds noise. So that nothing is counted twice without end, columns are taken one after the other, each
for what is left of it after the pairs with columns before it, and never for less than nothing: where several
columns say the same, only the first counts.

The table look-ups and sums are integers, so that a score does not depend on how the records are batched.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins, read_bins
from repsynth.data.records import Records
from repsynth.privacy.events import Charge
from repsynth.schema import Numeric, Schema
from repsynth.scoring.apart import SHARPNESS, Spread, spreads_of
from repsynth.scoring.base import NAT, Arrays, Scorer
from repsynth.storage.checks import ints, require

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Chosen, Statistic
    from repsynth.mechanism.meter import Meter

CHOICE, PAIRS = "pair choice", "pairs"
Pair = tuple[int, int]

UNIT = 2**12
"""Units in a factor of 1."""

_MOST = 2**50  # that is expected of a cell
_HIGHEST = 2**62

_MOST_PAIRS, _RECORDS_PER_NOISE = 12, 40.0
_SMALL = 60.0  # records times the tables' μ: of fewer, no pair stands above its noise
_MOST_GROUPS, _FEWEST_GROUPS, _MOST_CELLS = 20, 4, 2_000_000
_CHOICE_PART = 0.2  # of the pairs' share
_SMOOTH = 4  # the place of the λ by which pairs are compared
_SCALE = 2.0  # the sharpness at which a score is in nats: so it spreads about as far as that of `rarity`
_TOGETHER = 3  # neighbouring λ that make one level
_LEVELS = [SHARPNESS[k : k + _TOGETHER] for k in range(len(SHARPNESS) - _TOGETHER + 1)]
FACTORS = tuple(round(UNIT * _SCALE * sum(1 / x for x in level) / _TOGETHER) for level in _LEVELS)
"""What a score of each level is multiplied by, in units of 1/UNIT."""

_RAREST = 0.02  # of the product of the margins: no table makes a combination rarer than that


class Pairwise(Scorer, frozen=True):
    """How far away the nearest records are, by the histograms and two-way tables of a few pairs of columns."""

    name: ClassVar[str] = "pairwise"
    choices: ClassVar[frozenset[str]] = frozenset({CHOICE})
    no_bounds: ClassVar[str | None] = "the pairs of columns that scores look at are chosen in the run"
    pair_share: Annotated[
        float, Meta(ge=1e-6, le=0.5, description="of the score share, for tables of pairs of columns")
    ] = 0.02

    def shares(self, schema: Schema) -> Mapping[str, float]:
        """The choice of the pairs and their tables; nothing where there are no pairs."""
        if len(_features(schema)) < 2:
            return {}
        return {CHOICE: self.pair_share * _CHOICE_PART, PAIRS: self.pair_share * (1 - _CHOICE_PART)}

    def worthwhile_shares(self, schema: Schema, *, mu: float, rows: int | None) -> Mapping[str, float]:
        """None where a table is known to be so small that no pair stands above its noise."""
        shares = self.shares(schema)
        small = rows is not None and bool(shares) and rows * mu * math.sqrt(shares[PAIRS]) < _SMALL
        return {} if small else shares

    def sensitivity(self, schema: Schema, name: str) -> float:
        """One cell of each table, of as many as may be chosen."""
        return math.sqrt(min(_MOST_PAIRS, len(_features(schema)) - 1)) if name == PAIRS else 1.0

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "PairwiseScore":
        spreads = _spreads(histograms, label)
        if PAIRS not in charges:
            return make_score(spreads, (), (), np.zeros(0, dtype=np.int64), 1.0, histograms.rows)
        charge = charges[PAIRS]
        rounds = how_many_pairs(histograms.rows, charge.per_row, len(spreads))
        choice = PairChoice.of(spreads, histograms.rows, rounds)
        chosen = meter.choose(choice, mu=charges[CHOICE].mu)
        tables = PairTables.of(spreads, [choice.tables.pairs[k] for k in chosen], PAIRS)
        noisy = meter.measure(tables, mu=charge.mu)
        noise = tables.sensitivity / charge.per_row
        return make_score(spreads, chosen, tables.pairs, noisy, noise, histograms.rows)

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> "PairwiseScore":
        """The kept look-up tables; the pairs are checked to be some that can be chosen."""
        spreads = _spreads(histograms, label)
        chosen = tuple(ints(arrays["pair_chosen"], most=2**40).tolist())
        candidates = all_pairs(len(spreads))
        require(all(0 <= k < len(candidates) for k in chosen), "a pair of columns is unknown")
        pairs = tuple(candidates[k] for k in chosen)
        require(len(set(pairs)) == len(pairs), "a pair of columns is there twice")
        most = min(_MOST_PAIRS, max(len(spreads) - 1, 0))
        require(len(pairs) <= most, "it has more pairs of columns than are chosen")
        require(ints(arrays["pair_level_factors"]).tolist() == list(FACTORS), "its factors are not known")
        cells = tuple(_read_cells(i, spread, arrays) for i, spread in enumerate(spreads))
        groups = tuple(_read_groups(arrays[f"pair_groups_{i}"], bins) for i, bins in enumerate(cells))
        levels = len(FACTORS)
        shapes = [(levels, int(groups[a].max()) + 1, int(groups[b].max()) + 1) for a, b in pairs]
        gains = [_levels(arrays[f"pair_gain_{k}"], shape) for k, shape in enumerate(shapes)]
        apart = [_levels(arrays[f"apart_{i}"], (levels, b.count)) for i, b in enumerate(cells)]
        largest = sum(int(np.abs(each).max()) for each in (*apart, *gains))
        require(largest * max(FACTORS) < _HIGHEST, "its scores are out of range")
        rows = sum(shape[1] * shape[2] for shape in shapes)
        return PairwiseScore(
            cells=cells,
            apart=tuple(apart),
            groups=groups,
            gains=tuple(gains),
            pairs=pairs,
            chosen=chosen,
            counts=ints(arrays["pair_counts"], rows),
            spreads=spreads,
            rows=histograms.rows,
        )


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
        """All tables, one behind the other."""
        group = {i: self.groups[i][self.cells[i].of(records)] for pair in self.pairs for i in pair}
        parts = [
            np.bincount(group[a] * columns + group[b], minlength=rows * columns)
            for (a, b), (rows, columns) in zip(self.pairs, self.shapes, strict=True)
        ]
        return np.concatenate([np.zeros(0, dtype=np.int64), *parts]).astype(np.int64)

    def split(self, flat: NDArray[Any]) -> list[NDArray[Any]]:
        ends = np.cumsum([rows * columns for rows, columns in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), self.shapes, strict=True)]


@dataclass(frozen=True)
class PairChoice:
    """Which pairs to measure: those whose smoothed table is farthest from the product of its margins.

    `smooth` holds for each column a public matrix of whole numbers whose columns add up to `UNIT` at most. So one
    record moves a smoothed table by at most `UNIT`² in all its cells together, and with it every utility.
    """

    tables: PairTables
    smooth: tuple[Ints, ...]
    expected: tuple[Ints, ...]
    """The smoothed product of the released margins of each pair: public."""
    rounds: int
    name: str = CHOICE
    unit: int = UNIT**2
    weighted: bool = False

    @classmethod
    def of(cls, spreads: Sequence[Spread], rows: float, rounds: int) -> "PairChoice":
        """The choice among all pairs: everything in it follows from the released histograms."""
        smooth = []
        for spread in spreads:
            close = spread.group_closeness(SHARPNESS[_SMOOTH])
            smooth.append(np.floor(close / close.sum(axis=0) * UNIT).astype(np.int64))
        pairs = all_pairs(len(spreads))
        one_way = [
            each @ (spread.group_masses * math.sqrt(rows)) for each, spread in zip(smooth, spreads, strict=True)
        ]
        # So bounded that no sum of them overflows: they are public, so this costs nothing.
        expected = tuple(
            np.rint(np.clip(np.outer(one_way[a], one_way[b]), 0.0, _MOST)).astype(np.int64) for a, b in pairs
        )
        return cls(PairTables.of(spreads, pairs, CHOICE), tuple(smooth), expected, rounds)

    def total(self, records: Records) -> Ints:
        return self.tables.total(records)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        """There is no stopping while a pair is left; then each pair's distance from independence."""
        from repsynth.mechanism.kernels import OUT

        pairs = self.tables.pairs
        # Whole numbers without end where 64 bits may not do; the utilities themselves are cut off, which brings no
        # two of them farther apart.
        if units > 1 and int(total.max(initial=0)) >= 2**26:
            total = total.astype(object)
        expectations = [np.minimum(expected, _MOST // units) for expected in self.expected]
        distances = [
            min(int(np.abs(self.smooth[a] @ table @ self.smooth[b].T - expected * units).sum()), _HIGHEST)
            for (a, b), table, expected in zip(pairs, self.tables.split(total), expectations, strict=True)
        ]
        taken = np.isin(np.arange(len(pairs)), chosen)
        return np.append(OUT if not taken.all() else 0, np.where(taken, OUT, distances)).astype(np.int64)


@dataclass(frozen=True)
class PairwiseScore:
    """The released score function of the features (the label does not count): look-up tables by level.

    `apart` holds, column by column, how rare values close to each cell are; `gains`, pair by pair, how much more
    frequent close combinations are than the product of their margins; both in score units.
    """

    cells: tuple[Bins, ...]
    apart: tuple[Ints, ...]
    groups: tuple[Ints, ...]
    gains: tuple[Ints, ...]
    pairs: tuple[Pair, ...]
    chosen: tuple[int, ...]
    counts: Ints
    spreads: tuple[Spread, ...]
    rows: float

    @cached_property
    def order(self) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """The columns as they are taken, nearest first, each with its pairs with columns before it."""
        found: dict[int, tuple[int, ...]] = {}
        for start in (*(i for pair in self.pairs for i in pair), *range(self.columns)):
            front = [start]
            while front:
                i = front.pop(0)
                if i not in found:
                    mine = [k for k, pair in enumerate(self.pairs) if i in pair]
                    others = [sum(self.pairs[k]) - i for k in mine]
                    found[i] = tuple(k for k, other in zip(mine, others, strict=True) if other in found)
                    front += others
        return tuple(found.items())

    @property
    def columns(self) -> int:
        return len(self.cells)

    @property
    def lowest(self) -> int:
        levels = []
        for k in range(len(FACTORS)):
            least = [
                int(self.apart[i][k].min()) - sum(int(self.gains[pair][k].max()) for pair in told)
                for i, told in self.order
            ]
            levels.append(np.array([sum(max(each, 0) for each in least)]))
        return int(self._largest(levels)[0])

    def of(self, records: Records) -> Ints:
        cell = [bins.of(records) for bins in self.cells]
        group = {i: self.groups[i][cell[i]] for pair in self.pairs for i in pair}
        levels = []
        for k in range(len(FACTORS)):
            level = np.zeros(records.rows, dtype=np.int64)
            for i, told in self.order:
                left = self.apart[i][k][cell[i]]
                for pair in told:
                    a, b = self.pairs[pair]
                    left = left - self.gains[pair][k][group[a], group[b]]
                level += np.maximum(left, 0)
            levels.append(level)
        return self._largest(levels)

    def _largest(self, levels: Sequence[Ints]) -> Ints:
        """The largest over all levels of what is beyond log rows, over the sharpness, in nats at `_SCALE`."""
        beyond = [(level - self.few) * factor // UNIT for level, factor in zip(levels, FACTORS, strict=True)]
        largest: Ints = self.few + np.maximum.reduce(beyond)
        return largest

    @property
    def few(self) -> int:
        """The log of the number of records, in score units."""
        return round(math.log(max(self.rows, 1.0)) * NAT)

    def tails(self, exact: Histograms, most: float = 1.0) -> None:
        """None: which pairs count, and in which groups, depends on the noise."""

    def kernels(self) -> "Mapping[str, Statistic | Chosen]":
        from repsynth.mechanism.kernels import Chosen

        if not self.pairs:
            return {}
        choice = PairChoice.of(self.spreads, self.rows, len(self.chosen))
        return {CHOICE: Chosen(choice, self.chosen), PAIRS: PairTables.of(self.spreads, self.pairs, PAIRS)}

    def dump(self) -> Arrays:
        arrays: Arrays = {"pair_chosen": np.array(self.chosen, dtype=np.int64), "pair_counts": self.counts}
        arrays["pair_level_factors"] = np.array(FACTORS, dtype=np.int64)
        for i, bins in enumerate(self.cells):
            arrays |= {f"apart_{i}": self.apart[i].ravel(), f"pair_groups_{i}": self.groups[i]}
            if bins.starts is not None:
                arrays[f"cell_starts_{i}"] = bins.starts
        return arrays | {f"pair_gain_{k}": gain.ravel() for k, gain in enumerate(self.gains)}


def how_many_pairs(rows: float, mu: float, columns: int) -> int:
    """Pairs to choose: a table of each must still stand above the noise that all of them together get.

    >>> how_many_pairs(25_000, 0.025, 14), how_many_pairs(500, 0.025, 14)
    (12, 1)
    """
    return int(np.clip(rows * mu / _RECORDS_PER_NOISE, 1, min(_MOST_PAIRS, columns - 1)))


def all_pairs(columns: int) -> tuple[Pair, ...]:
    """Every pair of features, by place.

    >>> all_pairs(3)
    ((0, 1), (0, 2), (1, 2))
    """
    return tuple((a, b) for a in range(columns) for b in range(a + 1, columns))


def make_score(
    spreads: tuple[Spread, ...],
    chosen: tuple[int, ...],
    pairs: Sequence[Pair],
    noisy: Ints,
    sigma: float,
    rows: float,
) -> PairwiseScore:
    """The score function from what was released: post-processing."""
    tables = PairTables.of(spreads, pairs, PAIRS).split(noisy) if pairs else []
    gains = [
        np.stack([_gain(spreads[a], spreads[b], table, sigma, rows, sharpness) for sharpness in SHARPNESS])
        for (a, b), table in zip(pairs, tables, strict=True)
    ]
    apart = [np.stack([spread.apart(sharpness) for sharpness in SHARPNESS]) for spread in spreads]
    return PairwiseScore(
        cells=tuple(spread.cells for spread in spreads),
        apart=tuple(np.floor(_together(each) * NAT).astype(np.int64) for each in apart),
        groups=tuple(spread.of_cell for spread in spreads),
        gains=tuple(np.floor(_together(each) * NAT).astype(np.int64) for each in gains),
        pairs=tuple(pairs),
        chosen=chosen,
        counts=noisy,
        spreads=spreads,
        rows=rows,
    )


def _together(by_sharpness: Floats) -> Floats:
    """A level for each few neighbouring λ. Its sharpness is their harmonic mean; divided by it, it is the mean of
    what stands at each λ, divided by λ."""
    mixes = [np.divide(1.0, level) / sum(1 / x for x in level) for level in _LEVELS]
    parts = [np.tensordot(mix, by_sharpness[k : k + _TOGETHER], axes=1) for k, mix in enumerate(mixes)]
    return np.stack(parts)


def _gain(one: Spread, other: Spread, table: Ints, sigma: float, rows: float, sharpness: float) -> Floats:
    """The log of how much more records are close to a combination of groups than the margins say, shrunk by its
    noise: what does not exceed it counts for nothing. No more can be close to both values than to either.

    The histograms know the margins better than the table does, so what it says of them is taken out, and with it
    the noise there: most of all in tables with few rows or columns."""
    near, by = one.group_closeness(sharpness), other.group_closeness(sharpness)
    close, close_by = near @ one.group_masses, by @ other.group_masses
    product = rows * np.outer(one.group_masses, other.group_masses)
    expected = near @ product @ by.T
    inner, inner_by = (each - each.mean(axis=1, keepdims=True) for each in (near, by))
    more = inner @ (table - product) @ inner_by.T
    noise = sigma * np.outer(np.linalg.norm(inner, axis=1), np.linalg.norm(inner_by, axis=1))
    kept = more * np.maximum(1 - (noise / np.maximum(np.abs(more), 1e-9)) ** 2, 0.0)
    least = np.maximum(np.minimum(expected, noise), _RAREST * expected)
    most = rows * np.minimum.outer(close, close_by)
    found = np.minimum(np.maximum(expected + kept, least), most)
    # Where nobody is expected, or can be, there is nothing to tell.
    told = (found > 0) & (expected > 0)
    return np.log(np.where(told, found, 1.0) / np.where(told, expected, 1.0))


def _spreads(histograms: Histograms, label: str | None) -> tuple[Spread, ...]:
    pairs = max(len(all_pairs(sum(bins.column.name != label for bins in histograms.bins))), 1)
    groups = int(np.clip(math.isqrt(_MOST_CELLS // pairs), _FEWEST_GROUPS, _MOST_GROUPS))
    return spreads_of(histograms, label, groups=groups)


def _features(schema: Schema) -> list[str]:
    return [column.name for column in schema.learned if column.name != schema.label]


def _read_cells(i: int, spread: Spread, arrays: Arrays) -> Bins:
    column = spread.cells.column
    return read_bins(column, arrays[f"cell_starts_{i}"]) if isinstance(column, Numeric) else spread.cells


def _read_groups(array: NDArray[Any], bins: Bins) -> Ints:
    of_cell = ints(array, bins.count, most=2**20)
    require(bool(np.array_equal(np.unique(of_cell), np.arange(of_cell.max() + 1))), "its groups have gaps")
    return of_cell


def _levels(array: NDArray[Any], shape: tuple[int, ...]) -> Ints:
    return ints(array, math.prod(shape), most=2**40).reshape(shape)
