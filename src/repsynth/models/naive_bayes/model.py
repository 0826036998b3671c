"""Naive Bayes as a model of stage 2: one measurement, `sums`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from repsynth.models.base import Hooks, Kept, Made, Model, Share

if TYPE_CHECKING:
    from repsynth.arrays import Floats, Ints
    from repsynth.data.records import Records
    from repsynth.mechanism.meter import Meter
    from repsynth.models.naive_bayes.fit import NaiveBayesSampler
    from repsynth.models.naive_bayes.statistic import Ranks, WeightedSums
    from repsynth.models.uncertainty import ModelErrors
    from repsynth.schema import Schema
    from repsynth.scoring.base import Arrays
    from repsynth.scoring.stage import RunPlan, StageOne

SUMS = "sums"


class NaiveBayes(Model, frozen=True):
    """Columns that are independent given the label: for few records."""

    name: ClassVar[str] = "naive-bayes"
    purposes: ClassVar[Mapping[str, str]] = {SUMS: "weighted sums by label"}

    def cautions(self, schema: "Schema") -> tuple[str, ...]:
        if schema.label_column is not None or len(schema.learned) == 1:
            return ()
        return (
            f"without a label, {self.name} draws every column independently of all others; declare a label in the "
            "schema, or use the model mst",
        )

    def shares(self, schema: "Schema") -> tuple[Share, ...]:
        return (Share(SUMS, 1.0),)

    def sensitivity(self, schema: "Schema", name: str) -> float:
        """In units of u; with equal influence it is smaller."""
        from repsynth.models.naive_bayes.statistic import planned_sensitivity

        return planned_sensitivity(schema)

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "NaiveBayesFit":
        """Outliers are summed up apart where their sums stand above the noise."""
        from repsynth.mechanism.meter import sigma_for
        from repsynth.models.naive_bayes.statistic import choose_statistic

        hooks.on_step(SUMS)
        charge = plan.charges[SUMS]
        statistic = choose_statistic(stage, charge.per_row, equalize=plan.rule.equalizes)
        return NaiveBayesFit(
            stage,
            statistic,
            meter.measure(statistic, mu=charge.mu),
            sigma_for(statistic.sensitivity, charge.per_row),
        )

    def load(self, kept: Kept) -> "NaiveBayesFit":
        from repsynth.models.naive_bayes.statistic import Contribution, WeightedSums, families_by_place
        from repsynth.storage.checks import flag, integer, ints, require

        stage, arrays, described = kept.stage, kept.arrays, kept.described
        schema, threshold = stage.schema, stage.threshold
        constant, clip = (integer(described, name, 1, 2**30 - 1) for name in ("constant", "clip"))
        split = flag(described, "split")
        require(not split or threshold is not None, "it is split without a threshold")
        require(not split or stage.outlier_weight > 0.01, "it is split, and its outliers weigh nothing")
        groups = families_by_place(schema, stage.histograms)
        cells = [groups[j].count if j in groups else c.size + c.missing for j, c in enumerate(schema.discrete)]
        contribution = Contribution(
            discrete=schema.discrete,
            numeric=schema.numeric,
            offsets=tuple(ints(arrays[f"offset_{i}"], count, most=2**20) for i, count in enumerate(cells)),
            constant=constant,
            clip=clip,
            ranks=_read_ranks(stage, arrays),
            groups=groups,
        )
        split_at = threshold.value if threshold and split else None
        statistic = WeightedSums(contribution, stage.score, stage.weights, schema.label_column, split_at=split_at)
        noisy = ints(arrays["sums"], math.prod(statistic.shape), most=2**62)
        return NaiveBayesFit(stage, statistic, noisy, kept.sigmas[SUMS])


@dataclass(frozen=True)
class NaiveBayesFit:
    """The public function of a record that was summed up, and the noisy result."""

    stage: "StageOne"
    statistic: "WeightedSums"
    noisy: "Ints"
    sigma: float

    def kernels(self, *, choices: bool = True) -> "dict[str, WeightedSums]":
        return {SUMS: self.statistic}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: "Records") -> "tuple[Floats, Floats]":
        """In units of u."""
        return self.statistic.contribution.norms(records)

    def label_masses(self) -> "tuple[Floats, float] | None":
        """From the constant entry of u: a clipped record counts for as much less."""
        if self.statistic.label is None:
            return None
        from repsynth.models.naive_bayes.statistic import from_label_code
        from repsynth.scoring.weights import FULL

        labels, unit = self.statistic.labels, self.statistic.contribution.constant * FULL
        strata = from_label_code(self.noisy.reshape(self.statistic.shape) / unit)
        noise = self.sigma / unit * math.sqrt(self.statistic.strata * (1 + 3 / labels)) / (2 * labels)
        return strata[:, :, 0].sum(axis=0), noise

    def errors(self) -> "ModelErrors":
        """Of the tables of label and discrete column that the sums hold."""
        from repsynth.models.naive_bayes.statistic import GRID, UNIT, from_label_code
        from repsynth.models.uncertainty import ModelErrors, table_errors

        label, contribution = self.statistic.label, self.statistic.contribution
        if label is None:
            return ModelErrors()
        sums = from_label_code(self.noisy.reshape(self.statistic.shape) / GRID).sum(axis=0)
        labels = self.statistic.labels
        noise = self.sigma / GRID * math.sqrt(self.statistic.strata * (1 + 3 / labels)) / (2 * labels)
        mass = np.maximum(sums[:, 0] * UNIT / contribution.constant, 1.0)[:, None]
        tables, start = [], contribution.blocks.one_hot.start
        for column, offset in zip(contribution.discrete, contribution.offsets, strict=True):
            counts = sums[:, start : start + len(offset)] + mass * (offset / UNIT)
            variances = np.broadcast_to(noise**2 * (1 + (offset / contribution.constant) ** 2), counts.shape)
            tables.append(table_errors((label.name, column.name), SUMS, counts, variances, clipped=True))
            start += len(offset)
        return ModelErrors(tuple(tables), ())

    def sampler(self) -> "NaiveBayesSampler":
        from repsynth.models.naive_bayes.fit import fit_naive_bayes

        return fit_naive_bayes(
            self.stage.schema,
            self.stage.histograms,
            self.statistic,
            self.noisy,
            sigma=self.sigma,
            outlier_weight=self.stage.outlier_weight,
        )

    def dump(self) -> "tuple[dict[str, Any], Arrays]":
        contribution = self.statistic.contribution
        split = self.statistic.split_at is not None
        return {"constant": contribution.constant, "clip": contribution.clip, "split": split}, {
            "sums": self.noisy,
            **{f"offset_{i}": offset for i, offset in enumerate(contribution.offsets)},
            **{f"z_{i}": ranks.z for i, ranks in enumerate(contribution.ranks)},
        }


def _read_ranks(stage: "StageOne", arrays: "Arrays") -> "tuple[Ranks, ...]":
    from repsynth.models.naive_bayes.statistic import FARTHEST, Ranks
    from repsynth.storage.checks import floats, require

    found = []
    for j, column in enumerate(stage.schema.numeric):
        bins = stage.histograms.bins[stage.schema.learned.index(column)]
        z = np.array(floats(arrays[f"z_{j}"], bins.numbers))
        require(bool(np.all(np.abs(z) <= FARTHEST)), "a z-score is out of range")
        found.append(Ranks(bins, z))
    return tuple(found)
