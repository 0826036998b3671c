"""Several rows per person: a run on a table and on the one without a person differ by no more than is charged."""

import dataclasses
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import Measured, record_run, records_of, refused, repeatable, replay_run, same_release
from conftest import options_of

import repsynth
from repsynth.attacks.audit import audit, threshold_learnt, training_ratios
from repsynth.attacks.statistics import Finding, bounds_of, claimed_mu
from repsynth.attacks.targets import made_up_table, targets_of
from repsynth.cli import main
from repsynth.curator.dossier import dossier
from repsynth.engine import column_store
from repsynth.engine.column_store import Codes
from repsynth.engine.local import LocalEngine, PersonHeld, PersonTable
from repsynth.errors import ConfigError, LedgerError, SchemaError
from repsynth.io.records import ALONE, UNITS, Records, Whose, join
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Count
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import seeded_entropy
from repsynth.models.registry import MODELS
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import Charge, ExponentialEvent, SampledEvent
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.loss import Loss
from repsynth.privacy.unit import COLLISION, neighbours_of, unit_of
from repsynth.release.release import Release
from repsynth.run.payment import Payer
from repsynth.run.run import run
from repsynth.schema import Person, Schema, parse_schema, schema_from_dict, schema_to_dict
from repsynth.scoring import pairwise

COLUMNS = """
label = "icu"
[columns.patient]
type = "id"
[columns.age]
type = "integer"
min = 18
max = 90
[columns.ward]
type = "category"
values = ["a", "b", "c"]
[columns.cost]
type = "number"
min = 0
max = 100000
[columns.icu]
type = "boolean"
"""
SINGLE_ROWS = f"one_row_per_person = true\n{COLUMNS}"


def schema_of(rows: int) -> Schema:
    return dataclasses.replace(
        parse_schema(SINGLE_ROWS), person=Person(column="patient", rows=rows), one_row_per_person=False
    )


def visits(persons: int = 120, seed: int = 0) -> pa.Table:
    """Persons with one row or many, in no order; some rows are nobody's."""
    generator = np.random.default_rng(seed)
    times = np.minimum(np.ceil(generator.pareto(1.0, persons) + 0.01), 40).astype(np.int64)
    who = np.repeat(np.arange(persons), times)
    rows = len(who)
    table = pa.table(
        {
            "patient": pa.array([None if i % 17 == 3 else f"p{w}" for i, w in enumerate(who)]),
            "age": generator.integers(18, 90, persons)[who],
            "ward": generator.choice(["a", "b", "c"], rows, p=[0.7, 0.25, 0.05]),
            "cost": np.round(generator.lognormal(6, 1.5, rows)),
            "icu": generator.random(rows) < 0.2,
        }
    )
    return table.take(pa.array(generator.permutation(rows)))


def plan_of(rows: int, **options: Any) -> Plan:
    return make_plan(schema_of(rows), Settings.of(**{"epsilon": 2.0, "delta": 1e-6, **options}))


def ids_of(table: pa.Table) -> list[str | None]:
    return table["patient"].to_pylist()


def most_rows(table: pa.Table) -> str:
    return Counter(who for who in ids_of(table) if who is not None).most_common(1)[0][0]


