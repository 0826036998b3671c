"""Judge all runs of a campaign: what each attack found out about whom, what that proves, and the best attack."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.special import ndtr

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.anonymeter import KINDS
from repsynth.attacks.lira import likelihood_ratios
from repsynth.attacks.statistics import (
    CONFIDENCE,
    Estimate,
    Trials,
    advantage,
    area,
    clopper_pearson,
    proven_epsilon,
    proven_mu,
    proven_rates,
    rate_at,
)
from repsynth.attacks.targets import choose_victims
from repsynth.attacks.traced_run import STAMP, Campaign, Result, carry_out_all
from repsynth.errors import ConfigError
from repsynth.planning.plan import Plan, make_plan
from repsynth.privacy.formatting import Summarised, Summary, fixed_lower, fixed_upper, percent_lower, percent_upper
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.loss import Loss
from repsynth.scoring.weights import Uniform
from repsynth.storage import beside

REPS, UNIFORM, BARE = "reps", "uniform", "bare"
"""The plan, the same budget with uniform weights, and hardly any noise."""

_NO_NOISE = 1e4  # as μ
BEST, KNOWN = "best possible", "all others known"
ATTACKS = {
    "distance": "sees a synthetic table",
    "density ratio": "and people from outside, to compare with",
    "measured cells": "and knows what the model measures",
    "shadow runs, table": "and everybody but the targets, and runs the synthesizer with and without each",
    "shadow runs, release": "and sees the released numbers",
    KNOWN: "and knows which other targets took part: the likelihood ratio itself",
    BEST: "what the account leaves to any attack, with the weights of the run held fixed",
}
"""What each attacker has, on top of the one before."""

_SCORES = {
    "shadow runs, table": ("distance", "closeness", "cells"),
    "shadow runs, release": ("stage one", "stage two", "decoded", "likelihood"),
    KNOWN: ("known",),
}
"""The scores of a run that an attack uses, where it is not the one of its name."""
_FAMILY = 0.99
"""The confidence that no line proves more than is true."""
_INFLUENCES = 16  # that the loss of a training is worked out for
_ALARMS = np.concatenate([np.geomspace(1e-6, 0.01, 9), np.linspace(0.02, 0.98, 25)])
_NOTABLE = 0.6
"""An attack with this AUC should be noticed."""
_POINTS = 200  # quantiles of μ over all records


class AttackResult(msgspec.Struct, frozen=True, kw_only=True):
    """One attack on the targets of one decile of outlyingness, or on all of them (decile None)."""

    method: str
    attack: str
    decile: int | None
    targets: int
    trials: int
    area: Estimate
    advantage: Estimate
    rate_at_1: Estimate | None
    """The true positive rate at 1 % false positives; None where there are too few trials."""
    proven_epsilon: float | None
    """The ε that the attack proves, at a confidence for all lines together; None where there was no attack."""
    claimed_epsilon: float
    """The largest that the account says of any of these targets, at the weights of the run."""
    exceeded: bool
    verdict: str

    @property
    def shown_area(self) -> str:
        """The AUC with its interval, rounded to the safe side; of the best attack, an upper bound."""
        if self.attack == BEST:
            return fixed_upper(self.area.value, 2)
        return f"{self.area.value:.2f} [{fixed_lower(self.area.low, 2)}, {fixed_upper(self.area.high, 2)}]"


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses about members, and the same guesses about people from outside."""

    method: str
    kind: str
    members: Estimate
    others: Estimate
    excess: Estimate
    """How much of what could be guessed beyond the others was guessed."""
    verdict: str


