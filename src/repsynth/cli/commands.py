"""What each command does: read options, call the library, hand the result to `render`."""

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

from repsynth import datasets
from repsynth.cli import render, render_curator, render_evaluation, render_plan
from repsynth.cli.flags import reading_of, settings_of
from repsynth.curator.check import check_table
from repsynth.curator.dossier import write_dossier
from repsynth.curator.draft import make_draft
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
from repsynth.planning.settings import Settings
from repsynth.planning.settings_file import read_settings, settings_to_toml, with_given
from repsynth.privacy.budget import make_budget
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.shown import fixed_at_most
from repsynth.release.describe import release_data
from repsynth.release.expected import expected_errors
from repsynth.release.lending import borrow
from repsynth.release.release import Release
from repsynth.release.support import Drawn
from repsynth.schema import load_schema
from repsynth.schema.sdv import load_sdv
from repsynth.storage.atomic import beside, check_place

_SPENT = "interrupted; this run has spent its budget"


def schema(options: argparse.Namespace) -> None:
    check_new(options.output, "-o")
    reading = reading_of(options)
    described = None if options.metadata is None else load_sdv(options.metadata)
    source = open_source(options.data, reading)
    draft = make_draft(source, label=options.label, decimal=reading.decimal, described=described)
    with beside(options.output, private=True) as temporary:
        temporary.write_text(draft.text, encoding="utf-8")
    data = {
        "schema": str(options.output),
        "confirmed": False,
        **render_curator.draft_data(draft),
    }
    print_result(options, data, lambda console: render_curator.draft(console, draft, options.output))


def check(options: argparse.Namespace) -> None:
    reading = reading_of(options)
    checked = check_table(open_source(options.data, reading), reading.declared(load_schema(options.schema)))
    print_result(options, msgspec.to_builtins(checked), lambda console: render_curator.check(console, checked))


def check_new(path: Path, flag: str) -> None:
    """Refuse a file that is there already, or that cannot be written."""
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{shown(path)}: already exists; choose another name with {flag}")


def plan(options: argparse.Namespace) -> None:
    made = plan_of(options)
    rows = made.public_rows or options.rows
    if rows < 1:
        raise ConfigError("the expected number of rows must be at least 1")
    if options.save is not None:
        check_new(options.save, "--save")
        with beside(options.save) as temporary:
            temporary.write_text(settings_to_toml(made.settings), encoding="utf-8")
    data = render_plan.plan_data(made, rows) | ({} if options.save is None else {"saved": str(options.save)})

    def tell(console: Console) -> None:
        render_plan.plan(console, made, rows)
        if options.save is not None:
            console.print(f"Wrote the settings to {escape(str(options.save))}.")

    print_result(options, data, tell)


