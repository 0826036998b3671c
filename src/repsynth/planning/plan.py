"""The plan of a run: its charges, in order, and what follows from them for a record."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import msgspec
import numpy as np

from repsynth.columns.adaptive_histogram import COARSE
from repsynth.errors import ConfigError, SchemaError
from repsynth.models.base import Model
from repsynth.models.marginal.model import Aim
from repsynth.models.naive_bayes import NaiveBayes
from repsynth.planning.settings import PARTS, Settings
from repsynth.planning.warnings import csv_warnings, plan_warnings
from repsynth.privacy.budget import Budget, make_budget
from repsynth.privacy.events import Charge
from repsynth.privacy.formatting import Summarised, Summary, upper
from repsynth.privacy.gaussian import mu_of
from repsynth.privacy.loss import WEIGHT_STEPS, Loss, calibrate
from repsynth.privacy.pld import SMALLEST_DELTA
from repsynth.privacy.unit import LEAST_DELTA
from repsynth.schema import Schema, check_unit, schema_from_dict, schema_to_dict
from repsynth.scoring.stage import COUNT, SCORES, RunPlan, look_shares
from repsynth.scoring.transfer import PriorScores
from repsynth.scoring.weights import RULES, Rule, Targeted, check_rule


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Summarised, RunPlan):
    """The measurements, weights and training of a run. A release contains its plan, not later defaults."""

    settings: Settings
    budget: Budget

    def __post_init__(self) -> None:
        for name in ("scorer", "public_rows", "outlier_fraction", "max_lost_mass", "max_model_mb"):
            object.__setattr__(self, name, getattr(self.settings, name))
        object.__setattr__(self, "delta", self.budget.delta)
        object.__setattr__(self, "scale", self.budget.mu)

    @cached_property
    def loss(self) -> Loss:
        """The loss of a record, by its weight."""
        return Loss.of([*self.charges.values(), *([self.training] if self.training else [])])

    @property
    def whole_loss(self) -> Loss:
        """The loss of a person, including the cost of a measured schema."""
        return self.loss.after(Loss.of_schema(self.schema), self.delta)

    @property
    def steps(self) -> list[str]:
        """The names of all charges, in order."""
        return [*self.charges, *([self.training.name] if self.training else [])]

    @property
    def model(self) -> Model:
        return _model(self.settings)

    @property
    def mu(self) -> float | None:
        """The whole budget in Gaussian DP; None for a trained model, whose loss is not Gaussian."""
        return None if self.training else self.budget.mu

    @property
    def rho(self) -> float | None:
        """The whole budget in zero-concentrated DP; None for a trained model."""
        return None if self.training else self.budget.rho

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings about this plan; those about the size need a declared number of records."""
        return (*plan_warnings(self, self.public_rows), *csv_warnings(self.schema))

    @property
    def summary(self) -> Summary:
        """What a run would cost, for the declared number of records, or 10,000."""
        from repsynth.planning.figures import plan_summary

        return plan_summary(self, self.public_rows or 10_000)


def make_plan(schema: Schema, settings: Settings, borrowed: PriorScores | None = None) -> Plan:
    """Check the settings, choose the default model and weights if none are named, and split the budget.

    With `borrowed` scores, scoring costs nothing.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"),), one_row_per_person=True)
    >>> plan = make_plan(schema, Settings.of(epsilon=1.0, delta=1e-6))
    >>> list(plan.charges), plan.model.name
    (['count', 'coarse histograms', 'scores', 'sums'], 'naive-bayes')
    """
    check_unit(schema)
    budget = make_budget(
        epsilon=settings.epsilon,
        mu=settings.mu,
        rho=settings.rho,
        delta=settings.delta,
        public_rows=settings.public_rows,
    )
    model = settings.model or default_model(schema)
    if borrowed is not None:
        settings = _settings_with(borrowed, schema, settings)
    weights = settings.weights or default_weights(schema, settings, budget)
    settings = msgspec.structs.replace(settings, model=model, weights=weights)
    rounds = model.rounds()
    if rounds is not None and settings.epsilon is None:
        raise ConfigError(
            f"the cost of training has no exact mu or rho; give the budget of the model {model.name} as epsilon"
        )
    _check(schema, settings, budget)
    charges = make_charges(schema, settings, budget, scored=borrowed is None)
    plan = Plan(
        schema=schema,
        settings=settings,
        budget=budget,
        charges=charges,
        rule=weights,
        ceiling=1.0,
        borrowed=borrowed,
    )
    if rounds is not None:
        of_a_person = msgspec.structs.replace(rounds, sensitivity=rounds.sensitivity * schema.rows_per_person)
        training = calibrate(plan.loss, of_a_person, epsilon=budget.epsilon, delta=budget.delta)
        plan = replace(plan, training=training)
    if settings.outlier_epsilon is None:
        return plan
    ceiling = _ceiling(plan, settings.outlier_epsilon)
    rule = weights.at_most(ceiling)
    check_rule(rule)
    return replace(plan, rule=rule, ceiling=ceiling)


