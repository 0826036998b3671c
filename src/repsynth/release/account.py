"""The privacy account of a release. Everything in it may be published."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.columns.adaptive_histogram import COARSE, FINE, REFINED
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Model
from repsynth.planning.warnings import csv_warnings
from repsynth.privacy.events import Event, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.formatting import Summarised, Summary, best_guess, percent_upper, promise, upper
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import SMALLEST_DELTA
from repsynth.privacy.unit import counted_rows, neighbours_of, row_meaning
from repsynth.release.accuracy import expected_errors
from repsynth.scoring.base import NAT
from repsynth.scoring.pairwise import PAIRS, SELECTION
from repsynth.scoring.stage import COUNT, SCORES
from repsynth.scoring.threshold import Threshold
from repsynth.scoring.transfer import PriorScores
from repsynth.scoring.weights import FULL, RULES, WeightFunction

if TYPE_CHECKING:
    from repsynth.release.release import Release

_STAGE_ONE = {
    COUNT: "number of records",
    COARSE: "histogram of every column",
    REFINED: "weighted histograms of numbers, in finer cells where records are",
    FINE: "weighted histograms of numbers, in still finer cells",
    SELECTION: "selection of pairs of columns that depend on each other",
    PAIRS: "two-way tables of these pairs, for scores",
    SCORES: "histogram of the scores",
}


@dataclass(frozen=True)
class NoisyFraction:
    """An estimated fraction of the records, clipped to [0, 1], and its standard error.

    >>> str(NoisyFraction.of(1.02, 0.031)), str(NoisyFraction.of(0.3, 0.0004))
    ('100% ± 4%', '30.0% ± 0.1%')
    """

    value: float
    standard_error: float

    @classmethod
    def of(cls, value: float, standard_error: float) -> "NoisyFraction":
        return cls(min(max(value, 0.0), 1.0), standard_error)

    def __str__(self) -> str:
        digits = 0 if self.standard_error >= 0.02 else 1
        return f"{self.value:.{digits}%} ± {percent_upper(max(self.standard_error, 0.001), digits)}"


@dataclass(frozen=True)
class Stratum:
    """A range of scores: the estimated fraction of the records in it, and their largest ε and weight.

    `score` is the lower end of the range, in nats.
    """

    fraction: float
    epsilon: float
    weight: float
    score: float


@dataclass(frozen=True, kw_only=True, repr=False)
class Privacy(Summarised):
    """The account of a release.

    The total bounds the loss of every record. The loss by weight says more: let S be a set of releases in which a
    record has weight w or less, and let tables D and D' differ in that record. Then P[M(D) in S] is at most
    e^epsilon_at(w) P[M(D') in S] + δ, and the same with D and D' swapped. This does not condition on the scores.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> privacy = synthesize(sim.table, sim.schema, epsilon=1.0, delta=1e-6, model="naive-bayes").privacy
    >>> round(privacy.epsilon, 6), bool(privacy.epsilon_at(0.2) < 0.31)
    (1.0, True)
    """

    events: tuple[Event, ...]
    delta: float
    rows: float
    threshold: Threshold | None
    weights: WeightFunction
    borrowed: PriorScores | None = None
    """The source of the scores and the threshold. With it, fractions of records are those of the earlier table."""
    schema_loss: Loss = field(default_factory=lambda: Loss(0.0, 0.0))
    """The cost of measuring the schema on the same table, and the probability of a fingerprint collision."""

    @cached_property
    def loss(self) -> Loss:
        """The loss of a record by its influence, for the schema and the run together."""
        return self.run_loss.after(self.schema_loss, self.delta)

    @property
    def weights_public(self) -> bool:
        """Whether every weight was public before the run. A measured schema, which decides weights, has a cost."""
        return self.borrowed is not None and self.schema_loss.floor_mu == 0

    @cached_property
    def run_loss(self) -> Loss:
        return Loss.of(self.events)

    @property
    def mu(self) -> float | None:
        """The total in Gaussian DP; None with a training, whose loss is not Gaussian."""
        return self.loss.mu

    @cached_property
    def epsilon(self) -> float:
        return self.loss.epsilon(self.delta)

    @property
    def rho(self) -> float | None:
        """The total in zero-concentrated DP, rounded up; None with a training."""
        return None if self.mu is None else self.mu**2 / 2 * (1 + 1e-15)

    def epsilon_at(self, influence: Floats | float) -> Floats:
        """Return the realised ε at δ of records with this influence."""
        return self.loss.epsilon_at(influence, self.delta)

    @property
    def outlier_weight(self) -> float:
        """The largest weight at or above the threshold; 1 without a threshold."""
        return 1.0 if self.threshold is None else _weight(self.weights, self.threshold.value)

    @property
    def outlier_epsilon(self) -> float:
        """The largest ε of a record at or above the threshold."""
        return float(self.epsilon_at(self.outlier_weight))

    def epsilon_by_delta(self) -> dict[float, float]:
        """Return the total ε at several δ."""
        deltas = {self.delta, 1e-5, 1e-6, 1e-9, 1e-12 if self.mu is not None else SMALLEST_DELTA}
        found = {delta: self.loss.epsilon(delta) for delta in sorted(deltas, reverse=True)}
        return {delta: epsilon for delta, epsilon in found.items() if math.isfinite(epsilon)}

    @property
    def advantage(self) -> float:
        """The largest membership advantage of any attack on any record."""
        return float(self.loss.advantage_at(1.0))

    def true_positive_rates(self) -> dict[float, float]:
        """Return the largest true positive rate of any attack at some false positive rates."""
        return {rate: self.loss.true_positive_rate(rate) for rate in (0.001, 0.01, 0.1)}

    @property
    def fraction_above(self) -> NoisyFraction | None:
        """The estimated fraction of the records at or above the threshold; None without a threshold.

        This is the requested fraction, unless the score histogram differs from it by more than its error. That
        happens where many records have the same score.
        """
        if self.threshold is None:
            return None
        bins, wanted = self._score_bins, self.threshold.fraction
        counted = bins.fraction(bins.starts >= self.threshold.value)
        if abs(counted.value - wanted) > counted.standard_error:
            return counted
        return NoisyFraction(wanted, max(self.threshold.fraction_error, counted.standard_error))

    def by_epsilon(self, rounded: Callable[[float], float] = float) -> dict[float, NoisyFraction]:
        """Return the estimated fraction of the records by their largest ε, largest first; empty without threshold.

        ε with the same `rounded` value are grouped. Noisy counts are added before they are clipped at 0, so that
        noise cancels.
        """
        if self.threshold is None:
            return {}
        bins = self._score_bins
        bounds = np.array([rounded(float(epsilon)) for epsilon in self.epsilon_at(self._largest_weights)])
        return {float(bound): bins.fraction(bounds == bound) for bound in np.unique(bounds)[::-1]}

    @property
    def summary(self) -> Summary:
        return self.summary_for("a person counts as an outlier", "records")

    def summary_for(self, who: str, counted: str) -> Summary:
        """Return the promise. `who` says who has the outliers' bound, `counted` what the fraction is of."""
        smaller = None if self.threshold is None else self.outlier_epsilon
        answer = promise(self.epsilon, self.delta, smaller, who=who, before=self.weights_public)
        facts = [("Best attack on anyone", best_guess(self.advantage))]
        if self.fraction_above is not None:
            table = " of the earlier table" if self.borrowed else ""
            facts.insert(0, ("Outliers", f"about {self.fraction_above} of the {counted}{table}"))
        if (both := self.epsilon_in_both()) is not None:
            facts.append(("Who is in both tables", f"loses ε = {upper(both, 3)} in all at most"))
        others = [f"ε = {upper(eps, 3)} at δ = {upper(d, 3)}" for d, eps in self.epsilon_by_delta().items()]
        return Summary("\n".join(answer), (*facts, ("At other δ", ", ".join(others))))

    @cached_property
    def _score_bins(self) -> "_ScoreBins":
        assert self.threshold is not None
        lowest = min(int(self.threshold.edges[0]), self.weights.start) - 1
        if self.borrowed:
            sigma, rows = self.borrowed.sigma, self.borrowed.rows
        else:
            (sigma,) = [e.sigma for e in self.events if e.name == SCORES and isinstance(e, GaussianEvent)]
            rows = self.rows
        return _ScoreBins.of(self.threshold, lowest=lowest, sigma=sigma, rows=rows)

    def epsilon_in_both(self, score: int | None = None) -> float | None:
        """Return the ε at δ for a record that is in this table and in the one the scores came from.

        Without a score, this holds for every record. None if the scores are this release's own. The composition
        is adaptive: the settings of this run may depend on the earlier release.
        """
        if self.borrowed is None:
            return None
        here, there = (
            1.0 if score is None else _weight(weights, score) for weights in (self.weights, self.borrowed.weights)
        )
        earlier = [Loss.of_schema(self.borrowed.schema), Loss.of(self.borrowed.events).at(there)]
        return Loss.adaptive([*earlier, self.schema_loss, self.run_loss.at(here)], self.delta).epsilon(self.delta)

    @property
    def _largest_weights(self) -> Floats:
        """The largest weight in each bin: weights fall with the score."""
        return self.weights.of(self._score_bins.starts) / FULL

    def distribution(self) -> tuple[Stratum, ...]:
        """Return the noisy score histogram with the ε of its weights, lowest scores first.

        Empty without a threshold: then all records have weight 1.
        """
        if self.threshold is None:
            return ()
        bins, weights = self._score_bins, self._largest_weights
        fractions = np.maximum(bins.counts, 0.0)
        fractions = fractions / max(float(fractions.sum()), 1e-300)
        columns = (fractions, self.epsilon_at(weights), weights, bins.starts / NAT)
        return tuple(Stratum(*map(float, row)) for row in zip(*columns, strict=True) if row[0] > 0)

    def fraction_at_most(self, epsilon: float) -> float:
        """Return the estimated fraction of the records that lose at most ε.

        With `[person]`, this is a fraction of the rows. A row has the loss of a person all of whose rows are like
        it.
        """
        return float(sum(stratum.fraction for stratum in self.distribution() if stratum.epsilon <= epsilon))


def _weight(weights: WeightFunction, score: int) -> float:
    return float(weights.of(np.array([score]))[0]) / FULL


@dataclass(frozen=True)
class _ScoreBins:
    """The score histogram, with an edge added at the threshold."""

    starts: Ints
    counts: Floats
    parts: Floats
    """The fraction of the measured bin that this bin covers."""
    unsure: Floats
    """In the bin that contains the threshold: how many records may be on its other side. 0 in other bins."""
    sigma: float
    rows: float

    @classmethod
    def of(cls, threshold: Threshold, *, lowest: int, sigma: float, rows: float) -> "_ScoreBins":
        """Join the histograms of all labels, lowest scores first."""
        parts = [
            _cut(threshold.moved_edges(row), counts.astype(np.float64), threshold.value, lowest)
            for row, counts in enumerate(threshold.counts)
        ]
        starts, counts, shares, unsure = (np.concatenate(each) for each in zip(*parts, strict=True))
        order = np.argsort(starts, kind="stable")
        return cls(starts[order], counts[order], shares[order], unsure[order], sigma, rows)

    def fraction(self, kept: Bools) -> NoisyFraction:
        noise = self.sigma * math.sqrt(max(float(self.parts[kept].sum()), 1.0))
        error = math.hypot(noise, float(self.unsure[kept].sum()))
        return NoisyFraction.of(float(self.counts[kept].sum()) / self.rows, error / self.rows)


def _cut(edges: Ints, counts: Floats, value: int, lowest: int) -> tuple[Ints, Floats, Floats, Floats]:
    """Divide the bin that contains `value`; return the starts, counts, parts and unsure counts of all bins.

    The count is divided in proportion to width. The error allows for all its records being on one side.
    """
    k = int(np.searchsorted(edges, value))
    parts, unsure = np.ones(len(counts)), np.zeros(len(counts))
    if k == len(edges) or edges[k] != value:
        inside = 0 < k < len(edges)
        below = (value - edges[k - 1]) / (edges[k] - edges[k - 1]) if inside else float(k > 0)
        share = np.array([below, 1 - below])
        error = math.sqrt(float(share.prod())) if inside else 0.5  # the outer bins have no width
        edges = np.insert(edges, k, value)
        unsure = np.concatenate([unsure[:k], np.array([-error, error]) * counts[k], unsure[k + 1 :]])
        counts = np.concatenate([counts[:k], counts[k] * share, counts[k + 1 :]])
        parts = np.concatenate([parts[:k], share, parts[k + 1 :]])
    return np.concatenate([[min(lowest, int(edges[0]) - 1)], edges]), counts, parts, unsure


def release_data(release: "Release") -> dict[str, Any]:
    """Return the account as plain data: the output of `repsynth inspect --json`."""
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
        "person": release.schema.person and asdict(release.schema.person),
        "epsilon_by_delta": {upper(delta, 6): epsilon for delta, epsilon in privacy.epsilon_by_delta().items()},
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
        "threshold": threshold
        and above
        and {
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
        "expected_errors": expected_errors(release).data(),
        "warnings": [*release.warnings, *csv_warnings(release.schema)],
    }


def _schema_measured(release: "Release") -> dict[str, Any] | None:
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


def _scores_from(release: "Release") -> dict[str, Any] | None:
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
    """The sensitivity and noise of a sum in records, or in clip norms for a training; `grid` units are one."""

    sensitivity: float
    sigma: float
    grid: int


def noise_in_records(release: "Release") -> dict[str, Noise]:
    """Return the sensitivity and the noise of every sum of a release by its name. Choices have neither."""
    kernels = {**release.stage.kernels(), **release.fit.kernels(choices=False)}
    found = {}
    for event in release.events:
        if not isinstance(event, ExponentialEvent):
            kernel = kernels[event.name]
            assert not isinstance(kernel, Chosen)
            found[event.name] = Noise(event.sensitivity / kernel.unit, event.sigma / kernel.unit, kernel.unit)
    return found


def mu_of_event(event: Event) -> float | None:
    """Return the charge of an event; None for a training, which has no exact μ."""
    return None if isinstance(event, SampledEvent) else event.mu


def purpose(name: str, model: Model) -> str:
    """Return what a measurement is for, in a few words."""
    return _STAGE_ONE.get(name) or model.purpose(name)
