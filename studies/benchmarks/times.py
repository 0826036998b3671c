"""Does `plan` tell the truth about time? What it says beside what a run takes, in CPU seconds.

Simulated tables of a boolean label and, by turns, categories of 2, 5 and 12 values, ages, and amounts under wide
bounds; every column depends on the label a little. ε = 1, δ = 1/n² (1e-11 at least), default weights, the number
of records public, seeded noise. A run is what `repsynth synthesize` does: reading from memory, measuring, and
drawing as many records.

    python -m studies.benchmarks.times
    python -m studies.benchmarks.times --models autoregressive --sizes 71000x45
"""

import argparse
import time

import numpy as np
import pyarrow as pa
from threadpoolctl import threadpool_limits

from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Schema, schema_from_dict

LABEL = "answer"
SIZES = ("1000x10", "1000x60", "10000x30", "100000x10", "100000x30", "1000000x10")
SMALLEST_DELTA = 1.01e-11
"""A training cannot be accounted for at less."""


def simulate(rows: int, columns: int, seed: int = 0) -> tuple[pa.Table, Schema]:
    """A table of so many columns, the label included.

    >>> simulate(3, 6)[0].column_names
    ['c0', 'c1', 'c2', 'c3', 'c4', 'answer']
    """
    generator = np.random.default_rng(seed)
    answer = generator.random(rows) < 0.3
    made: dict[str, np.ndarray] = {}
    described: dict[str, dict[str, object]] = {}
    for k in range(columns - 1):
        name, kind = f"c{k}", k % 5
        if kind < 3:
            size = (2, 5, 12)[kind]
            codes = np.minimum(generator.geometric(np.where(answer, 0.3, 0.5)) - 1, size - 1)
            made[name] = np.array([f"v{i}" for i in range(size)])[codes]
            described[name] = {"type": "category", "values": [f"v{i}" for i in range(size)]}
        elif kind == 3:
            made[name] = np.clip(generator.normal(40 + 5 * answer, 15), 0, 99).astype(int)
            described[name] = {"type": "integer", "min": 0, "max": 99}
        else:
            made[name] = np.minimum(np.exp(generator.normal(7 + answer, 1)), 1e6).astype(int)
            described[name] = {"type": "integer", "min": 0, "max": 1_000_000}
    described[LABEL] = {"type": "boolean"}
    return pa.table({**made, LABEL: answer}), schema_from_dict(
        {"one_row_per_person": True, "label": LABEL, "columns": described}
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst", "aim", "autoregressive"])
    parser.add_argument("--sizes", nargs="+", default=SIZES, metavar="ROWSxCOLUMNS")
    parser.add_argument("--epsilon", type=float, default=1.0)
    arguments = parser.parse_args()
    print(
        "| rows | columns | model | said, CPU s | taken, CPU s | said / taken |\n|---|---|---|---|---|---|",
        flush=True,
    )
    for size in arguments.sizes:
        rows, columns = map(int, size.split("x"))
        table, schema = simulate(rows, columns)
        for model in arguments.models:
            settings = Settings.of(
                epsilon=arguments.epsilon,
                delta=max(rows**-2.0, SMALLEST_DELTA),
                public_rows=rows,
                model=model,
            )
            with threadpool_limits(1):
                start = time.process_time()
                plan = make_plan(schema, settings)
                run(plan, open_source(table), noise_seed=0).sample(rows, seed=0)
                taken = time.process_time() - start
            said = plan.model.resources(plan, rows).seconds
            print(
                f"| {rows:,} | {columns} | {model} | {said:.1f} | {taken:.1f} | {said / taken:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
