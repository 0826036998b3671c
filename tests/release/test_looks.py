"""The looks of a release are saved and loaded, and forged ones are refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import records_of, refused, rewritten, same_release
from conftest import WIDE, make_wide

from repsynth import Release
from repsynth.columns.adaptive_histogram import FINE, REFINED
from repsynth.models.registry import MODELS
from repsynth.release.store import arrays_of
from repsynth.schema import parse_schema

SCHEMA = parse_schema(WIDE)
Make = Callable[..., Release]


@pytest.mark.parametrize(
    "model", [pytest.param(m, marks=pytest.mark.train) if m == "autoregressive" else m for m in MODELS]
)
def test_a_release_with_looks_there_and_back(model: str, releases: Make, tmp_path: Path) -> None:
    release = releases(model, "wide")
    assert release.stage.looks.keys() == {REFINED, FINE}
    folder = release.save(tmp_path / "release")
    loaded = Release.load(folder)
    assert same_release(loaded, release)
    assert loaded.sample(200, seed=2).equals(release.sample(200, seed=2))
    records = records_of(make_wide(60, seed=1), SCHEMA)
    assert np.array_equal(loaded.influence(records), release.influence(records))
    for name, kernel in release.stage.kernels().items():
        assert np.array_equal(loaded.stage.kernels()[name].total(records), kernel.total(records)), name
    loaded.save(tmp_path / "again")
    for name in ("release.json", "arrays.npz"):
        assert (tmp_path / "again" / name).read_bytes() == (folder / name).read_bytes()


def swapped(array: np.ndarray, i: int, j: int) -> np.ndarray:
    other = array.copy()
    other[[i, j]] = other[[j, i]]
    return other


def put(array: np.ndarray, i: int, value: float) -> np.ndarray:
    other = array.copy()
    other[i] = value
    return other


FORGED: list[tuple[str, str, Callable[[np.ndarray], np.ndarray | None]]] = [
    *(
        ("naive-bayes", name, lambda array: None)
        for name in (
            *("coarse_counts", "refined_columns", "refined_counts", "refined_starts_3"),
            *("fine_columns", "fine_counts", "fine_starts_0"),
        )
    ),
    ("naive-bayes", "coarse_counts", lambda array: array[1:]),
    ("naive-bayes", "refined_columns", lambda array: array[::-1]),
    ("naive-bayes", "refined_columns", lambda array: array[:-1]),
    ("naive-bayes", "refined_columns", lambda array: array[:0]),
    ("naive-bayes", "refined_columns", lambda array: put(array, 1, 0)),
    ("naive-bayes", "refined_columns", lambda array: put(array, 0, -1)),
    ("naive-bayes", "refined_columns", lambda array: put(array, -1, 7)),  # the label
    ("naive-bayes", "refined_columns", lambda array: put(array, -1, 8)),
    ("naive-bayes", "refined_columns", lambda array: array.astype(np.float64)),
    ("naive-bayes", "refined_starts_0", lambda array: swapped(array, 3, 4)),
    ("naive-bayes", "refined_starts_0", lambda array: array[1:]),
    ("naive-bayes", "refined_starts_0", lambda array: array[:-1]),  # the special value has its own cell
    ("naive-bayes", "refined_starts_0", lambda array: put(array, -1, 2**60)),
    ("naive-bayes", "refined_starts_4", lambda array: array + 1),
    ("naive-bayes", "refined_starts_4", lambda array: array.astype(np.float64)),
    ("naive-bayes", "refined_starts_1", lambda array: array[::2]),  # its cells are not parts of the coarse ones
    ("naive-bayes", "fine_starts_1", lambda array: array[::2]),
    ("naive-bayes", "fine_starts_1", lambda array: np.arange(2**16 + 1)),
    ("naive-bayes", "refined_counts", lambda array: array[:-1]),
    ("naive-bayes", "fine_counts", lambda array: np.append(array, 0)),
    ("naive-bayes", "fine_counts", lambda array: put(array, 0, -(2**63))),
    ("naive-bayes", "fine_counts", lambda array: put(array, 0, 2**62 + 1)),
    ("naive-bayes", "fine_counts", lambda array: array.astype(np.float64)),
    ("naive-bayes", "rarity_0", lambda array: array + 2),  # scores follow from the histograms
    ("naive-bayes", "rarity_1", lambda array: put(array, 0, int(array[0]) + 30 * 2**16)),
    ("mst", "coarse_0", lambda array: array[:-1]),
    ("mst", "coarse_0", lambda array: array + 1),
    ("mst", "coarse_2", lambda array: put(array, -1, -1)),  # the missing are declared
    ("mst", "coarse_0", lambda array: put(array, -1, 0)),  # and here they are not
    ("mst", "groups_1", lambda array: put(array, 0, 99)),
]


@pytest.mark.parametrize(
    ("model", "name", "change"), FORGED, ids=[f"{name} {k}" for k, (_, name, _) in enumerate(FORGED)]
)
def test_forged_arrays_of_the_looks_are_refused(
    model: str, name: str, change: Callable[[np.ndarray], np.ndarray | None], releases: Make, tmp_path: Path
) -> None:
    release = releases(model, "wide")
    refused(rewritten(release, tmp_path / "copy", {name: change(arrays_of(release)[name])}), "damaged")


def test_cells_that_cross_earlier_ones_are_refused(releases: Make, tmp_path: Path) -> None:
    """As many cells as before, but one begins behind the coarse cell that it should be part of."""
    release = releases("naive-bayes", "wide")
    starts = arrays_of(release)["refined_starts_0"]
    (at,) = np.nonzero(np.isin(starts[1:-1], release.stage.coarse.bins[0].starts) & (np.diff(starts)[1:] > 1))
    forged = put(starts, at[0] + 1, starts[at[0] + 1] + 1)
    refused(rewritten(release, tmp_path / "copy", {"refined_starts_0": forged}), "not parts of its cells")


def test_arrays_that_nobody_changed_are_read(releases: Make, tmp_path: Path) -> None:
    release = releases("naive-bayes", "wide")
    assert same_release(Release.load(rewritten(release, tmp_path / "copy", {})), release)


def test_coarse_groups_that_divide_fine_ones_are_refused(releases: Make, tmp_path: Path) -> None:
    """Each coarse group is made of whole fine ones, whatever else is sound about it."""
    release = releases("mst", "wide")
    arrays, tried = arrays_of(release), 0
    for i in range(7):
        fine, coarse = arrays[f"groups_{i}"], arrays[f"coarse_{i}"]
        inside = np.flatnonzero((np.diff(fine) == 0) & (fine[:-1] >= 0))
        if not len(inside) or len(np.unique(coarse)) < 3:
            continue
        first = int(inside[0])
        other = put(coarse, first, (coarse[first] + 1) % (coarse.max() + 1))
        assert np.array_equal(np.unique(other), np.unique(coarse))
        refused(rewritten(release, tmp_path / str(i), {f"coarse_{i}": other}), "coarse groups divide")
        tried += 1
    assert tried >= 2


def described(release: Release, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((release.save(folder) / "release.json").read_text())
    return {"plan": found["plan"], "events": found["events"]}


@pytest.mark.parametrize("name", [REFINED, FINE])
def test_a_forged_event_of_a_look_is_refused(name: str, releases: Make, tmp_path: Path) -> None:
    """Without its charge, with a smaller sensitivity, with less noise, and as one that everybody pays in full."""
    release = releases("naive-bayes", "wide")
    whole = described(release, tmp_path / "whole")
    forged = {
        why: json.loads(json.dumps(whole)) for why in ("damaged", "smaller sensitivity", "plan's", "in full")
    }
    for entries in (forged["damaged"]["events"], forged["damaged"]["plan"]["charges"]):
        entries[:] = [entry for entry in entries if entry["name"] != name]
    for why, changes in forged.items():
        for event in changes["events"]:
            if event["name"] == name:
                event["sensitivity"] *= 0.99 if why == "smaller sensitivity" else 1.0
                event["sigma"] *= {"smaller sensitivity": 0.99, "plan's": 0.5}.get(why, 1.0)
                event["weighted"] = why != "in full"
        refused(rewritten(release, tmp_path / why, {}, **changes), why)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numpy notices that the numbers are odd
def test_odd_counts_from_a_stranger_do_no_harm(releases: Make, tmp_path: Path) -> None:
    """They can be sampled, and every number is between its bounds."""
    release = releases("naive-bayes", "wide")
    arrays = arrays_of(release)
    odd = {
        "refined_counts": np.full_like(arrays["refined_counts"], 2**60),
        "fine_counts": np.full_like(arrays["fine_counts"], -(2**60)),
    }
    drawn = records_of(Release.load(rewritten(release, tmp_path / "copy", odd)).sample(300, seed=1), SCHEMA)
    for column in SCHEMA.numeric:
        codes = drawn.codes[column.name]
        assert np.all((codes < column.positions) & ((codes >= 0) | column.missing))
