"""Weights, thresholds, shifts and rules of one release belong together: what does not follow is refused."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checks import refused, rewritten

from repsynth import Release, datasets
from repsynth.errors import ReleaseError
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.verify import borrow
from repsynth.run.run import run
from repsynth.scoring.base import NAT
from repsynth.scoring.threshold import ScoreBins, or_safer
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
    fitted, by_label_fitted = made(epsilon=0.2), made(epsilon=0.7)
    assert fitted.threshold is not None
    assert fitted.threshold.shifts is None
    assert by_label_fitted.threshold is not None
    assert by_label_fitted.threshold.shifts is not None
    assert len(by_label_fitted.threshold.edges) == len(fitted.threshold.edges) == 6
    return {
        "by label": by_label,
        "fitted": fitted,
        "by label, fitted": by_label_fitted,
        "hinge": made(weights="hinge-exp", gamma=0.7),
        "cut": made(outlier_epsilon=2.0),
        "cap": made(weights="cap"),
        "lost mass": made(max_lost_mass=0.1),
        "borrowed": made(scores_from=by_label),
    }


KINDS = ["by label", "fitted", "by label, fitted", "hinge", "cut", "cap", "lost mass", "borrowed"]


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


@pytest.mark.parametrize("kind", ["hinge", "cap"])
def test_weights_that_end_elsewhere_are_refused(kind: str, releases: dict[str, Release], tmp_path: Path) -> None:
    """The last weight of a table is that of all scores beyond: cut off, it is too large for them, and followed by
    nothing at all, too small for what was measured."""
    table = releases[kind].weights.table
    assert len(table) > 40
    others = {"half": table[: len(table) // 2], "one": table[:1], "less": np.append(table[:20], 0)}
    for name, other in others.items():
        refused(rewritten(releases[kind], tmp_path / name, {"weights": other}), "do not follow")


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
            rewritten(release, tmp_path / name, {}, **moved),
            "not follow|is not the planned one",
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
        refused(rewritten(release, tmp_path / name, {}, plan=changed), "does not match its settings|do not follow")


def test_another_ceiling_is_refused(releases: dict[str, Release], tmp_path: Path) -> None:
    release = releases["cut"]
    described = described_as(release, tmp_path / "whole")
    for factor in (1 / described["plan"]["ceiling"], 1.3, 1.02, 1.0001, 0.5):
        ceiling = described["plan"]["ceiling"] * factor
        changed = described["plan"] | {"ceiling": ceiling}
        changed["rule"] = {"name": "targeted", "outlier_weight": ceiling}
        table = np.array([int(ceiling * FULL)])
        folder = rewritten(release, tmp_path / str(ceiling), {"weights": table}, plan=changed)
        if ceiling < described["plan"]["ceiling"]:
            Release.load(
                folder
            )  # a smaller weight than was needed keeps the asked ε: nothing in the file speaks against it
        else:
            refused(folder, "does not keep the requested outlier epsilon")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "borrowed"])
def test_a_threshold_that_does_not_follow_from_its_histogram_is_refused(
    kind: str, releases: dict[str, Release], tmp_path: Path
) -> None:
    """Six nats down, where most records lie above it: they would all claim the loss of outliers."""
    release = releases[kind]
    described = described_as(release, tmp_path / "whole")
    threshold = described["threshold"] | {"value": described["threshold"]["value"] - 6 * NAT}
    start = described["weights_start"] - 6 * NAT
    folder = rewritten(release, tmp_path / "moved", {}, threshold=threshold, weights_start=start)
    refused(folder, "its threshold does not follow")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "borrowed"])
def test_of_two_thresholds_within_rounding_the_larger_counts(kind: str, releases: dict[str, Release]) -> None:
    """A file that is a thousandth of a nat off must not lower a weight."""
    release = releases[kind]
    threshold, label = release.threshold, release.schema.label_column
    assert threshold is not None
    (sigma,) = (event.sigma for event in release.events if event.name == "scores")  # type: ignore[union-attr]
    shifts = None if threshold.shifts is None else threshold.shifts + NAT // 1000
    moved = replace(threshold, value=threshold.value - NAT // 1000, shifts=shifts)
    safe = or_safer(moved, rows=release.rows, sigma=sigma, label=label)
    assert safe is not None
    assert safe.value == threshold.value
    assert threshold.shifts is None or np.array_equal(safe.shifts, threshold.shifts)  # type: ignore[arg-type]


def test_whether_each_label_has_a_threshold_is_not_the_files_to_say(releases: dict[str, Release]) -> None:
    """One threshold, read off the counts of all labels together: a guarantee could be stated for it."""
    for kind in ("by label", "by label, fitted"):
        release = releases[kind]
        threshold = release.threshold
        assert threshold is not None
        (sigma,) = (event.sigma for event in release.events if event.name == "scores")  # type: ignore[union-attr]
        label = release.schema.label_column
        pooled = threshold.counts.sum(axis=0)
        again = ScoreBins(threshold.edges, True).threshold(pooled, fraction=0.3, rows=release.rows, sigma=sigma)
        one = replace(threshold, counts=again.counts, shifts=None, value=again.value)
        one = replace(one, fraction_error=again.fraction_error)
        assert or_safer(one, rows=release.rows, sigma=sigma, label=label) is None


def moved_charges(described: dict[str, Any], names: set[str], by: float) -> dict[str, Any]:
    """The same total, but less of it paid by every record in full; plan and events agree."""
    changed: dict[str, Any] = json.loads(json.dumps(described))
    charges = {charge["name"]: charge for charge in changed["plan"]["charges"]}
    total = math.fsum(charge["mu"] ** 2 for charge in charges.values())
    for name in names & charges.keys():
        charges[name]["mu"] /= by
    weighted = [charge for charge in charges.values() if charge["weighted"]]
    full = math.fsum(charge["mu"] ** 2 for charge in charges.values() if not charge["weighted"])
    scale = math.sqrt((total - full) / math.fsum(charge["mu"] ** 2 for charge in weighted))
    for charge in weighted:
        charge["mu"] *= scale
    for event in changed["events"]:
        event["sigma"] = event["sensitivity"] / charges[event["name"]]["mu"]
    return {"plan": changed["plan"], "events": changed["events"]}


FIRST = {"count", "coarse histograms"}


@pytest.mark.parametrize("kind", KINDS)
def test_charges_that_are_not_the_settings_are_refused(
    kind: str, releases: dict[str, Release], tmp_path: Path
) -> None:
    """An outlier would claim less: what it pays in full would be a smaller part of the same total."""
    release = releases[kind]
    described = described_as(release, tmp_path / "whole")
    for k, (names, by) in enumerate(
        [(FIRST, 5.0), ({"coarse histograms"}, 1.01), ({"scores"}, 2.0), ({"count"}, 2.0)]
    ):
        if not any(charge["name"] in names for charge in described["plan"]["charges"]):
            continue
        changes = moved_charges(described, names, by)
        refused(rewritten(release, tmp_path / str(k), {}, **changes), "its charges do not match its settings")


@pytest.mark.parametrize("kind", KINDS)
def test_a_release_has_spent_all_of_its_budget(kind: str, releases: dict[str, Release], tmp_path: Path) -> None:
    """Weighted charges that are a little smaller would claim a smaller ε for the same noise."""
    described = described_as(releases[kind], tmp_path / "whole")
    for part in (*described["plan"]["charges"], *described["events"]):
        if part["weighted"]:
            if "mu" in part:
                part["mu"] *= 0.995
            elif "eta" in part:
                part["eta"] *= 0.995
            else:
                part["sigma"] /= 0.995
    changes = {"plan": described["plan"], "events": described["events"]}
    refused(rewritten(releases[kind], tmp_path / "less", {}, **changes), "its charges do not match its settings")


@pytest.mark.parametrize("kind", KINDS)
def test_weights_that_are_a_unit_too_small_make_no_loss_smaller(
    kind: str, releases: dict[str, Release], tmp_path: Path
) -> None:
    release = releases[kind]
    table = np.maximum(release.weights.table - 1, 0)
    loaded = Release.load(rewritten(release, tmp_path / "release", {"weights": table}))
    assert loaded.privacy.outlier_epsilon == release.privacy.outlier_epsilon
    assert np.array_equal(loaded.weights.table, release.weights.table)


def test_a_saved_release_survives_a_power_cut(
    releases: dict[str, Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files and their folder are on the disk before they are moved, every folder that lists them after it."""
    steps: list[Any] = []
    sync, rename = os.fsync, os.rename
    monkeypatch.setattr(os, "fsync", lambda handle: (steps.append(os.fstat(handle).st_ino), sync(handle)))
    monkeypatch.setattr(os, "rename", lambda one, other: (steps.append("moved"), rename(one, other)))
    folder = releases["fitted"].save(tmp_path / "new" / "release")
    before, after = set(steps[: steps.index("moved")]), set(steps[steps.index("moved") + 1 :])
    assert before == {path.stat().st_ino for path in (folder, *folder.iterdir())}
    assert after == {path.stat().st_ino for path in (folder.parent, tmp_path)}


@pytest.mark.parametrize("at", range(4))
def test_a_release_that_may_not_last_is_not_there(
    at: int, releases: dict[str, Release], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles: list[int] = []

    def fail(handle: int) -> None:
        handles.append(handle)
        if len(handles) > at:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ReleaseError, match="Input/output error"):
        releases["fitted"].save(tmp_path / "release")
    assert not list(tmp_path.iterdir())


def described_as(release: Release, folder: Path) -> dict[str, Any]:
    described: dict[str, Any] = json.loads((release.save(folder) / "release.json").read_text())
    return described
