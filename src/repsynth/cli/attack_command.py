"""The `attack` command: who could still be found."""

import argparse

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from repsynth.cli.commands import plan_of, print_result
from repsynth.cli.flags import reading_of
from repsynth.data.sources import open_source
from repsynth.errors import ConfigError


def attack(options: argparse.Namespace) -> int:
    """Attack a plan; 1 where an attack proves more than is claimed."""
    try:
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError("attacks need scikit-learn; pip install 'repsynth[evaluate]'") from None
    from repsynth.attacks.exposure import attack as carry_out
    from repsynth.cli import render_attack  # it needs scikit-learn, too

    made, reading = plan_of(options), reading_of(options)
    train = open_source(options.train, reading)
    holdout = None if options.holdout is None else open_source(options.holdout, reading)
    console = Console(stderr=True, highlight=False)
    silent = options.json or not console.is_terminal
    with _progress(console, silent) as progress:
        task = progress.add_task("attacking", total=None, done=0, runs=0)

        def on_begin(done: int, total: int) -> None:
            progress.update(task, total=total, completed=done, done=done, runs=total)
            if done and not silent:
                progress.console.print(f"{done:,} of {total:,} runs are there already.")

        def on_done() -> None:
            done = progress.tasks[0].fields["done"] + 1
            progress.update(task, advance=1, done=done)

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
            on_done=on_done,
        )
    print_result(
        options, msgspec.to_builtins(found), lambda console: render_attack.exposure(console, found, options.output)
    )
    return int(found.exceeded)


def _progress(console: Console, silent: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[runs]} runs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=silent,
    )
