"""The `evaluate` command: measure a synthetic table, or say what a release alone promises."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from repsynth.cli import render_evaluation
from repsynth.cli.commands import print_result
from repsynth.cli.flags import reading_of
from repsynth.data.reading import Reading
from repsynth.errors import ConfigError
from repsynth.release.expected import expected_errors
from repsynth.release.folder import check_private
from repsynth.release.release import Release
from repsynth.schema import Schema, load_schema

if TYPE_CHECKING:
    from repsynth.evaluation.evaluate import Evaluation


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
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError("evaluating needs more packages; pip install 'repsynth[evaluate]'") from None
    _evaluate(options)


def _expected(options: argparse.Namespace) -> None:
    from repsynth.evaluation.written import evaluation_data

    if options.output is not None:
        raise ConfigError("-o is for the PRIVATE measures; add --train, or leave it out and take --json")
    release = Release.load(options.release)
    expected = expected_errors(release)
    data = {"publishable": release.publishable, **evaluation_data(expected)}
    print_result(options, data, lambda console: render_evaluation.expected(console, expected))


def _evaluate(options: argparse.Namespace) -> None:
    from repsynth.evaluation.written import check_folder, evaluation_data, write_evaluation

    if options.output is not None:
        check_folder(options.output)
        check_private(options.output)
    evaluation = _measure(options)
    names = [] if options.output is None else write_evaluation(evaluation, options.output)
    data = evaluation_data(evaluation)
    if options.output is not None:
        data |= {"folder": str(options.output), "files": names}

    def tell(console: Console) -> None:
        render_evaluation.evaluation(console, evaluation)
        if options.output is not None:
            render_evaluation.written(console, options.output, names)

    print_result(options, data, tell)


def _measure(options: argparse.Namespace) -> "Evaluation":
    from repsynth.evaluation.evaluate import evaluate_tables
    from repsynth.evaluation.inputs import Inputs
    from repsynth.evaluation.measures import STEPS

    release = None if options.release is None else Release.load(options.release)
    reading = reading_of(options)
    schema = _schema(options.schema, release, reading)
    with step_bar(options, len(STEPS) + 1) as step:
        step("reading")
        synthetic = options.synthetic
        if synthetic is None and release is not None:
            synthetic = release.sample(seed=0)  # the same rows whenever this is asked
        inputs = Inputs.open(options.train, synthetic, options.holdout, schema, options.label, reading)
        return evaluate_tables(inputs, release, step)


def _schema(path: Path | None, release: Release | None, reading: Reading) -> Schema:
    from repsynth.evaluation.inputs import agreed_schema

    return agreed_schema(None if path is None else reading.declared(load_schema(path)), release)


class _Step:
    """Tells the bar what is worked on now."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self.progress, self.task, self.done = progress, progress.add_task("", total=steps), 0

    def __call__(self, step: str) -> None:
        self.progress.update(self.task, description=step, completed=self.done)
        self.done += 1


@contextmanager
def step_bar(options: argparse.Namespace, steps: int) -> Iterator[_Step]:
    """A bar that is told each step before it begins."""
    console = Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TextColumn("{task.completed} of {task.total}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=options.json or not console.is_terminal,
    ) as progress:
        yield _Step(progress, steps)
