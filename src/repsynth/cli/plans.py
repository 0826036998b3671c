"""What `plan` prints: charges, noise, cost in time and memory, and what a record loses by its weight."""

import math
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape

from repsynth.cells import choose_cells
from repsynth.cli.show import bar, make_table, purpose, rounded_up
from repsynth.cost import Cost
from repsynth.measure import sigma_for
from repsynth.models.naive_bayes import planned_sensitivity
from repsynth.models.pool import pool_size
from repsynth.plan import Plan, label_cells, most_candidate_cells, most_features, network_megabytes
from repsynth.privacy import NEIGHBOURS

_FEW_FOR_TABLES = 30.0
_NOISY_ROUND = 0.02  # of the clip norm and the expected sample
_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)


def plan_data(plan: Plan, rows: int) -> dict[str, Any]:
    """A plan as plain data."""
    delta = plan.settings.budget.delta
    return {
        "budget": {
            "epsilon": plan.settings.budget.epsilon,
            "delta": delta,
            "mu": plan.settings.budget.mu,
            "rho": plan.settings.budget.rho,
        },
        "neighbours": NEIGHBOURS,
        "measurements": _measurements(plan),
        "training": _training(plan, rows),
        "floor_epsilon": float(plan.cost.epsilon_at(0.0, delta)),
        "outlier_weight_at_most": _outlier_weight(plan),
        "outlier_epsilon_at_most": float(plan.cost.epsilon_at(_outlier_weight(plan), delta)),
        "expected_rows": rows,
        "model": plan.settings.model,
        "model_megabytes_at_most": _megabytes(plan, rows),
        "model_seconds_about": _seconds(plan, rows),
        "cells": _planned_cells(plan, rows),
        "epsilon_by_weight": {w: float(plan.cost.epsilon_at(w, delta)) for w in _WEIGHTS},
    }


def plan(console: Console, plan: Plan, rows: int) -> None:
    """A plan as tables."""
    budget = plan.settings.budget
    console.print(
        f"[bold]Budget[/bold]  ε = {budget.epsilon:.4g} at δ = {budget.delta:.3g}   "
        f"(μ = {budget.mu:.4g}, ρ = {budget.rho:.4g})"
    )
    console.print(f"Neighbours: {NEIGHBOURS}.\n")
    table = make_table("measurement", "what", "sensitivity", "noise σ", "charge μ", "share of μ²")
    for row in _measurements(plan):
        table.add_row(
            row["name"],
            purpose(row["name"], plan.settings.model),
            f"{row['sensitivity']:.3f}",
            "" if row["sigma"] is None else f"{row['sigma']:,.2f}",
            f"{row['mu']:.4f}",
            f"{row['share']:.1%}",
        )
    console.print(table)
    _print_training(console, plan, rows)
    _print_cost(console, plan, rows)

    console.print(f"\n[bold]Noise in the histograms[/bold], if there are {rows:,} records")
    table = make_table("column", "cells", "records per cell", "noise σ", "noise / records", right_from=1)
    for row in _planned_cells(plan, rows):
        table.add_row(
            escape(row["column"]),
            f"{row['cells']:,}",
            f"{row['expected']:,.0f}",
            f"{row['sigma']:,.0f}",
            f"{row['relative']:.0%}",
        )
    console.print(table)
    if rows < 4 * _planned_cells(plan, rows)[0]["sigma"]:
        console.print(
            "[yellow]warning:[/yellow] noise drowns the data at this size; use a larger epsilon or more records"
        )

    console.print("\n[bold]What a record of weight w loses at most[/bold], given the released scores")
    _print_curve(console, plan)
    weight = _outlier_weight(plan)
    if weight < 1:
        epsilon = plan.settings.outlier_epsilon or float(plan.cost.epsilon_at(weight, budget.delta))
        console.print(
            f"Records above the threshold get weight {weight:.3f} at most: ε ≤ {rounded_up(epsilon):.3g}."
        )
    if budget.delta * rows > 1:
        console.print("[yellow]warning:[/yellow] delta is larger than one over the number of records; lower it")


def _outlier_weight(plan: Plan) -> float:
    """The largest weight above the threshold; 1 where there is none."""
    if "threshold" not in plan.charges:
        return 1.0
    return min(plan.ceiling, float(plan.rule.weight(np.array([1e-9]), 1.0)[0]))


def _print_curve(console: Console, plan: Plan) -> None:
    table = make_table("weight", "ε", "attack advantage", "", right_from=0)
    epsilons = plan.cost.epsilon_at(_WEIGHTS, plan.settings.budget.delta)
    advantages = plan.cost.advantage_at(_WEIGHTS)
    for weight, epsilon, advantage in zip(_WEIGHTS, epsilons, advantages, strict=True):
        table.add_row(f"{weight:.2f}", f"{epsilon:.4g}", f"{advantage:.2%}", bar(epsilon / epsilons.max()))
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
        "epsilon_alone": Cost.of([training]).epsilon(plan.settings.budget.delta),
    }


