"""Given rows are completed by the model's probabilities given what they hold; what cannot be is refused by row."""

import dataclasses
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from conftest import ALL_TYPES, make_people, options_of

from repsynth import Release, parse_schema
from repsynth.cli import main
from repsynth.errors import ConfigError
from repsynth.io.sources import open_source
from repsynth.models.completing import Completing, draw_each, effective_size
from repsynth.models.registry import MODELS
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release import release as release_module
from repsynth.run.run import run
from repsynth.sampling.constraints import Drawn

EACH_MODEL = [
    pytest.param(model, marks=pytest.mark.train) if model == "autoregressive" else model for model in MODELS
]
RULES = '\n[[rules]]\nwhen = "smoker = \\"yes\\""\nrequire = "age >= 30"\n'


@cache
def released(model: str, rules: str = "") -> Release:
    settings = {"epsilon": 8.0, "delta": 1e-6, "weights": "uniform", **options_of(model)}
    plan = make_plan(parse_schema(ALL_TYPES + rules), Settings.of(model=model, **settings))
    return run(plan, open_source(make_people(4000)), noise_seed=4)


def fractions(table: pa.Table, name: str) -> pd.Series:
    cells = table[name].to_pandas()
    if name == "age":
        cells = cells // 10
    if name == "joined":
        cells = pd.to_datetime(cells).dt.year
    if name == "income":
        cells = cells > 25_000
    return cells.astype(str).value_counts(normalize=True)


@pytest.mark.parametrize("model", ["naive-bayes", "mst"])
@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"smoker": "yes"}, 'smoker = "yes"'),
        ({"region": "south", "insured": "false"}, 'region = "south" and insured = false'),
        ({"age": None}, "age is missing"),
        ({"region": None, "smoker": "no"}, 'region is missing and smoker = "no"'),
    ],
)
def test_completed_rows_are_those_for_which_the_same_holds(
    model: str, given: dict[str, str | None], where: str
) -> None:
    release, rows = released(model), 12_000
    table = pa.table({name: pa.array([value] * rows, pa.string()) for name, value in given.items()})
    drawn = Drawn()
    completed = pa.concat_tables([piece() for piece in release.pieces(given=table, seed=1, drawn=drawn)])
    asked = release.sample(rows, seed=2, where=where)
    assert drawn.effective_size is None  # exact
    for name in ("age", "income", "region", "insured", "joined", "smoker"):
        both = pd.concat([fractions(completed, name), fractions(asked, name)], axis=1).fillna(0.0)
        assert 0.5 * (both.iloc[:, 0] - both.iloc[:, 1]).abs().sum() < 0.035, name


@pytest.mark.parametrize("model", ["aim", pytest.param("autoregressive", marks=pytest.mark.train)])
def test_weighting_comes_near_to_it(model: str) -> None:
    release, rows = released(model), 3000
    table = pa.table({"region": ["south"] * rows, "insured": [False] * rows})
    completed = release.sample(given=table, seed=1)
    asked = release.sample(rows, seed=2, where='region = "south" and insured = false')
    for name in ("age", "joined", "smoker"):
        both = pd.concat([fractions(completed, name), fractions(asked, name)], axis=1).fillna(0.0)
        assert 0.5 * (both.iloc[:, 0] - both.iloc[:, 1]).abs().sum() < 0.07, name


@pytest.mark.parametrize("model", EACH_MODEL)
def test_what_is_given_stays_and_what_is_not_is_drawn(model: str) -> None:
    release = released(model)
    people = make_people(300, seed=9).select(["age", "income", "smoker"])
    people = people.set_column(0, "age", pa.array(np.clip(np.arange(300), 18, 99)))
    completed = release.sample(given=people, seed=3)
    assert completed.num_rows == 300
    assert completed.column_names == ["person", "age", "income", "region", "insured", "joined", "smoker"]
    assert completed["age"].to_pylist() == people["age"].to_pylist()
    assert completed["smoker"].to_pylist() == people["smoker"].to_pylist()
    assert np.allclose(completed["income"].to_numpy(), np.clip(people["income"].to_numpy(), 0, 1e6), rtol=1e-4)
    assert len(set(completed["region"].to_pylist())) > 1
    assert completed.equals(release.sample(given=people, seed=3))
    assert not completed.equals(release.sample(given=people, seed=4))


@pytest.mark.parametrize("model", EACH_MODEL)
def test_pieces_do_not_change_which_row_is_which(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "_PIECE", 16)
    ages = np.arange(18, 78)
    completed = released(model).sample(given=pa.table({"age": ages}), seed=1)
    assert completed["age"].to_pylist() == ages.tolist()
    assert released(model).sample(given=pa.table({"age": ages[:0]})).num_rows == 0


def test_a_label_follows_what_is_given() -> None:
    """Smokers are ten years older: old ones are more often smokers, by all models."""
    for model in MODELS:
        release = released(model)
        share = [
            np.mean(
                [
                    cell == "yes"
                    for cell in release.sample(given=pa.table({"age": [age] * 1000}), seed=1)["smoker"].to_pylist()
                ]
            )
            for age in (25, 75)
        ]
        assert share[1] > share[0] + 0.1, model


