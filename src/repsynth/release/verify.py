"""Read a release folder and check every part of it: a release is untrusted input.

No path is read from the release, every size is bounded, and nothing is used before it is checked against the
schema in the release. The charges must follow from the settings, the events from the charges, and the scores from
the histograms.
"""

import hashlib
import math
import re
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Arrays
from repsynth.columns.adaptive_histogram import COARSE, Histograms, Refinement, load_look
from repsynth.columns.cells import first_cells
from repsynth.errors import ConfigError, ReleaseError, RepsynthError, has_controls, shown
from repsynth.mechanism.kernels import Chosen
from repsynth.models.base import Made, ModelRelease, StoredModel
from repsynth.planning.plan import Plan, make_charges
from repsynth.planning.settings import Settings
from repsynth.privacy import pld
from repsynth.privacy.budget import Budget, make_budget
from repsynth.privacy.events import Event, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.privacy.gaussian import compose
from repsynth.privacy.loss import Loss
from repsynth.release.release import Release
from repsynth.release.store import BORROWED, FORMAT, PlanFile, ReleaseFile, describe, release_files, score_arrays
from repsynth.schema import Discrete, Schema, schema_from_dict
from repsynth.scoring.stage import COUNT, LOOKS, SCORES, StageOne, weights_of
from repsynth.scoring.threshold import Threshold, or_safer, rows_of, with_threshold
from repsynth.scoring.transfer import PriorScores
from repsynth.scoring.weights import FULL, RULES, Rule, WeightFunction, fault_of
from repsynth.storage import ints, positive, require

_CLOSE = 1e-6
_MOST_BYTES = 2**28
_MISFITS = (
    *(LookupError, ValueError, TypeError, ArithmeticError, AttributeError, MemoryError, RecursionError),
    msgspec.MsgspecError,
)


def load_release(folder: Path) -> Release:
    described = _parse(folder, _read(folder / "release.json"))
    packed = _read(folder / "arrays.npz")
    if hashlib.sha256(packed).hexdigest() != described.get("arrays_sha256"):
        _damaged(folder, "arrays.npz is not the file that release.json describes")
    arrays = _read_arrays(folder, packed)
    try:
        return _assemble(msgspec.convert(described, ReleaseFile), arrays)
    except ReleaseError as error:
        _damaged(folder, str(error))
    except RepsynthError as error:
        _damaged(folder, f"its plan or schema is not valid: {error}")
    except msgspec.ValidationError as error:
        _damaged(folder, f"release.json: {error}")
    except _MISFITS:
        _damaged(folder, "its parts do not fit each other")


def borrow(source: Release | str | Path) -> PriorScores:
    """Take the scores and the threshold of a release, or of a release folder after checking all of it.

    >>> from repsynth import datasets, synthesize
    >>> sim = datasets.load("sim")
    >>> borrowed = borrow(synthesize(sim.table, sim.schema, epsilon=1.0))
    >>> later = synthesize(sim.table, sim.schema, epsilon=1.0, scores_from=borrowed, model="naive-bayes")
    >>> [event.name for event in later.events]
    ['count', 'coarse histograms', 'refined histograms', 'fine histograms', 'sums']
    """
    if not isinstance(source, Release | str | Path):
        raise ConfigError("scores can be taken from a Release or a release folder only; give one of them")
    if isinstance(source, Release):
        release, text = source, release_files(source)[0]
    else:
        release, text = load_release(Path(source)), (Path(source) / "release.json").read_bytes()
    if release.stage.borrowed is not None:
        raise ConfigError("the scores of that release came from another one; take them from there")
    if release.threshold is None:
        raise ConfigError(
            "that release has no threshold, since all its records have the same weight; use another one"
        )
    described = msgspec.to_builtins(describe(release, "")) | {"fit": {}}
    return _scores_of(release.stage, release.plan, release.events, hashlib.sha256(text).hexdigest(), described)


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():  # reading a pipe or a device could block for ever
            raise OSError
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        raise ReleaseError(
            f"{shown(path)}: cannot be read; give the folder that synthesize --release wrote"
        ) from None
    if len(content) > _MOST_BYTES:
        raise ReleaseError(f"{shown(path)}: larger than 256 MB; this is not a release of this version")
    return content