class Exposure(Summarised, msgspec.Struct, frozen=True, kw_only=True):
    """Who could still be found. PRIVATE."""

    note: str
    publishable: bool
    model: str
    epsilon: float
    delta: float
    rows: int
    targets: int
    runs: int
    confidence: float
    lines: list[AttackResult]
    guesses: list[Guess]
    notes: tuple[str, ...]
    exceeded: bool
    unit: str = "records"
    """What `rows` and `targets` count: records or persons."""

    @property
    def planned(self) -> list[AttackResult]:
        """The lines of the plan itself, without those of other weights or less noise."""
        method = REPS if any(line.method == REPS for line in self.lines) else UNIFORM
        return [line for line in self.lines if line.method == method]

    @property
    def noticeable(self) -> float:
        """The smallest AUC that an attack on all targets would have shown to be better than guessing."""
        attacks = [line.area for line in self.planned if line.decile is None and line.attack != BEST]
        return min((0.5 + area.value - area.low for area in attacks), default=1.0)

    @property
    def runs_needed(self) -> int:
        """The runs with which an AUC of 0.6 would be noticed, as a power of two."""
        more = self.runs * ((self.noticeable - 0.5) / (_NOTABLE - 0.5)) ** 2
        return int(2 ** np.ceil(np.log2(max(more, 2))))

    @property
    def summary(self) -> Summary:
        """Whether the attacks could have noticed anything, and what they found."""
        everybody = {line.attack: line for line in self.planned if line.decile is None}
        attacks = [line for line in everybody.values() if line.attack != BEST]
        best, limit = max(attacks, key=lambda line: line.area.low), everybody[BEST].area.value
        noticeable = fixed_upper(self.noticeable, 2)
        bare = [line for line in self.lines if line.method == BARE and line.attack != BEST]
        if self.exceeded:
            answer = "An attack proves more than is claimed. Do not hand out this release."
        elif best.area.low > 0.5:
            answer = f"An attack does better than guessing: {best.attack}."
        elif bare and all(line.area.low <= 0.5 for line in bare):
            answer = "These attacks find nobody even without noise, so they prove nothing."
        elif self.noticeable > _NOTABLE:
            answer = f"Too few runs: only an AUC above {noticeable} would have been noticed; "
            answer += f"use --runs {self.runs_needed}."
        else:
            answer = f"No attack did better than guessing. An AUC above {noticeable} would have been noticed."
        if self.noticeable > limit and not self.exceeded and best.area.low <= 0.5:
            answer += f" Even the best possible attack has an AUC of {fixed_upper(limit, 2)} at most."
        facts = (
            (
                "Best attack here",
                f"AUC {best.shown_area} at 95 %: {best.attack}",
            ),
            ("Best attack possible", f"AUC {fixed_upper(limit, 2)}; guessing: 0.50"),
            ("Targets", f"{self.targets:,} of {self.rows:,} {self.unit}, in half of {self.runs:,} runs each"),
        )
        return Summary(answer, facts)


def attack(
    plan: Plan,
    table: Any,
    holdout: Any,
    folder: Path,
    *,
    targets: int = 100,
    runs: int = 64,
    jobs: int = 1,
    seed: int = 0,
    power: bool = False,
    **progress: Any,
) -> Exposure:
    """Attack a plan, and the same budget with uniform weights. Everything is kept in the folder, which is PRIVATE.

    With `power`, the same attacks are also made with hardly any noise: one that finds nobody there proves nothing.
    """
    victims = choose_victims(table, holdout, plan.schema, targets=targets, seed=seed)
    campaign = Campaign(methods_of(plan, power=power), victims, runs, seed)
    found = summarise(campaign, carry_out_all(campaign, folder, jobs=jobs, **progress))
    with beside(folder / "exposure.json", private=True, replace=True) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return found


def methods_of(plan: Plan, *, power: bool = False) -> dict[str, Plan]:
    """Return the plan, the same budget with uniform weights and, with `power`, hardly any noise."""
    settings = msgspec.structs.replace(plan.settings, weights=Uniform(), outlier_epsilon=None, max_lost_mass=None)
    methods = {}
    if power:
        if plan.training is not None:
            raise ConfigError(
                "a training cannot be accounted for without noise; give --epsilon 100 instead of --power"
            )
        bare = msgspec.structs.replace(settings, epsilon=None, rho=None, mu=_NO_NOISE)
        methods[BARE] = make_plan(plan.schema, bare)
    if isinstance(plan.settings.weights, Uniform):
        return methods | {UNIFORM: plan}
    return methods | {UNIFORM: make_plan(plan.schema, settings), REPS: plan}


