"""The guaranteed loss where several rows may be one person's: all that may fail of a person fails together no more
often than it may, on the table and on the one without them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from scipy.special import ndtr, ndtri
from test_guarantee_exact import reaching

from repsynth.arrays import Floats, Ints
from repsynth.attacks.audit import white_box
from repsynth.attacks.targets import Target
from repsynth.columns.adaptive_histogram import Histograms
from repsynth.columns.cells import Bins
from repsynth.curator import guarantee
from repsynth.curator.dossier import dossier
from repsynth.curator.guarantee import _Reaching, guaranteed_weights, why_none
from repsynth.engine.local import LocalEngine
from repsynth.io.records import ALONE, UNITS, Records, Whose, factors_of, join
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Count
from repsynth.mechanism.meter import Meter
from repsynth.mechanism.noise import seeded_entropy
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.run.run import run
from repsynth.schema import Boolean, Category, Id, Person, Schema
from repsynth.scoring.base import NAT
from repsynth.scoring.rarity import make_rarity
from repsynth.scoring.stage import StageOne, measure_stage_one
from repsynth.scoring.threshold import MOST_BINS, _read
from repsynth.scoring.weights import FULL, WeightFunction

LABEL = Boolean(name="rare")
PEOPLE = 20_000
SCHEMA = Schema(
    columns=(
        Id(name="who"),
        *(Category(name=f"part {k}", values=tuple(f"v{i}" for i in range(12))) for k in range(6)),
        LABEL,
    ),
    label="rare",
    person=Person(column="who"),
)


# Small cases whose chances are known.


def somebody(rows: int, labels: Sequence[int], most: int = 1) -> Records:
    """One person with so many rows, of these labels in turn; scores are not looked at."""
    whose = Whose(np.zeros(rows, dtype=np.int64), factors_of(np.full(rows, rows), most))
    return Records(rows=rows, codes={"rare": np.resize(labels, rows)}, whose=whose)


def bounds_by(person: Records, lower: Any, by_label: Any, eta: float) -> tuple[Floats, WeightFunction]:
    """The bounds of a person's rows, where scores and thresholds have these bounds."""
    weights = WeightFunction(start=0, table=np.arange(FULL, 0, -1))
    tails = mock.Mock()
    tails.lower.side_effect = lower
    tails.exceed.side_effect = lambda records, levels: np.zeros((records.rows, len(levels)))
    release: Any = mock.Mock(weights=weights, schema=SCHEMA)
    release.stage = mock.Mock(spec=["borrowed", "coarse"], borrowed=None)
    release.score.tails.return_value = tails
    release.score.columns = 6
    with (
        mock.patch.object(guarantee, "why_none", return_value=None),
        mock.patch.object(guarantee, "replace", lambda coarse, counts: coarse),
        mock.patch.object(guarantee, "ColumnHistograms", return_value=Count()),
        mock.patch.object(guarantee, "_threshold_sigma", return_value=1.0),
        mock.patch.object(guarantee, "_highest_by_label", by_label),
    ):
        return guaranteed_weights(release, [person], eta=eta), weights


DRAWS = 40_000
ETA = 0.1


def fails(weights: WeightFunction, bound: Floats, above: Floats) -> float:
    """How often any row of a person, so far above the threshold of its label, weighs more than its bound."""
    places = np.floor(above * NAT).astype(np.int64)
    found = weights.of(places.ravel()).reshape(places.shape) / FULL
    return float(np.mean(np.any(found > bound + 1e-9, axis=1)))


def nearly(found: float, chance: float) -> bool:
    """Not more often than it may, but for five standard deviations of the draws, and not much less often."""
    return 0.85 * chance < found < chance + 5 * math.sqrt(chance / DRAWS)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_any_score_of_a_person_falls_below_its_bound_nearly_as_often_as_it_may(rows: int) -> None:
    """Scores are Gaussian and independent, and their bounds exact; the threshold is certain."""
    bound, weights = bounds_by(
        somebody(rows, [0]),
        lambda records, chance: 40 + 4 * ndtri(np.broadcast_to(chance, records.rows)),
        lambda every, chance, **_: np.zeros(3),
        ETA,
    )
    scores = 40 + 4 * np.random.default_rng(1).normal(size=(DRAWS, rows))
    assert nearly(fails(weights, bound, scores), ETA / 2)


