"""Conditional sampling: draw the columns of a record that are not given."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.io.records import Records


@dataclass(frozen=True)
class Completed:
    """Records with all columns; given ones are unchanged.

    `possible` is false if the model never draws the given values. `effective` is the effective sample size from
    which each record was chosen by importance weighting; it is infinite if sampling was exact.
    """

    records: Records
    possible: Bools
    effective: Floats

    @classmethod
    def exactly(cls, records: Records, possible: Bools) -> "Completed":
        """Return records that were drawn by the model's conditional probabilities."""
        return cls(records, possible, np.full(records.rows, np.inf))


@runtime_checkable
class Completing(Protocol):
    """A fitted model that can complete records."""

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """Draw the columns that are not given, conditional on the others."""
        ...


def with_given(drawn: Records, given: Records) -> Records:
    """Return the drawn records with the given columns put back."""
    return Records(rows=drawn.rows, codes={**drawn.codes, **given.codes})


def draw_each(masses: Floats, generator: np.random.Generator) -> Ints:
    """Draw a value for each record from masses (records, values) that need not add up to 1.

    >>> draw_each(np.array([[0.0, 3.0], [2.0, 0.0]]), np.random.default_rng(0)).tolist()
    [1, 0]
    """
    ends = np.cumsum(masses, axis=1)
    level = (1 - generator.random(len(masses))) * ends[:, -1]  # above 0, so no value of mass 0 is drawn
    found: Ints = np.minimum((ends < level[:, None]).sum(axis=1), masses.shape[1] - 1)
    return found


def effective_size(masses: Floats) -> Floats:
    """Return the effective sample size of weighted draws (records, draws), by record.

    >>> effective_size(np.array([[1.0, 1.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    size: Floats = masses.sum(axis=1) ** 2 / np.maximum((masses**2).sum(axis=1), 1e-300)
    return size
