"""Weight rules: public functions from scores to weights.

A rule becomes a table over steps of 1/64 nat, in units of 1/4096. A step holds the smallest weight that the rule
gives there, so rounding never raises a weight.
"""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from msgspec import Meta

from repsynth.arrays import Floats, Ints
from repsynth.errors import ConfigError
from repsynth.knobs import Knobs, Registry
from repsynth.scoring.base import NAT

FULL = 2**12
"""Units in a weight of 1."""

STEP = NAT // 64
"""Score units in a step of the table of weights."""

_STEPS = 64 * 64  # of the table: 64 nats; higher scores have the last weight
_SPANS = (0.0, 1 / 64, 0.3, 1.0, 2.7, 8.0, 19.3, 40.0, 97.0)  # spans at which a custom rule is tried


class Rule(Knobs, frozen=True):
    """A weight rule; the default is weight 1 for every record. A new rule is one class and one entry in `RULES`.

    `above` is the score minus the threshold, `span` the threshold minus the lowest possible score, both in nats.
    Weights never rise with the score.
    """

    uses_threshold: ClassVar[bool] = True
    """Whether the rule needs a threshold."""
    from_lowest: ClassVar[bool] = False
    """Whether weights fall from the lowest possible score on, not from the threshold on."""
    by_distance: ClassVar[bool] = False
    """Whether a weight depends only on the distance from the threshold, so that it can be guaranteed."""
    strength: ClassVar[str | None] = None
    """The setting that `of_strength` changes, if there is one."""
    equalizes: ClassVar[bool] = False
    """Whether the model clips all records to the same influence."""

    def weight(self, above: Floats, span: float) -> Floats:
        """Return the weights at these scores."""
        return np.ones_like(above)

    def at_most(self, weight: float) -> "Rule":
        """Return the rule to use under a ceiling on the weights above the threshold: most rules do not change."""
        return self

    def of_strength(self, strength: float) -> "Rule":
        """Return the rule of this strength, from 0 (weights near 1) to 1 (the smallest weights).

        A larger strength must not raise any weight.
        """
        raise TypeError(f"{type(self).__name__} has no strength")


class Uniform(Rule, frozen=True):
    """Weight 1 for every record: plain differential privacy, the baseline.

    >>> Uniform().weight(np.array([-1.0, 9.0]), span=8.0).tolist()
    [1.0, 1.0]
    """

    name: ClassVar[str] = "uniform"
    uses_threshold: ClassVar[bool] = False


class Equalize(Rule, frozen=True):
    """The same influence for every record: the model clips all contributions to the smallest one.

    >>> Equalize().uses_threshold
    False
    """

    name: ClassVar[str] = "equalize"
    uses_threshold: ClassVar[bool] = False
    equalizes: ClassVar[bool] = True


class HingeExp(Rule, frozen=True):
    """1 up to the threshold, then exp(−γ × nats above it).

    >>> HingeExp(gamma=1.0).weight(np.array([-1.0, 1.0]), span=8.0).round(3).tolist()
    [1.0, 0.368]
    """

    name: ClassVar[str] = "hinge-exp"
    by_distance: ClassVar[bool] = True
    strength: ClassVar[str | None] = "gamma"
    gamma: Annotated[float, Meta(gt=0, le=100, description="how sharply weights fall above the threshold")] = 1.0

    def weight(self, above: Floats, span: float) -> Floats:
        return np.exp(-self.gamma * np.maximum(above, 0.0))

    def of_strength(self, strength: float) -> "HingeExp":
        """Return the rule with γ from 10⁻⁴ to 100."""
        return HingeExp(float(10 ** (6 * strength - 4)))


class Cap(Rule, frozen=True):
    """τ / (s + τ), where the score s and the threshold τ are measured from the lowest possible score.

    The most ordinary record has weight 1, a record at the threshold 1/2.

    >>> Cap().weight(np.array([-8.0, 0.0, 8.0]), span=8.0).round(3).tolist()
    [1.0, 0.5, 0.333]
    """

    name: ClassVar[str] = "cap"
    from_lowest: ClassVar[bool] = True

    def weight(self, above: Floats, span: float) -> Floats:
        tau = max(span, 1e-6)
        return tau / (np.maximum(above + span, 0.0) + tau)


class Targeted(Rule, frozen=True):
    """1 up to the threshold and one smaller weight above it: all outliers have the same loss (REPS, Prop. 1).

    A requested outlier ε determines the weight; the default is 1/5.

    >>> Targeted().weight(np.array([-1.0, 1.0, 9.0]), span=8.0).tolist()
    [1.0, 0.2, 0.2]
    """

    name: ClassVar[str] = "targeted"
    by_distance: ClassVar[bool] = True
    strength: ClassVar[str | None] = "outlier_weight"
    outlier_weight: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="weight of every record above the threshold (default 0.2, up to 0.5 for few public rows)",
        ),
    ] = 0.2

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 0, self.outlier_weight, 1.0)

    def at_most(self, weight: float) -> "Targeted":
        return Targeted(weight)

    def of_strength(self, strength: float) -> "Targeted":
        return Targeted(1.0 - strength)


