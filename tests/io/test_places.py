"""Wherever a table lies, it reads alike: one list of checks for every kind of file and database."""

import gzip
import inspect
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ALL_TYPES, make_people
from places import FILES, KINDS, SECRET, SINGLE, Place, codes_of, in_parquet, in_sqlite, message_of, written
from postgres import PASSWORD

import repsynth
from repsynth.cli.main import main
from repsynth.curator.infer import make_draft
from repsynth.errors import ConfigError, DataError
from repsynth.io.reading import ReadOptions
from repsynth.io.sources import check_columns, open_source
from repsynth.schema import Schema, parse_schema

POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.server)

# --- the same records ---


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_codes_from_every_place_however_often_it_is_read(
    kind: str, place: Callable[..., Place], people: pa.Table, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("arrow", "sql", "office"):  # ten batches, none left over
        monkeypatch.setattr(f"repsynth.io.{module}.BATCH_ROWS", people.num_rows // 10)
    source, expected = place(kind, people).open(), codes_of(open_source(people), schema)
    assert max(max(codes) for codes in expected.values()) > 0
    assert source.names == tuple(people.column_names)
    for _ in range(2):
        assert codes_of(source, schema) == expected
    ((age, sex),) = {tuple(batch.schema.names) for batch in source.batches(["smoker", "age"])}
    assert (age, sex) == ("smoker", "age")
    assert source.rows in (None, people.num_rows)
    assert source.dropped() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_no_rows_are_no_error(kind: str, place: Callable[..., Place], schema: Schema) -> None:
    nothing = make_people(5).slice(0, 0)
    if kind in ("spss", "stata", "sas"):
        nothing = pa.table(
            {name: pa.array([], c.type) for name, c in zip(nothing.column_names, nothing.columns, strict=True)}
        )
    assert set(map(len, codes_of(place(kind, nothing).open(), schema).values())) == {0}


# --- each cell by itself ---

ODD = pa.table(
    {
        "text": ["1", "2", "x", "1.50", "1,5", " 1", "", None, "2020-01-01", "é", "1e3"],
        "number": [1.0, 2.0, 1.5, None, -0.0, 1e16, 3.0, 0.1, 100.0, 12345678901.0, 7.0],
        "whole": [1, 2, None, 4, 5, 2**31, 7, -8, 9, 10, 11],
        "day": [date(2020, 1, 1), None, date(2019, 5, 5), *[date(2021, 1, k) for k in range(1, 9)]],
    }
)
ODD_SCHEMA = parse_schema("""
one_row_per_person = true
[columns.text]
type = "category"
values = ["1", "2", "1.5", "1.50", "x", "é", "2020-01-01"]
[columns.number]
type = "number"
min = 0
max = 1e6
[columns.whole]
type = "integer"
min = 0
max = 100
special = [-8]
[columns.day]
type = "datetime"
min = 2019-01-01
max = 2021-12-31
""")


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_reads_alike_alone_and_among_others(kind: str, place: Callable[..., Place]) -> None:
    """What a library would make of the type of a column with these cells in it makes no difference."""
    together = codes_of(place(kind, ODD, "all").open(), ODD_SCHEMA)
    for rows in ([0], [2], [3, 5], [7], [10, 0]):
        some = codes_of(place(kind, ODD.take(rows), f"rows {rows[0]}").open(), ODD_SCHEMA)
        assert some == {name: [codes[row] for row in rows] for name, codes in together.items()}


MIXED: list[Any] = [1, 2.5, "1", "1.0", "x", None, b"\xff", b"1", 2**62, -0.0, 1e300, "2020-01-01", "é", "", "2.5"]
MIXED_SCHEMA = parse_schema("""
one_row_per_person = true
[columns.a]
type = "category"
values = ["1", "2.5", "x", "é", "2020-01-01"]
[columns.b]
type = "number"
min = 0
max = 10
""")


def test_cells_of_sqlite_each_have_their_own_type(tmp_path: Path) -> None:
    path = tmp_path / "t.sqlite"

    def codes(*cells: Any) -> list[tuple[int, ...]]:
        path.unlink(missing_ok=True)
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE t (a, b)")
            connection.executemany("INSERT INTO t VALUES (?, ?)", [(cell, cell) for cell in cells])
            connection.execute(
                "INSERT INTO t SELECT x, x FROM (SELECT CAST(x'ff31' AS TEXT) AS x) WHERE 0 = ?", [len(cells)]
            )
        connection.close()
        source = open_source(path)
        assert source.types == (pa.null(),) * 2
        found = codes_of(source, MIXED_SCHEMA)
        return list(zip(found["a"], found["b"], strict=True))

    together = codes(*MIXED)
    assert together == [codes(cell)[0] for cell in MIXED]
    assert len(set(together)) > 5
    assert together[1] == together[-1], "2.5 as a number and as text"
    assert together[7] == together[2], "1 as bytes and as text"
    codes(1, "x")
    leading = parse_schema(
        "one_row_per_person = true\n"
        "[columns.a]\ntype = 'category'\nvalues = ['01', 'x']\n[columns.b]\ntype = 'number'\nmin = 0\nmax = 1\n"
    )
    with pytest.raises(DataError, match=r"^column 'a' is stored as numbers, "):
        codes_of(open_source(path), leading)
    assert codes() == [(-1, -1)], "text that is no UTF-8"


def test_cells_of_a_workbook_each_have_their_own_type(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    cells = [1, 2.5, "1", "x", None, "#N/A", "=1+1", 1e300]

    def codes(cells: list[Any], values: str = "1, '2.5', 'x'") -> list[int]:
        book = openpyxl.Workbook()
        book.active.append(["a", "filled"])
        for cell in cells:
            book.active.append([cell, "y", None, "beside the table"])
        book.active.append([None, None])
        book.save(tmp_path / "t.xlsx")
        schema = parse_schema(
            "one_row_per_person = true\n"
            f"[columns.a]\ntype = 'category'\nvalues = [{values}]\n[columns.filled]\ntype = \"boolean\"\n"
        )
        return codes_of(open_source(tmp_path / "t.xlsx"), schema)["a"]

    together = codes(cells)
    assert together == [codes([cell])[0] for cell in cells]
    assert together[:4] == [0, 1, 0, 2]
    for odd in (True, date(2020, 1, 1), datetime(2020, 1, 1, 10)):
        with pytest.raises(DataError, match=r"^column 'a' is stored as (booleans|times), "):
            codes([1, odd])
    with pytest.raises(DataError, match=r"^column 'a' is stored as numbers, "):
        codes([1, "x"], values="'01', 'x'")


def test_folders_that_are_named_like_numbers_but_for_one_read_alike(tmp_path: Path) -> None:
    """A library that took the type from all names would read 01 as 1 until somebody had x."""
    schema = parse_schema(
        "one_row_per_person = true\n"
        '[columns.code]\ntype = "category"\nvalues = ["01", "1", "x y"]\nmissing = true\n'
        '[columns.n]\ntype = "integer"\nmin = 0\nmax = 9\n'
    )

    def codes(names: list[str]) -> list[int]:
        folder = tmp_path / "-".join(names)
        for number, name in enumerate(names):
            (folder / f"code={name}").mkdir(parents=True)
            pq.write_table(pa.table({"n": [number]}), folder / f"code={name}" / "p.parquet")
        return codes_of(open_source(folder), schema)["code"]

    names = ["01", "1", "2", "__HIVE_DEFAULT_PARTITION__", "x%20y"]
    assert codes(names) == [codes([name])[0] for name in names] == [0, 1, -1, -1, 2]


# --- what goes wrong ---


@pytest.mark.parametrize("kind", SINGLE)
def test_a_file_that_changes_between_readings_is_refused(
    kind: str, place: Callable[..., Place], schema: Schema
) -> None:
    put = place(kind, make_people(30))
    source = put.open()
    codes_of(source, schema)
    os.utime(put.path, ns=(1, 1))
    assert "changed since it was opened" in message_of(lambda: codes_of(source, schema))
    put.path.unlink()
    assert "changed since it was opened" in message_of(lambda: codes_of(source, schema))
    assert "no such file" in message_of(put.open)


def test_nor_may_a_file_change_while_it_is_read(tmp_path: Path) -> None:
    source = in_parquet(make_people(300), tmp_path).open()
    reading = source.batches(["age"])
    next(reading)
    os.utime(tmp_path / "t.parquet", ns=(1, 1))
    assert "changed since it was opened" in message_of(lambda: list(reading))


PACKED = [kind for kind in SINGLE if kind not in ("csv", "tsv", "foreign csv")]
"""Of plain text nobody can tell where it ends."""


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("part", [0.4, 0.97])
def test_a_file_that_is_cut_off_is_refused(
    kind: str, part: float, place: Callable[..., Place], schema: Schema
) -> None:
    put = place(kind, pa.concat_tables([make_people(2_000)] * (20 if kind in ("sqlite", "duckdb") else 1)))
    content = put.path.read_bytes()
    put.path.write_bytes(content[: int(len(content) * part)])
    said = message_of(lambda: codes_of(put.open(), schema))
    assert put.path.name in said


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("content", [b"", b"\0" * 300, SECRET.encode() * 100], ids=["empty", "zeros", "text"])
def test_a_file_of_something_else_is_refused_or_has_other_columns(
    kind: str, content: bytes, place: Callable[..., Place], schema: Schema
) -> None:
    put = place(kind, make_people(8))
    paths = [Path(path) for path in put.table] if isinstance(put.table, list) else [Path(put.table)]
    for path in paths:
        for file in path.rglob("*.parquet") if path.is_dir() else path.parent.glob(path.name):
            file.write_bytes(content)
    said = message_of(lambda: codes_of(put.open(), schema))
    assert SECRET not in said


def test_an_arrow_stream_is_refused_with_a_remedy(tmp_path: Path) -> None:
    table = make_people(10)
    with pa.ipc.new_stream(tmp_path / "t.arrow", table.schema) as out:
        out.write_table(table)
    assert "as a Parquet file" in message_of(lambda: open_source(tmp_path / "t.arrow"))


@pytest.mark.parametrize("kind", ["parquet", "arrow file", "csv", "tsv", "excel", "sqlite", "duckdb", POSTGRESQL])
def test_a_name_that_two_columns_have_is_refused(
    kind: str, place: Callable[..., Place], request: pytest.FixtureRequest
) -> None:
    schema = parse_schema('one_row_per_person = true\n[columns.age]\ntype = "integer"\nmin = 0\nmax = 9\n')
    if kind in ("sqlite", "duckdb", "postgresql"):
        put = place(kind, pa.table({"age": [1, 2]}))
        put = put._replace(
            reading=ReadOptions(query="SELECT age, age FROM people"),
            table=str(put.table).replace("&table=people", ""),
        )
    else:
        put = place(kind, pa.Table.from_arrays([pa.array([1, 2])] * 2, names=["age", "age"]))
    said = message_of(lambda: check_columns(put.open(), schema))
    if kind in ("sqlite", "duckdb"):  # give the second one a name of its own
        assert "1 column(s) of the data are not in the schema (position 2)" in said
        return
    assert "more than once: 'age'" in said
    assert "more than once" in message_of(lambda: make_draft(put.open()))


# --- several files ---


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (pa.table({"a": [1], "c": [2]}), "b.parquet: its column 2, 'c', is not in"),
        (pa.table({"a": [1]}), "a.parquet: its column 2, 'b', is not in"),
        (pa.table({"a": [1], "b": [1], "c": [2]}), "b.parquet: its column 3, 'c', is not in"),
    ],
    ids=["other", "fewer", "more"],
)
def test_files_of_one_table_have_the_same_columns(other: pa.Table, message: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1], "b": [2]}), tmp_path / "a.parquet")
    pq.write_table(other, tmp_path / "b.parquet")
    for table in (tmp_path, str(tmp_path / "*"), [tmp_path / "a.parquet", tmp_path / "b.parquet"]):
        said = message_of(lambda table=table: open_source(table))
        assert message.split(": ")[0] in said
        assert message.split(": ")[1] in said


