"""The ledger: nothing is free, nothing is lost, whatever crashes, races or is tampered with."""

import json
import math
import multiprocessing
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from conftest import ALL_TYPES, make_people
from hypothesis import given
from hypothesis import strategies as st

from repsynth import RepsSynthesizer, synthesize
from repsynth.cli import main
from repsynth.errors import ConfigError, DataError, LedgerError
from repsynth.privacy.adaptive_filter import Bound, room_in
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.ledger import Balance, Ledger, Spending, same_name
from repsynth.privacy.ledger import _append as ledger_append
from repsynth.privacy.loss import Loss
from repsynth.schema import Schema, parse_schema

LIMIT = Budget.approximate(epsilon=2.0, delta=1e-9)
ROOM = room_in(LIMIT)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger.create(tmp_path / "ledger.db")
    ledger.init("data", LIMIT)
    return ledger


def test_reserve_then_commit(ledger: Ledger) -> None:
    run = ledger.reserve("data", {"count": 0.1, "histograms": 0.2}, what="a test")
    (spending,) = ledger.balance("data").spendings
    assert not spending.finished
    assert spending.loss.mu == pytest.approx(math.hypot(0.1, 0.2))
    ledger.commit("data", run)
    assert ledger.balance("data").spendings[0].finished


def test_composition_is_tight_not_a_sum_of_epsilons(ledger: Ledger) -> None:
    """Four runs at half of μ fit, although the sum of their epsilons is about twice the limit's."""
    for _ in range(4):
        ledger.reserve("data", {"all": ROOM.mu / 2}, what="a quarter of mu squared")
    balance = ledger.balance("data")
    assert sum(balance.epsilon(s.loss) for s in balance.spendings) > 1.8 * LIMIT.epsilon
    assert balance.spent_epsilon <= 2.0 * (1 + 1e-8)
    with pytest.raises(LedgerError, match="affordable"):
        ledger.reserve("data", {"all": 0.01}, what="one too many")


@given(parts=st.lists(st.floats(1e-3, 1.0), min_size=2, max_size=20))
def test_runs_that_make_up_the_limit_fit_whatever_the_last_digit(parts: list[float]) -> None:
    """However it is cut, none is refused for a rounding, and nothing of weight fits after them."""
    total = math.fsum(part**2 for part in parts)
    balance = Balance("data", "", "", LIMIT, ())
    for part in parts:
        loss = Loss(0.0, ROOM.mu * part / math.sqrt(total))
        assert balance.covers(loss)
        spending = Spending("", "", "", "", loss, balance.bound(loss), True)
        balance = replace(balance, spendings=(*balance.spendings, spending))
    assert balance.spent_epsilon <= 2.0
    assert not balance.exceeded
    assert not balance.covers(Loss(0.0, 1e-4))


def test_one_run_may_take_the_whole_limit_and_nothing_fits_beside_it(ledger: Ledger) -> None:
    """Alone it is exact; room for the failures of trainings is kept where there is more than one."""
    assert ledger.balance("data").remaining.weighted_mu == LIMIT.mu
    with pytest.raises(LedgerError, match="affordable"):
        ledger.reserve("data", {"all": LIMIT.mu * (1 + 1e-9)}, what="a billionth too much")
    ledger.reserve("data", {"all": LIMIT.mu}, what="all of it")
    balance = ledger.balance("data")
    assert balance.spent_epsilon <= 2.0
    assert balance.share_spent == 1.0
    assert not balance.exceeded
    with pytest.raises(LedgerError, match="affordable"):
        ledger.reserve("data", {"all": 1e-6}, what="one more")


def test_a_second_run_may_not_take_what_is_kept_for_failures(ledger: Ledger) -> None:
    first = 0.6 * LIMIT.mu
    ledger.reserve("data", {"all": first}, what="first")
    with pytest.raises(LedgerError, match="affordable"):
        ledger.reserve("data", {"all": math.sqrt(LIMIT.mu**2 - first**2)}, what="up to the limit alone")
    ledger.reserve("data", {"all": math.sqrt(ROOM.mu**2 - first**2)}, what="up to the room")


def test_failures_that_are_used_up_refuse_everything() -> None:
    spending = Spending("", "", "", "", Loss(0.0, 0.01), Bound(0.01, ROOM.failure * 1.01), True)
    balance = Balance("data", "", "", LIMIT, (spending, spending))
    assert not balance.covers(Loss(0.0, 0.01))
    assert balance.share(spending.bound) == 1.0


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def append(ledger: Ledger, dataset: str, kind: str, run: str, content: dict[str, object]) -> None:
    """An entry that today's rules would not make."""
    with ledger._transaction() as connection:
        ledger_append(connection, dataset, kind, run, content)


