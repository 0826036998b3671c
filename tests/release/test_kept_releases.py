"""Releases of earlier versions load, can be drawn from, and say the same of what they cost."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checks import rewritten

from repsynth import Release, synthesize
from repsynth.errors import ReleaseError
from repsynth.models.registry import MODELS
from repsynth.planning.plan import SPLIT
from repsynth.scoring.weights import RULES

KEPT = Path(__file__).parent.parent / "releases"
FOLDERS = sorted(path.parent for path in KEPT.glob("*/*/release.json"))

specification = importlib.util.spec_from_file_location("keep", KEPT / "keep.py")
assert specification is not None
assert specification.loader is not None
keep = importlib.util.module_from_spec(specification)
specification.loader.exec_module(keep)


def same_account(said: Any, expected: Any, close: float) -> None:
    """So close: another processor may round the last digits otherwise."""
    if isinstance(expected, dict):
        assert said.keys() == expected.keys()
        for key in expected:
            same_account(said[key], expected[key], close)
    elif isinstance(expected, list):
        for one, other in zip(said, expected, strict=True):
            same_account(one, other, close)
    elif isinstance(expected, float):
        assert said == pytest.approx(expected, rel=close)
    else:
        assert said == expected


NETWORKS = {
    f"{name}-{rule}" for name in ("neural", "autoregressive") for rule in (*RULES, "random") if rule != "targeted"
}


@pytest.mark.parametrize(
    "folder",
    [pytest.param(folder, marks=pytest.mark.slow if folder.name in NETWORKS else ()) for folder in FOLDERS],
    ids=lambda folder: f"{folder.parent.name}/{folder.name}",
)
def test_a_kept_release_loads_samples_and_costs_the_same(folder: Path) -> None:
    release = Release.load(folder)
    expected = json.loads((folder / "account.json").read_text())
    expected["model"] = MODELS.current(expected["model"])
    # A training is composed by fast Fourier transforms, whose errors differ from one processor to the next: some
    # 1e-14, a thousandth of the smallest δ that ε is quoted at. All else is in closed form.
    close = 1e-5 if release.plan.training else 1e-9
    same_account(json.loads(json.dumps(keep.account_of(release))), expected, close)
    table = release.sample(40, seed=1)
    assert table.num_rows == 40
    assert set(table["smoker"].to_pylist()) <= {"yes", "no"}
    assert release.sample(5, label="yes")["smoker"].to_pylist() == ["yes"] * 5


def test_every_model_and_rule_was_kept() -> None:
    for version in {folder.parent for folder in FOLDERS}:
        kept = {path.name.replace("neural", "autoregressive") for path in version.iterdir()}
        assert kept == {f"{model}-{weights}" for model in MODELS for weights in (*RULES, "random")}, version.name


def test_a_release_is_read_by_its_own_plan_whatever_the_defaults_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other shares, other names of charges, other bounds on nothing it uses: the account stays."""
    folder = KEPT / "0.1.0" / "aim-targeted"
    before = keep.account_of(Release.load(folder))
    for model in MODELS.values():
        monkeypatch.setattr(model, "score_share", 0.4)
        monkeypatch.setattr(model, "shares", lambda self, schema: ())
    assert MODELS["aim"]().score_share == 0.4
    assert keep.account_of(Release.load(folder)) == before


OLDER = [
    KEPT / version / f"{model}-targeted" for version in ("0.1.0", "0.2.0.dev3") for model in ("mst", "naive-bayes")
]


@pytest.mark.parametrize("folder", OLDER, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_an_older_release_that_is_saved_again_still_says_how_its_budget_was_split(
    folder: Path, tmp_path: Path
) -> None:
    release = Release.load(folder)
    again = Release.load(release.save(tmp_path / "again"))
    assert again.plan.split == release.plan.split != SPLIT
    assert keep.account_of(again) == keep.account_of(release)


@pytest.mark.parametrize("folder", OLDER, ids=lambda folder: f"{folder.parent.name}/{folder.name}")
def test_a_release_with_the_scores_of_an_older_one_can_be_loaded(folder: Path, tmp_path: Path) -> None:
    """It carries stage 1 of the other, with its charges."""
    older = Release.load(folder)
    schema = replace(older.schema, one_row_per_person=True)
    release = synthesize(older.sample(200), schema, epsilon=1.0, delta=1e-6, model="mst", scores_from=folder)
    loaded = Release.load(release.save(tmp_path / "release"))
    assert keep.account_of(loaded) == keep.account_of(release)


def test_a_release_that_says_how_it_was_split_has_spent_all_of_its_budget(tmp_path: Path) -> None:
    """Weighted charges that are a little smaller would claim a smaller ε for the same noise."""
    release = Release.load(KEPT / "0.2.0.dev3" / "mst-targeted")
    described = json.loads((KEPT / "0.2.0.dev3" / "mst-targeted" / "release.json").read_text())
    assert described["plan"]["split"] == 1
    for part in (*described["plan"]["charges"], *described["events"]):
        if part["weighted"]:
            if "mu" in part:
                part["mu"] *= 0.995
            elif "eta" in part:
                part["eta"] *= 0.995
            else:
                part["sigma"] /= 0.995
    changes = {"plan": described["plan"], "events": described["events"]}
    with pytest.raises(ReleaseError, match="its charges are not its budget's"):
        Release.load(rewritten(release, tmp_path / "release", {}, **changes))