def test_a_second_file_without_a_header_line_shows_no_cell(tmp_path: Path) -> None:
    paths = [
        written(tmp_path / "a.csv", b"name,age\nx,1\n"),
        written(tmp_path / "b.csv", f"{SECRET},7\n".encode()),
    ]
    assert "b.csv: its column 1 is not in" in message_of(lambda: open_source(paths))
    assert SECRET not in message_of(lambda: open_source(paths))


def test_the_names_of_folders_are_cells_and_not_shown(tmp_path: Path) -> None:
    for name in (SECRET, "f"):
        (tmp_path / f"who={name}").mkdir()
        pq.write_table(pa.table({"a": [1]}), tmp_path / f"who={name}" / "p.parquet")
    good = open_source(tmp_path)
    assert sorted(good.names) == ["a", "who"]
    bad = tmp_path / f"who={SECRET}" / "p.parquet"
    os.utime(bad, ns=(1, 1))
    assert SECRET not in message_of(lambda: list(good.batches(["a"])))
    bad.write_bytes(b"PAR1")
    said = message_of(lambda: open_source(tmp_path))
    assert SECRET not in said
    assert "who=.../p.parquet" in said
    pq.write_table(pa.table({"a": [1], "who": ["x"]}), bad)
    assert "in the file and in the name of its folder" in message_of(lambda: open_source(tmp_path))
    assert SECRET not in message_of(lambda: open_source(str(tmp_path / "who=*" / "*.parquet")))