def default_model(schema: Schema) -> Model:
    """Return the default model: `aim`, or `naive-bayes` for a single column."""
    return Aim() if len(schema.learned) > 1 else NaiveBayes()


def default_weights(schema: Schema, settings: Settings, budget: Budget) -> Targeted:
    """Return the default weights: 0.2 above the threshold, and up to 0.5 if few records are declared public.

    The weight depends on public numbers alone: the schema, the budget, and the declared number of records. It
    gives the outliers in a cell of an 8 by 8 table a mean weighted count of two standard deviations of the noise.
    Without a declared number the weight is 0.2, so declaring one never lowers it.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"), Boolean(name="old")))
    >>> for rows in (1_000, 8_000, 100_000):
    ...     settings = Settings.of(epsilon=1.0, public_rows=rows)
    ...     print(default_weights(schema, settings, make_budget(epsilon=1.0, delta=1e-6)).outlier_weight)
    0.5
    0.32
    0.2
    """
    plain = Targeted()
    if settings.public_rows is None or settings.outlier_epsilon is not None or settings.max_lost_mass is not None:
        return plain
    noise = math.sqrt(len(schema.learned)) / budget.mu
    outliers = settings.outlier_fraction * settings.public_rows / 64  # in a cell, at full weight
    return Targeted(float(np.clip(math.ceil(200 * noise / outliers) / 100, plain.outlier_weight, 0.5)))


def _settings_with(borrowed: PriorScores, schema: Schema, settings: Settings) -> Settings:
    """Return the settings with the scorer and fraction of prior scores; refuse any that contradict them."""
    borrowed.check_schema(schema)
    fraction, default = borrowed.threshold.fraction, Settings()
    if settings.scorer not in (default.scorer, borrowed.scorer):
        raise ConfigError("the scores come from an earlier release; leave the scorer out. Nothing was spent")
    if settings.outlier_fraction not in (default.outlier_fraction, fraction):
        raise ConfigError(
            "the threshold comes from an earlier release; leave the outlier fraction out. Nothing was spent"
        )
    if settings.weights is not None and not settings.weights.uses_threshold:
        raise ConfigError(
            f"{settings.weights.name} weights do not depend on scores: there is nothing to take from an earlier "
            "release. Nothing was spent"
        )
    return msgspec.structs.replace(settings, scorer=borrowed.scorer, outlier_fraction=fraction)


def make_charges(schema: Schema, settings: Settings, budget: Budget, *, scored: bool = True) -> dict[str, Charge]:
    """Return the charge of every measurement except training; without `scored`, scores are not charged."""
    model = _model(settings)
    shares = {} if settings.public_rows is not None else {COUNT: settings.count_share}
    scorer, rows = settings.scorer, schema.rows_per_person
    own = scorer.shares(schema) if scored else {}
    score_share = model.score_share if settings.score_share is None else settings.score_share
    histograms = score_share - math.fsum(own.values())
    if histograms < 1e-6:
        raise ConfigError("the scorer's measurements take the whole score share; lower them, or raise that share")
    weighted = _rule(settings).uses_threshold or settings.outlier_epsilon is not None
    shares |= {COARSE: histograms, **own}
    if scored and weighted:
        shares[SCORES] = settings.threshold_share
    looks = look_shares(schema)
    rest = 1 - math.fsum([*shares.values(), *looks.values()])
    if rest < 0.05:
        raise ConfigError("the shares leave less than a twentieth of the budget for the model; lower them")
    second = model.shares(schema)
    whole = math.fsum(share.share for share in second)

    def mu(share: float) -> float:
        # Slightly below the whole budget, so that no rounding exceeds it.
        return budget.mu * math.sqrt(share) * (1 - 1e-12)

    charges = {
        name: Charge(name, mu(share), choice=name in scorer.choices, rows=rows) for name, share in shares.items()
    }
    charges |= {name: Charge(name, mu(share), weighted=True, rows=rows) for name, share in looks.items()}
    for share in second:
        part = mu(rest * share.share / whole)
        charges[share.name] = Charge(share.name, part, weighted=share.weighted, choice=share.choice, rows=rows)
    return charges


