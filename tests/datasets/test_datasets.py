"""The public tables: read from a folder, or fetched once, checked and cached."""

from pathlib import Path
from urllib.error import URLError

import numpy as np
import pandas as pd
import pytest
from checks import records_of

from repsynth import datasets
from repsynth.datasets import fetch
from repsynth.errors import ConfigError, DataError
from repsynth.schema import Integer


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("REPSYNTH_DATA", raising=False)
    return tmp_path / "repsynth"


def as_openml_has_it(name: str, path: Path) -> fetch.Columns:
    """A local copy in OpenML's words, its rows in another order."""
    frame = pd.read_csv(path, dtype=object).sample(frac=1, random_state=0)
    if name == "adult":
        frame = frame.replace("?", np.nan).rename(columns={"income": "class"})
        for column in ("age", "fnlwgt"):
            frame[column] = frame[column].astype(int)
        return {column: frame[column].tolist() for column in frame.columns}
    columns: fetch.Columns = {}
    for column, source in fetch._CREDIT.items():
        theirs, codes = (source, {}) if isinstance(source, str) else source
        words = {code: word for word, code in codes.items()}
        columns[theirs] = [float(v) if isinstance(source, str) else words[v] for v in frame[column]]
    return columns


@pytest.mark.parametrize("name", ["adult", "german_credit"])
def test_what_is_fetched_is_the_dataset_and_is_fetched_once(name: str, cache: Path, data_dir: Path) -> None:
    asked = []

    def download(number: int) -> fetch.Columns:
        asked.append(number)
        return as_openml_has_it(name, data_dir / f"{name}.csv")

    path = fetch.cached(name, download=download)
    assert path == cache / f"{name}.csv"
    assert fetch.cached(name, download=download) == path
    assert len(asked) == 1
    assert sorted(path.read_text().splitlines()) == sorted((data_dir / f"{name}.csv").read_text().splitlines())
    assert datasets.load(name).table.num_rows == datasets.load(name, data_dir=data_dir).table.num_rows


def test_a_damaged_copy_in_the_cache_is_fetched_again(cache: Path, data_dir: Path) -> None:
    cache.mkdir()
    (cache / "german_credit.csv").write_text("class\n1\n")
    path = fetch.cached(
        "german_credit",
        download=lambda _: as_openml_has_it("german_credit", data_dir / "german_credit.csv"),
    )
    assert len(path.read_text().splitlines()) == 1001


@pytest.mark.parametrize("columns", [{}, {name: [1, 2] for name in [*fetch._ADULT, "class"]}])
def test_other_data_is_refused_and_not_kept(cache: Path, columns: fetch.Columns) -> None:
    with pytest.raises(DataError, match=r"checksum|no column"):
        fetch.cached("adult", download=lambda _: columns)
    assert not cache.exists()


def test_without_a_network_the_message_says_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(**_: object) -> None:
        raise URLError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", offline)
    with pytest.raises(DataError, match=r"adult: not on this machine.*REPSYNTH_DATA"):
        datasets.load("adult")


def test_an_unknown_dataset_and_an_empty_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="german_credit"):
        datasets.load("iris")
    with pytest.raises(DataError, match=r"must hold adult\.csv"):
        datasets.load("adult", data_dir=tmp_path)


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
