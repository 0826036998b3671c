"""How far noise may move a score that is a sum over columns: tail bounds for each record, before it is drawn.

What a column adds is a function of its own bins' noise, so the parts of a score are independent, and Chernoff's
bound holds: P[s < x] ≤ exp(λx) Π E exp(−λ rᵢ) for every λ > 0. The distribution of each part is known in closed
form. It is put onto a grid such that every rounding favours the bound: down for lower tails, up for upper ones.
"""

from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.cells import Bins
from repsynth.data.records import Records
from repsynth.scoring.base import NAT

STEP = 1 / 128
"""The grid of a column's part of a score, in nats."""

_SLOPES = np.geomspace(0.5, 256.0, 20)  # the λ to choose from


@dataclass(frozen=True)
class Part:
    """What one histogram can add to a score.

    `grid` holds scores; `below` bounds the chance of less than these, and `above` that of at least these, in a row
    for each kind of bin, since many are as full as others; `kinds` says which row is that of each bin.
    """

    bins: Bins
    kinds: Ints
    grid: Floats
    below: Floats
    above: Floats


@dataclass(frozen=True)
class SumTails:
    """Tail bounds of a sum over columns.

    All noise is independent. The grid is common to all parts; no part reaches its last value, and each lies below
    its first with no more than the chance in `below`.
    """

    columns: tuple[Part, ...]

    def lower(self, records: Records, chance: float | Floats) -> Floats:
        """By Chernoff's bound with the best λ; what lies below the grid counts as a failure."""
        moments, lost = self._moments(records, -1)
        left = np.maximum(chance - lost, 0.0)
        with np.errstate(divide="ignore"):
            found: Floats = ((np.log(left)[:, None] - moments) / _SLOPES).max(axis=1)
        found -= (len(self.columns) + 1) / NAT  # every column's part is rounded down to a unit
        return found

    def exceed(self, records: Records, levels: Floats) -> Floats:
        """By Chernoff's bound with the best λ."""
        moments, _ = self._moments(records, 1)
        found = np.full((records.rows, len(levels)), np.inf)
        for slope, moment in zip(_SLOPES, moments.T, strict=True):
            np.minimum(found, moment[:, None] - slope * levels, out=found)
        chances: Floats = np.exp(np.minimum(found, 0.0))
        return chances

    def _moments(self, records: Records, side: int) -> tuple[Floats, Floats]:
        """log E exp(± λ s) of each record, records × λ, and the chance of what is left out."""
        moments, lost = np.zeros((records.rows, len(_SLOPES))), np.zeros(records.rows)
        for part in self.columns:
            unique, which = np.unique(part.kinds[part.bins.of(records)], return_inverse=True)
            if side < 0:
                below = part.below[unique]
                moments += _log_moments(part.grid, np.diff(below, axis=1), -1)[which]
                lost += below[which, 0]
            else:
                above = part.above[unique]
                above[:, 0] = 1.0
                moments += _log_moments(part.grid, -np.diff(above, axis=1), 1)[which]
        return moments, lost


def _log_moments(grid: Floats, masses: Floats, side: int) -> Floats:
    """log Σ mass × exp(± λ x) for each row of masses, x at the end of each step that makes it larger: rows × λ."""
    ends = grid[1:] if side > 0 else grid[:-1]
    found = np.empty((len(masses), len(_SLOPES)))
    for row, mass in enumerate(masses):
        held = np.flatnonzero(mass > 0)
        x, log_mass = ends[held], np.log(mass[held])
        exponents = side * _SLOPES[:, None] * x + log_mass
        highest = exponents.max(axis=1, keepdims=True)
        found[row] = (highest + np.log(np.exp(exponents - highest).sum(axis=1, keepdims=True)))[:, 0]
    return found
