"""How columns are seen by tables, and what a measurement of tables leaves behind."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from repsynth.arrays import Ints
from repsynth.columns.groups import Groups, choose_groups, coarser, how_many, how_many_coarse
from repsynth.models.marginal.label_tables import LabelTables
from repsynth.models.marginal.tables import Pair, Tables
from repsynth.scoring.stage import StageOne


@dataclass(frozen=True)
class Measured:
    """The tables that were measured, and the noisy result."""

    tables: Tables | LabelTables
    noisy: Ints
    sigma: float


@dataclass(frozen=True)
class Views:
    """The columns as tables see them: in fine groups and, behind them, in coarse ones. A view is a position among
    both."""

    stage: StageOne
    groups: tuple[Groups, ...]
    coarse: tuple[Groups, ...]

    @classmethod
    def of(cls, stage: StageOne, mu: float) -> "Views":
        """Groups by the noise of the first tables to come, whose charge is `mu`."""
        histograms, label = stage.histograms, stage.schema.label_column
        columns = len(histograms.bins)
        noise = math.sqrt(columns - 1) / mu
        most = how_many(histograms.rows, noise, label.size if label else 1)
        groups = choose_groups(histograms, label.name if label else None, most=most, noise=noise)
        few = how_many_coarse(histograms.rows, noise)
        coarse = tuple(coarser(histograms, i, each, few) for i, each in enumerate(groups))
        return cls(stage, groups, coarse)

    @classmethod
    def of_tables(cls, stage: StageOne, tables: Tables | LabelTables) -> "Views":
        columns = len(stage.histograms.bins)
        return cls(stage, tables.groups[:columns], tables.groups[columns:])

    @property
    def all_groups(self) -> tuple[Groups, ...]:
        """Fine groups, then coarse ones: column i is coarse at i + number of columns."""
        return self.groups + self.coarse

    @property
    def label(self) -> int | None:
        """The label's position among the columns."""
        column = self.stage.schema.label_column
        return None if column is None else self.stage.schema.learned.index(column)

    @property
    def features(self) -> list[int]:
        """The positions of all other columns."""
        return [i for i in range(len(self.groups)) if i != self.label]

    @property
    def label_pairs(self) -> list[Pair]:
        assert self.label is not None
        return [(self.label, i) for i in self.features]

    @property
    def candidates(self) -> list[Pair]:
        """Column × column."""
        features = self.features
        return [(i, j) for k, j in enumerate(features) for i in features[:k]]

    def coarse_candidates(self) -> list[Pair]:
        """Column × column in coarse groups, where that makes a smaller table."""
        columns = len(self.groups)
        coarse = [((i + columns, j + columns), (i, j)) for i, j in self.candidates]
        return [pair for pair, fine in coarse if self.size(pair) < self.size(fine)]

    def size(self, cross: Pair) -> int:
        return math.prod(self.all_groups[i].count for i in cross)

    def spare_pairs(self, measured: Sequence[Measured]) -> Sequence[Pair]:
        """Return what to measure where nothing was selected: the last tables again or, where there are none yet,
        the label's or any."""
        if measured:
            return measured[-1].tables.pairs
        return self.label_pairs if self.label is not None else self.candidates[:1]
