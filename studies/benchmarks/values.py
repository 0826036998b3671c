"""Do the numbers come out right? Skewed amounts, spikes, heaps and special codes under wide public bounds.

Part a   the American Community Survey excerpt of NIST: incomes with "not applicable", zeros and round numbers
Part b   Adult: capital gains, most of them zero
Part c   simulated columns of many shapes, with bounds that are 10, 1,000 and 100,000 times too wide
Part d   five tables, to see that nothing got worse: prediction and two-way tables

Distances are total variation distances between synthetic and training records, on the strict grid of
`repsynth.evaluation.fidelity`; "real" compares held-out records with the training records, and trains its
classifiers on the latter. That is a yardstick and no floor: held-out records are another sample, while synthetic
ones are made from the very records that they are compared with. ε = 1, δ = 1/n², seeded noise; 70 % of the records
to learn from, of simulated columns a table of their own. Entries are means over runs, and the standard deviation
of one run.

    python -m studies.benchmarks.values --data-dir FOLDER --part a b --json results.json --pictures pictures

The folder must hold adult.csv, german_credit.csv and nist_national2019.csv.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

import repsynth
from repsynth import datasets
from repsynth.arrays import Floats, Ints
from repsynth.evaluation.fidelity import CELLS, Distances, Grid, measure_distances
from repsynth.evaluation.points import Fill, is_number, numbers_of, points_of_records, records_of
from repsynth.evaluation.prediction import fit_boosting
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Numeric, Schema, load_schema, schema_from_dict
from studies.split import complete, split_rows, tstr

MODELS = ("mst", "aim", "naive-bayes", "autoregressive")
WEIGHTS = ("default", "uniform")
WIDTHS = (10, 1_000, 100_000)
WIDE = {width: f"{width:,} times too wide" for width in WIDTHS}
PARTS = {
    "a": ("nist",),
    "b": ("adult",),
    "c": tuple(WIDE.values()),
    "d": ("sim", "breast_cancer", "german_credit", "adult", "nist"),
}
SPLITS = 5
SEEDS = {"sim": 10, "breast_cancer": 20, "german_credit": 20}
"""Runs. Small tables need several draws of the noise on each split, others one; the trained model gets half."""
BOOSTED = ("nist", "adult")
"""The tables on which boosting is tried, too: it takes long."""

NIST_FILE, NIST_LABEL = "nist_national2019.csv", "OWN_RENT"
NIST_BOUNDS = {
    "PINCP": (-20_000, 2_000_000),
    "POVPIP": (0, 501),
    "PWGTP": (0, 2_000),
    "WGTP": (0, 2_000),
    "AGEP": (0, 99),
    "DENSITY": (0.0, 100_000.0),
}
NOT_APPLICABLE = ("PINCP", "POVPIP")
CLASSES = {"nist": ("1", "2")}
"""The two classes to tell apart where the label has more: who owns and who rents."""
SHOWN = {"nist": ("PINCP",), "adult": ("capital-gain",)}
"""Columns to draw; of simulated tables all."""


# Tables


@dataclass(frozen=True)
class Split:
    """One split of a table: the records to learn from, as a table too, and those held out."""

    schema: Schema
    table: pa.Table
    train: Records
    test: Records


@lru_cache(maxsize=1)
def split_of(name: str, seed: int, data_dir: str | None, special: bool) -> Split:
    if name in WIDE.values():
        width = next(width for width, wide in WIDE.items() if wide == name)
        schema, table, fresh = wide_schema(width), wide_table(seed), wide_table(seed + 1_000)
        return Split(schema, table, records_of(table, schema), records_of(fresh, schema))
    table, schema = load(name, data_dir, special)
    records = records_of(table, schema)
    learn, tune, test = split_rows(records.codes[schema.label or ""], seed % SPLITS)
    train = np.concatenate([learn, tune])
    return Split(schema, table.take(train), records.take(train), records.take(test))


@lru_cache(maxsize=1)
def load(name: str, data_dir: str | None, special: bool) -> tuple[pa.Table, Schema]:
    if name == "nist":
        return load_nist(Path(data_dir or os.environ.get("REPSYNTH_DATA", "")) / NIST_FILE, special)
    if (packaged := Path(data_dir or "") / f"{name}.parquet").exists():  # by packaged.py
        return pq.read_table(packaged), load_schema(packaged.with_suffix(".toml"))
    dataset = datasets.load(name, data_dir=data_dir)
    return complete(dataset.table), dataset.schema


def load_nist(path: Path, special: bool) -> tuple[pa.Table, Schema]:
    """All cells as text. Without special codes, who has no income is missing."""
    names = path.open(encoding="utf-8").readline().strip().split(",")
    as_text = pacsv.ConvertOptions(column_types={name: pa.string() for name in names})
    table = pacsv.read_csv(path, convert_options=as_text)
    columns: dict[str, dict[str, object]] = {}
    for name in names:
        if name in NIST_BOUNDS:
            low, high = NIST_BOUNDS[name]
            columns[name] = {"type": "number" if isinstance(low, float) else "integer", "min": low, "max": high}
            if name in NOT_APPLICABLE:
                columns[name] |= {"special": ["N"]} if special else {"missing": True}
        else:
            columns[name] = {"type": "category", "values": sorted(set(table[name].to_pylist()))}
    return table, schema_from_dict({"one_row_per_person": True, "label": NIST_LABEL, "columns": columns})


# Simulated columns

ROWS = 20_000
FIRST_DAY, LAST_DAY, BUSY_YEAR = (
    np.datetime64("1900-01-01"),
    np.datetime64("2099-12-31"),
    np.datetime64("2019-01-01"),
)


def heaped(generator: np.random.Generator, rows: int) -> np.ndarray:
    """Amounts, of which 30 % are rounded to one significant digit and 30 % to two."""
    amounts = generator.lognormal(9, 1, rows)
    digits = generator.choice([1, 2, 9], rows, p=[0.3, 0.3, 0.4])
    unit = 10.0 ** (np.floor(np.log10(amounts)) - digits + 1)
    return np.round(np.round(amounts / unit) * unit)


def either(generator: np.random.Generator, fraction: float, one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.where(generator.random(len(one)) < fraction, one, other)


Draw = Callable[[np.random.Generator, int], np.ndarray]
SHAPES: dict[str, tuple[str, Draw]] = {
    "lognormal 1": ("number", lambda g, n: g.lognormal(7, 1, n).round(2)),
    "lognormal 2": ("number", lambda g, n: g.lognormal(7, 2, n).round(2)),
    "pareto 1.2": ("number", lambda g, n: (100 + 100 * g.pareto(1.2, n)).round(2)),
    "pareto 2": ("number", lambda g, n: (100 + 100 * g.pareto(2, n)).round(2)),
    "zero-inflated": ("integer", lambda g, n: either(g, 0.3, np.zeros(n), g.lognormal(8, 1.2, n).round())),
    "bimodal": ("number", lambda g, n: either(g, 0.6, g.normal(-3, 1, n), g.normal(3, 0.5, n)).round(3)),
    "bimodal far": (
        "integer",
        lambda g, n: either(g, 0.6, g.normal(50_000, 500, n), g.normal(52_000, 300, n)).round(),
    ),
    "heaped": ("integer", heaped),
    "constant": ("integer", lambda g, n: np.full(n, 1_234.0)),
    "normal far": ("number", lambda g, n: g.normal(1e6, 1e3, n).round(2)),
    "uniform": ("integer", lambda g, n: g.integers(0, 1_000, n).astype(float)),
    "small": ("number", lambda g, n: (0.001 * g.exponential(size=n)).round(7)),
    "signed": ("number", lambda g, n: either(g, 0.2, -g.lognormal(6, 1, n), g.lognormal(7, 1, n)).round(2)),
    "date": ("datetime", lambda g, n: np.floor(365 * g.beta(2, 4, n))),
}
SYMMETRIC = ("normal far",)
"""Besides columns with negative numbers: bounds about the middle of the values, not from zero on."""
TELLING = ("lognormal 1", "bimodal")
"""The label depends on these, weakly."""


@lru_cache(maxsize=2)
def wide_columns(seed: int) -> dict[str, np.ndarray]:
    generators = np.random.default_rng(seed).spawn(len(SHAPES))
    return {name: draw(g, ROWS) for (name, (_, draw)), g in zip(SHAPES.items(), generators, strict=True)}


def wide_table(seed: int) -> pa.Table:
    """The simulated columns and a label."""
    columns = wide_columns(seed)
    signal = np.log(columns[TELLING[0]]) - 7 + columns[TELLING[1]] / 3
    label = np.random.default_rng([seed, 1]).random(ROWS) < 1 / (1 + np.exp(-0.7 * signal))
    stored = {}
    for name, (kind, _) in SHAPES.items():
        values = columns[name]
        if kind == "datetime":
            stored[name] = pa.array(BUSY_YEAR + values.astype(int))
        else:
            stored[name] = pa.array(values.astype(np.int64) if kind == "integer" else values)
    return pa.table({**stored, "label": pa.array(np.where(label, "yes", "no"))})


def wide_schema(width: int) -> Schema:
    """Bounds so many times as wide as the values of one fixed draw, rounded outwards; dates have two centuries."""
    columns: dict[str, dict[str, object]] = {}
    for name, values in wide_columns(0).items():
        kind = SHAPES[name][0]
        low, high = float(values.min()), float(values.max())
        if kind == "datetime":
            columns[name] = {"type": kind, "min": str(FIRST_DAY), "max": str(LAST_DAY)}
            continue
        if low < 0 or name in SYMMETRIC:
            middle, half = float(f"{(low + high) / 2:.2g}"), round_up(width * (high - low) / 2)
            low, high = middle - half, middle + half
        else:
            low, high = 0.0, round_up(width * high)
        cast = int if kind == "integer" else float
        columns[name] = {"type": kind, "min": cast(low), "max": cast(high)}
    return schema_from_dict({"one_row_per_person": True, "label": "label", "columns": {**columns, "label": LABEL}})


LABEL: dict[str, object] = {"type": "category", "values": ["no", "yes"]}


def round_up(value: float) -> float:
    """A bound as people give it: one significant digit, away from zero."""
    unit = 10.0 ** np.floor(np.log10(abs(value)))
    return float(f"{np.sign(value) * np.ceil(abs(value) / unit) * unit:.1g}")


# Measures


def equal_grid(column: Numeric, codes: Ints) -> Grid:
    """Return intervals of equal width over the real range: blind to spikes, and to shape where it is skewed.

    >>> from repsynth.schema import Integer
    >>> equal_grid(Integer(name="gain", min=0, max=99_999), np.array([0, 200])).ends[:4].tolist()
    [9, 19, 29, 39]
    """
    numbers = codes[is_number(column, codes)]
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, 0)
    starts = [low - (low - high) * k // CELLS for k in range(1, CELLS)]
    return Grid(column.steps, np.zeros(0, dtype=np.int64), np.unique(np.array(starts, dtype=np.int64) - 1))


@dataclass(frozen=True)
class Task:
    """One run; the model "real" stands for the held-out records."""

    table: str
    model: str
    weights: str
    seed: int


@dataclass(frozen=True)
class Outcome:
    """What came of a run: measures by name, distances by column, and numbers to draw."""

    task: Task
    measures: dict[str, float]
    columns: dict[str, float]
    drawn: dict[str, tuple[np.ndarray, np.ndarray]]


def work(task: Task, data_dir: str | None, special: bool, draw: bool) -> Outcome:
    with threadpool_limits(1):
        split = split_of(task.table, task.seed, data_dir, special)
        start = time.process_time()
        made = split.test if task.model == "real" else synthesize(task, split)
        seconds = time.process_time() - start
        strict = measure_distances(split.train, made, split.schema)
        measures = {
            "1-way": strict.mean_one_way,
            "2-way": strict.mean_two_way,
            "2-way, equal bins": measure_distances(split.train, made, split.schema, grid=equal_grid).mean_two_way,
            **predictions(
                task.table,
                split,
                split.train if task.model == "real" else made,
                boosted=task.table in BOOSTED,
            ),
            **FIGURES.get(task.table, no_figures)(split, made, strict),
            "CPU s": seconds,
        }
    names = SHOWN.get(task.table, tuple(SHAPES) if task.table in WIDE.values() else ()) if draw else ()
    drawn = {
        c.name: (numbers_of(split.train, c), numbers_of(made, c)) for c in split.schema.numeric if c.name in names
    }
    return Outcome(task, measures, strict.one_way, drawn)


def synthesize(task: Task, split: Split) -> Records:
    rows = split.train.rows
    weights = {} if task.weights == "default" else {"weights": task.weights}
    settings = Settings.of(epsilon=1.0, delta=1 / rows**2, public_rows=rows, model=task.model, **weights)
    release = run(make_plan(split.schema, settings), open_source(split.table), noise_seed=task.seed)
    return records_of(release.sample(rows, seed=task.seed), split.schema)


def predictions(table: str, split: Split, learn: Records, *, boosted: bool) -> dict[str, float]:
    """AUROC on held-out records of logistic regression and, if asked for, of boosting."""
    label = split.schema.label_column
    classes = [label.values.index(value) for value in CLASSES.get(table, label.values)]
    learn, test = (records.take(np.isin(records.codes[label.name], classes)) for records in (learn, split.test))
    fill = Fill.of(learn, split.schema, like=split.train)
    points, held_out = (points_of_records(records, split.schema, fill) for records in (learn, test))
    found = {"LR": tstr(points, held_out)}
    if boosted:
        found["GB"] = fit_boosting(points).auroc(held_out)
    return found


def median_error(real: Floats, synthetic: Floats) -> float:
    """How much larger the synthetic median is than the real one, as a fraction of that."""
    if not len(real) or not len(synthetic):
        return float("nan")
    true, made = float(np.median(real)), float(np.median(synthetic))
    if true == 0:
        return 0.0 if made == 0 else float(np.copysign(np.inf, made))
    return (made - true) / abs(true)


def fraction_equal(numbers: Floats, value: float) -> float:
    return float(np.mean(numbers == value)) if len(numbers) else float("nan")


def fraction_of_multiples(numbers: Floats, unit: float) -> float:
    """The fraction of numbers that are whole multiples of a unit, to the precision of floats."""
    if not len(numbers):
        return float("nan")
    units = numbers / unit
    return float(np.mean(np.isclose(units, np.rint(units), rtol=1e-12, atol=1e-9)))


def no_figures(split: Split, made: Records, found: Distances) -> dict[str, float]:
    return {}


def nist_figures(split: Split, made: Records, found: Distances) -> dict[str, float]:
    """What people ask of incomes; differences in points."""
    income, poverty = ({c.name: c for c in split.schema.numeric}[name] for name in NOT_APPLICABLE)
    columns = [distance for name, distance in found.one_way.items() if name != "DENSITY"]
    pairs = [distance for names, distance in found.two_way.items() if "DENSITY" not in names]

    def fractions(records: Records) -> dict[str, float]:
        earned = numbers_of(records, income)
        return {
            "zeros": fraction_equal(earned, 0) * len(earned) / records.rows,
            "negative": float(np.sum(earned < 0)) / records.rows,
            "N": 1 - len(earned) / records.rows,
            "501": float(np.mean(records.codes[poverty.name] == poverty.steps)),
            "thousands": fraction_of_multiples(earned[earned != 0], 1_000),
        }

    real, synthetic = (numbers_of(records, income) for records in (split.train, made))
    return {
        "1-way, no DENSITY": float(np.mean(columns)),
        "2-way, no DENSITY": float(np.mean(pairs)),
        "PINCP": found.one_way[income.name],
        "median": median_error(real, synthetic),
        "median, not 0": median_error(real[real != 0], synthetic[synthetic != 0]),
        **points_apart(fractions(split.train), fractions(made)),
    }


def adult_figures(split: Split, made: Records, found: Distances) -> dict[str, float]:
    """Capital gains: most are zero, and a few are at the upper bound."""
    gain = next(column for column in split.schema.numeric if column.name == "capital-gain")
    real, synthetic = (numbers_of(records, gain) for records in (split.train, made))
    fractions = (
        {"zeros": fraction_equal(gains, 0), "99999": fraction_equal(gains, 99_999)} for gains in (real, synthetic)
    )
    return {
        "capital-gain": found.one_way[gain.name],
        **points_apart(*fractions),
        "median, not 0": median_error(real[real > 0], synthetic[synthetic > 0]),
        "mean": float(synthetic.mean() / real.mean() - 1),
    }


def points_apart(real: dict[str, float], synthetic: dict[str, float]) -> dict[str, float]:
    return {name: 100 * (synthetic[name] - real[name]) for name in real}


FIGURES = {"nist": nist_figures, "adult": adult_figures}


# Tables of results

Runs = dict[tuple[str, str, str], list[Outcome]]
HEADINGS = {
    "a": (
        "1-way",
        "1-way, no DENSITY",
        "2-way",
        "2-way, no DENSITY",
        "PINCP",
        "median",
        "median, not 0",
        "zeros",
        "negative",
        "N",
        "501",
        "thousands",
    ),
    "b": ("1-way", "2-way", "capital-gain", "zeros", "99999", "median, not 0", "mean"),
    "d": ("1-way", "2-way", "2-way, equal bins"),
}
TITLES = {
    "a": "a. NIST's excerpt of the American Community Survey: distances, relative errors of PINCP's median (of "
    "all incomes and of those that are not 0), differences in points (PINCP is 0, negative or N, POVPIP is 501, "
    "incomes other than 0 that are multiples of 1,000), AUROC of owning or renting",
    "b": "b. Adult: distances, differences in points of capital-gain (0, 99,999), relative errors of its median "
    "where it is not 0 and of its mean, AUROC",
    "c": "c. Simulated columns, bounds",
    "d": "d. No worse than before:",
}


def print_part(part: str, runs: Runs) -> None:
    for table in PARTS[part]:
        methods = {key[1:]: found for key, found in runs.items() if key[0] == table}
        if part == "c":
            print(f"\n{TITLES[part]} {table}: 1-way distance on the strict grid\n")
            print_columns(methods)
        else:
            print(f"\n{TITLES[part]}{' ' + table if part == 'd' else ''}\n")
            names = (*HEADINGS[part], "LR", *(("GB",) if table in BOOSTED else ()), "CPU s")
            rows = [
                (
                    " ".join(method).strip(),
                    *(entry([o.measures[name] for o in found]) for name in names),
                    len(found),
                )
                for method, found in methods.items()
            ]
            print_table(("method", *names, "runs"), rows)


def print_columns(methods: dict[tuple[str, str], list[Outcome]]) -> None:
    """A line for each column, and one for each measure of the whole table."""
    names = next(iter(methods.values()))[0].columns
    rows = [(name, *(entry([o.columns[name] for o in found]) for found in methods.values())) for name in names]
    rows += [
        (f"*{name}*", *(entry([o.measures[name] for o in found]) for found in methods.values()))
        for name in ("1-way", "2-way", "LR", "CPU s")
    ]
    print_table(("column", *(" ".join(method).strip() for method in methods)), rows)


def entry(values: list[float]) -> str:
    mean = float(np.mean(values))
    digits = 3 if abs(mean) < 10 else 1
    spread = f" ±{np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{mean:.{digits}f}{spread}"


def print_table(headings: Iterable[object], rows: Iterable[Iterable[object]]) -> None:
    """Aligned markdown."""
    lines = [[str(cell) for cell in line] for line in (headings, *rows)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(lines[0]))]
    lines.insert(1, ["-" * width for width in widths])
    for line in lines:
        first, *others = (
            cell.ljust(w) if j == 0 else cell.rjust(w)
            for j, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        print("| " + " | ".join([first, *others]) + " |", flush=True)


# Pictures


def draw(runs: Runs, folder: Path) -> None:
    """For each column that is shown: a histogram over the real values' range, and the distribution functions."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    folder.mkdir(parents=True, exist_ok=True)
    for table in {key[0] for key in runs}:
        firsts = {key[1:]: found[0] for key, found in runs.items() if key[0] == table and key[1] != "real"}
        for name in next(iter(firsts.values())).drawn:
            figure, (left, right) = plt.subplots(1, 2, figsize=(13, 5))
            real = next(iter(firsts.values())).drawn[name][0]
            low, high = np.quantile(real, [0.002, 0.98])
            room = 0.05 * (high - low) or 1.0
            bins = np.linspace(low - room, high + room, 81)
            lines = {"real": real} | {" ".join(method): o.drawn[name][1] for method, o in firsts.items()}
            for label, values in lines.items():
                style = {"color": "black", "linewidth": 2.2} if label == "real" else {"linewidth": 1}
                heights = np.histogram(values, bins)[0] / max(len(values), 1)
                left.stairs(heights, bins, label=label, **style)
                ordered = np.sort(values)
                right.step(ordered, np.arange(1, len(ordered) + 1) / len(ordered), where="post", **style)
            positive = np.abs(real[real != 0])
            right.set_xscale("symlog", linthresh=float(np.quantile(positive, 0.02)) if len(positive) else 1.0)
            left.set_yscale("log")
            left.set_title(f"{table}: {name}, fraction per bin from the 0.2 % to the 98 % quantile")
            right.set_title("distribution function, whole range")
            left.legend(fontsize=8)
            figure.tight_layout()
            figure.savefig(folder / f"{table}-{name}.png".replace(" ", "_").replace(",", ""), dpi=80)
            plt.close(figure)


