"""Named checks that the privacy claims stand on; the tests run them on the code, the mutants must fail them."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest

from repsynth.attacks import audit
from repsynth.errors import ReleaseError
from repsynth.io.encode import encode_batch
from repsynth.io.records import Records, join
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Choice, Rounds, Statistic
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import seeded_entropy
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import Event, ExponentialEvent, SampledEvent
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Schema


def plan_for(schema: Schema, **options: object) -> Plan:
    """A plan of naive Bayes with ε = 4 unless told otherwise."""
    return make_plan(schema, Settings.of(**{"epsilon": 4.0, "delta": 1e-6, "model": "naive-bayes", **options}))


def records_of(table: pa.Table, schema: Schema) -> Records:
    parts = [encode_batch(batch, schema) for batch in table.combine_chunks().to_batches()]
    return join(parts, [column.name for column in schema.learned])


def take(records: Records, rows: Sequence[int] | np.ndarray) -> Records:
    return records.take(np.asarray(rows, dtype=np.int64))


@dataclass(frozen=True)
class Measured:
    """One measurement, choice or round of a run: what was measured, on what, and what came out."""

    statistic: Statistic | Choice | Rounds
    exact: np.ndarray
    noisy: np.ndarray | tuple[int, ...]
    event: Event

    @property
    def sensitivity(self) -> float:
        """How far one record moves the exact value: in a choice, how far it moves a utility."""
        return self.statistic.unit if isinstance(self.event, ExponentialEvent) else self.event.sensitivity  # type: ignore[union-attr]

    def distance(self, other: "Measured") -> float:
        """Between two exact values; in a choice, the largest between two utilities of any round."""
        if not isinstance(self.event, ExponentialEvent):
            return float(np.linalg.norm((self.exact - other.exact).astype(np.float64)))
        utilities = self.statistic.utilities  # type: ignore[union-attr]
        prefixes = [self.noisy[:k] for k in range(len(self.noisy) + 1)]
        return max(float(np.abs(utilities(self.exact, p) - utilities(other.exact, p)).max()) for p in prefixes)


class ObservedMeter(Meter):
    """A meter that notes what it is asked, on what exact sums, and may answer something else."""

    seen: list[Measured]
    answer: Callable[[Any, int], Any]

    def measure(self, statistic: Statistic, *, mu: float) -> Any:
        return self._observed(statistic, super().measure(statistic, mu=mu))

    def choose(self, choice: Choice, *, mu: float) -> Any:
        return self._observed(choice, super().choose(choice, mu=mu))

    def _observed(self, asked: Any, noisy: Any) -> Any:
        released = self.answer(noisy, len(self.seen))
        self.seen.append(Measured(asked, self.engine.sum(asked), released, self.events[-1]))
        return released

    def train(self, rounds: Rounds, event: SampledEvent) -> None:
        super().train(_ObservedRounds(rounds, self, event), event)


@dataclass
class _ObservedRounds:
    """The rounds of a training, each noted before the training learns from it."""

    rounds: Any
    meter: ObservedMeter
    event: SampledEvent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.rounds, name)

    def kernel(self) -> "_ObservedRounds":
        self.now = self.rounds.kernel()
        return self

    def total(self, parts: Any) -> Any:
        self.exact = self.now.total(parts)
        return self.exact

    def advance(self, noisy: Any) -> None:
        released = self.meter.answer(noisy, len(self.meter.seen))
        self.meter.seen.append(Measured(self.rounds, self.exact, released, self.event))
        self.rounds.advance(released)


def record_run(plan: Plan, table: pa.Table, *, seed: int = 1) -> tuple[Release, list[Measured]]:
    """Run a plan and record every measurement's exact input and output."""
    return _observed(plan, table, lambda noisy, i: noisy, seed)


def replay_run(
    plan: Plan, table: pa.Table, outputs: list[np.ndarray | tuple[int, ...]]
) -> tuple[Release, list[Measured]]:
    """Run a plan on another table with the measurements' outputs frozen to these."""
    return _observed(plan, table, lambda noisy, i: outputs[i], 2)


def _observed(
    plan: Plan, table: pa.Table, answer: Callable[[Any, int], Any], seed: int
) -> tuple[Release, list[Measured]]:
    seen: list[Measured] = []

    def make_meter(*arguments: Any, **options: Any) -> Meter:
        meter = ObservedMeter(*arguments, **options)
        meter.seen, meter.answer = seen, answer
        return meter

    return run(plan, open_source(table), noise_seed=seed, make_meter=make_meter), seen


