"""Where in wide bounds the numbers are: two charged looks, from which the bins of the histograms follow.

    ranges    bins by magnitude, equal bins, and how round the numbers are     (charge)
    zoom      bins of about equal mass, by what the ranges show                 (charge)

Public bounds may be a thousand times as wide as the data. Bins of equal width would then all be empty but one. The
first look has bins at round numbers of every size, fixed by the schema alone. Each look places the bins of the
next: of about equal mass where it shows numbers above its noise, and one per power of ten elsewhere. The equal
bins are for scores: both kinds are fixed by the schema, so that a score can be bounded before any noise is drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.positions import positions_of
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.privacy.events import Charge
from repsynth.schema import Datetime, Numeric, Schema
from repsynth.scoring.base import Arrays
from repsynth.scoring.bins import MOST_BINS, Bins, own_positions, read_bins
from repsynth.scoring.grain import Grains, Roundness, read_grains
from repsynth.scoring.histograms import ColumnHistograms, counts_of, intervals_of, merge_neighbours, within_noise
from repsynth.storage.checks import ints, require

RANGES, ZOOM = "ranges", "zoom"

NOISE = 2.0
"""The noise of a bin in each look, in units of that of the histograms."""

_NARROW = 1024  # values of a column that equal bins can still tell
_ABOVE_NOISE = 3.0
_LEAST_SIGNAL = 24.0  # records in units of a look's noise: of fewer, a look sees no more than eight pieces
_EQUAL, _UNKNOWN = 32, 16
_MOST_LOADED = 4096
_MOST_PARTS = 256
_FEWEST = 8
_FULL = 8.0  # a bin that noise does not drown, in units of it
_COARSER = 3.0  # how many such bins an equal one may hold before it is too coarse
_MEAN_SIZE = (2 / np.pi) ** 0.5  # of noise, in units of its standard deviation
_FEW = 8.0  # pieces: of fewer, the shape is not known yet


def wide_columns(schema: Schema) -> tuple[int, ...]:
    """The places, among the learned columns, of those with too many values for bins of equal width.

    >>> from repsynth.schema import Integer
    >>> wide_columns(Schema(columns=(Integer(name="age", min=0, max=99), Integer(name="pay", min=0, max=10**6))))
    (1,)
    """
    return tuple(i for i, c in enumerate(schema.learned) if isinstance(c, Numeric) and c.steps + 1 > _NARROW)


def look_shares(schema: Schema, mu: float, share: float, public_rows: int | None) -> dict[str, float]:
    """A share of μ² divided among the two looks and the histograms; {} where no look is worth its charge, because
    no column is wide or because the table is known to be too small for either to show anything."""
    columns = len(schema.learned)
    looks = {name: look_sensitivity(schema, name) ** 2 / columns / NOISE**2 for name in (RANGES, ZOOM)}
    whole = 1 + sum(looks.values())
    rest = share / whole
    least = _LEAST_SIGNAL * whole * NOISE * columns**0.5 / (mu * rest**0.5)  # the more they cost, the more records
    if not wide_columns(schema) or (public_rows is not None and public_rows < least):
        return {}
    return {name: part * rest for name, part in looks.items()}


def how_many_located(records: float, sigma: float) -> int:
    """Bins of equal mass for so many records with so much noise in each.

    >>> how_many_located(20_000, 80.0), how_many_located(1_000, 80.0)
    (31, 8)
    """
    return int(np.clip(records / (_FULL * sigma), _FEWEST, MOST_BINS // 2))


def look_sensitivity(schema: Schema, name: str) -> float:
    """One bin of each wide column; in the first look, for numbers also an equal bin and a cell of how round it is.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="pay", min=0, max=10**6),))
    >>> round(look_sensitivity(schema, RANGES) ** 2, 9), look_sensitivity(schema, ZOOM) ** 2
    (3.0, 1.0)
    """
    wide = [schema.learned[i] for i in wide_columns(schema)]
    numbers = sum(not isinstance(column, Datetime) for column in wide) if name == RANGES else 0
    return float((len(wide) + 2 * numbers) ** 0.5)


@dataclass(frozen=True)
class Look:
    """Bins of the wide columns, in order, and their noisy counts: a released value."""

    bins: tuple[Bins, ...]
    counts: Ints
    sigma: float

    def noisy(self, k: int) -> Floats:
        """The noisy counts of the k-th wide column, missing last."""
        return counts_of(self.bins, self.counts, k)


@dataclass(frozen=True)
class _Found:
    """Where the numbers of a column are, by a look: pieces between these edges, in positions, with how many
    records and how much noise in each."""

    edges: Ints
    masses: Floats
    noise: Floats

    @classmethod
    def by(cls, look: Look, k: int) -> "_Found | None":
        """Neighbouring bins taken together until they stand above the noise; values with bins of their own count
        for nothing. None where all may be noise."""
        bins = look.bins[k]
        assert isinstance(bins.column, Numeric)
        counts = look.noisy(k)[: bins.numbers]
        counts[np.isin(_starts(bins)[: bins.numbers], own_positions(bins.column)) & bins.spikes] = 0.0
        least = _ABOVE_NOISE * look.sigma
        inside = within_noise(counts, look.sigma, _ABOVE_NOISE)
        if inside is None:
            return None
        piece = merge_neighbours(counts[inside], least, least)
        masses = np.maximum(np.bincount(piece, counts[inside]), 0.0)
        first = np.flatnonzero(np.diff(piece, prepend=-1))
        edges = np.append(_edges(bins)[inside.start + first], _edges(bins)[inside.stop])
        return cls(edges, masses, look.sigma * np.sqrt(np.bincount(piece)))

    def below(self, positions: Ints) -> Floats:
        """How many records are below these positions."""
        below: Floats = np.interp(positions, self.edges, np.append(0.0, np.cumsum(self.masses)))
        return below

    def cells(self, sigma: float) -> int:
        """How many bins of equal mass so much noise allows."""
        return how_many_located(float(self.masses.sum()), sigma)

    def outgrows(self, bins: Bins, rows: float, sigma: float) -> bool:
        """Whether bins are too coarse: one holds most records, or one holds more than the noise calls for and what
        they cannot tell is more than the noise that finer ones would add, as far as the look can say."""
        largest = float(np.diff(self.below(_edges(bins))).max())
        noise = _MEAN_SIZE * sigma * self.cells(sigma) / 2
        finer = self.pieces < _FEW or self.missed(bins) > noise
        return largest > rows / 2 or (largest > _COARSER * _FULL * sigma and finer)

    def missed(self, bins: Bins) -> float:
        """About how many records would be elsewhere if those of each bin were spread over it evenly: what the look
        says without what its noise alone would."""
        edges = _edges(bins)
        overlap = np.minimum.outer(self.edges[1:], edges[1:]) - np.maximum.outer(self.edges[:-1], edges[:-1])
        overlap = np.maximum(overlap, 0).astype(np.float64)  # (pieces, bins)
        evenly = (overlap / np.diff(edges)) @ (overlap / np.diff(self.edges)[:, None]).T
        off = np.eye(len(self.masses)) - evenly
        noise = np.sqrt(off**2 @ self.noise**2)
        return float(np.abs(off @ self.masses).sum() - _MEAN_SIZE * noise.sum()) / 2

    @property
    def pieces(self) -> float:
        """How many pieces of equal mass would be spread like these."""
        return float(self.masses.sum() ** 2 / (self.masses @ self.masses))

    def starts(self, column: Numeric, cells: int) -> Ints:
        """Bins of equal mass, and one per power of ten."""
        ends = np.append(0.0, np.cumsum(self.masses)) + np.arange(len(self.edges)) * 1e-12
        equal = np.rint(np.interp(np.arange(1, cells) / cells * ends[-1], ends, self.edges)).astype(np.int64)
        coarse = _starts(Bins.by_magnitude(column, (1,)))
        if isinstance(column, Datetime):  # powers of ten keep sizes apart; times have none
            coarse = coarse[(coarse <= self.edges[0]) | (coarse >= self.edges[-1])]
        return np.concatenate([equal, self.edges[[0, -1]], coarse, own_positions(column)])


@dataclass(frozen=True)
class Ranges:
    """What both looks released of the wide columns. Times have no magnitude: they have no `equal` bins beside the
    others, and no grains."""

    columns: tuple[int, ...]
    """The places of the wide columns among the learned ones."""
    first: Look
    equal: Look
    grains: tuple[Grains, ...]
    grain_counts: Ints
    zoom: Look

    def kernels(self) -> dict[str, ColumnHistograms]:
        return {
            RANGES: ColumnHistograms((*self.first.bins, *self.equal.bins, *self.grains), RANGES),
            ZOOM: ColumnHistograms(self.zoom.bins, ZOOM),
        }

    def dump(self) -> Arrays:
        arrays: Arrays = {
            "range_columns": np.array(self.columns, dtype=np.int64),
            "range_counts": self.first.counts,
            "equal_counts": self.equal.counts,
            "grain_counts": self.grain_counts,
            "zoom_counts": self.zoom.counts,
            **{f"grain_powers_{k}": np.array(g.powers, dtype=np.int64) for k, g in enumerate(self.grains)},
        }
        for name, look in (("range", self.first), ("equal", self.equal), ("zoom", self.zoom)):
            arrays |= {f"{name}_starts_{k}": _starts(bins) for k, bins in enumerate(look.bins)}
        return arrays

    @cached_property
    def numbers(self) -> dict[int, int]:
        """For each wide column of numbers, by place among the learned ones, its place in `equal` and `grains`."""
        kept = (
            i for i, b in zip(self.columns, self.first.bins, strict=True) if not isinstance(b.column, Datetime)
        )
        return {i: k for k, i in enumerate(kept)}

    @cached_property
    def roundness(self) -> dict[int, Roundness]:
        """How round the numbers are, by place among the learned columns."""
        ends = np.cumsum([0, *(grains.count for grains in self.grains)])
        return {
            i: Roundness(self.grains[k], self.grain_counts[ends[k] : ends[k + 1]], self.first.sigma)
            for i, k in self.numbers.items()
        }

    def located(self, equal: Sequence[Bins], *, rows: float, sigma: float) -> dict[int, Bins]:
        """Bins for the histograms, by place among the learned columns, of the wide columns that stand above the
        noise of a look and for which the `equal` bins are too coarse."""
        bins = {}
        for k, i in enumerate(self.columns):
            found = _Found.by(self.zoom, k) or _Found.by(self.first, k)
            if found is not None and found.outgrows(equal[i], rows, sigma):
                bins[i] = self._bins(found, k, found.cells(sigma), least=_ABOVE_NOISE * sigma)
        return bins

    def finer(self, column: int, sigma: float) -> Ints:
        """Where the bins of a located column may be divided, with so much noise in each part."""
        k = self.columns.index(column)
        found = _Found.by(self.zoom, k) or _Found.by(self.first, k)
        assert found is not None  # else it would not have been located
        parts = int(np.clip(found.masses.sum() / (_FULL / 2 * sigma), 2 * _FEWEST, _MOST_PARTS))
        return _starts(self._bins(found, k, parts, least=_ABOVE_NOISE * sigma))

    def _bins(self, found: _Found, k: int, cells: int, *, least: float) -> Bins:
        column = self.first.bins[k].column
        assert isinstance(column, Numeric)
        # Where few pieces hold nearly all, their inside is still unknown, and may be as narrow again.
        placed = Bins.at(column, found.starts(column, 2 * cells if found.pieces < _FEW else cells))
        roundness = self.roundness.get(self.columns[k])
        if roundness is None:
            return placed
        low, high = intervals_of(placed)
        round_numbers = roundness.spikes(low, high, np.diff(found.below(_edges(placed))), least)
        spikes = positions_of(round_numbers, roundness.grains.column)
        return Bins.at(column, np.concatenate([_starts(placed), spikes, spikes + 1]))


def measure_ranges(
    meter: Meter, schema: Schema, charges: Mapping[str, Charge], on_zoom: Callable[[], None]
) -> Ranges:
    columns = wide_columns(schema)
    wide = [column for i in columns if isinstance(column := schema.learned[i], Numeric)]
    numbers = [column for column in wide if not isinstance(column, Datetime)]
    by_magnitude = tuple(Bins.by_magnitude(column) for column in wide)
    equal = tuple(Bins.binned(column, _EQUAL) for column in numbers)
    grains = tuple(Grains.of_column(column) for column in numbers)
    kernel = ColumnHistograms((*by_magnitude, *equal, *grains), RANGES)
    sigma = sigma_for(kernel.sensitivity, charges[RANGES].per_row)
    counts = meter.measure(kernel, mu=charges[RANGES].mu)
    ends = np.cumsum([sum(cells.count for cells in each) for each in (by_magnitude, equal)])
    counts, equal_counts, grain_counts = np.split(counts, ends)
    first = Look(by_magnitude, counts, sigma)

    on_zoom()
    found = [_Found.by(first, k) for k in range(len(wide))]
    bins = tuple(
        Bins.binned(column, _UNKNOWN) if seen is None else Bins.at(column, seen.starts(column, MOST_BINS))
        for column, seen in zip(wide, found, strict=True)
    )
    closer, charge = ColumnHistograms(bins, ZOOM), charges[ZOOM]
    zoom = Look(bins, meter.measure(closer, mu=charge.mu), sigma_for(closer.sensitivity, charge.per_row))
    return Ranges(columns, first, Look(equal, equal_counts, sigma), grains, grain_counts, zoom)


def load_ranges(schema: Schema, arrays: Arrays, sigma: float, zoom_sigma: float) -> Ranges:
    """What `Ranges.dump` gave, from a stranger's file."""
    columns = tuple(ints(arrays["range_columns"], most=len(schema.learned) - 1).tolist())
    require(len(columns) > 0 and list(columns) == sorted({abs(i) for i in columns}), "its looks are out of order")
    wide = [column for i in columns if isinstance(column := schema.learned[i], Numeric)]
    require(len(wide) == len(columns), "a column that is looked at is not numeric")
    numbers = [column for column in wide if not isinstance(column, Datetime)]

    def look(name: str, of: Sequence[Numeric], noise: float) -> Look:
        bins = tuple(read_bins(column, arrays[f"{name}_starts_{k}"]) for k, column in enumerate(of))
        require(all(each.count <= _MOST_LOADED for each in bins), "a look has too many bins")
        return Look(bins, ints(arrays[f"{name}_counts"], sum(each.count for each in bins)), noise)

    grains = tuple(read_grains(column, arrays[f"grain_powers_{k}"]) for k, column in enumerate(numbers))
    grain_counts = ints(arrays["grain_counts"], sum(each.count for each in grains))
    first, equal = look("range", wide, sigma), look("equal", numbers, sigma)
    return Ranges(columns, first, equal, grains, grain_counts, look("zoom", wide, zoom_sigma))


def _starts(bins: Bins) -> Ints:
    assert bins.starts is not None
    return bins.starts


def _edges(bins: Bins) -> Ints:
    return np.append(_starts(bins)[: bins.numbers], bins.ends[-1])
