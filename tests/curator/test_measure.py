"""A measured schema: what it finds, costs and refuses, and that nothing but measurements shows in it."""

import io
import json
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from checks import refused, rewritten

from repsynth import Ledger, Release, Settings, measure_schema, plan, synthesize
from repsynth.arrays import Ints
from repsynth.cli import main
from repsynth.curator import private_schema as module
from repsynth.curator.guarantee import ETA_SHARE, eta_share, guaranteed_weights, why_none
from repsynth.curator.private_schema import DraftPlan, FrequentValues, KindHistograms, MeasuredDraft
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError, DataError, LedgerError, RepsynthWarning, SchemaError
from repsynth.io.encode import EncodedTable
from repsynth.io.reading import ReadOptions
from repsynth.io.sources import open_source
from repsynth.mechanism.meter import Meter, RawTable, Selection
from repsynth.mechanism.noise import seeded_entropy
from repsynth.planning.figures import plan_data
from repsynth.privacy.adaptive_filter import FAILURE_PART
from repsynth.privacy.budget import Budget
from repsynth.privacy.loss import Loss
from repsynth.release.account import release_data
from repsynth.schema import Boolean, Category, Datetime, Id, Integer, Measured, Number, parse_schema
from repsynth.scoring.weights import FULL

ROWS = 20_000


