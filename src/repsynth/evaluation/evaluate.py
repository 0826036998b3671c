"""Compute every measure of a synthetic table. What cannot be measured is left out, with the reason."""

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy.special import bdtrc
from threadpoolctl import threadpool_limits

from repsynth.arrays import Ints
from repsynth.errors import ConfigError, DataError, shown
from repsynth.evaluation.export import FILE, STAMP, STEPS, Measure, compared, mean
from repsynth.evaluation.fidelity import (
    TRIPLES,
    by_original,
    category_coverage,
    copied,
    fraction_repeated,
    measure_associations,
    measure_distances,
    range_coverage,
)
from repsynth.evaluation.inputs import Inputs
from repsynth.evaluation.points import Fill, Points, points_of_records
from repsynth.evaluation.prediction import (
    Classifier,
    Coefficient,
    compare_coefficients,
    fit_boosting,
    fit_logistic,
    measure_propensity,
)
from repsynth.evaluation.subgroups import ExtraLosses, Subgroup, by_decile, by_subgroup
from repsynth.evaluation.verdicts import Verdict, evaluation_summary, verdicts_of
from repsynth.io.records import Records
from repsynth.privacy.formatting import Summarised, Summary
from repsynth.release.accuracy import Expected, expected_errors
from repsynth.release.release import Release

_MOST_LABELS = {"boosting": 10, "logistic regression": 50}
"""With more labels, these take too long."""

_NIST = "NIST's k-marginal score for k = 3 is 1000 × (1 − this), on coarser bins"

_TOO_RARE = 1e-4
"""If this many misses of the 95 % intervals are less likely than that, the table is not the release's."""


