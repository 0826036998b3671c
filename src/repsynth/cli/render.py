"""What commands print: tables for people, in the words of the library."""

import math
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repsynth.columns.adaptive_histogram import COARSE
from repsynth.columns.cells import first_cells
from repsynth.knobs import knobs_of
from repsynth.mechanism.meter import sigma_for
from repsynth.planning.cautions import cautions, csv_cautions
from repsynth.planning.plan import Plan
from repsynth.privacy.events import Charge, Event, ExponentialEvent, SampledEvent
from repsynth.privacy.ledger import Balance
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import counted_rows, neighbours_of, of_persons
from repsynth.privacy.shown import (
    at_least,
    at_most,
    fixed_at_least,
    fixed_at_most,
    percent_at_most,
)
from repsynth.release.account import Noise, mu_of_event, noise_in_records, purpose
from repsynth.release.accuracy import Expected, Mean, Z
from repsynth.release.release import Release
from repsynth.schema import Schema
from repsynth.scoring.stage import LOOKS, SCORES, look_sensitivity, solved_rule

_MOST_COLUMNS, _MOST_GROUPS = 20, 12
_WEIGHTS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.0)
_LONG = 120.0
"""Seconds of one core beyond which a plan warns of them."""

OVER = "over the releases in which a record weighs no more"
"""What a bound by weight is about: not the one release at hand, but all those that weigh a record so little."""


def release(console: Console, release: Release) -> None:
    privacy = release.privacy
    if not release.publishable:
        console.print("[bold red]NOT PRIVATE[/bold red]: the noise came from a seed; for experiments only.\n")
    whole = guarantee(privacy.epsilon, privacy.delta)
    console.print(f"[bold]Privacy[/bold]  {whole}{_gaussian(privacy.mu, privacy.rho)}")
    _print_unit(console, release.schema)
    others = ", ".join(
        f"{at_most(eps, 3)} at δ = {at_most(d, 6)}" for d, eps in privacy.epsilon_by_delta().items()
    )
    console.print(f"The same guarantee at other δ: ε = {others}.")
    rates = ", ".join(
        f"{percent_at_most(tpr)} at {fpr:.1%} false alarms" for fpr, tpr in privacy.true_positive_rates().items()
    )
    unit = "record" if release.schema.person is None else "person"
    console.print(
        f"No attack can tell that a {unit} is in the data with an advantage above "
        f"{percent_at_most(privacy.advantage)} "
        f"over guessing, nor find more members than {rates}.\n"
    )
    noises, rows = noise_in_records(release), []
    for event in release.events:
        mu = mu_of_event(event)
        charge = "" if mu is None else fixed_at_most(mu)
        noise = _noise(event, noises.get(event.name))
        rows.append((event.name, purpose(event.name, release.plan.model), *noise, charge))
    print_table(console, ("measurement", "what", "sensitivity", "noise σ", "charge μ"), rows)
    bounded = privacy.loss.training_failure > 0
    accounted = "bounded by a Gaussian" if bounded else "composed as a privacy loss distribution"
    for event in release.events:
        if isinstance(event, SampledEvent):
            console.print(
                f"Training: {event.rounds:,} rounds, in each a {unit} takes part with probability "
                f"{event.rate:.4g}; {accounted}."
            )
    if release.schema.measured is not None:
        alone = (privacy.run_loss, Loss.of_measured(release.schema.measured))
        run, measured = (at_most(loss.epsilon(privacy.delta)) for loss in alone)
        console.print(f"The schema was measured on the same table: ε = {measured}; this run alone: ε = {run}.")
    source = "declared public" if release.plan.public_rows is not None else "noisy count"
    what = "Records" if release.schema.person is None else "Rows that count"
    console.print(f"{what}: {release.rows:,.0f} ({source}). Weights: {release.plan.rule.name}.")
    console.print(f"Model: {release.plan.model.name}.\n")
    _print_borrowed(console, release)
    _print_outliers(console, release)
    warnings(console, [*release.warnings, *csv_cautions(release.schema)])