# The command


def tasks_of(arguments: argparse.Namespace) -> list[Task]:
    """Every run once, those on the same split one after the other."""
    tasks: dict[Task, None] = {}
    for part in arguments.part:
        models = arguments.models or (("mst", "naive-bayes") if part == "c" or arguments.quick else MODELS)
        for table in PARTS[part]:
            most = 1 if arguments.quick else arguments.seeds or SEEDS.get(table, SPLITS)
            for seed in range(most):
                if seed < SPLITS:
                    tasks[Task(table, "real", "", seed)] = None
                for model in models:
                    if model != "autoregressive" or arguments.seeds or 2 * seed < most:
                        tasks |= {Task(table, model, weights, seed): None for weights in arguments.weights}
    return list(tasks)


def outcomes(tasks: list[Task], arguments: argparse.Namespace) -> Iterator[Outcome]:
    special, data_dir = not arguments.no_special, arguments.data_dir
    extra = [(data_dir, special, arguments.pictures is not None and task.seed == 0) for task in tasks]
    if arguments.jobs == 1:
        yield from (work(task, *more) for task, more in zip(tasks, extra, strict=True))
        return
    with ProcessPoolExecutor(max_workers=arguments.jobs) as pool:
        yield from pool.map(work, tasks, *zip(*extra, strict=True), chunksize=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="default: the folder that REPSYNTH_DATA names")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: all; mst and naive-bayes for part c")
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS)
    parser.add_argument("--seeds", type=int, help="runs of each method (by default what each table needs)")
    parser.add_argument("--quick", action="store_true", help="one run each, of mst and naive-bayes")
    parser.add_argument("--no-special", action="store_true", help="take special codes as missing")
    parser.add_argument("--pictures", type=Path, metavar="FOLDER")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=1)
    arguments = parser.parse_args()
    tasks = tasks_of(arguments)
    runs: Runs = {}
    start = time.perf_counter()
    for done, outcome in enumerate(outcomes(tasks, arguments), start=1):
        task = outcome.task
        runs.setdefault((task.table, task.model, task.weights), []).append(outcome)
        print(f"\r{done} of {len(tasks)} runs, {time.perf_counter() - start:.0f} s ", end="", file=sys.stderr)
    print(file=sys.stderr)
    for part in arguments.part:
        print_part(part, runs)
    if arguments.json:
        write_json(runs, arguments.json)
    if arguments.pictures:
        draw(runs, arguments.pictures)


def write_json(runs: Runs, path: Path) -> None:
    found = [
        {**vars(outcome.task), "measures": outcome.measures, "columns": outcome.columns}
        for outcomes in runs.values()
        for outcome in outcomes
    ]
    path.write_text(
        json.dumps({"version": repsynth.__version__, "runs": found}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
