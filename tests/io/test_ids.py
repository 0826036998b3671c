"""Ids are made anew in a public form: all different, the same for the same seed, whoever makes which piece."""

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth import Release, parse_schema, synthesize
from repsynth.cli import main
from repsynth.errors import ConfigError, RepsynthWarning, SchemaError
from repsynth.io.ids import check_ids, make_ids, shuffled
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.io.write import decode
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.planning.warnings import csv_warnings, plan_warnings
from repsynth.release import release as release_module
from repsynth.run.run import run
from repsynth.schema import Boolean, Id, Schema, schema_from_dict, schema_to_dict
from repsynth.schema.formats import FAKES, SYMBOLS, IdFormat, escaped

SSN = Id(name="ssn", format="###-##-####")


def pattern_of(form: str) -> str:
    parts = IdFormat(form).parts
    assert parts is not None
    return "".join(f"[{re.escape(characters)}]" for characters, _ in parts)


def released(*columns: Id, rows: int = 60, storage: pa.DataType | None = None) -> Release:
    ids = {column.name: pa.array([f"{k}" for k in range(rows)], storage or pa.string()) for column in columns}
    table = pa.table({**ids, "smoker": np.arange(rows) % 3 == 0})
    schema = Schema(columns=(*columns, Boolean(name="smoker")), one_row_per_person=True)
    return synthesize(table, schema, epsilon=1.0, delta=1e-6, public_rows=rows)


@given(room=st.integers(1, 3000), seed=st.integers(0, 2**32))
def test_numbers_are_shuffled_and_none_is_lost(room: int, seed: int) -> None:
    numbers = shuffled(np.arange(room, dtype=np.uint64), room, np.random.SeedSequence(seed))
    assert sorted(numbers.tolist()) == list(range(room))


def test_a_shuffle_leaves_no_order_behind() -> None:
    numbers = shuffled(np.arange(20_000, dtype=np.uint64), 10**9, np.random.SeedSequence(5)).astype(float)
    assert abs(np.corrcoef(numbers, np.arange(20_000))[0, 1]) < 0.05
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.05
    assert abs(numbers.mean() / 10**9 - 0.5) < 0.02


@given(
    form=st.text(alphabet="#%?*^\\ab-9é", min_size=1, max_size=12).filter(lambda text: not IdFormat(text).problem),
    seed=st.integers(0, 2**130),
    first=st.integers(1, 10**9),
)
def test_ids_have_their_form_and_are_all_different(form: str, seed: int, first: int) -> None:
    room = IdFormat(form).room
    first = 1 if first + 50 > room else first
    rows = min(50, room)
    made = make_ids(Id(name="a", format=form), rows, first=first, seed=seed).to_pylist()
    assert len(set(made)) == rows
    assert all(re.fullmatch(pattern_of(form), text) for text in made)


def test_a_small_format_is_filled_to_its_last_id() -> None:
    made = make_ids(Id(name="a", format="?#"), 260, seed=9).to_pylist()
    assert sorted(made) == [f"{letter}{digit}" for letter in SYMBOLS["?"] for digit in range(10)]


def test_a_format_longer_than_any_integer_has_all_its_places_drawn() -> None:
    made = make_ids(Id(name="a", format="^" * 32), 2000, seed=2).to_pylist()
    assert len(set(made)) == 2000
    for place in zip(*made, strict=True):
        assert set(place) == set(SYMBOLS["^"])


def test_pieces_are_parts_of_one_table() -> None:
    whole = make_ids(SSN, 100, seed=4).to_pylist()
    assert make_ids(SSN, 40, first=61, seed=4).to_pylist() == whole[60:]
    assert make_ids(SSN, 100, seed=5).to_pylist() != whole
    assert make_ids(Id(name="other", format="###-##-####"), 100, seed=4).to_pylist() != whole


