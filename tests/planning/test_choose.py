"""Where no model is named, public numbers choose one, and the plan says why."""

from pathlib import Path

import pytest
from conftest import ALL_TYPES, make_people

import repsynth
from repsynth import datasets
from repsynth.errors import ConfigError
from repsynth.models.marginal.model import Aim
from repsynth.planning.choose import ASSUMED_ROWS, THRESHOLDS, signal
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.planning.settings_file import read_settings, settings_to_toml, with_given
from repsynth.schema import Boolean, Category, Integer, Schema, parse_schema

SCHEMA = Schema(
    one_row_per_person=True,
    columns=(
        Integer(name="age", min=18, max=99),
        Category(name="region", values=("north", "south", "east")),
        Boolean(name="smoker"),
    ),
    label="smoker",
)


def plan_of(schema: Schema = SCHEMA, **knobs: object) -> Plan:
    return make_plan(schema, Settings.of(**{"epsilon": 1.0, "delta": 1e-6, **knobs}))


def rows_at(threshold: float) -> int:
    """The records at which the signal reaches a threshold."""
    return round(threshold / signal(len(SCHEMA.learned), mu=plan_of().mu, rows=1.0))


@pytest.mark.parametrize("goal", THRESHOLDS)
def test_tables_where_they_stand_above_their_noise_and_naive_bayes_below(goal: str) -> None:
    rows = rows_at(THRESHOLDS[goal])
    for more, model in ((1.01, "aim"), (0.99, "naive-bayes")):
        plan = plan_of(goal=goal, public_rows=round(rows * more))
        assert plan.model.name == model
        assert plan.why is not None
        assert f"{round(rows * more):,} records" in plan.why
        assert f"from {THRESHOLDS[goal]:g} on" in plan.why


def test_without_a_goal_prediction_counts() -> None:
    rows = (rows_at(THRESHOLDS["predict"]) + rows_at(THRESHOLDS["tables"])) // 2
    assert plan_of(public_rows=rows) == plan_of(public_rows=rows, goal="predict")
    assert plan_of(public_rows=rows).model.name == "naive-bayes"
    assert plan_of(public_rows=rows, goal="tables").model.name == "aim"


def test_a_number_of_records_that_is_not_public_is_assumed() -> None:
    plan = plan_of()
    assert plan.model == plan_of(public_rows=ASSUMED_ROWS).model
    assert f"{ASSUMED_ROWS:,} records, assumed" in (plan.why or "")


def test_more_columns_weaken_the_signal_and_more_records_or_budget_strengthen_it() -> None:
    usual = signal(3, mu=0.1, rows=1000)
    assert signal(12, mu=0.1, rows=1000) == usual / 4
    assert signal(3, mu=0.2, rows=1000) == signal(3, mu=0.1, rows=2000) == 2 * usual


def test_without_a_label_columns_are_related_all_the_same() -> None:
    plan = plan_of(Schema(one_row_per_person=True, columns=SCHEMA.columns), public_rows=100)
    assert plan.model.name == "aim"
    assert plan.why == "without a label, nothing else relates columns to each other"


def test_a_model_that_cannot_be_planned_gives_way_to_one_that_can() -> None:
    """Tables cost every record more in stage 1, and may not fit."""
    rows = 2 * rows_at(THRESHOLDS["predict"])
    floors = {name: plan_of(model=name).loss.epsilon_at(0.0, 1e-6) for name in ("aim", "naive-bayes")}
    asked = float(floors["aim"] + floors["naive-bayes"]) / 2
    assert plan_of(public_rows=rows).model.name == "aim"
    plan = plan_of(public_rows=rows, outlier_epsilon=asked)
    assert plan.model.name == "naive-bayes"
    assert (plan.why or "").startswith("aim would serve better, but outlier epsilon")
    with pytest.raises(ConfigError, match="out of reach"):
        plan_of(public_rows=rows, outlier_epsilon=0.5 * float(floors["naive-bayes"]))


def test_a_knob_of_one_model_chooses_it() -> None:
    settings = Settings.of(epsilon=1.0, epochs=3)
    assert settings.model == repsynth.Autoregressive(epochs=3)
    assert Settings.of(epsilon=1.0, model="auto", epochs=3) == settings


def test_the_choice_is_named_in_the_plan_and_read_from_a_release_whatever_the_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = repsynth.synthesize(
        make_people(300), parse_schema(ALL_TYPES), epsilon=1.0, delta=1e-6, public_rows=300
    )
    assert release.plan.settings.model == release.plan.model == repsynth.NaiveBayes()
    assert release.plan.settings.goal is None
    release.save(tmp_path / "release")
    monkeypatch.setitem(THRESHOLDS, "predict", 0.0)
    loaded = repsynth.Release.load(tmp_path / "release")
    assert loaded.plan == release.plan
    assert repsynth.inspect_release(loaded)["model_why"] == release.plan.why
    assert release.plan.why
    assert repsynth.plan(parse_schema(ALL_TYPES), epsilon=1.0, public_rows=300).model == Aim()


def test_auto_can_be_asked_for_in_a_file_and_beside_one(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    settings = Settings.of(epsilon=1.0, goal="tables")
    path.write_text(settings_to_toml(settings), encoding="utf-8")
    assert Settings.of(**read_settings(path)) == settings == Settings.of(epsilon=1.0, goal="tables", model="auto")
    assert Settings.of(**with_given(read_settings(path), {"model": "mst"})) == Settings.of(
        epsilon=1.0, model="mst"
    )
    path.write_text('epsilon = 1.0\n[model]\nname = "mst"\n', encoding="utf-8")
    assert Settings.of(**with_given(read_settings(path), {"model": "auto"})) == Settings.of(epsilon=1.0)


def test_a_named_model_has_no_reason() -> None:
    assert plan_of(model="mst").why is None


@pytest.mark.parametrize(
    ("name", "rows", "model"), [("adult", 31_655, "aim"), ("german_credit", 700, "naive-bayes")]
)
def test_the_choice_on_tables_of_the_study(name: str, rows: int, model: str) -> None:
    schema = parse_schema(datasets.schema_text(name))
    assert plan_of(schema, public_rows=rows).model.name == model
