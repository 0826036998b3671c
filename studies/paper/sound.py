"""`--protocol sound`: the product's own path, everything charged, and attacks without a leak.

All methods have the same (ε, δ). Only the noise is seeded, so that results can be repeated.
"""

import numpy as np

from repsynth.engine.local import LocalEngine
from repsynth.evaluation.points import DECILES, advantage_of, make_attacks, nearest
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.scoring.weights import Removal, Rule, Targeted, Uniform
from studies.paper.grid import Cell
from studies.paper.results import Result, scorer_quality
from studies.split import (
    advantage_by_decile,
    load_split,
    make_targets,
    points_of,
    train_outlyingness,
    tstr,
)

_NOISELESS = 1e5
"""A μ at which no noise is left to see: the non-private method."""

_RULES: dict[str, Rule] = {
    "non-private": Uniform(),
    "uniform": Uniform(),
    "uniform-split": Targeted(1.0),  # pays for the threshold, and gives everybody full weight
    "reps": Targeted(),
    "random": Targeted(),  # of random scores
    "removal": Removal(),
}


def run_sound(cell: Cell, data_dir: str | None) -> Result:
    """Run one cell: synthesize, then measure utility, attacks and each decile's loss."""
    key = (cell.dataset, cell.seed, data_dir)
    split, targets = load_split(*key), make_targets(*key)
    source = open_source(split.table)
    rows = len(split.train)
    release = run(make_plan(split.schema, settings_of(cell, rows)), source, noise_seed=cell.noise_seed)
    synthetic = points_of(release.sample(rows, seed=cell.noise_seed), split.schema)

    attacks = make_attacks(nearest(targets.places, targets.space.place(synthetic)), targets.to_reference)
    data = list(LocalEngine.open(source, split.schema).per_record())
    influence = np.concatenate([release.influence(batch) for batch in data])[targets.trained]
    losses = release.privacy.loss.advantage_at(influence)
    white_box = [float(losses[targets.member_deciles == d].mean()) for d in range(DECILES)]
    correlation = recall = None
    if cell.method == "reps":
        scores = np.concatenate([release.score.of(batch) for batch in data]).astype(np.float64)
        correlation, recall = scorer_quality(scores, train_outlyingness(*key))
    by_decile = advantage_by_decile(attacks.density, targets.member, targets.deciles)
    return Result(
        tstr=tstr(synthetic, split.test),
        mia=advantage_of(attacks.distance, targets.member),
        top=by_decile[-1],
        ratio=white_box[-1] / float(np.median(white_box)),
        by_decile=by_decile,
        distance_by_decile=advantage_by_decile(attacks.distance, targets.member, targets.deciles),
        white_box=white_box,
        correlation=correlation,
        recall=recall,
    )


def settings_of(cell: Cell, rows: int) -> Settings:
    """The settings of a cell's run: δ = 1/n², the number of records declared public."""
    return Settings.of(
        epsilon=cell.epsilon,
        mu=_NOISELESS if cell.epsilon is None else None,
        delta=1 / rows**2,
        public_rows=rows,
        model="naive-bayes",
        weights=_RULES[cell.method],
        scorer="random" if cell.method == "random" else "rarity",
    )
