"""Run tests against a changed module. No file is touched.

A server process collects the tests once. For each change it forks a child, replaces the code of the changed
function there and runs the tests that should notice. A change outside of functions needs a fresh import, so its
child is forked from a server that has not imported repsynth.
"""

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
_OPTIONS = (
    *("-x", "-q", "-s", "--tb=no", "--hypothesis-profile=first-failure"),
    *("-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:randomly"),
)
_SECONDS = 60  # of CPU time; a fault that makes a test hang is noticed
_WAIT = 300  # seconds until a test that waits for something is given up


@dataclass(frozen=True)
class Change:
    """A module's changed source, and the tests that should notice, as pytest names them."""

    name: str
    module: str
    source: str
    tests: tuple[str, ...]
    inside: bool = False
    """Whether the change is inside a function, so that its code can be replaced after import."""


def path_of(module: str) -> Path:
    return ROOT / "src" / Path(*module.split(".")).with_suffix(".py")


# --- changes by syntax tree ---


def replaced(source: str, scope: str, find: str, put: str) -> str:
    """Replace one node in the function or class `scope` of a source.

    `find` must match exactly one node there, whatever its layout and line.

    >>> replaced("def f(x):\\n    return max(x, 1)", "f", "max(x, 1)", "x")
    'def f(x):\\n    return x'
    """
    tree = ast.parse(source)
    within = tree if not scope else _named(tree, scope.split("."))
    wanted, new = _node(find), _node(put)
    alike = (node for node in ast.walk(within) if type(node) is type(wanted))
    found = [node for node in alike if ast.dump(node) == ast.dump(wanted)]
    if len(found) != 1:
        raise LookupError(f"'{find}' is {len(found)} times in {scope or 'the module'}")
    return ast.unparse(ast.fix_missing_locations(_Swap(found[0], new).visit(tree)))


def is_inside(source: str, scope: str) -> bool:
    return bool(scope) and isinstance(_named(ast.parse(source), scope.split(".")), ast.FunctionDef)


def _named(tree: ast.AST, names: Sequence[str]) -> ast.AST:
    for name in names:
        tree = next(
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name
        )
    return tree


def _node(text: str) -> ast.AST:
    """Return the expression or the statement of a text; `pass` in place of nothing."""
    (statement,) = ast.parse(text or "pass").body
    return statement.value if isinstance(statement, ast.Expr) else statement


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


# --- a server of outcomes ---


class Server:
    """Two processes that tell the outcome of changes: one with these tests collected, one fresh."""

    def __init__(self, tests: Iterable[str]) -> None:
        self._tests = list(dict.fromkeys(tests))
        self._started: dict[bool, subprocess.Popen[str]] = {}

    def outcome(self, change: Change) -> str:
        """Return caught, survived, hung, or error where the tests could not be run."""
        process = self._started.get(change.inside) or self._start(change.inside)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(asdict(change)) + "\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    def close(self) -> None:
        for process in self._started.values():
            with process:  # closes its pipes and waits
                pass

    def _start(self, inside: bool) -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, *(self._tests if inside else [])]
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._started[inside] = process
        return process


def outcomes(changes: Iterable[Change], *, workers: int = 1) -> Iterator[tuple[Change, str]]:
    """Yield the outcome of each change as its tests end, from processes that import repsynth afresh."""
    for library in _LIBRARIES:
        importlib.import_module(library)
    assert not any(name.partition(".")[0] == "repsynth" for name in sys.modules)
    yield from _each(changes, workers, _run)


def outcomes_inside(
    changes: Sequence[Change], tell: Callable[[Change, str], None], *options: str, workers: int = 1
) -> None:
    """Tell the outcome of changes inside of functions; the tests are collected once, with these pytest options."""
    import pytest

    os.chdir(ROOT)
    files = dict.fromkeys(test.partition("::")[0] for change in changes for test in change.tests)

    def each(run: Callable[[Change], int]) -> None:
        for change, outcome in _each(changes, workers, run):
            tell(change, outcome)

    pytest.main([*_OPTIONS, *options, *files], plugins=[_Collected(each)])


def _serve(tests: Sequence[str]) -> None:
    """Answer each change on standard input with its outcome on standard output."""
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    silent = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):  # what pytest and the tests print is not an answer
        os.dup2(silent, stream)

    def each(run: Callable[[Change], int]) -> None:
        for line in requests:
            told = json.loads(line)
            change = Change(**told | {"tests": tuple(told["tests"])})
            (_, outcome), *_ = _each([change], 1, run)
            answers.write(outcome + "\n")
            answers.flush()

    for library in _LIBRARIES:
        importlib.import_module(library)
    if not tests:
        each(_run)
        return
    import pytest

    pytest.main([*_OPTIONS, *tests], plugins=[_Collected(each)])


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
        else:
            time.sleep(0.01)


def _told(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "hung" if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGALRM) else "caught"
    # Pytest: all passed, some failed, interrupted (a module that cannot be imported), and other numbers.
    return {0: "survived", 1: "caught", 2: "caught"}.get(os.waitstatus_to_exitcode(status), "error")


def _fork(change: Change, run: Callable[[Change], int]) -> int:
    """Return the number of a process that runs the tests on the changed module."""
    process = os.fork()
    if process:
        return process
    code = 3
    try:
        used = int(time.process_time())
        resource.setrlimit(resource.RLIMIT_CPU, (used + _SECONDS, used + _SECONDS + 5))
        signal.alarm(_WAIT)
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(silent, stream)
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

    each: Callable[[Callable[[Change], int]], None]

    def pytest_runtestloop(self, session: Any) -> bool:
        """Run the tests of each change in a process of its own."""
        self.session = session
        self.functions = _functions_by_file()
        gc.freeze()  # a child that collects garbage would copy all that the server holds
        self.each(self.run)
        return True

    def run(self, change: Change) -> int:
        """Whether any of the change's tests fails."""
        items = [item for item in self.session.items if _is_of(item.nodeid, change.tests)]
        if not items or not _change_functions(change, self.functions):
            return 3
        for item, following in zip(items, [*items[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.testsfailed:
                return 1
        return 0


def _is_of(test: str, names: Sequence[str]) -> bool:
    """Whether a test is one of these or in these, files and folders."""
    return any(test == name or test.startswith((f"{name}::", f"{name}[", f"{name}/")) for name in names)


def _functions_by_file() -> dict[str, list[FunctionType]]:
    found: dict[str, list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            found[each.__code__.co_filename].append(each)
    return found


def _change_functions(change: Change, functions: Mapping[str, Sequence[FunctionType]]) -> int:
    """Give all functions of a module the code that they have in its changed source; return how many there are."""
    path = str(path_of(change.module))
    if path not in functions:  # no test has imported it while it was collected
        importlib.import_module(change.module)
        functions = _functions_by_file()
    old, new = (
        _codes_by_name(compile(source, path, "exec"))
        for source in (path_of(change.module).read_text(), change.source)
    )
    other = {
        was: now
        for name, codes in old.items()
        if len(codes) == len(new[name])  # the change may add or remove a comprehension
        for was, now in zip(codes, new[name], strict=True)
    }
    for each in functions[path]:
        each.__code__ = other.get(each.__code__, each.__code__)
    return len(functions[path])


def _codes_by_name(code: CodeType) -> dict[str, list[CodeType]]:
    found: dict[str, list[CodeType]] = defaultdict(list)
    for each in _codes(code):
        found[each.co_qualname].append(each)
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


if __name__ == "__main__":
    _serve(sys.argv[1:])
