"""Codes of thousands of values: what a public hierarchy brings over the rarest together, and over nothing.

Simulated patients: 3,000 codes in 60 families of 50 by their first two characters. A family decides age, ward,
costs and how likely the label is; codes within a family are as frequent as Zipf's law has it and add a little.

    python -m studies.benchmarks.codes [--rows 20000] [--epsilon 1] [--tables 5 6 7]

With --nist: 5,000 records of NIST's excerpt, whose 264 industry codes (INDP) have public sectors (INDP_CAT).

    python -m studies.benchmarks.codes --nist FOLDER
"""

import argparse
import json
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pyarrow as pa
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from repsynth import Schema, parse_schema, synthesize
from repsynth.arrays import Floats, Ints
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import records_of
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import schema_from_dict, schema_to_dict
from studies.benchmarks.values import NIST_FILE, load_nist

RESULT = Path(__file__).parent / "results" / "codes.json"

FAMILIES, EACH = 60, 50
NAMES = [f"{chr(65 + f // 10)}{f % 10}{c:02}" for f in range(FAMILIES) for c in range(EACH)]
WAYS = {"nothing": "", "rarest together": 'rarest = "together"', "prefix": "prefix = 2"}
WARDS = ("north", "south", "east", "west", "day", "night")


def schema_of(way: str) -> Schema:
    return parse_schema(
        f"""
one_row_per_person = true
label = "readmitted"
[columns.code]
type = "category"
values = {NAMES}
{WAYS[way]}
[columns.age]
type = "integer"
min = 0
max = 99
[columns.ward]
type = "category"
values = {list(WARDS)}
[columns.cost]
type = "number"
min = 0
max = 100
[columns.smoker]
type = "boolean"
[columns.readmitted]
type = "boolean"
"""
    )


def simulate(rows: int, seed: int, table: int) -> pa.Table:
    """Rows of one population; `table` says which, `seed` which of its rows."""
    world, draw = np.random.default_rng(1000 + table), np.random.default_rng(10_000 + seed)
    frequent = world.dirichlet(np.full(FAMILIES, 1.0))
    within = np.array([world.permutation(1 / np.arange(1, EACH + 1)) for _ in range(FAMILIES)])
    within /= within.sum(axis=1, keepdims=True)
    age, cost, sick = (
        world.normal(50, 15, FAMILIES),
        world.normal(50, 15, FAMILIES),
        world.normal(0, 1.2, FAMILIES),
    )
    wards, own = world.dirichlet(np.full(len(WARDS), 0.7), FAMILIES), world.normal(0, 0.3, (FAMILIES, EACH))
    family = draw.choice(FAMILIES, rows, p=frequent)
    level = draw.random(rows)
    code = (level[:, None] > np.cumsum(within, axis=1)[family]).sum(axis=1).clip(0, EACH - 1)
    ages = np.clip(draw.normal(age[family], 12), 0, 99).astype(int)
    ward = (draw.random(rows)[:, None] > np.cumsum(wards, axis=1)[family]).sum(axis=1).clip(0, len(WARDS) - 1)
    smoker = draw.random(rows) < 0.3
    risk = sick[family] + own[family, code] + 0.02 * (ages - 50) + 0.5 * smoker - 0.3
    return pa.table(
        {
            "code": np.array(NAMES)[family * EACH + code],
            "age": ages,
            "ward": np.array(WARDS)[ward],
            "cost": np.clip(draw.normal(cost[family], 10), 0, 100).round(2),
            "smoker": smoker,
            "readmitted": draw.random(rows) < 1 / (1 + np.exp(-risk)),
        }
    )


def measures(real: pa.Table, fresh: pa.Table, made: pa.Table) -> dict[str, float]:
    """Half the sum of differences, of pairs of a family with another column and of codes; and predictions."""
    pairs = []
    for name in ("age", "ward", "cost", "readmitted"):
        counts = [np.bincount(_family(t) * 10 + _tenth(t, name), minlength=FAMILIES * 10) for t in (fresh, made)]
        pairs.append(_distance(*counts))
    codes = [np.bincount([PLACE[c] for c in t["code"].to_pylist()], minlength=len(NAMES)) for t in (fresh, made)]
    x, y = _features(made), made["readmitted"].to_numpy()
    fitted = LogisticRegression(max_iter=300).fit(x, y)
    auroc = roc_auc_score(fresh["readmitted"].to_numpy(), fitted.predict_proba(_features(fresh))[:, 1])
    return {
        "pairs with family": float(np.mean(pairs)),
        "codes": _distance(*codes),
        "AUROC by family": float(auroc),
    }


