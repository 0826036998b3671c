"""A cell reads alike alone and among others, in every type of every library."""

import contextlib
import sqlite3
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum
from fractions import Fraction
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth import synthesize
from repsynth.curator.check import check_table
from repsynth.errors import DataError
from repsynth.io import arrow
from repsynth.io.encode import EncodedTable, encode_batch
from repsynth.io.records import join
from repsynth.io.source import kind_of, reads_as_text
from repsynth.io.sources import Source, check_columns, open_source
from repsynth.schema import Boolean, Category, Column, Datetime, Id, Integer, Number, Person, Schema, parse_schema

DAYS = {"min": date(2019, 1, 1), "max": date(2021, 12, 31)}
TEXTS = ("0", "1", "2", "1.5", "2.5", "true", "2020-01-01", "2020-01-01T00:00:00", "2020-01-01T00:00:00+01:00")
TEXTS += ("2020-01", "(0, 1]", "(0.5, 1]", "x", "1e+16", "100", "86400", "0.1", "10:00:00")
COLUMNS: tuple[Column, ...] = (
    Category(name="texts", values=TEXTS),
    Category(name="zeros", values=("1.0", "2.50", "0.00")),
    Category(name="whole", values=("1", "2", "300")),
    Boolean(name="boolean"),
    Integer(name="integer", min=-5, max=10**6),
    Integer(name="dollars", min=0, max=9999, prefix="$", thousands=",", special=("-1", "true", "x")),
    Number(name="number", min=0.0, max=1e6),
    Number(name="euros", min=0.0, max=100.0, decimals=2, decimal=",", thousands=".", special=("1.5", "x")),
    Datetime(name="day", **DAYS),
    Datetime(name="second", min=datetime(2019, 1, 1), max=datetime(2021, 1, 1)),
    Datetime(name="dated", dates="%d.%m.%Y", special=("1", "x", "2020-01-01"), **DAYS),
    Datetime(name="numbered", dates="%Y%m%d", **DAYS),
)
NAMES = ["texts", "zeros", "integer", "euros", "second", "dated"]
"""One column for each way of reading; the others share theirs."""
SCHEMA = Schema(one_row_per_person=True, columns=tuple(column for column in COLUMNS if column.name in NAMES))
Codes = list[tuple[int, ...]]


def codes_of(table: Any) -> Codes:
    """For each row the codes that its only cell has in all columns."""
    source = open_source(table)
    batches = [dict.fromkeys(NAMES, batch.column(0)) for batch in source.batches(source.names[:1])]
    records = join([encode_batch(pa.record_batch(columns), SCHEMA) for columns in batches], NAMES)
    return list(zip(*(records.codes[name].tolist() for name in NAMES), strict=True))


def in_pandas(series: pd.Series) -> Codes:
    return codes_of(pd.DataFrame({"a": series}))


def in_arrow(array: pa.Array | pa.ChunkedArray) -> Codes:
    return codes_of(pa.table({"a": array}))


def in_polars(series: pl.Series) -> Codes:
    return codes_of(pl.DataFrame({"a": series}))


# --- Python objects in pandas ---


class Whole(IntEnum):
    ONE = 1


ZURICH = ZoneInfo("Europe/Zurich")
FAR = np.datetime64(600_000_000_000, "s")  # in the year 20983
NANO = pd.Timestamp("2020-01-01T00:00:00.000000001")
KINDS: dict[str, list[Any]] = {
    "int": [0, 1, 2, -1, 100, 20200101, np.int8(1), np.uint16(2), Whole.ONE],
    "float": [0.0, -0.0, 1.0, 1.5, 1.234, 0.1, 1e16, 20200101.0, float("inf"), np.float32(0.1), np.float16(1.5)],
    "bool": [True, False, np.True_],
    "complex": [1 + 0j, 1j, complex(1.5)],
    "decimal": [*map(Decimal, ("1", "1.0", "2.50", "1E+2", "-0.0", "1e999999", "1.234")), *[Decimal(2**64)]],
    "text": ["1", "1.0", " 1 ", "1,5", "1.234", "$5", "x", "true", "", "nan", "2020-01-01", "01.01.2020", "é"],
    "bytes": [b"1", b"\xff", b"x", b""],
    "naive": [datetime(2020, 1, 1), datetime(2020, 5, 1, 12, 30, 1, 5), datetime(1970, 1, 1), NANO],
    "microseconds": [datetime(2020, 1, 1), datetime(2020, 5, 1, 12, 30, 1, 5), datetime(9999, 12, 31)],
    "seconds": [pd.Timestamp("2020-01-01").as_unit("s"), pd.Timestamp(FAR)],
    "zoned": [pd.Timestamp("2020-01-01", tz=ZURICH), pd.Timestamp("2020-07-01", tz=ZURICH)],
    "utc": [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 23, tzinfo=UTC)],
    "date": [date(2020, 1, 1), date(9999, 12, 31), date(1, 1, 1)],
    "datetime64": [np.datetime64("2020-01-01"), np.datetime64("2020-01-01T00:00:00.5")],
    "period": [pd.Period("2020-01", "M"), pd.Period("2020-02", "M")],
    "interval": [pd.Interval(0, 1), pd.Interval(1, 2)],
    "missing": [None],
}
ODD: list[Any] = [
    *(None, float("nan"), pd.NA, pd.NaT, 7, 2.5, 2**60, 2**63, 2**64, 2**70, 10**400, -1.5, 1j, "soon"),
    *("", b"\xff"),
    *(True, Decimal("2.5"), Decimal("1.0000000001"), Decimal("nan"), Decimal("inf"), Fraction(1, 2), time(10)),
    *(datetime(2020, 1, 1), datetime(9999, 1, 1), NANO, pd.Timestamp(FAR), datetime(2020, 1, 1, tzinfo=UTC)),
    *(pd.Timestamp("2020-01-01", tz="America/Lima"), date(2020, 1, 2), np.datetime64("2020-01-01", "ns")),
    *(timedelta(1), pd.Timedelta(1, "ns"), pd.Period("2020", "Y"), pd.Interval(0.5, 1), uuid.UUID(int=1)),
    *([1], (1,), {"a": 1}, frozenset([1]), np.array([1, 2]), object()),
]


