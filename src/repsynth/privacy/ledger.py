"""The budget ledger: the privacy budget of datasets and the runs that spent it, in one SQLite file.

A dataset gets its limit once. A run *reserves* its whole cost before it opens the data and *commits* when it is
done. A reservation without a commit (a crash, a kill, a power cut) counts as spent. Entries are only added. Each
has a hash over itself and its predecessor, so that edited and removed entries are detected. Costs are stored as
events. They are composed exactly if the settings of the runs cannot matter, and by bounds otherwise, as a privacy
filter does (see `adaptive_filter`).
"""

import getpass
import hashlib
import json
import math
import os
import sqlite3
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from repsynth.errors import LedgerError, has_controls, shown
from repsynth.privacy.adaptive_filter import Bound, bound_training, room_in
from repsynth.privacy.budget import Budget
from repsynth.privacy.events import SampledEvent
from repsynth.privacy.formatting import lower, upper
from repsynth.privacy.gaussian import compose, epsilon_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.pld import SMALLEST_DELTA, is_training
from repsynth.privacy.unit import COLLISION, neighbours_of, unit_of
from repsynth.schema import Measured, Person, Schema

VERSION = 4
_SCHEMA = "schema"
"""The name of the event that charges a run for a measured schema."""

_BUSY_SECONDS = 60.0
_APPLICATION = 0x52455053
_TABLES = (
    """
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY,
        dataset TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('init', 'reserve', 'commit')),
        run TEXT NOT NULL,
        content TEXT NOT NULL,
        hash TEXT NOT NULL
    ) STRICT
    """,
    "CREATE TABLE head (number INTEGER NOT NULL, hash TEXT NOT NULL) STRICT",
    f"PRAGMA user_version = {VERSION}",
    f"PRAGMA application_id = {_APPLICATION}",
)

# Tolerance for rounding in sums of charges. `mu_of` rounds down by ten times as much, so ε is never exceeded. A
# limit that was given as μ or ρ is kept to this tolerance.
_ROUNDING = 1e-10
# Fillers, joiners and variation selectors: letters or marks in Unicode, but invisible.
_UNSEEN = frozenset(
    map(chr, [0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2800, *range(0xFE00, 0xFE10)])
)


@dataclass(frozen=True)
class Spending:
    """A run in the ledger. It counts as spent whether or not it has committed (`finished`)."""

    run: str
    who: str
    what: str
    when: str
    loss: Loss
    bound: Bound
    """The bound that is composed with other runs."""
    finished: bool
    after_schema: bool = False
    """Whether the run is charged for a measured schema. Its settings may depend on that schema."""


