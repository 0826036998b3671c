"""The budget ledger: how much of a dataset's privacy has been spent, kept in one SQLite file.

A dataset gets a total once. A run *reserves* its whole cost before it opens the data and *commits* when
it is done; a reservation that is never committed (a crash, a kill, a power cut) counts as spent. Entries
are only ever added, each with a hash over itself and its predecessor, so that one that was edited or
removed is noticed. Costs are events, composed exactly, not a sum of epsilons.
"""

import getpass
import hashlib
import json
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from repsynth.errors import LedgerError
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.gaussian import compose, mu_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.neighbours import NEIGHBOURS, UNIT
from repsynth.privacy.pld import SMALLEST_DELTA, is_training
from repsynth.privacy.shown import at_least, at_most

VERSION = 2
_BUSY_SECONDS = 60.0
# A total that exceeds the limit by no more than the last digits of its roundings fits.
_TOLERANCE = 1e-12
_APPLICATION = 0x52455053
_MIGRATIONS = (
    """
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        dataset TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('init', 'reserve', 'commit')),
        run TEXT NOT NULL,
        content TEXT NOT NULL,
        hash TEXT NOT NULL
    ) STRICT;
    CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL) STRICT;
    """,
    """
    ALTER TABLE entry RENAME TO old;
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        dataset TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('init', 'reserve', 'claim', 'commit')),
        run TEXT NOT NULL,
        content TEXT NOT NULL,
        hash TEXT NOT NULL
    ) STRICT;
    INSERT INTO entry SELECT * FROM old;
    DROP TABLE old;
    """,
)


@dataclass(frozen=True)
class Spending:
    """One run in the ledger; `finished` is False for one that never committed, which counts all the same."""

    run: str
    who: str
    what: str
    when: str
    loss: Loss
    finished: bool


@dataclass(frozen=True)
class Balance:
    """The state of one dataset's budget."""

    dataset: str
    unit: str
    neighbours: str
    limit: Budget
    spendings: tuple[Spending, ...]

    @property
    def spent(self) -> Loss:
        """All runs together, finished or not."""
        return Loss.together(spending.loss for spending in self.spendings)

    @property
    def spent_epsilon(self) -> float:
        """The ε of all runs at the limit's δ."""
        return self.epsilon(self.spent)

    @property
    def remaining(self) -> Loss:
        """The most that one more run without training may cost."""
        spent = self.spent
        if spent.mu is not None:
            return Loss(0.0, math.sqrt(max(self.limit.mu**2 - spent.mu**2, 0.0)))
        low, high = 0.0, self.limit.mu
        while high - low > 1e-4 * self.limit.mu:
            middle = (low + high) / 2
            low, high = (middle, high) if self.covers(Loss(0.0, middle)) else (low, middle)
        return Loss(0.0, low)

    @property
    def share_spent(self) -> float:
        """How much of the limit is spent, as a share of its μ²."""
        return min(self.share(self.spent), 1.0)

    def share(self, loss: Loss) -> float:
        """A loss as a share of the limit's μ²; that of a training by the μ that has its ε."""
        mu = loss.mu if loss.mu is not None else mu_of(self.epsilon(loss), self.limit.delta)
        return (mu / self.limit.mu) ** 2

    def covers(self, loss: Loss) -> bool:
        """Whether so much more fits."""
        total = self.spent + loss
        if total.mu is not None:
            return total.mu <= self.limit.mu * (1 + _TOLERANCE)
        return self.epsilon(total) <= self.limit.epsilon * (1 + 1e-9)

    def epsilon(self, loss: Loss) -> float:
        """The ε of a loss at the limit's δ."""
        return loss.epsilon(self.limit.delta)


