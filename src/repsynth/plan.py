"""What a run will measure and what it will cost, worked out before any data is opened."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from repsynth.accounting import compose, mu_of
from repsynth.budget import Budget
from repsynth.cost import MOST_ROUNDS, STAGE_ONE, WEIGHT_STEPS, Cost, calibrate
from repsynth.errors import ConfigError, SchemaError
from repsynth.noise import RATE_UNIT, SampledEvent
from repsynth.schema import Numeric, Schema
from repsynth.weigh import Random, Rule, Targeted

# How stage 2 shares what stage 1 leaves of μ². The rounds of `aim` come on top of a tree; `neural` is trained with
# all that is left, which has no μ.
_TREE = {"pairs": 0.45, "structure": 0.05, "synthesis": 0.5}
_FURTHER, _ROUNDS = 0.25, (2, 3, 4)
MODELS: dict[str, dict[str, float]] = {
    "naive-bayes": {"synthesis": 1.0},
    "mst": _TREE,
    "aim": {
        "pairs": (1 - _FURTHER) * 0.6,
        "structure": (1 - _FURTHER) * 0.05,
        "synthesis": (1 - _FURTHER) * 0.35,
        **{
            f"{name} {k}": _FURTHER / len(_ROUNDS) * share
            for k in _ROUNDS
            for name, share in (("structure", 0.1), ("synthesis", 0.9))
        },
    },
    "neural": {},
}
SCORE_SHARES = {"naive-bayes": 0.05, "mst": 0.1, "aim": 0.1, "neural": 0.1}
"""Histograms are the one-way tables of a marginal model, too, so they get more of the budget there."""

MOST_FEATURES = 256
"""Features of a network's columns together, as far as each column keeps two."""

MOST_NETWORK_GROUPS = 256
"""Groups of a column of a network at most: of more values, the rarest are taken together."""

SMOOTH_FEATURES = 8
"""Features of a numeric column at most."""

CLIP_UNITS = 2**20
"""Grid units in the norm to which a record's part in a round of training is clipped."""

_MOST_GROUPS = 33


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a run but the data and its schema. Shares are shares of μ².

    `public_rows` declares the number of records public; otherwise it is measured with `size_share`.
    `outlier_share` is the share of records that the threshold should leave above it. `epochs` and
    `sampling_rate` belong to training: how often a record takes part on average, and the chance that it takes
    part in a round.
    """

    budget: Budget
    model: str = "naive-bayes"
    rule: Rule = field(default_factory=Targeted)
    outlier_epsilon: float | None = None
    outlier_share: float = 0.3
    score_share: float = 0.05
    threshold_share: float = 0.01
    size_share: float = 0.005
    public_rows: int | None = None
    max_model_mb: int = 1000
    epochs: float = 15.0
    sampling_rate: float = 0.05


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The charges of a run, in order; the weight rule; and the ceiling on weights above the threshold that
    meets the asked outlier ε."""

    schema: Schema
    settings: Settings
    charges: dict[str, float]
    """The μ of each measurement: size, score, threshold (those that take place), then those of the model."""
    rule: Rule
    ceiling: float
    training: SampledEvent | None = None
    """The rounds of training, with the noise that the rest of the budget allows, where the model is trained."""

    @property
    def cost(self) -> Cost:
        """What a record loses, by its weight."""
        return Cost(
            floor_mu=compose(mu for name, mu in self.charges.items() if name in STAGE_ONE),
            synthesis_mu=compose(mu for name, mu in self.charges.items() if name not in STAGE_ONE),
            trainings=(self.training,) if self.training else (),
        )

    @property
    def steps(self) -> list[str]:
        """The names of everything that will be charged, in order."""
        return [*self.charges, *([self.training.name] if self.training else [])]


