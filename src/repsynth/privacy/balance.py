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
    after_schema: bool = False
    """Whether it pays for a schema that was measured before: its settings may depend on that."""


@dataclass(frozen=True)
class Balance:
    """The state of one dataset's budget."""

    dataset: str
    unit: str | None
    """Who is protected by all runs; None where there is none yet."""
    neighbours: str | None
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
        return self.epsilon(self.spent) if self._exact else self._epsilon_of(self.spent_bound)

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
        """Whether more is spent than the limit allows. The ledger reserves no such run."""
        return not (self._allows(self.spent) if self._exact else self._holds(self.spent_bound))

    @property
    def _exact(self) -> bool:
        """Whether the composed account of all runs holds, whatever their settings depend on."""
        alone = len(self.spendings) == 1 and not self.spendings[0].after_schema
        return alone or self.spent.mu is not None

    def share(self, bound: Bound) -> float:
        """What something counts for as a share of the limit's μ²; all of it where nothing would fit beside it."""
        return min((bound.mu / self.room.mu) ** 2, 1.0) if self._holds(bound) else 1.0

    def bound(self, loss: Loss) -> Bound:
        """What a loss counts for beside other runs."""
        gaussian = Bound(compose([loss.floor_mu, loss.weighted_mu]), loss.failure)
        return Bound.together([gaussian, *(bound_training(each, self.room) for each in loss.trainings)])

    def covers(self, loss: Loss, *, after_schema: bool = False) -> bool:
        """Return whether a run fits.

        The first run depends on nothing that was released, so it also fits by its own account. After one that fits
        by that alone, nothing else does. A run that pays for a schema may have been chosen by what the schema
        shows, so it never counts as the first.
        """
        if not self.spendings and not after_schema and self._allows(loss):
            return True
        return self._holds(Bound.together([self.spent_bound, self.bound(loss)]))

    def refusal(self, loss: Loss, schema: Loss | None = None) -> str:
        """Why a run does not fit, and what would. `schema` is the part of the loss that is the schema's."""
        limit = self.limit
        if self.exceeded:
            return (
                f"'{self.dataset}' has spent ε = {at_most(self.spent_epsilon)} of {at_most(limit.epsilon)} at "
                f"δ = {at_most(limit.delta, 3)}, more than its limit; it takes no further run"
            )
        beside_others = self.spendings or schema is not None
        if loss.failure and beside_others and self.spent_bound.failure + loss.failure > self.room.failure:
            return (
                f"the chance that this run fails with, {at_most(loss.failure, 3)}, does not fit into "
                f"what '{self.dataset}' has set apart for such chances, a hundredth of its δ = "
                f"{at_most(limit.delta, 3)}; measure the schema with a smaller --delta"
            )
        what, cost = "this run costs", self.epsilon(loss)
        left = affordable = self.remaining
        if schema is not None:
            what, cost = "this run and the schema that it pays for cost", self._epsilon_of(self.bound(loss))
            paid = Bound.together([self.spent_bound, self.bound(schema)])
            affordable = Loss(0.0, math.sqrt(max(self.room.mu**2 - paid.mu**2, 0.0)))
        trained = ", and slightly less with training" if loss.trainings else ""
        return (
            f"{what} ε = {at_most(cost)}, and '{self.dataset}' has ε = {at_least(self.epsilon(left))} left of "
            f"{at_most(limit.epsilon)} (all at δ = {at_most(limit.delta, 3)}); the largest affordable is "
            f"--epsilon {at_least(self.epsilon(affordable))} --delta {at_least(limit.delta, 6)}{trained}"
        )

    def epsilon_alone(self, spending: Spending) -> float:
        """The ε of one run at the limit's δ."""
        return self._epsilon_of(spending.bound) if spending.after_schema else self.epsilon(spending.loss)

    def epsilon(self, loss: Loss) -> float:
        """The ε of a loss at the limit's δ."""
        return loss.epsilon(self.limit.delta)

    def _epsilon_of(self, bound: Bound) -> float:
        return float(epsilon_of(bound.mu, self.limit.delta - self.room.failure))

    def _allows(self, loss: Loss) -> bool:
        """Whether a loss that depends on nothing else is within the limit."""
        if loss.mu is not None:
            return loss.mu <= self.limit.mu * (1 + _ROUNDING)
        return self.epsilon(loss) <= self.limit.epsilon

    def _holds(self, bound: Bound) -> bool:
        """Whether there is room for a bound."""
        rounded = 1 + _ROUNDING
        return bound.mu <= self.room.mu * rounded and bound.failure <= self.room.failure * rounded
