"""One adaptive histogram per column, measured in looks: all models, scores and drawing use it.

    coarse histograms     every column; public cells                                          (charge)
    refined histograms    numbers; cells with records are divided at round numbers, weighted   (charge)
    fine histograms       the same once more, in more parts                                    (charge)

The first look counts everybody in full and says how many records a cell has. The later ones are weighted and say
only how the records of a cell are spread over its parts. Scores are made of the first cells, so the weight of a
record hardly depends on where in its cell it lies. Parts that noise could have made keep what is expected of them:
an even spread by width, with as many records at round numbers as the column has on average.
"""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.cells import Bins, divided, is_divisible, read_bins
from repsynth.columns.hierarchy import by_family, families_of
from repsynth.columns.mixture import posterior_means
from repsynth.data.records import MISSING, Records
from repsynth.schema import Numeric
from repsynth.storage.checks import ints, require

if TYPE_CHECKING:
    from repsynth.scoring.base import Arrays

COARSE, REFINED, FINE = "coarse histograms", "refined histograms", "fine histograms"
PARTS = {REFINED: 20, FINE: 100}
"""Into how many parts each later look divides a cell, about: noise may hide most of them, and still show a few."""

_ABOVE_NOISE = 3.0  # standard deviations from which on a cell is divided
_TAIL, _WIDE_TAIL = 2.0, 3.0  # standard deviations that noise reaches at the ends of a column, and of a wide one
_SPIKE = 4.0  # standard deviations above what is expected, which hardly any noise reaches
_ATOMS = 2.0  # standard deviations from which on round numbers are believed to be frequent
_VARIANCES = 4.0 ** np.arange(-2, 9)
"""Variances of the mixture's parts, in units of the noise's, for a cell of mean size."""
_EVEN = 3.0
"""Cells that are counted as evenly spread before any is seen: a column needs some evidence that it is not."""
_LEAST = 0.001
"""Of what is expected in a part: none is taken to be empty."""
_MOST_LOADED = 2**14


class Cells(Protocol):
    """A public cell for every record."""

    @property
    def count(self) -> int: ...

    def of(self, records: Records) -> Ints: ...


@dataclass(frozen=True)
class ColumnHistograms:
    """The statistic: each record adds one to one cell of every column.

    >>> from repsynth.schema import Boolean
    >>> one_way = ColumnHistograms((Bins.discrete(Boolean(name="smoker")),))
    >>> one_way.total(Records(rows=3, codes={"smoker": np.array([0, 1, 1])})).tolist()
    [1, 2, 0]
    """

    bins: tuple[Cells, ...]
    name: str = COARSE
    unit: int = 1
    weighted: bool = False

    @property
    def sensitivity(self) -> float:
        """One cell of each histogram, whatever the record: exact."""
        return math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        return np.concatenate([np.bincount(bins.of(records), minlength=bins.count) for bins in self.bins])

    def each(self, records: Records) -> Ints:
        """What each record adds: (records, cells)."""
        own = np.arange(records.rows)
        parts = [np.zeros((records.rows, bins.count), dtype=np.int64) for bins in self.bins]
        for part, bins in zip(parts, self.bins, strict=True):
            part[own, bins.of(records)] = 1
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Look:
    """Finer cells of some columns and their noisy weighted counts, in `unit`s of a record: a released value."""

    columns: tuple[int, ...]
    """Places among the learned columns."""
    bins: tuple[Bins, ...]
    counts: Ints
    sigma: float
    unit: int


