"""What the commands print: tables for people, plain dictionaries for machines."""

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repsynth.accounting import advantage, epsilon_of
from repsynth.audit import Finding
from repsynth.cells import choose_cells
from repsynth.ledger import Balance
from repsynth.measure import sigma_for
from repsynth.models.naive_bayes import GRID, planned_sensitivity
from repsynth.models.pool import pool_size
from repsynth.noise import GaussianEvent
from repsynth.plan import STAGE_ONE, Plan, label_cells, most_candidate_cells
from repsynth.privacy import NEIGHBOURS
from repsynth.release import Release
from repsynth.risk import Summary
from repsynth.score import NAT
from repsynth.weigh import FULL, Random

_FEW_FOR_TABLES = 30.0
_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
_PURPOSE = {
    "size": "number of records",
    "score": "histogram of every column",
    "threshold": "histogram of the scores",
    "pairs": "weighted tables of label and column",
    "structure": "choice of further tables",
}


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
        "floor_epsilon": float(epsilon_of(plan.floor_mu, delta)),
        "outlier_weight_at_most": plan.ceiling,
        "expected_rows": rows,
        "model": plan.settings.model,
        "model_megabytes_at_most": _megabytes(plan, rows),
        "model_seconds_about": _seconds(plan, rows),
        "cells": _planned_cells(plan, rows),
        "epsilon_by_weight": {w: float(epsilon_of(plan.mu_at(w), delta)) for w in _WEIGHTS},
    }


def plan(console: Console, plan: Plan, rows: int) -> None:
    """A plan as tables."""
    budget = plan.settings.budget
    console.print(
        f"[bold]Budget[/bold]  ε = {budget.epsilon:.4g} at δ = {budget.delta:.3g}   "
        f"(μ = {budget.mu:.4g}, ρ = {budget.rho:.4g})"
    )
    console.print(f"Neighbours: {NEIGHBOURS}.\n")
    table = _table("measurement", "what", "sensitivity", "noise σ", "charge μ", "share of μ²")
    for row in _measurements(plan):
        table.add_row(
            row["name"],
            _purpose(row["name"], plan.settings.model),
            f"{row['sensitivity']:.3f}",
            "" if row["sigma"] is None else f"{row['sigma']:,.2f}",
            f"{row['mu']:.4f}",
            f"{row['share']:.1%}",
        )
    console.print(table)
    _print_cost(console, plan, rows)

    console.print(f"\n[bold]Noise in the histograms[/bold], if there are {rows:,} records")
    table = _table("column", "cells", "records per cell", "noise σ", "noise / records", right_from=1)
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
    _print_curve(console, {w: plan.mu_at(w) for w in _WEIGHTS}, budget.delta)
    weight = min(plan.ceiling, float(plan.rule.weight(np.array([1e-9]), 1.0)[0]))
    if "threshold" in plan.charges and weight < 1:
        epsilon = plan.settings.outlier_epsilon or float(epsilon_of(plan.mu_at(weight), budget.delta))
        console.print(
            f"Records above the threshold get weight {weight:.3f} at most: ε ≤ {_rounded_up(epsilon):.3g}."
        )
    if budget.delta * rows > 1:
        console.print("[yellow]warning:[/yellow] delta is larger than one over the number of records; lower it")


def release_data(release: Release) -> dict[str, Any]:
    """A release's account as plain data."""
    privacy, threshold = release.privacy, release.threshold
    return {
        "private": release.private,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "mu": privacy.mu,
        "rho": privacy.rho,
        "neighbours": NEIGHBOURS,
        "epsilon_by_delta": {f"{delta:g}": epsilon for delta, epsilon in privacy.epsilon_by_delta().items()},
        "attack_advantage_at_most": privacy.advantage,
        "true_positive_rate_at_most": {f"{fpr:g}": tpr for fpr, tpr in privacy.true_positive_rates().items()},
        "model": release.settings.model,
        "measurements": [
            msgspec.to_builtins(event) | {"mu": event.mu, "grid": _unit(event.name, release.settings.model)}
            for event in release.events
        ],
        "released_rows": release.rows,
        "rows_public": release.settings.public_rows is not None,
        "weights": release.settings.rule.name,
        "threshold": threshold
        and {
            "score": threshold.value / NAT,
            "share_above": threshold.share,
            "share_error": threshold.share_error,
            "outlier_weight": privacy.outlier_weight,
            "outlier_epsilon": privacy.outlier_epsilon,
        },
        "loss_distribution": [
            {"share": s.share, "epsilon_at_most": s.epsilon, "weight_at_most": s.weight}
            for s in privacy.distribution()
        ],
        "warnings": list(release.warnings),
    }


