"""Trace one `repsynth synthesize`: how many modules a reader must open to follow it.

    python tests/tracing.py aim

Counts the modules of the package whose functions run, and how often control passes from one module to another.
Code that runs at import, comprehensions and lambdas do not count.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from types import FrameType
from typing import Any, NamedTuple

IGNORED = {"<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>", "<lambda>"}


class Path(NamedTuple):
    """The modules in the order in which they are first entered, and the number of switches between modules."""

    modules: list[str]
    switches: int


class Tracer:
    """A profile function that records calls into the package."""

    def __init__(self, package: str) -> None:
        self.package = package + os.sep
        self.modules: list[str] = []
        self.switches = 0
        self._last = ""
        self._importing = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(self.package):
            return
        if code.co_name == "<module>":
            self._importing += 1 if event == "call" else -1
        elif event == "call" and not self._importing and code.co_name not in IGNORED:
            module = code.co_filename.removeprefix(self.package).removesuffix(".py").removesuffix("/__init__")
            if module not in self.modules:
                self.modules.append(module)
            self.switches += module != self._last
            self._last = module


def trace(model: str) -> Path:
    """Trace a run on simulated people, in a process of its own."""
    run = subprocess.run([sys.executable, __file__, model, "--json"], capture_output=True, text=True, check=True)
    return Path(**json.loads(run.stdout))


def _trace(model: str) -> Path:
    import pyarrow.csv

    import repsynth
    from repsynth import datasets
    from repsynth.cli import main

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        pyarrow.csv.write_csv(datasets.simulate_people(), "people.csv")
        with open("schema.toml", "w", encoding="utf-8") as file:
            file.write(datasets.schema_text("people"))
        command = f"synthesize people.csv --schema schema.toml --epsilon 1 --model {model} --release release"
        tracer = Tracer(os.path.dirname(repsynth.__file__))
        with contextlib.redirect_stdout(io.StringIO()):
            sys.setprofile(tracer)
            try:
                failed = main(command.split())
            finally:
                sys.setprofile(None)
    if failed:
        raise SystemExit(failed)
    return Path(tracer.modules, tracer.switches)


if __name__ == "__main__":
    found = _trace(sys.argv[1])
    if "--json" in sys.argv:
        print(json.dumps(found._asdict()))
    else:
        print("\n".join(found.modules))
        print(f"{len(found.modules)} modules, {found.switches:,} switches between modules")
