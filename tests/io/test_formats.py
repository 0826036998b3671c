"""Cells come back as the schema declares them: numbers, forms of text, special values, one type per column."""

from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repsynth import Release, synthesize
from repsynth.io.encode import EncodedTable, encode_batch
from repsynth.io.records import Records, join
from repsynth.io.sources import check_columns, open_source
from repsynth.io.write import Kind, arrow_schema, decode, to_kind, write_table
from repsynth.schema import (
    Boolean,
    Category,
    Column,
    Datetime,
    Discrete,
    Integer,
    Number,
    Numeric,
    Schema,
    parse_schema,
)
from repsynth.schema.formats import ARROW_TYPES, holds

DAYS = {"min": date(2020, 1, 1), "max": date(2029, 12, 31)}
TRUTH = Category(name="a", values=("false", "true"))
WHOLE = Integer(name="a", min=0, max=100)
REAL = Number(name="a", min=0.0, max=100.0)
CENTS = Number(name="a", min=0.0, max=100.0, decimals=2)
DAY = Datetime(name="a", **DAYS)
SECOND = Datetime(name="a", min=datetime(2020, 1, 1), max=datetime(2029, 12, 31))
WORD = Category(name="a", values=("x", "y"))


def there_and_back(table: Any, column: Column, kind: Kind = "arrow", *, csv: bool = False) -> Any:
    """Encoded and decoded, without anything in between."""
    schema = Schema(one_row_per_person=True, columns=(column,))
    records = join(list(EncodedTable(open_source(table), schema)), [column.name])
    return to_kind(decode(records, schema, csv=csv), schema, kind)


def codes_of(cells: Any, column: Column, arrow_type: pa.DataType | None = None) -> list[int]:
    batch = pa.record_batch({column.name: pa.array(cells, arrow_type)})
    codes: list[int] = (
        encode_batch(batch, Schema(one_row_per_person=True, columns=(column,))).codes[column.name].tolist()
    )
    return codes


def value_of(code: int, column: Column) -> Any:
    records = Records(rows=1, codes={column.name: np.array([code])})
    return decode(records, Schema(one_row_per_person=True, columns=(column,)))[column.name][0].as_py()


# --- numbers ----------------------------------------------------------------------------------------------


@given(
    digits=st.integers(-999, 999),
    power=st.integers(-30, 30),
    below=st.floats(0, 1e4),
    above=st.floats(1e-3, 1e4),
    scale=st.integers(0, 6),
)
def test_a_number_of_few_digits_comes_back_as_itself(
    digits: int, power: int, below: float, above: float, scale: int
) -> None:
    """Whatever the bounds, as long as a position is well below its last digit."""
    value = float(f"{digits}e{power}")
    size = 10.0 ** (power + scale)
    column = Number(name="a", min=value - below * size, max=value + above * size)
    assume(column.min < value < column.max)
    assume(column.unit * 10 < 10.0**power)
    (code,) = codes_of([value], column)
    assert value_of(code, column) == value


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6), st.integers(0, 2**40))
def test_a_number_stays_within_a_millionth_of_its_range(low: float, width: float, code: int) -> None:
    column = Number(name="a", min=low, max=low + width)
    number = value_of(code, column)
    assert column.min <= number <= column.max
    assert abs(number - (column.min + code * column.unit)) <= 2e-6 * (column.max - column.min)


def test_a_wide_range_keeps_small_numbers() -> None:
    column = Number(name="a", min=-1e6, max=1e9)
    for value in (0.0, 1.0, -1.0, 2.5, 0.25, 30_000.0, 1e9, -1e6, 123.45):
        (code,) = codes_of([value], column)
        assert value_of(code, column) == value


