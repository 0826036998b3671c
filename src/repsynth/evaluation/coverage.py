"""What of the real table is there at all: ranges, categories; rows that come twice, and copies of real rows.

Computed from data, so private.
"""

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools
from repsynth.data.records import Records
from repsynth.evaluation.matrix import is_number
from repsynth.schema import Schema


def range_coverage(real: Records, synthetic: Records, schema: Schema) -> dict[str, float]:
    """For each numeric column, how much of the real range, from smallest to largest, the synthetic one covers.

    NaN where the real column has a single number or none.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99),))
    >>> real, made = (Records(rows=2, codes={"age": np.array(ages)}) for ages in ([20, 60], [25, 50]))
    >>> range_coverage(real, made, schema)
    {'age': 0.625}
    """
    found = {}
    for column in schema.numeric:
        numbers, made = (r.codes[column.name][is_number(column, r.codes[column.name])] for r in (real, synthetic))
        if not len(numbers) or numbers.min() == numbers.max():
            found[column.name] = float("nan")
        elif not len(made):
            found[column.name] = 0.0
        else:
            low, high = int(numbers.min()), int(numbers.max())
            lost = max(int(made.min()) - low, 0) + max(high - int(made.max()), 0)
            found[column.name] = max(1 - lost / (high - low), 0.0)
    return found


def category_coverage(real: Records, synthetic: Records, schema: Schema) -> dict[str, float]:
    """For each discrete column, the fraction of the real categories that the synthetic one has.

    >>> from repsynth.schema import Category
    >>> schema = Schema(columns=(Category(name="kind", values=("a", "b", "c")),))
    >>> real, made = (Records(rows=3, codes={"kind": np.array(kinds)}) for kinds in ([0, 1, 2], [0, 0, 2]))
    >>> category_coverage(real, made, schema)
    {'kind': 0.6666666666666666}
    """
    found = {}
    for column in schema.discrete:
        there, made = (np.unique(r.codes[column.name]) for r in (real, synthetic))
        there = there[there >= 0]
        found[column.name] = float(np.isin(there, made).mean()) if len(there) else float("nan")
    return found


def row_keys(records: Records) -> NDArray[np.void]:
    """Each record as one value that can be compared."""
    codes = np.stack(list(records.codes.values()), axis=1) if records.codes else np.zeros((records.rows, 1), int)
    table = np.ascontiguousarray(codes, dtype=np.int64)
    return table.view(np.dtype((np.void, table.dtype.itemsize * table.shape[1]))).ravel()


def fraction_repeated(records: Records) -> float:
    """The fraction of rows that are equal to another row of the same table.

    >>> fraction_repeated(Records(rows=4, codes={"age": np.array([5, 5, 6, 7])}))
    0.5
    """
    _, inverse, counts = np.unique(row_keys(records), return_inverse=True, return_counts=True)
    return float((counts[inverse.ravel()] > 1).mean())


def by_repeats(records: Records) -> dict[str, float]:
    """The same, by how often the row is there.

    >>> by_repeats(Records(rows=4, codes={"age": np.array([5, 5, 6, 7])}))
    {'twice': 0.5, '3 to 10 times': 0.0, 'more often': 0.0}
    """
    _, counts = np.unique(row_keys(records), return_counts=True)
    kinds = {"twice": counts == 2, "3 to 10 times": (counts > 2) & (counts <= 10), "more often": counts > 10}
    return {name: float(counts[here].sum()) / records.rows for name, here in kinds.items()}


def by_original(records: Records, of: Records) -> dict[str, float]:
    """The fraction of records that are equal to a row of another table, by whether that has it once.

    >>> some, others = (Records(rows=3, codes={"age": np.array(ages)}) for ages in ([5, 6, 8], [6, 7, 7]))
    >>> by_original(some, others)
    {'of rows that only one has': 0.3333333333333333, 'of rows that several have': 0.0}
    """
    keys, counts = np.unique(row_keys(of), return_counts=True)
    ours = row_keys(records)
    return {
        "of rows that only one has": float(np.isin(ours, keys[counts == 1]).mean()),
        "of rows that several have": float(np.isin(ours, keys[counts > 1]).mean()),
    }


def copied(records: Records, of: Records) -> Bools:
    """Which records are equal to some record of another table.

    >>> some, others = (Records(rows=2, codes={"age": np.array(ages)}) for ages in ([5, 6], [6, 7]))
    >>> copied(some, others).tolist()
    [False, True]
    """
    return np.asarray(np.isin(row_keys(records), row_keys(of)), dtype=np.bool_)
