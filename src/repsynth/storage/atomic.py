"""Files are written beside their place and then moved there: each is whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repsynth.errors import ConfigError, DataError


def check_place(path: Path) -> None:
    """Refuse a path whose folder does not exist or cannot be written to."""
    parent = path.parent
    if not parent.is_dir():
        raise ConfigError(f"{parent}: no such folder; make it first")
    if not os.access(parent, os.W_OK):
        raise ConfigError(f"{parent}: cannot be written to; choose another folder")


@contextmanager
def beside(path: Path, *, mode: int = 0o644, replace: bool = False) -> Iterator[Path]:
    """A temporary file in the same folder that becomes `path` at the end, or disappears on any error.

    It takes the place of a file that is there only where `replace` says so.
    """
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror})") from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(mode)
        if replace:
            temporary.replace(path)
        else:
            _place(temporary, path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror}); nothing was left behind") from None
    finally:
        temporary.unlink(missing_ok=True)


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
