"""Several rows per person: what k = 1, 3 and 10 rows that count bring and cost, and what rows as persons would.

Two tables. *Visits*: 20,000 simulated patients with 1 to 200 stays each, a heavy tail; who comes often is older
and sicker, so that rows and persons have other distributions. *Adult by months*: the people of Adult with 1 to 200
months each, in which hours change. Seven in ten persons are synthesized, the others are the holdout. A synthetic
table is compared with one row of each person (what a person is like) and with all rows (what a visit is like).

    python -m studies.benchmarks.persons [--data-dir DIR] [--model mst] [--epsilon 1] [--seeds 3 4 5]
    python -m studies.benchmarks.persons --counting 10000000 [--in-parts]
"""

import argparse
import dataclasses
import resource
import time
import warnings

import numpy as np
import pyarrow as pa

from repsynth import Budget, Schema, datasets, parse_schema, synthesize
from repsynth.engine.local import Persons
from repsynth.engine.persons import EncodePersons, Settle, SplitRows
from repsynth.evaluation.fidelity import measure_distances
from repsynth.evaluation.points import records_of
from repsynth.schema import Id, Person
from studies.benchmarks.values import Split, predictions

warnings.simplefilter("ignore")
MEASURES = ("boosting", "1-way", "2-way")

VISITS = parse_schema(
    """
one_row_per_person = true
label = "icu"
columns.patient = {type = "id"}
columns.age = {type = "integer", min = 0, max = 100}
columns.ward = {type = "category", values = ["surgery", "medicine", "birth", "eyes", "heart", "kidneys"]}
columns.insured = {type = "boolean"}
columns.days = {type = "integer", min = 0, max = 365}
columns.cost = {type = "number", min = 0, max = 1000000, decimals = 0}
columns.icu = {type = "boolean"}
"""
)


def rows_each(persons: int, generator: np.random.Generator) -> np.ndarray:
    return np.clip(np.ceil(generator.pareto(1.2, persons)), 1, 200).astype(np.int64)


def visits(seed: int, persons: int = 20_000) -> pa.Table:
    generator = np.random.default_rng(seed)
    times = rows_each(persons, generator)
    ill = np.log(times) + generator.normal(0, 1, persons)
    who = np.repeat(np.arange(persons), times)
    ages = np.clip(generator.normal(45 + 8 * ill, 15), 0, 100).astype(int)[who]
    wards = np.array(["surgery", "medicine", "birth", "eyes", "heart", "kidneys"])
    ward = wards[np.clip((ill[who] + generator.normal(1.5, 1.5, len(who))).astype(int), 0, 5)]
    days = np.clip(generator.lognormal(0.5 + 0.2 * ill[who], 0.8), 0, 365).astype(int)
    level = -4 + 0.03 * ages + 0.5 * ill[who] + 1.0 * (ward == "heart") + 0.1 * np.sqrt(days)
    icu = generator.random(len(who)) < 1 / (1 + np.exp(-level))
    cost = np.clip(generator.lognormal(6, 0.5, len(who)) * (1 + days) * (1 + 3 * icu), 0, 1e6).round()
    insured = (generator.random(persons) < 0.8)[who]
    return pa.table(
        {"patient": who, "age": ages, "ward": ward, "insured": insured, "days": days, "cost": cost, "icu": icu}
    )


def adult_by_months(seed: int, data_dir: str | None) -> tuple[pa.Table, Schema]:
    adult, generator = datasets.load("adult", data_dir=data_dir), np.random.default_rng(seed)
    who = np.repeat(np.arange(adult.table.num_rows), rows_each(adult.table.num_rows, generator))
    table = adult.table.take(pa.array(who))
    hours = np.array([float(text) for text in table["hours-per-week"].to_pylist()])
    changed = np.clip(np.rint(hours + generator.normal(0, 3, len(who))), 1, 99).astype(int)
    place = table.column_names.index("hours-per-week")
    table = table.set_column(place, "hours-per-week", pa.array(changed)).append_column("who", pa.array(who))
    return table, dataclasses.replace(adult.schema, columns=(*adult.schema.columns, Id(name="who")))


def halves(table: pa.Table, ids: str, seed: int) -> tuple[pa.Table, pa.Table]:
    """The rows of seven in ten persons, and those of the others."""
    who = table[ids].to_numpy()
    kept = np.random.default_rng(100 + seed).random(who.max() + 1) < 0.7
    return table.filter(pa.array(kept[who])), table.filter(pa.array(~kept[who]))


