"""What an attack finds: a claim, and the bound that the attack proves."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv, ndtri

from repsynth.arrays import Floats
from repsynth.privacy.gaussian import advantage, epsilon_of
from repsynth.privacy.loss import Loss

_SHOWN, _CERTAIN = 0.95, 1 - 1e-5
HOLDS, DOUBTFUL, BREACH = "holds", "breach at 95 %", "breach at 99.999 %"
"""What an attack says of a claim: not refuted; refuted at 95 % for all lines of an audit together, as a sound
mechanism is in one audit of twenty at most; refuted at 99.999 % by a line alone."""


@dataclass(frozen=True)
class Finding:
    """One attack on one record: the realised loss that is claimed, and what the attack proves at least.

    `lower_mu` is proven at 95 % for all lines of an audit together, `certain_mu` at 99.999 % by this line alone.
    `guaranteed_mu` is the loss guaranteed before the run, where all measurements are attacked together.
    """

    target: str
    attack: str
    measurement: str
    claimed_mu: float
    lower_mu: float
    certain_mu: float
    delta: float
    guaranteed_mu: float | None = None
    claim: Loss | None = None
    """Where a training is part of it: what is claimed of a record of full influence, in place of μ."""

    @property
    def exceeded(self) -> bool:
        return self._exceeds(self.certain_mu)

    @property
    def verdict(self) -> str:
        return BREACH if self.exceeded else DOUBTFUL if self._exceeds(self.lower_mu) else HOLDS

    def _exceeds(self, mu: float) -> bool:
        claim = min(self.claimed_mu, self.guaranteed_mu) if self.guaranteed_mu is not None else self.claimed_mu
        return mu > claim * (1 + 1e-9)

    @property
    def share_proven(self) -> float | None:
        """How much of the claimed μ is proven."""
        return self.lower_mu / self.claimed_mu if self.claimed_mu > 0 else None

    @property
    def claimed_epsilon(self) -> float:
        return self.claim.epsilon(self.delta) if self.claim else float(epsilon_of(self.claimed_mu, self.delta))

    @property
    def guaranteed_epsilon(self) -> float | None:
        if self.guaranteed_mu is None or self.claim is not None:
            return None
        return float(epsilon_of(self.guaranteed_mu, self.delta))

    @property
    def lower_epsilon(self) -> float:
        lower = max(self.lower_mu, 0.0)
        if self.claim is None:
            return float(epsilon_of(lower, self.delta))
        proven = float(advantage(lower))  # (ε, δ)-DP allows (e^ε − 1 + 2δ)/(e^ε + 1)
        return max(math.log((1 + proven - 2 * self.delta) / (1 - proven)), 0.0) if proven < 1 else math.inf


def claimed_mu(loss: Loss, influence: float = 1.0) -> float:
    """The μ whose largest advantage is that of a loss; its own, where it is Gaussian."""
    if not loss.trainings:
        return float(loss.mu_at(influence))
    return float(2 * ndtri((1 + loss.advantage_at(influence)) / 2))


def overall(findings: Iterable[Finding]) -> str:
    """The worst verdict of an audit."""
    found = {finding.verdict for finding in findings}
    return next((verdict for verdict in (BREACH, DOUBTFUL) if verdict in found), HOLDS)


def bounds_of(out: Floats, present: Floats, lines: int = 1) -> tuple[float, float]:
    """Lower bounds on μ at both confidences from the attacker's log ratios on both tables.

    The first one is for an audit of so many `lines`: each may fail with a chance of 5 % by their number
    (Bonferroni), so that all of them hold together with 95 %, however they depend on each other.
    """
    # Ties, as where the record contributes nothing, are coin flips.
    right = np.sum(present > 0) + np.sum(out < 0) + (np.sum(present == 0) + np.sum(out == 0)) / 2
    total = len(out) + len(present)

    def bound(confidence: float) -> float:
        # Clopper and Pearson: so many are right with a chance of 1 − confidence where each is with this one.
        least = float(betaincinv(int(right), total - int(right) + 1, 1 - confidence)) if right >= 1 else 0.0
        return max(2 * float(ndtri(least)), 0.0)

    return bound(1 - (1 - _SHOWN) / lines), bound(_CERTAIN)
