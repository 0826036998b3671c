"""Ctrl-C, a kill and a full disk: nothing half written, no codes left behind, one line, and the ledger right."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.csv as pacsv
import pytest
from conftest import ALL_TYPES, make_people

from repsynth import Ledger, Release
from repsynth.cli import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="signals, limits and unnamed files of Linux"),
]

PARENT = """
import json, os, resource, signal, sys, tempfile
from repsynth.cli import main
from repsynth.io import write
from repsynth.engine import column_store
from repsynth.models.dp_sgd import Training
from repsynth.release import release
import repsynth.io.csv, repsynth.engine.local, repsynth.release.store

def end(how):
    if how == "full":  # no file may grow beyond this: what a full disk does, in any folder
        resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, resource.RLIM_INFINITY))
    elif how is not None:
        os.kill(os.getpid(), how)

def after(owner, name, times, how):
    function, calls = getattr(owner, name), []
    def ending(*given, **named):
        found = function(*given, **named)
        calls.append(name)
        if len(calls) == times:
            end(how)
        return found
    setattr(owner, name, ending)

def run(when, how, folder, scratch, command):
    os.chdir(folder)
    os.environ["TMPDIR"] = tempfile.tempdir = scratch
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    column_store.Codes.of.__func__.__kwdefaults__["memory"] = 0
    column_store._BLOCK, release._PIECE = 128, 512
    if when == "reading":
        after(column_store.Codes, "_part", 1, how)
    elif when == "measuring":
        after(column_store._Widened, "__init__", 40, how)  # one for each block
    elif when == "training":
        after(Training, "advance", 3, how)
    elif when == "writing":
        after(write._CsvWriter, "write", 2, how)
    return main(command)

for line in sys.stdin:  # a child for each command: what they all need is imported once
    child = os.fork()
    if child == 0:
        code = 70
        try:
            code = run(*json.loads(line))
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""

Ask = Callable[..., int]
PEOPLE = make_people(4000)
COMMAND = "synthesize people.csv --schema schema.toml --model naive-bayes --epsilon 1 --delta 1e-6 -o drawn.csv"


@pytest.fixture(scope="module")
def forked() -> Iterator[Ask]:
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", PARENT], **pipes) as parent:  # type: ignore[call-overload]

        def ask(when: str | None, how: str | int | None, folder: Path, scratch: Path, command: list[str]) -> int:
            parent.stdin.write(json.dumps([when, how, str(folder), str(scratch), command]) + "\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        yield ask
        parent.stdin.close()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    pacsv.write_csv(PEOPLE, tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "init", "ledger.db", "--epsilon", "1", "--delta", "1e-6"]) == 0
    capsys.readouterr()
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {"people.csv", "schema.toml", "ledger.db", "out", "err"}


def spent(folder: Path) -> list[bool]:
    """Whether each run in the ledger came to its end."""
    return [spending.finished for spending in Ledger(folder / "ledger.db").balance("data").spendings]


ENDS = {"Ctrl-C": (signal.SIGINT, 130), "terminated": (signal.SIGTERM, -signal.SIGTERM)}
ENDS |= {"killed": (signal.SIGKILL, -signal.SIGKILL)}


@pytest.mark.parametrize(
    ("when", "end"),
    [
        *(("reading", end) for end in (*ENDS, "full disk")),  # later on, a run writes nothing before its end
        *(("measuring", end) for end in ENDS),
        *(pytest.param("training", end, marks=pytest.mark.train) for end in ENDS),
    ],
)
def test_a_run_that_is_cut_short_is_spent_and_leaves_nothing(
    when: str, end: str, folder: Path, forked: Ask
) -> None:
    how, code = ("full", 2) if end == "full disk" else (int(ENDS[end][0]), ENDS[end][1])
    model = ["--model", "autoregressive", "--epochs", "1"] if when == "training" else []
    command = [*COMMAND.split(), *model, "--ledger", "ledger.db"]
    assert forked(when, how, folder, folder / "scratch", command) == code, (folder / "err").read_text()
    said = (folder / "err").read_text()
    assert "Traceback" not in said
    if end == "Ctrl-C":
        assert said == "interrupted; this run has spent its budget\n"
    assert said.count("\n") == (1 if code > 0 else 0)
    if end == "full disk":
        assert f"{folder / 'scratch'}: the encoded table cannot be kept there" in said
    assert names(folder) == {"scratch"}
    assert list((folder / "scratch").iterdir()) == []
    assert spent(folder) == [False]
    assert forked(None, None, folder, folder / "scratch", command) == 2
    assert "has ε = 0 left of 1" in (folder / "err").read_text()  # what was cut short counts


@pytest.mark.parametrize("end", [*ENDS, "full disk"])
def test_a_table_that_is_cut_short_is_not_there_and_its_release_is(end: str, folder: Path, forked: Ask) -> None:
    how, code = ("full", 2) if end == "full disk" else (int(ENDS[end][0]), ENDS[end][1])
    code = 2 if end == "Ctrl-C" else code  # it has more to say: where the release is
    command = [*COMMAND.split(), "--ledger", "ledger.db"]
    assert forked("writing", how, folder, folder / "scratch", command) == code, (folder / "err").read_text()
    said = (folder / "err").read_text()
    assert "Traceback" not in said
    if code > 0:
        assert "The budget is spent and the release is in release: draw a table with repsynth sample" in said
    assert names(folder) == {"scratch", "release"}
    assert list((folder / "scratch").iterdir()) == []
    assert spent(folder) == [True]
    assert Release.load(folder / "release").sample(3).num_rows == 3
    again = ["sample", "release", "-n", "2000", "-o", "drawn.csv"]
    stopped = forked("writing", how, folder, folder / "scratch", again)
    assert stopped == (ENDS[end][1] if end in ENDS else 2), (folder / "err").read_text()
    assert names(folder) == {"scratch", "release"}
    assert forked(None, None, folder, folder / "scratch", again) == 0, (folder / "err").read_text()
    assert pacsv.read_csv(folder / "drawn.csv").num_rows == 2000


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 KB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = shutil.which("mount")
    options = ["-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if mount is None or subprocess.run([mount, *options], capture_output=True, check=False).returncode:
        pytest.skip("a disk of its own cannot be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_disk_that_is_full_is_one_line_and_is_left_empty(
    suffix: str, folder: Path, tiny: Path, forked: Ask
) -> None:
    """The codes' disk, and then the table's."""
    paid = [*COMMAND.split(), "--ledger", "ledger.db"]
    assert forked(None, None, folder, tiny, paid) == 2
    said = (folder / "err").read_text()
    assert said.startswith(f"error: {tiny}: the encoded table cannot be kept there (No space left on device)")
    assert said.count("\n") == 1
    assert list(tiny.iterdir()) == []
    assert names(folder) == {"scratch", "tiny"}
    assert spent(folder) == [False]
    assert forked(None, None, folder, folder / "scratch", COMMAND.split()) == 0
    out = tiny / f"drawn{suffix}"
    sample = ["sample", "release", "-n", "20000", "-o", str(out)]
    assert forked(None, None, folder, folder / "scratch", sample) == 2
    said = (folder / "err").read_text()
    assert said == f"error: {out}: cannot be written (No space left on device); nothing was left behind\n"
    assert list(tiny.iterdir()) == []
    assert os.statvfs(tiny).f_bavail == os.statvfs(tiny).f_blocks
