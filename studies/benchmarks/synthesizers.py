"""Synthesizers side by side: the same splits, the same (ε, δ), the same public knowledge.

    python -m studies.benchmarks.synthesizers --data-dir FOLDER --peer opendp=PYTHON --peer dpmm=PYTHON ...
    python -m studies.benchmarks.synthesizers --data-dir FOLDER --ours

FOLDER holds adult.csv, nist_national2019.csv and, from `packaged.py`, bikes.parquet with bikes.toml. PYTHON is the
interpreter of an environment with one peer: opendp[mbi] and pandas, smartnoise-synth, or dpmm. ε = 1, δ = 1/n².

Peers get public bins of each number: 20 of equal width, or asinh bins (`bin_starts`). A number is then drawn
uniformly from its bin. dpmm can also find bins with a tenth of ε ("own bins"). Tools built on mbi 1.1 draw records
from one fitted model in two ways: "round", their default, and "sample", which draws records independently.

Each run is stored in results/synthesizers.json when it ends. A stored run is not repeated; --ours repeats ours. A
method that fails or exceeds --minutes of CPU time is stored with the reason and not tried on further splits.
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "synthesizers.json"
TABLES = ("adult", "nist", "bikes")
DRAWS = {"opendp": ("round", "sample"), "smartnoise": ("round", "sample"), "dpmm": ("",)}


@dataclass(frozen=True)
class Method:
    """A model of a tool: peers have bins; ours know the label or not. `runs`: how many splits it gets."""

    tool: str
    model: str
    setting: str
    runs: int = 3

    @property
    def name(self) -> str:
        return f"{self.tool} {self.model}"

    @property
    def settings(self) -> list[str]:
        """The settings of the rows in the results: one for each way to draw records."""
        return [f"{self.setting}, {draws}" if draws else self.setting for draws in DRAWS.get(self.tool, ("",))]


LABEL, NO_LABEL = "label named", "label not named"
MODELS = ("naive-bayes", "mst", "aim")
METHODS = (
    Method("real", "records", ""),
    *(Method("repsynth", model, setting) for setting in (LABEL, NO_LABEL) for model in MODELS),
    Method("opendp", "MST", "equal bins", runs=1),
    Method("opendp", "MST", "asinh bins"),
    Method("smartnoise", "MST", "equal bins", runs=1),
    Method("smartnoise", "MST", "asinh bins"),
    Method("smartnoise", "AIM", "asinh bins", runs=1),
    Method("dpmm", "MST", "own bins"),
    Method("dpmm", "MST", "asinh bins"),
    Method("dpmm", "PrivBayes", "own bins", runs=1),
    Method("dpmm", "AIM", "asinh bins", runs=1),
)


# Public bins


def bin_starts(column, bins: str):
    """Return the first position of each bin of a numeric column, from its public bounds alone.

    asinh bins: one for each value if there are at most 100. Otherwise 40 that grow with the distance from zero, or
    from the lower bound if zero is out of bounds, and one each for zero and the two bounds.
    """
    import numpy as np

    steps = column.steps
    if bins == "equal bins":
        starts = np.linspace(0, steps + 1, 21)[:-1]
    elif steps < 100:
        starts = np.arange(steps + 1)
    else:
        zero = np.clip(round(-column.min / (column.max - column.min) * steps), 0, steps)
        spaced = np.linspace(*np.arcsinh((np.array([0, steps]) - zero) * 100 / steps), 41)
        starts = [*(zero + np.sinh(spaced) * steps / 100), 0, 1, zero, zero + 1, steps]
    return np.unique(np.clip(starts, 0, steps).astype(np.int64))


def encode(records, schema, bins: str) -> tuple[dict, dict]:
    """Return a table of codes from 0 on, and the number of codes of each column.

    A column that dpmm bins itself has numbers and bounds instead, with special codes just below the numbers.
    """
    import numpy as np

    codes = dict(records.codes)
    domain: dict = {column.name: column.size for column in (*schema.discrete, schema.label_column)}
    for column in schema.numeric:
        special = codes[column.name] - column.steps  # 1, 2, ... for special codes
        if bins == "own bins":
            unit = (column.max - column.min) / column.steps
            domain[column.name] = {"lower": column.min - len(column.special) * unit, "upper": column.max}
            codes[column.name] = column.min + np.where(special > 0, -special, codes[column.name]) * unit
        else:
            starts = bin_starts(column, bins)
            domain[column.name] = len(starts) + len(column.special)
            cells = np.searchsorted(starts, codes[column.name], side="right") - 1
            codes[column.name] = np.where(special > 0, len(starts) - 1 + special, cells)
    return codes, {name: domain[name] for name in codes}  # dpmm needs the order of the columns


def decode(codes: dict, schema, bins: str, generator) -> dict:
    """Undo `encode`: draw a position uniformly from each bin."""
    import numpy as np

    found = {name: values.astype(np.int64) for name, values in codes.items()}
    for column in schema.numeric:
        values = found[column.name]
        if bins == "own bins":
            unit = (column.max - column.min) / column.steps
            values = np.rint((codes[column.name] - column.min) / unit).astype(np.int64)
            numbers, special = np.clip(values, 0, column.steps), -values
        else:
            starts = bin_starts(column, bins)
            cells = np.minimum(values, len(starts) - 1)
            numbers = generator.integers(starts[cells], np.append(starts[1:], column.steps + 1)[cells])
            special = values - len(starts) + 1
        special = np.minimum(special, len(column.special))
        found[column.name] = np.where(special > 0, column.steps + special, numbers)
    return found


# Peers, each in its own environment


def fit_opendp(task: dict, frame):
    """All keys are public, so the whole budget is ρ. OpenDP adds a null to every column; it gets another value."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    keys = {name: list(range(size)) for name, size in task["domain"].items()}
    rho = accepted_rho(rho_of(task["epsilon"], task["delta"]), len(keys))
    unit, loss = dp.unit_of(contributions=1), dp.loss_of(rho=rho)
    context = dp.Context.compositor(data=pl.from_pandas(frame).lazy(), privacy_unit=unit, privacy_loss=loss)
    table = context.query(rho=rho).contingency_table(keys=keys, algorithm=dp.mbi.MST()).release()

    def draw(draws: str):
        made = table.synthesize(rows=len(frame), method=draws).to_pandas()
        return made.apply(lambda c: c.fillna(c.dropna().sample(len(c), replace=True).set_axis(c.index)))

    return draw


