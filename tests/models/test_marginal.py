"""Marginal models: choices that cost what they claim, tables that fit together, wide schemas, heaps that stay."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import record_run, records_of
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri, softmax
from scipy.stats import chisquare

from repsynth import datasets, synthesize
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.groups import NONE, choose_groups, coarser, merge_neighbours, probabilities_within
from repsynth.engine.local import LocalEngine
from repsynth.errors import ConfigError
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.mechanism import noise
from repsynth.mechanism.kernels import OUT
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import choose_exponential, seeded_entropy
from repsynth.models.marginal.release import MarginalRelease
from repsynth.models.marginal.tree import Tree, rake
from repsynth.models.statistics import Tables
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import MU_PER_ETA, ExponentialEvent
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Category, Integer, Schema, parse_schema

# --- the exponential mechanism ---


def frequencies(utilities: np.ndarray, eta: float, draws: int, seed: int) -> np.ndarray:
    entropy = seeded_entropy(seed)
    drawn = [choose_exponential(utilities, unit=4096, eta=eta, entropy=entropy) for _ in range(draws)]
    return np.bincount(drawn, minlength=len(utilities))


def test_choices_come_with_the_claimed_probabilities_and_no_others() -> None:
    """Repeatable: a fixed seed. With another one it would fail with a chance of 1e-10."""
    utilities = np.array([0, 3000, 4096, 9000, -8000])
    counts = frequencies(utilities, 1.0, 20_000, seed=3)

    def p_value(eta: float) -> float:
        return float(chisquare(counts, 20_000 * softmax(utilities * (eta / 2 / 4096))).pvalue)

    assert p_value(1.0) > 1e-10
    assert p_value(0.8) < 1e-10
    assert p_value(1.25) < 1e-10


def test_arbitrary_precision_chooses_as_floats_do(monkeypatch: pytest.MonkeyPatch) -> None:
    utilities = np.array([500, -300, 0, 900, 901])
    fast = [choose_exponential(utilities, unit=100, eta=0.7, entropy=seeded_entropy(k)) for k in range(60)]
    monkeypatch.setattr(noise, "_CHOICE_ERROR", 2.0)  # floats now decide nothing
    exact = [choose_exponential(utilities, unit=100, eta=0.7, entropy=seeded_entropy(k)) for k in range(60)]
    assert fast == exact
    assert len(set(fast)) > 2


def test_utilities_that_are_far_apart_are_no_trouble() -> None:
    assert choose_exponential(np.array([-(2**60), 2**60, 0]), unit=1, eta=4.0) == 1


@given(
    utilities=st.lists(st.floats(-4, 4), min_size=2, max_size=8),
    moves=st.lists(st.floats(-1, 1), min_size=8, max_size=8),
    eta=st.floats(0.01, 8),
    weight=st.sampled_from([1.0, 0.5, 0.2, 0.05]),
)
def test_a_choice_is_as_private_as_it_says(
    utilities: list[float], moves: list[float], eta: float, weight: float
) -> None:
    """No test between the two distributions beats a Gaussian shift of w √(2π)/4 η. The best tests are those
    that reject where the likelihood ratio is largest."""
    before = np.array(utilities)
    after = before + weight * np.array(moves[: len(utilities)])
    p, q = softmax(after * eta / 2), softmax(before * eta / 2)
    order = np.argsort(q / p)
    power, level = np.cumsum(p[order])[:-1], np.cumsum(q[order])[:-1]
    inside = (power > 1e-12) & (power < 1 - 1e-12) & (level > 1e-12) & (level < 1 - 1e-12)
    gained = ndtri(power[inside]) - ndtri(level[inside])
    assert np.all(gained <= weight * ExponentialEvent("", eta, 1).mu + 1e-9)


def test_the_charge_of_several_rounds_adds_up_in_squares() -> None:
    one, nine = ExponentialEvent("", 0.3, 1).mu, ExponentialEvent("", 0.3, 9).mu
    assert nine == pytest.approx(3 * one)
    assert one == pytest.approx(math.sqrt(2 * math.pi) / 4 * 0.3)


class Two:
    """A choice between two things, of which the records prefer the first."""

    name, rounds, unit, weighted = "choice", 2, 1, False

    def total(self, records: Records) -> np.ndarray:
        return np.array([records.rows])

    def utilities(self, total: np.ndarray, chosen: tuple[int, ...], *, units: int = 1) -> np.ndarray:
        return np.array([0, OUT if 0 in chosen else int(total[0]), OUT if 1 in chosen else -int(total[0])])


def test_choosing_is_charged_in_full_stops_by_itself_and_is_refused_beyond_the_budget() -> None:
    """The chance of another choice is exp(-5000)."""
    meter = Meter(LocalEngine([Records(rows=10_000, codes={})]), mu=1.0)
    chosen = meter.choose(Two(), mu=0.9)
    assert chosen == (0,)
    assert meter.events[0].mu == pytest.approx(0.9)  # type: ignore[union-attr]
    with pytest.raises(ConfigError, match="does not cover"):
        meter.choose(Two(), mu=0.9)
    assert len(meter.events) == 1


# --- groups ---


def test_neighbours_merge_until_they_hold_enough_and_spikes_stand_alone() -> None:
    counts = np.array([5.0, 5.0, 5.0, 100.0, 1.0, 9.0, 9.0, 2.0])
    assert merge_neighbours(counts, 10.0).tolist() == [0, 0, 1, 2, 3, 3, 4, 4]
    assert merge_neighbours(np.array([1.0]), 10.0).tolist() == [0]


@given(st.lists(st.floats(-50, 500), min_size=1, max_size=60), st.floats(1, 300))
def test_groups_are_intervals_without_gaps(counts: list[float], least: float) -> None:
    groups = merge_neighbours(np.array(counts), least)
    assert groups[0] == 0
    assert set(np.diff(groups)) <= {0, 1}


def test_rare_categories_share_a_group_and_coarse_groups_hold_fine_ones(sim: datasets.Dataset) -> None:
    release = seeded(sim.table, sim.schema, epsilon=1.0, model="mst")
    histograms = release.histograms
    groups = choose_groups(histograms, "label", most=16, noise=np.inf)
    for i, g in enumerate(groups):
        spread = probabilities_within(histograms, i, g)
        assert spread.sum(axis=1) == pytest.approx(np.ones(g.count))
        assert g.of_bin[-1] == NONE  # no column of this table declares gaps
        coarse = coarser(histograms, i, g)
        assert coarse.count <= max(8, g.count if g.bins.starts is None else 8)
        for group in range(g.count):
            assert len(set(coarse.of_bin[g.of_bin == group])) == 1
    rare = Schema(
        one_row_per_person=True,
        columns=(Category(name="c", values=tuple("abcdefghij")), Integer(name="n", min=0, max=9)),
    )
    table = pa.table({"c": ["a"] * 500 + ["b"] * 490 + list("cdefghij"), "n": list(range(10)) * 99 + [1] * 8})
    crowded = seeded(table, rare, epsilon=1.0, model="mst", weights="uniform")
    assert tables_of(crowded)[-1].domain.sizes[0] < 10


# --- fitting ---


def histogram(values: int, sigma: float, rows: float = 700.0) -> Histograms:
    """Of a category whose values are equally frequent but for the last one, which nobody has."""
    bins = Bins.discrete(Category(name="c", values=tuple(f"v{k}" for k in range(values))))
    counts = np.append(np.full(values, round(rows / (values - 1))), 0)
    counts[values - 1] = 0
    return Histograms((bins,), counts.astype(np.int64), sigma, rows)


def test_few_values_of_a_histogram_that_is_noise_stay_apart() -> None:
    """It cannot tell which of them are rare; tables with less noise can."""
    (apart,) = choose_groups(histogram(5, sigma=120.0), None, most=3, noise=40.0)
    assert apart.count == 5
    (together,) = choose_groups(histogram(5, sigma=120.0), None, most=3, noise=np.inf)
    assert together.count < 5
    (many,) = choose_groups(histogram(40, sigma=120.0), None, most=3, noise=5.0)
    assert many.count == 1


def test_rare_values_of_a_histogram_that_is_clear_share_a_group_whatever_the_noise_of_tables() -> None:
    counts = np.array([400, 280, 8, 7, 5, 0])
    bins = Bins.discrete(Category(name="c", values=tuple("abcde")))
    (groups,) = choose_groups(Histograms((bins,), counts, 10.0, 700.0), None, most=3, noise=0.1)
    assert groups.of_bin.tolist() == [0, 1, 2, 2, 2, -1]


def test_raking_meets_its_margins() -> None:
    generator = np.random.default_rng(0)
    triple = generator.random((2, 3, 4))
    triple /= triple.sum()
    ya, yb, ab = triple.sum(axis=2), triple.sum(axis=1), triple.sum(axis=0)
    raked = rake(np.full((2, 3, 4), 1 / 24), [((1, 2), ab), ((0, 2), yb), ((0, 1), ya)], passes=400)
    for axis, margin in ((2, ya), (1, yb), (0, ab)):
        assert raked.sum(axis=axis) == pytest.approx(margin, abs=1e-9)
    pair = rake(generator.random((3, 4)), [(1, ab.sum(axis=0)), (0, ab.sum(axis=1))], passes=200)
    assert pair.sum(axis=1) == pytest.approx(ab.sum(axis=1))
    assert pair.sum(axis=0) == pytest.approx(ab.sum(axis=0), abs=1e-9)


def seeded(table: pa.Table, schema: Schema, seed: int = 1, **options: Any) -> Release:
    """A release whose noise is the same every time."""
    chosen = Settings.of(**{"delta": 1e-8, "public_rows": table.num_rows, **options})
    return run(make_plan(schema, chosen), open_source(table), noise_seed=seed)


def noiseless(table: pa.Table, schema: Schema, **options: Any) -> Release:
    """Next to no noise, and the same every time."""
    return seeded(table, schema, mu=1e6, delta=1e-9, weights="uniform", **options)


def fit_of(release: Release) -> MarginalRelease:
    assert isinstance(release.fit, MarginalRelease)
    return release.fit


def tables_of(release: Release) -> list[Tables]:
    return [m.tables for m in fit_of(release).measured]


@pytest.mark.parametrize("model", ["mst", "aim"])
def test_without_noise_measured_tables_are_the_data_s_and_so_are_the_model_s(
    model: str, sim: datasets.Dataset
) -> None:
    names = ("x1", "x2", "c1", "label")
    schema = replace(sim.schema, columns=tuple(c for c in sim.schema.columns if c.name in names))
    release = noiseless(sim.table.select(names), schema, model=model)
    records = records_of(sim.table.select(names), schema)
    for measured in fit_of(release).measured:
        assert np.abs(measured.noisy - measured.tables.total(records)).max() < 1 + 8 * measured.sigma
    drawn = release.sampler.draw(60_000, np.random.default_rng(0))
    for tables in tables_of(release)[:2]:
        real = tables.split(tables.total(records))
        made = tables.split(tables.total(drawn))
        assert real
        for pair, table in real.items():
            distance = np.abs(table / table.sum() - made[pair] / made[pair].sum()).sum() / 2
            # A pool of 60,000 records cannot say more about a table of many cells.
            chance = 0.0 if model == "mst" else 0.4 * math.sqrt(table.size / 60_000)
            assert distance < 0.03 + chance, (tables.name, pair)


def test_the_forest_joins_what_hangs_together(sim: datasets.Dataset) -> None:
    """The six numbers of the simulated table share their mixture component; c1 to c3 share their outliers."""
    _, measured = record_run(plan_for(sim.schema, epsilon=4.0, public_rows=6000, weights="uniform"), sim.table)
    chosen = next(m for m in measured if m.event.name == "tables").statistic.pairs  # type: ignore[union-attr]
    part = {i: i for i in range(9)}
    for i, j in chosen:
        assert part[i] != part[j], "a cycle"
        part = {k: part[i] if p == part[j] else p for k, p in part.items()}
    assert len({part[i] for i in range(6)}) <= 2


def plan_for(schema: Schema, **options: Any) -> Plan:
    return make_plan(schema, Settings.of(**{"delta": 1e-6, "model": "mst", **options}))


def test_where_noise_would_choose_the_label_s_tables_are_measured_again(sim: datasets.Dataset) -> None:
    few = sim.table.slice(0, 200)
    release = synthesize(few, sim.schema, epsilon=0.5, delta=1e-6, public_rows=200, model="aim")
    pairs = [tables.pairs for tables in tables_of(release)]
    assert len(pairs) == 5
    assert all(p == pairs[0] for p in pairs)
    assert release.sample(50).num_rows == 50


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_model_agrees_with_a_graphical_model_library() -> None:
    """The tree is the maximum-entropy model of its tables: mirror descent on the graph finds the same one."""
    mbi = pytest.importorskip("mbi", reason="mbi is not installed")
    import jax

    generator = np.random.default_rng(0)
    rows = 5000
    label = generator.integers(0, 2, rows)
    a = (label + generator.integers(0, 2, rows)) % 3
    b = (a + generator.integers(0, 3, rows)) % 4
    c = (b + label * generator.integers(0, 2, rows)) % 3
    sizes = {"a": 3, "b": 4, "c": 3}
    columns = tuple(Category(name=name, values=tuple("0123"[:size])) for name, size in sizes.items())
    schema = Schema(one_row_per_person=True, columns=(*columns, Category(name="y", values=("0", "1"))), label="y")
    table = pa.table({name: codes.astype(str) for name, codes in (("a", a), ("b", b), ("c", c), ("y", label))})
    tree = noiseless(table, schema, model="mst").sampler
    assert isinstance(tree, Tree)
    assert len(tree.edges) == 2
    tables: dict[tuple[int, int], np.ndarray] = {(3, i): joint for i, joint in tree.columns.items()}
    tables |= {edge: joint.sum(axis=0) for edge, joint in tree.edges.items()}
    measured = [
        mbi.LinearMeasurement(joint.ravel() * rows, ("abcy"[i], "abcy"[j])) for (i, j), joint in tables.items()
    ]
    domain = mbi.Domain(list("abcy"), [3, 4, 3, 2])
    # A pair without an edge follows from the others: there by inference, here by a large draw.
    i, j = next(pair for pair in ((0, 1), (0, 2), (1, 2)) if pair not in tree.edges)
    with jax.enable_x64(True):
        model = mbi.estimation.MirrorDescent().estimate(domain, measured, known_total=float(rows), iters=5000)
        triples = {
            (a, b): np.asarray(model.project(("y", "abcy"[a], "abcy"[b])).datavector()) / rows
            for a, b in tree.edges
        }
        theirs = np.asarray(model.project(("abcy"[i], "abcy"[j])).datavector()) / rows
    for edge, joint in tree.edges.items():
        assert joint.ravel() == pytest.approx(triples[edge], abs=1e-5)
    drawn = tree.draw_groups(400_000, np.random.default_rng(0))
    ours = np.bincount(drawn[:, i] * tree.groups[j].count + drawn[:, j], minlength=len(theirs)) / 400_000
    assert ours == pytest.approx(theirs, abs=0.003)


# --- decoding ---

HEAPED = """
one_row_per_person = true
label = "rich"

