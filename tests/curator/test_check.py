"""The check: every cell is counted as `encode` reads it, in one pass, and what to declare is said."""

import json
import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ALL_TYPES, make_people
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import schemas, tables

import repsynth
from repsynth.curator.check import ColumnCheck, FrequentTexts, IdTally, RowLimit, check_table
from repsynth.errors import DataError
from repsynth.io.encode import encode_batch
from repsynth.io.records import MISSING
from repsynth.io.source import Source
from repsynth.schema import Numeric, Schema, parse_schema


def checked(cells: Sequence[object], declared: str, *, label: bool = False) -> ColumnCheck:
    """The check of one column beside another."""
    text = "one_row_per_person = true\n" + ('label = "x"\n' if label else "")
    text += f"columns.x = {{{declared}}}\ncolumns.y = {{type = 'boolean'}}\n"
    table = pa.table({"x": cells, "y": [True, False] * (len(cells) // 2) + [True] * (len(cells) % 2)})
    return check_table(table, parse_schema(text)).columns[0]


def test_numbers() -> None:
    column = checked(
        ["5", "N", "N", "", "-3", "12", "0.5", "7", "-9", "-9"], 'type="integer", min=0, max=9, special=[-9]'
    )
    assert (column.missing, column.unreadable, column.special) == (0.1, 0.2, 0.2)
    assert (column.below, column.above, column.rounded) == (0.1, 0.1, 0.1)
    assert column.findings == (
        "10.0 % of the cells are empty, but missing is not declared: no synthetic cell will be; "
        "declare missing = true",
        '20.0 % of the cells are "N": add special = ["N"]',
        "10.0 % of the cells are below min and will be cut to it: lower min, to what is publicly known",
        "10.0 % of the cells are above max and will be cut to it: raise max, to what is publicly known",
        "10.0 % of the cells are not whole and will be rounded: make it a number to keep them",
    )


def test_rows_that_break_a_rule_are_counted() -> None:
    columns = "".join(f'columns.{name} = {{type = "integer", min = 0, max = 20}}\n' for name in "abc")
    rules = (
        '[[rules]]\nrequire = "a <= b"\n[[rules]]\nforbid = "a > 9"\n[[rules]]\ncolumn = "c"\nequals = "a + b"\n'
    )
    schema = parse_schema("one_row_per_person = true\n" + columns + rules)
    table = pa.table({"a": [1, 2, 3, 4], "b": [3, 1, 2, 4], "c": [4, 3, 6, 8]})
    assert check_table(table, schema).findings == (
        "50.0 % of the rows (2) break rule 1 (require a <= b), which no synthetic row will: "
        "correct the rule or the data",
        "25.0 % of the rows (1) break rule 3 (c equals a + b), which no synthetic row will: "
        "correct the rule or the data",
    )


@pytest.mark.parametrize(
    ("cells", "declared", "finding"),
    [
        (["1", "2", "NA", "n/a"], "type='integer', min=0, max=9", "(25.0 %): declare missing = true"),
        (["1", "2", "x", None], "type='integer', min=0, max=9, missing=true", 'add special = ["x"]'),
        (["a", "b", "c", "c"], "type='category', values=['a', 'b']", '50.0 % of the cells are "c", not declared'),
        (["yes", "no", "perhaps", "no"], "type='boolean'", "make it a category"),
        (["$1,200", "$7", "$9", "3"], "type='number', min=0, max=9999", 'set thousands = ",", prefix = "$"'),
        (["3,5", "4,5", "5,5", "6"], "type='number', min=0, max=9", 'set decimal = ","'),
        (
            ["31.01.2020", "28.02.2020", "05.03.2021"],
            "type='datetime', min=2020-01-01, max=2022-01-01",
            '"%d.%m.%Y"',
        ),
        (
            ["2020-01-31", "2020-02-28"],
            "type='datetime', min=2020-01-01, max=2022-01-01, dates='%d.%m.%Y'",
            "no dates",
        ),
        (["2020-01-31T10:00", "2020-02-28"], "type='datetime', min=2020-01-01, max=2022-01-01", "time of day"),
        (["b", "c", "d"], "type='integer', min=0, max=9", 'no cell is a number; most are like "b"'),
        (["1", "1", "1"], "type='integer', min=0, max=9", "one value only"),
        (["1", "2", "3"], "type='number', min=0, max=1e6", "500,000 times as wide as the data: fine for privacy"),
        (["1.25", "2", "3"], "type='number', min=0, max=9, decimals=1", "more decimals than declared"),
        (["1", "2", "3"], "type='integer', min=0, max=8, step=2", "no whole number of steps"),
    ],
)
def test_what_to_declare(cells: list[str | None], declared: str, finding: str) -> None:
    assert finding in " | ".join(checked(cells, declared).findings)


@pytest.mark.parametrize(
    ("cells", "declared"),
    [
        (["1", "9", "5"], "type='integer', min=0, max=9"),
        ([1.5, None, 3.0], "type='number', min=0, max=9, missing=true"),
        (["1,200.50", "3"], "type='number', min=0, max=9999, thousands=',', decimals=2"),
        (["a", "", "b"], "type='category', values=['a', 'b'], missing=true"),
        (["a", "?", "b", "?"], "type='category', values=['a', 'b'], missing=true"),
        (["Yes", "0", "true"], "type='boolean'"),
        (["2020-01-01", "2021-12-31"], "type='datetime', min=2020-01-01, max=2021-12-31"),
        (["a", "b", "c"], "type='id'"),
        (["0.1", "0.3", "0.7"], "type='number', min=0, max=1, step=0.1"),
    ],
)
def test_nothing_is_said_where_all_is_well(cells: list[object], declared: str) -> None:
    column = checked(cells, declared)
    assert column.findings == ()
    assert (column.unreadable, column.below, column.above, column.rounded) == (0, 0, 0, 0)


def test_rare_cells_are_shown_by_an_example() -> None:
    cells = [str(i % 50) for i in range(1000)] + ["forty", "a few"]
    (finding,) = checked(cells, "type='integer', min=0, max=49").findings
    assert finding.startswith("0.2 % of the cells are no number, such as")
    assert finding.endswith("declare missing = true")


def test_a_label_must_be_whole_and_varied() -> None:
    declared = "type='category', values=['a', 'b']"
    assert "50.0 % of the labels" in checked(["a", "b", "", "c"], declared, label=True).findings[0]
    assert "one value only: choose another" in checked(["a", "a"], declared, label=True).findings[0]


def test_ids_that_repeat() -> None:
    finding = checked(["p1", "p2", "p1", "p1"], "type='id'").findings[0]
    assert "2 different values in 4 rows, one of them in 3 rows" in finding
    assert "with ε = 1 at δ = 1e-09 for a row, a person with 3 rows has ε = 3.2," in finding


def test_a_person_s_epsilon_is_that_of_all_rows_at_the_same_delta() -> None:
    """Sixteen rows are 16 times the μ, which is more than 16 times the ε."""
    (finding,) = checked(["p1"] * 16 + ["p2"], "type='id'").findings
    assert "16 rows has ε = 21.2," in finding


def test_many_ids_are_estimated() -> None:
    ids = IdTally()
    for start in range(0, 60_000, 10_000):
        ids.add(pa.array([f"person {i // 3}" for i in range(start, start + 10_000)]))
    assert not ids.exact
    assert abs(ids.distinct - 20_000) < 2_000  # seven standard deviations
    assert (ids.cells, ids.most) == (60_000, 3)
    once = IdTally()
    once.add(pa.array(np.arange(60_000)))
    assert once.most == 1
    assert once.distinct <= 60_000


PERSONS = """
person = {column = "who", rows = 2}
columns.who = {type = "id"}
columns.born = {type = "integer", min = 0, max = 9}
columns.stay = {type = "integer", min = 0, max = 99}
"""


def test_persons_are_described(tmp_path: Path) -> None:
    who = ["a"] * 4 + ["b", "c", None, ""]
    table = pa.table({"who": who, "born": [1, 1, 1, 1, 2, 3, 4, 5], "stay": list(range(8))})
    found = check_table(table, parse_schema(PERSONS)).persons
    assert found is not None
    assert (found.column, found.persons, found.median_rows, found.p99_rows, found.max_rows) == ("who", 5, 1, 4, 4)
    assert found.constant == ("born",)
    assert found.limits == (RowLimit(1, 0.2, 0.375), RowLimit(2, 0.2, 0.25))
    pq.write_table(table.slice(0, 0), tmp_path / "none.parquet")
    none = check_table(tmp_path / "none.parquet", parse_schema(PERSONS)).persons
    assert none is not None
    assert (none.persons, none.max_rows) == (0, 0)


def test_the_persons_of_a_large_table_are_counted_exactly() -> None:
    """Over several batches, with more persons than those whose columns are compared."""
    rng = np.random.default_rng(1)
    who = rng.permutation(np.append(np.repeat(np.arange(30_000), 2), [7] * 38))
    table = pa.table({"who": who, "born": who % 10, "stay": rng.integers(0, 99, len(who))})
    batches = pa.Table.from_batches(table.to_batches(max_chunksize=7_000))
    found = check_table(batches, parse_schema(PERSONS)).persons
    assert found is not None
    assert (found.persons, found.median_rows, found.p99_rows, found.max_rows) == (30_000, 2, 2, 40)
    assert found.constant == ("born",)
    assert found.limits[1] == RowLimit(2, 1 / 30_000, pytest.approx(38 / 60_038))


def test_frequent_texts_survive_any_number_of_rare_ones() -> None:
    texts = FrequentTexts()
    for start in range(0, 50_000, 5_000):
        texts.add(pa.array([f"odd {i}" for i in range(start, start + 5_000)] + ["N"] * 1_000))
    assert len(texts.counts) <= 2_000
    ((first, count),) = texts.counts.most_common(1)
    assert first == "N"
    assert 9_000 < count <= 10_000


def test_rows_that_are_none_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"x,y\n1,yes\n2\n3,no,7\n4,Gen\xe8ve\n")
    schema = parse_schema(
        "one_row_per_person = true\n"
        "columns.x = {type='integer', min=0, max=9}\ncolumns.y = {type='boolean', missing=true}"
    )
    result = check_table(tmp_path / "t.csv", schema)
    assert (result.rows, result.dropped_rows, result.publishable) == (2, 2, False)
    assert "2 rows of the file (50.0 %)" in result.findings[0]
    assert "1 cell with bytes that are no text" in " ".join(result.columns[1].findings)


def test_a_draft_may_be_checked_and_is_called_one() -> None:
    schema = parse_schema("confirmed = false\n" + ALL_TYPES)
    assert "is a draft" in check_table(make_people(50), schema).findings[0]


@pytest.mark.parametrize("rows", [0, 1])
def test_small_tables(rows: int, schema: Schema) -> None:
    result = check_table(make_people(5).slice(0, rows), schema)
    assert result.rows == rows
    assert ("no rows" in " ".join(result.findings)) == (rows == 0)


def test_files_and_frames_are_checked_alike(tmp_path: Path, schema: Schema) -> None:
    people = make_people(300)
    pq.write_table(people, tmp_path / "people.parquet")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    kinds = [people, people.to_pandas(), tmp_path / "people.parquet"]
    one, *others = (repsynth.check_table(kind, tmp_path / "schema.toml") for kind in kinds)
    assert all(other == one for other in others)
    assert one.columns[3].undeclared == pytest.approx(pd.Series(people["region"].to_pylist()).eq("nowhere").mean())


def test_other_columns_are_refused(people: pa.Table) -> None:
    with pytest.raises(DataError, match="no column 'age'"):
        check_table(people.drop(["age"]), parse_schema(ALL_TYPES))


@settings(max_examples=20)
@given(data=st.data())
def test_every_cell_is_counted_as_it_is_encoded(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    table = data.draw(tables(schema))
    records = encode_batch(table.combine_chunks().to_batches()[0], schema)
    columns = {column.name: column for column in check_table(table, schema).columns}
    json.dumps([column.findings for column in columns.values()])
    for column in schema.learned:
        codes, found = records.codes[column.name], columns[column.name]
        lost = found.missing + found.unreadable + found.undeclared
        assert lost == pytest.approx(np.mean(codes == MISSING))
        if isinstance(column, Numeric):
            assert found.special == pytest.approx(np.mean(codes > column.steps))
            assert found.below <= np.mean(codes == 0) + 1e-9
            assert found.above <= np.mean(codes >= column.steps - 1) + 1e-9  # the last two, for floating point
        assert lost + found.special + found.below + found.above + found.rounded <= 1 + 1e-9


def test_memory_does_not_grow_with_the_rows() -> None:
    """Ids and odd cells that are all different, batch by batch."""
    schema = parse_schema(
        "one_row_per_person = true\ncolumns.id = {type='id'}\ncolumns.x = {type='integer', min=0, max=9}"
    )

    def peak(batches: int) -> int:
        def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for k in range(batches):
                texts = pa.array([f"cell {k} {i}" for i in range(2_000)])
                yield pa.record_batch({"id": texts, "x": texts})

        source = Source("arrow", ("id", "x"), (pa.string(), pa.string()), read)
        tracemalloc.start()
        assert check_table(source, schema).rows == 2_000 * batches
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(12) < 1.3 * peak(4)
