"""Runs tests against a changed copy of a module: the change is made as it is imported, no file is touched.

Each run is a process of its own, forked from one that holds the libraries already and nothing of repsynth.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
_LIBRARIES = (
    "dp_accounting.pld",
    "mpmath",
    "msgspec",
    "numpy",
    "pyarrow.parquet",
    "pytest",
    "scipy.optimize",
    "scipy.special",
    "scipy.stats",
)
_SECONDS = 60  # of a processor: a fault that makes a test hang is one that shows


@dataclass(frozen=True)
class Change:
    """A module's other source, and the tests that should notice: their names, as pytest takes them."""

    name: str
    module: str
    source: str
    tests: tuple[str, ...]


def path_of(module: str) -> Path:
    """Where the source of a module of the package is."""
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


def outcomes(changes: Iterable[Change], *, workers: int = 1) -> Iterator[tuple[Change, str]]:
    """For each change, as its tests end: caught, survived, hung, or error where the tests could not be run."""
    for library in _LIBRARIES:
        importlib.import_module(library)
    assert not any(name.partition(".")[0] == "repsynth" for name in sys.modules)
    waiting = iter(changes)
    running: dict[int, Change] = {}
    while True:
        while len(running) < workers and (change := next(waiting, None)) is not None:
            running[_fork(change)] = change
        if not running:
            return
        done, status = os.waitpid(-1, os.WNOHANG)
        if done in running:
            yield running.pop(done), _told(status)
        time.sleep(0.02)


def _told(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "hung" if os.WTERMSIG(status) == signal.SIGXCPU else "caught"
    # Pytest: all passed, some failed, interrupted (a module that cannot be imported), and other numbers.
    return {0: "survived", 1: "caught", 2: "caught"}.get(os.waitstatus_to_exitcode(status), "error")


def _fork(change: Change) -> int:
    """The number of a process that runs the tests on the changed module."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS + 5))
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.meta_path.insert(0, _Changed(change))
        code = _run(change.tests)
    finally:
        os._exit(code)


def _run(tests: Sequence[str]) -> int:
    import pytest

    os.chdir(ROOT)
    return int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]))


class _Changed(importlib.abc.MetaPathFinder):
    """Finds the one module that is changed."""

    def __init__(self, change: Change) -> None:
        self.change = change

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> Any:
        """Of other modules it knows nothing."""
        if name != self.change.module:
            return None
        file = str(path_of(name))
        return importlib.util.spec_from_file_location(name, file, loader=_Loader(name, file, self.change.source))


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, name: str, file: str, source: str) -> None:
        super().__init__(name, file)
        self.source = source

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.source, self.path, "exec")


def report(changes: Iterable[Change], tell: Callable[[Change, str], None], *, workers: int = 1) -> dict[str, str]:
    """The outcome of each change by its name, told one by one."""
    found = {}
    for change, outcome in outcomes(changes, workers=workers):
        tell(change, outcome)
        found[change.name] = outcome
    return found
