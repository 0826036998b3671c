"""Releases of earlier versions load, can be drawn from, and say the same of what they cost."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from repsynth import Release
from repsynth.models.registry import MODELS
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
