"""`--protocol paper`: the paper's experiments to the letter, as far as they can be known. NOT private.

Bins, means and variances are read off the training data, the threshold is a quantile of the private scores,
γ is chosen on validation records, and the reference of the attack holds the very records under attack.
What the paper leaves open is read as fits its tables best; each such choice says so below.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from repsynth import datasets
from repsynth.arrays import Bools, Floats, Ints
from repsynth.evaluation.points import (
    Points,
    Space,
    advantage_of,
    deciles_of,
    make_attacks,
    nearest,
    outlyingness,
)
from studies.paper.grid import Cell
from studies.paper.results import Result, scorer_quality
from studies.split import advantage_by_decile, complete, points_of, split_rows, tstr

GAMMAS = (4.0, 2.0, 1.0, 0.5)
TOLERANCE = 0.02
BINS = 16
QUANTILE = 0.9
CLIP = 3.0
BLOCKS = 3

# Open in the paper. One clip for every block of statistics, used as its sensitivity; floors under noisy
# counts, shares and variances; which columns of Breast Cancer are binned.
SENSITIVITY = 10.0
_SMALLEST_COUNT = 1.0
_SMALLEST_SHARE = 1e-6
_SMALLEST_VARIANCE = 1e-3
_BINNED_SEED = 0


def run_literal(cell: Cell, data_dir: str | None) -> Result:
    """Run one cell."""
    key = (cell.dataset, cell.seed, data_dir)
    split, targets = load_literal(*key), literal_targets(*key)
    gamma = correlation = recall = None
    if cell.method in {"reps", "random", "removal"}:
        assert cell.epsilon is not None
        gamma = chosen_gamma(*key, cell.epsilon)
    if cell.method == "reps":
        assert cell.epsilon is not None
        correlation, recall = scorer_quality(noisy_scores(*key, cell.epsilon), literal_outlyingness(*key))
    synthetic = synthesize(cell, split, data_dir, gamma)
    by_decile, distance_by_decile, everybody = targets.attack(synthetic)
    by_decile, distance_by_decile = [abs(a) for a in by_decile], [abs(a) for a in distance_by_decile]
    return Result(
        tstr=tstr(synthetic, split.test, targets.space),
        mia=abs(everybody),
        top=by_decile[-1],
        ratio=by_decile[-1] / max(float(np.median(by_decile)), 1e-9),
        gamma=gamma,
        by_decile=by_decile,
        distance_by_decile=distance_by_decile,
        correlation=correlation,
        recall=recall,
    )


@dataclass(frozen=True)
class LiteralSplit:
    """The three parts, their numbers standardised with the mean and variance of the training part."""

    train: Points
    validation: Points
    test: Points


@lru_cache(maxsize=1)
def load_literal(name: str, seed: int, data_dir: str | None) -> LiteralSplit:
    """The split of a dataset as the paper prepares it."""
    points = _breast_cancer() if name == "breast_cancer" else _points(name, data_dir)
    train, validation, test = split_rows(points.labels, seed)
    space = Space.of(points.take(train))
    standard = replace(points, numbers=(points.numbers - space.centre) / space.scale)
    return LiteralSplit(standard.take(train), standard.take(validation), standard.take(test))


def _points(name: str, data_dir: str | None) -> Points:
    """A public dataset with the categories that occur in it."""
    dataset = datasets.load(name, data_dir=data_dir)
    points = points_of(complete(dataset.table), dataset.schema)
    found = [np.unique(points.codes[:, j], return_inverse=True) for j in range(points.codes.shape[1])]
    codes = np.stack([codes for _, codes in found], axis=1)
    return Points(points.numbers, codes, points.labels, tuple(len(values) for values, _ in found))


def _breast_cancer() -> Points:
    """All thirty numbers, of which three chosen at random are cut into fifths at their quantiles."""
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    cut = np.random.default_rng(_BINNED_SEED).choice(bunch.data.shape[1], 3, replace=False)
    edges = np.quantile(bunch.data[:, cut], [0.2, 0.4, 0.6, 0.8], axis=0)
    codes = np.stack([np.searchsorted(edges[:, j], bunch.data[:, k]) for j, k in enumerate(cut)], axis=1)
    return Points(np.delete(bunch.data, cut, axis=1), codes, bunch.target.astype(np.int64), (5, 5, 5))


def classical_sigma(sensitivity: float, epsilon: float, delta: float) -> float:
    """The classical noise of the Gaussian mechanism; proven for ε below 1 only."""
    return sensitivity * math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@lru_cache(maxsize=4)
def noisy_scores(name: str, seed: int, data_dir: str | None, epsilon: float) -> Floats:
    """Stage 1 at a tenth of ε and half of δ: how rare each training record is by noisy histograms."""
    train = load_literal(name, seed, data_dir).train
    generator = np.random.default_rng([seed, round(10 * epsilon)])
    numbers = np.clip(np.floor((np.clip(train.numbers, -CLIP, CLIP) + CLIP) / (2 * CLIP) * BINS), 0, BINS - 1)
    columns = [(numbers[:, j].astype(np.int64), BINS) for j in range(numbers.shape[1])]
    columns += [(train.codes[:, j], size) for j, size in enumerate(train.sizes)]
    sigma = classical_sigma(math.sqrt(len(columns)), 0.1 * epsilon, _delta(train) / 2)
    scores = np.zeros(len(train))
    for codes, size in columns:
        counts = np.maximum(np.bincount(codes, minlength=size) + generator.normal(0, sigma, size), 0.0)
        shares = counts / max(counts.sum(), 1e-300)
        scores -= np.log(np.maximum(shares, _SMALLEST_SHARE))[codes]
    return scores


@lru_cache(maxsize=4)
def chosen_gamma(name: str, seed: int, data_dir: str | None, epsilon: float) -> float:
    """The largest γ whose AUROC on validation records is at most .02 below no scoring; else the smallest."""
    split = load_literal(name, seed, data_dir)

    def validated(method: str, gamma: float | None) -> float:
        cell = Cell("paper", name, seed, epsilon, method)
        return tstr(synthesize(cell, split, data_dir, gamma), split.validation, Space.standard(split.train))

    wanted = validated("uniform", None) - TOLERANCE
    return next((gamma for gamma in GAMMAS if validated("reps", gamma) >= wanted), GAMMAS[-1])


def synthesize(cell: Cell, split: LiteralSplit, data_dir: str | None, gamma: float | None) -> Points:
    """The synthetic records of a cell: as many as there are training records.

    Open in the paper: all methods and all γ share their noise. With noise of its own, each γ on trial would
    be another draw, and choosing among them would lift REPS far above the published values.
    """
    train = split.train
    generator = np.random.default_rng([cell.seed, round(10 * (cell.epsilon or 0)), 7])
    weights = np.ones(len(train))
    epsilon, delta = cell.epsilon, _delta(train)
    if epsilon is not None and cell.method != "uniform":
        if cell.method != "uniform-split":
            assert gamma is not None
            scores = noisy_scores(cell.dataset, cell.seed, data_dir, epsilon)
            weights = weights_of(scores, gamma)
            if cell.method == "random":
                weights = np.random.default_rng([cell.seed, round(10 * epsilon), 8]).permutation(weights)
            elif cell.method == "removal":
                weights = (scores <= np.quantile(scores, QUANTILE)).astype(np.float64)
        epsilon, delta = 0.9 * epsilon, delta / 2
    return fit(train, weights, epsilon, delta, generator).draw(len(train), train.sizes, generator)


def weights_of(scores: Floats, gamma: float) -> Floats:
    """hinge-exp, the threshold at a quantile of the private scores: this is what the paper does not pay for."""
    weights: Floats = np.exp(-gamma * np.maximum(scores - np.quantile(scores, QUANTILE), 0.0))
    return weights


@dataclass(frozen=True)
class GaussianNaiveBayes:
    """Class-conditional shares of categories, means and standard deviations."""

    labels: Floats
    categories: list[Floats]
    mean: Floats
    deviation: Floats

    def draw(self, rows: int, sizes: tuple[int, ...], generator: np.random.Generator) -> Points:
        """Independent records; numbers are not clipped."""
        labels = (generator.random(rows) < self.labels[1]).astype(np.int64)
        codes = [
            (generator.random(rows)[:, None] > np.cumsum(shares, axis=1)[labels, :-1]).sum(axis=1)
            for shares in self.categories
        ]
        numbers = self.mean[labels] + self.deviation[labels] * generator.normal(size=(rows, self.mean.shape[1]))
        stacked = np.stack(codes, axis=1) if codes else np.zeros((rows, 0), dtype=np.int64)
        return Points(numbers, stacked, labels, sizes)


def fit(
    points: Points, weights: Floats, epsilon: float | None, delta: float, generator: np.random.Generator
) -> GaussianNaiveBayes:
    """The model from weighted sums in three blocks, each with a third of ε and δ; no noise where ε is None."""
    sigma = 0.0 if epsilon is None else classical_sigma(SENSITIVITY, epsilon / BLOCKS, delta / BLOCKS)

    def noisy(sums: Floats) -> Floats:
        return sums + generator.normal(0, sigma, sums.shape) if sigma else sums

    labels = points.labels
    counts = np.maximum(noisy(_sums(labels, weights, 2)), _SMALLEST_COUNT)
    categories = []
    for j, size in enumerate(points.sizes):
        sums = noisy(_sums(labels * size + points.codes[:, j], weights, 2 * size).reshape(2, size))
        cells = np.maximum(sums, _SMALLEST_COUNT if sigma else 1e-6)
        categories.append(cells / cells.sum(axis=1, keepdims=True))
    z = np.clip(points.numbers, -CLIP, CLIP)
    moments = np.hstack([z, z * z])
    norms = np.linalg.norm(moments, axis=1)
    clipped = weights * np.minimum(1.0, SENSITIVITY / np.maximum(norms, 1e-12)) if sigma else weights
    sums = np.stack([(clipped[labels == y, None] * moments[labels == y]).sum(axis=0) for y in (0, 1)])
    mean, square = np.hsplit(noisy(sums) / counts[:, None], 2)
    deviation = np.sqrt(np.maximum(square - mean**2, _SMALLEST_VARIANCE))
    return GaussianNaiveBayes(counts / counts.sum(), categories, mean, deviation)


@dataclass(frozen=True)
class LiteralTargets:
    """All training and all test records under attack; the test records are the reference, too.

    So each non-member finds itself in the reference at distance zero, which tells it from any member.
    """

    places: Floats
    member: Bools
    deciles: Ints
    to_reference: Floats
    space: Space

    def attack(self, synthetic: Points | None) -> tuple[list[float], list[float], float]:
        """Advantages: density ratio by decile, distance by decile, distance over all.

        Without synthetic records their distance is a constant.
        """
        to_synthetic = np.ones((len(self.places), 1))
        if synthetic is not None:
            to_synthetic = nearest(self.places, self.space.place(synthetic))
        attacks = make_attacks(to_synthetic, self.to_reference)
        return (
            advantage_by_decile(attacks.density, self.member, self.deciles),
            advantage_by_decile(attacks.distance, self.member, self.deciles),
            advantage_of(attacks.distance, self.member),
        )


@lru_cache(maxsize=1)
def literal_targets(name: str, seed: int, data_dir: str | None) -> LiteralTargets:
    """The targets of a split: training records are the members."""
    split = load_literal(name, seed, data_dir)
    return make_literal_targets(split.train, split)


def make_literal_targets(members: Points, split: LiteralSplit) -> LiteralTargets:
    """Targets whose members are these records, with deciles of outlyingness over all targets."""
    space = Space.standard(split.train)
    inside, outside = space.place(members), space.place(split.test)
    places = np.vstack([inside, outside])
    return LiteralTargets(
        places=places,
        member=np.arange(len(places)) < len(inside),
        deciles=deciles_of(outlyingness(places)),
        to_reference=nearest(places, outside),
        space=space,
    )


@lru_cache(maxsize=1)
def literal_outlyingness(name: str, seed: int, data_dir: str | None) -> Floats:
    """Of each training record among the training records."""
    split = load_literal(name, seed, data_dir)
    return outlyingness(literal_targets(name, seed, data_dir).space.place(split.train))


def _sums(groups: Ints, weights: Floats, count: int) -> Floats:
    return np.bincount(groups, weights, count).astype(np.float64)


def _delta(train: Points) -> float:
    return 1 / len(train) ** 2
