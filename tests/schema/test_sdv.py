"""Metadata of SDV: types and forms go in, and come back; bounds and categories come from elsewhere."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from conftest import ALL_TYPES
from hypothesis import given
from hypothesis import strategies as st

from repsynth import draft_schema, parse_schema, to_sdv
from repsynth.cli import main
from repsynth.errors import ConfigError, RepsynthError
from repsynth.schema import Boolean, Category, Datetime, Id, Integer, Number, Schema
from repsynth.schema.formats import FAKES, IdFormat
from repsynth.schema.sdv import Described, from_sdv, load_sdv

METADATA: dict[str, Any] = {
    "METADATA_SPEC_VERSION": "SINGLE_TABLE_V1",
    "primary_key": "guest",
    "columns": {
        "guest": {"sdtype": "id", "regex_format": "G-[A-Z]{2}[0-9]{4}"},
        "mail": {"sdtype": "email", "pii": True},
        "room": {"sdtype": "categorical"},
        "nights": {"sdtype": "numerical", "computer_representation": "Int64"},
        "rate": {"sdtype": "numerical"},
        "arrival": {"sdtype": "datetime", "datetime_format": "%d %b %Y"},
        "rewards": {"sdtype": "boolean"},
        "note": {"sdtype": "unknown", "pii": True},
    },
}
ROWS = 60
TABLE = pa.table(
    {
        "guest": [f"G-AB{k:04}" for k in range(ROWS)],
        "mail": [f"g{k}@example.org" for k in range(ROWS)],
        "room": [f"{100 + k % 7}" for k in range(ROWS)],
        "nights": [f"{k % 9 + 1}" for k in range(ROWS)],
        "rate": [f"{k * 3.5:.2f}" for k in range(ROWS)],
        "arrival": [f"{k % 28 + 1:02} Jan 2024" for k in range(ROWS)],
        "rewards": ["True", "False"] * (ROWS // 2),
        "note": ["ask for quiet"] * ROWS,
    }
)


def test_types_and_forms_come_from_the_metadata_and_the_rest_from_the_table() -> None:
    schema = parse_schema(draft_schema(TABLE, metadata=METADATA))
    guest, mail, room, nights, rate, arrival, rewards, note = schema.columns
    assert guest == Id(name="guest", format="G-??####")
    assert mail == Id(name="mail", fake="email")
    assert room == Category(
        name="room", values=tuple(f"{100 + k}" for k in range(7))
    )  # no numbers, though they look so
    assert isinstance(nights, Integer)
    assert (nights.min, nights.max) == (1, 9)
    assert isinstance(rate, Number)
    assert isinstance(arrival, Datetime)
    assert arrival.dates == "%d %b %Y"
    assert rewards == Boolean(name="rewards")
    assert note == Id(name="note")
    assert not schema.confirmed


def test_cells_that_are_something_else_are_taken_for_what_they_are() -> None:
    told = {"columns": {"mail": {"sdtype": "numerical"}, "room": {"sdtype": "datetime"}}}
    text = draft_schema(TABLE, metadata=told)
    assert "WARNING: the metadata says number, which its cells are not" in text
    assert "WARNING: the metadata says datetime, which its cells are not" in text


def test_many_values_stay_a_category_if_the_metadata_says_so() -> None:
    told = {"columns": {"mail": {"sdtype": "categorical"}}}
    (column,) = (c for c in parse_schema(draft_schema(TABLE, metadata=told)).columns if c.name == "mail")
    assert isinstance(column, Category)
    assert column.size == ROWS


def test_the_label_is_a_category_whatever_the_metadata_says() -> None:
    schema = parse_schema(
        draft_schema(TABLE, label="rewards", metadata={"columns": {"rewards": {"sdtype": "id"}}})
    )
    assert schema.label_column is not None


def test_one_table_of_newer_metadata_is_read_and_several_are_refused() -> None:
    table = {"columns": {"a": {"sdtype": "id"}}}
    assert from_sdv({"METADATA_SPEC_VERSION": "V1", "tables": {"t": table}}) == {"a": Described("id")}
    with pytest.raises(ConfigError, match="2 tables"):
        from_sdv({"tables": {"t": table, "u": table}})


def test_keys_are_ids_whatever_their_type() -> None:
    told = {"primary_key": "a", "alternate_keys": ["b"], "columns": {n: {"sdtype": "numerical"} for n in "abc"}}
    assert [each.kind for each in from_sdv(told).values()] == ["id", "id", "number"]


@pytest.mark.parametrize(
    "raw", [None, 5, {}, {"columns": []}, {"columns": {"a": 1}}, {"columns": {"a": {}}}, {"tables": {"t": 3}}]
)
def test_what_is_no_metadata_is_refused(raw: Any) -> None:
    with pytest.raises(ConfigError, match="is this SDV's metadata"):
        from_sdv(raw)


def test_files_that_cannot_be_read_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text("{", encoding="utf-8")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "deep.json").write_text("[" * 100_000, encoding="utf-8")
    for name in ("broken.json", "bytes.json", "deep.json", "absent.json", "."):
        with pytest.raises(ConfigError) as error:
            load_sdv(tmp_path / name)
        assert "\n" not in str(error.value)


def test_metadata_of_another_table_is_refused() -> None:
    with pytest.raises(ConfigError, match='describes "ghost", which the table does not have'):
        draft_schema(TABLE, metadata={"columns": {"ghost": {"sdtype": "id"}}})


@given(
    st.text(alphabet="#%?*^\\ab-9é.[]{}$", min_size=1, max_size=12).filter(lambda text: not IdFormat(text).problem)
)
def test_a_format_comes_back_and_its_regular_expression_fits(form: str) -> None:
    schema = Schema(columns=(Id(name="a", format=form),))
    regex = to_sdv(schema)["columns"]["a"]["regex_format"]
    made = IdFormat(form)
    assert re.fullmatch(regex, made.write([0] * len(made.choices)))
    assert re.fullmatch(regex, made.write([len(each) - 1 for each in made.choices]))
    back = from_sdv(to_sdv(schema))["a"].format
    assert back is not None
    assert IdFormat(back).parts == made.parts


@pytest.mark.parametrize(
    ("regex", "form"),
    [
        (r"^\d{3}-\d{2}$", "###-##"),
        (r"[a-f0-9]{4}\.[1-9]", "^^^^.%"),
        ("[0-9]{3,5}", None),
        ("(a|b)[0-9]", None),
        ("[A-Za-z]{3}", None),
        (r"\w+", None),
        ("abc", None),
        ("U_[0-9", None),
    ],
)
def test_regular_expressions_of_one_length_are_formats(regex: str, form: str | None) -> None:
    told = {"columns": {"a": {"sdtype": "id", "regex_format": regex}}}
    assert from_sdv(told) == {"a": Described("id", form)}


def test_a_schema_as_metadata() -> None:
    schema = parse_schema(ALL_TYPES)
    made = to_sdv(schema)
    assert made["primary_key"] == "person"
    assert [each["sdtype"] for each in made["columns"].values()] == [
        *("id", "numerical", "numerical", "categorical", "boolean", "datetime", "categorical"),
    ]
    assert made["columns"]["joined"]["datetime_format"] == "%Y-%m-%d"
    kinds = {"Integer": "number", "Number": "number"}
    told = [kinds.get(type(c).__name__, type(c).__name__.lower()) for c in schema.columns]
    assert [each.kind for each in from_sdv(json.loads(json.dumps(made))).values()] == told


@pytest.mark.parametrize("fake", FAKES)
def test_made_up_columns_come_back(fake: str) -> None:
    made = to_sdv(Schema(columns=(Id(name="a", fake=fake), Id(name="b"), Id(name="c"))))
    assert made["primary_key"] == "b"
    assert from_sdv(made)["a"] == Described("id", None, fake)


def test_the_command_reads_and_writes_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow.csv as pacsv

    pacsv.write_csv(TABLE, tmp_path / "guests.csv")
    (tmp_path / "metadata.json").write_text(json.dumps(METADATA), encoding="utf-8")
    asked = ["schema", str(tmp_path / "guests.csv"), "--metadata", str(tmp_path / "metadata.json")]
    assert main([*asked, "-o", str(tmp_path / "schema.toml")]) == 0
    back = ["schema", str(tmp_path / "schema.toml"), "--to-sdv", str(tmp_path / "back.json")]
    assert main(back) == 0
    written = json.loads((tmp_path / "back.json").read_text(encoding="utf-8"))
    assert written["primary_key"] == "guest"
    assert written["columns"]["guest"] == METADATA["columns"]["guest"]
    assert main(back) != 0  # it is there already
    assert main(["schema", str(tmp_path / "guests.csv"), "--to-sdv", str(tmp_path / "other.json")]) != 0
    assert "name one schema.toml" in capsys.readouterr().err
    assert not (tmp_path / "other.json").exists()
    measured = [
        *asked,
        "--private",
        "--one-row-per-person",
        "--epsilon",
        "50",
        "--delta",
        "0.1",
        "-o",
        str(tmp_path / "measured.toml"),
    ]
    assert main(measured) == 0
    ids = [
        c.name
        for c in parse_schema((tmp_path / "measured.toml").read_text(encoding="utf-8")).columns
        if isinstance(c, Id)
    ]
    assert {"guest", "mail", "note"} <= set(ids)


KEYS = st.sampled_from(["columns", "tables", "sdtype", "primary_key", "alternate_keys", "regex_format", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
)


@given(JSON)
def test_any_json_is_read_or_refused(raw: Any) -> None:
    try:
        assert isinstance(from_sdv(raw), dict)
    except RepsynthError as error:
        assert str(error)
