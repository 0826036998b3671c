"""Folders import in one direction, and noise, randomness and the data are touched in few places."""

import ast
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

import repsynth
from repsynth.models.registry import MODELS

PACKAGE = Path(repsynth.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module may import from its own folder and from those before it.
FOLDERS = [
    *("errors", "arrays", "knobs", "threads"),
    *("schema", "privacy", "storage", "io", "columns", "datasets", "engine", "mechanism", "scoring"),
    *("models", "planning", "sampling", "release", "run", "curator", "evaluation", "attacks", "report"),
    *("api", "estimator", "cli", "__main__"),
]
# Each library, and the folders or modules that may import it.
HEAVY = {
    "pandas": {"io"},
    "polars": {"io"},
    "adbc_driver_manager": {"io.sql"},
    "adbc_driver_postgresql": {"io.sql"},
    "duckdb": {"io.sql"},
    "pyreadstat": {"io.office"},
    "python_calamine": {"io.office"},
    "faker": {"io"},
    "sqlite3": {"io.sql", "privacy"},
    "sklearn": {"datasets", "evaluation", "api", "estimator"},
    "matplotlib": set(),
    "threadpoolctl": {"models", "attacks", "evaluation"},
    "mpmath": {"mechanism"},
    "jinja2": {"report"},
    "vl_convert": {"report"},
    "jax": set(),
    "jax_privacy": set(),
    "torch": set(),
    "dp_accounting": {"privacy"},
    "dask": set(),
    "distributed": {"engine.dask"},
    "cloudpickle": {"engine.dask"},
    "pyspark": {"engine.spark", "io.arrow"},
    "cyclopts": {"cli"},
    "rich": {"cli"},
}


def name_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" and len(relative.parts) > 1 else relative.parts
    return ".".join(parts)


def folder_of(name: str) -> str:
    return name.split(".")[0]


@cache
def imports(path: Path) -> set[str]:
    """Everything that a module imports, wherever it does so."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "repsynth":
            found |= {f"repsynth.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_every_module_has_a_folder_and_there_are_few() -> None:
    assert {folder_of(name_of(path)) for path in MODULES} - {"__init__"} == set(FOLDERS)
    loose = {path.stem for path in PACKAGE.glob("*.py")}
    assert loose == {"__init__", "__main__", "api", "arrays", "errors", "estimator", "knobs", "threads"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    name = name_of(path)
    if name == "__init__":
        assert imports(path) >= {"repsynth.api"}  # the flat public namespace: it may name everything
        return
    own = FOLDERS.index(folder_of(name))
    targets = {
        imported.removeprefix("repsynth.") for imported in imports(path) if imported.startswith("repsynth.")
    }
    upwards = {t for t in targets if folder_of(t) in FOLDERS and FOLDERS.index(folder_of(t)) > own}
    assert not upwards, f"{name} imports {upwards}"


@pytest.mark.parametrize("library", HEAVY)
def test_each_heavy_library_has_its_place(library: str) -> None:
    users = {name_of(path) for path in MODULES if library in {each.split(".")[0] for each in imports(path)}}
    assert not {user for user in users if not {user, folder_of(user)} & HEAVY[library]}
    assert HEAVY[library] <= {name_of(path) for path in MODULES} | set(FOLDERS), "a listed module is missing"


def test_no_noise_and_no_entropy_on_a_worker() -> None:
    """What a worker runs knows neither the mechanism nor where random bytes come from; keys are brought to it."""
    reached, waiting = set(), ["engine.tasks", "engine.persons"]
    while waiting:
        name = waiting.pop()
        reached.add(name)
        path = next(path for path in MODULES if name_of(path) == name)
        known = {each.removeprefix("repsynth.") for each in imports(path) if each.startswith("repsynth.")}
        waiting += sorted(known & {name_of(path) for path in MODULES} - reached)
    assert {"engine.column_store", "io.encode"} <= reached
    assert "engine.local" not in reached  # samples who takes part in a training
    assert "mechanism" not in {folder_of(name) for name in reached}
    used = set().union(*(names_used(path) for path in MODULES if name_of(path) in reached))
    assert not used & {"os.urandom", "secrets.token_bytes", "np.random.default_rng", "random.SystemRandom"}


@cache
def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@cache
def names_used(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}


def callers(*endings: str) -> set[str]:
    return {name_of(path) for path in MODULES if any(call.endswith(endings) for call in calls(path))}


def test_no_class_name_is_defined_twice() -> None:
    nodes = [node for path in MODULES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    defined = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef))
    assert not {name for name, times in defined.items() if times > 1}


def test_noise_is_drawn_in_one_place_and_added_in_one_other() -> None:
    assert callers("rounded_gaussian") == {"mechanism.noise"}
    assert callers("add_gaussian") == {"mechanism.meter"}
    assert callers("choose_exponential") == {"mechanism.meter"}
    assert callers("select_counts") == {"mechanism.meter"}
    assert callers("sample_rows") == {"engine.local"}


def test_entropy_comes_from_the_operating_system() -> None:
    users = {name_of(path) for path in MODULES if "os.urandom" in names_used(path)}
    assert users == {
        *("mechanism.noise", "mechanism.meter", "run.run", "curator.private_schema"),
        *("engine.local", "engine.clusters"),  # the key of the fingerprints
    }
    assert callers("seeded_entropy") == {"run.run", "attacks.traced_run"}


def test_randomness_that_is_not_noise_is_an_explicit_generator_in_post_processing() -> None:
    assert callers("random.default_rng") == {
        *("release.release", "sampling.constraints", "scoring.threshold", "datasets"),
        *("attacks.targets", "attacks.audit", "attacks.traced_run"),
        *("models.marginal.weight_correction", "models.marginal.pool"),
        "models.network",
        *("evaluation.inputs", "evaluation.evaluate"),
    }
    for path in MODULES:
        for call in calls(path):
            assert not call.startswith(("np.random.seed", "np.random.normal", "np.random.rand", "random."))


def test_an_engine_is_the_only_way_from_data_to_numbers() -> None:
    """The meter sums for a charge; the guarantee and the audit sum for the curator. The draft looks at
    the cells, the check at what becomes of them. Who looks up their own bound types their values in, and who has
    rows completed brings them."""
    readers = {
        "io.encode",
        "engine.local",
        *("engine.tasks", "engine.persons"),
        "curator.check",
        "report.own_bound",
        "sampling.conditional",
    }
    assert callers("EncodedTable", "encode_batch") == readers | {"report.own_bound"}
    assert callers("engine.sum", "held.sampled", "engine.held") == {"mechanism.meter"}
    assert callers("LocalEngine") == {
        *("curator.guarantee", "curator.dossier"),
        *("attacks.audit", "attacks.targets"),
    }
    looking = {"curator.dossier", "attacks.audit", "evaluation.points"}
    assert callers("per_record") == looking
    assert callers("LocalEngine.open") == looking | {"attacks.targets"}  # what was read, with and without a person
    assert callers("open_engine", "engine_for") == {"run.run"}
    assert callers("RawTable") == {"curator.private_schema"}
    assert callers("engine.count") == {"mechanism.meter"}
    # A private schema sees the table through the meter alone.
    assert "curator.private_schema" not in callers(".batches", "read_table", "Look.of", "_Tally")


def test_no_model_is_compared_by_name_outside_its_folder() -> None:
    for path in MODULES:
        if folder_of(name_of(path)) == "models":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare | ast.match_case):
                constants = {part.value for part in ast.walk(node) if isinstance(part, ast.Constant)}
                assert not constants & set(MODELS), f"{name_of(path)}: {ast.unparse(node)}"


def test_starting_loads_nothing_heavy() -> None:
    code = "import sys; from repsynth.cli.main import make_app; make_app(); print(sorted(sys.modules))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {module.split(".")[0] for module in ast.literal_eval(printed)}
    assert "numpy" in loaded  # the test would see what is there
    assert not loaded & {*HEAVY, "scipy", "pyarrow"} - {"cyclopts"}


MESSAGES = ("io", "engine", "mechanism")
"""Folders whose code holds cells in its hands."""


def test_no_message_prints_a_cell() -> None:
    """No error message is built from arrays, batches or records."""
    private = {
        "records",
        "codes",
        "batch",
        "array",
        "values",
        "cells",
        "text",
        "series",
        "total",
        "exact",
        "noisy",
    }
    raised: Counter[str] = Counter()
    for path in (path for path in MODULES if folder_of(name_of(path)) in MESSAGES):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                raised[folder_of(name_of(path))] += 1
                used = {part.id for part in ast.walk(node.exc) if isinstance(part, ast.Name)}
                assert not used & private, f"{name_of(path)}: {ast.unparse(node)}"
    assert set(raised) == set(MESSAGES), "a folder is missing, or has no message"
    assert raised["io"] >= 40


def test_every_public_name_is_there_and_documented() -> None:
    for name in repsynth.__all__:
        value = getattr(repsynth, name)
        assert name == "__version__" or (value.__doc__ or "").strip(), name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        repsynth.nothing  # noqa: B018
