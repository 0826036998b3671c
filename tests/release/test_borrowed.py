"""Scores from an earlier release: they cost nothing, every weight is public before the run, and what is claimed of
both tables together holds."""

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import check_replay, check_spends_its_plan, records_of, refused, rewritten, same_release
from conftest import ALL_TYPES, make_people

import repsynth
from repsynth.cli import main
from repsynth.curator.dossier import dossier
from repsynth.io.sources import open_source
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.adaptive_filter import FAILURE_PART
from repsynth.privacy.budget import Budget
from repsynth.privacy.gaussian import epsilon_of
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.loss import Loss
from repsynth.release.release import Release
from repsynth.release.store import arrays_of
from repsynth.release.verify import borrow
from repsynth.run.payment import Payer
from repsynth.run.run import run
from repsynth.schema import Measured, Schema, parse_schema
from repsynth.scoring.weights import FULL

SCHEMA = parse_schema(ALL_TYPES)
NOW = make_people(300, 8)
SCORERS = ["rarity", "pairwise"]


def earlier(scorer: str = "rarity", **options: Any) -> Release:
    settings = Settings.of(**({"epsilon": 1.0, "delta": 1e-6, "scorer": scorer} | options))
    return run(make_plan(SCHEMA, settings), open_source(make_people(3000)), noise_seed=4)


def later(source: Release | Path, schema: Schema = SCHEMA, **options: Any) -> Plan:
    return make_plan(schema, Settings.of(**({"mu": 0.5} | options)), borrow(source))


@pytest.fixture(scope="module")
def lender() -> Release:
    return earlier()


@pytest.mark.parametrize("scorer", SCORERS)
@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
def test_the_claims_hold_with_scores_from_elsewhere(model: str, scorer: str) -> None:
    plan = later(earlier(scorer), model=model)
    check_spends_its_plan(plan, NOW)
    check_replay(plan, NOW, absent=7)


def test_scoring_costs_nothing_and_the_model_gets_what_it_would_have_cost(lender: Release) -> None:
    own, free = (
        make_plan(SCHEMA, Settings.of(mu=0.5, model="naive-bayes", scorer="pairwise")),
        later(earlier("pairwise"), model="naive-bayes"),
    )
    assert set(own.charges) - set(free.charges) == {"pair selection", "pairs", "scores"}
    assert free.charges["sums"].mu > own.charges["sums"].mu
    assert free.loss.floor_mu < make_plan(SCHEMA, Settings.of(mu=0.5, model="naive-bayes")).loss.floor_mu
    assert later(lender, outlier_epsilon=1.0).ceiling > 0


@pytest.mark.parametrize("scorer", SCORERS)
def test_a_release_carries_its_scores_with_it(scorer: str, tmp_path: Path) -> None:
    source = earlier(scorer)
    folder = source.save(tmp_path / "earlier")
    release = run(later(folder), open_source(NOW), noise_seed=5)
    release.save(tmp_path / "later")
    shutil.rmtree(folder)
    again = Release.load(tmp_path / "later")
    assert same_release(release, again)
    records = records_of(make_people(200, 9), SCHEMA)
    assert np.array_equal(source.score.of(records), again.score.of(records))
    assert again.threshold is not None
    assert again.threshold.value == source.threshold.value  # type: ignore[union-attr]
    assert again.kernels().keys() == {event.name for event in release.events}


def test_who_was_in_both_pays_for_this_schema_too_whatever_the_score(lender: Release) -> None:
    plain = run(later(lender), open_source(NOW), noise_seed=5).privacy
    costly = replace(plain, schema_loss=Loss(0.3, 0.0))
    assert lender.threshold is not None
    for score in (None, lender.threshold.value, lender.threshold.value - 1):
        assert (costly.epsilon_in_both(score) or 0.0) > 1.01 * (plain.epsilon_in_both(score) or 0.0) > 0


def test_it_says_which_release_they_came_from(lender: Release, tmp_path: Path) -> None:
    folder = lender.save(tmp_path / "earlier")
    digest = hashlib.sha256((folder / "release.json").read_bytes()).hexdigest()
    assert borrow(folder).digest == borrow(str(folder)).digest == borrow(lender).digest == digest
    told = repsynth.inspect_release(run(later(lender), open_source(NOW), noise_seed=5))["scores_from"]
    assert told["sha256"] == digest
    assert told["epsilon"] == pytest.approx(lender.privacy.epsilon)
    assert repsynth.inspect_release(lender)["scores_from"] is None


