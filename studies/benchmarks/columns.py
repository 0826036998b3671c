"""Do number columns keep their shape? One-way distances, standard deviations, and LR between draws of the noise.

Tables: Adult, NIST's excerpt with public bounds, fourteen simulated hard columns of 20,000 records, and, for the
spread of LR, two packaged tables. ε = 1, δ = 1/n², the number of records public. The split of a table stays the
same; only the noise differs between the draws. Distances are on the strict grid.

    python -m studies.benchmarks.columns --data-dir FOLDER

FOLDER holds adult.csv, nist_national2019.csv and the tables of `packaged.py`.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby, product
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import numbers_of, records_of
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import schema_from_dict
from studies.benchmarks.judge import split_of
from studies.benchmarks.values import SHAPES, Split, either, predictions

RESULT = Path(__file__).parent / "results" / "columns.json"
ROWS, DRAWS = 20_000, 10
METHODS = (("mst", "uniform"), ("aim", "uniform"), ("aim", "default"))
TABLES = ("adult", "nist", "hard", "default", "pension")
HEAVY = {
    "adult": ("capital-gain", "capital-loss", "fnlwgt"),
    "nist": ("PINCP",),
    "hard": ("lognormal 1", "lognormal 2", "pareto 2", "signed", "zeros 95 %", "too wide"),
}
"""Columns whose standard deviation is judged."""
DERIVED = "DENSITY"
"""NIST's number column that is a function of another column."""

Generator = np.random.Generator
CODES = np.random.default_rng(37).choice(10_000, 37, replace=False).astype(float)
HARD: dict[str, tuple[str, float, float, Callable[[Generator, int], np.ndarray]]] = {
    "lognormal 1": ("number", 0, 200_000, SHAPES["lognormal 1"][1]),
    "lognormal 2": ("number", 0, 10_000_000, SHAPES["lognormal 2"][1]),
    "pareto 2": ("number", 0, 100_000, SHAPES["pareto 2"][1]),
    "signed": ("number", -100_000, 100_000, SHAPES["signed"][1]),
    "zeros 95 %": ("integer", 0, 500_000, lambda g, n: either(g, 0.95, np.zeros(n), g.lognormal(8, 1, n).round())),
    "too wide": ("number", 0, 100_000_000, SHAPES["lognormal 1"][1]),
    "percentages": ("number", 0, 100, lambda g, n: g.choice([0, *np.arange(4.5, 100, 10), 100], n)),
    "forty spikes": ("number", 0, 1_000, lambda g, n: 12.5 + 25 * np.minimum(g.geometric(0.08, n) - 1, 39)),
    "heaps": ("integer", 0, 1_000_000, SHAPES["heaped"][1]),
    "37 codes": ("integer", 0, 10_000, lambda g, n: g.choice(CODES, n, p=g.dirichlet(np.ones(37)))),
    "two modes": ("number", -100, 100, SHAPES["bimodal"][1]),
    "two far modes": ("integer", 0, 1_000_000, SHAPES["bimodal far"][1]),
    "uniform": ("integer", 0, 10_000, SHAPES["uniform"][1]),
    "age": ("integer", 0, 120, lambda g, n: 100 * g.beta(2, 3, n).round(2)),
}
"""Type, public bounds and values of each hard column."""


def hard() -> Split:
    generators = np.random.default_rng(28).spawn(len(HARD))
    cells, columns = {}, {}
    for (name, (kind, low, high, draw)), generator in zip(HARD.items(), generators, strict=True):
        cast, number = (int, np.int64) if kind == "integer" else (float, float)
        values = np.clip(np.round(draw(generator, ROWS), 3), low, high)
        cells[name] = pa.array(values.astype(number))
        columns[name] = {"type": kind, "min": cast(low), "max": cast(high)}
    schema = schema_from_dict({"one_row_per_person": True, "columns": columns})
    table = pa.table(cells)
    return Split(schema, table, records_of(table, schema), records_of(table, schema))


def draw(table: str, model: str, weights: str, seed: int, data_dir: str | None) -> tuple[Split, Records]:
    split = hard() if table == "hard" else split_of(table, 0, data_dir)
    rows = split.train.rows
    chosen = {} if weights == "default" else {"weights": weights}
    settings = Settings.of(epsilon=1.0, delta=1 / rows**2, public_rows=rows, model=model, **chosen)
    with threadpool_limits(1):
        release = run(make_plan(split.schema, settings), open_source(split.table), noise_seed=seed)
        return split, records_of(release.sample(rows, seed=seed), split.schema)


