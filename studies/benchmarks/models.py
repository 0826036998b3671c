"""Which model for which table? All models on four tables and four budgets, and what each loses.

Tables: the paper's four, NIST's excerpt (`--tables nist`), or those of `packaged.py`. ε = .5, 1, 2, 4 at δ = 1/n²,
the number of records public, seeded noise. The regret of a model in a cell (a table, an ε, uniform or default
weights) is how much worse it is there than the best one: in AUROC of boosting and of logistic regression, and in
two-way distance as a fraction of the best one's. The measures are those of `judge.py`.

    python -m studies.benchmarks.models --data-dir FOLDER --kept runs.jsonl
    python -m studies.benchmarks.models --data-dir FOLDER --kept runs.jsonl --tune --jobs 2

Every run is appended to a file, one line each, and is not repeated when the script is started again. After a
change of the models, name another file. Models are tuned on splits 5 to 9 (--tune), and reported on 0 to 4.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.data.sources import open_source
from repsynth.evaluation.points import records_of
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from studies.benchmarks.judge import measures, split_of
from studies.benchmarks.values import Split

TABLES = ("sim", "breast_cancer", "german_credit", "adult")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
WEIGHTS = ("uniform", "default")
CORE = ("naive-bayes", "mst", "aim")
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
                    for weights in WEIGHTS:
                        for model in arguments.models:
                            yield Run(table, epsilon, weights, model, split, repeat, arguments.records)


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


# The regret of a model

Means = dict[tuple[str, float, str], dict[str, dict[str, float]]]
"""Of each cell: the mean measures of each model."""
REGRETS: dict[str, Callable[[float, list[float]], float]] = {
    "GB": lambda mine, all_: max(all_) - mine,
    "LR": lambda mine, all_: max(all_) - mine,
    "2-way": lambda mine, all_: mine / min(all_) - 1,
}


def means_of(runs: dict[Run, dict[str, float]], models: Iterable[str]) -> Means:
    """Of cells in which every model has run."""
    gathered: dict[tuple[str, float, str], dict[str, list[dict[str, float]]]] = {}
    for task, found in runs.items():
        cell = gathered.setdefault((task.table, task.epsilon, task.weights), {})
        cell.setdefault(task.model, []).append(found)
    return {
        cell: {model: {name: float(np.mean([r[name] for r in by_model[model]])) for name in by_model[model][0]}
               for model in models}
        for cell, by_model in gathered.items()
        if all(model in by_model for model in models)
    }  # fmt: skip


def regrets(means: Means, model: str) -> dict[str, list[float]]:
    """What a model loses against the best one, over cells."""
    found: dict[str, list[float]] = {name: [] for name in REGRETS}
    for models in means.values():
        for name, regret in REGRETS.items():
            found[name].append(regret(models[model][name], [m[name] for m in models.values()]))
    return found


def print_cells(means: Means) -> None:
    shown = ("LR", "GB", "1-way", "2-way")
    names = list(next(iter(means.values())))
    print(f"{'table':14}{'ε':>5} {'weights':9}" + "".join(f"{name:>28}" for name in names))
    print(f"{'':28}" + "".join(f"{'LR   GB   1-way  2-way':>28}" for _ in names))
    for cell, models in sorted(means.items(), key=lambda item: (item[0][0], item[0][2], item[0][1])):
        values = (" ".join(f"{m[name]:6.3f}" for name in shown) for m in models.values())
        print(f"{cell[0]:14}{cell[1]:5g} {cell[2]:9}" + "".join(f"{v:>28}" for v in values))


def print_regrets(means: Means, models: Iterable[str]) -> None:
    print(f"\n{'regret: mean, worst':32}" + "".join(f"{name:>18}" for name in REGRETS))
    for weights in WEIGHTS:
        part = {cell: found for cell, found in means.items() if cell[2] == weights}
        for model in models:
            numbers = "".join(f"{np.mean(v):9.4f}{max(v):9.4f}" for v in regrets(part, model).values())
            print(f"{f'{model}, {weights}':32}{numbers}")


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
    parser.add_argument("--records", type=int, default=0, help="use a random part of the training records")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--show", action="store_true", help="run nothing; judge the runs that are there")
    arguments = parser.parse_args()
    wanted, kept = list(tasks_of(arguments)), read_kept(arguments.kept)
    missing = [] if arguments.show else [task for task in wanted if task not in kept]
    with arguments.kept.open("a", encoding="utf-8") as file:
        for done, (task, found) in enumerate(outcomes(missing, arguments.data_dir, arguments.jobs), start=1):
            kept[task] = found
            file.write(json.dumps({"run": asdict(task), "measures": found}) + "\n")
            file.flush()
            print(f"\r{done} of {len(missing)} runs ", end="", file=sys.stderr)
    means = means_of({task: kept[task] for task in wanted if task in kept}, arguments.models)
    print_cells(means)
    print_regrets(means, arguments.models)


if __name__ == "__main__":
    main()
