"""Rules between columns and conditions: every synthetic row obeys, and what cannot be is refused."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from repsynth import Autoregressive, Release, parse_schema, synthesize
from repsynth.cli.main import main
from repsynth.errors import ConfigError, RepsynthWarning, SchemaError
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.sampling.constraints import Drawn, Support, fit_support
from repsynth.sampling.derived import with_following
from repsynth.schema import Boolean, Integer, RowRule, Schema, schema_from_dict, schema_to_dict
from repsynth.schema.conditions import parse_condition

EACH_MODEL = [
    pytest.param(model, marks=pytest.mark.train) if model == "autoregressive" else model for model in MODELS
]

SCHEMA = """
one_row_per_person = true
label = "smoker"
columns.age = {type = "integer", min = 0, max = 99}
columns.marital = {type = "category", values = ["single", "married", "widowed"]}
columns.start = {type = "datetime", min = 2020-01-01, max = 2020-12-31}
columns.end = {type = "datetime", min = 2020-01-01, max = 2020-12-31}
columns.rent = {type = "integer", min = 0, max = 50}
columns.heating = {type = "number", min = 0.0, max = 9.9, decimals = 1}
columns.total = {type = "number", min = 0.0, max = 60.0, decimals = 1}
columns.place = {type = "category", values = ["a", "b"], missing = true}
columns.density = {type = "number", min = 0.0, max = 10.0}
columns.smoker = {type = "boolean"}
"""
RULES = """
[[rules]]
require = "end >= start"
[[rules]]
when = "age < 15"
require = 'marital = "single"'
[[rules]]
forbid = 'age < 20 and marital = "widowed"'
[[rules]]
column = "total"
equals = "rent + heating"
[[rules]]
column = "density"
by = "place"
values = {a = 0.5, b = 7.25}
"""


def table(rows: int = 400) -> pa.Table:
    rng = np.random.default_rng(1)
    day = np.datetime64("2020-01-01")
    rent, heating = rng.integers(0, 51, rows), rng.integers(0, 100, rows) / 10
    return pa.table(
        {
            "age": rng.integers(0, 100, rows),
            "marital": rng.choice(["single", "married", "widowed"], rows),
            "start": day + rng.integers(0, 365, rows).astype("timedelta64[D]"),
            "end": day + rng.integers(0, 365, rows).astype("timedelta64[D]"),
            "rent": rent,
            "heating": heating,
            "total": rent + heating,
            "place": rng.choice(["a", "b"], rows),
            "density": rng.random(rows),
            "smoker": rng.random(rows) < 0.5,
        }
    )


def obeys(row: dict[str, Any]) -> bool:
    """The same rules in Python, on the row as it is written."""
    density = {"a": 0.5, "b": 7.25, None: None}[row["place"]]
    return (
        row["end"] >= row["start"]
        and (row["age"] >= 15 or row["marital"] == "single")
        and not (row["age"] < 20 and row["marital"] == "widowed")
        and round(row["rent"] + row["heating"] - row["total"], 9) == 0
        and (row["density"] is None if density is None else abs(row["density"] - density) < 1e-9)
    )


class Even:
    """Every value as often as any other, columns independent."""

    crossed = ()

    def __init__(self, **sizes: int) -> None:
        self.sizes = sizes

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        return Records(rows, {name: generator.integers(0, size, rows) for name, size in self.sizes.items()})


TWO = Schema(one_row_per_person=True, columns=(Integer(name="a", min=0, max=999), Boolean(name="b")))


class _Rare(Even):
    """Nearly all records have b, and the same a."""

    def __init__(self) -> None:
        super().__init__(a=1000, b=2)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        a = np.where(generator.random(rows) < 1e-4, generator.integers(10, 21, rows), 500)
        return Records(rows, {"a": a, "b": (generator.random(rows) < 0.9).astype(np.int64)})


@pytest.mark.parametrize("model", EACH_MODEL)
def test_every_synthetic_row_obeys_every_rule(model: str, tmp_path: Any) -> None:
    schema = parse_schema(SCHEMA + RULES)
    made: Any = Autoregressive(epochs=1.0) if model == "autoregressive" else model
    release = synthesize(table(), schema, epsilon=3.0, delta=1e-6, model=made)
    assert "total" not in [column.name for column in release.schema.learned]
    release.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    assert loaded.schema == schema
    drawn = Drawn()
    (piece,) = loaded.pieces(500, seed=1, drawn=drawn)
    made = piece()
    assert made.column_names == table(1).column_names
    assert all(map(obeys, made.to_pylist()))
    assert drawn.kept >= 500
    assert 0 < loaded.support().broken < 0.9
    young = loaded.sample(50, seed=2, where='age < 15 and place = "b"').to_pylist()
    assert len(young) == 50
    assert all(obeys(row) and row["age"] < 15 and row["density"] == 7.25 for row in young)


HOMES = """
one_row_per_person = true
label = "owner"
columns.age = {type = "integer", min = 0, max = 59}
columns.pay = {type = "integer", min = 0, max = 5000, special = ["none"]}
columns.owner = {type = "boolean"}
""" + "".join(
    f'columns.{name} = {{type = "category", values = ["none", "a", "b"]}}\n'
    for name in ("marital", "work", "union", "rank")
)
HOMES += "".join(
    f"[[rules]]\nwhen = 'age < 15'\nrequire = '{name} in [\"none\"]'\n"
    for name in ("pay", "marital", "work", "union", "rank")
)


def homes(rows: int = 3000) -> pa.Table:
    rng = np.random.default_rng(4)
    age = rng.integers(0, 60, rows)
    cells = {name: np.where(age < 15, "none", rng.choice(["a", "b"], rows)) for name in ("marital", "work")}
    cells |= {name: np.where(age < 40, "none", rng.choice(["a", "b"], rows)) for name in ("union", "rank")}
    pay = np.where(age < 15, "none", rng.integers(500, 5000, rows).astype(str))
    return pa.table({"age": age, "pay": pay, "owner": rng.random(rows) < 0.3, **cells})


@cache
def homes_release(model: str) -> Release:
    extra = {"epochs": 2.0} if model == "autoregressive" else {}
    plan = make_plan(parse_schema(HOMES), Settings.of(epsilon=1.0, delta=1e-6, model=model, **extra))
    return run(plan, open_source(homes()), noise_seed=1)


@pytest.mark.parametrize("model", EACH_MODEL)
def test_rules_do_not_distort_the_margins(model: str) -> None:
    release = homes_release(model)
    made = release.sample(3000, seed=1)
    young = np.array(made["age"]) < 15
    assert young.mean() == pytest.approx((np.array(homes()["age"]) < 15).mean(), abs=0.025)
    for name in ("marital", "work", "pay", "union", "rank"):
        assert np.all(np.array(made[name])[young] == "none")
    support = release.support()
    assert 0.1 < support.effective_size <= 1  # type: ignore[operator]
    assert not support.cautions(3000)
    for owner in (True, False):
        row = release.sample(200, seed=2, label=owner, where="age < 15").to_pylist()
        assert all(r["owner"] == owner and r["age"] < 15 and r["marital"] == "none" for r in row)


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_rows_are_completed_by_the_rules(model: str) -> None:
    release, rng = homes_release(model), np.random.default_rng(1)
    given = pa.table({"owner": rng.random(2000) < 0.3})
    young = np.array(release.sample(given=given, seed=1)["age"]) < 15
    assert young.mean() == pytest.approx(0.25, abs=0.05)
    children = release.sample(
        given=pa.table({"age": [3, 7, 14]}), seed=1
    )  # naive Bayes rarely draws one that obeys
    assert children["marital"].to_pylist() == children["pay"].to_pylist() == ["none"] * 3


def test_margins_that_no_rule_contradicts_are_kept() -> None:
    schema = replace(TWO, rules=(RowRule(when="a < 300", require="b = true"),))
    support = fit_support(Even(a=1000, b=2), schema, 20_000)
    codes = support.draw(20_000, np.random.default_rng(1), Drawn()).codes
    assert not np.any((codes["a"] < 300) & (codes["b"] == 0))
    assert (codes["a"] < 300).mean() == pytest.approx(0.3, abs=0.005)  # by rejection, 0.176
    assert codes["b"].mean() == pytest.approx(0.5, abs=0.005)
    assert support.broken == pytest.approx(0.15, abs=0.01)
    assert support.effective_size == pytest.approx(0.85, abs=0.15)
    assert len(np.unique(np.stack(list(codes.values())), axis=1).T) > 1500  # of 1,700 that can be


def test_rules_that_leave_too_few_records_are_named() -> None:
    rules = (
        RowRule(require="a >= 10"),
        RowRule(forbid="a > 20 and b = true"),
        RowRule(forbid="a > 20 and b = false"),
    )
    schema = replace(TWO, rules=rules)
    rare = fit_support(_Rare(), schema, 20_000)
    (told,) = rare.cautions(20_000)
    assert "rule 2 (forbid a > 20 and b = true) is broken most often" in told
    assert not rare.cautions(1)
    assert not fit_support(_Rare(), schema, 20_000, ignore=[2, 3]).cautions(20_000)
    with pytest.raises(ConfigError, match=r"obeys the rules; rule 1 \(require a < 10\) is broken most often"):
        fit_support(_Rare(), replace(TWO, rules=(RowRule(require="a < 10"),)), 100)
    with pytest.raises(ConfigError, match="no rule 4 to ignore; the schema has 3"):
        fit_support(_Rare(), schema, 100, ignore=[4])


def test_the_command_says_what_the_rules_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = homes_release("naive-bayes")
    asked = ["sample", str(release.save(tmp_path / "release")), "-n", "50", "--json", "-o"]
    assert main([*asked, str(tmp_path / "1.csv")]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pool_effective_size"] == pytest.approx(release.support().effective_size)
    assert told["warnings"] == []
    assert main([*asked, str(tmp_path / "2.csv"), *(f"--ignore-rule={k}" for k in range(1, 6))]) == 0
    assert "pool_effective_size" not in json.loads(capsys.readouterr().out)
    few = replace(release.support(), effective=7.0)
    monkeypatch.setitem(release._supports, frozenset(), few)
    with pytest.warns(RepsynthWarning, match="pool is 7 for 50 rows"):
        release.sample(50, seed=1)


def test_a_rule_can_be_ignored() -> None:
    release = homes_release("mst")
    made = release.sample(3000, seed=1, ignore_rules=[1, 2, 3]).to_pylist()
    assert any(row["age"] < 15 and row["marital"] != "none" for row in made)
    derived = parse_schema(SCHEMA + RULES)
    with pytest.raises(ConfigError, match="rule 4 derives a column"):
        fit_support(Even(), derived, 100, ignore=[4])


def test_columns_that_follow_are_not_read_at_all() -> None:
    schema = parse_schema(SCHEMA + RULES)
    one = table().set_column(6, "total", [pa.nulls(400, pa.float64())])
    release = synthesize(one, schema, epsilon=3.0, delta=1e-6, model="naive-bayes")
    assert all(map(obeys, release.sample(100, seed=1).to_pylist()))


def test_conditions_are_drawn_from_exactly() -> None:
    plain, drawn = Support(Even(a=1000, b=2), TWO, ()), Drawn()
    where = parse_condition("a < 100 and b = true", TWO)
    records = plain.draw(20_000, np.random.default_rng(1), drawn, where=where)
    assert records.rows == 20_000
    assert records.codes["a"].max() == 99
    assert records.codes["b"].min() == 1
    counts = np.bincount(records.codes["a"], minlength=100)
    assert np.all(np.abs(counts - 200) < 8 * np.sqrt(200))
    assert drawn.again == pytest.approx(0.95, abs=0.01)


def test_a_condition_that_next_to_nothing_fulfils_is_refused() -> None:
    plain, where = Support(Even(a=1000, b=2), TWO, ()), parse_condition("a < 0", TWO)
    with pytest.raises(ConfigError, match="0 obey the rules of the schema and the condition"):
        plain.draw(10, np.random.default_rng(1), Drawn(), where=where)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_sums_stay_within_the_bounds_of_all_columns_that_follow(order: tuple[int, int]) -> None:
    rules = ['[[rules]]\ncolumn = "c"\nequals = "a + b"\n', '[[rules]]\ncolumn = "d"\nequals = "a - b"\n']
    columns = "".join(f'columns.{name} = {{type = "integer", min = 0, max = 9}}\n' for name in "abcd")
    schema = parse_schema("one_row_per_person = true\n" + columns + "".join(rules[k] for k in order))
    a, b = np.arange(100) // 10, np.arange(100) % 10
    _, able = with_following(Records(100, {"a": a, "b": b}), schema)
    assert np.array_equal(able, (a + b <= 9) & (a >= b))

    made = fit_support(Even(a=10, b=10), schema, 500).draw(500, np.random.default_rng(1), Drawn()).codes
    assert np.array_equal(made["c"], made["a"] + made["b"])
    assert np.array_equal(made["d"], made["a"] - made["b"])


def test_rules_of_a_stranger_neither_crash_nor_hang() -> None:
    assert parse_schema(f'{SCHEMA}\n[[rules]]\nrequire = "{"-" * 9000}age > -1"\n').rules
    long = "".join(f'[[rules]]\nrequire = "age < {"9" * 900}"\n' for _ in range(200))
    with pytest.raises(SchemaError, match="more than 100,000 characters"):
        parse_schema(SCHEMA + long)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows_are_drawn_too(rows: int) -> None:
    plain, where = Support(Even(a=1000, b=2), TWO, ()), parse_condition("a < 500", TWO)
    assert plain.draw(rows, np.random.default_rng(1), Drawn(), where=where).rows == rows
    ruled = fit_support(Even(a=1000, b=2), replace(TWO, rules=(RowRule(require="a < 500"),)), 10)
    assert ruled.draw(rows, np.random.default_rng(1), Drawn()).rows == rows


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ('require = "nobody > 3"', "no column 'nobody'"),
        ('require = "age > 200"', "no value of 'age' obeys"),
        ('require = "age < 10"\n[[rules]]\nrequire = "age > 10"', "no value of 'age' obeys"),
        ('require = "age < 10"\n[[rules]]\nrequire = "age = 10"', "no value of 'age' obeys"),
        ('forbid = \'marital in ["single", "married", "widowed"]\'', "no value of 'marital' obeys"),
        ("require = 'marital = \"other\"'", "is not a value of 'marital'"),
        ('column = "smoker"\nequals = "age + rent"', "label cannot be derived"),
        ('column = "nobody"\nequals = "age"', "no learned column 'nobody'"),
        ('column = "total"\nequals = "rent + marital"', "cannot be added up"),
        ('column = "total"\nequals = "total + rent"', "sum of other columns"),
        ('column = "density"\nby = "age"\nvalues = {a = 1.0}', "must be a category"),
        ('column = "density"\nby = "place"\nvalues = {a = 1.0}', "one entry for each value"),
        ('column = "density"\nby = "place"\nvalues = {a = 1.0, b = 99.0}', "outside of its bounds"),
        ('column = "marital"\nby = "place"\nvalues = {a = "single", b = "gone"}', "not one of its values"),
        ('column = "total"\nequals = "rent"\n[[rules]]\ncolumn = "total"\nequals = "age"', "two rules derive"),
        ('column = "total"\nequals = "rent"\n[[rules]]\nrequire = "total > 3"', "itself derived"),
        ('when = "age < 3"', "a rule has one of"),
        ("require = 3", "must be text"),
        ("require = 'age < 3'\nmore = 1", "a rule has one of"),
    ],
)
def test_rules_that_mean_nothing_or_contradict_are_refused_when_the_schema_is_read(rule: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(f"{SCHEMA}\n[[rules]]\n{rule}\n")


def test_rules_come_back_from_a_file() -> None:
    schema = parse_schema(SCHEMA + RULES)
    assert schema_from_dict(schema_to_dict(schema)) == schema
    assert len(schema.rules) == 5


def test_a_forbidden_comparison_that_leaves_no_number_is_refused() -> None:
    columns = 'one_row_per_person = true\n[columns.age]\ntype = "integer"\nmin = 0\nmax = 99\n{}'
    columns += '[columns.b]\ntype = "boolean"\n[[rules]]\nforbid = "age >= 0"\n'
    with pytest.raises(SchemaError, match="no value of 'age' obeys all rules"):
        parse_schema(columns.format(""))
    assert parse_schema(columns.format("missing = true\n")).rules
    assert parse_schema(columns.format('special = ["N"]\n')).rules
