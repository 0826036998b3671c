"""Synthesizers side by side on Adult: the same split, the same (ε, δ), one process per method.

For each: CPU seconds and wall seconds after import, peak memory, AUROC on real records of logistic regression
and of gradient boosting trained on synthetic ones, and the mean total variation distance of one- and two-way
tables (numbers in twenty equal bins over the data's range). δ = 1/n², 70 % of the complete records to learn from.

    python benchmarks/synthesizers.py --data-dir FOLDER
    python benchmarks/synthesizers.py --data-dir FOLDER --peer dpmm=/path/to/its/python

A peer runs in an environment of its own, which needs the peer alone (dpmm, or smartnoise-synth).
"""

import argparse
import json
import resource
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
PEERS = {"dpmm": ("dpmm MST", "dpmm PrivBayes"), "smartnoise": ("smartnoise MST",)}
HEADINGS = ("CPU s", "wall s", "peak MB", "LR", "GB", "1-way", "2-way")


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

    from repsynth import datasets
    from repsynth.data.sources import open_source
    from repsynth.pipeline.run import run
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.schema import parse_schema

    table = pq.read_table(train)
    schema = parse_schema(datasets.schema_text("adult"))
    settings = Settings.of(
        epsilon=task["epsilon"], delta=task["delta"], public_rows=table.num_rows, **task["options"]
    )
    with Clock() as clock:
        made = run(make_plan(schema, settings), open_source(table)).sample(table.num_rows)
    pq.write_table(made, out)
    return clock


def synthesize_dpmm(task: dict, train: Path, out: Path) -> Clock:
    import pandas as pd
    from dpmm.pipelines import MSTPipeline, PrivBayesPipeline

    frame = pd.read_csv(train)
    pipeline = MSTPipeline if task["method"] == "dpmm MST" else PrivBayesPipeline
    budget = {"epsilon": 0.9 * task["epsilon"], "proc_epsilon": 0.1 * task["epsilon"], "delta": task["delta"]}
    for name, values in task["domain"].items():
        if "categories" in values:
            frame[name] = frame[name].astype(str).astype("category")
    with Clock() as clock:
        model = pipeline(**budget)
        model.fit(frame, task["domain"])
        made = model.generate(n_records=len(frame))
    made.to_csv(out, index=False)
    return clock


def synthesize_smartnoise(task: dict, train: Path, out: Path) -> Clock:
    import pandas as pd
    from snsynth import Synthesizer

    frame = pd.read_csv(train)
    with Clock() as clock:
        model = Synthesizer.create("mst", epsilon=task["epsilon"], delta=task["delta"])
        model.fit(frame, preprocessor_eps=0.1 * task["epsilon"])
        made = model.sample(len(frame))
    made.to_csv(out, index=False)
    return clock


def child(text: str) -> None:
    """Run one method in this process; its cost goes to the standard output as JSON."""
    task = json.loads(text)
    train, out = Path(task["train"]), Path(task["out"])
    kind = task["kind"]
    run = {"ours": synthesize_ours, "dpmm": synthesize_dpmm, "smartnoise": synthesize_smartnoise}[kind]
    clock = run(task, train, out)
    print(json.dumps({"cpu": clock.cpu, "wall": clock.wall, "peak": peak_megabytes()}))