def check_contribution(statistic: Statistic | Choice | Rounds, records: Records) -> None:
    """No record moves the statistic by more than its sensitivity, nor a utility by more than its unit; nor does it
    move a round of training by more than its weight allows."""
    if isinstance(statistic, Rounds):
        weights = statistic.network.stage.influence(records)  # type: ignore[attr-defined]
        kernel = statistic.kernel()
        for i in range(0, records.rows, 1 + records.rows // 60):
            part = kernel.total(statistic.parts(take(records, [i])))
            assert int(np.sum(part.astype(object) ** 2)) <= (weights[i] * statistic.sensitivity) ** 2
        return
    if not hasattr(statistic, "sensitivity"):
        whole = statistic.total(records)
        for i in range(records.rows):
            less = whole - statistic.total(take(records, [i]))
            moved = np.abs(statistic.utilities(whole, ()) - statistic.utilities(less, ())).max()
            assert moved <= statistic.unit, statistic.name
        return
    for i in range(records.rows):
        moved = np.linalg.norm(statistic.total(take(records, [i])).astype(np.float64))
        assert moved <= statistic.sensitivity * (1 + 1e-12), statistic.name


def check_replay(
    plan: Plan, table: pa.Table, absent: int, recorded: tuple[Release, list[Measured]] | None = None
) -> None:
    """On the neighbour without one record and with outputs frozen, the run does the same measurements,
    whose inputs differ by at most the sensitivity, and in stage 2 by at most the record's influence. Where the
    run on the table was recorded before, it is not done again."""
    release, measured = recorded or record_run(plan, table)
    kept = pa.array([i for i in range(table.num_rows) if i != absent], type=pa.int64())
    other, replayed = replay_run(plan, table.take(kept), [m.noisy for m in measured])
    assert [m.event for m in measured] == [m.event for m in replayed]
    record = take(records_of(table, plan.schema), [absent])
    influence = float(release.influence(record)[0])
    assert influence == float(release.weights.of(release.score.of(record))[0]) / 4096
    for one, two in zip(measured, replayed, strict=True):
        part = influence if one.event.weighted else 1.0
        assert one.distance(two) <= part * one.sensitivity * (1 + 1e-9), one.event.name
    assert same_release(release, other)


def same_release(one: Release, two: Release) -> bool:
    """Whether two releases agree in everything that would be written."""
    from repsynth.release.store import arrays_of, describe

    arrays, others = arrays_of(one), arrays_of(two)
    return (
        describe(one, "") == describe(two, "")
        and arrays.keys() == others.keys()
        and all(np.array_equal(arrays[name], others[name]) for name in arrays)
    )


def rewritten(release: Release, folder: Path, arrays: dict[str, np.ndarray | None], **changes: Any) -> Path:
    """The folder of a release after somebody wrote other arrays and descriptions into it, checksum and all.
    An array that is None is left out."""
    from repsynth.release.store import arrays_of

    release.save(folder)
    packed = BytesIO()
    kept = {name: array for name, array in (arrays_of(release) | arrays).items() if array is not None}
    np.savez_compressed(packed, **kept)  # type: ignore[arg-type]
    (folder / "arrays.npz").write_bytes(packed.getvalue())
    described = json.loads((folder / "release.json").read_text()) | changes
    described["arrays_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
    (folder / "release.json").write_text(json.dumps(described))
    return folder


def refused(folder: Path, why: str) -> None:
    """A release is refused for this reason, in one line."""
    with pytest.raises(ReleaseError, match=why) as refusal:
        Release.load(folder)
    assert "\n" not in str(refusal.value)


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
        charge = plan.charges[m.event.name].mu
        assert m.event.weighted == plan.charges[m.event.name].weighted, m.event.name
        assert charge * (1 - 1e-9) <= m.event.mu <= charge * (1 + 1e-12), m.event.name
    assert release.events == (*(m.event for m in others), *([plan.training] if plan.training else []))
    assert len(rounds) == (plan.training.rounds if plan.training else 0)
    budget = plan.budget
    if plan.training is None:
        assert budget.mu * (1 - 1e-6) <= release.privacy.mu <= budget.mu
    assert budget.epsilon * (0.998 if plan.training else 0.999999) <= release.privacy.epsilon <= budget.epsilon


def check_noise_scale(plan: Plan, table: pa.Table) -> None:
    """The noise that was added has the claimed scale: a chi-square test over all cells of some runs. Repeatable;
    with other seeds it would fail with a chance of 2e-10."""
    from scipy.stats import chi2

    draws, seeds = np.zeros(0), count()
    while len(draws) < 3000:
        for m in record_run(plan, table, seed=next(seeds))[1]:
            if isinstance(m.event, ExponentialEvent):
                continue
            # Rounding to integers adds a twelfth.
            scale = np.sqrt(m.event.sigma**2 + 1 / 12)
            draws = np.append(draws, (m.noisy - m.exact).astype(np.float64) / scale)
    tail = float(chi2.cdf(draws @ draws, len(draws)))
    assert 1e-10 < tail < 1 - 1e-10, (tail, len(draws))


@contextmanager
def repeatable(seed: int) -> Iterator[None]:
    """An audit that draws from this seed whatever it would draw afresh: it finds the same every time."""
    meter = partial(Meter, entropy=seeded_entropy(seed))
    make_generator, seeds = np.random.default_rng, count(1000 * seed)

    def seeded_run(*arguments: Any, **options: Any) -> Release:
        return run(*arguments, **options, noise_seed=next(seeds))

    def seeded_generator(seed: Any = None) -> np.random.Generator:
        return make_generator(next(seeds) if seed is None else seed)

    with ExitStack() as patches:
        for owner, name, value in (
            (audit, "run", seeded_run),
            (audit, "Meter", meter),
            (np.random, "default_rng", seeded_generator),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        yield
