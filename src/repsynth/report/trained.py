"""What a trained model loses, worked out beforehand: its account has no closed form that a page could run.

The grid holds for the default settings, whatever the schema: shares are the same for all. Between its points the
page takes the next one on the safe side. `studies/benchmarks/trained.py` makes the file.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from repsynth.models.network.model import Autoregressive
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Boolean, Schema

EPSILONS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
DELTAS = (1e-9, 1e-6)
WEIGHTS = tuple(k / 16 for k in range(1, 17))

_FILE = Path(__file__).parent / "pages" / "trained.json"
_SCHEMA = Schema(columns=(Boolean(name="a"), Boolean(name="b")), one_row_per_person=True)
_MOST_ROWS = 10**12


def grid_for(settings: Settings, model: Autoregressive) -> dict[str, Any] | None:
    """The grid as plain data, where it holds: with shares and a training as they are by default."""
    default = Settings()
    same = all(
        getattr(settings, name) == getattr(default, name)
        for name in ("score_share", "threshold_share", "count_share")
    )
    plain = (model.epochs, model.sampling_rate) == (Autoregressive().epochs, Autoregressive().sampling_rate)
    return _grid() if same and plain else None


@cache
def _grid() -> dict[str, Any]:
    grid: dict[str, Any] = msgspec.json.decode(_FILE.read_bytes())
    return grid


def make_grid() -> dict[str, Any]:
    """All of it, from the account: minutes."""
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
    """One point: the noise of a round, from how many records on it does not drown them, and by weight the largest
    ε and the largest advantage of an attack. `counted` where the number of records is measured, `scored` where a
    threshold is."""
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
    """The smallest whole number from 1 on at which something holds, by bisection; `most` where it never does.

    >>> first_true(lambda n: n * n > 50, 1000)
    8
    """
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
