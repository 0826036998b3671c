"""A run that an attacker watches, and what the released numbers and a synthetic table tell of each target.

The attacker knows the settings, the release and everybody who is in all runs. A measurement k released y = b + Σ
c + N, where b is the part of those, c(z) what a target z adds if it takes part, and N noise of σ. With E = b +
half of what all targets would add,

    projected    ⟨c(z), y − E⟩ / σ², added up: the likelihood ratio but for the other targets' coins
    decoded      those, with the coins of all targets worked out at once: (Σ C Cᵀ/σ² + 4 I)⁻¹ Σ C (y − E)/σ²
    known        the likelihood ratio for one who knows the other targets' coins as well: no attack does better

A training's rounds are not watched; of what comes out of it, the likelihood of each target is.

All runs of an attack, in several processes. Each result is kept in a file, so that a second start resumes.
"""

import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Floats, Ints
from repsynth.attacks.anonymeter import GUESSING_RUNS, make_guesses
from repsynth.attacks.targets import FEWEST_RUNS, Victims, coins
from repsynth.engine import Kernel
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError, DataError, shown
from repsynth.evaluation.points import make_attacks, nearest
from repsynth.io.records import UNITS, Records, no_records
from repsynth.mechanism.kernels import Statistic
from repsynth.mechanism.meter import Meter, sigma_for
from repsynth.mechanism.noise import seeded_entropy
from repsynth.models.base import Hooks, ModelRelease
from repsynth.planning.plan import Plan
from repsynth.release.store import check_private
from repsynth.scoring.stage import StageOne, measure_stage_one
from repsynth.storage import beside

_PRIOR = 0.5  # of a count


@dataclass(frozen=True)
class SharedEngine(LocalEngine):
    """The records of all runs, then the targets that take part. It keeps the last sum of the former."""

    last: dict[str, Ints] = field(default_factory=dict)

    def sum(self, kernel: Kernel) -> Ints:
        base, present = (total_of(kernel, records) for records in self.data)
        self.last["base"] = base
        return base + present


def total_of(kernel: Kernel, records: Records) -> Ints:
    """The sum over records, in units where these are persons'."""
    total = kernel.total(no_records())
    for factor, some in records.by_factor():
        total = total + kernel.total(some) * factor
    return total


@dataclass
class Watch:
    """What an attacker makes of each measurement."""

    victims: Victims
    present: Bools
    by_stage: Floats = field(init=False)  # (2, targets)
    known: Floats = field(init=False)
    gram: Floats = field(init=False)

    def __post_init__(self) -> None:
        count = self.victims.owners.count
        self.by_stage, self.known, self.gram = np.zeros((2, count)), np.zeros(count), np.zeros((count, count))

    def see(self, statistic: Statistic, base: Floats, noisy: Ints, sigma: float) -> None:
        """A measurement: σ is in the units of its entries."""
        touched, steps = contributions(statistic, self.victims)
        steps = steps / sigma
        excess = (noisy[touched] - base[touched]) / sigma - 0.5 * steps.sum(axis=0)
        gram = steps @ steps.T
        self.gram += gram
        projected = steps @ excess
        self.by_stage[int(statistic.weighted)] += projected
        # Half of each target was taken off; with the coins known, the others' parts go, and half of its own stays.
        coin = np.where(self.present, 0.5, -0.5)
        own = np.diag(gram)
        self.known += projected - gram @ coin + own * coin

    def decoded(self) -> Floats:
        """The coins of all targets, worked out at once."""
        count = len(self.known)
        found: Floats = np.linalg.solve(self.gram + 4 * np.eye(count), self.by_stage.sum(axis=0))
        return found


def contributions(statistic: Statistic, victims: Victims) -> tuple[Ints, Floats]:
    """The entries that some target touches, and what each target adds to them with all their rows."""
    each = getattr(statistic, "each", None)  # some can tell at once what each record adds
    targets, owners = victims.targets, victims.owners
    if each is not None and victims.schema.person is None:
        parts = each(targets)
    else:
        whole = 1 if victims.schema.person is None else UNITS
        own = (targets.take(np.flatnonzero(owners.target == i)) for i in range(owners.count))
        parts = np.array([total_of(statistic, rows) for rows in own]) / whole
    touched = np.flatnonzero(np.any(parts != 0, axis=0))
    return touched, parts[:, touched].astype(np.float64)


