"""The release folder: `release.json` and `arrays.npz`, checked in every part when read.

A release may come from a stranger, so it is data, never code: no pickle, no path taken from inside, a
bound on every size, and nothing is used before it fits the schema that comes with it.
"""

import hashlib
import os
import shutil
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Arrays
from repsynth.errors import ConfigError, ReleaseError, RepsynthError, has_controls, shown
from repsynth.release.release import Release
from repsynth.release.verify import FORMAT, ReleaseFile, arrays_of, assemble, borrowed_from, describe
from repsynth.scoring.borrowed import Borrowed
from repsynth.storage.atomic import hidden, sync

_MOST_BYTES = 2**28
_MISFITS = (
    LookupError,
    ValueError,
    TypeError,
    ArithmeticError,
    AttributeError,
    MemoryError,
    RecursionError,
    msgspec.MsgspecError,
)


def save_release(release: Release, folder: Path) -> Path:
    """Write the folder beside its place, then move it there. Once this returns, it survives a power cut."""
    if folder.exists():
        raise ReleaseError(
            f"{shown(folder)}: already exists; a release is never overwritten, choose another folder"
        )
    packed, text = _packed_and_described(release)
    beside: Path | None = None
    made = [path for path in folder.parents if not path.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = hidden(folder)
        beside.mkdir()
        (beside / "release.json").write_bytes(text)
        (beside / "arrays.npz").write_bytes(packed)
        for path in (*beside.iterdir(), beside):
            sync(path)
        os.rename(beside, folder)
        beside = folder
        for path in (folder, *made):
            sync(path.parent)
    except OSError as error:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        raise ReleaseError(
            f"{shown(folder)}: cannot be written ({error.strerror}); nothing was left behind"
        ) from None
    return folder


def check_private(place: Path) -> None:
    """Refuse a place for PRIVATE files in a release's folder, which is handed out as a whole."""
    whole = place.resolve()
    if any((folder / "release.json").is_file() for folder in (whole, *whole.parents)):
        raise ConfigError(
            f"{shown(place)}: lies in a release, which is handed out; name a PRIVATE folder elsewhere"
        )


def _packed_and_described(release: Release) -> tuple[bytes, bytes]:
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays_of(release))  # type: ignore[arg-type]
    packed = buffer.getvalue()
    text = msgspec.json.format(msgspec.json.encode(describe(release, hashlib.sha256(packed).hexdigest())))
    return packed, text + b"\n"


def load_release(folder: Path) -> Release:
    described = _parse(folder, _read(folder / "release.json"))
    packed = _read(folder / "arrays.npz")
    if hashlib.sha256(packed).hexdigest() != described.get("arrays_sha256"):
        _damaged(folder, "arrays.npz is not the file that release.json describes")
    arrays = _read_arrays(folder, packed)
    try:
        return assemble(msgspec.convert(described, ReleaseFile), arrays)
    except ReleaseError as error:
        _damaged(folder, str(error))
    except RepsynthError as error:
        _damaged(folder, f"its plan or schema is not valid: {error}")
    except msgspec.ValidationError as error:
        _damaged(folder, f"release.json: {error}")
    except _MISFITS:
        _damaged(folder, "its parts do not fit each other")


def borrow(source: Release | str | Path) -> Borrowed:
    """Take the scores and the threshold of a release, or of its folder, which is checked in every part.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> borrowed = borrow(synthesize(sim.table, sim.schema, epsilon=1.0))
    >>> later = synthesize(sim.table, sim.schema, epsilon=1.0, scores_from=borrowed, model="naive-bayes")
    >>> [event.name for event in later.events]
    ['count', 'coarse histograms', 'refined histograms', 'fine histograms', 'sums']
    """
    if not isinstance(source, Release | str | Path):
        raise ConfigError("scores are taken from a release, or from the folder of one")
    if isinstance(source, Release):
        release, text = source, _packed_and_described(source)[1]
    else:
        release, text = load_release(Path(source)), (Path(source) / "release.json").read_bytes()
    if release.stage.borrowed is not None:
        raise ConfigError("the scores of that release came from another one; take them from there")
    if release.threshold is None:
        raise ConfigError("that release has no threshold, since all its records weigh the same; take another one")
    described = msgspec.to_builtins(describe(release, "")) | {"fit": {}}
    return borrowed_from(release.stage, release.plan, release.events, hashlib.sha256(text).hexdigest(), described)


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe or a device could be read for ever
            raise OSError
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        raise ReleaseError(
            f"{shown(path)}: cannot be read; give the folder that synthesize --release wrote"
        ) from None
    if len(content) > _MOST_BYTES:
        raise ReleaseError(f"{shown(path)}: larger than 256 MB; this is not a release of this version")
    return content


def _parse(folder: Path, text: bytes) -> dict[str, Any]:
    try:
        described = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        _damaged(folder, "release.json: it is cut off or not JSON")
    if has_controls(described):
        _damaged(folder, "release.json: a name or a value has a control character")
    version = described.get("format")
    if isinstance(version, int) and version != FORMAT:
        raise ReleaseError(
            f"{shown(folder)}: written by another version of repsynth (format {version}); this one reads format "
            f"{FORMAT}: read it with that version, or make it again"
        )
    return described


def _read_arrays(folder: Path, packed: bytes) -> Arrays:
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
                _damaged(folder, "its arrays are larger than 256 MB")
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in archive.infolist()}
    except ReleaseError:
        raise
    except Exception:  # whatever a hostile archive or header does to its readers
        _damaged(folder, "arrays.npz cannot be read")


def _array(content: bytes) -> NDArray[Any]:
    """One plain array; its header is checked against its length before anything is allocated."""
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    data = content[file.tell() :]
    if len(shape) != 1 or dtype not in (np.int64, np.float64) or len(data) != shape[0] * 8:
        raise ValueError
    return np.frombuffer(data, dtype=dtype)


def _damaged(folder: Path, detail: str) -> NoReturn:
    raise ReleaseError(f"{shown(folder)}: the release is damaged: {detail}; get it again from its source")
