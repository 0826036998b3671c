"""What a run will measure and what it will cost, worked out before any data is opened."""

import math
from dataclasses import dataclass, field, replace

from repsynth.accounting import compose, epsilon_of, mu_of
from repsynth.budget import Budget
from repsynth.errors import ConfigError, SchemaError
from repsynth.schema import Schema
from repsynth.weigh import Rule, Targeted

MODELS = ("naive-bayes",)


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


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The charges of a run, in order; the weight rule; and the ceiling on weights above the threshold that
    meets the asked outlier ε."""

    schema: Schema
    settings: Settings
    charges: dict[str, float]
    """The μ of each measurement: size, score, threshold, synthesis (those that take place)."""
    rule: Rule
    ceiling: float

    @property
    def floor_mu(self) -> float:
        """What every record loses whatever its weight: all measurements before the last."""
        return compose(mu for name, mu in self.charges.items() if name != "synthesis")

    def mu_at(self, weight: float) -> float:
        """The loss of a record of this weight, at most."""
        return compose([self.floor_mu, weight * self.charges["synthesis"]])


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
    shares["synthesis"] = 1 - math.fsum(shares.values())
    # A hair less than the whole, so that no rounding on the way can exceed it.
    charges = {name: total * math.sqrt(share) * (1 - 1e-12) for name, share in shares.items()}
    plan = Plan(schema=schema, settings=settings, charges=charges, rule=settings.rule, ceiling=1.0)
    if settings.outlier_epsilon is None:
        return plan
    ceiling = _ceiling(plan, settings.outlier_epsilon)
    rule = Targeted(ceiling) if isinstance(settings.rule, Targeted) else settings.rule
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
    return min(1.0, math.sqrt(allowed) / plan.charges["synthesis"] * (1 - 1e-12))


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
