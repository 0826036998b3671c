"""Attacks on persons: with all their rows or without any, and never better than the account says."""

import dataclasses
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from checks import plan_for

from repsynth import datasets
from repsynth.attacks import targets as victims_module
from repsynth.attacks.results import UNIFORM, Exposure, attack, best_attack
from repsynth.attacks.statistics import Trials, area
from repsynth.attacks.targets import Victims, choose_victims, stored
from repsynth.attacks.traced_run import contributions, observe, total_of
from repsynth.cli import main
from repsynth.errors import DataError
from repsynth.evaluation import points as matrix
from repsynth.io.records import UNITS
from repsynth.io.sources import open_source
from repsynth.mechanism import noise
from repsynth.run.run import run
from repsynth.schema import Id, Person, Schema

ROWS = np.array([1, 2, 3, 6])  # of a person, in turn


def schema_of(sim: datasets.Dataset, rows: int) -> Schema:
    columns = (*sim.schema.columns, Id(name="who"))
    return dataclasses.replace(
        sim.schema, columns=columns, person=Person(column="who", rows=rows), one_row_per_person=False
    )


def stays(sim: datasets.Dataset, start: int, people: int, first: int = 0, rows: np.ndarray = ROWS) -> pa.Table:
    """Persons with one to six rows each, all the same."""
    who = np.repeat(np.arange(people), rows[np.arange(people) % len(rows)])
    who = who[np.random.default_rng(start).permutation(len(who))]
    table = sim.table.take(pa.array(start + who))
    return table.append_column("who", pa.array([f"p{first + one}" for one in who]))


@pytest.fixture(scope="module")
def victims(sim: datasets.Dataset) -> Victims:
    schema = schema_of(sim, 3)
    return choose_victims(stays(sim, 0, 300), stays(sim, 3000, 200, 300), schema, targets=20, seed=0)


def test_a_target_is_a_person_with_all_their_rows(sim: datasets.Dataset, victims: Victims) -> None:
    """In whatever order rows stand, and at every start, though ids are found by a key that is drawn anew."""
    assert victims.targets.whose is not None
    assert victims.base.whose is not None
    assert victims.people == 300
    assert victims.owners.count == len(victims.deciles) == len(victims.rows_of_targets) == 20
    assert not set(victims.targets.whose.places) & set(victims.base.whose.places)
    assert victims.targets.rows + victims.base.rows == stays(sim, 0, 300).num_rows
    rows = np.bincount(victims.owners.target)
    assert set(rows) <= set(ROWS.tolist())
    for i in range(20):
        own = victims.targets.take(victims.owners.target == i)
        assert own.whose is not None
        assert len(set(own.whose.places)) == 1
        assert own.whose.places[0] == victims.rows_of_targets[i]
    k = victims.schema.rows_per_person
    assert victims.owners.influence(np.ones(victims.targets.rows)) == pytest.approx(
        np.minimum(rows / k, 1), rel=1e-3
    )
    again = choose_victims(stays(sim, 0, 300), stays(sim, 3000, 200, 300), victims.schema, targets=20, seed=0)
    assert again.digest == victims.digest
    assert np.array_equal(again.rows_of_targets, victims.rows_of_targets)
    assert np.bincount(victims.deciles, minlength=10)[9] == 6


def test_persons_stand_out_by_the_mean_of_their_rows(sim: datasets.Dataset) -> None:
    """Somebody all of whose rows are odd does; somebody with one odd row among ordinary ones does not."""
    ordinary = stays(sim, 0, 400, rows=np.array([1, 2, 3, 20]))
    odd = {f"x{j}": [6.0 if j % 2 else -6.0] for j in range(1, 7)}
    row = {**sim.table.slice(0, 1).to_pydict(), **odd}
    others = [pa.table({**row, "who": [name]}, ordinary.schema) for name in ("odd", "odd", "odd", "p7")]
    table = pa.concat_tables([ordinary, *others])
    found = choose_victims(table, None, schema_of(sim, 1), targets=200, seed=0)
    assert found.people == 401
    numbers = list(dict.fromkeys(table["who"].to_pylist()))
    place = dict(zip(found.rows_of_targets.tolist(), found.deciles.tolist(), strict=True))
    assert place[numbers.index("odd")] == 9
    records = victims_module._by_person(matrix.records_of(table, found.schema))
    deciles = victims_module._deciles(records, found.places, 200, np.random.default_rng(1))
    assert deciles[numbers.index("odd")] == 9
    assert deciles[numbers.index("p7")] < 9


