"""Attacks on a training: on its rounds, through the door that they go through, and on what a record adds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.auditing.bounds import Finding, bounds_of, claimed_mu
from repsynth.auditing.targets import Target
from repsynth.data.records import UNITS, Records, Whose
from repsynth.engines.local import LocalEngine
from repsynth.mechanism.kernels import Rounds
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.loss import Loss


def attack_training(
    plan: Plan, rounds: Rounds, target: Target, influence: float, runs: int, lines: int = 1
) -> tuple[list[Finding], tuple[Floats, Floats]]:
    """What the record adds, and the likelihood-ratio test on all rounds; the ratios of the latter."""
    assert plan.training is not None
    alone = Loss.of([plan.training]).at(influence)
    ratio = training_ratios(plan, influence, runs)
    bounds = bounds_of(*threshold_learnt(*ratio), lines)
    name = plan.training.name
    found = Finding(target.name, "white-box", name, claimed_mu(alone), *bounds, plan.delta, claim=alone)
    return [*contribution(plan, rounds, target, influence), found], ratio


def contribution(plan: Plan, rounds: Rounds, target: Target, influence: float) -> list[Finding]:
    """What the record adds to some rounds, against what is claimed: the norm is known exactly, not estimated."""
    assert plan.training is not None
    alone = LocalEngine([target.record], person=plan.schema.person)
    held = alone.held(rounds.parts)
    for kernel in rounds.examples():
        added = held.sum(kernel) / alone.units
        norm = math.sqrt(float(np.sum(added**2)))
        if norm > influence * plan.training.sensitivity * (1 + 1e-9):
            claimed, found = (claimed_mu(Loss.of([plan.training]).at(n)) for n in (influence, 1.0))
            name = plan.training.name
            return [Finding(target.name, "contribution", name, claimed, found, max(found, 1e3), plan.delta)]
    return []


def threshold_learnt(out: Floats, present: Floats) -> tuple[Floats, Floats]:
    """The ratios of half of the runs, against the threshold that is best on the other half: where the noise is not
    what was claimed, 0 is not."""
    half = len(out) // 2
    levels = np.quantile(np.concatenate([out[:half], present[:half]]), np.linspace(0, 1, 201))
    right = np.searchsorted(np.sort(out[:half]), levels) + half - np.searchsorted(np.sort(present[:half]), levels)
    best = levels[int(np.argmax(right))]
    return out[half:] - best, present[half:] - best


def training_ratios(plan: Plan, influence: float, runs: int) -> tuple[Floats, Floats]:
    """Log-likelihood ratios of a whole training, drawn without and with a record that adds as much as its
    influence allows to the same entry in every round: no gradient tells more. Where several rows may be one
    person's, it is a person with two rows, each of which counts half and adds all that a person may: they take
    part together or not at all, and add as much as one row would that counts in full."""
    assert plan.training is not None
    person, results = plan.schema.person, []
    table = Records(rows=runs, codes={})
    if person is not None:
        whose = Whose(np.repeat(np.arange(runs), 2), np.full(2 * runs, UNITS // 2))
        table = Records(rows=2 * runs, codes={}, whose=whose)
    for value in (0, math.floor(influence * plan.training.sensitivity)):
        expected = math.floor(influence * plan.training.sensitivity)
        alone = _Alone(runs, value, expected, plan.training, plan.schema.rows_per_person)
        engine = LocalEngine([table], person=person)
        Meter(engine, plan.scale, delta=plan.delta).train(alone, plan.training)
        results.append(alone.ratios)
    return results[0], results[1]


@dataclass
class _Alone:
    """As many trainings at once as there are persons: each adds to an entry of its own, with one row or with
    several. Who takes part in a round is drawn for each person, and the noise for each entry."""

    runs: int
    value: int
    expected: int
    event: SampledEvent
    rows_per_person: int
    name: str = "gradients"
    unit: int = 1
    weighted: bool = True

    def __post_init__(self) -> None:
        self.sensitivity = self.value / self.rows_per_person
        self.ratios = np.zeros(self.runs)

    def parts(self, records: Records) -> Int32s:
        places = np.arange(records.rows) if records.whose is None else records.whose.places
        return places.astype(np.int32)[:, None]

    def kernel(self) -> "_Alone":
        return self

    def examples(self) -> "Iterator[_Alone]":
        yield self

    def total(self, parts: Int32s) -> Ints:
        return np.bincount(parts[:, 0], minlength=self.runs) * self.value

    def advance(self, noisy: Ints) -> None:
        tells = (noisy - self.expected / 2) * (self.expected / self.event.sigma**2)
        chance = self.event.rate
        self.ratios += np.logaddexp(math.log1p(-chance) if chance < 1 else -math.inf, math.log(chance) + tells)