@dataclass(frozen=True)
class Histograms:
    """Noisy histograms of every column. `rows` is the released or declared number of records.

    `refined` holds, for columns that a later look has refined, the count that is believed of each cell of numbers
    and the variance of its noise; `counts` then repeats these.
    """

    bins: tuple[Bins, ...]
    counts: Ints | Floats
    sigma: float
    rows: float
    refined: "dict[int, tuple[Floats, Floats]]" = field(default_factory=dict)

    @cached_property
    def _starts(self) -> Ints:
        return np.cumsum([0, *(bins.count for bins in self.bins)])

    def noisy(self, column: int) -> Floats:
        """Return the counts of one column's cells, as measured in the first look."""
        return self.counts[self._starts[column] : self._starts[column + 1]].astype(np.float64)

    def levels(self, column: int) -> Floats:
        """Return how many records each cell has: not negative for numbers, the missing last (0 where undeclared).

        Cells at the ends of a numeric column whose counts, one by one and added up, stay within the noise are
        empty. Rare values of a category share what their family has.
        """
        return self._levels[column].copy()

    @cached_property
    def _levels(self) -> tuple[Floats, ...]:
        found = []
        for i, bins in enumerate(self.bins):
            counts = self.noisy(i)
            if (families := families_of(bins.column)) is not None:
                counts[:-1] = by_family(counts[:-1], self.sigma, families)
            elif bins.starts is not None:
                numbers = self.refined[i][0] if i in self.refined else self._without_tails(i)
                special = counts[bins.numbers : -1]
                special = np.where(special > 2 * self.sigma, special, 0.0)
                counts = np.concatenate([numbers, special, counts[-1:]])
            if not bins.column.missing:
                counts[-1] = 0.0
            found.append(counts)
        return tuple(found)

    def _without_tails(self, column: int) -> Floats:
        bins = self.bins[column]
        numbers, widths = self.noisy(column)[: bins.numbers], bins.widths
        wide = int(widths.max()) > 4 * int(np.median(widths))
        inside = within_noise(numbers, self.sigma, _WIDE_TAIL if wide else _TAIL)
        if inside is not None:
            kept = numbers > 4 * self.sigma  # a spike beyond the ends
            kept[inside] = True
            numbers = np.where(kept, numbers, 0.0)
        return np.maximum(numbers, 0.0)

    def variances(self, column: int) -> Floats:
        """Return the variance of the noise in each cell's level. A cell that a later look found has its share of
        the noise of the first cell that it is part of."""
        found = np.full(self.bins[column].count, self.sigma**2)
        if column in self.refined:
            found[: self.bins[column].numbers] = self.refined[column][1]
        return found

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """Each column's distribution over its cells without missing."""
        found = []
        for i, bins in enumerate(self.bins):
            levels = self._levels[i][:-1]
            if bins.starts is None:
                levels = to_simplex(levels / self.rows / (1 - self.absent_fraction(i)))
            whole = float(levels.sum())
            found.append(levels / whole if whole > 0 else np.full(len(levels), 1 / len(levels)))
        return tuple(found)

    def absent_fraction(self, column: int) -> float:
        """Return the fraction of cells without a value, declared or not, where it stands above the noise."""
        absent = float(self.noisy(column)[-1])
        return min(absent / self.rows, 0.9) if absent > 2 * self.sigma else 0.0

    def missing_fraction(self, column: int) -> float:
        """Return the fraction of missing cells in a column that declares them; 0 in any other."""
        if not self.bins[column].column.missing:
            return 0.0
        return float(np.clip(self.noisy(column)[-1] / self.rows, 0.0, 0.99))

    def draw(self, rows: int, generator: np.random.Generator) -> Records:
        """Draw records whose columns are independent and follow the probabilities: post-processing."""
        codes = {}
        for i, bins in enumerate(self.bins):
            ends = np.cumsum(self.probabilities[i])
            level = (generator.permutation(rows) + generator.random()) / max(rows, 1)
            drawn = np.minimum(np.searchsorted(ends, level, side="right"), bins.values - 1)
            if bins.starts is not None:
                width = np.append(bins.widths, np.ones(bins.values - bins.numbers, dtype=np.int64))[drawn]
                drawn = bins.starts[drawn] + np.floor(generator.random(rows) * width).astype(np.int64)
            absent = generator.permutation(rows) < round(self.missing_fraction(i) * rows)
            codes[bins.column.name] = np.where(absent, MISSING, drawn)
        return Records(rows=rows, codes=codes)

    def refined_by(self, look: Look) -> "Histograms":
        """Return the histograms with the finer cells of a look: post-processing."""
        bins, refined = list(self.bins), dict(self.refined)
        counts = [self.noisy(i) for i in range(len(bins))]
        starts = np.cumsum([0, *(each.count for each in look.bins)])
        for k, i in enumerate(look.columns):
            old, new = self.bins[i], look.bins[k]
            parents = new.parents(old)
            seen = look.counts[starts[k] : starts[k] + new.numbers] / look.unit
            sigma, noise = look.sigma / look.unit, self.variances(i)[: old.numbers]
            totals = _Totals.of(parents, seen, sigma, self._levels[i][: old.numbers], noise)
            shares = shares_inside(parents, new.widths, seen, sigma, totals.weighted)
            # The noise of a part is that of its cell and, where that was divided, that of the look.
            of_look = np.where(np.bincount(parents) > 1, (sigma * totals.scale) ** 2, 0.0)
            refined[i] = totals.levels[parents] * shares, totals.variances[parents] * shares**2 + of_look[parents]
            bins[i] = new
            counts[i] = np.concatenate([refined[i][0], counts[i][old.numbers :]])
        return replace(self, bins=tuple(bins), counts=np.concatenate(counts), refined=refined)

    def to_divide(self, name: str, sigma: float) -> tuple[tuple[int, ...], tuple[Bins, ...]]:
        """Return which columns a look refines, and their cells; all that may be refined where nothing is to be
        divided, so that the look can be measured."""
        possible = [i for i, bins in enumerate(self.bins) if is_divisible(bins.column)]
        finer = {
            i: divided(
                self.bins[i],
                self._levels[i][: self.bins[i].numbers],
                least=_ABOVE_NOISE * sigma,
                parts=PARTS[name],
            )
            for i in possible
        }
        chosen = [i for i in possible if finer[i].count > self.bins[i].count] or possible
        return tuple(chosen), tuple(finer[i] for i in chosen)


