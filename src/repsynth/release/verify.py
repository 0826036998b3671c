"""`release.json`: what is in it, and how a release becomes it and is made of it again.

A release carries its plan. Its charges must be those that the settings in the plan make.
"""

import math
import re
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from repsynth import __version__
from repsynth.arrays import Arrays
from repsynth.columns.adaptive_histogram import COARSE, Histograms, Look, dump_look, load_look
from repsynth.columns.cells import first_cells
from repsynth.data.decode import Kind
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Fit, Kept, Made
from repsynth.planning.plan import Plan, make_charges
from repsynth.planning.settings import Settings
from repsynth.privacy import pld
from repsynth.privacy.budget import Budget, make_budget
from repsynth.privacy.events import Charge, Event, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import compose
from repsynth.privacy.loss import Loss
from repsynth.release.release import Release
from repsynth.schema import Discrete, Schema, schema_from_dict, schema_to_dict
from repsynth.scoring.borrowed import Borrowed
from repsynth.scoring.stage import COUNT, LOOKS, SCORES, StageOne, weights_of
from repsynth.scoring.threshold import Threshold, follows, rows_of, with_threshold
from repsynth.scoring.weights import FULL, RULES, Rule, WeightFunction, fault_of
from repsynth.storage.checks import ints, positive, require

FORMAT = 6
"""To be counted up with every change of what a release says, or of how its charges follow from its settings."""

_CLOSE = 1e-6
_FROM = "from_"
"""Before the names of the arrays of an earlier release."""


class BudgetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The whole budget: μ, or ε where a model was trained, whose loss is not Gaussian."""

    delta: float
    mu: float | None = None
    epsilon: float | None = None


class PlanFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan: the settings as given, and what followed from them."""

    settings: dict[str, Any]
    budget: BudgetFile
    charges: tuple[Charge, ...]
    rule: dict[str, Any]
    ceiling: float
    training: SampledEvent | None


class ThresholdFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    value: int
    fraction: float
    fraction_error: float


class ReleaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: int
    repsynth: str
    publishable: bool
    schema: dict[str, Any]
    kind: Kind
    plan: PlanFile
    rows: float
    events: tuple[Event, ...]
    threshold: ThresholdFile | None
    weights_start: int
    fit: dict[str, Any]
    arrays_sha256: str
    scores_from: "ScoresFromFile | None" = None


class ScoresFromFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The release whose scores are used: the SHA-256 of its `release.json`, and that file without its model."""

    digest: str
    described: ReleaseFile


def describe(release: Release, digest: str) -> ReleaseFile:
    plan, borrowed = release.plan, release.plan.borrowed
    threshold = None if borrowed else release.threshold  # a borrowed one is kept with its release
    trained = plan.training is not None and plan.settings.epsilon is not None
    return ReleaseFile(
        format=FORMAT,
        repsynth=__version__,
        publishable=release.publishable,
        schema=schema_to_dict(release.schema),
        kind=release.kind,
        plan=PlanFile(
            settings=plan.settings.dump(),
            budget=BudgetFile(plan.delta, epsilon=plan.settings.epsilon)
            if trained
            else BudgetFile(plan.delta, mu=plan.budget.mu),
            charges=tuple(plan.charges.values()),
            rule=RULES.dump(plan.rule),
            ceiling=plan.ceiling,
            training=plan.training,
        ),
        rows=release.rows,
        events=release.events,
        threshold=ThresholdFile(threshold.value, threshold.fraction, threshold.fraction_error)
        if threshold
        else None,
        weights_start=release.weights.start,
        fit=release.fit.dump()[0],
        arrays_sha256=digest,
        scores_from=ScoresFromFile(borrowed.digest, msgspec.convert(borrowed.described, ReleaseFile))
        if borrowed
        else None,
    )


def arrays_of(release: Release) -> Arrays:
    return _stage_arrays(release.stage) | release.fit.dump()[1]


def _stage_arrays(stage: StageOne) -> Arrays:
    arrays: Arrays = {"coarse_counts": stage.coarse.counts, "weights": stage.weights.table}
    for name, look in stage.looks.items():
        arrays |= dump_look(name, look)
    if stage.borrowed is not None:
        return arrays | {_FROM + name: array for name, array in stage.borrowed.arrays.items()}
    if stage.threshold:
        arrays["threshold_edges"] = stage.threshold.edges
        arrays["threshold_counts"] = stage.threshold.counts.ravel()
        if stage.threshold.shifts is not None:
            arrays["threshold_shifts"] = stage.threshold.shifts
    return arrays | stage.score.dump()


def borrowed_from(
    stage: StageOne, plan: Plan, events: tuple[Event, ...], digest: str, described: dict[str, Any]
) -> Borrowed:
    """Return the scores of a release with a threshold, from its parts."""
    assert stage.threshold is not None
    return Borrowed(
        digest=digest,
        schema=stage.schema,
        scorer=plan.scorer,
        score=stage.score,
        threshold=stage.threshold,
        weights=stage.weights,
        histograms=stage.coarse,
        sigma=_sigma(events, SCORES),
        events=events,
        delta=plan.delta,
        publishable=bool(described["publishable"]),
        described=described,
        arrays=_stage_arrays(replace(stage, looks={})),
    )


def assemble(file: ReleaseFile, arrays: Arrays) -> Release:
    """Make the release from its parts; a RepsynthError where they contradict each other."""
    require(file.format == FORMAT, "its format is not known")
    schema = _schema(file.schema)
    plan = replace(_plan(file.plan, schema), borrowed=_borrowed(file, schema, arrays))
    _check_events(file.events, plan)
    _check_charges(plan, scored=file.scores_from is None)
    stage = _stage(file, plan, arrays)
    gaussian = {event.name: event for event in file.events if isinstance(event, GaussianEvent)}
    sigmas = {name: event.sigma for name, event in gaussian.items() if name not in stage.kernels()}
    fit = plan.model.load(Kept(stage, plan, file.fit, arrays, sigmas))
    _check_kernels(file.events, stage, fit)
    return Release(
        plan=plan, kind=file.kind, stage=stage, fit=fit, events=file.events, publishable=file.publishable
    )


def _borrowed(file: ReleaseFile, schema: Schema, arrays: Arrays) -> Borrowed | None:
    """Check the release that scores came from like any other, except for its model, which is not there."""
    if file.scores_from is None:
        return None
    digest, theirs = file.scores_from.digest, file.scores_from.described
    require(re.fullmatch("[0-9a-f]{64}", digest) is not None, "it does not say where its scores came from")
    require(theirs.format == FORMAT and theirs.scores_from is None, "its scores came from elsewhere twice")
    require(theirs.fit == {} and theirs.threshold is not None, "its scores from elsewhere have no threshold")
    plan = _plan(theirs.plan, _schema(theirs.schema))
    _check_events(theirs.events, plan)
    _check_charges(plan, scored=True)
    own = {name.removeprefix(_FROM): array for name, array in arrays.items() if name.startswith(_FROM)}
    stage = _stage(theirs, plan, own, with_looks=False)
    _check_kernels(theirs.events, stage)
    borrowed = borrowed_from(stage, plan, theirs.events, digest, msgspec.to_builtins(theirs))
    borrowed.check_schema(schema)
    require(file.threshold is None, "it has a threshold of its own beside that from elsewhere")
    private = theirs.publishable or not file.publishable
    require(private, "it claims to be publishable, but its scores' release is not")
    return borrowed


def _plan(file: PlanFile, schema: Schema) -> Plan:
    settings = Settings.load(file.settings)
    charges = {charge.name: charge for charge in file.charges}
    require(len(charges) == len(file.charges), "a charge is there twice")
    require(all(positive(charge.mu) for charge in file.charges), "a charge is not positive")
    fits = all(charge.rows == schema.rows_per_person for charge in file.charges)
    require(fits, "its charges are for other numbers of rows per person than its schema")
    require(file.budget.epsilon is None or file.training is not None, "its charges are not its budget's")
    budget = make_budget(mu=file.budget.mu, epsilon=file.budget.epsilon, delta=file.budget.delta)
    require(settings.delta in (None, budget.delta), "its budget is not its settings'")
    asked = make_budget(epsilon=settings.epsilon, mu=settings.mu, rho=settings.rho, delta=budget.delta)
    require(math.isclose(asked.mu, budget.mu, rel_tol=1e-6), "its budget is not its settings'")
    charged = compose(c.mu for c in file.charges)
    require(charged <= budget.mu * (1 + 1e-9), "its charges exceed its budget")
    require(file.training is not None or charged >= 0.99 * budget.mu, "its charges are not its budget's")
    require(0 <= file.ceiling <= 1, "its ceiling is out of range")
    require(settings.model is not None, "its model is not named")
    rule = RULES.load(file.rule)
    _check_rule(rule, settings, file.ceiling)
    return Plan(
        schema=schema,
        settings=settings,
        budget=budget,
        charges=charges,
        rule=rule,
        ceiling=file.ceiling,
        training=file.training,
    )


def _schema(described: dict[str, Any]) -> Schema:
    schema = schema_from_dict(described)
    declared = schema.person is not None or schema.one_row_per_person
    require(declared, "its schema does not declare the unit of privacy")
    return schema


def _check_charges(plan: Plan, *, scored: bool) -> None:
    """Check each charge, not only their sum: what every record pays in full decides what an outlier loses."""
    again = make_charges(plan.schema, plan.settings, plan.budget, scored=scored)
    pairs = [(plan.charges.get(name), charge) for name, charge in again.items()]
    same = again.keys() == plan.charges.keys() and all(
        one is not None
        and (one.weighted, one.choice) == (other.weighted, other.choice)
        and math.isclose(one.mu, other.mu, rel_tol=_CLOSE)
        for one, other in pairs
    )
    require(same, "its charges are not its settings'")


def _check_rule(rule: Rule, settings: Settings, ceiling: float) -> None:
    """The rule is that of the settings, cut off at its ceiling where an outlier ε was requested."""
    asked = settings.weights
    require(asked is not None, "its settings name no weights")
    assert asked is not None
    same = rule == asked and ceiling == 1 if settings.outlier_epsilon is None else rule == asked.at_most(ceiling)
    require(same, "its weight rule is not its settings'")
    why = fault_of(rule)
    require(why is None, f"its weight rule {why}")


def _check_events(events: tuple[Event, ...], plan: Plan) -> None:
    """What happened is what was planned."""
    require([event.name for event in events] == plan.steps, "its events do not fit its plan")
    for event in events:
        if isinstance(event, SampledEvent):
            require(event == plan.training, "its training is not its plan's")
            _check_training(event, Loss.of(events), plan.budget)
            continue
        charge = plan.charges.get(event.name)
        require(charge is not None, "an event is not of its kind")
        assert charge is not None
        if isinstance(event, GaussianEvent):
            require(positive(event.sensitivity) and positive(event.sigma), "an event is not positive")
        else:
            require(positive(event.eta) and 1 <= event.rounds < 2**20, "an event is not positive")
        require(charge.choice == isinstance(event, ExponentialEvent), "an event is not of its kind")
        require(charge.weighted == event.weighted, "an event does not say who pays in full as its plan does")
        require(math.isclose(event.mu, charge.mu, rel_tol=1e-6), "its charges are not its plan's")
    _check_outliers(events, plan)


def _check_outliers(events: tuple[Event, ...], plan: Plan) -> None:
    """The ceiling keeps the requested outlier ε. Trainings are skipped where dp-accounting is not installed."""
    asked, loss = plan.settings.outlier_epsilon, Loss.of(events)
    if asked is None or (loss.trainings and not pld.available()):
        return
    kept = float(loss.epsilon_at(plan.ceiling, plan.delta)) <= asked * (1 + 1e-6)
    require(kept, "its ceiling does not keep the asked outlier epsilon")


def _check_training(event: SampledEvent, loss: Loss, budget: Budget) -> None:
    """A training is within range and costs what the budget says, if dp-accounting is installed."""
    require(positive(event.sensitivity) and positive(event.sigma), "an event is not positive")
    possible = pld.is_training(rate=event.rate, noise=event.noise, rounds=event.rounds)
    within = budget.delta >= pld.SMALLEST_DELTA and budget.epsilon <= 101
    require(possible and within, "its training is out of range")
    # No training costs less than this Gaussian by much: one far beyond the budget is not worked out at all.
    gaussian = event.rate * math.sqrt(event.rounds) / event.noise
    require(gaussian <= 3 * budget.mu + 1, "its training does not cost what its budget says")
    if pld.available():
        epsilon, least = loss.epsilon(budget.delta), event.noise <= pld.LEAST_NOISE * (1 + 1e-6)
        low = 0.0 if least else 0.98 * budget.epsilon
        require(low <= epsilon <= budget.epsilon * (1 + 1e-6), "its training does not cost what its budget says")


def _check_kernels(events: tuple[Event, ...], stage: StageOne, fit: Fit | None = None) -> None:
    """No event claims a smaller sensitivity than its function has, fewer rounds, or weights where there are none.

    Without a fit, only the measurements of stage 1 are checked.
    """
    kernels: dict[str, Any] = {}
    choices: dict[str, Made] = {}
    for name, kernel in stage.kernels().items():
        if isinstance(kernel, Chosen):
            choices[name] = Made(len(kernel.chosen), kernel.choice.weighted)
        else:
            kernels[name] = kernel
    if fit is None:
        events = tuple(event for event in events if event.name in kernels.keys() | choices.keys())
        require(not any(isinstance(event, SampledEvent) for event in events), "an event is not of its kind")
    else:
        kernels |= fit.kernels(choices=False)
        choices |= fit.choices()
    if not any(event.name == COUNT for event in events):
        del kernels[COUNT]  # the number of records was declared
    sums = {event.name for event in events if not isinstance(event, ExponentialEvent)}
    require(sums == kernels.keys(), "a measurement is missing, or not of its kind")
    require({event.name for event in events} - sums == choices.keys(), "a choice is missing, or not of its kind")
    for event in events:
        if isinstance(event, ExponentialEvent):
            weighted = choices[event.name].weighted
            require(event.rounds >= choices[event.name].made, "a choice claims fewer rounds than were made")
        else:
            weighted = kernels[event.name].weighted
            least = kernels[event.name].sensitivity * stage.schema.rows_per_person
            require(event.sensitivity >= least, "it claims a smaller sensitivity than it has")
        require(event.weighted <= weighted, "it claims weights where every record pays in full")


def _stage(file: ReleaseFile, plan: Plan, arrays: Arrays, *, with_looks: bool = True) -> StageOne:
    schema, declared = plan.schema, plan.public_rows
    require(positive(file.rows) and file.rows < 2**53, "its number of rows is not positive")
    require(declared is None or file.rows == declared, "its number of rows is not the declared one")
    require((COUNT in plan.charges) == (declared is None), "its number of rows has no event")
    require(COARSE in plan.charges, "its histograms were not measured")
    require((SCORES in plan.charges) == (file.threshold is not None), "its threshold has no event")
    sigma = _sigma(file.events, COARSE)
    bins = first_cells(schema, rows=file.rows, sigma=sigma)
    counts = ints(arrays["coarse_counts"], sum(b.count for b in bins))
    coarse = Histograms(bins, counts, sigma, file.rows)
    borrowed = plan.borrowed
    if borrowed is None:
        score = plan.scorer.load(coarse, schema.label, arrays)
        threshold = _threshold(file, plan, arrays, schema.label_column)
        score = with_threshold(score, threshold, schema.label_column)
    else:
        require(plan.scorer == borrowed.scorer, "its scores are not those that came from elsewhere")
        score, threshold = borrowed.score, borrowed.threshold
        require(plan.outlier_fraction == threshold.fraction, "its threshold's fraction is not its plan's")
    table = ints(arrays["weights"])
    require(0 < len(table) <= 2**16 and table.min() >= 0 and table.max() <= FULL, "a weight is not in 0..1")
    require(bool(np.all(np.diff(table) <= 0)), "its weights rise with the score")
    for value in (file.weights_start, threshold.value if threshold else 0):
        require(abs(value) <= 2**50, "a score is out of range")
    kept, again = WeightFunction(file.weights_start, table), weights_of(plan, score, threshold)
    require(kept.is_about(again), "its weights do not follow from its rule, threshold and scores")
    weights = kept.or_larger(again)  # a last unit that is missing makes nobody's loss smaller
    looks: dict[str, Look] = {}
    histograms = coarse
    for name in LOOKS:
        if name in plan.charges and with_looks:
            look = load_look(name, histograms, arrays, sigma=_sigma(file.events, name), unit=FULL)
            looks[name], histograms = look, coarse.refined_by([*looks.values(), look], weighted=weights.weighted)
    return StageOne(schema, coarse, score, threshold, weights, looks, histograms, borrowed)


def _sigma(events: tuple[Event, ...], name: str) -> float:
    (event,) = [event for event in events if event.name == name]
    require(isinstance(event, GaussianEvent), "an event is not of its kind")
    assert isinstance(event, GaussianEvent)
    return event.sigma


def _threshold(described: ReleaseFile, plan: Plan, arrays: Arrays, label: Discrete | None) -> Threshold | None:
    file = described.threshold
    if file is None:
        return None
    edges = ints(arrays["threshold_edges"], most=2**50)
    require(0 < len(edges) < 2**20 and bool(np.all(np.diff(edges) > 0)), "its score bins are not in order")
    known = 0 < file.fraction < 1 and 0 <= file.fraction_error < math.inf
    require(known, "its threshold's fraction is out of range")
    shifts = None
    if "threshold_shifts" in arrays:
        require(label is not None, "its threshold is one by label, and there is none")
        assert label is not None
        shifts = ints(arrays["threshold_shifts"], rows_of(label), most=2**50)
    rows = 1 if shifts is None else len(shifts)
    counts = ints(arrays["threshold_counts"], rows * (len(edges) + 1)).reshape(rows, -1)
    threshold = Threshold(file.value, edges, counts, file.fraction, file.fraction_error, shifts)
    require(file.fraction == plan.outlier_fraction, "its threshold's fraction is not its plan's")
    sigma = _sigma(described.events, SCORES)
    followed = follows(threshold, rows=described.rows, sigma=sigma, label=label)
    require(followed, "its threshold does not follow from its histogram of the scores")
    return threshold
