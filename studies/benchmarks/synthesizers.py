"""Synthesizers side by side: the same split, the same (ε, δ), one process per method.

For each: CPU seconds and wall seconds after import, peak memory, and the measures of `judge.py`; distances on
twenty equal bins and on the strict grid. δ = 1/n², 70 % of the complete records to learn from.

    python -m studies.benchmarks.synthesizers --data-dir FOLDER
    python -m studies.benchmarks.synthesizers --data-dir FOLDER --peer dpmm=/path/to/its/python --peer opendp=...
    python -m studies.benchmarks.synthesizers --data-dir FOLDER --table nist

A peer runs in an environment of its own, which needs the peer alone: dpmm, smartnoise-synth, or opendp[mbi] and
pandas. Peers are told what is public (bounds and categories) as far as they take it, and run with their defaults.
A method that fails or takes longer than --minutes has its reason in the table, and is not tried on further splits.
"""

import argparse
import json
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

OURS = {
    "naive-bayes": {"model": "naive-bayes", "weights": "uniform"},
    "naive-bayes, targeted": {"model": "naive-bayes", "weights": "targeted"},
    "mst": {"model": "mst", "weights": "uniform"},
    "mst, targeted": {"model": "mst", "weights": "targeted"},
    "mst, hinge-exp 1": {"model": "mst", "weights": "hinge-exp", "gamma": 1.0},
    "mst, hinge-exp 2": {"model": "mst", "weights": "hinge-exp", "gamma": 2.0},
    "mst, hinge-exp 4": {"model": "mst", "weights": "hinge-exp", "gamma": 4.0},
    "aim": {"model": "aim", "weights": "uniform"},
    "aim, targeted": {"model": "aim", "weights": "targeted"},
    "autoregressive": {"model": "autoregressive", "weights": "uniform"},
    "autoregressive, targeted": {"model": "autoregressive", "weights": "targeted"},
    "autoregressive, hinge-exp 1": {"model": "autoregressive", "weights": "hinge-exp", "gamma": 1.0},
    "autoregressive, hinge-exp 2": {"model": "autoregressive", "weights": "hinge-exp", "gamma": 2.0},
    "autoregressive, hinge-exp 4": {"model": "autoregressive", "weights": "hinge-exp", "gamma": 4.0},
}
PEERS = {
    "opendp": ("OpenDP MST",),
    "dpmm": ("dpmm MST", "dpmm PrivBayes", "dpmm AIM"),
    "smartnoise": ("smartnoise MST", "smartnoise AIM"),
}
COSTS = {"cpu": "CPU s", "wall": "wall s", "peak": "peak MB"}
MEASURES = {
    "LR": "LR",
    "GB": "GB",
    "1-way, equal": "1-way",
    "2-way, equal": "2-way",
    "1-way": "strict",
    "2-way": "strict",
}


class Clock:
    """CPU and wall seconds of what happens within it."""

    def __enter__(self) -> "Clock":
        self.cpu, self.wall = -time.process_time(), -time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.cpu += time.process_time()
        self.wall += time.perf_counter()


def synthesize_ours(task: dict, train: Path, out: Path) -> Clock:
    import pyarrow.parquet as pq

    from repsynth.data.sources import open_source
    from repsynth.pipeline.run import run
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.schema import schema_from_dict

    table = pq.read_table(train)
    settings = Settings.of(
        epsilon=task["epsilon"], delta=task["delta"], public_rows=table.num_rows, **task["options"]
    )
    with Clock() as clock:
        made = run(make_plan(schema_from_dict(task["schema"]), settings), open_source(table)).sample(
            table.num_rows
        )
    pq.write_table(made, out)
    return clock


def read_frame(task: dict, train: Path):
    """The table as peers get it: categories as text, whatever they look like."""
    import pandas as pd

    text = {name: str for name, values in task["domain"].items() if "categories" in values}
    return pd.read_csv(train, dtype=text, keep_default_na=False)


def synthesize_dpmm(task: dict, train: Path, out: Path) -> Clock:
    from dpmm.pipelines import AIMPipeline, MSTPipeline, PrivBayesPipeline

    frame = read_frame(task, train)
    pipeline = {"MST": MSTPipeline, "AIM": AIMPipeline, "PrivBayes": PrivBayesPipeline}[task["method"].split()[1]]
    budget = {"epsilon": 0.9 * task["epsilon"], "proc_epsilon": 0.1 * task["epsilon"], "delta": task["delta"]}
    for name, values in task["domain"].items():
        if "categories" in values:
            frame[name] = frame[name].astype("category")
    with Clock() as clock:
        model = pipeline(**budget)
        model.fit(frame, task["domain"])
        made = model.generate(n_records=len(frame))
    made.to_csv(out, index=False)
    return clock


