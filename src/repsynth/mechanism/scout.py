"""The door to a table of which no schema is known yet: one noisy histogram of its cells, one selection of values.

A cell's place in the histogram is a public function of that cell; which columns take part in the selection follows
from the noisy histogram. Nothing else is asked of the table, so that what a schema tells is what was charged.
"""

import os
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from repsynth.arrays import Ints
from repsynth.data.sources import Source
from repsynth.errors import ConfigError
from repsynth.mechanism.noise import Entropy, add_gaussian, select_counts
from repsynth.privacy.events import GaussianEvent, SelectionEvent
from repsynth.privacy.loss import Loss

_WAITING = 2**20  # counts of values that are merged at a time


class Cells(Protocol):
    """A public function of one raw row, with integer values; `sensitivity` is its largest L2 norm."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    @property
    def sensitivity(self) -> float: ...

    def total(self, rows: pa.RecordBatch) -> Ints: ...


class Values(Protocol):
    """The text that each cell of some columns counts for; null if it counts for none."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def texts(self, name: str, cells: pa.Array) -> pa.Array: ...


@dataclass
class Scout:
    """Spends a budget on a table without a schema, and remembers what it did."""

    source: Source
    mu: float
    failure: float
    """The chance, at most, that a value is shown which one record alone holds."""
    entropy: Entropy = os.urandom
    events: list[GaussianEvent | SelectionEvent] = field(default_factory=list)

    def measure(self, statistic: Cells, *, sigma: float) -> Ints:
        """A noisy sum of the statistic over all rows."""
        self._check(GaussianEvent(statistic.name, statistic.sensitivity, sigma))
        total = statistic.total(pa.record_batch({name: pa.array([], pa.string()) for name in statistic.columns}))
        for batch in self.source.batches(statistic.columns):
            total = total + statistic.total(batch)
        noisy, event = add_gaussian(
            total, name=statistic.name, sensitivity=statistic.sensitivity, sigma=sigma, entropy=self.entropy
        )
        self.events.append(event)
        return noisy

    def select(self, values: Values, *, sigma: float, threshold: int) -> dict[str, dict[str, int]]:
        """Return the values whose noisy counts reach the threshold, with these counts, for each column."""
        self._check(SelectionEvent(values.name, len(values.columns), sigma, threshold))
        tallies = {name: _Tally() for name in values.columns}
        for batch in self.source.batches(values.columns):
            for name, tally in tallies.items():
                tally.add(values.texts(name, batch.column(name)))
        counted = {name: tally.counts() for name, tally in tallies.items()}
        counts = np.concatenate([np.zeros(0, dtype=np.int64), *(counts for _, counts in counted.values())])
        noisy, event = select_counts(
            counts,
            name=values.name,
            columns=len(values.columns),
            sigma=sigma,
            threshold=threshold,
            entropy=self.entropy,
        )
        self.events.append(event)
        found: dict[str, dict[str, int]] = {}
        ends = np.cumsum([len(own) for _, own in counted.values()])
        for (name, (texts, _)), part in zip(counted.items(), np.split(noisy, ends[:-1]), strict=True):
            kept = np.flatnonzero(part)
            shown = texts.take(pa.array(kept)).cast(pa.large_binary()).to_pylist()
            named = zip(shown, part[kept].tolist(), strict=True)
            found[name] = dict(sorted((text.decode(), count) for text, count in named if _is_text(text)))
        return found

    def _check(self, planned: GaussianEvent | SelectionEvent) -> None:
        spent = Loss.of([*self.events, planned])
        if spent.floor_mu > self.mu * (1 + 1e-12) or spent.failure > self.failure * (1 + 1e-12):
            raise ConfigError(f"{planned.name}: the budget does not cover it; nothing was measured")


def _is_text(data: bytes) -> bool:
    """Whether a released value can be written down: half a character is no text, whatever Arrow says."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


class _Tally:
    """Counts of texts, added up batch by batch; null counts for nothing."""

    def __init__(self) -> None:
        self._parts: list[pa.Table] = []
        self._waiting = 0

    def add(self, texts: pa.Array) -> None:
        counted = texts.drop_null().value_counts()
        self._parts.append(pa.table({"text": counted.field("values"), "count": counted.field("counts")}))
        self._waiting += len(counted)
        if self._waiting > max(_WAITING, 2 * self._parts[0].num_rows):
            self._join()

    def counts(self) -> tuple[pa.ChunkedArray, Ints]:
        if not self._parts:
            return pa.chunked_array([], type=pa.large_string()), np.zeros(0, dtype=np.int64)
        self._join()
        (whole,) = self._parts
        return whole["text"], whole["count"].to_numpy().astype(np.int64)

    def _join(self) -> None:
        whole = pa.concat_tables(self._parts).group_by("text").aggregate([("count", "sum")])
        self._parts = [pa.table({"text": whole["text"], "count": whole["count_sum"]})]
        self._waiting = whole.num_rows
