"""Stage 1: who stands out. Every record pays for it in full.

bins         public bins of each column
ranges       two looks that find where in wide bounds the numbers are;  grain: how round they are
histograms   one noisy histogram per column, and how values are drawn from it
base         what a scorer is;  rarity, pairwise, random: the scorers
apart        how far apart records are, by the histograms
tails        how likely noise makes a score smaller or larger than that, for the guarantee
threshold    where outliers begin: a noisy histogram of the scores;  shifted: a threshold for each label
weights      from scores to weights: the rules;  lost_mass: how strong they may be
borrowed     scores and threshold of an earlier release
stage        stage 1 from start to end, and what it hands over

A new scorer is one file and one line below.
"""

from repsynth.knobs import Registry
from repsynth.scoring.base import Scorer
from repsynth.scoring.pairwise import Pairwise
from repsynth.scoring.random import Random
from repsynth.scoring.rarity import Rarity

SCORERS: Registry[Scorer] = Registry("scorer", [Rarity, Pairwise, Random])
