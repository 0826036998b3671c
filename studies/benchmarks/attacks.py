"""Do the attacks of `repsynth attack` have power, and what is left of it under privacy?

An attack that finds nobody proves nothing, unless it finds somebody where there is no privacy. On each of five
tables the same attacks are carried out without noise and at ε = 100, then at ε = 4 and ε = 1, with uniform
weights and with REPS. Tables are cut to a few hundred rows, where one record weighs most; δ = 1e-6; the targets
come from all deciles of outlyingness. Each run is kept, so a study that was stopped goes on, and more runs go on
from those that are there.

    python -m studies.benchmarks.attacks --data-dir FOLDER --models naive-bayes mst --jobs 2 -o attack-study

The folder must hold adult.csv, german_credit.csv and nist_national2019.csv.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from repsynth.attacks.results import ATTACKS, BEST, REPS, UNIFORM, AttackResult, Exposure, attack
from repsynth.attacks.statistics import Estimate
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from studies.benchmarks.values import load
from studies.drawing import BLUE, FIGURE, GREY, ORANGE, PURPLE, SKY, YELLOW, name_ends

TABLES = {"sim": 1000, "breast_cancer": 350, "german_credit": 600, "adult": 1000, "nist": 1000}
"""Rows to learn from; as many others, or what is left, are the holdout."""

BUDGETS: dict[str, dict[str, Any]] = {
    "no noise": {"mu": 1e4, "weights": "uniform"},
    "ε = 100": {"epsilon": 100.0, "delta": 1e-6, "weights": "uniform"},
    "ε = 4": {"epsilon": 4.0, "delta": 1e-6},
    "ε = 1": {"epsilon": 1.0, "delta": 1e-6},
}
TITLES = {
    "sim": "simulated",
    "breast_cancer": "Breast Cancer",
    "german_credit": "German Credit",
    "adult": "Adult",
    "nist": "NIST excerpt",
}


class Cell(msgspec.Struct):
    """One attack of the study."""

    table: str
    model: str
    budget: str
    seconds: float
    exposure: Exposure


def run_cell(table: str, model: str, budget: str, options: argparse.Namespace) -> Cell:
    data, schema = load(table, options.data_dir, True)
    order = np.random.default_rng(0).permutation(data.num_rows)
    rows = TABLES[table]
    train, holdout = data.take(order[:rows]), data.take(order[rows : 2 * rows])
    plan = make_plan(schema, Settings.of(model=model, **BUDGETS[budget]))
    name = f"{table}-{model}-{budget}".replace(" ", "").replace("ε=", "eps")
    start = time.perf_counter()
    found = attack(
        plan, train, holdout, options.output / name, targets=options.targets, runs=options.runs, jobs=options.jobs
    )
    return Cell(table, model, budget, time.perf_counter() - start, found)


def line_of(cell: Cell, method: str, attack_name: str, decile: int | None) -> AttackResult | None:
    wanted = (method, attack_name, decile)
    return next((x for x in cell.exposure.lines if (x.method, x.attack, x.decile) == wanted), None)


def settings_of(cells: list[Cell]) -> list[tuple[str, str]]:
    """Budgets and methods, in order."""
    found = {(c.budget, x.method): None for c in cells for x in c.exposure.lines}
    order = list(BUDGETS)
    return sorted(found, key=lambda key: (order.index(key[0]), key[1] == REPS))


def print_tables(cells: list[Cell], decile: int | None) -> None:
    for table, model in dict.fromkeys((cell.table, cell.model) for cell in cells):
        mine = [cell for cell in cells if (cell.table, cell.model) == (table, model)]
        columns = settings_of(mine)
        size = mine[0].exposure
        who = "all targets" if decile is None else "the most outlying tenth"
        print(
            f"\n**{TITLES[table]}, {model}**, {who} ({size.rows} rows, {size.targets} targets, {size.runs} runs)\n"
        )
        print("| AUC | " + " | ".join(f"{budget}, {method}" for budget, method in columns) + " |")
        print("|---|" + "---|" * len(columns))
        for name in ATTACKS:
            entries = []
            for budget, method in columns:
                (cell,) = [cell for cell in mine if cell.budget == budget]
                line = line_of(cell, method, name, decile)
                entries.append("" if line is None else entry(line))
            print(f"| {name} | " + " | ".join(entries) + " |", flush=True)


def entry(line: AttackResult) -> str:
    if line.attack == BEST:
        return f"{line.area.value:.2f}"
    rate = "" if line.rate_at_1 is None else f"; {line.rate_at_1.value:.0%}"
    return f"{line.area.value:.2f} ({line.area.low:.2f} to {line.area.high:.2f}{rate})"


def print_proven(cells: list[Cell]) -> None:
    print("\n| table, model | ε claimed | method | largest proven ε | by | exceeded |\n|---|---|---|---|---|---|")
    for cell in cells:
        for method in dict.fromkeys(line.method for line in cell.exposure.lines):
            lines = [x for x in cell.exposure.lines if x.method == method and x.proven_epsilon is not None]
            most = max(lines, key=lambda line: line.proven_epsilon or 0.0)
            where = "all" if most.decile is None else f"decile {most.decile}"
            by = f"{most.proven_epsilon:.3g} | {most.attack}, {where}" if most.proven_epsilon else "none |"
            print(
                f"| {TITLES[cell.table]}, {cell.model} | {cell.exposure.epsilon:.4g} | {method} | {by} | "
                f"{sum(x.exceeded for x in lines)} of {len(lines)} |"
            )


def print_guesses(cells: list[Cell]) -> None:
    heading = ("table, model, budget", "weights", "singling out", "linking", "inferring")
    print(f"\n| {' | '.join(heading)} |\n{'|---' * len(heading)}|")
    for cell in cells:
        for method in dict.fromkeys(line.method for line in cell.exposure.lines):
            found = [g for g in cell.exposure.guesses if g.method == method]
            entries = [f"{g.excess.value:+.1%} ({g.excess.low:+.1%} to {g.excess.high:+.1%})" for g in found]
            name = f"{TITLES[cell.table]}, {cell.model}, {cell.budget}"
            print(f"| {name} | {method} | " + " | ".join(entries) + " |")


# Figures, in the project's colours

LOOKS = {
    ("no noise", UNIFORM): (GREY, "x"),
    ("ε = 100", UNIFORM): (PURPLE, "P"),
    ("ε = 4", UNIFORM): (BLUE, "o"),
    ("ε = 4", REPS): (ORANGE, "D"),
    ("ε = 1", UNIFORM): (SKY, "s"),
    ("ε = 1", REPS): (YELLOW, "^"),
}


def draw(cells: list[Cell], folder: Path, model: str) -> None:
    from matplotlib import rc_context

    mine = [cell for cell in cells if cell.model == model]
    tables = list(dict.fromkeys(cell.table for cell in mine))
    folder.mkdir(parents=True, exist_ok=True)
    look = rc_context(FIGURE | {"svg.fonttype": "none", "svg.hashsalt": "repsynth"})
    with look:
        draw_all(mine, tables, folder, model)


def draw_all(mine: list[Cell], tables: list[str], folder: Path, model: str) -> None:
    from matplotlib.figure import Figure

    for kind, title in (("power", "The most outlying tenth"), ("deciles", "By decile of outlyingness, ε = 4")):
        figure = Figure(figsize=(9.5, 3.5 * ((len(tables) + 1) // 2) + 1.0), layout="constrained")
        panels = figure.subplots((len(tables) + 1) // 2, min(len(tables), 2), squeeze=False).ravel()
        for axes, table in zip(panels, tables, strict=False):
            here = [cell for cell in mine if cell.table == table]
            (draw_power if kind == "power" else draw_deciles)(axes, here)
            axes.set_title(TITLES[table], fontsize=10)
            axes.grid(alpha=0.6)
        for axes in panels[len(tables) :]:
            axes.set_visible(False)
        if kind == "power":  # points have no end to write a name beside
            handles, labels = panels[0].get_legend_handles_labels()
            figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=9)
        figure.suptitle(f"{title}: {model}; public data, not a private release", fontsize=10)
        for suffix in ("png", "svg"):
            notes = {"Date": None} if suffix == "svg" else {}
            figure.savefig(folder / f"{kind}-{model}.{suffix}", dpi=150, metadata=notes)


def draw_power(axes: Any, cells: list[Cell]) -> None:
    """AUC of each attack, side by side."""
    keys = settings_of(cells)
    for k, (budget, method) in enumerate(keys):
        (cell,) = [cell for cell in cells if cell.budget == budget]
        lines = [line_of(cell, method, name, 10) for name in ATTACKS]
        at = [i + 0.1 * (k - len(keys) / 2) for i, line in enumerate(lines) if line]
        seen = [line.area for line in lines if line]
        color, marker = LOOKS[budget, method]
        axes.errorbar(
            at, [e.value for e in seen], yerr=reach(seen), color=color, marker=marker, linestyle="none",
            markersize=4, capsize=1.5, linewidth=0.9, label=f"{budget}, {method}",
        )  # fmt: skip
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.set_xticks(range(len(ATTACKS)), [name.replace(", ", ",\n") for name in ATTACKS], rotation=35, fontsize=7)
    axes.set_ylabel("AUC (0.5: guessing)")
    axes.set_ylim(0.3, 1.02)


def reach(seen: list[Estimate]) -> list[list[float]]:
    return [[e.value - e.low for e in seen], [e.high - e.value for e in seen]]


def draw_deciles(axes: Any, cells: list[Cell]) -> None:
    """The strongest attack that was carried out, and the best that there is."""
    ends = []
    for cell in cells:
        if cell.budget != "ε = 4":
            continue
        for method in (UNIFORM, REPS):
            color, marker = LOOKS[cell.budget, method]
            for name, style in (("all others known", "-"), (BEST, ":")):
                lines = [line_of(cell, method, name, decile) for decile in range(1, 11)]
                at = [d for d, line in enumerate(lines, start=1) if line]
                seen = [line.area for line in lines if line]
                axes.errorbar(
                    at, [e.value for e in seen], yerr=None if name == BEST else reach(seen), color=color,
                    marker=None if name == BEST else marker, linestyle=style, markersize=4, capsize=1.5,
                    linewidth=1,
                )  # fmt: skip
                said = "best possible" if name == BEST else "attack made"
                ends.append((f"{method}, {said}", at[-1], seen[-1].value, color))
    axes.axhline(0.5, color="black", linewidth=0.8)
    axes.set_xticks(range(1, 11))
    axes.set_xlabel("decile of outlyingness (10: the most outlying)")
    axes.set_ylabel("AUC (0.5: guessing)")
    name_ends(axes, ends)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="default: the folder that REPSYNTH_DATA names")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=list(TABLES))
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst"])
    parser.add_argument("--budgets", nargs="+", choices=BUDGETS, default=list(BUDGETS))
    parser.add_argument("--targets", type=int, default=100)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--figures", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=Path, default=Path("attack-study"))
    options = parser.parse_args()
    cells = []
    for model in options.models:
        for table in options.tables:
            for budget in options.budgets:
                if model == "autoregressive" and "epsilon" not in BUDGETS[budget]:
                    continue  # its training has no account without an ε
                cells.append(run_cell(table, model, budget, options))
                print(f"{table}, {model}, {budget}: {cells[-1].seconds:.0f} s", file=sys.stderr, flush=True)
    print_tables(cells, 10)
    print_tables(cells, None)
    print_guesses(cells)
    print_proven(cells)
    if options.figures:
        for model in options.models:
            draw(cells, options.figures, model)


if __name__ == "__main__":
    main()
