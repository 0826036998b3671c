"""Special values, zeros, bounds and round numbers come out of every model as often as they went in."""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from checks import records_of
from conftest import WIDE, make_wide

from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.columns.groups import NONE, choose_groups, coarser, of_finer, probabilities_within
from repsynth.curator.check import check_table
from repsynth.io.records import MISSING, Records
from repsynth.io.sources import open_source
from repsynth.models.naive_bayes import FARTHEST, LINEAR, SQUARE, UNIT, part_of
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Integer, Numeric, Schema, parse_schema

ROWS = 3000
SCHEMA = parse_schema(WIDE)
UNLABELLED = parse_schema(WIDE.replace('label = "owner"', ""))
TRAINING = {"sampling_rate": 1.0, "epochs": 2.0}
KINDS = {
    "naive-bayes": (SCHEMA, {}),
    "naive-bayes without a label": (UNLABELLED, {}),
    "mst": (SCHEMA, {}),
    "aim": (SCHEMA, {}),
    "autoregressive": (SCHEMA, TRAINING),
}
SEEDS = {"naive-bayes": 3, "naive-bayes without a label": 1, "mst": 2, "aim": 1, "autoregressive": 1}
"""Runs of each; the slower ones have fewer."""


@dataclass(frozen=True)
class Made:
    """A run with seeded noise: ε = 3 and 3,000 records, about 20 records of noise in a cell."""

    schema: Schema
    release: Release
    table: pa.Table
    records: Records


@cache
def made_by(kind: str, seed: int) -> Made:
    schema, knobs = KINDS[kind]
    model = kind.partition(" ")[0]
    plan = make_plan(schema, Settings.of(epsilon=3.0, delta=1e-6, public_rows=ROWS, model=model, **knobs))
    release = run(plan, open_source(make_wide(ROWS)), noise_seed=seed)
    table = release.sample(ROWS, seed=seed)
    return Made(schema, release, table, records_of(table, schema))


REAL = records_of(make_wide(ROWS), SCHEMA)
SPECIAL = [column for column in SCHEMA.numeric if column.special]


def fraction(records: Records, column: Numeric, code: int) -> float:
    return float(np.mean(records.codes[column.name] == code))


def check_fractions_of_special_values(made: Made) -> None:
    """Within two points of 10 and 15 %: noise makes a standard deviation of half a point."""
    for column in SPECIAL:
        real = fraction(REAL, column, column.steps + 1)
        assert real > 0.08
        assert fraction(made.records, column, column.steps + 1) == pytest.approx(real, abs=0.02), column.name


def check_cells(made: Made) -> None:
    """In the cells of the table: as they are written, and all others inside their bounds."""
    pay, age, born = (made.table[name].to_pylist() for name in ("pay", "age", "born"))
    assert all(cell == "N" or -20_000 <= int(cell) <= 2_000_000 for cell in pay)
    assert all(cell == -9 or 0 <= cell <= 99 for cell in age)
    assert all(cell == "31.12.9999" or 1900 <= int(cell[6:]) <= 2099 for cell in born)
    for name, cells, special in (("pay", pay, "N"), ("age", age, -9), ("born", born, "31.12.9999")):
        (column,) = (column for column in SPECIAL if column.name == name)
        codes = made.records.codes[name]
        assert [cell == special for cell in cells] == (codes == column.steps + 1).tolist()


def check_that_special_values_are_neither_missing_nor_unreadable(made: Made) -> None:
    for column in SCHEMA.numeric:
        assert column.missing or not np.any(made.records.codes[column.name] == MISSING)
    (price,) = (column for column in SCHEMA.numeric if column.name == "price")
    assert fraction(made.records, price, MISSING) == pytest.approx(fraction(REAL, price, MISSING), abs=0.025)
    for column in check_table(made.table, made.schema).columns:
        assert (column.unreadable, column.undeclared, column.below, column.above) == (0, 0, 0, 0), column.name
        if column.name in {special.name for special in SPECIAL}:
            assert column.special > 0.05


def check_zeros_and_round_numbers(made: Made) -> None:
    """Of pay 10 % are zero and 60 % of the others are multiples of 1,000; half of the grants are zero."""
    thousands = []
    for records in (REAL, made.records):
        pay = records.codes["pay"][records.codes["pay"] <= 2_020_000] - 20_000
        thousands.append(np.mean(pay[pay != 0] % 1000 == 0))
        assert np.mean(records.codes["pay"] == 20_000) == pytest.approx(0.085, abs=0.03)
        assert np.mean(records.codes["grant"] == 0) == pytest.approx(0.5, abs=0.05)
    assert thousands[0] == pytest.approx(0.6, abs=0.03)
    assert 0.3 < thousands[1] < 0.7  # 0.1 % in an even spread; cells within the noise are not divided
    far = made.records.codes["wealth"]
    (wealth,) = (column for column in SCHEMA.numeric if column.name == "wealth")
    value = wealth.min + far * float(wealth.unit)  # type: ignore[operator]
    assert np.mean((value > -500) & (value < 1500)) > 0.97, "of a range of a billion"


