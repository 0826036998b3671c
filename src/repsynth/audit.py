"""An audit that can fail: attack the mechanism on a table and its neighbour, and compare with the claims.

*White-box*: the attacker knows everything but the noise and sees the noisy statistics; the likelihood
ratio is then the best test there is, so the bound should come out close to the claim. Each measurement of
the plan is attacked alone and all together, on what the code computes and through the door that every
measurement goes through, with the functions that a first run released held fixed. What a run chooses from
data it has not measured is therefore not seen here; replaying runs on neighbours, as the tests do, shows it.
*Black-box*: the attacker sees synthetic tables only. *Account*: what a release says it spent is compared
with its plan, and noise must not repeat.

An attack that is right with probability p on a coin flip between the two tables proves μ ≥ 2 Φ⁻¹(p). A training
has no μ: there, μ stands for the largest p that its account allows, and the comparison is the same.
`lower` is that bound at 95 % confidence. A claim counts as exceeded where the bound at 99.999 % still lies
above it, so that a sound mechanism practically never fails. What an audit of real data prints is private.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import log_softmax

from repsynth.accounting import compose
from repsynth.audit_training import contribution, threshold_learnt, training_ratios
from repsynth.cost import STAGE_ONE, Cost
from repsynth.encode import MISSING, EncodedTable, Records
from repsynth.errors import ConfigError
from repsynth.findings import Finding, bounds_of, claimed_mu
from repsynth.guarantee import ETA_SHARE, guaranteed_weights
from repsynth.marginals import OneWay
from repsynth.measure import OUT, Account, Count, Statistic, sum_over
from repsynth.models.marginal import Parts, make_choice
from repsynth.models.stages import Measured
from repsynth.models.tables import TableChoice, Tables
from repsynth.noise import MU_PER_ETA, GaussianEvent, SampledEvent
from repsynth.pipeline import run
from repsynth.plan import Plan, make_plan
from repsynth.release import Release
from repsynth.schema import Numeric, Schema
from repsynth.tables import open_table
from repsynth.threshold import ScoreHistogram

Ints = NDArray[np.int64]
Int32s = NDArray[np.int32]
Floats = NDArray[np.float64]

_AT_ONCE = 2_000_000  # noise draws in memory at a time
_CHOICES = 2000


def audit(
    plan: Plan,
    source: Any,
    *,
    runs: int = 100_000,
    black_box_runs: int = 0,
    on_target: Callable[[str], None] = lambda name: None,
) -> Iterator[Finding]:
    """Attack the records that matter: the most and the least outlying, a planted canary, one of gaps only,
    and the canary alone in an otherwise empty table, which is as bad as it gets.

    >>> from repsynth import datasets
    >>> from repsynth.pipeline import make_settings
    >>> sim = datasets.load("sim")
    >>> plan = make_plan(sim.schema, make_settings(epsilon=1.0))
    >>> any(finding.exceeded for finding in audit(plan, sim.table, runs=1000))
    False
    """
    if runs < 100 or (black_box_runs and black_box_runs < 20):
        raise ConfigError("an audit needs at least 100 white-box and 20 black-box runs")
    schema = plan.schema
    opened = open_table(source)
    release = run(plan, opened)
    table = _joined(list(EncodedTable(opened, schema)), schema)
    yield from check_account(plan, release)
    yield from check_noise(plan)
    yield from check_choices(plan)
    canary = extreme_record(schema)
    targets: list[tuple[str, Records, Records]] = []
    if table.rows > 1:
        scores = release.score.of(table)
        for name, i in (("most outlying", int(np.argmax(scores))), ("least outlying", int(np.argmin(scores)))):
            chosen = np.arange(table.rows) == i
            targets.append((name, _rows(table, ~chosen), _rows(table, chosen)))
    targets.append(("canary", table, canary))
    targets.append(("gaps only", table, empty_record(schema)))
    targets.append(("canary alone", _rows(table, np.zeros(table.rows, dtype=bool)), canary))
    for name, others, record in targets:
        on_target(name)
        yield from white_box(release, others, record, target=name, runs=runs)
        if black_box_runs:
            yield black_box(plan, others, record, target=name, runs=black_box_runs)


def white_box(release: Release, others: Records, record: Records, *, target: str, runs: int) -> list[Finding]:
    """The likelihood-ratio test on each measurement of a release's plan, and on all of them."""
    privacy = release.privacy
    plan = make_plan(release.schema, release.settings)
    influence = min(float(release.influence(record)[0]), 1.0)
    findings, ratios, claims = [], [], []
    statistics = _statistics(release)
    choices = dict(_choices(release, plan))
    for name, charge in plan.charges.items():
        claim = charge * (1.0 if name in STAGE_ONE else influence)
        touched: Statistic | TableChoice = choices[name][0] if name in choices else statistics[name]
        without = sum_over(touched, [others])
        difference = sum_over(touched, [others, record]) - without
        if name in choices:
            ratio = _choice_ratios(*choices[name], without, without + difference, charge, runs)
        else:
            ratio = _log_ratios(statistics[name], without, difference, charge, runs)
        ratios.append(ratio)
        claims.append(claim)
        findings.append(Finding(target, "white-box", name, claim, *bounds_of(*ratio), privacy.delta))
    if plan.training is not None:
        alone = Cost.of([plan.training]).at(influence)
        ratio = training_ratios(plan, influence, runs)
        ratios.append(ratio)
        bounds = bounds_of(*threshold_learnt(*ratio))
        findings += contribution(release, record, influence, target)
        findings.append(
            Finding(target, "white-box", "training", claimed_mu(alone), *bounds, privacy.delta, claim=alone)
        )
    without_it, with_it = (np.sum([ratio[side] for ratio in ratios], axis=0) for side in (0, 1))
    weight = guaranteed_weights(release, [others, record], eta=privacy.delta * ETA_SHARE)[-1]
    guaranteed = claimed_mu(privacy.cost, float(weight))
    whole = None if plan.training is None else privacy.cost.at(influence)
    claim = min(compose(claims), claimed_mu(privacy.cost, influence)) if whole is None else claimed_mu(whole)
    if plan.training is not None:
        without_it, with_it = threshold_learnt(without_it, with_it)
    lower, certain = bounds_of(without_it, with_it)
    together = Finding(target, "white-box", "all", claim, lower, certain, privacy.delta, guaranteed, whole)
    return [*findings, together]


