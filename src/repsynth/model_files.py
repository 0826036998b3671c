"""The parts of a release that belong to a model: described for `release.json`, and read back with every check."""

import math
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from repsynth.cells import Cells
from repsynth.models.groups import NONE, Groups
from repsynth.models.marginal import PAIRS_A_ROUND, Parts
from repsynth.models.naive_bayes import Contribution, WeightedSums
from repsynth.models.network import LARGEST_PARAMETER, Network, Trained
from repsynth.models.stages import StageOne
from repsynth.models.tables import Tables, is_forest
from repsynth.release import Release
from repsynth.strict import floats, ints, require

_MOST_CELLS = 2**25


class SumsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What naive Bayes measured: its constant and clip, and whether outliers were summed up apart."""

    constant: int
    clip: int
    split: bool


class TablesFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A measurement of a marginal model: the positions of the columns that its tables cross."""

    name: str
    pairs: tuple[tuple[int, int], ...]


def model_arrays(release: Release) -> dict[str, NDArray[Any]]:
    """What the model measured, under fixed names."""
    arrays: dict[str, NDArray[Any]] = {}
    for k, measured in enumerate(release.measured):
        statistic = measured.statistic
        if isinstance(statistic, WeightedSums):
            arrays["sums"] = measured.noisy
            arrays["centre"] = np.array(statistic.contribution.centre, dtype=np.float64)
            arrays["scale"] = np.array(statistic.contribution.scale, dtype=np.float64)
            arrays |= {f"offset_{i}": offset for i, offset in enumerate(statistic.contribution.offsets)}
        elif isinstance(statistic, Tables):
            arrays[f"tables_{k}"] = measured.noisy
            fine = statistic.groups[: len(release.marginals.cells)]
            arrays |= {f"groups_{i}": groups.of_cell for i, groups in enumerate(fine)}
    if release.trained is not None:
        network = release.trained.network
        arrays["parameters"] = release.trained.parameters
        arrays |= {f"groups_{i}": groups.of_cell for i, groups in enumerate(network.groups)}
        arrays |= {f"features_{i}": features.ravel() for i, features in enumerate(network.features)}
    return arrays


def describe_tables(release: Release) -> tuple[TablesFile, ...]:
    """Which tables a marginal model measured; none for naive Bayes."""
    tables = [m.statistic for m in release.measured if isinstance(m.statistic, Tables)]
    return tuple(TablesFile(statistic.name, statistic.pairs) for statistic in tables)


def describe_sums(release: Release) -> SumsFile | None:
    """What naive Bayes needs beside its arrays; None for other models."""
    statistic = release.statistic if release.measured else None
    if not isinstance(statistic, WeightedSums):
        return None
    contribution = statistic.contribution
    return SumsFile(contribution.constant, contribution.clip, statistic.split_at is not None)


def read_sums(
    file: SumsFile, stage: StageOne, arrays: dict[str, NDArray[Any]]
) -> tuple[WeightedSums, NDArray[np.int64]]:
    """The measurement of naive Bayes."""
    schema, threshold = stage.schema, stage.threshold
    require(0 < file.constant < 2**30 and 0 < file.clip < 2**30, "its clip is out of range")
    require(not file.split or threshold is not None, "it is split without a threshold")
    require(not file.split or stage.outlier_weight > 0.01, "it is split, and its outliers weigh nothing")
    contribution = Contribution(
        discrete=schema.discrete,
        numeric=schema.numeric,
        offsets=tuple(
            ints(arrays[f"offset_{i}"], column.cells + column.missing, most=2**20)
            for i, column in enumerate(schema.discrete)
        ),
        centre=floats(arrays["centre"], len(schema.numeric)),
        scale=floats(arrays["scale"], len(schema.numeric), positive=True),
        constant=file.constant,
        clip=file.clip,
    )
    split_at = threshold.value if threshold and file.split else None
    statistic = WeightedSums(contribution, stage.score, stage.weights, schema.label_column, split_at=split_at)
    return statistic, ints(arrays["sums"], math.prod(statistic.shape), most=2**62)


def read_tables(
    files: tuple[TablesFile, ...], stage: StageOne, arrays: dict[str, NDArray[Any]]
) -> Iterator[tuple[Tables, NDArray[np.int64]]]:
    """The measurements of a marginal model."""
    groups = tuple(_groups(arrays[f"groups_{i}"], cells) for i, cells in enumerate(stage.marginals.cells))
    parts = Parts(stage, groups)
    columns = len(groups)
    of_label = set(parts.label_pairs if parts.label is not None else [])
    of_columns = set(parts.candidates)
    coarse = {(i + columns, j + columns) for i, j in of_columns}
    labels = 1 if parts.label is None else groups[parts.label].count
    before: tuple[tuple[int, int], ...] = ()
    for k, file in enumerate(files):
        pairs = set(file.pairs)
        require(0 < len(file.pairs) == len(pairs), "a table is there twice")
        if file.name == "pairs":
            require(pairs == of_label, "its label's tables are not all there")
        elif file.pairs != before and pairs != of_label:  # these may be measured again
            first = file.name == "synthesis"
            require(pairs <= (of_columns if first else of_columns | coarse), "a table is not known")
            require(is_forest(file.pairs) if first else len(pairs) <= PAIRS_A_ROUND, "its tables do not fit")
        before = file.pairs
        tables = Tables(parts.all_groups, file.pairs, stage.score, stage.weights, file.name)
        cells = sum(rows * width for rows, width in tables.shapes)
        require(labels * cells <= _MOST_CELLS, "its tables are too large")
        yield tables, ints(arrays[f"tables_{k}"], cells, most=2**62)


def read_trained(stage: StageOne, arrays: dict[str, NDArray[Any]]) -> Trained:
    """What a training left behind. Features are kept, not worked out again: a basis is not unique."""
    groups = tuple(_groups(arrays[f"groups_{i}"], cells) for i, cells in enumerate(stage.marginals.cells))
    features = []
    for i, each in enumerate(groups):
        array = arrays[f"features_{i}"]
        require(len(array) % each.count == 0 and len(array) <= each.count**2, "its features do not fit")
        features.append(np.array(floats(array, len(array))).reshape(each.count, -1))
    width = sum(feature.shape[1] for feature in features)
    require(width**2 <= _MOST_CELLS, "its network is too large")
    network = Network(stage, groups, tuple(features))
    parameters = np.array(floats(arrays["parameters"], network.size))
    for values in (parameters, *features):
        require(float(np.abs(values).max(initial=0.0)) <= LARGEST_PARAMETER, "a parameter is out of range")
    return Trained(network, parameters)


def _groups(array: NDArray[Any], cells: Cells) -> Groups:
    of_cell = ints(array, cells.count, most=2**20)
    values = of_cell if cells.column.missing else of_cell[:-1]
    require(cells.column.missing or of_cell[-1] == NONE, "its groups do not fit their column")
    require(bool(np.array_equal(np.unique(values), np.arange(values.max() + 1))), "its groups have gaps")
    return Groups(cells, of_cell)
