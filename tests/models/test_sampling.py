"""What makes sampling quick gives the same bits as the plain way."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repsynth.models.naive_bayes.fit import _smaller
from repsynth.models.sampling import lined_up

KEYS = st.integers(0, 5) | st.sampled_from([255, 256, 40_000, 65_535, 65_536, 2**40])


@given(rows=st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5]) | st.floats(0, 1), KEYS, KEYS), max_size=40))
def test_records_are_lined_up_as_by_lexsort(rows: list[tuple[float, int, int]]) -> None:
    """Equal ties, and keys of more than two bytes, included."""
    tie = np.array([row[0] for row in rows], dtype=np.float64)
    order, given_ = (np.array([row[k] for row in rows], dtype=np.int64) for k in (1, 2))
    assert lined_up(tie, given_).tolist() == np.lexsort((tie, given_)).tolist()
    assert lined_up(tie, given_, order).tolist() == np.lexsort((tie, order, given_)).tolist()


@given(values=st.lists(st.integers(-3, 3).map(float) | st.floats(-5, 5), max_size=40))
def test_how_many_are_smaller_is_found_as_by_search(values: list[float]) -> None:
    z = np.array(values, dtype=np.float64)
    assert _smaller(z).tolist() == np.searchsorted(np.sort(z), z).tolist()