def check_account(plan: Plan, release: Release) -> list[Finding]:
    """What the release says it spent, against the plan: more than planned, or a planned charge left out."""
    said = {event.name: event.mu for event in release.events if not isinstance(event, SampledEvent)}
    delta = plan.settings.budget.delta
    findings = []
    if plan.training is not None:
        trainings = Cost(0.0, 0.0, tuple(e for e in release.events if isinstance(e, SampledEvent)))
        spent, charge = claimed_mu(trainings), claimed_mu(Cost.of([plan.training]))
        if not math.isclose(spent, charge, rel_tol=1e-3):
            low, high = sorted((spent, charge))
            findings.append(Finding("release", "account", "training", low, high, high, delta))
    for name, charge in plan.charges.items():
        spent = said.get(name, 0.0)
        if not math.isclose(spent, charge, rel_tol=1e-6):
            low, high = sorted((spent, charge))
            findings.append(Finding("release", "account", name, low, high, high, delta))
    return findings


def check_noise(plan: Plan) -> list[Finding]:
    """Two draws that are the same prove that the noise can be predicted."""
    size = 64
    first, second = (_drawn("noise", 1.0, np.zeros(size, dtype=np.int64), 1e-6)[0] for _ in range(2))
    if not np.array_equal(first, second):
        return []
    budget = plan.settings.budget
    return [Finding("any record", "repetition", "noise", budget.mu, 1e3, 1e3, budget.delta)]


def check_choices(plan: Plan) -> list[Finding]:
    """The exponential mechanism, through the door that every choice goes through, where it can tell most: four
    rounds between two candidates, whose scores a record turns around. Drawn often at a charge of 1."""
    if not any(name.startswith("structure") for name in plan.charges):
        return []
    right = []
    for present in (False, True):
        tie = _Tie(present)
        chosen = [Account(1.001).choose(tie, [], mu=1.0) for _ in range(_CHOICES)]
        right.append(np.array([sum(1 if c % 2 == 0 else -1 for c in choice) for choice in chosen], dtype=float))
    return [Finding("any record", "white-box", "choice", 1.0, *bounds_of(*right), plan.settings.budget.delta)]