def _parse(folder: Path, text: bytes) -> dict[str, Any]:
    try:
        described = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        _damaged(folder, "release.json: it is cut off or not JSON")
    if has_controls(described):
        _damaged(folder, "release.json: a name or a value has a control character")
    version = described.get("format")
    if isinstance(version, int) and version != FORMAT:
        raise ReleaseError(
            f"{shown(folder)}: written by another version of repsynth (format {version}); this one reads format "
            f"{FORMAT}: read it with that version, or make it again"
        )
    return described


def _read_arrays(folder: Path, packed: bytes) -> Arrays:
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
                _damaged(folder, "its arrays are larger than 256 MB")
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in archive.infolist()}
    except ReleaseError:
        raise
    except Exception:  # a hostile archive or header can raise anything
        _damaged(folder, "arrays.npz cannot be read")


def _array(content: bytes) -> NDArray[Any]:
    """Return a one-dimensional array. Its header is checked against its length before memory is allocated."""
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    data = content[file.tell() :]
    if len(shape) != 1 or dtype not in (np.int64, np.float64) or len(data) != shape[0] * 8:
        raise ValueError
    return np.frombuffer(data, dtype=dtype)


def _damaged(folder: Path, detail: str) -> NoReturn:
    raise ReleaseError(f"{shown(folder)}: the release is damaged: {detail}; get it again from its source")


def _assemble(file: ReleaseFile, arrays: Arrays) -> Release:
    """Make the release from its parts; a RepsynthError if they contradict each other."""
    require(file.format == FORMAT, "its format is not known")
    schema = _schema(file.schema)
    plan = replace(_plan(file.plan, schema), borrowed=_borrowed(file, schema, arrays))
    _check_events(file.events, plan)
    _check_charges(plan, scored=file.scores_from is None)
    stage = _stage(file, plan, arrays)
    measured = stage.kernels()
    gaussian = [e for e in file.events if isinstance(e, GaussianEvent) and e.name not in measured]
    sigmas = {event.name: event.sigma for event in gaussian}
    fit = plan.model.load(StoredModel(stage, plan, file.fit, arrays, sigmas))
    _check_kernels(file.events, stage, fit)
    return Release(
        plan=plan, kind=file.kind, stage=stage, fit=fit, events=file.events, publishable=file.publishable
    )


def _schema(described: dict[str, Any]) -> Schema:
    schema = schema_from_dict(described)
    declared = schema.person is not None or schema.one_row_per_person
    require(declared, "its schema does not declare the unit of privacy")
    return schema


def _plan(file: PlanFile, schema: Schema) -> Plan:
    settings = Settings.load(file.settings)
    charges = {charge.name: charge for charge in file.charges}
    require(len(charges) == len(file.charges), "a charge is there twice")
    require(all(positive(charge.mu) for charge in file.charges), "a charge is not positive")
    fits = all(charge.rows == schema.rows_per_person for charge in file.charges)
    require(fits, "its charges are for other numbers of rows per person than its schema")
    require(file.budget.epsilon is None or file.training is not None, "its charges do not match its budget")
    budget = make_budget(mu=file.budget.mu, epsilon=file.budget.epsilon, delta=file.budget.delta)
    require(settings.delta in (None, budget.delta), "its budget does not match its settings")
    asked = make_budget(epsilon=settings.epsilon, mu=settings.mu, rho=settings.rho, delta=budget.delta)
    require(math.isclose(asked.mu, budget.mu, rel_tol=_CLOSE), "its budget does not match its settings")
    charged = compose(c.mu for c in file.charges)
    require(charged <= budget.mu * (1 + 1e-9), "its charges exceed its budget")
    require(file.training is not None or charged >= 0.99 * budget.mu, "its charges do not match its budget")
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