PLACE = {name: place for place, name in enumerate(NAMES)}


def _distance(one: Ints, other: Ints) -> float:
    return float(0.5 * np.abs(one / one.sum() - other / other.sum()).sum())


def _family(table: pa.Table) -> Ints:
    return np.array([PLACE[code] // EACH for code in table["code"].to_pylist()])


def _tenth(table: pa.Table, name: str) -> Ints:
    cells = table[name].to_numpy(zero_copy_only=False)
    if name == "ward":
        return np.array([WARDS.index(cell) for cell in cells])
    return np.clip(cells.astype(float) // (1 if name == "readmitted" else 10), 0, 9).astype(int)


def _features(table: pa.Table) -> Floats:
    number = (table["age"].to_numpy().astype(float) - 50) / 20
    return np.column_stack([number, table["smoker"].to_numpy(), np.eye(FAMILIES)[_family(table)]])


def industries(data_dir: str, draws: int = 5) -> Iterator[list[str]]:
    """Yield model, hierarchy, and distances with standard errors, for uniform weights."""
    table, schema = load_nist(Path(data_dir) / NIST_FILE, special=True)
    sector = dict(zip(table["INDP"].to_pylist(), table["INDP_CAT"].to_pylist(), strict=True))
    table = table.take(np.random.default_rng(0).permutation(table.num_rows)[:5_000]).drop_columns(["INDP_CAT"])
    ways = {"nothing": {}, "prefix = 2": {"prefix": 2}, "parent = INDP_CAT": {"parent": sector}}
    for (way, declared), model in product(ways.items(), ("mst", "aim", "naive-bayes")):
        public = schema_to_dict(schema)
        del public["columns"]["INDP_CAT"]
        public["columns"]["INDP"] |= declared
        given = schema_from_dict(public)
        real, found = records_of(table, given), []
        for seed in range(draws):
            chosen = {"epsilon": 1.0, "delta": 1 / real.rows**2, "public_rows": real.rows, "weights": "uniform"}
            plan = make_plan(given, Settings.of(model=model, **chosen))
            made = run(plan, open_source(table), noise_seed=seed).sample(real.rows, seed=seed)
            distances = measure_distances(real, records_of(made, given), given)
            pairs = [distance for names, distance in distances.two_way.items() if "INDP" in names]
            sectors = [
                np.unique([sector[code] for code in t["INDP"].to_pylist()], return_counts=True)
                for t in (table, made)
            ]
            one, other = (dict(zip(*counts, strict=True)) for counts in sectors)
            apart = sum(abs(one.get(name, 0) - other.get(name, 0)) for name in one | other) / real.rows / 2
            found.append((distances.one_way["INDP"], apart, fmean(pairs), distances.mean_two_way))
        yield [model, way, *(f"{fmean(v):.3f} ({stdev(v) / draws**0.5:.3f})" for v in zip(*found, strict=True))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--tables", type=int, nargs="+", default=[5, 6, 7])
    parser.add_argument("--models", nargs="+", default=["naive-bayes", "mst", "aim"])
    parser.add_argument("--nist", metavar="FOLDER", help="industry codes instead, to results/codes.json")
    options = parser.parse_args()
    if options.nist:
        store(list(industries(options.nist)))
        return
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    for table in options.tables:
        real, fresh = (simulate(options.rows, 10 * table + k, table) for k in (0, 1))
        found.setdefault(("two real tables", ""), []).append(measures(real, fresh, real))
        for model in options.models:
            for way in WAYS:
                start = time.process_time()
                release = synthesize(real, schema_of(way), epsilon=options.epsilon, delta=1e-9, model=model)
                seen = measures(real, fresh, release.sample(options.rows, seed=1))
                found.setdefault((model, way), []).append(seen | {"CPU s": time.process_time() - start})
    for (model, way), runs in found.items():
        means = {key: np.mean([run[key] for run in runs]) for key in runs[0]}
        print(f"{model:16} {way:16}", "  ".join(f"{key} {mean:.3f}" for key, mean in means.items()))


def store(rows: list[list[str]]) -> None:
    headings = [
        "model",
        "declared",
        "one-way, code",
        "one-way, sector",
        "two-way, pairs of the code",
        "two-way, all",
    ]
    note = "NIST’s excerpt, 5,000 records, 224 codes in use, ε = 1, uniform weights, five draws (standard error)."
    found = {"title": "Codes with a public hierarchy", "command": "codes --nist FOLDER", "note": note}
    text = json.dumps(found | {"tables": [{"columns": headings, "rows": rows}]}, indent=1, ensure_ascii=False)
    RESULT.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
