"""Each cell has one bin, by itself: what stands in other rows makes no difference, nor how the table is stored."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repsynth.curator.private_schema import BINS, FrequentValues, Kind, KindHistograms, bins_of, edges_of, start_of
from repsynth.io.sources import open_source

CELLS: list[Any] = [
    *(None, "", " ", 0, 1, -1, 7, 10**9, -(10**15), 2**70, True, False, 1.5, -0.25, 1e-9, 1e300, float("inf")),
    *(float("nan"), "0", "-7", "1.50", "1e3", "1e999", "abc", "N", "?", "x" * 101, "a\x00b", "\ufffd", "true"),
    *("2020-01-05", "2020-01-05 10:00:00", "1600-01-01", "2020-13-45", " 2020-01-05 ", "$5", "1,5", "é", b"\xff"),
    *(date(2020, 1, 5), datetime(2020, 1, 5, 10), date(1, 1, 1), Decimal("1.0"), Decimal("2.50")),
    *(Decimal("1e400"),),
]
VALUES = FrequentValues(("a",), frozenset())
MIXED = FrequentValues(("a",), frozenset({"a"}))


def read(table: Any) -> list[tuple[int, str | None, str | None]]:
    """The bin and the values of each row's only cell."""
    found = []
    for batch in open_source(table).batches(["a"]):
        cells = batch.column("a")
        texts = (values.texts("a", cells).to_pylist() for values in (VALUES, MIXED))
        found += list(zip(bins_of(cells).tolist(), *texts, strict=True))
    return found


@settings(max_examples=25)
@given(st.lists(st.sampled_from(CELLS), min_size=1, max_size=8))
def test_a_cell_of_an_object_column_reads_alike_alone_and_among_others(cells: list[Any]) -> None:
    together = read(pd.DataFrame({"a": pd.Series(cells, dtype=object)}))
    alone = [read(pd.DataFrame({"a": pd.Series([cell], dtype=object)}))[0] for cell in cells]
    assert together == alone


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, None, -5, 2**40]),
        pa.array([1.0, None, 2.5, float("nan"), float("inf")]),
        pa.array([True, None, False]),
        pa.array(["1", "", None, "x", "2020-01-05"]),
        pa.array(["a", "b", "a", None]).dictionary_encode(),
        pa.array([date(2020, 1, 5), None]),
        pa.array([datetime(2020, 1, 5, 10), datetime(2020, 1, 5)]),
        pa.array([Decimal("1.00"), Decimal("2.50")]),
        pa.array([None, None]),
        pa.array([b"x", b"\xff", b"7"]),
    ],
    ids=lambda column: str(column.type),
)
def test_a_cell_of_a_typed_column_reads_alike_alone_and_among_others(column: pa.Array) -> None:
    together = read(pa.table({"a": column}))
    assert together == [read(pa.table({"a": column.slice(i, 1)}))[0] for i in range(len(column))]


def test_one_odd_cell_changes_no_other_however_the_library_stores_it() -> None:
    plain = read(pd.DataFrame({"a": [1, 2, 3]}))
    assert read(pd.DataFrame({"a": [1, 2, 3, None]}))[:3] == plain  # floats now
    assert read(pd.DataFrame({"a": [1, 2, 3, "x"]}))[:3] == plain  # objects now
    assert read(pl.DataFrame({"a": [1, 2, 3]})) == plain
    true = read(pd.DataFrame({"a": [True, False]}))
    assert read(pd.DataFrame({"a": [True, False, "x"]}))[:2] == true


@settings(max_examples=25)
@given(st.lists(st.sampled_from(CELLS), max_size=8))
def test_a_row_adds_one_to_one_bin_of_each_column(cells: list[Any]) -> None:
    frame = pd.DataFrame({"a": pd.Series(cells, dtype=object), "b": pd.Series(cells[::-1], dtype=object)})
    kernel = KindHistograms(("a", "b"))
    total = sum(kernel.total(batch) for batch in open_source(frame).batches(["a", "b"]))
    rows = [pd.DataFrame({"a": frame["a"][i : i + 1], "b": frame["b"][i : i + 1]}) for i in range(len(frame))]
    alone = [kernel.total(batch) for row in rows for batch in open_source(row).batches(["a", "b"])]
    for each in alone:
        assert np.linalg.norm(each) == pytest.approx(kernel.sensitivity)
        assert each[:BINS].sum() == each[BINS:].sum() == 1
    assert np.array_equal(total, np.sum(alone, axis=0))


def test_numbers_and_dates_fall_between_the_edges_of_their_bins() -> None:
    found = bins_of(pa.array(["17", "-17", "0", "0.3", "2024-02-29", "2024-02-29T01:00:00"]))
    kinds = [Kind.WHOLE, Kind.WHOLE, Kind.WHOLE, Kind.FRACTION, Kind.DAY, Kind.TIME]
    values = [17, -17, 0, 0.3, 2024, 2024]
    for place, kind, value in zip(found.tolist(), kinds, values, strict=True):
        low, high = edges_of(kind)[place - start_of(kind)], edges_of(kind)[place - start_of(kind) + 1]
        assert low <= value < high


def test_bins_of_all_kinds_are_apart() -> None:
    starts = [start_of(kind) for kind in Kind]
    assert starts == sorted(set(starts))
    assert start_of(Kind.TIME) + len(edges_of(Kind.TIME)) - 1 == BINS


def test_values_that_cannot_be_written_down_count_for_nothing() -> None:
    cells = pa.array(["fine", "x" * 101, "a\x00b", "\ufffd", "", None, "7"])
    assert VALUES.texts("a", cells).to_pylist() == ["fine", None, None, None, None, None, "7"]
    assert MIXED.texts("a", cells).to_pylist() == ["fine", None, None, None, None, None, None]


@pytest.mark.parametrize(
    "cell",
    [
        *("5e14", "9e14", "-9e14", "500000000000000.5", "1e300", "1699-12-31"),
        *("2200-01-01", "2200-01-01T00:00:01", "2350-05-05", "9999-12-31T23:59:59"),
    ],
)
def test_a_cell_beyond_all_bins_is_a_text(cell: str) -> None:
    assert bins_of(pa.array([cell])).tolist() == [start_of(Kind.TEXT)]
    assert KindHistograms(("a", "b")).total(pa.record_batch({"a": [cell], "b": [cell]})).shape == (2 * BINS,)


def test_times_beyond_python_s_read_alike_however_pandas_stores_them() -> None:
    far = [pd.Timestamp(np.datetime64("12020-01-01", "s")), pd.Timestamp(np.datetime64("-0100-01-01", "s"))]
    typed = read(pd.DataFrame({"a": far}))
    assert read(pd.DataFrame({"a": [*far, "unknown"]}))[:2] == typed
    assert read(pd.DataFrame({"a": [*far, None]}))[:2] == typed
