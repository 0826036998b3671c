"""The autoregressive network: its public structure, and how to draw from it. The label comes first.

    log P(column j = g | earlier columns) = log p(g) + φⱼ(g) · (bⱼ + Σ_{i<j} Wᵢⱼ φᵢ(column i) + Uⱼh) + const

Training starts from independent columns with the probabilities p of the released histograms. The features φ of a
column are a public basis made from its histogram. They are smooth over the ranks of a numeric column. They are
shorter for rare values than indicators would be, so noise in the parameters does not move rare values more than
common ones.

Hidden units h = clip(c + Σ Vᵢ φᵢ, 0, TOP) learn effects of two columns together. Each sees the columns up to its
degree and influences those after them. With few records such effects are below the noise, so there are none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, cycle, islice

import numpy as np
from scipy.special import log_softmax, softmax

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.columns.groups import NONE, Groups, choose_groups, pairs_with_label
from repsynth.columns.value_sampler import GOLDEN, Shape, shapes_of, values_of
from repsynth.data.records import Records
from repsynth.models.completing import Completed, draw_each, effective_size, with_given
from repsynth.scoring.stage import StageOne

MOST_FEATURES = 256
"""The largest number of features of all columns together, unless two for each column are more."""

MOST_NETWORK_GROUPS = MOST_HIDDEN = MOST_FEATURES
"""The largest number of groups of a column (rarer values share one), and of hidden units."""

SMOOTH_FEATURES = 8
"""The largest number of features of a numeric column."""

TOP = 4.0
"""The largest output of a hidden unit."""

LARGEST_PARAMETER = 1e6
"""Larger than any parameter that training finds."""

_NUMERIC_GROUPS = 2 * SMOOTH_FEATURES
_BANDWIDTH = 0.2  # of the kernel over the ranks of a numeric column
_RARE = 0.1  # rarer values get no longer features than a value of this probability
_OWN = 0.05  # the part of a numeric value's feature that it does not share with its neighbours
_BATCH = 2**13  # records drawn at once
_DRAWS = 2**5  # candidates for each record that is completed


@dataclass(frozen=True)
class Layers:
    """The parameters by role. Inputs are a constant 1, the features, and the hidden units."""

    couplings: Floats  # (inputs, features); the first row holds the biases
    into: Floats  # (constant and features, hidden units)


@dataclass(frozen=True)
class Network:
    """The public structure of a network; the parameters are kept apart."""

    stage: StageOne
    groups: tuple[Groups, ...]
    features: tuple[Floats, ...]  # (groups, features) of each column
    degrees: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """(hidden units,): how many columns each unit sees, in drawing order."""

    @classmethod
    def of(cls, stage: StageOne, hidden: int = 0) -> "Network":
        """Build a network for the released histograms."""
        chosen = choose_groups(stage.histograms, stage.schema.label, most=_NUMERIC_GROUPS, noise=np.inf)
        groups = tuple(_limit(stage, i, each) for i, each in enumerate(chosen))
        most = max(2, MOST_FEATURES // len(groups))
        features = tuple(_features(stage, i, each, most) for i, each in enumerate(groups))
        degrees = np.array([last + 1 for _, last in _pairs(len(groups), hidden)], dtype=np.int64)
        return cls(stage, groups, features, degrees)

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

    @property
    def hidden(self) -> int:
        """The number of hidden units."""
        return len(self.degrees)

    @cached_property
    def mask(self) -> Bools:
        """(inputs, features): biases, and couplings from earlier columns to later ones."""
        earlier: Bools = np.concatenate([[-1], self._column, self.degrees - 1])[:, None] < self._column
        return earlier

    @cached_property
    def into_mask(self) -> Bools:
        """(constant and features, hidden units): the inputs that each unit sees."""
        seen: Bools = np.append(-1, self._column)[:, None] < self.degrees
        return seen

    @cached_property
    def _column(self) -> Ints:
        """(features,): the column of each, in drawing order."""
        return np.repeat(np.arange(len(self.order)), np.diff(self.ends))

    @property
    def size(self) -> int:
        """The number of parameters."""
        return int(self.mask.sum() + self.into_mask.sum())

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """The released probabilities of each column's groups, all above 0."""
        return tuple(_probabilities(self.stage, i, groups) for i, groups in enumerate(self.groups))

    def unpack(self, parameters: Floats) -> Layers:
        layers = Layers(np.zeros(self.mask.shape), np.zeros(self.into_mask.shape))
        layers.couplings[self.mask], layers.into[self.into_mask] = np.split(parameters, [self.mask.sum()])
        return layers

    def pack(self, layers: Layers) -> Floats:
        return np.concatenate([layers.couplings[self.mask], layers.into[self.into_mask]])

    def of_inputs(self, scales: Floats) -> Floats:
        """Return for each parameter the scale of the input that it multiplies."""
        return np.concatenate([scales[np.nonzero(mask)[0]] for mask in (self.mask, self.into_mask)])

    def start(self) -> Floats:
        """Return the parameters of independent columns; each hidden unit sees two columns, by a fixed seed."""
        generator = np.random.default_rng(0)
        layers = self.unpack(np.zeros(self.size))
        lengths = [self.probabilities[i] @ self.features[i] ** 2 for i in self.order]
        for unit, pair in enumerate(_pairs(len(self.order), self.hidden)):
            for k in pair:
                drawn = generator.standard_normal(len(lengths[k]))
                spread = math.sqrt(max(2 * float(drawn**2 @ lengths[k]), 1e-12))
                layers.into[1:][slice(*self.ends[k : k + 2]), unit] = drawn / spread
        return self.pack(layers)

    def blank(self, records: int) -> Floats:
        """Return (records, inputs) before any column is known."""
        return np.eye(1, 1 + self.width + self.hidden).repeat(records, axis=0)

    def add(self, k: int, inputs: Floats, groups: Ints | Int32s, layers: Layers) -> None:
        """Write the groups of the k-th column into the inputs, and the hidden units that see no later column."""
        features = self.features[self.order[k]]
        inputs[:, 1:][:, slice(*self.ends[k : k + 2])] = (
            features[np.maximum(groups, 0)] * (groups != NONE)[:, None]
        )
        units, seen = np.flatnonzero(self.degrees == k + 1), 1 + self.width
        inputs[:, seen + units] = np.clip(inputs[:, :seen] @ layers.into[:, units], 0.0, TOP)

    def logits(self, k: int, inputs: Floats, layers: Layers) -> Floats:
        """Return (records, groups): what the inputs add to the log probabilities of the k-th column."""
        here = slice(*self.ends[k : k + 2])
        logits: Floats = inputs @ layers.couplings[:, here] @ self.features[self.order[k]].T
        return logits

    def log_likelihoods(self, parameters: Floats, parts: Int32s) -> Floats:
        """Return log P of each record's groups; cells without a group are left out."""
        layers, inputs = self.unpack(parameters), self.blank(len(parts))
        total = np.zeros(len(parts))
        for k, i in enumerate(self.order):
            logs = log_softmax(np.log(self.probabilities[i]) + self.logits(k, inputs, layers), axis=1)
            present = parts[:, k] != NONE
            total[present] += logs[present, parts[present, k]]
            self.add(k, inputs, parts[:, k], layers)
        return total


