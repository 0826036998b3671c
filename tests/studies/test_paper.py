"""The paper's study: its attacks, its mechanism, its statistics, and a small run of all of it.

Splits, simulated tables, noise and samples come from fixed seeds.
"""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from repsynth import datasets
from repsynth.evaluation.points import Points, advantage_of, make_attacks, nearest
from repsynth.planning.plan import make_plan
from studies.paper import STAMP, grid, literal, sound, study, summary, tabulate
from studies.paper.__main__ import main
from studies.paper.figures import write_figures
from studies.paper.grid import Cell, make_grid
from studies.paper.results import Result, scorer_quality
from studies.paper.study import Stored, run_study
from studies.split import advantage_by_decile, load_split, make_targets, points_of, tstr

ROOT = Path(__file__).parents[2]


def test_an_attack_on_a_copy_of_the_members_finds_them_all() -> None:
    targets = make_targets("sim", 0, None)
    members = targets.places[targets.member]
    attacks = make_attacks(nearest(targets.places, members), targets.to_reference)
    assert advantage_of(attacks.distance, targets.member) == 1.0
    assert min(advantage_by_decile(attacks.density, targets.member, targets.deciles)) > 0.5


def test_an_attack_on_independent_records_is_at_chance() -> None:
    targets = make_targets("sim", 0, None)
    fresh = points_of(datasets.simulate(3360, seed=99), load_split("sim", 0, None).schema)
    attacks = make_attacks(nearest(targets.places, targets.space.place(fresh)), targets.to_reference)
    # One standard error of 2 AUC − 1 is about 2/√(6n) for n members and n others; four of them, for fixed seeds.
    everybody, decile = len(targets.member) / 2, len(targets.member) / 20
    assert abs(advantage_of(attacks.distance, targets.member)) < 8 / np.sqrt(6 * everybody)
    assert abs(advantage_of(attacks.density, targets.member)) < 8 / np.sqrt(6 * everybody)
    for advantage in advantage_by_decile(attacks.density, targets.member, targets.deciles):
        assert abs(advantage) < 8 / np.sqrt(6 * decile)


def test_targets_are_drawn_alike_and_the_reference_holds_none_of_them() -> None:
    targets, split = make_targets("sim", 0, None), load_split("sim", 0, None)
    assert targets.member.sum() * 2 == len(targets.member)
    assert len(set(targets.trained.tolist())) == targets.member.sum()
    assert targets.places[targets.member] == pytest.approx(targets.space.place(split.train.take(targets.trained)))
    assert targets.to_reference.min() > 0  # nobody finds himself
    sizes = np.bincount(targets.deciles)
    assert sizes.tolist() == [len(targets.member) / 10] * 10
    # Members do not crowd in any decile: four standard errors of a share, for a fixed seed.
    shares = np.bincount(targets.deciles, targets.member) / sizes
    assert np.abs(shares - 0.5).max() < 4 * 0.5 / np.sqrt(sizes[0])


def test_a_scorer_that_ranks_as_the_neighbours_do_is_perfect_and_a_constant_one_is_not() -> None:
    outlying = np.random.default_rng(0).random(200)
    assert scorer_quality(np.exp(outlying), outlying) == (pytest.approx(1.0), 1.0)
    assert scorer_quality(-outlying, outlying) == (pytest.approx(-1.0), 0.0)
    assert scorer_quality(np.zeros(200), outlying)[0] == 0.0


def tiny_split(seed: int = 0) -> literal.LiteralSplit:
    """Three parts of 200 records, all from the same normal distribution."""
    generator = np.random.default_rng(seed)

    def part() -> Points:
        return Points(
            generator.normal(size=(200, 4)), np.zeros((200, 0), dtype=np.int64), generator.integers(0, 2, 200), ()
        )

    return literal.LiteralSplit(part(), part(), part())


def test_including_a_record_in_its_own_reference_tells_members_from_others_by_itself() -> None:
    split = tiny_split()
    published = literal.make_literal_targets(split.train, split)
    assert published.to_reference[~published.member, 0].max() == 0.0
    assert np.mean(published.attack(None)[0]) > 0.7
    # Records that nothing was made from do as well as members.
    strangers = literal.make_literal_targets(split.validation, split)
    assert np.mean(strangers.attack(split.train)[0]) > 0.5
    # The same attack with a reference of other records is at chance: four standard errors, for fixed seeds.
    reference = tiny_split(seed=1).test
    places = published.places
    attacks = make_attacks(np.ones((len(places), 1)), nearest(places, published.space.place(reference)))
    assert abs(advantage_of(attacks.density, published.member)) < 8 / np.sqrt(6 * 200)


def test_without_noise_and_with_equal_weights_the_fit_is_the_plain_one() -> None:
    train = literal.load_literal("sim", 0, None).train
    model = literal.fit(train, np.ones(len(train)), None, 1e-6, np.random.default_rng(0))
    z = np.clip(train.numbers, -3, 3)
    for label in (0, 1):
        chosen = train.labels == label
        assert model.labels[label] == pytest.approx(chosen.mean())
        assert model.mean[label] == pytest.approx(z[chosen].mean(axis=0), abs=1e-8)
        assert model.deviation[label] == pytest.approx(z[chosen].std(axis=0), abs=1e-6)
        assert model.categories[0][label] == pytest.approx(np.bincount(train.codes[chosen, 0]) / chosen.sum())