def test_a_training_without_its_bound_is_no_entry(ledger: Ledger) -> None:
    training = {"kind": "sampled", "name": "gradients", "rate": 0.25, "noise": 4.85, "rounds": 20}
    entry = {"events": [{"kind": "gaussian", "name": "count", "mu": 0.01}, training], "what": "x"}
    append(ledger, "data", "reserve", "run-1", {**entry, "who": "", "when": "2026-01-01T00:00:00+00:00"})
    with pytest.raises(LedgerError, match="a training without its bound"):
        ledger.balance("data")
    with pytest.raises(LedgerError, match="a training without its bound"):
        ledger.reserve("data", {"all": 1e-4}, what="one more")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("patients", name) for name in ("patients ", " PATIENTS", "\uff50atients")),
        *(("Straße", "STRASSE"), ("ΟΔΟΣ", "οδος"), ("ﬁles of  people", "FILES of people"), ("ǰ", "J\u030c")),
        *(("patients", name) for name in ("patients\ufe0f", "pat\u034fients", "patients\u3164", "\u2800patients")),
    ],
)
def test_one_name_is_one_dataset_however_it_is_written(one: str, other: str, ledger: Ledger) -> None:
    """Otherwise the same people would have a budget for each spelling."""
    for first, second in ((one, other), (other, one)):
        assert same_name(first, second)
        assert not same_name(first, f"{second} 2")
    ledger.init(one, LIMIT)
    with pytest.raises(LedgerError, match="has its budget already"):
        ledger.init(other, LIMIT)
    ledger.commit(other, ledger.reserve(other, {"all": 0.1}, what="x"))
    assert [spending.finished for spending in ledger.balance(one).spendings] == [True]
    assert len(ledger.datasets()) == 2


@pytest.mark.parametrize("name", ["", "  ", "da\u200bta", "patients\u200b", "data\x00", "\u2800\u3164"])
def test_a_name_that_cannot_be_seen_is_refused(name: str, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="visible"):
        ledger.init(name, LIMIT)


def test_overspending_is_refused_with_both_numbers_and_the_largest_affordable(ledger: Ledger) -> None:
    ledger.reserve("data", {"all": 0.9 * LIMIT.mu}, what="most of it")
    with pytest.raises(LedgerError) as caught:
        ledger.reserve("data", {"all": LIMIT.mu}, what="too much")
    message = str(caught.value)
    assert "costs ε = 2," in message
    affordable = float(message.split("--epsilon ")[1].split()[0])
    assert len(ledger.balance("data").spendings) == 1
    budget = Budget.approximate(epsilon=affordable, delta=1e-9)
    ledger.reserve("data", {"all": budget.mu}, what="what it said is affordable")


def test_a_budget_is_given_once(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="cannot be changed"):
        ledger.init("data", LIMIT)
    ledger.init("other", LIMIT)
    with pytest.raises(LedgerError, match="choose one with"):
        ledger.only_dataset()
    with pytest.raises(LedgerError, match="no budget for 'nobody'"):
        ledger.reserve("nobody", {"all": 0.1}, what="")


def test_synthesize_pays(ledger: Ledger, schema: Schema) -> None:
    release = synthesize(make_people(50), schema, epsilon=1.0, delta=1e-9, ledger=ledger)
    (spending,) = ledger.balance("data").spendings
    assert spending.finished
    assert spending.loss.mu == pytest.approx(release.privacy.mu, rel=1e-6)
    assert spending.loss.mu >= release.privacy.mu
    with pytest.raises(LedgerError):
        synthesize(make_people(50), schema, epsilon=2.0, delta=1e-9, ledger=ledger.path)
    assert len(ledger.balance("data").spendings) == 1


def test_bad_input_is_not_charged(ledger: Ledger, schema: Schema, tmp_path: Path) -> None:
    for error, source, options in (
        (DataError, tmp_path / "absent.csv", {}),
        (DataError, make_people(5).drop_columns(["age"]), {}),
        (ConfigError, make_people(5), {"model": "magic"}),
        (ConfigError, make_people(5), {"dataset": "data", "ledger": None}),
    ):
        with pytest.raises(error):
            synthesize(source, schema, **{"epsilon": 1.0, "ledger": ledger, **options})  # type: ignore[arg-type]
    assert ledger.balance("data").spendings == ()


