"""The public tables: simulated, or read from a folder."""

from pathlib import Path

import pytest
from checks import records_of

from repsynth import datasets
from repsynth.errors import ConfigError, DataError
from repsynth.schema import Integer


def test_an_unknown_dataset_and_a_missing_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="german_credit"):
        datasets.load("iris")
    with pytest.raises(DataError, match=r"put adult\.csv there, or name its folder in REPSYNTH_DATA"):
        datasets.load("adult", data_dir=tmp_path)
    monkeypatch.delenv("REPSYNTH_DATA", raising=False)
    with pytest.raises(DataError, match=r"^adult: put adult\.csv into a folder and name .* in REPSYNTH_DATA$"):
        datasets.load("adult")


def test_the_simulated_outliers_are_two_percent_and_have_rare_categories() -> None:
    table = datasets.simulate(1000).to_pandas()
    rare = (table.c1 == "Z") & (table.c2 == "Q") & (table.c3 == "R")
    assert rare.sum() == 20
    assert ((table.c1 == "Z") | (table.c2 == "Q") | (table.c3 == "R")).sum() == 20
    assert table.loc[rare, "x1"].mean() == pytest.approx(2.4, abs=0.7)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_simulated_people_fit_their_schema(seed: int) -> None:
    """No cell is missing, and none is clipped: each is read as what it is. The seed fixes the table."""
    schema = datasets.load("people").schema
    table = datasets.simulate_people(3000, seed=seed)
    assert table.column_names == [column.name for column in schema.columns]
    codes = records_of(table, schema).codes
    for column in schema.columns:
        assert codes[column.name].min() >= 0, column.name
        if isinstance(column, Integer):
            assert (codes[column.name] + column.min).tolist() == table[column.name].to_pylist()
        else:
            assert set(codes[column.name].tolist()) == set(range(column.size)), "every value occurs"


def test_two_percent_of_the_simulated_people_stand_out_and_alone_live_on_the_islands() -> None:
    dataset = datasets.load("people")
    assert dataset.table.equals(datasets.simulate_people())
    assert not dataset.table.equals(datasets.simulate_people(seed=1))
    people = dataset.table.to_pandas()
    islanders = people.region == "islands"
    assert (len(people), islanders.sum()) == (6000, 120)
    assert people[islanders].employed.all()
    for column in ("age", "income", "hours"):
        assert people.loc[islanders, column].median() > people.loc[~islanders, column].quantile(0.95), column
    owns = people.owns_home == "yes"
    assert people.loc[owns, "age"].mean() > people.loc[~owns, "age"].mean() + 5