def test_the_classical_noise() -> None:
    assert literal.classical_sigma(2.0, 0.5, 1e-5) == pytest.approx(2 * np.sqrt(2 * np.log(1.25e5)) / 0.5)


def test_the_literal_weights_fall_above_the_ninetieth_percentile_only() -> None:
    scores = np.arange(1000.0)
    weights = literal.weights_of(scores, 0.5)
    assert (weights < 1).mean() == pytest.approx(0.1, abs=0.002)
    assert weights[-1] == pytest.approx(np.exp(-0.5 * (999 - np.quantile(scores, 0.9))))


def test_all_private_methods_have_the_same_budget() -> None:
    split = load_split("sim", 0, None)
    charges = {}
    for method in grid.METHODS:
        epsilon = None if method == "non-private" else 1.0
        plan = make_plan(split.schema, sound.settings_of(Cell("sound", "sim", 0, epsilon, method), 3360))
        charges[method] = plan.charges
        if epsilon:
            assert plan.budget.epsilon == pytest.approx(1.0)
            assert plan.budget.delta == 1 / 3360**2
    assert "scores" not in charges["uniform"]
    assert charges["uniform-split"] == charges["reps"] == charges["random"] == charges["removal"]


def test_reps_lowers_the_best_attack_on_the_top_decile_and_random_weights_do_so_less() -> None:
    with threadpool_limits(1):
        sound_results = {
            m: sound.run_sound(Cell("sound", "sim", 0, 4.0, m), None) for m in ("uniform", "reps", "random")
        }
    top = {method: result.white_box[-1] for method, result in sound_results.items() if result.white_box}
    assert top["reps"] < 0.55 * top["uniform"]
    assert top["reps"] < 0.7 * top["random"]
    assert sound_results["reps"].recall is not None
    assert sound_results["reps"].recall > 0.3
    assert sound_results["uniform"].tstr > 0.73


def test_utility_of_the_real_records_and_of_one_label() -> None:
    split = load_split("sim", 0, None)
    assert tstr(split.train, split.test) > 0.73
    assert tstr(split.train.take(split.train.labels == 1), split.test) == 0.5


def fake(cell: Cell, data_dir: str | None) -> Result:
    """A result that tells its cell: TSTR rises with ε and seed."""
    value = (cell.epsilon or 0) / 10 + cell.seed / 100 + (0.05 if cell.method == "reps" else 0.0)
    curve = [value] * 10
    scored = 0.5 if cell.method == "reps" else None
    return Result(
        tstr=value, mia=0.0, top=value / 2, ratio=1.0, by_decile=curve, distance_by_decile=curve,
        white_box=curve, correlation=scored, recall=scored,
    )  # fmt: skip


@pytest.fixture
def outcomes() -> list[Stored]:
    return [Stored(cell, 0.0, fake(cell, None)) for cell in make_grid("sound", datasets=["sim"], seeds=3)]


@pytest.mark.nightly  # six methods at one budget: 13 CPU s
def test_a_small_study_runs_from_the_repository(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "studies.paper", "--datasets", "sim", "--epsilons", "1", "--seeds", "1"]
    command += ["--jobs", "2", "-o", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list((tmp_path / "cells").iterdir())) == 6
    assert STAMP in (tmp_path / "sound" / "tables.md").read_text()
    assert (tmp_path / "sound" / "figures" / "utility.svg").is_file()


def test_a_study_is_resumed_and_a_damaged_result_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = make_grid("sound", datasets=["sim"], epsilons=[1.0], seeds=1)
    monkeypatch.setattr(study, "run_sound", fake)
    first = run_study(cells, tmp_path)
    assert [stored.cell for stored in first] == list(cells)
    damaged = next(path for path in tmp_path.iterdir() if f'"{cells[0].method}"' in path.read_text())
    damaged.write_text("{")
    ran = []
    monkeypatch.setattr(study, "run_sound", lambda cell, data_dir: ran.append(cell) or fake(cell, data_dir))
    assert [stored.result for stored in run_study(cells, tmp_path)] == [stored.result for stored in first]
    assert ran == [cells[0]]