@dataclass(frozen=True)
class Balance:
    """The limit of one dataset and the runs that spent from it."""

    dataset: str
    unit: str | None
    """The unit of privacy of all runs; None before the first run."""
    neighbours: str | None
    limit: Budget
    spendings: tuple[Spending, ...]

    @property
    def room(self) -> Bound:
        """The limit for the bounds of several runs."""
        return room_in(self.limit)

    @property
    def spent(self) -> Loss:
        """The loss of all runs, finished or not."""
        return Loss.together(spending.loss for spending in self.spendings)

    @property
    def spent_bound(self) -> Bound:
        """The bound of all runs."""
        return Bound.together(spending.bound for spending in self.spendings)

    @property
    def spent_epsilon(self) -> float:
        """The ε of all runs at the limit's δ: exact for one run and for runs without training, else by bounds."""
        return self.epsilon(self.spent) if self._exact else self._epsilon_of(self.spent_bound)

    @property
    def remaining(self) -> Loss:
        """The most that one more run without training may cost."""
        return self._beside(self.spent_bound) if self.spendings else Loss(0.0, self.limit.mu)

    def _beside(self, bound: Bound) -> Loss:
        return Loss(0.0, math.sqrt(max(self.room.mu**2 - bound.mu**2, 0.0)))

    @property
    def share_spent(self) -> float:
        """The part of the limit's μ² that is spent."""
        return self.share(self.spent_bound)

    @property
    def exceeded(self) -> bool:
        """Whether more is spent than the limit allows. The ledger reserves no such run."""
        return not (self._allows(self.spent) if self._exact else self._holds(self.spent_bound))

    @property
    def _exact(self) -> bool:
        """Whether exact composition holds, even if settings depended on earlier releases."""
        alone = len(self.spendings) == 1 and not self.spendings[0].after_schema
        return alone or self.spent.mu is not None

    def share(self, bound: Bound) -> float:
        """Return the part of the limit's μ² that a bound uses; 1 if it does not fit."""
        return min((bound.mu / self.room.mu) ** 2, 1.0) if self._holds(bound) else 1.0

    def bound(self, loss: Loss) -> Bound:
        """Return the bound of a loss."""
        gaussian = Bound(compose([loss.floor_mu, loss.weighted_mu]), loss.failure)
        return Bound.together([gaussian, *(bound_training(each, self.room) for each in loss.trainings)])

    def covers(self, loss: Loss, *, after_schema: bool = False) -> bool:
        """Return whether a run fits.

        The settings of the first run depend on no release, so its exact loss may decide. It may then leave no room
        for another run. The settings of a run that is charged for a schema may depend on the schema, so such a run
        is never treated as the first.
        """
        if not self.spendings and not after_schema and self._allows(loss):
            return True
        return self._holds(Bound.together([self.spent_bound, self.bound(loss)]))

    def refusal(self, loss: Loss, schema: Loss | None = None) -> str:
        """Return why a run does not fit, and the largest that would. `schema` is the schema's part of the loss."""
        limit = self.limit
        if self.exceeded:
            return (
                f"'{self.dataset}' has spent ε = {upper(self.spent_epsilon)} of {upper(limit.epsilon)} at "
                f"δ = {upper(limit.delta, 3)}, more than its limit; it takes no further run"
            )
        beside_others = self.spendings or schema is not None
        if loss.failure and beside_others and self.spent_bound.failure + loss.failure > self.room.failure:
            return (
                f"the failure probability of this run, {upper(loss.failure, 3)}, does not fit into "
                f"the part that '{self.dataset}' reserves for failures, a hundredth of its δ = "
                f"{upper(limit.delta, 3)}; measure the schema with a smaller --delta"
            )
        what, cost = "this run costs", self.epsilon(loss)
        left = affordable = self.remaining
        if schema is not None:
            what, cost = "this run and its measured schema cost", self._epsilon_of(self.bound(loss))
            affordable = self._beside(Bound.together([self.spent_bound, self.bound(schema)]))
        trained = ", and slightly less with training" if loss.trainings else ""
        return (
            f"{what} ε = {upper(cost)}, and '{self.dataset}' has ε = {lower(self.epsilon(left))} left of "
            f"{upper(limit.epsilon)} (all at δ = {upper(limit.delta, 3)}); the largest affordable is "
            f"--epsilon {lower(self.epsilon(affordable))} --delta {lower(limit.delta, 6)}{trained}"
        )

    def epsilon_alone(self, spending: Spending) -> float:
        """Return the ε of one run at the limit's δ."""
        return self._epsilon_of(spending.bound) if spending.after_schema else self.epsilon(spending.loss)

    def epsilon(self, loss: Loss) -> float:
        """Return the ε of a loss at the limit's δ."""
        return loss.epsilon(self.limit.delta)

    def _epsilon_of(self, bound: Bound) -> float:
        return float(epsilon_of(bound.mu, self.limit.delta - self.room.failure))

    def _allows(self, loss: Loss) -> bool:
        """Return whether the exact loss of a first run is within the limit."""
        if loss.mu is not None:
            return loss.mu <= self.limit.mu * (1 + _ROUNDING)
        return self.epsilon(loss) <= self.limit.epsilon

    def _holds(self, bound: Bound) -> bool:
        """Return whether a bound is within the limit."""
        rounded = 1 + _ROUNDING
        return bound.mu <= self.room.mu * rounded and bound.failure <= self.room.failure * rounded


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
        if not os.path.isfile(self.path):
            raise LedgerError(f"{shown(self.path)}: no such ledger; make one with repsynth ledger init")
        with self._transaction():
            pass  # opening checks everything

    @classmethod
    def create(cls, path: str | Path) -> "Ledger":
        """Open a ledger; create the file if it does not exist."""
        path = Path(path)
        if not os.path.exists(path):
            try:
                path.touch(exist_ok=False)
            except OSError as error:
                raise LedgerError(f"{shown(path)}: cannot be made ({error.strerror})") from None
        return cls(path)

    def init(self, dataset: str, limit: Budget) -> None:
        """Give a dataset its total budget, once. Names are compared without case and extra spaces."""
        name = " ".join(dataset.split())
        if not folded(name) or not name.isprintable():
            raise LedgerError("a dataset needs a name of visible characters; give one with --dataset")
        content = {"mu": limit.mu, "delta": limit.delta, "who": _user(), "when": _now()}
        with self._transaction() as connection:
            for other in _datasets(connection):
                if same_name(name, other):
                    raise LedgerError(
                        f"{self.path}: '{other}' has its budget already, and a budget cannot be changed"
                    )
            _append(connection, name, "init", "", content)

    def datasets(self) -> tuple[str, ...]:
        """Return the names of the datasets."""
        with self._transaction() as connection:
            return tuple(_datasets(connection))

    def only_dataset(self) -> str:
        """Return the name of the only dataset; refuse if there are several."""
        names = self.datasets()
        if len(names) != 1:
            raise LedgerError(f"{self.path}: holds {len(names)} datasets; choose one with --dataset")
        return names[0]

    def balance(self, dataset: str) -> Balance:
        """Return what a dataset has spent and has left."""
        with self._transaction() as connection:
            return _balance(connection, _find(connection, dataset, self.path), self.path)

    def reserve(
        self,
        dataset: str,
        charges: Mapping[str, float],
        *,
        what: str,
        training: SampledEvent | None = None,
        measured: Measured | None = None,
        person: Person | None = None,
    ) -> str:
        """Reserve the cost of a run before it opens the data; return the name of the run.

        `charges` has the μ of each planned measurement, `training` the planned rounds of training. The first run
        with a `measured` schema is also charged for that schema. Its bound decides whether it fits, because its
        settings may depend on the schema. All runs of a dataset must have the same unit of privacy: the persons
        of one id column or, without `person`, persons with one row each. A run that does not fit is refused, and
        nothing is written.
        """
        if not (charges or measured) or not all(math.isfinite(mu) and mu > 0 for mu in charges.values()):
            raise LedgerError("a run's charges must be positive numbers; nothing was reserved")
        events: list[dict[str, Any]] = [{"kind": "gaussian", "name": n, "mu": mu} for n, mu in charges.items()]
        rounds: dict[str, Any] = {}
        if training is not None:
            parts = {"rate": training.rate, "noise": training.noise, "rounds": training.rounds}
            rounds = {"kind": "sampled", "name": training.name, **parts}
            events.append(rounds)
        with self._transaction() as connection:
            name = _find(connection, dataset, self.path)
            schema = None
            if measured is not None and measured.mark not in _schemas(connection, name):
                events.append({"kind": "gaussian", "name": _SCHEMA, "mu": measured.mu})
                events.append({"kind": "failure", "failure": measured.failure})
                schema = Loss.of_measured(measured) if charges or training else None
            if person is not None:
                events.append({"kind": "failure", "failure": COLLISION})
            _refuse_other_units(connection, name, person, self.path)
            loss = _loss(events, self.path)
            balance = _balance(connection, name, self.path)
            if training is not None and balance.limit.delta < SMALLEST_DELTA:
                raise LedgerError(
                    f"{self.path}: the budget of '{name}' is kept at δ = {upper(balance.limit.delta, 3)}; "
                    f"training is accounted for down to {SMALLEST_DELTA:g}; use another model"
                )
            if not balance.covers(loss, after_schema=schema is not None):
                raise LedgerError(f"{self.path}: {balance.refusal(loss, schema)}")
            run = f"run-{len(balance.spendings) + 1}"
            for each in loss.trainings:
                rounds["bound"] = asdict(bound_training(each, balance.room))
            content = {
                "events": events,
                "what": what,
                "who": _user(),
                "when": _now(),
                **({} if measured is None else {"schema": measured.mark}),
                **({} if person is None else {"person": person.column}),
            }
            _append(connection, name, "reserve", run, content)
            return run

    def commit(self, dataset: str, run: str) -> None:
        """Mark a run as finished."""
        with self._transaction() as connection:
            name = _find(connection, dataset, self.path)
            rows = connection.execute("SELECT kind FROM entry WHERE dataset = ? AND run = ?", (name, run))
            if {kind for (kind,) in rows} != {"reserve"}:
                raise LedgerError(f"{self.path}: '{name}' has no open run of that name to commit")
            _append(connection, name, "commit", run, {"when": _now()})

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Open an exclusive, durable transaction.

        It begins by checking the whole ledger, because another process may have changed the file.
        """
        try:
            place = f"{self.path.absolute().as_uri()}?mode=rw"  # never create a file
            with closing(
                sqlite3.connect(place, uri=True, timeout=_BUSY_SECONDS, isolation_level=None)
            ) as connection:
                connection.execute("PRAGMA synchronous = EXTRA")
                connection.execute("BEGIN IMMEDIATE")
                try:
                    _begin(connection, self.path)
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


def _begin(connection: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file. Refuse other databases, and ledgers of another version."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    if (version, application, empty) == (0, 0, True):
        for statement in _TABLES:
            connection.execute(statement)
    elif application != _APPLICATION:
        raise LedgerError(f"{path}: a database, but not a ledger of repsynth; check the path")
    elif version != VERSION:
        raise LedgerError(
            f"{path}: written by another version of repsynth (format {version}); this one reads format {VERSION}: "
            "begin another ledger, in another file, with a budget that leaves room for what this one has spent"
        )


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
        if has_controls(dataset, kind, run, json.loads(content)):
            raise LedgerError(_damage(path, f"entry {expected} has a control character"))
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


def _reserved(connection: sqlite3.Connection, dataset: str) -> list[dict[str, Any]]:
    rows = connection.execute("SELECT content FROM entry WHERE dataset = ? AND kind = 'reserve'", (dataset,))
    return [json.loads(content) for (content,) in rows]


def _refuse_other_units(connection: sqlite3.Connection, dataset: str, person: Person | None, path: Path) -> None:
    """Refuse runs with different units of privacy: a total over both would hold for neither."""
    column = None if person is None else person.column
    if any(entry.get("person") != column for entry in _reserved(connection, dataset)):
        unit = "single rows" if column is None else f"the persons of '{column}'"
        raise LedgerError(
            f"{path}: the earlier runs of '{dataset}' do not protect {unit}; a total over both would hold for "
            "neither: use the same [person] column as they do, or give it another dataset"
        )


def _schemas(connection: sqlite3.Connection, dataset: str) -> set[str]:
    """Return the marks of the measured schemas that a dataset has paid for."""
    return {str(entry["schema"]) for entry in _reserved(connection, dataset) if "schema" in entry}


def _find(connection: sqlite3.Connection, dataset: str, path: Path) -> str:
    """Return a dataset's name as it is written in the ledger."""
    names = [name for name in _datasets(connection) if same_name(name, dataset)]
    if not names:
        raise LedgerError(f"{path}: no budget for '{shown(dataset)}'; give it one with repsynth ledger init")
    return names[0]