def synthesize_smartnoise(task: dict, train: Path, out: Path) -> Clock:
    """Twenty equal bins of each number between its bounds, so that nothing is spent on preparing."""
    from snsynth import Synthesizer
    from snsynth.transform import BinTransformer

    frame = read_frame(task, train)
    bins = {
        name: BinTransformer(bins=20, lower=values["lower"], upper=values["upper"])
        for name, values in task["domain"].items()
        if "lower" in values
    }
    with Clock() as clock:
        model = Synthesizer.create(task["method"].split()[1].lower(), epsilon=task["epsilon"], delta=task["delta"])
        model.fit(frame, transformer=bins, categorical_columns=[name for name in frame if name not in bins])
        made = model.sample(len(frame))
    made.to_csv(out, index=False)
    return clock


def synthesize_opendp(task: dict, train: Path, out: Path) -> Clock:
    """Twenty equal bins of each number: beyond its last cut OpenDP draws one unit only, so the upper bound is one.
    All keys are public, so the budget is pure ρ."""
    import numpy as np
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    frame = pl.from_pandas(read_frame(task, train))
    keys, cuts = {}, {}
    for name, values in task["domain"].items():
        if "categories" in values:
            keys[name] = values["categories"]
        else:
            ends = np.linspace(values["lower"], values["upper"], 21)
            cuts[name] = np.unique(np.floor(ends).astype(int) if frame[name].dtype == pl.Int64 else ends).tolist()
    rho = rho_that_opendp_takes(rho_of(task["epsilon"], task["delta"]), len(frame.columns))
    with Clock() as clock:
        context = dp.Context.compositor(
            data=frame.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
        )
        query = context.query(rho=rho).contingency_table(keys=keys, cuts=cuts, algorithm=dp.mbi.MST())
        made = query.release().synthesize(rows=len(frame))
    made.write_csv(out)
    return clock


def rho_that_opendp_takes(rho: float, columns: int) -> float:
    """The nearest smaller ρ whose parts OpenDP's MST (0.16.0) does not refuse for adding up, rounded up, to
    more than the whole; ρ itself if none is near. No data is looked at."""
    import numpy as np
    import opendp.prelude as dp

    def below(x: float) -> float:
        return float(np.nextafter(x, -np.inf))

    def total(parts: list[float]) -> float:
        space = dp.vector_domain(dp.atom_domain(T="i32")), dp.l2_distance(T="f64")
        return dp.c.make_adaptive_composition(*space, dp.zero_concentrated_divergence(), 1.0, parts).map(1.0)

    for step in range(1_000):
        less = rho * (1 - 1e-9 * step)
        pairs = below(below(less - 0.5 * less))
        chosen = below(below(pairs - 0.9 * pairs))
        if total([below(chosen / (columns - 1))] * (columns - 1)) <= chosen:
            return less
    return rho


def rho_of(epsilon: float, delta: float) -> float:
    """The largest ρ of zero-concentrated DP that implies (ε, δ): Canonne, Kamath and Steinke (2020)."""
    import numpy as np

    alpha = 1 + np.geomspace(1e-3, 1e5, 20_000)
    low, high = 0.0, epsilon
    for _ in range(60):
        rho = (low + high) / 2
        logs = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
        low, high = (rho, high) if logs.min() <= np.log(delta) else (low, rho)
    return low


RUN = {
    "ours": synthesize_ours,
    "dpmm": synthesize_dpmm,
    "smartnoise": synthesize_smartnoise,
    "opendp": synthesize_opendp,
}


def child(text: str) -> None:
    """Run one method in this process; its cost goes to the standard output as JSON."""
    task = json.loads(text)
    resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"] + 5))
    clock = RUN[task["kind"]](task, Path(task["train"]), Path(task["out"]))
    print(json.dumps({"cpu": clock.cpu, "wall": clock.wall, "peak": peak_megabytes()}))


def peak_megabytes() -> float:
    """The most memory this process ever held (its own: what it was started from does not count)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def domain_of(schema) -> dict:
    """What is public, as peers want it. A code among numbers is one more number, just below the others."""
    numeric = {c.name: {"lower": c.min - bool(c.special), "upper": c.max} for c in schema.numeric}
    return numeric | {c.name: {"categories": list(c.values)} for c in (*schema.discrete, schema.label_column)}


def to_peers(table, schema):
    """A table as peers get it: numbers as such."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from repsynth.schema import Integer

    for column in schema.numeric:
        values = table[column.name]
        for code in column.special:
            values = pc.if_else(pc.equal(values, code), str(column.min - 1), values)
        kind = pa.int64() if isinstance(column, Integer) else pa.float64()
        table = table.set_column(table.column_names.index(column.name), column.name, pc.cast(values, kind))
    return table


