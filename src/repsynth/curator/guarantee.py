"""The guaranteed loss: a bound on a record's weight that holds before stage 1 is run.

The realised loss of a record holds for all sets of releases in which it weighs no more than in the one at hand;
its weight depends on stage 1's noise. Outside of an event of probability η, the record's score is at least some
level and the threshold of its label at most another, so the record's weight is at most w̄. The record then has
(ε(w̄), δ + η)-DP, whatever stage 1 releases. All bounds hold on the table with and without the record. They are
private: functions of the data, and so statements about this table and its neighbour without the record only.

Where several rows may be one person's, each of them has a bound of its own, and all of these bound the person's
weight; what may fail, the score of any of them and the threshold of any of their labels, shares the chance.

Where scores and threshold come from an earlier release, the weight of a record is a public function of it before
the run. Then w̄ is the weight itself and η = 0: the realised loss of a record of that weight is guaranteed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtr, ndtri

from repsynth.arrays import Floats, Ints
from repsynth.columns.adaptive_histogram import ColumnHistograms
from repsynth.data.records import UNITS, Records, Whose
from repsynth.engines.local import LocalEngine
from repsynth.privacy.events import GaussianEvent
from repsynth.release.release import Release
from repsynth.schema import Schema
from repsynth.scoring.base import NAT, Tails
from repsynth.scoring.stage import SCORES
from repsynth.scoring.threshold import CAP, FEW, MOST_BINS, READABLE, bin_width, row_of, rows_of
from repsynth.scoring.weights import FULL

ETA_SHARE = 1 / 2
"""The part of δ for the chance η that the noise exceeds its bounds: half of δ costs little in ε."""

_CHANCES = 10.0 ** -np.arange(0.0, 24.0)  # records that reach a level less often go into a sum of chances
_LOOKED_AT = 4  # edges whose numbers of records are bounded each; higher edges have no more records


def why_none(release: Release) -> str | None:
    """Why no guarantee better than the total can be given, in words; None where it can."""
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
        return "too few records for this budget: some histogram is not clear"
    return None


def eta_share(release: Release) -> float:
    """The part of δ for the chance that a guarantee fails: none where scores were public before the run."""
    return 0.0 if release.stage.borrowed is not None else ETA_SHARE


def guaranteed_weights(release: Release, data: Sequence[Records], *, eta: float) -> Floats:
    """For each record a weight that it exceeds with probability at most `eta`, whatever stage 1 draws. Of persons,
    that is the probability that any of their rows does."""
    rows, schema = sum(records.rows for records in data), release.schema
    if release.stage.borrowed is not None:
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
        return np.ones(rows)  # so small a chance is beyond what can be told
    above = low - _highest_thresholds(release, data, tails, low, eta / 2, labels)
    # The released table itself, so that every rounding of the weights is the one that will be used.
    nearest = release.weights.start + np.floor(np.clip(above, -1.0, 1e6) * NAT).astype(np.int64)
    return release.weights.of(nearest) / FULL


def _of_persons(data: Sequence[Records], schema: Schema) -> tuple[Ints, Ints]:
    """For each row how many its person has, and how many labels are among these; one, where rows are persons."""
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
    release: Release, data: Sequence[Records], tails: Tails, low: Floats, chance: float, labels: Ints
) -> Floats:
    """For each record a level, in nats, that the threshold of its label exceeds with at most this chance; where it
    belongs to somebody with records of several `labels`, the chance is that any of theirs does."""
    sigma, fraction = _threshold_sigma(release), release.plan.outlier_fraction
    width, label = bin_width(release.score.columns) / NAT, release.schema.label_column
    most = release.schema.rows_per_person
    # No threshold worth knowing lies below what half of the records are sure to score.
    levels = (math.floor(float(np.median(low)) / width) + np.arange(float(MOST_BINS))) * width
    assert release.threshold is not None
    # Whether each label has a threshold of its own follows from the noise and the public number of records.
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
    """The same for each label."""
    pooled = _Reaching.together(every)
    cap = pooled.highest(chance, fraction=fraction * CAP, sigma=sigma)
    common = pooled.highest(0.45 * chance, fraction=fraction, sigma=sigma)
    own = [_own_or_common(label, common, chance, fraction=fraction, sigma=sigma) for label in every]
    return np.minimum(own, cap)


def _own_or_common(label: "_Reaching", common: float, chance: float, *, fraction: float, sigma: float) -> float:
    """The same for one label: the threshold of its own, where it seems to have enough records, or that of all.

    Three things may fail: the label's noisy number of records, its own threshold, and the common one.
    """
    noise = -float(ndtri(0.05 * chance)) * sigma * math.sqrt(MOST_BINS) + MOST_BINS / 2
    own = label.highest(0.45 * chance, fraction=fraction, sigma=sigma)
    if label.records - label.most - noise >= FEW * sigma:
        return own
    return common if label.records + noise < FEW * sigma else max(own, common)


@dataclass(frozen=True)
class _Reaching:
    """How many records may score at or above each of the levels, edges of score bins one width apart.

    `records` is their number, `often` how many reach a level with more than each of `_CHANCES`, and `seldom` the
    sum of the chances of the others: chances × levels. Where several rows may be one person's, each is counted for
    what it counts. `most` is what the table may lack: a record, or all rows of a person. `histograms` is how many
    noisy ones they are counted in.
    """

    levels: Floats
    records: float
    often: Floats
    seldom: Floats
    most: float = 1.0
    histograms: int = 1

    @classmethod
    def together(cls, parts: "Sequence[_Reaching]") -> "_Reaching":
        """Those of several histograms that are added up."""
        return cls(
            parts[0].levels,
            sum(part.records for part in parts),
            np.sum([part.often for part in parts], axis=0),
            np.sum([part.seldom for part in parts], axis=0),
            parts[0].most,
            len(parts),
        )

    def at_most(self, chance: float) -> Floats:
        """For each level a number of records that more do not reach, but for this chance: Markov's inequality
        bounds how many of those do that reach it seldom."""
        found: Floats = np.min(self.often + self.seldom / chance, axis=0)
        return found

    def highest(self, chance: float, *, fraction: float, sigma: float, rows: float | None = None) -> float:
        """A level that a threshold read off the noisy histogram exceeds with at most this chance.

        It exceeds a level between two edges only if the noisy numbers of records at or above those, taken in
        proportion, exceed the wanted one, or if that of a higher edge reaches it. `rows` is their public number,
        where that says how many are wanted; else the noisy total does, whose noise is in part the same.
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
    data: Sequence[Records], groups: Sequence[Ints], rows: int, tails: Tails, levels: Floats, most: float
) -> list[_Reaching]:
    """The same for the records of each of so many groups."""
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
