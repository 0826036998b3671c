"""Whose budget pays for a run: set aside before the data is opened, closed when the run is done."""

import contextlib
from dataclasses import dataclass
from pathlib import Path

from repsynth.errors import ConfigError, LedgerError
from repsynth.pipeline.checkpoint import Ticket
from repsynth.planning.plan import Plan
from repsynth.privacy.ledger import Ledger


@dataclass(frozen=True)
class Payer:
    """A dataset's budget in a ledger."""

    ledger: Ledger
    dataset: str

    def reserve(self, plan: Plan) -> Ticket:
        """Set the whole cost of a plan aside."""
        what = f"{plan.model.name}, {plan.rule.name} weights, ε = {plan.budget.epsilon:.4g}"
        charges = {name: charge.mu for name, charge in plan.charges.items()}
        return Ticket(self.dataset, self.ledger.reserve(self.dataset, charges, what=what, training=plan.training))

    def close(self, ticket: Ticket) -> None:
        """Note that a run came to its end; if that fails, it counts as spent all the same, and the release is not
        lost."""
        with contextlib.suppress(LedgerError):
            if self.ledger.holder(ticket.dataset, ticket.run) == ticket.token:  # never another one's run
                self.ledger.commit(ticket.dataset, ticket.run)


def open_payer(ledger: str | Path | Ledger | None, dataset: str | None) -> Payer | None:
    """The budget to spend from, checked to exist; None where no ledger is kept."""
    if ledger is None:
        if dataset is not None:
            raise ConfigError("a dataset's name means something in a ledger only; name the ledger, too")
        return None
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    return Payer(opened, dataset if dataset is not None else opened.only_dataset())