def test_the_realised_loss_is_guaranteed(lender: Release) -> None:
    """The influence of a record is its weight, which is public before the run."""
    for model in ("mst", "naive-bayes"):
        release = run(later(lender, model=model), open_source(NOW), noise_seed=5)
        table, summary = dossier(NOW, release)
        guaranteed, realised = (table[name].to_numpy() for name in ("guaranteed_epsilon", "realised_epsilon"))
        assert np.array_equal(table["guaranteed_weight"], table["weight"])
        assert np.array_equal(guaranteed, realised)
        assert guaranteed.min() < 0.6 * release.privacy.epsilon
        assert summary.no_guarantee is None
        assert summary.guaranteed_fraction == pytest.approx(np.mean(table["weight"].to_numpy() < 1))


def test_weights_do_not_depend_on_this_table(lender: Release) -> None:
    one = run(later(lender), open_source(NOW), noise_seed=5)
    other = run(later(lender), open_source(make_people(900, 77)), noise_seed=6)
    records = records_of(make_people(200, 9), SCHEMA)
    weights = [release.weights.of(release.score.of(records)) for release in (one, other)]
    assert np.array_equal(*weights)
    assert weights[0].min() < FULL == weights[0].max()


def test_the_earlier_release_is_composed_with_its_measured_schema_as_its_own_account_is(lender: Release) -> None:
    """Its settings may have depended on that schema, so a part of δ is reserved."""
    schema = replace(SCHEMA, measured=Measured(mu=0.05, failure=1e-12, mark="0" * 32, columns=("age",)))
    account = replace(lender.privacy, schema_loss=Loss.of_schema(schema))
    assert replace(borrow(lender), schema=schema).epsilon == account.epsilon > account.run_loss.epsilon(1e-6)


def test_who_was_in_both_tables_has_lost_the_sum(lender: Release) -> None:
    release = run(later(lender, outlier_weight=0.5), open_source(NOW), noise_seed=5)
    privacy, before = release.privacy, lender.privacy
    assert privacy.mu is not None
    assert before.mu is not None
    whole, rest = np.hypot(privacy.mu, before.mu), privacy.delta * (1 - FAILURE_PART)
    assert privacy.epsilon_in_both() == pytest.approx(float(epsilon_of(whole, rest)))
    assert lender.threshold is not None
    outlier = np.hypot(privacy.loss.mu_at(0.5), before.loss.mu_at(np.floor(0.2 * FULL) / FULL))
    told = privacy.epsilon_in_both(lender.threshold.value)
    assert told == pytest.approx(float(epsilon_of(outlier, rest)), rel=1e-6)
    assert before.epsilon_in_both() is None


def test_a_seed_in_the_earlier_release_stamps_the_later_one_not_private(lender: Release) -> None:
    assert not lender.publishable
    release = repsynth.synthesize(NOW, SCHEMA, epsilon=1.0, scores_from=lender)
    assert not release.publishable
    private = repsynth.synthesize(make_people(500), SCHEMA, epsilon=1.0)
    assert repsynth.synthesize(NOW, SCHEMA, epsilon=1.0, scores_from=private).publishable


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text.replace("max = 99", "max = 98", 1), "declares otherwise 'age'"),
        (lambda text: text.replace('label = "smoker"', ""), "another label"),
        (lambda text: text + '\n[columns.more]\ntype = "boolean"\n', "has also 'more'"),
    ],
)
def test_other_columns_are_refused_in_words(lender: Release, change: Any, said: str) -> None:
    changed = change(ALL_TYPES)
    assert changed != ALL_TYPES
    with pytest.raises(repsynth.ConfigError, match=f"{said}.*Nothing was spent"):
        later(lender, parse_schema(changed))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scorer": "pairwise"}, "leave the scorer out"),
        ({"outlier_fraction": 0.1}, "leave the outlier fraction out"),
        ({"weights": "uniform"}, "uniform weights do not depend on scores"),
    ],
)
def test_settings_that_the_earlier_release_decides_are_refused(
    lender: Release, options: dict[str, Any], said: str
) -> None:
    with pytest.raises(repsynth.ConfigError, match=said):
        later(lender, **options)


