"""Named checks that the privacy claims stand on; the tests run them on the code, the mutants must fail them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from repsynth import measure
from repsynth.cost import STAGE_ONE
from repsynth.encode import Records, encode_batch
from repsynth.measure import Choice, Rounds, Statistic
from repsynth.noise import Event, ExponentialEvent, SampledEvent
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
    """One measurement, choice or round of a run: what was measured, on what, and what came out."""

    statistic: Statistic | Choice | Rounds
    exact: np.ndarray
    noisy: np.ndarray | tuple[int, ...]
    event: Event

    @property
    def sensitivity(self) -> float:
        """How far one record moves the exact value: in a choice, how far it moves a score."""
        return self.statistic.unit if isinstance(self.event, ExponentialEvent) else self.event.sensitivity  # type: ignore[union-attr]

    def distance(self, other: "Measured") -> float:
        """Between two exact values; in a choice, the largest between two scores of any round."""
        if not isinstance(self.event, ExponentialEvent):
            return float(np.linalg.norm((self.exact - other.exact).astype(np.float64)))
        scores = self.statistic.scores  # type: ignore[union-attr]
        prefixes = [self.noisy[:k] for k in range(len(self.noisy) + 1)]
        return max(float(np.abs(scores(self.exact, p) - scores(other.exact, p)).max()) for p in prefixes)


def record_run(plan: Plan, table: pa.Table, *, seed: int = 1) -> tuple[Release, list[Measured]]:
    """Run a plan and record every measurement's exact input and output."""
    return _observed(plan, table, lambda noisy, i: noisy, seed)


def replay_run(
    plan: Plan, table: pa.Table, outputs: list[np.ndarray | tuple[int, ...]]
) -> tuple[Release, list[Measured]]:
    """Run a plan on another table with the measurements' outputs frozen to these."""
    return _observed(plan, table, lambda noisy, i: outputs[i], 2)


def _observed(
    plan: Plan, table: pa.Table, output: Callable[[Any, int], Any], seed: int
) -> tuple[Release, list[Measured]]:
    from repsynth.measure import Account

    measured: list[Measured] = []
    doors = {"measure": Account.measure, "choose": Account.choose}
    training = Account.train

    def observed(door: Callable[..., Any]) -> Callable[..., Any]:
        def observe(self: Account, statistic: Any, data: Any, *, mu: float) -> Any:
            noisy = door(self, statistic, data, mu=mu)
            released = output(noisy, len(measured))
            measured.append(Measured(statistic, measure.sum_over(statistic, data), released, self.events[-1]))
            return released

        return observe

    def observe_rounds(self: Account, rounds: Any, data: Any, event: SampledEvent, *, done: int = 0) -> None:
        total, advance = rounds.total, rounds.advance
        exact: list[np.ndarray] = []

        def observe_total(parts: Any) -> Any:
            exact.append(total(parts))
            return exact[-1]

        def observe_advance(noisy: Any) -> None:
            released = output(noisy, len(measured))
            measured.append(Measured(rounds, exact[-1], released, event))
            advance(released)

        rounds.total, rounds.advance = observe_total, observe_advance
        training(self, rounds, data, event, done=done)
        del rounds.total, rounds.advance

    for name, door in doors.items():
        setattr(Account, name, observed(door))
    Account.train = observe_rounds  # type: ignore[method-assign]
    try:
        return run(plan, open_table(table), noise_seed=seed), measured
    finally:
        for name, door in doors.items():
            setattr(Account, name, door)
        Account.train = training  # type: ignore[method-assign]


def check_contribution(statistic: Statistic | Choice | Rounds, records: Records) -> None:
    """No record moves the statistic by more than its sensitivity, nor a score by more than its unit; nor does it
    move a round of training by more than its weight allows."""
    if hasattr(statistic, "advance"):
        weights = statistic.network.influence(records)
        for i in range(0, records.rows, 1 + records.rows // 60):
            part = statistic.total(statistic.parts(take(records, [i])))
            assert int(np.sum(part.astype(object) ** 2)) <= (weights[i] * statistic.sensitivity) ** 2
        return
    if not hasattr(statistic, "sensitivity"):
        whole = statistic.total(records)
        for i in range(records.rows):
            less = whole - statistic.total(take(records, [i]))
            moved = np.abs(statistic.scores(whole, ()) - statistic.scores(less, ())).max()
            assert moved <= statistic.unit, statistic.name
        return
    for i in range(records.rows):
        moved = np.linalg.norm(statistic.total(take(records, [i])).astype(np.float64))
        assert moved <= statistic.sensitivity * (1 + 1e-12), statistic.name


def check_replay(plan: Plan, table: pa.Table, absent: int) -> None:
    """On the neighbour without one record and with outputs frozen, the run does the same measurements,
    whose inputs differ by at most the sensitivity, and in stage 2 by at most the record's influence."""
    release, measured = record_run(plan, table)
    kept = pa.array([i for i in range(table.num_rows) if i != absent], type=pa.int64())
    other, replayed = replay_run(plan, table.take(kept), [m.noisy for m in measured])
    assert [m.event for m in measured] == [m.event for m in replayed]
    record = take(records_of(table, plan.schema), [absent])
    influence = float(release.influence(record)[0])
    weight = float(release.weights.of(release.score.of(record))[0]) / 4096
    assert influence <= weight * (1 + 1e-12)
    for one, two in zip(measured, replayed, strict=True):
        share = 1.0 if one.event.name in STAGE_ONE else influence
        assert one.distance(two) <= share * one.sensitivity * (1 + 1e-9), one.event.name
    if plan.settings.model == "naive-bayes":  # its influence is no bound, it is exact
        last, bound = measured[-1].distance(replayed[-1]), measured[-1].sensitivity
        assert abs(last - influence * bound) <= 1e-9 * bound
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
    rounds = [m for m in measured if isinstance(m.event, SampledEvent)]
    others = [m for m in measured if not isinstance(m.event, SampledEvent)]
    assert [m.event.name for m in others] == list(plan.charges)
    for m in measured:
        if not isinstance(m.event, ExponentialEvent):
            assert m.statistic.sensitivity == m.event.sensitivity  # type: ignore[union-attr]
    for m in others:
        charge = plan.charges[m.event.name]
        assert charge * (1 - 1e-9) <= m.event.mu <= charge * (1 + 1e-12), m.event.name
    assert release.events == (*(m.event for m in others), *([plan.training] if plan.training else []))
    assert len(rounds) == (plan.training.rounds if plan.training else 0)
    budget = plan.settings.budget
    if plan.training is None:
        assert budget.mu * (1 - 1e-6) <= release.privacy.mu <= budget.mu
    assert budget.epsilon * (0.998 if plan.training else 0.999999) <= release.privacy.epsilon <= budget.epsilon


def check_noise_scale(plan: Plan, table: pa.Table) -> None:
    """The noise that was added has the claimed scale: a chi-square test over all cells of a few runs."""
    from scipy.stats import chi2

    standard = []
    for seed in range(8):
        for m in record_run(plan, table, seed=seed)[1]:
            if isinstance(m.event, ExponentialEvent):
                continue
            # Rounding to integers adds a twelfth.
            scale = np.sqrt(m.event.sigma**2 + 1 / 12)
            standard.append((m.noisy - m.exact).astype(np.float64) / scale)
    draws = np.concatenate(standard)
    tail = float(chi2.cdf(draws @ draws, len(draws)))
    assert 1e-4 < tail < 1 - 1e-4, (tail, len(draws))
