"""What is left of a dataset's budget, and whether one more run fits: the arithmetic of the ledger.

Runs are composed exactly where that holds whatever a run's settings were chosen by, and by their bounds
elsewhere (see `bound`).
"""

import math
from dataclasses import dataclass
from functools import cached_property

from repsynth.privacy.bound import Bound, bound_training, room_in
from repsynth.privacy.budget import Budget
from repsynth.privacy.gaussian import compose, epsilon_of
from repsynth.privacy.loss import Loss
from repsynth.privacy.shown import at_least, at_most

# The μ that an ε allows has a billionth taken off, proven to be affordable: a tenth of it is for the last digits
# of sums that make up the whole. A limit that was given as μ or ρ is kept to that.
_ROUNDING = 1e-10


@dataclass(frozen=True)
class Spending:
    """One run in the ledger; `finished` is False for one that never committed, which counts all the same."""

    run: str
    who: str
    what: str
    when: str
    loss: Loss
    bound: Bound
    """What it counts for beside other runs."""
    finished: bool


@dataclass(frozen=True)
class Balance:
    """The state of one dataset's budget."""

    dataset: str
    unit: str
    neighbours: str
    limit: Budget
    spendings: tuple[Spending, ...]

    @cached_property
    def room(self) -> Bound:
        """What the bounds of several runs may add up to."""
        return room_in(self.limit)

    @property
    def spent(self) -> Loss:
        """All runs together, finished or not."""
        return Loss.together(spending.loss for spending in self.spendings)

    @property
    def spent_bound(self) -> Bound:
        """What all runs count for together."""
        return Bound.together(spending.bound for spending in self.spendings)

    @property
    def spent_epsilon(self) -> float:
        """The ε of all runs at the limit's δ: exact for one run and for runs without training, else by bounds."""
        spent = self.spent
        if spent.mu is not None or len(self.spendings) == 1:
            return self.epsilon(spent)
        return float(epsilon_of(self.spent_bound.mu, self.limit.delta - self.room.failure))

    @property
    def remaining(self) -> Loss:
        """The most that one more run without training may cost."""
        if not self.spendings:
            return Loss(0.0, self.limit.mu)
        return Loss(0.0, math.sqrt(max(self.room.mu**2 - self.spent_bound.mu**2, 0.0)))

    @property
    def share_spent(self) -> float:
        """How much of the limit is spent, as a share of its μ²."""
        return self.share(self.spent_bound)

    @property
    def exceeded(self) -> bool:
        """Whether more is spent than the limit allows, which an earlier version may have let happen."""
        if self.spent.mu is not None or len(self.spendings) == 1:
            return not self._allows(self.spent)
        return not self._holds(self.spent_bound)

    def share(self, bound: Bound) -> float:
        """What something counts for as a share of the limit's μ²; all of it where nothing would fit beside it."""
        return min((bound.mu / self.room.mu) ** 2, 1.0) if self._holds(bound) else 1.0

    def bound(self, loss: Loss) -> Bound:
        """What a loss counts for beside other runs."""
        gaussian = Bound(compose([loss.floor_mu, loss.weighted_mu]), loss.failure)
        return Bound.together([gaussian, *(bound_training(each, self.room) for each in loss.trainings)])

    def covers(self, loss: Loss) -> bool:
        """Whether so much more fits. The first run depends on nothing that was released, so it fits by its own
        account, too; after one that fits by that alone, nothing else does."""
        if not self.spendings and self._allows(loss):
            return True
        return self._holds(Bound.together([self.spent_bound, self.bound(loss)]))

    def refusal(self, loss: Loss) -> str:
        """Why a run does not fit, and what would."""
        limit = self.limit
        if self.exceeded:
            return (
                f"'{self.dataset}' has spent ε = {at_most(self.spent_epsilon)} of {at_most(limit.epsilon)} at "
                f"δ = {at_most(limit.delta, 3)}, more than its limit; it takes no further run"
            )
        if (
            loss.failure
            and self.spendings
            and self.spent_bound.failure + self.bound(loss).failure > self.room.failure
        ):
            return (
                f"the chance that this run fails with, {at_most(self.bound(loss).failure, 3)}, does not fit into "
                f"what '{self.dataset}' has set apart for such chances, a hundredth of its δ = "
                f"{at_most(limit.delta, 3)}; measure the schema with a smaller --delta"
            )
        left = self.epsilon(self.remaining)
        trained = ", and slightly less with training" if loss.trainings else ""
        return (
            f"this run costs ε = {at_most(self.epsilon(loss))}, and '{self.dataset}' has ε = {at_least(left)} "
            f"left of {at_most(limit.epsilon)} (all at δ = {at_most(limit.delta, 3)}); the largest affordable is "
            f"--epsilon {at_least(left)} --delta {at_least(limit.delta, 6)}{trained}"
        )

    def epsilon(self, loss: Loss) -> float:
        """The ε of a loss at the limit's δ."""
        return loss.epsilon(self.limit.delta)

    def _allows(self, loss: Loss) -> bool:
        """Whether a loss that depends on nothing else is within the limit."""
        if loss.mu is not None:
            return loss.mu <= self.limit.mu * (1 + _ROUNDING)
        return self.epsilon(loss) <= self.limit.epsilon

    def _holds(self, bound: Bound) -> bool:
        """Whether there is room for a bound."""
        rounded = 1 + _ROUNDING
        return bound.mu <= self.room.mu * rounded and bound.failure <= self.room.failure * rounded
