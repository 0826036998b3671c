"""Persons whose rows lie in several parts, on a cluster that is none: what they count."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from checks import same_release
from conftest import make_people
from test_clusters import MODELS, SCHEMA, Pretended, PretendedParts, check_same_bits, cloudpickle, connect, plan_of

import repsynth.engine
from repsynth.engine import clusters
from repsynth.engine.persons import EncodePersons, PersonRows, Settle, SplitRows
from repsynth.engine.tasks import Task
from repsynth.errors import DataError
from repsynth.io import arrow
from repsynth.io.records import UNITS
from repsynth.io.sources import open_source
from repsynth.mechanism.kernels import Count
from repsynth.run.run import run
from repsynth.schema import Person

VISITS = replace(SCHEMA, person=Person(column="person", rows=2), one_row_per_person=False)
ROWS = 700


def visits(rows: int = ROWS) -> pa.Table:
    """Persons with one row to many, each in other parts; some rows are nobody's, and some ids cannot be read."""
    generator = np.random.default_rng(3)
    who = np.minimum(generator.geometric(0.03, rows), 200)
    ids = [f"p{n}" if n % 9 else f"{n}.0" for n in who.tolist()]
    for k in range(0, rows, 23):
        ids[k] = None if k % 2 else "M\ufffdller"  # type: ignore[call-overload]
    table = make_people(rows)
    return table.set_column(table.column_names.index("person"), "person", pa.array(ids))


def visit_files(folder: Path) -> dict[str, Any]:
    table = visits()
    pq.write_table(table, folder / "visits.parquet", row_group_size=100)
    pacsv.write_csv(table, folder / "visits.csv")
    return {"parquet": folder / "visits.parquet", "csv": folder / "visits.csv", "table": table}


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    monkeypatch.setitem(repsynth.engine.CLUSTERS, "pretended", f"{connect.__module__}:connect")
    monkeypatch.setattr(arrow, "PIECE_ROWS", 150)
    monkeypatch.setattr(arrow, "TABLE_PIECE_ROWS", 150)
    monkeypatch.setattr(clusters, "PLACES", 3)
    return Pretended()


# --- the same bits ---


@pytest.mark.parametrize(("model", "kind"), list(zip(MODELS, ("table", "parquet", "csv"), strict=True)))
def test_the_release_is_that_of_one_process(model: str, kind: str, pretended: Pretended, tmp_path: Path) -> None:
    check_same_bits(plan_of(model, VISITS), visit_files(tmp_path)[kind], "pretended")


