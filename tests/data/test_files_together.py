"""Files that are one table, and parts of a file: every row counts once, and none is shown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from repsynth.data.sources import Reading, Source, open_source, stretches
from repsynth.data.sources.base import Reader
from repsynth.errors import DataError


def rows_of(source: Source, read: Reader) -> list[Any]:
    return [row for batch in read(source.names) for row in batch.to_pylist()]


def pieces_of(source: Source) -> Sequence[Reader]:
    assert source.pieces is not None
    return source.pieces(lambda looks: [look() for look in looks])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_file_in_parts_has_the_rows_of_the_whole(
    encoding: str, delimiter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "RANGE", 17)
    path = tmp_path / "t.csv"
    lines = [f"a{delimiter}b", *(f"{i}{delimiter}é" for i in range(20)), ""]
    path.write_bytes("\n".join(lines).encode(encoding))
    source = open_source(path, Reading(encoding=encoding, delimiter=delimiter))
    pieces = pieces_of(source)
    assert [row for piece in pieces for row in rows_of(source, piece)] == rows_of(source, source.batches)
    assert len(pieces) > 1 or (encoding, delimiter) != ("utf-8", ",")


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
