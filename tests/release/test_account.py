"""What a release says of its records: fractions that can be, with their errors, and the same in every place."""

import re
from io import StringIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import records_of
from conftest import ALL_TYPES, make_people
from rich.console import Console

from repsynth import Release, inspect_release
from repsynth.arrays import Floats, Ints
from repsynth.cli import render
from repsynth.cli.render import rounded_up
from repsynth.columns.adaptive_histogram import ColumnHistograms
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import FINEST, Count, Rounds
from repsynth.models.naive_bayes import WeightedSums
from repsynth.models.registry import MODELS
from repsynth.models.statistics import LabelTables, Tables
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import ExponentialEvent, SampledEvent
from repsynth.privacy.formatting import fixed_lower, fixed_upper
from repsynth.release.account import NoisyFraction, _cut, purpose
from repsynth.run.run import run
from repsynth.schema import parse_schema
from repsynth.scoring.base import NAT
from repsynth.scoring.pairwise import PairTables
from repsynth.scoring.stage import WeightedHistograms
from repsynth.scoring.threshold import ScoreHistogram
from repsynth.scoring.weights import FULL

SCHEMA = parse_schema("""
one_row_per_person = true
label = "smoker"
columns.age = {type = "integer", min = 18, max = 99}
columns.region = {type = "category", values = ["north", "south", "east"]}
columns.insured = {type = "boolean"}
columns.smoker = {type = "boolean"}
""")


def seeded(table: pa.Table, *, seed: int = 3, **options: object) -> Release:
    settings = Settings.of(**{"model": "naive-bayes", "delta": 1e-6, "public_rows": table.num_rows, **options})
    return run(make_plan(SCHEMA, settings), open_source(table), noise_seed=seed)


def made_of(kinds: list[int], rows: int) -> pa.Table:
    """Records of so many kinds, as often as each is named."""
    kind = np.resize(kinds, rows)
    return pa.table(
        {
            "age": np.array([30, 80, 55])[kind],
            "region": np.array(["north", "south", "east"])[kind],
            "insured": kind == 0,
            "smoker": kind == 1,
        }
    )


@pytest.mark.parametrize(
    ("kinds", "weights"),
    [
        ([0], "targeted"),
        ([0] * 19 + [1], "targeted"),
        ([0, 1, 2], "targeted"),
        ([0], "cap"),
        ([0], "random"),
    ],
    ids=["equal", "nearly equal", "three kinds", "equal-cap", "equal-random"],
)
@pytest.mark.parametrize(("rows", "epsilon"), [(3000, 1.0), (3000, 4.0), (3000, 20.0), (30_000, 1.0)])
@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_of_equal_records_the_fraction_above_is_what_it_is(
    model: str, rows: int, epsilon: float, kinds: list[int], weights: str
) -> None:
    """Not the wanted one: the threshold lies beside the one or two scores that there are."""
    table = made_of(kinds, rows)
    release = seeded(table, epsilon=epsilon, model=model, weights=weights)
    above, threshold = release.privacy.fraction_above, release.threshold
    assert above is not None
    assert threshold is not None
    scores = release.score.of(records_of(table, SCHEMA))
    assert abs(np.mean(scores >= threshold.value) - above.value) <= 4 * above.standard_error
    told = inspect_release(release)["threshold"]
    assert (told["fraction_above"], told["fraction_standard_error"]) == (above.value, above.standard_error)


@pytest.mark.parametrize(("rows", "epsilon"), [(3000, 1.0), (3000, 4.0), (30_000, 4.0)])
def test_the_table_of_losses_says_the_same_as_the_line_above_it(rows: int, epsilon: float) -> None:
    for kinds in ([0], [0] * 19 + [1], [0, 1, 2]):
        table = made_of(kinds, rows)
        release = seeded(table, epsilon=epsilon)
        above, losses = release.privacy.fraction_above, release.privacy.by_epsilon(rounded_up)
        assert above is not None
        assert list(losses) == sorted(losses, reverse=True)
        outliers = losses[rounded_up(release.privacy.outlier_epsilon)]
        assert abs(outliers.value - above.value) <= outliers.standard_error
        weights = release.weights.of(release.score.of(records_of(table, SCHEMA)))
        ordinary = losses[rounded_up(release.privacy.epsilon)]
        assert abs(ordinary.value - np.mean(weights == FULL)) <= 4 * ordinary.standard_error
        strata = release.privacy.distribution()
        light = sum(s.fraction for s in strata if s.weight < 1)
        assert (
            abs(light - outliers.value) <= 4 * outliers.standard_error + 0.05
        )  # its bins are cut off at 0 one by one


