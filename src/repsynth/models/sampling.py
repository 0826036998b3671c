"""Draws that several models share, in even quotas: nearer to the fitted probabilities than independent draws."""

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.data.records import MISSING, Records
from repsynth.models.groups import Groups, probabilities_within
from repsynth.scoring.histograms import Histograms

GOLDEN = (5**0.5 - 1) / 2


def systematic(probabilities: Floats, rows: int, generator: np.random.Generator) -> Ints:
    """Codes in the proportions of the probabilities, in random order (systematic sampling)."""
    levels = (np.arange(rows) + generator.random()) / max(rows, 1)
    codes = np.minimum(np.searchsorted(np.cumsum(probabilities), levels, side="right"), len(probabilities) - 1)
    return generator.permutation(codes)


def quota(given: Ints, probabilities: Floats, generator: np.random.Generator, order: Ints | None = None) -> Ints:
    """For each record a value drawn by the row of `probabilities` that `given` names, in even quotas per row.

    With `order`, the records of a row are lined up by it and the levels go round by the golden section:
    even in every stretch, so that values do not correlate with `order` and vary less than independent ones.
    """
    count = len(given)
    tie = generator.random(count)
    line = lined_up(tie, given, order)
    row = given[line]
    size = np.bincount(given, minlength=len(probabilities))
    rank = np.arange(count) - (np.cumsum(size) - size)[row]
    start = generator.random(len(probabilities))[row]
    level = (rank + start) / np.maximum(size[row], 1) if order is None else (rank * GOLDEN + start) % 1.0
    ends = np.cumsum(probabilities, axis=1)
    ends = ends / ends[:, -1:]
    flat = (ends + np.arange(len(probabilities))[:, None]).ravel()
    found = np.searchsorted(flat, row + np.minimum(level, 1 - 1e-9), side="right") - row * probabilities.shape[1]
    drawn = np.empty(count, dtype=np.int64)
    drawn[line] = np.clip(found, 0, probabilities.shape[1] - 1)
    return drawn


def lined_up(tie: Floats, given: Ints, order: Ints | None = None) -> Ints:
    """The records sorted by `given`, then by `order`, then by `tie`: `np.lexsort`, but quicker where the keys are
    small.

    >>> lined_up(np.array([0.3, 0.1, 0.2]), np.array([1, 1, 0])).tolist()
    [2, 1, 0]
    """
    keys = [given] if order is None else [order, given]
    line = np.argsort(tie)
    ascending = tie[line]
    if bool((ascending[1:] == ascending[:-1]).any()) or any(int(key.max(initial=0)) >= 2**16 for key in keys):
        return np.lexsort((tie, *keys))
    width = 1 if order is None else int(order.max(initial=0)) + 1
    if order is not None and width * (int(given.max(initial=0)) + 1) <= 2**16:
        keys = [given * width + order]
    for key in keys:
        # A stable sort of two-byte numbers goes by their digits.
        line = line[np.argsort(key.astype(np.uint16)[line], kind="stable")]
    return line


def values_of(
    drawn: Ints,
    histograms: Histograms,
    all_groups: tuple[Groups, ...],
    label_at: int | None,
    generator: np.random.Generator,
) -> Records:
    """From groups to values: bins by their probabilities within a group, positions evenly within a bin."""
    label = None if label_at is None else drawn[:, label_at]
    codes = {}
    for i, groups in enumerate(all_groups):
        bins = groups.bins
        order = None if i == label_at else label
        bin_of = quota(drawn[:, i], probabilities_within(histograms, i, groups), generator, order)
        missing = bin_of == bins.values
        value = np.minimum(bin_of, bins.values - 1)
        if bins.starts is not None:
            value = histograms.positions(i, value, generator.random(len(value)), generator)
        codes[bins.column.name] = np.where(missing, MISSING, value)
    return Records(rows=len(drawn), codes=codes)
