"""Attack the mechanism on a table and its neighbour, and compare with the claims.

The attacker knows everything but the noise and sees the noisy statistics. The likelihood ratio is then the best
test, so the bound should come out close to the claim. Each measurement of the plan is attacked alone and all
together, on what the code computes and through the meter, with the functions that a first run released held
fixed. It does not see what a run chooses from data that it has not measured; replays on neighbours do.
What a release says it spent is compared with its plan, and noise must not repeat.

An attack that is right with probability p on a coin flip between the two tables proves μ ≥ 2 Φ⁻¹(p). A training
has no μ: there, μ is the one with the largest p that its account allows. `lower` is the bound at 95 % confidence
for all lines of the audit together (Bonferroni). A claim counts as exceeded where the bound of one line at
99.999 % is above it, so that a sound mechanism practically never fails. An audit of real data is PRIVATE.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax

from repsynth.arrays import Floats, Int32s, Ints
from repsynth.attacks.statistics import Finding, bounds_of, claimed_mu
from repsynth.attacks.targets import Target, targets_of
from repsynth.curator.guarantee import ETA_SHARE, guaranteed_weights
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.io.records import UNITS, Records, Whose, join
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import OUT, Chosen, Rounds, Statistic
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan
from repsynth.privacy.events import MU_PER_ETA, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import compose
from repsynth.privacy.loss import Loss
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Person

Ratios = tuple[Floats, Floats]
"""Log-likelihood ratios of what was drawn without the record, and with it."""

_AT_ONCE = 2_000_000  # noise draws in memory at a time
_CHOICES = 2000


def audit(
    plan: Plan, table: Any, *, runs: int = 100_000, on_target: Callable[[str], None] = lambda name: None
) -> Iterator[Finding]:
    """Attack the records that matter: the most and the least outlying, a planted canary, one with nothing but its
    label, and the canary alone in an otherwise empty table, which is as bad as it gets."""
    if runs < 100:
        raise ConfigError("an audit needs at least 100 runs; give --runs")
    source = open_source(table)
    release = run(plan, source)
    names = [column.name for column in plan.schema.learned]
    records = join(list(LocalEngine.open(source, plan.schema).per_record()), names)
    targets = list(targets_of(release, records))
    # Every measurement and all of them, of each target, and the choice that tells most.
    lines = len(targets) * (len(release.kernels()) + 1) + 1
    yield from check_account(plan, release)
    yield from check_noise(plan)
    yield from check_choices(plan, lines=lines)
    for target in targets:
        on_target(target.name)
        yield from white_box(release, target, runs=runs, lines=lines)


def check_account(plan: Plan, release: Release) -> list[Finding]:
    """Compare what the release says it spent with the plan: nothing more, and no planned charge left out."""
    planned = {name: charge.mu for name, charge in plan.charges.items()}
    weighted = {name for name, charge in plan.charges.items() if charge.weighted}
    # An event that is wrong about whether it is weighted is not a planned one.
    said = {
        event.name: event.mu
        for event in release.events
        if not isinstance(event, SampledEvent) and event.weighted == (event.name in weighted)
    }
    if plan.training is not None:
        trainings = tuple(event for event in release.events if isinstance(event, SampledEvent))
        said[plan.training.name] = claimed_mu(Loss(0.0, 0.0, trainings))
        planned[plan.training.name] = claimed_mu(Loss.of([plan.training]))
    findings = []
    for name, charge in planned.items():
        spent = said.get(name, 0.0)
        if not math.isclose(spent, charge, rel_tol=1e-6 if name in plan.charges else 1e-3):
            low, high = sorted((spent, charge))
            findings.append(Finding("release", "account", name, low, high, high, plan.delta))
    return findings


def check_noise(plan: Plan) -> list[Finding]:
    """Draw twice: two equal draws prove that the noise can be predicted."""
    first, second = (_drawn("noise", 1.0, np.zeros(64, dtype=np.int64), 1e-6)[0] for _ in range(2))
    if not np.array_equal(first, second):
        return []
    return [Finding("any record", "repetition", "noise", plan.scale, 1e3, 1e3, plan.delta)]


def check_choices(plan: Plan, *, lines: int = 1) -> list[Finding]:
    """Attack the exponential mechanism, through the meter, where it can tell most: four rounds between two
    candidates, whose utilities a record turns around. Drawn often at a charge of 1."""
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


def white_box(release: Release, target: Target, *, runs: int, lines: int = 1) -> list[Finding]:
    """Make the likelihood-ratio test on each measurement of a release's plan, and on all of them; part of an audit
    of so many `lines`."""
    plan, privacy = release.plan, release.privacy
    influence, engines = target.influence(release), target.engines(plan.schema)
    findings, ratios, claims = [], [], []
    for name, kernel in release.kernels().items():
        if isinstance(kernel, Rounds):
            assert plan.training is not None
            alone = Loss.of([plan.training]).at(influence)
            findings += contribution(plan, kernel, target, influence)
            ratio = training_ratios(plan, influence, runs)
            bounds, claimed = bounds_of(*threshold_learnt(*ratio), lines), claimed_mu(alone)
            findings.append(
                Finding(target.name, "white-box", plan.training.name, claimed, *bounds, plan.delta, claim=alone)
            )
        else:
            charge = plan.charges[name]
            before, after = (e.sum(kernel.choice if isinstance(kernel, Chosen) else kernel) for e in engines)
            if isinstance(kernel, Chosen):
                ratio = _choice_ratios(kernel, engines[0], before, after, charge.mu, runs)
            else:
                ratio = _log_ratios(kernel, plan.schema.person, before, after, charge.mu, runs)
            claims.append(charge.mu * (influence if charge.weighted else 1.0))
            bounds = bounds_of(*ratio, lines)
            findings.append(Finding(target.name, "white-box", name, claims[-1], *bounds, plan.delta))
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
    statistic: Statistic, person: Person | None, without: Ints, present: Ints, charge: float, runs: int
) -> Ratios:
    """Log-likelihood ratios of noisy outputs, drawn without and with the record. Entries in which the two
    tables agree tell nothing and are left out."""
    touched, units = np.flatnonzero(present - without), UNITS if person else 1
    step, start_at = (present - without)[touched] / units, without[touched] / units
    at_once = max(1, _AT_ONCE // max(len(touched), 1))
    results = []
    for exact in (without[touched], present[touched]):
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
    """Return noisy values as a run of this charge would release them, and the noise that it says it added. Values
    of persons are in units already."""
    whose = None if person is None else Whose(np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64))
    engine = LocalEngine([Records(rows=1, codes={}, whose=whose)], person=person)
    meter = Meter(engine, charge * (1 + 1e-9))
    noisy = meter.measure(_Known(name, sensitivity, values), mu=charge)
    (event,) = meter.events
    assert isinstance(event, GaussianEvent)
    return noisy, event.sigma


def contribution(plan: Plan, rounds: Rounds, target: Target, influence: float) -> list[Finding]:
    """Compare what the record adds to some rounds of a training with what is claimed: the norm is exact, not
    estimated."""
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


def threshold_learnt(out: Floats, present: Floats) -> Ratios:
    """Judge the ratios of half of the runs by the threshold that is best on the other half: where the noise is not
    what was claimed, 0 is not."""
    half = len(out) // 2
    levels = np.quantile(np.concatenate([out[:half], present[:half]]), np.linspace(0, 1, 201))
    right = np.searchsorted(np.sort(out[:half]), levels) + half - np.searchsorted(np.sort(present[:half]), levels)
    best = levels[int(np.argmax(right))]
    return out[half:] - best, present[half:] - best


def training_ratios(plan: Plan, influence: float, runs: int) -> Ratios:
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
    expected = math.floor(influence * plan.training.sensitivity)
    for value in (0, expected):
        alone = _Alone(runs, value, expected, plan.training, plan.schema.rows_per_person)
        Meter(LocalEngine([table], person=person), plan.scale, delta=plan.delta).train(alone, plan.training)
        results.append(alone.ratios)
    return results[0], results[1]


@dataclass
class _Alone:
    """As many trainings at once as there are persons: each adds to an entry of its own, with one row or several.
    Who takes part in a round is drawn for each person, and the noise for each entry."""

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
