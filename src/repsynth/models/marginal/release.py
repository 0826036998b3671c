"""What the marginal mechanism released: noisy tables, the model that follows from them, and their files."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from repsynth.arrays import Arrays, Floats
from repsynth.columns.groups import NONE, of_finer, read_groups
from repsynth.data.records import Records
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Kept, Made
from repsynth.models.marginal.label_tables import UNIT, LabelTables
from repsynth.models.marginal.mechanism import (
    FOREST,
    LABEL_TABLES,
    estimate_model,
    make_choice,
    most_tables,
    rounds_of,
)
from repsynth.models.marginal.raked import Pool
from repsynth.models.marginal.tables import Pair, Tables, is_forest
from repsynth.models.marginal.tree import Tree
from repsynth.models.marginal.views import Measured, Views
from repsynth.models.uncertainty import (
    ModelErrors,
    group_means,
    lost_from,
    mean_positions,
    nothing_lost,
    table_errors,
)
from repsynth.scoring.stage import RunPlan, StageOne
from repsynth.scoring.weights import FULL
from repsynth.storage import ints, require

_MOST_CELLS = 2**25


@dataclass(frozen=True)
class MarginalFit:
    """The tables that were measured, in order."""

    stage: StageOne
    plan: RunPlan
    measured: tuple[Measured, ...]

    @cached_property
    def _views(self) -> Views:
        return Views.of_tables(self.stage, self.measured[0].tables)

    @property
    def _max_cells(self) -> int:
        return max_cells(self.plan.max_model_mb)

    def kernels(self, *, choices: bool = True) -> dict[str, Tables | LabelTables | Chosen]:
        """Return the tables and the selections, each made again from what was released before it."""
        found: dict[str, Tables | LabelTables | Chosen] = {}
        rounds = {round_.tables: round_ for round_ in rounds_of(list(self.plan.charges))}
        estimate = None
        for k, m in enumerate(self.measured):
            if choices and m.tables.name in rounds:
                round_, before = rounds[m.tables.name], self.measured[:k]
                estimate = estimate_model(self._views, before, max_cells=self._max_cells, before=estimate)
                choice = make_choice(
                    self._views, before, estimate, self.plan.charges, round_, max_cells=self._max_cells
                )
                pairs = choice.tables.pairs
                found[round_.choice] = Chosen(choice, tuple(pairs.index(p) for p in m.tables.pairs if p in pairs))
            found[m.tables.name] = m.tables
        return found

    def choices(self) -> dict[str, Made]:
        """Return how many tables each selection released: none where earlier ones were measured again."""
        rounds = {round_.tables: round_.choice for round_ in rounds_of(list(self.plan.charges))}
        found = {}
        for k, m in enumerate(self.measured):
            if m.tables.name in rounds:
                spare = tuple(self._views.spare_pairs(self.measured[:k])) == m.tables.pairs
                found[rounds[m.tables.name]] = Made(0 if spare else len(m.tables.pairs), weighted=True)
        return found

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return those of the label's tables; in others all records count the same, and nothing is clipped."""
        first = self.measured[0].tables
        if isinstance(first, LabelTables):
            return first.norms(records)
        return np.ones(records.rows), np.ones(records.rows)

    def label_masses(self) -> tuple[Floats, float] | None:
        """Return what the label's tables say."""
        first = self.measured[0]
        if not isinstance(first.tables, LabelTables):
            return None
        return first.tables.masses(first.noisy), first.sigma / first.tables.mass_unit

    def errors(self) -> ModelErrors:
        """Return those of the measured tables, and of means by the label of the numeric columns."""
        histograms, columns = self.stage.histograms, len(self.stage.histograms.bins)
        tables, means = [], []
        for m in self.measured:
            groups, clipped = m.tables.groups, isinstance(m.tables, LabelTables)
            variances = m.tables.variances(m.sigma)
            for (i, j), counts in m.tables.split(m.noisy).items():
                names, noise = tuple(groups[k].bins.column.name for k in (i, j)), variances[i, j]
                tables.append(table_errors(names, m.tables.name, counts, noise, clipped=clipped))
                if names[0] == self.stage.schema.label and groups[j].bins.starts is not None:
                    positions = mean_positions(groups[j], histograms.levels(j % columns))
                    both = ((groups[i], i % columns), (groups[j], j % columns))
                    whole = not clipped and not self.stage.weighted
                    lost = nothing_lost(both) if whole else lost_from(histograms, both, counts, noise)
                    means.append(group_means(groups[i], groups[j], positions, counts, noise, lost))
        return ModelErrors(tuple(tables), tuple(means))

    def sampler(self) -> Tree | Pool:
        return estimate_model(self._views, self.measured, max_cells=self._max_cells).model

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        views = self._views
        centred = [m.tables for m in self.measured if isinstance(m.tables, LabelTables)]
        return {"tables": [m.tables.describe() for m in self.measured]}, {
            **{f"tables_{k}": m.noisy for k, m in enumerate(self.measured)},
            **{f"groups_{i}": groups.of_bin for i, groups in enumerate(views.groups)},
            **{f"coarse_{i}": groups.of_bin for i, groups in enumerate(views.coarse)},
            **{f"offset_{k}": offset for tables in centred[:1] for k, offset in enumerate(tables.offsets)},
        }


