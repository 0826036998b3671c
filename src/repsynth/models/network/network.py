"""Instantiation B: an autoregressive network, label first, one column after the other.

    log P(column j = g | columns before) = log p(g) + φⱼ(g) · (bⱼ + Σ_{i<j} Wᵢⱼ φᵢ(group of column i) + Uⱼh) + …

Before training all parameters are zero: the columns are independent, as the histograms show them. A column's
features φ are a public basis made from its histogram: smooth in a numeric column, and shorter for rare values
than an indicator would be, so that noise on the parameters moves rare values no more than common ones.

Where records are many there are hidden units h = clip(c + Σ Vᵢ φᵢ, 0, TOP), which can say what two columns say
together and neither of them alone. Each sees the columns up to a place of its own, and reaches those behind it.
With fewer records they bring nothing: what they could say drowns in the noise that privacy takes.

Drawing needs no more than this file.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.special import log_softmax, softmax

from repsynth.arrays import Bools, Floats, Int32s, Ints
from repsynth.columns.groups import NONE, Groups, choose_groups, pairs_with_label
from repsynth.columns.quotas import GOLDEN
from repsynth.columns.value_sampler import Shape, shapes_of, values_of
from repsynth.data.records import Records
from repsynth.models.completing import Completed, draw_each, effective_size, with_given
from repsynth.scoring.stage import StageOne

MOST_FEATURES = 256
"""Features of all columns together, as far as each column keeps two."""

MOST_NETWORK_GROUPS = 256
"""Groups of a column at most: of more values, the rarest are taken together."""

SMOOTH_FEATURES = 8
"""Features of a numeric column at most."""

MOST_HIDDEN = 256

TOP = 4.0
"""What a hidden unit says at most."""

LARGEST_PARAMETER = 1e6
"""Beyond any that a training would find."""

_MOST_GROUPS = 16
_REACH = 0.2  # of the ranks: how far apart two values still inform each other
_RARE = 0.1  # values of a smaller probability than this count as if they had it
_OWN = 0.05  # how much of a value is its own
_SPIKE = 1.8  # times the probability of an even group: a value that stands for itself
_OFFSET = 0.5  # how far from the middle a hidden unit begins to say something
_POOL, _PASSES, _AT_ONCE = 10_000, 20, 8192
_DRAWS = 32  # for each record that is completed


@dataclass(frozen=True)
class Layers:
    """The parameters by what they do: (features,), (features and units, features), (1 and features, units)."""

    biases: Floats
    couplings: Floats
    into: Floats


@dataclass(frozen=True)
class Network:
    """The public structure: what each column is made of, and the score and weights of a record.

    `features` holds (groups, features) of each column; `order` the positions of the columns, the label first.
    `degrees` says of each hidden unit how many columns it sees, in the order of drawing: the first ones.
    """

    stage: StageOne
    groups: tuple[Groups, ...]
    features: tuple[Floats, ...]
    degrees: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    @classmethod
    def of(cls, stage: StageOne, hidden: int = 0) -> "Network":
        """The network that suits the released histograms, with so many hidden units."""
        label = stage.schema.label
        chosen = choose_groups(stage.histograms, label, most=_MOST_GROUPS, noise=np.inf)
        groups = tuple(_not_too_many(stage, i, each) for i, each in enumerate(chosen))
        most = max(2, MOST_FEATURES // len(groups))
        features = tuple(_features(stage, i, each, most) for i, each in enumerate(groups))
        return cls(
            stage,
            groups,
            features,
            np.array([last + 1 for _, last in _pairs(len(groups), hidden)], dtype=np.int64),
        )

    @cached_property
    def label(self) -> int | None:
        """The label's position among the columns."""
        column = self.stage.schema.label_column
        return None if column is None else self.stage.schema.learned.index(column)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The columns' positions in the order in which they are drawn."""
        first = [] if self.label is None else [self.label]
        return (*first, *(i for i in range(len(self.groups)) if i != self.label))

    @cached_property
    def ends(self) -> Ints:
        """Where each column's features end, in the order of drawing, from 0 on."""
        return np.cumsum([0, *(self.features[i].shape[1] for i in self.order)])

    @property
    def width(self) -> int:
        """How many features there are."""
        return int(self.ends[-1])

    @property
    def hidden(self) -> int:
        """How many hidden units there are."""
        return len(self.degrees)

    @cached_property
    def mask(self) -> Bools:
        """(features and hidden units, features): which couplings there are, from earlier columns to later ones."""
        column = np.repeat(np.arange(len(self.order)), np.diff(self.ends))
        earlier: Bools = np.append(column, self.degrees - 1)[:, None] < column
        return earlier

    @cached_property
    def into_mask(self) -> Bools:
        """(1 and features, hidden units): which of them a unit sees."""
        column = np.repeat(np.arange(len(self.order)), np.diff(self.ends))
        seen: Bools = np.append(-1, column)[:, None] < self.degrees
        return seen

    @property
    def size(self) -> int:
        """How many parameters there are: biases, couplings, then those into hidden units."""
        return int(self.width + self.mask.sum() + self.into_mask.sum())

    @cached_property
    def probabilities(self) -> tuple[Floats, ...]:
        """The probabilities of a column's groups that the network starts from: never quite 0."""
        return tuple(_probabilities(self.stage, i, groups) for i, groups in enumerate(self.groups))

    def parts(self, records: Records) -> Int32s:
        """(records, columns and one): the group in each column, in the order of drawing, and the weight."""
        weight = self.stage.weights.of(self.stage.score.of(records))
        columns = [*(self.groups[i].of(records) for i in self.order), weight]
        return np.stack(columns, axis=1).astype(np.int32)

    def unpack(self, parameters: Floats) -> Layers:
        biases, couplings, into = np.split(parameters, np.cumsum([self.width, self.mask.sum()]))
        return Layers(biases, _filled(self.mask, couplings), _filled(self.into_mask, into))

    def pack(self, layers: Layers) -> Floats:
        return np.concatenate([layers.biases, layers.couplings[self.mask], layers.into[self.into_mask]])

    def start(self) -> Floats:
        """Independent columns. What a hidden unit sees at first is drawn by a fixed seed: two columns."""
        generator = np.random.default_rng(0)
        layers = self.unpack(np.zeros(self.size))
        lengths = [self.probabilities[i] @ self.features[i] ** 2 for i in self.order]
        for unit, pair in enumerate(_pairs(len(self.order), self.hidden)):
            layers.into[0, unit] = _OFFSET * generator.standard_normal()
            for k in pair:
                drawn = generator.standard_normal(len(lengths[k]))
                spread = math.sqrt(max(2 * float(drawn**2 @ lengths[k]), 1e-12))
                layers.into[1:][slice(*self.ends[k : k + 2]), unit] = drawn / spread
        return self.pack(layers)

    def blank(self, records: int) -> Floats:
        """(records, features and hidden units): the inputs of records of which no column is known."""
        return np.zeros((records, self.width + self.hidden))

    def add(self, k: int, inputs: Floats, groups: Ints | Int32s, layers: Layers) -> None:
        """Write the k-th column's groups into the inputs, and the hidden units that see no column behind it."""
        inputs[:, slice(*self.ends[k : k + 2])] = _rows_of(self.features[self.order[k]], groups)
        units = np.flatnonzero(self.degrees == k + 1)
        if len(units):
            raised = layers.into[0, units] + inputs[:, : self.width] @ layers.into[1:, units]
            inputs[:, self.width + units] = np.clip(raised, 0.0, TOP)

    def logits(self, k: int, inputs: Floats, layers: Layers) -> Floats:
        """(records, groups): how the inputs raise the log probabilities of the k-th column."""
        here = slice(*self.ends[k : k + 2])
        logs: Floats = (layers.biases[here] + inputs @ layers.couplings[:, here]) @ self.features[self.order[k]].T
        return logs

    def log_likelihoods(self, parameters: Floats, parts: Int32s) -> Floats:
        """log P of each record's groups; a cell that takes no part has none."""
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
    """The trained network, its probabilities levelled so that what is drawn has the released histograms."""

    network: Network
    layers: Layers
    levels: tuple[Floats, ...]
    """The log probabilities of each column's groups, by position among the columns."""

    @property
    def crossed(self) -> tuple[tuple[Groups, ...], ...]:
        """The label with each other column."""
        return pairs_with_label(self.network.groups, self.network.stage.schema.label)

    def draw(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Records:
        pieces = [
            self.draw_groups(min(_AT_ONCE, rows - start), generator, label)
            for start in range(0, max(rows, 1), _AT_ONCE)
        ]
        return values_of(np.concatenate(pieces), self._shapes, self.network.label, generator)

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """The columns that are not given: of some draws for each record with the given ones set, one is chosen by
        how likely what is given is in it."""
        parts = []
        for start in range(0, max(given.rows, 1), _AT_ONCE // _DRAWS):
            part = given.take(np.arange(start, min(start + _AT_ONCE // _DRAWS, given.rows)))
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

    def draw_groups(self, rows: int, generator: np.random.Generator, label: int | None = None) -> Ints:
        """(records, columns): groups, drawn one column after the other."""
        network = self.network
        known = {}
        if network.label is not None and label is not None:
            known = {network.label: np.full(rows, network.groups[network.label].of_bin[label])}
        return self._draw(rows, generator, known)[0]

    def _draw(self, rows: int, generator: np.random.Generator, known: Mapping[int, Ints]) -> tuple[Ints, Floats]:
        """The same, with some columns' groups as they are known; and the log probability of those."""
        network = self.network
        drawn, log = np.zeros((rows, len(network.order)), dtype=np.int64), np.zeros(rows)
        inputs = network.blank(rows)
        for k, i in enumerate(network.order):
            logits = self.levels[i] + network.logits(k, inputs, self.layers)
            if i in known:
                drawn[:, i] = known[i]
                log += log_softmax(logits, axis=1)[np.arange(rows), known[i]]
            else:
                drawn[:, i] = _pick(logits, generator, drawn[:, network.order[0]])
            network.add(k, inputs, drawn[:, i], self.layers)
        return drawn, log


def fit_network(network: Network, parameters: Floats) -> Autoregression:
    """The model from the trained parameters. Columns are levelled one after the other, on a pool of drawn
    records: by how much the mean of their probabilities misses the released one. A fixed seed: this is free."""
    generator = np.random.default_rng(0)
    layers, inputs = network.unpack(parameters), network.blank(_POOL)
    first = np.zeros(_POOL, dtype=np.int64)
    found: dict[int, Floats] = {}
    for k, i in enumerate(network.order):
        logits = network.logits(k, inputs, layers)
        level = np.log(network.probabilities[i])
        for _ in range(_PASSES):
            mean = np.exp(log_softmax(logits + level, axis=1)).mean(axis=0)
            level = level + np.log(network.probabilities[i]) - np.log(np.maximum(mean, 1e-12))
        found[i] = level
        drawn = _pick(logits + level, generator, first)
        first = drawn if k == 0 else first
        network.add(k, inputs, drawn, layers)
    return Autoregression(network, layers, tuple(found[i] for i in range(len(network.order))))


def _pick(logs: Floats, generator: np.random.Generator, among: Ints) -> Ints:
    """One group for each row of log probabilities.

    Records of the same group in the first column that expect about the same are lined up, and levels go round by
    the golden section: probabilities come out nearer to what is expected than by independent draws.
    """
    ends = np.cumsum(softmax(logs, axis=1), axis=1)
    expected = (ends.shape[1] - ends.sum(axis=1)).round(6)
    line = np.lexsort((generator.random(len(logs)), expected, among))
    level = np.empty(len(logs))
    level[line] = (np.arange(len(logs)) * GOLDEN + generator.random()) % 1.0
    picked: Ints = np.minimum((ends <= level[:, None]).sum(axis=1), logs.shape[1] - 1)
    return picked


def _pairs(columns: int, units: int) -> list[tuple[int, int]]:
    """The columns that each hidden unit sees at first: every other one the first column, the label where there is
    one, and one more; the others any two, evenly spread. The last column tells nothing of any other."""
    with_first = [(0, k) for k in range(1, columns - 1)]
    others = [(i, k) for k in range(2, columns - 1) for i in range(1, k)]
    lists = [
        [pairs[j] for j in np.argsort(np.arange(len(pairs)) * GOLDEN % 1.0)] for pairs in (with_first, others)
    ]
    lists = [pairs for pairs in lists if pairs]
    return [
        lists[u % len(lists)][u // len(lists) % len(lists[u % len(lists)])] for u in range(units if lists else 0)
    ]


def _filled(mask: Bools, values: Floats) -> Floats:
    """These values where the mask says so, and zeros."""
    filled = np.zeros(mask.shape)
    filled[mask] = values
    return filled


def _rows_of(table: Floats, groups: Ints | Int32s) -> Floats:
    """The row of each group; zeros where there is none."""
    rows: Floats = table[np.maximum(groups, 0)] * (groups != NONE)[:, None]
    return rows


def _not_too_many(stage: StageOne, i: int, groups: Groups) -> Groups:
    """The groups of a column, the rarest of them taken together where there are very many."""
    if groups.count <= MOST_NETWORK_GROUPS:
        return groups
    rank = np.empty(groups.count, dtype=np.int64)
    rank[np.argsort(-groups.sum_up(stage.histograms.levels(i)), kind="stable")] = np.arange(groups.count)
    missing = groups.of_bin[-1]
    if missing != NONE:  # they keep a group of their own, the last one
        rank[rank > rank[missing]] -= 1
    last = MOST_NETWORK_GROUPS - 1 - (missing != NONE)
    of_group = np.minimum(rank, last)
    if missing != NONE:
        of_group[missing] = last + 1
    of_bin = np.where(groups.of_bin == NONE, NONE, of_group[groups.of_bin])
    return Groups(groups.bins, of_bin)


def _probabilities(stage: StageOne, i: int, groups: Groups) -> Floats:
    counts = np.maximum(groups.sum_up(stage.histograms.levels(i)), 0.0) + 0.5 * stage.histograms.sigma
    probabilities: Floats = counts / counts.sum()
    return probabilities


def _features(stage: StageOne, i: int, groups: Groups, most: int) -> Floats:
    """(groups, features): a square root of a kernel that says which values inform each other, centred."""
    probabilities = _probabilities(stage, i, groups)
    own = 1 / (probabilities + _RARE)
    if groups.bins.starts is None:
        kernel = np.diag(own)
    else:
        spike = probabilities > _SPIKE / len(probabilities)
        spike[groups.in_order :] = True  # special values, and the missing
        spread = np.where(spike, 0.0, probabilities)
        rank = (np.cumsum(spread) - spread / 2) / max(float(spread.sum()), 1e-9)
        near = 1 + np.exp(-((rank[:, None] - rank) ** 2) / (2 * _REACH**2))
        kernel = np.where(spike[:, None] | spike, 0.0, near) + np.diag(own * np.where(spike, 1.0, _OWN))
        most = min(most, SMOOTH_FEATURES)
    centred = np.eye(len(probabilities)) - probabilities
    kernel = centred @ kernel @ centred.T
    root = np.sqrt(probabilities)
    size, direction = np.linalg.eigh(root[:, None] * kernel * root)
    kept = np.argsort(-size)[: min(most, len(probabilities) - 1)]
    length = np.sqrt(np.clip(size[kept] / max(float(size.max()), 1e-12), 1e-6, 1.0))
    features: Floats = direction[:, kept] / root[:, None] * length
    return features