def peak_megabytes() -> float:
    """The most memory this process ever held (its own: what it was started from does not count)."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


class Judge:
    """The split, and how good a synthetic table is on it."""

    def __init__(self, data_dir: str | None, seed: int) -> None:
        import numpy as np

        from repsynth import datasets
        from repsynth.evaluation.matrix import points_of
        from repsynth.evaluation.split import complete, split_rows

        dataset = datasets.load("adult", data_dir=data_dir)
        table = complete(dataset.table)
        points = points_of(table, dataset.schema)
        train, validation, test = split_rows(points.labels, seed)
        train = np.concatenate([train, validation])
        self.schema, self.train = dataset.schema, table.take(train)
        self.real, self.test = points.take(train), points.take(test)

    def measures(self, made) -> tuple[float, float, float, float]:
        """AUROC of logistic regression and of boosting, distances of one-way and two-way tables."""
        from sklearn.ensemble import HistGradientBoostingClassifier
        from sklearn.metrics import roc_auc_score

        from repsynth.evaluation.matrix import Space, points_of
        from repsynth.evaluation.utility import tstr

        points = points_of(made, self.schema)
        space = Space.of(points)
        boosting = HistGradientBoostingClassifier(random_state=0).fit(space.place(points), points.labels)
        boosted = roc_auc_score(self.test.labels, boosting.predict_proba(space.place(self.test))[:, 1])
        return tstr(points, self.test), float(boosted), *self.distances(points)

    def distances(self, made) -> tuple[float, float]:
        """Mean total variation distance of all one-way and all two-way tables."""
        import numpy as np

        low, high = self.real.numbers.min(axis=0), self.real.numbers.max(axis=0)

        def cells(points) -> list:
            numbers = np.clip(np.floor((points.numbers - low) / (high - low) * 20), 0, 19).astype(int)
            columns = [numbers[:, j] for j in range(numbers.shape[1])]
            return [*columns, *(points.codes[:, j] + 1 for j in range(points.codes.shape[1])), points.labels]

        def distance(one, two) -> float:
            size = max(one.max(), two.max()) + 1
            shares = [np.bincount(codes, minlength=size) / len(codes) for codes in (one, two)]
            return float(np.abs(shares[0] - shares[1]).sum() / 2)

        ours, theirs = cells(made), cells(self.real)
        single = [distance(a, b) for a, b in zip(ours, theirs, strict=True)]
        double = [
            distance(ours[i] * 1000 + ours[j], theirs[i] * 1000 + theirs[j])
            for i in range(len(ours))
            for j in range(i)
        ]
        return float(np.mean(single)), float(np.mean(double))


def domain_of(schema) -> dict:
    """What is public, as peers want it."""
    numeric = {c.name: {"lower": c.min, "upper": c.max} for c in schema.numeric}
    return numeric | {c.name: {"categories": list(c.values)} for c in (*schema.discrete, schema.label_column)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for one method")
    parser.add_argument("--peers-only", action="store_true")
    parser.add_argument("--only", default="", metavar="NAME", help="of ours, those whose name begins so")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    import numpy as np
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    peers = dict(peer.split("=", 1) for peer in arguments.peer)
    chosen = [name for name in OURS if name.startswith(arguments.only)]
    methods = [] if arguments.peers_only else [(name, "ours", sys.executable) for name in chosen]
    for peer, names in PEERS.items():
        if peer in peers:
            methods += [(name, peer, peers[peer]) for name in names]
        else:
            print(f"{peer}: skipped; give --peer {peer}=PYTHON of an environment that has it")
    results: dict[str, list] = {name: [] for name, _, _ in methods}
    for seed in range(arguments.seeds):
        judge = Judge(arguments.data_dir, seed)
        with tempfile.TemporaryDirectory() as folder:
            pq.write_table(judge.train, f"{folder}/train.parquet")
            pacsv.write_csv(judge.train, f"{folder}/train.csv")
            for name, kind, python in methods:
                suffix = "parquet" if kind == "ours" else "csv"
                task = {
                    "kind": kind,
                    "method": name,
                    "options": OURS.get(name),
                    "train": f"{folder}/train.{suffix}",
                    "out": f"{folder}/out.{suffix}",
                    "epsilon": arguments.epsilon,
                    "delta": 1 / judge.train.num_rows**2,
                    "domain": domain_of(judge.schema),
                }
                try:
                    done = subprocess.run(
                        [python, __file__, "--child", json.dumps(task)],
                        capture_output=True, text=True, timeout=arguments.timeout,
                    )  # fmt: skip
                except subprocess.TimeoutExpired:
                    print(f"{name}: stopped after {arguments.timeout:.0f} s")
                    continue
                if done.returncode:
                    print(f"{name}: failed: {done.stderr.strip().splitlines()[-1]}")
                    continue
                cost = json.loads(done.stdout.strip().splitlines()[-1])
                read = pq.read_table if suffix == "parquet" else pacsv.read_csv
                measures = judge.measures(read(task["out"]))
                results[name].append((cost["cpu"], cost["wall"], cost["peak"], *measures))
    print(f"\n{'method':24}" + "".join(f"{heading:>9}" for heading in HEADINGS))
    for name, rows in results.items():
        if rows:
            mean = np.mean(rows, axis=0)
            print(f"{name:24}" + "".join(f"{v:9.1f}" for v in mean[:3]) + "".join(f"{v:9.3f}" for v in mean[3:]))


if __name__ == "__main__":
    main()
