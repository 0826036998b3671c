"""A real Dask cluster of worker processes: the same bits, also when a worker dies, and nothing is left behind.

One test for all of it: starting a cluster takes longer than most of what is checked on it.
"""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

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
from repsynth.cli import main
from repsynth.errors import DataError
from repsynth.io import arrow
from repsynth.io.sources import open_source
from repsynth.planning.plan import Plan
from repsynth.run.run import run

distributed = pytest.importorskip("distributed", reason="no Dask here; pip install 'repsynth[dask]'")
pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

Client = Any


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(arrow, "PIECE_ROWS", 200)
    monkeypatch.setattr(arrow, "TABLE_PIECE_ROWS", 300)
    tables(tmp_path)
    visit_files(tmp_path)
    return tmp_path


def test_a_dask_cluster(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options, silence_logs=50) as cluster, distributed.Client(cluster) as client:
        files_and_frames_give_the_same_bits(client, folder)
        persons_are_found_wherever_their_rows_are(client, folder)
        for plans, table in ((plan_of, "people"), (plan_of_visits, "visits")):
            killed_workers_change_nothing(client, folder / f"{table}.parquet", plans)
            a_killed_task_changes_nothing(client, folder / f"{table}.parquet", plans)
        failures_are_one_line(client, folder)
        ids_of_another_type_than_declared_are_refused(client)
        types_that_could_change_a_reading_are_refused()
        nothing_is_left_behind(client, folder)
        the_command_line_names_the_scheduler(client, folder, capsys)
        check_interrupted(folder, "dask", client.scheduler.address)
        wait_until_all_is_let_go(client)


@pytest.mark.smoke
def test_without_an_address_a_local_cluster_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check_same_bits(plan_of("mst"), folder / "people.parquet", "dask")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("No Dask cluster was given: a local one was started (")
    assert {cluster.status.name for cluster in distributed.LocalCluster._instances} <= {"closed"}
    with pytest.raises(ValueError, match="No client"):
        distributed.Client.current()
    command = "synthesize people.csv --schema schema.toml --epsilon 1 --engine dask --json"
    monkeypatch.chdir(folder)
    Path("schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    assert main(command.split()) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["release"] == "release"
    assert said.err.count("\n") == 1
    assert {cluster.status.name for cluster in distributed.LocalCluster._instances} <= {"closed"}


def files_and_frames_give_the_same_bits(client: Client, folder: Path) -> None:
    import dask.dataframe

    for model in MODELS:
        check_same_bits(plan_of(model), folder / "people.parquet", "dask", client)
    check_same_bits(plan_of("naive-bayes"), folder / "people.csv", "dask")  # the client at hand
    check_same_bits(plan_of("naive-bayes"), make_people(500), "dask", client.scheduler.address)
    frame = dask.dataframe.from_pandas(make_people(500).to_pandas(), npartitions=3)
    check_same_bits(plan_of("mst"), frame, None, here=frame.compute())


def plan_of_visits(model: str) -> Plan:
    return plan_of(model, VISITS)


def persons_are_found_wherever_their_rows_are(client: Client, folder: Path) -> None:
    import dask.dataframe

    for model in MODELS:
        check_same_bits(plan_of_visits(model), folder / "visits.parquet", "dask", client)
    check_same_bits(plan_of_visits("naive-bayes"), folder / "visits.csv", "dask")
    check_same_bits(plan_of_visits("naive-bayes"), visits(), "dask")
    frame = dask.dataframe.from_pandas(visits(500).to_pandas(), npartitions=3)
    check_same_bits(plan_of_visits("mst"), frame, None, here=frame.compute())
    wait_until_all_is_let_go(client)


def ids_of_another_type_than_declared_are_refused(client: Client) -> None:
    """A missing id makes floats of a partition's long numbers, which then lack their last digits."""
    import dask.dataframe
    import pandas as pd

    def part(first: int) -> pd.DataFrame:  # goes to the workers, which have no tests
        frame = pd.DataFrame({"visitor": [10**17 + first, 10**17 + first + 1], "age": [20, 30]})
        return frame if first == 0 else frame.assign(visitor=[10.0**17, float("nan")])

    schema = repsynth.parse_schema(
        "person = {column = 'visitor'}\ncolumns.visitor = {type = 'id'}\n"
        "columns.age = {type = 'integer', min = 0, max = 99}"
    )
    frame = dask.dataframe.from_map(part, [0, 2], meta=part(0))
    with pytest.raises(DataError, match="visitor: a partition has ids of another type"):
        repsynth.synthesize(frame, schema, epsilon=1.0, delta=1e-6)


def types_that_could_change_a_reading_are_refused() -> None:
    """A partition may have other types than the frame declares, and a column of objects has none."""
    import dask
    import dask.dataframe
    import pandas as pd

    def part(first: int) -> pd.DataFrame:  # goes to the workers, which have no tests
        return pd.DataFrame({"zip": ["02139", "K1A 0B1"] if first == 0 else [2139, 2140]})

    schema = repsynth.parse_schema(
        "one_row_per_person = true\ncolumns.zip = {type = 'category', values = ['02139', '02140', 'K1A 0B1']}"
    )
    with pytest.raises(DataError, match="column 'zip' is stored as numbers"):
        repsynth.synthesize(dask.dataframe.from_map(part, [0, 2], meta=part(0)), schema, epsilon=1.0)
    with dask.config.set({"dataframe.convert-string": False}):
        objects = dask.dataframe.from_pandas(part(0).astype(object), npartitions=1)
        with pytest.raises(DataError, match="column 'zip' holds Python objects; convert it"):
            repsynth.synthesize(objects, schema, epsilon=1.0)


def killed_workers_change_nothing(client: Client, table: Path, plans: Callable[[str], Plan]) -> None:
    """Between two measurements: what they held is made again."""
    for model, when in (("naive-bayes", "coarse histograms"), ("mst", "tables")):
        plan = plans(model)
        killed: list[int] = []

        def kill(now: str, when: str = when, killed: list[int] = killed) -> None:
            if now == when:
                worker = min(client.run(os.getpid).values())
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)

        there = run(*(plan, open_source(table)), noise_seed=5, engine="dask", cluster=client, on_step=kill)
        assert len(killed) == 1
        assert same_release(run(plan, open_source(table), noise_seed=5), there)


