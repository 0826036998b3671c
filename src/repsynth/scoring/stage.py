"""Stage 1: measure columns, measure scores, derive the weights. Its result is public."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import COARSE, FINE, REFINED, ColumnHistograms, Histograms, Refinement
from repsynth.columns.cells import Bins, first_cells, is_divisible
from repsynth.io.records import Records
from repsynth.mechanism.kernels import Chosen, Count, Statistic
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.privacy.events import Charge, SampledEvent
from repsynth.schema import Schema
from repsynth.scoring.base import Score, Scorer
from repsynth.scoring.threshold import (
    ScoreHistogram,
    ShiftedScore,
    Threshold,
    choose_score_bins,
    solve_rule,
    with_threshold,
)
from repsynth.scoring.transfer import PriorScores
from repsynth.scoring.weights import FULL, Rule, WeightFunction, make_weights

COUNT, SCORES = "count", "scores"
LOOKS = REFINED, FINE
"""The weighted looks that refine the coarse histograms."""
_LOOK_SHARE = 0.05  # of μ², for each look


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """The part of a plan that scoring and models read; `planning.plan.Plan` completes it."""

    schema: Schema
    charges: dict[str, Charge]
    """The charges, in the order of the measurements."""
    rule: Rule
    ceiling: float
    """The largest weight above the threshold that meets the requested outlier ε."""
    training: SampledEvent | None = None
    """The rounds of a trained model, with the noise that the rest of the budget allows."""
    borrowed: PriorScores | None = None
    """Score function and threshold of an earlier release, if the run uses them."""

    # Copied from the settings and the budget.
    scorer: Scorer = field(init=False, repr=False)
    public_rows: int | None = field(init=False, repr=False)
    outlier_fraction: float = field(init=False, repr=False)
    max_lost_mass: float | None = field(init=False, repr=False)
    max_model_mb: int = field(init=False, repr=False)
    delta: float = field(init=False, repr=False)
    scale: float = field(init=False, repr=False)
    """The μ with the budget's ε at its δ: charges are shares of its square. It does not bound a training."""


OnStep = Callable[[str], None]


def measure_stage_one(meter: Meter, plan: RunPlan, on_step: OnStep) -> "StageOne":
    """Make all measurements of stage 1, in the order of the plan."""
    coarse = measure_columns(meter, plan, on_step)
    score, threshold = measure_scores(meter, plan, coarse, on_step)
    weights = weights_of(plan, score, threshold)
    looks, histograms = measure_looks(meter, plan, coarse, score, weights, on_step)
    return StageOne(plan.schema, coarse, score, threshold, weights, looks, histograms, plan.borrowed)


def measure_columns(meter: Meter, plan: RunPlan, on_step: OnStep) -> Histograms:
    """Measure the number of records, unless it is public, and the coarse histograms."""
    schema, charges, rows = plan.schema, plan.charges, float(plan.public_rows or 0)
    if plan.public_rows is None:
        on_step(COUNT)
        rows = max(1.0, float(meter.measure(Count(), mu=charges[COUNT].mu)[0]))
    on_step(COARSE)
    sigma = sigma_for(len(schema.learned) ** 0.5, charges[COARSE].per_row)
    bins = first_cells(schema, rows=rows, sigma=sigma)
    return Histograms(bins, meter.measure(ColumnHistograms(bins), mu=charges[COARSE].mu), sigma, rows)


def measure_scores(
    meter: Meter, plan: RunPlan, coarse: Histograms, on_step: OnStep
) -> tuple[Score, Threshold | None]:
    """Return the score function and the threshold: measured, or those of an earlier release."""
    if plan.borrowed:
        return plan.borrowed.score, plan.borrowed.threshold
    schema, charges = plan.schema, plan.charges
    score = plan.scorer.measure(meter, coarse, schema.label, charges)
    if SCORES not in charges:
        return score, None
    on_step(SCORES)
    sigma = sigma_for(ScoreHistogram.sensitivity, charges[SCORES].per_row)
    bins = choose_score_bins(score, coarse, sigma=sigma, label=schema.label_column)
    noisy = meter.measure(ScoreHistogram(score, bins.edges, bins.label), mu=charges[SCORES].mu)
    threshold = bins.threshold(noisy, fraction=plan.outlier_fraction, rows=coarse.rows, sigma=sigma)
    return with_threshold(score, threshold, schema.label_column), threshold


def weights_of(plan: RunPlan, score: Score, threshold: Threshold | None) -> WeightFunction:
    """Return the weights, which follow from the plan, the score and the threshold."""
    lowest = score.lowest
    rule = solved_rule(plan, threshold, lowest=lowest)
    above = threshold.value if threshold else lowest
    return make_weights(rule, threshold=above, lowest=lowest, ceiling=plan.ceiling)