def _balance(connection: sqlite3.Connection, dataset: str, path: Path) -> Balance:
    rows = connection.execute(
        "SELECT kind, run, content FROM entry WHERE dataset = ? ORDER BY number", (dataset,)
    ).fetchall()
    start = json.loads(rows[0][2])
    limit = Budget.gaussian(mu=start["mu"], delta=start["delta"])
    balance = Balance(dataset, None, None, limit, ())
    finished = {run for kind, run, _ in rows if kind == "commit"}
    spendings, columns = [], set()
    for kind, run, content in rows:
        if kind == "reserve":
            entry = json.loads(content)
            loss = _loss(entry["events"], path)
            bound = _bound(entry["events"], loss, balance, path)
            measured = {event["name"] for event in entry["events"] if "name" in event}
            after_schema = _SCHEMA in measured and measured != {_SCHEMA}
            who = (entry["who"], entry["what"], entry["when"])
            spendings.append(Spending(run, *who, loss, bound, run in finished, after_schema))
            columns.add(entry.get("person"))
    if not columns:
        return balance
    if len(columns) > 1:
        raise LedgerError(_damage(path, "its runs protect different persons"))
    (column,) = columns
    schema = Schema(columns=(), person=None if column is None else Person(column=str(column), rows=1))
    return replace(balance, unit=unit_of(schema), neighbours=neighbours_of(schema), spendings=tuple(spendings))


