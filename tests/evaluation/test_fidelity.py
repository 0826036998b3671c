"""Distances count lost spikes, special codes and missing cells."""

import numpy as np
import pytest

from repsynth.errors import DataError
from repsynth.evaluation.fidelity import (
    CELLS,
    FREQUENT,
    TRIPLES,
    Grid,
    measure_distances,
    sample_triples,
    total_variation,
)
from repsynth.io.records import MISSING, Records
from repsynth.schema import Category, Integer, Schema

INCOME = Integer(name="income", min=0, max=2_000_000)
REGION = Category(name="region", values=("a", "b", "c"), missing=True)


def one_column(real: np.ndarray, made: np.ndarray) -> float:
    schema = Schema(one_row_per_person=True, columns=(INCOME,))
    records = (Records(rows=len(codes), codes={"income": codes}) for codes in (real, made))
    return measure_distances(*records, schema).one_way["income"]


def test_a_value_is_frequent_from_two_percent_of_all_records_on() -> None:
    def own(times: int) -> list[int]:
        codes = np.concatenate([np.full(times, 7), np.full(500, MISSING), np.arange(100, 600 - times)])
        assert len(codes) == 1000
        return Grid.strict(INCOME, codes).own.tolist()

    assert FREQUENT == 0.02
    assert own(19) == []
    assert own(20) == [7]


def test_the_other_values_are_cut_into_twenty_equal_parts() -> None:
    codes = np.concatenate([np.zeros(9000, dtype=np.int64), np.random.default_rng(0).permutation(1000) + 1])
    grid = Grid.strict(INCOME, codes)
    counts = np.bincount(grid.of(codes))
    assert counts.tolist() == [0, 9000, *[50] * CELLS]


def test_every_code_has_one_cell() -> None:
    """Missing and each special apart from all numbers; numbers beyond the real ones in the outer intervals."""
    codes = np.array([0] * 60 + list(range(10, 50)))
    grid = Grid.strict(INCOME, codes)
    first, second = INCOME.steps + 1, INCOME.steps + 2
    cells = grid.of(np.array([MISSING, 0, 1, 10, 49, INCOME.steps, first, second])).tolist()
    assert cells == [0, 1, 2, 2, 2 + CELLS - 1, 2 + CELLS - 1, 2 + CELLS, 3 + CELLS]


def test_special_codes_are_not_numbers_of_the_grid() -> None:
    codes = np.concatenate([np.arange(100), np.full(900, INCOME.steps + 1)])
    grid = Grid.strict(INCOME, codes)
    assert grid.own.tolist() == []
    assert grid.ends.max() < 100


def test_a_lost_spike_counts_in_full() -> None:
    generator = np.random.default_rng(1)
    real = np.where(generator.random(5000) < 0.3, 0, generator.integers(1, 1_000_000, 5000))
    made = np.where(real == 0, generator.integers(1, 40_000, 5000), real)
    zeros = float(np.mean(real == 0))
    assert one_column(real, made) == pytest.approx(zeros, abs=1e-12)


def test_missing_and_specials_are_not_alike() -> None:
    real = np.concatenate([np.arange(500), np.full(500, INCOME.steps + 1)])
    made = np.where(real > INCOME.steps, MISSING, real)
    assert one_column(real, real) == 0
    assert one_column(real, made) == 0.5


def test_constant_and_all_missing_columns_have_distances() -> None:
    constant, nothing = np.full(50, 42), np.full(50, MISSING)
    assert one_column(constant, constant) == 0
    assert one_column(nothing, nothing) == 0
    assert one_column(nothing, constant) == 1
    assert one_column(constant, constant + 1) == 1


def test_pairs_see_what_columns_do_not() -> None:
    schema = Schema(one_row_per_person=True, columns=(INCOME, REGION), label=None)
    income = np.array([0, 500] * 50)
    real = Records(rows=100, codes={"income": income, "region": np.array([0, 2] * 50)})
    made = Records(rows=100, codes={"income": income, "region": np.array([2, 0] * 50)})
    found = measure_distances(real, made, schema)
    assert found.mean_one_way == 0
    assert found.two_way == {("income", "region"): 1.0}


def test_a_missing_category_is_a_cell() -> None:
    schema = Schema(one_row_per_person=True, columns=(REGION,))
    real = Records(rows=4, codes={"region": np.array([0, 1, 2, MISSING])})
    made = Records(rows=2, codes={"region": np.array([2, MISSING])})
    found = measure_distances(real, made, schema)
    assert found.one_way == {"region": 0.5}
    assert np.isnan(found.mean_two_way)


def test_tables_without_records_are_refused() -> None:
    schema = Schema(one_row_per_person=True, columns=(REGION,))
    some = Records(rows=1, codes={"region": np.array([0])})
    none = Records(rows=0, codes={"region": np.zeros(0, dtype=np.int64)})
    for pair in ((some, none), (none, some)):
        with pytest.raises(DataError, match="without records"):
            measure_distances(*pair, schema)


def test_total_variation_does_not_depend_on_the_numbers_of_records() -> None:
    assert total_variation(np.array([0, 1]), np.array([0, 1] * 500)) == 0
    assert total_variation(np.array([0]), np.array([9, 9, 9])) == 1


def test_three_way_distances_see_what_pairs_do_not() -> None:
    """c says whether a and b differ in one table, and is a coin in the other."""
    schema = Schema(
        one_row_per_person=True, columns=tuple(Category(name=name, values=("0", "1")) for name in "abc")
    )
    a, b = np.repeat([0, 0, 1, 1], 100), np.repeat([0, 1, 0, 1], 100)
    real = Records(rows=400, codes={"a": a, "b": b, "c": a ^ b})
    made = Records(rows=400, codes={"a": a, "b": b, "c": np.tile([0, 1], 200)})
    found = measure_distances(real, made, schema, triples=5)
    assert found.mean_two_way == 0.0
    assert found.three_way == {("a", "b", "c"): 0.5}
    assert found.mean_three_way == 0.5
    assert np.isnan(measure_distances(real, made, schema).mean_three_way)


def test_the_triples_are_the_same_every_time_and_spread_over_all() -> None:
    names = [f"c{i}" for i in range(30)]
    some = sample_triples(names)
    assert len(set(some)) == len(some) == TRIPLES
    assert some == sample_triples(names)
    assert {name for triple in some for name in triple} == set(names)
    assert len(sample_triples(names[:5])) == 10


def test_tables_of_mostly_empty_cells_need_no_memory() -> None:
    far = np.array([0, 2**40])
    assert total_variation(far, np.array([0, 2**41])) == 0.5
