"""What commands print: tables for people, in the words of the library."""

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repsynth.auditing.bounds import DOUBTFUL, HOLDS, Finding, overall
from repsynth.curator.dossier import Summary
from repsynth.knobs import knobs_of
from repsynth.planning.cautions import csv_cautions
from repsynth.planning.plan import Plan
from repsynth.privacy.events import Event, ExponentialEvent, SampledEvent
from repsynth.privacy.ledger import Balance
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import counted_rows, neighbours_of, of_persons
from repsynth.privacy.shown import (
    at_least,
    at_most,
    fixed_at_least,
    fixed_at_most,
    percent_at_least,
    percent_at_most,
)
from repsynth.release.describe import Noise, mu_of_event, noise_in_records, purpose
from repsynth.release.release import Release
from repsynth.schema import Schema

OVER = "over the releases in which a record weighs no more"
"""What a bound by weight is about: not the one release at hand, but all those that weigh a record so little."""


def release(console: Console, release: Release) -> None:
    privacy = release.privacy
    if not release.publishable:
        console.print("[bold red]NOT PRIVATE[/bold red]: the noise came from a seed; for experiments only.\n")
    gaussian = (
        "" if privacy.mu is None or privacy.rho is None else f"   ({gaussian_terms(privacy.mu, privacy.rho)})"
    )
    console.print(f"[bold]Privacy[/bold]  {guarantee(privacy.epsilon, privacy.delta)}{gaussian}")
    console.print(f"Neighbours: {neighbours_of(release.schema)}.")
    persons(console, release.schema)
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
    table = make_table("measurement", "what", "sensitivity", "noise σ", "charge μ")
    noises = noise_in_records(release)
    for event in release.events:
        mu = mu_of_event(event)
        charge = "" if mu is None else fixed_at_most(mu)
        noise = _noise(event, noises.get(event.name))
        table.add_row(event.name, purpose(event.name, release.plan.model), *noise, charge)
    console.print(table)
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
    console.print(f"{model(release.plan)}\n")
    _print_borrowed(console, release)
    _print_outliers(console, release)
    warnings(console, [*release.warnings, *csv_cautions(release.schema)])


def persons(console: Console, schema: Schema) -> None:
    """What several rows of a person mean, where there may be some."""
    if schema.person is not None:
        console.print(f"Persons: {escape(of_persons(schema.person))}.")


def model(plan: Plan) -> str:
    """Which model and, where none was named, why."""
    return f"Model: {plan.model.name}" + (f", chosen because {escape(plan.why)}." if plan.why else ".")


def warnings(console: Console, texts: Iterable[str]) -> None:
    for text in texts:
        console.print(f"[yellow]warning:[/yellow] {escape(text)}")


def outcome(
    console: Console, release: Release, folder: Path, output: Path, rows: int, texts: Iterable[str]
) -> None:
    privacy = release.privacy
    console.print(f"Spent {guarantee(privacy.epsilon, privacy.delta)}.")
    console.print(model(release.plan))
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


def demo(console: Console, folder: Path, rows: int) -> None:
    table = make_table("file", "what it is")
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
    private = "[bold red]PRIVATE[/bold red], for the curator only. Do not publish any of it."
    console.print(f"Wrote {escape(str(output))}: {private}")
    if summary is None:
        return
    table = make_table("PRIVATE summary", "value", right_from=1)
    if summary.rows != summary.records:
        table.add_row("rows", f"{summary.rows:,}")
    table.add_row("records" if summary.rows == summary.records else "persons", f"{summary.records:,}")
    table.add_row("largest realised ε", at_most(summary.largest_epsilon))
    table.add_row("median realised ε", at_most(summary.median_epsilon))
    table.add_row("largest to median", f"{summary.max_to_median:.2f}")
    table.add_row("Gini coefficient", f"{summary.gini:.3f}")
    table.add_row("gap between 90 % and 10 % quantiles", f"{summary.quantile_gap:.4g}")
    table.add_row("fraction with a guaranteed ε below the total", percent_at_least(summary.guaranteed_fraction))
    if summary.protected_fraction is not None and summary.undecided_fraction is not None:
        table.add_row("mean chance of a record to be protected", f"{summary.protected_fraction:.1%}")
        table.add_row("fraction for which the noise decides that", f"{summary.undecided_fraction:.1%}")
    table.add_row("bias bound, from weights", at_most(summary.weight_bias))
    clipped = "changes from round to round" if summary.clip_bias is None else at_most(summary.clip_bias)
    table.add_row("bias bound, from clipping", clipped)
    console.print(table)
    if summary.no_guarantee:
        console.print(f"No guaranteed ε below the total: {summary.no_guarantee}.")


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
    if balance.spendings:
        table = make_table("run", "when (UTC)", "who", "what", "ε alone", "share of μ²", "", right_from=4)
        for s in balance.spendings:
            table.add_row(
                s.run,
                s.when.removesuffix("+00:00").replace("T", " "),
                escape(s.who),
                escape(s.what),
                at_most(balance.epsilon_alone(s)),
                percent_at_most(balance.share(s.bound)),
                "" if s.finished else "not finished: counts as spent",
            )
        console.print(table)
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


