"""Differentially private synthetic tables with a smaller bound on what outliers lose.

The folders in the order in which data moves; each imports only from those above it:

schema       what is public about a table
privacy      what privacy costs: budget, events, loss, ledger; never sees data
storage      files: written whole or not at all, checked when read
data         tables in and out: sources -> encode -> records ... decode -> write
datasets     public tables to try it on
engines      where sums over records are computed
mechanism    the door to the data: exact sums -> noise -> events                        (charges)
scoring      stage 1: histograms -> scores -> threshold -> weights
models       stage 2: weighted measurements, and the model that follows
planning     settings -> plan: what will be measured and what it will cost
release      what a run leaves behind: sample from it, ask what it cost
pipeline     carry out a plan: pay, measure
curator      for the curator only: draft of a schema, check of a table, dossier, guaranteed losses
domain       a schema that is measured instead of written down                           (charges)
auditing     attack the mechanism, and compare with its claims
evaluation   what a synthetic table is good for, and who could be found
attacks      for the curator only: attack the records of a table, and see who is still exposed
report       a release as a page for people: one for everybody, one for the curator only
cli          the command line

A run:      cli -> planning.make_plan -> pipeline.run -> scoring.stage -> models -> release.save
A sample:   release.load -> models (sampler) -> data.decode -> data.write
An attack:  scoring.stage -> models -> attacks.observing, many times -> attacks.exposure
An audit:   pipeline.run -> release.kernels -> auditing.audit -> auditing.bounds
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev5"

if TYPE_CHECKING:
    from repsynth.api import (
        attack,
        audit,
        check_table,
        draft_schema,
        evaluate,
        expected_errors,
        inspect_release,
        measure_schema,
        plan,
        risk,
        synthesize,
    )
    from repsynth.errors import (
        ConfigError,
        DataError,
        LedgerError,
        ReleaseError,
        RepsynthError,
        RepsynthWarning,
        SchemaError,
    )
    from repsynth.estimator import RepsSynthesizer
    from repsynth.models.marginal.model import Aim, Mst
    from repsynth.models.naive_bayes.model import NaiveBayes
    from repsynth.models.network.model import Autoregressive
    from repsynth.planning.plan import Plan
    from repsynth.planning.settings import Settings
    from repsynth.privacy.budget import Budget
    from repsynth.privacy.ledger import Ledger
    from repsynth.release.release import Release
    from repsynth.report.own_bound import own_bound
    from repsynth.schema import Schema, load_schema, parse_schema
    from repsynth.schema.sdv import to_sdv
    from repsynth.scoring.pairwise import Pairwise
    from repsynth.scoring.random import Random
    from repsynth.scoring.rarity import Rarity
    from repsynth.scoring.weights import Cap, Equalize, HingeExp, Removal, Targeted, Uniform

_PLACES = {
    "api": [
        "attack",
        "audit",
        "check_table",
        "draft_schema",
        "evaluate",
        "expected_errors",
        "inspect_release",
        "measure_schema",
        "plan",
        "risk",
        "synthesize",
    ],
    "estimator": ["RepsSynthesizer"],
    "errors": [
        "ConfigError",
        "DataError",
        "LedgerError",
        "ReleaseError",
        "RepsynthError",
        "RepsynthWarning",
        "SchemaError",
    ],
    "models.marginal.model": ["Aim", "Mst"],
    "models.naive_bayes.model": ["NaiveBayes"],
    "models.network.model": ["Autoregressive"],
    "planning.plan": ["Plan"],
    "planning.settings": ["Settings"],
    "privacy.budget": ["Budget"],
    "privacy.ledger": ["Ledger"],
    "release.release": ["Release"],
    "report.own_bound": ["own_bound"],
    "schema": ["Schema", "load_schema", "parse_schema"],
    "schema.sdv": ["to_sdv"],
    "scoring.pairwise": ["Pairwise"],
    "scoring.random": ["Random"],
    "scoring.rarity": ["Rarity"],
    "scoring.weights": ["Cap", "Equalize", "HingeExp", "Removal", "Targeted", "Uniform"],
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Aim",
    "Autoregressive",
    "Budget",
    "Cap",
    "ConfigError",
    "DataError",
    "Equalize",
    "HingeExp",
    "Ledger",
    "LedgerError",
    "Mst",
    "NaiveBayes",
    "Pairwise",
    "Plan",
    "Random",
    "Rarity",
    "Release",
    "ReleaseError",
    "Removal",
    "RepsSynthesizer",
    "RepsynthError",
    "RepsynthWarning",
    "Schema",
    "SchemaError",
    "Settings",
    "Targeted",
    "Uniform",
    "__version__",
    "attack",
    "audit",
    "check_table",
    "draft_schema",
    "evaluate",
    "expected_errors",
    "inspect_release",
    "load_schema",
    "measure_schema",
    "own_bound",
    "parse_schema",
    "plan",
    "risk",
    "synthesize",
    "to_sdv",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: starting must be fast."""
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'repsynth' has no attribute '{name}'")
    return getattr(import_module(f"repsynth.{_PLACE_OF[name]}"), name)
