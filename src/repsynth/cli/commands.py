"""The commands: call the Python API with the options, and say how to print what it returns."""

import itertools
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.csv as pacsv
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from repsynth import api, datasets
from repsynth.cli import options as given
from repsynth.cli import render, screens
from repsynth.errors import ConfigError, DataError, ReleaseError, RepsynthError, shown
from repsynth.evaluation.export import evaluation_data
from repsynth.io.sources import is_text_file, open_source
from repsynth.io.write import Written, arrow_schema, check_table_path, write_table
from repsynth.planning.figures import plan_data
from repsynth.planning.settings import settings_to_toml
from repsynth.planning.warnings import written_warnings
from repsynth.privacy.budget import make_budget
from repsynth.privacy.ledger import Ledger
from repsynth.release.account import release_data
from repsynth.release.release import Release
from repsynth.release.store import check_private
from repsynth.sampling.constraints import Drawn
from repsynth.schema import load_schema
from repsynth.schema.sdv import to_sdv
from repsynth.storage import beside, check_place
from repsynth.threads import processors


@dataclass(frozen=True)
class Answer:
    """What a command found. `data` makes it plain data, `text` prints it for people; only one of them runs."""

    data: Callable[[], dict[str, Any]]
    text: Callable[[Console], None]
    code: int = 0
    first: Callable[[Console], None] | None = None
    """The first screen, without --full. It wraps at 80 columns in a pipe, too."""

    def print(self, *, as_json: bool, full: bool) -> None:
        if as_json:
            sys.stdout.write(msgspec.json.format(msgspec.json.encode(self.data())).decode() + "\n")
            return
        # On a terminal, words wrap; in a pipe or a file, lines stay whole.
        console = Console(highlight=False)
        if self.first is not None and not full:
            self.first(Console(highlight=False, width=min(console.width, screens.WIDTH)))
            return
        self.text(console if console.is_terminal else Console(highlight=False, soft_wrap=True, width=140))


def _wrote(data: dict[str, Any], text: str) -> Answer:
    return Answer(lambda: data, lambda console: console.print(text, markup=False))


def _screen(data: Callable[[], dict[str, Any]], text: Callable[[Console], None]) -> Answer:
    return Answer(data, text, first=text)


def schema(options: given.DraftSchema) -> Answer:
    if options.to_sdv is not None:
        return _to_metadata(options, options.to_sdv)
    measuring = options.given(("epsilon", "delta", "one_row_per_person", "id", "public_rows", "ledger", "dataset"))
    if not options.private and measuring:
        flag = f"--{next(iter(measuring)).replace('_', '-')}"
        raise ConfigError(f"{flag} is for a schema that is measured; add --private, or leave it out")
    if options.private and options.epsilon is None:
        raise ConfigError("a measured schema costs privacy; say how much with --epsilon")
    _check_new(options.output, "-o")
    how: dict[str, Any] = {"label": options.label, "metadata": options.metadata, "read": options.read}
    if options.private:
        draft: Any = api.measure_schema(options.data, ids=measuring.pop("id", ()), **measuring, **how)
    else:
        draft = api.draft(options.data, **how)
    with beside(options.output, private=not options.private) as temporary:
        temporary.write_text(draft.text, encoding="utf-8")

    def data() -> dict[str, Any]:
        known = {"schema": str(options.output), "confirmed": options.private, "publishable": options.private}
        fields: dict[str, Any] = msgspec.to_builtins(draft)
        del fields["text"]
        for column in fields["columns"]:
            del column["lines"]
        return known | fields

    tell: Callable[..., None] = render.measured if options.private else render.draft
    return _screen(data, lambda console: tell(console, draft, options.output))


