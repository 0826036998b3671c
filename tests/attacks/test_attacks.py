"""Each attack finds planted members where there is no noise, and nothing where there is nothing."""

import io
import json
import math
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from checks import plan_for, records_of
from conftest import ALL_TYPES, make_people
from rich.console import Console
from scipy.special import ndtr

from repsynth import datasets
from repsynth.attacks.anonymeter import make_guesses, same
from repsynth.attacks.results import (
    BARE,
    BEST,
    REPS,
    UNIFORM,
    AttackResult,
    Exposure,
    attack,
    best_attack,
    methods_of,
    summarise,
)
from repsynth.attacks.statistics import Trials, area
from repsynth.attacks.targets import Victims, choose_victims, coins, stored
from repsynth.attacks.traced_run import Campaign, carry_out_all, contributions, observe, table_scores
from repsynth.cli import main, render
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation.points import nearest
from repsynth.io.records import Records, join
from repsynth.io.sources import open_source
from repsynth.mechanism import noise
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.loss import Loss
from repsynth.run.run import run
from repsynth.schema import Integer, parse_schema

NO_NOISE = {"epsilon": None, "mu": 1e4, "delta": None}


@pytest.fixture(scope="module")
def victims(sim: datasets.Dataset) -> Victims:
    return choose_victims(sim.table.slice(0, 600), sim.table.slice(3000, 300), sim.schema, targets=20, seed=0)


def found_in(exposure: Exposure, **wanted: object) -> AttackResult:
    (line,) = [x for x in exposure.lines if all(getattr(x, name) == value for name, value in wanted.items())]
    return line


# --- who is attacked


def test_targets_come_from_all_deciles_and_are_not_in_the_base(sim: datasets.Dataset, victims: Victims) -> None:
    assert np.bincount(victims.deciles).tolist() == [1, 1, 1, 1, 2, 2, 2, 2, 2, 6]
    assert (victims.base.rows, victims.targets.rows, victims.reference.rows) == (580, 20, 300)
    whole = records_of(sim.table.slice(0, 600), sim.schema)
    assert np.array_equal(victims.targets.codes["x1"], whole.codes["x1"][victims.rows_of_targets])
    again = choose_victims(sim.table.slice(0, 600), None, sim.schema, targets=20, seed=1)
    assert not np.array_equal(again.rows_of_targets, victims.rows_of_targets)


