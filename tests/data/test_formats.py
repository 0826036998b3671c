"""Cells come back as they stood: numbers, forms of text, special values, and every storage type."""

from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from repsynth import Release, synthesize
from repsynth.data.decode import decode, to_kind
from repsynth.data.encode import EncodedTable, encode_batch
from repsynth.data.imitate import layout_of
from repsynth.data.layout import ColumnLayout, Layout
from repsynth.data.records import Records, join
from repsynth.data.sources import open_source
from repsynth.data.write import write_table
from repsynth.errors import ReleaseError
from repsynth.schema import Boolean, Category, Column, Datetime, Integer, Number, Schema, parse_schema

DAYS = {"min": date(2020, 1, 1), "max": date(2029, 12, 31)}


def there_and_back(table: Any, column: Column) -> Any:
    """Encoded and decoded, without anything in between."""
    schema = Schema(one_row_per_person=True, columns=(column,))
    source = open_source(table)
    records = join(list(EncodedTable(source, schema)), [column.name])
    layout = layout_of(source, schema)
    return to_kind(decode(records, schema, layout), layout)


def codes_of(cells: Any, column: Column, arrow_type: pa.DataType | None = None) -> list[int]:
    batch = pa.record_batch({column.name: pa.array(cells, arrow_type)})
    codes: list[int] = (
        encode_batch(batch, Schema(one_row_per_person=True, columns=(column,))).codes[column.name].tolist()
    )
    return codes


def value_of(code: int, column: Column, arrow_type: str = "double") -> Any:
    records = Records(rows=1, codes={column.name: np.array([code])})
    layout = Layout("arrow", (ColumnLayout(column.name, arrow_type),))
    return decode(records, Schema(one_row_per_person=True, columns=(column,)), layout)[column.name][0].as_py()


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
    natural = "double" if isinstance(column, Number) else "int64"
    layout = Layout("arrow", (ColumnLayout("a", natural),))
    out = decode(Records(rows=len(positions), codes={"a": positions}), schema, layout)
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
ISO = Datetime(name="a", special=("9999-12-31",), **DAYS)  # objects of these come back as times

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
    back = there_and_back(path, column)
    write_table([lambda: back], back.schema, tmp_path / "out.csv")
    lines = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert [line.strip('"') for line in lines[1:]] == cells

    arrow = pa.table({"a": pa.array(cells, pa.large_string())})
    assert there_and_back(arrow, column)["a"].cast(pa.string()).to_pylist() == cells
    assert there_and_back(arrow, column).schema == arrow.schema
    categorical = pa.table({"a": pa.array(cells).dictionary_encode()})
    assert there_and_back(categorical, column).schema == categorical.schema
    polar = pl.DataFrame({"a": cells})
    assert there_and_back(polar, column).equals(polar)
    for dtype in ["string", "category"] if column == ISO else ["str", object, "string", "category"]:
        frame = pd.DataFrame({"a": pd.Series(cells, dtype=dtype)})
        assert there_and_back(frame, column)["a"].tolist() == cells


