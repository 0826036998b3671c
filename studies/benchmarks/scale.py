"""What size costs: CPU seconds of a whole fit beside one plain scan of the same file by pyarrow, and memory.

A simulated table of 8 text columns (2 to 50 values) and 6 columns of floats under bounds that are wider than the
numbers, in Parquet. Every measurement runs in a process of its own, which scans the file before and after with
`pyarrow.parquet.ParquetFile.iter_batches`; the ratio is to the mean of the two, so that other work on the machine
weighs on both. Memory is the peak of RssAnon: resident pages that are no file's. The exponent is that of the CPU
seconds from one size to the next. Then drawing, beside pyarrow's own writer of the same table; encoding CSV beside
pyarrow's own reader; and the two-way tables of all pairs of columns of text by group-bys of duckdb and polars,
where they are installed (`pip install duckdb`), beside `mst`'s statistic over codes.

    python -m studies.benchmarks.scale               # all of it, as Markdown: some ten minutes on two quiet cores
    python -m studies.benchmarks.scale --rows 100000 300000 --columns 10 20 --drawn 200000 --others 100000
"""

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
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
LIMIT = 900
"""Seconds that one measurement may take."""


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
    return {"one_row_per_person": True, "label": "c0", "columns": found}


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


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of all threads."""
    return timed(work)[0]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """CPU seconds of all threads, and seconds on the clock."""
    start, clock = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - start, time.perf_counter() - clock


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
    found = {"fit": fit, "draw": draw, "encode": encode, "pairs": pairs}[task["what"]](task, path)
    found["scan"] = (before + cpu(lambda: scan(path))) / 2
    print(json.dumps(found))


def release_of(model: str, columns: int, path: Path) -> tuple[Any, float, float | None]:
    """A whole fit, its CPU seconds and its peak of memory."""
    from repsynth.io.sources import open_source
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.run.run import run
    from repsynth.schema import schema_from_dict

    settings = Settings.of(epsilon=1.0, delta=1e-9, model=model)
    plan = make_plan(schema_from_dict(schema_of(columns)), settings)
    run(plan, open_source(simulate(1_000, columns, np.random.default_rng(1))), noise_seed=1)  # imports
    made = []
    with Peak() as peak:
        taken = cpu(lambda: made.append(run(plan, open_source(path), noise_seed=1)))
    return made[0], taken, peak.megabytes


def fit(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """A whole fit."""
    _, taken, peak = release_of(task["model"], task["columns"], path)
    return {"cpu": taken, "peak": peak}


def draw(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """A sample that is written, and what pyarrow takes to write the same table alone."""
    from repsynth.io.write import arrow_schema, write_table

    release, _, _ = release_of(task["model"], 14, path)
    out, rows = path.with_name(f"drawn{task['suffix']}"), task["rows"]
    csv = out.suffix == ".csv"
    pieces = release.pieces(rows, seed=1, csv=csv)
    with Peak() as peak:
        taken, clock = timed(lambda: write_table(pieces, arrow_schema(release.schema, csv=csv), out))
    size = out.stat().st_size
    out.unlink()
    table = release.sample(rows // 8, seed=1)

    def alone() -> None:
        opened = pq.ParquetWriter if task["suffix"] == ".parquet" else pacsv.CSVWriter
        with opened(out, table.schema) as writer:
            writer.write_table(table)

    plain = cpu(alone) / len(table) * rows
    out.unlink()
    return {"cpu": taken, "clock": clock, "alone": plain, "peak": peak.megabytes, "size": size}


def encode(task: dict[str, Any], path: Path) -> dict[str, Any]:
    """ReadOptions and encoding alone."""
    from repsynth.engine.column_store import Codes
    from repsynth.io.encode import EncodedTable
    from repsynth.io.sources import open_source
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
        from repsynth.columns.cells import Bins
        from repsynth.columns.groups import Groups
        from repsynth.engine.column_store import Codes
        from repsynth.io.encode import EncodedTable
        from repsynth.io.sources import open_source
        from repsynth.models.statistics import Tables
        from repsynth.schema import Category, Schema
        from repsynth.scoring.rarity import RandomScore
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
            table = EncodedTable(open_source(path), Schema(one_row_per_person=True, columns=tuple(columns)))
            Codes.of(table).sum(kernel)

    return {"cpu": cpu(work)}


def measured(**task: Any) -> dict[str, Any] | None:
    """What a process of its own measured; None where it failed."""
    command = [sys.executable, "-m", "studies.benchmarks.scale", "--child", json.dumps(task)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        print(f"{task}: not done in {LIMIT} s", file=sys.stderr)
        return None
    if done.returncode:
        print(f"{task}: failed: {(done.stderr.strip().splitlines() or ['?'])[-1]}", file=sys.stderr)
        return None
    return dict(json.loads(done.stdout.strip().splitlines()[-1]))


def fits(folder: Path, sizes: list[tuple[int, int]], models: list[str]) -> Iterator[str]:
    """Rows and columns, model by model."""
    last: dict[str, tuple[int, float]] = {}
    yield "| rows | columns | model | scan, CPU s | fit, CPU s | ratio | exponent | peak MB |"
    yield "|---|---|---|---|---|---|---|---|"
    for rows, columns in sizes:
        path = folder / "table.parquet"
        write(path, rows, columns)
        for model in models:
            found = measured(what="fit", path=str(path), model=model, columns=columns)
            if found is None:
                continue
            size = rows * columns
            grown = ""
            if model in last:
                grown = f"{math.log(found['cpu'] / last[model][1]) / math.log(size / last[model][0]):.2f}"
            last[model] = size, found["cpu"]
            ratio = found["cpu"] / found["scan"]
            yield (
                f"| {rows:,} | {columns} | {model} | {found['scan']:.2f} | {found['cpu']:.2f} | {ratio:.1f} | "
                f"{grown} | {found['peak'] or 0:,.0f} |"
            )


def draws(folder: Path, rows: int, models: list[str]) -> Iterator[str]:
    """Drawing so many rows from a model of a million."""
    path = folder / "table.parquet"
    write(path, 1_000_000, 14)
    yield "| rows | model | to | CPU s | rows a CPU s | rows a second | pyarrow alone, CPU s | peak MB | file MB |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for model in models:
        for suffix in (".parquet", ".csv"):
            found = measured(what="draw", path=str(path), model=model, suffix=suffix, rows=rows)
            if found:
                yield (
                    f"| {rows:,} | {model} | {suffix[1:]} | {found['cpu']:.2f} | {rows / found['cpu']:,.0f} | "
                    f"{rows / found['clock']:,.0f} | {found['alone']:.2f} | {found['peak'] or 0:,.0f} | "
                    f"{found['size'] / 1e6:,.0f} |"
                )


def others(folder: Path, rows: int) -> Iterator[str]:
    """CSV, and the group-bys of others."""
    path = folder / "table.csv"
    write(path, rows, 14)
    found = measured(what="encode", path=str(path), columns=14)
    path.unlink()
    if found:
        yield (
            f"- From CSV ({rows:,} rows): pyarrow's reader {found['scan']:.2f} CPU s, reading and encoding "
            f"{found['cpu']:.2f}, ratio {found['cpu'] / found['scan']:.2f}."
        )
    path = folder / "table.parquet"
    write(path, rows, 14)
    taken = {by: measured(what="pairs", path=str(path), by=by) for by in ("repsynth", "polars", "duckdb")}
    said = ", ".join(f"{by} {found['cpu']:.2f}" for by, found in taken.items() if found)
    yield f"- The tables of all 28 pairs of columns of text ({rows:,} rows), reading included, CPU s: {said}."


def machine() -> str:
    """What it ran on, and how busy that was."""
    import repsynth

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    names = [line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    load = f"load {os.getloadavg()[0]:.0f} at the start, " if hasattr(os, "getloadavg") else ""
    return (
        f"{cores} cores ({names[0] if names else platform.machine()}), {load}Python {platform.python_version()}, "
        f"NumPy {np.__version__}, pyarrow {pa.__version__}, repsynth {repsynth.__version__}; one run each."
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def section(arguments: argparse.Namespace, folder: Path) -> Iterator[str]:
    """All of it, line by line."""
    yield machine()
    yield ""
    yield from fits(folder, [(rows, 14) for rows in arguments.rows], arguments.models)
    yield ""
    yield from fits(folder, [(100_000, columns) for columns in arguments.columns], arguments.models)
    yield ""
    if arguments.drawn:
        yield from draws(folder, arguments.drawn, arguments.models)
        yield ""
    if arguments.others:
        yield from others(folder, arguments.others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = [1_000_000, 3_000_000, 10_000_000, 30_000_000]
    parser.add_argument("--rows", type=int, nargs="*", default=sizes)
    parser.add_argument("--columns", type=int, nargs="*", default=[10, 50, 100, 500], help="at 100,000 rows")
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst"])
    parser.add_argument("--drawn", type=int, default=8_000_000, help="rows to draw")
    parser.add_argument("--others", type=int, default=1_000_000, help="rows of the comparison with others")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    with tempfile.TemporaryDirectory() as folder:
        for line in section(arguments, Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