def test_many_different_records_keep_the_wanted_fraction() -> None:
    generator = np.random.default_rng(0)
    table = pa.table(
        {
            "age": np.clip(generator.normal(50, 12, 30_000), 18, 99).astype(int),
            "region": generator.choice(["north", "south", "east"], 30_000, p=[0.6, 0.3, 0.1]),
            "insured": generator.random(30_000) < 0.8,
            "smoker": generator.random(30_000) < 0.3,
        }
    )
    release = seeded(table, epsilon=2.0, outlier_fraction=0.2)
    above = release.privacy.fraction_above
    assert above is not None
    scores = release.score.of(records_of(table, SCHEMA))
    assert release.threshold is not None
    assert above.value == pytest.approx(0.2, abs=0.03)
    assert abs(np.mean(scores >= release.threshold.value) - above.value) < 0.03


def test_no_threshold_no_fraction() -> None:
    release = seeded(made_of([0, 1, 2], 600), epsilon=2.0, weights="uniform")
    assert release.privacy.fraction_above is None
    assert release.privacy.by_epsilon() == {}


def test_a_fraction_is_shown_between_none_and_all() -> None:
    assert str(NoisyFraction.of(1.02, 0.03)) == "100% ± 3%"
    assert str(NoisyFraction.of(-0.01, 0.012)) == "0.0% ± 1.2%"
    assert str(NoisyFraction.of(0.3, 0.0)) == "30.0% ± 0.1%"


def test_never_more_than_all_of_a_column_could_not_be_read() -> None:
    table = made_of([0, 1, 2], 600).set_column(1, "region", pa.array(["?"] * 600))
    beyond = 0
    for seed in range(20):
        release = seeded(table, seed=seed, epsilon=2.0)
        (said,) = [text for text in release.warnings if "could not be read" in text]
        found = re.match(r"about ([0-9.]+)% ± [0-9.]+% of column 'region'", said)
        assert found, said
        assert float(found[1]) <= 100
        beyond += release.stage.coarse.noisy(1)[-1] > 600
    assert beyond > 0  # noise does go beyond


def skewed(rows: int, *, smokers_alike: bool = False) -> pa.Table:
    """A fifth, which is the smokers, is spread over all values, others are nearly alike; or smokers are a fifth of
    both."""
    generator = np.random.default_rng(1)
    spread = generator.random(rows) < 0.2
    return pa.table(
        {
            "age": np.where(spread, generator.integers(18, 99, rows), generator.integers(40, 44, rows)),
            "region": np.where(spread, generator.choice(["south", "east"], rows), "north"),
            "insured": np.where(spread, generator.random(rows) < 0.3, True),
            "smoker": generator.random(rows) < 0.2 if smokers_alike else spread,
        }
    )


@pytest.mark.parametrize("model", ["naive-bayes", "mst", "aim"])
def test_a_label_that_counts_for_less_is_named(model: str) -> None:
    table = skewed(6000)
    release = seeded(table, epsilon=4.0, model=model)
    (said,) = release.warnings
    assert said.startswith("records whose smoker is 'true' have about ")
    assert "outlier fraction" in said
    found = re.search(r"about (\d+)% of the mean weight of others", said)
    assert found
    counted, label = counted_for(release, table)
    assert int(found[1]) == pytest.approx(100 * counted[label == 1].mean() / counted[label == 0].mean(), abs=5)


