"""Checkpoints: a training that was killed goes on, nothing is drawn or paid for twice, and nothing is lost."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from checks import same_release
from conftest import ALL_TYPES, make_people
from filelock import FileLock
from msgspec import structs

from repsynth import Release, synthesize
from repsynth.cli import main
from repsynth.data.sources import open_source
from repsynth.engines.local import LocalEngine
from repsynth.errors import ConfigError, LedgerError, ReleaseError, RepsynthWarning
from repsynth.mechanism.meter import Meter
from repsynth.models.base import Round
from repsynth.models.network import train
from repsynth.pipeline.payment import Payer
from repsynth.pipeline.run import run
from repsynth.planning.plan import Plan, make_plan
from repsynth.planning.settings import Settings
from repsynth.privacy import pld
from repsynth.privacy.budget import Budget
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.ledger import _append as ledger_append
from repsynth.privacy.loss import Loss
from repsynth.schema import Schema

pytestmark = pytest.mark.slow


def small(**options: Any) -> dict[str, Any]:
    return {
        "epsilon": 2.0,
        "delta": 1e-6,
        "model": "autoregressive",
        "sampling_rate": 0.25,
        "epochs": 5.0,
        **options,
    }


def paid(schema: Schema, folder: Path, name: str = "ledger.db") -> tuple[Plan, Payer]:
    """A plan, and a ledger whose budget covers it once."""
    plan = make_plan(schema, Settings.of(**small()))
    ledger = Ledger.create(folder / name)
    ledger.init("data", plan.budget)
    return plan, Payer(ledger, "data")


class KilledError(Exception):
    """In the place of a kill."""


@pytest.fixture
def kept_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_SECONDS", 0.0)


def killed_after(rounds: int, plan: Any, table: pa.Table, folder: Path, **options: Any) -> None:
    def kill(done: Round) -> None:
        if done.done == rounds:
            raise KilledError

    with pytest.raises(KilledError):
        run(plan, open_source(table), on_round=kill, checkpoint=folder, **options)


@pytest.mark.usefixtures("kept_always")
def test_a_killed_training_goes_on_and_nothing_is_drawn_twice(
    people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    plan, payer = paid(schema, tmp_path)
    ledger = payer.ledger
    killed_after(7, plan, people, tmp_path / "c", payer=payer)
    assert [spending.finished for spending in ledger.balance("data").spendings] == [False]

    class OnlyTrains(Meter):
        def measure(self, *_: object, **__: object) -> Any:
            pytest.fail("stage 1 was measured again")

    rounds: list[int] = []
    release = run(
        plan,
        open_source(people),
        on_round=lambda done: rounds.append(done.done),
        payer=payer,
        checkpoint=tmp_path / "c",
        make_meter=OnlyTrains,
    )
    assert rounds == list(range(8, 21))
    assert release.privacy.epsilon <= 2.0
    assert [event.name for event in release.events] == plan.steps
    (spending,) = ledger.balance("data").spendings
    assert spending.finished
    assert spending.loss.epsilon(1e-6) == pytest.approx(release.privacy.epsilon)
    assert release.sample(10).num_rows == 10


@pytest.mark.usefixtures("kept_always")
def test_going_on_ends_where_an_unbroken_run_would(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    """With noise that only counts how often it was asked for: the broken run makes the same steps."""
    plan = make_plan(schema, Settings.of(**small(sampling_rate=1.0)))
    calls: dict[int, int] = {}

    def entropy(size: int) -> bytes:
        calls[size] = calls.get(size, 0) + 1
        return bytes([(37 * size + 11 * calls[size]) % 251]) * size

    def make_meter(*arguments: Any, **options: Any) -> Meter:
        return Meter(*arguments, **options | {"entropy": entropy})

    whole = run(plan, open_source(people), make_meter=make_meter)
    calls.clear()
    killed_after(2, plan, people, tmp_path / "c", make_meter=make_meter)
    again = run(plan, open_source(people), checkpoint=tmp_path / "c", make_meter=make_meter)
    assert same_release(whole, again)


def test_what_is_shown_was_kept_before(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two writings the loss that is shown stays what it was at the last one."""
    monkeypatch.setattr(train, "_SECONDS", 1e9)
    plan = make_plan(schema, Settings.of(**small()))
    shown: list[Round] = []
    run(plan, open_source(people), on_round=shown.append, checkpoint=tmp_path / "c")
    assert len({(one.loss, one.epsilon) for one in shown[:-1]}) == 1
    assert shown[-1].epsilon > shown[0].epsilon
    assert shown[-1].epsilon == pytest.approx(2.0, rel=2e-3)


