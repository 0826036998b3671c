"""What holds on any cluster, on one that is none: tasks are pickled, run twice and out of order, all in here."""

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from checks import same_release
from conftest import ALL_TYPES, make_people

import repsynth
import repsynth.engine
from repsynth import Budget, Ledger
from repsynth.engine.clusters import ClusterEngine
from repsynth.engine.column_store import Part
from repsynth.engine.tasks import Compact, Failed, Task, added, carried_out, picked
from repsynth.errors import ConfigError, DataError
from repsynth.io import arrow
from repsynth.io.records import Records
from repsynth.io.sources import Source, open_source
from repsynth.mechanism.kernels import Count
from repsynth.mechanism.meter import Meter
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy.events import SampledEvent
from repsynth.run.payment import Payer
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema

cloudpickle = pytest.importorskip("cloudpickle", reason="no cloudpickle here; pip install 'repsynth[dask]'")
SCHEMA = parse_schema(ALL_TYPES)
ROWS = 700
MODELS = ("naive-bayes", "mst", "aim")


@dataclass
class Pretended:
    """A cluster that keeps pickled parts, runs each task twice, and remembers what came back."""

    came_back: list[Any] = field(default_factory=list)

    def check(self, source: Source) -> None:
        assert all(Path(file).is_file() for file in source.files)

    def open(self, source: Source, schema: Schema) -> ClusterEngine:
        return ClusterEngine.on(self, source, schema)

    def spread(self, items: Sequence[Any], task: Task | None = None) -> "PretendedParts":
        parts = PretendedParts(self, [cloudpickle.dumps(item) for item in items])
        return PretendedParts(self, [cloudpickle.dumps(found) for found in parts._each(task)]) if task else parts

    def frame(self, source: Source, encode: Any) -> "PretendedParts":
        raise AssertionError("no data frame lies on a pretended cluster: test_dask and test_spark have real ones")


@dataclass
class PretendedParts:
    cluster: Pretended
    parts: list[bytes]

    def __len__(self) -> int:
        return len(self.parts)

    def shuffled(self, split: Task, join: Task, places: int) -> "PretendedParts":
        messages = list(self._each(split))
        columns = [[picked(found, place) for found in reversed(messages)] for place in range(places)]
        joined = PretendedParts(self.cluster, list(map(cloudpickle.dumps, columns)))._each(join)
        return PretendedParts(self.cluster, list(map(cloudpickle.dumps, joined)))

    def added(self, task: Task) -> Any:
        found = list(self._each(task))
        random.Random(1).shuffle(found)
        while len(found) > 1:
            found = [added(found[k : k + 2]) for k in range(0, len(found), 2)]
        self.cluster.came_back.append(found[0])
        return found[0]

    def _each(self, task: Task) -> Iterator[Any]:
        for number, part in enumerate(self.parts):
            carried_out(_sent(task), cloudpickle.loads(part), number)  # and lost
            yield carried_out(_sent(task), cloudpickle.loads(part), number)


def _sent(task: Task) -> Task:
    sent: Task = cloudpickle.loads(cloudpickle.dumps(task))
    return sent


HERE = Pretended()


@contextmanager
def connect(cluster: Any, source: Source) -> Iterator[Pretended]:
    HERE.came_back.clear()
    yield HERE


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> Pretended:
    monkeypatch.setitem(repsynth.engine.CLUSTERS, "pretended", f"{__name__}:connect")
    monkeypatch.setattr(arrow, "PIECE_ROWS", 150)
    monkeypatch.setattr(arrow, "TABLE_PIECE_ROWS", 150)
    return HERE


def plan_of(model: str, schema: Schema = SCHEMA) -> Plan:
    return make_plan(schema, Settings.of(epsilon=3.0, delta=1e-6, model=model))


def tables(folder: Path, rows: int = ROWS) -> dict[str, Any]:
    """The same people in a file of each kind and in memory."""
    people = make_people(rows)
    pq.write_table(people, folder / "people.parquet", row_group_size=100)
    pacsv.write_csv(people, folder / "people.csv")
    return {"parquet": folder / "people.parquet", "csv": folder / "people.csv", "table": people}


def check_same_bits(plan: Plan, table: Any, engine: str | None, cluster: Any = None, here: Any = None) -> None:
    """A release of a cluster is that of this process."""
    one = run(plan, open_source(table if here is None else here), noise_seed=5)
    lock = Lock()  # who hears of progress cannot be pickled, and need not be
    hears = {name: lambda heard: lock.locked() for name in ("on_step", "on_round", "on_rows")}
    two = run(plan, open_source(table), noise_seed=5, engine=engine, cluster=cluster, **hears)
    assert same_release(one, two)


