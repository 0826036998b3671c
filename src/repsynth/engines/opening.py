"""The engine of a name, over a source."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from repsynth.data.sources import Source
from repsynth.engines.base import Engine
from repsynth.engines.names import CLUSTERS, ENGINES
from repsynth.errors import ConfigError, shown
from repsynth.schema import Schema

_READ_HERE = ("postgresql", "duckdb", "sqlite", "excel", "statistics")
"""Kinds of sources that this process alone reads: passwords and locks do not travel."""

Open = Callable[[Source, Schema], Engine]
"""Records that can be summed over; opening may read them, so it comes after the payment."""


def check_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if name not in ENGINES and name not in CLUSTERS:
        raise ConfigError(f"unknown engine '{shown(name)}'; use one of {', '.join([*ENGINES, *CLUSTERS])}")


@contextmanager
def engine_for(source: Source, schema: Schema, engine: str | None, cluster: Any = None) -> Iterator[Open]:
    """What opens a source with an engine. A cluster is reached, and asked whether it sees the files, before
    anything is spent; at the end, nothing of the table is left there."""
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
