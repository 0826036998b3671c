"""The curator's dossier: the privacy loss of each record. PRIVATE: it goes into one file, asked for by name."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from repsynth.arrays import Floats, Ints
from repsynth.curator.guarantee import eta_share, guaranteed_weights, why_none
from repsynth.engine.local import LocalEngine
from repsynth.io.records import UNITS, Records, Whose
from repsynth.io.sources import check_columns, open_source
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan
from repsynth.privacy.loss import Loss, weight_grid
from repsynth.release.release import Release
from repsynth.schema import Person, Schema
from repsynth.scoring.base import NAT
from repsynth.scoring.stage import SCORES, measure_stage_one
from repsynth.scoring.weights import FULL
from repsynth.storage import beside

RUNS = 25
"""Repetitions of stage 1: the standard error of a frequency is at most 0.1."""
_LABEL = "PRIVATE: per-record privacy losses, a function of the data. For the curator only; never publish."


class DossierSummary(msgspec.Struct, frozen=True):
    """The dossier in a few numbers. PRIVATE.

    If a person may have several `rows`, `records` are persons.
    Inequality of the realised ε: largest to median, Gini coefficient, gap between the 90 % and the 10 % quantile.
    `guaranteed_fraction` counts records whose guaranteed ε is below the total; if 0, `no_guarantee` may say why.
    Bias: the bound on how far weighting and clipping move the mean contribution of a record, in units of the
    contribution. In a training the unit is the clip norm, and `clip_bias` is None, as it changes in every round.
    `protected_fraction` is a record's mean chance to be protected, over the noise of stage 1. `undecided_fraction`
    counts records with a chance between 10 % and 90 %. Both are None without a threshold.
    """

    records: int
    rows: int
    largest_epsilon: float
    median_epsilon: float
    max_to_median: float
    gini: float
    quantile_gap: float
    guaranteed_fraction: float
    no_guarantee: str | None
    protected_fraction: float | None
    undecided_fraction: float | None
    weight_bias: float
    clip_bias: float | None


def write_dossier(source: Any, release: Release, path: Path) -> DossierSummary:
    """Write the dossier of a table and the release made from it: one row per record, in its order."""
    table, summary = dossier(source, release)
    notes = {"repsynth": _LABEL, "summary": msgspec.json.encode(summary).decode()}
    with beside(path, private=True) as temporary:
        pq.write_table(table.replace_schema_metadata(notes), temporary)
    return summary


def dossier(source: Any, release: Release) -> tuple[pa.Table, DossierSummary]:
    """Return the dossier and its summary.

    `realised_epsilon` holds for releases in which the record has at most the influence that it has in this one,
    `guaranteed_epsilon` for all releases, both at the release's δ. `protected_probability` is how often the record
    is above the threshold in 25 repetitions of stage 1 with fresh noise; without a threshold there is no such
    column. With [person], `person` numbers the persons and `counts` is what each row counts. Influence and losses
    are those of the person with all rows, repeated in each row.
    """
    opened = open_source(source)
    check_columns(opened, release.schema)
    data = list(LocalEngine.open(opened, release.schema).per_record())
    privacy = release.privacy
    score = _each(data, lambda records: release.score.of(records) / NAT)
    weight = _each(data, lambda records: release.weights.of(release.score.of(records)) / FULL)
    owners = _Owners.of(data, release.schema)
    influence = owners.together(_each(data, release.influence))
    realised = _epsilons(privacy.loss, influence, privacy.delta)
    eta = eta_share(release)
    guaranteed_weight = owners.together(guaranteed_weights(release, data, eta=privacy.delta * eta))
    guaranteed = _epsilons(privacy.loss, guaranteed_weight, privacy.delta * (1 - eta))
    guaranteed = np.minimum(guaranteed, privacy.epsilon)
    chance = protected_probability(release.plan, data)
    columns = {
        **owners.columns(),
        "score": score,
        "weight": weight,
        "influence": influence,
        **({} if privacy.mu is None else {"realised_mu": privacy.loss.mu_at(influence)}),
        "realised_epsilon": realised,
        "guaranteed_weight": guaranteed_weight,
        "guaranteed_epsilon": guaranteed,
        **({} if chance is None else {"protected_probability": chance}),
    }
    kept, clipped = _norms(data, release)
    once, counts = owners.once(), owners.counts
    losses, count = realised[once], max(float(counts.sum()), 1e-300)
    summary = DossierSummary(
        records=len(once),
        rows=len(score),
        largest_epsilon=float(losses.max(initial=0.0)),
        median_epsilon=float(np.median(losses)) if len(losses) else 0.0,
        max_to_median=max_to_median(losses),
        gini=gini(losses),
        quantile_gap=quantile_gap(losses),
        guaranteed_fraction=float(np.sum(guaranteed[once] < privacy.epsilon) / max(len(once), 1)),
        no_guarantee=why_none(release),
        protected_fraction=None if chance is None else float(counts @ chance / count),
        undecided_fraction=None if chance is None else float(counts @ (np.abs(chance - 0.5) < 0.4) / count),
        weight_bias=float(counts @ ((1 - weight) * kept) / count),
        clip_bias=None if clipped is None else float(counts @ clipped / count),
    )
    return pa.table(columns), summary


def protected_probability(plan: Plan, data: Sequence[Records], *, runs: int = RUNS) -> Floats | None:
    """Repeat stage 1 with fresh noise and return how often each record reaches the threshold of its label.

    Beyond the threshold, its weight is at most the outlier weight. Return None if the weights need no threshold.
    """
    if SCORES not in plan.charges:
        return None
    times = [np.zeros(records.rows) for records in data]
    for _ in range(runs):
        engine = LocalEngine(data, person=plan.schema.person)
        stage = measure_stage_one(Meter(engine, mu=plan.scale), plan, lambda _: None)
        assert stage.threshold is not None
        for records, found in zip(data, times, strict=True):
            found += stage.score.of(records) >= stage.threshold.value
    return np.concatenate([np.zeros(0), *times]) / runs


@dataclass(frozen=True)
class _Owners:
    """The person of each row, and what the row counts. Without [person], each row is a person."""

    places: Ints
    counts: Floats
    person: Person | None

    @classmethod
    def of(cls, data: Sequence[Records], schema: Schema) -> "_Owners":
        if schema.person is None:
            rows = sum(records.rows for records in data)
            return cls(np.arange(rows), np.ones(rows), None)
        whose = Whose.joined([records.whose for records in data if records.whose is not None])
        persons = np.unique(whose.places, return_inverse=True)[1]
        return cls(persons, whose.factors / UNITS, schema.person)

    def together(self, of_rows: Floats) -> Floats:
        """Return for each row the sum over its person's rows, as a share of the person's maximum; rounded up."""
        if self.person is None:
            return of_rows
        of_person = np.bincount(self.places, self.counts * of_rows) * (1 + 1e-9)
        return np.minimum(of_person / self.person.rows, 1.0)[self.places]

    def once(self) -> Ints:
        """Return one row of each person."""
        return np.unique(self.places, return_index=True)[1]

    def columns(self) -> dict[str, Any]:
        if self.person is None:
            return {}
        return {"person": self.places, "rows": np.bincount(self.places)[self.places], "counts": self.counts}


def _norms(data: list[Records], release: Release) -> tuple[Floats, Floats | None]:
    """Return the norm of each record's contribution after clipping, and what clipping removed.

    In a training both change in every round; then return the clip norm and None.
    """
    norms = [release.fit.norms(records) for records in data]
    if any(each is None for each in norms):
        return _each(data, lambda records: np.ones(records.rows)), None
    before, after = (np.concatenate([np.zeros(0), *(each[k] for each in norms if each)]) for k in (0, 1))
    return after, before - after


def max_to_median(losses: Floats) -> float:
    """Return the largest loss in units of the median one."""
    return float(losses.max() / np.median(losses)) if losses.size and np.median(losses) > 0 else 1.0


def gini(losses: Floats) -> float:
    """Return the Gini coefficient: 0 if all lose the same, near 1 if one record loses everything."""
    if not losses.size or losses.sum() <= 0:
        return 0.0
    ranks = 2 * np.arange(1, losses.size + 1) - losses.size - 1
    return float(max(ranks @ np.sort(losses) / (losses.size * losses.sum()), 0.0))


def quantile_gap(losses: Floats) -> float:
    """Return the distance between the 90 % and the 10 % quantile."""
    return float(np.subtract(*np.quantile(losses, [0.9, 0.1]))) if losses.size else 0.0


def _each(data: list[Records], function: Any) -> Floats:
    parts = [np.asarray(function(records), dtype=np.float64) for records in data]
    return np.concatenate(parts) if parts else np.zeros(0)


def _epsilons(loss: Loss, influence: Floats, delta: float) -> Floats:
    """Return the ε of each influence, rounded up to a fine grid.

    The grid contains that of the page's calculator, so the result is never above what the page shows.
    """
    if loss.trainings or not influence.size:  # a training has its own grid
        return loss.epsilon_at(influence, delta)
    grid = weight_grid(4 * FULL)
    above = np.minimum(np.searchsorted(grid, influence), len(grid) - 1)
    return loss.epsilon_at(grid, delta)[above]