def test_a_release_without_scores_of_its_own_lends_none(lender: Release) -> None:
    second = run(later(lender), open_source(NOW), noise_seed=5)
    with pytest.raises(repsynth.ConfigError, match="came from another one"):
        borrow(second)
    with pytest.raises(repsynth.ConfigError, match="no threshold"):
        borrow(earlier(weights="uniform"))
    with pytest.raises(repsynth.ConfigError, match="release folder only"):
        borrow(3)  # type: ignore[arg-type]


def test_a_damaged_release_is_refused_before_anything_is_spent(lender: Release, tmp_path: Path) -> None:
    ledger = repsynth.Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", repsynth.Budget.approximate(epsilon=4.0, delta=1e-6))
    counts = arrays_of(lender)["threshold_counts"]
    folder = rewritten(lender, tmp_path / "damaged", {"threshold_counts": counts[:-1]})
    with pytest.raises(repsynth.ReleaseError, match="damaged"):
        repsynth.synthesize(NOW, SCHEMA, epsilon=1.0, ledger=ledger, scores_from=folder)
    folder = lender.save(tmp_path / "fine")
    (folder / "arrays.npz").write_bytes(b"other")
    with pytest.raises(repsynth.ReleaseError, match=r"arrays\.npz"):
        repsynth.synthesize(NOW, SCHEMA, epsilon=1.0, ledger=ledger, scores_from=folder)
    assert ledger.balance("people").spendings == ()


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("digest",), "not a digest", "where its scores came from"),
        (("described", "publishable"), True, None),
        (("described", "threshold"), None, "damaged"),
        (("described", "rows"), -1.0, "number of rows"),
        (("described", "fit"), {"made": "up"}, "threshold"),
        (("described", "schema", "label"), None, "damaged"),
        (("described", "events", 0, "sensitivity"), 0.5, "damaged"),
        (("described", "plan", "settings", "scorer", "name"), "random", "damaged"),
        (("described", "format"), 3, "damaged"),
    ],
)
def test_a_later_release_whose_scores_were_tampered_with_is_refused(
    lender: Release, tmp_path: Path, place: tuple[Any, ...], value: Any, said: str | None
) -> None:
    release = run(later(lender), open_source(NOW), noise_seed=5)
    told = json.loads((release.save(tmp_path / "later") / "release.json").read_text())["scores_from"]
    inner = told
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    folder = rewritten(release, tmp_path / "changed", {}, scores_from=told)
    if said is None:  # it says of itself that it is not private: that of the other one does not matter then
        assert not Release.load(folder).publishable
        return
    refused(folder, said)


@pytest.mark.parametrize("name", ["from_threshold_edges", "from_rarity_0", "from_coarse_counts"])
def test_arrays_of_the_scores_are_checked(lender: Release, tmp_path: Path, name: str) -> None:
    release = run(later(lender), open_source(NOW), noise_seed=5)
    folder = rewritten(release, tmp_path / "changed", {name: arrays_of(release)[name][:-1]})
    refused(folder, "damaged")


def test_a_release_cannot_be_private_with_scores_that_are_not(lender: Release, tmp_path: Path) -> None:
    release = run(later(lender), open_source(NOW), noise_seed=5)
    refused(rewritten(release, tmp_path / "changed", {}, publishable=True), "claims to be publishable")