def counted_for(release: Release, table: pa.Table) -> tuple[Floats, Ints]:
    """What each record counts for, its weight or, where it is clipped, less; and its label."""
    records = records_of(table, SCHEMA)
    fit: Any = release.fit
    statistic = fit.statistic if release.plan.model.name == "naive-bayes" else fit.measured[0].tables
    weights = release.weights.of(release.score.of(records))
    units = statistic.multiplier(statistic.cells(records), weights)
    return units / FULL, records.codes["smoker"]


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (skewed(6000), {"weights": "uniform"}),
        (skewed(6000), {"weights": "random"}),
        (skewed(6000, smokers_alike=True), {}),
        (skewed(40), {}),
    ],
    ids=["uniform", "random", "alike", "few"],
)
@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_labels_that_count_alike_or_that_noise_hides_are_not(
    model: str, table: pa.Table, options: dict[str, object]
) -> None:
    for seed in range(5):
        release = seeded(table, seed=seed, epsilon=4.0, model=model, **options)
        assert not [said for said in release.warnings if "count for" in said]


def test_noise_alone_makes_no_label_count_for_less() -> None:
    """In a table so small that one label of two often looks as if it did."""
    generator = np.random.default_rng(2)
    table = pa.table(
        {
            "age": generator.integers(18, 99, 440),
            "region": generator.choice(["north", "south", "east"], 440),
            "insured": generator.random(440) < 0.5,
            "smoker": np.arange(440) % 2 == 0,
        }
    )
    lowest = []
    for seed in range(30):
        release = seeded(table, seed=seed, epsilon=1.0, outlier_weight=0.2)
        masses = release.fit.label_masses()
        assert masses is not None
        weights = masses[0] / release.stage.coarse.noisy(3)[:-1]
        lowest.append(weights.min() / weights.max())
        assert not [said for said in release.warnings if "count for" in said]
    assert min(lowest) < 0.5


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_the_released_weights_of_labels_are_as_noisy_as_they_say(model: str) -> None:
    table = skewed(2000)
    errors = []
    for seed in range(20):
        release = seeded(table, seed=seed, epsilon=1.0, model=model)
        masses = release.fit.label_masses()
        assert masses is not None
        counted, label = counted_for(release, table)
        errors.append((masses[0] - np.bincount(label, counted)) / masses[1])
    assert 0.7 < np.std(errors) < 1.4


