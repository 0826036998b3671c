"""Differentially private synthetic tables with a smaller bound on what outliers lose.

    release = repsynth.synthesize("people.csv", "schema.toml", epsilon=1.0)
    table = release.sample(1000)

A run:      cli -> api -> planning.make_plan -> run.run -> scoring.stage -> models -> release.save
A sample:   release.load -> models (sampler) -> sampling -> io.write

docs/architecture.md says what each folder holds.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev5"

if TYPE_CHECKING:
    from repsynth.api import attack as attack
    from repsynth.api import audit as audit
    from repsynth.api import check_table as check_table
    from repsynth.api import draft_schema as draft_schema
    from repsynth.api import evaluate as evaluate
    from repsynth.api import expected_errors as expected_errors
    from repsynth.api import inspect_release as inspect_release
    from repsynth.api import measure_schema as measure_schema
    from repsynth.api import plan as plan
    from repsynth.api import risk as risk
    from repsynth.api import synthesize as synthesize
    from repsynth.errors import ConfigError as ConfigError
    from repsynth.errors import DataError as DataError
    from repsynth.errors import LedgerError as LedgerError
    from repsynth.errors import ReleaseError as ReleaseError
    from repsynth.errors import RepsynthError as RepsynthError
    from repsynth.errors import RepsynthWarning as RepsynthWarning
    from repsynth.errors import SchemaError as SchemaError
    from repsynth.estimator import RepsSynthesizer as RepsSynthesizer
    from repsynth.io.reading import ReadOptions as ReadOptions
    from repsynth.models.marginal.model import Aim as Aim
    from repsynth.models.marginal.model import Mst as Mst
    from repsynth.models.naive_bayes import NaiveBayes as NaiveBayes
    from repsynth.models.network import Autoregressive as Autoregressive
    from repsynth.planning.plan import Plan as Plan
    from repsynth.planning.settings import Settings as Settings
    from repsynth.privacy.budget import Budget as Budget
    from repsynth.privacy.ledger import Ledger as Ledger
    from repsynth.release.release import Release as Release
    from repsynth.report.own_bound import own_bound as own_bound
    from repsynth.schema import Schema as Schema
    from repsynth.schema import load_schema as load_schema
    from repsynth.schema import parse_schema as parse_schema
    from repsynth.schema.sdv import to_sdv as to_sdv
    from repsynth.scoring.pairwise import Pairwise as Pairwise
    from repsynth.scoring.rarity import Random as Random
    from repsynth.scoring.rarity import Rarity as Rarity
    from repsynth.scoring.weights import Cap as Cap
    from repsynth.scoring.weights import Equalize as Equalize
    from repsynth.scoring.weights import HingeExp as HingeExp
    from repsynth.scoring.weights import Removal as Removal
    from repsynth.scoring.weights import Targeted as Targeted
    from repsynth.scoring.weights import Uniform as Uniform

_PLACES = {
    "api": "attack audit check_table draft_schema evaluate expected_errors inspect_release "
    "measure_schema plan risk synthesize",
    "estimator": "RepsSynthesizer",
    "io.reading": "ReadOptions",
    "errors": "ConfigError DataError LedgerError ReleaseError RepsynthError RepsynthWarning SchemaError",
    "models.marginal.model": "Aim Mst",
    "models.naive_bayes": "NaiveBayes",
    "models.network": "Autoregressive",
    "planning.plan": "Plan",
    "planning.settings": "Settings",
    "privacy.budget": "Budget",
    "privacy.ledger": "Ledger",
    "release.release": "Release",
    "report.own_bound": "own_bound",
    "schema": "Schema load_schema parse_schema",
    "schema.sdv": "to_sdv",
    "scoring.pairwise": "Pairwise",
    "scoring.rarity": "Random Rarity",
    "scoring.weights": "Cap Equalize HingeExp Removal Targeted Uniform",
}
_PLACE_OF = {name: module for module, names in _PLACES.items() for name in names.split()}
__all__ = ["__version__", *_PLACE_OF]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: starting must be fast."""
    if name not in _PLACE_OF:
        raise AttributeError(f"module 'repsynth' has no attribute '{name}'")
    return getattr(import_module(f"repsynth.{_PLACE_OF[name]}"), name)
