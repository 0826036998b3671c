"""Which parts of the estimators pay? Each is switched off or replaced by the plainest alternative, noise paired.

Tables of `packaged.py`, at most 10,000 training records each, ε = 1, δ = 1/n², the number of records public. The
measures are those of `judge.py`. A change is that of switching the part off: where the part pays, the two-way
distance rises and AUROC falls.

    python -m studies.benchmarks.ablation --data-dir FOLDER --jobs 2
"""

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any
from unittest import mock

import numpy as np
from threadpoolctl import threadpool_limits

from repsynth.columns import adaptive_histogram, value_sampler
from repsynth.evaluation.points import records_of
from repsynth.io.sources import open_source
from repsynth.models import statistics
from repsynth.models.marginal import mechanism, pool, tree, weight_correction
from repsynth.models.statistics import Domain, LabelTables, NoisyTable
from repsynth.planning import plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.scoring import threshold
from studies.benchmarks.judge import measures, split_of
from studies.benchmarks.models import part_of

RESULT = Path(__file__).parent / "results" / "ablation.json"
TABLES = ("pension", "union", "computers", "bikes", "star", "default")
WEIGHTS = ("uniform", "default")
RECORDS, DRAWS = 10_000, 5


def plain_counts(stage: Any, domain: Any, name: str) -> statistics.Tables:
    return statistics.Tables(domain, domain.label_pairs, stage.score, stage.weights, name)


def one_factor(expected: list[np.ndarray], noisy: list[NoisyTable], rows: float) -> list[np.ndarray]:
    """James and Stein's factor for each table."""
    found = []
    for each, table in zip(expected, noisy, strict=True):
        rest, noise = table.counts / rows - each, float(np.sum(table.variance)) / rows**2
        factor = max(1 - noise / max(float((rest**2).sum()), 1e-300), 0.0)
        found.append(np.maximum(each + factor * rest, 0.02 * each + 1e-12))
    return found


def from_margins(stage: Any, domain: Any, measured: Any, _: tree.Tree) -> weight_correction.WeightCorrection:
    histograms = stage.histograms
    noisy = {
        i: NoisyTable(groups.sum_up(histograms.noisy(i)), groups.sum_up(histograms.variances(i)))
        for i, groups in enumerate(domain.groups[: domain.columns])
    }
    return weight_correction.correction_from_tables(stage, domain, measured, noisy)


GENERATOR = np.random.default_rng()


def at_random(line: value_sampler.Line, *_: Any) -> np.ndarray:
    return GENERATOR.random(len(line.records))


def random_levels(line: value_sampler.Line, *_: Any) -> np.ndarray:
    return GENERATOR.integers(0, 2**32, len(line.records), dtype=np.uint32)


SWITCHES: dict[str, tuple[str, str, list[tuple[Any, str, Any]]]] = {
    "label tables as differences": ("mst", "plain counts", [(LabelTables, "of", plain_counts)]),
    "mixture in shrinkage": ("mst", "one factor per table", [(m, "shrunk", one_factor) for m in (tree, pool)]),
    "even quotas": (
        "mst",
        "random",
        [(value_sampler.Line, "places", at_random), (value_sampler.Line, "round", random_levels)],
    ),
    "mean weights from model records": (
        "mst",
        "from margins",
        [(mechanism, "correction_from_model", from_margins)],
    ),
    "thresholds by label": ("mst", "one", [(threshold, "_tells_labels", lambda *_: False)]),
    "falling tails": (
        "mst",
        "cell by cell",
        [(adaptive_histogram, "with_tails", lambda counts, *_: np.maximum(counts, 0.0))],
    ),
    "later looks": ("mst", "coarse cells only", [(plan, "look_shares", lambda schema: {})]),
    "coarse pairs": ("aim", "none", [(Domain, "coarse_candidates", ())]),
    "further rounds": ("aim", "none (mst)", []),
}


def work(task: tuple[str, str, str | None, str, int, str | None]) -> dict[str, float]:
    table, model, part, weights, draw, data_dir = task
    split = part_of(split_of(table, draw, data_dir), RECORDS, draw)
    rows = split.train.rows
    chosen = {} if weights == "default" else {"weights": weights}
    name = "mst" if part == "further rounds" else model
    settings = Settings.of(epsilon=1.0, delta=1 / rows**2, public_rows=rows, model=name, **chosen)
    with threadpool_limits(1), ExitStack() as stack:
        for where, attribute, other in SWITCHES[part][2] if part else ():
            stack.enter_context(mock.patch.object(where, attribute, other))
        release = run(plan.make_plan(split.schema, settings), open_source(split.table), noise_seed=draw)
        made = records_of(release.sample(rows, seed=draw), split.schema)
    return measures(table, split, made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="the folder that packaged.py has filled")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--draws", type=int, default=DRAWS)
    asked = parser.parse_args()
    with ProcessPoolExecutor(max_workers=asked.jobs) as pool:

        def runs(model: str, part: str | None) -> list[dict[str, float]]:
            cells = product(TABLES, WEIGHTS, range(asked.draws))
            return list(pool.map(work, [(t, model, part, w, draw, asked.data_dir) for t, w, draw in cells]))

        whole = {model: runs(model, None) for model in ("mst", "aim")}
        rows = [row_of(part, whole[SWITCHES[part][0]], runs(SWITCHES[part][0], part)) for part in SWITCHES]
    note = (
        f"{', '.join(TABLES)}; uniform and default weights, {asked.draws} draws each. Changes when the part is "
        "switched off: a part pays if two-way distances rise or AUROC falls. Standard errors in brackets."
    )
    columns = ["part", "model", "replaced by", "two-way %", "LR × 1000", "boosting × 1000"]
    found = {
        "title": "Which parts pay",
        "command": "ablation",
        "note": note,
        "tables": [{"columns": columns, "rows": rows}],
    }
    RESULT.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for row in rows:
        print(" | ".join(row))


def row_of(part: str, whole: list[dict[str, float]], without: list[dict[str, float]]) -> list[str]:
    def entries() -> Iterator[str]:
        yield entry([100 * (b["2-way"] / a["2-way"] - 1) for a, b in zip(whole, without, strict=True)])
        for key in ("LR", "GB"):
            yield entry([1000 * (b[key] - a[key]) for a, b in zip(whole, without, strict=True)])

    return [part, SWITCHES[part][0], SWITCHES[part][1], *entries()]


def entry(values: list[float]) -> str:
    return f"{fmean(values):+.1f} ({stdev(values) / len(values) ** 0.5:.1f})"


if __name__ == "__main__":
    main()
