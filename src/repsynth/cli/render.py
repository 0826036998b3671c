"""What commands print: tables for people, in the words of the library."""

import math
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repsynth.auditing.bounds import Finding
from repsynth.curator.dossier import Summary
from repsynth.knobs import knobs_of
from repsynth.models.base import Model
from repsynth.planning.cautions import csv_cautions
from repsynth.planning.plan import Plan
from repsynth.privacy.events import Event, ExponentialEvent, SampledEvent
from repsynth.privacy.ledger import Balance
from repsynth.privacy.neighbours import NEIGHBOURS
from repsynth.release.describe import mu_of_event, unit_of
from repsynth.release.release import Release
from repsynth.scoring.label_rarity import LABELS
from repsynth.scoring.pairwise import CHOICE, PAIRS
from repsynth.scoring.ranges import RANGES, ZOOM
from repsynth.scoring.stage import COUNT, HISTOGRAMS, SCORES

_STAGE_ONE = {
    COUNT: "number of records",
    RANGES: "size and roundness of numbers in wide bounds",
    ZOOM: "where they are, closer",
    HISTOGRAMS: "histogram of every column",
    CHOICE: "which pairs of columns depend on each other",
    PAIRS: "two-way tables of these pairs, for scores",
    LABELS: "histogram of every column by label, for scores",
    SCORES: "histogram of the scores",
}


def release(console: Console, release: Release) -> None:
    """A release's account as tables."""
    privacy = release.privacy
    if not release.private:
        console.print("[bold red]NOT PRIVATE[/bold red]: the noise came from a seed; for experiments only.\n")
    gaussian = "" if privacy.mu is None else f"   (μ = {privacy.mu:.4g}, ρ = {privacy.rho:.4g})"
    console.print(f"[bold]Privacy[/bold]  ε = {privacy.epsilon:.4g} at δ = {privacy.delta:.3g}{gaussian}")
    console.print(f"Neighbours: {NEIGHBOURS}.")
    others = ", ".join(f"{eps:.3g} at δ = {d:g}" for d, eps in privacy.epsilon_by_delta().items())
    console.print(f"The same guarantee at other δ: ε = {others}.")
    rates = ", ".join(f"{tpr:.1%} at {fpr:.1%} false alarms" for fpr, tpr in privacy.true_positive_rates().items())
    console.print(
        f"No attack can tell that a record is in the data with an advantage above {privacy.advantage:.1%} "
        f"over guessing, nor find more members than {rates}.\n"
    )
    table = make_table("measurement", "what", "sensitivity", "noise σ", "charge μ")
    for event in release.events:
        mu = mu_of_event(event)
        charge = "" if mu is None else f"{mu:.4f}"
        noise = _noise(event, unit_of(event, release))
        table.add_row(event.name, purpose(event.name, release.plan.model), *noise, charge)
    console.print(table)
    for event in release.events:
        if isinstance(event, SampledEvent):
            console.print(
                f"Training: {event.rounds:,} rounds, in each a record takes part with probability "
                f"{event.rate:.4g}; composed as a privacy loss distribution."
            )
    source = "declared public" if release.plan.public_rows is not None else "noisy count"
    console.print(f"Records: {release.rows:,.0f} ({source}). Weights: {release.plan.rule.name}.")
    console.print(f"{model(release.plan)}\n")
    _print_borrowed(console, release)
    _print_outliers(console, release)
    warnings(console, [*release.warnings, *csv_cautions(release.schema)])


def model(plan: Plan) -> str:
    """Which model and, where none was named, why."""
    return f"Model: {plan.model.name}" + (f", chosen because {escape(plan.why)}." if plan.why else ".")


def warnings(console: Console, texts: Iterable[str]) -> None:
    """What a user should know, a line each."""
    for text in texts:
        console.print(f"[yellow]warning:[/yellow] {escape(text)}")


