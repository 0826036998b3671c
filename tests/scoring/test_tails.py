"""Tail bounds of scores: they hold, and they are not far from the truth."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from checks import records_of

from repsynth import datasets
from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import ColumnHistograms, Histograms
from repsynth.columns.cells import first_cells
from repsynth.engine.local import LocalEngine
from repsynth.io.records import Records
from repsynth.mechanism.noise import rounded_gaussian, seeded_entropy
from repsynth.scoring.base import NAT
from repsynth.scoring.rarity import SumTails, make_rarity

DRAWS = 2000


def exact_of(records: Records, sigma: float) -> Histograms:
    """Return the true counts of people; the income is a wide column with cells by magnitude."""
    bins = first_cells(datasets.load("people").schema, rows=records.rows, sigma=sigma)
    counts = LocalEngine([records]).sum(ColumnHistograms(bins))
    return Histograms(bins, counts, sigma, float(records.rows))


def drawn(exact: Histograms, records: Records) -> Floats:
    """Scores under fresh noise: draws × records, in nats."""
    found = []
    for seed in range(DRAWS):
        noise = rounded_gaussian(exact.sigma, len(exact.counts), seeded_entropy(seed))
        found.append(make_rarity(replace(exact, counts=exact.counts + noise), None).of(records) / NAT)
    return np.array(found)


@pytest.fixture(scope="module")
def people() -> dict[str, Any]:
    """Some forty records, ordinary ones and outliers, among 6,000; true counts with and without each of them are
    within one of each other, which the bounds allow for."""
    dataset = datasets.load("people")
    records = records_of(dataset.table, dataset.schema)
    exact = exact_of(records, sigma=20.0)
    score = make_rarity(exact, None).of(records)
    few = records.take(np.argsort(score)[:: records.rows // 40])
    return {"exact": exact, "few": few, "drawn": drawn(exact, few)}


def tails_of(exact: Histograms) -> SumTails:
    found = make_rarity(exact, None).tails(exact)
    assert found is not None
    return found


@pytest.mark.slow
@pytest.mark.parametrize("chance", [0.5, 0.1, 0.01])
def test_scores_seldom_fall_below_the_bound(people: dict[str, Any], chance: float) -> None:
    """Fixed by the seeds; a tenth of the chance is five standard deviations of the frequency and more."""
    low = tails_of(people["exact"]).lower(people["few"], chance)
    assert np.all(np.mean(people["drawn"] < low, axis=0) <= chance * 1.1)


@pytest.mark.slow
def test_the_lower_bound_is_close_to_the_truth(people: dict[str, Any]) -> None:
    low = tails_of(people["exact"]).lower(people["few"], 0.001)
    true = np.quantile(people["drawn"], 0.001, axis=0)
    spread = people["drawn"].std(axis=0)
    assert np.all(true - low < 1.2 * spread + 0.15), "Chernoff loses about 0.6 standard deviations here"


@pytest.mark.slow
def test_scores_reach_a_level_no_more_often_than_said(people: dict[str, Any]) -> None:
    levels = np.quantile(people["drawn"], [0.3, 0.6, 0.9, 0.99])
    exceed = tails_of(people["exact"]).exceed(people["few"], levels)
    often = np.mean(people["drawn"][:, :, None] >= levels, axis=0)
    assert np.all(often <= exceed * 1.1 + 0.005)
    assert np.mean(exceed) < np.mean(often) + 0.2


@pytest.mark.slow
def test_bounds_made_for_less_noise_do_not_hold(people: dict[str, Any]) -> None:
    tails = tails_of(replace(people["exact"], sigma=10.0))
    below = np.mean(people["drawn"] < tails.lower(people["few"], 1e-3), axis=0)
    assert np.mean(below > 1e-2) > 0.3
    levels = np.arange(8.0, 30.0, 0.25)
    often = np.mean(people["drawn"][:, :, None] >= levels, axis=0)
    assert np.any(often > 2 * tails.exceed(people["few"], levels) + 0.01)


def test_more_noise_makes_scores_less_certain(people: dict[str, Any]) -> None:
    low, lower = (tails_of(replace(people["exact"], sigma=s)).lower(people["few"], 1e-9) for s in (20.0, 40.0))
    assert np.all(lower < low)


def test_a_certain_failure_is_no_bound(people: dict[str, Any]) -> None:
    assert np.all(tails_of(people["exact"]).lower(people["few"], 0.0) == -np.inf)