def _print_unit(console: Console, schema: Schema) -> None:
    console.print(f"Neighbours: {neighbours_of(schema)}.")
    if schema.person is not None:
        console.print(f"Persons: {escape(of_persons(schema.person))}.")


def warnings(console: Console, texts: Iterable[str]) -> None:
    for text in texts:
        console.print(f"[yellow]warning:[/yellow] {escape(text)}")


def outcome(
    console: Console, release: Release, folder: Path, output: Path, rows: int, texts: Iterable[str]
) -> None:
    privacy = release.privacy
    console.print(f"Spent {guarantee(privacy.epsilon, privacy.delta)}.")
    console.print(f"Model: {release.plan.model.name}.")
    if privacy.borrowed:
        console.print(
            "Scores came from an earlier release. Guaranteed before the run: records above its threshold lose at "
            f"most ε = {at_most(privacy.outlier_epsilon, 3)}."
        )
    elif privacy.fraction_above:
        who = "outliers" if release.plan.scorer.targets_outliers else "chosen at random"
        they = "they" if release.schema.person is None else "all rows of a person"
        console.print(
            f"About {privacy.fraction_above} of the {counted_rows(release.schema)} are {who}. Over the releases "
            f"in which {they} are, they lose at most ε = {at_most(privacy.outlier_epsilon, 3)}."
        )
    console.print(f"Wrote {count(rows)} to {escape(str(output))}")
    hint = f"repsynth inspect {shlex.quote(str(folder))}"
    console.print(f"Wrote the release to {escape(str(folder))}   (see: {escape(hint)})")
    warnings(console, texts)


def count(rows: int) -> str:
    """So many synthetic rows, in words.

    >>> count(1), count(2000)
    ('1 synthetic row', '2,000 synthetic rows')
    """
    return f"{rows:,} synthetic row{'' if rows == 1 else 's'}"


def balance_data(balance: Balance) -> dict[str, Any]:
    return {
        "dataset": balance.dataset,
        "unit": balance.unit,
        "neighbours": balance.neighbours,
        "limit": {"epsilon": balance.limit.epsilon, "delta": balance.limit.delta, "mu": balance.limit.mu},
        "spent": {
            "epsilon": balance.spent_epsilon,
            "mu": balance.spent_bound.mu,
            "share": balance.share_spent,
            "exceeded": balance.exceeded,
        },
        "remaining": {"epsilon": balance.epsilon(balance.remaining), "mu": balance.remaining.mu},
        "runs": [
            {
                "run": s.run,
                "who": s.who,
                "what": s.what,
                "when": s.when,
                "mu": s.loss.mu,
                "epsilon": balance.epsilon_alone(s),
                "share": balance.share(s.bound),
                "finished": s.finished,
            }
            for s in balance.spendings
        ],
    }


def balance(console: Console, balance: Balance) -> None:
    limit = balance.limit
    protects = "" if balance.unit is None else f", protecting {balance.unit}: {escape(balance.neighbours or '')}"
    console.print(
        f"[bold]{escape(balance.dataset)}[/bold]  limit {guarantee(limit.epsilon, limit.delta)} "
        f"(μ = {at_most(limit.mu)}){protects}"
    )
    rows = [
        (
            *(s.run, s.when.removesuffix("+00:00").replace("T", " "), escape(s.who), escape(s.what)),
            *(at_most(balance.epsilon_alone(s)), percent_at_most(balance.share(s.bound))),
            "" if s.finished else "not finished: counts as spent",
        )
        for s in balance.spendings
    ]
    if rows:
        headers = ("run", "when (UTC)", "who", "what", "ε alone", "share of μ²", "")
        print_table(console, headers, rows, right_from=4)
    used, remaining = balance.share_spent, balance.remaining
    console.print(f"[{'█' * round(40 * used):░<40}] {percent_at_most(used)} spent")
    if balance.exceeded:
        console.print(
            f"spent ε = {at_most(balance.spent_epsilon)}, more than the limit: it takes no further run\n"
        )
        return
    console.print(
        f"spent ε = {at_most(balance.spent_epsilon)}, one more run may cost "
        f"ε = {at_least(balance.epsilon(remaining))} (μ = {at_least(remaining.mu or 0.0)})\n"
    )


