"""A table that is drawn in pieces: the same for a seed, whoever makes the pieces, and in a file as in memory."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from conftest import ALL_TYPES, make_people, options_of

from repsynth import Release
from repsynth.io import write
from repsynth.io.sources import open_source
from repsynth.io.write import arrow_schema
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release import release as release_module
from repsynth.run.run import run
from repsynth.schema import parse_schema

MODELS = ("naive-bayes", "mst", "aim")


def released(model: str, table: pa.Table) -> Release:
    plan = make_plan(parse_schema(ALL_TYPES), Settings.of(epsilon=3.0, delta=1e-6, **options_of(model)))
    return run(plan, open_source(table), noise_seed=5)


@pytest.fixture(scope="module", params=MODELS)
def release(request: pytest.FixtureRequest) -> Release:
    return released(request.param, make_people(400))


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release_module, "_PIECE", 64)


def test_a_seeded_table_does_not_depend_on_the_number_of_threads(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    for workers in (1, 2, 5):
        monkeypatch.setattr(release_module, "how_many_workers", lambda workers=workers: workers)
        drawn.append(release.sample(300, seed=7))
    assert drawn[0].equals(drawn[1])
    assert drawn[0].equals(drawn[2])
    last_first = [piece() for piece in reversed(list(release.pieces(300, seed=7)))]
    assert pa.concat_tables(reversed(last_first)).equals(drawn[0])
    assert not drawn[0].equals(release.sample(300, seed=8))


def test_the_first_rows_are_the_same_however_many_are_drawn(release: Release) -> None:
    """Whole pieces, that is."""
    assert release.sample(128, seed=7).equals(release.sample(300, seed=7).slice(0, 128))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_file_holds_what_the_same_seed_draws(
    release: Release, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = []
    for workers in (1, 3):
        monkeypatch.setattr(write, "how_many_workers", lambda workers=workers: workers)
        path = tmp_path / f"{workers}{suffix}"
        csv = suffix == ".csv"
        pieces = release.pieces(300, seed=7, csv=csv)
        seen: list[int] = []
        types = arrow_schema(release.schema, csv=csv)
        assert write.write_table(pieces, types, path, seen.append).rows == 300
        assert seen == [64, 128, 192, 256, 300]
        written.append(path.read_bytes())
    assert written[0] == written[1]
    table = release.sample(300, seed=7)
    if suffix == ".parquet":
        read = pq.read_table(path)
        assert read.schema.equals(table.schema)
        assert read.equals(table)
    else:
        plain = pa.BufferOutputStream()
        pacsv.write_csv(table, plain)
        assert written[0] == plain.getvalue().to_pybytes()