def accepted_rho(rho: float, columns: int) -> float:
    """Return the nearest smaller ρ that OpenDP's MST (0.16.0) accepts.

    It refuses a ρ whose parts, rounded up, add up to more than the whole. The data is not used.
    """
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
    """Return the largest ρ of zero-concentrated DP that implies (ε, δ): Canonne, Kamath and Steinke (2020)."""
    import numpy as np

    alpha = 1 + np.geomspace(1e-3, 1e5, 20_000)
    low, high = 0.0, epsilon
    for _ in range(60):
        rho = (low + high) / 2
        logs = (alpha - 1) * (alpha * rho - epsilon) + alpha * np.log1p(-1 / alpha) - np.log(alpha - 1)
        low, high = (rho, high) if logs.min() <= np.log(delta) else (low, rho)
    return low


def fit_smartnoise(task: dict, frame):
    """It has no option for how records are drawn, so the model's sampler is replaced."""
    from types import SimpleNamespace

    from snsynth import Synthesizer

    model = Synthesizer.create(task["model"].lower(), epsilon=task["epsilon"], delta=task["delta"])
    model.fit(frame, categorical_columns=list(frame))
    fitted = model.synthesizer

    def draw(draws: str):
        model.synthesizer = SimpleNamespace(synthetic_data=lambda rows: fitted.synthetic_data(rows, draws))
        return model.sample(len(frame))

    return draw


def fit_dpmm(task: dict, frame):
    import pandas as pd
    from dpmm import pipelines

    own = task["setting"] == "own bins"
    epsilon, domain = task["epsilon"], task["domain"]
    for name in domain if own else ():
        if isinstance(domain[name], int):
            domain[name] = {"categories": list(range(domain[name]))}
            frame[name] = pd.Categorical(frame[name], **domain[name])
    budget = {"epsilon": 0.9 * epsilon, "proc_epsilon": 0.1 * epsilon} if own else {"epsilon": epsilon}
    pipeline = getattr(pipelines, f"{task['model']}Pipeline")
    model = pipeline(**budget, delta=task["delta"], disable_processing=not own, n_jobs=1)
    model.fit(frame, domain)
    return lambda draws: model.generate(n_records=len(frame))


def child(task: dict) -> None:
    """Run one method in this process and print its CPU seconds after import."""
    import pandas as pd

    resource.setrlimit(resource.RLIMIT_CPU, (task["seconds"], task["seconds"] + 5))
    fit = {"opendp": fit_opendp, "smartnoise": fit_smartnoise, "dpmm": fit_dpmm}[task["tool"]]
    frame = pd.read_csv(f"{task['folder']}/train.csv")
    start = time.process_time()
    draw = fit(task, frame)
    made = [draw(draws) for draws in DRAWS[task["tool"]]]
    print(json.dumps({"cpu": time.process_time() - start}))
    for number, table in enumerate(made):
        table.to_csv(f"{task['folder']}/{number}.csv", index=False)


