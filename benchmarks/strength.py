"""How strong weights should be: fixed in advance, by a lost mass, or tuned on validation records as in the paper.

For each dataset and budget, over some splits, the weight rule hinge-exp with naive Bayes: utility (TSTR AUROC),
the ratio of the mean optimal attack advantage over the top decile of nearest-neighbour outliers to that of uniform
weights, and the lost mass. `tuned` looks at records that it does not pay for, so it is not private: the largest of
the paper's γ whose AUROC on the validation part is at most .02 below that of uniform weights, else the smallest.

    python benchmarks/strength.py --data-dir FOLDER
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np

from repsynth.arrays import Bools
from repsynth.data.sources import open_source
from repsynth.engines.local import LocalEngine
from repsynth.evaluation.matrix import Points, points_of
from repsynth.evaluation.split import Split, load_split, train_outlyingness
from repsynth.evaluation.utility import tstr
from repsynth.paper.grid import EPSILONS
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.scoring.weights import FULL

GAMMAS = (4.0, 2.0, 1.0, 0.5)
WAYS: dict[str, dict[str, Any]] = {
    "fixed γ = 1": {"gamma": 1.0},
    "lost mass 0.05": {"max_lost_mass": 0.05},
    "lost mass 0.1": {"max_lost_mass": 0.1},
    "lost mass 0.2": {"max_lost_mass": 0.2},
}


def made(part: Split, top: Bools, epsilon: float, **knobs: Any) -> tuple[Points, float, float]:
    """Synthetic points, the top decile's mean advantage, and the mean lost weight by the records themselves."""
    rows, source = len(part.train), open_source(part.table)
    settings = Settings.of(epsilon=epsilon, delta=1 / rows**2, public_rows=rows, model="naive-bayes", **knobs)
    release = run(make_plan(part.schema, settings), source)
    data = list(LocalEngine.open(source, part.schema).per_record())
    influence = np.concatenate([release.influence(batch) for batch in data])
    weights = np.concatenate([release.weights.of(release.score.of(batch)) for batch in data]) / FULL
    advantage = float(release.privacy.loss.advantage_at(influence)[top].mean())
    return points_of(release.sample(rows), part.schema), advantage, float(1 - weights.mean())


def one_split(
    name: str, seed: int, epsilon: float, data_dir: str | None
) -> Iterator[tuple[str, tuple[float, ...]]]:
    part, outlying = load_split(name, seed, data_dir), train_outlyingness(name, seed, data_dir)
    top = outlying >= np.quantile(outlying, 0.9)
    plain, whole, _ = made(part, top, epsilon, weights="uniform")
    yield "uniform", (tstr(plain, part.test), 1.0, 0.0)
    for way, knobs in WAYS.items():
        points, advantage, lost = made(part, top, epsilon, weights="hinge-exp", **knobs)
        yield way, (tstr(points, part.test), advantage / whole, lost)
    wanted = tstr(plain, part.validation) - 0.02
    for gamma in GAMMAS:
        points, advantage, lost = made(part, top, epsilon, weights="hinge-exp", gamma=gamma)
        if tstr(points, part.validation) >= wanted or gamma == GAMMAS[-1]:
            yield "tuned (not private)", (tstr(points, part.test), advantage / whole, lost)
            return


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--datasets", nargs="*", default=["sim", "breast_cancer", "german_credit", "adult"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    arguments = parser.parse_args()
    for name in arguments.datasets:
        found: dict[tuple[float, str], list[tuple[float, ...]]] = {}
        for seed in range(arguments.seeds):
            for epsilon in arguments.epsilons:
                for way, numbers in one_split(name, seed, epsilon, arguments.data_dir):
                    found.setdefault((epsilon, way), []).append(numbers)
        print(f"\n{name}\n{'ε':>5} {'way':<20} {'TSTR':>7} {'ratio':>7} {'lost':>7}")
        for (epsilon, way), numbers in sorted(found.items(), key=lambda item: item[0][0]):
            means = " ".join(f"{mean:7.3f}" for mean in np.mean(numbers, axis=0))
            print(f"{epsilon:5g} {way:<20} {means}", flush=True)


if __name__ == "__main__":
    main()