def test_the_command_line_shows_it_everywhere(
    lender: Release, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyarrow import csv

    folder = lender.save(tmp_path / "earlier")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    csv.write_csv(NOW, tmp_path / "people.csv")
    ledger = tmp_path / "ledger.db"
    options = ["--schema", str(tmp_path / "schema.toml"), "--epsilon", "1", "--scores-from", str(folder)]
    assert main(["ledger", "init", str(ledger), "--epsilon", "4"]) == 0
    capsys.readouterr()
    assert main(["plan", *options, "--full"]) == 0
    planned = capsys.readouterr().out
    assert "Scores  from an earlier release" in planned
    assert "guaranteed before the run" in planned
    made = ["synthesize", str(tmp_path / "people.csv"), *options, "--ledger", str(ledger)]
    assert main([*made, "-o", str(tmp_path / "out.csv"), "--release", str(tmp_path / "later")]) == 0
    assert "Guaranteed before the run" in capsys.readouterr().out
    assert main(["inspect", str(tmp_path / "later"), "--full"]) == 0
    shown = capsys.readouterr().out
    digest = borrow(folder).digest[:12]
    assert f"SHA-256 {digest}" in shown
    assert "Who was in that table, too, has lost" in shown
    assert main(["ledger", "show", str(ledger), "--json"]) == 0
    assert f"scores from release {digest}" in capsys.readouterr().out
    assert main([*made[:-2], "--scorer", "random", "--release", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("how", ["left out", "weighted"])
def test_an_earlier_release_cannot_hide_what_its_scores_cost(how: str, tmp_path: Path) -> None:
    """Somebody who was in both tables would be told too small a loss."""
    release = run(later(earlier("pairwise", model="naive-bayes")), open_source(NOW), noise_seed=5)
    own = ("pair selection", "pairs")
    folder = rewritten(release, tmp_path / "release", {})
    Release.load(folder)
    text = json.loads((folder / "release.json").read_text())
    theirs = text["scores_from"]["described"]
    moved = sum(charge["mu"] ** 2 for charge in theirs["plan"]["charges"] if charge["name"] in own)
    for part in (theirs["events"], theirs["plan"]["charges"]):
        if how == "weighted":
            part[:] = [{**each, "weighted": True} if each["name"] in own else each for each in part]
        else:
            part[:] = [each for each in part if each["name"] not in own]
    if how == "left out":  # and the model takes their charge, so that the whole is the same
        (sums,) = [charge for charge in theirs["plan"]["charges"] if charge["name"] == "sums"]
        (event,) = [event for event in theirs["events"] if event["name"] == "sums"]
        whole = math.hypot(sums["mu"], math.sqrt(moved))
        event["sigma"] *= sums["mu"] / whole
        sums["mu"] = whole
    with pytest.raises(repsynth.ReleaseError):
        Release.load(rewritten(release, tmp_path / how, {}, scores_from=text["scores_from"]))


@pytest.mark.parametrize("weights", ["targeted", "hinge-exp", "cap"])
def test_an_asked_outlier_epsilon_holds_with_scores_from_elsewhere(lender: Release, weights: str) -> None:
    plan = make_plan(
        SCHEMA, Settings.of(epsilon=1.0, delta=1e-6, outlier_epsilon=0.4, weights=weights), borrow(lender)
    )
    release = run(plan, open_source(NOW), noise_seed=5)
    assert release.privacy.outlier_epsilon <= 0.4 * (1 + 1e-9)


@pytest.mark.parametrize(
    "options", [{"model": "naive-bayes"}, {"model": "autoregressive", "sampling_rate": 0.25, "epochs": 2.0}]
)
def test_all_of_it_is_charged_to_a_ledger(options: dict[str, Any], lender: Release, tmp_path: Path) -> None:
    """What scores from elsewhere save is theirs alone: rounds of training are charged as ever."""
    plan = make_plan(SCHEMA, Settings.of(epsilon=1.0, delta=1e-6, **options), borrow(lender))
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", Budget.approximate(epsilon=2.0, delta=1e-6))
    Payer(ledger, "people").reserve(plan)
    (spending,) = ledger.balance("people").spendings
    assert len(spending.loss.trainings) == (plan.training is not None)
    assert spending.loss.epsilon(1e-6) == pytest.approx(plan.loss.epsilon(1e-6), rel=1e-6)


@pytest.mark.parametrize("change", [{"sigma": 10.0}, {"sensitivity": 0.5, "sigma": 0.5}])
def test_what_the_earlier_release_says_of_its_events_is_checked(
    change: dict[str, float], lender: Release, tmp_path: Path
) -> None:
    release = run(later(lender), open_source(NOW), noise_seed=5)
    folder = release.save(tmp_path / "release")
    theirs = json.loads((folder / "release.json").read_text())["scores_from"]
    for event in theirs["described"]["events"]:
        for name, factor in change.items():
            if name in event:
                event[name] *= factor
    with pytest.raises(repsynth.ReleaseError):
        Release.load(rewritten(release, tmp_path / "changed", {}, scores_from=theirs))
