"""Runs tests against a changed copy of a module: the change is made as it is imported, no file is touched.

Each run is a process of its own, forked from one that holds the libraries already and nothing of repsynth; or, for
changes inside of functions, from one that has collected the tests already.
"""

import gc
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
from types import CodeType, FunctionType, ModuleType
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
_OPTIONS = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
_SECONDS = 60  # of a processor: a fault that makes a test hang is one that shows


@dataclass(frozen=True)
class Change:
    """A module's other source, and the tests that should notice: their names, as pytest takes them."""

    name: str
    module: str
    source: str
    tests: tuple[str, ...]
    inside: bool = False
    """Whether it is inside of a function, so that the function can be changed after it was imported."""


def path_of(module: str) -> Path:
    """Where the source of a module of the package is."""
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


def outcomes(changes: Iterable[Change], *, workers: int = 1) -> Iterator[tuple[Change, str]]:
    """For each change, as its tests end: caught, survived, hung, or error where the tests could not be run."""
    for library in _LIBRARIES:
        importlib.import_module(library)
    assert not any(name.partition(".")[0] == "repsynth" for name in sys.modules)
    yield from _each(changes, workers, _run)


def outcomes_inside(
    changes: Sequence[Change], tell: Callable[[Change, str], None], *options: str, workers: int = 1
) -> None:
    """Tell the same of changes inside of functions, which takes less: the tests are collected once, with these
    options of pytest, and functions changed in place."""
    import pytest

    os.chdir(ROOT)
    files = dict.fromkeys(test.partition("::")[0] for change in changes for test in change.tests)
    pytest.main([*_OPTIONS, "-s", *options, *files], plugins=[_Collected(changes, tell, workers)])


def _each(changes: Iterable[Change], workers: int, run: Callable[[Change], int]) -> Iterator[tuple[Change, str]]:
    """Fork, run, wait."""
    waiting = iter(changes)
    running: dict[int, Change] = {}
    while True:
        while len(running) < workers and (change := next(waiting, None)) is not None:
            running[_fork(change, run)] = change
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


def _fork(change: Change, run: Callable[[Change], int]) -> int:
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
        code = run(change)
    finally:
        os._exit(code)


def _run(change: Change) -> int:
    import pytest

    os.chdir(ROOT)
    sys.meta_path.insert(0, _Changed(change))
    return int(pytest.main([*_OPTIONS, *change.tests]))


@dataclass
class _Collected:
    """Takes the place of pytest's own loop over the tests that it has collected."""

    changes: Sequence[Change]
    tell: Callable[[Change, str], None]
    workers: int

    def pytest_runtestloop(self, session: Any) -> bool:
        """In a process for each change."""
        self.session = session
        for change, outcome in _each(self.changes, self.workers, self.run):
            self.tell(change, outcome)
        return True

    def run(self, change: Change) -> int:
        """Whether any of the change's tests fails."""
        items = [item for item in self.session.items if _is_of(item.nodeid, change.tests)]
        if not items or not _change_functions(change):
            return 3
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                return 1
        return 0


def _is_of(test: str, names: Sequence[str]) -> bool:
    """Whether a test is one of these or in these, files and folders."""
    return any(test == name or test.startswith((f"{name}::", f"{name}[", f"{name}/")) for name in names)


def _change_functions(change: Change) -> int:
    """Give all functions of a module the code that they have in its other source; how many there are."""
    path = str(path_of(change.module))
    old, new = (
        list(_codes(compile(source, path, "exec")))
        for source in (path_of(change.module).read_text(), change.source)
    )
    other = {(was.co_qualname, was.co_firstlineno): now for was, now in zip(old, new, strict=True)}
    found = 0
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == path:
            each.__code__ = other[each.__code__.co_qualname, each.__code__.co_firstlineno]
            found += 1
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    """All that is compiled within, in order."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes(constant)


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
