"""The local engine: exact sums, and who takes part decided exactly."""

import numpy as np
import pytest

from repsynth.engine import check_engine
from repsynth.engine.local import LocalEngine, PersonHeld, sample_rows
from repsynth.errors import ConfigError
from repsynth.io.records import UNITS, Records, Whose
from repsynth.mechanism.noise import seeded_entropy
from repsynth.privacy.events import RATE_UNIT
from repsynth.schema import Person


@pytest.mark.parametrize("so_many", [0, 1, 3277, RATE_UNIT // 2, RATE_UNIT])
def test_exactly_so_many_of_all_random_numbers_take_part(so_many: int) -> None:
    """Each of the 65,536 numbers that two bytes can be, once: as many take part as the rate says, and no other."""
    every = np.arange(RATE_UNIT, dtype="<u2").tobytes()
    assert sample_rows(RATE_UNIT, so_many / RATE_UNIT, lambda count: every).tolist() == list(range(so_many))


def test_what_is_held_is_summed_over_those_who_take_part() -> None:
    class Sum:
        def total(self, rows: np.ndarray) -> np.ndarray:
            return rows.sum(axis=0).astype(np.int64)

    records = [Records(rows=3, codes={"a": np.array([1, 2, 3])}), Records(rows=1, codes={"a": np.array([9])})]
    held = LocalEngine(records).held(lambda part: part.codes["a"].astype(np.int32)[:, None])
    assert held.sum(Sum()).tolist() == [15]
    drawn = np.array([0, 2**15, 2**15 - 1, 2**16 - 1], dtype="<u2").tobytes()
    assert held.sampled(0.5, lambda count: drawn[:count]).sum(Sum()).tolist() == [4]


def test_records_and_persons_are_drawn_afresh_in_each_round() -> None:
    whose = Whose(np.arange(1000) // 2, np.full(1000, UNITS))
    records = Records(rows=1000, codes={"a": np.arange(1000)}, whose=whose)
    held = LocalEngine([records], person=Person(column="who", rows=2)).held(lambda part: part.codes["a"][:, None])  # type: ignore[arg-type,return-value]
    assert isinstance(held, PersonHeld)
    for each in (held, held.held):
        entropy = seeded_entropy(1)
        rounds = [each.sampled(0.5, entropy) for _ in range(8)]
        drawn = {(some.held if isinstance(some, PersonHeld) else some).rows.tobytes() for some in rounds}
        assert len(drawn) == 8


def test_an_unknown_engine_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'cloud'; use one of local"):
        check_engine("cloud")
