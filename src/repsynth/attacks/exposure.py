"""From all runs to lines: what each attack found out about whom, and what that proves."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.calibrating import likelihood_ratios
from repsynth.attacks.campaign import STAMP, Campaign, Result, carry_out_all
from repsynth.attacks.closed_form import Best, best_attack
from repsynth.attacks.guesses import KINDS
from repsynth.attacks.intervals import (
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
from repsynth.attacks.person_victims import choose_persons
from repsynth.attacks.victims import choose_victims
from repsynth.errors import ConfigError
from repsynth.evaluation.nearest import DECILES
from repsynth.planning.plan import Plan, make_plan
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.shown import fixed_at_most, percent_at_least, percent_at_most
from repsynth.scoring.weights import Uniform
from repsynth.storage.atomic import beside

REPS, UNIFORM, BARE = "reps", "uniform", "bare"
"""The plan, the same budget with uniform weights, and no noise worth speaking of."""

METHODS = (BARE, UNIFORM, REPS)
_NO_NOISE = 1e4  # as μ
BEST = "best possible"
ATTACKS = {
    "distance": "sees a synthetic table",
    "density ratio": "and people from outside, to compare with",
    "measured cells": "and knows what the model measures",
    "shadow runs, table": "and everybody but the targets, and runs the synthesizer with and without each",
    "shadow runs, release": "and sees the released numbers",
    "all others known": "and knows which other targets took part: the likelihood ratio itself",
    BEST: "what the account leaves to any attack, with the weights of the run held fixed",
}
"""What each attacker has, on top of the one before."""

_SHADOW_TABLE = ("distance", "closeness", "cells")
_SHADOW_RELEASE = ("stage one", "stage two", "decoded", "likelihood")
_FAMILY = 0.99
"""The confidence that no line proves more than is true."""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One attack on the targets of one decile of outlyingness, or on all of them (decile None)."""

    method: str
    attack: str
    decile: int | None
    targets: int
    trials: int
    area: Estimate
    advantage: Estimate
    rate_at_1: Estimate | None
    rate_at_01: Estimate | None
    proven_epsilon: float | None
    """The ε that the attack proves, at a confidence for all lines together; None where there was no attack."""
    claimed_epsilon: float
    """The largest that the account says of any of these targets, at the weights of the run."""
    exceeded: bool
    verdict: str


class Guess(msgspec.Struct, frozen=True, kw_only=True):
    """Guesses about members against the same about people from outside."""

    method: str
    kind: str
    decile: int | None
    members: Estimate
    others: Estimate
    excess: Estimate
    """How much of what could be guessed beyond the others was guessed."""
    verdict: str


class Exposure(msgspec.Struct, frozen=True, kw_only=True):
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
    lines: list[Line]
    guesses: list[Guess]
    notes: tuple[str, ...]
    exceeded: bool
    unit: str = "records"
    """What `rows` and `targets` count: records or persons."""


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
    on_notes: Callable[[Sequence[str]], None] = lambda notes: None,
    **progress: Any,
) -> Exposure:
    """Attack a plan and the same budget with uniform weights; everything is kept in the folder, which is PRIVATE.

    With `power`, attacks are also made where there is no noise: one that finds nobody there proves nothing.

    >>> import tempfile
    >>> from repsynth import datasets
    >>> from repsynth.planning.settings import Settings
    >>> sim = datasets.load("sim")
    >>> plan = make_plan(sim.schema, Settings.of(epsilon=1.0, model="naive-bayes"))
    >>> train, holdout = sim.table.slice(0, 500), sim.table.slice(3000, 300)
    >>> found = attack(plan, train, holdout, Path(tempfile.mkdtemp()) / "attack", targets=10, runs=8)
    >>> found.targets, found.exceeded
    (10, False)
    """
    choose = choose_victims if plan.schema.person is None else choose_persons
    victims = choose(table, holdout, plan.schema, targets=targets, seed=seed)
    on_notes(victims.notes)
    campaign = Campaign(methods_of(plan, power=power), victims, runs, seed)
    results = carry_out_all(campaign, folder, jobs=jobs, **progress)
    found = summarise(campaign, results)
    with beside(folder / "exposure.json", private=True, replace=True) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(found)))
    return found


