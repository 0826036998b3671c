"""The release of a marginal mechanism: noisy tables, the model that is fitted to them, and their files."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from repsynth.arrays import Arrays, Floats
from repsynth.columns.groups import NONE, read_groups
from repsynth.io.records import Records
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Made, StoredModel
from repsynth.models.marginal.mechanism import LABEL_TABLES, TABLES, State, most_tables, rounds_of
from repsynth.models.marginal.pool import Pool
from repsynth.models.marginal.tree import Tree
from repsynth.models.statistics import (
    UNIT,
    Domain,
    LabelTables,
    MeasuredTables,
    Pair,
    Tables,
    is_forest,
    label_axis,
)
from repsynth.models.uncertainty import (
    ModelErrors,
    group_means,
    lost_from,
    mean_positions,
    nothing_lost,
    table_errors,
)
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL
from repsynth.storage import ints, require

_MOST_CELLS = 2**25


@dataclass(frozen=True)
class MarginalRelease:
    """The tables that were measured, in order. `sampler` is the fitted model."""

    state: State
    measured: tuple[MeasuredTables, ...]

    @cached_property
    def _rounds(self) -> dict[str, str]:
        """The selection of each measurement that had one."""
        return {tables: choice for choice, tables in rounds_of(self.state.charges)}

    def kernels(self, *, choices: bool = True) -> dict[str, Tables | LabelTables | Chosen]:
        """Return the tables, and the selections, which are recomputed from what was released before them."""
        found: dict[str, Tables | LabelTables | Chosen] = {}
        state = replace(self.state, measured=[], _estimated=None)
        for m in self.measured:
            if choices and m.tables.name in self._rounds:
                selection = state.selection(self._rounds[m.tables.name], m.tables.name)
                pairs = selection.tables.pairs
                made = tuple(pairs.index(pair) for pair in m.tables.pairs if pair in pairs)
                found[selection.name] = Chosen(selection, made)
            found[m.tables.name] = m.tables
            state.measured.append(m)
        return found

    def choices(self) -> dict[str, Made]:
        """Return how many tables each selection released: none where spare pairs were measured."""
        found, state = {}, replace(self.state, measured=[])
        for m in self.measured:
            if m.tables.name in self._rounds:
                spare = state.spare_pairs == m.tables.pairs
                found[self._rounds[m.tables.name]] = Made(0 if spare else len(m.tables.pairs), weighted=True)
            state.measured.append(m)
        return found

    def norms(self, records: Records) -> tuple[Floats, Floats]:
        """Return the norms in the label tables. In other tables, all norms are equal and nothing is clipped."""
        first = self.measured[0].tables
        if isinstance(first, LabelTables):
            return first.norms(records)
        return np.ones(records.rows), np.ones(records.rows)

    def label_masses(self) -> tuple[Floats, float] | None:
        """Return the noisy masses of the label tables."""
        first = self.measured[0]
        if not isinstance(first.tables, LabelTables):
            return None
        return first.tables.masses(first.noisy), first.sigma / first.tables.mass_unit

    def errors(self) -> ModelErrors:
        """Return the errors of the measured tables, and of means of numeric columns by the label."""
        domain, stage = self.state.domain, self.state.stage
        histograms, groups = stage.histograms, domain.groups
        tables, means = [], []
        for m in self.measured:
            clipped = isinstance(m.tables, LabelTables)
            for (i, j), table in m.noisy_tables.items():
                names, counts, noise = (
                    tuple(groups[k].bins.column.name for k in (i, j)),
                    table.counts,
                    table.variance,
                )
                tables.append(table_errors(names, m.tables.name, counts, noise, clipped=clipped))
                if i == domain.label and groups[j].bins.starts is not None:
                    positions = mean_positions(groups[j], histograms.levels(j))
                    both = ((groups[i], i), (groups[j], j))
                    whole = not clipped and not stage.weighted
                    lost = nothing_lost(both) if whole else lost_from(histograms, both, counts, noise)
                    means.append(group_means(groups[i], groups[j], positions, counts, noise, lost))
        return ModelErrors(tuple(tables), tuple(means))

    @cached_property
    def sampler(self) -> Tree | Pool:
        return self.state.estimate().model

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        domain = self.state.domain
        parts = next((m.tables.parts for m in self.measured if isinstance(m.tables, LabelTables)), ())
        return {"tables": [m.tables.describe() for m in self.measured]}, {
            **{f"tables_{k}": m.noisy for k, m in enumerate(self.measured)},
            **{f"groups_{i}": groups.of_bin for i, groups in enumerate(domain.groups[: domain.columns])},
            **{f"coarse_{i}": groups.of_bin for i, groups in enumerate(domain.groups[domain.columns :])},
            **{f"offset_{k}": part.offset for k, part in enumerate(parts)},
        }


def max_cells(megabytes: int) -> int:
    """Return how many cells all candidates may have together, in the tables and their expected values."""
    return megabytes * 2**20 // 16


# --- files ---------------------------------------------------------------------------------------------------


class TablesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement: the pairs of its tables; for the label tables also their constant and clip."""

    name: str
    pairs: tuple[Pair, ...]
    constant: int | None = None
    clip: int | None = None


