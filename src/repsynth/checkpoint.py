"""Checkpoints: a training that was killed goes on where it was, and nothing is spent twice.

A checkpoint folder holds what was released so far, all of it paid for before the first round: `start`, the
release as it stands when training begins; `run.json`, whose budget pays; and `state.npz`, what the rounds have
taught. What training shows or hands out is written there first. Rounds after the last writing are lost with
the process that drew them: nobody saw them, so drawing them again is their first release.
"""

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import msgspec
import numpy as np

from repsynth.errors import ConfigError, ReleaseError
from repsynth.files import load_release, read_arrays, save_release
from repsynth.ledger import Ledger
from repsynth.models.training import State
from repsynth.release import Release
from repsynth.strict import floats, require


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run's entry in a ledger, and the token by which this folder claims it: each time that it goes on, it does
    so by a new one, so that no copy of the folder can go on, too. A kill may come between writing a token here
    and writing it there; then the one before it is still the last one there."""

    dataset: str
    run: str
    token: str = ""
    before: str = ""

    def claimed(self, ledger: Ledger, folder: Path) -> "Ticket":
        """The ticket by which this process goes on; refused where another one has since."""
        last = ledger.holder(self.dataset, self.run)
        if last is None or last not in (self.token, self.before):
            raise ConfigError(
                f"{folder}: {ledger.path} does not let this training go on: either another ledger pays for it, "
                "then name that one; or it has ended or gone on elsewhere, and going on here would spend twice"
            )
        ticket = Ticket(self.dataset, self.run, secrets.token_hex(16), last)
        _write(folder / "run.json", msgspec.json.encode(ticket))
        ledger.claim(ticket.dataset, ticket.run, token=ticket.token, after=last)
        return ticket

    def check(self, ledger: Ledger) -> None:
        """Refuse to go on where another process has claimed the run."""
        if ledger.holder(self.dataset, self.run) != self.token:
            raise ConfigError(f"{ledger.path}: this training goes on elsewhere; this process stops")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder that this process alone uses."""

    folder: Path
    release: Release
    """As it was when training began."""
    ticket: Ticket | None
    state: State
    ledger: Ledger | None = None

    def save(self, state: State) -> None:
        """Write what was learnt, durably, in the place of what was there; never what a copy should not know."""
        if self.ticket and self.ledger:
            self.ticket.check(self.ledger)
        buffer = BytesIO()
        numbers = np.array([state.gain, float(state.round)])
        arrays = {"parameters": state.parameters, "velocity": state.velocity, "average": state.average}
        np.savez(buffer, numbers=numbers, **arrays)  # type: ignore[arg-type]
        _write(self.folder / "state.npz", buffer.getvalue())


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes away from a checkpoint while this one uses it."""
    import fcntl  # not on every system, and only checkpoints need it

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); nothing was measured") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it before may have removed it, and another may have made it anew.
            if os.fstat(lock.fileno()).st_ino != (folder / "lock").stat().st_ino:
                raise OSError
        except OSError:
            raise ConfigError(f"{folder}: another run is using this checkpoint; wait for it to end") from None
        try:
            yield
        finally:
            if not (folder / "run.json").exists():
                _discard(folder)  # nothing has begun


def begin(folder: Path, release: Release, ticket: Ticket | None, ledger: Ledger | None) -> Checkpoint:
    """A new checkpoint: training is about to begin."""
    assert release.trained is not None
    state = State.start(release.trained.network)
    try:
        start = save_release(release, folder / "start")
        for path in (*start.iterdir(), start):
            _sync(path)
        Checkpoint(folder, release, None, state).save(state)
    except ReleaseError:
        _clear(folder)
        raise
    # Written last: without it there is no checkpoint.
    if ticket is not None and ledger is not None:
        ticket = ticket.claimed(ledger, folder)
    else:
        _write(folder / "run.json", msgspec.json.encode(None))
    return Checkpoint(folder, release, ticket, state, ledger)


def find(folder: Path) -> Checkpoint | None:
    """The checkpoint in a folder, checked as a stranger's release would be; None where there is none."""
    if not (folder / "run.json").exists():
        if {path.name for path in folder.iterdir()} - {"lock"}:
            raise ConfigError(
                f"{folder}: neither empty nor a checkpoint; name another folder, or remove what is left of a run "
                "that was killed before training began"
            )
        return None
    try:
        ticket = msgspec.json.decode((folder / "run.json").read_bytes(), type=Ticket | None)
        release = load_release(folder / "start")
        arrays = read_arrays(folder, (folder / "state.npz").read_bytes())
        require(release.trained is not None, "it holds no training")
        assert release.trained is not None
        size = release.trained.network.size
        gain, done = floats(arrays["numbers"], 2)
        require(0 <= done <= release.training.rounds, "its number of rounds is out of range")
        names = ("parameters", "velocity", "average")
        parameters, velocity, average = (np.array(floats(arrays[name], size)) for name in names)
        return Checkpoint(folder, release, ticket, State(parameters, velocity, average, gain, int(done)))
    except (ReleaseError, msgspec.MsgspecError, OSError, KeyError, ValueError):
        raise ConfigError(
            f"{folder}: the checkpoint is damaged; remove the folder to start anew (what it spent stays spent)"
        ) from None


def remove(folder: Path) -> None:
    """Forget a checkpoint whose release is safe: what it wrote, and the folder if nothing else is in it."""
    if not (folder / "run.json").exists():
        return
    (folder / "run.json").unlink()
    _clear(folder)
    _discard(folder)


def _clear(folder: Path) -> None:
    (folder / "state.npz").unlink(missing_ok=True)
    shutil.rmtree(folder / "start", ignore_errors=True)


def _discard(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from None
    _sync(path.parent)


def _sync(path: Path) -> None:
    """Make what was written to a file or a folder survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        os.close(handle)


def _not_written(path: Path, error: OSError) -> ReleaseError:
    return ReleaseError(
        f"{path}: cannot be written ({error.strerror}); make room, then the same command goes on with a training "
        "that had begun"
    )