def test_weighting_says_its_effective_size() -> None:
    for model in ("aim", "autoregressive"):
        drawn = Drawn()
        table = pa.table({"smoker": ["yes", "no"] * 50, "insured": [True, False] * 50})
        for piece in released(model).pieces(given=table, seed=1, drawn=drawn):
            piece()
        assert drawn.weighted == 100, model
        assert drawn.effective_size is not None
        assert drawn.effective_size > 5


def test_rows_that_are_like_none_in_the_pool_are_completed_by_the_tree() -> None:
    drawn = Drawn()
    people = make_people(200, seed=1).select(["age", "income", "region", "insured", "joined"]).drop_null()
    keep = pa.compute.and_(pa.compute.greater(people["age"], 17), pa.compute.less(people["age"], 100))
    keep = pa.compute.and_(keep, pa.compute.not_equal(people["region"], "nowhere"))
    people = people.filter(keep)
    for piece in released("aim").pieces(given=people, seed=1, drawn=drawn):
        piece()
    assert drawn.weighted < drawn.kept == people.num_rows


@pytest.mark.parametrize("model", EACH_MODEL)
def test_completed_rows_obey_the_rules(model: str) -> None:
    release = released(model, RULES)
    completed = release.sample(given=pa.table({"age": list(range(18, 60))}), seed=5)
    cells = zip(completed["age"].to_pylist(), completed["smoker"].to_pylist(), strict=True)
    assert all(age >= 30 or smoker == "no" for age, smoker in cells)
    with pytest.raises(ConfigError, match=r"row 2 of the given rows: .* the rules of the schema"):
        release.sample(given=pa.table({"age": [40, 20], "smoker": ["yes", "yes"]}))


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"height": [1]}, "a column 'height', which the release does not have"),
        ({"person": [1]}, "'person', an id, which gets new values"),
        ({"age": [30, 17]}, "row 2 of the given rows: its 'age' is outside of the schema's bounds, 18 to 99"),
        ({"age": ["30", "x1"]}, "row 2 of the given rows: its 'age' is not a value that can be read"),
        ({"region": ["north", "secret"]}, "row 2 of the given rows: its 'region' is not one of its values"),
        ({"smoker": ["no", None]}, "row 2 of the given rows: its 'smoker' is empty, and may not be missing"),
        ({"joined": ["2015-01-01", "2031-01-01"]}, "row 2 of the given rows: its 'joined' is outside"),
        ({"joined": ["2014-12-31"]}, "row 1 of the given rows: its 'joined' is outside"),
    ],
)
def test_what_cannot_be_given_is_refused_by_row_and_column(table: dict[str, list[Any]], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as error:
        released("mst").sample(given=pa.table(table))
    assert not any(word in str(error.value) for word in ("secret", "x1", "17", "2031"))


def test_rows_and_labels_are_the_given_table_s() -> None:
    table = pa.table({"age": [30]})
    for further in ({"rows": 5}, {"label": "yes"}):
        with pytest.raises(ConfigError, match="given rows set the number of rows"):
            released("mst").sample(given=table, **further)
    whole = make_people(5).drop_columns(["person"])
    with pytest.raises(ConfigError, match="nothing to complete"):
        released("mst").sample(given=whole)


def test_what_a_model_never_draws_is_refused_by_row() -> None:
    sampler = released("naive-bayes").sampler
    region = sampler.columns[0]
    nothing = region.probabilities.copy()
    nothing[:, 2] = 0.0
    columns = (dataclasses.replace(region, probabilities=nothing), *sampler.columns[1:])
    object.__setattr__(sampler, "columns", columns)
    try:
        with pytest.raises(ConfigError, match="row 2 of the given rows: the model never draws"):
            released("naive-bayes").sample(given=pa.table({"region": ["north", "3"]}))
    finally:
        released.cache_clear()


def test_the_command_completes_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model, said in (("mst", "exactly"), ("aim", "chosen by weighting")):
        folder = released(model).save(tmp_path / model)
        pacsv.write_csv(pa.table({"age": [30, 50], "smoker": ["no", "yes"]}), tmp_path / f"{model}-rows.csv")
        asked = ["sample", str(folder), "--given", str(tmp_path / f"{model}-rows.csv"), "--seed", "1"]
        assert main([*asked, "-o", str(tmp_path / f"{model}.csv")]) == 0
        assert said in capsys.readouterr().out
        assert pacsv.read_csv(tmp_path / f"{model}.csv")["age"].to_pylist() == [30, 50]
        assert main([*asked, "--json", "-o", str(tmp_path / f"{model}-2.csv")]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["effective_size"] is None) == (model == "mst")
        assert main([*asked, "--rows", "3", "-o", str(tmp_path / "no.csv")]) != 0
        assert "set the number of rows" in capsys.readouterr().err
        assert not (tmp_path / "no.csv").exists()


def test_helpers() -> None:
    generator = np.random.default_rng(1)
    drawn = draw_each(np.tile([0.0, 1.0, 3.0, 0.0], (40_000, 1)), generator)
    assert set(drawn.tolist()) == {1, 2}
    assert abs((drawn == 2).mean() - 0.75) < 0.02
    assert effective_size(np.ones((1, 7)))[0] == pytest.approx(7)
    assert all(isinstance(released(model).sampler, Completing) for model in MODELS)
