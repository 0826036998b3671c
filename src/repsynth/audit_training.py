"""Attacks on a training: on its rounds, through the door that they go through, and on what a record adds."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repsynth.cost import Cost
from repsynth.encode import Records
from repsynth.findings import Finding, claimed_mu
from repsynth.measure import Account
from repsynth.models.training import Recipe, State, Training
from repsynth.noise import SampledEvent
from repsynth.plan import Plan
from repsynth.release import Release

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]


def contribution(release: Release, record: Records, influence: float, target: str) -> list[Finding]:
    """What the record adds to a round, at the first and at the released parameters, against what is claimed: the
    norm is known exactly, so there is nothing to estimate."""
    assert release.trained is not None
    network = release.trained.network
    event = release.training
    plain = Recipe(1.0, 1.0, 1.0, np.ones(int(network.ends[-1])))
    for parameters in (np.zeros(network.size), release.trained.parameters):
        for recipe in (Recipe.of(network, event), plain):
            state = State(parameters, parameters, parameters)
            added = Training(network, event, recipe, state).total(network.parts(record))
            norm = math.sqrt(float(np.sum(added.astype(np.float64) ** 2)))
            if norm > influence * event.sensitivity * (1 + 1e-9):
                claimed, found = (claimed_mu(Cost.of([event]).at(min(n, 1.0))) for n in (influence, 1.0))
                delta = release.settings.budget.delta
                return [Finding(target, "contribution", "training", claimed, found, max(found, 1e3), delta)]
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
    influence allows to the same entry in every round: no gradient tells more."""
    assert plan.training is not None
    budget = plan.settings.budget
    results = []
    for value in (0, math.floor(influence * plan.training.sensitivity)):
        alone = _Alone(runs, value, math.floor(influence * plan.training.sensitivity), plan.training)
        Account(budget.mu, delta=budget.delta).train(alone, [Records(rows=runs, codes={})], plan.training)
        results.append(alone.ratios)
    return results[0], results[1]


@dataclass
class _Alone:
    """As many trainings at once as there are records: each record adds to an entry of its own. Whether it takes
    part in a round is drawn for each, as is the noise of each entry."""

    runs: int
    value: int
    expected: int
    event: SampledEvent
    name: str = "training"

    def __post_init__(self) -> None:
        self.sensitivity = float(self.value)
        self.ratios = np.zeros(self.runs)

    def parts(self, records: Records) -> Int32s:
        return np.arange(records.rows, dtype=np.int32)[:, None]

    def total(self, parts: Int32s) -> Ints:
        total = np.zeros(self.runs, dtype=np.int64)
        total[parts[:, 0]] = self.value
        return total

    def advance(self, noisy: Ints) -> None:
        tells = (noisy - self.expected / 2) * (self.expected / self.event.sigma**2)
        chance = self.event.rate
        self.ratios += np.logaddexp(math.log1p(-chance) if chance < 1 else -math.inf, math.log(chance) + tells)