@pytest.mark.parametrize("rows", [500, 4500])
def test_top_deciles_hold_those_who_stand_out(rows: int, sim: datasets.Dataset) -> None:
    """Planted: records at the bounds, each alone."""
    lonely = {f"x{j}": [6.0 if (k >> j) % 2 else -6.0 for k in range(10)] for j in range(1, 7)}
    table = pa.concat_tables(
        [sim.table.slice(0, rows), pa.table({**sim.table.slice(0, 10).to_pydict(), **lonely}, sim.table.schema)]
    )
    found = choose_victims(table, None, sim.schema, targets=table.num_rows // 2, seed=0)
    planted = found.rows_of_targets >= rows
    assert planted.any()
    assert (found.deciles[planted] == 9).all()


def test_a_holdout_that_overlaps_is_noticed(sim: datasets.Dataset) -> None:
    found = choose_victims(sim.table.slice(0, 600), sim.table.slice(500, 300), sim.schema, targets=20, seed=0)
    assert "100 of 300 rows of the holdout are also in the table" in found.notes[0]
    assert found.reference.rows == 200
    everybody = choose_victims(sim.table.slice(0, 600), sim.table.slice(0, 600), sim.schema, targets=20, seed=0)
    assert everybody.reference.rows == 0
    assert "nobody of the holdout is left" in everybody.notes[1]


def test_twins_by_chance_are_no_overlap() -> None:
    schema = parse_schema(
        'one_row_per_person = true\ncolumns.a = {type = "boolean"}\ncolumns.b = {type = "boolean"}'
    )
    generator = np.random.default_rng(0)
    tables = [pa.table({name: generator.random(200) < 0.5 for name in "ab"}) for _ in range(2)]
    found = choose_victims(*tables, schema, targets=10, seed=0)
    assert found.reference.rows == 200
    assert found.notes == ()


@pytest.mark.attack
def test_odd_tables_are_attacked_as_far_as_possible(tmp_path: Path) -> None:
    """One label, a column without a readable cell, few rows, more targets than rows, no holdout."""
    rows = 50
    table = make_people(rows)
    table = table.set_column(6, "smoker", pa.array(["no"] * rows)).set_column(1, "age", pa.nulls(rows, pa.int64()))
    schema = parse_schema(ALL_TYPES)
    found = attack(plan_for(schema), table, None, tmp_path / "a", targets=1000, runs=8)
    assert found.targets == rows // 2
    text = " ".join(found.notes)
    for part in ("no holdout", "more than half"):
        assert part in text
    assert {line.attack for line in found.lines} == {
        *("distance", "shadow runs, table", "shadow runs, release", "all others known", BEST)
    }
    assert not found.exceeded


def test_what_cannot_be_attacked_is_refused(sim: datasets.Dataset, tmp_path: Path) -> None:
    plan = plan_for(sim.schema)
    with pytest.raises(DataError, match="fewer than 20 rows"):
        attack(plan, sim.table.slice(0, 10), None, tmp_path / "a")
    with pytest.raises(ConfigError, match="one target at least"):
        attack(plan, sim.table.slice(0, 100), None, tmp_path / "a", targets=0)
    with pytest.raises(ConfigError, match="seed must not be negative"):
        attack(plan, sim.table.slice(0, 100), None, tmp_path / "a", seed=-1)
    with pytest.raises(ConfigError, match="tell nothing"):
        attack(plan, sim.table.slice(0, 100), None, tmp_path / "a", runs=2)
    with pytest.raises(DataError, match="the holdout: no column"):
        attack(plan, sim.table.slice(0, 100), pa.table({"other": [1]}), tmp_path / "a")


# --- runs


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_what_each_record_adds_is_what_it_adds(model: str, victims: Victims) -> None:
    seen = observe(plan_for(victims.schema, model=model), victims, seed=0, run=0, method=0)
    kernels = {**seen.stage.kernels(), **seen.fit.kernels(choices=False)}
    assert len(kernels) >= 6
    for kernel in kernels.values():
        touched, added = contributions(kernel, victims)  # type: ignore[arg-type]
        for i in (0, 7, 19):
            whole = kernel.total(victims.targets.take(np.array([i])))  # type: ignore[union-attr]
            assert np.array_equal(whole[touched], added[i])
            assert np.count_nonzero(whole) == np.count_nonzero(added[i])
        total = kernel.total(victims.targets)  # type: ignore[union-attr]
        assert np.array_equal(total[touched], added.sum(axis=0))


def test_a_watched_run_is_a_run(victims: Victims, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise on the same records gives the same release, bit for bit."""
    plan = plan_for(victims.schema)
    seeds = []
    original = noise.seeded_entropy
    monkeypatch.setattr(
        "repsynth.attacks.traced_run.seeded_entropy", lambda seed: seeds.append(seed) or original(seed)
    )
    seen = observe(plan, victims, seed=5, run=3, method=1)
    table = stored(plan.schema, [victims.base, victims.targets.take(seen.present)])
    release = run(plan, open_source(table), noise_seed=seeds[0])
    assert np.array_equal(release.fit.noisy, seen.fit.noisy)  # type: ignore[attr-defined]


def test_without_noise_the_release_tells_everybody_apart(victims: Victims) -> None:
    plan = plan_for(victims.schema, weights="uniform", **NO_NOISE)
    runs = [observe(plan, victims, seed=0, run=k, method=0) for k in range(8)]
    present = np.array([seen.present for seen in runs])
    for name in ("decoded", "known"):
        scores = np.array([dict(seen.scores())[name] for seen in runs])
        assert area(Trials.of(scores, present)).value > 0.999, name


def test_a_table_that_holds_its_members_gives_them_away(victims: Victims, sim: datasets.Dataset) -> None:
    """Synthetic = members finds all; synthetic = strangers finds nothing. So does each attack on the table."""
    plan = plan_for(victims.schema)
    seen = observe(plan, victims, seed=0, run=0, method=0)
    names = [column.name for column in victims.schema.learned]
    far = nearest(victims.places.place(victims.targets), victims.places.place(victims.reference))
    strangers = records_of(sim.table.slice(4000, 2000), sim.schema)
    generator = np.random.default_rng(0)
    scores: dict[str, dict[str, list[np.ndarray]]] = {"members": {}, "strangers": {}}
    coins = generator.random((12, 20)) < 0.5
    for present in coins:
        joined = join([victims.base.take(np.arange(60)), victims.targets.take(present)], names)
        some = strangers.take(generator.permutation(2000)[:70])
        for name, synthetic in (("members", joined), ("strangers", some)):
            for kind, found in table_scores(synthetic, victims, seen.stage, seen.fit, far):
                scores[name].setdefault(kind, []).append(found)
    assert set(scores["members"]) == {"distance", "closeness", "cells", "density ratio", "measured cells"}
    for kind, found in scores["members"].items():
        at_least = {"distance": 0.99, "cells": 0.55}.get(kind, 0.7)
        assert area(Trials.of(np.array(found), coins)).value > at_least, kind
    for kind, found in scores["strangers"].items():
        nothing = area(Trials.of(np.array(found), coins))
        assert nothing.low < 0.5 < nothing.high, kind


# --- guesses


def test_guesses_find_members_of_a_copy_and_nobody_in_strangers(sim: datasets.Dataset) -> None:
    victims = choose_victims(sim.table.slice(0, 1500), sim.table.slice(3000, 1500), sim.schema, targets=20, seed=0)
    present = np.ones(20, dtype=bool)
    names = [column.name for column in victims.schema.learned]

    def excess(synthetic: Records) -> list[float]:
        counts = make_guesses(synthetic, victims, present, np.random.default_rng(0))
        assert counts is not None
        rates = counts[..., 0] / counts[..., 1]
        return ((rates[:, 0] - rates[:, 1]) / (1 - rates[:, 1])).tolist()

    copied = excess(join([victims.base, victims.targets], names))
    assert copied[0] > 0.99  # what fits one synthetic record fits the same person
    assert copied[1] > 0.95
    assert copied[2] > 0.6  # a nearest record in all other columns is mostly the person itself
    assert max(map(abs, excess(records_of(sim.table.slice(4500, 1500), sim.schema)))) < 0.12


def test_a_negative_number_is_right_only_where_it_is_near() -> None:
    column = Integer(name="balance", min=-1000, max=1000)
    true = np.array([-500, -500, -500, 0, 0, 500, -1]) + np.array([1000] * 6 + [0])
    guess = np.array([500, -480, -400, 0, 1, 520, -1]) + np.array([1000] * 6 + [0])
    assert same(true, guess, column).tolist() == [False, True, False, True, False, True, True]


# --- the closed form


def test_the_closed_form_is_that_of_a_gaussian() -> None:
    found = best_attack(Loss(0.6, 0.8), np.array([1.0]), 1e-6)
    assert found.largest_mu == pytest.approx(1.0)
    assert found.area == pytest.approx(ndtr(1 / 2**0.5))
    assert found.advantage == pytest.approx(2 * ndtr(0.5) - 1)
    assert found.rate_at_1 == pytest.approx(0.0924, abs=1e-4)
    less = best_attack(Loss(0.6, 0.8), np.array([0.2]), 1e-6)
    assert less.advantage < found.advantage
    assert less.largest_epsilon < found.largest_epsilon


@pytest.mark.parametrize(
    "loss", [Loss(0.6, 0.8), Loss(0.6, 0.0, (SampledEvent("gradients", 1.0, 6.0, 0.25, 20),))]
)
def test_the_claim_for_many_is_that_of_the_most_exposed(loss: Loss) -> None:
    """One record in a thousand that weighs 1: what is claimed of all holds for it, too."""
    influence = np.append(np.full(999, 0.1), 1.0)
    assert best_attack(loss, influence, 1e-6).largest_epsilon >= loss.epsilon(1e-6) * (1 - 1e-9)


# --- all of it


@pytest.fixture(scope="module")
def exposures(sim: datasets.Dataset, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exposure]:
    """With a strong budget, and without noise."""
    folder = tmp_path_factory.mktemp("attacks")
    train, holdout = sim.table.slice(0, 400), sim.table.slice(3000, 400)
    made = {}
    for name, options in (("private", {"epsilon": 0.5}), ("bare", NO_NOISE)):
        plan = plan_for(sim.schema, **options)
        made[name] = attack(plan, train, holdout, folder / name, targets=20, runs=16)
    return made


@pytest.mark.attack
def test_without_noise_outliers_are_found_and_with_it_they_are_not(exposures: dict[str, Exposure]) -> None:
    for decile in (None, 10):
        line = found_in(exposures["bare"], method=UNIFORM, attack="shadow runs, release", decile=decile)
        assert line.area.low > 0.75
        for name in ("distance", "density ratio", "measured cells", "shadow runs, table"):
            line = found_in(exposures["private"], method=REPS, attack=name, decile=decile)
            assert line.verdict.startswith("no better than guessing")


@pytest.mark.attack
def test_every_line_is_judged_and_stamped(exposures: dict[str, Exposure]) -> None:
    for exposure in exposures.values():
        assert not exposure.publishable
        assert "PRIVATE" in exposure.note
        assert not exposure.exceeded
        assert {line.method for line in exposure.lines} == {REPS, UNIFORM}
        assert {line.decile for line in exposure.lines} == {None, *range(1, 11)}
        assert len({line.attack for line in exposure.lines}) == 7
        assert {guess.kind for guess in exposure.guesses} == {"singling out", "linking", "inferring"}
        for line in exposure.lines:
            assert line.verdict
            assert line.area.low <= line.area.value <= line.area.high
            if line.rate_at_1:
                assert line.rate_at_1.low <= line.rate_at_1.value <= line.rate_at_1.high


@pytest.mark.attack
@pytest.mark.parametrize("width", [80, 120])
def test_an_interval_stays_on_its_line(width: int, exposures: dict[str, Exposure]) -> None:
    printed = io.StringIO()
    render.exposure(Console(file=printed, width=width), exposures["private"], Path("attack"))
    lines = printed.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    line = found_in(exposures["private"], method=UNIFORM, attack="distance", decile=10)
    shown = f"{line.area.value:.2f} [{math.floor(100 * line.area.low) / 100:.2f}, "
    shown += f"{math.ceil(100 * line.area.high) / 100:.2f}]"
    assert any(text.startswith("distance ") and shown in text for text in lines)


@pytest.mark.attack
def test_planned_weights_protect_the_most_outlying(exposures: dict[str, Exposure]) -> None:
    top = {m: found_in(exposures["private"], method=m, attack=BEST, decile=10) for m in (REPS, UNIFORM)}
    assert top[REPS].advantage.value < 0.8 * top[UNIFORM].advantage.value


def test_uniform_weights_are_not_attacked_twice(sim: datasets.Dataset) -> None:
    assert list(methods_of(plan_for(sim.schema, weights="uniform"))) == [UNIFORM]
    assert list(methods_of(plan_for(sim.schema), power=True)) == [BARE, UNIFORM, REPS]
    assert methods_of(plan_for(sim.schema), power=True)[BARE].mu > 1000
    both = methods_of(plan_for(sim.schema, outlier_epsilon=2.0))
    assert both[UNIFORM].mu == both[REPS].mu
    assert both[UNIFORM].model == both[REPS].model


@pytest.mark.attack
def test_too_little_noise_is_noticed(
    sim: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mechanism that claims ten times less than it gives away."""
    draw = noise.rounded_gaussian
    monkeypatch.setattr(noise, "rounded_gaussian", lambda sigma, size, entropy: draw(sigma / 10, size, entropy))
    plan = plan_for(sim.schema, weights="uniform", epsilon=1.0)
    found = attack(plan, sim.table.slice(0, 300), None, tmp_path / "a", targets=20, runs=24)
    assert found.exceeded
    assert "all others known" in {line.attack for line in found.lines if line.exceeded}


def test_a_claim_that_is_exceeded_for_one_decile_is_exceeded(victims: Victims) -> None:
    """Scores that give away the most outlying alone, and hide them among those of the others."""
    generator = np.random.default_rng(0)
    campaign = Campaign({REPS: plan_for(victims.schema)}, victims, runs=64, seed=0)
    top, results = victims.deciles == 9, []
    for run_number in range(campaign.runs):
        present = coins(0, run_number, victims.targets.rows)
        known = np.where(top, np.where(present, 1.0, -1.0), generator.normal(0, 100, len(top)))
        guessed = {name: generator.normal(size=len(top)) for name in ("distance", "stage one")}
        results.append({"present": present, "influence": np.ones(len(top)), "known": known, **guessed})
    found = summarise(campaign, {REPS: results})
    assert {(line.attack, line.decile) for line in found.lines if line.exceeded} == {("all others known", 10)}
    assert found.exceeded


# --- runs are kept


@pytest.mark.attack
def test_a_second_start_goes_on(sim: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victims = choose_victims(sim.table.slice(0, 200), None, sim.schema, targets=10, seed=0)
    campaign = Campaign(methods_of(plan_for(sim.schema)), victims, 8, 0)
    whole = carry_out_all(campaign, tmp_path / "whole")

    done = 0

    def kill() -> None:
        nonlocal done
        done += 1
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        carry_out_all(campaign, tmp_path / "killed", on_done=kill)
    made: list[Any] = []
    original = Campaign.carry_out
    monkeypatch.setattr(Campaign, "carry_out", lambda self, *task: made.append(task) or original(self, *task))
    begun: list[Any] = []
    again = carry_out_all(campaign, tmp_path / "killed", on_begin=lambda *counts: begun.append(counts))
    assert begun == [(5, 16)]
    assert len(made) == 11
    assert summarise(campaign, again) == summarise(campaign, whole)
    # A damaged file is made again, and nothing else.
    next((tmp_path / "killed" / "runs").glob("*.npz")).write_bytes(b"nothing")
    carry_out_all(campaign, tmp_path / "killed")
    assert len(made) == 12
    # More runs go on from those that are there.
    carry_out_all(replace(campaign, runs=10), tmp_path / "killed")
    assert len(made) == 16


@pytest.mark.attack
def test_a_process_that_was_killed_goes_on(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    started = subprocess.Popen([sys.executable, "-m", "repsynth", *_COMMAND, *_SMALL, "--runs", "400"])
    try:
        while len(list(Path("out/runs").glob("*.npz"))) < 3:
            assert started.poll() is None
            time.sleep(0.1)
    finally:
        started.kill()
        started.wait()
    kept = {path: path.stat().st_mtime_ns for path in Path("out/runs").glob("*.npz")}
    assert main([*_COMMAND, *_SMALL, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == 8
    assert all(path.stat().st_mtime_ns == made for path, made in kept.items())
    assert len(list(Path("out/runs").glob("*.npz"))) >= 16


@pytest.mark.attack
def test_runs_of_other_settings_are_not_mixed(sim: datasets.Dataset, tmp_path: Path) -> None:
    table = sim.table.slice(0, 200)
    attack(plan_for(sim.schema), table, None, tmp_path / "a", targets=10, runs=8)
    with pytest.raises(ConfigError, match="other settings"):
        attack(plan_for(sim.schema, epsilon=3.0), table, None, tmp_path / "a", targets=10, runs=8)
    with pytest.raises(ConfigError, match="other settings"):
        attack(plan_for(sim.schema), sim.table.slice(0, 199), None, tmp_path / "a", targets=10, runs=8)
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0


@pytest.mark.attack
def test_processes_give_the_same_result(sim: datasets.Dataset, tmp_path: Path) -> None:
    plan, table, others = plan_for(sim.schema), sim.table.slice(0, 200), sim.table.slice(500, 200)
    one, two = (
        attack(plan, table, others, tmp_path / str(jobs), targets=10, runs=8, jobs=jobs) for jobs in (1, 2)
    )
    assert one == two


@pytest.mark.attack
@pytest.mark.parametrize("model", ["mst", "aim", "autoregressive"])
def test_every_model_can_be_attacked(model: str, sim: datasets.Dataset, tmp_path: Path) -> None:
    extra = {"epochs": 2.0, "sampling_rate": 0.5} if model == "autoregressive" else {}
    plan = plan_for(sim.schema, model=model, **extra)
    found = attack(plan, sim.table.slice(0, 200), sim.table.slice(500, 200), tmp_path / "a", targets=10, runs=8)
    # The rounds of a training are not watched, so there is no exact likelihood ratio.
    assert len({line.attack for line in found.lines}) == (6 if model == "autoregressive" else 7)
    assert not found.exceeded


# --- the command


@pytest.fixture
def files(sim: datasets.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(sim.table.slice(0, 300), "train.csv")
    pacsv.write_csv(sim.table.slice(250, 300), "others.csv")
    Path("schema.toml").write_text(datasets.schema_text("sim"), encoding="utf-8")
    return tmp_path


_COMMAND = ["attack", "--train", "train.csv", "--holdout", "others.csv", "--schema", "schema.toml"]
_SMALL = ["--epsilon", "1", "--model", "naive-bayes", "--targets", "10", "--runs", "8", "--jobs", "1", "-o", "out"]


@pytest.mark.attack
@pytest.mark.smoke
def test_the_command_says_who_is_exposed(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_COMMAND, *_SMALL]) == 0
    printed = capsys.readouterr().out
    for part in ("PRIVATE", "most outlying tenth", "best possible", "guessing", "50 of 300 rows"):
        assert part in printed
    assert main([*_COMMAND, *_SMALL, "--full"]) == 0
    assert "singling out" in capsys.readouterr().out
    assert main([*_COMMAND, *_SMALL, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["publishable"] is False
    assert data["exceeded"] is False
    stored = json.loads((files / "out" / "exposure.json").read_text(encoding="utf-8"))
    assert stored == {name: value for name, value in data.items() if name not in ("answer", "auc_noticeable")}


@pytest.mark.attack
def test_the_command_shows_its_power(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_COMMAND, *_SMALL, "--power", "--full"]) == 0
    printed = capsys.readouterr().out
    known = [line for line in printed.splitlines() if line.startswith("all others known")]
    assert len(known) == 3  # the most outlying, all, and what this attacker has
    assert all("no noise" in line and "1.00 [" in line for line in known[:2])


@pytest.mark.attack
def test_the_command_refuses_what_it_cannot_do(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*_COMMAND, *_SMALL, "--runs", "3"]) == 2
    assert "--runs 8" in capsys.readouterr().err
    Path("file").write_text("", encoding="utf-8")
    assert main([*_COMMAND, *_SMALL, "-o", "file"]) == 2
    assert "name another folder" in capsys.readouterr().err


def test_private_runs_are_not_put_beside_other_files(sim: datasets.Dataset, tmp_path: Path) -> None:
    """A release folder is published as a whole."""
    (tmp_path / "release.json").write_text("{}")
    mode = tmp_path.stat().st_mode
    for place in (tmp_path, tmp_path / "attack"):
        with pytest.raises(ConfigError, match="inside a release folder, which may be published"):
            attack(plan_for(sim.schema, epsilon=1.0), sim.table.slice(0, 200), None, place, targets=5, runs=8)
    assert [path.name for path in tmp_path.iterdir()] == ["release.json"]
    assert tmp_path.stat().st_mode == mode
