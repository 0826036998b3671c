"""Every mistake in a schema is reported at once, where it stands, with its remedy."""

from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.errors import SchemaError
from repsynth.schema import (
    Boolean,
    Category,
    Column,
    Datetime,
    Id,
    Integer,
    Number,
    Schema,
    load_schema,
    parse_schema,
    schema_from_dict,
    schema_to_dict,
)
from repsynth.schema.formats import DateFormat

FORMS = """
[columns.year]
type = "integer"
min = 1950
max = 2020
step = 10
special = [-9, 9999.0, "unknown"]
thousands = "."
prefix = "A.D. "
[columns.price]
type = "number"
min = -0.5
max = 9999.99
decimals = 2
thousands = "."
decimal = ","
prefix = "EUR "
special = [-9.5]
[columns.dose]
type = "number"
min = 0.1
max = 1
step = 0.1
[columns.plain]
type = "number"
min = 0
max = 1
[columns.day]
type = "datetime"
min = 1970-01-01
max = 2020-12-31
dates = "%d-%b-%y"
special = [9999-12-31, "none"]
[columns.hour]
type = "datetime"
min = 1900-01-01T00:00:00
max = 2020-12-31
dates = " %m/%d/%Y %H:%M "
"""


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


def test_grids_forms_and_special_values_are_read() -> None:
    schema = parse_schema(FORMS)
    year, price, dose, plain, day, hour = schema.columns
    assert year == Integer(
        name="year",
        min=1950,
        max=2020,
        special=("-9", "9999", "unknown"),
        step=10,
        thousands=".",
        prefix="A.D. ",
    )
    assert isinstance(price, Number)
    assert (price.special, price.decimals, price.decimal, price.prefix) == (("-9.5",), 2, ",", "EUR ")
    grids = [(c.steps, c.positions, c.unit, c.on_grid) for c in (price, dose, plain)]  # type: ignore[union-attr]
    assert grids == [(1_000_049, 1_000_051, 0.01, True), (9, 10, 0.1, True), (2**40, 2**40 + 1, 2.0**-40, False)]
    assert (year.steps, year.positions, year.unit) == (7, 11, 10.0)
    assert isinstance(day, Datetime)
    assert isinstance(hour, Datetime)
    assert (day.special, day.dates, day.positions - day.steps) == (("9999-12-31", "none"), "%d-%b-%y", 3)
    assert (hour.dates, hour.unit) == ("%m/%d/%Y %H:%M", timedelta(seconds=1))
    assert schema_from_dict(schema_to_dict(schema)) == schema


def test_what_is_not_declared_is_not_written() -> None:
    """A schema that is written and read again says no more than before."""
    schema = Schema(columns=(Integer(name="a", min=0, max=1), Number(name="b", min=0.0, max=1.0)))
    assert schema_to_dict(schema)["columns"] == {
        "a": {"type": "integer", "min": 0, "max": 1},
        "b": {"type": "number", "min": 0.0, "max": 1.0},
    }


