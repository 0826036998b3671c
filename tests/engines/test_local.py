"""The local engine: exact sums, and who takes part decided exactly."""

import numpy as np
import pytest

from repsynth.data.records import ALONE, UNITS, Records, Whose
from repsynth.engines import subsample
from repsynth.engines.local import LocalEngine
from repsynth.engines.opening import check_engine
from repsynth.engines.subsample import Owners, chosen, expand, sample_rows
from repsynth.errors import ConfigError
from repsynth.mechanism.noise import seeded_entropy
from repsynth.privacy.events import RATE_UNIT
from repsynth.schema import Person


@pytest.mark.parametrize("so_many", [1, 3277, RATE_UNIT // 2, RATE_UNIT])
def test_exactly_so_many_of_all_random_numbers_take_part(so_many: int) -> None:
    """Each of the 65,536 numbers that two bytes can be, once: as many take part as the rate says, and no other."""
    every = np.arange(RATE_UNIT, dtype="<u2")
    assert chosen(every, so_many / RATE_UNIT).tolist() == list(range(so_many))


def test_each_person_takes_part_by_bytes_of_their_own() -> None:
    """Those at the place of their first row, as if each had one row; rows without an id have others."""
    key, rows = bytes(range(32)), 2**16 + 5_000
    whole = sample_rows(rows, 0.3, lambda count: key)
    assert Owners.of(np.arange(rows)).rows_taking_part(0.3, key).tolist() == whole.tolist()
    alone = Owners.of(ALONE + np.arange(rows)).rows_taking_part(0.3, key)
    both = len(np.intersect1d(whole, alone))
    assert abs(both - 0.09 * rows) < 8 * (0.09 * 0.91 * rows) ** 0.5  # independent: 0.3 of 0.3


def test_each_record_has_random_bytes_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole blocks, their numbers once each, and a key that is drawn afresh."""
    asked: list[tuple[int, int]] = []
    drawn: list[int] = []

    def expanded(key: bytes, block: int, count: int) -> bytes:
        asked.append((block, count))
        return bytes(count)

    def entropy(count: int) -> bytes:
        drawn.append(count)
        return bytes(count)

    monkeypatch.setattr(subsample, "expand", expanded)
    assert sample_rows(2 * 2**16 + 7, 0.5, entropy).tolist() == list(range(2 * 2**16 + 7))
    assert asked == [(0, 2**17), (1, 2**17), (2, 14)]
    assert drawn == [32]


def test_who_takes_part_follows_from_the_key_and_the_place_alone() -> None:
    """Not on how many records follow; another key or another block gives other numbers."""
    rows, key = 2 * 2**16 + 999, bytes(range(32))
    whole = sample_rows(rows, 0.3, lambda count: key)
    assert abs(len(whole) - 0.3 * rows) < 8 * (0.21 * rows) ** 0.5
    for fewer in (1, 5, 2**16 - 1, 2**16, 2**16 + 1, 2**17):
        assert sample_rows(fewer, 0.3, lambda count: key).tolist() == whole[whole < fewer].tolist()
    assert expand(key, 0, 64) != expand(key, 1, 64)
    assert expand(key, 0, 64) != expand(bytes(32), 0, 64)
    assert expand(key, 0, 64) == expand(key, 0, 128)[:64]


def test_what_is_held_is_summed_over_those_who_take_part(monkeypatch: pytest.MonkeyPatch) -> None:
    class Sum:
        def total(self, rows: np.ndarray) -> np.ndarray:
            return rows.sum(axis=0).astype(np.int64)

    records = [Records(rows=3, codes={"a": np.array([1, 2, 3])}), Records(rows=1, codes={"a": np.array([9])})]
    held = LocalEngine(records).held(lambda part: part.codes["a"].astype(np.int32)[:, None])
    assert held.sum(Sum()).tolist() == [15]
    monkeypatch.setattr(
        subsample, "expand", lambda *_: np.array([0, 2**15, 2**15 - 1, 2**16 - 1], dtype="<u2").tobytes()
    )
    assert held.sampled(0.5, bytes).sum(Sum()).tolist() == [4]


def test_persons_have_a_fresh_key_in_each_round() -> None:
    whose = Whose(np.arange(1000) // 2, np.full(1000, UNITS))
    records = Records(rows=1000, codes={"a": np.arange(1000)}, whose=whose)
    held = LocalEngine([records], person=Person(column="who", rows=2)).held(lambda part: part.codes["a"][:, None])  # type: ignore[arg-type,return-value]
    assert len({held.sampled(0.5, seeded_entropy(k)).owners.of_rows.tobytes() for k in range(8)}) == 8  # type: ignore[union-attr]


def test_an_unknown_engine_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'cloud'; use one of local"):
        check_engine("cloud")
