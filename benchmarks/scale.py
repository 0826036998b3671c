"""What size costs: CPU seconds of a whole fit beside one plain scan of the same file by pyarrow, and memory.

A simulated table of 8 text columns (2 to 50 values) and 6 columns of floats under bounds that are wider than the
numbers, in Parquet. Every fit runs in a process of its own, which scans the file before and after with
`pyarrow.parquet.ParquetFile.iter_batches`; the ratio is to the mean of the two, so that other work on the machine
weighs on both. Memory is the peak of RssAnon: resident pages that are no file's. The exponent is that of the CPU
seconds from one size to the next. From CSV: encoding beside pyarrow's own reader. Beside them, the two-way tables
of all pairs of columns by group-bys of duckdb and polars, where they are installed, and by `mst`'s statistic over
codes. Last, drawing and writing 500,000 rows.

    python benchmarks/scale.py --rows 1000000 3000000 10000000
    python benchmarks/scale.py --columns 10 50 100 500
"""

import argparse
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

SIZES = (2, 3, 5, 8, 12, 20, 30, 50)
NUMBERS = 6
PIECE = 200_000
DRAWN = 500_000


def schema_of(columns: int) -> dict[str, Any]:
    """Eight columns of text to six of floats, as many as asked for."""
    found: dict[str, Any] = {}
    for k in range(columns):
        if (place := k % (len(SIZES) + NUMBERS)) < len(SIZES):
            values = [f"value {i}" for i in range(SIZES[place])]
            found[f"c{k}"] = {"type": "category", "values": values}
        else:
            low, high = (0.0, 1e6) if place % 2 else (-1000.0, 1000.0)
            found[f"c{k}"] = {"type": "number", "min": low, "max": high}
    return {"label": "c0", "columns": found}