def make_plan(schema: Schema, settings: Settings) -> Plan:
    """Check the settings and split the budget.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"),))
    >>> plan = make_plan(schema, Settings(budget=Budget.approximate(epsilon=1.0, delta=1e-6)))
    >>> list(plan.charges)
    ['size', 'score', 'threshold', 'synthesis']
    """
    charges = make_charges(schema, settings)
    plan = Plan(schema=schema, settings=settings, charges=charges, rule=settings.rule, ceiling=1.0)
    rounds = planned_rounds(settings)
    if rounds is not None:
        budget = settings.budget
        training = calibrate(plan.cost, rounds, epsilon=budget.epsilon, delta=budget.delta)
        plan = replace(plan, training=training)
    if settings.outlier_epsilon is None:
        return plan
    ceiling = _ceiling(plan, settings.outlier_epsilon)
    rule = settings.rule
    if isinstance(rule, Targeted | Random):
        rule = replace(rule, outlier_weight=ceiling)
    return replace(plan, rule=rule, ceiling=ceiling)


def make_charges(schema: Schema, settings: Settings) -> dict[str, float]:
    """Check the settings; the μ of every measurement but training."""
    _check(schema, settings)
    total = settings.budget.mu
    shares = {"score": settings.score_share}
    if settings.public_rows is None:
        shares = {"size": settings.size_share, **shares}
    if settings.rule.uses_threshold or settings.outlier_epsilon is not None:
        shares["threshold"] = settings.threshold_share
    rest = 1 - math.fsum(shares.values())
    second = {n: s for n, s in MODELS[settings.model].items() if n != "pairs" or schema.label_column}
    shares |= {name: rest * share / math.fsum(second.values()) for name, share in second.items()}
    # A hair less than the whole, so that no rounding on the way can exceed it.
    return {name: total * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}


def planned_rounds(settings: Settings) -> SampledEvent | None:
    """The rounds of training where the model is trained; their noise is to be found."""
    if settings.model != "neural":
        return None
    rate = max(1, round(settings.sampling_rate * RATE_UNIT)) / RATE_UNIT
    rounds = max(1, round(settings.epochs / rate))
    if rounds > MOST_ROUNDS:
        raise ConfigError(
            f"{settings.epochs:g} epochs at a sampling rate of {settings.sampling_rate:g} make {rounds:,} rounds; "
            f"at most {MOST_ROUNDS:,} are supported: raise the rate or lower the epochs"
        )
    return SampledEvent("training", float(CLIP_UNITS), math.inf, rate, rounds)


def paper_score_share(budget: Budget) -> float:
    """The share of μ² that a tenth of ε and half of δ make: the paper's budget for scoring.

    >>> round(paper_score_share(Budget.approximate(epsilon=1.0, delta=1e-6)), 3)
    0.012
    """
    return (mu_of(budget.epsilon / 10, budget.delta / 2) / budget.mu) ** 2


def _ceiling(plan: Plan, outlier_epsilon: float) -> float:
    """The weight at which a record loses exactly the asked ε, everything included."""
    delta = plan.settings.budget.delta
    cost = plan.cost
    smallest = float(cost.epsilon_at(0.0, delta))
    allowed = mu_of(outlier_epsilon, delta) ** 2 - cost.floor_mu**2
    if allowed <= 0:
        raise ConfigError(
            f"outlier epsilon {outlier_epsilon:g} is out of reach: scoring alone costs every record "
            f"{smallest:.4g}; ask for more than that, or lower the score and threshold shares"
        )
    if plan.training is None:
        return min(1.0, math.sqrt(allowed) / cost.synthesis_mu * (1 - 1e-12))
    low, high = 0.0, 1.0
    if cost.epsilon_at(high, delta) <= outlier_epsilon:
        return high
    while high - low > 1 / WEIGHT_STEPS:
        middle = (low + high) / 2
        low, high = (middle, high) if cost.epsilon_at(middle, delta) <= outlier_epsilon else (low, middle)
    if low == 0:
        raise ConfigError(
            f"outlier epsilon {outlier_epsilon:g} is too close to what scoring costs every record, "
            f"{smallest:.4g}; ask for more, or lower the score and threshold shares"
        )
    return low


