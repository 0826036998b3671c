"""What `plan` prints: charges, noise, cost in time and memory, and what a record loses by its weight."""

import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from repsynth.cli.render import OVER, bar, gaussian_terms, guarantee, make_table, model, persons, warnings
from repsynth.columns.cells import choose_bins
from repsynth.mechanism.meter import sigma_for
from repsynth.planning.cautions import cautions, csv_cautions
from repsynth.planning.plan import Plan
from repsynth.privacy.events import Charge
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import neighbours_of
from repsynth.privacy.shown import at_least, at_most, fixed_at_least, fixed_at_most, percent_at_most
from repsynth.release.describe import purpose
from repsynth.scoring.ranges import RANGES, ZOOM, how_many_located, look_sensitivity, wide_columns
from repsynth.scoring.stage import HISTOGRAMS, SCORES, solved_rule

_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
_LONG = 120.0
"""Seconds of one core beyond which a plan warns of them."""


def plan_data(plan: Plan, rows: int) -> dict[str, Any]:
    delta, resources = plan.delta, plan.model.resources(plan, rows)
    return {
        "budget": {
            "epsilon": plan.budget.epsilon,
            "delta": delta,
            "mu": plan.mu,
            "rho": plan.rho,
        },
        "neighbours": neighbours_of(plan.schema),
        "measurements": _measurements(plan),
        "training": _training(plan, rows),
        "floor_epsilon": float(plan.whole_loss.epsilon_at(0.0, delta)),
        "outlier_weight_at_most": _outlier_weight(plan),
        "max_lost_mass": plan.max_lost_mass,
        "outlier_epsilon_at_most": float(plan.whole_loss.epsilon_at(_outlier_weight(plan), delta)),
        "expected_rows": rows,
        "model": plan.model.name,
        "scores_from": _scores_from(plan),
        "model_why": plan.why,
        "model_megabytes_at_most": resources.megabytes,
        "model_seconds_about": resources.seconds,
        "bins": _planned_bins(plan, rows),
        "epsilon_by_weight": {w: float(plan.whole_loss.epsilon_at(w, delta)) for w in _WEIGHTS},
        "warnings": _warnings(plan, rows),
    }


def plan(console: Console, plan: Plan, rows: int) -> None:
    budget = plan.budget
    # What is trained satisfies no such μ and ρ.
    gaussian = "" if plan.mu is None or plan.rho is None else f"   ({gaussian_terms(plan.mu, plan.rho)})"
    console.print(f"[bold]Budget[/bold]  {guarantee(budget.epsilon, budget.delta)}{gaussian}")
    console.print(f"Neighbours: {neighbours_of(plan.schema)}.")
    persons(console, plan.schema)
    console.print(f"{model(plan)}\n")
    table = make_table("measurement", "what", "sensitivity", "noise σ", "charge μ", "share of μ²")
    for row in _measurements(plan):
        table.add_row(
            row["name"],
            purpose(row["name"], plan.model),
            fixed_at_most(row["sensitivity"], 3),
            "" if row["sigma"] is None else fixed_at_least(row["sigma"], 2),
            fixed_at_most(row["mu"]),
            "" if row["share"] is None else f"{row['share']:.1%}",
        )
    console.print(table)
    if plan.borrowed is not None:
        console.print(
            f"\n[bold]Scores[/bold]  from an earlier release (SHA-256 {plan.borrowed.digest[:12]}, "
            f"{guarantee(plan.borrowed.epsilon, plan.borrowed.delta)}): they cost nothing here, and every weight "
            "is public before the run."
        )
    _print_training(console, plan, rows)
    _print_resources(console, plan, rows)

    console.print(f"\n[bold]Noise in the histograms[/bold], if there are {rows:,} records")
    table = make_table("column", "bins", "records per bin", "noise σ", "noise / records", right_from=1)
    for row in _planned_bins(plan, rows):
        table.add_row(
            escape(row["column"]),
            f"{row['bins']:,}",
            f"{row['expected']:,.0f}",
            f"{row['sigma']:,.0f}",
            f"{row['relative']:.0%}",
        )
    console.print(table)

    given = "guaranteed before the run" if plan.borrowed else OVER
    console.print(f"\n[bold]What a record of weight w loses at most[/bold], {given}")
    _print_curve(console, plan)
    weight = _outlier_weight(plan)
    if weight < 1:
        epsilon = plan.settings.outlier_epsilon or float(plan.whole_loss.epsilon_at(weight, budget.delta))
        console.print(
            f"Records above the threshold get weight {fixed_at_most(weight, 3)} at most: "
            f"ε ≤ {at_most(epsilon, 3)}."
        )
    elif plan.max_lost_mass is not None:
        console.print(
            f"Weights above the threshold will be as small as a mean lost weight of {plan.max_lost_mass:.3g} "
            "allows; how small is worked out from the released scores."
        )
    warnings(console, _warnings(plan, rows))


def _scores_from(plan: Plan) -> dict[str, Any] | None:
    borrowed = plan.borrowed
    if borrowed is None:
        return None
    return {"sha256": borrowed.digest, "epsilon": borrowed.epsilon, "delta": borrowed.delta}


