"""Releases of the first version (format 3): the same measurements under other names, and no plan.

What the plan was follows from the events, so nothing here depends on today's defaults.
"""

from typing import Any

import numpy as np

from repsynth.scoring.base import Arrays
from repsynth.scoring.weights import FULL, WeightFunction
from repsynth.storage.checks import ints

FORMAT = 3

_STAGE_ONE = {"size": "count", "score": "histograms", "threshold": "scores"}
_SECOND = {"pairs": "label tables", "structure": "choice", "synthesis": "tables", "training": "gradients"}
_KNOBS = {"neural": ("epochs", "sampling_rate")}


def upgrade(file: dict[str, Any], arrays: Arrays) -> tuple[dict[str, Any], Arrays]:
    """The same release as this version describes it; a KeyError or TypeError where it was no release."""
    old = file["settings"]
    events = [_event(event, old["model"]) for event in file["events"]]
    training = [event for event in events if event["kind"] == "sampled"]
    asked = _rule(old)
    ceiling = _ceiling(file, arrays)
    rule = {**asked, "outlier_weight": ceiling} if "outlier_weight" in asked and ceiling < 1 else asked
    described = {
        "format": 4,
        **{key: file[key] for key in ("repsynth", "publishable", "schema", "layout", "rows", "weights_start")},
        "plan": {
            "settings": _settings(old, asked),
            "budget": {"mu": old["mu"], "delta": old["delta"]},
            "charges": [_charge(event) for event in events if event["kind"] != "sampled"],
            "rule": rule,
            "ceiling": ceiling,
            "training": training[0] if training else None,
        },
        "events": events,
        "threshold": file["threshold"] and _threshold(file["threshold"]),
        "fit": _fit(file, old["model"]),
        "arrays_sha256": file["arrays_sha256"],
    }
    return described, {("histograms" if name == "marginals" else name): array for name, array in arrays.items()}


def _name(name: str, model: str) -> str:
    if name in _STAGE_ONE:
        return _STAGE_ONE[name]
    if model == "naive-bayes" and name == "synthesis":
        return "sums"
    first, *rest = name.split(" ")
    return " ".join([_SECOND[first], *rest])


def _event(event: dict[str, Any], model: str) -> dict[str, Any]:
    return {**event, "name": _name(event["name"], model), "weighted": event["name"] not in _STAGE_ONE}


def _charge(event: dict[str, Any]) -> dict[str, Any]:
    from repsynth.privacy.events import ExponentialEvent

    choice = event["kind"] == "exponential"
    if choice:
        mu = ExponentialEvent(event["name"], event["eta"], event["rounds"]).mu
    else:
        mu = event["sensitivity"] / event["sigma"]
    return {"name": event["name"], "mu": mu, "weighted": event["weighted"], "choice": choice}


def _rule(old: dict[str, Any]) -> dict[str, Any]:
    rule = {"name": "targeted" if old["weights"] == "random" else old["weights"]}
    if rule["name"] == "hinge-exp":
        rule["gamma"] = old["gamma"]
    if rule["name"] == "targeted":
        rule["outlier_weight"] = old["outlier_weight"]
    return rule


def _ceiling(file: dict[str, Any], arrays: Arrays) -> float:
    """The largest weight above the threshold, where an outlier ε was asked for: that version did not keep it, but
    its weights hold it."""
    if file["settings"]["outlier_epsilon"] is None:
        return 1.0
    at = WeightFunction(file["weights_start"], ints(arrays["weights"])).of(np.array([file["threshold"]["value"]]))
    return float(at[0]) / FULL


def _settings(old: dict[str, Any], rule: dict[str, Any]) -> dict[str, Any]:
    same = ("mu", "delta", "public_rows", "outlier_epsilon", "score_share", "threshold_share", "max_model_mb")
    return {
        **{key: old[key] for key in same if old[key] is not None},
        "outlier_fraction": old["outlier_share"],
        "count_share": old["size_share"],
        "weights": rule,
        "scorer": {"name": "random" if old["weights"] == "random" else "rarity"},
        "model": {"name": old["model"], **{key: old[key] for key in _KNOBS.get(old["model"], ()) if key in old}},
    }


def _threshold(old: dict[str, Any]) -> dict[str, Any]:
    return {"value": old["value"], "fraction": old["share"], "fraction_error": old["share_error"]}


def _fit(file: dict[str, Any], model: str) -> dict[str, Any]:
    if model == "naive-bayes":
        return dict(file["sums"])
    if model == "neural":
        return {}
    return {"tables": [{**table, "name": _name(table["name"], model)} for table in file["tables"]]}
