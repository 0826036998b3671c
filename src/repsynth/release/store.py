"""Write a release folder: `release.json` and `arrays.npz`.

The files are data, never code: JSON and plain arrays, no pickle. `verify` reads them and checks every part.
"""

import hashlib
import os
import shutil
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from repsynth import __version__
from repsynth.arrays import Arrays
from repsynth.columns.adaptive_histogram import dump_look
from repsynth.errors import ConfigError, ReleaseError, shown
from repsynth.io.write import Kind
from repsynth.privacy.events import Charge, Event, SampledEvent
from repsynth.release.release import Release
from repsynth.schema import schema_to_dict
from repsynth.scoring.stage import StageOne
from repsynth.scoring.weights import RULES
from repsynth.storage import hidden, sync

FORMAT = 6
"""Raise this number if the content of a release changes, or the rule that derives charges from settings."""

BORROWED = "from_"
"""Prefix of the arrays that belong to the release whose scores are used."""


class BudgetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The total budget: μ, or ε with a training, whose loss is not Gaussian."""

    delta: float
    mu: float | None = None
    epsilon: float | None = None


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan: the settings as given, and what was computed from them."""

    settings: dict[str, Any]
    budget: BudgetFile
    charges: tuple[Charge, ...]
    rule: dict[str, Any]
    ceiling: float
    training: SampledEvent | None


class ThresholdFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: int
    fraction: float
    fraction_error: float


class ReleaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    repsynth: str
    publishable: bool
    schema: dict[str, Any]
    kind: Kind
    plan: PlanFile
    rows: float
    events: tuple[Event, ...]
    threshold: ThresholdFile | None
    weights_start: int
    fit: dict[str, Any]
    arrays_sha256: str
    scores_from: "ScoresFromFile | None" = None


class ScoresFromFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The release whose scores are used: the SHA-256 of its `release.json`, and that file without its model."""

    digest: str
    described: ReleaseFile


def save_release(release: Release, folder: Path) -> Path:
    """Write the folder under a hidden name, then rename it. After this returns, it survives a power cut."""
    if folder.exists():
        raise ReleaseError(
            f"{shown(folder)}: already exists; a release is never overwritten, choose another folder"
        )
    text, packed = release_files(release)
    temporary: Path | None = None
    made = [path for path in folder.parents if not path.exists()]
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = hidden(folder)
        temporary.mkdir()
        (temporary / "release.json").write_bytes(text)
        (temporary / "arrays.npz").write_bytes(packed)
        for path in (*temporary.iterdir(), temporary):
            sync(path)
        os.rename(temporary, folder)
        temporary = folder
        for path in (folder, *made):
            sync(path.parent)
    except OSError as error:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise ReleaseError(
            f"{shown(folder)}: cannot be written ({error.strerror}); nothing was left behind"
        ) from None
    return folder


def check_private(place: Path) -> None:
    """Refuse to write PRIVATE files into a release folder, which is handed out as a whole."""
    whole = place.resolve()
    if any((folder / "release.json").is_file() for folder in (whole, *whole.parents)):
        raise ConfigError(
            f"{shown(place)}: is inside a release folder, which may be published; choose a folder elsewhere"
        )


def release_files(release: Release) -> tuple[bytes, bytes]:
    """Return the content of `release.json` and of `arrays.npz`."""
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays_of(release))  # type: ignore[arg-type]
    packed = buffer.getvalue()
    text = msgspec.json.format(msgspec.json.encode(describe(release, hashlib.sha256(packed).hexdigest())))
    return text + b"\n", packed


def describe(release: Release, digest: str) -> ReleaseFile:
    plan, borrowed = release.plan, release.plan.borrowed
    settings, threshold = plan.settings, None if borrowed else release.threshold
    trained = plan.training is not None and settings.epsilon is not None
    return ReleaseFile(
        format=FORMAT,
        repsynth=__version__,
        publishable=release.publishable,
        schema=schema_to_dict(release.schema),
        kind=release.kind,
        plan=PlanFile(
            settings=settings.dump(),
            budget=BudgetFile(plan.delta, **({"epsilon": settings.epsilon} if trained else {"mu": plan.scale})),
            charges=tuple(plan.charges.values()),
            rule=RULES.dump(plan.rule),
            ceiling=plan.ceiling,
            training=plan.training,
        ),
        rows=release.rows,
        events=release.events,
        threshold=None
        if threshold is None
        else ThresholdFile(threshold.value, threshold.fraction, threshold.fraction_error),
        weights_start=release.weights.start,
        fit=release.fit.dump()[0],
        arrays_sha256=digest,
        scores_from=None
        if borrowed is None
        else ScoresFromFile(borrowed.digest, msgspec.convert(borrowed.described, ReleaseFile)),
    )


def arrays_of(release: Release) -> Arrays:
    arrays = score_arrays(release.stage)
    for name, look in release.stage.looks.items():
        arrays |= dump_look(name, look)
    return arrays | release.fit.dump()[1]


def score_arrays(stage: StageOne) -> Arrays:
    """Return the arrays that a score and its weight are computed from."""
    arrays: Arrays = {"coarse_counts": stage.coarse.counts, "weights": stage.weights.table}
    if stage.borrowed is not None:
        return arrays | {BORROWED + name: array for name, array in stage.borrowed.arrays.items()}
    if stage.threshold:
        arrays["threshold_edges"] = stage.threshold.edges
        arrays["threshold_counts"] = stage.threshold.counts.ravel()
        if stage.threshold.shifts is not None:
            arrays["threshold_shifts"] = stage.threshold.shifts
    return arrays | stage.score.dump()
