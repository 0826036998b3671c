"""The page's script against the library: the same plan, bounds, noise and warnings for any settings."""

import json
import shutil
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth import Release, datasets, parse_schema, report, synthesize
from repsynth.cli.render import plan_data
from repsynth.errors import ConfigError
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings, read_settings, settings_to_toml
from repsynth.privacy import gaussian, pld
from repsynth.privacy.shown import at_least, at_most, fixed_at_least, fixed_at_most
from repsynth.report.explore import explore_facts
from repsynth.schema import Boolean, Id, Person, Schema
from studies.benchmarks.trained import DELTAS, EPSILONS, WEIGHTS, point

SCRIPT = Path(report.__file__).parent / "pages" / "explore.js"

needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed: it runs the script")
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
PERSONS = 'person = {column = "person", rows = K}' + MIXED.replace("one_row_per_person = true\n", "")


def by_script(call: str, given_to_it: Any) -> Any:
    """What an expression of the script gives; `it` is what it was given."""
    program = (
        f"const Explore = require({json.dumps(str(SCRIPT))});"
        "const it = JSON.parse(require('fs').readFileSync(0));"
        f"console.log(JSON.stringify({call}));"
    )
    done = subprocess.run(
        ["node", "-e", program], input=json.dumps(given_to_it), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def asked(**changed: Any) -> dict[str, Any]:
    """Settings as the page has them."""
    return {
        "epsilon": 1.0,
        "delta": 1e-9,
        "rows": 10_000,
        "public": False,
        "model": "naive-bayes",
        "rule": "targeted",
        "outlier_weight": 0.2,
        "outlier_epsilon": None,
        "fraction": 0.3,
    } | changed


def settings_of(it: dict[str, Any], **kept: Any) -> Settings:
    """The same as the library has them."""
    return Settings.of(
        epsilon=it["epsilon"],
        delta=it["delta"],
        public_rows=it["rows"] if it["public"] else None,
        model=it["model"],
        weights=it["rule"],
        outlier_epsilon=it["outlier_epsilon"],
        outlier_fraction=it["fraction"],
        **({"outlier_weight": it["outlier_weight"]} if it["rule"] == "targeted" else {}),
        **kept,
    )


def planned(schema: Schema, it: dict[str, Any], **kept: Any) -> Plan | str:
    """The library's plan, or why there is none."""
    try:
        return make_plan(schema, settings_of(it, **kept))
    except ConfigError as error:
        return str(error)


def check_shown(shown: str, value: float, rounded: Any) -> None:
    """The same text, but where a value is so near to the next one that rounding decides: then that."""
    assert shown in (rounded(value), rounded(value * (1 + 3e-11)))
    assert float(shown.replace(",", "")) >= float(rounded(value).replace(",", ""))


def check_same(schema: Schema, it: dict[str, Any], found: dict[str, Any], **kept: Any) -> None:
    """All that the page says, against the library's plan."""
    plan = planned(schema, it, **kept)
    if isinstance(plan, str):
        assert found["refusal"] == plan
        return
    assert found["refusal"] is None
    data, shown = plan_data(plan, it["rows"]), found["shown"]
    assert found["model"] == plan.model.name
    check_shown(shown["epsilon"], data["budget"]["epsilon"], at_most)
    check_shown(shown["floor"], data["floor_epsilon"], at_most)
    assert [each["name"] for each in found["charges"]] == [each["name"] for each in data["measurements"]]
    for mine, its in zip(found["charges"], data["measurements"], strict=True):
        assert mine["mu"] == pytest.approx(its["mu"], rel=1e-9)
        assert mine["sensitivity"] == pytest.approx(its["sensitivity"], rel=1e-12)
        assert mine["weighted"] == plan.charges[its["name"]].weighted
        assert (mine["sigma"] is None) == (its["sigma"] is None)
        if its["sigma"] is not None:
            assert mine["sigma"] == pytest.approx(its["sigma"], rel=1e-9)
    for mine, its in zip(found["columns"], data["bins"], strict=True):
        assert (mine["name"], mine["bins"]) == (its["column"], its["bins"])
        assert mine["relative"] == pytest.approx(its["relative"], rel=1e-9)
        counted = [each["sigma"] for each in data["measurements"] if each["name"] == "count"]
        error = np.hypot(its["sigma"], sum(counted) / its["bins"]) / it["rows"]
        assert mine["error"] == pytest.approx(error, rel=1e-9)
    assert found["warnings"] == data["warnings"]
    assert found["weight"] == pytest.approx(data["outlier_weight_at_most"], rel=1e-8)
    check_shown(shown["outlier_epsilon"], data["outlier_epsilon_at_most"], at_most)
    weight = data["outlier_weight_at_most"]
    loss = plan.whole_loss
    for text, w in ((shown["right"], 1.0), (shown["outlier_right"], weight)):
        check_shown(text, 50 + 50 * float(loss.advantage_at(w)), lambda x: fixed_at_most(x, 1))
    for w, epsilon, advantage in found["curve"][::8]:
        assert epsilon == pytest.approx(float(loss.epsilon_at(w, plan.delta)), rel=1e-8)
        assert advantage == pytest.approx(float(loss.advantage_at(w)), rel=1e-8)


PLANS = """it.asked.map((asked) => {
  const found = Explore.plan(it.facts, asked);
  if (found.refusal !== null) return found;
  const { bound, right } = Explore;
  found.shown = {
    epsilon: bound(found.budget.epsilon), floor: bound(found.floor), right: right(found.advantage),
    outlier_epsilon: found.outlier_epsilon === null ? null : bound(found.outlier_epsilon),
    outlier_right: found.outlier_advantage === null ? null : right(found.outlier_advantage),
  };
  return found;
})"""


def check_all(
    schema: Schema, drawn: Sequence[dict[str, Any]], release: Release | None = None, **kept: Any
) -> None:
    facts = explore_facts(schema, release)
    for it, found in zip(drawn, by_script(PLANS, {"facts": facts, "asked": list(drawn)}), strict=True):
        check_same(schema, it, found, **kept)


@needs_node
def test_the_normal_distribution_is_exact_to_twelve_digits() -> None:
    from scipy.special import erf, erfcx

    xs = [*np.linspace(0, 6, 601).tolist(), 1.499999, 1.5, 10.0, 40.0, 1e3, 1e8]
    found = np.array(by_script("it.map((x) => [Explore.erf(x), Explore.erfcx(x)])", xs))
    np.testing.assert_allclose(found[:, 0], erf(xs), rtol=1e-13)
    np.testing.assert_allclose(found[:, 1], erfcx(xs), rtol=1e-13)


MUS = st.floats(1e-6, 20.0)


@needs_node
@settings(max_examples=3)
@given(st.lists(st.tuples(MUS, st.floats(0.001, 100.0), st.floats(-80.0, -1.5)), min_size=40, max_size=40))
def test_closed_forms_are_those_of_the_library(drawn: list[tuple[float, float, float]]) -> None:
    cases = [(mu, epsilon, 10**power) for mu, epsilon, power in drawn]
    call = """it.map(([mu, epsilon, delta]) => [Explore.deltaOf(mu, epsilon), Explore.epsilonOf(mu, delta),
      Explore.muOf(epsilon, delta), Explore.advantageOf(mu)])"""
    for (mu, epsilon, delta), found in zip(cases, by_script(call, cases), strict=True):
        # Where μ is tiny, δ is a small difference of large numbers, which the library rounds up by a good bit.
        assert found[0] == pytest.approx(float(gaussian.delta_of(mu, epsilon)), rel=1e-8, abs=1e-250)
        assert found[1] == pytest.approx(float(gaussian.epsilon_of(mu, delta)), rel=1e-9)
        assert found[2] == pytest.approx(gaussian.mu_of(epsilon, delta), rel=1e-9)
        assert found[3] == pytest.approx(float(gaussian.advantage(mu)), rel=1e-12)


@needs_node
@settings(max_examples=5)
@given(
    st.lists(
        st.floats(0, 1e12, allow_subnormal=False)
        | st.floats(1e-9, 1)
        | st.sampled_from([0.0, 1e-9, 0.1, 99.95, 1e21]),
        min_size=30,
    )
)
def test_bounds_are_written_as_the_library_writes_them(values: list[float]) -> None:
    call = """it.map((x) => [Explore.atMost(x), Explore.atMost(x, 3), Explore.atLeast(x),
      Explore.fixedAtMost(x, 1), Explore.fixedAtMost(x, 0), Explore.fixedAtLeast(x, 2)])"""
    for x, found in zip(values, by_script(call, values), strict=True):
        assert found == [
            *(at_most(x), at_most(x, 3), at_least(x), fixed_at_most(x, 1), fixed_at_most(x, 0)),
            fixed_at_least(x, 2),
        ]


MODELS = ["naive-bayes", "mst", "aim"]


@needs_node
def test_plans_on_a_grid_are_those_of_the_library() -> None:
    drawn = [
        asked(epsilon=epsilon, delta=delta, rows=rows, public=public, model=model, **outliers)
        for model in MODELS
        for epsilon, delta in ((0.1, 1e-9), (3.0, 1e-5))
        for rows in (60, 30_000)
        for public in (False, True)
        for outliers in ({}, {"outlier_epsilon": epsilon / 2}, {"rule": "uniform"}, {"outlier_weight": 0.0})
    ]
    check_all(parse_schema(MIXED), drawn[::5])  # 5 has no factor in common with the numbers of values


@needs_node
@pytest.mark.parametrize("rows_per_person", [1, 3, 1000])
def test_plans_for_persons_on_a_grid_are_those_of_the_library(rows_per_person: int) -> None:
    """Noise by the rows that count; δ by the ids; and no public number of rows where several of a person count."""
    drawn = [
        asked(epsilon=epsilon, delta=delta, rows=rows, public=public, model=model, **outliers)
        for model in MODELS
        for epsilon, delta in ((0.1, 1e-9), (3.0, 1e-5), (2.0, 1.1e-20), (2.0, 0.9e-20))
        for rows, public in ((60, False), (3_000_000, False), (30_000, True))
        for outliers in ({}, {"outlier_epsilon": epsilon / 2}, {"rule": "uniform"})
    ]
    check_all(parse_schema(PERSONS.replace("K", str(rows_per_person))), drawn[::7])  # as above


SETTINGS = st.fixed_dictionaries(
    {
        "epsilon": st.floats(0.01, 40.0),
        "delta": st.floats(-15, -2).map(lambda power: 10**power),
        "rows": st.floats(0.5, 7).map(lambda power: round(10**power)),
        "public": st.booleans(),
        "model": st.sampled_from(MODELS),
        "rule": st.sampled_from(["targeted", "uniform"]),
        "outlier_weight": st.floats(0, 1),
        "outlier_epsilon": st.none() | st.floats(0.005, 40.0),
        "fraction": st.floats(0.01, 0.5),
    }
)
SCHEMAS = {
    "mixed": parse_schema(MIXED),
    "persons": parse_schema(PERSONS.replace("K", "1")),
    "rows of persons": parse_schema(PERSONS.replace("K", "3")),
    "sim": SIM.schema,
    "one": Schema(one_row_per_person=True, columns=(Boolean(name="smoker"),)),
    "no label": Schema(one_row_per_person=True, columns=(Boolean(name="a"), Boolean(name="b"))),
}


@needs_node
@settings(max_examples=5)
@given(st.sampled_from(list(SCHEMAS)), st.lists(SETTINGS, min_size=6, max_size=6))
def test_plans_of_any_settings_are_those_of_the_library(name: str, drawn: list[dict[str, Any]]) -> None:
    check_all(SCHEMAS[name], drawn)


@needs_node
@pytest.mark.filterwarnings("ignore::repsynth.errors.RepsynthWarning")
@pytest.mark.parametrize(
    "options",
    [
        {"scorer": "pairwise", "weights": "hinge-exp", "gamma": 2.0},
        {"scorer": "pairwise", "weights": "cap", "score_share": 0.2, "outlier_epsilon": 1.0},
        {"weights": "removal", "score_share": 0.05, "count_share": 0.02, "threshold_share": 0.03},
    ],
)
def test_a_release_decides_what_has_no_slider(options: dict[str, Any]) -> None:
    """Its scorer, its weight rule and its shares stay."""
    table = SIM.table.slice(0, 1000)
    settings = Settings.of(epsilon=2.0, delta=1e-6, model="naive-bayes", **options)
    release = synthesize(table, SIM.schema, settings=settings)
    start = explore_facts(SIM.schema, release)["start"]
    assert (start["epsilon"], start["delta"], start["model"]) == (2.0, 1e-6, "naive-bayes")
    assert (start["rule"], start["public"]) == (options["weights"], False)
    knobs = {"scorer", "gamma", "score_share", "count_share", "threshold_share"}
    kept = {name: value for name, value in options.items() if name in knobs - {"gamma"}}
    drawn = [start | {"rows": rows, "public": public} for rows in (50, 90_000) for public in (False, True)]
    drawn.append(drawn[-1] | {"model": "mst"})  # a scorer that measures keeps the share that others do not need
    rule = {"gamma": 2.0} if "gamma" in options else {}
    check_all(SIM.schema, drawn, release, **kept, **rule)
    check_all(SIM.schema, [asked(epsilon=0.5)], release, **kept)


@needs_node
@settings(max_examples=3)
@given(st.sampled_from(list(SCHEMAS)), st.lists(SETTINGS, min_size=6, max_size=6))
def test_what_is_saved_is_the_plan_that_was_shown(
    tmp_path_factory: pytest.TempPathFactory, name: str, drawn: list[dict[str, Any]]
) -> None:
    """The same settings, so the same plan; and written as the library writes them."""
    path, facts = tmp_path_factory.mktemp("plan") / "plan.toml", explore_facts(SCHEMAS[name])
    texts = by_script("it.asked.map((each) => Explore.toml(it.facts, each))", {"facts": facts, "asked": drawn})
    for it, text in zip(drawn, texts, strict=True):
        path.write_text(text, encoding="utf-8")
        read = Settings.of(**read_settings(path))
        assert read == settings_of(it)
        assert tomllib.loads(text) == tomllib.loads(settings_to_toml(read))


@needs_node
def test_a_saved_plan_keeps_what_the_release_had(tmp_path: Path) -> None:
    options = {"scorer": "pairwise", "pair_share": 0.03, "weights": "hinge-exp", "gamma": 2.0, "score_share": 0.07}
    table = SIM.table.slice(0, 1000)
    settings = Settings.of(epsilon=2.0, delta=1e-6, model="naive-bayes", **options)
    release = synthesize(table, SIM.schema, settings=settings)
    facts = explore_facts(SIM.schema, release)
    (tmp_path / "plan.toml").write_text(
        by_script("Explore.toml(it.facts, it.facts.start)", {"facts": facts}), encoding="utf-8"
    )
    assert Settings.of(**read_settings(tmp_path / "plan.toml")) == release.plan.settings


@needs_node
def test_a_released_histogram_says_who_would_be_affected() -> None:
    release = synthesize(SIM.table, SIM.schema, epsilon=8.0, delta=1e-6, model="naive-bayes")
    facts = explore_facts(SIM.schema, release)
    call = "[0.1, 0.3, 0.5].map((each) => Explore.threshold(it.facts.release.scores, each))"
    found = by_script(call, {"facts": facts})
    strata = release.privacy.distribution()
    for fraction, place in zip((0.1, 0.3, 0.5), found, strict=True):
        above = sum(stratum.fraction for stratum in strata if stratum.score >= place["score"])
        assert place["above"] == pytest.approx(above, abs=1e-3)
        others = [sum(each.fraction for each in strata if each.score >= one.score) for one in strata]
        assert abs(above - fraction) <= min(abs(other - fraction) for other in others) + 1e-3
    survival = by_script("Explore.survival(it.facts.release.scores)", {"facts": facts})
    assert survival[0][1] == 1.0
    assert np.all(np.diff([above for _, above in survival]) <= 1e-9)


@needs_node
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
    grid = explore_facts(SCHEMAS["sim"])["models"]["autoregressive"]["grid"]
    kept = grid["points"][f"{counted:d}{scored:d} {delta:g}"][EPSILONS.index(epsilon)]
    fresh = point(epsilon, delta, counted=counted, scored=scored)
    assert kept["noise"] == pytest.approx(fresh["noise"], rel=1e-6)
    assert kept["rows"] == pytest.approx(fresh["rows"], rel=1e-3)
    for name in ("epsilons", "advantages"):
        assert kept[name] == pytest.approx(fresh[name], rel=1e-6)


def test_the_grid_rises_so_that_the_next_point_is_a_bound() -> None:
    grid = explore_facts(SCHEMAS["sim"])["models"]["autoregressive"]["grid"]
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


@needs_node
@needs_accounting
@pytest.mark.nightly  # the account of a training takes seconds
@pytest.mark.parametrize("person", [None, Person(column="who", rows=3)])
def test_bounds_of_a_trained_model_are_on_the_safe_side(person: Person | None) -> None:
    sim = SCHEMAS["sim"]
    schema = replace(sim, columns=(*sim.columns, Id(name="who")), person=person, one_row_per_person=person is None)
    drawn = [
        asked(model="autoregressive", epsilon=1.3, rows=3000, outlier_weight=0.23),
        asked(model="autoregressive", epsilon=2.0, outlier_epsilon=1.1),
        asked(model="autoregressive", epsilon=2.0, delta=1e-7),
        asked(model="autoregressive", epsilon=2.0, outlier_epsilon=0.01),
        asked(model="autoregressive", epsilon=20.0, rule="uniform"),
    ]
    found = by_script(PLANS, {"facts": explore_facts(schema), "asked": drawn})
    for it, mine in zip(drawn[:2], found[:2], strict=True):
        plan = planned(schema, it)
        assert isinstance(plan, Plan)
        assert plan.training is not None
        data = plan_data(plan, it["rows"])
        assert mine["trained"]["grid"]["noise"] >= plan.training.of_a_row(schema.rows_per_person).noise
        assert float(mine["shown"]["outlier_epsilon"]) >= data["outlier_epsilon_at_most"] - 1e-9
        assert float(mine["shown"]["outlier_epsilon"]) <= it["epsilon"]
        weight = data["outlier_weight_at_most"]
        assert weight <= mine["weight"] <= weight + 2 / 16
        assert float(mine["shown"]["right"]) >= 50 + 50 * float(plan.loss.advantage_at(1.0))
        assert float(mine["shown"]["outlier_right"]) >= 50 + 50 * float(plan.loss.advantage_at(weight))
        assert [each["name"] for each in mine["charges"]] == list(plan.charges)
        assert mine["warnings"] == data["warnings"]
    off, refused, large = found[2:]
    assert off["trained"]["grid"] is None
    assert (off["outlier_advantage"], off["outlier_epsilon"], off["curve"][-1][1]) == (None, None, None)
    assert off["shown"]["right"] == fixed_at_most(50 + 50 * float((np.e**2 - 1 + 2e-7) / (np.e**2 + 1)), 1)
    assert refused["refusal"] == planned(schema, drawn[3])
    assert (large["trained"]["grid"], large["outlier_advantage"]) == (None, None)


def test_a_draft_is_refused_for_its_values_are_private() -> None:
    with pytest.raises(ConfigError, match="unconfirmed draft"):
        explore_facts(
            parse_schema('one_row_per_person = true\nconfirmed = false\n[columns.a]\ntype = "boolean"\n')
        )
