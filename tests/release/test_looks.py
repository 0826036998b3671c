"""Releases of wide columns: what the looks found is kept, does the same again, and is checked when it is read."""

import hashlib
import json
import shutil
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import records_of, same_release
from conftest import WIDE, make_wide, options_of

from repsynth import Release
from repsynth.data.sources import open_source
from repsynth.errors import ReleaseError
from repsynth.models.registry import MODELS
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import parse_schema

SCHEMA = parse_schema(WIDE)
Arrays = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Release, Path]]:
    """A release of a model with wide columns, and its folder; made once."""
    made: dict[str, tuple[Release, Path]] = {}

    def make(model: str) -> tuple[Release, Path]:
        if model not in made:
            plan = make_plan(SCHEMA, Settings.of(delta=1e-6, model=model, **options_of(model, 5.0)))
            release = run(plan, open_source(make_wide(240)), noise_seed=1)
            assert len(release.histograms.located) >= 5
            made[model] = release, release.save(tmp_path_factory.mktemp("looks") / "release")
        return made[model]

    return make


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.train) if m == "autoregressive" else m for m in MODELS]
)
def test_a_release_with_looks_there_and_back(
    model: str, folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    release, folder = folder_of(model)
    loaded = Release.load(folder)
    assert same_release(loaded, release)
    assert loaded.stage.ranges is not None
    assert loaded.histograms.located == release.histograms.located
    assert loaded.sample(200, seed=2).equals(release.sample(200, seed=2))
    records = records_of(make_wide(60, seed=1), SCHEMA)
    assert np.array_equal(loaded.score.of(records), release.score.of(records))
    assert np.array_equal(loaded.influence(records), release.influence(records))
    for name, kernel in release.stage.kernels().items():
        assert np.array_equal(loaded.stage.kernels()[name].total(records), kernel.total(records)), name
    loaded.save(tmp_path / "again")
    for name in ("release.json", "arrays.npz"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def with_arrays(folder: Path, copy: Path, change: Callable[[Arrays], Any]) -> Path:
    """A copy of a release after somebody wrote other arrays into it, checksum and all."""
    shutil.copytree(folder, copy)
    with np.load(copy / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files}
    change(arrays)
    packed = BytesIO()
    np.savez_compressed(packed, **arrays)  # type: ignore[arg-type]
    (copy / "arrays.npz").write_bytes(packed.getvalue())
    described = json.loads((copy / "release.json").read_text())
    described["arrays_sha256"] = hashlib.sha256(packed.getvalue()).hexdigest()
    (copy / "release.json").write_text(json.dumps(described))
    return copy


def swapped(array: np.ndarray, i: int, j: int) -> np.ndarray:
    other = array.copy()
    other[[i, j]] = other[[j, i]]
    return other


def replaced(array: np.ndarray, i: int, value: float) -> np.ndarray:
    other = array.copy()
    other[i] = value
    return other


DAMAGE: list[tuple[str, str, Callable[[np.ndarray], np.ndarray]]] = [
    ("naive-bayes", "range_columns", lambda array: array[::-1]),
    ("naive-bayes", "range_columns", lambda array: array[:-1]),
    ("naive-bayes", "range_columns", lambda array: array[:0]),
    ("naive-bayes", "range_columns", lambda array: replaced(array, 0, -1)),
    ("naive-bayes", "range_columns", lambda array: replaced(array, -1, 7)),  # the label
    ("naive-bayes", "range_columns", lambda array: replaced(array, -1, 8)),
    ("naive-bayes", "range_columns", lambda array: array.astype(np.float64)),
    ("naive-bayes", "range_starts_0", lambda array: swapped(array, 3, 4)),
    ("naive-bayes", "range_starts_0", lambda array: array[:-1]),
    ("naive-bayes", "range_starts_0", lambda array: array[1:]),
    ("naive-bayes", "range_starts_4", lambda array: array + 1),
    ("naive-bayes", "range_starts_4", lambda array: array.astype(np.float64)),
    ("naive-bayes", "zoom_starts_2", lambda array: swapped(array, 1, 2)),
    ("naive-bayes", "zoom_starts_2", lambda array: replaced(array, -1, 2**60)),
    ("naive-bayes", "range_counts", lambda array: array[:-1]),
    ("naive-bayes", "range_counts", lambda array: np.append(array, 0)),
    ("naive-bayes", "range_counts", lambda array: replaced(array, 0, -(2**63))),
    ("naive-bayes", "equal_counts", lambda array: array[1:]),
    ("naive-bayes", "equal_starts_1", lambda array: swapped(array, 3, 4)),
    ("naive-bayes", "grain_counts", lambda array: array[1:]),
    ("naive-bayes", "grain_counts", lambda array: array.astype(np.float64)),
    ("naive-bayes", "zoom_counts", lambda array: array[1:]),
    ("naive-bayes", "zoom_counts", lambda array: replaced(array, 0, 2**62)),
    ("naive-bayes", "grain_powers_0", lambda array: array[:-1]),
    ("naive-bayes", "grain_powers_0", lambda array: array[::-1]),
    ("naive-bayes", "grain_powers_0", lambda array: replaced(array, 0, -5)),
    ("naive-bayes", "grain_powers_1", lambda array: array + 400),
    ("naive-bayes", "grain_powers_1", lambda array: array[:0]),
    ("naive-bayes", "located", lambda array: np.append(array, 6)),  # it is not wide
    ("naive-bayes", "located", lambda array: array - 1),
    ("naive-bayes", "located", lambda array: array.astype(np.float64)),
    ("naive-bayes", "starts_0", lambda array: swapped(array, 1, 2)),
    ("naive-bayes", "z_0", lambda array: replaced(array, 0, 3.5)),
    ("naive-bayes", "z_0", lambda array: replaced(array, 0, -np.inf)),
    ("naive-bayes", "z_0", lambda array: replaced(array, 0, np.nan)),
    ("naive-bayes", "z_0", lambda array: array[:-1]),
    ("naive-bayes", "z_3", lambda array: np.zeros_like(array, dtype=np.int64)),
    ("mst", "coarse_0", lambda array: array[:-1]),
    ("mst", "coarse_0", lambda array: array + 1),
    ("mst", "coarse_0", lambda array: array.astype(np.float64)),
    ("mst", "coarse_2", lambda array: replaced(array, -1, -1)),  # the missing are declared
    ("mst", "coarse_0", lambda array: replaced(array, -1, 0)),  # and here they are not
    ("mst", "groups_1", lambda array: replaced(array, 0, 99)),
]


@pytest.mark.parametrize(
    ("model", "name", "change"), DAMAGE, ids=[f"{name} {k}" for k, (_, name, _) in enumerate(DAMAGE)]
)
def test_damaged_arrays_of_the_looks_are_refused(
    model: str,
    name: str,
    change: Callable[[np.ndarray], np.ndarray],
    folder_of: Callable[[str], tuple[Release, Path]],
    tmp_path: Path,
) -> None:
    def damage(arrays: Arrays) -> None:
        arrays[name] = change(arrays[name])

    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(with_arrays(folder_of(model)[1], tmp_path / "copy", damage))


@pytest.mark.parametrize(
    "name",
    [
        *("range_columns", "range_counts", "range_starts_3", "zoom_counts", "zoom_starts_5"),
        *("equal_counts", "equal_starts_3", "grain_counts", "grain_powers_2", "located", "z_5"),
    ],
)
def test_arrays_of_the_looks_that_are_left_out_are_missed(
    name: str, folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(with_arrays(folder_of("naive-bayes")[1], tmp_path / "copy", lambda arrays: arrays.pop(name)))


def test_arrays_that_nobody_changed_are_read(
    folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    for model in ("naive-bayes", "mst"):
        release, folder = folder_of(model)
        assert same_release(Release.load(with_arrays(folder, tmp_path / model, lambda arrays: None)), release)


def test_coarse_groups_that_divide_fine_ones_are_refused(
    folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    """Each coarse group is made of whole fine ones, whatever else is sound about it."""
    with np.load(folder_of("mst")[1] / "arrays.npz") as file:
        arrays = {name: file[name] for name in file.files}
    tried = 0
    for i in range(7):
        fine, coarse = arrays[f"groups_{i}"], arrays[f"coarse_{i}"]
        inside = np.flatnonzero(np.diff(fine) == 0)
        inside = inside[fine[inside] >= 0]
        if not len(inside) or len(np.unique(coarse)) < 3:
            continue
        first = int(inside[0])
        other = replaced(coarse, first, (coarse[first] + 1) % (coarse.max() + 1))
        assert np.array_equal(np.unique(other), np.unique(coarse))

        def damage(kept: Arrays, name: str = f"coarse_{i}", array: np.ndarray = other) -> None:
            kept[name] = array

        with pytest.raises(ReleaseError, match="coarse groups divide"):
            Release.load(with_arrays(folder_of("mst")[1], tmp_path / str(i), damage))
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize("name", ["ranges", "zoom"])
def test_a_look_whose_charge_is_left_out_is_missed(
    name: str, folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    shutil.copytree(folder_of("naive-bayes")[1], tmp_path / "copy")
    described = json.loads((tmp_path / "copy" / "release.json").read_text())
    for entries in (described, described["plan"]):
        key = "events" if "events" in entries else "charges"
        entries[key] = [entry for entry in entries[key] if entry["name"] != name]
    (tmp_path / "copy" / "release.json").write_text(json.dumps(described))
    with pytest.raises(ReleaseError, match="damaged"):
        Release.load(tmp_path / "copy")


@pytest.mark.parametrize("name", ["ranges", "zoom"])
def test_a_smaller_sensitivity_of_a_look_is_noticed(
    name: str, folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    shutil.copytree(folder_of("naive-bayes")[1], tmp_path / "copy")
    described = json.loads((tmp_path / "copy" / "release.json").read_text())
    (event,) = [event for event in described["events"] if event["name"] == name]
    event["sensitivity"] *= 0.99
    event["sigma"] *= 0.99
    (tmp_path / "copy" / "release.json").write_text(json.dumps(described))
    with pytest.raises(ReleaseError, match="smaller sensitivity"):
        Release.load(tmp_path / "copy")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy notices that the numbers are odd
def test_other_powers_and_places_from_a_stranger_do_no_harm(
    folder_of: Callable[[str], tuple[Release, Path]], tmp_path: Path
) -> None:
    """What no run would have written but what fits: it can be sampled, and every number is between its bounds."""

    def far(arrays: Arrays) -> None:
        arrays["grain_powers_0"] = arrays["grain_powers_0"] + 3
        arrays["grain_powers_1"] = arrays["grain_powers_1"] - 3
        arrays["range_counts"] = np.full_like(arrays["range_counts"], 2**60)
        arrays["zoom_counts"] = np.full_like(arrays["zoom_counts"], -(2**60))
        arrays["z_0"] = np.full_like(arrays["z_0"], 3.0)

    loaded = Release.load(with_arrays(folder_of("naive-bayes")[1], tmp_path / "copy", far))
    drawn = records_of(loaded.sample(300, seed=1), SCHEMA)
    for column in SCHEMA.numeric:
        codes = drawn.codes[column.name]
        assert np.all((codes < column.positions) & ((codes >= 0) | column.missing))