@dataclass
class WatchedMeter(Meter):
    """Every measurement is also seen by the attacker; choices and trainings are not."""

    watch: Watch | None = None

    def measure(self, statistic: Statistic, *, mu: float) -> Ints:
        noisy = super().measure(statistic, mu=mu)
        assert isinstance(self.engine, SharedEngine)
        assert self.watch is not None
        sigma = sigma_for(statistic.sensitivity * self.engine.rows_per_person, mu)
        self.watch.see(statistic, self.engine.last["base"] / self.engine.units, noisy, sigma)
        return noisy


@dataclass(frozen=True)
class Observed:
    """A run, and what was seen of it."""

    present: Bools
    stage: StageOne
    fit: ModelRelease
    watch: Watch
    generator: np.random.Generator

    def scores(self) -> Iterator[tuple[str, Floats]]:
        """What the released numbers tell of each target."""
        yield "stage one", self.watch.by_stage[0]
        yield "stage two", self.watch.by_stage[1]
        yield "decoded", self.watch.decoded()
        yield "known", self.watch.known
        likelihoods = getattr(self.fit, "log_likelihoods", None)  # of a model that was trained
        if likelihoods is not None:
            victims = self.watch.victims
            yield "likelihood", victims.owners.means(likelihoods(victims.targets))


def observe(plan: Plan, victims: Victims, *, seed: int, run: int, method: int) -> Observed:
    """Carry out a plan once. The noise comes from a seed: nothing of this is released."""
    present = coins(seed, run, victims.owners.count)
    taking_part = victims.targets.take(present[victims.owners.target])
    engine = SharedEngine([victims.base, taking_part], person=plan.schema.person)
    watch = Watch(victims, present)
    noise = int(np.random.SeedSequence([seed, run, method]).generate_state(1, np.uint64)[0])
    meter = WatchedMeter(
        engine, plan.scale, seeded_entropy(noise), delta=plan.delta, planned=plan.charges, watch=watch
    )
    stage = measure_stage_one(meter, plan, lambda step: None)
    fit = plan.model.measure(meter, stage, plan, Hooks())
    return Observed(present, stage, fit, watch, np.random.default_rng(noise))


def table_scores(
    synthetic: Records, victims: Victims, stage: StageOne, fit: ModelRelease, to_reference: Floats | None
) -> Iterator[tuple[str, Floats]]:
    """What a synthetic table tells of each target, the mean over their rows: distances, densities, and the cells
    that the model measured. Scores that need people from outside are left out where there are none."""
    places, means = victims.places, victims.owners.means
    near = nearest(places.place(victims.targets), places.place(synthetic))
    others = [synthetic, victims.reference, victims.base, victims.targets]
    cells = _focal_counts(stage, fit, victims.targets, others)
    yield "distance", means(-near[:, 0])
    yield "closeness", means(-np.log(near.mean(axis=1) + 1e-6))
    # For one who knows all others but the targets: how many more than expected share a cell, where few do.
    expected = cells[2] + cells[3] / 2
    excess = cells[0] * (stage.histograms.rows / synthetic.rows) - expected
    yield "cells", means((excess / (expected + _PRIOR)).sum(axis=0))
    if to_reference is not None:
        yield "density ratio", means(make_attacks(near, to_reference).density)
        ratio = (cells[0] + _PRIOR) / (cells[1] + _PRIOR) * (victims.reference.rows / synthetic.rows)
        yield "measured cells", means(np.log(ratio).mean(axis=0))