def max_cells(megabytes: int) -> int:
    """Return how many cells all candidates may have together: the tables, and what is expected of them."""
    return megabytes * 2**20 // 16


# Files


class TablesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement: the pairs of its tables; for the label's tables also their constant and clip."""

    name: str
    pairs: tuple[Pair, ...]
    constant: int | None = None
    clip: int | None = None


def read_fit(kept: Kept) -> MarginalFit:
    """Return the release from untrusted files: only tables that a run of its plan could have measured."""
    measured = tuple(_read_tables(kept.described, kept.stage, kept.sigmas, kept.arrays))
    return MarginalFit(kept.stage, kept.plan, measured)


def _read_tables(
    described: dict[str, Any], stage: StageOne, sigmas: Mapping[str, float], arrays: Arrays
) -> Iterator[Measured]:
    files = msgspec.convert(described.get("tables"), tuple[TablesFile, ...])
    require(len(files) > 0, "its parts are not its model's")
    require([file.name for file in files] == list(sigmas), "its measurements are out of order")
    groups = tuple(read_groups(arrays[f"groups_{i}"], bins) for i, bins in enumerate(stage.histograms.bins))
    coarse = tuple(read_groups(arrays[f"coarse_{i}"], each.bins) for i, each in enumerate(groups))
    for fine, other in zip(groups, coarse, strict=True):
        inside = fine.of_bin != NONE
        whole = np.array_equal(of_finer(fine, other)[fine.of_bin[inside]], other.of_bin[inside])
        require(whole and bool(np.all(inside == (other.of_bin != NONE))), "its coarse groups divide its groups")
    views = Views(stage, groups, coarse)
    labels = 1 if views.label is None else groups[views.label].count
    before: tuple[Pair, ...] = ()
    for k, file in enumerate(files):
        _check_pairs(file, views, before, sigmas[file.name] / FULL)
        before = file.pairs
        tables = _statistic(file, views, arrays)
        cells = sum(math.prod(shape) for shape in tables.shapes)
        require(labels * cells <= _MOST_CELLS, "its tables are too large")
        yield Measured(tables, ints(arrays[f"tables_{k}"], tables.entries, most=2**62), sigmas[file.name])


def _statistic(file: TablesFile, views: Views, arrays: Arrays) -> Tables | LabelTables:
    stage = views.stage
    of_label = views.label is not None and list(file.pairs) == views.label_pairs
    if file.constant is None or file.clip is None:
        require(not of_label, "its label's tables have no clip")
        return Tables(views.all_groups, file.pairs, stage.score, stage.weights, file.name)
    require(of_label, "its label's tables are not all there")
    require(0 < file.constant <= 2**30 and 0 < file.clip <= 2**30, "its clip is out of range")
    offsets = []
    for k, (_, i) in enumerate(file.pairs):
        offset = ints(arrays[f"offset_{k}"], views.groups[i].count)
        proper = bool(offset.min() >= 0) and int(offset.sum()) == UNIT
        require(proper, "its tables are centred on no probabilities")
        offsets.append(offset)
    return LabelTables(
        groups=views.all_groups,
        pairs=file.pairs,
        offsets=tuple(offsets),
        constant=file.constant,
        clip=file.clip,
        score=stage.score,
        weights=stage.weights,
        name=file.name,
    )


def _check_pairs(file: TablesFile, views: Views, before: tuple[Pair, ...], sigma: float) -> None:
    pairs, columns = set(file.pairs), len(views.groups)
    of_label = set(views.label_pairs if views.label is not None else [])
    known = set(views.candidates)
    require(0 < len(file.pairs) == len(pairs), "a table is there twice")
    if file.name == LABEL_TABLES:
        require(pairs == of_label, "its label's tables are not all there")
    elif file.pairs != before:  # these may be measured again
        first = file.name == FOREST
        if not first:
            known |= {(i + columns, j + columns) for i, j in views.candidates}
        require(pairs <= known, "a table is not known")
        most = most_tables(views.stage.histograms.rows, len(pairs) ** 0.5 / sigma * (1 + 1e-9))
        require(is_forest(file.pairs) if first else len(pairs) <= most, "its tables do not fit")