def _print_borrowed(console: Console, release: Release) -> None:
    borrowed, privacy = release.stage.borrowed, release.privacy
    if borrowed is None:
        return
    both, outliers = privacy.epsilon_in_both(), privacy.epsilon_in_both(borrowed.threshold.value)
    assert both is not None
    assert outliers is not None
    console.print(
        f"[bold]Scores[/bold] and threshold come from an earlier release (SHA-256 {borrowed.digest[:12]}, "
        f"{guarantee(borrowed.epsilon, borrowed.delta)}): they cost nothing here, and every weight was "
        f"public before the run. Who was in that table, too, has lost ε = {at_most(both, 3)} in all at most; "
        f"above the threshold, over the releases in which they are, {at_most(outliers, 3)}.\n"
    )


def _print_outliers(console: Console, release: Release) -> None:
    privacy = release.privacy
    if privacy.fraction_above is None:
        console.print("All records weigh the same, so all have the same bound.\n")
        return
    counted = counted_rows(release.schema)
    whose = f"of the earlier table's {counted}" if privacy.borrowed else f"of the {counted}"
    given = "guaranteed before the run" if privacy.borrowed else OVER
    console.print(
        f"[bold]Who loses how much[/bold], {given}: about {privacy.fraction_above} {whose} lie above the "
        "threshold."
    )
    if release.schema.person is not None:
        console.print("A line holds for a person all of whose rows are like those in it.")
    if release.plan.max_lost_mass is not None:
        rule = release.rule
        knobs = ", ".join(
            f"{knob.name.replace('_', ' ')} {getattr(rule, knob.name):.3g}" for knob in knobs_of(type(rule))
        )
        console.print(
            f"As strong as a mean lost weight of {release.plan.max_lost_mass:.3g} allows, by the released scores: "
            f"{knobs}, which loses about {release.lost_mass:.2g}."
        )
    of_whom = "records" if release.schema.person is None else "weighted rows"
    rows = [(at_most(eps, 3), str(part), bar(part.value)) for eps, part in privacy.by_epsilon(rounded_up).items()]
    print_table(console, ("ε at most", f"noisy fraction of {of_whom}", ""), rows, right_from=0)
    paid = "paid for by the earlier release" if privacy.borrowed else "already paid for"
    console.print(f"(the noisy histogram of the scores through their weights: {paid})\n")


def _noise(event: Event, noise: Noise | None) -> tuple[str, str]:
    """Sensitivity and noise of a measurement, in records."""
    if isinstance(event, ExponentialEvent):
        return "1.000", f"η = {at_most(event.eta, 3)} × {event.rounds}"
    assert noise is not None
    times = f" × {event.rounds}" if isinstance(event, SampledEvent) else ""
    return fixed_at_most(noise.sensitivity, 3), f"{fixed_at_least(noise.sigma, 2)}{times}"


def demo(console: Console, folder: Path, rows: int) -> None:
    files = (
        ("people.csv", "6,000 simulated people, 2 % of them outliers"),
        ("schema.toml", "what is publicly known about them"),
        ("release/", "the differentially private release"),
        ("synthetic.csv", f"{rows:,} synthetic people"),
        ("summary.txt", "the account above"),
    )
    print_table(console, ("file", "what it is"), ((f"{folder}/{name}", what) for name, what in files))
    console.print(f"More rows at no cost: repsynth sample {folder}/release -n 100 -o more.csv")


