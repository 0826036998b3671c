"""A whole evaluation: what it says of good, bad and odd tables, and what it writes."""

import io
import json
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from conftest import ALL_TYPES, STAYS, make_people, make_stays
from rich.console import Console
from threadpoolctl import threadpool_info, threadpool_limits

import repsynth
from repsynth import ConfigError, DataError
from repsynth.cli import render
from repsynth.evaluation.evaluate import STEPS, Evaluation, evaluate_tables, read_evaluation
from repsynth.evaluation.export import FILE, STAMP, evaluation_data, write_evaluation
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.inputs import Inputs
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema, schema_from_dict

SCHEMA = parse_schema(ALL_TYPES)
TRAIN, OTHER, HOLDOUT = (make_people(300, seed) for seed in (1, 2, 3))

CATEGORIES = """
one_row_per_person = true
label = "sick"
columns.sick = {type = "boolean"}
columns.kind = {type = "category", values = ["a", "b"]}
columns.site = {type = "category", values = ["x", "y", "z"]}
"""


def evaluate(
    train: pa.Table,
    synthetic: pa.Table,
    holdout: pa.Table | None,
    schema: Schema = SCHEMA,
    label: str | None = None,
) -> Evaluation:
    return evaluate_tables(Inputs.open(train, synthetic, holdout, schema, label))


@pytest.fixture(scope="module")
def whole() -> Evaluation:
    return evaluate(TRAIN, OTHER, HOLDOUT)


def replaced(table: pa.Table, name: str, values: object) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))


def test_every_measure_says_what_is_best_and_what_halves_give(whole: Evaluation) -> None:
    names = [measure.name for measure in whole.measures]
    assert names == [
        *("one-way distance", "two-way distance", "three-way distance", "associations"),
        *("range coverage", "category coverage", "repeated rows", "copies of training rows"),
        *("prediction by logistic regression", "prediction by boosting", "coefficients", "propensity"),
        *("outliers", "worst subgroup, distance", "worst subgroup, prediction"),
    ]
    assert not whole.left_out
    for measure in whole.measures:
        assert measure.line.startswith(f"{measure.line.split(';')[0]}; best ")
        assert measure.words
        assert measure.floor is not None
        assert measure.breakdown or measure.name == "repeated rows"
    for name in ("three-way distance", "prediction by boosting", "outliers"):
        parts = whole[name].breakdown
        expected = parts["10"] if name == "outliers" else sum(parts.values()) / len(parts)
        assert whole[name].value == pytest.approx(expected)
    copies = whole["copies of training rows"]
    assert copies.value == pytest.approx(sum(copies.breakdown.values()))


def test_a_fresh_sample_is_about_as_near_as_halves_are(whole: Evaluation) -> None:
    for name in ("one-way distance", "two-way distance", "three-way distance"):
        measure = whole[name]
        assert measure.floor is not None
        assert measure.value < 1.5 * measure.floor
    assert abs(whole["propensity"].value - 0.5) < 0.15


def test_the_training_table_itself_is_as_near_as_can_be_and_found_out() -> None:
    found = evaluate(TRAIN, TRAIN, HOLDOUT)
    for name in ("one-way distance", "two-way distance", "three-way distance", "associations"):
        assert found[name].value == 0
    assert found["range coverage"].value == found["category coverage"].value == 1
    assert found["coefficients"].value == pytest.approx(1)
    copies = found["copies of training rows"]
    assert copies.value == 1
    assert copies.best < 0.1
    predicted = found["prediction by logistic regression"]
    assert predicted.value == predicted.best


def test_independent_columns_are_known_for_what_they_are() -> None:
    generator = np.random.default_rng(0)
    columns = {name: TRAIN[name].take(generator.permutation(300)) for name in TRAIN.column_names}
    found = evaluate(TRAIN, pa.table(columns), None)
    assert found["one-way distance"].value == 0
    two_way = found["two-way distance"]
    assert two_way.independent is not None
    assert two_way.value == pytest.approx(two_way.independent, abs=0.03)


def test_without_a_holdout_what_needs_it_is_left_out() -> None:
    found = evaluate(TRAIN, OTHER, None)
    assert set(found.left_out) == {
        *("prediction by logistic regression", "prediction by boosting", "copies of training rows"),
        "prediction by subgroup",
    }
    assert all("holdout" in why for why in found.left_out.values())
    assert {"coefficients", "propensity", "outliers"} <= {measure.name for measure in found.measures}


