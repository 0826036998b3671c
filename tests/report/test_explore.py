"""The plans that the page shows are those of the library, at every stop."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from repsynth import datasets, parse_schema, report, synthesize
from repsynth.errors import ConfigError
from repsynth.planning.figures import plan_data
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy import pld
from repsynth.privacy.formatting import fixed_upper, upper
from repsynth.report.explore import CURVE, explore_facts
from repsynth.schema import Measured, Schema
from studies.benchmarks.trained import DELTAS, EPSILONS, WEIGHTS, point

needs_accounting = pytest.mark.skipif(not pld.available(), reason="dp-accounting is not installed")

MIXED = """
one_row_per_person = true
label = "smoker"
[columns.person]
type = "id"
[columns.age]
type = "integer"
min = 18
max = 99
missing = true
[columns.pay]
type = "number"
min = -1e4
max = 1e6
[columns.joined]
type = "datetime"
min = 2015-01-01
max = 2025-12-31
[columns.code]
type = "category"
values = [VALUES]
[columns.note]
type = "category"
values = ["=1+1", "b"]
[columns.smoker]
type = "boolean"
""".replace("VALUES", ", ".join(f'"{i}"' for i in range(900)))
SIM = datasets.load("sim")
PERSONS = 'person = {column = "person", rows = 3}' + MIXED.replace("one_row_per_person = true\n", "")
ONE_COLUMN = 'one_row_per_person = true\n[columns.a]\ntype = "boolean"\n'
SCHEMAS = {"sim": SIM.schema, "mixed": parse_schema(MIXED), "persons": parse_schema(PERSONS)}


def trained_grid() -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(
        (Path(report.__file__).parent / "pages" / "trained.json").read_bytes()
    )
    return found


def check_plan(schema: Schema, facts: dict[str, Any], model: str, key: str, **kept: Any) -> None:
    """Compare what the page shows with the library's plan."""
    epsilon, delta, public, scored = (float(part) for part in key.split())
    found, texts = facts["models"][model]["plans"][key], facts["texts"]
    for ruled, rule in list(enumerate(facts["rules"]))[:3]:
        if rule["scored"] != bool(scored) or rule["name"] not in ("uniform", "targeted"):
            continue
        weights: dict[str, Any] = {"weights": rule["name"]}
        if scored:
            weights["outlier_weight"] = rule["weight"]
        try:
            settings = Settings.of(
                epsilon=epsilon,
                delta=delta,
                public_rows=10_000 if public else None,
                model=model,
                **weights,
                **kept,
            )
            plan = make_plan(schema, settings)
        except ConfigError as error:
            assert texts[found] == str(error)
            return
        check_shown(plan, facts, found, ruled)


def check_shown(plan: Plan, facts: dict[str, Any], found: dict[str, Any], ruled: int) -> None:
    loss, texts = plan.whole_loss, facts["texts"]
    assert found["epsilon"] == upper(plan.budget.epsilon)
    assert found["right"] == fixed_upper(50 + 50 * float(loss.advantage_at(1.0)), 1)
    for text, weight in zip(found["losses"], CURVE, strict=False):
        assert text == upper(float(loss.epsilon_at(weight, plan.delta)), 3)
    for place, rows in list(enumerate(facts["stops"]["rows"]))[::4]:
        data = plan_data(plan, rows)
        shown = {texts[text] for text in found["warnings"][place]} | set(facts["csv"])
        assert shown == {text for text in data["warnings"] if not text.startswith("a run takes about")}
        for column, its in zip(facts["columns"], data["bins"], strict=True):
            cells = column["cells"]
            assert (cells[found["cells"][place]] if len(cells) > 1 else cells[0]) == its["bins"]
            assert found["noise"][0] == pytest.approx(its["sigma"], rel=1e-12)
    data = plan_data(plan, 10_000)
    assert found["losses"][len(CURVE) + ruled] == upper(data["outlier_epsilon_at_most"], 3)
    for (text, part, weighted), its in zip(found["charges"], data["measurements"], strict=True):
        assert texts[text].partition(":")[0] == its["name"]
        assert float(part) == pytest.approx(100 * its["share"], abs=0.0501)
        assert bool(weighted) == plan.charges[its["name"]].weighted
    counted = [its["sigma"] for its in data["measurements"] if its["name"] == "count"]
    assert found["noise"][1] == pytest.approx(sum(counted), rel=1e-12)