def test_columns_in_the_names_of_folders_are_columns(tmp_path: Path, schema: Schema) -> None:
    people = make_people(60).sort_by("region")
    pq.write_to_dataset(people, tmp_path / "t", partition_cols=["region", "smoker"])
    expected = sorted(zip(*codes_of(open_source(people), schema).values(), strict=True))
    for table in (
        tmp_path / "t",
        str(tmp_path / "t" / "region=*" / "**" / "*.parquet"),
        str(tmp_path / "t" / "*"),
    ):
        found = codes_of(open_source(table), schema)
        assert sorted(zip(*(found[column.name] for column in schema.learned), strict=True)) == expected
    only = open_source(tmp_path / "t")
    assert sum(batch.num_rows for batch in only.batches(["region"])) == 60


def test_folders_and_patterns_that_hold_no_table(tmp_path: Path) -> None:
    assert "no files in this folder" in message_of(lambda: open_source(tmp_path))
    assert "no file matches" in message_of(lambda: open_source(str(tmp_path / "*.csv")))
    written(tmp_path / "a.csv", b"a\n1\n")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "b.parquet")
    assert "not of the same format" in message_of(lambda: open_source(tmp_path))
    (tmp_path / "b.parquet").unlink()
    written(tmp_path / "part-3", b"a\n1\n")
    assert "cannot tell the format" in message_of(lambda: open_source(tmp_path))
    written(tmp_path / "odd[1].csv", b"a\n1\n")
    assert open_source(tmp_path / "odd[1].csv").names == ("a",)


