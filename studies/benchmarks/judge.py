"""One split and one set of measures, for every benchmark that compares synthesizers.

70 % of the records to learn from. AUROC on the others of logistic regression (LR) and gradient boosting (GB)
trained on synthetic records; mean total variation distance of one- and two-way tables to the records learned from,
on the strict grid of `repsynth.evaluation.fidelity`; NIST's k-marginal score for its survey excerpt.
"""

from functools import lru_cache
from itertools import combinations

import numpy as np

from repsynth.arrays import Ints
from repsynth.evaluation.fidelity import CELLS, Grid, measure_distances, total_variation
from repsynth.evaluation.points import is_number, records_of
from repsynth.io.records import Records
from repsynth.schema import Numeric, Schema
from studies.benchmarks.values import Split, load, predictions
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
    try:
        predicted = predictions(table, split, made, boosted=True)
    except ValueError:  # a single label, from which nothing can be learned
        predicted = {"LR": 0.5, "GB": 0.5}
    found = predicted | {"1-way": strict.mean_one_way, "2-way": strict.mean_two_way}
    return found | {"k-marginal": k_marginal(split.train, made, split.schema)} if table == "nist" else found


def k_marginal(real: Records, made: Records, schema: Schema) -> float:
    """Return NIST's score: 1000 · (1 − mean total variation distance) of PUMA with each pair of other columns.

    As in SDNist 2.4: INDP is left out, and numbers have twenty cells at quantiles of the real records. The
    upper bound and special codes have their own cells.
    """
    cells: dict[str, Ints] = {}
    for column in schema.learned:
        codes = real.codes[column.name]
        both = np.concatenate([codes, made.codes[column.name]])
        if isinstance(column, Numeric):
            numbers = codes[is_number(column, codes)]
            ends = np.quantile(numbers, np.arange(1, CELLS) / CELLS, method="inverted_cdf")
            both = Grid(column.steps, np.array([column.steps]), np.unique(ends)).of(both)
        cells[column.name] = np.unique(both, return_inverse=True)[1]
    place, _ = cells.pop("PUMA"), cells.pop("INDP")
    distances = []
    for one, two in combinations(cells.values(), 2):
        crossed = (place * (one.max() + 1) + one) * (two.max() + 1) + two
        distances.append(total_variation(crossed[: real.rows], crossed[real.rows :]))
    return 1000 * (1 - float(np.mean(distances)))
