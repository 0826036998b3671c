"""Areas, rates and proven losses against known formulas, and where observations are not independent."""

import numpy as np
import pytest
from scipy.special import ndtr, ndtri
from scipy.stats import binomtest
from sklearn.metrics import roc_auc_score

from repsynth.attacks.lira import likelihood_ratios
from repsynth.attacks.statistics import (
    Trials,
    advantage,
    area,
    clopper_pearson,
    proportion,
    proven_epsilon,
    proven_mu,
    proven_rates,
    rate_at,
)
from repsynth.attacks.targets import coins


def present_in(runs: int, targets: int) -> np.ndarray:
    return np.array([coins(1, run, targets) for run in range(runs)])


def shifted(runs: int, targets: int, mu: float, seed: int = 0) -> Trials:
    """Scores that are normal, moved by μ where the target takes part: what a μ-GDP mechanism allows."""
    present = present_in(runs, targets)
    return Trials.of(np.random.default_rng(seed).normal(size=present.shape) + mu * present, present)


def alone(scores: np.ndarray, present: np.ndarray) -> Trials:
    """Every observation a run and a target of its own."""
    every = np.arange(len(scores))
    return Trials(scores, present, every, every)


def test_coins_are_fair_and_every_target_is_in_half_of_the_runs() -> None:
    present = present_in(40, 300)
    assert present.sum(axis=0).tolist() == [20] * 300
    assert abs(present[::2].mean() - 0.5) < 0.05
    assert not np.array_equal(coins(1, 0, 300), coins(2, 0, 300))


def test_the_area_is_the_usual_one_and_ties_count_half() -> None:
    generator = np.random.default_rng(3)
    scores, present = np.round(generator.normal(size=400), 1), generator.random(400) < 0.4
    assert area(alone(scores, present)).value == pytest.approx(roc_auc_score(present, scores), abs=1e-12)


def test_its_interval_is_delongs_where_observations_are_independent() -> None:
    generator = np.random.default_rng(4)
    present = np.arange(300) < 120
    scores = generator.normal(size=300) + 0.7 * present
    above = (scores[present][:, None] > scores[~present][None]).astype(float)
    value = above.mean()
    ten, one = above.mean(axis=1) - value, above.mean(axis=0) - value
    variance = np.mean(ten**2) / len(ten) + np.mean(one**2) / len(one)
    found = area(alone(scores, present))
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * variance**0.5, rel=0.02)


def test_intervals_cover_what_is_true_where_runs_share_their_noise() -> None:
    """Half of the variance is common to a run: intervals for independent ones would cover far less."""
    covered, naive = 0, 0
    for seed in range(200):
        generator = np.random.default_rng(seed)
        present = np.array([coins(seed, run, 12) for run in range(24)])
        common = generator.normal(size=(24, 1)) * (2 * (np.arange(12) % 2) - 1)
        # Members are moved by what is common to the run in one direction or the other, by chance.
        scores = generator.normal(size=present.shape) + 2 * common[:, :1] * np.where(present, 1, -1)
        found = area(Trials.of(scores, present))
        covered += found.low <= 0.5 <= found.high
        flat = area(alone(scores.ravel(), present.ravel()))
        naive += flat.low <= 0.5 <= flat.high
    assert covered >= 180
    assert naive < 120


def test_nothing_is_found_where_there_is_nothing() -> None:
    covered = [area(shifted(16, 10, 0.0, seed)) for seed in range(200)]
    assert sum(found.low <= 0.5 <= found.high for found in covered) >= 184
    gains = [advantage(shifted(16, 10, 0.0, seed)) for seed in range(200)]
    assert abs(np.mean([gain.value for gain in gains])) < 0.02  # the threshold is judged on other runs
    assert sum(gain.low <= 0 <= gain.high for gain in gains) >= 180


@pytest.mark.parametrize("mu", [0.5, 2.0])
def test_rates_are_those_of_the_trade_off(mu: float) -> None:
    trials = shifted(64, 100, mu)
    for alarms in (0.01, 0.001):
        found = rate_at(trials, alarms)
        assert found is not None
        assert found.low <= ndtr(ndtri(alarms) + mu) <= found.high
    gain = advantage(trials)
    assert gain.low <= 2 * ndtr(mu / 2) - 1 <= gain.high
    assert gain.high - gain.low < 0.08
    found = area(trials)
    assert found.low <= ndtr(mu / 2**0.5) <= found.high


def test_too_few_observations_give_no_rate() -> None:
    assert rate_at(shifted(8, 10, 1.0), 0.001) is None


def test_perfect_separation_is_not_a_certainty() -> None:
    present = present_in(8, 3)
    found = area(Trials.of(present * 1.0, present))
    assert found.value == 1.0
    assert 0.5 < found.low < 0.9


def test_proportions_are_clopper_and_pearsons() -> None:
    for hits, count in ((0, 20), (7, 20), (20, 20)):
        exact = binomtest(hits, count).proportion_ci(0.95)
        found = clopper_pearson(hits, count, 0.95)
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-9)
    # The same run counted ten times over is worth one run.
    hits = np.repeat(np.arange(40) % 2, 10).astype(float)
    runs = np.repeat(np.arange(40), 10)
    trials = Trials(hits, np.ones(400, dtype=bool), runs, np.arange(400))
    found, exact = proportion(trials), binomtest(20, 40).proportion_ci(0.95)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-3)


@pytest.mark.parametrize("mu", [0.0, 1.0, 3.0])
def test_no_more_is_proven_than_is_true(mu: float) -> None:
    proven = [proven_mu(proven_rates(shifted(64, 40, mu, seed), 0.99)) for seed in range(60)]
    assert sum(found > mu for found in proven) <= 2
    assert np.median(proven) >= 0.5 * mu


def test_proven_epsilon_follows_from_rates() -> None:
    assert proven_epsilon(((0.5, 0.05), (0.2, 0.1)), 0.0) == pytest.approx(np.log(10))
    assert proven_epsilon(((0.9, 0.5),), 0.1) == pytest.approx(np.log(0.4 / 0.1))
    assert proven_epsilon(((0.05, 0.2),), 0.0) == 0.0


def test_shadow_runs_learn_which_way_a_target_moves_its_score() -> None:
    """Half of the targets move it down, and all have another level: no common threshold would find them."""
    generator = np.random.default_rng(0)
    present = present_in(64, 40)
    step = np.where(np.arange(40) % 2, 2.0, -2.0)
    scores = generator.normal(size=present.shape) + 100 * np.arange(40) + step * present
    deciles = np.arange(40) % 2
    assert area(Trials.of(scores, present)).high < 0.6
    found = area(Trials.of(likelihood_ratios([scores], present, deciles), present))
    assert found.value == pytest.approx(ndtr(2 / 2**0.5), abs=0.05)
    nothing = [generator.normal(size=present.shape) for _ in range(3)]
    null = area(Trials.of(likelihood_ratios(nothing, present, deciles), present))
    assert null.low < 0.5 < null.high


def test_shadow_runs_without_noise_find_everybody() -> None:
    present = present_in(16, 5)
    ratios = likelihood_ratios([1e9 * present, np.zeros(present.shape)], present, np.zeros(5, dtype=int))
    assert area(Trials.of(ratios, present)).value == 1.0