def test_decimals_are_all_written_to_a_csv_file_and_stay_numbers(tmp_path: Path) -> None:
    path = tmp_path / "in.csv"
    path.write_text("a\n2.50\n-3.00\n")
    out = there_and_back(path, Number(name="a", min=-5.0, max=10.0, decimals=2))
    assert out["a"].type == pa.decimal128(4, 2)
    write_table([lambda: out], out.schema, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text().split() == ['"a"', "2.50", "-3.00"]


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


def test_numbers_that_came_as_numbers_stay_numbers() -> None:
    for arrow_type in (pa.int16(), pa.float64()):
        column = FRANC if pa.types.is_integer(arrow_type) else PRICE
        table = pa.table({"a": pa.array([1, 1000], pa.int64() if column is FRANC else arrow_type)})
        assert there_and_back(table, column).equals(table)
    days = pa.table({"a": pa.array([date(2020, 1, 1)])})
    assert there_and_back(days, SWISS_DAY).equals(days)
    numbers = pa.table({"a": pa.array([20200131, 20291231], pa.int32())})
    assert there_and_back(numbers, Datetime(name="a", dates="%Y%m%d", **DAYS)).equals(numbers)


DAY_NUMBERS = Datetime(name="a", dates="%Y%m%d", **DAYS)
WORDS = Integer(name="a", min=0, max=10, special=("refused",))
GUESSED = [
    pd.Series([1, 2]),
    pd.Series([1.5, None]),
    pd.Series([1, "4,000"]),
    pd.Series(["1", "4,000"]),
    pd.Series([1, 2], dtype=object),
    pd.Series([True, False]),
    pd.Series([20200131, "x"]),
    pd.Series([2**63]),
    pd.Series([date(2020, 1, 31)]),
    pd.Series([datetime(2020, 1, 31)]),
    pd.Series([datetime(2020, 1, 31)]).dt.tz_localize("UTC"),
    pd.Series([timedelta(seconds=1)]),
    pd.Series([], dtype=object),
]


@pytest.mark.parametrize("column", [PRICE, EURO, FRANC, COMMA, SWISS_DAY, US_TIME, DAY_NUMBERS, WORDS], ids=repr)
@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_what_pandas_guesses_from_cells_does_not_show_in_columns_with_a_form(column: Column, backend: Any) -> None:
    """One odd cell makes a column of numbers one of objects; the layout is published and must not tell."""
    series = [cells if backend is None else cells.convert_dtypes(dtype_backend=backend) for cells in GUESSED]
    if backend is not None:  # what Arrow or the nullable types cannot hold stays as pandas guessed it
        own = "[pyarrow]" if backend == "pyarrow" else ("Int64", "Float64", "UInt64", "boolean", "string")
        series = [cells for cells in series if str(cells.dtype).endswith(own)]
    assert len({str(cells.dtype) for cells in series}) > 3
    schema = Schema(one_row_per_person=True, columns=(column,))
    layouts = {layout_of(open_source(pd.DataFrame({"a": cells})), schema) for cells in series}
    dtype = {None: None, "numpy_nullable": "string", "pyarrow": "pyarrow"}[backend]
    assert layouts == {Layout("pandas", (ColumnLayout("a", "string", dtype),))}


def test_chosen_dtypes_of_columns_with_a_form_are_kept_as_text() -> None:
    for cells in ([1, 1000], ["Fr. 1", "Fr. 1'000"]):
        for dtype in ("string", "category", pd.ArrowDtype(pa.string())):
            frame = pd.DataFrame({"a": pd.Series(cells).astype(dtype)})
            out = there_and_back(frame, FRANC)
            assert str(out["a"].dtype) == str(frame["a"].dtype)
            assert out["a"].tolist() == ["Fr. 1", "Fr. 1'000"]
    for dtype in ("int8", "float32", "Int64", "int64[pyarrow]"):
        out = there_and_back(pd.DataFrame({"a": pd.Series([1, 100], dtype=dtype)}), FRANC)
        assert out["a"].tolist() == ["Fr. 1", "Fr. 100"]


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
        ([timedelta(seconds=-9), timedelta(seconds=5)], [11, 5]),
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


def test_special_numbers_come_back_as_numbers_in_storage_that_holds_them() -> None:
    column = Integer(name="a", min=0, max=100, special=("-9", "999"))
    for cells in (
        pa.array([5, -9, 999], pa.int16()),
        pa.array([5.0, -9.0, 999.0]).cast(pa.decimal128(7, 2)),
        pa.array([timedelta(seconds=5), timedelta(seconds=-9), timedelta(seconds=999)], pa.duration("ms")),
    ):
        table = pa.table({"a": cells})
        assert there_and_back(table, column).equals(table), cells.type
    tight = pa.table({"a": pa.array([5, -9], pa.int8())})
    assert there_and_back(tight, column).schema.field("a").type == pa.int64()
    half = Integer(name="a", min=0, max=100, special=("0.5",))
    assert there_and_back(pa.table({"a": [5.0, 0.5]}), half)["a"].to_pylist() == [5.0, 0.5]
    day = Datetime(name="a", special=("9999-12-31",), **DAYS)
    table = pa.table({"a": pa.array([date(2020, 1, 1), date(9999, 12, 31)])})
    assert there_and_back(table, day).equals(table)
    frame = pd.DataFrame({"a": [5, -9, 999]})
    assert there_and_back(frame, column).equals(frame)


def test_a_word_makes_a_column_text_whatever_it_came_in() -> None:
    """The type must not show whether the word was there."""
    column = Integer(name="a", min=0, max=10, special=("refused",))
    for table in (pa.table({"a": [5, 7]}), pa.table({"a": ["5", "7"]})):
        assert there_and_back(table, column)["a"].to_pylist() == ["5", "7"]
    without, with_it = pd.DataFrame({"a": [5, 7]}), pd.DataFrame({"a": [5, "refused"]}, dtype=object)
    assert there_and_back(without, column)["a"].tolist() == ["5", "7"]
    assert there_and_back(with_it, column)["a"].tolist() == ["5", "refused"]
    assert there_and_back(without, column)["a"].dtype == there_and_back(with_it, column)["a"].dtype
    nullable = pd.DataFrame({"a": pd.array([5, None], dtype="Int64")})
    assert there_and_back(nullable, column)["a"][0] == "5"
    day = Datetime(name="a", special=("unknown",), **DAYS)
    assert there_and_back(pa.table({"a": [date(2020, 1, 1)]}), day)["a"].to_pylist() == ["2020-01-01"]


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
    storage = "string" if isinstance(column, Datetime) else "double"
    out = decode(Records(len(positions), {"a": positions}), schema, Layout("arrow", (ColumnLayout("a", storage),)))
    codes = codes_of(out["a"].combine_chunks(), column)
    assert max(codes) <= column.steps
    assert np.abs(np.array(codes) - positions).max() <= max(2, column.steps * 2e-6)


def test_a_layout_that_cannot_hold_the_special_values_is_refused() -> None:
    schema = Schema(one_row_per_person=True, columns=(Integer(name="a", min=0, max=10, special=("refused",)),))
    with pytest.raises(ReleaseError):
        decode(Records(1, {"a": np.array([0])}), schema, Layout("arrow", (ColumnLayout("a", "int64"),)))


# --- storage types ----------------------------------------------------------------------------------------

TRUTH = Category(name="a", values=("false", "true"))
WHOLE = Integer(name="a", min=0, max=100)
REAL = Number(name="a", min=0.0, max=100.0)
CENTS = Number(name="a", min=0.0, max=100.0, decimals=2)
DAY = Datetime(name="a", **DAYS)
SECOND = Datetime(name="a", min=datetime(2020, 1, 1), max=datetime(2029, 12, 31))
WORD = Category(name="a", values=("x", "y"))


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


@pytest.mark.parametrize(
    "cell",
    [np.float32(1.0), np.float64(1), np.int8(1), 1.0, Decimal(1), timedelta(seconds=1), np.timedelta64(1, "s")],
)
def test_an_object_reads_like_a_typed_cell(cell: object) -> None:
    frame = pd.DataFrame({"a": pd.Series([cell, None], dtype=object)})
    for column in (WHOLE, Category(name="a", values=("0", "1"))):
        (records,) = EncodedTable(open_source(frame), Schema(one_row_per_person=True, columns=(column,)))
        assert records.codes["a"].tolist() == [1, -1]


ARROW: list[tuple[Column, pa.Array]] = [
    (WHOLE, pa.array([10**9, 2 * 10**9], pa.duration("ns"))),
    (WHOLE, pa.array([timedelta(seconds=1), timedelta(seconds=90)])),
    (REAL, pa.array([timedelta(seconds=1.5)], pa.duration("ms"))),
    (REAL, pa.array([timedelta(seconds=1)], pa.duration("s"))),
    (CENTS, pa.array([Decimal("1.50"), Decimal("99.99")], pa.decimal128(5, 2))),
    (CENTS, pa.array([Decimal("1.50")], pa.decimal128(38, 10))),
    (REAL, pa.array([Decimal("1.50"), Decimal("99.25")], pa.decimal128(10, 2))),
    (WHOLE, pa.array([Decimal(1), Decimal(100)], pa.decimal128(10, 0))),
    (WHOLE, pa.array([Decimal(1), Decimal(100)], pa.decimal128(10, 2))),
    (Category(name="a", values=("1", "2")), pa.array([Decimal(1)], pa.decimal128(3, 0))),
    (WORD, pa.array(["x", "y"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.large_string()))),
]


@pytest.mark.parametrize(("column", "cells"), ARROW, ids=lambda value: str(getattr(value, "type", "")))
def test_arrow_types_come_back(column: Column, cells: pa.Array, tmp_path: Path) -> None:
    table = pa.table({"a": cells})
    assert there_and_back(table, column).equals(table)
    pq.write_table(table, tmp_path / "t.parquet")
    assert there_and_back(tmp_path / "t.parquet", column).equals(pq.read_table(tmp_path / "t.parquet"))
    if not pa.types.is_dictionary(cells.type):
        frame = pl.from_arrow(table)
        assert there_and_back(frame, column).equals(frame)
        assert there_and_back(frame, column).schema == frame.schema


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        (CENTS, pa.array([Decimal("1.5")], pa.decimal128(4, 1))),
        (CENTS, pa.array([Decimal("1.50")], pa.decimal128(4, 2))),  # 100.00 does not fit
        (Integer(name="a", min=0, max=10**15), pa.array([1], pa.duration("ns"))),
        (
            Category(name="a", values=tuple(map(str, range(200)))),
            pa.array(["1"]).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
        ),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_types_that_cannot_hold_the_domain_are_left(column: Column, cells: pa.Array) -> None:
    table = pa.table({"a": cells})
    out = there_and_back(table, column)
    assert out["a"].type != cells.type
    assert codes_of(out["a"].combine_chunks(), column) == codes_of(cells, column, cells.type)


PYARROW: list[tuple[Column, pa.Array]] = [
    *ARROW,
    (WHOLE, pa.array([1, None, 3])),
    (WHOLE, pa.array([1, 3], pa.uint8())),
    (REAL, pa.array([1.5, None])),
    (REAL, pa.array([1.5], pa.float32())),
    (Boolean(name="a"), pa.array([True, None])),
    (WORD, pa.array(["x", "y"])),
    (WORD, pa.array(["x", "y"], pa.large_string())),
    (WORD, pa.array(["x", "y", None]).dictionary_encode()),
    (DAY, pa.array([date(2020, 1, 1), None])),
    (SECOND, pa.array([datetime(2021, 7, 1, 12)], pa.timestamp("us", tz="Europe/Berlin"))),
    (SECOND, pa.array([datetime(2021, 7, 1, 12)], pa.timestamp("ns"))),
    (SWISS_DAY, pa.array(["01.01.2020"])),
]


@pytest.mark.parametrize(("column", "cells"), PYARROW, ids=lambda value: str(getattr(value, "type", "")))
def test_pandas_columns_that_are_arrow_come_back(column: Column, cells: pa.Array) -> None:
    frame = pd.DataFrame({"a": pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([cells])))})
    out = there_and_back(frame, column)
    assert str(out["a"].dtype) == str(frame["a"].dtype)
    assert out["a"].array._pa_array.equals(frame["a"].array._pa_array)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_pandas_spans_of_time_come_back_as_seconds(unit: str) -> None:
    """One odd cell among them makes a column of objects, and the dtype must not tell whether there was one."""
    frame = pd.DataFrame({"a": pd.to_timedelta([1, 90], unit="s").astype(f"timedelta64[{unit}]")})
    assert there_and_back(frame, WHOLE).equals(pd.DataFrame({"a": [1, 90]}))
    missing = pd.DataFrame({"a": pd.Series([pd.Timedelta(seconds=1), pd.NaT])})
    column = Integer(name="a", min=0, max=100, missing=True)
    assert there_and_back(missing, column).equals(pd.DataFrame({"a": [1.0, None]}))
    chosen = frame.astype(f"duration[{unit}][pyarrow]")
    assert there_and_back(chosen, WHOLE).equals(chosen)


