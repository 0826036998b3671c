"""Files that are one table, and parts of a file: every row counts once, and none is shown."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from places import SECRET, in_excel, in_spss, message_of

from repsynth.errors import DataError
from repsynth.io.reading import ReadOptions
from repsynth.io.source import Reader
from repsynth.io.sources import Source, open_source


def rows_of(source: Source, read: Reader) -> list[Any]:
    return [row for batch in read(source.names) for row in batch.to_pylist()]


def pieces_of(source: Source) -> Sequence[Reader]:
    assert source.pieces is not None
    return source.pieces()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_several_files_and_cells_of_folders_are_in_the_parts_too(kind: str, tmp_path: Path) -> None:
    for k in range(3):
        folder = tmp_path / f"year={2020 + k}"
        folder.mkdir()
        if kind == "csv":
            (folder / "t.csv").write_text(f"a\n{k}\n{k + 10}\n")
        else:
            pq.write_table(pa.table({"a": [k, k + 10]}), folder / "t.parquet")
    source = open_source(tmp_path)
    found = [row for piece in pieces_of(source) for row in rows_of(source, piece)]
    assert found == rows_of(source, source.batches)
    assert len(found) == 6
    assert len(source.files) == 3


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_part_of_a_file_that_changed_is_refused(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"t.{kind}"
    write = {
        "csv": lambda rows: path.write_text("a\n" + "1\n" * rows),
        "parquet": lambda rows: pq.write_table(pa.table({"a": [1] * rows}), path),
    }[kind]
    write(5)
    source = open_source(path)
    (piece,) = pieces_of(source)
    write(9)
    with pytest.raises(DataError, match="changed since it was opened"):
        rows_of(source, piece)


@pytest.mark.parametrize("pattern", ["**", "*", "**/*"])
def test_a_file_that_a_pattern_matches_twice_counts_once(pattern: str, tmp_path: Path) -> None:
    for folder in ("x", "x/y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.csv").write_text("a\n1\n2\n")
    source = open_source(str(tmp_path / pattern))
    assert sum(batch.num_rows for batch in source.batches(["a"])) == 4


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_the_first_line_of_a_file_without_a_header_is_not_shown(kind: str, tmp_path: Path) -> None:
    for name, cells in (("a", ["name", "age"]), ("b", ["Miller", "age"])):
        if kind == "csv":
            (tmp_path / f"{name}.csv").write_text(",".join(cells) + "\nx,1\n")
        else:
            book = openpyxl.Workbook()
            assert book.active is not None
            book.active.append(cells)
            book.active.append(["x", 1])
            book.save(tmp_path / f"{name}.xlsx")
    with pytest.raises(DataError, match="column 1") as caught:
        open_source(tmp_path)
    assert "Miller" not in str(caught.value)


def test_a_csv_file_that_lacks_a_column_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "b.csv").write_text("a\n3\n")
    assert "a.csv: its column 2 is not in" in message_of(lambda: open_source(tmp_path))


def test_each_file_keeps_its_own_types(tmp_path: Path) -> None:
    """A cast to the types of the first file fails, and its message quotes the cell."""
    pq.write_table(pa.table({"a": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"a": [SECRET, None]}), tmp_path / "b.parquet")
    pq.write_table(pa.table({"a": [0.5]}), tmp_path / "c.parquet")
    source = open_source(tmp_path)
    assert [row["a"] for row in rows_of(source, source.batches)] == [1, 2, SECRET, None, 0.5]
    assert source.types == (pa.null(),)
    assert source.rows == 5


def test_bad_bytes_and_malformed_rows_of_one_file_leave_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,\xff\n" + SECRET.encode() + b"\xff,2,3\n2,x\n")
    (tmp_path / "b.csv").write_bytes(b"b,a\ny,3\n4\n")
    source = open_source(tmp_path)
    for _ in range(2):
        found = [tuple(row.values()) for row in rows_of(source, source.batches)]
        assert found == [(b"1", "\ufffd".encode()), (b"2", b"x"), (b"3", b"y")]
        assert source.dropped() == 2
    assert "".join(capfd.readouterr()) == ""


def test_a_file_damaged_in_the_middle_of_a_folder_quotes_no_cell(tmp_path: Path) -> None:
    for name in "abc":
        cells = [f"{SECRET} {name} {k}" for k in range(5_000)]
        pq.write_table(pa.table({"a": cells}), tmp_path / f"{name}.parquet", compression="none")
    content = (tmp_path / "b.parquet").read_bytes()
    (tmp_path / "b.parquet").write_bytes(content[:4] + b"\xff" * 60_000 + content[60_004:])
    source = open_source(tmp_path)
    said = message_of(lambda: list(source.batches(["a"])))
    assert "b.parquet: cannot be read as Parquet" in said
    assert SECRET not in said


@pytest.mark.parametrize("kind", ["csv", "xlsx", "sav"])
def test_columns_of_folders_are_text_in_every_format(kind: str, tmp_path: Path) -> None:
    for value, number in (("01", 1), ("x%20y", 2), ("__HIVE_DEFAULT_PARTITION__", 3)):
        folder = tmp_path / f"my%20code={value}"
        folder.mkdir()
        if kind == "csv":
            (folder / "t.csv").write_text(f"n;m\n{number};é\n", encoding="latin-1")
        else:
            {"xlsx": in_excel, "sav": in_spss}[kind](pa.table({"n": [number], "m": ["é"]}), folder)
    how = ReadOptions(delimiter=";", encoding="latin-1") if kind == "csv" else ReadOptions()
    source = open_source(tmp_path, how)
    assert source.names == ("n", "m", "my code")
    assert source.types[2] == pa.string()
    for columns in (["my code"], ["my code", "n"]):
        batches = list(source.batches(columns))
        assert [batch.schema.names for batch in batches] == [columns] * 3
        assert [cell for batch in batches for cell in batch.column(0).to_pylist()] == ["01", None, "x y"]
    assert source.rows == (3 if kind == "sav" else None)


def test_a_folder_whose_name_is_no_text_is_still_read(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/code=\xff"
    os.mkdir(folder)
    with open(folder + b"/t.csv", "w") as file:
        file.write("n\n1\n")
    source = open_source(tmp_path)
    assert rows_of(source, source.batches) == [{"n": b"1", "code": "?"}]
