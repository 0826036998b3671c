"""Conditions on rows: what they mean, record by record, and what is refused when they are read."""

from datetime import date

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.errors import ConfigError
from repsynth.io.records import MISSING, Records
from repsynth.sampling.derived import holds
from repsynth.schema import Boolean, Category, Datetime, Id, Integer, Number, Schema
from repsynth.schema.conditions import columns_of, parse_condition

SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        Id(name="person"),
        Integer(name="age", min=10, max=99, missing=True, special=("N",)),
        Integer(name="pay", min=0, max=10**6),
        Number(name="dose", min=0.0, max=1.0, step=0.25),
        Category(name="sex", values=("F", "M"), missing=True),
        Category(name="marital status", values=("single", "it's over")),
        Boolean(name="smoker"),
        Datetime(name="in", min=date(2020, 1, 1), max=date(2020, 12, 31)),
        Datetime(name="out-of", min=date(2020, 1, 1), max=date(2020, 12, 31)),
    ),
)
N = 90  # the code of "N": 10..99 are positions 0..89
ROWS = Records(
    rows=4,
    codes={
        "age": np.array([0, 30, MISSING, N]),
        "pay": np.array([0, 40, 99, 7]),
        "dose": np.array([0, 1, 4, 3]),
        "sex": np.array([0, 1, MISSING, 0]),
        "marital status": np.array([0, 1, 0, 1]),
        "smoker": np.array([0, 1, 1, 0]),
        "in": np.array([0, 5, 9, 9]),
        "out-of": np.array([3, 5, 8, 9]),
    },
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age < 40", [1, 0, 0, 0]),
        ("age = 40", [0, 1, 0, 0]),
        ("40 <= age", [0, 1, 0, 0]),
        ("not age < 40", [0, 1, 1, 1]),
        ("age is missing", [0, 0, 1, 0]),
        ("age is not missing", [1, 1, 0, 1]),
        ('age = "N"', [0, 0, 0, 1]),
        ('age != "N"', [1, 1, 0, 0]),
        ('sex = "F"', [1, 0, 0, 1]),
        ("sex != 'F'", [0, 1, 0, 0]),
        ('sex in ["F", "M"]', [1, 1, 0, 1]),
        ("dose = .25 or dose == 1.0", [0, 1, 1, 0]),
        ("smoker = true", [0, 1, 1, 0]),
        ('smoker = "false"', [1, 0, 0, 1]),
        ('`marital status` = "it\'s over"', [0, 1, 0, 1]),
        ("out-of >= `in`", [1, 1, 0, 1]),
        ('`in` < "2020-01-06"', [1, 0, 0, 0]),
        ("pay = age + 0", [0, 1, 0, 0]),
        ("pay - age > -20", [1, 1, 0, 0]),
        ('sex = "F" and age < 40 or smoker = true', [1, 1, 1, 0]),
        ('sex = "F" and (age < 40 or smoker = true)', [1, 0, 0, 0]),
        ('NOT (sex = "F" OR age is missing)', [0, 1, 0, 0]),
    ],
)
def test_what_a_condition_means(text: str, expected: list[int]) -> None:
    assert holds(parse_condition(text, SCHEMA), ROWS, SCHEMA).astype(int).tolist() == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a column"),
        ("age", "expected a comparison such as = or < at the end"),
        ("age <", "expected a column"),
        ("age < 40 and", "expected a column"),
        ("age < 40 40", "did not expect"),
        ("agee < 40", "no column 'agee'"),
        ("person = 1", "is not learned"),
        ('sex = "X"', "is not a value of 'sex': it has F, M"),
        ('pay = "N"', "no such values"),
        ('sex < "F"', "no order"),
        ("sex = 1", "cannot be added up"),
        ("sex + 1 = 2", "cannot be added up"),
        ('`in` < "soon"', "is not a time"),
        ("`in` < 5 + age", "times can be compared with times"),
        ("1 < 2", "must use a column"),
        ("(age < 4", "expected ')'"),
        ("age ? 4", "cannot read it from character"),
        ("sex in []", "empty"),
        ("(" * 200, "nested too deeply"),
        ("x" * 20_000, "more than 10,000"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("(", r"\(").replace(")", r"\)")) as caught:
        parse_condition(text, SCHEMA)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse_condition(text, SCHEMA)
    except ConfigError:
        return


def test_which_columns_a_condition_speaks_of() -> None:
    found = columns_of(parse_condition('not (age < pay or sex = "F") and dose is missing', SCHEMA))
    assert found == {"age", "pay", "sex", "dose"}
