"""How frequent values are where tables know only roughly what weights took."""

import numpy as np

from repsynth.arrays import Floats
from repsynth.models.marginal.levels import Seen, combine
from repsynth.models.marginal.shrinkage import NoisyTable, by_precision

STAGE, TABLES = 100.0, 40.0
"""Noise of both in one group, one standard deviation."""


def seen(real: Floats, off: Floats, generator: np.random.Generator, numbers: int = 0) -> Seen:
    """A column whose tables are off by these fractions."""
    return Seen(
        NoisyTable(real + generator.normal(0, STAGE, len(real)), np.full(len(real), STAGE**2)),
        NoisyTable(real * (1 + off) + generator.normal(0, TABLES, len(real)), np.full(len(real), TABLES**2)),
        np.full(len(real), 0.5),
        numbers,
    )


def error(found: NoisyTable, real: Floats) -> float:
    return float(np.sqrt(np.mean((found.counts - real) ** 2)))


def test_where_weights_are_sure_both_count_by_their_precision() -> None:
    one, other = NoisyTable(np.array([10.0, 20.0]), np.array([4.0, 1.0])), NoisyTable(np.zeros(2), np.ones(2))
    found = combine({0: Seen(one, other, np.zeros(2), 2)})[0]
    both = by_precision([one, other])
    assert np.allclose(found.counts, both.counts)
    assert np.allclose(found.variance, both.variance)


def test_one_column_whose_weights_are_wrong_is_not_believed_and_the_others_are() -> None:
    generator, real = np.random.default_rng(1), np.full(40, 3000.0)
    columns = {i: seen(real, np.zeros(40), generator) for i in range(5)}
    columns[5] = seen(real, generator.normal(0, 0.1, 40), generator)
    found = combine(columns)
    assert max(error(found[i], real) for i in range(5)) < 0.6 * STAGE
    assert error(found[5], real) < 1.1 * STAGE < 0.5 * error(columns[5].tables, real)


def test_what_neighbours_have_in_common_is_taken_out_and_what_they_differ_in_stays() -> None:
    generator = np.random.default_rng(2)
    real = generator.uniform(500, 3000, 60)
    off = 0.2 * np.sin(np.arange(60) / 8)
    columns = {i: seen(real, off, generator, numbers) for i, numbers in enumerate((60, 0))}
    in_order, apart = (combine({0: column})[0] for column in columns.values())
    assert error(in_order, real) < 0.7 * STAGE
    assert error(apart, real) > 0.8 * STAGE


def test_the_variances_are_those_of_the_errors() -> None:
    generator, squares = np.random.default_rng(3), []
    for _ in range(40):
        real = generator.uniform(500, 3000, 30)
        walk = np.convolve(generator.normal(0, 0.02, 60), 0.8 ** np.arange(30))[30:60]
        columns = {i: seen(real, walk + generator.normal(0, 0.03, 30), generator, 28) for i in range(4)}
        for found in combine(columns).values():
            squares += ((found.counts - real) ** 2 / found.variance).tolist()
    assert 0.9 < np.mean(squares) < 1.2
