"""Completing records of which some columns are given: what a model draws for the others."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from repsynth.arrays import Bools, Floats, Ints
from repsynth.data.records import Records


@dataclass(frozen=True)
class Completed:
    """Records with all columns, the given ones as they were.

    `possible` says for which the model can draw what is given; `effective`, from how many equally likely draws
    each was chosen by weighting, infinite where the model's probabilities were followed exactly.
    """

    records: Records
    possible: Bools
    effective: Floats

    @classmethod
    def exactly(cls, records: Records, possible: Bools) -> "Completed":
        """Drawn by the model's own probabilities."""
        return cls(records, possible, np.full(records.rows, np.inf))


@runtime_checkable
class Completing(Protocol):
    """A fitted model that can complete records."""

    def complete(self, given: Records, generator: np.random.Generator) -> Completed:
        """The records with the columns that are not given, drawn given the others."""
        ...


def with_given(drawn: Records, given: Records) -> Records:
    """The records drawn, with the given columns as they were given."""
    return Records(rows=drawn.rows, codes={**drawn.codes, **given.codes})


def draw_each(masses: Floats, generator: np.random.Generator) -> Ints:
    """From (records, values) a value for each record, by masses that need not add up to 1.

    >>> draw_each(np.array([[0.0, 3.0], [2.0, 0.0]]), np.random.default_rng(0)).tolist()
    [1, 0]
    """
    ends = np.cumsum(masses, axis=1)
    level = (1 - generator.random(len(masses))) * ends[:, -1]  # above 0: a value of no mass is never drawn
    found: Ints = np.minimum((ends < level[:, None]).sum(axis=1), masses.shape[1] - 1)
    return found


def effective_size(masses: Floats) -> Floats:
    """How many equally likely draws those of (records, draws) are worth, by record.

    >>> effective_size(np.array([[1.0, 1.0], [1.0, 0.0]])).tolist()
    [2.0, 1.0]
    """
    size: Floats = masses.sum(axis=1) ** 2 / np.maximum((masses**2).sum(axis=1), 1e-300)
    return size