def _to_metadata(options: given.DraftSchema, path: Path) -> Answer:
    """Write SDV's metadata of a schema; no table is read."""
    _check_new(path, "--to-sdv")
    if len(options.data) != 1 or Path(options.data[0]).suffix.lower() != ".toml":
        raise ConfigError("--to-sdv writes metadata of a schema: name one schema.toml in place of the data")
    made = to_sdv(load_schema(options.data[0]))
    with beside(path) as temporary:
        temporary.write_text(json.dumps(made, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    said = f"Wrote {path}. SDV's metadata has neither bounds nor categories nor rules."
    return _wrote({"metadata": str(path)}, said)


def check(options: given.Check) -> Answer:
    checked = api.check_table(options.data, options.schema, read=options.read)
    return Answer(
        lambda: msgspec.to_builtins(checked),
        lambda console: render.check(console, checked),
        first=lambda console: screens.check(console, checked, options.schema),
    )


def plan(options: given.PlanCommand) -> Answer:
    made = api.plan(options.schema, **_settings(options))
    rows = made.public_rows or options.rows
    if rows < 1:
        raise ConfigError("the expected number of rows must be at least 1")
    saved: dict[str, str] = {}
    if options.save is not None:
        _check_new(options.save, "--save")
        with beside(options.save) as temporary:
            temporary.write_text(settings_to_toml(made.settings), encoding="utf-8")
        saved["saved"] = str(options.save)

    return Answer(
        lambda: plan_data(made, rows) | saved,
        lambda console: render.plan(console, made, rows),
        first=lambda console: screens.plan(console, made, rows, options.schema, options.save, options.scores_from),
    )


def _settings(options: given.Planned) -> dict[str, Any]:
    """The settings of a run, as keywords of the API."""
    return {"settings": api.settings_of(options.plan, options.settings), "scores_from": options.scores_from}


def synthesize(options: given.Synthesize) -> Answer:
    suffix = ".csv" if all(is_text_file(part) for part in options.data) else ".parquet"
    output = options.output or Path(f"synthetic{suffix}")
    check_table_path(output)
    _check_new(options.release, "--release")
    with _progress(options) as bar, _interrupted(lambda: "this run has spent its budget" if bar.begun else None):
        release = api.synthesize(
            options.data,
            options.schema,
            **_settings(options),
            read=options.read,
            rows=options.rows,
            **options.given(("ledger", "dataset", "engine", "cluster")),
            on_step=bar.on_step,
            on_rows=bar.on_rows,
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
    warnings = [*release.warnings, *written_warnings(output, written.apostrophes)]
    warnings += release.support().cautions(written.rows)
    where = {"release": str(folder), "output": str(output), "rows": written.rows}
    return Answer(
        lambda: where | release_data(release) | {"warnings": warnings},
        lambda console: render.outcome(console, release, folder, output, written.rows, warnings),
    )


def _save(release: Release, folder: Path) -> Path:
    """Save a release that is paid for where the user asked or, if something came in the way, nearby."""
    try:
        return release.save(folder)
    except ReleaseError as error:
        refuge = Path(tempfile.mkdtemp(prefix="repsynth-")) / "release"
        release.save(refuge)
        sys.stderr.write(f"warning: {error}. Saved in {refuge} instead\n")
        return refuge


def sample(options: given.Sample) -> Answer:
    check_table_path(options.output)
    release = Release.load(options.release)
    drawn, ignored = Drawn(), tuple(options.ignore_rule or ())
    asked = {name: getattr(options, name) for name in ("seed", "label", "where")} | {"given": options.given_rows}
    written = _write_sample(
        options, release, options.output, options.rows, ignore_rules=ignored, drawn=drawn, **asked
    )
    support, completed = release.support(ignored), options.given_rows is not None
    warnings = [*written_warnings(options.output, written.apostrophes)]
    if not completed:
        warnings += support.cautions(written.rows)

    def data() -> dict[str, Any]:
        found = {"output": str(options.output), "rows": written.rows, "not_kept": drawn.again}
        if support.effective_size is not None:
            found |= {"broke_a_rule": support.broken, "pool_effective_size": support.effective_size}
        if completed:
            found |= {"weighted": drawn.weighted, "effective_size": drawn.effective_size}
        return found | {"warnings": warnings}

    def text(console: Console) -> None:
        render.sampled(console, options.output, written.rows, drawn, support, completed=completed)
        render.warnings(console, warnings)

    return Answer(data, text)


def _write_sample(
    options: given.Options, release: Release, output: Path, rows: int | None, **asked: Any
) -> Written:
    total = None if asked.get("given") is not None else release.default_rows if rows is None else rows
    csv = output.suffix.lower() == ".csv"
    with _progress(options) as bar:
        return write_table(
            release.pieces(rows, csv=csv, **asked),
            arrow_schema(release.schema, csv=csv),
            output,
            on_rows=lambda done: bar.on_rows(done, total, "sampling"),
        )


def inspect(options: given.Inspect) -> Answer:
    release = Release.load(options.release)

    def text(console: Console) -> None:
        render.release(console, release)
        console.print()
        render.expected(console, api.expected_errors(release))

    first = partial(screens.release, release=release, folder=options.release)
    return Answer(lambda: api.inspect_release(release), text, first=first)


def ledger_init(options: given.LedgerInit) -> Answer:
    limit = make_budget(**{"epsilon": None, **options.given(("epsilon", "mu", "rho", "delta"))})
    check_place(options.ledger)
    ledger = Ledger.create(options.ledger)
    ledger.init(options.dataset, limit)
    balance = ledger.balance(options.dataset)
    return Answer(lambda: render.balance_data(balance), lambda console: render.balance(console, balance))


def ledger_show(options: given.LedgerShow) -> Answer:
    ledger = Ledger(options.ledger)
    names = ledger.datasets() if options.dataset is None else (options.dataset,)
    balances = [ledger.balance(name) for name in names]

    def text(console: Console) -> None:
        for balance in balances:
            render.balance(console, balance)

    return Answer(lambda: {"datasets": [render.balance_data(balance) for balance in balances]}, text)


def risk(options: given.Risk) -> Answer:
    summary = api.risk(options.data, options.release, options.output, read=options.read)
    printed = summary if options.show else None

    def data() -> dict[str, Any]:
        found = {} if printed is None else {"summary": msgspec.to_builtins(printed)}
        return {"dossier": str(options.output), "publishable": False, **found}

    return Answer(data, lambda console: render.dossier(console, options.output, printed))


def audit(options: given.Audit) -> Answer:
    """Exit code 1 if a claim is exceeded."""
    table = options.data or None
    with _progress(options) as bar:
        findings = list(
            api.audit(
                options.schema,
                table,
                **_settings(options),
                read=options.read,
                runs=options.runs,
                on_step=bar.on_step,
            )
        )
    return Answer(
        lambda: render.audit_data(findings, publishable=table is None),
        lambda console: render.audit(console, findings, table is not None, options.runs),
        int(any(finding.exceeded for finding in findings)),
    )


def evaluate(options: given.Evaluate) -> Answer:
    if options.train is None:
        return _expected(options)
    with _progress(options) as bar, _interrupted(lambda: "nothing was written"):
        found = api.evaluate(
            options.train,
            options.synthetic,
            options.schema,
            holdout=options.holdout,
            release=options.release,
            label=options.label,
            folder=options.output,
            skip=options.skip or (),
            read=options.read,
            on_step=bar.on_step,
        )
    files: dict[str, Any] = {}
    if options.output is not None:
        files = {"folder": str(options.output), "files": sorted(path.name for path in options.output.iterdir())}

    def text(console: Console) -> None:
        render.evaluation(console, found)
        if files:
            console.print(f"Wrote {', '.join(files['files'])} to {options.output}", markup=False)

    def data() -> dict[str, Any]:
        return evaluation_data(found) | {"verdicts": msgspec.to_builtins(found.verdicts)} | files

    return Answer(data, text, first=lambda console: screens.evaluation(console, found, options.output))


def _expected(options: given.Evaluate) -> Answer:
    """What follows from a release alone; it may be published."""
    for name in options.given(("synthetic", "holdout", "label")):
        raise ConfigError(f"--{name} says nothing without the training table; give it with --train")
    if options.release is None:
        raise ConfigError("give tables with --train and --synthetic, or a release alone with --release")
    if options.output is not None:
        raise ConfigError("-o is for the PRIVATE measures; add --train, or leave it out and take --json")
    release = Release.load(options.release)
    found = api.expected_errors(release)
    return Answer(
        lambda: {"publishable": release.publishable, **evaluation_data(found)},
        lambda console: render.expected(console, found),
        first=lambda console: screens.expected(console, found),
    )


def attack(options: given.Attack) -> Answer:
    """Exit code 1 if an attack proves more than is claimed."""
    with _progress(options) as bar, _interrupted(lambda: "run the same command again to resume"):
        found = api.attack(
            options.train,
            options.schema,
            options.output,
            holdout=options.holdout,
            **_settings(options),
            read=options.read,
            targets=options.targets,
            runs=options.runs,
            jobs=options.jobs or processors(),
            seed=options.seed,
            power=options.power,
            on_step=bar.on_step,
        )
    return Answer(
        lambda: msgspec.to_builtins(found) | {"auc_noticeable": found.noticeable, "answer": found.summary.answer},
        lambda console: render.exposure(console, found, options.output),
        int(found.exceeded),
        lambda console: screens.exposure(console, found, options.output),
    )


def report(options: given.Report) -> Answer:
    """Write the public page of a release or, if asked, the curator's."""
    from repsynth.report.page import public_page

    public = ("title", "contact", "ledger_entry")
    if options.curator:
        for name in options.given(public):
            raise ConfigError(f"--{name.replace('_', '-')} is for the public page; leave it out, or --curator")
        return _curator_page(options)
    for name in options.given(("train", "holdout", "attack", "evaluation")):
        raise ConfigError(f"--{name} is for the PRIVATE page alone; add --curator, or leave it out")
    _check_page(options.output)
    page = public_page(options.release, **options.given(public))
    publishable = Release.load(options.release).publishable
    last = "it is public, as the release is" if publishable else "the noise came from a seed: do not publish it"
    return _write_page(options.output, page, last, publishable=publishable)


def _curator_page(options: given.Report) -> Answer:
    from repsynth.report.page import CURATOR_STEPS, curator_page

    if options.train is None:
        raise ConfigError(
            "the curator's page needs the table that the release was made from; give it with --train"
        )
    _check_page(options.output)
    check_private(options.output)
    if "private" not in options.output.name.lower():
        better = shown(options.output.with_name(f"private-{options.output.name}"))
        raise ConfigError(
            f"{shown(options.output)}: the curator's page is PRIVATE, and its name must say so; give -o {better}"
        )
    train = open_source(options.train, options.read)
    holdout = None if options.holdout is None else open_source(options.holdout, options.read)
    with _progress(options) as bar:
        done = itertools.count()
        page = curator_page(
            options.release,
            train,
            holdout,
            options.attack,
            options.evaluation,
            on_step=lambda step: bar.on_step(step, next(done), len(CURATOR_STEPS)),
        )
    last = "it is PRIVATE: for the curator only"
    return _write_page(options.output, page, last, publishable=False, private=True)


def explore(options: given.Explore) -> Answer:
    from repsynth.report.page import explore_page

    _check_page(options.output)
    release = None if options.release is None else Release.load(options.release)
    if options.schema is not None:
        schema = load_schema(options.schema)
    elif release is not None:
        schema = release.schema
    else:
        raise ConfigError("there is nothing to plan for; give --schema, or --release")
    publishable = release is None or release.publishable
    return _write_page(options.output, explore_page(schema, release), "nothing was spent", publishable=publishable)


def _check_page(path: Path) -> None:
    """Refuse a place where no page can be, before any work is done."""
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{shown(path)}: this is a web page; give it a name that ends in .html")
    _check_new(path, "-o")


def _write_page(path: Path, page: str, last: str, *, publishable: bool, private: bool = False) -> Answer:
    with beside(path, private=private) as temporary:
        temporary.write_text(page, encoding="utf-8")
    size = len(page.encode())
    said = f"Wrote {path} ({size / 1000:,.0f} kB). It opens in any browser, without a network; {last}."
    return _wrote({"output": str(path), "publishable": publishable, "bytes": size}, said)


def demo(options: given.Demo) -> Answer:
    folder = options.output
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{shown(folder)}: cannot be made ({error.strerror}); name another folder with -o"
        ) from None
    for name in ("people.csv", "schema.toml", "release", "synthetic.csv", "summary.txt", "release-report.html"):
        _check_new(folder / name, "-o")
    people = datasets.simulate_people()
    pacsv.write_csv(people, folder / "people.csv")
    (folder / "schema.toml").write_text(datasets.schema_text("people"), encoding="utf-8")
    release = api.synthesize(folder / "people.csv", folder / "schema.toml", epsilon=1.0, delta=1e-6)
    release.save(folder / "release")
    rows = _write_sample(options, release, folder / "synthetic.csv", None).rows
    with (folder / "summary.txt").open("w", encoding="utf-8") as file:
        render.release(Console(file=file, width=100), release)
        render.expected(Console(file=file, width=100), api.expected_errors(release))
    page = find_spec("jinja2") is not None and find_spec("vl_convert") is not None
    if page:
        from repsynth.report.page import public_page

        (folder / "release-report.html").write_text(public_page(folder / "release"), encoding="utf-8")

    def text(console: Console) -> None:
        made = pacsv.read_csv(folder / "synthetic.csv")
        screens.demo(console, folder, people, made, release, page)

    return _screen(lambda: {"folder": str(folder), "rows": rows, **release_data(release)}, text)


def completion(options: given.Completion) -> Answer:
    from repsynth.cli.main import make_app

    script = make_app().generate_completion(shell=options.shell)
    return Answer(lambda: {"script": script}, lambda console: console.out(script, end=""))


def _check_new(path: Path, flag: str) -> None:
    """Refuse a file that exists or that cannot be written."""
    check_place(path)
    if os.path.lexists(path):
        raise ConfigError(f"{shown(path)}: already exists; choose another name with {flag}")


@contextmanager
def _interrupted(meaning: Callable[[], str | None]) -> Iterator[None]:
    """Say what an interruption means."""
    try:
        yield
    except KeyboardInterrupt:
        said = meaning()
        raise KeyboardInterrupt(*([f"interrupted; {said}"] if said else [])) from None


class _Bar:
    """Steps and rows on a bar."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.begun = False
        self._steps = progress.add_task("", total=None, visible=False, unit="")
        self._rows = progress.add_task("", total=None, visible=False, unit="rows")
        self._seen = 0

    def on_step(self, step: str, done: int, of: int) -> None:
        self.begun = True
        self.progress.update(self._steps, description=step, completed=done, total=of, visible=True)

    def on_rows(self, rows: int, of: int | None, what: str = "reading") -> None:
        """Show how many rows were read, then how many a measurement has passed; each pass begins from none."""
        if rows < self._seen:
            self.progress.reset(self._rows, description="measuring")
            of = self._seen
        elif not self._seen:
            self.progress.update(self._rows, description=what)
        self._seen = rows
        if of is not None:
            self.progress.update(self._rows, total=of)
        self.progress.update(self._rows, completed=rows, visible=True)


@contextmanager
def _progress(options: given.Options) -> Iterator[_Bar]:
    """Show a bar on the terminal's error stream; it is silent in pipes and with --json."""
    console = Console(stderr=True, highlight=False)
    columns = (
        *(SpinnerColumn(), TextColumn("{task.description:<10}"), BarColumn()),
        *(TextColumn("{task.completed:,.0f} {task.fields[unit]}"), TimeElapsedColumn(), TimeRemainingColumn()),
    )
    disable = options.json or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        yield _Bar(progress)
