"""The guaranteed loss: bound a record's weight before stage 1 is run.

The weight of a record depends on the noise of stage 1. With probability at least 1 − η, its score is above one
level and the threshold of its label below another, so its weight is at most w̄. Then the record has
(ε(w̄), δ + η)-DP, whatever stage 1 releases (docs/theorems/guarantee.md has the proof). The bounds hold on the
table with and without the record. They are functions of the data, hence private.

The rows of one person have a bound each, which together bound the person's weight. The scores of all rows and the
thresholds of all their labels share η.

With the scores of an earlier release, the weight of a record is public before the run. Then w̄ is that weight and
η = 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import ColumnHistograms
from repsynth.engine.local import LocalEngine
from repsynth.io.records import UNITS, Records, Whose
from repsynth.privacy.events import GaussianEvent
from repsynth.release.release import Release
from repsynth.schema import Schema
from repsynth.scoring.base import NAT
from repsynth.scoring.rarity import SumTails
from repsynth.scoring.stage import SCORES
from repsynth.scoring.threshold import CAP, FEW, MOST_BINS, READABLE, bin_width, row_of, rows_of
from repsynth.scoring.transfer import weights_are_public
from repsynth.scoring.weights import FULL

ETA_SHARE = 1 / 2
"""The part of δ for η: half of δ costs little in ε."""

_CHANCES = 10.0 ** -np.arange(0.0, 24.0)  # cut-offs between counted records and summed chances; any are safe
_LOOKED_AT = 4  # edges whose numbers of records are bounded one by one; higher edges have no more records


def why_none(release: Release) -> str | None:
    """Return why there is no guarantee better than the total; None if there is one."""
    if release.schema.measured is not None:
        return "the schema was measured, so its noise decides the cells and with them the weights"
    if release.stage.borrowed is not None:
        return None  # every weight was public before the run
    if not release.plan.scorer.targets_outliers:
        return "the scores are random"
    if release.threshold is None or not release.plan.rule.by_distance:
        return "the weights do not depend on the distance from a threshold alone"
    if release.plan.max_lost_mass is not None:
        return "the lost mass decides how small weights are, and with it the noise of the scores"
    if release.plan.scorer.no_bounds is not None:
        return release.plan.scorer.no_bounds
    if release.schema.rows_per_person > 1:
        return "several rows of a person count, so that the number of those that do is not public"
    if release.plan.public_rows is None:
        return "the number of records was not declared public"
    if release.rows / _threshold_sigma(release) < READABLE:
        return "too few records for this budget: the threshold was fitted, not read"
    if release.score.tails(release.stage.coarse) is None:
        return "the scorer has no bounds before the run"
    return None


def eta_share(release: Release) -> float:
    """Return the part of δ for η: none where scores were public before the run."""
    return 0.0 if weights_are_public(release.stage.borrowed, release.schema) else ETA_SHARE


def guaranteed_weights(release: Release, data: Sequence[Records], *, eta: float) -> Floats:
    """Return for each record a weight that it exceeds with probability at most `eta` over the noise of stage 1.
    For a person, `eta` bounds the probability that any row does."""
    rows, schema = sum(records.rows for records in data), release.schema
    if weights_are_public(release.stage.borrowed, release.schema):
        weights = [release.weights.of(release.score.of(records)) / FULL for records in data]
        return np.concatenate([np.zeros(0), *weights])
    if why_none(release) is not None or rows == 0:
        return np.ones(rows)
    table, bins = LocalEngine(data, person=schema.person), release.stage.coarse.bins
    exact = table.sum(ColumnHistograms(bins)) / table.units
    tails = release.score.tails(replace(release.stage.coarse, counts=exact), schema.rows_per_person)
    assert tails is not None
    # Half of η for the record's own score, half for the threshold of its label; a person may have several of both.
    own, labels = _of_persons(data, schema)
    ends = np.cumsum([records.rows for records in data])[:-1]
    chances = np.split(eta / 2 / own, ends)
    low = np.concatenate([tails.lower(records, each) for records, each in zip(data, chances, strict=True)])
    if not np.isfinite(np.median(low)):
        return np.ones(rows)  # no bound holds with so small a chance
    above = low - _highest_thresholds(release, data, tails, low, eta / 2, labels)
    # Use the released table, so that weights are rounded as in the run.
    nearest = release.weights.start + np.floor(np.clip(above, -1.0, 1e6) * NAT).astype(np.int64)
    return release.weights.of(nearest) / FULL


def _of_persons(data: Sequence[Records], schema: Schema) -> tuple[Ints, Ints]:
    """Return for each row the number of rows of its person, and of different labels among them."""
    rows = sum(records.rows for records in data)
    owned = [records.whose for records in data if records.whose is not None]
    if not owned:
        return np.ones(rows, dtype=np.int64), np.ones(rows, dtype=np.int64)
    who = np.unique(Whose.joined(owned).places, return_inverse=True)[1]
    label = schema.label_column
    labels = np.zeros(rows, dtype=np.int64) if label is None else np.concatenate([row_of(r, label) for r in data])
    different = np.unique(np.stack([who, labels]), axis=1)[0]
    return np.bincount(who)[who], np.bincount(different)[who]


def _highest_thresholds(
    release: Release, data: Sequence[Records], tails: SumTails, low: Floats, chance: float, labels: Ints
) -> Floats:
    """Return for each record a level, in nats, that the threshold of its label exceeds with at most this chance.
    For a person with several `labels`, it is the chance that any of their thresholds does."""
    sigma, fraction = _threshold_sigma(release), release.plan.outlier_fraction
    width, label = bin_width(release.score.columns) / NAT, release.schema.label_column
    most = release.schema.rows_per_person
    # The threshold is above the score that half of the records exceed.
    levels = (math.floor(float(np.median(low)) / width) + np.arange(float(MOST_BINS))) * width
    assert release.threshold is not None
    # Whether each label has its own threshold follows from the noise and the public number of records.
    if label is None or release.threshold.shifts is None:
        nowhere = [np.zeros(records.rows, dtype=np.int64) for records in data]
        (reaching,) = _count(data, nowhere, 1, tails, levels, most)
        return np.full(len(low), reaching.highest(chance, fraction=fraction, sigma=sigma, rows=release.rows))
    groups = [row_of(batch, label) for batch in data]
    every = _count(data, groups, rows_of(label), tails, levels, most)
    row, found = np.concatenate(groups), np.empty(len(low))
    for several in np.unique(labels):
        some = labels == several
        found[some] = _highest_by_label(every, chance / several, fraction=fraction, sigma=sigma)[row[some]]
    return found


def _highest_by_label(every: "Sequence[_Reaching]", chance: float, *, fraction: float, sigma: float) -> Floats:
    """Return the level for each label."""
    pooled = _Reaching.together(every)
    cap = pooled.highest(chance, fraction=fraction * CAP, sigma=sigma)
    common = pooled.highest(0.45 * chance, fraction=fraction, sigma=sigma)
    own = [_own_or_common(label, common, chance, fraction=fraction, sigma=sigma) for label in every]
    return np.minimum(own, cap)


def _own_or_common(label: "_Reaching", common: float, chance: float, *, fraction: float, sigma: float) -> float:
    """Return the level for one label, which has its own threshold if its noisy number of records is large enough.

    Three things may fail: the noisy number of records, the label's own threshold, and the common one.
    """
    noise = -float(ndtri(0.05 * chance)) * sigma * math.sqrt(MOST_BINS) + MOST_BINS / 2
    own = label.highest(0.45 * chance, fraction=fraction, sigma=sigma)
    if label.records - label.most - noise >= FEW * sigma:
        return own
    return common if label.records + noise < FEW * sigma else max(own, common)


@dataclass(frozen=True)
class _Reaching:
    """Bounds on how many records score at or above each level, an edge of a score bin.

    `often` holds how many records reach a level with more than each of `_CHANCES`, and `seldom` the sum of the
    chances of the others: (chances, levels). Rows count by their factor. `most` is what the table may lack: a
    record, or all rows of a person. `histograms` is the number of noisy histograms that are added up.
    """

    levels: Floats
    records: float
    often: Floats
    seldom: Floats
    most: float = 1.0
    histograms: int = 1

    @classmethod
    def together(cls, parts: "Sequence[_Reaching]") -> "_Reaching":
        """Return the bounds for several histograms, added up."""
        return cls(
            parts[0].levels,
            sum(part.records for part in parts),
            np.sum([part.often for part in parts], axis=0),
            np.sum([part.seldom for part in parts], axis=0),
            parts[0].most,
            len(parts),
        )

    def at_most(self, chance: float) -> Floats:
        """Return for each level a number of records that is exceeded with at most this chance. Markov's inequality
        bounds the number of those that reach it seldom."""
        found: Floats = np.min(self.often + self.seldom / chance, axis=0)
        return found

    def highest(self, chance: float, *, fraction: float, sigma: float, rows: float | None = None) -> float:
        """Return a level that a threshold read off the noisy histogram exceeds with at most this chance.

        It exceeds a level between two edges only if the interpolated noisy number of records above exceeds the
        wanted one, or if the number at a higher edge reaches it. The wanted number is a fraction of `rows`, or of
        the noisy total, whose noise is partly the same.
        """
        number = self.at_most(chance / 2 / _LOOKED_AT)
        largest = 1.0 if rows is not None else max(1 - fraction, fraction)  # factor of a bin's noise
        noise = largest * sigma * math.sqrt(MOST_BINS * self.histograms)
        rounding = largest * MOST_BINS * self.histograms / 2
        room = fraction * (self.records - self.most if rows is None else rows) - rounding
        for k in range(len(self.levels) - _LOOKED_AT):
            above = number[k + 1 : k + _LOOKED_AT]
            several = np.append(np.ones(len(above) - 1), MOST_BINS)  # no edge above has more records
            left = chance / 2 - float(several @ ndtr((above - room) / noise))
            if left <= 0 or above[0] >= self.records - self.most:
                continue
            wanted = room + noise * float(ndtri(left))
            if above[0] <= wanted:
                part = max(number[k] - wanted, 0.0) / max(number[k] - above[0], 1e-9)
                return float(self.levels[k] + min(part, 1.0) * (self.levels[k + 1] - self.levels[k]))
        return math.inf


def _count(
    data: Sequence[Records], groups: Sequence[Ints], rows: int, tails: SumTails, levels: Floats, most: float
) -> list[_Reaching]:
    """Return the bounds for the records of each of `rows` groups."""
    records = np.zeros(rows)
    often, seldom = (np.zeros((rows, len(_CHANCES), len(levels))) for _ in range(2))
    for batch, group in zip(data, groups, strict=True):
        chances = tails.exceed(batch, levels)
        counts = np.ones(batch.rows) if batch.whose is None else batch.whose.factors / UNITS
        for row in range(rows):
            own, count = chances[group == row], counts[group == row]
            records[row] += count.sum()
            for k, chance in enumerate(_CHANCES):
                often[row, k] += count @ (own > chance)
                seldom[row, k] += count @ np.where(own > chance, 0.0, own)
    return [_Reaching(levels, float(records[row]), often[row], seldom[row], most) for row in range(rows)]


def _threshold_sigma(release: Release) -> float:
    (event,) = [e for e in release.events if isinstance(e, GaussianEvent) and e.name == SCORES]
    return event.sigma