@pytest.mark.parametrize("labels", [[0], [0, 1], [0, 1, -1]])
def test_any_threshold_of_a_person_exceeds_its_bound_nearly_as_often_as_it_may(labels: list[int]) -> None:
    """Here scores are certain, and each label's threshold is Gaussian; the last label cannot be read."""
    person = somebody(6, labels)
    bound, weights = bounds_by(
        person,
        lambda records, chance: np.full(records.rows, 40.0),
        lambda every, chance, **_: np.full(3, -4 * ndtri(chance)),
        ETA,
    )
    drawn = 4 * np.random.default_rng(1).normal(size=(DRAWS, 3))
    row = np.where(person.codes["rare"] < 0, 2, person.codes["rare"])
    assert nearly(fails(weights, bound, 40 - drawn[:, row]), ETA / 2)


@pytest.mark.parametrize("chance", [0.4, 0.02])
def test_the_threshold_of_a_table_without_a_person_exceeds_its_bound_no_more_often(chance: float) -> None:
    """Somebody whose rows, of a low score, are a part of the table that shows beside the noise: without them the
    wanted number, a fraction of all, is smaller. And nearly as often as it may."""
    most, sigma, fraction = 60_000.0, 3000.0, 0.3
    true = np.zeros(MOST_BINS)
    true[[0, 1]] = 500_000.0
    bound = reaching(true, most).highest(chance, fraction=fraction, sigma=sigma)
    true[0] -= most
    edges, found = np.arange(len(true) - 1) * NAT, []
    for noise in np.rint(np.random.default_rng(1).normal(0, sigma, (20_000, len(true)))):
        noisy = true + noise
        found.append(_read(edges, noisy, fraction=fraction, rows=noisy.sum(), sigma=sigma)[0] / NAT)
    often = float(np.mean(np.array(found) > bound))
    assert 0.6 * chance / 2 < often < chance / 2 + 5.5 * math.sqrt(chance / 2 / 20_000)


def test_a_first_edge_that_all_but_one_person_reach_may_be_the_threshold() -> None:
    """Where more records were declared than there are, no edge is ever reached, and the threshold is the first, at
    the lowest score of all. Without the one person who lies below it, that is the second edge here."""
    true = np.zeros(MOST_BINS)
    true[[0, 2]] = 400.0, 1000.0
    assert reaching(true, 400.0).highest(0.02, fraction=0.3, sigma=20.0, rows=1e6) >= 1.0
    assert reaching(true, 399.0).highest(0.02, fraction=0.3, sigma=20.0, rows=1e6) == 0.0


def test_a_label_that_a_person_may_leave_with_too_few_has_the_higher_threshold() -> None:
    """From 1,000 records on a label has a threshold of its own here; noise takes some 350 at most."""
    true = np.zeros(MOST_BINS)
    true[1] = 1600.0
    own, common = 0.5, 9.0
    with mock.patch.object(_Reaching, "highest", return_value=own):
        few, many = (
            guarantee._own_or_common(reaching(true, most), common, 0.02, fraction=0.3, sigma=20.0)
            for most in (400.0, 1.0)
        )
    assert (few, many) == (common, own)


def test_scores_on_a_table_without_a_person_reach_a_level_no_more_often_than_said() -> None:
    """A value that nobody but one person has, who counts as five: without them its noisy count is around zero."""
    smoker = Bins.discrete(LABEL)
    exact = Histograms((smoker,), np.array([1000.0, 5.0, 0.0]), 2.0, 1005.0)
    record = Records(rows=1, codes={"rare": np.ones(1, dtype=np.int64)})
    tails = make_rarity(exact, None).tails(exact, 5.0)
    assert tails is not None
    level = -math.log(1.5 / 1005)  # as rare as one and a half
    (said,) = tails.exceed(record, np.array([level]))[0]
    assert said >= float(ndtr((1.5 - 0.0) / 2.0))
    one = make_rarity(exact, None).tails(exact, 1.0)
    assert one is not None
    assert one.exceed(record, np.array([level]))[0, 0] < float(ndtr((1.5 - 0.0) / 2.0))


