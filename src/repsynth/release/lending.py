"""What a release lends to a later one: its score function and its threshold, and how these are kept there."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from repsynth.errors import ConfigError
from repsynth.planning.plan import Plan
from repsynth.privacy.events import Event, GaussianEvent
from repsynth.release.release import Release
from repsynth.scoring.base import Arrays
from repsynth.scoring.borrowed import Borrowed
from repsynth.scoring.stage import SCORES, StageOne

PREFIX = "from_"
"""Before the names of the arrays of an earlier release."""


def borrow(source: Release | str | Path) -> Borrowed:
    """The scores of a release or of the folder of one, which is checked in every part.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> borrowed = borrow(synthesize(sim.table, sim.schema, epsilon=1.0))
    >>> later = synthesize(sim.table, sim.schema, epsilon=1.0, scores_from=borrowed, model="naive-bayes")
    >>> [event.name for event in later.events]
    ['count', 'coarse histograms', 'refined histograms', 'fine histograms', 'sums']
    """
    from repsynth.release.folder import packed_and_described
    from repsynth.release.format import describe

    if not isinstance(source, Release | str | Path):
        raise ConfigError("scores are taken from a release, or from the folder of one")
    if isinstance(source, Release):
        release, text = source, packed_and_described(source)[1]
    else:
        release, text = Release.load(source), (Path(source) / "release.json").read_bytes()
    if release.stage.borrowed is not None:
        raise ConfigError("the scores of that release came from another one; take them from there")
    if release.threshold is None:
        raise ConfigError("that release has no threshold, since all its records weigh the same; take another one")
    described = msgspec.to_builtins(describe(release, "")) | {"fit": {}}
    return borrowed_from(release.stage, release.plan, release.events, hashlib.sha256(text).hexdigest(), described)


def borrowed_from(
    stage: StageOne, plan: Plan, events: tuple[Event, ...], digest: str, described: dict[str, Any]
) -> Borrowed:
    """The scores of a release with a threshold, by its parts."""
    from repsynth.release.format import stage_arrays

    assert stage.threshold is not None
    (sigma,) = [e.sigma for e in events if e.name == SCORES and isinstance(e, GaussianEvent)]
    return Borrowed(
        digest=digest,
        schema=stage.schema,
        scorer=plan.scorer,
        score=stage.score,
        threshold=stage.threshold,
        weights=stage.weights,
        histograms=stage.coarse,
        sigma=sigma,
        events=events,
        delta=plan.delta,
        publishable=bool(described["publishable"]),
        described=described,
        arrays=stage_arrays(replace(stage, looks={})),
    )


def kept_arrays(borrowed: Borrowed) -> Arrays:
    """The arrays of the earlier release under names of their own."""
    return {PREFIX + name: array for name, array in borrowed.arrays.items()}


def their_arrays(arrays: Arrays) -> Arrays:
    """The arrays of the earlier release among those of a later one."""
    return {name.removeprefix(PREFIX): array for name, array in arrays.items() if name.startswith(PREFIX)}