def read_release(stored: StoredModel) -> MarginalRelease:
    """Read the release from untrusted files; accept only tables that a run of its plan could have measured."""
    stage, plan = stored.stage, stored.plan
    domain = _read_domain(stage, stored.arrays)
    measured = tuple(_read_tables(stored, domain))
    state = State(stage, domain, plan.charges, max_cells(plan.max_model_mb), list(measured))
    return MarginalRelease(state, measured)


def _read_domain(stage: StageOne, arrays: Arrays) -> Domain:
    groups = [read_groups(arrays[f"groups_{i}"], bins) for i, bins in enumerate(stage.histograms.bins)]
    domain = Domain.of(
        groups, [read_groups(arrays[f"coarse_{i}"], g.bins) for i, g in enumerate(groups)], label_axis(stage)
    )
    for i, coarse_of_fine in enumerate(domain.coarse_of_fine):
        fine, coarse = domain.groups[i].of_bin, domain.groups[i + domain.columns].of_bin
        inside = fine != NONE
        whole = np.array_equal(coarse_of_fine[fine[inside]], coarse[inside])
        require(whole and bool(np.all(inside == (coarse != NONE))), "its coarse groups divide its groups")
    return domain


def _read_tables(stored: StoredModel, domain: Domain) -> Iterator[MeasuredTables]:
    files = msgspec.convert(stored.described.get("tables"), tuple[TablesFile, ...])
    require(len(files) > 0, "its parts are not its model's")
    require([file.name for file in files] == list(stored.sigmas), "its measurements are out of order")
    labels = 1 if domain.label is None else domain.sizes[domain.label]
    before: tuple[Pair, ...] = ()
    for k, file in enumerate(files):
        sigma = stored.sigmas[file.name]
        _check_pairs(file, domain, before, stored.stage.histograms.rows, sigma / FULL)
        before = file.pairs
        tables = _statistic(file, stored.stage, domain, stored.arrays)
        cells = sum(math.prod(shape) for shape in tables.shapes)
        require(labels * cells <= _MOST_CELLS, "its tables are too large")
        yield MeasuredTables(tables, ints(stored.arrays[f"tables_{k}"], tables.entries, most=2**62), sigma)


def _statistic(file: TablesFile, stage: StageOne, domain: Domain, arrays: Arrays) -> Tables | LabelTables:
    of_label = file.pairs == domain.label_pairs
    if file.constant is None or file.clip is None:
        require(not of_label, "its label's tables have no clip")
        return Tables(domain, file.pairs, stage.score, stage.weights, file.name)
    require(of_label, "its label's tables are not all there")
    require(0 < file.constant <= 2**30 and 0 < file.clip <= 2**30, "its clip is out of range")
    offsets = []
    for k, (_, i) in enumerate(file.pairs):
        offset = ints(arrays[f"offset_{k}"], domain.sizes[i])
        proper = bool(offset.min() >= 0) and int(offset.sum()) == UNIT
        require(proper, "its tables are centred on no probabilities")
        offsets.append(offset)
    return LabelTables.at(domain, offsets, file.constant, file.clip, stage.score, stage.weights, file.name)


def _check_pairs(file: TablesFile, domain: Domain, before: tuple[Pair, ...], rows: float, sigma: float) -> None:
    pairs, known = set(file.pairs), set(domain.candidates)
    require(0 < len(file.pairs) == len(pairs), "a table is there twice")
    if file.name == LABEL_TABLES:
        require(pairs == set(domain.label_pairs), "its label's tables are not all there")
    elif file.pairs != before:  # these may be measured again
        first = file.name == TABLES
        if not first:
            known |= {(i + domain.columns, j + domain.columns) for i, j in domain.candidates}
        require(pairs <= known, "a table is not known")
        most = most_tables(rows, len(pairs) ** 0.5 / sigma * (1 + 1e-9))
        require(is_forest(file.pairs) if first else len(pairs) <= most, "its tables do not fit")
