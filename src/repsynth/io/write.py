"""Write tables: from codes back to cells in one Arrow type per column, and from tables to files."""

import contextlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repsynth.arrays import Bools, Floats, Ints
from repsynth.errors import ConfigError, shown
from repsynth.io.ids import make_ids
from repsynth.io.records import MISSING, Records
from repsynth.io.source import is_text
from repsynth.io.values import (
    EPOCH,
    Notation,
    date_format,
    has_form,
    numbers_of,
    seconds_at,
    special_values,
    usual,
    values_at,
)
from repsynth.schema import Boolean, Category, Column, Datetime, Discrete, Id, Integer, Number, Numeric, Schema
from repsynth.schema.columns import is_whole_number
from repsynth.storage import check_place, unnamed
from repsynth.threads import how_many_workers, in_order

Kind = Literal["pandas", "polars", "arrow"]  # what a synthetic table comes as

_DAY = 86_400


def arrow_schema(schema: Schema, *, csv: bool = False) -> pa.Schema:
    """Return the Arrow types of a synthetic table; for a `csv` file, those whose text is the declared one."""
    return pa.schema([(column.name, (_csv_type if csv else arrow_type)(column)) for column in schema.columns])


def arrow_type(column: Column) -> pa.DataType:
    """Return the type of a synthetic column: the declared `storage`, else one by the column's type and domain.

    >>> arrow_type(Category(name="smoker", values=("0", "1")))
    DataType(int64)
    """
    if column.storage is not None:
        return pa.type_for_alias(column.storage)
    match column:
        case Category():
            whole = all(map(is_whole_number, column.values))
            return pa.int64() if whole else pa.dictionary(pa.int32(), pa.string())
        case Boolean():
            return pa.bool_()
        case Id():
            return pa.string()
    special = special_values(column)
    if has_form(column) or None in special or numbers_of(column.special) is None:
        return pa.string()
    numbers = np.array(special, dtype=np.float64)
    if isinstance(column, Datetime):
        days = column.unit.days == 1 and not (numbers % _DAY).any()
        return pa.date32() if days else pa.timestamp("s")
    return pa.int64() if isinstance(column, Integer) and not (numbers % 1).any() else pa.float64()


def _csv_type(column: Column) -> pa.DataType:
    """In a CSV file, numbers have all declared decimals and times a T before the clock."""
    plain = arrow_type(column)
    if isinstance(column, Number) and column.decimals and pa.types.is_floating(plain):
        digits = len(str(int(max(abs(column.min), abs(column.max)))))
        return pa.string() if column.special else pa.decimal128(digits + column.decimals, column.decimals)
    return pa.string() if pa.types.is_timestamp(plain) else plain


def decode(records: Records, schema: Schema, *, first_id: int = 1, seed: int = 0, csv: bool = False) -> pa.Table:
    """Return the records as an Arrow table of `arrow_schema`, with ids from the `first_id` on. `seed` decides
    which ids a format gets."""
    types = arrow_schema(schema, csv=csv)
    arrays = []
    for column, kind in zip(schema.columns, types.types, strict=True):
        if isinstance(column, Id):
            arrays.append(make_ids(column, records.rows, first=first_id, seed=seed).cast(kind))
        elif isinstance(column, Discrete):
            arrays.append(_discrete(records.codes[column.name], column, kind))
        else:
            arrays.append(_numeric(records.codes[column.name], column, kind))
    return pa.Table.from_arrays(arrays, schema=types)


def to_kind(table: pa.Table, schema: Schema, kind: Kind) -> Any:
    """Return the table as a pandas or polars data frame, or as it is."""
    if kind == "polars":
        import polars

        return polars.from_arrow(table)
    return _to_pandas(table, schema) if kind == "pandas" else table


def _to_pandas(table: pa.Table, schema: Schema) -> Any:
    """Make integers and booleans nullable by the schema, not by the cells that were drawn."""
    import pandas

    def nullable(kind: pa.DataType) -> Any:
        name = "boolean" if pa.types.is_boolean(kind) else str(kind).replace("int", "Int").replace("u", "U")
        return pandas.api.types.pandas_dtype(name)

    frame = table.to_pandas(date_as_object=False)
    for column in schema.columns:
        kind = table.schema.field(column.name).type
        if (
            not isinstance(column, Id)
            and column.missing
            and (pa.types.is_integer(kind) or pa.types.is_boolean(kind))
        ):
            frame[column.name] = table[column.name].to_pandas(types_mapper=nullable)
    return frame


