"""Judge what a synthetic table can be used for, purpose by purpose.

A measure's gap is its distance from the best value. Its floor is the gap of two halves of the real table, which is
what sampling alone does. A table is usable for a purpose if the gap is within a few floors, or small in itself.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from repsynth.evaluation.export import Measure, show
from repsynth.privacy.formatting import Summary

if TYPE_CHECKING:
    from repsynth.evaluation.evaluate import Evaluation

_FLOORS = 2.0
_RULES = {
    "shares": (("one-way distance",), 0.05),
    "pairs of columns": (("two-way distance",), 0.1),
    "prediction": (("prediction by logistic regression", "prediction by boosting"), 0.05),
    "regression coefficients": (("coefficients",), 0.3),
    "subgroups": (("worst subgroup, distance",), 0.1),
}
"""The measures of each purpose, and the gap that is small in itself."""

_HALFWAY = 0.5
_LEARNABLE = 0.55
"""AUROC of a classifier trained on real rows, below which there is nothing to predict."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a table is usable for a purpose; None if that is not known. PRIVATE."""

    purpose: str
    usable: bool | None
    value: float | None = None
    floor: float | None = None
    best: float | None = None
    reason: str

    @property
    def words(self) -> str:
        return {True: "usable", False: "not usable", None: "not known"}[self.usable]


def verdicts_of(found: "Evaluation") -> tuple[Verdict, ...]:
    """Return the verdicts, one for each purpose."""
    measured = {measure.name: measure for measure in found.measures}
    verdicts = []
    for purpose, (names, small) in _RULES.items():
        known = [measured[name] for name in names if name in measured]
        if known:
            # An analyst can choose the better of two classifiers.
            verdicts.append(_judge(purpose, min(known, key=_gap), small, found))
        else:
            verdicts.append(Verdict(purpose=purpose, usable=None, reason=_why_not(found, names)))
    return tuple(verdicts)


def evaluation_summary(found: "Evaluation") -> Summary:
    """Return what the table can be used for, in one sentence, and the verdict for each purpose."""
    parts, verdicts = [], found.verdicts
    for usable, before in ((True, "usable for"), (False, "not usable for"), (None, "not known:")):
        names = [verdict.purpose for verdict in verdicts if verdict.usable is usable]
        if names:
            parts.append(f"{before} {', '.join(names)}")
    facts = ((v.purpose.capitalize(), f"{v.words} ({v.reason})") for v in verdicts)
    return Summary(f"The synthetic table is {'; '.join(parts)}.", tuple(facts))


def _gap(measure: Measure, value: float | None = None) -> float:
    """Return the distance from the best. To predict better than from real rows is no fault."""
    away = measure.best - (measure.value if value is None else value)
    return max(away, 0.0) if measure.name.startswith("prediction") else abs(away)


def _judge(purpose: str, measure: Measure, small: float, found: "Evaluation") -> Verdict:
    gap, floor = _gap(measure), 0.0 if measure.floor is None else _gap(measure, measure.floor)
    limit = max(small, _FLOORS * floor)
    usable: bool | None = gap <= limit
    reason = f"usable up to {show(limit)}" if measure.best == 0 else f"usable from {show(measure.best - limit)} on"
    if purpose == "pairs of columns" and measure.independent is not None:
        alone = max(_gap(measure, measure.independent), 1e-12)
        reason = f"{100 * gap / alone:.0f} % of the way to independent columns"
        usable = usable and gap < _HALFWAY * alone
        if not usable and floor >= _HALFWAY * alone and gap <= limit:
            usable, reason = None, "too few rows: two real halves are as far apart as independent columns"
    elif purpose == "prediction":
        usable = None if measure.best < _LEARNABLE else usable
        reason = "the real table predicts little" if usable is None else _by_name(measure)
    elif purpose == "subgroups":
        usable, reason = _subgroups(bool(usable), measure, found)
    numbers = {"value": measure.value, "floor": measure.floor, "best": measure.best}
    return Verdict(purpose=purpose, usable=usable, reason=reason, **numbers)


def _by_name(measure: Measure) -> str:
    return f"{measure.name.removeprefix('prediction by ')} loses {show(_gap(measure))} AUROC"


def _subgroups(near: bool, measure: Measure, found: "Evaluation") -> tuple[bool, str]:
    paying = [group.name for group in [*found.subgroups, *found.deciles] if group.pays_more]
    few = [group.name for group in [*found.subgroups, *found.deciles] if group.too_few]
    parts = [f"{len(few)} too small ({few[0]})"] if few else []
    parts += [f"{len(paying)} predicted worse ({paying[0]})"] if paying else []
    if not near:
        parts.append(f"{measure.said} is far off")
    return not parts, "; ".join(parts) or "none stands out"


def _why_not(found: "Evaluation", names: Sequence[str]) -> str:
    """Return why none of the measures is there: they, or the step that computes them, were left out."""
    steps = [name.split(" by ")[-1] for name in names]
    steps += ["distances", "two-way and three-way distance"] if "way distance" in names[0] else []
    steps += ["subgroups"] if "subgroup" in names[0] else []
    return next((found.left_out[key] for key in (*names, *steps) if key in found.left_out), "not computed")