def work(table: str, model: str, weights: str, seed: int, data_dir: str | None) -> dict[str, float]:
    split, made = draw(table, model, weights, seed, data_dir)
    found = {} if table == "hard" else predictions(table, split, made, boosted=False)
    if table not in HEAVY:
        return found
    distances = measure_distances(split.train, made, split.schema, pairs=False).one_way
    numeric = {column.name: column for column in split.schema.numeric}
    found |= {f"1-way {name}": distances[name] for name in numeric}
    for name in HEAVY[table]:
        real, synthetic = (numbers_of(records, numeric[name]) for records in (split.train, made))
        found[f"sd {name}"] = float(synthetic.std() / real.std())
    return found


def tables_of(runs: list[dict]) -> Iterator[dict]:
    """Yield one table of distances, one of standard deviations and one of LR."""
    cells: dict[str, dict[tuple[str, str, str], list[float]]] = {"1-way": {}, "sd": {}, "LR": {}}
    names = [f"{model}, {weights}" for model, weights in METHODS]
    for (table, model, weights), group in groupby(runs, key=lambda r: (r["table"], r["model"], r["weights"])):
        for each in group:
            values = {key: value for key, value in each.items() if key.startswith(("1-way", "sd", "LR"))}
            one_way = {key[6:]: value for key, value in values.items() if key.startswith("1-way")}
            if one_way:
                values["1-way mean"] = fmean(one_way.values())
            if one_way.pop(DERIVED, None):
                values[f"1-way mean without {DERIVED}"] = fmean(one_way.values())
            for key, value in values.items():
                kind, _, column = key.partition(" ")
                cells[kind].setdefault((table, column, f"{model}, {weights}"), []).append(value)
    texts: dict[str, Callable[[list[float]], str]] = {
        "1-way": lambda values: f"{fmean(values):.4f} ({stdev(values) / len(values) ** 0.5:.4f})",
        "sd": lambda values: f"{fmean(values):.2f} ({min(values):.2f} to {max(values):.2f}), {close(values)}",
        "LR": lambda values: f"{fmean(values):.4f} ± {stdev(values):.4f}",
    }
    heads = {
        "1-way": "one-way distance, mean (standard error)",
        "sd": "synthetic / real standard deviation, mean (least to greatest), runs within 15 %",
        "LR": "LR, mean ± standard deviation of one run",
    }
    for kind, found in cells.items():
        lines = dict.fromkeys((table, column) for table, column, _ in found)
        rows = [[*line, *(texts[kind](found[*line, name]) if (*line, name) in found else "" for name in names)]
                for line in lines]  # fmt: skip
        yield {"columns": [heads[kind], "column", *names], "rows": rows}


def close(ratios: list[float]) -> str:
    """Return how many ratios are within 15 %.

    >>> close([0.84, 0.9, 1.14, 1.2])
    '2 of 4'
    """
    return f"{sum(abs(ratio - 1) <= 0.15 for ratio in ratios)} of {len(ratios)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="the folder that packaged.py has filled")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--draws", type=int, default=DRAWS)
    asked = parser.parse_args()
    tasks = [(t, m, w, seed) for t, (m, w), seed in product(TABLES, METHODS, range(asked.draws))]
    runs = []
    with ProcessPoolExecutor(max_workers=asked.jobs) as pool:
        done = pool.map(work, *zip(*tasks, strict=True), [asked.data_dir] * len(tasks))
        for (table, model, weights, seed), found in zip(tasks, done, strict=True):
            runs.append({"table": table, "model": model, "weights": weights, "seed": seed, **found})
            print(json.dumps(runs[-1]), flush=True)
    store(runs, asked.draws)


def store(runs: list[dict], draws: int) -> None:
    note = (
        f"ε = 1, δ = 1/n², number of records public, {draws} draws of the noise on one split. NIST has public "
        "bounds. DENSITY is a function of PUMA with 20 values that a schema should leave out. hard: simulated, "
        "20,000 records."
    )
    found = {"title": "Number columns", "command": "columns --data-dir FOLDER", "note": note}
    text = json.dumps(found | {"tables": list(tables_of(runs))}, indent=1, ensure_ascii=False)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
