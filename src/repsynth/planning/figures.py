"""The numbers of a plan, for people and for JSON. They are public: no data is needed."""

import math
from typing import Any

import numpy as np

from repsynth.columns.adaptive_histogram import COARSE
from repsynth.columns.cells import first_cells
from repsynth.mechanism.meter import sigma_for
from repsynth.planning.plan import Plan
from repsynth.planning.warnings import csv_warnings, plan_warnings
from repsynth.privacy.events import Charge
from repsynth.privacy.formatting import Z_95, Summary, best_guess, points, promise
from repsynth.privacy.loss import Loss
from repsynth.privacy.unit import neighbours_of, outlying, unit_of
from repsynth.scoring.stage import COUNT, LOOKS, SCORES, look_sensitivity, solved_rule

_LONG = 120.0
"""Seconds of one core above which a plan warns."""


def plan_summary(plan: Plan, rows: int) -> Summary:
    """Return what a run would cost, in a few words. `rows` is the expected number of records."""
    weight, loss, person = outlier_weight(plan), plan.whole_loss, plan.schema.person
    outliers = None if weight == 1 else plan.settings.outlier_epsilon or float(loss.epsilon_at(weight, plan.delta))
    who = outlying(plan.schema, at_random=not plan.scorer.targets_outliers)
    whole = plan.budget.epsilon if plan.schema.measured is None else loss.epsilon(plan.delta)
    answer = "\n".join(promise(whole, plan.delta, outliers, who=who, before=plan.borrowed is not None))
    seconds = max(plan.model.resources(plan, rows).seconds, 1.0)
    each = "people" if plan.schema.rows_per_person == 1 else "rows that count"
    facts = [
        ("Who is protected", unit_of(plan.schema)),
        ("Best attack on anyone", best_guess(float(loss.advantage_at(1.0)))),
        ("Noise in a share", f"{points(share_error(plan, rows))} or less (95 %), for {rows:,} {each}"),
        ("Model", plan.model.name),
        ("Time", f"about {seconds:,.0f} s of one core, without reading and writing files"),
    ]
    if plan.max_lost_mass is not None and weight == 1:
        strength = f"as small as a mean lost weight of {plan.max_lost_mass:.3g} allows"
        facts.insert(1, ("Weights of outliers", f"{strength}; known after the run"))
    elif weight < 1:
        of_whom = "people" if person is None else "rows"
        facts.insert(1, ("Outliers", f"about {plan.outlier_fraction:.0%} of the {of_whom}"))
    return Summary(answer, tuple(facts))


def share_error(plan: Plan, rows: float) -> float:
    """Return the largest standard error of a released share, for a number of records."""
    noise = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges[COARSE].per_row)
    of_count = 0.0 if COUNT not in plan.charges else sigma_for(1.0, plan.charges[COUNT].per_row)
    return math.hypot(noise, of_count) / rows


def plan_data(plan: Plan, rows: int) -> dict[str, Any]:
    """Return the plan as plain data: the output of `repsynth plan --json`."""
    delta, resources, source = plan.delta, plan.model.resources(plan, rows), plan.borrowed
    scores_from = source and {"sha256": source.digest, "epsilon": source.epsilon, "delta": source.delta}
    return {
        "budget": {"epsilon": plan.budget.epsilon, "delta": delta, "mu": plan.mu, "rho": plan.rho},
        "neighbours": neighbours_of(plan.schema),
        "measurements": planned_measurements(plan),
        "training": planned_training(plan, rows),
        "floor_epsilon": float(plan.whole_loss.epsilon_at(0.0, delta)),
        "outlier_weight_at_most": outlier_weight(plan),
        "max_lost_mass": plan.max_lost_mass,
        "outlier_epsilon_at_most": float(plan.whole_loss.epsilon_at(outlier_weight(plan), delta)),
        "expected_rows": rows,
        "model": plan.model.name,
        "scores_from": scores_from,
        "model_megabytes_at_most": resources.megabytes,
        "model_seconds_about": resources.seconds,
        "share_points_95": 100 * Z_95 * share_error(plan, rows),
        "bins": planned_bins(plan, rows),
        "epsilon_by_weight": {weight: loss for weight, (loss, _) in loss_by_weight(plan).items()},
        "warnings": all_warnings(plan, rows),
    }


def loss_by_weight(plan: Plan) -> dict[float, tuple[float, float]]:
    """Return the largest ε and the largest advantage of an attack, by weight."""
    weights = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
    losses = plan.whole_loss.epsilon_at(weights, plan.delta), plan.whole_loss.advantage_at(weights)
    return {weight: (float(e), float(a)) for weight, e, a in zip(weights, *losses, strict=True)}


def all_warnings(plan: Plan, rows: int) -> list[str]:
    seconds, long = plan.model.resources(plan, rows).seconds, []
    if seconds > _LONG:
        long.append(
            f"a run takes about {seconds / 60:,.0f} minutes of one core; leave out columns that nobody needs, or "
            "see what another --model takes"
        )
    return [*plan_warnings(plan, rows), *long, *csv_warnings(plan.schema)]


def outlier_weight(plan: Plan) -> float:
    """Return the largest weight above the threshold; 1 if there is none."""
    if SCORES not in plan.charges and plan.borrowed is None:
        return 1.0
    rule = plan.rule
    if plan.max_lost_mass is not None:
        if plan.borrowed is None:
            return 1.0  # how small it is depends on the noise of the scores
        rule = solved_rule(plan, plan.borrowed.threshold, lowest=plan.borrowed.score.lowest)
    return min(plan.ceiling, float(rule.weight(np.array([1e-9]), 1.0)[0]))


def planned_training(plan: Plan, rows: int) -> dict[str, Any] | None:
    """Return the rounds of training, their noise and the expected batch."""
    training = plan.training
    if training is None:
        return None
    return {
        "epochs": training.rate * training.rounds,
        "rounds": training.rounds,
        "sampling_rate": training.rate,
        "expected_batch": training.rate * rows,
        "noise_multiplier": training.noise,
        "epsilon_alone": Loss.of([training]).epsilon(plan.budget.delta),
    }


def planned_measurements(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for name, charge in plan.charges.items():
        sensitivity = charge.rows * _row_sensitivity(plan, charge)  # of a person, in records
        # The exponential mechanism adds no noise to a number.
        sigma = None if charge.choice else sigma_for(sensitivity, charge.mu)
        share = None if plan.mu is None else (charge.mu / plan.mu) ** 2
        rows.append({"name": name, "sensitivity": sensitivity, "sigma": sigma, "mu": charge.mu, "share": share})
    return rows


def _row_sensitivity(plan: Plan, charge: Charge) -> float:
    if charge.name == COARSE:
        return math.sqrt(len(plan.schema.learned))
    if charge.name in LOOKS:
        return look_sensitivity(plan.schema)
    if charge.name in plan.scorer.shares(plan.schema):
        return plan.scorer.sensitivity(plan.schema, charge.name)
    if not charge.weighted:
        return 1.0
    return plan.model.sensitivity(plan.schema, charge.name)


def planned_bins(plan: Plan, rows: int) -> list[dict[str, Any]]:
    sigma = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges[COARSE].per_row)
    return [
        {
            "column": bins.column.name,
            "bins": bins.values,
            "expected": rows / bins.values,
            "sigma": sigma,
            "relative": sigma / (rows / bins.values),
            "points_95": 100 * Z_95 * sigma / rows,
        }
        for bins in first_cells(plan.schema, rows=rows, sigma=sigma)
    ]
