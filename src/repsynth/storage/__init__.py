"""Files: write them completely or not at all, and check the content of untrusted ones."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from repsynth.errors import ConfigError, DataError, ReleaseError, shown

_OPEN = Path("/proc/self/fd")
"""The folder of the process's open files on Linux."""


def check_place(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to."""
    parent = path.parent
    if not os.path.isdir(parent):
        raise ConfigError(f"{shown(parent)}: no such folder; make it first")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{shown(parent)}: cannot be written to; choose another folder")


@contextmanager
def beside(path: Path, *, private: bool = False, replace: bool = False) -> Iterator[Path]:
    """Yield a temporary file in the same folder. It becomes `path` at the end, or is deleted after an error.

    An existing file is replaced only with `replace`. A `private` file is readable by its owner only.
    """
    temporary = hidden(path)
    try:
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600 if private else 0o666))
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be written ({reason(error)})") from None
    try:
        yield temporary
        if replace:
            temporary.replace(path)
        else:
            _place(temporary, path)
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be written ({reason(error)}); nothing was left behind") from None
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def unnamed(path: Path) -> Iterator[Path]:
    """Like `beside`, but the file gets its name at the end, if the system supports that.

    Then a killed process leaves no temporary file behind.
    """
    try:
        handle = os.open(path.parent if _OPEN.is_dir() else "", os.O_TMPFILE | os.O_RDWR, 0o666)
    except (AttributeError, OSError):  # not supported by the system or the folder
        with beside(path) as temporary:
            yield temporary
        return
    opened = _OPEN / str(handle)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield opened
        # Without `dst_dir_fd`, Python would link to the link in /proc.
        os.link(opened, path.name, dst_dir_fd=folder, follow_symlinks=True)
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be written ({reason(error)}); nothing was left behind") from None
    finally:
        os.close(folder)
        os.close(handle)


def hidden(path: Path) -> Path:
    """Return an unused hidden name in the same folder."""
    return path.with_name(f".{path.name}.{uuid4().hex[:12]}")


def reason(error: OSError) -> str:
    """Return the system's message for an error, without the text that Arrow adds.

    >>> reason(OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else str(error.strerror)


def sync(path: Path) -> None:
    """Make a file, or the entries of a folder, survive a power cut; an OSError if that fails."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _place(temporary: Path, path: Path) -> None:
    """Rename a file, but do not replace one that was created in the meantime."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(path)


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ReleaseError(message)


def ints(array: NDArray[Any], length: int | None = None, most: int = 2**61) -> NDArray[np.int64]:
    """Return the array; refuse it unless it is a vector of whole numbers within bounds."""
    require(array.dtype == np.int64 and array.ndim == 1, "an array is not of whole numbers")
    require(length is None or len(array) == length, "an array has the wrong length")
    require(bool(np.all((array >= -most) & (array <= most))), "a number is out of range")
    return array


def floats(
    array: NDArray[Any], length: int, *, positive: bool = False, infinite: bool = False
) -> tuple[float, ...]:
    """Return the numbers; refuse them unless their count and range are as required."""
    require(array.dtype == np.float64 and array.shape == (length,), "an array has the wrong shape")
    require(not np.isnan(array).any(), "a number is NaN")
    require(infinite or bool(np.all(np.isfinite(array))), "a number is not finite")
    require(not positive or bool(np.all(array > 0)), "a scale is not positive")
    return tuple(array.tolist())


def positive(value: float) -> bool:
    """Return whether a number is finite and above 0."""
    return bool(np.isfinite(value) and value > 0)


def integer(table: Mapping[str, Any], name: str, least: int, most: int) -> int:
    """Return the whole number of this name; refuse it unless it is within bounds.

    >>> integer({"clip": 7}, "clip", 1, 10)
    7
    """
    value = table.get(name)
    whole = isinstance(value, int) and not isinstance(value, bool)
    require(whole and least <= value <= most, f"its {name} is out of range")  # type: ignore[operator]
    return int(value)  # type: ignore[arg-type]


def flag(table: Mapping[str, Any], name: str) -> bool:
    value = table.get(name)
    require(isinstance(value, bool), f"its {name} is neither true nor false")
    return bool(value)
