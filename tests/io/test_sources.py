"""Tables in and out: every kind, and errors that say what to do without quoting data."""

from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from conftest import make_people

from repsynth import Release, synthesize
from repsynth.engine.local import LocalEngine
from repsynth.errors import DataError
from repsynth.io.records import Records
from repsynth.io.source import reads_as_text
from repsynth.io.sources import check_columns, open_source
from repsynth.schema import Schema, parse_schema


def encoded(source: object, schema: Schema) -> Iterator[Records]:
    return LocalEngine.open(open_source(source), schema).per_record()


def codes_of(source: object, schema: Schema) -> dict[str, list[int]]:
    result: dict[str, list[int]] = {}
    for records in encoded(source, schema):
        for name, codes in records.codes.items():
            result.setdefault(name, []).extend(codes.tolist())
    return result


def test_the_same_codes_from_tables_in_memory(people: pa.Table, schema: Schema) -> None:
    (batch,) = people.combine_chunks().to_batches()
    for table in (people.to_pandas(), pl.from_arrow(people), batch):
        assert codes_of(table, schema) == codes_of(people, schema)


def test_out_comes_the_kind_that_came_in(people: pa.Table, schema: Schema) -> None:
    names = [column.name for column in schema.columns]
    kinds = {"arrow": (people, pa.Table), "pandas": (people.to_pandas(), pd.DataFrame)}
    for kind, (table, out) in {**kinds, "polars": (pl.from_arrow(people), pl.DataFrame)}.items():
        release = synthesize(table, schema, epsilon=1.0)
        drawn = release.sample(10)
        assert release.kind == kind
        assert isinstance(drawn, out)
        assert list(drawn.column_names if kind == "arrow" else drawn.columns) == names


def test_the_output_type_of_whole_numbers_does_not_tell_whether_one_was_missing() -> None:
    """pandas turns whole numbers into floats as soon as one is missing; the schema decides instead."""
    schema = parse_schema('one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n')
    whole = synthesize(pd.DataFrame({"a": [1, 2, 3]}), schema, epsilon=1.0).sample(5)
    holed = synthesize(pd.DataFrame({"a": [1, 2, None]}), schema, epsilon=1.0).sample(5)
    assert str(whole["a"].dtype) == str(holed["a"].dtype) == "int64"


def test_the_output_type_of_a_form_does_not_tell_whether_a_cell_had_it() -> None:
    """pandas turns numbers into text as soon as one is written with its thousands; the schema decides instead."""
    schema = parse_schema(
        'one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9999\nthousands = ","\n'
    )
    plain = synthesize(pd.DataFrame({"a": [1, 2, 3, 4]}), schema, epsilon=1.0)
    written = synthesize(pd.DataFrame({"a": ["1", "2", "3", "4,000"]}), schema, epsilon=1.0)
    assert plain.sample(5)["a"].dtype == written.sample(5)["a"].dtype
    assert plain.sample(50)["a"].str.fullmatch("[0-9]{1,3}|[0-9],[0-9]{3}").all()


