"""Encoded records: for each learned column one code or position per record, or the sentinel `MISSING`."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repsynth.arrays import Bools, Ints

MISSING = -1

UNITS = 2**12  # the units of a row that counts in full
ALONE = 2**62  # places of rows without an id start here; each is its own person

OfCode = Callable[[Ints], NDArray[Any]]
"""A public function of one column's codes, elementwise."""


@dataclass(frozen=True)
class Whose:
    """The person and the factor (in units) of each record."""

    places: Ints
    """The number of the person's first row; for a row without an id, `ALONE` plus its own number."""
    factors: Ints

    def take(self, rows: Ints | Bools) -> "Whose":
        return Whose(self.places[rows], self.factors[rows])

    @classmethod
    def joined(cls, parts: "Sequence[Whose]") -> "Whose":
        none = np.zeros(0, dtype=np.int64)
        places, factors = [whose.places for whose in parts], [whose.factors for whose in parts]
        return cls(np.concatenate([none, *places]), np.concatenate([none, *factors]))


@dataclass(frozen=True)
class Records:
    """A batch of encoded records: for each learned column one code or position per record."""

    rows: int
    codes: dict[str, Ints]
    whose: Whose | None = field(default=None, kw_only=True)
    """None where each record is a person."""

    def look_up(self, name: str, function: OfCode, starts: Ints | None = None) -> NDArray[Any]:
        """Apply a public function of one column to each record.

        An engine may tabulate the function. If it is constant between consecutive `starts` (and at -1), tabulating
        it there is enough.

        >>> Records(rows=2, codes={"age": np.array([7, 8])}).look_up("age", lambda ages: ages % 2).tolist()
        [1, 0]
        """
        return function(self.codes[name])

    def take(self, rows: Ints | Bools) -> "Records":
        """Return some of the records.

        >>> Records(rows=3, codes={"age": np.array([7, 8, 9])}).take(np.array([0, 2])).codes["age"].tolist()
        [7, 9]
        """
        codes = {name: values[rows] for name, values in self.codes.items()}
        count = int(np.count_nonzero(rows)) if rows.dtype == np.bool_ else len(rows)
        return Records(rows=count, codes=codes, whose=None if self.whose is None else self.whose.take(rows))

    def by_factor(self) -> "Iterator[tuple[int, Records]]":
        """Group records by factor.

        >>> whose = Whose(np.array([7, 8, 7]), np.array([2048, 4096, 2048]))
        >>> records = Records(rows=3, codes={"age": np.array([30, 31, 32])}, whose=whose)
        >>> [(factor, part.codes["age"].tolist()) for factor, part in records.by_factor()]
        [(2048, [30, 32]), (4096, [31])]
        """
        if self.whose is None:
            yield 1, self
            return
        for factor in np.unique(self.whose.factors):
            yield int(factor), self.take(np.flatnonzero(self.whose.factors == factor))


def factors_of(rows: Ints, most: int) -> Ints:
    """Return the factor of each row, given the `rows` of its person: units * min(1, most / rows), rounded down.

    >>> factors_of(np.array([1, 2, 3, 5000]), most=2).tolist()
    [4096, 4096, 2730, 1]
    """
    return np.where(rows > most, UNITS * most // np.maximum(rows, 1), UNITS)


def no_records() -> Records:
    return Records(rows=0, codes=_NoCodes())


def join(parts: Sequence[Records], names: Sequence[str]) -> Records:
    """Concatenate batches."""
    empty = np.zeros(0, dtype=np.int64)
    codes = {name: np.concatenate([empty, *(part.codes[name] for part in parts)]) for name in names}
    owned = [part.whose for part in parts if part.whose is not None]
    return Records(
        rows=sum(part.rows for part in parts), codes=codes, whose=Whose.joined(owned) if owned else None
    )


class _NoCodes(dict[str, Ints]):
    """Empty codes for any column."""

    def __missing__(self, name: str) -> Ints:
        return np.zeros(0, dtype=np.int64)