@dataclass(frozen=True)
class Autoregression:
    """A trained network whose draws have the released histograms."""

    network: Network
    layers: Layers
    levels: list[Floats]  # log probabilities of each column's groups, by position among the columns

    @classmethod
    def fit(cls, network: Network, parameters: Floats) -> "Autoregression":
        """Adjust the levels on a pool of draws. This is post-processing, with a fixed seed."""
        sampler = cls(network, network.unpack(parameters), [np.log(p) for p in network.probabilities])
        sampler._draw(_BATCH, np.random.default_rng(0), {}, adjust=True)
        return sampler

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
        """Draw the columns that are not given: importance sampling from some draws for each record."""
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
            logits = network.logits(k, inputs, self.layers)
            if adjust:
                self.levels[i] = _level(logits, network.probabilities[i])
            logits += self.levels[i]
            if i in known:
                drawn[:, i] = known[i]
                log += log_softmax(logits, axis=1)[np.arange(rows), drawn[:, i]]
            else:
                drawn[:, i] = _pick(logits, generator, drawn[:, network.order[0]])
            network.add(k, inputs, drawn[:, i], self.layers)
        return drawn, log


def _level(logits: Floats, probabilities: Floats) -> Floats:
    """Return levels with which the mean of the rows' probabilities is about the released one."""
    target = level = np.log(probabilities)
    for _ in range(5):
        mean = softmax(logits + level, axis=1).mean(axis=0)
        level = level + target - np.log(np.maximum(mean, 1e-12))
    return level


def _pick(logits: Floats, generator: np.random.Generator, first: Ints) -> Ints:
    """Draw one group for each row, in even quotas.

    Rows are sorted by their group in the first column, then by their mean. Levels along that line follow the
    golden ratio, so frequencies are nearer to the probabilities than with independent draws.
    """
    ends = np.cumsum(softmax(logits, axis=1), axis=1)
    mean = (ends.shape[1] - ends.sum(axis=1)).round(6)
    line = np.lexsort((generator.random(len(logits)), mean, first))
    level = np.empty(len(logits))
    level[line] = (np.arange(len(logits)) * GOLDEN + generator.random()) % 1.0
    picked: Ints = np.minimum((ends <= level[:, None]).sum(axis=1), logits.shape[1] - 1)
    return picked


def _pairs(columns: int, units: int) -> list[tuple[int, int]]:
    """Return the two columns that each hidden unit sees at first, evenly spread over all pairs.

    Every other pair has the first column, which is the label if there is one. The last column influences none.
    """
    with_first = [(0, k) for k in range(1, columns - 1)]
    others = [(i, k) for k in range(2, columns - 1) for i in range(1, k)] or with_first
    spread = (
        cycle([pairs[j] for j in np.argsort(np.arange(len(pairs)) * GOLDEN % 1.0)])
        for pairs in (with_first, others)
    )
    return list(islice(chain.from_iterable(zip(*spread, strict=True)), units))


def _limit(stage: StageOne, i: int, groups: Groups) -> Groups:
    """Merge the rarest groups of a column that has too many; missing cells keep their own."""
    if groups.count <= MOST_NETWORK_GROUPS:
        return groups
    counts = groups.sum_up(stage.histograms.levels(i))
    if groups.of_bin[-1] != NONE:
        counts[groups.of_bin[-1]] = np.inf
    rank = np.argsort(np.argsort(-counts, kind="stable"))
    merged = np.minimum(rank, MOST_NETWORK_GROUPS - 1)
    return Groups(groups.bins, np.where(groups.of_bin == NONE, NONE, merged[groups.of_bin]))


def _probabilities(stage: StageOne, i: int, groups: Groups) -> Floats:
    counts = np.maximum(groups.sum_up(stage.histograms.levels(i)), 0.0) + 0.5 * stage.histograms.sigma
    probabilities: Floats = counts / counts.sum()
    return probabilities


def _features(stage: StageOne, i: int, groups: Groups, most: int) -> Floats:
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
