"""Do our guesses (singling out, linking, inferring) count what Anonymeter counts, on the same tables?

Anonymeter needs numpy 1, so it runs in an environment of its own; tables and counts go through a folder.

    python -m studies.benchmarks.guesses ours guesses --data-dir FOLDER
    python3 -m venv other && other/bin/pip install anonymeter
    other/bin/python -m studies.benchmarks.guesses theirs guesses
    python -m studies.benchmarks.guesses show guesses

Of each table, 280 to 600 rows to learn from and as many others to compare with. Synthetic tables: the rows
themselves (`copy`), rows of neither (`strangers`), and tables of `mst` without noise and at ε = 1. Five rounds, at
most 400 guesses of each kind about either side. Anonymeter's distance is Gower's, ours Euclid's on standardised
numbers; both take three columns, five neighbours and a tolerance of 5 %.
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = ("singling out", "linking", "inferring")
TABLES = {"sim": 600, "breast_cancer": 280, "german_credit": 480, "adult": 600}
ROUNDS, GUESSES, COLUMNS, NEIGHBOURS = 5, 400, 3, 5


# Ours


def ours(folder: Path, data_dir: str | None) -> None:
    for name, rows in TABLES.items():
        for kind, made, victims in tables_of(name, rows, folder, data_dir):
            counts = count_ours(made, victims)
            (folder / f"{name}-{kind}-ours.json").write_text(json.dumps(counts))
            print(f"{name}, {kind}: {counts}", flush=True)


def tables_of(name: str, rows: int, folder: Path, data_dir: str | None) -> Iterator[tuple[str, Any, Any]]:
    """Write the tables; the synthetic ones by kind, with the people that guesses are about."""
    import numpy as np
    import pyarrow.csv as pacsv

    from repsynth.attacks.targets import choose_victims
    from repsynth.io.sources import open_source
    from repsynth.planning.plan import make_plan
    from repsynth.planning.settings import Settings
    from repsynth.run.run import run
    from studies.benchmarks.values import load

    data, schema = load(name, data_dir, True)
    order = np.random.default_rng(7).permutation(data.num_rows)
    parts = [data.take(order[i * rows : (i + 1) * rows]) for i in range(3)]
    members, others, strangers = parts if parts[2].num_rows > rows // 2 else (parts[0], parts[1], None)
    folder.mkdir(parents=True, exist_ok=True)
    columns = {column.name: column in schema.numeric for column in schema.learned}
    (folder / f"{name}.json").write_text(json.dumps(columns))
    victims = choose_victims(members, others, schema, targets=1, seed=0)
    made = {"copy": members} | ({} if strangers is None else {"strangers": strangers})
    for kind, budget in (("mst-bare", {"mu": 1e4}), ("mst-eps1", {"epsilon": 1.0, "delta": 1e-6})):
        plan = make_plan(schema, Settings.of(model="mst", weights="uniform", **budget))
        made[kind] = run(plan, open_source(members), noise_seed=1).sample(rows, seed=1)
    for kind, table in {"members": members, "others": others, **made}.items():
        pacsv.write_csv(table.select(list(columns)), folder / f"{name}-{kind}.csv")
    for kind, table in made.items():
        yield kind, table, victims


def count_ours(made: Any, victims: Any) -> dict[str, list[list[int]]]:
    """For each kind of guess: right ones and all, about members and about others."""
    import numpy as np

    from repsynth.attacks.anonymeter import make_guesses
    from repsynth.evaluation.points import records_of

    synthetic, present = records_of(made, victims.schema), np.ones(1, dtype=bool)
    rounds = [make_guesses(synthetic, victims, present, np.random.default_rng(k)) for k in range(ROUNDS)]
    counts = np.sum(rounds, axis=0)  # (kinds, sides, right and all)
    return dict(zip(KINDS, counts.tolist(), strict=True))


# Theirs


def theirs(folder: Path) -> None:
    import numpy as np
    import pandas as pd

    for name in TABLES:
        columns = json.loads((folder / f"{name}.json").read_text())
        types = {column: "float64" if number else "str" for column, number in columns.items()}
        tables = {
            path.stem.removeprefix(f"{name}-"): pd.read_csv(path, dtype=types, keep_default_na=False)
            for path in sorted(folder.glob(f"{name}-*.csv"))
        }
        members, others = tables.pop("members"), tables.pop("others")
        for kind, made in tables.items():
            np.random.seed(0)  # noqa: NPY002 (the package draws from numpy's global generator)
            counts = count_theirs(members, others, made, columns)
            (folder / f"{name}-{kind}-theirs.json").write_text(json.dumps(counts))
            print(f"{name}, {kind}: {counts}", flush=True)


def count_theirs(members: Any, others: Any, made: Any, columns: dict[str, bool]) -> dict[str, list[list[int]]]:
    import numpy as np
    from anonymeter.evaluators import LinkabilityEvaluator

    generator, names = np.random.default_rng(0), list(columns)
    people = min(GUESSES, len(members), len(others))
    found = {kind: np.zeros((2, 2), dtype=int) for kind in (*KINDS, "inferring, by the true value")}
    for _ in range(ROUNDS):
        found[KINDS[0]] += singled_out(members, others, made, generator)
        halves = [list(half) for half in np.array_split(generator.permutation(names), 2)]
        link = LinkabilityEvaluator(
            ori=members, syn=made, control=others, aux_cols=tuple(halves), n_attacks=people, n_neighbors=NEIGHBOURS
        )
        link.evaluate(n_jobs=1)
        linked = (link._attack_links.count_links(NEIGHBOURS), link._control_links.count_links(NEIGHBOURS))
        found[KINDS[1]] += [[hit, people] for hit in linked]
        for secret, number in columns.items():
            for side, table in enumerate((members, others)):
                sample = table.sample(max(people // len(names), 1))
                right = inferred(sample, made, [c for c in names if c != secret], secret, number)
                for kind, count in zip((KINDS[2], "inferring, by the true value"), right, strict=True):
                    found[kind][side] += [count, len(sample)]
    return {kind: counts.tolist() for kind, counts in found.items()}


def singled_out(members: Any, others: Any, made: Any, generator: Any) -> list[list[int]]:
    """By the package's own functions: its evaluator does not say how many statements it found."""
    import polars as pl
    from anonymeter.evaluators import singling_out_evaluator as package

    members, others, made = (pl.DataFrame(table).unique(maintain_order=True) for table in (members, others, made))
    statements = package.multivariate_singling_out_queries(
        df=made, n_queries=GUESSES, n_cols=COLUMNS, max_attempts=4000, rng=generator
    )
    right = (
        package._evaluate_queries_and_return_successful(df=side, queries=statements) for side in (members, others)
    )
    return [[len(some), len(statements)] for some in right]


