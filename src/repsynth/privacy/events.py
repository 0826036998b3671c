"""Charges, which plan a measurement, and events, which record it.

`weighted` says whether weights scale a record's contribution. If not, the event costs every record its full
charge.
"""

import math
from functools import cached_property

import msgspec

MU_PER_ETA = math.sqrt(2 * math.pi) / 4 * (1 + 1e-15)
"""The μ of the exponential mechanism for each unit of η."""

RATE_UNIT = 2**16
"""Sampling rates are multiples of the inverse, so that two random bytes decide exactly."""


class Charge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A planned measurement: its μ, whether weights scale contributions, and whether it is a choice."""

    name: str
    mu: float
    weighted: bool = False
    choice: bool = False
    rows: int = 1
    """The contribution bound: μ is the loss of a person with this many rows."""

    @cached_property
    def per_row(self) -> float:
        """The μ of a single row. It determines the noise.

        >>> Charge("count", mu=0.6, rows=2).per_row
        0.3
        """
        return self.mu / self.rows


class GaussianEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, tag_field="kind", tag="gaussian"
):
    """A Gaussian measurement: independent noise of `sigma` on each cell of a query of L2 `sensitivity`."""

    name: str
    sensitivity: float
    sigma: float
    weighted: bool = False

    @cached_property
    def mu(self) -> float:
        """The loss in Gaussian DP, rounded up.

        >>> GaussianEvent("count", sensitivity=1.0, sigma=4.0).mu > 0.25
        True
        """
        return self.sensitivity / self.sigma * (1 + 1e-15)


class ExponentialEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, tag_field="kind", tag="exponential"
):
    """Choices by the exponential mechanism, with probabilities proportional to exp(η/2 × utility).

    One record changes a utility by 1 at most.
    """

    name: str
    eta: float
    rounds: int
    weighted: bool = False

    @cached_property
    def mu(self) -> float:
        """The loss in Gaussian DP, rounded up: √(2π)/4 η for each round (docs/theorems/selection.md).

        >>> round(ExponentialEvent("choice", eta=1.0, rounds=1).mu, 4)
        0.6267
        """
        return MU_PER_ETA * self.eta * math.sqrt(self.rounds) * (1 + 1e-15)


class SampledEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, tag_field="kind", tag="sampled"
):
    """Rounds of training: subsampled Gaussian measurements.

    Each round samples every record with probability `rate` and adds noise of `sigma` to a sum of L2 `sensitivity`.
    """

    name: str
    sensitivity: float
    sigma: float
    rate: float
    rounds: int
    weighted: bool = False

    @cached_property
    def noise(self) -> float:
        """The noise multiplier, rounded down.

        >>> SampledEvent("gradients", sensitivity=2.0, sigma=9.0, rate=0.05, rounds=300).noise < 4.5
        True
        """
        return self.sigma / self.sensitivity * (1 - 1e-15)

    def of_a_row(self, rows: int) -> "SampledEvent":
        """Return the same rounds for a single row of a person who has `rows` rows."""
        return msgspec.structs.replace(self, sensitivity=self.sensitivity / rows)


class SelectionEvent(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True, tag_field="kind", tag="selection"
):
    """A noisy selection of values: release the noisy counts of occurring values that reach `threshold`.

    A record adds 1 to the count of one value in each of `columns`. A value that only one record has is released
    with a probability that is part of `failure`. The counts of all other values are a Gaussian measurement.
    """

    name: str
    columns: int
    sigma: float
    threshold: int
    weighted: bool = False

    @cached_property
    def mu(self) -> float:
        """The loss in Gaussian DP of the counts of values that several records have, rounded up.

        >>> SelectionEvent("values", columns=4, sigma=20.0, threshold=200).mu > 0.1
        True
        """
        return math.sqrt(self.columns) / self.sigma * (1 + 1e-15)

    @cached_property
    def failure(self) -> float:
        """The probability that a value is released that only one record has, rounded up.

        Noise is rounded to whole numbers, so a count of 1 reaches the threshold half a unit below it.

        >>> 1e-9 < SelectionEvent("values", columns=4, sigma=20.0, threshold=120).failure < 1e-8
        True
        """
        from scipy.special import ndtr  # the command line starts without it

        alone = float(ndtr((1.5 - self.threshold) / self.sigma)) * (1 + 1e-9)
        return min(self.columns * alone, 1.0)


Event = GaussianEvent | ExponentialEvent | SampledEvent
"""The events of a run. A `SelectionEvent` belongs to the measurement of a schema."""