@dataclass(frozen=True)
class _Tie:
    """In each round a choice between two candidates that are one sensitivity apart, this or the other way."""

    present: bool
    name: str = "structure"
    rounds: int = 4
    unit: int = 2

    def total(self, records: Records) -> Ints:
        return np.zeros(1, dtype=np.int64)

    def scores(self, total: Ints, chosen: tuple[int, ...]) -> Ints:
        scores = np.full(1 + 2 * self.rounds, OUT)
        scores[1 + 2 * len(chosen) :][:2] = [1, -1] if self.present else [-1, 1]
        return scores


def black_box(plan: Plan, others: Records, record: Records, *, target: str, runs: int) -> Finding:
    """Sees synthetic tables only: how often the record's own cells occur, label by label.

    Half of the runs teach the attacker what each table looks like, the other half are the test.
    """
    seen: list[Floats] = []
    for present in (False, True):
        data = _stored(plan.schema, [others, record] if present else [others])
        features = []
        for _ in range(runs):
            release = run(plan, open_table(data))
            features.append(_likeness(release.model.draw(max(others.rows, 100), np.random.default_rng()), record))
        seen.append(np.array(features))
    half = runs // 2
    mean_out, mean_in = (side[:half].mean(axis=0) for side in seen)
    spread = np.concatenate([side[:half] - side[:half].mean(axis=0) for side in seen]).var(axis=0) + 1e-12
    direction = (mean_in - mean_out) / spread
    threshold = (mean_in + mean_out) @ direction / 2
    out, present_in = (side[half:] @ direction - threshold for side in seen)
    bounds, delta = bounds_of(out, present_in), plan.settings.budget.delta
    if plan.training is None:
        return Finding(target, "black-box", "all", plan.settings.budget.mu, *bounds, delta)
    return Finding(target, "black-box", "all", claimed_mu(plan.cost), *bounds, delta, claim=plan.cost)


def _statistics(release: Release) -> dict[str, Statistic]:
    """The public functions that a release measured."""
    statistics: dict[str, Statistic] = {
        "size": Count(),
        "score": OneWay(release.marginals.cells),
        **{m.statistic.name: m.statistic for m in release.measured},
    }
    if release.threshold:
        statistics["threshold"] = ScoreHistogram(release.score, release.threshold.edges)
    return statistics


def _choices(release: Release, plan: Plan) -> Iterator[tuple[str, tuple[TableChoice, tuple[int, ...]]]]:
    """Each choice of a run, made again from what was released before it, and what was chosen."""
    measured: list[Measured[Tables]] = []
    for m in release.measured:
        statistic = m.statistic
        if not isinstance(statistic, Tables):
            return
        if statistic.name.startswith("synthesis"):
            parts = Parts(release.stage, statistic.groups[: len(release.marginals.cells)])
            name = statistic.name.replace("synthesis", "structure")
            most = release.settings.max_model_mb * 2**20 // 16
            choice = make_choice(parts, measured, plan.charges, name, max_cells=most)
            pairs = choice.tables.pairs
            chosen = tuple(pairs.index(pair) for pair in statistic.pairs if pair in pairs)
            yield name, (choice, chosen)
        measured.append(Measured(statistic, m.noisy, m.sigma))


def _choice_ratios(
    choice: TableChoice, chosen: tuple[int, ...], without: Ints, present: Ints, charge: float, runs: int
) -> tuple[Floats, Floats]:
    """Log-likelihood ratios of choices, drawn without and with the record. Earlier choices are those made."""
    eta = charge / (MU_PER_ETA * math.sqrt(choice.rounds))
    generator = np.random.default_rng()
    ratios = np.zeros((2, runs))
    for k in range(min(len(chosen) + 1, choice.rounds)):
        tables = (choice.scores(total, chosen[:k]) for total in (without, present))
        logs = [log_softmax(scores[scores > OUT] * (eta / 2 / choice.unit)) for scores in tables]
        for side in (0, 1):
            drawn = generator.choice(len(logs[0]), runs, p=np.exp(logs[side]))
            ratios[side] += (logs[1] - logs[0])[drawn]
    return ratios[0], ratios[1]


