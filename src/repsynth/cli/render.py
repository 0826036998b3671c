"""Print what the API returns, as tables for people. `--json` needs only the functions that end in `_data`."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repsynth.attacks.statistics import DOUBTFUL, HOLDS, Finding, overall
from repsynth.curator.check import TableCheck
from repsynth.curator.dossier import DossierSummary
from repsynth.curator.infer import Decision, Draft
from repsynth.curator.private_schema import MeasuredDraft
from repsynth.curator.profile import percent
from repsynth.evaluation.export import GROUP_HEADERS, Measure, group_row, measure_row, show
from repsynth.knobs import knobs_of
from repsynth.planning.figures import (
    all_warnings,
    loss_by_weight,
    outlier_weight,
    planned_bins,
    planned_measurements,
    planned_training,
)
from repsynth.planning.plan import Plan
from repsynth.planning.warnings import csv_warnings
from repsynth.privacy.events import Event, ExponentialEvent, SampledEvent
from repsynth.privacy.formatting import (
    fixed_lower,
    fixed_upper,
    lower,
    percent_lower,
    percent_upper,
    upper,
)
from repsynth.privacy.ledger import Balance
from repsynth.privacy.loss import Loss
from repsynth.privacy.unit import counted_rows, neighbours_of, of_persons
from repsynth.release.account import Noise, mu_of_event, noise_in_records, purpose
from repsynth.release.accuracy import Expected, Mean, Z
from repsynth.release.release import Release
from repsynth.sampling.constraints import Drawn, Support
from repsynth.schema import Schema
from repsynth.scoring.transfer import weights_are_public

if TYPE_CHECKING:  # these need scikit-learn
    from repsynth.attacks.results import AttackResult, Exposure, Guess
    from repsynth.attacks.statistics import Estimate
    from repsynth.evaluation.evaluate import Evaluation

KINDS = ("missing", "unreadable", "undeclared", "special", "below", "above", "rounded")
"""What can become of a cell that is not read as it is."""
_MOST_COLUMNS, _MOST_GROUPS = 20, 12
_NARROW = 100
"""Columns of a terminal below which tables leave some numbers to --json and to files."""
_BEST = "best possible"
_METHODS = {"bare": "no noise", "uniform": "uniform", "reps": "as planned"}
PRIVATE = "[bold red]PRIVATE[/bold red]: what follows depends on the data; for the curator only."
_FINDING = (
    *("target", "attack", "measurement"),
    *("claimed_epsilon", "guaranteed_epsilon", "lower_epsilon", "verdict", "exceeded"),
)
_FINDING_MU = ("claimed_mu", "guaranteed_mu", "lower_mu")
_TITLES = {
    "one-way distance": "How near its tables are",
    "range coverage": "What is there at all",
    "category coverage": "What is there at all",
    "prediction by logistic regression": "What can be learned",
    "prediction by boosting": "What can be learned",
    "coefficients": "What can be learned",
    "propensity": "Whether it can be told from real",
    "outliers": "Who pays",
    "intervals of the release": "Whether the release keeps its word",
}

OVER = "over the releases in which a record weighs no more"
"""A bound by weight holds over all releases that give a record at most this weight, not for one release."""


def release(console: Console, release: Release) -> None:
    privacy = release.privacy
    if not release.publishable:
        console.print("[bold red]NOT PRIVATE[/bold red]: the noise came from a seed; for experiments only.\n")
    whole = guarantee(privacy.epsilon, privacy.delta)
    console.print(f"[bold]Privacy[/bold]  {whole}{_gaussian(privacy.mu, privacy.rho)}")
    _print_unit(console, release.schema)
    others = ", ".join(f"{upper(eps, 3)} at δ = {upper(d, 6)}" for d, eps in privacy.epsilon_by_delta().items())
    console.print(f"The same guarantee at other δ: ε = {others}.")
    rates = ", ".join(
        f"{percent_upper(tpr)} at {fpr:.1%} false alarms" for fpr, tpr in privacy.true_positive_rates().items()
    )
    unit = "record" if release.schema.person is None else "person"
    console.print(
        f"No attack can tell that a {unit} is in the data with an advantage above "
        f"{percent_upper(privacy.advantage)} "
        f"over guessing, nor find more members than {rates}.\n"
    )
    noises, rows = noise_in_records(release), []
    for event in release.events:
        mu = mu_of_event(event)
        charge = "" if mu is None else fixed_upper(mu)
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
        run, measured = (upper(loss.epsilon(privacy.delta)) for loss in alone)
        console.print(f"The schema was measured on the same table: ε = {measured}; this run alone: ε = {run}.")
    source = "declared public" if release.plan.public_rows is not None else "noisy count"
    what = "Records" if release.schema.person is None else "Rows that count"
    console.print(f"{what}: {release.rows:,.0f} ({source}). Weights: {release.plan.rule.name}.")
    console.print(f"Model: {release.plan.model.name}.\n")
    _print_borrowed(console, release)
    _print_outliers(console, release)
    warnings(console, [*release.warnings, *csv_warnings(release.schema)])


def _print_unit(console: Console, schema: Schema) -> None:
    console.print(f"Neighbours: {neighbours_of(schema)}.")
    if schema.person is not None:
        console.print(f"Persons: {escape(of_persons(schema.person))}.")


def warnings(console: Console, texts: Iterable[str], word: str = "warning") -> None:
    for text in texts:
        console.print(f"[yellow]{word}:[/yellow] {escape(text)}")


def outcome(
    console: Console, release: Release, folder: Path, output: Path, rows: int, texts: Iterable[str]
) -> None:
    privacy = release.privacy
    console.print(f"Spent {guarantee(privacy.epsilon, privacy.delta)}.")
    console.print(f"Model: {release.plan.model.name}.")
    if privacy.weights_public:
        console.print(
            "Scores came from an earlier release. Guaranteed before the run: records above its threshold lose at "
            f"most ε = {upper(privacy.outlier_epsilon, 3)}."
        )
    elif privacy.fraction_above:
        who = "outliers" if release.plan.scorer.targets_outliers else "chosen at random"
        they = "they" if release.schema.person is None else "all rows of a person"
        console.print(
            f"About {privacy.fraction_above} of the {counted_rows(release.schema)} are {who}. Over the releases "
            f"in which {they} are, they lose at most ε = {upper(privacy.outlier_epsilon, 3)}."
        )
    console.print(f"Wrote {count(rows)} to {escape(str(output))}")
    hint = f"repsynth inspect {shlex.quote(str(folder))}"
    console.print(f"Wrote the release to {escape(str(folder))}   (see: {escape(hint)})")
    warnings(console, texts)


def sampled(console: Console, output: Path, rows: int, drawn: Drawn, support: Support, *, completed: bool) -> None:
    console.print(f"Wrote {count(rows)} to {escape(str(output))}.")
    if completed and drawn.effective_size is None:
        console.print("The other columns follow the model's probabilities given these, exactly.")
    elif completed:
        rest = drawn.kept - drawn.weighted
        console.print(
            f"{drawn.weighted:,} of them were chosen by weighting draws of the model, each in effect among "
            f"{drawn.effective_size:,.1f} on average{f'; {rest:,} by a simpler model, exactly' if rest else ''}."
        )
    if drawn.again:
        console.print(f"{drawn.again:.1%} of the rows drawn did not meet the condition or obey the rules.")
    if support.effective_size is not None:
        console.print(
            f"{support.broken:.1%} of the model's records broke a rule. The model was fitted to those that "
            f"obey; they are worth {support.effective_size:.0%} of as many equally weighted ones."
        )


def count(rows: int) -> str:
    """Return the number of rows in words.

    >>> count(1), count(2000)
    ('1 synthetic row', '2,000 synthetic rows')
    """
    return f"{rows:,} synthetic row{'' if rows == 1 else 's'}"


def balance_data(balance: Balance) -> dict[str, Any]:
    return {
        **{name: getattr(balance, name) for name in ("dataset", "unit", "neighbours")},
        "limit": {name: getattr(balance.limit, name) for name in ("epsilon", "delta", "mu")},
        "spent": {
            "epsilon": balance.spent_epsilon,
            "mu": balance.spent_bound.mu,
            "share": balance.share_spent,
            "exceeded": balance.exceeded,
        },
        "remaining": {"epsilon": balance.epsilon(balance.remaining), "mu": balance.remaining.mu},
        "runs": [
            {name: getattr(s, name) for name in ("run", "who", "what", "when", "finished")}
            | {"mu": s.loss.mu, "epsilon": balance.epsilon_alone(s), "share": balance.share(s.bound)}
            for s in balance.spendings
        ],
    }


def balance(console: Console, balance: Balance) -> None:
    limit = balance.limit
    protects = "" if balance.unit is None else f", protecting {balance.unit}: {escape(balance.neighbours or '')}"
    console.print(
        f"[bold]{escape(balance.dataset)}[/bold]  limit {guarantee(limit.epsilon, limit.delta)} "
        f"(μ = {upper(limit.mu)}){protects}"
    )
    rows = [
        (
            *(s.run, s.when.removesuffix("+00:00").replace("T", " "), escape(s.who), escape(s.what)),
            *(upper(balance.epsilon_alone(s)), percent_upper(balance.share(s.bound))),
            "" if s.finished else "not finished: counts as spent",
        )
        for s in balance.spendings
    ]
    if rows:
        headers = ("run", "when (UTC)", "who", "what", "ε alone", "share of μ²", "")
        print_table(console, headers, rows, right_from=4)
    used, remaining = balance.share_spent, balance.remaining
    console.print(f"[{'█' * round(40 * used):░<40}] {percent_upper(used)} spent")
    if balance.exceeded:
        console.print(f"spent ε = {upper(balance.spent_epsilon)}, more than the limit: it takes no further run\n")
        return
    console.print(
        f"spent ε = {upper(balance.spent_epsilon)}, one more run may cost "
        f"ε = {lower(balance.epsilon(remaining))} (μ = {lower(remaining.mu or 0.0)})\n"
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
        f"{guarantee(borrowed.epsilon, borrowed.delta)}): they cost nothing here. "
        f"{'Every weight was public before the run. ' if privacy.weights_public else ''}"
        f"Who was in that table, too, has lost ε = {upper(both, 3)} in all at most; "
        f"above the threshold, over the releases in which they are, {upper(outliers, 3)}.\n"
    )


def _print_outliers(console: Console, release: Release) -> None:
    privacy = release.privacy
    if privacy.fraction_above is None:
        console.print("All records weigh the same, so all have the same bound.\n")
        return
    counted = counted_rows(release.schema)
    whose = f"of the earlier table's {counted}" if privacy.borrowed else f"of the {counted}"
    given = "guaranteed before the run" if privacy.weights_public else OVER
    console.print(
        f"[bold]Privacy loss by weight[/bold], at most, {given}: about {privacy.fraction_above} {whose} are above "
        "the threshold."
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
    rows = [(upper(eps, 3), str(part), bar(part.value)) for eps, part in privacy.by_epsilon(rounded_up).items()]
    print_table(console, ("ε at most", f"noisy fraction of {of_whom}", ""), rows, right_from=0)
    source = "the earlier release's" if privacy.borrowed else "the released"
    console.print(f"(from {source} score histogram; no extra cost)\n")


def _noise(event: Event, noise: Noise | None) -> tuple[str, str]:
    """Return the sensitivity and noise of a measurement, in records."""
    if isinstance(event, ExponentialEvent):
        return "1.000", f"η = {upper(event.eta, 3)} × {event.rounds}"
    assert noise is not None
    times = f" × {event.rounds}" if isinstance(event, SampledEvent) else ""
    return fixed_upper(noise.sensitivity, 3), f"{fixed_lower(noise.sigma, 2)}{times}"


def plan(console: Console, plan: Plan, rows: int) -> None:
    budget = plan.budget
    whole = guarantee(budget.epsilon, budget.delta)
    console.print(f"[bold]Budget[/bold]  {whole}{_gaussian(plan.mu, plan.rho)}")
    _print_unit(console, plan.schema)
    console.print(f"Model: {plan.model.name}.\n")
    measured = (
        (
            *(row["name"], purpose(row["name"], plan.model), fixed_upper(row["sensitivity"], 3)),
            "" if row["sigma"] is None else fixed_lower(row["sigma"], 2),
            fixed_upper(row["mu"]),
            "" if row["share"] is None else f"{row['share']:.1%}",
        )
        for row in planned_measurements(plan)
    )
    print_table(console, ("measurement", "what", "sensitivity", "noise σ", "charge μ", "share of μ²"), measured)
    public = weights_are_public(plan.borrowed, plan.schema)
    if plan.borrowed is not None:
        console.print(
            f"\n[bold]Scores[/bold]  from an earlier release (SHA-256 {plan.borrowed.digest[:12]}, "
            f"{guarantee(plan.borrowed.epsilon, plan.borrowed.delta)}): they cost nothing here."
            f"{' Every weight is public before the run.' if public else ''}"
        )
    _print_training(console, plan, rows)
    resources = plan.model.resources(plan, rows)
    taken = f"{plan.model.what} {resources.megabytes:,.0f} MB at most. " if resources.megabytes else ""
    console.print(
        f"{taken}A run on {rows:,} records takes about {max(resources.seconds, 1.0):,.0f} s of one core, drawing "
        "as many included; reading and writing files come on top."
    )
    console.print(f"\n[bold]Noise in the share of a bin[/bold], 95 %, if there are {rows:,} records")
    bins = (
        (
            escape(row["column"]),
            f"{row['bins']:,}",
            f"{1 / row['bins']:.1%}",
            f"± {fixed_upper(row['points_95'], 2)} points",
        )
        for row in planned_bins(plan, rows)
    )
    print_table(console, ("column", "bins", "share of a bin, if equal", "noise"), bins, right_from=1)

    given = "guaranteed before the run" if public else OVER
    console.print(f"\n[bold]Privacy loss by weight[/bold], at most, {given}")
    _print_curve(console, plan)
    weight = outlier_weight(plan)
    if weight < 1:
        epsilon = plan.settings.outlier_epsilon or float(plan.whole_loss.epsilon_at(weight, budget.delta))
        console.print(
            f"Records above the threshold get weight {fixed_upper(weight, 3)} at most: ε ≤ {upper(epsilon, 3)}."
        )
    elif plan.max_lost_mass is not None:
        console.print(
            f"Weights above the threshold will be as small as a mean lost weight of {plan.max_lost_mass:.3g} "
            "allows; how small is worked out from the released scores."
        )
    warnings(console, all_warnings(plan, rows))


def _print_curve(console: Console, plan: Plan) -> None:
    losses = loss_by_weight(plan)
    whole = max(losses[1.0][0], 1e-300)  # a tiny budget has no ε at its δ
    rows = (
        (f"{weight:.2f}", upper(epsilon), percent_upper(advantage, 2), bar(epsilon / whole))
        for weight, (epsilon, advantage) in losses.items()
    )
    print_table(console, ("weight", "ε", "attack advantage", ""), rows, right_from=0)


def _print_training(console: Console, plan: Plan, rows: int) -> None:
    planned = planned_training(plan, rows)
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
        f"Noise {lower(of_a_row)} times the clip norm in each round, the least that keeps "
        f"all of it within the budget; training alone costs ε = {upper(planned['epsilon_alone'])}."
    )


def expected(console: Console, found: Expected) -> None:
    """Print what an analyst may rely on, from the release alone."""
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
    below = fixed_lower(low, 0) if abs(low) >= 1000 else lower(low, 4)
    above = fixed_upper(high, 0) if abs(high) >= 1000 else upper(high, 4)
    return f"{below} and {above}"


def _at_most(value: float) -> str:
    return fixed_upper(value, 0) if value >= 100 else upper(value, 2)


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _points(standard_error: float) -> str:
    return f"± {fixed_upper(100 * Z * standard_error, 2)} points"


# --- for the curator only ---


def draft(console: Console, draft: Draft, path: Path) -> None:
    console.print(PRIVATE)
    console.print("\n[bold]Answer first: can one person have several rows in this table?[/bold]")
    if draft.persons:
        console.print(f"Columns that may identify persons: {', '.join(map(named, draft.persons))}")
    console.print(f"Say yes or no at the top of {escape(str(path))}: the guarantee protects one person.\n")
    rows = [(named(column.name), _kind(column), escape(column.reason)) for column in draft.columns]
    print_table(console, ("column", "type", "why"), rows, right_from=3)
    console.print()
    by_warning: dict[str, list[str]] = {}
    for column in draft.columns:
        for warning in column.warnings:
            by_warning.setdefault(warning, []).append(named(column.name))
    warnings(console, draft.warnings)
    for warning, names in by_warning.items():
        console.print(f"[yellow]warning:[/yellow] [bold]{', '.join(names)}[/bold]: {escape(warning)}")
    console.print(
        f"\nWrote {escape(str(path))}, a draft that was read from the data and is [bold]not private[/bold].\n"
        "Answer the question at its top, check or replace every bound and category, then set confirmed = true."
    )


def measured(console: Console, draft: MeasuredDraft, path: Path) -> None:
    console.print(f"Spent {guarantee(draft.epsilon, draft.delta)}.\n")
    rows = []
    for column in draft.columns:
        bounds = " to ".join(line.split(" = ")[1] for line in column.lines if line.startswith(("min", "max")))
        found = f"{column.reason}: {bounds}" if bounds else column.reason
        rows.append((escape(column.name), _kind(column), escape(found)))
    print_table(console, ("column", "type", "what was found"), rows, right_from=3)
    console.print(
        f"\nWhat it cannot find: values in fewer than about {draft.fewest:,} rows, and what lies beyond a bound "
        f"with fewer than about {draft.least:,} rows."
    )
    warnings(console, draft.warnings)
    for column in draft.columns:
        if column.type != "id":
            warnings(console, (f"{column.name}: {warning}" for warning in column.warnings))
    console.print(
        f"Wrote {escape(str(path))}. It may be published and needs no confirmation; where something is "
        "publicly known, write that in its place."
    )


def check(console: Console, checked: TableCheck) -> None:
    console.print(f"{PRIVATE}\n")
    touched = [column for column in checked.columns if any(getattr(column, kind) for kind in KINDS)]
    whole = len(checked.columns) - len(touched)
    console.print(f"{checked.rows:,} rows. Of {whole} columns, every cell is read as it is.")
    if touched:
        console.print("Cells of the other columns:\n")
        console.print(lost_cells(touched)[0])
    console.print()
    if (found := checked.persons) is not None:
        console.print(
            f"{found.persons:,} persons: {found.median_rows:g} rows each in the median, {found.p99_rows:g} at the "
            f"99th percentile, at most {found.max_rows:,}."
        )
        for limit in found.limits:
            above, cut = percent(limit.persons_above), percent(limit.rows_cut)
            console.print(f"  rows = {limit.rows}: {above} of the persons have more; {cut} of the rows are cut")
        constant = ", ".join(map(named, found.constant)) or "none"
        console.print(f"Columns that are constant within a person: {constant}\n")
    warnings(console, checked.findings, "note")
    for column in checked.columns:
        for finding in column.findings:
            console.print(f"[yellow]note:[/yellow] [bold]{named(column.name)}[/bold]: {escape(finding)}")
    if checked.clean:
        console.print("The schema fits the table. No problems found.")


def lost_cells(touched: Sequence[Any], most: int = 99, columns: int | None = None) -> tuple[Table, str]:
    """Return a table of the cells that are not read as they are, without the kinds that do not occur."""
    largest = {kind: max(getattr(column, kind) for column in touched) for kind in KINDS}
    kinds = sorted((kind for kind in KINDS if largest[kind]), key=lambda kind: -largest[kind])
    shown = sorted(touched, key=lambda column: -max(getattr(column, kind) for kind in KINDS))[:columns]
    table = make_table("column", "type", *kinds[:most])
    for column in shown:
        cells = (percent(part) if (part := getattr(column, kind)) else "" for kind in kinds[:most])
        table.add_row(named(column.name), column.type, *cells)
    hidden = ", ".join(kinds[most:])
    return table, hidden and f"Columns hidden to fit the screen: {hidden}"


def _kind(column: Decision) -> str:
    return "[yellow]id[/yellow]" if column.type == "id" else column.type


def named(column: str) -> str:
    return escape(column.strip() or "(no name)")


def dossier(console: Console, output: Path, summary: DossierSummary | None) -> None:
    """Print where the dossier is, and its summary only when asked for."""
    private = "[bold red]PRIVATE[/bold red], for the curator only. Do not publish any of it."
    console.print(f"Wrote {escape(str(output))}: {private}")
    if summary is None:
        return
    persons = summary.rows != summary.records
    rows = [("rows", f"{summary.rows:,}")] if persons else []
    rows += [
        ("persons" if persons else "records", f"{summary.records:,}"),
        ("largest realised ε", upper(summary.largest_epsilon)),
        ("median realised ε", upper(summary.median_epsilon)),
        ("largest to median", f"{summary.max_to_median:.2f}"),
        ("Gini coefficient", f"{summary.gini:.3f}"),
        ("gap between 90 % and 10 % quantiles", f"{summary.quantile_gap:.4g}"),
        ("fraction with a guaranteed ε below the total", percent_lower(summary.guaranteed_fraction)),
    ]
    if summary.protected_fraction is not None and summary.undecided_fraction is not None:
        rows.append(("mean chance of a record to be protected", f"{summary.protected_fraction:.1%}"))
        rows.append(("fraction for which the noise decides that", f"{summary.undecided_fraction:.1%}"))
    clipped = "changes from round to round" if summary.clip_bias is None else upper(summary.clip_bias)
    rows += [("bias bound, from weights", upper(summary.weight_bias)), ("bias bound, from clipping", clipped)]
    print_table(console, ("PRIVATE summary", "value"), rows, right_from=1)
    if summary.no_guarantee:
        console.print(f"No guaranteed ε below the total: {summary.no_guarantee}.")


def audit_data(findings: list[Finding], publishable: bool) -> dict[str, Any]:
    """Return an audit as plain data. A trained model has no μ."""
    return {
        "publishable": publishable,
        "exceeded": any(finding.exceeded for finding in findings),
        "verdict": overall(findings),
        "findings": [
            {name: getattr(f, name) for name in _FINDING}
            | {name: getattr(f, name) if f.claim is None else None for name in _FINDING_MU}
            for f in findings
        ],
    }


def audit(console: Console, findings: list[Finding], private: bool, runs: int) -> None:
    if private:
        console.print(f"{PRIVATE}\n")
    headers = ("claimed ε ≤", "guaranteed ε ≤", "proven ε ≥", "share proven")
    table = make_table("record", "attack", "measurement", *headers, "the claim", right_from=3)
    table.columns[-1].justify = "left"
    for f in findings:
        verdict = f.verdict if f.verdict == HOLDS else f"[bold red]{f.verdict}[/bold red]"
        before = "" if f.guaranteed_epsilon is None else fixed_upper(f.guaranteed_epsilon)
        table.add_row(
            *(f.target, f.attack, f.measurement, fixed_upper(f.claimed_epsilon), before),
            fixed_lower(f.lower_epsilon),
            "-" if f.share_proven is None else fixed_lower(f.share_proven, 2),
            verdict,
        )
    console.print(table)
    console.print(
        f"Proven: what attacks with {runs:,} runs show at 95 % confidence for all {len(findings)} lines "
        "together;\nshare proven: of the claimed μ. A claim that holds was not refuted, which does not prove it."
    )
    if any(f.claim is not None for f in findings):
        console.print(
            "A training has no μ: here it is the μ with the same largest advantage, and the proven ε is what the\n"
            "attack's advantage alone shows, so it is smaller."
        )
    _print_verdict(console, findings)


def _print_verdict(console: Console, findings: list[Finding]) -> None:
    verdict = overall(findings)
    if verdict == HOLDS:
        console.print("No claim was exceeded.")
        return
    parts = sorted({f.measurement for f in findings if f.verdict == verdict} - {"all"}) or ["all"]
    if verdict == DOUBTFUL:
        told = (
            "[yellow]A claim was exceeded at 95 %, but not at 99.999 %[/yellow], as a sound mechanism's is in one "
            "audit of twenty at most: run it again with more runs. The measurement:"
        )
    else:
        told = "[bold red]A claim was exceeded[/bold red], at 99.999 %. Look at the measurement:"
    console.print(f"{told} {', '.join(parts)}.")


def evaluation(console: Console, found: "Evaluation") -> None:
    console.print(f"[bold red]PRIVATE[/bold red]: {escape(found.stamp.removeprefix('PRIVATE: '))}\n")
    rows = ", ".join(f"{count:,} {name}" for name, count in found.rows.items())
    label = f" Label: {escape(found.label)}." if found.label else ""
    if found.compared_with:
        console.print(f"Compared with {escape(found.compared_with)}.")
    console.print(f"Rows: {rows}.{label}")
    _print_measures(console, found.measures)
    _print_groups(console, found)
    console.print()
    warnings(console, (f"{name}: {why}" for name, why in found.left_out.items()), "left out")
    warnings(console, found.warnings)
    console.print("\n[bold]Verdict by purpose[/bold]")
    console.print(verdicts(found))


def _print_measures(console: Console, measures: Sequence[Measure]) -> None:
    # Where there is little room, the last two stay in the words alone.
    numbers = ["value", "best", "real halves", "independent"][: 2 if console.width < _NARROW else None]
    table = make_table("measure", *numbers, right_from=1)
    table.columns[0].no_wrap = True
    table.add_column("in words", overflow="fold")
    seen: set[str] = set()
    for measure in measures:
        title = _TITLES.get(measure.name)
        if title is not None and title not in seen:
            seen.add(title)
            table.add_row()
            table.add_row(f"[bold]{title}[/bold]")
        name, *values, words = measure_row(measure)
        table.add_row(f"  {name}", *values[: len(numbers)], escape(words))
    console.print(table)
    console.print("\n[bold]Farthest from the best[/bold]")
    for measure in measures:
        worst = _worst(measure)
        if worst:
            console.print(f"  {measure.name}: {escape(worst)}")


def _worst(measure: Measure) -> str:
    long = measure.name == "three-way distance"
    same = measure.name.startswith("prediction") and len(measure.breakdown) < 3
    if long or same or measure.name.startswith(("outliers", "worst")):
        return ""  # too long, the same for both labels, or shown below
    return ", ".join(f"{name} {show(value)}" for name, value in measure.worst(3).items())


def _print_groups(console: Console, found: "Evaluation") -> None:
    marked = [group for group in found.subgroups if group.pays_more or group.too_few]
    marked.sort(key=lambda group: -(group.extra or 0.0))
    for title, groups in (
        ("By decile of outlyingness, 10 the most outlying", list(found.deciles)),
        ("Subgroups that pay more than others, or are too few", marked[:_MOST_GROUPS]),
    ):
        if not groups:
            continue
        console.print(f"\n[bold]{title}[/bold]")
        rows = [group_row(group) for group in groups]
        shown = [k for k, header in enumerate(GROUP_HEADERS) if not header or any(row[k] for row in rows)]
        cells = ([escape(row[k]) for k in shown] for row in rows)
        print_table(console, [GROUP_HEADERS[k] for k in shown], cells, right_from=1)
    if len(marked) > _MOST_GROUPS:
        console.print(f"and {len(marked) - _MOST_GROUPS} more")


def verdicts(found: "Evaluation") -> Table:
    """Return the verdict for each purpose, with what two halves of the real table give."""
    table = make_table("purpose", "verdict", "value", "floor", right_from=2)
    table.add_column("reason")
    for verdict in found.verdicts:
        numbers = ("" if number is None else show(number) for number in (verdict.value, verdict.floor))
        mark = {True: "green", False: "red", None: "yellow"}[verdict.usable]
        table.add_row(
            verdict.purpose,
            f"[{mark}]{verdict.words}[/{mark}]",
            *numbers,
            escape(shorten(verdict.reason, 90, placeholder=" ...")),
        )
    return table


# --- attacks ---


def exposure(console: Console, found: "Exposure", folder: Path) -> None:
    """Print who could be found, by whom, and whether that is more than guessing."""
    from repsynth.attacks.results import ATTACKS

    order = list(ATTACKS)
    lines = sorted(found.lines, key=lambda line: (order.index(line.attack), list(_METHODS).index(line.method)))
    console.print(f"{PRIVATE}\n\n[bold]{found.summary.answer}[/bold]\n")
    console.print(
        f"{found.targets:,} of {found.rows:,} {found.unit} were attacked, each in half of {found.runs:,} runs of "
        f"{found.model} with {guarantee(found.epsilon, found.delta)}. AUC 0.5 is guessing. Intervals: "
        f"{found.confidence:.0%}.\n"
    )
    top = [line for line in lines if line.decile == 10]
    if top:
        console.print(f"[bold]The most outlying tenth[/bold] ({top[0].targets} targets)")
        _attacks(console, top)
    everybody = [line for line in lines if line.decile is None]
    console.print(f"\n[bold]All targets[/bold] ({everybody[0].targets})")
    _attacks(console, everybody)
    _deciles(console, found)
    if found.guesses:
        console.print("\n[bold]Guesses[/bold] about people of the table against people from outside")
        _guesses(console, found.guesses)
    _proven(console, found)
    warnings(console, found.notes, "note")
    console.print("\n[bold]What the attacker has[/bold], each on top of the one before")
    attacks = dict.fromkeys(line.attack for line in lines)
    print_table(console, ("attack", ""), ((name, ATTACKS[name]) for name in attacks), right_from=99)
    console.print(f"\nAll runs and numbers are in {escape(str(folder))}: PRIVATE.")


def _attacks(console: Console, lines: Iterable["AttackResult"]) -> None:
    rows, last = [], ""
    for line in lines:
        name = line.attack if line.attack != last else ""
        numbers = (escape(line.shown_area), _rate(line, line.rate_at_1))
        rows.append((name, _METHODS[line.method], *numbers, _verdict(line)))
        last = line.attack
    print_table(console, ("attack", "weights", "AUC", "found at 1 %", "verdict"), rows, right_from=99)


def _verdict(line: "AttackResult") -> str:
    if line.exceeded:
        return f"[bold red]{line.verdict}[/bold red]"
    dim = line.attack == _BEST or line.area.low <= 0.5
    return line.verdict if dim else f"[yellow]{line.verdict}[/yellow]"


def _rate(line: "AttackResult", found: "Estimate | None") -> str:
    if found is None:
        return "too few"
    if line.attack == _BEST:
        return percent_upper(found.value)
    return f"{found.value:.1%} (≤ {percent_upper(found.high, 0)})"


def _deciles(console: Console, found: "Exposure") -> None:
    name = "shadow runs, release"
    methods = list(dict.fromkeys(line.method for line in found.lines))
    console.print(
        f"\n[bold]By decile of outlyingness[/bold] (10: the most outlying): {name}, and the best possible"
    )
    headers = [header for method in methods for header in (f"AUC, {_METHODS[method]}", "best")]
    table = make_table("decile", "targets", *headers, right_from=0)
    by_key = {(line.decile, line.method, line.attack): line for line in found.lines}
    for decile in sorted({line.decile for line in found.lines if line.decile is not None}):
        cells = []
        for method in methods:
            seen, best = by_key.get((decile, method, name)), by_key[decile, method, _BEST]
            cells += ["" if seen is None else escape(seen.shown_area), fixed_upper(best.area.value, 2)]
        table.add_row(str(decile), str(best.targets), *cells)
    console.print(table)


def _guesses(console: Console, guesses: "list[Guess]") -> None:
    rows, last = [], ""
    for guess in sorted(guesses, key=lambda guess: (guess.kind, list(_METHODS).index(guess.method))):
        verdict = f"[yellow]{guess.verdict}[/yellow]" if guess.verdict.startswith("members") else guess.verdict
        rates = (f"{guess.members.value:.1%}", f"{guess.others.value:.1%}")
        rows.append((guess.kind if guess.kind != last else "", _METHODS[guess.method], *rates, verdict))
        last = guess.kind
    print_table(console, ("guess", "weights", "members", "others", "verdict"), rows, right_from=99)


def _proven(console: Console, found: "Exposure") -> None:
    lines = [line for line in found.lines if line.proven_epsilon is not None and line.method != "bare"]
    most = max(lines, key=lambda line: line.proven_epsilon or 0.0)
    where = "all targets" if most.decile is None else f"decile {most.decile}"
    if not most.proven_epsilon:
        console.print(f"\nNone of the {len(lines):,} attacks proves any loss at all, all taken together.")
    else:
        console.print(
            f"\nThe most that one of the {len(lines):,} attacks proves, all taken together: "
            f"ε = {lower(most.proven_epsilon, 3)} ({most.attack}, {_METHODS[most.method]}, {where}), where "
            f"{upper(most.claimed_epsilon, 3)} is claimed."
        )
    broken = [line for line in lines if line.exceeded]
    if not broken:
        console.print("No attack proves more than is claimed.")
        return
    names = ", ".join(sorted({f"{line.attack} ({_METHODS[line.method]})" for line in broken}))
    console.print(
        f"[bold red]An attack proves more than is claimed[/bold red]: {names}. Do not hand out this release."
    )


# --- words and tables ---


def rounded_up(epsilon: float) -> float:
    """Round a bound up to three digits.

    >>> rounded_up(0.24011), rounded_up(1.0)
    (0.241, 1.0)
    """
    return float(upper(epsilon, 3))


def guarantee(epsilon: float, delta: float) -> str:
    """Return ε at δ in words.

    >>> guarantee(0.99999999, 1e-9)
    'ε = 1 at δ = 1e-09'
    """
    return f"ε = {upper(epsilon)} at δ = {upper(delta, 3)}"


def _gaussian(mu: float | None, rho: float | None) -> str:
    """Return the same budget as μ and ρ; a training has neither."""
    return "" if mu is None or rho is None else f"   (μ = {upper(mu)}, ρ = {upper(rho)})"


def bar(fraction: float) -> str:
    """Draw a fraction between 0 and 1."""
    return "█" * round(30 * min(max(fraction, 0.0), 1.0))


def print_table(
    console: Console, headers: Sequence[str], rows: Iterable[Sequence[str]], *, right_from: int = 2
) -> None:
    table = make_table(*headers, right_from=right_from)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def make_table(*headers: str, right_from: int = 2) -> Table:
    """Make a plain table. Columns from `right_from` on hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for i, header in enumerate(headers):
        right = i >= right_from and header != ""
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    return table
