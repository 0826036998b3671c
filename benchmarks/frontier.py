"""What protecting outliers costs: utility with risk weights and without at the same total (ε, δ).

For each table, model and weights, over ten runs: AUROC on real records of logistic regression and of boosting that
learned from synthetic ones, the mean total variation distance of one- and two-way tables (strict grid; equal bins
for two-way, too), and protection: the mean advantage 2 Φ(μᵢ/2) − 1 of the best attack over the top decile of
nearest-neighbour outliers, as a fraction of the largest one. Entries are means; of both AUROCs the worst run is
shown, too. Every run has a split of its own (70 % to learn from), which no constant of the product was tuned on,
and noise of its own; all weights share both. Everything is charged; uniform weights pay for no threshold.

    python benchmarks/frontier.py --data-dir FOLDER --models mst aim --tables adult nist
    python benchmarks/frontier.py --data-dir FOLDER --models mst --weights 0.1 0.2 0.3 0.5 --fractions 0.2 0.3
"""

import argparse
import json
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache

import numpy as np
import values
from threadpoolctl import threadpool_limits

from repsynth.arrays import Bools
from repsynth.data.sources import open_source
from repsynth.evaluation.distances import Grid, measure_distances
from repsynth.evaluation.matrix import Fill, Space, points_of_records, records_of
from repsynth.evaluation.nearest import outlyingness
from repsynth.evaluation.split import split_rows
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings

FIRST_SPLIT = 100
"""Splits below it were tuned on."""
TOP = 0.9
SHOWN = ("LR", "GB", "1-way", "2-way", "2-way, equal bins", "ratio")

Options = tuple[tuple[str, object], ...]


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


def measure(table: str, k: int, data_dir: str, epsilon: float, model: str, options: Options) -> dict[str, float]:
    """One run."""
    split, top = split_of(table, k, data_dir)
    rows = split.train.rows
    settings = Settings.of(epsilon=epsilon, delta=1 / rows**2, public_rows=rows, model=model, **dict(options))
    release = run(make_plan(split.schema, settings), open_source(split.table), noise_seed=k)
    made = records_of(release.sample(rows, seed=k), split.schema)
    strict = measure_distances(split.train, made, split.schema)
    loss = release.privacy.loss
    return {
        **values.predictions(table, split, made, boosted=True),
        "1-way": strict.mean_one_way,
        "2-way": strict.mean_two_way,
        "2-way, equal bins": measure_distances(split.train, made, split.schema, grid=Grid.equal).mean_two_way,
        "ratio": float(loss.advantage_at(release.influence(split.train))[top].mean() / loss.advantage_at(1.0)),
    }


def one_run(task: tuple[str, int, argparse.Namespace]) -> list[dict[str, float]]:
    """A split with all models and weights."""
    table, k, asked = task
    with threadpool_limits(1):
        return [measure(table, k, asked.data_dir, asked.epsilon, m, o) for m in asked.models for o in kinds(asked)]


def kinds(asked: argparse.Namespace) -> list[Options]:
    """Uniform weights first."""
    targeted = [
        (("outlier_weight", weight), ("outlier_fraction", fraction))
        for weight in asked.weights
        for fraction in asked.fractions
    ]
    return [(("weights", "uniform"),), *targeted]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--tables", nargs="*", default=["adult", "nist"])
    parser.add_argument("--models", nargs="*", default=["mst", "aim"])
    parser.add_argument("--weights", nargs="*", type=float, default=[0.2], help="of outliers")
    parser.add_argument("--fractions", nargs="*", type=float, default=[0.3], help="of outliers")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="keep every run")
    asked = parser.parse_args()
    kept = []
    with ProcessPoolExecutor(asked.jobs) as pool:
        for table in asked.tables:
            runs = list(pool.map(one_run, [(table, k, asked) for k in range(asked.runs)]))
            print(f"\n{table}, ε = {asked.epsilon:g}, {asked.runs} runs\n", flush=True)
            print_table(asked, runs)
            kept.append({"table": table, "runs": runs})
    if asked.json:
        with open(asked.json, "w", encoding="utf-8") as file:
            json.dump(kept, file)


def print_table(asked: argparse.Namespace, runs: list[list[dict[str, float]]]) -> None:
    print("| model | weights | " + " | ".join(SHOWN) + " | worst LR | worst GB |")
    print("|---" * (len(SHOWN) + 4) + "|")
    named = [(model, options) for model in asked.models for options in kinds(asked)]
    for place, (model, options) in enumerate(named):
        found = {name: np.array([run[place][name] for run in runs]) for name in SHOWN}
        of = "uniform" if len(options) == 1 else "{:g} for {:.0%}".format(*(value for _, value in options))
        shown = [f"{found[name].mean():.4f}" for name in SHOWN]
        worst = [f"{found[name].min():.4f}" for name in ("LR", "GB")]
        print(f"| {model} | {of} | " + " | ".join([*shown, *worst]) + " |", flush=True)


if __name__ == "__main__":
    main()
