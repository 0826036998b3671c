"""The release folder: `release.json` and `arrays.npz`, checked in every part when read.

A release may come from a stranger, so it is data, never code: no pickle, no path taken from inside, a
bound on every size, and nothing is used before it fits the schema that comes with it.
"""

import hashlib
import importlib.util
import math
import os
import shutil
import tempfile
import zipfile
import zlib
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from repsynth import __version__
from repsynth.budget import Budget
from repsynth.cells import Cells
from repsynth.cost import LEAST_NOISE, SMALLEST_DELTA, STAGE_ONE, Cost, is_training
from repsynth.decode import DTYPE, Layout, decode
from repsynth.encode import Records
from repsynth.errors import ReleaseError, RepsynthError
from repsynth.marginals import Marginals, OneWay
from repsynth.model_files import (
    SumsFile,
    TablesFile,
    describe_sums,
    describe_tables,
    model_arrays,
    read_sums,
    read_tables,
    read_trained,
)
from repsynth.models.stages import Measured, StageOne, Weighted
from repsynth.noise import Event, ExponentialEvent, GaussianEvent, SampledEvent
from repsynth.plan import MODELS, Settings, make_charges, planned_rounds
from repsynth.release import Release
from repsynth.schema import Discrete, Numeric, Schema, schema_from_dict, schema_to_dict
from repsynth.score import Score, random_salt
from repsynth.strict import floats, ints, positive, require
from repsynth.threshold import Threshold
from repsynth.weigh import FULL, RULES, HingeExp, Random, Targeted, WeightFunction

FORMAT = 3
_MOST_BYTES = 2**28


class GaussianFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gaussian"):
    """One measurement: its name, L2 sensitivity and noise."""

    name: str
    sensitivity: float
    sigma: float


class ExponentialFile(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="exponential"
):
    """One choice by the exponential mechanism: its name, η of a round, and how many rounds it may take."""

    name: str
    eta: float
    rounds: int


class SampledFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sampled"):
    """A training: its name, the L2 sensitivity and noise of a round, who takes part in one, and how many."""

    name: str
    sensitivity: float
    sigma: float
    rate: float
    rounds: int


class SettingsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of the run."""

    model: str
    mu: float
    delta: float
    weights: str
    gamma: float | None
    outlier_weight: float | None
    outlier_epsilon: float | None
    outlier_share: float
    score_share: float
    threshold_share: float
    size_share: float
    public_rows: int | None
    max_model_mb: int
    epochs: float = Settings.epochs
    sampling_rate: float = Settings.sampling_rate


class ThresholdFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The threshold and how well its share is known."""

    value: int
    share: float
    share_error: float


class ReleaseFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`release.json`."""

    format: int
    repsynth: str
    private: bool
    schema: dict[str, Any]
    layout: Layout
    settings: SettingsFile
    rows: float
    events: tuple[GaussianFile | ExponentialFile | SampledFile, ...]
    threshold: ThresholdFile | None
    weights_start: int
    sums: SumsFile | None
    tables: tuple[TablesFile, ...]
    arrays_sha256: str


def save_release(release: Release, folder: Path) -> Path:
    """Write the folder beside its place, then move it there: it is whole or it is not."""
    if folder.exists():
        raise ReleaseError(f"{folder}: already exists; a release is never overwritten, choose another folder")
    arrays = _arrays(release)
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    packed = buffer.getvalue()
    text = msgspec.json.format(msgspec.json.encode(_describe(release, hashlib.sha256(packed).hexdigest())))
    beside: Path | None = None
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        beside.chmod(0o755)
        (beside / "release.json").write_bytes(text + b"\n")
        (beside / "arrays.npz").write_bytes(packed)
        os.rename(beside, folder)
    except OSError as error:
        if beside is not None:
            shutil.rmtree(beside, ignore_errors=True)
        raise ReleaseError(f"{folder}: cannot be written ({error.strerror}); nothing was left behind") from None
    return folder


def load_release(folder: Path) -> Release:
    """Read and check a release folder."""
    text = _read(folder / "release.json")
    described = _parse(folder, text)
    packed = _read(folder / "arrays.npz")
    if hashlib.sha256(packed).hexdigest() != described.arrays_sha256:
        _damaged(folder, "arrays.npz is not the file that release.json describes")
    arrays = read_arrays(folder, packed)
    try:
        return _assemble(described, arrays)
    except ReleaseError as error:
        _damaged(folder, str(error))
    except RepsynthError as error:
        _damaged(folder, f"its settings or schema are not valid: {error}")
    except (KeyError, ValueError, TypeError, IndexError, OverflowError):
        _damaged(folder, "its parts do not fit each other")


def release_json_schema() -> dict[str, Any]:
    """The JSON Schema of `release.json`."""
    return msgspec.json.schema(ReleaseFile)


def _describe(release: Release, digest: str) -> ReleaseFile:
    settings, threshold = release.settings, release.threshold
    rule = settings.rule
    return ReleaseFile(
        format=FORMAT,
        repsynth=__version__,
        private=release.private,
        schema=schema_to_dict(release.schema),
        layout=release.layout,
        settings=SettingsFile(
            model=settings.model,
            mu=settings.budget.mu,
            delta=settings.budget.delta,
            weights=rule.name,
            gamma=rule.gamma if isinstance(rule, HingeExp) else None,
            outlier_weight=rule.outlier_weight if isinstance(rule, Targeted | Random) else None,
            outlier_epsilon=settings.outlier_epsilon,
            outlier_share=settings.outlier_share,
            score_share=settings.score_share,
            threshold_share=settings.threshold_share,
            size_share=settings.size_share,
            public_rows=settings.public_rows,
            max_model_mb=settings.max_model_mb,
            epochs=settings.epochs,
            sampling_rate=settings.sampling_rate,
        ),
        rows=release.rows,
        events=tuple(_event_file(event) for event in release.events),
        threshold=ThresholdFile(threshold.value, threshold.share, threshold.share_error) if threshold else None,
        weights_start=release.weights.start,
        sums=describe_sums(release),
        tables=describe_tables(release),
        arrays_sha256=digest,
    )


def _event_file(event: Event) -> GaussianFile | ExponentialFile | SampledFile:
    if isinstance(event, GaussianEvent):
        return GaussianFile(event.name, event.sensitivity, event.sigma)
    if isinstance(event, SampledEvent):
        return SampledFile(event.name, event.sensitivity, event.sigma, event.rate, event.rounds)
    return ExponentialFile(event.name, event.eta, event.rounds)


def _arrays(release: Release) -> dict[str, NDArray[Any]]:
    """Everything that is long, under fixed names."""
    arrays: dict[str, NDArray[Any]] = {
        "marginals": release.marginals.counts,
        "weights": release.weights.table,
        "score_centre": np.array(release.score.centre, dtype=np.float64),
        "score_scale": np.array(release.score.scale, dtype=np.float64),
    }
    if release.threshold:
        arrays["threshold_edges"] = release.threshold.edges
        arrays["threshold_counts"] = release.threshold.counts
    for i, cells in enumerate(release.marginals.cells):
        if cells.starts is not None:
            arrays[f"starts_{i}"] = cells.starts
    for i, rarity in enumerate(release.score.rarity):
        arrays[f"rarity_{i}"] = rarity
    return arrays | model_arrays(release)


def _assemble(described: ReleaseFile, arrays: dict[str, NDArray[Any]]) -> Release:
    """The release from its checked parts; ReleaseError where they contradict each other."""
    schema = schema_from_dict(described.schema)
    settings = _settings(described.settings)
    events = tuple(_event(file) for file in described.events)
    names = [event.name for event in events]
    charges, training = make_charges(schema, settings), planned_rounds(settings)
    planned = [*charges, *([training.name] if training else [])]
    require(planned == names, "its events do not fit its settings")
    for event in events:
        if isinstance(event, SampledEvent):
            require(training is not None and event.name == training.name, "an event is not of its kind")
            _check_training(event, training, Cost.of(events), settings)
            continue
        chosen = isinstance(event, ExponentialEvent)
        require(chosen == event.name.startswith("structure"), "an event is not of its kind")
        fits = event.name in charges and math.isclose(event.mu, charges[event.name], rel_tol=1e-6)
        require(fits, "its charges are not its plan's")
    require(("threshold" in names) == (described.threshold is not None), "its threshold has no event")
    require(positive(described.rows) and described.rows < 2**53, "its number of rows is not positive")
    _check_layout(described.layout, schema)

    cells = tuple(_cells(i, column, arrays) for i, column in enumerate(schema.learned))
    counts = ints(arrays["marginals"], sum(c.count for c in cells))
    gaussian = {event.name: event for event in events if isinstance(event, GaussianEvent)}
    require("score" in gaussian, "its histograms were not measured")
    sigma = gaussian["score"].sigma
    marginals = Marginals(cells, counts, sigma, described.rows)

    scored = tuple(c for c in cells if c.column.name != schema.label)
    score = Score(
        cells=scored,
        rarity=tuple(ints(arrays[f"rarity_{i}"], c.count, most=2**40) for i, c in enumerate(scored)),
        centre=floats(arrays["score_centre"], len(scored)),
        scale=floats(arrays["score_scale"], len(scored), positive=True, infinite=True),
        salt=random_salt(marginals) if isinstance(settings.rule, Random) else None,
    )
    table = ints(arrays["weights"])
    require(0 < len(table) <= 2**16 and table.min() >= 0 and table.max() <= FULL, "a weight is not in 0..1")
    require(bool(np.all(np.diff(table) <= 0)), "its weights rise with the score")
    threshold = _threshold(described.threshold, arrays)
    for score_value in (described.weights_start, threshold.value if threshold else 0):
        require(abs(score_value) <= 2**50, "a score is out of range")
    stage = StageOne(schema, marginals, score, threshold, WeightFunction(described.weights_start, table))
    statistics: list[tuple[Weighted, NDArray[np.int64]]] = []
    trained = None
    if settings.model == "neural":
        require(described.sums is None and not described.tables, "its parts are not its model's")
        trained = read_trained(stage, arrays)
    elif settings.model == "naive-bayes":
        require(described.sums is not None and not described.tables, "its parts are not its model's")
        assert described.sums is not None
        statistics = [read_sums(described.sums, stage, arrays)]
    else:
        require(described.sums is None and len(described.tables) > 0, "its parts are not its model's")
        statistics = list(read_tables(described.tables, stage, arrays))
    sensitivities = {"size": 1.0, "score": OneWay(cells).sensitivity, "threshold": 1.0}
    sensitivities |= {statistic.name: statistic.sensitivity for statistic, _ in statistics}
    require(set(sensitivities) >= set(gaussian), "a measurement is missing")
    second = [name for name in gaussian if name not in STAGE_ONE]
    require([statistic.name for statistic, _ in statistics] == second, "its measurements are out of order")
    for name, event in gaussian.items():
        require(event.sensitivity >= sensitivities[name], "it claims a smaller sensitivity than it has")
    declared = settings.public_rows
    require(declared is None or described.rows == declared, "its number of rows is not the declared one")
    return Release(
        stage=stage,
        layout=described.layout,
        settings=settings,
        events=events,
        measured=tuple(Measured(s, noisy, gaussian[s.name].sigma) for s, noisy in statistics),
        trained=trained,
        private=described.private,
    )


def _check_training(event: SampledEvent, planned: SampledEvent | None, cost: Cost, settings: Settings) -> None:
    """A training is the planned one, and costs what the budget says as far as that can be worked out here."""
    assert planned is not None
    same = (event.rate, event.rounds, event.sensitivity) == (planned.rate, planned.rounds, planned.sensitivity)
    require(same, "its training is not its plan's")
    possible = is_training(rate=event.rate, noise=event.noise, rounds=event.rounds)
    budget = settings.budget
    require(possible and budget.delta >= SMALLEST_DELTA and budget.epsilon <= 101, "its training is out of range")
    if importlib.util.find_spec("dp_accounting") is not None:
        epsilon, least = cost.epsilon(budget.delta), event.noise <= LEAST_NOISE * (1 + 1e-6)
        low = 0.0 if least else 0.98 * budget.epsilon
        require(low <= epsilon <= budget.epsilon * (1 + 1e-6), "its training does not cost what its budget says")


def _event(file: GaussianFile | ExponentialFile | SampledFile) -> Event:
    if not isinstance(file, ExponentialFile):
        require(positive(file.sensitivity) and positive(file.sigma), "an event is not positive")
    if isinstance(file, GaussianFile):
        return GaussianEvent(file.name, file.sensitivity, file.sigma)
    if isinstance(file, SampledFile):
        return SampledEvent(file.name, file.sensitivity, file.sigma, file.rate, file.rounds)
    require(positive(file.eta) and 1 <= file.rounds < 2**20, "an event is not positive")
    return ExponentialEvent(file.name, file.eta, file.rounds)


def _settings(file: SettingsFile) -> Settings:
    require(file.model in MODELS, f"it was made with the model '{file.model[:40]}', which this version lacks")
    require(file.weights in RULES, "its weights are of a kind that this version does not know")
    rule = RULES[file.weights]()
    if isinstance(rule, HingeExp) and file.gamma is not None:
        rule = HingeExp(file.gamma)
    if isinstance(rule, Targeted | Random) and file.outlier_weight is not None:
        rule = replace(rule, outlier_weight=file.outlier_weight)
    return Settings(
        budget=Budget.gaussian(mu=file.mu, delta=file.delta),
        model=file.model,
        rule=rule,
        outlier_epsilon=file.outlier_epsilon,
        outlier_share=file.outlier_share,
        score_share=file.score_share,
        threshold_share=file.threshold_share,
        size_share=file.size_share,
        public_rows=file.public_rows,
        max_model_mb=file.max_model_mb,
        epochs=file.epochs,
        sampling_rate=file.sampling_rate,
    )


def _threshold(file: ThresholdFile | None, arrays: dict[str, NDArray[Any]]) -> Threshold | None:
    if file is None:
        return None
    edges = ints(arrays["threshold_edges"], most=2**50)
    require(0 < len(edges) < 2**20 and bool(np.all(np.diff(edges) > 0)), "its score bins are not in order")
    counts = ints(arrays["threshold_counts"], len(edges) + 1)
    require(0 < file.share < 1 and 0 <= file.share_error < math.inf, "its threshold's share is out of range")
    return Threshold(file.value, edges, counts, file.share, file.share_error)


def _cells(i: int, column: Discrete | Numeric, arrays: dict[str, NDArray[Any]]) -> Cells:
    if isinstance(column, Discrete):
        return Cells.discrete(column)
    starts = ints(arrays[f"starts_{i}"], most=2**53)
    in_order = len(starts) > 0 and starts[0] == 0 and bool(np.all(np.diff(starts) > 0))
    require(in_order and starts[-1] <= column.steps, "its bins are not in order")
    return Cells(column, starts, len(starts) + 1)


def _check_layout(layout: Layout, schema: Schema) -> None:
    names = [stored.name for stored in layout.columns]
    require(sorted(names) == sorted(c.name for c in schema.columns), "its layout is not its schema's")
    for stored in layout.columns:
        require(stored.dtype is None or DTYPE.fullmatch(stored.dtype) is not None, "it names an unknown dtype")
    ends = {c.name: np.array([0, c.steps if isinstance(c, Numeric) else c.cells - 1]) for c in schema.learned}
    try:
        decode(Records(rows=2, codes=ends), schema, layout)
    except pa.ArrowException:
        require(False, "a column's type cannot hold its values")


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():  # a pipe or a device could be read for ever
            raise OSError
        with path.open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except OSError:
        raise ReleaseError(f"{path}: cannot be read; give the folder that synthesize --release wrote") from None
    if len(content) > _MOST_BYTES:
        raise ReleaseError(f"{path}: larger than 256 MB; this is not a release of this version")
    return content


def _parse(folder: Path, text: bytes) -> ReleaseFile:
    try:
        version = msgspec.json.decode(text, type=dict[str, Any]).get("format")
        if isinstance(version, int) and version > FORMAT:
            raise ReleaseError(
                f"{folder}: written by a newer version of repsynth (format {version}, this one reads "
                f"{FORMAT}); upgrade repsynth"
            )
        return msgspec.json.decode(text, type=ReleaseFile)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        detail = str(error) if isinstance(error, msgspec.ValidationError) else "it is cut off or not JSON"
        _damaged(folder, f"release.json: {detail}")


def read_arrays(folder: Path, packed: bytes) -> dict[str, NDArray[Any]]:
    """The plain arrays of a packed file."""
    try:
        with zipfile.ZipFile(BytesIO(packed)) as archive:
            if sum(info.file_size for info in archive.infolist()) > _MOST_BYTES:
                _damaged(folder, "its arrays are larger than 256 MB")
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in archive.infolist()}
    except (zipfile.BadZipFile, zlib.error, ValueError, OSError, EOFError, RuntimeError):
        _damaged(folder, "arrays.npz cannot be read")


def _array(content: bytes) -> NDArray[Any]:
    """One plain array; its header is checked against its length before anything is allocated."""
    file = BytesIO(content)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    data = content[file.tell() :]
    if len(shape) != 1 or dtype not in (np.int64, np.float64) or len(data) != shape[0] * 8:
        raise ValueError
    return np.frombuffer(data, dtype=dtype)


def _damaged(folder: Path, detail: str) -> NoReturn:
    raise ReleaseError(f"{folder}: the release is damaged: {detail}; get it again from its source")
