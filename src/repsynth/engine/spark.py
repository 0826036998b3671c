"""Spark: each task reads and encodes a piece of the table, executors keep the codes, and sums come back.

Codes that do not fit in memory, or are lost with an executor, are made again. A sum takes one result of each part;
accumulators would count a task twice that ran twice.
"""

import logging
import os
import pickle
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Timer, current_thread, main_thread
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark import RDD, SparkContext, StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from repsynth.engine.clusters import ClusterEngine, Parts
from repsynth.engine.tasks import EncodeCompact, Failed, Task, added, carried_out, picked
from repsynth.errors import ConfigError, DataError
from repsynth.io.sources import Source
from repsynth.schema import Schema

_ASKED = 8  # how many tasks are started to see whether workers can do theirs

_GROUP = "spark.jobGroup.id"

_SECONDS = 20  # how long a master has to answer
_SECONDS_OF_WORKERS = 180  # how long workers have, which may have to be started first


@contextmanager
def connect(cluster: Any, source: Source) -> Iterator["SparkCluster"]:
    """Connect to a master's URL, a `SparkSession`, the active session, or a new local one. Release all data on
    exit."""
    running = SparkSession.getActiveSession() or SparkContext._active_spark_context
    with _interrupted_as_ever(own=running is None):
        session = _session(cluster, source)
    opened = SparkCluster(session.sparkContext, [])
    try:
        with _quiet_bridge():
            opened.check_workers()
            yield opened
    finally:
        with suppress(Exception):  # after Ctrl-C, Java may not answer any more
            opened.forget()
            if running is None:
                session.sparkContext.setLogLevel("OFF")  # Java would log the tasks that end now
                session.stop()