def inferred(sample: Any, made: Any, known: list[str], secret: str, number: bool) -> tuple[int, int]:
    """Right guesses as the package counts them, and where 5 % are of the true value's magnitude."""
    import numpy as np
    from anonymeter.evaluators.inference_evaluator import evaluate_inference_guesses
    from anonymeter.neighbors.mixed_types_kneighbors import KNNInferencePredictor

    guesses = KNNInferencePredictor(data=made, columns=known, target_col=secret, n_jobs=1).predict(sample)
    true = sample[secret]
    counted = evaluate_inference_guesses(guesses=guesses, secrets=true, regression=number)
    if not number:
        return int(counted.sum()), int(counted.sum())
    apart, size = np.abs(guesses.to_numpy() - true.to_numpy()), np.abs(true.to_numpy())
    return int(counted.sum()), int((apart <= 0.05 * size).sum())


# Both


def show(folder: Path) -> None:
    heading = ("table", "synthetic", *KINDS)
    print(f"| {' | '.join(heading)} |\n{'|---' * len(heading)}|")
    for name in TABLES:
        for path in sorted(folder.glob(f"{name}-*-ours.json")):
            kind = path.stem.removeprefix(f"{name}-").removesuffix("-ours")
            mine, other = (
                json.loads((folder / f"{name}-{kind}-{who}.json").read_text()) for who in ("ours", "theirs")
            )
            other["inferring"] = (other["inferring"], other.pop("inferring, by the true value"))
            cells = [entry(mine[guess], other[guess]) for guess in KINDS]
            print(f"| {name} | {kind} | " + " | ".join(cells) + " |")


def entry(mine: list[list[int]], other: Any) -> str:
    """Members and others of ours, then of theirs; of inferring also by the true value."""
    several = other if isinstance(other, tuple) else (other,)
    return rates(mine) + "; " + ", ".join(rates(counts) for counts in several)


def rates(counts: list[list[int]]) -> str:
    return " / ".join(f"{100 * right / trials:.1f}" if trials else "-" for right, trials in counts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("ours", "theirs", "show"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data-dir")
    asked = parser.parse_args()
    if asked.what == "ours":
        ours(asked.folder, asked.data_dir)
    elif asked.what == "theirs":
        theirs(asked.folder)
    else:
        show(asked.folder)


if __name__ == "__main__":
    main()