class Removal(Rule, frozen=True):
    """1 up to the threshold, 0 above it: outliers are removed. An ablation of `Targeted`.

    >>> Removal().weight(np.array([-1.0, 1.0]), span=8.0).tolist()
    [1.0, 0.0]
    """

    name: ClassVar[str] = "removal"
    by_distance: ClassVar[bool] = True

    def weight(self, above: Floats, span: float) -> Floats:
        return np.where(above > 0, 0.0, 1.0)


RULES: Registry[Rule] = Registry("weight rule", [Targeted, HingeExp, Cap, Equalize, Uniform, Removal])


@dataclass(frozen=True)
class WeightFunction:
    """The released weight of every score: `table` from score `start` on, 1 below it.

    >>> weights = WeightFunction(start=0, table=np.array([FULL // 2]))
    >>> weights.of(np.array([-1, 0, 10 * NAT])).tolist()
    [4096, 2048, 2048]
    """

    start: int
    table: Ints

    @property
    def weighted(self) -> bool:
        """Whether some weights are below 1."""
        return bool(self.table.min() < FULL)

    def of(self, scores: Ints) -> Ints:
        """Return the weight of each score, in units of 1/FULL; it never rises with the score."""
        step = np.minimum((scores - self.start) // STEP, len(self.table) - 1)
        return np.where(step < 0, FULL, self.table[np.maximum(step, 0)])

    def is_about(self, other: "WeightFunction") -> bool:
        """Return whether it is the same function up to one unit, because processors round differently."""
        if abs(self.start - other.start) > 1 or max(len(self.table), len(other.table)) > _STEPS:
            return False
        starts = np.arange(_STEPS) * STEP
        return bool(np.all(np.abs(self.of(self.start + starts) - other.of(other.start + starts)) <= 1))

    def or_larger(self, other: "WeightFunction") -> "WeightFunction":
        """Return the larger weight at every score of two similar functions, so that a loss is never understated.

        >>> one, other = WeightFunction(0, np.array([7, 5])), WeightFunction(0, np.array([7, 6]))
        >>> one.or_larger(other).table.tolist()
        [7, 6]
        """
        starts = np.arange(_STEPS) * STEP
        table = np.maximum(self.of(self.start + starts), other.of(other.start + starts))
        return WeightFunction(max(self.start, other.start), _without_tail(table))


def make_weights(rule: Rule, *, threshold: int, lowest: int, ceiling: float = 1.0) -> WeightFunction:
    """Return the weight function of a rule; `ceiling` bounds the weights from the threshold on.

    >>> weights = make_weights(HingeExp(gamma=1.0), threshold=5 * NAT, lowest=0, ceiling=0.25)
    >>> (weights.of(np.array([4, 5, 7]) * NAT) / FULL).round(3).tolist()
    [1.0, 0.25, 0.133]
    """
    start = min(lowest, threshold) if rule.from_lowest else threshold
    ends = start + (np.arange(_STEPS) + 1) * STEP
    ends[-1] = start + 2**50  # the last step has all higher scores
    weights = rule.weight((ends - threshold) / NAT, max(threshold - lowest, 0) / NAT)
    capped = np.where(ends > threshold, np.minimum(weights, ceiling), weights)
    # NaN from a rule counts as weight 0.
    table = np.floor(np.clip(np.nan_to_num(capped, nan=0.0), 0.0, 1.0) * FULL).astype(np.int64)
    table = np.minimum.accumulate(table)  # every bound on the loss relies on this
    return WeightFunction(start=int(start), table=_without_tail(table))


def check_rule(rule: Rule) -> None:
    """Refuse a rule whose weights are outside 0 to 1 or rise with the score, at any strength or ceiling.

    >>> check_rule(HingeExp())
    """
    made = [rule, rule.at_most(0.3), rule.at_most(0.01)]
    if rule.strength is not None:
        made += [rule.of_strength(strength) for strength in np.linspace(0.0, 1.0, 17).tolist()]
    for each in made:
        why = fault_of(RULES.make(each))
        if why is not None:
            raise ConfigError(f"the weight rule {rule.name} {why}; nothing was spent")


def fault_of(rule: Rule) -> str | None:
    """Return what is wrong with a rule, as words that follow its name, or None.

    >>> fault_of(Cap())
    """
    ends = np.append((np.arange(_STEPS) + 1) / 64, 2.0**50 / NAT)  # the scores at which weights are tabulated
    seen = []
    for span in _SPANS:
        above = np.concatenate([np.arange(-span, 0.0, 1 / 64), ends])
        weights = np.asarray(rule.weight(above.copy(), span))
        if weights.shape != above.shape or weights.dtype.kind not in "iuf":
            return "does not return one weight per score"
        if not np.all((weights >= 0) & (weights <= 1)):
            return "gives weights outside of 0 to 1"
        if np.any(np.diff(weights) > 1e-12):
            return "gives larger weights to larger scores, so it would protect outliers less than others"
        seen.append(weights[-len(ends) :])
    if rule.by_distance and (rule.from_lowest or any(np.any(weights != seen[0]) for weights in seen)):
        return "declares that its weights depend on the distance from the threshold alone, but they do not"
    return None


def _without_tail(table: Ints) -> Ints:
    """Return the table without the repetitions of its last entry."""
    different = np.flatnonzero(table != table[-1])
    return table[: int(different[-1]) + 2] if different.size else table[:1]