def summarise(campaign: Campaign, results: dict[str, list[Result]]) -> Exposure:
    plan, victims = list(campaign.plans.values())[-1], campaign.victims
    groups = list(_groups(victims.deciles))
    attacks = {method: _attacks(found, victims.deciles) for method, found in results.items()}
    if plan.training is not None:  # its rounds are not watched, so this is not the ratio
        for found in attacks.values():
            found.pop(KNOWN, None)
    count = sum(len(found) for found in attacks.values()) * len(groups)
    confidence = 1 - (1 - _FAMILY) / max(count, 1)
    lines = []
    for method, found in attacks.items():
        made_by = campaign.plans[method]
        influence = _stacked(results[method], "influence")
        present = _stacked(results[method], "present").astype(bool)
        for decile, chosen in groups:
            best = best_attack(made_by.loss, influence[:, chosen], made_by.delta)
            who = {"method": method, "decile": decile, "targets": int(chosen.sum())}
            for name, scores in found.items():
                trials = Trials.of(scores[:, chosen], present[:, chosen])
                if min(trials.counts) > 0:
                    lines.append(_line(name, trials, best, made_by.delta, confidence, **who))
            lines.append(_best_line(best, **who))
    guesses = [guess for method, found in results.items() for guess in _guesses(method, found)]
    return Exposure(
        note=STAMP,
        publishable=False,
        model=plan.model.name,
        epsilon=plan.budget.epsilon,
        delta=plan.delta,
        unit="records" if plan.schema.person is None else "persons",
        rows=victims.people,
        targets=victims.owners.count,
        runs=campaign.runs,
        confidence=CONFIDENCE,
        lines=lines,
        guesses=guesses,
        notes=victims.notes,
        exceeded=any(line.exceeded for line in lines),
    )


def _groups(deciles: Ints) -> Iterator[tuple[int | None, Bools]]:
    yield None, np.ones(len(deciles), dtype=bool)
    for decile in np.unique(deciles):
        yield int(decile) + 1, deciles == decile


def _attacks(results: list[Result], deciles: Ints) -> dict[str, Floats]:
    """Return the score of each attack: (runs, targets)."""
    present, found = _stacked(results, "present").astype(bool), {}
    for name in ATTACKS:
        names = [part for part in _SCORES.get(name, (name,)) if all(part in result for result in results)]
        scores = [_stacked(results, part) for part in names]
        if scores:
            found[name] = likelihood_ratios(scores, present, deciles) if name.startswith("shadow") else scores[0]
    return found


def _stacked(results: list[Result], name: str) -> Floats:
    return np.stack([np.asarray(result[name], dtype=np.float64) for result in results])


def _line(name: str, trials: Trials, best: "Best", delta: float, confidence: float, **who: Any) -> AttackResult:
    found, rates = area(trials), proven_rates(trials, confidence)
    if best.largest_mu is None:
        proven = proven_epsilon(rates, delta)
        exceeded = proven > best.largest_epsilon * (1 + 1e-9)
    else:
        mu = proven_mu(rates)
        proven = float(epsilon_of(mu, delta)) if mu > 0 else 0.0
        exceeded = mu > best.largest_mu * (1 + 1e-9)
    return AttackResult(
        attack=name,
        trials=len(trials.scores),
        area=found,
        advantage=advantage(trials),
        rate_at_1=rate_at(trials, 0.01),
        proven_epsilon=proven,
        claimed_epsilon=best.largest_epsilon,
        exceeded=exceeded,
        verdict="PROVES MORE THAN IS CLAIMED" if exceeded else verdict_of(found),
        **who,
    )


def _best_line(best: "Best", **who: Any) -> AttackResult:
    area, gain, rate = (Estimate(value, value, value) for value in (best.area, best.advantage, best.rate_at_1))
    return AttackResult(
        attack=BEST,
        trials=0,
        area=area,
        advantage=gain,
        rate_at_1=rate,
        proven_epsilon=None,
        claimed_epsilon=best.largest_epsilon,
        exceeded=False,
        verdict=f"at most {percent_upper(best.advantage, 0)} above guessing",
        **who,
    )


@dataclass(frozen=True)
class Best:
    """The best attack on records of some influences, and the largest ε of any of them, with its μ."""

    area: float
    advantage: float
    rate_at_1: float
    largest_epsilon: float
    largest_mu: float | None