def _focal_counts(stage: StageOne, fit: ModelRelease, targets: Records, others: Sequence[Records]) -> list[Floats]:
    """For each of the others: how many records share the target's cell, in each table that the model measured, as
    far as they count.

    Tables of `mst` and `aim` are those that their release lists; of a model without tables, each column by label.
    """
    found: list[list[Any]] = [[] for _ in others]
    for columns, shape in _focal_tables(stage, fit):
        ours = _cells(columns, shape, targets)
        size = int(np.prod(shape))
        for side, records in zip(found, others, strict=True):
            theirs = _cells(columns, shape, records)
            inside = theirs >= 0
            counts = None if records.whose is None else records.whose.factors[inside] / UNITS
            side.append(np.bincount(theirs[inside], counts, minlength=size + 1)[ours])  # −1: the last one, empty
    return [np.array(side, dtype=np.float64).reshape(len(side), targets.rows) for side in found]


def _focal_tables(stage: StageOne, fit: ModelRelease) -> Iterator[tuple[list[Any], tuple[int, ...]]]:
    """The columns of each table, as what tells a record's group, and its shape."""
    seen = set()
    for kernel in fit.kernels(choices=False).values():
        for cross in getattr(kernel, "pairs", ()):
            if cross not in seen:
                seen.add(cross)
                groups: Any = kernel.domain.groups  # type: ignore[union-attr]
                yield [groups[i] for i in cross], tuple(groups[i].count for i in cross)
    if seen:
        return
    bins, label = stage.histograms.bins, stage.schema.label
    of_label = [each for each in bins if each.column.name == label]
    for each in bins:
        if each.column.name != label:
            yield [*of_label, each], tuple(part.count for part in (*of_label, each))


def _cells(columns: Sequence[Any], shape: tuple[int, ...], records: Records) -> Ints:
    """The cell of each record; −1 where it has none."""
    cell, inside = np.zeros(records.rows, dtype=np.int64), np.ones(records.rows, dtype=bool)
    for column, size in zip(columns, shape, strict=True):
        group = np.asarray(column.of(records))
        inside &= group >= 0
        cell = cell * size + group
    return np.where(inside, cell, -1)


STAMP = "PRIVATE: attacks on the records of a table. For the curator only; never publish."
_RUNS, _ABOUT, _VERSION = "runs", "attack.json", 4
_DRAWN = 2000, 20_000
"""Synthetic rows that the attacker draws: fewer hide what the model knows, more are of no use."""

Task = tuple[str, int]
"""A method and the number of a run."""
Result = dict[str, NDArray[Any]]
"""Of a run: each score of each target, who took part, their influence, and counts of guesses."""


@dataclass(frozen=True)
class Campaign:
    """Some plans, the people that they are tried on, and how often."""

    plans: Mapping[str, Plan]
    victims: Victims
    runs: int
    seed: int

    @cached_property
    def to_reference(self) -> Floats | None:
        """The distances of each target's rows to people from outside: the same in all runs."""
        if not self.victims.reference.rows:
            return None
        place = self.victims.places.place
        return nearest(place(self.victims.targets), place(self.victims.reference))

    def address(self) -> str:
        """A hash of all that a run's result depends on, but which run it is."""
        parts: list[Any] = [_VERSION, self.victims.digest, self.victims.rows_of_targets.tolist(), self.seed]
        parts += [(name, plan.settings.dump(), sorted(plan.charges)) for name, plan in self.plans.items()]
        parts += [repr(self.victims.schema)]
        parts += [plan.borrowed.digest for plan in self.plans.values() if plan.borrowed]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]

    def carry_out(self, method: str, run: int) -> Result:
        plan, victims = self.plans[method], self.victims
        number = list(self.plans).index(method)
        seen = observe(plan, victims, seed=self.seed, run=run, method=number)
        rows = np.clip(seen.stage.histograms.rows, *_DRAWN)
        synthetic = seen.fit.sampler.draw(int(rows), seen.generator)
        influence = victims.owners.influence(seen.stage.influence(victims.targets))
        result: Result = {"present": seen.present, "influence": influence}
        result |= dict(seen.scores())
        result |= dict(table_scores(synthetic, victims, seen.stage, seen.fit, self.to_reference))
        guesses = make_guesses(synthetic, victims, seen.present, seen.generator) if run < GUESSING_RUNS else None
        return result if guesses is None else result | {"guesses": guesses}


