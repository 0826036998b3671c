"""Tables of three columns in `aim`: found where only they show a dependence, private, and checked when loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import check_contribution, check_replay, record_run, records_of, rewritten

from repsynth.data.records import Records
from repsynth.data.sources import open_source
from repsynth.errors import ReleaseError
from repsynth.mechanism.kernels import Chosen
from repsynth.columns.groups import how_many, how_many_coarse
from repsynth.models.marginal.model import MarginalFit
from repsynth.models.marginal.raked import Pool, pool_size
from repsynth.models.marginal.rounds import most_tables
from repsynth.models.marginal.shrinkage import NoisyTable, shrunk
from repsynth.models.marginal.tables import Tables
from repsynth.models.marginal.views import Views
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.schema import Boolean, Integer, Schema
from repsynth.scoring.weights import FULL, WeightFunction

SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        *(Boolean(name=name) for name in ("left", "right", "up", "down", "odd")),
        Integer(name="age", min=0, max=99),
        Boolean(name="answer"),
    ),
    label="answer",
)


def puzzle(rows: int, seed: int = 0) -> pa.Table:
    """The answer says whether left and right differ; odd, whether up and down do. No pair of columns shows it."""
    generator = np.random.default_rng(seed)
    left, right, up, down = generator.random((4, rows)) < 0.5
    columns = {"left": left, "right": right, "up": up, "down": down, "odd": up ^ down}
    return pa.table({**columns, "age": generator.integers(0, 100, rows), "answer": left ^ right})


def plan_of(model: str = "aim", **options: Any) -> Plan:
    return make_plan(SCHEMA, Settings.of(**{"mu": 20.0, "delta": 1e-6, "model": model, **options}))


def triples_of(release: Release) -> set[tuple[int, ...]]:
    assert isinstance(release.fit, MarginalFit)
    columns = len(SCHEMA.learned)
    return {
        tuple(i % columns for i in cross)
        for m in release.fit.measured
        for cross in m.tables.pairs
        if len(cross) == 3
    }


@pytest.fixture(scope="module")
def release() -> Release:
    table = puzzle(3000)
    return run(plan_of(public_rows=3000, weights="uniform", mu=1.0), open_source(table), noise_seed=1)


def test_what_only_three_columns_show_is_found_and_kept(release: Release) -> None:
    assert triples_of(release) >= {(0, 1, 6), (2, 3, 4)}
    made = release.sample(4000, seed=1)
    columns = {name: made[name].to_numpy() for name in made.column_names if name != "age"}
    assert np.mean((columns["left"] ^ columns["right"]) == columns["answer"]) > 0.95
    assert np.mean((columns["up"] ^ columns["down"]) == columns["odd"]) > 0.95
    tree = run(
        plan_of("mst", public_rows=3000, weights="uniform", mu=1.0), open_source(puzzle(3000)), noise_seed=1
    )
    missed = tree.sample(4000, seed=1)
    agrees = (missed["left"].to_numpy() ^ missed["right"].to_numpy()) == missed["answer"].to_numpy()
    assert np.mean(agrees) < 0.6


def test_a_record_moves_tables_of_three_columns_and_their_choice_by_its_weight() -> None:
    plan, table = plan_of(weights="cap"), puzzle(100)
    release, measured = record_run(plan, table)
    assert triples_of(release)
    for m in measured:
        check_contribution(m.statistic, records_of(table, SCHEMA))
    check_replay(plan, table, 17, (release, measured))


def faulty(total: Callable[..., Any], fault: str) -> Callable[..., Any]:
    """Tables whose triples, and these alone, have a fault."""

    def changed(self: Tables, records: Records) -> Any:
        found = total(self, records)
        everybody = replace(self, weights=WeightFunction(start=0, table=np.array([FULL])))
        other = 2 * found if fault == "counts twice" else total(everybody, records)
        three = np.repeat([len(cross) == 3 for cross in self.pairs], np.diff(self.starts))
        return np.where(three, other, found)

    return changed


@pytest.mark.parametrize("fault", ["counts twice", "without weights"])
def test_faults_in_triples_alone_are_caught(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, table = plan_of(weights="cap"), puzzle(100)
    monkeypatch.setattr(Tables, "total", faulty(Tables.total, fault))
    release, measured = record_run(plan, table)
    assert triples_of(release)
    weights = release.weights.of(release.score.of(records_of(table, SCHEMA)))
    with pytest.raises(AssertionError):
        check_replay(plan, table, int(np.argmin(weights)), (release, measured))


def test_the_choices_are_made_again_from_what_was_released(release: Release) -> None:
    """For audits and replays: the candidates, triples among them, and what was chosen."""
    kernels = release.fit.kernels()
    chosen = [kernel for kernel in kernels.values() if isinstance(kernel, Chosen) and kernel.chosen]
    found = {kernel.choice.tables.pairs[c] for kernel in chosen for c in kernel.chosen}  # type: ignore[attr-defined]
    assert sum(len(cross) == 3 for cross in found) >= 2


def test_a_release_with_triples_is_read_back_as_it_was(release: Release, tmp_path: Path) -> None:
    loaded = Release.load(release.save(tmp_path / "release"))
    assert triples_of(loaded) == triples_of(release)
    assert loaded.sample(50, seed=3).equals(release.sample(50, seed=3))


@pytest.mark.parametrize(
    ("where", "cross"),
    [
        ("tables 2", [0, 1, 6]),  # not in coarse groups
        ("tables 2", [8, 7, 13]),  # out of order
        ("tables 2", [7, 7, 13]),
        ("tables 2", [7, 8, 14]),  # no such column
        ("tables 2", [7, 8, 9, 13]),
        ("tables 2", [7]),
        ("tables", [7, 8, 13]),  # a forest has none
    ],
)
def test_triples_that_a_run_could_not_have_measured_are_refused(
    where: str, cross: list[int], release: Release, tmp_path: Path
) -> None:
    assert isinstance(release.fit, MarginalFit)
    tables: list[dict[str, Any]] = [
        m.tables.describe() | {"pairs": [*m.tables.pairs]} for m in release.fit.measured
    ]
    place = next(k for k, file in enumerate(tables) if file["name"] == where)
    tables[place]["pairs"][-1] = cross
    with pytest.raises(ReleaseError, match="not known"):
        Release.load(rewritten(release, tmp_path / "release", {}, fit={"tables": tables}))


def test_a_triple_too_large_for_its_noise_is_refused(tmp_path: Path) -> None:
    """Numbers have eight coarse groups: three of them make 512 cells, too many for so much noise."""
    numbers = tuple(Integer(name=name, min=0, max=99) for name in "abcd")
    schema = Schema(one_row_per_person=True, columns=(*numbers, Boolean(name="y")), label="y")
    generator = np.random.default_rng(0)
    table = pa.table({**{n: generator.integers(0, 100, 2000) for n in "abcd"}, "y": generator.random(2000) < 0.5})
    settings = Settings.of(mu=1.0, delta=1e-6, model="aim", public_rows=2000, weights="uniform")
    made = run(make_plan(schema, settings), open_source(table), noise_seed=1)
    assert isinstance(made.fit, MarginalFit)
    tables = [{"name": m.tables.name, "pairs": list(m.tables.pairs)} for m in made.fit.measured]
    tables[-1]["pairs"] = [(5, 6, 7)]
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(rewritten(made, tmp_path / "release", {}, fit={"tables": tables}))


def test_few_records_leave_no_triples_to_choose_from(release: Release) -> None:
    assert isinstance(release.fit, MarginalFit)
    views = Views.of_tables(release.fit.stage, release.fit.measured[0].tables, release.fit.fine)
    every = views.triples(1e-9)
    assert len(every) == 35
    assert views.triples(0.06 * 3000 / 8) == []
    some = views.triples(0.05 * 3000 / 16)
    assert 0 < len(some) < 35
    assert set(some) <= set(every)
    assert all(views.size(cross) <= 16 for cross in some)


def test_what_grows_with_the_records() -> None:
    """Groups, tables in a round and the pool: never fewer with more records, and not without bound."""
    sizes = [10**k for k in range(2, 11)]
    for grown in (
        [how_many(rows, 40.0, 2) for rows in sizes],
        [how_many_coarse(rows, 40.0) for rows in sizes],
        [most_tables(rows, 0.05) for rows in sizes],
        [pool_size(rows, columns=15, max_cells=2**26) for rows in sizes],
    ):
        assert grown == sorted(grown)
        assert grown[0] < grown[-1]
    assert pool_size(10**10, columns=15, max_cells=2**26) * (32 * 15 + 200) <= 16 * 2**26
    assert pool_size(10**10, columns=15, max_cells=2**40) == 4_000_000


def test_even_steps_through_a_pool_in_order_draw_nearer_to_its_masses(release: Release) -> None:
    pool = release.sampler
    assert isinstance(pool, Pool)
    drawn = pool.draw(2000, np.random.default_rng(0))
    wanted = pool.table((6, 0)).ravel()
    counts = np.bincount(drawn.codes["answer"] * 2 + drawn.codes["left"], minlength=4) / 2000
    assert np.abs(counts - wanted).max() < 0.003  # at random: about 0.01


# --- shrinkage ---


def test_without_noise_a_table_is_believed_and_pure_noise_is_not() -> None:
    generator = np.random.default_rng(0)
    expected = np.full((12, 10), 1 / 120)
    truth = generator.dirichlet(np.full(120, 0.5)).reshape(12, 10)
    exact = shrunk(expected, NoisyTable(truth * 1e4, np.full((12, 10), 1e-6)), 1e4, least=0.0)
    assert exact == pytest.approx(truth, abs=1e-5)
    noise = generator.normal(0, 20, (12, 10))
    nothing = shrunk(expected, NoisyTable(expected * 1e4 + noise, np.full((12, 10), 400.0)), 1e4, least=0.0)
    assert np.abs(nothing - expected).sum() < 0.2 * np.abs(noise).sum() / 1e4


@pytest.mark.parametrize("kind", ["few cells", "one direction"])
def test_shrinking_leaves_less_error_than_one_factor_would(kind: str) -> None:
    generator = np.random.default_rng(1)
    expected = np.full((15, 15), 1 / 225)
    rest = np.outer(*generator.normal(0, 0.1, (2, 15)))
    if kind == "few cells":
        rest = np.where(generator.random((15, 15)) < 0.05, 0.03, 0.0)
    noise = generator.normal(0, 1.0, (15, 15)) * 40 / 1e4
    table = NoisyTable((expected + rest + noise) * 1e4, np.full((15, 15), 1600.0))
    found = shrunk(expected, table, 1e4, least=-np.inf)
    factor = float((rest**2).sum() / ((rest**2).sum() + 225 * (40 / 1e4) ** 2))
    assert np.abs(found - expected - rest).sum() < 0.85 * np.abs(factor * (rest + noise) - rest).sum()


def test_where_one_column_follows_from_another_cells_that_are_empty_stay_so() -> None:
    generator = np.random.default_rng(3)
    margin = generator.dirichlet(np.full(16, 2.0))
    expected, truth = np.outer(margin, margin), np.diag(margin)
    table = NoisyTable(truth * 3e4 + generator.normal(0, 30, (16, 16)), np.full((16, 16), 900.0))
    found = shrunk(expected, table, 3e4, least=0.01)
    assert np.abs(found - truth).sum() / 2 < 0.02  # noise alone: 0.1
