"""Who may import what, and where noise, randomness and the data may be touched."""

import ast
from pathlib import Path

import pytest

import repsynth

PACKAGE = Path(repsynth.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# A module may import those of its own layer and of the layers before it.
LAYERS = [
    {"errors", "accounting", "__init__"},
    {"strict"},
    {"budget", "noise", "schema", "schema.columns", "schema.parse"},
    {"cost"},
    {"tables"},
    {"encode"},
    {"measure", "cells", "decode", "draft", "output"},
    {"marginals", "datasets", "datasets.fetch"},
    {"score"},
    {"weigh"},
    {"threshold", "plan"},
    {"models", "models.stages", "models.groups", "models.tables", "privacy"},
    {"models.naive_bayes", "models.tree"},
    {"models.pool", "models.network"},
    {"models.training"},
    {"models.marginal"},
    {"ledger"},
    {"release"},
    {"model_files", "guarantee"},
    {"files"},
    {"checkpoint"},
    {"train"},
    {"pipeline"},
    {"findings"},
    {"audit_training"},
    {"risk", "audit"},
    {"paper", "paper.grid", "paper.points", "paper.attacks", "paper.utility", "paper.results"},
    {"paper.splits"},
    {"paper.literal", "paper.sound"},
    {"paper.study"},
    {"paper.summary"},
    {"paper.tables", "paper.figures", "paper.nulls"},
    {"cli", "cli.show", "cli.plans", "cli.commands", "cli.paper", "cli.main", "__main__"},
]
HEAVY = {
    "pandas": set(),
    "polars": {"decode"},
    "sklearn": {"datasets", "paper", "cli"},
    "matplotlib": {"paper", "cli"},
    "mpmath": {"noise"},
    "jax": {"models"},
    "jax_privacy": {"models"},
    "dp_accounting": {"cost"},
    "rich": {"cli", "paper"},
}


def name_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE).with_suffix("")
    parts = relative.parts[:-1] if relative.name == "__init__" and len(relative.parts) > 1 else relative.parts
    return ".".join(parts)


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(name: str) -> int:
    (index,) = [i for i, layer in enumerate(LAYERS) if name in layer]
    return index


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    name = name_of(path)
    if name == "__init__":
        return  # the flat public namespace re-exports from everywhere
    for imported in imports(path, top_level=True):
        target = imported.removeprefix("repsynth.")
        if imported.startswith("repsynth.") and any(target in layer for layer in LAYERS):
            assert layer_of(target) <= layer_of(name), f"{name} imports {target}"


@pytest.mark.parametrize("library", HEAVY)
def test_each_heavy_library_has_its_place(library: str) -> None:
    for path in MODULES:
        roots = {imported.split(".")[0] for imported in imports(path)}
        if library in roots:
            assert name_of(path).split(".")[0] in HEAVY[library], path


def calls(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def names_used(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name)}


def test_noise_is_drawn_in_one_place_and_added_in_one_other() -> None:
    drawing = {name_of(p) for p in MODULES if any(c.endswith("rounded_gaussian") for c in calls(p))}
    adding = {name_of(p) for p in MODULES if any(c.endswith("add_gaussian") for c in calls(p))}
    choosing = {name_of(p) for p in MODULES if any(c.endswith("choose_exponential") for c in calls(p))}
    assert drawing == {"noise"}
    assert adding == choosing == {"measure"}


def test_entropy_comes_from_the_operating_system() -> None:
    users = {name_of(p) for p in MODULES if "os.urandom" in names_used(p)}
    assert users == {"noise", "measure", "pipeline"}
    seeded = {name_of(p) for p in MODULES if any(c.endswith("seeded_entropy") for c in calls(p))}
    assert seeded == {"pipeline"}


def test_randomness_that_is_not_noise_is_an_explicit_generator_in_post_processing() -> None:
    users = {name_of(p) for p in MODULES if any("random.default_rng" in c for c in calls(p))}
    assert users == {
        "release",
        "threshold",
        "datasets",
        "audit",
        "models.pool",
        "models.network",
        "paper.splits",
        "paper.literal",
        "paper.nulls",
    }
    for path in MODULES:
        for call in calls(path):
            assert not call.startswith(("np.random.seed", "np.random.normal", "np.random.rand", "random."))


def test_the_data_is_read_in_few_places() -> None:
    """Measurements read it for a charge; the dossier, the audit and the draft read it for the curator. Decoding
    reads back what it made of public values, to see whether a storage type can hold them."""
    readers = {name_of(p) for p in MODULES if any(c.endswith(("EncodedTable", "encode_batch")) for c in calls(p))}
    assert readers == {"encode", "pipeline", "risk", "audit", "decode", "paper.sound"}
    exact = {name_of(p) for p in MODULES if any(c.endswith("sum_over") for c in calls(p))}
    assert exact == {"measure", "guarantee", "audit"}


def test_the_core_needs_few_packages() -> None:
    """Importing the package loads no optional library."""
    import subprocess
    import sys

    optional = ("pandas", "polars", "sklearn", "matplotlib")
    code = f"import sys, repsynth.cli; print([m for m in {optional} if m in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "[]"


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_no_assertion_or_message_prints_a_cell(path: Path) -> None:
    """No error message is built from arrays, batches or records."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    private = {"records", "codes", "batch", "array", "values", "cells", "text", "series"}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Raise)
            and node.exc is not None
            and path.name in {"encode.py", "tables.py", "measure.py"}
        ):
            used = {part.id for part in ast.walk(node.exc) if isinstance(part, ast.Name)}
            assert not used & private, ast.unparse(node)