def release(console: Console, release: Release) -> None:
    """A release's account as tables."""
    privacy = release.privacy
    if not release.private:
        console.print("[bold red]NOT PRIVATE[/bold red]: the noise came from a seed; for experiments only.\n")
    console.print(
        f"[bold]Privacy[/bold]  ε = {privacy.epsilon:.4g} at δ = {privacy.delta:.3g}   "
        f"(μ = {privacy.mu:.4g}, ρ = {privacy.rho:.4g})"
    )
    console.print(f"Neighbours: {NEIGHBOURS}.")
    others = ", ".join(f"{eps:.3g} at δ = {d:g}" for d, eps in privacy.epsilon_by_delta().items())
    console.print(f"The same guarantee at other δ: ε = {others}.")
    rates = ", ".join(f"{tpr:.1%} at {fpr:.1%} false alarms" for fpr, tpr in privacy.true_positive_rates().items())
    console.print(
        f"No attack can tell that a record is in the data with an advantage above {privacy.advantage:.1%} "
        f"over guessing, nor find more members than {rates}.\n"
    )
    table = _table("measurement", "what", "sensitivity", "noise σ", "charge μ")
    for event in release.events:
        unit = _unit(event.name, release.settings.model)
        noise = (
            (f"{event.sensitivity / unit:.3f}", f"{event.sigma / unit:,.2f}")
            if isinstance(event, GaussianEvent)
            else ("1.000", f"η = {event.eta:.3g} × {event.rounds}")
        )
        table.add_row(event.name, _purpose(event.name, release.settings.model), *noise, f"{event.mu:.4f}")
    console.print(table)
    source = "declared public" if release.settings.public_rows is not None else "noisy count"
    console.print(f"Records: {release.rows:,.0f} ({source}). Weights: {release.settings.rule.name}.\n")
    _print_outliers(console, release)
    for warning in release.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def outcome(console: Console, release: Release, folder: Path, output: Path, rows: int) -> None:
    """What `synthesize` did, in a few lines."""
    privacy = release.privacy
    console.print(f"Spent ε = {privacy.epsilon:.4g} at δ = {privacy.delta:.3g}.")
    if release.threshold:
        who = "chosen at random" if isinstance(release.settings.rule, Random) else "outliers"
        console.print(
            f"About {release.threshold.share:.0%} ± {release.threshold.share_error:.1%} of the records are "
            f"{who}. Given the released scores, they lose at most ε = {_rounded_up(privacy.outlier_epsilon):.3g}."
        )
    console.print(f"Wrote {count(rows)} to {output}")
    console.print(f"Wrote the release to {folder}   (see: repsynth inspect {folder})")
    for warning in release.warnings:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def demo(console: Console, folder: Path, rows: int) -> None:
    """Where the demo left its files."""
    table = _table("file", "what it is")
    for name, what in (
        ("people.csv", "6,000 simulated people, 2 % of them outliers"),
        ("schema.toml", "what is publicly known about them"),
        ("release/", "the differentially private release"),
        ("synthetic.csv", f"{rows:,} synthetic people"),
        ("summary.txt", "the account above"),
    ):
        table.add_row(f"{folder}/{name}", what)
    console.print(table)
    console.print(f"More rows at no cost: repsynth sample {folder}/release -n 100 -o more.csv")


def count(rows: int) -> str:
    """So many synthetic rows, in words.

    >>> count(1), count(2000)
    ('1 synthetic row', '2,000 synthetic rows')
    """
    return f"{rows:,} synthetic row{'' if rows == 1 else 's'}"


def dossier(console: Console, output: Path, summary: Summary | None) -> None:
    """Where the dossier is; its summary only when asked for."""
    console.print(f"Wrote {output}: [bold red]PRIVATE[/bold red], for the curator only. Do not publish any of it.")
    if summary is None:
        return
    table = _table("PRIVATE summary", "value", right_from=1)
    table.add_row("records", f"{summary.records:,}")
    table.add_row("largest realised ε", f"{summary.largest_epsilon:.4g}")
    table.add_row("median realised ε", f"{summary.median_epsilon:.4g}")
    table.add_row("largest to median", f"{summary.max_to_median:.2f}")
    table.add_row("Gini coefficient", f"{summary.gini:.3f}")
    table.add_row("gap between 90 % and 10 % quantiles", f"{summary.quantile_gap:.4g}")
    table.add_row("share with a guaranteed ε below the total", f"{summary.guaranteed_share:.1%}")
    table.add_row("bias bound, from weights", f"{summary.weight_bias:.4g}")
    table.add_row("bias bound, from clipping", f"{summary.clip_bias:.4g}")
    console.print(table)
    if summary.no_guarantee:
        console.print(f"No guaranteed ε below the total: {summary.no_guarantee}.")