def test_files_that_store_a_column_in_different_ways_read_alike(tmp_path: Path) -> None:
    """pandas makes real numbers of whole ones, and objects of both, by a cell: no error and no type may follow."""
    pd = pytest.importorskip("pandas")
    schema = parse_schema(
        'one_row_per_person = true\n[columns.a]\ntype = "category"\nvalues = ["1", "2", "3"]\nmissing = true\n'
    )
    frames = [pd.DataFrame({"a": cells}) for cells in ([1, 2], [1, None], ["1", "x"], [None, None])]
    for number, frame in enumerate(frames):
        frame.to_parquet(tmp_path / f"{number}.parquet")
    assert codes_of(open_source(tmp_path), schema)["a"] == [0, 1, 0, -1, 0, -1, -1, -1]
    assert '"1"' in make_draft(open_source(tmp_path)).text


# --- how a CSV file is written ---


def test_what_separates_cells_is_noticed_in_the_header(tmp_path: Path) -> None:
    schema = parse_schema(
        'one_row_per_person = true\n[columns.a]\ntype = "boolean"\n[columns.b]\ntype = "boolean"\n'
    )
    for mark, shown in ((";", ";"), ("\t", "\\t"), ("|", "|")):
        path = written(tmp_path / "t.csv", f"a{mark}b\n1{mark}0\n".encode())
        for act in (lambda source: check_columns(source, schema), make_draft):
            said = message_of(partial(act, open_source(path)))
            assert f"say --delimiter '{shown}' (in Python, delimiter='{shown}')" in said
        assert codes_of(open_source(path, ReadOptions(delimiter=shown)), schema) == {"a": [1], "b": [0]}
    path = written(tmp_path / "t.tsv", b"a,b\n1,0\n")
    assert "say --delimiter ','" in message_of(lambda: check_columns(open_source(path), schema))


