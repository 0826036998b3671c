"""The release folder: there and back, whole or not at all, and nothing believed unchecked."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from checks import same_release
from conftest import options_of
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth import Release, datasets, synthesize
from repsynth.errors import ReleaseError
from repsynth.files import _arrays, release_json_schema
from repsynth.noise import MU_PER_ETA
from repsynth.plan import MODELS
from repsynth.schema import Schema
from repsynth.weigh import RULES


@pytest.fixture
def release(people: pa.Table, schema: Schema) -> Release:
    return synthesize(people, schema, epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("model", list(MODELS))
@pytest.mark.parametrize("rule", list(RULES))
def test_there_and_back(model: str, rule: str, people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    release = synthesize(people, schema, epsilon=1.0, delta=1e-6, weights=rule, model=model, **options_of(model))  # type: ignore[arg-type]
    loaded = Release.load(release.save(tmp_path / "release"))
    assert same_release(loaded, release)
    assert loaded.sample(30, seed=2).equals(release.sample(30, seed=2))
    assert loaded.score.salt == release.score.salt
    assert loaded.privacy.epsilon == release.privacy.epsilon
    assert loaded.privacy.distribution() == release.privacy.distribution()


def test_a_split_release_there_and_back(sim: datasets.Dataset, tmp_path: Path) -> None:
    release = synthesize(sim.table, sim.schema, epsilon=4.0, public_rows=6000)
    assert release.statistic.strata == 2
    loaded = Release.load(release.save(tmp_path / "release"))
    assert same_release(loaded, release)
    assert loaded.sample(30, seed=2).equals(release.sample(30, seed=2))


def test_the_json_follows_its_schema(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "release")
    jsonschema.validate(json.loads((tmp_path / "release" / "release.json").read_text()), release_json_schema())


def test_only_plain_arrays_no_pickle(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    assert sorted(path.name for path in folder.iterdir()) == ["arrays.npz", "release.json"]
    with np.load(folder / "arrays.npz", allow_pickle=False) as arrays:
        assert {arrays[name].dtype.kind for name in arrays.files} <= {"i", "f"}


def test_a_release_is_never_overwritten(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "release")
    with pytest.raises(ReleaseError, match="already exists"):
        release.save(tmp_path / "release")


def test_a_failed_save_leaves_nothing(release: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(ReleaseError, match="No space left"):
        release.save(tmp_path / "release")
    assert list(tmp_path.iterdir()) == []


def test_not_a_release(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="cannot be read"):
        Release.load(tmp_path / "absent")
    (tmp_path / "release.json").write_text("{}")
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(tmp_path)


def test_a_newer_format_asks_for_an_upgrade(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    _edit(folder, {"format": 99})
    with pytest.raises(ReleaseError, match="newer version"):
        Release.load(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"rows": -1.0},
        {"rows": "many"},
        {"clip": 0},
        {"events": []},
        {"split": True, "threshold": None},
        {"layout": {"kind": "csv", "columns": []}},
        {"schema": {"columns": {}}},
        {"extra": 1},
        {"arrays_sha256": "0" * 64},
        {"weights_start": 10**30},
    ],
    ids=str,
)
def test_contradictions_are_noticed(change: dict[str, object], release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    _edit(folder, change)
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(folder)


def rewritten(release: Release, folder: Path, arrays: dict[str, np.ndarray], **changes: Any) -> Path:
    """The folder of a release after somebody wrote other arrays and descriptions into it, checksum and all."""
    release.save(folder)
    packed = BytesIO()
    np.savez_compressed(packed, **(_arrays(release) | arrays))  # type: ignore[arg-type]
    (folder / "arrays.npz").write_bytes(packed.getvalue())
    described = json.loads((folder / "release.json").read_text()) | changes
    described["arrays_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
    (folder / "release.json").write_text(json.dumps(described))
    return folder


@pytest.mark.parametrize("pairs", [[[10, 11]], [[0, 1], [1, 2], [0, 2]], [[0, 0]], [[0, 9]], [[0, 30]], []])
def test_tables_that_a_run_could_not_have_measured_are_refused(
    pairs: list[list[int]], sim: datasets.Dataset, tmp_path: Path
) -> None:
    release = synthesize(sim.table, sim.schema, epsilon=4.0, public_rows=6000, model="mst", weights="uniform")
    tables = [{"name": m.statistic.name, "pairs": m.statistic.pairs} for m in release.measured]  # type: ignore[attr-defined]
    folder = rewritten(
        release, tmp_path / "release", {}, tables=[tables[0], {"name": "synthesis", "pairs": pairs}]
    )
    with pytest.raises(ReleaseError):
        Release.load(folder)


def test_an_event_of_another_kind_is_refused(sim: datasets.Dataset, tmp_path: Path) -> None:
    release = synthesize(sim.table, sim.schema, epsilon=4.0, public_rows=6000, model="mst")
    events = json.loads((release.save(tmp_path / "whole") / "release.json").read_text())["events"]
    (place,) = [k for k, event in enumerate(events) if event["name"] == "threshold"]
    charge = release.events[place].mu
    events[place] = {"kind": "exponential", "name": "threshold", "eta": charge / MU_PER_ETA, "rounds": 1}
    with pytest.raises(ReleaseError, match="kind"):
        Release.load(rewritten(release, tmp_path / "release", {}, events=events))


def test_a_smaller_claimed_sensitivity_is_noticed(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    described = json.loads((folder / "release.json").read_text())
    for number in ("sensitivity", "sigma"):  # at the same charge
        described["events"][-1][number] /= 2
    (folder / "release.json").write_text(json.dumps(described))
    with pytest.raises(ReleaseError, match="smaller sensitivity"):
        Release.load(folder)


@settings(max_examples=60)
@given(which=st.sampled_from(["release.json", "arrays.npz"]), data=st.data())
def test_damage_gives_a_clear_error(
    which: str, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = _saved(tmp_path_factory)
    original = (folder / which).read_bytes()
    position = data.draw(st.integers(0, len(original) - 4))  # the last line end may be missing
    cut = data.draw(st.booleans())
    damaged = original[:position] if cut else original[:position] + b"\x00\xff" + original[position + 2 :]
    try:
        (folder / which).write_bytes(damaged)
        with pytest.raises(ReleaseError):
            Release.load(folder)
    finally:
        (folder / which).write_bytes(original)


@pytest.mark.parametrize("which", ["release.json", "arrays.npz"])
def test_a_pipe_or_a_device_is_not_read(which: str, release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    (folder / which).unlink()
    os.mkfifo(folder / which)
    with pytest.raises(ReleaseError, match="cannot be read"):
        Release.load(folder)
    (folder / which).unlink()
    (folder / which).symlink_to("/dev/zero")
    with pytest.raises(ReleaseError, match="cannot be read"):
        Release.load(folder)


def test_an_array_that_claims_to_be_huge_is_not_allocated(release: Release, tmp_path: Path) -> None:
    folder = release.save(tmp_path / "release")
    header = BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<i8", "fortran_order": False, "shape": (2**42,)})
    with zipfile.ZipFile(folder / "arrays.npz", "w") as archive:
        archive.writestr("sums.npy", header.getvalue())
    _edit(folder, {"arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()})
    with pytest.raises(ReleaseError, match=r"arrays.npz cannot be read"):
        Release.load(folder)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights", lambda array: array + 5000),
        ("weights", lambda array: np.full_like(array, -(2**63))),
        ("marginals", lambda array: np.full_like(array, -(2**63))),
        ("sums", lambda array: array[:-1]),
        ("sums", lambda array: array.astype(np.float64)),
        ("score_scale", lambda array: -array),
        ("centre", lambda array: array * np.nan),
    ],
)
def test_arrays_that_do_not_fit_are_noticed(
    name: str, change: Callable[[np.ndarray], np.ndarray], release: Release, tmp_path: Path
) -> None:
    folder = release.save(tmp_path / "release")
    with np.load(folder / "arrays.npz") as loaded:
        arrays = {key: loaded[key] for key in loaded.files}
    with np.errstate(all="ignore"):
        arrays[name] = change(arrays[name])
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]
    _edit(folder, {"arrays_sha256": hashlib.sha256((folder / "arrays.npz").read_bytes()).hexdigest()})
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(folder)


@pytest.mark.parametrize(
    "change",
    [{"mu": 3.0}, {"outlier_epsilon": -1.0}, {"outlier_share": 7.0}, {"public_rows": 5}, {"weights": "odd"}],
    ids=str,
)
def test_settings_that_do_not_fit_the_events_are_noticed(
    change: dict[str, object], release: Release, tmp_path: Path
) -> None:
    folder = release.save(tmp_path / "release")
    settings = json.loads((folder / "release.json").read_text())["settings"]
    _edit(folder, {"settings": {**settings, **change}})
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(folder)


def test_the_release_holds_no_exact_count(people: pa.Table, schema: Schema) -> None:
    """Every array that depends on the data changes with the noise alone."""
    one, two = (_arrays(synthesize(people, schema, epsilon=1.0, delta=1e-6)) for _ in range(2))
    for name in ("marginals", "sums", "threshold_counts"):
        assert not np.array_equal(one[name], two[name]), name


_FOLDERS: dict[str, Path] = {}


def _saved(factory: pytest.TempPathFactory) -> Path:
    if "saved" not in _FOLDERS:
        dataset = datasets.load("sim")
        release = synthesize(dataset.table.slice(0, 200), dataset.schema, epsilon=1.0)
        _FOLDERS["saved"] = release.save(factory.mktemp("damage") / "release")
    return _FOLDERS["saved"]


def _edit(folder: Path, change: dict[str, object]) -> None:
    described = json.loads((folder / "release.json").read_text())
    (folder / "release.json").write_text(json.dumps({**described, **change}))
