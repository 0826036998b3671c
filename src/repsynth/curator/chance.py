"""How likely each record is to be protected: stage 1 done again with fresh noise. PRIVATE, like the dossier.

Which side of the threshold a record falls on depends on the noise that stage 1 happened to draw. Doing all of
stage 1 again, on the same records and by the same plan, shows how often the record falls on the protected side.
Nothing of these runs is kept but the frequencies.
"""

from collections.abc import Sequence

import numpy as np

from repsynth.arrays import Floats
from repsynth.data.records import Records
from repsynth.engines.local import LocalEngine
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan
from repsynth.scoring.stage import SCORES, measure_stage_one

RUNS = 25
"""A frequency in so many runs has a standard error of at most 0.1."""


def protected_probability(plan: Plan, data: Sequence[Records], *, runs: int = RUNS) -> Floats | None:
    """For each record the frequency with which it lies at or above the threshold of its label, where its weight is
    at most the outlier weight; None where the weights need no threshold.

    >>> from repsynth import datasets
    >>> from repsynth.data.sources import open_source
    >>> from repsynth.planning.plan import make_plan
    >>> from repsynth.planning.settings import Settings
    >>> people = datasets.load("people")
    >>> data = list(LocalEngine.open(open_source(people.table), people.schema).per_record())
    >>> chances = protected_probability(make_plan(people.schema, Settings.of(epsilon=4.0)), data, runs=4)
    >>> 0.1 < float(chances.mean()) < 0.5
    True
    """
    if SCORES not in plan.charges:
        return None
    times = [np.zeros(records.rows) for records in data]
    for _ in range(runs):
        engine = LocalEngine(data, person=plan.schema.person)
        stage = measure_stage_one(Meter(engine, mu=plan.scale), plan, lambda _: None)
        assert stage.threshold is not None
        for records, found in zip(data, times, strict=True):
            found += stage.score.of(records) >= stage.threshold.value
    return np.concatenate([np.zeros(0), *times]) / runs
