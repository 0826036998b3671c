"""Engines: where sums are computed. `Engine.sum(kernel)` is the only way from data to numbers.

local         one process
column_store  the encoded table, with a spill buffer
clusters      Dask and Spark: partitions on workers, of which only integers come back
tasks         what a worker does;  persons: how rows of one person meet there
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta

from repsynth.errors import ConfigError, shown
from repsynth.knobs import Knobs

if TYPE_CHECKING:  # the command line reads the names, and starts without Arrow
    from repsynth.arrays import Ints
    from repsynth.io.records import Records
    from repsynth.io.sources import Source
    from repsynth.schema import Schema

ENGINES: dict[str, str] = {"local": "repsynth.engine.local:LocalEngine"}
"""Engines of this process: "module:class", imported when it is needed."""

CLUSTERS: dict[str, str] = {"dask": "repsynth.engine.dask:connect", "spark": "repsynth.engine.spark:connect"}
"""Kinds of clusters: "module:function". The function is a context manager whose value opens sources."""

_READ_HERE = ("postgresql", "duckdb", "sqlite", "excel", "statistics")
"""Kinds of sources that only this process reads: passwords and locks do not travel."""


class Kernel(Protocol):
    """A public function of one record with integer values: frozen, and pickled to reach the data."""

    def total(self, records: Any) -> "Ints":
        """Sum over a batch. Totals of batches add up to the total of their union, bit for bit."""
        ...


class Engine(Protocol):
    """Records that can be summed over and, by the curator alone, looked at one by one.

    Where several records may belong to one person, sums are in `units`: a record adds its value times its factor,
    which is at most `units`. The factors of a person's records add up to at most `rows_per_person * units`.
    """

    @property
    def rows_per_person(self) -> int:
        """Contribution bound: 1 where each record is a person."""
        ...

    @property
    def units(self) -> int:
        """The factor of a record that counts in full."""
        ...

    @classmethod
    def open(cls, source: "Source", schema: "Schema") -> "Engine": ...

    def sum(self, kernel: Kernel) -> "Ints":
        """Sum a kernel exactly: in integers, so that order and partitions do not matter."""
        ...

    def per_record(self) -> "Iterator[Records]":
        """Iterate over the records themselves, for the curator's private files and for audits."""
        ...


class Place(Knobs, frozen=True):
    """Where sums are computed. It changes neither the loss nor the result, so no plan or release holds it."""

    engine: Annotated[
        str | None,
        Meta(
            description=f"where sums are computed: {', '.join([*ENGINES, *CLUSTERS])} (local)",
            extra={"metavar": "NAME"},
        ),
    ] = None
    cluster: Annotated[
        str | None,
        Meta(
            description="a Dask scheduler's address (tcp://host:8786), or a Spark master's (spark://host:7077); "
            "without it, a local cluster is started",
            extra={"metavar": "URL"},
        ),
    ] = None


def check_engine(name: str) -> None:
    if name not in ENGINES and name not in CLUSTERS:
        raise ConfigError(f"unknown engine '{shown(name)}'; use one of {', '.join([*ENGINES, *CLUSTERS])}")


@contextmanager
def engine_for(
    source: "Source", schema: "Schema", engine: str | None, cluster: Any = None
) -> "Iterator[Callable[[Source, Schema], Engine]]":
    """Yield the function that opens a source with an engine; it may read the table, so it is called after payment.

    A cluster is connected, and asked whether it sees the files, before anything is spent. On exit, the cluster
    forgets the table.
    """
    name = engine or source.engine or "local"
    check_engine(name)
    if source.engine not in (None, name):
        raise ConfigError(f"this table lies on a cluster of {source.engine}; leave the engine out")
    if name in ENGINES:
        if cluster is not None:
            raise ConfigError(f"the engine {name} has no cluster; name the engine: {' or '.join(CLUSTERS)}")
        yield _imported(ENGINES[name]).open
        return
    try:
        connect = _imported(CLUSTERS[name])
    except ImportError:
        raise ConfigError(f"the engine {name} needs more packages; pip install 'repsynth[{name}]'") from None
    if source.kind in _READ_HERE:
        raise ConfigError(
            f"{source.place}: is not read by the workers of a cluster; write it to Parquet files first"
        )
    with connect(cluster, source) as reached:
        reached.check(source)
        yield reached.open


def _imported(place: str) -> Any:
    module, name = place.split(":")
    return getattr(import_module(module), name)
