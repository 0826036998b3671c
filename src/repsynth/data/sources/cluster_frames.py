"""Data frames of Dask and Spark: what is publicly known of them. Their rows stay on the cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import pyarrow as pa

from repsynth.data.sources.base import Source
from repsynth.data.sources.frames import open_pandas
from repsynth.errors import DataError

_UTC = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def open_dask(frame: Any) -> Source:
    """A Dask data frame, whose partitions are pandas data frames: names and dtypes are those that it declares."""
    source = open_pandas(frame._meta)
    return replace(source, batches=_stays, rows=None, pieces=None, engine="dask", frame=frame)


def open_spark(frame: Any) -> Source:
    """A Spark data frame, whose partitions are read as Arrow batches.

    One that may hold other rows each time it is worked out is refused: a person could be in two of its parts.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if not hasattr(frame, "_jdf"):
        raise DataError(
            "this Spark DataFrame is read over Spark Connect; give one of a session on the cluster itself"
        )
    if not frame._jdf.queryExecution().analyzed().deterministic():
        raise DataError(
            "this Spark DataFrame may hold other rows each time it is worked out (rand() and its like); write it "
            "to a file first"
        )
    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC and any(field.dataType.typeName() == "timestamp" for field in frame.schema.fields):
        raise DataError(
            "this Spark DataFrame has times in the time zone of its session, while text is read as UTC; set "
            "spark.sql.session.timeZone to UTC and read the table again, or make these columns timestamp_ntz"
        )
    zoned = "timezone" in signature(to_arrow_schema).parameters  # not before Spark 4.1
    try:
        schema = to_arrow_schema(frame.schema, **({"timezone": "UTC"} if zoned else {}))
    except PySparkException:
        raise DataError("this Spark DataFrame has a column of a type that Arrow lacks; cast or drop it") from None
    nothing = (None,) * len(schema.names)
    types = tuple(schema.types)
    return Source("arrow", tuple(schema.names), types, nothing, _stays, engine="spark", frame=frame)


def _stays(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    raise DataError(
        "this looks at records one by one, and those of a data frame on a cluster stay there; write it to a "
        "Parquet file and give that"
    )