def _warnings(plan: Plan, rows: int) -> list[str]:
    seconds, long = plan.model.resources(plan, rows).seconds, []
    if seconds > _LONG:
        long.append(
            f"a run takes about {seconds / 60:,.0f} minutes of one core; leave out columns that nobody needs, or "
            "see what another --model takes"
        )
    return [*cautions(plan, rows), *long, *csv_cautions(plan.schema)]


def _outlier_weight(plan: Plan) -> float:
    """The largest weight above the threshold; 1 where there is none."""
    if SCORES not in plan.charges and plan.borrowed is None:
        return 1.0
    rule = plan.rule
    if plan.max_lost_mass is not None:
        if plan.borrowed is None:
            return 1.0  # how small it is depends on the noise of the scores
        rule = solved_rule(plan, plan.borrowed.threshold, lowest=plan.borrowed.score.lowest)
    return min(plan.ceiling, float(rule.weight(np.array([1e-9]), 1.0)[0]))


def _print_curve(console: Console, plan: Plan) -> None:
    table = make_table("weight", "ε", "attack advantage", "", right_from=0)
    epsilons = plan.whole_loss.epsilon_at(_WEIGHTS, plan.budget.delta)
    advantages = plan.whole_loss.advantage_at(_WEIGHTS)
    whole = max(float(epsilons.max()), 1e-300)  # a tiny budget has no ε at its δ
    for weight, epsilon, advantage in zip(_WEIGHTS, epsilons, advantages, strict=True):
        table.add_row(f"{weight:.2f}", at_most(epsilon), percent_at_most(advantage, 2), bar(epsilon / whole))
    console.print(table)


def _training(plan: Plan, rows: int) -> dict[str, Any] | None:
    """The rounds of training and their noise, with the batch to expect."""
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


def _print_training(console: Console, plan: Plan, rows: int) -> None:
    planned = _training(plan, rows)
    if planned is None:
        return
    who = "record" if plan.schema.person is None else "person"
    console.print(
        f"\n[bold]Training[/bold]  {planned['epochs']:.3g} epochs: {planned['rounds']:,} rounds, in each a {who} "
        f"takes part with probability {planned['sampling_rate']:.4g} (about {planned['expected_batch']:,.0f} of "
        f"{rows:,} records)"
    )
    of_a_row = planned["noise_multiplier"] * plan.schema.rows_per_person
    console.print(
        f"Noise {at_least(of_a_row)} times the clip norm in each round, the least that keeps "
        f"all of it within the budget; training alone costs ε = {at_most(planned['epsilon_alone'])}."
    )


def _measurements(plan: Plan) -> list[dict[str, Any]]:
    rows = []
    for name, charge in plan.charges.items():
        sensitivity = _sensitivity(plan, charge)
        # The exponential mechanism adds no noise to a number.
        sigma = None if charge.choice else sigma_for(sensitivity, charge.mu)
        share = None if plan.mu is None else (charge.mu / plan.mu) ** 2
        rows.append({"name": name, "sensitivity": sensitivity, "sigma": sigma, "mu": charge.mu, "share": share})
    return rows


def _sensitivity(plan: Plan, charge: Charge) -> float:
    """How much of a measurement is a person's, in records, at most."""
    return charge.rows * _row_sensitivity(plan, charge)


def _row_sensitivity(plan: Plan, charge: Charge) -> float:
    if charge.name == HISTOGRAMS:
        return math.sqrt(len(plan.schema.learned))
    if charge.name in (RANGES, ZOOM):
        return look_sensitivity(plan.schema, charge.name)
    if charge.name in plan.scorer.shares(plan.schema):
        return plan.scorer.sensitivity(plan.schema, charge.name)
    if not charge.weighted:
        return 1.0
    return plan.model.sensitivity(plan.schema, charge.name)


def _print_resources(console: Console, plan: Plan, rows: int) -> None:
    resources = plan.model.resources(plan, rows)
    taken = f"{plan.model.what} {resources.megabytes:,.0f} MB at most. " if resources.megabytes else ""
    console.print(
        f"{taken}A run on {rows:,} records takes about {max(resources.seconds, 1.0):,.0f} s of one core, drawing "
        "as many included; reading and writing files come on top."
    )


def _planned_bins(plan: Plan, rows: int) -> list[dict[str, Any]]:
    sigma = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges[HISTOGRAMS].per_row)
    result = []
    wide = wide_columns(plan.schema) if RANGES in plan.charges else ()
    for i, bins in enumerate(choose_bins(plan.schema, rows=rows, sigma=sigma, per_bin=plan.per_bin)):
        # A look may place some more, for round numbers and for what is far off.
        count = how_many_located(rows, sigma) if i in wide else bins.values
        expected = rows / count
        result.append(
            {
                "column": bins.column.name,
                "bins": count,
                "expected": expected,
                "sigma": sigma,
                "relative": sigma / expected,
            }
        )
    return result