def test_all_mistakes_of_a_column_at_once() -> None:
    text = """[columns.a]
type = "number"
max = 5
min = 5
special = ["", -9, "-9.0"]
step = 0
decimal = ";"
thousands = "x"
prefix = "5"
"""
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    lines = sorted(int(problem.split("line ")[1].split(":")[0]) for problem in caught.value.problems)
    assert lines == [4, 5, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('type = "integer"\nmin = 0\nmax = 10\nstep = 3', "whole number of steps"),
        ('type = "integer"\nmin = 0\nmax = 10\nstep = 2.5', "'step' must be a whole number above 0"),
        ('type = "integer"\nmin = 0\nmax = 10\nstep = true', "'step' must be a whole number above 0"),
        ('type = "integer"\nmin = 0\nmax = 10\ndecimals = 1', "unknown key 'decimals' for type integer"),
        ('type = "integer"\nmin = 0\nmax = 4503599627370497', "between -2^52 and 2^52 = 4,503,599,627,370,496"),
        ('type = "number"\nmin = 0\nmax = 1\nstep = -0.5', "'step' must be a number above 0"),
        ('type = "number"\nmin = 0\nmax = 1\nstep = 0.3', "whole number of steps"),
        ('type = "number"\nmin = 0\nmax = 1\nstep = 0.5\ndecimals = 1', "exclude each other"),
        ('type = "number"\nmin = 0\nmax = 1\ndecimals = 13', "'decimals' must be a whole number from 0 to 12"),
        ('type = "number"\nmin = 0\nmax = 1\ndecimals = true', "'decimals' must be a whole number"),
        ('type = "number"\nmin = 0.125\nmax = 1.125\ndecimals = 2', "more 'decimals' than declared"),
        ('type = "number"\nmin = 0\nmax = 1e9\ndecimals = 12', "too fine for these bounds"),
        ('type = "number"\nmin = 1e17\nmax = 100000000000000016.0\nstep = 1', "too fine for these bounds"),
        ('type = "number"\nmin = 0\nmax = 1\nthousands = "."', "'thousands' and 'decimal' must differ"),
        ('type = "number"\nmin = 0\nmax = 1\nthousands = ["."]', "'thousands' must be one of"),
        ('type = "number"\nmin = 0\nmax = 1\ndecimal = ""', "'decimal' must be"),
        ('type = "number"\nmin = 0\nmax = 1\nprefix = "-"', "'prefix' must be a short text"),
        ('type = "number"\nmin = 0\nmax = 1\nprefix = " $"', "'prefix' must be a short text"),
        ('type = "number"\nmin = 0\nmax = 1\nprefix = "."', "'prefix' must be a short text"),
        ('type = "number"\nmin = 0\nmax = 1\nprefix = 5', "'prefix' must be a short text"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = -9', "'special' must be a list"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = [true]', "'special' must be a list"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = [2020-01-01]', "'special' must be a list"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = [nan]', "not below 2^64"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = [" "]', "a special value is empty"),
        ('type = "number"\nmin = 0\nmax = 1\nspecial = ["x", " x"]', "1 special value(s) listed twice"),
        ('type = "boolean"\nspecial = ["x"]', "unknown key 'special' for type boolean"),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = 5', "'dates' must be a format"),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%d.%j.%Y"', "%j is unknown"),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%d.%m.%"', "% is unknown"),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%m.%Y"', "must name a day"),
        (
            'type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%d %m %b %Y"',
            "one part of the date twice",
        ),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%d.%m.%Y %M"', "minutes need hours"),
        (
            'type = "datetime"\nmin = 2020-01-01\nmax = 2021-01-01\ndates = "%d.%m.20%y"',
            "digits between its parts",
        ),
        ('type = "datetime"\nmin = 1920-01-01\nmax = 2021-01-01\ndates = "%d.%m.%y"', "use %Y for the year"),
        (
            'type = "datetime"\nmin = 2020-01-01T01:00:00\nmax = 2021-01-01\ndates = "%d.%m.%Y"',
            "has no time of day, but the bounds do",
        ),
        ('type = "integer"\nmin = 0\nmax = 3\nspecial = [0, "1", 2.0, "3e0", -9]', "declare a category"),
        ('type = "integer"\nmin = -5\nmax = 5\nstep = 5\nspecial = [-5, 0, 5]', "declare a category"),
        ('type = "number"\nmin = 0.1\nmax = 0.3\nstep = 0.1\nspecial = [0.1, 0.2, 0.3]', "declare a category"),
        ('type = "number"\nmin = 0\nmax = 0.1\ndecimals = 1\nspecial = ["-0.0", ".1"]', "declare a category"),
        (
            'type = "datetime"\nmin = 2020-01-01\nmax = 2020-01-02\nspecial = [2020-01-01, 2020-01-02]',
            "declare a category",
        ),
        (
            'type = "datetime"\nmin = 2020-01-01\nmax = 2020-01-02\ndates = "%d.%m.%Y"\n'
            'special = ["01.01.2020", "2020-01-02T00:00:00"]',
            "declare a category",
        ),
        (
            'type = "datetime"\nmin = "0001-01-01T00:00:00+10:00"\nmax = 2020-01-01',
            "'min' is not a usable datetime",
        ),
        ('type = "datetime"\nmin = 0001-01-01T00:00:00+10:00\nmax = 2020-01-01', "'min' is not a usable datetime"),
        (
            'type = "datetime"\nmin = 2020-01-01\nmax = "9999-12-31T23:59:59-10:00"',
            "'max' is not a usable datetime",
        ),
    ],
)
def test_mistakes_in_grids_forms_and_special_values(keys: str, message: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_schema(f"[columns.a]\n{keys}\n")
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


FITS = "cannot hold every declared value"


@pytest.mark.parametrize(
    ("keys", "storage", "message"),
    [
        ('type = "integer"\nmin = 0\nmax = 127', "int8", None),
        ('type = "integer"\nmin = 0\nmax = 128', "int8", FITS),
        ('type = "integer"\nmin = -1\nmax = 9', "uint64", FITS),
        ('type = "integer"\nmin = 0\nmax = 9\nspecial = [-9]', "uint8", FITS),
        ('type = "integer"\nmin = 0\nmax = 9\nspecial = ["N"]', "int64", FITS),
        ('type = "integer"\nmin = 0\nmax = 9\nthousands = ","', "int64", FITS),
        ('type = "integer"\nmin = 0\nmax = 9\nthousands = ","', "large_string", None),
        ('type = "integer"\nmin = 0\nmax = 20000000', "float32", FITS),
        ('type = "integer"\nmin = 0\nmax = 9', "int31", "'storage' must be one of int8, int16, "),
        ('type = "number"\nmin = 0\nmax = 1\ndecimals = 2', "float32", None),
        ('type = "number"\nmin = 0\nmax = 1', "int64", FITS),
        ('type = "number"\nmin = 0\nmax = 1e39', "float32", FITS),
        ('type = "category"\nvalues = [0, 1]', "int8", None),
        ('type = "category"\nvalues = ["00", "1"]', "int8", FITS),
        ('type = "category"\nvalues = ["x"]', "string", None),
        ('type = "boolean"', "int8", None),
        ('type = "boolean"', "float64", FITS),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2029-01-01', "date32", None),
        ('type = "datetime"\nmin = 2020-01-01T00:00:00\nmax = 2029-01-01', "date32", FITS),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2262-01-01', "timestamp[ns]", FITS),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2262-01-01', "timestamp[us]", None),
        ('type = "datetime"\nmin = 2020-01-01\nmax = 2029-01-01', "int64", FITS),
        ('type = "id"', "int64", None),
        ('type = "id"\nformat = "P-###"', "int64", FITS),
    ],
)
def test_a_declared_storage_must_hold_the_domain(keys: str, storage: str, message: str | None) -> None:
    text = f'[columns.a]\n{keys}\nstorage = "{storage}"\n[columns.b]\ntype = "boolean"\n'
    if message is None:
        schema = parse_schema(text)
        assert schema.columns[0].storage == storage
        assert schema_from_dict(schema_to_dict(schema)) == schema
        return
    with pytest.raises(SchemaError) as caught:
        parse_schema(text)
    (problem,) = caught.value.problems
    assert message in problem
    assert problem.startswith(f"schema.toml, line {keys.count(chr(10)) + 3}: column 'a': ")


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="a", min=0, max=3, special=("0", "1", "3", "1.5")),
        Number(name="a", min=0.0, max=0.2, step=0.1, special=("0", "0.1", "0.20001", "1e300")),
        Number(name="a", min=0.0, max=1.0, special=("0", "1")),
        Datetime(name="a", min=date(2020, 1, 1), max=date(2020, 1, 2), special=("2020-01-01", "2020-01-02T01:00")),
        Datetime(name="a", min=date(2020, 1, 1), max=date(2020, 1, 2), special=("1.1.2020", "none")),
    ],
    ids=repr,
)
def test_special_values_may_leave_one_number(column: Column) -> None:
    schema = Schema(columns=(column,))
    assert schema_from_dict(schema_to_dict(schema)) == schema


