"""How strong weights should be: fixed in advance, by a lost mass, tuned as in the paper, or selected privately.

For each table and budget, over some splits (56 % to learn from, 14 % to tune on, 30 % to test on): AUROC of
logistic regression and of boosting that learned from synthetic records, two-way distance on the strict grid, the
ratio of the mean optimal attack advantage over the top decile of nearest-neighbour outliers to that of uniform
weights, and the lost mass by the records themselves.

`tuned` looks at records that it does not pay for, so it is not private: the largest of the paper's γ whose AUROC
on the validation part is at most .02 below that of uniform weights, else the smallest. `selected` pays: k pairs of
a fraction and a weight of outliers, each fitted with μ/√(k + 1); logistic regression that learned from each one's
synthetic records predicts the training records, and the noisy numbers of correct predictions (a record counts once
for each of the k) cost as much as one more fit. The best of them is released; every record is charged for all.

    python -m studies.benchmarks.strength --data-dir FOLDER
    python -m studies.benchmarks.strength --data-dir FOLDER --tables adult nist --model mst --epsilons 1 --seeds 3
"""

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from repsynth.arrays import Bools, Floats
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import Fill, Space, outlyingness, points_of_records, records_of
from repsynth.io.records import Records
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.gaussian import advantage, mu_of
from repsynth.run.run import run
from repsynth.scoring.weights import FULL
from studies.benchmarks import values
from studies.paper.grid import EPSILONS
from studies.split import split_rows

GAMMAS = (4.0, 2.0, 1.0, 0.5)
WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "fixed γ = 1": {"weights": "hinge-exp", "gamma": 1.0},
    "lost mass 0.05": {"weights": "hinge-exp", "max_lost_mass": 0.05},
    "lost mass 0.1": {"weights": "hinge-exp", "max_lost_mass": 0.1},
    "lost mass 0.2": {"weights": "hinge-exp", "max_lost_mass": 0.2},
}
PAIRS = ((0.3, 0.2), (0.3, 0.5), (0.2, 0.2), (0.1, 0.2))
"""Fraction and weight of outliers to select from; the first are the defaults."""
SHOWN = ("LR", "GB", "2-way", "ratio", "lost")


@dataclass(frozen=True)
class Part:
    """A split of a table, whose training records are those to learn from alone."""

    name: str
    split: values.Split
    validation: Records
    top: Bools
    """Which training records are in the top decile of outliers."""

    def auroc(self, made: Records, *, boosted: bool = False, validate: bool = False) -> dict[str, float]:
        """On the test part, or on the validation part; chance where there is but one label to learn from."""
        split = replace(self.split, test=self.validation) if validate else self.split
        try:
            return values.predictions(self.name, split, made, boosted=boosted)
        except ValueError:
            return {"LR": 0.5, "GB": 0.5}


@lru_cache(maxsize=1)
def part_of(name: str, seed: int, data_dir: str | None) -> Part:
    table, schema = values.load(name, data_dir, True)
    records = records_of(table, schema)
    train, tune, test = split_rows(records.codes[schema.label or ""], seed)
    split = values.Split(schema, table.take(train), records.take(train), records.take(test))
    points = points_of_records(split.train, schema, Fill.of(split.train, schema))
    outlying = outlyingness(Space.of(points).place(points))
    return Part(name, split, records.take(tune), outlying >= np.quantile(outlying, 0.9))


@dataclass(frozen=True)
class Made:
    """Synthetic records, every training record's loss μ, and the mean lost weight by the records themselves."""

    records: Records
    mu: Floats
    lost: float


def make(part: Part, model: str, mu: float, noise_seed: int, **knobs: Any) -> Made:
    split = part.split
    rows = split.train.rows
    settings = Settings.of(mu=mu, delta=1 / rows**2, public_rows=rows, model=model, **knobs)
    release = run(make_plan(split.schema, settings), open_source(split.table), noise_seed=noise_seed)
    weights = release.weights.of(release.score.of(split.train)) / FULL
    made = records_of(release.sample(rows, seed=noise_seed), split.schema)
    mus = release.privacy.loss.mu_at(release.influence(split.train))
    return Made(made, mus, float(1 - weights.mean()))