def carry_out_all(
    campaign: Campaign,
    folder: Path,
    *,
    jobs: int = 1,
    on_begin: Callable[[int, int], None] = lambda done, total: None,
    on_done: Callable[[], None] = lambda: None,
) -> dict[str, list[Result]]:
    """Return the results of all runs, by method. Those that are in the folder are not made again."""
    if not 1 <= jobs <= 256:
        raise ConfigError("the number of jobs must lie between 1 and 256")
    if campaign.runs < FEWEST_RUNS:
        raise ConfigError(f"{campaign.runs} runs tell nothing; give --runs {FEWEST_RUNS} at least, better 64")
    _open(campaign, folder)
    tasks = [(method, run) for run in range(campaign.runs) for method in campaign.plans]
    done = {task: found for task in tasks if (found := _read(campaign, folder, *task)) is not None}
    on_begin(len(done), len(tasks))
    left = [task for task in tasks if task not in done]
    made: Iterator[tuple[Task, Result]]
    if jobs == 1:
        made = ((task, _work(campaign, folder, *task)) for task in left)
    else:
        made = _in_processes(campaign, folder, jobs, left)
    for task, result in made:
        done[task] = result
        on_done()
    return {method: [done[method, run] for run in range(campaign.runs)] for method in campaign.plans}


def _in_processes(campaign: Campaign, folder: Path, jobs: int, tasks: list[Task]) -> Iterator[tuple[Task, Result]]:
    context = multiprocessing.get_context("spawn")  # forking a process that uses OpenMP may hang
    with ProcessPoolExecutor(jobs, context, initializer=_start, initargs=(campaign, folder)) as pool:
        futures = {pool.submit(_in_worker, *task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BrokenProcessPool:
            raise DataError(
                "a process was killed, perhaps for lack of memory; run the same command again to resume, with "
                "fewer --jobs"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


_shared: dict[str, Any] = {}


def _start(campaign: Campaign, folder: Path) -> None:
    """Begin a worker with one thread; Ctrl-C is handled by the parent."""
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(1)
    _shared["campaign"], _shared["folder"] = campaign, folder


def _in_worker(method: str, run: int) -> Result:
    return _work(_shared["campaign"], _shared["folder"], method, run)


def _work(campaign: Campaign, folder: Path, method: str, run: int) -> Result:
    result = campaign.carry_out(method, run)
    with beside(_path(folder, method, run), private=True, replace=True) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, note=np.array(STAMP), **result)  # type: ignore[arg-type]
    return result


def _open(campaign: Campaign, folder: Path) -> None:
    """Make the folder, or check that it holds runs of the same attack."""
    address = campaign.address()
    check_private(folder)
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _ABOUT).exists():
        raise ConfigError(f"{folder}: holds other files; attacks are PRIVATE, name a new folder for them with -o")
    try:
        (folder / _RUNS).mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"{shown(folder)}: cannot be made ({error.strerror}); name another folder with -o"
        ) from None
    about = folder / _ABOUT
    if not about.exists():
        with beside(about, private=True, replace=True) as temporary:
            temporary.write_bytes(msgspec.json.encode({"note": STAMP, "address": address}))
        return
    try:
        found = msgspec.json.decode(about.read_bytes())["address"]
    except (msgspec.MsgspecError, OSError, KeyError, TypeError):
        found = None
    if found != address:
        raise ConfigError(
            f"{folder}: holds runs of another table, other settings or other targets; name another folder with -o"
        )


def _read(campaign: Campaign, folder: Path, method: str, run: int) -> Result | None:
    """A run's result; None where it is not there, or damaged."""
    try:
        with np.load(_path(folder, method, run), allow_pickle=False) as file:
            result = {name: file[name] for name in file.files if name != "note"}
    except Exception:  # whatever is wrong with the file, the run is made again
        return None
    count = campaign.victims.owners.count
    whole = {"present", "influence"} <= result.keys()
    return result if whole and all(len(a) == count for name, a in result.items() if name != "guesses") else None


def _path(folder: Path, method: str, run: int) -> Path:
    return folder / _RUNS / f"{method}-{run:05d}.npz"
