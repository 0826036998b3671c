"""Checkpoints: a training that was killed goes on where it was, and nothing is spent twice.

A checkpoint folder holds what was released so far, all of it paid for before the first round: `run.json`, whose
budget pays; `start`, the release as it stands when training begins; and `state.npz`, what the rounds have
taught. What training shows or hands out is written there first. Rounds after the last writing are lost with
the process that drew them: nobody saw them, so drawing them again is their first release. The folder stays until
the release is safely saved.

With a ledger, a state is written beside its place first; then its hash is noted in the ledger, if the state that
it came from is still the last one there; then it takes its place. So the ledger decides which state counts: only
the one noted last goes on, wherever a kill came between, and neither an older copy nor a second one does.
"""

import contextlib
import hashlib
import os
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
from repsynth.errors import ConfigError, ReleaseError, RepsynthWarning, shown
from repsynth.models.base import Fit
from repsynth.planning.plan import Plan
from repsynth.privacy.dataset_names import same_name
from repsynth.privacy.ledger import Ledger, Progress
from repsynth.release.folder import load_release, read_arrays, save_release
from repsynth.release.release import Release
from repsynth.scoring.base import Arrays
from repsynth.storage.atomic import sync


class Ticket(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run's entry in a ledger, by the hash that no other ledger has; `token` and `before` took its place in
    earlier versions."""

    dataset: str
    run: str
    entry: str = ""
    token: str = ""
    before: str = ""

    def fits(self, known: Progress | None) -> bool:
        """Whether this is the run that the ledger knows by its name."""
        if known is None:
            return False
        if self.entry:
            return self.entry == known.entry
        return known.token != "" and known.token in (self.token, self.before)


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
    _hash: str = ""
    """Of the state that was kept last."""

    @property
    def start(self) -> Fit | None:
        """What training began from; None where it has not begun."""
        return self.release.fit if self.release else None

    def begin(self, start: Fit) -> None:
        """Training is about to begin."""
        assert self.make_release is not None
        _write(self.folder / "run.json", msgspec.json.encode(self.ticket))
        try:
            save_release(self.make_release(start), self.folder / "start")
        except ReleaseError:
            (self.folder / "run.json").unlink()
            _clear(self.folder)
            raise
        self._mark = _mark_of(self.folder)
        self._note(0, b"")

    def save(self, state: Arrays) -> None:
        """Write what was learnt, durably, in the place of what was there; never what a copy should not know."""
        buffer = BytesIO()
        np.savez(buffer, **state)  # type: ignore[arg-type]
        _prepare(self.folder / "state.npz", buffer.getvalue())
        self._note(int(state["numbers"][1]), buffer.getvalue())
        _place(self.folder / "state.npz")

    def pay(self, ticket: Ticket, ledger: Ledger) -> None:
        """From now on, this is the run that pays; for a training that began unpaid, too."""
        self.ticket, self.ledger = ticket, ledger
        if self.release is not None:
            _write(self.folder / "run.json", msgspec.json.encode(ticket))
            self._note(self._rounds, _read_state(self.folder, "state.npz"))

    def _note(self, done: int, state: bytes) -> None:
        """Tell the ledger, if there is one, what is to be kept; refused where it does not come from what it noted
        last."""
        noted = _hash_of(self._mark, state)
        if self.ticket and self.ledger:
            self.ledger.note(self.ticket.dataset, self.ticket.run, done=done, state=noted, after=self._hash)
        self._hash = noted

    def resumed(self, plan: Plan, layout: Layout, ledger: Ledger | None, dataset: str | None) -> "Checkpoint":
        """The checkpoint, ready to go on: only as what it began as, and only from the state that its ledger noted
        last."""
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
        if self.ticket is not None:
            if ledger is None or dataset is None or not same_name(dataset, self.ticket.dataset):
                raise ConfigError(
                    f"{self.folder}: this training is paid from a ledger; name its ledger and dataset again"
                )
            self._resume_paid(self.ticket, ledger)
        if self.finished:
            warnings.warn(
                f"{self.folder}: holds a finished training that was not saved; its release is handed out, and the "
                "table is not read. Save it, or remove the folder to start anew",
                RepsynthWarning,
                stacklevel=4,
            )
        return self

    def _resume_paid(self, ticket: Ticket, ledger: Ledger) -> None:
        """Go on from what the ledger noted last, or not at all."""
        known = ledger.progress(ticket.dataset, ticket.run)
        if known is None or not ticket.fits(known):
            raise ConfigError(
                f"{self.folder}: {ledger.path} does not pay for this training; name the ledger that does"
            )
        self.ticket, self.ledger = Ticket(ticket.dataset, ticket.run, known.entry), ledger
        kept, beside = _read_state(self.folder, "state.npz"), _read_state(self.folder, ".state.npz")
        if beside and known.state == _hash_of(self._mark, beside):  # killed before it took its place
            _place(self.folder / "state.npz")
            kept, self.state = beside, read_arrays(self.folder, beside)
        self._hash = _hash_of(self._mark, kept)
        if known.state not in ("", self._hash) or (known.finished and not self.finished):
            raise ConfigError(
                f"{self.folder}: {ledger.path} has noted a later state of this training than this one: it went on "
                "elsewhere, or this is an older copy, and going on here would draw rounds twice; go on with the "
                "latest one, or remove the folder to start anew (what it spent stays spent)"
            )
        if (
            not known.state and not known.finished
        ):  # killed before the first one was noted, or an earlier version's
            _write(self.folder / "run.json", msgspec.json.encode(self.ticket))
            ledger.note(ticket.dataset, ticket.run, done=self._rounds, state=self._hash, after="")

    @property
    def _rounds(self) -> int:
        return int(self.state["numbers"][1]) if self.state is not None else 0

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


def _hash_of(mark: bytes, state: bytes) -> str:
    """The hash of a training's start and of what it has learnt since."""
    return hashlib.sha256(hashlib.sha256(mark).digest() + state).hexdigest()


def _read_state(folder: Path, name: str) -> bytes:
    """A state as it is kept; nothing where training has just begun."""
    try:
        return (folder / name).read_bytes()
    except FileNotFoundError:
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
        raise ConfigError(f"{shown(folder)}: cannot be written ({error.strerror}); nothing was measured") from None
    try:
        yield
    finally:
        if not (folder / "run.json").exists():
            _discard(folder)  # nothing has begun
        lock.release()


def find(folder: Path) -> Checkpoint | None:
    """The checkpoint in a folder, checked as a stranger's release would be; None where there is none."""
    if not (folder / "run.json").exists() or not (folder / "start").exists():
        if {path.name for path in folder.iterdir()} - {"lock"}:
            raise ConfigError(
                f"{folder}: neither empty nor a checkpoint; name another folder, or remove what is left of a run "
                "that was killed before training began"
            )
        return None
    try:
        ticket = msgspec.json.decode((folder / "run.json").read_bytes(), type=Ticket | None)
        release = load_release(folder / "start")
        kept = _read_state(folder, "state.npz")
        state = read_arrays(folder, kept) if kept else None
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
    for name in ("state.npz", ".state.npz"):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / "start", ignore_errors=True)


def _discard(folder: Path) -> None:
    with contextlib.suppress(OSError):
        (folder / "lock").unlink(missing_ok=True)
        folder.rmdir()


def _write(path: Path, content: bytes) -> None:
    _prepare(path, content)
    _place(path)


def _prepare(path: Path, content: bytes) -> None:
    """Write a file beside its place, durably."""
    temporary = path.with_name(f".{path.name}")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _not_written(path, error) from None
    _sync(path.parent)


def _place(path: Path) -> None:
    """Move a file that was prepared to its place."""
    try:
        path.with_name(f".{path.name}").replace(path)
    except OSError as error:
        raise _not_written(path, error) from None
    _sync(path.parent)


def _sync(path: Path) -> None:
    try:
        sync(path)
    except OSError as error:
        raise _not_written(path, error) from None


def _not_written(path: Path, error: OSError) -> ReleaseError:
    return ReleaseError(
        f"{path}: cannot be written ({error.strerror}); make room, then the same command goes on with a training "
        "that had begun"
    )
