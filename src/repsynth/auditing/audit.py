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
`lower` is that bound at 95 % confidence for all lines of the audit together: each may fail with a chance of 5 %
by their number. A claim counts as exceeded where the bound at 99.999 % of one line still lies above it, so that
a sound mechanism practically never fails. What an audit of real data prints is private.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

from repsynth.auditing.black_box import black_box
from repsynth.auditing.bounds import Finding, claimed_mu
from repsynth.auditing.targets import targets_of
from repsynth.auditing.white_box import check_choices, check_noise, white_box
from repsynth.data.records import join
from repsynth.data.sources import open_source
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.loss import Loss
from repsynth.release.release import Release


def audit(
    plan: Plan,
    table: Any,
    *,
    runs: int = 100_000,
    black_box_runs: int = 0,
    on_target: Callable[[str], None] = lambda name: None,
) -> Iterator[Finding]:
    """Attack the records that matter: the most and the least outlying, a planted canary, one with nothing but its
    label, and the canary alone in an otherwise empty table, which is as bad as it gets.

    >>> from repsynth import datasets
    >>> from repsynth.planning.plan import make_plan
    >>> from repsynth.planning.settings import Settings
    >>> sim = datasets.load("sim")
    >>> plan = make_plan(sim.schema, Settings.of(epsilon=1.0, model="naive-bayes"))
    >>> sorted({finding.measurement for finding in audit(plan, sim.table, runs=1000)})
    ['all', 'count', 'histograms', 'ranges', 'scores', 'sums', 'zoom']
    """
    if runs < 100 or (black_box_runs and black_box_runs < 20):
        raise ConfigError("an audit needs at least 100 white-box and 20 black-box runs")
    source = open_source(table)
    release = run(plan, source)
    names = [column.name for column in plan.schema.learned]
    records = join(list(LocalEngine.open(source, plan.schema).per_record()), names)
    targets = list(targets_of(release, records))
    # Every measurement, all of them, the synthetic tables, and the choice that tells most: all that is drawn.
    lines = len(targets) * (len(release.kernels()) + 1 + bool(black_box_runs)) + 1
    yield from check_account(plan, release)
    yield from check_noise(plan)
    yield from check_choices(plan, lines=lines)
    for target in targets:
        on_target(target.name)
        yield from white_box(release, target, runs=runs, lines=lines)
        if black_box_runs:
            yield black_box(plan, target, runs=black_box_runs, lines=lines)


def check_account(plan: Plan, release: Release) -> list[Finding]:
    """What the release says it spent, against the plan: more than planned, or a planned charge left out."""
    planned = {name: charge.mu for name, charge in plan.charges.items()}
    weighted = {name for name, charge in plan.charges.items() if charge.weighted}
    # An event that is wrong about who pays in full is none that was planned.
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
