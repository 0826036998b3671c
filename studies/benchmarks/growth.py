"""Do synthetic tables come nearer to the real one as it grows? A simulated table of 10,000 to 10 million rows.

The table has what pairs of columns show (groups that depend on each other, numbers that depend on groups and on
one another) and what only triples show: the label depends on whether two columns agree, and so does a further
column, while each of the two alone says nothing. For each model and number of rows: the mean total variation
distance of one-, two- and three-way tables from real ones, AUROC on fresh records of logistic regression and of
gradient boosting, CPU seconds (measuring, and drawing 200,000 records), their exponent from one size to the next,
and peak memory. "Real" are the same number of real records, 200,000 at most: not the model's records, so their
distances are what chance alone makes. ε = 1, δ = 1/n² (1e-11 at least), seeded noise, uniform weights.

    python -m studies.benchmarks.growth --rows 10000 100000 1000000 --models naive-bayes mst aim autoregressive
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

CHUNK = 200_000
JUDGED = 200_000
"""Records on either side of a distance, and the most that a classifier learns from."""
SMALLEST_DELTA = 1.01e-11
"""A training cannot be accounted for at less."""

LETTERS = np.array(list("abcdefgh"))
SCHEMA = {
    "one_row_per_person": True,
    "label": "answer",
    "columns": {
        **{name: {"type": "boolean"} for name in ("left", "right", "up", "down", "agree")},
        **{name: {"type": "category", "values": list("abcdef")} for name in ("kind", "place")},
        "age": {"type": "integer", "min": 0, "max": 100},
        "pay": {"type": "integer", "min": 0, "max": 10_000},
        "hours": {"type": "integer", "min": 0, "max": 80},
        "answer": {"type": "boolean"},
    },
}


def chunks(rows: int, seed: int) -> Iterator[pa.Table]:
    """The table in pieces, each from a seed of its own, so that no piece depends on how many there are."""
    for k, start in enumerate(range(0, rows, CHUNK)):
        yield simulate(min(CHUNK, rows - start), np.random.default_rng([seed, k]))


def simulate(rows: int, generator: np.random.Generator) -> pa.Table:
    """Some rows of the simulated table.

    >>> simulate(3, np.random.default_rng(0)).num_columns
    11
    """
    left, right, up, down = generator.random((4, rows)) < np.array([[0.5], [0.5], [0.4], [0.5]])
    kind = generator.choice(6, rows, p=[0.3, 0.25, 0.2, 0.15, 0.07, 0.03])
    place = np.where(generator.random(rows) < 0.5, kind, generator.integers(0, 6, rows))
    age = np.clip(generator.gamma(6 + kind, 5, rows), 0, 100).astype(int)
    # What only three columns show: a column says whether two others agree; pay rises with age or falls with it.
    agree = (up == down) ^ (generator.random(rows) < 0.15)
    rises = np.where(place % 2 == 0, 1.0, -1.0)
    pay = np.clip(np.exp(6.5 + 0.02 * rises * (age - 40) + generator.normal(0, 0.6, rows)), 0, 10_000).astype(int)
    hours = np.clip(generator.normal(25 + 5 * left + pay / 200, 8), 0, 80).astype(int)
    logit = 2.2 * (left ^ right) - 1.6 + 0.5 * (kind % 3 - 1) + 0.03 * (hours - 30) + 0.4 * agree
    answer = generator.random(rows) < 1 / (1 + np.exp(-logit))
    codes = {"kind": LETTERS[kind], "place": LETTERS[place], "age": age, "pay": pay, "hours": hours}
    flags = {"left": left, "right": right, "up": up, "down": down, "agree": agree}
    return pa.table({**flags, **codes, "answer": answer})


def write(path: Path, rows: int, seed: int) -> None:
    """The table as a parquet file, piece by piece."""
    pieces = chunks(rows, seed)
    first = next(pieces)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def peak_megabytes() -> float:
    """The most memory this process ever held (its own: what it was started from does not count)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(text: str) -> None:
    """Fit and draw in this process; what it took goes to the standard output as JSON."""
    from repsynth.io.sources import open_source
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.run.run import run
    from repsynth.schema import schema_from_dict

    task = json.loads(text)
    rows = task["rows"]
    settings = Settings.of(
        epsilon=1.0,
        delta=max(1 / rows**2, SMALLEST_DELTA),
        public_rows=rows,
        model=task["model"],
        weights="uniform",
    )
    start = time.process_time()
    release = run(
        make_plan(schema_from_dict(SCHEMA), settings), open_source(task["real"]), noise_seed=task["seed"]
    )
    made = release.sample(JUDGED, seed=task["seed"])
    print(json.dumps({"cpu": time.process_time() - start, "peak": peak_megabytes()}))
    pq.write_table(made, task["made"])


