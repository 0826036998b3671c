"""Work out the grid of what a trained model loses, for the page that `repsynth explore` writes.

    python -m studies.benchmarks.trained

Run it again whenever a default share, a default of the training or the account changes; a test says so. The grid
holds for the default settings and any schema.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from repsynth import report
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Boolean, Schema

EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
DELTAS = (1e-9, 1e-6)
WEIGHTS = tuple(k / 16 for k in range(1, 17))

_SCHEMA = Schema(columns=(Boolean(name="a"), Boolean(name="b")), one_row_per_person=True)
_MOST_ROWS = 10**12


def make_grid() -> dict[str, Any]:
    """Compute the whole grid from the account. This takes minutes."""
    kinds = [(counted, scored) for counted in (True, False) for scored in (True, False)]
    return {
        "weights": WEIGHTS,
        "epsilons": EPSILONS,
        "deltas": DELTAS,
        "points": {
            f"{counted:d}{scored:d} {delta:g}": [
                point(epsilon, delta, counted=counted, scored=scored) for epsilon in EPSILONS
            ]
            for counted, scored in kinds
            for delta in DELTAS
        },
    }


def point(epsilon: float, delta: float, *, counted: bool, scored: bool) -> dict[str, Any]:
    """Return the noise of a round, the least number of records that it does not drown, and, by weight, the
    largest ε and the largest advantage of an attack. `counted`: the number of records is measured; `scored`: a
    threshold is measured."""
    weights = WEIGHTS if scored else (1.0,)
    settings = Settings.of(
        epsilon=epsilon,
        delta=delta,
        model="autoregressive",
        weights="targeted" if scored else "uniform",
        public_rows=None if counted else 1000,
    )
    plan = make_plan(_SCHEMA, settings)
    assert plan.training is not None
    return {
        "noise": plan.training.noise,
        "rows": first_true(lambda rows: not plan.model.resources(plan, rows).warnings, _MOST_ROWS),
        "epsilons": plan.loss.epsilon_at(weights, delta).tolist(),
        "advantages": plan.loss.advantage_at(weights).tolist(),
    }


def first_true(holds: Callable[[int], bool], most: int) -> int:
    """Return by bisection the smallest positive integer at which something holds; `most` where it never does.

    >>> first_true(lambda n: n * n > 50, 1000)
    8
    """
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


if __name__ == "__main__":
    made = msgspec.json.format(msgspec.json.encode(make_grid()), indent=0)
    (Path(report.__file__).parent / "pages" / "trained.json").write_bytes(made + b"\n")