def balance_data(balance: Balance) -> dict[str, Any]:
    """A dataset's budget as plain data."""
    return {
        "dataset": balance.dataset,
        "unit": balance.unit,
        "neighbours": balance.neighbours,
        "limit": {"epsilon": balance.limit.epsilon, "delta": balance.limit.delta, "mu": balance.limit.mu},
        "spent": {"epsilon": balance.epsilon(balance.spent_mu), "mu": balance.spent_mu},
        "remaining": {"epsilon": balance.epsilon(balance.remaining_mu), "mu": balance.remaining_mu},
        "runs": [
            {
                "run": s.run,
                "who": s.who,
                "what": s.what,
                "when": s.when,
                "mu": s.mu,
                "epsilon": balance.epsilon(s.mu),
                "finished": s.finished,
            }
            for s in balance.spendings
        ],
    }


def balance(console: Console, balance: Balance) -> None:
    """A dataset's budget as a table with a bar."""
    limit = balance.limit
    console.print(
        f"[bold]{escape(balance.dataset)}[/bold]  limit ε = {limit.epsilon:.4g} at δ = {limit.delta:.3g} "
        f"(μ = {limit.mu:.4g}), protecting {balance.unit}: {balance.neighbours}"
    )
    if balance.spendings:
        table = _table("run", "when (UTC)", "who", "what", "ε alone", "share of μ²", "", right_from=4)
        for s in balance.spendings:
            table.add_row(
                s.run,
                s.when.removesuffix("+00:00").replace("T", " "),
                escape(s.who),
                escape(s.what),
                f"{balance.epsilon(s.mu):.4g}",
                f"{(s.mu / limit.mu) ** 2:.1%}",
                "" if s.finished else "not finished: counts as spent",
            )
        console.print(table)
    used = min((balance.spent_mu / limit.mu) ** 2, 1.0)
    console.print(f"[{'█' * round(40 * used):░<40}] {used:.1%} spent")
    console.print(
        f"spent ε = {balance.epsilon(balance.spent_mu):.4g}, one more run may cost "
        f"ε = {balance.epsilon(balance.remaining_mu):.4g} (μ = {balance.remaining_mu:.4g})\n"
    )


def audit_data(findings: list[Finding], private: bool) -> dict[str, Any]:
    """An audit as plain data."""
    return {
        "private": private,
        "exceeded": any(finding.exceeded for finding in findings),
        "findings": [
            {
                "target": f.target,
                "attack": f.attack,
                "measurement": f.measurement,
                "claimed_mu": f.claimed_mu,
                "guaranteed_mu": f.guaranteed_mu,
                "lower_mu": f.lower_mu,
                "claimed_epsilon": f.claimed_epsilon,
                "lower_epsilon": f.lower_epsilon,
                "exceeded": f.exceeded,
            }
            for f in findings
        ],
    }


def audit(console: Console, findings: list[Finding], private: bool, runs: int) -> None:
    """An audit as a table, and its verdict."""
    if private:
        console.print("[bold red]PRIVATE[/bold red]: what follows depends on the data; for the curator only.\n")
    headers = ("claimed ε", "guaranteed ε", "proven ε", "share of μ proven")
    table = _table("record", "attack", "measurement", *headers, "", right_from=3)
    for f in findings:
        share = f"{f.lower_mu / f.claimed_mu:.2f}" if f.claimed_mu > 0 else "-"
        verdict = "[bold red]EXCEEDED[/bold red]" if f.exceeded else ""
        before = "" if f.guaranteed_mu is None else f"{float(epsilon_of(f.guaranteed_mu, f.delta)):.4f}"
        table.add_row(
            *(f.target, f.attack, f.measurement, f"{f.claimed_epsilon:.4f}", before),
            *(f"{f.lower_epsilon:.4f}", share, verdict),
        )
    console.print(table)
    console.print(
        f"Proven: what an attack with {runs:,} runs shows at 95 % confidence, so one bound in twenty may lie\n"
        "above its claim by chance; a claim counts as exceeded where it does so at 99.999 %."
    )
    broken = [f for f in findings if f.exceeded]
    if not broken:
        console.print("No claim was exceeded.")
        return
    parts = sorted({f.measurement for f in broken} - {"all"}) or ["all"]
    console.print(f"[bold red]A claim was exceeded.[/bold red] Look at the measurement: {', '.join(parts)}.")