@contextmanager
def _interrupted_as_ever(own: bool) -> Iterator[None]:
    """Restore the handler of Ctrl-C. Spark's own calls Java in the middle of another call, which fails."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if own and current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet_bridge() -> Iterator[None]:
    """Drop the stack traces that Py4J logs on Ctrl-C."""

    def other(record: logging.LogRecord) -> bool:
        return "py4j" not in record.pathname

    root = logging.getLogger()
    root.addFilter(other)
    try:
        yield
    finally:
        root.removeFilter(other)


def _session(cluster: Any, source: Source) -> SparkSession:
    if isinstance(cluster, SparkSession):
        return cluster
    if source.frame is not None and cluster is None:
        return source.frame.sparkSession
    active = SparkSession.getActiveSession()
    if cluster is None:
        if active is not None:
            return active
        cluster = "local[*]"
        sys.stderr.write("No Spark cluster was given: a local one is started, until the end.\n")
    if not isinstance(cluster, str):
        raise ConfigError("the cluster must be the URL of a Spark master, or a SparkSession")
    if active is not None and active.sparkContext.master != cluster:
        raise ConfigError(
            "a Spark session with another master is at hand; leave the cluster out, or stop it first"
        )
    _check_master(cluster)
    builder = SparkSession.builder.master(cluster).appName("repsynth").config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    try:
        if not cluster.startswith("local"):
            return builder.getOrCreate()
        with _this_python():
            for name in ("spark.driver.host", "spark.driver.bindAddress"):  # of no use to other machines
                builder = builder.config(name, "127.0.0.1")
            return builder.config("spark.ui.enabled", "false").getOrCreate()
    except Exception as error:  # py4j's own, or Java that is not there
        raise ConfigError(
            f"Spark cannot be started with this master ({type(error).__name__}); check the URL, and that "
            "Java is installed"
        ) from None


@contextmanager
def _this_python() -> Iterator[None]:
    """Start workers with this Python, whatever the environment says."""
    before = dict(os.environ)
    os.environ |= dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), sys.executable)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ |= before


def _check_master(master: str) -> None:
    """Refuse masters that do not answer. Java would try for more than a minute."""
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS).close()
        except (OSError, ValueError, OverflowError):
            continue
        return
    raise ConfigError("no Spark master answers at the URL of the cluster; check it: such as spark://host:7077")


def _asked(files: tuple[str, ...]) -> tuple[str | None, bool]:
    """Return the version of a worker, and whether it sees the files."""
    try:
        from repsynth import __version__
    except ImportError:
        return None, True
    return __version__, all(Path(file).is_file() for file in files)


@dataclass(frozen=True)
class SparkCluster:
    context: SparkContext
    mine: "list[RDD[Any]]"  # all that was kept

    def check_workers(self) -> None:
        """Refuse workers that run no task or have another version, before anything is spent."""
        from repsynth import __version__

        versions = {version for version, _ in self._ask(())}
        if versions != {__version__}:
            raise ConfigError(
                f"the Spark workers have not repsynth {__version__}; install it there, or set PYSPARK_PYTHON"
            )

    def check(self, source: Source) -> None:
        """Refuse files that a worker does not see, without reading them."""
        if source.files and not all(sees for _, sees in self._ask(source.files)):
            raise DataError("a Spark worker does not see the file; put it where all machines have it by this path")

    def open(self, source: Source, schema: Schema) -> ClusterEngine:
        return ClusterEngine.on(self, source, schema)

    def spread(self, items: Sequence[Any], task: Task | None = None) -> Parts:
        """Each item goes with the task of its part."""
        parts = SparkParts(self, self.context.parallelize(items, len(items)), len(items))
        return self.keep(parts._each(task), len(items)) if task else parts

    def frame(self, source: Source, encode: EncodeCompact) -> Parts:
        """Encode partition by partition, as Arrow batches."""

        def compact(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            found = carried_out(lambda held, number: encode.of(held), batches, 0)
            yield pa.record_batch({"part": [pickle.dumps(found)]})

        quoted = ["`" + name.replace("`", "``") + "`" for name in encode.columns]
        encoded = source.frame.select(*quoted).mapInArrow(compact, "part binary").rdd
        count = encoded.getNumPartitions()
        if not count:  # nothing is left of the table: Spark drops partitions that turn out empty
            return self.spread([encode.of([])])
        return self.keep(encoded.map(lambda row: pickle.loads(row.part)), count)

    def keep(self, parts: "RDD[Any]", count: int) -> "SparkParts":
        """Keep in memory what fits, and make the rest again."""
        kept = parts.persist(StorageLevel.MEMORY_ONLY)
        self.mine.append(kept)
        return SparkParts(self, kept, count)

    def forget(self) -> None:
        """Release all data."""
        while self.mine:
            self.mine.pop().unpersist()

    def _ask(self, files: tuple[str, ...]) -> list[tuple[str | None, bool]]:
        late, group = Event(), f"repsynth-{uuid4()}"

        def give_up() -> None:
            late.set()
            self.context.cancelJobGroup(group)

        before = self.context.getLocalProperty(_GROUP)
        self.context.setLocalProperty(_GROUP, group)
        timer = Timer(_SECONDS_OF_WORKERS, give_up)
        timer.start()
        try:
            asked = self.context.parallelize(range(_ASKED), _ASKED).map(lambda _: _asked(files))
            return list(asked.collect())
        except Exception as error:
            if late.is_set():
                raise ConfigError(
                    f"no Spark worker answers within {_SECONDS_OF_WORKERS} s; see that some have free cores"
                ) from None
            if "PYTHON_VERSION_MISMATCH" in str(error):
                here = f"{sys.version_info.major}.{sys.version_info.minor}"
                raise ConfigError(
                    f"the Spark workers run another Python than this one, {here}; set PYSPARK_PYTHON to a Python "
                    f"{here} before the session is started"
                ) from None
            raise ConfigError(
                "the Spark workers cannot be asked; see that the same Python and repsynth are installed there, "
                "and that PYSPARK_PYTHON names that Python"
            ) from None
        finally:
            timer.cancel()
            self.context.setLocalProperty(_GROUP, before)


@dataclass(frozen=True)
class SparkParts:
    """Parts of a table: a partition with one element each."""

    cluster: SparkCluster
    parts: "RDD[Any]"
    count: int

    def __len__(self) -> int:
        return self.count

    def shuffled(self, split: Task, join: Task, places: int) -> Parts:
        """Use Spark's shuffle. Its files stay on the executors' disks until the parts are released."""

        def dealt(found: Any) -> Iterator[Any]:
            return ((place, picked(found, place)) for place in range(places))

        def joined(place: int, messages: Iterator[Any]) -> Iterator[Any]:
            yield carried_out(join, [message for _, message in messages], place)

        messages = self._each(split).flatMap(dealt).partitionBy(places, int)
        self.cluster.mine[:] = [each for each in self.cluster.mine if each is not self.parts]
        self.parts.unpersist()
        return self.cluster.keep(messages.mapPartitionsWithIndex(joined), places)

    def added(self, task: Task) -> Any:
        try:
            return self._each(task).treeReduce(lambda one, two: added([one, two]))
        except KeyboardInterrupt:
            with suppress(Exception):  # Java may have stopped already
                self.cluster.context.cancelAllJobs()
            raise
        except (PySparkException, Exception) as error:
            return Failed(f"Spark gave up ({type(error).__name__}); see its logs. What was paid for is spent")

    def _each(self, task: Task) -> "RDD[Any]":
        def each(number: int, parts: Iterator[Any]) -> Iterator[Any]:
            return (carried_out(task, part, number) for part in parts)

        return self.parts.mapPartitionsWithIndex(each)