@pytest.mark.parametrize("most", [1, 2, 50])
def test_all_rows_of_a_person_count_as_so_many_at_most(most: int, pretended: Pretended) -> None:
    """As a dictionary of ids would have it."""
    table, schema = visits(), replace(SCHEMA, person=Person(column="person", rows=most), one_row_per_person=False)
    ids = [each.removesuffix(".0") if each else each for each in table["person"].to_pylist()]
    times = Counter(each for each in ids if each is not None)
    expected = sum(
        UNITS if who is None else 0 if "\ufffd" in who else min(UNITS, UNITS * most // times[who]) for who in ids
    )
    engine = pretended.open(open_source(table), schema)
    assert engine.sum(Count()).tolist() == [expected]
    assert engine.rows_per_person == most
    assert engine.units == UNITS
    assert max(times.values()) > 2 * len(engine.parts)  # in several parts


def test_a_table_without_rows_or_ids(pretended: Pretended) -> None:
    table = visits(160)
    for some in (table.slice(0, 0), table.set_column(0, "person", pa.nulls(160, pa.string()))):
        engine = pretended.open(open_source(some), VISITS)
        assert engine.sum(Count()).tolist() == [some.num_rows * UNITS]


# --- the key ---


def test_all_parts_have_one_key_and_each_run_its_own(
    pretended: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[bytes] = []
    whole = EncodePersons.of

    def noted(self: EncodePersons, batches: Any) -> PersonRows:
        used.append(self.seed)
        return whole(self, batches)

    monkeypatch.setattr(EncodePersons, "of", noted)
    seeds = []
    for _ in range(2):
        used.clear()
        pretended.open(open_source(visits()), VISITS).sum(Count())
        assert len(used) == 10  # five parts, each twice
        seeds.append(set(used))
    assert [len(each) for each in seeds] == [1, 1]
    assert seeds[0] != seeds[1]
    assert all(len(seed) == 32 and len(set(seed)) > 8 for each in seeds for seed in each)


def test_nobody_is_shown_the_key_or_a_fingerprint() -> None:
    encode = EncodePersons(VISITS, Person(column="person"), b"secret" * 6)
    assert "secret" not in repr(encode)
    rows = encode.of(visits(50).to_batches())
    (message,) = SplitRows(1)(rows, 0)
    for each in (rows, message, Settle(VISITS, 2, 1)([message], 0)):
        assert repr(each) == f"{type(each).__name__}()"


def test_ids_and_fingerprints_do_not_come_back(pretended: Pretended) -> None:
    """What comes to this process is sums and one number, however many persons there are."""
    sizes = []
    for rows in (300, 600):
        pretended.came_back.clear()
        run(plan_of("naive-bayes", VISITS), open_source(visits(rows)), noise_seed=5, engine="pretended")
        pretended.open(open_source(visits(rows)), VISITS).sum(Count())
        assert all(isinstance(each, np.ndarray) and each.dtype == np.int64 for each in pretended.came_back)
        sizes.append([each.size for each in pretended.came_back])
    assert sizes == [[2, 2], [2, 2]]  # the version of the table, and how many records there are


# --- what cannot be counted ---


def rows_of(ids: list[str | None]) -> PersonRows:
    table = visits(len(ids))
    table = table.set_column(table.column_names.index("person"), "person", pa.array(ids))
    return EncodePersons(VISITS, Person(column="person"), bytes(32)).of(table.to_batches())


def test_a_place_counts_each_part_once() -> None:
    one, two = (SplitRows(1)(rows_of(["a", "b"]), number)[0] for number in range(2))
    (part,) = Settle(VISITS, 1, 2)([two, one], 0).chunks
    assert (part.factor, part.rows) == (UNITS // 2, 4)
    for wrong in ([one], [one, one], [one, two, two], []):
        with pytest.raises(DataError, match="did not count each part once"):
            Settle(VISITS, 1, 2)(wrong, 0)


def test_rows_of_a_person_meet_in_one_place_and_the_others_stay_with_their_part() -> None:
    first, second = (SplitRows(4)(rows_of(["a", None, "b", None, "c", "a"]), number) for number in range(2))
    for ours, theirs in zip(first, second, strict=True):
        shared = [set(each.rows.prints.first[each.rows.states == 0].tolist()) for each in (ours, theirs)]
        assert shared[0] == shared[1]
    for number, messages in enumerate((first, second)):
        assert [np.count_nonzero(each.rows.states) for each in messages] == [2 * (k == number) for k in range(4)]
        assert sum(len(each.rows.states) for each in messages) == 6


@dataclass
class Forgetful(Pretended):
    """A cluster that loses its last place once rows were shuffled, and makes it again from a first part that is
    another one by then."""

    then: Callable[[PersonRows], PersonRows] = lambda rows: rows

    def spread(self, items: Sequence[Any], task: Task | None = None) -> PretendedParts:
        return ForgetfulParts(self, super().spread(items, task).parts)


@dataclass
class ForgetfulParts(PretendedParts):
    def shuffled(self, split: Task, join: Task, places: int) -> PretendedParts:
        made = super().shuffled(split, join, places)
        assert isinstance(self.cluster, Forgetful)
        first = cloudpickle.dumps(self.cluster.then(cloudpickle.loads(self.parts[0])))
        again = PretendedParts(self.cluster, [first, *self.parts[1:]]).shuffled(split, join, places)
        return PretendedParts(self.cluster, [*made.parts[:-1], again.parts[-1]])


def _fewer(rows: PersonRows) -> PersonRows:
    """All but the first person's row, which went to another place."""
    place = SplitRows(3)(rows, 0)[0].rows.prints.first
    return rows.take(np.flatnonzero(rows.prints.first != place[place != 0][0]))


def _once_more(rows: PersonRows) -> PersonRows:
    """The first person's row, which went to another place, is there once more: the persons are the same."""
    place = SplitRows(3)(rows, 0)[0].rows.prints.first
    first = np.flatnonzero(rows.prints.first == place[place != 0][0])[0]
    return rows.take(np.append(np.arange(len(rows.states)), first))


def _no_ids(rows: PersonRows) -> PersonRows:
    """One row without an id is gone; it went to another place."""
    return rows.take(np.delete(np.arange(len(rows.states)), np.flatnonzero(rows.states)[0]))


def _other_cells(rows: PersonRows) -> PersonRows:
    """The first row without an id has the cells of the row after it."""
    at = np.flatnonzero(rows.states)[0]
    return replace(
        rows, codes={name: np.insert(np.delete(c, at), at, c[at + 1]) for name, c in rows.codes.items()}
    )


def _reordered(rows: PersonRows) -> PersonRows:
    return rows.take(np.arange(len(rows.states))[::-1])


@pytest.mark.parametrize("then", [_fewer, _once_more, _no_ids, _other_cells])
def test_a_part_that_is_another_when_it_is_read_again_is_refused(
    then: Callable[[PersonRows], PersonRows], pretended: Pretended
) -> None:
    with pytest.raises(DataError, match="the table changed while it was read"):
        Forgetful(then=then).open(open_source(visits()), VISITS).sum(Count())


def test_the_order_in_which_a_part_is_read_again_does_not_matter(pretended: Pretended) -> None:
    whole = pretended.open(open_source(visits()), VISITS).sum(Count())
    assert Forgetful(then=_reordered).open(open_source(visits()), VISITS).sum(Count()).tolist() == whole.tolist()


def test_a_part_of_another_version_is_refused_at_any_later_time(pretended: Pretended) -> None:
    engine = pretended.open(open_source(visits()), VISITS)
    engine.sum(Count())
    parts = engine.parts
    assert isinstance(parts, PretendedParts)
    last = cloudpickle.loads(parts.parts[-1])
    parts.parts[-1] = cloudpickle.dumps(replace(last, version=last.version + 1))
    with pytest.raises(DataError, match="the table changed while it was read"):
        engine.sum(Count())


def test_a_part_that_fails_is_one_line(pretended: Pretended, tmp_path: Path) -> None:
    table = visit_files(tmp_path)["parquet"]
    whole = table.read_bytes()
    half = len(whole) // 2
    table.write_bytes(whole[:half] + bytes(2000) + whole[half + 2000 :])
    with pytest.raises(DataError, match=r"visits.parquet: cannot be read as Parquet"):
        run(plan_of("naive-bayes", VISITS), open_source(table), engine="pretended")


def test_keys_differ_but_not_the_release(pretended: Pretended) -> None:
    plan = plan_of("mst", VISITS)
    one, two = (run(plan, open_source(visits()), noise_seed=5, engine="pretended") for _ in range(2))
    assert same_release(one, two)