def a_killed_task_changes_nothing(client: Client, table: Path, plans: Callable[[str], Plan]) -> None:
    def kill_the_worker() -> None:  # goes to the workers, which have no tests
        os.kill(os.getpid(), signal.SIGKILL)

    check_killed_inside_a_task(plans("mst"), table, kill_the_worker, engine="dask", cluster=client)


def failures_are_one_line(client: Client, folder: Path) -> None:
    ledger = check_damaged(folder, "dask")
    with pytest.raises(repsynth.ConfigError, match="no Dask scheduler answers at the address"):
        repsynth.synthesize(
            *(folder / "people.parquet", SCHEMA),
            epsilon=1.0,
            ledger=ledger,
            engine="dask",
            cluster="tcp://127.0.0.1:1",
        )
    assert len(ledger.balance("people").spendings) == 1  # nothing was spent

    import dask.dataframe

    frame = dask.dataframe.from_pandas(make_people(60).to_pandas(), npartitions=2)
    release = repsynth.synthesize(frame, SCHEMA, epsilon=1.0)
    for refused in (
        lambda: repsynth.risk(frame, release, folder / "dossier.parquet"),
        lambda: list(repsynth.audit(SCHEMA, frame, epsilon=1.0, runs=100)),
        lambda: repsynth.evaluate(frame, release=release),
        lambda: repsynth.attack(frame, SCHEMA, folder / "attack", epsilon=1.0),
        lambda: repsynth.check_table(frame, SCHEMA),
    ):
        with pytest.raises(DataError, match="looks at records one by one"):
            refused()
    with pytest.raises(repsynth.ConfigError, match="lies on a cluster of dask; leave the engine out"):
        repsynth.synthesize(frame, SCHEMA, epsilon=1.0, engine="local")


def nothing_is_left_behind(client: Client, folder: Path) -> None:
    def interrupt(step: str) -> None:
        if step == "scores":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan_of("naive-bayes"), open_source(folder / "people.parquet"), engine="dask", on_step=interrupt)
    wait_until_all_is_let_go(client)


def wait_until_all_is_let_go(client: Client) -> None:
    for _ in range(100):
        left = client.run_on_scheduler(lambda dask_scheduler: list(map(str, dask_scheduler.tasks)))
        if not left:
            break
        client.run_on_scheduler(_a_moment)
    assert left == []


async def _a_moment() -> None:
    import asyncio

    await asyncio.sleep(0.1)


def the_command_line_names_the_scheduler(client: Client, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "schema.toml").write_text(ALL_TYPES)
    address = client.scheduler.address
    command = f"synthesize {folder}/people.csv --schema {folder}/schema.toml --epsilon 1 --json --engine dask"
    command += f" --cluster {address} -o {folder}/out.csv --release {folder}/release"
    assert main(command.split()) == 0
    said = json.loads(capsys.readouterr().out)
    written = (folder / "release" / "release.json").read_text()
    for private in (address, "dask", "cluster", "people.csv"):
        assert private not in written
        assert private not in json.dumps({key: said[key] for key in said if key not in ("release", "output")})