def once(table: pa.Table, ids: str, seed: int) -> pa.Table:
    """One row of each person, at random."""
    order = np.random.default_rng(200 + seed).permutation(table.num_rows)
    first = np.unique(table[ids].to_numpy()[order], return_index=True)[1]
    return table.take(pa.array(order[first]))


def compare(name: str, table: pa.Table, schema: Schema, ids: str, seed: int, asked: argparse.Namespace) -> None:
    train, holdout = halves(table, ids, seed)
    each = np.bincount(train[ids].to_numpy())
    plain = dataclasses.replace(schema, person=None, one_row_per_person=True)
    for rows in (None, 1, 3, 10):
        person = None if rows is None else Person(column=ids, rows=rows)
        release = synthesize(
            train,
            dataclasses.replace(schema, person=person, one_row_per_person=False),
            epsilon=asked.epsilon,
            delta=1e-9,
            model=asked.model,
        )
        synthetic = release.sample(40_000, seed=seed)
        found = []
        for real, other in ((once(train, ids, seed), once(holdout, ids, seed)), (train, holdout)):
            some = np.random.default_rng(seed).permutation(real.num_rows)[:30_000]
            records = [records_of(each, plain) for each in (real.take(pa.array(some)), other, synthetic)]
            predicted = predictions(name, Split(plain, real, records[0], records[1]), records[2], boosted=True)
            distances = measure_distances(records[0], records[2], plain)
            found += [predicted["GB"], distances.mean_one_way, distances.mean_two_way]
        worst = asked.epsilon
        if rows is None:
            whole = Budget.approximate(epsilon=asked.epsilon, delta=1e-9).mu * int(each.max())
            worst = Budget.gaussian(mu=whole, delta=1e-9).epsilon
        what = "one row = one person" if rows is None else f"k = {rows}"
        print(f"{name:16} seed {seed}  {what:22} eps of a person with {each.max()} rows {worst:10.2f}   ", end="")
        print("  ".join(f"{value:.3f}" for value in found), flush=True)


def count_in_parts(rows: int) -> None:
    """What counting takes where each 2²¹ rows are a part of a cluster, all of them in this process."""
    schema = dataclasses.replace(
        parse_schema("one_row_per_person = true\ncolumns.who = {type = 'id'}\ncolumns.on = {type = 'boolean'}"),
        person=Person(column="who"),
    )
    assert schema.person is not None
    encode = EncodePersons(schema, schema.person, bytes(32))
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    sizes = [min(2**21, rows - k) for k in range(0, rows, 2**21)]
    messages = []
    for number, size in enumerate(sizes):
        ids = (np.arange(number * 2**21, number * 2**21 + size) * 7919) % (2 * rows)
        table = pa.table({"who": pa.array(ids), "on": np.ones(size, dtype=np.bool_)})
        messages.append(SplitRows(len(sizes))(encode.of(table.to_batches(max_chunksize=2**16)), number))
    read = time.process_time()
    settle = Settle(schema, 1, len(sizes))
    kept = [settle([each.pop(0) for each in messages], place) for place in range(len(sizes))]
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    total = sum(part.rows for each in kept for part in each.chunks)
    print(f"{total:,} rows in {len(sizes)} parts: read, encoded and split in ", end="")
    print(f"{read - start:.1f} CPU s, counted in {time.process_time() - read:.1f} CPU s, {more:,.0f} MB")


def count(rows: int) -> None:
    """What counting takes beside reading the same ids."""
    ids = [
        pa.array((np.arange(k, k + 10**6) * 7919) % (2 * rows)).cast(pa.large_string())
        for k in range(0, rows, 10**6)
    ]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    persons = Persons.counted(ids)
    counted = time.process_time()
    for column in ids:
        persons.see(persons.find(column))
    found = time.process_time()
    persons.check()
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(
        f"{rows:,} rows, {persons.count:,} persons: counted in {counted - start:.1f} CPU s, found again in ",
        end="",
    )
    print(f"{found - counted:.1f} CPU s, {more:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--model", default="mst")
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--counting", type=int)
    parser.add_argument("--in-parts", action="store_true")
    asked = parser.parse_args()
    if asked.counting:
        (count_in_parts if asked.in_parts else count)(asked.counting)
        return
    print("against one row of each person, then against all rows:", ", ".join(MEASURES))
    for seed in asked.seeds:
        compare("visits", visits(seed), VISITS, "patient", seed, asked)
        table, schema = adult_by_months(seed, asked.data_dir)
        compare("Adult by months", table, schema, "who", seed, asked)


if __name__ == "__main__":
    main()
