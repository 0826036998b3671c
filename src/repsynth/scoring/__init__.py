"""Stage 1: who is an outlier. Every record pays for it in full.

base         the protocol of a scorer;  rarity, pairwise, random: the scorers
threshold    where outliers begin: a noisy histogram of the scores, by label where the noise allows
weights      from scores to weights: the rules
transfer     scores and threshold of an earlier release
stage        stage 1 from start to end, and what it hands over

A new scorer is one file and one line below.
"""

from repsynth.knobs import Registry
from repsynth.scoring.base import Scorer
from repsynth.scoring.pairwise import Pairwise
from repsynth.scoring.random import Random
from repsynth.scoring.rarity import Rarity

SCORERS: Registry[Scorer] = Registry("scorer", [Rarity, Pairwise, Random])