class Evaluation(Summarised, msgspec.Struct, frozen=True, kw_only=True):
    """The measures of a synthetic table. PRIVATE: computed from the training data."""

    publishable: bool = False
    stamp: str = STAMP
    compared_with: str = ""
    """With `[person]`, the real rows that the synthetic ones are compared with; empty if that is all of them."""
    rows: dict[str, int]
    label: str | None
    measures: tuple[Measure, ...]
    subgroups: tuple[Subgroup, ...]
    deciles: tuple[Subgroup, ...]
    coefficients: tuple[Coefficient, ...]
    associations: dict[str, dict[str, float]]
    """Of the real and of the synthetic table, by pair of columns."""
    left_out: dict[str, str]
    """What was not measured, with the reason."""
    warnings: tuple[str, ...]
    expected: Expected | None = None
    """What follows from the release alone. This part is public."""

    def __getitem__(self, name: str) -> Measure:
        return next(measure for measure in self.measures if measure.name == name)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the synthetic table can be used for."""
        return verdicts_of(self)

    @property
    def summary(self) -> Summary:
        return evaluation_summary(self)


def read_evaluation(folder: Path) -> Evaluation:
    """Read an evaluation that `repsynth evaluate` wrote, without the part that follows from the release alone."""
    try:
        plain = msgspec.json.decode((folder / FILE).read_bytes())
        plain["expected"] = None
        for parts in [*plain["associations"].values(), *(measure["breakdown"] for measure in plain["measures"])]:
            parts |= {name: math.nan for name, value in parts.items() if value is None}  # JSON has no NaN
        return msgspec.convert(plain, Evaluation)
    except (OSError, KeyError, TypeError, AttributeError, msgspec.MsgspecError):
        raise DataError(
            f"{shown(folder)}: holds no evaluation; run repsynth evaluate -o {shown(folder)} first"
        ) from None


def evaluate_tables(
    inputs: Inputs,
    release: Release | None = None,
    on_step: Callable[[str], None] = lambda step: None,
    skip: Collection[str] = (),
) -> Evaluation:
    """Compute all measures, without the steps to `skip`."""
    unknown = sorted(set(skip) - set(STEPS))
    if unknown:
        raise ConfigError(f"there is no step '{unknown[0]}' to skip; choose from {', '.join(STEPS)}")
    work = _Work(inputs, on_step, skip)
    # On a busy machine, several threads spin while they wait for each other and take many times as long.
    with threadpool_limits(1):
        measures = list(work.run())
    expected = None if release is None else expected_errors(release)
    if release is not None and expected is not None:
        measures.append(_intervals(expected, release, inputs.all_rows or inputs.train))
    return Evaluation(
        compared_with=inputs.compared_with,
        rows={name: table.rows for name, table in work.tables.items()},
        label=inputs.label,
        measures=tuple(measures),
        subgroups=tuple(work.subgroups),
        deciles=tuple(work.deciles),
        coefficients=tuple(work.coefficients),
        associations=work.associations,
        left_out=work.left_out,
        warnings=(*inputs.warnings, *_who_pays([*work.subgroups, *work.deciles])),
        expected=expected,
    )


def _intervals(expected: Expected, release: Release, train: Records) -> Measure:
    """Count over all bins how many 95 % intervals hold the real share."""
    inside = expected.covered(release, train)
    bins = {shares.column: len(shares.bins) for shares in expected.columns}
    whole = sum(bins.values())
    value = sum(inside[name] * count for name, count in bins.items()) / whole
    outside = whole - round(value * whole)
    return Measure(
        name="intervals of the release",
        what="fraction of the real shares that lie in the 95 % interval that follows from the release alone",
        value=value,
        best=0.95,
        said="as promised"
        if bdtrc(outside - 1, whole, 0.05) > _TOO_RARE
        else "less often than promised: is this the table it was made from?",
        breakdown=inside,
    )


def _who_pays(groups: list[Subgroup]) -> Iterator[str]:
    worse = sorted((g for g in groups if g.pays_more), key=lambda g: -(g.extra or 0.0))
    if worse:
        yield (
            "some pay more than others: a classifier trained on synthetic rows adds a larger squared error than "
            f"elsewhere in {_first([f'{g.name} ({g.extra:+.3f} ± {g.shown_error})' for g in worse])}"
        )
    few = sorted((g for g in groups if g.too_few), key=lambda g: g.fraction_synthetic / g.fraction_real)
    if few:
        parts = [(g.name, 100 * g.fraction_synthetic, 100 * g.fraction_real) for g in few]
        named = _first([f"{name} ({made:.1f} % of the rows for {real:.1f} %)" for name, made, real in parts])
        yield f"some are clearly fewer than in the real table: {named}"


def _first(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


class _Work:
    """Run the steps in order; each is announced before it starts."""

    def __init__(self, inputs: Inputs, on_step: Callable[[str], None], skip: Collection[str]) -> None:
        self.inputs, self.on_step, self.skip = inputs, on_step, skip
        tables = {"training": inputs.train, "synthetic": inputs.synthetic, "holdout": inputs.holdout}
        self.tables: dict[str, Records] = {name: table for name, table in tables.items() if table is not None}
        self.left_out: dict[str, str] = {}
        self.subgroups: list[Subgroup] = []
        self.deciles: list[Subgroup] = []
        self.coefficients: list[Coefficient] = []
        self.associations: dict[str, dict[str, float]] = {}
        self.losses: ExtraLosses | None = None

    def run(self) -> Iterator[Measure]:
        parts = (
            self._distances, self._associations, self._coverage, self._logistic, self._boosting,
            self._coefficients, self._propensity, self._outliers, self._subgroups,
        )  # fmt: skip
        for step, part in zip(STEPS, parts, strict=True):
            if step in self.skip:
                self.left_out[step] = "skipped, as asked"
                continue
            self.on_step(step)
            yield from part()

    def _distances(self) -> Iterator[Measure]:
        inputs = self.inputs
        made, floor, alone = (
            measure_distances(real, other, inputs.schema, triples=TRIPLES)
            for real, other in (
                (inputs.train, inputs.synthetic),
                inputs.halves,
                (inputs.train, inputs.independent),
            )
        )
        found: tuple[tuple[str, str, list[Mapping[Any, float]]], ...] = (
            ("one-way", "columns", [each.one_way for each in (made, floor, alone)]),
            ("two-way", "pairs of columns", [each.two_way for each in (made, floor, alone)]),
            ("three-way", "triples of columns", [each.three_way for each in (made, floor, alone)]),
        )
        for words, count, (parts, halves, shuffled) in found:
            if not parts:
                self.left_out[f"{words} distance"] = "there are not enough columns"
                continue
            single = words == "one-way"
            yield Measure(
                name=f"{words} distance",
                what=f"mean total variation distance of {len(parts):,} {count}",
                value=mean(parts.values()),
                best=0.0,
                floor=mean(halves.values()),
                independent=None if single else mean(shuffled.values()),
                breakdown=dict(parts) if single else _joined(parts),
                note=_NIST if words == "three-way" else "",
            )

    def _associations(self) -> Iterator[Measure]:
        inputs = self.inputs
        real, made, one, two, alone = (
            _joined(measure_associations(records, inputs.schema))
            for records in (inputs.train, inputs.synthetic, *inputs.halves, inputs.independent)
        )
        self.associations = {"real": real, "synthetic": made}
        apart = {pair: value for pair, value in _apart(real, made).items() if not math.isnan(value)}
        if not apart:
            self.left_out["associations"] = "no two columns vary in both tables"
            return
        yield Measure(
            name="associations",
            what="mean absolute difference of Pearson's r, correlation ratio or Cramér's V over the pairs",
            value=mean(apart.values()),
            best=0.0,
            floor=mean(_apart(one, two).values()),
            independent=mean(_apart(real, alone).values()),
            breakdown=apart,
        )

    def _coverage(self) -> Iterator[Measure]:
        inputs = self.inputs
        for name, what, cover, none in (
            ("range coverage", "fraction of each numeric column's real range", range_coverage, "numeric"),
            ("category coverage", "fraction of each column's real categories", category_coverage, "discrete"),
        ):
            made = cover(inputs.train, inputs.synthetic, inputs.every)
            value, floor = mean(made.values()), mean(cover(*inputs.halves, inputs.every).values())
            if math.isnan(value):
                self.left_out[name] = f"there is no {none} column that varies"
                continue
            what = f"mean {what} that is there"
            yield Measure(name=name, what=what, value=value, best=1.0, floor=floor, breakdown=made)
        repeated, usual = fraction_repeated(inputs.synthetic), fraction_repeated(inputs.train)
        yield Measure(
            name="repeated rows",
            what="fraction of the rows that are equal to another row of their table",
            value=repeated,
            best=usual,
            said=compared(repeated, usual, "in the real table"),
            best_is="as in the real table",
            floor=fraction_repeated(inputs.halves[0]),
            floor_is="a real half",
        )
        if inputs.holdout is None:
            self.left_out["copies of training rows"] = "needs a holdout, to tell how many there are by chance"
            return
        found, usual = (float(copied(other, inputs.train).mean()) for other in (inputs.synthetic, inputs.holdout))
        yield Measure(
            name="copies of training rows",
            what="fraction of the synthetic rows that are equal to a training row",
            value=found,
            best=usual,
            said=compared(found, usual, "among the holdout rows"),
            best_is="of the holdout rows",
            floor=float(copied(*inputs.halves).mean()),
            breakdown=by_original(inputs.synthetic, inputs.train),
            part_best=0.0,
            note="a copy is no proof of a leak: the release's ε bounds what any row can give away",
        )

    # Prediction

    def _points(self, learn: Records) -> tuple[Points, Points] | None:
        """Return the training and the held-out records as points, without those that have no label."""
        inputs, test = self.inputs, self.inputs.holdout
        assert test is not None
        labels, held = inputs.labels_of(learn), inputs.labels_of(test)
        learn, test = learn.take(labels >= 0), test.take(held >= 0)
        if len(np.unique(labels[labels >= 0])) < 2:
            return None
        fill = Fill.of(learn, inputs.features, like=inputs.train)
        return (
            points_of_records(learn, inputs.features, fill, labels[labels >= 0]),
            points_of_records(test, inputs.features, fill, held[held >= 0]),
        )

    def _why_no_prediction(self, name: str = "logistic regression") -> str | None:
        inputs = self.inputs
        if inputs.label is None:
            return "there is no label; name one with --label"
        if inputs.holdout is None:
            return "needs a holdout, real rows that the release was not made from"
        if not inputs.features.features:
            return "there is no column but the label"
        for table in ("training", "holdout"):
            if len(_labels(inputs.labels_of(self.tables[table]))) < 2:
                return f"the label '{inputs.label}' has fewer than two values in the {table} table"
        most = _MOST_LABELS[name]
        if len(_labels(inputs.labels_of(inputs.train))) > most:
            return f"the label has more than {most} values"
        return None

    def _predict(self, name: str, fit: Callable[[Points], Classifier]) -> Iterator[Measure]:
        why = self._why_no_prediction(name)
        if why is not None:
            self.left_out[f"prediction by {name}"] = why
            return
        inputs = self.inputs
        models: dict[str, Classifier] = {}
        areas = {"real": 0.5, "half": 0.5, "synthetic": 0.5}
        parts: dict[str, float] = {}
        tables = {"real": inputs.train, "half": inputs.halves[0], "synthetic": inputs.synthetic}
        for kind, learn in tables.items():
            if (both := self._points(learn)) is not None:
                models[kind] = fit(both[0])
                areas[kind] = models[kind].auroc(both[1])
                if kind == "synthetic":
                    parts = models[kind].by_label(both[1], inputs.label_names)
        if len(models) == len(tables) and (both := self._points(inputs.train)) is not None:
            self.losses = ExtraLosses.of(both[1], **models)
        yield Measure(
            name=f"prediction by {name}",
            what=f"AUROC on the holdout of {name} trained on synthetic rows, to predict {inputs.label}",
            value=areas["synthetic"],
            best=areas["real"],
            best_is="trained on real rows",
            floor=areas["half"],
            floor_is="trained on a real half",
            independent=0.5,  # there is nothing to learn
            breakdown=parts,
            part_best=1.0,
            note=""
            if "synthetic" in models
            else "the synthetic table has one label only: nothing can be learned from it",
        )

    def _logistic(self) -> Iterator[Measure]:
        return self._predict("logistic regression", fit_logistic)

    def _boosting(self) -> Iterator[Measure]:
        return self._predict("boosting", fit_boosting)

    def _coefficients(self) -> Iterator[Measure]:
        inputs, name = self.inputs, "coefficients"
        if inputs.label is None or not inputs.features.features:
            self.left_out[name] = "there is no label; name one with --label"
            return
        kinds = {kind: _labels(inputs.labels_of(records)) for kind, records in self.tables.items()}
        for kind in ("training", "synthetic"):
            if len(kinds[kind]) < 2:
                self.left_out[name] = f"the label '{inputs.label}' has fewer than two values in the {kind} table"
                return
        counts = np.bincount(inputs.labels_of(inputs.train)[inputs.labels_of(inputs.train) >= 0])
        positive = int(np.argmax(counts)) if len(kinds["training"]) > 2 else int(kinds["training"].max())

        def compare(one: Records, two: Records) -> list[Coefficient]:
            one, two = (records.take(inputs.labels_of(records) >= 0) for records in (one, two))
            label = [(inputs.labels_of(records) == positive).astype(np.float64) for records in (one, two)]
            return compare_coefficients(one, two, inputs.features, (label[0], label[1]))

        self.coefficients = compare(inputs.train, inputs.synthetic)
        overlaps = {each.term: each.overlap for each in self.coefficients}
        yield Measure(
            name=name,
            what="mean overlap of 95 % confidence intervals in a logistic regression of the label",
            value=mean(overlaps.values()),
            best=1.0,
            floor=mean(each.overlap for each in compare(*inputs.halves)),
            breakdown=overlaps,
        )

    def _propensity(self) -> Iterator[Measure]:
        inputs, schema = self.inputs, self.inputs.every
        made = measure_propensity(inputs.train, inputs.synthetic, schema, np.random.default_rng(2))
        floor = measure_propensity(*inputs.halves, schema, np.random.default_rng(3), columns=False)
        yield Measure(
            name="propensity",
            what="AUC of the better of two classifiers that tell real from synthetic rows",
            value=made.auc,
            best=0.5,
            floor=floor.auc,
            breakdown=made.by_column,
            part_best=0.0,
            note="by column: how much the AUC falls where it is shuffled",
        )

    # Who pays

    def _outliers(self) -> Iterator[Measure]:
        inputs, schema = self.inputs, self.inputs.every
        fill = Fill.of(inputs.train, schema)

        def points(records: Records) -> Points:
            return points_of_records(records, schema, fill, np.zeros(records.rows, dtype=np.int64))

        held = self._labelled_holdout() if self.losses else inputs.holdout
        reference, real = inputs.halves if held is None else (inputs.train, held)
        self.deciles = by_decile(
            points(reference), points(real), points(inputs.synthetic), self.losses, np.random.default_rng(4)
        )
        yield Measure(
            name="outliers",
            what="fraction of the synthetic rows that lie as far out as the top tenth of real ones",
            value=self.deciles[-1].fraction_synthetic,
            best=0.1,
            floor=self.deciles[-1].fraction_floor,
            floor_is="one real half by the other",
            said=compared(self.deciles[-1].fraction_synthetic, 0.1, "in a real table"),
            breakdown={group.value: group.fraction_synthetic for group in self.deciles},
            note="by decile of outlyingness, 10 the most outlying",
        )

    def _labelled_holdout(self) -> Records:
        holdout = self.inputs.holdout
        assert holdout is not None
        return holdout.take(self.inputs.labels_of(holdout) >= 0)

    def _subgroups(self) -> Iterator[Measure]:
        inputs = self.inputs
        held_out = (self._labelled_holdout(), self.losses) if self.losses else None
        tables = (inputs.train, inputs.synthetic, inputs.halves)
        self.subgroups = by_subgroup(*tables, inputs.every, held_out, inputs.label)
        if not self.subgroups:
            self.left_out["subgroups"] = "no column has few categories of many rows"
            return
        near = [group for group in self.subgroups if group.distance is not None]
        if near:
            worst = max(near, key=lambda group: (group.distance or 0.0) - (group.distance_floor or 0.0))
            yield Measure(
                name="worst subgroup, distance",
                what=f"one-way distance inside {worst.name}, the farthest beyond two real halves of a subgroup",
                value=worst.distance or 0.0,
                best=0.0,
                floor=worst.distance_floor,
                said=worst.name,
                breakdown={group.name: group.distance or 0.0 for group in near},
            )
        losing = [group for group in [*self.subgroups, *self.deciles] if group.extra is not None]
        if not losing:
            why = self._why_no_prediction() or "the synthetic table has one label only, or subgroups are small"
            self.left_out["prediction by subgroup"] = why
            return
        worst = max(losing, key=lambda group: (group.extra or 0.0) - 2 * (group.extra_standard_error or 0.0))
        yield Measure(
            name="worst subgroup, prediction",
            what=f"what a classifier loses in {worst.name} beyond what it loses among the others",
            value=worst.extra or 0.0,
            best=0.0,
            floor=worst.extra_floor,
            floor_is="trained on a real half",
            said=f"{worst.name}, ± {worst.shown_error}: "
            + ("clearly more than others" if worst.pays_more else "no subgroup clearly pays more"),
            breakdown={group.name: group.extra or 0.0 for group in losing},
            note="squared error of probabilities, over that of a classifier trained on real rows",
        )


def _labels(labels: Ints) -> Ints:
    return np.unique(labels[labels >= 0])


def _joined(parts: Mapping[Any, float]) -> dict[str, float]:
    return {" × ".join(names): value for names, value in parts.items()}


def _apart(one: dict[str, float], two: dict[str, float]) -> dict[str, float]:
    return {name: abs(value - two[name]) for name, value in one.items()}
