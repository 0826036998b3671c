"""What one cell of the study measures."""

import msgspec
import numpy as np
from scipy.stats import spearmanr

from repsynth.arrays import Floats


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one run. Advantages are 2 AUC − 1 of an attack; lists go by decile of outlyingness.

    `mia` is the distance attack on all records, `top` the density-ratio attack on the top decile, `ratio`
    the latter in units of the median decile. `white_box` is the mean advantage of the best attack there
    can be on the mechanism itself, in closed form (the product's path only). `correlation` and `recall`
    tell how well the noisy scores find nearest-neighbour outliers.
    """

    tstr: float
    mia: float
    top: float
    ratio: float | None = None
    gamma: float | None = None
    by_decile: list[float]
    distance_by_decile: list[float]
    white_box: list[float] | None = None
    correlation: float | None = None
    recall: float | None = None


def scorer_quality(scores: Floats, outlying: Floats) -> tuple[float, float]:
    """Spearman correlation, and the share of the top outlying tenth that has the top tenth of scores.

    >>> scorer_quality(np.arange(20.0), np.arange(20.0) ** 2)
    (1.0, 1.0)
    """
    top = max(1, len(scores) // 10)
    found = np.isin(np.argsort(-outlying, kind="stable")[:top], np.argsort(-scores, kind="stable")[:top])
    # One value for all scores has no ranks to correlate.
    constant = len(np.unique(scores)) < 2
    return 0.0 if constant else float(spearmanr(scores, outlying).statistic), float(found.mean())