def test_everything_is_stamped_private(whole: Evaluation, tmp_path: Path) -> None:
    names = write_evaluation(whole, tmp_path / "out")
    assert names == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["private-evaluation.json"]
    assert {path.name for path in tmp_path.iterdir()} == {"out"}
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0  # for the curator alone
    data = json.loads((tmp_path / "out" / "private-evaluation.json").read_bytes())
    assert data["publishable"] is False
    assert data["stamp"] == STAMP
    assert data == json.loads(json.dumps(data))
    assert data["associations"] == whole.associations


def test_nothing_private_is_put_into_a_release(whole: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text("{}")
    for place in (tmp_path / "look", tmp_path / "more" / "look"):
        place.parent.mkdir(exist_ok=True)
        with pytest.raises(ConfigError, match="is inside a release folder, which may be published"):
            write_evaluation(whole, place)
        assert not place.exists()


def test_a_folder_that_is_there_is_kept(whole: Evaluation, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        write_evaluation(whole, tmp_path / "out")
    with pytest.raises(ConfigError, match="already exists"):
        repsynth.evaluate(TRAIN, OTHER, SCHEMA, folder=tmp_path / "out")
    with pytest.raises(ConfigError, match="no such folder"):
        write_evaluation(whole, tmp_path / "absent" / "out")


def test_a_full_disk_leaves_nothing_behind(
    whole: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("repsynth.evaluation.export._json", full)
    with pytest.raises(DataError, match="No space left"):
        write_evaluation(whole, tmp_path / "out")
    assert not list(tmp_path.iterdir())


# Odd tables


def test_an_overlap_is_said() -> None:
    found = evaluate(TRAIN, OTHER, TRAIN.slice(100, 150))
    assert any("100 % of the holdout rows are training rows" in warning for warning in found.warnings)


def test_one_label_only() -> None:
    one = replaced(TRAIN, "smoker", ["yes"] * 300)
    for tables in ((one, OTHER, HOLDOUT), (TRAIN, OTHER, one)):
        found = evaluate(*tables)
        assert "fewer than two values" in found.left_out["prediction by boosting"]
        assert found["one-way distance"].value > 0
    found = evaluate(TRAIN, one, HOLDOUT)
    assert found["prediction by logistic regression"].value == 0.5
    assert "nothing can be learned" in found["prediction by logistic regression"].note
    assert "synthetic" in found.left_out["coefficients"]


def test_fifty_rows_are_enough_and_ten_are_not() -> None:
    few = [make_people(50, seed) for seed in (1, 2, 3)]
    found = evaluate(*few)
    assert 0.2 < found["prediction by boosting"].value <= 1
    with pytest.raises(DataError, match="the synthetic table has fewer than 20 rows"):
        evaluate(TRAIN, OTHER.slice(0, 10), HOLDOUT)


def test_a_column_without_a_cell_that_can_be_read() -> None:
    empty = replaced(OTHER, "age", pa.nulls(300, pa.int64()))
    found = evaluate(TRAIN, empty, HOLDOUT)
    assert any("no cell of 'age' in the synthetic table" in warning for warning in found.warnings)
    assert found["range coverage"].breakdown["age"] == 0
    found = evaluate(empty, empty, HOLDOUT)
    assert np.isnan(found["range coverage"].breakdown["age"])
    text = json.dumps(evaluation_data(found)["measures"])
    assert "NaN" not in json.dumps(json.loads(text.replace("NaN", "null")))


def test_no_numeric_column_and_no_label() -> None:
    generator = np.random.default_rng(0)

    def table(rows: int) -> pa.Table:
        return pa.table(
            {
                "sick": generator.random(rows) < 0.4,
                "kind": generator.choice(["a", "b"], rows),
                "site": generator.choice(["x", "y", "z"], rows),
            }
        )

    train, made, held = table(200), table(200), table(300)
    found = evaluate(train, made, held, parse_schema(CATEGORIES))
    assert found.left_out == {"range coverage": "there is no numeric column that varies"}
    unlabelled = parse_schema(CATEGORIES.replace('label = "sick"', ""))
    found = evaluate(train, made, held, unlabelled)
    assert found.left_out["prediction by boosting"] == "there is no label; name one with --label"
    assert found.label is None
    assert evaluate(train, made, held, unlabelled, "kind").label == "kind"


def test_a_numeric_label_works(whole: Evaluation) -> None:
    found = evaluate(TRAIN, OTHER, HOLDOUT, label="income")
    assert found.label == "income"
    assert 0.3 < found["prediction by logistic regression"].value < 0.7  # nothing tells of it


def test_wrong_tables_are_named() -> None:
    with pytest.raises(DataError, match=r"the synthetic table: no column 'age'"):
        evaluate(TRAIN, OTHER.drop_columns(["age"]), HOLDOUT)
    with pytest.raises(DataError, match=r"the holdout table: .* not in the schema"):
        evaluate(TRAIN, OTHER, HOLDOUT.append_column("more", pa.array([1] * 300)))
    with pytest.raises(ConfigError, match="label 'person' is no column"):
        evaluate(TRAIN, OTHER, HOLDOUT, label="person")
    with pytest.raises(ConfigError, match="synthetic table, or a release"):
        repsynth.evaluate(TRAIN)
    with pytest.raises(ConfigError, match="schema, or a release"):
        repsynth.evaluate(TRAIN, OTHER)


def test_a_single_column_can_be_looked_at() -> None:
    schema = parse_schema('one_row_per_person = true\ncolumns.age = {type = "integer", min = 18, max = 99}')
    tables = [pa.table({"age": np.random.default_rng(k).integers(18, 99, 100)}) for k in range(3)]
    found = evaluate(*tables, schema)
    assert {"two-way distance", "three-way distance"} <= found.left_out.keys()
    assert found["one-way distance"].value > 0


def test_thousands_of_categories_and_names_that_are_markup_elsewhere() -> None:
    generator = np.random.default_rng(0)
    codes = [f"c{k}" for k in range(2000)]
    schema = schema_from_dict(
        {
            "one_row_per_person": True,
            "label": "$kind_{",
            "columns": {
                "$kind_{": {"type": "category", "values": codes},
                "=[bold]🙂": {"type": "category", "values": ["a", "b"]},
            },
        }
    )

    def table() -> pa.Table:
        return pa.table({"$kind_{": generator.choice(codes, 120), "=[bold]🙂": generator.choice(["a", "b"], 120)})

    found = evaluate(table(), table(), table(), schema)
    assert found.left_out["prediction by logistic regression"] == "the label has more than 50 values"
    assert found.left_out["prediction by boosting"] == "the label has more than 10 values"
    assert found["one-way distance"].breakdown.keys() == {"$kind_{", "=[bold]🙂"}
    printed = io.StringIO()
    render.evaluation(Console(file=printed, width=200), found)
    assert "=[bold]🙂 = a" in printed.getvalue()


def test_progress_is_told_step_by_step_and_one_thread_works() -> None:
    steps: list[str] = []
    threads: set[int] = set()

    def on_step(step: str) -> None:
        steps.append(step)
        threads.update(pool["num_threads"] for pool in threadpool_info())

    with threadpool_limits(2):
        evaluate_tables(Inputs.open(TRAIN.slice(0, 60), OTHER.slice(0, 60), None, SCHEMA), on_step=on_step)
    assert steps == list(STEPS)
    assert threads == {1}


def test_steps_can_be_skipped() -> None:
    steps: list[str] = []
    inputs = Inputs.open(TRAIN.slice(0, 60), OTHER.slice(0, 60), None, SCHEMA)
    found = evaluate_tables(inputs, on_step=steps.append, skip=STEPS[:1] + STEPS[2:])
    assert [measure.name for measure in found.measures] == ["associations"]
    assert len(steps) == 1
    assert found.left_out == dict.fromkeys(STEPS[:1] + STEPS[2:], "skipped, as asked")
    with pytest.raises(ConfigError, match="no step 'boost' to skip; choose from distances, associations"):
        evaluate_tables(inputs, skip=["boost"])


def test_an_evaluation_is_read_back(whole: Evaluation, tmp_path: Path) -> None:
    write_evaluation(whole, tmp_path / "evaluation")
    again = read_evaluation(tmp_path / "evaluation")
    assert evaluation_data(again) == evaluation_data(msgspec.structs.replace(whole, expected=None))
    (tmp_path / "evaluation" / FILE).write_text('{"measures": []}')
    for folder in (tmp_path, tmp_path / "evaluation"):
        with pytest.raises(DataError, match="holds no evaluation; run repsynth evaluate -o"):
            read_evaluation(folder)


def test_a_narrow_terminal_shows_whole_names(whole: Evaluation) -> None:
    printed = io.StringIO()
    render.evaluation(Console(file=printed, width=80), whole)
    for name in (*(measure.name for measure in whole.measures), "How near its tables are", "Who pays"):
        assert f"{name} " in printed.getvalue()


def test_a_release_is_drawn_from_and_its_intervals_are_looked_at() -> None:
    train = make_people(500, 1)
    plan = make_plan(SCHEMA, Settings.of(epsilon=3.0, model="naive-bayes"))
    release = run(plan, open_source(train), noise_seed=1)
    found = repsynth.evaluate(train, release=release)
    assert found.rows["synthetic"] == release.default_rows
    assert found.expected is not None
    intervals = found["intervals of the release"]
    assert intervals.value > 0.8
    assert intervals.words == "as promised"
    equal = train.take([0] * 500)
    wrong = repsynth.evaluate(equal, release=release)["intervals of the release"]
    assert wrong.breakdown["age"] < 1
    assert "is this the table" in wrong.words
    with pytest.raises(ConfigError, match="not the one that the release was made with"):
        repsynth.evaluate(TRAIN, OTHER, parse_schema(CATEGORIES), release=release)


def one_row_each(table: pa.Table, seed: int) -> pa.Table:
    order = np.random.default_rng(seed).permutation(table.num_rows)
    first = np.unique(np.array(table["patient"].to_pylist())[order], return_index=True)[1]
    return table.take(pa.array(order[first]))


@pytest.mark.parametrize("rows", [1, 10])
def test_with_persons_the_release_is_compared_with_persons(rows: int) -> None:
    """Of fresh persons a perfect table has one row each, or all of them; the other one is farther away."""
    schema = parse_schema(STAYS.replace("rows = 1", f"rows = {rows}"))
    train, holdout, fresh = (make_stays(600, seed) for seed in (1, 2, 3))
    tables = {1: one_row_each(fresh, 0), 10: fresh}
    right, wrong = (Inputs.open(train, tables[k], holdout, schema) for k in (rows, 11 - rows))
    found = evaluate_tables(right)
    assert found["two-way distance"].value < 1.2 * (found["two-way distance"].floor or 0)
    assert found["propensity"].value < 0.55
    assert found.rows["training"] == (600 if rows == 1 else train.num_rows)
    far = measure_distances(wrong.train, wrong.synthetic, schema).mean_two_way
    assert far > 1.25 * found["two-way distance"].value
    assert wrong.warnings == ()
    said = f"{found.rows['training']:,} of {train.num_rows:,} training rows"
    assert found.compared_with.startswith("what persons are like: ")
    assert said in found.compared_with
    assert evaluation_data(found)["compared_with"] == found.compared_with
    printed = io.StringIO()
    render.evaluation(Console(file=printed, width=300), found)
    assert f"Compared with {found.compared_with}." in printed.getvalue()


def test_intervals_of_a_release_hold_what_persons_are_like() -> None:
    schema, table = parse_schema(STAYS), make_stays(3000, 1)
    settings = Settings.of(epsilon=2.0, delta=1e-9, model="naive-bayes")
    release = run(make_plan(schema, settings), open_source(table), noise_seed=1)
    found = evaluate_tables(Inputs.open(table, release.sample(500, seed=0), None, schema), release)
    assert found["intervals of the release"].said == "as promised"
    assert found["intervals of the release"].value >= 0.9


def test_rows_that_count_nothing_are_not_compared() -> None:
    """Whose they are is not known, so the release has nothing of them."""
    table = make_stays(200, 1)
    lost = replaced(table, "patient", ["1-\ufffd"] * 40 + table["patient"].to_pylist()[40:])
    known = len(set(lost["patient"].to_pylist()[40:]))
    found = Inputs.open(lost, table, lost, parse_schema(STAYS))
    assert found.kept is not None
    assert not found.kept[:40].any()
    assert found.train.rows == known
    assert found.holdout is not None
    assert found.holdout.rows == known


def test_halves_have_no_person_in_common() -> None:
    schema = parse_schema(STAYS.replace("rows = 1", "rows = 3"))
    table = make_stays(200, 1)
    one, two = (half.whose for half in Inputs.open(table, table, None, schema).halves)
    assert one is not None
    assert two is not None
    assert len(np.intersect1d(one.places, two.places)) <= 1  # who lies across the middle


def test_a_holdout_with_persons_of_the_training_table_is_told() -> None:
    """Their rows differ, so equal rows would not give them away."""
    train, other = make_stays(200, 1), make_stays(200, 2)
    known = other.set_column(0, "patient", [["1-7"] * 50 + other["patient"].to_pylist()[50:]])
    warned = Inputs.open(train, other, known, parse_schema(STAYS)).warnings
    assert any("% of the holdout rows belong to persons of the training table" in text for text in warned)
    assert Inputs.open(train, other, other, parse_schema(STAYS)).warnings == ()


def test_too_few_persons_are_refused() -> None:
    table = make_stays(19, 1)
    with pytest.raises(DataError, match="training table has fewer than 20 persons"):
        Inputs.open(table, make_stays(50, 2), None, parse_schema(STAYS))


def test_without_persons_all_rows_are_compared(whole: Evaluation) -> None:
    assert whole.compared_with == ""
