"""The gate: no cell raises, none reads differently because of its neighbours, all land inside the domain."""

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth.io.encode import encode_batch
from repsynth.io.records import MISSING, Records
from repsynth.schema import Boolean, Category, Datetime, Integer, Number, Schema

EVERYTHING = Schema(
    one_row_per_person=True,
    columns=(
        Category(name="category", values=("1", "b c", "true", "-3")),
        Boolean(name="boolean"),
        Integer(name="integer", min=-5, max=5),
        Number(name="number", min=0.0, max=1.0),
        Datetime(name="day", min=date(2020, 1, 1), max=date(2020, 12, 31)),
        Datetime(name="second", min=datetime(2020, 1, 1), max=datetime(2020, 12, 31)),
        Integer(name="stepped", min=-10, max=10, step=5, special=("-9", "1", "x"), thousands=",", prefix="$"),
        Number(name="decimals", min=0.0, max=1.0, decimals=2, special=("0.5",), thousands=".", decimal=","),
        Datetime(
            name="dated",
            min=date(2020, 1, 1),
            max=date(2020, 12, 31),
            special=("9999-12-31", "1"),
            dates="%Y-%m-%d",
        ),
    ),
)
LARGEST = {"category": 3, "boolean": 1, "integer": 10, "number": 2**40, "day": 365, "second": 365 * 86_400}
LARGEST |= {"stepped": 4 + 3, "decimals": 100 + 1, "dated": 365 + 2}

TEXTS = st.one_of(
    st.binary(max_size=12),
    st.sampled_from(b"1, 1 ,+1,1e3,1e999,-1e999,nan,inf,-inf,0x1,1_0,true,NO,\xff\xfe,".split(b",")),
    st.sampled_from([b"2020-02-30", b"2020-06-01", b"2020-06-01T10:00:00+02:00", b"9999-12-31", b"0001-01-01"]),
)
CELLS = {
    pa.binary(): TEXTS,
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us"): st.datetimes(),
    pa.duration("ns"): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(38, 3): st.decimals(-(10**20), 10**20, places=3),
    pa.string(): st.text(max_size=8),
}


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    kind = draw(st.sampled_from(list(CELLS)))
    return pa.array(draw(st.lists(st.none() | CELLS[kind], min_size=1, max_size=6)), type=kind)


def encode(array: pa.Array) -> Records:
    return encode_batch(pa.record_batch({column.name: array for column in EVERYTHING.columns}), EVERYTHING)


@given(arrays())
def test_no_cell_raises_and_all_land_in_the_domain(array: pa.Array) -> None:
    for name, codes in encode(array).codes.items():
        assert codes.dtype == np.int64
        assert len(codes) == len(array)
        assert np.all((codes == MISSING) | ((codes >= 0) & (codes <= LARGEST[name])))


@given(arrays())
def test_a_cell_reads_the_same_alone(array: pa.Array) -> None:
    together = encode(array).codes
    for i in range(len(array)):
        for name, codes in encode(array.slice(i, 1)).codes.items():
            assert codes.tolist() == [together[name][i]]