def test_persons_of_the_holdout_who_are_in_the_table_are_left_out(sim: datasets.Dataset) -> None:
    schema = schema_of(sim, 2)
    found = choose_victims(stays(sim, 0, 60), stays(sim, 3000, 60, 30), schema, targets=10, seed=0)
    assert any("30 persons of the holdout are also in the table" in note for note in found.notes)
    assert found.reference.rows == np.minimum(ROWS[np.arange(30, 60) % 4], 2).sum()
    nobody = choose_victims(stays(sim, 0, 60), stays(sim, 0, 60), schema, targets=10, seed=0)
    assert nobody.reference.rows == 0
    assert any("nobody of the holdout is left" in note for note in nobody.notes)
    with pytest.raises(DataError, match="fewer than 20 persons"):
        choose_victims(stays(sim, 0, 19), None, schema, targets=10, seed=0)
    with pytest.raises(DataError, match="fewer than 20 persons"):
        choose_victims(stays(sim, 0, 19).slice(0, 0), None, schema, targets=10, seed=0)


def test_rows_of_nobody_are_persons_and_unread_ones_count_nothing(sim: datasets.Dataset) -> None:
    table, schema = stays(sim, 0, 40), schema_of(sim, 1)
    ids = ["\ufffd", None, None, *table["who"].to_pylist()[3:]]
    table = table.set_column(table.column_names.index("who"), "who", pa.array(ids))
    found = choose_victims(table, None, schema, targets=10, seed=0)
    assert found.people == len(set(ids) - {"\ufffd", None}) + 2
    assert found.targets.rows + found.base.rows == table.num_rows - 1


def test_what_a_person_adds_is_what_all_their_rows_add(victims: Victims) -> None:
    seen = observe(plan_for(victims.schema), victims, seed=0, run=0, method=0)
    kernels = {**seen.stage.kernels(), **seen.fit.kernels(choices=False)}
    assert len(kernels) >= 6
    for kernel in kernels.values():
        touched, added = contributions(kernel, victims)  # type: ignore[arg-type]
        whole = total_of(kernel, victims.targets) / UNITS
        assert np.allclose(whole[touched], added.sum(axis=0), rtol=1e-12, atol=1e-9)
        most = kernel.sensitivity * victims.schema.rows_per_person  # type: ignore[union-attr]
        assert np.all(np.linalg.norm(added, axis=1) <= most * (1 + 1e-9))