def objects(cells: list[Any]) -> pd.Series:
    held = np.empty(len(cells), dtype=object)
    for place, cell in enumerate(cells):
        held[place] = cell
    return pd.Series(held, dtype=object)


def guessed(cells: list[Any]) -> pd.Series:
    return pd.Series(cells)


def categorical(cells: list[Any]) -> pd.Series:
    return objects(cells).astype("category")


def guessed_categorical(cells: list[Any]) -> pd.Series:
    return pd.Series(cells).astype("category")


MADE = [objects, guessed, categorical, guessed_categorical]


TRUTH = bool | np.bool_


def made(make: Callable[[list[Any]], pd.Series], cells: list[Any]) -> pd.Series | None:
    """A series where pandas can make one of these cells as they are. As a category, it merges equal objects of
    different types (1, 1.0 and True) into one of them; among real numbers it rounds whole ones beyond 2^53."""
    try:
        series = make(cells)
    except (TypeError, ValueError, OverflowError):  # unhashable as a category, say
        return None
    pairs = zip(series.astype(object), cells, strict=True)
    kept = [isinstance(held, TRUTH) == isinstance(cell, TRUTH) for held, cell in pairs]
    return series if all(kept) else None


def alone(cell: Any) -> tuple[int, ...]:
    if id(cell) not in _ALONE:
        (codes,) = in_pandas(objects([cell]))
        _ALONE[id(cell)] = (cell, codes)
    return _ALONE[id(cell)][1]


_ALONE: dict[int, tuple[Any, tuple[int, ...]]] = {}  # with the cell, so that no other gets its id


def check_odd(cells: list[Any], odd: Any, place: int, make: Callable[[list[Any]], pd.Series]) -> bool:
    series = made(make, [*cells[:place], odd, *cells[place:]])
    if series is None:
        return False
    codes = in_pandas(series)
    assert codes[:place] + codes[place + 1 :] == list(map(alone, cells)), (odd, series.dtype)
    return True


@pytest.mark.parametrize("make", [guessed, guessed_categorical])
@pytest.mark.parametrize("kind", KINDS)
def test_no_odd_object_changes_how_the_others_are_read(kind: str, make: Callable[[list[Any]], pd.Series]) -> None:
    cells = KINDS[kind]
    done = [check_odd(cells, odd, len(cells), make) for odd in (None, "soon", 2.5, Decimal("2.5"))]
    assert sum(done) >= 3, "pandas refuses one of the categories"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nor_does_any_other_odd_object(kind: str) -> None:
    cells = KINDS[kind]
    done = [check_odd(cells, odd, turn % 2 * len(cells), MADE[turn % 4]) for turn, odd in enumerate(ODD)]
    assert sum(done) > len(ODD) / 2, "most of them can be made"


@settings(max_examples=25)
@given(st.lists(st.sampled_from([*chain(*KINDS.values()), *ODD]), min_size=1, max_size=8), st.sampled_from(MADE))
def test_an_object_reads_alike_alone_and_among_any_others(cells: list[Any], make: Any) -> None:
    cells = [cell for cell in cells if not (isinstance(cell, int) and cell > 2**53)]
    series = made(make, cells)
    if series is not None:
        assert in_pandas(series) == [alone(cell) for cell in cells]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_objects_tell_cells_apart(kind: str) -> None:
    """Not everything is missing: the tests above can fail."""
    assert kind == "missing" or len({alone(cell) for cell in KINDS[kind]} | {alone(None)}) > 1


