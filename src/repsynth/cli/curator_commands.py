"""The commands beside a run, most of them PRIVATE looks for the curator: schema, check, risk, audit, evaluate,
attack, report and explore."""

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.markup import escape

from repsynth import api
from repsynth.cli import render, render_curator
from repsynth.cli.commands import check_new, plan_of, print_result, progress_bar
from repsynth.cli.flags import given_reading, reading_of
from repsynth.curator.draft import check_described, make_draft
from repsynth.data.sources import open_source
from repsynth.errors import ConfigError, shown
from repsynth.evaluation.measures import STEPS
from repsynth.evaluation.written import evaluation_data
from repsynth.release.accuracy import expected_errors
from repsynth.release.release import Release
from repsynth.release.store import check_private
from repsynth.schema import load_schema
from repsynth.schema.sdv import load_sdv, to_sdv
from repsynth.storage import beside

_MEASURING = ("epsilon", "delta", "one_row_per_person", "id", "public_rows", "ledger", "dataset")


def schema(options: argparse.Namespace) -> None:
    if options.to_sdv is not None:
        _to_metadata(options)
        return
    if options.private:
        _measured(options)
        return
    for name in _MEASURING:
        if getattr(options, name) is not None:
            flag = f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} is for a schema that is measured; add --private, or leave it out")
    check_new(options.output, "-o")
    reading = reading_of(options)
    described = None if options.metadata is None else load_sdv(options.metadata)
    source = open_source(options.data, reading)
    draft = make_draft(source, label=options.label, decimal=reading.decimal, described=described)
    with beside(options.output, private=True) as temporary:
        temporary.write_text(draft.text, encoding="utf-8")
    _print_schema(options, draft, {"confirmed": False, "publishable": False}, render_curator.draft)


def _to_metadata(options: argparse.Namespace) -> None:
    """Write SDV's metadata of a schema; no table is read."""
    check_new(options.to_sdv, "--to-sdv")
    if len(options.data) != 1 or Path(options.data[0]).suffix.lower() != ".toml":
        raise ConfigError("--to-sdv writes metadata of a schema: name one schema.toml in place of the data")
    made = to_sdv(load_schema(options.data[0]))
    with beside(options.to_sdv) as temporary:
        temporary.write_text(json.dumps(made, indent=4, ensure_ascii=False) + "\n", encoding="utf-8")
    written = f"Wrote {escape(str(options.to_sdv))}. SDV's metadata has neither bounds nor categories nor rules."
    print_result(options, lambda: {"metadata": str(options.to_sdv)}, lambda console: console.print(written))


def _measured(options: argparse.Namespace) -> None:
    check_new(options.output, "-o")
    if options.epsilon is None:
        raise ConfigError("a measured schema costs privacy; say how much with --epsilon")
    ids = dict.fromkeys(options.id or ())
    if options.metadata is not None:
        names = open_source(options.data, reading_of(options)).names
        described = check_described(load_sdv(options.metadata), names)
        ids |= {name: None for name, told in described.items() if told.kind == "id"}
    draft = api.measure_schema(
        options.data,
        epsilon=options.epsilon,
        one_row_per_person=options.one_row_per_person is True,
        label=options.label,
        ids=list(ids),
        public_rows=options.public_rows,
        ledger=options.ledger,
        dataset=options.dataset,
        **({} if options.delta is None else {"delta": options.delta}),
        **given_reading(options),
    )
    with beside(options.output) as temporary:
        temporary.write_text(draft.text, encoding="utf-8")
    _print_schema(options, draft, {"confirmed": True, "publishable": True}, render_curator.measured)


def _print_schema(
    options: argparse.Namespace, draft: Any, known: dict[str, Any], tell: Callable[..., None]
) -> None:
    def data() -> dict[str, Any]:
        fields = msgspec.to_builtins(draft)
        del fields["text"]
        for column in fields["columns"]:
            del column["lines"]
        return {"schema": str(options.output), **known, **fields}

    print_result(options, data, lambda console: tell(console, draft, options.output))


