"""Columns that follow from another one: the same thing twice, which would be measured and paid for twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from repsynth.arrays import Ints
from repsynth.curator.look import Look

_MOST_ROWS = 100_000
_FIRST = 1_000
"""Rows that most pairs fail in already."""

_REPEATS = 10
"""A value must occur this often on average: what is unique determines everything."""

_EVIDENCE = 50
"""Rows that chance would have to leave alone: what is nearly constant follows from everything."""


@dataclass(frozen=True)
class Follows:
    """That a column follows from another; `both` where each follows from the other, `whole` if all rows say so."""

    source: str
    values: int
    both: bool
    whole: bool


def what_follows(looks: Sequence[Look]) -> dict[str, Follows]:
    """For each column that follows from another one alone, the one with the fewest values that it follows from.

    Of two that follow from each other, the second does. Missing is a value here.

    >>> import pyarrow as pa
    >>> table = pa.table({"town": ["Bern", "Rome", "Oslo", "Kiel"] * 50, "land": ["CH", "IT", "NO", "DE"] * 50})
    >>> looks = [Look.of(name, table[name]) for name in table.column_names]
    >>> what_follows(looks)
    {'land': Follows(source='town', values=4, both=True, whole=True)}
    """
    if not looks or not looks[0].rows:
        return {}
    rows = looks[0].rows
    seen = np.arange(rows) if rows <= _MOST_ROWS else np.linspace(0, rows - 1, _MOST_ROWS).astype(np.int64)
    columns = [_Codes.of(look, seen) for look in looks]
    found: dict[str, Follows] = {}
    for b, target in enumerate(columns):
        sources = [
            (source.size, a)
            for a, source in enumerate(columns)
            if a != b and source.could_determine(target) and source.determines(target)
        ]
        for size, a in sorted(sources):
            both = columns[a].size == target.size
            if both and b < a:
                continue
            found[looks[b].name] = Follows(looks[a].name, size, both, len(seen) == rows)
            break
    return found


@dataclass(frozen=True)
class _Codes:
    """The rows looked at as codes 0..size-1, and how different two rows are on average."""

    codes: Ints
    size: int
    spread: float

    @classmethod
    def of(cls, look: Look, seen: Ints) -> "_Codes":
        present, codes = np.unique(look.codes[seen], return_inverse=True)
        fractions = np.bincount(codes) / len(codes)
        return cls(codes.astype(np.int64), len(present), float(1 - fractions @ fractions))

    def could_determine(self, other: "_Codes") -> bool:
        rows = len(self.codes)
        repeats = self.size * _REPEATS <= rows and (rows - self.size) * other.spread >= _EVIDENCE
        return repeats and 1 < other.size <= self.size

    def determines(self, other: "_Codes") -> bool:
        return all(self._agrees(other, slice(end)) for end in (_FIRST, None))

    def _agrees(self, other: "_Codes", rows: slice) -> bool:
        mine, its = self.codes[rows], other.codes[rows]
        last = np.zeros(self.size, dtype=np.int64)
        last[mine] = its
        return bool(np.array_equal(last[mine], its))