def _print_training(console: Console, plan: Plan, rows: int) -> None:
    planned = _training(plan, rows)
    if planned is None:
        return
    console.print(
        f"\n[bold]Training[/bold]  {planned['epochs']:.3g} epochs: {planned['rounds']:,} rounds, in each a record "
        f"takes part with probability {planned['sampling_rate']:.4g} (about {planned['expected_batch']:,.0f} of "
        f"{rows:,})"
    )
    console.print(
        f"Noise {planned['noise_multiplier']:.4g} times the clip norm in each round, the least that keeps all of "
        f"it within the budget; training alone costs ε = {planned['epsilon_alone']:.4g}."
    )


def _measurements(plan: Plan) -> list[dict[str, Any]]:
    total = plan.settings.budget.mu
    rows = []
    for name, mu in plan.charges.items():
        sensitivity = _sensitivity(plan, name)
        chosen = name.startswith("structure")  # by the exponential mechanism: no noise is added to a number
        sigma = None if chosen else sigma_for(sensitivity, mu)
        rows.append(
            {"name": name, "sensitivity": sensitivity, "sigma": sigma, "mu": mu, "share": (mu / total) ** 2}
        )
    return rows


def _sensitivity(plan: Plan, name: str) -> float:
    """The sensitivity of a measurement, at most: how many tables will be worth choosing is not known yet."""
    columns = len(plan.schema.learned)
    if name in {"size", "threshold"} or name.startswith("structure"):
        return 1.0
    if name == "score":
        return math.sqrt(columns)
    return planned_sensitivity(plan.schema) if plan.settings.model == "naive-bayes" else math.sqrt(columns - 1)


def _print_cost(console: Console, plan: Plan, rows: int) -> None:
    """What a model takes, and where another one would do better."""
    if plan.settings.model == "naive-bayes":
        return
    what = "Tables take" if plan.training is None else "The network and the records take"
    console.print(
        f"{what} {_megabytes(plan, rows):,.0f} MB at most; {rows:,} records take about "
        f"{_seconds(plan, rows):,.0f} s beyond reading them."
    )
    if plan.training is not None:
        if plan.training.noise / (plan.training.rate * rows) > _NOISY_ROUND:
            console.print(
                "[yellow]warning:[/yellow] rounds are mostly noise at this size; naive-bayes may do better"
            )
        return
    if rows * plan.settings.budget.mu / len(plan.schema.learned) ** 0.5 < _FEW_FOR_TABLES:
        console.print(
            "[yellow]warning:[/yellow] tables will be mostly noise at this size; naive-bayes does better"
        )


def _megabytes(plan: Plan, rows: int) -> float:
    """Of the tables and what is expected of them: those of the label, and the candidates as far as allowed."""
    if plan.settings.model == "naive-bayes":
        return 0.0
    if plan.training is not None:
        return network_megabytes(plan.schema) + rows * (len(plan.schema.learned) + 1) * 4 / 2**20
    noise = (len(plan.schema.learned) - 1) ** 0.5 / plan.charges["synthesis"]
    candidates = most_candidate_cells(plan.schema, rows=rows, noise=noise)
    cells = label_cells(plan.schema) + min(2 * candidates, plan.settings.max_model_mb * 2**17)
    return max(1.0, cells * 8 / 2**20)


def _seconds(plan: Plan, rows: int) -> float:
    """Measured on one core: some 70 ns for a record and a table, 25 ns for one of the pool of `aim`; for a record
    in a round of training 35 µs and 1 ns for each pair of features."""
    columns = len(plan.schema.learned)
    if plan.settings.model == "naive-bayes":
        return 1.0
    if plan.training is not None:
        taking_part = plan.training.rate * rows * plan.training.rounds
        return 5.0 + taking_part * (35e-6 + 1e-9 * most_features(plan.schema) ** 2)
    tables = columns + columns * (columns - 1) / 2
    rounds = sum(name.startswith("structure ") for name in plan.charges)
    return max(1.0, rows * tables * 70e-9 * (1 + rounds) + rounds * 2 * tables * pool_size(rows) * 25e-9)


def _planned_cells(plan: Plan, rows: int) -> list[dict[str, Any]]:
    sigma = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges["score"])
    result = []
    fine = plan.settings.model != "naive-bayes"
    for cells in choose_cells(plan.schema, rows=rows, sigma=sigma, fine=fine):
        expected = rows / cells.values
        result.append(
            {
                "column": cells.column.name,
                "cells": cells.values,
                "expected": expected,
                "sigma": sigma,
                "relative": sigma / expected,
            }
        )
    return result
