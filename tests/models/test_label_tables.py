"""The label's tables, centred on what stage 1 knows: no record counts for more than it may, nothing is lost."""

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import check_contribution, records_of, rewritten
from hypothesis import given
from hypothesis import strategies as st

import repsynth
from repsynth import datasets
from repsynth.columns.cells import Bins
from repsynth.columns.groups import Groups
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.models.marginal.release import MarginalRelease
from repsynth.models.statistics import UNIT, Domain, LabelTables
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.release import Release
from repsynth.release.store import arrays_of
from repsynth.run.run import run
from repsynth.schema import Category, Schema
from repsynth.scoring.weights import FULL, WeightFunction


class Flat:
    """All records have one score."""

    columns, lowest = 1, 0

    def of(self, records: Records) -> Any:
        return np.zeros(records.rows, dtype=np.int64)


def statistic(offsets: list[list[int]], labels: int, constant: int, clip: int, weight: int = FULL) -> LabelTables:
    sizes = [labels, *(len(offset) for offset in offsets)]
    groups = []
    for k, size in enumerate(sizes):
        column = Category(name=f"c{k}", values=tuple(map(str, range(size))))
        groups.append(Groups(Bins.discrete(column), np.append(np.arange(size), -1)))
    domain, weights = Domain.of(groups, (), 0), WeightFunction(start=0, table=np.array([weight]))
    score: Any = Flat()
    return LabelTables.at(domain, list(map(np.array, offsets)), constant, clip, score, weights, "label tables")


probabilities = st.lists(st.integers(0, UNIT), min_size=0, max_size=3).map(
    lambda cuts: np.diff([0, *sorted(cuts), UNIT]).tolist()
)


@given(
    offsets=st.lists(probabilities, min_size=1, max_size=4),
    labels=st.integers(1, 4),
    constant=st.integers(1, 3 * UNIT),
    clip=st.integers(1, 4 * UNIT),
    weight=st.integers(0, FULL),
    data=st.data(),
)
def test_no_record_counts_for_more_than_its_weight_and_the_clip_allow(
    offsets: list[list[int]], labels: int, constant: int, clip: int, weight: int, data: Any
) -> None:
    tables = statistic(offsets, labels, constant, clip, weight)
    cells = [data.draw(st.integers(-1, size - 1)) for size in [labels, *(len(o) for o in offsets)]]
    record = Records(rows=1, codes={f"c{k}": np.array([cell]) for k, cell in enumerate(cells)})
    norm = float(np.linalg.norm(tables.total(record).astype(np.float64)))
    assert norm <= weight * clip * (1 + 1e-12)
    assert norm <= tables.sensitivity * weight / FULL * (1 + 1e-12)
    assert cells[0] != -1 or not tables.total(record).any()  # without a label it counts for nothing
    # A record that is not clipped keeps its weight but for the rounding.
    if cells[0] != -1 and tables.squared_norm(tables.cells(record))[0] <= (clip - 1) ** 2:
        assert tables.multiplier(tables.cells(record), np.array([weight]))[0] == weight


@pytest.fixture(scope="module")
def sim() -> datasets.Dataset:
    return datasets.load("sim")


def released(sim: datasets.Dataset, **options: Any) -> Release:
    settings = Settings.of(**{"delta": 1e-6, "public_rows": 6000, "model": "mst", **options})
    return run(make_plan(sim.schema, settings), open_source(sim.table), noise_seed=1)


def label_tables(release: Release) -> tuple[LabelTables, Any]:
    assert isinstance(release.fit, MarginalRelease)
    first = release.fit.measured[0]
    assert isinstance(first.tables, LabelTables)
    return first.tables, first


def test_without_noise_and_clip_they_are_the_tables_of_the_data(sim: datasets.Dataset) -> None:
    tables, _ = label_tables(released(sim, mu=100.0, weights="uniform"))
    records = records_of(sim.table, sim.schema)
    wide = replace(tables, clip=100 * UNIT)
    found = wide.split(wide.total(records))
    label = tables.label.of(records)
    for (_, i), table in found.items():
        exact = np.zeros(table.shape)
        np.add.at(exact, (label, tables.domain.groups[i].of(records)), 1)
        assert table == pytest.approx(exact, abs=1e-6 * len(label))


def test_their_noise_is_what_they_say(sim: datasets.Dataset) -> None:
    tables, measured = label_tables(released(sim, mu=1.0, weights="uniform"))
    exact = tables.total(records_of(sim.table, sim.schema))
    generator = np.random.default_rng(0)
    draws = [generator.normal(0, measured.sigma, len(exact)) for _ in range(2000)]
    found = [tables.split(exact + noise) for noise in draws]
    for pair, variance in tables.variances(measured.sigma).items():
        spread = np.var([each[pair] for each in found], axis=0)
        assert spread == pytest.approx(variance, rel=0.25)
    masses = np.std([tables.masses(exact + noise) for noise in draws], axis=0)
    assert masses == pytest.approx(np.full(tables.shape[0], measured.sigma / tables.mass_unit), rel=0.1)