def _check_charges(plan: Plan, *, scored: bool) -> None:
    """Check each charge, not only their sum: the unweighted charges decide what an outlier loses."""
    again = make_charges(plan.schema, plan.settings, plan.budget, scored=scored)
    same = again.keys() == plan.charges.keys() and all(
        (own.weighted, own.choice) == (charge.weighted, charge.choice)
        and math.isclose(own.mu, charge.mu, rel_tol=_CLOSE)
        for own, charge in ((plan.charges[name], charge) for name, charge in again.items())
    )
    require(same, "its charges do not match its settings")


def _check_rule(rule: Rule, settings: Settings, ceiling: float) -> None:
    """Check that the rule is that of the settings, with the ceiling if an outlier ε was requested."""
    asked = settings.weights
    require(asked is not None, "its settings name no weights")
    assert asked is not None
    same = rule == asked and ceiling == 1 if settings.outlier_epsilon is None else rule == asked.at_most(ceiling)
    require(same, "its weight rule does not match its settings")
    why = fault_of(rule)
    require(why is None, f"its weight rule {why}")


def _check_events(events: tuple[Event, ...], plan: Plan) -> None:
    """Check that the events are those that were planned."""
    require([event.name for event in events] == plan.steps, "its events do not fit its plan")
    for event in events:
        if isinstance(event, SampledEvent):
            require(event == plan.training, "its training is not the planned one")
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
        require(charge.weighted == event.weighted, "an event is weighted and its charge is not, or the reverse")
        require(math.isclose(event.mu, charge.mu, rel_tol=_CLOSE), "its events do not match its charges")
    _check_outliers(events, plan)


def _check_outliers(events: tuple[Event, ...], plan: Plan) -> None:
    """Check that the ceiling keeps the requested outlier ε; a training needs dp-accounting for that."""
    asked = plan.settings.outlier_epsilon
    loss = Loss.of(events).after(Loss.of_schema(plan.schema), plan.delta)
    if asked is None or (loss.trainings and not pld.available()):
        return
    kept = float(loss.epsilon_at(plan.ceiling, plan.delta)) <= asked * (1 + 1e-6)
    require(kept, "its ceiling does not keep the requested outlier epsilon")


def _check_training(event: SampledEvent, loss: Loss, budget: Budget) -> None:
    """Check that a training is within range and, if dp-accounting is installed, that it costs the budget."""
    require(positive(event.sensitivity) and positive(event.sigma), "an event is not positive")
    possible = pld.is_training(rate=event.rate, noise=event.noise, rounds=event.rounds)
    within = budget.delta >= pld.SMALLEST_DELTA and budget.epsilon <= 101
    require(possible and within, "its training is out of range")
    # A training costs about as much as this Gaussian, or more. Far above the budget, skip the exact cost.
    gaussian = event.rate * math.sqrt(event.rounds) / event.noise
    require(gaussian <= 3 * budget.mu + 1, "its training does not cost what its budget says")
    if pld.available():
        epsilon, least = loss.epsilon(budget.delta), event.noise <= pld.LEAST_NOISE * (1 + 1e-6)
        low = 0.0 if least else 0.98 * budget.epsilon
        require(low <= epsilon <= budget.epsilon * (1 + 1e-6), "its training does not cost what its budget says")


def _check_kernels(events: tuple[Event, ...], stage: StageOne, fit: ModelRelease | None = None) -> None:
    """Check the events against the functions that were measured.

    An event must not claim a smaller sensitivity than its function has, fewer rounds than were run, or weights for
    an unweighted function. Without a fit, only stage 1 is checked.
    """
    measured = stage.kernels()
    choices = {
        name: Made(len(kernel.chosen), kernel.choice.weighted)
        for name, kernel in measured.items()
        if isinstance(kernel, Chosen)
    }
    kernels: dict[str, Any] = {name: kernel for name, kernel in measured.items() if name not in choices}
    if fit is None:
        events = tuple(event for event in events if event.name in measured)
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
        require(event.weighted <= weighted, "it claims weights for an unweighted measurement")