@pytest.mark.parametrize("name", SCHEMAS)
def test_plans_at_the_stops_are_those_of_the_library(name: str) -> None:
    schema = SCHEMAS[name]
    facts = explore_facts(schema)
    keys = list(facts["models"]["mst"]["plans"])
    assert len(keys) == 10 * 2 * 2 * 2
    for k, key in enumerate(keys[::7]):
        check_plan(schema, facts, ("naive-bayes", "mst", "aim")[k % 3], key)


@pytest.mark.parametrize(
    "options",
    [
        {"scorer": "pairwise", "weights": "hinge-exp", "gamma": 2.0},
        {"weights": "removal", "score_share": 0.05, "count_share": 0.02, "threshold_share": 0.03},
        {"weights": "cap", "score_share": 0.2, "outlier_epsilon": 1.2},
    ],
)
def test_a_release_adds_its_settings_to_the_stops(options: dict[str, Any]) -> None:
    """Its scorer and its shares stay."""
    settings = Settings.of(epsilon=2.3, delta=3e-7, model="naive-bayes", **options)
    release = synthesize(SIM.table.slice(0, 1000), SIM.schema, settings=settings)
    facts = explore_facts(SIM.schema, release)
    start = facts["start"]
    assert (start["epsilon"], start["delta"], start["model"]) == (2.3, 3e-7, "naive-bayes")
    for name in ("epsilon", "delta", "rows", "fraction"):
        assert start[name] in facts["stops"][name]
    rule = facts["rules"][start["rule"]]
    assert rule["name"] == (options["weights"] if "outlier_epsilon" not in options else "targeted")
    found = facts["models"]["naive-bayes"]["plans"]["2.3 3e-07 0 1"]
    shown = found["losses"][len(CURVE) + start["rule"]]
    assert float(shown) >= float(release.privacy.outlier_epsilon) * 0.995  # weights were rounded to thousandths
    kept = {k: options[k] for k in ("scorer", "score_share", "count_share", "threshold_share") if k in options}
    check_plan(SIM.schema, facts, "naive-bayes", "2.3 3e-07 0 1", **kept)
    check_plan(SIM.schema, facts, "mst", "0.5 1e-09 1 1", **kept)


def test_a_released_histogram_is_shown() -> None:
    release = synthesize(SIM.table, SIM.schema, epsilon=8.0, delta=1e-6, model="naive-bayes")
    released = explore_facts(SIM.schema, release)["release"]
    assert sum(fraction for _, fraction in released["scores"]) == pytest.approx(1, abs=1e-3)
    assert [score for score, _ in released["scores"]] == sorted(score for score, _ in released["scores"])
    assert released["standard_error"] > 0


@needs_accounting
@pytest.mark.parametrize(
    ("epsilon", "delta", "counted", "scored"),
    [
        (0.5, 1e-6, True, False),
        # The account of a training at 16 weights takes seconds.
        pytest.param(1.0, 1e-9, True, True, marks=pytest.mark.nightly),
        pytest.param(4.0, 1e-6, False, True, marks=pytest.mark.nightly),
    ],
)
def test_the_grid_of_a_trained_model_is_that_of_the_account(
    epsilon: float, delta: float, counted: bool, scored: bool
) -> None:
    """Whoever changes a default share, the training or the account has to run studies/benchmarks/trained.py."""
    grid = trained_grid()
    kept = grid["points"][f"{counted:d}{scored:d} {delta:g}"][EPSILONS.index(epsilon)]
    fresh = point(epsilon, delta, counted=counted, scored=scored)
    assert kept["noise"] == pytest.approx(fresh["noise"], rel=1e-6)
    assert kept["rows"] == pytest.approx(fresh["rows"], rel=1e-3)
    for name in ("epsilons", "advantages"):
        assert kept[name] == pytest.approx(fresh[name], rel=1e-6)


