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

from repsynth.data.fingerprints import Expanded, Fingerprints, Run
from repsynth.data.records import UNITS
from repsynth.data.sources import arrow_files, csv, frames, open_source
from repsynth.engines import clusters, opening
from repsynth.engines.counting import Answer, EncodeOwned, Owned, Question, Reply
from repsynth.engines.work import Failed, Task
from repsynth.errors import DataError
from repsynth.mechanism.kernels import Count
from repsynth.pipeline.run import run
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
    monkeypatch.setitem(opening.CLUSTERS, "pretended", f"{connect.__module__}:connect")
    monkeypatch.setattr(arrow_files, "PIECE_ROWS", 150)
    monkeypatch.setattr(frames, "PIECE_ROWS", 150)
    monkeypatch.setattr(csv, "RANGE", 9000)
    monkeypatch.setattr(clusters, "HANDS", 3)
    return Pretended()


# --- the same bits ---


@pytest.mark.parametrize(("model", "kind"), list(zip(MODELS, ("csv", "table", "parquet"), strict=True)))
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
    whole = EncodeOwned.of

    def noted(self: EncodeOwned, batches: Any) -> Owned:
        used.append(self.seed)
        return whole(self, batches)

    monkeypatch.setattr(EncodeOwned, "of", noted)
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
    encode = EncodeOwned(VISITS, Person(column="person"), b"secret" * 6)
    assert "secret" not in repr(encode)
    held = encode.of(visits(50).to_batches())
    (persons,) = held.run().cut(1)
    question = Question(0, persons)
    (answer,) = Reply(2, 1)([question], 0)  # type: ignore[misc]
    for each in (held, question, answer):
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
    assert sizes == [[2, 2], [2, 2]]  # by which count parts go, and how many records there are


# --- what cannot be counted ---


def test_a_hand_counts_each_part_once() -> None:
    prints = Fingerprints(Expanded(bytes(32))).of(pa.array(["a", "b"]))
    persons = Run.of(prints, np.ones(2, dtype=np.int64), np.arange(2))
    one, two = Question(0, persons), Question(1, persons)
    answers = Reply(1, 2)([one, two], 0)
    assert [answer.factors.tolist() for answer in answers if isinstance(answer, Answer)] == [[UNITS // 2] * 2] * 2
    for wrong in ([one], [one, one], [two, one], [one, two, two], []):
        with pytest.raises(DataError, match="did not count each part once"):
            Reply(1, 2)(wrong, 0)
    assert Reply(1, 2)([one, Failed("the disk is full")], 0) == Failed("the disk is full")


@dataclass
class Forgetful(Pretended):
    """A cluster that loses its last part once persons were counted, and makes it again, by then another one; with
    the answers to it, or with those from before."""

    then: Callable[[Owned], Owned] = lambda owned: owned
    answers_too: bool = False

    def spread(self, items: Sequence[Any], task: Task | None = None) -> PretendedParts:
        return ForgetfulParts(self, super().spread(items, task).parts)


@dataclass
class ForgetfulParts(PretendedParts):
    def exchanged(self, ask: Task, reply: Task, settle: Task, hands: int) -> PretendedParts:
        made = super().exchanged(ask, reply, settle, hands)
        assert isinstance(self.cluster, Forgetful)
        last = cloudpickle.dumps(self.cluster.then(cloudpickle.loads(self.parts[-1])))
        asked = list(self._each(ask))
        asking = ask if self.cluster.answers_too else lambda owned, number: asked[number]
        parts = PretendedParts(self.cluster, [*self.parts[:-1], last])
        again = parts.exchanged(asking, reply, settle, hands)
        return PretendedParts(self.cluster, [*made.parts[:-1], again.parts[-1]])


def _fewer(owned: Owned) -> Owned:
    """All but the last person's rows."""
    prints = owned.prints.take(np.arange(len(owned.prints.first) - 1))
    states = owned.states.copy()
    states[np.flatnonzero(states == 0)[-1]] = -1
    return replace(owned, prints=prints, states=states)


def _reordered(owned: Owned) -> Owned:
    return replace(owned, prints=owned.prints.take(np.arange(len(owned.prints.first))[::-1]))


@pytest.mark.parametrize("answers_too", [False, True])
def test_a_part_that_is_another_when_it_is_read_again_is_refused(answers_too: bool, pretended: Pretended) -> None:
    cluster = Forgetful(then=_fewer, answers_too=answers_too)
    with pytest.raises(DataError, match="the table changed while it was read"):
        cluster.open(open_source(visits()), VISITS).sum(Count())


@pytest.mark.parametrize("answers_too", [False, True])
def test_the_order_in_which_persons_are_counted_does_not_matter(answers_too: bool, pretended: Pretended) -> None:
    cluster = Forgetful(then=_reordered, answers_too=answers_too)
    whole = pretended.open(open_source(visits()), VISITS).sum(Count())
    assert cluster.open(open_source(visits()), VISITS).sum(Count()).tolist() == whole.tolist()


def test_a_part_of_another_count_is_refused_at_any_later_time(pretended: Pretended) -> None:
    engine = pretended.open(open_source(visits()), VISITS)
    engine.sum(Count())
    parts = engine.parts
    assert isinstance(parts, PretendedParts)
    last = cloudpickle.loads(parts.parts[-1])
    parts.parts[-1] = cloudpickle.dumps(replace(last, count=last.count + 1))
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
