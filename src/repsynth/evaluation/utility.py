"""What synthetic records are worth: train on synthetic, test on real."""

import warnings
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
    """A fitted classifier and the space that it works in."""

    model: Any
    space: Space

    def scores(self, points: Points) -> Floats:
        """(records, labels it has seen): the higher, the more likely is the label."""
        placed = self.space.place(points)
        if not hasattr(self.model, "decision_function") or len(self.model.classes_) > 2:
            return np.asarray(self.model.predict_proba(placed), dtype=np.float64)
        decided = self.model.decision_function(placed)  # probabilities near 1 would tie
        return np.stack([-decided, decided], axis=1)

    def chances(self, points: Points, labels: int) -> Floats:
        """(records, labels): the probability of each label; 0 of those that it has not seen."""
        chances = np.zeros((len(points), labels))
        chances[:, self.model.classes_] = self.model.predict_proba(self.space.place(points))
        return chances

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
        return Classifier(LogisticRegression(max_iter=300).fit(space.place(points), points.labels), space)


def fit_boosting(points: Points) -> Classifier:
    """Gradient boosting: trees, so that what two columns say together is learned, too."""
    space = Space.of(points)
    return Classifier(
        HistGradientBoostingClassifier(random_state=0).fit(space.place(points), points.labels), space
    )


def tstr(synthetic: Points, test: Points, space: Space | None = None) -> float:
    """AUROC on real records of logistic regression trained on synthetic ones; 0.5 where they have one label.

    It works in the space given, or in the one in which the synthetic records are standardised.
    """
    if len(set(synthetic.labels.tolist())) < 2:
        return 0.5
    return fit_logistic(synthetic, space).auroc(test)