def synthesize(options: argparse.Namespace) -> None:
    made = plan_of(options)
    suffix = ".csv" if all(is_text_file(part) for part in options.data) else ".parquet"
    output = options.output or Path(f"synthetic{suffix}")
    check_table_path(output)
    check_place(options.release)
    if os.path.lexists(options.release):
        raise ConfigError(f"{shown(options.release)}: already exists; name another folder with --release")
    payer = open_payer(options.ledger, options.dataset)
    source = open_source(options.data, reading_of(options))
    with _progress(options) as progress:
        rounds = made.training.rounds if made.training else 0
        task = progress.add_task("", total=len(made.steps) + rounds)
        read_here = options.engine not in CLUSTERS
        reading = progress.add_task("reading", total=source.rows, rows=0, visible=read_here)
        on_rows = _passes(progress, reading)

        def on_step(step: str) -> None:
            progress.update(task, description=step, advance=1)
            options.interrupted = _SPENT

        def on_round(done: Round) -> None:
            spent = fixed_at_most(done.epsilon, 3)
            described = f"training: round {done.done} of {done.of}, loss {done.loss:.3f}, ε {spent}"
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
        written = _write_sample(options, release, output, options.rows, seed=None)
    except (RepsynthError, KeyboardInterrupt) as error:
        why = str(error) or "interrupted"
        raise DataError(
            f"{why}. The budget is spent and the release is in {folder}: "
            f"draw a table with repsynth sample {folder} -o FILE"
        ) from None
    warnings = [*release.warnings, *written_cautions(output, written.apostrophes)]
    warnings += release.support().cautions(written.rows)
    data = {
        "release": str(folder),
        "output": str(output),
        "rows": written.rows,
        **release_data(release),
        "warnings": warnings,
    }
    print_result(
        options, data, lambda console: render.outcome(console, release, folder, output, written.rows, warnings)
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
    asked, drawn = {"seed": options.seed, "label": options.label, "where": options.where}, Drawn()
    ignored = tuple(options.ignore_rule)
    written = _write_sample(
        options, release, options.output, options.rows, given=options.given, ignored=ignored, drawn=drawn, **asked
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
    print_result(options, data, tell)


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
        render_evaluation.expected(console, expected_errors(release))

    print_result(options, release_data(release), tell)


def risk(options: argparse.Namespace) -> None:
    check_table_path(options.output, (".parquet",))
    release = Release.load(options.release)
    summary = write_dossier(open_source(options.data, reading_of(options)), release, options.output)
    data = {"dossier": str(options.output), "publishable": False}
    if options.show:
        data["summary"] = msgspec.to_builtins(summary)
    print_result(
        options,
        data,
        lambda console: render.dossier(console, options.output, summary if options.show else None),
    )


def ledger_init(options: argparse.Namespace) -> None:
    limit = make_budget(epsilon=options.epsilon, mu=options.mu, rho=options.rho, delta=options.delta)
    check_place(options.ledger)
    ledger = Ledger.create(options.ledger)
    ledger.init(options.dataset, limit)
    balance = ledger.balance(options.dataset)
    print_result(options, render.balance_data(balance), lambda console: render.balance(console, balance))


def ledger_show(options: argparse.Namespace) -> None:
    ledger = Ledger(options.ledger)
    names = ledger.datasets() if options.dataset is None else (options.dataset,)
    balances = [ledger.balance(name) for name in names]

    def tell(console: Console) -> None:
        for balance in balances:
            render.balance(console, balance)

    print_result(options, {"datasets": [render.balance_data(balance) for balance in balances]}, tell)


def audit(options: argparse.Namespace) -> int:
    """Attack the mechanism; 1 where a claim is exceeded."""
    from repsynth.auditing.audit import audit as run_audit
    from repsynth.auditing.targets import made_up_table

    made, private = plan_of(options), bool(options.data)
    with _progress(options) as progress:
        task = progress.add_task("attacking", total=5)
        findings = list(
            run_audit(
                made,
                open_source(options.data, reading_of(options)) if private else made_up_table(made.schema),
                runs=options.runs,
                black_box_runs=options.black_box_runs,
                on_target=lambda name: progress.update(task, description=name, advance=1),
            )
        )
    print_result(
        options,
        render.audit_data(findings, not private),
        lambda console: render.audit(console, findings, private, options.runs),
    )
    return int(any(finding.exceeded for finding in findings))


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
    rows = _write_sample(options, release, folder / "synthetic.csv", None, seed=None).rows
    with (folder / "summary.txt").open("w", encoding="utf-8") as file:
        render.release(Console(file=file, width=100), release)

    def tell(console: Console) -> None:
        render.release(console, release)
        render.demo(console, folder, rows)

    print_result(options, {"folder": str(folder), "rows": rows, **release_data(release)}, tell)


def completion(options: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    script = shellcode(["repsynth"], shell=options.shell)
    print_result(options, {"script": script}, lambda console: console.out(script, end=""))


def plan_of(options: argparse.Namespace) -> Plan:
    kept = {} if options.plan is None else read_settings(options.plan)
    borrowed = None if options.scores_from is None else borrow(options.scores_from)
    settings = Settings.of(**with_given(kept, settings_of(options)))
    schema = load_schema(options.schema)
    if hasattr(options, "decimal"):  # of a command that reads a table
        schema = reading_of(options).declared(schema)
    return make_plan(schema, settings, borrowed)


def _write_sample(
    options: argparse.Namespace,
    release: Release,
    output: Path,
    rows: int | None,
    *,
    seed: int | None,
    label: str | None = None,
    where: str | None = None,
    given: Path | None = None,
    ignored: tuple[int, ...] = (),
    drawn: Drawn | None = None,
) -> Written:
    total = None if given is not None else release.default_rows if rows is None else rows
    csv = output.suffix.lower() == ".csv"
    with _progress(options) as progress:
        task = progress.add_task("sampling", total=total, rows=0)
        return write_table(
            release.pieces(
                rows,
                seed=seed,
                label=label,
                where=where,
                given=given,
                ignore_rules=ignored,
                drawn=drawn,
                csv=csv,
            ),
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


class _RowsColumn(ProgressColumn):
    """How many rows are done, and how many a second."""

    def render(self, task: Task) -> Text:
        rows, seconds = task.fields.get("rows"), task.elapsed
        if not rows or not seconds:
            return Text("")
        return Text(f"{rows:,} rows, {rows / seconds:,.0f} a second")


def _progress(options: argparse.Namespace) -> Progress:
    """A bar on the terminal's error stream, gone when done; silent in pipes and with --json."""
    console = Console(stderr=True)
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<10}"),
        BarColumn(),
        _RowsColumn(),
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
