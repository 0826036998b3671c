"""The draft: what real tables have comes out right, with a reason, marked as not private, always valid TOML."""

import json
import random
import re
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import make_people
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth import Release, draft_schema, synthesize
from repsynth.curator.check import check_table
from repsynth.curator.infer import Decision, make_draft
from repsynth.errors import DataError, SchemaError
from repsynth.privacy.gaussian import epsilon_of, mu_of
from repsynth.schema import Boolean, Category, Column, Datetime, Id, Integer, Number, parse_schema
from repsynth.schema.parse import schema_from_dict, schema_to_dict

ROWS = 2_000


def drafted(text: str, folder: Path, **options: str) -> dict[str, object]:
    (folder / "t.csv").write_text(text, encoding="utf-8")
    schema = parse_schema(draft_schema(folder / "t.csv", **options))
    assert not schema.confirmed
    return {column.name: column for column in schema.columns}


def cells(make: Callable[[random.Random], object], rows: int = ROWS) -> list[str]:
    """Made-up cells of text."""
    generator = random.Random(4)
    return [str(make(generator)) for _ in range(rows)]


def decided(values: Sequence[Any] | pa.Array, name: str = "x") -> tuple[Column | None, Decision]:
    """What a column is taken for, None if it is left out. No cell of the table may be clipped or undeclared."""
    table = pa.table({name: values, "beside it": [True, False] * (len(values) // 2)})
    draft = make_draft(table)
    schema = parse_schema(f"one_row_per_person = true\n{draft.text}")
    for column in check_table(table, schema).columns:
        assert (column.below, column.above, column.rounded, column.undeclared) == (0, 0, 0, 0)
    assert draft.columns[0].name == name
    assert draft.columns[0].reason.split("\n")[0] in draft.text.replace("\n#  ", "")
    return next((c for c in schema.columns if c.name == name), None), draft.columns[0]


def warnings_of(values: Sequence[Any], name: str = "x") -> str:
    return " ".join(decided(values, name)[1].warnings)


# --- numbers ---


def test_a_text_among_numbers_is_a_special_value() -> None:
    column, decision = decided(cells(lambda r: "N" if r.random() < 0.15 else f"{r.randrange(-500, 90_000)}.0"))
    assert isinstance(column, Integer)
    assert (column.special, column.missing) == (("N",), False)
    assert '"N" in 1' in decision.reason


def test_markers_of_missing_values_are_missing_and_odd_cells_are_counted() -> None:
    values = cells(lambda r: r.choice(["NA", "n/a", *range(100, 160)]))
    column, decision = decided(["forty", *values[1:]])
    assert column == Integer(name="x", min=100, max=159, missing=True, markers=("NA", "n/a"))
    assert '"NA" and "n/a"' in decision.reason
    assert 'no numbers in 1 cell, such as "forty"' in decision.warnings[0]


@pytest.mark.parametrize("code", [-9, -1, 99, 999, 9999])
def test_a_number_apart_from_the_rest_is_a_special_value(code: int) -> None:
    values = cells(lambda r: code if r.random() < 0.08 else r.randint(18, 80))
    column, decision = decided(values)
    assert column == Integer(name="x", min=18, max=80, special=(str(code),))
    assert f"{code} in " in decision.reason
    assert decided([int(value) for value in values])[0] == decided([float(value) for value in values])[0] == column


@pytest.mark.parametrize("code", [-9, 99])
def test_a_number_that_is_rare_or_among_the_rest_is_none(code: int) -> None:
    rare = [*cells(lambda r: r.randint(18, 80))[1:], str(code)]
    assert decided(rare)[0].special == ()  # type: ignore[union-attr]
    among = cells(lambda r: code if r.random() < 0.08 else r.randint(-20, 120))
    assert decided(among)[0].special == ()  # type: ignore[union-attr]
    hours = cells(lambda r: code if r.random() < 0.02 else round(r.gauss(60, 15)))
    assert decided(hours)[0].special == ()  # type: ignore[union-attr]


def german(value: float, decimals: int) -> str:
    return f"{value:,.{decimals}f}".translate(str.maketrans(",.", ".,"))


@pytest.mark.parametrize(
    ("make", "form"),
    [
        (lambda v: f"{v:,.0f}", {"thousands": ","}),
        (lambda v: german(v, 0), {"thousands": "."}),
        (lambda v: f"{v:,.0f}".replace(",", "'"), {"thousands": "'"}),
        (lambda v: f"{v:,.0f}".replace(",", " "), {"thousands": " "}),
        (lambda v: f"${v:,.0f}", {"prefix": "$", "thousands": ","}),
        (lambda v: f"{v:,.2f}", {"thousands": ",", "decimals": 2}),
        (lambda v: f"${v:.2f}", {"prefix": "$", "decimals": 2}),
        (lambda v: f"EUR {v:.2f}", {"prefix": "EUR ", "decimals": 2}),
        (lambda v: german(v, 2), {"thousands": ".", "decimal": ",", "decimals": 2}),
        (lambda v: f"{v:.1f}".replace(".", ","), {"decimal": ",", "decimals": 1}),
        (lambda v: f"{v:.0f},0", {"decimal": ",", "decimals": 1}),
        (lambda v: f"{v / 1e5:.3f}".replace(".", ","), {"decimal": ",", "decimals": 3}),
        (lambda v: f"{v:.2f}", {"decimals": 2}),
        (lambda v: f"{round(v / 50) * 50}", {"step": 50}),
        (lambda v: f"{round(v / 1000) * 1000}", {"step": 1000}),
        (lambda v: f"{round(v) / 2}", {"step": 0.5}),
    ],
)
def test_numbers_in_the_forms_that_tables_have(make: Callable[[float], str], form: dict[str, object]) -> None:
    values = [10 ** random.Random(i).uniform(1, 6.5) for i in range(ROWS)]
    column, decision = decided([make(value) for value in values])
    assert isinstance(column, Number if {"decimals", "decimal"} & set(form) or form == {"step": 0.5} else Integer)
    found = {key: getattr(column, key, None) for key in ("prefix", "thousands", "decimal", "decimals", "step")}
    assert found == {"prefix": "", "thousands": "", **_defaults(column), **form}
    assert not decision.warnings


def _defaults(column: Column) -> dict[str, object]:
    if isinstance(column, Integer):
        return {"decimal": None, "decimals": None, "step": 1}
    return {"decimal": ".", "decimals": None, "step": None}


def test_thousands_or_decimals_is_said_where_nothing_tells() -> None:
    assert "read as thousands" in warnings_of(cells(lambda r: f"{r.randint(1, 9)},{r.randint(100, 999)}"))


def test_decimals_that_no_grid_holds_are_left_open() -> None:
    column, _ = decided([random.Random(i).random() for i in range(ROWS)])
    assert isinstance(column, Number)
    assert not column.on_grid


def test_few_whole_numbers_stay_integers_and_two_are_a_category() -> None:
    column, decision = decided(cells(lambda r: r.randint(1, 4)))
    assert column == Integer(name="x", min=1, max=4)
    assert "then a category" in decision.reason
    assert decided(cells(lambda r: r.randint(0, 1)))[0] == Category(name="x", values=("0", "1"))
    assert isinstance(decided(cells(lambda r: r.choice([1, 2, 3, "N"])))[0], Category)


@pytest.mark.parametrize(
    "make",
    [
        lambda r: f"{r.choice([2139, 2140, 10001, 94110]):05}",
        lambda r: r.choice(["250.83", "V58", "E880", *(f"V{i}" for i in range(20, 30)), "428", "414.1"]),
    ],
)
def test_codes_that_look_like_numbers_are_categories(make: Callable[[random.Random], object]) -> None:
    column, _ = decided(cells(make))
    assert isinstance(column, Category)
    assert {"02139", "V58"} & set(column.values)


def test_numbers_named_like_codes_or_spread_like_them_are_categories() -> None:
    assert isinstance(decided(cells(lambda r: r.choice([94110, 10001, 60601])), "zip_code")[0], Category)
    codes = random.Random(1).sample(range(100, 9990), 80)
    column, decision = decided([*cells(lambda r: r.choice(codes), 4_000), *["N"] * 2_000])
    assert isinstance(column, Category)
    assert "spread as codes are" in decision.reason


# --- dates ---


def days(form: str, first: date = date(1950, 1, 1), spread: int = 20_000) -> list[str]:
    return cells(lambda r: (datetime(*first.timetuple()[:3]) + timedelta(r.randrange(spread))).strftime(form))


@pytest.mark.parametrize(
    "form",
    [
        *("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y%m%d", "%d %b %Y", "%d-%m-%Y", "%Y/%m/%d", "%B %d, %Y", "%d%b%Y"),
        *("%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M:%S"),
    ],
)
def test_dates_in_the_forms_that_tables_have(form: str) -> None:
    column, decision = decided(days(form))
    assert isinstance(column, Datetime)
    assert column.dates == form
    assert not decision.warnings
    assert column.start.date() < date(1951, 1, 1)


def test_dates_as_iso_writes_them_need_no_format() -> None:
    column, _ = decided(["9999-12-31" if i % 9 == 0 else day for i, day in enumerate(days("%Y-%m-%d"))])
    assert isinstance(column, Datetime)
    assert (column.dates, column.special) == (None, ("9999-12-31",))
    assert column.max < date(2010, 1, 1)


def test_days_that_could_be_months_are_said_loudly() -> None:
    both = cells(lambda r: f"{r.randint(1, 12):02}/{r.randint(1, 12):02}/{r.randint(2000, 2020)}")
    column, decision = decided(both)
    assert isinstance(column, Datetime)
    assert "no cell tells" in decision.warnings[0]
    assert '"%d/%m/%Y"' in decision.warnings[0]
    assert "two digits" in warnings_of(days("%d.%m.%y", date(1975, 1, 1)))


def test_times_beyond_python_s_are_not_taken_for_times() -> None:
    far = pa.array([2**50, 2**50 + 86_400, 2**50 + 172_800], type=pa.timestamp("s"))
    assert "datetime" not in draft_schema(pa.table({"far": far, "b": [True, False, True]}))


# --- identifiers and text ---


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("", [str(i) for i in range(ROWS)]),
        ("note", [f"note {i * 7919 % 10_007}" for i in range(ROWS)]),
        ("account", cells(lambda r: r.randrange(10**9, 10**10))),
        ("ssn", cells(lambda r: r.randrange(10**9))),
        ("E-Mail", cells(lambda r: f"p{r.randrange(1500)}@example.org")),
        ("id number", cells(lambda r: r.randrange(1, 1900))),
        ("lastName", cells(lambda r: f"Name{r.randrange(900)}")),
        ("name", cells(lambda r: "".join(r.choices("abcdefg", k=6)))),
    ],
)
def test_identifiers_are_ids_and_said_loudly(name: str, values: list[str]) -> None:
    column, decision = decided(values, name)
    assert isinstance(column, Id)
    assert "not learned: the synthetic table will have 1, 2, 3" in decision.warnings[0]
    assert not any("it repeats" in warning for warning in decision.warnings) or len(set(values)) < ROWS


def test_several_rows_of_a_person_are_said_loudly() -> None:
    values = cells(lambda r: 1000 + r.randrange(700))
    column, decision = decided(values, "patient_id")
    most = max(values.count(value) for value in set(values))
    assert isinstance(column, Id)
    assert f"one of them in {most:,} rows" in decision.warnings[-1]
    said = float(re.search(r"a person with [\d,]+ rows has ε = ([\d.e+]+),", decision.warnings[-1])[1])  # type: ignore[index]
    assert most < said == pytest.approx(float(epsilon_of(most * mu_of(1.0, 1e-9), 1e-9)), rel=0.01)


def hospital(rows: int) -> pa.Table:
    """Stays of patients, of whom a few have very many."""
    rng = np.random.default_rng(5)
    patients = np.unique(rng.integers(100, 190_000_000, rows // 2))
    patient = rng.choice(patients, rows, p=(weight := rng.pareto(2.0, len(patients)) + 1) / weight.sum())
    rank = np.minimum(rng.pareto(0.7, rows) * 8, 699).astype(int)
    forms = (lambda k: f"V{k // 4 + 10}", lambda k: f"{k + 100}", lambda k: f"{k // 8 + 200}.{k % 10}")
    icd = np.array([forms[k % 3](k) for k in range(700)])
    return pa.table(
        {
            "encounter": 10_000_000 + np.cumsum(rng.integers(1, 900, rows)),
            "patient_nbr": patient,
            "patient_text": [f"P{p:09}" for p in patient],
            "admission_source_id": np.minimum(rng.geometric(0.3, rows), 26),
            "payer_code": rng.choice(["MC", "HM", "?", "unknown"], rows, p=[0.3, 0.3, 0.3, 0.1]),
            "diagnosis": icd[rank],
            "pay": (10 ** rng.uniform(1, 7, rows)).astype(int),
            "income": rng.integers(10, 200_000, rows) * 500,
            "days": rng.integers(1, 15, rows),
        }
    )


@pytest.mark.parametrize("form", ["{:012}", "P-{}", "{:x}", "{0:06}-{0:03}"])
@pytest.mark.parametrize("stored", [pa.array, lambda texts: pa.array(texts).dictionary_encode()])
def test_ids_of_persons_in_the_forms_that_tables_have(form: str, stored: Callable[[list[str]], pa.Array]) -> None:
    texts = [form.format(int(number)) for number in hospital(4_000)["patient_nbr"].to_numpy()]
    draft = make_draft(pa.table({"key": stored(texts), "b": [True] * 4_000}))
    assert draft.persons == ("key",)
    assert isinstance(parse_schema(draft.text).columns[0], Id)


def test_persons_and_codes_are_recognised_whatever_the_number_of_rows() -> None:
    drafts = [make_draft(hospital(rows)) for rows in (8_000, 80_000, 100_000)]
    for draft in drafts:
        columns = {column.name: column for column in parse_schema(draft.text).columns}
        assert draft.persons == ("patient_nbr", "patient_text")
        assert isinstance(columns["patient_nbr"], Id)
        assert isinstance(columns["admission_source_id"], Category)
        assert columns["payer_code"] == Category(
            name="payer_code", values=("HM", "MC"), missing=True, markers=("?", "unknown")
        )
        assert all(isinstance(columns[name], Integer) for name in ("pay", "income", "days"))
        assert isinstance(columns["encounter"], Id)
        assert len(draft.text.splitlines()) < 150
    small, *large = drafts
    assert small.text.startswith("# Can one person have several rows")
    assert '# person = {column = "patient_nbr"} ' in small.text
    for draft in large:
        assert [(c.name, c.type) for c in draft.columns] == [(c.name, c.type) for c in large[0].columns]
        diagnosis = next(c for c in parse_schema(draft.text).columns if c.name == "diagnosis")
        assert isinstance(diagnosis, Category)
        assert diagnosis.prefix == 2


def test_a_name_alone_makes_no_identifier() -> None:
    assert isinstance(decided(cells(lambda r: r.choice(["A191", "A192"])), "telephone")[0], Category)
    assert isinstance(decided(cells(lambda r: r.choice("abc")), "product name")[0], Category)
    assert isinstance(decided(cells(lambda r: r.randrange(300)), "phone calls")[0], Integer)


def test_many_values_are_a_category_where_most_are_frequent() -> None:
    frequent = decided(cells(lambda r: f"town {r.randrange(120)}"))
    assert isinstance(frequent[0], Category)
    assert "use a public list" in frequent[1].warnings[0]
    rare = decided(cells(lambda r: f"town {r.randrange(900)}"))
    assert rare[0] is None
    assert rare[1].type == "drop"
    assert "to keep it" in rare[1].warnings[0]
    assert "in fewer than 10 rows" in decided([*["a"] * 1997, *["b"] * 3])[1].reason


@pytest.mark.parametrize(
    "make",
    [
        lambda r: f"{r.uniform(0, 100):.1f} %",
        lambda r: f"{r.randrange(10_000)} EUR",
        lambda r: f"{r.randrange(24)}:{r.randrange(60):02}",
        lambda r: f"0{r.randint(1, 9)}/{r.randint(10, 28)}/2020 {r.randint(1, 12)}:{r.randint(10, 59)} PM",
        lambda r: f"({r.randrange(10**6)})" if r.random() < 0.4 else f"{r.randrange(10**6)}",
    ],
)
def test_what_nearly_is_a_number_or_a_time_gets_a_remedy(make: Callable[[random.Random], object]) -> None:
    column, decision = decided(cells(make))
    assert "write numbers as 1234.5" in decision.warnings[0]
    assert column is None
    assert decision.person is None


def test_constant_and_empty_columns_are_said() -> None:
    assert "nothing to learn" in decided(["x"] * ROWS)[1].reason
    assert "the others stand out" in warnings_of(["rare", *["usual"] * (ROWS - 1)])
    assert "stand out" not in warnings_of(["rare", "rare", "rare", *["usual"] * (ROWS - 3)])
    column, decision = decided(pa.nulls(ROWS))
    assert column is None
    assert "empty" in decision.reason


# --- storage types ---


def test_stored_types_are_kept(tmp_path: Path) -> None:
    generator = random.Random(3)
    table = pa.table(
        {
            "price": pa.array(
                [Decimal(generator.randrange(10**6)) / 100 for _ in range(ROWS)], pa.decimal128(10, 2)
            ),
            "when": pa.array([datetime(2020, 1, 1) + timedelta(hours=i) for i in range(ROWS)], pa.timestamp("ns")),
            "day": pa.array([date(2020, 1, 1) + timedelta(i % 700) for i in range(ROWS)]),
            "flag": [True, None] * (ROWS // 2),
            "kind": pa.array([f"k{i % 7}" for i in range(ROWS)]).dictionary_encode(),
            "narrow": pa.array([i % 30 / 10 for i in range(ROWS)], pa.float32()),
            "count": pa.array([None if i % 9 == 0 else float(i % 50) for i in range(ROWS)]),
            "compact": [20_200_101 + i % 28 for i in range(ROWS)],
        }
    )
    pq.write_table(table, tmp_path / "t.parquet")
    draft = make_draft(tmp_path / "t.parquet")
    columns = {column.name: column for column in parse_schema(draft.text).columns}
    assert isinstance(columns["price"], Number)
    assert columns["price"].decimals == 2
    assert isinstance(columns["when"], Datetime)
    assert isinstance(columns["when"].min, datetime)
    assert columns["day"] == Datetime(name="day", min=date(2020, 1, 1), max=date(2021, 11, 30))
    assert columns["flag"] == Boolean(name="flag", missing=True)
    assert isinstance(columns["kind"], Category)
    assert isinstance(decided(pa.array([i % 5 for i in range(ROWS)]).dictionary_encode())[0], Category)
    assert columns["narrow"] == Number(name="narrow", min=0.0, max=2.9, decimals=1)
    assert columns["count"] == Integer(name="count", min=0, max=49, missing=True)
    assert "stored as numbers" in draft.columns[-1].warnings[0]


# --- the file ---


def test_every_bound_and_category_is_marked() -> None:
    text = draft_schema(make_people(200))
    marked = ("min =", "max =", "values =", "special =", "step =", "decimals =", "dates =", "thousands =")
    assert any(line.startswith("min =") for line in text.splitlines())
    for line in text.splitlines():
        if line.startswith(marked):
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
    assert columns["pay"] == Number(name="pay", min=0.0, max=1000.0, step=0.5, missing=True)
    assert isinstance(columns["day"], Datetime)
    assert columns["day"].missing
    assert columns["city"] == Category(name="city", values=("Genève", "Zürich"), missing=True)


def test_odd_names_and_values_are_valid_toml(tmp_path: Path) -> None:
    text = '"a ""quoted"" name",emoji 😀,back\\slash\nx,😀,"1,5"\ny,é\x7f,"line\nbreak"\n'
    columns = drafted(text, tmp_path)
    assert list(columns) == ['a "quoted" name', "emoji 😀", "back\\slash"]


@settings(max_examples=30)
@given(
    st.lists(
        st.lists(
            st.one_of(st.none(), st.text(max_size=6), st.integers().map(str), st.floats().map(str)),
            min_size=20,
            max_size=20,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(["a", "person_id", "zip", "# = [x]"]),
)
def test_any_table_gives_a_valid_draft(columns: list[list[str | None]], name: str) -> None:
    table = pa.table({f"{name}{i}": pa.array(c, pa.string()) for i, c in enumerate(columns)} | {"b": [True] * 20})
    schema = parse_schema(f"one_row_per_person = true\n{draft_schema(table)}")
    assert {*schema.dropped, *(column.name for column in schema.columns)} == {*table.column_names}
    assert check_table(table, schema).rows == 20


def test_a_label_is_a_category_even_if_it_is_a_number(tmp_path: Path) -> None:
    rows = "\n".join(f"{i % 3},{i % 7}" for i in range(90))
    assert drafted(f"grade,x\n{rows}\n", tmp_path, label="grade")["grade"] == Category(
        name="grade", values=("0", "1", "2")
    )
    draft = make_draft(pa.table({"grade": ["a", "b", None], "x": [1, 2, 3]}), label="grade")
    assert parse_schema(draft.text).label == "grade"
    assert "labels are missing" in draft.columns[0].warnings[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a;b\n1;2\n", "say --delimiter ';'"),
        (b"a\tb\n1\t2\n", r"say --delimiter '\\t'"),
        (b"a,b\nGen\xe8ve,2\n", "name the right one with --encoding"),
        (b"a,a\n1,2\n", "more than once"),
    ],
)
def test_what_cannot_be_drafted(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message):
        draft_schema(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("table", "label", "message"),
    [
        (pa.table({"a": [1, 1], "b": [1, 2]}), "a", "1 different values"),
        (pa.table({"a": list(range(1001)), "b": [1] * 1001}), "a", "1,001 different values"),
        (pa.table({"a": [[1], [2]]}), None, "nested"),
        (pa.table({"a": pa.array([b"\xe8", b"x"])}), None, "bytes that are no text"),
    ],
)
def test_tables_that_cannot_be_drafted(table: pa.Table, label: str | None, message: str) -> None:
    with pytest.raises(DataError, match=message):
        draft_schema(table, label=label)


def test_empty_and_ragged_tables(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        drafted("a,b\n", tmp_path)
    assert list(drafted("a,b\n1,2\n3\n4,5,6\n", tmp_path)) == ["a", "b"]
    (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n3\r\n")  # as a spreadsheet saves it
    draft = make_draft(tmp_path / "t.csv")
    assert [column.name for column in draft.columns] == ["a", "b"]
    assert "1 row of the file" in draft.warnings[0]
    assert "1 row of the file" in draft.text
    assert "nothing to learn" in make_draft(pa.table({"id": [f"x{i}" for i in range(50)]})).warnings[0]


def test_nist(data_dir: Path) -> None:
    """A survey as people have them: codes among numbers and as numbers, columns that follow from others."""
    path = data_dir / "nist_national2019.csv"
    if not path.is_file():
        pytest.skip("nist_national2019.csv is not in REPSYNTH_DATA")
    draft = make_draft(path, label="OWN_RENT")
    schema = parse_schema(draft.text.replace("# one_row_per_person = true", "one_row_per_person = true"))
    columns = {column.name: column for column in schema.columns}
    assert columns["PINCP"] == Integer(name="PINCP", min=-9_000, max=1_327_000, special=("N",))
    assert columns["POVPIP"] == Integer(name="POVPIP", min=0, max=501, special=("N",))
    assert columns["AGEP"] == Integer(name="AGEP", min=0, max=95)
    assert isinstance(columns["PUMA"], Category)
    assert columns["PUMA"].values[0] == "01-01301"
    assert isinstance(columns["INDP"], Category)
    assert columns["INDP"].size == 264
    assert columns["DENSITY"].decimals == 1  # type: ignore[union-attr]
    assert not any(isinstance(column, Id) for column in columns.values())
    checked = check_table(path, schema)
    assert all(column.missing == column.unreadable == column.undeclared == 0 for column in checked.columns)


def test_the_public_tables(data_dir: Path) -> None:
    kinds = {}
    for name in ("adult", "german_credit"):
        schema = parse_schema(draft_schema(data_dir / f"{name}.csv"))
        kinds |= {column.name: type(column) for column in schema.columns}
        assert not any(isinstance(column, Id) for column in schema.columns)
    assert kinds["fnlwgt"] is kinds["hours-per-week"] is kinds["credit_amount"] is Integer
    assert kinds["workclass"] is kinds["telephone"] is kinds["personal_status"] is Category


# --- columns that are left out, and texts that stand for missing cells ---

LEFT_OUT = """
one_row_per_person = true
columns.note = {type = "drop"}
columns.kind = {type = "category", values = ["a", "b"], missing = ["?", " n/a "]}
columns.age = {type = "integer", min = 0, max = 9, missing = ["-"]}
"""


@pytest.mark.filterwarnings("ignore:without a label")
def test_a_column_is_left_out_and_markers_are_missing_cells(tmp_path: Path) -> None:
    schema = parse_schema(LEFT_OUT)
    assert schema.dropped == ("note",)
    assert schema.columns[0].markers == ("?", "n/a")  # type: ignore[union-attr]
    assert schema_from_dict(json.loads(json.dumps(schema_to_dict(schema)))) == schema
    table = pa.table({"note": ["x"] * 300, "kind": ["a", "b", "?"] * 100, "age": ["7", "-", "9"] * 100})
    checked = check_table(table, schema)
    assert [(c.name, c.missing, c.undeclared + c.unreadable, c.findings) for c in checked.columns] == [
        ("kind", 1 / 3, 0, ()),
        ("age", 1 / 3, 0, ()),
    ]
    release = synthesize(table, schema, epsilon=50.0, model="naive-bayes")
    release.save(tmp_path / "release")
    assert Release.load(tmp_path / "release").schema == schema
    assert release.sample(5, seed=1).column_names == ["kind", "age"]


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("columns.x = {type = 'drop', min = 3}", "unknown key 'min' for type drop"),
        ("columns.x = {type = 'category', values = ['a', '?'], missing = ['?']}", "declared as a value"),
        ("columns.x = {type = 'category', values = ['a'], missing = []}", "true or false, or a list of texts"),
        ("columns.x = {type = 'category', values = ['a'], missing = [1]}", "true or false, or a list of texts"),
        ("columns.x = {type = 'integer', min = 0, max = 9, missing = ['-1']}", "starts with a digit"),
        ("columns.x = {type = 'boolean', missing = ['?']}", "true or false"),
        ("columns.x = {type = 'drop'}\nperson = {column = 'x'}", 'must have type = "id"'),
        (
            "label = 'x'\ncolumns.x = {type = 'category', values = ['a', 'b'], missing = ['?']}",
            "cannot be missing",
        ),
    ],
)
def test_what_is_not_left_out_or_missing_is_refused(declared: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_schema(f"{declared}\ncolumns.y = {{type = 'boolean'}}")
