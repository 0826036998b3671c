"""The study: attacks that know nothing find nothing, killed runs go on, failures stay failures.

Splits, simulated tables, noise and samples are all drawn from fixed seeds: nothing here is left to chance.
"""

import json
import multiprocessing
import signal
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import msgspec
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from repsynth import datasets
from repsynth.cli import main
from repsynth.errors import ConfigError, DataError
from repsynth.evaluation import nearest as nearest_module
from repsynth.evaluation.matrix import Points, Space, points_of
from repsynth.evaluation.nearest import (
    advantage_by_decile,
    advantage_of,
    deciles_of,
    make_attacks,
    nearest,
    outlyingness,
)
from repsynth.evaluation.split import load_split, make_targets
from repsynth.evaluation.utility import tstr
from repsynth.paper import STAMP, grid, literal, nulls, sound, study, summary, tabulate
from repsynth.paper.figures import write_figures
from repsynth.paper.grid import Cell, make_grid
from repsynth.paper.results import Result, scorer_quality
from repsynth.paper.study import Stored, run_study
from repsynth.planning.plan import make_plan

# --- attacks ---


def plain_distances(queries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """All distances of each query, rising, as one would write it down."""
    return np.sort(np.sqrt(np.square(others[None] - queries[:, None]).sum(axis=2)), axis=1)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
def test_the_distance_to_a_copy_is_exactly_zero(spread: float) -> None:
    generator = np.random.default_rng(0)
    others = spread + generator.normal(size=(700, 30))  # the larger the spread, the more an expanded square loses
    queries = np.vstack([others[::3], spread + generator.normal(size=(50, 30))])
    found = nearest(queries, others)
    assert not found[:-50, 0].any()
    assert found[:-50, 1].min() > 0
    assert np.array_equal(found, plain_distances(queries, others)[:, :5])
    twice = np.vstack([np.repeat(others[:40], 12, axis=0), others[40:]])
    assert np.array_equal(outlyingness(twice) == 0, np.arange(len(twice)) < 480)
    assert outlyingness(others) == pytest.approx(plain_distances(others, others)[:, 1:11].mean(axis=1), rel=1e-15)


def test_neither_rounding_in_the_search_nor_blocks_change_a_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another processor's rounding does to the candidates: the nearest may stand behind others."""
    generator = np.random.default_rng(0)

    def clusters(size: int) -> np.ndarray:
        """Places of which each has two copies, and the rest of its cluster closer by than the search can tell."""
        centres, near = generator.normal(size=(30, 4)), generator.uniform(-1e-5, 1e-5, size=(size - 3, 30, 4))
        return np.vstack([generator.normal(size=(200, 4)), centres, centres, centres, *(centres + near)])

    others, places = clusters(9), clusters(13)
    queries = np.vstack([others[150:300], generator.normal(size=(100, 4))])
    expected, outlying = nearest(queries, others), outlyingness(places)
    assert np.array_equal(expected, plain_distances(queries, others)[:, :5])
    assert outlying == pytest.approx(plain_distances(places, places)[:, 1:11].mean(axis=1), rel=1e-14)

    class Rounding:
        def __init__(self, n_neighbors: int, algorithm: str) -> None:
            self.count = n_neighbors

        def fit(self, places: np.ndarray) -> "Rounding":
            self.places = places
            return self

        def kneighbors(self, queries: np.ndarray | None = None, *, return_distance: bool) -> np.ndarray:
            assert not return_distance
            asked = self.places if queries is None else queries
            squares = np.square(self.places[None] - asked[:, None]).sum(axis=2)
            squares += generator.uniform(-1e-9, 1e-9, squares.shape)
            if queries is None:
                np.fill_diagonal(squares, np.inf)
            return np.argsort(squares, axis=1)[:, : self.count]

    monkeypatch.setattr(nearest_module, "NearestNeighbors", Rounding)
    assert np.array_equal(nearest(queries, others), expected)
    assert np.array_equal(outlyingness(places), outlying)
    monkeypatch.setattr(nearest_module, "_BLOCK", 1)
    assert np.array_equal(nearest(queries, others), expected)
    assert np.array_equal(outlyingness(places), outlying)


def test_few_others_have_few_neighbours() -> None:
    places = np.array([[0.0], [3.0], [1.0]])
    assert nearest(places, places).tolist() == [[0.0, 1.0, 3.0], [0.0, 2.0, 3.0], [0.0, 1.0, 2.0]]
    assert outlyingness(places).tolist() == [2.0, 2.5, 1.5]


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


def test_deciles_go_by_rank() -> None:
    values = np.array([5.0, 1.0, 9.0, 7.0, 3.0, 2.0, 8.0, 6.0, 4.0, 0.0])
    assert deciles_of(values).tolist() == [5, 1, 9, 7, 3, 2, 8, 6, 4, 0]
    assert np.bincount(deciles_of(np.zeros(57))).tolist() == [6, 6, 6, 5, 6, 6, 5, 6, 6, 5]


def test_the_most_outlying_record_is_the_one_far_away() -> None:
    places = np.vstack([np.random.default_rng(0).normal(size=(50, 3)), [[9.0, 9.0, 9.0]]])
    assert np.argmax(outlyingness(places)) == 50
    assert outlyingness(places).min() > 0


@pytest.mark.parametrize(
    ("attack", "expected"), [([4, 3, 2, 1], 1.0), ([1, 2, 3, 4], -1.0), ([1, 1, 1, 1], 0.0), ([4, 1, 3, 2], 0.0)]
)
def test_advantage(attack: list[float], expected: float) -> None:
    member = np.array([True, True, False, False])
    assert advantage_of(np.array(attack, dtype=float), member) == expected


def test_a_scorer_that_ranks_as_the_neighbours_do_is_perfect_and_a_constant_one_is_not() -> None:
    outlying = np.random.default_rng(0).random(200)
    assert scorer_quality(np.exp(outlying), outlying) == (pytest.approx(1.0), 1.0)
    assert scorer_quality(-outlying, outlying) == (pytest.approx(-1.0), 0.0)
    assert scorer_quality(np.zeros(200), outlying)[0] == 0.0


# --- the published attack where there is nothing to find ---


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
    assert advantage_by_decile_mean(published.attack(None)[0]) > 0.7
    # Records that nothing was made from do as well as members.
    strangers = literal.make_literal_targets(split.validation, split)
    assert advantage_by_decile_mean(strangers.attack(split.train)[0]) > 0.5
    # The same attack with a reference of other records is at chance: four standard errors, for fixed seeds.
    reference = tiny_split(seed=1).test
    places = published.places
    attacks = make_attacks(np.ones((len(places), 1)), nearest(places, published.space.place(reference)))
    assert abs(advantage_of(attacks.density, published.member)) < 8 / np.sqrt(6 * 200)


def advantage_by_decile_mean(advantages: list[float]) -> float:
    return float(np.mean(advantages))


@pytest.mark.slow
def test_the_null_experiments_say_so() -> None:
    findings = nulls.run_nulls(["sim"], 2, None)
    by = {finding.experiment: finding for finding in findings.findings}
    assert by["constant distance"].mean > 0.7
    assert by["strangers as members"].mean > 0.6
    assert abs(by["disjoint reference"].mean) < 0.25
    assert all(finding.low <= finding.mean <= finding.high for finding in findings.findings)
    assert "does not look at the synthetic records" in findings.sentences[0]


# --- the paper's mechanism ---


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


def test_methods_share_their_scores_and_gamma() -> None:
    key = ("sim", 0, None)
    assert literal.chosen_gamma(*key, 4.0) in literal.GAMMAS
    split = literal.load_literal(*key)
    cells = [Cell("paper", "sim", 0, 4.0, method) for method in grid.METHODS if method != "non-private"]
    made = [literal.synthesize(cell, split, None, 4.0) for cell in cells]
    assert all(len(points) == len(split.train) for points in made)
    assert len({points.numbers.tobytes() for points in made}) == 5
    again = literal.synthesize(cells[0], split, None, 4.0)
    assert again.numbers.tobytes() == made[0].numbers.tobytes()


# --- the sound protocol ---


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


@pytest.fixture(scope="module")
def sound_results() -> dict[str, Result]:
    """Three cells, worked out in one thread."""
    with threadpool_limits(1):
        return {m: sound.run_sound(Cell("sound", "sim", 0, 4.0, m), None) for m in ("uniform", "reps", "random")}


def test_reps_lowers_the_best_attack_on_the_top_decile_and_random_weights_do_so_less(
    sound_results: dict[str, Result],
) -> None:
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


def test_missing_categories_have_no_place() -> None:
    points = Points(np.zeros((2, 1)), np.array([[-1], [1]]), np.zeros(2, dtype=np.int64), (3,))
    assert Space.of(points).place(points)[:, 1:].tolist() == [[0, 0, 0], [0, 1, 0]]


# --- the study ---


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


def test_every_cell_has_an_address_of_its_own() -> None:
    cells = make_grid("sound") + make_grid("paper")
    assert len({cell.address(b"data") for cell in cells}) == len(cells) == 840
    assert len({cell.noise_seed for cell in cells}) == 840


def test_other_code_and_other_data_have_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("sound", "sim", 0, 1.0, "reps")
    before = cell.address(b"data")
    assert cell.address(b"other data") != before
    monkeypatch.setattr(grid, "code_digest", lambda: b"other")
    assert cell.address(b"data") != before


@pytest.mark.parametrize(
    "wrong", [{"protocol": "x"}, {"datasets": ["iris"]}, {"seeds": 0}, {"epsilons": [0.0]}, {"epsilons": []}]
)
def test_a_wrong_grid_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        make_grid(**{"protocol": "sound", **wrong})  # type: ignore[arg-type]


def test_what_is_done_is_not_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = make_grid("sound", datasets=["sim"], epsilons=[1.0], seeds=1)
    monkeypatch.setattr(study, "run_sound", fake)
    first = run_study(cells, tmp_path)

    def broken(cell: Cell, data_dir: str | None) -> Result:
        raise AssertionError("run again")

    monkeypatch.setattr(study, "run_sound", broken)
    assert run_study(cells, tmp_path) == first
    assert [stored.cell for stored in first] == list(cells)
    assert all(STAMP in path.read_text() for path in tmp_path.iterdir())


def test_a_damaged_file_is_made_again_and_another_cell_s_file_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = make_grid("sound", datasets=["sim"], epsilons=[1.0], seeds=1)
    monkeypatch.setattr(study, "run_sound", fake)
    first = run_study(cells, tmp_path)
    paths = {json.loads(path.read_bytes())["cell"]["method"]: path for path in tmp_path.iterdir()}
    paths[cells[0].method].write_text("{")
    paths[cells[1].method].write_bytes(msgspec.json.encode(first[2]))
    again = run_study(cells, tmp_path)
    assert [stored.result for stored in again] == [stored.result for stored in first]


def test_a_failure_is_kept_shown_and_not_hidden_in_a_mean(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def sometimes(cell: Cell, data_dir: str | None) -> Result:
        if cell.method == "reps" and cell.seed == 1:
            raise ValueError("a message that may quote data")
        return fake(cell, data_dir)

    monkeypatch.setattr(study, "run_sound", sometimes)
    monkeypatch.setattr("repsynth.paper.figures.write_figures", _no_figures)
    asked = ["paper", "--datasets", "sim", "--epsilons", "1", "--seeds", "2", "--jobs", "1", "-o", str(tmp_path)]
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


def _no_figures(found: summary.Summary, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return []


KILLED = """
import os, signal, sys
from pathlib import Path
import msgspec
from repsynth.cli import main
from repsynth.paper import study

cells, write = 0, Path.write_bytes
result = msgspec.json.decode(sys.argv[2], type=study.Result)

def run_sound(cell, data_dir):
    global cells
    cells += 1
    if cells == 3 and sys.argv[1] == "at work":
        os.kill(os.getpid(), signal.SIGKILL)
    return result

def write_bytes(path, content):
    if cells == 3:
        write(path, content[: len(content) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return write(path, content)

study.run_sound, Path.write_bytes = run_sound, write_bytes
main(sys.argv[3:])
"""


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at work", "writing"])
def test_a_killed_study_goes_on_where_it_stopped(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in its third cell, each time at the same place. What it had till then is made up; the rest is worked
    out, figures and all, where it was killed at work."""
    asked = ["paper", "--datasets", "sim", "--epsilons", "1", "--seeds", "1", "--jobs", "1", "--json"]
    asked += ["-o", str(tmp_path)]
    result = msgspec.json.encode(fake(Cell("sound", "sim", 0, 1.0, "reps"), None)).decode()
    killed = subprocess.run([sys.executable, "-c", KILLED, when, result, *asked], capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    left = sorted((tmp_path / "cells").glob("*.json"))
    assert len(left) == 2
    before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in left}
    if when == "at work":
        command = [sys.executable, "-m", "repsynth", *asked]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    else:
        monkeypatch.setattr(study, "run_sound", fake)
        monkeypatch.setattr("repsynth.paper.figures.write_figures", _no_figures)
        assert main(asked) == 0
        printed = capsys.readouterr().out
    assert len(list((tmp_path / "cells").glob("*.json"))) == 6
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in left} == before
    assert json.loads(printed)["note"] == STAMP


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


@pytest.mark.parametrize("content", ["", "a,b\n1,2\n"])
def test_a_file_that_is_not_the_dataset_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "german_credit.csv").write_text(content)
    with pytest.raises(DataError, match=r"german_credit\.csv|column"):
        run_study(make_grid("sound", datasets=["german_credit"]), tmp_path / "out", data_dir=str(tmp_path))


@pytest.mark.parametrize("extra", [[], ["--nulls"]])
def test_a_folder_that_cannot_be_made_is_told_before_the_work(
    tmp_path: Path, extra: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(study, "run_sound", lambda *_: pytest.fail("it began to work"))
    monkeypatch.setattr(nulls, "top_advantages", lambda *_: pytest.fail("it began to work"))
    (tmp_path / "file").write_text("")
    assert main(["paper", "--datasets", "sim", *extra, "-o", str(tmp_path / "file")]) == 2
    assert "cannot be made" in capsys.readouterr().err


@pytest.mark.slow
def test_two_processes_find_what_one_finds(
    sound_results: dict[str, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "cpu_count", lambda: 2)  # one thread for each of two, and for one
    cells = [Cell("sound", "sim", 0, 4.0, method) for method in sound_results]
    two = run_study(cells, tmp_path, jobs=2)
    assert [stored.result for stored in two] == list(sound_results.values())


def test_data_that_cannot_be_had_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"adult\.csv"):
        run_study(make_grid("sound"), tmp_path / "out", data_dir=str(tmp_path))
    assert not (tmp_path / "out").exists()


# --- what it says ---


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


def test_tables_are_rectangular_and_carry_the_stamp(outcomes: list[Stored]) -> None:
    found = summary.summarise(outcomes)
    for table in tabulate.grids(found):
        assert all(row is None or len(row) == len(table.headings) for row in table.rows)
    markdown, latex = tabulate.to_markdown(found), tabulate.to_latex(found)
    assert STAMP in markdown
    assert "(.604)" in markdown  # the paper's value beside ours
    assert latex.count("\\begin{tabular}") == latex.count("\\end{tabular}") == len(tabulate.grids(found))
    for line in latex.splitlines():
        assert "%" not in line.replace("\\%", "") or line.startswith("%")


def test_bars_of_figures_are_intervals_over_the_splits(
    outcomes: list[Stored], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {}
    monkeypatch.setattr(
        "repsynth.paper.figures.save_figure", lambda base, figure: figures.update({base: figure}) or []
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


@pytest.mark.slow
def test_figures_are_pictures_and_the_same_every_time(outcomes: list[Stored], tmp_path: Path) -> None:
    found = summary.summarise(outcomes)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "stale.png").write_text("")
    written = write_figures(found, tmp_path / "a")
    assert not (tmp_path / "a" / "stale.png").exists()
    assert {path.stem for path in written} >= {
        "utility",
        "top-decile-attack",
        "best-attack-by-decile-4",
        "inequality",
    }
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG")
        else:
            assert ET.fromstring(content).tag.endswith("svg")
    for one, two in zip(written, write_figures(found, tmp_path / "b"), strict=True):
        assert one.read_bytes() == two.read_bytes()
