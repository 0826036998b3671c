"""Every mistake in a schema is reported at once, where it stands, with its remedy."""

from datetime import date, timedelta
from pathlib import Path

import pytest

from repsynth.errors import SchemaError
from repsynth.schema import Schema, load_schema, parse_schema, schema_from_dict, schema_to_dict


def test_all_types_are_read(schema: Schema) -> None:
    kinds = [type(column).__name__ for column in schema.columns]
    assert kinds == ["Id", "Integer", "Number", "Category", "Boolean", "Datetime", "Category"]
    assert schema.label_column is not None
    assert schema.label_column.values == ("no", "yes")
    region = schema.columns[3]
    assert region.values == ("north", "south", "3")  # type: ignore[union-attr]
    joined = schema.columns[5]
    assert (joined.min, joined.unit) == (date(2015, 1, 1), timedelta(days=1))  # type: ignore[union-attr]
    assert joined.steps == 4017  # type: ignore[union-attr]


def test_there_and_back(schema: Schema) -> None:
    assert schema_from_dict(schema_to_dict(schema)) == schema


def test_all_mistakes_at_once_with_lines() -> None:
    text = """label = "incme"
[columns.age]
type = "integer"
min = 90
max = 17
[columns.income]
type = "nummer"
[columns.region]
type = "category"
[columns.sex]
type = "category"
values = ["f", "m", "f"]
[columns.when]
type = "datetime"
min = "yesterday"
max = 2020-01-01
[columns.weight]
type = "number"
min = 0
maximum = 3
[columns.ok]
type = "boolean"
missing = "yes"
"""
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    problems = "\n".join(caught.value.problems)
    for expected in (
        "line 1: the label 'incme' is not one of the columns (did you mean 'income'?)",
        "line 4: column 'age': 'min' must be below 'max'",
        "line 7: column 'income': unknown type 'nummer' (did you mean 'number'?)",
        "line 8: column 'region': a category needs its list of 'values'",
        "line 12: column 'sex': 1 value(s) listed twice",
        "line 15: column 'when': 'min' is not a usable datetime",
        "line 20: column 'weight': unknown key 'maximum' for type number (did you mean 'max'?)",
        "line 23: column 'ok': 'missing' must be true or false",
    ):
        assert expected in problems
    assert len(caught.value.problems) == 8


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no columns"),
        ("label = 1\nlabel = 2", "not valid TOML"),
        ("[columns]\nage = 3", "must be a table"),
        ('[columns.y]\ntype = "category"\nvalues = ["a", "b"]\n', None),
        ('label = "y"\n[columns.y]\ntype = "category"\nvalues = ["a", "b"]\n', "nothing to learn"),
        ('label = "y"\n[columns.y]\ntype = "integer"\nmin = 0\nmax = 1\n', "the label must be a category"),
        ('label = "y"\n[columns.y]\ntype = "category"\nvalues = ["a"]\n', "at least two values"),
        ('label = "y"\n[columns.y]\ntype = "boolean"\nmissing = true\n', "cannot be missing"),
        ('[columns.a]\ntype = "number"\nmin = 0\nmax = inf\n', "'max' is not a usable number"),
        (
            '[columns.a]\ntype = "integer"\nmin = 0\nmax = 99999999999999999\n',
            "'max' is not a usable integer",
        ),
        ('[columns.a]\ntype = "number"\nmin = 0\nmax = 1e-300\n', "too close"),
        ('[columns.a]\ntype = "number"\nmin = -9e299\nmax = 9e299\n', "too far apart"),
        ('[columns.a]\ntype = "category"\nvalues = [1.5]\n', "text or whole numbers"),
        ('[columns.a]\ntype = "id"\nmin = 3\n', "unknown key 'min' for type id"),
        ('confirmed = "no"\n[columns.a]\ntype = "boolean"\n', "'confirmed' must be true or false"),
    ],
)
def test_mistakes(text: str, message: str | None) -> None:
    if message is None:
        assert parse_schema(text).label is None
        return
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    assert message in str(caught.value)


def test_a_date_beside_a_time_means_midnight() -> None:
    text = '[columns.t]\ntype = "datetime"\nmin = 2020-01-01\nmax = "2020-01-02T12:00:00+01:00"\n'
    column = parse_schema(text).columns[0]
    assert column.steps == 35 * 3600  # type: ignore[union-attr]


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="check the path"):
        load_schema(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with pytest.raises(SchemaError, match="UTF-8"):
        load_schema(tmp_path / "latin.toml")


def test_confirmed_unless_it_says_otherwise() -> None:
    text = '[columns.a]\ntype = "boolean"\n'
    assert parse_schema(text).confirmed
    assert not parse_schema("confirmed = false\n" + text).confirmed
