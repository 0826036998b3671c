"""Engines by name, and opening a source with one. A new engine is one file and one line here."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from repsynth.errors import ConfigError, shown
from repsynth.knobs import Knobs

if TYPE_CHECKING:  # the command line reads the names, and starts without Arrow
    from repsynth.data.sources import Source
    from repsynth.engines.base import Engine
    from repsynth.schema import Schema

ENGINES: dict[str, str] = {"local": "repsynth.engines.local:LocalEngine"}
"""Engines of this process: "module:class", imported when it is needed."""

CLUSTERS: dict[str, str] = {
    "dask": "repsynth.engines.dask:connect",
    "spark": "repsynth.engines.spark:connect",
}
"""Kinds of clusters: "module:function". The function is a context manager whose value opens sources."""

_READ_HERE = ("postgresql", "duckdb", "sqlite", "excel", "statistics")
"""Kinds of sources that only this process reads: passwords and locks do not travel."""


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
