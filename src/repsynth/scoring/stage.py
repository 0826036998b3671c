"""Stage 1: measure histograms, scores and threshold, and derive the weights. Its result is public."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import COARSE, FINE, REFINED, ColumnHistograms, Histograms, Look
from repsynth.columns.cells import Bins, first_cells, is_divisible
from repsynth.data.records import Records
from repsynth.mechanism.kernels import Chosen, Count, Statistic
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.privacy.events import Charge, SampledEvent
from repsynth.schema import Schema
from repsynth.scoring.base import Score, Scorer
from repsynth.scoring.borrowed import Borrowed
from repsynth.scoring.threshold import (
    ScoreHistogram,
    ShiftedScore,
    Threshold,
    choose_score_bins,
    solve_rule,
    with_threshold,
)
from repsynth.scoring.weights import FULL, Rule, WeightFunction, make_weights

COUNT, SCORES = "count", "scores"
LOOKS = REFINED, FINE
"""The looks that refine the coarse histograms, with weights."""
_LOOK_SHARE = 0.05  # of μ², for each look


def look_shares(schema: Schema) -> dict[str, float]:
    """Return the shares of μ² of the looks that refine histograms; {} where no column has many numbers."""
    return dict.fromkeys(LOOKS, _LOOK_SHARE) if look_sensitivity(schema) else {}


def look_sensitivity(schema: Schema) -> float:
    """Return the largest sensitivity of such a look, in records: one cell of every column of many numbers."""
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
        """One cell of each column, at full weight."""
        return FULL * math.sqrt(len(self.bins))

    def total(self, records: Records) -> Ints:
        """`np.bincount` adds floats; these are whole numbers that stay below 2⁵³ in a batch, so exact."""
        weights = self.weights.of(self.score.of(records)).astype(np.float64)
        counts = [np.bincount(bins.of(records), weights, minlength=bins.count) for bins in self.bins]
        return np.concatenate(counts).astype(np.int64)


@dataclass(frozen=True)
class StageOne:
    """Everything public that stage 2 starts from: released values and functions made of them."""

    schema: Schema
    coarse: Histograms
    """The first look: scores are made of its cells, which follow from the schema and the noise level alone."""
    score: Score
    threshold: Threshold | None
    weights: WeightFunction
    looks: Mapping[str, Look]
    histograms: Histograms
    """The coarse histograms, refined by all looks."""
    borrowed: Borrowed | None = None
    """Where score and threshold came from, where they were not measured here."""

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
        """Return the public functions that stage 1 measured or chose by, by charge."""
        found: dict[str, Statistic | Chosen] = {COUNT: Count(), COARSE: ColumnHistograms(self.coarse.bins)}
        if not self.borrowed:  # else its scores were measured elsewhere
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


class RunPlan(Protocol):
    """What scoring and models read of a `Plan`, which they cannot import."""

    @property
    def schema(self) -> Schema: ...

    @property
    def charges(self) -> Mapping[str, Charge]: ...

    @property
    def training(self) -> SampledEvent | None: ...

    @property
    def scorer(self) -> Scorer: ...

    @property
    def rule(self) -> Rule: ...

    @property
    def ceiling(self) -> float: ...

    @property
    def delta(self) -> float: ...

    @property
    def scale(self) -> float: ...

    @property
    def public_rows(self) -> int | None: ...

    @property
    def outlier_fraction(self) -> float: ...

    @property
    def max_lost_mass(self) -> float | None: ...

    @property
    def max_model_mb(self) -> int: ...

    @property
    def borrowed(self) -> Borrowed | None: ...


def measure_stage_one(meter: Meter, plan: RunPlan, on_step: Callable[[str], None]) -> StageOne:
    """Make all measurements of stage 1, in the order of the plan."""
    return measure_scores(meter, plan, measure_columns(meter, plan, on_step), on_step)


def measure_columns(meter: Meter, plan: RunPlan, on_step: Callable[[str], None]) -> Histograms:
    """Measure the number of records and the first histogram of every column."""
    schema, charges = plan.schema, plan.charges
    rows = float(plan.public_rows or 0)
    if plan.public_rows is None:
        on_step(COUNT)
        rows = max(1.0, float(meter.measure(Count(), mu=charges[COUNT].mu)[0]))

    on_step(COARSE)
    sigma = sigma_for(len(schema.learned) ** 0.5, charges[COARSE].per_row)
    bins = first_cells(schema, rows=rows, sigma=sigma)
    return Histograms(bins, meter.measure(ColumnHistograms(bins), mu=charges[COARSE].mu), sigma, rows)


def measure_scores(meter: Meter, plan: RunPlan, coarse: Histograms, on_step: Callable[[str], None]) -> StageOne:
    """Measure the scores and the threshold, and refine the histograms by the weights that follow."""
    schema, charges, rows, borrowed = plan.schema, plan.charges, coarse.rows, plan.borrowed
    score = borrowed.score if borrowed else plan.scorer.measure(meter, coarse, schema.label, charges)

    threshold = borrowed.threshold if borrowed else None
    if SCORES in charges:
        on_step(SCORES)
        sigma = sigma_for(ScoreHistogram.sensitivity, charges[SCORES].per_row)
        score_bins = choose_score_bins(score, coarse, sigma=sigma, label=schema.label_column)
        noisy = meter.measure(ScoreHistogram(score, score_bins.edges, score_bins.label), mu=charges[SCORES].mu)
        threshold = score_bins.threshold(noisy, fraction=plan.outlier_fraction, rows=rows, sigma=sigma)
        score = with_threshold(score, threshold, schema.label_column)
    weights = weights_of(plan, score, threshold)

    looks, histograms = {}, coarse
    for name in LOOKS:
        if name in charges:
            on_step(name)
            look = _measure_look(meter, histograms, name, charges[name], score, weights)
            looks[name], histograms = look, coarse.refined_by([*looks.values(), look], weighted=weights.weighted)
    return StageOne(schema, coarse, score, threshold, weights, looks, histograms, borrowed)


def _measure_look(
    meter: Meter, histograms: Histograms, name: str, charge: Charge, score: Score, weights: WeightFunction
) -> Look:
    divisible = sum(is_divisible(bins.column) for bins in histograms.bins)
    columns, bins = histograms.to_divide(name, sigma_for(math.sqrt(divisible), charge.per_row))
    statistic = WeightedHistograms(bins, score, weights, name)
    noisy = meter.measure(statistic, mu=charge.mu)
    return Look(columns, bins, noisy, sigma_for(statistic.sensitivity, charge.per_row), FULL)


def weights_of(plan: RunPlan, score: Score, threshold: Threshold | None) -> WeightFunction:
    """Return the weights: they follow from the plan, the score and the threshold alone."""
    return make_weights(
        solved_rule(plan, threshold, lowest=score.lowest),
        threshold=threshold.value if threshold else score.lowest,
        lowest=score.lowest,
        ceiling=plan.ceiling,
    )


def solved_rule(plan: RunPlan, threshold: Threshold | None, *, lowest: int) -> Rule:
    """Return the rule of the plan, or the strongest one within its limit on lost mass: post-processing."""
    if plan.max_lost_mass is None or threshold is None:
        return plan.rule
    return solve_rule(plan.rule, threshold, lowest=lowest, most=plan.max_lost_mass)
