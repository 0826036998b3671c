"""Tables in: files by their suffix, objects by the library that made them, all as a stream of Arrow batches.

Nothing here depends on a cell's value. A new source is one file and one line below.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from repsynth.data.sources.base import Source, check_columns
from repsynth.errors import DataError

__all__ = ["FILES", "OBJECTS", "Source", "check_columns", "open_source"]

FILES: dict[str, str] = {
    ".csv": "repsynth.data.sources.csv:open_csv",
    ".parquet": "repsynth.data.sources.parquet:open_parquet",
    ".pq": "repsynth.data.sources.parquet:open_parquet",
}
"""Who opens a path, by its suffix: "module:function", imported when it is needed."""

OBJECTS: dict[str, str] = {
    "pyarrow.Table": "repsynth.data.sources.frames:open_arrow",
    "pyarrow.RecordBatch": "repsynth.data.sources.frames:open_arrow",
    "pandas.DataFrame": "repsynth.data.sources.frames:open_pandas",
    "polars.DataFrame": "repsynth.data.sources.frames:open_polars",
}
"""Who opens an object, by its library and type."""


def open_source(table: Any) -> Source:
    """Open a data frame, an Arrow table, or a path to a CSV or Parquet file.

    >>> import pyarrow as pa
    >>> source = open_source(pa.table({"age": [30, 40]}))
    >>> source.kind, source.names
    ('arrow', ('age',))
    """
    if isinstance(table, str | Path):
        return _open_path(Path(table))
    kind = f"{type(table).__module__.split('.')[0]}.{type(table).__name__}"
    if kind in OBJECTS:
        return _opener(OBJECTS[kind])(table)
    raise DataError(
        f"cannot read a table from {type(table).__name__}; "
        "give a pandas or polars data frame, a pyarrow table, or the path of a CSV or Parquet file"
    )


def _open_path(path: Path) -> Source:
    suffix = path.suffix.lower()
    if suffix not in FILES:
        raise DataError(f"{path}: cannot tell the format from the name; use {' or '.join(FILES)}")
    if not path.is_file():
        raise DataError(f"{path}: no such file; check the path")
    return _opener(FILES[suffix])(path)


def _opener(place: str) -> Callable[[Any], Source]:
    module, function = place.split(":")
    opener: Callable[[Any], Source] = getattr(import_module(module), function)
    return opener
