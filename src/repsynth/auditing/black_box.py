"""The attacker sees synthetic tables only."""

import numpy as np

from repsynth.arrays import Floats
from repsynth.auditing.bounds import Finding, bounds_of, claimed_mu
from repsynth.auditing.targets import Target, stored
from repsynth.data.records import MISSING, Records
from repsynth.data.sources import open_source
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan


def black_box(plan: Plan, target: Target, *, runs: int, lines: int = 1) -> Finding:
    """Sees synthetic tables only: how often the record's own cells occur, label by label.

    Half of the runs teach the attacker what each table looks like, the other half are the test.
    """
    others, record = target.others, target.record
    seen: list[Floats] = []
    for present in (False, True):
        data = stored(plan.schema, [others, record] if present else [others])
        features = []
        for _ in range(runs):
            release = run(plan, open_source(data))
            features.append(
                _likeness(release.sampler.draw(max(others.rows, 100), np.random.default_rng()), record)
            )
        seen.append(np.array(features))
    half = runs // 2
    mean_out, mean_in = (side[:half].mean(axis=0) for side in seen)
    spread = np.concatenate([side[:half] - side[:half].mean(axis=0) for side in seen]).var(axis=0) + 1e-12
    direction = (mean_in - mean_out) / spread
    threshold = (mean_in + mean_out) @ direction / 2
    out, present_in = (side[half:] @ direction - threshold for side in seen)
    bounds = bounds_of(out, present_in, lines)
    if plan.training is None:
        return Finding(target.name, "black-box", "all", plan.scale, *bounds, plan.delta)
    return Finding(target.name, "black-box", "all", claimed_mu(plan.loss), *bounds, plan.delta, claim=plan.loss)


def _likeness(drawn: Records, record: Records) -> Floats:
    """For each column, the fraction of synthetic records that lie in the sixteenth of the range, or in the
    category, of the record."""
    fractions = []
    for name, codes in drawn.codes.items():
        width = max(int(codes.max(initial=0)) // 16, 1) if codes.size else 1
        own = int(record.codes[name][0])
        fractions.append(np.mean(np.abs(codes - own) < width) if own != MISSING else np.mean(codes == MISSING))
    return np.array(fractions)
