"""What synthetic records are worth: train on synthetic, test on real."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from repsynth.arrays import Floats, Ints
from repsynth.evaluation.matrix import Points, Space
from repsynth.evaluation.nearest import advantage_of


@dataclass(frozen=True)
class Classifier:
    """A fitted classifier and the space that it works in, or those of its coordinates that it uses."""

    model: Any
    space: Space
    used: Ints | None = None

    def place(self, points: Points) -> Floats:
        placed = self.space.place(points)
        return placed if self.used is None else placed[:, self.used]

    def scores(self, points: Points) -> Floats:
        """(records, labels it has seen): the higher, the more likely is the label."""
        placed = self.place(points)
        if not hasattr(self.model, "decision_function") or len(self.model.classes_) > 2:
            return np.asarray(self.model.predict_proba(placed), dtype=np.float64)
        decided = self.model.decision_function(placed)  # probabilities near 1 would tie
        return np.stack([-decided, decided], axis=1)

    def chances(self, points: Points, labels: int) -> Floats:
        """(records, labels): the probability of each label; 0 of those that it has not seen."""
        chances = np.zeros((len(points), labels))
        chances[:, self.model.classes_] = self.model.predict_proba(self.place(points))
        return chances

    def by_label(self, points: Points, names: Sequence[str]) -> dict[str, float]:
        """The area of each label in the test against the others."""
        scores, seen = self.scores(points), self.model.classes_
        there = np.unique(points.labels).tolist()
        return {names[k]: auroc(np.where(points.labels == k, k, -1), scores, seen) for k in there}

    def auroc(self, points: Points) -> float:
        """Of two labels, the area under the curve; of more, the mean over those in the test of each against the
        others. 0.5 for a label that it has not seen."""
        return auroc(points.labels, self.scores(points), self.model.classes_)


def auroc(labels: Ints, scores: Floats, seen: Ints) -> float:
    """The area under the curve from scores of the labels seen: the mean of each label against the others.

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
    """Logistic regression in the space given, or in the one in which the points are standardised."""
    space = space or Space.of(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "The number of unique classes", UserWarning)
        return Classifier(LogisticRegression(max_iter=300).fit(space.place(points), points.labels), space)


def fit_boosting(points: Points) -> Classifier:
    """Gradient boosting: trees, so that what two columns say together is learned, too."""
    space = Space.of(points)
    placed = space.place(points)
    used = _can_split(placed)
    return Classifier(
        HistGradientBoostingClassifier(random_state=0, min_samples_leaf=_LEAF).fit(placed[:, used], points.labels),
        space,
        used,
    )


_LEAF = 20  # records that a leaf holds at least


def _can_split(placed: Floats) -> Ints:
    """The coordinates that can part the records into two leaves; one at least. Among thousands of categories
    these are few, and trees can make nothing of the others.

    >>> _can_split(np.repeat([[0.0, 0.0], [0.0, 1.0]], 20, axis=0)).tolist()
    [1]
    """
    if len(placed) < 2 * _LEAF:
        return np.arange(1)
    ordered = np.partition(placed, (_LEAF - 1, len(placed) - _LEAF), axis=0)
    found = np.flatnonzero(ordered[_LEAF - 1] < ordered[len(placed) - _LEAF])
    return found if len(found) else np.arange(1)
