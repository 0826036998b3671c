"""What a cluster costs beside one process: the same file, the same plan and seed, on this machine.

The table of `scale.py` in Parquet, in pieces of 2¹⁸ rows. CPU seconds are those of this process and of all that it
started, from when the cluster stands to the release; starting a cluster is not counted. Passes are sums that were
asked for; bytes are those of one task as it is pickled for a worker, and of the integers that come back, over all
passes. The releases are compared: they must be the same.

    python -m studies.benchmarks.clusters --rows 1000000 --models naive-bayes mst
"""

import argparse
import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pyarrow.parquet as pq

from repsynth.engine import clusters
from repsynth.io import arrow
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.store import arrays_of
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema
from studies.benchmarks.scale import schema_of, simulate

PIECE = 2**18


def schema_for(columns: int) -> Schema:
    lines, described = ["one_row_per_person = true", 'label = "c0"'], schema_of(columns)["columns"]
    for name, column in described.items():
        lines += [
            f"[columns.{name}]",
            *(f"{key} = {json.dumps(value)}" for key, value in column.items()),
        ]
    return parse_schema("\n".join(lines))


def cpu_seconds() -> float:
    """Of this process and all that it started and that still lives."""
    found = 0.0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            found += sum(process.cpu_times()[:2])
    return found


@contextlib.contextmanager
def cluster_of(engine: str) -> Iterator[Any]:
    """A cluster of two processes, or none."""
    if engine == "dask":
        from distributed import Client, LocalCluster

        options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
        with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster) as client:
            yield client
    elif engine == "spark":
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        builder = SparkSession.builder.master("local-cluster[2,1,2048]").config("spark.executor.memory", "2g")
        builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
        session = builder.config("spark.log.level", "OFF").getOrCreate()
        yield session
        session.stop()
    else:
        yield None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=14)
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst"])
    parser.add_argument("--engines", nargs="+", default=["local", "dask", "spark"])
    options = parser.parse_args()
    arrow.PIECE_ROWS = PIECE
    schema, seen = schema_for(options.columns), {}
    sent: list[tuple[int, int]] = []
    original = clusters.sum_of

    def counted(parts: Any, task: Any, like: Any = None) -> Any:
        found = original(parts, task, like)
        sent.append((len(cloudpickle.dumps(task)), found.nbytes))
        return found

    clusters.sum_of = counted
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        table = simulate(options.rows, options.columns, np.random.default_rng(0))
        pq.write_table(table, path, row_group_size=PIECE)
        del table
        print("engine  model         CPU s  wall s  passes  bytes to a worker  bytes back  same")
        for engine in options.engines:
            with cluster_of(engine) as cluster:
                for model in options.models:
                    plan = make_plan(schema, Settings.of(epsilon=1.0, delta=1e-9, model=model))
                    sent.clear()
                    start, began = cpu_seconds(), time.perf_counter()
                    release = run(plan, open_source(path), noise_seed=1, engine=engine, cluster=cluster)
                    cpu, wall = cpu_seconds() - start, time.perf_counter() - began
                    arrays = arrays_of(release)
                    expected = seen.setdefault(model, arrays)
                    same = all(np.array_equal(arrays[name], expected[name]) for name in expected)
                    forth, back = (sum(each[k] for each in sent) for k in (0, 1))
                    told = f"{engine:7} {model:13} {cpu:5.1f} {wall:7.1f} {len(sent):7} {forth:18,} {back:11,}"
                    print(f"{told}  {same}", flush=True)


if __name__ == "__main__":
    main()