def test_rows_are_counted_for_what_they_count() -> None:
    """Three rows of one person and one of another count as two."""
    whose = Whose(np.array([0, 0, 1, 0]), np.array([UNITS // 4, UNITS // 4, UNITS, UNITS // 2]))
    records = Records(rows=4, codes={}, whose=whose)
    tails: Any = mock.Mock()
    tails.exceed.return_value = np.array([[0.9], [0.2], [0.2], [0.9]])
    (found,) = guarantee._count([records], [np.zeros(4, dtype=np.int64)], 1, tails, np.zeros(1), 1.0)
    assert found.records == 2.0
    assert found.at_most(0.5) == pytest.approx([(0.75 * 0.9 + 1.25 * 0.2) / 0.5])


def test_how_many_rows_and_labels_somebody_has() -> None:
    """A row without an id is somebody's alone."""
    places, labels = np.array([4, ALONE + 1, 4, ALONE + 3, 7, 4]), np.array([0, 1, 1, 1, -1, 0])
    parts = [
        Records(rows=3, codes={"rare": labels[some]}, whose=Whose(places[some], np.full(3, UNITS)))
        for some in (slice(0, 3), slice(3, 6))
    ]
    own, several = guarantee._of_persons(parts, SCHEMA)
    assert own.tolist() == [3, 1, 3, 1, 1, 3]
    assert several.tolist() == [2, 1, 2, 1, 1, 2]


# The whole: stage 1 many times over.


def make_table() -> pa.Table:
    """Persons with one to four rows; a label of 15 % of them has most of what is rare; some have both."""
    generator = np.random.default_rng(5)
    who = np.repeat(np.arange(PEOPLE), generator.integers(1, 5, PEOPLE))
    rare = (generator.random(PEOPLE) < 0.15)[who]
    rare ^= generator.random(len(who)) < 0.02
    columns: dict[str, Any] = {"who": who}
    for k in range(6):
        common = np.minimum(generator.geometric(0.5, len(who)), 12) - 1
        columns[f"part {k}"] = [f"v{i}" for i in np.where(rare, generator.integers(0, 12, len(who)), common)]
    return pa.table({**columns, "rare": rare})


def stage_one(plan: Plan, records: Records, seed: int) -> StageOne:
    meter = Meter(
        LocalEngine([records], person=plan.schema.person), mu=plan.mu, entropy=seeded_entropy(seed),
        delta=plan.delta,
    )  # fmt: skip
    return measure_stage_one(meter, plan, lambda _: None)


@dataclass(frozen=True)
class Runs:
    """One table, and stage 1 carried out many times: at odd seeds without one person."""

    records: Records
    release: Release
    weights: Sequence[Floats]


@pytest.fixture(scope="module")
def runs() -> Runs:
    table = make_table()
    settings = Settings.of(epsilon=10.0, delta=1e-6, public_rows=PEOPLE, weights="hinge-exp", model="naive-bayes")
    plan = make_plan(SCHEMA, settings)
    release = run(plan, open_source(table), noise_seed=1)
    records = join(
        list(LocalEngine.open(open_source(table), SCHEMA).per_record()), [c.name for c in SCHEMA.learned]
    )
    assert records.whose is not None
    farthest = records.whose.places[int(np.argmax(release.score.of(records)))]
    without = records.take(records.whose.places != farthest)
    stages = [stage_one(plan, without if seed % 2 else records, seed) for seed in range(2, 42)]
    return Runs(records, release, [stage.weights.of(stage.score.of(records)) / FULL for stage in stages])


def of_persons(records: Records, of_rows: Floats) -> Floats:
    assert records.whose is not None
    return np.bincount(records.whose.places, records.whose.factors / UNITS * of_rows)


def places_of(records: Records) -> Ints:
    """Persons by number."""
    assert records.whose is not None
    return np.unique(records.whose.places, return_inverse=True)[1]


@pytest.mark.slow
@pytest.mark.parametrize("eta", [1e-12, 1e-3])
def test_no_person_ever_weighs_more_than_their_bound(runs: Runs, eta: float) -> None:
    """Fixed by the seeds; with others, a given person exceeds it with a chance of at most 40 η."""
    assert why_none(runs.release) is None
    bound = guaranteed_weights(runs.release, [runs.records], eta=eta)
    label = runs.records.codes["rare"]
    for value in (0, 1):
        assert 0.01 < np.mean(bound[label == value] < 1) < 0.7, "neither empty nor for everybody"
    for weights in runs.weights:
        assert np.all(weights <= bound + 1e-12)
        assert np.all(of_persons(runs.records, weights) <= of_persons(runs.records, bound) + 1e-9)


@pytest.mark.slow
def test_bounds_are_smaller_for_whom_less_may_fail(runs: Runs) -> None:
    """Rows that are the same in all columns, of persons with one row and of persons with more."""
    bound = guaranteed_weights(runs.release, [runs.records], eta=1e-6)
    rows = np.bincount(places_of(runs.records))[places_of(runs.records)]
    cells = np.stack([runs.records.codes[column.name] for column in SCHEMA.learned])
    _, same = np.unique(cells, axis=1, return_inverse=True)
    same = same.ravel()
    alone = np.full(same.max() + 1, np.inf)
    np.minimum.at(alone, same[rows == 1], bound[rows == 1])
    known = np.isfinite(alone[same]) & (rows > 1)
    assert np.all(bound[known] >= alone[same][known] - 1e-12)
    assert np.any(bound[known] > alone[same][known])


@pytest.mark.slow
def test_a_dossier_states_what_is_guaranteed_to_persons(runs: Runs) -> None:
    table, summary = dossier(make_table(), runs.release)
    assert summary.no_guarantee is None
    assert 0.1 < summary.guaranteed_fraction < 0.9
    losses = dict(zip(table["person"].to_pylist(), table["guaranteed_epsilon"].to_pylist(), strict=True))
    assert len(losses) == PEOPLE
    assert max(losses.values()) <= runs.release.privacy.epsilon * (1 + 1e-9)


@pytest.mark.slow
@pytest.mark.attack
def test_an_audit_judges_the_guarantee_of_a_person(runs: Runs) -> None:
    """By all of their rows: somebody with one outlier among ordinary rows has more to lose than that row."""
    bound = guaranteed_weights(runs.release, [runs.records], eta=runs.release.plan.delta / 2)
    who = places_of(runs.records)
    mean = np.bincount(who, bound) / np.bincount(who)
    last = np.zeros(len(mean))
    last[who] = bound  # of each person's last row
    mixed = who == int(np.argmax(mean - last))
    assert (mean - last)[who[mixed][0]] > 0.3
    target = Target("mixed", runs.records.take(~mixed), runs.records.take(mixed))
    finding = white_box(runs.release, target, runs=200)[-1]
    loss = runs.release.privacy.run_loss
    assert finding.guaranteed_mu == pytest.approx(float(loss.mu_at(bound[mixed].mean())), rel=2e-3)
    assert finding.guaranteed_mu > 1.2 * float(loss.mu_at(bound[mixed][-1]))
    assert not finding.exceeded


def test_several_rows_that_count_have_no_guarantee() -> None:
    """Their number is not public, and the bounds rest on it."""
    several = replace(SCHEMA, person=Person(column="who", rows=2), one_row_per_person=False)
    plan = make_plan(several, Settings.of(epsilon=10.0, delta=1e-6, model="naive-bayes"))
    release = run(plan, open_source(make_table().slice(0, 3000)), noise_seed=1)
    assert "several rows of a person count" in (why_none(release) or "")