def outcome(
    console: Console, release: Release, folder: Path, output: Path, rows: int, texts: Iterable[str]
) -> None:
    """What `synthesize` did, in a few lines."""
    privacy = release.privacy
    console.print(f"Spent ε = {privacy.epsilon:.4g} at δ = {privacy.delta:.3g}.")
    console.print(model(release.plan))
    if privacy.borrowed:
        console.print(
            "Scores came from an earlier release. Guaranteed before the run: records above its threshold lose at "
            f"most ε = {rounded_up(privacy.outlier_epsilon):.3g}."
        )
    elif privacy.fraction_above:
        who = "outliers" if release.plan.scorer.targets_outliers else "chosen at random"
        console.print(
            f"About {privacy.fraction_above} of the records are {who}. Given the released scores, they lose at "
            f"most ε = {rounded_up(privacy.outlier_epsilon):.3g}."
        )
    console.print(f"Wrote {count(rows)} to {escape(str(output))}")
    hint = f"repsynth inspect {shlex.quote(str(folder))}"
    console.print(f"Wrote the release to {escape(str(folder))}   (see: {escape(hint)})")
    warnings(console, texts)


def demo(console: Console, folder: Path, rows: int) -> None:
    """Where the demo left its files."""
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
    table.add_row("records", f"{summary.records:,}")
    table.add_row("largest realised ε", f"{summary.largest_epsilon:.4g}")
    table.add_row("median realised ε", f"{summary.median_epsilon:.4g}")
    table.add_row("largest to median", f"{summary.max_to_median:.2f}")
    table.add_row("Gini coefficient", f"{summary.gini:.3f}")
    table.add_row("gap between 90 % and 10 % quantiles", f"{summary.quantile_gap:.4g}")
    table.add_row("fraction with a guaranteed ε below the total", f"{summary.guaranteed_fraction:.1%}")
    if summary.protected_fraction is not None and summary.undecided_fraction is not None:
        table.add_row("mean chance of a record to be protected", f"{summary.protected_fraction:.1%}")
        table.add_row("fraction for which the noise decides that", f"{summary.undecided_fraction:.1%}")
    table.add_row("bias bound, from weights", f"{summary.weight_bias:.4g}")
    clipped = "changes from round to round" if summary.clip_bias is None else f"{summary.clip_bias:.4g}"
    table.add_row("bias bound, from clipping", clipped)
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
                "epsilon": balance.epsilon(s.loss),
                "share": balance.share(s.bound),
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
        table = make_table("run", "when (UTC)", "who", "what", "ε alone", "share of μ²", "", right_from=4)
        for s in balance.spendings:
            table.add_row(
                s.run,
                s.when.removesuffix("+00:00").replace("T", " "),
                escape(s.who),
                escape(s.what),
                f"{balance.epsilon(s.loss):.4g}",
                f"{balance.share(s.bound):.1%}",
                "" if s.finished else "not finished: counts as spent",
            )
        console.print(table)
    used, remaining = balance.share_spent, balance.remaining
    console.print(f"[{'█' * round(40 * used):░<40}] {used:.1%} spent")
    if balance.exceeded:
        console.print(f"spent ε = {balance.spent_epsilon:.4g}, more than the limit: it takes no further run\n")
        return
    console.print(
        f"spent ε = {balance.spent_epsilon:.4g}, one more run may cost "
        f"ε = {balance.epsilon(remaining):.4g} (μ = {remaining.mu:.4g})\n"
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
    table = make_table("record", "attack", "measurement", *headers, "", right_from=3)
    for f in findings:
        share = f"{f.lower_mu / f.claimed_mu:.2f}" if f.claimed_mu > 0 else "-"
        verdict = "[bold red]EXCEEDED[/bold red]" if f.exceeded else ""
        before = "" if f.guaranteed_epsilon is None else f"{f.guaranteed_epsilon:.4f}"
        table.add_row(
            *(f.target, f.attack, f.measurement, f"{f.claimed_epsilon:.4f}", before),
            *(f"{f.lower_epsilon:.4f}", share, verdict),
        )
    console.print(table)
    console.print(
        f"Proven: what an attack with {runs:,} runs shows at 95 % confidence, so one bound in twenty may lie\n"
        "above its claim by chance; a claim counts as exceeded where it does so at 99.999 %."
    )
    if any(f.claim is not None for f in findings):
        console.print("With training, the proven ε is what the attack's advantage alone shows, so it is smaller.")
    broken = [f for f in findings if f.exceeded]
    if not broken:
        console.print("No claim was exceeded.")
        return
    parts = sorted({f.measurement for f in broken} - {"all"}) or ["all"]
    console.print(f"[bold red]A claim was exceeded.[/bold red] Look at the measurement: {', '.join(parts)}.")


def _print_borrowed(console: Console, release: Release) -> None:
    """Where scores came from, and what that means for who was in both tables."""
    borrowed, privacy = release.stage.borrowed, release.privacy
    if borrowed is None:
        return
    both, outliers = privacy.epsilon_in_both(), privacy.epsilon_in_both(borrowed.threshold.value)
    assert both is not None
    assert outliers is not None
    console.print(
        f"[bold]Scores[/bold] and threshold come from an earlier release (SHA-256 {borrowed.digest[:12]}, "
        f"ε = {borrowed.epsilon:.4g} at δ = {borrowed.delta:.3g}): they cost nothing here, and every weight was "
        f"public before the run. Who was in that table, too, has lost ε = {rounded_up(both):.3g} in all at most; "
        f"above the threshold, given its scores, {rounded_up(outliers):.3g}.\n"
    )


def _print_outliers(console: Console, release: Release) -> None:
    privacy = release.privacy
    if privacy.fraction_above is None:
        console.print("All records weigh the same, so all have the same bound.\n")
        return
    whose = "of the earlier table's records" if privacy.borrowed else "of the records"
    given = "guaranteed before the run" if privacy.borrowed else "given the released scores"
    console.print(
        f"[bold]Who loses how much[/bold], {given}: about {privacy.fraction_above} {whose} lie above the "
        "threshold."
    )
    if release.plan.max_lost_mass is not None:
        rule = release.rule
        knobs = ", ".join(
            f"{knob.name.replace('_', ' ')} {getattr(rule, knob.name):.3g}" for knob in knobs_of(type(rule))
        )
        console.print(
            f"As strong as a mean lost weight of {release.plan.max_lost_mass:.3g} allows, by the released scores: "
            f"{knobs}, which loses about {release.lost_mass:.2g}."
        )
    table = make_table("ε at most", "noisy fraction of records", "", right_from=0)
    for epsilon, fraction in privacy.by_epsilon(rounded_up).items():
        table.add_row(f"{epsilon:.3g}", str(fraction), bar(fraction.value))
    console.print(table)
    paid = "paid for by the earlier release" if privacy.borrowed else "already paid for"
    console.print(f"(the noisy histogram of the scores through their weights: {paid})\n")


def _noise(event: Event, unit: float) -> tuple[str, str]:
    """Sensitivity and noise of a measurement, in records or units of u."""
    if isinstance(event, ExponentialEvent):
        return "1.000", f"η = {event.eta:.3g} × {event.rounds}"
    times = f" × {event.rounds}" if isinstance(event, SampledEvent) else ""
    return f"{event.sensitivity / unit:.3f}", f"{event.sigma / unit:,.2f}{times}"


def purpose(name: str, model: Model) -> str:
    """What a measurement is of, in a few words."""
    return _STAGE_ONE.get(name) or model.purpose(name)


def rounded_up(epsilon: float) -> float:
    """A bound to three digits: never below itself.

    >>> rounded_up(0.24011), rounded_up(1.0)
    (0.241, 1.0)
    """
    unit = 10.0 ** (2 - math.floor(math.log10(max(epsilon, 1e-9))))
    return math.ceil(epsilon * unit * (1 - 1e-12)) / unit


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
