"""Time of a whole run on Adult (45,222 complete records), step by step, after import.

python -m studies.benchmarks.speed --data-dir FOLDER
"""

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow.csv as pacsv

from repsynth import datasets
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from studies.split import complete


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    dataset = datasets.load("adult", data_dir=arguments.data_dir)
    table = complete(dataset.table)
    plan = make_plan(dataset.schema, Settings.of(epsilon=1.0, model="naive-bayes"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.csv"
        pacsv.write_csv(table, path)
        for name, source in (("Arrow table in memory", table), ("CSV file", path)):
            measured, sampled = [], []
            for _ in range(arguments.repeats):
                start = time.perf_counter()
                release = run(plan, open_source(source))
                middle = time.perf_counter()
                release.sample(table.num_rows)
                measured.append(middle - start)
                sampled.append(time.perf_counter() - middle)
            print(
                f"{name:24} {table.num_rows:,} records: scoring, weighting and measuring "
                f"{statistics.median(measured):.3f} s, fitting and sampling {statistics.median(sampled):.3f} s"
            )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory of the process {peak:.0f} MB")


if __name__ == "__main__":
    main()
