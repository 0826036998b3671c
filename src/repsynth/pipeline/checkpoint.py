"""Checkpoints: a training that was killed goes on where it was, and nothing is spent twice.

A checkpoint folder holds what was released so far, all of it paid for before the first round: `start`, the
release as it stands when training begins; `run.json`, whose budget pays; and `state.npz`, what the rounds have
taught. What training shows or hands out is written there first. Rounds after the last writing are lost with
the process that drew them: nobody saw them, so drawing them again is their first release. The folder stays until
the release is safely saved.
"""

import contextlib
import os
import secrets
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from repsynth.data.layout import Layout
from repsynth.errors import ConfigError, ReleaseError, RepsynthWarning
from repsynth.models.base import Fit
from repsynth.planning.plan import Plan
from repsynth.privacy.ledger import Ledger
from repsynth.release.folder import load_release, read_arrays, save_release
from repsynth.release.release import Release
from repsynth.scoring.base import Arrays


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


@dataclass
class Checkpoint:
    """A checkpoint folder that this process alone uses."""

    folder: Path
    ticket: Ticket | None = None
    ledger: Ledger | None = None
    release: Release | None = None
    """As it was when training began."""
    state: Arrays | None = None
    make_release: Callable[[Fit], Release] | None = None
    _mark: bytes = b""

    @property
    def start(self) -> Fit | None:
        """What training began from; None where it has not begun."""
        return self.release.fit if self.release else None

    def begin(self, start: Fit) -> None:
        """Training is about to begin."""
        assert self.make_release is not None
        try:
            folder = save_release(self.make_release(start), self.folder / "start")
            for path in (*folder.iterdir(), folder):
                _sync(path)
        except ReleaseError:
            _clear(self.folder)
            raise
        self._mark = _mark_of(self.folder)
        # Written last: without it there is no checkpoint.
        if self.ticket is not None and self.ledger is not None:
            self.ticket = self.ticket.claimed(self.ledger, self.folder)
        else:
            _write(self.folder / "run.json", msgspec.json.encode(None))

    def save(self, state: Arrays) -> None:
        """Write what was learnt, durably, in the place of what was there; never what a copy should not know."""
        if self.ticket and self.ledger:
            self.ticket.check(self.ledger)
        buffer = BytesIO()
        np.savez(buffer, **state)  # type: ignore[arg-type]
        _write(self.folder / "state.npz", buffer.getvalue())

    def resumed(self, plan: Plan, layout: Layout, ledger: Ledger | None, dataset: str | None) -> "Checkpoint":
        """The checkpoint, claimed by this process: it goes on only as what it began as, and only if its run is
        still open in its ledger and has not gone on elsewhere."""
        assert self.release is not None
        other = _differences(self.release.plan.settings.dump(), plan.settings.dump())
        other += ["source of its scores"] if self.release.plan.borrowed != plan.borrowed else []
        other += ["schema"] if self.release.schema != plan.schema else []
        other += ["columns of the table"] if self.release.layout != layout else []
        if other:
            raise ConfigError(
                f"{self.folder}: holds a training with another {', '.join(other).replace('_', ' ')}; "
                "go on with the same, or remove the folder to start anew (what it spent stays spent)"
            )
        if self.finished:
            warnings.warn(
                f"{self.folder}: holds a finished training that was not saved; its release is handed out, and the "
                "table is not read. Save it, or remove the folder to start anew",
                RepsynthWarning,
                stacklevel=4,
            )
        if self.ticket is None:
            return self
        if ledger is None or dataset != self.ticket.dataset:
            raise ConfigError(
                f"{self.folder}: this training is paid from a ledger; name its ledger and dataset again"
            )
        if not self.finished:
            self.ticket, self.ledger = self.ticket.claimed(ledger, self.folder), ledger
        return self

    @property
    def finished(self) -> bool:
        """Whether all rounds are done: nothing more will be drawn."""
        training = self.release.plan.training if self.release else None
        return self.state is not None and training is not None and self.state["numbers"][1] == training.rounds

    def forget(self) -> None:
        """Remove it: its release is safe. Another one that has taken its place stays."""
        if not (self.folder / "run.json").exists():
            return
        with contextlib.suppress(ConfigError), held(self.folder):  # refused where another run uses it
            if self._mark == _mark_of(self.folder):
                _remove(self.folder)


def _mark_of(folder: Path) -> bytes:
    """What tells one training from another: its first release, which holds fresh noise."""
    try:
        return (folder / "start" / "release.json").read_bytes()
    except OSError:
        return b""


def _differences(began: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names of the settings that differ; of a part of the same kind, those of its knobs."""
    names = []
    for name in sorted(began.keys() | now.keys()):
        one, other = began.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict) and one["name"] == other["name"]:
            names += [knob for knob in one if one[knob] != other[knob]]
        elif one != other:
            names.append(name)
    return names


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes away from a checkpoint while this one uses it."""
    from filelock import FileLock, Timeout

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", timeout=0)
        lock.acquire()
    except Timeout:
        raise ConfigError(f"{folder}: another run is using this checkpoint; wait for it to end") from None
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); nothing was measured") from None
    try:
        yield
    finally:
        if not (folder / "run.json").exists():
            _discard(folder)  # nothing has begun
        lock.release()


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
        kept = folder / "state.npz"
        state = read_arrays(folder, kept.read_bytes()) if kept.exists() else None
        if release.plan.training is None or (state is not None and state["numbers"].shape != (2,)):
            raise ReleaseError("it holds no training")
        return Checkpoint(folder, ticket, None, release, state, _mark=_mark_of(folder))
    except (ReleaseError, msgspec.MsgspecError, OSError, KeyError, ValueError):
        raise ConfigError(
            f"{folder}: the checkpoint is damaged; remove the folder to start anew (what it spent stays spent)"
        ) from None


def _remove(folder: Path) -> None:
    """What a checkpoint wrote, and the folder if nothing else is in it."""
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
