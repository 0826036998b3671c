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
    rows: int = 1
    """How many rows of a person count: the μ is what a person pays for all of them."""

    @property
    def per_row(self) -> float:
        """What a single row pays: noise is as large as if each row were a person and paid this.

        >>> Charge("count", mu=0.6, rows=2).per_row
        0.3
        """
        return self.mu / self.rows


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

    def of_a_row(self, rows: int) -> "SampledEvent":
        """The same rounds, as they are for a single one of so many rows of a person that count."""
        return msgspec.structs.replace(self, sensitivity=self.sensitivity / rows)


class SelectionEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="selection"):
    """What a selection of values did: each value that occurs has its count released, with noise of `sigma`, where
    that reaches `threshold`. A record adds one to one value in each of `columns`.

    Which values occur shows only through those released. One that a single record holds is released with a chance
    that is part of `failure`; all others are a Gaussian measurement.
    """

    name: str
    columns: int
    sigma: float
    threshold: int
    weighted: bool = False

    @property
    def mu(self) -> float:
        """What the noisy counts of values that others hold, too, cost in Gaussian DP; rounded up.

        >>> SelectionEvent("values", columns=4, sigma=20.0, threshold=200).mu > 0.1
        True
        """
        return math.sqrt(self.columns) / self.sigma * (1 + 1e-15)

    @property
    def failure(self) -> float:
        """The chance, at most, that some value is released which one record alone holds; rounded up.

        Noise is rounded to whole numbers, so a count of 1 reaches the threshold from half a unit before it on.

        >>> 1e-9 < SelectionEvent("values", columns=4, sigma=20.0, threshold=120).failure < 1e-8
        True
        """
        from scipy.special import ndtr  # the command line starts without it

        alone = float(ndtr((1.5 - self.threshold) / self.sigma)) * (1 + 1e-9)
        return min(self.columns * alone, 1.0)


Event = GaussianEvent | ExponentialEvent | SampledEvent
"""What happens in a run; a `SelectionEvent` happens before one, when a schema is measured."""