def best_attack(loss: Loss, influence: Floats, delta: float) -> Best:
    """Return the best that any attack can do on all these records together, by the account: the likelihood ratio.
    The influence on a training is rounded up to a sixteenth."""
    influence = np.clip(np.asarray(influence, dtype=np.float64).ravel(), 0.0, 1.0)
    if loss.trainings:
        return _of_training(loss, influence, delta)
    mu = loss.mu_at(influence)
    largest = float(mu.max())
    some = np.quantile(mu, (np.arange(_POINTS) + 0.5) / _POINTS)
    return Best(
        area=float(ndtr(np.hypot(some[:, None], some[None]) / 2).mean()),
        advantage=float(loss.advantage_at(influence).mean()),
        rate_at_1=_pooled_rate(some, 0.01),
        largest_epsilon=float(epsilon_of(largest, delta)),
        largest_mu=largest,
    )


def _pooled_rate(mu: Floats, false_alarms: float) -> float:
    """The true positive rate of a common threshold on log-likelihood ratios, which are N(± μ²/2, μ²)."""
    low, high = -(float(mu.max()) ** 2) - 1, float(mu.max()) ** 2 + 40 * float(mu.max()) + 1
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if ndtr(-middle / mu - mu / 2).mean() > false_alarms else (low, middle)
    return float(ndtr(-high / mu + mu / 2).mean())


def _of_training(loss: Loss, influence: Floats, delta: float) -> Best:
    """The common curve is the lower envelope of lines: at each slope every record does what is best there."""
    steps, counts = np.unique(np.ceil(influence * _INFLUENCES) / _INFLUENCES, return_counts=True)
    curves = np.array([[loss.at(float(s)).true_positive_rate(float(x)) for x in _ALARMS] for s in steps])
    slopes = np.geomspace(1e-3, 1e6, 400)
    gains = np.maximum((curves[:, None] - slopes[:, None] * _ALARMS).max(axis=2), 0.0)  # (steps, slopes)
    mean = np.average(np.maximum(gains, 1 - slopes), axis=0, weights=counts)

    def rate(false_alarms: float) -> float:
        return min(float((mean + slopes * false_alarms).min()), 1.0)

    grid = np.linspace(0.0, 1.0, 1001)
    return Best(
        area=float(np.trapezoid([rate(x) for x in grid], grid)),
        advantage=float(np.average(loss.advantage_at(steps), weights=counts)),
        rate_at_1=rate(0.01),
        largest_epsilon=float(loss.epsilon_at(float(steps[-1]), delta)),
        largest_mu=None,
    )


def verdict_of(found: Estimate) -> str:
    """What an area says, in words.

    >>> verdict_of(Estimate(0.51, 0.49, 0.53))
    'no better than guessing (≤ 0.53)'
    >>> verdict_of(Estimate(0.96, 0.95, 0.97))
    'finds nearly all'
    """
    if found.low <= 0.5:
        return f"no better than guessing (≤ {fixed_upper(max(found.high, 0.5), 2)})"
    if found.low >= 0.9:
        return "finds nearly all"
    return (
        "finds many" if found.low >= 0.7 else "finds some" if found.low >= 0.55 else "hardly better than guessing"
    )


def _guesses(method: str, results: list[Result]) -> Iterator[Guess]:
    """Compare right guesses about members and others, over the runs in which they were made. The interval of the
    excess is by the method of variance estimates recovered (Newcombe)."""
    made = [result["guesses"] for result in results if "guesses" in result]
    for kind, counts in zip(KINDS, np.sum(made, axis=0) if made else (), strict=False):
        if counts[:, 1].min() == 0:
            continue
        members, others = (clopper_pearson(float(h), float(n), CONFIDENCE) for h, n in counts)
        room = max(1 - others.value, 1e-9)
        value = (members.value - others.value) / room
        down = float(np.hypot(members.value - members.low, others.high - others.value)) / room
        up = float(np.hypot(members.high - members.value, others.value - others.low)) / room
        excess = Estimate(value, max(value - down, -1.0), min(value + up, 1.0))
        if excess.low > 0:
            verdict = f"members more often (≥ {percent_lower(excess.low)})"
        else:
            verdict = f"no more than others (≤ {percent_upper(max(excess.high, 0.0))})"
        yield Guess(method=method, kind=kind, members=members, others=others, excess=excess, verdict=verdict)
