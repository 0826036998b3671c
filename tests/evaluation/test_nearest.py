"""Distances to nearest neighbours, deciles of outlyingness and the advantage of an attack."""

import numpy as np
import pytest

from repsynth.evaluation import points as nearest_module
from repsynth.evaluation.points import Points, Space, advantage_of, deciles_of, nearest, outlyingness


def plain_distances(queries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """All distances of each query, rising, as one would write it down."""
    return np.sort(np.sqrt(np.square(others[None] - queries[:, None]).sum(axis=2)), axis=1)


@pytest.mark.parametrize("spread", [1e-3, 1.0, 1e4])
def test_the_distance_to_a_copy_is_exactly_zero(spread: float) -> None:
    generator = np.random.default_rng(0)
    others = spread + generator.normal(size=(700, 30))  # the larger the spread, the more an expanded square loses
    queries = np.vstack([others[::3], spread + generator.normal(size=(50, 30))])
    found = nearest(queries, others)
    assert not found[:-50, 0].any()
    assert found[:-50, 1].min() > 0
    assert np.array_equal(found, plain_distances(queries, others)[:, :5])
    twice = np.vstack([np.repeat(others[:40], 12, axis=0), others[40:]])
    assert np.array_equal(outlyingness(twice) == 0, np.arange(len(twice)) < 480)
    assert outlyingness(others) == pytest.approx(plain_distances(others, others)[:, 1:11].mean(axis=1), rel=1e-15)


def test_neither_rounding_in_the_search_nor_blocks_change_a_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another processor's rounding does to the candidates: the nearest may stand behind others."""
    generator = np.random.default_rng(0)

    def clusters(size: int) -> np.ndarray:
        """Places of which each has two copies, and the rest of its cluster closer by than the search can tell."""
        centres, near = generator.normal(size=(30, 4)), generator.uniform(-1e-5, 1e-5, size=(size - 3, 30, 4))
        return np.vstack([generator.normal(size=(200, 4)), centres, centres, centres, *(centres + near)])

    others, places = clusters(9), clusters(13)
    queries = np.vstack([others[150:300], generator.normal(size=(100, 4))])
    expected, outlying = nearest(queries, others), outlyingness(places)
    assert np.array_equal(expected, plain_distances(queries, others)[:, :5])
    assert outlying == pytest.approx(plain_distances(places, places)[:, 1:11].mean(axis=1), rel=1e-14)

    class Rounding:
        def __init__(self, n_neighbors: int, algorithm: str) -> None:
            self.count = n_neighbors

        def fit(self, places: np.ndarray) -> "Rounding":
            self.places = places
            return self

        def kneighbors(self, queries: np.ndarray | None = None, *, return_distance: bool) -> np.ndarray:
            assert not return_distance
            asked = self.places if queries is None else queries
            squares = np.square(self.places[None] - asked[:, None]).sum(axis=2)
            squares += generator.uniform(-1e-9, 1e-9, squares.shape)
            if queries is None:
                np.fill_diagonal(squares, np.inf)
            return np.argsort(squares, axis=1)[:, : self.count]

    monkeypatch.setattr("sklearn.neighbors.NearestNeighbors", Rounding)
    assert np.array_equal(nearest(queries, others), expected)
    assert np.array_equal(outlyingness(places), outlying)
    monkeypatch.setattr(nearest_module, "_BLOCK", 1)
    assert np.array_equal(nearest(queries, others), expected)
    assert np.array_equal(outlyingness(places), outlying)


def test_few_others_have_few_neighbours() -> None:
    places = np.array([[0.0], [3.0], [1.0]])
    assert nearest(places, places).tolist() == [[0.0, 1.0, 3.0], [0.0, 2.0, 3.0], [0.0, 1.0, 2.0]]
    assert outlyingness(places).tolist() == [2.0, 2.5, 1.5]


def test_deciles_go_by_rank() -> None:
    values = np.array([5.0, 1.0, 9.0, 7.0, 3.0, 2.0, 8.0, 6.0, 4.0, 0.0])
    assert deciles_of(values).tolist() == [5, 1, 9, 7, 3, 2, 8, 6, 4, 0]
    assert np.bincount(deciles_of(np.zeros(57))).tolist() == [6, 6, 6, 5, 6, 6, 5, 6, 6, 5]


def test_the_most_outlying_record_is_the_one_far_away() -> None:
    places = np.vstack([np.random.default_rng(0).normal(size=(50, 3)), [[9.0, 9.0, 9.0]]])
    assert np.argmax(outlyingness(places)) == 50
    assert outlyingness(places).min() > 0


@pytest.mark.parametrize(
    ("attack", "expected"), [([4, 3, 2, 1], 1.0), ([1, 2, 3, 4], -1.0), ([1, 1, 1, 1], 0.0), ([4, 1, 3, 2], 0.0)]
)
def test_advantage(attack: list[float], expected: float) -> None:
    member = np.array([True, True, False, False])
    assert advantage_of(np.array(attack, dtype=float), member) == expected


def test_missing_categories_have_no_place() -> None:
    points = Points(np.zeros((2, 1)), np.array([[-1], [1]]), np.zeros(2, dtype=np.int64), (3,))
    assert Space.of(points).place(points)[:, 1:].tolist() == [[0, 0, 0], [0, 1, 0]]