def from_peers(path: Path, schema):
    """A table as peers made it, as the schema wants it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv as pacsv

    from repsynth.schema import Integer, Numeric

    types = {c.name: pa.float64() if isinstance(c, Numeric) else pa.string() for c in schema.learned}
    table = pacsv.read_csv(path, convert_options=pacsv.ConvertOptions(column_types=types))
    made = {}
    for column in schema.learned:
        made[column.name] = table[column.name]
        if isinstance(column, Numeric):
            numbers = np.asarray(table[column.name].to_numpy(), dtype=float)
            numbers = np.rint(numbers) if isinstance(column, Integer) else numbers
            below = (numbers < column.min) & bool(column.special)
            numbers = np.clip(numbers, column.min, column.max)
            as_text = numbers.astype(np.int64).astype(str) if isinstance(column, Integer) else numbers.astype(str)
            made[column.name] = pa.array(np.where(below, column.special[0] if column.special else "", as_text))
    return pa.table(made)


def run_child(python: str, task: dict) -> dict:
    """What a method cost, or why there is nothing."""
    command = [python, "-m", "studies.benchmarks.synthesizers", "--child", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == -signal.SIGXCPU:
        return {"failed": f"stopped after {task['seconds'] / 60:.0f} minutes of CPU time"}
    if done.returncode:
        said = re.findall(r"^\S*(?:Error|Exception|Interrupt)\b.*(?:\n.+)?", done.stderr, flags=re.MULTILINE)
        last = " ".join(said[-1].split())[:120] if said else f"ended with {done.returncode}"
        return {"failed": "killed, perhaps for its memory" if done.returncode == -9 else last}
    return json.loads(done.stdout.strip().splitlines()[-1])


def methods_of(arguments: argparse.Namespace) -> list[tuple[str, str, str]]:
    """Each method, whose it is, and its Python."""
    peers = dict(peer.split("=", 1) for peer in arguments.peer)
    for peer in PEERS.keys() - peers.keys():
        print(f"{peer}: skipped; give --peer {peer}=PYTHON of an environment that has it")
    methods = [] if arguments.peers_only else [(name, "ours", sys.executable) for name in OURS]
    methods += [(name, peer, peers[peer]) for peer in PEERS if peer in peers for name in PEERS[peer]]
    return [method for method in methods if method[0].startswith(arguments.only)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument(
        "--table", default="adult", choices=("sim", "breast_cancer", "german_credit", "adult", "nist")
    )
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1, help="splits (1)")
    parser.add_argument("--peer-seeds", type=int, help="the first of them that peers get, too (all)")
    parser.add_argument("--minutes", type=float, default=20.0, help="of CPU time for one method (20)")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME", help="only those whose name begins so")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    import numpy as np
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    from repsynth.evaluation.matrix import records_of
    from repsynth.schema import schema_to_dict
    from studies.benchmarks.judge import measures, split_of

    headings = [*COSTS.values(), *MEASURES.values()]
    methods = methods_of(arguments)
    peer_seeds = arguments.seeds if arguments.peer_seeds is None else arguments.peer_seeds
    results: dict[str, list] = {name: [] for name, _, _ in methods}
    for seed in range(arguments.seeds):
        split = split_of(arguments.table, seed, arguments.data_dir)
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(split.table, f"{folder}/train.parquet")
            pacsv.write_csv(to_peers(split.table, split.schema), f"{folder}/train.csv")
            for name, kind, python in methods:
                if any(isinstance(row, str) for row in results[name]) or (kind != "ours" and seed >= peer_seeds):
                    continue
                suffix = "parquet" if kind == "ours" else "csv"
                task = {
                    "kind": kind,
                    "method": name,
                    "options": OURS.get(name),
                    "train": f"{folder}/train.{suffix}",
                    "out": f"{folder}/out.{suffix}",
                    "epsilon": arguments.epsilon,
                    "delta": 1 / split.table.num_rows**2,
                    "seconds": round(60 * arguments.minutes),
                    "schema": schema_to_dict(split.schema),
                    "domain": domain_of(split.schema),
                }
                cost = run_child(python, task)
                print(name, cost, flush=True)
                if "failed" in cost:
                    results[name].append(cost["failed"])
                    continue
                out = Path(task["out"])
                made = pq.read_table(out) if kind == "ours" else from_peers(out, split.schema)
                found = measures(arguments.table, split, records_of(made, split.schema))
                print(seed, name, found, flush=True)
                results[name].append([*(cost[key] for key in COSTS), *(found[key] for key in MEASURES)])
    print(f"\n{'method':24}" + "".join(f"{heading:>9}" for heading in headings))
    for name, rows in results.items():
        done = [row for row in rows if not isinstance(row, str)]
        if done:
            mean = np.mean(done, axis=0)
            print(f"{name:24}" + "".join(f"{v:9.1f}" for v in mean[:3]) + "".join(f"{v:9.3f}" for v in mean[3:]))
        for reason in dict.fromkeys(row for row in rows if isinstance(row, str)):
            print(f"{name:24} failed: {reason}")


if __name__ == "__main__":
    main()
