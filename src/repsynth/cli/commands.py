"""The commands that plan, make and use a release: read options, call the library, hand the result to `render`."""

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
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from repsynth import api, datasets
from repsynth.cli import render
from repsynth.cli.flags import given_settings, reading_of
from repsynth.data.decode import arrow_schema
from repsynth.data.sources import is_text_file, open_source
from repsynth.data.write import Written, check_table_path, write_table
from repsynth.engines.opening import CLUSTERS
from repsynth.errors import ConfigError, DataError, ReleaseError, RepsynthError, shown
from repsynth.models.base import Round
from repsynth.pipeline.payment import open_payer
from repsynth.pipeline.run import run
from repsynth.planning.cautions import written_cautions
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings, settings_to_toml
from repsynth.privacy.budget import make_budget
from repsynth.privacy.ledger import Ledger
from repsynth.release.account import release_data
from repsynth.release.accuracy import expected_errors
from repsynth.release.constraints import Drawn
from repsynth.release.release import Release
from repsynth.schema import load_schema
from repsynth.storage import beside, check_place

_SPENT = "interrupted; this run has spent its budget"


def plan(options: argparse.Namespace) -> None:
    made = plan_of(options)
    rows = made.public_rows or options.rows
    if rows < 1:
        raise ConfigError("the expected number of rows must be at least 1")
    if options.save is not None:
        check_new(options.save, "--save")
        with beside(options.save) as temporary:
            temporary.write_text(settings_to_toml(made.settings), encoding="utf-8")

    def data() -> dict[str, Any]:
        return render.plan_data(made, rows) | ({} if options.save is None else {"saved": str(options.save)})

    def tell(console: Console) -> None:
        render.plan(console, made, rows)
        if options.save is not None:
            console.print(f"Wrote the settings to {escape(str(options.save))}.")

    print_result(options, data, tell)


def synthesize(options: argparse.Namespace) -> None:
    made = plan_of(options)
    suffix = ".csv" if all(is_text_file(part) for part in options.data) else ".parquet"
    output = options.output or Path(f"synthetic{suffix}")
    check_table_path(output)
    check_new(options.release, "--release")
    payer = open_payer(options.ledger, options.dataset)
    source = open_source(options.data, reading_of(options))
    with progress_bar(options) as progress:
        rounds = made.training.rounds if made.training else 0
        task = progress.add_task("", total=len(made.steps) + rounds)
        read_here = options.engine not in CLUSTERS
        reading = progress.add_task("reading", total=source.rows, rows=0, visible=read_here)
        on_rows = _passes(progress, reading)

        def on_step(step: str) -> None:
            progress.update(task, description=step, advance=1)
            options.interrupted = _SPENT

        def on_round(done: Round) -> None:
            described = f"training: round {done.done} of {done.of}"
            progress.update(task, description=described, completed=len(made.steps) + done.done)

        release = run(
            made,
            source,
            on_step=on_step,
            on_round=on_round,
            on_rows=on_rows,
            payer=payer,
            rows=options.rows,
            engine=options.engine,
            cluster=options.cluster,
        )
    folder = _save(release, options.release)
    try:
        written = _write_sample(options, release, output, options.rows)
    except (RepsynthError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        raise DataError(
            f"{why}. The budget is spent and the release is in {folder}: "
            f"draw a table with repsynth sample {folder} -o FILE"
        ) from None
    warnings = [*release.warnings, *written_cautions(output, written.apostrophes)]
    warnings += release.support().cautions(written.rows)
    where = {"release": str(folder), "output": str(output), "rows": written.rows}
    print_result(
        options,
        lambda: where | release_data(release) | {"warnings": warnings},
        lambda console: render.outcome(console, release, folder, output, written.rows, warnings),
    )


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
    check_table_path(options.output)
    release = Release.load(options.release)
    drawn, ignored = Drawn(), tuple(options.ignore_rule)
    asked = {name: getattr(options, name) for name in ("seed", "label", "where", "given")}
    written = _write_sample(
        options, release, options.output, options.rows, ignore_rules=ignored, drawn=drawn, **asked
    )
    support = release.support(ignored)
    warnings = [*written_cautions(options.output, written.apostrophes)]
    if options.given is None:
        warnings += support.cautions(written.rows)

    def tell(console: Console) -> None:
        console.print(f"Wrote {render.count(written.rows)} to {escape(str(options.output))}.")
        if options.given is not None:
            console.print(_how_completed(drawn))
        if drawn.again:
            console.print(f"{drawn.again:.1%} of the rows drawn did not meet the condition or obey the rules.")
        if support.effective_size is not None:
            console.print(
                f"{support.broken:.1%} of the model's records broke a rule. The model was fitted to those that "
                f"obey; they are worth {support.effective_size:.0%} of as many equally weighted ones."
            )
        render.warnings(console, warnings)

    data = {"output": str(options.output), "rows": written.rows, "not_kept": drawn.again, "warnings": warnings}
    if support.effective_size is not None:
        data |= {"broke_a_rule": support.broken, "pool_effective_size": support.effective_size}
    if options.given is not None:
        data |= {"weighted": drawn.weighted, "effective_size": drawn.effective_size}
    print_result(options, lambda: data, tell)


def _how_completed(drawn: Drawn) -> str:
    if drawn.effective_size is None:
        return "The other columns follow the model's probabilities given these, exactly."
    rest = "" if drawn.weighted == drawn.kept else f"; {drawn.kept - drawn.weighted:,} by a simpler model, exactly"
    return (
        f"{drawn.weighted:,} of them were chosen by weighting draws of the model, each in effect among "
        f"{drawn.effective_size:,.1f} on average{rest}."
    )


def inspect(options: argparse.Namespace) -> None:
    release = Release.load(options.release)

    def tell(console: Console) -> None:
        render.release(console, release)
        console.print()
        render.expected(console, expected_errors(release))

    print_result(options, lambda: release_data(release), tell)


def ledger_init(options: argparse.Namespace) -> None:
    limit = make_budget(epsilon=options.epsilon, mu=options.mu, rho=options.rho, delta=options.delta)
    check_place(options.ledger)
    ledger = Ledger.create(options.ledger)
    ledger.init(options.dataset, limit)
    balance = ledger.balance(options.dataset)
    print_result(options, lambda: render.balance_data(balance), lambda console: render.balance(console, balance))


def ledger_show(options: argparse.Namespace) -> None:
    ledger = Ledger(options.ledger)
    names = ledger.datasets() if options.dataset is None else (options.dataset,)
    balances = [ledger.balance(name) for name in names]

    def tell(console: Console) -> None:
        for balance in balances:
            render.balance(console, balance)

    print_result(options, lambda: {"datasets": [render.balance_data(balance) for balance in balances]}, tell)


def demo(options: argparse.Namespace) -> None:
    folder: Path = options.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{shown(folder)}: cannot be made ({error.strerror}); name another folder with -o"
        ) from None
    for name in ("people.csv", "schema.toml", "release", "synthetic.csv", "summary.txt"):
        check_new(folder / name, "-o")
    pacsv.write_csv(datasets.simulate_people(), folder / "people.csv")
    (folder / "schema.toml").write_text(datasets.schema_text("people"), encoding="utf-8")
    made = make_plan(load_schema(folder / "schema.toml"), Settings.of(epsilon=1.0, delta=1e-6))
    release = run(made, open_source(folder / "people.csv"))
    release.save(folder / "release")
    rows = _write_sample(options, release, folder / "synthetic.csv", None).rows
    with (folder / "summary.txt").open("w", encoding="utf-8") as file:
        render.release(Console(file=file, width=100), release)

    def tell(console: Console) -> None:
        render.release(console, release)
        render.demo(console, folder, rows)

    print_result(options, lambda: {"folder": str(folder), "rows": rows, **release_data(release)}, tell)