def test_the_histogram_of_a_category_of_decimals_moves_by_one_record() -> None:
    schema = parse_schema(
        'one_row_per_person = true\n[columns.a]\ntype = "category"\nvalues = ["1", "2", "3"]\nmissing = true\n'
    )

    def histogram(cells: list[Decimal]) -> list[int]:
        frame = pd.DataFrame({"a": pd.Series(cells, dtype="category")})
        (records,) = EncodedTable(open_source(frame), schema)
        return np.bincount(records.codes["a"] + 1, minlength=4).tolist()  # type: ignore[no-any-return]

    cells = [Decimal(1), Decimal(2)] * 500
    assert histogram(cells) == [0, 500, 500, 0]
    assert histogram([*cells, Decimal("2.5")]) == [1, 500, 500, 0]


def test_intervals_as_pandas_cuts_them() -> None:
    cut = pd.cut(pd.Series([0.5, 1.5, 2.5]), [0, 1, 2])
    schema = Schema(one_row_per_person=True, columns=(Category(name="a", values=("(0, 1]", "(1, 2]")),))
    (records,) = EncodedTable(open_source(pd.DataFrame({"a": cut})), schema)
    assert records.codes["a"].tolist() == [0, 1, -1]


CHOSEN: list[pd.Series] = [
    pd.Series([1, 2, None], dtype="Int8"),
    pd.Series([1, 2, 2**64 - 1], dtype="UInt64"),
    pd.Series([1.5, 2.0, None, -0.0], dtype="Float32"),
    pd.Series([True, None, False], dtype="boolean"),
    *(
        pd.Series(["1", "x", None, "2020-01-01"], dtype=kind)
        for kind in ("string[python]", "string[pyarrow]", "str")
    ),
    pd.Series([1, 0, 2], dtype="Sparse[int64]"),
    pd.Series([1.5, np.nan, 0.0], dtype=pd.SparseDtype(float, np.nan)),
    pd.Series([1.5, 0.1, np.nan], dtype="float16"),
    pd.Series([1.5, 0.1, np.nan], dtype="longdouble"),
    pd.Series(np.array([b"1", b"x"], dtype="S2")),
    pd.Series([1, 2], index=["a", "a"]),
    pd.Series(pd.Categorical(["x", None, "1"], categories=["1", "unused", "x"], ordered=True)),
    pd.Series(pd.Categorical.from_codes([0, -1, 1], pd.Index([1.5, 0.0]))),
    pd.Series([b"1", b"\xff"], dtype="category"),
    pd.Series([0.0, np.nan, 1.5], dtype="category"),
    pd.Series(pd.to_datetime(["2020-01-01", "2020-07-01"]).tz_localize(ZURICH), dtype="category"),
    pd.Series(["1", "x"], dtype="string[pyarrow]").astype("category"),
    pd.Series([Decimal("1.50"), None], dtype=pd.ArrowDtype(pa.decimal128(5, 2))),
]


@pytest.mark.parametrize("series", CHOSEN, ids=lambda series: str(series.dtype))
def test_a_cell_of_a_chosen_dtype_reads_alike_alone_and_as_an_object(series: pd.Series) -> None:
    codes = in_pandas(series)
    assert codes == [in_pandas(series.iloc[[place]])[0] for place in range(len(series))]
    assert codes == [alone(cell) for cell in series.astype(object)]
    assert in_pandas(series[::-1]) == codes[::-1]
    assert in_pandas(pd.concat([series, series])) == codes + codes


def test_a_check_of_objects_counts_them() -> None:
    frame = pd.DataFrame({"a": objects(["1", "2.0", "3", None, "", "soon", "7.0"])})
    found = check_table(frame, Schema(one_row_per_person=True, columns=(Integer(name="a", min=0, max=9),)))
    assert found is not None


# --- Arrow ---

