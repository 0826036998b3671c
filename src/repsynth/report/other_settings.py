"""What another weight for outliers would have cost this table, with the released scores and threshold. PRIVATE."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats
from repsynth.evaluation.inputs import Inputs
from repsynth.privacy.shown import at_most
from repsynth.release.release import Release
from repsynth.report.charts import Chart, curve
from repsynth.report.side_by_side import Cells
from repsynth.scoring.weights import FULL, HingeExp, Rule, Targeted, make_weights

OUTLIER_WEIGHTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
GAMMAS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Cost:
    """A weight rule: the largest and the median ε above the threshold, the weight that is lost to the model, and
    by how much weights alone move the tables of single columns."""

    setting: str
    largest: float
    median: float
    lost: float
    moved: float

    @property
    def row(self) -> tuple[str, ...]:
        return (
            self.setting,
            at_most(self.largest, 3),
            at_most(self.median, 3),
            f"{self.lost:.1%}",
            f"{self.moved:.2%}",
        )


HEAD = ("setting", "outliers' ε at most", "their median ε", "weight lost", "columns moved by")


def other_settings(release: Release, inputs: Inputs) -> tuple[Chart, tuple[Cost, ...]] | None:
    """Outlier weights as a chart, and each γ; nothing where no threshold was measured."""
    if release.threshold is None:
        return None
    tables = [Cells.of(column, inputs.train, inputs.synthetic) for column in inputs.schema.learned]
    plain = [cells.fractions()[0] for cells in tables]
    scores = release.score.of(inputs.train)

    def cost(setting: str, rule: Rule) -> Cost:
        assert release.threshold is not None
        made = make_weights(rule, threshold=release.threshold.value, lowest=release.score.lowest)
        weights = made.of(scores) / FULL
        above = weights[scores >= release.threshold.value]
        # A hundred weights stand for all: losses of a training take time.
        some = np.quantile(above, np.linspace(0, 1, 101)) if len(above) else np.zeros(1)
        epsilons = release.privacy.epsilon_at(some)
        return Cost(setting, float(epsilons.max()), float(np.median(epsilons)), 1 - float(weights.mean()),
                    _moved(tables, plain, weights))  # fmt: skip

    targeted = [cost(f"weight {w:g}", Targeted(w)) for w in OUTLIER_WEIGHTS]
    least = targeted[0]
    now = 1 - float(np.mean(release.weights.of(scores) / FULL))
    chart = curve(
        "What a smaller loss of the outliers costs",
        f"At most ε = {at_most(least.largest, 3)} for outliers takes {least.lost:.0%} of all weight from the "
        f"model and moves a column by {least.moved:.1%} on average, noise apart; this release takes {now:.0%}. "
        "The ε of a row may be asked for with --outlier-epsilon.",
        HEAD,
        [each.row for each in targeted],
        points=[(each.largest, each.lost) for each in targeted],
        x="outliers' ε at most",
        y="part of all weight that is lost",
        at=[(release.privacy.outlier_epsilon, "this release")],
        percent=True,
    )
    return chart, tuple(cost(f"γ = {gamma:g}", HingeExp(gamma)) for gamma in GAMMAS)


def _moved(tables: Sequence[Cells], plain: Sequence[Floats], weights: Floats) -> float:
    """The mean distance of weighted from unweighted real columns."""
    if not weights.any():
        return 1.0
    return float(np.mean([
        np.abs(cells.fractions(weights)[0] - before).sum() / 2 for cells, before in zip(tables, plain, strict=True)
    ]))  # fmt: skip