@pytest.mark.parametrize(
    "column",
    [
        Number(name="a", min=-5.0, max=5.0, decimals=1),
        Number(name="a", min=0.1, max=1.0, step=0.1),
        Number(name="a", min=-0.25, max=100.0, step=0.25),
        Number(name="a", min=0.0, max=2.0**52 / 100, decimals=2),
        Number(name="a", min=-(2.0**52) / 1000, max=0.0, decimals=3),
        Number(name="a", min=0.0, max=1e300, step=1e299),
        Number(name="a", min=0.0, max=3e-290, step=1e-290),
        Integer(name="a", min=-7, max=93, step=5),
        Integer(name="a", min=-(2**52), max=2**52),
    ],
    ids=repr,
)
def test_positions_on_a_grid_come_back_as_themselves(column: Number | Integer) -> None:
    positions = np.unique(np.linspace(0, column.steps, 1000).astype(np.int64))
    schema = Schema(one_row_per_person=True, columns=(column,))
    out = decode(Records(rows=len(positions), codes={"a": positions}), schema)
    assert codes_of(out["a"].combine_chunks(), column) == positions.tolist()


def test_decimal_fractions_are_what_they_look_like() -> None:
    column = Number(name="a", min=0.0, max=1.0, decimals=2)
    assert [value_of(code, column) for code in (3, 30, 57)] == [0.03, 0.3, 0.57]
    column = Number(name="a", min=0.0, max=1.0, step=0.1)
    assert [value_of(code, column) for code in (3, 6, 7)] == [0.3, 0.6, 0.7]


def test_between_two_steps_the_nearer_one() -> None:
    assert codes_of([0, 2.4, 7.4, 7.6, 999, -3], Integer(name="a", min=0, max=20, step=5)) == [0, 0, 1, 2, 4, 0]
    assert codes_of([0.0, 0.37, 0.38, 5.0], Number(name="a", min=0.0, max=1.0, step=0.25)) == [0, 1, 2, 4]
    assert codes_of([0.004, 0.006, "x"][:2], Number(name="a", min=0.0, max=1.0, decimals=2)) == [0, 1]


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([2**52 - 1, 2**52, 2**53 + 1, 2**63 - 1]),
        pa.array([2**52 - 1, 2**52, 2**53 + 1, 2**64 - 1], pa.uint64()),
        pa.array([Decimal(2**52 - 1), Decimal(2**52), Decimal(2**53 + 1), Decimal(10**30)], pa.decimal128(38, 2)),
        pa.array([str(2**52 - 1), str(2**52), str(2**53 + 1), str(10**30)]),
    ],
    ids=["int64", "uint64", "decimal128", "text"],
)
def test_whole_numbers_are_exact_up_to_the_largest_bound(cells: pa.Array) -> None:
    column = Integer(name="a", min=-(2**52), max=2**52)
    assert codes_of(cells, column, cells.type) == [2**53 - 1, 2**53, 2**53, 2**53]


# --- text that has a form ---------------------------------------------------------------------------------

PRICE = Number(name="a", min=-10_000.0, max=1e6, decimals=2, prefix="$", thousands=",")
EURO = Number(name="a", min=-100.0, max=1e6, decimals=2, prefix="EUR ", thousands=".", decimal=",")
FRANC = Integer(name="a", min=0, max=10**9, thousands="'", prefix="Fr. ")
SPACED = Integer(name="a", min=0, max=10**9, thousands="\u00a0")
COMMA = Number(name="a", min=0.0, max=10.0, decimal=",")
SWISS_DAY = Datetime(name="a", dates="%d.%m.%Y", **DAYS)
SAS_DAY = Datetime(name="a", dates="%d%b%Y", **DAYS)
US_TIME = Datetime(name="a", dates="%m/%d/%y %H:%M:%S", min=datetime(2020, 1, 1), max=datetime(2029, 12, 31))
ISO = Datetime(name="a", special=("9999-12-31",), **DAYS)