def tune(part: Part, model: str, mu: float, noise_seed: int, plain: Made) -> Made:
    """The paper's rule: not private."""
    wanted = part.auroc(plain.records, validate=True)["LR"] - 0.02
    for k, gamma in enumerate(GAMMAS):
        made = make(part, model, mu, noise_seed + k, weights="hinge-exp", gamma=gamma)
        if part.auroc(made.records, validate=True)["LR"] >= wanted:
            break
    return made


def select(part: Part, model: str, mu: float, noise_seed: int) -> tuple[Made, int]:
    """The best of some pairs, and which: their fits and the counts of correct predictions share μ² evenly."""
    each = mu / np.sqrt(len(PAIRS) + 1)
    found = [
        make(part, model, each, noise_seed + k, outlier_fraction=fraction, outlier_weight=weight)
        for k, (fraction, weight) in enumerate(PAIRS)
    ]
    counts = np.array([correct(part, made.records) for made in found])
    noise = np.random.default_rng(noise_seed).normal(0, np.sqrt(len(PAIRS)) / each, len(PAIRS))
    best = int(np.argmax(counts + noise))
    mus = np.sqrt(sum(made.mu**2 for made in found) + each**2)
    return replace(found[best], mu=mus), best


def correct(part: Part, made: Records) -> int:
    """How many training records logistic regression labels as they are; who is in no class counts as wrong."""
    split, label = part.split, part.split.schema.label_column
    classes = [label.values.index(value) for value in values.CLASSES.get(part.name, label.values)]
    learn = made.take(np.isin(made.codes[label.name], classes))
    fill = Fill.of(learn, split.schema, like=split.train)
    points, real = (points_of_records(records, split.schema, fill) for records in (learn, split.train))
    if len(set(points.labels.tolist())) < 2:
        return int((real.labels == points.labels[:1]).sum())
    space = Space.of(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = LogisticRegression(max_iter=300).fit(space.place(points), points.labels)
    return int((fitted.predict(space.place(real)) == real.labels).sum())


def one_split(
    part: Part, seed: int, epsilon: float, model: str, ways: list[str]
) -> Iterator[tuple[str, list[float]]]:
    """Every way has noise of its own."""
    mu = mu_of(epsilon, 1 / part.split.train.rows**2)

    def judged(made: Made) -> list[float]:
        far = measure_distances(part.split.train, made.records, part.split.schema).mean_two_way
        ratio = float(advantage(made.mu)[part.top].mean() / advantage(mu))
        return [*part.auroc(made.records, boosted=True).values(), far, ratio, made.lost]

    plain = make(part, model, mu, 1000 * seed, weights="uniform")
    yield "uniform", judged(plain)
    for k, (way, knobs) in enumerate(WAYS.items()):
        if way in ways:
            yield way, judged(make(part, model, mu, 1000 * seed + 100 * (k + 1), **knobs))
    yield "tuned (not private)", judged(tune(part, model, mu, 1000 * seed + 800, plain))
    made, best = select(part, model, mu, 1000 * seed + 900)
    print(f"{part.name}, ε = {epsilon:g}, split {seed}: selected {PAIRS[best]}", flush=True)
    yield "selected", judged(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--tables", nargs="*", default=["sim", "breast_cancer", "german_credit", "adult", "nist"])
    parser.add_argument("--model", default="naive-bayes")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), help="that need no search")
    parser.add_argument("--seeds", type=int, default=5, help="splits")
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    asked = parser.parse_args()
    for name in asked.tables:
        found: dict[tuple[float, str], list[list[float]]] = {}
        for seed in range(asked.seeds):
            for epsilon in asked.epsilons:
                with threadpool_limits(1):
                    part = part_of(name, seed, asked.data_dir)
                    for way, numbers in one_split(part, seed, epsilon, asked.model, asked.ways):
                        print(
                            f"{name} {seed} {epsilon:g} {way}:",
                            *(f"{number:.4f}" for number in numbers),
                            flush=True,
                        )
                        found.setdefault((epsilon, way), []).append(numbers)
        print(f"\n{name}, {asked.model}, {asked.seeds} splits\n{'ε':>5} {'way':<20}", *(f"{s:>7}" for s in SHOWN))
        for (epsilon, way), numbers in sorted(found.items(), key=lambda item: item[0][0]):
            means = " ".join(f"{mean:7.3f}" for mean in np.mean(numbers, axis=0))
            print(f"{epsilon:5g} {way:<20} {means}", flush=True)


if __name__ == "__main__":
    main()