def methods_of(plan: Plan, *, power: bool = False) -> dict[str, Plan]:
    """The plan, the same budget with uniform weights and, to show the attacks' power, hardly any noise."""
    if power:
        if plan.training is not None:
            raise ConfigError(
                "a training cannot be accounted for without noise; give --epsilon 100 instead of --power"
            )
        uniform = methods_of(plan)[UNIFORM].settings
        bare = msgspec.structs.replace(uniform, epsilon=None, rho=None, mu=_NO_NOISE)
        return {BARE: make_plan(plan.schema, bare), **methods_of(plan)}
    if isinstance(plan.settings.weights, Uniform):
        return {UNIFORM: plan}
    settings = msgspec.structs.replace(plan.settings, weights=Uniform(), outlier_epsilon=None, max_lost_mass=None)
    return {UNIFORM: make_plan(plan.schema, settings), REPS: plan}


def summarise(campaign: Campaign, results: dict[str, list[Result]]) -> Exposure:
    groups = list(_groups(campaign.victims.deciles))
    attacks = {method: _attacks(found, campaign.victims.deciles) for method, found in results.items()}
    if (
        next(iter(campaign.plans.values())).training is not None
    ):  # its rounds are not watched, so this is not the ratio
        attacks = {method: _without(found, "all others known") for method, found in attacks.items()}
    count = sum(len(found) for found in attacks.values()) * len(groups)
    lines = []
    for method, found in attacks.items():
        influence = _stacked(results[method], "influence")
        present = _stacked(results[method], "present").astype(bool)
        for decile, chosen in groups:
            claim = _Claim.of(campaign.plans[method], influence[:, chosen], lines=count)
            for name, scores in found.items():
                trials = Trials.of(scores[:, chosen], present[:, chosen])
                if min(trials.counts) > 0:
                    lines.append(_line(method, name, decile, int(chosen.sum()), trials, claim))
            lines.append(claim.line(method, decile, int(chosen.sum())))
    guesses = [guess for method, found in results.items() for guess in _guesses(method, found)]
    plan = list(campaign.plans.values())[-1]
    return Exposure(
        note=STAMP,
        publishable=False,
        model=plan.model.name,
        epsilon=plan.budget.epsilon,
        delta=plan.delta,
        unit="records" if plan.schema.person is None else "persons",
        rows=campaign.victims.people,
        targets=campaign.victims.owners.count,
        runs=campaign.runs,
        confidence=CONFIDENCE,
        lines=lines,
        guesses=guesses,
        notes=campaign.victims.notes,
        exceeded=any(line.exceeded for line in lines),
    )


def _groups(deciles: Ints) -> Iterator[tuple[int | None, Bools]]:
    yield None, np.ones(len(deciles), dtype=bool)
    for decile in range(DECILES):
        if np.any(deciles == decile):
            yield decile + 1, deciles == decile


def _attacks(results: list[Result], deciles: Ints) -> dict[str, Floats]:
    """The score of each attack: (runs, targets)."""
    present = _stacked(results, "present").astype(bool)
    found = {name: _stacked(results, name) for name in ATTACKS if all(name in result for result in results)}
    for name, parts in (("shadow runs, table", _SHADOW_TABLE), ("shadow runs, release", _SHADOW_RELEASE)):
        there = [part for part in parts if all(part in result for result in results)]
        found[name] = likelihood_ratios([_stacked(results, part) for part in there], present, deciles)
    found["all others known"] = _stacked(results, "known")
    return {name: found[name] for name in ATTACKS if name in found}


def _without(attacks: dict[str, Floats], name: str) -> dict[str, Floats]:
    return {each: scores for each, scores in attacks.items() if each != name}


def _stacked(results: list[Result], name: str) -> Floats:
    return np.stack([np.asarray(result[name], dtype=np.float64) for result in results])