def _masked(values: Any, missing: Bools) -> pa.Array:
    """Arrow copies what has a mask."""
    return pa.array(values, mask=missing) if missing.any() else pa.array(values)


def _discrete(codes: Ints, column: Discrete, kind: pa.DataType) -> pa.Array:
    missing = codes == MISSING
    if isinstance(column, Boolean):
        return _masked(codes == 1, missing).cast(kind)
    values = pa.array(column.values, type=pa.string())
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(_masked(codes.astype(np.int32), missing), values)
    return values.cast(kind).take(_masked(codes, missing))


def _numeric(codes: Ints, column: Numeric, kind: pa.DataType) -> pa.Array:
    """Decode numbers or times, as such or as text, and special values."""
    other = (codes == MISSING) | (codes > column.steps)
    positions = usual(np.where(other, 0, codes) if other.any() else codes, column)
    if is_text(kind):
        cells = _texts(positions, other, column).cast(kind)
        special = pa.array(column.special, type=kind)
    else:
        values = seconds_at(positions, column) if isinstance(column, Datetime) else values_at(positions, column)
        numbers = np.array(special_values(column), dtype=np.float64)
        cells, special = _as_stored(values, other, kind), _as_stored(numbers, np.isnan(numbers), kind)
    if not column.special:
        return cells
    which = pa.array(codes - column.steps - 1, mask=codes <= column.steps)
    return pc.coalesce(special.take(which), cells)


def _as_stored(values: Ints | Floats, missing: Bools, kind: pa.DataType) -> pa.Array:
    """Numbers, or times in seconds since 1970."""
    if pa.types.is_temporal(kind):
        return _masked(values.astype(np.int64), missing).cast(pa.timestamp("s")).cast(kind)
    if pa.types.is_decimal(kind):
        values = values.astype(np.float64)
    return _masked(values, missing).cast(kind)


def _texts(positions: Ints, missing: Bools, column: Numeric) -> pa.Array:
    """Write values as text, each distinct value once."""
    distinct, place = np.unique(positions, return_inverse=True)
    if not isinstance(column, Datetime):
        write = Notation.of(column).write
        written = pa.array([write(value) for value in values_at(distinct, column).tolist()], pa.string())
    elif form := date_format(column):
        times = (EPOCH + timedelta(seconds=second) for second in seconds_at(distinct, column).tolist())
        written = pa.array([form.write(time) for time in times], pa.string())
    else:
        times = pa.array(seconds_at(distinct, column)).cast(pa.timestamp("s"))
        written = pc.strftime(times, "%Y-%m-%d" if column.unit.days == 1 else "%Y-%m-%dT%H:%M:%S")
    return written.take(pa.array(place, mask=missing))


# --- files ---

# Text that a spreadsheet may run (also after blanks and in full width), and exceptions: numbers and signs.
_FORMULA = "^[\\s\\x00\\x{FEFF}]*[=+\\-@\\x{FF1D}\\x{FF0B}\\x{FF0D}\\x{FF20}]|^[\\t\\r\\n]"
_HARMLESS = "^[+-]?(\\p{Sc}?([0-9][0-9.,'’_ \u00a0\u202f]*|[.,][0-9]+)([eE][+-]?[0-9]+)?|inf)?$"


@dataclass(frozen=True)
class Written:
    """The number of rows written, and of cells with an apostrophe by column."""

    rows: int
    apostrophes: Mapping[str, int]


def check_table_path(path: Path, suffixes: tuple[str, ...] | None = None) -> None:
    """Refuse a path that could not be written, before anything is spent."""
    suffixes = tuple(WRITERS) if suffixes is None else suffixes
    if path.suffix.lower() not in suffixes:
        raise ConfigError(
            f"{shown(path)}: cannot tell the format from the name; end it in {' or '.join(suffixes)}"
        )
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{shown(path)}: already exists; choose another name with -o, or remove it first")


def write_table(
    pieces: Iterable[Callable[[], pa.Table]],
    schema: pa.Schema,
    path: Path,
    on_rows: Callable[[int], None] = lambda rows: None,
) -> Written:
    """Write a table piece by piece in the format of its suffix; `schema` is the table's.

    Several threads make the pieces, which may have texts as dictionaries, and get them ready.
    """
    rows, apostrophes = 0, Counter[str]()
    with unnamed(path) as temporary, contextlib.closing(WRITERS[path.suffix.lower()](temporary, schema)) as writer:

        def make(piece: Callable[[], pa.Table]) -> tuple[int, Any]:
            table = piece()
            return table.num_rows, writer.ready(table)

        with contextlib.closing(in_order(make, pieces, how_many_workers())) as made:
            for count, ready in made:
                apostrophes.update(writer.write(ready) or {})
                rows += count
                on_rows(rows)
    return Written(rows, dict(apostrophes))