def test_missing_values_survive(schema: Schema) -> None:
    """4.1 and 5.2 % are missing: even if 20,000 rows were drawn independently, the bounds would be more than 7
    standard deviations away, a chance below 1e-14; at this budget noise adds nothing."""
    out = synthesize(make_people(3000), schema, mu=50.0, delta=1e-6).sample(20_000, seed=1)
    assert 0.03 < out["age"].null_count / 20_000 < 0.07
    assert 0.03 < out["region"].null_count / 20_000 < 0.07
    assert out["income"].null_count == 0
    assert pc.min(out["age"]).as_py() >= 18
    assert out["person"].to_pylist()[:3] == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty file"),
        ("age\n1\n", "no column 'smoker' in the data"),
        ("age,smoker,secret\n1,yes,x\n", "not in the schema (position 3)"),
        ("age,smoker,age\n1,yes,2\n", "column name used more than once: 'age'"),
        ("age;smoker\n1;yes\n", "say --delimiter ';'"),
    ],
)
def test_wrong_columns(text: str, message: str, tmp_path: Path) -> None:
    schema = parse_schema(
        "one_row_per_person = true\n"
        'label = "smoker"\n[columns.age]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.smoker]\ntype = "boolean"\n'
    )
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(DataError) as caught:
        check_columns(open_source(tmp_path / "t.csv"), schema)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_unusable_sources(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_source(tmp_path / "absent.csv")
    with pytest.raises(DataError, match=r"use one of .csv, .parquet,"):
        open_source(tmp_path / "table.docx")
    with pytest.raises(DataError, match="cannot read a table from list"):
        open_source([1, 2])
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(DataError, match="not a Parquet file"):
        open_source(tmp_path / "broken.parquet")
    nested = pa.table({"a": [[1], [2]]})
    schema = parse_schema('one_row_per_person = true\n[columns.a]\ntype = "boolean"\n')
    with pytest.raises(DataError, match="nested"):
        check_columns(open_source(nested), schema)


SMALL = parse_schema(
    'one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n[columns.b]\ntype = "boolean"\n'
)


@pytest.mark.parametrize(
    ("content", "rows"),
    [
        (b"a,b\n", 0),
        (b"a,b", 0),
        (b"a,b\n1,true\n", 1),
        (b"a,b\r\n1,true\r\n2,false\r\n", 2),
        (b"a,b\r1,true\r2,false\r", 2),
        (b'a,b\r1,true\r2,"x\n"\r', 2),
        (b"a,b\n" + b"1,true\n" * 700_000, 700_000),
        (b'a,b\n1,"' + b"x" * 3_000_000 + b'"\n2,true\n', 2),
        (b"\xef\xbb\xbfa,b\n1,true\n", 1),
        (b"a,b\n1,true\n\xff\xfe,\xc3(\n", 2),
        (b"a,b\n1,true\n1\n1,2,3\n2,false\n", 2),
        (b'a,b\n1,"' + b"x" * 100_000 + b'"\n', 1),
        (b"a,b\nNaN,inf\n-inf,\n", 2),
    ],
    ids=[
        *("header", "no-newline", "one", "crlf", "cr", "cr-lf-inside", "many", "3-mb-row", "bom"),
        *("not-utf8", "ragged", "long", "nan"),
    ],
)
@pytest.mark.filterwarnings("ignore:without a label")
def test_odd_csv_files_are_read_without_an_error(content: bytes, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    assert sum(records.rows for records in encoded(path, SMALL)) == rows
    assert synthesize(path, SMALL, epsilon=1.0).sample(3).num_rows == 3


@pytest.mark.parametrize("blank", [b"\n" * 9000, b" \n" * 9000, b"\r\n" * 9000], ids=["lf", "space", "crlf"])
def test_blank_lines_do_not_hide_the_rest(blank: bytes, tmp_path: Path) -> None:
    schema = parse_schema('one_row_per_person = true\n[columns.a]\ntype = "integer"\nmin = 0\nmax = 9\n')
    path = tmp_path / "t.csv"
    counts = []
    for content in (b"a\n" + blank, b"a\n1\n" + blank, b"a\n" + blank + b"1\n"):
        path.write_bytes(content)
        counts.append(sum(records.rows for records in encoded(path, schema)))
    assert counts[1] == counts[2] == counts[0] + 1


INT = 'type = "integer"\nmin = 0\nmax = 1000'
NUM = 'type = "number"\nmin = 0\nmax = 1'
CAT = 'type = "category"\nvalues = [1, 2, 300]'
LONG = 'type = "datetime"\nmin = 1600-01-01\nmax = 2500-01-01'


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (CAT, pa.array([Decimal("1"), Decimal("2")])),
        (CAT, pa.array([1.0, 2.0], type=pa.float16())),
        (CAT, pa.array([1, 2], type=pa.int8())),
        (CAT, pa.array([b"1", b"2"])),
        (CAT, pa.array(["1", "2"]).dictionary_encode().cast(pa.dictionary(pa.int16(), pa.large_string()))),
        (INT, pa.array([1, 2], type=pa.int8())),
        (INT, pa.array([1, 2], type=pa.uint16())),
        (NUM, pa.array([0.5, 1.0], type=pa.float32())),
        (NUM, pa.array([Decimal("0.5"), Decimal("1.0")])),
        (LONG, pa.array([datetime(2020, 1, 1)], type=pa.timestamp("ns"))),
        (LONG, pa.array([datetime(2020, 1, 1)], type=pa.timestamp("s", tz="Europe/Zurich"))),
        ('type = "boolean"', pa.array([0, 1], type=pa.uint8())),
        ('type = "boolean"', pa.array([0.0, 1.0])),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value.split('"')[1],
)
def test_a_storage_type_that_cannot_hold_the_domain_is_left_before_anything_is_spent(
    column: str, cells: pa.Array, tmp_path: Path
) -> None:
    schema = parse_schema(f"one_row_per_person = true\n[columns.a]\n{column}\n")
    release = synthesize(pa.table({"a": cells}), schema, epsilon=1.0)
    release.save(tmp_path / "release")
    out = Release.load(tmp_path / "release").sample(300)
    codes = codes_of(out, schema)["a"]
    assert min(codes) >= 0, "every synthetic cell can be read again"


@pytest.mark.parametrize("dtype", ["int8", "Int8", "Int64", "float32", "boolean", "category", "datetime64[ns]"])
@pytest.mark.parametrize("column", [INT, NUM, CAT, LONG, 'type = "boolean"'], ids=lambda text: text.split('"')[1])
def test_a_dtype_that_cannot_hold_the_domain_is_left_before_anything_is_spent(column: str, dtype: str) -> None:
    schema = parse_schema(f"one_row_per_person = true\n[columns.a]\n{column}\n")
    cells = [datetime(2020, 1, 1)] if "datetime" in dtype else [1, 0]
    frame = pd.DataFrame({"a": pd.Series(cells).astype(dtype)})
    kind = {"boolean": "booleans", "datetime64[ns]": "times"}.get(dtype, "numbers")
    if not reads_as_text(schema.learned[0], kind):
        with pytest.raises(DataError, match=r"^column 'a' is stored as (booleans|times), "):
            synthesize(frame, schema, epsilon=1.0)
        return
    out = synthesize(frame, schema, epsilon=1.0).sample(300)
    assert min(codes_of(out, schema)["a"]) >= 0
