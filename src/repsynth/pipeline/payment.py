"""Whose budget pays for a run: set aside before the data is opened, closed when the run is done."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repsynth.data.layout import Layout
from repsynth.errors import ConfigError, LedgerError
from repsynth.pipeline.checkpoint import Checkpoint, Ticket, find
from repsynth.planning.plan import Plan
from repsynth.privacy.ledger import Ledger
from repsynth.privacy.shown import at_most


@dataclass(frozen=True)
class Payer:
    """A dataset's budget in a ledger."""

    ledger: Ledger
    dataset: str

    def reserve(self, plan: Plan) -> Ticket:
        """Set the whole cost of a plan aside."""
        what = f"{plan.model.name}, {plan.rule.name} weights, ε = {at_most(plan.budget.epsilon)}"
        what += f", persons by {plan.schema.person.column}" if plan.schema.person else ""
        what += f", scores from release {plan.borrowed.digest[:12]}" if plan.borrowed else ""
        charges = {name: charge.mu for name, charge in plan.charges.items()}
        run = self.ledger.reserve(
            self.dataset,
            charges,
            what=what,
            training=plan.training,
            measured=plan.schema.measured,
            person=plan.schema.person,
            one_row_per_person=plan.schema.one_row_per_person,
        )
        known = self.ledger.progress(self.dataset, run)
        assert known is not None
        return Ticket(self.dataset, run, known.entry)

    def close(self, ticket: Ticket) -> None:
        """Note that a run came to its end; if that fails, it counts as spent all the same, and the release is not
        lost."""
        with contextlib.suppress(LedgerError):
            if ticket.fits(self.ledger.progress(ticket.dataset, ticket.run)):  # never another one's run
                self.ledger.commit(ticket.dataset, ticket.run)


def open_payer(ledger: str | Path | Ledger | None, dataset: str | None) -> Payer | None:
    """The budget to spend from, checked to exist; None where no ledger is kept."""
    if ledger is None:
        if dataset is not None:
            raise ConfigError("a dataset's name means something in a ledger only; name the ledger, too")
        return None
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    return Payer(opened, dataset if dataset is not None else opened.only_dataset())


def open_checkpoint(folder: Path, plan: Plan, layout: Layout, payer: Payer | None) -> Checkpoint:
    """The checkpoint in a folder, if it may go on; a new one where there is none."""
    found = find(folder)
    if found is None:
        return Checkpoint(folder)
    return found.resumed(plan, layout, *((payer.ledger, payer.dataset) if payer else (None, None)))


@contextlib.contextmanager
def paid(payer: Payer | None, plan: Plan, kept: Checkpoint | None) -> Iterator[None]:
    """Set the cost of a run aside, unless its checkpoint shows that this was done, and close its entry at the end.
    Whatever goes wrong in between leaves the cost spent."""
    if payer is None:
        yield
        return
    ticket = kept.ticket if kept else None
    if ticket is None:  # also for a training that began unpaid: it is paid for now
        ticket = payer.reserve(plan)
        if kept is not None:
            kept.pay(ticket, payer.ledger)
    yield
    payer.close(ticket)