def simulate(rows: int, columns: int, generator: np.random.Generator) -> pa.Table:
    """Some rows; half of the columns of floats have two decimals.

    >>> simulate(3, 14, np.random.default_rng(0)).num_columns
    14
    """
    common, found = generator.integers(0, 5, rows), {}
    for k in range(columns):
        if (place := k % (len(SIZES) + NUMBERS)) < len(SIZES):
            size = SIZES[place]
            own = np.minimum(generator.geometric(min(0.5, 3 / size), rows) - 1, size - 1)
            codes = np.where(generator.random(rows) < 0.4, common % size, own)
            found[f"c{k}"] = pa.array([f"value {i}" for i in range(size)]).take(pa.array(codes))
            continue
        values = generator.normal(50 + 10 * common, 20)
        values = np.exp(generator.normal(3 + 0.2 * common)) if place % 2 else values
        found[f"c{k}"] = pa.array(values.round(2) if place >= len(SIZES) + NUMBERS // 2 else values)
    return pa.table(found)


def pieces(rows: int, columns: int) -> Iterator[pa.Table]:
    """The table in pieces, each from a seed of its own."""
    for k, start in enumerate(range(0, rows, PIECE)):
        yield simulate(min(PIECE, rows - start), columns, np.random.default_rng([0, k]))


def write(path: Path, rows: int, columns: int) -> None:
    """The table as a Parquet or CSV file, piece by piece."""
    schema = simulate(1, columns, np.random.default_rng(0)).schema
    opened = pq.ParquetWriter(path, schema) if path.suffix == ".parquet" else pacsv.CSVWriter(path, schema)
    with opened as writer:
        for piece in pieces(rows, columns):
            writer.write_table(piece)


def cpu(work: Any) -> float:
    """CPU seconds of all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def scan(path: Path) -> None:
    """As pyarrow reads it, and nothing else."""
    if path.suffix == ".csv":
        for _ in pacsv.open_csv(path):
            pass
        return
    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches(batch_size=131_072):
            pass


class Peak(threading.Thread):
    """The largest RssAnon that was seen, in MB; None where the system does not tell."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.megabytes: float | None = None
        self._over = threading.Event()

    def run(self) -> None:
        """Look fifty times a second."""
        while not self._over.wait(0.02):
            try:
                lines = Path("/proc/self/status").read_text().splitlines()
            except OSError:
                return
            now = next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon"))
            self.megabytes = max(self.megabytes or 0.0, now)

    def __enter__(self) -> "Peak":
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self.join()


def child(text: str) -> None:
    """One measurement in this process, as JSON on the standard output."""
    task = json.loads(text)
    path = Path(task["path"])
    before = cpu(lambda: scan(path))
    found = {"fit": fit, "encode": encode, "pairs": pairs}[task["what"]](task, path)
    found["scan"] = (before + cpu(lambda: scan(path))) / 2
    print(json.dumps(found))


def fit(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """A whole fit and, where asked, a sample, written as Parquet and as CSV."""
    from repsynth.data.sources import open_source
    from repsynth.data.write import write_table
    from repsynth.pipeline.run import run
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.schema import schema_from_dict

    settings = Settings.of(epsilon=1.0, delta=1e-9, model=task["model"])
    plan = make_plan(schema_from_dict(schema_of(task["columns"])), settings)
    run(plan, open_source(simulate(1_000, task["columns"], np.random.default_rng(1))), noise_seed=1)  # imports
    made = []
    with Peak() as peak:
        taken = cpu(lambda: made.append(run(plan, open_source(path), noise_seed=1)))
    found = {"cpu": taken, "peak": peak.megabytes}
    for suffix in (".parquet", ".csv") if task["draw"] else ():
        out = path.with_name(f"drawn{suffix}")
        found[suffix] = cpu(lambda out=out: write_table(made[0].batches(DRAWN, seed=1), out))
        out.unlink()
    return found


def encode(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """Reading and encoding alone."""
    from repsynth.data.encode import EncodedTable
    from repsynth.data.sources import open_source
    from repsynth.engines.codes import Codes
    from repsynth.schema import schema_from_dict

    schema = schema_from_dict(schema_of(task["columns"]))
    return {"cpu": cpu(lambda: Codes.of(EncodedTable(open_source(path), schema)))}


def pairs(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """The tables of all pairs of columns of text."""
    names = [f"c{k}" for k in range(len(SIZES))]
    crossed = list(combinations(names, 2))
    if task["by"] == "duckdb":
        import duckdb

        def work() -> None:
            duckdb.sql(f"create table t as select {', '.join(names)} from '{path}'")
            for one, other in crossed:
                duckdb.sql(f"select {one}, {other}, count(*) from t group by all").fetchall()

    elif task["by"] == "polars":
        import polars

        def work() -> None:
            frame = polars.read_parquet(path, columns=names)
            for one, other in crossed:
                frame.group_by(one, other).len()

    else:
        from repsynth.data.encode import EncodedTable
        from repsynth.data.sources import open_source
        from repsynth.engines.codes import Codes
        from repsynth.models.groups import Groups
        from repsynth.models.marginal.tables import Tables
        from repsynth.schema import Category, Schema
        from repsynth.scoring.bins import Bins
        from repsynth.scoring.random import RandomScore
        from repsynth.scoring.weights import FULL, WeightFunction

        columns = [
            Category(name=name, values=tuple(f"value {i}" for i in range(size)))
            for name, size in zip(names, SIZES, strict=True)
        ]
        groups = tuple(Groups(Bins.discrete(c), np.append(np.arange(c.size), -1)) for c in columns)
        every = tuple(combinations(range(len(columns)), 2))
        weights = WeightFunction(0, np.array([FULL]))
        kernel = Tables(groups, every, RandomScore((), 0), weights, "tables")

        def work() -> None:
            table = EncodedTable(open_source(path), Schema(columns=tuple(columns)))
            Codes.of(table).sum(kernel)

    return {"cpu": cpu(work)}


def measured(**task: Any) -> dict[str, Any] | None:
    """What a process of its own measured; None where it failed."""
    done = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(f"{task}: failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def fits(folder: Path, sizes: list[tuple[int, int]], models: list[str]) -> None:
    """Rows and columns, model by model."""
    last: dict[str, tuple[int, float]] = {}
    print(
        "| rows | columns | model | scan, CPU s | fit, CPU s | ratio | exponent | peak MB | rows drawn a CPU s |"
    )
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for rows, columns in sizes:
        path = folder / "table.parquet"
        write(path, rows, columns)
        for model in models:
            draw = (rows, columns) == sizes[0]
            found = measured(what="fit", path=str(path), model=model, columns=columns, draw=draw)
            if found is None:
                continue
            size = rows * columns
            grown = ""
            if model in last:
                grown = f"{math.log(found['cpu'] / last[model][1]) / math.log(size / last[model][0]):.2f}"
            last[model] = size, found["cpu"]
            drawn = ", ".join(f"{s} {DRAWN / found[s]:,.0f}" for s in (".parquet", ".csv") if s in found)
            print(
                f"| {rows:,} | {columns} | {model} | {found['scan']:.2f} | {found['cpu']:.2f} | "
                f"{found['cpu'] / found['scan']:.1f} | {grown} | {found['peak'] or 0:,.0f} | {drawn} |",
                flush=True,
            )


def others(folder: Path, rows: int) -> None:
    """CSV, and the group-bys of others."""
    path = folder / "table.csv"
    write(path, rows, 14)
    found = measured(what="encode", path=str(path), columns=14)
    if found:
        print(
            f"\nCSV, {rows:,} rows: pyarrow's reader {found['scan']:.2f} CPU s, reading and encoding "
            f"{found['cpu']:.2f}, ratio {found['cpu'] / found['scan']:.2f}"
        )
    path = folder / "table.parquet"
    write(path, rows, 14)
    for by in ("duckdb", "polars", "repsynth"):
        found = measured(what="pairs", path=str(path), by=by)
        if found:
            print(f"{rows:,} rows, the tables of 28 pairs by {by}: {found['cpu']:.2f} CPU s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000_000, 3_000_000])
    parser.add_argument("--columns", type=int, nargs="*", default=[], help="numbers of columns at 100,000 rows")
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst"])
    parser.add_argument("--others", type=int, default=0, help="rows of the comparison with others")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        if arguments.columns:
            fits(Path(folder), [(100_000, columns) for columns in arguments.columns], arguments.models)
        else:
            fits(Path(folder), [(rows, 14) for rows in arguments.rows], arguments.models)
        if arguments.others:
            others(Path(folder), arguments.others)


if __name__ == "__main__":
    main()