FAKE = """
one_row_per_person = true
[columns.person]
type = "id"
fake = "name"
[columns.smoker]
type = "boolean"
"""
SHORT = FAKE.replace('fake = "name"', 'format = "P-#"')


@pytest.mark.filterwarnings("ignore:the format of column")
@pytest.mark.parametrize("how", ["python", "estimator", "command"])
@pytest.mark.parametrize(("text", "said"), [(FAKE, "needs Faker"), (SHORT, "has room for 10 different ids")])
def test_what_could_not_be_drawn_is_refused_before_it_is_paid_for(
    text: str,
    said: str,
    how: str,
    ledger: Ledger,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setitem(sys.modules, "faker", None)
    monkeypatch.chdir(ledger.path.parent)
    table = pa.table({"person": [f"p{i}" for i in range(50)], "smoker": [True, False] * 25})
    options: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-9, "public_rows": 50, "ledger": ledger.path}
    if how == "command":
        pacsv.write_csv(table, "people.csv")
        Path("schema.toml").write_text(text)
        flags = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        assert main(["synthesize", "people.csv", "--schema", "schema.toml", *flags]) == 2
        assert said in capsys.readouterr().err
    else:
        schema = parse_schema(text)
        fit = RepsSynthesizer(schema, **options).fit
        with pytest.raises(ConfigError, match=said):
            fit(table) if how == "estimator" else synthesize(table, schema, **options)
    assert ledger.balance("data").spendings == ()


@pytest.mark.parametrize("rows", ["-1", "1000000000001"])
def test_a_number_of_rows_that_cannot_be_drawn_costs_nothing(
    rows: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ledger.path.parent)
    pacsv.write_csv(make_people(60), "people.csv")
    Path("schema.toml").write_text(ALL_TYPES)
    command = "synthesize people.csv --schema schema.toml --epsilon 1 --ledger ledger.db --rows"
    assert main([*command.split(), rows]) == 2
    assert "the number of rows cannot be negative" in capsys.readouterr().err
    assert ledger.balance("data").spendings == ()


