"""Spill buffer: arrays stay in memory up to a limit, then go to an anonymous temporary file.

The file has no name where the system allows that, so it is gone with the process.
"""

import tempfile
import weakref
from collections.abc import Callable
from threading import Lock
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from repsynth.errors import DataError

Array = NDArray[Any]

MEMORY = 192 * 2**20  # bytes that are kept in memory


class Spill:
    """Arrays that were put aside; several threads may use it.

    >>> shelf = Spill(limit=8)
    >>> small, large = shelf.put(np.arange(3, dtype=np.int16)), shelf.put(np.arange(4, dtype=np.int16))
    >>> small().tolist(), large().tolist(), shelf.in_file
    ([0, 1, 2], [0, 1, 2, 3], 8)
    """

    def __init__(self, limit: int = MEMORY) -> None:
        self.limit = limit
        self._left = limit
        self._lock = Lock()
        self._file: IO[bytes] | None = None
        self.in_file = 0  # bytes in the file

    def put(self, array: Array) -> Callable[[], Array]:
        """Put an array aside; what it returns gets it back."""
        with self._lock:
            if array.nbytes <= self._left:
                self._left -= array.nbytes
                return lambda: array
            start = self._write(np.ascontiguousarray(array).data.cast("B"))
        shape, dtype = array.shape, array.dtype
        return lambda: self._read(start, shape, dtype)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()

    def _write(self, view: memoryview) -> int:
        start = self.in_file
        try:
            if self._file is None:
                # Unlinked as soon as it is open, or never linked; mode 0600 until then. Unbuffered, as closing a
                # buffered file would write to a full disk again.
                self._file = tempfile.TemporaryFile(prefix="repsynth-", buffering=0)  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            self._file.seek(start)
            while view.nbytes:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: the encoded table cannot be kept there ({error.strerror}); nothing was "
                "left behind. Set TMPDIR to a folder with more room"
            ) from None
        self.in_file = self._file.tell()
        return start

    def _read(self, start: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        array: Array = np.empty(shape, dtype)
        view, file = array.data.cast("B"), self._file
        assert file is not None
        try:
            with self._lock:
                file.seek(start)
                while view.nbytes:
                    count = file.readinto(view)  # type: ignore[attr-defined]
                    if not count:
                        raise OSError(0, "cut short")
                    view = view[count:]
        except OSError as error:
            raise DataError(
                f"{tempfile.gettempdir()}: the encoded table cannot be read back ({error.strerror})"
            ) from None
        return array