class Judge:
    """Fresh records of the same kind, and how far synthetic ones are from them."""

    def __init__(self) -> None:
        from repsynth.schema import schema_from_dict

        self.schema = schema_from_dict(SCHEMA)
        self.test = pa.concat_tables(chunks(JUDGED, seed=991))
        # So many that their own chance hardly counts.
        self.real = self._records(pa.concat_tables(chunks(5 * JUDGED, seed=992)))

    def distances(self, made: pa.Table) -> tuple[float, float, float]:
        """Means over columns, pairs and triples."""
        from repsynth.evaluation.fidelity import TRIPLES, measure_distances

        found = measure_distances(self.real, self._records(made), self.schema, triples=TRIPLES)
        return found.mean_one_way, found.mean_two_way, found.mean_three_way

    def scores(self, table: pa.Table) -> tuple[float, float]:
        """AUROC of logistic regression and of boosting that learned from the table."""
        from repsynth.evaluation.prediction import fit_boosting
        from studies.split import points_of, tstr

        points, test = points_of(table, self.schema), points_of(self.test, self.schema)
        return tstr(points, test), fit_boosting(points).auroc(test)

    def _records(self, table: pa.Table):
        from repsynth.evaluation.points import records_of

        return records_of(table, self.schema)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst", "aim", "autoregressive"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    judge = Judge()
    before: dict[str, tuple[int, float]] = {}
    print("| rows | model | 1-way | 2-way | 3-way | LR | boosting | CPU s | exponent | peak MB |")
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory() as folder:
            real, made = Path(folder) / "real.parquet", Path(folder) / "made.parquet"
            write(real, rows, arguments.seed)
            sample = pa.concat_tables(chunks(min(rows, JUDGED), arguments.seed))
            best = judge.scores(sample)
            far = judge.distances(sample)
            print(f"| {rows:,} | real | {show(*far)} | {show(*best)} | | | |", flush=True)
            for model in arguments.models:
                task = {"rows": rows, "model": model, "seed": arguments.seed, "real": str(real), "made": str(made)}
                done = subprocess.run(
                    [sys.executable, "-m", "studies.benchmarks.growth", "--child", json.dumps(task)],
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    print(f"{model}: failed: {done.stderr.strip().splitlines()[-1]}")
                    continue
                cost = json.loads(done.stdout.strip().splitlines()[-1])
                table = pq.read_table(made)
                last = before.get(model)
                grown = f"{math.log(cost['cpu'] / last[1]) / math.log(rows / last[0]):.2f}" if last else ""
                before[model] = rows, cost["cpu"]
                print(
                    f"| {rows:,} | {model} | {show(*judge.distances(table))} | {show(*judge.scores(table))} | "
                    f"{cost['cpu']:.1f} | {grown} | {cost['peak']:,.0f} |",
                    flush=True,
                )


def show(*numbers: float) -> str:
    return " | ".join(f"{number:.3f}".replace("0.", ".") for number in numbers)


if __name__ == "__main__":
    main()
