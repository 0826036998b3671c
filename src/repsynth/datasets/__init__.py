"""Public tables with public schemas: the paper's four (simulated, Breast Cancer, Adult, German Credit), and people
for demonstrations."""

import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from repsynth.errors import ConfigError, DataError, shown
from repsynth.schema import Schema, parse_schema

NAMES = ("sim", "breast_cancer", "adult", "german_credit", "people")
__all__ = ["NAMES", "Dataset", "load", "schema_text", "simulate", "simulate_people"]
_FILES = {"adult": "adult.csv", "german_credit": "german_credit.csv"}
_BINNED = ("mean_area", "perimeter_error", "worst_texture")


@dataclass(frozen=True)
class Dataset:
    """A table and its public schema."""

    name: str
    table: pa.Table
    schema: Schema


def load(name: str, *, data_dir: str | Path | None = None) -> Dataset:
    """A dataset by name.

    Adult and German Credit are read from adult.csv and german_credit.csv in `data_dir`, or in the folder that
    REPSYNTH_DATA names.

    >>> dataset = load("sim")
    >>> dataset.table.num_rows, dataset.schema.label
    (6000, 'label')
    """
    if name not in NAMES:
        raise ConfigError(f"unknown dataset '{name}'; use one of {', '.join(NAMES)}")
    schema = parse_schema(schema_text(name), file=f"{name}.toml")
    if name == "sim":
        return Dataset(name, simulate(), schema)
    if name == "people":
        return Dataset(name, simulate_people(), schema)
    if name == "breast_cancer":
        return Dataset(name, _breast_cancer(), schema)
    return Dataset(name, _read(_path(name, data_dir), schema), schema)


def schema_text(name: str) -> str:
    return (resources.files(__name__) / f"{name}.toml").read_text(encoding="utf-8")


def simulate(rows: int = 6000, *, seed: int = 0) -> pa.Table:
    """The paper's simulated table: a two-part Gaussian mixture with 2 % outliers.

    Outliers lie at 2.4 instead of ±0.8 and alone have the categories Z, Q and R. The label follows a
    logistic model of numbers and categories. The paper does not give its coefficients; these, of mixed signs
    that nearly cancel, were searched for on its table of results.

    >>> simulate(100).column_names
    ['x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'c1', 'c2', 'c3', 'label']
    """
    generator = np.random.default_rng(seed)
    outliers = round(0.02 * rows)
    side = np.where(generator.random(rows) < 0.5, 0.8, -0.8)
    side[:outliers] = 2.4
    spread = np.where(np.arange(rows) < outliers, 0.5, 1.0)
    numbers = generator.normal(size=(rows, 6)) * spread[:, None] + side[:, None]
    categories = np.stack(
        [
            generator.choice(3, rows, p=[0.5, 0.3, 0.2]),
            generator.choice(3, rows, p=[0.4, 0.35, 0.25]),
            generator.choice(2, rows, p=[0.6, 0.4]),
        ],
        axis=1,
    )
    categories[:outliers] = [3, 3, 2]
    signal = numbers @ np.array([-0.57, 0.75, 0.31, -0.4, -0.22, 0.17])
    signal += np.array([0.0, 0.34, -0.34, 0.0])[categories[:, 0]]
    signal += np.array([0.23, -0.23, 0.0, 0.0])[categories[:, 1]]
    signal += np.array([0.0, 0.29, 0.0])[categories[:, 2]]
    label = (generator.random(rows) < 1 / (1 + np.exp(0.56 - signal))).astype(np.int64)
    order = generator.permutation(rows)
    columns = {f"x{j + 1}": np.clip(numbers[order, j], -6.0, 6.0).round(3) for j in range(6)}
    for j, values in enumerate(("ABCZ", "DEFQ", "GHR")):
        columns[f"c{j + 1}"] = np.array(list(values))[categories[order, j]]
    return pa.table({**columns, "label": label[order]})


