"""Weights, thresholds, shifts and rules of one release belong together: what does not follow is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import rewritten

from repsynth import Release, datasets
from repsynth.data.sources import open_source
from repsynth.errors import ReleaseError
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.lending import borrow
from repsynth.scoring.base import NAT
from repsynth.scoring.weights import FULL

SIM = datasets.load("sim")


def made(**options: Any) -> Release:
    lent = options.pop("scores_from", None)
    asked = Settings.of(**{"epsilon": 4.0, "delta": 1e-6, "model": "naive-bayes", **options})
    return run(make_plan(SIM.schema, asked, borrow(lent) if lent else None), open_source(SIM.table), noise_seed=1)


@pytest.fixture(scope="module")
def releases() -> dict[str, Release]:
    by_label = made()
    assert by_label.threshold is not None
    assert by_label.threshold.shifts is not None
    fitted = made(epsilon=0.2)
    assert fitted.threshold is not None
    assert fitted.threshold.shifts is None
    return {
        "by label": by_label,
        "fitted": fitted,
        "hinge": made(weights="hinge-exp", gamma=0.7),
        "cut": made(outlier_epsilon=2.0),
        "cap": made(weights="cap"),
        "lost mass": made(max_lost_mass=0.1),
        "borrowed": made(scores_from=by_label),
    }


KINDS = ["by label", "fitted", "hinge", "cut", "cap", "lost mass", "borrowed"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_nobody_touched_is_loaded(kind: str, releases: dict[str, Release], tmp_path: Path) -> None:
    loaded = Release.load(releases[kind].save(tmp_path / "release"))
    assert np.array_equal(loaded.weights.table, releases[kind].weights.table)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "change", [lambda w: np.maximum(w - 40, 0), lambda w: np.minimum(w, FULL // 9), lambda w: w // 2]
)
def test_other_weights_are_refused(
    kind: str, change: Callable[[Any], Any], releases: dict[str, Release], tmp_path: Path
) -> None:
    """Smaller ones, which would let the release claim a smaller loss than there was."""
    release = releases[kind]
    refused(rewritten(release, tmp_path / "release", {"weights": change(release.weights.table)}), "do not follow")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_begin_elsewhere_are_refused(kind: str, releases: dict[str, Release], tmp_path: Path) -> None:
    start = releases[kind].weights.start - NAT
    refused(rewritten(releases[kind], tmp_path / "release", {}, weights_start=start), "do not follow")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "borrowed"])
def test_another_threshold_is_refused_even_if_the_weights_move_with_it(
    kind: str, releases: dict[str, Release], tmp_path: Path
) -> None:
    release = releases[kind]
    described = described_as(release, tmp_path / "whole")
    for name, changes in (
        ("value", {"value": described["threshold"]["value"] - NAT}),
        ("error", {"fraction_error": described["threshold"]["fraction_error"] / 2}),
        ("fraction", {"fraction": described["threshold"]["fraction"] / 2}),
    ):
        moved = {"threshold": described["threshold"] | changes}
        if name == "value":
            moved["weights_start"] = described["weights_start"] - NAT
        refused(
            rewritten(release, tmp_path / name, {}, **moved), "does not follow|is not its plan's|do not follow"
        )


def test_other_shifts_are_refused(releases: dict[str, Release], tmp_path: Path) -> None:
    """Whoever moves a label's threshold says that other records weigh less."""
    release = releases["by label"]
    assert release.threshold is not None
    assert release.threshold.shifts is not None
    for k in range(len(release.threshold.shifts)):
        shifts = release.threshold.shifts.copy()
        shifts[k] += NAT // 4
        refused(rewritten(release, tmp_path / str(k), {"threshold_shifts": shifts}), "does not follow")


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        ("by label", {"name": "targeted", "outlier_weight": 0.1}),
        ("hinge", {"name": "hinge-exp", "gamma": 2.0}),
        ("cut", {"name": "targeted", "outlier_weight": 0.01}),
        ("cap", {"name": "removal"}),
    ],
)
def test_another_rule_is_refused(
    kind: str, rule: dict[str, Any], releases: dict[str, Release], tmp_path: Path
) -> None:
    """In the plan, in the settings, and in both."""
    release = releases[kind]
    described = described_as(release, tmp_path / "whole")
    for name, plan, settings in (("plan", True, False), ("settings", False, True), ("both", True, True)):
        changed = json.loads(json.dumps(described["plan"]))
        if plan:
            changed["rule"] = rule
        if settings:
            changed["settings"]["weights"] = rule
        if (kind, name) == ("cut", "settings"):
            continue  # the asked outlier ε decides, whatever the rule's own weight was
        refused(rewritten(release, tmp_path / name, {}, plan=changed), "not its settings'|do not follow")


def test_another_ceiling_is_refused(releases: dict[str, Release], tmp_path: Path) -> None:
    release = releases["cut"]
    described = described_as(release, tmp_path / "whole")
    for ceiling in (1.0, described["plan"]["ceiling"] * 1.3, described["plan"]["ceiling"] / 2):
        changed = described["plan"] | {"ceiling": ceiling}
        changed["rule"] = {"name": "targeted", "outlier_weight": ceiling}
        table = np.array([int(ceiling * FULL)])
        folder = rewritten(release, tmp_path / str(ceiling), {"weights": table}, plan=changed)
        if ceiling < described["plan"]["ceiling"]:
            Release.load(
                folder
            )  # a smaller weight than was needed keeps the asked ε: nothing in the file speaks against it
        else:
            refused(folder, "does not keep the asked outlier epsilon")


def described_as(release: Release, folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((release.save(folder) / "release.json").read_text())
    return described


def refused(folder: Path, why: str) -> None:
    with pytest.raises(ReleaseError, match=why) as refusal:
        Release.load(folder)
    assert "\n" not in str(refusal.value)