def completion(options: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["repsynth"], shell=options.shell)
    print_result(options, lambda: {"script": script}, lambda console: console.out(script, end=""))


def _write_sample(
    options: argparse.Namespace, release: Release, output: Path, rows: int | None, **asked: Any
) -> Written:
    total = None if asked.get("given") is not None else release.default_rows if rows is None else rows
    csv = output.suffix.lower() == ".csv"
    with progress_bar(options) as progress:
        task = progress.add_task("sampling", total=total, rows=0)
        return write_table(
            release.pieces(rows, csv=csv, **asked),
            arrow_schema(release.schema, csv=csv),
            output,
            on_rows=lambda done: progress.update(task, completed=done, rows=done),
        )


def _passes(progress: Progress, task: TaskID) -> Callable[[int], None]:
    """Shows how many rows were read, then how many each measurement has gone through: a pass begins from none."""
    seen = 0

    def on_rows(rows: int) -> None:
        nonlocal seen
        if rows < seen:
            total = max(progress.tasks[task].completed, seen)
            progress.reset(task, description="measuring", total=total, rows=0)
        seen = rows
        progress.update(task, completed=rows, rows=rows)

    return on_rows


def plan_of(options: argparse.Namespace) -> Plan:
    schema = load_schema(options.schema)
    if hasattr(options, "decimal"):  # of a command that reads a table
        schema = reading_of(options).declared(schema)
    return api.plan(schema, settings=options.plan, scores_from=options.scores_from, **given_settings(options))


def check_new(path: Path, flag: str) -> None:
    """Refuse a file that is there already, or that cannot be written."""
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{shown(path)}: already exists; choose another name with {flag}")


class _DoneColumn(ProgressColumn):
    """How many rows are done, and how many a second; of other work, how many steps."""

    def render(self, task: Task) -> Text:
        rows, seconds = task.fields.get("rows"), task.elapsed
        if rows and seconds:
            return Text(f"{rows:,} rows, {rows / seconds:,.0f} a second")
        return Text("" if rows is not None or not task.total else f"{task.completed:,.0f} of {task.total:,.0f}")


def progress_bar(options: argparse.Namespace) -> Progress:
    """A bar on the terminal's error stream, gone when done; silent in pipes and with --json."""
    console = Console(stderr=True, highlight=False)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<10}"),
        BarColumn(),
        _DoneColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=options.json or not console.is_terminal,
    )


def print_result(
    options: argparse.Namespace, data: Callable[[], dict[str, Any]], tell: Callable[[Console], None]
) -> None:
    """One JSON object for machines, or tables for people."""
    if options.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(data())).decode() + "\n")
    else:
        # On a terminal, words wrap; in a pipe or a file, lines stay whole.
        console = Console(highlight=False)
        tell(console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=140))
