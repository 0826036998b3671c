"""Structural zeros: a cell is ruled out where no pair of values of its groups obeys the rules, and only there."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth import parse_schema
from repsynth.columns.cells import Bins
from repsynth.columns.groups import NONE, Groups
from repsynth.data.record_rules import holds
from repsynth.data.records import MISSING, Records
from repsynth.data.sources import open_source
from repsynth.models.marginal import mechanism
from repsynth.models.marginal.tree import Tree
from repsynth.models.marginal.zeros import possible_cells
from repsynth.pipeline.run import run
from repsynth.planning.plan import make_plan
from repsynth.planning.settings import Settings
from repsynth.schema import Discrete, Numeric, Schema
from repsynth.schema.rules import row_condition

COLUMNS = """
one_row_per_person = true
columns.a = {type = "integer", min = -3, max = 8, special = [-9], missing = true}
columns.b = {type = "number", min = 0.0, max = 2.0, step = 0.5}
columns.c = {type = "category", values = ["x", "y", "z"], missing = true}
columns.d = {type = "boolean"}
columns.e = {type = "datetime", min = 2020-01-01, max = 2020-01-12}
columns.f = {type = "datetime", min = 2020-01-05, max = 2020-01-20, missing = true}
"""
ATOMS = {
    "ab": ["a < 2", "a >= b", "a + b <= 1", "a - b = 0", "b != 1", "a is missing", 'a in ["-9"]', "3 < a"],
    "ac": ['c = "x"', 'c in ["x", "z"]', "a < 0", "a is missing", "c is missing", 'c != "y"'],
    "cd": ['c = "z"', "d = true", "c is missing", 'c in ["x", "y"]'],
    "ef": ["e < f", "e >= f", 'e < "2020-01-04"', "f is missing", "e = f"],
}


def groups_of(column: Discrete | Numeric, cuts: list[int]) -> Groups:
    """Groups of neighbouring bins; special values and missing ones have their own."""
    bins = Bins.discrete(column) if isinstance(column, Discrete) else Bins.at(column, np.arange(column.steps + 1))
    first = bins.values if bins.starts is None else bins.numbers
    own = np.searchsorted(np.unique([c % first for c in cuts]), np.arange(first), side="right")
    own = np.unique(own, return_inverse=True)[1]
    special = own.max() + 1 + np.arange(bins.values - first)
    missing = [own.max() + 1 + len(special)] if column.missing else [NONE]
    return Groups(bins, np.concatenate([own, special, missing]).astype(np.int64))


def seen_by_trying(schema: Schema, one: Groups, other: Groups) -> np.ndarray:
    """In which cells a pair of values obeys, by trying all."""
    codes = []
    for groups in (one, other):
        column = groups.bins.column
        many = column.size if isinstance(column, Discrete) else column.positions
        codes.append(np.append(np.arange(many), [MISSING] * column.missing).astype(np.int64))
    pairs = [each.ravel() for each in np.meshgrid(*codes, indexing="ij")]
    names = (one.bins.column.name, other.bins.column.name)
    records = Records(rows=len(pairs[0]), codes=dict(zip(names, pairs, strict=True)))
    condition = row_condition(schema)
    assert condition is not None
    obeys = holds(condition, records, schema)
    found = np.zeros((one.count, other.count), dtype=np.bool_)
    found[one.of_codes(pairs[0][obeys]), other.of_codes(pairs[1][obeys])] = True
    return found


@given(data=st.data(), names=st.sampled_from(list(ATOMS)), cuts=st.lists(st.integers(0, 20), max_size=4))
def test_no_cell_is_ruled_out_in_which_a_row_can_be(data: st.DataObject, names: str, cuts: list[int]) -> None:
    atom = st.sampled_from(ATOMS[names])
    texts = st.recursive(
        atom,
        lambda inner: (
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})")
            | inner.map(lambda t: f"not ({t})")
        ),
        max_leaves=4,
    )
    rule = data.draw(texts)
    plain = parse_schema(COLUMNS)
    schema = Schema(one_row_per_person=True, columns=plain.columns, rules=_rules(rule))
    one, other = (groups_of(c, cuts) for c in schema.columns if c.name in names)  # type: ignore[arg-type]
    by_trying = seen_by_trying(schema, one, other)
    found = possible_cells(schema, one, other)
    found = np.ones_like(by_trying) if found is None else found
    assert (found | ~by_trying).all(), rule
    if rule in ATOMS[names]:  # a single comparison is decided exactly, but for gaps in a grid
        exact = " = " not in rule and "!=" not in rule
        assert not exact or np.array_equal(found, by_trying), rule


def _rules(rule: str):  # type: ignore[no-untyped-def]
    from repsynth.schema import RowRule

    return (RowRule(require=rule),)


def test_rules_of_other_columns_say_nothing() -> None:
    schema = Schema(one_row_per_person=True, columns=parse_schema(COLUMNS).columns, rules=_rules("a < b"))
    columns = {column.name: column for column in schema.columns}
    assert possible_cells(schema, groups_of(columns["a"], []), groups_of(columns["c"], [])) is None  # type: ignore[arg-type]
    assert possible_cells(parse_schema(COLUMNS), groups_of(columns["a"], []), groups_of(columns["b"], [])) is None  # type: ignore[arg-type]


STAYS = """
one_row_per_person = true
label = "smoker"
columns.start = {type = "integer", min = 0, max = 99}
columns.end = {type = "integer", min = 0, max = 99}
columns.kind = {type = "category", values = ["adult", "child"]}
columns.smoker = {type = "boolean"}
[[rules]]
require = "end >= start"
[[rules]]
forbid = 'kind = "child" and smoker = true'
"""


def stays(rows: int) -> pa.Table:
    rng = np.random.default_rng(2)
    start, child = rng.integers(0, 100, rows), rng.random(rows) < 0.3
    return pa.table(
        {
            "start": start,
            "end": np.minimum(start + rng.integers(0, 20, rows), 99),
            "kind": np.where(child, "child", "adult"),
            "smoker": ~child & (rng.random(rows) < 0.4),
        }
    )


@pytest.mark.parametrize("model", ["mst", "aim"])
def test_what_cannot_be_has_no_mass_and_fewer_records_break_a_rule(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> float:
        schema = parse_schema(STAYS)
        plan = make_plan(schema, Settings.of(epsilon=2.0, delta=1e-6, model=model))
        release = run(plan, open_source(stays(4000)), noise_seed=3)
        tree = release.sampler if isinstance(release.sampler, Tree) else release.sampler.tree  # type: ignore[attr-defined]
        kind = tree.columns[2]  # (labels, groups): a child is no smoker
        assert (kind[1, 1] < 1e-9) == zeros
        return release.support().broken

    zeros = True
    fewer = broken()
    monkeypatch.setattr(mechanism, "possible_cells", lambda *_: None)
    zeros = False
    assert fewer < 0.8 * broken()
