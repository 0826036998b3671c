"""The autoregressive network, trained by risk-weighted DP-SGD (REPS, instantiation B). The label comes first.

    log P(column j = g | earlier columns) = log p(g) + φⱼ(g) · (bⱼ + Σ_{i<j} Wᵢⱼ φᵢ(column i)) + const

Training starts from independent columns with the probabilities p of the released histograms. The features φ of a
column are a public basis computed from its histogram. They are smooth over the ranks of a numeric column. For rare
values they are shorter than indicators, so noise in the parameters does not affect rare values more than common
ones. Training spends the whole budget that stage 1 leaves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from msgspec import Meta

from repsynth.arrays import Arrays, Bools, Floats, Int32s, Ints
from repsynth.columns.groups import NONE, Groups, choose_groups, pairs_with_label, read_groups
from repsynth.columns.value_sampler import GOLDEN, Shape, shapes_of, values_of
from repsynth.errors import ConfigError
from repsynth.io.records import Records
from repsynth.models.base import Hooks, Made, Model, Resources, StoredModel, run_seconds
from repsynth.models.completing import Completed, draw_each, effective_size, with_given
from repsynth.privacy.events import RATE_UNIT, SampledEvent
from repsynth.schema import Numeric, Schema
from repsynth.storage import floats, require

if TYPE_CHECKING:
    from repsynth.mechanism.meter import Meter
    from repsynth.models.dp_sgd import Training
    from repsynth.scoring.stage import RunPlan, StageOne

GRADIENTS = "gradients"
CLIP_UNITS = 2**26
"""Grid units in the clip norm of one record. More units would make the noise slow to draw."""

MOST_FEATURES = 256
"""The largest number of features of all columns together, or two per column if that is more.

