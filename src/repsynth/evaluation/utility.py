"""What synthetic records are worth: train on synthetic, test on real."""

import warnings

from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from repsynth.evaluation.matrix import Points, Space


def tstr(synthetic: Points, test: Points, space: Space | None = None) -> float:
    """AUROC on real records of logistic regression trained on synthetic ones; 0.5 where they have one label.

    It works in the space given, or in the one in which the synthetic records are standardised.
    """
    if len(set(synthetic.labels.tolist())) < 2:
        return 0.5
    space = space or Space.of(synthetic)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = LogisticRegression(max_iter=300).fit(space.place(synthetic), synthetic.labels)
    return float(roc_auc_score(test.labels, model.decision_function(space.place(test))))
