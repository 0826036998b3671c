"""Weights: the rules as they are written, rounded down, never above 1, never rising."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.errors import ConfigError
from repsynth.planning.settings import Settings
from repsynth.schema import Boolean
from repsynth.scoring.base import NAT
from repsynth.scoring.rarity import Random, make_rarity
from repsynth.scoring.threshold import ScoreBins, Threshold, choose_score_bins
from repsynth.scoring.weights import (
    FULL,
    Cap,
    Equalize,
    HingeExp,
    Removal,
    Rule,
    Targeted,
    Uniform,
    make_weights,
)

RULE_VALUES = st.sampled_from(
    [
        *(Uniform(), Equalize(), Cap(), Targeted(), Targeted(0.05), Removal()),
        *(HingeExp(0.5), HingeExp(1.0), HingeExp(4.0)),
    ]
)


@given(
    rule=RULE_VALUES,
    threshold=st.integers(-50 * NAT, 80 * NAT),
    span=st.integers(0, 60 * NAT),
    ceiling=st.floats(0, 1),
    scores=st.lists(st.integers(-100 * NAT, 200 * NAT), min_size=2, max_size=30),
)
def test_every_rule_is_rounded_down_and_never_rises(
    rule: Rule, threshold: int, span: int, ceiling: float, scores: list[int]
) -> None:
    lowest = threshold - span
    weights = make_weights(rule, threshold=threshold, lowest=lowest, ceiling=ceiling)
    ordered = np.sort(np.maximum(np.array(scores), lowest))
    got = weights.of(ordered) / FULL
    exact = rule.weight((ordered - threshold) / NAT, span / NAT)
    assert np.all((got >= 0) & (got <= 1))
    assert np.all(np.diff(got) <= 0)
    assert np.all(got <= exact + 1e-12)
    assert np.all(got[ordered >= threshold] <= ceiling)


@given(rule=RULE_VALUES)
def test_rounding_down_costs_little(rule: Rule) -> None:
    weights = make_weights(rule, threshold=20 * NAT, lowest=0)
    scores = np.arange(0, 40 * NAT, NAT // 10)
    exact = rule.weight((scores - 20 * NAT) / NAT, 20.0)
    step = 4 / 64 + 2 / FULL  # the steepest rule falls by γ/64 within a step
    assert np.all(exact - weights.of(scores) / FULL <= step)


def test_below_the_threshold_outliers_rules_leave_full_weight() -> None:
    for rule in (Targeted(), HingeExp(2.0), Uniform(), Equalize(), Removal()):
        weights = make_weights(rule, threshold=10 * NAT, lowest=0, ceiling=0.1)
        assert weights.of(np.array([0, 10 * NAT - 1])).tolist() == [FULL, FULL]


def test_the_paper_s_formulas() -> None:
    above = np.array([-2.0, 0.0, 0.5, 3.0])
    assert HingeExp(2.0).weight(above, 9.0) == pytest.approx(np.exp(-2.0 * np.maximum(above, 0)))
    tau = 9.0
    assert Cap().weight(above, tau) == pytest.approx(tau / ((above + tau) + tau))


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_wrong_number_is_refused(weight: float) -> None:
    for rule, number in ((Targeted, weight), (HingeExp, weight - 1.1), (HingeExp, 1e9)):
        with pytest.raises(ConfigError):
            rule(number)
    for rule in ("targeted", "random"):
        with pytest.raises(ConfigError, match="outlier weight"):
            Settings.of(epsilon=1.0, weights=rule, outlier_weight=weight)


def test_random_weights_are_targeted_ones_dealt_out_by_random_scores() -> None:
    settings = Settings.of(epsilon=1.0, weights="random", outlier_weight=0.1)
    assert (settings.weights, settings.scorer) == (Targeted(0.1), Random())
    assert not settings.scorer.targets_outliers


def test_a_threshold_that_is_read_lies_where_the_fraction_is() -> None:
    """Without noise and with many records, the fraction above comes out exactly, by interpolation."""
    edges = np.arange(0, 40) * NAT
    scores = np.linspace(0.0, 30.0, 30_001)
    counts = np.bincount(np.searchsorted(edges, scores * NAT, side="right"), minlength=41)
    bins = ScoreBins(edges, readable=True)
    threshold = bins.threshold(counts, fraction=0.3, rows=30_001.0, sigma=1.0)
    assert threshold.value / NAT == pytest.approx(21.0, abs=0.01)


def test_a_threshold_that_is_read_is_never_above_the_first_edge_with_too_few_above() -> None:
    generator = np.random.default_rng(0)
    edges = np.arange(0, 40) * NAT
    for _ in range(200):
        counts = generator.integers(-300, 1000, 41)
        above = np.cumsum(counts[::-1])[::-1][1:]
        target = 0.3 * 10_000
        few = [int(e) for k, e in enumerate(edges) if np.all(above[k:] < target)]
        value = ScoreBins(edges, readable=True).threshold(counts, fraction=0.3, rows=1e4, sigma=1.0).value
        assert value <= (few[0] if few else edges[-1])


@pytest.mark.parametrize("counts", [[900, 100, 0], [1000, 0, 0]])
def test_the_edges_of_scores_rise_even_where_there_are_few_different_ones(counts: list[int]) -> None:
    """One column of two values has two scores: quantiles coincide."""
    histograms = Histograms((Bins.discrete(Boolean(name="smoker")),), np.array(counts), 10.0, 1000.0)
    bins = choose_score_bins(make_rarity(histograms, None), histograms, sigma=10.0)
    assert not bins.readable
    assert np.all(np.diff(bins.edges) > 0)


def test_a_threshold_that_is_fitted_lies_where_the_fraction_is() -> None:
    """Scores that are exactly as drawn: shift 0, stretch 1."""
    drawn_above = np.array([0.9, 0.7, 0.5, 0.3, 0.15, 0.05])
    edges = np.round((1 - drawn_above) * 100 * NAT).astype(np.int64)
    fractions = -np.diff(np.concatenate([[1.0], drawn_above, [0.0]]))
    counts = np.round(fractions * 5000).astype(np.int64)
    threshold = ScoreBins(edges, readable=False).threshold(counts, fraction=0.3, rows=5000.0, sigma=40.0)
    assert threshold.value / NAT == pytest.approx(70.0, abs=0.5)
    assert 0 < threshold.fraction_error < 0.1


def test_the_mean_weight_above_is_the_histogram_s() -> None:
    edges = np.arange(10) * NAT
    threshold = Threshold(5 * NAT, edges, np.full((1, 11), 100), 0.5, 0.01)
    assert threshold.mean_weight(make_weights(Targeted(0.2), threshold=5 * NAT, lowest=0)) == pytest.approx(
        0.2, abs=1e-3
    )
    uniform = make_weights(Uniform(), threshold=5 * NAT, lowest=0)
    assert threshold.mean_weight(uniform) == 1.0


def test_the_noise_of_empty_bins_does_not_count_as_records_of_small_weight() -> None:
    """600 records just above the threshold, then 25 empty bins: cut off one by one, noise would be 400 more."""
    generator, weights = np.random.default_rng(1), make_weights(HingeExp(0.3), threshold=0, lowest=0)
    edges, found = np.arange(28) * NAT, []
    for _ in range(200):
        noisy = np.concatenate([[0, 400, 200], np.zeros(26)]) + generator.normal(0, 40.0, 29)
        found.append(Threshold(0, edges, noisy.astype(np.int64)[None], 0.3, 0.01).mean_weight(weights))
    expected = (400 * np.exp(-0.15) + 200 * np.exp(-0.45)) / 600
    assert np.mean(found) == pytest.approx(expected, abs=0.12), "it would be .45"
