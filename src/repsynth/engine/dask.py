"""Dask: each worker reads and encodes pieces of the table, keeps the codes, and returns sums.

A task that is lost with its worker runs again elsewhere. Its result has a name, so it is added once.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
from distributed import Client, Future, LocalCluster

from repsynth.engine.clusters import FAN_IN, ClusterEngine, Parts
from repsynth.engine.persons import EncodePersons
from repsynth.engine.tasks import EncodeCompact, Failed, Task, added, carried_out, picked
from repsynth.errors import ConfigError, DataError
from repsynth.io.arrow import open_pandas
from repsynth.io.source import check_storage
from repsynth.io.sources import Source
from repsynth.schema import Schema

_SECONDS = 20  # how long a scheduler has to answer


@contextmanager
def connect(cluster: Any, source: Source) -> Iterator["DaskCluster"]:
    """Connect to a scheduler's address, a `Client`, the current client, or a new local cluster. Release all data
    on exit."""
    with ExitStack() as own:
        client = _client(cluster, own)
        opened = DaskCluster(client, [])
        own.callback(opened.forget)
        _check_workers(client)
        yield opened


def _client(cluster: Any, own: ExitStack) -> Client:
    if isinstance(cluster, Client):
        return cluster
    if cluster is None:
        try:
            return Client.current()
        except ValueError:
            return _start(own)
    if not isinstance(cluster, str) or "://" not in cluster:
        raise ConfigError(
            "the cluster must be the address of a Dask scheduler, such as tcp://host:8786, or a Client"
        )
    try:
        return own.enter_context(Client(cluster, timeout=_SECONDS, set_as_default=False))
    except (OSError, ValueError, TypeError, ImportError):
        raise ConfigError(
            "no Dask scheduler answers at the address of the cluster; check it: such as tcp://host:8786"
        ) from None


def _start(own: ExitStack) -> Client:
    """Start threads in this process, without a port at which other users could run code."""
    threads = os.cpu_count() or 1
    local = LocalCluster(
        n_workers=1, threads_per_worker=threads, processes=False, dashboard_address=None, silence_logs=50
    )
    own.enter_context(local)
    sys.stderr.write(f"No Dask cluster was given: a local one was started ({threads} threads), until the end.\n")
    return own.enter_context(Client(local, set_as_default=False))


def _check_workers(client: Client) -> None:
    """Refuse a cluster without workers or with another version, before anything is spent."""
    from repsynth import __version__

    try:
        found = client.run(_version)
    except Exception:
        raise ConfigError("the Dask workers cannot be asked; see that repsynth is installed there, too") from None
    if not found:
        raise ConfigError("the Dask cluster has no workers; start some first")
    if set(found.values()) != {__version__}:
        raise ConfigError(f"the Dask workers have another version of repsynth; install {__version__} there")


def _version() -> str:
    from repsynth import __version__

    return __version__


def _sees(files: tuple[str, ...]) -> bool:
    return all(Path(file).is_file() for file in files)


@dataclass(frozen=True)
class DaskCluster:
    client: Client
    mine: list[Future]  # all that was kept

    def check(self, source: Source) -> None:
        """Refuse files that a worker does not see, without reading them."""
        if source.files and not all(self.client.run(_sees, source.files).values()):
            raise DataError("a Dask worker does not see the file; put it where all machines have it by this path")

    def open(self, source: Source, schema: Schema) -> ClusterEngine:
        return ClusterEngine.on(self, source, schema)

    def spread(self, items: Sequence[Any], task: Task | None = None) -> Parts:
        """Each item goes to the worker that gets its part."""
        blobs = [cloudpickle.dumps(item) for item in items]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")  # a table that was in memory here
            futures = self._map(_unpacked, blobs)
        if task is None:
            return DaskParts(self, futures)
        return self._kept(task, futures)

    def frame(self, source: Source, encode: EncodeCompact) -> Parts:
        """Encode partition by partition. The partitions themselves are not kept."""
        partitions = self.client.compute(source.frame[encode.columns].to_delayed(), retries=3)
        return self._kept(_Declared(encode, source.frame[encode.columns].dtypes), partitions)

    def _kept(self, task: Task, futures: Sequence[Any]) -> "DaskParts":
        found = self._each(task, futures)
        self.mine.extend(found)
        return DaskParts(self, found)

    def _each(self, task: Task, parts: Sequence[Any]) -> list[Future]:
        """Run a task on each part."""
        packed = self._map(_unpacked, [_Packed(cloudpickle.dumps(task))])
        return self._map(carried_out, packed * len(parts), parts, range(len(parts)))

    def _map(self, function: Callable[..., Any], *columns: Sequence[Any]) -> list[Future]:
        """`pure=False` gives each call a unique name, so results of another run are never used."""
        found: list[Future] = self.client.map(
            function, *columns, pure=False, key=f"repsynth-{function.__name__.strip('_')}", retries=3
        )
        return found

    def forget(self) -> None:
        """Release all data and cancel running tasks."""
        if self.mine and self.client.status == "running":
            self.client.cancel(self.mine, force=True)
        self.mine.clear()


@dataclass(frozen=True)
class DaskParts:
    """Parts of a table, each held by a worker."""

    cluster: DaskCluster
    futures: list[Future]

    def __len__(self) -> int:
        return len(self.futures)

    def shuffled(self, split: Task, join: Task, places: int) -> Parts:
        """Shuffle by tasks: split each part, pick each message, join the messages of a place. Dask makes again
        what is lost with a worker."""
        cluster = self.cluster
        messages = cluster._each(split, self.futures)
        picks = [cluster._map(picked, messages, [place] * len(self)) for place in range(places)]
        before = {each.key for each in self.futures}
        cluster.mine[:] = [each for each in cluster.mine if each.key not in before]
        return cluster._kept(join, picks)

    def added(self, task: Task) -> Any:
        cluster = self.cluster
        level = cluster._each(task, self.futures)
        while len(level) > 1:
            level = cluster._map(added, [level[k : k + FAN_IN] for k in range(0, len(level), FAN_IN)])
        try:
            return level[0].result()
        except KeyboardInterrupt:
            cluster.client.cancel(level, force=True)
            raise
        except Exception as error:  # workers that died again and again, or a scheduler that is gone
            return Failed(
                f"the Dask cluster gave up ({type(error).__name__}); see its logs. What was paid for is spent"
            )


class _Packed(bytes):
    """A pickled task, which may hold a key. Its repr, which Dask logs, shows nothing."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _unpacked(blob: bytes) -> Any:
    return cloudpickle.loads(blob)


@dataclass(frozen=True)
class _Declared:
    """Encode a partition whose types must be those that the frame declares."""

    encode: EncodeCompact
    types: Any

    def __call__(self, frame: Any, number: int) -> Any:
        """Refuse a partition whose ids have another type than declared: one missing id turns integers into floats,
        and ids that lost digits no longer distinguish persons."""
        if isinstance(self.encode, EncodePersons):
            own = self.encode.person.column
            if frame[own].dtype != self.types[own]:
                raise DataError(
                    f"{own}: a partition has ids of another type than the data frame declares; read them as text"
                )
        source = open_pandas(frame)
        check_storage(source, self.encode.schema)  # a partition may have other types than the frame declares
        return self.encode.of(source.batches(source.names))