def _stage(file: ReleaseFile, plan: Plan, arrays: Arrays, *, with_looks: bool = True) -> StageOne:
    schema, declared, borrowed = plan.schema, plan.public_rows, plan.borrowed
    require(positive(file.rows) and file.rows < 2**53, "its number of rows is not positive")
    require(declared is None or file.rows == declared, "its number of rows is not the declared one")
    require((COUNT in plan.charges) == (declared is None), "its number of rows has no event")
    require(COARSE in plan.charges, "its histograms were not measured")
    require((SCORES in plan.charges) == (file.threshold is not None), "its threshold has no event")
    sigma = _sigma(file.events, COARSE)
    bins = first_cells(schema, rows=file.rows, sigma=sigma)
    counts = ints(arrays["coarse_counts"], sum(b.count for b in bins))
    coarse = Histograms(bins, counts, sigma, file.rows)
    sigmas = {event.name: event.sigma for event in file.events if isinstance(event, GaussianEvent)}
    if borrowed is None:
        score = plan.scorer.load(coarse, schema.label, arrays, sigmas)
        threshold = _threshold(file, plan, arrays, schema.label_column)
        score = with_threshold(score, threshold, schema.label_column)
    else:
        require(plan.scorer == borrowed.scorer, "its scores are not those of the earlier release")
        score, threshold = borrowed.score, borrowed.threshold
        require(plan.outlier_fraction == threshold.fraction, "its threshold's fraction is not the planned one")
    table = ints(arrays["weights"])
    require(0 < len(table) <= 2**16 and table.min() >= 0 and table.max() <= FULL, "a weight is not in 0..1")
    require(bool(np.all(np.diff(table) <= 0)), "its weights rise with the score")
    for value in (file.weights_start, threshold.value if threshold else 0):
        require(abs(value) <= 2**50, "a score is out of range")
    kept, again = WeightFunction(file.weights_start, table), weights_of(plan, score, threshold)
    require(kept.is_about(again), "its weights do not follow from its rule, threshold and scores")
    weights = kept.or_larger(again)  # so that no stated loss is too small
    looks: dict[str, Refinement] = {}
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
        require(label is not None, "its thresholds are by label, but its schema has no label")
        assert label is not None
        shifts = ints(arrays["threshold_shifts"], rows_of(label), most=2**50)
    rows = 1 if shifts is None else len(shifts)
    counts = ints(arrays["threshold_counts"], rows * (len(edges) + 1)).reshape(rows, -1)
    threshold = Threshold(file.value, edges, counts, file.fraction, file.fraction_error, shifts)
    require(file.fraction == plan.outlier_fraction, "its threshold's fraction is not the planned one")
    sigma = _sigma(described.events, SCORES)
    safe = or_safer(threshold, rows=described.rows, sigma=sigma, label=label)
    require(safe is not None, "its threshold does not follow from its histogram of the scores")
    return safe


def _borrowed(file: ReleaseFile, schema: Schema, arrays: Arrays) -> PriorScores | None:
    """Check the release that the scores came from, except for its model, which is not stored."""
    if file.scores_from is None:
        return None
    digest, theirs = file.scores_from.digest, file.scores_from.described
    require(re.fullmatch("[0-9a-f]{64}", digest) is not None, "it does not say where its scores came from")
    require(theirs.format == FORMAT and theirs.scores_from is None, "the release of its scores borrowed them, too")
    require(theirs.fit == {} and theirs.threshold is not None, "the release of its scores has no threshold")
    plan = _plan(theirs.plan, _schema(theirs.schema))
    _check_events(theirs.events, plan)
    _check_charges(plan, scored=True)
    own = {name.removeprefix(BORROWED): array for name, array in arrays.items() if name.startswith(BORROWED)}
    stage = _stage(theirs, plan, own, with_looks=False)
    _check_kernels(theirs.events, stage)
    borrowed = _scores_of(stage, plan, theirs.events, digest, msgspec.to_builtins(theirs))
    borrowed.check_schema(schema)
    require(file.threshold is None, "it has both its own threshold and one of an earlier release")
    private = theirs.publishable or not file.publishable
    require(private, "it claims to be publishable, but the release of its scores is not")
    return borrowed


def _scores_of(
    stage: StageOne, plan: Plan, events: tuple[Event, ...], digest: str, described: dict[str, Any]
) -> PriorScores:
    assert stage.threshold is not None
    return PriorScores(
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
        arrays=score_arrays(stage),
    )
