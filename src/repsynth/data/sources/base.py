"""What a source of records is: names, storage types, and batches that can be read again and again."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from repsynth.errors import DataError
from repsynth.schema import Schema

BATCH_ROWS = 131_072
UNREADABLE = (OSError, pa.ArrowException, ValueError, MemoryError)  # what Arrow raises on damaged files
Reader = Callable[[Sequence[str]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Source:
    """A table that can be read again and again, a batch at a time.

    `types` holds the Arrow type of each column (None for CSV, which has none; null where each cell has its
    own) and `dtypes` the pandas dtype where the table came as a data frame. `batches` reads some of the columns.
    """

    kind: str
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    dtypes: tuple[str | None, ...]
    batches: Reader
    rows: int | None = None
    """How many rows there are, where that is known without reading: to show how long it takes, no more."""


def check_columns(source: Source, schema: Schema) -> None:
    """Refuse a table whose columns are not the schema's.

    Columns that the schema does not know are named by position only: in a file without a header line
    their names would be somebody's data.
    """
    problems = []
    repeated = sorted({name for name in source.names if source.names.count(name) > 1})
    known = {column.name for column in schema.columns}
    if repeated:
        named = ", ".join(f"'{name}'" if name in known else "(not in the schema)" for name in repeated)
        problems.append(f"column name used more than once: {named}")
    absent = [name for name in (column.name for column in schema.columns) if name not in source.names]
    if absent:
        problems.append(f"no column {', '.join(map(repr, absent))} in the data")
    extra = [str(i) for i, name in enumerate(source.names, start=1) if name not in known]
    if extra:
        shown = ", ".join(extra[:8]) + (", ..." if len(extra) > 8 else "")
        problems.append(f"{len(extra)} column(s) of the data are not in the schema (position {shown})")
    if problems:
        one_column = source.kind == "csv" and len(source.names) == 1 < len(known)
        if one_column:
            remedy = "the file seems to have one column only: is it separated by commas?"
        elif extra:
            remedy = "add them to the schema, drop them from the data, or check that the file has a header line"
        else:
            remedy = "rename or add it in the data, or mend the schema"
        raise DataError(f"{'; '.join(problems)}: {remedy}")
    learned = {column.name for column in schema.learned}
    for name, arrow_type in zip(source.names, source.types, strict=True):
        if arrow_type is not None:
            _check_type(name, arrow_type, learned=name in learned)


def _check_type(name: str, arrow_type: pa.DataType, *, learned: bool) -> None:
    """Refuse what cannot be read, by its type alone: no cell has a say in it."""
    kind = cell_type(arrow_type)
    if pa.types.is_nested(kind):
        raise DataError(f"column '{name}' holds nested values; flatten it into plain columns first")
    if learned and (isinstance(kind, pa.BaseExtensionType) or pa.types.is_interval(kind)):
        raise DataError(f"column '{name}' is of a type that is not read; make it text, numbers or times first")


def cell_type(arrow_type: pa.DataType) -> pa.DataType:
    """The type of the cells, however they are stored: dictionaries and runs of equal cells are no types of
    their own, nor is text with a name.

    >>> cell_type(pa.dictionary(pa.int8(), pa.run_end_encoded(pa.int32(), pa.string())))
    DataType(string)
    """
    types = pa.types
    if types.is_dictionary(arrow_type) or types.is_run_end_encoded(arrow_type):
        return cell_type(arrow_type.value_type)
    if isinstance(arrow_type, pa.BaseExtensionType) and _is_string(arrow_type.storage_type):
        return arrow_type.storage_type
    return arrow_type


def _is_string(arrow_type: pa.DataType) -> bool:
    types = pa.types
    is_string = types.is_string(arrow_type) or types.is_large_string(arrow_type)
    return bool(is_string or types.is_string_view(arrow_type))


def quietly(read: Reader, message: str) -> Reader:
    """Arrow's own messages quote the cell they fail at; ours do not."""

    def reading(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from read(columns)
        except UNREADABLE:
            raise DataError(f"{message}; check that the file is whole") from None

    return reading
