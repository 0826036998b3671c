"""Stage 1: measure histograms and scores, and derive the weight of every record.

base         the protocols of scorers and scores
rarity       the default scorer and random scores;  pairwise: scores of pairs of columns
threshold    the score above which records are outliers, for each label where the noise allows
weights      the weight rules: from scores to weights
transfer     score function and threshold of an earlier release
stage        stage 1 from start to end

A new scorer is one module and one entry below.
"""

from repsynth.knobs import Registry
from repsynth.scoring.base import Scorer
from repsynth.scoring.pairwise import Pairwise
from repsynth.scoring.rarity import Random, Rarity

SCORERS: Registry[Scorer] = Registry("scorer", [Rarity, Pairwise, Random])