def _bound(events: list[dict[str, Any]], loss: Loss, balance: Balance, path: Path) -> Bound:
    """Return the bound of the events of a run."""
    noted = [event["bound"] for event in events if "bound" in event]
    if len(noted) != len(loss.trainings):
        raise LedgerError(_damage(path, "it holds a training without its bound"))
    bounds = [Bound(float(each["mu"]), float(each["failure"])) for each in noted]
    if not all(0 < each.mu < math.inf and 0 <= each.failure <= 1 for each in bounds):
        raise LedgerError(_damage(path, "it holds a bound that is out of range"))
    return Bound.together([balance.bound(replace(loss, trainings=())), *bounds])


def _loss(events: list[dict[str, Any]], path: Path) -> Loss:
    """Return the loss of the events of a run for a record of weight 1."""
    mus, trainings, failures = [], [], [0.0]
    for event in events:
        match event:
            case {"kind": "gaussian", "mu": mu}:
                mus.append(float(mu))
                numbers = [float(mu)]
            case {"kind": "failure", "failure": failure}:
                failures.append(float(failure))
                numbers = [float(failure)]
            case {"kind": "sampled", "name": str(name), "rate": rate, "noise": noise, "rounds": rounds}:
                if not is_training(rate=rate, noise=noise, rounds=rounds):
                    raise LedgerError(_damage(path, "it holds a training that is out of range"))
                trainings.append(SampledEvent(name, 1.0, noise, rate, rounds))
                numbers = []
            case _:
                raise LedgerError(f"{path}: holds an event that this version cannot account for; upgrade repsynth")
        if not all(0 < number < math.inf for number in numbers):
            raise LedgerError(_damage(path, "it holds a charge that is no positive number"))
    return Loss(0.0, compose(mus), tuple(trainings), math.fsum(failures) * (1 + 1e-15))


def _damage(path: Path, detail: str) -> str:
    return f"{path}: {detail}; do not spend from it, restore a copy and find out what happened"


def same_name(one: str, other: str) -> bool:
    """Return whether two names are equal except for spaces, case and Unicode forms.

    >>> same_name("Patients ", "patients"), same_name("patients", "patients 2")
    (True, False)
    """
    return folded(one) == folded(other)


def folded(name: str) -> str:
    """Return a normalised name, without invisible characters."""
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
    return " ".join("".join(filter(_is_seen, plain)).split())


def _is_seen(character: str) -> bool:
    unseen = character in _UNSEEN or 0xE0100 <= ord(character) <= 0xE01EF
    return not unseen and unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
