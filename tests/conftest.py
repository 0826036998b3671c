"""Small tables that every test can afford, and the folder with the public data sets where there is one."""

import os
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

from repsynth import datasets
from repsynth.planning import plan
from repsynth.privacy import pld
from repsynth.privacy.gaussian import epsilon_of
from repsynth.schema import Schema, parse_schema

# One thread for each process, here and in those that tests start: the tests run in several.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
threadpool_limits(1)

# What trainings cost takes long to work out, and follows from the arguments alone: once is enough for all tests.
plan.calibrate = cache(plan.calibrate)  # type: ignore[assignment]
pld.epsilon, pld.delta = cache(pld.epsilon), cache(pld.delta)  # type: ignore[assignment]

settings.register_profile("repsynth", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repsynth")


def options_of(model: str, mu: float | None = None) -> dict[str, object]:
    """A budget, as μ where it is given and the model has one; a training of two rounds in which all take part. Its
    budget is small, middling or large: each takes long to calibrate."""
    if model != "neural":
        return {} if mu is None else {"epsilon": None, "mu": mu}
    level = 0.3 if mu is not None and mu < 1 else 3.0
    budget = {} if mu is None else {"epsilon": 30.0 if mu > 10 else float(epsilon_of(level, 1e-6))}
    return {"sampling_rate": 1.0, "epochs": 2.0, **budget}


ALL_TYPES = """
label = "smoker"

[columns.person]
type = "id"

[columns.age]
type = "integer"
min = 18
max = 99
missing = true

[columns.income]
type = "number"
min = 0
max = 1e6

[columns.region]
type = "category"
values = ["north", "south", 3]
missing = true

[columns.insured]
type = "boolean"

[columns.joined]
type = "datetime"
min = 2015-01-01
max = 2025-12-31

[columns.smoker]
type = "category"
values = ["no", "yes"]
"""


@pytest.fixture
def schema() -> Schema:
    return parse_schema(ALL_TYPES)


@pytest.fixture
def people() -> pa.Table:
    return make_people(400)


def make_people(rows: int, seed: int = 5) -> pa.Table:
    """A table with every column type, some missing values and some that the schema clips or rejects."""
    generator = np.random.default_rng(seed)
    smoker = generator.random(rows) < 0.3
    age = np.clip(generator.normal(45 + 10 * smoker, 15, rows), 1, 120).round().astype(int)
    region = np.array(["north", "south", "3", "nowhere"])[generator.choice(4, rows, p=[0.5, 0.3, 0.15, 0.05])]
    days = generator.integers(0, 4000, rows).astype("timedelta64[D]") + np.datetime64("2015-01-01")
    return pa.table(
        {
            "person": pa.array([f"p{i}" for i in range(rows)]),
            "age": pa.array(age, mask=generator.random(rows) < 0.05),
            "income": pa.array(generator.lognormal(10, 1, rows)),
            "region": pa.array(region),
            "insured": pa.array(generator.random(rows) < 0.8),
            "joined": pa.array(days.astype("datetime64[D]")),
            "smoker": pa.array(np.where(smoker, "yes", "no")),
        }
    )


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder with adult.csv and german_credit.csv."""
    folder = Path(os.environ.get("REPSYNTH_DATA", "."))
    if not (folder / "adult.csv").is_file():
        pytest.skip("the public data sets are not on this machine; name their folder in REPSYNTH_DATA")
    return folder


@pytest.fixture(scope="session")
def sim() -> datasets.Dataset:
    return datasets.load("sim")
