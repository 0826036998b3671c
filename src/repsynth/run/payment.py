"""Pay for a run from a ledger: reserve the cost before the data is opened, commit it when the run is done."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repsynth.errors import ConfigError, LedgerError
from repsynth.planning.plan import Plan
from repsynth.privacy.formatting import upper
from repsynth.privacy.ledger import Ledger


@dataclass(frozen=True)
class Payer:
    """A dataset's budget in a ledger."""

    ledger: Ledger
    dataset: str

    def reserve(self, plan: Plan) -> str:
        """Reserve the whole cost of a plan; return the name of the run in the ledger."""
        what = f"{plan.model.name}, {plan.rule.name} weights, ε = {upper(plan.budget.epsilon)}"
        what += f", persons by {plan.schema.person.column}" if plan.schema.person else ""
        what += f", scores from release {plan.borrowed.digest[:12]}" if plan.borrowed else ""
        charges = {name: charge.mu for name, charge in plan.charges.items()}
        return self.ledger.reserve(
            self.dataset,
            charges,
            what=what,
            training=plan.training,
            measured=plan.schema.measured,
            person=plan.schema.person,
        )


def open_payer(ledger: str | Path | Ledger | None, dataset: str | None) -> Payer | None:
    """Return the budget to spend from, checked to exist; None without a ledger."""
    if ledger is None:
        if dataset is not None:
            raise ConfigError("a dataset is the name of a budget in a ledger; name the ledger, too")
        return None
    opened = ledger if isinstance(ledger, Ledger) else Ledger(ledger)
    return Payer(opened, dataset if dataset is not None else opened.only_dataset())


@contextlib.contextmanager
def paid(payer: Payer | None, plan: Plan) -> Iterator[None]:
    """Reserve the cost of a run, and commit it at the end.

    A failure in between leaves the cost spent. So does a failed commit, which does not lose the release.
    """
    if payer is None:
        yield
        return
    run = payer.reserve(plan)
    yield
    with contextlib.suppress(LedgerError):
        payer.ledger.commit(payer.dataset, run)
