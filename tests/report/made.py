"""Releases that several tests of pages share; each is made once per process."""

import json
from functools import cache

import pyarrow as pa
from conftest import STAYS, make_stays

from repsynth import Release, datasets, parse_schema, synthesize
from repsynth.io.sources import open_source
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.run.run import run
from repsynth.schema import Schema

NASTY = [
    "</script><script>alert(1)</script>",
    'a"b',
    "it's",
    "[x]",
    "{{ 7 * 7 }}",
    "😀",
    "שלום",
    "a&b",
    "\\u003c",
    "__proto__",
]
ONE_ROW_EACH = 'person = {column = "patient", rows = 1}'


@cache
def sim_release(model: str = "naive-bayes") -> Release:
    sim = datasets.load("sim")
    return synthesize(sim.table, sim.schema, epsilon=2.0, delta=1e-6, model=model, public_rows=6000)


@cache
def stays_release(who: str = ONE_ROW_EACH) -> Release:
    schema = parse_schema(STAYS.replace(ONE_ROW_EACH, who))
    plan = make_plan(schema, Settings.of(epsilon=4.0, delta=1e-9, model="naive-bayes"))
    return run(plan, open_source(make_stays(400, 1)), noise_seed=1)


def nasty_schema() -> Schema:
    """A schema whose names and values are markup elsewhere."""
    values = json.dumps(NASTY, ensure_ascii=False)
    columns = "".join(
        f'[columns.{json.dumps(name, ensure_ascii=False)}]\ntype = "category"\nvalues = {values}\n'
        for name in NASTY
    )
    return parse_schema(f"one_row_per_person = true\nlabel = {json.dumps(NASTY[0])}\n{columns}")


def nasty_table(rows: int = 400) -> pa.Table:
    size = len(NASTY)
    return pa.table({name: [NASTY[i * (k + 1) % size] for i in range(rows)] for k, name in enumerate(NASTY)})


@cache
def nasty_release(model: str = "naive-bayes") -> Release:
    return synthesize(nasty_table(), nasty_schema(), epsilon=2.0, delta=1e-6, model=model)


def wide_schema() -> Schema:
    """200 columns, and a category of 3,000 values."""
    flags = "one_row_per_person = true\n" + "".join(f'[columns.c{i}]\ntype = "boolean"\n' for i in range(200))
    codes = [f"code {i}" for i in range(3000)]
    return parse_schema(f'{flags}[columns.code]\ntype = "category"\nvalues = {json.dumps(codes)}\n')
