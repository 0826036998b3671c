"""How strong weights may be: the lost mass, 1 − mean weight, read off the released histogram of the scores.

All of it is post-processing: the histogram is released and paid for, so neither the lost mass nor a rule whose
strength is solved from it looks at the data again.
"""

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.weights import Rule, WeightFunction, make_weights

_HALVINGS = 40


def lost_mass(threshold: Threshold, weights: WeightFunction) -> float:
    """About how much of the records' mass the weights above the threshold take, at most: 1 − mean weight.

    The fraction of records above is the wanted one, or more where the noisy histogram says so, as it may where
    labels have thresholds of their own or many records share a score.
    """
    above = sum(
        _above(threshold.moved_edges(row), counts.astype(np.float64), threshold.value)
        for row, counts in enumerate(threshold.counts)
    )
    counted = min(max(above / max(float(threshold.counts.sum()), 1.0), 0.0), 1.0)
    more = counted > threshold.fraction + 2 * threshold.fraction_error
    fraction = counted if more else threshold.fraction
    return fraction * (1 - threshold.mean_weight(weights))


def solve_rule(rule: Rule, threshold: Threshold, *, lowest: int, most: float) -> Rule:
    """The rule of this kind that is as strong as a lost mass of at most `most` allows.

    >>> from repsynth.scoring.base import NAT
    >>> from repsynth.scoring.weights import Targeted
    >>> edges, counts = np.array([0, 1, 2]) * NAT, np.array([[0, 600, 300, 100]])
    >>> threshold = Threshold(NAT, edges, counts, fraction=0.4, fraction_error=0.01)
    >>> round(solve_rule(Targeted(), threshold, lowest=0, most=0.1).outlier_weight, 3)
    0.75
    """

    def lost(strength: float) -> float:
        made = rule.of_strength(strength)
        return lost_mass(threshold, make_weights(made, threshold=threshold.value, lowest=lowest))

    low, high = 0.0, 1.0
    if lost(high) <= most:
        return rule.of_strength(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if lost(middle) <= most else (low, middle)
    return rule.of_strength(low)


def _above(edges: Ints, counts: Floats, value: int) -> float:
    """The noisy number of records at or above a score; the bin that it lies in is shared out by width."""
    starts, ends = edges[:-1], edges[1:]
    part = np.clip((ends - np.maximum(starts, value)) / np.maximum(ends - starts, 1), 0.0, 1.0)
    return float(part @ counts[1:-1] + counts[-1])  # the last bin has no end