It is also the largest number of groups of a column: rarer values share a group.
"""
SMOOTH_FEATURES = 8
"""The largest number of features of a numeric column."""
LARGEST_PARAMETER = 1e6
"""The largest parameter that a release may have; those of trainings are far smaller."""

_BANDWIDTH = 0.2  # of the kernel over the ranks of a numeric column
_RARE = 0.1  # features of rarer values are only as long as that of a value of this probability
_OWN = 0.05  # part of a numeric value's feature that is independent of its neighbours
_BATCH = 2**13  # records drawn at once
_DRAWS = 2**5  # candidates for each record to complete


class Autoregressive(Model, frozen=True):
    """A network trained by DP-SGD; needs repsynth[autoregressive]."""

    name: ClassVar[str] = "autoregressive"
    score_share: ClassVar[float] = 0.1
    what: ClassVar[str] = "The network and the records take"
    purposes: ClassVar[Mapping[str, str]] = {GRADIENTS: "weighted clipped gradients"}
    epochs: Annotated[float, Meta(ge=0.01, le=10_000, description="how often a record takes part on average")] = (
        15.0
    )
    sampling_rate: Annotated[
        float, Meta(ge=0.001, le=1, description="chance that a record takes part in a round")
    ] = 0.05

    def check(self, schema: Schema, max_model_mb: int) -> None:
        """Refuse one column, a label with too many values, and a network that does not fit in memory."""
        if len(schema.learned) < 2:
            raise ConfigError(f"the model {self.name} needs two columns at least; use naive-bayes")
        if schema.label_column is not None and schema.label_column.size > MOST_FEATURES:
            most = f"a network takes {MOST_FEATURES} at most"
            raise ConfigError(f"the label has {schema.label_column.size:,} values, and {most}; use naive-bayes")
        needed = _megabytes(schema)
        if needed > max_model_mb:
            raise ConfigError(
                f"the network may take {needed:,.0f} MB, more than the {max_model_mb:,} MB allowed; "
                "allow more with --max-model-mb, drop columns, or use naive-bayes"
            )

    def require(self) -> None:
        """Refuse to start where the accounting library is missing."""
        from repsynth.privacy.pld import accounting_library

        accounting_library()

    def rounds(self) -> SampledEvent:
        """Return the rounds that the epochs take; their noise is not known yet."""
        from repsynth.privacy.pld import MOST_ROUNDS

        rate = max(1, round(self.sampling_rate * RATE_UNIT)) / RATE_UNIT
        rounds = max(1, round(self.epochs / rate))
        if rounds > MOST_ROUNDS:
            raise ConfigError(
                f"{self.epochs:g} epochs at a sampling rate of {self.sampling_rate:g} make {rounds:,} rounds; "
                f"at most {MOST_ROUNDS:,} are supported: raise the rate or lower the epochs"
            )
        return SampledEvent(GRADIENTS, float(CLIP_UNITS), math.inf, rate, rounds, weighted=True)

    def resources(self, plan: "RunPlan", rows: int) -> Resources:
        """Estimate memory and time, by times measured on one core.

        Each record of a round takes 0.35 µs per column and 0.1 ns per pair of features. Each round takes 1 ms, 0.1
        ms per column, and 1 µs per parameter for its noise. Accounting takes a second, and levels 50 ms per
        column.
        """
        assert plan.training is not None
        columns, features = len(plan.schema.learned), 0.7 * _most_features(plan.schema)  # rare values share groups
        megabytes = _megabytes(plan.schema) + rows * (columns + 1) * 4 / 2**20
        taking_part = plan.training.rate * rows
        of_record, of_round = 0.35e-6 * columns + 1e-10 * features**2, 1e-3 + 1e-4 * columns + 5e-7 * features**2
        seconds = plan.training.rounds * (of_round + taking_part * of_record)
        seconds += run_seconds(plan, rows, cell=2.5e-6) + 1.0 + 0.05 * columns
        noisy = _of_a_row(plan).noise / taking_part > 0.02
        warnings = ("rounds are mostly noise at this size; naive-bayes may do better",) if noisy else ()
        return Resources(megabytes, seconds, warnings)

    def measure(self, meter: "Meter", stage: "StageOne", plan: "RunPlan", hooks: Hooks) -> "NetworkRelease":
        from repsynth.models.dp_sgd import train

        assert plan.training is not None
        hooks.on_step(GRADIENTS)
        network = Network.of(stage)
        return NetworkRelease(network, _of_a_row(plan), train(meter, network, plan.training, hooks))

    def load(self, stored: StoredModel) -> "NetworkRelease":
        """Read a network from untrusted files. Features are stored because a basis is not unique."""
        require(not stored.described and stored.plan.training is not None, "its parts are not its model's")
        event = _of_a_row(stored.plan)
        require(event.sensitivity == CLIP_UNITS, "its training is out of range")
        stage, arrays = stored.stage, stored.arrays
        groups = tuple(read_groups(arrays[f"groups_{i}"], bins) for i, bins in enumerate(stage.histograms.bins))
        features = []
        for i, each in enumerate(groups):
            array = arrays[f"features_{i}"]
            require(len(array) % each.count == 0 and len(array) <= each.count**2, "its features do not fit")
            features.append(np.array(floats(array, len(array))).reshape(each.count, -1))
        require(sum(feature.shape[1] for feature in features) ** 2 <= 2**25, "its network is too large")
        network = Network(stage, groups, tuple(features))
        parameters = np.array(floats(arrays["parameters"], network.size))
        for values in (parameters, *features):
            require(float(np.abs(values).max(initial=0.0)) <= LARGEST_PARAMETER, "a parameter is out of range")
        return NetworkRelease(network, event, parameters)


def _of_a_row(plan: "RunPlan") -> SampledEvent:
    """Return the training in units of one row, where a person may have several."""
    assert plan.training is not None
    return plan.training.of_a_row(plan.schema.rows_per_person)


def _megabytes(schema: Schema) -> float:
    """Return the largest memory of a network: ten squares of its features."""
    return max(1.0, 10 * 8 * _most_features(schema) ** 2 / 2**20)


def _most_features(schema: Schema) -> int:
    """Return the largest number of features that a network of this schema can have."""
    most = max(2, MOST_FEATURES // max(len(schema.learned), 1))
    return sum(
        min(most, SMOOTH_FEATURES if isinstance(column, Numeric) else column.size + column.missing - 1)
        for column in schema.learned
    )


@dataclass(frozen=True)
class NetworkRelease:
    """The parameters that training released. `sampler` is the fitted model."""

    network: "Network"
    event: SampledEvent
    parameters: Floats

    def kernels(self, *, choices: bool = True) -> "dict[str, Training]":
        from repsynth.models.dp_sgd import Recipe, Training

        recipe = Recipe.of(self.network, self.event)
        return {GRADIENTS: Training(self.network, self.event, recipe, self.parameters)}

    def choices(self) -> dict[str, Made]:
        return {}

    def norms(self, records: Records) -> None:
        """Return None: the clipped gradients change from round to round."""

    def label_masses(self) -> None:
        """Return None: gradients do not sum weights."""

    def log_likelihoods(self, records: Records) -> Floats:
        """Return the log-likelihood of each record, for attacks with shadow runs."""
        return self.network.log_likelihoods(self.parameters, self.network.parts(records))

    @cached_property
    def sampler(self) -> "Autoregression":
        return Autoregression.fit(self.network, self.parameters)

    def dump(self) -> tuple[dict[str, Any], Arrays]:
        return {}, {
            "parameters": self.parameters,
            **{f"groups_{i}": groups.of_bin for i, groups in enumerate(self.network.groups)},
            **{f"features_{i}": features.ravel() for i, features in enumerate(self.network.features)},
        }


# --- the network ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Network:
    """The public structure of a network, without its parameters. Inputs are a constant 1 and the features."""

    stage: "StageOne"
    groups: tuple[Groups, ...]
    features: tuple[Floats, ...]  # (groups, features) of each column

    @classmethod
    def of(cls, stage: "StageOne") -> "Network":
        """Build a network for the released histograms."""
        chosen = choose_groups(stage.histograms, stage.schema.label, most=2 * SMOOTH_FEATURES, noise=np.inf)
        groups = tuple(_limit(stage, i, each) for i, each in enumerate(chosen))
        most = max(2, MOST_FEATURES // len(groups))
        return cls(stage, groups, tuple(_features(stage, i, each, most) for i, each in enumerate(groups)))

    def parts(self, records: Records) -> Int32s:
        """Return (records, columns + 1): the group in each column, in drawing order, and the weight."""
        weight = self.stage.weights.of(self.stage.score.of(records))
        columns = [*(self.groups[i].of(records) for i in self.order), weight]
        return np.stack(columns, axis=1).astype(np.int32)

    @cached_property
    def label(self) -> int | None:
        """The label's position among the columns."""
        column = self.stage.schema.label_column
        return None if column is None else self.stage.schema.learned.index(column)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The positions of the columns in drawing order."""
        first = [] if self.label is None else [self.label]
        return (*first, *(i for i in range(len(self.groups)) if i != self.label))

    @cached_property
    def ends(self) -> Ints:
        """0, then where each column's features end, in drawing order."""
        return np.cumsum([0, *(self.features[i].shape[1] for i in self.order)])

    @property
    def width(self) -> int:
        """The number of features."""
        return int(self.ends[-1])

    @cached_property
    def mask(self) -> Bools:
        """(inputs, features): biases, and couplings from earlier columns to later ones."""
        column = np.repeat(np.arange(len(self.order)), np.diff(self.ends))
        earlier: Bools = np.append(-1, column)[:, None] < column
        return earlier

    @property
    def size(self) -> int:
        """The number of parameters."""
        return int(self.mask.sum())

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """The released probabilities of each column's groups, all above 0."""
        return tuple(_probabilities(self.stage, i, groups) for i, groups in enumerate(self.groups))

    def unpack(self, parameters: Floats) -> Floats:
        """Return the couplings, (inputs, features); the first row holds the biases."""
        couplings = np.zeros(self.mask.shape)
        couplings[self.mask] = parameters
        return couplings

    def of_inputs(self, scales: Floats) -> Floats:
        """Return for each parameter the scale of the input that it multiplies."""
        return scales[np.nonzero(self.mask)[0]]

    def blank(self, records: int) -> Floats:
        """Return (records, inputs) before any column is known."""
        return np.eye(1, 1 + self.width).repeat(records, axis=0)

    def add(self, k: int, inputs: Floats, groups: Ints | Int32s) -> None:
        """Write the groups of the k-th column into the inputs."""
        inputs[:, 1:][:, slice(*self.ends[k : k + 2])] = (
            self.features[self.order[k]][np.maximum(groups, 0)] * (groups != NONE)[:, None]
        )

    def logits(self, k: int, inputs: Floats, couplings: Floats) -> Floats:
        """Return (records, groups): the change of the k-th column's log probabilities by the inputs."""
        here = slice(*self.ends[k : k + 2])
        logits: Floats = inputs @ couplings[:, here] @ self.features[self.order[k]].T
        return logits

    def log_likelihoods(self, parameters: Floats, parts: Int32s) -> Floats:
        """Return log P of each record's groups; cells without a group are left out."""
        couplings, inputs = self.unpack(parameters), self.blank(len(parts))
        total = np.zeros(len(parts))
        for k, i in enumerate(self.order):
            logs = log_softmax(np.log(self.probabilities[i]) + self.logits(k, inputs, couplings))
            present = parts[:, k] != NONE
            total[present] += logs[present, parts[present, k]]
            self.add(k, inputs, parts[:, k])
        return total