@pytest.mark.filterwarnings("ignore:without a label")
def test_a_release_keeps_all_of_it(tmp_path: Path) -> None:
    """Saved, loaded and drawn from: every cell is one that the schema allows, in its form and storage."""
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
            "wait": pd.array([30, 600] * 50, dtype="int16[pyarrow]"),
            "code": pd.array([1, 2] * 50, dtype="int8[pyarrow]"),
            "day": ["01.02.2020", "31.12.2020"] * 50,
        }
    )
    synthesize(frame, schema, epsilon=1.0).save(tmp_path / "release")
    out = Release.load(tmp_path / "release").sample(300)
    assert {n: str(d) for n, d in out.dtypes.items()} == {n: str(d) for n, d in frame.dtypes.items()}
    assert out["price"].str.fullmatch(r"\$[0-9]{1,3}(,[0-9]{3})*\.[0-9]{2}").all()
    assert out["day"].str.fullmatch(r"[0-9]{2}\.[0-9]{2}\.2020").all()
    assert (out["wait"].astype("int64") % 30 == 0).all()
    assert out["wait"].between(0, 600).all()


# --- no cell changes how another is read ---

ODD_TEXTS = [
    *(
        "31.12.2020",
        "2020-12-31",
        "12/31/2020",
        "31.12.2020 00:00",
        "",
        "N",
        "-9",
        "1.1.2020",
        None,
        "\u00a031.12.2020",
    ),
    *(
        "5",
        "$5",
        "-$5",
        "$-5",
        "$\u00a05",
        "$\u202f5",
        "EUR 5",
        "EUR\u00a05",
        "EUR\u202f1.234,5",
        "1,234",
        "1.234",
    ),
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