def at_each_look(act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Do something whenever records are about to be read."""
    from repsynth.io import sources

    original = sources.open_source

    def watched(table: object, *reading: Any) -> sources.Source:
        source = original(table, *reading)

        def batches(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
            act()
            return source.batches(columns)

        return replace(source, batches=batches)

    monkeypatch.setattr(sources, "open_source", watched)


def test_the_reservation_comes_before_the_data(
    ledger: Ledger, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails on its first look at the data has paid already."""

    def fails() -> None:
        assert len(ledger.balance("data").spendings) == 1, "the data was read before the cost was reserved"
        raise DataError("the disk died")

    at_each_look(fails, monkeypatch)
    with pytest.raises(DataError, match="died"):
        synthesize(make_people(50), schema, epsilon=1.0, ledger=ledger)
    (spending,) = ledger.balance("data").spendings
    assert not spending.finished


@pytest.mark.parametrize(
    "tampering",
    [
        "UPDATE entry SET content = replace(content, '0.2', '0.1') WHERE number = 2",
        "UPDATE entry SET run = 'run-9' WHERE number = 3",
        "UPDATE entry SET dataset = 'other' WHERE number = 2",
        "DELETE FROM entry WHERE number = 2",
        "DELETE FROM entry WHERE number = 5",
        "DELETE FROM entry WHERE number > 3",
        "DELETE FROM entry",
        "DELETE FROM head",
        "UPDATE head SET number = 3",
        "INSERT INTO entry SELECT 6, dataset, kind, run, content, hash FROM entry WHERE number = 2",
        "DROP TABLE entry",
        "DROP TABLE head",
        "CREATE TRIGGER t AFTER INSERT ON head BEGIN DELETE FROM entry WHERE number > 1; END",
        "CREATE TABLE more (x)",
    ],
)
def test_an_edited_or_deleted_entry_is_noticed(tampering: str, ledger: Ledger) -> None:
    for _ in range(2):
        ledger.commit("data", ledger.reserve("data", {"all": 0.2}, what="x"))
    execute(ledger.path, tampering)
    with pytest.raises(LedgerError):
        Ledger(ledger.path)


@pytest.mark.parametrize("position", [0, 20, 100, 2000, 4096, 5000, 9000])
def test_a_corrupted_file_is_refused_or_whole(position: int, ledger: Ledger) -> None:
    for _ in range(20):
        ledger.reserve("data", {"all": 0.01}, what="x" * 200)
    before = ledger.balance("data")
    content = bytearray(ledger.path.read_bytes())
    content[position : position + 40] = b"\xa5" * 40
    ledger.path.write_bytes(bytes(content))
    try:
        assert Ledger(ledger.path).balance("data") == before  # bytes that SQLite does not use
    except LedgerError:
        return


def test_not_a_ledger(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="no such ledger"):
        Ledger(tmp_path / "absent.db")
    (tmp_path / "text.db").write_text("hello, this is not a database at all " * 100)
    with pytest.raises(LedgerError):
        Ledger(tmp_path / "text.db")
    execute(tmp_path / "other.db", "CREATE TABLE a (b)")
    with pytest.raises(LedgerError, match="not a ledger"):
        Ledger(tmp_path / "other.db")


@pytest.mark.parametrize("version", [1, 2, 3, 5, 99])
def test_a_ledger_of_another_version_is_refused_and_left_as_it_is(
    version: int, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    """Begun anew or misread, it would forget what was spent."""
    ledger.reserve("data", {"all": 0.1}, what="before")
    execute(ledger.path, f"PRAGMA user_version = {version}")
    before = ledger.path.read_bytes()
    for again in (
        lambda: Ledger(ledger.path),
        lambda: Ledger.create(ledger.path),
        lambda: ledger.init("other", LIMIT),
        lambda: ledger.reserve("data", {"all": 0.1}, what="after"),
        lambda: ledger.balance("data"),
    ):
        with pytest.raises(LedgerError) as refused:
            again()
        assert str(refused.value) == (
            f"{ledger.path}: written by another version of repsynth (format {version}); this one reads format 4: "
            "begin another ledger, in another file, with a budget that leaves room for what this one has spent"
        )
    assert main(["ledger", "init", str(ledger.path), "--epsilon", "2", "--delta", "1e-9"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert ledger.path.read_bytes() == before
    assert [path.name for path in ledger.path.parent.iterdir()] == [ledger.path.name]


def test_a_ledger_whose_tables_are_gone_is_not_begun_anew(ledger: Ledger) -> None:
    execute(ledger.path, "DROP TABLE entry", "DROP TABLE head")
    for version in (4, 0):
        execute(ledger.path, f"PRAGMA user_version = {version}")
        with pytest.raises(LedgerError, match=r"another version|do not belong"):
            Ledger.create(ledger.path)


def test_an_unknown_event_is_refused(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger.reserve("data", {"all": 0.1}, what="x")
    from repsynth.privacy import ledger as module

    original = json.loads
    monkeypatch.setattr(module.json, "loads", lambda text: original(text.replace('"gaussian"', '"quantum"')))
    with pytest.raises(LedgerError, match="cannot account for"):
        ledger.balance("data")


@pytest.mark.parametrize("mu", [math.nan, math.inf, -0.1, 0.0])
def test_a_charge_that_is_no_positive_number_is_refused(mu: float, ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="positive"):
        ledger.reserve("data", {"all": mu}, what="x")
    with pytest.raises(LedgerError, match="positive"):
        ledger.reserve("data", {}, what="x")
    assert ledger.balance("data").spendings == ()


def test_a_ledger_that_stays_open_notices_what_others_do_to_the_file(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.reserve("data", {"all": LIMIT.mu / 2}, what="x")
    execute(ledger.path, "DELETE FROM entry WHERE number > 1")
    with pytest.raises(LedgerError, match="removed"):
        ledger.reserve("data", {"all": LIMIT.mu}, what="laundering")


def test_a_ledger_that_is_gone_is_not_made_anew(ledger: Ledger) -> None:
    ledger.path.unlink()
    with pytest.raises(LedgerError):
        ledger.reserve("data", {"all": 0.1}, what="x")
    assert not ledger.path.exists()


def test_only_an_open_run_can_be_committed(ledger: Ledger) -> None:
    with pytest.raises(LedgerError, match="no open run"):
        ledger.commit("data", "run-1")
    run = ledger.reserve("data", {"all": 0.1}, what="x")
    ledger.commit("data", run)
    with pytest.raises(LedgerError, match="no open run"):
        ledger.commit("data", run)
    with pytest.raises(LedgerError, match="no budget"):
        ledger.commit("later", "run-1")
    ledger.init("later", LIMIT)


def test_a_release_is_not_lost_when_the_ledger_cannot_be_closed(
    ledger: Ledger, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise LedgerError("locked")

    monkeypatch.setattr(Ledger, "commit", locked)
    assert synthesize(make_people(30), schema, epsilon=1.0, ledger=ledger).sample(3).num_rows == 3
    (spending,) = ledger.balance("data").spendings
    assert not spending.finished


def test_a_budget_too_small_for_the_noise_is_refused_before_it_is_charged(ledger: Ledger, schema: Schema) -> None:
    with pytest.raises(ConfigError, match="64-bit"):
        synthesize(make_people(30), schema, mu=1e-9, ledger=ledger)
    assert ledger.balance("data").spendings == ()


def hammer(path: str, count: int) -> int:
    """Return how many reservations of a twentieth of the budget one process got through."""
    ledger, got = Ledger(path), 0
    for _ in range(count):
        try:
            ledger.commit("data", ledger.reserve("data", {"all": ROOM.mu / math.sqrt(20)}, what="hammer"))
            got += 1
        except LedgerError as error:
            if "affordable" not in str(error):
                raise
    return got


@pytest.mark.slow
def test_processes_never_overspend_together(ledger: Ledger) -> None:
    context = multiprocessing.get_context("spawn")
    with context.Pool(3) as pool:
        got = pool.starmap(hammer, [(str(ledger.path), 10)] * 3)
    assert sum(got) == 20
    balance = Ledger(ledger.path).balance("data")
    assert len(balance.spendings) == 20
    assert balance.spent.mu <= LIMIT.mu
    assert not balance.exceeded


CRASH = """
import os, signal, sys
from repsynth.cli import commands, main
import repsynth.io.csv, repsynth.engine.local, repsynth.models.naive_bayes, repsynth.release.store

at = seen = 0

def crash(event, arguments):
    global seen
    if event in ("open", "sqlite3.connect", "os.rename", "os.mkdir", "os.chmod", "tempfile.mkdtemp", "os.remove"):
        if event == "open" and str(arguments[0]).endswith((".py", ".pyc", ".so", ".toml")):
            return
        seen += 1
        if seen == at:
            os.kill(os.getpid(), signal.SIGKILL)

command = "synthesize people.csv --schema schema.toml --epsilon 0.1 --delta 1e-9 --ledger ledger.db"
command = [*command.split(), "--model", "naive-bayes"]
for line in sys.stdin:  # a child for each crash: what they all need is imported once
    at = int(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.addaudithook(crash)
        os._exit(main(command))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_killed_at_every_step_nothing_is_free_and_nothing_is_broken(tmp_path: Path) -> None:
    """SIGKILL at each file operation of a run in turn, until one run gets through."""
    pacsv.write_csv(make_people(60), tmp_path / "people.csv")
    (tmp_path / "schema.toml").write_text(ALL_TYPES)
    Ledger.create(tmp_path / "ledger.db").init("data", LIMIT)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    parent = subprocess.Popen([sys.executable, "-c", CRASH], cwd=tmp_path, **pipes)  # type: ignore[call-overload]
    spendings = 0
    for point in range(1, 80):
        before = spendings
        parent.stdin.write(f"{point}\n")
        parent.stdin.flush()
        code = int(parent.stdout.readline())
        balance = Ledger(tmp_path / "ledger.db").balance("data")  # opens, and its chain is whole
        spendings = len(balance.spendings)
        assert spendings - before in (0, 1)
        if (tmp_path / "release").exists():
            from repsynth import Release

            Release.load(tmp_path / "release")
            assert spendings == before + 1, "a release that was not paid for"
            assert balance.spendings[-1].finished
            for path in (tmp_path / "release").iterdir():
                path.unlink()
            (tmp_path / "release").rmdir()
            (tmp_path / "synthetic.csv").unlink(missing_ok=True)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    parent.communicate()
    assert code == parent.returncode == 0
    assert 10 <= point < 80
    unfinished = [s for s in balance.spendings if not s.finished]
    assert unfinished, "some crash came between the reservation and the end"
    assert balance.spendings[-1].finished


def test_a_read_only_ledger_is_refused_before_the_data_is_opened(
    ledger: Ledger, schema: Schema, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own read-only mode: file permissions do not stop a superuser."""
    original = sqlite3.connect

    def read_only(place: str, **options: object) -> sqlite3.Connection:
        return original(place.replace("mode=rw", "mode=ro"), **options)  # type: ignore[call-overload, no-any-return]

    with monkeypatch.context() as patch:
        patch.setattr("repsynth.privacy.ledger.sqlite3.connect", read_only)
        looks: list[None] = []
        at_each_look(lambda: looks.append(None), patch)
        with pytest.raises(LedgerError, match="nothing was spent"):
            synthesize(make_people(5), schema, epsilon=1.0, ledger=ledger)
    assert looks == []
    assert Ledger(ledger.path).balance("data").spendings == ()


def test_a_full_disk_refuses_the_run_and_keeps_the_ledger(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite may not grow the file by a single page."""
    original = sqlite3.connect

    def full(*arguments: object, **options: object) -> sqlite3.Connection:
        connection = original(*arguments, **options)  # type: ignore[call-overload]
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    with monkeypatch.context() as patch:
        patch.setattr("repsynth.privacy.ledger.sqlite3.connect", full)
        with pytest.raises(LedgerError, match="nothing was spent"):
            [ledger.reserve("data", {"all": 1e-4}, what="x" * 500) for _ in range(200)]
    kept = Ledger(ledger.path).balance("data").spendings
    assert all(s.what == "x" * 500 for s in kept)
    Ledger(ledger.path).reserve("data", {"all": 1e-4}, what="room again")


def test_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(make_people(60), "people.csv")
    Path("schema.toml").write_text(ALL_TYPES)
    assert main(shlex.split("ledger init ledger.db --epsilon 2 --delta 1e-9 --dataset patients")) == 0
    run = "synthesize people.csv --schema schema.toml --epsilon 1.5 --delta 1e-9 --ledger ledger.db"
    assert main(run.split()) == 0
    assert main(f"{run} --release second -o second.csv".split()) == 2
    assert "affordable" in capsys.readouterr().err
    assert not Path("second").exists()
    assert main(shlex.split("ledger show ledger.db")) == 0
    printed = capsys.readouterr().out
    assert "patients" in printed
    assert "█" in printed
    assert "run-1" in printed
    assert main(shlex.split("ledger show ledger.db --json")) == 0
    (shown,) = json.loads(capsys.readouterr().out)["datasets"]
    assert shown["runs"][0]["finished"] is True
    assert shown["spent"]["epsilon"] == pytest.approx(1.5, rel=1e-6)
    assert main(shlex.split("ledger show absent.db")) == 2
    assert main(f"{run} --dataset nobody --release third -o third.csv".split()) == 2


@pytest.mark.parametrize("spent", [0.0, 0.6])
def test_a_limit_is_exceeded_by_the_last_digits_of_a_rounding_at_most(spent: float) -> None:
    """A billionth of μ² more than what is left does not fit; and what is said to be left does."""
    loss = Loss(0.0, spent * LIMIT.mu)
    before = (Spending("", "", "", "", loss, Bound(loss.weighted_mu), True),) if spent else ()
    balance = Balance("data", "", "", LIMIT, before)
    most = balance.room.mu if spent else LIMIT.mu  # the first run keeps the limit by itself
    left, more = (math.sqrt(most**2 - loss.weighted_mu**2 + extra * LIMIT.mu**2) for extra in (0.0, 1e-9))
    assert balance.covers(Loss(left, 0.0))
    assert not balance.covers(Loss(more, 0.0))
    assert not balance.covers(Loss(0.0, more))
    assert balance.covers(balance.remaining)
    assert balance.remaining.mu == pytest.approx(left)
    assert balance.share_spent == pytest.approx(spent**2, rel=2e-3)


def test_a_limit_is_no_more_exceeded_where_there_is_training() -> None:
    cost = Loss.of([SampledEvent("gradients", 1.0, 8.0, 0.25, 30)])
    for factor, fits in ((1 + 1e-6, True), (1 - 1e-6, False)):
        limit = Budget.approximate(epsilon=cost.epsilon(1e-6) * factor, delta=1e-6)
        assert Balance("data", "", "", limit, ()).covers(cost) == fits
    limit = Budget.approximate(epsilon=2 * cost.epsilon(1e-6), delta=1e-6)
    empty = Balance("data", "", "", limit, ())
    balance = replace(empty, spendings=(Spending("", "", "", "", cost, empty.bound(cost), True),))
    left = balance.remaining
    assert balance.covers(left)
    assert not balance.covers(Loss(0.0, left.weighted_mu + 2e-4 * limit.mu))


def test_a_limit_given_as_mu_is_kept_to_that_where_delta_is_large() -> None:
    limit = Budget.gaussian(mu=0.2, delta=0.1)
    assert room_in(limit).mu <= limit.mu
