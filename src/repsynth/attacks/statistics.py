"""Areas, rates and proven losses of an attack, with intervals.

An attack is a number for each target in each run; `present` says in which runs the target took part. Targets of
one run share its noise, and a target is the same in all runs. So the observations are clustered both ways:
variances are those of sums over runs and over targets, and never smaller than if all observations were
independent.

What an attack finds: a claim, and the bound that the attack proves.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
from scipy.special import betaincinv, ndtri, stdtrit
from scipy.stats import binom, rankdata

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.targets import half_of
from repsynth.privacy import gaussian
from repsynth.privacy.loss import Loss

CONFIDENCE = 0.95
_THRESHOLDS = np.concatenate([[0.001, 0.002, 0.005], np.linspace(0.01, 0.99, 50), [0.995, 0.998, 0.999]])


class Estimate(msgspec.Struct, frozen=True):
    """A value between the ends of its interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Trials:
    """The observations of an attack on some targets, flat."""

    scores: Floats
    present: Bools
    runs: Ints
    targets: Ints

    @classmethod
    def of(cls, scores: Floats, present: Bools) -> "Trials":
        """From (runs, targets); what is not a number was not observed."""
        seen = np.isfinite(scores)
        runs, targets = np.nonzero(seen)
        return cls(scores[seen], present[seen], runs, targets)

    def take(self, rows: Bools) -> "Trials":
        return Trials(self.scores[rows], self.present[rows], self.runs[rows], self.targets[rows])

    @property
    def counts(self) -> tuple[int, int]:
        """How many with the target, and how many without."""
        inside = int(self.present.sum())
        return inside, len(self.present) - inside

    def halves(self) -> "tuple[Trials, Trials]":
        """Those of one half of the runs, and of the other."""
        second = half_of(self.runs)
        return self.take(~second), self.take(second)


def area(trials: Trials, confidence: float = CONFIDENCE) -> Estimate:
    """The area under the curve: how often a member stands above a non-member; ties count half. The variance is
    DeLong's, of clusters."""
    inside, outside = trials.counts
    scores, present = trials.scores, trials.present
    ranks = rankdata(scores)
    own = np.empty(len(scores))
    own[present], own[~present] = rankdata(scores[present]), rankdata(scores[~present])
    placed = np.where(present, (ranks - own) / outside, 1 - (ranks - own) / inside)
    value = float(placed[present].mean())
    influence = (placed - value) / np.where(present, inside, outside)
    return _around(value, influence, trials, confidence, least=0.0)


def advantage(trials: Trials, confidence: float = CONFIDENCE) -> Estimate:
    """True less false positive rate at the best threshold, which is chosen on one half of the runs and judged on
    the other."""
    correct = np.empty(len(trials.scores))
    first, second = trials.halves()
    for learnt, judged, half in ((first, second, True), (second, first, False)):
        thresholds, members, others = _curve(learnt)
        correct[half_of(trials.runs) == half] = judged.scores > thresholds[np.argmax(members - others)]
    inside, outside = trials.counts
    rates = [float(correct[side].mean()) for side in (trials.present, ~trials.present)]
    value = rates[0] - rates[1]
    signed = np.where(trials.present, (correct - rates[0]) / inside, (rates[1] - correct) / outside)
    return _around(value, signed, trials, confidence, least=-1.0)


def rate_at(trials: Trials, false_alarms: float, confidence: float = CONFIDENCE) -> Estimate | None:
    """The true positive rate where so many non-members raise an alarm; None where there are too few of these. The
    interval knows that the threshold is estimated, too: each half of the error is for one of the two."""
    outside = np.sort(trials.scores[~trials.present])[::-1]
    if false_alarms * len(outside) < 1:
        return None

    def rate(count: float) -> Trials:
        threshold = outside[min(int(count), len(outside) - 1)]
        flagged = trials.take(trials.present)
        return Trials((flagged.scores > threshold).astype(float), flagged.present, flagged.runs, flagged.targets)

    expected = false_alarms * len(outside)
    low, high = (binom.ppf(q, len(outside), false_alarms) for q in ((1 - confidence) / 4, (3 + confidence) / 4))
    value = float(rate(expected).scores.mean())
    least = proportion(rate(low), (1 + confidence) / 2).low
    most = proportion(rate(high), (1 + confidence) / 2).high
    return Estimate(value, min(least, value), max(most, value))


