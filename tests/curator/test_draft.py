"""The draft: a usable start from messy data, marked as not private, and always valid TOML."""

from pathlib import Path

import pyarrow as pa
import pytest
from conftest import make_people

from repsynth.curator.draft import draft_schema
from repsynth.errors import DataError
from repsynth.schema import Category, Datetime, Id, Integer, Number, parse_schema


def drafted(text: str, folder: Path, **options: str) -> dict[str, object]:
    (folder / "t.csv").write_text(text, encoding="utf-8")
    schema = parse_schema(draft_schema(folder / "t.csv", **options))
    assert not schema.confirmed
    return {column.name: column for column in schema.columns}


def test_every_bound_and_category_is_marked() -> None:
    text = draft_schema(make_people(200))
    for line in text.splitlines():
        if line.startswith(("min =", "max =", "values =")):
            assert "read from the data, not private: confirm or replace" in line


def test_messy_columns_get_the_type_that_nearly_all_cells_have(tmp_path: Path) -> None:
    rows = [
        f"{i},{20 + i % 50},{i * 1.5},2020-01-{i % 28 + 1:02},Zürich,no note {i * 7 % 1000}" for i in range(300)
    ]
    rows += ["300,forty,1e3,soon,Genève,😀", "301,,inf,,,"]
    columns = drafted("id,age,pay,day,city,note\n" + "\n".join(rows) + "\n", tmp_path)
    assert isinstance(columns["id"], Id)
    assert isinstance(columns["note"], Id)
    assert columns["age"] == Integer(name="age", min=20, max=69, missing=True)
    assert columns["pay"] == Number(name="pay", min=0.0, max=1000.0, missing=True)
    assert isinstance(columns["day"], Datetime)
    assert columns["day"].missing
    assert columns["city"] == Category(name="city", values=("Genève", "Zürich"), missing=True)


def test_odd_names_and_values_are_valid_toml(tmp_path: Path) -> None:
    text = '"a ""quoted"" name",emoji 😀,back\\slash\nx,😀,"1,5"\ny,é\x7f,"line\nbreak"\n'
    columns = drafted(text, tmp_path)
    assert list(columns) == ['a "quoted" name', "emoji 😀", "back\\slash"]


def test_a_label_is_a_category_even_if_it_is_a_number(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 3},{i % 7}" for i in range(90))
    assert drafted(f"grade,x\n{rows}\n", tmp_path, label="grade")["grade"] == Category(
        name="grade", values=("0", "1", "2")
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a;b\n1;2\n", "separated by commas"),
        (b"a,b\nGen\xe8ve,2\n", "not UTF-8"),
        (b"a,a\n1,2\n", "more than once"),
    ],
)
def test_what_cannot_be_drafted(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        draft_schema(tmp_path / "t.csv")


def test_empty_and_ragged_tables(tmp_path: Path) -> None:
    assert list(drafted("a,b\n", tmp_path)) == ["a", "b"]
    assert list(drafted("a,b\n1,2\n3\n4,5,6\n", tmp_path)) == ["a", "b"]
    assert "type" in draft_schema(pa.table({"a": pa.nulls(3)}))


def test_times_beyond_python_s_are_not_taken_for_times() -> None:
    far = pa.array([2**50, 2**50 + 86_400, 2**50 + 172_800], type=pa.timestamp("s"))
    assert "datetime" not in draft_schema(pa.table({"far": far, "b": [True, False, True]}))
