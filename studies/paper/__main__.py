"""Run the paper's evaluation: six methods, four public datasets, four budgets, five seeds. NOT a private release.

Writes tables (Markdown, LaTeX, JSON) with the published values beside ours, and figures (PNG, SVG). Every run is
kept in a file, so a study that was stopped can be resumed.

  python -m studies.paper --quick
  python -m studies.paper --data-dir FOLDER -o results
  python -m studies.paper --protocol paper --data-dir FOLDER -o results
  python -m studies.paper --nulls --data-dir FOLDER -o results
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from repsynth.errors import RepsynthError
from repsynth.storage import beside
from studies.paper.figures import write_figures
from studies.paper.grid import (
    DATASETS,
    EPSILONS,
    PROTOCOLS,
    QUICK_DATASETS,
    QUICK_EPSILONS,
    QUICK_SEEDS,
    SEEDS,
    Cell,
    make_grid,
)
from studies.paper.nulls import SEEDS as NULL_SEEDS
from studies.paper.nulls import run_nulls, show_nulls
from studies.paper.study import EFFORT, Stored, make_folder, run_study
from studies.paper.summary import summarise
from studies.paper.tabulate import to_latex, to_markdown, to_terminal


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study. Return 1 if some of its runs failed, 2 if it cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m studies.paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--protocol", choices=PROTOCOLS, default="sound", help="sound: the package's path; paper: as published"
    )
    parser.add_argument("--quick", action="store_true", help="two datasets, two budgets, two seeds")
    parser.add_argument("--nulls", action="store_true", help="the published attack where there is nothing to find")
    parser.add_argument("--datasets", nargs="+", metavar="NAME", help=" ".join(DATASETS))
    parser.add_argument("--epsilons", nargs="+", type=float, metavar="E", help="(0.5 1 2 4)")
    parser.add_argument("--seeds", type=int, metavar="N", help="splits of each dataset (5; more for --nulls)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="N", help="processes")
    parser.add_argument("--data-dir", metavar="DIR", help="adult.csv and german_credit.csv (or REPSYNTH_DATA)")
    parser.add_argument("-o", "--output", type=Path, default=Path("paper-results"), metavar="DIR", help="results")
    options = parser.parse_args(arguments)
    try:
        return _nulls(options) if options.nulls else _study(options)
    except RepsynthError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; run the same command again to resume\n")
        return 130


def _study(options: argparse.Namespace) -> int:
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

    console = _console()
    to_terminal(console, summary)
    console.print(f"Wrote tables.md, tables.tex, summary.json and {len(figures)} figures to {report}.")
    return int(bool(summary.failures))


def _nulls(options: argparse.Namespace) -> int:
    names = list(dict.fromkeys(cell.dataset for cell in _cells(options)))
    seeds = options.seeds or (QUICK_SEEDS if options.quick else None)
    runs = sum(seeds or NULL_SEEDS[name] for name in names)
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
    show_nulls(_console(), findings)
    return 0


def _cells(options: argparse.Namespace) -> tuple[Cell, ...]:
    quick = options.quick
    return make_grid(
        options.protocol,
        datasets=options.datasets or (QUICK_DATASETS if quick else DATASETS),
        epsilons=options.epsilons or (QUICK_EPSILONS if quick else EPSILONS),
        seeds=(QUICK_SEEDS if quick else SEEDS) if options.seeds is None else options.seeds,
    )


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else 160)  # tables in a file or a pipe are not wrapped


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
        disable=not console.is_terminal,
    )


if __name__ == "__main__":
    sys.exit(main())
