"""What the page for choosing a plan needs: shares, sensitivities and from where on rules change, as plain data.

`pages/explore.js` plans with it as `make_plan` does. No rule is written twice: the page has closed forms, and
tables that were made here by asking the rules themselves. Nothing of it touches data.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from repsynth.columns.adaptive_histogram import COARSE
from repsynth.columns.cells import how_many_cells, public_cells
from repsynth.errors import ConfigError
from repsynth.models.base import Model
from repsynth.models.network.model import Autoregressive
from repsynth.models.registry import MODELS
from repsynth.planning.cautions import cautions, csv_cautions, fewest
from repsynth.planning.plan import Plan, default_model, make_charges
from repsynth.planning.settings import Settings, settings_to_toml
from repsynth.privacy.budget import Budget
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import LEAST_DELTA
from repsynth.privacy.shown import at_least
from repsynth.release.account import purpose
from repsynth.release.release import Release
from repsynth.schema import Category, Numeric, Schema
from repsynth.scoring.stage import COUNT, SCORES, look_sensitivity, look_shares
from repsynth.scoring.weights import Rule, Targeted, Uniform

_SMALL_MU = 2.0**-20
"""Rules of a table's size compare records times μ: with so small a μ, whole records tell it to a millionth."""

_START_ROWS = 10_000
_MOST_ROWS = 2**40
_MOST_SIGNAL = 2.0**20


def explore_facts(schema: Schema, release: Release | None = None) -> dict[str, Any]:
    """All that the page works with; with a release, it starts there.

    >>> from repsynth.schema import Boolean
    >>> facts = explore_facts(Schema(columns=(Boolean(name="smoker"), Boolean(name="owner")), label="owner"))
    >>> sorted(facts["models"]), facts["start"]["epsilon"]
    (['aim', 'autoregressive', 'mst', 'naive-bayes'], 1.0)
    """
    _check_confirmed(schema)
    settings = _settings(release)
    models = {name: _instance(name, settings) for name in MODELS}
    rules: list[Rule] = [Targeted(), Uniform()]
    if settings.weights and settings.weights.name not in {rule.name for rule in rules}:
        rules.append(settings.weights)
    return {
        "columns": [_column(column) for column in schema.learned],
        "learned": len(schema.learned),
        "person": _person(schema),
        "shares": {
            "score": settings.score_share,
            COUNT: settings.count_share,
            SCORES: settings.threshold_share,
        },
        "purposes": {
            name: purpose(name, model) for model in models.values() for name in _names(schema, model, settings)
        },
        "looks": _looks(schema),
        "scorer": _scorer(schema, settings),
        "models": {name: _model(schema, settings, model) for name, model in models.items()},
        "rules": {rule.name: {"threshold": rule.uses_threshold, "at": _at_threshold(rule)} for rule in rules},
        "bins": _bins(schema),
        "csv": list(csv_cautions(schema)),
        "toml": _toml(settings, models, rules),
        "start": _start(schema, settings, release),
        "release": None if release is None else _released(schema, release),
    }


def _check_confirmed(schema: Schema) -> None:
    """Refuse a draft: what stands in it was read from the data, and the page may be handed on."""
    if not schema.confirmed:
        raise ConfigError(
            "the schema is an unconfirmed draft: its bounds and categories were read from the data, and the page "
            "would show them; check or replace each of them, then set confirmed = true"
        )


def _settings(release: Release | None) -> Settings:
    """Those of the release, without what depends on more than a plan."""
    if release is None:
        return Settings.of(epsilon=1.0)
    return replace(release.plan.settings, max_lost_mass=None)


def _instance(name: str, settings: Settings) -> Model:
    given = settings.model
    return given if given is not None and given.name == name else MODELS[name]()


def _column(column: Any) -> dict[str, Any]:
    size = column.size if isinstance(column, Category) else None
    return {"name": column.name, "size": size, "fewest": fewest(column) if isinstance(column, Category) else None}