class Ledger:
    """An open ledger file. Every call is one transaction; several processes may use one file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "ledger.db"
    >>> ledger = Ledger.create(path)
    >>> ledger.init("patients", Budget.approximate(epsilon=2.0, delta=1e-9))
    >>> run = ledger.reserve("patients", {"count": 0.1}, what="a count")
    >>> ledger.commit("patients", run)
    >>> [spending.finished for spending in ledger.balance("patients").spendings]
    [True]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.is_file():
            raise LedgerError(f"{self.path}: no such ledger; make one with repsynth ledger init")
        with self._transaction():
            pass  # opening checks everything

    @classmethod
    def create(cls, path: str | Path) -> "Ledger":
        """Open a ledger, making the file where there is none."""
        path = Path(path)
        if not path.exists():
            try:
                path.touch(exist_ok=False)
            except OSError as error:
                raise LedgerError(f"{path}: cannot be made ({error.strerror})") from None
        return cls(path)

    def init(self, dataset: str, limit: Budget) -> None:
        """Give a dataset its total budget, once."""
        if not dataset.strip():
            raise LedgerError("a dataset needs a name; give one with --dataset")
        content = {
            "unit": UNIT,
            "neighbours": NEIGHBOURS,
            "mu": limit.mu,
            "delta": limit.delta,
            "who": _user(),
            "when": _now(),
        }
        with self._transaction() as connection:
            if dataset in _datasets(connection):
                raise LedgerError(f"{self.path}: '{dataset}' has its budget already; it is given once and for all")
            _append(connection, dataset, "init", "", content)

    def datasets(self) -> tuple[str, ...]:
        """The datasets that have a budget here."""
        with self._transaction() as connection:
            return tuple(_datasets(connection))

    def only_dataset(self) -> str:
        """The one dataset of a ledger that has one."""
        names = self.datasets()
        if len(names) != 1:
            raise LedgerError(f"{self.path}: holds {len(names)} datasets; say which with --dataset")
        return names[0]

    def balance(self, dataset: str) -> Balance:
        """What a dataset has spent and has left."""
        with self._transaction() as connection:
            return _balance(connection, dataset, self.path)

    def reserve(
        self, dataset: str, charges: Mapping[str, float], *, what: str, training: SampledEvent | None = None
    ) -> str:
        """Set the cost of a run aside before it opens the data; the run's name in the ledger.

        `charges` holds the μ of each measurement to come, `training` the rounds of training where there are
        any. Refused, with nothing written, where the total would be exceeded.
        """
        if not charges or not all(math.isfinite(mu) and mu > 0 for mu in charges.values()):
            raise LedgerError("a run's charges must be positive numbers; nothing was reserved")
        events: list[dict[str, Any]] = [{"kind": "gaussian", "name": n, "mu": mu} for n, mu in charges.items()]
        if training is not None:
            parts = {"rate": training.rate, "noise": training.noise, "rounds": training.rounds}
            events.append({"kind": "sampled", "name": training.name, **parts})
        loss = _loss(events, self.path)
        with self._transaction() as connection:
            balance = _balance(connection, dataset, self.path)
            if training is not None and balance.limit.delta < SMALLEST_DELTA:
                raise LedgerError(
                    f"{self.path}: the budget of '{dataset}' is kept at δ = {at_most(balance.limit.delta, 3)}; "
                    f"training is accounted for down to {SMALLEST_DELTA:g}; use another model"
                )
            if not balance.covers(loss):
                left = balance.epsilon(balance.remaining)
                raise LedgerError(
                    f"{self.path}: this run costs ε = {at_most(balance.epsilon(loss))}, and '{dataset}' has "
                    f"ε = {at_least(left)} left of {at_most(balance.limit.epsilon)} (all at δ = "
                    f"{at_most(balance.limit.delta, 3)}); "
                    f"the largest affordable is --epsilon {at_least(left)} "
                    f"--delta {at_least(balance.limit.delta, 6)}"
                )
            run = f"run-{len(balance.spendings) + 1}"
            content = {"events": events, "what": what, "who": _user(), "when": _now()}
            _append(connection, dataset, "reserve", run, content)
            return run

    def commit(self, dataset: str, run: str) -> None:
        """Note that a run came to its end."""
        with self._transaction() as connection:
            open_runs = [s.run for s in _balance(connection, dataset, self.path).spendings if not s.finished]
            if run not in open_runs:
                raise LedgerError(f"{self.path}: '{dataset}' has no open run of that name to commit")
            _append(connection, dataset, "commit", run, {"when": _now()})

    def holder(self, dataset: str, run: str) -> str | None:
        """The token of whoever claimed an open run last, empty where nobody did; None where it is not open."""
        with self._transaction() as connection:
            return self._holder(connection, dataset, run)

    def claim(self, dataset: str, run: str, *, token: str, after: str) -> None:
        """Go on with an open run, as the only one: refused where it was claimed again since the token `after`."""
        with self._transaction() as connection:
            if self._holder(connection, dataset, run) != after:
                raise LedgerError(
                    f"{self.path}: '{dataset}', {run}: it has gone on elsewhere; nothing was measured"
                )
            _append(connection, dataset, "claim", run, {"token": token, "when": _now()})

    def _holder(self, connection: sqlite3.Connection, dataset: str, run: str) -> str | None:
        spendings = _balance(connection, dataset, self.path).spendings
        if run not in [spending.run for spending in spendings if not spending.finished]:
            return None
        rows = connection.execute(
            "SELECT content FROM entry WHERE dataset = ? AND run = ? AND kind = 'claim' ORDER BY number",
            (dataset, run),
        ).fetchall()
        return str(json.loads(rows[-1][0])["token"]) if rows else ""

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the file from its first statement on, durable once it has ended. Each
        begins by checking the whole ledger: another process may have changed it since."""
        try:
            place = f"{self.path.absolute().as_uri()}?mode=rw"  # never make a file that is not there
            with closing(
                sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    _migrate(connection, self.path)
                    _verify(connection, self.path)
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
        except sqlite3.OperationalError as error:
            raise LedgerError(
                f"{self.path}: the ledger cannot be used ({error}); nothing was spent. "
                "Check that the file and its folder can be written to and the disk has room"
            ) from None
        except (sqlite3.Error, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise LedgerError(_damage(self.path, "it is not a ledger, or it is corrupted")) from None


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if version > VERSION:
        raise LedgerError(f"{path}: written by a newer version of repsynth; upgrade repsynth")
    if version > 0 and application != _APPLICATION:
        raise LedgerError(f"{path}: a database, but not a ledger of repsynth; check the path")
    if version == 0 and connection.execute("SELECT count(*) FROM sqlite_master").fetchone() != (0,):
        raise LedgerError(f"{path}: a database, but not a ledger of repsynth; check the path")
    for step in _MIGRATIONS[version:]:
        for statement in step.split(";"):
            connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {VERSION}")
    connection.execute(f"PRAGMA application_id = {_APPLICATION}")


def _verify(connection: sqlite3.Connection, path: Path) -> None:
    """Check the file and the chain of hashes from the first entry to the head."""
    if connection.execute("PRAGMA quick_check").fetchone() != ("ok",):
        raise LedgerError(_damage(path, "the database is corrupted"))
    found = connection.execute("SELECT type, name FROM sqlite_master ORDER BY name").fetchall()
    if found != [("table", "entry"), ("table", "head")]:
        raise LedgerError(_damage(path, "it holds tables or triggers that do not belong to it"))
    previous, expected = "", 1
    rows = connection.execute("SELECT number, dataset, kind, run, content, hash FROM entry ORDER BY number")
    for number, dataset, kind, run, content, kept in rows:
        if number != expected or kept != _hash(previous, number, dataset, kind, run, content):
            raise LedgerError(_damage(path, f"entry {expected} was changed or removed"))
        previous, expected = kept, expected + 1
    head = connection.execute("SELECT number, hash FROM head").fetchall()
    if head != ([(expected - 1, previous)] if expected > 1 else []):
        raise LedgerError(_damage(path, "its last entries were removed"))


def _append(connection: sqlite3.Connection, dataset: str, kind: str, run: str, content: dict[str, Any]) -> None:
    row = connection.execute("SELECT number, hash FROM entry ORDER BY number DESC LIMIT 1").fetchone()
    number, previous = (row[0] + 1, row[1]) if row else (1, "")
    text = json.dumps(content, sort_keys=True, allow_nan=False)
    entry = _hash(previous, number, dataset, kind, run, text)
    connection.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?)", (number, dataset, kind, run, text, entry))
    connection.execute("DELETE FROM head")
    connection.execute("INSERT INTO head VALUES (?, ?)", (number, entry))


def _hash(previous: str, number: int, dataset: str, kind: str, run: str, content: str) -> str:
    fields = json.dumps([previous, number, dataset, kind, run, content])
    return hashlib.sha256(fields.encode()).hexdigest()


def _datasets(connection: sqlite3.Connection) -> list[str]:
    rows = connection.execute("SELECT dataset FROM entry WHERE kind = 'init' ORDER BY number")
    return [name for (name,) in rows]


def _balance(connection: sqlite3.Connection, dataset: str, path: Path) -> Balance:
    rows = connection.execute(
        "SELECT kind, run, content FROM entry WHERE dataset = ? ORDER BY number", (dataset,)
    ).fetchall()
    if not rows:
        raise LedgerError(f"{path}: no budget for '{dataset}'; give it one with repsynth ledger init")
    start = json.loads(rows[0][2])
    finished = {run for kind, run, _ in rows if kind == "commit"}
    spendings = []
    for kind, run, content in rows:
        if kind == "reserve":
            entry = json.loads(content)
            loss = _loss(entry["events"], path)
            spendings.append(Spending(run, entry["who"], entry["what"], entry["when"], loss, run in finished))
    limit = Budget.gaussian(mu=start["mu"], delta=start["delta"])
    return Balance(dataset, start["unit"], start["neighbours"], limit, tuple(spendings))


def _loss(events: list[dict[str, Any]], path: Path) -> Loss:
    """What the events of a run cost a record of full weight."""
    mus, trainings = [], []
    for event in events:
        match event:
            case {"kind": "gaussian", "mu": mu}:
                mus.append(float(mu))
                numbers = [float(mu)]
            case {"kind": "sampled", "name": str(name), "rate": rate, "noise": noise, "rounds": rounds}:
                if not is_training(rate=rate, noise=noise, rounds=rounds):
                    raise LedgerError(_damage(path, "it holds a training that is out of range"))
                trainings.append(SampledEvent(name, 1.0, noise, rate, rounds))
                numbers = []
            case _:
                raise LedgerError(f"{path}: holds an event that this version cannot account for; upgrade repsynth")
        if not all(0 < number < math.inf for number in numbers):
            raise LedgerError(_damage(path, "it holds a charge that is no positive number"))
    return Loss(0.0, compose(mus), tuple(trainings))


def _damage(path: Path, detail: str) -> str:
    return f"{path}: {detail}; do not spend from it, restore a copy and find out what happened"


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
