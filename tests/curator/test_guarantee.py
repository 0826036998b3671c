"""The guaranteed loss: what the noise of the threshold may do to it."""

import math

import numpy as np
import pytest

from repsynth import datasets
from repsynth.curator.guarantee import _highest_threshold, _threshold_sigma
from repsynth.data.sources import open_source
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.scoring.base import NAT
from repsynth.scoring.threshold import MOST_BINS, bin_width


@pytest.mark.parametrize("tail", [0.0, 3.0, 6.0])
def test_above_the_highest_threshold_too_few_can_score(tail: float) -> None:
    """The noisy number of records above it, noise at its largest, must stay below the wanted one."""
    people = datasets.load("people")
    settings = Settings.of(mu=2.0, delta=1e-6, public_rows=people.table.num_rows, model="naive-bayes")
    release = run(make_plan(people.schema, settings), open_source(people.table), noise_seed=2)
    scores = np.random.default_rng(1).permutation(people.table.num_rows) / 100
    highest = _highest_threshold(release, scores, tail)
    # Up to one bin below it, since a threshold is read between the edges of bins.
    above = np.sum(scores > highest - (bin_width(release.score.columns) + 1) / NAT)
    noise = tail * _threshold_sigma(release) * math.sqrt(MOST_BINS) + MOST_BINS / 2
    wanted = release.plan.outlier_fraction * release.rows
    assert above + noise < wanted
    assert above + noise > wanted - 3, "and no more room is left than rounding takes"