def counted(rows: int, most: int) -> float:
    """What each of so many rows counts: the rule of the schema, said once more."""
    return min(UNITS, UNITS * most // rows) / UNITS


def distance(one: Measured, two: Measured) -> float:
    """Between two exact sums, or the utilities of a choice, in units of a row."""
    if not isinstance(one.event, ExponentialEvent):
        return float(np.linalg.norm((one.exact - two.exact).astype(np.float64))) / UNITS
    utilities = one.statistic.utilities  # type: ignore[union-attr]
    chosen = [one.noisy[:k] for k in range(len(one.noisy) + 1)]
    both = ([utilities(exact, c, units=UNITS) for c in chosen] for exact in (one.exact, two.exact))
    return max(float(np.abs(a - b).max()) for a, b in zip(*both, strict=True)) / UNITS


# --- replay without one person ---


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
@pytest.mark.parametrize("rows", [1, 3])
def test_without_a_person_nothing_moves_by_more_than_is_charged(model: str, rows: int) -> None:
    table = visits()
    plan = plan_of(rows, **options_of(model))
    release, measured = record_run(plan, table)
    times = Counter(ids_of(table))
    once = next(who for who in times if who is not None and times[who] == 1)
    for who in (most_rows(table), once):
        mine = np.array([each == who for each in ids_of(table)])
        other, replayed = replay_run(plan, table.filter(pa.array(~mine)), [m.noisy for m in measured])
        own = records_of(table.filter(pa.array(mine)), plan.schema)
        influence = float(release.influence(own).sum()) * counted(own.rows, rows) / rows
        assert influence <= 1 + 1e-12
        assert [m.event for m in measured] == [m.event for m in replayed]
        for one, two in zip(measured, replayed, strict=True):
            if isinstance(one.event, ExponentialEvent):
                bound = float(one.statistic.unit * rows)  # type: ignore[union-attr]
            else:
                bound = one.statistic.sensitivity * rows  # type: ignore[union-attr]
                assert one.event.sensitivity == bound  # type: ignore[union-attr]
                assert one.event.mu * one.event.sigma >= bound
            part = influence if one.event.weighted else 1.0
            assert distance(one, two) <= part * bound * (1 + 1e-9), one.event.name
        assert same_release(release, other)


def test_a_person_with_rows_enough_reaches_the_bound() -> None:
    """So that no bound is larger than it must be: the count, of a person with 1, 2, 4 and 40 rows."""
    for times, whole in ((1, 1.0), (2, 2.0), (4, 2.0), (40, 40 * (UNITS * 2 // 40) / UNITS)):
        table = pa.table({"patient": ["x"] * times, "age": [30] * times, "ward": ["a"] * times})
        table = table.append_column("cost", pa.array([1.0] * times)).append_column("icu", pa.array([True] * times))
        engine = LocalEngine.open(open_source(table), schema_of(2))
        assert engine.sum(Count()).tolist() == [whole * UNITS]


def test_rows_of_nobody_are_persons_of_their_own() -> None:
    table = visits().set_column(0, "patient", pa.nulls(visits().num_rows, pa.string()))
    engine = LocalEngine.open(open_source(table), schema_of(1))
    assert engine.sum(Count()).tolist() == [table.num_rows * UNITS]


def test_sums_do_not_depend_on_how_a_table_is_cut() -> None:
    """Through the codes of a table, and batch by batch."""
    table, schema = visits(), schema_of(2)
    whole = LocalEngine.open(open_source(table), schema)
    batches = list(PersonTable(open_source(table), schema))
    parts = [part.take(np.arange(k, part.rows, 3)) for part in batches for k in range(3)]
    plan = plan_of(2, model="mst")
    for measured in record_run(plan, table)[1]:
        pieces = LocalEngine(parts, person=schema.person).sum(measured.statistic)  # type: ignore[arg-type]
        assert np.array_equal(whole.sum(measured.statistic), pieces)  # type: ignore[arg-type]


def test_rows_that_wait_keep_what_they_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where few count the same, those of many factors are put aside at a time."""
    table, schema = visits(400), schema_of(1)
    monkeypatch.setattr(column_store, "_WAITING", 100)
    whole = open_source(table)
    small = dataclasses.replace(
        whole, batches=lambda columns: (b for b in table.select(list(columns)).to_batches(max_chunksize=23))
    )
    expected = sum(f * Count().total(part) for each in PersonTable(whole, schema) for f, part in each.by_factor())
    found = Codes.of(PersonTable(small, schema))
    assert found.sum(Count()).tolist() == expected.tolist()  # type: ignore[union-attr]
    factors = [int(f) for whose in found.whose() for f in whose.factors]
    assert sorted(factors) == sorted(f for each in PersonTable(whole, schema) for f in each.whose.factors.tolist())  # type: ignore[union-attr]


# --- noise ---


@pytest.mark.parametrize("rows", [1, 4])
def test_noise_is_scaled_by_the_rows_of_a_person(rows: int) -> None:
    """A count of known size, 3,000 times: its spread is that of the event, which is `rows` over μ. Repeatable;
    with other seeds it would fail with a chance of 1e-9."""
    whose = Whose(np.zeros(1, dtype=np.int64), np.full(1, UNITS // 2))
    engine = LocalEngine([Records(rows=1, codes={}, whose=whose)], person=Person(column="patient", rows=rows))
    meter = Meter(engine, mu=100.0, entropy=seeded_entropy(rows))
    found, sigmas = [], set()
    for _ in range(3000):
        meter.events.clear()  # composing all of them would take long
        found.append(meter.measure(Count(), mu=0.1)[0])
        sigmas.add(meter.events[0].sigma)  # type: ignore[union-attr]
    drawn = np.array(found, dtype=np.float64)
    assert len(sigmas) == 1
    assert meter.events[0].sigma == pytest.approx(rows / 0.1)  # type: ignore[union-attr]
    assert meter.events[0].mu == pytest.approx(0.1)
    assert abs(drawn.mean() - 0.5) < 6.2 * rows / 0.1 / np.sqrt(3000)
    assert abs(drawn.std() / (rows / 0.1) - 1) < 6.2 / np.sqrt(6000)


@dataclasses.dataclass(frozen=True)
class Tie:
    """A choice between two, whose utilities a row that counts in full turns around."""

    present: bool
    name: str = "tie"
    rounds: int = 1
    unit: int = 1
    weighted: bool = False

    def total(self, records: Records) -> Any:
        return np.zeros(1, dtype=np.int64)

    def utilities(self, total: Any, chosen: tuple[int, ...], *, units: int = 1) -> Any:
        return np.array([-(2**62), *([units, 0] if self.present else [0, units])])


def test_a_choice_is_as_blurred_as_a_person_can_move_it() -> None:
    """At η = 4 the better of two is chosen with odds of e² by a row alone, and of e^(2/3) where three rows count.
    Repeatable; with other seeds it would fail with a chance of 1e-9."""
    for rows in (1, 3):
        meter = Meter(LocalEngine([], person=Person(column="x", rows=rows)), mu=1e6, entropy=seeded_entropy(rows))
        mu = 4 * np.sqrt(2 * np.pi) / 4
        first = []
        for _ in range(4000):
            meter.events.clear()  # composing all of them would take long
            first.append(meter.choose(Tie(True), mu=mu) == (0,))
        expected = 1 / (1 + np.exp(-2 / rows))
        assert abs(np.mean(first) - expected) < 6.2 * np.sqrt(0.25 / 4000)
        assert meter.events[0].mu == pytest.approx(mu)


def test_a_plan_for_rows_is_not_carried_out_on_persons() -> None:
    planned = {"count": Charge("count", 0.3, rows=2)}
    for person in (None, Person(column="patient", rows=3)):
        meter = Meter(LocalEngine([], person=person), mu=1.0, planned=planned)
        with pytest.raises(ConfigError, match="the budget does not cover it"):
            meter.measure(Count(), mu=0.3)


# --- training ---


class Rows:
    """The sum of the rows of `parts`, and how many there are."""

    def total(self, parts: Any) -> Any:
        return np.append(parts.astype(np.int64).sum(axis=0), len(parts))


def test_persons_take_part_with_all_their_rows_or_none() -> None:
    table = visits(400)
    engine = LocalEngine.open(open_source(table), schema_of(2))
    held = engine.held(lambda records: records.codes["age"][:, None].astype(np.int32))
    assert isinstance(held, PersonHeld)
    times = Counter(who for who in ids_of(table) if who is not None)
    persons = held.count
    assert persons == len(times) + ids_of(table).count(None)
    for seed in range(20):
        drawn = held.sampled(0.5, seeded_entropy(seed))
        own = Counter(drawn.persons.tolist())
        assert all(own[person] == np.sum(held.persons == person) for person in own)
        assert 0.35 < len(own) / persons < 0.65
        whole = sum(
            int(f) * np.append(drawn.held.take(np.array([i])).rows[0], 1) for i, f in enumerate(drawn.factors)
        )
        assert drawn.sum(Rows()).tolist() == whole.tolist()  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_training_is_planned_for_persons() -> None:
    one, three = (plan_of(k, **options_of("autoregressive")) for k in (1, 3))
    assert one.training is not None
    assert three.training is not None
    assert three.training.sensitivity == 3 * one.training.sensitivity
    assert three.training.noise == pytest.approx(one.training.noise, rel=1e-3)
    release = run(three, open_source(visits()), noise_seed=1)
    (rounds,) = [kernel for name, kernel in release.kernels().items() if name == "gradients"]
    assert rounds.sensitivity == one.training.sensitivity  # type: ignore[union-attr]
    table = visits()
    mine = pa.array([each == most_rows(table) for each in ids_of(table)])
    for kernel in rounds.examples():  # type: ignore[union-attr]
        sums = [
            LocalEngine.open(open_source(each), three.schema).held(rounds.parts).sum(kernel)  # type: ignore[union-attr]
            for each in (table, table.filter(pa.compute.invert(mine)))
        ]
        assert np.linalg.norm((sums[0] - sums[1]).astype(np.float64)) <= UNITS * three.training.sensitivity
    with pytest.raises(ConfigError, match="larger than planned"):
        Meter(LocalEngine([], person=three.schema.person), three.scale, delta=three.delta).train(
            rounds,  # type: ignore[arg-type]
            one.training,
        )


# --- what it costs ---


@pytest.mark.parametrize("model", list(MODELS))
def test_a_person_pays_the_budget_and_the_chance_of_being_taken_for_another(model: str) -> None:
    plan = plan_of(3, **options_of(model))
    assert plan_of(1, **options_of(model)).whole_loss.failure == plan.whole_loss.failure
    assert all(charge.rows == 3 for charge in plan.charges.values())
    assert plan.whole_loss.failure == pytest.approx(COLLISION)
    assert plan.whole_loss.mu is None
    assert COLLISION == 2.0**-88
    assert plan.whole_loss.epsilon(1e-6) <= 2.0
    assert make_plan(parse_schema(SINGLE_ROWS), plan.settings).whole_loss.failure == 0
    assert Loss.of_schema(plan.schema).delta(0.0) == pytest.approx(COLLISION)


def test_a_release_keeps_whom_it_protects(tmp_path: Path) -> None:
    table = visits()
    release = repsynth.synthesize(table, schema_of(3), epsilon=2.0, delta=1e-6, model="mst")
    again = Release.load(release.save(tmp_path / "release"))
    assert again.schema.person == Person(column="patient", rows=3)
    assert again.privacy.loss == release.privacy.loss
    assert again.privacy.loss.failure > 0
    assert "one person" in repsynth.inspect_release(again)["neighbours"]
    drawn = again.sample(50)
    assert drawn["patient"].to_pylist() == [str(n) for n in range(1, 51)]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("sensitivity", "a smaller sensitivity than it has"),
        ("rows", "other numbers of rows per person"),
        ("person", "other numbers of rows per person"),
    ],
)
def test_a_release_that_claims_less_than_persons_pay_is_refused(wrong: str, why: str, tmp_path: Path) -> None:
    import msgspec

    folder = repsynth.synthesize(visits(), schema_of(3), epsilon=2.0, delta=1e-6, model="naive-bayes").save(
        tmp_path / "release"
    )
    path = folder / "release.json"
    content = msgspec.json.decode(path.read_bytes())
    if wrong == "sensitivity":
        (count,) = [event for event in content["events"] if event["name"] == "count"]
        count["sensitivity"], count["sigma"] = count["sensitivity"] / 3, count["sigma"] / 3
    elif wrong == "rows":
        for charge in content["plan"]["charges"]:
            charge["rows"] = 1
    else:
        content["schema"]["person"]["rows"] = 4
    path.write_bytes(msgspec.json.encode(content))
    refused(folder, why)


# --- the ledger ---


def test_a_ledger_keeps_rows_and_persons_apart(tmp_path: Path) -> None:
    table = visits()
    ledger = Ledger.create(tmp_path / "ledger.db")
    for name in ("persons", "rows"):
        ledger.init(name, Budget.approximate(epsilon=9.0, delta=1e-6))
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "model": "naive-bayes", "ledger": ledger}
    repsynth.synthesize(table, schema_of(1), dataset="persons", **options)
    repsynth.synthesize(table, schema_of(3), dataset="persons", **options)
    repsynth.synthesize(table, parse_schema(SINGLE_ROWS), dataset="rows", **options)
    balance = ledger.balance("persons")
    assert len(balance.spendings) == 2
    assert all(spending.loss.failure >= COLLISION for spending in balance.spendings)
    for name, schema in (("persons", parse_schema(SINGLE_ROWS)), ("rows", schema_of(1))):
        with pytest.raises(LedgerError, match="a total over both would hold for neither"):
            repsynth.synthesize(table, schema, dataset=name, **options)
    assert len(ledger.balance("persons").spendings) == 2
    assert len(ledger.balance("rows").spendings) == 1


@pytest.mark.parametrize(
    ("runs", "unit"),
    [
        ((), None),
        (({"person": Person(column="patient", rows=3)},), "one person with all their rows"),
        (({}, {}), "one person, who has one row"),
    ],
)
def test_a_ledger_names_the_unit_of_its_runs(
    runs: tuple[dict[str, Any], ...], unit: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=9.0, delta=1e-6))
    for declared in runs:
        ledger.reserve("data", {"all": 0.01}, what="a run", **declared)
    assert main(["ledger", "show", str(ledger.path), "--json"]) == 0
    (shown,) = json.loads(capsys.readouterr().out)["datasets"]
    assert shown["unit"] == unit
    assert main(["ledger", "show", str(ledger.path)]) == 0
    text = capsys.readouterr().out
    assert (f"protecting {unit}: " in text) == (unit is not None)
    assert ("person" in text) == ("person" in (unit or ""))
    assert ("person" in (shown["neighbours"] or "")) == ("person" in (unit or ""))


def test_a_run_tells_the_ledger_what_its_schema_says_of_persons(tmp_path: Path) -> None:
    table, ledger = visits(), Ledger.create(tmp_path / "ledger.db")
    one_row = dataclasses.replace(parse_schema(COLUMNS), one_row_per_person=True)
    for name, schema in (("persons", schema_of(3)), ("one row", one_row)):
        ledger.init(name, Budget.approximate(epsilon=9.0, delta=1e-6))
        made = make_plan(schema, Settings.of(epsilon=1.0, delta=1e-6, model="naive-bayes"))
        run(made, open_source(table), payer=Payer(ledger, name))
        assert ledger.balance(name).unit == unit_of(schema)
        assert ledger.balance(name).neighbours == neighbours_of(schema)


# --- the dossier ---


def test_a_dossier_gives_each_person_their_own_loss() -> None:
    table, rows = visits(), 3
    release = repsynth.synthesize(table, schema_of(rows), epsilon=2.0, delta=1e-6, model="mst")
    found, summary = dossier(table, release)
    ids, times = ids_of(table), Counter(ids_of(table))
    assert summary.rows == table.num_rows
    assert summary.records == len(times) - 1 + times[None]
    own = release.influence(records_of(table, release.schema))
    for who in [w for w in times if w is not None][:40]:
        mine = np.array([each == who for each in ids])
        parts = found.filter(pa.array(mine)).to_pydict()
        expected = own[mine].sum() * counted(times[who], rows) / rows
        assert parts["influence"] == pytest.approx([expected] * times[who])
        assert set(parts["rows"]) == {times[who]}
        assert len(set(parts["person"])) == 1
        assert parts["realised_epsilon"][0] >= float(release.privacy.epsilon_at(expected)) * (1 - 1e-9)
    assert len(set(found["person"].to_pylist())) == summary.records
    alone = np.array([each is None for each in ids])
    assert found.filter(pa.array(alone))["influence"].to_pylist() == pytest.approx((own[alone] / rows).tolist())
    assert summary.no_guarantee is not None
    assert found["guaranteed_weight"].to_numpy().max() <= 1


# --- the audit ---


@pytest.mark.parametrize("model", ["naive-bayes", pytest.param("mst", marks=pytest.mark.attack)])
def test_an_audit_attacks_persons_and_finds_nothing(model: str) -> None:
    plan = plan_of(2, **options_of(model))
    with repeatable(3):
        found = list(audit(plan, visits(60), runs=1000))
    assert {finding.target for finding in found} >= {"canary of many rows", "canary alone", "most outlying"}
    assert not any(finding.exceeded for finding in found)


def test_an_audit_finds_a_factor_that_was_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    from repsynth.engine import local

    monkeypatch.setattr(local, "factors_of", lambda rows, most: np.full(len(rows), UNITS))
    with repeatable(3):
        found = list(audit(plan_of(1, epsilon=4.0, model="naive-bayes"), visits(60), runs=2000))
    assert any(finding.exceeded for finding in found if finding.target == "canary of many rows")


@pytest.mark.parametrize("rows", [1, 3])
def test_an_audit_of_a_training_samples_persons(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows of each, which take part together: what is found is close to what is claimed, and not above it."""
    plan = plan_of(rows, epsilon=4.0, model="autoregressive", epochs=2.0, sampling_rate=0.5)
    assert plan.training is not None
    taken: list[set[int]] = []
    whole = PersonHeld.sampled

    def noted(self: PersonHeld, *how: Any) -> PersonHeld:
        drawn = whole(self, *how)
        taken.append(set(Counter(drawn.persons.tolist()).values()))
        return drawn

    monkeypatch.setattr(PersonHeld, "sampled", noted)
    with repeatable(3):
        ratios = training_ratios(plan, 1.0, 4000)
    assert taken == [{2}] * 2 * plan.training.rounds
    claim = Loss.of([plan.training])
    bounds = bounds_of(*threshold_learnt(*ratios))
    found = Finding("a person", "white-box", "gradients", claimed_mu(claim), *bounds, plan.delta, claim=claim)
    assert not found.exceeded
    assert found.lower_mu > 0.5 * found.claimed_mu


def test_an_audit_takes_persons_away_with_all_their_rows() -> None:
    table = visits()
    release = repsynth.synthesize(table, schema_of(3), epsilon=2.0, delta=1e-6, model="naive-bayes")
    names = [column.name for column in release.schema.learned]
    records = join(list(LocalEngine.open(open_source(table), release.schema).per_record()), names)
    several = 0
    for target in targets_of(release, records):
        assert target.record.whose is not None
        assert target.others.whose is not None
        own, others = (set(w.places.tolist()) for w in (target.record.whose, target.others.whose))
        assert not own & others
        several += target.record.rows > 1
    assert several >= 4


def test_a_made_up_table_has_persons_with_several_rows() -> None:
    table = made_up_table(schema_of(2))
    assert max(Counter(table["patient"].to_pylist()).values()) > 2


# --- bad input ---


@pytest.mark.parametrize(
    ("person", "message"),
    [
        ('{column = "patiant"}', "is not declared"),
        ('{column = "age"}', 'must have type = "id"'),
        ('{column = "patient", rows = 0}', "a whole number from 1 to 1,000"),
        ('{column = "patient", rows = 1.5}', "a whole number from 1 to 1,000"),
        ('{column = "patient", rows = true}', "a whole number from 1 to 1,000"),
        ('{column = "patient", row = 2}', "must have a 'column'"),
        ("{rows = 2}", "must have a 'column'"),
        ('"patient"', "must have a 'column'"),
    ],
)
def test_what_is_no_person_is_refused(person: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse_schema(f"person = {person}\n{COLUMNS}")


def test_a_schema_with_persons_is_kept_whole() -> None:
    schema = parse_schema(f'person = {{column = "patient"}}\n{COLUMNS}')
    assert schema.person == Person(column="patient", rows=1)
    assert schema_from_dict(schema_to_dict(schema)) == schema


def test_numbers_of_rows_that_count_are_not_public() -> None:
    with pytest.raises(ConfigError, match="leave public rows out"):
        plan_of(2, public_rows=1000)
    assert plan_of(1, public_rows=1000).public_rows == 1000


def test_a_delta_beside_which_a_collision_would_count_is_refused() -> None:
    with pytest.raises(ConfigError, match="with several rows per person it must be at least 1e-20"):
        plan_of(1, delta=1e-21)


def test_scores_come_from_a_release_that_protects_the_same() -> None:
    table = visits(400)
    rows = repsynth.synthesize(table, parse_schema(SINGLE_ROWS), epsilon=4.0, delta=1e-6, model="naive-bayes")
    persons = repsynth.synthesize(table, schema_of(1), epsilon=4.0, delta=1e-6, model="naive-bayes")
    with pytest.raises(ConfigError, match=r"another \[person\] column"):
        plan_of_scores(rows)
    assert plan_of_scores(persons).borrowed is not None
    found, summary = dossier(table, repsynth.synthesize(table, schema_of(3), epsilon=1.0, scores_from=persons))
    assert summary.no_guarantee is None
    assert found["guaranteed_weight"].to_numpy().max() <= 1
    assert np.all(found["guaranteed_weight"].to_numpy() >= found["influence"].to_numpy() * (1 - 1e-6))


def test_scores_of_another_column_of_ids_are_refused() -> None:
    two = parse_schema(SINGLE_ROWS + '[columns.house]\ntype = "id"\n')
    table = visits().append_column("house", pa.array([str(n % 50) for n in range(visits().num_rows)]))
    patients, houses = (
        dataclasses.replace(two, person=Person(column=c), one_row_per_person=False) for c in ("patient", "house")
    )
    release = repsynth.synthesize(table, patients, epsilon=2.0, delta=1e-6, model="naive-bayes")
    with pytest.raises(ConfigError, match=r"another \[person\] column"):
        repsynth.plan(houses, epsilon=1.0, delta=1e-6, scores_from=release)


def test_scores_from_a_release_that_claims_less_are_refused(tmp_path: Path) -> None:
    import msgspec

    options: dict[str, Any] = {"delta": 1e-6, "model": "naive-bayes"}
    first = repsynth.synthesize(visits(), schema_of(3), epsilon=2.0, **options)
    folder = repsynth.synthesize(visits(), schema_of(3), epsilon=2.0, scores_from=first, **options).save(
        tmp_path / "r"
    )
    content = msgspec.json.decode((folder / "release.json").read_bytes())
    for event in content["scores_from"]["described"]["events"]:
        if event["name"] == "coarse histograms":
            event["sensitivity"], event["sigma"] = event["sensitivity"] * 0.999999, event["sigma"] * 0.999999
    (folder / "release.json").write_bytes(msgspec.json.encode(content))
    refused(folder, "a smaller sensitivity than it has")


def plan_of_scores(release: Release) -> Plan:
    return repsynth.plan(schema_of(3), epsilon=1.0, delta=1e-6, scores_from=release)


def test_sums_that_exceed_64_bits_leave_out_what_they_lost() -> None:
    """x and x + 2⁶⁴ come out the same, and so do neighbours across the wrap but for their difference."""
    from repsynth.mechanism.noise import add_gaussian

    def noisy(value: int) -> int:
        wrapped = np.array([(value + 2**63) % 2**64 - 2**63], dtype=np.int64)
        out, _ = add_gaussian(
            wrapped, name="x", sensitivity=1.0, sigma=3.0, units=UNITS, entropy=seeded_entropy(1)
        )
        return int(out[0])

    assert noisy(5 * UNITS) == noisy(5 * UNITS + 2**64)
    assert (noisy(2**63 + UNITS) - noisy(2**63 - UNITS)) % 2**52 == 2


def test_utilities_do_not_wrap() -> None:
    from repsynth.models.statistics import TableChoice, Tables

    class Two(Tables):
        starts = np.array([0, 2])  # type: ignore[assignment]

    tables = Two((), ((0, 1),), None, None, "choice")  # type: ignore[arg-type]
    choice = TableChoice(tables, np.full(2, 2**50), np.array([2**55]), rounds=1, forest=False, name="choice")
    moved = [choice.utilities(np.array([rows * UNITS, 0]), (), units=UNITS)[1] for rows in (0, 1)]
    assert abs(moved[0] - moved[1]) == UNITS


@pytest.mark.parametrize("cell", [2**25, 2**30, 2**35, 2**40])
def test_utilities_of_pairs_do_not_wrap(cell: int) -> None:
    smooth = np.eye(20, dtype=np.int64) * pairwise.UNIT
    tables = SimpleNamespace(pairs=((0, 1),), split=lambda flat: [flat.reshape(20, 20)])
    choice = pairwise.PairChoice(tables, (smooth, smooth), (np.zeros((20, 20), dtype=np.int64),), rounds=1)  # type: ignore[arg-type]
    found = choice.utilities(np.full(400, cell), (), units=UNITS)[1]
    assert found == min(400 * cell * pairwise.UNIT**2, 2**62)


def test_a_measured_schema_has_no_persons() -> None:
    measured = '[measured]\nmu = 0.1\nfailure = 0.0\nmark = "' + "0" * 32 + '"\ncolumns = ["age"]\n'
    with pytest.raises(SchemaError, match="protects single rows"):
        parse_schema(f'person = {{column = "patient"}}\n{COLUMNS}{measured}')


def test_a_table_without_the_person_column_is_refused() -> None:
    with pytest.raises(repsynth.DataError, match="no column 'patient'"):
        repsynth.synthesize(visits().drop_columns(["patient"]), schema_of(1), epsilon=1.0)


@pytest.mark.slow
def test_a_seeded_training_is_the_same_though_keys_are_fresh() -> None:
    plan = plan_of(2, **options_of("autoregressive"))
    one, two = (run(plan, open_source(visits()), noise_seed=1) for _ in range(2))
    assert same_release(one, two)


def test_places_are_a_rows_own_where_there_is_no_id() -> None:
    (records,) = PersonTable(open_source(visits()), schema_of(1))
    assert records.whose is not None
    assert (records.whose.places >= ALONE).tolist() == [each is None for each in ids_of(visits())]


def test_rounds_of_a_row_are_those_of_the_person() -> None:
    event = SampledEvent("gradients", sensitivity=12.0, sigma=24.0, rate=0.5, rounds=3, weighted=True)
    assert event.of_a_row(3).sensitivity == 4.0
    assert event.of_a_row(3).sigma == event.sigma
