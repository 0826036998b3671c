"""How labels differ in each column: what of the differences in noisy tables of label and column to believe.

A difference is expected to have a variance in proportion to its cell's count. How much, is judged half by its own
column and half by all of them (empirical Bayes). What labels have to do with a number mostly rises or falls with
it, so that trend counts apart: it stands above noise that drowns its single groups.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from repsynth.arrays import Floats
from repsynth.columns.groups import Groups
from repsynth.models.marginal.shrinkage import NoisyTable

_LEAST = 0.02  # of what is expected of a cell
_TAIL = 1e-4


def columns_by_label(
    p_label: Floats,
    ones: Mapping[int, Floats],
    tables: Mapping[int, NoisyTable],
    groups: tuple[Groups, ...],
    rows: float,
) -> dict[int, Floats]:
    """(labels, groups): the probabilities of each column by label, from those of labels and of columns and from
    tables of both."""
    spread = p_label * (1 - p_label) + 1e-9
    directions = {i: rows * ones[i] * _normal_scores(ones[i], groups[i]) for i in tables}
    trends, others = {}, {}
    for i, table in tables.items():
        differences = table.counts - np.outer(p_label, table.counts.sum(axis=0))
        noise = (1 - 2 * p_label[:, None]) * table.variance + np.outer(p_label**2, table.variance.sum(axis=0))
        noise = np.maximum(noise, 1e-12)
        if directions[i].any():
            trends[i] = _Noisy.along(directions[i], differences, noise, spread)
            differences = differences - np.outer(trends[i].values, directions[i])
        others[i] = _Noisy(differences, noise, np.outer(spread, rows * ones[i]))
    trend, other = _believed(trends), _believed(others)
    columns = {}
    for i in tables:
        found = other[i] + (np.outer(trend[i], directions[i]) if i in trends else 0.0)
        expected = np.outer(p_label, ones[i])
        columns[i] = np.maximum(expected + found / rows, _LEAST * expected)
    return columns


@dataclass(frozen=True)
class _Noisy:
    """Values, the variance of their noise, and what their own variance is in proportion to."""

    values: Floats
    noise: Floats
    prior: Floats

    @classmethod
    def along(cls, direction: Floats, values: Floats, noise: Floats, prior: Floats) -> "_Noisy":
        """How far each row of values goes along a direction, by precision."""
        precision = (direction**2 / noise).sum(axis=1)
        return cls((values * direction / noise).sum(axis=1) / precision, 1 / precision, prior)

    @property
    def evidence(self) -> tuple[float, float]:
        """The variance of the values themselves in units of the prior, times its weight; and the weight."""
        signal = ((self.values**2 - self.noise) * self.prior / self.noise**2).sum()
        return float(signal), float((self.prior**2 / self.noise**2).sum())

    def kept(self, variance: float) -> Floats:
        """The posterior means, where the values have so much variance in units of the prior."""
        own = variance * self.prior
        found: Floats = self.values * own / (own + self.noise)
        return found


def _believed(parts: Mapping[int, _Noisy]) -> dict[int, Floats]:
    """The posterior means of each column's values."""
    evidence = {i: part.evidence for i, part in parts.items()}
    signal, weight = (sum(each) for each in zip(*evidence.values(), strict=True)) if evidence else (0.0, 1.0)
    common = max(signal / weight, 0.0)
    return {i: parts[i].kept(0.5 * (max(own / of, 0.0) + common)) for i, (own, of) in evidence.items()}


def _normal_scores(ones: Floats, groups: Groups) -> Floats:
    """The normal score of the middle rank of each group of numbers, in standard units; 0 of all others, and where
    there is one group only."""
    numbers = groups.in_order
    if numbers < 2:
        return np.zeros(len(ones))
    mass = ones[:numbers] / ones[:numbers].sum()
    z = ndtri(np.clip(np.cumsum(mass) - mass / 2, _TAIL, 1 - _TAIL))
    z = z - mass @ z
    found = np.zeros(len(ones))
    found[:numbers] = z / max(float(mass @ z**2) ** 0.5, 1e-6)
    return found
