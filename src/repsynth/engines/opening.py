"""The engine of a name, over a source."""

from importlib import import_module

from repsynth.data.sources import Source
from repsynth.engines.base import Engine
from repsynth.engines.names import ENGINES
from repsynth.errors import ConfigError
from repsynth.schema import Schema


def check_engine(name: str) -> None:
    """Refuse a name that no engine has."""
    if name not in ENGINES:
        raise ConfigError(f"unknown engine '{name}'; use one of {', '.join(ENGINES)}")


def open_engine(name: str, source: Source, schema: Schema) -> Engine:
    """Records that can be summed over; opening may read them, so it comes after the payment."""
    module, kind = ENGINES[name].split(":")
    opened: Engine = getattr(import_module(module), kind).open(source, schema)
    return opened
