"""What each command does: read options, call the library, hand the result to `show`."""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.csv as pacsv
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from repsynth import datasets
from repsynth.audit import audit as run_audit
from repsynth.audit import made_up_table
from repsynth.budget import make_budget
from repsynth.checkpoint import remove
from repsynth.cli import plans, show
from repsynth.draft import draft_schema
from repsynth.errors import ConfigError, DataError, ReleaseError, RepsynthError
from repsynth.ledger import Ledger
from repsynth.output import beside, check_place, check_table_path, write_table
from repsynth.pipeline import make_settings, open_payer, run
from repsynth.plan import Plan, make_plan
from repsynth.release import Release
from repsynth.risk import write_dossier
from repsynth.schema import load_schema
from repsynth.tables import open_table
from repsynth.train import Round

Command = Callable[[argparse.Namespace], int | None]


def schema(options: argparse.Namespace) -> None:
    """Write a draft schema."""
    check_place(options.output)
    if options.output.exists():
        raise ConfigError(f"{options.output}: already exists; choose another name with -o")
    text = draft_schema(options.data, label=options.label)
    with beside(options.output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print_result(
        options,
        {"schema": str(options.output), "confirmed": False},
        lambda console: console.print(
            f"Wrote {escape(str(options.output))}, a draft that was read from the data and is "
            "[bold]not private[/bold].\n"
            "Check or replace every bound and category, then set confirmed = true."
        ),
    )


def plan(options: argparse.Namespace) -> None:
    """Show a plan."""
    made = _plan(options)
    rows = made.settings.public_rows or options.rows
    if rows < 1:
        raise ConfigError("the expected number of rows must be at least 1")
    print_result(options, plans.plan_data(made, rows), lambda console: plans.plan(console, made, rows))


def synthesize(options: argparse.Namespace) -> None:
    """Make a release and a synthetic table."""
    made = _plan(options)
    suffix = ".csv" if options.data.suffix.lower() == ".csv" else ".parquet"
    output = options.output or Path(f"synthetic{suffix}")
    check_table_path(output)
    check_place(options.release)
    if os.path.lexists(options.release):
        raise ConfigError(f"{options.release}: already exists; name another folder with --release")
    if options.rows is not None and not 0 <= options.rows <= 10**12:
        raise ConfigError("the number of rows cannot be negative, nor above 10^12")
    payer = open_payer(options.ledger, options.dataset)
    table = open_table(options.data)
    checkpoint = options.release.with_name(f"{options.release.name}.checkpoint") if made.training else None
    resumed = checkpoint is not None and (checkpoint / "run.json").exists()
    with _progress(options) as progress:
        rounds = made.training.rounds if made.training else 0
        task = progress.add_task("", total=len(made.steps) + rounds)

        def on_step(step: str) -> None:
            progress.update(task, description=step, advance=1)
            if made.training is not None and step == made.training.name:
                options.interrupted = "interrupted; run the same command again to go on with the training"
                if resumed:
                    sys.stderr.write(f"Going on with the training in {checkpoint}\n")

        def on_round(done: Round) -> None:
            described = f"training: round {done.done} of {done.of}, loss {done.loss:.3f}, ε {done.epsilon:.3f}"
            progress.update(task, description=described, completed=len(made.steps) + done.done)

        release = run(made, table, on_step=on_step, on_round=on_round, payer=payer, checkpoint=checkpoint)
    folder = _save(release, options.release)
    if checkpoint is not None:
        remove(checkpoint)
    try:
        rows = _write_sample(options, release, output, options.rows, seed=None)
    except (RepsynthError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        raise DataError(
            f"{why}. The budget is spent and the release is in {folder}: "
            f"draw a table with repsynth sample {folder} -o FILE"
        ) from None
    data = {
        "release": str(folder),
        "output": str(output),
        "rows": rows,
        **show.release_data(release),
    }
    print_result(options, data, lambda console: show.outcome(console, release, folder, output, rows))


def _save(release: Release, folder: Path) -> Path:
    """Save a release that is paid for: where it was asked to go or, if something came in the way, nearby."""
    try:
        return release.save(folder)
    except ReleaseError as error:
        refuge = Path(tempfile.mkdtemp(prefix="repsynth-")) / "release"
        release.save(refuge)
        sys.stderr.write(f"warning: {error}. Saved in {refuge} instead\n")
        return refuge


def sample(options: argparse.Namespace) -> None:
    """Draw rows from a release."""
    check_table_path(options.output)
    release = Release.load(options.release)
    rows = _write_sample(options, release, options.output, options.rows, seed=options.seed, label=options.label)
    print_result(
        options,
        {"output": str(options.output), "rows": rows},
        lambda console: console.print(f"Wrote {show.count(rows)} to {escape(str(options.output))}."),
    )


def inspect(options: argparse.Namespace) -> None:
    """Show a release."""
    release = Release.load(options.release)
    print_result(options, show.release_data(release), lambda console: show.release(console, release))


def risk(options: argparse.Namespace) -> None:
    """Write the curator's dossier."""
    check_table_path(options.output, (".parquet",))
    release = Release.load(options.release)
    summary = write_dossier(options.data, release, options.output)
    data = {"dossier": str(options.output), "private": True}
    if options.show:
        data["summary"] = msgspec.to_builtins(summary)
    print_result(
        options,
        data,
        lambda console: show.dossier(console, options.output, summary if options.show else None),
    )


def ledger_init(options: argparse.Namespace) -> None:
    """Give a dataset its budget."""
    limit = make_budget(epsilon=options.epsilon, mu=options.mu, rho=options.rho, delta=options.delta)
    check_place(options.ledger)
    ledger = Ledger.create(options.ledger)
    ledger.init(options.dataset, limit)
    balance = ledger.balance(options.dataset)
    print_result(options, show.balance_data(balance), lambda console: show.balance(console, balance))


def ledger_show(options: argparse.Namespace) -> None:
    """Show what was spent."""
    ledger = Ledger(options.ledger)
    names = ledger.datasets() if options.dataset is None else (options.dataset,)
    balances = [ledger.balance(name) for name in names]

    def tell(console: Console) -> None:
        for balance in balances:
            show.balance(console, balance)

    print_result(options, {"datasets": [show.balance_data(balance) for balance in balances]}, tell)


def audit(options: argparse.Namespace) -> int:
    """Attack the mechanism; 1 where a claim is exceeded."""
    made = _plan(options)
    source = made_up_table(made.schema) if options.data is None else options.data
    with _progress(options) as progress:
        task = progress.add_task("attacking", total=5)
        findings = list(
            run_audit(
                made,
                source,
                runs=options.runs,
                black_box_runs=options.black_box_runs,
                on_target=lambda name: progress.update(task, description=name, advance=1),
            )
        )
    private = options.data is not None
    print_result(
        options,
        show.audit_data(findings, private),
        lambda console: show.audit(console, findings, private, options.runs),
    )
    return int(any(finding.exceeded for finding in findings))


def demo(options: argparse.Namespace) -> None:
    """The whole way on simulated data."""
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    pacsv.write_csv(datasets.simulate(), folder / "people.csv")
    (folder / "schema.toml").write_text(datasets.schema_text("sim"), encoding="utf-8")
    options.data, options.schema = folder / "people.csv", folder / "schema.toml"
    settings = make_settings(epsilon=1.0, delta=1e-6)
    made = make_plan(load_schema(options.schema), settings)
    release = run(made, open_table(options.data))
    release.save(folder / "release")
    rows = _write_sample(options, release, folder / "synthetic.csv", None, seed=None)
    with (folder / "summary.txt").open("w", encoding="utf-8") as file:
        show.release(Console(file=file, width=100), release)

    def tell(console: Console) -> None:
        show.release(console, release)
        show.demo(console, folder, rows)

    print_result(options, {"folder": str(folder), "rows": rows, **show.release_data(release)}, tell)


def _plan(options: argparse.Namespace) -> Plan:
    settings = make_settings(
        epsilon=options.epsilon,
        delta=options.delta,
        mu=options.mu,
        rho=options.rho,
        weights=options.weights,
        gamma=options.gamma,
        outlier_epsilon=options.outlier_epsilon,
        outlier_share=options.outlier_share,
        score_share=options.score_share,
        threshold_share=options.threshold_share,
        public_rows=options.public_rows,
        model=options.model,
        max_model_mb=options.max_model_mb,
        epochs=options.epochs,
        sampling_rate=options.sampling_rate,
    )
    return make_plan(load_schema(options.schema), settings)


def _write_sample(
    options: argparse.Namespace,
    release: Release,
    output: Path,
    rows: int | None,
    *,
    seed: int | None,
    label: str | None = None,
) -> int:
    total = release.default_rows if rows is None else rows
    with _progress(options) as progress:
        task = progress.add_task("sampling", total=total)
        return write_table(
            release.batches(rows, seed=seed, label=label),
            output,
            on_rows=lambda done: progress.update(task, completed=done),
        )


def _progress(options: argparse.Namespace) -> Progress:
    """A bar on the terminal's error stream, gone when done; silent in pipes and with --json."""
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<10}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=options.json or not console.is_terminal,
    )


def print_result(options: argparse.Namespace, data: dict[str, Any], tell: Callable[[Console], None]) -> None:
    """One JSON object for machines, or tables for people."""
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data)).decode() + "\n")
    else:
        # On a terminal, words wrap; in a pipe or a file, lines stay whole.
        console = Console(highlight=False)
        tell(console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=140))
