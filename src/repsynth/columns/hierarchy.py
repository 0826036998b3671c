"""Categories of very many values, in public families: what a noisy histogram tells of values too rare to be seen.

A value that stands above the noise keeps its count. The others of a family are taken together: of many counts that
drown one by one, the sum may stand above the noise, and its values share it evenly.
"""

import math

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.schema import Category, Discrete, Numeric


def families_of(column: Discrete | Numeric) -> Ints | None:
    """The family of each value, None where the schema declares none."""
    if not isinstance(column, Category) or column.families is None:
        return None
    return np.array(column.families, dtype=np.int64)


def by_family(counts: Floats, sigma: float, families: Ints) -> Floats:
    """The counts of all values, with what is below the noise levelled out in each family; none is negative.

    How frequent families are is shrunk to how many values they have, as far as noise explains the difference.

    >>> by_family(np.array([90.0, 1.5, -1.0, 1.0, 40.0, 52.0]), 1.0, np.array([0, 0, 0, 0, 1, 1])).tolist()
    [90.0, 0.5, 0.5, 0.5, 40.0, 52.0]
    """
    seen = counts > sigma * math.sqrt(2 * math.log(len(counts)))  # what hardly any noise reaches
    rest = ~seen
    size = np.bincount(families[rest], minlength=families.max() + 1).astype(np.float64)
    total: Floats = np.bincount(families[rest], counts[rest], minlength=len(size)).astype(np.float64)
    even = max(float(total.sum()), 0.0) * size / max(float(size.sum()), 1.0)
    noise = sigma**2 * float(size.sum())
    signal = max(float(((total - even) ** 2).sum()) - noise, 0.0)
    total = even + (total - even) * signal / max(signal + noise, 1e-300)
    each = np.maximum(total, 0.0) / np.maximum(size, 1.0)
    return np.where(seen, counts, each[families])