TIMES = [datetime(2020, 1, 1), datetime(2020, 6, 1, 12, 30, 1), datetime(1960, 1, 1, 0, 0, 1), None]
DECIMALS = [Decimal("1"), Decimal("2.5"), Decimal("0.1"), Decimal("-0.0"), None]
PLAIN: list[pa.Array] = [
    *(
        pa.array([0, 1, 2, 100, None], kind)
        for kind in (pa.int8(), pa.uint8(), pa.int16(), pa.int32(), pa.int64())
    ),
    pa.array([1, 2**64 - 1, 2**53 + 1, None], pa.uint64()),
    *(pa.array([0.0, -0.0, 1.5, 100.0, float("nan"), float("inf"), None], kind) for kind in (pa.float32(),)),
    pa.array(np.array([0, 1.5, -0.0, np.nan], dtype=np.float16)),
    pa.array([0.0, 1e16, 0.1, 1.5, 20200101.0, float("nan"), -float("inf"), None]),
    *(pa.array(DECIMALS, pa.decimal128(38, scale)) for scale in (1, 2, 10)),
    pa.array(DECIMALS, pa.decimal256(60, 30)),
    pa.array([Decimal(100), Decimal(20200100)], pa.decimal128(10, -2)),
    pa.array([True, False, None]),
    *(pa.array(["1", " x", "1,5", "2020-01-01", "", None], kind) for kind in (pa.string(), pa.large_string())),
    pa.array(["1", " x", "1,5", "2020-01-01", "", None], pa.string_view()),
    *(pa.array([b"1", b"x", b"\xff", None], kind) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    pa.array([b"1.5", b"x\xff1", None], pa.binary(3)),
    *(pa.array([date(2020, 1, 1), date(2020, 5, 5), None], kind) for kind in (pa.date32(), pa.date64())),
    *(pa.array(TIMES, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")),
    pa.array(TIMES, pa.timestamp("us", tz="Europe/Zurich")),
    pa.array([600_000_000_000, -(2**62), 0], pa.timestamp("s")),
    pa.array([time(10), time(0, 0, 1), None], pa.time32("s")),
    pa.array([time(10), time(0, 0, 0, 1), None], pa.time64("ns")),
    pa.nulls(2),
]
if hasattr(pa, "decimal32"):
    PLAIN += [pa.array(DECIMALS, pa.decimal32(9, 2)), pa.array(DECIMALS, pa.decimal64(18, 3))]
if hasattr(pa, "json_"):
    PLAIN += [pa.array(["1", "x", None], pa.json_())]


def dictionary(array: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array([*range(len(array)), 0, None, 0], pa.int16()), array)


def runs(array: pa.Array) -> pa.Array:
    ends = pa.array(np.cumsum(np.arange(1, len(array) + 1)), pa.int32())
    return pa.RunEndEncodedArray.from_arrays(ends, array).slice(1)


STORED: list[Callable[[pa.Array], pa.Array]] = [
    lambda array: array,
    dictionary,
    runs,
    lambda array: dictionary(dictionary(array)),
    lambda array: runs(dictionary(array)),
    lambda array: dictionary(runs(array)),
]


@pytest.mark.parametrize("array", PLAIN, ids=lambda array: str(array.type))
def test_a_cell_reads_alike_however_it_is_stored_and_batched(array: pa.Array) -> None:
    codes = dict(enumerate(_each_alone(array))) | {None: _each_alone(pa.nulls(1))[0]}
    for store in STORED:
        stored, places = store(array), map(_value, store(pa.array(range(len(array)))))
        expected = [codes[place] for place in places]
        assert in_arrow(stored) == expected, stored.type
        some = len(stored) // 2
        turned = expected[some:] + expected[:some]
        assert in_arrow(pa.chunked_array([stored.slice(some), stored.slice(0, some)])) == turned


def _value(cell: Any) -> Any:
    return _value(cell.as_py()) if isinstance(cell, pa.Scalar) else cell


def _each_alone(array: pa.Array) -> Codes:
    batches = (pa.record_batch(dict.fromkeys(NAMES, array.slice(place, 1))) for place in range(len(array)))
    read = (encode_batch(batch, SCHEMA).codes for batch in batches)
    return [tuple(codes[name][0].item() for name in NAMES) for codes in read]


def test_every_storage_of_the_same_value_reads_alike() -> None:
    """Width, scale, unit and kind of text make no difference: a library may have taken them from other cells."""
    decimals = [pa.decimal128(38, 2), pa.decimal128(20, 10), pa.decimal256(60, 30), pa.decimal128(3, 1)]
    whole = [pa.int8(), pa.uint64(), pa.float16(), pa.float64(), *decimals]
    same: list[tuple[Any, list[pa.DataType]]] = [
        (1, whole),
        (Decimal("2.5"), [*decimals, pa.float32(), pa.float64()]),
        (datetime(2020, 1, 1, 7), [pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")]),
        ("1.5", [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(3), pa.binary_view()]),
    ]
    for value, kinds in same:
        read = [in_arrow(_array_of(value, kind)) for kind in kinds]
        assert len({tuple(codes) for codes in read}) == 1, value
        assert max(read[0][0]) >= 0


def _array_of(value: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_floating(kind):
        return pa.array(np.array([float(value)], dtype=kind.to_pandas_dtype()))
    return pa.array([value], kind)


@settings(max_examples=30)
@given(st.decimals(-1000, 1000, places=12), st.integers(12, 26))
def test_a_decimal_is_the_same_number_at_any_scale(value: Decimal, scale: int) -> None:
    column = Number(name="number", min=-1000.0, max=1000.0)
    codes = {
        encode_batch(pa.record_batch({"number": cells}), Schema(one_row_per_person=True, columns=(column,)))
        .codes["number"][0]
        .item()
        for cells in (pa.array([value], pa.decimal128(38, 12)), pa.array([value], pa.decimal128(38, scale)))
    }
    frame = pd.DataFrame({"number": objects([value])})
    (records,) = EncodedTable(open_source(frame), Schema(one_row_per_person=True, columns=(column,)))
    assert codes == {records.codes["number"][0].item()}


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_row_groups_make_no_difference(rows: int, tmp_path: Path) -> None:
    for array in (
        PLAIN[0],
        pa.array(DECIMALS, pa.decimal128(9, 2)),
        pa.array(["1", "x", None]).dictionary_encode(),
    ):
        pq.write_table(pa.table({"a": array}), tmp_path / "t.parquet", row_group_size=rows)
        assert codes_of(tmp_path / "t.parquet") == in_arrow(array)


def test_lines_of_a_csv_file_read_alike_alone(tmp_path: Path) -> None:
    texts = ["1", "1.0", "1.234", "$5", "x", "2020-01-01", "01.01.2020", "1e3", "soon", ""]

    def read(cells: list[str]) -> Codes:
        lines = ["a,rest", *(f"{cell},r" for cell in cells)]
        (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
        return codes_of(tmp_path / "t.csv")

    assert read(texts) == [read([text])[0] for text in texts]
    assert read(texts[::-1]) == read(texts)[::-1]


# --- polars ---

POLARS: list[pl.Series] = [
    *(pl.Series([0, 1, 100, None], dtype=kind) for kind in (pl.Int8, pl.UInt16, pl.Int64, pl.Float32, pl.Float64)),
    pl.Series([1, 2**64 - 1], dtype=pl.UInt64),
    *([pl.Series([1, 2**70, None], dtype=pl.Int128)] if hasattr(pl, "Int128") else []),
    pl.Series([True, None, False]),
    pl.Series(["1", " x", None, "2020-01-01"]),
    pl.Series(["1", "x", None], dtype=pl.Categorical),
    pl.Series(["1", "x", None], dtype=pl.Enum(["x", "unused", "1"])),
    pl.Series([b"1", b"\xff", None]),
    pl.Series([Decimal("1.50"), Decimal("2.5"), None], dtype=pl.Decimal(20, 4)),
    pl.Series([1, "x", None, Decimal("2.5"), date(2020, 1, 1)], dtype=pl.Object),
    pl.Series([date(2020, 1, 1), None]),
    *(pl.Series([datetime(2020, 1, 1, 7), None], dtype=pl.Datetime(unit)) for unit in ("ms", "us", "ns")),
    pl.Series([datetime(2020, 1, 1, 7)], dtype=pl.Datetime("us", "Europe/Zurich")),
    pl.Series([time(10), None]),
    pl.Series([None, None]),
]


@pytest.mark.parametrize("series", POLARS, ids=lambda series: str(series.dtype))
def test_a_polars_cell_reads_alike_alone_and_as_an_object(series: pl.Series) -> None:
    codes = in_polars(series)
    assert codes == [in_polars(series.slice(place, 1))[0] for place in range(len(series))]
    assert codes == [alone(cell) for cell in series.to_list()]
    assert in_polars(series.reverse()) == codes[::-1]
    if series.dtype != pl.Object:
        assert in_polars(pl.concat([series, series], rechunk=False)) == codes + codes


def test_the_scale_that_polars_guesses_makes_no_difference() -> None:
    cells = [Decimal("1"), Decimal("2")]
    assert in_polars(pl.Series([*cells, Decimal("0.001")]))[:2] == in_polars(pl.Series(cells))


# --- what is refused ---

REFUSED: list[pa.DataType] = [
    *(pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 2), pa.struct([("b", pa.int8())])),
    *(pa.map_(pa.string(), pa.int8()), pa.dictionary(pa.int8(), pa.list_(pa.int8()))),
    *(pa.run_end_encoded(pa.int32(), pa.struct([("b", pa.int8())])), pa.month_day_nano_interval()),
    pa.dictionary(pa.int8(), pa.month_day_nano_interval()),
    *([pa.uuid()] if hasattr(pa, "uuid") else []),
]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_what_cannot_be_read_is_refused_by_its_type_before_any_cell_is_seen(kind: pa.DataType) -> None:
    unread = Source("arrow", ("a",), (kind,), lambda columns: pytest.fail("a cell was seen"))
    with pytest.raises(
        DataError, match=r"^column 'a' (holds nested values|is of a type that is not read); [^\n]*$"
    ):
        check_columns(unread, Schema(one_row_per_person=True, columns=(Boolean(name="a"),)))


@pytest.mark.parametrize("kind", [pl.List(pl.Int8), pl.Struct({"b": pl.Int8}), pl.Array(pl.Int8, 2)], ids=str)
def test_nested_polars_columns_are_refused(kind: Any) -> None:
    for frame in (
        pl.DataFrame({"a": pl.Series([], dtype=kind)}),
        pl.DataFrame({"a": pl.Series([None], dtype=kind)}),
    ):
        with pytest.raises(DataError, match="nested"):
            check_columns(open_source(frame), Schema(one_row_per_person=True, columns=(Boolean(name="a"),)))


@pytest.mark.parametrize("array", PLAIN, ids=lambda array: str(array.type))
def test_what_is_not_refused_can_be_read(array: pa.Array) -> None:
    columns = tuple(column for column in SCHEMA.learned if reads_as_text(column, kind_of(array.type)))
    schema = Schema(columns=columns)
    for stored in (array, dictionary(array), runs(array)):
        source = open_source(pa.table({column.name: stored for column in columns}))
        check_columns(source, schema)
        if columns:
            (records,) = EncodedTable(source, schema)
            assert records.rows == len(stored)


# --- readers that infer types ---

DECLARED: list[Column] = [
    *(
        Category(name=f"category {number}", values=values)
        for number, values in enumerate(
            [
                ("02139", "02140", "K1A 0B1"),
                ("1", "2", "3"),
                ("1", "2", "3+"),
                ("1.0", "2.50"),
                ("1", "01", "2"),
                ("1", "2", "NA"),
                ("1", "2", "nan"),
                ("0x10", "2"),
                ("0", "1", "true", "false"),
                ("True", "False", "yes", "no"),
                ("2020-01-31", "2020-02-01", "20200131"),
                ("10:00", "11:00:00"),
                ("9007199254740993", "9007199254740992"),
                ("a", "b"),
            ]
        )
    ),
    Boolean(name="boolean"),
    Integer(name="integer", min=-5, max=10**8),
    Integer(name="dotted", min=0, max=10**8, thousands="."),
    Integer(name="dollars", min=0, max=10**8, thousands=",", prefix="$", special=("-9", "x")),
    Integer(name="special", min=0, max=10, special=("NA", "-9")),
    Integer(name="huge", min=0, max=2**53 - 1),
    Number(name="number", min=0.0, max=100.0),
    Number(name="cents", min=0.0, max=100.0, decimals=2),
    Number(name="comma", min=0.0, max=100.0, decimal=","),
    Number(name="european", min=0.0, max=10_000.0, decimal=",", thousands="."),
    Datetime(name="day", **DAYS),
    Datetime(name="second", min=datetime(2019, 1, 1), max=datetime(2021, 1, 1), special=("9999-12-31", "-9")),
    Datetime(name="european day", dates="%d.%m.%Y", **DAYS),
    Datetime(name="day first", dates="%Y-%d-%m", **DAYS),
    Datetime(name="numbered", dates="%Y%m%d", special=("-9",), **DAYS),
    Datetime(name="short", dates="%d%m%y", **DAYS),
]
ALL_DECLARED = Schema(columns=tuple(DECLARED))
RAW: list[tuple[str, str]] = [
    *[("02139", "02140"), ("1", "2"), ("01", "2"), ("1.0", "2.50"), ("1.", "0"), ("1.234", "2.500"), ("1e0", "2")],
    *[("-9", "1"), ("NA", "1"), ("nan", "2"), ("", "2"), ("9007199254740993", "9007199254740992"), ("1,5", "2,5")],
    *[("1", "0"), ("True", "False"), ("true", "false"), ("yes", "no"), ("10:00", "11:00:00"), ("$1,000", "$2")],
    *[("2020-01-31", "2020-02-01"), ("2020-01-31 10:00:00", "2020-02-01 00:00:00"), ("2020-01-02T00:00", "")],
    *[("2020-01-31T00:00:00+02:00", "2020-01-01T00:00:00Z"), ("20200131", "20200201"), ("010220", "110220")],
    *[("9999-12-31", "2020-01-01"), ("a", "b"), ("0.1", "33.333333333333336"), ("", "")],
    ("31.01.2020", "01.02.2020"),
]
"""Two cells of each column of a CSV file."""

ODD_CELLS = ["", "x", "1.5", "3", "true", "2020-01-31", "2020-01-31T10:00:00", "10:00", "NA", "9" * 17, "K1A 0B1"]


def from_parquet(path: Path) -> Any:
    pd.read_csv(path).to_parquet(path.with_suffix(".parquet"))
    return path.with_suffix(".parquet")


def from_sqlite(path: Path) -> Any:
    path = path.with_suffix(".sqlite")
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        pd.read_csv(path.with_suffix(".csv")).to_sql("t", connection, index=False)
    return path


def from_duckdb(path: Path) -> Any:
    duckdb = pytest.importorskip("duckdb")
    made = path.with_suffix(".duckdb")
    made.unlink(missing_ok=True)
    with duckdb.connect(str(made)) as connection:
        connection.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{path}', header = true, delim = ',')")
    return made


def from_dask(path: Path) -> Any:
    frames = pytest.importorskip("dask.dataframe")
    return frames.from_pandas(pd.read_csv(path), npartitions=1)


READERS: dict[str, Callable[[Path], Any]] = {
    "file": lambda path: path,
    "pandas": pd.read_csv,
    "nullable pandas": partial(pd.read_csv, dtype_backend="numpy_nullable"),
    "arrow in pandas": partial(pd.read_csv, engine="pyarrow", dtype_backend="pyarrow"),
    "categories": lambda path: pd.read_csv(path).astype("category"),
    "objects": lambda path: pd.read_csv(path).astype(object),
    "parquet": from_parquet,
    "sqlite": from_sqlite,
    "polars": partial(pl.read_csv, infer_schema_length=None),
    "arrow": pacsv.read_csv,
    "duckdb": from_duckdb,
    "dask": from_dask,
}
"""Each reader of a CSV file, most of which infer types."""


def write_raw(path: Path, odd: list[str]) -> None:
    columns = {f"c{place}": [*cells, *odd] for place, cells in enumerate(RAW)}
    pd.DataFrame(columns).assign(end="e").to_csv(path, index=False)


def readings(table: Any) -> dict[tuple[int, str], list[int]]:
    """Read the first two cells of each column by each column of the schema that is not refused."""
    source = open_source(table)
    cells = source if source.engine is None else open_source(table.compute())
    names = [f"c{place}" for place in range(len(RAW))]
    (batch,) = cells.batches(names)
    if source.engine is None:  # read once, not for each column of the schema
        source = replace(source, batches=lambda columns: iter([batch.select(list(columns))]))
    found = {}
    for place, name in enumerate(names):
        codes = codes_of_two(batch.column(name).slice(0, 2))
        taken = [column.name for column in DECLARED if accepts(source, replace(column, name=name))]
        found |= {(place, column): codes[column] for column in taken}
    return found


_TWO: dict[str, dict[str, list[int]]] = {}


def codes_of_two(cells: pa.Array) -> dict[str, list[int]]:
    """The codes of two cells, once for each type and text: most readings find the same."""
    key = f"{cells.type} {cells.to_pylist()}"
    if key not in _TWO:
        codes = encode_batch(pa.record_batch({column.name: cells for column in DECLARED}), ALL_DECLARED).codes
        _TWO[key] = {name: read.tolist() for name, read in codes.items()}
    return _TWO[key]


def accepts(source: Source, column: Column) -> bool:
    place = source.names.index(column.name)
    alone = replace(source, names=(column.name,), types=(source.types[place],))
    try:
        check_columns(alone, Schema(columns=(column,)))
    except DataError:
        return False
    return True


@pytest.mark.parametrize("read", READERS)
def test_no_odd_record_changes_how_a_reader_s_cells_are_read(read: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    write_raw(path, [])
    alone = readings(READERS[read](path))
    least = 0.25 if read == "duckdb" else 0.4  # its numbers and times must be declared
    assert len(alone) > len(RAW) * len(DECLARED) * least, "most are not refused"
    for odd in ODD_CELLS:
        write_raw(path, [odd])
        among = readings(READERS[read](path))
        changed = {key for key in alone.keys() & among.keys() if alone[key] != among[key]}
        if read == "sqlite":  # pandas writes True there as the number 1
            changed = {(place, name) for place, name in changed if RAW[place][0].lower() != "true"}
        assert not changed, odd


def test_times_of_duckdb_are_read_only_as_the_schema_declares_them(tmp_path: Path) -> None:
    """DuckDB makes dates of 31/03/2020, and text of the whole column if one cell is a word."""
    path, day = tmp_path / "t.csv", Datetime(name="a", **DAYS)
    for cells, declared, accepted in (
        (["31/03/2020", "30/03/2020"], None, False),
        (["31/03/2020", "30/03/2020"], "date32", True),
        (["31/03/2020", "unknown"], "date32", False),
        (["31/03/2020", "unknown"], None, True),
    ):
        path.write_text("\n".join(["a", *cells]) + "\n")
        assert accepts(open_source(from_duckdb(path)), replace(day, storage=declared)) is accepted, (
            cells,
            declared,
        )


def test_numbers_of_duckdb_are_read_only_as_the_schema_declares_them(tmp_path: Path) -> None:
    """DuckDB rounds what is behind its sample to the whole numbers in front of it."""
    path, number = tmp_path / "t.csv", Number(name="a", min=0.0, max=9.0)
    path.write_text("a\n" + "7\n" * 25_000 + "1.5\n")
    table = open_source(from_duckdb(path))
    assert pa.types.is_integer(table.types[0])
    assert not accepts(table, number)
    assert accepts(table, replace(number, storage="float64"))
    person = Schema(columns=(number, Id(name="who")), person=Person(column="who"))
    path.write_text("a,who\n1.5,17\n2.5,18\n")
    declared = replace(person, columns=(replace(number, storage="float64"), Id(name="who", storage="int64")))
    check_columns(open_source(from_duckdb(path)), declared)
    with pytest.raises(DataError, match="column 'who' is stored as numbers, which DuckDB may have inferred"):
        check_columns(
            open_source(from_duckdb(path)), replace(declared, columns=(declared.columns[0], Id(name="who")))
        )


def test_codes_with_leading_zeros_are_refused_as_numbers(tmp_path: Path) -> None:
    schema = Schema(columns=(DECLARED[0],), one_row_per_person=True)
    path = tmp_path / "t.csv"
    path.write_text(f"{DECLARED[0].name}\n" + "02139\n" * 4 + "02140\n")
    for name, read in READERS.items():
        if name not in ("file", "duckdb"):  # DuckDB takes leading zeros for text
            with pytest.raises(DataError, match=r"^column 'category 0' is stored as numbers, [^\n]*dtype=str$"):
                synthesize(read(path), schema, epsilon=1.0)
    for table in (path, pd.read_csv(path, dtype=str)):
        check_columns(open_source(table), schema)


@pytest.mark.filterwarnings("ignore:Columns .* have mixed types")
def test_a_table_of_several_chunks_in_which_one_record_is_a_word(tmp_path: Path) -> None:
    """`read_csv` makes numbers of one chunk and text of the other."""
    path, more = tmp_path / "t.csv", ",".join("0" * 600)
    names = ",".join(f"c{place}" for place in range(600))
    path.write_text(f"a,{names}\n" + f"01,{more}\n" * 1500 + f"x,{more}\n")
    frame = pd.read_csv(path)[["a"]]
    assert {type(cell) for cell in frame["a"]} == {int, str}
    whole = open_source(frame)
    assert not accepts(whole, Category(name="a", values=("01", "x")))
    assert not accepts(whole, Integer(name="a", min=0, max=9, thousands="."))
    assert not accepts(whole, Category(name="a", values=("1", "x")))
    assert accepts(open_source(path), Category(name="a", values=("01", "x")))


def test_a_word_in_a_later_batch_is_not_overlooked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "BATCH_ROWS", 4)
    column = Category(name="a", values=("1", "x"))
    assert accepts(open_source(pd.DataFrame({"a": [1] * 9}, dtype=object)), column)
    for place in (0, 4, 8):
        cells: list[Any] = [1] * 9
        cells[place] = "x"
        assert not accepts(open_source(pd.DataFrame({"a": cells}, dtype=object)), column), place


def test_times_are_refused_where_storage_would_lose_a_special_value(tmp_path: Path) -> None:
    """A reader that makes times of the column makes a missing cell of "NA"."""
    path = tmp_path / "t.csv"
    path.write_text("a\n2020-01-31\nNA\n")
    times = pd.read_csv(path, parse_dates=["a"])
    assert kind_of(open_source(times).types[0]) == "times"
    for special in ((), ("-9",), ("unknown",)):
        assert accepts(open_source(times), Datetime(name="a", special=special, **DAYS)), special
    for special in (("NA",), ("-9", "None"), ("nan",)):
        assert not accepts(open_source(times), Datetime(name="a", special=special, **DAYS)), special
        assert accepts(open_source(path), Datetime(name="a", special=special, **DAYS)), special


@pytest.mark.parametrize(
    "column", [Category(name="a", values=("NA", "x")), Number(name="a", min=0.0, max=9.0, special=("NA",))]
)
def test_a_column_of_missing_cells_alone_is_refused_where_they_may_be_values(
    column: Column, tmp_path: Path
) -> None:
    """Arrow has no type for a column of nothing but NA, and text as soon as one cell is a word."""
    path = tmp_path / "t.csv"
    path.write_text("a\nNA\nNA\n")
    assert pacsv.read_csv(path).schema.types == [pa.null()]
    assert not accepts(open_source(pacsv.read_csv(path)), column)
    assert accepts(open_source(path), column)


def test_a_prefix_with_digits_is_no_prefix_of_a_number() -> None:
    assert not reads_as_text(Integer(name="a", min=0, max=99, prefix="1"), "numbers")
    assert reads_as_text(Integer(name="a", min=0, max=99, prefix="$"), "numbers")
