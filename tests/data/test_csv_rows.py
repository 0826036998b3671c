"""Rows of CSV: what is made of whole columns is what Arrow's writer makes, byte by byte."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repsynth.data import csv_rows as module
from repsynth.data.csv_rows import csv_rows

FEW_DIGITS = st.builds(lambda units, digits: units / 10**digits, st.integers(-(10**12), 10**12), st.integers(0, 9))
EDGES = st.sampled_from([0.0, -0.0, 1e-6, 1.5e-6, 9e-7, 1e-7, 99_999_999.9999999, 1e8, 1e10, 123.0, 0.1 + 0.2])
NUMBERS = st.none() | FEW_DIGITS | EDGES | st.floats()


def by_arrow(table: pa.Table) -> bytes:
    written = pa.BufferOutputStream()
    pacsv.write_csv(table, written, pacsv.WriteOptions(include_header=False))
    return bytes(written.getvalue().to_pybytes())


def by_us(table: pa.Table) -> bytes:
    rows = csv_rows(table)
    assert rows is not None
    return b"".join(map(bytes, rows))


@given(numbers=st.lists(NUMBERS, min_size=1, max_size=8))
def test_numbers_are_written_as_arrow_writes_them(numbers: Sequence[float | None]) -> None:
    """Those of another form, too, as long as they are few among many."""
    usual = [0.25, -7.0, 1234.5, None, 0.0] * 52
    table = pa.table({"x": pa.array([*numbers, *usual], pa.float64()), "y": [1.5] * (len(numbers) + 260)})
    assert by_us(table) == by_arrow(table)


@given(numbers=st.lists(st.none() | st.integers(-(10**11) + 1, 10**11 - 1), min_size=1, max_size=8))
def test_whole_numbers_are_written_as_arrow_writes_them(numbers: Sequence[int | None]) -> None:
    table = pa.table({"x": pa.array(numbers, pa.int64()), "small": pa.array([7] * len(numbers), pa.int8())})
    assert by_us(table) == by_arrow(table)


@given(texts=st.lists(st.none() | st.text(st.characters(exclude_characters="\0", codec="utf-8"), max_size=9)))
def test_texts_are_quoted_as_arrow_quotes_them(texts: Sequence[str | None]) -> None:
    cells = pa.array(texts, pa.string())
    table = pa.table({"x": cells.dictionary_encode(), "y": cells, "n": pa.array(range(len(texts)), pa.int32())})
    assert by_us(table) == by_arrow(table.set_column(0, "x", cells))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([True, None, False]),
        pa.array([1.5, None, 0.1], pa.float32()),
        pa.array([Decimal("1.50"), None, Decimal("-0.05")]),
        pa.array([datetime(2020, 1, 1, 12), None, datetime(1960, 2, 3)], pa.timestamp("ms")),
        pa.array([datetime(2020, 1, 1, 12), None, datetime(1960, 2, 3)], pa.timestamp("s", tz="UTC")),
        pa.array([datetime(2020, 1, 1), None, datetime(1960, 2, 3)], pa.timestamp("s")).cast(pa.date32()),
        pa.array([2**40, None, -(2**62)]),
    ],
    ids=lambda cells: str(cells.type),
)
def test_other_types_are_written_as_arrow_writes_them(cells: pa.Array) -> None:
    table = pa.table({"x": cells, "y": [1, 2, 3]})
    assert by_us(table) == by_arrow(table)


def test_rows_go_on_over_the_borders_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=1_000).round(4)
    x[::100] = np.pi * x[::100]
    table = pa.table({"k": np.arange(1_000), "x": x, "s": [f"value {k % 7}" for k in range(1_000)]})
    monkeypatch.setattr(module, "_ROWS", 64)
    rows = csv_rows(table)
    assert rows is not None
    assert len(rows) == 16
    assert b"".join(map(bytes, rows)) == by_arrow(table)


@pytest.mark.parametrize(
    "cells",
    [
        pa.array(["x\0y", "a"]),  # a zero byte of its own would get lost
        pa.array(["long" * 30, "a"]),
        pa.array([str(k) for k in range(300)]),
        pa.array([np.pi, np.e]),
        pa.array([b"x", b"y"]),
        pa.nulls(2),
        pa.array([3, 5], pa.duration("s")),
        pa.array([[1], [2]]),
    ],
    ids=lambda cells: f"{cells.type} {len(cells)}",
)
def test_what_would_not_be_right_or_quick_is_left_to_arrow(cells: Any) -> None:
    assert csv_rows(pa.table({"x": cells})) is None