def _check(schema: Schema, settings: Settings) -> None:
    if not schema.confirmed:
        raise SchemaError(
            [
                "the schema is an unconfirmed draft: its bounds and categories were read from the data; "
                "check or replace each of them, then set confirmed = true"
            ]
        )
    if settings.model not in MODELS:
        raise ConfigError(f"unknown model '{settings.model}'; use one of {', '.join(MODELS)}")
    _check_size(schema, settings)
    if not 0.001 <= settings.sampling_rate <= 1:
        raise ConfigError(f"sampling rate is {settings.sampling_rate:g}; it must lie between 0.001 and 1")
    if not 0.01 <= settings.epochs <= 10_000:
        raise ConfigError(f"epochs is {settings.epochs:g}; it must lie between 0.01 and 10,000")
    if not 0.01 <= settings.outlier_share <= 0.5:
        raise ConfigError(f"outlier share is {settings.outlier_share:g}; it must lie between 0.01 and 0.5")
    for name in ("score_share", "threshold_share", "size_share"):
        share = getattr(settings, name)
        if not 1e-6 <= share <= 0.9:
            raise ConfigError(f"{name.replace('_', ' ')} is {share:g}; it must lie between 0.000001 and 0.9")
    if settings.score_share + settings.threshold_share + settings.size_share > 0.95:
        raise ConfigError("the shares leave less than a twentieth of the budget for synthesis; lower them")
    if settings.outlier_epsilon is not None:
        if not settings.outlier_epsilon > 0:
            raise ConfigError(f"outlier epsilon is {settings.outlier_epsilon:g}; it must be above 0")
        if settings.outlier_epsilon > settings.budget.epsilon * (1 + 1e-6):
            raise ConfigError(
                f"outlier epsilon {settings.outlier_epsilon:g} is above the whole budget's "
                f"{settings.budget.epsilon:.4g}; outliers are protected by asking for less"
            )


def label_cells(schema: Schema) -> int:
    """How many cells the tables of label × column have at most, before any data is seen."""
    label = schema.label_column
    return (label.cells + label.missing if label else 1) * sum(_sizes(schema))


def most_candidate_cells(schema: Schema, *, rows: float, noise: float) -> int:
    """How many cells the tables of column × column have at most that so much noise leaves to choose from."""
    sizes = np.array(_sizes(schema), dtype=np.float64)
    tables = np.outer(sizes, sizes)[np.triu_indices(len(sizes), 1)]
    label = schema.label_column
    return (label.cells + label.missing if label else 1) * int(tables[tables < 2 * rows / noise].sum())


def network_megabytes(schema: Schema) -> float:
    """What a network takes at most: a square of its features, some ten times over."""
    return max(1.0, 10 * 8 * most_features(schema) ** 2 / 2**20)


def most_features(schema: Schema) -> int:
    """How many features the network of a table has at most, before any data is seen."""
    most = max(2, MOST_FEATURES // max(len(schema.learned), 1))
    return sum(
        min(most, SMOOTH_FEATURES if isinstance(column, Numeric) else column.cells + column.missing - 1)
        for column in schema.learned
    )


def _sizes(schema: Schema) -> list[int]:
    return [
        (_MOST_GROUPS if isinstance(column, Numeric) else column.cells) + column.missing
        for column in schema.learned
        if column.name != schema.label
    ]


def _check_size(schema: Schema, settings: Settings) -> None:
    """A marginal model crosses columns: it needs two, and its largest tables must fit; so must a network."""
    if not 1 <= settings.max_model_mb <= 10**6:
        raise ConfigError("the model's size must lie between 1 and 1,000,000 MB")
    if settings.model == "naive-bayes":
        return
    if len(schema.learned) < 2:
        raise ConfigError(f"the model {settings.model} needs two columns at least; use naive-bayes")
    if settings.model == "neural":
        label = schema.label_column
        if label is not None and label.cells > MOST_NETWORK_GROUPS:
            raise ConfigError(
                f"the label has {label.cells:,} values, and a network takes {MOST_NETWORK_GROUPS} at most; "
                "use naive-bayes"
            )
        needed = network_megabytes(schema)
        if needed > settings.max_model_mb:
            raise ConfigError(
                f"the network may take {needed:,.0f} MB, more than the {settings.max_model_mb:,} MB allowed; "
                "allow more with --max-model-mb, drop columns, or use naive-bayes"
            )
        return
    needed = label_cells(schema) * 8 / 2**20
    if needed > settings.max_model_mb:
        raise ConfigError(
            f"the tables of label and column may take {needed:,.0f} MB, more than the {settings.max_model_mb:,} "
            "MB allowed; allow more with --max-model-mb, declare fewer categories, or use naive-bayes"
        )
