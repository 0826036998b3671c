"""Further rounds of `aim`: found where a tree cannot hold a dependence, private, and checked when loaded."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import check_contribution, check_replay, record_run, records_of, rewritten

from repsynth.arrays import Floats
from repsynth.columns.groups import how_many, how_many_coarse
from repsynth.errors import ReleaseError
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Chosen
from repsynth.models.marginal.mechanism import most_tables
from repsynth.models.marginal.pool import Pool, pool_size
from repsynth.models.marginal.release import MarginalRelease
from repsynth.models.marginal.tree import shrunk
from repsynth.models.statistics import NoisyTable
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Boolean, Integer, Schema

SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        *(Boolean(name=name) for name in "abcd"),
        Integer(name="age", min=0, max=99),
        Boolean(name="answer"),
    ),
    label="answer",
)


def ring(rows: int, seed: int = 0) -> pa.Table:
    """Each of a, b, c and d often equals the next one, and d equals a: a tree misses one of the four pairs."""
    generator = np.random.default_rng(seed)
    hidden = generator.random(rows) < 0.5
    columns = {name: hidden ^ (generator.random(rows) < 0.2) for name in "abcd"}
    return pa.table({**columns, "age": generator.integers(0, 100, rows), "answer": generator.random(rows) < 0.5})


def plan_of(model: str = "aim", **options: Any) -> Plan:
    return make_plan(SCHEMA, Settings.of(**{"mu": 20.0, "delta": 1e-6, "model": model, **options}))


def pairs_of(release: Release) -> list[tuple[tuple[int, int], ...]]:
    assert isinstance(release.fit, MarginalRelease)
    return [m.tables.pairs for m in release.fit.measured]


@pytest.fixture(scope="module")
def release() -> Release:
    return run(plan_of(public_rows=3000, weights="uniform", mu=1.0), open_source(ring(3000)), noise_seed=1)


def agreement(release: Release) -> float:
    """The smallest fraction of synthetic records in which two of the four columns are equal; .68 in the table."""
    made = release.sample(4000, seed=1)
    columns = [made[name].to_numpy() for name in "abcd"]
    return min(float(np.mean(one == other)) for k, one in enumerate(columns) for other in columns[:k])


def test_further_rounds_find_what_a_tree_cannot_hold(release: Release) -> None:
    assert agreement(release) > 0.62
    tree = run(plan_of("mst", public_rows=3000, weights="uniform", mu=1.0), open_source(ring(3000)), noise_seed=1)
    assert agreement(tree) < 0.62


def test_a_record_moves_tables_and_their_selection_by_its_weight() -> None:
    plan, table = plan_of(weights="cap"), ring(100)
    release, measured = record_run(plan, table)
    for m in measured:
        check_contribution(m.statistic, records_of(table, SCHEMA))
    check_replay(plan, table, 17, (release, measured))


def test_selections_are_made_again_from_what_was_released(release: Release) -> None:
    kernels = release.fit.kernels()
    chosen = [kernel for kernel in kernels.values() if isinstance(kernel, Chosen) and kernel.chosen]
    again = {kernel.choice.tables.pairs[c] for kernel in chosen for c in kernel.chosen}  # type: ignore[attr-defined]
    assert len(chosen) >= 2
    assert again <= {pair for pairs in pairs_of(release) for pair in pairs}


def test_a_release_is_read_back_as_it_was(release: Release, tmp_path: Path) -> None:
    loaded = Release.load(release.save(tmp_path / "release"))
    assert pairs_of(loaded) == pairs_of(release)
    assert loaded.sample(50, seed=3).equals(release.sample(50, seed=3))


@pytest.mark.parametrize(
    ("where", "pair"),
    [
        ("tables 2", [1, 0]),  # out of order
        ("tables 2", [0, 0]),
        ("tables 2", [0, 12]),  # no such column
        ("tables 2", [0, 7]),  # fine by coarse
        ("tables 2", [0]),
        ("tables 2", [0, 1, 2]),
        ("tables", [6, 7]),  # a forest has fine groups
    ],
)
def test_tables_that_a_run_could_not_have_measured_are_refused(
    where: str, pair: list[int], release: Release, tmp_path: Path
) -> None:
    assert isinstance(release.fit, MarginalRelease)
    tables: list[dict[str, Any]] = [
        m.tables.describe() | {"pairs": [*m.tables.pairs]} for m in release.fit.measured
    ]
    place = next(k for k, file in enumerate(tables) if file["name"] == where)
    tables[place]["pairs"][-1] = pair
    with pytest.raises(ReleaseError):
        Release.load(rewritten(release, tmp_path / "release", {}, fit={"tables": tables}))


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
    wanted = pool.tables([(5, 0)])[5, 0].ravel()
    counts = np.bincount(drawn.codes["answer"] * 2 + drawn.codes["a"], minlength=4) / 2000
    assert np.abs(counts - wanted).max() < 0.003  # at random: about 0.01


# --- shrinkage ---


def one(expected: Floats, counts: Floats, variance: float, rows: float) -> Floats:
    (found,) = shrunk([expected], [NoisyTable(counts, np.full(counts.shape, variance))], rows)
    return found


def test_without_noise_a_table_is_believed_and_pure_noise_is_not() -> None:
    generator = np.random.default_rng(0)
    expected = np.full((12, 10), 1 / 120)
    truth = generator.dirichlet(np.full(120, 0.5)).reshape(12, 10)
    assert one(expected, truth * 1e4, 1e-6, 1e4) == pytest.approx(truth, abs=2e-4)
    noise = generator.normal(0, 20, (12, 10))
    nothing = one(expected, expected * 1e4 + noise, 400.0, 1e4)
    assert np.abs(nothing - expected).sum() < 0.2 * np.abs(noise).sum() / 1e4


@pytest.mark.parametrize("kind", ["few cells", "one direction"])
def test_shrinking_leaves_less_error_than_one_factor_would(kind: str) -> None:
    generator = np.random.default_rng(1)
    expected = np.full((15, 15), 0.1)
    rest = np.outer(*generator.normal(0, 0.1, (2, 15)))
    if kind == "few cells":
        rest = np.where(generator.random((15, 15)) < 0.05, 0.03, 0.0)
    noise = generator.normal(0, 1.0, (15, 15)) * 40 / 1e4
    found = one(expected, (expected + rest + noise) * 1e4, 1600.0, 1e4)
    factor = float((rest**2).sum() / ((rest**2).sum() + 225 * (40 / 1e4) ** 2))
    assert np.abs(found - expected - rest).sum() < 0.85 * np.abs(factor * (rest + noise) - rest).sum()


def test_where_one_column_follows_from_another_cells_that_are_empty_stay_so() -> None:
    generator = np.random.default_rng(3)
    margin = generator.dirichlet(np.full(16, 2.0))
    truth = np.diag(margin)
    found = one(np.outer(margin, margin), truth * 3e4 + generator.normal(0, 30, (16, 16)), 900.0, 3e4)
    assert np.abs(found - truth).sum() / 2 < 0.03  # noise alone: 0.1


def test_tables_tell_the_mixture_together() -> None:
    """A weak difference is noise in one table, and no noise where many tables have it."""
    expected = np.full((2, 3), 1 / 6)
    counts = expected * 1e3 + np.array([[25.0, -25.0, 25.0], [-25.0, 25.0, -25.0]])
    table = NoisyTable(counts, np.full((2, 3), 225.0))
    nothing = NoisyTable(expected * 1e3, table.variance)
    beside_noise, beside_others = (
        shrunk([expected] * 41, [table, *[each] * 40], 1e3)[0] for each in (nothing, table)
    )
    assert np.abs(beside_others - expected).sum() > 5 * np.abs(beside_noise - expected).sum()