def check(options: argparse.Namespace) -> None:
    checked = api.check_table(options.data, options.schema, **given_reading(options))
    print_result(
        options, lambda: msgspec.to_builtins(checked), lambda console: render_curator.check(console, checked)
    )


def risk(options: argparse.Namespace) -> None:
    summary = api.risk(options.data, options.release, options.output, **given_reading(options))

    def data() -> dict[str, Any]:
        found = {"summary": msgspec.to_builtins(summary)} if options.show else {}
        return {"dossier": str(options.output), "publishable": False, **found}

    shown_summary = summary if options.show else None
    print_result(options, data, lambda console: render_curator.dossier(console, options.output, shown_summary))


def audit(options: argparse.Namespace) -> int:
    """Attack the mechanism; 1 where a claim is exceeded."""
    from repsynth.auditing.audit import audit as run_audit
    from repsynth.auditing.targets import made_up_table

    made, private = plan_of(options), bool(options.data)
    with progress_bar(options) as progress:
        task = progress.add_task("attacking", total=5)
        findings = list(
            run_audit(
                made,
                open_source(options.data, reading_of(options)) if private else made_up_table(made.schema),
                runs=options.runs,
                on_target=lambda name: progress.update(task, description=name, advance=1),
            )
        )
    print_result(
        options,
        lambda: render_curator.audit_data(findings, not private),
        lambda console: render_curator.audit(console, findings, private, options.runs),
    )
    return int(any(finding.exceeded for finding in findings))


def evaluate(options: argparse.Namespace) -> None:
    """With tables, a PRIVATE look at all of them; with a release alone, what may be published."""
    if options.train is None:
        for name in ("synthetic", "holdout", "label"):
            if getattr(options, name) is not None:
                raise ConfigError(f"--{name} says nothing without the training table; give it with --train")
        if options.release is None:
            raise ConfigError("give tables with --train and --synthetic, or a release alone with --release")
        _expected(options)
        return
    if options.synthetic is None and options.release is None:
        raise ConfigError("give a synthetic table with --synthetic, or a release to draw one from with --release")
    if options.schema is None and options.release is None:
        raise ConfigError("give the schema with --schema, or a release that holds it with --release")
    with _step_bar(options, len(STEPS) + 1) as step:
        found = api.evaluate(
            options.train,
            options.synthetic,
            options.schema,
            holdout=options.holdout,
            release=options.release,
            label=options.label,
            folder=options.output,
            on_step=step,
            **given_reading(options),
        )
    _print_evaluation(options, found, {}, render_curator.evaluation)


def _expected(options: argparse.Namespace) -> None:
    if options.output is not None:
        raise ConfigError("-o is for the PRIVATE measures; add --train, or leave it out and take --json")
    release = Release.load(options.release)
    found = expected_errors(release)
    _print_evaluation(options, found, {"publishable": release.publishable}, render.expected)


def _print_evaluation(
    options: argparse.Namespace, found: Any, known: dict[str, Any], show: Callable[[Console, Any], None]
) -> None:
    folder: Path | None = options.output
    names = [] if folder is None else sorted(path.name for path in folder.iterdir())
    files = {} if folder is None else {"folder": str(folder), "files": names}

    def tell(console: Console) -> None:
        show(console, found)
        if folder is not None:
            console.print(f"Wrote {', '.join(names)} to {escape(str(folder))}")

    print_result(options, lambda: {**known, **evaluation_data(found), **files}, tell)


@contextmanager
def _step_bar(options: argparse.Namespace, steps: int) -> Iterator[Callable[[str], None]]:
    """A bar that is told each step before it begins."""
    with progress_bar(options) as progress:
        task, begun = progress.add_task("", total=steps), itertools.count()
        yield lambda step: progress.update(task, description=step, completed=next(begun))


