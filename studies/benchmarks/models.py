"""Which model for which table? Each model's regret, and what default weights cost.

Tables: the paper's four, NIST's excerpt, or those of `packaged.py`, whole or random parts of the training records.
δ = 1/n², the number of records public, seeded noise. A cell is a table, a number of records, ε and weights. The
regret of a model is how much worse it is than the best model of the cell: in AUROC of boosting and of logistic
regression, and in two-way distance as a fraction of the best one's. The cost of default weights is the difference
from uniform ones. The measures are those of `judge.py`.

    python -m studies.benchmarks.models --data-dir FOLDER --kept runs.jsonl
    python -m studies.benchmarks.models --data-dir FOLDER --kept runs.jsonl --tables bikes ofp --records 1000 3000

Each run is appended to the file as one line. A stored run is not repeated; after a change of the models, name
another file. Splits 0 to 4 report; splits 5 to 9 (--tune) are for tuning. --store writes results/models.json.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.evaluation.points import records_of
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from studies.benchmarks.judge import measures, split_of
from studies.benchmarks.values import Split

RESULT = Path(__file__).parent / "results" / "models.json"
TABLES = ("sim", "breast_cancer", "german_credit", "adult")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WEIGHTS = ("uniform", "default")
CORE = ("naive-bayes", "mst", "aim")
NETWORK = "autoregressive"
"""Takes longer. Cells in which it has run, too, get a separate table."""
REPEATS = {"breast_cancer": 3, "german_credit": 3}
"""Draws of the noise on each split, where it is more than one: small tables vary."""


@dataclass(frozen=True)
class Run:
    """One draw of one model on one split."""

    table: str
    epsilon: float
    weights: str
    model: str
    split: int
    repeat: int
    records: int = 0
    """How many training records to use; 0 for all."""


def work(task: Run, data_dir: str | None) -> dict[str, float]:
    with threadpool_limits(1):
        split = part_of(split_of(task.table, task.split, data_dir), task.records, task.split)
        start = time.process_time()
        plan = make_plan(split.schema, settings_of(task, split.train.rows))
        seed = 100 * task.split + task.repeat
        release = run(plan, open_source(split.table), noise_seed=seed)
        made = records_of(release.sample(split.train.rows, seed=seed), split.schema)
        seconds = time.process_time() - start
        return {**measures(task.table, split, made), "CPU s": seconds}


def part_of(split: Split, records: int, seed: int) -> Split:
    if not records:
        return split
    rows = np.random.default_rng(seed).permutation(split.train.rows)[:records]
    return Split(split.schema, split.table.take(rows), split.train.take(rows), split.test)


def settings_of(task: Run, rows: int) -> Settings:
    weights = {} if task.weights == "default" else {"weights": task.weights}
    return Settings.of(epsilon=task.epsilon, delta=1 / rows**2, public_rows=rows, model=task.model, **weights)


# Runs


def tasks_of(arguments: argparse.Namespace) -> Iterator[Run]:
    """Split by split, so that a study that was stopped has something on every table."""
    for split in range(arguments.splits) if not arguments.tune else range(5, 5 + arguments.splits):
        for table in arguments.tables:
            for repeat in range(min(REPEATS.get(table, 1), arguments.repeats)):
                for epsilon in arguments.epsilons:
                    for records, weights, model in product(arguments.records, WEIGHTS, arguments.models):
                        yield Run(table, epsilon, weights, model, split, repeat, records)


def read_kept(path: Path) -> dict[Run, dict[str, float]]:
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        kept = json.loads(line)
        found[Run(**kept["run"])] = kept["measures"]
    return found


def outcomes(tasks: list[Run], data_dir: str | None, jobs: int) -> Iterator[tuple[Run, dict[str, float]]]:
    if jobs == 1:
        yield from ((task, work(task, data_dir)) for task in tasks)
        return
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        futures = {pool.submit(work, task, data_dir): task for task in tasks}
        yield from ((futures[future], future.result()) for future in as_completed(futures))


# Regret and cost

Cell = tuple[str, int, float, str]
"""Table, records, ε and weights."""
Draws = dict[Cell, dict[str, dict[tuple[int, int], dict[str, float]]]]
"""Of each cell: the measures of each model on each split and repeat."""
TUNED = ("adult", "wage", "visits", "insured", "ofp", "vietnam")
"""Tables on which models and weights were tuned."""
HEADINGS = {"GB": "boosting", "LR": "LR", "2-way": "two-way %"}
SMALL = 300
"""Parts of at most this many records are reported apart."""


def draws_of(runs: dict[Run, dict[str, float]], models: Iterable[str]) -> Draws:
    """Return the cells in which every model has run, with the draws that all of them have."""
    gathered: Draws = {}
    for task, found in runs.items():
        cell = gathered.setdefault((task.table, task.records, task.epsilon, task.weights), {})
        cell.setdefault(task.model, {})[task.split, task.repeat] = found
    found = {}
    for cell, by_model in gathered.items():
        if all(model in by_model for model in models):
            common = set.intersection(*(set(by_model[model]) for model in models))
            found[cell] = {model: {draw: by_model[model][draw] for draw in sorted(common)} for model in models}
    return found


def losses(cell: dict[str, dict[tuple[int, int], dict[str, float]]], model: str, measure: str) -> list[float]:
    """Return how much worse a model is than the best one, draw by draw; the mean chooses the best one."""
    values = {name: [found[measure] for found in draws.values()] for name, draws in cell.items()}
    if measure == "2-way":
        best = min(values.values(), key=fmean)
        return [100 * (mine - other) / fmean(best) for mine, other in zip(values[model], best, strict=True)]
    best = max(values.values(), key=fmean)
    return [other - mine for mine, other in zip(values[model], best, strict=True)]


def costs(draws: Draws, cell: Cell, model: str, measure: str) -> list[float]:
    """Return how much worse default weights are than uniform ones, draw by draw."""
    default, uniform = (draws[*cell[:3], weights][model] for weights in ("default", "uniform"))
    pairs = [(default[draw][measure], uniform[draw][measure]) for draw in default.keys() & uniform.keys()]
    if measure == "2-way":
        return [100 * (one - other) / fmean(b for _, b in pairs) for one, other in pairs]
    return [other - one for one, other in pairs]


def entry(found: dict[Cell, list[float]], digits: int) -> str:
    """Return the mean over cells and the worst cell, with standard errors over the draws.

    >>> entry({("a", 0, 1.0, "uniform"): [0.0, 0.01], ("b", 0, 1.0, "uniform"): [0.02, 0.03]}, 3)
    '0.015 (0.004), worst 0.025 (0.005): b'
    """
    worst = max(found, key=lambda cell: fmean(found[cell]))
    mean = fmean(fmean(values) for values in found.values())
    error = sqrt(sum(error_of(values) ** 2 for values in found.values())) / len(found)
    place = f"{worst[0]} {worst[1] or ''}".strip()
    most = f"{fmean(found[worst]):.{digits}f} ({error_of(found[worst]):.{digits}f})"
    return f"{mean:.{digits}f} ({error:.{digits}f}), worst {most}: {place}"


def error_of(values: list[float]) -> float:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def tables_of(draws: Draws, models: Iterable[str]) -> Iterator[dict[str, object]]:
    """Yield the table of regrets and that of the cost of default weights."""
    parts: dict[str, Callable[[Cell], bool]] = {
        "tuned": lambda cell: (cell[1] or SMALL + 1) > SMALL and cell[0] in TUNED,
        "others": lambda cell: (cell[1] or SMALL + 1) > SMALL and cell[0] not in TUNED,
        f"{SMALL} records": lambda cell: 0 < cell[1] <= SMALL,
    }
    measures = list(HEADINGS)
    rows, paid = [], []
    for part, inside in parts.items():
        for weights, model in product(WEIGHTS, models):
            cells = [cell for cell in draws if inside(cell) and cell[3] == weights]
            if not cells:
                continue
            found = [{cell: losses(draws[cell], model, measure) for cell in cells} for measure in measures]
            rows.append([part, weights, model, str(len(cells)), *map(entry, found, (4, 4, 1))])
            if weights == "default" and all((*cell[:3], "uniform") in draws for cell in cells):
                found = [{cell: costs(draws, cell, model, measure) for cell in cells} for measure in measures]
                paid.append([part, model, str(len(cells)), *map(entry, found, (4, 4, 1))])
    headings = list(HEADINGS.values())
    yield {"columns": ["regret on tables", "weights", "model", "cells", *headings], "rows": rows}
    yield {"columns": ["cost of default weights on tables", "model", "cells", *headings], "rows": paid}


def print_cells(draws: Draws) -> None:
    for cell, models in sorted(draws.items()):
        for model, found in models.items():
            values = (f"{fmean(f[name] for f in found.values()):.3f}" for name in ("LR", "GB", "1-way", "2-way"))
            print(*cell, model, *values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="default: the folder that REPSYNTH_DATA names")
    parser.add_argument("--kept", type=Path, required=True, metavar="FILE", help="where runs are kept")
    parser.add_argument("--tune", action="store_true", help="splits 5, 6, ... instead of 0, 1, ...")
    parser.add_argument("--splits", type=int, default=5, help="how many (5)")
    parser.add_argument("--repeats", type=int, default=3, help="draws of the noise on small tables (3)")
    parser.add_argument("--tables", nargs="+", default=TABLES, metavar="TABLE")
    parser.add_argument("--models", nargs="+", default=CORE, help=f"default: {' '.join(CORE)}")
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--records", nargs="+", type=int, default=[0], help="random parts of the training records")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="run nothing; judge all stored runs")
    parser.add_argument("--store", action="store_true", help="write results/models.json")
    arguments = parser.parse_args()
    kept = read_kept(arguments.kept)
    missing = [] if arguments.show else [task for task in tasks_of(arguments) if task not in kept]
    with arguments.kept.open("a", encoding="utf-8") as file:
        for done, (task, found) in enumerate(outcomes(missing, arguments.data_dir, arguments.jobs), start=1):
            kept[task] = found
            file.write(json.dumps({"run": asdict(task), "measures": found}) + "\n")
            file.flush()
            print(f"\r{done} of {len(missing)} runs ", end="", file=sys.stderr)
    draws = draws_of(kept, arguments.models)
    print_cells(draws)
    tables = list(tables_of(draws, arguments.models))
    if every := draws_of(kept, (*arguments.models, NETWORK)) if NETWORK not in arguments.models else {}:
        tables.append(next(tables_of(every, (*arguments.models, NETWORK))))
    for table in tables:
        print(f"\n{' | '.join(table['columns'])}", *map(" | ".join, table["rows"]), sep="\n")
    if arguments.store:
        found = json.loads(RESULT.read_text(encoding="utf-8")) | {"tables": tables}
        RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
