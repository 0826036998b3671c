"""The attacker knows everything but the noise and sees the noisy results: the likelihood ratio is the best test.

Each measurement of the plan is attacked alone and all together, on what the code computes and through the door
that every measurement goes through, with the functions that a first run released held fixed.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import log_softmax

from repsynth.arrays import Floats, Ints
from repsynth.auditing.bounds import Finding, bounds_of, claimed_mu
from repsynth.auditing.targets import Target
from repsynth.auditing.training import attack_training, threshold_learnt
from repsynth.curator.guarantee import ETA_SHARE, guaranteed_weights
from repsynth.data.records import UNITS, Records, Whose
from repsynth.engines.local import LocalEngine
from repsynth.mechanism.kernels import OUT, Chosen, Rounds, Statistic
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan
from repsynth.privacy.events import MU_PER_ETA, GaussianEvent
from repsynth.privacy.gaussian import compose
from repsynth.release.release import Release
from repsynth.schema import Person

Ratios = tuple[Floats, Floats]
"""Log-likelihood ratios of what was drawn without the record, and with it."""

_AT_ONCE = 2_000_000  # noise draws in memory at a time
_CHOICES = 2000


def white_box(release: Release, target: Target, *, runs: int, lines: int = 1) -> list[Finding]:
    """The likelihood-ratio test on each measurement of a release's plan, and on all of them; part of an audit of
    so many `lines`."""
    plan, privacy = release.plan, release.privacy
    influence, engines = target.influence(release), target.engines(plan.schema)
    findings, ratios, claims = [], [], []
    for name, kernel in release.kernels().items():
        if name in plan.charges:
            charge = plan.charges[name]
            assert not isinstance(kernel, Rounds)
            ratio = _ratios(kernel, engines, charge.mu, runs)
            claims.append(charge.mu * (influence if charge.weighted else 1.0))
            bounds = bounds_of(*ratio, lines)
            findings.append(Finding(target.name, "white-box", name, claims[-1], *bounds, plan.delta))
        else:
            assert isinstance(kernel, Rounds)
            found, ratio = attack_training(plan, kernel, target, influence, runs, lines)
            findings += found
        ratios.append(ratio)
    without, present = (np.sum([ratio[side] for ratio in ratios], axis=0) for side in (0, 1))
    weights = guaranteed_weights(release, [target.others, target.record], eta=plan.delta * ETA_SHARE)
    weight = target.together(weights[target.others.rows :], plan.schema)
    guaranteed = claimed_mu(privacy.run_loss, weight)
    if plan.training is None:
        claim, whole = min(compose(claims), claimed_mu(privacy.run_loss, influence)), None
    else:
        whole = privacy.run_loss.at(influence)
        claim = claimed_mu(whole)
        without, present = threshold_learnt(without, present)
    bounds = bounds_of(without, present, lines)
    return [*findings, Finding(target.name, "white-box", "all", claim, *bounds, plan.delta, guaranteed, whole)]


def _ratios(
    kernel: Statistic | Chosen, engines: tuple[LocalEngine, LocalEngine], charge: float, runs: int
) -> Ratios:
    touched = kernel.choice if isinstance(kernel, Chosen) else kernel
    without, present = (side.sum(touched) for side in engines)
    if isinstance(kernel, Chosen):
        return _choice_ratios(kernel, engines[0], without, present, charge, runs)
    return _log_ratios(kernel, engines[0].person, without, present - without, charge, runs)


def check_noise(plan: Plan) -> list[Finding]:
    """Two draws that are the same prove that the noise can be predicted."""
    size = 64
    first, second = (_drawn("noise", 1.0, np.zeros(size, dtype=np.int64), 1e-6)[0] for _ in range(2))
    if not np.array_equal(first, second):
        return []
    return [Finding("any record", "repetition", "noise", plan.scale, 1e3, 1e3, plan.delta)]


def check_choices(plan: Plan, *, lines: int = 1) -> list[Finding]:
    """The exponential mechanism, through the door that every choice goes through, where it can tell most: four
    rounds between two candidates, whose utilities a record turns around. Drawn often at a charge of 1."""
    if not any(charge.choice for charge in plan.charges.values()):
        return []
    right: list[Floats] = []
    for present in (False, True):
        tie = _Tie(present)
        chosen = [Meter(LocalEngine([]), 1.001).choose(tie, mu=1.0) for _ in range(_CHOICES)]
        right.append(np.array([sum(1 if c % 2 == 0 else -1 for c in choice) for choice in chosen], dtype=float))
    return [Finding("any record", "white-box", "choice", 1.0, *bounds_of(right[0], right[1], lines), plan.delta)]


@dataclass(frozen=True)
class _Tie:
    """In each round a choice between two candidates that are one sensitivity apart, this or the other way."""

    present: bool
    name: str = "choice"
    rounds: int = 4
    unit: int = 2
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        return np.zeros(1, dtype=np.int64)

    def utilities(self, total: Ints, chosen: tuple[int, ...], *, units: int = 1) -> Ints:
        utilities = np.full(1 + 2 * self.rounds, OUT)
        utilities[1 + 2 * len(chosen) :][:2] = [1, -1] if self.present else [-1, 1]
        return utilities


def _choice_ratios(
    kernel: Chosen, engine: LocalEngine, without: Ints, present: Ints, charge: float, runs: int
) -> Ratios:
    """Log-likelihood ratios of choices, drawn without and with the record. Earlier choices are those made."""
    choice, chosen, units = kernel.choice, kernel.chosen, engine.units
    largest = choice.unit * units * engine.rows_per_person
    eta = charge / (MU_PER_ETA * math.sqrt(choice.rounds))
    generator = np.random.default_rng()
    ratios = np.zeros((2, runs))
    for k in range(min(len(chosen) + 1, choice.rounds)):
        tables = (choice.utilities(total, chosen[:k], units=units) for total in (without, present))
        logs = [log_softmax(utilities[utilities > OUT] * (eta / 2 / largest)) for utilities in tables]
        for side in (0, 1):
            drawn = generator.choice(len(logs[0]), runs, p=np.exp(logs[side]))
            ratios[side] += (logs[1] - logs[0])[drawn]
    return ratios[0], ratios[1]


def _log_ratios(
    statistic: Statistic, person: Person | None, without: Ints, difference: Ints, charge: float, runs: int
) -> Ratios:
    """Log-likelihood ratios of noisy outputs, drawn without and with the record. Entries in which the two
    tables agree tell nothing and are left out."""
    touched = np.flatnonzero(difference)
    units = UNITS if person else 1
    step, start_at = difference[touched] / units, without[touched] / units
    at_once = max(1, _AT_ONCE // max(len(touched), 1))
    results = []
    for present in (False, True):
        exact = without[touched] + difference[touched] * present
        parts = []
        for start in range(0, runs, at_once):
            copies = np.tile(exact, (min(at_once, runs - start), 1))
            noisy, sigma = _drawn(statistic.name, statistic.sensitivity, copies, charge, person)
            parts.append((noisy - (start_at + step / 2)) @ step / sigma**2)
        results.append(np.concatenate(parts))
    return results[0], results[1]


@dataclass(frozen=True)
class _Known:
    """A statistic whose exact sum is known, many times over."""

    name: str
    sensitivity: float
    values: Ints
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Ints:
        return self.values if records.rows else np.zeros_like(self.values)


def _drawn(
    name: str, sensitivity: float, values: Ints, charge: float, person: Person | None = None
) -> tuple[Ints, float]:
    """Noisy values as a run of this charge would release them, and the noise that it says it added. Those of
    persons are in units already."""
    whose = None if person is None else Whose(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    engine = LocalEngine([Records(rows=1, codes={}, whose=whose)], person=person)
    meter = Meter(engine, charge * (1 + 1e-9))
    noisy = meter.measure(_Known(name, sensitivity, values), mu=charge)
    (event,) = meter.events
    assert isinstance(event, GaussianEvent)
    return noisy, event.sigma
