"""Tables read back from a release: only those that a run of its plan could have measured."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import numpy as np

from repsynth.columns.groups import NONE, of_finer, read_groups
from repsynth.models.marginal.fit import FOREST
from repsynth.models.marginal.label_tables import UNIT, LabelTables
from repsynth.models.marginal.rounds import LABEL_TABLES, MEAN_NOISE, most_tables
from repsynth.models.marginal.tables import Cross, Tables, is_forest
from repsynth.models.marginal.views import Measured, Views
from repsynth.scoring.base import Arrays
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import FULL
from repsynth.storage.checks import ints, require


class TablesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement: the views that its tables cross; of the label's tables also their constant and clip."""

    name: str
    pairs: tuple[tuple[int, ...], ...]
    constant: int | None = None
    clip: int | None = None


def read_tables(
    described: dict[str, Any], stage: StageOne, sigmas: Mapping[str, float], arrays: Arrays, most_cells: int
) -> Iterator[Measured]:
    """The measurements of a marginal model; `sigmas` holds the noise of each."""
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
    before: tuple[Cross, ...] = ()
    for k, file in enumerate(files):
        _check_pairs(file, views, before, sigmas[file.name] / FULL)
        before = file.pairs
        tables = _statistic(file, views, arrays)
        cells = sum(math.prod(shape) for shape in tables.shapes)
        require(labels * cells <= most_cells, "its tables are too large")
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
        require(
            bool(offset.min() >= 0) and int(offset.sum()) == UNIT, "its tables are centred on no probabilities"
        )
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


def _check_pairs(file: TablesFile, views: Views, before: tuple[Cross, ...], sigma: float) -> None:
    pairs, columns = set(file.pairs), len(views.groups)
    of_label = set(views.label_pairs if views.label is not None else [])
    of_columns: set[Cross] = set(views.candidates)
    require(0 < len(file.pairs) == len(pairs), "a table is there twice")
    if file.name == LABEL_TABLES:
        require(pairs == of_label, "its label's tables are not all there")
    elif file.pairs != before and pairs != of_label:  # these may be measured again
        first = file.name == FOREST
        further: set[Cross] = set()
        if not first:
            further = {(i + columns, j + columns) for i, j in views.candidates}
            further |= set(views.triples(MEAN_NOISE * sigma * (1 - 1e-9)))  # rounding aside
        require(pairs <= of_columns | further, "a table is not known")
        most = most_tables(views.stage.histograms.rows, len(pairs) ** 0.5 / sigma * (1 + 1e-9))
        require(is_forest(file.pairs) if first else len(pairs) <= most, "its tables do not fit")
