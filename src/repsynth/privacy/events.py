"""What is planned and what happened: a charge before a measurement, an event after it.

Whether a record's part in a measurement is scaled by its weight is a property of the event. Where it is not,
every record pays in full.
"""

import math

import msgspec

MU_PER_ETA = math.sqrt(2 * math.pi) / 4 * (1 + 1e-15)
"""What one unit of η costs the exponential mechanism in μ."""

RATE_UNIT = 2**16
"""Sampling rates are whole multiples of one over this, so that two random bytes decide exactly."""


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A planned measurement: its μ, whether weights scale a record's part, and whether it is a choice."""

    name: str
    mu: float
    weighted: bool = False
    choice: bool = False


class GaussianEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="gaussian"):
    """What a Gaussian measurement did: one draw per cell at `sigma`, on a query of this L2 `sensitivity`."""

    name: str
    sensitivity: float
    sigma: float
    weighted: bool = False

    @property
    def mu(self) -> float:
        """Its charge in Gaussian DP, rounded up.

        >>> GaussianEvent("count", sensitivity=1.0, sigma=4.0).mu > 0.25
        True
        """
        return self.sensitivity / self.sigma * (1 + 1e-15)


class ExponentialEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="exponential"
):
    """What choices by the exponential mechanism did: `rounds` of them, each with probabilities proportional to
    exp(η/2 × utility), where one record moves every utility by at most 1."""

    name: str
    eta: float
    rounds: int
    weighted: bool = False

    @property
    def mu(self) -> float:
        """Its charge in Gaussian DP, rounded up: √(2π)/4 η for each round (docs/privacy.md has the proof).

        >>> round(ExponentialEvent("choice", eta=1.0, rounds=1).mu, 4)
        0.6267
        """
        return MU_PER_ETA * self.eta * math.sqrt(self.rounds) * (1 + 1e-15)


class SampledEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="sampled"):
    """What rounds of training did: in each of `rounds`, every record takes part with probability `rate`, and the
    sum over those that do, a query of this L2 `sensitivity`, gets noise of `sigma`."""

    name: str
    sensitivity: float
    sigma: float
    rate: float
    rounds: int
    weighted: bool = False

    @property
    def noise(self) -> float:
        """The noise multiplier, rounded down.

        >>> SampledEvent("gradients", sensitivity=2.0, sigma=9.0, rate=0.05, rounds=300).noise < 4.5
        True
        """
        return self.sigma / self.sensitivity * (1 - 1e-15)


Event = GaussianEvent | ExponentialEvent | SampledEvent