def solved_rule(plan: RunPlan, threshold: Threshold | None, *, lowest: int) -> Rule:
    """Return the plan's rule, or the strongest one within its limit on lost mass: post-processing."""
    if plan.max_lost_mass is None or threshold is None:
        return plan.rule
    return solve_rule(plan.rule, threshold, lowest=lowest, most=plan.max_lost_mass)


def measure_looks(
    meter: Meter, plan: RunPlan, coarse: Histograms, score: Score, weights: WeightFunction, on_step: OnStep
) -> tuple[dict[str, Refinement], Histograms]:
    """Refine the histograms look by look. Each look divides the cells in which the earlier ones show records."""
    looks: dict[str, Refinement] = {}
    histograms = coarse
    for name in (name for name in LOOKS if name in plan.charges):
        on_step(name)
        looks[name] = _measure_look(meter, histograms, name, plan.charges[name], score, weights)
        histograms = coarse.refined_by([*looks.values()], weighted=weights.weighted)
    return looks, histograms


def _measure_look(
    meter: Meter, histograms: Histograms, name: str, charge: Charge, score: Score, weights: WeightFunction
) -> Refinement:
    divisible = sum(bins.divisible for bins in histograms.bins)
    columns, bins = histograms.to_divide(name, sigma_for(math.sqrt(divisible), charge.per_row))
    statistic = WeightedHistograms(bins, score, weights, name)
    noisy = meter.measure(statistic, mu=charge.mu)
    return Refinement(columns, bins, noisy, sigma_for(statistic.sensitivity, charge.per_row), FULL)


def look_shares(schema: Schema) -> dict[str, float]:
    """Return the share of μ² of each look; {} if no column is divisible."""
    return dict.fromkeys(LOOKS, _LOOK_SHARE) if look_sensitivity(schema) else {}


def look_sensitivity(schema: Schema) -> float:
    """Return an upper bound on the sensitivity of a look, in records: one cell of every divisible column."""
    return math.sqrt(sum(is_divisible(column) for column in schema.learned))


@dataclass(frozen=True)
class WeightedHistograms:
    """The statistic: a record adds its weight, in units of 1/FULL, to one cell of each column."""

    bins: tuple[Bins, ...]
    score: Score
    weights: WeightFunction
    name: str
    unit: int = FULL
    weighted: bool = True

    @property
    def sensitivity(self) -> float:
        """Exact: one cell of each column at full weight."""
        return FULL * math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        """Return exact sums: `np.bincount` adds floats, but these are whole numbers below 2⁵³ in a batch."""
        weights = self.weights.of(self.score.of(records)).astype(np.float64)
        counts = [np.bincount(bins.of(records), weights, minlength=bins.count) for bins in self.bins]
        return np.concatenate(counts).astype(np.int64)


@dataclass(frozen=True)
class StageOne:
    """The released values of stage 1 and the public functions derived from them."""

    schema: Schema
    coarse: Histograms
    """The first look. Scores use its cells, which follow from the schema and the noise level alone."""
    score: Score
    threshold: Threshold | None
    weights: WeightFunction
    looks: Mapping[str, Refinement]
    histograms: Histograms
    """The coarse histograms, refined by all looks."""
    borrowed: PriorScores | None = None
    """The source of score and threshold if they were not measured in this run."""

    @property
    def weighted(self) -> bool:
        """Whether some scores have a weight below 1."""
        return self.weights.weighted

    @property
    def outlier_weight(self) -> float:
        """The estimated mean weight of the records above the threshold; 1 without a threshold."""
        return self.threshold.mean_weight(self.weights) if self.threshold else 1.0

    def influence(self, records: Records) -> Floats:
        """Return each record's weight: its largest share of the sensitivity in any weighted measurement."""
        return self.weights.of(self.score.of(records)) / FULL

    def kernels(self) -> dict[str, Statistic | Chosen]:
        """Return the public functions behind the measurements of stage 1, by charge."""
        found: dict[str, Statistic | Chosen] = {COUNT: Count(), COARSE: ColumnHistograms(self.coarse.bins)}
        if not self.borrowed:
            found |= self.score.kernels()
            if self.threshold:
                label = self.score.label if isinstance(self.score, ShiftedScore) else None
                found[SCORES] = ScoreHistogram(self.unmoved_score, self.threshold.edges, label)
        for name, look in self.looks.items():
            found[name] = WeightedHistograms(look.bins, self.score, self.weights, name)
        return found

    @property
    def unmoved_score(self) -> Score:
        """The score before the shift of the label: the one whose histogram was measured."""
        return self.score.score if isinstance(self.score, ShiftedScore) else self.score
