"""Classifiers and regressions on real and synthetic records. PRIVATE: computed from data.

- Train on synthetic records, test on real ones: logistic regression and boosting.
- Propensity: how well a classifier tells real from synthetic records, and by which columns.
- Coefficients of a logistic regression with their 95 % intervals, real beside synthetic. The intervals are those
  of an analyst who takes the synthetic table for a real one: they ignore the noise.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from repsynth.arrays import Floats, Ints
from repsynth.evaluation.points import Fill, Points, Space, advantage_of, points_of_records
from repsynth.io.records import Records, join
from repsynth.schema import Schema

MOST = 15_000
"""Records of each kind in a propensity; more hardly change it."""

MOST_LEARNT = 30_000
"""Records that a classifier is trained on; more hardly change it."""

LEAST = 10
"""Records that a category needs in both tables; with fewer it joins the baseline of its column."""

_LEAF = 20  # least records in a leaf
_RIDGE = 1e-3  # keeps a coefficient finite where a category has one label only
_Z = 1.959964


@dataclass(frozen=True)
class Classifier:
    """A fitted classifier, and how it places points."""

    model: Any
    place: Callable[[Points], Floats]

    def scores(self, points: Points) -> Floats:
        """Return scores (records, labels seen in training): the higher, the more likely is the label."""
        placed = self.place(points)
        if not hasattr(self.model, "decision_function") or len(self.model.classes_) > 2:
            return np.asarray(self.model.predict_proba(placed), dtype=np.float64)
        decided = self.model.decision_function(placed)  # probabilities near 1 would tie
        return np.stack([-decided, decided], axis=1)

    def chances(self, points: Points, labels: int) -> Floats:
        """Return probabilities (records, labels): 0 for a label that was not in the training records."""
        chances = np.zeros((len(points), labels))
        chances[:, self.model.classes_] = self.model.predict_proba(self.place(points))
        return chances

    def by_label(self, points: Points, names: Sequence[str]) -> dict[str, float]:
        """Return the AUROC of each label in the test against the others."""
        scores, seen = self.scores(points), self.model.classes_
        there = np.unique(points.labels).tolist()
        return {names[k]: auroc(np.where(points.labels == k, k, -1), scores, seen) for k in there}

    def auroc(self, points: Points) -> float:
        return auroc(points.labels, self.scores(points), self.model.classes_)


def auroc(labels: Ints, scores: Floats, seen: Ints) -> float:
    """Return the area under the ROC curve; with more than two labels, the mean of each against the others.

    A label that is not among `seen`, the columns of `scores`, has the area 0.5.

    >>> scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.7, 0.3], [0.2, 0.8]])
    >>> auroc(np.array([0, 0, 1, 1]), scores, np.array([0, 1]))
    0.75
    """
    there = np.unique(labels).tolist()
    if len(there) == 2:
        there = there[1:]  # one against the other is the other against one
    column = {label: k for k, label in enumerate(seen.tolist())}
    areas = [
        0.5 if label not in column else (1 + advantage_of(scores[:, column[label]], labels == label)) / 2
        for label in there
    ]
    return float(np.mean(areas))


def fit_logistic(points: Points, space: Space | None = None) -> Classifier:
    """Fit a logistic regression in the given space; by default the points are standardised."""
    space = space or Space.of(points)
    points = _some(points)
    few = len(np.unique(points.labels)) == 2  # Newton's method solves for all labels at once
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        model = LogisticRegression(max_iter=300, solver="newton-cholesky" if few else "lbfgs")
        return Classifier(model.fit(space.place(points), points.labels), space.place)


def fit_boosting(points: Points) -> Classifier:
    """Fit gradient boosting, which also learns interactions of columns."""
    points = _some(points)
    categorical = np.arange(points.numbers.shape[1] + points.codes.shape[1]) >= points.numbers.shape[1]
    model = HistGradientBoostingClassifier(
        random_state=0, min_samples_leaf=_LEAF, categorical_features=categorical
    )
    return Classifier(model.fit(_columns(points), points.labels), _columns)


def _columns(points: Points) -> Floats:
    """Return numbers and codes side by side; a missing category is NaN."""
    return np.hstack([points.numbers, np.where(points.codes >= 0, points.codes, np.nan)])


def _some(points: Points) -> Points:
    """Return evenly spaced records, at most `MOST_LEARNT`."""
    count = min(len(points), MOST_LEARNT)
    return points.take(np.arange(count) * len(points) // count)


class Propensity(NamedTuple):
    """The AUC of telling real from synthetic records, and how far it falls when a column is shuffled."""

    auc: float
    by_column: dict[str, float]


def measure_propensity(
    real: Records, synthetic: Records, schema: Schema, generator: np.random.Generator, *, columns: bool = True
) -> Propensity:
    """Return the larger AUC of logistic regression and boosting by two-fold cross-validation; 0.5 is chance.

    Real and synthetic records are equally many. `by_column` is that of boosting.
    """
    schema = replace(schema, label=None)  # every column may tell
    count = min(real.rows, synthetic.rows, MOST)
    taken = [records.take(generator.permutation(records.rows)[:count]) for records in (real, synthetic)]
    records = join(taken, [column.name for column in schema.learned])
    fill = Fill.of(records, schema)
    points = points_of_records(records, schema, fill, np.repeat([0, 1], count))
    fold = np.concatenate([generator.permutation(count) % 2 for _ in taken])
    aucs, falls = [], []
    for k in (0, 1):
        learn, test = points.take(fold != k), points.take(fold == k)
        boosting = fit_boosting(learn)
        aucs.append((fit_logistic(learn).auroc(test), boosting.auroc(test)))
        if columns:
            falls.append(_falls(boosting, test, fill.names(schema), generator))
    names = falls[0] if falls else ()
    by_column = {name: float(np.mean([fold[name] for fold in falls])) for name in names}
    return Propensity(float(np.mean(aucs, axis=0).max()), by_column)


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


@dataclass(frozen=True)
class Coefficient:
    """A term with its two estimates and their standard errors."""

    term: str
    real: float
    real_standard_error: float
    synthetic: float
    synthetic_standard_error: float

    @property
    def overlap(self) -> float:
        """Return the mean fraction of each 95 % interval that is inside the other.

        >>> Coefficient("age", 0.0, 1.0, 0.0, 1.0).overlap, Coefficient("age", 0.0, 1.0, 9.0, 1.0).overlap
        (1.0, 0.0)
        """
        low = max(self.real - _Z * self.real_standard_error, self.synthetic - _Z * self.synthetic_standard_error)
        high = min(self.real + _Z * self.real_standard_error, self.synthetic + _Z * self.synthetic_standard_error)
        inside = max(high - low, 0.0)
        return inside / (4 * _Z * self.real_standard_error) + inside / (4 * _Z * self.synthetic_standard_error)


def compare_coefficients(
    real: Records, synthetic: Records, schema: Schema, label: tuple[Floats, Floats]
) -> list[Coefficient]:
    """Return the coefficients of both tables.

    Numbers are in standard deviations of the real table. The baseline of a column is its most frequent category.
    `label` holds 0 or 1 for each record of both tables.
    """
    fill = Fill.of(real, schema)
    points = [
        points_of_records(records, schema, fill, np.zeros(records.rows, int)) for records in (real, synthetic)
    ]
    terms, designs = _designs(points[0], points[1], fill, schema)
    (one, one_error), (two, two_error) = (fit_newton(x, y) for x, y in zip(designs, label, strict=True))
    return [
        Coefficient(*found)
        for found in zip(terms, one.tolist(), one_error.tolist(), two.tolist(), two_error.tolist(), strict=True)
    ]


def _designs(real: Points, synthetic: Points, fill: Fill, schema: Schema) -> tuple[list[str], list[Floats]]:
    """Return the terms, the constant first, and the design matrix of each table."""
    centre, scale = real.numbers.mean(axis=0), real.numbers.std(axis=0)
    names, values = fill.names(schema), {column.name: fill.values(column) for column in schema.discrete}
    terms, parts = ["(constant)"], [[np.ones((len(p), 1))] for p in (real, synthetic)]
    for j, name in enumerate(names[0]):
        if scale[j] > 1e-9 and synthetic.numbers[:, j].std() > 1e-9:
            terms.append(name)
            for part, p in zip(parts, (real, synthetic), strict=True):
                part.append(((p.numbers[:, j] - centre[j]) / scale[j])[:, None])
    for j, name in enumerate(names[1]):
        counts = [np.bincount(p.codes[p.codes[:, j] >= 0, j], minlength=real.sizes[j]) for p in (real, synthetic)]
        frequent = np.flatnonzero((counts[0] >= LEAST) & (counts[1] >= LEAST))
        base = int(np.argmax(counts[0]))
        for code in frequent[frequent != base].tolist():
            terms.append(f"{name} = {values[name][code]}" if name in values else name)
            for part, p in zip(parts, (real, synthetic), strict=True):
                part.append((p.codes[:, j] == code)[:, None].astype(np.float64))
    return terms, [np.hstack(part) for part in parts]


def fit_newton(design: Floats, label: Floats) -> tuple[Floats, Floats]:
    """Return coefficients and standard errors of a logistic regression with a tiny ridge, by Newton's method.

    >>> x = np.array([[1.0, 0.0]] * 40 + [[1.0, 1.0]] * 40)
    >>> y = np.repeat([0.0, 1.0, 0.0, 1.0], [30, 10, 10, 30])
    >>> [found.round(2).tolist() for found in fit_newton(x, y)]
    [[-1.1, 2.2], [0.37, 0.52]]
    """
    coefficients = np.zeros(design.shape[1])
    ridge = _RIDGE * np.eye(design.shape[1])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-np.clip(design @ coefficients, -30, 30)))
        weight = np.maximum(chance * (1 - chance), 1e-9)
        information = (design * weight[:, None]).T @ design + ridge
        step = np.linalg.solve(information, design.T @ (label - chance) - _RIDGE * coefficients)
        coefficients = coefficients + step / max(1.0, float(np.abs(step).max()) / 4)
        if float(np.abs(step).max()) < 1e-8:
            break
    return coefficients, np.sqrt(np.diag(np.linalg.inv(information)))
