"""What more records buy: a simulated table in which pairs of columns say what neither of them says alone.

The label depends on two pairs of columns, each the product of two signs, and a little on a column by itself; two
further columns depend on pairs, too; the others are noise. A network without hidden units cannot say any of the
products. Boosting is trained on synthetic records and judged on fresh real ones (AUROC), beside boosting that was
trained on as many real ones. ε = 1, δ = 1/n² (1e-11 at least), weights uniform, seeded noise.

    python -m studies.benchmarks.hidden --rows 100000 1000000 --hidden 0 128 --epochs 4
"""

import argparse
import time
from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from threadpoolctl import threadpool_limits

from repsynth.data.sources import open_source
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Schema, schema_from_dict

LABEL = "y"
FRESH = 20_000
MOST = 100_000
"""Records that boosting is trained on at most."""
SMALLEST_DELTA = 1.01e-11
"""A training cannot be accounted for at less."""


def interactions(rows: int, seed: int, columns: int = 12) -> pa.Table:
    """So many columns and the label.

    >>> interactions(3, 0).column_names
    ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'z0', 'z1', 'z2', 'z3', 'z4', 'y']
    """
    generator = np.random.default_rng(seed)

    def one_of(values: str, probabilities: list[float] | None = None) -> np.ndarray:
        return generator.choice(list(values), rows, p=probabilities)

    def number() -> np.ndarray:
        return generator.normal(0, 1, rows).round(3)

    def either(logit: np.ndarray, one: str, other: str) -> np.ndarray:
        return np.where(generator.random(rows) < 1 / (1 + np.exp(-logit)), one, other)

    made = {"a": one_of("klmn"), "b": number(), "c": one_of("rst"), "d": number(), "e": number()}
    signs = {
        "a": np.where(made["a"] < "m", 1, -1),
        "b": np.where(made["b"] > 0, 1, -1),
        "c": np.where(made["c"] == "r", 1, -1),
        "d": np.where(made["d"] > 0, 1, -1),
    }
    made["f"] = either(2.0 * signs["a"] * signs["d"], "u", "v")
    made["g"] = either(0.8 * signs["b"] * signs["c"], "p", "q")
    for k in range(columns - len(made)):
        made[f"z{k}"] = number() if k % 2 else one_of("vwxyz")
    logit = 1.6 * signs["a"] * signs["b"] + 0.8 * signs["c"] * signs["d"] + 0.5 * made["e"]
    return pa.table({**made, LABEL: either(logit, "yes", "no")})


def schema_of(table: pa.Table) -> Schema:
    """Bounds and categories as they are simulated."""
    columns: dict[str, dict[str, object]] = {}
    for name in table.column_names:
        if pa.types.is_floating(table[name].type):
            columns[name] = {"type": "number", "min": -6, "max": 6}
        else:
            columns[name] = {"type": "category", "values": sorted(set(table[name].unique().to_pylist()))}
    return schema_from_dict({"one_row_per_person": True, "label": LABEL, "columns": columns})


def auroc(learn: pa.Table, fresh: pa.Table) -> float:
    """Of boosting on fresh records."""
    model = HistGradientBoostingClassifier(random_state=0, max_iter=60, early_stopping=False)
    model.fit(*_points(learn.slice(0, MOST)))
    points, labels = _points(fresh)
    return float(roc_auc_score(labels, model.predict_proba(points)[:, 1]))


def _points(table: pa.Table) -> tuple[np.ndarray, np.ndarray]:
    columns = []
    for name in table.column_names:
        values = table[name].to_numpy()
        if values.dtype.kind != "f":
            values = np.unique(values.astype(str), return_inverse=True)[1]
        columns.append(values.astype(float))
    points = np.stack(columns, axis=1)
    label = table.column_names.index(LABEL)
    return np.delete(points, label, axis=1), points[:, label]


def print_growth(sizes: Iterable[int], hidden: Iterable[int | None], epochs: float, seed: int) -> None:
    print("| rows | hidden units | AUROC | real | CPU s |\n|---|---|---|---|---|")
    for rows in sizes:
        table, fresh = interactions(rows, seed), interactions(FRESH, seed + 1_000)
        schema, real = schema_of(table), auroc(table, fresh)
        for units in hidden:
            settings = Settings.of(
                epsilon=1.0,
                delta=max(rows**-2.0, SMALLEST_DELTA),
                public_rows=rows,
                model="autoregressive",
                weights="uniform",
                epochs=epochs,
                hidden=units,
            )
            start = time.process_time()
            release = run(make_plan(schema, settings), open_source(table), noise_seed=seed)
            seconds = time.process_time() - start
            found = auroc(release.sample(min(rows, MOST), seed=seed), fresh)
            shown = "default" if units is None else units
            print(f"| {rows:,} | {shown} | {found:.3f} | {real:.3f} | {seconds:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 50_000, 100_000, 1_000_000])
    parser.add_argument("--hidden", type=int, nargs="+", help="default: as the model chooses")
    parser.add_argument("--epochs", type=float, default=15.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        print_growth(arguments.rows, arguments.hidden or [None], arguments.epochs, arguments.seed)


if __name__ == "__main__":
    main()
