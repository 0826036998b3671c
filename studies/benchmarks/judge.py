"""One split and one set of measures, for every benchmark that compares synthesizers.

70 % of the records to learn from. AUROC on the others of logistic regression (LR) and gradient boosting (GB)
trained on synthetic records; mean total variation distance of one- and two-way tables to the records learned from,
on the strict grid of `repsynth.evaluation.fidelity` and on one of twenty equal bins.
"""

from functools import lru_cache

import numpy as np

from repsynth.data.records import Records
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.matrix import records_of
from studies.benchmarks.values import Split, equal_grid, load, predictions
from studies.split import split_rows

TABLES = ("sim", "breast_cancer", "german_credit", "adult", "nist")


@lru_cache(maxsize=2)
def split_of(table: str, seed: int, data_dir: str | None) -> Split:
    """The split of a table that a seed makes, stratified by the label."""
    rows, schema = load(table, data_dir, special=True)
    records = records_of(rows, schema)
    learn, tune, test = split_rows(records.codes[schema.label or ""], seed)
    train = np.concatenate([learn, tune])
    return Split(schema, rows.take(train), records.take(train), records.take(test))


def measures(table: str, split: Split, made: Records) -> dict[str, float]:
    """What synthetic records are worth."""
    strict = measure_distances(split.train, made, split.schema)
    equal = measure_distances(split.train, made, split.schema, grid=equal_grid)
    try:
        predicted = predictions(table, split, made, boosted=True)
    except ValueError:  # a single label, from which nothing can be learned
        predicted = {"LR": 0.5, "GB": 0.5}
    return predicted | {
        "1-way": strict.mean_one_way,
        "2-way": strict.mean_two_way,
        "1-way, equal": equal.mean_one_way,
        "2-way, equal": equal.mean_two_way,
    }