def _person(schema: Schema) -> dict[str, Any]:
    """How many rows of a person count, by which all noise grows; and what the ids take of δ."""
    several = schema.person is not None
    return {
        "several": several,
        "rows": schema.rows_per_person,
        "failure": Loss.of_schema(schema).failure if several else 0.0,
        "least_delta": LEAST_DELTA if several else 0.0,
    }


def _names(schema: Schema, model: Model, settings: Settings) -> list[str]:
    """Of everything that a plan may measure."""
    rounds = model.rounds()
    stage_one = [COUNT, COARSE, *settings.scorer.shares(schema), SCORES, *look_shares(schema)]
    return [*stage_one, *(share.name for share in model.shares(schema)), *([rounds.name] if rounds else [])]


def _looks(schema: Schema) -> list[dict[str, Any]]:
    sensitivity = look_sensitivity(schema)
    return [
        {"name": name, "share": share, "sensitivity": sensitivity, "weighted": True}
        for name, share in look_shares(schema).items()
    ]


def _scorer(schema: Schema, settings: Settings) -> dict[str, Any]:
    scorer = settings.scorer
    return {
        "parts": [
            {
                "name": name,
                "share": share,
                "sensitivity": scorer.sensitivity(schema, name),
                "choice": name in scorer.choices,
            }
            for name, share in scorer.shares(schema).items()
        ],
    }


def _least(worthwhile: Callable[[int], bool]) -> float:
    """Records times μ from which on something is worthwhile."""
    return 0.0 if worthwhile(1) else first_true(worthwhile, _MOST_ROWS) * _SMALL_MU


def _model(schema: Schema, settings: Settings, model: Model) -> dict[str, Any]:
    shares = model.shares(schema)
    whole = math.fsum(share.share for share in shares)
    found: dict[str, Any] = {
        "score_share": model.score_share,
        "parts": [
            {
                "name": share.name,
                "share": share.share / whole,
                "sensitivity": model.sensitivity(schema, share.name),
                "choice": share.choice,
                "weighted": share.weighted,
            }
            for share in shares
        ],
        "training": None if (rounds := model.rounds()) is None else rounds.name,
        "refused": None,
        "cautions": [],
        "noisy": None,
        "grid": _grid_for(settings, model) if isinstance(model, Autoregressive) else None,
    }
    try:
        model.check(schema, settings.max_model_mb)
        plan = _tiny_plan(schema, settings, model)
    except ConfigError as error:
        return found | {"refused": str(error)}
    found["cautions"] = list(cautions(plan, None))
    return found | {"noisy": _noisy(plan)}


def _tiny_plan(schema: Schema, settings: Settings, model: Model) -> Plan:
    """A plan to ask the model with; a training in it has far too much noise."""
    named = replace(settings, model=model, weights=Uniform(), outlier_epsilon=None, score_share=None)
    budget = Budget.gaussian(mu=_SMALL_MU, delta=1e-9)
    plan = Plan(
        schema=schema,
        settings=named,
        budget=budget,
        charges=make_charges(schema, named, budget),
        rule=Uniform(),
        ceiling=1.0,
    )
    rounds = model.rounds()
    if rounds is None:
        return plan
    return dataclasses.replace(plan, training=replace(rounds, sigma=rounds.sensitivity * 1e6))


def _noisy(plan: Plan) -> dict[str, Any] | None:
    """What the model says of too small a table, and from how many records times μ on it no longer does; of a
    training the grid knows that."""
    said = plan.model.resources(plan, 1).warnings
    if not said:
        return None
    if plan.training is not None:
        return {"texts": list(said), "least": None}
    return {"texts": list(said), "least": _least(lambda rows: not plan.model.resources(plan, rows).warnings)}


def _at_threshold(rule: Rule) -> float:
    """The weight just above the threshold: the largest one there."""
    return float(rule.weight(np.array([1e-9]), 1.0)[0])


def _bins(schema: Schema) -> dict[str, Any]:
    """How many cells the coarse histogram of a column has, by records over noise: the steps of the rule, and what
    each makes of a numeric column."""
    steps = _steps(lambda signal: how_many_cells(signal, 1.0))
    return {
        "steps": steps,
        "counts": [count for _, count in steps],
        "of": [
            [public_cells(column, count).values for _, count in steps]
            if isinstance(column, Numeric)
            else column.size
            for column in schema.learned
        ],
    }