def run_peer(method: Method, python: str, split, seed: int, seconds: int) -> list[dict]:
    """Return the cost of a method and its records for each way to draw them, or why there is nothing."""
    import numpy as np
    import pandas as pd

    from repsynth.io.records import Records

    codes, domain = encode(split.train, split.schema, method.setting)
    task = asdict(method) | {"domain": domain, "epsilon": 1.0, "delta": 1 / split.train.rows**2}
    with tempfile.TemporaryDirectory() as folder:
        pd.DataFrame(codes).to_csv(f"{folder}/train.csv", index=False)
        task |= {"seconds": seconds, "folder": folder}
        command = [python, "-m", "studies.benchmarks.synthesizers", "--child", json.dumps(task)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == -signal.SIGXCPU:
            return [{"failed": f"stopped after {seconds / 60:.0f} minutes of CPU time"}]
        if done.returncode:
            said = re.findall(r"^\S*(?:Error|Exception|Interrupt)\b.*(?:\n.+)?", done.stderr, flags=re.MULTILINE)
            return [{"failed": " ".join(said[-1].split())[:120] if said else f"ended with {done.returncode}"}]
        cost = json.loads(done.stdout.strip().splitlines()[-1])
        tables = [pd.read_csv(f"{folder}/{number}.csv") for number in range(len(DRAWS[method.tool]))]
    made = []
    for table in tables:
        drawn = {name: table[name].to_numpy() for name in codes}
        drawn = decode(drawn, split.schema, method.setting, np.random.default_rng(seed))
        made.append(cost | {"records": Records(rows=len(table), codes=drawn)})
    return made


# Ours


def run_ours(method: Method, split, seed: int) -> list[dict]:
    from repsynth.evaluation.points import records_of
    from repsynth.io.sources import open_source
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.run.run import run
    from repsynth.schema import schema_from_dict, schema_to_dict

    rows, public = split.train.rows, schema_to_dict(split.schema)
    if method.setting == NO_LABEL:
        del public["label"]
    settings = Settings.of(epsilon=1.0, delta=1 / rows**2, public_rows=rows, model=method.model, weights="uniform")
    start = time.process_time()
    release = run(make_plan(schema_from_dict(public), settings), open_source(split.table), noise_seed=seed)
    table = release.sample(rows, seed=seed)
    cpu = time.process_time() - start
    return [{"cpu": cpu, "records": records_of(table, split.schema)}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=TABLES)
    parser.add_argument("--minutes", type=float, default=10.0, help="of CPU time for one run (10)")
    parser.add_argument("--ours", action="store_true", help="repeat our runs, and run no peer")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--child", type=json.loads, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if arguments.child:
        child(arguments.child)
        return
    from studies.benchmarks.judge import measures, split_of
    from studies.benchmarks.values import predictions

    pythons = dict(peer.split("=", 1) for peer in arguments.peer if not arguments.ours)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    runs = found["runs"]
    if arguments.ours:
        runs[:] = [run for run in runs if run["tool"] != "repsynth" or run["table"] not in arguments.tables]
    methods = [method for method in METHODS if method.tool in {"repsynth", "real", *pythons}]
    every = [(seed, method, table) for seed in range(3) for method in methods for table in arguments.tables]
    for seed, method, table in sorted(every, key=lambda one: one[1].runs < 3):  # slow ones last
        stored = [r for r in runs if (r["table"], r["method"]) == (table, method.name)]
        stored = [r for r in stored if r["setting"] in method.settings and ("failed" in r or r["seed"] == seed)]
        if stored or seed >= method.runs:
            continue
        split = split_of(table, seed, arguments.data_dir)
        if method.tool == "real":
            made = [{"records": split.test}]
        elif method.tool == "repsynth":
            made = run_ours(method, split, seed)
        else:
            made = run_peer(method, pythons[method.tool], split, seed, round(60 * arguments.minutes))
        for setting, one in zip(method.settings, made, strict=False):
            run = {"table": table, "tool": method.tool, "method": method.name, "setting": setting, "seed": seed}
            if records := one.pop("records", None):
                one |= measures(table, split, records)
            if method.tool == "real":
                one |= predictions(table, split, split.train, boosted=True)
            run |= {key: round(value, 4) if isinstance(value, float) else value for key, value in one.items()}
            print(json.dumps(run), flush=True)
            runs.append(run)
        names = [(method.name, setting) for method in METHODS for setting in method.settings]
        runs.sort(key=lambda r: (TABLES.index(r["table"]), names.index((r["method"], r["setting"])), r["seed"]))
        lines = ",\n    ".join(json.dumps(run, ensure_ascii=False) for run in runs)
        head = json.dumps({key: found[key] for key in ("title", "command", "note")}, ensure_ascii=False, indent=2)
        RESULTS.write_text(f'{head[:-2]},\n  "runs": [\n    {lines}\n  ]\n}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
