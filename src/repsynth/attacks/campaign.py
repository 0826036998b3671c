"""All runs of an attack, in several processes. Each result is kept in a file, so that a second start resumes."""

import hashlib
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Floats
from repsynth.attacks.guesses import GUESSING_RUNS, make_guesses
from repsynth.attacks.observing import observe, table_scores
from repsynth.attacks.victims import FEWEST_RUNS, Victims
from repsynth.errors import ConfigError, DataError, shown
from repsynth.evaluation.nearest import nearest
from repsynth.planning.plan import Plan
from repsynth.release.store import check_private
from repsynth.storage import beside

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
        synthetic = seen.fit.sampler().draw(int(rows), seen.generator)
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
                "a process was killed, perhaps for want of memory; run the same command again to resume, with "
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
