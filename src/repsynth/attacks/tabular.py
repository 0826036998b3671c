"""What a synthetic table tells of a target: distances, densities, and the cells that the model measured."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats
from repsynth.attacks.victims import Victims
from repsynth.data.records import UNITS, Records
from repsynth.evaluation.nearest import make_attacks, nearest
from repsynth.models.base import Fit
from repsynth.scoring.stage import StageOne

_PRIOR = 0.5  # of a count


def table_scores(
    synthetic: Records, victims: Victims, stage: StageOne, fit: Fit, to_reference: Floats | None
) -> Iterator[tuple[str, Floats]]:
    """Each a number for each target, the mean over their rows; those that need people from outside are left out
    where there are none."""
    for name, of_rows in _row_scores(synthetic, victims, stage, fit, to_reference):
        yield name, victims.owners.means(of_rows)


def _row_scores(
    synthetic: Records, victims: Victims, stage: StageOne, fit: Fit, to_reference: Floats | None
) -> Iterator[tuple[str, Floats]]:
    places = victims.places
    near = nearest(places.place(victims.targets), places.place(synthetic))
    others = [synthetic, victims.reference, victims.base, victims.targets]
    cells = focal_counts(stage, fit, victims.targets, others)
    yield "distance", -near[:, 0]
    yield "closeness", -np.log(near.mean(axis=1) + 1e-6)
    # For one who knows all others but the targets: how many more than expected share a cell, where few do.
    expected = cells[2] + cells[3] / 2
    excess = cells[0] * (stage.histograms.rows / synthetic.rows) - expected
    yield "cells", (excess / (expected + _PRIOR)).sum(axis=0)
    if to_reference is not None:
        yield "density ratio", make_attacks(near, to_reference).density
        ratio = (cells[0] + _PRIOR) / (cells[1] + _PRIOR) * (victims.reference.rows / synthetic.rows)
        yield "measured cells", np.log(ratio).mean(axis=0)


def focal_counts(stage: StageOne, fit: Fit, targets: Records, others: Sequence[Records]) -> list[Floats]:
    """For each of the others: how many records share the target's cell, in each table that the model measured, as
    far as they count.

    Tables of `mst` and `aim` are those that their release lists; of a model without tables, each column by label.
    """
    found: list[list[NDArray[Any]]] = [[] for _ in others]
    for columns, shape in focal_tables(stage, fit):
        ours = _cells(columns, shape, targets)
        size = int(np.prod(shape))
        for side, records in zip(found, others, strict=True):
            theirs = _cells(columns, shape, records)
            inside = theirs >= 0
            counts = None if records.whose is None else records.whose.factors[inside] / UNITS
            side.append(np.bincount(theirs[inside], counts, minlength=size + 1)[ours])  # −1: the last one, empty
    return [np.array(side, dtype=np.float64).reshape(len(side), targets.rows) for side in found]


def focal_tables(stage: StageOne, fit: Fit) -> Iterator[tuple[list[Any], tuple[int, ...]]]:
    """The columns of each table, as what tells a record's group, and its shape."""
    seen = set()
    for kernel in fit.kernels(choices=False).values():
        for cross in getattr(kernel, "pairs", ()):
            if cross not in seen:
                seen.add(cross)
                groups: Any = kernel.groups  # type: ignore[union-attr]
                yield [groups[i] for i in cross], tuple(groups[i].count for i in cross)
    if seen:
        return
    bins, label = stage.histograms.bins, stage.schema.label
    of_label = [each for each in bins if each.column.name == label]
    for each in bins:
        if each.column.name != label:
            yield [*of_label, each], tuple(part.count for part in (*of_label, each))


def _cells(columns: Sequence[Any], shape: tuple[int, ...], records: Records) -> NDArray[np.int64]:
    """The cell of each record; −1 where it has none."""
    cell, inside = np.zeros(records.rows, dtype=np.int64), np.ones(records.rows, dtype=bool)
    for column, size in zip(columns, shape, strict=True):
        group = np.asarray(column.of(records))
        inside &= group >= 0
        cell = cell * size + group
    return np.where(inside, cell, -1)
