"""Do the errors that follow from a release alone hold? How often 95 % intervals cover what the real records say.

shares      of every bin of every column, by the released histograms: promised
means       of numeric columns by the middles of their bins: promised
true means  of the numbers themselves, noise and binning together: at least 95 %
tables      cells of the tables that the model chose: promised without weights, else a lower bound
clipped     cells of the label's tables, or of naive Bayes' sums, which are clipped: a lower bound
by label    means of numeric columns by label, as the model measured them: a lower bound
label ends  the same by the ends that weights, clipping and groups leave: at least 95 %
informative fraction of those intervals that are shorter than a tenth of the column's range
synthetic   shares of every bin in the synthetic table, with the same intervals around them: no promise
far         fraction of those synthetic shares that are more than twice as far off

    python -m studies.benchmarks.expected --data-dir FOLDER

ε = 1, δ = 1/n², the splits of `judge`, seeded noise.
"""

import argparse
from itertools import product

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.evaluation.points import is_number, numbers_of, records_of
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.models.uncertainty import ModelErrors, TableErrors
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.release.accuracy import Expected, Z, expected_errors
from repsynth.release.release import Release
from repsynth.run.run import run
from studies.benchmarks.judge import TABLES, split_of
from studies.benchmarks.values import Split

MODELS = ("naive-bayes", "mst", "aim", "autoregressive")
WEIGHTS = ("uniform", "default")
SHOWN = (
    "shares",
    "means",
    "true means",
    "tables",
    "clipped",
    "by label",
    "label ends",
    "informative",
    "synthetic",
    "far",
)


def release_of(split: Split, model: str, weights: str, seed: int) -> Release:
    rows = split.train.rows
    chosen = {} if weights == "default" else {"weights": weights}
    settings = Settings.of(epsilon=1.0, delta=1 / rows**2, model=model, **chosen)
    return run(make_plan(split.schema, settings), open_source(split.table), noise_seed=seed)


def covered(release: Release, split: Split, seed: int) -> dict[str, list[bool]]:
    """Whether each interval holds what it should."""
    expected, train = expected_errors(release), split.train
    made = records_of(release.sample(train.rows, seed=seed), split.schema)
    found: dict[str, list[bool]] = {name: [] for name in SHOWN}
    histograms = release.stage.coarse
    for i, (bins, shares) in enumerate(zip(histograms.bins, expected.columns, strict=True)):
        true, drawn = (np.bincount(bins.of(r), minlength=bins.count) / r.rows for r in (train, made))
        margin = Z * np.array(shares.standard_errors)
        found["shares"] += (np.abs(true - histograms.noisy(i) / histograms.rows) <= margin).tolist()
        found["synthetic"] += (np.abs(true - drawn) <= margin).tolist()
        found["far"] += (np.abs(true - drawn) > 2 * margin).tolist()
    add_means(found, release, expected, train)
    add_tables(found, release, train)
    return found


def add_means(found: dict[str, list[bool]], release: Release, expected: Expected, train: Records) -> None:
    columns = {bins.column.name: bins for bins in release.stage.coarse.bins}
    for mean in expected.means:
        bins = columns[mean.column]
        column = bins.column
        here = train.take(is_number(column, train.codes[column.name]))
        middle = column.min + (bins.starts[: bins.numbers] + bins.ends - 1) / 2 * column.unit
        found["means"].append(abs(middle[bins.of(here)].mean() - mean.mean) <= Z * mean.standard_error)
        apart = abs(numbers_of(train, column).mean() - mean.mean)
        found["true means"].append(apart <= Z * mean.standard_error + mean.binning + column.unit)
    label = release.schema.label_column
    for mean in expected.group_means:
        column = columns[mean.column].column
        values = mean.by.split(" = ")[1].split(", ")
        codes = [label.values.index(value) for value in values if value in label.values]
        here = train.take(np.isin(train.codes[label.name], codes))
        if here.rows:
            true = numbers_of(here, column).mean()
            found["by label"].append(abs(true - mean.mean) <= Z * mean.standard_error)
            if mean.interval_95 is not None:
                low, high = mean.interval_95
                found["label ends"].append(low <= true <= high)
                found["informative"].append(high - low < 0.1 * (column.max - column.min))


def add_tables(found: dict[str, list[bool]], release: Release, train: Records) -> None:
    """Tables of groups, or of label and column for a model without groups."""
    said: tuple[TableErrors, ...] = getattr(release.fit, "errors", ModelErrors)().tables
    crosses = [
        [kernel.groups[i].of(train) for i in cross]
        for kernel in release.fit.kernels(choices=False).values()
        for cross in getattr(kernel, "pairs", ())
    ]
    if said and not crosses:
        crosses = [[train.codes[name] for name in table.columns] for table in said]
    for table, codes in zip(said, crosses, strict=True):
        inside = np.logical_and.reduce([code >= 0 for code in codes])
        flat = np.ravel_multi_index([code[inside] for code in codes], table.fractions.shape)
        true = np.bincount(flat, minlength=table.fractions.size).reshape(table.fractions.shape) / inside.sum()
        found["clipped" if table.clipped else "tables"] += (
            (np.abs(true - table.fractions) <= Z * table.errors).ravel().tolist()
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--weights", nargs="+", choices=WEIGHTS, default=WEIGHTS)
    parser.add_argument("--seeds", type=int, default=5)
    asked = parser.parse_args()
    print("| table | model | weights | " + " | ".join(SHOWN) + " |")
    print("|---" * (len(SHOWN) + 3) + "|")
    with threadpool_limits(1):
        for table, model, weights in product(asked.tables, asked.models, asked.weights):
            pooled: dict[str, list[bool]] = {name: [] for name in SHOWN}
            for seed in range(asked.seeds):
                split = split_of(table, seed, asked.data_dir)
                for name, held in covered(release_of(split, model, weights, seed), split, seed).items():
                    pooled[name] += held
            shown = [f"{100 * np.mean(held):.1f} ({len(held):,})" if held else "" for held in pooled.values()]
            print(f"| {table} | {model} | {weights} | " + " | ".join(shown) + " |", flush=True)


if __name__ == "__main__":
    main()
