"""Small tables that every test can afford, and the folder with the public data sets where there is one."""

import os
import resource
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import same_noise
from hypothesis import HealthCheck, Phase, settings
from threadpoolctl import threadpool_limits

from repsynth import datasets
from repsynth.io.sources import open_source
from repsynth.planning import plan
from repsynth.planning.settings import Settings
from repsynth.privacy import pld
from repsynth.privacy.gaussian import epsilon_of
from repsynth.release import Release
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema

if TYPE_CHECKING:
    from places import Place
    from postgres import Server

# One thread for each process, here and in those that tests start: the tests run in several.
os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
threadpool_limits(1)

# What trainings cost takes long to work out, and follows from the arguments alone: once is enough for all tests.
plan.calibrate = cache(plan.calibrate)  # type: ignore[assignment]
pld.epsilon, pld.delta = cache(pld.epsilon), cache(pld.delta)  # type: ignore[assignment]

# The suite draws the same examples each time; `make fuzz` draws others (--hypothesis-profile=other-examples).
settings.register_profile("other-examples", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repsynth", settings.get_profile("other-examples"), derandomize=True)
FIRST = (Phase.explicit, Phase.generate)  # for seeded faults: a failing example is not made smaller
settings.register_profile("first-failure", settings.get_profile("repsynth"), phases=FIRST)
settings.load_profile("repsynth")


WHOLE_RUNS = (
    *(
        "test_faults",
        "test_mutants",
        "test_hostile",
        "cli",
        "run",
        "sampling",
        "release",
        "report",
        "evaluation",
        "attacks",
    ),
    *("docs", "studies", "models/test_network", "models/test_rounds", "models/test_marginal"),
    *("models/test_label_tables", "curator/test_dossier", "curator/test_measure", "io/test_alone"),
    *("privacy/test_adaptive_filter", "scoring/test_pairwise"),
)
"""Folders and files of tests that carry out whole runs: `make quick` leaves them out."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        inside = item.path.is_relative_to(here)
        name = str(item.path.relative_to(here).with_suffix("")) if inside else "doctest"
        if not inside or any(name == each or name.startswith(f"{each}/") for each in WHOLE_RUNS):
            item.add_marker("slow")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(same_noise)  # also for the examples of docstrings, which lie elsewhere


# --- `--cpu-above 5` lists the tests that take more than 5 s of CPU time ---

CPU = pytest.StashKey[float]()


def _cpu() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-above", type=float, metavar="SECONDS", help="list tests that take more CPU time")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    item.stash[CPU] = _cpu()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    finally:
        item.user_properties.append(("cpu", _cpu() - item.stash[CPU]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    limit = terminalreporter.config.getoption("cpu_above", None)
    if limit is None:
        return
    reports = (report for some in terminalreporter.stats.values() for report in some)
    ended = (report for report in reports if getattr(report, "when", "") == "teardown")
    used = {report.nodeid: dict(report.user_properties).get("cpu", 0.0) for report in ended}
    terminalreporter.section(f"tests above {limit:g} s of CPU time, with the fixtures that they set up")
    for name, seconds in sorted(used.items(), key=lambda item: -item[1]):
        if seconds > limit:
            terminalreporter.line(f"{seconds:6.1f} s  {name}")


# --- tables ---


def options_of(model: str, mu: float | None = None) -> dict[str, object]:
    """A budget, as μ where it is given and the model has one; a training of two rounds in which all take part. Its
    budget is small, middling or large: each takes long to calibrate."""
    if model != "autoregressive":
        return {} if mu is None else {"epsilon": None, "mu": mu}
    level = 0.3 if mu is not None and mu < 1 else 3.0
    budget = {} if mu is None else {"epsilon": 30.0 if mu > 10 else float(epsilon_of(level, 1e-6))}
    return {"sampling_rate": 1.0, "epochs": 2.0, **budget}


ALL_TYPES = """
one_row_per_person = true
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


WIDE = """
one_row_per_person = true
label = "owner"

[columns.pay]
type = "integer"
min = -20_000
max = 2_000_000
special = ["N"]

[columns.wealth]
type = "number"
min = -1e6
max = 1e9

[columns.price]
type = "number"
min = 0
max = 99_999.99
decimals = 2
missing = true

[columns.grant]
type = "integer"
min = 0
max = 5_000_000
step = 500

[columns.born]
type = "datetime"
min = 1900-01-01
max = 2099-12-31
dates = "%d.%m.%Y"
special = ["31.12.9999"]

[columns.seen]
type = "datetime"
min = 2015-01-01T00:00:00
max = 2025-12-31T23:59:59

[columns.age]
type = "integer"
min = 0
max = 99
special = [-9]

[columns.owner]
type = "category"
values = ["no", "yes"]
"""


def make_wide(rows: int, seed: int = 6) -> pa.Table:
    """A table for `WIDE`: its numbers are far inside of their bounds, some are zero, round, special or missing."""
    generator = np.random.default_rng(seed)
    owner = generator.random(rows) < 0.4
    pay = generator.lognormal(10 + 0.5 * owner, 0.7, rows)
    pay = np.where(generator.random(rows) < 0.6, np.rint(pay / 1000) * 1000, np.rint(pay))
    pay = np.where(generator.random(rows) < 0.1, 0, pay).astype(int)
    born = generator.integers(0, 9000, rows).astype("timedelta64[D]") + np.datetime64("1960-01-01")
    dates = np.array([f"{str(day)[8:10]}.{str(day)[5:7]}.{str(day)[:4]}" for day in born])
    age = np.clip(generator.normal(45, 15, rows), 18, 90).astype(int)
    seen = generator.integers(0, 86_400 * 90, rows).astype("timedelta64[s]") + np.datetime64("2020-03-01T00:00:00")
    return pa.table(
        {
            "pay": pa.array(np.where(generator.random(rows) < 0.15, "N", pay.astype(str))),
            "wealth": pa.array(np.round(generator.normal(200 + 300 * owner, 80, rows), 2)),
            "price": pa.array(np.round(generator.gamma(2, 3, rows), 2), mask=generator.random(rows) < 0.1),
            "grant": pa.array(np.where(generator.random(rows) < 0.5, 0, 500 * generator.integers(1, 12, rows))),
            "born": pa.array(np.where(generator.random(rows) < 0.1, "31.12.9999", dates)),
            "seen": pa.array(seen),
            "age": pa.array(np.where(generator.random(rows) < 0.1, -9, age)),
            "owner": pa.array(np.where(owner, "yes", "no")),
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


@pytest.fixture(scope="session")
def server() -> "Iterator[Server]":
    """A PostgreSQL server, where one is installed."""
    from postgres import running_server

    with running_server() as server:
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> "Callable[..., Place]":
    """Puts a table somewhere, by the kind of place."""
    from places import put

    return partial(put, tmp_path, lambda: request.getfixturevalue("server"))


def make_stays(persons: int, seed: int = 0) -> pa.Table:
    """Stays of patients with 1 to 10 rows each: who comes often is older, and comes to another ward."""
    generator = np.random.default_rng(seed)
    times = generator.integers(1, 11, persons)
    who = np.repeat(np.arange(persons), times)
    often = times[who]
    ward = np.clip((often / 4 + generator.normal(0, 0.6, len(who))).astype(int), 0, 2)
    return pa.table(
        {
            "patient": [f"{seed}-{each}" for each in who],
            "age": np.clip(generator.normal(20 + 6 * often, 8), 0, 99).astype(int),
            "ward": np.array(["eyes", "birth", "heart"])[ward],
            "urgent": generator.random(len(who)) < often / 12,
        }
    )


STAYS = """
person = {column = "patient", rows = 1}
columns.patient = {type = "id"}
columns.age = {type = "integer", min = 0, max = 99}
columns.ward = {type = "category", values = ["eyes", "birth", "heart"]}
columns.urgent = {type = "boolean"}
"""


def _sim() -> tuple[Schema, pa.Table]:
    sim = datasets.load("sim")
    return sim.schema, sim.table


TABLES: dict[str, Callable[[], tuple[Schema, pa.Table]]] = {
    "people": lambda: (parse_schema(ALL_TYPES), make_people(400)),
    "wide": lambda: (parse_schema(WIDE), make_wide(400)),
    "stays": lambda: (parse_schema(STAYS), make_stays(150)),
    "sim": _sim,
}
"""The schemas and tables of shared releases, by name."""


@cache
def release_of(model: str = "naive-bayes", name: str = "people") -> Release:
    """Return the release of a model on a table of `TABLES`, with μ = 3 and δ = 1e-6; the same in every test."""
    schema, table = TABLES[name]()
    settings = Settings.of(**{"model": model, "delta": 1e-6, **options_of(model, 3.0)})
    with same_noise.drawn_from(f"release of {model} on {name}"):
        return run(plan.make_plan(schema, settings), open_source(table))


@pytest.fixture(scope="session")
def releases() -> Callable[..., Release]:
    """A function (model, name of a table in `TABLES`) -> Release, which makes each release once per process."""
    return release_of