def test_how_text_is_stored(tmp_path: Path) -> None:
    schema = parse_schema(
        'one_row_per_person = true\n[columns.a]\ntype = "category"\nvalues = ["Genève", "Zürich", "Łódź"]\n'
    )
    for encoding, codes in (
        ("cp1252", [0, 1]),
        ("latin-1", [0, 1]),
        ("utf-16", [0, 1, 2]),
        ("utf-8-sig", [0, 1, 2]),
    ):
        cells = [value for value, _ in zip(("Genève", "Zürich", "Łódź"), codes, strict=False)]
        path = written(tmp_path / "t.csv.gz", gzip.compress("\n".join(["a", *cells]).encode(encoding)))
        assert codes_of(open_source(path, ReadOptions(encoding=encoding)), schema)["a"] == codes
    path = written(tmp_path / "t.csv", "a\nGenève\n".encode("cp1252"))
    assert codes_of(open_source(path), schema)["a"] == [-1]
    assert "--encoding" in message_of(lambda: make_draft(open_source(path)))
    path = written(tmp_path / "t.csv", "a\nGenève\n".encode("utf-16"))
    assert "say --encoding utf-16" in message_of(lambda: open_source(path))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"delimiter": ";;"}, "one character"),
        ({"delimiter": "é"}, "one character"),
        ({"delimiter": "\n"}, "one character"),
        ({"delimiter": '"'}, "one character"),
        ({"delimiter": 5}, "must be text"),
        ({"encoding": "klingon"}, "not one that can be read"),
        ({"encoding": "utf-7"}, "not one that can be read"),
        ({"encoding": "iso2022_jp"}, "not one that can be read"),
        ({"encoding": "unicode_escape"}, "not one that can be read"),
        ({"encoding": "rot13"}, "not one that can be read"),
        ({"encoding": "cp037"}, "not one that can be read"),
        ({"decimal": ";"}, "must be . or ,"),
    ],
    ids=str,
)
def test_ways_of_writing_that_there_are_not(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ReadOptions(**how)
    assert message in str(caught.value)


def test_what_means_nothing_is_refused(tmp_path: Path) -> None:
    put = in_parquet(make_people(5), tmp_path)
    for how in ({"delimiter": ";"}, {"decimal": ","}, {"encoding": "cp1252"}, {"table_name": "a"}, {"query": "a"}):
        assert "means nothing there" in message_of(lambda how=how: open_source(put.table, ReadOptions(**how)))
    assert "means nothing there" in message_of(lambda: open_source(make_people(5), ReadOptions(decimal=",")))


def test_the_decimal_mark_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path / "t.csv", b"a;b;c\n1,5;2,5;1.5\n" + b"3,25;1,5;2.5\n" * 20)
    columns = '[columns.{}]\ntype = "number"\nmin = 0\nmax = 8\nstep = 0.25\n'
    schema = parse_schema(
        "one_row_per_person = true\n"
        + columns.format("a")
        + columns.format("b")
        + columns.format("c")
        + 'thousands = ","\n'
    )
    how = ReadOptions(delimiter=";", decimal=",")
    codes = codes_of(open_source(path, how), how.declared(schema))
    assert [codes[name][0] for name in "abc"] == [6, 10, 6]
    assert [codes_of(open_source(path, how), schema)[name][0] for name in "ab"] == [-1, -1]
    release = repsynth.synthesize(path, schema, epsilon=1.0, read=how)
    assert [column.decimal for column in release.schema.columns] == [",", ",", "."]
    assert "," in "".join(release.sample(100).column("a").to_pylist())
    assert repsynth.check_table(path, schema, read=how).columns[0].unreadable == 0
    thousands = written(tmp_path / "u.csv", b"a\n" + b'"1,234"\n"5,678"\n"2,125"\n' * 9)
    assert 'thousands = ","' in repsynth.draft_schema(thousands)
    assert 'decimal = ","' in repsynth.draft_schema(thousands, read=ReadOptions(decimal=","))
    assert "thousands" not in repsynth.draft_schema(thousands, read=ReadOptions(decimal=","))
    whole = written(tmp_path / "v.csv", b"a\n" + b"12\n34\n56\n" * 9)
    assert repsynth.draft_schema(whole, read=ReadOptions(decimal=",")) == repsynth.draft_schema(whole)


