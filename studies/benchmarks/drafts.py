"""What it costs that nobody wrote a schema: tables made with a measured schema beside those with one by hand.

For each table and each ε of the draft: how many columns it found, the measures of `judge`, and what the draft and
the run cost together. The run has ε = 1 in all cases, so a measured schema comes on top.

    python -m studies.benchmarks.drafts --data-dir FOLDER --splits 3
"""

import argparse
from collections.abc import Iterator

import numpy as np

from repsynth import measure_schema
from repsynth.evaluation.points import records_of
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Id, Schema, parse_schema
from studies.benchmarks.judge import TABLES, measures, split_of
from studies.benchmarks.values import Split

FIRST = 200
SHOWN = ("LR", "GB", "1-way", "2-way")


def schemas(split: Split, epsilons: list[float]) -> Iterator[tuple[str, Schema, str]]:
    """The schema by hand, then one measured at each ε, with how much of it was found."""
    yield "by hand", split.schema, ""
    for epsilon in epsilons:
        rows = split.table.select([column.name for column in split.schema.columns])
        draft = measure_schema(rows, epsilon=epsilon, delta=1e-10, label=split.schema.label)
        schema = parse_schema(draft.text) if not draft.warnings else None
        if schema is None:
            yield f"ε = {epsilon:g}", split.schema, "label or all columns not found"
            continue
        learned = sum(not isinstance(column, Id) for column in schema.columns)
        yield f"ε = {epsilon:g}", schema, f"{learned} of {len(schema.columns)} columns"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[0.2, 1.0])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--model", default="mst")
    options = parser.parse_args()
    print("| table | schema | found | " + " | ".join(SHOWN) + " | ε in all |")
    print("|---" * (4 + len(SHOWN)) + "|")
    for table in options.tables:
        found: dict[str, list[dict[str, float]]] = {}
        said: dict[str, str] = {}
        for k in range(options.splits):
            split = split_of(table, FIRST + k, options.data_dir)
            for name, schema, note in schemas(split, options.epsilons):
                if note.startswith("label"):
                    said.setdefault(name, note)
                    continue
                said[name] = note
                settings = Settings.of(epsilon=1.0, delta=min(split.train.rows**-2.0, 1e-6), model=options.model)
                source = open_source(split.table.select([column.name for column in schema.columns]))
                release = run(make_plan(schema, settings), source)
                made = records_of(release.sample(split.train.rows, seed=k), split.schema)
                result = measures(table, split, made) | {"ε": release.privacy.epsilon}
                found.setdefault(name, []).append(result)
        for name, note in said.items():
            runs = found.get(name, [])
            note += f" (in {len(runs)} of {options.splits} runs)" if len(runs) < options.splits else ""
            cells = [f"{np.mean([each[key] for each in runs]):.3f}" if runs else "" for key in (*SHOWN, "ε")]
            print(f"| {table} | {name} | {note} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
