"""Files are written beside their place and then moved there: each is whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from repsynth.errors import ConfigError, DataError, shown

_OPEN = Path("/proc/self/fd")
"""Where Linux lists the files that a process has open."""


def check_place(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to."""
    parent = path.parent
    if not os.path.isdir(parent):
        raise ConfigError(f"{shown(parent)}: no such folder; make it first")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{shown(parent)}: cannot be written to; choose another folder")


@contextmanager
def beside(path: Path, *, private: bool = False, replace: bool = False) -> Iterator[Path]:
    """A temporary file in the same folder that becomes `path` at the end, or disappears on any error.

    It takes the place of a file that is there only where `replace` says so. A `private` file is readable by its
    owner only, any other as the umask says.
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
    """As `beside`, for what is written once: the file gets a name only when it is whole, where the system can do
    that, so that not even a killed process leaves one behind."""
    try:
        handle = os.open(path.parent if _OPEN.is_dir() else "", os.O_TMPFILE | os.O_RDWR, 0o666)
    except (AttributeError, OSError):  # not on this system, or not in this folder
        with beside(path) as temporary:
            yield temporary
        return
    opened = _OPEN / str(handle)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield opened
        # Without a folder, Python would link to the link in /proc itself.
        os.link(opened, path.name, dst_dir_fd=folder, follow_symlinks=True)
    except OSError as error:
        raise DataError(f"{shown(path)}: cannot be written ({reason(error)}); nothing was left behind") from None
    finally:
        os.close(folder)
        os.close(handle)


def hidden(path: Path) -> Path:
    """A new name in the same folder, for what is not whole yet."""
    return path.with_name(f".{path.name}.{uuid4().hex[:12]}")


def reason(error: OSError) -> str:
    """Why a file could not be written, in the system's words alone: Arrow adds its own.

    >>> reason(OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device"))
    'No space left on device'
    """
    return os.strerror(error.errno) if error.errno else str(error.strerror)


def sync(path: Path) -> None:
    """Make what was written to a file, or to the list of a folder, survive a power cut; an OSError where it may
    not."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _place(temporary: Path, path: Path) -> None:
    """Move a file to its place, but not over another that came there meanwhile."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        temporary.replace(path)
