"""Stage 1: histograms, scores, threshold and weights. What it hands over is public."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from repsynth.arrays import Floats
from repsynth.mechanism.kernels import Chosen, Count, Statistic
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.privacy.events import Charge, SampledEvent
from repsynth.schema import Schema
from repsynth.scoring.base import Score, Scorer
from repsynth.scoring.bins import Bins, choose_bins
from repsynth.scoring.borrowed import Borrowed
from repsynth.scoring.histograms import ColumnHistograms, Histograms
from repsynth.scoring.lost_mass import solve_rule
from repsynth.scoring.ranges import RANGES, ZOOM, Ranges, measure_ranges
from repsynth.scoring.shifted import ShiftedScore, with_threshold
from repsynth.scoring.threshold import ScoreHistogram, Threshold, choose_score_bins
from repsynth.scoring.weights import FULL, Rule, WeightFunction, make_weights

COUNT, HISTOGRAMS, SCORES = "count", "histograms", "scores"
"""The measurements of stage 1, beside the two looks at wide columns."""


@dataclass(frozen=True)
class StageOne:
    """Everything public that stage 2 starts from: released values and functions made of them."""

    schema: Schema
    histograms: Histograms
    score: Score
    threshold: Threshold | None
    weights: WeightFunction
    ranges: Ranges | None = None
    borrowed: Borrowed | None = None
    """Where score and threshold came from, where they were not measured here."""

    @property
    def weighted(self) -> bool:
        """Whether some record may weigh less than others."""
        return bool(self.weights.table.min() < FULL)

    @property
    def outlier_weight(self) -> float:
        """About the mean weight of the records above the threshold; 1 where there is none."""
        return self.threshold.mean_weight(self.weights) if self.threshold else 1.0

    @cached_property
    def scored(self) -> Histograms:
        """The histograms that scores are made of: their bins are fixed by the schema and the noise level alone."""
        return scored_histograms(self.histograms, self.ranges)

    def kernels(self) -> dict[str, Statistic | Chosen]:
        """The public functions that stage 1 summed up, or chose by."""
        found: dict[str, Statistic | Chosen] = {COUNT: Count()}
        if self.ranges:
            found |= self.ranges.kernels()
        found[HISTOGRAMS] = ColumnHistograms(self.histograms.bins)
        if self.borrowed:
            return found  # its scores were measured elsewhere
        found |= self.score.kernels()
        if self.threshold:
            label = self.score.label if isinstance(self.score, ShiftedScore) else None
            found[SCORES] = ScoreHistogram(self.unmoved_score, self.threshold.edges, label)
        return found

    @property
    def unmoved_score(self) -> Score:
        """The score before a threshold for each label moves it: the one whose histogram was measured."""
        return self.score.score if isinstance(self.score, ShiftedScore) else self.score


class RunPlan(Protocol):
    """What scoring and models read of a `Plan`, which belongs to a folder above theirs."""

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
    def per_bin(self) -> float | None: ...

    @property
    def max_model_mb(self) -> int: ...

    @property
    def borrowed(self) -> Borrowed | None: ...


def measure_stage_one(meter: Meter, plan: RunPlan, on_step: Callable[[str], None]) -> StageOne:
    schema, charges = plan.schema, plan.charges
    rows = float(plan.public_rows or 0)
    if plan.public_rows is None:
        on_step(COUNT)
        rows = max(1.0, float(meter.measure(Count(), mu=charges[COUNT].mu)[0]))

    ranges = None
    if RANGES in charges:
        on_step(RANGES)
        ranges = measure_ranges(meter, schema, charges, on_zoom=lambda: on_step(ZOOM))

    on_step(HISTOGRAMS)
    sigma = sigma_for(len(schema.learned) ** 0.5, charges[HISTOGRAMS].per_row)
    bins = choose_bins(schema, rows=rows, sigma=sigma, per_bin=plan.per_bin)
    located: dict[int, Bins] = {}
    if ranges:
        located = ranges.located(bins, rows=rows, sigma=sigma)
        bins = tuple(located.get(i, each) for i, each in enumerate(bins))
    counts = meter.measure(ColumnHistograms(bins), mu=charges[HISTOGRAMS].mu)
    roundness = ranges.roundness if ranges else {}
    histograms = Histograms(bins, counts, sigma, rows, roundness, frozenset(located))
    borrowed = plan.borrowed
    if borrowed:
        score = borrowed.score
    else:
        score = plan.scorer.measure(meter, histograms_for(plan.scorer, histograms, ranges), schema.label, charges)

    threshold = borrowed.threshold if borrowed else None
    if SCORES in charges:
        on_step(SCORES)
        sigma = sigma_for(ScoreHistogram.sensitivity, charges[SCORES].per_row)
        score_bins = choose_score_bins(score, histograms, sigma=sigma, label=schema.label_column)
        noisy = meter.measure(ScoreHistogram(score, score_bins.edges, score_bins.label), mu=charges[SCORES].mu)
        threshold = score_bins.threshold(noisy, fraction=plan.outlier_fraction, rows=rows, sigma=sigma)
        score = with_threshold(score, threshold, schema.label_column)
    weights = weights_of(plan, score, threshold)
    return StageOne(schema, histograms, score, threshold, weights, ranges, borrowed)


def weights_of(plan: RunPlan, score: Score, threshold: Threshold | None) -> WeightFunction:
    """The weights that follow from a plan's rule and ceiling, a score and its threshold, and from nothing else."""
    return make_weights(
        solved_rule(plan, threshold, lowest=score.lowest),
        threshold=threshold.value if threshold else score.lowest,
        lowest=score.lowest,
        ceiling=plan.ceiling,
    )


def solved_rule(plan: RunPlan, threshold: Threshold | None, *, lowest: int) -> Rule:
    """The rule of the plan or, where a lost mass decides, one that is as strong as the released histogram of the
    scores says that this allows: post-processing."""
    if plan.max_lost_mass is None or threshold is None:
        return plan.rule
    return solve_rule(plan.rule, threshold, lowest=lowest, most=plan.max_lost_mass)


def histograms_for(scorer: Scorer, histograms: Histograms, ranges: Ranges | None) -> Histograms:
    return histograms if scorer.by_located else scored_histograms(histograms, ranges)


def scored_histograms(histograms: Histograms, ranges: Ranges | None) -> Histograms:
    """The histograms that scores are made of: for a wide column those of the first look, one behind the other.

    Where their bins lie does not depend on noise, so that a score can be bounded before any noise is drawn.
    """
    if ranges is None:
        return histograms
    place = {i: k for k, i in enumerate(ranges.columns)}
    parts: list[tuple[Bins, Floats]] = []
    wide, outward = set(), set()
    for i, bins in enumerate(histograms.bins):
        if i not in place:
            parts.append((bins, histograms.noisy(i)))
            continue
        wide.add(len(parts))
        parts.append((ranges.first.bins[place[i]], ranges.first.noisy(place[i])))
        if i in ranges.numbers:
            outward.add(len(parts) - 1)
            wide.add(len(parts))
            parts.append((ranges.equal.bins[ranges.numbers[i]], ranges.equal.noisy(ranges.numbers[i])))
    return Histograms(
        tuple(bins for bins, _ in parts),
        np.concatenate([counts for _, counts in parts]).astype(np.int64),
        histograms.sigma,
        histograms.rows,
        located=frozenset(wide),
        outward=frozenset(outward),
        sigmas=tuple(ranges.first.sigma if k in wide else histograms.sigma for k in range(len(parts))),
    )