def plan_data(plan: Plan, rows: int) -> dict[str, Any]:
    delta, resources, source = plan.delta, plan.model.resources(plan, rows), plan.borrowed
    scores_from = source and {"sha256": source.digest, "epsilon": source.epsilon, "delta": source.delta}
    return {
        "budget": {"epsilon": plan.budget.epsilon, "delta": delta, "mu": plan.mu, "rho": plan.rho},
        "neighbours": neighbours_of(plan.schema),
        "measurements": _measurements(plan),
        "training": _training(plan, rows),
        "floor_epsilon": float(plan.whole_loss.epsilon_at(0.0, delta)),
        "outlier_weight_at_most": _outlier_weight(plan),
        "max_lost_mass": plan.max_lost_mass,
        "outlier_epsilon_at_most": float(plan.whole_loss.epsilon_at(_outlier_weight(plan), delta)),
        "expected_rows": rows,
        "model": plan.model.name,
        "scores_from": scores_from,
        "model_megabytes_at_most": resources.megabytes,
        "model_seconds_about": resources.seconds,
        "bins": _planned_bins(plan, rows),
        "epsilon_by_weight": {w: float(plan.whole_loss.epsilon_at(w, delta)) for w in _WEIGHTS},
        "warnings": _warnings(plan, rows),
    }


def plan(console: Console, plan: Plan, rows: int) -> None:
    budget = plan.budget
    whole = guarantee(budget.epsilon, budget.delta)
    console.print(f"[bold]Budget[/bold]  {whole}{_gaussian(plan.mu, plan.rho)}")
    _print_unit(console, plan.schema)
    console.print(f"Model: {plan.model.name}.\n")
    measured = (
        (
            *(row["name"], purpose(row["name"], plan.model), fixed_at_most(row["sensitivity"], 3)),
            "" if row["sigma"] is None else fixed_at_least(row["sigma"], 2),
            fixed_at_most(row["mu"]),
            "" if row["share"] is None else f"{row['share']:.1%}",
        )
        for row in _measurements(plan)
    )
    print_table(console, ("measurement", "what", "sensitivity", "noise σ", "charge μ", "share of μ²"), measured)
    if plan.borrowed is not None:
        console.print(
            f"\n[bold]Scores[/bold]  from an earlier release (SHA-256 {plan.borrowed.digest[:12]}, "
            f"{guarantee(plan.borrowed.epsilon, plan.borrowed.delta)}): they cost nothing here, and every weight "
            "is public before the run."
        )
    _print_training(console, plan, rows)
    _print_resources(console, plan, rows)

    console.print(f"\n[bold]Noise in the histograms[/bold], if there are {rows:,} records")
    bins = (
        (
            *(escape(row["column"]), f"{row['bins']:,}", f"{row['expected']:,.0f}"),
            *(f"{row['sigma']:,.0f}", f"{row['relative']:.0%}"),
        )
        for row in _planned_bins(plan, rows)
    )
    headers = ("column", "bins", "records per bin", "noise σ", "noise / records")
    print_table(console, headers, bins, right_from=1)

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
    epsilons = plan.whole_loss.epsilon_at(_WEIGHTS, plan.budget.delta)
    advantages = plan.whole_loss.advantage_at(_WEIGHTS)
    whole = max(float(epsilons.max()), 1e-300)  # a tiny budget has no ε at its δ
    rows = (
        (f"{weight:.2f}", at_most(epsilon), percent_at_most(advantage, 2), bar(epsilon / whole))
        for weight, epsilon, advantage in zip(_WEIGHTS, epsilons, advantages, strict=True)
    )
    print_table(console, ("weight", "ε", "attack advantage", ""), rows, right_from=0)


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


def _print_resources(console: Console, plan: Plan, rows: int) -> None:
    resources = plan.model.resources(plan, rows)
    taken = f"{plan.model.what} {resources.megabytes:,.0f} MB at most. " if resources.megabytes else ""
    console.print(
        f"{taken}A run on {rows:,} records takes about {max(resources.seconds, 1.0):,.0f} s of one core, drawing "
        "as many included; reading and writing files come on top."
    )


def _planned_bins(plan: Plan, rows: int) -> list[dict[str, Any]]:
    sigma = sigma_for(len(plan.schema.learned) ** 0.5, plan.charges[COARSE].per_row)
    result = []
    for bins in first_cells(plan.schema, rows=rows, sigma=sigma):
        count = bins.values
        noise = {"sigma": sigma, "relative": sigma / (rows / count)}
        result.append({"column": bins.column.name, "bins": count, "expected": rows / count, **noise})
    return result


