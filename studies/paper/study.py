"""Run the cells of a study: one file per result, several processes, and what is done is never done again."""

import hashlib
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import msgspec
from threadpoolctl import threadpool_limits

from repsynth import datasets
from repsynth.errors import ConfigError, DataError, shown
from repsynth.storage import beside
from studies.paper import STAMP
from studies.paper.grid import Cell
from studies.paper.literal import run_literal
from studies.paper.results import Result
from studies.paper.sound import run_sound

EFFORT = {"sim": 2.0, "breast_cancer": 1.0, "adult": 25.0, "german_credit": 1.0}
"""About how long a cell of each dataset takes, for the time left."""


class Stored(msgspec.Struct, frozen=True):
    """The file of a cell: its result, or how it failed. A failure stays one until the study is run again."""

    cell: Cell
    seconds: float
    result: Result | None = None
    failure: str | None = None
    note: str = STAMP


def run_study(
    cells: Sequence[Cell],
    folder: Path,
    *,
    jobs: int = 1,
    data_dir: str | None = None,
    on_done: Callable[[Stored], None] = lambda stored: None,
) -> list[Stored]:
    """All outcomes of a study, in the order of its cells; results already in the folder are not made again."""
    if not 1 <= jobs <= 256:
        raise ConfigError("the number of jobs must lie between 1 and 256")
    # What cannot be had is told before anything runs.
    digests = {name: _digest(name, data_dir) for name in sorted({cell.dataset for cell in cells})}
    make_folder(folder)
    paths = {cell: folder / f"{cell.address(digests[cell.dataset])}.json" for cell in cells}
    stored = {cell: found for cell in cells if (found := read_cell(cell, paths[cell])) and found.result}
    for found in stored.values():
        on_done(found)
    left = [cell for cell in cells if cell not in stored]
    if jobs == 1 or len(left) < 2:
        for cell in left:
            stored[cell] = run_cell(cell, paths[cell], data_dir)
            on_done(stored[cell])
        return [stored[cell] for cell in cells]
    threads = max(1, multiprocessing.cpu_count() // jobs)
    context = multiprocessing.get_context("spawn")  # forking a process that uses OpenMP may hang
    with ProcessPoolExecutor(jobs, context, initializer=_start, initargs=(threads,)) as pool:
        futures = [pool.submit(run_cell, cell, paths[cell], data_dir) for cell in left]
        try:
            for future in as_completed(futures):
                done = future.result()
                stored[done.cell] = done
                on_done(done)
        except BrokenProcessPool:
            raise DataError(
                f"a process was killed, perhaps for want of memory, with {len(stored)} of {len(cells)} cells "
                "done; run the same command again to go on, with fewer --jobs"
            ) from None
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [stored[cell] for cell in cells]


def _start(threads: int) -> None:
    """Begin a worker process: its share of the processors, and Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(threads)


def run_cell(cell: Cell, path: Path, data_dir: str | None) -> Stored:
    """Run one cell and write its file."""
    start = time.perf_counter()
    result, failure = None, None
    try:
        result = (run_sound if cell.protocol == "sound" else run_literal)(cell, data_dir)
    except Exception as error:  # whatever it is, it is this cell's outcome, and the study goes on
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{type(error).__name__} in {place.name} ({Path(place.filename).name}:{place.lineno})"
    done = Stored(cell, time.perf_counter() - start, result, failure)
    with beside(path, replace=True) as temporary:
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(done)))
    return done


def read_cell(cell: Cell, path: Path) -> Stored | None:
    """The stored outcome of a cell; None where there is none, or a damaged one."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Stored)
    except (msgspec.MsgspecError, OSError):
        return None
    return found if found.cell == cell else None


def _digest(name: str, data_dir: str | None) -> bytes:
    """A hash of a dataset's table: results of other data are other results."""
    dataset = datasets.load(name, data_dir=data_dir)
    digest = hashlib.sha256()
    for column in dataset.table.combine_chunks().columns:
        digest.update(repr(column.to_pylist()).encode())
    return digest.digest()


def make_folder(folder: Path) -> None:
    """Make a folder for results, or say why not."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{shown(folder)}: cannot be made ({error.strerror}); name another folder with -o"
        ) from None