@cache
def people(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(3)
    texts = np.where(rng.random(rows) < 0.1, "N", rng.integers(0, 5000, rows).astype(str))
    return pa.table(
        {
            "patient_id": np.arange(rows) + 10**6,
            "age": rng.integers(18, 90, rows),
            "region": rng.choice(["north", "south", "east"], rows, p=[0.6, 0.3, 0.1]),
            "note": [f"free text {i}" for i in range(rows)],
            "income": texts,
            "weight": rng.normal(70, 10, rows).round(1),
            "born": (np.datetime64("1950-01-01") + rng.integers(0, 20_000, rows).astype("timedelta64[D]")).astype(
                str
            ),
            "member": np.where(rng.random(rows) < 0.3, "true", "false"),
            "smoker": rng.choice(["yes", "no"], rows),
            "empty": pa.nulls(rows, pa.string()),
        }
    )


def draft(table: Any = None, *, seed: int = 1, **options: Any) -> MeasuredDraft:
    options = {"epsilon": 1.0, "delta": 1e-9, "one_row_per_person": True, "label": "smoker"} | options
    source = people() if table is None else table
    return module.measure_schema(source, entropy=seeded_entropy(seed), **options)


@cache
def drafted() -> str:
    """The text of one draft, for tests that need a measured schema."""
    return draft(epsilon=0.5).text


def test_types_bounds_and_values_are_found() -> None:
    schema = parse_schema(draft().text)
    columns = {column.name: column for column in schema.columns}
    assert schema.confirmed
    assert schema.label == "smoker"
    assert isinstance(columns["patient_id"], Id)
    assert "note" in schema.dropped
    assert "empty" in schema.dropped or columns["empty"].missing
    assert columns["age"] == Integer(name="age", min=10, max=99)
    assert isinstance(columns["region"], Category)
    assert set(columns["region"].values) == {"north", "south", "east"}
    income, weight = columns["income"], columns["weight"]
    assert isinstance(income, Integer)
    assert (income.special, income.max) == (("N",), 4999)
    assert isinstance(weight, Number)
    assert weight.min <= 50 < 90 <= weight.max
    born = columns["born"]
    assert isinstance(born, Datetime)
    assert (born.min.isoformat(), born.max.isoformat()) == ("1950-01-01", "2009-12-31")
    assert isinstance(columns["member"], Boolean)
    assert columns["smoker"] == Category(name="smoker", values=("no", "yes"))


def test_a_value_of_few_records_is_not_in_it() -> None:
    table = people()
    rare = ["somebody"] * 5 + table["region"].to_pylist()[5:]
    found = draft(table.set_column(2, "region", [rare]))
    assert "somebody" not in found.text
    assert found.fewest > 5


def test_it_costs_what_was_asked_and_no_more() -> None:
    made = DraftPlan(Budget.approximate(epsilon=0.2, delta=1e-10), tuple("abcdefgh"), "a")
    assert made.loss.epsilon(1e-10) <= 0.2
    assert made.loss.epsilon(1e-10) > 0.1999
    for columns in (1, 3, 8):
        event = made.selection(columns)
        assert event.mu <= made.charges["values"] * (1 + 1e-12)
        assert event.failure <= made.failure
        assert type(event)(event.name, columns, event.sigma, event.threshold - 1).failure > made.failure
    assert math.hypot(*made.charges.values()) <= made.mu


class Watched(Meter):
    """Notes what was measured, and what it cost."""

    made: "list[Watched]" = []  # noqa: RUF012

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.made.append(self)


def test_what_happens_is_within_the_cost_that_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    Watched.made.clear()
    monkeypatch.setattr(module, "Meter", Watched)
    found = draft(epsilon=0.5)
    (meter,) = Watched.made
    spent = Loss.of([*meter.events, *meter.selections])
    assert [event.name for event in (*meter.events, *meter.selections)] == ["kinds", "values"]
    assert spent.floor_mu <= found.mu
    assert 0 < spent.failure <= found.failure
    assert spent.epsilon(1e-9) <= found.epsilon <= 0.5


RAW = {
    "codes": ["02139", "02140", "02141"],
    "amount": ["1.50", "2.00", "3"],
    "gaps": ["1", "NA", "nan", "3"],
    "odd": ["0x10", "0x1f", "7"],
    "endless": ["Infinity", "-inf", "5"],
    "signed": ["+inf", "+Infinity", "-Infinity", "5"],
}


@pytest.mark.parametrize("name", RAW)
@pytest.mark.parametrize("asked_as_text", [True, False])
def test_a_type_that_a_reader_inferred_changes_no_count(name: str, asked_as_text: bool) -> None:
    """One word makes text of a whole column; every other cell must count as before, whatever was released."""
    typed, texts = (
        pacsv.read_csv(io.BytesIO("\n".join([name, *cells]).encode()))
        for cells in (RAW[name], [*RAW[name], "word"])
    )
    assert not pa.types.is_string(typed.schema.types[0])
    (one,), (other,) = (table.to_batches() for table in (typed, texts))
    assert (KindHistograms((name,)).total(other) - KindHistograms((name,)).total(one)).sum() == 1
    values = FrequentValues((name,), frozenset() if asked_as_text else frozenset([name]))
    found = [values.texts(name, batch.column(name)).to_pylist() for batch in (one, other)]
    assert found[0] == found[1][:-1]


@pytest.mark.parametrize(
    "cells",
    [pa.array([1], pa.duration("s")), pa.array([True]), pa.array([1], pa.timestamp("s"))],
    ids=["durations", "booleans", "times"],
)
def test_storage_that_may_not_read_as_text_is_refused_before_anything_is_spent(cells: pa.Array) -> None:
    with pytest.raises(DataError, match=r"stored as .*; pass the file.* Nothing was spent"):
        draft(pa.table({"a": cells}), label=None)


def without_mark(text: str) -> str:
    """A schema but for the random name of its cost."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("mark = "))


class Replayed(Meter):
    """Gives what was released before, whatever the table, and notes what is asked of it."""

    asked: list[Any] = []  # noqa: RUF012
    kinds: Ints
    values: dict[str, dict[str, int]]

    def measure(self, statistic: Any, *, mu: float) -> Ints:
        self.asked.append((statistic, mu))
        return self.kinds

    def select(self, selection: Selection, *, mu: float, threshold: int) -> dict[str, dict[str, int]]:
        self.asked.append((selection, mu, threshold))
        return self.values


def test_with_what_was_released_frozen_nothing_else_of_the_table_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, Watched.made[:] = people(), []
    monkeypatch.setattr(module, "Meter", Watched)
    measured: list[Any] = []
    monkeypatch.setattr(
        Watched, "measure", lambda *a, **k: measured.append(Meter.measure(*a, **k)) or measured[-1]
    )
    monkeypatch.setattr(Watched, "select", lambda *a, **k: measured.append(Meter.select(*a, **k)) or measured[-1])
    first = draft(whole)
    Replayed.kinds, Replayed.values = measured
    monkeypatch.setattr(module, "Meter", Replayed)
    odd = whole.slice(1).set_column(3, "note", [[None] * (ROWS - 1)])
    Replayed.asked.clear()
    texts = [draft(table).text for table in (whole, whole.slice(1), odd, whole.slice(0, 0))]
    assert {without_mark(text) for text in texts} == {without_mark(first.text)}
    assert len(Replayed.asked) == 8
    assert all(Replayed.asked[i] == Replayed.asked[i % 2] for i in range(8))


def test_the_meter_refuses_a_selection_beyond_its_budget() -> None:
    """Beyond the mu, and beyond the probability that a value is shown which only one record holds."""
    ages, regions = KindHistograms(("age",)), FrequentValues(("region",), frozenset())
    meter = Meter(RawTable(open_source(people(10))), mu=0.1, failure=1e-12)
    with pytest.raises(ConfigError, match="does not cover"):
        meter.measure(ages, mu=0.101)
    with pytest.raises(ConfigError, match="does not cover"):
        meter.select(regions, mu=0.05, threshold=100)
    assert meter.events == meter.selections == []
    assert meter.select(regions, mu=0.05, threshold=200)
    with pytest.raises(ConfigError, match="does not cover"):
        meter.select(regions, mu=0.05, threshold=130)
    with pytest.raises(ConfigError, match="does not cover"):
        meter.measure(ages, mu=0.09)
    assert (len(meter.events), len(meter.selections)) == (0, 1)
    with pytest.raises(ConfigError, match="only a table without a schema"):
        Meter(LocalEngine([]), mu=1.0, failure=1e-3).select(regions, mu=0.05, threshold=200)


@pytest.mark.parametrize("rows", [0, 1, 50])
def test_small_tables_give_a_schema_or_say_that_nothing_was_found(rows: int) -> None:
    found = draft(people(rows), label=None)
    assert found.warnings or parse_schema(found.text).learned
    assert draft(people(rows)).columns


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({"names": ["12", *"bcdefghij"]}, {"label": None}, "is the first line a header"),
        ({"names": ["a", "a", *"cdefghij"]}, {"label": None}, "more than once"),
        ({}, {"label": "smokes"}, "no column 'smokes'"),
        ({}, {"ids": ["nobody"]}, "no column 'nobody'"),
        ({}, {"ids": ["smoker"]}, "cannot be an id"),
        ({}, {"ids": people(1).column_names, "label": None}, "no column to measure"),
        ({}, {"epsilon": 0.01, "rows": 9000}, "next to nothing would be found"),
        ({}, {"epsilon": -1.0}, "epsilon is -1"),
        ({}, {"delta": 2.0}, "delta is 2"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_spent(
    change: dict[str, Any], options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    from repsynth.run.payment import open_payer

    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-9))
    table = people(100)
    table = table.rename_columns(change["names"]) if change else table
    with pytest.raises((ConfigError, DataError), match=words):
        draft(table, payer=open_payer(ledger, None), **options)
    assert ledger.balance("data").spendings == ()


def test_nested_columns_are_refused() -> None:
    with pytest.raises(DataError, match="nested"):
        draft(pa.table({"a": [[1], [2]]}), label=None)


@pytest.mark.filterwarnings("ignore:the run and the measured schema")
def test_the_ledger_pays_before_the_table_is_read_and_for_what_went_wrong(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-9))
    found = measure_schema(people(), epsilon=0.2, one_row_per_person=True, label="smoker", ledger=ledger)
    (spent,) = ledger.balance("data").spendings
    assert spent.finished
    assert spent.loss.failure == pytest.approx(found.failure)
    assert spent.loss.epsilon(1e-10) == pytest.approx(found.epsilon, rel=1e-6)
    broken = tmp_path / "broken.parquet"
    pq.write_table(people(5000), broken, row_group_size=1000)
    whole = broken.read_bytes()
    broken.write_bytes(whole[:2000] + os.urandom(2000) + whole[4000:])
    with pytest.raises(DataError, match="check that the file is whole"):
        measure_schema(broken, epsilon=0.2, one_row_per_person=True, ledger=ledger)
    assert [each.finished for each in ledger.balance("data").spendings] == [True, False]
    release = synthesize(people(), parse_schema(found.text), epsilon=1.0, delta=1e-9, ledger=ledger)
    assert release.publishable
    balance = ledger.balance("data")
    assert 1.0 < balance.spent_epsilon < 1.3
    with pytest.raises(LedgerError, match="left of"):
        measure_schema(people(), epsilon=2.0, delta=1e-9, one_row_per_person=True, ledger=ledger)


@pytest.mark.filterwarnings("ignore:the run and the measured schema")
def test_a_release_counts_what_its_schema_has_cost(tmp_path: Path) -> None:
    schema = parse_schema(drafted())
    assert schema.measured is not None
    release = synthesize(people(), schema, epsilon=1.0, delta=1e-9, model="naive-bayes")
    privacy = release.privacy
    assert privacy.run_loss.epsilon(1e-9) == pytest.approx(1.0, rel=1e-4)
    together = math.hypot(schema.measured.mu, privacy.run_loss.mu or 0.0)
    rest = 1e-9 * (1 - FAILURE_PART) - schema.measured.failure  # the run may have been chosen by the schema
    assert privacy.epsilon == pytest.approx(Loss(together, 0.0).epsilon(rest), rel=1e-9)
    assert privacy.epsilon > 1.1
    assert privacy.mu is None
    assert privacy.outlier_epsilon > float(privacy.run_loss.epsilon_at(privacy.outlier_weight, 1e-9))
    assert all(math.isfinite(epsilon) for epsilon in privacy.epsilon_by_delta().values())
    release.save(tmp_path / "release")
    loaded = Release.load(tmp_path / "release")
    assert loaded.schema == schema
    assert loaded.privacy.epsilon == privacy.epsilon
    data = release_data(loaded)
    assert data["schema_measured"]["mu"] == schema.measured.mu
    assert data["epsilon"] == privacy.epsilon > data["schema_measured"]["run_epsilon"]


def test_nothing_is_guaranteed_before_a_run_with_a_measured_schema() -> None:
    """Its noise decides bounds, cells and weights, also with scores of an earlier release."""
    schema = parse_schema(drafted())
    asked: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-9, "model": "naive-bayes"}
    with pytest.warns(RepsynthWarning, match="together cost"):
        first = synthesize(people(), schema, public_rows=3000, **asked)
    with pytest.warns(RepsynthWarning, match="together cost"):
        second = synthesize(people(), schema, scores_from=first, **asked)
    records = list(EncodedTable(open_source(people()), schema))
    for release in (first, second):
        assert "measured" in (why_none(release) or "")
        assert eta_share(release) == ETA_SHARE
        assert guaranteed_weights(release, records, eta=1e-10).min() == 1.0


def test_a_ceiling_must_keep_the_outlier_epsilon_with_the_cost_of_the_schema(tmp_path: Path) -> None:
    """A ceiling that keeps it for the run alone is too high."""
    asked = Settings.of(epsilon=1.0, delta=1e-9, model="naive-bayes", outlier_epsilon=0.9)
    with pytest.warns(RepsynthWarning, match="together cost"):
        release = synthesize(people(), parse_schema(drafted()), settings=asked)
    plan = json.loads((release.save(tmp_path / "whole") / "release.json").read_text())["plan"]
    ceiling = 0.5 * (plan["ceiling"] + 1)
    assert float(Loss.of(release.events).epsilon_at(ceiling, 1e-9)) < 0.9
    plan |= {"ceiling": ceiling, "rule": {"name": "targeted", "outlier_weight": ceiling}}
    folder = rewritten(release, tmp_path / "forged", {"weights": np.array([int(ceiling * FULL)])}, plan=plan)
    refused(folder, "does not keep the requested outlier epsilon")


def test_a_plan_says_what_is_lost_in_all_and_refuses_a_delta_that_the_schema_takes() -> None:
    schema = parse_schema(drafted())
    assert any("together cost" in text for text in plan(schema, epsilon=1.0, delta=1e-9).warnings)
    with pytest.raises(ConfigError, match="leaves too little"):
        plan(schema, epsilon=1.0, delta=1e-12)
    with pytest.warns(RepsynthWarning, match="together cost"):
        synthesize(people(), schema, epsilon=1.0, delta=1e-9, model="naive-bayes")


@pytest.mark.parametrize(
    "text",
    [
        *("mu = -1.0", "mu = true", 'mu = "nan"', "mu = 0", "mu = 0.0", "mu = -0.0", "mu = nan", "mu = inf"),
        *("failure = 1.0", 'mark = "x"', 'columns = ["nobody"]', "columns = 3", "more = 1"),
    ],
)
def test_a_cost_that_was_tampered_with_is_refused(text: str) -> None:
    head, _, tail = drafted().partition("[measured]\n")
    lines = [line for line in tail.splitlines() if not line.startswith(text.split(" = ")[0])] + [text]
    with pytest.raises(SchemaError, match="measured"):
        parse_schema(head + "[measured]\n" + "\n".join(lines) + "\n")


COST = (
    "one_row_per_person = true\n"
    '[columns.a]\ntype = "boolean"\n[measured]\nmu = {}\nfailure = {}\nmark = "{:032x}"\ncolumns = ["a"]\n'
)


@pytest.mark.parametrize("failure", ["6e-10", "1e-9", "1.5e-9"])
def test_a_delta_of_which_the_schema_takes_more_than_half_is_refused(failure: str) -> None:
    able = plan(parse_schema(COST.format("0.1", "4e-10", 7)), epsilon=1.0, delta=1e-9)
    assert math.isfinite(able.whole_loss.epsilon(1e-9))
    with pytest.raises(ConfigError, match="leaves too little"):
        plan(parse_schema(COST.format("0.1", failure, 7)), epsilon=1.0, delta=1e-9)


def test_a_training_needs_a_delta_that_can_be_accounted_for() -> None:
    schema = parse_schema(COST.format("0.01", "1e-14", 7))
    with pytest.raises(ConfigError, match="leaves too little"):
        plan(schema, epsilon=1.0, delta=1.5e-11, model="autoregressive")


@pytest.mark.parametrize("epsilon", [0.1, 0.3, 0.7, 3.0])
def test_the_schema_carries_its_cost_to_the_last_digit(epsilon: float) -> None:
    made = measure_schema(pa.table({"a": ["x", "y"] * 9000}), epsilon=epsilon, delta=1e-9, one_row_per_person=True)
    measured = parse_schema(made.text).measured
    assert measured is not None
    assert (measured.mu, measured.failure) == (made.mu, made.failure)


def test_the_order_of_the_rows_does_not_show_in_the_values() -> None:
    cells = ["b"] * 500 + ["c"] * 500 + ["a"] * 500
    for rows in (cells, cells[::-1]):
        meter = Meter(RawTable(open_source(pa.table({"x": rows}))), mu=1.0, failure=1e-3)
        found = meter.select(FrequentValues(("x",), frozenset()), mu=0.5, threshold=50)
        assert list(found["x"]) == ["a", "b", "c"]


def test_a_frequent_value_that_is_no_text_is_left_out_and_stops_nothing() -> None:
    found = draft(pa.table({"a": [b"\xed\xa0\x80"] * 5000 + [b"fine"] * 9000}), label=None)
    assert parse_schema(found.text)


def test_values_that_a_schema_cannot_tell_apart_are_one() -> None:
    blank = draft(pa.table({"a": ["\u00a0x", "x", "y"] * 5000}), label=None)
    (column,) = parse_schema(blank.text).columns
    assert column == Category(name="a", values=("x", "y"))
    numbers = ["1e20", "100000000000000000000", *map(str, range(40))] * 2000
    (column,) = parse_schema(draft(pa.table({"a": numbers}), label=None).text).columns
    assert isinstance(column, Integer)
    assert len(column.special) == 1


def test_failures_of_drafts_add_up_until_their_part_of_delta_is_spent(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-9))
    part = 1e-9 * FAILURE_PART
    measured = [Measured(mu=0.01, failure=0.49 * part, mark=f"{k:032x}", columns=()) for k in range(3)]
    for each in measured[:2]:
        ledger.reserve("data", {}, what="a draft", measured=each)
    assert ledger.balance("data").spent_bound.failure >= 0.98 * part
    with pytest.raises(LedgerError, match="reserves for failures"):
        ledger.reserve("data", {}, what="a draft", measured=measured[2])


@pytest.mark.filterwarnings("ignore:the run and the measured schema")
def test_a_ledger_that_did_not_pay_for_the_schema_pays_with_the_first_run_and_no_other(tmp_path: Path) -> None:
    schema = parse_schema(drafted())
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=1.0, delta=1e-6))
    with pytest.raises(LedgerError, match="left of"):
        synthesize(people(), schema, epsilon=0.99, delta=1e-6, ledger=ledger, model="naive-bayes")
    for _ in range(2):
        release = synthesize(people(), schema, epsilon=0.3, delta=1e-6, ledger=ledger, model="naive-bayes")
    first, second = ledger.balance("data").spendings
    assert schema.measured is not None
    assert first.loss.failure == pytest.approx(schema.measured.failure)
    assert second.loss.failure == 0
    assert ledger.balance("data").epsilon_alone(first) == pytest.approx(release.privacy.epsilon, rel=1e-3)
    assert second.loss.epsilon(1e-6) == pytest.approx(0.3, rel=1e-4)


def test_each_dataset_of_a_ledger_pays_for_a_measured_schema(tmp_path: Path) -> None:
    """The same people may be in both, and neither limit knows of the other."""
    ledger = Ledger.create(tmp_path / "ledger.db")
    measured = Measured(mu=0.05, failure=1e-12, mark="a" * 32, columns=())
    for name in ("one", "other"):
        ledger.init(name, Budget.approximate(epsilon=1.0, delta=1e-6))
        for _ in range(2):
            ledger.reserve(name, {"all": 0.01}, what="a run", measured=measured)
        first, second = ledger.balance(name).spendings
        assert first.loss.mu_at(1.0) == pytest.approx(math.hypot(0.01, 0.05))
        assert first.loss.failure >= 1e-12
        assert second.loss.mu == pytest.approx(0.01)


@pytest.mark.filterwarnings("ignore:the run and the measured schema")
def test_what_a_plan_says_of_records_and_outliers_counts_the_schema() -> None:
    schema = parse_schema(drafted())
    made = plan(schema, epsilon=1.0, delta=1e-6, outlier_epsilon=0.6, model="naive-bayes")
    assert float(made.whole_loss.epsilon_at(made.ceiling, 1e-6)) <= 0.6
    release = synthesize(people(), schema, epsilon=1.0, delta=1e-6, outlier_epsilon=0.6, model="naive-bayes")
    assert release.privacy.outlier_epsilon <= 0.6 * (1 + 1e-9)
    shown = plan_data(made, ROWS)
    assert shown["outlier_epsilon_at_most"] == pytest.approx(release.privacy.outlier_epsilon, rel=1e-3)
    assert shown["epsilon_by_weight"][1.0] == pytest.approx(release.privacy.epsilon, rel=1e-6)


# --- the command ---


def test_the_command_writes_a_schema_that_the_next_one_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(people(), "people.csv")
    asked = ["schema", "people.csv", "--private", "--one-row-per-person", "--epsilon", "0.5"]
    assert main([*asked, "--label", "smoker"]) == 0
    shown = capsys.readouterr().out
    assert "Spent ε = 0.5 at δ = 1e-10" in shown
    assert "What it cannot find: values in fewer than about" in shown
    assert "free text 1" not in shown
    assert main(["plan", "--schema", "schema.toml", "--epsilon", "1"]) == 0
    assert "the run and the measured schema together" in capsys.readouterr().out
    assert main([*asked, "--json", "-o", "again.toml", "--id", "note"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["confirmed"], data["publishable"], "text" in data) == (True, True, False)
    assert data["epsilon"] <= 0.5


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--private"], "say how much with --epsilon"),
        (["--epsilon", "1"], "add --private"),
        (["--private", "--one-row-per-person", "--epsilon", "1", "--label", "nobody"], "no column 'nobody'"),
        (["--private", "--one-row-per-person", "--epsilon", "1", "--ledger", "none.db"], "no such ledger"),
        (["--private", "--one-row-per-person", "--epsilon", "0.001", "--public-rows", "500"], "next to nothing"),
    ],
)
def test_the_command_refuses_in_one_line_and_leaves_nothing(
    flags: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(people(50), "people.csv")
    assert main(["schema", "people.csv", *flags]) != 0
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["people.csv"]


def test_a_decimal_comma_is_refused() -> None:
    with pytest.raises(ConfigError, match="decimal point only"):
        measure_schema(people(50), epsilon=1.0, one_row_per_person=True, read=ReadOptions(decimal=","))


def test_a_row_adds_one_to_every_column() -> None:
    odd = ["", "1,5", "1.5", "1,", ",", "1,5,5", "1.000,5", "-3,0e2", "2020-01-01", "x", None, "1e400", "1e-400"]
    for cell in odd:
        total = KindHistograms(("a", "b")).total(
            pa.record_batch({"a": [cell], "b": ["7"]}, schema=pa.schema({"a": pa.string(), "b": pa.string()}))
        )
        assert total.sum() == 2
        assert total.max() <= 1
