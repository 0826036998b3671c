"""How labels differ in a column: what of noisy tables is believed."""

from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from repsynth.data.sources import open_source
from repsynth.columns.groups import Groups, choose_groups
from repsynth.models.marginal.differences import columns_by_label
from repsynth.models.marginal.mean_weights import _levelled
from repsynth.models.marginal.shrinkage import NoisyTable
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Category, Integer, parse_schema
from repsynth.scoring.base import NAT
from repsynth.columns.cells import Bins
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.scoring.threshold import Threshold

ROWS = 10_000.0
P_LABEL = np.array([0.7, 0.3])
ONES = np.full(10, 0.1)


def numbers(groups: int = 10) -> Groups:
    bins = Bins.at(Integer(name="n", min=0, max=99), np.arange(10, 100, 10))
    return Groups(bins, np.append(np.minimum(np.arange(10), groups - 1), -1))


def categories() -> Groups:
    bins = Bins.discrete(Category(name="c", values=tuple("abcdefghij")))
    return Groups(bins, np.append(np.arange(10), -1))


def truth(along: np.ndarray) -> np.ndarray:
    """(labels, groups): counts whose difference between labels is this."""
    return ROWS * np.outer(P_LABEL, ONES) + np.array([[1.0], [-1.0]]) * along


def estimate(counts: np.ndarray, sigma: float, groups: Groups) -> np.ndarray:
    table = NoisyTable(counts, np.full(counts.shape, sigma**2))
    return ROWS * columns_by_label(P_LABEL, {0: ONES}, {0: table}, (groups,), ROWS)[0]


@pytest.mark.parametrize("groups", [numbers(), categories()])
def test_without_noise_tables_are_believed(groups: Groups) -> None:
    counts = truth(np.array([50.0, -30, 10, 0, 0, -80, 20, 30, 0, 0]))
    assert estimate(counts, 1e-4, groups) == pytest.approx(counts, rel=1e-6)


def test_a_trend_stands_above_noise_that_drowns_single_groups() -> None:
    """The same numbers as a column of categories, in which no order is known, are shrunk away with the noise."""
    generator = np.random.default_rng(0)
    exact = truth(np.linspace(-60, 60, 10))
    errors = {}
    for name, groups in (("numbers", numbers()), ("categories", categories())):
        found = [estimate(exact + generator.normal(0, 60, exact.shape), 60.0, groups) for _ in range(200)]
        errors[name] = np.mean((np.array(found) - exact) ** 2)
    assert errors["numbers"] < 0.8 * errors["categories"]


def test_the_noise_of_a_difference_is_known() -> None:
    """Differences of noise alone: what is believed of them is a fraction that a wrong noise would raise."""
    generator = np.random.default_rng(1)
    exact = truth(np.zeros(10))
    kept = [estimate(exact + generator.normal(0, 60, exact.shape), 60.0, categories()) - exact for _ in range(300)]
    assert np.mean(np.square(kept)) < 0.05 * 60.0**2


def test_a_column_of_one_group_of_numbers_has_no_trend() -> None:
    """It divided by zero."""
    one = numbers(1)
    table = NoisyTable(np.array([[6_900.0], [3_100.0]]), np.full((2, 1), 100.0))
    found = columns_by_label(P_LABEL, {0: np.ones(1)}, {0: table}, (one,), ROWS)[0]
    assert np.isfinite(found).all()


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


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_drawn_records_lie_above_the_threshold_as_often_as_real_ones(spread: float) -> None:
    """Records of a noisy model stand out more, and would be taken to weigh less than real ones do."""
    threshold = Threshold(10 * NAT, np.array([0, 20]) * NAT, np.array([[0, 1, 0]]), 0.3, 0.0)
    scores = (spread * np.random.default_rng(0).normal(12, 2, 10_000) * NAT).astype(np.int64)
    moved = _levelled(SimpleNamespace(threshold=threshold), scores)  # type: ignore[arg-type]
    assert np.mean(moved >= threshold.value) == pytest.approx(0.3, abs=1e-3)
    assert np.array_equal(np.diff(moved), np.diff(scores))
    assert _levelled(SimpleNamespace(threshold=None), scores) is scores  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["mst", "aim"])
def test_where_many_records_have_one_score_what_they_count_for_decides(model: str) -> None:
    """Of even binary columns hardly anybody stands out, whatever fraction is asked for. Levelled, they
    were taken to weigh .7, and two-way tables of `aim` were forty times as far off."""
    generator = np.random.default_rng(0)
    schema = parse_schema(
        "one_row_per_person = true\nlabel = 'y'\n"
        + "\n".join(f"columns.{name} = {{type = 'boolean'}}" for name in "abcdy")
    )
    columns = {name: generator.random(5_000) < 0.5 for name in "abc"}
    columns |= {"d": columns["a"] ^ (generator.random(5_000) < 0.1), "y": generator.random(5_000) < 0.4}
    plan = make_plan(schema, Settings.of(epsilon=2.0, delta=1e-8, public_rows=5_000, model=model))
    release = run(plan, open_source(pa.table(columns)), noise_seed=1)
    drawn = release.sample(5_000, seed=1)
    alike = np.mean(drawn["a"].to_numpy(zero_copy_only=False) == drawn["d"].to_numpy(zero_copy_only=False))
    assert alike == pytest.approx(0.9, abs=0.04)
    for name in "abcd":
        assert np.mean(drawn[name].to_numpy(zero_copy_only=False)) == pytest.approx(0.5, abs=0.04)