def audit_data(findings: list[Finding], publishable: bool) -> dict[str, Any]:
    """An audit as plain data. Where a model was trained, there is no μ."""
    return {
        "publishable": publishable,
        "exceeded": any(finding.exceeded for finding in findings),
        "verdict": overall(findings),
        "findings": [
            {
                "target": f.target,
                "attack": f.attack,
                "measurement": f.measurement,
                "claimed_mu": f.claimed_mu if f.claim is None else None,
                "guaranteed_mu": f.guaranteed_mu if f.claim is None else None,
                "lower_mu": f.lower_mu if f.claim is None else None,
                "claimed_advantage": f.claimed_advantage,
                "lower_advantage": f.lower_advantage,
                "claimed_epsilon": f.claimed_epsilon,
                "guaranteed_epsilon": f.guaranteed_epsilon,
                "lower_epsilon": f.lower_epsilon,
                "verdict": f.verdict,
                "exceeded": f.exceeded,
            }
            for f in findings
        ],
    }


def audit(console: Console, findings: list[Finding], private: bool, runs: int) -> None:
    if private:
        console.print("[bold red]PRIVATE[/bold red]: what follows depends on the data; for the curator only.\n")
    headers = ("claimed ε ≤", "guaranteed ε ≤", "proven ε ≥", "share proven")
    table = make_table("record", "attack", "measurement", *headers, "the claim", right_from=3)
    table.columns[-1].justify = "left"
    for f in findings:
        verdict = f.verdict if f.verdict == HOLDS else f"[bold red]{f.verdict}[/bold red]"
        before = "" if f.guaranteed_epsilon is None else fixed_at_most(f.guaranteed_epsilon)
        table.add_row(
            *(f.target, f.attack, f.measurement, fixed_at_most(f.claimed_epsilon), before),
            fixed_at_least(f.lower_epsilon),
            "-" if f.share_proven is None else fixed_at_least(f.share_proven, 2),
            verdict,
        )
    console.print(table)
    console.print(
        f"Proven: what attacks with {runs:,} runs show at 95 % confidence for all {len(findings)} lines "
        "together;\nshare proven: of the claimed μ. A claim that holds was not refuted, which does not prove it."
    )
    if any(f.claim is not None for f in findings):
        console.print(
            "With training, the proven ε is what the attack's advantage alone shows, so it is smaller, and the\n"
            "share is one of the advantage: a training has no μ."
        )
    _print_verdict(console, findings)


def _print_verdict(console: Console, findings: list[Finding]) -> None:
    verdict = overall(findings)
    if verdict == HOLDS:
        console.print("No claim was exceeded.")
        return
    parts = sorted({f.measurement for f in findings if f.verdict == verdict} - {"all"}) or ["all"]
    if verdict == DOUBTFUL:
        console.print(
            "[yellow]A claim was exceeded at 95 %, but not at 99.999 %[/yellow], as a sound mechanism's is in one "
            f"audit of twenty at most: run it again with more runs. The measurement: {', '.join(parts)}."
        )
        return
    console.print(
        f"[bold red]A claim was exceeded[/bold red], at 99.999 %. Look at the measurement: {', '.join(parts)}."
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
    table = make_table(
        "ε at most",
        f"noisy fraction of {'records' if release.schema.person is None else 'weighted rows'}",
        "",
        right_from=0,
    )
    for epsilon, fraction in privacy.by_epsilon(rounded_up).items():
        table.add_row(at_most(epsilon, 3), str(fraction), bar(fraction.value))
    console.print(table)
    paid = "paid for by the earlier release" if privacy.borrowed else "already paid for"
    console.print(f"(the noisy histogram of the scores through their weights: {paid})\n")


def _noise(event: Event, noise: Noise | None) -> tuple[str, str]:
    """Sensitivity and noise of a measurement, in records."""
    if isinstance(event, ExponentialEvent):
        return "1.000", f"η = {at_most(event.eta, 3)} × {event.rounds}"
    assert noise is not None
    times = f" × {event.rounds}" if isinstance(event, SampledEvent) else ""
    return fixed_at_most(noise.sensitivity, 3), f"{fixed_at_least(noise.sigma, 2)}{times}"


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


def gaussian_terms(mu: float, rho: float) -> str:
    """The same as μ and ρ, where the whole is Gaussian.

    >>> gaussian_terms(0.23671, 0.028016)
    'μ = 0.2368, ρ = 0.02802'
    """
    return f"μ = {at_most(mu)}, ρ = {at_most(rho)}"


def bar(fraction: float) -> str:
    """A bar for a fraction between 0 and 1."""
    return "█" * round(30 * min(max(fraction, 0.0), 1.0))


def make_table(*headers: str, right_from: int = 2) -> Table:
    """A plain table; columns from `right_from` on hold numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold", collapse_padding=True)
    for i, header in enumerate(headers):
        right = i >= right_from and header != ""
        table.add_column(header, justify="right" if right else "left", overflow="fold")
    return table