def shares_inside(parents: Ints, widths: Ints, counts: Floats, sigma: float, whole: Floats) -> Floats:
    """Return the share of each part in the cell that it is part of.

    `counts` are noisy weighted counts of the parts, `whole` those of the cells. What parts have beyond what is
    expected is taken for a mixture of normal distributions, which the column itself tells (empirical Bayes): one
    with a few spikes keeps these, a smooth one stays even. The parts that do not stand out share what the others
    leave.

    >>> counts = np.array([900.0, 10.0, -8.0, 90.0, 99.0, 111.0])
    >>> parents, whole = np.array([0, 0, 0, 1, 1, 1]), np.array([902.0, 300.0])
    >>> shares_inside(parents, np.ones(6), counts, 10.0, whole).round(2).tolist()
    [1.0, 0.0, 0.0, 0.33, 0.33, 0.33]
    """
    parts = np.bincount(parents)
    expected = whole[parents] * _expected_shares(parents, widths.astype(np.float64), counts, whole, sigma)
    found, split = expected.copy(), parts[parents] > 1
    if not split.any():
        return np.ones(len(parents))
    rest = (counts - expected)[split] / sigma
    none, size = np.zeros_like(rest), expected[split] / expected[split].mean() + 1e-9
    spread = np.stack([none, *np.multiply.outer(_VARIANCES, size), none])
    centres = np.stack([*(none for _ in spread[1:]), -expected[split] / sigma])  # the last part: empty cells
    before = np.append(_EVEN, np.zeros(len(spread) - 1))
    found[split] += sigma * posterior_means(rest, np.ones_like(rest), centres, spread, before)
    found = np.maximum(found, _LEAST * expected)
    spikes = found > expected + _SPIKE * sigma
    left = np.maximum(whole - np.bincount(parents, found * spikes), _LEAST * whole)
    others = np.bincount(parents, np.where(spikes, 0.0, found))
    found = np.where(spikes, found, found * (left / np.maximum(others, 1e-300))[parents])
    shares: Floats = found / np.bincount(parents, found)[parents]
    return shares


@dataclass(frozen=True)
class _Totals:
    """How many records cells have, by what was known of them and by what a look has seen of their parts."""

    levels: Floats
    variances: Floats
    weighted: Floats
    """The same in the weighted counts of the look."""
    scale: Floats
    """From weighted counts to records."""

    @classmethod
    def of(cls, parents: Ints, seen: Floats, sigma: float, levels: Floats, variances: Floats) -> "_Totals":
        """By precision. The mean weight of the column is as wrong for a single cell as weights differ."""
        sums, noise = np.bincount(parents, seen), sigma**2 * np.bincount(parents)
        weight = float(np.clip(sums.sum() / max(float(levels.sum()), 1.0), 0.01, 1.0))
        if weight > 0.99:  # all records count in full
            weight = 1.0
        doubt = weight**2 * variances + (min(weight, 1 - weight) * levels) ** 2 + 1e-12
        left = noise * doubt / (noise + doubt)
        found = np.where(levels > 0, left * (sums / noise + weight * levels / doubt), 0.0)
        weighted = np.maximum(found, np.sqrt(left))
        full = np.where(levels > 0, np.maximum(found, 0.0) / weight, 0.0)
        # What is seen of a cell divides it; how many records it has, the first look says where weights differ.
        known = left / weight**2
        believed = full if weight == 1.0 else levels
        return cls(
            believed,
            known if weight == 1.0 else variances,
            weighted,
            believed / np.maximum(weighted, 1e-300),
        )