@pytest.mark.usefixtures("kept_always")
def test_a_checkpoint_goes_on_only_as_what_it_began_as(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan, payer = paid(schema, tmp_path)
    ledger = payer.ledger
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    other = make_plan(schema, Settings.of(**small(epochs=4.0)))
    with pytest.raises(ConfigError, match="another epochs"):
        run(other, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    with pytest.raises(ConfigError, match="paid from a ledger"):
        run(plan, open_source(people), checkpoint=tmp_path / "c")
    run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / "copy", payer=payer)
    (tmp_path / "copy" / "state.npz").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="damaged"):
        run(plan, open_source(people), checkpoint=tmp_path / "copy", payer=payer)
    assert len(ledger.balance("data").spendings) == 1


@pytest.mark.usefixtures("kept_always")
def test_an_older_copy_that_is_put_back_is_refused(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    killed_after(9, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "latest")
    shutil.rmtree(tmp_path / "c")
    shutil.copytree(tmp_path / "copy", tmp_path / "c")
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    shutil.rmtree(tmp_path / "c")
    shutil.copytree(tmp_path / "latest", tmp_path / "c")  # what the message tells to do
    shown: list[Round] = []
    run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert shown[0].done == 10
    for name in ("copy", "latest"):  # the run has ended
        with pytest.raises(ConfigError, match="would draw rounds twice"):
            run(plan, open_source(people), checkpoint=tmp_path / name, payer=payer)
    assert len(payer.ledger.balance("data").spendings) == 1


@pytest.mark.parametrize("rounds", [0, 3])
@pytest.mark.usefixtures("kept_always")
def test_another_ledger_does_not_pay(rounds: int, people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    """It has an open run of the same name, at the same point; neither ledger lets the other's training go on."""
    plan, payer = paid(schema, tmp_path)
    _, other = paid(schema, tmp_path, "other.db")
    killed_after(rounds or 1, plan, people, tmp_path / "c", payer=payer)
    killed_after(rounds or 1, plan, people, tmp_path / "d", payer=other)
    if rounds == 0:  # as it was before the first round
        for name in ("c", "d"):
            (tmp_path / name / "state.npz").unlink()
    before = files_of(tmp_path / "c")
    for folder, ledger in (("c", other), ("d", payer)):
        with pytest.raises(ConfigError, match="does not pay for this training"):
            run(plan, open_source(people), checkpoint=tmp_path / folder, payer=ledger)
    assert files_of(tmp_path / "c") == before
    assert len(payer.ledger.balance("data").spendings) == len(other.ledger.balance("data").spendings) == 1


@pytest.mark.usefixtures("kept_always")
def test_a_copy_of_the_ledger_does_not_pay_for_what_went_on_since(
    people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    """Neither the older ledger with the later state, nor the later ledger with the older state."""
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "older")
    shutil.copy(tmp_path / "ledger.db", tmp_path / "older.db")
    killed_after(9, plan, people, tmp_path / "c", payer=payer)
    for folder, ledger in (("c", "older.db"), ("older", "ledger.db")):
        with pytest.raises(ConfigError, match="would draw rounds twice"):
            run(
                plan,
                open_source(people),
                checkpoint=tmp_path / folder,
                payer=Payer(Ledger(tmp_path / ledger), "data"),
            )


@pytest.mark.usefixtures("kept_always")
def test_of_two_that_go_on_at_once_one_stops_before_it_keeps_or_shows_anything(
    people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    shutil.copytree(tmp_path / "c", tmp_path / "copy", ignore=shutil.ignore_patterns("lock"))
    releases, shown = [], []

    class Overtaken(Meter):
        """Between opening the checkpoint and the first round, the copy goes on to its end."""

        def train(self, *arguments: Any, **options: Any) -> Any:
            releases.append(run(plan, open_source(people), checkpoint=tmp_path / "copy", payer=payer))
            return super().train(*arguments, **options)

    kept = (tmp_path / "c" / "state.npz").read_bytes()
    with pytest.raises(LedgerError, match="gone on elsewhere"):
        run(
            plan,
            open_source(people),
            checkpoint=tmp_path / "c",
            payer=payer,
            make_meter=Overtaken,
            on_round=shown.append,
        )
    assert len(releases) == 1
    assert shown == []
    assert (tmp_path / "c" / "state.npz").read_bytes() == kept
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True]


@pytest.mark.parametrize(("before_noting", "kept"), [(True, 3), (False, 4)])
@pytest.mark.usefixtures("kept_always")
def test_a_kill_between_the_ledger_and_the_folder_loses_nothing_and_repeats_nothing(
    before_noting: bool,
    kept: int,
    people: pa.Table,
    schema: Schema,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was noted counts, whether it had taken its place or not; what was not noted does not."""
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    note = Ledger.note

    def killed(self: Ledger, *arguments: Any, **options: Any) -> None:
        if not before_noting:
            note(self, *arguments, **options)
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "note", killed)
        with pytest.raises(KilledError):
            run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    folder = tmp_path / "c"
    beside = (folder / ".state.npz").read_bytes()
    assert np.load(BytesIO(beside))["numbers"][1] == 4
    assert np.load(folder / "state.npz")["numbers"][1] == 3

    shutil.copytree(folder, tmp_path / "swapped")
    (tmp_path / "swapped" / ".state.npz").replace(tmp_path / "swapped" / "state.npz")
    shutil.copytree(folder, tmp_path / "without")
    (tmp_path / "without" / ".state.npz").unlink()
    wrong = "swapped" if before_noting else "without"  # the state that the ledger did not note last
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / wrong, payer=payer)

    shown: list[Round] = []
    release = run(plan, open_source(people), checkpoint=folder, payer=payer, on_round=shown.append)
    assert release.privacy.epsilon <= 2.0
    assert shown[0].done == kept + 1
    assert 0.5 < shown[0].epsilon < 1.9, "what the first rounds cost is part of it"
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True]


@pytest.mark.usefixtures("kept_always")
def test_a_kill_before_the_first_state_is_noted_loses_nothing(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, payer = paid(schema, tmp_path)

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "note", killed)
        with pytest.raises(KilledError):
            run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    assert (tmp_path / "c" / "start").exists()
    shown: list[Round] = []
    run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert shown[0].done == 1
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True]


@pytest.mark.parametrize("change", ["start/release.json", "state.npz"])
@pytest.mark.usefixtures("kept_always")
def test_a_ledger_notices_another_state_of_the_same_round(
    change: str, people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    path = tmp_path / "c" / change
    if change == "state.npz":
        buffer = BytesIO()
        state = dict(np.load(path))
        np.savez(buffer, **state | {"parameters": -state["parameters"]})
        path.write_bytes(buffer.getvalue())
    else:
        path.write_bytes(path.read_bytes() + b"\n")
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)


def as_before(folder: Path, ledger: Ledger, token: str = "a", noted: str = "a") -> None:
    """A checkpoint and its ledger as earlier versions wrote them: by tokens."""
    (folder / "run.json").write_text(json.dumps({"dataset": "data", "run": "run-1", "token": token, "before": ""}))
    with ledger._transaction() as connection:
        rows = connection.execute("SELECT dataset, kind, run, content FROM entry ORDER BY number").fetchall()
        connection.execute("DELETE FROM entry")
        for dataset, kind, name, content in rows:
            if kind != "state":
                ledger_append(connection, dataset, kind, name, json.loads(content))
        if noted:
            ledger_append(connection, "data", "claim", "run-1", {"token": noted, "when": ""})


@pytest.mark.usefixtures("kept_always")
def test_a_training_of_an_earlier_version_goes_on_once(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    as_before(tmp_path / "c", payer.ledger)
    shutil.copytree(tmp_path / "c", tmp_path / "copy")
    shown: list[Round] = []
    run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert shown[0].done == 4
    with pytest.raises(ConfigError, match="would draw rounds twice"):
        run(plan, open_source(people), checkpoint=tmp_path / "copy", payer=payer)


@pytest.mark.parametrize("noted", ["b", ""])
@pytest.mark.usefixtures("kept_always")
def test_a_training_of_an_earlier_version_that_went_on_elsewhere_is_refused(
    noted: str, people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    """Or one that this ledger never saw: an empty token is nobody's."""
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c", payer=payer)
    as_before(tmp_path / "c", payer.ledger, noted=noted)
    with pytest.raises(ConfigError, match="does not pay for this training"):
        run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)


def test_what_is_shown_first_after_a_kill_counts_the_rounds_before(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = make_plan(schema, Settings.of(**small()))
    with monkeypatch.context() as patched:
        patched.setattr(train, "_SECONDS", 0.0)
        killed_after(15, plan, people, tmp_path / "c")
    monkeypatch.setattr(train, "_SECONDS", 1e9)
    shown: list[Round] = []
    run(plan, open_source(people), checkpoint=tmp_path / "c", on_round=shown.append)
    assert plan.training is not None
    before = structs.replace(plan.training, rounds=15)
    floor = Loss(plan.loss.floor_mu, 0.0)
    assert shown[0].epsilon == pytest.approx((floor + Loss.of([before])).epsilon(1e-6))


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def not_again(*_: object, **__: object) -> Any:
    pytest.fail("the data was read, or something was spent, again")


@pytest.mark.parametrize("with_ledger", [False, True])
def test_a_finished_checkpoint_gives_its_release_again_until_that_is_saved(
    with_ledger: bool, people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, payer = paid(schema, tmp_path)
    options = small(checkpoint=tmp_path / "c", **({"ledger": tmp_path / "ledger.db"} if with_ledger else {}))
    release = synthesize(people, schema, **options)
    kept = files_of(tmp_path / "c")
    assert {"run.json", "state.npz", "start/release.json", "start/arrays.npz"} <= kept.keys()

    with monkeypatch.context() as patched:
        patched.setattr(LocalEngine, "sum", not_again)
        patched.setattr(LocalEngine, "held", not_again)
        patched.setattr(Ledger, "reserve", not_again)
        patched.setattr(Meter, "measure", not_again)
        patched.setattr("repsynth.mechanism.meter.add_gaussian", not_again)
        with pytest.warns(RepsynthWarning, match="finished training that was not saved"):
            again = synthesize(people, schema, **options)
    assert same_release(release, again)
    assert files_of(tmp_path / "c") == kept
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True] * with_ledger

    folder = again.save(tmp_path / "release")
    assert not (tmp_path / "c").exists()
    assert same_release(Release.load(folder), release)
    release.save(tmp_path / "another")
    assert not (tmp_path / "c").exists()


def test_a_release_that_could_not_be_saved_is_still_in_its_checkpoint(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = synthesize(people, schema, **small(checkpoint=tmp_path / "c"))
    kept = files_of(tmp_path / "c")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "way").mkdir()
    with pytest.raises(ReleaseError, match="already exists"):
        release.save(tmp_path / "way")
    assert files_of(tmp_path / "c") == kept
    (tmp_path / "file").write_text("in the way, too")
    with pytest.raises(ReleaseError, match="cannot be written"):
        release.save(tmp_path / "file" / "release")
    assert files_of(tmp_path / "c") == kept
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", full)
        with pytest.raises(ReleaseError, match="No space left"):
            release.save(tmp_path / "release")
    assert files_of(tmp_path / "c") == kept
    del release  # with the process, say
    with pytest.warns(RepsynthWarning, match="finished training that was not saved"):
        again = synthesize(people, schema, **small(checkpoint=tmp_path / "c"))
    again.save(tmp_path / "release")
    assert not (tmp_path / "c").exists()


def test_what_else_is_in_the_folder_stays_there(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    release = synthesize(people, schema, **small(checkpoint=tmp_path / "c"))
    (tmp_path / "c" / "letter.txt").write_text("dear")
    release.save(tmp_path / "release")
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["letter.txt"]


@pytest.mark.usefixtures("kept_always")
def test_saving_twice_does_not_remove_another_training_s_checkpoint(
    people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    release = synthesize(people, schema, **small(checkpoint=tmp_path / "c"))
    release.save(tmp_path / "one")
    killed_after(3, make_plan(schema, Settings.of(**small())), people, tmp_path / "c")
    kept = files_of(tmp_path / "c")
    release.save(tmp_path / "two")
    assert files_of(tmp_path / "c") == kept


def test_what_cannot_be_a_checkpoint_or_a_setting_is_refused(people: pa.Table, schema: Schema) -> None:
    with pytest.raises(ConfigError, match="path of a folder"):
        synthesize(people, schema, **small(checkpoint=5))
    with pytest.raises(ConfigError, match="epochs must be a number"):
        synthesize(people, schema, **small(epochs="5"))


@pytest.mark.usefixtures("kept_always")
def test_a_training_that_began_unpaid_is_paid_for_where_a_ledger_is_named(
    people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    plan, payer = paid(schema, tmp_path)
    killed_after(3, plan, people, tmp_path / "c")
    release = run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer)
    (spending,) = payer.ledger.balance("data").spendings
    assert spending.finished
    assert spending.loss.epsilon(1e-6) == pytest.approx(release.privacy.epsilon)


@pytest.mark.parametrize(
    "change",
    [
        lambda state: {name: array for name, array in state.items() if name != "velocity"},
        lambda state: {name: array for name, array in state.items() if name != "numbers"},
        lambda state: state | {"parameters": state["parameters"][:-1]},
        lambda state: state | {"average": state["average"] * np.nan},
        lambda state: state | {"numbers": np.array([0.0, 21.0])},
        lambda state: state | {"numbers": np.array([0.0, -1.0])},
        lambda state: state | {"numbers": np.array([0.0, np.nan])},
        lambda state: state | {"numbers": np.array([0, 3])},
    ],
)
@pytest.mark.usefixtures("kept_always")
def test_a_damaged_state_is_refused(
    change: Callable[[dict[str, Any]], dict[str, Any]], people: pa.Table, schema: Schema, tmp_path: Path
) -> None:
    plan = make_plan(schema, Settings.of(**small()))
    killed_after(3, plan, people, tmp_path / "c")
    state = tmp_path / "c" / "state.npz"
    buffer = BytesIO()
    np.savez(buffer, **change(dict(np.load(state))))  # type: ignore[arg-type]
    state.write_bytes(buffer.getvalue())
    with pytest.raises(ConfigError, match="damaged"):
        run(plan, open_source(people), checkpoint=tmp_path / "c")


def test_a_checkpoint_in_use_or_in_the_way_is_refused(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    plan = make_plan(schema, Settings.of(**small()))

    def meanwhile(done: Round) -> None:
        if done.done == 1:
            with pytest.raises(ConfigError, match="another run"):
                run(plan, open_source(people), checkpoint=tmp_path / "c")

    run(plan, open_source(people), checkpoint=tmp_path / "c", on_round=meanwhile)
    with FileLock(tmp_path / "c" / "lock"), pytest.raises(ConfigError, match="another run"):
        run(plan, open_source(people), checkpoint=tmp_path / "c")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="neither empty nor a checkpoint"):
        run(plan, open_source(people), checkpoint=tmp_path / "home")
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["letter.txt"]
    other = make_plan(schema, Settings.of(epsilon=1.0, model="naive-bayes"))
    with pytest.raises(ConfigError, match="only a model that is trained"):
        run(other, open_source(people), checkpoint=tmp_path / "d")


@pytest.mark.usefixtures("kept_always")
def test_a_full_disk_is_one_clear_error_and_training_goes_on_later(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, payer = paid(schema, tmp_path)

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    def fill(done: Round) -> None:
        if done.done == 4:
            monkeypatch.setattr(os, "fsync", full)

    with pytest.raises(ReleaseError, match="No space left"):
        run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer, on_round=fill)
    assert not list((tmp_path / "c").glob(".*"))
    with pytest.raises(ReleaseError, match="No space left"):
        run(make_plan(schema, Settings.of(**small())), open_source(people), checkpoint=tmp_path / "d")
    monkeypatch.undo()
    shown: list[Round] = []
    run(plan, open_source(people), checkpoint=tmp_path / "c", payer=payer, on_round=shown.append)
    assert shown[0].done == 5
    assert [spending.finished for spending in payer.ledger.balance("data").spendings] == [True]


def test_a_run_that_cannot_be_paid_leaves_no_checkpoint(people: pa.Table, schema: Schema, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=0.1, delta=1e-6))
    plan = make_plan(schema, Settings.of(**small()))
    with pytest.raises(LedgerError, match="this run costs"):
        run(plan, open_source(people), payer=Payer(ledger, "data"), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def test_a_ledger_composes_trainings_with_everything_else(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-6))
    plan = make_plan(schema, Settings.of(**small(epsilon=1.0)))
    charges = {name: charge.mu for name, charge in plan.charges.items()}
    for _ in range(2):
        ledger.reserve("data", charges, training=plan.training, what="training")
    balance = ledger.balance("data")
    assert 1.3 < balance.spent_epsilon < 1.8, "less than the sum"
    assert balance.spent_epsilon >= balance.epsilon(balance.spent)
    left = balance.remaining.mu
    assert left is not None
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", {"all": left * 1.0001}, what="too much")
    ledger.reserve("data", {"all": left}, what="the rest")
    assert 1.99 < ledger.balance("data").spent_epsilon <= 2.0
    with pytest.raises(LedgerError, match="this run costs"):
        ledger.reserve("data", charges, training=plan.training, what="too much")


def test_without_its_library_nothing_is_spent(
    people: pa.Table, schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = synthesize(people, schema, **small())
    plan, payer = paid(schema, tmp_path)
    release.save(tmp_path / "release")
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ConfigError, match=r"install repsynth\[autoregressive\]"):
        run(plan, open_source(people), payer=payer, checkpoint=tmp_path / "c")
    assert not payer.ledger.balance("data").spendings
    assert not (tmp_path / "c").exists()
    loaded = Release.load(tmp_path / "release")
    assert loaded.sample(5).num_rows == 5, "drawing does not need it"
    pld._accountant.cache_clear()
    with pytest.raises(ConfigError, match=r"install repsynth\[autoregressive\]"):
        make_plan(schema, Settings.of(**small(epsilon=1.7)))


def test_a_ledger_kept_at_a_tiny_delta_takes_no_training(tmp_path: Path, schema: Schema) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", Budget.approximate(epsilon=2.0, delta=1e-20))
    plan = make_plan(schema, Settings.of(**small(epsilon=0.1)))
    charges = {name: charge.mu for name, charge in plan.charges.items()}
    with pytest.raises(LedgerError, match="accounted for down to"):
        ledger.reserve("data", charges, training=plan.training, what="training")


KILLED = """
import json, os, pathlib, signal, sys
from repsynth.cli import main
from repsynth.models.network import train
from repsynth.pipeline import checkpoint
from repsynth.privacy import ledger
from repsynth.privacy.ledger import _append as append
import repsynth.data.sources.csv, repsynth.engines.local, repsynth.release.folder

def kill(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

def run(when, folder, command):
    def save(self, state):
        done = int(state["numbers"][1])
        if done == 3 and when == "half written":
            os.fsync = kill
        if done == 3 and when == "before it is noted":
            ledger.Ledger.note = kill  # it is there, but not in its place
        if done == 3 and when == "while it is noted":
            ledger._append = lambda *entry: (append(*entry), kill())
        if done == 3 and when == "after it is noted":
            pathlib.Path.replace = kill
        if done == 3 and when == "before the folder is safe":
            checkpoint._place = lambda path: (path.with_name("." + path.name).replace(path), kill())
        kept(self, state)
        if done == 3:
            kill()

    os.chdir(folder)
    for name, stream in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    if when:
        train._SECONDS = 0.0
        kept, checkpoint.Checkpoint.save = checkpoint.Checkpoint.save, save
    return main(command)

for line in sys.stdin:  # a child for each command: what they all need is imported, and the noise found, once
    when, folder, command = json.loads(line)
    if when is None:
        sys.stdout, own = sys.stderr, sys.stdout
        code, sys.stdout = main(command), own
    else:
        child = os.fork()
        if child == 0:
            code = 70
            try:
                code = run(when, folder, command)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, flush=True)
"""

BUDGET = ["--epsilon", "2", "--delta", "1e-6"]
TRAINING = ["--schema", "schema.toml", "--model", "autoregressive", "--epochs", "1"]


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, Path, list[str]], int]]:
    """Runs a command in a process of its own, in a folder, and kills it at a given point."""
    folder = tmp_path_factory.mktemp("parent")
    (folder / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=folder, **pipes) as parent:  # type: ignore[call-overload]

        def ask(when: str | None, place: Path, command: list[str]) -> int:
            parent.stdin.write(json.dumps([when, str(place), command]) + "\n")
            parent.stdin.flush()
            return int(parent.stdout.readline())

        assert ask(None, folder, ["plan", *TRAINING, *BUDGET]) == 0
        yield ask
        parent.stdin.close()


def rounds_noted() -> list[int]:
    with closing(sqlite3.connect("ledger.db")) as connection:
        rows = connection.execute("SELECT content FROM entry WHERE kind = 'state' ORDER BY number").fetchall()
    return [json.loads(content)["round"] for (content,) in rows]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize(
    ("when", "kept", "next_one"),
    [
        ("half written", 2, 3),
        ("before it is noted", 2, 3),
        ("while it is noted", 2, 3),
        ("after it is noted", 2, 4),
        ("before the folder is safe", 3, 4),
        ("between two rounds", 3, 4),
    ],
)
def test_the_command_line_goes_on_after_a_kill(
    when: str,
    kept: int,
    next_one: int,
    tmp_path: Path,
    forked: Callable[[str, Path, list[str]], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """SIGKILL in the middle of training; the same command again finishes the run, paid for once. The process sends
    it to itself, at a point that is given: no clock is involved."""
    pacsv.write_csv(make_people(1000), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["ledger", "init", "ledger.db", *BUDGET]) == 0
    command = ["synthesize", "people.csv", *TRAINING, *BUDGET, "--ledger", "ledger.db", "--json"]
    assert forked(when, tmp_path, command) == -signal.SIGKILL, (tmp_path / "err").read_text()
    assert np.load(tmp_path / "release.checkpoint" / "state.npz")["numbers"][1] == kept
    assert not (tmp_path / "release").exists()
    (spending,) = Ledger("ledger.db").balance("data").spendings
    assert not spending.finished
    before = rounds_noted()
    assert forked("", tmp_path, command) == 0, (tmp_path / "err").read_text()
    assert before == list(range(next_one))
    assert rounds_noted()[:next_one] == before
    assert rounds_noted()[next_one] >= next_one, "no round is noted twice"
    assert "Going on with the training" in (tmp_path / "err").read_text()
    account = json.loads((tmp_path / "out").read_text())
    assert account["epsilon"] <= 2.0
    assert account["mu"] is None
    assert not (tmp_path / "release.checkpoint").exists()
    (spending,) = Ledger("ledger.db").balance("data").spendings
    assert spending.finished
    assert Release.load(tmp_path / "release").sample(3).num_rows == 3
