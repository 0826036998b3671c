"""How frequent the values of each column are: by stage 1, which counts everybody in full, and by tables, which
have less noise but know only roughly how much weights took from each group.

What weights took may be wrong for each group by itself, and in the same way for neighbouring numbers. How much of
both there is follows from what stage 1 and the tables differ in beyond their noise: over all columns, and in those
with many groups for each by itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.marginal.shrinkage import NoisyTable

_OFF = 0.1  # in units of `unsure`, how wrong weights may be before the tables have said it
_ALIKE = 0.8  # from one group to the next, what is left of what neighbours have in common
_OTHERS = 10.0  # groups of its own that count as much for a column as all others do


@dataclass(frozen=True)
class Seen:
    """What stage 1 and tables say of a column's groups. The first `in_order` of these are neighbours in order."""

    stage: NoisyTable
    tables: NoisyTable
    unsure: Floats
    """√((1 − f) / f) of the mean weight f of each group: nobody doubts it where all records count in full."""
    in_order: int

    @property
    def alike(self) -> Floats:
        """What two groups have of what neighbours have in common; each has all of it with itself."""
        order = np.arange(len(self.unsure))
        apart = np.abs(order[:, None] - order)
        neighbours = np.maximum(order[:, None], order) < self.in_order
        return np.where(neighbours | (apart == 0), _ALIKE**apart, 0.0)


@dataclass(frozen=True)
class _Variances:
    """How wrong weights are in all, and alike for neighbours: what was seen, and would be were this 1."""

    seen: Floats
    expected: Floats

    @property
    def found(self) -> Floats:
        return np.maximum(self.seen / np.maximum(self.expected, 1e-300), 0.0)


def combine(columns: Mapping[int, Seen]) -> dict[int, NoisyTable]:
    """The counts of each column's groups by all that was seen of them, and the variances of these."""
    found = {i: _variances(seen) for i, seen in columns.items()}
    everywhere = _Variances(
        np.sum([each.seen for each in found.values()], axis=0),
        np.sum([each.expected for each in found.values()], axis=0),
    ).found
    others = _OTHERS / _OFF**4  # a group without noise counts for 1 / _OFF⁴
    return {
        i: _by_precision(seen, *_Variances(found[i].seen + others * everywhere, found[i].expected + others).found)
        for i, seen in columns.items()
    }


def _variances(seen: Seen) -> _Variances:
    """From the products of what two groups differ by; noise shows in the squares alone. Groups count for more the
    less noise they have."""
    size = seen.unsure * np.maximum(seen.stage.counts, 0.0)
    noise = seen.tables.variance + seen.stage.variance
    sureness = size / (noise + (_OFF * size) ** 2 + 1e-9)
    apart = (seen.tables.counts - seen.stage.counts) * sureness
    share = size * sureness
    alike = np.tril(seen.alike, -1)
    return _Variances(
        np.array([float((apart**2 - noise * sureness**2).sum()), float(apart @ alike @ apart)]),
        np.array([float((share**2).sum()), float(share @ alike**2 @ share)]),
    )


def _by_precision(seen: Seen, whole: float, alike: float) -> NoisyTable:
    """Both sources by their precision, where `alike` of the variance `whole` is what neighbours have in common."""
    common = min(alike, whole)
    wrong = common * seen.alike + (whole - common) * np.eye(len(seen.unsure))
    off = seen.unsure * seen.tables.counts
    stage, tables = np.diag(seen.stage.variance), np.diag(seen.tables.variance) + off[:, None] * wrong * off
    gain = np.linalg.solve(stage + tables, stage).T
    counts = seen.stage.counts + gain @ (seen.tables.counts - seen.stage.counts)
    return NoisyTable(counts, np.diag(stage - gain @ stage))