def attack(options: argparse.Namespace) -> int:
    """Attack a plan; 1 where an attack proves more than is claimed."""
    api.need_scikit_learn()
    from repsynth.attacks.exposure import attack as carry_out
    from repsynth.cli import render_attack  # it needs scikit-learn, too

    made, reading = plan_of(options), reading_of(options)
    train = open_source(options.train, reading)
    holdout = None if options.holdout is None else open_source(options.holdout, reading)
    with progress_bar(options) as progress:
        task = progress.add_task("attacking", total=None)

        def say(text: str) -> None:
            if not progress.disable:
                progress.console.print(text)

        def on_begin(done: int, total: int) -> None:
            progress.update(task, total=total, completed=done)
            if done:
                say(f"{done:,} of {total:,} runs are there already.")

        found = carry_out(
            made,
            train,
            holdout,
            options.output,
            targets=options.targets,
            runs=options.runs,
            jobs=options.jobs,
            seed=options.seed,
            power=options.power,
            on_begin=on_begin,
            on_done=lambda: progress.advance(task),
        )
    print_result(
        options,
        lambda: msgspec.to_builtins(found),
        lambda console: render_attack.exposure(console, found, options.output),
    )
    return int(found.exceeded)


def report(options: argparse.Namespace) -> None:
    """Write the public page of a release or, if asked, the curator's."""
    if options.curator:
        _curator_page(options)
        return
    for name in ("train", "holdout", "attack"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--{name} is for the PRIVATE page alone; add --curator, or leave it out")
    from repsynth.report.page import public_page

    _check_page(options)
    page, publishable = public_page(options.release), Release.load(options.release).publishable
    last = "it is public, as the release is" if publishable else "the noise came from a seed: do not publish it"
    _write_page(options, page, last, publishable=publishable)


def _curator_page(options: argparse.Namespace) -> None:
    from repsynth.report.page import CURATOR_STEPS, curator_page

    if options.train is None:
        raise ConfigError(
            "the curator's page needs the table that the release was made from; give it with --train"
        )
    _check_page(options)
    check_private(options.output)
    if "private" not in options.output.name.lower():
        better = shown(options.output.with_name(f"private-{options.output.name}"))
        raise ConfigError(
            f"{shown(options.output)}: the curator's page is PRIVATE, and its name must say so; give -o {better}"
        )
    reading = reading_of(options)
    train = open_source(options.train, reading)
    holdout = None if options.holdout is None else open_source(options.holdout, reading)
    with _step_bar(options, len(CURATOR_STEPS)) as step:
        page = curator_page(options.release, train, holdout, options.attack, on_step=step)
    _write_page(options, page, "it is PRIVATE: for the curator only", publishable=False, private=True)


def explore(options: argparse.Namespace) -> None:
    from repsynth.report.page import explore_page

    _check_page(options)
    release = None if options.release is None else Release.load(options.release)
    if options.schema is not None:
        schema = load_schema(options.schema)
    elif release is not None:
        schema = release.schema
    else:
        raise ConfigError("there is nothing to plan for; give --schema, or --release")
    publishable = release is None or release.publishable
    _write_page(options, explore_page(schema, release), "nothing was spent", publishable=publishable)


def _check_page(options: argparse.Namespace) -> None:
    """Refuse a place where no page can be, before any work is done."""
    if options.output.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{shown(options.output)}: this is a web page; give it a name that ends in .html")
    check_new(options.output, "-o")


def _write_page(
    options: argparse.Namespace, page: str, last: str, *, publishable: bool, private: bool = False
) -> None:
    with beside(options.output, private=private) as temporary:
        temporary.write_text(page, encoding="utf-8")
    size = len(page.encode())

    def tell(console: Console) -> None:
        console.print(
            f"Wrote {escape(str(options.output))} ({size / 1000:,.0f} kB). It opens in any browser, without a "
            f"network; {last}."
        )

    print_result(options, lambda: {"output": str(options.output), "publishable": publishable, "bytes": size}, tell)