def expected(console: Console, found: Expected) -> None:
    """What an analyst may rely on, from the release alone."""
    console.print(
        "[bold]What an analyst may rely on[/bold], from the released noise alone (may be published), 95 %:\n"
    )
    means = {mean.column: mean for mean in found.means}
    rows = (
        (escape(each.column), str(len(each.bins)), _points(each.standard_error), *_mean(means.get(each.column)))
        for each in found.columns[:_MOST_COLUMNS]
    )
    headers = ("column", "bins", "share of a bin", "mean by bins", "noise", "binning, at most")
    print_table(console, headers, rows, right_from=1)
    if len(found.columns) > _MOST_COLUMNS:
        rest = max(shares.standard_error for shares in found.columns[_MOST_COLUMNS:])
        console.print(f"and {len(found.columns) - _MOST_COLUMNS} more columns, a share {_points(rest)} at most")
    _print_tables(console, found)
    if found.group_means:
        groups = (
            (escape(mean.column), escape(mean.by), *_mean(mean)[:2], _ends(mean))
            for mean in found.group_means[:_MOST_GROUPS]
        )
        console.print()
        print_table(console, ("mean of", "where", "mean by groups", "noise, at least", "lies between"), groups)
        if len(found.group_means) > _MOST_GROUPS:
            console.print(f"and {len(found.group_means) - _MOST_GROUPS} more (--json has all)")
    console.print()
    for note in found.notes:
        console.print(escape(note))


def _print_tables(console: Console, found: Expected) -> None:
    by_measurement: dict[str, list[float]] = {}
    bounds = {table.measurement: table.lower_bound for table in found.tables}
    for table in found.tables:
        by_measurement.setdefault(table.measurement, []).append(table.standard_error)
    least = {True: "at least: weights and clipping come on top", False: ""}
    rows = [
        (name, str(len(errors)), _points(min(errors)), _points(max(errors)), least[bounds[name]])
        for name, errors in by_measurement.items()
    ]
    if rows:
        console.print()
        print_table(console, ("the model's tables", "how many", "a cell, from", "to", ""), rows, right_from=1)


def _mean(mean: Mean | None) -> tuple[str, str, str]:
    if mean is None:
        return "", "", ""
    return _number(mean.mean), f"± {_at_most(Z * mean.standard_error)}", _at_most(mean.binning)


def _ends(mean: Mean) -> str:
    if mean.interval_95 is None:
        return "not known"
    low, high = mean.interval_95
    below = fixed_at_least(low, 0) if abs(low) >= 1000 else at_least(low, 4)
    above = fixed_at_most(high, 0) if abs(high) >= 1000 else at_most(high, 4)
    return f"{below} and {above}"


def _at_most(value: float) -> str:
    return fixed_at_most(value, 0) if value >= 100 else at_most(value, 2)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _points(standard_error: float) -> str:
    return f"± {fixed_at_most(100 * Z * standard_error, 2)} points"


def rounded_up(epsilon: float) -> float:
    """A bound to three digits: never below itself.

    >>> rounded_up(0.24011), rounded_up(1.0)
    (0.241, 1.0)
    """
    return float(at_most(epsilon, 3))


def guarantee(epsilon: float, delta: float) -> str:
    """ε at δ, in words.

    >>> guarantee(0.99999999, 1e-9)
    'ε = 1 at δ = 1e-09'
    """
    return f"ε = {at_most(epsilon)} at δ = {at_most(delta, 3)}"


def _gaussian(mu: float | None, rho: float | None) -> str:
    """The same as μ and ρ; a training has neither."""
    return "" if mu is None or rho is None else f"   (μ = {at_most(mu)}, ρ = {at_most(rho)})"


def bar(fraction: float) -> str:
    """A bar for a fraction between 0 and 1."""
    return "█" * round(30 * min(max(fraction, 0.0), 1.0))


def print_table(
    console: Console, headers: Sequence[str], rows: Iterable[Sequence[str]], *, right_from: int = 2
) -> None:
    table = make_table(*headers, right_from=right_from)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def make_table(*headers: str, right_from: int = 2) -> Table:
    """A plain table; columns from `right_from` on hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for i, header in enumerate(headers):
        right = i >= right_from and header != ""
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    return table