def simulate_people(rows: int = 6000, *, seed: int = 0) -> pa.Table:
    """People with an age, an income, hours of work, a region, a degree and a home, owned or not.

    2 % stand out: they are old, earn much, work long, and alone live on the islands. Who owns a home depends on
    age, income and region.

    >>> simulate_people(100).column_names
    ['age', 'income', 'hours', 'region', 'degree', 'employed', 'owns_home']
    """
    generator = np.random.default_rng(seed)
    outlier = np.arange(rows) < round(0.02 * rows)
    age = np.where(outlier, generator.normal(84, 4, rows), generator.gamma(9, 5, rows))
    age = np.clip(age, 18, 95).round().astype(np.int64)
    degree = generator.choice(3, rows, p=[0.5, 0.3, 0.2])
    employed = generator.random(rows) < np.where(age < 66, 0.85, 0.12)
    employed |= outlier
    hours = np.where(employed, generator.normal(np.where(outlier, 68, 38), 5), 0)
    hours = np.clip(hours, 0, 80).round().astype(np.int64)
    level = 9.9 + 0.25 * degree + 0.45 * employed + 0.004 * (age - 40) + 1.2 * outlier
    income = np.clip(np.exp(generator.normal(level, 0.35)), 0, 200_000).round(-2).astype(np.int64)
    region = generator.choice(4, rows, p=[0.35, 0.3, 0.2, 0.15])
    region[outlier] = 4
    signal = 0.05 * (age - 45) + 0.00003 * (income - 35_000) + np.array([0.3, -0.2, 0.0, -0.6, 0.5])[region]
    owns = generator.random(rows) < 1 / (1 + np.exp(-signal))
    order = generator.permutation(rows)
    return pa.table(
        {
            "age": age[order],
            "income": income[order],
            "hours": hours[order],
            "region": np.array(["north", "south", "east", "west", "islands"])[region[order]],
            "degree": np.array(["school", "college", "university"])[degree[order]],
            "employed": employed[order],
            "owns_home": np.where(owns[order], "yes", "no"),
        }
    )


def _breast_cancer() -> pa.Table:
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError:
        raise ConfigError(
            "the Breast Cancer table ships with scikit-learn; install it with pip install 'repsynth[evaluate]'"
        ) from None
    bunch = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in bunch.feature_names]
    columns: dict[str, object] = {}
    fifths = np.array(["very low", "low", "middle", "high", "very high"])
    for j, name in enumerate(names):
        values = bunch.data[:, j]
        if name in _BINNED:
            low, high = _BOUNDS[name]
            columns[name] = fifths[np.clip((values - low) / (high - low) * 5, 0, 4).astype(int)]
        else:
            columns[name] = values
    columns["diagnosis"] = np.array([str(n) for n in bunch.target_names])[bunch.target]
    return pa.table(columns)


_BOUNDS = {"mean_area": (143.5, 2501.0), "perimeter_error": (0.757, 21.98), "worst_texture": (12.02, 49.54)}


def _path(name: str, data_dir: str | Path | None) -> Path:
    folder = data_dir or os.environ.get("REPSYNTH_DATA")
    if folder is None:
        raise DataError(f"{name}: put {_FILES[name]} into a folder and name the folder in REPSYNTH_DATA")
    path = Path(folder) / _FILES[name]
    if not path.is_file():
        raise DataError(
            f"{shown(path)}: no such file; put {_FILES[name]} there, or name its folder in REPSYNTH_DATA"
        )
    return path


def _read(path: Path, schema: Schema) -> pa.Table:
    try:
        table = pacsv.read_csv(path)
    except pa.ArrowException:
        raise DataError(f"{shown(path)}: not a comma-separated file with a header line") from None
    for column in schema.columns:
        if column.name not in table.column_names:
            raise DataError(f"{shown(path)}: has no column '{column.name}'; this is not the dataset")
    label = schema.label
    assert label is not None  # each of them has one, and its codes are text in the schema
    return table.set_column(table.column_names.index(label), label, pc.cast(table[label], pa.string()))
