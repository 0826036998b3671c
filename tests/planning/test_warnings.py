"""What a user is told before a run: each caution where it matters, and nowhere else."""

import warnings
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pytest

import repsynth
from repsynth.errors import RepsynthWarning
from repsynth.mechanism.meter import sigma_for
from repsynth.planning.plan import Plan
from repsynth.planning.warnings import csv_warnings, plan_warnings, some_columns
from repsynth.run.run import run
from repsynth.schema import Boolean, Category, Id, Integer, Schema

AGE, SMOKER = Integer(name="age", min=18, max=99), Boolean(name="smoker")


def plan_of(*columns: object, label: str | None = "smoker", **knobs: object) -> Plan:
    schema = Schema(one_row_per_person=True, columns=(AGE, SMOKER, *columns), label=label)  # type: ignore[arg-type]
    return repsynth.plan(schema, **{"epsilon": 1.0, "delta": 1e-6, **knobs})


def category(name: str, values: int) -> Category:
    return Category(name=name, values=tuple(f"v{k}" for k in range(values)))


def noise_of(plan: Plan) -> float:
    return sigma_for(len(plan.schema.learned) ** 0.5, plan.charges["coarse histograms"].mu)


def test_an_ordinary_plan_has_no_cautions() -> None:
    for model in ("naive-bayes", "mst"):
        plan = plan_of(category("region", 5), model=model, public_rows=20_000)
        assert plan_warnings(plan, 20_000) == plan.warnings == ()


def test_without_a_label_a_model_that_needs_one_says_so() -> None:
    (said,) = plan_of(label=None, model="naive-bayes").warnings
    assert "naive-bayes draws every column independently" in said
    assert "declare a label" in said
    assert "mst" in said
    assert plan_of(label=None, model="mst").warnings == ()
    alone = Schema(one_row_per_person=True, columns=(AGE,))
    assert repsynth.plan(alone, epsilon=1.0).warnings == ()  # there is nothing to relate


def test_values_with_fewer_records_than_their_noise_are_named() -> None:
    (said,) = plan_warnings(plan_of(category("code", 3000)), 3000)
    assert said.startswith("column 'code' (3,000 values) has fewer records per value")
    assert plan_warnings(plan_of(category("code", 3000), delta=1e-9), 3_000_000) == ()


def test_the_noise_alone_decides_what_is_mostly_noise() -> None:
    plan = plan_of(category("code", 50))
    limit = 50 * noise_of(plan)
    assert plan_warnings(plan, 1.01 * limit) == ()
    assert "'code' (50 values)" in plan_warnings(plan, 0.99 * limit)[0]
    larger = plan_of(category("code", 50), epsilon=2.0)
    assert plan_warnings(larger, 0.99 * limit) == ()


def test_of_many_columns_a_few_are_named() -> None:
    plan = plan_of(*(category(f"c{k}", 900) for k in range(5)))
    (said,) = plan_warnings(plan, 3000)
    assert "'c0' (900 values), 'c1' (900 values), 'c2' (900 values) and 2 more have" in said
    assert "c3" not in said
    assert some_columns(["a", "b", "c"]) == "columns a, b, c are"


def test_where_noise_drowns_all_no_column_is_singled_out() -> None:
    plan = plan_of(category("code", 3000), model="naive-bayes")
    (said,) = plan_warnings(plan, 3 * noise_of(plan))
    assert said.startswith("noise drowns the data")
    assert "noise drowns" not in " ".join(plan_warnings(plan, 5 * noise_of(plan)))


def test_a_delta_beyond_one_over_the_records_is_warned_of() -> None:
    plan = plan_of(delta=1e-3)
    assert any("delta is larger" in said for said in plan_warnings(plan, 2000))
    assert not any("delta is larger" in said for said in plan_warnings(plan, 900))


def test_what_a_model_says_of_the_size_joins_the_list() -> None:
    plan = plan_of(model="mst")
    assert any("naive-bayes does better" in said for said in plan_warnings(plan, 150))
    assert not any("naive-bayes does better" in said for said in plan_warnings(plan, 15_000))


def test_the_number_of_records_counts_where_it_is_declared() -> None:
    assert plan_of(category("code", 3000)).warnings == ()
    assert "'code'" in plan_of(category("code", 3000), public_rows=3000).warnings[0]


def test_ids_are_said_to_be_numbered_anew() -> None:
    assert plan_of(Id(name="person")).warnings == (
        "column 'person' is not learned; the ids are numbered 1, 2, 3, ...",
    )
    (said,) = plan_of(Id(name="person"), Id(name="visit")).warnings
    assert "columns 'person', 'visit' are not learned" in said


def test_random_weights_are_said_to_protect_nobody() -> None:
    assert any("outliers are not protected" in said for said in plan_of(weights="random").warnings)


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (Category(name="change", values=("=A1", "same")), True),
        (Category(name="change", values=("-10 %", "+10 %")), True),
        (Category(name="change", values=("-10", "+10", "-", "same")), False),
        (Category(name="@home", values=("yes", "no")), True),
        (Integer(name="pay", min=0, max=9, special=("=none",)), True),
        (Integer(name="pay", min=-9, max=9, special=("-8",)), False),
    ],
)
def test_what_a_csv_file_cannot_hold_is_known_from_the_schema(column: Category | Integer, told: bool) -> None:
    assert bool(csv_warnings(Schema(one_row_per_person=True, columns=(AGE, column)))) is told
    assert any("apostrophes" in said and column.name in said for said in plan_of(column).warnings) is told


# --- in Python ---

TABLE = pa.table({"person": range(900), "age": [30, 41, 55] * 300, "smoker": [True, False, False] * 300})
WITH_ID = Schema(one_row_per_person=True, columns=(Id(name="person"), AGE, SMOKER), label="smoker")


@pytest.fixture
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same noise every time: none looks like cells that could not be read."""
    monkeypatch.setattr("repsynth.run.run.run", partial(run, noise_seed=1))


def test_synthesize_warns_once_of_each_where_it_was_called(seeded: None) -> None:
    with pytest.warns(RepsynthWarning) as caught:
        release = repsynth.synthesize(
            TABLE, replace(WITH_ID, label=None), epsilon=8.0, public_rows=900, model="naive-bayes"
        )
    said = [str(warning.message) for warning in caught]
    assert sorted(said) == sorted(release.warnings)
    assert len(said) == 2
    assert {warning.filename for warning in caught} == {__file__}


def test_what_is_known_before_stops_a_run_where_warnings_are_errors() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RepsynthWarning, match="ids are numbered"):
            repsynth.synthesize("no such file.csv", WITH_ID, epsilon=8.0)


def test_a_release_that_is_paid_for_is_handed_out_where_warnings_are_errors(seeded: None) -> None:
    unread = TABLE.drop_columns("person").set_column(0, "age", pa.array(["?"] * 900))
    schema = replace(WITH_ID, columns=WITH_ID.columns[1:])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("error")
        release = repsynth.synthesize(unread, schema, epsilon=8.0)
    assert "'age' could not be read" in release.warnings[0]
    assert [str(warning.message) for warning in caught] == list(release.warnings)
    assert caught[0].filename == __file__


def test_an_ordinary_run_warns_of_nothing(seeded: None) -> None:
    table = pa.table({"age": [30 + k % 40 for k in range(900)], "smoker": [k % 3 == 0 for k in range(900)]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        release = repsynth.synthesize(table, replace(WITH_ID, columns=WITH_ID.columns[1:]), epsilon=8.0)
    assert release.warnings == ()
