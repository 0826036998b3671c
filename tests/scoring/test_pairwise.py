"""The pairwise scorer: its claims, its files, and that it finds rare combinations of ordinary values."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import (
    check_contribution,
    check_noise_scale,
    check_replay,
    check_spends_its_plan,
    record_run,
    records_of,
    rewritten,
    same_release,
)
from conftest import ALL_TYPES, make_people

import repsynth
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.curator.guarantee import why_none
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Chosen
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import GaussianEvent
from repsynth.release.store import arrays_of
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema
from repsynth.scoring.base import NAT
from repsynth.scoring.pairwise import PAIRS, SELECTION, PairChoice, Pairwise, PairwiseScore, make_score, spread_of
from repsynth.scoring.weights import FULL

SCHEMA = parse_schema(ALL_TYPES)

TWINS = """
one_row_per_person = true
label = "y"
columns.a = {type = "category", values = ["0", "1", "2", "3"]}
columns.b = {type = "category", values = ["0", "1", "2", "3"]}
columns.c = {type = "category", values = ["0", "1", "2", "3"]}
columns.x = {type = "integer", min = 0, max = 99}
columns.y = {type = "boolean"}
"""


def make(schema: Schema = SCHEMA, **options: Any) -> Plan:
    return make_plan(schema, Settings.of(**({"mu": 0.5, "scorer": "pairwise", "model": "naive-bayes"} | options)))


@cache
def scored(mu: float = 5.0, rows: int = 2000) -> tuple[repsynth.Release, PairwiseScore]:
    """A release that no test changes, and its score before the threshold."""
    release = run(make(mu=mu), open_source(make_people(rows)), noise_seed=2)
    score = release.stage.unmoved_score
    assert isinstance(score, PairwiseScore)
    assert len(score.tables.pairs) >= 2
    return release, score


def twins(rows: int = 6000) -> pa.Table:
    """b is a but for one record in a hundred; every value of every column is as frequent as any other."""
    generator = np.random.default_rng(3)
    a, c = generator.integers(0, 4, (2, rows))
    b = np.where(np.arange(rows) % 100 == 0, (a + 2) % 4, a)
    return pa.table(
        {
            **{name: values.astype(str) for name, values in (("a", a), ("b", b), ("c", c))},
            "x": generator.integers(0, 100, rows),
            "y": generator.random(rows) < 0.5,
        }
    )


@cache
def twins_score() -> PairwiseScore:
    score = run(make(parse_schema(TWINS), mu=1.0), open_source(twins()), noise_seed=1).stage.unmoved_score
    assert isinstance(score, PairwiseScore)
    return score


@pytest.mark.parametrize(("model", "mu"), [("naive-bayes", 0.3), ("mst", 30.0)])
def test_its_claims_hold(model: str, mu: float) -> None:
    plan, table = make(model=model, mu=mu), make_people(80)
    check_spends_its_plan(plan, table)
    recorded = record_run(plan, table)
    check_replay(plan, table, 5, recorded)
    records = records_of(table, SCHEMA)
    for m in recorded[1]:
        check_contribution(m.statistic, records)


def test_its_noise_has_the_claimed_scale() -> None:
    check_noise_scale(make(), make_people(80))


def test_every_record_pays_in_full_for_the_choice_and_the_tables() -> None:
    plan = make()
    own = [plan.charges[name] for name in (SELECTION, PAIRS)]
    assert [charge.weighted for charge in own] == [False, False]
    assert [charge.choice for charge in own] == [True, False]
    assert sum((charge.mu / plan.mu) ** 2 for charge in own) == pytest.approx(0.02)


def test_scoring_costs_as_much_as_without_pairs_by_default() -> None:
    def scoring(scorer: str) -> float:
        plan = make(scorer=scorer, public_rows=1000)
        return sum((c.mu / plan.mu) ** 2 for c in plan.charges.values() if not c.weighted)

    assert scoring("pairwise") == pytest.approx(scoring("rarity"))
    with pytest.raises(repsynth.ConfigError, match="take the whole score share"):
        make(score_share=0.01)


def test_a_rare_combination_of_ordinary_values_stands_out() -> None:
    schema, table = parse_schema(TWINS), twins()
    records = records_of(table, schema)
    rare = np.arange(table.num_rows) % 100 == 0
    found = {}
    for scorer in ("rarity", "pairwise"):
        plan = make(schema, mu=1.0, scorer=scorer)
        score = run(plan, open_source(table), noise_seed=1).score.of(records)
        found[scorer] = np.mean(score[rare]) - np.mean(score[~rare]), np.std(score[~rare])
    gap, spread = found["pairwise"]
    assert gap > 2 * spread
    assert abs(found["rarity"][0]) < found["rarity"][1]


def test_no_pair_closes_a_cycle() -> None:
    score = run(make(mu=300.0), open_source(make_people(2000)), noise_seed=1).stage.unmoved_score
    choice = score.kernels()[SELECTION].choice  # type: ignore[union-attr]
    assert isinstance(choice, PairChoice)
    total = choice.total(records_of(make_people(50), SCHEMA))
    pairs = choice.tables.pairs
    chosen = (pairs.index((0, 1)), pairs.index((1, 2)))
    utilities = choice.utilities(total, chosen)[1:]
    assert {pairs[k] for k in np.flatnonzero(utilities == utilities.min())} == {(0, 1), (1, 2), (0, 2)}
    found = score.tables.pairs  # type: ignore[attr-defined]
    assert 2 <= len(found) <= score.columns - 1
    parts = [{i} for i in range(score.columns)]
    for pair in found:  # every pair joins two parts
        joined = [part for part in parts if not part.isdisjoint(pair)]
        assert len(joined) == 2
        parts = [part for part in parts if part.isdisjoint(pair)] + [set.union(*joined)]


def test_a_score_is_the_sum_of_its_tables() -> None:
    _, score = scored()
    records = records_of(make_people(300, 7), SCHEMA)
    cell = [bins.of(records) for bins in score.tables.cells]
    expected = sum(spread.rarity[c] / NAT for spread, c in zip(score.spreads, cell, strict=True))
    for (a, b), gain in zip(score.tables.pairs, score.gains, strict=True):
        of_a, of_b = (score.tables.groups[i][cell[i]] for i in (a, b))
        expected = expected - gain[of_a, of_b] / NAT
    assert score.of(records) / NAT == pytest.approx(expected, abs=1e-3)
    assert any(np.abs(gain).max() > NAT // 10 for gain in score.gains)


def test_what_a_table_says_of_its_margins_counts_for_nothing() -> None:
    """The histograms know them better: a table that is the product but for its margins tells of no dependence."""
    score = twins_score()
    assert score.tables.pairs[0] == (0, 1)  # the pair that depends most on each other
    a, b = (score.spreads[i].masses for i in (0, 1))
    generator = np.random.default_rng(1)
    rows, columns = generator.integers(-99, 99, len(a)), generator.integers(-99, 99, len(b))
    table = np.rint(score.rows * np.outer(a, b)) + rows[:, None] + columns
    made = make_score(score.spreads, (0,), table.ravel().astype(np.int64), 1e-3, score.rows)
    assert np.abs(made.gains[0]).max() <= NAT // 50  # the product is rounded to whole records


def test_it_is_saved_loaded_and_has_no_bounds(tmp_path: Path) -> None:
    release, _ = scored()
    again = repsynth.Release.load(release.save(tmp_path / "release"))
    assert same_release(release, again)
    records = records_of(make_people(300, 7), SCHEMA)
    assert np.array_equal(release.score.of(records), again.score.of(records))
    assert release.score.of(records).min() >= release.score.lowest
    assert again.kernels().keys() == release.kernels().keys() >= {SELECTION, PAIRS}
    named = run(make(public_rows=3000, mu=3.0), open_source(make_people(3000)), noise_seed=2)
    assert "selected during the run" in (why_none(named) or "")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pair_chosen", lambda a: np.append(a[:-1], 10**6)),
        ("pair_chosen", lambda a: np.append(a[:-1], a[0])),
        ("pair_chosen", lambda a: a[:-1]),
        ("pair_chosen", lambda a: a[:0]),
        ("pair_counts", lambda a: a[:-1]),
        ("pair_groups_0", lambda a: a * 2),
        ("pair_gain_0", lambda a: a + 2**41),
        ("pair_gain_0", lambda a: a - 5 * NAT),
        ("pair_rarity_1", lambda a: a[1:]),
        ("pair_rarity_1", lambda a: a.astype(np.float64)),
        ("cell_starts_0", lambda a: a[::-1].copy()),
    ],
)
def test_a_file_that_says_otherwise_is_refused(tmp_path: Path, name: str, change: Any) -> None:
    release, _ = scored()
    arrays = {name: change(arrays_of(release)[name])}
    with pytest.raises(repsynth.ReleaseError):
        repsynth.Release.load(rewritten(release, tmp_path / "release", arrays))


def test_one_feature_has_no_pairs(tmp_path: Path) -> None:
    schema = parse_schema(
        "one_row_per_person = true\n"
        'label = "y"\ncolumns.x = {type = "integer", min = 0, max = 9}\ncolumns.y = {type = "boolean"}'
    )
    plan = make(schema)
    assert PAIRS not in plan.charges
    table = pa.table({"x": [1, 2, 3] * 50, "y": [True, False, False] * 50})
    release = run(plan, open_source(table), noise_seed=1)
    assert same_release(release, repsynth.Release.load(release.save(tmp_path / "release")))


def test_scores_do_not_depend_on_how_records_are_batched() -> None:
    release, _ = scored()
    records = records_of(make_people(60, 7), SCHEMA)
    one_by_one = [release.score.of(records.take(np.array([i])))[0] for i in range(records.rows)]
    assert np.array_equal(release.score.of(records), one_by_one)


def test_the_kernel_rarity_of_a_category_in_closed_form() -> None:
    """Two categories are 2 apart: exp(−1.7 × 2) of the others counts."""
    bins = Bins.discrete(SCHEMA.discrete[0])
    counts = np.zeros(bins.count, dtype=np.int64)
    counts[:2] = 9000, 1000
    spread = spread_of(Histograms((bins,), counts, 1e-3, 10_000.0), 0, groups=9)
    assert spread.rarity[:2] / NAT == pytest.approx(
        -np.log([0.9 + 0.1 * np.exp(-3.4), 0.1 + 0.9 * np.exp(-3.4)]), rel=1e-3
    )


def test_a_number_is_rarer_the_farther_it_is_from_all_others() -> None:
    column = SCHEMA.numeric[0]
    bins = Bins.at(column, np.array([10, 20, 30]))
    counts = np.zeros(bins.count, dtype=np.int64)
    counts[1] = 10_000
    spread = spread_of(Histograms((bins,), counts, 1e-3, 10_000.0), 0, groups=9)
    numbers = spread.rarity[: spread.cells.numbers] / NAT
    nearest = int(np.argmin(numbers))
    assert np.all(np.diff(numbers[nearest:]) >= 0)
    assert np.all(np.diff(numbers[: nearest + 1]) <= 0)
    assert numbers.max() > numbers.min() + 3


def test_outliers_weigh_less(tmp_path: Path) -> None:
    release = run(make(mu=2.0, public_rows=6000), open_source(make_people(6000)), noise_seed=3)
    records = records_of(make_people(6000), SCHEMA)
    weights = release.weights.of(release.score.of(records)) / FULL
    assert 0.15 < np.mean(weights < 1) < 0.5
    assert Pairwise().targets_outliers


def test_a_table_that_hardly_varies_is_saved_and_loaded(tmp_path: Path) -> None:
    """Where nobody is expected in a combination, nothing is told of it."""
    table = make_people(300)
    for name in ("region", "insured"):
        table = table.set_column(
            table.column_names.index(name), name, pa.array([table[name][0].as_py()] * table.num_rows)
        )
    for seed in range(3):
        release = run(make(mu=5.0), open_source(table), noise_seed=seed)
        arrays = arrays_of(release)
        assert all(np.abs(arrays[name]).max(initial=0) < 2**40 for name in arrays if name.startswith("pair_gain"))
        repsynth.Release.load(release.save(tmp_path / str(seed)))


def test_no_number_of_rows_makes_a_utility_overflow() -> None:
    _, score = scored()
    huge = PairChoice.of(score.spreads, 10.0**12, score.kernels()[SELECTION].choice.rounds)  # type: ignore[union-attr]
    none, one = (huge.total(records_of(make_people(rows), SCHEMA)) for rows in (0, 1))
    moved = np.abs(huge.utilities(one, ()) - huge.utilities(none, ()))
    assert moved.max() <= huge.unit


@pytest.mark.parametrize("mu", [2.0, 5.0])
def test_gains_are_shrunk_by_the_noise_that_their_tables_have(mu: float) -> None:
    """That of all tables together: with the noise of one alone, noise would count as dependence."""
    release, score = scored(mu)
    (event,) = (event for event in release.events if event.name == PAIRS)
    assert isinstance(event, GaussianEvent)
    expected = make_score(score.spreads, score.chosen, score.counts, event.sigma, score.rows)
    for one, other in zip(score.gains, expected.gains, strict=True):
        assert np.abs(one - other).max() <= 1  # in units of 2⁻¹⁶ nats


def test_the_lowest_score_is_that_of_some_record() -> None:
    """Of all combinations of cells, by trying."""
    _, score = scored()
    generator, groups = np.random.default_rng(1), np.array([0, 1, 2, 0, 1])
    for _ in range(5):
        spreads = tuple(
            replace(spread, rarity=generator.integers(0, 5 * NAT, 5), of_cell=groups, masses=np.ones(3))
            for spread in score.spreads
        )
        gains = tuple(generator.integers(-NAT, 3 * NAT, (3, 3)) for _ in score.gains)
        cells = np.indices((5,) * score.columns).reshape(score.columns, -1)
        found = np.sum([spread.rarity[c] for spread, c in zip(spreads, cells, strict=True)], axis=0)
        for (a, b), gain in zip(score.tables.pairs, gains, strict=True):
            found -= gain[groups[cells[a]], groups[cells[b]]]
        assert replace(score, spreads=spreads, gains=gains).lowest == found.min()


def test_the_choice_that_an_audit_attacks_is_the_one_that_was_made(tmp_path: Path) -> None:
    release, measured = record_run(make(mu=5.0), make_people(1000))
    made = {m.event.name: m for m in measured}
    total, ran = made[SELECTION].exact, made[SELECTION].statistic
    assert isinstance(ran, PairChoice)
    for each in (release, repsynth.Release.load(release.save(tmp_path / "release"))):
        again = each.kernels()[SELECTION]
        assert isinstance(again, Chosen)
        assert again.chosen == made[SELECTION].noisy
        assert len(again.chosen) >= 2
        assert (again.choice.rounds, again.choice.unit) == (ran.rounds, ran.unit)
        for k in range(ran.rounds):
            before = again.chosen[:k]
            assert np.array_equal(again.choice.utilities(total, before), ran.utilities(total, before))


def test_pairs_that_close_a_cycle_are_refused() -> None:
    release, score = scored()
    many = np.arange(score.columns)
    with pytest.raises(repsynth.ReleaseError, match="cycle"):
        Pairwise().load(release.stage.coarse, SCHEMA.label, score.dump() | {"pair_chosen": many}, {})


def test_where_columns_say_the_same_their_rare_values_still_stand_out() -> None:
    """Five copies count about once."""
    schema = parse_schema(
        "one_row_per_person = true\n"
        + "\n".join(f'columns.c{k} = {{type = "category", values = ["a", "b", "c"]}}' for k in range(13))
    )
    generator = np.random.default_rng(0)
    one = generator.choice(3, 20_000, p=[0.6, 0.3, 0.1])
    columns = {f"c{k}": one for k in range(5)} | {f"c{k}": generator.integers(0, 3, 20_000) for k in range(5, 13)}
    table = pa.table({name: np.array(["a", "b", "c"])[each] for name, each in columns.items()})
    release = run(make(schema, mu=3.0, model="naive-bayes"), open_source(table), noise_seed=2)
    score = release.stage.unmoved_score
    assert isinstance(score, PairwiseScore)
    assert sum(b < 5 for _, b in score.tables.pairs) == 4  # a tree
    scores = score.of(records_of(table, schema))
    means = [scores[one == value].mean() for value in range(3)]
    assert means[0] < means[1] < means[2]
    assert means[2] - means[0] < 4 * NAT  # once is 1.8 nats, five times 9
