"""Synthetic records that obey the rules of a schema and a condition: drawn again until they do.

That is exact: what comes out follows the model's distribution among the records for which the condition holds. How
many had to be drawn for it is counted.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock

import numpy as np

from repsynth.arrays import Bools, Floats
from repsynth.data.following import with_following
from repsynth.data.matching import holds
from repsynth.data.records import Records, join
from repsynth.errors import ConfigError
from repsynth.schema import Schema
from repsynth.schema.conditions import Condition
from repsynth.schema.rules import row_condition

Draw = Callable[[int, np.random.Generator], Records]

_MOST = 262_144
"""Records drawn at a time where few are kept."""

_SEARCHED, _RAREST = 2_000_000, 1_000
"""So many records are drawn before it is given up, if fewer than one in so many is kept."""


@dataclass
class Drawn:
    """How many records were drawn, and how many kept."""

    records: int = 0
    kept: int = 0
    weighted: int = 0
    """Kept records that were chosen among others by weights, to complete what was given."""
    effective: float = 0.0
    """Of how many equally likely ones each of these was chosen, added up."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)

    def add(self, records: int, kept: int, effective: Floats | None = None) -> None:
        """Some more; several threads may say so. `effective` is infinite where no weights were needed."""
        with self._lock:
            self.records, self.kept = self.records + records, self.kept + kept
            if effective is not None:
                chosen = effective[np.isfinite(effective)]
                self.weighted, self.effective = self.weighted + len(chosen), self.effective + float(chosen.sum())

    @property
    def effective_size(self) -> float | None:
        """The mean of those; None where no record was chosen by weights."""
        return self.effective / self.weighted if self.weighted else None

    @property
    def again(self) -> float:
        """The fraction of the records drawn that were not kept."""
        return 1 - self.kept / self.records if self.records else 0.0


@dataclass(frozen=True)
class Obeying:
    """What a synthetic record must be like."""

    schema: Schema
    where: Condition | None = None

    @cached_property
    def _always(self) -> Condition | None:
        return row_condition(self.schema)

    @property
    def asks_nothing(self) -> bool:
        """Whether every record will do as it was drawn."""
        return not self.schema.rules and self.where is None

    def draw(self, draw: Draw, rows: int, generator: np.random.Generator, drawn: Drawn) -> Records:
        """So many records that obey; refused where next to none does."""
        if self.asks_nothing:
            drawn.add(rows, rows)
            return draw(rows, generator)
        kept: list[Records] = []
        asked, tried, found = rows, 0, 0
        while not kept or found < rows:
            records, able = with_following(draw(asked, generator), self.schema)
            able &= self.obeyed_by(records)
            kept.append(records.take(np.flatnonzero(able)))
            tried, found = tried + asked, found + kept[-1].rows
            if tried > _SEARCHED and found * _RAREST < tried:
                raise ConfigError(
                    f"of {tried:,} rows that the model drew, {found:,} obey the condition and the rules of the "
                    "schema; ask for something less rare, or mend the rules"
                )
            more = (rows - found) * tried / max(found, 1)  # as many as are kept at this rate, and some to spare
            asked = min(int(1.1 * more) + 64, max(_MOST, rows))
        drawn.add(tried, found)
        return join(kept, list(kept[0].codes)).take(np.arange(rows))

    def obeyed_by(self, records: Records) -> Bools:
        """Which records do."""
        able = np.ones(records.rows, dtype=np.bool_)
        for condition in (self._always, self.where):
            if condition is not None:
                able &= holds(condition, records, self.schema)
        return able
