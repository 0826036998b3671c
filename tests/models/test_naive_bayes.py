"""What naive Bayes makes of its noisy sums."""

import numpy as np
import pyarrow as pa

from repsynth.data.sources import open_source
from repsynth.models.naive_bayes.fit import fit_naive_bayes
from repsynth.models.naive_bayes.model import NaiveBayesFit
from repsynth.models.naive_bayes.statistic import GRID, LINEAR, from_label_code, to_label_code
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Boolean, Number, Schema

ROWS = 300


def fitted() -> NaiveBayesFit:
    """Three columns that the label says nothing of, without noise to speak of."""
    generator = np.random.default_rng(0)
    numbers = {name: generator.normal(0, 0.5, ROWS) for name in "abc"}
    table = pa.table({**numbers, "ill": np.arange(ROWS) % 3 == 0})
    schema = Schema(
        one_row_per_person=True,
        columns=(*(Number(name=n, min=-6, max=6) for n in "abc"), Boolean(name="ill")),
        label="ill",
    )
    settings = Settings.of(mu=1e4, delta=1e-6, public_rows=ROWS, model="naive-bayes", weights="uniform")
    fit = run(make_plan(schema, settings), open_source(table), noise_seed=0).fit
    assert isinstance(fit, NaiveBayesFit)
    return fit


def test_noise_in_its_mean_does_not_tell_a_label_without_an_error():
    """A tree that learns from labels which one column tells perfectly looks at no other column, and cuts where
    noise has put the two means."""
    fit = fitted()
    stage, statistic = fit.stage, fit.statistic
    noise = 0.15 * ROWS  # of a label's sum of z
    sums = from_label_code(fit.noisy.reshape(statistic.shape) / GRID)
    first = statistic.contribution.blocks.numbers.start
    sums[0, 0, first] += 4 * noise * LINEAR
    sums[0, 1, first] -= 4 * noise * LINEAR
    noisy = np.rint(to_label_code(sums) * GRID).astype(np.int64).ravel()
    # The difference of a label from the others has half the root of (1 - 1/2) / 2 of an entry's noise.
    sigma = noise * LINEAR * GRID * 4 * np.sqrt(2)

    def apart(sigma: float) -> float:
        model = fit_naive_bayes(stage.schema, stage.histograms, statistic, noisy, sigma=sigma)
        return float(abs(model.means[0, 0] - model.means[1, 0]) / model.deviations[:, 0].max())

    assert apart(1e-6 * sigma) > 4, "what no noise explains is told apart"
    assert apart(sigma) < 3.5
