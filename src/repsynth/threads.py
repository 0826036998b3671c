"""Run a function on several threads and keep the order of its results."""

import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

Item = TypeVar("Item")
Made = TypeVar("Made")

_MOST_WORKERS = 8

_KEPT = 16 * 2**20
"""Bytes."""


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def how_many_workers() -> int:
    return min(processors(), _MOST_WORKERS)


def _keep_memory() -> None:
    """Make glibc keep freed memory for the next arrays.

    glibc returns memory above twice the largest block that was ever freed. Getting it again takes up to a tenth of
    the run time. Freeing one untouched block raises the limit at no cost.
    """
    np.empty(_KEPT, dtype=np.uint8)


def in_order(function: Callable[[Item], Made], items: Iterable[Item], workers: int) -> Generator[Made]:
    """Yield the results of a function in the order of the items. Only a few results wait in memory.

    >>> list(in_order(abs, [3, -2, 1], workers=2))
    [3, 2, 1]
    """
    _keep_memory()
    if workers == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(workers, thread_name_prefix="repsynth")
    running: deque[Future[Made]] = deque()
    try:
        for item in items:
            running.append(pool.submit(function, item))
            if len(running) > workers:
                yield running.popleft().result()
        while running:
            yield running.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