HALF = "\ud800"  # half a character, which Python's texts may hold and no file can


@pytest.mark.parametrize(
    "column",
    [
        Boolean(name=HALF),
        Id(name=f"a{HALF}"),
        Category(name="a", values=("x", f"y{HALF}")),
        Integer(name="a", min=0, max=9, special=("-9", HALF)),
        Integer(name="a", min=0, max=9, prefix=HALF),
        Integer(name="a", min=0, max=9, thousands=HALF),
        Number(name="a", min=0.0, max=9.0, decimal=HALF),
        Datetime(name="a", min=date(2020, 1, 1), max=date(2021, 1, 1), dates=f"%d{HALF}%m %Y"),
    ],
    ids=ascii,
)
def test_text_that_no_file_can_hold_is_refused(column: Column) -> None:
    schema = Schema(columns=(column, Boolean(name="other")))
    with pytest.raises(SchemaError, match="not valid UTF-8") as caught:
        schema_from_dict(schema_to_dict(schema))
    assert len(caught.value.problems) == 1
    assert str(caught.value).encode(), "the message itself can be printed"


def test_keys_and_labels_that_no_file_can_hold_are_refused_in_words_that_one_can() -> None:
    boolean = {"type": "boolean"}
    for raw in (
        {"columns": {"a": boolean | {HALF: 1}}},
        {"columns": {"a": boolean}, HALF: 1},
        {"columns": {"a": boolean}, "label": HALF},
        {"columns": {"a": boolean, HALF: boolean}, "label": HALF},
        {"columns": {"a": {"type": HALF}}},
        {"columns": {HALF: 3}},
    ):
        with pytest.raises(SchemaError) as caught:
            schema_from_dict(raw)
        assert str(caught.value).encode()


@given(
    st.datetimes(datetime(1969, 1, 1), datetime(2068, 12, 31)),
    st.sampled_from(["%d.%m.%Y", "%Y%m%d", "%d%b%y", "%B %d, %Y", "%m/%d/%y", "%d. %b %Y", "%Y年%m月%d日"]),
    st.sampled_from(["", " %H:%M:%S", "T%H%M%S", " (%H h %M min %S s)"]),
)
def test_what_a_format_writes_it_reads(time: datetime, days: str, clock: str) -> None:
    form = DateFormat(days + clock)
    assert form.problem is None
    whole = time.replace(microsecond=0)
    expected = whole if clock else datetime(time.year, time.month, time.day)
    assert form.read(form.write(whole)) == expected


@given(st.text(max_size=20))
def test_no_text_makes_a_format_raise(text: str) -> None:
    assert DateFormat("%d. %B %Y %H:%M").read(text) is None


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