def check_killed_inside_a_task(plan: Plan, table: Path, kill: Callable[[], None], **place: Any) -> None:
    """Whoever reads a piece first is killed while it does; the release is that of this process."""
    source, mark = open_source(table), table.with_suffix(".killed")

    def dying(piece: Callable[..., Any]) -> Callable[..., Any]:
        def read(columns: Sequence[str]) -> Iterator[Any]:
            for batch in piece(columns):
                try:
                    mark.touch(exist_ok=False)
                except FileExistsError:
                    yield batch
                else:
                    kill()

        return read

    assert source.pieces is not None
    pieces = source.pieces
    there = run(plan, replace(source, pieces=lambda: [dying(piece) for piece in pieces()]), noise_seed=5, **place)
    assert mark.exists()
    assert same_release(run(plan, source, noise_seed=5), there)


def check_damaged(folder: Path, engine: str) -> Ledger:
    """A damaged file is one line without a cell, and what was paid for is spent."""
    ledger = Ledger.create(folder / "ledger.db")
    ledger.init("people", Budget.approximate(epsilon=9.0, delta=1e-6))
    whole = (folder / "people.parquet").read_bytes()
    half = len(whole) // 2
    (folder / "damaged.parquet").write_bytes(whole[:half] + bytes(2000) + whole[half + 2000 :])
    with pytest.raises(DataError) as failed:
        repsynth.synthesize(folder / "damaged.parquet", SCHEMA, epsilon=1.0, ledger=ledger, engine=engine)
    assert str(failed.value).endswith("damaged.parquet: cannot be read as Parquet; check that the file is whole")
    assert failed.value.__cause__ is None
    assert [spent.finished for spent in ledger.balance("people").spendings] == [False]
    return ledger


