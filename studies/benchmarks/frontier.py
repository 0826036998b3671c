"""What protecting outliers costs: utility with risk weights and without at the same total (ε, δ).

For each table, model and weights, over ten runs: AUROC on real records of logistic regression and of boosting that
learned from synthetic ones, the mean total variation distance of one- and two-way tables (strict grid; equal bins
for two-way, too), and protection: the mean advantage 2 Φ(μᵢ/2) − 1 of the best attack over the top decile of
nearest-neighbour outliers, as a fraction of the largest one. Entries are means; of both AUROCs the worst run is
shown, too. Every run has a split of its own (70 % to learn from), which no constant of the product was tuned on,
and noise of its own; all weights share both. Everything is charged; uniform weights pay for no threshold.

    python -m studies.benchmarks.frontier --data-dir FOLDER --models mst aim --tables adult nist
    python -m studies.benchmarks.frontier --data-dir FOLDER --models mst --weights 0.1 0.2 0.3 --fractions 0.2 0.3
    python -m studies.benchmarks.frontier --data-dir FOLDER --models mst --gammas 0.5 1 --without-boosting

Gammas are those of hinge-exp weights, which fall from 1 at the threshold on. Boosting takes most of the time.
With --json every run is kept in a file, one line each, as soon as its split is done; runs in it are not run again.
After a change of the models, name another file.
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.arrays import Bools
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import Fill, Space, outlyingness, points_of_records, records_of
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from studies.benchmarks import values
from studies.split import split_rows

FIRST_SPLIT = 100
"""Splits below it were tuned on."""
TOP = 0.9
SHOWN = ("LR", "GB", "1-way", "2-way", "2-way, equal bins", "ratio")


@dataclass(frozen=True)
class Run:
    """One model with one kind of weights on one split; uniform without a weight for outliers or γ."""

    table: str
    k: int
    epsilon: float
    model: str
    weight: float | None = None
    fraction: float | None = None
    gamma: float | None = None
    boosted: bool = True

    @property
    def options(self) -> dict[str, object]:
        """What the settings say of weights."""
        if self.gamma is not None:
            return {"weights": "hinge-exp", "gamma": self.gamma, "outlier_fraction": self.fraction}
        if self.weight is None:
            return {"weights": "uniform"}
        return {"outlier_weight": self.weight, "outlier_fraction": self.fraction}

    @property
    def named(self) -> str:
        """The weights in a table."""
        if self.gamma is not None:
            return f"hinge-exp {self.gamma:g} for {self.fraction:.0%}"
        return "uniform" if self.weight is None else f"{self.weight:g} for {self.fraction:.0%}"


Runs = dict[Run, dict[str, float]]


@lru_cache(maxsize=1)
def split_of(table: str, k: int, data_dir: str) -> tuple[values.Split, Bools]:
    """A split, and which of its training records are in the top decile of outliers."""
    whole, schema = values.load(table, data_dir, True)
    records = records_of(whole, schema)
    learn, tune, test = split_rows(records.codes[schema.label or ""], FIRST_SPLIT + k)
    train = np.concatenate([learn, tune])
    split = values.Split(schema, whole.take(train), records.take(train), records.take(test))
    points = points_of_records(split.train, schema, Fill.of(split.train, schema))
    outlying = outlyingness(Space.of(points).place(points))
    return split, outlying >= np.quantile(outlying, TOP)


def measure(task: Run, data_dir: str) -> dict[str, float]:
    split, top = split_of(task.table, task.k, data_dir)
    rows = split.train.rows
    settings = Settings.of(
        epsilon=task.epsilon, delta=1 / rows**2, public_rows=rows, model=task.model, **task.options
    )
    release = run(make_plan(split.schema, settings), open_source(split.table), noise_seed=task.k)
    made = records_of(release.sample(rows, seed=task.k), split.schema)
    strict = measure_distances(split.train, made, split.schema)
    loss = release.privacy.loss
    return {
        **values.predictions(task.table, split, made, boosted=task.boosted),
        "1-way": strict.mean_one_way,
        "2-way": strict.mean_two_way,
        "2-way, equal bins": measure_distances(
            split.train, made, split.schema, grid=values.equal_grid
        ).mean_two_way,
        "ratio": float(loss.advantage_at(release.influence(split.train))[top].mean() / loss.advantage_at(1.0)),
    }


def one_split(tasks: list[Run], data_dir: str) -> Runs:
    """What is asked for on one split."""
    with threadpool_limits(1):
        return {task: measure(task, data_dir) for task in tasks}


def tasks_of(asked: argparse.Namespace, table: str, k: int) -> Iterator[Run]:
    """Uniform weights first."""
    for model in asked.models:
        boosted = not asked.without_boosting
        yield Run(table, k, asked.epsilon, model, boosted=boosted)
        for fraction in asked.fractions:
            for weight in asked.weights:
                yield Run(table, k, asked.epsilon, model, weight, fraction, boosted=boosted)
            for gamma in asked.gammas:
                yield Run(table, k, asked.epsilon, model, None, fraction, gamma, boosted)


def read_kept(path: Path | None) -> Runs:
    if path is None or not path.exists():
        return {}
    lines = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return {Run(**line["run"]): line["measures"] for line in lines}


def keep(path: Path | None, found: Runs) -> None:
    if path is None:
        return
    with path.open("a", encoding="utf-8") as file:
        for task, measures in found.items():
            file.write(json.dumps({"run": asdict(task), "measures": measures}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--tables", nargs="*", default=["adult", "nist"])
    parser.add_argument("--models", nargs="*", default=["mst", "aim"])
    parser.add_argument("--weights", nargs="*", type=float, default=[0.2], help="of outliers")
    parser.add_argument("--fractions", nargs="*", type=float, default=[0.3], help="of outliers")
    parser.add_argument("--gammas", nargs="*", type=float, default=[], help="of hinge-exp weights")
    parser.add_argument("--without-boosting", action="store_true", help="logistic regression and distances alone")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep every run, one line each")
    asked = parser.parse_args()
    kept = read_kept(asked.json)
    with ProcessPoolExecutor(asked.jobs) as pool:
        for table in asked.tables:
            splits = [list(tasks_of(asked, table, k)) for k in range(asked.runs)]
            missing = [[task for task in tasks if task not in kept] for tasks in splits]
            futures = [pool.submit(one_split, tasks, asked.data_dir) for tasks in missing if tasks]
            for future in as_completed(futures):
                keep(asked.json, future.result())
                kept |= future.result()
            print(f"\n{table}, ε = {asked.epsilon:g}, {asked.runs} runs\n", flush=True)
            print_table(splits, kept)


def print_table(splits: list[list[Run]], kept: Runs) -> None:
    shown_here = [name for name in SHOWN if name in kept[splits[0][0]]]
    judged = [name for name in ("LR", "GB") if name in shown_here]
    print(f"| model | weights | {' | '.join(shown_here)} | {' | '.join(f'worst {name}' for name in judged)} |")
    print("|---" * (len(shown_here) + len(judged) + 2) + "|")
    for runs in zip(*splits, strict=True):
        found = {name: np.array([kept[task][name] for task in runs]) for name in shown_here}
        shown = [f"{found[name].mean():.4f}" for name in shown_here]
        worst = [f"{found[name].min():.4f}" for name in judged]
        print(f"| {runs[0].model} | {runs[0].named} | " + " | ".join([*shown, *worst]) + " |", flush=True)


if __name__ == "__main__":
    main()
