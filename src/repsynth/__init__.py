"""Differentially private synthetic tables that give outliers a provably smaller privacy loss.

table + public schema
  -> encode        every cell becomes a code inside the public domain
  -> marginals     stage 1: noisy one-way histograms                       (charge)
  -> score         a public function of a record: how much it stands out
  -> threshold     a noisy histogram of the scores                         (charge)
  -> weigh         a public function of the score: outliers weigh less
  -> models        stage 2: weighted sums; weighted tables and which;      (charges)
                   or rounds of training on weighted gradients (train)
  -> release       everything above, and what it cost; fit, sample, decode
"""

__version__ = "0.1.0"

from repsynth.budget import Budget
from repsynth.errors import ConfigError, DataError, LedgerError, ReleaseError, RepsynthError, SchemaError
from repsynth.ledger import Ledger
from repsynth.pipeline import synthesize
from repsynth.release import Release
from repsynth.schema import Schema, load_schema, parse_schema
from repsynth.weigh import Cap, Equalize, HingeExp, Random, Removal, Targeted, Uniform

__all__ = [
    "Budget",
    "Cap",
    "ConfigError",
    "DataError",
    "Equalize",
    "HingeExp",
    "Ledger",
    "LedgerError",
    "Random",
    "Release",
    "ReleaseError",
    "Removal",
    "RepsynthError",
    "Schema",
    "SchemaError",
    "Targeted",
    "Uniform",
    "__version__",
    "load_schema",
    "parse_schema",
    "synthesize",
]
