"""Rarity within a label: what tells the label is not taken for risk."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from checks import (
    check_contribution,
    check_replay,
    check_spends_its_plan,
    record_run,
    records_of,
    rewritten,
    same_release,
)
from conftest import ALL_TYPES, make_people

import repsynth
from repsynth.curator.guarantee import why_none
from repsynth.data.sources import open_source
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.release.format import arrays_of
from repsynth.schema import Schema, parse_schema
from repsynth.scoring.label_rarity import LABELS

SCHEMA = parse_schema(ALL_TYPES)
UNLABELLED = parse_schema(ALL_TYPES.replace('label = "smoker"', ""))
SIGNAL = """
one_row_per_person = true
label = "ill"
columns.test = {type = "category", values = ["low", "high"]}
columns.region = {type = "category", values = ["north", "south", "east"]}
columns.ill = {type = "boolean"}
"""


def make(schema: Schema = SCHEMA, **options: Any) -> Plan:
    return make_plan(schema, Settings.of(**({"mu": 0.5, "scorer": "label-rarity"} | options)))


def test_its_claims_hold() -> None:
    table = make_people(80)
    for schema in (SCHEMA, UNLABELLED):
        plan = make(schema)
        check_spends_its_plan(plan, table)
        recorded = record_run(plan, table)
        check_replay(plan, table, 5, recorded)
        for m in recorded[1]:
            check_contribution(m.statistic, records_of(table, schema))


def test_every_record_pays_for_it_in_full_and_without_a_label_nobody_does() -> None:
    charge = make().charges[LABELS]
    assert not charge.weighted
    assert (charge.mu / 0.5) ** 2 == pytest.approx(0.02)
    assert LABELS not in make(UNLABELLED).charges


def test_what_tells_the_label_is_not_taken_for_risk() -> None:
    """One in ten is ill, and nearly all of these have a high value: it is rare, but not among them."""
    generator = np.random.default_rng(1)
    ill = np.arange(6000) % 10 == 0
    high = np.where(generator.random(6000) < 0.02, ~ill, ill)
    region = generator.choice(["north", "south", "east"], 6000)
    table = pa.table({"test": np.where(high, "high", "low"), "region": region, "ill": ill})
    schema = parse_schema(SIGNAL)
    records, gap = records_of(table, schema), {}
    odd = high != ill
    for scorer in ("rarity", "label-rarity"):
        release = run(make(schema, mu=1.0, scorer=scorer), open_source(table), noise_seed=1)
        score = release.stage.unmoved_score.of(records) / 2**16
        gap[scorer] = score[ill & high].mean() - score[~ill & ~high].mean()
        strange = score[odd].mean() - score[~odd].mean()
    assert gap["rarity"] > 1.5
    assert abs(gap["label-rarity"]) < 0.3
    assert strange > 2  # by its own label, each of these is rare


def test_it_is_saved_loaded_and_has_no_bounds(tmp_path: Path) -> None:
    release = run(make(public_rows=3000, mu=3.0), open_source(make_people(3000)), noise_seed=2)
    again = repsynth.Release.load(release.save(tmp_path / "release"))
    assert same_release(release, again)
    records = records_of(make_people(300, 7), SCHEMA)
    assert np.array_equal(release.score.of(records), again.score.of(records))
    assert release.score.of(records).min() >= release.score.lowest
    assert "within a label" in (why_none(again) or "")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("label_counts", lambda a: a[:-1]),
        ("label_counts", lambda a: a[:0]),
        ("label_gain_1", lambda a: a[1:]),
        ("label_gain_0", lambda a: a + 2**41),
        ("rarity_0", lambda a: a[1:]),
    ],
)
def test_a_file_that_says_otherwise_is_refused(tmp_path: Path, name: str, change: Any) -> None:
    release = run(make(), open_source(make_people(200)), noise_seed=2)
    with pytest.raises(repsynth.ReleaseError):
        repsynth.Release.load(rewritten(release, tmp_path / "r", {name: change(arrays_of(release)[name])}))
