"""How rare a record is among those of its own label.

    label histograms   label × bin, for every column        (charge)

A value that is common among the records of one label and rare among all the others' tells the label; that alone
does not make its owner easy to find. So the score of `rarity` is corrected, column by column, by how much more
frequent the value is within the label than in the whole table, as far as that stands above its noise:

    s(z) = Σ over columns of r(z's bin) − log(p(bin | label) / p(bin))
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np
from msgspec import Meta

from repsynth.arrays import Floats, Ints
from repsynth.data.records import Records
from repsynth.privacy.events import Charge
from repsynth.schema import Schema
from repsynth.scoring.base import NAT, Arrays, Scorer
from repsynth.scoring.bins import Bins
from repsynth.scoring.histograms import Histograms
from repsynth.scoring.rarity import Rarity, RarityScore, histograms_by_column, make_rarity, regions
from repsynth.storage.checks import ints, require

if TYPE_CHECKING:
    from repsynth.mechanism.kernels import Statistic
    from repsynth.mechanism.meter import Meter

LABELS = "label histograms"

_RAREST = 0.1  # of what is expected: no count makes a value rarer within its label than that


class LabelRarity(Scorer, frozen=True):
    """Rare bins and extreme numbers among the records of the same label."""

    name: ClassVar[str] = "label-rarity"
    no_bounds: ClassVar[str | None] = "scores within a label have no bound before a run"
    label_share: Annotated[
        float, Meta(ge=1e-6, le=0.5, description="of the score share, for histograms by label")
    ] = 0.02

    def shares(self, schema: Schema) -> Mapping[str, float]:
        """The histograms by label; nothing where there is none."""
        alone = schema.label_column is None or len(schema.learned) < 2
        return {} if alone else {LABELS: self.label_share}

    def sensitivity(self, schema: Schema, name: str) -> float:
        """One cell of each column."""
        return math.sqrt(max(len(schema.learned) - 1, 1))

    def measure(
        self, meter: "Meter", histograms: Histograms, label: str | None, charges: Mapping[str, Charge]
    ) -> "LabelRarityScore":
        """Rarity, and the histograms by label."""
        rarity = make_rarity(histograms, label)
        if label is None or LABELS not in charges:
            return LabelRarityScore(rarity, None, (), np.zeros(0, dtype=np.int64))
        tables = LabelHistograms.of(histograms, label)
        noisy = meter.measure(tables, mu=charges[LABELS].mu)
        gains = make_gains(histograms, tables, noisy, tables.sensitivity / charges[LABELS].per_row)
        return LabelRarityScore(rarity, tables, gains, noisy)

    def load(self, histograms: Histograms, label: str | None, arrays: Arrays) -> "LabelRarityScore":
        """The kept tables."""
        rarity = Rarity().load(histograms, label, arrays)
        counts = ints(arrays["label_counts"])
        if label is None or not len(counts):
            require(len(counts) == 0, "it has histograms by a label, and no label")
            return LabelRarityScore(rarity, None, (), counts)
        tables = LabelHistograms.of(histograms, label)
        shapes = [(tables.labels.count, bins.count) for bins in tables.bins]
        gains = [ints(arrays[f"label_gain_{i}"], math.prod(shape), most=2**40) for i, shape in enumerate(shapes)]
        require(len(counts) == tables.size, "its histograms by label have the wrong length")
        return LabelRarityScore(
            rarity, tables, tuple(gain.reshape(shape) for gain, shape in zip(gains, shapes, strict=True)), counts
        )


@dataclass(frozen=True)
class LabelHistograms:
    """The statistic: each record adds one to the cell of its label and its region, in every column."""

    labels: Bins
    bins: tuple[Bins, ...]
    of_bin: tuple[Ints, ...]
    """The region of each bin of every column."""
    places: tuple[int, ...]
    """Where the columns' histograms stand among all."""
    name: str = LABELS
    unit: int = 1
    weighted: bool = False

    @classmethod
    def of(cls, histograms: Histograms, label: str) -> "LabelHistograms":
        """One histogram of every column but the label: of a wide one, that with equal bins."""
        names = [bins.column.name for bins in histograms.bins]
        columns = [places[-1] for places in histograms_by_column(histograms.bins) if names[places[0]] != label]
        return cls(
            labels=histograms.bins[names.index(label)],
            bins=tuple(histograms.bins[i] for i in columns),
            of_bin=tuple(regions(histograms, i) for i in columns),
            places=tuple(columns),
        )

    @property
    def sensitivity(self) -> float:
        """Exact: one cell of each column."""
        return math.sqrt(len(self.bins))

    @property
    def widths(self) -> tuple[int, ...]:
        """How many regions each column has."""
        return tuple(int(region.max()) + 1 for region in self.of_bin)

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.labels.count * sum(self.widths)

    def total(self, records: Records) -> Ints:
        """All tables, one behind the other."""
        label = self.labels.of(records)
        parts = [
            np.bincount(label * width + region[bins.of(records)], minlength=self.labels.count * width)
            for bins, region, width in zip(self.bins, self.of_bin, self.widths, strict=True)
        ]
        return np.concatenate(parts).astype(np.int64)

    def split(self, flat: Ints) -> list[Ints]:
        """(labels, regions) of each column."""
        ends = np.cumsum([self.labels.count * width for width in self.widths])[:-1]
        return [part.reshape(self.labels.count, -1) for part in np.split(flat, ends)]


