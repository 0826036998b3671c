"""The local engine: exact sums, and who takes part decided exactly."""

import numpy as np
import pytest

from repsynth.data.records import Records
from repsynth.engines.local import LocalEngine
from repsynth.engines.opening import check_engine
from repsynth.engines.subsample import sample_rows
from repsynth.errors import ConfigError
from repsynth.privacy.events import RATE_UNIT


@pytest.mark.parametrize("taking_part", [1, 3277, RATE_UNIT // 2, RATE_UNIT])
def test_exactly_so_many_of_all_random_numbers_take_part(taking_part: int) -> None:
    """Each of the 65,536 numbers that two bytes can be, once: as many take part as the rate says, and no other."""
    every = np.arange(RATE_UNIT, dtype="<u2").tobytes()
    chosen = sample_rows(RATE_UNIT, taking_part / RATE_UNIT, lambda count: every[:count])
    assert chosen.tolist() == list(range(taking_part))


def test_each_record_has_random_bytes_of_its_own() -> None:
    asked: list[int] = []

    def entropy(count: int) -> bytes:
        asked.append(count)
        return bytes(count)

    sample_rows(7, 0.5, entropy)
    assert asked == [14]


def test_what_is_held_is_summed_over_those_who_take_part() -> None:
    class Sum:
        def total(self, rows: np.ndarray) -> np.ndarray:
            return rows.sum(axis=0).astype(np.int64)

    records = [Records(rows=3, codes={"a": np.array([1, 2, 3])}), Records(rows=1, codes={"a": np.array([9])})]
    held = LocalEngine(records).held(lambda part: part.codes["a"].astype(np.int32)[:, None])
    assert held.sum(Sum()).tolist() == [15]
    half = held.sampled(0.5, lambda count: np.array([0, 2**15, 2**15 - 1, 2**16 - 1], dtype="<u2").tobytes())
    assert half.sum(Sum()).tolist() == [4]


def test_an_unknown_engine_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'cloud'; use one of local"):
        check_engine("cloud")
