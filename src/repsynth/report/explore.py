"""Compute the plans that the page of `repsynth explore` shows, at stops of ε, δ, records, model and weight.

The page looks plans up and computes no bound. Nothing here touches data.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from repsynth.arrays import Floats
from repsynth.columns.adaptive_histogram import COARSE
from repsynth.columns.cells import how_many_cells, public_cells
from repsynth.errors import ConfigError
from repsynth.mechanism.meter import sigma_for
from repsynth.models.base import Model
from repsynth.models.naive_bayes import NaiveBayes
from repsynth.models.network import Autoregressive
from repsynth.models.registry import MODELS
from repsynth.planning.plan import Plan, default_model, default_weights, make_charges, make_plan
from repsynth.planning.settings import Settings, settings_to_toml
from repsynth.planning.warnings import csv_warnings, plan_warnings
from repsynth.privacy.budget import make_budget
from repsynth.privacy.formatting import fixed_upper, lower, upper
from repsynth.privacy.loss import Loss
from repsynth.release.account import purpose
from repsynth.release.accuracy import Z
from repsynth.release.release import Release
from repsynth.schema import Numeric, Schema
from repsynth.scoring.stage import COUNT, look_shares
from repsynth.scoring.weights import Rule, Targeted, Uniform

EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
DELTAS = (1e-9, 1e-6)
ROWS = (100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
WEIGHTS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7)
FRACTIONS = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
CURVE = tuple(k / 8 for k in range(9))
"""The weights at which the page draws the loss."""

_SLIDERS = ("epsilon", "delta", "rows", "fraction")
_START_ROWS = 10_000
_NOT_COMPUTED = (
    "the account of a training takes minutes; it was computed beforehand for tables without numbers and default "
    "settings only. repsynth plan computes it for others"
)


@dataclass(frozen=True)
class Stops:
    """The values that each setting can take; those of a release are among them."""

    epsilon: tuple[float, ...] = EPSILONS
    delta: tuple[float, ...] = DELTAS
    rows: tuple[int, ...] = ROWS
    fraction: tuple[float, ...] = FRACTIONS
    rules: tuple[Rule, ...] = (Uniform(), *map(Targeted, WEIGHTS))

    def including(self, start: "Start") -> "Stops":
        rules = self.rules if start.rule in self.rules else (*self.rules, start.rule)
        given = {name: (*getattr(self, name), getattr(start, name)) for name in _SLIDERS}
        ordered = sorted(rules, key=lambda rule: (rule.uses_threshold, rule.name, weight_at_threshold(rule)))
        return Stops(rules=tuple(ordered), **{name: tuple(sorted(set(stops))) for name, stops in given.items()})


class Start(NamedTuple):
    """The settings at which the page opens."""

    epsilon: float
    delta: float
    rows: int
    fraction: float
    rule: Rule
    model: str
    public: bool


def explore_facts(schema: Schema, release: Release | None = None) -> dict[str, Any]:
    """Return all that the page shows, as plain data; with a release, the page opens at its settings.

    >>> from repsynth.schema import Boolean
    >>> schema = Schema(columns=(Boolean(name="smoker"), Boolean(name="owner")), one_row_per_person=True)
    >>> facts = explore_facts(schema)
    >>> sorted(facts["models"]), facts["models"]["mst"]["plans"]["1 1e-09 0 1"]["epsilon"]
    (['aim', 'autoregressive', 'mst', 'naive-bayes'], '1')
    """
    if not schema.confirmed:
        raise ConfigError(
            "the schema is an unconfirmed draft: its bounds and categories were read from the data, and the page "
            "would show them; check or replace each of them, then set confirmed = true"
        )
    settings = Settings.of(epsilon=1.0) if release is None else release.plan.settings
    settings = msgspec.structs.replace(settings, mu=None, rho=None, max_lost_mass=None, outlier_epsilon=None)
    start = _start(schema, settings, release)
    stops = Stops().including(start)
    made = _Plans(schema, settings, stops)
    models = {name: made.of(made.model(name)) for name in MODELS}
    return {
        "stops": {name: getattr(stops, name) for name in _SLIDERS},
        "rules": [
            {"name": rule.name, "weight": weight_at_threshold(rule), "scored": rule.uses_threshold}
            for rule in stops.rules
        ],
        "start": start._asdict() | {"rule": stops.rules.index(start.rule)},
        "curve": CURVE,
        "several": schema.person is not None,
        "models": models,
        "texts": list(made.texts),
        "csv": list(csv_warnings(schema)),
        "columns": [{"name": column.name, "cells": made.cells(column)} for column in schema.learned],
        "z": Z,
        "toml": {name: [made.toml(name, rule) for rule in stops.rules] for name in MODELS},
        "release": None if release is None else _released(schema, release),
    }


def weight_at_threshold(rule: Rule) -> float:
    """Return the largest weight above the threshold; 1 for a rule without one."""
    return float(rule.weight(np.array([1e-9]), 1.0)[0]) if rule.uses_threshold else 1.0


@dataclass
class _Plans:
    """Plans at all stops. Warnings and descriptions are kept once, in `texts`."""

    schema: Schema
    settings: Settings
    stops: Stops
    texts: dict[str, int] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    """The numbers of cells that numeric columns get in some plan."""

    def model(self, name: str) -> Model:
        given = self.settings.model
        return given if given is not None and given.name == name else MODELS[name]()

    def of(self, model: Model) -> dict[str, Any]:
        """Return each plan by "ε δ public scored", or why there is none."""
        plans: dict[str, Any] = {}
        for epsilon, delta, public, scored in product(self.stops.epsilon, self.stops.delta, (0, 1), (0, 1)):
            settings = msgspec.structs.replace(
                self.settings,
                epsilon=epsilon,
                delta=delta,
                public_rows=_START_ROWS if public else None,
                model=model,
                weights=Targeted() if scored else Uniform(),
            )
            asked = settings.epsilon
            key = f"{asked:g} {delta:g} {public} {scored}"
            try:
                plans[key] = self._trained(settings) if model.rounds() else self._gaussian(settings)
            except ConfigError as error:
                plans[key] = self._text(str(error))
        return {"trained": model.rounds() is not None, "plans": plans}

    def _gaussian(self, settings: Settings) -> dict[str, Any]:
        plan, delta = make_plan(self.schema, settings), settings.delta or 0.0
        loss = plan.whole_loss
        weights = np.array([*CURVE, *map(weight_at_threshold, self.stops.rules)])
        squares = sum(charge.mu**2 for charge in plan.charges.values())
        shares = [100 * charge.mu**2 / squares for charge in plan.charges.values()]
        parts = [f"{share:.1f}" for share in shares]
        return self._shown(plan, loss.epsilon_at(weights, delta), float(loss.advantage_at(1.0)), parts)

    def _trained(self, settings: Settings) -> dict[str, Any]:
        """Look a training up in the grid: its account has no closed form."""
        model, delta = settings.model, settings.delta or 0.0
        assert isinstance(model, Autoregressive)
        # The grid knows neither the looks at numbers nor the cost of a measured schema.
        if look_shares(self.schema) or self.schema.measured is not None:
            raise ConfigError(_NOT_COMPUTED)
        grid = _grid_for(settings, model)
        if grid is None or settings.epsilon not in grid["epsilons"] or delta not in grid["deltas"]:
            raise ConfigError(_NOT_COMPUTED)
        make_plan(self.schema, msgspec.structs.replace(settings, model=NaiveBayes()))  # makes the common checks
        key = f"{settings.public_rows is None:d}{settings.weights == Targeted():d} {delta:g}"
        point = grid["points"][key][grid["epsilons"].index(settings.epsilon)]
        budget = make_budget(epsilon=settings.epsilon, delta=delta)
        rule = settings.weights
        assert rule is not None
        model.check(self.schema, settings.max_model_mb)
        rounds = model.rounds()
        rows = self.schema.rows_per_person
        plan = Plan(
            schema=self.schema,
            settings=settings,
            budget=budget,
            charges=make_charges(self.schema, settings, budget),
            rule=rule,
            ceiling=1.0,
            training=msgspec.structs.replace(
                rounds, sensitivity=rounds.sensitivity * rows, sigma=rounds.sensitivity * rows * point["noise"]
            ),
        )
        before = Loss.of(plan.charges.values()).after(Loss.of_schema(self.schema), delta)
        floor = float(before.epsilon_at(0.0, delta))
        weights = np.array([*CURVE, *map(weight_at_threshold, self.stops.rules)])
        # Without a threshold everybody has weight 1. Otherwise take the next larger weight of the grid.
        at = grid["weights"] if len(point["epsilons"]) > 1 else [1.0]
        losses = np.minimum(point["epsilons"], budget.epsilon)
        found = losses[np.minimum(np.searchsorted(at, weights - 1e-9), len(at) - 1)]
        found = np.where(weights == 0, floor, found)
        parts = [upper(float(Loss.of([charge]).epsilon(delta)), 3) for charge in plan.charges.values()]
        return self._shown(plan, found, min(point["advantages"][-1] + before.failure, 1.0), parts)

    def _shown(self, plan: Plan, epsilons: Floats, advantage: float, parts: list[str]) -> dict[str, Any]:
        persons = self.schema.rows_per_person
        coarse = sigma_for(persons * len(self.schema.learned) ** 0.5, plan.charges[COARSE].mu)
        count = sigma_for(persons, plan.charges[COUNT].mu) if COUNT in plan.charges else 0.0
        steps = [how_many_cells(rows, coarse) for rows in self.stops.rows]
        return {
            "epsilon": upper(plan.budget.epsilon),
            "right": fixed_upper(50 + 50 * advantage, 1),
            "losses": [upper(float(epsilon), 3) for epsilon in epsilons],
            "charges": [
                [
                    self._text(f"{name}: {what}" if (what := purpose(name, plan.model)) else name),
                    *(part, int(charge.weighted)),
                ]
                for (name, charge), part in zip(plan.charges.items(), parts, strict=True)
            ],
            "noise": [coarse, count],
            "cells": [self.counts.setdefault(count, len(self.counts)) for count in steps],
            "warnings": [list(map(self._text, plan_warnings(plan, rows))) for rows in self.stops.rows],
        }

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def cells(self, column: Any) -> list[int]:
        """Return how many cells a column has, in the order of `counts`; one number where they are equal."""
        if isinstance(column, Numeric):
            found = [public_cells(column, count).values for count in self.counts]
            return found if len(set(found)) > 1 else found[:1]
        return [column.size]

    def toml(self, name: str, rule: Rule) -> str:
        """Return a plan.toml in which the page replaces ε, δ, the number of rows and the fraction."""
        model = self.model(name)
        return settings_to_toml(
            msgspec.structs.replace(
                self.settings, epsilon=1.0, delta=1e-9, public_rows=1, weights=rule, model=model
            )
        )


def _start(schema: Schema, settings: Settings, release: Release | None) -> Start:
    model = (settings.model or default_model(schema)).name
    if release is None:
        budget = make_budget(epsilon=1.0, delta=DELTAS[0])
        rule: Rule = default_weights(schema, settings, budget)
        return Start(1.0, DELTAS[0], _START_ROWS, settings.outlier_fraction, rule, model, False)
    asked, privacy = release.plan.settings, release.privacy
    rule = asked.weights or Targeted()
    if asked.outlier_epsilon is not None or release.plan.max_lost_mass is not None:
        rule = Targeted(round(privacy.outlier_weight, 3))
    return Start(
        float(lower(release.plan.budget.epsilon)) if asked.epsilon is None else asked.epsilon,
        privacy.delta,
        max(1, round(release.rows)),
        asked.outlier_fraction,
        rule,
        model,
        asked.public_rows is not None and schema.rows_per_person == 1,
    )


def _released(schema: Schema, release: Release) -> dict[str, Any]:
    """Return the released histogram of scores, and what is not taken over from the release."""
    settings, notes = release.plan.settings, []
    if release.schema != schema:
        notes.append("The release was made with another schema; who stands out is shown for its table.")
    if release.plan.borrowed is not None:
        notes.append("Its scores came from an earlier release; a plan of this page measures its own.")
    if settings.max_lost_mass is not None or settings.outlier_epsilon is not None:
        notes.append("It asked for an ε of outliers or a limit on lost weight; this page starts at its weight.")
    if settings.epsilon is None:
        notes.append("Its budget was given as μ or ρ; this page starts at the ε of it.")
    fractions: dict[float, float] = defaultdict(float)  # labels may have bins of the same score; they are one step
    for stratum in release.privacy.distribution():
        fractions[stratum.score] += stratum.fraction
    above = release.privacy.fraction_above
    return {
        "notes": notes,
        "scores": [[score, round(fraction, 6)] for score, fraction in fractions.items()],
        "standard_error": None if above is None else above.standard_error,
    }


def _grid_for(settings: Settings, model: Autoregressive) -> dict[str, Any] | None:
    """Return the precomputed losses of a trained model, or None where shares or training are not the defaults.

    `studies/benchmarks/trained.py` writes the file.
    """
    default, shares = Settings(), ("score_share", "threshold_share", "count_share")
    same = all(getattr(settings, name) == getattr(default, name) for name in shares)
    plain = (model.epochs, model.sampling_rate) == (Autoregressive().epochs, Autoregressive().sampling_rate)
    file = Path(__file__).parent / "pages" / "trained.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Any]) if same and plain else None
