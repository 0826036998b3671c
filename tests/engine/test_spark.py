"""A real Spark cluster of executor processes: the same bits, also when an executor dies.

One test for all of it: starting a cluster takes longer than most of what is checked on it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.csv as pacsv
import pytest
from checks import same_release
from conftest import ALL_TYPES, make_people
from test_cluster_persons import VISITS, visit_files, visits
from test_clusters import (
    MODELS,
    SCHEMA,
    check_damaged,
    check_interrupted,
    check_killed_inside_a_task,
    check_same_bits,
    plan_of,
    tables,
)

import repsynth
from repsynth.errors import DataError
from repsynth.io import arrow
from repsynth.io.encode import encode_batch
from repsynth.io.source import kind_of, reads_as_text
from repsynth.io.sources import check_columns, open_source
from repsynth.run.run import run
from repsynth.schema import Schema, parse_schema

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # Spark's own warnings are its

Session = Any


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(arrow, "PIECE_ROWS", 300)
    monkeypatch.setattr(arrow, "TABLE_PIECE_ROWS", 300)
    tables(tmp_path)
    visit_files(tmp_path)
    return tmp_path


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark can be started."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("no Java here: Spark needs it")
    pytest.importorskip("pyspark", reason="no Spark here; pip install 'repsynth[spark]'")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # A test is over before Java would have made its code fast.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def session(spark: None, tmp_path: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local-cluster[2,1,600]").appName("test")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": str(tmp_path / "spark"),
        "spark.sql.shuffle.partitions": "2",
        "spark.executor.memory": "600m",
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    yield made
    made.stop()


@pytest.mark.cluster
def test_a_spark_cluster(session: Session, folder: Path) -> None:
    one_odd_record_changes_no_other(session, folder)
    files_and_frames_give_the_same_bits(session, folder)
    persons_are_found_wherever_their_rows_are(session, folder)
    for schema, table in ((SCHEMA, "people"), (VISITS, "visits")):
        a_killed_executor_changes_nothing(session, folder / f"{table}.parquet", schema)
        a_killed_task_changes_nothing(session, folder / f"{table}.parquet", schema)
    failures_are_one_line(session, folder)
    nothing_is_left_behind(session, folder)


def one_odd_record_changes_no_other(session: Session, folder: Path) -> None:
    """Spark infers types from all cells of a CSV file."""
    schema = parse_schema("""
