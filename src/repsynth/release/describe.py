"""A release's account as plain data: what `repsynth inspect --json` prints."""

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from repsynth.columns.adaptive_histogram import COARSE, FINE, REFINED
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Model
from repsynth.planning.cautions import csv_cautions
from repsynth.privacy.events import Event, ExponentialEvent, SampledEvent
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import counted_rows, neighbours_of, row_meaning
from repsynth.privacy.shown import at_most
from repsynth.release.accuracy import expected_errors
from repsynth.release.release import Release
from repsynth.scoring.base import NAT
from repsynth.scoring.pairwise import CHOICE, PAIRS
from repsynth.scoring.stage import COUNT, SCORES
from repsynth.scoring.weights import RULES

_STAGE_ONE = {
    COUNT: "number of records",
    COARSE: "histogram of every column",
    REFINED: "weighted histograms of numbers, in finer cells where records are",
    FINE: "the same once more, finer",
    CHOICE: "which pairs of columns depend on each other",
    PAIRS: "two-way tables of these pairs, for scores",
    SCORES: "histogram of the scores",
}


def release_data(release: Release) -> dict[str, Any]:
    privacy, threshold, above = release.privacy, release.threshold, release.privacy.fraction_above
    in_records = {name: asdict(noise) for name, noise in noise_in_records(release).items()}
    return {
        "publishable": release.publishable,
        "epsilon": privacy.epsilon,
        "delta": privacy.delta,
        "mu": privacy.mu,
        "rho": privacy.rho,
        "neighbours": neighbours_of(release.schema),
        "row_represents": row_meaning(release.schema),
        "person": None if release.schema.person is None else asdict(release.schema.person),
        "epsilon_by_delta": {at_most(delta, 6): epsilon for delta, epsilon in privacy.epsilon_by_delta().items()},
        "attack_advantage_at_most": privacy.advantage,
        "true_positive_rate_at_most": {f"{fpr:g}": tpr for fpr, tpr in privacy.true_positive_rates().items()},
        "schema_measured": _schema_measured(release),
        "model": release.plan.model.name,
        "measurements": [
            msgspec.to_builtins(event) | {"mu": mu_of_event(event)} | in_records.get(event.name, {})
            for event in release.events
        ],
        "released_rows": release.rows,
        "rows_public": release.plan.public_rows is not None,
        "weights": release.plan.rule.name,
        "scorer": release.plan.scorer.name,
        "scores_from": _scores_from(release),
        "threshold": None
        if threshold is None or above is None
        else {
            "score": threshold.value / NAT,
            "fraction_above": above.value,
            "fraction_standard_error": above.standard_error,
            "outlier_weight": privacy.outlier_weight,
            "rule": RULES.dump(release.rule),
            "lost_mass": release.lost_mass,
            "max_lost_mass": release.plan.max_lost_mass,
            "outlier_epsilon": privacy.outlier_epsilon,
        },
        "loss_distribution_counts": counted_rows(release.schema),
        "loss_distribution": [
            {"fraction": s.fraction, "epsilon_at_most": s.epsilon, "weight_at_most": s.weight}
            for s in privacy.distribution()
        ],
        "expected_errors": _expected(release),
        "warnings": [*release.warnings, *csv_cautions(release.schema)],
    }


def _expected(release: Release) -> dict[str, Any]:
    """Standard errors: the largest of a share in each column, those of means, and those of the model's tables."""
    expected = expected_errors(release)
    return {
        "rows_standard_error": expected.rows_standard_error,
        "shares": {shares.column: {"standard_error": shares.standard_error} for shares in expected.columns},
        "means": msgspec.to_builtins(expected.means),
        "group_means": msgspec.to_builtins(expected.group_means),
        "tables": msgspec.to_builtins(expected.tables),
        "notes": expected.notes,
    }


def _schema_measured(release: Release) -> dict[str, Any] | None:
    measured, privacy = release.schema.measured, release.privacy
    if measured is None:
        return None
    return {
        "epsilon": Loss.of_measured(measured).epsilon(privacy.delta),
        "mu": measured.mu,
        "failure": measured.failure,
        "columns": list(measured.columns),
        "run_epsilon": privacy.run_loss.epsilon(privacy.delta),
    }


def _scores_from(release: Release) -> dict[str, Any] | None:
    borrowed, privacy = release.stage.borrowed, release.privacy
    if borrowed is None:
        return None
    return {
        "sha256": borrowed.digest,
        "publishable": borrowed.publishable,
        "epsilon": borrowed.epsilon,
        "delta": borrowed.delta,
        "released_rows": borrowed.rows,
        "epsilon_in_both": privacy.epsilon_in_both(),
        "outlier_epsilon_in_both": privacy.epsilon_in_both(borrowed.threshold.value),
    }


@dataclass(frozen=True)
class Noise:
    """Sensitivity and noise of a sum in records (of a training: in clip norms), and the grid units in one."""

    sensitivity: float
    sigma: float
    grid: int


def noise_in_records(release: Release) -> dict[str, Noise]:
    """Return the sensitivity and noise of every sum of a release by its name. Choices have neither."""
    kernels = {**release.stage.kernels(), **release.fit.kernels(choices=False)}
    found = {}
    for event in release.events:
        if not isinstance(event, ExponentialEvent):
            kernel = kernels[event.name]
            assert not isinstance(kernel, Chosen)
            found[event.name] = Noise(event.sensitivity / kernel.unit, event.sigma / kernel.unit, kernel.unit)
    return found


def mu_of_event(event: Event) -> float | None:
    """The charge of an event; None for a training, which has no exact one."""
    return None if isinstance(event, SampledEvent) else event.mu


def purpose(name: str, model: Model) -> str:
    return _STAGE_ONE.get(name) or model.purpose(name)