[columns.gain]
type = "integer"
min = 0
max = 99999

[columns.age]
type = "integer"
min = 17
max = 90
missing = true

[columns.rich]
type = "boolean"
"""


@pytest.mark.parametrize("model", ["mst", "aim"])
def test_heaps_gaps_and_whole_numbers_survive(model: str) -> None:
    generator = np.random.default_rng(2)
    rows = 20_000
    rich = generator.random(rows) < 0.3
    gain = np.where(generator.random(rows) < np.where(rich, 0.7, 0.95), 0, generator.integers(1, 99_999, rows))
    age = pa.array(np.clip(generator.normal(40 + 8 * rich, 12, rows), 17, 90).astype(int), mask=gain % 10 == 7)
    table = pa.table({"gain": gain, "age": age, "rich": rich})
    for rule in ("uniform", "targeted"):
        release = seeded(table, parse_schema(HEAPED), epsilon=2.0, model=model, weights=rule)
        made = release.sample(rows, seed=1)
        zeros, flags = made["gain"].to_numpy() == 0, made["rich"].to_numpy()
        assert made.schema.field("gain").type == pa.int64()
        assert zeros.mean() == pytest.approx(np.mean(gain == 0), abs=0.03)
        assert made["age"].null_count / rows == pytest.approx(age.null_count / rows, abs=0.02)
        # Small weights leave less signal against the noise, so less of a difference between labels.
        near = 0.03 if rule == "uniform" else 0.12
        for flag in (False, True):
            assert zeros[flags == flag].mean() == pytest.approx(np.mean(gain[rich == flag] == 0), abs=near)


def test_a_bound_that_nobody_reaches_stays_empty(sim: datasets.Dataset) -> None:
    """The lowest and the highest value have a cell of their own; what noise puts there is spread by width."""
    for seed in range(2):
        made = seeded(sim.table, sim.schema, seed, epsilon=1.0, model="mst").sample(6000, seed=1)
        for name in ("x1", "x2", "x3", "x4", "x5", "x6"):
            assert np.mean(np.abs(made[name].to_numpy()) > 5.999) < 0.005


# --- wide tables ---


@pytest.mark.nightly  # a hundred columns have 4,950 pairs
def test_a_hundred_columns_and_a_thousand_categories() -> None:
    generator = np.random.default_rng(0)
    rows = 300
    many = tuple(f"v{i}" for i in range(1000))
    columns: list[Any] = [Category(name=f"c{i}", values=many) for i in range(3)]
    columns += [Category(name=f"d{i}", values=("x", "y", "z")) for i in range(47)]
    columns += [Integer(name=f"n{i}", min=0, max=10_000) for i in range(49)]
    schema = Schema(
        one_row_per_person=True, columns=(*columns, Category(name="label", values=("a", "b"))), label="label"
    )
    data = {c.name: np.array(c.values)[generator.integers(0, len(c.values), rows)] for c in schema.discrete}
    data |= {c.name: generator.integers(0, 10_000, rows) for c in schema.numeric}
    table = pa.table({**data, "label": np.array(["a", "b"])[generator.integers(0, 2, rows)]})
    for model in ("mst", "aim"):
        made = synthesize(table, schema, epsilon=4.0, delta=1e-6, model=model).sample(100)
        assert made.num_columns == 100


def test_tables_that_cannot_fit_are_refused_before_anything_is_spent() -> None:
    many = tuple(f"v{i}" for i in range(2000))
    columns = tuple(Category(name=f"c{i}", values=many) for i in range(60))
    schema = Schema(one_row_per_person=True, columns=columns, label="c0")
    with pytest.raises(ConfigError, match="max-model-mb"):
        plan_for(schema, epsilon=1.0)
    plan_for(schema, epsilon=1.0, max_model_mb=10_000)
    with pytest.raises(ConfigError, match="two columns"):
        plan_for(Schema(one_row_per_person=True, columns=(Integer(name="n", min=0, max=3),)), epsilon=1.0)


def test_the_memory_allowed_counts_the_label_too() -> None:
    """A tree crosses each of its tables with the label."""
    values = tuple(str(i) for i in range(100))
    columns = tuple(Category(name=name, values=values) for name in ("a", "b", "y"))
    schema = Schema(one_row_per_person=True, columns=columns, label="y")
    generator = np.random.default_rng(0)
    a = generator.integers(0, 100, 30_000)
    table = pa.table({"a": a.astype(str), "b": a.astype(str), "y": generator.integers(0, 100, 30_000).astype(str)})
    for allowed, edges in ((1, 0), (100, 1)):
        plan = plan_for(schema, epsilon=20.0, public_rows=30_000, weights="uniform", max_model_mb=allowed)
        release, _ = record_run(plan, table)
        assert len([p for p in tables_of(release)[-1].pairs if 2 not in p]) == edges


def test_the_memory_allowed_bounds_what_is_chosen_from(sim: datasets.Dataset) -> None:
    _, measured = record_run(plan_for(sim.schema, epsilon=4.0, public_rows=6000, max_model_mb=1), sim.table)
    choice = next(m for m in measured if m.event.name == "choice")
    assert choice.exact.size * 16 <= 2**20
    assert MU_PER_ETA * choice.event.eta == pytest.approx(  # type: ignore[union-attr]
        choice.event.mu / math.sqrt(choice.event.rounds)  # type: ignore[union-attr]
    )


def test_a_table_in_which_nobody_counts_gives_a_model_all_the_same() -> None:
    flags = "".join(f'[columns.{name}]\ntype = "boolean"\n' for name in "ab")
    others = "".join(
        f'[columns.{name}]\ntype = "category"\nvalues = {known}\n'
        for name, known in [("c", ["1"]), ("y", ["1", "2"])]
    )
    table = pa.table({name: pa.array(["1" if name == "c" else None], pa.string()) for name in "abcy"})
    settings = Settings.of(delta=1e-6, weights="removal", mu=300.0, model="mst")
    plan = make_plan(parse_schema('one_row_per_person = true\nlabel = "y"\n' + flags + others), settings)
    found = [run(plan, open_source(table), noise_seed=seed).sample(10, seed=1).num_rows for seed in range(5)]
    assert found == [10] * 5