one_row_per_person = true
columns.zip = {type = "category", values = ["02139", "K1A 0B1"]}
columns.code = {type = "category", values = ["1", "2", "x"]}
columns.age = {type = "integer", min = 0, max = 99, special = ["-9", "x"]}
columns.pay = {type = "number", min = 0, max = 9, decimal = ","}
columns.day = {type = "datetime", min = 2020-01-01, max = 2020-12-31}
columns.time = {type = "datetime", min = 2020-01-01T00:00:00, max = 2020-12-31T00:00:00}
columns.flag = {type = "boolean"}
""")
    names = [column.name for column in schema.columns]
    rows = [
        "02139,1,-9,1.5,2020-01-31,2020-01-31 10:00:00,true",
        "02139,2,7,2.5,2020-02-01,2020-02-01 00:00:00,false",
    ]
    session.conf.set("spark.sql.session.timeZone", "UTC")
    found = []
    for odd in (rows[0], ",".join("x" * len(names)), "", "1.5,1.5,1.5,1,2020-01-31 10:00:00,2020-01-31,1"):
        (folder / "inferred.csv").write_text("\n".join([",".join(names), *rows, odd]) + "\n")
        frame = session.read.csv(str(folder / "inferred.csv"), header=True, inferSchema=True)
        source, cells = open_source(frame), frame.toArrow()
        taken = [column for column in schema.learned if reads_as_text(column, kind_of(cells[column.name].type))]
        if len(taken) < len(names):
            with pytest.raises(DataError, match="is stored as"):
                check_columns(source, schema)
        (batch,) = cells.combine_chunks().to_batches()
        codes = encode_batch(batch, Schema(columns=tuple(taken))).codes
        found.append({name: read[:2].tolist() for name, read in codes.items()})
    assert set(names) - found[0].keys() == {"zip", "pay"}
    assert found[1].keys() == set(names), "all is text"
    for name in names:
        assert len({tuple(each[name]) for each in found if name in each}) == 1, name
    session.conf.set("spark.sql.session.timeZone", "Europe/Zurich")
    with pytest.raises(DataError, match=r"set spark\.sql\.session\.timeZone to UTC"):
        open_source(frame)
    session.conf.set("spark.sql.session.timeZone", "UTC")


def files_and_frames_give_the_same_bits(session: Session, folder: Path) -> None:
    for model in MODELS:
        check_same_bits(plan_of(model), folder / "people.parquet", "spark", session)
    check_same_bits(plan_of("naive-bayes"), folder / "people.csv", "spark")  # the session at hand
    frame = session.read.parquet(str(folder / "people.parquet")).repartition(3, "person")
    people = make_people(700)
    assert frame.count() == people.num_rows
    check_same_bits(plan_of("naive-bayes"), frame, None, here=people)


def persons_are_found_wherever_their_rows_are(session: Session, folder: Path) -> None:
    for model in MODELS:
        check_same_bits(plan_of(model, VISITS), folder / "visits.parquet", "spark", session)
    check_same_bits(plan_of("naive-bayes", VISITS), folder / "visits.csv", "spark")
    frame = session.read.parquet(str(folder / "visits.parquet")).repartition(3, "age")
    check_same_bits(plan_of("naive-bayes", VISITS), frame, None, here=visits())
    nobody = frame.filter("age > 1000").groupBy(*frame.columns).count().select(*frame.columns)
    check_same_bits(plan_of("naive-bayes", VISITS), nobody, None, here=visits().slice(0, 0))


def executors_of(session: Session) -> list[int]:
    """The processes that Spark has started for its executors."""
    java = session.sparkContext._gateway.proc.pid
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if b"CoarseGrainedExecutorBackend" in command and parent == java:
            found.append(int(process.name))
    return found


def a_killed_executor_changes_nothing(session: Session, table: Path, schema: Schema) -> None:
    plan = plan_of("mst", schema)
    killed: list[int] = []

    def kill(executor: int) -> None:
        os.kill(executor, signal.SIGKILL)
        killed.append(executor)

    there = run(
        *(plan, open_source(table)),
        noise_seed=5,
        engine="spark",
        cluster=session,
        on_step=lambda step: kill(max(executors_of(session))) if step in ("scores", "tables") else None,
    )
    assert len(killed) == 2
    assert same_release(run(plan, open_source(table), noise_seed=5), there)


def failures_are_one_line(session: Session, folder: Path) -> None:
    from pyspark.sql import functions

    check_damaged(folder, "spark")
    frame = session.read.parquet(str(folder / "people.parquet"))
    broken = frame.withColumn("age", functions.expr("cast(region as int)"))  # Spark's message quotes the cell
    with pytest.raises(DataError) as failed:
        repsynth.synthesize(broken, SCHEMA, epsilon=1.0)
    assert "Spark gave up" in str(failed.value)
    assert "nowhere" not in str(failed.value)
    assert "north" not in str(failed.value)
    with pytest.raises(DataError, match="may hold other rows each time"):
        repsynth.synthesize(frame.withColumn("age", functions.rand()), SCHEMA, epsilon=1.0)
    with pytest.raises(DataError, match="looks at records one by one"):
        list(repsynth.audit(SCHEMA, frame, epsilon=1.0, runs=100))
    with pytest.raises(repsynth.ConfigError, match="another master"):
        repsynth.synthesize(folder / "people.csv", SCHEMA, epsilon=1.0, engine="spark", cluster="local[1]")


def nothing_is_left_behind(session: Session, folder: Path) -> None:
    def interrupt(step: str) -> None:
        if step == "scores":
            assert session.sparkContext._jsc.getPersistentRDDs().size() == 1
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan_of("naive-bayes"), open_source(folder / "people.csv"), engine="spark", on_step=interrupt)
    assert session.sparkContext._jsc.getPersistentRDDs().size() == 0


def a_killed_task_changes_nothing(session: Session, table: Path, schema: Schema) -> None:
    def kill_the_executor() -> None:  # goes to the workers, which have no tests
        """From a Python process of it: Java is the parent of the parent."""
        stat = (Path("/proc") / str(os.getppid()) / "stat").read_text()
        os.kill(int(stat.rpartition(")")[2].split()[1]), signal.SIGKILL)
        signal.pause()  # Java ends this process, too

    check_killed_inside_a_task(plan_of("mst", schema), table, kill_the_executor, engine="spark", cluster=session)


@pytest.mark.cluster
def test_the_command_line_with_a_spark_master(spark: None, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own process, as a user has it: a release and a table; and Ctrl-C while it runs."""
    (folder / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    command = (
        "synthesize people.csv --schema schema.toml --epsilon 1 --model mst --engine spark --cluster local[2]"
    )
    command += " -o drawn.csv --release release --json"
    done = subprocess.run(
        [sys.executable, "-m", "repsynth", *command.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["release"] == "release"
    assert "spark" not in (folder / "release" / "release.json").read_text()
    assert pacsv.read_csv(folder / "drawn.csv").num_rows > 0
    check_interrupted(folder, "spark", "local[2]")


@pytest.mark.cluster
def test_without_a_master_a_local_session_is_started(
    spark: None, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its workers run this Python, whatever the environment names; and the environment is left as it was."""
    from pyspark import SparkContext

    monkeypatch.setenv("PYSPARK_PYTHON", "/nowhere/python")
    monkeypatch.delenv("PYSPARK_DRIVER_PYTHON", raising=False)
    check_same_bits(plan_of("naive-bayes"), folder / "people.parquet", "spark")
    assert "No Spark cluster was given: a local one is started, until the end.\n" in capfd.readouterr().err
    assert SparkContext._active_spark_context is None
    assert os.environ["PYSPARK_PYTHON"] == "/nowhere/python"
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_workers_of_another_python_are_refused_by_the_name_of_the_setting(spark: None) -> None:
    from unittest.mock import MagicMock

    from repsynth.engine.spark import SparkCluster

    context = MagicMock()
    for failure, said in (
        (
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version",
            "run another Python .* set PYSPARK_PYTHON",
        ),
        ("Cannot run program", "see that .* PYSPARK_PYTHON names that Python"),
    ):
        context.parallelize.return_value.map.return_value.collect.side_effect = RuntimeError(failure)
        with pytest.raises(repsynth.ConfigError, match=said):
            SparkCluster(context, []).check_workers()


def test_a_master_that_does_not_answer_is_refused_before_anything_is_spent(spark: None, folder: Path) -> None:
    ledger = repsynth.Ledger.create(folder / "ledger.db")
    ledger.init("people", repsynth.Budget.approximate(epsilon=9.0, delta=1e-6))
    for master in (
        "spark://127.0.0.1:1",
        "spark://127.0.0.1:1,127.0.0.1:2",
        "spark://nowhere",
        "spark://[::1]:99999",
        "spark://me:tr0ub4dor@127.0.0.1:1",
    ):
        with pytest.raises(repsynth.ConfigError, match="no Spark master answers at the URL of the cluster;"):
            repsynth.synthesize(
                folder / "people.csv", SCHEMA, epsilon=1.0, ledger=ledger, engine="spark", cluster=master
            )
    assert ledger.balance("people").spendings == ()
