"""Write files atomically: under a temporary name in the same folder, then rename."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from repsynth.errors import ConfigError, DataError, shown

_OPEN = Path("/proc/self/fd")
"""The open files of the process, on Linux."""


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