def proportion(trials: Trials, confidence: float = CONFIDENCE) -> Estimate:
    """The mean of zeros and ones: Clopper and Pearson's interval, with as many observations as independent ones
    would tell as much (Korn and Graubard)."""
    hits = trials.scores
    value, count = float(hits.mean()), float(len(hits))
    if 0 < value < 1:
        variance = _variance((hits - value) / count, trials)
        count = min(count, value * (1 - value) / variance)
    return clopper_pearson(value * count, count, confidence)


def clopper_pearson(hits: float, count: float, confidence: float) -> Estimate:
    """The exact interval of a proportion; counts need not be whole."""
    low, high = _exact_limits(hits, count, (1 - confidence) / 2)
    return Estimate(hits / count if count else 0.0, float(low), float(high))


def _exact_limits(hits: Floats | float, count: Floats | float, tail: float) -> tuple[Floats, Floats]:
    """Clopper and Pearson's limits, each of which fails with the chance `tail`."""
    low = np.nan_to_num(betaincinv(hits, count - hits + 1, tail), nan=0.0)
    high = np.nan_to_num(betaincinv(hits + 1, count - hits, 1 - tail), nan=1.0)
    return low, high


def proven_rates(trials: Trials, confidence: float) -> tuple[tuple[float, float], ...]:
    """Pairs of a true positive rate that is at least so large and a false positive rate that is at most so
    large, all of which hold with this confidence. Thresholds are chosen on one half of the runs and judged on
    the other."""
    found = []
    each = 1 - (1 - confidence) / 4
    for learnt, judged in (trials.halves(), trials.halves()[::-1]):
        inside, outside = judged.counts
        if min(*learnt.counts, inside, outside) == 0:
            continue
        flagged = (judged.scores > _sharpest_threshold(learnt, each)).astype(float)
        judged = Trials(flagged, judged.present, judged.runs, judged.targets)
        # One-sided bounds of this confidence are ends of two-sided intervals of a smaller one.
        sides = [proportion(judged.take(side), 2 * each - 1) for side in (judged.present, ~judged.present)]
        found.append((sides[0].low, sides[1].high))
    return tuple(found)


def proven_mu(rates: tuple[tuple[float, float], ...]) -> float:
    """The μ that some of these rates prove."""
    proven = [float(ndtri(low) - ndtri(high)) for low, high in rates if low > 0 and high < 1]
    return max([0.0, *proven])


def proven_epsilon(rates: tuple[tuple[float, float], ...], delta: float) -> float:
    """The ε that some of these rates prove, at this δ."""
    proven = [0.0]
    for low, high in rates:
        proven += [math.log((low - delta) / high)] if low > delta and high > 0 else []
        proven += [math.log((1 - high - delta) / (1 - low))] if 1 - high > delta and low < 1 else []
    return max(proven)


def _sharpest_threshold(trials: Trials, confidence: float) -> float:
    """Where these observations, were they independent, would prove most."""
    thresholds, members, others = _curve(trials)
    inside, outside = trials.counts
    least, _ = _exact_limits(members * inside, inside, 1 - confidence)
    _, most = _exact_limits(others * outside, outside, 1 - confidence)
    with np.errstate(invalid="ignore"):
        proven = ndtri(least) - ndtri(most)
    return float(thresholds[np.argmax(np.nan_to_num(proven, nan=-np.inf, posinf=-np.inf))])


def _curve(trials: Trials) -> tuple[Floats, Floats, Floats]:
    """Thresholds, and both positive rates there."""
    outside, inside = np.sort(trials.scores[~trials.present]), np.sort(trials.scores[trials.present])
    if not len(outside) or not len(inside):
        return np.zeros(1), np.zeros(1), np.zeros(1)
    thresholds = np.unique(np.quantile(trials.scores, _THRESHOLDS))
    thresholds = np.unique(np.concatenate([thresholds, np.quantile(outside, _THRESHOLDS)]))
    rates = [1 - np.searchsorted(side, thresholds, side="right") / len(side) for side in (inside, outside)]
    return thresholds, rates[0], rates[1]


def _around(value: float, influence: Floats, trials: Trials, confidence: float, *, least: float) -> Estimate:
    """A value and its interval, by Student's distribution with as many degrees of freedom as there are runs, or
    targets where these are fewer, less one. Where nothing varies, as much as so many observations can exclude."""
    clusters = min(len(np.unique(trials.runs)), len(np.unique(trials.targets)))
    deviation = math.sqrt(_variance(influence, trials))
    upper = (1 + confidence) / 2
    reach = float(stdtrit(max(clusters - 1, 4), upper)) * deviation
    if deviation == 0.0:
        reach = (1 - least) * (1 - (1 - upper) ** (1 / max(min(trials.counts), 1)))
    return Estimate(value, max(value - reach, least), min(value + reach, 1.0))


