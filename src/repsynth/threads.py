"""Work that several threads share: in order, with few pieces waiting."""

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
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def how_many_workers() -> int:
    return min(processors(), _MOST_WORKERS)


def _keep_memory() -> None:
    """Have the C library keep what arrays leave behind, for the next ones.

    glibc gives memory back beyond twice the largest block that was ever freed, and getting it again takes up to a
    tenth of the time. So free one; it is never touched, and costs nothing.
    """
    np.empty(_KEPT, dtype=np.uint8)


def in_order(function: Callable[[Item], Made], items: Iterable[Item], workers: int) -> Generator[Made]:
    """A function of each item, in order; some are worked on at the same time, and few wait.

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