# --- statistics programs ---


def test_labels_of_values_draft_the_categories(tmp_path: Path) -> None:
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    frame = pd.DataFrame(
        {
            "sex": [1.0, 2.0, None] * 20,
            "asked": [1.0, 2.0, 9.0] * 20,
        }
    )
    labels = {
        "sex": {1: "male", 2: "female", 3: 'other\n"kind"'},
        "asked": {1: "yes", 2: "no", 9: "refused"},
    }
    for name, more in (("t.sav", {"missing_ranges": {"asked": [9]}}), ("t.dta", {})):
        writer = pyreadstat.write_sav if name == "t.sav" else pyreadstat.write_dta
        writer(frame, str(tmp_path / name), variable_value_labels=labels, **more)
        draft = make_draft(open_source(tmp_path / name))
        schema = parse_schema(draft.text.replace("confirmed = false", "confirmed = true"))
        sex, asked = schema.columns
        assert sex.values == ("1", "2", "3"), "whether it occurs or not"
        assert sex.missing
        assert '"2",   # female' in draft.text
        assert asked.values == (("1", "2") if name == "t.sav" else ("1", "2", "9"))
        codes = codes_of(open_source(tmp_path / name), schema)
        assert codes["sex"][:3] == [0, 1, -1]
        assert codes["asked"][:3] == ([0, 1, -1] if name == "t.sav" else [0, 1, 2])


def test_times_of_statistics_programs(tmp_path: Path) -> None:
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    times = [datetime(2020, 5, 1, 12, 30, 1), datetime(1959, 12, 31, 23, 59, 59), None]
    frame = pd.DataFrame(
        {"day": [date(2020, 5, 1), date(1901, 2, 3), None], "at": pd.Series(times, dtype="datetime64[us]")}
    )
    schema = parse_schema("""
one_row_per_person = true
[columns.day]
type = "datetime"
min = 1900-01-01
max = 2030-01-01
[columns.at]
type = "datetime"
min = 1900-01-01T00:00:00
max = 2030-01-01T00:00:00
""")
    expected = codes_of(open_source(frame), schema)
    assert min(expected["day"][:2] + expected["at"][:2]) > 0
    for name, writer in (
        ("t.sav", pyreadstat.write_sav),
        ("t.dta", pyreadstat.write_dta),
        ("t.xpt", pyreadstat.write_xport),
    ):
        writer(frame, str(tmp_path / name))
        assert codes_of(open_source(tmp_path / name), schema) == expected


def test_other_files_of_statistics_programs(tmp_path: Path) -> None:
    pd, pyreadstat = pytest.importorskip("pandas"), pytest.importorskip("pyreadstat")
    frame = pd.DataFrame({"A": [1.0, 2.0, None], "B": ["é", "x", ""]})
    schema = parse_schema(
        "one_row_per_person = true\n"
        '[columns.A]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.B]\ntype = "category"\nvalues = ["é", "x"]\n'
    )
    pyreadstat.write_sav(frame, str(tmp_path / "t.zsav"), compress=True)
    pyreadstat.write_por(frame.replace("é", "x"), str(tmp_path / "t.por"))
    assert codes_of(open_source(tmp_path / "t.zsav"), schema) == {"A": [1, 2, -1], "B": [0, 1, -1]}
    assert codes_of(open_source(tmp_path / "t.zsav", ReadOptions(encoding="utf-8")), schema)["B"] == [0, 1, -1]
    assert codes_of(open_source(tmp_path / "t.por"), schema) == {"A": [1, 2, -1], "B": [1, 1, -1]}
    assert "means nothing" in message_of(lambda: open_source(tmp_path / "t.por", ReadOptions(encoding="utf-8")))


# --- what is missing ---