def check_that_hardly_anybody_is_at_a_bound_that_the_data_do_not_reach(made: Made) -> None:
    for column in SCHEMA.numeric:
        codes = made.records.codes[column.name]
        most = 15 if column.name == "age" else 3  # where every number has a bin, so have the bounds
        assert np.sum(codes == column.steps) <= most, column.name
        assert column.name == "grant" or np.sum(codes == 0) <= most, column.name


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        pytest.param(kind, seed, marks=pytest.mark.slow if kind in ("aim", "autoregressive") else ())
        for kind, seeds in SEEDS.items()
        for seed in range(seeds)
    ],
)
def test_values_come_out_as_they_went_in(kind: str, seed: int) -> None:
    made = made_by(kind, seed)
    check_fractions_of_special_values(made)
    check_cells(made)
    check_that_special_values_are_neither_missing_nor_unreadable(made)
    check_zeros_and_round_numbers(made)
    check_that_hardly_anybody_is_at_a_bound_that_the_data_do_not_reach(made)


@pytest.mark.parametrize(("kind", "epsilon"), [("naive-bayes", 0.3), ("naive-bayes", 1.0), ("mst", 1.0)])
def test_hardly_anybody_is_at_a_bound_where_noise_is_large_either(kind: str, epsilon: float) -> None:
    schema, table = KINDS[kind][0], make_wide(ROWS)
    for seed in range(2):
        plan = make_plan(schema, Settings.of(epsilon=epsilon, delta=1e-6, public_rows=ROWS, model=kind))
        records = records_of(run(plan, open_source(table), noise_seed=seed).sample(ROWS, seed=seed), schema)
        for column in schema.numeric:
            codes = records.codes[column.name]
            assert np.sum(codes == column.steps) <= 30, column.name
            assert column.name == "grant" or np.sum(codes == 0) <= 30, column.name


def test_zeros_and_both_bounds_come_out_where_the_data_reach_them() -> None:
    """A fifth of the records at each."""
    generator = np.random.default_rng(0)
    pay = np.rint(generator.lognormal(10, 0.5, ROWS))
    pay = np.choose(
        generator.integers(0, 5, ROWS), [np.full(ROWS, v) for v in (-20_000, 0, 2_000_000)] + [pay, pay]
    )
    column = Integer(name="pay", min=-20_000, max=2_000_000)
    schema = Schema(one_row_per_person=True, columns=(column, *SCHEMA.columns[-1:]), label="owner")
    table = pa.table({"pay": pay.astype(np.int64), "owner": make_wide(ROWS)["owner"]})
    for model in ("naive-bayes", "mst"):
        plan = make_plan(schema, Settings.of(epsilon=1.0, delta=1e-6, public_rows=ROWS, model=model))
        drawn = records_of(run(plan, open_source(table), noise_seed=1).sample(ROWS, seed=1), schema)
        for code in (0, 20_000, column.steps):
            assert fraction(drawn, column, code) == pytest.approx(0.2, abs=0.03), (model, code)


# --- groups ---


def placed(seed: int, sigma: float) -> Histograms:
    """A column with two special values, with empty bins and full ones."""
    generator = np.random.default_rng(seed)
    column = Integer(name="x", min=0, max=10**6, special=("N", "-9"), missing=bool(seed % 2))
    bins = Bins.at(column, np.unique(generator.integers(1, 10**6, 30)))
    exact = generator.choice([0, 0, 4, 60, 500], bins.count)
    exact[-1] *= seed % 2
    counts = (exact + generator.normal(0, sigma, bins.count)).astype(np.int64)
    return Histograms((bins,), counts, sigma, float(exact.sum()))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sigma", [0.1, 20.0, 300.0])
