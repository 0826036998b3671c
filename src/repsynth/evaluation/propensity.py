"""Can a classifier tell real from synthetic records, and by which columns? Computed from data, so private."""

from dataclasses import dataclass, replace

import numpy as np

from repsynth.arrays import Floats
from repsynth.data.records import Records, join
from repsynth.evaluation.matrix import Fill, Points, points_of_records
from repsynth.evaluation.nearest import advantage_of
from repsynth.evaluation.utility import Classifier, fit_boosting, fit_logistic
from repsynth.schema import Schema

MOST = 15_000
"""Records of each kind that are looked at; more make no difference to what is seen."""


@dataclass(frozen=True)
class Propensity:
    """How well a classifier that has seen half of the records tells the other half: the larger AUC of logistic
    regression and boosting, and by how much the latter falls where one column is shuffled."""

    auc: float
    by_column: dict[str, float]


def measure_propensity(
    real: Records, synthetic: Records, schema: Schema, generator: np.random.Generator, *, columns: bool = True
) -> Propensity:
    """Two folds; as many real as synthetic records. An AUC of 0.5 means that it cannot tell.

    >>> from repsynth.schema import Integer
    >>> schema = Schema(columns=(Integer(name="age", min=0, max=99),))
    >>> old, young = (Records(rows=200, codes={"age": np.repeat(ages, 100)}) for ages in ([60, 70], [20, 30]))
    >>> measure_propensity(old, young, schema, np.random.default_rng(0)).auc
    1.0
    """
    schema = replace(schema, label=None)  # every column may tell
    count = min(real.rows, synthetic.rows, MOST)
    taken = [records.take(generator.permutation(records.rows)[:count]) for records in (real, synthetic)]
    records = join(taken, [column.name for column in schema.learned])
    fill = Fill.of(records, schema)
    points = points_of_records(records, schema, fill, np.repeat([0, 1], count))
    fold = np.concatenate([generator.permutation(count) % 2 for _ in taken])
    told = {name: np.zeros(2 * count) for name in ("logistic", "boosting")}
    falls: dict[str, list[float]] = {}
    for k in (0, 1):
        learn, test = points.take(fold != k), points.take(fold == k)
        boosting = fit_boosting(learn)
        told["logistic"][fold == k] = fit_logistic(learn).scores(test)[:, 1]
        told["boosting"][fold == k] = boosting.scores(test)[:, 1]
        if columns:
            for name, fall in _falls(boosting, test, fill.names(schema), generator).items():
                falls.setdefault(name, []).append(fall)
    # Scores of two classifiers are compared within a fold only.
    aucs = {
        name: np.mean([_area(scores[fold == k], points.labels[fold == k]) for k in (0, 1)])
        for name, scores in told.items()
    }
    return Propensity(float(max(aucs.values())), {name: float(np.mean(parts)) for name, parts in falls.items()})


def _area(scores: Floats, labels: np.ndarray) -> float:
    return (1 + advantage_of(scores, labels == 1)) / 2


def _falls(
    model: Classifier, test: Points, names: tuple[tuple[str, ...], tuple[str, ...]], generator: np.random.Generator
) -> dict[str, float]:
    whole = model.auroc(test)
    found = {}
    for part, columns in zip(("numbers", "codes"), names, strict=True):
        for j, name in enumerate(columns):
            values = getattr(test, part).copy()
            values[:, j] = values[generator.permutation(len(values)), j]
            found[name] = whole - model.auroc(replace(test, **{part: values}))
    return found