@dataclass(frozen=True)
class _Claim:
    """What the account says of some targets, and how sure a line must be to refute it."""

    plan: Plan
    influence: Floats
    confidence: float

    @classmethod
    def of(cls, plan: Plan, influence: Floats, *, lines: int) -> "_Claim":
        return cls(plan, influence, 1 - (1 - _FAMILY) / max(lines, 1))

    @cached_property
    def best(self) -> Best:
        return best_attack(self.plan.loss, self.influence, self.plan.delta)

    def line(self, method: str, decile: int | None, targets: int) -> Line:
        best = self.best
        area, gain, at_1, at_01 = (
            Estimate(value, value, value) for value in (best.area, best.advantage, best.rate_at_1, best.rate_at_01)
        )
        return Line(
            method=method, attack=BEST, decile=decile, targets=targets, trials=0,
            area=area, advantage=gain, rate_at_1=at_1, rate_at_01=at_01,
            proven_epsilon=None, claimed_epsilon=best.largest_epsilon, exceeded=False,
            verdict=f"at most {percent_at_most(best.advantage, 0)} above guessing",
        )  # fmt: skip

    def judge(self, trials: Trials) -> tuple[float, float, bool]:
        """The ε that is proven, the ε that is claimed, and whether the former is more."""
        rates, delta, claimed = proven_rates(trials, self.confidence), self.plan.delta, self.best.largest_epsilon
        if self.best.largest_mu is None:
            proven = proven_epsilon(rates, delta)
            return proven, claimed, proven > claimed * (1 + 1e-9)
        mu = proven_mu(rates)
        proven = float(epsilon_of(mu, delta)) if mu > 0 else 0.0
        return proven, claimed, mu > self.best.largest_mu * (1 + 1e-9)


def _line(method: str, name: str, decile: int | None, targets: int, trials: Trials, claim: _Claim) -> Line:
    found = area(trials)
    proven, claimed, exceeded = claim.judge(trials)
    return Line(
        method=method, attack=name, decile=decile, targets=targets, trials=len(trials.scores),
        area=found, advantage=advantage(trials),
        rate_at_1=rate_at(trials, 0.01), rate_at_01=rate_at(trials, 0.001),
        proven_epsilon=proven, claimed_epsilon=claimed, exceeded=exceeded,
        verdict="PROVES MORE THAN IS CLAIMED" if exceeded else verdict_of(found),
    )  # fmt: skip


def verdict_of(found: Estimate) -> str:
    """What an area says, in words.

    >>> verdict_of(Estimate(0.51, 0.49, 0.53))
    'no better than guessing (≤ 0.53)'
    >>> verdict_of(Estimate(0.96, 0.95, 0.97))
    'finds nearly all'
    """
    if found.low <= 0.5:
        return f"no better than guessing (≤ {fixed_at_most(max(found.high, 0.5), 2)})"
    if found.low >= 0.9:
        return "finds nearly all"
    return (
        "finds many" if found.low >= 0.7 else "finds some" if found.low >= 0.55 else "hardly better than guessing"
    )


def _guesses(method: str, results: list[Result]) -> Iterator[Guess]:
    """Right guesses over the runs in which they were made."""
    made = [result["guesses"] for result in results if "guesses" in result]
    if not made:
        return
    counts = np.sum(made, axis=0)  # (kinds, sides, deciles, right and all)
    for k, kind in enumerate(KINDS):
        for decile in (None, *range(1, DECILES + 1)):
            hits, trials = _side_counts(counts[k], decile, once=kind == KINDS[0])
            if min(trials) == 0:
                continue
            sides = [clopper_pearson(float(h), float(n), CONFIDENCE) for h, n in zip(hits, trials, strict=True)]
            yield _guess(method, kind, decile, *sides)


def _side_counts(counts: Ints, decile: int | None, *, once: bool) -> tuple[list[int], list[int]]:
    """Right guesses and all guesses of members and others. A statement counts `once` in each decile, so that all
    deciles together have no more of them than one."""
    chosen = counts if decile is None else counts[:, decile - 1 : decile]
    trials = chosen[:, :, 1].max(axis=1) if once else chosen[:, :, 1].sum(axis=1)
    return chosen[:, :, 0].sum(axis=1).tolist(), trials.tolist()


def _guess(method: str, kind: str, decile: int | None, members: Estimate, others: Estimate) -> Guess:
    """The excess and its interval, by the method of variance estimates recovered (Newcombe)."""
    room = max(1 - others.value, 1e-9)
    value = (members.value - others.value) / room
    down = np.hypot(members.value - members.low, others.high - others.value) / room
    up = np.hypot(members.high - members.value, others.value - others.low) / room
    excess = Estimate(value, max(value - float(down), -1.0), min(value + float(up), 1.0))
    if excess.low > 0:
        verdict = f"members more often (≥ {percent_at_least(excess.low)})"
    else:
        verdict = f"no more than others (≤ {percent_at_most(max(excess.high, 0.0))})"
    return Guess(
        method=method, kind=kind, decile=decile, members=members, others=others, excess=excess, verdict=verdict
    )