def test_special_values_have_groups_of_their_own_and_no_group_of_numbers_is_empty(seed: int, sigma: float) -> None:
    histograms = placed(seed, sigma)
    bins = histograms.bins[0]
    (groups,) = choose_groups(histograms, None, most=16, noise=np.inf)
    coarse = coarser(histograms, 0, groups)
    for each in (groups, coarse):
        numbers = each.of_bin[: bins.numbers]
        assert numbers[0] == 0
        assert set(np.diff(numbers).tolist()) <= {0, 1}, "intervals, in order"
        first = int(numbers.max()) + 1
        assert each.of_bin[bins.numbers :].tolist() == [
            *(first, first + 1),
            first + 2 if bins.column.missing else NONE,
        ]
    assert np.array_equal(of_finer(groups, coarse)[groups.of_bin[: bins.values]], coarse.of_bin[: bins.values])
    full = histograms.levels(0)[: bins.numbers] != 0
    if full.any():
        assert set(groups.of_bin[: bins.numbers][full]) == set(groups.of_bin[: bins.numbers])


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sigma", [0.1, 20.0])
def test_what_is_empty_stays_so_within_its_group(seed: int, sigma: float) -> None:
    histograms = placed(seed, sigma)
    (groups,) = choose_groups(histograms, None, most=16, noise=np.inf)
    within = probabilities_within(histograms, 0, groups)
    assert within.sum(axis=1) == pytest.approx(np.ones(groups.count))
    counts, bins = histograms.levels(0), histograms.bins[0]
    empty = np.flatnonzero(counts[: bins.numbers] == 0)
    assert len(empty) > 3 or sigma > 1
    assert np.all(within[:, empty] < 1e-6)
    for k in range(bins.values):  # nothing is drawn from another group's bin
        assert np.flatnonzero(within[:, k]).tolist() in ([groups.of_bin[k]], [])


# --- ranks ---


def test_ranks_are_normal_scores_of_the_released_histogram() -> None:
    """In order, with mean 0 and variance 1, cut off at three; none for special values and missing ones."""
    column = Integer(name="x", min=0, max=10**9, special=("N",), missing=True)
    bins = Bins.at(column, np.array([0, 1, 10, 100, 1000, 10**4, 10**5, 10**6, 10**7]))
    counts = np.array([0, 6000, 200, 900, 1800, 1900, 900, 250, 40, 500, 90])
    assert len(counts) == bins.count
    part = part_of(Histograms((bins,), counts, 0.01, 12_580.0), 0)
    z, squares = part.moments.T / UNIT / [[LINEAR], [SQUARE]]
    assert np.all(np.diff(z[:9]) >= 0)
    assert np.abs(z).max() <= FARTHEST + 1 / UNIT
    assert squares[:9] == pytest.approx(z[:9] ** 2 - 1, abs=0.02)
    mass = counts[:9] / counts[:9].sum()
    assert mass @ z[:9] == pytest.approx(0, abs=0.01)
    assert mass @ z[:9] ** 2 == pytest.approx(1, abs=0.05)
    assert not part.moments[9:].any(), "a special value is no number, nor is a missing one"
    assert part.offset / UNIT == pytest.approx(np.array([11_990, 500, 90]) / 12_580, abs=1e-3)
    cells = bins.of(Records(rows=3, codes={"x": np.array([5, 10**9 + 1, MISSING])}))
    one_hot, moments = part.sums(cells, np.arange(3), 3, np.ones(3))
    assert np.array_equal(one_hot, UNIT * np.eye(3) - part.offset)
    assert np.array_equal(moments, part.moments[[1, 9, 10]])
    assert np.array_equal(part.squared_norms[cells], (one_hot**2).sum(axis=1) + (moments**2).sum(axis=1))


def test_a_label_s_numbers_differ_as_the_real_ones_do() -> None:
    """Wealth is some 200 or 500 under bounds of a billion: positions say nothing of that, ranks do."""
    means = {}
    for name, records in (("real", REAL), ("made", made_by("naive-bayes", 0).records)):
        owner, wealth = records.codes["owner"], records.codes["wealth"] * 1.001e9 / 2**40 - 1e6
        means[name] = [np.median(wealth[owner == k]) for k in (0, 1)]
    assert means["made"][1] - means["made"][0] > 0.5 * (means["real"][1] - means["real"][0]) > 100


@pytest.mark.parametrize("kind", ["naive-bayes", "mst"])
def test_the_rows_of_one_label_have_special_values_too(kind: str) -> None:
    sampler = made_by(kind, 0).release.fit.sampler
    records = sampler.draw(2000, np.random.default_rng(0), label=1)
    assert set(records.codes["owner"].tolist()) == {1}
    for column in SPECIAL:
        real = fraction(REAL, column, column.steps + 1)
        assert fraction(records, column, column.steps + 1) == pytest.approx(real, abs=0.06)