@pytest.mark.parametrize("rule", ["hinge-exp", "cap", "targeted"])
def test_no_score_of_a_stratum_weighs_more_than_the_stratum_says(rule: str) -> None:
    """Weights fall with the score, so the first score of each has the largest; above the threshold likewise."""
    privacy = seeded(made_of([0] * 15 + [1, 2], 20_000), weights=rule, epsilon=4.0).privacy
    strata, weights = privacy.distribution(), privacy.weights
    starts = np.array([round(stratum.score * NAT) for stratum in strata])
    assert len(starts) > 3
    assert np.all(np.diff(starts) >= 0)
    for stratum, start, end in zip(strata, starts, [*starts[1:], starts[-1] + 40 * NAT], strict=True):
        largest = weights.of(np.linspace(start, max(end - 1, start), 200).astype(np.int64)).max() / FULL
        assert largest == stratum.weight
        assert stratum.epsilon == float(privacy.epsilon_at(largest))
    assert len({stratum.weight for stratum in strata}) > 1
    assert privacy.threshold is not None
    above = weights.of(privacy.threshold.value + np.arange(0, 40 * NAT, NAT // 64)).max() / FULL
    assert privacy.outlier_weight == above


def test_the_published_fraction_covers_lumps_that_histograms_do_not_show() -> None:
    """Columns that are copies make scores equal that would differ, were columns drawn one by one. The fraction
    was said to be 29.7 % ± 0.2 % where 23 % lie above."""
    generator = np.random.default_rng(0)
    rows, chances = 30_000, [0.35, 0.25, 0.17, 0.10, 0.07, 0.06]
    copied = generator.choice(6, rows, p=chances)
    columns = {f"c{k}": copied for k in range(5)} | {f"o{k}": generator.integers(0, 6, rows) for k in range(8)}
    values = ", ".join(f'"{k}"' for k in range(6))
    schema = parse_schema(
        "one_row_per_person = true\n"
        + "\n".join(f'columns.{name} = {{type = "category", values = [{values}]}}' for name in columns)
    )
    table = pa.table({name: codes.astype(str) for name, codes in columns.items()})
    plan = make_plan(schema, Settings.of(epsilon=4.0, delta=1e-9, model="naive-bayes"))
    release = run(plan, open_source(table), noise_seed=1)
    weights = release.weights.of(release.score.of(records_of(table, schema)))
    published = release.privacy.fraction_above
    assert published is not None
    assert abs(published.value - np.mean(weights < FULL)) < 3 * published.standard_error


def test_what_lies_beyond_the_outermost_bins_of_scores_is_unsure() -> None:
    """0.0 % ± 1.2 % was said where 9 % lay above a threshold beyond the last edge."""
    starts, counts, _, unsure = _cut(np.array([0, 10]), np.array([1.0, 5.0, 4.0]), 99, 0)
    assert starts.tolist() == [-1, 0, 10, 99]
    assert counts.tolist() == [1.0, 5.0, 4.0, 0.0]
    assert unsure.tolist() == [0.0, 0.0, -2.0, 2.0]


def cells_of(kernel: object) -> int | None:
    """How many cells a record adds one to; None of clipped sums."""
    if isinstance(kernel, Count | ScoreHistogram):
        return 1
    if isinstance(kernel, ColumnHistograms | WeightedHistograms):
        return len(kernel.bins)
    if isinstance(kernel, PairTables | Tables):
        return len(kernel.pairs)
    assert isinstance(kernel, LabelTables | WeightedSums | Rounds)
    return None


@pytest.mark.parametrize(
    ("model", "scorer"),
    [*((model, "rarity") for model in MODELS), ("naive-bayes", "pairwise")],
)
def test_sensitivity_and_noise_are_told_in_records(model: str, scorer: str) -> None:
    """Against the charge, and against what real records add. Of clipped sums only the norm is known."""
    people = make_people(2000)
    knobs = {"epochs": 1.0, "sampling_rate": 0.2} if model == "autoregressive" else {}
    settings = Settings.of(epsilon=2.0, delta=1e-6, model=model, scorer=scorer, **knobs)
    release = run(make_plan(parse_schema(ALL_TYPES), settings), open_source(people), noise_seed=3)
    console = Console(width=200, file=StringIO())
    render.release(console, release)
    printed, kernels = console.file.getvalue(), release.kernels()  # type: ignore[attr-defined]
    records = records_of(people, release.schema)
    told = {each["name"]: each for each in inspect_release(release)["measurements"] if "sigma" in each}
    assert {"coarse histograms", "scores"} < told.keys()
    for event in release.events:
        if isinstance(event, ExponentialEvent):
            continue
        name, noise, kernel = event.name, told[event.name], kernels[event.name]
        mu = 1 / event.noise if isinstance(event, SampledEvent) else event.mu
        assert noise["sensitivity"] / noise["sigma"] == pytest.approx(mu, rel=1e-9)
        if isinstance(kernel, Rounds):
            parts = kernel.parts(records)
            each = np.array([kernel.kernel().total(parts[i : i + 1]) for i in range(40)])
        else:
            each = np.array([kernel.total(records.take(np.array([i]))) for i in range(40)])  # type: ignore[union-attr]
        largest = float(np.sqrt((each.astype(np.float64) ** 2).sum(axis=1)).max()) / noise["grid"]
        if cells := cells_of(kernel):
            assert np.abs(each).max() == noise["grid"], name
            assert noise["sensitivity"] == pytest.approx(largest) == pytest.approx(cells**0.5)
        else:
            assert 0.5 * noise["sensitivity"] < largest <= noise["sensitivity"] * (1 + 1e-9), name
        assert noise["grid"] <= FINEST or isinstance(kernel, Rounds)
        sensitivity, sigma = fixed_upper(noise["sensitivity"], 3), fixed_lower(noise["sigma"], 2)
        assert re.search(rf"(?m)^{name} +{purpose(name, release.plan.model)} +{sensitivity} +{sigma} ", printed)