def test_escapes_and_the_other_characters_stand_for_themselves() -> None:
    (made,) = make_ids(Id(name="a", format="é\\#\\\\-#"), 1).to_pylist()
    assert re.fullmatch(r"é#\\-\d", made)
    assert IdFormat(escaped("50%*\\") + "#").write([7]) == "50%*\\7"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('format = ""', "from 1 to 64 characters"),
        ('format = "abc"', "all ids would be the same"),
        (r"format = '##\'", "it ends in"),
        ('format = "#\\n"', "can be printed"),
        ("format = 5", "must be text"),
        ('fake = "nonsense"', "'fake' must be one of name, "),
        ('fake = "emal"', "did you mean 'email'"),
        ('fake = ["name"]', "'fake' must be one of"),
        ('format = "#"\nfake = "name"', "exclude each other"),
        ('fake = "name"\nlocale = "Germany"', "'locale' must be"),
        ('locale = "de_DE"', "add 'fake'"),
        ('formt = "#"', "did you mean 'format'"),
    ],
)
def test_a_form_that_is_of_no_use_is_refused_where_it_stands(lines: str, said: str) -> None:
    text = f'one_row_per_person = true\n[columns.smoker]\ntype = "boolean"\n[columns.ssn]\ntype = "id"\n{lines}\n'
    with pytest.raises(SchemaError, match=re.escape(said)) as error:
        parse_schema(text)
    assert "line " in str(error.value)
    assert "column 'ssn'" in str(error.value)


def test_a_schema_with_forms_comes_back_from_json() -> None:
    columns = (SSN, Id(name="mail", fake="email", locale="de_DE"), Id(name="plain"), Boolean(name="smoker"))
    schema = Schema(one_row_per_person=True, columns=columns)
    assert schema_from_dict(schema_to_dict(schema)) == schema


def test_a_table_is_drawn_with_new_ids(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(release_module, "_PIECE", 16)
    folder = released(SSN, Id(name="person")).save(tmp_path / "release")
    release = Release.load(folder)
    first, again = release.sample(50, seed=1), release.sample(50, seed=1)
    assert first.equals(again)
    ids = first["ssn"].to_pylist()
    assert len(set(ids)) == 50
    assert all(re.fullmatch(r"\d{3}-\d\d-\d{4}", text) for text in ids)
    assert first["person"].to_pylist() == [f"{k}" for k in range(1, 51)]
    assert release.sample(50, seed=2)["ssn"].to_pylist() != ids
    assert release.sample(50)["ssn"].to_pylist() != release.sample(50)["ssn"].to_pylist()


def test_the_cells_of_an_id_column_have_no_say() -> None:
    smoker = pa.array([True, False] * 20)
    schema = Schema(one_row_per_person=True, columns=(SSN, Boolean(name="smoker")))
    texts = pa.table({"ssn": [f"{k:09}" for k in range(40)], "smoker": smoker})
    others = pa.table({"ssn": ["secret"] * 40, "smoker": smoker})
    drawn = [
        run(make_plan(schema, Settings.of(epsilon=1.0)), open_source(table), noise_seed=1).sample(30, seed=1)
        for table in (texts, others)
    ]
    assert drawn[0].equals(drawn[1])


def test_a_format_without_enough_room_is_refused_before_anything_is_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = Schema(columns=(Id(name="code", format="P#"), Boolean(name="smoker")), one_row_per_person=True)
    check_ids(short, 10)
    with pytest.raises(ConfigError, match="room for 10 different ids, but the table gets 11 rows"):
        check_ids(short, 11)
    with (
        pytest.warns(RepsynthWarning, match="room for 10"),
        pytest.raises(ConfigError, match="room for 10 different ids, but the table gets 60 rows"),
    ):
        released(Id(name="code", format="P#"))
    release = released(Id(name="code", format="P#"), rows=10)
    with pytest.raises(ConfigError, match="room for 10"):
        release.sample(11)
    plan = make_plan(short, Settings.of(epsilon=1.0))
    assert any("room for 10 different ids" in said for said in plan_warnings(plan, 5000))
    assert not any("room" in said for said in plan_warnings(plan, 10))
    (tmp_path / "people.csv").write_text("code,smoker\n" + "P1,true\n" * 30, encoding="utf-8")
    schema = 'one_row_per_person = true\n[columns.code]\ntype = "id"\nformat = "P#"\n'
    schema += '[columns.smoker]\ntype = "boolean"\n'
    (tmp_path / "schema.toml").write_text(schema, encoding="utf-8")
    asked = f"synthesize {tmp_path}/people.csv --schema {tmp_path}/schema.toml --epsilon 1".split()
    asked += ["--release", str(tmp_path / "release"), "-o", str(tmp_path / "out.csv")]
    for further in (["--rows", "11"], ["--public-rows", "30"]):
        assert main([*asked, *further]) != 0
        assert "room for 10 different ids" in capsys.readouterr().err
        assert not (tmp_path / "release").exists()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (Id(name="a"), pa.string()),
        (Id(name="a", storage="int64"), pa.int64()),
        (Id(name="a", format="P####"), pa.string()),
        (Id(name="a", format="%####", storage="int64"), pa.int64()),
    ],
    ids=repr,
)
def test_ids_are_text_unless_whole_numbers_are_declared(column: Id, kind: pa.DataType) -> None:
    schema = Schema(one_row_per_person=True, columns=(column, Boolean(name="b")))
    table = decode(Records(2, {"b": np.array([0, 1])}), schema, first_id=7)
    assert table["a"].type == kind
    assert len(set(table["a"].to_pylist())) == 2