class Writer(Protocol):
    """Writes a table to a file, piece by piece."""

    def close(self) -> None: ...

    def ready(self, piece: pa.Table) -> Any:
        """Prepare a piece; several threads may call it."""
        ...

    def write(self, ready: Any) -> Mapping[str, int] | None:
        """Write a prepared piece. Return the number of apostrophes by column."""
        ...


class _ParquetWriter:
    def __init__(self, path: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        # Most fractions are distinct, so a dictionary would only take time.
        repeated = [field.name for field in schema if not pa.types.is_floating(field.type)]
        # Minimum and maximum text are slow, and the same in every piece.
        ordered = [field.name for field in schema if not pa.types.is_dictionary(field.type)]
        self._writer = pq.ParquetWriter(
            path, schema, use_dictionary=repeated or False, write_statistics=ordered or False
        )
        self.close = self._writer.close

    def ready(self, piece: pa.Table) -> pa.Table:
        return piece

    def write(self, ready: pa.Table) -> None:
        self._writer.write_table(ready)


class _CsvWriter:
    """Write CSV without formulas."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        risky = takes_apostrophe(schema.names)
        self._header = Counter(name for name, is_risky in zip(schema.names, risky, strict=True) if is_risky)
        self._names = [_as_csv(_without_formulas(schema.empty_table())[0], header=True)]
        self._file = path.open("wb")
        self.close = self._file.close

    def ready(self, piece: pa.Table) -> tuple[pa.Buffer, Counter[str]]:
        safe, apostrophes = _without_formulas(piece)
        return _as_csv(safe, header=False), apostrophes

    def write(self, ready: tuple[pa.Buffer, Counter[str]]) -> Counter[str]:
        text, apostrophes = ready
        self._file.writelines([*self._names, text])
        header, self._header, self._names = self._header, Counter(), []
        return apostrophes + header


WRITERS: dict[str, Callable[[Path, pa.Schema], Writer]] = {
    ".csv": _CsvWriter,
    ".parquet": _ParquetWriter,
    ".pq": _ParquetWriter,
}
"""For each suffix a writer. A new format is one entry."""


def _as_csv(table: pa.Table, *, header: bool) -> pa.Buffer:
    import pyarrow.csv as pacsv

    written = pa.BufferOutputStream()
    pacsv.write_csv(table, written, pacsv.WriteOptions(include_header=header, batch_size=max(len(table), 1)))
    return written.getvalue()


def takes_apostrophe(texts: Sequence[str]) -> list[bool]:
    """Return which texts get an apostrophe in a CSV file.

    >>> takes_apostrophe(["=A1", "-5", "n/a"])
    [True, False, False]
    """
    return _risky(pa.array(texts, pa.string())).to_pylist()  # type: ignore[no-any-return]


def _without_formulas(table: pa.Table) -> tuple[pa.Table, Counter[str]]:
    """Put an apostrophe before text and column names that a spreadsheet would run as formulas: the schema may come
    from somebody else. Return the table and the number of apostrophes by column."""
    columns, apostrophes = [], Counter[str]()
    for name, column in zip(table.column_names, table.columns, strict=True):
        cells = column.combine_chunks()
        if pa.types.is_dictionary(cells.type):  # each text once
            texts, risky = _quoted(cells.dictionary)
            if pc.any(risky).as_py():
                apostrophes[name] += pc.sum(risky.take(cells.indices)).as_py() or 0
            cells = pa.DictionaryArray.from_arrays(cells.indices, texts)
        elif is_text(cells.type):
            cells, risky = _quoted(cells)
            apostrophes[name] += pc.sum(risky).as_py() or 0
        columns.append(cells)
    names = _quoted(pa.array(table.column_names, pa.string()))[0].to_pylist()
    return pa.table(columns, names=names), apostrophes


def _quoted(texts: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return texts with apostrophes, and which texts needed one."""
    if pa.types.is_string_view(texts.type):
        texts = texts.cast(pa.string())
    risky = _risky(texts)
    if not pc.any(risky).as_py():
        return texts, risky
    apostrophe, nothing = pa.scalar("'", texts.type), pa.scalar("", texts.type)
    return pc.if_else(risky, pc.binary_join_element_wise(apostrophe, texts, nothing), texts), risky


def _risky(texts: pa.Array) -> pa.Array:
    return pc.and_not(pc.match_substring_regex(texts, _FORMULA), pc.match_substring_regex(texts, _HARMLESS))
