"""How a table is stored: the type of each column, so that the synthetic table comes out alike."""

import re

import msgspec
import pyarrow as pa

from repsynth.errors import ReleaseError

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
_UNITS = ("s", "ms", "us", "ns")
SIMPLE = {
    str(kind): kind
    for kind in (
        *_WHOLE,
        *(pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.string_view()),
        *(pa.date32(), pa.date64()),
        *(pa.dictionary(index, text) for index in _WHOLE for text in (pa.string(), pa.large_string())),
        *(kind(unit) for unit in _UNITS for kind in (pa.timestamp, pa.duration)),
    )
}
PYARROW = "pyarrow"
"""In the place of a pandas dtype: pandas keeps the column in its Arrow type."""

DTYPE = re.compile(
    r"(u?int(8|16|32|64)|U?Int(8|16|32|64)|[Ff]loat(32|64)|bool|boolean|object|str|string|category|pyarrow"
    r"|datetime64\[(s|ms|us|ns)(, [A-Za-z0-9_+:/-]{1,64})?\]|timedelta64\[(s|ms|us|ns)\])"
)
"""The pandas dtypes that a layout may hold."""

_ZONED = re.compile(r"timestamp\[(s|ms|us|ns), tz=([A-Za-z0-9_+:/-]{1,64})\]")
_DECIMAL = re.compile(r"decimal128\(([1-9]|[12][0-9]|3[0-8]), ([0-9]|[12][0-9]|3[0-8])\)")


class ColumnLayout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one column is stored: its Arrow type, and its pandas dtype where it came from a data frame."""

    name: str
    type: str
    dtype: str | None = None


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the table that came in was stored, so that the synthetic one comes out alike."""

    kind: str
    columns: tuple[ColumnLayout, ...]


def arrow_type_named(name: str) -> pa.DataType:
    """The Arrow type with this name, among those that a layout may hold.

    >>> arrow_type_named("timestamp[us, tz=UTC]")
    TimestampType(timestamp[us, tz=UTC])
    """
    if name in SIMPLE:
        return SIMPLE[name]
    if zoned := _ZONED.fullmatch(name):
        return pa.timestamp(zoned[1], tz=zoned[2])
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    raise ReleaseError("the release names a column type that this version does not know")