def log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=1, keepdims=True)
    logs: Floats = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return logs


def _limit(stage: "StageOne", i: int, groups: Groups) -> Groups:
    """Merge the rarest groups of a column that has too many; missing cells keep their own."""
    if groups.count <= MOST_FEATURES:
        return groups
    counts = groups.sum_up(stage.histograms.levels(i))
    if groups.of_bin[-1] != NONE:
        counts[groups.of_bin[-1]] = np.inf
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    merged = np.minimum(rank, MOST_FEATURES - 1)
    return Groups(groups.bins, np.where(groups.of_bin == NONE, NONE, merged[groups.of_bin]))


def _probabilities(stage: "StageOne", i: int, groups: Groups) -> Floats:
    counts = np.maximum(groups.sum_up(stage.histograms.levels(i)), 0.0) + 0.5 * stage.histograms.sigma
    probabilities: Floats = counts / counts.sum()
    return probabilities


def _features(stage: "StageOne", i: int, groups: Groups, most: int) -> Floats:
    """Return (groups, features): the first principal components of a kernel over the groups, centred."""
    probabilities = _probabilities(stage, i, groups)
    kernel = np.diag(1 / (probabilities + _RARE))
    if groups.in_order:
        numbers = slice(groups.in_order)  # special values and missing cells have no neighbours
        mass = probabilities[numbers] / probabilities[numbers].sum()
        rank = np.cumsum(mass) - mass / 2
        near = 1 + np.exp(-((rank[:, None] - rank) ** 2) / (2 * _BANDWIDTH**2))
        kernel[numbers, numbers] = near + _OWN * kernel[numbers, numbers]
        most = min(most, SMOOTH_FEATURES)
    centred = np.eye(len(probabilities)) - probabilities
    root = np.sqrt(probabilities)
    size, direction = np.linalg.eigh(root[:, None] * (centred @ kernel @ centred.T) * root)
    kept = np.argsort(-size)[: min(most, len(probabilities) - 1)]
    length = np.sqrt(np.clip(size[kept] / max(float(size.max()), 1e-12), 1e-6, 1.0))
    features: Floats = direction[:, kept] / root[:, None] * length
    return features