def _expected_shares(parents: Ints, widths: Floats, counts: Floats, whole: Floats, sigma: float) -> Floats:
    """Return what each part is expected to have of its cell: by width, but for round numbers with a cell of their
    own, which share what all of them in the column have together, where that stands above the noise."""
    parts, width = np.bincount(parents), np.bincount(parents, widths)
    even: Floats = widths / width[parents]
    atoms = (widths == 1) & (width > 2 * parts)[parents]
    if not atoms.any():
        return even
    own = np.bincount(parents, atoms)
    together = float(counts[atoms].sum())
    if together < _ATOMS * sigma * math.sqrt(float(atoms.sum())):
        return even
    fraction = min(together / max(float(whole[own > 0].sum()), 1.0), 0.95)
    others = np.bincount(parents, np.where(atoms, 0.0, widths))
    with_atoms = np.where(atoms, fraction / np.maximum(own, 1)[parents], (1 - fraction) * widths / others[parents])
    return np.where((own > 0)[parents], with_atoms, even)


def dump_look(name: str, look: Look) -> "Arrays":
    key = name.split()[0]
    starts = (bins.starts for bins in look.bins)
    return {
        f"{key}_columns": np.array(look.columns, dtype=np.int64),
        f"{key}_counts": look.counts,
        **{f"{key}_starts_{k}": each for k, each in enumerate(starts) if each is not None},
    }


def load_look(name: str, before: Histograms, arrays: "Arrays", *, sigma: float, unit: int) -> Look:
    """Return a look from an untrusted file."""
    key, possible = name.split()[0], [i for i, bins in enumerate(before.bins) if is_divisible(bins.column)]
    columns = tuple(ints(arrays[f"{key}_columns"], most=len(before.bins) - 1).tolist())
    known = len(columns) > 0 and list(columns) == sorted(set(possible) & set(columns))
    require(known, "its histograms refine other columns than it has")
    bins = []
    for k, i in enumerate(columns):
        old, column = before.bins[i], before.bins[i].column
        assert isinstance(column, Numeric)
        assert old.starts is not None
        finer = read_bins(column, arrays[f"{key}_starts_{k}"])
        assert finer.starts is not None
        inside = bool(np.isin(old.starts, finer.starts).all())
        require(inside and finer.count <= _MOST_LOADED, "its finer cells are not parts of its cells")
        bins.append(finer)
    counts = ints(arrays[f"{key}_counts"], sum(each.count for each in bins), most=2**62)
    return Look(columns, tuple(bins), counts, sigma, unit)


def within_noise(counts: Floats, sigma: float, times: float) -> slice | None:
    """Return what is left of a noisy histogram without its ends, whose counts stay within the noise one by one and
    added up; None where that is all of it, or nothing is left in sum. Counts that stand above the noise only
    together stay together.

    >>> within_noise(np.array([1.0, -2.0, 30.0, 2.0, 40.0, 0.5]), 1.0, 4.0)
    slice(2, 5, None)
    >>> within_noise(np.array([0.5, 2.0, 3.0, 2.5, 3.0, 30.0]), 1.0, 4.0)
    slice(1, 6, None)
    """

    def first(ordered: Floats) -> int | None:
        added = np.cumsum(ordered) / np.sqrt(np.arange(1, len(ordered) + 1))
        above = np.flatnonzero((ordered > times * sigma) | (added > times * sigma))
        if not above.size:
            return None
        together = np.cumsum(ordered[above[0] :: -1]) / np.sqrt(np.arange(1, above[0] + 2))
        return int(above[0] - np.argmax(together))

    low, high = first(counts), first(counts[::-1])
    if low is None or high is None:
        return None
    inside = slice(low, len(counts) - high)
    # Hills of noise at both ends may have more than their height missing between them.
    return inside if counts[inside].sum() > 0 else None


def merge_neighbours(counts: Floats, least: float, spike: float) -> Ints:
    """Return the group of each cell: neighbours together until they hold `least`; a cell of `spike` stands alone.

    >>> merge_neighbours(np.array([50.0, 3.0, 4.0, 5.0, 6.0, 1.0]), least=7.0, spike=20.0).tolist()
    [0, 1, 1, 2, 2, 2]
    """
    groups = np.zeros(len(counts), dtype=np.int64)
    masses: list[float] = []
    spikes: list[bool] = []
    for i, count in enumerate(counts):
        full = not masses or spikes[-1] or masses[-1] >= least
        if count >= spike or full:
            masses.append(0.0)
            spikes.append(bool(count >= spike))
        masses[-1] += float(count)
        groups[i] = len(masses) - 1
    # A small remainder joins the group on its left, unless that one is a spike.
    for group in range(len(masses) - 1, 0, -1):
        if not spikes[group] and not spikes[group - 1] and masses[group] < least / 2:
            groups[groups >= group] -= 1
            masses[group - 1] += masses.pop(group)
            spikes.pop(group)
    return groups


def to_simplex(vector: Floats) -> Floats:
    """Return the nearest probability vector (along the last axis).

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