def _steps(rule: Callable[[float], int]) -> list[tuple[float, int]]:
    """A rule that rises in steps, as (from there on, value)."""
    found, low = [(0.0, rule(0.0))], 0.0
    while rule(_MOST_SIGNAL) > found[-1][1]:
        high = _MOST_SIGNAL
        while low < (middle := (low + high) / 2) < high:
            low, high = (low, middle) if rule(middle) > found[-1][1] else (middle, high)
        found.append((high, rule(high)))
        low = high
    return found


def _toml(settings: Settings, models: dict[str, Model], rules: list[Rule]) -> dict[str, Any]:
    """The text of a `plan.toml` in pieces, in which the page replaces values."""

    def pieces(**changed: Any) -> list[str]:
        named = {"weights": settings.weights or Targeted(), **changed}
        return settings_to_toml(replace(settings, mu=None, rho=None, **named)).split("\n\n[")

    everything = {"epsilon": 1.0, "delta": 1e-9, "public_rows": 1, "outlier_epsilon": 1.0}
    head, _, scorer = pieces(**everything, model=None)
    lines = head.splitlines()
    return {
        "head": lines[:2],
        "lines": [[line.split(" = ")[0], line] for line in lines[2:]],
        "weights": {rule.name: pieces(**everything, weights=rule, model=None)[1] for rule in rules},
        "scorer": scorer,
        "model": {name: pieces(**everything, model=model)[3] for name, model in models.items()},
    }


def _start(schema: Schema, settings: Settings, release: Release | None) -> dict[str, Any]:
    rule = settings.weights or Targeted()
    start = {
        "epsilon": settings.epsilon,
        "delta": 1e-9,
        "rows": _START_ROWS,
        "public": settings.public_rows is not None and schema.rows_per_person == 1,
        "model": (settings.model or default_model(schema)).name,
        "rule": rule.name,
        "outlier_weight": rule.outlier_weight if isinstance(rule, Targeted) else Targeted().outlier_weight,
        "outlier_epsilon": settings.outlier_epsilon,
        "fraction": settings.outlier_fraction,
    }
    if release is None:
        return start
    privacy = release.privacy
    if settings.epsilon is None:
        start["epsilon"] = float(at_least(release.plan.budget.epsilon))
    if release.plan.max_lost_mass is not None:
        start |= {"rule": Targeted.name, "outlier_weight": round(privacy.outlier_weight, 3)}
    return start | {"delta": privacy.delta, "rows": max(1, round(release.rows))}


def _released(schema: Schema, release: Release) -> dict[str, Any]:
    """The released histogram of scores, and what is not taken over from the release."""
    settings, notes = release.plan.settings, []
    if release.schema != schema:
        notes.append("The release was made with another schema: who stands out is said for its table.")
    if release.plan.borrowed is not None:
        notes.append("Its scores came from an earlier release; a plan of this page measures its own.")
    if settings.max_lost_mass is not None:
        notes.append(
            "A bound on the lost weight decided its weights; this page starts at the weight that came out."
        )
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

    Its account has no closed form that a page could run. Between grid points the page takes the next one on the
    safe side. `studies/benchmarks/trained.py` writes the file.
    """
    default, shares = Settings(), ("score_share", "threshold_share", "count_share")
    same = all(getattr(settings, name) == getattr(default, name) for name in shares)
    plain = (model.epochs, model.sampling_rate) == (Autoregressive().epochs, Autoregressive().sampling_rate)
    file = Path(__file__).parent / "pages" / "trained.json"
    return msgspec.json.decode(file.read_bytes(), type=dict[str, Any]) if same and plain else None


def first_true(holds: Callable[[int], bool], most: int) -> int:
    """Return by bisection the smallest positive integer at which something holds; `most` where it never does.

    >>> first_true(lambda n: n * n > 50, 1000)
    8
    """
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
