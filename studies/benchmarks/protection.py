"""How much less outliers lose, and what that costs: REPS against uniform weights at the same total (ε, δ).

For each dataset and budget, over five splits: utility (TSTR AUROC) of both, the ratio of the mean optimal
attack advantage 2 Φ(μᵢ/2) − 1 over the top decile of nearest-neighbour outliers, the scorer's recall of
that decile, the fraction of records above the threshold, and the distance of numeric columns. Everything is
charged; uniform weights pay for no threshold. For a trained model the advantage is that of its own account.

    python -m studies.benchmarks.protection --data-dir FOLDER
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass

import numpy as np

from repsynth.engine.local import LocalEngine
from repsynth.evaluation.points import Points
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from studies.paper.grid import EPSILONS
from studies.split import Split, load_split, points_of, train_outlyingness, tstr

REPEATS = {"sim": 2, "breast_cancer": 4, "adult": 1, "german_credit": 4}
"""The paper's datasets, and how often each budget is tried on them."""


@dataclass(frozen=True)
class Result:
    """One split, one budget."""

    uniform: float
    reps: float
    ratio: float
    recall: float
    flagged: float
    flagged_error: float
    distance: float


def measure(
    part: Split, top_decile: np.ndarray, epsilon: float, options: dict[str, object], *, model: str, declared: bool
) -> Result:
    rows = len(part.train)
    source = open_source(part.table)
    data = list(LocalEngine.open(source, part.schema).per_record())
    outcome = {}
    for name, chosen in (("uniform", {"weights": "uniform"}), ("reps", options)):
        settings = Settings.of(
            epsilon=epsilon, delta=1 / rows**2, public_rows=rows if declared else None, model=model, **chosen
        )
        release = run(make_plan(part.schema, settings), source)
        influence = np.concatenate([release.influence(batch) for batch in data])
        lost = release.privacy.loss.advantage_at(influence)[top_decile].mean()
        synthetic = points_of(release.sample(rows), part.schema)
        outcome[name] = (tstr(synthetic, part.test), lost, release, synthetic)
    release = outcome["reps"][2]
    scores = np.concatenate([release.score.of(batch) for batch in data])
    highest = scores >= np.quantile(scores, 0.9)
    return Result(
        uniform=outcome["uniform"][0],
        reps=outcome["reps"][0],
        ratio=outcome["reps"][1] / outcome["uniform"][1],
        recall=float(highest[top_decile].mean()),
        flagged=float((scores >= release.threshold.value).mean()),
        flagged_error=release.threshold.fraction_error,
        distance=kolmogorov(outcome["uniform"][3], part.train),
    )


def kolmogorov(synthetic: Points, real: Points) -> float:
    """Mean over numeric columns of the largest gap between the two distribution functions."""
    gaps = []
    for column in range(real.numbers.shape[1]):
        a, b = (np.sort(points.numbers[:, column]) for points in (synthetic, real))
        values = np.concatenate([a, b])
        above = np.searchsorted(a, values, "right") / len(a) - np.searchsorted(b, values, "right") / len(b)
        gaps.append(np.abs(above).max())
    return float(np.mean(gaps)) if gaps else float("nan")


def one_seed(task: tuple[str, int, argparse.Namespace]) -> list[tuple[float, Result]]:
    name, seed, arguments = task
    part = load_split(name, seed, arguments.data_dir)
    outlying = train_outlyingness(name, seed, arguments.data_dir)
    top_decile = outlying >= np.quantile(outlying, 0.9)
    options = {"weights": arguments.weights, "outlier_fraction": arguments.outlier_fraction}
    if arguments.weights == "hinge-exp":
        options["gamma"] = arguments.gamma
    options |= {"score_share": arguments.score_share, "threshold_share": arguments.threshold_share}
    options["scorer"] = arguments.scorer
    repeats = arguments.repeats * REPEATS[name]
    return [
        (
            epsilon,
            measure(
                part, top_decile, epsilon, options, model=arguments.model, declared=not arguments.measure_size
            ),
        )
        for epsilon in arguments.epsilons
        for _ in range(repeats)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--datasets", nargs="*", default=list(REPEATS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--epsilons", nargs="*", type=float, default=EPSILONS)
    parser.add_argument("--model", default="naive-bayes")
    parser.add_argument("--weights", default="targeted")
    parser.add_argument("--scorer")
    parser.add_argument("--gamma", type=float, default=1.0)
    parser.add_argument("--outlier-fraction", type=float)
    parser.add_argument("--score-share", type=float)
    parser.add_argument("--threshold-share", type=float)
    parser.add_argument("--measure-size", action="store_true", help="pay for the number of records, too")
    arguments = parser.parse_args()
    header = " ".join(f"{name:>9}" for name in ("epsilon", *Result.__dataclass_fields__, "change"))
    with ProcessPoolExecutor(max_workers=2) as pool:
        for name in arguments.datasets:
            print(f"\n{name}\n{header}")
            tasks = [(name, seed, arguments) for seed in range(arguments.seeds)]
            results = [pair for pairs in pool.map(one_seed, tasks) for pair in pairs]
            for epsilon in arguments.epsilons:
                rows = [asdict(result) for e, result in results if e == epsilon]
                means = {key: np.mean([row[key] for row in rows]) for key in rows[0]}
                means["change"] = means["reps"] - means["uniform"]
                print(" ".join(f"{value:9.3f}" for value in (epsilon, *means.values())), flush=True)


if __name__ == "__main__":
    main()
