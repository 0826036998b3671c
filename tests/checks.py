"""Named checks that the privacy claims stand on; the tests run them on the code, the mutants must fail them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from repsynth import measure
from repsynth.encode import Records, encode_batch
from repsynth.measure import Statistic
from repsynth.noise import GaussianEvent
from repsynth.pipeline import run
from repsynth.plan import Plan
from repsynth.release import Release
from repsynth.schema import Schema
from repsynth.tables import open_table


def records_of(table: pa.Table, schema: Schema) -> Records:
    parts = [encode_batch(batch, schema) for batch in table.combine_chunks().to_batches()]
    codes = {c.name: np.concatenate([p.codes[c.name] for p in parts]) for c in schema.learned}
    return Records(rows=table.num_rows, codes=codes)


def take(records: Records, rows: Sequence[int] | np.ndarray) -> Records:
    index = np.asarray(rows, dtype=np.int64)
    return Records(rows=len(index), codes={name: codes[index] for name, codes in records.codes.items()})


@dataclass(frozen=True)
class Measured:
    """One measurement of a run: what was measured, on what, and what came out."""

    statistic: Statistic
    exact: np.ndarray
    noisy: np.ndarray
    event: GaussianEvent


def record_run(plan: Plan, table: pa.Table, *, seed: int = 1) -> tuple[Release, list[Measured]]:
    """Run a plan and record every measurement's exact input and output."""
    return _observed(plan, table, lambda noisy, i: noisy, seed)


def replay_run(plan: Plan, table: pa.Table, outputs: list[np.ndarray]) -> tuple[Release, list[Measured]]:
    """Run a plan on another table with the measurements' outputs frozen to these."""
    return _observed(plan, table, lambda noisy, i: outputs[i], 2)


def _observed(
    plan: Plan, table: pa.Table, output: Callable[[np.ndarray, int], np.ndarray], seed: int
) -> tuple[Release, list[Measured]]:
    from repsynth.measure import Account

    measured: list[Measured] = []
    original = Account.measure

    def observe(self: Account, statistic: Statistic, data: object, *, mu: float) -> np.ndarray:
        noisy = original(self, statistic, data, mu=mu)  # type: ignore[arg-type]
        exact = measure.sum_over(statistic, data)  # type: ignore[arg-type]
        released = output(noisy, len(measured))
        measured.append(Measured(statistic, exact, released, self.events[-1]))
        return released

    Account.measure = observe  # type: ignore[method-assign]
    try:
        return run(plan, open_table(table), noise_seed=seed), measured
    finally:
        Account.measure = original  # type: ignore[method-assign]


def check_contribution(statistic: Statistic, records: Records) -> None:
    """No record moves the statistic by more than its sensitivity."""
    for i in range(records.rows):
        moved = np.linalg.norm(statistic.total(take(records, [i])).astype(np.float64))
        assert moved <= statistic.sensitivity * (1 + 1e-12), statistic.name


def check_replay(plan: Plan, table: pa.Table, absent: int) -> None:
    """On the neighbour without one record and with outputs frozen, the run does the same measurements,
    whose inputs differ by at most the sensitivity, and in stage 2 by exactly the record's influence."""
    release, measured = record_run(plan, table)
    kept = pa.array([i for i in range(table.num_rows) if i != absent], type=pa.int64())
    other, replayed = replay_run(plan, table.take(kept), [m.noisy for m in measured])
    assert [m.event for m in measured] == [m.event for m in replayed]
    for one, two in zip(measured, replayed, strict=True):
        distance = float(np.linalg.norm((one.exact - two.exact).astype(np.float64)))
        assert distance <= one.event.sensitivity * (1 + 1e-12), one.event.name
    record = take(records_of(table, plan.schema), [absent])
    last = float(np.linalg.norm((measured[-1].exact - replayed[-1].exact).astype(np.float64)))
    influence = float(release.statistic.influence(record)[0])
    weight = float(release.weights.of(release.score.of(record))[0]) / 4096
    assert abs(last - influence * measured[-1].event.sensitivity) <= 1e-9 * measured[-1].event.sensitivity
    assert influence <= weight * (1 + 1e-12)
    assert same_release(release, other)


def same_release(one: Release, two: Release) -> bool:
    """Whether two releases agree in everything that would be written."""
    from repsynth.files import _arrays, _describe

    arrays, others = _arrays(one), _arrays(two)
    return (
        _describe(one, "") == _describe(two, "")
        and arrays.keys() == others.keys()
        and all(np.array_equal(arrays[name], others[name]) for name in arrays)
    )


def check_spends_its_plan(plan: Plan, table: pa.Table) -> None:
    """A run makes exactly the planned measurements, at the planned charges, within the budget."""
    release, measured = record_run(plan, table)
    assert [m.event.name for m in measured] == list(plan.charges)
    assert [m.statistic.sensitivity for m in measured] == [m.event.sensitivity for m in measured]
    for m in measured:
        charge = plan.charges[m.event.name]
        assert charge * (1 - 1e-9) <= m.event.mu <= charge * (1 + 1e-12), m.event.name
    assert plan.settings.budget.mu * (1 - 1e-6) <= release.privacy.mu <= plan.settings.budget.mu
    assert release.privacy.epsilon <= plan.settings.budget.epsilon


def check_noise_scale(plan: Plan, table: pa.Table) -> None:
    """The noise that was added has the claimed scale: a chi-square test over all cells of a few runs."""
    from scipy.stats import chi2

    standard = []
    for seed in range(8):
        for m in record_run(plan, table, seed=seed)[1]:
            # Rounding to integers adds a twelfth.
            scale = np.sqrt(m.event.sigma**2 + 1 / 12)
            standard.append((m.noisy - m.exact).astype(np.float64) / scale)
    draws = np.concatenate(standard)
    tail = float(chi2.cdf(draws @ draws, len(draws)))
    assert 1e-4 < tail < 1 - 1e-4, (tail, len(draws))
