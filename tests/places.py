"""Places that a table may lie in: every kind of file and database."""

import bz2
import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from postgres import Server

from repsynth.errors import ConfigError, DataError
from repsynth.io.encode import encode_batch
from repsynth.io.reading import ReadOptions
from repsynth.io.records import join
from repsynth.io.sources import Source, check_columns, open_source
from repsynth.schema import Schema

Codes = dict[str, list[int]]
SECRET = "Zaphod"
"""A cell that no message may show."""


class Place(NamedTuple):
    """A table, and how it is to be read."""

    table: Any
    reading: ReadOptions = ReadOptions()

    @property
    def path(self) -> Path:
        return Path(self.table)

    def open(self) -> Source:
        return open_source(self.table, self.reading)


def csv_bytes(table: pa.Table, delimiter: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    pacsv.write_csv(table, sink, pacsv.WriteOptions(delimiter=delimiter))
    return bytes(sink.getvalue())


def written(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def in_zst(table: pa.Table, folder: Path) -> Place:
    with pa.output_stream(str(folder / "t.csv.zst"), compression="zstd") as out:
        out.write(csv_bytes(table))
    return Place(folder / "t.csv.zst")


def in_foreign_csv(table: pa.Table, folder: Path) -> Place:
    """As a spreadsheet in some countries saves it."""
    text = csv_bytes(table, ";").decode().encode("utf-16")
    return Place(written(folder / "t.csv", text), ReadOptions(delimiter=";", encoding="utf-16"))


def in_parquet(table: pa.Table, folder: Path) -> Place:
    pq.write_table(table, folder / "t.parquet", row_group_size=37)
    return Place(folder / "t.parquet")


def halves(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    middle = table.num_rows // 2
    return table.slice(0, middle), table.slice(middle)


def in_parquet_folder(table: pa.Table, folder: Path) -> Place:
    (folder / "t" / "deep").mkdir(parents=True)
    for name, part in zip(("a.parquet", "deep/b.parquet"), halves(table), strict=True):
        pq.write_table(part, folder / "t" / name)
    (folder / "t" / "_SUCCESS").touch()
    return Place(folder / "t")


def in_pattern(table: pa.Table, folder: Path) -> Place:
    for name, part in zip("ab", halves(table), strict=True):
        pq.write_table(part, folder / f"{name}.parquet")
    return Place(str(folder / "*.parquet"))


def in_several(table: pa.Table, folder: Path) -> Place:
    """Some compressed, with their columns in another order."""
    first, last = halves(table)
    turned = last.select(last.column_names[::-1])
    paths = [written(folder / "a.csv", csv_bytes(first)), folder / "b.csv.gz"]
    written(paths[1], gzip.compress(csv_bytes(turned)))
    return Place(paths)


def in_arrow_file(table: pa.Table, folder: Path) -> Place:
    with pa.ipc.new_file(folder / "t.arrow", table.schema) as out:
        out.write_table(table, max_chunksize=37)
    return Place(folder / "t.arrow")


def in_feather(table: pa.Table, folder: Path) -> Place:
    feather.write_feather(table, str(folder / "t.feather"), compression="zstd")
    return Place(folder / "t.feather")


def in_sqlite(table: pa.Table, folder: Path) -> Place:
    texts = [
        table[name].cast(pa.string()) if pa.types.is_date(table[name].type) else table[name]
        for name in table.column_names
    ]
    with sqlite3.connect(folder / "t.db") as connection:
        names = ", ".join(f'"{name}"' for name in table.column_names)
        connection.execute(f"CREATE TABLE people ({names})")
        marks = ", ".join("?" * table.num_columns)
        rows = zip(*(column.to_pylist() for column in texts), strict=True)
        connection.executemany(f"INSERT INTO people VALUES ({marks})", rows)
    connection.close()
    return Place(folder / "t.db")


def in_duckdb(table: pa.Table, folder: Path) -> Place:
    """As text: DuckDB's numbers and times are read only where the schema declares them."""
    import duckdb

    for place, field in enumerate(table.schema):
        if not pa.types.is_boolean(field.type) and not pa.types.is_nested(field.type):
            table = table.set_column(place, field.name, table[field.name].cast(pa.string()))
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE people AS SELECT * FROM given")
    return Place(folder / "t.duckdb")


def in_excel(table: pa.Table, folder: Path) -> Place:
    import openpyxl

    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet("people")
    sheet.append(table.column_names)
    for row in table.to_pylist():
        sheet.append(list(row.values()))
    book.save(folder / "t.xlsx")
    return Place(folder / "t.xlsx")


def in_spss(table: pa.Table, folder: Path) -> Place:
    import pyreadstat

    frame = as_numbers(table).to_pandas(date_as_object=True)
    pyreadstat.write_sav(frame, str(folder / "t.sav"))
    return Place(folder / "t.sav")


def in_stata(table: pa.Table, folder: Path) -> Place:
    import pyreadstat

    pyreadstat.write_dta(as_numbers(table).to_pandas(date_as_object=True), str(folder / "t.dta"))
    return Place(folder / "t.dta")


def in_sas(table: pa.Table, folder: Path) -> Place:
    import pyreadstat

    pyreadstat.write_xport(as_numbers(table).to_pandas(date_as_object=True), str(folder / "t.xpt"))
    return Place(folder / "t.xpt")


def as_numbers(table: pa.Table) -> pa.Table:
    """The table as statistics programs store it: true is 1."""
    columns = [c.cast(pa.int8()) if pa.types.is_boolean(c.type) else c for c in table.columns]
    return pa.table(columns, names=table.column_names)


FILES: dict[str, Callable[[pa.Table, Path], Place]] = {
    "csv": lambda table, folder: Place(written(folder / "t.csv", csv_bytes(table))),
    "csv.gz": lambda table, folder: Place(written(folder / "t.csv.gz", gzip.compress(csv_bytes(table)))),
    "csv.bz2": lambda table, folder: Place(written(folder / "t.csv.bz2", bz2.compress(csv_bytes(table)))),
    "csv.zst": in_zst,
    "tsv": lambda table, folder: Place(written(folder / "t.tsv", csv_bytes(table, "\t"))),
    "foreign csv": in_foreign_csv,
    "parquet": in_parquet,
    "parquet folder": in_parquet_folder,
    "pattern": in_pattern,
    "several": in_several,
    "arrow file": in_arrow_file,
    "feather": in_feather,
    "sqlite": in_sqlite,
    "duckdb": in_duckdb,
    "excel": in_excel,
    "spss": in_spss,
    "stata": in_stata,
    "sas": in_sas,
}
SINGLE = [kind for kind in FILES if kind not in ("parquet folder", "pattern", "several")]
"""One file alone."""
TEXT = ("csv", "csv.gz", "csv.bz2", "csv.zst", "tsv", "foreign csv")
KINDS = [*FILES, *(pytest.param(kind, marks=pytest.mark.server) for kind in ("postgresql", "postgresql query"))]


def put(folder: Path, server: Callable[[], Server], kind: str, table: pa.Table, where: str = "place") -> Place:
    """Put a table somewhere."""
    if kind.startswith("postgresql"):
        server().store(table, "people")
        if kind == "postgresql":
            return Place(server().address(table="people"))
        return Place(server().address(), ReadOptions(query="SELECT * FROM people -- all of them;\n"))
    (folder / where).mkdir(exist_ok=True)
    return FILES[kind](table, folder / where)


def codes_of(source: Source, schema: Schema) -> Codes:
    names = [column.name for column in schema.learned]
    check_columns(source, schema)
    records = join([encode_batch(batch, schema) for batch in source.batches(names)], names)
    return {name: records.codes[name].tolist() for name in names}


def message_of(action: Callable[[], Any]) -> str:
    with pytest.raises((DataError, ConfigError)) as caught:
        action()
    said = str(caught.value)
    assert "\n" not in said
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return said