@pytest.mark.parametrize("dtype", ["int64", "category"])
def test_data_frames_get_texts_too(dtype: str) -> None:
    frame = pd.DataFrame({"a": pd.Series(range(40)).astype(dtype), "b": [True, False] * 20})
    schema = Schema(one_row_per_person=True, columns=(Id(name="a", format="P-###"), Boolean(name="b")))
    drawn = synthesize(frame, schema, epsilon=1.0, delta=1e-6).sample(20)
    assert drawn["a"].astype(str).str.fullmatch(r"P-\d{3}").all()
    assert drawn["a"].nunique() == 20


def test_ids_are_written_to_files(tmp_path: Path) -> None:
    release = released(Id(name="code", format="=##-##"))
    release.save(tmp_path / "release")
    for name in ("out.csv", "out.parquet"):
        assert main(f"sample {tmp_path}/release --rows 30 --seed 1 -o {tmp_path}/{name}".split()) == 0
    parquet = pq.read_table(tmp_path / "out.parquet")["code"].to_pylist()
    assert all(re.fullmatch(r"=\d\d-\d\d", text) for text in parquet)
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()[1].startswith(f'"\'{parquet[0]}"')
    assert "'code'" in csv_warnings(release.schema)[0]


# --- Faker ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fake", FAKES)
def test_everything_that_may_be_made_up_is_a_line_of_text_and_follows_from_the_seed(fake: str) -> None:
    column = Id(name="a", fake=fake, locale="de_DE")
    made = make_ids(column, 5, first=1, seed=3).to_pylist()
    assert all(text and "\n" not in text for text in made)
    assert made == make_ids(column, 5, first=1, seed=3).to_pylist()
    many = make_ids(column, 50, first=1, seed=4).to_pylist()
    assert len(set(many)) > 5
    assert many != make_ids(column, 50, first=51, seed=4).to_pylist()


def test_a_table_has_made_up_people() -> None:
    release = released(Id(name="who", fake="name"), Id(name="mail", fake="email"))
    table = release.sample(40, seed=1)
    assert table.equals(release.sample(40, seed=1))
    assert all(re.fullmatch(r"[^@ ]+@example\.(org|com|net)", mail) for mail in table["mail"].to_pylist())
    assert not {"1", "2"} & set(table["who"].to_pylist())


def test_an_unknown_locale_is_refused_before_drawing() -> None:
    with pytest.raises(ConfigError, match="for the locale xx_XX; use another"):
        check_ids(Schema(one_row_per_person=True, columns=(Id(name="who", fake="name", locale="xx_XX"),)), 5)


def test_without_faker_a_release_is_loaded_and_drawing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = released(Id(name="who", fake="name")).save(tmp_path / "release")
    monkeypatch.setitem(sys.modules, "faker", None)
    release = Release.load(folder)
    with pytest.raises(ConfigError, match=r"pip install 'repsynth\[fake\]'"):
        release.sample(3)