@pytest.mark.parametrize("asked", ["--datasets iris", "--datasets adult --data-dir .", "--seeds 0"])
def test_what_cannot_run_is_refused_in_one_line(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*asked.split(), "-o", "out"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1


def test_a_failure_is_kept_shown_and_not_hidden_in_a_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sometimes(cell: Cell, data_dir: str | None) -> Result:
        if cell.method == "reps" and cell.seed == 1:
            raise ValueError("a message that may quote data")
        return fake(cell, data_dir)

    monkeypatch.setattr(study, "run_sound", sometimes)
    monkeypatch.setattr("studies.paper.__main__.write_figures", lambda *_: [])
    asked = ["--datasets", "sim", "--epsilons", "1", "--seeds", "2", "--jobs", "1", "-o", str(tmp_path)]
    for _ in range(2):
        assert main(asked) == 1
        printed = capsys.readouterr().out
        assert "REPS (1 failed)" in printed
        assert "failed: sim, reps, ε = 1, seed 1: ValueError in sometimes" in printed
        assert "quote data" not in printed
    assert "(1 failed)" in (tmp_path / "sound" / "tables.md").read_text()
    monkeypatch.setattr(study, "run_sound", fake)  # whatever it was has passed
    assert main(asked) == 0
    assert "failed" not in capsys.readouterr().out


def test_other_data_are_other_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = make_grid("sound", datasets=["sim"], epsilons=[1.0], seeds=1)
    monkeypatch.setattr(study, "run_sound", fake)
    run_study(cells, tmp_path)
    changed = datasets.load("sim")
    monkeypatch.setattr(
        study.datasets,
        "load",
        lambda name, data_dir: datasets.Dataset(name, changed.table.slice(1), changed.schema),
    )
    run_study(cells, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * len(cells)


def test_the_published_tables_are_whole() -> None:
    known = summary.published()
    assert len(known) == 4 * 4 * 6
    assert all(set(values) >= {"tstr", "mia", "top", "ratio"} for values in known.values())
    assert known["german_credit", 4.0, "removal"] == {
        "gamma": 4.0, "tstr": 0.682, "mia": 0.044, "top": 0.961, "ratio": 0.986,
    }  # fmt: skip


def test_means_errors_and_paired_differences(outcomes: list[Stored]) -> None:
    found = summary.summarise(outcomes)
    row = next(r for r in found.rows if (r.epsilon, r.method) == (2.0, "uniform"))
    assert row.means["tstr"].mean == pytest.approx(0.21)
    assert row.means["tstr"].error == pytest.approx(0.01 / np.sqrt(3))
    tstr_differences = [d for d in found.differences if (d.baseline, d.measure) == ("uniform", "tstr")]
    assert len(tstr_differences) == 5  # four budgets and all of them
    for difference in tstr_differences:
        assert (difference.low, difference.mean, difference.high) == pytest.approx((0.05, 0.05, 0.05))
        assert difference.distinguishable
    assert "TSTR AUROC +0.050 [+0.050, +0.050], distinguishable" in found.sentences[0]
    gaps = [abs(r.means["tstr"].mean - r.published["tstr"]) for r in found.rows if r.method != "non-private"]
    assert found.agreement["sim"]["tstr"] == pytest.approx(np.mean(gaps))


def test_a_difference_over_all_budgets_counts_each_seed_once(outcomes: list[Stored]) -> None:
    """Budgets of one split are not independent: more of them must not make the interval narrower by themselves."""
    shifted = []
    for stored in outcomes:
        assert stored.result
        lift = stored.cell.seed / 10 if stored.cell.method == "reps" else 0.0
        shifted.append(
            Stored(stored.cell, 0.0, msgspec.structs.replace(stored.result, tstr=stored.result.tstr + lift))
        )
    found = summary.summarise(shifted).differences
    one, every = (
        next(d for d in found if (d.epsilon, d.baseline, d.measure) == (e, "uniform", "tstr")) for e in (1.0, None)
    )
    assert every.high - every.low == pytest.approx(one.high - one.low)


def test_one_seed_makes_no_claim(outcomes: list[Stored]) -> None:
    found = summary.summarise([stored for stored in outcomes if stored.cell.seed == 0])
    assert not found.differences
    assert not found.sentences
    assert "inf" not in tabulate.to_markdown(found)


def test_bars_of_figures_are_intervals_over_the_splits(
    outcomes: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {}
    monkeypatch.setattr(
        "studies.paper.figures.save_figure", lambda base, figure: figures.update({base: figure}) or []
    )
    write_figures(found := summary.summarise(outcomes), tmp_path)
    drawn = {base.name: figure for base, figure in figures.items()}
    assert all(f"95 % interval of {found.seeds} splits" in figure.get_suptitle() for figure in drawn.values())
    # Each line of each panel: a bar over every decile, as long as the interval of the values that it is made of.
    rows = [row for row in found.rows if row.epsilon == 4.0 and "by_decile" in row.deciles]
    lines = [line for axes in drawn["attack-by-decile-4"].axes for line in axes.containers]
    assert len(lines) == len(rows) > 0
    for line, row in zip(lines, rows, strict=True):
        budget = None if row.method == "non-private" else row.epsilon
        runs = [
            stored.result.by_decile
            for stored in outcomes
            if stored.result
            and (stored.cell.dataset, stored.cell.epsilon, stored.cell.method) == (row.dataset, budget, row.method)
        ]
        bars = line.lines[2][0].get_segments()
        for bar, values in zip(bars, zip(*runs, strict=True), strict=True):
            assert bar[:, 1] == pytest.approx(summary.interval(values))