def _print_outliers(console: Console, release: Release) -> None:
    privacy = release.privacy
    strata = privacy.distribution()
    if not strata or release.threshold is None:
        console.print("All records weigh the same, so all have the same bound.\n")
        return
    console.print(
        f"[bold]Who loses how much[/bold], given the released scores: about {release.threshold.share:.0%} ± "
        f"{release.threshold.share_error:.1%} of the records lie above the threshold."
    )
    groups: dict[float, float] = {}
    for stratum in strata:
        bound = _rounded_up(stratum.epsilon)
        groups[bound] = groups.get(bound, 0.0) + stratum.share
    table = _table("ε at most", "noisy share of records", "", right_from=0)
    for epsilon, share in sorted(groups.items(), reverse=True):
        table.add_row(f"{epsilon:.3g}", f"{share:.1%}", _bar(share))
    console.print(table)
    console.print("(the noisy histogram of the scores through their weights: already paid for)\n")


def _print_curve(console: Console, mus: dict[float, float], delta: float) -> None:
    table = _table("weight", "ε", "attack advantage", "", right_from=0)
    largest = max(float(epsilon_of(mu, delta)) for mu in mus.values())
    for weight, mu in mus.items():
        epsilon = float(epsilon_of(mu, delta))
        table.add_row(f"{weight:.2f}", f"{epsilon:.4g}", f"{float(advantage(mu)):.2%}", _bar(epsilon / largest))
    console.print(table)


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


def _unit(name: str, model: str) -> float:
    """How many grid units, in which sensitivity and noise are kept, make one record or one unit of u."""
    if name in STAGE_ONE:
        return 1.0
    return GRID if model == "naive-bayes" else FULL


def _purpose(name: str, model: str) -> str:
    kind = name.split()[0]
    if kind == "synthesis":
        return "weighted sums for the model" if model == "naive-bayes" else "the chosen tables, weighted"
    return _PURPOSE[kind]


def _print_cost(console: Console, plan: Plan, rows: int) -> None:
    """What a marginal model takes, and where another one would do better."""
    if plan.settings.model == "naive-bayes":
        return
    console.print(
        f"Tables take {_megabytes(plan, rows):,.0f} MB at most; {rows:,} records take about "
        f"{_seconds(plan, rows):,.0f} s beyond reading them."
    )
    if rows * plan.settings.budget.mu / len(plan.schema.learned) ** 0.5 < _FEW_FOR_TABLES:
        console.print(
            "[yellow]warning:[/yellow] tables will be mostly noise at this size; naive-bayes does better"
        )


def _megabytes(plan: Plan, rows: int) -> float:
    """Of the tables and what is expected of them: those of the label, and the candidates as far as allowed."""
    if plan.settings.model == "naive-bayes":
        return 0.0
    noise = (len(plan.schema.learned) - 1) ** 0.5 / plan.charges["synthesis"]
    candidates = most_candidate_cells(plan.schema, rows=rows, noise=noise)
    cells = label_cells(plan.schema) + min(2 * candidates, plan.settings.max_model_mb * 2**17)
    return max(1.0, cells * 8 / 2**20)


def _seconds(plan: Plan, rows: int) -> float:
    """Measured on one core: some 70 ns for a record and a table, 25 ns for one of the pool of `aim`."""
    columns = len(plan.schema.learned)
    if plan.settings.model == "naive-bayes":
        return 1.0
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


def _rounded_up(epsilon: float) -> float:
    """A bound to three digits: never below itself.

    >>> _rounded_up(0.24011), _rounded_up(1.0)
    (0.241, 1.0)
    """
    unit = 10.0 ** (2 - math.floor(math.log10(max(epsilon, 1e-9))))
    return math.ceil(epsilon * unit * (1 - 1e-12)) / unit


def _bar(share: float) -> str:
    return "█" * round(30 * min(max(share, 0.0), 1.0))


def _table(*headers: str, right_from: int = 2) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for i, header in enumerate(headers):
        right = i >= right_from and header != ""
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    return table