def test_most_records_are_hardly_clipped_and_noise_is_less_than_in_counts(sim: datasets.Dataset) -> None:
    tables, _ = label_tables(released(sim, epsilon=1.0, weights="uniform"))
    records = records_of(sim.table, sim.schema)
    before, after = tables.norms(records)
    assert np.mean(after / before) > 0.9
    assert tables.sensitivity / tables.unit < len(tables.pairs) ** 0.5
    check_contribution(tables, records.take(np.arange(50)))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("offset_0", lambda a: a + 1),  # no probabilities
        ("offset_0", lambda a: a[:-1]),
        ("offset_1", lambda a: np.where(np.arange(len(a)) == 0, -1, a)),
    ],
)
def test_offsets_that_are_no_probabilities_are_refused(
    name: str, wrong: Any, sim: datasets.Dataset, tmp_path: Any
) -> None:
    release = released(sim, epsilon=1.0)
    with pytest.raises(repsynth.ReleaseError):
        Release.load(rewritten(release, tmp_path / "release", {name: wrong(arrays_of(release)[name])}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"clip": 0}, "its clip is out of range"),
        ({"clip": 2**31}, "its clip is out of range"),
        ({"constant": 0}, "its clip is out of range"),
        ({"clip": None}, "its label's tables have no clip"),
    ],
)
def test_a_clip_that_a_run_could_not_have_is_refused(
    change: dict[str, Any], why: str, sim: datasets.Dataset, tmp_path: Any
) -> None:
    release = released(sim, epsilon=1.0)
    assert isinstance(release.fit, MarginalRelease)
    tables = [m.tables.describe() for m in release.fit.measured]
    tables[0] = {key: value for key, value in (tables[0] | change).items() if value is not None}
    with pytest.raises(repsynth.ReleaseError, match=why):
        Release.load(rewritten(release, tmp_path / "release", {}, fit={"tables": tables}))


def test_a_smaller_clip_than_was_charged_for_is_read_and_a_larger_one_refused(
    sim: datasets.Dataset, tmp_path: Any
) -> None:
    release = released(sim, epsilon=1.0)
    first, _ = label_tables(release)
    assert isinstance(release.fit, MarginalRelease)
    for factor, fine in ((0.5, True), (2.0, False)):
        tables = [m.tables.describe() for m in release.fit.measured]
        tables[0]["clip"] = int(first.clip * factor)
        folder = rewritten(release, tmp_path / f"{factor}", {}, fit={"tables": tables})
        if fine:
            Release.load(folder)
        else:
            with pytest.raises(repsynth.ReleaseError, match="smaller sensitivity"):
                Release.load(folder)


def test_no_label_no_label_tables() -> None:
    schema = Schema(
        one_row_per_person=True, columns=tuple(Category(name=name, values=("x", "y")) for name in "abc")
    )
    table = pa.table({name: ["x", "y", "y", "x"] * 100 for name in "abc"})
    release = run(
        make_plan(schema, Settings.of(mu=2.0, delta=1e-6, model="mst")), open_source(table), noise_seed=1
    )
    assert isinstance(release.fit, MarginalRelease)
    assert not any(isinstance(m.tables, LabelTables) for m in release.fit.measured)


def test_a_record_s_influence_is_its_weight_even_where_only_the_label_s_tables_were_measured() -> None:
    """A choice that stops was made all the same, and in it a record counts for its whole weight."""
    generator = np.random.default_rng(3)
    names = "abcdefgh"
    values = tuple("uvwxyz")
    schema = Schema(
        one_row_per_person=True,
        columns=tuple(Category(name=n, values=values) for n in [*names, "label"]),
        label="label",
    )
    table = pa.table({n: generator.choice(values, 8000) for n in [*names, "label"]})
    settings = Settings.of(epsilon=0.5, delta=1e-6, public_rows=8000, model="mst")
    records, stopped = records_of(table, schema), 0
    for seed in range(8):
        release = run(make_plan(schema, settings), open_source(table), noise_seed=seed)
        assert isinstance(release.fit, MarginalRelease)
        stopped += all(isinstance(m.tables, LabelTables) for m in release.fit.measured)
        weights = release.weights.of(release.score.of(records)) / FULL
        assert np.array_equal(release.influence(records), weights)
    assert stopped  # or the test says nothing


def test_a_release_tells_its_noise_in_records(sim: datasets.Dataset) -> None:
    """The label's tables have a finer grid than the others; both say which."""
    release = released(sim, epsilon=1.0)
    told = {m["name"]: m for m in repsynth.inspect_release(release)["measurements"]}
    grids = {name: told[name]["grid"] for name in ("label tables", "tables")}
    assert grids["label tables"] == UNIT * FULL
    assert told["label tables"]["sensitivity"] < 2 * len(sim.schema.columns) ** 0.5
    chosen = release.fit.measured[1].tables  # type: ignore[attr-defined]
    assert told["tables"]["sensitivity"] == pytest.approx(chosen.sensitivity / chosen.unit)