# --- the fitted model ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Autoregression:
    """A trained network, adjusted so that its draws follow the released histograms."""

    network: Network
    couplings: Floats
    levels: list[Floats]  # log probabilities of each column's groups, by position among the columns

    @classmethod
    def fit(cls, network: Network, parameters: Floats) -> "Autoregression":
        """Adjust the levels on a pool of draws. This is post-processing, with a fixed seed."""
        fitted = cls(network, network.unpack(parameters), [np.log(p) for p in network.probabilities])
        fitted._draw(_BATCH, np.random.default_rng(0), {}, adjust=True)
        return fitted

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The label with each other column."""
        return pairs_with_label(self.network.groups, self.network.stage.schema.label)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        at, starts = self.network.label, range(0, max(rows, 1), _BATCH)
        known = {} if at is None or label is None else {at: self.network.groups[at].of_bin[[label]]}
        pieces = [self._draw(min(_BATCH, rows - start), generator, known)[0] for start in starts]
        return values_of(np.concatenate(pieces), self._shapes, at, generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the columns that are not given by importance sampling, from several draws for each record."""
        parts = []
        for start in range(0, max(given.rows, 1), _BATCH // _DRAWS):
            part = given.take(np.arange(start, min(start + _BATCH // _DRAWS, given.rows)))
            known = {
                i: np.repeat(groups.of(part), _DRAWS)
                for i, groups in enumerate(self.network.groups)
                if groups.bins.column.name in given.codes
            }
            drawn, logs = self._draw(part.rows * _DRAWS, generator, known)
            logs = logs.reshape(-1, _DRAWS)
            mass = np.exp(logs - logs.max(axis=1, keepdims=True, initial=-np.inf))
            chosen = np.arange(part.rows) * _DRAWS + draw_each(mass, generator)
            parts.append((drawn[chosen], effective_size(mass)))
        groups, effective = (np.concatenate(each) for each in zip(*parts, strict=True))
        records = values_of(groups, self._shapes, self.network.label, generator)
        return Completed(with_given(records, given), np.ones(given.rows, dtype=np.bool_), effective)

    @cached_property
    def _shapes(self) -> tuple[Shape, ...]:
        return shapes_of(self.network.stage.histograms, self.network.groups)

    def _draw(
        self, rows: int, generator: np.random.Generator, known: Mapping[int, Ints], *, adjust: bool = False
    ) -> tuple[Ints, Floats]:
        """Draw groups given those of some columns; also return the log probability of the given ones."""
        network = self.network
        drawn, log = np.zeros((rows, len(network.order)), dtype=np.int64), np.zeros(rows)
        inputs = network.blank(rows)
        for k, i in enumerate(network.order):
            logits = network.logits(k, inputs, self.couplings)
            if adjust:
                self.levels[i] = _level(logits, network.probabilities[i])
            logits += self.levels[i]
            if i in known:
                drawn[:, i] = known[i]
                log += log_softmax(logits)[np.arange(rows), drawn[:, i]]
            else:
                drawn[:, i] = _pick(logits, generator, drawn[:, network.order[0]])
            network.add(k, inputs, drawn[:, i])
        return drawn, log


def _level(logits: Floats, probabilities: Floats) -> Floats:
    """Return the levels at which the mean probabilities over all rows are about the released ones."""
    target = level = np.log(probabilities)
    for _ in range(5):
        mean = np.exp(log_softmax(logits + level)).mean(axis=0)
        level = level + target - np.log(np.maximum(mean, 1e-12))
    return level


def _pick(logits: Floats, generator: np.random.Generator, first: Ints) -> Ints:
    """Draw one group for each row, in even quotas.

    Rows are sorted by their group in the first column, then by their mean. Levels grow by the golden ratio from
    row to row, so frequencies are nearer to the probabilities than with independent draws.
    """
    ends = np.cumsum(np.exp(log_softmax(logits)), axis=1)
    mean = (ends.shape[1] - ends.sum(axis=1)).round(6)
    line = np.lexsort((generator.random(len(logits)), mean, first))
    level = np.empty(len(logits))
    level[line] = (np.arange(len(logits)) * GOLDEN + generator.random()) % 1.0
    picked: Ints = np.minimum((ends <= level[:, None]).sum(axis=1), logits.shape[1] - 1)
    return picked