def check_interrupted(folder: Path, engine: str, cluster: str) -> None:
    """A real Ctrl-C of the command line while workers add up: one line, nothing half written, and what was paid
    for is spent."""
    (folder / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    ledger = Ledger.create(folder / "interrupted.db")
    ledger.init("people", Budget.approximate(epsilon=1.0, delta=1e-6))
    command = "synthesize people.csv --schema schema.toml --model aim --delta 1e-6"
    command += f" --epsilon 1 --ledger interrupted.db --dataset people --engine {engine} --cluster {cluster}"
    before = set(folder.iterdir())
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command.split(), "-o", "o.csv", "--release", "r"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while process.poll() is None and not ledger.balance("people").spendings:
            time.sleep(0.05)  # until the run has begun
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    lines = [line for line in said.splitlines() if "WARN" not in line and "log level" not in line]
    assert "Traceback" not in said
    assert "nterrupted" in lines[-1]
    assert set(folder.iterdir()) == before
    assert [spent.finished for spent in ledger.balance("people").spendings] == [False]


INTERRUPTIBLE = """
import signal, sys
from repsynth.cli import main

def interrupt(number, frame):
    place = frame
    while place is not None:
        if place.f_code.co_name == "__del__":  # raised there, it would be lost
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            return
        place = place.f_back
    signal.default_int_handler(number, frame)

for each in (signal.SIGINT, signal.SIGALRM):
    signal.signal(each, interrupt)
raise SystemExit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("model", "kind"), list(zip(MODELS, ("table", "parquet", "csv"), strict=True)))
def test_the_release_is_the_same_bit_for_bit(model: str, kind: str, pretended: Pretended, tmp_path: Path) -> None:
    check_same_bits(plan_of(model), tables(tmp_path)[kind], "pretended")


def test_only_sums_come_back(pretended: Pretended) -> None:
    """As many integers from a large table as from a small one."""
    sizes = []
    for rows in (150, 600):
        run(plan_of("naive-bayes"), open_source(make_people(rows)), noise_seed=5, engine="pretended")
        assert all(isinstance(each, np.ndarray) and each.dtype == np.int64 for each in pretended.came_back)
        sizes.append([each.size for each in pretended.came_back])
    small, large = sizes
    assert small[:1] == large[:1] == [2]
    assert max(large) < 2000
    assert len(small) == len(large)


@pytest.mark.parametrize("engine", ["pretended", "dask", "spark"])
def test_a_training_on_a_cluster_is_refused_before_anything_is_spent(
    engine: str, pretended: Pretended, tmp_path: Path
) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", Budget.approximate(epsilon=4.0, delta=1e-6))
    people = make_people(50)
    there = replace(open_source(people), engine=engine)  # as of a data frame on a cluster
    asked = {"epsilon": 1.0, "model": "autoregressive", "epochs": 1.0, "sampling_rate": 0.5}
    refused = "^the model autoregressive trains on one machine; {}, or use --model aim$"
    with pytest.raises(ConfigError, match=refused.format("leave --engine out")):
        repsynth.synthesize(people, SCHEMA, engine=engine, ledger=ledger, settings=Settings.of(**asked))
    with pytest.raises(ConfigError, match=refused.format("give the table as a file")):
        run(make_plan(SCHEMA, Settings.of(delta=1e-6, **asked)), there, payer=Payer(ledger, "people"))
    assert ledger.balance("people").spendings == ()


def test_a_training_needs_an_engine_of_this_process(pretended: Pretended) -> None:
    meter = Meter(pretended.open(open_source(make_people(50)), SCHEMA), mu=9.0, delta=1e-6)
    event = SampledEvent("gradients", 1.0, 100.0, 0.5, 5, weighted=True)
    with pytest.raises(ConfigError, match="a training runs on one machine; nothing was measured"):
        meter.train(Training(), event)  # type: ignore[arg-type]
    assert meter.events == []


class Training:
    name, sensitivity, weighted = "gradients", 1.0, True


@dataclass
class Lying:
    """Parts whose sum is something else."""

    found: Any

    def __len__(self) -> int:
        return 2

    def shuffled(self, split: Task, join: Task, places: int) -> "Lying":
        return self

    def added(self, task: Task) -> Any:
        return self.found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (np.array([5, 3]), "each part once"),
        (np.array([5, 1]), "each part once"),
        (np.array([5, 6, 7, 2]), "each part once"),
        (np.array([5.0, 2.0]), "something else than integers"),
        (np.array([[5, 2]]), "something else than integers"),
        (Records(rows=1, codes={}), "something else than integers"),
        (Failed("the disk is full"), "^the disk is full$"),
    ],
)
def test_a_sum_is_refused_unless_it_is_one_of_all_parts(found: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        ClusterEngine(Lying(found)).sum(Count())
    assert ClusterEngine(Lying(np.array([5, 2]))).sum(Count()).tolist() == [5]


def test_what_a_worker_raises_comes_back_as_one_line_without_data() -> None:
    def fails(held: Any, number: int) -> Any:
        raise ValueError("could not convert 'Jane Doe, 41, HIV'")

    found = carried_out(fails, None, 0)
    assert isinstance(found, Failed)
    assert "Jane" not in found.message
    assert "ValueError" in found.message
    assert "\n" not in found.message
    assert carried_out(fails, Failed("before"), 0) == Failed("before")
    assert carried_out(fails, [0, Failed("one of them")], 0) == Failed("one of them")
    assert added([np.zeros(1), Failed("one"), Failed("two")]) == Failed("one")


def test_a_damaged_file_is_one_line_and_the_budget_is_spent(pretended: Pretended, tmp_path: Path) -> None:
    tables(tmp_path)
    check_damaged(tmp_path, "pretended")


def test_records_on_a_cluster_are_not_looked_at_one_by_one(pretended: Pretended) -> None:
    engine = pretended.open(open_source(make_people(10)), SCHEMA)
    with pytest.raises(ConfigError, match="not looked at one by one; give the table as a file"):
        engine.per_record()


def test_a_part_shows_no_code() -> None:
    assert "Jane" not in repr(Compact(SCHEMA, (Part(1, {"name": np.array(["Jane"])}),)))


@pytest.mark.parametrize(
    ("engine", "cluster", "said"),
    [
        ("cloud", None, "unknown engine 'cloud'; use one of local, dask, spark"),
        ("local", "tcp://here:1", "the engine local has no cluster; name the engine: dask or spark"),
        (None, "tcp://here:1", "the engine local has no cluster"),
        ("dask", "here", "must be the address of a Dask scheduler, such as tcp://host:8786, or a Client"),
        ("dask", 8786, "must be the address of a Dask scheduler"),
        ("dask", "tls://me:tr0ub4dor@here:1", "no Dask scheduler answers at the address of the cluster"),
    ],
)
def test_a_place_that_is_none_is_refused_before_anything_is_spent(
    engine: str | None, cluster: str | None, said: str, tmp_path: Path
) -> None:
    ledger = repsynth.Ledger.create(tmp_path / "ledger.db")
    ledger.init("people", repsynth.Budget.approximate(epsilon=4.0, delta=1e-6))
    with pytest.raises(ConfigError, match=said) as refused:
        repsynth.synthesize(make_people(50), SCHEMA, epsilon=1.0, ledger=ledger, engine=engine, cluster=cluster)
    assert "tr0ub4dor" not in str(refused.value)
    assert ledger.balance("people").spendings == ()


@pytest.mark.parametrize("name", ["dask", "spark"])
def test_a_library_that_is_not_there_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(repsynth.engine.CLUSTERS, name, "repsynth.engine.nowhere:connect")
    with pytest.raises(ConfigError, match=rf"needs more packages; pip install 'repsynth\[{name}\]'"):
        run(plan_of("naive-bayes"), open_source(make_people(50)), engine=name)