@pytest.mark.parametrize(
    ("library", "name", "extra"),
    [
        ("duckdb", "t.duckdb", "duckdb"),
        ("python_calamine", "t.xlsx", "excel"),
        ("pyreadstat", "t.sav", "statistics"),
        ("adbc_driver_postgresql", "postgresql://host/db?table=t", "postgresql"),
    ],
)
def test_the_error_names_the_extra_that_is_missing(
    library: str, name: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    table = name if "://" in name else written(tmp_path / name, b"x")
    assert f"pip install 'repsynth[{extra}]'" in message_of(lambda: open_source(table))


def test_sheets_of_a_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = "people"
    book.active.append(["a", None, "b"])
    book.create_sheet("empty")
    book.create_sheet("good").append(["a", "b"])
    book.save(tmp_path / "t.xlsx")

    def said(**how: str) -> str:
        return message_of(lambda: open_source(tmp_path / "t.xlsx", ReadOptions(**how)))

    assert "name the sheet with --table (there are people, empty, good)" in said()
    assert "no sheet 'nobody'" in said(table_name="nobody")
    assert "names no column at position 2" in said(table_name="people")
    assert "empty sheet" in said(table_name="empty")
    assert open_source(tmp_path / "t.xlsx", ReadOptions(table_name="good")).names == ("a", "b")


# --- every command ---


@pytest.mark.parametrize("command", ["schema", "check", "synthesize", "risk", "audit", "evaluate", "attack"])
def test_every_command_and_function_that_reads_a_table_is_told_how(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(flag in shown for flag in ("--delimiter", "--encoding", "--decimal", "--table", "--query"))
    function = getattr(repsynth, {"schema": "draft_schema", "check": "check_table"}.get(command, command))
    assert inspect.signature(function).parameters["read"].annotation is ReadOptions


def test_flags_say_how_a_table_is_written_and_where_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(
        "one_row_per_person = true\n"
        '[columns.a]\ntype = "number"\nmin = 0\nmax = 9\n[columns.b]\ntype = "category"\nvalues = ["é"]\n'
    )

    def checked(*arguments: str) -> Any:
        assert main(["check", *arguments, "--schema", "schema.toml", "--json"]) == 0, capsys.readouterr()
        found = json.loads(capsys.readouterr().out)
        return found["rows"], [column["missing"] + column["unreadable"] for column in found["columns"]]

    for name in ("x.csv", "y.csv"):
        written(Path(name), "a;b\n1,5;é\n2,5;é\n".encode("cp1252"))
    how = ["--delimiter", ";", "--encoding", "cp1252", "--decimal", ","]
    assert checked("x.csv", *how) == (2, [0, 0])
    assert checked("x.csv", "y.csv", *how) == checked("*.csv", *how) == (4, [0, 0])
    assert checked("x.csv", *how[:-2]) == (2, [1, 0])
    table = pa.table({"a": [1.5, 2.5], "b": ["é", "é"]})
    in_sqlite(table, tmp_path)
    assert checked("t.db", "--table", "people") == (2, [0, 0])
    assert checked("t.db", "--query", "SELECT * FROM people WHERE a < 2") == (1, [0, 0])
    assert main(["check", "t.db", "--delimiter", ";", "--schema", "schema.toml"]) == 2
    assert "delimiter means nothing there" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["parquet folder", POSTGRESQL])
def test_every_command_reads_a_table_wherever_it_lies(
    kind: str,
    place: Callable[..., Place],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("schema.toml").write_text(ALL_TYPES)
    put = place(kind, make_people(300))
    table, run = str(put.table), ["--schema", "schema.toml", "--epsilon", "2", "--model", "naive-bayes"]

    def printed(*arguments: str) -> dict[str, Any]:
        assert main([*arguments, "--json"]) == 0, capsys.readouterr()
        said = capsys.readouterr()
        assert PASSWORD not in said.out + said.err
        found: dict[str, Any] = json.loads(said.out)
        return found

    assert len(printed("schema", table, "-o", "draft.toml")["columns"]) == 7
    assert printed("check", table, "--schema", "schema.toml")["rows"] == 300
    assert printed("ledger", "init", "ledger.db", "--epsilon", "4")
    made = printed("synthesize", table, *run, "--ledger", "ledger.db", "--release", "release")
    assert made["output"] == "synthetic.parquet"
    summary = printed("risk", table, "--release", "release", "-o", "dossier.parquet", "--show")["summary"]
    assert summary["records"] == 300
    assert printed("audit", table, *run, "--runs", "200")["findings"]
    both = ["--train", table, "--holdout", table]
    assert printed("evaluate", *both, "--synthetic", made["output"], "--release", "release")
    assert printed("attack", *both, *run, *["--targets", "4", "--runs", "8", "--jobs", "1", "-o", "attack"])
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes(), path