def _model(settings: Settings) -> Model:
    assert settings.model is not None
    return settings.model


def _rule(settings: Settings) -> Rule:
    assert settings.weights is not None
    return settings.weights


def _ceiling(plan: Plan, outlier_epsilon: float) -> float:
    """Return the weight at which the whole loss of a record is the requested ε."""
    delta, loss = plan.delta, plan.whole_loss
    smallest = float(loss.epsilon_at(0.0, delta))
    allowed = mu_of(outlier_epsilon, delta - loss.failure) ** 2 - loss.floor_mu**2
    if allowed <= 0:
        raise ConfigError(
            f"outlier epsilon {outlier_epsilon:g} is out of reach: scoring alone costs every record "
            f"{upper(smallest)}; ask for more than that, or lower the score and threshold shares"
        )
    if plan.training is None:
        return min(1.0, math.sqrt(allowed) / loss.weighted_mu * (1 - 1e-12))
    low, high = 0.0, 1.0
    if loss.epsilon_at(high, delta) <= outlier_epsilon:
        return high
    while high - low > 1 / WEIGHT_STEPS:
        middle = (low + high) / 2
        low, high = (middle, high) if loss.epsilon_at(middle, delta) <= outlier_epsilon else (low, middle)
    if low == 0:
        raise ConfigError(
            f"outlier epsilon {outlier_epsilon:g} is too close to what scoring costs every record, "
            f"{upper(smallest)}; ask for more, or lower the score and threshold shares"
        )
    return low


def _check(schema: Schema, settings: Settings, budget: Budget) -> None:
    if not schema.confirmed:
        raise SchemaError(
            [
                "the schema is an unconfirmed draft: its bounds and categories were read from the data; "
                "check or replace each of them, then set confirmed = true"
            ]
        )
    least = 2 * SMALLEST_DELTA if _model(settings).rounds() else 0.0
    if schema.measured is not None and max(schema.measured.failure, least / 2) > budget.delta / 2:
        raise ConfigError(
            f"the measurement of the schema fails with probability {upper(schema.measured.failure, 3)}, which "
            f"leaves too little of δ = {upper(budget.delta, 3)}; give a delta of at least "
            f"{upper(max(2 * schema.measured.failure, least), 3)}. Nothing was spent"
        )
    if schema.person is not None and budget.delta < LEAST_DELTA:
        raise ConfigError(
            f"δ is {upper(budget.delta, 3)}; with several rows per person it must be at least {LEAST_DELTA:g}: "
            "two persons may be taken for one, with a probability far below that. Nothing was spent"
        )
    if schema.rows_per_person > 1 and settings.public_rows is not None:
        raise ConfigError(
            "with several rows per person, the number of records is measured, not public; leave public rows out. "
            "Nothing was spent"
        )
    _check_that_a_release_could_be_loaded(schema, settings)
    check_rule(_rule(settings))
    _model(settings).check(schema, settings.max_model_mb)
    _check_lost_mass(settings)
    asked = settings.outlier_epsilon
    if asked is not None and asked > budget.epsilon * (1 + 1e-6):
        raise ConfigError(
            f"outlier epsilon {asked:g} is above the whole budget's {upper(budget.epsilon)}; ask for less to "
            "protect outliers"
        )


def _check_lost_mass(settings: Settings) -> None:
    """Refuse a limit on lost mass together with another setting that decides the weights."""
    rule, most = _rule(settings), settings.max_lost_mass
    if most is None:
        return
    if rule.strength is None:
        able = " or ".join(name for name, kind in RULES.items() if kind.strength is not None)
        raise ConfigError(f"{rule.name} weights have no strength for the lost mass to decide; use {able}")
    if settings.outlier_epsilon is not None:
        raise ConfigError(
            "both the outlier epsilon and the lost mass would decide the weights above the threshold; give one"
        )
    if rule != type(rule)():
        asked = rule.strength.replace("_", " ")
        raise ConfigError(
            f"both the {asked} and the lost mass would decide the weights above the threshold; give one"
        )


def _check_that_a_release_could_be_loaded(schema: Schema, settings: Settings) -> None:
    """Refuse Python objects that a file cannot hold or that a schema file could not declare."""
    for part, registry in PARTS.items():
        registry.make(getattr(settings, part))
    if Settings.load(settings.dump()) != settings:
        raise ConfigError("these settings cannot be saved with a release; nothing was spent")
    if schema_from_dict(schema_to_dict(schema)) != replace(schema, confirmed=True):
        raise SchemaError(
            ["the schema cannot be saved as it is: a name or value occurs twice, or has blanks around it"]
        )