@pytest.mark.parametrize(
    ("column", "cells", "codes"),
    [
        ("category", [b"1", b" b c ", b"x", b"", None], [0, 1, -1, -1, -1]),
        ("category", [1, -3, 2], [0, 3, -1]),
        ("category", [1.0, 1.5, float("nan")], [0, -1, -1]),
        ("category", [True, False], [2, -1]),
        ("boolean", [b"Yes", b"f", b"1", b"maybe"], [1, 0, 1, -1]),
        ("boolean", [1, 0, 2], [1, 0, -1]),
        ("integer", [-100, -5, 0, 5, 100], [0, 0, 5, 10, 10]),
        ("integer", [b"3.6", b"three", b"1e1"], [9, -1, 10]),
        ("number", [-1.0, 0.5, 2.0, float("nan"), float("inf")], [0, 2**39, 2**40, -1, -1]),
        ("day", [b"2020-02-01", b"1999-01-01", b"2020-02-31", b"soon"], [31, 0, -1, -1]),
        ("day", [datetime(2020, 1, 2, 23, 59), datetime(2030, 1, 1)], [1, 365]),
        ("second", [b"0001-01-01T00:00+01:00", b"9999-12-31T23:59-12"], [0, 365 * 86_400]),
        ("second", [b"2020-01-01T01:00:00+01:00", b"2020-01-01 00:01"], [0, 60]),
        ("integer", [timedelta(seconds=3), None], [-1, -1]),
        ("stepped", [b"$5", b"-$10", b"-9.0", b"1", b" x ", b"$1,000", b"2"], [3, 0, 5, 6, 7, 4, 2]),
        ("decimals", [b"0,25", b"0.25", b"0,5", b"1.000"], [25, -1, 101, 100]),
        ("dated", [b"2020-01-02", b"9999-12-31", b"1.0", b"2020-1-2"], [1, 366, 367, 1]),
        ("dated", [date(2020, 1, 2), date(9999, 12, 31)], [1, 366]),
    ],
)
def test_cells(column: str, cells: list[object], codes: list[int]) -> None:
    assert encode(pa.array(cells)).codes[column].tolist() == codes


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.decimal128(10, 2), pa.int8(), pa.float16(), pa.large_string(), pa.string_view(), pa.large_binary()),
        *(pa.dictionary(pa.int8(), pa.string()), pa.date64(), pa.time32("s"), pa.duration("s"), pa.null()),
        pa.timestamp("ns", "Europe/Zurich"),
    ],
    ids=str,
)
def test_nulls_of_any_type_are_missing(kind: pa.DataType) -> None:
    assert all((codes == MISSING).all() for codes in encode(pa.nulls(2, kind)).codes.values())


def test_a_very_long_cell() -> None:
    codes = encode(pa.array(["7" * 100_000, "x" * 100_000])).codes
    assert codes["integer"].tolist() == [MISSING, MISSING]
    assert codes["category"].tolist() == [MISSING, MISSING]


@settings(max_examples=40)
@given(
    cells=st.lists(
        st.none() | st.sampled_from(["1", "0.5", ".25", "-3", "+1", "7."]) | st.sampled_from(["b c", "true"]),
        max_size=6,
    ),
    odd=st.none() | st.sampled_from([" 1", "1e2", "1e0005", "inf", "nan", "x", "1_0"]),
)
def test_bytes_text_and_dictionaries_read_alike(cells: list[str | None], odd: str | None) -> None:
    """Bytes that are all values, or all numbers, are read by a shorter way."""
    for alike in (cells, [cell for cell in cells if cell not in ("b c", "true")]):
        text = pa.array([*alike, *([] if odd is None else [odd])], pa.large_string())
        kinds = [
            text,
            text.cast(pa.binary()),
            text.dictionary_encode(),
            text.cast(pa.binary()).dictionary_encode(),
        ]
        kinds.append(text.dictionary_encode().cast(pa.dictionary(pa.uint8(), pa.string())))
        found = [
            {
                name: codes.tolist()
                for name, codes in encode_batch(
                    pa.record_batch({column.name: array for column in EVERYTHING.columns}), EVERYTHING
                ).codes.items()
            }
            for array in kinds
        ]
        assert all(each == found[0] for each in found)


@pytest.mark.parametrize("text", ["1e0005", "0x10", "0b11", "1_000"])
def test_numbers_in_forms_that_only_some_readers_know_read_as_numbers(text: str) -> None:
    """DuckDB, Arrow or pandas make numbers of them, unless another cell of the column is a word."""
    schema = Schema(one_row_per_person=True, columns=(Integer(name="a", min=0, max=10**6),))
    number = float(text) if "e" in text else int(text, 0)
    codes = [encode_batch(pa.record_batch({"a": [cell]}), schema).codes["a"][0] for cell in (text, number)]
    assert codes[0] == codes[1] == number
