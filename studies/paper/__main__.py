"""The `paper` command: run the study, show its tables, write its files."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from repsynth.cli.commands import print_result
from repsynth.errors import ConfigError
from repsynth.storage.atomic import beside

if TYPE_CHECKING:
    from repsynth.paper.grid import Cell


def paper(options: argparse.Namespace) -> int:
    """Run the study; 1 where some of its runs failed."""
    try:
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError:
        raise ConfigError("the study needs more packages; pip install 'repsynth[paper]'") from None
    return _nulls(options) if options.nulls else _study(options)


def _study(options: argparse.Namespace) -> int:
    from repsynth.paper.figures import write_figures
    from repsynth.paper.study import EFFORT, Stored, make_folder, run_study
    from repsynth.paper.summary import summarise
    from repsynth.paper.tabulate import to_latex, to_markdown, to_terminal

    cells = _cells(options)
    report = options.output / options.protocol
    make_folder(report / "figures")  # before any work is done
    with _progress(options) as progress:
        task = progress.add_task("", total=sum(EFFORT[cell.dataset] for cell in cells), done=0, cells=len(cells))
        done = 0

        def on_done(stored: Stored) -> None:
            nonlocal done
            done += 1
            progress.update(task, description=stored.cell.dataset, advance=EFFORT[stored.cell.dataset], done=done)

        folder = options.output / "cells"
        outcomes = run_study(cells, folder, jobs=options.jobs, data_dir=options.data_dir, on_done=on_done)
    summary = summarise(outcomes)
    figures = write_figures(summary, report / "figures")
    _write(report / "tables.md", to_markdown(summary))
    _write(report / "tables.tex", to_latex(summary))
    _write(report / "summary.json", msgspec.json.format(msgspec.json.encode(summary)).decode())

    def tell(console: Console) -> None:
        to_terminal(console, summary)
        console.print(f"Wrote tables.md, tables.tex, summary.json and {len(figures)} figures to {report}.")

    print_result(options, {"folder": str(report), **msgspec.to_builtins(summary)}, tell)
    return int(bool(summary.failures))


def _nulls(options: argparse.Namespace) -> int:
    from repsynth.paper.grid import QUICK_SEEDS
    from repsynth.paper.nulls import SEEDS, run_nulls, show_nulls
    from repsynth.paper.study import make_folder

    names = list(dict.fromkeys(cell.dataset for cell in _cells(options)))
    seeds = options.seeds or (QUICK_SEEDS if options.quick else None)
    runs = sum(seeds or SEEDS[name] for name in names)
    make_folder(options.output)
    with _progress(options) as progress:
        task = progress.add_task("", total=runs, done=0, cells=runs)
        findings = run_nulls(
            names,
            seeds,
            options.data_dir,
            on_done=lambda name, done: progress.update(task, description=name, advance=1, done=done),
        )
    _write(options.output / "nulls.json", msgspec.json.format(msgspec.json.encode(findings)).decode())
    print_result(options, msgspec.to_builtins(findings), lambda console: show_nulls(console, findings))
    return 0


def _cells(options: argparse.Namespace) -> "tuple[Cell, ...]":
    from repsynth.paper.grid import (
        DATASETS,
        EPSILONS,
        QUICK_DATASETS,
        QUICK_EPSILONS,
        QUICK_SEEDS,
        SEEDS,
        make_grid,
    )

    quick = options.quick
    return make_grid(
        options.protocol,
        datasets=options.datasets or (QUICK_DATASETS if quick else DATASETS),
        epsilons=options.epsilons or (QUICK_EPSILONS if quick else EPSILONS),
        seeds=(QUICK_SEEDS if quick else SEEDS) if options.seeds is None else options.seeds,
    )


def _write(path: Path, text: str) -> None:
    with beside(path, replace=True) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _progress(options: argparse.Namespace) -> Progress:
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(),
        TextColumn("{task.fields[done]} of {task.fields[cells]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=options.json or not console.is_terminal,
    )
