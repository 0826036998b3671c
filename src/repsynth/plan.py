"""What a run will measure and what it will cost, worked out before any data is opened."""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from repsynth.accounting import compose, epsilon_of, mu_of
from repsynth.budget import Budget
from repsynth.errors import ConfigError, SchemaError
from repsynth.schema import Numeric, Schema
from repsynth.weigh import Random, Rule, Targeted

STAGE_ONE = ("size", "score", "threshold")
"""The measurements in which every record counts the same; in all others its part is scaled by its weight."""

# How stage 2 shares what stage 1 leaves of μ². The rounds of `aim` come on top of a tree.
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
}
SCORE_SHARES = {"naive-bayes": 0.05, "mst": 0.1, "aim": 0.1}
"""Histograms are the one-way tables of a marginal model, too, so they get more of the budget there."""


_MOST_GROUPS = 33


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything about a run but the data and its schema. Shares are shares of μ².

    `public_rows` declares the number of records public; otherwise it is measured with `size_share`.
    `outlier_share` is the share of records that the threshold should leave above it.
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

    @property
    def floor_mu(self) -> float:
        """What every record loses whatever its weight: the measurements of stage 1."""
        return compose(mu for name, mu in self.charges.items() if name in STAGE_ONE)

    @property
    def synthesis_mu(self) -> float:
        """What a record of weight 1 loses in stage 2."""
        return compose(mu for name, mu in self.charges.items() if name not in STAGE_ONE)

    def mu_at(self, weight: float) -> float:
        """The loss of a record of this weight, at most."""
        return compose([self.floor_mu, weight * self.synthesis_mu])


def make_plan(schema: Schema, settings: Settings) -> Plan:
    """Check the settings and split the budget.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"),))
    >>> plan = make_plan(schema, Settings(budget=Budget.approximate(epsilon=1.0, delta=1e-6)))
    >>> list(plan.charges)
    ['size', 'score', 'threshold', 'synthesis']
    """
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
    charges = {name: total * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    plan = Plan(schema=schema, settings=settings, charges=charges, rule=settings.rule, ceiling=1.0)
    if settings.outlier_epsilon is None:
        return plan
    ceiling = _ceiling(plan, settings.outlier_epsilon)
    rule = settings.rule
    if isinstance(rule, Targeted | Random):
        rule = replace(rule, outlier_weight=ceiling)
    return replace(plan, rule=rule, ceiling=ceiling)


def paper_score_share(budget: Budget) -> float:
    """The share of μ² that a tenth of ε and half of δ make: the paper's budget for scoring.

    >>> round(paper_score_share(Budget.approximate(epsilon=1.0, delta=1e-6)), 3)
    0.012
    """
    return (mu_of(budget.epsilon / 10, budget.delta / 2) / budget.mu) ** 2


def _ceiling(plan: Plan, outlier_epsilon: float) -> float:
    """The weight at which a record loses exactly the asked ε, everything included."""
    delta = plan.settings.budget.delta
    smallest = float(epsilon_of(plan.floor_mu, delta))
    allowed = mu_of(outlier_epsilon, delta) ** 2 - plan.floor_mu**2
    if allowed <= 0:
        raise ConfigError(
            f"outlier epsilon {outlier_epsilon:g} is out of reach: scoring alone costs every record "
            f"{smallest:.4g}; ask for more than that, or lower the score and threshold shares"
        )
    return min(1.0, math.sqrt(allowed) / plan.synthesis_mu * (1 - 1e-12))


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
    if settings.model != "naive-bayes":
        _check_size(schema, settings)
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


def _sizes(schema: Schema) -> list[int]:
    return [
        (_MOST_GROUPS if isinstance(column, Numeric) else column.cells) + column.missing
        for column in schema.learned
        if column.name != schema.label
    ]


def _check_size(schema: Schema, settings: Settings) -> None:
    """A marginal model crosses columns: it needs two, and its largest tables must fit."""
    if len(schema.learned) < 2:
        raise ConfigError(f"the model {settings.model} needs two columns at least; use naive-bayes")
    if not 1 <= settings.max_model_mb <= 10**6:
        raise ConfigError("the model's size must lie between 1 and 1,000,000 MB")
    needed = label_cells(schema) * 8 / 2**20
    if needed > settings.max_model_mb:
        raise ConfigError(
            f"the tables of label and column may take {needed:,.0f} MB, more than the {settings.max_model_mb:,} "
            "MB allowed; allow more with --max-model-mb, declare fewer categories, or use naive-bayes"
        )