FORMS: list[tuple[Column, list[str]]] = [
    (PRICE, ["$0.00", "$1,234.50", "-$5.25", "$999,999.99"]),
    (EURO, ["EUR 0,00", "EUR 1.234,50", "EUR 12,05", "EUR -7,10"]),
    (FRANC, ["Fr. 0", "Fr. 1'000", "Fr. 1'234'567"]),
    (SPACED, ["0", "12\u00a0345"]),
    (COMMA, ["0", "2,5", "0,125", "10"]),
    (SWISS_DAY, ["01.01.2020", "31.12.2029"]),
    (SAS_DAY, ["01Jan2020", "31Dec2029"]),
    (Datetime(name="a", dates="%B %d, %Y", **DAYS), ["May 05, 2021", "September 30, 2025"]),
    (US_TIME, ["01/31/20 23:59:58"]),
    (Number(name="a", min=0.0, max=10.0, decimals=2, special=("n/a", "-9")), ["2.50", "n/a", "-9", "10.00"]),
    (Integer(name="a", min=0, max=10, special=("refused",)), ["2", "refused", "10"]),
    (Number(name="a", min=0.0, max=10.0, special=("refused",)), ["2.5", "refused", "10"]),
    (Datetime(name="a", special=("unknown",), **DAYS), ["2020-01-31", "unknown"]),
    (ISO, ["2020-01-31", "9999-12-31"]),
]


