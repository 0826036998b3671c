"""The unit of privacy: a schema must say whether one person can have several rows."""

from pathlib import Path

import pyarrow as pa
import pytest

from repsynth import check_table, draft_schema, measure_schema, parse_schema, plan, synthesize
from repsynth.cli import main
from repsynth.errors import ConfigError, SchemaError
from repsynth.privacy.budget import Budget
from repsynth.privacy.ledger import Ledger
from repsynth.schema import Schema, schema_from_dict, schema_to_dict

COLUMNS = 'columns.age = {type = "integer", min = 18, max = 99}\ncolumns.who = {type = "id"}\n'
PEOPLE = pa.table({"age": [30, 41, 55], "who": ["a", "b", "b"]})
QUESTION = "can one person have several rows"


def undeclared() -> Schema:
    return parse_schema(COLUMNS)


@pytest.mark.parametrize(
    "call",
    [
        lambda schema: plan(schema, epsilon=1.0),
        lambda schema: check_table(PEOPLE, schema),
        lambda schema: synthesize(PEOPLE, schema, epsilon=1.0),
    ],
    ids=["plan", "check", "synthesize"],
)
def test_a_schema_without_a_unit_is_refused_with_the_remedies(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(SchemaError, match=QUESTION) as refused:
        call(undeclared())
    assert "one_row_per_person = true" in str(refused.value)
    assert "[person]" in str(refused.value)


def test_the_ledger_is_not_charged_for_a_schema_without_a_unit(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", Budget.approximate(epsilon=2.0, delta=1e-6))
    with pytest.raises(SchemaError, match=QUESTION):
        synthesize(PEOPLE, undeclared(), epsilon=1.0, delta=1e-7, ledger=ledger, dataset="people")
    assert not ledger.balance("people").spendings


@pytest.mark.parametrize("command", ["plan --epsilon 1", "check people.csv", "synthesize people.csv --epsilon 1"])
def test_the_commands_ask_in_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("age,who\n30,a\n")
    Path("schema.toml").write_text(COLUMNS)
    assert main([*command.split(), "--schema", "schema.toml"]) == 2
    error = capsys.readouterr().err
    assert QUESTION in error
    assert error.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} == {"people.csv", "schema.toml"}


def test_a_draft_asks_and_either_answer_is_accepted() -> None:
    draft = draft_schema(PEOPLE)
    with pytest.raises(SchemaError, match=QUESTION):
        check_table(PEOPLE, parse_schema(draft))
    alone = parse_schema(draft.replace("# one_row_per_person = true", "one_row_per_person = true"))
    assert alone.one_row_per_person
    shared = draft.replace('# person = {column = "NAME"}', 'person = {column = "who"}')
    who = parse_schema(shared[: shared.index("[columns.who]")] + '[columns.who]\ntype = "id"\n')
    assert who.person is not None


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("one_row_per_person = 1", "must be true or false"),
        ("one_row_per_person = false", r"needs \[person\]"),
        ('one_row_per_person = true\nperson = {column = "who"}', r"contradicts \[person\]"),
    ],
)
def test_answers_that_make_no_sense_are_refused(text: str, mistake: str) -> None:
    with pytest.raises(SchemaError, match=mistake):
        parse_schema(f"{text}\n{COLUMNS}")


def test_a_release_keeps_the_declaration() -> None:
    schema = parse_schema(f"one_row_per_person = true\n{COLUMNS}")
    assert schema_from_dict(schema_to_dict(schema)).one_row_per_person


def test_measuring_a_schema_protects_rows_so_it_must_be_told_that_they_are_persons(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", Budget.approximate(epsilon=2.0, delta=1e-6))
    with pytest.raises(ConfigError, match=r"one_row_per_person=True.*Nothing was spent"):
        measure_schema(PEOPLE, epsilon=0.5, ledger=ledger, dataset="people")
    assert not ledger.balance("people").spendings
    measured = measure_schema(PEOPLE, epsilon=0.5, ids=["who"], one_row_per_person=True)
    assert "one_row_per_person = true" in measured.text
