"""The Python reference: which public names stand under which heading. What they do is told by their docstrings."""

import inspect
from collections.abc import Iterable
from typing import Any

import repsynth
from repsynth.knobs import knobs_of

GROUPS: dict[str, list[str]] = {
    "Make and use a release": [
        "synthesize",
        "plan",
        "Release",
        "inspect_release",
        "own_bound",
        "expected_errors",
        "RepsSynthesizer",
    ],
    "What is public": [
        *("load_schema", "parse_schema", "Schema", "draft_schema", "measure_schema", "check_table", "to_sdv"),
    ],
    "For the curator only": ["risk", "evaluate", "attack", "audit"],
    "Budgets": ["Budget", "Ledger"],
    "Settings": ["Settings", "ReadOptions", "Plan"],
    "Models": ["NaiveBayes", "Mst", "Aim", "Autoregressive"],
    "Scorers": ["Rarity", "Pairwise", "Random"],
    "Weights": ["Targeted", "HingeExp", "Cap", "Equalize", "Uniform", "Removal"],
    "Errors and warnings": [
        "RepsynthError",
        "SchemaError",
        "ConfigError",
        "DataError",
        "ReleaseError",
        "LedgerError",
        "RepsynthWarning",
    ],
}


def reference() -> str:
    """A section for every group."""
    return "\n\n".join(_section(title, names) for title, names in GROUPS.items())


def _section(title: str, names: Iterable[str]) -> str:
    entries = "\n".join(_entry(name) for name in names)
    return f"## {title}\n\n```{{eval-rst}}\n.. currentmodule:: repsynth\n\n{entries}\n```"


def _entry(name: str) -> str:
    thing = getattr(repsynth, name)
    if inspect.isroutine(thing):
        return f".. autofunction:: {name}\n"
    if hasattr(thing, "__struct_fields__"):
        return f".. autoclass:: {name}\n\n{_knobs(thing)}"
    if issubclass(thing, Exception):
        return f".. autoclass:: {name}\n"
    return f".. autoclass:: {name}\n   :members:\n"


def _knobs(kind: Any) -> str:
    """A table of the knobs of a struct, indented as what follows a directive."""
    knobs = knobs_of(kind)
    if not knobs:
        return ""
    lines = ["   .. list-table::", ""]
    for knob in knobs:
        lines += [f"      * - ``{knob.name}``", f"        - {knob.describe()}"]
    return "\n".join(lines) + "\n"