@dataclass(frozen=True)
class LabelRarityScore:
    """The released score function: that of `rarity` less `gains`, (labels, bins) of each column."""

    rarity: RarityScore
    tables: LabelHistograms | None
    gains: tuple[Ints, ...]
    counts: Ints

    @property
    def columns(self) -> int:
        """All features."""
        return self.rarity.columns

    @property
    def lowest(self) -> int:
        """The smallest score that any record can have is no smaller than this."""
        return self.rarity.lowest - sum(int(gain.max()) for gain in self.gains)

    def of(self, records: Records) -> Ints:
        """The score of each record."""
        score = self.rarity.of(records)
        if self.tables is None:
            return score
        label = self.tables.labels.of(records)
        for bins, gain in zip(self.tables.bins, self.gains, strict=True):
            score = score - gain[label, bins.of(records)]
        return score

    def tails(self, exact: Histograms, most: float = 1.0) -> None:
        """None: they would need the counts of every label, too."""

    def kernels(self) -> "Mapping[str, Statistic]":
        """The histograms by label."""
        return {} if self.tables is None else {LABELS: self.tables}

    def dump(self) -> Arrays:
        """What was measured, and the tables made of it."""
        gains = {f"label_gain_{i}": gain.ravel() for i, gain in enumerate(self.gains)}
        return self.rarity.dump() | {"label_counts": self.counts} | gains


def make_gains(histograms: Histograms, tables: LabelHistograms, noisy: Ints, sigma: float) -> tuple[Ints, ...]:
    """How much more frequent each bin is within a label than in all, as a log, by the noise: post-processing."""
    names = [bins.column.name for bins in histograms.bins]
    label = np.maximum(histograms.noisy(names.index(tables.labels.column.name)), 0.0)
    gains = []
    for i, region, table in zip(tables.places, tables.of_bin, tables.split(noisy), strict=True):
        in_all = np.maximum(np.bincount(region, histograms.noisy(i)), 0.0)
        gain = _gain(table, np.outer(label, in_all) / histograms.rows, sigma)
        gains.append(np.floor(gain * NAT).astype(np.int64)[:, region])
    return tuple(gains)


def _gain(table: Ints, expected: Floats, sigma: float) -> Floats:
    """What does not exceed one standard deviation counts for nothing, nor a cell that noise may have filled."""
    more = table - expected
    kept = more * np.maximum(1 - (sigma / np.maximum(np.abs(more), 1e-9)) ** 2, 0.0)
    least = np.maximum(np.minimum(expected, sigma / 2), _RAREST * expected)
    known = expected > sigma / 2
    return np.log(np.where(known, np.maximum(expected + kept, least) / np.where(known, expected, 1.0), 1.0))