def _variance(influence: Floats, trials: Trials) -> float:
    """Of a sum of influences, clustered by run and by target; no smaller than that of independent ones."""
    alone = float(influence @ influence)
    by_run = float(np.sum(np.bincount(trials.runs, influence) ** 2))
    by_target = float(np.sum(np.bincount(trials.targets, influence) ** 2))
    return max(alone, by_run, by_target, by_run + by_target - alone)


_SHOWN, _CERTAIN = 0.95, 1 - 1e-5
HOLDS, DOUBTFUL, BREACH = "holds", "breach at 95 %", "breach at 99.999 %"
"""What an attack says of a claim: not refuted; refuted at 95 % for all lines of an audit together, as a sound
mechanism is in one audit of twenty at most; refuted at 99.999 % by a line alone."""


@dataclass(frozen=True)
class Finding:
    """One attack on one record: the realised loss that is claimed, and what the attack proves at least.

    `lower_mu` is proven at 95 % for all lines of an audit together, `certain_mu` at 99.999 % by this line alone.
    `guaranteed_mu` is the loss guaranteed before the run, where all measurements are attacked together.
    """

    target: str
    attack: str
    measurement: str
    claimed_mu: float
    lower_mu: float
    certain_mu: float
    delta: float
    guaranteed_mu: float | None = None
    claim: Loss | None = None
    """Where a training is part of it: what is claimed of a record of full influence, in place of μ."""

    @property
    def exceeded(self) -> bool:
        return self._exceeds(self.certain_mu)

    @property
    def verdict(self) -> str:
        return BREACH if self.exceeded else DOUBTFUL if self._exceeds(self.lower_mu) else HOLDS

    def _exceeds(self, mu: float) -> bool:
        claim = min(self.claimed_mu, self.guaranteed_mu) if self.guaranteed_mu is not None else self.claimed_mu
        return mu > claim * (1 + 1e-9)

    @property
    def share_proven(self) -> float | None:
        """How much of the claimed μ is proven."""
        return self.lower_mu / self.claimed_mu if self.claimed_mu > 0 else None

    @property
    def claimed_epsilon(self) -> float:
        return (
            self.claim.epsilon(self.delta)
            if self.claim
            else float(gaussian.epsilon_of(self.claimed_mu, self.delta))
        )

    @property
    def guaranteed_epsilon(self) -> float | None:
        if self.guaranteed_mu is None or self.claim is not None:
            return None
        return float(gaussian.epsilon_of(self.guaranteed_mu, self.delta))

    @property
    def lower_epsilon(self) -> float:
        lower = max(self.lower_mu, 0.0)
        if self.claim is None:
            return float(gaussian.epsilon_of(lower, self.delta))
        proven = float(gaussian.advantage(lower))  # (ε, δ)-DP allows (e^ε − 1 + 2δ)/(e^ε + 1)
        return max(math.log((1 + proven - 2 * self.delta) / (1 - proven)), 0.0) if proven < 1 else math.inf


def claimed_mu(loss: Loss, influence: float = 1.0) -> float:
    """The μ whose largest advantage is that of a loss; its own, where it is Gaussian."""
    if not loss.trainings:
        return float(loss.mu_at(influence))
    return float(2 * ndtri((1 + loss.advantage_at(influence)) / 2))


def overall(findings: Iterable[Finding]) -> str:
    """The worst verdict of an audit."""
    found = {finding.verdict for finding in findings}
    return next((verdict for verdict in (BREACH, DOUBTFUL) if verdict in found), HOLDS)


def bounds_of(out: Floats, present: Floats, lines: int = 1) -> tuple[float, float]:
    """Lower bounds on μ at both confidences from the attacker's log ratios on both tables.

    The first one is for an audit of so many `lines`: each may fail with a chance of 5 % by their number
    (Bonferroni), so that all of them hold together with 95 %, however they depend on each other.
    """
    # Ties, as where the record contributes nothing, are coin flips.
    right = np.sum(present > 0) + np.sum(out < 0) + (np.sum(present == 0) + np.sum(out == 0)) / 2
    total = len(out) + len(present)

    def bound(confidence: float) -> float:
        least = float(_exact_limits(int(right), total, 1 - confidence)[0])
        return max(2 * float(ndtri(least)), 0.0)

    return bound(1 - (1 - _SHOWN) / lines), bound(_CERTAIN)