@pytest.mark.parametrize(("column", "cells"), FORMS, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_text_comes_back_in_its_form(column: Column, cells: list[str], tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["a", *(f'"{cell}"' for cell in cells)]) + "\n", encoding="utf-8")
    back = there_and_back(path, column, csv=True)
    write_table([lambda: back], back.schema, tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert [line.strip('"') for line in lines[1:]] == cells
    if column != ISO:
        assert there_and_back(path, column)["a"].to_pylist() == cells
        assert there_and_back(pl.DataFrame({"a": cells}), column, "polars")["a"].to_list() == cells
        assert there_and_back(pd.DataFrame({"a": cells}), column, "pandas")["a"].tolist() == cells


@pytest.mark.parametrize(
    ("column", "lines"),
    [
        (Number(name="a", min=-5.0, max=10.0, decimals=2), ["2.50", "-3.00"]),
        (Number(name="a", min=-5.0, max=10.0, decimals=2, storage="float32"), ["2.50", "-3.00"]),
        (Number(name="a", min=-5.0, max=10.0, decimals=2, special=("-9",)), ['"2.50"', '"-3.00"', '"-9"']),
        (Number(name="a", min=-5.0, max=10.0, decimals=0), ["2", "-3"]),
        (Number(name="a", min=-5.0, max=10.0), ["2.5", "-3"]),
        (SECOND, ['"2020-01-31T12:30:00"']),
        (DAY, ["2020-01-31"]),
        (Category(name="a", values=("0", "1")), ["1", "0"]),
        (Category(name="a", values=("00", "1")), ['"1"', '"00"']),
        (Boolean(name="a"), ["true", "false"]),
    ],
    ids=repr,
)
def test_a_csv_file_has_declared_decimals_and_iso_times(column: Column, lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("\n".join(["a", *lines]) + "\n")
    out = there_and_back(path, column, csv=True)
    write_table([lambda: out], out.schema, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().split() == ['"a"', *lines]


@pytest.mark.parametrize(
    ("column", "cells", "codes"),
    [
        (FRANC, ["Fr. 1'000", "Fr.1'000", "1000", "Fr. 1000", "1'00", "1'0000", "1,000"], [1000] * 4 + [-1] * 3),
        (FRANC, ["Fr. -7", "-Fr. 7", "-7", "- Fr. 7", "-Fr. -7", "(Fr. 7)"], [0, 0, 0, -1, -1, -1]),
        (FRANC, ["'100", "100'", "1'000'00", "1'000'000", "1'000.6"], [-1, -1, -1, 1_000_000, 1001]),
        (PRICE, ["-$5", "$-5", "$5", "$$5", "5$", "$", "-$"], [999_500] * 2 + [1_000_500] + [-1] * 4),
        (
            PRICE,
            ["$1,000.25", "$1000.25", "$.5", "$1e3", "$1,000,.25"],
            [1_100_025] * 2 + [1_000_050, 1_100_000, -1],
        ),
        (EURO, ["1,5", "1.5", "1.500", "1.500,5", "EUR 7", "eur 7"], [10_150, -1, 160_000, 160_050, 10_700, -1]),
        (Integer(name="a", min=0, max=9999, thousands="."), ["1.234", "1.23", "12,6"], [1234, -1, 13]),
        (SWISS_DAY, ["1.2.2020", "01.02.2020", " 1.02.2020 "], [31, 31, 31]),
        (SWISS_DAY, ["2020-02-01", "30.02.2020", "1.2.20", "1.2.2020 10:00", "1.1.1990"], [-1, -1, -1, -1, 0]),
        (SAS_DAY, ["01feb2020", "01FEB2020", "01ſep2020", "1Feb2020"], [31, 31, -1, -1]),
        (US_TIME, ["1/1/20 00:01:00", "01/01/20 0:1:0", "01/01/20 24:00:00"], [60, 60, -1]),
        (Datetime(name="a", dates="%Y%m%d", **DAYS), ["20200201", "2020021"], [31, -1]),
        (Datetime(name="a", dates="%Y%m%d", **DAYS), [20200201, 7], [31, -1]),
        (Datetime(name="a", dates="%d.%m.%Y %H:%M", **DAYS), ["01.02.2020 23:59"], [31]),
    ],
)
def test_cells_in_a_form(column: Column, cells: list[Any], codes: list[int]) -> None:
    assert codes_of(cells, column) == codes
    if isinstance(cells[0], str):
        assert codes_of([cell.encode() for cell in cells], column) == codes


CELLS = st.one_of(
    st.text(alphabet="0123456789.,'$-+eE Fr\u00a0", max_size=12),
    st.binary(max_size=8),
    st.from_regex("[0-9.]{8,10}"),
)


@settings(max_examples=25)
@given(st.lists(CELLS.map(lambda cell: cell.encode() if isinstance(cell, str) else cell), min_size=1, max_size=6))
def test_no_cell_in_a_form_raises_or_depends_on_others(cells: list[bytes]) -> None:
    for column, _ in FORMS:
        together = codes_of(cells, column, pa.binary())
        assert together == [codes_of([cell], column, pa.binary())[0] for cell in cells]
        assert all(-1 <= code < column.positions for code in together)  # type: ignore[union-attr]


# --- special values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cells", "codes"),
    [
        (["-9", "-9.0", " -9 ", "-9e0", "refused", "Refused", "5"], [11, 11, 11, 11, 12, -1, 5]),
        ([-9, 5], [11, 5]),
        ([-9.0, 5.0, -9.5], [11, 5, 0]),
        ([Decimal("-9.00"), Decimal("5.00")], [11, 5]),
        (["7", "7.0", "8"], [13, 13, 8]),  # a special value wins over a number
    ],
    ids=str,
)
def test_special_cells(cells: list[Any], codes: list[int]) -> None:
    assert codes_of(cells, Integer(name="a", min=0, max=10, special=("-9", "refused", "7"))) == codes


def test_special_times() -> None:
    column = Datetime(name="a", special=("9999-12-31", "-9", "none"), dates="%d.%m.%Y", **DAYS)
    first = column.steps + 1
    codes = codes_of(["31.12.9999", "9999-12-31", "-9.0", "none", "01.01.2020"], column)
    assert codes == [first, first, first + 1, first + 2, 0]
    assert codes_of([date(9999, 12, 31), date(9999, 12, 30)], column) == [first, column.steps]
    assert codes_of([datetime(9999, 12, 31), datetime(9999, 12, 31, 1)], column) == [first, column.steps]


@pytest.mark.parametrize(
    "column",
    [
        Integer(name="a", min=0, max=10, special=("0", "1", "9", "10")),
        Number(name="a", min=0.0, max=1.0, decimals=1, special=("0", "0.5", "1")),
        Number(name="a", min=0.0, max=1.0, special=("0", "0.5", "1")),
        Datetime(name="a", special=("2020-01-01", "2029-12-31"), **DAYS),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_drawn_number_does_not_turn_into_a_special_value(column: Integer | Number | Datetime) -> None:
    positions = np.unique(np.linspace(0, column.steps, 4001).astype(np.int64))
    schema = Schema(one_row_per_person=True, columns=(column,))
    out = decode(Records(len(positions), {"a": positions}), schema)
    codes = codes_of(out["a"].combine_chunks(), column)
    assert max(codes) <= column.steps
    assert np.abs(np.array(codes) - positions).max() <= max(2, column.steps * 2e-6)


# --- storage types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("column", [Boolean(name="a"), TRUTH])
@pytest.mark.parametrize(
    "cells",
    [
        pd.Series([True, False], dtype=object),
        pd.Series([np.True_, np.False_], dtype=object),
        pd.Series([True, False, None], dtype=object),
        pd.Series([np.True_, np.False_, None, "x"], dtype=object),
        pd.Series([True, False]),
        pd.Series([True, False, None], dtype="boolean"),
        pd.Series([True, False], dtype="bool[pyarrow]"),
    ],
    ids=lambda cells: f"{cells.dtype}-{len(cells)}",
)
def test_truth_values_of_any_kind(column: Column, cells: pd.Series) -> None:
    (records,) = EncodedTable(
        open_source(pd.DataFrame({"a": cells})), Schema(one_row_per_person=True, columns=(column,))
    )
    assert records.codes["a"].tolist() == [1, 0, -1, -1][: len(cells)]


@pytest.mark.parametrize("cell", [np.float32(1.0), np.float64(1), np.int8(1), 1.0, Decimal(1)])
def test_an_object_reads_like_a_typed_cell(cell: object) -> None:
    frame = pd.DataFrame({"a": pd.Series([cell, None], dtype=object)})
    for column in (WHOLE, Category(name="a", values=("0", "1"))):
        (records,) = EncodedTable(open_source(frame), Schema(one_row_per_person=True, columns=(column,)))
        assert records.codes["a"].tolist() == [1, -1]


NOON = Datetime(name="a", special=("1900-01-01 12:00",), **DAYS)
TEXT = pa.dictionary(pa.int32(), pa.string())
TYPES: list[tuple[Column, list[str | None], pa.DataType, str]] = [
    (WORD, ["x", "y"], TEXT, "category"),
    (Category(name="a", values=("x", "1")), ["x", "1"], TEXT, "category"),
    (Category(name="a", values=("01", "2")), ["01", "2"], TEXT, "category"),
    (Category(name="a", values=("1" * 16, "2")), ["1" * 16, "2"], TEXT, "category"),
    (Category(name="a", values=("-1", "2")), ["-1", "2"], pa.int64(), "int64"),
    (Category(name="a", values=("1", "2"), missing=True), ["1", None], pa.int64(), "Int64"),
    (Boolean(name="a"), ["true", "false"], pa.bool_(), "bool"),
    (Boolean(name="a", missing=True), ["true", None], pa.bool_(), "boolean"),
    (WHOLE, ["1", "100"], pa.int64(), "int64"),
    (Integer(name="a", min=0, max=9, missing=True), ["1", "2"], pa.int64(), "Int64"),
    (Integer(name="a", min=0, max=9, special=("-9", "999")), ["1", "-9", "999"], pa.int64(), "int64"),
    (Integer(name="a", min=0, max=9, special=("0.5",)), ["1", "0.5"], pa.float64(), "float64"),
    (Integer(name="a", min=0, max=9, special=("007",)), ["1", "007"], pa.string(), "str"),
    (CENTS, ["1.25", "99.99"], pa.float64(), "float64"),
    (Number(name="a", min=0.0, max=9.0, missing=True), ["1.5", None], pa.float64(), "float64"),
    (DAY, ["2020-01-31"], pa.date32(), "datetime64[ms]"),
    (ISO, ["2020-01-31", "9999-12-31"], pa.date32(), "datetime64[ms]"),
    (SECOND, ["2020-01-31T12:30:00"], pa.timestamp("s"), "datetime64[s]"),
    (NOON, ["2020-01-31", "1900-01-01 12:00"], pa.timestamp("s"), "datetime64[s]"),
    (Integer(name="a", min=0, max=9, storage="int8"), ["1", "9"], pa.int8(), "int8"),
    (Integer(name="a", min=0, max=9, storage="uint16", missing=True), ["1", None], pa.uint16(), "UInt16"),
    (Integer(name="a", min=0, max=9, special=("-9",), storage="float32"), ["1", "-9"], pa.float32(), "float32"),
    (Integer(name="a", min=0, max=9, storage="large_string"), ["1", "9"], pa.large_string(), "str"),
    (Number(name="a", min=0.0, max=9.0, decimals=1, storage="float32"), ["0.1", "9"], pa.float32(), "float32"),
    (Category(name="a", values=("1", "2"), storage="uint8"), ["1", "2"], pa.uint8(), "uint8"),
    (Category(name="a", values=("1", "x"), storage="string"), ["1", "x"], pa.string(), "str"),
    (Boolean(name="a", storage="int8"), ["true", "false"], pa.int8(), "int8"),
    (Datetime(name="a", storage="timestamp[ns]", **DAYS), ["2020-01-31"], pa.timestamp("ns"), "datetime64[ns]"),
]


@pytest.mark.parametrize(("column", "cells", "kind", "dtype"), TYPES, ids=lambda value: str(value)[:70])
def test_each_column_comes_out_in_the_type_that_its_schema_says(
    column: Column, cells: list[str | None], kind: pa.DataType, dtype: str
) -> None:
    """Storage of the input and cells that were drawn make no difference; all values come back."""
    schema = Schema(one_row_per_person=True, columns=(column,))
    codes = codes_of(cells, column, pa.string())
    assert -1 not in [code for code, cell in zip(codes, cells, strict=True) if cell is not None]
    for stored in (pa.array(cells), pa.array(cells).dictionary_encode(), pa.array(cells, pa.large_string())):
        table = there_and_back(pa.table({"a": stored}), column)
        assert table.schema == arrow_schema(schema) == pa.schema([("a", kind)])
        for out in (table, to_kind(table, schema, "pandas"), to_kind(table, schema, "polars")):
            check_columns(open_source(out), schema)
            (back,) = EncodedTable(open_source(out), schema)
            assert back.codes["a"].tolist() == codes
    frame = to_kind(table, schema, "pandas")
    assert str(frame["a"].dtype) == dtype or dtype == "str"  # object before pandas 3
    assert to_kind(table.slice(0, 0), schema, "pandas")["a"].dtype == frame["a"].dtype


DOMAINS: list[Discrete | Numeric] = [
    *(Category(name="a", values=values) for values in (("-128", "127"), ("0", "255"), ("1.0", "2"), ("-0", "1"))),
    Category(name="a", values=("01", "2")),
    Boolean(name="a"),
    *(Integer(name="a", min=low, max=high) for low in (0, -128, -(2**24)) for high in (127, 255, 2**24, 2**52)),
    *(
        Integer(name="a", min=0, max=9, special=(word,))
        for word in ("-9", "-0.5", "0.1", "N", "007", "1e3", "1234567890.123456")
    ),
    FRANC,
    *(Number(name="a", min=0.0, max=high, decimals=2) for high in (100.0, 2.0**24 / 100, 1e6)),
    *(Number(name="a", min=-1.0, max=1.0, step=0.5, special=(word,)) for word in ("9", "0.1", "0.25", "N")),
    EURO,
    SECOND,
    *(Datetime(name="a", special=(word,), **DAYS) for word in ("9999-12-31", "20200101", "1900-01-01 12:00", "N")),
    SWISS_DAY,
]


@pytest.mark.parametrize("column", DOMAINS, ids=repr)
def test_a_storage_that_is_accepted_holds_the_whole_domain(column: Discrete | Numeric) -> None:
    last = column.size - 1 if isinstance(column, Discrete) else column.steps
    codes = np.array([0, last // 3, last, -1])
    if isinstance(column, Numeric):
        codes = np.append(codes, np.arange(last + 1, column.positions))
    accepted = [name for name in ARROW_TYPES if holds(name, column)]
    assert {"string", "large_string"} <= set(accepted)
    for name in accepted:
        schema = Schema(one_row_per_person=True, columns=(replace(column, missing=True, storage=name),))
        out = decode(Records(len(codes), {"a": codes}), schema)
        check_columns(open_source(out), schema)
        (back,) = EncodedTable(open_source(out), schema)
        assert back.codes["a"].tolist() == codes.tolist(), name


def test_a_category_of_whole_numbers_compares_with_numbers() -> None:
    frame = there_and_back(pd.DataFrame({"a": ["1", "0"]}), Category(name="a", values=("0", "1")), "pandas")
    assert (frame["a"] == 1).tolist() == [True, False]


@pytest.mark.filterwarnings("ignore:without a label")
def test_a_release_keeps_all_of_it(tmp_path: Path) -> None:
    """Saved, loaded and drawn from: every cell is one that the schema allows, in its form and type."""
    schema = parse_schema(
        """
one_row_per_person = true
        [columns.price]
        type = "number"
        min = 0
        max = 9999.99
        decimals = 2
        thousands = ","
        prefix = "$"
        [columns.wait]
        type = "integer"
        min = 0
        max = 600
        step = 30
        [columns.code]
        type = "integer"
        min = 0
        max = 9
        storage = "int8"
        [columns.day]
        type = "datetime"
        min = 2020-01-01
        max = 2020-12-31
        dates = "%d.%m.%Y"
        """
    )
    frame = pd.DataFrame(
        {
            "price": ["$1,000.50", "$3.00"] * 50,
            "wait": [30, 600] * 50,
            "code": [1, 2] * 50,
            "day": ["01.02.2020", "31.12.2020"] * 50,
        }
    )
    synthesize(frame, schema, epsilon=1.0).save(tmp_path / "release")
    out = Release.load(tmp_path / "release").sample(300)
    assert [str(out[name].dtype) for name in ("wait", "code")] == ["int64", "int8"]
    assert out["price"].str.fullmatch(r"\$[0-9]{1,3}(,[0-9]{3})*\.[0-9]{2}").all()
    assert out["day"].str.fullmatch(r"[0-9]{2}\.[0-9]{2}\.2020").all()
    assert (out["wait"] % 30 == 0).all()
    assert out["wait"].between(0, 600).all()


# --- no cell changes how another is read ---

ODD_TEXTS = [
    *("31.12.2020", "2020-12-31", "12/31/2020", "31.12.2020 00:00", "", "N", "-9", "1.1.2020", None),
    *("\u00a031.12.2020",),
    *("5", "$5", "-$5", "$-5", "$\u00a05", "$\u202f5", "EUR 5", "EUR\u00a05", "EUR\u202f1.234,5"),
    *("1,234", "1.234"),
    *("1234,5", "1,23,4", "1e3", "nan", "inf", "٣", "0x10", "1_000", "5 $", "\ufeff5", "−5", "5\u0000"),
]
DECLARED: list[Column] = [
    Datetime(name="x", min=date(2020, 1, 1), max=date(2029, 12, 31), dates="%d.%m.%Y", special=("N",)),
    Datetime(name="x", min=date(2020, 1, 1), max=date(2029, 12, 31)),
    Integer(name="x", min=0, max=10_000, prefix="$", thousands=",", special=("-9",)),
    Number(name="x", min=-9.0, max=10_000.0, prefix="EUR ", thousands=".", decimal=",", decimals=1),
    Number(name="x", min=0.0, max=1e6),
]


@pytest.mark.parametrize("column", DECLARED, ids=lambda column: type(column).__name__)
def test_a_text_reads_alike_alone_and_among_others(column: Column) -> None:
    alone = [codes_of([text], column, pa.string())[0] for text in ODD_TEXTS]
    assert codes_of(ODD_TEXTS, column, pa.string()) == alone
    assert codes_of(ODD_TEXTS[::-1], column, pa.string()) == alone[::-1]
    assert len(set(alone)) > 1


def test_only_the_declared_form_of_a_date_is_read() -> None:
    assert codes_of(["2020-12-31"], DECLARED[0]) == [-1]
    assert codes_of(["31.12.2020"], DECLARED[1]) == [-1]


def test_blanks_that_do_not_break_stand_between_prefix_and_number() -> None:
    assert codes_of(["$\u00a05", "$\u202f5", "$ 5", "$5"], DECLARED[2]) == [5, 5, 5, 5]
