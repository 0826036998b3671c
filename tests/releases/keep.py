"""Keep small releases of this version for all later ones: `python tests/releases/keep.py` writes a folder that is
named for the version, with a release of each model and rule and, beside each, its account as it is told now."""

import json
import sys
from pathlib import Path
from typing import Any

import repsynth
from repsynth import Release, inspect_release, synthesize
from repsynth.models.registry import MODELS
from repsynth.schema import parse_schema
from repsynth.scoring.weights import RULES

HERE = Path(__file__).parent
KNOBS: dict[str, dict[str, Any]] = {
    "autoregressive": {"epochs": 2.0, "sampling_rate": 0.2},
    "hinge-exp": {"gamma": 0.5, "outlier_epsilon": 1.2},
    "targeted": {"public_rows": 2000},
}


def account_of(release: Release) -> dict[str, Any]:
    """What every later version must say of the release."""
    told = inspect_release(release)
    threshold = told["threshold"] or {}
    same = ("epsilon", "delta", "mu", "rho", "epsilon_by_delta", "attack_advantage_at_most", "released_rows")
    strata = told["loss_distribution"]
    return {
        **{key: told[key] for key in (*same, "true_positive_rate_at_most", "model")},
        "weights": "random" if told["scorer"] == "random" else told["weights"],
        "charges": [event["mu"] for event in told["measurements"]],
        "outlier_epsilon": threshold.get("outlier_epsilon"),
        "outlier_weight": threshold.get("outlier_weight"),
        "loss_distribution": [[s["fraction"], s["epsilon_at_most"], s["weight_at_most"]] for s in strata],
    }


def main() -> None:
    sys.path.insert(0, str(HERE.parent))
    from conftest import ALL_TYPES, make_people

    schema, people = parse_schema(ALL_TYPES), make_people(2000)
    for model in MODELS:
        for weights in (*RULES, "random"):
            knobs = KNOBS.get(model, {}) | KNOBS.get(weights, {})
            release = synthesize(people, schema, epsilon=2.0, delta=1e-6, model=model, weights=weights, **knobs)
            folder = release.save(HERE / repsynth.__version__ / f"{model}-{weights}")
            (folder / "account.json").write_text(json.dumps(account_of(release), indent=1) + "\n")


if __name__ == "__main__":
    main()