def test_the_grid_rises_so_that_the_next_point_is_a_bound() -> None:
    grid = trained_grid()
    assert (tuple(grid["epsilons"]), tuple(grid["deltas"]), tuple(grid["weights"])) == (EPSILONS, DELTAS, WEIGHTS)
    assert len(grid["points"]) == 8
    for points in grid["points"].values():
        assert np.all(np.diff([each["noise"] for each in points]) < 0)
        for name in ("epsilons", "advantages"):
            table = np.array([each[name] for each in points])
            assert np.all(np.diff(table, axis=0) > 0)
            assert np.all(np.diff(table, axis=1) >= 0)
        for budget, each in zip(EPSILONS, points, strict=True):
            assert each["epsilons"][-1] <= budget * (1 + 1e-9)


@pytest.mark.parametrize("why", ["numbers", "measured"])
def test_a_trained_plan_that_the_grid_does_not_cover_is_refused(why: str) -> None:
    """The grid was computed without looks at numbers and without the cost of a measured schema."""
    schema = parse_schema(
        "one_row_per_person = true\ncolumns.a = {type = 'boolean'}\ncolumns.b = {type = 'boolean'}"
    )
    covered = explore_facts(schema)["models"]["autoregressive"]["plans"]
    assert any(isinstance(plan, dict) for plan in covered.values())
    other = (
        SIM.schema
        if why == "numbers"
        else replace(schema, measured=Measured(mu=0.1, failure=1e-12, mark="0" * 32, columns=("a", "b")))
    )
    plans = explore_facts(other)["models"]["autoregressive"]["plans"]
    assert all(isinstance(plan, int) for plan in plans.values())  # the number of a text that refuses it


def test_bounds_of_a_trained_model_are_on_the_safe_side() -> None:
    """Between weights of the grid, the next larger one is shown. The grid is for tables without numbers."""
    names = ("smoker", "owner", "member")
    columns = "".join(f'columns.{name} = {{type = "boolean"}}\n' for name in names)
    person = 'person = {column = "who", rows = 2}\ncolumns.who = {type = "id"}\n'
    facts, grid = explore_facts(parse_schema(person + columns)), trained_grid()
    plans = facts["models"]["autoregressive"]["plans"]
    for key in ("1 1e-09 0 1", "4 1e-06 0 1", "1 1e-09 0 0"):
        epsilon, delta, public, scored = key.split()
        found = plans[key]
        of_grid = grid["points"][f"{1 - int(public)}{scored} {delta}"][EPSILONS.index(float(epsilon))]
        weights = [*CURVE, *(rule["weight"] for rule in facts["rules"])]
        for weight, text in zip(weights, found["losses"], strict=True):
            larger = [k for k, at in enumerate(WEIGHTS) if at >= weight] if scored == "1" else [0]
            assert float(text) <= float(epsilon)
            if weight > 0:
                assert float(text) >= min(of_grid["epsilons"][larger[0]], float(epsilon))
            else:
                assert 0 < float(text) < float(found["losses"][1]) or scored == "0"
        assert float(found["right"]) >= 50 + 50 * of_grid["advantages"][-1]
    assert isinstance(plans["1 1e-09 1 1"], int)  # the number of rows that count is never public
    release = synthesize(SIM.table, SIM.schema, epsilon=2.3, delta=1e-9, model="naive-bayes")
    facts = explore_facts(SIM.schema, release)
    assert "repsynth plan computes" in facts["texts"][facts["models"]["autoregressive"]["plans"]["2.3 1e-09 0 1"]]


def test_a_draft_is_refused_for_its_values_are_private() -> None:
    with pytest.raises(ConfigError, match="unconfirmed draft"):
        explore_facts(parse_schema(ONE_COLUMN.replace("[", "confirmed = false\n[", 1)))