def made_up_table(schema: Schema, rows: int = 1000) -> pa.Table:
    """Records drawn evenly from the whole domain: nobody's data."""
    generator = np.random.default_rng(0)
    codes = {
        c.name: generator.integers(0, (c.steps if isinstance(c, Numeric) else c.cells - 1) + 1, rows)
        for c in schema.learned
    }
    return _stored(schema, [Records(rows=rows, codes=codes)])


def extreme_record(schema: Schema) -> Records:
    """A canary: the last category and the largest number everywhere."""
    codes = {c.name: np.array([c.steps if isinstance(c, Numeric) else c.cells - 1]) for c in schema.learned}
    return Records(rows=1, codes=codes)


def empty_record(schema: Schema) -> Records:
    """A canary with nothing but its label."""
    codes = {c.name: np.array([0 if c.name == schema.label else MISSING]) for c in schema.learned}
    return Records(rows=1, codes=codes)


def _log_ratios(
    statistic: Statistic, without: Ints, difference: Ints, charge: float, runs: int
) -> tuple[Floats, Floats]:
    """Log-likelihood ratios of noisy outputs, drawn without and with the record. Entries in which the two
    tables agree tell nothing and are left out."""
    touched = np.flatnonzero(difference)
    step = difference[touched].astype(np.float64)
    at_once = max(1, _AT_ONCE // max(len(touched), 1))
    results = []
    for present in (False, True):
        exact = without[touched] + difference[touched] * present
        parts = []
        for start in range(0, runs, at_once):
            copies = np.tile(exact, (min(at_once, runs - start), 1))
            noisy, sigma = _drawn(statistic.name, statistic.sensitivity, copies, charge)
            parts.append((noisy - (without[touched] + step / 2)) @ step / sigma**2)
        results.append(np.concatenate(parts))
    return results[0], results[1]


@dataclass(frozen=True)
class _Known:
    """A statistic whose exact sum is known, many times over."""

    name: str
    sensitivity: float
    values: Ints

    def total(self, records: Records) -> Ints:
        return self.values if records.rows else np.zeros_like(self.values)


def _drawn(name: str, sensitivity: float, values: Ints, charge: float) -> tuple[Ints, float]:
    """Noisy values as a run of this charge would release them, and the noise that it says it added."""
    account = Account(charge * (1 + 1e-9))
    noisy = account.measure(_Known(name, sensitivity, values), [Records(rows=1, codes={})], mu=charge)
    (event,) = account.events
    assert isinstance(event, GaussianEvent)
    return noisy, event.sigma


def _likeness(drawn: Records, record: Records) -> Floats:
    """For each column, the share of synthetic records that lie in the sixteenth of the range, or in the
    category, of the record."""
    shares = []
    for name, codes in drawn.codes.items():
        width = max(int(codes.max(initial=0)) // 16, 1) if codes.size else 1
        own = int(record.codes[name][0])
        shares.append(np.mean(np.abs(codes - own) < width) if own != MISSING else np.mean(codes == MISSING))
    return np.array(shares)


def _stored(schema: Schema, parts: list[Records]) -> pa.Table:
    """Encoded records as a table that the pipeline can read again."""
    from repsynth.decode import decode, layout_of

    joined = _joined(parts, schema)
    names = {column.name: pa.nulls(0, pa.string()) for column in schema.columns}
    return decode(joined, schema, layout_of(open_table(pa.table(names)), schema))


def _joined(parts: list[Records], schema: Schema) -> Records:
    empty = np.zeros(0, dtype=np.int64)
    codes = {c.name: np.concatenate([empty, *(p.codes[c.name] for p in parts)]) for c in schema.learned}
    return Records(rows=sum(part.rows for part in parts), codes=codes)


def _rows(records: Records, kept: NDArray[np.bool_]) -> Records:
    return Records(rows=int(kept.sum()), codes={name: codes[kept] for name, codes in records.codes.items()})