def test_a_watched_run_is_a_run(victims: Victims, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise on the same rows of the same persons gives the same release, bit for bit."""
    plan = plan_for(victims.schema)
    seeds, original = [], noise.seeded_entropy
    monkeypatch.setattr(
        "repsynth.attacks.traced_run.seeded_entropy", lambda seed: seeds.append(seed) or original(seed)
    )
    seen = observe(plan, victims, seed=5, run=3, method=1)
    taking_part = victims.targets.take(seen.present[victims.owners.target])
    release = run(plan, open_source(stored(plan.schema, [victims.base, taking_part])), noise_seed=seeds[0])
    assert np.array_equal(release.fit.noisy, seen.fit.noisy)  # type: ignore[attr-defined]


def test_the_likelihood_ratio_is_as_good_as_the_account_says(victims: Victims) -> None:
    """All rows of a person are the same here, so that nothing of them cancels."""
    plan = plan_for(victims.schema, weights="uniform")
    runs = [observe(plan, victims, seed=0, run=k, method=0) for k in range(40)]
    present = np.array([seen.present for seen in runs])
    influence = np.array([victims.owners.influence(seen.stage.influence(victims.targets)) for seen in runs])
    scores = np.array([seen.watch.known for seen in runs])
    rows = np.bincount(victims.owners.target)
    counted = np.minimum(rows / victims.schema.rows_per_person, 1)
    assert np.all(influence[:, counted == 1] > 0.7)
    assert np.all(influence[:, counted < 1] < 0.7)
    found = area(Trials.of(scores[:, counted == 1], present[:, counted == 1]))
    best = best_attack(plan.loss, influence[:, counted == 1], plan.delta)
    assert found.low <= best.area
    mu = np.sqrt([np.diag(seen.watch.gram) for seen in runs])
    # Of what weights do not touch, the account says what a person with enough rows pays; others pay less.
    most = np.hypot(plan.loss.floor_mu * counted, plan.loss.weighted_mu * influence)
    assert np.all(mu <= most * (1 + 1e-9))
    assert np.all(most <= plan.loss.mu_at(influence) * (1 + 1e-9))
    assert mu.mean() > 0.8 * most.mean()
    standard = (scores - np.where(present, 1, -1) * mu**2 / 2) / mu
    assert abs(standard.mean()) < 0.15
    assert 0.85 < standard.std() < 1.15


def exposure(sim: datasets.Dataset, folder: Path, **options: object) -> Exposure:
    plan, ten = plan_for(schema_of(sim, 1), weights="uniform", **options), np.array([10])
    return attack(plan, stays(sim, 0, 200, rows=ten), stays(sim, 3000, 100, 200, ten), folder, targets=20, runs=24)


@pytest.mark.attack
def test_no_more_is_proven_of_persons_than_is_claimed(sim: datasets.Dataset, tmp_path: Path) -> None:
    found = exposure(sim, tmp_path / "a")
    assert (found.unit, found.rows, found.targets, found.exceeded) == ("persons", 200, 20, False)
    assert {"density ratio", "measured cells", "all others known"} <= {line.attack for line in found.lines}
    assert found.guesses == []
    assert any("guess at single rows, and are left out" in note for note in found.notes)
    bare = exposure(sim, tmp_path / "b", epsilon=None, mu=1e3, delta=None)
    known = [line for line in bare.lines if (line.attack, line.decile) == ("all others known", None)]
    assert known[0].area.value > 0.999  # so the attack has power


@pytest.mark.attack
@pytest.mark.parametrize("fault", ["every row counts in full", "a tenth of the noise"])
def test_a_person_who_loses_more_than_is_claimed_is_noticed(
    fault: str, sim: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "every row counts in full":
        monkeypatch.setattr(
            "repsynth.engine.local.factors_of", lambda rows, most: np.full(len(rows), UNITS, dtype=np.int64)
        )
    else:
        draw = noise.rounded_gaussian
        monkeypatch.setattr(noise, "rounded_gaussian", lambda sigma, *rest: draw(sigma / 10, *rest))
    found = exposure(sim, tmp_path / "a")
    assert found.exceeded
    assert "all others known" in {line.attack for line in found.lines if line.exceeded}


@pytest.mark.attack
@pytest.mark.parametrize("model", ["mst", "aim", "autoregressive"])
def test_every_model_can_be_attacked_on_persons(model: str, sim: datasets.Dataset, tmp_path: Path) -> None:
    if model == "autoregressive":
        pytest.importorskip("dp_accounting")
    plan = plan_for(schema_of(sim, 2), model=model)
    found = attack(plan, stays(sim, 0, 60), stays(sim, 3000, 60, 60), tmp_path / "a", targets=10, runs=8)
    assert not found.exceeded
    assert {line.method for line in found.lines} >= {UNIFORM, "reps"}


@pytest.mark.attack
def test_the_command_attacks_persons_and_goes_on(
    sim: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    import pyarrow.csv as pacsv

    pacsv.write_csv(stays(sim, 0, 60), "stays.csv")
    pacsv.write_csv(stays(sim, 3000, 60, 60), "others.csv")
    text = datasets.schema_text("sim").replace("one_row_per_person = true", 'person = {column = "who", rows = 3}')
    text += '\n[columns.who]\ntype = "id"\n'
    Path("schema.toml").write_text(text, encoding="utf-8")
    command = "attack --train stays.csv --holdout others.csv --schema schema.toml --epsilon 2 --model naive-bayes"
    asked = f"{command} --targets 10 --runs 8 --jobs 1 --full -o out".split()
    assert main(asked) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "10 of 60 persons were attacked" in said
    assert "Singling out, linking and inferring guess at single rows, and are left out" in said
    made = sorted(Path("out/runs").iterdir())
    before = [path.stat().st_mtime_ns for path in made]
    assert main(asked) == 0
    assert [path.stat().st_mtime_ns for path in made] == before
